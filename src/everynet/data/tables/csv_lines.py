"""How a csv file is written: its encoding, its separator and its header; and where a line is wrong.

Columns are separated by commas, semicolons, tabs or bars: by that which gives the first lines the
same number of columns, the most of them. The text is UTF-8, with or without a byte order mark,
UTF-16 with one, or else latin-1, in which every byte is a letter; `.gz` is unpacked on the way.

The cells themselves are read by Arrow (`arrow_table.py`), which knows no lines and takes some
quotation marks that the csv module refuses: what is wrong is found and said here.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import hashlib
import io
import re
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from everynet.data.paths import regular, unreadable
from everynet.data.tables.npz import MOST_RATIO, RATIO_FROM
from everynet.system.errors import UserError
from everynet.system.wording import shown

if TYPE_CHECKING:
    from everynet.data.tables.cells import Cells

MOST_COLUMNS = 100_000
MOST_LINE = 2**24
"""Characters of one row: what 100,000 columns take at the very most."""
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_FIRST = 20
"""Lines that tell how columns are separated."""
_PIECE = 2**20  # bytes that are read at a time
_QUOTE, _LINE_END = ord('"'), re.compile(rb"\r\n|\r|\n")


@dataclass(frozen=True)
class CsvFile:
    """How a csv file is written."""

    path: Path
    encoding: str
    separator: str
    header: tuple[str, ...]
    body: tuple[int, int] = (0, 0)
    """Where the rows below the header begin and end, in bytes of UTF-8."""
    header_lines: int = 1
    most_rows: int = 0
    """There are no more rows than ends of lines."""
    quoted: bool = False
    """Whether there are quotation marks anywhere."""
    stored: bool = False
    _known: dict[str, Cells] = field(default_factory=dict, compare=False, repr=False)
    """The columns that were read before."""

    def __str__(self) -> str:
        name = self.encoding.removesuffix("-sig").upper()
        return f"{SEPARATORS[self.separator]}-separated, {name}"

    def hashed(self) -> hashlib._Hash:
        """SHA-256 of the file, to which more can be added."""
        with self.path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256")

    def cells(self, names: Collection[str], words: Collection[str] = ()) -> dict[str, Cells]:
        """These columns, read by Arrow; those of `words` as words."""
        from everynet.data.tables.arrow_table import read_csv  # noqa: PLC0415 -- pyarrow

        known = self._known
        new = [n for n in names if n not in known or (n in words and known[n].codes is None)]
        if new:
            known.update(read_csv(self, new, words))
        return {name: known[name] for name in names}

    def pieces(self, names: Collection[str], rows: int) -> Iterator[tuple[slice, CsvFile]]:
        """Nothing: what was read is held as long as it is needed."""
        yield from ()

    def forget(self) -> None:
        """Let go of the columns that were read."""
        self._known.clear()

    def places(self, rows: Sequence[int]) -> list[str]:
        """The lines that rows of the table end in, from 1."""
        if not rows or not self.quoted:
            return [f"line {self.header_lines + 1 + row}" for row in rows]
        wanted, last, found = {*rows}, max(rows), {}
        for row, (number, _) in enumerate(islice(self._lines(), 1, last + 2)):
            if row in wanted:
                found[row] = f"line {number}"
        return [found[row] for row in rows]

    def check_lines(self) -> None:
        """Refuse the first line that is not as the header says; it takes long."""
        for number, cells in islice(self._lines(), 1, None):
            if len(cells) != len(self.header):
                raise UserError(
                    f"{shown(self.path)}: line {number} has {len(cells)} cells, but the header "
                    f"{len(self.header)}"
                )

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        return _lines(self.path, self.encoding, self.separator)

    def rows(self) -> io.RawIOBase:
        """The bytes below the header, in UTF-8, without blank lines at the end."""
        return _Body(_pieces(self.path, self.encoding), *self.body)


class _Body(io.RawIOBase):
    """A stretch of what comes in pieces, as a stream."""

    def __init__(self, pieces: Iterator[bytes], start: int, end: int) -> None:
        super().__init__()
        self.pieces, self.start, self.end, self.at, self.held = pieces, start, end, 0, b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        parts, left = [], size if size >= 0 else self.end
        while left:
            if not self.held and (piece := next(self.pieces, None)) is not None:
                self.held = piece[max(0, self.start - self.at) : max(0, self.end - self.at)]
                self.at += len(piece)
                continue
            if not self.held:
                break
            parts.append(self.held[:left])
            self.held = self.held[left:]
            left -= len(parts[-1])
        return b"".join(parts)


def open_csv(path: Path) -> CsvFile:
    """How a file is written, which must have a header of different names."""
    regular(path)
    encoding = _encoding(path)
    separator = _separator(path, encoding)
    number, header = next(_lines(path, encoding, separator), (0, []))
    names = _checked(path, header)
    file = CsvFile(path, encoding, separator, names, header_lines=number)
    try:
        end, ends, quoted, sound = _quotes(path, encoding, separator)
        start = _header_end(path, encoding, number)
    except UnicodeDecodeError:
        file.check_lines()
        raise
    if not sound:  # a quotation mark that is not around a whole cell, or is not closed
        file.check_lines()
    return replace(file, body=(start, end), most_rows=ends, quoted=quoted)


@contextmanager
def _unpacked(path: Path) -> Iterator[gzip.GzipFile | io.BufferedReader]:
    """The bytes of a file, or of what a `.gz` holds."""
    try:
        with path.open("rb") as stream:
            packed = path.suffix.lower() == ".gz"
            yield gzip.GzipFile(fileobj=stream) if packed else stream
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{shown(path)} is damaged or no gzip file: {shown(error, 120)}") from None
    except OSError as error:
        raise unreadable(path, error) from None


def _read(path: Path) -> Iterator[bytes]:
    """The bytes of a file piece by piece; a gzip file that unpacks to far more is refused."""
    size, packed = 0, max(1, path.stat().st_size)
    with _unpacked(path) as stream:
        while piece := stream.read(_PIECE):
            size += len(piece)
            if size > RATIO_FROM and size > MOST_RATIO * packed:
                raise UserError(
                    f"{shown(path)} would unpack to {size:,} bytes or more from {packed:,}"
                )
            yield piece


def _pieces(path: Path, encoding: str) -> Iterator[bytes]:
    """The file in UTF-8, piece by piece."""
    if encoding.startswith("utf-8"):
        yield from _read(path)
        return
    decoder = codecs.getincrementaldecoder(encoding)()
    for piece in _read(path):
        yield decoder.decode(piece).encode()
    yield decoder.decode(b"", final=True).encode()


def _encoding(path: Path) -> str:
    """How the text is written; a NUL is refused."""
    decoder, encoding, line = codecs.getincrementaldecoder("utf-8")(), "utf-8-sig", 1
    for number, piece in enumerate(_read(path)):
        if not number and piece.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return "utf-16"
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


def _header_end(path: Path, encoding: str, lines: int) -> int:
    """Where the rows begin, below so many lines, in bytes of UTF-8."""
    found = b""
    for piece in _pieces(path, encoding):
        found += piece
        ends = [end.end() for end in islice(_LINE_END.finditer(found), lines)]
        if len(ends) == lines and ends[-1] < len(found):
            return ends[-1]
    return len(found)


def _quotes(path: Path, encoding: str, separator: str) -> tuple[int, int, bool, bool]:
    """Where the rows end, how many there are at most, and whether quotation marks are there, sound.

    They are if every other one, from the first, begins a cell and the next one ends it, where two
    together stand for one: what the csv module and Arrow read alike. A blank line, which Arrow
    takes for a row of nothing, is not sound either.
    """
    end, at, ends, quotes, sound, before = 0, 0, 1, 0, True, b"x\n"
    beside = np.frombuffer(b'"\r\n' + separator.encode(), np.uint8)
    pieces = filter(None, _pieces(path, encoding))
    piece = next(pieces, b"")
    if piece.startswith(codecs.BOM_UTF8):
        at, piece = len(codecs.BOM_UTF8), piece.removeprefix(codecs.BOM_UTF8)
    for following in chain(pieces, [b"\n"]):
        if filled := piece.rstrip(b"\r\n"):
            end = at + len(filled)
            sound &= not any(two in before + filled for two in (b"\n\n", b"\n\r", b"\r\r"))
        ends += piece.count(b"\n") + (piece.count(b"\r") if b"\r" in piece else 0)
        if b'"' in piece:
            around = np.frombuffer(before[-1:] + piece + following[:1], np.uint8)
            places = np.flatnonzero(around[1:-1] == _QUOTE)
            closes = (np.arange(len(places)) + quotes) % 2
            sound &= bool(np.isin(around[places + 2 * closes], beside).all())
            quotes += len(places)
        at, before, piece = at + len(piece), (before + piece)[-2:], following
    return end, ends, quotes > 0, sound and quotes % 2 == 0


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

    def text(stream: io.TextIOWrapper) -> Iterator[str]:
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
        with _unpacked(path) as content:
            stream = io.TextIOWrapper(content, encoding, newline="")
            reader = csv.reader(text(stream), delimiter=separator, strict=True)
            for cells in reader:
                number, length = reader.line_num, 0
                if not cells:
                    blank = blank or number
                    continue
                if blank:
                    raise UserError(f"{shown(path)}: line {blank} is blank, but others follow it")
                yield number, cells
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
