"""A population code: many neurons, each tuned to a direction, from whose rates x is decoded.

    H_ij = G(gain_j (e_j . x_i) / r + bias_j)      (1)  encoding
    y    = H D                                     (2)  decoding
    W    = D (gain' e')^T / r'                     (3)  weights to another ensemble

Row i is a point x_i inside radius r, column j a neuron with unit encoder e_j and the rate G of its
current (`tuning.py`); decoders D give x or any function of it (`decoders.py`). A dot is the inner
product, the other products are those of matrices, and a prime marks the ensemble that receives. The
error that noise on the rates causes falls as the root of the number of neurons, the error without
noise at least as the number.

Eliasmith and Anderson (2003), "Neural Engineering", MIT Press, chapters 2 and 7. The names are
Nengo's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self, TypeAlias

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.zoo.population.decoders import (
    LeastSquaresDecoders,
    NystromRidgeDecoders,
    RidgeDecoders,
    ridge_solver,
)
from everynet.zoo.population.pictures.population import tuning_curves, tuning_planes
from everynet.zoo.population.tuning import TUNINGS, LIFRate, Tuning, gain_and_bias

ROWS = 64  # points that are encoded at once, so that intermediate values stay in the cache

Function: TypeAlias = Callable[
    [Float[Tensor, "points dimensions"]], Float[Tensor, "points outputs"]
]
"""The function that is decoded: its value at each point."""


class Ensemble:
    """A population that represents points of `dimensions` numbers inside `radius`.

    Maximum rates (Hz) and intercepts (in units of the radius) are drawn uniformly between two
    numbers, encoders uniformly over all directions. Decoders are fitted on `eval_points` points
    drawn from the ball, by default at least twice as many as neurons.
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
        eval_points: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        _require(neurons >= 1, f"neurons ({neurons})", "at least 1")
        _require(dimensions >= 1, f"dimensions ({dimensions})", "at least 1")
        _require(0 < radius < math.inf, f"radius ({radius})", "a positive number, in units of x")
        self.tuning = LIFRate() if tuning is None else tuning
        self.radius = radius
        self.encoders = _sample_directions(neurons, dimensions, generator)
        drawn = [
            low + (high - low) * torch.rand(neurons, generator=generator, dtype=torch.float64)
            for low, high in (max_rates, intercepts)
        ]
        self.gain, self.bias = gain_and_bias(self.tuning, *drawn)
        count = max(min(max(500 * dimensions, 750), 2500), 2 * neurons)
        count = count if eval_points is None else eval_points
        _require(count >= 1, f"eval_points ({count})", "at least 1")
        self.eval_points = sample_ball(count, dimensions, radius, generator)
        self._solvers: dict[float, RidgeDecoders | NystromRidgeDecoders | LeastSquaresDecoders] = {}

    def encode(self, x: Float[Tensor, "points dimensions"]) -> Float[Tensor, "points neurons"]:
        """The rate of each neuron (Hz) at each point."""
        if x.shape[1] != self.encoders.shape[1]:
            raise ValueError(
                f"x ({x.shape[1]} columns) must have {self.encoders.shape[1]}, one for each "
                "dimension of the ensemble"
            )
        _require(bool(x.isfinite().all()), "x (NaN or infinite somewhere)", "finite")
        projections = (x.to(self.encoders) @ self.encoders.T / self.radius).split(ROWS)
        rates = [self.tuning.rate(self.gain * part + self.bias) for part in projections]  # (1)
        return torch.cat(rates)

    def decoders(
        self, function: Function | None = None, *, noise: float = 0.1
    ) -> Float[Tensor, "neurons outputs"]:
        """Decoders of function(x), or of x itself, for rates with noise.

        Its standard deviation is `noise` times the highest rate; at 0 the decoders are those of
        least squares. The rates are factorised once for all functions.
        """
        _require(
            0 <= noise < math.inf, f"noise ({noise} of the highest rate)", "a number from 0 up"
        )
        targets = self.eval_points if function is None else function(self.eval_points)
        if targets.dim() != 2 or len(targets) != len(self.eval_points):
            raise ValueError(
                f"function (gave {' x '.join(map(str, targets.shape))}) must give a row for "
                f"each of the {len(self.eval_points)} points"
            )
        _require(bool(targets.isfinite().all()), "function (gave NaN or infinity)", "finite")
        if noise not in self._solvers:
            h = self.encode(self.eval_points)
            sigma = noise * h.max().item()
            self._solvers[noise] = ridge_solver(h, sigma) if noise else LeastSquaresDecoders(h)
        return self._solvers[noise].solve(targets.to(self.eval_points))

    def decode(
        self, x: Float[Tensor, "points dimensions"], decoders: Float[Tensor, "neurons outputs"]
    ) -> Float[Tensor, "points outputs"]:
        """The decoded values where the ensemble represents x."""
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
        for name in ("encoders", "gain", "bias", "eval_points"):
            setattr(self, name, getattr(self, name).to(device))
        self._solvers.clear()
        return self


class Connection(NamedTuple):
    """From the rates of one population to the currents of another."""

    decoders: Float[Tensor, "neurons outputs"]
    encoders: Float[Tensor, "others outputs"]
    """Encoders times gain over radius."""
    bias: Float[Tensor, " others"]

    def currents(self, rates: Float[Tensor, "points neurons"]) -> Float[Tensor, "points others"]:
        """Currents by way of the decoded value, at a cost of neurons + others."""
        return rates @ self.decoders @ self.encoders.T + self.bias

    def weights(self) -> Float[Tensor, "neurons others"]:
        """The full weight matrix, a synapse for each pair of neurons."""
        return self.decoders @ self.encoders.T  # (3)


def sample_ball(
    count: int, dimensions: int, radius: float = 1.0, generator: torch.Generator | None = None
) -> Float[Tensor, "count dimensions"]:
    """Points drawn uniformly from a ball."""
    r = torch.rand(count, 1, generator=generator, dtype=torch.float64) ** (1 / dimensions)
    return radius * r * _sample_directions(count, dimensions, generator)


def _sample_directions(
    count: int, dimensions: int, generator: torch.Generator | None
) -> Float[Tensor, "count dimensions"]:
    """Unit vectors, drawn uniformly over all directions."""
    drawn = torch.randn(count, dimensions, generator=generator, dtype=torch.float64)
    unit: Tensor = drawn / drawn.norm(dim=1, keepdim=True)
    return unit


def _require(holds: bool, what: str, must: str) -> None:
    if not holds:
        raise ValueError(f"{what} must be {must}")


def relative_error(found: Tensor, truth: Tensor) -> float:
    """The root mean square of the error over that of the truth."""
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


def fit_exponent(x: Float[Tensor, " sizes"], y: Float[Tensor, "sizes *"]) -> Tensor:
    """The power p of y ~ x^p, by least squares on the logarithms."""
    log_x = x.log() - x.log().mean()
    exponent: Tensor = log_x @ y.log() / log_x.square().sum()
    return exponent


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class PopulationCode(Simulation):
    """Decode x, its square, a product and a rotation from ensembles of growing size."""

    meanings: ClassVar[Mapping[str, str]] = {
        "identity_error": "relative rms error of the decoded value",
        "square_error": "relative rms error of its decoded square",
        "product_error": "relative rms error of the decoded product of two values",
        "turn_error": "relative rms error of a point rotated by 90 degrees",
        "slope": "the power of the number of neurons with which the error falls, without noise",
        "noisy_slope": "the same power with noise on the rates",
        "advantage": "least ratio of the errors of plain and of regularised decoders under noise",
    }

    neurons: int = 1000
    """Neurons of the ensembles that functions are decoded from."""
    tuning: str = "lif"
    """lif, sigmoid or rectified-linear."""
    noise: float = 0.1
    """Noise that the decoders allow for, as a share of the highest rate."""
    sizes: tuple[int, ...] = (10, 20, 40, 80, 160)
    """Numbers of neurons by which the error is measured."""
    repeats: int = 8
    """Ensembles of each size over whose errors the mean is taken."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(10, "neurons")
        self.at_least(1, "repeats")
        self.one_of("tuning", TUNINGS)
        self.above(0, "noise")
        fair = len(set(self.sizes)) >= 2 and min(self.sizes) >= 2
        self.require(fair, "sizes", "two different numbers at least, each from 2 up")

    @property
    def _sizes(self) -> Float[Tensor, " sizes"]:
        return torch.tensor(self.sizes, dtype=torch.float64)

    def make_ensemble(self, neurons: int, dimensions: int, generator: torch.Generator) -> Ensemble:
        tuning, count = TUNINGS[self.tuning](), max(4000, 2 * neurons)
        return Ensemble(neurons, dimensions, tuning=tuning, eval_points=count, generator=generator)

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        line = self.make_ensemble(self.neurons, 1, generator)
        plane = self.make_ensemble(self.neurons, 2, generator)
        x = torch.linspace(-1, 1, 401, dtype=torch.float64)[:, None]
        points = sample_ball(2000, 2, generator=generator)
        side = torch.linspace(-1, 1, 61, dtype=torch.float64)
        grid = torch.cartesian_prod(side, side).flip(1)  # rows x_2, columns x_1
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
            "planes": plane.encode(grid)[:, :4].T.reshape(4, 61, 61).contiguous(),
            "encoders": plane.encoders[:4],
            **self.errors(generator),
        }

    def errors(self, generator: torch.Generator) -> dict[str, Float[Tensor, " sizes"]]:
        """The rms error of a decoded x by size: without noise, and under it by both decoders.

        The mean over ensembles is geometric, so that no single one dominates it.
        """
        logs = torch.zeros(3, len(self.sizes), dtype=torch.float64)
        for column, size in enumerate(self.sizes):
            for _ in range(self.repeats):
                line = self.make_ensemble(size, 1, generator)
                x = sample_ball(1000, 1, generator=generator)
                h = line.encode(x)
                sigma = self.noise * line.encode(line.eval_points).max()
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
            "slope": fit_exponent(self._sizes, result["error"]).item(),
            "noisy_slope": fit_exponent(self._sizes, result["noisy_steady"]).item(),
            "advantage": (result["noisy_plain"] / result["noisy_steady"]).min().item(),
        }

    def picture_tuning_curves(self, result: Mapping[str, Tensor]) -> Figure:
        """The firing rate of neurons against the represented value x.

        Blue ones fire for large x and orange ones for small x, each from its own intercept.
        """
        return tuning_curves(result["x"], result["curves"], upwards=result["upwards"])

    def picture_decoded(self, result: Mapping[str, Tensor]) -> Figure:
        """Decoded x and its square (left), a product (middle) and the error by size (right).

        Dashes are the truth, and right the powers of the number of neurons that theory expects.
        """
        x, points = result["x"], product(result["points"])[:, 0]
        sizes, error, steady = self._sizes, result["error"], result["noisy_steady"]
        return panels(
            Panel(
                {"x": (x, result["identity"]), "$x^2$": (x, result["square"])},
                "represented value x", "decoded value", f"{self.neurons} neurons",
                dashes="truth", guides={"x": (x, x), "$x^2$": (x, x**2)},
            ),
            Panel(
                {"a point each": (points[:400], result["product"][:400, 0])}, "$x_1 x_2$",
                "decoded $x_1 x_2$", f"product, {self.neurons} neurons",
                guides={"truth": (torch.stack([points.min(), points.max()]),) * 2},
                scatter=True,
            ),
            Panel(
                {
                    "without noise": (sizes, error),
                    "noise, plain decoders": (sizes, result["noisy_plain"]),
                    "noise, regularised": (sizes, steady),
                },
                "neurons N", "rms error of decoded x", "error by size",
                dashes=r"$1/N$ and $1/\sqrt{N}$",
                guides={
                    "without noise": (sizes, error[0] * sizes[0] / sizes),
                    "noise, regularised": (sizes, steady[0] * (sizes[0] / sizes).sqrt()),
                },
                log="xy",
            ),
        )  # fmt: skip

    def picture_tuning_planes(self, result: Mapping[str, Tensor]) -> Figure:
        """The firing rate of four neurons over a plane of values, bright where it is high.

        Each prefers the direction of its encoder, which is the white arrow.
        """
        return tuning_planes(result["side"], result["planes"], result["encoders"])

    def tiny(self) -> Self:
        return replace(super().tiny(), neurons=60, sizes=(10, 30))


RECIPES = {
    "ensemble": PopulationCode(
        goal="square_error <= 0.05 and product_error <= 0.05 and turn_error <= 0.05 "
        "and slope <= -0.8",
        covers=("P1", "P2", "P3", "P4"),
    ),
}
