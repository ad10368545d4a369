"""A csv file: a header, columns of numbers, and one column that is to be learned.

A target of words is a class, and so is one of at most fifty different whole numbers (write 3.0
and not 3 to have a real number). Every other cell must be a finite number: nothing is filled in
and nothing is left out. Cells are separated by commas and the text is UTF-8.
"""

from __future__ import annotations

import csv
import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np
import torch
from jaxtyping import Float64, Shaped
from torch import Tensor

from everynet.data.paths import regular, unreadable
from everynet.data.samples import Samples
from everynet.data.split import PARTS, by_hash, rows
from everynet.types import UserError, nearest
from everynet.words import shown

MOST_CLASSES = 50
MOST_COLUMNS = 100_000
MOST_BYTES = 2**30
"""A larger file is refused before it is read: a table is held in memory."""
MOST_LINE = 2**24
"""Characters of one row: what 100,000 columns take at the very most."""
_CELLS = 2**20  # held as text at a time

Lines = list[tuple[int, list[str]]]
"""The number of a line and its cells."""


def read(path: Path, target: str) -> Samples:
    """The table of a csv file; its rows are split by a hash of their number."""
    header, chunks = _open(path)
    if not target:
        raise UserError(
            f"target must name the column of {shown(path)} that is to be learned, one of "
            + shown(", ".join(header))
        )
    if target not in header:
        raise UserError(f"{shown(path)} has no column {shown(target)}" + nearest(target, header))
    features = [name for name in header if name != target]
    if not features:
        raise UserError(f"{shown(path)} must have columns besides its target {shown(target)}")
    where = header.index(target)
    numbers, answers = [], []
    for lines in chunks:
        numbers.append(_numbers(path, header, features, lines))
        answers += [(line, cells[where]) for line, cells in lines]
    if not numbers:
        raise UserError(f"{shown(path)} must have rows below its header")
    y, classes = _answers(path, target, answers)
    x = torch.from_numpy(np.concatenate(numbers))
    placed = np.array(by_hash(rows(len(x))))
    which = {part: torch.from_numpy(np.flatnonzero(placed == part)) for part in PARTS}
    return Samples(
        name=shown(path),
        parts={part: (x[chosen], y[chosen]) for part, chosen in which.items()},
        digest=_digest(path, target),
        split="by hash of the row number, a fifth is test and a tenth of the rest is valid",
        classes=classes,
        features=tuple(features),
        task="classification" if classes else "regression",
        rows=which,
        advice="add rows, or write numbers with a point (3.0) to learn a real target",
    )


def columns(path: Path, features: Sequence[str]) -> Float64[Tensor, "rows features"]:
    """The named columns of a csv file, whatever others it has."""
    header, chunks = _open(path)
    there = set(header)
    for name in features:
        if name not in there:
            raise UserError(f"{shown(path)} has no column {shown(name)}" + nearest(name, header))
    numbers = [_numbers(path, header, features, lines) for lines in chunks]
    if not numbers:
        raise UserError(f"{shown(path)} must have rows below its header")
    return torch.from_numpy(np.concatenate(numbers))


def _open(path: Path) -> tuple[list[str], Iterator[Lines]]:
    """The header, and the rows some thousand at a time."""
    lines = _lines(path)
    _, header = next(lines, (0, []))
    header = [name.strip() for name in header]
    if not header:
        raise UserError(f"{shown(path)} is empty")
    if len(header) > MOST_COLUMNS:
        raise UserError(f"{shown(path)} must have at most {MOST_COLUMNS:,} columns")
    if all(_is_number(name) for name in header):
        raise UserError(f"{shown(path)}: line 1 must be a header that names the columns")
    seen: set[str] = set()
    for column, name in enumerate(header):
        if not name:
            raise UserError(f"{shown(path)}: line 1 must name column {column + 1}")
        if name in seen:
            raise UserError(f"{shown(path)}: line 1 names column {shown(name)} twice")
        seen.add(name)
    if len(header) == 1 and re.search(r"[;\t|]", header[0]):
        raise UserError(f"{shown(path)}: line 1 must separate its columns with commas")
    return header, _chunks(path, len(header), lines)


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The number and the cells of each line; blank lines at the end are passed over."""
    number, blank, length = 0, 0, 0

    def text(stream: TextIO) -> Iterator[str]:
        nonlocal length
        while line := stream.readline(MOST_LINE + 1):
            length += len(line)
            if length > MOST_LINE:
                raise UserError(
                    f"{shown(path)}: line {number + 1} must be at most {MOST_LINE:,} characters "
                    f"long, which {MOST_COLUMNS:,} columns need not exceed; is it a csv file?"
                )
            yield line

    try:
        if regular(path).stat().st_size > MOST_BYTES:
            raise UserError(
                f"{shown(path)} must be at most {MOST_BYTES:,} bytes long, because a table is held "
                "in memory; give an npz of float32, or fewer rows"
            )
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(text(stream), strict=True)
            for cells in reader:
                number, length = reader.line_num, 0
                if not cells:
                    blank = blank or number
                    continue
                if blank:
                    raise UserError(f"{shown(path)}: line {blank} is blank, but others follow it")
                yield number, cells
    except OSError as error:
        raise unreadable(path, error) from None
    except UnicodeDecodeError:
        raise UserError(f"{shown(path)}: line {number + 1} or later is not UTF-8 text") from None
    except csv.Error as error:
        raise UserError(f"{shown(path)}: line {number + 1} or later: {shown(error)}") from None


def _chunks(path: Path, width: int, lines: Iterator[tuple[int, list[str]]]) -> Iterator[Lines]:
    while chunk := list(islice(lines, max(1, _CELLS // width))):
        for number, cells in chunk:
            if len(cells) != width:
                raise UserError(
                    f"{shown(path)}: line {number} has {len(cells)} cells, but the header {width}"
                )
        yield chunk


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbers(
    path: Path, header: Sequence[str], names: Sequence[str], lines: Lines
) -> Float64[np.ndarray, "rows names"]:
    """The cells of some columns as numbers, or one line that names the first that is none."""
    places = {name: column for column, name in enumerate(header)}
    where = [places[name] for name in names]
    try:
        x = np.array([[cells[column] for column in where] for _, cells in lines]).astype(np.float64)
        if np.isfinite(x).all():
            return x
    except ValueError:
        pass
    for number, cells in lines:
        for name, column in zip(names, where, strict=True):
            _number(path, number, name, cells[column])
    raise AssertionError("numpy and float() must agree on what a number is")


def _number(path: Path, line: int, column: str, cell: str) -> float:
    place = f"{shown(path)}: line {line}, column {shown(column)}"
    if not cell.strip():
        raise UserError(f"{place} is empty; fill it in or leave the row out")
    if not _is_number(cell):
        raise UserError(f"{place} ({shown(cell, 40)}) must be a number")
    if not math.isfinite(float(cell)):
        raise UserError(f"{place} ({shown(cell, 40)}) must be a finite number")
    return float(cell)


def _answers(
    path: Path, column: str, answers: Sequence[tuple[int, str]]
) -> tuple[Shaped[Tensor, " rows"], tuple[str, ...]]:
    """The target as classes with their names, or as real numbers and no names."""
    first_line, first = answers[0]
    for line, cell in answers:
        if not cell.strip() or _is_number(first):
            _number(path, line, column, cell)
        elif _is_number(cell):
            raise UserError(
                f"{shown(path)}: line {line}, column {shown(column)} ({shown(cell, 40)}) must be a "
                f"word, as in line {first_line}"
            )
    cells = [cell.strip() for _, cell in answers]
    whole = all(re.fullmatch(r"[+-]?\d{1,18}", cell) for cell in cells)
    if _is_number(first) and not (whole and len({int(cell) for cell in cells}) <= MOST_CLASSES):
        return torch.tensor([float(cell) for cell in cells], dtype=torch.float64), ()
    values = sorted({int(cell) for cell in cells}) if whole else sorted(set(cells))
    index = {value: label for label, value in enumerate(values)}
    y = torch.tensor([index[int(cell) if whole else cell] for cell in cells])
    return y, tuple(shown(value) for value in values)


def _digest(path: Path, target: str) -> str:
    with path.open("rb") as stream:
        total = hashlib.file_digest(stream, "sha256")
    total.update(target.encode("utf-8", "surrogateescape"))
    return total.hexdigest()
