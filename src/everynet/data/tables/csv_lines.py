"""The lines of a csv file as cells, whichever way it was written.

Columns are separated by commas, semicolons, tabs or bars: by that which gives the first lines the
same number of columns, the most of them. The text is UTF-8, with or without a byte order mark,
UTF-16 with one, or else latin-1, in which every byte is a letter.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

from everynet.data.paths import regular, unreadable
from everynet.system.errors import UserError
from everynet.system.wording import shown

MOST_COLUMNS = 100_000
MOST_BYTES = 2**30
"""A larger file is refused before it is read: a table is held in memory."""
MOST_LINE = 2**24
"""Characters of one row: what 100,000 columns take at the very most."""
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_FIRST = 20
"""Lines that tell how columns are separated."""
_CELLS = 2**20  # held as text at a time
_PIECE = 2**20  # bytes that are decoded at a time to see how

Lines = list[tuple[int, list[str]]]
"""The number of a line and its cells."""


@dataclass(frozen=True)
class CsvFile:
    """How a csv file is written."""

    path: Path
    encoding: str
    separator: str
    header: tuple[str, ...]

    def __str__(self) -> str:
        name = self.encoding.removesuffix("-sig").upper()
        return f"{SEPARATORS[self.separator]}-separated, {name}"

    def hashed(self) -> hashlib._Hash:
        """SHA-256 of the file, to which more can be added."""
        with self.path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256")

    def chunks(self) -> Iterator[Lines]:
        """The rows below the header, some thousand at a time."""
        lines = _lines(self.path, self.encoding, self.separator)
        next(lines)
        width = len(self.header)
        while chunk := list(islice(lines, max(1, _CELLS // width))):
            for number, cells in chunk:
                if len(cells) != width:
                    raise UserError(
                        f"{shown(self.path)}: line {number} has {len(cells)} cells, but the header "
                        f"{width}"
                    )
            yield chunk


def open_csv(path: Path) -> CsvFile:
    """How a file is written, which must have a header of different names."""
    try:
        if regular(path).stat().st_size > MOST_BYTES:
            raise UserError(
                f"{shown(path)} must be at most {MOST_BYTES:,} bytes long, because a table is held "
                "in memory; give an npz of float32, or fewer rows"
            )
        encoding = _encoding(path)
    except OSError as error:
        raise unreadable(path, error) from None
    separator = _separator(path, encoding)
    _, header = next(_lines(path, encoding, separator), (0, []))
    return CsvFile(path, encoding, separator, _checked(path, header))


def _encoding(path: Path) -> str:
    with path.open("rb") as stream:
        start = stream.read(2)
        if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return "utf-16"
        stream.seek(0)
        decoder, encoding, line = codecs.getincrementaldecoder("utf-8")(), "utf-8-sig", 1
        while piece := stream.read(_PIECE):
            if (at := piece.find(0)) >= 0:
                raise UserError(
                    f"{shown(path)}: line {line + piece.count(10, 0, at)} holds a NUL, as a binary "
                    "file does; save it as csv in UTF-8"
                )
            line += piece.count(10)
            if encoding != "latin-1":
                try:
                    decoder.decode(piece, final=len(piece) < _PIECE)
                except UnicodeDecodeError:
                    encoding = "latin-1"
    return encoding


def _separator(path: Path, encoding: str) -> str:
    """What gives the first lines the same number of columns, the most of them; else a comma."""
    most, best = 1, ","
    for separator in SEPARATORS:
        try:
            first = [len(cells) for _, cells in islice(_lines(path, encoding, separator), _FIRST)]
        except UserError:  # said again, with its line, where the file is read
            continue
        if first and len(set(first)) == 1 and first[0] > most:
            most, best = first[0], separator
    if most > 1:
        return best
    # Not all lines are alike: the header decides, and the line that differs will be named.
    widths = {
        separator: len(next(_lines(path, encoding, separator), (0, []))[1])
        for separator in SEPARATORS
    }
    return max(widths, key=lambda separator: widths[separator])


def _checked(path: Path, cells: Sequence[str]) -> tuple[str, ...]:
    header = tuple(name.strip() for name in cells)
    if not header:
        raise UserError(f"{shown(path)} is empty")
    if len(header) > MOST_COLUMNS:
        raise UserError(f"{shown(path)} must have at most {MOST_COLUMNS:,} columns")
    if all(is_number(name) for name in header):
        raise UserError(f"{shown(path)}: line 1 must be a header that names the columns")
    seen: set[str] = set()
    for column, name in enumerate(header):
        if not name:
            raise UserError(f"{shown(path)}: line 1 must name column {column + 1}")
        if name in seen:
            raise UserError(f"{shown(path)}: line 1 names column {shown(name)} twice")
        seen.add(name)
    return header


def _lines(path: Path, encoding: str, separator: str) -> Iterator[tuple[int, list[str]]]:
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
        with path.open(encoding=encoding, newline="") as stream:
            reader = csv.reader(text(stream), delimiter=separator, strict=True)
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
        raise UserError(f"{shown(path)}: line {number + 1} or later is not UTF-16 text") from None
    except csv.Error as error:
        raise UserError(f"{shown(path)}: line {number + 1} or later: {shown(error)}") from None


def is_number(cell: str) -> bool:
    """Whether a cell is a number with a decimal point, finite or not; 1_2 is Python's alone."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell
