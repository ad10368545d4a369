"""A run is one folder of plain files: settings, log, checkpoints, pictures and a card.

    recipe.json  environment.json  spec.json  metrics.jsonl  timing.jsonl
    checkpoints/STEP/  pictures/*.png  card.md

`run` begins one, `resume` goes on with one after a stop, a kill or a crash, `draw` draws its
pictures again, and `load` gives its model back. Nothing is printed unless `show` is set.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from everynet import checkpoint, device, files
from everynet.card import environment
from everynet.device import Setup, choose
from everynet.distributed import World, joined
from everynet.job import Job, Result, read_environment, read_json, source_file
from everynet.log import Log
from everynet.progress import Progress, signals
from everynet.recipes import Fitting, Recipe, Simulation, Training
from everynet.settings import settings
from everynet.types import Data, UserError


def run(
    recipe: Recipe,
    out: str | Path = "runs",
    *,
    device: str = "auto",
    precision: str = "fp32",
    compile: bool = False,
    show: bool = False,
) -> Result:
    """Do all that a recipe says, in a new folder below `out`."""
    recipe = _with_name(recipe)
    setup = choose(device, precision, compile)
    with _job(recipe, setup, show) as job:
        start, world = job.prepare(), job.world
        contents = {
            "recipe.json": _json(_described(recipe)),
            "environment.json": _json(environment(job.setup, world.size)),
            "spec.json": _json({"spec": job.data.spec, "digest": job.data.digest}),
            "metrics.jsonl": b"",
        }
        stem = f"{recipe.name}-{datetime.now():%Y%m%d-%H%M%S}"
        made = files.write_new_folder(Path(out), stem, contents) if world.writes else Path()
        job.folder = Path(world.share_text("folder", str(made)))
        job.progress.say(f"{recipe.name} on {job.where()} -> {job.folder}")
        with job.held():
            return start()


def resume(recipe: Recipe, folder: str | Path, *, show: bool = False) -> Result:
    """Go on with a run from its newest good checkpoint, computed as it was before."""
    folder = Path(folder)
    where = read_environment(folder)
    setup = replace(
        choose(where["device"], where["precision"], where["compile"]), threads=where["threads"]
    )
    with _job(recipe, setup, show) as job:
        job.folder = folder
        start = job.prepare()
        known = read_json(folder / "spec.json")["digest"]
        if known != job.data.digest:
            raise UserError(f"the data of {folder} has changed since the run began: start anew")
        with job.held():
            if job.world.writes:
                files.write(folder / "recipe.json", _json(_described(recipe)))
                files.sweep(folder)
            return start()


def draw(recipe: Recipe, folder: str | Path) -> tuple[Path, ...]:
    """Draw the pictures of a run again."""
    folder = Path(folder)
    job = Job(recipe, choose("cpu"), World(), folder=folder)
    with device.computing(job.setup):
        if isinstance(recipe, Simulation):
            return job.write_pictures(recipe.pictures(checkpoint.load_values(_newest(folder))))
        dtype = torch.float64 if isinstance(recipe, Fitting) else torch.float32
        data = recipe.dataset()  # type: ignore[attr-defined]  # the two kinds that have data
        job.data = data.to(job.setup.device, dtype)
        job.log = Log.of(folder)
        return job.draw(load(recipe, folder))


def load(recipe: Recipe, folder: str | Path) -> Any:  # noqa: ANN401 -- a network or an estimator
    """The trained model of a run, ready to use; for a simulation, its result."""
    folder = Path(folder)
    path = _newest(folder)
    if isinstance(recipe, Simulation):
        return checkpoint.load_values(path)
    data = Data.described(read_json(folder / "spec.json")["spec"])
    if isinstance(recipe, Fitting):
        estimator = recipe.model(data)
        for name, value in checkpoint.load_values(path).items():
            setattr(estimator, name, value)
        return estimator
    assert isinstance(recipe, Training)
    model = recipe.model(data)
    best = checkpoint.progress_of(path).best_step
    checkpoint.restore_model(path if best < 0 else checkpoint.path_of(folder, best), model)
    return model.eval()


@contextmanager
def _job(recipe: Recipe, setup: Setup, show: bool) -> Iterator[Job]:
    """A job whose signals are caught and whose caller gets threads and random state back.

    Signals are the outermost: torchrun sends one while a lost process is still being named.
    """
    with signals() as stop, joined(setup.device) as world, device.computing(setup):
        progress = Progress(1, shown=show and world.writes)
        yield Job(recipe, setup, world, progress, stop=stop)


def _with_name(recipe: Recipe) -> Recipe:
    return recipe if recipe.name else replace(recipe, name=type(recipe).__name__.lower())


def _described(recipe: Recipe) -> dict[str, Any]:
    return {
        "name": recipe.name,
        "class": type(recipe).__name__,
        "file": source_file(recipe),
        "goal": recipe.goal,
        "changed": list(recipe.changed),
        "settings": settings(recipe),
    }


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1, allow_nan=False).encode() + b"\n"


def _newest(folder: Path) -> Path:
    read_json(folder / "recipe.json")
    read_environment(folder)
    return checkpoint.newest(folder)
