"""One step of Lion over many tensors in a single pass through memory, for the CPU.

A step reads theta, g and m once and writes theta and m once, where whole-tensor operations pass
over them four to six times. The tensors are given by their addresses, so that no array is made for
each; their elements count as one long row, of which every thread takes an equal stretch. No element
depends on another: the result is the same with any number of threads.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numba import carray, types  # type: ignore[attr-defined]  # carray is public
from numba.extending import intrinsic
from numpy.typing import NDArray
from torch import Tensor

from everynet.kernels.compiled import compiled

ALONE = 1 << 20
"""Elements below which a second thread costs more to begin than it saves."""


def lion(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    moments: Sequence[Tensor],
    *,
    lr: float,
    betas: tuple[float, float],
    weight_decay: float,
) -> None:
    """Update params and moments in place: tensors of one dtype, float32 or float64.

    The three of a parameter must lie in memory without gaps and in the same order.
    """
    table = np.array(
        [[t.data_ptr() for t in row] for row in (params, grads, moments)], dtype=np.int64
    )
    ends = np.cumsum([p.numel() for p in params])
    kind = {torch.float32: np.float32, torch.float64: np.float64}[params[0].dtype]
    b1, b2 = betas
    numbers = np.array([lr, weight_decay, b1, 1 - b1, b2, 1 - b2], dtype=kind)
    total = int(ends[-1])
    threads = min(torch.get_num_threads(), 1 + total // ALONE)
    cuts = [total * i // threads for i in range(threads + 1)]
    others = [
        threading.Thread(target=_update_stretch, args=(table, ends, cuts[i], cuts[i + 1], numbers))
        for i in range(1, threads)
    ]
    for other in others:
        other.start()
    _update_stretch(table, ends, cuts[0], cuts[1], numbers)
    for other in others:
        other.join()
    torch.autograd.graph.increment_version([*params, *moments])  # autograd saw none of this


@intrinsic
def _pointer(typing, address):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 -- numba's form
    """Cast an integer to a pointer."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.voidptr(address), generate


@compiled()
def _row(address: int, size: int, dtype: Any) -> Any:  # noqa: ANN401 -- numba gives its own types
    """The memory at an address as an array."""
    return carray(_pointer(address), size, dtype)  # type: ignore[call-arg]  # numba gives `typing`


@compiled()
def _update_stretch(
    table: NDArray[np.int64],
    ends: NDArray[np.int64],
    first: int,
    last: int,
    numbers: NDArray[np.float64],
) -> None:
    """Update elements `first` to `last` of the long row."""
    lr, decay, b1, a1, b2, a2 = numbers
    zero, one = numbers.dtype.type(0), numbers.dtype.type(1)
    start = 0
    for k in range(len(ends)):
        low, high = max(first, start), min(last, ends[k])
        if low < high:
            size, span = ends[k] - start, slice(low - start, high - start)
            theta = _row(table[0, k], size, numbers.dtype)[span]
            grad = _row(table[1, k], size, numbers.dtype)[span]
            moment = _row(table[2, k], size, numbers.dtype)[span]
            for i in range(len(theta)):
                g, m, p = grad[i], moment[i], theta[i]
                c = b1 * m + a1 * g
                sign = one if c > zero else (-one if c < zero else zero)
                theta[i] = p - lr * (sign + decay * p)
                moment[i] = b2 * m + a2 * g
        start = ends[k]
