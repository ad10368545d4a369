"""A layer of leaky integrate-and-fire units through time, forward and backward in one pass each.

    u_t = beta v_{t-1} + (1 - beta) I_t,   s_t = 1 if u_t >= 1 else 0,   v_t = u_t (1 - s_t)

The backward pass carries g_t = dL/du_t from the last step to the first, with the slope phi of a
surrogate in place of that of the step, and with the reset held fixed:

    g_t = phi(u_t - 1) dL/ds_t + beta (1 - s_t) g_{t+1},   dL/dI_t = (1 - beta) g_t

A current that does not change is given once and its gradient comes back summed over time. What is
linear in the spikes needs only their sum over time, each weighed with the share c_t of its step:
dL/ds_t is c_t times one row. On the CPU a compiled loop takes a block of units through all steps
while they are in the cache, and going back it integrates them once more, which is faster than to
write their membranes down and to read them. The torch form serves other devices. Both do the same
sums in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numba import prange
from torch import Tensor
from torch.nn.functional import linear

from everynet.kernels.compiled import compiled, threaded
from everynet.kernels.events import find_nonzero, has_compiled_loop, sparse_linear, weight_gradient
from everynet.kernels.lif import Reals
from everynet.kernels.operator import operator

BLOCK = 2**15  # membranes that stay in the cache of a core
SMALLEST = 64  # units that are worth a turn

SLOPES: dict[str, Callable[[Tensor, float], Tensor]] = {
    "fast-sigmoid": lambda x, k: 1 / (1 + k * x.abs()) ** 2,
    "arctan": lambda x, k: 1 / (1 + (k * x) ** 2),
    "triangle": lambda x, k: (1 - k * x.abs()).clamp(min=0),
}
"""The slope of each surrogate at distance x from the threshold; k is its sharpness."""
KINDS = {name: number for number, name in enumerate(SLOPES)}


class Unit(NamedTuple):
    """The constants of a unit: its decay and its surrogate gradient."""

    beta: float = 0.9
    """The factor by which the membrane decays in a step."""
    surrogate: str = "fast-sigmoid"
    sharpness: float = 5.0

    def slope(self, membrane: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """The surrogate derivative of a spike at each membrane."""
        return SLOPES[self.surrogate](membrane - 1, self.sharpness)


def spikes(
    current: Float[Tensor, "rows units"], steps: int, unit: Unit
) -> Float[Tensor, "steps units"]:
    """The spikes of `steps` steps; one row of current holds for all of them."""
    shares = current.new_ones(steps)
    _require_rows(current, steps)
    return _fire(current, shares, *unit, steps)


def weighed(
    x: Float[Tensor, "rows batch inputs"],
    weight: Float[Tensor, "units inputs"],
    bias: Float[Tensor, " units"],
    shares: Float[Tensor, " steps"],
    unit: Unit,
) -> Float[Tensor, "batch units"]:
    """The spikes that the current x W^T + b calls forth, added up with the share of their step.

    One row of x holds for all steps. Spikes are not kept, and neither is a gradient for each of
    them: what is linear in spikes asks for no more.
    """
    _require_rows(x, len(shares))
    if has_compiled_loop(x, weight):
        made: Tensor = _Weighed.apply(x, weight, bias, shares, unit)  # type: ignore[no-untyped-call]  # torch's
        return made
    current = linear(x, weight, bias)
    return _fire(current.flatten(1), shares, *unit, 1).reshape(current.shape[1:])


def spike(u: Float[Tensor, "*shape"], unit: Unit) -> Float[Tensor, "*shape"]:
    """1 where a membrane has reached the threshold; its derivative is the surrogate's slope."""
    made: Tensor = _Spike.apply(u, unit)  # type: ignore[no-untyped-call]  # torch's
    return made


class _Spike(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(u: Tensor, unit: Unit) -> Tensor:
        return (u >= 1).to(u.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Unit], output: Tensor) -> None:  # noqa: ANN401 -- torch adds attributes to ctx
        u, ctx.unit = inputs
        ctx.save_for_backward(u)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        (u,) = ctx.saved_tensors
        return ctx.unit.slope(u) * upstream, None


def by_loop(
    current: Float[Tensor, "rows units"], shares: Float[Tensor, " steps"], unit: Unit, rows: int
) -> Float[Tensor, "made units"]:
    """Spikes times their shares step by step, differentiated and transformed by torch."""
    membranes = torch.stack(list(_membranes(current, len(shares), unit)))
    fired = shares[:, None] * spike(membranes, unit)
    return fired if rows > 1 else fired.sum(dim=0, keepdim=True)


def _require_rows(given: Tensor, steps: int) -> None:
    if len(given) not in (1, steps):
        raise ValueError(
            f"{len(given)} rows are given for {steps} steps; give one for each step, or one for all"
        )


def _spikes(  # noqa: PLR0917 -- an operator's numbers stand in a row
    current: Tensor, shares: Tensor, beta: float, surrogate: str, sharpness: float, rows: int
) -> Tensor:
    """Spikes times the share of their step, step by step or summed in one row."""
    integrate = _forward if has_compiled_loop(current) else _forward_torch
    return integrate(current.detach(), shares, Unit(beta, surrogate, sharpness), rows)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ANN401 -- torch adds attributes to ctx
    current, shares, *unit, _ = inputs
    ctx.save_for_backward(current, shares)
    ctx.unit = Unit(*unit)


def _spikes_gradient(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    current, shares = ctx.saved_tensors
    if has_compiled_loop(current) and not torch.is_grad_enabled():
        back = torch.empty_like(current, memory_format=torch.contiguous_format)
        total = _backward(current, shares, upstream, ctx.unit, back)
        back = back if len(back) > 1 else total[None]
    else:
        back = _backward_torch(current, shares, upstream, ctx.unit)
    return back, *[None] * 5


_fire = operator(
    _spikes,
    plain=lambda current, shares, *unit: by_loop(current, shares, Unit(*unit[:-1]), unit[-1]),
    fake=lambda current, _, *unit: current.new_empty(unit[-1], current.shape[1]),
    save=_save,
    backward=_spikes_gradient,
)


class _Weighed(torch.autograd.Function):
    """The product and its spikes in one, so that going back the current gives way to its gradient.

    Whoever goes back a second time has the current computed anew.
    """

    @staticmethod
    def forward(  # noqa: PLR0917 -- autograd takes no names
        ctx: Any,  # noqa: ANN401
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        shares: Tensor,
        unit: Unit,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, bias, shares)
        ctx.found, ctx.unit = find_nonzero(x, len(weight)), unit
        ctx.current = sparse_linear(x, ctx.found, weight, bias)
        summed = _forward(ctx.current.flatten(1), shares, unit, rows=1)
        return summed.reshape(ctx.current.shape[1:])

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        x, weight, bias, shares = ctx.saved_tensors
        to_x, to_weight, to_bias, *_ = ctx.needs_input_grad
        if torch.is_grad_enabled():  # what can be differentiated again
            rows = linear(x, weight, bias).flatten(1)
            back = _backward_torch(rows, shares, upstream.reshape(1, -1), ctx.unit)
            back, found = back.reshape(len(x), *upstream.shape), None
            total = back.sum(dim=0)
        else:
            back = sparse_linear(x, ctx.found, weight, bias) if ctx.current is None else ctx.current
            ctx.current, found = None, ctx.found
            rows = back.flatten(1)
            total = _backward(rows, shares, upstream.reshape(1, -1), ctx.unit, rows)
            total = total.reshape(upstream.shape)
            back = back if len(back) > 1 else total[None]
        return (
            back @ weight if to_x else None,
            weight_gradient(back, x, found) if to_weight else None,
            total.sum(dim=0) if to_bias else None,
            None,
            None,
        )


# ------------------------------------------------------------------------------------- compiled


def _forward(current: Tensor, shares: Tensor, unit: Unit, rows: int) -> Tensor:
    fired = current.new_empty(rows, current.shape[1])
    number = current.numpy().dtype.type
    threaded(_integrate)(
        *(current.contiguous().numpy(), shares.numpy(), number(unit.beta), number(1 - unit.beta)),
        *(_size(shares), fired.numpy()),
    )
    return fired


def _backward(
    current: Tensor, shares: Tensor, upstream: Tensor, unit: Unit, back: Tensor
) -> Tensor:
    """Write the gradient into `back`, which may be the current; returns its sum over time."""
    total = current.new_empty(current.shape[1])
    number = current.numpy().dtype.type
    threaded(_differentiate)(
        *(current.contiguous().numpy(), shares.numpy(), upstream.contiguous().numpy()),
        *(number(unit.beta), number(1 - unit.beta)),
        *(KINDS[unit.surrogate], number(unit.sharpness)),
        *(_size(shares), back.numpy(), total.numpy()),
    )
    return total


def _size(shares: Tensor) -> int:
    """The number of units that go through all steps at once."""
    return max(SMALLEST, BLOCK // len(shares))


def _integrate(  # noqa: PLR0917 -- a compiled loop takes no names
    current: Reals, shares: Reals, beta: float, gain: float, size: int, fired: Reals
) -> None:
    steps, units = len(shares), current.shape[1]
    changes, together = len(current) > 1, len(fired) < steps
    one, none = current.dtype.type(1), current.dtype.type(0)
    for block in prange((units + size - 1) // size):
        first = block * size
        u = np.zeros(min(size, units - first), current.dtype)
        v, summed = np.zeros_like(u), np.zeros_like(u)
        for t in range(steps):
            given, share = current[t if changes else 0, first : first + size], shares[t]
            _advance(given, beta, gain, u, v)
            if together:
                for i in range(len(u)):
                    summed[i] += share if u[i] >= one else none
            else:
                s = fired[t, first : first + size]
                for i in range(len(u)):
                    s[i] = share if u[i] >= one else none
        if together:
            fired[0, first : first + size] = summed


def _differentiate(  # noqa: PLR0917
    current: Reals,
    shares: Reals,
    upstream: Reals,
    beta: float,
    gain: float,
    kind: int,
    sharpness: float,
    size: int,
    back: Reals,
    total: Reals,
) -> None:
    steps, units = len(shares), current.shape[1]
    changes, each = len(current) > 1, len(upstream) > 1
    one, none = current.dtype.type(1), current.dtype.type(0)
    for block in prange((units + size - 1) // size):
        first = block * size
        v = np.zeros(min(size, units - first), current.dtype)
        membrane = np.empty((steps, len(v)), current.dtype)
        for t in range(steps):
            given = current[t if changes else 0, first : first + size]
            _advance(given, beta, gain, membrane[t], v)
        later, summed = np.zeros_like(v), np.zeros_like(v)
        for t in range(steps - 1, -1, -1):
            u, share = membrane[t], shares[t]
            above = upstream[t if each else 0, first : first + size]
            for i in range(len(later)):
                x = u[i] - one
                if kind == 0:
                    root = one + sharpness * abs(x)
                    slope = one / (root * root)
                elif kind == 1:
                    slope = one / (one + (sharpness * x) * (sharpness * x))
                else:
                    slope = max(none, one - sharpness * abs(x))
                kept = none if x >= none else beta * later[i]
                later[i] = slope * (share * above[i]) + kept
                summed[i] += gain * later[i]
            if changes:
                out = back[t, first : first + size]
                for i in range(len(later)):
                    out[i] = gain * later[i]
        total[first : first + size] = summed


@compiled()
def _advance(given: Reals, beta: float, gain: float, u: Reals, v: Reals) -> None:
    """Advance all units by one step: u before a spike, v after its reset."""
    one, none = u.dtype.type(1), u.dtype.type(0)
    for i in range(len(u)):
        now = beta * v[i] + gain * given[i]
        u[i] = now
        v[i] = none if now >= one else now


# ---------------------------------------------------------------------------------------- torch


def _forward_torch(current: Tensor, shares: Tensor, unit: Unit, rows: int) -> Tensor:
    fired = current.new_zeros(rows, current.shape[1])
    for t, (u, share) in enumerate(
        zip(_membranes(current, len(shares), unit), shares, strict=True)
    ):
        fired[t if rows > 1 else 0] += share * (u >= 1)
    return fired


def _backward_torch(current: Tensor, shares: Tensor, upstream: Tensor, unit: Unit) -> Tensor:
    membrane = torch.stack(list(_membranes(current, len(shares), unit)))
    back = torch.zeros_like(current)
    direct = unit.slope(membrane) * (shares[:, None] * upstream)
    keeps = unit.beta * (membrane < 1).to(membrane.dtype)
    later = torch.zeros_like(membrane[0])
    for t in range(len(membrane) - 1, -1, -1):
        later = direct[t] + keeps[t] * later
        back[t if len(current) > 1 else 0] += (1 - unit.beta) * later
    return back


def _membranes(current: Tensor, steps: int, unit: Unit) -> Iterator[Tensor]:
    v = torch.zeros_like(current[0])
    for t in range(steps):
        u = unit.beta * v + (1 - unit.beta) * current[t if len(current) > 1 else 0]
        yield u
        v = u * (u < 1)  # the reset held fixed
