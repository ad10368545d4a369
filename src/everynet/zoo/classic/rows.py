"""Rows without targets: how recipes load them, and what no density can be learned from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from everynet.data import load
from everynet.data.dataset import Data
from everynet.data.kinds.table import TEXT
from everynet.data.loading import is_own
from everynet.data.tables.csv_table import DENSITY
from everynet.system.errors import UserError


def load_rows(
    data: str, columns: Mapping[str, Any] = MappingProxyType({}), *, varying: bool = True
) -> Data:
    """A known table or the user's own; a column that is named the target is not learned from.

    Unless it says otherwise no column may be the same in every row.
    """
    written = is_own(data) and data.lower().endswith(TEXT)
    task = DENSITY if written and not columns.get("target") else ""
    found = load(data, kind="table", batch_size=1, task=task, **columns)
    if varying:
        require_varying(found.whole[0], found.spec["features"])
    return replace(found, spec={**found.spec, "task": DENSITY})


def require_varying(x: Float[Tensor, "samples features"], names: Sequence[str] = ()) -> None:
    """Refuse a column that is the same in every row: its variance is 0, its density infinite."""
    same = (x == x[0]).all(0).nonzero()
    if len(x) > 1 and len(same):
        column = int(same[0])
        raise UserError(
            f"column {names[column] if names else column} ({x[0, column].item():g} in every row) "
            "must vary, because a variance of 0 has an infinite density; leave it out"
        )


def require_components(k: int, x: Float[Tensor, "samples features"], *, columns: bool) -> None:
    """Refuse components beyond the rows or, where each needs a direction, the columns."""
    rows, features = x.shape
    most = min(rows, features) if columns else rows
    if not 1 <= k <= most:
        counted = f"n_samples = {rows} rows" + f" and {features} columns" * columns
        raise UserError(
            f"n_components ({k}) must be from 1 to {most}, because X has {counted}; give fewer"
        )


def covariance(
    x: Float[Tensor, "samples features"],
) -> tuple[Float[Tensor, " features"], Float[Tensor, "features features"]]:
    """The mean of the rows and their covariance, divided by n."""
    mean = x.mean(0)
    centred = x - mean
    product: Tensor = centred.T @ centred
    return mean, torch.div(product, len(x))
