"""Arrays of numpy as data: an npz with x and y, or an npy that is a table.

An npz holds `x` and `y`, or `x_train` and `y_train` and, where the user made the split,
`x_valid`, `y_valid`, `x_test`, `y_test`; `classes` may name the classes. A 2-D x is a table; a
3-D or 4-D one is images, grey or with 1 or 3 channels before or after height and width. Labels
that are whole numbers, truth values or words are classes; real numbers are a real target. Of an
npy, which must be a table, `target` is the number of the column to be learned, from 0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from everynet.data.samples import Pair, Samples
from everynet.data.split import PARTS, by_hash, rows
from everynet.data.tables import npz
from everynet.data.tables.npz import Array, read_npy, read_npz
from everynet.system.errors import UserError
from everynet.system.wording import shown

_ENDINGS = {"train": ("train",), "valid": ("valid", "val", "validation"), "test": ("test",)}
_KNOWN = ("x", "y", *(f"{a}_{end}" for ends in _ENDINGS.values() for end in ends for a in "xy"))
_SHARES = {"test": "a fifth is test", "valid": "a tenth of the rest is valid"}


def read(path: Path, target: str = "") -> Samples:
    """The samples of an npz or npy file."""
    if path.suffix.lower() == ".npy":
        found, names = {"train": columns(path, target)}, None
    else:
        if target:
            raise UserError(
                f"target ({shown(target)}) must be empty: {shown(path)} holds its own y"
            )
        arrays = held(path)
        found, names = pairs(path, arrays), arrays.get("classes")
    return made(path, found, names, digest(path, target))


def made(
    path: Path, found: Mapping[str, tuple[Array, Array]], names: Array | None, digest: str
) -> Samples:
    """The samples in the arrays of some parts."""
    for part, (x, y) in found.items():
        if y.ndim != 1 or x.ndim == 0 or len(x) != len(y):
            raise UserError(
                f"{shown(path)}: y of {part} (shape {y.shape}) must hold one value for each row of "
                f"x (shape {x.shape})"
            )
    labels, classes = _labels(path, {part: y for part, (_, y) in found.items()}, names)
    parts: dict[str, Pair] = {}
    for part, (x, _) in found.items():
        parts[part] = (as_samples(path, f"x of {part}", x), labels[part])
        its, first = tuple(parts[part][0].shape[1:]), tuple(parts["train"][0].shape[1:])
        if its != first:
            raise UserError(
                f"{shown(path)}: a row of x of {part} {its} must be as in train {first}"
            )
    samples, rows_of, split = complete(parts)
    shape = samples["train"][0].shape
    whole = all(pair[0].dtype == torch.uint8 for pair in samples.values())
    if not whole:
        samples = {part: (images.double(), y) for part, (images, y) in samples.items()}
    return Samples(
        name=shown(path),
        parts=samples,
        digest=digest,
        split=split,
        classes=classes,
        features=tuple(f"x{column}" for column in range(shape[1])) if len(shape) == 2 else (),
        peak=255.0 if whole else 1.0,
        task="classification" if classes else "regression",
        rows=rows_of,
    )


def rank(path: Path, name: str = "x") -> int:
    """How many dimensions the x (or y) of an npz has; 0 where that cannot be told."""
    try:
        found = npz.names(path)
        return max([npz.dimensions(path, n) for n in (name, f"{name}_train") if n in found][:1])
    except (UserError, ValueError):
        return 0


def first(path: Path) -> Array:
    """The array of an npy, or the x of an npz."""
    if path.suffix.lower() == ".npy":
        return read_npy(path)
    if found := read_npz(path, ["x"]):
        return found["x"]
    raise UserError(f"{shown(path)} holds {shown(', '.join(npz.names(path)), 80)}, but must hold x")


def held(path: Path) -> dict[str, Array]:
    """The arrays of an npz that is a set of data: none is read if one of them has no meaning."""
    if set(found := npz.names(path)) - {*_KNOWN, "classes"}:
        raise _meaningless(path, found)
    return read_npz(path)


def _meaningless(path: Path, names: Iterable[str]) -> UserError:
    return UserError(
        f"{shown(path)} holds {shown(', '.join(names), 80)}, but must hold x and y, or "
        "x_train and y_train and perhaps x_valid, y_valid, x_test, y_test"
    )


def columns(path: Path, target: str) -> tuple[Array, Array]:
    """The columns of an npy but one, and that one."""
    table = read_npy(path)
    if table.ndim != 2 or table.shape[1] < 2 or table.dtype.kind == "U":
        raise UserError(
            f"{shown(path)} (shape {table.shape}) must be a table with two columns or more; put "
            "images into an npz with x and y"
        )
    width = table.shape[1]
    if not target.isdecimal() or int(target) >= width:
        raise UserError(
            f"target ({shown(target, 40)}) must be the number of a column of {shown(path)}, from 0 "
            f"to {width - 1}"
        )
    return np.delete(table, int(target), axis=1), table[:, int(target)]


def pairs(path: Path, arrays: Mapping[str, Array]) -> dict[str, tuple[Array, Array]]:
    """The x and y of every part that the arrays are named for."""
    left = {name: array for name, array in arrays.items() if name != "classes"}
    if set(left) == {"x", "y"}:
        return {"train": (left["x"], left["y"])}
    found: dict[str, tuple[Array, Array]] = {}
    for part, endings in _ENDINGS.items():
        for ending in endings:
            x, y = left.pop(f"x_{ending}", None), left.pop(f"y_{ending}", None)
            if x is None and y is None:
                continue
            if x is None or y is None:
                raise UserError(f"{shown(path)} must hold both x_{ending} and y_{ending}")
            if part in found:
                raise UserError(f"{shown(path)} must hold {part} under one name only")
            found[part] = (x, y)
    if left or "train" not in found:
        raise _meaningless(path, arrays)
    return found


def as_samples(path: Path, name: str, x: Array) -> Shaped[Tensor, "rows ..."]:
    """A table as float64, images as batch x channels x height x width, uint8 if they fit."""
    place = f"{shown(path)}: {name} (shape {x.shape})"
    if x.dtype.kind == "U":
        raise UserError(f"{place} must hold numbers, not words")
    if x.ndim not in (2, 3, 4) or 0 in x.shape[1:]:
        raise UserError(f"{place} must be a table (2-D) or images (3-D or 4-D), none of them empty")
    if x.ndim == 2:
        return torch.from_numpy(x.astype(np.float64))
    if x.ndim == 3:
        x = x[:, None]
    else:
        first, last = x.shape[1] in (1, 3), x.shape[3] in (1, 3)
        if first == last:
            raise UserError(
                f"{place} must have 1 or 3 channels in its second or its last place, and not in "
                "both, because images are grey or in colour; save so many"
            )
        x = x if first else x.transpose(0, 3, 1, 2)
    whole = x.dtype.kind in "biu" and x.size and x.min() >= 0 and x.max() <= 255
    return torch.from_numpy(np.ascontiguousarray(x, np.uint8 if whole else np.float64))


def _labels(
    path: Path, found: Mapping[str, Array], names: Array | None
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """The y of each part, and the names of the classes where it is a class."""
    kinds = {y.dtype.kind for y in found.values()}
    if kinds <= {"f"}:
        if names is not None:
            raise UserError(f"{shown(path)}: y must be whole numbers, because classes are named")
        return {part: torch.from_numpy(y.astype(np.float64)) for part, y in found.items()}, ()
    if kinds == {"U"}:
        words = sorted({str(word) for y in found.values() for word in y.tolist()})
        index = {word: label for label, word in enumerate(words)}
        labels = {part: [index[word] for word in y.tolist()] for part, y in found.items()}
        return {part: torch.tensor(y, dtype=torch.int64) for part, y in labels.items()}, tuple(
            shown(word, 80) for word in words
        )
    if not kinds <= {"b", "i", "u"}:
        raise UserError(f"{shown(path)}: y of every part must be of one kind")
    named = None if names is None else _class_names(path, names)
    train = found["train"]
    count = len(named) if named else 1 + (int(train.max()) if train.size else 0)
    for part, y in found.items():
        for wrong in y[(y < 0) | (y >= min(count, 1 + len(train)))][:1]:
            raise UserError(
                f"{shown(path)}: label {int(wrong)} in y of {part} is out of range; labels must "
                "count from 0, and each must have rows in train"
            )
    classes = named or tuple(str(label) for label in range(count))
    return {part: torch.from_numpy(y.astype(np.int64)) for part, y in found.items()}, classes


def _class_names(path: Path, names: Array) -> tuple[str, ...]:
    if names.ndim != 1 or names.dtype.kind != "U" or len(set(names.tolist())) != len(names):
        raise UserError(f"{shown(path)}: classes must be a list of different words")
    return tuple(shown(name, 80) for name in names.tolist())


def complete(parts: Mapping[str, Pair]) -> tuple[dict[str, Pair], dict[str, Tensor], str]:
    """All three parts; those that the user did not make are taken from train, by these rows."""
    wanted = [part for part in PARTS if part == "train" or part not in parts]
    if len(wanted) == 1:
        return dict(parts), {}, "train, valid and test are arrays of their own"
    x, y = parts["train"]
    placed = np.array(by_hash(rows(len(x)), wanted))
    taken = {part: torch.from_numpy(np.flatnonzero(placed == part)) for part in wanted}
    made = {part: (x[chosen], y[chosen]) for part, chosen in taken.items()}
    shares = " and ".join(_SHARES[part] for part in ("test", "valid") if part in wanted)
    return {**parts, **made}, taken, f"of the rows of train, by hash of their number, {shares}"


def digest(path: Path, target: str = "") -> str:
    """SHA-256 of a file and of the column that is to be learned."""
    with path.open("rb") as stream:
        total = hashlib.file_digest(stream, "sha256")
    total.update(target.encode("utf-8", "surrogateescape"))
    return total.hexdigest()
