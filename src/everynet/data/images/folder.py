"""A folder of images with one subfolder for each class.

    photos/cat/1.jpg   photos/dog/2024/1.jpg          split by hash of class and file name
    photos/train/cat/1.jpg   photos/test/cat/9.jpg    split as the folders say

Where there is a subfolder `train` the split is the user's: `val`, `valid` or `validation` and
`test` beside it are honoured, and one that is not there is taken from `train` by hash. Folders
within a class belong to it. Names that begin with a dot are passed over without a word; any other
file that is no image, or cannot be read, is skipped and counted (see `skipped.py`). A link to a
file is followed, and below a class a link to a folder is not, because it might lead round in a
circle.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from jaxtyping import UInt8
from torch import Tensor

from everynet.data.dataset import Spec
from everynet.data.images import brightness
from everynet.data.images.decode import SUFFIXES, Pixels, luma, noted, probe
from everynet.data.images.decoded_cache import Decoded, decode_all
from everynet.data.images.file_cache import Facts, FileCache
from everynet.data.images.skipped import LOOSE, Tally
from everynet.data.images.standardize import MARGIN, counts, resize
from everynet.data.paths import unreadable
from everynet.data.split import PARTS, by_hash
from everynet.system.errors import UserError
from everynet.system.wording import shown

_VALID = ("val", "valid", "validation")
_PARTS = {"train": "train", "training": "train", "test": "test", "testing": "test"}
_PARTS |= dict.fromkeys(_VALID, "valid")
"""What folders are called that can be nothing but parts, where all are, in whatever case."""
_LITTER = frozenset({"thumbs.db", "desktop.ini", "__macosx"})
MOST_CLASSES = 10_000

Listing = dict[str, list[tuple[str, Path]]]
"""For each part, the class and path of every image."""
Probe = Callable[[Path], tuple[int, int, int]]
"""Tells height, width and channels of an image file."""
F = TypeVar("F")
"""What a part lists: a file with its class, or two files that belong together."""


def entries(folder: Path) -> list[Path]:
    """What is in a folder, in the order of the names, less what the system put there."""
    try:
        found = sorted(folder.iterdir(), key=lambda path: path.name)  # paths take ten times as long
    except OSError as error:
        raise unreadable(folder, error) from None
    return [p for p in found if not p.name.startswith(".") and p.name.lower() not in _LITTER]


def walk(folder: Path) -> Iterator[Path]:
    """Every file in a folder and in the folders below it, in the order of the names.

    A link to a folder and a folder that is called like an image are given as if they were files:
    who reads them finds that they are none.
    """
    waiting = entries(folder)[::-1]
    while waiting:
        path = waiting.pop()
        try:
            below = path.is_dir() and not path.is_symlink() and path.suffix.lower() not in SUFFIXES
        except OSError as error:
            raise unreadable(path, error) from None
        if below:
            waiting += entries(path)[::-1]
        else:
            yield path


def class_files(folder: Path, tally: Tally) -> Iterator[tuple[str, Path]]:
    """The class and path of every file, class by class."""
    inside = entries(folder)
    loose = [path for path in inside if not path.is_dir()]
    if not inside:
        raise UserError(f"{shown(folder)} must hold one subfolder for each class, but is empty")
    for path in loose:
        why = f"must lie in a subfolder of {shown(folder)} that names its class"
        if len(loose) == len(inside):
            raise UserError(f"{shown(path)} {why}")
        tally.files += 1
        tally.skip(path, why, LOOSE if path.suffix.lower() in SUFFIXES else None)
    if len(inside) - len(loose) > MOST_CLASSES:
        raise UserError(f"{shown(folder)} must have at most {MOST_CLASSES:,} classes")
    for subfolder in inside:
        if subfolder not in tally.skipped:
            yield from ((subfolder.name, path) for path in walk(subfolder))


def has_in_it(folder: Path, *names: str) -> bool:
    """Whether a folder, or its subfolder `train`, has all of these in it; never an error."""
    try:
        return any(all((r / name).exists() for name in names) for r in (folder, folder / "train"))
    except (OSError, ValueError):  # a name that is too long, a folder that is closed
        return False


def classes(folder: Path) -> tuple[str, ...]:
    """The names of the class folders, of every part, in order."""
    _, found = roots(folder)
    inside = {path.name for root in found.values() for path in entries(root) if path.is_dir()}
    return tuple(sorted(inside))


def roots(folder: Path) -> tuple[bool, dict[str, Path]]:
    """Whether the user made the split, and the folder that each part is in."""
    inside = {path.name: path for path in entries(folder) if path.is_dir()}
    if all(name.lower() in _PARTS for name in inside):  # Train beside Test is no class
        known = [_PARTS[name.lower()] for name in inside]
        if "train" in known and len(set(known)) == len(known):
            found = dict(zip(known, inside.values(), strict=True))
            return True, {part: found[part] for part in PARTS if part in found}
        if known and "train" not in known:
            raise UserError(f"{shown(folder)} must have a subfolder train beside its other parts")
    if "train" not in inside:
        return False, {"train": folder}
    other = sorted(set(inside) - {"train", "test", *_VALID})
    if other:
        raise UserError(
            f"{shown(inside[other[0]])} must lie in a class of train, valid or test, because "
            f"{shown(folder)} has a subfolder train"
        )
    valid = [name for name in _VALID if name in inside]
    raise UserError(f"{shown(folder)} must have one of {' and '.join(valid)}, not both")


def listing(folder: Path, tally: Tally) -> tuple[Listing, str]:
    """Every file by its part, with its class, and one sentence that says how parts were made."""
    own, found = roots(folder)
    parts = {part: list(class_files(root, tally)) for part, root in found.items()}
    above = found.values()
    return complete(parts, own, lambda file: named(file[1], above), "class and file name")


def survey_sides(folder: Path, most: int = 200) -> list[int]:
    """The shorter sides of some training images, spread over the folder; bad files have none."""
    files = listing(folder, Tally(folder))[0]["train"]
    sides = []
    for _, path in files[:: max(1, len(files) // most)]:
        with suppress(UserError):
            sides.append(min(probe(path)[:2]))
    return sides


def named(path: Path, roots: Iterable[Path]) -> str:
    """A file as it is called in that of the folders in which it is; as text, for there are many."""
    text = str(path)
    found = next((root for root in map(str, roots) if text.startswith(root + os.sep)), "")
    return text[len(found) :].lstrip(os.sep).replace(os.sep, "/")  # "." is in no path


def kept(parts: Mapping[str, Sequence[F]], rows: Sequence[int]) -> dict[str, list[F]]:
    """What is left of all parts where only these rows, counted through all of them, are."""
    wanted, start, left = set(rows), 0, {}
    for part, files in parts.items():
        left[part] = [file for row, file in enumerate(files, start) if row in wanted]
        start += len(files)
    return left


def complete(
    parts: dict[str, list[F]], own: bool, key: Callable[[F], str], what: str
) -> tuple[dict[str, list[F]], str]:
    """All three parts: those that the user did not make are taken from train, by hash of a key.

    The sentence says how they were made; `what` is the key in words.
    """
    wanted = [part for part in PARTS if part == "train" or part not in parts]
    if len(wanted) == 1:
        return parts, "train, valid and test are folders of their own"
    files = parts["train"]
    placed = by_hash([key(file) for file in files], wanted)
    taken = {
        part: [file for file, its in zip(files, placed, strict=True) if its == part]
        for part in wanted
    }
    shares = {"test": "a fifth", "valid": "a tenth of the rest"}
    said = " and ".join(f"{shares[part]} is {part}" for part in ("test", "valid") if part in wanted)
    start = "folders of their own; by" if own else "by"
    return {**parts, **taken}, f"{start} hash of {what}, {said}"


def require(folder: Path, parts: Listing, labels: Sequence[str], tally: Tally) -> None:
    """Refuse a listing from which nothing could be learned."""
    trained = {label for label, _ in parts["train"]}
    for label in labels:
        if label not in trained:
            raise _none(folder, f"class {shown(label)} has no training image", tally)
    if len(labels) < 2:
        below = folder / labels[0]
        more = below.is_dir() and sum(path.is_dir() for path in entries(below)) > 1
        raise UserError(
            f"{shown(folder)}: one class ({shown(labels[0])}) is not enough to learn from; "
            + (f"give {shown(below)}, or " if more else "")
            + "add a subfolder with images of another"
        )
    require_parts(folder, parts, tally)


def require_parts(folder: Path, parts: Mapping[str, Sequence[F]], tally: Tally) -> None:
    """Refuse parts of which one is empty."""
    if not any(parts.values()):
        raise _none(folder, "it holds no image", tally)
    for part, files in parts.items():
        if not files:
            raise _none(folder, f"the {part} part holds no image", tally)


def _none(folder: Path, what: str, tally: Tally) -> UserError:
    """Nothing is left, and where files were skipped, why."""
    readable = " that can be read" if tally.skipped else ""
    why = f" ({tally.lines[0]})" if tally.skipped else ""
    return UserError(f"{shown(folder)}: {what}{readable}; add some{why}")


@dataclass(frozen=True)
class Decoding:
    """How the images of a folder are decoded."""

    seen: FileCache
    tally: Tally
    size: int = 0
    """The side that all of them get; 0 leaves them alone."""
    like: Spec | None = None
    """The description of a run that they are treated like."""
    keep: bool = False
    """Whether they are kept in the cache."""

    def images(
        self, shape: tuple[int, int, int], margin: int, paths: Sequence[Path], train: int
    ) -> Decoded:
        """Every image, brought to one shape; what is found out is of the first `train` of them."""

        def one(path: Path, content: bytes) -> tuple[Tensor, Sequence[str]]:
            pixels, notes = noted(path, content)
            return fit(pixels, shape, path, margin), notes

        def finish(x: UInt8[Tensor, "images ..."], rows: Sequence[int]) -> tuple[Facts, None]:
            x = x[: bisect_left(rows, train)]
            return {"counts": counts(x).tolist(), "looks": brightness.learned(x, 255.0)}, None

        return decode_all(
            paths,
            shape,
            one,
            self.seen,
            self.tally,
            how=f"images, margin {margin}, train {train}",
            keep=self.keep,
            finish=finish,
        )


def common_shape(paths: Sequence[Path], how: Decoding, column: int = 0) -> tuple[int, int, int]:
    """Channels, height and width that every image gets; colour if one of them is.

    The second column is of targets, whose shape a run remembers apart.
    """
    if how.like:
        channels, height, width = how.like["target_shape" if column else "shape"]
        first, advice = "the images that were learned", "save it so"
    else:
        height, width, channels = how.seen.probe(paths[0])
        first = shown(paths[0])
        advice = f"or do size={min(height, width, 224)}, which resizes them all"
    for path in paths:
        its_height, its_width, its_channels = how.seen.probe(path)
        if not how.size and (its_height, its_width) != (height, width):
            raise UserError(
                f"{shown(path)} ({its_width}x{its_height}) must be as large as {first} "
                f"({width}x{height}); {advice}"
            )
        channels = channels if how.like else max(channels, its_channels)
    return (channels, how.size, how.size) if how.size else (channels, height, width)


def fit(
    pixels: Pixels, shape: tuple[int, int, int], path: Path, margin: int = MARGIN
) -> UInt8[Tensor, "{shape[0]} {shape[1]} {shape[2]}"]:
    """One image with the channels and the size of a set."""
    if pixels.shape[2] > shape[0]:
        pixels = luma(pixels)
    x = torch.from_numpy(pixels).permute(2, 0, 1).expand(shape[0], -1, -1)
    if x.shape[1:] != shape[1:]:
        if shape[1] != shape[2]:
            raise UserError(
                f"{shown(path)} ({x.shape[2]}x{x.shape[1]}) must be {shape[2]}x{shape[1]}"
            )
        x = resize(x[None], shape[1], margin)[0]
    return x
