"""Texts in named columns: a csv or tsv with a header, or a JSON object on each line.

    label,text                     {"text": "a fine film", "label": "good"}
    good,"a fine film, and short"

Which column holds the texts and which their classes is said by name, or plain where one column is
of sentences and one of few values. In a tsv a quote is a character like any other.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from everynet.data.paths import kind as kind_of_path
from everynet.data.texts.lines import LOOKED, LOOKED_AT, check_length, cut, filled, read
from everynet.system.errors import UserError
from everynet.system.wording import nearest, shown

SUFFIXES = (".csv", ".tsv", ".jsonl")
MOST_CLASSES = 50
"""A column with more values than this is of no classes."""
_SEPARATORS = ",;\t"


class Columns(NamedTuple):
    """The names of the columns of texts and of their classes."""

    text: str
    target: str


Row = tuple[int, dict[str, str]]
"""The number of its line, and its cells by column."""


def few(values: Sequence[str]) -> bool:
    """Whether values are so few that they look like classes."""
    found = len(set(values))
    return found <= MOST_CLASSES and 2 * found < len(values)


def look(path: Path) -> list[dict[str, str]]:
    """The first rows of a file with named columns; nothing where it is none, or unreadable."""
    if path.suffix.lower() not in SUFFIXES:
        return []
    try:
        if kind_of_path(path) != "file":
            return []
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
            content = stream.read(LOOKED_AT)
        whole = content if len(content) < LOOKED_AT else content.rpartition("\n")[0]
        return [cells for _, cells in islice(_rows(path, whole), LOOKED)]
    except (UserError, OSError, ValueError):
        return []


def plain(rows: Sequence[dict[str, str]], text: str = "", target: str = "") -> Columns | None:
    """The columns that are named, or else the only one of sentences and the only one of classes."""
    columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
    classes = [name for name, cells in columns.items() if few(cells) and name != text]
    others = {name: cells for name, cells in columns.items() if name not in (target, *classes)}
    spaced = {n: sum(" " in cell.strip() for cell in cells) for n, cells in others.items()}
    texts = [name for name, count in spaced.items() if 2 * count > len(rows)]
    texts, classes = [text] if text else texts, [target] if target else classes
    return Columns(texts[0], classes[0]) if len(texts) == len(classes) == 1 else None


def looks_labelled(path: Path) -> bool:
    """Whether a file has one column of texts, one of classes and, beside them, numbers of rows."""
    rows = look(path)
    found = plain(rows)
    if found is None or (path.suffix.lower() != ".jsonl" and not _is_header(rows, found)):
        return False
    others = [name for name in rows[0] if name not in found]
    return all(len({row[name] for row in rows}) == len(rows) for name in others)


def has_header(path: Path, *names: str) -> bool:
    """Whether the first line names columns: these, or those of what is plain."""
    if path.suffix.lower() in (".csv", ".jsonl"):
        return True
    rows = look(path)
    found = plain(rows)
    given = any(name in row for row in rows[:1] for name in names if name)
    return given or (found is not None and _is_header(rows, found))


def _is_header(rows: Sequence[dict[str, str]], found: Columns) -> bool:
    """Whether the names of columns are no sample: the one a sentence, the other a class."""
    return " " not in found.text.strip() and all(row[found.target] != found.target for row in rows)


def read_rows(path: Path) -> list[Row]:
    """Every row of a file."""
    rows = [*_rows(path, read(path))]
    if not rows:
        raise UserError(f"{shown(path)} must hold a line for each text, and holds none")
    return rows


def _rows(path: Path, content: str) -> Iterator[Row]:
    if path.suffix.lower() == ".jsonl":
        yield from _objects(path, content)
        return
    first = content.partition("\n")[0]
    lines = io.StringIO(content, newline="")
    reader = (
        csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        if path.suffix.lower() == ".tsv"
        else csv.reader(lines, delimiter=max(_SEPARATORS, key=first.count), strict=True)
    )
    names = [name.strip() for name in _next(path, reader) or []]
    if len(set(names)) < len(names) or "" in names:
        twice = next(name for name in names if not name or names.count(name) > 1)
        raise UserError(f"{shown(path)}: column {shown(twice, 60)!r} must have a name of its own")
    while (cells := _next(path, reader)) is not None:
        number = reader.line_num
        if not any(cell.strip() for cell in cells):
            raise UserError(f"{shown(path)}: line {number} is empty; fill it in or leave it out")
        if len(cells) != len(names):
            raise UserError(
                f"{shown(path)}: line {number} has {len(cells)} columns, but the first line has "
                f"{len(names)}"
            )
        yield number, dict(zip(names, cells, strict=True))


def _next(path: Path, reader: Iterator[list[str]]) -> list[str] | None:
    try:
        return next(reader, None)
    except csv.Error as error:
        number = getattr(reader, "line_num", 0)
        raise UserError(f"{shown(path)}: line {number}: {error}") from None


def _objects(path: Path, content: str) -> Iterator[Row]:
    names: list[str] = []
    for number, line in enumerate(filled(path, cut(content)), 1):
        place = f"{shown(path)}: line {number}"
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{place} must be JSON: {shown(error, 120)}") from None
        if not isinstance(found, dict):
            raise UserError(f'{place} must be an object such as {{"text": "...", "label": "..."}}')
        names = names or [*found]
        cells = {name: _cell(found.get(name), name, place) for name in names}
        yield (
            number,
            cells | {name: str(value) for name, value in found.items() if name not in cells},
        )


def _cell(value: object, name: str, place: str) -> str:
    """A value as text; one that is no plain value cannot be a text or a class."""
    if not isinstance(value, str | int | float | None):
        raise UserError(f"{place}: {shown(name, 60)} must be a text or a number")
    return "" if value is None else str(value)


def find_columns(path: Path, rows: Sequence[Row], text: str = "", target: str = "") -> Columns:
    """Those that are named, or else those that are plain; what cannot be told is refused."""
    names = [*rows[0][1]]
    for option, name in (("text", text), ("target", target)):
        if name and name not in names:
            known = nearest(name, names)
            raise UserError(
                f"{option} ({shown(name, 60)}) must be a column of {shown(path)}{known}"
            )
    cells = [cells for _, cells in rows]
    found = plain(cells[:LOOKED], text, target)
    if found is None or found.text == found.target:
        raise UserError(
            f"{shown(path)} has the columns {shown(', '.join(names), 200)}: name that of the texts "
            "by text= and that of their classes by target="
        )
    guessed = not (text or target) and path.suffix.lower() != ".jsonl"
    if guessed and not _is_header(cells, found):
        raise UserError(
            f"{shown(path)}: line 1 must name the columns, such as label,text, because it is no "
            "sample; put such a line before it"
        )
    return found


def column(path: Path, rows: Sequence[Row], name: str) -> list[str]:
    """The cells of a column, none of them empty or too long."""
    found = []
    for number, cells in rows:
        if not cells.get(name, "").strip():
            raise UserError(f"{shown(path)}: line {number}: {shown(name, 60)} is empty; fill it in")
        check_length(path, number, cells[name])
        found.append(cells[name])
    return found


def read_texts(path: Path, name: str) -> tuple[list[str], list[str]]:
    """The column of texts that a network learned from, with the place of each."""
    rows = read_rows(path)
    if name not in rows[0][1]:
        raise UserError(
            f"{shown(path)} must have a column {shown(name, 60)}, which the network learned from"
            + nearest(name, rows[0][1])
        )
    return [f"{path}:{number}" for number, _ in rows], column(path, rows, name)
