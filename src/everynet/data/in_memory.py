"""Datasets in memory: arrays of numbers, tables by columns, clips, and texts.

`given` takes arrays of numpy, tensors of torch and frames of pandas, polars, duckdb, pyarrow and
others, of which none is imported: a frame is what gives its columns to Arrow, or has `columns`. A
dataset is known by the SHA-256 of its values, whichever type they were in, and recipe.json calls it
`memory:SHA256`. Within `holding`, `load` finds it by that name.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from everynet.data.loader import Stream, read_dataset, read_loader
from everynet.data.split import PARTS, OwnSplit
from everynet.system.errors import UserError
from everynet.system.wording import nearest, shown

PREFIX = "memory:"
PART_NAMES = {"train": ("train",), "valid": ("valid", "val", "validation"), "test": ("test",)}
"""What people call the parts of a dataset."""
TAKEN = "arrays of numpy or torch, a frame (pandas, polars, duckdb, pyarrow), or a list of texts"
UNDIVIDED = (
    "a DataLoader must be given with parts of its own, because its samples cannot be divided: "
    'data={"train": loader, "valid": ..., "test": ...}; or give its Dataset, which is divided'
)
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
    """The rows of each part that the caller made; none where our rule makes all of them."""
    apart: bool = False
    """Whether a row must be in one of these parts only."""
    stream: Stream | None = None
    """The DataLoader that training batches come from, if any; train holds what was read ahead."""
    notes: tuple[str, ...] = ()
    """What a person should know of how they were read."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the values, their order, the names of columns and the caller's parts."""
        total = hashlib.sha256()
        held = self
        if self.stream:  # whose samples change from epoch to epoch
            total.update(self.stream.digest.encode())
            held = self.cut(slice(self.parts["train"].stop, None))
        for part, rough in ((held.x, True), (held.y, False)):
            for piece in _pieces(part, rough=rough):
                total.update(piece)
        total.update(self.target.encode("utf-8", "surrogateescape"))
        for name, rows in self.parts.items():
            total.update(f" {name} {rows.start} {rows.stop}".encode())
        return total.hexdigest()

    @property
    def slices(self) -> dict[str, slice]:
        """Where the rows of each part are that the caller made; all are train where none was."""
        parts = self.parts or {"train": range(len(self.x))}
        return {part: slice(rows.start, rows.stop) for part, rows in parts.items()}

    @property
    def own(self) -> OwnSplit | None:
        """The parts that the caller made, if any."""
        if not self.parts:
            return None
        return OwnSplit({n: torch.arange(r.start, r.stop) for n, r in self.parts.items()})

    @property
    def test(self) -> Given:
        """What a network is tested on: the part that the caller made for it, or else everything."""
        if "test" not in self.parts:
            return replace(self, parts={})
        return self.cut(self.slices["test"])

    def cut(self, rows: slice) -> Given:
        """Some of the rows, as data of their own."""
        y = None if self.y is None else cut(self.y, rows)
        return Given(cut(self.x, rows), y, self.target)

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
    """The dataset that a caller gave: (x, y), x alone, or parts of these by their names."""
    if isinstance(data, Given):
        return data
    if isinstance(data, Mapping):
        return _join_parts(data)
    if isinstance(data, Stream | DataLoader | Dataset):
        return _read(data)
    if isinstance(data, tuple) and len(data) != 2:
        raise UserError(f"data (a tuple of {len(data)}) must be (X, y), or X alone")
    if isinstance(data, tuple):
        x, y = data
        name = getattr(y, "name", None)
        made = Given(part(x), _one_column(part(y)), name if isinstance(name, str) else "")
    else:
        made = Given(part(data))
    for side, what in ((made.x, "X"), (made.y, "y")):
        if isinstance(side, np.ndarray) and not side.ndim:
            raise UserError(f"{what} ({summarize(side)}) must hold a value for each row")
    if made.y is not None and len(made.x) != len(made.y):
        raise UserError(
            f"y ({summarize(made.y)}) must hold one value for each row of X ({summarize(made.x)})"
        )
    return made


def _join_parts(data: Mapping[Any, object]) -> Given:
    """The dataset of which a caller made the parts: train, and perhaps valid and test."""
    known = {name: part for part, names in PART_NAMES.items() for name in names}
    found: dict[str, Given] = {}
    for name, value in data.items():
        if name not in known:
            raise UserError(
                f"data holds {shown(name, 60)}, but parts are train, valid and test; a table by "
                "columns must be a frame, and what is in no parts (X, y)"
                + nearest(str(name), known)
            )
        part = known[name]
        if part in found:
            raise UserError(f"data must hold {part} under one name only")
        if isinstance(value, Mapping):
            raise UserError(f"{name} of data must be (X, y), a frame or texts, not parts again")
        try:
            feeds = part == "train" and isinstance(value, DataLoader)
            found[part] = given(Stream(value)) if feeds else given(value)  # type: ignore[arg-type]  # seen
        except UserError as error:
            raise UserError(f"{name}: {error}") from None
        if not len(found[part].x):
            raise UserError(f"{name} of data ({found[part]}) must have rows")
    if "train" not in found:
        raise UserError(f"data ({', '.join(map(str, data)) or 'no parts'}) must have a part train")
    found = {part: found[part] for part in PARTS if part in found}
    if found["train"].stream and len(found) < len(PARTS):
        raise UserError(UNDIVIDED)
    if len(found) == 1:
        return found["train"]
    train, ends = found["train"], [*accumulate(len(one.x) for one in found.values())]
    for name, one in found.items():
        if (one.y is None) != (train.y is None):
            raise UserError(f"{name} of data ({one}) must have a y if train ({train}) has")
    x = join({name: one.x for name, one in found.items()}, "X")
    ys = {name: one.y for name, one in found.items() if one.y is not None}
    rows = [range(*pair) for pair in pairwise([0, *ends])]
    parts = dict(zip(found, rows, strict=True))
    notes = dict.fromkeys(f"{name}: {note}" for name, one in found.items() for note in one.notes)
    y = join(ys, "y") if ys else None
    return Given(x, y, train.target, parts, True, train.stream, tuple(notes))


def _read(data: Stream | DataLoader[Any] | Dataset[Any]) -> Given:
    """The samples of a dataset of torch, or those that were read ahead."""
    notes: tuple[str, ...] = ()
    if isinstance(data, Stream):
        x, y = data.ahead
    elif isinstance(data, DataLoader):
        x, y = read_loader(data)
    else:
        (x, y), notes = read_dataset(data)
    stream = data if isinstance(data, Stream) else None
    return replace(given(x if y is None else (x, y)), stream=stream, notes=notes)


def part(data: object, what: str = "data", advice: str = "; (X, y) must be a tuple") -> Part:
    """Inputs or targets of any library as an array of numbers, as columns or as texts."""
    if isinstance(data, Tensor):
        kept = data.detach().cpu()
        return (kept.float() if str(kept.dtype) == "torch.bfloat16" else kept).numpy()
    if _is_frame(data):
        return _frame(data)
    if isinstance(data, list | tuple) and (unequal := _unequal(data)) is not None:
        return unequal
    if not isinstance(data, list | tuple) and not hasattr(data, "__array__"):
        raise UserError(f"{what} (of type {type(data).__name__}) must be {TAKEN}")
    if isinstance(data, list) and any(isinstance(one, Mapping) for one in data):
        raise UserError(f"{what} (a list of records) must be a frame, such as DataFrame(records)")
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


def join(parts: Mapping[str, Part], what: str) -> Part:
    """The rows of several parts one after another; one that is unlike the first is refused."""
    first, every = parts["train"], [*parts.values()]
    if any(isinstance(one, Columns) for one in every):
        return _join_tables({name: as_columns(one) for name, one in parts.items()})
    if any(isinstance(one, Unequal) for one in every) and not any(map(_is_texts, every)):
        return Unequal(tuple(row for one in every for row in _clips(one)))
    for name, one in parts.items():
        if _sort(one) != _sort(first):
            raise UserError(
                f"{what} of {name} ({summarize(one)}) must be as that of train ({summarize(first)})"
            )
    if isinstance(first, list):
        return [text for one in every if isinstance(one, list) for text in one]
    return np.concatenate(every)  # type: ignore[arg-type]  # arrays, as those of train are


def _sort(x: Part) -> object:
    """What the parts of a dataset must have in common."""
    if not isinstance(x, np.ndarray):
        return type(x)
    exact = x.ndim == 1  # whole numbers are classes, and levels of pixels end at 255
    return x.shape[1:], x.dtype.kind in "f" if exact else x.ndim > 2 and x.dtype == np.uint8


def _is_texts(x: Part) -> bool:
    return isinstance(x, list)


def _clips(x: Part) -> Sequence[Array]:
    return x.rows if isinstance(x, Unequal) else tuple(x)  # type: ignore[arg-type]  # of arrays


def _join_tables(tables: Mapping[str, Columns]) -> Columns:
    """The rows of several tables; their columns may stand in any order."""
    first = tables["train"]
    for part, table in tables.items():
        for name in first.names + table.names:
            if (name in first.names) != (name in table.names):
                lacks, has = (part, "train") if name in first.names else ("train", part)
                raise UserError(f"{lacks} of data has no column {shown(name)}, which {has} has")
    cells = (
        _join_cells(name, {p: t.cells[t.names.index(name)] for p, t in tables.items()})
        for name in first.names
    )
    return Columns(first.names, tuple(cells), first.categories)


def _join_cells(name: str, column: Mapping[str, Array]) -> Array:
    """One column of several tables; where a table holds no value of it, its type says nothing."""
    filled = {part: cells for part, cells in column.items() if not _is_missing(cells).all()}
    first, like = next(iter(filled.items()), ("train", column["train"]))
    for part, cells in filled.items():
        if (cells.dtype.kind in "biuf") != (like.dtype.kind in "biuf") or (
            (cells.dtype.kind == "M") != (like.dtype.kind == "M")
        ):
            raise UserError(
                f"column {shown(name)} of {part} ({cells.dtype}) must be as that of {first} "
                f"({like.dtype}); change its type"
            )
    missing = {"O": "", "M": np.datetime64("NaT", "s")}.get(like.dtype.kind, np.nan)
    kind = like.dtype if like.dtype.kind in "OM" else np.float64
    return np.concatenate(
        [
            cells if part in filled else np.full(len(cells), missing, kind)
            for part, cells in column.items()
        ]
    )


def _is_missing(cells: Array) -> Array:
    if cells.dtype.kind == "O":
        return np.array([not cell for cell in cells.tolist()], bool)
    return np.isnat(cells) if cells.dtype.kind == "M" else np.isnan(cells.astype(np.float64))


def cut(x: Part, rows: slice) -> Part:
    """Some of the rows."""
    if isinstance(x, Columns):
        return replace(x, cells=tuple(cells[rows] for cells in x.cells))
    return Unequal(x.rows[rows]) if isinstance(x, Unequal) else x[rows]


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


def _is_frame(data: object) -> bool:
    """Whether it has columns: a frame, or a reader of frames, which Arrow alone can read."""
    arrow = hasattr(data, "__arrow_c_stream__")
    if hasattr(data, "columns"):
        return arrow or hasattr(data, "__getitem__")
    return arrow and not hasattr(data, "__array__")


def _frame(frame: Any) -> Columns:  # noqa: ANN401 -- of any library
    """The columns of a frame, by their names.

    Frames of every library that speaks to Arrow come through one door; one that does not, or that
    has objects of several types in a column, is asked for its arrays.
    """
    read = None
    if hasattr(frame, "__arrow_c_stream__"):
        from everynet.data.tables.arrow_table import read_frame  # noqa: PLC0415 -- pyarrow

        read = read_frame(frame)
    names = [name for name, *_ in read] if read is not None else [str(n) for n in frame.columns]
    if not names:
        raise UserError("data (a frame without columns) must have some")
    for name, count in Counter(names).items():
        if count > 1:
            raise UserError(f"data names column {shown(name)} twice; give each its own name")
    if read is None:
        columns = [(str(name), frame[name]) for name in frame.columns]
        read = [(name, np.asarray(c.to_numpy()), _is_category(c)) for name, c in columns]
    return Columns(
        tuple(names),
        tuple(_cells(cells, name) for name, cells, _ in read),
        frozenset(name for name, _, category in read if category),
    )


def _is_category(column: object) -> bool:
    return str(getattr(column, "dtype", "")).lower().startswith("categor")


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
