"""Samples of a WaveNet one after the other on the CPU, with the past of every layer kept.

A layer of dilation d reads h_t and h_{t-d}, so that it keeps its last d inputs, in a ring: row
t mod d holds h_{t-d} when sample t comes, and h_t takes its place. Then a sample costs one product
of each weight with a vector, whatever the receptive field. Weights are rows of contiguous numbers,
those of all layers in one array; nothing is made anew in the loop, and a layer does all sounds of a
batch before the next layer, so that its weights are read once.

exp is our own, because the compiler can use it for several numbers at once: exp(x) = 2^k exp(r),
with r = x - k ln 2 between -ln 2 / 2 and ln 2 / 2, the series of exp to r^7, and k put into the
exponent of a number. Its relative error is below 1e-7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from torch import Tensor

from everynet.kernels.compiled import compiled

Numbers: TypeAlias = NDArray[np.float32]
Places: TypeAlias = NDArray[np.int64]

FAST = {"reassoc", "contract", "nsz"}  # sums in any order, products added in one step
ONE, HALF, TWO = np.float32(1), np.float32(0.5), np.float32(2)
LOG2_E, LOWEST, HIGHEST = np.float32(math.log2(math.e)), np.float32(-87), np.float32(88)
LN_2 = np.float32(355 / 512)  # few digits, so that k times this is exact
LN_2_REST = np.float32(math.log(2) - 355 / 512)
C2, C3, C4, C5, C6, C7 = (np.float32(1 / math.factorial(n)) for n in range(2, 8))
BIAS, MANTISSA = np.int32(127), np.int32(23)  # of a 32-bit number


@dataclass(frozen=True)
class Weights:
    """A network laid out for the loop, all of float32 and contiguous."""

    before: Float[Tensor, "entries channels"]
    """What the sample before adds to h; its last row, of 0, is where there is none."""
    now: Float[Tensor, "levels channels"]
    """What the sample adds to h."""
    gates: Float[Tensor, "layers both pasts"]
    """Weights of tanh, then of sigmoid; of h_{t-d}, then of h_t."""
    out: Float[Tensor, "layers outs channels"]
    """Weights of the residual, then of the skip connection."""
    out_bias: Float[Tensor, "layers outs"]
    hidden: Float[Tensor, "skip skip"]
    hidden_bias: Float[Tensor, " skip"]
    output: Float[Tensor, "levels skip"]
    output_bias: Float[Tensor, " levels"]


def generate(  # noqa: PLR0917 -- what the loop takes, in its order
    weights: Weights,
    dilations: Int64[Tensor, " layers"],
    ring: Float[Tensor, "batch pasts channels"],
    last: Int64[Tensor, "batch 2"],
    time: int,
    bias: Float[Tensor, "times batch layers both"],
    given: Float[Tensor, "batch steps"],
    temperature: float,
) -> tuple[Int64[Tensor, "batch steps"], Float[Tensor, "batch levels"]]:
    """The samples that follow `last` (the one before and the last one), and the last logits.

    `bias` is that of the gates, for each sample or one for all. `given` are uniform numbers, one
    for each sample that is drawn; at a temperature of 0 the likeliest is taken. `ring` and `last`
    are changed in place; `time` is how many samples are in the rings.
    """
    batch, steps = given.shape
    made = torch.empty(batch, steps, dtype=torch.int64)
    logits = torch.empty(batch, len(weights.output))
    arrays: list[Any] = [getattr(weights, part.name).numpy() for part in fields(Weights)]
    arrays += [dilations.numpy(), ring.numpy(), last.numpy(), time, bias.numpy(), given.numpy()]
    arrays += [np.float32(temperature), made.numpy(), logits.numpy()]
    _generate(*arrays)
    return made, logits


@compiled(fastmath=FAST, inline="always")
def _exp(x: np.float32) -> np.float32:
    x = min(max(x, LOWEST), HIGHEST)
    k = math.floor(x * LOG2_E + HALF)
    r = x - k * LN_2 - k * LN_2_REST
    series = ((((((C7 * r + C6) * r + C5) * r + C4) * r + C3) * r + C2) * r + ONE) * r + ONE
    return series * np.int32((np.int32(k) + BIAS) << MANTISSA).view(np.float32)


@compiled(fastmath=FAST)
def exponentials(x: Numbers, y: Numbers) -> None:
    """Exponentials of x, for the tests."""
    for i in range(len(x)):
        y[i] = _exp(x[i])


@compiled(fastmath=FAST)
def _add_product(y: Numbers, w: Numbers, x: Numbers) -> None:
    """Add the product of a matrix and a vector to y."""
    for row in range(len(y)):
        total = np.float32(0)
        for i in range(len(x)):
            total += w[row, i] * x[i]
        y[row] += total


@compiled(fastmath=FAST)
def _gate(a: Numbers, z: Numbers) -> None:
    """The tanh of the first half of a, times the sigmoid of the second half."""
    n = len(z)
    for i in range(n):
        e = _exp(-TWO * a[i])  # tanh(a) = (1 - e) / (1 + e)
        z[i] = (ONE - e) / ((ONE + e) * (ONE + _exp(-a[n + i])))


@compiled(fastmath=FAST)
def _draw(logits: Numbers, p: Numbers, uniform: np.float32, temperature: np.float32) -> int:
    """The likeliest level, or the first at which the sum of probabilities exceeds `uniform`."""
    best = 0
    for level in range(len(logits)):
        if logits[level] > logits[best]:
            best = level
    if temperature == 0:
        return best
    total = np.float32(0)
    for level in range(len(logits)):
        p[level] = _exp((logits[level] - logits[best]) / temperature)
        total += p[level]
    rest = uniform * total
    for level in range(len(logits)):
        rest -= p[level]
        if rest < 0:
            return level
    return best  # where rounding leaves a rest after the last level


@compiled(fastmath=FAST)
def _generate(  # noqa: PLR0912, PLR0917 -- one loop, whose arrays stand in a row
    before: Numbers,
    now: Numbers,
    gates: Numbers,
    out: Numbers,
    out_bias: Numbers,
    hidden: Numbers,
    hidden_bias: Numbers,
    output: Numbers,
    output_bias: Numbers,
    dilations: Places,
    ring: Numbers,
    last: Places,
    time: int,
    bias: Numbers,
    given: Numbers,
    temperature: np.float32,
    made: Places,
    logits: Numbers,
) -> None:
    batch, steps = given.shape
    channels = now.shape[1]
    h, s = np.empty((batch, channels), np.float32), np.empty((batch, len(hidden)), np.float32)
    a, z = np.empty(2 * channels, np.float32), np.empty(channels, np.float32)
    pair, change = np.empty(2 * channels, np.float32), np.empty(out.shape[1], np.float32)
    k, p = np.empty(len(hidden), np.float32), np.empty(len(output), np.float32)
    for step in range(steps):
        at = min(step, len(bias) - 1)
        for row in range(batch):
            for i in range(channels):
                h[row, i] = before[last[row, 0], i] + now[last[row, 1], i]
            for i in range(len(hidden)):
                s[row, i] = 0
        first = 0
        for layer in range(len(dilations)):
            place = first + time % dilations[layer]
            first += dilations[layer]
            for row in range(batch):
                for i in range(channels):
                    pair[i] = ring[row, place, i]
                    pair[channels + i] = h[row, i]
                    ring[row, place, i] = h[row, i]
                for i in range(2 * channels):
                    a[i] = bias[at, row, layer, i]
                _add_product(a, gates[layer], pair)
                _gate(a, z)
                for i in range(len(change)):
                    change[i] = out_bias[layer, i]
                _add_product(change, out[layer], z)
                for i in range(channels):
                    h[row, i] += change[i]
                for i in range(len(hidden)):
                    s[row, i] += change[channels + i]
        time += 1
        for row in range(batch):
            for i in range(len(hidden)):
                s[row, i] = max(s[row, i], np.float32(0))
                k[i] = hidden_bias[i]
            _add_product(k, hidden, s[row])
            for i in range(len(k)):
                k[i] = max(k[i], np.float32(0))
            for level in range(len(output)):
                logits[row, level] = output_bias[level]
            _add_product(logits[row], output, k)
            level = _draw(logits[row], p, given[row, step], temperature)
            last[row, 0], last[row, 1] = last[row, 1], level
            made[row, step] = level
