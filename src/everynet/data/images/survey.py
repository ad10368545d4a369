"""Images looked over one by one: which can be read, how large they are, which are in two parts."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

from everynet.data.images import decode as picture
from everynet.data.images.skipped import Tally, reason
from everynet.data.paths import read_bytes
from everynet.data.report import Report
from everynet.data.split import PARTS
from everynet.system.errors import UserError
from everynet.system.wording import shown


class Over:
    """What was found so far; it goes on past what cannot be read."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.counts: dict[str, Counter[str]] = {part: Counter() for part in PARTS}
        self._sizes: Counter[str] = Counter()
        self._seen: dict[bytes, tuple[str, str]] = {}
        self._duplicates: list[tuple[str, str]] = []

    def image(self, part: str, path: Path, label: str = "") -> None:
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
