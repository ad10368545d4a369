"""Universal approximation by construction: a network of bumps whose weights are not learned.

    H(x; b) = 1 / (1 + e^{-w (x - b)})                         (1)  a step at b, sharp for large w
    P_j(x)  = H(x; b_{j-1}) - H(x; b_j)                        (2)  a bump: two hidden units
    G(x)    = sum_j f(a_j) P_j(x),  j = 1 .. N                 (3)  the network: 2N hidden units
    b_j     = j delta,  but b_0 = -delta and b_N = 1 + delta   (4)  edges, delta = 1/N
    a_j     = (j - 1/2) delta                                  (5)  where f is read
    max |f(x) - G(x)| <= L delta / 2  on [0, 1]                (6)  if |f(x) - f(y)| <= L |x - y|

where f is a function on [0, 1], L its Lipschitz constant, N the number of bumps and H a sigmoid
unit with weight w and bias -w b; side by side means a product. The bumps add to 1 all over the
interval because the first and the last reach past its ends: one that began at 0 would be 1/2 there,
an error that no number of bumps takes away. So G is a mean of values of f, and those that count are
read at most delta / 2 away. Twice as many bumps halve the error. f need not be smooth. Training
finds far better networks of this size: the construction shows that there is one, and how large it
must be for a given error.

Nielsen (2015), "Neural Networks and Deep Learning", chapter 4. The theorem: Cybenko (1989),
"Approximation by superpositions of a sigmoidal function", Mathematics of Control, Signals and
Systems 2, doi:10.1007/BF02551274.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.zoo.feedforward.mlp import MLP


def sum_bumps(
    x: Float[Tensor, " points"],
    heights: Float[Tensor, " bumps"],
    b: Float[Tensor, " edges"],
    w: float,
) -> Float[Tensor, " points"]:
    """G(x) as it is written, for reading and for tests: `build_network` computes the same."""
    steps = torch.sigmoid(w * (x[:, None] - b))  # (1)
    bumps = steps[:, :-1] - steps[:, 1:]  # (2)
    return bumps @ heights  # (3)


def build_network(heights: Float[Tensor, " bumps"], b: Float[Tensor, " edges"], w: float) -> MLP:
    """The bumps of these heights between these edges, as a network with one hidden layer.

    Its hidden units are the steps at the left edge of each bump, then those at the right edge.
    """
    model = MLP((1, 2 * len(heights), 1), "sigmoid").to(heights.dtype)
    weights = {
        "layers.0.weight": torch.full((2 * len(heights), 1), w),
        "layers.0.bias": -w * torch.cat([b[:-1], b[1:]]),
        "layers.1.weight": torch.cat([heights, -heights])[None],
        "layers.1.bias": torch.zeros(1),
    }
    model.load_state_dict(weights)
    return model


def bump_edges(bumps: int) -> Float[Tensor, " edges"]:
    """Where the bumps begin and end; the first and the last reach past the interval."""
    b = torch.arange(bumps + 1, dtype=torch.float64) / bumps
    b[0], b[-1] = -1 / bumps, 1 + 1 / bumps  # (4)
    return b


def bump_middles(bumps: int) -> Float[Tensor, " bumps"]:
    """Where the function is read."""
    return (torch.arange(bumps, dtype=torch.float64) + 0.5) / bumps  # (5)


def error_bound(lipschitz: float, bumps: Float[Tensor, " sizes"]) -> Float[Tensor, " sizes"]:
    """The most that the largest error can be."""
    return lipschitz / bumps / 2  # (6)


# -------- the network ends here; training and pictures follow --------

Function = Callable[[Float[Tensor, " points"]], Float[Tensor, " points"]]

TARGETS: dict[str, tuple[Function, float]] = {
    r"$\sin 2 \pi x$": (lambda x: (2 * math.pi * x).sin(), 2 * math.pi),
    r"$|x - 1/2|$": (lambda x: (x - 0.5).abs(), 1.0),
}
"""Functions on [0, 1], each with its Lipschitz constant."""
SHARPNESS = (20.0, 60.0, 1000.0)  # of the single step and bump that are drawn


@dataclass(frozen=True, kw_only=True)
class Bumps(Simulation):
    """Build a network for each function and number of bumps, and measure its largest error."""

    meanings: ClassVar[Mapping[str, str]] = {
        "share_of_bound": "the largest error as a share of the bound (6)",
        "halving_error": "how far the ratio of errors is from 2 where bumps are doubled",
    }

    bumps: tuple[int, ...] = (8, 16, 32, 64, 128, 256)
    """Numbers of bumps, each twice the one before; the first is drawn."""
    steepness: float = 200.0
    """w delta: how many times narrower a step is than a bump."""
    points: int = 200
    """Places in each cell where the error is measured."""

    def __post_init__(self) -> None:
        super().__post_init__()
        doubled = all(2 * n == m for n, m in zip(self.bumps, self.bumps[1:], strict=False))
        self.require(len(self.bumps) >= 2 and doubled, "bumps", "two numbers or more, each doubled")
        self.require(self.bumps[0] >= 1, "bumps", "positive")
        self.require(
            40 <= self.steepness <= 1e6,
            "steepness",
            "from 40 to 1e6: flatter bumps overlap, and steeper ones are lost in rounding",
        )
        self.at_least(2, "points")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        errors = torch.zeros(len(TARGETS), len(self.bumps), dtype=torch.float64)
        result: dict[str, Tensor] = {"errors": errors}
        for row, (f, _) in enumerate(TARGETS.values()):
            for column, n in enumerate(self.bumps):
                model = self.build(f, n)
                x = torch.linspace(0, 1, n * self.points + 1, dtype=torch.float64)
                errors[row, column] = (f(x) - _values(model, x)).abs().max()
                if column == 0:
                    result |= {f"{row}.{k}": v.clone() for k, v in model.state_dict().items()}
        return result

    def build(self, f: Function, bumps: int) -> MLP:
        return build_network(f(bump_middles(bumps)), bump_edges(bumps), self.steepness * bumps)

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        errors = result["errors"]
        limits = torch.stack(
            [error_bound(lipschitz, self.sizes()) for _, lipschitz in TARGETS.values()]
        )
        return {
            "share_of_bound": (errors / limits).max().item(),
            "halving_error": (errors[:, :-1] / errors[:, 1:] - 2).abs().max().item(),
        }

    def sizes(self) -> Float[Tensor, " sizes"]:
        return torch.tensor(self.bumps, dtype=torch.float64)

    def picture_sums(self, result: Mapping[str, Tensor]) -> Figure:
        """Bumps side by side (left), and their sum (blue) over the function (dashed) for two N.

        The sum is a staircase along the function, and more bumps make finer steps.
        """
        few, many = self.bumps[0], self.bumps[1:3][-1]
        shown = [
            panel
            for name in TARGETS
            for panel in (self._parts(name, few), self._sum(name, few), self._sum(name, many))
        ]
        return panels(*shown, columns=3)

    def picture_bumps(self, result: Mapping[str, Tensor]) -> Figure:
        """One sigmoid unit is a step and two are a bump, sharper with larger w.

        On the right the largest error falls with the number of bumps, on or below its bound.
        """
        x, sizes = torch.linspace(0, 1, 401, dtype=torch.float64), self.sizes()
        steps, bumps = {}, {}
        for w in SHARPNESS:
            ends = torch.tensor([0.4, 0.6], dtype=torch.float64)
            model = build_network(torch.ones(1).double(), ends, w)
            steps[f"w = {w:g}"] = (x, model.hidden(x[:, None])[1][:, 0].detach())
            bumps[f"w = {w:g}"] = (x, _values(model, x))
        error = Panel(
            {name: (sizes, result["errors"][row]) for row, name in enumerate(TARGETS)},
            guides={name: (sizes, error_bound(most, sizes)) for name, (_, most) in TARGETS.items()},
            log="xy",
            xlabel="bumps N (2N hidden units)",
            ylabel="largest error on [0, 1]",
            title="largest error",
            dashes=r"bound $L \delta / 2$",
        )
        return panels(
            Panel(steps, "x", r"$H(x;\,b)$", "one hidden unit: a step at b = 0.4"),
            Panel(bumps, "x", r"$P(x)$", "two hidden units: a bump from 0.4 to 0.6"),
            error,
        )

    def _sum(self, name: str, bumps: int) -> Panel:
        """The sum of the bumps over the function."""
        f, x = TARGETS[name][0], torch.linspace(0, 1, 2001, dtype=torch.float64)
        return Panel(
            {"G, the sum of the bumps": (x, _values(self.build(f, bumps), x))},
            guides={f"f = {name}": (x, f(x))},
            xlabel="x",
            ylabel="G(x)",
            title=f"N = {bumps}: {2 * bumps} hidden units",
        )

    def _parts(self, name: str, n: int) -> Panel:
        """The bumps times the values they stand for, those of the ends past the interval."""
        heights, b = TARGETS[name][0](bump_middles(n)), bump_edges(n)
        x = torch.linspace(-1.5 / n, 1 + 1.5 / n, 1201, dtype=torch.float64)
        models = [build_network(heights[[j]], b[j : j + 2], self.steepness * n) for j in range(n)]
        return Panel(
            {f"_{j}": (x, _values(model, x)) for j, model in enumerate(models)},
            marks={"ends of [0, 1]": 0.0, " ": 1.0},
            xlabel="x",
            ylabel=r"$f(a_j)\,P_j(x)$",
            title=f"the {n} bumps of {name}",
        )

    def tiny(self) -> Self:
        return replace(self, bumps=self.bumps[:2], points=min(self.points, 40))


@torch.no_grad()
def _values(model: MLP, x: Float[Tensor, " points"]) -> Float[Tensor, " points"]:
    """The outputs of the network, in pieces that fit into the cache."""
    return torch.cat([model(part[:, None])[:, 0] for part in x.split(1024)])


RECIPES = {
    "bump-approximation": Bumps(
        goal="share_of_bound <= 1.0001 and halving_error <= 0.2", covers=("F8",)
    ),
}
