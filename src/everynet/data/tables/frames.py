"""Tables in memory as samples: what `csv_table.py` makes of a file, made of arrays and frames.

Numbers and dates are taken as they are; words go the way of the cells of a csv file, so that the
same table gives the same columns. What is missing is NaN, NaT, None or an empty word.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from everynet.data.dataset import Spec
from everynet.data.in_memory import (
    Array,
    Columns,
    Given,
    Part,
    Unequal,
    as_columns,
    numbered,
    summarize,
)
from everynet.data.samples import Samples
from everynet.data.tables import columns as forms
from everynet.data.tables import csv_table
from everynet.data.tables.cells import Cells
from everynet.data.tables.columns import plain
from everynet.data.tables.own_split import SplitBy
from everynet.system.errors import UserError
from everynet.system.wording import nearest, shown

INPUTS = "inputs"


@dataclass(frozen=True)
class Held:
    """A table in memory, read by its columns as a file is."""

    path: Path
    """What an error message calls it."""
    table: Columns
    digest: str = ""
    stored: bool = True

    def __str__(self) -> str:
        return "in memory"

    @property
    def header(self) -> tuple[str, ...]:
        return self.table.names

    def cells(self, names: Collection[str], words: Collection[str] = ()) -> dict[str, Cells]:
        """These columns, each by its type; those of objects as words."""
        place = dict(zip(self.table.names, self.table.cells, strict=True))
        return {n: _cells(place[n], n in self.table.categories) for n in names}

    def pieces(self, names: Collection[str], rows: int) -> Iterator[tuple[slice, Held]]:
        """The table, at most so many rows at a time."""
        for start in range(0, len(self.table), rows):
            some = slice(start, start + rows)
            cells = tuple(column[some] for column in self.table.cells)
            yield some, replace(self, table=replace(self.table, cells=cells))

    def forget(self) -> None:
        """Nothing is held beside the table itself."""

    def places(self, rows: Sequence[int]) -> list[str]:
        """How a person finds these rows, which count from 0."""
        return [f"row {row}" for row in rows]

    def hashed(self) -> hashlib._Hash:
        return hashlib.sha256(self.digest.encode())


def _cells(column: Array, category: bool) -> Cells:
    """A column by its type."""
    if column.dtype.kind == "O" or category:
        from everynet.data.tables.arrow_table import coded  # noqa: PLC0415 -- pyarrow

        return coded(_spelled(column), "category" if category else "")
    if column.dtype.kind == "M":
        numbers = np.where(np.isnat(column), math.nan, column.astype(np.int64).astype(np.float64))
        return Cells(numbers, form="date", spelled=lambda: _cells(column.astype(object), False))
    whole = column.dtype.kind in "biu"
    return Cells(
        column.astype(np.float64),
        form="number",
        whole=whole,
        spelled=lambda: _cells(np.array(_spelled(column), object), False),
    )


def _spelled(column: Array) -> list[str]:
    """The cells as words, empty where there is none."""
    if column.dtype.kind == "O":
        return [str(cell) for cell in column.tolist()]
    return ["" if word in ("nan", "None") else word for word in map(str, column.tolist())]


def samples(
    given: Given,
    target: str = "",
    task: str = "",
    drop: Sequence[str] = (),
    *,
    missing: Sequence[str] = (),
    by: SplitBy | None = None,
) -> Samples:
    """The table in memory; y is a column of its own, or that of x which `target` names."""
    if given.y is not None and target:
        raise UserError(f"target ({shown(target)}) must be left out, because y was given beside X")
    file, target = _with_target(given, target)
    return csv_table.make_samples(file, target, task, drop, missing, by, given.own)


def samples_like(spec: Spec, given: Given, target: str) -> Samples:
    """The columns that were learned from, and the target of each row."""
    file, target = _with_target(given, target)
    csv_table.check_names(file, target, ())
    found = forms.survey(file, [target])
    values = forms.gather(file, found)[0]
    x = features_like(spec, file.table if given.y is None else given.x)
    return csv_table.make_samples_like(spec, file, x, found[0], values)


def _with_target(given: Given, target: str) -> tuple[Held, str]:
    """The table with its target, and the name of that: y where it was given apart."""
    table = as_columns(given.x)
    if not len(table):
        raise UserError(f"data ({summarize(given.x)}) must have rows")
    if given.y is not None:
        target = _free(given.target or "y", table.names)
        y = given.y
        if isinstance(y, Columns | Unequal) or (isinstance(y, np.ndarray) and y.ndim != 1):
            raise UserError(f"y ({summarize(y)}) must hold one value for each row of X")
        truths = isinstance(y, np.ndarray) and y.dtype.kind == "b"
        cells = np.array([*map(str, y)], object) if truths or isinstance(y, list) else y
        table = Columns((*table.names, target), (*table.cells, cells), table.categories)
    return Held(Path(given.short), table, given.digest), target


def features_like(spec: Spec, x: Part) -> Float64[Tensor, "rows features"]:
    """The features of rows in memory, by the columns that were learned from."""
    treatments = spec.get("columns") or plain(spec["features"])
    names = [treatment["name"] for treatment in treatments]
    if isinstance(x, Columns) and x.names == numbered(len(names)):
        x = replace(x, names=tuple(names))  # of an array, whose columns have no names
    if isinstance(x, list) or (
        isinstance(x, np.ndarray) and (x.ndim != 2 or x.shape[1] != len(names))
    ):
        raise UserError(
            f"{INPUTS} ({summarize(x)}) must be rows of {len(names):,} columns: "
            + shown(", ".join(names))
        )
    table = as_columns(x, names)
    place = dict(zip(table.names, table.cells, strict=True))
    for name in names:
        if name not in place:
            raise UserError(f"{INPUTS} has no column {shown(name)}" + nearest(name, table.names))
    if not len(table):
        raise UserError(f"{INPUTS} ({summarize(x)}) must have rows")
    values = forms.gather(Held(Path(INPUTS), table), treatments)
    return torch.from_numpy(forms.apply(treatments, values))


def _free(name: str, taken: Sequence[str]) -> str:
    """The name of y, told apart from those of the columns."""
    return name if name not in taken else _free(f"{name}_", taken)
