"""Conserved quantities: what gradient flow cannot change, because the loss does not see it.

    y        = W_L f(W_{L-1} .. f(W_1 x))                                   (1)  deep network
    G_l      = W_{l+1}^T W_{l+1} - W_l W_l^T                                (2)  balance
    dG_l/dt  = S(V_{l+1}^T W_{l+1} - V_l W_l^T),  V_l = dW_l/dt = -dE/dW_l  (3)  gradient flow
    change   = sum over steps of D_{l+1}^T D_{l+1} - D_l D_l^T              (4)  of G_l, by descent
    |change| ~ k^1  for steps of size k up to a time T = t k                (5)  drift

W_l are the weights of layer l (no biases), f the activation function between layers, E any loss,
S(M) = M + M^T, k the step size and D_l = -k dE/dW_l the change of W_l in one of t steps.

    f(z) = z                                   (3) is 0: flow conserves all of G_l
    f(a z) = a f(z) for a > 0, as of a ReLU    its diagonal is 0: flow conserves that of G_l
    tanh                                       neither

This follows from a symmetry, as conserved quantities of mechanics do. With f(z) = z the network is
the same for M W_l and W_{l+1} M^-1 with any invertible M, so that E is level along these
directions. A ReLU only lets M be diagonal and positive: a unit can be scaled by a on its way in and
by 1/a on its way out, and what stays is the sum of the squared weights out of the unit less that of
those into it. Layers that begin small stay balanced for this reason. Descent is not flow: where (3)
is 0 the terms of first order cancel whatever the step, and the 1/k steps of second order that are
left, (4), add up to (5).

Saxe, McClelland and Ganguli (2014), "Exact solutions to the nonlinear dynamics of learning in deep
linear neural networks", arXiv:1312.6120; Du, Hu and Lee (2018), "Algorithmic regularization in
learning deep homogeneous models", arXiv:1806.00900; Kunin et al. (2021), "Neural mechanics:
symmetry and broken conservation laws in deep learning dynamics", arXiv:2012.04728.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from everynet.data.dataset import Batch, Data, Terms
from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.training.device import choose
from everynet.training.loop import begin, train

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda z: z,
    "relu": torch.relu,
    "tanh": torch.tanh,
}


class BiasFreeNetwork(nn.Module):
    """Maps x to y through layers without biases, the same activation function between them."""

    def __init__(self, widths: tuple[int, ...], activation: str) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(n, m, bias=False) for n, m in pairwise(widths))
        self.activation = activation

    def forward(self, x: Float[Tensor, "batch input"]) -> Float[Tensor, "batch output"]:
        f = ACTIVATIONS[self.activation]
        first, *others = self.layers
        y: Tensor = first(x)
        for layer in others:
            y = layer(f(y))  # (1)
        return y

    def weights(self) -> list[Tensor]:
        """A copy of W_1, .., W_L."""
        return [weight.detach().clone() for weight in self.parameters()]


def balance(weights: Sequence[Tensor]) -> list[Tensor]:
    """G_1, .., G_{L-1}, each units x units."""
    return [after.T @ after - into @ into.T for into, after in pairwise(weights)]  # (2)


def balance_rate(weights: Sequence[Tensor], velocities: Sequence[Tensor]) -> list[Tensor]:
    """dG_l/dt for each l, where the weights move at these velocities."""
    pairs = zip(pairwise(weights), pairwise(velocities), strict=True)
    halves = [v_after.T @ after - v_into @ into.T for (into, after), (v_into, v_after) in pairs]
    return [half + half.T for half in halves]  # (3)


def drift_by_steps(path: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """How far each G has moved in the end, from the steps alone; with ReLUs, its diagonal."""
    total = [torch.zeros_like(g) for g in balance(path[0])]
    for now, then in pairwise(path):
        steps = [b - a for a, b in zip(now, then, strict=True)]
        total = [t + g for t, g in zip(total, balance(steps), strict=True)]  # (4)
    return total


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class Balance(Training[BiasFreeNetwork]):
    """Learn a map at random from a few samples, all of them in every update."""

    widths: tuple[int, ...] = (4, 6, 6, 3)
    activation: str = "linear"
    samples: int = 32
    optimizer: str = "sgd"

    def dataset(self) -> Data:
        draw = torch.Generator().manual_seed(self.seed)
        x = torch.randn(self.samples, self.widths[0], generator=draw, dtype=torch.float64)
        shape = self.widths[0], self.widths[-1]
        y = x @ torch.randn(shape, generator=draw, dtype=torch.float64)
        return Data({"train": (x, y)}, batch_size=self.samples, seed=self.seed)

    def model(self, data: Data) -> BiasFreeNetwork:
        model = BiasFreeNetwork(self.widths, self.activation)
        for weight in model.parameters():
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
        return model

    def objective(self, model: BiasFreeNetwork, batch: Batch) -> Terms:
        x, y = batch
        return {"error": mse_loss(model(x), y)}


def learn(recipe: Balance) -> list[list[Tensor]]:
    """The weights at the start and after each update."""
    data, setup = recipe.dataset(), choose("cpu", "fp64")
    state = begin(recipe, data, setup)
    path = [state.model.weights()]
    path += [state.model.weights() for _ in train(recipe, state, data, setup=setup)]
    return path


def measured_drift(path: Sequence[Sequence[Tensor]], lr: float) -> list[list[float]]:
    """The size of all of G's change and of its diagonal; so of what (4) leaves of it, and of (3).

    (3) is that of gradient flow at the start, whose velocity is that of the first step.
    """
    moved = [b - a for a, b in zip(balance(path[0]), balance(path[-1]), strict=True)]
    off = [m - d for m, d in zip(moved, drift_by_steps(path), strict=True)]
    rate = balance_rate(path[0], [(b - a) / lr for a, b in zip(*path[:2], strict=True)])
    return [[length(g), length([each.diagonal() for each in g])] for g in (moved, off, rate)]


def length(parts: Sequence[Tensor]) -> float:
    """The root of the sum of all squares."""
    return math.sqrt(sum(float(part.square().sum()) for part in parts))


@dataclass(frozen=True, kw_only=True)
class Conserved(Simulation):
    """Descend with smaller and smaller steps up to one time, and see how far the balance drifts."""

    meanings: ClassVar[Mapping[str, str]] = {
        "linear_slope": "power of the step size that the drift of G falls with: 1 by the law",
        "relu_slope": "the same of the diagonal of G in a network of ReLUs",
        "linear_drift": "drift of G in a linear network, with the smallest step",
        "relu_drift": "drift of its diagonal in a network of ReLUs, with the smallest step",
        "relu_all_drift": "drift of all of G in a network of ReLUs, which is not conserved",
        "tanh_drift": "drift of the diagonal of G in a network of tanh, which is not conserved",
        "step_error": "how far what is conserved by flow is from its sum over steps, at most",
        "flow_rate": "rate at which flow changes what it conserves, at the start: 0",
        "tanh_rate": "the same of the diagonal of G in a network of tanh",
    }

    widths: tuple[int, ...] = (4, 6, 6, 3)
    """Units of each layer, the inputs first."""
    samples: int = 32
    """Samples that are learned."""
    time: float = 2.0
    """Steps times step size, the same for all."""
    steps: tuple[int, ...] = (25, 50, 100, 200, 400)
    """Numbers of steps up to that time, rising."""

    def __post_init__(self) -> None:
        super().__post_init__()
        rising = list(self.steps) == sorted(set(self.steps))
        self.require(len(self.steps) >= 2 and rising, "steps", "two numbers or more, rising")
        self.require(self.steps[0] >= 1 and self.steps[-1] <= 100_000, "steps", "from 1 to 100000")
        self.require(len(self.widths) >= 3, "widths", "three numbers or more: G is between layers")
        self.require(all(1 <= n <= 500 for n in self.widths), "widths", "from 1 to 500")
        self.above(0, "time")
        self.at_least(1, "samples")

    def recipe(self, activation: str, steps: int) -> Balance:
        return Balance(
            widths=self.widths, activation=activation, samples=self.samples, steps=steps,
            lr=self.time / steps, seed=self.seed,
        )  # fmt: skip

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        drifts, result = [], {}
        for activation in ACTIVATIONS:
            rows = []
            for steps in self.steps:
                path = learn(self.recipe(activation, steps))
                if not all(weight.isfinite().all() for weight in path[-1]):
                    raise UserError(
                        f"time ({self.time:g}) must be smaller, or steps ({steps}) more, because "
                        f"descent by steps of {self.time / steps:g} diverges"
                    )
                rows.append(measured_drift(path, self.time / steps))
            drifts.append(rows)
            into = torch.stack([weights[0].square().sum(dim=1) for weights in path])
            out = torch.stack([weights[1].square().sum(dim=0) for weights in path])
            result[activation] = torch.stack([into, out])  # (into, out of) times units
        return {"drifts": torch.tensor(drifts, dtype=torch.float64), **result}

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        linear, relu, tanh = result["drifts"]  # steps (moved, off, rate) (all, diagonal)
        conserved = torch.stack([linear[..., 0], relu[..., 1]])
        return {
            "linear_slope": self.slope(linear[:, 0, 0]),
            "relu_slope": self.slope(relu[:, 0, 1]),
            "linear_drift": float(linear[-1, 0, 0]),
            "relu_drift": float(relu[-1, 0, 1]),
            "relu_all_drift": float(relu[-1, 0, 0]),
            "tanh_drift": float(tanh[-1, 0, 1]),
            "step_error": float(conserved[:, :, 1].max()),
            "flow_rate": float(conserved[:, :, 2].max()),
            "tanh_rate": float(tanh[-1, 2, 1]),
        }

    def slope(self, drift: Float[Tensor, " sizes"]) -> float:
        """The power of the step size between the two smallest."""
        fewer, more = self.steps[-2:]
        return float((drift[-2] / drift[-1]).log()) / math.log(more / fewer)  # (5)

    def picture_drift(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """How far G has drifted in the end, by the size of the steps; both logarithmic.

        What flow conserves falls with the step size, on the line of slope 1 (dashed): halved steps
        halve it. What is not conserved, as all of G with ReLUs ({relu:.2g}), stays as large.
        """
        lr = torch.tensor([self.time / steps for steps in self.steps], dtype=torch.float64)
        linear, relu, tanh = result["drifts"]
        kept = {"linear, all of G": linear[:, 0, 0], "ReLU, diagonal of G": relu[:, 0, 1]}
        lost = {"ReLU, all of G": relu[:, 0, 0], "tanh, diagonal of G": tanh[:, 0, 1]}
        panel = Panel(
            {name: (lr, drift) for name, drift in {**kept, **lost}.items()},
            "step size k", f"drift of G up to time {self.time:g}", log="xy", legend="below",
            guides={name: (lr, drift[-1] * lr / lr[-1]) for name, drift in kept.items()},
            dashes="slope 1",
        )  # fmt: skip
        return panels(panel), {"relu": float(relu[-1, 0, 0])}

    def picture_unit(self, result: Mapping[str, Tensor]) -> Figure:
        """Squared weights into and out of one hidden unit while three networks learn.

        Both change, and with a linear unit or a ReLU by the same: their difference, a diagonal
        entry of G, stays where it began. With tanh it moves.
        """
        t = torch.linspace(0, self.time, self.steps[-1] + 1, dtype=torch.float64)
        drawn = []
        for activation in ACTIVATIONS:
            into, out = result[activation]
            unit = int((into[-1] - into[0]).abs().argmax())
            curves = {
                "out less into": (t, (out - into)[:, unit]),
                "into": (t, into[:, unit]),
                "out of": (t, out[:, unit]),
            }
            level = {"at first": float((out - into)[0, unit])}
            drawn.append(Panel(curves, "time", "squared weights", activation, levels=level))
        return panels(*drawn)

    def tiny(self) -> Self:
        return replace(super().tiny(), widths=(2, 3, 2), steps=(4, 8), time=0.4, samples=5)


RECIPES = {
    "conserved": Conserved(
        goal="linear_slope >= 0.95 and linear_slope <= 1.05 and relu_slope >= 0.95 and "
        "relu_slope <= 1.05 and step_error <= 1e-9 and flow_rate <= 1e-9 and tanh_drift >= 0.1",
        covers=("Y7",),
    ),
}
