"""Files of a folder that are passed over, and those that were read in a way worth a word.

People's folders hold notes, thumbnails and files that were cut short. By default such a file is
skipped and counted, and one sentence says how many of how many, why, and names the first; with
`strict` the first of them is refused by name.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from everynet.data.images import decode as picture
from everynet.data.images.decode import CLEAR, FRAMES, SUFFIXES
from everynet.data.paths import read_bytes
from everynet.data.report import Report
from everynet.data.split import PARTS
from everynet.system.errors import UserError
from everynet.system.wording import shown

BROKEN = ("cannot be read", "cannot be read")
STRAY = ("is not an image", "are not images")
LOOSE = ("lies in no class", "lie in no class")
NOTES = {
    FRAMES: ("file holds several images", "files hold several images", "the first is taken"),
    CLEAR: (
        "file has transparent pixels",
        "files have transparent pixels",
        "they are put on white",
    ),
}
"""What is said of one file and of several, and what was done about it."""


@dataclass
class Tally:
    """What happened to the files of one folder."""

    root: Path
    strict: bool = False
    files: int = 0
    """All that were found, those that are skipped among them."""
    skipped: dict[Path, tuple[tuple[str, str], str]] = field(default_factory=dict)
    """Of what sort each file is that was skipped, and what is wrong with it."""
    noted: dict[str, dict[Path, None]] = field(default_factory=dict)
    """Files that were read, by note."""
    more: list[str] = field(default_factory=list)
    """What else is to be said, a sentence each."""

    def takes(self, path: Path, look: Callable[[Path], object]) -> bool:
        """Whether a file that was found can be looked at; if not, it is skipped."""
        self.files += 1
        return self.can(path, look)

    def can(self, path: Path, look: Callable[[Path], object]) -> bool:
        """The same for one that was counted before."""
        try:
            look(path)
        except UserError as error:
            self.skip(path, reason(path, error))
            return False
        return True

    def skip(self, path: Path, why: str, sort: tuple[str, str] | None = None) -> None:
        """Pass a file over, or refuse it where the user is strict."""
        if self.strict:
            raise UserError(f"{shown(path)} {why}")
        image = path.suffix.lower() in SUFFIXES and not os.path.isdir(path)
        self.skipped[path] = (sort or (BROKEN if image else STRAY), why)

    def note(self, path: Path, notes: Iterable[str]) -> None:
        """Remember what was done to a file."""
        for each in notes:
            self.noted.setdefault(each, {})[path] = None

    @property
    def broken(self) -> list[str]:
        """A line for each file that is an image by its name and cannot be read."""
        return [f"{shown(p)} {why}" for p, (sort, why) in self.skipped.items() if sort is BROKEN]

    @property
    def lines(self) -> tuple[str, ...]:
        """What a person should know, a sentence each; none where all is as it should be."""
        found = []
        if self.skipped:
            sorts = {sort for sort, _ in self.skipped.values()}
            parts = [self._sort(sort) for sort in (BROKEN, STRAY, LOOSE) if sort in sorts]
            were = "was" if len(self.skipped) == 1 else "were"
            count = f"{len(self.skipped):,} of {self.files:,} files {were} skipped"
            found.append(f"{count}: {', '.join(parts)}")
        for note, paths in self.noted.items():
            *words, done = NOTES[note]
            names = [self._name(path) for path in sorted(paths)]
            found.append(f"{len(names):,} {words[len(names) > 1]} ({_first(names)}): {done}")
        return (*found, *self.more)

    def _sort(self, sort: tuple[str, str]) -> str:
        names = [
            f"{self._name(path)}: {why.removeprefix('cannot be read: ')}"
            if sort is BROKEN
            else self._name(path)
            for path, (its, why) in sorted(self.skipped.items())
            if its is sort
        ]
        return f"{len(names):,} {sort[len(names) > 1]} ({_first(names)})"

    def _name(self, path: Path) -> str:
        """A file as it is called within the folder."""
        return shown(path.relative_to(self.root) if path.is_relative_to(self.root) else path, 100)


def _first(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]}, ..."


def reason(path: Path, error: UserError) -> str:
    """What is wrong with a file, without its name."""
    return str(error).removeprefix(shown(path)).strip()


class Survey:
    """Images looked at one by one: how large they are, and which are in two parts."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.counts: dict[str, Counter[str]] = {part: Counter() for part in PARTS}
        self._sizes: Counter[str] = Counter()
        self._seen: dict[bytes, tuple[str, str]] = {}
        self._duplicates: list[tuple[str, str]] = []

    def add(self, part: str, path: Path, label: str = "") -> None:
        """Look at one image, of a class where there is one."""
        try:
            pixels, notes = picture.noted(path, read_bytes(path, picture.MOST_BYTES))
        except UserError as error:
            self.tally.skip(path, reason(path, error))
            return
        self.tally.note(path, notes)
        self.counts[part][label] += 1
        height, width, channels = pixels.shape
        self._sizes[f"{width}x{height} {'grey' if channels == 1 else 'colour'}"] += 1
        key = hashlib.sha256(f"{pixels.shape}".encode() + pixels.tobytes()).digest()
        first, where = self._seen.setdefault(key, (part, shown(path)))
        if first != part:
            self._duplicates.append((where, shown(path)))

    def tell(self, report: Report) -> None:
        """Put what was found into a report."""
        report.counts = {part: its.total() for part, its in self.counts.items()}
        report.sizes = dict(self._sizes.most_common())
        report.duplicates = self._duplicates
        report.unreadable, report.remarks = self.tally.broken, list(self.tally.lines)
