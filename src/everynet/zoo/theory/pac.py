"""PAC learning: how many samples make a learner probably approximately correct.

    err(h) = P(h(x) != y),  err_S(h) = the share of h(x_i) != y_i              (1)  true, training
    P(err(R) > eps) <= 4 (1 - eps/4)^m <= 4 exp(-eps m / 4)                    (2)  rectangles
    m >= (4 / eps) ln(4 / delta)                                               (3)
    P(some h: err_S(h) = 0 and err(h) > eps) <= |H| (1 - eps)^m                (4)  finite H
    m >= (ln |H| + ln(1 / delta)) / eps                                        (5)
    P(some h: |err(h) - err_S(h)| > eps) <= 2 |H| exp(-2 m eps^2)              (6)  agnostic
    m >= ln(2 |H| / delta) / (2 eps^2)                                         (7)

S are m independent samples (x_i, y_i) of any distribution, H is a class of hypotheses h, and a
learner fails if its error is above eps: with the m of (3), (5) or (7) it does so with probability
delta at most. R is the smallest rectangle around the positive points where a rectangle made the
labels: it can only miss a strip along each side of that, and each strip of probability eps/4 is
missed by all m points with probability (1 - eps/4)^m. In (4) a hypothesis of H made the labels; in
(6) nothing needs to have, and some of them are wrong here: one pays 1 / eps^2 in place of 1 / eps.

Valiant (1984), "A theory of the learnable", doi:10.1145/1968.1972; Blumer, Ehrenfeucht, Haussler
and Warmuth (1989), "Learnability and the Vapnik-Chervonenkis dimension", doi:10.1145/76359.76371;
Shalev-Shwartz and Ben-David (2014), "Understanding Machine Learning", chapters 2 to 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation

Rectangles = Float[Tensor, "... 2 2"]
"""The lower left and the upper right corner of each."""


def tightest_rectangle(
    x: Float[Tensor, "*trials points 2"], y: Bool[Tensor, "*trials points"]
) -> Rectangles:
    """The smallest rectangle around the positive points; without any, one that holds nothing."""
    low = torch.where(y[..., None], x, math.inf).amin(dim=-2)
    high = torch.where(y[..., None], x, -math.inf).amax(dim=-2)
    return torch.stack([low, high], dim=-2)


def inside(
    x: Float[Tensor, "*trials points 2"], rectangle: Rectangles
) -> Bool[Tensor, "*trials points"]:
    """Whether each point lies within the rectangle, of its trial or of all."""
    low, high = rectangle[..., None, 0, :], rectangle[..., None, 1, :]
    return ((x >= low) & (x <= high)).all(dim=-1)


def area(rectangle: Rectangles) -> Float[Tensor, ...]:
    """The probability of a rectangle under the uniform distribution on the unit square."""
    return (rectangle[..., 1, :] - rectangle[..., 0, :]).clamp(min=0).prod(dim=-1)


def rectangle_bound(m: Float[Tensor, " sizes"], eps: float) -> Float[Tensor, " sizes"]:
    """The most that the probability of an error above eps can be."""
    return 4 * (1 - eps / 4) ** m  # (2)


def rectangle_samples(eps: float, delta: float) -> int:
    """Samples after which the smallest rectangle fails with probability delta at most."""
    return math.ceil(4 / eps * math.log(4 / delta))  # (3)


def consistent_bound(
    m: Float[Tensor, " sizes"], eps: float, hypotheses: int
) -> Float[Tensor, " sizes"]:
    """The most that the probability of a bad hypothesis without a training error can be."""
    return hypotheses * (1 - eps) ** m  # (4)


def consistent_samples(eps: float, delta: float, hypotheses: int) -> int:
    """Samples after which that is delta at most."""
    return math.ceil((math.log(hypotheses) + math.log(1 / delta)) / eps)  # (5)


def agnostic_bound(
    m: Float[Tensor, " sizes"], eps: float, hypotheses: int
) -> Float[Tensor, " sizes"]:
    """The most that the probability of a training error eps off the true one can be."""
    return 2 * hypotheses * (-2 * m * eps**2).exp()  # (6)


def agnostic_samples(eps: float, delta: float, hypotheses: int) -> int:
    """Samples after which that is delta at most."""
    return math.ceil(math.log(2 * hypotheses / delta) / (2 * eps**2))  # (7)


def grid_rectangles(side: int) -> Float[Tensor, "hypotheses cells"]:
    """All rectangles of cells of a grid, and the empty one: 1 in each cell that is inside."""
    low, high = torch.triu_indices(side, side)
    cells = torch.arange(side)
    spans = ((cells >= low[:, None]) & (cells <= high[:, None])).double()
    pairs = torch.einsum("ax,by->abxy", spans, spans).flatten(2).flatten(0, 1)
    return torch.cat([torch.zeros(1, side**2, dtype=torch.float64), pairs])


# -------- the network ends here; training and pictures follow --------

TRUTH = torch.tensor([[0.2, 0.3], [0.8, 0.7]], dtype=torch.float64)  # the rectangle to be learned
SHARES = (0.0625, 0.125, 0.25, 0.5, 1.0)  # of the sample size of a bound, which failures are for
BATCH = 250  # trials at once


@dataclass(frozen=True, kw_only=True)
class PAC(Simulation):
    """Learn rectangles from more and more samples, and count how often the error is above eps."""

    meanings: ClassVar[Mapping[str, str]] = {
        "rectangle_failures": "share of smallest rectangles with an error above eps, at (3)",
        "consistent_failures": "share of samples with a bad rectangle of no training error, at (5)",
        "agnostic_failures": "share of samples with a training error more than eps off, at (7)",
        "*_samples": "the sample size of that bound",
        "excess": "how far any share is above its bound at most, in standard errors",
    }

    eps: float = 0.1
    """Error from which on a learner fails."""
    delta: float = 0.05
    """Probability of failing that is allowed."""
    trials: int = 2_000
    """Samples of each size."""
    grid: int = 8
    """Cells along a side of the grid whose rectangles are the finite class."""
    noise: float = 0.1
    """Probability that a label of the agnostic learner is wrong."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("eps", "delta"):
            self.require(0 < getattr(self, name) < 1, name, "between 0 and 1")
        self.require(self.eps >= 0.01, "eps", "at least 0.01: samples grow as its inverse square")
        self.within(1, 100_000, "trials")
        self.within(2, 12, "grid")
        self.within(0, 0.5, "noise")

    def laws(self) -> dict[str, tuple[int, Callable[[Tensor], Tensor]]]:
        """The sample size of each learner, and the bound on how often it fails."""
        eps, hypotheses = self.eps, len(grid_rectangles(self.grid))
        return {
            "rectangle": (
                rectangle_samples(eps, self.delta),
                lambda m: rectangle_bound(m, eps),
            ),
            "consistent": (
                consistent_samples(eps, self.delta, hypotheses),
                lambda m: consistent_bound(m, eps, hypotheses),
            ),
            "agnostic": (
                agnostic_samples(eps, self.delta, hypotheses),
                lambda m: agnostic_bound(m, eps, hypotheses),
            ),
        }

    def sizes(self, law: str) -> list[int]:
        """Numbers of samples that a learner is given, its sample size last."""
        most = self.laws()[law][0]
        return [max(1, math.ceil(share * most)) for share in SHARES]

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        fails = {
            "rectangle": self.rectangle_fails,
            "consistent": self.consistent_fails,
            "agnostic": self.agnostic_fails,
        }
        shares = {
            law: torch.stack([self.share(fail, m, generator) for m in self.sizes(law)])
            for law, fail in fails.items()
        }
        points = self.sizes("rectangle")[2], 2
        return {**shares, "example": torch.rand(points, generator=generator, dtype=torch.float64)}

    def share(
        self,
        fails: Callable[[int, int, torch.Generator], Tensor],
        m: int,
        generator: torch.Generator,
    ) -> Float[Tensor, ""]:
        """The share of trials in which a learner fails after m samples."""
        parts = [min(BATCH, self.trials - done) for done in range(0, self.trials, BATCH)]
        return torch.cat([fails(m, trials, generator) for trials in parts]).double().mean()

    def rectangle_fails(
        self, m: int, trials: int, generator: torch.Generator
    ) -> Bool[Tensor, " trials"]:
        """Whether the smallest rectangle misses more than eps of the true one, which holds it."""
        x = torch.rand(trials, m, 2, generator=generator, dtype=torch.float64)
        learned = tightest_rectangle(x, inside(x, TRUTH))
        return area(TRUTH) - area(learned) > self.eps  # (1)

    def consistent_fails(
        self, m: int, trials: int, generator: torch.Generator
    ) -> Bool[Tensor, " trials"]:
        """Whether any rectangle of the grid without a training error has one above eps."""
        true, training = self.errors(m, trials, 0.0, generator)
        return ((training == 0) & (true > self.eps)[:, None]).any(dim=0)

    def agnostic_fails(
        self, m: int, trials: int, generator: torch.Generator
    ) -> Bool[Tensor, " trials"]:
        """Whether the two errors of any rectangle of the grid are more than eps apart."""
        true, training = self.errors(m, trials, self.noise, generator)
        return ((training - true[:, None]).abs() > self.eps).any(dim=0)

    def errors(
        self, m: int, trials: int, noise: float, generator: torch.Generator
    ) -> tuple[Float[Tensor, " hypotheses"], Float[Tensor, "hypotheses trials"]]:
        """The true and the training error of every rectangle of the grid, of points by cells."""
        every = grid_rectangles(self.grid)
        truth = every[len(every) // 2]
        cell = torch.randint(self.grid**2, (trials, m), generator=generator)
        wrong = torch.rand(trials, m, generator=generator) < noise
        positive = (truth[cell] == 1) ^ wrong
        signs = 1 - 2 * positive.double()  # what being inside adds to the mistakes
        change = torch.zeros(trials, self.grid**2, dtype=torch.float64).scatter_add_(1, cell, signs)
        training = (every @ change.T + positive.sum(dim=1)) / m  # (1)
        true = noise + (1 - 2 * noise) * (every != truth).double().mean(dim=1)
        return true, training

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        found: dict[str, float] = {}
        excess = []
        for law, (samples, bound) in self.laws().items():
            found[f"{law}_failures"] = float(result[law][-1])
            found[f"{law}_samples"] = float(samples)
            most = bound(torch.tensor(self.sizes(law), dtype=torch.float64)).clamp(max=1)
            error = (most * (1 - most) / self.trials).sqrt().clamp(min=1 / self.trials)
            excess.append(float(((result[law] - most) / error).max()))
        return {**found, "excess": max(excess)}

    def picture_failures(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, object]]:
        """How often learners fail in {trials:,} trials, by samples, and their bounds (dashed).

        At its sample size (grey) a bound is at delta = {delta:g} (dotted) at most. Learners are far
        below, because a bound holds for every distribution and every truth.
        """
        titles = ("smallest rectangle", "no training error", "training error off by eps")
        drawn = []
        for title, (law, (samples, bound)) in zip(titles, self.laws().items(), strict=True):
            sizes = torch.tensor(self.sizes(law), dtype=torch.float64)
            across = torch.linspace(sizes[0].item(), sizes[-1].item(), 200, dtype=torch.float64)
            most = bound(across)
            seen = result[law] > 0  # the others have no place on a logarithmic axis
            drawn.append(
                Panel(
                    {"measured": (sizes[seen], result[law][seen])}, "samples m",
                    "probability of failing", title, log="y", ylim=(0.3 / self.trials, 2.0),
                    guides={"bound": (across[most < 2], most[most < 2])},
                    levels={"delta": self.delta}, marks={"m of the bound": float(samples)},
                )
            )  # fmt: skip
        return panels(*drawn), {"trials": self.trials, "delta": self.delta}

    def picture_rectangle(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, object]]:
        """The smallest rectangle around the positive ones of {m} points, within the true one.

        All that it can miss lies between the two: here {error:.1%} of the square.
        """
        x = result["example"]
        y = inside(x, TRUTH)
        learned = tightest_rectangle(x, y)
        points = {"positive": (x[y, 0], x[y, 1]), "negative": (x[~y, 0], x[~y, 1])}
        outlines = {"true rectangle": outline(TRUTH), "smallest": outline(learned)}
        panel = Panel(points, "$x_1$", "$x_2$", guides=outlines, scatter=True, legend="below")
        values: dict[str, object] = {"m": len(x), "error": float(area(TRUTH) - area(learned))}
        return panels(panel, width=4.2, height=3.9), values

    def tiny(self) -> Self:
        return replace(super().tiny(), trials=20, grid=3, eps=0.3)


def outline(rectangle: Float[Tensor, "2 2"]) -> tuple[Tensor, Tensor]:
    """The corners of a rectangle in the order in which they are drawn."""
    (left, low), (right, high) = rectangle
    return torch.stack([left, right, right, left, left]), torch.stack([low, low, high, high, low])


RECIPES = {
    "pac": PAC(
        goal="rectangle_failures <= 0.05 and consistent_failures <= 0.05 and "
        "agnostic_failures <= 0.05 and excess <= 4",
        covers=("Y3",),
    ),
}
