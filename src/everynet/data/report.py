"""What looking the user's own data over found, before anything is learned from it.

A kind reads every file, goes on past those that cannot be read, and reports what is there: counts,
classes, sizes, samples that are in two parts at once, and what `load` would refuse.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Shaped, UInt64

from everynet.data.samples import Samples
from everynet.data.split import PARTS

_MOST = 10
"""So many lines of a kind are written out."""
_FEW = 3
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
        for name, parts in list(self.classes.items())[: 2 * _MOST]:
            counts = ", ".join(f"{parts.get(part, 0):,} {part}" for part in PARTS)
            lines.append(f"class      {name}: {counts}")
        if len(self.classes) > 2 * _MOST:
            lines.append(f"class      and {len(self.classes) - 2 * _MOST:,} more")
        lines += _some("note      ", self.remarks)
        lines += _some("duplicate ", [f"{a} = {b}" for a, b in self.duplicates])
        lines += _some("unreadable", self.unreadable)
        if self.refused:
            lines.append(f"refused    {self.refused}")
        lines += [f"otherwise  {line}" for line in self.others]
        return "\n".join([*lines, "good" if self.good else "not good"])


def _some(word: str, found: list[str]) -> list[str]:
    more = [f"{word} and {len(found) - _MOST:,} more"] if len(found) > _MOST else []
    return [f"{word} {line}" for line in found[:_MOST]] + more


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
    names, sums, parts = [], [], []
    for number, part in enumerate(PARTS):
        x = np.ascontiguousarray(samples.parts[part][0].numpy())
        names.append(samples.rows[part].numpy() if part in samples.rows else np.arange(len(x)))
        parts.append(np.full(len(x), number, np.int8))
        sums.append(_sums(x))
    row, part_of = np.concatenate(names), np.concatenate(parts)
    _, first, group = np.unique(np.concatenate(sums), return_index=True, return_inverse=True)
    twin = first[group]

    def name(place: int) -> str:
        return f"row {row[place]} of {PARTS[part_of[place]]}"

    found = np.flatnonzero(part_of != part_of[twin])
    return [(name(int(twin[n])), name(n)) for n in found.tolist()]


def _sums(x: Shaped[np.ndarray, "rows ..."]) -> UInt64[np.ndarray, " rows"]:
    """A number for each row that two rows share if they are equal, and hardly ever otherwise."""
    content, size = x.reshape(-1).view(np.uint8).data, x[:1].nbytes
    digests = (
        hashlib.blake2b(content[at : at + size], digest_size=8).digest()
        for at in range(0, len(content), size)
    )
    return np.frombuffer(b"".join(digests), np.uint64)
