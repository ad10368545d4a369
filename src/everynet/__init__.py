"""Every network of the deep-learning curriculum as real software.

`everynet.recipe("lenet", lr=0.01)` gives a recipe, `everynet.run(recipe)` trains it, and
`everynet.load(folder)` gives the trained model back. A recipe of one's own begins with
`from everynet import Training, Data`. Nothing heavy is imported before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from everynet.system.matplotlibrc import pass_over_broken_settings

if TYPE_CHECKING:
    from pathlib import Path

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
    from everynet.recipes.state import State as State
    from everynet.recipes.trained import Trained as Trained
    from everynet.recipes.training import Training as Training
    from everynet.runs.history import Watch
    from everynet.runs.job import Result as Result
    from everynet.system.errors import UserError as UserError

__version__ = "0.1.0"

pass_over_broken_settings()

__all__ = [
    "Batch",
    "Cell",
    "Data",
    "Experiment",
    "Fitting",
    "History",
    "Recipe",
    "Result",
    "Simulation",
    "Spec",
    "State",
    "Table",
    "Terms",
    "Trained",
    "Training",
    "UserError",
    "autodiff",
    "data",
    "load",
    "metrics",
    "nn",
    "plot",
    "recipe",
    "recipes",
    "resume",
    "run",
    "runs",
    "sweep",
    "trained",
    "zoo",
]

_WORDS = {
    **dict.fromkeys(("Recipe", "Fitting", "Simulation"), "recipes.recipe"),
    **dict.fromkeys(("Cell", "Experiment", "Table"), "recipes.experiment"),
    **{
        "Training": "recipes.training",
        "State": "recipes.state",
        "Result": "runs.job",
        "Trained": "recipes.trained",
        "UserError": "system.errors",
    },
    **dict.fromkeys(("Batch", "Data", "History", "Spec", "Terms"), "data.dataset"),
}


def recipe(name: str, **fields: object) -> Recipe:
    """The recipe of that name, with some settings replaced."""
    found: Recipe = import_module("everynet.recipes.catalog").find(name)
    made: Recipe = import_module("everynet.recipes.settings").override(found, fields)
    return made


def run(
    recipe: Recipe,
    out: str | Path = "runs",
    *,
    data: object = None,
    device: str = "auto",
    precision: str = "auto",
    compile: bool = False,
    jobs: int = 1,
    show: bool = False,
    watch: Watch | None = None,
) -> Result:
    """Do all that a recipe says, in a new folder below `out`; `data` may be (X, y) in memory.

    `watch` is called with each record as it is logged: `{"step": 7, "train_loss": 0.41}`.
    """
    _check_watch(watch)
    done: Result = import_module("everynet.runs").run(
        recipe,
        out,
        data=data,
        device=device,
        precision=precision,
        compile=compile,
        jobs=jobs,
        show=show,
        watch=watch,
    )
    return done


def resume(
    folder: str | Path,
    file: str | Path | None = None,
    *,
    data: object = None,
    jobs: int = 1,
    show: bool = False,
    watch: Watch | None = None,
    **fields: object,
) -> Result:
    """Go on with a run; `steps=N` for longer, `file` for a recipe outside the zoo.

    `data` is where its data lies now, or that which was given in memory.
    """
    _check_watch(watch)
    found: Recipe = import_module("everynet.recipes.stored").of_run(folder, file)
    found = import_module("everynet.recipes.settings").override(found, fields)
    done: Result = import_module("everynet.runs").resume(
        found, folder, data=data, jobs=jobs, show=show, watch=watch
    )
    return done


def _check_watch(watch: object) -> None:
    if watch is not None and not callable(watch):
        raise import_module("everynet.system.errors").UserError(
            f"watch ({watch!r:.60}) must be a function of one record, such as print"
        )


def draw(
    folder: str | Path, file: str | Path | None = None, *, data: object = None
) -> tuple[Path, ...]:
    """Draw the pictures of a run again; `data` as for `resume`."""
    found: Recipe = import_module("everynet.recipes.stored").of_run(folder, file)
    drawn: tuple[Path, ...] = import_module("everynet.runs").draw(found, folder, data=data)
    return drawn


def load(folder: str | Path, file: str | Path | None = None) -> Any:  # noqa: ANN401 -- any model
    """The trained model of a run folder, in eval mode; `file` names a recipe outside the zoo."""
    return import_module("everynet.runs.loading").load(folder, file)


def evaluate(
    folder: str | Path,
    data: str | Path = "",
    file: str | Path | None = None,
    *,
    device: str = "auto",
    precision: str = "auto",
    **fields: object,
) -> dict[str, float]:
    """The figures of a run on labelled files or a known set; or else on its own test split."""
    found: Recipe = import_module("everynet.recipes.stored").of_run(folder, file)
    judge = import_module("everynet.runs.evaluate").judge
    judged = judge(found, folder, data, device=device, precision=precision, **fields)
    figures: dict[str, float] = judged.figures
    return figures


def sweep(
    name: str | Recipe,
    *,
    seeds: int = 1,
    random: int = 0,
    halving: bool = False,
    jobs: int = 1,
    out: str | Path = "runs",
    device: str = "auto",
    precision: str = "auto",
    show: bool = False,
    **fields: object,
) -> Result:
    """Train every combination of some settings: `sweep("mlp", lr=[0.01, 0.1], seeds=3)`."""
    found: Any = (
        import_module("everynet.recipes.catalog").find(name) if isinstance(name, str) else name
    )
    sweeps = import_module("everynet.recipes.sweep")
    given = {key: sweeps.as_text(value) for key, value in fields.items()}
    made = sweeps.sweep_of(found, given, seeds=seeds, random=random, halving=halving)
    done: Result = import_module("everynet.runs").run(
        made, out, device=device, precision=precision, jobs=jobs, show=show
    )
    return done


def trained(folder: str | Path, file: str | Path | None = None) -> Trained:
    """A run to be asked, `trained(run).predict(X)`, or given to a recipe: `of=trained(run)`."""
    found: Trained = import_module("everynet.runs.loading").trained(folder, file)
    return found


if not TYPE_CHECKING:  # so that mypy finds a name that is not there

    def __getattr__(name: str) -> object:
        if name in _WORDS:
            return getattr(import_module(f"everynet.{_WORDS[name]}"), name)
        if name in __all__:
            return import_module(f"everynet.{name}")
        from everynet.system.wording import no_attribute  # noqa: PLC0415 -- only a mistake needs it

        raise no_attribute(__name__, name, __all__)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
