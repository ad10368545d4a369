"""Looking the user's own data over before anything is learned from it.

`check(path)` reads every file, goes on past those that cannot be read, and reports what is there:
counts, classes, sizes, samples that are in two parts at once, and what `load` would refuse.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import torch

from everynet.data import folder, picture
from everynet.data.loading import find
from everynet.data.paths import kind, read_bytes
from everynet.data.samples import Samples
from everynet.data.split import PARTS
from everynet.types import UserError
from everynet.words import shown

_MOST = 10
"""So many lines of a kind are written out."""


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
    duplicates: list[tuple[str, str]] = field(default_factory=list)
    """Pairs of equal samples that lie in two parts."""
    unreadable: list[str] = field(default_factory=list)
    """One line for each file that cannot be read."""
    refused: str = ""
    """Why `load` would not take the data; empty where it would."""

    @property
    def good(self) -> bool:
        """Whether nothing at all was found wrong."""
        return not (self.duplicates or self.unreadable or self.refused)

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.kind}" + (f", {self.task}" if self.task else "")]
        if self.counts:
            counts = ", ".join(f"{self.counts.get(part, 0):,} {part}" for part in PARTS)
            lines += [f"samples    {counts}", f"split      {self.split}"]
        lines += [f"size       {size}: {count:,}" for size, count in self.sizes.items()][:_MOST]
        for name, parts in list(self.classes.items())[: 2 * _MOST]:
            counts = ", ".join(f"{parts.get(part, 0):,} {part}" for part in PARTS)
            lines.append(f"class      {name}: {counts}")
        if len(self.classes) > 2 * _MOST:
            lines.append(f"class      and {len(self.classes) - 2 * _MOST:,} more")
        lines += _some("duplicate ", [f"{a} = {b}" for a, b in self.duplicates])
        lines += _some("unreadable", self.unreadable)
        if self.refused:
            lines.append(f"refused    {self.refused}")
        return "\n".join([*lines, "good" if self.good else "not good"])


def _some(word: str, found: list[str]) -> list[str]:
    more = [f"{word} and {len(found) - _MOST:,} more"] if len(found) > _MOST else []
    return [f"{word} {line}" for line in found[:_MOST]] + more


def check(path: str | Path, target: str = "") -> Report:
    """What is in a folder of images, a csv, an npy or an npz, and what is wrong with it."""
    path = Path(path)
    found = kind(path)
    if not found:
        raise UserError(f"{shown(path)} must be a folder or a file that is there")
    what = "images" if found == "folder" else path.suffix.lstrip(".").lower() or found
    report = Report(shown(path), kind=what)
    try:
        if found == "folder":
            _check_folder(path, report)
        else:
            _check_samples(find(path, target=target), report)
    except UserError as error:
        report.refused = str(error)
    return report


def _check_folder(path: Path, report: Report) -> None:
    parts, report.split = folder.listing(path)
    report.task = "classification"
    report.counts = {part: len(parts[part]) for part in PARTS}
    report.classes = {
        shown(name): dict(Counter(part for part in PARTS for its, _ in parts[part] if its == name))
        for name in folder.classes(path)
    }
    sizes: Counter[str] = Counter()
    seen: dict[bytes, tuple[str, str]] = {}
    for part in PARTS:
        for _, file in parts[part]:
            try:
                with picture.quiet():
                    picture.probe(file)
                    pixels = picture.decode(file, read_bytes(file, picture.MOST_BYTES))
            except UserError as error:
                report.unreadable.append(str(error))
                continue
            height, width, channels = pixels.shape
            sizes[f"{width}x{height} {'grey' if channels == 1 else 'colour'}"] += 1
            key = hashlib.sha256(f"{pixels.shape}".encode() + pixels.tobytes()).digest()
            first, where = seen.setdefault(key, (part, shown(file)))
            if first != part:
                report.duplicates.append((where, shown(file)))
    report.sizes = dict(sizes.most_common())
    report.refused = report.unreadable[0] if report.unreadable else ""
    folder.require(path, parts, folder.classes(path))


def _check_samples(raw: Samples, report: Report) -> None:
    report.task, report.split = raw.task, raw.split
    report.counts = {part: len(raw.parts[part][0]) for part in PARTS}
    shape = tuple(raw.parts["train"][0].shape[1:])
    size = "x".join(map(str, shape)) if len(shape) > 1 else f"{shape[0]} features"
    report.sizes = {size: sum(report.counts.values())}
    if raw.classes:
        counts = {
            part: torch.bincount(raw.parts[part][1], minlength=len(raw.classes)).tolist()
            for part in PARTS
        }
        report.classes = {
            name: {part: counts[part][label] for part in PARTS}
            for label, name in enumerate(raw.classes)
        }
    report.duplicates = _equal_rows(raw)


def _equal_rows(raw: Samples) -> list[tuple[str, str]]:
    """Rows with the same features in two parts."""
    seen: dict[bytes, tuple[str, str]] = {}
    found = []
    for part in PARTS:
        x = raw.parts[part][0].numpy()
        numbers = raw.rows[part].tolist() if part in raw.rows else range(len(x))
        for number, sample in zip(numbers, x, strict=True):
            name = f"row {number} of {part}"
            first, where = seen.setdefault(hashlib.sha256(sample.tobytes()).digest(), (part, name))
            if first != part:
                found.append((where, name))
    return found
