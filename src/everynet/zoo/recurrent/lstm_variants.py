"""The LSTM in a loop of our own, and six variants that each change one thing in it.

    o = sigmoid(W_xo x_t + W_ho h_{t-1} + b_o), i and f alike      (1)  output, input, forget gate
    g = tanh(W_xg x_t + W_hg h_{t-1} + b_g)                        (2)  candidate
    c_t = f * c_{t-1} + i * g                                      (3)  memory
    h_t = o * tanh(c_t)                                            (4)  hidden state: the output

    BareLSTM        h_t = o * c_t                                  (5)  no tanh behind the memory
    MemoryGateLSTM  o = sigmoid(W_ho h_{t-1} + W_co c_t + b_o)     (6)  o sees the memory, not x_t
    NoForgetLSTM    c_t = c_{t-1} + i * g                          (7)  as in 1997: nothing is lost
    CoupledLSTM     c_t = f * c_{t-1} + (1 - f) * g                (8)  what is lost is replaced
    SigmoidLSTM     g = sigmoid(W_xg x_t + W_hg h_{t-1} + b_g)     (9)  nothing negative is written

    PeepholeLSTM    i and f of (1) with + p * c_{t-1} in the sum   (10)  gates see their own unit's
                    o of (1) with + p_o * c_t in the sum           (11)  memory, o the new one

p is one weight a unit for i and another for f. x_t is the input at time step t, `*` the product of
each unit with its own; a state is h and c beside each other. Torch's LSTM (`lstm.py`) is (1) to (4)
with the gates in the order i, f, g, o and with two biases, of which only the sum matters. `by_loop`
takes each cell's `step` through time as it is written; `forward` does the same with less memory
traffic and gradients written by hand.

Hochreiter, Schmidhuber (1997), "Long short-term memory", doi:10.1162/neco.1997.9.8.1735 (7); Gers,
Schmidhuber, Cummins (2000), "Learning to forget", doi:10.1162/089976600300015015 (3); Gers,
Schmidhuber (2000), "Recurrent nets that time and count", doi:10.1109/IJCNN.2000.861302 (10) (11),
of which (6) is a variant with a full matrix, for the output gate alone and in place of x_t; Greff
et al. (2017), "LSTM: a search space odyssey", arXiv:1503.04069 (5) (8); Goodfellow, Bengio,
Courville (2016), "Deep Learning", section 10.10.1, whose f, s, g, q are f, c, i, o here (9).
Unlike the paper of 1997, (7) squashes with tanh; unlike that of the peepholes, gates see h_{t-1},
and memory and output are squashed by tanh, as in Greff et al.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad

from everynet.nn.input_checks import require_sequences
from everynet.nn.recurrent import (
    Pairs,
    Step,
    Tensors,
    set_uniform,
    sigmoid_slope,
    tanh_slope,
    unroll,
)

Outputs = tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "1 batch state"]]
Pair = tuple[Float[Tensor, "batch hidden"], Float[Tensor, "batch hidden"]]
"""h and c."""


class HandLSTM(nn.Module):
    """The LSTM of `lstm.py` in our own loop: as exact, and about as fast."""

    blocks: ClassVar[int] = 4  # of the weights: o, i, f, g
    forget: ClassVar[int | None] = 2  # which of the blocks is f

    def __init__(self, input_size: int, hidden_size: int, forget_bias: float = 1.0) -> None:
        super().__init__()
        self.input = nn.Linear(input_size, self.blocks * hidden_size)
        self.state = nn.Linear(hidden_size, self.blocks * hidden_size, bias=False)
        self.init_weights(self.input.bias, hidden_size, forget_bias)

    def init_weights(self, bias: Tensor, hidden_size: int, forget_bias: float) -> None:
        """Small weights, and the bias of the forget gate."""
        set_uniform(self, hidden_size)
        if self.forget is not None:
            with torch.no_grad():
                bias.view(-1, hidden_size)[self.forget] = forget_bias

    def sums(
        self, x: Float[Tensor, "batch input"], h: Float[Tensor, "batch hidden"]
    ) -> tuple[Tensor, ...]:
        """W_x x + W_h h + b of each gate, in the order of the blocks."""
        sums: Tensor = self.input(x) + self.state(h)
        return sums.chunk(self.blocks, 1)

    def step(
        self,
        x: Float[Tensor, "batch input"],
        h: Float[Tensor, "batch hidden"],
        c: Float[Tensor, "batch hidden"],
    ) -> Pair:
        """The state after one time step."""
        o, i, f, g = self.sums(x, h)
        o, i, f = o.sigmoid(), i.sigmoid(), f.sigmoid()  # (1)
        g = g.tanh()  # (2)
        c = f * c + i * g  # (3)
        return o * c.tanh(), c  # (4)

    def by_loop(
        self, x: Float[Tensor, "batch time input"], state: Float[Tensor, "1 batch state"]
    ) -> Outputs:
        """The equations as they are written, for reading and for tests."""
        h, c = state[0].chunk(2, 1)
        states = []
        for t in range(x.shape[1]):
            h, c = self.step(x[:, t], h, c)
            states.append(h)
        return torch.stack(states, 1), torch.cat([h, c], 1)[None]

    def fused(self) -> Step:
        """The same step in place, with its gradient."""
        return _LSTMStep()

    def forward(
        self,
        x: Float[Tensor, "batch time input"],
        state: Float[Tensor, "1 batch state"] | None = None,
    ) -> Outputs:
        weights = dict(self.named_parameters())
        return unroll(self, self.fused(), x, state, loop=self.by_loop, weights=weights)


class BareLSTM(HandLSTM):
    """An LSTM whose output is its memory as it is, without a tanh."""

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> Pair:
        o, i, f, g = self.sums(x, h)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c, c  # (5)

    def fused(self) -> Step:
        return _BareStep()


class MemoryGateLSTM(HandLSTM):
    """An LSTM whose output gate sees the memory, and not the input."""

    def __init__(self, input_size: int, hidden_size: int, forget_bias: float = 1.0) -> None:
        nn.Module.__init__(self)
        self.input = nn.Linear(input_size, 3 * hidden_size, bias=False)  # of i, f, g
        self.state = nn.Linear(hidden_size, 4 * hidden_size)  # of o, i, f, g
        self.memory = nn.Linear(hidden_size, hidden_size, bias=False)  # W_co
        self.init_weights(self.state.bias, hidden_size, forget_bias)

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> Pair:
        *_, x_i, x_f, x_g = self.input(x).split(self.memory.in_features, 1)  # maybe zeros for o
        h_o, h_i, h_f, h_g = self.state(h).chunk(4, 1)
        c = (x_f + h_f).sigmoid() * c + (x_i + h_i).sigmoid() * (x_g + h_g).tanh()
        o = (h_o + self.memory(c)).sigmoid()  # (6)
        return o * c.tanh(), c

    def forward(self, x: Tensor, state: Tensor | None = None) -> Outputs:
        no_input = pad(self.input.weight, (0, 0, self.memory.in_features, 0))  # for o
        weights = {"input.weight": no_input, "state.bias": self.state.bias}
        weights |= {"state.weight": self.state.weight, "memory.weight": self.memory.weight}
        return unroll(self, _MemoryGateStep(), x, state, loop=self.by_loop, weights=weights)


class PeepholeLSTM(HandLSTM):
    """An LSTM with peepholes: each gate sees the memory of its own unit.

    It goes through `by_loop`, in torch's own operations: slower than a fused step.
    """

    def __init__(self, input_size: int, hidden_size: int, forget_bias: float = 1.0) -> None:
        super().__init__(input_size, hidden_size, forget_bias)
        self.peephole = nn.Parameter(torch.empty(3, hidden_size))  # p of o, i, f
        nn.init.uniform_(self.peephole, -(hidden_size**-0.5), hidden_size**-0.5)

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> Pair:
        (o, i, f, g), (p_o, p_i, p_f) = self.sums(x, h), self.peephole
        i, f = (i + p_i * c).sigmoid(), (f + p_f * c).sigmoid()  # (10)
        c = f * c + i * g.tanh()
        o = (o + p_o * c).sigmoid()  # (11)
        return o * c.tanh(), c

    def forward(self, x: Tensor, state: Tensor | None = None) -> Outputs:
        require_sequences("Peephole cell", x, self.input.weight, self.input.in_features)
        wanted = (1, x.shape[0], 2 * self.state.in_features)
        state = self.peephole.new_zeros(wanted) if state is None else state
        if state.shape[1:] != wanted[1:]:
            raise ValueError(
                f"state {list(state.shape)} must be of shape {list(wanted)}, because a unit has 2 "
                "of its numbers"
            )
        return self.by_loop(x.to(self.peephole.dtype), state)


class NoForgetLSTM(HandLSTM):
    """The LSTM of 1997: its memory adds up and never fades."""

    blocks, forget = 3, None  # o, i, g

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> Pair:
        o, i, g = self.sums(x, h)
        c = c + i.sigmoid() * g.tanh()  # (7)
        return o.sigmoid() * c.tanh(), c

    def fused(self) -> Step:
        return _NoForgetStep()


class CoupledLSTM(HandLSTM):
    """An LSTM that writes as much as it forgets."""

    blocks, forget = 3, 1  # o, f, g

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> Pair:
        o, f, g = self.sums(x, h)
        o, f = o.sigmoid(), f.sigmoid()
        c = f * c + (1 - f) * g.tanh()  # (8)
        return o * c.tanh(), c

    def fused(self) -> Step:
        return _CoupledStep()


class SigmoidLSTM(HandLSTM):
    """An LSTM whose candidate is a sigmoid."""

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> Pair:
        o, i, f, g = self.sums(x, h)
        g = g.sigmoid()  # (9)
        c = f.sigmoid() * c + i.sigmoid() * g
        return o.sigmoid() * c.tanh(), c

    def fused(self) -> Step:
        return _SigmoidStep()


# The same steps in place for `unroll`, each with its gradient. `now` is one time step of what
# `views` or `slopes` give.


def _apart(dz: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of all sums, of those of o, and of the others gate by gate."""
    gates = dz.unflatten(2, (-1, size))  # time batch gates hidden
    return dz, gates[:, :, 0], gates[:, :, 1:]


def _behind_tanh(o: Tensor, t: Tensor) -> Tensor:
    """The slope of h_t by c_t where o does not see c_t."""
    slope = torch.empty_like(t)
    tanh_slope(o, t, slope)
    return slope


class _LSTMStep:
    """The sums stand as o, the other gates, g; slopes wait in dz for their gradient."""

    numbers, kept = 2, 1  # h and c; tanh(c)

    def views(self, z: Tensor, before: Tensors, after: Tensors, kept: Tensors) -> Tensors:
        size = before[0].shape[2]
        return z, z[..., :-size], *z.split(size, 2), *before, *after, *kept

    def forward(self, weights: Tensors, *now: Tensor) -> None:
        z, gates, o, i, f, g, h, c, h_after, c_after, t = now
        z.addmm_(h, weights[0])
        gates.sigmoid_()
        g.tanh_()
        torch.mul(f, c, out=c_after).addcmul_(i, g)
        torch.mul(o, torch.tanh(c_after, out=t), out=h_after)

    def slopes(
        self, z: Tensor, dz: Tensor, before: Tensors, after: Tensors, kept: Tensors
    ) -> Tensors:
        size, (t,) = before[0].shape[2], kept
        (o, i, f, g), (do, di, df, dg) = z.split(size, 2), dz.split(size, 2)
        sigmoid_slope(t, o, do)
        sigmoid_slope(g, i, di)
        sigmoid_slope(before[1], f, df)
        tanh_slope(i, g, dg)
        return *_apart(dz, size), _behind_tanh(o, t), f

    def backward(self, weights: Tensors, d: Tensors, *now: Tensor) -> None:
        dz, do, others, through, f = now
        dh, dc = d
        do.mul_(dh)
        dc.addcmul_(dh, through)
        others.mul_(dc[:, None])
        dc.mul_(f)
        torch.mm(dz, weights[0], out=dh)

    def products(self, dz: Tensor, before: Tensors, after: Tensors, kept: Tensors) -> Pairs:
        return ((dz, before[0]),)


class _BareStep(_LSTMStep):
    kept = 0

    def forward(self, weights: Tensors, *now: Tensor) -> None:
        z, gates, o, i, f, g, h, c, h_after, c_after = now
        z.addmm_(h, weights[0])
        gates.sigmoid_()
        g.tanh_()
        torch.mul(f, c, out=c_after).addcmul_(i, g)
        torch.mul(o, c_after, out=h_after)

    def slopes(
        self, z: Tensor, dz: Tensor, before: Tensors, after: Tensors, kept: Tensors
    ) -> Tensors:
        size = before[0].shape[2]
        (o, i, f, g), (do, di, df, dg) = z.split(size, 2), dz.split(size, 2)
        sigmoid_slope(after[1], o, do)
        sigmoid_slope(g, i, di)
        sigmoid_slope(before[1], f, df)
        tanh_slope(i, g, dg)
        return *_apart(dz, size), o, f


class _MemoryGateStep(_LSTMStep):
    def views(self, z: Tensor, before: Tensors, after: Tensors, kept: Tensors) -> Tensors:
        size = before[0].shape[2]
        return z, z[..., size:-size], *z.split(size, 2), *before, *after, *kept

    def forward(self, weights: Tensors, *now: Tensor) -> None:
        z, gates, o, i, f, g, h, c, h_after, c_after, t = now
        z.addmm_(h, weights[0])
        gates.sigmoid_()
        g.tanh_()
        torch.mul(f, c, out=c_after).addcmul_(i, g)
        o.addmm_(c_after, weights[1]).sigmoid_()
        torch.mul(o, torch.tanh(c_after, out=t), out=h_after)

    def backward(self, weights: Tensors, d: Tensors, *now: Tensor) -> None:
        dz, do, others, through, f = now
        dh, dc = d
        do.mul_(dh)
        dc.addcmul_(dh, through).addmm_(do, weights[1])
        others.mul_(dc[:, None])
        dc.mul_(f)
        torch.mm(dz, weights[0], out=dh)

    def products(self, dz: Tensor, before: Tensors, after: Tensors, kept: Tensors) -> Pairs:
        return (dz, before[0]), (dz[..., : before[0].shape[2]], after[1])


class _NoForgetStep(_LSTMStep):
    def forward(self, weights: Tensors, *now: Tensor) -> None:
        z, gates, o, i, g, h, c, h_after, c_after, t = now
        z.addmm_(h, weights[0])
        gates.sigmoid_()
        g.tanh_()
        torch.addcmul(c, i, g, out=c_after)
        torch.mul(o, torch.tanh(c_after, out=t), out=h_after)

    def slopes(
        self, z: Tensor, dz: Tensor, before: Tensors, after: Tensors, kept: Tensors
    ) -> Tensors:
        size, (t,) = before[0].shape[2], kept
        (o, i, g), (do, di, dg) = z.split(size, 2), dz.split(size, 2)
        sigmoid_slope(t, o, do)
        sigmoid_slope(g, i, di)
        tanh_slope(i, g, dg)
        return *_apart(dz, size), _behind_tanh(o, t), z.new_ones(len(z), 1, 1)


class _CoupledStep(_LSTMStep):
    def forward(self, weights: Tensors, *now: Tensor) -> None:
        z, gates, o, f, g, h, c, h_after, c_after, t = now
        z.addmm_(h, weights[0])
        gates.sigmoid_()
        g.tanh_()
        torch.lerp(g, c, f, out=c_after)
        torch.mul(o, torch.tanh(c_after, out=t), out=h_after)

    def slopes(
        self, z: Tensor, dz: Tensor, before: Tensors, after: Tensors, kept: Tensors
    ) -> Tensors:
        size, (t,) = before[0].shape[2], kept
        (o, f, g), (do, df, dg) = z.split(size, 2), dz.split(size, 2)
        sigmoid_slope(t, o, do)
        sigmoid_slope(before[1] - g, f, df)
        tanh_slope(1 - f, g, dg)
        return *_apart(dz, size), _behind_tanh(o, t), f


class _SigmoidStep(_LSTMStep):
    def forward(self, weights: Tensors, *now: Tensor) -> None:
        z, _, o, i, f, g, h, c, h_after, c_after, t = now
        z.addmm_(h, weights[0]).sigmoid_()
        torch.mul(f, c, out=c_after).addcmul_(i, g)
        torch.mul(o, torch.tanh(c_after, out=t), out=h_after)

    def slopes(
        self, z: Tensor, dz: Tensor, before: Tensors, after: Tensors, kept: Tensors
    ) -> Tensors:
        size, (t,) = before[0].shape[2], kept
        (o, i, f, g), (do, di, df, dg) = z.split(size, 2), dz.split(size, 2)
        sigmoid_slope(t, o, do)
        sigmoid_slope(g, i, di)
        sigmoid_slope(before[1], f, df)
        sigmoid_slope(i, g, dg)
        return *_apart(dz, size), _behind_tanh(o, t), f
