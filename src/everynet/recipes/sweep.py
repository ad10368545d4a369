"""A sweep: every combination of some settings of a training, with several seeds, in one table.

Combinations are compared on the validation split by the setting `metric`, or by the metric of the
task (`Training.task_metric`), and those alike in it by the objective; the test split is shown and
has no say. With halving, all are trained for a part of the steps, the better half goes on for twice
as many, and so on to the full steps: a cell is stopped early, so that its schedule stays that of
the full steps.
"""

from __future__ import annotations

import math
import statistics
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, NamedTuple

import torch
from matplotlib.figure import Figure

from everynet.plot.sweep import metric_by_setting
from everynet.recipes.experiment import NAME, Cell, Experiment, Table
from everynet.recipes.plateau import WORST, Score, monitored_value
from everynet.recipes.recipe import Goal, Recipe
from everynet.recipes.settings import override, setting_types, typed_settings
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.seeds import generator
from everynet.system.values import convert
from everynet.system.wording import with_article, written

MOST = 10_000  # cells of a sweep
CHOICE = 1_000_000  # combinations of which some can be drawn
DRAWN = 7  # seeds which are drawn


class Combination(NamedTuple):
    """One value for each setting that is swept."""

    name: str
    settings: dict[str, Any]
    recipe: Training


@dataclass(frozen=True)
class Row:
    """What a combination reached over its seeds."""

    settings: dict[str, Any]
    names: tuple[str, ...]
    """Of its cells."""
    cells: tuple[Cell, ...]
    score: Score
    """The mean over the seeds that did not diverge, larger is better; -inf if all did."""

    @property
    def step(self) -> int:
        """How far it was trained."""
        return max(cell.step for cell in self.cells)

    @property
    def learned(self) -> list[Cell]:
        """The cells that did not diverge."""
        return [cell for cell in self.cells if cell.diverged is None]

    @property
    def diverged(self) -> int:
        """How many of its cells did."""
        return len(self.cells) - len(self.learned)

    def valid(self) -> dict[str, list[float]]:
        """The metrics on the validation split at the end, by seed."""
        return _by_name([cell.last for cell in self.learned])

    def test(self) -> dict[str, list[float]]:
        """The metrics on the test split, by seed; none for a combination that was stopped early."""
        return _by_name([cell.test for cell in self.learned])


def _by_name(metrics: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    names = metrics[0] if metrics else {}
    return {name: [float(one[name]) for one in metrics] for name in names}


@dataclass(frozen=True, kw_only=True)
class Sweep(Experiment):
    """Every combination of some settings of a training."""

    tests: ClassVar[bool] = True

    base: Training = field(metadata={"setting": False})
    """The recipe, with the settings that all cells share."""
    grid: tuple[str, ...] = ()
    """Settings that are swept, each with its values: lr=0.1,0.3."""
    seeds: int = 1
    """Seeds that each combination is trained with, from `seed` up."""
    random: int = 0
    """Combinations that are drawn from all; 0 takes all."""
    halving: bool = False
    """Whether the worse half is stopped early, again and again."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.seeds >= 1, "seeds", "at least 1")
        self.require(self.seed + self.seeds <= 2**63, "seeds", "fewer: a seed is below 2^63")
        self.require(self.random >= 0, "random", "at least 0; 0 takes all combinations")
        count = math.prod(map(len, self.values.values()))
        few = self.random <= count
        self.require(few, "random", f"at most {count:,}, as many combinations as there are")
        if self.random and count > CHOICE:
            raise UserError(
                f"random ({self.random}) must draw from {CHOICE:,} combinations or fewer, and "
                f"there are {count:,}; give fewer values"
            )
        if (cells := (self.random or count) * self.seeds) > MOST:
            raise UserError(
                f"a sweep must have {MOST:,} cells or fewer, and these are {cells:,}; give fewer "
                "values, or draw some with --random"
            )
        if self.halving and "steps" in self.values:
            raise UserError(
                "steps must have one value with halving, which trains for parts of it; keep one"
            )
        if self.base.patience or "patience" in self.values:
            raise UserError(
                "patience must be 0 in a sweep, whose cells are compared after the same number of "
                "steps; leave it out, and end what learns little early with --halving"
            )
        if "metric" in self.values:
            raise UserError(
                "metric must have one value in a sweep, whose cells are compared by it; keep one"
            )
        says = self.base.goal or self.base.metric
        if not says and type(self.base).metrics is not Training.metrics:
            raise UserError(
                f"{self.base.name} must have a goal to be swept, because its metrics are not its "
                "objective and none is said to be monitored; give its recipe one, or metric=NAME"
            )

    # ------------------------------------------------------------------------------ the cells

    @cached_property
    def values(self) -> dict[str, list[Any]]:
        """The values of each setting that is swept."""
        found: dict[str, list[Any]] = {}
        for entry in self.grid:
            key, _, text = entry.partition("=")
            found[key] = values_of(self.base, key, text)
        return found

    @cached_property
    def combinations(self) -> tuple[Combination, ...]:
        """The combinations, in the order of their values."""
        made = [dict(zip(self.values, one, strict=True)) for one in self._chosen()]
        named = [",".join(f"{k}={_plain(v)}" for k, v in one.items()) for one in made]
        apart = len({name.lower() for name in named}) == len(named)
        longest = f",seed={self.seed + self.seeds}"
        if not apart or not all(NAME.fullmatch(name + longest) for name in named if name):
            named = [f"combination-{number}" for number in range(len(made))]
        recipes = (override(self.base, one) for one in made)
        return tuple(
            Combination(name, one, typing.cast("Training", recipe))
            for name, one, recipe in zip(named, made, recipes, strict=True)
        )

    def _chosen(self) -> Iterable[tuple[Any, ...]]:
        every = product(*self.values.values())
        if not self.random:
            return every
        count = math.prod(map(len, self.values.values()))
        drawn = torch.randperm(count, generator=generator(self.seed, DRAWN))[: self.random]
        wanted = {*drawn.tolist()}
        return (one for number, one in enumerate(every) if number in wanted)

    def cells(self) -> dict[str, Training]:
        return {
            name: replace(combination.recipe, seed=seed)
            for combination in self.combinations
            for seed, name in self.names(combination).items()
        }

    def names(self, combination: Combination) -> dict[int, str]:
        """The cells of a combination by seed."""
        head = f"{combination.name}," if combination.name else ""
        return {s: f"{head}seed={s}" for s in range(self.seed, self.seed + self.seeds)}

    def tried(self, cells: Mapping[str, Training]) -> Sequence[str]:
        """One cell of every combination."""
        return [next(iter(self.names(one).values())) for one in self.combinations]

    def origin(self) -> Recipe:
        return self.base

    # ----------------------------------------------------------------------------- comparing

    def monitor(self, cells: Iterable[Cell]) -> Goal:
        """What decides, by the metrics that all cells have."""
        measured = [{*cell.valid} for cell in cells if cell.valid]
        return self.base.task_metric(set.intersection(*measured) if measured else ())

    def value(self, cell: Cell, monitor: Goal) -> float:
        """The metric that decides, at the last look."""
        return monitored_value(monitor, cell.last, cell.terms)

    def score(self, cell: Cell, monitor: Goal, step: int | None = None) -> Score:
        """How good a cell is after so many updates; the worst there is once it diverged."""
        if cell.diverged is not None and (step is None or cell.diverged <= step):
            return WORST
        look = -1 if step is None else cell.steps.tolist().index(step)
        metrics = {name: float(values[look]) for name, values in cell.valid.items()}
        return Score.of(monitor, metrics, cell.terms)

    def rungs(self) -> list[int]:
        """The steps to which halving trains: doubled until they are the full ones."""
        rounds = math.ceil(math.log2(len(self.combinations)))
        full = self.base.steps
        return [max(1, full >> (rounds - number)) for number in range(rounds + 1)]

    def wanted(self, cells: Mapping[str, Training], ended: Mapping[str, Cell]) -> Mapping[str, int]:
        if not self.halving:
            return super().wanted(cells, ended)
        wanted: dict[str, int] = {}
        going = [[*self.names(one).values()] for one in self.combinations]
        for step in self.rungs():
            names = [name for one in going for name in one]
            wanted |= dict.fromkeys(names, step)
            if not all(n in ended and _reached(ended[n], step) for n in names):
                return wanted
            monitor = self.monitor(ended[name] for name in names)
            means = [Score.mean(self.score(ended[n], monitor, step) for n in one) for one in going]
            order = sorted(range(len(going)), key=means.__getitem__, reverse=True)  # stable
            going = [going[n] for n in sorted(order[: math.ceil(len(going) / 2)])]
        return wanted

    # ------------------------------------------------------------------------ rows and report

    def rows(self, table: Table) -> list[Row]:
        """The combinations, best first; one that went further, or diverged less, before others."""
        rows, monitor = [], self.monitor(table.cells.values())
        for combination in self.combinations:
            names = tuple(self.names(combination).values())
            cells = tuple(table.cells[name] for name in names)
            scores = [self.score(cell, monitor) for cell in cells if cell.diverged is None]
            rows.append(Row(combination.settings, names, cells, Score.mean(scores)))
        order = [(row.step * self.halving, -row.diverged, row.score) for row in rows]
        return [rows[n] for n in sorted(range(len(rows)), key=order.__getitem__, reverse=True)]

    def varied(self, table: Table) -> Sequence[str]:
        return [*self.values]

    def ranked(self, table: Table) -> Sequence[str]:
        """Best first, as in the table of the card."""
        return [name for row in self.rows(table) for name in row.names]

    def metrics(self, table: Table) -> dict[str, float]:
        best, monitor = self.rows(table)[0], self.monitor(table.cells.values())
        diverged = {"diverged": float(sum(c.diverged is not None for c in table.cells.values()))}
        if not best.learned:
            return diverged
        value = statistics.fmean(self.value(cell, monitor) for cell in best.learned)
        return {f"best_{monitor.metric}": value, **diverged}

    def picture_settings(self, table: Table) -> Figure:
        """The monitored metric on the validation split against each setting that was swept.

        A point is a seed, a line joins the means, a cross is a cell that diverged.
        """
        settings, values, monitor = [], [], self.monitor(table.cells.values())
        for combination in self.combinations:
            for seed, name in self.names(combination).items():
                cell = table.cells[name]
                settings.append(combination.settings or {"seed": seed})
                lost = cell.diverged is not None
                values.append(math.nan if lost else self.value(cell, monitor))
        label = f"{monitor.metric} (validation)" + "\nwhere each was stopped" * self.halving
        return metric_by_setting(settings, torch.tensor(values, dtype=torch.float64), label)

    def table(self, table: Table) -> list[list[str]]:
        """The rows as text, under their headings."""
        rows = self.rows(table)
        kinds = {"valid": [row.valid() for row in rows], "test": [row.test() for row in rows]}
        names = {split: [*dict.fromkeys(n for r in given for n in r)]
                 for split, given in kinds.items()}  # fmt: skip
        heading = ["", *self.values]
        heading += ["steps"] if self.halving else []
        heading += [f"{split} {name}" for split in kinds for name in names[split]]
        lost = any(row.diverged for row in rows)
        lines = [heading + ["diverged"] * lost]
        for number, row in enumerate(rows):
            line = [str(number + 1), *(written(value) for value in row.settings.values())]
            line += [f"{row.step:,}"] if self.halving else []
            line += [_spread(kinds[s][number].get(n, [])) for s in kinds for n in names[s]]
            lines.append(line + [f"{row.diverged} of {len(row.cells)}"] * lost)
        return lines

    def introduction(self) -> list[str]:
        """What varies and what is the same in all cells."""
        count, fixed = len(self.combinations), self._fixed()
        sizes = f"{count:,} combinations" if count > 1 else "1 combination"
        seeds = f" x {self.seeds} seeds = {count * self.seeds:,} trainings" * (self.seeds > 1)
        return [
            f"sweep of {self.base.name}: {sizes}{seeds}",
            f"varies: {'; '.join(self.grid) or 'seed'}",
            f"fixed: {'; '.join([*fixed, ''])}all else as in {self.base.name}",
        ]

    def _fixed(self) -> list[str]:
        return [f"{key}={as_text(getattr(self.base, key))}" for key in self.base.settings_given()]

    def verdict(self, table: Table) -> str:
        """How the best was found, in words."""
        goal = self.monitor(table.cells.values())
        better = {"<": "the smaller", ">": "the larger"}.get(goal.relation[0], "the nearer")
        how = f"{better} the better" if goal.relation != "==" else f"nearest to {goal.value:g}"
        spread = f" Mean and standard deviation over {self.seeds} seeds." if self.seeds > 1 else ""
        early = " The worse half was stopped early, again and again." if self.halving else ""
        return (
            f"Best first by {goal.metric} on the validation split, {how}; metrics on the test "
            f"split are for information and had no say. All are of the last weights.{spread}{early}"
        )

    def page(self, table: Table) -> list[str]:
        heading, *lines = self.table(table)
        rows = [f"| {' | '.join(line)} |" for line in lines]
        rule = "|---" * len(heading) + "|"
        return [
            *("", "## Combinations", "", *self.introduction()[1:], "", self.verdict(table), ""),
            *(f"| {' | '.join(heading)} |", rule, *rows),
        ]

    def json(self, table: Table) -> dict[str, Any]:
        """The table as plain JSON."""
        rows = [
            {
                "settings": {n: _jsonable(v) for n, v in row.settings.items()},
                "steps": row.step,
                "diverged": row.diverged,
                "seeds": [cell.recipe.seed for cell in row.learned],
                "valid": {n: _summary(v) for n, v in row.valid().items()},
                "test": {n: _summary(v) for n, v in row.test().items()},
            }
            for row in self.rows(table)
        ]
        monitor = self.monitor(table.cells.values())
        goal = {"metric": monitor.metric, "relation": monitor.relation, "split": "valid"}
        return {"recipe": self.base.name, "monitor": goal, "rows": rows}

    def command(self, name: str) -> list[str]:
        """The words of the command that repeats it."""
        words = ["everynet", "sweep", name, *self.grid, *self._fixed()]
        words += [f"seed={self.seed}"] if self.seed else []
        words += ["--seeds", str(self.seeds)] if self.seeds > 1 else []
        words += ["--random", str(self.random)] if self.random else []
        return words + ["--halving"] * self.halving


def _reached(cell: Cell, step: int) -> bool:
    return cell.diverged is not None or cell.step >= step


def _plain(value: object) -> str:
    """A value as a part of a file name."""
    return "x".join(map(_plain, value)) if isinstance(value, tuple) else written(value)


def _jsonable(value: object) -> object:
    if isinstance(value, tuple):
        return [*map(_jsonable, value)]
    return value if isinstance(value, bool | int | float | str) else written(value)


def _summary(values: Sequence[float]) -> dict[str, Any]:
    spread = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "std": spread, "values": [*values]}


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    mean = f"{statistics.fmean(values):.4g}"
    return f"{mean} ± {statistics.stdev(values):.2g}" if len(values) > 1 else mean


# ------------------------------------------------------------------------ made from what is given


def split(key: str, text: str) -> list[str]:
    """The parts of a text between commas that are in no parentheses."""
    parts, depth = [""], 0
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth < 0:
            break
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    if depth != 0:
        raise UserError(f"{key} ({text}) must have a ) for every (")
    return [part.strip() for part in parts]


def values_of(base: Training, key: str, given: str | Sequence[Any]) -> list[Any]:
    """The values of a setting, or those that a text says, in the type the recipe declares."""
    if isinstance(given, str):
        values = _values_in(base, key, given)
    else:
        values = [typed_settings(base, {key: value})[key] for value in given]
    if not values:
        raise UserError(f"{key} ([]) must have a value; give one that is fixed, or several")
    for number, value in enumerate(values):
        if value in values[:number]:
            text = given if isinstance(given, str) else as_text(values)
            raise UserError(f"{key} ({text}) must have each value once: {written(value)} is twice")
    return values


def _values_in(base: Training, key: str, text: str) -> list[Any]:
    """The values that are written between commas; what is in parentheses is one.

    A setting that is a tuple must have them where there is a comma, because `run` takes 4,16 for
    one value.
    """
    kinds = setting_types(base)
    if key not in kinds:
        override(base, {key: text})  # which says what is near
    kind = kinds[key]
    if typing.get_origin(kind) is tuple and "," in text and "(" not in text:
        apart = ",".join(f"({part})" for part in split(key, text))
        raise UserError(
            f"{key} ({text}) must have parentheses in a sweep, because it can be read in two ways: "
            f"write {key}=({text}) for one value, or {key}={apart} for each by itself"
        )
    return [_value(key, part, kind) for part in split(key, text)]


def _value(key: str, text: str, kind: Any) -> Any:  # noqa: ANN401 -- a type hint, and of its type
    if kind is str:
        return text[1:-1] if text[:1] == "(" and text[-1:] == ")" else text
    return convert(key, text, kind)


def sweep_of(
    base: Recipe,
    given: Mapping[str, str | Sequence[Any]],
    *,
    seeds: int = 1,
    random: int = 0,
    halving: bool = False,
) -> Sweep:
    """The sweep of a recipe over settings, each a text or its values; one with one is fixed."""
    if not isinstance(base, Training):
        raise UserError(
            f"{base.name} is {with_article(base.kind)} and cannot be swept, because a sweep "
            "compares trainings on a validation split; see: everynet list"
        )
    found = {key: values_of(base, key, values) for key, values in given.items()}
    texts = {k: v if isinstance(v, str) else as_text(found[k]) for k, v in given.items()}
    grid = {key: text for key, text in texts.items() if len(found[key]) > 1}
    if "seed" in grid:
        raise UserError(
            f"seed ({grid['seed']}) must be one number, the first seed; say how many with --seeds"
        )
    if not grid and seeds == 1:
        raise UserError(
            "a sweep must have something to compare: give a setting several values, such as "
            "lr=0.01,0.1, or more than one seed with --seeds"
        )
    made = override(base, {key: values[0] for key, values in found.items() if key not in grid})
    assert isinstance(made, Training)
    return Sweep(
        base=made,
        name=f"sweep-{base.name}",
        seed=made.seed,
        grid=tuple(f"{key}={text}" for key, text in grid.items()),
        seeds=seeds,
        random=random,
        halving=halving,
    )


def as_text(value: object) -> str:
    """A value, or a list of values, as they are written on the command line."""
    if isinstance(value, list):
        return ",".join(map(as_text, value))
    text = written(value)
    return f"({text})" if isinstance(value, tuple) or "," in text else text
