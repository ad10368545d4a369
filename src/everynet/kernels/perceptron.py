"""Passes of the perceptron rule over the samples, one after the other, until none is a mistake.

On the CPU a compiled loop looks at one sample after another. The torch form, for other devices,
looks at all that remain of a pass at once and jumps to the first mistake among them: it computes
the same updates in the same order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from everynet.kernels.compiled import compiled


class Learned(NamedTuple):
    """The weights after a pass without a mistake, or after `max_passes`."""

    weight: Float[Tensor, " features"]
    bias: float
    mistakes: int
    passes: int
    converged: bool
    norms: Float[Tensor, " recorded"]
    """Length of (weight, bias) after the first, second, ... mistake, up to `record` of them."""


def perceptron(
    x: Float[Tensor, "samples features"],
    t: Int[Tensor, " samples"],
    lr: float,
    max_passes: int,
    record: int = 0,
) -> Learned:
    """Learn targets t (0 or 1) from rows x, starting from zero weights, on the device of x."""
    if x.device.type != "cpu":
        return perceptron_torch(x, t, lr, max_passes, record)
    rows, targets = x.double().contiguous().numpy(), t.to(torch.int64).numpy()
    norms = np.zeros(record)
    w, mistakes, passes, converged = _loop(rows, targets, lr, max_passes, norms)
    weight, seen = torch.from_numpy(w[:-1]), torch.from_numpy(norms[:mistakes])
    return Learned(weight, float(w[-1]), mistakes, passes, converged, seen)


@compiled()
def _loop(
    rows: NDArray[np.float64],
    targets: NDArray[np.int64],
    lr: float,
    max_passes: int,
    norms: NDArray[np.float64],
) -> tuple[NDArray[np.float64], int, int, bool]:
    """The weights with the bias last, the number of mistakes and passes, whether it converged."""
    samples, features = rows.shape
    w = np.zeros(features + 1)
    mistakes = 0
    for number in range(max_passes):
        before = mistakes
        for i in range(samples):
            z = w[features]
            for j in range(features):
                z += w[j] * rows[i, j]
            error = targets[i] - (1 if z > 0 else 0)
            if error != 0:
                for j in range(features):
                    w[j] += lr * error * rows[i, j]
                w[features] += lr * error
                if mistakes < len(norms):
                    norms[mistakes] = np.sqrt((w * w).sum())
                mistakes += 1
        if mistakes == before:
            return w, mistakes, number + 1, True
    return w, mistakes, max_passes, False


def perceptron_torch(
    x: Float[Tensor, "samples features"],
    t: Int[Tensor, " samples"],
    lr: float,
    max_passes: int,
    record: int = 0,
) -> Learned:
    """The same by whole-tensor operations, for devices other than the CPU."""
    rows = torch.cat([x.double(), x.new_ones(len(x), 1, dtype=torch.float64)], 1)
    w, norms = rows.new_zeros(rows.shape[1]), []
    mistakes, passes, converged = 0, 0, False
    while passes < max_passes and not converged:
        before, first = mistakes, 0
        while len(wrong := ((rows[first:] @ w > 0).long() != t[first:]).nonzero()):
            first += int(wrong[0])
            w += lr * (2 * t[first] - 1) * rows[first]
            if mistakes < record:
                norms.append(w.norm())
            mistakes, first = mistakes + 1, first + 1
        passes, converged = passes + 1, mistakes == before
    lengths = torch.stack(norms).cpu() if norms else torch.zeros(0, dtype=torch.float64)
    return Learned(w[:-1], w[-1].item(), mistakes, passes, converged, lengths)
