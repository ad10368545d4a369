"""The cells of an experiment on their way: each a training in a folder of its own.

    cells/NAME/   recipe.json environment.json spec.json metrics.jsonl timing.jsonl
                  checkpoints/STEP/ measured/STEP/ ended.json

A cell has one checkpoint, and beside it what was measured up to it. Both are written at the end, at
a stop, at every `save_every` updates where the recipe names them, and otherwise now and then by the
clock, which decides how much is done again after a kill and nothing else. `ended.json` is written
last: a cell that has it is not trained again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from everynet.recipes.experiment import Cell, Experiment, stacked
from everynet.recipes.recipe import Recipe, require_returned
from everynet.recipes.stored import describe_recipe
from everynet.recipes.training import Training
from everynet.runs import checkpoint
from everynet.runs.checkpoint import DamagedCheckpoint
from everynet.runs.folder import (
    as_json,
    describe_data,
    read_spec,
    resolve,
    settings_without_places,
)
from everynet.runs.job import Result, check_finite
from everynet.runs.log import Log, NonFiniteAt, read_seconds
from everynet.runs.progress import Progress
from everynet.runs.training_job import TrainingJob
from everynet.system import files, seeds
from everynet.system.errors import Missing, NonFinite, UserError
from everynet.system.manifest import parsed, put
from everynet.system.manifest import read as read_sealed
from everynet.system.signals import Stop
from everynet.system.sources import Source, recording
from everynet.training.device import Setup
from everynet.training.loop import finite
from everynet.training.processes import World

SAVE = 20.0  # seconds between two checkpoints of a cell
PATIENCE = 60.0  # seconds a cell waits for a worker that a kill of its parent left behind
MEASURE = 4  # seeds what is measured, beside those of the trainer


def cell_folder(run: Path, name: str) -> Path:
    """Where a cell is."""
    return run / "cells" / name


@dataclass
class Ended:
    """What ended.json says: how a cell ended, and the mark of its log then."""

    step: int
    diverged: int | None
    test: dict[str, float]
    log_length: int
    log_sha256: str


@dataclass
class CellJob(TrainingJob):
    """One cell on its way."""

    experiment: Experiment = field(default_factory=Experiment)
    name: str = ""
    wanted: int = 0
    """Updates up to which it is to be trained."""
    looks: list[dict[str, Tensor]] = field(default_factory=list, init=False)
    steps: list[int] = field(default_factory=list, init=False)
    saved: float = field(default_factory=time.monotonic, init=False)
    tested: dict[str, float] = field(default_factory=dict, init=False)

    @property
    def until(self) -> int:
        return self.wanted

    def run(self) -> Result:
        """Train from the checkpoint, or from the start where there is none yet."""
        self.log = Log(self.folder / "metrics.jsonl", late=True)
        for part in ("checkpoints", "measured"):
            files.make_folder(self.folder / part)
        if checkpoint.steps(self.folder):
            self.go_on()
        files.cut(self.folder / "metrics.jsonl", self.log.length)
        self.progress.pace.every, diverged, state = self.eval_every, None, self.state
        try:
            if not self.steps:
                self.evaluate()
            if state.step < self.until:
                self.train()
            if self.experiment.tests and state.step == self.recipe.steps:
                self.tested = self.test(self.deployed)
                self.check(self.tested, state.step)
        except NonFiniteAt as bad:
            diverged = bad.step
        self.end(state.step if diverged is None else diverged, diverged)
        return Result(self.folder, self.tested, None, ())

    def go_on(self) -> None:
        """Put the checkpoint into the state, and take what was measured up to it."""
        step = checkpoint.steps(self.folder)[-1]
        try:
            steps, parts = read_looks(self.folder / "measured" / str(step))
            path = checkpoint.path_of(self.folder, step)
            self.best = checkpoint.restore(path, self.state, self.deployed)
        except DamagedCheckpoint as error:
            self.progress.say(f"cell {self.name}: {error}; it begins again")
            self.drop_all_but(-1, weights=False)
            return
        self.steps = steps.tolist()
        self.looks = [{n: rows[i] for n, rows in parts.items()} for i in range(len(self.steps))]
        self.log = Log.of(self.folder, self.best)
        self.log.late = True
        self.seconds_before = read_seconds(self.folder)

    def evaluate(self) -> dict[str, Any]:
        """Evaluate, measure and log."""
        state, step = self.state, self.state.step
        if not finite([*state.model.parameters(), *state.model.buffers()]):
            raise NonFiniteAt(step)
        metrics = self.recipe.summarise(self.measure(self.deployed, "valid"))
        self.check(metrics, step)
        with seeds.random_state_kept(), torch.no_grad():
            seeds.seed_all(self.setup.device, self.recipe.seed, MEASURE, step)
            seen = self.experiment.measure(self.name, self.recipe, state, self.data)
        require_returned(self.experiment, "measure", seen, Mapping, "a dict of values by name")
        kept = {n: torch.as_tensor(v).detach().to("cpu", copy=True) for n, v in seen.items()}
        self.looks.append({n: v if v.dim() else v.double() for n, v in kept.items()})
        stacked([self.looks[0], self.looks[-1]])  # says which differs
        self.steps.append(step)
        row = {"step": step, "valid": metrics}
        self.log.add(row)
        return row

    @staticmethod
    def check(metrics: Mapping[str, float], step: int) -> None:
        """A metric that is no number is how a cell diverges."""
        try:
            check_finite(metrics, step)
        except NonFinite:
            raise NonFiniteAt(step) from None

    def is_due_to_save(self, step: int) -> bool:
        every = self.recipe.save_every
        return step % every == 0 if every else time.monotonic() - self.saved > SAVE

    def save(self) -> None:
        """Write a checkpoint and what was measured, unless the state has diverged.

        That it has is for the next look to find: when a checkpoint is due may hang on the clock.
        """
        state, best = self.state, self.best
        self.log.flush(self.world)
        if self.update is not None:
            self.update.check_draws()
        self.saved = time.monotonic()
        if not finite([*state.model.parameters(), *state.model.buffers()]):
            return
        self.log.settle()
        best.log_length, best.log_sha256 = self.log.length, self.log.sha256
        self.write_measured(state.step)
        path = checkpoint.path_of(self.folder, state.step)
        if not files.exists(path):
            checkpoint.save(path, state, self.deployed, best)
        self.note_time(state.step)
        self.drop_all_but(state.step)

    def write_measured(self, step: int) -> None:
        """Write all looks so far."""
        path = self.folder / "measured" / str(step)
        if files.exists(path):
            files.remove_folder(path)
        steps = torch.tensor(self.steps, dtype=torch.int64)
        checkpoint.save_values(path, {"steps": steps, "measured": stacked(self.looks)})

    def drop_all_but(self, step: int, *, weights: bool = True) -> None:
        """Remove other checkpoints, and what was measured up to them."""
        for older in checkpoint.steps(self.folder):
            if older != step or not weights:
                files.remove_folder(checkpoint.path_of(self.folder, older))
        for older in _measured(self.folder):
            if older != step:
                files.remove_folder(self.folder / "measured" / str(older))

    def end(self, step: int, diverged: int | None) -> None:
        """Say that the cell is done; a diverged one has no weights that mean anything."""
        if diverged is not None:
            self.log.settle()
            self.write_measured(step)
        ended = Ended(step, diverged, self.tested, self.log.length, self.log.sha256)
        put(self.folder, {"ended.json": as_json(vars(ended))})
        if diverged is not None:
            self.drop_all_but(step, weights=False)


def train_cell(
    experiment: Experiment,
    name: str,
    cell: Training,
    *,
    run: Path,
    wanted: int,
    setup: Setup,
    stop: Stop,
    progress: Progress,
) -> None:
    """Train one cell of a run up to `wanted` updates, from where it is."""
    recipe = resolve(replace(cell, name=cell.name or experiment.name))
    folder = cell_folder(run, name)
    files.make_folder(folder)
    with files.locked(folder, PATIENCE), recording() as sources:
        job = CellJob(
            recipe, setup, World(), progress, folder, stop=stop, sources=sources,
            experiment=experiment, name=name, wanted=wanted,
        )  # fmt: skip
        files.sweep(folder)
        about = as_json(describe_recipe(recipe))
        begun = files.exists(folder / "recipe.json")
        if begun and not _same(recipe, folder / "recipe.json", about):
            raise UserError(
                f"{folder} was begun with other settings, or by other code; run the experiment anew"
            )
        with job.beginning():
            job.prepare()
        if begun:
            job.check_sources()
        else:
            files.write(folder / "metrics.jsonl", b"")
            where, spec = read_sealed(run / "environment.json"), describe_data(job.data, sources)
            new = {"environment.json": where, "spec.json": as_json(spec), "recipe.json": about}
            put(folder, new)
        job.run()


def _same(recipe: Recipe, path: Path, about: bytes) -> bool:
    """Whether a cell was begun by the same recipe, wherever its data was then."""
    old, new = (parsed(content, path) for content in (read_sealed(path), about))
    for each in (old, new):
        each["settings"] = settings_without_places(recipe, each["settings"])
    return bool(old == new)


def tidy_cell(run: Path, name: str) -> None:
    """Remove what a kill left in a cell that has ended: half a file, older checkpoints."""
    folder = cell_folder(run, name)
    if (ended := read_ended(folder)) is None:
        return
    with suppress(UserError), files.locked(folder):  # unless another process still works at it
        files.sweep(folder)
    kept = checkpoint.steps(folder)[-1:] if ended.diverged is None else []
    for step in checkpoint.steps(folder):
        if step not in kept:
            files.remove_folder(checkpoint.path_of(folder, step))
    for step in _measured(folder)[:-1]:
        files.remove_folder(folder / "measured" / str(step))


# ------------------------------------------------------------------------------ what was found


def _measured(folder: Path) -> list[int]:
    return sorted(map(int, filter(checkpoint.is_step, files.names(folder / "measured"))))


def read_looks(path: Path) -> tuple[Tensor, dict[str, Tensor]]:
    """The steps at which a cell was measured, and a row of each thing measured for each."""
    match checkpoint.load_values(path):
        case {"steps": Tensor() as steps, "measured": dict(parts)} if (
            steps.dim() == 1
            and steps.dtype == torch.int64
            and all(isinstance(n, str) and _are_rows(v, len(steps)) for n, v in parts.items())
        ):
            return steps, parts
    raise DamagedCheckpoint(f"{path} is damaged: it must hold steps and what was measured at them")


def _are_rows(value: object, rows: int) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0 and len(value) == rows


def read_ended(folder: Path) -> Ended | None:
    """How a cell ended; nothing if it has not yet."""
    path = folder / "ended.json"
    if not files.exists(folder / "recipe.json"):
        return None
    try:
        stored = parsed(read_sealed(path), path)
    except Missing:
        return None
    match stored:
        case {
            "step": int(step),
            "diverged": int() | None as diverged,
            "test": dict(test),
            "log_length": int(length),
            "log_sha256": str(sha256),
        } if all(isinstance(value, float | int) for value in test.values()):
            return Ended(step, diverged, test, length, sha256)
    raise UserError(f"{path} is damaged: it must say how the cell ended")


def read_cell(run: Path, name: str, recipe: Training) -> Cell | None:
    """A cell as far as it has ended; nothing if it has not yet."""
    folder = cell_folder(run, name)
    if (ended := read_ended(folder)) is None:
        return None
    # One that was asked to go further may have done so without having ended there yet.
    log = Log.of(folder, ended).rows
    steps, measured = read_looks(folder / "measured" / str(*_measured(folder)[-1:]))
    looks = int((steps <= ended.step).sum())
    evaluations = [row["valid"] for row in log if "valid" in row]
    return Cell(
        recipe=recipe,
        step=ended.step,
        steps=steps[:looks],
        measured={n: rows[:looks] for n, rows in measured.items()},
        valid={n: _numbers(row[n] for row in evaluations) for n in (evaluations or [{}])[0]},
        terms=_terms(row for row in log if "train" in row),
        diverged=ended.diverged,
        test=ended.test,
        network=lambda: load_network(folder, recipe),
    )


def _numbers(values: Iterable[float]) -> Tensor:
    return torch.tensor([*values], dtype=torch.float64)


def _terms(rows: Iterable[Mapping[str, Any]]) -> dict[str, tuple[Tensor, Tensor]]:
    found: dict[str, tuple[list[int], list[float]]] = {}
    for row in rows:
        for name, value in row["train"].items():
            steps, values = found.setdefault(name, ([], []))
            steps.append(row["step"])
            values.append(value)
    return {n: (torch.tensor(steps), _numbers(values)) for n, (steps, values) in found.items()}


def load_network(folder: Path, recipe: Training) -> nn.Module:
    """The network of a cell with its last weights."""
    ended = read_ended(folder)
    if ended is not None and ended.diverged is not None:
        raise UserError(
            f"cell {folder.name} diverged at step {ended.diverged}: it has no network left"
        )
    return TrainingJob.load(recipe, folder, read_spec(folder)["spec"])


def sources_of(run: Path, names: Iterable[str]) -> Iterator[Source]:
    """All that the cells have read, cell by cell."""
    for name in names:
        for entry in read_spec(cell_folder(run, name))["read"]:
            yield Source(entry["name"], entry["sha256"])
