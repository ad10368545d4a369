"""Folders of images that each belong to another image: its mask, or what it is to become.

    scans/images/1.png   scans/masks/1.png                   split by hash of the image's file name
    scans/train/images/1.png   scans/train/masks/1.png       split as the folders say

Two files belong together that have the same name up to its ending. Which folders there may be
beside `train` is said in `folder.py`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from torch import Tensor

from everynet.data import picture
from everynet.data.folder import Probe, complete, entries, roots
from everynet.data.paths import read_bytes
from everynet.data.report import Report
from everynet.data.split import PARTS
from everynet.types import UserError
from everynet.words import shown

Two: TypeAlias = tuple[Path, Path]
"""An image and the one that belongs to it."""
Listing: TypeAlias = dict[str, list[Two]]


def there(folder: Path, *names: str) -> bool:
    """Whether a folder, or its subfolder `train`, has all of these in it; never an error."""
    try:
        return any(all((r / name).exists() for name in names) for r in (folder, folder / "train"))
    except (OSError, ValueError):  # a name that is too long, a folder that is closed
        return False


def listing(folder: Path, first: str, second: str) -> tuple[Listing, str]:
    """Every two files by their part, and one sentence that says how the parts were made."""
    own, found = roots(folder)
    parts = {part: _matched(root, first, second) for part, root in found.items()}
    return complete(parts, own, lambda two: two[0].name, "the image's file name")


def asked_of(paths: Sequence[str | Path], first: str, second: str) -> list[Path]:
    """What `predict` was given, with a folder of both taken for its images alone."""
    given = [Path(path) for path in paths]
    return [p / first if (p / first).is_dir() and (p / second).is_dir() else p for p in given]


def _matched(root: Path, first: str, second: str) -> list[Two]:
    images, others = _by_stem(root, first), _by_stem(root, second)
    for stem, path in images.items():
        if stem not in others:
            raise UserError(f"{shown(path)} must have a file of the same name in {second}")
    for stem, path in others.items():
        if stem not in images:
            raise UserError(f"{shown(path)} must have a file of the same name in {first}")
    return [(images[stem], others[stem]) for stem in images]


def _by_stem(root: Path, name: str) -> dict[str, Path]:
    if not (root / name).is_dir():
        raise UserError(f"{shown(root)} must have a folder {name} in it")
    found: dict[str, Path] = {}
    for path in entries(root / name):
        if path.is_dir():
            raise UserError(f"{shown(path)} must be an image, but is a folder")
        if path.stem in found:
            raise UserError(f"{shown(path)} must be the only one of its name, up to the ending")
        found[path.stem] = path
    return found


def same_size(two: Two, probe: Probe) -> None:
    """Refuse an image whose other is larger or smaller."""
    (height, width, _), (rows, columns, _) = (probe(path) for path in two)
    if (rows, columns) != (height, width):
        raise UserError(
            f"{shown(two[1])} ({columns}x{rows}) must be as large as {shown(two[0])} "
            f"({width}x{height}), because they are taken pixel by pixel; save it in that size"
        )


def digest(parts: Listing, hashes: Sequence[Sequence[bytes]]) -> str:
    """SHA-256 of the names and contents of all files; `hashes` are those of first and second."""
    total = hashlib.sha256()
    named = [(part, two) for part, twos in parts.items() for two in twos]
    for (part, two), shas in zip(named, zip(*hashes, strict=True), strict=True):
        name = f"{part}/{two[0].name} {two[1].name} "
        total.update(name.encode("utf-8", "surrogateescape") + b"".join(shas))
    return total.hexdigest()


def split_up(parts: Listing, *tensors: Tensor) -> dict[str, tuple[Tensor, ...]]:
    """Tensors whose rows are the files of all parts, one after another, part by part."""
    found, start = {}, 0
    for part, twos in parts.items():
        found[part] = tuple(tensor[start : start + len(twos)] for tensor in tensors)
        start += len(twos)
    return found


def look_over(parts: Listing, report: Report, read: Callable[[Path, bytes], object]) -> None:
    """Read every file and go on past what is wrong; `read` decodes what belongs to an image."""
    report.counts = {part: len(parts[part]) for part in PARTS}
    sizes: Counter[str] = Counter()
    seen: dict[bytes, tuple[str, str]] = {}
    for part in PARTS:
        for two in parts[part]:
            try:
                same_size(two, picture.probe)
                pixels = picture.read(two[0])
                with picture.quiet():
                    read(two[1], read_bytes(two[1], picture.MOST_BYTES))
            except UserError as error:
                report.unreadable.append(str(error))
                continue
            height, width, channels = pixels.shape
            sizes[f"{width}x{height} {'grey' if channels == 1 else 'colour'}"] += 1
            key = hashlib.sha256(f"{pixels.shape}".encode() + pixels.tobytes()).digest()
            first, where = seen.setdefault(key, (part, shown(two[0])))
            if first != part:
                report.duplicates.append((where, shown(two[0])))
    report.sizes = dict(sizes.most_common())
