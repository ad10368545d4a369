"""Sweeps of a Hopfield network that holds its patterns and never its weights.

Neuron i, one after another in a given order or all at once, takes the sign of M times its field,

    sum_m o_m X_mi - M x_i + M b,    o = x X^T

which for b = 0 is a sum of whole numbers and exact; where it is 0 the neuron stays as it is. A
neuron that changed moves each overlap o_m by 2 x_i X_mi. So a sweep costs M N, not N^2. On the CPU
a compiled loop goes from neuron to neuron; the torch form, for other devices, takes all rows at
once. With all neurons at once patterns are read as whole numbers of a byte, an eighth of what a
product of matrices would read.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int8
from numpy.typing import NDArray
from torch import Tensor

from everynet.kernels.compiled import compiled


def sweep(
    patterns: Int8[Tensor, "neurons patterns"],
    bias: float,
    x: Float[Tensor, "rows neurons"],
    o: Float[Tensor, "rows patterns"],
    order: Int[Tensor, " updates"],
) -> Bool[Tensor, " rows"]:
    """Update the neurons in `order`: x and the overlaps o in place; which rows changed."""
    if x.device.type != "cpu":
        return sweep_torch(patterns, bias, x, o, order)
    changed = torch.zeros(len(x), dtype=torch.bool)
    _loop(patterns.numpy(), bias, x.numpy(), o.numpy(), order.numpy(), changed.numpy())
    return changed


@compiled(fastmath={"reassoc", "contract"})  # the sums are of whole numbers: any order is exact
def _loop(  # noqa: PLR0917 -- arrays of a compiled loop stand in a row
    patterns: NDArray[np.int8],
    bias: float,
    x: NDArray[np.float64],
    o: NDArray[np.float64],
    order: NDArray[np.int64],
    changed: NDArray[np.bool_],
) -> None:
    count = patterns.shape[1]
    for row in range(len(x)):
        for i in order:
            total = 0.0
            for m in range(count):
                total += o[row, m] * patterns[i, m]
            field = total - count * x[row, i] + count * bias
            if field * x[row, i] < 0:
                x[row, i] = -x[row, i]
                changed[row] = True
                for m in range(count):
                    o[row, m] += 2 * x[row, i] * patterns[i, m]


def sweep_torch(
    patterns: Int8[Tensor, "neurons patterns"],
    bias: float,
    x: Float[Tensor, "rows neurons"],
    o: Float[Tensor, "rows patterns"],
    order: Int[Tensor, " updates"],
) -> Bool[Tensor, " rows"]:
    """The same by whole-tensor operations, neuron by neuron."""
    before, count = x.clone(), patterns.shape[1]
    for i in order.tolist():
        pattern = patterns[i].to(o.dtype)
        field = o @ pattern - count * x[:, i] + count * bias
        x[:, i] = torch.where(field * x[:, i] < 0, -x[:, i], x[:, i])
        change = (x[:, i] - before[:, i])[:, None]  # each neuron is in `order` once
        o += change * pattern
    return (x != before).any(1)


def as_bytes(signs: Float[Tensor, "rows neurons"]) -> Int8[Tensor, "rows neurons"]:
    """Signs as whole numbers of a byte; numpy wakes no threads, which would take longer."""
    if signs.device.type != "cpu":
        return signs.to(torch.int8)
    return torch.from_numpy(signs.numpy().astype(np.int8))


def step_all(
    patterns: Int8[Tensor, "patterns neurons"], bias: float, x: Float[Tensor, "rows neurons"]
) -> Float[Tensor, "rows neurons"]:
    """The states after all neurons were updated at once."""
    if x.device.type != "cpu" or patterns.numel() >= 2**31:  # the loop counts in 32 bits
        return step_all_torch(patterns, bias, x)
    after = x.clone()
    _loop_all(patterns.numpy(), bias, after.numpy(), as_bytes(x).numpy())
    return after


def step_all_torch(
    patterns: Int8[Tensor, "patterns neurons"], bias: float, x: Float[Tensor, "rows neurons"]
) -> Float[Tensor, "rows neurons"]:
    """The same by whole-tensor operations."""
    count, wide = len(patterns), patterns.to(x.dtype)
    field = (x @ wide.T) @ wide - count * x + count * bias
    return torch.where(field * x < 0, -x, x)


@compiled()
def _loop_all(
    patterns: NDArray[np.int8], bias: float, after: NDArray[np.float64], x: NDArray[np.int8]
) -> None:
    count, neurons = patterns.shape
    total = np.empty(neurons, np.int32)
    for row in range(len(x)):
        total[:] = 0
        for m in range(count):
            o = np.int32(0)
            for i in range(neurons):
                o += np.int32(x[row, i]) * np.int32(patterns[m, i])
            for i in range(neurons):
                total[i] += o * np.int32(patterns[m, i])
        for i in range(neurons):
            field = total[i] - count * x[row, i] + count * bias
            if field * x[row, i] < 0:
                after[row, i] = -x[row, i]
