"""A wide random network is a Gaussian process: its kernel, its two phases, and what width leaves.

    z_l = s_w W_l phi(z_{l-1}) / sqrt(n) + s_b b_l                   (1)  layer; W and b ~ N(0, 1)
    K_1 = s_w^2 x^T x' / d + s_b^2                                   (2)  kernel of the first layer
    K_l = s_w^2 E[phi(u) phi(v)] + s_b^2, (u, v) ~ N(0, K_{l-1})     (3)  the same, as n -> inf
    E[phi(u) phi(v)] = sqrt(q r) (sin t + (pi - t) cos t) / (2 pi)   (4)  ReLU, t = acos k/sqrt(q r)
    E[phi(u) phi(v)] = (2/pi) asin(2 k / sqrt((1 + 2 q) (1 + 2 r)))  (5)  erf
    q*  = s_w^2 E[phi(u)^2] + s_b^2, u ~ N(0, q*)                    (6)  where the variance settles
    chi = s_w^2 E[phi'(u)^2] = 4 s_w^2 / (pi sqrt(1 + 4 q*))         (7)  factor on |z - z'|^2, erf
    s_w^2 = (pi/4) sqrt(1 + 4 q), s_b^2 = q - s_w^2 E[phi(u)^2]      (8)  where chi = 1, any q >= 0
    ln |z_l - z'_l|^2 = const + l ln chi                             (9)  of two close inputs
    E z^4 / (E z^2)^2 - 3 = 3 ((1 + 5 / n)^L - 1)                    (10) L hidden layers of ReLU

x and x' are inputs of d numbers, n is the width, z_l what enters the units of layer l, phi their
function; q and r are the variances of u and v, k is their covariance. (4) is the arc-cosine kernel.
Below chi = 1 is order: any two inputs end alike. Above it is chaos: close inputs part until they
are as unlike as two inputs can stay. Either way what the network knew of its input is lost within
a few times 1 / |ln chi| layers, and signals go deep only on the boundary: (8) for erf, and for
ReLU, whose chi is s_w^2 / 2, He's s_w^2 = 2. A finite network is not Gaussian: by (10) the excess
kurtosis of its outputs is about 15 L / n, so that depth over width says how far it is from the
limit. (10) is exact for s_b = 0: given the layer below, z is normal, and relu(u)^2 has the moments
1/2 and 3/2.

Neal (1996), "Bayesian Learning for Neural Networks", chapter 2; Williams (1997), "Computing with
Infinite Networks", NIPS 9; Cho, Saul (2009), "Kernel Methods for Deep Learning", NIPS 22; Lee et
al. (2018), "Deep Neural Networks as Gaussian Processes", arXiv:1711.00165; Poole et al. (2016),
arXiv:1606.05340 and Schoenholz et al. (2016), arXiv:1611.01232, on order and chaos; Roberts, Yaida,
Hanin (2021), "The Principles of Deep Learning Theory", arXiv:2106.10165, chapter 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.panels import Curve, Panel, panels
from everynet.recipes.recipe import Simulation

CHUNK = 2**22  # weights drawn at once, which a cache holds
CLOSE = 1e-5  # distance of two close inputs, in units of their size
ANGLES = 13  # inputs on half a circle, from one to its opposite
BINS = 32  # of a density, over 16 standard deviations
HIDDEN = 3  # the most hidden layers behind which the excess kurtosis is measured
LAYERS = 24  # that inputs are sent through, in order and in chaos
SETTLED = 5  # layers behind which the variance is taken as settled


def relu_product(q: Tensor, r: Tensor, k: Tensor) -> Tensor:
    """E[relu(u) relu(v)] for u and v of variances q and r and covariance k."""
    size = (q * r).sqrt()
    t = (k / size).clamp(-1, 1).acos()
    product: Tensor = size * (t.sin() + (math.pi - t) * t.cos()) / (2 * math.pi)  # (4)
    return product


def erf_product(q: Tensor, r: Tensor, k: Tensor) -> Tensor:
    """E[erf(u) erf(v)] for u and v of variances q and r and covariance k."""
    product: Tensor = 2 / math.pi * (2 * k / ((1 + 2 * q) * (1 + 2 * r)).sqrt()).asin()  # (5)
    return product


class Units(NamedTuple):
    """A function of units with the mean product of two, and the scales its kernel is shown at."""

    phi: Callable[[Tensor], Tensor]
    product: Callable[[Tensor, Tensor, Tensor], Tensor]
    weight: float
    """s_w^2"""
    bias: float
    """s_b^2"""


UNITS = {
    "ReLU": Units(torch.relu, relu_product, 2.0, 0.0),
    "erf": Units(torch.erf, erf_product, 2.0, 0.1),
}


def layer(
    h: Float[Tensor, "*nets rows inputs"],
    w: Float[Tensor, "... units inputs"],
    b: Float[Tensor, "... units"],
    weight: float | Tensor,
    bias: float | Tensor,
) -> Float[Tensor, "*nets rows units"]:
    """What enters the units above h; `weight` is s_w^2, `bias` is s_b^2."""
    scale = torch.as_tensor(weight / h.shape[-1]).sqrt().to(h.dtype)
    shift = torch.as_tensor(bias).sqrt().to(h.dtype)
    return scale * (h @ w.mT) + shift * b[..., None, :]  # (1)


def first_kernel(
    x: Float[Tensor, "rows inputs"], weight: float, bias: float
) -> Float[Tensor, "rows rows"]:
    """The kernel of the first layer, exact at any width."""
    return weight * (x @ x.T) / x.shape[1] + bias  # (2)


def next_kernel(
    units: Units, kernel: Float[Tensor, "*batch rows rows"], weight: float, bias: float
) -> Float[Tensor, "*batch rows rows"]:
    """The kernel one layer up, as the width goes to infinity."""
    q = kernel.diagonal(dim1=-2, dim2=-1)
    return weight * units.product(q[..., :, None], q[..., None, :], kernel) + bias  # (3)


def kernels(
    units: Units, x: Float[Tensor, "rows inputs"], depth: int, weight: float, bias: float
) -> Float[Tensor, "depth rows rows"]:
    """K_1 .. K_depth."""
    found = [first_kernel(x, weight, bias)]
    for _ in range(depth - 1):
        found.append(next_kernel(units, found[-1], weight, bias))
    return torch.stack(found)


def settled(weight: Tensor, bias: Tensor, layers: int = 300) -> Tensor:
    """The variance q* of a network of erf units, from that of layer 1 being 1."""
    q = torch.ones_like(weight + bias)
    for _ in range(layers):
        q = weight * erf_product(q, q, q) + bias  # (6)
    return q


def factor(weight: Tensor, q: Tensor) -> Tensor:
    """The factor of a layer of erf units on the squared distance of two close inputs."""
    return 4 * weight / (math.pi * (1 + 4 * q).sqrt())  # (7)


def boundary(q: Tensor) -> tuple[Tensor, Tensor]:
    """(s_w^2, s_b^2) of erf units between order and chaos, where the variance settles at q."""
    weight = math.pi / 4 * (1 + 4 * q).sqrt()
    return weight, q - weight * erf_product(q, q, q)  # (8)


def critical_weight(bias: float) -> float:
    """The s_w^2 on the boundary at this s_b^2, which rises with q along it."""
    weight, height = boundary(torch.logspace(-6, 3, 100_000, dtype=torch.float64))
    return float(weight[torch.searchsorted(height, bias)])


def distances(
    chi: float, start: Float[Tensor, ""], layers: Float[Tensor, " layers"]
) -> Float[Tensor, " layers"]:
    """The squared distance of two close inputs, by layers above that where it is `start`."""
    return torch.exp(start.log() + layers * math.log(chi))  # (9)


def excess_kurtosis(
    width: Float[Tensor, " widths"], hidden_layers: int
) -> Float[Tensor, " widths"]:
    """Of an output of a ReLU network without biases, exactly."""
    return 3 * ((1 + 5 / width) ** hidden_layers - 1)  # (10)


def log_slope(
    values: Float[Tensor, "*batch points"], at: Float[Tensor, " points"]
) -> Float[Tensor, "*batch"]:
    """The slope of the least-squares line through the logarithms of some values."""
    centred = at - at.mean()
    return values.log() @ centred / (centred @ centred)


def crossing(
    chi: Float[Tensor, "biases weights"], weights: Float[Tensor, " weights"]
) -> Float[Tensor, " biases"]:
    """The weight at which a factor passes 1, between two that were tried; else the nearest end."""
    height, place = chi.log(), weights.log()
    right = (height < 0).sum(dim=1).clamp(1, len(weights) - 1)
    rows = torch.arange(len(chi))
    low, high = height[rows, right - 1], height[rows, right]
    share = (low / (low - high)).clamp(0, 1)
    return (place[right - 1] + share * (place[right] - place[right - 1])).exp()


def draw(
    units: tuple[int, ...], inputs: int, generator: torch.Generator, dtype: torch.dtype
) -> tuple[Float[Tensor, "*nets units inputs"], Float[Tensor, "*nets units"]]:
    """W and b of a layer; `units` may begin with a number of networks."""
    w = torch.empty(*units, inputs, dtype=dtype).normal_(generator=generator)
    return w, torch.empty(units, dtype=dtype).normal_(generator=generator)


def circle() -> Float[Tensor, "angles 2"]:
    """Inputs of mean square 1 at equal angles, the last opposite to the first."""
    angle = torch.linspace(0, math.pi, ANGLES, dtype=torch.float64)
    return math.sqrt(2) * torch.stack([angle.cos(), angle.sin()], dim=1)


def chunks(nets: int, weights: int) -> list[int]:
    """How many networks are drawn at once, so that a layer of them stays in the cache."""
    size = max(1, CHUNK // weights)
    return [min(size, nets - start) for start in range(0, nets, size)]


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class WideNetwork(Simulation):
    """Draw networks at random; compare their outputs with the limit and with what width leaves."""

    meanings: ClassVar[Mapping[str, str]] = {
        "kernel_error": "how far a mean over networks is from the kernel, as a part of a variance",
        "boundary_error": "how far the boundary between order and chaos is found from its formula",
        "factor_error": "how far the log of the factor on small distances is from its formula",
        "kurtosis_slope": "slope of the excess kurtosis over the width, in logarithms: -1",
        "slope_error": "how far that slope is from -1",
    }

    nets: int = 2000
    """Networks over which the kernel is averaged; distances over fewer, kurtosis over more."""
    width: int = 256
    """Units of a layer of these networks."""
    depth: int = 4
    """Layers of those whose kernel is measured."""
    weights: tuple[float, ...] = (0.6, 0.8, 1.0, 1.25, 1.6, 2.0, 2.5, 3.2)
    """Variances s_w^2, rising, between which the boundary between order and chaos is looked for."""
    biases: tuple[float, ...] = (0.02, 0.1, 0.3, 0.6)
    """Variances s_b^2 at which it is looked for."""
    narrow: tuple[int, ...] = (8, 16, 32, 64)
    """Widths, rising, at which the excess kurtosis is measured."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "nets")
        self.at_least(3, "width")
        self.at_least(2, "depth")
        positive = len(self.biases) >= 1 and min(self.biases) > 0
        self.require(positive, "biases", "one or more positive numbers")
        for name in ("weights", "narrow"):
            values = getattr(self, name)
            rising = len(values) >= 2 and list(values) == sorted(set(values)) and values[0] > 0
            self.require(rising, name, "two or more rising positive numbers")
        edges = [critical_weight(bias) for bias in (min(self.biases), max(self.biases))]
        words = f"on both sides of the boundary for all biases, {edges[0]:.3g} to {edges[1]:.3g}"
        self.require(self.weights[0] < edges[0] and edges[1] < self.weights[-1], "weights", words)

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        found = [self.narrow_outputs(width, generator) for width in self.narrow]
        kurtosis, density = (torch.stack(parts) for parts in zip(*found, strict=True))
        limits = [kernels(u, circle(), self.depth, u.weight, u.bias) for u in UNITS.values()]
        return {
            "measured": self.measure_kernels(generator),
            "predicted": torch.stack(limits)[:, :, 0],
            **self.phases(generator),
            "kurtosis": kurtosis,
            "density": density,
        }

    def measure_kernels(self, generator: torch.Generator) -> Float[Tensor, "units depth angles"]:
        """The mean product of the first input's z_l with those of all, over networks and units."""
        x, total = circle().float(), torch.zeros(len(UNITS), self.depth, ANGLES).double()
        for count in chunks(self.nets, self.width**2):
            states = [x.expand(count, -1, -1)] * len(UNITS)
            for number in range(self.depth):
                w, b = draw((count, self.width), states[0].shape[-1], generator, torch.float32)
                for kind, units in enumerate(UNITS.values()):  # one draw serves both
                    z = layer(states[kind], w, b, units.weight, units.bias)
                    total[kind, number] += (z[:, :1] * z).mean(dim=2).sum(dim=0)
                    states[kind] = units.phi(z)
        return total / self.nets

    def phases(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Two close inputs and two unlike ones on their way through networks of erf units."""
        bias, weight = torch.meshgrid(
            torch.tensor(self.biases).double(), torch.tensor(self.weights).double(), indexing="ij"
        )
        n, scales = self.width, (weight[..., None, None], bias[..., None, None])
        gram = torch.zeros(LAYERS, *weight.shape, 3, 3, dtype=torch.float64)
        apart = torch.zeros(LAYERS, *weight.shape, dtype=torch.float64)
        nets = -(-self.nets // 40)
        for _ in range(nets):
            x = math.sqrt(n) * torch.eye(3, n, dtype=torch.float64)
            x[1] = x[0] + CLOSE * x[1]
            h = x.expand(*weight.shape, -1, -1)
            for number in range(LAYERS):
                w, b = draw((n,), n, generator, torch.float64)
                z = layer(h, w, b, *scales)
                gram[number] += z @ z.mT / n / nets
                apart[number] += (z[..., 0, :] - z[..., 1, :]).square().mean(-1) / nets
                h = z.erf()
        size = gram.diagonal(dim1=-2, dim2=-1).sqrt()
        q = settled(weight, bias)
        return {
            "apart": apart,
            "correlation": gram[..., 0, 2] / (size[..., 0] * size[..., 2]),
            "factor": log_slope(
                apart[SETTLED:].movedim(0, -1),
                torch.arange(LAYERS - SETTLED, dtype=torch.float64),
            ).exp(),
            "predicted_factor": factor(weight, q),
        }

    def narrow_outputs(
        self, width: int, generator: torch.Generator
    ) -> tuple[Float[Tensor, " layers"], Float[Tensor, "2 bins"]]:
        """Excess kurtosis by hidden layers, and the density of outputs behind the last."""
        nets, outputs = 10 * self.nets, []
        sums = torch.zeros(2, HIDDEN, dtype=torch.float64)
        for count in chunks(nets, width**2):
            h = torch.ones(count, 1, width)
            for number in range(HIDDEN + 1):
                w, b = draw((count, width), width, generator, torch.float32)
                z = layer(h, w, b, 2.0, 0.0)
                if number:
                    square = z.double().square()
                    sums[:, number - 1] += torch.stack([square.sum(), square.square().sum()])
                h = z.relu()
            outputs.append(z.flatten())
        second, fourth = sums / (nets * width)
        edges = torch.linspace(-8, 8, BINS + 1)
        last = torch.cat(outputs)
        counts = torch.histc(last / last.std(), bins=BINS, min=-8, max=8)
        bins = torch.stack([(edges[1:] + edges[:-1]) / 2, counts / len(last) * BINS / 16])
        return fourth / second**2 - 3, bins.double()

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        error = (result["measured"] - result["predicted"]) / result["predicted"][..., :1]
        widths = torch.tensor(self.narrow, dtype=torch.float64)
        slope = float(log_slope(result["kurtosis"][:, 0].clamp(min=1e-9), widths.log()))
        law = torch.tensor([critical_weight(bias) for bias in self.biases], dtype=torch.float64)
        found = self.boundary(result)
        return {
            "kernel_error": float(error.abs().max()),
            "boundary_error": float((found / law - 1).abs().max()),
            "factor_error": float(
                (result["factor"] / result["predicted_factor"]).log().abs().max()
            ),
            "kurtosis_slope": slope,
            "slope_error": abs(slope + 1),
        }

    def boundary(self, result: Mapping[str, Tensor]) -> Float[Tensor, " biases"]:
        """The s_w^2 at which close inputs neither meet nor part, as measured."""
        return crossing(result["factor"], torch.tensor(self.weights, dtype=torch.float64))

    def picture_kernel(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """The kernel of two inputs against the angle between them, by layer.

        Dots are means over {nets} networks of {width} units and lie on the dashed law of infinite
        width, {error:.1%} from it at most. To a deep ReLU network all inputs look alike.
        """
        names = [f"layer {number}" for number in range(1, self.depth + 1)]
        drawn = (
            Panel(
                _curves(names, torch.linspace(0, 180, ANGLES), result["measured"][kind]),
                guides=_curves(names, torch.linspace(0, 180, ANGLES), result["predicted"][kind]),
                xlabel="angle between the inputs (degrees)",
                ylabel="" if kind else "kernel $K_l(x, x')$",
                title=name,
                scatter=True,
            )
            for kind, name in enumerate(UNITS)
        )
        values = {"nets": self.nets, "width": self.width}
        return panels(*drawn), {**values, "error": self.metrics(result)["kernel_error"]}

    def picture_phases(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """Two inputs on their way through networks of erf units, in order and in chaos.

        Below the boundary close inputs meet and unlike ones too; above it both part. Dots are
        measured, dashes the laws; the boundary is found {error:.1%} from its formula at most.
        """
        row, last = len(self.biases) // 3, len(self.weights) - 1
        some, bias = sorted({0, last // 3, 2 * last // 3, last}), self.biases[row]
        names = [f"$s_w^2 = {self.weights[i]:g}$" for i in some]
        apart, alike = (result[key][:, row][:, some].T for key in ("apart", "correlation"))
        layers = torch.arange(1.0, LAYERS + 1)
        later = layers[SETTLED:].double() - layers[SETTLED]
        chi = result["predicted_factor"][row, some].tolist()
        lines = [distances(f, a[SETTLED], later) for f, a in zip(chi, apart, strict=True)]
        unlike = math.sqrt(2) * torch.eye(2, dtype=torch.float64)
        limits = [kernels(UNITS["erf"], unlike, LAYERS, self.weights[i], bias) for i in some]
        close = Panel(
            _curves(names, layers, apart),
            guides=_curves(names, layers[SETTLED:], lines),
            xlabel="layer $l$", ylabel=r"squared distance $|z_l - z_l'|^2 / n$",
            title=f"two close inputs, $s_b^2 = {bias:g}$", log="y", scatter=True,
        )  # fmt: skip
        far = Panel(
            _curves(names, layers, alike),
            guides=_curves(names, layers, [k[:, 0, 1] / k[:, 0, 0] for k in limits]),
            xlabel="layer $l$", ylabel="correlation",
            title=f"two unlike inputs, $s_b^2 = {bias:g}$", scatter=True,
        )  # fmt: skip
        drawn = panels(close, far, *self._boundary(result, row), columns=2, height=2.5)
        return drawn, {"error": self.metrics(result)["boundary_error"]}

    def _boundary(self, result: Mapping[str, Tensor], row: int) -> tuple[Panel, Panel]:
        """Depth scales at one s_b^2, and the plane of both variances."""
        weights, bias = torch.tensor(self.weights, dtype=torch.float64), self.biases[row]
        fine = torch.linspace(self.weights[0], self.weights[-1], 400, dtype=torch.float64)
        chi = factor(fine, settled(fine, torch.full_like(fine, bias)))
        scale = Panel(
            {"measured": (weights, 1 / result["factor"][row].log().abs())},
            guides={r"$1 / |\ln \chi|$": (fine, (1 / chi.log().abs()).clamp(max=1e3))},
            marks={"boundary": critical_weight(bias)},
            xlabel="$s_w^2$", ylabel="depth scale (layers)",
            title=f"how deep signals go, $s_b^2 = {bias:g}$", log="y", ylim=(0.5, 200),
            scatter=True,
        )  # fmt: skip
        edge, height = boundary(torch.linspace(0, 4, 400, dtype=torch.float64))
        inside = height <= 1.1 * max(self.biases)
        plane = Panel(
            {"found in networks": (self.boundary(result), torch.tensor(self.biases))},
            guides={r"$\chi = 1$": (edge[inside], height[inside])},
            xlabel="$s_w^2$: order to the left, chaos to the right", ylabel="$s_b^2$",
            title="the boundary", scatter=True,
        )  # fmt: skip
        return scale, plane

    def picture_width(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """Outputs of narrow ReLU networks (left), and their excess kurtosis by width (right).

        Tails are fat and thin out with width; behind one hidden layer the slope is {slope:.3f}.
        """
        wide, ends = torch.tensor(self.narrow, dtype=torch.float64), [0, -1]
        at, density = result["density"][0, 0], result["density"][ends, 1]
        tails = Panel(
            _curves(
                [f"{self.narrow[i]} units" for i in ends], at, density.where(density > 0, math.nan)
            ),
            guides={"normal": (at, (-at.square() / 2).exp() / math.sqrt(2 * math.pi))},
            xlabel="output (standard deviations)", ylabel="density",
            title=f"hidden layers: {HIDDEN}", log="y", ylim=(1e-5, 2),
        )  # fmt: skip
        fine = torch.logspace(math.log10(wide[0]), math.log10(wide[-1]), 50, dtype=torch.float64)
        depths = range(1, HIDDEN + 1)
        names = [f"hidden layers: {depth}" for depth in depths]
        excess = Panel(
            _curves(names, wide, result["kurtosis"].T),
            guides=_curves(names, fine, [excess_kurtosis(fine, layers) for layers in depths]),
            xlabel="width $n$", ylabel="excess kurtosis",
            title="what is left of the Gaussian limit", log="xy", scatter=True,
        )  # fmt: skip
        return panels(tails, excess), {"slope": self.metrics(result)["kurtosis_slope"]}

    def tiny(self) -> Self:
        return replace(
            super().tiny(), nets=20, width=32, depth=2, biases=(0.1, 0.3), narrow=(8, 16)
        )


def _curves(names: Sequence[str], at: Tensor, rows: Iterable[Tensor]) -> dict[str, Curve]:
    return {name: (at, row) for name, row in zip(names, rows, strict=True)}


RECIPES = {
    "wide-network": WideNetwork(
        goal="kernel_error <= 0.02 and boundary_error <= 0.05 and slope_error <= 0.1",
        covers=("Y6",),
    ),
}
