"""A run is one folder of plain files: settings, log, checkpoints, pictures and a card.

    recipe.json  environment.json  spec.json  manifest.json  metrics.jsonl  timing.jsonl
    checkpoints/STEP/  checkpoints/best-STEP/  cells/NAME/  pictures/*.png  card.md

`run` begins one, `resume` goes on with one after a stop, a kill or a crash, `draw` draws its
pictures again, and `load` gives its model back. Nothing is printed unless `show` is set.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from everynet.data.dataset import Data
from everynet.data.in_memory import PREFIX, Given, given, holding, is_held
from everynet.data.paths import absolute
from everynet.plot.style import drawing
from everynet.recipes.experiment import Experiment, named_cells
from everynet.recipes.recipe import Fitting, Recipe, Simulation
from everynet.recipes.settings import plain_settings
from everynet.recipes.stored import described
from everynet.recipes.sweep import Sweep
from everynet.recipes.training import Training
from everynet.runs import checkpoint
from everynet.runs.card import environment
from everynet.runs.experiment_job import Study, load_table
from everynet.runs.folder import (
    as_json,
    as_typed,
    read_environment,
    read_spec,
    resolved,
    setup_of,
    what,
    with_data,
)
from everynet.runs.history import Watch
from everynet.runs.job import Job, Result
from everynet.runs.log import Log
from everynet.runs.progress import Progress, signals
from everynet.system import files
from everynet.system.errors import Failure, UserError
from everynet.system.manifest import put, read_json, sealed
from everynet.system.sources import recording
from everynet.system.status import telling
from everynet.system.user_files import place
from everynet.system.wording import with_article, written
from everynet.training import device
from everynet.training.device import DEVICES, PRECISIONS, Setup, choose
from everynet.training.loop import check_room
from everynet.training.preflight import check_whole
from everynet.training.processes import World, joined


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
    """Do all that a recipe says, in a new folder below `out`.

    `data` is a name or a path in the place of the recipe's own, or what the caller holds: (X, y) or
    X (see `data/given.py`). `jobs` is how many cells of an experiment are trained at once; it
    changes no number. `watch` is called with each record that is logged (see `everynet.runs.history`);
    what it raises ends the run, which is saved first and can be gone on with.
    """
    typed, held = _on(recipe, data)
    recipe = resolved(_with_name(typed))
    setup = setup_for(recipe, device, precision, compile)
    with holding(held), _job(recipe, setup, show, jobs, watch) as job:
        with as_typed(typed, recipe):
            start, world = job.prepare(), job.world
        contents = {
            "recipe.json": as_json(described(job.recipe)),
            "environment.json": as_json(environment(job.setup, world.size)),
            "spec.json": as_json(job.described_data()),
            "metrics.jsonl": b"",
        }
        stem = f"{recipe.name}-{datetime.now():%Y%m%d-%H%M%S}"
        made = files.write_new_folder(Path(out), stem, sealed(contents)) if world.writes else Path()
        job.folder = Path(world.share_text("folder", str(made)))
        job.progress.say(f"{recipe.name} on {job.where()} -> {job.folder}")
        with job.held():
            return start()


def setup_for(
    recipe: Recipe, device: str = "auto", precision: str = "auto", compile: bool = False
) -> Setup:
    """How a recipe is computed; what it cannot be computed on or in is refused."""
    devices, precisions = " or ".join(recipe.devices), " or ".join(recipe.precisions)
    name, kind = recipe.name or type(recipe).__name__, device.partition(":")[0]
    why = f"because {name} is {with_article(recipe.kind)}, computed on {devices} in {precisions}"
    if kind in DEVICES and kind not in ("auto", *recipe.devices):
        raise UserError(f"device ({device}) must be {devices}, {why}; leave --device out")
    if precision in PRECISIONS and precision not in recipe.precisions:
        raise UserError(f"precision ({precision}) must be {precisions}, {why}; leave it out")
    if compile and not isinstance(recipe, Training | Experiment):
        raise UserError(f"compile (true) must be false, {why} without a network; leave it out")
    if device == "auto" and choose("auto").device.type not in recipe.devices:
        device = "cpu"
    if precision == "auto":
        fast = "tf32" in recipe.precisions and choose(device).device.type == "cuda"
        precision = "tf32" if fast else recipe.precisions[0]
    return choose(device, precision, compile)


def resume(
    recipe: Recipe,
    folder: str | Path,
    *,
    data: object = None,
    jobs: int = 1,
    show: bool = False,
    watch: Watch | None = None,
) -> Result:
    """Go on with a run from its newest good checkpoint, computed as it was before.

    `data` says where its data is now, or holds it; its SHA-256 must be what it was.
    """
    folder = Path(folder)
    where = read_environment(folder)
    recipe, held = _on(recipe, data, again=True)
    with holding(held), _job(recipe, setup_of(folder), show, jobs, watch) as job:
        if job.world.size != where["processes"]:
            raise UserError(
                f"{folder} was made by {where['processes']} process(es) and cannot go on with "
                f"{job.world.size}, which would give other numbers: resume it "
                + (f"with torchrun --nproc-per-node={where['processes']}" if job.world.size == 1
                   else "without torchrun" if where["processes"] == 1 else "with as many")
            )  # fmt: skip
        job.folder = folder
        with fitting(recipe, folder):
            start = job.prepare()
        job.check_read()
        with job.held():
            if job.world.writes:
                _check_steps(recipe, folder)
                _check_same(recipe, folder)
                files.sweep(folder)
                put(folder, {"recipe.json": as_json(described(recipe))})
            return start()


def _check_steps(recipe: Recipe, folder: Path) -> None:
    """Refuse to end a run before the step it has reached."""
    if isinstance(recipe, Training) and checkpoint.steps(folder):
        done = checkpoint.done(folder)
        if recipe.steps < done:
            raise UserError(
                f"steps ({recipe.steps}) must be at least {done}, because {folder} has done "
                f"{done} already; run it anew for fewer"
            )


def _check_same(recipe: Recipe, folder: Path) -> None:
    """Refuse to go on with an experiment whose cells would be other ones."""
    if not isinstance(recipe, Experiment):
        return
    old = what(recipe, read_json(folder / "recipe.json")["settings"])
    for name, value in what(recipe, json.loads(as_json(plain_settings(recipe)))).items():
        if value != old.get(name):
            raise UserError(
                f"{name} ({written(value)}) must stay {written(old.get(name))}, because the cells "
                f"of {folder} were trained with it; run the experiment anew"
            )


def draw(
    recipe: Recipe,
    folder: str | Path,
    *,
    data: object = None,
    forms: tuple[str, ...] = ("png",),
) -> tuple[Path, ...]:
    """Draw the pictures of a run again, as files of each form; `data` as for `resume`."""
    folder = Path(folder)
    recipe, held = _on(recipe, data, again=True)
    job = Job(recipe, choose("cpu"), World(), folder=folder, forms=forms)
    with holding(held), device.computing(job.setup), drawing():
        if isinstance(recipe, Experiment) and data is not None:
            job.data = next(iter(named_cells(recipe).values())).dataset()
            job.check_read()
        if isinstance(recipe, Simulation | Experiment):
            result = load(recipe, folder)
            with fitting(recipe, folder):
                pictures = recipe.draw(result)
            return job.write_pictures(pictures)
        dtype = torch.float64 if isinstance(recipe, Fitting) else torch.float32
        found: Data = recipe.dataset()  # type: ignore[attr-defined]  # the kinds that have data
        job.data = found.to(job.setup.device, dtype)
        job.check_read()
        job.log = Log.of(folder)
        model = load(recipe, folder)
        with fitting(recipe, folder):
            return job.draw(model)


def elsewhere(recipe: Recipe, folder: str | Path, data: str) -> Recipe:
    """The recipe of a run whose data was moved, if that is what it was."""
    job = Job(with_data(recipe, absolute(data)), choose("cpu"), World(), folder=Path(folder))
    job.data = job.recipe.dataset()
    job.check_read()
    moved: Recipe = job.recipe
    return moved


def load(recipe: Recipe, folder: str | Path) -> Any:  # noqa: ANN401 -- a network or an estimator
    """The trained model of a run, ready to use; a simulation's result, an experiment's table.

    Nothing in the folder is changed. Where the weights that were kept are damaged, others of the
    run are taken, with a warning.
    """
    folder = Path(folder)
    read_json(folder / "recipe.json")
    read_environment(folder)
    if isinstance(recipe, Simulation):
        return checkpoint.load_newest_values(folder)
    if isinstance(recipe, Experiment):
        return load_table(recipe, folder)
    data = Data.described(read_spec(folder)["spec"])
    if isinstance(recipe, Fitting):
        with fitting(recipe, folder):
            estimator = recipe.model(data)
        for name, value in checkpoint.load_newest_values(folder).items():
            if not name.isidentifier() or not name.endswith("_") or name.startswith("_"):
                raise UserError(f"{folder} is damaged: no estimator learns {name!r:.40}")
            with fitting(recipe, folder):
                setattr(estimator, name, value)
        return estimator
    assert isinstance(recipe, Training)
    check_room(recipe, data)
    with fitting(recipe, folder):
        model = recipe.model(data)
    if passed_over := checkpoint.load_kept(folder, model):
        warnings.warn(passed_over, stacklevel=2)
    return model.eval()


@contextmanager
def fitting(recipe: Recipe, folder: Path) -> Iterator[None]:
    """What fails within, given what a run folder holds, is one line: the two do not fit.

    A folder may come from anyone, and its checksums hold whatever its maker wrote.
    """
    try:
        yield
    except (Failure, OSError):
        raise
    except Exception as error:
        if place(error):
            raise  # a mistake in the user's own file, who is told the line of it
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(
            f"what {folder} holds does not fit {recipe.name}, because another version made it or "
            f"it was changed: {said:.200}; run the recipe anew (--debug shows where it failed)"
        ) from error


@contextmanager
def _job(recipe: Recipe, setup: Setup, show: bool, jobs: int, watch: Watch | None) -> Iterator[Job]:
    """A job whose signals are caught and whose caller gets threads and random state back.

    Signals are the outermost: torchrun sends one while a lost process is still being named.
    """
    _check_jobs(recipe, jobs)
    check_whole(recipe)
    with (
        signals() as stop,
        joined(setup.device) as world,
        device.computing(setup),
        recording() as read,
        drawing(),
    ):
        progress = Progress(1, shown=show and world.writes)
        with telling(progress):
            if isinstance(recipe, Experiment):
                yield Study(
                    recipe, setup, world, progress, stop=stop, read=read, jobs=jobs, watch=watch
                )
            else:
                yield Job(recipe, setup, world, progress, stop=stop, read=read, watch=watch)


def _on(recipe: Recipe, data: object, *, again: bool = False) -> tuple[Recipe, Given | None]:
    """The recipe on the data that a caller names or holds, and what is held."""
    if data is None:
        return recipe, None
    if isinstance(data, str | Path):
        return with_data(recipe, absolute(str(data)) if again else str(data)), None
    held = given(data)
    origin = recipe.base if isinstance(recipe, Sweep) else recipe
    if again and str(getattr(origin, "data", "")).startswith(PREFIX):
        return recipe, held  # `load` compares the two
    return with_data(recipe, held.name), held


def _check_jobs(recipe: Recipe, jobs: int) -> None:
    """Refuse processes where there is nothing to share out."""
    if jobs < 1:
        raise UserError(f"jobs ({jobs}) must be at least 1")
    if jobs > 1 and not isinstance(recipe, Experiment):
        raise UserError(
            f"jobs ({jobs}) must be 1, because {recipe.name} is {with_article(recipe.kind)}, "
            "which has no cells to share out; leave it out"
        )
    if jobs > 1 and is_held():
        raise UserError(
            f"jobs ({jobs}) must be 1 with data in memory, which other processes cannot see; leave "
            "it out, or write the data to a file"
        )


def _with_name(recipe: Recipe) -> Recipe:
    return recipe if recipe.name else replace(recipe, name=type(recipe).__name__.lower())
