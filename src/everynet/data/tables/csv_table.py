"""A csv file as samples: columns of any form, and one that is to be learned.

How a file may be written is in `csv_lines.py`, what its columns become in `columns.py`. A target of
words is a class, and so is one of at most fifty different whole numbers, unless `task` says
regression; no cell of it may be empty. Of classes a fifth each is for the test and a tenth of the
rest for validation, by a hash of the row numbers; of real targets about so many. With the task
density no column is to be learned: rows alone are described, and split as with a real target.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float64, Int64, Shaped
from torch import Tensor

from everynet.data.dataset import Spec
from everynet.data.samples import Samples
from everynet.data.split import (
    ALL_OF_IT,
    TEST,
    VALID,
    OwnSplit,
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
_SPLITS = {
    "classification": "of each class, by hash of the row number, a fifth is test and a tenth of "
    "the rest is valid",
    "regression": "by hash of the row number, a fifth is test and a tenth of the rest is valid",
}


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
    if task == DENSITY:
        return _read_rows(file, drop, missing)
    return make_samples(file, target, task, drop, missing, by)


def choose_parts(  # noqa: PLR0917 -- the options of a table
    file: Source,
    target: str,
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

    own, name = own_split(file, look, by, target, made)
    return choose_columns(file, target, [*drop, name]), own


def choose_columns(file: Source, target: str, drop: Sequence[str]) -> list[str]:
    """The names of the columns that are learned from, and last that of the target."""
    check_names(file, target, drop)
    names = [name for name in file.header if name != target and name not in set(drop)]
    if not names:
        raise UserError(f"{shown(file.path)} must have columns besides its target {shown(target)}")
    return [*names, target]


def make_samples(  # noqa: PLR0917 -- the options of a table
    file: Source,
    target: str,
    task: str,
    drop: Sequence[str],
    missing: Sequence[str] = (),
    by: SplitBy | None = None,
    made: OwnSplit | None = None,
) -> Samples:
    """The samples of a table that was opened; `made` are the parts that the caller made, if any."""
    names, own = choose_parts(file, target, drop, missing, by, made)
    found = forms.survey(file, names, missing)
    values = forms.gather(file, found)
    path, parts_by = file.path, [name for name in file.header if name not in {*names, *drop}]
    if task and task not in TASKS:
        raise UserError(f"task ({shown(task)}) must be empty, {' or '.join(TASKS)}")
    if not len(values[-1].numbers):
        raise UserError(f"{shown(path)} must have rows below its header")
    answers = _answers(file, found.pop(), values.pop(), task)
    if not answers.classes and bool((answers.y == answers.y[0]).all()):
        raise UserError(
            f"{shown(path)}: column {shown(target)} is {answers.y[0].item():g} in every row, so "
            "that nothing can be learned of it; name another target"
        )
    guessed = not task
    task = "classification" if answers.classes else "regression"
    which = _own_parts(own, answers) if own else _parts(answers, task)
    kept, used = _learn(found, values, answers.rows[which["train"]])
    if not kept:
        raise UserError(f"{shown(path)} must have a column that tells something of its target")
    remarks = [*forms.remarks(found, kept, values), *answers.remarks]
    described = forms.describe(found, kept, values)
    described += [f"{shown(name, 60)}: left out by drop=" for name in drop]
    described += [f"{shown(name, 60)}: makes the parts" for name in parts_by]
    described.append(f"{shown(target, 60)}: the target, {_described(answers)}")
    values.clear()  # those that are used are let go of one by one, as they are applied
    file.forget()
    if guessed and _whole(answers.classes):
        remarks.append(
            f"target {shown(target)} is of {len(answers.classes)} whole numbers, which are learned "
            "as classes; task=regression learns the number"
        )
    return _samples(
        file,
        found,
        kept,
        used,
        answers,
        which,
        task=task,
        split=own.sentence if own else _SPLITS[task],
        digest=_digest(file, target, task, [*drop, *_marked(missing), *([str(by)] if by else [])]),
        remarks=remarks,
        described=described,
    )


def _described(answers: Answers) -> str:
    if answers.classes:
        return f"one of {len(answers.classes):,} classes"
    return f"a number, {answers.y.min().item():.6g} to {answers.y.max().item():.6g}"


def _learn(
    found: Sequence[Treatment], values: Sequence[Values], train: Tensor
) -> tuple[list[Treatment], list[Values]]:
    """The columns that tell something, with what was learned of them, and their values."""
    kept = forms.learn(found, values, train.numpy())
    names = {treatment["name"] for treatment in kept}
    return kept, [v for t, v in zip(found, values, strict=True) if t["name"] in names]


def _samples(  # noqa: PLR0917 -- all that is known of a table
    file: Source,
    found: Sequence[Treatment],
    kept: list[Treatment],
    values: list[Values],
    answers: Answers,
    which: dict[str, Tensor],
    *,
    task: str,
    split: str,
    digest: str,
    remarks: Sequence[str],
    described: Sequence[str],
) -> Samples:
    """The features and answers of each part of a table."""
    whole = len(answers.rows) == int(answers.rows[-1]) + 1  # else some rows have no target
    rows = which if whole else {part: answers.rows[chosen] for part, chosen in which.items()}
    x, moments = forms.apply_to_parts(kept, values, {p: r.numpy() for p, r in rows.items()})
    return Samples(
        name=shown(file.path),
        parts={
            part: (torch.from_numpy(x[part]), answers.y[chosen]) for part, chosen in which.items()
        },
        digest=digest,
        split=split,
        classes=answers.classes,
        features=tuple(forms.features(kept)),
        task=task,
        rows=rows,
        columns=tuple(kept),
        moments=moments,
        facts={"written": str(file), "columns": forms.count_forms(found)},
        remarks=tuple(remarks),
        described=tuple(described),
        advice="add rows, or learn a number with task=regression",
    )


def _read_rows(file: Source, drop: Sequence[str], missing: Sequence[str]) -> Samples:
    """The rows of a table none of whose columns is to be learned."""
    names = [name for name in file.header if name not in set(drop)]
    found = forms.survey(file, names, missing)
    values = forms.gather(file, found)
    if not values or not len(values[0].numbers):
        raise UserError(f"{shown(file.path)} must have rows below its header")
    rows = torch.arange(len(values[0].numbers))
    answers = Answers(torch.zeros(len(rows), dtype=torch.float64), (), rows)
    which = _parts(answers, "regression")
    kept, used = _learn(found, values, which["train"])
    if not kept:
        raise UserError(f"{shown(file.path)} must have a column whose values differ")
    return _samples(
        file,
        found,
        kept,
        used,
        answers,
        which,
        task=DENSITY,
        split=_SPLITS["regression"],
        digest=_digest(file, "", DENSITY, [*drop, *_marked(missing)]),
        remarks=forms.remarks(found, kept, values),
        described=forms.describe(found, kept, values),
    )


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


def check_names(file: Source, target: str, drop: Sequence[str]) -> None:
    """Refuse a target, or a column to drop, that the table has not."""
    if not target:
        raise UserError(
            f"target must name the column of {shown(file.path)} that is to be learned, one of "
            + shown(", ".join(file.header))
        )
    for name in (target, *drop):
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
    rows: Int64[Tensor, " there"]
    """The rows of the table that have a target."""
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
    rows, remarks = np.flatnonzero(~missing), []
    if len(rows) < len(given):
        (first,) = file.places([int(missing.argmax())])
        count = len(given) - len(rows)
        remarks.append(
            f"{count:,} {'row' if count == 1 else 'rows'} of {len(given):,} without a target "
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
    return Answers(y, classes, torch.from_numpy(rows), tuple(remarks))


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


def _own_parts(own: OwnSplit, answers: Answers) -> dict[str, Tensor]:
    """The places among the rows with a target of each part that the user made, or that is taken."""
    count = 1 + max(int(rows.max()) for rows in (answers.rows, *own.rows.values()) if len(rows))
    place = torch.full((count,), -1)
    place[answers.rows] = torch.arange(len(answers.rows))
    rows = {part: found[found >= 0] for part, its in own.rows.items() if len(found := place[its])}
    groups = [own.groups[row] for row in answers.rows.tolist()] if own.groups else ()
    there = replace(own, rows={**own.rows, **rows}, groups=groups)
    return there.complete(answers.y if answers.classes else None)


def _parts(answers: Answers, task: str) -> dict[str, Tensor]:
    """The places of each part among the rows that have a target."""
    numbers, y = answers.rows.numpy(), answers.y
    if task == "regression":
        return rows_by_hash(numbers)
    test = stratified(y, TEST, "test", numbers)
    rest = (~test).nonzero()[:, 0]
    valid = stratified(y[rest], VALID, "valid")
    return {"train": rest[~valid], "valid": rest[valid], "test": test.nonzero()[:, 0]}


def _marked(missing: Sequence[str]) -> list[str]:
    return [f"missing={mark}" for mark in missing]


def _digest(file: Source, target: str, task: str, drop: Sequence[str]) -> str:
    """SHA-256 of a file and of what is learned of it from what."""
    total = file.hashed()
    for part in (target, task, *drop):
        total.update(part.encode("utf-8", "surrogateescape") + b"\0")
    return total.hexdigest()
