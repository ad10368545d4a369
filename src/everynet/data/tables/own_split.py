"""Parts of a table that its columns decide: a split of one's own, groups, or time.

    split=fold                    a column of train, valid and test
    group=patient                 a group lies in one part: the hash is of its value, not of the row
    until=2024-01-01 time=seen    rows before are train, the last tenth of them valid, others test

The column that decides is not learned from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

import numpy as np
import torch

from everynet.data.in_memory import PART_NAMES
from everynet.data.split import PARTS, VALID, OwnSplit
from everynet.data.tables.cells import Source
from everynet.data.tables.columns import Treatment, Values
from everynet.system.errors import UserError
from everynet.system.wording import nearest, shown

Look: TypeAlias = Callable[[str], tuple[Treatment, Values]]
"""What a column of a table is, and its cells."""


@dataclass(frozen=True)
class SplitBy:
    """The settings that name the columns by which a table is split; empty where none does."""

    split: str = ""
    group: str = ""
    until: str = ""
    time: str = ""

    def __post_init__(self) -> None:
        given = [name for name in ("split", "group", "until") if getattr(self, name)]
        if len(given) > 1:
            raise UserError(f"{' and '.join(given)} must not both be given: each makes the parts")
        if self.time and not self.until:
            raise UserError(f"time ({shown(self.time)}) must be left out without until=, a date")

    def __bool__(self) -> bool:
        return bool(self.split or self.group or self.until)

    def __str__(self) -> str:
        return f"{self.split}\0{self.group}\0{self.until}\0{self.time}"


def own_split(
    file: Source, look: Look, by: SplitBy, target: str, made: OwnSplit | None = None
) -> tuple[OwnSplit, str]:
    """The parts of a table by one of its columns, and the name of that; `made` are the caller's."""
    name = by.split or by.group or by.time or _the_date(file, look, target)
    setting = "split" if by.split else "group" if by.group else "time"
    if name not in file.header:
        raise UserError(
            f"{shown(file.path)} has no column {shown(name)} for {setting}="
            + nearest(name, file.header)
        )
    if name == target:
        raise UserError(f"{setting} ({shown(name)}) must not name the target")
    if made is not None and setting != "group":
        raise UserError(
            f"{'until' if by.until else setting} must be left out, because the parts were given"
        )
    form, values = look(name)
    place = f"{shown(file.path)}: column {shown(name)}"
    _check_filled(file, form, values, place, setting)
    if by.split:
        return _by_column(values, form, place, name), name
    if by.group:
        return _by_group(values, name, place, made), name
    return _by_time(values, form, place, name, by.until), name


def _check_filled(file: Source, form: Treatment, values: Values, place: str, setting: str) -> None:
    """Refuse a row of which nobody knows the part."""
    coded = bool(values.names)
    missing = values.numbers < 0 if coded else np.isnan(values.numbers)
    if form["form"] == "empty" or missing.any():
        row = int(missing.argmax())
        raise UserError(
            f"{place} is empty in {file.places([row])[0]}, and {setting}= asks it for the part of "
            "each row; fill it in or leave the row out"
        )


def _by_column(values: Values, form: Treatment, place: str, name: str) -> OwnSplit:
    known = {word: part for part, words in PART_NAMES.items() for word in words}
    parts = [known.get(word.strip().lower(), "") for word in values.names]
    if not values.names or not all(parts):
        cell = values.names[parts.index("")] if values.names else str(values.numbers[0])
        raise UserError(
            f"{place} ({shown(cell, 60)}) must hold train, valid and test, because split= "
            "takes the part of each row from it" + nearest(cell, known)
        )
    part = np.array(parts)[values.numbers.astype(np.int64)]
    rows = {one: torch.from_numpy(np.flatnonzero(part == one)) for one in PARTS if one in part}
    if "train" not in rows:
        raise UserError(f"{place} must name some rows train, because of these is learned")
    return OwnSplit(rows, f"as column {shown(name)} says, which is not learned from")


def _by_group(values: Values, name: str, place: str, made: OwnSplit | None) -> OwnSplit:
    words = values.names or [repr(number) for number in np.unique(values.numbers).tolist()]
    codes = values.numbers if values.names else np.unique(values.numbers, return_inverse=True)[1]
    keys = np.array(words, object)[codes.astype(np.int64)]
    rows = made.rows if made else {"train": torch.arange(len(keys))}
    found: dict[str, str] = {}
    for part, its in rows.items():
        for key in dict.fromkeys(keys[its.numpy()].tolist()):
            first = found.setdefault(key, part)
            if first != part:
                raise UserError(
                    f"{place}: {shown(key, 60)} has rows in {first} and in {part}, and a group "
                    "must be in one part; give all of its rows to one"
                )
    missing = len(PARTS) - len(rows)
    if len({*keys[rows["train"].numpy()].tolist()}) <= missing:
        raise UserError(
            f"{place} holds {len(found)} groups, which are too few for train, valid and test; "
            "give more"
        )
    column = f"no {shown(name)} is in two parts, and it is not learned from"
    return OwnSplit(rows, f"{made.how}; {column}" if made else column, tuple(keys.tolist()))


def _by_time(values: Values, form: Treatment, place: str, name: str, until: str) -> OwnSplit:
    if form["form"] not in ("date", "number") or values.names:
        raise UserError(f"{place} must hold dates or numbers, because until= compares them")
    limit = _moment(until, dates=form["form"] == "date")
    before = np.flatnonzero(values.numbers < limit)
    test = np.flatnonzero(values.numbers >= limit)
    if not len(test) or len(before) < 2:
        lack = "before it" if len(test) else "from it on"
        ends = values.numbers.min(), values.numbers.max()
        first, last = (_written(float(end), form) for end in ends)
        raise UserError(
            f"until ({shown(until)}) leaves too few rows {lack}: {place} goes from {first} to "
            f"{last}"
        )
    before = before[values.numbers[before].argsort(kind="stable")]
    cut = len(before) - max(1, round(VALID * len(before)))
    rows = {"train": np.sort(before[:cut]), "valid": np.sort(before[cut:]), "test": test}
    return OwnSplit(
        {part: torch.from_numpy(its) for part, its in rows.items()},
        f"rows before {shown(until)} by {shown(name)} are train, the last tenth of them valid, and "
        f"later ones test; {shown(name)} is not learned from",
    )


def _moment(until: str, *, dates: bool) -> float:
    """A date in seconds, as those of columns are, or a number."""
    try:
        if not dates:
            return float(until)
        moment = datetime.fromisoformat(until)
        return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    except ValueError:
        like = "a date, such as 2024-01-01" if dates else "a number, as those of its column"
        raise UserError(f"until ({shown(until, 60)}) must be {like}") from None


def _written(moment: float, form: Treatment) -> str:
    date = form["form"] == "date"
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d") if date else f"{moment:g}"


def _the_date(file: Source, look: Look, target: str) -> str:
    """The one column of dates."""
    names = [name for name in file.header if name != target]
    dates = [name for name in names if look(name)[0]["form"] == "date"]
    if len(dates) != 1:
        found = shown(", ".join(dates)) or "none"
        raise UserError(
            f"time must name the column that until= is compared with, because {shown(file.path)} "
            f"has {len(dates)} columns of dates ({found})"
        )
    return dates[0]
