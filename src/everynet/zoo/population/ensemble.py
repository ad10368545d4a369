"""A population code: many neurons, each tuned to a direction, from whose rates x is read back.

    H_ij = G(gain_j (e_j . x_i) / r + bias_j)      (1)  encoding
    y    = H D                                     (2)  decoding
    W    = D (gain' e')^T / r'                     (3)  weights to others

Row i is a point x_i inside radius r, column j a neuron with unit encoder e_j and the rate G of its
current (`tuning.py`), D what reads x or any function of it (`decoders.py`). The error that noise on
the rates makes falls as the root of the number of neurons, the error without noise at least as the
number.

Eliasmith and Anderson (2003), "Neural Engineering", MIT Press, chapters 2 and 7.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Pictures, Simulation
from everynet.zoo.population.decoders import Optimal, Preconditioned, Regularised, regularised
from everynet.zoo.population.pictures.population import tuning_curves, tuning_planes
from everynet.zoo.population.tuning import TUNINGS, LIFRate, Tuning, gain_and_bias

ROWS = 64  # points that are encoded at once: what is computed on the way stays in the cache

Function: TypeAlias = Callable[
    [Float[Tensor, "points dimensions"]], Float[Tensor, "points outputs"]
]
"""What is decoded: a value for each point."""


# ------------------------------------------------------------------------------------ the ensemble


class Connection(NamedTuple):
    """From the rates of one population to the currents of another."""

    decoders: Float[Tensor, "neurons outputs"]
    encoders: Float[Tensor, "others outputs"]
    """With gain, over the radius."""
    bias: Float[Tensor, " others"]

    def currents(self, rates: Float[Tensor, "points neurons"]) -> Float[Tensor, "points others"]:
        """By way of the decoded value: in proportion to neurons + others."""
        return rates @ self.decoders @ self.encoders.T + self.bias

    def weights(self) -> Float[Tensor, "neurons others"]:
        """The same as one matrix, a synapse for each pair."""
        return self.decoders @ self.encoders.T  # (3)


class Ensemble:
    """A population that represents points of `dimensions` numbers inside `radius`.

    Rates at the peak (Hz) and intercepts (in units of the radius) are drawn evenly between two
    numbers, encoders evenly over all directions. Decoders are fitted on `points` points drawn from
    the ball; without it there are at least twice as many as neurons.
    """

    def __init__(
        self,
        neurons: int,
        dimensions: int,
        *,
        tuning: Tuning | None = None,
        max_rates: tuple[float, float] = (200.0, 400.0),
        intercepts: tuple[float, float] = (-1.0, 0.9),
        radius: float = 1.0,
        points: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        _require(neurons >= 1, f"neurons ({neurons})", "at least 1")
        _require(dimensions >= 1, f"dimensions ({dimensions})", "at least 1")
        _require(0 < radius < math.inf, f"radius ({radius})", "a positive number, in units of x")
        self.tuning = LIFRate() if tuning is None else tuning
        self.radius = radius
        self.encoders = _directions(neurons, dimensions, generator)
        drawn = [
            low + (high - low) * torch.rand(neurons, generator=generator, dtype=torch.float64)
            for low, high in (max_rates, intercepts)
        ]
        self.gain, self.bias = gain_and_bias(self.tuning, *drawn)
        count = max(min(max(500 * dimensions, 750), 2500), 2 * neurons)
        count = count if points is None else points
        _require(count >= 1, f"points ({count})", "at least 1")
        self.points = ball(count, dimensions, radius, generator)
        self._solvers: dict[float, Regularised | Preconditioned | Optimal] = {}

    def encode(self, x: Float[Tensor, "points dimensions"]) -> Float[Tensor, "points neurons"]:
        """The rate of each neuron (Hz) at each point."""
        if x.shape[1] != self.encoders.shape[1]:
            raise ValueError(
                f"x ({x.shape[1]} columns) must have {self.encoders.shape[1]}, one for each "
                "dimension of the ensemble"
            )
        _require(bool(x.isfinite().all()), "x (NaN or infinite somewhere)", "finite")
        along = (x.to(self.encoders) @ self.encoders.T / self.radius).split(ROWS)
        return torch.cat([self.tuning.rate(self.gain * part + self.bias) for part in along])  # (1)

    def decoders(
        self, function: Function | None = None, *, noise: float = 0.1
    ) -> Float[Tensor, "neurons outputs"]:
        """What reads function(x), or x itself, from rates with noise.

        Its standard deviation is `noise` times the highest rate; at 0 the decoders are the optimal
        ones without noise. The rates are factorised once for all functions.
        """
        _require(
            0 <= noise < math.inf, f"noise ({noise} of the highest rate)", "a number from 0 up"
        )
        targets = self.points if function is None else function(self.points)
        if targets.dim() != 2 or len(targets) != len(self.points):
            raise ValueError(
                f"function (gave {' x '.join(map(str, targets.shape))}) must give a row for "
                f"each of the {len(self.points)} points"
            )
        _require(bool(targets.isfinite().all()), "function (gave NaN or infinity)", "finite")
        if noise not in self._solvers:
            h = self.encode(self.points)
            self._solvers[noise] = regularised(h, noise * h.max().item()) if noise else Optimal(h)
        return self._solvers[noise].solve(targets.to(self.points))

    def decode(
        self, x: Float[Tensor, "points dimensions"], decoders: Float[Tensor, "neurons outputs"]
    ) -> Float[Tensor, "points outputs"]:
        """What the decoders read where the ensemble represents x."""
        return self.encode(x) @ decoders  # (2)

    def connect(
        self, other: Ensemble, function: Function | None = None, *, noise: float = 0.1
    ) -> Connection:
        """Let another ensemble represent function(x), or x itself."""
        decoders = self.decoders(function, noise=noise)
        if decoders.shape[1] != other.encoders.shape[1]:
            raise ValueError(
                f"function (gives {decoders.shape[1]} numbers) must give "
                f"{other.encoders.shape[1]}, the dimensions of the other ensemble"
            )
        return Connection(decoders, other.gain[:, None] * other.encoders / other.radius, other.bias)

    def to(self, device: torch.device | str) -> Self:
        """Itself, moved to a device."""
        for name in ("encoders", "gain", "bias", "points"):
            setattr(self, name, getattr(self, name).to(device))
        self._solvers.clear()
        return self


def ball(
    count: int, dimensions: int, radius: float = 1.0, generator: torch.Generator | None = None
) -> Float[Tensor, "count dimensions"]:
    """Points drawn evenly from the ball."""
    share = torch.rand(count, 1, generator=generator, dtype=torch.float64) ** (1 / dimensions)
    return radius * share * _directions(count, dimensions, generator)


def _directions(
    count: int, dimensions: int, generator: torch.Generator | None
) -> Float[Tensor, "count dimensions"]:
    """Unit vectors, evenly over all directions."""
    drawn = torch.randn(count, dimensions, generator=generator, dtype=torch.float64)
    unit: Tensor = drawn / drawn.norm(dim=1, keepdim=True)
    return unit


def _require(holds: bool, what: str, must: str) -> None:
    if not holds:
        raise ValueError(f"{what} must be {must}")


def relative_error(found: Tensor, truth: Tensor) -> float:
    """The rms of the error over that of the truth."""
    return ((found - truth).square().mean() / truth.square().mean()).sqrt().item()


def square(x: Float[Tensor, "points dimensions"]) -> Float[Tensor, "points dimensions"]:
    """Each coordinate times itself."""
    return x**2


def product(x: Float[Tensor, "points dimensions"]) -> Float[Tensor, "points 1"]:
    """All coordinates, multiplied."""
    return x.prod(dim=1, keepdim=True)


def quarter_turn(x: Float[Tensor, "points 2"]) -> Float[Tensor, "points 2"]:
    """The plane turned by 90 degrees."""
    return torch.stack([-x[:, 1], x[:, 0]], dim=1)


# ------------------------------------------------------------------------------------- the recipe


@dataclass(frozen=True, kw_only=True)
class PopulationCode(Simulation):
    """Read x, its square, a product and a turn from populations, and see the error fall."""

    captions: ClassVar[Mapping[str, str]] = {
        "tuning-curves": (
            "The firing rate of each neuron against the value x: some (blue) fire for large x and "
            "some (orange) for small, each from an intercept of its own."
        ),
        "decoded": (
            "A line and a square (left) and a product (middle) read from one population, on the "
            "dashed truth; right, how the error falls with more neurons, with and without noise."
        ),
        "tuning-planes": (
            "Four neurons over a plane of values, bright where they fire fast: each prefers the "
            "direction of its white arrow and is silent far on the other side."
        ),
    }
    meanings: ClassVar[Mapping[str, str]] = {
        "identity_error": "error of the value read back from the rates, as a part of its size",
        "square_error": "the same of its square",
        "product_error": "the same of the product of two values",
        "turn_error": "the same of a quarter turn of a point",
        "slope": "the power of the number of neurons with which the error falls, without noise",
        "noisy_slope": "the same with noise on the rates",
        "advantage": "by what factor decoders that expect noise are better under it, at least",
    }

    neurons: int = 1000
    """Neurons of the populations that functions are read from."""
    tuning: str = "lif"
    """lif, sigmoid or rectified-linear."""
    noise: float = 0.1
    """Noise that the decoders allow for, as a share of the highest rate."""
    sizes: tuple[int, ...] = (10, 20, 40, 80, 160)
    """Numbers of neurons by which the error is measured."""
    repeats: int = 8
    """Populations of each size over whose errors the mean is taken."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.neurons >= 10, "neurons", "at least 10")
        self.require(self.tuning in TUNINGS, "tuning", "one of " + ", ".join(TUNINGS))
        self.require(0 < self.noise < math.inf, "noise", "a positive share of the highest rate")
        fair = len(set(self.sizes)) >= 2 and min(self.sizes) >= 2
        self.require(fair, "sizes", "two different numbers at least, each from 2 up")
        self.require(self.repeats >= 1, "repeats", "at least 1")

    def ensemble(self, neurons: int, dimensions: int, generator: torch.Generator) -> Ensemble:
        tuning = TUNINGS[self.tuning]()
        count = max(4000, 2 * neurons)
        return Ensemble(neurons, dimensions, tuning=tuning, points=count, generator=generator)

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        line = self.ensemble(self.neurons, 1, generator)
        plane = self.ensemble(self.neurons, 2, generator)
        x = torch.linspace(-1, 1, 401, dtype=torch.float64)[:, None]
        points = ball(2000, 2, generator=generator)
        side = torch.linspace(-1, 1, 61, dtype=torch.float64)
        grid = torch.cartesian_prod(side, side).flip(1)  # rows x_2, columns x_1
        shown = [plane.encode(grid)[:, j].reshape(61, 61) for j in range(4)]
        return {
            "x": x[:, 0],
            "curves": line.encode(x)[:, :24],
            "upwards": line.encoders[:24, 0],
            "identity": line.decode(x, line.decoders(noise=self.noise))[:, 0],
            "square": line.decode(x, line.decoders(square, noise=self.noise))[:, 0],
            "points": points,
            "product": plane.decode(points, plane.decoders(product, noise=self.noise)),
            "turn": plane.decode(points, plane.decoders(quarter_turn, noise=self.noise)),
            "side": side,
            "planes": torch.stack(shown),
            "encoders": plane.encoders[:4],
            **self.errors(generator),
        }

    def errors(self, generator: torch.Generator) -> dict[str, Float[Tensor, " sizes"]]:
        """The rms error of a decoded x by size: without noise, and under it by both decoders.

        The mean over populations is that of logarithms, so that no single one decides it.
        """
        logs = torch.zeros(3, len(self.sizes), dtype=torch.float64)
        for column, size in enumerate(self.sizes):
            for _ in range(self.repeats):
                line = self.ensemble(size, 1, generator)
                x = ball(1000, 1, generator=generator)
                h = line.encode(x)
                sigma = self.noise * line.encode(line.points).max()
                noisy = h + sigma * torch.randn(h.shape, generator=generator, dtype=h.dtype)
                plain, steady = line.decoders(noise=0), line.decoders(noise=self.noise)
                found = torch.stack([h @ plain, noisy @ plain, noisy @ steady])
                logs[:, column] += (found - x).square().mean(dim=(1, 2)).sqrt().log()
        names = ("error", "noisy_plain", "noisy_steady")
        return dict(zip(names, (logs / self.repeats).exp(), strict=True))

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        x, points = result["x"], result["points"]
        return {
            "identity_error": relative_error(result["identity"], x),
            "square_error": relative_error(result["square"], x**2),
            "product_error": relative_error(result["product"], product(points)),
            "turn_error": relative_error(result["turn"], quarter_turn(points)),
            "slope": self.slope(result["error"]),
            "noisy_slope": self.slope(result["noisy_steady"]),
            "advantage": (result["noisy_plain"] / result["noisy_steady"]).min().item(),
        }

    def slope(self, errors: Float[Tensor, " sizes"]) -> float:
        """The power of the number of neurons that an error follows."""
        size = torch.tensor(self.sizes, dtype=torch.float64).log()
        size = size - size.mean()
        return (size @ errors.log() / size.square().sum()).item()

    def pictures(self, result: Mapping[str, Tensor]) -> Pictures:
        x, upwards = result["x"], result["upwards"]
        sizes = torch.tensor(self.sizes, dtype=torch.float64)
        true = product(result["points"])[:, 0]
        some = slice(0, 400)
        label = f"{self.neurons} neurons"
        law = {
            "without noise": (sizes, result["error"]),
            "noise, plain decoders": (sizes, result["noisy_plain"]),
            "noise, regularised": (sizes, result["noisy_steady"]),
        }
        guides = {
            "without noise": (sizes, result["error"][0] * sizes[0] / sizes),
            "noise, regularised": (sizes, result["noisy_steady"][0] * (sizes[0] / sizes).sqrt()),
        }
        return {
            "tuning-curves": tuning_curves(x, result["curves"], upwards=upwards),
            "tuning-planes": tuning_planes(result["side"], result["planes"], result["encoders"]),
            "decoded": panels(
                Panel(
                    {"x": (x, result["identity"]), "$x^2$": (x, result["square"])},
                    "represented value x",
                    "decoded value",
                    label,
                    dashes="truth",
                    guides={"x": (x, x), "$x^2$": (x, x**2)},
                ),
                Panel(
                    {"a point each": (true[some], result["product"][some, 0])},
                    "$x_1 x_2$",
                    "decoded $x_1 x_2$",
                    f"product, {label}",
                    guides={"truth": (torch.stack([true.min(), true.max()]),) * 2},
                    scatter=True,
                ),
                Panel(
                    law,
                    "neurons N",
                    "rms error of decoded x",
                    "error by size",
                    dashes=r"$1/N$ and $1/\sqrt{N}$",
                    guides=guides,
                    log="xy",
                ),
            ),
        }

    def tiny(self) -> Self:
        return replace(self, neurons=60, sizes=(10, 30), repeats=1)


# Seeds 0, 1, 2: square 0.0120 0.0112 0.0121, product 0.0237 0.0258 0.0270, turn 0.0049 0.0049
# 0.0052, slope -1.28 -1.29 -1.27.
RECIPES = {
    "ensemble": PopulationCode(
        goal="square_error <= 0.05 and product_error <= 0.05 and turn_error <= 0.05 "
        "and slope <= -0.8",
        covers=("P1", "P2", "P3", "P4"),
    ),
}
