"""Predictions as a table: a row for each input, in a csv, jsonl or npy file.

    row,id,input,class,probability,probabilities.cat,probabilities.dog,warning,error

`row` counts inputs from 0, `id` is what a column of ids says or else the name of the file, and
`error` says why an input could not be read. In a csv what has the same parts in every answer (the
probabilities, a box) has a column for each part, and what has others a cell of JSON. A text that a
spreadsheet would take for a formula (=, +, -, @) gets an apostrophe before it: ids and names may
come from a stranger. A jsonl holds texts as they are, and an npy the vectors of texts alone.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from everynet.system import files
from everynet.system.errors import UserError
from everynet.system.wording import shown

SUFFIXES = (".csv", ".jsonl", ".npy")
VECTOR = "embedding"
"""What an answer calls the vector of its input."""
PARTED = ("probabilities", "classes", "box", "code", VECTOR)
"""What has the same parts in every answer of a run."""
FORMULA = re.compile(r"(?![+-]?\d+(\.\d+)?$)[=+\-@\t\r]")
"""How a text begins that a spreadsheet computes; a number is none."""


def is_table(out: str | None) -> bool:
    """Whether the name of a file is that of a table."""
    return Path(out or "").suffix.lower() in SUFFIXES


def require_new(path: Path) -> None:
    """Refuse a file that is there, before anything is computed."""
    if path.exists():
        raise UserError(
            f"--out ({shown(path)}) must not be there yet, because it would be overwritten; name "
            "another file"
        )


def prepare_table(path: Path) -> None:
    """Make the folder of a table that is not there yet, before anything is computed."""
    require_new(path)
    files.make_folder(path.absolute().parent)


def write_table(lines: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write answers, whole or not at all, in the form that the name of the file asks for."""
    if path.suffix.lower() == ".npy":
        files.write(path, _format_vectors(lines, path))
        return
    rows = [
        {"row": row, "id": Path(str(line["input"])).name, **line} for row, line in enumerate(lines)
    ]
    if path.suffix.lower() == ".jsonl":
        text = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
    else:
        text = _format_csv([_part(row) for row in rows])
    files.write(path, text.encode())


def _format_vectors(lines: Sequence[Mapping[str, Any]], path: Path) -> bytes:
    """The vectors of all answers as one array, a row for each input."""
    for line in lines:
        if VECTOR not in line:
            said = line.get("error", "this answer has none; do embeddings=true, or name a .csv")
            raise UserError(
                f"--out ({shown(path)}) must be of answers with vectors: {line['input']}: {said}"
            )
    content = io.BytesIO()
    np.save(content, np.array([line[VECTOR] for line in lines], np.float32))
    return content.getvalue()


def _part(row: Mapping[str, Any]) -> dict[str, Any]:
    """One row with a column for each part of what has parts."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if name in PARTED and isinstance(value, dict | list):
            parts = value if isinstance(value, dict) else dict(enumerate(value))
            found |= {f"{name}.{part}": one for part, one in parts.items()}
        else:
            found[name] = value
    return found


def _format_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    last = ("warning", "error")
    known = dict.fromkeys(name for row in rows for name in row)
    names = [*(name for name in known if name not in last), *last]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_cell(name) for name in names])
    writer.writerows([_cell(row.get(name, "")) for name in names] for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    """A number as it is, a text that is no formula, and anything else as JSON."""
    if isinstance(value, str):
        return f"'{value}" if FORMULA.match(value) else value
    return value if isinstance(value, int | float) else json.dumps(value, allow_nan=False)
