"""One run on its way: train, fit or simulate into its folder, then judge, draw, write the card."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import nn

from everynet.data.dataset import Data
from everynet.metrics.summary import class_report
from everynet.nn.layers import layers_called
from everynet.plot import layer_lines, learning_curve
from everynet.plot.style import escape_names, render
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.recipe import Drawn, Fitting, Simulation
from everynet.recipes.settings import override, settings
from everynet.recipes.state import State
from everynet.recipes.stored import source_file
from everynet.recipes.trained import Trained
from everynet.recipes.training import Training
from everynet.runs import checkpoint
from everynet.runs import notes as remarks
from everynet.runs.best_weights import Keeping
from everynet.runs.card import card, sayings
from everynet.runs.checkpoint import Best
from everynet.runs.folder import as_json, read_environment, read_spec
from everynet.runs.history import Watch, columns, flat
from everynet.runs.log import Log, NonFiniteAt, note_seconds, seconds, worth_logging
from everynet.runs.pace import DRAWING
from everynet.runs.progress import LIVE, Progress, Stop
from everynet.system import files, seeds
from everynet.system.errors import CannotWrite, NonFinite, Stopped, UserError
from everynet.system.explain import explained
from everynet.system.html import page
from everynet.system.manifest import put
from everynet.system.sources import Source, digest_of, note
from everynet.system.user_files import resuming
from everynet.training import device
from everynet.training.device import Setup
from everynet.training.loop import (
    PICTURES,
    begin,
    check_compiles,
    check_room,
    evaluate,
    evaluating,
    find_non_finite,
    finite,
    measured,
    said,
    started,
    train,
    with_threads,
)
from everynet.training.preflight import check_goal, check_whole, rehearse
from everynet.training.processes import World

FLUSH = 100  # updates between two looks at the terms, which wait for the device


@dataclass(frozen=True)
class Result:
    """What a run reached and where it is."""

    folder: Path
    metrics: dict[str, float]
    """Figures on the test split, of the weights kept."""
    reached: bool | None
    """Whether the goal was reached; None where none is claimed."""
    pictures: tuple[Path, ...]
    weights: str = ""
    """Which weights were kept and why, in words; empty where none were learned by steps."""
    history: dict[str, list[float]] = field(default_factory=dict, repr=False)
    """metrics.jsonl as columns of one length: `step`, `train_loss`, `valid_accuracy` and so on."""

    def _repr_html_(self) -> str:
        """What a notebook shows: the figures and the first pictures."""
        goal = {True: "reached", False: "not reached"}
        facts = {**self.metrics, "goal": goal[self.reached]} if self.reached is not None else {}
        facts = {**(facts or self.metrics), "folder": self.folder}
        return page(self.folder.name, facts, self.pictures)


@dataclass
class Job:
    """One run on its way: what it does, how, and where it writes."""

    recipe: Any  # one of the four kinds
    setup: Setup
    world: World
    progress: Progress = field(default_factory=lambda: Progress(1))
    folder: Path = Path()
    data: Data = field(default_factory=Data.none)
    log: Log = field(default_factory=Log)
    stop: Stop = field(default_factory=Stop)
    begun: float = field(default_factory=time.monotonic)
    before: float = 0.0
    """Seconds that earlier sessions of this run took."""
    read: dict[Source, None] = field(default_factory=dict)
    """All that was read so far."""
    undrawn: tuple[object, ...] = ()
    """Where Python's and numpy's random numbers stand if no update after the first drew any."""
    keeping: Keeping = field(default_factory=lambda: Keeping(None))
    weights: str = ""
    """Which weights are kept, in words."""
    each_class: Sequence[Sequence[str]] = ()
    """Precision and recall of every class on the test split, as rows of text with a header."""
    watch: Watch | None = None
    """Called with each record that is logged."""
    _told: int = 0
    """How many rows of the log it was called with, or came before this session."""
    _told_at: float = 0.0
    notes: list[str] = field(default_factory=list)
    """What a person should know of the data and of what came of it."""
    shown: dict[str, float] = field(default_factory=dict)
    """The terms that were shown last."""
    captions: dict[str, str] = field(default_factory=dict)
    """What to see in the pictures that were drawn, most telling first."""
    forms: tuple[str, ...] = ("png",)
    """What pictures are written as."""
    _best_of: dict[int, int] = field(default_factory=dict)
    """The best step that each checkpoint refers to."""

    def where(self) -> str:
        """The device and threads in words."""
        threads = f"{self.setup.threads} thread{'s' * (self.setup.threads > 1)}"
        return f"{device.describe(self.setup.device)}, {threads}, {self.setup.precision}"

    @property
    def begins(self) -> bool:
        """Whether there is nothing to go on with."""
        return self.folder == Path() or not checkpoint.steps(self.folder)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder while writing into it."""
        if not self.world.writes:
            yield
            return
        with files.locked(self.folder):
            yield

    def note_given(self) -> None:
        """Record the files and runs that settings name."""
        for name, value in settings(self.recipe).items():
            if isinstance(value, Path) and value != Path():
                note(str(value), digest_of(value, name))
            if isinstance(value, Trained) and value:
                fresh = name != "start" or self.begins
                note(str(value), (value.resolved(name) if fresh else value).sha256)

    def prepare(self) -> Callable[[], Result]:
        """Read the data and build the model, so that mistakes show before a folder is made."""
        with self.stop.ending(f"stopped before it began; {self.untouched}"):
            return self.prepared()

    @property
    def untouched(self) -> str:
        """What a run that has not begun yet has done to the disk."""
        return "nothing was written" if self.folder == Path() else f"{self.folder} is as it was"

    def prepared(self) -> Callable[[], Result]:
        """The same, and what is to be done next."""
        recipe = self.recipe
        self.note_given()
        if not isinstance(recipe, Training):  # these compute in one process
            self.world.check(1, True, recipe.name)
        if isinstance(recipe, Simulation):
            recipe.ready()
            return self.simulate
        if isinstance(recipe, Fitting):
            self.data = self._read().to(self.setup.device, self.setup.dtype)
            self.tell(remarks.of_data(self.data, recipe))
            return self.fit
        state = self.build()
        if self.folder == Path():  # a resumed run keeps the threads it had
            self.setup = with_threads(self.setup, recipe, state.model)
            torch.set_num_threads(self.setup.threads)
        self.progress.steps = self.recipe.steps
        return lambda: self.train(state)

    def tell(self, lines: Iterable[str]) -> None:
        """Say what a person should know, and write it into the card."""
        for line in lines:
            self.notes.append(line)
            self.progress.say_once(line)

    def _read(self) -> Data:
        """The data; a signal meanwhile ends it at once, because large images take minutes."""
        with self.stop.ending(f"stopped while the data was read; {self.untouched}"):
            data: Data = self.recipe.dataset()
        return data

    def build(self) -> State:
        """The state of a training before its first update, on its data."""
        check_whole(self.recipe)
        self.data = self._read()
        if self.folder == Path():  # a run that goes on keeps what it began with
            found = self.recipe.suited(self.data)
            self.recipe = override(self.recipe, found)
            self.tell(remarks.of_suited(found))
        recipe = self.recipe
        self.tell(remarks.of_data(self.data, recipe))
        if recipe.schedule == "plateau" and not self.data.chooses:
            raise UserError(
                "schedule (plateau) must be another where holdout is false, because no rows are "
                "left that could tell when learning stops; try one-cycle"
            )
        self.keeping = Keeping.of(recipe, self.data)
        self.world.check(recipe.batch_size, recipe.per_rank, recipe.name)
        self.data = self.data.to(self.setup.device, self.setup.dtype)
        check_room(recipe, self.data, copies=2)
        start = recipe.start.tensors() if recipe.start and self.begins else None
        state = begin(recipe, self.data, self.setup, self.world, start)
        if start is not None:
            self.progress.say(started(state.model, start, str(recipe.start)))
        checkpoint.check_deployed(state.model, recipe.deployed(state))
        if self.setup.compile:
            check_compiles(recipe, self.data, self.setup)
        if self.begins and source_file(recipe):
            rehearse(recipe, recipe.deployed(state), self.data, self.setup)
        return state

    # ------------------------------------------------------------------------------- training

    def train(self, state: State) -> Result:
        """Train from the newest checkpoint, or from the start where there is none yet."""
        deployed = self.recipe.deployed(state)
        best, lost = self._restored(state, deployed)
        if state.step == 0:
            with self.progress.pace.apart("save"):
                self.save(state, deployed, best)
        self._expect()
        try:
            if not self.tired():  # it may have ended before
                best = self.loop(state, deployed, best)
            if not self.world.writes:
                return Result(self.folder, {}, None, ())
            left = "stopped after the last step; judge and draw it with: everynet resume"
            with self.stop.ending(f"{left} {self.folder}"):
                return self.judged(state, deployed, best, lost)
        except NonFiniteAt as bad:
            self.explain(bad.step)
            raise
        finally:
            self.progress.close()

    def _restored(self, state: State, deployed: nn.Module) -> tuple[Best, str]:
        """What the newest checkpoint knows, now in the state, and what is wrong with the best."""
        best = Best()
        self.log = Log(self.folder / "metrics.jsonl" if self.world.writes else None)
        found, lost = "", ""
        if self._has_checkpoints():
            newest, best, problem = checkpoint.restore_newest(self.folder, state, deployed)
            if problem:
                self.progress.say(f"{problem}; the run goes on from {newest}")
            found, lost = str(newest), self._lost(best, deployed)
        if path := self.world.share_text("newest", found):
            if not self.world.writes:
                best = checkpoint.restore(Path(path), state, deployed)
            if self.world.share_text("lost", lost):
                best.best_step = -1  # the next evaluation is the best that there is
            self.log = Log.of(self.folder, best)
            self.log.path = self.log.path if self.world.writes else None
            self.before = seconds(self.folder)
        elif self.world.writes:
            files.make_folder(self.folder / "checkpoints")
        if self.world.writes:
            self.tidy(best)
            files.cut(self.folder / "metrics.jsonl", self.log.length)
        self.keeping.replay(self.log.evaluations)
        return best, lost

    def _expect(self) -> None:
        """Say to the line of progress what is to come beside updates."""
        pace, rows = self.progress.pace, self.data.rows
        pace.every, pace.drawing = {"save": self.save_every}, DRAWING
        pace.after = {"look": rows("test") / max(1, rows("valid"))}
        self.progress.bound = self.keeping.patience > 0
        if line := self.keeping.idle(-(-self.until // self.eval_every)):
            self.progress.say(line)

    def judged(self, state: State, deployed: nn.Module, best: Best, lost: str) -> Result:
        """Put the weights that are kept into the network, and ask the test split about them."""
        recipe, seen = self.recipe, self.log.evaluations
        self.weights = self.keeping.told(seen, best.best_step, state.step, recipe.steps)
        if best.best_step >= 0:
            checkpoint.restore_model(checkpoint.best_path(self.folder, best.best_step), deployed)
            self.weights += f"; better may have been those that were damaged: {lost}" * bool(lost)
        elif lost:
            self.weights += f", because the best were damaged: {lost}"
        with self.progress.pace.apart("end"):
            result = self.finish(state.step, self.figures(deployed), deployed)
        self.progress.end(state.step, self.shown, self.before + time.monotonic() - self.begun)
        return result

    def figures(self, model: object) -> dict[str, float]:
        """The figures on the test split; those of each class are for the card."""
        outputs = measured(self.recipe, model, self.data.test, self.setup)
        self.each_class = class_report(outputs, self.data.spec.get("classes", ()))
        found: dict[str, float] = self.recipe.summarise(outputs)
        return found

    def tired(self) -> bool:
        """Whether patience is at its end, in every process alike."""
        waits = self.keeping.patience > 0
        return waits and self.world.any(self.keeping.tired, self.setup.device)

    def _lost(self, best: Best, deployed: nn.Module) -> str:
        """What is wrong with the best weights, which are then put aside; mostly nothing."""
        path = checkpoint.best_path(self.folder, best.best_step)
        try:
            if best.best_step >= 0:
                checkpoint.check_model(path, deployed)
        except UserError as error:
            checkpoint.put_aside(path)
            self.progress.say(f"{error}; the best of the evaluations to come is kept instead")
            return str(error)
        return ""

    def _check_drawn(self, state: State) -> None:
        """Say so if updates drew random numbers that were not seeded, and seed them from now on."""
        if state.draws is False and seeds.others() != self.undrawn:
            state.draws = True
            warnings.warn(
                f"{self.recipe.name} drew from Python's or numpy's random numbers before step "
                f"{state.step} and not in its first update: say `draws = True` in its class, or "
                "a resumed run may differ",
                stacklevel=2,
            )

    @property
    def until(self) -> int:
        """The update after which this training ends."""
        return int(self.recipe.steps)

    @property
    def save_every(self) -> int:
        """Updates between two checkpoints."""
        return int(self.recipe.save_every or self.eval_every)

    @property
    def eval_every(self) -> int:
        """Updates between two evaluations."""
        epoch = self.data.steps_per_epoch or max(1, self.recipe.steps // 20)
        return int(self.recipe.eval_every or epoch)

    def loop(self, state: State, deployed: nn.Module, best: Best) -> Best:
        """Update, log, evaluate and save until the last step or a signal."""
        recipe, data, world = self.recipe, self.data, self.world
        eval_every = self.eval_every
        seen = self.log.evaluations
        self._told = len(self.log.rows)
        pace = self.progress.pace
        pace.every = {**pace.every, "look": eval_every}
        pace.guess = {"look": self.worth_of_a_look()}
        self.progress.begin(state.step)
        records = train(recipe, state, data, history=seen, setup=self.setup, world=world)
        for record in records:
            step, last = record.step, record.step == self.until
            if state.eager and self.setup.device.type == "cuda":
                why = f"updates are not captured as one graph: {state.eager}"
                self.progress.say_once(why)
            self.undrawn = self.undrawn or seeds.others()
            if worth_logging(step) or step % FLUSH == 0 or last:
                self.log.pending.append(record)
            if len(self.log.pending) >= FLUSH or step % FLUSH == 0 or last or self._tells_now():
                self.log.flush(world)
            pace.tick(step)
            if step % eval_every == 0 or last:
                self.log.flush(world)
                with pace.apart("look"):
                    seen.append(self.look(state, deployed, best))
                self.progress.newest = self.newest(seen[-1]["valid"])
                last = last or self.tired()
            if self.saves(step) or last:
                with pace.apart("save"):
                    self.save(state, deployed, best)
            try:
                self.report()
            except BaseException:
                self.save(state, deployed, best)
                raise
            due = self.progress.due()
            if due or (last and self.progress.shown):
                self.shown = {name: value.item() for name, value in record.terms.items()}
                if due or self.progress.moves:
                    self.progress.show(step, self.shown, last=last)
            alone = world.size == 1 or step % 10 == 0  # together, ask the others now and then
            if alone and world.any(self.stop.signal != 0, self.setup.device) and not last:
                self.save(state, deployed, best)
                again = resuming(self.folder, source_file(recipe))
                line = f"stopped at step {step:,} and saved; go on with: {again}"
                raise Stopped(line, self.stop.signal or 15)
            if last:
                break  # a cell may be stopped before its last step
        return best

    def _tells_now(self) -> bool:
        """Whether someone watches and has not been told of anything for a while."""
        alone = self.watch is not None and self.world.size == 1  # several would have to agree
        return alone and time.monotonic() - self._told_at >= LIVE

    def report(self) -> None:
        """Call `watch` with what was logged since the last time."""
        if self.watch is None or not self.world.writes:
            return
        for row in self.log.rows[self._told :]:
            self._told += 1
            self._told_at = time.monotonic()
            with seeds.others_kept():
                self.watch(flat(row))

    def worth_of_a_look(self) -> float:
        """How many updates an evaluation takes, roughly: without the way back, a third of them."""
        data = self.data
        epoch = data.steps_per_epoch / max(1, data.rows("train")) or 1 / data.batch_size
        return max(1.0, data.rows("valid") * epoch) / 3

    def newest(self, found: Mapping[str, float]) -> str:
        """The figure of an evaluation that a person waits for: the goal's, or the first."""
        names = [goal.metric for goal in self.recipe.goals() if goal.metric in found]
        name = next(iter((*names, *found)), "")
        return f"valid {name} {found[name]:.4g}" if name else ""

    def look(self, state: State, deployed: nn.Module, best: Best) -> dict[str, Any]:
        """Evaluate and log, and keep the weights if they are the best so far."""
        recipe, step = self.recipe, state.step
        self.world.share_buffers(deployed)
        found = evaluate(recipe, deployed, self.data.valid, self.setup)
        check_figures(found, step)
        row: dict[str, Any] = {"step": step, "valid": found}
        if text := said(recipe, deployed, self.data.spec, self.setup):
            row["said"] = text
        self.log.add(row)
        self.note_time(step)
        if self.keeping.judge is not None:
            merit, first = self.keeping.weigh(found), best.best_step < 0
            as_good = self.keeping.later and merit == best.best_value
            if first or merit > best.best_value or as_good:
                best.best_step, best.best_value = step, merit
                self.keep(deployed, best)
        return row

    def saves(self, step: int) -> bool:
        """Whether a checkpoint is due after this update."""
        return step % self.save_every == 0

    def save(self, state: State, deployed: nn.Module, best: Best) -> None:
        """Write a checkpoint of a state that is finite, and drop those no longer needed."""
        self.log.flush(self.world)
        tensors = [*state.model.parameters(), *state.model.buffers()]
        if not finite(tensors):
            raise NonFiniteAt(state.step)
        best.log_length, best.log_sha256 = self.log.length, self.log.sha256
        self._check_drawn(state)
        path = checkpoint.path_of(self.folder, state.step)
        if not self.world.writes or files.exists(path):
            return
        checkpoint.save(path, state, deployed, best)
        self._best_of[state.step] = best.best_step
        self.tidy(best)

    def keep(self, deployed: nn.Module, best: Best) -> None:
        """Write the weights of the best evaluation so far, if they are finite."""
        if not finite([*deployed.parameters(), *deployed.buffers()]):
            raise NonFiniteAt(best.best_step)
        if not self.world.writes:
            return
        path = checkpoint.best_path(self.folder, best.best_step)
        if files.exists(path):
            files.remove_folder(path)
        checkpoint.save_model(path, deployed)
        self.tidy(best)

    def tidy(self, best: Best) -> None:
        """Drop checkpoints no longer needed: two are kept, with the best weights they speak of.

        One that a signal made goes as soon as a newer one is there, so that the folder ends the
        same however often a run was stopped.
        """
        steps = checkpoint.steps(self.folder)
        last = self.recipe.steps
        regular = [step for step in steps if step % self.save_every == 0 or step == last]
        kept = {*regular[-2:], *steps[-1:]}
        for step in steps:
            if step not in kept:
                files.remove_folder(checkpoint.path_of(self.folder, step))
        for step in kept - {*self._best_of}:
            try:
                found = checkpoint.progress_of(checkpoint.path_of(self.folder, step))
            except UserError:
                return  # it may speak of any of them
            self._best_of[step] = found.best_step
        spoken_of = {best.best_step, *(self._best_of[step] for step in kept)}
        for step in checkpoint.bests(self.folder):
            if step not in spoken_of:
                files.remove_folder(checkpoint.best_path(self.folder, step))

    def explain(self, seen: int) -> None:
        """Go back to the last good checkpoint and repeat with every layer watched."""
        if not self.world.writes:
            raise NonFinite(f"a value became non-finite by step {seen}; see rank 0")
        good, where = Path(), ""
        if self.world.size > 1:
            good = checkpoint.newest(self.folder)
        else:
            watched = replace(self.setup, compile=False, capture=False)
            state = begin(self.recipe, self.data, watched)
            deployed = self.recipe.deployed(state)
            good, best, _ = checkpoint.restore_newest(self.folder, state, deployed)
            history = Log.of(self.folder, best).evaluations
            where = find_non_finite(
                self.recipe, state, self.data, history=history, setup=watched, until=seen
            )
        where = where or f"a value became non-finite between steps {good.name} and {seen}"
        raise NonFinite(f"{where}; the last good weights are in {good}; try a smaller lr or clip=1")

    def _has_checkpoints(self) -> bool:
        return self.world.writes and bool(checkpoint.steps(self.folder))

    def note_time(self, step: int) -> None:
        """Write down how long the run took so far."""
        if self.world.writes:
            note_seconds(self.folder, step, self.before + time.monotonic() - self.begun)

    # ------------------------------------------------------------------ fitting and simulation

    def fit(self) -> Result:
        """Let an estimator learn, and keep its attributes that end in an underscore."""
        self._again()
        recipe = self.recipe
        seeds.seed_all(self.setup.device, recipe.seed)
        with self.whole():
            model = recipe.fit(recipe.model(self.data), self.data)
        learned = {n: v for n, v in vars(model).items() if n.endswith("_") and n[0] != "_"}
        checkpoint.save_values(checkpoint.path_of(self.folder, 1), learned)
        self.log.add({"step": 1, "valid": evaluate(recipe, model, self.data.valid, self.setup)})
        return self.finish(1, self.figures(model), model)

    def simulate(self) -> Result:
        """Compute the result of a simulation and keep it."""
        self._again()
        seeds.seed_all(self.setup.device, self.recipe.seed)
        generator = torch.Generator().manual_seed(self.recipe.seed)
        with self.whole():
            result = self.recipe.simulate(generator)
        checkpoint.save_values(checkpoint.path_of(self.folder, 1), result)
        return self.finish(1, self.recipe.metrics(result), result)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """A computation that is done or not: a signal ends it at once."""
        again = resuming(self.folder, source_file(self.recipe))
        with self.stop.ending(f"stopped before it was done; do it again with: {again}"):
            yield

    def _again(self) -> None:
        """Begin the one step of a fitting or a simulation: there is nothing to go on with."""
        files.make_folder(self.folder / "checkpoints")
        for step in checkpoint.steps(self.folder):
            files.remove_folder(checkpoint.path_of(self.folder, step))
        files.cut(self.folder / "metrics.jsonl", 0)
        self.log = Log(self.folder / "metrics.jsonl")

    # -------------------------------------------------------------------------------- the end

    def finish(self, step: int, metrics: Mapping[str, float], model: object) -> Result:
        """Log the test figures, draw, and write the card."""
        recipe = self.recipe
        check_figures(metrics, step)
        if self.data.own:
            self.tell(remarks.of_figures(metrics))
        goals = () if recipe.changed else recipe.goals()
        if goals:
            check_goal(recipe, metrics)
        reached = all(goal.reached(metrics) for goal in goals) if goals else None
        self.log.add({"step": step, "test": dict(metrics)})
        pictures = self.draw_if_possible(model)
        put(self.folder, {"spec.json": as_json(self.described_data())})
        text = card(
            recipe,
            spec=self.data.spec,
            digest=self.data.digest,
            where=read_environment(self.folder),
            metrics=metrics,
            reached=reached,
            seconds=self.before + time.monotonic() - self.begun,
            file=source_file(recipe),
            parameters=(
                sum(p.numel() for p in model.parameters()) if isinstance(model, nn.Module) else None
            ),
            read=self.read,
            weights=self.weights,
            notes=self.notes,
            captions=self.captions,
            each_class=self.each_class,
            more=recipe.page(model) if isinstance(model, Table) else sayings(self.log.rows),
        )
        files.write(self.folder / "card.md", text.encode())
        self.report()
        history = columns(self.log.rows)
        return Result(self.folder, dict(metrics), reached, pictures, self.weights, history)

    def described_data(self) -> dict[str, Any]:
        """What the data is and all that was read so far: what spec.json holds."""
        read = [{"name": source.name, "sha256": source.sha256} for source in self.read]
        return {"spec": self.data.spec, "digest": self.data.digest, "read": read}

    def check_read(self) -> None:
        """Refuse to go on where something that was read has changed since the run began."""
        known = read_spec(self.folder)
        old = {entry["name"]: entry["sha256"] for entry in known["read"]}
        sums = [(s.name, s.sha256, old.get(s.name, s.sha256)) for s in self.read]
        sums.append((self.data.spec.get("name", ""), self.data.digest, known["digest"]))
        for name, now, then in sums:
            if now != then:
                raise UserError(
                    f"the data of {self.folder} ({name}) has changed since the run began: its "
                    f"SHA-256 is {now[:12]}..., not {then[:12]}...; start anew, or name the set "
                    "where it is with data="
                )

    def draw_if_possible(self, model: object) -> tuple[Path, ...]:
        """The pictures; a run is kept though those of a recipe of one's own cannot be drawn."""
        try:
            return self.draw(model)
        except (CannotWrite, Stopped):
            raise
        except Exception as error:
            if not source_file(self.recipe):
                raise
            line = f"the pictures of {self.recipe.name} are not drawn: {explained(error)[1]}"
            if self.progress.shown:
                self.progress.say(line)
            else:
                warnings.warn(line, stacklevel=2)
        if not isinstance(self.recipe, Training):
            return ()
        return self.write_pictures({"learning-curve": Drawn(learning_curve(self.log.rows), "")})

    def draw(self, model: object) -> tuple[Path, ...]:
        """The recipe's pictures, and the learning curve of a training."""
        recipe = self.recipe
        seeds.seed_all(self.setup.device, recipe.seed, PICTURES)
        if isinstance(recipe, Simulation | Experiment):
            return self.write_pictures(recipe.draw(model))
        data = replace(self.data, spec=escape_names(self.data.spec))
        with evaluating(model):
            pictures = recipe.draw(model, data, self.log.rows)
        if isinstance(recipe, Training):
            if "network" not in pictures and isinstance(model, nn.Module):
                pictures["network"] = Drawn(self.diagram(model), "")
            pictures["learning-curve"] = Drawn(learning_curve(self.log.rows), "")
        return self.write_pictures(pictures)

    def diagram(self, model: nn.Module) -> Figure:
        """The layers of the network, as one validation batch passes them."""
        batch = list(islice(self.data.valid, 1))
        samples = len(batch[0][0]) if batch and batch[0] else 0
        rows = layers_called(
            model, lambda: evaluate(self.recipe, model, batch, self.setup), samples
        )
        return layer_lines(rows, title=type(model).__name__)

    def write_pictures(self, pictures: Mapping[str, Drawn]) -> tuple[Path, ...]:
        """Write pictures as files of each form that is wanted."""
        files.make_folder(self.folder / "pictures")
        paths = []
        self.captions = {name: drawn.caption for name, drawn in pictures.items() if drawn.caption}
        for name, drawn in pictures.items():
            for form in self.forms:
                paths.append(self.folder / "pictures" / f"{name}.{form}")
                files.write(paths[-1], render(drawn.figure, form))
        return tuple(paths)


# ----------------------------------------------------------------------------------- small parts


def check_figures(metrics: Mapping[str, float], step: int) -> None:
    """Refuse figures that are no numbers."""
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise NonFinite(f"the metric {name} is {value} at step {step}, which is no number")
