"""Variance through depth: the variance of the initial weights decides the signal.

    h_l = phi(W_l h_{l-1})                                               (1)  layer, no bias
    std_Xavier   = sqrt(2 / (n_in + n_out))                              (2)  normal weights
    bound_Xavier = sqrt(6 / (n_in + n_out))                              (3)  uniform on +-bound
    std_He       = sqrt(2 / n_in)                                        (4)  normal, for ReLU
    m_l = E[phi(sqrt(n Var(w) m_{l-1}) u)^2],  u ~ N(0, 1)               (5)  variance map
    m_l = m_0 (c n Var(w))^l,  c = 1 (linear), 1/2 (ReLU)                (6)  its closed form

phi is the activation, n_in and n_out are the inputs and outputs of a layer. m_l = mean(h_l^2) is
the second moment of layer l, n = n_in its number of inputs. A sum of n terms with independent
weights has n Var(w) times the moment of one input, and a ReLU throws half of it away. So n Var(w) =
1 keeps the signal of a linear network, and of a tanh network whose signal is small enough to see
only its slope of 1 at zero; a ReLU needs n Var(w) = 2. (2) and (3) have the same variance 2 / (n_in
+ n_out), midway between what the signal wants (1 / n_in) and what the gradient wants (1 / n_out).
Anything else grows or dies by a constant factor a layer.

Glorot, Bengio (2010), "Understanding the difficulty of training deep feedforward neural networks",
AISTATS, PMLR 9; He, Zhang, Ren, Sun (2015), "Delving Deep into Rectifiers", arXiv:1502.01852,
section 2.2; Poole et al. (2016), "Exponential expressivity in deep neural networks through
transient chaos", arXiv:1606.05340 for (5).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn

from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation

Function = Callable[[Tensor], Tensor]
NODES = 4000  # even: none at 0, where a ReLU has its kink


def xavier_std(fan_in: int, fan_out: int) -> float:
    """Standard deviation of normal weights."""
    return math.sqrt(2 / (fan_in + fan_out))  # (2)


def xavier_bound(fan_in: int, fan_out: int) -> float:
    """The end of the interval that uniform weights fill; their variance is bound^2 / 3."""
    return math.sqrt(6 / (fan_in + fan_out))  # (3)


def he_std(fan_in: int) -> float:
    """Standard deviation of normal weights in front of a ReLU."""
    return math.sqrt(2 / fan_in)  # (4)


def gaussian_mean(function: Function, variance: float) -> float:
    """The mean of function(z) over z ~ N(0, variance).

    By the trapezoid rule, exact here to rounding. Gauss-Hermite nodes would lie too far apart for
    a function that changes within a small part of a standard deviation, as saturating units do.
    """
    u = torch.linspace(-10, 10, NODES, dtype=torch.float64)
    density = torch.exp(-u.square() / 2) * (u[1] - u[0]) / math.sqrt(2 * math.pi)
    return float(function(math.sqrt(variance) * u) @ density)


def variance_map(phi: Function, gain: float, moment: float) -> float:
    """The second moment of the next layer; `gain` is n Var(w)."""
    return gaussian_mean(lambda z: phi(z).square(), gain * moment)  # (5)


def closed_form(moment: float, kept: float, gain: float, depth: int) -> Float[Tensor, " layers"]:
    """m_0 .. m_depth where phi keeps the share `kept` of the second moment, whatever it is."""
    layers = torch.arange(depth + 1, dtype=torch.float64)
    return moment * (kept * gain) ** layers  # (6)


def moments(
    x: Float[Tensor, "rows width"],
    phi: Function,
    draw: Callable[[Tensor], Tensor],
    depth: int,
) -> Float[Tensor, " layers"]:
    """m_0 .. m_depth of one network, whose weights `draw` fills one layer after the other."""
    h, w = x, x.new_empty(x.shape[1], x.shape[1])
    values = [h.square().mean()]
    for _ in range(depth):
        h = phi(h @ draw(w).T)  # (1)
        values.append(h.square().mean())
    return torch.stack(values)


class Scheme(NamedTuple):
    """How a network is initialised: its activation, who draws its weights, and their variance."""

    phi: Function
    draw: Callable[..., Tensor]
    variance: Callable[[int], float]
    """For a layer of n inputs and n outputs."""
    input_std: float = 1.0


def scaled(scale: float) -> Scheme:
    """ReLU with Var(w) = scale / n."""
    return Scheme(torch.relu, partial(_normal, scale=scale), lambda n: scale / n)


def _normal(w: Tensor, scale: float, generator: torch.Generator | None = None) -> Tensor:
    return nn.init.normal_(w, std=math.sqrt(scale / w.shape[1]), generator=generator)


def _identity(z: Tensor) -> Tensor:
    return z


_he = partial(nn.init.kaiming_normal_, nonlinearity="relu")
NORMAL, UNIFORM = nn.init.xavier_normal_, nn.init.xavier_uniform_
SCHEMES: dict[str, Scheme] = {
    "linear, Xavier normal": Scheme(_identity, NORMAL, lambda n: xavier_std(n, n) ** 2),
    "linear, Xavier uniform": Scheme(_identity, UNIFORM, lambda n: xavier_bound(n, n) ** 2 / 3),
    "linear, $2/n$": scaled(2.0)._replace(phi=_identity),
    "linear, $1/(2n)$": scaled(0.5)._replace(phi=_identity),
    "tanh, Xavier normal": Scheme(torch.tanh, NORMAL, lambda n: xavier_std(n, n) ** 2, 0.05),
    "tanh, Xavier uniform": Scheme(
        torch.tanh, UNIFORM, lambda n: xavier_bound(n, n) ** 2 / 3, 0.05
    ),
    "tanh, $2/n$": scaled(2.0)._replace(phi=torch.tanh, input_std=0.05),
    "tanh, $1/(2n)$": scaled(0.5)._replace(phi=torch.tanh, input_std=0.05),
    "ReLU, He: $2/n$": Scheme(torch.relu, _he, lambda n: he_std(n) ** 2),
    "ReLU, $1/n$": scaled(1.0),
    "ReLU, $4/n$": scaled(4.0),
}
"""The networks compared, by name; Xavier's and He's weights are drawn by torch."""
GOOD = ("linear, Xavier normal", "tanh, Xavier normal", "ReLU, He: $2/n$")


@dataclass(frozen=True, kw_only=True)
class InitVariance(Simulation):
    """Send random inputs through deep networks at initialisation; compare with (5) and (6)."""

    meanings: ClassVar[Mapping[str, str]] = {
        "xavier_drift": "the most that Xavier's signal differs from its first layer, as a factor",
        "he_drift": "the same of rectifiers with He's weights",
        "halving": (
            "by how many powers of two a layer of rectifiers with variance 1/n changes the signal: "
            "-1"
        ),
        "slope_error": "how far the worst of four schemes is from the power of two it should have",
    }

    depth: int = 50
    """Layers."""
    width: int = 512
    """Units of every layer, and of the input."""
    nets: int = 20
    """Networks over which a second moment is averaged."""
    rows: int = 32
    """Inputs of each network, drawn from a normal distribution."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.within(2, 100, "depth")  # within reach of float32
        self.at_least(2, "width")
        self.at_least(1, "nets", "rows")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        measured, predicted = [], []
        for scheme in SCHEMES.values():
            draw = partial(scheme.draw, generator=generator)
            networks = []
            for _ in range(self.nets):
                x = torch.randn(self.rows, self.width, generator=generator) * scheme.input_std
                networks.append(moments(x, scheme.phi, draw, self.depth).double())
            measured.append(torch.stack(networks))
            predicted.append(self.predict(scheme))
        return {
            "moments": torch.stack(measured),  # schemes nets layers
            "predicted": torch.stack(predicted),  # schemes layers
        }

    def predict(self, scheme: Scheme) -> Float[Tensor, " layers"]:
        """m_0 .. m_depth by the variance map."""
        gain, values = self.width * scheme.variance(self.width), [scheme.input_std**2]
        for _ in range(self.depth):
            values.append(variance_map(scheme.phi, gain, values[-1]))
        return torch.tensor(values, dtype=torch.float64)

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        means = dict(zip(SCHEMES, result["moments"].mean(dim=1), strict=True))
        slopes = {name: _slope(mean.log2()) for name, mean in means.items()}
        return {
            "xavier_drift": max(_drift(means[name]) for name in SCHEMES if "Xavier" in name),
            "he_drift": _drift(means["ReLU, He: $2/n$"]),
            "halving": slopes["ReLU, $1/n$"],
            "slope_error": max(
                abs(slopes["ReLU, $1/n$"] + 1),
                abs(slopes["ReLU, $4/n$"] - 1),
                abs(slopes["linear, $2/n$"] - 1),
                abs(slopes["linear, $1/(2n)$"] + 1),
            ),
        }

    def picture_scales(self, result: Mapping[str, Tensor]) -> Figure:
        """The second moment of the units by layer (logarithmic).

        Measured points lie on predicted dashes: only the scale that suits the activation keeps the
        moment level.
        """
        layers = torch.arange(self.depth + 1.0)
        some = slice(None, None, max(1, self.depth // 10))
        means = dict(zip(SCHEMES, result["moments"].mean(dim=1), strict=True))
        predicted = dict(zip(SCHEMES, result["predicted"], strict=True))
        drawn: list[Panel] = []
        for kind in ("linear", "tanh", "ReLU"):
            labels = {n.removeprefix(f"{kind}, "): n for n in SCHEMES if n.startswith(kind)}
            drawn.append(
                Panel(
                    {label: (layers[some], means[n][some]) for label, n in labels.items()},
                    guides={label: (layers, predicted[n]) for label, n in labels.items()},
                    xlabel="layer $l$",
                    ylabel="" if drawn else f"second moment $m_l$, mean of {self.nets} networks",
                    title=kind,
                    log="y",
                    scatter=True,
                )
            )
        return panels(*drawn)

    def picture_kept(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """The second moment by layer, as a share of the first, with the scale that suits.

        The band goes from the least to the largest network. No mean differs from 1 by more than a
        factor of {drift:.2g}.
        """
        layers = torch.arange(self.depth + 1.0)
        each = dict(zip(SCHEMES, result["moments"], strict=True))
        predicted = dict(zip(SCHEMES, result["predicted"], strict=True))
        drawn = (
            Panel(
                {name: (layers, each[name].mean(dim=0) / each[name][:, 0].mean())},
                bands={name: (each[name] / each[name][:, :1]).aminmax(dim=0)},
                guides={"predicted": (layers, predicted[name] / predicted[name][0])},
                levels={"twice, half": 2, "": 0.5},
                xlabel="layer $l$",
                ylabel="" if number else "$m_l / m_0$: mean, least and largest",
                log="y",
                ylim=(0.1, 10),
            )
            for number, name in enumerate(GOOD)
        )
        return panels(*drawn), {"drift": max(_drift(each[name].mean(dim=0)) for name in GOOD)}

    def tiny(self) -> Self:
        return replace(super().tiny(), depth=6, width=32, nets=2, rows=4)


def _slope(values: Float[Tensor, " layers"]) -> float:
    """The slope of the least-squares line through one value a layer."""
    layers = torch.arange(len(values), dtype=values.dtype)
    centred = layers - layers.mean()
    return float(centred @ values / (centred @ centred))


def _drift(values: Float[Tensor, " layers"]) -> float:
    """The largest factor between the first value and any other, up or down."""
    return float((values / values[0]).log().abs().max().exp())


RECIPES = {
    "init-variance": InitVariance(
        goal="xavier_drift <= 2 and he_drift <= 2 and slope_error <= 0.05",
        covers=("O11", "O12"),
    ),
}
