"""The cells of a table by their columns: what a column is, and its cells as numbers or codes.

A column is of numbers where most of its cells are, and then a word in it is a mistake that is
named by its line; what can be read in two ways is refused, never guessed. What words may be is in
`words.py`, which looks at each different one once.

number    numbers, all with one sign if any has one (5 %, $1200); what is missing is NaN
date      seconds since 1970
text      many different cells of several words
category  any other words; and a column whose type says so, whatever it holds
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float64, Int32, Int64, Shaped

from everynet.data.tables.csv_lines import is_number
from everynet.system.errors import UserError
from everynet.system.wording import shown

if TYPE_CHECKING:
    import hashlib

    from everynet.data.tables.words import Words

_LEAST_TEXTS, _LEAST_WORDS = 20, 4
"""A column of sentences has so many different cells, half of its rows, of so many words."""

Treatment: TypeAlias = dict[str, Any]
"""A column as plain JSON: its name, its form, and what was learned of it."""


@dataclass(frozen=True)
class Cells:
    """The cells of one column: numbers with NaN, or else codes of words, -1 for none."""

    numbers: Float64[np.ndarray, " rows"] | None = None
    codes: Int32[np.ndarray, " rows"] | None = None
    words: Any = None
    """An array of Arrow, in the order in which they first occur."""
    form: str = ""
    """What the column is by its type; empty where its words tell."""
    whole: bool = False
    """Whether no number is written with a point, a comma or an exponent."""
    spelled: Callable[[], Cells] | None = None
    """Gives the numbers of a column that has a type as words."""
    fault: str = ""
    """Why the column cannot be read; empty where it can."""

    def __len__(self) -> int:
        held = self.codes if self.numbers is None else self.numbers
        return 0 if held is None else len(held)

    @cached_property
    def counts(self) -> Int64[np.ndarray, " words"]:
        """How many cells each word has."""
        assert self.codes is not None
        total = np.zeros(len(self.words) + 1, np.int64)  # the last one is of -1
        for start in range(0, len(self.codes), 2**18):  # takes little memory
            np.add.at(total, self.codes[start : start + 2**18], 1)
        return total[:-1]


@runtime_checkable
class Source(Protocol):
    """A table that is read by its columns, from a file or from memory."""

    @property
    def path(self) -> Path: ...

    @property
    def header(self) -> tuple[str, ...]: ...

    @property
    def stored(self) -> bool:
        """Whether it is a file that holds its columns one by one."""
        ...

    def cells(self, names: Collection[str], words: Collection[str] = ()) -> Mapping[str, Cells]:
        """These columns; those of `words` are not made into numbers where they hold text."""
        ...

    def pieces(self, names: Collection[str], rows: int) -> Iterator[tuple[slice, Source]]:
        """These columns of a table that is stored, at most so many rows at a time."""
        ...

    def places(self, rows: Sequence[int]) -> Sequence[str]:
        """How a person finds these rows: `line 7`, `row 5`."""
        ...

    def forget(self) -> None:
        """Let go of the columns that were read."""
        ...

    def hashed(self) -> hashlib._Hash: ...


class Values:
    """One column: numbers (seconds, for a date) with NaN, or codes with -1 and their names.

    Of a large file that is stored by its columns they are read again whenever they are asked for.
    """

    def __init__(
        self,
        numbers: Shaped[np.ndarray, " rows"] | None = None,
        names: Sequence[str] = (),
        load: Callable[[], Values] | None = None,
    ) -> None:
        self._numbers, self._load, self.names = numbers, load, names

    @property
    def stored(self) -> bool:
        """Whether they are read whenever they are asked for."""
        return self._load is not None

    @property
    def numbers(self) -> Shaped[np.ndarray, " rows"]:
        if self._numbers is not None:
            return self._numbers
        assert self._load is not None
        return self._load().numbers


class Faults(UserError):
    """Several columns that are wrong: says the first, and where the others are listed."""

    def __init__(self, found: Sequence[str], path: Path) -> None:
        self.found = tuple(found)
        more = len(found) - 1
        listed = f"; and {more} more: everynet data check {shown(path)} target=... lists them"
        super().__init__(found[0] + listed * (more > 0))


# ------------------------------------------------------------------------------ what a column is


def survey(file: Source, names: Sequence[str], marks: Sequence[str] = ()) -> list[Treatment]:
    """What each of these columns is: its name and its form, nothing learned yet.

    `marks` stand for no value, beside those that always do.
    """
    together = [[name] for name in names] if file.stored else [[*names]]
    found = {
        name: _Column(file, name, cells, marks)
        for some in together
        for name, cells in file.cells(some).items()
    }
    of_commas = any(column.of_commas for column in found.values())  # a file is written in one way
    if of_commas:  # then a point may stand between thousands
        pointed = [n for n, c in found.items() if c.words is None and not c.cells.whole]
        for name, cells in file.cells(pointed, pointed).items():
            found[name] = _Column(file, name, cells, marks)
    made: list[Treatment] = []
    faults: list[str] = []
    for name, column in found.items():
        try:
            made.append({"name": name, **column.form(of_commas)})
        except UserError as error:
            faults.append(str(error))
    if faults:
        raise Faults(faults, file.path)
    marked = {"marks": [*marks]} if marks else {}
    return [treatment | marked for treatment in made]


class _Column:
    """How many cells of a column are of which form."""

    def __init__(self, file: Source, name: str, cells: Cells, marks: Sequence[str]) -> None:
        self.file, self.name, self.cells = file, name, cells
        self.words: Words | None = None
        if cells.fault:
            self.filled = 0
        elif cells.numbers is not None:
            self.filled = int(np.count_nonzero(~np.isnan(cells.numbers)))
            self.cells = replace(cells, numbers=None, spelled=None)  # they may be many
        else:
            self.words = _words(cells, marks)
            self.counts = np.where(self.words.missing, 0, cells.counts)
            self.filled = int(self.counts.sum())

    def count(self, values: Float64[np.ndarray, " words"] | Bool[np.ndarray, " words"]) -> int:
        """How many cells have one of these words; of numbers, those that are not NaN."""
        marked = values if values.dtype == bool else ~np.isnan(values)
        return int(self.counts[marked].sum())

    def first(self, marked: Bool[np.ndarray, " words"]) -> tuple[int, str]:
        """The row of the first cell with one of these words, and the cell."""
        code = int(np.argmax(marked & (self.counts > 0)))
        row = int(np.argmax(self.cells.codes == code))
        return row, self.cells.words[code].as_py()

    @cached_property
    def of_commas(self) -> bool:
        """Whether these are plainly numbers with decimal commas."""
        words = self.words
        if words is None or not self.filled or self.cells.form:
            return False
        decimal = self.count(words.points) < self.filled == self.count(words.commas)
        return decimal and bool(self.count(words.plain_commas))

    @property
    def place(self) -> str:
        return f"{shown(self.file.path)}: column {shown(self.name)}"

    @property
    def leave_out(self) -> str:
        return f", or the column out with drop={shown(self.name)}"

    def form(self, of_commas: bool) -> Treatment:  # noqa: PLR0911 -- one for each form
        """What it is; `of_commas` where some column of the file plainly has decimal commas."""
        if self.cells.fault:
            raise UserError(self.cells.fault + self.leave_out)
        if not self.filled:
            return {"form": "empty"}
        if self.cells.form == "date":
            return {"form": "date", "order": "ymd"}
        if self.words is None:
            return {"form": "number", "decimal": "."}
        if self.cells.form == "category":
            return {"form": "category"}
        words = self.words
        if decimal := self.decimal(words, of_commas):
            return {"form": "number", "decimal": decimal}
        dates = {order: self.count(seconds) for order, seconds in words.dates.items()}
        orders = [order for order, count in dates.items() if count == self.filled]
        if len(orders) > 1:
            raise UserError(
                f"{self.place} holds dates that may begin with the day or the month; write them as "
                f"2024-05-31, or leave the column out with drop={shown(self.name)}"
            )
        if orders:
            return {"form": "date", "order": orders[0]}
        if (signed := self.signed(of_commas)) is not None:
            return signed
        commas = words.commas if self.count(words.plain_commas) else np.full(len(words), np.nan)
        best = words.dates[max(dates, key=lambda order: dates[order])]
        for values, what in ((words.points, "number"), (commas, "number"), (best, "date")):
            if 2 * self.count(values) > self.filled:
                others = np.isnan(values) & ~words.missing
                if what == "date":
                    none = np.isnan([*words.dates.values()]).all(0) & ~words.missing
                    others = none if self.count(none) else others  # or in another order
                raise self.unlike(others, what)
        return {"form": "text" if self.is_text else "category"}

    def decimal(self, words: Words, of_commas: bool) -> str:
        """The decimal sign of a column whose filled cells are all numbers, else nothing."""
        if self.count(words.points) == self.filled:
            if of_commas and self.count(words.pointed) and not self.count(words.plain_points):
                raise self.two_ways(words.pointed, ".")
            return "."
        if self.count(words.commas) == self.filled:
            if not self.count(words.plain_commas) and not of_commas:
                raise self.two_ways(np.isnan(words.points), ",")
            return ","
        return ""

    def signed(self, of_commas: bool) -> Treatment | None:
        """A column of numbers that all have the same sign; None where most have none."""
        words = self.words
        assert words is not None
        signs, numbers = words.signs
        numeric = ~np.isnan(numbers.points) | ~np.isnan(numbers.commas)
        counts = {s: self.count((signs == s) & numeric) for s in {*signs.tolist()} - {""}}
        most = max(counts, key=lambda sign: (counts[sign], sign), default="")
        if not most or 2 * counts[most] <= self.filled:
            return None
        if counts[most] < self.filled:
            raise self.unlike(~((signs == most) & numeric), f"number with {most}")
        decimal = self.decimal(numbers, of_commas)
        if not decimal:
            raise self.unlike(np.isnan(numbers.points), f"number with {most} and a decimal point")
        return {"form": "number", "decimal": decimal, "sign": most}

    @property
    def is_text(self) -> bool:
        assert self.words is not None
        different = int(np.count_nonzero(self.counts))
        many = different >= max(_LEAST_TEXTS, self.filled / 2)
        return many and self.words.mean_words >= _LEAST_WORDS

    def two_ways(self, marked: Bool[np.ndarray, " words"], sign: str) -> UserError:
        row, cell = self.first(marked & (self.counts > 0))
        bare, decimal = shown(cell.strip(), 40), "," if sign == "." else "."
        return UserError(
            f"{self.place}, {self.file.places([row])[0]} ({shown(cell, 40)}) can be read in two "
            f"ways; write {bare.replace(sign, '')} or {bare.replace(sign, decimal, 1)}"
        )

    def unlike(self, marked: Bool[np.ndarray, " words"], what: str) -> UserError:
        row, cell = self.first(marked)
        place = f"{shown(self.file.path)}: {self.file.places([row])[0]}, column {shown(self.name)}"
        return UserError(place + _unlike(cell, what, self.leave_out))


def _words(cells: Cells, marks: Sequence[str]) -> Words:
    from everynet.data.tables.words import Words  # noqa: PLC0415 -- pyarrow

    return Words(cells.words, marks)


# ------------------------------------------------------------------------------------ its cells


def gather(
    file: Source, treatments: Sequence[Treatment], faults: dict[int, str] | None = None
) -> list[Values]:
    """The cells of these columns, each by its form.

    What is wrong with a cell is raised, or said of its row where there are `faults` for it.
    """
    worded = [treatment["name"] for treatment in treatments if _of_words(treatment)]
    if not file.stored:
        read = file.cells([treatment["name"] for treatment in treatments], worded)
        return [_parse(file, each, read[each["name"]], faults) for each in treatments]

    def load(treatment: Treatment) -> Values:
        name = treatment["name"]
        return _parse(file, treatment, file.cells([name], worded)[name], faults)

    return [
        Values(load=partial(load, each)) if each["form"] in ("number", "date") else load(each)
        for each in treatments
    ]


def _of_words(treatment: Treatment) -> bool:
    """Whether it takes the words of a column, even where all of them are numbers."""
    return treatment["form"] != "number" or treatment["decimal"] != "." or "sign" in treatment


def _parse(
    file: Source, treatment: Treatment, cells: Cells, faults: dict[int, str] | None
) -> Values:
    """The cells of a column by its form."""
    form, name, marks = treatment["form"], treatment["name"], treatment.get("marks", ())
    if cells.fault:
        raise UserError(cells.fault)
    if form == "empty":
        return Values(np.full(len(cells), math.nan))
    typed = cells.form == form
    if cells.numbers is not None and (typed or not _of_words(treatment)):
        numbers = cells.numbers
        wrong = np.isinf(numbers)
        _refuse(file, name, wrong, lambda row: _infinite(numbers[row]), faults)
    else:
        cells = cells.spelled() if cells.spelled is not None else cells
        words, codes = _words(cells, marks), cells.codes
        assert codes is not None
        if form in ("category", "text"):
            return _categories(words, cells)
        values = _numbers(words, treatment)
        wrong = np.append(np.isnan(values) & ~words.missing, False)[codes]
        what = f"number with {treatment['sign']}" if "sign" in treatment else form
        _refuse(
            file, name, wrong, lambda row: _unlike(words.cells[codes[row]].as_py(), what), faults
        )
        numbers = np.append(values, math.nan)[codes]
    if "median" in treatment and treatment["median"] is None:
        empty = " is empty; fill it in or leave the row out"
        said = _infinite(math.nan) if typed else empty
        _refuse(file, name, np.isnan(numbers) & ~wrong, lambda _: said, faults)
        wrong = wrong | np.isnan(numbers)
    if faults is not None and wrong.any():  # these rows get no answer
        numbers = np.where(wrong, treatment.get("median") or 0.0, numbers)
    return Values(numbers)


def _numbers(words: Words, treatment: Treatment) -> Float64[np.ndarray, " words"]:
    """Each word as a number or a date, NaN where it is missing or something else."""
    if treatment["form"] == "date":
        return words.dates[treatment["order"]]
    if "sign" in treatment:
        signs, numbers = words.signs
        values = numbers.points if treatment["decimal"] == "." else numbers.commas
        return np.where(signs == treatment["sign"], values, math.nan)
    return words.points if treatment["decimal"] == "." else words.commas


def _categories(words: Words, cells: Cells) -> Values:
    """Codes of the words without spaces around them, in the order in which they occur."""
    from everynet.data.tables.words import to_numpy  # noqa: PLC0415 -- pyarrow

    bare = words.bare.dictionary_encode()
    there = np.zeros(len(bare.dictionary), bool)
    of_word = to_numpy(bare.indices)
    there[of_word[~words.missing & (cells.counts > 0)]] = True
    code = np.where(there, np.cumsum(there) - 1, -1).astype(np.int32)
    names = [name for name, kept in zip(bare.dictionary.to_pylist(), there, strict=True) if kept]
    return Values(np.append(code[of_word], np.int32(-1))[cells.codes], names)


def _refuse(
    file: Source,
    name: str,
    wrong: Bool[np.ndarray, " rows"],
    say: Callable[[int], str],
    faults: dict[int, str] | None,
) -> None:
    """Raise what is to be said of the first wrong row, or note it of each."""
    rows = np.flatnonzero(wrong)[: 1 if faults is None else None].tolist()
    for row, where in zip(rows, file.places(rows), strict=True):
        said = f"{shown(file.path)}: {where}, column {shown(name)}{say(row)}"
        if faults is None:
            raise UserError(said)
        faults.setdefault(row, said)


def _infinite(value: float) -> str:
    return f" ({value}) must be a finite number"


def _unlike(cell: str, what: str, or_else: str = "") -> str:
    """What is said of a cell that is not as others of its column are."""
    bare = cell.strip()
    if what == "number" and is_number(cell) and bare.lower() != "nan":
        return f" ({shown(cell, 40)}) must be a finite number"
    mark = 0 < len(bare) < 4 and not any(map(str.isalnum, bare)) and "," not in bare
    return (
        f" ({shown(cell, 40)}) must be a {what}, as others of its column are; leave it empty where "
        "none is known" + f" (missing={bare} takes it for that)" * mark + or_else
    )
