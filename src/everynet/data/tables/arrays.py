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
from typing import Any

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from everynet.data.dataset import Spec
from everynet.data.in_memory import PART_NAMES
from everynet.data.samples import Pair, Samples
from everynet.data.split import PARTS, all_parts, rows_by_hash, taken_from_train
from everynet.data.tables import npz
from everynet.data.tables.npz import Array, read_npy, read_npz
from everynet.system.errors import UserError
from everynet.system.wording import shown

_KNOWN = ("x", "y", *(f"{a}_{end}" for ends in PART_NAMES.values() for end in ends for a in "xy"))


def read(path: Path, target: str = "", like: Spec | None = None) -> Samples:
    """The samples of an npz or npy file."""
    if path.suffix.lower() == ".npy":
        found, names = {"test" if like else "train": columns(path, target)}, None
    else:
        if target and not like:
            raise UserError(
                f"target ({shown(target)}) must be empty: {shown(path)} holds its own y"
            )
        arrays = held(path)
        found, names = pairs(path, arrays, like), arrays.get("classes")
    return make_samples(path, found, names, digest(path, target), like)


def make_samples(
    path: Path,
    found: Mapping[str, tuple[Array, Array]],
    names: Array | None,
    digest: str,
    like: Spec | None = None,
) -> Samples:
    """The samples in the arrays of some parts."""
    for part, (x, y) in found.items():
        if y.ndim != 1 or x.ndim == 0 or len(x) != len(y):
            raise UserError(
                f"{shown(path)}: y of {part} (shape {y.shape}) must hold one value for each row of "
                f"x (shape {x.shape})"
            )
    ys = {part: y for part, (_, y) in found.items()}
    labels, classes = _labels(path, ys, names, checked=like is None)
    parts: dict[str, Pair] = {}
    for part, (x, _) in found.items():
        parts[part] = (as_samples(path, f"x of {part}", x), labels[part])
        check_alike(path, parts, part)
    fields = complete(path, parts, digest, like)
    shape = fields["parts"]["train"][0].shape
    return Samples(
        **fields,
        classes=classes,
        features=tuple(f"x{column}" for column in range(shape[1])) if len(shape) == 2 else (),
        task="classification" if classes else "regression",
    )


def check_alike(path: Path, parts: Mapping[str, Pair], part: str) -> None:
    """Refuse a part whose rows have another shape than those of train."""
    for name, mine, first in zip("xy", parts[part], parts.get("train", parts[part]), strict=True):
        if mine.shape[1:] != first.shape[1:]:
            raise UserError(
                f"{shown(path)}: a row of {name} of {part} {tuple(mine.shape[1:])} must be as in "
                f"train {tuple(first.shape[1:])}"
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


def pairs(
    path: Path, arrays: Mapping[str, Array], like: Spec | None = None
) -> dict[str, tuple[Array, Array]]:
    """The x and y of every part that the arrays are named for; with `like` of the test alone."""
    if like:
        for end in ("_test", ""):
            if {f"x{end}", f"y{end}"} <= set(arrays):
                return {"test": (arrays[f"x{end}"], arrays[f"y{end}"])}
        raise UserError(
            f"{shown(path)} holds {shown(', '.join(arrays), 80)}, but must hold x and y, or x_test "
            "and y_test, because predictions are compared with targets"
        )
    left = {name: array for name, array in arrays.items() if name != "classes"}
    if set(left) == {"x", "y"}:
        return {"train": (left["x"], left["y"])}
    found: dict[str, tuple[Array, Array]] = {}
    for part, endings in PART_NAMES.items():
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
    return torch.from_numpy(np.require(x, np.uint8 if whole else np.float64, ("C", "W")))


def _labels(
    path: Path, found: Mapping[str, Array], names: Array | None, checked: bool
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """The y of each part, and the names of the classes where it is a class.

    Where it is `checked`, every class must have rows in train; else those that occur are named.
    """
    kinds = {y.dtype.kind for y in found.values()}
    if kinds <= {"f"}:
        if names is not None and checked:
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
    train = next(iter(found.values()))
    count = len(named) if named else 1 + (int(train.max()) if train.size else 0)
    most = min(count, 1 + len(train)) if checked else count
    for part, y in found.items():
        for wrong in y[(y < 0) | (y >= most)][:1]:
            raise UserError(
                f"{shown(path)}: label {int(wrong)} in y of {part} is out of range; labels must "
                "count from 0, and each must have rows in train"
            )
    if not checked:
        occur, codes = np.unique(train, return_inverse=True)
        used = tuple(named[k] if named else str(k) for k in occur.tolist())
        return {"test": torch.from_numpy(codes.astype(np.int64))}, used
    classes = named or tuple(str(label) for label in range(count))
    return {part: torch.from_numpy(y.astype(np.int64)) for part, y in found.items()}, classes


def _class_names(path: Path, names: Array) -> tuple[str, ...]:
    if names.ndim != 1 or names.dtype.kind != "U" or len(set(names.tolist())) != len(names):
        raise UserError(f"{shown(path)}: classes must be a list of different words")
    return tuple(shown(name, 80) for name in names.tolist())


def complete(
    path: Path, parts: Mapping[str, Pair], digest: str, like: Spec | None = None
) -> dict[str, Any]:
    """What samples in arrays are called and made of; parts that are missing are taken from train.

    Images that are whole numbers in every part stay so. With `like` the test part is every part.
    """
    rows_of: dict[str, Tensor] = {}
    if like:
        x, y = parts["test"]
        images = x.dim() == 4 and len(x) and "peak" in like
        found = all_parts((as_levels(path, x, like) if images else x, y))
        split, peak = "x_test, or else x, is tested on", like.get("peak", 1.0)
    else:
        found, rows_of, split = _divided(parts)
        whole = all(x.dtype == torch.uint8 for x, _ in found.values())
        if not whole:
            found = {part: (x.double(), y) for part, (x, y) in found.items()}
        peak = 255.0 if whole else 1.0
    return {
        **{"name": shown(path), "parts": found, "digest": "" if like else digest, "split": split},
        **{"peak": peak, "rows": rows_of, "test_only": like is not None},
    }


def as_levels(path: Path, x: Tensor, spec: Spec) -> Shaped[Tensor, "rows channels height width"]:
    """Images of an array, whole numbers from 0 to the peak if such were learned."""
    peak, low, high = spec["peak"], float(x.min()), float(x.max())
    if peak > 1 and (low < 0 or high > peak or (x.is_floating_point() and high <= 1)):
        raise UserError(
            f"{shown(path)} ({low:g} to {high:g}) must hold values from 0 to {peak:g}, as those "
            "that were learned"
        )
    return x.to(torch.uint8) if peak > 1 and torch.equal(x, x.round()) else x.double()


def _divided(parts: Mapping[str, Pair]) -> tuple[dict[str, Pair], dict[str, Tensor], str]:
    """All three parts; those that the user did not make are taken from train, by these rows."""
    wanted = [part for part in PARTS if part == "train" or part not in parts]
    if len(wanted) == 1:
        return dict(parts), {}, "train, valid and test are arrays of their own"
    x, y = parts["train"]
    taken = rows_by_hash(np.arange(len(x)), wanted)
    made = {part: (x[chosen], y[chosen]) for part, chosen in taken.items()}
    return {**parts, **made}, taken, taken_from_train(wanted)


def digest(path: Path, target: str = "") -> str:
    """SHA-256 of a file and of the column that is to be learned."""
    with path.open("rb") as stream:
        total = hashlib.file_digest(stream, "sha256")
    total.update(target.encode("utf-8", "surrogateescape"))
    return total.hexdigest()
