"""A folder of images with one subfolder for each class.

    photos/cat/1.jpg   photos/dog/1.jpg               split by hash of class and file name
    photos/train/cat/1.jpg   photos/test/cat/9.jpg    split as the folders say

Where there is a subfolder `train` the split is the user's: `val`, `valid` or `validation` and
`test` beside it are honoured, and one that is not there is taken from `train` by hash. Names
that begin with a dot are passed over; any other file in a class must be an image.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from jaxtyping import UInt8
from torch import Tensor

from everynet.data.decoded import Decoded, Seen, decode_all, large
from everynet.data.images import MARGIN, counts, resize
from everynet.data.paths import unreadable
from everynet.data.picture import Pixels, decode, luma, quiet
from everynet.data.samples import Counted, Pair, Samples
from everynet.data.split import PARTS, by_hash
from everynet.types import UserError
from everynet.words import shown

_VALID = ("val", "valid", "validation")
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


def _class_folders(folder: Path) -> Iterator[tuple[str, Path]]:
    """The class and path of every file, folder by folder."""
    inside = entries(folder)
    loose = [path for path in inside if not path.is_dir()]
    if loose:
        raise UserError(
            f"{shown(loose[0])} must lie in a subfolder of {shown(folder)} that names its class"
        )
    if not inside:
        raise UserError(f"{shown(folder)} must hold one subfolder for each class, but is empty")
    if len(inside) > MOST_CLASSES:
        raise UserError(f"{shown(folder)} must have at most {MOST_CLASSES:,} classes")
    for subfolder in inside:
        for path in entries(subfolder):
            if path.is_dir():
                raise UserError(f"{shown(path)} must be a file of its class, but is a folder")
            yield subfolder.name, path


def classes(folder: Path) -> tuple[str, ...]:
    """The names of the class folders, of every part, in order."""
    _, found = roots(folder)
    inside = {path.name for root in found.values() for path in entries(root) if path.is_dir()}
    return tuple(sorted(inside))


def roots(folder: Path) -> tuple[bool, dict[str, Path]]:
    """Whether the user made the split, and the folder that each part is in."""
    inside = {path.name: path for path in entries(folder) if path.is_dir()}
    if "train" not in inside:
        if inside and set(inside) <= {*_VALID, "test"}:
            raise UserError(f"{shown(folder)} must have a subfolder train beside its other parts")
        return False, {"train": folder}
    other = sorted(set(inside) - {"train", "test", *_VALID})
    if other:
        raise UserError(
            f"{shown(inside[other[0]])} must lie in a class of train, valid or test, because "
            f"{shown(folder)} has a subfolder train"
        )
    valid = [name for name in _VALID if name in inside]
    if len(valid) > 1:
        raise UserError(f"{shown(folder)} must have one of {' and '.join(valid)}, not both")
    found = {"train": inside["train"]}
    found |= {"valid": inside[valid[0]]} if valid else {}
    return True, found | ({"test": inside["test"]} if "test" in inside else {})


def listing(folder: Path) -> tuple[Listing, str]:
    """Every image by its part, and one sentence that says how the parts were made."""
    own, found = roots(folder)
    parts: Listing = {part: list(_class_folders(root)) for part, root in found.items()}
    return complete(parts, own, lambda file: f"{file[0]}/{file[1].name}", "class and file name")


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


def read(folder: Path, size: int = 0) -> Samples:
    """The images of a folder; they must be of one size, unless `size` brings them to one."""
    parts, split = listing(folder)
    labels = classes(folder)
    require(folder, parts, labels)
    everything = [path for files in parts.values() for _, path in files]
    seen = Seen(folder)
    with quiet():
        shape = common_shape(everything, size, seen.probe)
        found = decode_images(
            everything,
            shape,
            seen,
            train=len(parts["train"]),
            keep=large(len(everything), shape),
        )
    total, start = hashlib.sha256(), 0
    number = {label: row for row, label in enumerate(labels)}
    pairs: dict[str, Pair] = {}
    for part, files in parts.items():
        y = torch.tensor([number[label] for label, _ in files], dtype=torch.int64)
        pairs[part] = (found.x[start : start + len(files)], y)
        for (label, path), sha in zip(files, found.hashes[start:], strict=False):
            total.update(f"{part}/{label}/{path.name} ".encode("utf-8", "surrogateescape") + sha)
        start += len(files)
    return Samples(
        name=shown(folder),
        parts=pairs,
        digest=total.hexdigest(),
        split=split,
        classes=tuple(shown(label) for label in labels),
        mapped=found.mapped,
        counted=Counted(pairs["train"][0], found.facts["counts"]),
    )


def require(folder: Path, parts: Listing, labels: Sequence[str]) -> None:
    """Refuse a listing from which nothing could be learned."""
    trained = {label for label, _ in parts["train"]}
    for label in labels:
        if label not in trained:
            raise UserError(
                f"{shown(folder)}: class {shown(label)} has no training image; add some"
            )
    if len(labels) < 2:
        raise UserError(
            f"{shown(folder)}: one class ({shown(labels[0])}) is not enough to learn from; add a "
            "subfolder with images of another"
        )
    for part, files in parts.items():
        if not files:
            raise UserError(f"{shown(folder)}: the {part} part holds no image; add some")


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
    *,
    train: int,
    keep: bool,
    margin: int = MARGIN,
) -> Decoded:
    """Every image in one tensor, brought to one shape, and the levels of the first `train`."""
    return decode_all(
        paths,
        shape,
        lambda path, content: fit(decode(path, content), shape, path, margin),
        seen,
        how=f"images, margin {margin}, train {train}",
        keep=keep,
        finish=lambda x: ({"counts": counts(x[:train]).tolist()}, None),
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
