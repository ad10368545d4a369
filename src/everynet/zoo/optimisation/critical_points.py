"""Critical points and the signs of curvature: why most of them are saddles.

    f(x + d) = f + g^T d + d^T H d / 2 + O(|d|^3)                    (1)  Taylor
    k_star   = g^T g / (g^T H g)                                     (2)  best step down a parabola
    index    = how many eigenvalues of H are negative                (3)  0 minimum, N maximum
    x'       = x - H^{-1} g                                          (4)  Newton: to where g = 0
    minima - saddles + maxima = 0                                    (5)  on a torus, for any f
    H        = (G + G^T) / 2,  G_ij normal                           (6)  the Gaussian ensemble
    P_N      = sqrt(det A(0, inf) / det A(-inf, inf))                (7)  all N eigenvalues > 0
    A_jk     = int int sgn(y - x) x^j y^k e^{-(x^2 + y^2) / 2}       (8)  j, k = 0 .. N - 1
    P_N      = 2^-N                                                  (9)  were the signs independent

g is the gradient and H the Hessian of f at x, d a step, N the number of dimensions. (9) is the
usual argument that minima are rare in many dimensions. It is a heuristic: eigenvalues of a random
matrix repel each other, so that P_N falls much faster, as 3^{-N^2/4}. P_2 is (2 - sqrt 2) / 4 and
P_3 is 1/4 - 1 / (pi sqrt 2). For odd N the matrix of (8) gets one more row and column of the
moments of x. Nor are the Hessians at the critical points of a smooth function drawn from (6): in
the plane (5) makes half of them saddles and, as f and -f are alike, a quarter minima.

Dean, Majumdar (2006), "Large deviations of extreme eigenvalues of random matrices",
arXiv:cond-mat/0609651; (7): de Bruijn (1955), "On some multiple integrals involving determinants";
Dauphin et al. (2014), "Identifying and attacking the saddle point problem", arXiv:1406.2572.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Bool, Float, Int
from matplotlib.figure import Figure
from numpy.polynomial.legendre import leggauss
from torch import Tensor

from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.zoo.optimisation.gradient_descent import (
    critical_point,
    labels,
    line_search,
    optimal_step,
    quadratic,
)

KINDS = ("minimum", "saddle", "maximum")
TURN = 2 * math.pi


def random_hessians(count: int, size: int, generator: torch.Generator) -> Float[Tensor, "n d d"]:
    """Symmetric matrices whose distribution does not know one direction from another."""
    g = torch.randn(count, size, size, generator=generator, dtype=torch.float64)
    return (g + g.mT) / 2  # (6)


def positive_definite(hessians: Float[Tensor, "n d d"]) -> Bool[Tensor, " n"]:
    """Which matrices have positive eigenvalues only: those that Cholesky can factor."""
    failed: Tensor = torch.linalg.cholesky_ex(hessians).info
    return failed == 0


def all_positive(size: int) -> float:
    """The share of the ensemble (6) whose eigenvalues are all positive."""
    above, whole = (torch.linalg.det(sign_moments(size, half)) for half in (True, False))
    return float((above / whole).sqrt())  # (7)


def sign_moments(size: int, half: bool) -> Float[Tensor, "rows rows"]:
    """A of (8) over the half line or the whole, in polar coordinates; of even size."""
    quarter = math.pi / 4
    edges = (0.0, quarter, 2 * quarter) if half else (-3 * quarter, quarter, 5 * quarter)
    nodes, weights = (torch.from_numpy(part) for part in leggauss(48))
    power = torch.arange(size, dtype=torch.float64)
    angular = torch.zeros(size, size, dtype=torch.float64)
    for sign, start, end in ((-1, edges[0], edges[1]), (1, edges[1], edges[2])):
        angle = (end - start) / 2 * nodes + (end + start) / 2
        across, up = angle.cos() ** power[:, None], angle.sin() ** power[:, None]
        angular += sign * (end - start) / 2 * (across * weights) @ up.T
    total = (power[:, None] + power) / 2
    moments = 2**total * (total + 1).lgamma().exp() * angular  # (8)
    if size % 2 == 0:
        return moments
    single = 2 ** ((power - 1) / 2) * ((power + 1) / 2).lgamma().exp()
    single = single if half else single * (1 + (-1) ** power)
    bordered = torch.zeros(size + 1, size + 1, dtype=torch.float64)
    bordered[:size, :size], bordered[:size, size], bordered[size, :size] = moments, single, -single
    return bordered


@dataclass(frozen=True)
class Waves:
    """A smooth function on a torus: sum_w amplitude_w cos(wave_w . x + phase_w)."""

    wave: Float[Tensor, "waves 2"]
    amplitude: Float[Tensor, " waves"]
    phase: Float[Tensor, " waves"]

    @staticmethod
    def draw(largest: int, generator: torch.Generator) -> Waves:
        """Every whole wave vector up to a length, each with a random height and phase."""
        whole = torch.arange(-largest, largest + 1, dtype=torch.float64)
        wave = torch.cartesian_prod(whole, whole)
        half = (wave[:, 0] > 0) | ((wave[:, 0] == 0) & (wave[:, 1] > 0))  # w and -w are one wave
        wave = wave[half & (wave.norm(dim=1) <= largest)]
        amplitude = torch.randn(len(wave), generator=generator, dtype=torch.float64)
        phase = torch.rand(len(wave), generator=generator, dtype=torch.float64) * TURN
        return Waves(wave, amplitude, phase)

    def height(self, x: Float[Tensor, "*n 2"]) -> Float[Tensor, "*n"]:
        return (x @ self.wave.T + self.phase).cos() @ self.amplitude

    def gradient(self, x: Float[Tensor, "*n 2"]) -> Float[Tensor, "*n 2"]:
        return -((x @ self.wave.T + self.phase).sin() * self.amplitude) @ self.wave

    def hessian(self, x: Float[Tensor, "*n 2"]) -> Float[Tensor, "*n 2 2"]:
        curvature = -(x @ self.wave.T + self.phase).cos() * self.amplitude
        return torch.einsum("...w,wi,wj->...ij", curvature, self.wave, self.wave)


def find_critical(f: Waves, points: int = 36, steps: int = 40) -> Float[Tensor, "found 2"]:
    """Every point where the gradient is zero: Newton from each point of a grid, each kept once."""
    grid = torch.arange(points, dtype=torch.float64) * TURN / points
    x = torch.cartesian_prod(grid, grid)
    for _ in range(steps):
        move = torch.linalg.solve_ex(f.hessian(x), f.gradient(x)[..., None]).result[..., 0]
        move = move * (0.5 / move.norm(dim=1, keepdim=True)).clamp(max=1)  # no leaps
        x = x - move  # (4)
    x = x[f.gradient(x).norm(dim=1) < 1e-9] % TURN
    apart = (x[:, None] - x).abs()
    met = torch.minimum(apart, TURN - apart).norm(dim=-1) < 1e-5
    return x[met.int().argmax(dim=1) == torch.arange(len(x))]  # the first of those that met


def index(hessians: Float[Tensor, "n d d"]) -> Int[Tensor, " n"]:
    """How many eigenvalues are negative."""
    downward: Tensor = torch.linalg.eigvalsh(hessians) < 0
    return downward.sum(dim=-1)  # (3)


def taylor(f: Waves, x: Float[Tensor, " 2"], d: Float[Tensor, "*n 2"]) -> Float[Tensor, "*n"]:
    """The parabola that fits f at x, at x + d."""
    return f.height(x) + d @ f.gradient(x) + ((d @ f.hessian(x)) * d).sum(-1) / 2  # (1)


@dataclass(frozen=True, kw_only=True)
class CriticalPoints(Simulation):
    """Count positive random matrices, and find all critical points of random smooth functions."""

    meanings: ClassVar[Mapping[str, str]] = {
        "sigmas": (
            "how far the share of all-positive matrices is from the formula, in standard deviations"
        ),
        "largest_ratio": "the largest ratio of this share from one size of matrix to the next",
        "morse_sum": "minima less saddles plus maxima: 0 on a torus",
        "saddle_share": "the share of critical points that are saddles",
        "step_error": "how far the best step is from the one that a search finds",
        "taylor_order": (
            "the power of the step with which the remainder of Taylor's formula falls: 3"
        ),
        "wrong_labels": "critical points whose kind was found wrongly",
    }

    matrices: int = 1_000_000
    """Random matrices of each size."""
    sizes: tuple[int, ...] = (2, 3, 4, 5)
    """Dimensions N, rising one by one."""
    fields: int = 12
    """Random functions whose critical points are found; the first is drawn."""
    waves: int = 3
    """Longest wave vector of such a function."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "matrices", "fields")
        rising = all(b == a + 1 for a, b in zip(self.sizes, self.sizes[1:], strict=False))
        valid = len(self.sizes) >= 2 and rising and self.sizes[0] >= 1 and self.sizes[-1] <= 8
        self.require(valid, "sizes", "two or more whole numbers in a row between 1 and 8")
        self.within(1, 6, "waves")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        positive = torch.zeros(len(self.sizes), dtype=torch.float64)
        for place, size in enumerate(self.sizes):
            for start in range(0, self.matrices, 100_000):
                some = min(100_000, self.matrices - start)
                hessians = random_hessians(some, size, generator)
                positive[place] += positive_definite(hessians).sum()
        drawn = [Waves.draw(self.waves, generator) for _ in range(self.fields)]
        points = [find_critical(f) for f in drawn]
        kinds = [index(f.hessian(x)) for f, x in zip(drawn, points, strict=True)]
        return {
            "positive": positive / self.matrices,
            "wave": drawn[0].wave,
            "amplitude": drawn[0].amplitude,
            "phase": drawn[0].phase,
            "points": points[0],
            "kinds": kinds[0],
            "counts": torch.stack([torch.bincount(kind, minlength=3) for kind in kinds]),
            "heights": torch.cat([f.height(x) for f, x in zip(drawn, points, strict=True)]),
            "all_kinds": torch.cat(kinds),
            **steps_down(drawn[0], points[0][kinds[0] == 0], generator),
        }

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        truth = torch.tensor([all_positive(size) for size in self.sizes], dtype=torch.float64)
        spread = (truth * (1 - truth) / self.matrices).sqrt()
        counts, shares = result["counts"].double(), result["positive"]
        minima, saddles, maxima = counts.unbind(dim=1)
        return {
            "sigmas": float(((shares - truth) / spread).abs().max()),
            "largest_ratio": float((shares[1:] / shares[:-1]).nan_to_num(1.0).max()),
            "morse_sum": float((minima - saddles + maxima).abs().sum()),  # (5)
            "saddle_share": float(saddles.sum() / counts.sum()),
            "step_error": float((result["best"] / result["searched"] - 1).abs().max()),
            "taylor_order": float((result["remainders"][0] / result["remainders"][1]).log2()),
            "wrong_labels": float(
                sum(true != found for true, found in labels().values()) + self.wrong_kinds(result)
            ),
        }

    def wrong_kinds(self, result: Mapping[str, Tensor]) -> int:
        """Critical points whose label and index disagree."""
        hessians = self.first(result).hessian(result["points"])
        kinds = [KINDS[kind] for kind in result["kinds"]]
        return sum(kind != critical_point(h) for kind, h in zip(kinds, hessians, strict=True))

    def first(self, result: Mapping[str, Tensor]) -> Waves:
        """The function that is drawn."""
        return Waves(result["wave"], result["amplitude"], result["phase"])

    def picture_landscape(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """A random function with its critical points, their heights, and one step downhill.

        The median height is {minimum:.2g} of minima, {saddle:.2g} of saddles, {maximum:.2g} of
        maxima. Right, the parabola (dashed) has the slope and curvature of f at the start.
        """
        f = self.first(result)
        drawn = (self.map(f, result), self.by_height(result), self.step_down(f, result))
        heights, kinds = result["heights"], result["all_kinds"]
        middle = {name: float(heights[kinds == kind].median()) for kind, name in enumerate(KINDS)}
        return panels(*drawn, height=3.0), middle

    def picture_curvature_signs(
        self, result: Mapping[str, Tensor]
    ) -> tuple[Figure, dict[str, float]]:
        """The share of random symmetric matrices whose N eigenvalues are all positive.

        At N = {size} it is {measured:.2g}; the exact law says {exact:.2g}, independent signs would
        give {independent:.2g}.
        """
        n = torch.tensor(self.sizes, dtype=torch.float64)
        exact = torch.tensor([all_positive(size) for size in self.sizes], dtype=torch.float64)
        independent = 2.0**-n  # (9)
        shares = result["positive"]
        panel = Panel(
            {f"measured, {self.matrices:,} matrices each": (n, shares)},
            guides={"exact": (n, exact), "independent signs": (n, independent)},
            xlabel="dimensions N",
            ylabel="share with N positive eigenvalues",
            log="y",
            scatter=True,
        )
        last = {"measured": shares, "exact": exact, "independent": independent}
        values = {name: float(share[-1]) for name, share in last.items()}
        return panels(panel, width=6.0), {"size": self.sizes[-1], **values}

    def map(self, f: Waves, result: Mapping[str, Tensor]) -> Panel:
        """The first function with its critical points."""
        axis = torch.linspace(0, TURN, 120, dtype=torch.float64)
        up, across = torch.meshgrid(axis, axis, indexing="ij")
        x, y = result["points"].unbind(1)
        chosen = {name: result["kinds"] == kind for kind, name in enumerate(KINDS)}
        minima, saddles, maxima = (int(of.sum()) for of in chosen.values())
        return Panel(
            {name: (x[of], y[of]) for name, of in chosen.items()},
            heights=(axis, axis, f.height(torch.stack([across, up], dim=-1))),
            xlabel="$x_1$",
            ylabel="$x_2$",
            title=f"{minima} minima, {saddles} saddles, {maxima} maxima",
            scatter=True,
            legend="none",  # the colours are those of the next panel
        )

    def by_height(self, result: Mapping[str, Tensor]) -> Panel:
        """How many critical points of each kind lie at each height."""
        heights, kinds = result["heights"], result["all_kinds"]
        edges = torch.linspace(heights.min().item(), heights.max().item(), 16, dtype=torch.float64)
        middle = (edges[1:] + edges[:-1]) / 2
        return Panel(
            {
                name: (middle, torch.histogram(heights[kinds == kind], edges).hist)
                for kind, name in enumerate(KINDS)
            },
            xlabel="height f",
            ylabel="critical points",
            title=f"{len(kinds)} critical points of {self.fields} functions",
        )

    def step_down(self, f: Waves, result: Mapping[str, Tensor]) -> Panel:
        """A walk straight down from a point near a minimum, and the parabola there."""
        x, best = result["probes"][0], result["best"][0]
        k = torch.linspace(0, 2.2, 60, dtype=torch.float64) * best
        d = -k[:, None] * f.gradient(x)
        return Panel(
            {"f(x - k g)": (k, f.height(x + d))},
            guides={"parabola": (k, taylor(f, x, d))},
            marks={"best step": float(best)},
            xlabel="step size k",
            ylabel="height",
            title="down the gradient from a point near a minimum",
        )

    def tiny(self) -> Self:
        return replace(super().tiny(), matrices=2_000, fields=1, waves=2)


def steps_down(
    f: Waves, minima: Float[Tensor, "minima 2"], generator: torch.Generator
) -> dict[str, Tensor]:
    """From a point near each minimum: the best step of (2), a search, and the error of (1)."""
    d = torch.randn(len(minima), 2, generator=generator, dtype=torch.float64)
    probes = minima + 0.2 * d / d.norm(dim=1, keepdim=True)
    best, searched, kept = [], [], []
    for x, g, hessian in zip(probes, f.gradient(probes), f.hessian(probes), strict=True):
        if g @ hessian @ g > 0:
            best.append(optimal_step(g, hessian)[0])  # (2)
            searched.append(line_search(quadratic(hessian), torch.linalg.solve(hessian, g), g))
            kept.append(x)
    errors = [
        torch.stack([(f.height(x + h * d) - taylor(f, x, h * d)).abs().sum() for x in kept]).sum()
        for h in (0.01, 0.005)
    ]
    return {
        "probes": torch.stack(kept),
        "best": torch.stack(best),
        "searched": torch.stack(searched),
        "remainders": torch.stack(errors),
    }


RECIPES = {
    "critical-points": CriticalPoints(
        goal="sigmas <= 4 and largest_ratio < 0.5 and morse_sum == 0 and wrong_labels == 0",
        covers=("M11", "O31"),
    ),
}
