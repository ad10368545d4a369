"""Universal approximation by learning: wider networks come nearer, unless g is a polynomial.

    y(x) = c_0 + sum_k c_k g(w_k . x + b_k),  k = 1 .. width       (1)  one hidden layer
    E    = mean (y - f)^2 / var f                                  (2)  unexplained variance
    E_2  = min over quadratics q of mean (q - f)^2 / var f         (3)  floor of g(z) = z^2

where x is a point of the plane, w_k . x an inner product and g an activation function. For a
continuous f on a closed and bounded set, and an error above zero, there is a width at which
some weights come that near: if and only if g is no polynomial (f need not be smooth). With
g(z) = z^2 the sum (1) is a quadratic of x at every width, so that E >= E_2, which least squares
gives. The theorem says that such weights are there, not that descent finds them: past some width
the noise of training is what is left, and more units no longer help.

Leshno, Lin, Pinkus and Schocken (1993), "Multilayer feedforward networks with a nonpolynomial
activation function can approximate any function", Neural Networks 6,
doi:10.1016/S0893-6080(05)80131-5; Hornik (1991), "Approximation capabilities of multilayer
feedforward networks", Neural Networks 4, doi:10.1016/0893-6080(91)90009-T.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn

from everynet.data.dataset import Batch, Data, History, Terms
from everynet.data.samplers import Made
from everynet.plot import Panel, panels
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.state import State
from everynet.recipes.training import Training
from everynet.system.seeds import generator

SPREAD = 3.0  # of initial weights and biases: bends all over the interval


class Shallow(nn.Module):
    """Networks with one hidden layer, side by side; each maps points of its own to numbers."""

    def __init__(self, nets: int, width: int, g: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.g = g
        self.w = nn.Parameter(SPREAD * torch.randn(nets, 2, width))
        self.b = nn.Parameter(SPREAD * (2 * torch.rand(nets, 1, width) - 1))
        self.c = nn.Parameter(torch.randn(nets, width, 1) / (10 * width**0.5))
        self.c_0 = nn.Parameter(torch.zeros(nets, 1))

    def forward(self, x: Float[Tensor, "nets points 2"]) -> Float[Tensor, "nets points"]:
        h = self.g(torch.baddbmm(self.b, x, self.w))
        return self.c_0 + (h @ self.c).squeeze(2)  # (1)


def unexplained_variance(
    y: Float[Tensor, "nets points"], f: Float[Tensor, "nets points"]
) -> Float[Tensor, " nets"]:
    """The share of the variance of f that each network does not explain."""
    y, f = y.double(), f.double()
    return (y - f).square().mean(1) / f.var(1, correction=0)  # (2)


def quadratic_floor(
    x: Float[Tensor, "nets points 2"], f: Float[Tensor, "nets points"]
) -> Float[Tensor, " nets"]:
    """The unexplained variance of the best quadratic of the inputs at these very points."""
    (first, second), f = x.double().unbind(2), f.double()
    one = torch.ones_like(first)
    terms = torch.stack([one, first, second, first**2, first * second, second**2], dim=2)
    best = torch.linalg.lstsq(terms, f[..., None], driver="gelsd").solution
    return unexplained_variance((terms @ best).squeeze(2), f)  # (3)


# -------- the network ends here; training and pictures follow --------

Function = Callable[[Float[Tensor, "*points 2"]], Float[Tensor, "*points"]]

TARGETS: dict[str, tuple[int, Function]] = {
    r"$\sin 2 \pi x$": (1, lambda x: (2 * math.pi * x[..., 0]).sin()),
    r"$|1 - 2\,|x||$": (1, lambda x: (1 - 2 * x[..., 0].abs()).abs()),
    r"$\sin \pi x_1 \cos \pi x_2$": (
        2,
        lambda x: (math.pi * x[..., 0]).sin() * (math.pi * x[..., 1]).cos(),
    ),
}
"""Functions on [-1, 1] and on its square: how many of the two inputs count, and the function."""
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "sine": torch.sin,
}
SQUARE = "square"
ACROSS = torch.linspace(-1, 1, 201)  # where the networks are drawn


@dataclass(frozen=True, kw_only=True)
class Functions(Training[Shallow]):
    """Learn each function of TARGETS from the same points, by `nets` networks of one width."""

    width: int = 4
    activation: str = "tanh"
    nets: int = 4
    points: int = 256

    def dataset(self) -> Data:
        draw = generator(self.seed)
        splits = {
            split: sample_targets(2 * torch.rand(count, 2, generator=draw) - 1, self.nets)
            for split, count in (("train", self.points), ("valid", 4 * self.points))
        }
        # A row is all points of one network: every update sees them in this order.
        return Data(splits, sampler=Made(lambda _step: splits["train"]), seed=self.seed)

    def model(self, data: Data) -> Shallow:
        g = torch.square if self.activation == SQUARE else ACTIVATIONS[self.activation]
        return Shallow(self.nets * len(TARGETS), self.width, g)

    def rate(self, step: int, history: History) -> float:
        """The last third is at a tenth of the rate."""
        return 1.0 if step < self.steps - self.steps // 3 else 0.1

    def objective(self, model: Shallow, batch: Batch) -> Terms:
        x, f = batch
        return {"error": (model(x) - f).square().mean(1).sum()}  # each network has its own


def sample_targets(x: Float[Tensor, "points 2"], nets: int) -> tuple[Tensor, Tensor]:
    """Points and values for `nets` networks a function; an input that does not count is 0."""
    made = []
    for inputs, f in TARGETS.values():
        counted = x * (torch.arange(2) < inputs)
        made += [(counted, f(counted))] * nets
    places, values = zip(*made, strict=True)
    return torch.stack(places), torch.stack(values)


@dataclass(frozen=True, kw_only=True)
class Widths(Experiment):
    """Train networks of each width on three functions, and evaluate them at other points."""

    meanings: ClassVar[Mapping[str, str]] = {
        "fall": "by what factor the error falls from the narrowest to the widest network, at least",
        "below_floor": (
            "how far below the best quadratic the widest networks come, as a factor, at least"
        ),
        "square_by_floor": (
            "the least error with squares as a multiple of the best quadratic's: not below 1"
        ),
        "best_square_by_floor": (
            "the best error with squares as a multiple of that floor, of the worst function"
        ),
    }

    widths: tuple[int, ...] = (4, 8, 16, 32, 64)
    """Hidden units, rising; the last is compared with the first."""
    beyond: int = 256
    """One width more, which is drawn and left out of the metrics."""
    activation: str = "tanh"
    """The g that is no polynomial: tanh, relu or sine."""
    nets: int = 4
    """Networks for each function and width, each from other first weights."""
    points: int = 256
    """Samples that are learned from."""
    steps: int = 1500
    """Updates by Adam on all samples; the last third is at a tenth of the rate."""
    lr: float = 0.02
    """Learning rate."""

    def __post_init__(self) -> None:
        super().__post_init__()
        rising = list(self.widths) == sorted(set(self.widths))
        self.require(len(self.widths) >= 2 and rising, "widths", "two numbers or more, rising")
        self.require(self.widths[0] >= 1, "widths", "positive")
        self.require(self.beyond > self.widths[-1], "beyond", f"above {self.widths[-1]}")
        self.at_least(1, "nets")
        self.require(self.points >= 10, "points", "at least 10, more than a quadratic has terms")
        self.at_least(3, "steps")
        self.above(0, "lr")
        self.one_of("activation", ACTIVATIONS)

    def cells(self) -> dict[str, Training[Any, Any]]:
        return {
            f"{activation}-{width}": Functions(
                width=width, activation=activation, nets=self.nets, points=self.points,
                steps=self.steps, eval_every=self.steps, lr=self.lr, seed=self.seed,
            )
            for activation, width in product((self.activation, SQUARE), (*self.widths, self.beyond))
        }  # fmt: skip

    def measure(
        self, cell: str, recipe: Training[Any, Any], state: State[Any, Any], data: Data
    ) -> dict[str, float | Tensor]:
        """Unexplained variance at validation points, and the first network of each along a line."""
        x, f = data.splits["valid"]
        line = torch.stack([ACROSS, torch.zeros_like(ACROSS)], dim=1)
        fits = state.model(sample_targets(line, self.nets)[0].to(x))[:: self.nets]
        return {"missed": unexplained_variance(state.model(x), f), "fits": fits}

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        first = next(iter(self.cells().values()))
        x, f = first.dataset().splits["valid"]
        return {"floor": quadratic_floor(x, f)[:: self.nets]}

    def errors(self, table: Table, activation: str) -> Float[Tensor, "targets widths nets"]:
        """Unexplained variance in the end; NaN if a network has diverged."""
        found = []
        for width in (*self.widths, self.beyond):
            cell = table.cells[f"{activation}-{width}"]
            end = cell.measured["missed"][-1]
            found.append(end if cell.diverged is None else torch.full_like(end, math.nan))
        errors: Tensor = torch.stack(found).unflatten(1, (len(TARGETS), -1)).transpose(0, 1)
        return errors

    def metrics(self, table: Table) -> dict[str, float]:
        curved, square = (self.errors(table, g) for g in (self.activation, SQUARE))
        typical = curved[:, : len(self.widths)].log().mean(2).exp()
        floor = table.result["floor"][:, None]
        return {
            "fall": (typical[:, 0] / typical[:, -1]).min().item(),
            "below_floor": (floor / typical[:, [-1]]).min().item(),
            "square_by_floor": (square / floor[..., None]).min().item(),
            "best_square_by_floor": (square.amin((1, 2)) / floor[:, 0]).max().item(),
        }

    def picture_fits(self, table: Table) -> Figure:
        """Networks of growing width over three functions (dashed), and units that square (pink).

        Wider networks come closer, while squaring units stay a quadratic however many they are.
        """
        shown = sorted({self.widths[0], self.widths[1], self.widths[-1]})
        lines = {f"width {width}": f"{self.activation}-{width}" for width in shown}
        lines |= {rf"$z^2$, width {self.widths[-1]}": f"{SQUARE}-{self.widths[-1]}"}
        line, fits = torch.stack([ACROSS, torch.zeros_like(ACROSS)], dim=1), []
        for row, (name, (inputs, f)) in enumerate(TARGETS.items()):
            found = {n: table.cells[cell].measured["fits"][-1, row] for n, cell in lines.items()}
            xlabel = "x" if inputs == 1 else r"$x_1$, along $x_2 = 0$"
            curves = {name: (ACROSS, y) for name, y in found.items()}
            truth = {"f": (ACROSS, f(line))}
            fits.append(
                Panel(curves, xlabel, "y(x)", guides=truth, title=f"f = {name}", ylim=(-1.6, 1.9))
            )
        return panels(*fits)

    def picture_error(self, table: Table) -> Figure:
        """Unexplained variance against width, both logarithmic, with the spread of the networks.

        Squaring units (orange) stay at or above the level of the best quadratic.
        """
        both = {g: self.errors(table, g) for g in (self.activation, SQUARE)}
        both[r"$z^2$"] = both.pop(SQUARE)
        size = torch.tensor((*self.widths, self.beyond), dtype=torch.float64)
        return panels(
            *(
                Panel(
                    {g: (size, each[row].log().mean(1).exp()) for g, each in both.items()},
                    bands={g: (each[row].amin(1), each[row].amax(1)) for g, each in both.items()},
                    levels={"best quadratic": float(table.result["floor"][row])},
                    log="xy",
                    xlabel="width (hidden units)",
                    ylabel="unexplained variance, validation",
                    title=f"f = {name}",
                )
                for row, name in enumerate(TARGETS)
            )
        )

    def tiny(self) -> Self:
        return replace(self, widths=(2, 4), beyond=8, nets=2, points=32, steps=6)


RECIPES = {
    "universal-approximation": Widths(
        goal="fall >= 3 and below_floor >= 100 and square_by_floor >= 0.9999", covers=("F9",)
    ),
}
