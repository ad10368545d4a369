"""Tables by Arrow: the columns of csv, parquet and feather files, and of frames of any library.

Arrow takes every cell of a csv file for text and guesses no type: what a column is follows from our
own rules. Columns of the other files and of frames have types, which are kept. This file imports
pyarrow, which nothing but a table does.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
from jaxtyping import Float64, Shaped

from everynet.data.in_memory import Array
from everynet.data.paths import regular, unreadable
from everynet.data.tables.cells import Cells
from everynet.data.tables.csv_lines import MOST_COLUMNS, CsvFile
from everynet.data.tables.npz import MOST_RATIO, RATIO_FROM
from everynet.data.tables.words import MISSING, strings, to_numpy
from everynet.system.errors import UserError
from everynet.system.wording import shown

_BLOCKS = (2**20, 2**26 + 2**16)
"""Bytes that are read at once, and for a row that is longer: four bytes a character at most."""
_ROWS, _BUFFER = 2**18, 2**16
"""Rows of a column that are read at once, and bytes of each column of a parquet file."""
_LONG = 131_072  # bytes of a cell, which the csv module refuses if they are as many characters
_NULLS = [word for mark in MISSING for word in {mark, mark.upper(), mark.capitalize(), "NaN"}]


# -------------------------------------------------------------------------------------------- csv


def read_csv(file: CsvFile, names: Collection[str], words: Collection[str]) -> dict[str, Cells]:
    """These columns: numbers where every cell is a plain one, else words, as those of `words`."""
    try:
        return _read_csv(file, names, words, _BLOCKS[0])
    except pa.ArrowInvalid:
        file.check_lines()
    try:
        return _read_csv(file, names, words, _BLOCKS[1])
    except pa.ArrowInvalid as error:
        raise UserError(f"{shown(file.path)} is no csv file: {shown(error, 120)}") from None


def read_text(file: CsvFile | ArrowFile, name: str) -> list[str]:
    """The cells of one column as they are written."""
    if isinstance(file, ArrowFile):
        with _reading(file.path):
            pieces = (batch.column(0) for batch in _stored(file.path, [name], _ROWS))
            return ["" if c is None else str(c) for piece in pieces for c in piece.to_pylist()]
    batches = _batches(file, [name], [], _BLOCKS[0])
    return [cell for batch in batches for cell in batch[0].to_pylist()]


def _batches(
    file: CsvFile, names: Collection[str], nulls: Sequence[str], block: int
) -> Iterator[pa.RecordBatch]:
    if file.body[0] >= file.body[1]:
        return
    with pacsv.open_csv(
        pa.PythonFile(file.rows(), "r"),
        pacsv.ReadOptions(column_names=list(file.header), block_size=block, use_threads=False),
        pacsv.ParseOptions(
            delimiter=file.separator, newlines_in_values=file.quoted, ignore_empty_lines=False
        ),
        pacsv.ConvertOptions(
            column_types=dict.fromkeys(file.header, pa.string()),
            include_columns=list(names),
            null_values=list(nulls),
            strings_can_be_null=bool(nulls),
            check_utf8=False,
        ),
    ) as reader:
        yield from reader


def _read_csv(
    file: CsvFile, names: Collection[str], words: Collection[str], block: int
) -> dict[str, Cells]:
    numbers = {name: np.empty(file.most_rows) for name in names if name not in words}
    coded: dict[str, list[pa.DictionaryArray]] = {name: [] for name in names if name in words}
    whole, again = set(names), set[str]()
    rows, long = 0, False
    for batch in _batches(file, names, _NULLS, block):
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            long |= (pc.max(pc.binary_length(column)).as_py() or 0) > _LONG
            if name in numbers and (read := _plain(column)) is not None:
                numbers[name][rows : rows + len(read)] = read
                if name in whole and not _is_whole(column, read):
                    whole.remove(name)
            elif name in numbers and rows:  # numbers until now, of which the words are needed
                again.add(name)
                del numbers[name]
            elif name not in again:
                numbers.pop(name, None)
                coded.setdefault(name, []).append(column.dictionary_encode())
        rows += len(batch)
    if long:
        file.check_lines()
    found = {name: Cells(cells[:rows], whole=name in whole) for name, cells in numbers.items()}
    found |= {name: _coded(coded.pop(name)) for name in [*coded]}
    pa.default_memory_pool().release_unused()
    return found | (_read_csv(file, again, again, block) if again else {})


def _plain(column: pa.Array) -> Float64[np.ndarray, " rows"] | None:
    """Cells as numbers with decimal points, NaN where nothing is; None where one is no number."""
    try:
        read = to_numpy(column.cast(pa.float64()))
    except pa.ArrowInvalid:
        return None
    return read if np.isfinite(read).sum() == len(read) - column.null_count else None


def _is_whole(column: pa.Array, values: Float64[np.ndarray, " rows"]) -> bool:
    """Whether no cell holds a point or an exponent."""
    if len(values) and not math.isnan(values[0]) and values[0] != round(values[0]):
        return False
    return not pc.any(pc.match_substring_regex(column, "[.eE]")).as_py()


def _coded(pieces: Sequence[pa.DictionaryArray], form: str = "") -> Cells:
    """Codes of words, in the order in which they first occur."""
    if not pieces:
        return Cells(codes=np.zeros(0, np.int32), words=strings([]), form=form)
    chunks = pa.chunked_array(pieces).unify_dictionaries().chunks
    codes, at = np.empty(sum(map(len, chunks)), np.int32), 0
    for chunk in chunks:
        codes[at : at + len(chunk)] = to_numpy(chunk.indices)
        at += len(chunk)
    return Cells(codes=codes, words=chunks[-1].dictionary, form=form)


# -------------------------------------------------------------------------- parquet and feather


@dataclass(frozen=True)
class ArrowFile:
    """A table whose columns are stored one by one, with their types."""

    path: Path
    header: tuple[str, ...]
    rows: int
    types: Any = field(repr=False)  # a schema of Arrow
    stored: bool = True
    batch: Any = field(default=None, repr=False)
    """These rows of some columns, where they are read already."""

    def __str__(self) -> str:
        return f"{self.path.suffix.lower()[1:]} with types"

    def hashed(self) -> hashlib._Hash:
        """SHA-256 of the file, to which more can be added."""
        with self.path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256")

    def forget(self) -> None:
        """Nothing is held beside the table itself."""

    def places(self, rows: Sequence[int]) -> list[str]:
        """How a person finds these rows, which count from 0."""
        return [f"row {row}" for row in rows]

    def cells(self, names: Collection[str], words: Collection[str] = ()) -> dict[str, Cells]:
        """These columns, each by its type."""
        return {name: self._column(name) for name in names}

    def _column(self, name: str) -> Cells:
        with _reading(self.path):
            place = f"{shown(self.path)}: column {shown(name)}"
            batches = _stored(self.path, [name], _ROWS) if self.batch is None else [self.batch]
            pieces = (batch.column(name) for batch in batches)
            whole = _whole(pieces, self.rows)
            return typed(whole, self.types.field(name).type, self.rows, place)

    def pieces(self, names: Collection[str], rows: int) -> Iterator[tuple[slice, ArrowFile]]:
        """These columns, at most so many rows at a time."""
        at = 0
        with _reading(self.path):
            for batch in _stored(self.path, names, rows):
                yield slice(at, at + len(batch)), replace(self, rows=len(batch), batch=batch)
                at += len(batch)


def open_columnar(path: Path) -> ArrowFile:
    """The names, types and number of rows of a parquet or feather file."""
    with _reading(regular(path)):
        if path.suffix.lower() == ".parquet":
            import pyarrow.parquet as pq  # noqa: PLC0415 -- of this format alone

            with pq.ParquetFile(path) as file:
                schema, rows = file.schema_arrow, file.metadata.num_rows
        else:
            with _feather(path) as reader:
                schema, rows = reader.schema, sum(len(batch) for batch in _feather_batches(reader))
    if not len(schema) or len(schema) > MOST_COLUMNS:
        raise UserError(f"{shown(path)} must have from 1 to {MOST_COLUMNS:,} columns")
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise UserError(f"{shown(path)} names column {shown(name)} twice")
    size, packed = 8 * rows * len(schema), max(1, path.stat().st_size)
    if size > RATIO_FROM and size > MOST_RATIO * packed:
        raise UserError(f"{shown(path)} would unpack to {size:,} bytes from {packed:,}")
    return ArrowFile(path, tuple(schema.names), rows, schema)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """A file that Arrow cannot read is refused in one line."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise unreadable(path, error) from None
        form = path.suffix.lower()[1:]
        why = shown(str(error).split("\n")[0] or type(error).__name__, 120)
        raise UserError(f"{shown(path)} is damaged or no {form} file: {why}") from None


@contextmanager
def _feather(path: Path) -> Iterator[Any]:
    """A reader of either form that Arrow writes."""
    with pa.memory_map(str(path)) as file:
        try:
            reader = pa.ipc.open_file(file)
        except pa.ArrowInvalid:
            file.seek(0)
            reader = pa.ipc.open_stream(file)
        yield reader


def _feather_batches(reader: Any) -> Iterator[pa.RecordBatch]:  # noqa: ANN401 -- of either form
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        yield from (reader.get_batch(number) for number in range(reader.num_record_batches))
    else:
        yield from reader


def _stored(path: Path, names: Collection[str], rows: int) -> Iterator[pa.RecordBatch]:
    """Some columns, at most so many rows at a time."""
    if path.suffix.lower() == ".parquet":
        import pyarrow.parquet as pq  # noqa: PLC0415 -- of this format alone

        with pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False) as file:
            yield from file.iter_batches(rows, columns=[*names])
    else:
        with _feather(path) as reader:
            for batch in _feather_batches(reader):
                some = batch.select([*names])
                yield from (some.slice(start, rows) for start in range(0, len(some), rows))
    pa.default_memory_pool().release_unused()


def _whole(pieces: Iterable[pa.Array], rows: int) -> Iterator[pa.Array]:
    """The pieces of a column, which must have as many rows as its file says."""
    at = 0
    for piece in pieces:
        at += len(piece)
        if at > rows:
            break
        yield piece
    if at != rows:
        raise pa.ArrowInvalid("a column has more or fewer rows than the file says")


def typed(pieces: Iterable[pa.Array], of: pa.DataType, rows: int, place: str) -> Cells:
    """The cells of a column that has a type."""
    if pa.types.is_dictionary(of):
        plain = [_checked(_decoded(piece).cast(pa.string())) for piece in pieces]
        return _coded([piece.dictionary_encode() for piece in plain], "category")
    if _is_text(of):
        return _coded([_checked(piece.cast(pa.string())).dictionary_encode() for piece in pieces])
    date = pa.types.is_date(of) or pa.types.is_timestamp(of)
    whole = pa.types.is_integer(of) or pa.types.is_boolean(of)
    if not (
        date or whole or pa.types.is_floating(of) or pa.types.is_decimal(of) or of == pa.null()
    ):
        fault = f"{place} ({shown(of, 60)}) must hold numbers, words or dates; change its type"
        return Cells(np.zeros(0), fault=fault)
    made, at = np.empty(rows), 0
    for piece in pieces:
        made[at : at + len(piece)] = _seconds(piece) if date else _floats(piece)
        at += len(piece)
    form = "date" if date else "number"
    return Cells(made, form=form, whole=whole, spelled=partial(spell, made, form, whole))


def _is_text(of: pa.DataType) -> bool:
    text = pa.types.is_string(of) or pa.types.is_large_string(of) or pa.types.is_string_view(of)
    return bool(text)


def _decoded(piece: pa.DictionaryArray) -> pa.Array:
    words = (
        piece.dictionary.cast(pa.string()) if _is_text(piece.type.value_type) else piece.dictionary
    )
    return words.take(piece.indices)


def _checked(piece: pa.Array) -> pa.Array:
    """The piece, if all of it is UTF-8."""
    piece.validate(full=True)
    return piece


def _floats(piece: pa.Array) -> Shaped[np.ndarray, " rows"]:
    if pa.types.is_boolean(piece.type):
        piece = piece.cast(pa.int8())
    return to_numpy(piece.cast(pa.float64(), safe=False))


def _seconds(piece: pa.Array) -> Shaped[np.ndarray, " rows"]:
    seconds = piece.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
    return to_numpy(seconds.cast(pa.float64(), safe=False))


def spell(numbers: Float64[np.ndarray, " rows"], form: str, whole: bool) -> Cells:
    """Numbers or dates as words."""
    different, codes = np.unique(numbers, return_inverse=True)
    if form == "date":
        words = [str(one) for one in different.astype("M8[s]")]
    else:
        words = [str(int(n)) if whole and math.isfinite(n) else str(n) for n in different.tolist()]
    words = ["" if word in ("nan", "NaT") else word for word in words]
    return Cells(codes=codes.astype(np.int32), words=strings(words))


def coded(cells: Sequence[str], form: str = "") -> Cells:
    """Cells that are text as codes of words."""
    return _coded([strings(cells).dictionary_encode()], form)


# -------------------------------------------------------------------------- frames of any library


def read_frame(frame: Any) -> list[tuple[str, Array, bool]] | None:  # noqa: ANN401 -- of any library
    """Each column of a frame: its name, its cells, and whether it is a category.

    None where Arrow cannot take it: for a frame of pandas with objects of several types.
    """
    try:
        table = pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError):
        return None
    return [
        (name, _array(name, column.combine_chunks()), pa.types.is_dictionary(column.type))
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]


def _array(name: str, column: Any) -> Array:  # noqa: ANN401 -- Arrow
    """Numbers, dates, or words as objects: what `Columns` holds."""
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.chunks else pa.nulls(0, column.type)
    of = column.type
    if pa.types.is_dictionary(of):
        return _array(name, _decoded(column))
    if pa.types.is_integer(of) or pa.types.is_boolean(of) or pa.types.is_floating(of):
        if pa.types.is_boolean(of) and column.null_count:
            return np.array(["" if c is None else str(c) for c in column.to_pylist()], object)
        if column.null_count or pa.types.is_float16(of):
            column = column.cast(pa.float64(), safe=False)
        plain = not column.null_count and not pa.types.is_boolean(of)
        numbers: Array = column.to_numpy(zero_copy_only=plain)
        return numbers
    if pa.types.is_decimal(of) or of == pa.null():
        return to_numpy(column.cast(pa.float64()))
    if pa.types.is_date(of) or pa.types.is_timestamp(of):
        seconds = column.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
        missing = to_numpy(pc.is_null(column))
        return np.where(missing, np.datetime64("NaT", "s"), to_numpy(seconds).astype("M8[s]"))
    if not _is_text(of):
        raise UserError(
            f"{shown(name)} ({shown(of, 60)}) must hold numbers, words or dates; change its type"
        )
    return np.array(["" if cell is None else cell for cell in column.to_pylist()], object)
