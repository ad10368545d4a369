"""Implicit bias: of all solutions gradient descent finds the shortest, if it starts from zero.

    E(w)      = |A w - y|^2 / (2 n)                                (1)  n equations, d > n unknowns
    w_{t+1}   = w_t - k A^T (A w_t - y) / n                        (2)  gradient descent
    A^+       = A^T (A A^T)^-1                                     (3)  pseudo-inverse, rank n
    P         = I - A^+ A                                          (4)  onto the null space of A
    w_inf     = A^+ y + P w_0                                      (5)  where (2) ends
    w_t       = w_inf + (I - k A^T A / n)^t (w_0 - w_inf)          (6)  on the way
    |w|^2     = |A^+ y|^2 + |P w|^2   for every w with A w = y     (7)  A^+ y is the shortest

w are the d unknowns, w_0 those at the start, k is the step size. Every gradient is a combination of
the rows of A, so that P w never changes: descent keeps what it began with in the null space, which
from zero is nothing. So does the gradient of any batch of equations, and momentum: stochastic
descent ends in the same point. Adam divides each gradient by its size, coordinate by coordinate,
which turns it out of the span of the rows: it solves the equations too, but by a longer w. No
penalty asks for a short solution; the way to it does. In a deep network this is a picture, not a
theorem: what it says of the networks that are used is contested.

Gunasekar, Lee, Soudry and Srebro (2018), "Characterizing implicit bias in terms of optimization
geometry", arXiv:1802.08246; Wilson et al. (2017), "The marginal value of adaptive gradient methods
in machine learning", arXiv:1705.08292; Penrose (1955), doi:10.1017/S0305004100030401.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
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
from everynet.system.seeds import mix
from everynet.training.device import choose
from everynet.training.loop import begin, train

Matrix = Float[Tensor, "equations unknowns"]
Vector = Float[Tensor, " unknowns"]


def pseudo_inverse(a: Matrix) -> Float[Tensor, "unknowns equations"]:
    """The pseudo-inverse of a matrix whose rows are independent."""
    inverse: Tensor = a.T @ torch.linalg.inv(a @ a.T)  # (3)
    return inverse


def null_projection(a: Matrix) -> Float[Tensor, "unknowns unknowns"]:
    """The projection onto what A maps to zero."""
    return torch.eye(a.shape[1], dtype=a.dtype) - pseudo_inverse(a) @ a  # (4)


def limit(a: Matrix, y: Float[Tensor, " equations"], start: Vector) -> Vector:
    """The solution that gradient descent ends in."""
    return pseudo_inverse(a) @ y + null_projection(a) @ start  # (5)


def squared_length(a: Matrix, y: Float[Tensor, " equations"], w: Vector) -> Float[Tensor, ""]:
    """The squared length of a solution, from that of the shortest and its null part."""
    return (pseudo_inverse(a) @ y).square().sum() + (null_projection(a) @ w).square().sum()  # (7)


def descend(
    a: Matrix, y: Float[Tensor, " equations"], start: Vector, lr: float, steps: int
) -> Float[Tensor, "times unknowns"]:
    """Gradient descent as it is written: the start, and w after each step."""
    path = [start]
    for _ in range(steps):
        path.append(path[-1] - lr * a.T @ (a @ path[-1] - y) / len(a))  # (2)
    return torch.stack(path)


def closed_form(
    a: Matrix, y: Float[Tensor, " equations"], start: Vector, lr: float, steps: int
) -> Float[Tensor, "times unknowns"]:
    """The same without steps."""
    end = limit(a, y, start)
    values, axes = torch.linalg.eigh(a.T @ a / len(a))
    times = torch.arange(steps + 1, dtype=a.dtype)
    shrunk = (1 - lr * values) ** times[:, None] * (axes.T @ (start - end))
    path: Tensor = end + shrunk @ axes.T  # (6)
    return path


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class Underdetermined(Training[nn.Linear]):
    """Solve fewer equations than there are unknowns, by descent on their squared error."""

    equations: int = 20
    unknowns: int = 50
    problem: int = 0
    """Seed of the equations."""
    spread: float = 0.0
    """Standard deviation of the start around zero."""
    optimizer: str = "sgd"

    def dataset(self) -> Data:
        draw = torch.Generator().manual_seed(self.problem)
        a = torch.randn(self.equations, self.unknowns, generator=draw, dtype=torch.float64)
        y = torch.randn(self.equations, generator=draw, dtype=torch.float64)
        return Data({"train": (a, y)}, batch_size=self.batch_size, seed=self.seed)

    def model(self, data: Data) -> nn.Linear:
        model = nn.Linear(self.unknowns, 1, bias=False)
        nn.init.normal_(model.weight, std=self.spread)
        return model

    def objective(self, model: nn.Linear, batch: Batch) -> Terms:
        a, y = batch
        return {"error": mse_loss(model(a)[:, 0], y) / 2}  # (1)


def learn(recipe: Underdetermined) -> Float[Tensor, "times unknowns"]:
    """The start, and w after each update."""
    data, setup = recipe.dataset(), choose("cpu", "fp64")
    state = begin(recipe, data, setup)
    path = [state.model.weight.detach()[0].clone()]
    path += [
        state.model.weight.detach()[0].clone() for _ in train(recipe, state, data, setup=setup)
    ]
    return torch.stack(path)


ADAM_LR = 0.01
PLANE_STARTS = ((-0.3, 0.9), (0.2, -1.6))
RULES = ("from zero", "from elsewhere", "stochastic", "Adam")


@dataclass(frozen=True, kw_only=True)
class MinNorm(Simulation):
    """Solve the same equations from zero, from elsewhere, by batches and by Adam."""

    meanings: ClassVar[Mapping[str, str]] = {
        "distance": "of descent from zero from the pseudo-inverse's solution, at the end",
        "stochastic_distance": "the same with batches of a quarter of the equations",
        "adam_distance": "the same for Adam, from zero too",
        "adam_residual": "length of A w - y for Adam, at the end: it solves the equations",
        "elsewhere_distance": "of descent from elsewhere from that solution and its own null part",
        "null_drift": "how far descent from elsewhere moves in the null space of A, at most",
        "length_error": "how far squared lengths of the solutions are from (7), at most",
        "path_error": "how far both descents are from the closed form on the way, at most",
    }

    equations: int = 20
    """Rows of A, n."""
    unknowns: int = 50
    """Columns of A, d: more than rows."""
    steps: int = 1_000
    """Updates of each rule."""
    rate: float = 0.6
    """Step size in units of 1 / the largest curvature; stochastic descent takes half of it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "equations")
        self.at_least(1, "steps")
        self.require(
            self.equations < self.unknowns <= 2_000,
            "unknowns",
            lambda: (
                f"above {self.equations}, the equations, and at most 2000: with fewer unknowns "
                "there is one solution at most"
            ),
        )
        self.require(0 < self.rate < 1, "rate", "above 0 and below 1, from which batches diverge")

    def problem(self) -> Underdetermined:
        """The equations, solved by descent from zero."""
        given = Underdetermined(
            equations=self.equations, unknowns=self.unknowns, problem=mix(self.seed, 0),
            steps=self.steps, batch_size=self.equations, seed=self.seed,
        )  # fmt: skip
        a = given.dataset().splits["train"][0]
        return replace(given, lr=self.rate * len(a) / float(torch.linalg.matrix_norm(a, 2)) ** 2)

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        zero = self.problem()
        a, y = zero.dataset().splits["train"]
        rules = (
            zero,
            replace(zero, spread=0.2),
            replace(zero, batch_size=-(-self.equations // 4), lr=zero.lr / 2),
            replace(zero, optimizer="adam", lr=ADAM_LR),
        )
        plane = Underdetermined(
            equations=1, unknowns=2, problem=47, steps=200, batch_size=1, optimizer="adam", lr=0.02
        )
        return {
            "a": a,
            "y": y,
            "paths": torch.stack([learn(rule) for rule in rules]),  # rules times unknowns
            "plane_a": plane.dataset().splits["train"][0],
            "plane_y": plane.dataset().splits["train"][1],
            "plane_adam": learn(plane),
        }

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        a, y, paths = result["a"], result["y"], result["paths"]
        shortest, elsewhere = limit(a, y, torch.zeros_like(a[0])), paths[1]
        away = dict(zip(RULES, (paths[:, -1] - shortest).norm(dim=1).tolist(), strict=True))
        drift = (elsewhere - elsewhere[0]) @ null_projection(a)
        exact = [closed_form(a, y, path[0], self.problem().lr, self.steps) for path in paths[:2]]
        return {
            "distance": away["from zero"],
            "stochastic_distance": away["stochastic"],
            "adam_distance": away["Adam"],
            "adam_residual": float((a @ paths[3, -1] - y).norm()),
            "elsewhere_distance": float((elsewhere[-1] - limit(a, y, elsewhere[0])).norm()),
            "null_drift": float(drift.norm(dim=1).max()),
            "length_error": max(
                abs(float(w.square().sum() - squared_length(a, y, w))) for w in paths[:, -1]
            ),
            "path_error": float((torch.stack(exact) - paths[:2]).norm(dim=2).max()),
        }

    def picture_plane(self, result: Mapping[str, Tensor]) -> Figure:
        """One equation in two unknowns: every point of the dashed line solves it.

        Descent goes straight to the line from wherever it starts, along the row of A; from zero
        that is the way to the point of the line nearest to zero. Adam ends in another.
        """
        a, y = result["plane_a"], result["plane_y"]
        rate = 0.1 / float(a.square().sum())
        starts = {"descent from zero": (0.0, 0.0)}
        starts |= {f"from elsewhere {n}": each for n, each in enumerate(PLANE_STARTS, 1)}
        ways = {
            name: descend(a, y, torch.tensor(start, dtype=torch.float64), rate, 200)
            for name, start in starts.items()
        }
        ways["Adam from zero"] = result["plane_adam"]
        middle, along = limit(a, y, torch.zeros_like(a[0])), a[0].flip(0) * torch.tensor([-1, 1])
        line = middle + torch.linspace(-2, 2, 2)[:, None] * along / along.norm()
        panel = Panel(
            {name: (way[:, 0], way[:, 1]) for name, way in ways.items()}, "$w_1$", "$w_2$",
            guides={"solutions, A w = y": (line[:, 0], line[:, 1])}, legend="below",
        )  # fmt: skip
        made = panels(panel, width=4.2, height=3.9)
        made.axes[0].set_aspect("equal")
        return made

    def picture_distance(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """Distance from the pseudo-inverse's solution by step, and the length of w.

        From zero descent comes to it, also by batches. From elsewhere it stays as far as its null
        part is long, {null:.2g} (dotted); Adam solves the equations {adam:.2g} away from it.
        """
        a, y, paths = result["a"], result["y"], result["paths"]
        shortest, t = limit(a, y, torch.zeros_like(a[0])), torch.arange(self.steps + 1)
        away = (paths - shortest).norm(dim=2)
        null = float((null_projection(a) @ paths[1, 0]).norm())
        exact = closed_form(a, y, paths[0, 0], self.problem().lr, self.steps)
        law = {"from zero": (t, (exact - shortest).norm(dim=1))}
        distance = Panel(
            {name: (t, each) for name, each in zip(RULES, away, strict=True)}, "step",
            "distance from $A^+ y$", log="y", guides=law, dashes="closed form",
            levels={"$|P w_0|$": null}, legend="below",
        )  # fmt: skip
        length = Panel(
            {name: (t, each.norm(dim=1)) for name, each in zip(RULES, paths, strict=True)},
            "step", "length of w", levels={"$|A^+ y|$": float(shortest.norm())}, legend="below",
        )  # fmt: skip
        return panels(distance, length), {"null": null, "adam": float(away[3, -1])}

    def tiny(self) -> Self:
        return replace(super().tiny(), equations=3, unknowns=5)


RECIPES = {
    "min-norm": MinNorm(
        goal="distance <= 1e-6 and elsewhere_distance <= 1e-6 and null_drift <= 1e-9 and "
        "stochastic_distance <= 1e-6 and path_error <= 1e-9 and adam_distance >= 0.1",
        covers=("Y5",),
    ),
}
