"""The one loop that takes every recurrent cell of our own through time, and padded sequences.

A cell's sums are W x_t + b and products with its state. What the input gives is one product over
all time, before the loop. In the loop gates and states are written into buffers made once. Going
back, the slopes of all gates are taken for all time at once, a step is a few products with them,
and each gradient of a weight is one product at the end. A cell says only its step, ahead and back,
and has its equations as a plain loop: that serves where torch traces or transforms the cell, and
where the gradient is itself differentiated. Nothing waits for the device, so that on cuda an update
that goes through here can be captured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor, nn
from torch.func import functional_call, vjp

from everynet.nn.input_checks import require_lengths, require_sequences
from everynet.system.tracing import is_traced, is_transformed

Tensors = Sequence[Tensor]
Pairs = Iterable[tuple[Tensor, Tensor]]
Loop = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Outputs and last state of a cell, from its input and its first state."""


@runtime_checkable
class Step(Protocol):
    """One time step of a cell, forward and backward. The first tensor of its state is its output.

    What `views` and `slopes` give has time first; `forward` and `backward` get one time of each.
    `before` and `after` are the states, one step apart.
    """

    numbers: int
    """Tensors of the state."""
    kept: int
    """Further tensors of their size that a step writes down for the way back."""

    def views(self, z: Tensor, before: Tensors, after: Tensors, kept: Tensors) -> Tensors:
        """The tensors that `forward` reads and writes; z starts as the product with the input."""
        ...

    def forward(self, weights: Tensors, *now: Tensor) -> None:
        """Add the products to the sums, make gates of them in place, and write the state after.

        A weight comes turned, so that a state stands to its left.
        """
        ...

    def slopes(
        self, z: Tensor, dz: Tensor, before: Tensors, after: Tensors, kept: Tensors
    ) -> Tensors:
        """The tensors that `backward` reads and writes; z holds the gates, dz becomes dL/dz."""
        ...

    def backward(self, weights: Tensors, d: Tensors, *now: Tensor) -> None:
        """Write dz, and put the gradient of the state before in place of that of the one after."""
        ...

    def products(self, dz: Tensor, before: Tensors, after: Tensors, kept: Tensors) -> Pairs:
        """For each weight the gradient of its sums, and what it was multiplied with."""
        ...


def sigmoid_slope(times: Tensor, value: Tensor, out: Tensor) -> None:
    """Write times * sigmoid', from the value of the sigmoid, into `out`."""
    torch.ops.aten.sigmoid_backward.grad_input(times, value, grad_input=out)


def tanh_slope(times: Tensor, value: Tensor, out: Tensor) -> None:
    """Write times * tanh', from the value of the tanh, into `out`."""
    torch.ops.aten.tanh_backward.grad_input(times, value, grad_input=out)


class _Unrolled(torch.autograd.Function):
    """The loop, ahead and back."""

    @staticmethod
    def forward(  # noqa: PLR0917 -- as apply has them
        ctx: Any,  # noqa: ANN401 -- torch's
        step: Step,
        plain: Callable[..., tuple[Tensor, ...]],
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        *given: Tensor,
    ) -> tuple[Tensor, ...]:
        begin, weights = given[: step.numbers], given[step.numbers :]
        (time, batch, _), sums = x.shape, len(bias)
        z = x.new_empty(time, batch, sums)
        torch.addmm(bias, x.flatten(0, 1), weight.t(), out=z.view(time * batch, sums))
        states = [x.new_empty(time + 1, *first.shape) for first in begin]
        kept = [x.new_empty(time, *begin[0].shape) for _ in range(step.kept)]
        for state, first in zip(states, begin, strict=True):
            state[0] = first
        turned = [w.t().contiguous() for w in weights]
        views = step.views(z, [s[:-1] for s in states], [s[1:] for s in states], kept)
        for now in zip(*(view.unbind() for view in views), strict=True):
            step.forward(turned, *now)
        ctx.step, ctx.plain = step, plain
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, weight, bias, *begin, z, *states, *kept, *weights)
        return states[0][1:], *(state[-1] for state in states)

    @staticmethod
    def backward(ctx: Any, dy: Tensor | None, *last: Tensor | None) -> tuple[Any, ...]:  # noqa: ANN401 -- torch's
        step: Step = ctx.step
        x, weight, bias, *saved = ctx.saved_tensors
        begin, (z, *saved) = saved[: step.numbers], saved[step.numbers :]
        states, saved = saved[: step.numbers], saved[step.numbers :]
        kept, weights = saved[: step.kept], saved[step.kept :]
        if torch.is_grad_enabled():  # to be differentiated again
            made, back, *_ = vjp(ctx.plain, x, weight, bias, *begin, *weights)
            pairs = zip(made, (dy, *last), strict=True)
            upstream = tuple(torch.zeros_like(y) if d is None else d for y, d in pairs)
            return None, None, *back(upstream)
        before, after = [s[:-1] for s in states], [s[1:] for s in states]
        dz = torch.empty_like(z)
        d = [torch.zeros_like(state[0]) for state in states]
        for mine, given in zip(d, last, strict=True):
            if given is not None:
                mine.copy_(given)
        views = step.slopes(z, dz, before, after, kept)
        backwards = zip(*(reversed(view.unbind()) for view in views), strict=True)
        direct = repeat(None) if dy is None else reversed(dy.unbind())
        for now, given in zip(backwards, direct, strict=False):
            if given is not None:
                d[0].add_(given)
            step.backward(weights, d, *now)
        flat = dz.flatten(0, 1)
        dx = (flat @ weight).view_as(x) if ctx.needs_input_grad[2] else None
        found = [
            part.flatten(0, 1).t() @ by.flatten(0, 1)
            for part, by in step.products(dz, before, after, kept)
        ]
        return None, None, dx, flat.t() @ x.flatten(0, 1), flat.sum(0), *d, *found


def unroll(
    cell: nn.Module,
    step: Step,
    x: Float[Tensor, "batch time input"],
    state: Float[Tensor, "1 batch state"] | None,
    *,
    loop: Loop,
    weights: Mapping[str, Tensor],
) -> tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "1 batch state"]]:
    """The outputs of a cell at every time step, and its last state; it starts from zeros.

    `loop` computes the same as the equations are written. `weights` are those of the cell, by name:
    weight and bias of the input, then the others in the order of the step. Under autocast all is
    computed in the precision of the weights.
    """
    weight, bias, *others = weights.values()
    name = type(step).__name__.strip("_").replace("Step", " cell")
    require_sequences(name, x, weight, weight.shape[1])
    batch = x.shape[0]  # len(x) would fix it where torch traces
    wanted = step.numbers * others[0].shape[1]
    if state is None:
        state = weight.new_zeros(1, batch, wanted)
    if state.shape[1:] != (batch, wanted):
        raise ValueError(
            f"state {list(state.shape)} must be of shape {[1, batch, wanted]}, because a unit has "
            f"{step.numbers} of its numbers"
        )
    if is_traced() or is_transformed():
        with torch.autocast(x.device.type, enabled=False):
            return loop(x.to(weight.dtype), state.to(weight.dtype))
    begin = state[0].to(weight.dtype).chunk(step.numbers, 1)
    inputs = x.transpose(0, 1).to(weight.dtype).contiguous()

    def plain(x: Tensor, weight: Tensor, bias: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        state = torch.cat(given[: step.numbers], 1)[None]
        tensors = weight, bias, *given[step.numbers :]
        named = dict(zip(weights, tensors, strict=True))
        y, last = functional_call(cell, named, (x.transpose(0, 1), state))
        return y.transpose(0, 1), *last[0].chunk(step.numbers, 1)

    y, *last = _Unrolled.apply(step, plain, inputs, weight, bias, *begin, *others)  # type: ignore[no-untyped-call]  # torch's
    return y.transpose(0, 1), torch.cat(last, 1)[None]


def set_uniform(cell: nn.Module, hidden_size: int) -> None:
    """Initialise every weight uniformly within 1 / sqrt(its inputs) of zero, as nn.Linear does.

    Torch's recurrent layers take 1 / sqrt(hidden_size) for all, which is the same where input and
    state are of one size, but far too little for an input of two numbers.
    """
    for parameter in cell.parameters():
        inputs = parameter.shape[1] if parameter.dim() > 1 else hidden_size
        nn.init.uniform_(parameter, -(inputs**-0.5), inputs**-0.5)


# ------------------------------------------------------------------------------ padded sequences


def reverse_sequences(
    x: Shaped[Tensor, "batch time *rest"], lengths: Int64[Tensor, " batch"]
) -> Shaped[Tensor, "batch time *rest"]:
    """Each sequence reversed within its length; the padding stays where it is."""
    require_lengths(lengths, x.shape[1])
    t = torch.arange(x.shape[1], device=x.device)
    place = torch.where(t < lengths[:, None], lengths[:, None] - 1 - t, t)
    return x[torch.arange(x.shape[0], device=x.device)[:, None], place]


def last_states(
    states: Float[Tensor, "batch time hidden"], lengths: Int64[Tensor, " batch"]
) -> Float[Tensor, "batch hidden"]:
    """The state at the last time step of each sequence, whatever padding follows it."""
    require_lengths(lengths, states.shape[1])
    return states[torch.arange(states.shape[0], device=states.device), lengths - 1]
