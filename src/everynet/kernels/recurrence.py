"""A linear recurrence whose coefficients change with time, forward and backward in one pass each.

    h_t = a_t h_{t-1} + b_t,    t = 1 .. L

elementwise, so that no unit looks at another: gates that do not ask the state (minGRU), leaky
units, filters. The gradients follow from g_t = dL/dh_t, the direct part u_t and what comes back
from later:

    g_t = u_t + a_{t+1} g_{t+1},    dL/da_t = g_t h_{t-1},    dL/db_t = g_t,    dL/dh_0 = a_1 g_1

On the CPU a compiled loop goes through time once, with the state of a few units in the cache: the
work is that of reading a and b and writing h, which no parallel form can beat there. On a GPU time
is cut into chunks, and inside of one the pairs (a, b) are joined in a tree, by the rule

    (a, b) then (a', b') = (a a', a' b + b')

which is associative: ceil(log2 of the chunk) steps in place of so many products one after another.
Other devices double the reach of every element instead, over the whole length.

Blelloch (1990), "Prefix sums and their applications", section 1.4; Martin, Cundy (2018),
"Parallelizing linear recurrent neural nets over sequence length", arXiv:1709.04057.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
from jaxtyping import Float
from numba import prange
from torch import Tensor

from everynet.kernels.compiled import threaded
from everynet.kernels.lif import Reals
from everynet.kernels.operator import operator
from everynet.system.tracing import is_traced

UNITS = 64  # fewer are not worth a turn of a thread: a line of the cache is 16 of them


def linear_recurrence(
    a: Float[Tensor, "batch time dim"],
    b: Float[Tensor, "batch time dim"],
    h0: Float[Tensor, "batch dim"],
) -> Float[Tensor, "batch time dim"]:
    """All states h_1 .. h_L of h_t = a_t h_{t-1} + b_t, with gradients for a, b and h0.

    What is given is left as it was. In half precision the state is carried in float32.
    """
    if a.shape != b.shape or h0.shape != (a.shape[0], a.shape[2]):
        raise ValueError(
            f"a {list(a.shape)}, b {list(b.shape)} and h0 {list(h0.shape)} must be of shapes "
            "(batch, time, dim), the same, and (batch, dim)"
        )
    if len({(part.dtype, part.device) for part in (a, b, h0)}) > 1:
        raise ValueError("a, b and h0 must be of one dtype and on one device")
    if a.device.type == "cpu" and a.dtype in (torch.float16, torch.bfloat16):
        return linear_recurrence(a.float(), b.float(), h0.float()).to(a.dtype)
    if a.device.type == "cpu" or _has_triton(a):
        return _recurrence(a.contiguous(), b.contiguous(), h0.contiguous())
    return by_doubling(a, b, h0)[0]


def by_doubling(
    a: Float[Tensor, "batch time dim"],
    b: Float[Tensor, "batch time dim"],
    h0: Float[Tensor, "batch dim"],
) -> tuple[Float[Tensor, "batch time dim"], int]:
    """The same by ceil(log2 L) steps, each over all of time at once, and the number of steps.

    After k steps an element has joined the 2^k that end with it. The work is L log L.
    """
    b = torch.cat([a[:, :1] * h0[:, None] + b[:, :1], b[:, 1:]], 1)
    reach, steps = 1, 0
    while reach < b.shape[1]:
        joined = a[:, reach:] * b[:, :-reach] + b[:, reach:]
        b = torch.cat([b[:, :reach], joined], 1)
        a = torch.cat([a[:, :reach], a[:, reach:] * a[:, :-reach]], 1)
        reach, steps = 2 * reach, steps + 1
    return b, steps


def by_loop(
    a: Float[Tensor, "batch time dim"],
    b: Float[Tensor, "batch time dim"],
    h0: Float[Tensor, "batch dim"],
) -> Float[Tensor, "batch time dim"]:
    """The same step by step, differentiated by torch: the reference of the tests."""
    h, states = h0, []
    for now, more in zip(a.unbind(1), b.unbind(1), strict=True):
        h = now * h + more
        states.append(h)
    return torch.stack(states, 1) if states else torch.zeros_like(b)


def _linear_recurrence(a: Tensor, b: Tensor, h0: Tensor) -> Tensor:
    a, b, h0 = (part.contiguous() for part in (a, b, h0))
    h = torch.empty_like(b)
    if a.device.type == "cpu":
        _run(_scan_forward, a, b, h0, h)
    else:
        _triton().forward(a, b, h0, h)
    return h


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:  # noqa: ANN401 -- torch adds attributes to ctx
    a, _, h0 = inputs
    ctx.save_for_backward(a, output, h0)


def _backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ANN401
    a, h, h0 = ctx.saved_tensors
    if torch.is_grad_enabled() or is_traced():
        return _by_reversal(a, h, h0, upstream)
    a, h, h0 = (part.contiguous() for part in (a, h, h0))
    to_a, to_h0 = torch.empty_like(a), torch.empty_like(h0)
    if a.device.type == "cpu":
        # The direct part becomes the whole where it lies: new memory costs as much as the sums.
        to_b = upstream.clone(memory_format=torch.contiguous_format)
        _run(_scan_backward, a, h, h0, to_b, to_a, to_h0)
    else:
        to_b = torch.empty_like(a)
        _triton().backward(a, h, h0, upstream.contiguous(), to_a, to_b, to_h0)
    return to_a, to_b, to_h0


def _by_reversal(
    a: Tensor, h: Tensor, h0: Tensor, upstream: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients by the recurrence itself, from the last step to the first.

    So they can be differentiated as often as it can, and traced.
    """
    later = torch.cat([a[:, 1:], torch.zeros_like(a[:, :1])], 1)
    g = linear_recurrence(later.flip(1), upstream.flip(1), torch.zeros_like(h0)).flip(1)
    before = torch.cat([h0[:, None], h[:, :-1]], 1)
    return g * before, g, (a * g)[:, :1].sum(1)  # no step at all leaves a gradient of 0


_recurrence = operator(
    _linear_recurrence,
    plain=lambda a, b, h0: by_doubling(a, b, h0)[0],
    fake=lambda a, b, h0: torch.empty_like(b, memory_format=torch.contiguous_format),
    save=_save,
    backward=_backward,
)


# ------------------------------------------------------------------------------------- compiled


def _run(loop: Any, *given: Tensor) -> None:  # noqa: ANN401 -- a loop over arrays
    """Run the loop over blocks of units, enough of them for every thread."""
    batch, _, dim = given[0].shape
    blocks = -(-torch.get_num_threads() // max(batch, 1))
    size = max(UNITS, -(-dim // blocks))
    threaded(loop)(*(part.detach().numpy() for part in given), size)


# Rows are cut out before they are gone through: an index that counts from 0 can be seen not to be
# negative, and only then are several numbers computed at once (three times as fast).


def _scan_forward(a: Reals, b: Reals, h0: Reals, h: Reals, size: int) -> None:
    batch, time, dim = a.shape
    blocks = (dim + size - 1) // size
    for turn in prange(batch * blocks):
        row, first = turn // blocks, turn % blocks * size
        last = min(first + size, dim)
        before = h0[row, first:last]
        for t in range(time):
            now, gate, more = h[row, t, first:last], a[row, t, first:last], b[row, t, first:last]
            for i in range(last - first):
                now[i] = gate[i] * before[i] + more[i]
            before = now


def _scan_backward(  # noqa: PLR0917 -- a compiled loop takes no names
    a: Reals, h: Reals, h0: Reals, g: Reals, to_a: Reals, to_h0: Reals, size: int
) -> None:
    """Complete the direct gradients of the states in g, and write those of a and h0."""
    batch, time, dim = a.shape
    blocks = (dim + size - 1) // size
    for turn in prange(batch * blocks):
        row, first = turn // blocks, turn % blocks * size
        last = min(first + size, dim)
        start, to_start = h0[row, first:last], to_h0[row, first:last]
        to_start[:] = 0
        for t in range(time - 1, -1, -1):
            now, gate, to = g[row, t, first:last], a[row, t, first:last], to_a[row, t, first:last]
            before = h[row, t - 1, first:last] if t else start
            earlier = g[row, t - 1, first:last] if t else to_start
            for i in range(last - first):
                to[i] = now[i] * before[i]
            for i in range(last - first):
                earlier[i] += gate[i] * now[i]


# ----------------------------------------------------------------------------------------- Triton


def _has_triton(given: Tensor) -> bool:
    return given.device.type == "cuda" and find_spec("triton") is not None


def _triton() -> Any:  # noqa: ANN401 -- a module, which only a GPU can import
    from everynet.kernels import chunked_scan  # noqa: PLC0415 -- Triton is on machines with a GPU

    return chunked_scan
