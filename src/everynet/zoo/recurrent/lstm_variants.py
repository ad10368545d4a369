"""The LSTM in its own loop, and five relatives that each change one thing in it.

    o, i, f = sigmoid(W_xo x_t + W_ho h_{t-1} + b_o), .. i, .. f   (1)  output, input, forget gate
    g = tanh(W_xg x_t + W_hg h_{t-1} + b_g)                        (2)  what could be written
    c_t = f * c_{t-1} + i * g                                      (3)  memory
    h_t = o * tanh(c_t)                                            (4)  what is given out

    BareLSTM      h_t = o * c_t                                    (5)  no tanh behind the memory
    PeepholeLSTM  o = sigmoid(W_ho h_{t-1} + W_co c_t + b_o)       (6)  o sees the memory, not x_t
    NoForgetLSTM  c_t = c_{t-1} + i * g                            (7)  as in 1997: nothing is lost
    CoupledLSTM   c_t = f * c_{t-1} + (1 - f) * g                  (8)  what is lost is replaced
    SigmoidLSTM   g = sigmoid(W_xg x_t + W_hg h_{t-1} + b_g)       (9)  nothing negative is written

A state is h and c beside each other. Torch's LSTM (`lstm.py`) is (1) to (4) with the gates in the
order i, f, g, o and with two biases, of which only the sum matters.

Hochreiter, Schmidhuber (1997), "Long short-term memory", doi:10.1162/neco.1997.9.8.1735 (7); Gers,
Schmidhuber, Cummins (2000), "Learning to forget", doi:10.1162/089976600300015015 (3); Gers,
Schmidhuber (2000), "Recurrent nets that time and count", doi:10.1109/IJCNN.2000.861302 (6); Greff
et al. (2017), "LSTM: a search space odyssey", arXiv:1503.04069 (5) (8); Goodfellow, Bengio,
Courville (2016), "Deep Learning", section 10.10.1, whose f, s, g, q are f, c, i, o here (9).
Unlike the paper of 1997, (7) squashes with tanh; unlike that of the peepholes, (6) has a full
matrix, for the output gate alone, and in place of x_t.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad

from everynet.nn.recurrent import Pairs, Tensors, set_uniform, sigmoid_slope, tanh_slope, unrolled

Given = tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "1 batch state"]]


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
    """Sums stand as o, the other gates, g; the slopes wait in dz for what they are times."""

    numbers, kept = 2, 1  # h and c; tanh(c)

    def views(self, z: Tensor, before: Tensors, after: Tensors, kept: Tensors) -> Tensors:
        size = before[0].shape[2]
        return z, z[..., :-size], *z.split(size, 2), *before, *after, *kept

    def forward(self, weights: Tensors, *now: Tensor) -> None:
        z, gates, o, i, f, g, h, c, h_after, c_after, t = now
        z.addmm_(h, weights[0])
        gates.sigmoid_()  # (1)
        g.tanh_()  # (2)
        torch.mul(f, c, out=c_after).addcmul_(i, g)  # (3)
        torch.mul(o, torch.tanh(c_after, out=t), out=h_after)  # (4)

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
        torch.mul(o, c_after, out=h_after)  # (5)

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


class _PeepholeStep(_LSTMStep):
    def views(self, z: Tensor, before: Tensors, after: Tensors, kept: Tensors) -> Tensors:
        size = before[0].shape[2]
        return z, z[..., size:-size], *z.split(size, 2), *before, *after, *kept

    def forward(self, weights: Tensors, *now: Tensor) -> None:
        z, gates, o, i, f, g, h, c, h_after, c_after, t = now
        z.addmm_(h, weights[0])
        gates.sigmoid_()
        g.tanh_()
        torch.mul(f, c, out=c_after).addcmul_(i, g)
        o.addmm_(c_after, weights[1]).sigmoid_()  # (6)
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
        torch.addcmul(c, i, g, out=c_after)  # (7)
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
        torch.lerp(g, c, f, out=c_after)  # (8)
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
        z.addmm_(h, weights[0]).sigmoid_()  # (9)
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


# ----------------------------------------------------------------------------------------- cells


def _sums(gates: int, input_size: int, hidden_size: int) -> tuple[nn.Linear, nn.Linear]:
    """What the gates take from the input, and from the state."""
    wide = gates * hidden_size
    return nn.Linear(input_size, wide), nn.Linear(hidden_size, wide, bias=False)


def _begin(cell: nn.Module, bias: Tensor, forget: int, value: float, hidden_size: int) -> None:
    """All weights small, and the bias of the forget gate, which is block `forget`, as asked for."""
    set_uniform(cell, hidden_size)
    with torch.no_grad():
        bias.view(-1, hidden_size)[forget] = value


class HandLSTM(nn.Module):
    """The LSTM of `lstm.py` in our own loop: as exact, and about as fast."""

    def __init__(self, input_size: int, hidden_size: int, forget_bias: float = 1.0) -> None:
        super().__init__()
        self.input, self.state = _sums(4, input_size, hidden_size)
        _begin(self, self.input.bias, 2, forget_bias, hidden_size)

    def forward(
        self,
        x: Float[Tensor, "batch time input"],
        state: Float[Tensor, "1 batch state"] | None = None,
    ) -> Given:
        weights = self.input.weight, self.input.bias, self.state.weight
        return unrolled(_LSTMStep(), x, state, *weights)


class BareLSTM(nn.Module):
    """An LSTM that gives out its memory as it is."""

    def __init__(self, input_size: int, hidden_size: int, forget_bias: float = 1.0) -> None:
        super().__init__()
        self.input, self.state = _sums(4, input_size, hidden_size)
        _begin(self, self.input.bias, 2, forget_bias, hidden_size)

    def forward(
        self,
        x: Float[Tensor, "batch time input"],
        state: Float[Tensor, "1 batch state"] | None = None,
    ) -> Given:
        weights = self.input.weight, self.input.bias, self.state.weight
        return unrolled(_BareStep(), x, state, *weights)


class PeepholeLSTM(nn.Module):
    """An LSTM whose output gate sees the memory, and not the input."""

    def __init__(self, input_size: int, hidden_size: int, forget_bias: float = 1.0) -> None:
        super().__init__()
        self.input = nn.Linear(input_size, 3 * hidden_size, bias=False)
        self.state = nn.Linear(hidden_size, 4 * hidden_size)
        self.memory = nn.Linear(hidden_size, hidden_size, bias=False)
        _begin(self, self.state.bias, 2, forget_bias, hidden_size)

    def forward(
        self,
        x: Float[Tensor, "batch time input"],
        state: Float[Tensor, "1 batch state"] | None = None,
    ) -> Given:
        no_input = pad(self.input.weight, (0, 0, self.memory.in_features, 0))  # for o
        weights = self.state.weight, self.memory.weight
        return unrolled(_PeepholeStep(), x, state, no_input, self.state.bias, *weights)


class NoForgetLSTM(nn.Module):
    """The LSTM of 1997: its memory adds up and never fades."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input, self.state = _sums(3, input_size, hidden_size)
        set_uniform(self, hidden_size)

    def forward(
        self,
        x: Float[Tensor, "batch time input"],
        state: Float[Tensor, "1 batch state"] | None = None,
    ) -> Given:
        weights = self.input.weight, self.input.bias, self.state.weight
        return unrolled(_NoForgetStep(), x, state, *weights)


class CoupledLSTM(nn.Module):
    """An LSTM that writes as much as it forgets."""

    def __init__(self, input_size: int, hidden_size: int, forget_bias: float = 1.0) -> None:
        super().__init__()
        self.input, self.state = _sums(3, input_size, hidden_size)
        _begin(self, self.input.bias, 1, forget_bias, hidden_size)

    def forward(
        self,
        x: Float[Tensor, "batch time input"],
        state: Float[Tensor, "1 batch state"] | None = None,
    ) -> Given:
        weights = self.input.weight, self.input.bias, self.state.weight
        return unrolled(_CoupledStep(), x, state, *weights)


class SigmoidLSTM(nn.Module):
    """An LSTM that writes with a sigmoid."""

    def __init__(self, input_size: int, hidden_size: int, forget_bias: float = 1.0) -> None:
        super().__init__()
        self.input, self.state = _sums(4, input_size, hidden_size)
        _begin(self, self.input.bias, 2, forget_bias, hidden_size)

    def forward(
        self,
        x: Float[Tensor, "batch time input"],
        state: Float[Tensor, "1 batch state"] | None = None,
    ) -> Given:
        weights = self.input.weight, self.input.bias, self.state.weight
        return unrolled(_SigmoidStep(), x, state, *weights)
