"""Symmetry breaking: hidden units that begin alike stay alike, so weights must begin at random.

    h_i      = tanh(w_i . x + b_i)                              (1)  hidden unit
    y        = sum_i v_i h_i + c                                (2)  logit
    e        = sigmoid(y) - t                                   (3)  error, for targets 0 and 1
    dE/dw_i  = mean over samples of e v_i (1 - h_i^2) x         (4)  gradient into unit i
    dE/db_i  = mean over samples of e v_i (1 - h_i^2)           (5)
    dE/dv_i  = mean over samples of e h_i                       (6)  and out of it
    spread   = max_ij |theta_i - theta_j|                       (7)  theta_i = (w_i, b_i, v_i)

x is a point of the plane, w_i . x a scalar product, and E the cross-entropy. Only theta_i and the
error, which all units share, enter the gradient of theta_i: two units with equal theta get equal
gradients, so equal steps, and are one unit for ever. Any rule that works weight by weight
(momentum, Adam) keeps them equal too. One tanh unit answers by a threshold along one line through
the plane and so gets at most three of the four corners of XOR right; eight that begin apart get
them all. The biases may begin at zero: the weights do it.

Goodfellow et al. (2016), "Deep Learning", section 8.4; Rumelhart, Hinton, Williams (1986),
"Learning representations by back-propagating errors", Nature 323, doi:10.1038/323533a0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from everynet.data.dataset import Batch, Data, Terms
from everynet.plot.panels import Panel, panels
from everynet.plot.surface import decision_surface, square
from everynet.recipes.recipe import Simulation
from everynet.recipes.training import Training
from everynet.system.seeds import mix
from everynet.training.device import choose
from everynet.training.loop import begin, train


class TanhNetwork(nn.Module):
    """Maps points of the plane to a logit through one layer of tanh units."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(2, units)
        self.output = nn.Linear(units, 1)

    def forward(self, x: Float[Tensor, "rows 2"]) -> Float[Tensor, " rows"]:
        h = self.hidden(x).tanh()  # (1)
        y: Tensor = self.output(h)[:, 0]  # (2)
        return y

    def unit_weights(self) -> Float[Tensor, "units 4"]:
        """theta_i = (w_i, b_i, v_i), a row for each hidden unit."""
        into, bias, out = self.hidden.weight, self.hidden.bias, self.output.weight
        return torch.cat([into, bias[:, None], out.T], dim=1).detach().clone()


def unit_gradients(
    model: TanhNetwork, x: Float[Tensor, "rows 2"], t: Float[Tensor, " rows"]
) -> Float[Tensor, "units 4"]:
    """The gradient of the cross-entropy by theta_i, a row for each hidden unit, by hand."""
    h, v = model.hidden(x).tanh(), model.output.weight[0]
    e = model(x).sigmoid() - t  # (3)
    back = e[:, None] * v * (1 - h.square())  # rows units
    into = back.T @ x / len(x)  # (4)
    bias = back.mean(dim=0)  # (5)
    out = e @ h / len(x)  # (6)
    return torch.cat([into, bias[:, None], out[:, None]], dim=1).detach()


def spread(theta: Float[Tensor, "*times units 4"]) -> Float[Tensor, "*times"]:
    """How far apart the two least alike units are, in any weight."""
    return (theta.amax(dim=-2) - theta.amin(dim=-2)).amax(dim=-1)  # (7)


# -------- the network ends here; training and pictures follow --------


CORNERS = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
XOR = torch.tensor([0.0, 1.0, 1.0, 0.0], dtype=torch.float64)
LOW, HIGH = -0.5, 1.5


@dataclass(frozen=True, kw_only=True)
class Xor(Training[TanhNetwork]):
    """Learn the four corners from weights that are all `constant`, or normal where it is None."""

    units: int = 8
    constant: float | None = None
    batch_size: int = 4
    optimizer: str = "sgd"

    def dataset(self) -> Data:
        return Data({"train": (CORNERS, XOR)}, batch_size=self.batch_size, seed=self.seed)

    def model(self, data: Data) -> TanhNetwork:
        model = TanhNetwork(self.units)
        for layer in (model.hidden, model.output):
            nn.init.zeros_(layer.bias)
            if self.constant is None:
                nn.init.normal_(layer.weight)
            else:
                nn.init.constant_(layer.weight, self.constant)
        return model

    def objective(self, model: TanhNetwork, batch: Batch) -> Terms:
        x, t = batch
        return {"cross_entropy": binary_cross_entropy_with_logits(model(x), t)}


def learn(recipe: Xor) -> tuple[TanhNetwork, Float[Tensor, "times units 4"]]:
    """The network at the end, and its hidden units at the start and after each step."""
    data, setup = recipe.dataset(), choose("cpu", "fp64")
    state = begin(recipe, data, setup)
    path = [state.model.unit_weights()]
    path += [state.model.unit_weights() for _ in train(recipe, state, data, setup=setup)]
    return state.model, torch.stack(path)


@dataclass(frozen=True, kw_only=True)
class SymmetryBreaking(Simulation):
    """Learn XOR from equal and from random weights."""

    meanings: ClassVar[Mapping[str, str]] = {
        "spread_constant": "the largest spread of the units from equal weights: 0",
        "spread_random": "the spread of the units at the end, from random weights",
        "accuracy_constant": "accuracy on the corners of XOR from equal weights",
        "solved_random": "the share of random initialisations that get all corners right",
    }

    units: int = 8
    """Hidden units."""
    constant: float = 0.5
    """The weight that all connections of the symmetric network begin with."""
    steps: int = 200
    """Steps of descent over all four corners."""
    lr: float = 0.5
    """Learning rate."""
    nets: int = 20
    """Networks that begin with random weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(2, "units")
        self.at_least(1, "steps", "nets")
        self.above(0, "lr")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        paths, scores, surfaces = [], [], []
        for number in range(self.nets + 1):
            recipe = Xor(
                units=self.units, steps=self.steps, lr=self.lr, seed=mix(self.seed, number),
                constant=None if number else self.constant,
            )  # fmt: skip
            model, path = learn(recipe)
            with torch.no_grad():
                scores.append(model(CORNERS))
                if number <= 1:
                    paths.append(path)
                    surfaces.append(model(square(low=LOW, high=HIGH)))
        return {
            "paths": torch.stack(paths),  # (constant, random) times units 4
            "surfaces": torch.stack(surfaces),
            "scores": torch.stack(scores),  # networks corners, the constant one first
        }

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        right = ((result["scores"] > 0) == (XOR > 0)).double().mean(dim=1)
        apart = spread(result["paths"])
        return {
            "spread_constant": float(apart[0].max()),
            "spread_random": float(apart[1, -1]),
            "accuracy_constant": float(right[0]),
            "solved_random": float((right[1:] == 1).double().mean()),
        }

    def picture_units(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """Weights of the hidden units by step, and the spread between the units (right).

        From equal weights (left) all units stay equal, with a spread of at most {equal:.2g}; from
        random ones (middle) they part, to a spread of {random:.2g}.
        """
        steps = torch.arange(self.steps + 1.0)
        constant, random = result["paths"]
        parts = {"into each unit, $w_{i1}$": 0, "bias, $b_i$": 2, "out of each unit, $v_i$": 3}
        first = {name: (steps, constant[:, 0, part]) for name, part in parts.items()}
        weights = {f"_unit {i + 1}": (steps, random[:, i, 0]) for i in range(self.units)}
        spreads = {"equal": (steps, spread(constant)), "random": (steps, spread(random))}
        same = f"weight, the same for all {self.units} units"
        drawn = panels(
            Panel(first, "step", same, "equal weights: the units stay equal"),
            Panel(weights, "step", "weight into the unit, $w_{i1}$", "random weights: they part"),
            Panel(spreads, "step", "spread of the units", "how far apart they are"),
        )
        values = {"equal": float(spread(constant).max()), "random": float(spread(random)[-1])}
        return drawn, values

    def picture_surface_equal(
        self, result: Mapping[str, Tensor]
    ) -> tuple[Figure, dict[str, float]]:
        """The output of the network that began with equal weights, over the plane.

        Its boundary is one straight line, which gets {right} of the four corners of XOR right.
        """
        return self._surface(result, 0)

    def picture_surface_random(
        self, result: Mapping[str, Tensor]
    ) -> tuple[Figure, dict[str, float]]:
        """The output of a network that began with random weights, over the plane.

        Its boundary may bend around corners: {right} of the four corners of XOR are right.
        """
        return self._surface(result, 1)

    def _surface(
        self, result: Mapping[str, Tensor], network: int
    ) -> tuple[Figure, dict[str, float]]:
        """The decision surface of a network, and how many corners it gets right."""
        right = int(((result["scores"][network] > 0) == (XOR > 0)).sum())
        scores, targets = result["surfaces"][network], XOR.long()
        return decision_surface(scores, CORNERS, targets, low=LOW, high=HIGH), {"right": right}

    def tiny(self) -> Self:
        return replace(super().tiny(), nets=1)


RECIPES = {
    "symmetry-breaking": SymmetryBreaking(
        goal="spread_constant <= 1e-12 and accuracy_constant <= 0.75 and solved_random >= 1",
        covers=("O10",),
    ),
}
