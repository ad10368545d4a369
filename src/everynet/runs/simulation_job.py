"""A simulation on its way: compute its result and keep it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from everynet.data.dataset import Spec
from everynet.recipes.recipe import NUMBERS, Simulation, require_returned
from everynet.runs import checkpoint
from everynet.runs.job import Job, Result


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
        return self.finish(1, metrics, result)

    @classmethod
    def load(cls, recipe: Simulation, folder: Path, spec: Spec) -> dict[str, Any]:
        """The named arrays of its result."""
        return checkpoint.load_newest_values(folder)
