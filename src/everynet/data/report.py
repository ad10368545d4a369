"""What looking the user's own data over found, before anything is learned from it.

A kind reads every file, goes on past those that cannot be read, and reports what is there: counts,
classes, sizes, samples that are in two parts at once, and what `load` would refuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Shaped, UInt64

from everynet.data.samples import Samples
from everynet.data.split import PARTS

_MOST = 10
"""So many lines of a kind are written out."""
_COLUMNS = 60
_FEW = 3
_PIECE = 2**20  # bytes of rows that are compared at a time
RARE = 20
"""A class in fewer than one of so many training samples is rare."""


@dataclass
class Report:
    """What was found; `str(report)` is what the command line prints."""

    path: str
    kind: str = ""
    task: str = ""
    split: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    """Samples in each part."""
    classes: dict[str, dict[str, int]] = field(default_factory=dict)
    """Samples of each class in each part."""
    sizes: dict[str, int] = field(default_factory=dict)
    """How many samples have each size."""
    facts: dict[str, str] = field(default_factory=dict)
    """What else is worth saying, by name."""
    duplicates: list[tuple[str, str]] = field(default_factory=list)
    """Pairs of equal samples that lie in two parts."""
    often_equal: bool = False
    """Whether equal samples are no fault: rows of a few short columns often are."""
    unreadable: list[str] = field(default_factory=list)
    """One line for each file that cannot be read."""
    remarks: list[str] = field(default_factory=list)
    """What is worth knowing and no fault."""
    columns: list[str] = field(default_factory=list)
    """What each column of a table is and what becomes of it."""
    faults: list[str] = field(default_factory=list)
    """What is wrong beside that for which the data is refused."""
    others: list[str] = field(default_factory=list)
    """As what else the files could be read, with the command that looks at them so."""
    refused: str = ""
    """Why `load` would not take the data; empty where it would."""

    @property
    def good(self) -> bool:
        """Whether nothing at all was found wrong."""
        copied = self.duplicates and not self.often_equal
        return not (copied or self.unreadable or self.refused)

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.kind}" + (f", {self.task}" if self.task else "")]
        if self.counts:
            counts = ", ".join(f"{self.counts.get(part, 0):,} {part}" for part in PARTS)
            lines += [f"samples    {counts}", f"split      {self.split}"]
        lines += [f"size       {size}: {count:,}" for size, count in self.sizes.items()][:_MOST]
        lines += [f"{name:10} {value}" for name, value in self.facts.items()]
        lines += _some("column    ", self.columns, _COLUMNS)
        for name, parts in list(self.classes.items())[: 2 * _MOST]:
            counts = ", ".join(f"{parts.get(part, 0):,} {part}" for part in PARTS)
            lines.append(f"class      {name}: {counts}")
        if len(self.classes) > 2 * _MOST:
            lines.append(f"class      and {len(self.classes) - 2 * _MOST:,} more")
        lines += _some("note      ", self.remarks)
        lines += _some("duplicate ", [f"{a} = {b}" for a, b in self.duplicates])
        lines += _some("unreadable", self.unreadable)
        if self.refused:
            lines += _some("refused   ", [self.refused, *self.faults], _COLUMNS)
        lines += [f"otherwise  {line}" for line in self.others]
        return "\n".join([*lines, "good" if self.good else "not good"])


def _some(word: str, found: list[str], most: int = _MOST) -> list[str]:
    more = [f"{word} and {len(found) - most:,} more"] if len(found) > most else []
    return [f"{word} {line}" for line in found[:most]] + more


def rare(counts: Mapping[str, int]) -> str:
    """Which classes are so rare that naming the others always looks good; empty for none."""
    total = sum(counts.values())
    least = min(
        total / RARE, total / max(1, len(counts)) / 2
    )  # of many classes none need be common
    found = [f"{name} ({count:,})" for name, count in counts.items() if count < least]
    if not found:
        return ""
    more = f" and {len(found) - _FEW:,} more" if len(found) > _FEW else ""
    return (
        f"rare among {total:,} training samples: {', '.join(found[:_FEW])}{more}; accuracy says "
        "little of them, look at balanced_accuracy; class_weight=balanced lets all classes count "
        "alike where a recipe has it"
    )


def count_rows(samples: Samples, report: Report) -> None:
    """Put what a table or a set of images holds into a report."""
    report.task, report.split = samples.task, samples.split
    report.counts = {part: len(samples.parts[part][0]) for part in PARTS}
    shape = tuple(samples.parts["train"][0].shape[1:])
    size = "x".join(map(str, shape)) if len(shape) > 1 else f"{shape[0]} features"
    report.sizes = {size: sum(report.counts.values())}
    if samples.classes:
        counts = {
            part: torch.bincount(samples.parts[part][1], minlength=len(samples.classes)).tolist()
            for part in PARTS
        }
        report.classes = {
            name: {part: counts[part][label] for part in PARTS}
            for label, name in enumerate(samples.classes)
        }
        few = rare({name: parts["train"] for name, parts in report.classes.items()})
        report.remarks += [few] if few else []
    report.duplicates = _equal_rows(samples)


def _equal_rows(samples: Samples) -> list[tuple[str, str]]:
    """Rows with the same features in two parts: those of later parts, each with the first of it."""
    sums = [row_sums(samples.parts[part][0].numpy()) for part in PARTS]
    ends = np.cumsum([len(each) for each in sums])
    total = np.concatenate(sums)
    order = np.argsort(total, kind="stable")  # of equal rows the first part comes first
    again = np.flatnonzero(total[order[1:]] == total[order[:-1]]) + 1
    starts = again[np.diff(again, prepend=-1) != 1]  # each second of a group of equal rows
    first = starts[np.searchsorted(starts, again, "right") - 1] - 1
    twin, found = order[first], order[again]
    part, part_of_twin = (np.searchsorted(ends, rows, "right") for rows in (found, twin))
    several = part != part_of_twin
    of_table = [samples.rows[part] for part in PARTS] if samples.rows and several.any() else []

    def name(place: int) -> str:
        number = int(np.searchsorted(ends, place, "right"))
        row = place - (int(ends[number - 1]) if number else 0)
        return f"row {int(of_table[number][row]) if of_table else row} of {PARTS[number]}"

    pairs = sorted(zip(found[several].tolist(), twin[several].tolist(), strict=True))
    return [(name(first), name(second)) for second, first in pairs]


def row_sums(x: Shaped[np.ndarray, "rows ..."]) -> UInt64[np.ndarray, " rows"]:
    """A number for each row that two rows share if they are equal, and hardly ever otherwise."""
    content = np.ascontiguousarray(x).reshape(len(x), -1).view(np.uint8)
    sums = np.zeros(len(x), np.uint64)
    for start in range(0, len(x), rows := max(1, _PIECE // max(1, content.shape[1]))):
        piece, total = content[start : start + rows], sums[start : start + rows]
        for at in range(0, content.shape[1], 8):
            word = np.zeros((len(piece), 8), np.uint8)
            word[:, : content.shape[1] - at] = piece[:, at : at + 8]
            total ^= word.view(np.uint64)[:, 0]
            total *= np.uint64(0x9E3779B97F4A7C15)
            total ^= total >> np.uint64(29)
    return sums
