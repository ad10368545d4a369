"""Backpropagation: one walk back through an expression graph gives the gradient by every input.

    E       = (sum_k v_k tanh(w_k x + b_k) - t)^2                     (1)  perceptron of two layers
    d_ij    = dy_i / dy_j                                             (2)  slope of an operation
    dE/dy_j = sum over the uses i of y_j of (dE/dy_i) d_ij            (3)  reverse mode, from E back
    dy_i/dp = sum over the arguments j of y_i of d_ij (dy_j/dp)       (4)  forward mode, from p on
    D_h     = (E(p + h) - E(p - h)) / 2h                              (5)  central difference
    D_h - dE/dp = h^2 E''' / 6 + O(h^4)                               (6)  truncation
    rho     = eps sqrt(sum_i (y_i dE/dy_i)^2 / 12)                    (7)  rounding of E
    rounding of D_h = rho / (sqrt(2) h)                               (8)  of two evaluations
    h*      = (3 rho / sqrt(2) |E'''|)^{1/3}                          (9)  where (6) + (8) is least

The nodes y_i of the graph are the N operations that compute E and the values that they start from;
an edge leads from an argument y_j to the operation y_i that uses it, and d_ij, which is known once
the values are, stands on it. A pass of either mode makes one product for each of the M edges.
Reverse mode needs one pass for all derivatives of one output, forward mode one pass for each of the
n parameters p, and (5) two evaluations of all N operations for each. The primes of E are its
derivatives by one parameter, eps is the distance from 1 to the next number, and k counts the units.
An operation rounds its value by at most eps |y_i| / 2 either way, taken as noise, and reverse mode
carries that to E, which was its first use; (7) sums over the operations that p reaches, because the
others round alike in both evaluations of (5).

Linnainmaa (1976), "Taylor expansion of the accumulated rounding error", doi:10.1007/BF01931367;
Rumelhart, Hinton, Williams (1986), "Learning representations by back-propagating errors",
doi:10.1038/323533a0; Griewank, Walther (2008), "Evaluating Derivatives",
doi:10.1137/1.9780898717761, chapter 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self, TypeAlias

import numpy as np
import torch
from jaxtyping import Float64
from matplotlib.figure import Figure
from torch import Tensor

from everynet import autodiff as ad
from everynet.autodiff.arraylike import Value
from everynet.autodiff.graph import Var
from everynet.autodiff.steps import Story
from everynet.data.dataset import Spec
from everynet.plot.film import Film
from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.zoo.feedforward.pictures.expression import (
    Shown,
    expression_graphs,
    number,
    walk_frames,
)

EPS = float(np.finfo(np.float64).eps)
Edges: TypeAlias = dict[Var, list[tuple[Var, float]]]
"""Each operation, in the order of computing, with its arguments and the slope by each."""


def perceptron_error(parameters: Sequence[Value], x: Value, t: Value) -> Value:
    """The squared error of the output for t; `parameters` are w, b and v of one unit after another.

    They may be Vars, tensors of torch or numbers: what is computed is a graph of their kind.
    """
    tanh = torch.tanh if isinstance(parameters[0], Tensor) else ad.tanh
    units = [tuple(parameters[at : at + 3]) for at in range(0, len(parameters), 3)]
    first, *others = [v * tanh(x * w + b) for w, b, v in units]
    return (sum(others, start=first) - t) ** 2  # (1)


def named(values: Sequence[float]) -> list[Var]:
    """The parameters as leaves of a graph, which are called w1, b1, v1, w2, ..."""
    return [Var(value, name=f"{'wbv'[i % 3]}{i // 3 + 1}") for i, value in enumerate(values)]


def slopes(y: Var) -> Edges:
    """The edges of the graph that computed y."""
    story = Story(y)
    return {
        var: [(f.arg, float(f.slope)) for f in story.flows[var] if isinstance(f.arg, Var)]  # (2)
        for var in reversed(story.order)
    }


def reverse_mode(edges: Edges) -> tuple[dict[Var, float], int]:
    """The derivative of the last node by every node, and how many products that took."""
    gradient, products = {next(reversed(edges)): 1.0}, 0
    for y in reversed(edges):
        for argument, slope in edges[y]:
            gradient[argument] = gradient.get(argument, 0.0) + gradient[y] * slope  # (3)
            products += 1
    return gradient, products


def forward_mode(edges: Edges, p: Var) -> tuple[dict[Var, float], int]:
    """The derivative of every node by p, and how many products that took."""
    tangent, products = {a: float(a is p) for some in edges.values() for a, _ in some}, 0
    for y, arguments in edges.items():
        tangent[y] = sum(slope * tangent[argument] for argument, slope in arguments)  # (4)
        products += len(arguments)
    return tangent, products


def central_differences(
    values: Float64[Tensor, " parameters"], x: float, t: float, h: float
) -> Float64[Tensor, " parameters"]:
    """The difference quotient by each parameter."""
    around = h * torch.eye(len(values), dtype=torch.float64)
    ahead, behind = (perceptron_error([*(values + s).T], x, t) for s in (around, -around))
    quotients: Tensor = (ahead - behind) / (2 * h)  # (5)
    return quotients


def third_derivatives(values: Sequence[float], x: float, t: float) -> Float64[Tensor, " n"]:
    """E''' by each parameter, from the engine: the gradient of a gradient of a gradient."""

    def along(i: int) -> float:
        return float(
            ad.grad(ad.grad(ad.grad(
                lambda p: perceptron_error([*values[:i], p, *values[i + 1 :]], x, t)
            )))(values[i])
        )  # fmt: skip

    return doubles(along(i) for i in range(len(values)))


def doubles(values: Iterable[float]) -> Float64[Tensor, " n"]:
    """A tensor of some numbers."""
    return torch.tensor([*values], dtype=torch.float64)


def truncation(h: Tensor, third: float) -> Tensor:
    """The error of a central difference without rounding, to first order."""
    return h**2 * abs(third) / 6  # (6)


def rounding_of_error(edges: Edges, p: Var) -> float:
    """The deviation of E that rounding makes in the operations that p reaches."""
    gradient, tangent = reverse_mode(edges)[0], forward_mode(edges, p)[0]
    reached = [float(y) * gradient[y] for y in edges if tangent[y] != 0.0]
    return EPS * float(np.linalg.norm(reached)) / 12**0.5  # (7)


def rounding(h: Tensor, rho: float) -> Tensor:
    """The deviation that rounding makes in a central difference."""
    return rho / (2**0.5 * h)  # (8)


def best_step(rho: float, third: float) -> float:
    """The step at which truncation and rounding together are least."""
    return float(np.cbrt(3 * rho / (2**0.5 * abs(third))))  # (9)


# -------- the network ends here; training and pictures follow --------

FAR = 30.0  # so many times above or below h* one of the two errors is alone
RATE, HOLD = 1.0, 4  # frames of a film in a second, frames of its end
RANGE = (1e-12, 0.05)  # steps between which the slopes are fitted: (6) and (7) hold there


@dataclass(frozen=True, kw_only=True)
class Backpropagation(Simulation):
    """Find the gradient of a small perceptron in four ways, and count what each costs."""

    writes: ClassVar[str] = "film"
    meanings: ClassVar[Mapping[str, str]] = {
        "torch_difference": "largest difference of the engine's gradient from torch.autograd's",
        "forward_difference": "of forward mode's from the engine's",
        "central_difference": "of central differences at their best step from the engine's",
        "truncation_slope": "of log error against log step above the best step; 2 predicted",
        "rounding_slope": "the same below the best step; -1 predicted",
        "slope_error": "how far the two slopes are from what is predicted, the larger one",
        "rounding_share": "the error of small steps over (8), which takes the coarsest rounding",
        "best_step": "the step with the least error over that predicted by (9)",
        "passes": "of forward mode for one of reverse mode, in products, in the largest perceptron",
        "forward_cost": "operations of its gradient by forward mode, in evaluations of E",
        "reverse_cost": "the same by reverse mode",
    }

    units: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    """Hidden units of the perceptrons whose operations are counted."""
    hidden: int = 16
    """Hidden units of the perceptron whose derivatives are compared."""
    steps: int = 44
    """Steps h = 1/2, 1/4, 1/8, ... of the differences."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(len(self.units) >= 1, "units", "one number or more")
        self.require(all(1 <= n <= 300 for n in self.units), "units", "numbers from 1 to 300")
        self.within(2, 300, "hidden")
        self.within(40, 50, "steps")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        most = 3 * max(self.hidden, *self.units)
        drawn = torch.randn(most, generator=generator, dtype=torch.float64)
        values, x, t = drawn[: 3 * self.hidden], 0.7, 1.0
        leaves = named(values.tolist())
        y = perceptron_error(leaves, x, t)
        y.backward()
        leaf = [value.clone().requires_grad_() for value in values]
        theirs = torch.autograd.grad(perceptron_error(leaf, x, t), leaf)
        edges = slopes(y)
        h = 0.5 ** torch.arange(1.0, self.steps + 1, dtype=torch.float64)
        return {
            "parameters": values,
            "input": doubles([x, t]),
            "gradient": doubles(float(p.grad) for p in leaves),
            "torch": torch.stack(theirs),
            "forward": doubles(forward_mode(edges, p)[0][y] for p in leaves),
            "steps": h,
            "differences": torch.stack([central_differences(values, x, t, s) for s in h.tolist()]),
            "third": third_derivatives(values.tolist(), x, t),
            "rounding": doubles(rounding_of_error(edges, p) for p in leaves),
            "counts": torch.tensor([count_operations(n, drawn.tolist(), x, t) for n in self.units]),
        }

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        gradient, errors, h = result["gradient"], difference_errors(result), result["steps"]
        rho = size(result["rounding"]).item()
        best = best_step(rho, size(result["third"]).item())
        above = (h > FAR * best) & (h < RANGE[1])
        below = (h < best / FAR) & (h > RANGE[0])
        two, minus_one = (log_slope(h[part], errors[part]) for part in (above, below))
        _, operations, forth, back = result["counts"][-1].tolist()
        return {
            "torch_difference": (result["torch"] - gradient).abs().max().item(),
            "forward_difference": (result["forward"] - gradient).abs().max().item(),
            "central_difference": (result["differences"] - gradient).abs().amax(1).min().item(),
            "truncation_slope": two,
            "rounding_slope": minus_one,
            "slope_error": max(abs(two - 2), abs(minus_one + 1)),
            "rounding_share": (errors / rounding(h, rho))[below].mean().item(),
            "best_step": h[errors.argmin()].item() / best,
            "passes": (forth - operations) / (back - operations),
            "forward_cost": forth / operations,
            "reverse_cost": back / operations,
        }

    def picture_perceptron(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, str]]:
        """A perceptron of two hidden units as a graph: operations, values (blue), slopes (edges).

        Orange is the gradient of the error: at each node the sum, over the edges that leave it, of
        the gradient at their end times their slope. At x two paths meet: {sum}.
        """
        edges = two_units(result)
        gradient, _ = reverse_mode(edges)
        x = next(node for node in gradient if node.name == "x")
        parts = [gradient[y] * s for y, some in edges.items() for a, s in some if a is x]
        total = f"{parts[0]:.2f} + {parts[1]:.2f} = {gradient[x]:.2f}".replace("+ -", "- ")
        return expression_graphs(Shown(edges, gradient)), {"sum": total}

    def picture_modes(self, result: Mapping[str, Tensor]) -> Figure:
        """The graph of e = (a + b)(b + 1) at a = 2, b = 1, in reverse mode and in forward mode.

        One pass back gives the derivative of e by every node, one pass on that of every node by b.
        """
        a, b = Var(2.0, name="a"), Var(1.0, name="b")
        edges = slopes((a + b) * (b + 1.0))
        return expression_graphs(
            Shown(edges, reverse_mode(edges)[0], "reverse mode: de / d(node)"),
            Shown(edges, forward_mode(edges, b)[0], "forward mode: d(node) / db", back=False),
        )

    def picture_steps(self, result: Mapping[str, Tensor]) -> Figure:
        """Error of central differences against their step, and the cost of a whole gradient.

        Left: large steps truncate and small ones round, as predicted (dashed). Right: reverse mode
        costs the same for any number of parameters, the others grow with it.
        """
        h, third, rho = (
            result["steps"],
            size(result["third"]).item(),
            size(result["rounding"]).item(),
        )
        shown, best = (truncation(h, third), rounding(h, rho)), best_step(rho, third)
        digit, power = f"{best:.0e}".replace("e-0", "e-").split("e")
        least = difference_errors(result).min().item() / 10
        close = Panel(
            {"measured, root mean square": (h, difference_errors(result))},
            guides={
                r"truncation $h^2 |E'''| / 6$": (h[shown[0] > least], shown[0][shown[0] > least]),
                r"rounding $\rho / \sqrt{2} h$": (h[shown[1] > least], shown[1][shown[1] > least]),
            },
            marks={rf"$h^* = {digit} \times 10^{{{power}}}$": best},
            xlabel="step h",
            ylabel="difference from the gradient",
            log="xy",
            scatter=True,
            legend="below",
        )
        parameters, operations, forth, back = result["counts"].double().T
        cost = Panel(
            {
                "reverse mode": (parameters, back / operations),
                "forward mode": (parameters, forth / operations),
                "central differences": (parameters, 2 * parameters),
            },
            xlabel="parameters",
            ylabel="operations / those of one evaluation of E",
            log="xy",
            legend="below",
        )
        return panels(close, cost)

    def sample(self, result: Mapping[str, Tensor], spec: Spec, generator: torch.Generator) -> Film:
        """A perceptron of two hidden units: values come forwards, then the gradient comes back."""
        edges = two_units(result)
        whole = Shown(edges, reverse_mode(edges)[0])
        return Film(walk_frames(whole, walk(edges)), RATE, hold=HOLD)

    def tiny(self) -> Self:
        return replace(self, units=self.units[:2], hidden=2)


def two_units(result: Mapping[str, Tensor]) -> Edges:
    """The graph of a perceptron of two hidden units, from the first numbers of a result."""
    x, t = (Var(v, name=n) for v, n in zip(result["input"].tolist(), "xt", strict=True))
    return slopes(perceptron_error(named(result["parameters"][:6].tolist()), x, t))


def walk(edges: Edges) -> Iterator[tuple[Shown, str]]:
    """Both passes operation by operation: what is known after each, and what it computed."""
    leaves = {a for some in edges.values() for a, _ in some if a.creator is None}
    values, found = leaves, dict[Var, float]()
    yield Shown(edges, {}, values=leaves), "forwards, from the numbers that are given"
    for y in edges:
        values = {*values, y}
        name, given = Shown(edges, {}).lines(y)[0], [number(float(a)) for a, _ in edges[y]]
        term = f" {name} ".join(given) if len(given) > 1 else f"{name} of {given[0]}"
        yield Shown(edges, {}, values=values, now=y), f"forwards: {term} = {number(float(y))}"
    found[y] = 1.0
    yield Shown(edges, dict(found)), "back, from the gradient of E by itself, which is 1"
    for y in reversed(edges):
        words = []
        for argument, slope in edges[y]:
            product = f"{number(found[y])} · {number(slope)}"
            if argument in found:
                product = f"{number(found[argument])} + {product}"
            found[argument] = found.get(argument, 0.0) + found[y] * slope
            words.append(f"{product} = {number(found[argument])}")
        yield Shown(edges, dict(found), now=y), "back: " + ",  ".join(words)


def count_operations(units: int, drawn: Sequence[float], x: float, t: float) -> list[int]:
    """Parameters, operations of E, and those of its gradient by forward and by reverse mode."""
    leaves = named(drawn[: 3 * units])
    edges = slopes(perceptron_error(leaves, x, t))
    forth = sum(forward_mode(edges, p)[1] for p in leaves)
    return [len(leaves), len(edges), len(edges) + forth, len(edges) + reverse_mode(edges)[1]]


def size(values: Float64[Tensor, "*rows parameters"]) -> Float64[Tensor, "*rows"]:
    """The root mean square over the parameters."""
    return values.square().mean(-1).sqrt()


def difference_errors(result: Mapping[str, Tensor]) -> Float64[Tensor, " steps"]:
    """The root mean square error of the differences, by step."""
    return size(result["differences"] - result["gradient"])


def log_slope(x: Float64[Tensor, " points"], y: Float64[Tensor, " points"]) -> float:
    """The slope of the line through the logarithms."""
    return float(np.polyfit(x.log().numpy(), y.log().numpy(), 1)[0])


RECIPES = {
    "backprop": Backpropagation(
        goal="torch_difference <= 1e-13 and slope_error <= 0.1",
        covers=("A1", "A2", "A4", "A5"),
    ),
}
