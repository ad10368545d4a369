"""A run on its way, whatever its kind: folder, log, pictures and card.

Each kind of recipe has a job of its own (`training_job.py`, `fitting_job.py`, `simulation_job.py`,
`experiment_job.py`), which says how to `prepare`, how to `run`, how to `load` the result and which
`pictures` show it.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from everynet.data.dataset import Data, Spec
from everynet.metrics.summary import class_report, decided
from everynet.plot.style import render
from everynet.recipes.recipe import Drawn, Recipe
from everynet.recipes.settings import settings
from everynet.recipes.stored import source_file
from everynet.recipes.trained import Trained
from everynet.runs import checkpoint, notes
from everynet.runs.baselines import Baselines, measure_baselines
from everynet.runs.card import card, sampled_texts
from everynet.runs.cell_table import CellTable
from everynet.runs.folder import (
    as_json,
    describe_data,
    read_dataset,
    read_environment,
    read_spec,
)
from everynet.runs.gap import Gap
from everynet.runs.log import Log, Watch, flatten, note_seconds, to_columns
from everynet.runs.progress import Progress
from everynet.runs.threshold import (
    check_threshold,
    describe_threshold,
    find_threshold,
    has_threshold,
)
from everynet.system import files, seeds
from everynet.system.errors import (
    CannotWrite,
    NonFinite,
    Stopped,
    UserError,
    explain,
    is_out_of_memory,
)
from everynet.system.html import page
from everynet.system.manifest import put
from everynet.system.signals import Stop
from everynet.system.sources import Source, digest_of, note
from everynet.system.user_files import resuming
from everynet.training import device
from everynet.training.device import Setup
from everynet.training.loop import EVALUATION, PICTURES, TEST, add_final, measure, summarise
from everynet.training.preflight import check_goal
from everynet.training.processes import World


@dataclass(frozen=True)
class Result:
    """What a run reached and where it is."""

    folder: Path
    metrics: dict[str, float]
    """Metrics on the test split, of the weights kept."""
    reached: bool | None
    """Whether the goal was reached; None where it was not checked."""
    pictures: tuple[Path, ...]
    weights: str = ""
    """Which weights were kept and why, in words; empty where none were learned by steps."""
    gap: Gap | None = None
    """How much better the network does on training samples than on others; None: not known."""
    baselines: Baselines | None = None
    """What simple models reach on the same rows of a table; None: not of a table, or not wanted."""
    history: dict[str, list[float]] = field(default_factory=dict, repr=False)
    """metrics.jsonl as columns of one length: `step`, `train_loss`, `valid_accuracy` and so on."""
    cells: Sequence[dict[str, Any]] = field(default=(), repr=False)
    """What each cell of a sweep or an experiment came to."""

    def table(self) -> CellTable:
        """A row for each cell of a sweep or an experiment: settings, seed and metrics."""
        if not self.cells:
            raise UserError(
                f"{self.folder} has no cells, because it is no sweep and no experiment; its log is "
                "`history`, and its metrics are `metrics`"
            )
        return CellTable(self.cells)

    def _repr_html_(self) -> str:
        """What a notebook shows: the metrics and the first pictures."""
        goal = {True: "reached", False: "not reached"}
        facts = {**self.metrics, "goal": goal[self.reached]} if self.reached is not None else {}
        facts = {**(facts or self.metrics), "folder": self.folder}
        return page(self.folder.name, facts, self.pictures)


@dataclass
class Job:
    """A run on its way: what it does, how, and where it writes."""

    recipe: Any  # of the kind of the job
    setup: Setup
    world: World = field(default_factory=World)
    progress: Progress = field(default_factory=lambda: Progress(1))
    folder: Path = Path()
    data: Data = field(default_factory=Data.none)
    stop: Stop = field(default_factory=Stop)
    sources: dict[Source, None] = field(default_factory=dict)
    """All that was read so far."""
    jobs: int = 1
    """Cells of an experiment that are trained at once."""
    watch: Watch | None = None
    """Called with each record that is logged."""
    forms: tuple[str, ...] = ("png",)
    """What pictures are written as."""
    log: Log = field(default_factory=Log, init=False)
    weights: str = field(default="", init=False)
    """Which weights are kept, in words."""
    notes: list[str] = field(default_factory=list, init=False)
    """What a person should know of the data and of what came of it."""
    captions: dict[str, str] = field(default_factory=dict, init=False)
    """What to see in the pictures that were drawn, most telling first."""
    class_table: Sequence[Sequence[str]] = field(default=(), init=False)
    """Precision and recall of every class on the test split, as rows of text with a header."""
    outputs: dict[str, Tensor] = field(default_factory=dict, init=False)
    """What the recipe says of every test sample."""
    begun: float = field(default_factory=time.monotonic, init=False)
    seconds_before: float = field(default=0.0, init=False)
    """Seconds that earlier sessions of this run took."""
    reported: int = field(default=0, init=False)
    """Rows of the log that `watch` was called with, or that came before this session."""
    reported_at: float = field(default=0.0, init=False)

    # --------------------------------------------------------------------- what each kind says

    def prepare(self) -> None:
        """Read the data and build what learns, so that mistakes show before a folder is made."""
        raise NotImplementedError  # every kind says it

    def run(self) -> Result:
        """Do all that the recipe says, into the folder."""
        raise NotImplementedError  # every kind says it

    @classmethod
    def load(cls, recipe: Any, folder: Path, spec: Spec) -> Any:  # noqa: ANN401 -- by kind
        """What the run learned or found, ready to use."""
        raise NotImplementedError  # every kind says it

    def load_to_draw(self) -> Any:  # noqa: ANN401 -- by kind
        """What the run learned or found, with the data that its pictures need."""
        return self.load(self.recipe, self.folder, read_spec(self.folder)["spec"])

    def pictures(self, model: Any) -> dict[str, Drawn]:  # noqa: ANN401 -- by kind
        """The recipe's pictures of what was learned or found."""
        drawn: dict[str, Drawn] = self.recipe.draw(model)
        return drawn

    def more_on_card(self, model: Any) -> Iterable[str]:  # noqa: ANN401 -- by kind
        """Lines of Markdown that the card shows besides the metrics."""
        return sampled_texts(self.log.rows)

    # ---------------------------------------------------------------------------- the beginning

    @property
    def where(self) -> str:
        """The device, threads and processes in words."""
        threads = f"{self.setup.threads} thread{'s' * (self.setup.threads > 1)}"
        several = f", {self.world.size} processes" if self.world.size > 1 else ""
        return f"{device.describe(self.setup.device)}, {threads}, {self.setup.precision}{several}"

    @property
    def untouched(self) -> str:
        """What a run that has not begun yet has done to the disk."""
        return "nothing was written" if self.folder == Path() else f"{self.folder} is as it was"

    @property
    def is_new(self) -> bool:
        """Whether there is nothing to go on with."""
        return self.folder == Path() or not checkpoint.steps(self.folder)

    def beginning(self) -> AbstractContextManager[None]:
        """Within it a signal ends the job at once: it has no steps to end after."""
        return self.stop.ending(f"stopped before it began; {self.untouched}")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder while writing into it."""
        if not self.world.writes:
            yield
            return
        with files.locked(self.folder):
            yield

    def note_settings(self) -> None:
        """Record the files and runs that settings name."""
        for name, value in settings(self.recipe).items():
            if isinstance(value, Path) and value != Path():
                note(str(value), digest_of(value, name))
            if isinstance(value, Trained) and value:
                fresh = name != "start" or self.is_new
                note(str(value), (value.resolved(name) if fresh else value).sha256)

    def refuse_processes(self) -> None:
        """Refuse several: what is not trained by steps is computed in one process."""
        self.world.check(1, True, self.recipe.name)

    def read_data(self) -> None:
        """Read the data; a signal meanwhile ends it at once, because large images take minutes."""
        with self.stop.ending(f"stopped while the data was read; {self.untouched}"):
            self.data = read_dataset(self.recipe, self.folder)
        check_threshold(self.recipe, self.data)

    def tell(self, lines: Iterable[str]) -> None:
        """Say what a person should know, and write it into the card."""
        for line in lines:
            self.notes.append(line)
            self.progress.say_once(line)

    def check_sources(self) -> None:
        """Refuse to go on where something that was read has changed since the run began."""
        known = read_spec(self.folder)
        old = {entry["name"]: entry["sha256"] for entry in known["read"]}
        sums = [(s.name, s.sha256, old.get(s.name, s.sha256)) for s in self.sources]
        sums.append((self.data.spec.get("name", ""), self.data.digest, known["digest"]))
        for name, now, then in sums:
            if now != then:
                raise UserError(
                    f"the data of {self.folder} ({name}) has changed since the run began: its "
                    f"SHA-256 is {now[:12]}..., not {then[:12]}...; start anew, or name the set "
                    "where it is with data="
                )

    # ----------------------------------------------------------------- what is computed at once

    def start_over(self) -> None:
        """Begin the one step of a fitting or a simulation: there is nothing to go on with."""
        files.make_folder(self.folder / "checkpoints")
        for step in checkpoint.steps(self.folder):
            files.remove_folder(checkpoint.path_of(self.folder, step))
        files.cut(self.folder / "metrics.jsonl", 0)
        self.log = Log(self.folder / "metrics.jsonl")
        seeds.seed_all(self.setup.device, self.recipe.seed)

    def ending_at_once(self) -> AbstractContextManager[None]:
        """A computation that is done or not: a signal ends it at once."""
        again = resuming(self.folder, source_file(self.recipe))
        return self.stop.ending(f"stopped before it was done; do it again with: {again}")

    # -------------------------------------------------------------------------------- the end

    def measure(self, model: object, split: str) -> dict[str, Tensor]:
        """What the recipe says of every sample of a split, by name.

        Where memory runs out, fewer of them at a time are tried, down to one.
        """
        purpose = TEST if split == "test" else EVALUATION
        while True:
            try:
                return measure(self.recipe, model, self.data.batches(split), self.setup, purpose)
            except Exception as error:
                if not is_out_of_memory(error) or self.data.eval_batch_size == 1:
                    raise
            self.data = replace(self.data, eval_batch_size=self.data.eval_batch_size // 2)
            self.progress.say(
                f"memory ran out in an evaluation: {self.data.eval_batch_size} samples at a time "
                "from now on"
            )
            torch.cuda.empty_cache()

    def test(self, model: object) -> dict[str, float]:
        """The metrics on the test split and of `final`; those of each class are for the card."""
        if has_threshold(self.recipe):
            found = find_threshold(self.recipe, self.data, self.measure(model, "valid"))
            self.data = replace(self.data, spec={**self.data.spec, "threshold": found})
            self.tell([describe_threshold(self.recipe, self.data)])
        outputs = self.outputs = decided(self.measure(model, "test"), self.data.spec)
        self.class_table = class_report(outputs, self.data.spec.get("classes", ()))
        metrics = summarise(self.recipe, outputs)
        return add_final(self.recipe, model, self.data, metrics, self.setup)

    def finish(self, step: int, metrics: Mapping[str, float], model: object) -> Result:
        """Log the test metrics, draw, and write the card."""
        recipe = self.recipe
        check_finite(metrics, step)
        if self.data.own:
            self.tell(notes.on_metrics(metrics, recipe, len(self.data.spec.get("classes", ()))))
        unit = getattr(model, "unit", None)  # of a target, where the recipe scales it
        scale = unit.item() if isinstance(unit, Tensor) else 1.0
        beside = measure_baselines(recipe, self.data, self.outputs, metrics, scale)
        untrained = vars(recipe).get("steps") == 0
        goals = () if recipe.changed or untrained else recipe.goals()
        if goals:
            check_goal(recipe, metrics)
        reached = all(goal.reached(metrics) for goal in goals) if goals else None
        simple = beside.logged() if beside else {}
        self.log.add({"step": step, "test": dict(metrics), **simple})
        pictures = self.draw_if_possible(model)
        put(self.folder, {"spec.json": as_json(describe_data(self.data, self.sources))})
        text = card(
            recipe,
            spec=self.data.spec,
            digest=self.data.digest,
            where=read_environment(self.folder),
            metrics=metrics,
            reached=reached,
            seconds=self.seconds,
            folder=self.folder.name,
            file=source_file(recipe),
            parameters=(
                sum(p.numel() for p in model.parameters()) if isinstance(model, nn.Module) else None
            ),
            read=self.sources,
            weights=self.weights,
            notes=self.notes,
            captions=self.captions,
            class_table=self.class_table,
            baselines=beside,
            more=self.more_on_card(model),
        )
        files.write(self.folder / "card.md", text.encode())
        self.report()
        history = to_columns(self.log.rows)
        return Result(
            self.folder, dict(metrics), reached, pictures, self.weights, baselines=beside,
            history=history,
        )  # fmt: skip

    @property
    def seconds(self) -> float:
        """How long all sessions of this run took so far."""
        return self.seconds_before + time.monotonic() - self.begun

    def note_time(self, step: int) -> None:
        """Write down how long the run took so far."""
        if self.world.writes:
            note_seconds(self.folder, step, self.seconds)

    def report(self) -> None:
        """Call `watch` with what was logged since the last time."""
        if self.watch is None or not self.world.writes:
            return
        for row in self.log.rows[self.reported :]:
            self.reported += 1
            self.reported_at = time.monotonic()
            with seeds.random_state_kept():
                self.watch(flatten(row))

    # ------------------------------------------------------------------------------- pictures

    def draw(self, model: object) -> tuple[Path, ...]:
        """Draw the pictures and write them."""
        seeds.seed_all(self.setup.device, self.recipe.seed, PICTURES)
        return self.write_pictures(self.pictures(model))

    def draw_if_possible(self, model: object) -> tuple[Path, ...]:
        """The pictures; a run is kept though those of a recipe of one's own cannot be drawn."""
        try:
            return self.draw(model)
        except (CannotWrite, Stopped):
            raise
        except Exception as error:
            if not source_file(self.recipe):
                raise
            line = f"the pictures of {self.recipe.name} are not drawn: {explain(error)[1]}"
            if self.progress.shown:
                self.progress.say(line)
            else:
                warnings.warn(line, stacklevel=2)
        ours = self.own_pictures()
        return self.write_pictures(ours) if ours else ()

    def own_pictures(self) -> dict[str, Drawn]:
        """The pictures that need nothing of the recipe."""
        return {}

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


def job_class(recipe: Recipe) -> type[Job]:
    """The job of a recipe's kind."""
    module = import_module(f"everynet.runs.{recipe.kind}_job")
    return cast("type[Job]", getattr(module, f"{recipe.kind.title()}Job"))


def check_finite(metrics: Mapping[str, float], step: int) -> None:
    """Refuse metrics that are no numbers."""
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise NonFinite(f"the metric {name} is {value} at step {step}, which is no number")
