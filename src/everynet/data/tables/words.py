"""What words are: numbers, dates or neither; the rules for all different words of a column at once.

number    1200, 1.5e3; with a decimal comma 1.234,5; with a sign 5 %, $1200, 12.50 EUR
date      2024-05-31, 31.05.2024 or 5/31/2024, perhaps with a time

Whether a column of them may be taken so is decided in `cells.py`. This file imports pyarrow.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Float64, Shaped

from everynet.system.errors import UserError

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
"""What stands for no value, in capital letters too."""
_SPACE = " \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005"
_SPACE += "\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"  # what `str.strip` takes
_POINTS = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
# A point may stand between thousands where that is plain: 1.234,5 or 1.234.567, but not 1.234.
_COMMAS = r"[+-]?(\d+(,\d+)?|\d{1,3}(\.\d{3})+,\d+|\d{1,3}(\.\d{3}){2,})([eE][+-]?\d+)?"
_THOUSANDS = r"[+-]?\d{1,3}(,\d{3})+"
_POINTS_OF_THOUSANDS = r"[+-]?[1-9]\d{0,2}(\.\d{3})+"
_DATE = (
    r"(?:(?P<y>\d{4})-(?P<m>\d{1,2})-(?P<d>\d{1,2})|(?P<a>\d{1,2})[./](?P<b>\d{1,2})[./](?P<c>\d{4}))"
    r"(?:[T ](?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.\d+)?)?"
    r"(?:Z|[+-]\d{2}:?\d{2})?)?"
)
ORDERS = {"ymd": "ymd", "dmy": "cba", "mdy": "cab"}
"""For each order of a date the parts of `_DATE` that are year, month and day."""
_CURRENCY = r"[$€£¥₹]|USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|SEK|NOK|DKK|PLN|CZK|BRL|MXN|KRW|ZAR"
_SIGNED = (
    rf"(?P<minus>[+-]?)(?P<before>(?:{_CURRENCY})?)\s*(?P<number>[+-]?[.]?\d.*?)"
    rf"\s*(?P<after>(?:%|{_CURRENCY})?)"
)


class Words:
    """The different words of a column, each an array of its own length over them."""

    def __init__(self, words: Any, marks: Collection[str] = ()) -> None:  # noqa: ANN401 -- Arrow
        self.cells = words
        self.bare = pc.utf8_trim(words, characters=_SPACE)
        """Without spaces around them."""
        lower = pc.utf8_lower(self.bare)
        known = strings(sorted(MISSING | {mark.strip().lower() for mark in marks}))
        self.missing = _truths(pc.is_in(lower, value_set=known))

    def __len__(self) -> int:
        return len(self.cells)

    @cached_property
    def _plain(self) -> Any:  # noqa: ANN401 -- Arrow
        """The words with the digits 0 to 9 for those of any script."""
        foreign = np.flatnonzero(_matches(self.bare, r"[^\P{Nd}0-9]"))
        if not len(foreign):
            return self.bare
        made = self.bare.to_pylist()
        for place in foreign.tolist():
            made[place] = "".join(
                str(unicodedata.decimal(c)) if c.isdecimal() else c for c in made[place]
            )
        return strings(made)

    @cached_property
    def _numeric(self) -> tuple[Shaped[np.ndarray, " some"], Any]:
        """The places of words that begin as a number or a date does, and these words."""
        places = np.flatnonzero(_matches(self._plain, r"^[+-]?[.]?\d") & ~self.missing)
        return places, self._plain.take(_places(places))

    def _spread(
        self, places: Shaped[np.ndarray, " some"], values: Shaped[np.ndarray, " some"]
    ) -> Float64[np.ndarray, " words"]:
        made = np.full(len(self), np.nan)
        made[places] = values
        return made

    @cached_property
    def points(self) -> Float64[np.ndarray, " words"]:
        """Numbers with a decimal point; NaN where a word is none, or too large for one."""
        places, words = self._numeric
        of_form = _matches(words, _whole(_POINTS))
        values = _floats(words.filter(mask(of_form)))
        return self._spread(places[of_form], np.where(np.isfinite(values), values, np.nan))

    @cached_property
    def commas(self) -> Float64[np.ndarray, " words"]:
        """Numbers with a decimal comma; NaN where a word is none, or too large for one."""
        places, words = self._numeric
        of_form = _matches(words, _whole(_COMMAS))
        plain = pc.replace_substring(words.filter(mask(of_form)), ".", "")
        values = _floats(pc.replace_substring(plain, ",", "."))
        return self._spread(places[of_form], np.where(np.isfinite(values), values, np.nan))

    @property
    def plain_commas(self) -> Bool[np.ndarray, " words"]:
        """Numbers with a comma that cannot be one of thousands."""
        with_comma = _truths(pc.match_substring(self._plain, ","))
        thousands = _matches(self._plain, _whole(_THOUSANDS))
        plain: Bool[np.ndarray, " words"] = with_comma & ~np.isnan(self.commas) & ~thousands
        return plain

    @property
    def pointed(self) -> Bool[np.ndarray, " words"]:
        """Numbers with a point, of a fraction or of thousands."""
        with_point = _truths(pc.match_substring(self._plain, "."))
        pointed: Bool[np.ndarray, " words"] = with_point & ~np.isnan(self.points)
        return pointed

    @property
    def plain_points(self) -> Bool[np.ndarray, " words"]:
        """Numbers with a point that cannot be one of thousands."""
        thousands = _matches(self._plain, _whole(_POINTS_OF_THOUSANDS))
        plain: Bool[np.ndarray, " words"] = self.pointed & ~thousands
        return plain

    @cached_property
    def dates(self) -> dict[str, Float64[np.ndarray, " words"]]:
        """Seconds since 1970 by each order of year, month and day, in the clock of the word."""
        places, words = self._numeric
        of_form = _matches(words, _whole(_DATE))
        found = pc.extract_regex(words.filter(mask(of_form)), _whole(_DATE))
        parts = {
            name: _integers(pc.struct_field(found, name))
            for name in ("y", "m", "d", "a", "b", "c", "hour", "minute", "second")
        }
        year_first = _truths(pc.not_equal(pc.struct_field(found, "y"), _NONE))
        made = {}
        for order, names in ORDERS.items():
            year, month, day = (parts[name] for name in names)
            seconds = _seconds(year, month, day, parts)
            fits = year_first == (order == "ymd")
            made[order] = self._spread(places[of_form], np.where(fits, seconds, np.nan))
        return made

    @cached_property
    def signs(self) -> tuple[Shaped[np.ndarray, " words"], Words]:
        """The sign of each word that is a number with one, else an empty word; and the numbers."""
        found = pc.extract_regex(self._plain, _whole(_SIGNED))
        before, after = (
            pc.fill_null(pc.struct_field(found, n), _NONE) for n in ("before", "after")
        )
        alone = _truths(pc.equal(before, _NONE)) ^ _truths(pc.equal(after, _NONE))
        signs = pc.binary_join_element_wise(before, after, _NONE)
        numbers = pc.binary_join_element_wise(
            *(pc.fill_null(pc.struct_field(found, name), _NONE) for name in ("minus", "number")),
            _NONE,
        )
        numbers = pc.if_else(mask(alone), numbers, _NONE)
        return np.where(alone, np.array(signs.to_pylist(), object), ""), Words(numbers)

    @property
    def mean_words(self) -> float:
        """How many words a cell has that is not missing, in the mean over different cells."""
        spaces = to_numpy(pc.count_substring_regex(self.bare, r"\s+"))
        return float((1 + spaces[~self.missing]).mean()) if (~self.missing).any() else 0.0


# `pa.array` and `to_numpy` of Arrow would import pandas, where that is installed


def to_numpy(column: Any) -> Shaped[np.ndarray, " rows"]:  # noqa: ANN401 -- Arrow
    """Truths or numbers; what is missing is NaN, -1 of whole numbers and false of truths."""
    there, content = column.buffers()

    def bits(buffer: Any) -> Bool[np.ndarray, " rows"]:  # noqa: ANN401 -- Arrow
        end = column.offset + len(column)
        unpacked = np.unpackbits(np.frombuffer(buffer, np.uint8), count=end, bitorder="little")
        return unpacked[column.offset :].astype(bool)

    values: Shaped[np.ndarray, " rows"]
    nothing: float
    if pa.types.is_boolean(column.type):
        values, nothing = bits(content), False
    else:
        kind = np.dtype(str(column.type))
        start = column.offset * kind.itemsize
        values = np.frombuffer(content, kind, len(column), start)
        nothing = math.nan if kind.kind == "f" else -1
    return (
        np.where(bits(there), values, values.dtype.type(nothing)) if column.null_count else values
    )


def strings(cells: Sequence[str]) -> pa.StringArray:
    """Text as an array of Arrow."""
    content = [cell.encode("utf-8", "replace") for cell in cells]
    ends = np.cumsum([0, *map(len, content)])
    if ends[-1] > np.iinfo(np.int32).max:
        raise UserError("a column of text must take less than 2 GB; give fewer rows")
    buffers = pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(content))
    return pa.StringArray.from_buffers(len(content), *buffers)


_NONE, _ZERO = strings(["", "0"])


def mask(marked: Bool[np.ndarray, " words"]) -> pa.BooleanArray:
    """Truths as an array of Arrow."""
    bits = pa.py_buffer(np.packbits(marked, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(marked), [None, bits])


def _places(numbers: Shaped[np.ndarray, " some"]) -> pa.Int64Array:
    buffer = pa.py_buffer(numbers.astype(np.int64))
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, buffer])


def _whole(pattern: str) -> str:
    return rf"\A(?:{pattern})\z"


def _truths(found: Any) -> Bool[np.ndarray, " words"]:  # noqa: ANN401 -- Arrow
    return to_numpy(found)


def _matches(words: Any, pattern: str) -> Bool[np.ndarray, " words"]:  # noqa: ANN401 -- Arrow
    return _truths(pc.match_substring_regex(words, pattern))


def _floats(words: Any) -> Float64[np.ndarray, " words"]:  # noqa: ANN401 -- Arrow
    return to_numpy(words.cast(pa.float64()))


def _integers(words: Any) -> Shaped[np.ndarray, " words"]:  # noqa: ANN401 -- Arrow
    filled = pc.if_else(pc.equal(words, _NONE), _ZERO, words)
    return to_numpy(filled.cast(pa.int64()))


def _seconds(
    year: Shaped[np.ndarray, " words"],
    month: Shaped[np.ndarray, " words"],
    day: Shaped[np.ndarray, " words"],
    clock: dict[str, Shaped[np.ndarray, " words"]],
) -> Float64[np.ndarray, " words"]:
    """Seconds since 1970; NaN where there is no such day or time."""
    hour, minute, second = (clock[name] for name in ("hour", "minute", "second"))
    months = (12 * (year - 1970) + month - 1).astype("M8[M]")
    days = months.astype("M8[D]") + (day - 1)
    there = (year > 0) & (month > 0) & (month < 13) & (day > 0) & (days.astype("M8[M]") == months)
    there &= (hour < 24) & (minute < 60) & (second < 60)
    seconds = days.astype(np.int64) * 86_400 + hour * 3600 + minute * 60 + second
    return np.where(there, seconds.astype(np.float64), np.nan)
