"""What the columns of a table are, and what of them a network is given.

number    its value; where some are missing the median in their place, and a column that says so
category  a column of 0 and 1 for each value that is common enough, and one for all the others
date      year, month, day of the week (Monday is 0) and, where there is one, time in hours
text      weighed counts of its words in buckets (see `sentences.py`)

What was learned of a column (its median, its values) is learned from the training rows, is plain
JSON in `spec["columns"]`, and is applied in the same way to the rows of a prediction. What a column
is, and what its cells are, is found in `cells.py`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Bool, Float64, Int32, Int64, Real, Shaped, UInt8

from everynet.data.split import PARTS
from everynet.data.tables.cells import Source
from everynet.data.tables.cells import Treatment as Treatment  # noqa: PLC0414 -- used beside these
from everynet.data.tables.cells import Values as Values  # noqa: PLC0414
from everynet.data.tables.cells import gather as gather  # noqa: PLC0414
from everynet.data.tables.cells import survey as survey  # noqa: PLC0414
from everynet.system.memory import give_back_holes
from everynet.system.wording import shown

MOST_VALUES = 50
"""The commonest values of a category that are told apart."""
RARE = 3
"""A value in fewer training rows than this is one of the others."""
_AT_ONCE = 2**18  # rows of a column that are treated together
_STRETCH, _NUMBERS = 2**16, 2**24  # rows of all columns, and numbers in them at most
_FEW = 3
"""So many values of a category are named where it is described."""
OTHER, UNSAID = "other", "missing"
LARGE = 2**24
"""Numbers of a table that is held in float32, standardised: of float64 it would take 128 MB."""
Moments: TypeAlias = tuple[list[float], list[float]]
"""The mean and the deviation of each column."""
_Places: TypeAlias = tuple[str, Int64[np.ndarray, " _"], slice]
"""A part, some rows of it among those of a table, and where they stand in it."""

_HOUR = 3600.0  # s

# ------------------------------------------------------------------------- learned and applied


@dataclass(frozen=True)
class Learned:
    """What the training rows tell of the columns of a table."""

    kept: list[Treatment] = field(default_factory=list)
    """Those that tell something, with what was learned of them."""
    values: list[Values] = field(default_factory=list)
    """The values of these."""
    remarks: list[str] = field(default_factory=list)
    """What a person should know of columns that can hardly help."""
    described: list[str] = field(default_factory=list)
    """A line for each column: its name, its form, what it holds, and what becomes of it."""


def learn(
    treatments: Sequence[Treatment], values: Sequence[Values], train: Bool[np.ndarray, " rows"]
) -> Learned:
    """What the rows marked in `train` tell; each column is read once."""
    learned = Learned()
    for treatment, column in zip(treatments, values, strict=True):
        given = column.numbers
        empty = treatment["form"] == "empty"
        known = None if empty else _learn(treatment, column.names, given[train])
        if known is not None:
            learned.kept.append(treatment | known)
            learned.values.append(column)
        learned.remarks.extend(_remarks(treatment, given, column.names, used=known is not None))
        learned.described.append(_describe(treatment, given, column.names, known))
        del given  # before the next ones are read
    return learned


def _learn(
    treatment: Treatment, names: Sequence[str], seen: Shaped[np.ndarray, " train"]
) -> Treatment | None:
    """What the training rows tell of a column; None where that is nothing."""
    if treatment["form"] == "text":
        from everynet.data.tables.sentences import Bags  # noqa: PLC0415 -- pyarrow

        return {"idf": Bags(names).rarity(seen).tolist(), "missing": bool((seen < 0).any())}
    if treatment["form"] != "category":
        there = seen[~np.isnan(seen)]
        if not len(there):
            return None
        if treatment["form"] == "date":
            clock = bool((there % (24 * _HOUR) != 0).any())
            middle = np.partition(there, len(there) // 2)[len(there) // 2]
            return {"median": float(middle), "flag": len(there) < len(seen), "time": clock}
        return {"median": float(np.median(there)), "flag": len(there) < len(seen)}
    counts = np.bincount(seen[seen >= 0], minlength=len(names))
    common = [int(n) for n in np.argsort(-counts, kind="stable")[:MOST_VALUES]]
    kept = sorted(names[n] for n in common if counts[n] >= RARE)
    others = int(counts.sum()) - int(sum(counts[n] for n in common if counts[n] >= RARE))
    if not kept:
        return None
    return {"values": kept, "other": others > 0, "missing": bool((seen < 0).any())}


def features(treatments: Sequence[Treatment]) -> list[str]:
    """The names of the columns that a network is given."""
    return list(chain.from_iterable(_features(treatment) for treatment in treatments))


def _features(treatment: Treatment) -> Iterator[str]:
    name = treatment["name"]
    if treatment["form"] == "category":
        yield from (f"{name}={value}" for value in treatment["values"])
        yield from (f"{name}={word}" for word in (OTHER, UNSAID) if treatment[word])
        return
    if treatment["form"] == "text":
        yield from (f"{name} words {bucket}" for bucket in range(len(treatment["idf"])))
        yield from [f"{name} is {UNSAID}"] if treatment[UNSAID] else []
        return
    if treatment["form"] == "date":
        yield from (f"{name} {part}" for part in ("year", "month", "weekday"))
        yield from [f"{name} hour"] if treatment["time"] else []
    else:
        yield name
    yield from [f"{name} is {UNSAID}"] if treatment.get("flag") else []


def apply(
    treatments: Sequence[Treatment], values: Sequence[Values]
) -> Float64[np.ndarray, "rows features"]:
    """What a network is given of some rows."""
    width = sum(1 for treatment in treatments for _ in _features(treatment))
    x = np.zeros((len(values[0].numbers) if values else 0, width))
    for at, made in enumerate(chain.from_iterable(map(_made, treatments, values))):
        x[:, at] = made
    return x


def apply_to_parts(
    file: Source,
    treatments: Sequence[Treatment],
    values: list[Values],
    part: UInt8[np.ndarray, " rows"],
) -> tuple[dict[str, Real[np.ndarray, "part features"]], Moments | None]:
    """What a network is given of the rows of each part; `part` is the place in PARTS of each row's.

    A large table is standardised at once and held in float32, with its means and deviations beside.
    Columns that are held are taken out of their list, so that their memory is free when they were
    applied. Those that are stored are read once more, all together and some rows at a time: the
    first column that is filled in touches the memory of all, and needed its own beside that.
    """
    ends = [0, *accumulate(sum(1 for _ in _features(treatment)) for treatment in treatments)]
    filled, stored = _Filled(part, ends[-1]), [n for n, v in enumerate(values) if v.stored]
    if filled.large:
        give_back_holes()  # what reading has left free between the columns
        for n, (treatment, column) in enumerate(zip(treatments, values, strict=True)):
            for at, made in enumerate(_made(treatment, column), ends[n]):
                filled.measure(at, made)
                del made
            del column  # before the next one is read
    for n, treatment in enumerate(treatments):
        column, values[n], begun = values[n], Values(), [0] * len(PARTS)
        for some, piece in () if column.stored else _cut(treatment, column):
            places = filled.places(some, begun)
            for at, made in enumerate(_made(treatment, piece), ends[n]):
                filled.put(at, made, places)
    chosen, begun = [treatments[n] for n in stored], [0] * len(PARTS)
    at_once = min(_STRETCH, _NUMBERS // max(1, len(chosen)))
    for some, stretch in file.pieces([t["name"] for t in chosen], at_once) if chosen else ():
        places = filled.places(some, begun)
        for n, column in zip(stored, gather(stretch, chosen), strict=True):
            for at, made in enumerate(_made(treatments[n], column), ends[n]):
                filled.put(at, made, places)
    if filled.large:
        give_back_holes()
    means, deviations = filled.moments.tolist()
    return filled.x, (means, deviations) if filled.large else None


class _Filled:
    """The features of each part, which are filled in some rows of a column at a time."""

    def __init__(self, part: UInt8[np.ndarray, " rows"], width: int) -> None:
        sizes = np.bincount(part, minlength=len(PARTS))[: len(PARTS)].tolist()
        self.part, self.large = part, width * sum(sizes) > LARGE
        kind = np.float32 if self.large else np.float64
        self.x = {
            name: np.empty((size, width), kind) for name, size in zip(PARTS, sizes, strict=True)
        }
        self.moments = np.zeros((2, width))

    def measure(self, at: int, made: Shaped[np.ndarray, " rows"]) -> None:
        """Learn the moments of a column of a large table."""
        if self.large:
            self.moments[:, at] = _moments(made, np.flatnonzero(self.part == 0))

    def places(self, some: slice, begun: list[int]) -> list[_Places]:
        """For each part which of some rows it has and where they go: behind so many others."""
        found = []
        for number, name in enumerate(PARTS):
            rows = np.flatnonzero(self.part[some] == number)
            start, begun[number] = begun[number], begun[number] + len(rows)
            found.append((name, rows, slice(start, begun[number])))
        return found

    def put(self, at: int, made: Shaped[np.ndarray, " some"], places: Sequence[_Places]) -> None:
        """Fill in some rows of a column."""
        mean, deviation = self.moments[:, at]
        for name, rows, where in places:
            cells = made[rows]
            self.x[name][where, at] = (cells - mean) / deviation if self.large else cells


def _cut(treatment: Treatment, column: Values) -> Iterator[tuple[slice, Values]]:
    """The rows of a column some at a time, but for sentences, whose words are counted once."""
    given = column.numbers
    whole = [slice(0, len(given))]
    for some in whole if treatment["form"] == "text" else _some(len(given)):
        yield some, Values(given[some], column.names)


def _some(rows: int) -> Iterator[slice]:
    """All rows, some at a time, so that a piece of them takes little memory."""
    return (slice(start, start + _AT_ONCE) for start in range(0, rows, _AT_ONCE))


def _moments(
    column: Shaped[np.ndarray, " rows"], train: Int64[np.ndarray, " train"]
) -> tuple[float, float]:
    """The mean and the deviation of a column; 1 in the place of 0, where it never changes."""
    first = float(column[train[0]])
    pieces = [train[some] for some in _some(len(train))]
    if all((column[piece] == first).all() for piece in pieces):
        return first, 1.0
    mean = sum(float((column[piece] - first).sum()) for piece in pieces) / len(train) + first
    square = sum(float(((column[piece] - mean) ** 2).sum()) for piece in pieces)
    return mean, math.sqrt(square / len(train))


def _made(treatment: Treatment, column: Values) -> Iterator[Shaped[np.ndarray, " rows"]]:
    """The columns that a network is given of one."""
    given = column.numbers
    if treatment["form"] == "category":
        place = {value: number for number, value in enumerate(treatment["values"])}
        among = np.array([place.get(name, -1) for name in column.names] + [-2], np.int32)[given]
        yield from (among == number for number in range(len(place)))
        yield from [among == -1] if treatment[OTHER] else []
        yield from [among == -2] if treatment[UNSAID] else []
        return
    if treatment["form"] == "text":
        from everynet.data.tables.sentences import Bags  # noqa: PLC0415 -- pyarrow

        yield from Bags(column.names, len(treatment["idf"])).columns(given, treatment["idf"])
        yield from [given < 0] if treatment[UNSAID] else []
        return
    absent = np.isnan(given)
    filled = np.where(absent, treatment["median"], given) if absent.any() else given
    if treatment["form"] == "date":
        yield from _calendar(filled, with_time=treatment["time"])
    else:
        yield filled
    yield from [absent] if treatment.get("flag") else []


def _calendar(
    seconds: Shaped[np.ndarray, " rows"], *, with_time: bool
) -> Iterator[Shaped[np.ndarray, " rows"]]:
    moment = seconds.astype("datetime64[s]")
    months = moment.astype("datetime64[M]").astype(np.int64)
    days = moment.astype("datetime64[D]").astype(np.int64)
    yield 1970 + months // 12
    yield 1 + months % 12
    yield (days + 3) % 7  # 1 January 1970 was a Thursday
    if with_time:
        yield (seconds - days * 24 * _HOUR) / _HOUR


def plain(names: Sequence[str]) -> list[Treatment]:
    """Columns of numbers of which nothing may be missing."""
    return [
        {"name": name, "form": "number", "decimal": ".", "median": None, "flag": False}
        for name in names
    ]


def _remarks(
    treatment: Treatment,
    given: Shaped[np.ndarray, " rows"],
    names: Sequence[str],
    *,
    used: bool,
) -> Iterator[str]:
    """What a person should know of a column that can hardly help."""
    name, form = shown(treatment["name"]), treatment["form"]
    if form == "empty":
        yield f"column {name} is empty and is left out"
    elif not used:
        known = f"no value of its {len(names):,} is in {RARE} training rows"
        yield f"column {name} is left out: {known}"
    elif form == "text":
        yield (
            f"column {name} is of sentences, which are learned as counts of their words; "
            f"drop={name} leaves it out"
        )
    elif len(given) and _is_same(given):
        yield f"column {name} is the same in every row and tells nothing"
    elif form == "number" and _is_numbered(given):
        yield (
            f"column {name} is another whole number in every row, as a number of the row is; "
            f"drop={name} leaves it out"
        )
    if "sign" in treatment:
        yield f"column {name} is of numbers with {treatment['sign']}, which is left away"


def _describe(
    treatment: Treatment,
    given: Shaped[np.ndarray, " rows"],
    names: Sequence[str],
    known: Treatment | None,
) -> str:
    """A line for a column: its name, its form, what it holds, and what becomes of it."""
    form = treatment["form"]
    coded = form in ("category", "text")
    share = np.count_nonzero(given < 0 if coded else np.isnan(given)) / max(1, len(given))
    holds = _commonest(given, names) if coded else _range(given, form)
    sign = f" with {treatment['sign']}" if "sign" in treatment else ""
    becomes = "left out, because it tells nothing"
    if known is not None:
        becomes = _becomes(treatment | known)
    return (
        f"{shown(treatment['name'], 60)}: {form}{sign}, {holds}{_per_cent(share)} missing; "
        + becomes
    )


def _per_cent(share: float) -> str:
    return "less than 0.1 %" if 0 < share < 0.001 else f"{100 * share:.3g} %"


def _range(numbers: Float64[np.ndarray, " rows"], form: str) -> str:
    there = numbers[~np.isnan(numbers)]
    if not len(there):
        return ""
    low, high = float(there.min()), float(there.max())
    if form == "date":
        low_day, high_day = (str(np.datetime64(int(end), "s"))[:10] for end in (low, high))
        return f"{low_day} to {high_day}, "
    return f"{low:.6g} to {high:.6g}, "


def _commonest(codes: Int32[np.ndarray, " rows"], names: Sequence[str]) -> str:
    there = codes[codes >= 0]
    counts = np.bincount(there, minlength=len(names))
    most = np.argsort(-counts, kind="stable")[:_FEW]
    each = [f"{shown(names[n], 30)} {_per_cent(counts[n] / len(codes))}" for n in most]
    return f"{len(names):,} different: {', '.join(each)}{', ...' * (len(names) > _FEW)}; "


def _becomes(treatment: Treatment) -> str:
    count = sum(1 for _ in _features(treatment))
    flag = " and one that says what is missing" * bool(treatment.get("flag"))
    if treatment["form"] == "number":
        return f"a number{flag}"
    if treatment["form"] == "date":
        hour = ", hour" * treatment["time"]
        return f"{count - bool(flag)} numbers: year, month, weekday{hour}{flag}"
    if treatment["form"] == "text":
        return f"{len(treatment['idf'])} weighed counts of words"
    return f"{count} {'column' if count == 1 else 'columns'} of 0 and 1"


def _is_same(numbers: Shaped[np.ndarray, " rows"]) -> bool:
    return bool(numbers[0] == numbers[-1]) and bool((numbers == numbers[0]).all())


def _is_numbered(numbers: Float64[np.ndarray, " rows"]) -> bool:
    """Whether they are different whole numbers."""
    start = numbers[:1000]
    if (start != np.round(start)).any() or len(np.unique(start)) < len(start):
        return False
    whole = bool((numbers == np.round(numbers)).all())
    return whole and len(np.unique(numbers)) == len(numbers)


def count_forms(treatments: Sequence[Mapping[str, Any]]) -> str:
    """How many columns are of which form."""
    counts = Counter(str(treatment["form"]) for treatment in treatments)
    plural = {"number": "numbers", "category": "categories", "date": "dates"}
    plural |= {"text": "texts", "empty": "empty"}
    return ", ".join(f"{counts[form]:,} {word}" for form, word in plural.items() if counts[form])
