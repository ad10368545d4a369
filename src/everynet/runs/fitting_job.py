"""A fitting on its way: an estimator learns all at once, and what it learned is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from everynet.data.dataset import Data, Spec
from everynet.plot.style import escape_names
from everynet.recipes.recipe import Drawn, Fitting, require_returned
from everynet.runs import checkpoint, notes
from everynet.runs.folder import explaining_misfit, read_dataset
from everynet.runs.job import Job, Result
from everynet.runs.log import Log
from everynet.system.errors import UserError
from everynet.training.loop import evaluate, evaluating


class FittingJob(Job):
    """A run of a fitting."""

    recipe: Fitting

    def prepare(self) -> None:
        self.note_settings()
        self.refuse_processes()
        self.read_data()
        self.data = self.data.to(self.setup.device, self.setup.dtype)
        self.tell(notes.on_data(self.data, self.recipe))

    def run(self) -> Result:
        """Let the estimator learn, and keep its attributes that end in an underscore."""
        recipe = self.recipe
        self.start_over()
        with self.ending_at_once():
            estimator = recipe.model(self.data)
            require_returned(recipe, "model", estimator, object, "an estimator")
            model = recipe.fit(estimator, self.data)
            owner = estimator if type(recipe).fit is Fitting.fit else recipe
            require_returned(owner, "fit", model, object, "the estimator that it fitted")
        learned = {n: v for n, v in vars(model).items() if n.endswith("_") and n[0] != "_"}
        checkpoint.save_values(checkpoint.path_of(self.folder, 1), learned)
        self.log.add({"step": 1, "valid": evaluate(recipe, model, self.data.valid, self.setup)})
        return self.finish(1, self.test(model), model)

    @classmethod
    def load(cls, recipe: Fitting, folder: Path, spec: Spec) -> Any:  # noqa: ANN401 -- a duck
        """The estimator with what it learned."""
        with explaining_misfit(recipe, folder):
            estimator = recipe.model(Data.described(spec))
        for name, value in checkpoint.load_newest_values(folder).items():
            if not name.isidentifier() or not name.endswith("_") or name.startswith("_"):
                raise UserError(f"{folder} is damaged: no estimator learns {name!r:.40}")
            with explaining_misfit(recipe, folder):
                setattr(estimator, name, value)
        with explaining_misfit(recipe, folder):
            recipe.check_learned(estimator, spec)
        return estimator

    def load_to_draw(self) -> Any:  # noqa: ANN401 -- a duck
        self.data = read_dataset(self.recipe, self.folder).to(self.setup.device, torch.float64)
        self.check_sources()
        self.log = Log.of(self.folder)
        return super().load_to_draw()

    def pictures(self, model: object) -> dict[str, Drawn]:
        data = replace(self.data, spec=escape_names(self.data.spec))
        with evaluating(model):
            return self.recipe.draw(model, data, self.log.rows)
