"""Every network of the deep-learning curriculum as real software.

`everynet.recipe("lenet", lr=0.01)` gives a recipe, `everynet.run(recipe)` trains it, and
`everynet.load(folder)` gives the trained model back. A recipe of one's own begins with
`from everynet import Training, Data`. Nothing heavy is imported before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everynet import autodiff as autodiff
    from everynet import data as data
    from everynet import metrics as metrics
    from everynet import nn as nn
    from everynet import plot as plot
    from everynet import recipes as recipes
    from everynet import runs as runs
    from everynet import zoo as zoo
    from everynet.data.dataset import Batch as Batch
    from everynet.data.dataset import Data as Data
    from everynet.data.dataset import History as History
    from everynet.data.dataset import Spec as Spec
    from everynet.data.dataset import Terms as Terms
    from everynet.recipes.experiment import Cell as Cell
    from everynet.recipes.experiment import Experiment as Experiment
    from everynet.recipes.experiment import Table as Table
    from everynet.recipes.recipe import Fitting as Fitting
    from everynet.recipes.recipe import Recipe as Recipe
    from everynet.recipes.recipe import Simulation as Simulation
    from everynet.recipes.settings import recipe as recipe
    from everynet.recipes.state import State as State
    from everynet.recipes.trained import Trained as Trained
    from everynet.recipes.training import Training as Training
    from everynet.runs.estimator import estimator as estimator
    from everynet.runs.evaluate import evaluate as evaluate
    from everynet.runs.job import Result as Result
    from everynet.runs.loading import draw as draw
    from everynet.runs.loading import load as load
    from everynet.runs.loading import resume as resume
    from everynet.runs.loading import trained as trained
    from everynet.runs.verbs import run as run
    from everynet.runs.verbs import sweep as sweep
    from everynet.system.errors import UserError as UserError

__version__ = "0.1.0"

_ROOMS = ("autodiff", "data", "metrics", "nn", "plot", "recipes", "runs", "zoo")
_HOMES = {
    "data.dataset": ("Batch", "Data", "History", "Spec", "Terms"),
    "recipes.experiment": ("Cell", "Experiment", "Table"),
    "recipes.recipe": ("Fitting", "Recipe", "Simulation"),
    "recipes.settings": ("recipe",),
    "recipes.state": ("State",),
    "recipes.trained": ("Trained",),
    "recipes.training": ("Training",),
    "runs.estimator": ("estimator",),
    "runs.evaluate": ("evaluate",),
    "runs.job": ("Result",),
    "runs.loading": ("draw", "load", "resume", "trained"),
    "runs.verbs": ("run", "sweep"),
    "system.errors": ("UserError",),
}
_NAMES = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted([*_NAMES, *_ROOMS])  # noqa: PLE0605 -- names of a table


if not TYPE_CHECKING:  # so that mypy finds a name that is not there

    def __getattr__(name: str) -> object:
        if name in _NAMES:
            return getattr(import_module(f"everynet.{_NAMES[name]}"), name)
        if name in _ROOMS:
            return import_module(f"everynet.{name}")
        from everynet.system.wording import no_attribute  # noqa: PLC0415 -- only a mistake needs it

        raise no_attribute(__name__, name, __all__)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
