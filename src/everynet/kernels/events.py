"""A product with spikes: where most of x is 0, only the weights at the others are added up.

    y = x W^T + b,   dL/dW = (dL/dy)^T x,   dL/dx = (dL/dy) W

Rows of x are kept as lists of what is not 0 in them: the compiled loop adds that many rows of W^T
to a row of y, and backwards, with the lists of the columns of x, rows of dL/dy to a row of dL/dW^T.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numba import njit, prange
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from everynet.kernels.lif import Reals
from everynet.kernels.threads import threaded

SPARSE = 0.2  # share of x that is not 0, above which a whole product is faster
NARROW = 64  # units of y below which it is


def event_linear(
    x: Float[Tensor, "*rows inputs"],
    weight: Float[Tensor, "units inputs"],
    bias: Float[Tensor, " units"],
) -> Float[Tensor, "*rows units"]:
    """What `torch.nn.functional.linear` gives, faster on the CPU where most of x is 0."""
    known = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
    if not known or x.dtype != weight.dtype or len(weight) < NARROW:
        return linear(x, weight, bias)
    if torch.count_nonzero(x) > SPARSE * x.numel():
        return linear(x, weight, bias)
    made: Tensor = _EventLinear.apply(x.flatten(0, -2), weight, bias)  # type: ignore[no-untyped-call]  # torch's
    return made.reshape(*x.shape[:-1], len(weight))


class _EventLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:  # noqa: ANN401 -- torch adds attributes to ctx
        lists = _lists(x.detach().contiguous().numpy())
        y = bias.detach().repeat(len(x), 1)
        threaded(_add_rows)(*lists, weight.detach().T.contiguous().numpy(), y.numpy())
        ctx.save_for_backward(weight)
        ctx.lists = lists
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        (weight,) = ctx.saved_tensors
        to_x = upstream @ weight if ctx.needs_input_grad[0] else None
        to_weight = None
        if ctx.needs_input_grad[1]:
            turned = weight.new_zeros(weight.shape[::-1])
            starts, where, values = ctx.lists
            lists = _by_column(starts, where, values, weight.shape[1])
            threaded(_add_rows)(*lists, upstream.contiguous().numpy(), turned.numpy())
            to_weight = turned.T
        return to_x, to_weight, upstream.sum(dim=0)


@njit(cache=True)
def _lists(x: Reals) -> tuple[NDArray[np.int64], NDArray[np.int32], Reals]:
    """Where each row's list starts, the columns of what is not 0, and the values there."""
    rows, columns = x.shape
    starts = np.empty(rows + 1, np.int64)
    where, values = np.empty(x.size + 1, np.int32), np.empty(x.size + 1, x.dtype)
    count = 0
    for r in range(rows):
        starts[r] = count
        row = x[r]
        for i in range(columns):  # no branch: written over until there is something
            where[count] = i
            values[count] = row[i]
            count += row[i] != 0
    starts[rows] = count
    return starts, where[:count].copy(), values[:count].copy()


@njit(cache=True)
def _by_column(
    starts: NDArray[np.int64], where: NDArray[np.int32], values: Reals, columns: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], Reals]:
    """The same lists for each column, of rows."""
    ends = np.zeros(columns + 1, np.int64)
    for i in where:
        ends[i + 1] += 1
    for i in range(columns):
        ends[i + 1] += ends[i]
    place = ends[:-1].copy()
    rows, turned = np.empty_like(where), np.empty_like(values)
    for r in range(len(starts) - 1):
        for e in range(starts[r], starts[r + 1]):
            at = place[where[e]]
            rows[at], turned[at] = r, values[e]
            place[where[e]] = at + 1
    return ends, rows, turned


def _add_rows(
    starts: NDArray[np.int64],
    where: NDArray[np.int32],
    values: Reals,
    rows: Reals,
    out: Reals,
) -> None:
    """To each row of `out` the rows of its list, times their values; four at a time."""
    for r in prange(len(out)):
        line = out[r]
        e, end = starts[r], starts[r + 1]
        while e + 4 <= end:
            a, b, c, d = values[e], values[e + 1], values[e + 2], values[e + 3]
            p, q = rows[where[e]], rows[where[e + 1]]
            s, t = rows[where[e + 2]], rows[where[e + 3]]
            for i in range(len(line)):
                line[i] += (a * p[i] + b * q[i]) + (c * s[i] + d * t[i])
            e += 4
        while e < end:
            a, p = values[e], rows[where[e]]
            for i in range(len(line)):
                line[i] += a * p[i]
            e += 1
