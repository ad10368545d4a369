"""A training on its way: update, evaluate and save to the last step, then test, draw and tell."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import torch
from matplotlib.figure import Figure
from torch import nn

from everynet.data.dataset import Data, Spec
from everynet.data.loader import LoaderFailed
from everynet.data.samplers import Made
from everynet.nn.layers import layers_called
from everynet.plot import layer_lines, learning_curve
from everynet.plot.style import escape_names
from everynet.recipes.recipe import Drawn, require_returned
from everynet.recipes.settings import override
from everynet.recipes.state import State
from everynet.recipes.stored import source_file
from everynet.recipes.training import Training
from everynet.runs import checkpoint, notes
from everynet.runs.best_weights import BestWeights
from everynet.runs.card import CURVE
from everynet.runs.checkpoint import Best
from everynet.runs.folder import explaining_misfit, read_dataset
from everynet.runs.gap import MOST_ROWS, Gap
from everynet.runs.job import Job, Result, check_finite
from everynet.runs.log import Log, NonFiniteAt, read_seconds, worth_logging
from everynet.runs.progress import LIVE
from everynet.system import files
from everynet.system.errors import Failure, NonFinite, Stopped, UserError, is_out_of_memory
from everynet.system.user_files import resuming
from everynet.system.wording import shown
from everynet.training.graph import Update
from everynet.training.loop import (
    begin,
    evaluate,
    evaluating,
    find_non_finite,
    finite,
    measure,
    sample_text,
    train,
    with_threads,
)
from everynet.training.preflight import (
    check_compiles,
    check_memory,
    check_methods,
    check_metric,
    try_evaluation,
)
from everynet.training.start import Start

FLUSH = 100  # updates between two looks at the terms, which wait for the device
TOGETHER = 10  # updates between two checks whether any process got a signal
LEARNING_CURVE = (
    "The objective along training, and the metrics of validation at each evaluation; the vertical "
    "line is at the step whose weights are kept."
)
LAYERS = (
    "The layers in the order in which they compute, blue where they learn, each with the shape of "
    "its output and its number of parameters."
)


@dataclass
class TrainingJob(Job):
    """A run of a training."""

    state: State = field(init=False)
    deployed: nn.Module = field(init=False)
    """The network that is evaluated, drawn and kept."""
    best_weights: BestWeights = field(default_factory=lambda: BestWeights(None), init=False)
    best: Best = field(default_factory=Best, init=False)
    """What a checkpoint holds besides the state."""
    update: Update | None = field(default=None, init=False)
    shown: dict[str, float] = field(default_factory=dict, init=False)
    """The terms that were shown last."""
    _best_of: dict[int, int] = field(default_factory=dict, init=False)
    """The best step that each checkpoint refers to."""

    # ------------------------------------------------------------------------------ preparing

    def prepare(self) -> None:
        check_methods(self.recipe)
        self.note_settings()
        self.read_data()
        new_folder = self.folder == Path()
        if new_folder:  # a run that goes on keeps what it began with
            suited = self.recipe.suited(self.data)
            require_returned(self.recipe, "suited", suited, dict, "a dict of settings by name")
            self.recipe = override(self.recipe, suited)
            self.tell(notes.on_settings(suited))
        recipe = self.recipe
        self.tell(notes.on_data(self.data, recipe))
        if recipe.schedule == "plateau" and not self.data.chooses:
            raise UserError(
                "schedule (plateau) must be another where holdout is false, because no rows are "
                "left that could tell when learning stops; try one-cycle"
            )
        self.world.check(recipe.batch_size, recipe.per_rank, recipe.name)
        self.data = self.data.to(self.setup.device, self.setup.dtype)
        check_memory(recipe, self.data, copies=2)
        start = Start.of(recipe, self.data.spec) if recipe.start and self.is_new else None
        self.state = begin(recipe, self.data, self.setup, self.world, start)
        self.deployed = recipe.deployed(self.state)
        if start is not None:
            self.progress.say(start.describe(self.state.model))
        checkpoint.check_deployed(self.state.model, self.deployed)
        if self.setup.compile:
            check_compiles(recipe, self.data, self.setup)
        measured = None
        if type(recipe).final is not Training.final or (self.is_new and source_file(recipe)):
            measured = try_evaluation(recipe, self.deployed, self.data, self.setup)
        self.best_weights = BestWeights.of(recipe, self.data, measured)
        if self.is_new and recipe.metric:
            check_metric(recipe, self.deployed, self.data, self.setup)
        if new_folder:  # a resumed run keeps the threads it had
            self.setup = with_threads(self.setup, recipe, self.state.model)
            torch.set_num_threads(self.setup.threads)
        self.progress.steps = recipe.steps

    # ------------------------------------------------------------------------------- training

    def run(self) -> Result:
        """Train from the newest checkpoint, or from the start where there is none yet."""
        damage = self.restore()
        if self.state.step == 0:
            self.save()
        pace = self.progress.pace
        pace.every, self.progress.bound = self.eval_every, self.best_weights.patience > 0
        if line := self.best_weights.describe_idle_patience(-(-self.until // self.eval_every)):
            self.progress.say(line)
        try:
            if not self.is_out_of_patience():  # it may have ended before
                self.train()
            if not self.world.writes:
                return Result(self.folder, {}, None, ())
            left = "stopped after the last step; test and draw it with: everynet resume"
            with self.stop.ending(f"{left} {self.folder}"):
                return self.test_best(damage)
        except LoaderFailed:
            if self.stop.signal == 0:
                raise
            self.save_and_stop()  # between two updates: its workers got the signal too
        except NonFiniteAt as bad:
            self.explain_non_finite(bad.step)
            raise
        except Exception as error:
            if str(error).startswith("DataLoader worker"):  # torch says it amid an update, too
                raise self.explain_lost_worker() from error
            if not is_out_of_memory(error):
                raise
            raise UserError(self.explain_memory(error)) from error
        finally:
            self.progress.close()

    def train(self) -> None:
        """Update, log, evaluate and save until the last step or a signal."""
        recipe, state, world, log = self.recipe, self.state, self.world, self.log
        until, eval_every = self.until, self.eval_every
        progress, pace = self.progress, self.progress.pace
        history, self.reported = log.evaluations, len(log.rows)
        progress.begin(state.step)
        self.update = update = Update(recipe, state, self.data, self.setup, world)
        before = notes.sum_tensors(recipe, state)
        on_cuda, alone = self.setup.device.type == "cuda", world.size == 1
        for record in train(recipe, state, self.data, history=history, update=update):
            step, last = record.step, record.step == until
            if on_cuda and (why := update.uncaptured):
                some = "some updates are" if update.graphs else "updates are"
                progress.say_once(f"{some} not captured as one graph: {why}")
            flush = step % FLUSH == 0 or last
            if flush or worth_logging(step):
                log.pending.append(record)
            if flush or len(log.pending) >= FLUSH or self.is_watched_in_vain():
                log.flush(world)
            pace.tick(step)
            if step % eval_every == 0 or last:
                log.flush(world)
                with pace.pause(evaluates=True):
                    history.append(self.evaluate())
                self.tell(notes.on_step(recipe, state, before))
                before = []
                progress.newest = self.describe_newest(history[-1]["valid"])
                last = last or self.is_out_of_patience()
            if last or self.is_due_to_save(step):
                with pace.pause():
                    self.save()
            if self.watch is not None:
                self.report_or_save()
            due = progress.due()
            if due or (last and progress.shown):
                self.shown = {name: value.item() for name, value in record.terms.items()}
                if due or progress.moves:
                    progress.show(step, self.shown, last=last)
            if last:
                break  # a cell may be stopped before its last step
            asks = alone or step % TOGETHER == 0
            if asks and world.any(self.stop.signal != 0, self.setup.device):
                self.save_and_stop()

    def save_and_stop(self) -> NoReturn:
        """Save and end, because a signal came."""
        self.save()
        again = resuming(self.folder, source_file(self.recipe))
        line = f"stopped at step {self.state.step:,} and saved; go on with: {again}"
        raise Stopped(line, self.stop.signal or 15)

    @property
    def until(self) -> int:
        """The update after which this training ends."""
        return int(self.recipe.steps)

    @property
    def eval_every(self) -> int:
        """Updates between two evaluations."""
        epoch = self.recipe.updates_per_epoch(self.data) or max(1, self.recipe.steps // 20)
        return int(self.recipe.eval_every or epoch)

    @property
    def save_every(self) -> int:
        """Updates between two checkpoints."""
        return int(self.recipe.save_every or self.eval_every)

    def is_due_to_save(self, step: int) -> bool:
        """Whether a checkpoint is due after this update."""
        return step % self.save_every == 0

    def is_out_of_patience(self) -> bool:
        """Whether patience is at its end, in every process alike."""
        waits = self.best_weights.patience > 0
        return waits and self.world.any(self.best_weights.out_of_patience, self.setup.device)

    def is_watched_in_vain(self) -> bool:
        """Whether someone watches and nothing was reported for a while."""
        alone = self.watch is not None and self.world.size == 1  # several would have to agree
        return alone and time.monotonic() - self.reported_at >= LIVE

    def report_or_save(self) -> None:
        """Call `watch`; what it raises ends the run, which is saved first."""
        try:
            self.report()
        except BaseException:
            self.save()
            raise

    def describe_newest(self, metrics: Mapping[str, float]) -> str:
        """The metric of an evaluation that a person waits for: the goal's, or the first."""
        goals = [self.recipe.metric, *(goal.metric for goal in self.recipe.goals())]
        names = [name for name in goals if name in metrics]
        name = next(iter((*names, *metrics)), "")
        return f"valid {name} {metrics[name]:.4g}" if name else ""

    def evaluate(self) -> dict[str, Any]:
        """Evaluate and log, and keep the weights if they are the best so far."""
        recipe, step, best = self.recipe, self.state.step, self.best
        self.world.share_buffers(self.deployed)
        metrics = recipe.summarise(self.measure(self.deployed, "valid"))
        check_finite(metrics, step)
        row: dict[str, Any] = {"step": step, "valid": metrics}
        if text := sample_text(recipe, self.deployed, self.data.spec, self.setup):
            row["said"] = text
        self.log.add(row)
        self.note_time(step)
        if self.best_weights.monitor is not None:
            self.best_weights.terms = self.log.terms
            score = self.best_weights.add(metrics)
            if best.best_step < 0 or score >= self.best_weights.kept:
                best.best_step, best.best_value = step, score.merit
                self.best_weights.kept = score
                self.save_best()
        return row

    # ---------------------------------------------------------------------------- checkpoints

    def restore(self) -> str:
        """Put the newest checkpoint into the state; gives what is wrong with the best weights."""
        path = self.folder / "metrics.jsonl" if self.world.writes else None
        self.log, found, damage = Log(path), "", ""
        if self.world.writes and checkpoint.steps(self.folder):
            newest, self.best, problem = checkpoint.restore_newest(
                self.folder, self.state, self.deployed
            )
            if problem:
                self.progress.say(f"{problem}; the run goes on from {newest}")
            found, damage = str(newest), self.check_best()
        if newest_path := self.world.share_text(found):
            if not self.world.writes:
                self.best = checkpoint.restore(Path(newest_path), self.state, self.deployed)
            if self.world.share_text(damage):
                self.best.best_step = -1  # the next evaluation is the best that there is
            self.log = Log.of(self.folder, self.best)
            self.log.path = path
            self.seconds_before = read_seconds(self.folder)
        elif self.world.writes:
            files.make_folder(self.folder / "checkpoints")
        if self.world.writes:
            self.tidy()
            files.cut(self.folder / "metrics.jsonl", self.log.length)
        self.best_weights.replay(self.log.evaluations, self.best.best_step, self.log.terms)
        return damage

    def check_best(self) -> str:
        """What is wrong with the best weights, which are then put aside; mostly nothing."""
        path = checkpoint.best_path(self.folder, self.best.best_step)
        try:
            if self.best.best_step >= 0:
                checkpoint.check_model(path, self.deployed)
        except UserError as error:
            checkpoint.put_aside(path)
            self.progress.say(f"{error}; the best of the evaluations to come is kept instead")
            return str(error)
        return ""

    def save(self) -> None:
        """Write a checkpoint of a state that is finite, and drop those no longer needed."""
        state, best = self.state, self.best
        self.log.flush(self.world)
        if not finite([*state.model.parameters(), *state.model.buffers()]):
            raise NonFiniteAt(state.step)
        best.log_length, best.log_sha256 = self.log.length, self.log.sha256
        if self.update is not None:
            self.update.check_draws()
        path = checkpoint.path_of(self.folder, state.step)
        if not self.world.writes or files.exists(path):
            return
        checkpoint.save(path, state, self.deployed, best)
        self._best_of[state.step] = best.best_step
        self.tidy()

    def save_best(self) -> None:
        """Write the weights of the best evaluation so far, if they are finite."""
        if not finite([*self.deployed.parameters(), *self.deployed.buffers()]):
            raise NonFiniteAt(self.best.best_step)
        if not self.world.writes:
            return
        path = checkpoint.best_path(self.folder, self.best.best_step)
        if files.exists(path):
            files.remove_folder(path)
        checkpoint.save_model(path, self.deployed)
        self.tidy()

    def tidy(self) -> None:
        """Drop checkpoints no longer needed: two are kept, with the best weights they speak of.

        One that a signal made goes as soon as a newer one is there, so that the folder ends the
        same however often a run was stopped.
        """
        steps, last = checkpoint.steps(self.folder), self.recipe.steps
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
        spoken_of = {self.best.best_step, *(self._best_of[step] for step in kept)}
        for step in checkpoint.bests(self.folder):
            if step not in spoken_of:
                files.remove_folder(checkpoint.best_path(self.folder, step))

    # -------------------------------------------------------------------------------- the end

    def test_best(self, damage: str) -> Result:
        """Put the weights that are kept into the network, and test and draw it."""
        step, best = self.state.step, self.best.best_step
        history = self.log.evaluations
        self.weights = self.best_weights.describe(history, best, step, self.recipe.steps)
        if best >= 0:
            checkpoint.restore_model(checkpoint.best_path(self.folder, best), self.deployed)
            if damage:
                self.weights += f"; better may have been those that were damaged: {damage}"
        elif damage:
            self.weights += f", because the best were damaged: {damage}"
        try:
            metrics = self.test(self.deployed)
        except Exception as error:  # in `final`, say, of a recipe of one's own
            if not isinstance(error, Stopped) and not is_out_of_memory(error):
                again = resuming(self.folder, source_file(self.recipe))
                self.progress.say(f"all steps are done and saved; test and draw it with: {again}")
            raise
        gap = self.measure_gap()
        self.notes += notes.on_gap(gap)
        result = replace(self.finish(step, metrics, self.deployed), gap=gap)
        self.progress.end(step, self.shown, self.seconds)
        return result

    def measure_gap(self) -> Gap | None:
        """How much better the network does on training samples than on as many of validation.

        None where it learned from no set, or where `valid` was not held out of it, or asks for
        something else than what is trained on.
        """
        data, monitor = self.data, self.best_weights.monitor
        if isinstance(data.sampler, Made) or not data.chooses or self.recipe.steps == 0:
            return None
        train, valid = (
            [(tensor.shape[1:], tensor.dtype) for tensor in data.splits.get(split, ())]
            for split in ("train", "valid")
        )
        if train != valid:
            return None
        rows = min(MOST_ROWS, data.rows("valid"), data.rows("train"))
        learned, held_out = (
            measure(self.recipe, self.deployed, data.sample(split, rows), self.setup, shared=False)
            for split in ("train", "valid")
        )
        goals = (*([monitor] if monitor else []), *self.recipe.goals())
        return Gap.of(learned, held_out, *goals)

    def explain_non_finite(self, seen: int) -> None:
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

    def explain_lost_worker(self) -> Failure:
        """That a worker was lost, mostly by a signal; nothing is saved amid an update."""
        again = resuming(self.folder, source_file(self.recipe))
        line = (
            f"a worker of the DataLoader was lost in update {self.state.step + 1:,}; the run is "
            f"saved at step {checkpoint.done(self.folder):,}: go on with: {again}"
        )
        return Stopped(line, self.stop.signal) if self.stop.signal else UserError(line)

    def explain_memory(self, error: Exception) -> str:
        """That memory ran out and how to go on; nothing is saved: an update may be half done."""
        recipe, size = self.recipe, self.world.size
        less = recipe.batch_size // 2 // size * size
        again = resuming(self.folder, source_file(recipe))
        line = " ".join(str(error).split())
        if self.state.step >= self.until:
            return (
                f"memory ran out after the last update ({shown(line, 200)}); the run is saved: "
                f"test and draw it where there is more of it, with: {again}"
            )
        return (
            f"memory ran out in update {self.state.step + 1:,} with batch_size {recipe.batch_size} "
            f"({shown(line, 200)}); the run is saved at step {checkpoint.done(self.folder):,}: "
            + ("run a smaller network" if recipe.per_rank or not less
               else f"go on with a smaller batch: {again} batch_size={less}")
        )  # fmt: skip

    # ------------------------------------------------------------------- what was learned

    @classmethod
    def load(cls, recipe: Training, folder: Path, spec: Spec) -> nn.Module:
        """The network with the weights kept, in eval mode."""
        data = Data.described(spec)
        check_memory(recipe, data)
        with explaining_misfit(recipe, folder):
            model = recipe.model(data)
        if passed_over := checkpoint.load_kept(folder, model):
            warnings.warn(passed_over, stacklevel=2)
        return model.eval()

    def load_to_draw(self) -> nn.Module:
        self.data = read_dataset(self.recipe, self.folder).to(self.setup.device, torch.float32)
        self.check_sources()
        self.log = Log.of(self.folder)
        self.best = checkpoint.newest_progress(self.folder)
        model: nn.Module = super().load_to_draw()
        return model

    def pictures(self, model: nn.Module) -> dict[str, Drawn]:
        """The recipe's pictures, the layers of the network and the learning curve."""
        data = replace(self.data, spec=escape_names(self.data.spec))
        with evaluating(model):
            pictures: dict[str, Drawn] = self.recipe.draw(model, data, self.log.rows)
        if "network" not in pictures:
            pictures["network"] = Drawn(self.draw_layers(model), LAYERS)
        return pictures | self.own_pictures()

    def own_pictures(self) -> dict[str, Drawn]:
        if self.recipe.steps == 0:
            return {}  # nothing was learned
        kept, last = self.best.best_step, max((row["step"] for row in self.log.rows), default=0)
        curve = learning_curve(self.log.rows, max(kept, 0) or last)
        return {CURVE: Drawn(curve, LEARNING_CURVE)}

    def draw_layers(self, model: nn.Module) -> Figure:
        """The layers of the network, as one validation batch passes them."""
        batch = list(islice(self.data.valid, 1))
        samples = len(batch[0][0]) if batch and batch[0] else 0
        rows = layers_called(
            model, lambda: evaluate(self.recipe, model, batch, self.setup), samples
        )
        return layer_lines(rows, title=type(model).__name__)
