"""A folder of images with one subfolder for each class.

    photos/cat/1.jpg   photos/dog/2024/1.jpg          split by hash of class and file name
    photos/train/cat/1.jpg   photos/test/cat/9.jpg    split as the folders say

Where there is a subfolder `train` the split is the user's: `val`, `valid` or `validation` and
`test` beside it are honoured, and one that is not there is taken from `train` by hash. Folders
within a class belong to it. Names that begin with a dot are passed over without a word; any other
file that is no image, or cannot be read, is skipped and counted (see `tally.py`). A link to a file
is followed, and below a class a link to a folder is not, because it might lead round in a circle.
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from jaxtyping import UInt8
from torch import Tensor

from everynet.data.images import brightness as looks
from everynet.data.images.decode import SUFFIXES, Pixels, luma, noted, quiet
from everynet.data.images.decoded_cache import Decoded, decode_all, large
from everynet.data.images.file_cache import Facts, Seen
from everynet.data.images.skipped import LOOSE, Tally
from everynet.data.images.standardize import MARGIN, counts, resize
from everynet.data.paths import unreadable
from everynet.data.samples import Counted, Pair, Samples
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
        found = sorted(folder.iterdir())
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


def _class_folders(folder: Path, tally: Tally) -> Iterator[tuple[str, Path]]:
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


def listing(
    folder: Path, tally: Tally, look: Callable[[Path], object] | None = None
) -> tuple[Listing, str]:
    """Every image by its part, and one sentence that says how the parts were made.

    Those that cannot be looked at are told to the tally and have no part.
    """
    own, found = roots(folder)
    parts: Listing = {
        part: [
            file
            for file in _class_folders(root, tally)
            if look is None or tally.takes(file[1], look)
        ]
        for part, root in found.items()
    }
    above = found.values()
    return complete(parts, own, lambda file: named(file[1], above), "class and file name")


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


def read(folder: Path, size: int = 0, strict: bool = False) -> Samples:
    """The images of a folder; they must be of one size, unless `size` brings them to one."""
    tally, seen = Tally(folder, strict), Seen(folder)
    with quiet():
        parts, split = listing(folder, tally, seen.probe)
        labels = classes(folder)
        require(folder, parts, labels, tally)
        everything = [path for files in parts.values() for _, path in files]
        shape = common_shape(everything, size, seen.probe)
        found = decode_images(
            everything,
            shape,
            seen,
            tally,
            train=len(parts["train"]),
            keep=large(len(everything), shape),
        )
        parts = kept(parts, found.rows)
    require(folder, parts, labels, tally)
    total, start = hashlib.sha256(), 0
    number = {label: row for row, label in enumerate(labels)}
    pairs: dict[str, Pair] = {}
    above = roots(folder)[1].values()
    for part, files in parts.items():
        y = torch.tensor([number[label] for label, _ in files], dtype=torch.int64)
        pairs[part] = (found.x[start : start + len(files)], y)
        for (_, path), sha in zip(files, found.hashes[start:], strict=False):
            name = f"{part}/{named(path, above)} "
            total.update(name.encode("utf-8", "surrogateescape") + sha)
        start += len(files)
    return Samples(
        name=shown(folder),
        parts=pairs,
        digest=total.hexdigest(),
        split=split,
        classes=tuple(shown(label) for label in labels),
        mapped=found.mapped,
        counted=Counted(pairs["train"][0], found.facts["counts"], found.facts.get("looks")),
        remarks=tally.lines,
    )


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


def common_shape(paths: Sequence[Path], size: int, probe: Probe) -> tuple[int, int, int]:
    """Channels, height and width that every image gets; colour if one of them is."""
    height, width, channels = probe(paths[0])
    for path in paths[1:]:
        its_height, its_width, its_channels = probe(path)
        if not size and (its_height, its_width) != (height, width):
            raise UserError(
                f"{shown(path)} ({its_width}x{its_height}) must be as large as {shown(paths[0])} "
                f"({width}x{height}); or do size={min(height, width, 224)}, which resizes them all"
            )
        channels = max(channels, its_channels)
    return (channels, size, size) if size else (channels, height, width)


def decode_images(
    paths: Sequence[Path],
    shape: tuple[int, int, int],
    seen: Seen,
    tally: Tally,
    *,
    train: int,
    keep: bool,
    margin: int = MARGIN,
) -> Decoded:
    """Every image in one tensor, brought to one shape; what is found out is of training images."""

    def one(path: Path, content: bytes) -> tuple[Tensor, Sequence[str]]:
        pixels, notes = noted(path, content)
        return fit(pixels, shape, path, margin), notes

    def finish(x: UInt8[Tensor, "images ..."], rows: Sequence[int]) -> tuple[Facts, None]:
        x = x[: bisect_left(rows, train)]
        return {"counts": counts(x).tolist(), "looks": looks.learned(x, 255.0)}, None

    return decode_all(
        paths,
        shape,
        one,
        seen,
        tally,
        how=f"images, margin {margin}, train {train}",
        keep=keep,
        finish=finish,
    )


def images_of(
    shape: tuple[int, int, int], seen: Seen, tally: Tally, *, keep: bool
) -> Callable[[list[Path], int], Decoded]:
    """What decodes images of which so many are for training, the rest being settled."""
    return lambda paths, train: decode_images(
        paths, shape, seen, tally, train=train, keep=keep, margin=0
    )


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
