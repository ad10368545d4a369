"""Products and attention of a few rows, compiled; `nn/few_rows.py` says what they are for.

y_ro = b_o + sum_k w_ok x_rk                                   (1)  product
o_r  = sum_j a_rj v_j,   a_r = softmax of q_r . k_j / sqrt(d)  (2)  attention of each head

x are rows, w and b weights and biases, q, k and v queries, keys and values of size d.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from everynet.kernels.compiled import compiled

Numbers: TypeAlias = NDArray[Any]  # of float32 or float64


@compiled(fastmath={"reassoc", "contract"})
def multiply(x: Numbers, weight: Numbers, bias: Numbers, y: Numbers) -> None:
    """Write the product of each row with the weights, and the biases, to y."""
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
def attend_past(  # noqa: PLR0917 -- arrays of a compiled loop stand in a row
    x: Numbers, weight: Numbers, bias: Numbers, weight_out: Numbers, bias_out: Numbers,
    stored: Numbers, length: int, y: Numbers,
) -> None:  # fmt: skip
    """Write what a further time step reads of its past to y, and its keys and values there."""
    _, rows, heads, _, size = stored.shape
    hidden, every = heads * size, np.ones(length + 1, np.bool_)
    projected, o = np.empty((rows, 3 * hidden), x.dtype), np.empty_like(x)
    multiply(x, weight, bias, projected)
    for r in range(rows):
        for h in range(heads):
            low, high = h * size, (h + 1) * size
            stored[0, r, h, length] = projected[r, hidden + low : hidden + high]
            stored[1, r, h, length] = projected[r, 2 * hidden + low : 2 * hidden + high]
            keys, values = stored[0, r, h, : length + 1], stored[1, r, h, : length + 1]
            _read(projected[r, low:high], keys, values, every, o[r, low:high])
    multiply(o, weight_out, bias_out, y)


@compiled(fastmath={"reassoc", "contract"})
def attend_memory(  # noqa: PLR0917 -- arrays of a compiled loop stand in a row
    x: Numbers, weight: Numbers, bias: Numbers, weight_out: Numbers, bias_out: Numbers,
    keys: Numbers, values: Numbers, allowed: NDArray[np.bool_], y: Numbers,
) -> None:  # fmt: skip
    """Write what rows read of a memory to y."""
    batch, heads, _, size = keys.shape
    query, o, beam = np.empty_like(x), np.empty_like(x), len(x) // batch
    multiply(x, weight, bias, query)
    for r in range(len(x)):
        for h in range(heads):
            low, high, m = h * size, (h + 1) * size, r // beam
            _read(query[r, low:high], keys[m, h], values[m, h], allowed[m], o[r, low:high])
    multiply(o, weight_out, bias_out, y)
