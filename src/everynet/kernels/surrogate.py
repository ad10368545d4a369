"""A layer of leaky integrate-and-fire units through time, forward and backward in one pass each.

    u_t = beta v_{t-1} + (1 - beta) I_t,   s_t = 1 if u_t >= 1 else 0,   v_t = u_t (1 - s_t)

The backward pass carries g_t = dL/du_t from the last step to the first, with the slope phi of a
surrogate in place of that of the step, and with the reset held fixed:

    g_t = phi(u_t - 1) dL/ds_t + beta (1 - s_t) g_{t+1},   dL/dI_t = (1 - beta) g_t

A current that does not change is given once and its gradient comes back summed over time. On the
CPU a compiled loop takes a block of units through all steps while they are in the cache; the torch
form serves other devices. Both do the same sums in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numba import prange
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from everynet.kernels.threads import threaded

BLOCK = 2048  # units whose state stays in the cache of a core

SLOPES: dict[str, Callable[[Tensor, float], Tensor]] = {
    "fast-sigmoid": lambda x, k: 1 / (1 + k * x.abs()) ** 2,
    "arctan": lambda x, k: 1 / (1 + (k * x) ** 2),
    "triangle": lambda x, k: (1 - k * x.abs()).clamp(min=0),
}
"""The slope of each surrogate at distance x from the threshold; k is its sharpness."""
KINDS = {name: number for number, name in enumerate(SLOPES)}


class Unit(NamedTuple):
    """How one unit of a layer behaves."""

    beta: float = 0.9
    """What a step leaves of the membrane."""
    surrogate: str = "fast-sigmoid"
    sharpness: float = 5.0

    def slope(self, membrane: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """The slope of a spike at each membrane."""
        return SLOPES[self.surrogate](membrane - 1, self.sharpness)


def spikes(
    current: Float[Tensor, "rows units"], steps: int, unit: Unit
) -> Float[Tensor, "steps units"]:
    """The spikes of `steps` steps; one row of current holds for all of them."""
    made: Tensor = _Spikes.apply(current, steps, unit)  # type: ignore[no-untyped-call]  # torch's
    return made


def spikes_by_autograd(
    current: Float[Tensor, "rows units"], steps: int, unit: Unit
) -> Float[Tensor, "steps units"]:
    """The same by operations that torch differentiates itself: what the others are compared to."""
    v, made = torch.zeros_like(current[0]), []
    for t in range(steps):
        u = unit.beta * v + (1 - unit.beta) * current[t if len(current) > 1 else 0]
        fired = (u >= 1).to(u.dtype)
        made.append(fired + (u - u.detach()) * unit.slope(u.detach()))  # value and slope apart
        v = u * (1 - fired)
    return torch.stack(made)


class _Spikes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, current: Tensor, steps: int, unit: Unit) -> Tensor:  # noqa: ANN401 -- torch adds attributes to ctx
        compiled = current.device.type == "cpu" and current.dtype in (torch.float32, torch.float64)
        integrate = _forward if compiled else _forward_torch
        membrane, fired = integrate(current.detach(), steps, unit)
        ctx.save_for_backward(membrane)
        ctx.given = compiled, len(current), unit
        return fired

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        (membrane,) = ctx.saved_tensors
        compiled, rows, unit = ctx.given
        back = (_backward if compiled else _backward_torch)(membrane, upstream, rows, unit)
        return back, None, None


# ------------------------------------------------------------------------------------- compiled


def _forward(current: Tensor, steps: int, unit: Unit) -> tuple[Tensor, Tensor]:
    membrane = current.new_empty(steps, current.shape[1])
    fired = torch.empty_like(membrane)
    number = current.numpy().dtype.type
    threaded(_integrate)(
        *(current.contiguous().numpy(), number(unit.beta), number(1 - unit.beta)),
        *(membrane.numpy(), fired.numpy()),
    )
    return membrane, fired


def _backward(membrane: Tensor, upstream: Tensor, rows: int, unit: Unit) -> Tensor:
    back = membrane.new_zeros(rows, membrane.shape[1])
    number = membrane.numpy().dtype.type
    threaded(_differentiate)(
        *(
            membrane.numpy(),
            upstream.contiguous().numpy(),
            number(unit.beta),
            number(1 - unit.beta),
        ),
        *(KINDS[unit.surrogate], number(unit.sharpness), back.numpy()),
    )
    return back


def _integrate(
    current: NDArray[np.floating],
    beta: float,
    gain: float,
    membrane: NDArray[np.floating],
    fired: NDArray[np.floating],
) -> None:
    steps, units = membrane.shape
    changes = len(current) > 1
    one, none = membrane.dtype.type(1), membrane.dtype.type(0)
    for block in prange((units + BLOCK - 1) // BLOCK):
        first = block * BLOCK
        v = np.zeros(min(BLOCK, units - first), membrane.dtype)
        for t in range(steps):
            given = current[t if changes else 0, first : first + BLOCK]
            u, s = membrane[t, first : first + BLOCK], fired[t, first : first + BLOCK]
            for i in range(len(v)):
                now = beta * v[i] + gain * given[i]
                up = now >= one
                u[i] = now
                s[i] = one if up else none
                v[i] = none if up else now


def _differentiate(  # noqa: PLR0917 -- a compiled loop takes no names
    membrane: NDArray[np.floating],
    upstream: NDArray[np.floating],
    beta: float,
    gain: float,
    kind: int,
    sharpness: float,
    back: NDArray[np.floating],
) -> None:
    steps, units = membrane.shape
    changes = len(back) > 1
    one, none = membrane.dtype.type(1), membrane.dtype.type(0)
    for block in prange((units + BLOCK - 1) // BLOCK):
        first = block * BLOCK
        later = np.zeros(min(BLOCK, units - first), membrane.dtype)
        for t in range(steps - 1, -1, -1):
            u, above = membrane[t, first : first + BLOCK], upstream[t, first : first + BLOCK]
            out = back[t if changes else 0, first : first + BLOCK]
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
                later[i] = slope * above[i] + kept
                out[i] += gain * later[i]


# ---------------------------------------------------------------------------------------- torch


def _forward_torch(current: Tensor, steps: int, unit: Unit) -> tuple[Tensor, Tensor]:
    membrane = current.new_empty(steps, current.shape[1])
    fired = torch.empty_like(membrane)
    v = torch.zeros_like(current[0])
    for t in range(steps):
        u = unit.beta * v + (1 - unit.beta) * current[t if len(current) > 1 else 0]
        membrane[t] = u
        fired[t] = u >= 1
        v = u * (1 - fired[t])
    return membrane, fired


def _backward_torch(membrane: Tensor, upstream: Tensor, rows: int, unit: Unit) -> Tensor:
    back = membrane.new_zeros(rows, membrane.shape[1])
    direct = unit.slope(membrane) * upstream
    keeps = unit.beta * (membrane < 1).to(membrane.dtype)
    later = torch.zeros_like(membrane[0])
    for t in range(len(membrane) - 1, -1, -1):
        later = direct[t] + keeps[t] * later
        back[t if rows > 1 else 0] += (1 - unit.beta) * later
    return back
