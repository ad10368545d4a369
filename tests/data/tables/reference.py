"""The rules of tables written cell by cell, without Arrow: the reference of a property test."""

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from types import SimpleNamespace

import numpy as np

from everynet.data.tables.csv_lines import _lines, is_number
from everynet.system.errors import UserError
from everynet.system.wording import shown

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
"""What stands for no value, in capital letters too."""
# A point may stand between thousands where that is plain: 1.234,5 or 1.234.567, but not 1.234.
_COMMAS = re.compile(r"[+-]?(\d+(,\d+)?|\d{1,3}(\.\d{3})+,\d+|\d{1,3}(\.\d{3}){2,})([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+")
_POINTS_OF_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")
_DATE = re.compile(
    r"(?:(\d{4})-(\d{1,2})-(\d{1,2})|(\d{1,2})[./](\d{1,2})[./](\d{4}))"
    r"(?:[T ](\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
)


def chunks(file, size=7):
    """The rows below the header, some at a time."""
    lines = _lines(file.path, file.encoding, file.separator)
    next(lines)
    while chunk := list(islice(lines, size)):
        for number, cells in chunk:
            if len(cells) != len(file.header):
                raise UserError(
                    f"{shown(file.path)}: line {number} has {len(cells)} cells, but the header "
                    f"{len(file.header)}"
                )
        yield chunk


@dataclass
class _Forms:
    """How many cells of a column are of which form, and where the first other ones are."""

    filled: int = 0
    points: int = 0
    commas: int = 0
    dates: Counter[str] = field(default_factory=Counter)
    plain_commas: int = 0
    """Cells with a comma that cannot be one of thousands."""
    pointed: tuple[int, str] | None = None
    """The first cell with a point, while every such point may be one of thousands."""
    plain_points: bool = False
    """Whether some cell has a point that cannot."""

    @property
    def of_commas(self) -> bool:
        """Whether these are plainly numbers with decimal commas."""
        return bool(self.plain_commas) and self.points < self.filled == self.commas

    first: dict[str, tuple[int, str]] = field(default_factory=dict)
    """For each form, the first cell that is not of it, with its line."""


def survey(file, names):
    """What each of these columns is: its name and its form, nothing learned yet."""
    seen = {name: _Forms() for name in names}
    where = {name: column for column, name in enumerate(file.header)}
    for lines in chunks(file):
        for name in names:
            _look(seen[name], [cells[where[name]] for _, cells in lines], lines)
    of_commas = any(one.of_commas for one in seen.values())  # a file is written in one way
    return [_decided(file, name, seen[name], of_commas) for name in names]


def _floats(cells):
    """Cells as numbers with decimal points; ValueError where one is none, as 1_2."""
    if any("_" in cell for cell in cells):
        raise ValueError("1_2 is a number for Python alone")
    return np.array(cells).astype(np.float64)


def _look(seen, cells, lines):
    try:
        if np.isfinite(_floats(cells)).all():
            seen.filled += len(cells)
            seen.points += len(cells)
            pointed = [place for place, cell in enumerate(cells) if "." in cell]
            seen.commas += len(cells) - len(pointed)
            seen.first.setdefault("date", (lines[0][0], cells[0]))
            if pointed:
                first = lines[pointed[0]][0], cells[pointed[0]]
                seen.first.setdefault("comma", first)
                seen.pointed = seen.pointed or first
                seen.plain_points = seen.plain_points or not all(
                    _POINTS_OF_THOUSANDS.fullmatch(cells[place].strip()) for place in pointed
                )
            return
    except ValueError:
        pass
    strange: dict[str, set[str]] = {"number": set(), "comma": set(), "date": set()}
    for cell, count in Counter(cells).items():
        bare = cell.strip()
        if bare.lower() in MISSING:
            continue
        seen.filled += count
        points = is_number(bare) and math.isfinite(float(bare))
        commas = _COMMAS.fullmatch(bare) is not None and math.isfinite(_of_comma(bare))
        orders = _orders(bare)
        seen.points += count * points
        seen.commas += count * commas
        seen.plain_commas += count * ("," in bare and commas and not _THOUSANDS.fullmatch(bare))
        if points and "." in bare and not _POINTS_OF_THOUSANDS.fullmatch(bare):
            seen.plain_points = True
        for order in orders:
            seen.dates[order] += count
        for form, fits in (("number", points), ("comma", commas), ("date", bool(orders))):
            if not fits:
                strange[form].add(cell)
    if not seen.pointed and not seen.plain_points:
        seen.pointed = next(
            ((number, cell) for (number, _), cell in zip(lines, cells, strict=True) if "." in cell),
            None,
        )
    for form, others in strange.items():
        if others and form not in seen.first:
            seen.first[form] = next(
                (number, cell)
                for (number, _), cell in zip(lines, cells, strict=True)
                if cell in others
            )


def _orders(cell: str) -> list[str]:
    """The orders of year, month and day in which a cell is a date."""
    found = _DATE.fullmatch(cell)
    if not found:
        return []
    orders = ("ymd",) if found[1] else ("dmy", "mdy")
    return [order for order in orders if _seconds(cell, order) is not None]


def _seconds(cell: str, order: str) -> float | None:
    """A date as seconds since 1970, in the clock it is written in; None where it is none."""
    found = _DATE.fullmatch(cell)
    if not found or (order == "ymd") != bool(found[1]):
        return None
    given = dict(zip(order, found.groups()[:3] if found[1] else found.groups()[3:6], strict=True))
    hour, minute, second = (int(part or 0) for part in found.groups()[6:9])
    try:
        day = datetime(int(given["y"]), int(given["m"]), int(given["d"]))
        moment = day.replace(hour=hour, minute=minute, second=second)
    except ValueError:
        return None
    return (moment - datetime(1970, 1, 1)).total_seconds()


def _decided(file, name, seen, of_commas):
    """What a column is; `of_commas` where another column plainly has decimal commas."""
    place = f"{shown(file.path)}: column {shown(name)}"
    if not seen.filled:
        return {"name": name, "form": "empty"}
    if seen.points == seen.filled:
        if of_commas and seen.pointed and not seen.plain_points:
            raise _two_ways(place, *seen.pointed, ".")
        return {"name": name, "form": "number", "decimal": "."}
    if seen.commas == seen.filled:
        if not seen.plain_commas and not of_commas:
            raise _two_ways(place, *seen.first["number"], ",")
        return {"name": name, "form": "number", "decimal": ","}
    orders = [order for order, count in seen.dates.items() if count == seen.filled]
    if len(orders) > 1:
        raise UserError(
            f"{place} holds dates that may begin with the day or the month; write them as "
            f"2024-05-31, or leave the column out with drop={shown(name)}"
        )
    if orders:
        return {"name": name, "form": "date", "order": orders[0]}
    for form, count, what in (
        ("number", seen.points, "number"),
        ("comma", seen.commas if seen.plain_commas else 0, "number"),
        ("date", max(seen.dates.values(), default=0), "date"),
    ):
        if 2 * count > seen.filled:
            line, cell = seen.first[form]
            raise _unlike(
                file, line, name, cell, what, f", or the column out with drop={shown(name)}"
            )
    return {"name": name, "form": "category"}


def _two_ways(place: str, line: int, cell: str, sign: str) -> UserError:
    bare, decimal = cell.strip(), "," if sign == "." else "."
    return UserError(
        f"{place}, line {line} ({shown(cell, 40)}) can be read in two ways; write "
        f"{bare.replace(sign, '')} or {bare.replace(sign, decimal, 1)}"
    )


def _unlike(  # noqa: PLR0917 -- all of it is said
    file, line: int, column: str, cell: str, what: str, or_else: str = ""
) -> UserError:
    place = f"{shown(file.path)}: line {line}, column {shown(column)}"
    if what == "number" and is_number(cell) and cell.strip().lower() not in MISSING:
        return UserError(f"{place} ({shown(cell, 40)}) must be a finite number")
    return UserError(
        f"{place} ({shown(cell, 40)}) must be a {what}, as others of its column are; leave it "
        f"empty where none is known{or_else}"
    )


# ------------------------------------------------------------------------------------ its cells


def gather(file, treatments):
    """The cells of these columns, each by its form."""
    there = {name: column for column, name in enumerate(file.header)}
    found = [[] for _ in treatments]
    codes = [{} for _ in treatments]
    for lines in chunks(file):
        for number, treatment in enumerate(treatments):
            column = there[treatment["name"]]
            cells = [row[column] for _, row in lines]
            found[number].append(_parsed(file, treatment, cells, lines, codes[number]))
    return [
        SimpleNamespace(numbers=np.concatenate(parts) if parts else np.zeros(0), names=list(names))
        for parts, names in zip(found, codes, strict=True)
    ]


def _parsed(file, treatment, cells, lines, codes):
    form = treatment["form"]
    if form == "category":
        bare = [cell.strip() for cell in cells]
        known = [
            -1 if cell.lower() in MISSING else codes.setdefault(cell, len(codes)) for cell in bare
        ]
        return np.array(known, np.int32)
    if form == "number" and treatment["decimal"] == ".":
        try:
            x = _floats(cells)
            if np.isfinite(x).all():
                return x
        except ValueError:
            pass
    values: dict[str, float] = {}
    for cell in set(cells):
        value = _value(cell.strip(), treatment)
        if value is None:
            at = next(
                number for (number, _), other in zip(lines, cells, strict=True) if other == cell
            )
            raise _unlike(file, at, treatment["name"], cell, form)
        values[cell] = value
    made = np.array([values[cell] for cell in cells])
    if "median" in treatment and treatment["median"] is None and np.isnan(made).any():
        at = lines[int(np.isnan(made).argmax())][0]
        raise UserError(
            f"{shown(file.path)}: line {at}, column {shown(treatment['name'])} is empty; fill it "
            "in or leave the row out"
        )
    return made


def _of_comma(cell: str) -> float:
    """A number that is written with a decimal comma."""
    return float(cell.replace(".", "").replace(",", "."))


def _value(cell, treatment):
    """A cell as a number, NaN where it is missing, None where it is something else."""
    if cell.lower() in MISSING:
        return math.nan
    if treatment["form"] == "date":
        return _seconds(cell, treatment["order"])
    if treatment["decimal"] == ",":
        if not _COMMAS.fullmatch(cell):
            return None
        value = _of_comma(cell)
        return value if math.isfinite(value) else None
    return float(cell) if is_number(cell) and math.isfinite(float(cell)) else None
