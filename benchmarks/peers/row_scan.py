"""A row of time in one program, a tree over blocks of 2,048 steps: how accelerated-scan does it.

Written anew, to stand for it in benchmarks/recurrent_gpu.py where it is not installed. Time is the
last dimension, and float32 is the only precision.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2048


@triton.jit
def _join(a, b, later_a, later_b):
    return a * later_a, later_a * b + later_b


@triton.jit
def _ahead(a, b, h, time, size: tl.constexpr):
    row, step = tl.program_id(0).to(tl.int64), tl.arange(0, size)
    state = tl.zeros((), tl.float32)
    for start in range(0, time, size):
        t = start + step
        inside = t < time
        now = tl.load(a + row * time + t, mask=inside, other=1)
        more = tl.load(b + row * time + t, mask=inside, other=0)
        product, reached = tl.associative_scan((now, more), 0, _join)
        states = product * state + reached
        tl.store(h + row * time + t, states, mask=inside)
        state = tl.sum(tl.where(step == size - 1, states, 0), 0)


@triton.jit
def _back(a, h, up, to_a, to_b, time, size: tl.constexpr):  # noqa: PLR0917
    row, step = tl.program_id(0).to(tl.int64), tl.arange(0, size)
    later = tl.zeros((), tl.float32)
    blocks = tl.cdiv(time, size)
    for number in range(blocks):
        t = (blocks - 1 - number) * size + step
        inside = t < time
        direct = tl.load(up + row * time + t, mask=inside, other=0)
        after = tl.load(a + row * time + t + 1, mask=t + 1 < time, other=0)
        after = tl.where(inside, after, 1)
        product, reached = tl.associative_scan((after, direct), 0, _join, reverse=True)
        g = product * later + reached
        before = tl.load(h + row * time + t - 1, mask=inside & (t > 0), other=0)
        tl.store(to_b + row * time + t, g, mask=inside)
        tl.store(to_a + row * time + t, g * before, mask=inside)
        later = tl.sum(tl.where(step == 0, g, 0), 0)


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        h = torch.empty_like(b)
        _ahead[(a.shape[0] * a.shape[1],)](a, b, h, a.shape[2], _size(a))
        ctx.save_for_backward(a, h)
        return h

    @staticmethod
    def backward(ctx, up):
        (a, h), up = ctx.saved_tensors, up.contiguous()
        to_a, to_b = torch.empty_like(a), torch.empty_like(a)
        rows = a.shape[0] * a.shape[1]
        _back[(rows,)](a, h, up, to_a, to_b, a.shape[2], _size(a))
        return to_a, to_b


def _size(a: Tensor) -> int:
    """Steps of a block: a power of two."""
    return min(BLOCK, 1 << (a.shape[2] - 1).bit_length())


def scan(a: Tensor, b: Tensor) -> Tensor:
    """States of h_t = a_t h_{t-1} + b_t from zero on."""
    return _Rows.apply(a, b)
