"""Consistency: whether more samples bring an estimate to the truth, and in which sense.

    P(|t_m - theta| > r) -> 0                              (1)  weakly consistent
    P(|t_k - theta| > r for some k >= m) -> 0              (2)  strongly consistent
    P(|x_bar_m - mu| > r) <= sigma^2 / (m r^2)             (3)  Chebyshev
    P(|x_bar_k - mu| > r for some k in m..n)
        <= sigma^2 / r^2 (1 / m + sum_{k=m+1..n} 1 / k^2)  (4)  Hajek and Renyi
    P(|x_bar_m| > r) = 1 - 2 arctan(r) / pi, any m         (5)  mean of Cauchy samples
    P(|median_m| > r) ~ 2 Phi(-2 r sqrt(m) / pi)           (6)  their median

t_m is an estimate of theta from the first m samples of a path, r the radius of a band around the
truth, mu and sigma^2 are mean and variance of the samples. (1) says that few paths are outside of
the band at time m, (2) that few will ever be again; (2) implies (1). The mean of samples with a
variance is both. Cauchy samples have neither mean nor variance: the average of m of them has the
same density as one, so that it is not consistent, while their median is.

Chebyshev (1867), "Des valeurs moyennes", Journal de Mathematiques 12; Hajek, Renyi (1955),
"Generalization of an inequality of Kolmogorov", doi:10.1007/BF02024392.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Bool, Float64, Int64
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.panels import Curve, Panel, panels
from everynet.recipes.recipe import Simulation

Sizes = Int64[Tensor, " sizes"]
Outside = Bool[Tensor, "paths times"]
"""Whether an estimate is outside of the band, from the first sample on."""


def running_means(x: Float64[Tensor, "paths times"]) -> Float64[Tensor, "paths times"]:
    """The mean of the first 1, 2, .. samples of each path."""
    return x.cumsum(dim=1) / torch.arange(1, x.shape[1] + 1)


def medians(x: Float64[Tensor, "paths times"], sizes: Sizes) -> Float64[Tensor, "paths sizes"]:
    """The middle one of the first samples of each path, for some odd numbers of them."""
    return torch.stack([x[:, :m].median(dim=1).values for m in sizes.tolist()], dim=1)


def share_outside(outside: Outside, sizes: Sizes) -> Float64[Tensor, " sizes"]:
    """The share of paths that are outside at these times."""
    return outside[:, sizes - 1].double().mean(dim=0)  # (1)


def share_never_settled(outside: Outside, sizes: Sizes) -> Float64[Tensor, " sizes"]:
    """The share of paths that are outside then or at any time after."""
    later = outside.flip(1).cummax(dim=1).values.flip(1)
    return later[:, sizes - 1].double().mean(dim=0)  # (2)


def chebyshev_bound(
    sizes: Sizes, radius: float, variance: float = 1.0
) -> Float64[Tensor, " sizes"]:
    """No more paths than this are outside at time m."""
    return variance / (sizes.double() * radius**2)  # (3)


def hajek_renyi_bound(
    sizes: Sizes, times: int, radius: float, variance: float = 1.0
) -> Float64[Tensor, " sizes"]:
    """No more paths than this are outside at any time from m on."""
    squares = torch.arange(1, times + 1, dtype=torch.float64) ** -2
    after = squares.sum() - squares.cumsum(0)[sizes - 1]
    return variance / radius**2 * (1 / sizes.double() + after)  # (4)


def cauchy_mean_outside(radius: float) -> float:
    """The probability that the mean of any number of Cauchy samples is outside."""
    return 1 - 2 * math.atan(radius) / math.pi  # (5)


def cauchy_median_outside(sizes: Sizes, radius: float) -> Float64[Tensor, " sizes"]:
    """The same of their median, which is nearly normal for large m."""
    tail: Tensor = torch.special.ndtr(-2 * radius * sizes.double().sqrt() / math.pi)
    return 2 * tail  # (6)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class Consistency(Simulation):
    """Follow estimates along many paths of samples, exponential ones and Cauchy ones."""

    meanings: ClassVar[Mapping[str, str]] = {
        "share_of_chebyshev": "largest share of paths outside over Chebyshev's bound",
        "share_of_hajek_renyi": "the same of those that are ever outside again, over their bound",
        "rises": "how often the share outside rose from one size to the next, mean or median",
        "mean_outside": "share of paths whose mean of exponential samples is outside at the end",
        "cauchy_mean_outside": "share of paths whose mean of Cauchy samples is outside at the end",
        "cauchy_sigmas": "largest distance of that share, at any size, from its formula",
        "cauchy_median_outside": "share of paths whose median of Cauchy samples is outside then",
        "median_error": "largest distance of that share from the normal approximation, m above 30",
    }

    paths: int = 2000
    """Independent sequences of samples."""
    doublings: int = 11
    """The longest paths have 2 to this power, plus 1, samples."""
    radius: float = 0.2
    """Of the band around the truth."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(10, "paths")
        self.within(6, 14, "doublings")
        self.above(0, "radius")

    def sizes(self) -> Sizes:
        """1, 3, 5, 9, 17, ..: odd, so that a median is one of the samples."""
        powers = 2 ** torch.arange(1, self.doublings + 1) + 1
        return torch.cat([torch.ones(1, dtype=torch.int64), powers])

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        sizes = self.sizes()
        shape = (self.paths, int(sizes[-1]))
        made = torch.empty(shape, dtype=torch.float64)
        means = running_means(made.exponential_(generator=generator))
        outside = (means - 1).abs() > self.radius
        cauchy = torch.empty(shape, dtype=torch.float64).cauchy_(generator=generator)
        cauchy_means = running_means(cauchy)
        middle = medians(cauchy, sizes).abs() > self.radius
        return {
            "mean_paths": means[:8].clone(),
            "cauchy_paths": cauchy_means[:8].clone(),
            "weak": share_outside(outside, sizes),
            "strong": share_never_settled(outside, sizes),
            "cauchy_mean": share_outside(cauchy_means.abs() > self.radius, sizes),
            "cauchy_median": middle.double().mean(dim=0),
        }

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        sizes, times = self.sizes(), int(self.sizes()[-1])
        weak, strong, median = result["weak"], result["strong"], result["cauchy_median"]
        flat = cauchy_mean_outside(self.radius)
        error = math.sqrt(flat * (1 - flat) / self.paths)
        normal = (median - cauchy_median_outside(sizes, self.radius))[sizes > 30]
        falling = torch.stack([weak[2:], median[2:]])  # one or three skewed samples may do better
        bound = hajek_renyi_bound(sizes, times, self.radius)
        return {
            "share_of_chebyshev": (weak / chebyshev_bound(sizes, self.radius)).max().item(),
            "share_of_hajek_renyi": (strong / bound).max().item(),
            "rises": float((falling.diff(dim=1) > 0).sum()),
            "mean_outside": weak[-1].item(),
            "cauchy_mean_outside": result["cauchy_mean"][-1].item(),
            "cauchy_sigmas": ((result["cauchy_mean"] - flat).abs() / error).max().item(),
            "cauchy_median_outside": median[-1].item(),
            "median_error": normal.abs().max().item(),
        }

    def picture_paths(self, result: Mapping[str, Tensor]) -> Figure:
        """The mean of the samples so far on eight paths, with the band around the truth dotted.

        Means of exponential samples enter the band and stay. Those of Cauchy samples leave it again
        and again, however many samples there are.
        """
        shown = []
        for title, name, truth in (
            ("exponential samples", "mean_paths", 1.0),
            ("Cauchy samples", "cauchy_paths", 0.0),
        ):
            number = torch.arange(1, result[name].shape[1] + 1)
            panel = Panel(
                {f"path {i}": (number, path) for i, path in enumerate(result[name])},
                xlabel="samples",
                ylabel="mean of the samples",
                title=title,
                log="x",
                levels={"band": truth + self.radius, "": truth - self.radius},
                ylim=(truth - 2.5, truth + 2.5),
                legend="none",
            )
            shown.append(panel)
        made = panels(*shown)
        for line in (line for axes in made.axes for line in axes.lines):
            line.set(linewidth=0.9)
        return made

    def picture_probabilities(
        self, result: Mapping[str, Tensor]
    ) -> tuple[Figure, dict[str, float]]:
        """The share of paths outside of the band by the number of samples, with bounds dashed.

        Both shares of means fall below their bounds. For Cauchy samples that of the mean stays at
        {flat:.0%}, and that of the median falls as its normal approximation does.
        """
        sizes = self.sizes()
        flat = torch.full_like(result["weak"], cauchy_mean_outside(self.radius))
        bounds = {
            "outside at m": chebyshev_bound(sizes, self.radius),
            "outside at m or later": hajek_renyi_bound(sizes, int(sizes[-1]), self.radius),
        }
        normal = cauchy_median_outside(sizes, self.radius)
        made = panels(
            Panel(
                {
                    "outside at m": positive(sizes, result["weak"]),
                    "outside at m or later": positive(sizes, result["strong"]),
                },
                guides={name: (sizes, bound) for name, bound in bounds.items()},
                dashes="bound",
                xlabel="samples m",
                ylabel="share of paths",
                title="mean of exponential samples",
                log="xy",
                ylim=(0.5 / self.paths, 3.0),
                legend="lower left",
            ),
            Panel(
                {
                    "mean": positive(sizes, result["cauchy_mean"]),
                    "median": positive(sizes, result["cauchy_median"]),
                },
                guides={"mean": (sizes, flat), "median": (sizes, normal)},
                xlabel="samples m",
                ylabel="share of paths outside",
                title="Cauchy samples",
                log="xy",
                ylim=(0.5 / self.paths, 3.0),
                legend="lower left",
            ),
        )
        return made, {"flat": float(flat[0])}

    def tiny(self) -> Self:
        return replace(super().tiny(), paths=50, doublings=6)


def positive(sizes: Sizes, shares: Float64[Tensor, " sizes"]) -> Curve:
    """The points that a logarithmic scale has a place for."""
    return sizes[shares > 0], shares[shares > 0]


RECIPES = {
    "consistency": Consistency(
        goal="share_of_chebyshev <= 1 and share_of_hajek_renyi <= 1 and rises == 0 "
        "and mean_outside == 0 and cauchy_median_outside == 0 and cauchy_mean_outside >= 0.8 "
        "and cauchy_sigmas <= 4",
        covers=("M15",),
    ),
}
