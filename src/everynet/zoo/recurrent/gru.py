"""Gated recurrent units: a gate decides for each unit between its old value and a new one.

    u = sigmoid(W_u x_t + U_u h_{t-1} + b_u)                  (1)  update gate
    r = sigmoid(W_r x_t + U_r h_{t-1} + b_r)                  (2)  reset gate
    n = tanh(W_n x_t + U_n (r * h_{t-1}) + b_n)               (3)  candidate: reset, then product
    h_t = u * n + (1 - u) * h_{t-1}                           (4)  state; u = 0 copies, exactly

    SimplifiedGRU  n = tanh(W_n x_t + U_n h_{t-1} + b_n)      (5)  one gate, no reset
    ResetAfterGRU  n = tanh(W_n x_t + b_n + r * (U_n h_{t-1} + c_n)),
                   h_t = (1 - z) * n + z * h_{t-1}            (6)  torch's: product, then reset

x_t is the input at time step t, h_t the state, `*` the product of each unit with its own. Torch's
gate z is 1 - u, as in the paper: the weights of one are those of the other times -1. To reset after
the product lets one product serve all three gates, which is why fused kernels do so. Both are the
same where U_n is diagonal and c_n is zero.

Cho et al. (2014), "Learning phrase representations using RNN encoder-decoder for statistical
machine translation", arXiv:1406.1078, section 2.3; Chung et al. (2014), "Empirical evaluation of
gated recurrent neural networks on sequence modeling", arXiv:1412.3555.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import linear

from everynet.data.dataset import Data, History
from everynet.nn.recurrent import Pairs, Tensors, set_uniform, sigmoid_slope, tanh_slope, unroll
from everynet.zoo.recurrent.adding import Adder, Adding, draw_gates
from everynet.zoo.recurrent.pictures.gated_cell import gru_cell

Outputs = tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "1 batch hidden"]]


class GRU(nn.Module):
    """The unit of the paper, which resets the state before its product."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input = nn.Linear(input_size, 3 * hidden_size)  # W and b of r, u, n
        self.state = nn.Linear(hidden_size, 2 * hidden_size, bias=False)  # U of r, u
        self.reset = nn.Linear(hidden_size, hidden_size, bias=False)  # U of n
        set_uniform(self, hidden_size)

    def forward(
        self, x: Float[Tensor, "batch time input"], h: Float[Tensor, "1 batch hidden"] | None = None
    ) -> Outputs:
        """A loop with gradients written by hand; `by_loop` is the same, step by step."""
        return unroll(
            self, _GRUStep(), x, h, loop=self.traced, weights=dict(self.named_parameters())
        )

    def traced(self, x: Tensor, h: Tensor) -> Outputs:
        """What `forward` gives, by the equations."""
        states = self.by_loop(x, h)["state"]
        return states, states[None, :, -1]

    def by_loop(
        self, x: Float[Tensor, "batch time input"], h: Float[Tensor, "1 batch hidden"] | None = None
    ) -> dict[str, Float[Tensor, "batch time hidden"]]:
        """The equations as they are written, with both gates: for reading, pictures and tests."""
        state = x.new_zeros(x.shape[0], self.reset.in_features) if h is None else h[0]
        steps = []
        for t in range(x.shape[1]):
            x_r, x_u, x_n = self.input(x[:, t]).chunk(3, 1)
            h_r, h_u = self.state(state).chunk(2, 1)
            u = torch.sigmoid(x_u + h_u)  # (1)
            r = torch.sigmoid(x_r + h_r)  # (2)
            n = torch.tanh(x_n + self.reset(r * state))  # (3)
            state = u * n + (1 - u) * state  # (4)
            steps.append(torch.stack([u, r, state]))
        names = ("update gate", "reset gate", "state")
        return dict(zip(names, torch.stack(steps, 2), strict=True))


class SimplifiedGRU(nn.Module):
    """A unit with the update gate alone."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input = nn.Linear(input_size, 2 * hidden_size)  # W and b of u, n
        self.state = nn.Linear(hidden_size, 2 * hidden_size, bias=False)  # U of u, n
        set_uniform(self, hidden_size)

    def forward(
        self, x: Float[Tensor, "batch time input"], h: Float[Tensor, "1 batch hidden"] | None = None
    ) -> Outputs:
        return unroll(
            self, _SimplifiedStep(), x, h, loop=self.traced, weights=dict(self.named_parameters())
        )

    def traced(self, x: Tensor, h: Tensor) -> Outputs:
        """What `forward` gives, by the equations."""
        states = self.by_loop(x, h)
        return states, states[None, :, -1]

    def by_loop(
        self, x: Float[Tensor, "batch time input"], h: Float[Tensor, "1 batch hidden"]
    ) -> Float[Tensor, "batch time hidden"]:
        """The equations as they are written."""
        state, states = h[0], []
        for t in range(x.shape[1]):
            u, n = (self.input(x[:, t]) + self.state(state)).chunk(2, 1)
            u, n = u.sigmoid(), n.tanh()  # (5)
            state = u * n + (1 - u) * state
            states.append(state)
        return torch.stack(states, 1)


class ResetAfterGRU(nn.GRU):
    """Torch's unit, through its fused kernels."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size, batch_first=True)
        set_uniform(self, hidden_size)

    def by_loop(
        self, x: Float[Tensor, "batch time input"], h: Float[Tensor, "1 batch hidden"]
    ) -> Float[Tensor, "batch time hidden"]:
        """The equations as they are written; the gates of torch's weights stand as r, z, n."""
        w_x, w_h, b_x, b_h = self.all_weights[0]
        state, states = h[0], []
        for t in range(x.shape[1]):
            x_r, x_z, x_n = linear(x[:, t], w_x, b_x).chunk(3, 1)
            h_r, h_z, h_n = linear(state, w_h, b_h).chunk(3, 1)
            r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
            n = torch.tanh(x_n + r * h_n)
            state = (1 - z) * n + z * state  # (6)
            states.append(state)
        return torch.stack(states, 1)


# The same steps in place for `unroll`, each with its gradient.


class _GRUStep:
    """One step of `GRU`: the sums stand as r, u, n, and r * h is kept for the way back."""

    numbers, kept = 1, 1

    def views(self, z: Tensor, before: Tensors, after: Tensors, kept: Tensors) -> Tensors:
        size = before[0].shape[2]
        return z[..., :-size], *z.split(size, 2), *before, *after, *kept

    def forward(self, weights: Tensors, *now: Tensor) -> None:
        gates, r, u, n, h, h_after, reset = now
        gates.addmm_(h, weights[0]).sigmoid_()
        n.addmm_(torch.mul(r, h, out=reset), weights[1]).tanh_()
        torch.lerp(h, n, u, out=h_after)

    def slopes(
        self, z: Tensor, dz: Tensor, before: Tensors, after: Tensors, kept: Tensors
    ) -> Tensors:
        size = before[0].shape[2]
        (r, u, n), (dr, du, dn) = z.split(size, 2), dz.split(size, 2)
        sigmoid_slope(before[0], r, dr)
        sigmoid_slope(n - before[0], u, du)
        tanh_slope(u, n, dn)
        both = dz.unflatten(2, (3, -1))[:, :, 1:]  # time batch (u n) hidden
        return dz[..., :-size], dr, both, dn, 1 - u, r, torch.empty_like(kept[0])

    def backward(self, weights: Tensors, d: Tensors, *now: Tensor) -> None:
        gates, dr, both, dn, kept, r, reset = now
        (dh,) = d
        both.mul_(dh[:, None])
        dr.mul_(torch.mm(dn, weights[1], out=reset))
        dh.mul_(kept).addcmul_(reset, r).addmm_(gates, weights[0])

    def products(self, dz: Tensor, before: Tensors, after: Tensors, kept: Tensors) -> Pairs:
        size = before[0].shape[2]
        return (dz[..., :-size], before[0]), (dz[..., -size:], kept[0])


class _SimplifiedStep:
    """One step of `SimplifiedGRU`: the sums stand as u, n."""

    numbers, kept = 1, 0

    def views(self, z: Tensor, before: Tensors, after: Tensors, kept: Tensors) -> Tensors:
        return z, *z.chunk(2, 2), *before, *after

    def forward(self, weights: Tensors, *now: Tensor) -> None:
        z, u, n, h, h_after = now
        z.addmm_(h, weights[0])
        u.sigmoid_()
        n.tanh_()
        torch.lerp(h, n, u, out=h_after)

    def slopes(
        self, z: Tensor, dz: Tensor, before: Tensors, after: Tensors, kept: Tensors
    ) -> Tensors:
        (u, n), (du, dn) = z.chunk(2, 2), dz.chunk(2, 2)
        sigmoid_slope(n - before[0], u, du)
        tanh_slope(u, n, dn)
        return dz, dz.unflatten(2, (2, -1)), 1 - u

    def backward(self, weights: Tensors, d: Tensors, *now: Tensor) -> None:
        dz, gates, kept = now
        (dh,) = d
        gates.mul_(dh[:, None])
        dh.mul_(kept).addmm_(dz, weights[0])

    def products(self, dz: Tensor, before: Tensors, after: Tensors, kept: Tensors) -> Pairs:
        return ((dz, before[0]),)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class GRUAdding(Adding):
    """Predict the sum of the two numbers that were marked."""

    def cell(self) -> GRU:
        return GRU(2, self.hidden_size)

    def picture_gates(self, model: Adder, data: Data, history: History) -> Figure:
        """Gates and state along an unseen sequence, of the units that keep their state longest.

        An update gate near 0, dark, keeps the state, and an open one replaces it.
        """
        x, _ = next(data.valid)
        assert isinstance(model.cell, GRU)
        gates = model.cell.by_loop(x)
        return draw_gates(x, gates, 1 - gates["update gate"], "state")

    def picture_cell(self, model: Adder, data: Data, history: History) -> Figure:
        """One cell between the one before and the one after it, with the sizes of all it holds.

        The state runs along the top, and the update gate mixes it with the candidate.
        """
        return gru_cell(2, self.hidden_size)


RECIPES = {
    "gru": GRUAdding(
        steps=1000, batch_size=32, lr=1e-2, warmup=50, schedule="cosine", clip=1.0,
        goal="mse <= 0.01", covers=("R7", "R8"),
    ),
}  # fmt: skip
