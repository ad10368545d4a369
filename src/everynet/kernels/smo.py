"""Sequential minimal optimisation: the dual problem of a support vector machine, pair by pair.

It maximises sum_t y_t beta_t - 1/2 beta K beta with low_t <= beta_t <= high_t, sum_t beta_t = 0.
Its gradient is y - K beta, here `error`. Each step takes the row that may rise with the largest
error, then the one that may fall with which the objective rises most (second-order selection), and
moves both as far as is best for the two. It ends where no error of a row that may rise is `tol`
above one of a row that may fall.

Steps are taken among rows whose columns of K are there. When these are less than half as far from
the end as all rows are, the columns of the rows that are the furthest from it are fetched, many by
one product: so hardly more columns are computed than belong to support vectors. Where memory is
short, those that were used the longest ago make room.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from everynet.kernels.compiled import compiled

Reals: TypeAlias = NDArray[np.float64]
Whole: TypeAlias = NDArray[np.int64]
Columns: TypeAlias = NDArray[np.float64] | NDArray[np.float32]

BLOCK = 32
"""Columns that one product gives at most: more are faster each, and more of them unused."""
STEPS = 20_000
"""Steps after which the loop returns to Python, so that it can be interrupted."""
FLAT = 1e-12
"""The least curvature along a pair: equal rows have none, and a step would be without end."""
CONVERGED, MISSING, PAUSED = 0, 1, 2


class Solution(NamedTuple):
    """Where the steps ended."""

    beta: Reals
    bias: float
    """With it K beta + bias is y wherever beta is between its bounds."""
    steps: int
    converged: bool
    columns: int
    """How many columns of K were computed."""


def solve(
    fetch: Callable[[Whole], Columns],
    diagonal: Reals,
    y: Reals,
    low: Reals,
    high: Reals,
    *,
    tol: float,
    max_steps: int,
    slots: int,
) -> Solution:
    """Beta and bias, from beta = 0; `fetch` gives columns of K, one a row of what it returns.

    At most `slots` columns are in memory at a time.
    """
    n = len(y)
    if not len(diagonal) == len(low) == len(high) == n >= 2:
        raise ValueError(f"diagonal, y ({n} rows), low and high must have one length, 2 or more")
    if not ((low <= 0) & (high >= 0) & (high - low < np.inf)).all() or not tol > 0:
        raise ValueError("low must be at most 0, high at least 0, both finite, and tol positive")
    slots = min(max(slots, 2), n)
    block = max(1, min(BLOCK, slots // 2))
    beta, error = np.zeros(n), y.astype(np.float64)
    slot, used = np.full(n, -1), np.zeros(n, np.int64)
    columns: Columns = np.empty((0, n))
    steps, fetched, filled, state = 0, 0, 0, MISSING
    while state != CONVERGED and steps < max_steps:
        if state == MISSING:
            wanted = _furthest(beta, error, (low, high), slot, block)
            found = _checked(fetch(wanted), (len(wanted), n))
            if not fetched:
                columns = np.empty((slots, n), found.dtype)
            fresh = np.arange(filled, min(filled + len(wanted), slots))
            filled, fetched = filled + len(fresh), fetched + len(wanted)
            old = _oldest(slot, used, len(wanted) - len(fresh))
            places = np.concatenate([fresh, slot[old]])
            slot[old] = -1
            columns[places], slot[wanted], used[wanted] = found, places, steps + fetched
        state, taken = _steps(
            columns, slot, used, diagonal, low, high, beta, error, tol,
            min(STEPS, max_steps - steps), steps + fetched,
        )  # fmt: skip
        steps += taken
    free = (beta > low) & (beta < high)
    if free.any():
        bias = float(error[free].mean())
    else:  # any bias from one of these to the other
        bias = float(error[beta < high].max() + error[beta > low].min()) / 2
    return Solution(beta, bias, steps, state == CONVERGED, fetched)


def _checked(found: Columns, shape: tuple[int, int]) -> Columns:
    """The columns, because the compiled loop looks at no bounds and never ends with NaN."""
    if found.shape != shape:
        raise ValueError(f"fetch must give {[*shape]} numbers, not {[*found.shape]}")
    if not np.isfinite(found).all():
        raise ValueError("the kernel is too large for some rows; scale the features")
    return found


def _furthest(
    beta: Reals, error: Reals, bounds: tuple[Reals, Reals], slot: Whole, block: int
) -> Whole:
    """The rows without a column that are the furthest from the end, up to `block` of them."""
    up, down = beta < bounds[1], beta > bounds[0]
    middle = (error[up].max() + error[down].min()) / 2
    distance = np.maximum(
        np.where(up, error - middle, -np.inf), np.where(down, middle - error, -np.inf)
    )
    distance[slot >= 0] = -np.inf
    order = np.argsort(-distance, kind="stable")[:block]
    return order[distance[order] > 0]


def _oldest(slot: Whole, used: Whole, count: int) -> Whole:
    """The rows whose columns were used the longest ago."""
    there = (slot >= 0).nonzero()[0]
    return there[np.argsort(used[there], kind="stable")[:count]]


@compiled()
def _steps(  # noqa: PLR0917 -- the loop's state
    columns: Columns,
    slot: Whole,
    used: Whole,
    diagonal: Reals,
    low: Reals,
    high: Reals,
    beta: Reals,
    error: Reals,
    tol: float,
    budget: int,
    clock: int,
) -> tuple[int, int]:
    """Up to `budget` steps: how they ended, and how many were taken."""
    n = len(beta)
    for taken in range(budget):
        i, top, bottom = -1, -np.inf, np.inf
        highest, lowest = -np.inf, np.inf  # of all rows, whether their columns are there or not
        for t in range(n):
            if beta[t] < high[t]:
                highest = max(highest, error[t])
                if slot[t] >= 0 and error[t] > top:
                    i, top = t, error[t]
            if beta[t] > low[t]:
                lowest = min(lowest, error[t])
                if slot[t] >= 0:
                    bottom = min(bottom, error[t])
        if highest - lowest < tol:
            return CONVERGED, taken
        if i < 0 or top - bottom < 0.5 * (highest - lowest):
            return MISSING, taken
        column_i = columns[slot[i]]
        j, best = i, 0.0
        for t in range(n):
            gap = top - error[t]
            if gap > 0 and beta[t] > low[t] and slot[t] >= 0:
                gain = gap * gap / max(diagonal[i] + diagonal[t] - 2.0 * column_i[t], FLAT)
                if gain > best:
                    j, best = t, gain
        column_j = columns[slot[j]]
        used[i] = used[j] = clock + taken + 1
        curvature = max(diagonal[i] + diagonal[j] - 2.0 * column_i[j], FLAT)
        rise, fall = high[i] - beta[i], beta[j] - low[j]
        length = min((top - error[j]) / curvature, rise, fall)
        beta[i] = high[i] if length == rise else beta[i] + length
        beta[j] = low[j] if length == fall else beta[j] - length
        for t in range(n):
            error[t] -= length * (column_i[t] - column_j[t])
    return PAUSED, budget
