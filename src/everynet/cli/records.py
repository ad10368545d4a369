"""What the files of run folders say, read as text: chosen, sorted and grouped without torch."""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from everynet.cli import UsageError, nearest
from everynet.recipes.run_names import begun
from everynet.system import files
from everynet.system.errors import UserError
from everynet.system.manifest import parsed, read_json
from everynet.system.wording import written

END = 1 << 14  # bytes at the end of a log in which the metrics are looked for first


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
    about: Mapping[str, Any]
    """What recipe.json holds."""

    @property
    def date(self) -> str:
        """When it began."""
        return begun(self.folder)

    def alike(self) -> str:
        """The same for runs that differ in nothing but the seed."""
        same = {**self.about, "settings": {**self.settings, "seed": None}}
        return json.dumps(same, sort_keys=True)

    def facts(self) -> dict[str, Any]:
        """All that a run can be chosen or sorted by: its metrics, its settings and the rest."""
        own = {"run": self.folder.name, "recipe": self.recipe, "date": self.date}
        return {**self.metrics, **own, "step": self.step, "state": self.state, **self.settings}


def read(folder: Path) -> Run:
    """Read a run folder."""
    about, log = read_json(folder / "recipe.json"), folder / "metrics.jsonl"
    try:
        step, split, row = _last(log)
        metrics = {name: float(value) for name, value in row.get(split, {}).items()}
        settings, changed = dict(about["settings"]), [*map(str, about["changed"])]
        name, state = str(about["name"]), _state(folder, split)
        return Run(folder, name, settings, changed, step, split, metrics, state, about)
    except UserError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{folder} is damaged: {type(error).__name__} {error}") from error


def _last(log: Path) -> tuple[int, str, dict[str, Any]]:
    """The last step of a log, and the split and the row of its last metrics."""
    content = files.read(log, last=END)
    lines = content.rpartition(b"\n")[0].splitlines()
    if len(content) == END:  # the first line may be half of one
        lines = lines[1:]
        if not any(b'"test"' in line or b'"valid"' in line for line in lines):
            lines = files.read(log).rpartition(b"\n")[0].splitlines()
    last = parsed(lines[-1], log) if lines else {"step": 0}
    shown = next((x for x in reversed(lines) if b'"test"' in x or b'"valid"' in x), b"{}")
    row = parsed(shown, log)
    if type(last["step"]) is not int:
        raise TypeError("step must be a whole number in metrics.jsonl")
    return last["step"], next((name for name in ("test", "valid") if name in row), ""), row


def _state(folder: Path, split: str) -> str:
    """Whether a run has ended; a cell of an experiment says so in a file of its own."""
    said = folder / "ended.json"
    if not files.exists(said):
        return "ended" if split == "test" else "open"
    return "ended" if read_json(said)["diverged"] is None else "diverged"


def read_all(folders: Iterable[Path]) -> tuple[list[Run], list[str]]:
    """Those that can be read, and what is wrong with each of the others."""
    runs, damaged = [], []
    for folder in folders:
        try:
            runs.append(read(folder))
        except (UsageError, UserError) as error:
            damaged.append(str(error))
    return runs, damaged


# ------------------------------------------------------------------------------------- choosing

_COMPARISON = re.compile(r"\s*([\w.-]+?)\s*(>=|<=|==|!=|=|>|<)\s*(\S.*?)\s*")
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    **{">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le},
}


class Comparison(NamedTuple):
    """A condition on a setting or a metric, such as `lr>0.01`."""

    name: str
    relation: str
    value: str

    @staticmethod
    def of(word: str) -> Comparison | None:
        """The condition that a word states, if any."""
        match = _COMPARISON.fullmatch(word)
        return Comparison(*match.groups()) if match else None

    def check(self, runs: Sequence[Run]) -> None:
        """Refuse a name that no run has, and a value that cannot be compared."""
        known = dict.fromkeys(name for run in runs for name in run.facts())
        if runs and self.name not in known:
            raise UsageError(
                f"no run has a setting or metric {self.name}{nearest(self.name, known)}"
            )
        if self.relation in _ORDER and self.name != "date" and _number(self.value) is None:
            raise UsageError(f"{''.join(self)} must compare with a number, such as lr>0.01")

    def holds(self, run: Run) -> bool:
        """Whether it holds of a run; of one that has no such setting or metric it does not."""
        facts = run.facts()
        if self.name not in facts:
            return False
        own = written(facts[self.name])
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


def matching(runs: Iterable[Run], pattern: str) -> list[Run]:
    """The runs whose recipe is called so; `*` and `?` stand for any letters."""
    return [run for run in runs if fnmatchcase(run.recipe, pattern)]


def ordered(runs: Sequence[Run], key: str) -> list[Run]:
    """Runs by a setting, a metric or another fact, `-` before it for the largest first.

    Those that do not have it come last, whichever way.
    """
    name = key.removeprefix("-")
    known = dict.fromkeys(fact for run in runs for fact in run.facts())
    if runs and name not in known:
        raise UsageError(f"--sort ({key}) must be a setting or metric{nearest(name, known)}")

    def place(run: Run) -> tuple[bool, float, str]:
        text = written(run.facts()[name])
        number = _number(text)
        return number is None, number or 0.0, text

    have = [run for run in runs if name in run.facts()]
    absent = [run for run in runs if name not in run.facts()]
    return sorted(have, key=place, reverse=key.startswith("-")) + absent


# -------------------------------------------------------------------------------------- grouping


class Group(NamedTuple):
    """Runs that differ in nothing but the seed."""

    first: Run
    seeds: Sequence[Any]
    means: Mapping[str, float]
    spreads: Mapping[str, float]
    """Standard deviations over the seeds; none where there is one."""


def grouped(runs: Iterable[Run]) -> tuple[list[Group], list[str]]:
    """Runs that have ended, by all but their seed, and what was left out; of a seed the newest."""
    kinds: dict[str, dict[str, Run]] = {}
    unended, repeated = 0, 0
    for run in runs:
        if run.state != "ended":
            unended += 1
            continue
        seeds = kinds.setdefault(run.alike(), {})
        seed = written(run.settings.get("seed"))
        repeated += seed in seeds
        if seed not in seeds or run.date >= seeds[seed].date:
            seeds[seed] = run
    groups = []
    for members in kinds.values():
        them = [*members.values()]
        names = [n for n in them[0].metrics if all(n in run.metrics for run in them)]
        values = {name: [run.metrics[name] for run in them] for name in names}
        means = {name: math.fsum(of) / len(of) for name, of in values.items()}
        spreads = {n: _spread(values[n], means[n]) for n in names if len(them) > 1}
        seeds_of = [run.settings.get("seed") for run in them]
        groups.append(Group(them[0], seeds_of, means, spreads))
    said = {"that have not ended": unended, "of a seed that has a newer one": repeated}
    return groups, [f"left out: {count} {what}" for what, count in said.items() if count]


def _spread(values: Sequence[float], mean: float) -> float:
    squares = math.fsum((value - mean) ** 2 for value in values)
    return math.sqrt(squares / (len(values) - 1))
