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
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float64, Shaped
from torch import Tensor

from everynet.data.dataset import Spec
from everynet.data.samples import Samples
from everynet.data.split import (
    ALL_OF_IT,
    BY_CALLER,
    PARTS,
    TEST,
    VALID,
    all_parts,
    by_hash,
    rows,
    stratified,
)
from everynet.data.tables import columns as forms
from everynet.data.tables.columns import Treatment, Values
from everynet.data.tables.csv_lines import CsvFile, open_csv
from everynet.system.errors import UserError
from everynet.system.wording import nearest, shown

MOST_CLASSES = 50
TASKS = ("classification", "regression")
DENSITY = "density"
"""The task of recipes that learn how rows are distributed; a person never sets it."""
_ID = re.compile(r"(^|[^A-Za-z])(?i:id)$|[a-z]I[Dd]$")
_SPLITS = {
    "classification": "of each class, by hash of the row number, a fifth is test and a tenth of "
    "the rest is valid",
    "regression": "by hash of the row number, a fifth is test and a tenth of the rest is valid",
}


def read(
    path: Path, target: str, task: str = "", drop: Sequence[str] = (), like: Spec | None = None
) -> Samples:
    """The table of a csv file, without the columns of `drop`; with `like`, the columns of a run."""
    file = open_csv(path)
    if like:
        return _read_like(like, file, target)
    if task == DENSITY:
        return _read_rows(file, drop)
    found = forms.survey(file, choose_columns(file, target, drop))
    values = forms.gather(file, found)
    return make_samples(file, found, values, task, drop)


def choose_columns(file: CsvFile, target: str, drop: Sequence[str]) -> list[str]:
    """The names of the columns that are learned from, and last that of the target."""
    check_names(file, target, drop)
    names = [name for name in file.header if name != target and name not in set(drop)]
    if not names:
        raise UserError(f"{shown(file.path)} must have columns besides its target {shown(target)}")
    return [*names, target]


def make_samples(
    file: CsvFile,
    found: list[Treatment],
    values: list[Values],
    task: str,
    drop: Sequence[str],
    *,
    real: bool | None = None,
    parts: Mapping[str, Tensor] | None = None,
) -> Samples:
    """A table of columns that were read, the last of which is the target.

    `real` says whether numbers of the target are real ones; None looks how they are written.
    `parts` are the rows of each part, where the caller divides them.
    """
    path, target = file.path, found[-1]["name"]
    if task and task not in TASKS:
        raise UserError(f"task ({shown(task)}) must be empty, {' or '.join(TASKS)}")
    if not len(values[-1].numbers):
        raise UserError(f"{shown(path)} must have rows below its header")
    y, classes = _answers(file, found.pop(), values.pop(), task, real)
    guessed = not task
    task = "classification" if classes else "regression"
    which = parts or _parts(y, task)
    kept = forms.learn(found, values, which["train"].numpy())
    used = {treatment["name"]: treatment for treatment in kept}
    of_kept = [v for t, v in zip(found, values, strict=True) if t["name"] in used]
    x = torch.from_numpy(forms.apply(kept, of_kept))
    if not kept:
        raise UserError(f"{shown(path)} must have a column that tells something of its target")
    remarks = forms.remarks(found, kept, values)
    if guessed and _whole(classes):
        remarks.append(
            f"target {shown(target)} is of {len(classes)} whole numbers, which are learned as "
            "classes; task=regression learns the number"
        )
    return Samples(
        name=shown(path),
        parts={part: (x[chosen], y[chosen]) for part, chosen in which.items()},
        digest=_digest(file, target, task, drop),
        split=BY_CALLER if parts else _SPLITS[task],
        classes=classes,
        features=tuple(forms.features(kept)),
        task=task,
        rows=which,
        columns=tuple(kept),
        facts={"written": str(file), "columns": forms.count_forms(found)},
        remarks=tuple(remarks),
        advice="add rows, or learn a number with task=regression",
    )


def _read_rows(file: CsvFile, drop: Sequence[str]) -> Samples:
    """The rows of a table none of whose columns is to be learned."""
    found = forms.survey(file, [name for name in file.header if name not in set(drop)])
    values = forms.gather(file, found)
    if not values or not len(values[0].numbers):
        raise UserError(f"{shown(file.path)} must have rows below its header")
    y = torch.zeros(len(values[0].numbers), dtype=torch.float64)
    which = _parts(y, "regression")
    kept = forms.learn(found, values, which["train"].numpy())
    used = {treatment["name"]: treatment for treatment in kept}
    x = torch.from_numpy(
        forms.apply(kept, [v for t, v in zip(found, values, strict=True) if t["name"] in used])
    )
    if not kept:
        raise UserError(f"{shown(file.path)} must have a column whose values differ")
    return Samples(
        name=shown(file.path),
        parts={part: (x[chosen], y[chosen]) for part, chosen in which.items()},
        digest=_digest(file, "", DENSITY, drop),
        split=_SPLITS["regression"],
        features=tuple(forms.features(kept)),
        task=DENSITY,
        rows=which,
        columns=tuple(kept),
        facts={"written": str(file), "columns": forms.count_forms(found)},
        remarks=tuple(forms.remarks(found, kept, values)),
    )


def features_like(spec: Spec, path: Path) -> Float64[Tensor, "rows features"]:
    """The columns that were learned from, treated as they were then, whatever others there are."""
    treatments = spec.get("columns") or forms.plain(spec["features"])
    file = open_csv(path)
    there = set(file.header)
    for treatment in treatments:
        if treatment["name"] not in there:
            raise UserError(
                f"{shown(path)} has no column {shown(treatment['name'])}"
                + nearest(treatment["name"], file.header)
            )
    values = forms.gather(file, treatments)
    if not values or not len(values[0].numbers):
        raise UserError(f"{shown(path)} must have rows below its header")
    return torch.from_numpy(forms.apply(treatments, values))


def read_ids(path: Path) -> list[str]:
    """The cells of the first column that is called an id (`id`, `row_id`, `CustomerID`), if any."""
    file = open_csv(path)
    named = (at for at, name in enumerate(file.header) if _ID.search(name.strip()))
    at = next(named, None)
    if at is None:
        return []
    return [shown(cells[at], 200) for lines in file.chunks() for _, cells in lines]


def _read_like(spec: Spec, file: CsvFile, target: str) -> Samples:
    """The columns that were learned from, and the target of each row if there was one."""
    if spec["task"] == DENSITY and not target:
        x = features_like(spec, file.path)
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
    form = forms.survey(file, [target])
    values = forms.gather(file, form)[0]
    return make_samples_like(spec, file, features_like(spec, file.path), form[0], values)


def make_samples_like(
    spec: Spec,
    file: CsvFile,
    x: Float64[Tensor, "rows features"],
    found: Treatment,
    values: Values,
) -> Samples:
    """Features treated as those of a run, with a target column that was read, for a test."""
    y, classes = _answers(file, found, values, spec["task"], None)
    return Samples(
        name=shown(file.path),
        parts=all_parts((x, y)),
        digest="",
        split=ALL_OF_IT,
        classes=classes,
        features=tuple(spec["features"]),
        task="classification" if classes else "regression",
        test_only=True,
    )


def check_names(file: CsvFile, target: str, drop: Sequence[str]) -> None:
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


def _answers(
    file: CsvFile, found: Treatment, values: Values, task: str, real: bool | None
) -> tuple[Shaped[Tensor, " rows"], tuple[str, ...]]:
    """The target as classes with their names, or as real numbers and no names."""
    name, given = found["name"], values.numbers
    place = f"{shown(file.path)}: column {shown(name)}"
    missing = given < 0 if found["form"] == "category" else np.isnan(given)
    if missing.any():
        line = _line(file, int(missing.argmax()))
        raise UserError(
            f"{shown(file.path)}: line {line}, column {shown(name)} is empty, and it is to be "
            "learned; fill it in or leave the row out"
        )
    if found["form"] in ("date", "empty") or (found["form"] == "category" and task == TASKS[1]):
        raise UserError(f"{place} must hold numbers to be learned as a number")
    if found["form"] == "category":
        order = sorted(range(len(values.names)), key=lambda code: values.names[code])
        if len(order) > max(MOST_CLASSES, len(given) // 2):
            raise UserError(
                f"{place} holds {len(order):,} different words in {len(given):,} rows, too many to "
                "be classes; name another target"
            )
        return _ranked(order)[given], tuple(shown(values.names[code]) for code in order)
    kinds, codes = np.unique(given, return_inverse=True)
    whole = bool((given == np.round(given)).all()) and abs(given).max() < 1e18
    few = len(kinds) <= MOST_CLASSES
    if task == TASKS[0] and not few:
        raise UserError(
            f"{place} holds {len(kinds):,} different numbers, too many to be classes; "
            "task=regression learns the number"
        )
    if not task and whole and few and real is None:
        real = _written_real(file, name)
    if task == TASKS[0] or (not task and whole and few and not real):
        words = [str(int(kind)) if whole else repr(float(kind)) for kind in kinds]
        return torch.from_numpy(codes.astype(np.int64)), tuple(words)
    return torch.from_numpy(given.astype(np.float64)), ()


def _ranked(order: Sequence[int]) -> Shaped[Tensor, " codes"]:
    """For each code its place in the order."""
    places = torch.empty(len(order), dtype=torch.int64)
    places[torch.tensor(order)] = torch.arange(len(order))
    return places


def _written_real(file: CsvFile, name: str) -> bool:
    """Whether any number of a column is written with a decimal point or comma: 3.0, not 3."""
    at = file.header.index(name)
    return any(
        any(sign in cells[at] for sign in ".,eE") for lines in file.chunks() for _, cells in lines
    )


def _line(file: CsvFile, row: int) -> int:
    for lines in file.chunks():
        if row < len(lines):
            return lines[row][0]
        row -= len(lines)
    raise AssertionError("the row was read before")


def _whole(classes: Sequence[str]) -> bool:
    return all(name.lstrip("-").isdecimal() for name in classes) and len(classes) > 2


# ------------------------------------------------------------------------------------- the parts


def _parts(y: Shaped[Tensor, " rows"], task: str) -> dict[str, Tensor]:
    """The rows of each part, from 0."""
    if task == "regression":
        placed = np.array(by_hash(rows(len(y))))
        return {part: torch.from_numpy(np.flatnonzero(placed == part)) for part in PARTS}
    test = stratified(y, TEST, "test")
    rest = (~test).nonzero()[:, 0]
    valid = stratified(y[rest], VALID, "valid")
    return {"train": rest[~valid], "valid": rest[valid], "test": test.nonzero()[:, 0]}


def _digest(file: CsvFile, target: str, task: str, drop: Sequence[str]) -> str:
    """SHA-256 of a file and of what is learned of it from what."""
    total = file.hashed()
    for part in (target, task, *drop):
        total.update(part.encode("utf-8", "surrogateescape") + b"\0")
    return total.hexdigest()
