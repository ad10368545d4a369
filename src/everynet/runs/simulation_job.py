"""A simulation on its way: compute its result and keep it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from everynet.data.dataset import Spec
from everynet.data.images.standardize import write_image
from everynet.recipes.recipe import NUMBERS, Simulation, require_returned
from everynet.runs import checkpoint
from everynet.runs.job import Job, Result
from everynet.system import files


class SimulationJob(Job):
    """A run of a simulation."""

    recipe: Simulation

    def prepare(self) -> None:
        self.note_settings()
        self.refuse_processes()
        self.recipe.ready()

    def run(self) -> Result:
        self.start_over()
        generator = torch.Generator().manual_seed(self.recipe.seed)
        with self.ending_at_once():
            result = self.recipe.simulate(generator)
        arrays = "a dict of tensors by name, such as {'path': path}"
        require_returned(self.recipe, "simulate", result, Mapping, arrays)
        checkpoint.save_values(checkpoint.path_of(self.folder, 1), result)
        metrics = self.recipe.metrics(result)
        require_returned(self.recipe, "metrics", metrics, Mapping, NUMBERS, of=(int, float))
        self.keep_images(self.recipe.images_to_keep(result))
        return self.finish(1, metrics, result)

    def keep_images(self, images: Mapping[str, torch.Tensor]) -> None:
        """Write images into a folder of the run, in the place of those it held."""
        folder = self.folder / "images"
        if folder.exists():
            files.remove_folder(folder)
        if images:
            files.make_folder(folder)
        for name, image in images.items():
            write_image((image * 255).round().to(torch.uint8), folder / f"{name}.png")

    @classmethod
    def load(cls, recipe: Simulation, folder: Path, spec: Spec) -> dict[str, Any]:
        """The named arrays of its result."""
        return checkpoint.load_newest_values(folder)
