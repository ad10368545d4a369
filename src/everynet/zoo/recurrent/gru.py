"""Gated recurrent units: a gate decides for each unit between its old value and a new one.

    u = sigmoid(W_u x_t + U_u h_{t-1} + b_u)                  (1)  update gate
    r = sigmoid(W_r x_t + U_r h_{t-1} + b_r)                  (2)  reset gate
    n = tanh(W_n x_t + U_n (r * h_{t-1}) + b_n)               (3)  candidate: reset, then product
    h_t = u * n + (1 - u) * h_{t-1}                           (4)  u = 0 copies, exactly

    SimplifiedGRU  n = tanh(W_n x_t + U_n h_{t-1} + b_n)      (5)  one gate, no reset
    ResetAfterGRU  n = tanh(W_n x_t + b_n + r * (U_n h_{t-1} + c_n)),
                   h_t = (1 - z) * n + z * h_{t-1}            (6)  torch's: product, then reset

Torch's gate z is 1 - u, as in the paper: the weights of one are those of the other times -1. To
reset after the product lets one product serve all three gates, which is why fused kernels do so.
Both are the same where U_n is diagonal and c_n is zero.

Cho et al. (2014), "Learning phrase representations using RNN encoder-decoder for statistical
machine translation", arXiv:1406.1078, section 2.3; Chung et al. (2014), "Empirical evaluation of
gated recurrent neural networks on sequence modeling", arXiv:1412.3555.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad

from everynet.data.dataset import Data, History
from everynet.nn.recurrent import Pairs, Tensors, set_uniform, sigmoid_slope, tanh_slope, unrolled
from everynet.recipes.recipe import Pictures
from everynet.zoo.recurrent.adding import Adder, Adding, along, each_by_its_size, longest
from everynet.zoo.recurrent.pictures.gated_cell import gru_cell
from everynet.zoo.recurrent.pictures.gates import gates_over_marks

Given = tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "1 batch hidden"]]


class _SimplifiedStep:
    """Sums stand as u, n."""

    numbers, kept = 1, 0

    def views(self, z: Tensor, before: Tensors, after: Tensors, kept: Tensors) -> Tensors:
        return z, *z.chunk(2, 2), *before, *after

    def forward(self, weights: Tensors, *now: Tensor) -> None:
        z, u, n, h, h_after = now
        z.addmm_(h, weights[0])
        u.sigmoid_()
        n.tanh_()  # (5)
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


class _GRUStep:
    """Sums stand as r, u, n; what is kept is r * h."""

    numbers, kept = 1, 1

    def views(self, z: Tensor, before: Tensors, after: Tensors, kept: Tensors) -> Tensors:
        size = before[0].shape[2]
        return z[..., :-size], *z.split(size, 2), *before, *after, *kept

    def forward(self, weights: Tensors, *now: Tensor) -> None:
        gates, r, u, n, h, h_after, reset = now
        gates.addmm_(h, weights[0]).sigmoid_()  # (1) (2)
        n.addmm_(torch.mul(r, h, out=reset), weights[1]).tanh_()  # (3)
        torch.lerp(h, n, u, out=h_after)  # (4)

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


class SimplifiedGRU(nn.Module):
    """A unit with the update gate alone."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input = nn.Linear(input_size, 2 * hidden_size)
        self.state = nn.Linear(hidden_size, 2 * hidden_size, bias=False)
        set_uniform(self, hidden_size)

    def forward(
        self, x: Float[Tensor, "batch time input"], h: Float[Tensor, "1 batch hidden"] | None = None
    ) -> Given:
        return unrolled(
            _SimplifiedStep(), x, h, self.input.weight, self.input.bias, self.state.weight
        )


class GRU(nn.Module):
    """The unit of the paper, which resets the state before its product."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input = nn.Linear(input_size, 3 * hidden_size)
        self.state = nn.Linear(hidden_size, 2 * hidden_size, bias=False)
        self.reset = nn.Linear(hidden_size, hidden_size, bias=False)
        set_uniform(self, hidden_size)

    def forward(
        self, x: Float[Tensor, "batch time input"], h: Float[Tensor, "1 batch hidden"] | None = None
    ) -> Given:
        weights = self.state.weight, self.reset.weight
        return unrolled(_GRUStep(), x, h, self.input.weight, self.input.bias, *weights)

    def gates(self, x: Float[Tensor, "batch time input"]) -> dict[str, Tensor]:
        """The gates at every time, each (batch, time, hidden), and the state, from zero on."""
        h, _ = self(x)
        before = pad(h[:, :-1], (0, 0, 1, 0))
        sums = self.input(x)[..., : 2 * h.shape[2]] + self.state(before)
        r, u = sums.sigmoid().chunk(2, 2)
        return {"update gate": u, "reset gate": r, "state": h}


class ResetAfterGRU(nn.GRU):
    """Torch's unit, through its fused kernels."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size, batch_first=True)  # (6)
        set_uniform(self, hidden_size)


@dataclass(frozen=True, kw_only=True)
class GRUAdding(Adding):
    """Say the sum of the two numbers that were marked."""

    captions: ClassVar[dict[str, str]] = {
        "gates": "Along an unseen sequence the sixteen units that keep their state longest: the "
        "update gate is shut, dark, but where a number is marked, and what was written then stays.",
        "along": "What the network would say at each time steps when a marked number comes; it is "
        "asked at the end alone, and there it meets the best guess, dashed.",
        "cell": "One cell between the one before and the one after, with the sizes of all it has: "
        "the state runs along the top, and only the update gate writes to it.",
    }

    def cell(self) -> GRU:
        return GRU(2, self.hidden_size)

    def pictures(self, model: Adder, data: Data, history: History) -> Pictures:
        """Gates along a sequence, the answer as it comes about, and the cell."""
        x, y = next(data.valid)
        cell = model.cell
        assert isinstance(cell, GRU)
        error = (model(x) - y).square().mean().sqrt().item()
        seen = cell.gates(x)
        units = longest(1 - seen["update gate"])
        rows = {name: part[0][:, units].T for name, part in seen.items()}
        state = {"state, each unit by its size": each_by_its_size(rows.pop("state"))}
        return {
            "gates": gates_over_marks(x[0, :, 0], x[0, :, 1], rows, state),
            "along": along(model, x[:4], error),
            "cell": gru_cell(2, self.hidden_size),
        }


# Reached with seeds 0, 1, 2 on a CPU: 0.0008, 0.0005, 0.0006.
RECIPES = {
    "gru": GRUAdding(
        steps=1000,
        batch_size=32,
        lr=1e-2,
        warmup=50,
        schedule="cosine",
        clip=1.0,
        goal="mse <= 0.01",
        covers=("R7", "R8"),
    ),
}
