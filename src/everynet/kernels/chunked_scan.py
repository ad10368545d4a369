"""The linear recurrence on a GPU: chunks of time one after another, a tree inside of each.

Every program has the units of one block in one row of the batch. The units lie side by side in
memory, so that a chunk of time is read whole lines at once. `recurrence.py` has the equations.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

CHUNK = 64  # steps of time in one tree
UNITS = 16  # units of a program


@triton.jit
def _join(a, b, later_a, later_b):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return a * later_a, later_a * b + later_b


@triton.jit  # type: ignore[untyped-decorator]  # Triton's
def _go(a, b, h0, h, time, dim, chunk: tl.constexpr, units: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, PLR0917
    row, block = tl.program_id(0), tl.program_id(1)
    unit = block * units + tl.arange(0, units)
    inside = unit < dim
    kind = tl.float64 if a.dtype.element_ty == tl.float64 else tl.float32
    state = tl.load(h0 + row * dim + unit, mask=inside, other=0).to(kind)
    step = tl.arange(0, chunk)
    for start in range(0, time, chunk):
        t = start + step
        place = (row.to(tl.int64) * time + t[:, None]) * dim + unit[None, :]
        there = (t < time)[:, None] & inside[None, :]
        now = tl.load(a + place, mask=there, other=1).to(kind)
        more = tl.load(b + place, mask=there, other=0).to(kind)
        product, reached = tl.associative_scan((now, more), 0, _join)
        states = product * state[None, :] + reached
        tl.store(h + place, states, mask=there)
        state = tl.sum(tl.where((step == chunk - 1)[:, None], states, 0), 0)


@triton.jit  # type: ignore[untyped-decorator]  # Triton's
def _return(  # type: ignore[no-untyped-def]  # noqa: ANN202, PLR0917
    a,  # noqa: ANN001
    h,  # noqa: ANN001
    h0,  # noqa: ANN001
    upstream,  # noqa: ANN001
    to_a,  # noqa: ANN001
    to_b,  # noqa: ANN001
    to_h0,  # noqa: ANN001
    time,  # noqa: ANN001
    dim,  # noqa: ANN001
    chunk: tl.constexpr,
    units: tl.constexpr,
):
    row, block = tl.program_id(0), tl.program_id(1)
    unit = block * units + tl.arange(0, units)
    inside = unit < dim
    kind = tl.float64 if a.dtype.element_ty == tl.float64 else tl.float32
    step = tl.arange(0, chunk)
    first = row.to(tl.int64) * time * dim + unit
    start_state = tl.load(h0 + row * dim + unit, mask=inside, other=0).to(kind)
    later = tl.zeros([units], kind)  # g of the first step behind the chunk
    for number in range(tl.cdiv(time, chunk)):
        start = (tl.cdiv(time, chunk) - 1 - number) * chunk
        t = start + step
        place = first[None, :] + t[:, None] * dim
        there = (t < time)[:, None] & inside[None, :]
        ahead = (t + 1 < time)[:, None] & inside[None, :]
        direct = tl.load(upstream + place, mask=there, other=0).to(kind)
        # Behind the end of time nothing comes back, and a = 1 lets that nothing through.
        after = tl.load(a + place + dim, mask=ahead, other=0).to(kind)
        after = tl.where(there, after, 1)
        product, reached = tl.associative_scan((after, direct), 0, _join, reverse=True)
        g = product * later[None, :] + reached
        before = tl.load(h + place - dim, mask=there & (t > 0)[:, None], other=0).to(kind)
        before = tl.where((t == 0)[:, None], start_state[None, :], before)
        tl.store(to_b + place, g, mask=there)
        tl.store(to_a + place, g * before, mask=there)
        later = tl.sum(tl.where((step == 0)[:, None], g, 0), 0)
    now = tl.load(a + first, mask=inside & (time > 0), other=0).to(kind)
    tl.store(to_h0 + row * dim + unit, now * later, mask=inside)


def _launch(kernel: Any, *given: Tensor) -> None:  # noqa: ANN401 -- Triton's
    batch, time, dim = given[0].shape
    if batch * dim:
        with torch.cuda.device_of(given[0]):
            kernel[batch, triton.cdiv(dim, UNITS)](*given, time, dim, CHUNK, UNITS, num_warps=4)


def forward(a: Tensor, b: Tensor, h0: Tensor, h: Tensor) -> None:
    """Write the states into `h`."""
    _launch(_go, a, b, h0, h)


def backward(*given: Tensor) -> None:
    """Write the gradients into the last three of a, h, h0, upstream, to_a, to_b, to_h0."""
    _launch(_return, *given)
