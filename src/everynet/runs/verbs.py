"""A run is one folder of plain files: settings, log, checkpoints, pictures and a card.

    recipe.json  environment.json  spec.json  manifest.json  metrics.jsonl  timing.jsonl
    checkpoints/STEP/  checkpoints/best-STEP/  cells/NAME/  pictures/*.png  card.md

`run` begins one, `resume` goes on with one after a stop, a kill or a crash, `draw` draws its
pictures again, and `load` gives its model back. Nothing is printed unless `show` is set.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from everynet.data.in_memory import PREFIX, UNDIVIDED, Given, given, holding, is_held
from everynet.data.paths import absolute
from everynet.plot.style import drawing
from everynet.recipes.catalog import find
from everynet.recipes.experiment import Experiment, named_cells
from everynet.recipes.recipe import Recipe
from everynet.recipes.settings import override, plain_settings
from everynet.recipes.stored import describe_recipe
from everynet.recipes.sweep import Sweep, sweep_of
from everynet.recipes.training import Training
from everynet.runs import checkpoint
from everynet.runs.card import with_pictures
from everynet.runs.epochs import turn_into_steps, with_settings
from everynet.runs.folder import (
    as_json,
    describe_data,
    describe_environment,
    explaining_misfit,
    naming_paths_as_typed,
    read_dataset,
    read_environment,
    read_setup,
    read_spec,
    resolve,
    settings_without_places,
    with_data,
)
from everynet.runs.job import Job, Result, job_class
from everynet.runs.log import Watch
from everynet.runs.progress import Progress
from everynet.system import files
from everynet.system.errors import UserError
from everynet.system.manifest import put, read_json, sealed
from everynet.system.signals import catching_signals
from everynet.system.sources import recording
from everynet.system.status import telling
from everynet.system.wording import with_article, written
from everynet.training.device import DEVICES, PRECISIONS, Setup, choose, computing
from everynet.training.preflight import check_methods
from everynet.training.processes import joined


def run(
    recipe: str | Recipe,
    out: str | Path = "runs",
    *,
    data: object = None,
    device: str = "auto",
    precision: str = "auto",
    compile: bool = False,
    jobs: int = 1,
    show: bool = False,
    watch: Watch | None = None,
    **fields: object,
) -> Result:
    """Do all that a recipe says, in a new folder below `out`: `run("mlp", data=(X, y), lr=0.01)`.

    `recipe` is a recipe or its name; `fields` are settings in the place of its own, and `epochs`.
    `data` is a name or a path in the place of the recipe's own, or data in memory: (X, y) or X (see
    `data/in_memory.py`). `jobs` is how many cells of an experiment are trained at once; it changes
    no number. `watch` is called with each record that is logged, `{"step": 7, "train_loss": 0.41}`;
    what it raises ends the run, which is saved first and can be gone on with.
    """
    if not isinstance(out, str | Path):
        raise UserError(
            f"out (of type {type(out).__name__}) must be the folder that runs go into; data is "
            "given by its name, data=(X, y)"
        )
    typed, in_memory = _with_data_of_caller(_found(recipe), data)
    typed = _with_batches_of(typed, in_memory, fields)
    with holding(in_memory):
        typed = with_settings(typed, fields, show=show)
    recipe = resolve(_with_name(typed))
    setup = setup_for(recipe, device, precision, compile)
    with holding(in_memory), _job(recipe, setup, show, jobs, watch) as job:
        with naming_paths_as_typed(typed, recipe), job.beginning():
            job.prepare()
        return run_prepared(job, Path(out))


def run_prepared(job: Job, out: Path) -> Result:
    """Do what a job says that is prepared, in a new folder below `out`."""
    contents = {
        "recipe.json": as_json(describe_recipe(job.recipe)),
        "environment.json": as_json(describe_environment(job.setup, job.world.size)),
        "spec.json": as_json(describe_data(job.data, job.sources)),
        "metrics.jsonl": b"",
    }
    made = Path()
    if job.world.writes:
        stem = f"{job.recipe.name}-{datetime.now():%Y%m%d-%H%M%S}"
        made = files.write_new_folder(out, stem, sealed(contents))
    job.folder = Path(job.world.share_text(str(made)))
    job.progress.say(f"{job.recipe.name} on {job.where} -> {job.folder}")
    with job.locked():
        return job.run()


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
    if compile and recipe.kind in ("fitting", "simulation"):
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
    device: str = "",
    jobs: int = 1,
    show: bool = False,
    watch: Watch | None = None,
) -> Result:
    """Go on with a run from its newest good checkpoint, computed as it was before.

    The number of processes, `batch_size` and, if one is named, the device may be others from here
    on, which the card then says.
    `data` says where its data is now, or is that which was in memory; its SHA-256 must be the same.
    """
    folder = Path(folder)
    where = read_environment(folder)
    recipe, in_memory = _with_data_of_caller(recipe, data, again=True)
    if device:
        setup_for(recipe, device)  # which refuses what this kind of recipe is not computed on
    setup = read_setup(folder, device)
    with holding(in_memory), _job(recipe, setup, show, jobs, watch) as job:
        job.folder = folder
        with explaining_misfit(recipe, folder), job.beginning():
            job.prepare()
        job.check_sources()
        with job.locked():
            if job.world.writes:
                _check_steps(recipe, folder)
                _check_same(recipe, folder)
                files.sweep(folder)
                contents = {"recipe.json": as_json(describe_recipe(recipe))}
                new = describe_environment(setup, job.world.size)
                if lines := _describe_changes(recipe, folder, where, new):
                    where |= {name: new[name] for name in (*_PLACE, "device_name", "processes")}
                    where["changes"] = [*where.get("changes", ()), *lines]
                    contents["environment.json"] = as_json(where)
                put(folder, contents)
            return job.run()


def _check_steps(recipe: Recipe, folder: Path) -> None:
    """Refuse to end a run before the step it has reached."""
    if isinstance(recipe, Training) and checkpoint.steps(folder):
        done = checkpoint.done(folder)
        if recipe.steps < done:
            raise UserError(
                f"steps ({recipe.steps}) must be at least {done}, because {folder} has done "
                f"{done} already; run it anew for fewer"
            )


_PLACE = ("device", "precision")


def _describe_changes(
    recipe: Recipe, folder: Path, then: Mapping[str, Any], now: Mapping[str, Any]
) -> list[str]:
    """What is computed otherwise from here on, in words; most often nothing."""
    step, lines = checkpoint.done(folder) if checkpoint.steps(folder) else 0, list[str]()
    if now["processes"] != then["processes"]:
        processes = f"{now['processes']} process(es) instead of {then['processes']}"
        lines.append(f"from step {step} on: {processes}")
    here, there = (" in ".join(where[name] for name in _PLACE) for where in (now, then))
    if here != there:
        lines.append(f"from step {step} on: {here} instead of {there}")
    if isinstance(recipe, Training):
        old = read_json(folder / "recipe.json")["settings"].get("batch_size", recipe.batch_size)
        if old != recipe.batch_size and recipe.per_rank:
            raise UserError(
                f"batch_size ({recipe.batch_size}) must stay {old}, because {recipe.name} carries "
                "state from one batch to the next; run it anew for another"
            )
        if old != recipe.batch_size:
            lines.append(f"from step {step} on: batch_size {recipe.batch_size} instead of {old}")
    return lines


def _check_same(recipe: Recipe, folder: Path) -> None:
    """Refuse to go on with an experiment whose cells would be other ones."""
    if not isinstance(recipe, Experiment):
        return
    old = settings_without_places(recipe, read_json(folder / "recipe.json")["settings"])
    new = settings_without_places(recipe, json.loads(as_json(plain_settings(recipe))))
    for name, value in new.items():
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
    recipe, in_memory = _with_data_of_caller(recipe, data, again=True)
    job = job_class(recipe)(recipe, choose("cpu"), folder=folder, forms=forms)
    with holding(in_memory), computing(job.setup), drawing():
        if isinstance(recipe, Experiment) and data is not None:
            job.data = next(iter(named_cells(recipe).values())).dataset()
            job.check_sources()
        model = job.load_to_draw()
        with explaining_misfit(recipe, folder):
            paths = job.draw(model)
    if files.exists(page := folder / "card.md"):
        text = with_pictures(files.read(page).decode(errors="replace"), job.captions)
        files.write(page, text.encode())
    return paths


def with_moved_data(recipe: Recipe, folder: str | Path, data: str) -> Recipe:
    """The recipe of a run whose data was moved, if that is what it was."""
    moved = with_data(recipe, absolute(data))
    job = Job(moved, choose("cpu"), folder=Path(folder))
    job.data = read_dataset(job.recipe, job.folder)
    job.check_sources()
    return moved


def load(recipe: Recipe, folder: str | Path) -> Any:  # noqa: ANN401 -- a network or an estimator
    """The trained model of a run, ready to use; a simulation's result, an experiment's table.

    Nothing in the folder is changed. Where the weights that were kept are damaged, others of the
    run are taken, with a warning.
    """
    folder = Path(folder)
    read_json(folder / "recipe.json")
    read_environment(folder)
    return job_class(recipe).load(recipe, folder, read_spec(folder)["spec"])


def sweep(
    name: str | Recipe,
    *,
    data: object = None,
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
    """Train every combination of some settings: `sweep("mlp", lr=[0.01, 0.1], seeds=3)`.

    A list holds the values of a setting, anything else is one value: `hidden=[(4,), (16,)]` trains
    two networks and `hidden=(4, 16)` one. `data` is as for `run`, or a list of names and paths.
    """
    values = {key: value if isinstance(value, list) else [value] for key, value in fields.items()}
    if isinstance(data, list) and all(isinstance(one, str) for one in data):
        values, data = {"data": data, **values}, None
    base, in_memory = _with_data_of_caller(_found(name), data)
    with holding(in_memory):
        values = turn_into_steps(base, values)
    made = sweep_of(base, values, seeds=seeds, random=random, halving=halving)
    return run(made, out, data=in_memory, device=device, precision=precision, jobs=jobs, show=show)


# ---------------------------------------------------------------------------------- small parts


@contextmanager
def _job(recipe: Recipe, setup: Setup, show: bool, jobs: int, watch: Watch | None) -> Iterator[Job]:
    """A job whose signals are caught and whose caller gets threads and random state back.

    Signals are the outermost: torchrun sends one while a lost process is still being named.
    """
    _check_jobs(recipe, jobs)
    check_methods(recipe)
    if watch is not None and not callable(watch):
        raise UserError(f"watch ({watch!r:.60}) must be a function of one record, such as print")
    with (
        catching_signals() as stop,
        joined(setup.device, stop) as world,
        computing(setup),
        recording() as sources,
        drawing(),
    ):
        progress = Progress(1, shown=show and world.writes)
        with telling(progress):
            yield job_class(recipe)(
                recipe, setup, world, progress, stop=stop, sources=sources, jobs=jobs, watch=watch
            )


def _found(recipe: object) -> Recipe:
    """The recipe, or that of this name."""
    if isinstance(recipe, str):
        return find(recipe)
    if not isinstance(recipe, Recipe):
        what = recipe.__name__ if isinstance(recipe, type) else f"of type {type(recipe).__name__}"
        raise UserError(
            f"recipe ({what}) must be a recipe or the name of one, such as everynet.run('mlp')"
        )
    return recipe


def _with_data_of_caller(
    recipe: Recipe, data: object, *, again: bool = False
) -> tuple[Recipe, Given | None]:
    """The recipe on the data that a caller names or has in memory, and what is in memory."""
    if data is None:
        return recipe, None
    if isinstance(data, str | Path):
        return with_data(recipe, absolute(str(data)) if again else str(data)), None
    if isinstance(data, DataLoader):
        raise UserError(UNDIVIDED)
    in_memory = given(data)
    origin = recipe.base if isinstance(recipe, Sweep) else recipe
    if again and str(getattr(origin, "data", "")).startswith(PREFIX):
        return recipe, in_memory  # `load` compares the two
    return with_data(recipe, in_memory.name), in_memory


def _with_batches_of(
    recipe: Recipe, in_memory: Given | None, fields: Mapping[str, object]
) -> Recipe:
    """The recipe with the batch_size of a DataLoader, where its batches come from one."""
    if in_memory is None or in_memory.stream is None:
        return recipe
    base = recipe.base if isinstance(recipe, Sweep) else recipe
    if not isinstance(base, Training):
        raise UserError(
            f"data (a DataLoader) must be its Dataset, or arrays, because {base.name} is "
            f"{with_article(base.kind)}, which is given all samples at once"
        )
    size = in_memory.stream.batch_size
    given = "batch_size" in (*base.settings_given(), *fields)
    wanted = fields.get("batch_size", base.batch_size)
    if given and wanted != size:
        raise UserError(
            f"batch_size ({wanted}) must be {size}, that of the DataLoader; leave it out"
        )
    base = override(base, {"batch_size": size})
    return replace(recipe, base=base) if isinstance(recipe, Sweep) else base  # type: ignore[arg-type]  # of the class it was


def _check_jobs(recipe: Recipe, jobs: int) -> None:
    """Refuse processes where there is nothing to share out."""
    if jobs < 1:
        raise UserError(f"jobs ({jobs}) must be at least 1")
    if jobs > 1 and recipe.kind != "experiment":
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
