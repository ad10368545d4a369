"""Tables: rows with one column to be learned, from a csv, npy or npz file.

    x = (value - mean) / std

with one mean and one standard deviation a column, of the training rows; a column that never
changes becomes 0. Samples that a network made are written as csv, with a picture where the rows are
points in the plane.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from everynet.data.dataset import Data, Spec
from everynet.data.in_memory import Given, Part
from everynet.data.kinds import Kind, Origin, files_in
from everynet.data.paths import regular
from everynet.data.report import Report, count_rows
from everynet.data.samples import Samples, describe, describe_like, renumber
from everynet.data.tables import arrays, csv_table, frames
from everynet.data.tables.cells import Faults
from everynet.data.tables.own_split import SplitBy
from everynet.system import files
from everynet.system.errors import UserError
from everynet.system.wording import shown

ARRAYS = (".npy", ".npz")
TEXT = (".csv", ".tsv", ".csv.gz", ".tsv.gz", *csv_table.COLUMNAR)


class Table(Kind[Samples]):
    """Rows of numbers, or of what becomes numbers (see `columns.py`)."""

    name: ClassVar[str] = "table"
    about: ClassVar[str] = (
        "a table: a csv with a header, parquet, feather, an npy, or an npz with a 2-D x and a y"
    )
    suffix: ClassVar[str] = ".csv"
    own_parts: ClassVar[bool] = True
    in_memory: ClassVar[str] = "(X, y) with a table X, or a frame, of which target= names a column"

    def matches(self, path: Path) -> bool:
        if path.suffix.lower() == ".npz":
            return arrays.rank(path) == 2
        return path.name.lower().endswith((*TEXT, ".npy"))

    def find(
        self,
        path: Path,
        *,
        target: str = "",
        task: str = "",
        drop: tuple[str, ...] = (),
        missing: tuple[str, ...] = (),
        split: str = "",
        group: str = "",
        until: str = "",
        time: str = "",
        like: Spec | None = None,
    ) -> Samples:
        by = {"split": split, "group": group, "until": until, "time": time}
        if path.suffix.lower() not in ARRAYS:
            return csv_table.read(
                regular(path), target, task, drop, like=like, missing=missing, by=SplitBy(**by)
            )
        given = {"task": task, "drop": ",".join(drop), "missing": ",".join(missing)}
        for name, value in (given | by).items():
            if value and not like:
                raise UserError(
                    f"{name} ({shown(value, 60)}) must be left out, because {shown(path)} is of "
                    "numbers alone; the type of its y says what is learned"
                )
        samples = arrays.read(regular(path), target, like)
        if samples.parts["train"][0].dim() != 2:
            raise UserError(f"{shown(path)} must hold a table, and x is images")
        return samples

    def from_memory(
        self,
        given: Given,
        *,
        target: str = "",
        task: str = "",
        drop: tuple[str, ...] = (),
        missing: tuple[str, ...] = (),
        split: str = "",
        group: str = "",
        until: str = "",
        time: str = "",
        like: Spec | None = None,
    ) -> Samples | None:
        if isinstance(given.x, np.ndarray) and given.x.ndim > 2:
            return None
        if like is not None:
            return frames.samples_like(like, given, target)
        by = SplitBy(split, group, until, time)
        return frames.samples(given, target, task, drop, missing=missing, by=by)

    def convert(self, x: Part, spec: Spec) -> Tensor:
        return _standardize(frames.features_like(spec, x), spec)

    def data(
        self, samples: Samples, *, batch_size: int, seed: int = 0, like: Spec | None = None
    ) -> Data:
        if like is not None:
            spec = describe_like(like, samples, samples.parts["test"][0].shape[1:])
            parts = renumber(samples, like)
        else:
            spec, parts = _describe(samples), dict(samples.parts)
        splits = {
            part: (x if samples.moments else _standardize(x, spec), y)
            for part, (x, y) in parts.items()
        }
        notes = () if like else samples.remarks
        return Data(splits, spec, batch_size, seed, samples.digest, notes=notes)

    def read(self, paths: Sequence[str | Path], spec: Spec) -> tuple[list[str], Tensor]:
        origins, rows = self.read_with_origins(paths, spec)
        for origin in origins:
            if origin.error:
                raise UserError(origin.error)
        return [str(origin.name) for origin in origins], rows

    def read_with_origins(
        self, paths: Sequence[str | Path], spec: Spec
    ) -> tuple[list[Origin], Tensor]:
        origins: list[Origin] = []
        rows: list[Tensor] = []
        for path in files_in(paths):
            faults: dict[int, str] = {}
            rows.append(_rows(path, spec, faults))
            written = path.name.lower().endswith(TEXT)
            ids = (written and csv_table.read_ids(path)) or [""] * len(rows[-1])
            origins += [
                Origin(f"{path}:{row}", one, error=faults.get(row, ""))
                for row, one in enumerate(ids)
            ]
        return origins, torch.cat(rows)

    def to_data_units(
        self, made: Float[Tensor, "rows columns"], spec: Spec
    ) -> Float64[Tensor, "rows columns"]:
        mean, std = (torch.tensor(spec[name], dtype=torch.float64) for name in ("mean", "std"))
        return made.detach().cpu().double() * std + mean

    def write(self, made: Float[Tensor, "rows columns"], spec: Spec, path: Path) -> list[Path]:
        """Rows in the units of the data, as csv; points in the plane as a picture too."""
        if path.suffix not in ("", ".csv"):
            raise UserError(f"--out ({shown(path)}) must end in .csv, because rows were made")
        if path.suffix and made.shape[1] == 2 and (beside := path.with_suffix(".png")).exists():
            raise UserError(
                f"--out ({shown(path)}) must be another file, because {shown(beside)} is there and "
                "the picture of the points would overwrite it"
            )
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(spec["features"])
        writer.writerows(made.tolist())
        files.write(path.with_suffix(".csv"), text.getvalue().encode())
        if made.shape[1] != 2:
            return [path.with_suffix(".csv")]
        from everynet.plot import scatter  # noqa: PLC0415 -- matplotlib, to draw with
        from everynet.plot.style import png  # noqa: PLC0415

        figure = scatter(made, labels=spec["features"], title=f"{len(made):,} samples")
        files.write(path.with_suffix(".png"), png(figure))
        return [path.with_suffix(".csv"), path.with_suffix(".png")]

    def look_over(self, path: Path, report: Report, **options: Any) -> None:  # noqa: ANN401
        try:
            super().look_over(path, report, **options)
        except Faults as error:  # of several columns
            report.refused, *report.faults = error.found

    def count(self, samples: Samples, report: Report) -> None:
        count_rows(samples, report)
        report.columns = [*samples.described]
        report.often_equal = True
        report.facts |= samples.facts
        report.remarks += samples.remarks

    def line(self, spec: Spec) -> str:
        return f"{spec['name']}: {spec['task']} from {spec['shape'][0]} columns"


def _describe(samples: Samples) -> Spec:
    """What is known of a table, with the moments of its training rows."""
    x, y = samples.parts["train"]
    if samples.moments:
        mean, std = (torch.tensor(each, dtype=torch.float64) for each in samples.moments)
    else:
        fixed = (x == x[0]).all(0)
        mean = torch.where(fixed, x[0], x.mean(0))
        std = torch.where(fixed, 1.0, x.std(0, correction=0))
    if not bool(torch.isfinite(mean + std).all()):
        wide = samples.features[int((~torch.isfinite(mean + std)).nonzero()[0])]
        raise UserError(f"{samples.name}: column {wide} has values too large to standardise")
    spec = describe(samples, "table", [x.shape[1]], mean.tolist(), std.tolist())
    if samples.columns:
        spec["columns"] = list(samples.columns)
    if samples.task == "regression":
        target = {"target_mean": y.mean().item(), "target_std": y.std(correction=0).item()}
        if not all(map(math.isfinite, target.values())):
            raise UserError(f"{samples.name}: the target has values too large to learn from")
        spec |= target
    return spec


def _rows(
    path: Path, spec: Spec, faults: dict[int, str] | None = None
) -> Float64[Tensor, "rows features"]:
    """The rows of a file, standardised; what is wrong with one goes into `faults`."""
    if path.name.lower().endswith(TEXT):
        x = csv_table.features_like(spec, path, faults)
    elif path.suffix.lower() in ARRAYS:
        x = arrays.as_samples(path, "x", arrays.first(path))
    else:
        raise UserError(
            f"{shown(path)} must end in .csv, .parquet, .feather, .npy or .npz, because a table "
            "was learned"
        )
    if list(x.shape[1:]) != spec["shape"]:
        raise UserError(
            f"{shown(path)} {tuple(x.shape)} must have {spec['shape'][0]} columns: "
            + shown(", ".join(spec["features"]))
        )
    return _standardize(x, spec)


def _standardize(
    x: Float64[Tensor, "rows features"], spec: Spec
) -> Float64[Tensor, "rows features"]:
    mean, std = (torch.tensor(spec[name], dtype=torch.float64) for name in ("mean", "std"))
    return (x.double() - mean) / std


KIND = Table()
