"""A csv file as samples: columns of any form, and one that is to be learned.

How a file may be written is in `csv_lines.py`, what its columns become in `columns.py`. A target of
words is a class, and so is one of at most fifty different whole numbers, unless `task` says
regression; no cell of it may be empty. Of classes a fifth each is for the test and a tenth of the
rest for validation, by a hash of the row numbers; of real targets about so many. With the task
density no column is to be learned: rows alone are described, and split as with a real target.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int, Real, Shaped, UInt8
from torch import Tensor

from everynet.data.dataset import Spec
from everynet.data.samples import Samples
from everynet.data.split import (
    ALL_OF_IT,
    LEFT_OUT,
    PARTS,
    TEST,
    VALID,
    OwnSplit,
    RowsByPart,
    all_parts,
    rows_by_hash,
    stratified,
)
from everynet.data.tables import columns as forms
from everynet.data.tables.cells import Source
from everynet.data.tables.columns import Treatment, Values
from everynet.data.tables.csv_lines import CsvFile, open_csv
from everynet.data.tables.own_split import SplitBy, own_split
from everynet.system.errors import UserError
from everynet.system.wording import nearest, shown

if TYPE_CHECKING:
    from everynet.data.tables.arrow_table import ArrowFile

COLUMNAR = (".parquet", ".feather", ".arrow")
MOST_CLASSES = 50
_SOME = 2**18  # rows that are looked at together, to take little memory
TASKS = ("classification", "regression")
DENSITY = "density"
"""The task of recipes that learn how rows are distributed; a person never sets it."""
_ID = re.compile(r"(^|[^A-Za-z])(?i:id)$|[a-z]I[Dd]$")
_SPLITS = (
    "by hash of the row number, a fifth is test and a tenth of the rest is valid",
    "of each class, by hash of the row number, a fifth is test and a tenth of the rest is valid",
)


def open_table(path: Path) -> CsvFile | ArrowFile:
    """A csv, parquet or feather file, of which nothing but names is read yet."""
    if path.suffix.lower() in COLUMNAR:
        from everynet.data.tables.arrow_table import open_columnar  # noqa: PLC0415 -- pyarrow

        return open_columnar(path)
    return open_csv(path)


def read(
    path: Path,
    target: str,
    task: str = "",
    drop: Sequence[str] = (),
    *,
    like: Spec | None = None,
    missing: Sequence[str] = (),
    by: SplitBy | None = None,
) -> Samples:
    """The table of a file, without the columns of `drop`; with `like`, the columns of a run.

    `missing` names marks that stand for no value; `by` says which column makes the parts, if any.
    """
    file = open_table(path)
    if like:
        return _read_like(like, file, target)
    return make_samples(file, "" if task == DENSITY else target, task, drop, missing, by)


def choose_parts(  # noqa: PLR0917 -- the options of a table
    file: Source,
    target: str | None,
    drop: Sequence[str],
    missing: Sequence[str],
    by: SplitBy | None,
    made: OwnSplit | None,
) -> tuple[list[str], OwnSplit | None]:
    """The columns as `choose_columns` gives them, less that which makes the parts, and these."""
    if not by:
        return choose_columns(file, target, drop), made
    check_names(file, target, drop)

    def look(name: str) -> tuple[Treatment, Values]:
        (form,) = forms.survey(file, [name], missing)
        (values,) = forms.gather(file, [form])
        return form, values

    own, name = own_split(file, look, by, target or "", made)
    return choose_columns(file, target, [*drop, name]), own


def choose_columns(file: Source, target: str | None, drop: Sequence[str]) -> list[str]:
    """The names of the columns that are learned from, and last that of the target if any."""
    check_names(file, target, drop)
    names = [name for name in file.header if name != target and name not in set(drop)]
    if not names:
        besides = "that is left" if target is None else f"besides its target {shown(target)}"
        raise UserError(f"{shown(file.path)} must have a column {besides}")
    return [*names, *([] if target is None else [target])]


def make_samples(  # noqa: PLR0917 -- the options of a table
    file: Source,
    target: str,
    task: str,
    drop: Sequence[str],
    missing: Sequence[str] = (),
    by: SplitBy | None = None,
    made: OwnSplit | None = None,
) -> Samples:
    """The samples of a table that was opened; `made` are the parts that the caller made, if any.

    With the task density, and without a target, rows alone are described.
    """
    density, given = task == DENSITY and not target, task
    names, own = choose_parts(file, None if density else target, drop, missing, by, made)
    found = forms.survey(file, names, missing)
    values = forms.gather(file, found)
    if task not in ("", *TASKS) and not density:
        raise UserError(f"task ({shown(task)}) must be empty, {' or '.join(TASKS)}")
    if not values or not len(values[-1].numbers):
        raise UserError(f"{shown(file.path)} must have rows below its header")
    if density:
        answers, about = _no_answers(len(values[-1].numbers)), []
    else:
        answers = _answers(file, found.pop(), values.pop(), task)
        if not answers.classes and bool((answers.y == answers.y[0]).all()):
            raise UserError(
                f"{shown(file.path)}: column {shown(target)} is {answers.y[0].item():g} in every "
                "row, so that nothing can be learned of it; name another target"
            )
        task = "classification" if answers.classes else "regression"
        others = [name for name in file.header if name not in {*names, *drop}]
        about = [f"{shown(name, 60)}: left out by drop=" for name in drop]
        about += [f"{shown(name, 60)}: makes the parts" for name in others]
        about.append(f"{shown(target, 60)}: the target, {_described(answers)}")
    file.forget()
    part, y, shared = _divide(answers, own)
    answers = replace(answers, y=y["train"][:0], rows=answers.rows[:0].copy())  # the parts have it
    learned = forms.learn(found, values, part == 0)
    if not learned.kept:
        what = "whose values differ" if density else "that tells something of its target"
        raise UserError(f"{shown(file.path)} must have a column {what}")
    remarks = [*learned.remarks, *answers.remarks]
    if not given and _whole(answers.classes):
        remarks.append(
            f"target {shown(target)} is of {len(answers.classes)} whole numbers, which are learned "
            "as classes; task=regression learns the number"
        )
    values.clear()  # those that are used are let go of one by one, as they are applied
    x, moments = forms.apply_to_parts(file, learned.kept, learned.values, part)
    x |= {name: _gather_rows(x, part, rows) for name, rows in shared.items()}
    marks = [f"missing={mark}" for mark in missing]
    return Samples(
        name=shown(file.path),
        parts={name: (torch.from_numpy(x[name]), y[name]) for name in PARTS},
        digest=_digest(file, target, task, [*drop, *marks, *([str(by)] if by else [])]),
        split=own.sentence if own else _SPLITS[bool(answers.classes)],
        classes=answers.classes,
        features=tuple(forms.features(learned.kept)),
        task=task,
        rows={**RowsByPart(part), **shared} if shared else RowsByPart(part),
        columns=tuple(learned.kept),
        moments=moments,
        facts={"written": str(file), "columns": forms.count_forms(found)},
        remarks=tuple(remarks),
        described=(*learned.described, *about),
        advice="add rows, or learn a number with task=regression",
    )


def _described(answers: Answers) -> str:
    if answers.classes:
        return f"one of {len(answers.classes):,} classes"
    return f"a number, {answers.y.min().item():.6g} to {answers.y.max().item():.6g}"


def features_like(
    spec: Spec, path: Path, faults: dict[int, str] | None = None
) -> Float64[Tensor, "rows features"]:
    """The columns that were learned from, treated as they were then, whatever others there are.

    A row with a wrong cell is refused, or noted in `faults` and taken for one of missing values.
    """
    return _features_like(spec, open_table(path), faults)


def _features_like(
    spec: Spec, file: CsvFile | ArrowFile, faults: dict[int, str] | None = None
) -> Float64[Tensor, "rows features"]:
    treatments = spec.get("columns") or forms.plain(spec["features"])
    there = set(file.header)
    for treatment in treatments:
        if treatment["name"] not in there:
            raise UserError(
                f"{shown(file.path)} has no column {shown(treatment['name'])}"
                + nearest(treatment["name"], file.header)
            )
    values = forms.gather(file, treatments, faults)
    if not values or not len(values[0].numbers):
        raise UserError(f"{shown(file.path)} must have rows below its header")
    return torch.from_numpy(forms.apply(treatments, values))


def read_ids(path: Path) -> list[str]:
    """The cells of the first column that is called an id (`id`, `row_id`, `CustomerID`), if any."""
    file = open_table(path)
    named = next((name for name in file.header if _ID.search(name.strip())), None)
    if named is None:
        return []
    from everynet.data.tables.arrow_table import read_text  # noqa: PLC0415 -- pyarrow

    return [shown(cell, 200) for cell in read_text(file, named)]


def _read_like(spec: Spec, file: CsvFile | ArrowFile, target: str) -> Samples:
    """The columns that were learned from, and the target of each row if there was one."""
    if spec["task"] == DENSITY and not target:
        x = _features_like(spec, file)
        return Samples(
            name=shown(file.path),
            parts=all_parts((x, torch.zeros(len(x), dtype=torch.float64))),
            digest="",
            split=ALL_OF_IT,
            features=tuple(spec["features"]),
            task=DENSITY,
            test_only=True,
        )
    check_names(file, target, ())
    marks = next((t["marks"] for t in spec.get("columns", ()) if "marks" in t), ())
    form = forms.survey(file, [target], marks)
    values = forms.gather(file, form)[0]
    return make_samples_like(spec, file, _features_like(spec, file), form[0], values)


def make_samples_like(
    spec: Spec,
    file: Source,
    x: Float64[Tensor, "rows features"],
    found: Treatment,
    values: Values,
) -> Samples:
    """Features treated as those of a run, with a target column that was read, for a test."""
    answers = _answers(file, found, values, spec["task"])
    return Samples(
        name=shown(file.path),
        parts=all_parts((x[answers.rows], answers.y)),
        digest="",
        split="; ".join([ALL_OF_IT, *answers.remarks]),
        classes=answers.classes,
        features=tuple(spec["features"]),
        task="classification" if answers.classes else "regression",
        test_only=True,
    )


def check_names(file: Source, target: str | None, drop: Sequence[str]) -> None:
    """Refuse a target, if one is learned, or a column to drop, that the table has not."""
    if target == "":
        raise UserError(
            f"target must name the column of {shown(file.path)} that is to be learned, one of "
            + shown(", ".join(file.header))
        )
    for name in drop if target is None else (target, *drop):
        if name not in file.header:
            raise UserError(
                f"{shown(file.path)} has no column {shown(name)}" + nearest(name, file.header)
            )
    if target in drop:
        raise UserError(f"drop ({shown(target)}) must not name the target")


# ------------------------------------------------------------------------------------ the target


@dataclass(frozen=True)
class Answers:
    """What is to be learned: numbers of classes, or real numbers where there are none."""

    y: Shaped[Tensor, " there"]
    classes: tuple[str, ...]
    rows: Int[np.ndarray, " there"]
    """The rows of the table that have a target."""
    table: int
    """How many rows the table has."""
    remarks: tuple[str, ...] = ()


def _answers(file: Source, found: Treatment, values: Values, task: str) -> Answers:
    """The target, without the rows that have none."""
    name, given = found["name"], values.numbers
    place = f"{shown(file.path)}: column {shown(name)}"
    word = found["form"] in ("category", "text")
    missing = given < 0 if word else np.isnan(given)
    if missing.all():
        raise UserError(
            f"{place} is empty in every row, and it is to be learned; name another target"
        )
    (table,), rows, remarks = given.shape, _numbers_of(~missing), []
    if len(rows) < table:
        (first,) = file.places([int(missing.argmax())])
        count = table - len(rows)
        remarks.append(
            f"{count:,} {'row' if count == 1 else 'rows'} of {table:,} without a target "
            f"{'is' if count == 1 else 'are'} left out, the first {first}"
        )
        given = given[rows]
    if found["form"] == "date" or (word and task == TASKS[1]):
        raise UserError(f"{place} must hold numbers to be learned as a number")
    if word:
        order = sorted(range(len(values.names)), key=lambda code: values.names[code])
        if len(order) > max(MOST_CLASSES, len(given) // 2):
            raise UserError(
                f"{place} holds {len(order):,} different words in {len(given):,} rows, too many to "
                "be classes; name another target"
            )
        y, classes = _ranked(order)[given], tuple(shown(values.names[code]) for code in order)
    else:
        y, classes = _numbers(file, found, place, given, task)
    return Answers(y, classes, rows, table, tuple(remarks))


def _no_answers(rows: int) -> Answers:
    """Of a table none of whose columns is to be learned."""
    return Answers(
        torch.zeros(rows, dtype=torch.float64), (), _numbers_of(np.ones(rows, bool)), rows
    )


def _numbers_of(marked: Bool[np.ndarray, " rows"]) -> Int[np.ndarray, " marked"]:
    """The numbers of these rows, in 32 bits if they fit."""
    numbers = np.flatnonzero(marked)
    return numbers.astype(np.int32) if len(marked) < 2**31 else numbers


def _numbers(
    file: Source, found: Treatment, place: str, given: Float64[np.ndarray, " there"], task: str
) -> tuple[Shaped[Tensor, " there"], tuple[str, ...]]:
    """A target of numbers as classes with their names, or as real numbers and no names."""
    whole = bool((given == np.round(given)).all()) and abs(given).max() < 1e18
    real = not task and (not whole or _written_real(file, found["name"], found.get("marks", ())))
    if task == TASKS[1] or real:
        return torch.from_numpy(given), ()
    kinds = np.zeros(0)
    for start in range(0, len(given), _SOME):
        kinds = np.union1d(kinds, given[start : start + _SOME])
        if not (few := len(kinds) <= MOST_CLASSES):
            break
    if task == TASKS[0] and not few:
        raise UserError(
            f"{place} holds {len(np.unique(given)):,} different numbers, too many to be classes; "
            "task=regression learns the number"
        )
    if not few:
        return torch.from_numpy(given), ()
    words = [str(int(kind)) if whole else repr(float(kind)) for kind in kinds]
    return torch.from_numpy(np.searchsorted(kinds, given)), tuple(words)


def _ranked(order: Sequence[int]) -> Shaped[Tensor, " codes"]:
    """For each code its place in the order."""
    places = torch.empty(len(order), dtype=torch.int64)
    places[torch.tensor(order)] = torch.arange(len(order))
    return places


def _written_real(file: Source, name: str, marks: Sequence[str]) -> bool:
    """Whether any number of a column is written with a decimal point or comma: 3.0, not 3."""
    cells = file.cells([name])[name]
    if cells.numbers is not None:
        return not cells.whole
    from everynet.data.tables.words import Words  # noqa: PLC0415 -- pyarrow

    words = zip(cells.words.to_pylist(), Words(cells.words, marks).missing, strict=True)
    return any(sign in word for word, missing in words if not missing for sign in ".,eE")


def _whole(classes: Sequence[str]) -> bool:
    return all(name.lstrip("-").isdecimal() for name in classes) and len(classes) > 2


# ------------------------------------------------------------------------------------- the parts


def _divide(
    answers: Answers, own: OwnSplit | None
) -> tuple[UInt8[np.ndarray, " rows"], dict[str, Shaped[Tensor, " _"]], dict[str, Tensor]]:
    """For each row of the table the place of its part in PARTS, or LEFT_OUT; and their answers.

    Last, the rows of those parts of the user's that share rows with one that stands before them.
    """
    found, shared = np.zeros(len(answers.rows), np.uint8), dict[str, Tensor]()
    if answers.classes and not own:
        test = stratified(answers.y, TEST, "test", answers.rows)
        found[test.numpy()] = PARTS.index("test")
        found[~test.numpy()] = stratified(answers.y[~test], VALID, "valid").numpy()
    else:
        which = _own_parts(own, answers) if own else rows_by_hash(answers.rows)
        for number, name in reversed([*enumerate(PARTS)]):
            found[which[name].numpy()] = number
        counts = np.bincount(found, minlength=len(PARTS)).tolist() if own else ()
        shared = {n: which[n] for n, c in zip(PARTS, counts, strict=False) if c < len(which[n])}
        del which  # of a large table they take much memory
    y = {name: answers.y[torch.from_numpy(found == n)] for n, name in enumerate(PARTS)}
    y |= {name: answers.y[rows] for name, rows in shared.items()}
    if len(found) == answers.table:
        return found, y, shared
    part = np.full(answers.table, LEFT_OUT, np.uint8)
    part[answers.rows] = found
    return part, y, {name: torch.from_numpy(answers.rows)[rows] for name, rows in shared.items()}


def _gather_rows(
    x: Mapping[str, Real[np.ndarray, "_ features"]], part: UInt8[np.ndarray, " rows"], rows: Tensor
) -> Real[np.ndarray, "some features"]:
    """What is known of these rows of a table, whichever part each of them is in."""
    chosen, places = rows.numpy(), np.zeros(len(part), np.int64)
    for number in range(len(PARTS)):
        places[part == number] = np.arange((part == number).sum())
    found = np.empty((len(chosen), x["train"].shape[1]), x["train"].dtype)
    for number, name in enumerate(PARTS):
        its = part[chosen] == number
        found[its] = x[name][places[chosen[its]]]
    return found


def _own_parts(own: OwnSplit, answers: Answers) -> dict[str, Tensor]:
    """The places among the rows with a target of each part that the user made, or that is taken."""
    place = torch.full((answers.table,), -1)
    place[torch.from_numpy(answers.rows)] = torch.arange(len(answers.rows))
    rows = {part: found[found >= 0] for part, its in own.rows.items() if len(found := place[its])}
    groups = [own.groups[row] for row in answers.rows.tolist()] if own.groups else ()
    there = replace(own, rows={**own.rows, **rows}, groups=groups)
    return there.complete(answers.y if answers.classes else None)


def _digest(file: Source, target: str, task: str, drop: Sequence[str]) -> str:
    """SHA-256 of a file and of what is learned of it from what."""
    total = file.hashed()
    for part in (target, task, *drop):
        total.update(part.encode("utf-8", "surrogateescape") + b"\0")
    return total.hexdigest()
