"""What rounding does to a sum of exponentials, and to the solution of linear equations.

    log sum_i e^{x_i} = m + log sum_i e^{x_i - m},  m = max_i x_i    (1)  log-sum-exp
    softmax(x)_i      = e^{x_i - log sum_j e^{x_j}}                  (2)  from it
    cond(A)           = sigma_max / sigma_min                        (3)  condition number
    |dx| / |x|       <= cond(A) |db| / |b|,  A (x + dx) = b + db     (4)  error of a solution
    H_ij              = 1 / (i + j - 1),  i, j = 1..n                (5)  Hilbert matrix
    spread(A)         = max_i |lambda_i| / min_i |lambda_i|          (6)  = cond(A) if A is normal
    P(d(x, L) <= w)   = 2 w |L| -> 0 as w -> 0                       (7)  a line L is a null set

A number of 64 bits overflows above e^709.8, and below e^-708.4 its digits and then all of it are
lost; with the largest exponent taken out, the largest term is 1. Numbers are stored with a relative
error of eps / 2, which is a db that nobody can avoid: (4) says that a solution loses log10 cond(A)
of its 16 digits. A is normal if A A^T = A^T A; the shear [[1, k], [0, 1]] is not, and has both
eigenvalues 1 whatever its condition. What holds off a null set holds almost everywhere: a ReLU is
differentiable almost everywhere, and points drawn from a density lie on its kink with probability
0. d is the distance, and |L| the length of the line within the unit square.

Turing (1948), "Rounding-off errors in matrix processes", doi:10.1093/qjmam/1.1.287; Goodfellow et
al. (2016), "Deep Learning", sections 3.12, 4.1 and 4.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float, Float64
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation

EPS = torch.finfo(torch.float64).eps


def log_sum_exp(x: Float[Tensor, "*rows n"]) -> Float[Tensor, "*rows"]:
    """The logarithm of a sum of exponentials along the last axis, of numbers of any size."""
    m = x.amax(dim=-1, keepdim=True)
    m = torch.where(m.isfinite(), m, 0.0)  # of -inf alone the result is -inf, not NaN
    return m[..., 0] + (x - m).exp().sum(dim=-1).log()  # (1)


def naive_log_sum_exp(x: Float[Tensor, "*rows n"]) -> Float[Tensor, "*rows"]:
    """The same as it is written first, which overflows."""
    return x.exp().sum(dim=-1).log()


def softmax(x: Float[Tensor, "*rows n"]) -> Float[Tensor, "*rows n"]:
    """Positive numbers that sum to 1, from any numbers."""
    return (x - log_sum_exp(x)[..., None]).exp()  # (2)


def condition_number(a: Float[Tensor, "rows columns"]) -> Float[Tensor, ""]:
    """How much longer the longest image of a unit vector is than the shortest."""
    sigma: Tensor = torch.linalg.svdvals(a)
    return sigma.max() / sigma.min()  # (3)


def eigenvalue_spread(a: Float[Tensor, "n n"]) -> Float[Tensor, ""]:
    """The largest over the smallest absolute eigenvalue: the condition of a normal matrix only."""
    sizes: Tensor = torch.linalg.eigvals(a).abs()
    return sizes.max() / sizes.min()  # (6)


def hilbert(n: int) -> Float64[Tensor, "n n"]:
    """A matrix whose rows are nearly the same direction."""
    i = torch.arange(1, n + 1, dtype=torch.float64)
    return 1 / (i[:, None] + i - 1)  # (5)


def error_bound(
    a: Float[Tensor, "n n"], b: Float[Tensor, " n"], db: Float[Tensor, " n"]
) -> Float[Tensor, ""]:
    """The largest relative change of the solution that a change db of the right side can make."""
    change: Tensor = db.norm() / b.norm()
    return condition_number(a) * change  # (4)


def strip_share(points: Float64[Tensor, "points 2"], width: float) -> float:
    """The share of points of the plane that lie within `width` of the line x_1 = x_2."""
    distance = (points[:, 0] - points[:, 1]).abs() / math.sqrt(2)
    return (distance <= width).double().mean().item()


def strip_area(width: float) -> float:
    """The area of that strip in the unit square, to first order in its width."""
    return 2 * width * math.sqrt(2)  # (7)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class Conditioning(Simulation):
    """Solve with Hilbert matrices of known solutions, and watch the digits go."""

    meanings: ClassVar[Mapping[str, str]] = {
        "slope": "of the logarithm of the solve error against that of the condition; 1 predicted",
        "worst_share": "largest solve error as a part of n eps cond(A), the most predicted",
        "largest_condition": "condition of the largest Hilbert matrix",
        "lost_digits": "digits that are wrong in the worst solution with the largest matrix",
        "overflow": "last exponent of two equal ones whose sum was finite as it is written first",
        "log_sum_exp_error": "largest error of the shifted sum over the same exponents",
        "strip_slope": "of the log share of points near a line against log width; 1 predicted",
        "points_on_line": "random points that lie on the line itself",
    }

    largest: int = 10
    """Rows of the largest Hilbert matrix; the smallest has 2."""
    solutions: int = 50
    """Random solutions with each matrix."""
    points: int = 200_000
    """Points of the unit square that are counted near a line."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.within(4, 12, "largest")  # beyond 12 not a digit is left
        self.at_least(1, "solutions")
        self.at_least(1000, "points")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        matrices = [hilbert(n) for n in range(2, self.largest + 1)]
        square = torch.rand(self.points, 2, generator=generator, dtype=torch.float64)
        widths = torch.logspace(-3, -1, 9, dtype=torch.float64)
        exponents = torch.arange(-1000, 1001, 80, dtype=torch.float64)
        shears = torch.logspace(0, 3, 13, dtype=torch.float64)
        turned = [torch.tensor([[1.0, float(k)], [0.0, 1.0]]).double() for k in shears]
        return {
            "conditions": torch.stack([condition_number(h) for h in matrices]),
            "errors": torch.stack([solve_errors(h, self.solutions, generator) for h in matrices]),
            "exponents": exponents,
            "naive": naive_log_sum_exp(exponents[:, None].expand(-1, 2)),
            "shifted": log_sum_exp(exponents[:, None].expand(-1, 2)),
            "shears": shears,
            "shear_conditions": torch.stack([condition_number(a) for a in turned]),
            "shear_spreads": torch.stack([eigenvalue_spread(a) for a in turned]),
            "widths": widths,
            "shares": torch.tensor([strip_share(square, w) for w in widths.tolist()]).double(),
            "on_line": torch.tensor(strip_share(square, 0.0) * self.points),
        }

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        conditions, errors = result["conditions"], result["errors"]
        sizes = torch.arange(2, self.largest + 1)
        exponents, finite = result["exponents"], result["naive"].isfinite()
        return {
            "slope": slope(conditions, errors.square().mean(1).sqrt()),
            "worst_share": (errors.amax(1) / (sizes * EPS * conditions)).max().item(),
            "largest_condition": conditions[-1].item(),
            "lost_digits": math.log10(errors[-1].max().item() / EPS),
            "overflow": exponents[finite].max().item(),
            "log_sum_exp_error": (result["shifted"] - exponents - math.log(2)).abs().max().item(),
            "strip_slope": slope(result["widths"], result["shares"]),
            "points_on_line": result["on_line"].item(),
        }

    def picture_solving(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """Errors of solutions with Hilbert matrices of up to {largest} rows, by their condition.

        They follow eps times the condition (left), and {digits:.0f} of 16 digits are lost at the
        end. The eigenvalues of a shear are 1 and 1, and say nothing of its condition (right).
        """
        conditions, errors, shears = result["conditions"], result["errors"], result["shears"]
        made = panels(
            Panel(
                {
                    "largest error": (conditions, errors.amax(1)),
                    "mean error": (conditions, errors.mean(1)),
                },
                guides={"eps cond(H)": (conditions, EPS * conditions)},
                xlabel="condition number of H",
                ylabel="relative error of the solution",
                title="Hilbert matrices",
                log="xy",
                legend="upper left",
            ),
            Panel(
                {
                    "condition number": (shears, result["shear_conditions"]),
                    "ratio of eigenvalues": (shears, result["shear_spreads"]),
                },
                xlabel="shear k of [[1, k], [0, 1]]",
                ylabel="ratio",
                title="a matrix that is not normal",
                log="xy",
                legend="upper left",
            ),
        )
        digits = self.metrics(result)["lost_digits"]
        return made, {"largest": self.largest, "digits": digits}

    def picture_exponents(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """The logarithm of e^a + e^a, less a, which is log 2 for every a (left).

        As it is written first it is infinite beyond {overflow:.0f}. The share of points near a
        line (right) falls to 0 with the width.
        """
        a, naive, widths = result["exponents"], result["naive"], result["widths"]
        finite = naive.isfinite()
        areas = torch.tensor([strip_area(w) for w in widths.tolist()])
        numbers = torch.finfo(torch.float64)
        made = panels(
            Panel(
                {
                    "largest taken out": (a, result["shifted"] - a),
                    "as it is written first": (a[finite], naive[finite] - a[finite]),
                },
                xlabel="exponent a",
                ylabel=r"$\log(e^a + e^a) - a$",
                title="log-sum-exp of two numbers",
                marks={
                    "smallest and largest number": math.log(numbers.tiny),
                    " ": math.log(numbers.max),
                },
                ylim=(0.0, 1.0),
                legend="lower left",
            ),
            Panel(
                {"counted": (widths, result["shares"])},
                guides={"2 w |L|": (widths, areas)},
                xlabel="distance w",
                ylabel="share of points",
                title="points within w of a line",
                log="xy",
                legend="upper left",
            ),
        )
        return made, {"overflow": math.log(numbers.max)}

    def tiny(self) -> Self:
        return replace(super().tiny(), solutions=5, points=5000)


def solve_errors(
    a: Float64[Tensor, "n n"], count: int, generator: torch.Generator
) -> Float64[Tensor, " count"]:
    """Relative errors of so many solutions, where the right sides were made from known ones."""
    x = torch.randn(len(a), count, generator=generator, dtype=torch.float64)
    found = torch.linalg.solve(a, a @ x)
    errors: Tensor = (found - x).norm(dim=0) / x.norm(dim=0)
    return errors


def slope(x: Float64[Tensor, " points"], y: Float64[Tensor, " points"]) -> float:
    """The slope of the straight line nearest to the points on logarithmic scales."""
    across, up = x.log() - x.log().mean(), y.log() - y.log().mean()
    return (across @ up / (across @ across)).item()


RECIPES = {
    "conditioning": Conditioning(
        goal="slope >= 0.9 and slope <= 1.1 and worst_share <= 1 and log_sum_exp_error <= 1e-12 "
        "and points_on_line == 0",
        covers=("M8",),
    ),
}
