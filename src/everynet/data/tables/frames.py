"""Tables in memory as samples: what `csv_table.py` makes of a file, made of arrays and frames.

Numbers and dates are taken as they are; words go the way of the cells of a csv file, so that the
same table gives the same columns. What is missing is NaN, NaT, None or an empty word.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from everynet.data.tables.columns import MISSING, Treatment, Values, plain
from everynet.data.tables.csv_lines import CsvFile, Lines
from everynet.system.errors import UserError
from everynet.system.wording import nearest, shown

INPUTS = "inputs"
_CELLS = 2**20  # held as text at a time


@dataclass(frozen=True)
class Held(CsvFile):
    """A table in memory, read as the lines of a file are; a line is a row, from 0."""

    rows: int = 0
    cells: tuple[Array, ...] = ()
    digest: str = ""

    def __str__(self) -> str:
        return "in memory"

    def chunks(self) -> Iterator[Lines]:
        for start in range(0, self.rows, step := max(1, _CELLS // max(1, len(self.cells)))):
            numbers = range(start, min(start + step, self.rows))
            columns = [column[start : start + step].tolist() for column in self.cells]
            cells = zip(*columns, strict=True) if columns else ([] for _ in numbers)
            yield [(row, list(each)) for row, each in zip(numbers, cells, strict=True)]

    def hashed(self) -> hashlib._Hash:
        return hashlib.sha256(self.digest.encode())


def samples(given: Given, target: str = "", task: str = "", drop: Sequence[str] = ()) -> Samples:
    """The table in memory; y is a column of its own, or that of x which `target` names."""
    if given.y is not None and target:
        raise UserError(f"target ({shown(target)}) must be left out, because y was given beside X")
    table, target = _with_target(given, target)
    file = _file(given.short, table.names, len(table), digest=given.digest)
    with _rows_for_lines():
        names = csv_table.choose_columns(file, target, drop)
        place = {name: cells for name, cells in zip(table.names, table.cells, strict=True)}
        found = [_form(file, name, place[name], name in table.categories) for name in names]
        values = [_values(file, treatment, place[treatment["name"]]) for treatment in found]
        real = place[target].dtype.kind == "f" or _pointed(place[target])
        parts = {part: torch.arange(r.start, r.stop) for part, r in given.parts.items()}
        return csv_table.make_samples(file, found, values, task, drop, real=real, parts=parts)


def samples_like(spec: Spec, given: Given, target: str) -> Samples:
    """The columns that were learned from, and the target of each row."""
    table, target = _with_target(given, target)
    file = _file(given.short, table.names, len(table))
    csv_table.check_names(file, target, ())
    cells = table.cells[table.names.index(target)]
    with _rows_for_lines():
        found = _form(file, target, cells, target in table.categories)
        values = _values(file, found, cells)
        x = features_like(spec, table if given.y is None else given.x)
        return csv_table.make_samples_like(spec, file, x, found, values)


def _with_target(given: Given, target: str) -> tuple[Columns, str]:
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
    return table, target


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
    file = _file(INPUTS, names, len(table))
    with _rows_for_lines():
        values = [_values(file, each, place[each["name"]]) for each in treatments]
    return torch.from_numpy(forms.apply(treatments, values))


def _file(name: str, header: Sequence[str], rows: int, digest: str = "") -> Held:
    return Held(Path(name), "", ",", tuple(header), rows=rows, digest=digest)


def _free(name: str, taken: Sequence[str]) -> str:
    """The name of y, told apart from those of the columns."""
    return name if name not in taken else _free(f"{name}_", taken)


def _form(file: Held, name: str, cells: Array, category: bool) -> Treatment:
    """What a column is, nothing learned of it yet."""
    if category:
        return {"name": name, "form": "category"}
    if cells.dtype.kind == "O":
        (found,) = forms.survey(_words(file, name, cells), [name])
        return found
    missing = np.isnat(cells) if cells.dtype.kind == "M" else np.isnan(cells.astype(np.float64))
    if missing.all():
        return {"name": name, "form": "empty"}
    if cells.dtype.kind == "M":
        return {"name": name, "form": "date", "order": "ymd"}
    return {"name": name, "form": "number", "decimal": "."}


def _words(file: Held, name: str, cells: Array) -> Held:
    """One column as a file of words."""
    if cells.dtype.kind != "O":
        words = map(str, cells.tolist())
        cells = np.array(["" if word in {"nan", "None"} else word for word in words], object)
    return replace(file, header=(name,), cells=(cells,))


def _values(file: Held, treatment: Treatment, cells: Array) -> Values:
    """The cells of a column, by its form."""
    name, form = treatment["name"], treatment["form"]
    if form == "empty":
        return Values(np.full(len(cells), math.nan))
    if form == "date" and cells.dtype.kind == "M":
        seconds = cells.astype(np.int64).astype(np.float64)
        return Values(np.where(np.isnat(cells), math.nan, seconds))
    if form == "number" and cells.dtype.kind in "biuf":
        numbers = cells.astype(np.float64)
        bad = np.isinf(numbers)
        if "median" in treatment and treatment["median"] is None:
            bad |= np.isnan(numbers)
        if bad.any():
            at = int(bad.argmax())
            raise UserError(
                f"{shown(file.path)}: row {at}, column {shown(name)} ({numbers[at]}) must be a "
                "finite number"
            )
        return Values(numbers)
    (found,) = forms.gather(_words(file, name, cells), [treatment])
    return found


def _pointed(cells: Array) -> bool:
    """Whether any number among words is written with a decimal point or comma."""
    return cells.dtype.kind == "O" and any(
        any(sign in cell for sign in ".,eE")
        for cell in cells.tolist()
        if cell.lower() not in MISSING
    )


@contextmanager
def _rows_for_lines() -> Iterator[None]:
    """What would name a line of a file names a row."""
    try:
        yield
    except UserError as error:
        raise UserError(re.sub(r"\bline (\d+)", r"row \1", str(error))) from error
