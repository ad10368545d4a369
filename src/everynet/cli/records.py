"""Run folders read as text, without torch: one `Run` each, to filter, sort and group."""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from everynet.cli import UsageError
from everynet.recipes.run_names import start_time
from everynet.system import files
from everynet.system.errors import UserError
from everynet.system.manifest import parsed, read_json
from everynet.system.wording import nearest, written

END = 1 << 14  # bytes at the end of a log in which the metrics are looked for first
MOST_NAMES, MOST_CHARACTERS = 1000, 100_000  # of settings and metrics, and of all that is written


class Run(NamedTuple):
    """What the files of a run folder say."""

    folder: Path
    recipe: str
    settings: Mapping[str, Any]
    changed: Sequence[str]
    """Settings that differ from those of the recipe; the seed is none of them."""
    step: int
    split: str
    """test once the run has ended, valid before, nothing before its first evaluation."""
    metrics: Mapping[str, float]
    state: str
    """ended, open, or diverged: what a cell of an experiment may have done."""
    stored: Mapping[str, Any]
    """What recipe.json holds."""

    @property
    def date(self) -> str:
        """When it began."""
        return start_time(self.folder)

    def key_without_seed(self) -> str:
        """The same for runs that differ in nothing but the seed."""
        return json.dumps(
            {**self.stored, "settings": {**self.settings, "seed": None}}, sort_keys=True
        )

    def columns(self) -> dict[str, Any]:
        """All that a run can be chosen or sorted by: its metrics, its settings and the rest."""
        own = {"run": self.folder.name, "recipe": self.recipe, "date": self.date}
        return {**self.metrics, **own, "step": self.step, "state": self.state, **self.settings}


def read_run(folder: Path) -> Run:
    """Read a run folder."""
    stored, log = read_json(folder / "recipe.json"), folder / "metrics.jsonl"
    try:
        step, split, row = _read_last(log)
        metrics = {name: float(value) for name, value in row.get(split, {}).items()}
        if not all(map(math.isfinite, metrics.values())):
            raise ValueError("metrics must be finite numbers in metrics.jsonl")
        settings, changed = dict(stored["settings"]), [*map(str, stored["changed"])]
        name, state = str(stored["name"]), _read_state(folder, split)
        for part in (stored, row):
            _check_size(part, folder)
        return Run(folder, name, settings, changed, step, split, metrics, state, stored)
    except UserError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{folder} is damaged: {type(error).__name__} {error}") from error


def _check_size(found: Mapping[str, Any], folder: Path) -> None:
    """Refuse what a run does not write, so that one folder cannot flood the list of all."""
    names = max((len(part) for part in found.values() if isinstance(part, dict | list)), default=0)
    if names > MOST_NAMES or len(str(found)) > MOST_CHARACTERS:
        raise UsageError(
            f"{folder} is damaged: its settings and metrics must be at most {MOST_NAMES:,}, of "
            f"{MOST_CHARACTERS:,} characters together"
        )


def _read_last(log: Path) -> tuple[int, str, dict[str, Any]]:
    """The last step of a log, and the split and the row of its last metrics."""
    content = files.read(log, last=END)
    lines = content.rpartition(b"\n")[0].splitlines()
    if len(content) == END:  # the first line may be half of one
        lines = lines[1:]
        if not any(map(_has_metrics, lines)):
            lines = files.read(log).rpartition(b"\n")[0].splitlines()
    last = parsed(lines[-1], log) if lines else {"step": 0}
    row = parsed(next(filter(_has_metrics, reversed(lines)), b"{}"), log)
    if type(last["step"]) is not int:
        raise TypeError("step must be a whole number in metrics.jsonl")
    return last["step"], next((name for name in ("test", "valid") if name in row), ""), row


def _has_metrics(line: bytes) -> bool:
    return b'"test"' in line or b'"valid"' in line


def _read_state(folder: Path, split: str) -> str:
    """Whether a run has ended; a cell of an experiment says so in a file of its own."""
    if not files.exists(folder / "ended.json"):
        return "ended" if split == "test" else "open"
    return "ended" if read_json(folder / "ended.json")["diverged"] is None else "diverged"


def read_runs(folders: Iterable[Path]) -> tuple[list[Run], list[str]]:
    """Those that can be read, and what is wrong with each of the others."""
    runs, damaged = [], []
    for folder in folders:
        try:
            runs.append(read_run(folder))
        except UserError as error:
            damaged.append(str(error))
    return runs, damaged


# ---------------------------------------------------------------------------- filtering and sorting

_CONDITION = re.compile(r"\s*([\w.-]+?)\s*(>=|<=|==|!=|=|>|<)\s*(\S.*?)\s*")
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    **{">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le},
}


class Condition(NamedTuple):
    """A condition on a setting or a metric, such as `lr>0.01`."""

    name: str
    relation: str
    value: str

    @staticmethod
    def parse(word: str) -> Condition | None:
        """The condition that a word states, if any."""
        match = _CONDITION.fullmatch(word)
        return Condition(*match.groups()) if match else None

    def check(self, runs: Sequence[Run]) -> None:
        """Refuse a name that no run has, and a value that cannot be compared."""
        _check_column(runs, self.name, f"no run has a setting or metric {self.name}")
        if self.relation in _ORDER and self.name != "date" and _number(self.value) is None:
            raise UsageError(f"{''.join(self)} must compare with a number, such as lr>0.01")

    def holds(self, run: Run) -> bool:
        """Whether it holds of a run; of one that has no such setting or metric it does not."""
        columns = run.columns()
        if self.name not in columns:
            return False
        own = written(columns[self.name])
        if self.relation in _ORDER and self.name == "date":
            return _ORDER[self.relation](own, self.value)
        mine, given = _number(own), _number(self.value)
        if self.relation in _ORDER:
            return mine is not None and _ORDER[self.relation](mine, given)
        same = own == self.value or (mine is not None and mine == given)
        return same == (self.relation != "!=")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _check_column(runs: Sequence[Run], name: str, message: str) -> None:
    known = dict.fromkeys(column for run in runs for column in run.columns())
    if runs and name not in known:
        raise UsageError(message + nearest(name, known))


def filter_by_recipe(runs: Iterable[Run], pattern: str) -> list[Run]:
    """The runs of recipes with such a name; `*` and `?` stand for any letters."""
    return [run for run in runs if fnmatchcase(run.recipe, pattern)]


def sort_runs(runs: Sequence[Run], key: str) -> list[Run]:
    """Runs by a setting, a metric or another column, `-` before it for the largest first.

    Those that do not have it come last, whichever way.
    """
    name = key.removeprefix("-")
    _check_column(runs, name, f"--sort ({key}) must be a setting or metric")

    def rank(run: Run) -> tuple[bool, float, str]:
        text = written(run.columns()[name])
        number = _number(text)
        return number is None, number or 0.0, text

    have = [run for run in runs if name in run.columns()]
    absent = [run for run in runs if name not in run.columns()]
    return sorted(have, key=rank, reverse=key.startswith("-")) + absent


# -------------------------------------------------------------------------------------- grouping


class Group(NamedTuple):
    """Runs that differ in nothing but the seed."""

    first: Run
    seeds: Sequence[Any]
    means: Mapping[str, float]
    deviations: Mapping[str, float]
    """Standard deviations over the seeds; none where there is one."""


def group_runs(runs: Iterable[Run]) -> tuple[list[Group], list[str]]:
    """Runs that have ended, by all but their seed, and what was left out; of a seed the newest."""
    groups: dict[str, dict[str, Run]] = {}
    unended, repeated = 0, 0
    for run in runs:
        if run.state != "ended":
            unended += 1
            continue
        seeds = groups.setdefault(run.key_without_seed(), {})
        seed = written(run.settings.get("seed"))
        repeated += seed in seeds
        if seed not in seeds or run.date >= seeds[seed].date:
            seeds[seed] = run
    left_out = {"that have not ended": unended, "of a seed that has a newer one": repeated}
    notes = [f"left out: {count} {what}" for what, count in left_out.items() if count]
    return [_summarise([*seeds.values()]) for seeds in groups.values()], notes


def _summarise(runs: Sequence[Run]) -> Group:
    names = [n for n in runs[0].metrics if all(n in run.metrics for run in runs)]
    means, deviations = {}, {}
    for name in names:
        values = [run.metrics[name] for run in runs]
        means[name] = mean = math.fsum(value / len(values) for value in values)
        if len(values) > 1:
            spread = math.hypot(*(value / 2 - mean / 2 for value in values))
            deviations[name] = 2 * (spread / math.sqrt(len(values) - 1))
    return Group(runs[0], [run.settings.get("seed") for run in runs], means, deviations)
