"""Folders of images that each belong to another image: its mask, or what it is to become.

    scans/images/1.png   scans/masks/1.png                   split by hash of the image's file name
    scans/train/images/1.png   scans/train/masks/1.png       split as the folders say

Two files belong together that have the same name up to its ending, and the same folders before it.
Which folders there may be beside `train` is said in `folder.py`. A file that is no image or cannot
be read is skipped and counted, and the one that belongs to it is left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from torch import Tensor

from everynet.data.images import decode as picture
from everynet.data.images.decode import MOST_BYTES
from everynet.data.images.decoded_cache import Decoded
from everynet.data.images.folder import Probe, complete, kept, named, roots, walk
from everynet.data.images.skipped import Tally
from everynet.data.images.survey import Over
from everynet.data.paths import read_bytes
from everynet.data.report import Report
from everynet.data.split import PARTS
from everynet.system.errors import UserError
from everynet.system.wording import shown

Two: TypeAlias = tuple[Path, Path]
"""An image and the one that belongs to it."""
Listing: TypeAlias = dict[str, list[Two]]


def there(folder: Path, *names: str) -> bool:
    """Whether a folder, or its subfolder `train`, has all of these in it; never an error."""
    try:
        return any(all((r / name).exists() for name in names) for r in (folder, folder / "train"))
    except (OSError, ValueError):  # a name that is too long, a folder that is closed
        return False


def listing(
    folder: Path, first: str, second: str, tally: Tally, look: Callable[[Path], object]
) -> tuple[Listing, str]:
    """Every two files by their part, and one sentence that says how the parts were made."""
    own, found = roots(folder)
    with picture.quiet():
        parts = {part: _matched(root, first, second, tally, look) for part, root in found.items()}
    above = [root / first for root in found.values()]
    return complete(parts, own, lambda two: named(two[0], above), "the image's file name")


def asked_of(paths: Sequence[str | Path], first: str, second: str) -> list[Path]:
    """What `predict` was given, with a folder of both taken for its images alone."""
    given = [Path(path) for path in paths]
    return [p / first if (p / first).is_dir() and (p / second).is_dir() else p for p in given]


def _matched(
    root: Path, first: str, second: str, tally: Tally, look: Callable[[Path], object]
) -> list[Two]:
    images, others = (_by_stem(root, name, tally, look) for name in (first, second))
    for mine, its, where in ((images, others, second), (others, images, first)):
        for stem, path in mine.items():
            if path and stem not in its:
                raise UserError(f"{shown(path)} must have a file of the same name in {where}")
    return [
        (image, other)
        for stem, image in images.items()
        if image and (other := others.get(stem)) is not None
    ]


def _by_stem(
    root: Path, name: str, tally: Tally, look: Callable[[Path], object]
) -> dict[Path, Path | None]:
    """Files by their names without the ending; None for one that is skipped."""
    if not (root / name).is_dir():
        raise UserError(f"{shown(root)} must have a folder {name} in it")
    found: dict[Path, Path | None] = {}
    for path in walk(root / name):
        stem = path.relative_to(root / name).with_suffix("")
        if not tally.takes(path, look):
            found.setdefault(stem, None)
            continue
        if found.get(stem):
            raise UserError(f"{shown(path)} must be the only one of its name, up to the ending")
        found[stem] = path
    return found


def decode(
    parts: Listing, *columns: Callable[[list[Path], int], Decoded]
) -> tuple[Listing, list[Decoded]]:
    """The images and what belongs to them, less those of which either cannot be decoded.

    Each column decodes files, so many of which are for training. Where one of the second cannot be
    decoded, both begin again without it: what was found out of the first was of it, too.
    """
    while True:
        made: list[Decoded] = []
        for column, read in enumerate(columns):
            paths = [two[column] for twos in parts.values() for two in twos]
            made.append(read(paths, len(parts["train"])))
            parts = kept(parts, made[-1].rows)
            if column and len(made[-1].rows) < len(paths):
                break
        else:
            return parts, made


def same_size(two: Two, probe: Probe) -> None:
    """Refuse an image whose other is larger or smaller."""
    (height, width, _), (rows, columns, _) = (probe(path) for path in two)
    if (rows, columns) != (height, width):
        raise UserError(
            f"{shown(two[1])} ({columns}x{rows}) must be as large as {shown(two[0])} "
            f"({width}x{height}), because they are taken pixel by pixel; save it in that size"
        )


def digest(
    folder: Path, parts: Listing, names: tuple[str, str], hashes: Sequence[Sequence[bytes]]
) -> str:
    """SHA-256 of the names and contents of all files; `hashes` are those of first and second."""
    above = [[root / name for root in roots(folder)[1].values()] for name in names]
    total, everything = hashlib.sha256(), [(part, two) for part in parts for two in parts[part]]
    for (part, two), shas in zip(everything, zip(*hashes, strict=True), strict=True):
        said = " ".join(named(*each) for each in zip(two, above, strict=True))
        total.update(f"{part}/{said} ".encode("utf-8", "surrogateescape") + b"".join(shas))
    return total.hexdigest()


def split_up(parts: Listing, *tensors: Tensor) -> dict[str, tuple[Tensor, ...]]:
    """Tensors whose rows are the files of all parts, one after another, part by part."""
    found, start = {}, 0
    for part, twos in parts.items():
        found[part] = tuple(tensor[start : start + len(twos)] for tensor in tensors)
        start += len(twos)
    return found


def look_over(
    parts: Listing, report: Report, tally: Tally, read: Callable[[Path, bytes], object]
) -> None:
    """Read every file and go on past what is wrong; `read` decodes what belongs to an image."""
    over = Over(tally)
    for part in PARTS:
        for two in parts[part]:
            try:
                same_size(two, picture.probe)
            except UserError as error:
                report.refused = report.refused or str(error)
            with picture.quiet():
                if tally.can(two[1], lambda path: read(path, read_bytes(path, MOST_BYTES))):
                    over.image(part, two[0])
    over.tell(report)
