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
from typing import Any, TypeAlias

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
    added = flat.new_zeros(outputs) if bias is None else bias
    _multiply(_array(flat), _array(weight), _array(added), y.numpy())
    return y.view(*x.shape[:-1], outputs)


def attend_past(
    x: Float[Tensor, "rows hidden"],
    project: tuple[Float[Tensor, "three_hidden hidden"], Float[Tensor, " three_hidden"]],
    output: tuple[Float[Tensor, "hidden hidden"], Float[Tensor, " hidden"]],
    stored: Float[Tensor, "2 rows heads context size"],
    length: int,
) -> Float[Tensor, "rows hidden"]:
    """Self-attention of a further time step; its keys and values are put at `length`.

    `project` are weights and biases of queries, keys and values, `output` of the last projection.
    """
    y = torch.empty_like(x)
    (weight, bias), (weight_out, bias_out) = map(_array, project), map(_array, output)
    _attend_past(_array(x), weight, bias, weight_out, bias_out, stored.numpy(), length, y.numpy())
    return y


def attend_memory(
    x: Float[Tensor, "rows hidden"],
    project: tuple[Float[Tensor, "hidden hidden"], Float[Tensor, " hidden"]],
    output: tuple[Float[Tensor, "hidden hidden"], Float[Tensor, " hidden"]],
    memory: tuple[
        Float[Tensor, "batch heads keys size"],
        Float[Tensor, "batch heads keys size"],
        Bool[Tensor, "batch keys"],
    ],
) -> Float[Tensor, "rows hidden"]:
    """What rows read of the keys and values of a memory, those of them that are allowed.

    Rows of a beam, one after another, share the memory of their source.
    """
    y = torch.empty_like(x)
    (weight, bias), (weight_out, bias_out) = map(_array, project), map(_array, output)
    keys, values, allowed = map(_array, memory)
    _attend_memory(_array(x), weight, bias, weight_out, bias_out, keys, values, allowed, y.numpy())
    return y


def _array(tensor: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = tensor.detach().contiguous().numpy()
    return array


Numbers: TypeAlias = NDArray[Any]  # of float32 or float64


@compiled(fastmath={"reassoc", "contract"})
def _multiply(x: Numbers, weight: Numbers, bias: Numbers, y: Numbers) -> None:
    rows, size = x.shape
    fours = rows - rows % 4
    for o in range(len(weight)):
        begin = bias[o]
        for r in range(0, fours, 4):
            a, b, c, d = begin, begin, begin, begin
            for k in range(size):
                w = weight[o, k]
                a += w * x[r, k]  # (1)
                b += w * x[r + 1, k]
                c += w * x[r + 2, k]
                d += w * x[r + 3, k]
            y[r, o], y[r + 1, o], y[r + 2, o], y[r + 3, o] = a, b, c, d
        for r in range(fours, rows):
            a = begin
            for k in range(size):
                a += weight[o, k] * x[r, k]  # (1)
            y[r, o] = a


@compiled(fastmath={"reassoc", "contract"}, inline="always")
def _read(
    query: Numbers, keys: Numbers, values: Numbers, allowed: NDArray[np.bool_], o: Numbers
) -> None:
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
def _attend_past(  # noqa: PLR0917 -- arrays of a compiled loop stand in a row
    x: Numbers, weight: Numbers, bias: Numbers, weight_out: Numbers, bias_out: Numbers,
    stored: Numbers, length: int, y: Numbers,
) -> None:  # fmt: skip
    _, rows, heads, _, size = stored.shape
    hidden, every = heads * size, np.ones(length + 1, np.bool_)
    projected, o = np.empty((rows, 3 * hidden), x.dtype), np.empty_like(x)
    _multiply(x, weight, bias, projected)
    for r in range(rows):
        for h in range(heads):
            low, high = h * size, (h + 1) * size
            stored[0, r, h, length] = projected[r, hidden + low : hidden + high]
            stored[1, r, h, length] = projected[r, 2 * hidden + low : 2 * hidden + high]
            keys, values = stored[0, r, h, : length + 1], stored[1, r, h, : length + 1]
            _read(projected[r, low:high], keys, values, every, o[r, low:high])
    _multiply(o, weight_out, bias_out, y)


@compiled(fastmath={"reassoc", "contract"})
def _attend_memory(  # noqa: PLR0917 -- arrays of a compiled loop stand in a row
    x: Numbers, weight: Numbers, bias: Numbers, weight_out: Numbers, bias_out: Numbers,
    keys: Numbers, values: Numbers, allowed: NDArray[np.bool_], y: Numbers,
) -> None:  # fmt: skip
    batch, heads, _, size = keys.shape
    query, o, beam = np.empty_like(x), np.empty_like(x), len(x) // batch
    _multiply(x, weight, bias, query)
    for r in range(len(x)):
        for h in range(heads):
            low, high, m = h * size, (h + 1) * size, r // beam
            _read(query[r, low:high], keys[m, h], values[m, h], allowed[m], o[r, low:high])
    _multiply(o, weight_out, bias_out, y)
