"""The one loop that takes every recurrent cell of our own through time, and unequal lengths.

A cell's sums are W x_t + b and products with its state. What the input gives is one product over
all time, before the loop. In the loop gates and states are written into buffers made once. Going
back, the slopes of all gates are taken for all time at once, a step is a few products with them,
and each gradient of a weight is one product at the end. A cell says only its step, ahead and back.

Double backward is not written. Nothing waits for the device, so that on cuda an update that goes
through here can be captured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from everynet.nn.input_checks import require_sequences

Tensors = Sequence[Tensor]
Pairs = Iterable[tuple[Tensor, Tensor]]
Layer = Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor]]
"""From (batch, time, input) and a state of (1, batch, state) to what it gives, and the state."""


@runtime_checkable
class Step(Protocol):
    """What a cell does from one time to the next. The first tensor of its state is given out.

    What `views` and `slopes` give has time first; `forward` and `backward` get one time of each.
    `before` and `after` are the states, one step apart.
    """

    numbers: int
    """Tensors of the state."""
    kept: int
    """Further tensors of their size that a step writes down for the way back."""

    def views(self, z: Tensor, before: Tensors, after: Tensors, kept: Tensors) -> Tensors:
        """What `forward` reads and writes; z comes with what the sums have from the input."""
        ...

    def forward(self, weights: Tensors, *now: Tensor) -> None:
        """Add the products to the sums, make gates of them in place, and write the state after.

        A weight comes turned, so that a state stands to its left.
        """
        ...

    def slopes(
        self, z: Tensor, dz: Tensor, before: Tensors, after: Tensors, kept: Tensors
    ) -> Tensors:
        """What `backward` reads and writes; z holds the gates, dz becomes the sums' gradient."""
        ...

    def backward(self, weights: Tensors, d: Tensors, *now: Tensor) -> None:
        """Write dz, and put the gradient of the state before in place of that of the one after."""
        ...

    def products(self, dz: Tensor, before: Tensors, after: Tensors, kept: Tensors) -> Pairs:
        """For each weight the gradient of its sums, and what it was multiplied with."""
        ...


def sigmoid_slope(times: Tensor, value: Tensor, out: Tensor) -> None:
    """The slope of a sigmoid whose value is known, times something."""
    torch.ops.aten.sigmoid_backward.grad_input(times, value, grad_input=out)


def tanh_slope(times: Tensor, value: Tensor, out: Tensor) -> None:
    """The slope of a tanh whose value is known, times something."""
    torch.ops.aten.tanh_backward.grad_input(times, value, grad_input=out)


class _Unrolled(torch.autograd.Function):
    """The loop, ahead and back."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 -- torch's
        step: Step,
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
        ctx.step = step
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, weight, z, *states, *kept, *weights)
        return states[0][1:], *(state[-1] for state in states)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor | None, *last: Tensor | None) -> tuple[Any, ...]:  # noqa: ANN401 -- torch's
        step: Step = ctx.step
        x, weight, z, *saved = ctx.saved_tensors
        states, saved = saved[: step.numbers], saved[step.numbers :]
        kept, weights = saved[: step.kept], saved[step.kept :]
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
        dx = (flat @ weight).view_as(x) if ctx.needs_input_grad[1] else None
        found = [
            part.flatten(0, 1).t() @ by.flatten(0, 1)
            for part, by in step.products(dz, before, after, kept)
        ]
        return None, dx, flat.t() @ x.flatten(0, 1), flat.sum(0), *d, *found


def unrolled(
    step: Step,
    x: Float[Tensor, "batch time input"],
    state: Float[Tensor, "1 batch state"] | None,
    weight: Float[Tensor, "sums input"],
    bias: Float[Tensor, " sums"],
    *weights: Float[Tensor, "_ _"],
) -> tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "1 batch state"]]:
    """What a cell gives at every time, and its state after the last; without a state it is zero.

    Under autocast all is computed in the precision of the weights.
    """
    name = type(step).__name__.strip("_").replace("Step", " cell")
    require_sequences(name, x, weight, weight.shape[1])
    batch = len(x)
    wanted = step.numbers * weights[0].shape[1]
    if state is None:
        state = weight.new_zeros(1, batch, wanted)
    if state.shape[1:] != (batch, wanted):
        raise ValueError(
            f"state {list(state.shape)} must be of shape {[1, batch, wanted]}, because a unit has "
            f"{step.numbers} of its numbers"
        )
    begin = state[0].to(weight.dtype).chunk(step.numbers, 1)
    inputs = x.transpose(0, 1).to(weight.dtype).contiguous()
    y, *last = _Unrolled.apply(step, inputs, weight, bias, *begin, *weights)  # type: ignore[no-untyped-call]  # torch's
    return y.transpose(0, 1), torch.cat(last, 1)[None]


def set_uniform(cell: nn.Module, hidden_size: int) -> None:
    """Begin with every weight within 1 / sqrt(its inputs) of zero, as torch's linear maps do.

    Torch's recurrent layers take 1 / sqrt(hidden_size) for all, which is the same where input and
    state are of one size; of an input of two numbers they hear next to nothing at first.
    """
    for parameter in cell.parameters():
        inputs = parameter.shape[1] if parameter.dim() > 1 else hidden_size
        nn.init.uniform_(parameter, -(inputs**-0.5), inputs**-0.5)


# ------------------------------------------------------------------------------- unequal lengths


def reversed_within(
    x: Shaped[Tensor, "batch time *rest"], lengths: Int64[Tensor, " batch"]
) -> Shaped[Tensor, "batch time *rest"]:
    """Each row turned round within its length; what fills it up stays where it is."""
    _check(lengths, x.shape[1])
    t = torch.arange(x.shape[1], device=x.device)
    place = torch.where(t < lengths[:, None], lengths[:, None] - 1 - t, t)
    return x[torch.arange(len(x), device=x.device)[:, None], place]


def last_of(
    states: Float[Tensor, "batch time hidden"], lengths: Int64[Tensor, " batch"]
) -> Float[Tensor, "batch hidden"]:
    """What was given at the last time of each row, whatever follows it."""
    _check(lengths, states.shape[1])
    return states[torch.arange(len(states), device=states.device), lengths - 1]


def unequal(
    layer: Layer,
    x: Float[Tensor, "batch time input"],
    lengths: Int64[Tensor, " batch"],
    state: Float[Tensor, "1 batch state"] | None = None,
) -> tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "1 batch state"]]:
    """A layer on rows of unequal length, each as if it were alone.

    What it gives past the end of a row is zero, and the state of a row is that after its last time.
    The layer goes from one end to the next with the rows that go on. Lengths are read here: where
    an update is to be captured, take `last_of` what the layer gives.
    """
    batch, time = x.shape[:2]
    lengths = lengths.cpu()
    _check(lengths, time)
    order = lengths.argsort(descending=True, stable=True)
    back = order.argsort().to(x.device)
    x = x[order.to(x.device)]
    going = None if state is None else state[:, order.to(x.device)]
    pieces, start = [], 0
    for end in lengths.unique().tolist():
        rows = int((lengths > start).sum())
        y, after = layer(x[:rows, start:end], None if going is None else going[:, :rows])
        pieces.append(pad(y, (0, 0, 0, 0, 0, batch - rows)))
        going = after if going is None else torch.cat([after, going[:, rows:]], 1)
        start = end
    assert going is not None  # there is a row, and it has a length
    whole = pad(torch.cat(pieces, 1), (0, 0, 0, time - start))
    return whole[back], going[:, back]


def _check(lengths: Tensor, time: int) -> None:
    """Refuse what is no length, where that can be seen without waiting for a device."""
    if not lengths.is_cpu:
        return
    least, most = (int(n) for n in lengths.aminmax())
    if least < 1 or most > time:
        raise ValueError(
            f"lengths ({least} to {most}) must be from 1 to {time}, because a row has a last time "
            "and x has no more of them"
        )
