"""Datasets in memory: arrays of numbers, tables by columns, clips, and texts.

`given` takes arrays of numpy, tensors of torch and frames of pandas; pandas is not imported: a
frame is what has `columns`, a series what has `to_numpy`. A dataset is known by the SHA-256 of its
values, whichever type they were in, and recipe.json calls it `memory:SHA256`. Within `holding`,
`load` finds it by that name.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from everynet.system.errors import UserError
from everynet.system.wording import shown

PREFIX = "memory:"
TAKEN = "arrays of numpy or torch, a frame of pandas, or a list of texts"
_PIECE = 2**20  # values that are hashed at a time
_NOTHING = frozenset({"<NA>", "NaT", "nan", "None"})
"""What Python and pandas write for no value."""

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class Columns:
    """A table whose columns are of different types, each an array of numbers, dates or words."""

    names: tuple[str, ...]
    cells: tuple[Array, ...]
    """Numbers, datetime64[s], or words as objects of type str, empty where there is none."""
    categories: frozenset[str] = frozenset()
    """Columns that are categories whatever their values look like."""

    def __len__(self) -> int:
        return len(self.cells[0])


@dataclass(frozen=True)
class Unequal:
    """Arrays of one axis that differ in length: clips of sound."""

    rows: tuple[Array, ...]

    def __len__(self) -> int:
        return len(self.rows)


Part: TypeAlias = "Array | Columns | Unequal | list[str]"
"""An array of numbers, a table of any cells, arrays of unequal length, or texts."""


@dataclass(frozen=True, eq=False)
class Given:
    """Inputs, and the targets where they were given apart."""

    x: Part
    y: Part | None = None
    target: str = ""
    """The name of y, where it has one."""
    parts: Mapping[str, range] = field(default_factory=dict)
    """The rows of train, valid and test, where the caller divides them; a row may be in several."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the values, their order, the names of columns and the rows of each part."""
        total = hashlib.sha256()
        for part, rough in ((self.x, True), (self.y, False)):
            for piece in _pieces(part, rough=rough):
                total.update(piece)
        total.update(self.target.encode("utf-8", "surrogateescape"))
        for name, rows in self.parts.items():
            total.update(f" {name} {rows.start} {rows.stop}".encode())
        return total.hexdigest()

    @property
    def name(self) -> str:
        """What recipe.json says of it."""
        return f"{PREFIX}{self.digest}"

    @property
    def short(self) -> str:
        """The first word of an error message."""
        return f"{PREFIX}{self.digest[:12]}"

    def __str__(self) -> str:
        return summarize(self.x) + (f" with {summarize(self.y)}" if self.y is not None else "")


def given(data: object) -> Given:
    """The dataset that a caller gave: (x, y), or x alone."""
    if not isinstance(data, tuple):
        return Given(part(data))
    if len(data) != 2:
        raise UserError(f"data (a tuple of {len(data)}) must be (X, y), or X alone")
    x, y = data
    name = getattr(y, "name", None)
    made = Given(part(x), _one_column(part(y)), name if isinstance(name, str) else "")
    for side, what in ((made.x, "X"), (made.y, "y")):
        if isinstance(side, np.ndarray) and not side.ndim:
            raise UserError(f"{what} ({summarize(side)}) must hold a value for each row")
    if made.y is not None and len(made.x) != len(made.y):
        raise UserError(
            f"y ({summarize(made.y)}) must hold one value for each row of X ({summarize(made.x)})"
        )
    return made


def part(data: object, what: str = "data", advice: str = "; (X, y) must be a tuple") -> Part:
    """Inputs or targets of any library as an array of numbers, as columns or as texts."""
    if isinstance(data, Tensor):
        kept = data.detach().cpu()
        return (kept.float() if str(kept.dtype) == "torch.bfloat16" else kept).numpy()
    if hasattr(data, "columns") and hasattr(data, "__getitem__"):
        return _frame(data)
    if isinstance(data, list | tuple) and (unequal := _unequal(data)) is not None:
        return unequal
    if not isinstance(data, list | tuple) and not hasattr(data, "__array__"):
        raise UserError(f"{what} (of type {type(data).__name__}) must be {TAKEN}")
    try:
        array = np.asarray(data)
    except ValueError:
        raise UserError(
            f"{what} (rows of unequal length) must be a table or images{advice}"
        ) from None
    if array.dtype.kind in "biuf":
        return array
    if array.ndim == 1:
        return [str(cell) for cell in _cells(array, what).tolist()]
    if array.ndim != 2 or not array.shape[1]:
        raise UserError(f"{what} ({array.dtype} of shape {array.shape}) must be {TAKEN}")
    names = numbered(array.shape[1])
    return Columns(names, tuple(_cells(column, what) for column in array.T))


def _unequal(data: Sequence[object]) -> Unequal | list[str] | None:
    """Texts, or arrays of one axis that differ in length; None where they are neither."""
    if data and all(isinstance(one, str) for one in data):
        return [str(one) for one in data]
    rows = [np.asarray(one) for one in data if isinstance(one, np.ndarray | Tensor)]
    flat = len(rows) == len(data) and all(row.ndim == 1 for row in rows)
    return Unequal(tuple(rows)) if flat and len({*map(len, rows)}) > 1 else None


def numbered(width: int) -> tuple[str, ...]:
    """The names of columns that have none."""
    return tuple(f"x{column}" for column in range(width))


def as_columns(x: Part, names: Sequence[str] = ()) -> Columns:
    """A table by its columns, which have these names where they have none of their own."""
    if isinstance(x, Columns):
        return x
    if isinstance(x, list | Unequal) or x.ndim != 2 or not x.shape[1]:
        raise UserError(f"data ({summarize(x)}) must be a table, with a row for each sample")
    return Columns(tuple(names) or numbered(x.shape[1]), tuple(x.T))


def texts_of(x: Part) -> list[str]:
    """Texts, none of which is empty."""
    if not isinstance(x, list):
        raise UserError(f"inputs ({summarize(x)}) must be texts: a list of strings")
    for number, text in enumerate(x):
        if not text.strip():
            raise UserError(f"text {number} is empty; fill it in or leave it out")
    return x


def summarize(x: Part) -> str:
    """Its type and shape, for an error message."""
    if isinstance(x, list):
        return f"{len(x):,} texts"
    if isinstance(x, Columns):
        return f"{len(x):,} rows of {len(x.names):,} columns"
    if isinstance(x, Unequal):
        return f"{len(x):,} arrays of unequal length"
    return f"{x.dtype} of shape {x.shape}"


def _frame(frame: Any) -> Columns:  # noqa: ANN401 -- of any library
    """The columns of a frame, by their names."""
    names = [str(name) for name in frame.columns]
    if not names:
        raise UserError("data (a frame without columns) must have some")
    for name, count in Counter(names).items():
        if count > 1:
            raise UserError(f"data names column {shown(name)} twice; give each its own name")
    columns = {str(name): frame[name] for name in frame.columns}
    return Columns(
        tuple(names),
        tuple(_cells(np.asarray(column.to_numpy()), name) for name, column in columns.items()),
        frozenset(
            name
            for name, column in columns.items()
            if str(getattr(column, "dtype", "")).lower().startswith("categor")
        ),
    )


def _cells(column: Array, name: str) -> Array:
    """A column as numbers, dates or words."""
    if column.dtype.kind in "biuf":
        return column
    if column.dtype.kind == "M":
        return column.astype("datetime64[s]")
    if column.dtype.kind not in "OUT" or column.ndim != 1:
        raise UserError(
            f"{shown(name)} ({column.dtype}) must hold numbers, words or dates; change its type"
        )
    words = ["" if (word := str(cell)) in _NOTHING else word for cell in column.tolist()]
    return np.array(words, object)


def _one_column(y: Part) -> Part:
    """Targets as one column, where they were given as a table of one."""
    if isinstance(y, Columns) and len(y.names) == 1:
        y = y.cells[0]
        return y.tolist() if y.dtype.kind == "O" else y
    if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] == 1:
        return y[:, 0]
    return y


def _pieces(x: Part | None, *, rough: bool) -> Iterator[bytes]:
    """The bytes that are hashed: the same for equal values, whichever type they were in.

    Where it is `rough`, the numbers of a table are all taken for real ones.
    """
    if x is None:
        return
    if isinstance(x, list):
        yield f"texts {len(x)} ".encode()
        for text in x:
            content = text.encode("utf-8", "surrogateescape")
            yield f"{len(content)} ".encode() + content
    elif isinstance(x, Unequal):
        for row in x.rows:
            yield from _pieces(row, rough=rough)
    elif isinstance(x, Columns) or (rough and x.ndim == 2):
        table = as_columns(x)
        yield f"table {len(table)} ".encode()
        for name, cells in zip(table.names, table.cells, strict=True):
            yield from _pieces([name, "category" * (name in table.categories)], rough=rough)
            if cells.dtype.kind == "O":
                yield from _pieces(cells.tolist(), rough=rough)
            elif cells.dtype.kind == "M":
                yield b"dates " + cells.astype(np.int64).tobytes()
            else:
                yield b"numbers " + (cells.astype(np.float64) + 0.0).tobytes()
    else:
        real = x.dtype.kind == "f"
        yield f"{'real' if real else 'whole'} {x.shape} ".encode()
        for start in range(0, len(x), rows := max(1, _PIECE // max(1, x[:1].size))):
            piece = x[start : start + rows]
            yield (piece.astype(np.float64) + 0.0 if real else piece.astype(np.int64)).tobytes()


# --------------------------------------------------------------------------- found by its name

_HELD: ContextVar[Given | None] = ContextVar("in_memory", default=None)


@contextmanager
def holding(data: Given | None) -> Iterator[None]:
    """Within it, `load` finds this dataset by its name."""
    token = _HELD.set(data)
    try:
        yield
    finally:
        _HELD.reset(token)


def is_held() -> bool:
    """Whether a dataset in memory can be found now."""
    return _HELD.get() is not None


def held(name: str) -> Given:
    """The dataset of that name; another one, or none, is refused."""
    found = _HELD.get()
    if found is None:
        raise UserError(
            f"data ({name[:19]}...) was given in memory, which no run keeps; give it again from "
            "Python: everynet.resume(folder, data=(X, y)), or everynet.draw likewise"
        )
    if found.name != name:
        raise UserError(
            f"data ({found}) must be what the run was made with, but its SHA-256 is "
            f"{found.digest[:12]}..., not {name.removeprefix(PREFIX)[:12]}...; give the same "
            "values in the same order"
        )
    return found
