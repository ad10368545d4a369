"""Products and attention of a few rows, which is what a decoder on the CPU spends its time with.

    y_ro = sum_k w_ok x_rk                                         (1)  product
    o_r  = sum_j a_rj v_j,   a_r = softmax of q_r . k_j / sqrt(d)  (2)  attention of each head

A decoder takes one token of a sentence, or of the sequences of a beam, at a time. Torch's product
of few rows reads the weights from further away than it has to, and each of its small operations
costs more than its numbers do. Here a weight is read once for four rows, and what a head reads is
one pass over its keys. Not differentiable: `fits` says where these loops may take torch's place.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from everynet.kernels.compiled import compiled
from everynet.system.tracing import is_traced, is_transformed

MOST = 8
"""Rows up to which a product is limited by reading the weights."""
LEAST = 128
"""Numbers of a row from which the loops are worth their compiling, which is done once a machine."""


def fits(x: Float[Tensor, "*rows size"]) -> bool:
    """Whether these rows are few and long enough, on the CPU, and need no gradient."""
    return (
        not torch.is_grad_enabled()
        and x.shape[-1] >= LEAST
        and 0 < x.numel() <= MOST * x.shape[-1]
        and x.is_cpu
        and x.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled("cpu")
        and not is_traced()
        and not is_transformed()
    )


def linear(
    x: Float[Tensor, "*rows size"], weight: Float[Tensor, "outputs size"]
) -> Float[Tensor, "*rows outputs"]:
    """`torch.nn.functional.linear`, for few rows by the loop."""
    return multiply(x, weight) if fits(x) else functional.linear(x, weight)


def multiply(
    x: Float[Tensor, "*rows size"],
    weight: Float[Tensor, "outputs size"],
    bias: Float[Tensor, " outputs"] | None = None,
) -> Float[Tensor, "*rows outputs"]:
    """What `torch.nn.functional.linear` gives."""
    outputs, size = weight.shape
    flat = x.reshape(-1, size)
    y = flat.new_empty(flat.shape[0], outputs)
    _multiply(flat.contiguous().numpy(), weight.detach().contiguous().numpy(), y.numpy())
    if bias is not None:
        y.add_(bias)
    return y.view(*x.shape[:-1], outputs)


def attend_past(
    projected: Float[Tensor, "rows three_hidden"],
    stored: Float[Tensor, "2 rows heads context size"],
    length: int,
) -> Float[Tensor, "rows hidden"]:
    """What queries read of earlier keys and their own; keys and values are put at `length`."""
    o = projected.new_empty(projected.shape[0], projected.shape[1] // 3)
    _attend_past(projected.numpy(), stored.numpy(), length, o.numpy())
    return o


def attend_memory(
    query: Float[Tensor, "rows hidden"],
    keys: Float[Tensor, "batch heads keys size"],
    values: Float[Tensor, "batch heads keys size"],
    allowed: Bool[Tensor, "batch keys"],
) -> Float[Tensor, "rows hidden"]:
    """What queries read of a memory; rows of a beam, one after another, share one of it."""
    o = torch.empty_like(query)
    memory = keys.contiguous().numpy(), values.contiguous().numpy(), allowed.numpy()
    _attend_memory(query.numpy(), *memory, o.numpy())
    return o


Numbers = NDArray[np.float64]  # or float32


@compiled(fastmath={"reassoc", "contract"})
def _multiply(x: Numbers, weight: Numbers, y: Numbers) -> None:
    rows, size = x.shape
    fours = rows - rows % 4
    zero = x.dtype.type(0)
    for o in range(len(weight)):
        for r in range(0, fours, 4):
            a, b, c, d = zero, zero, zero, zero
            for k in range(size):
                w = weight[o, k]
                a += w * x[r, k]  # (1)
                b += w * x[r + 1, k]
                c += w * x[r + 2, k]
                d += w * x[r + 3, k]
            y[r, o], y[r + 1, o], y[r + 2, o], y[r + 3, o] = a, b, c, d
        for r in range(fours, rows):
            a = zero
            for k in range(size):
                a += weight[o, k] * x[r, k]  # (1)
            y[r, o] = a


@compiled(fastmath={"reassoc", "contract"}, inline="always")
def _read(query: Numbers, keys: Numbers, values: Numbers, allowed: Numbers, o: Numbers) -> None:
    """One head of one row, into o; where no key may be read, o is 0."""
    count, size = keys.shape
    scores, scale = np.empty(count, query.dtype), 1 / math.sqrt(size)
    largest = -np.inf
    for j in range(count):
        score = query.dtype.type(0)
        for k in range(size):
            score += query[k] * keys[j, k]
        scores[j] = score * scale if allowed[j] else -np.inf
        largest = max(largest, scores[j])
    o[:] = 0
    if largest == -np.inf:
        return
    total = query.dtype.type(0)
    for j in range(count):
        weight = query.dtype.type(math.exp(scores[j] - largest))
        total += weight
        for k in range(size):
            o[k] += weight * values[j, k]
    for k in range(size):
        o[k] /= total  # (2)


@compiled(fastmath={"reassoc", "contract"})
def _attend_past(projected: Numbers, stored: Numbers, length: int, o: Numbers) -> None:
    _, rows, heads, _, size = stored.shape
    hidden, every = heads * size, np.ones(length + 1, np.bool_)
    for r in range(rows):
        for h in range(heads):
            low, high = h * size, (h + 1) * size
            stored[0, r, h, length] = projected[r, hidden + low : hidden + high]
            stored[1, r, h, length] = projected[r, 2 * hidden + low : 2 * hidden + high]
            keys, values = stored[0, r, h, : length + 1], stored[1, r, h, : length + 1]
            _read(projected[r, low:high], keys, values, every, o[r, low:high])


@compiled(fastmath={"reassoc", "contract"})
def _attend_memory(
    query: Numbers, keys: Numbers, values: Numbers, allowed: NDArray[np.bool_], o: Numbers
) -> None:
    batch, heads, _, size = keys.shape
    beam = len(query) // batch
    for r in range(len(query)):
        for h in range(heads):
            low, high, m = h * size, (h + 1) * size, r // beam
            _read(query[r, low:high], keys[m, h], values[m, h], allowed[m], o[r, low:high])
