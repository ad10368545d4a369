"""Gradient descent on a quadratic: what the step size and the curvature do to it.

    E(theta)    = theta^T H theta / 2                                  (1)  least at 0
    theta(t)    = e^{-H t} theta_0,  d theta / dt = -grad E(theta)     (2)  gradient flow
    theta_{t+1} = theta_t - k grad E(theta_t)                          (3)  descent: its Euler step
    theta_t     = (I - k H)^t theta_0                                  (4)  descent on (1)
    rho         = max_i |1 - k lambda_i|                               (5)  factor on the error
    k_max       = 2 / lambda_max                                       (6)  above it rho > 1
    k_best      = 2 / (lambda_min + lambda_max)                        (7)  rho = (c-1)/(c+1) there
    k_star      = g^T g / (g^T H g),  g = grad E(theta)                (8)  the step of most gain
    gain        = (g^T g)^2 / (2 g^T H g)                              (9)  what it takes off E

theta are the parameters, theta_0 those at the start, k is the step size; lambda_i are the
eigenvalues of H and c = lambda_max / lambda_min is its condition. A step below k_best is slow along
the flattest direction, one above it swings across the steepest, one above k_max diverges. With
k_star at every point the root of E falls by (c-1)/(c+1) a step from the worst start. Where the
gradient is zero, all lambda_i > 0 is a minimum, all < 0 a maximum, both signs a saddle; any zero
decides nothing.

Cauchy (1847), "Methode generale pour la resolution des systemes d'equations simultanees", Comptes
rendus 25, p. 536; Goodfellow et al. (2016), "Deep Learning", section 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.paths import descent_paths, error_decay, landscapes, step_sizes
from everynet.recipes.recipe import Simulation

Energy = Callable[[Float[Tensor, "*batch dim"]], Float[Tensor, "*batch"]]


def quadratic(hessian: Float[Tensor, "dim dim"]) -> Energy:
    """The quadratic E with this Hessian."""
    return lambda theta: ((theta @ hessian) * theta).sum(dim=-1) / 2  # (1)


def gradient(energy: Energy, theta: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
    """The gradient of E at each point, by automatic differentiation."""
    with torch.enable_grad():
        point = theta.detach().requires_grad_()
        (slope,) = torch.autograd.grad(energy(point).sum(), point)
    return slope


def descend(
    energy: Energy, start: Float[Tensor, " dim"], rates: Float[Tensor, " rates"], steps: int
) -> Float[Tensor, "times rates dim"]:
    """The start and `steps` steps of descent from it, for each rate."""
    path = [start.expand(len(rates), -1)]
    for _ in range(steps):
        path.append(path[-1] - rates[:, None] * gradient(energy, path[-1]))  # (3)
    return torch.stack(path)


def closed_form(
    hessian: Float[Tensor, "dim dim"], start: Float[Tensor, " dim"], rate: float, steps: int
) -> Float[Tensor, "times dim"]:
    """Where descent is after 0, 1, ... steps."""
    once = torch.eye(len(start), dtype=start.dtype) - rate * hessian
    powers = [torch.linalg.matrix_power(once, t) for t in range(steps + 1)]
    return torch.stack(powers) @ start  # (4)


def flow(
    hessian: Float[Tensor, "dim dim"], start: Float[Tensor, " dim"], times: Float[Tensor, " times"]
) -> Float[Tensor, "times dim"]:
    """Where the gradient flow is at each time."""
    position: Tensor = torch.linalg.matrix_exp(-hessian * times[:, None, None]) @ start  # (2)
    return position


def factor(
    rates: Float[Tensor, " rates"], eigenvalues: Float[Tensor, " dim"]
) -> Float[Tensor, " rates"]:
    """The factor of a step on the error, after many steps."""
    return (1 - rates[:, None] * eigenvalues).abs().amax(dim=1)  # (5)


def boundary(energy: Energy, start: Float[Tensor, " dim"], steps: int) -> float:
    """The step size above which `steps` steps end higher than they began, by bisection."""

    def diverges(rate: float) -> bool:
        path = descend(energy, start, torch.tensor([rate], dtype=start.dtype), steps)
        return not bool(energy(path[-1, 0]) <= energy(start))  # NaN diverges too

    low = high = 1e-3
    while diverges(low):
        low /= 2
    while not diverges(high):
        high *= 2
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if diverges(middle) else (middle, high)
    return (low + high) / 2


def optimal_step(
    g: Float[Tensor, " dim"], hessian: Float[Tensor, "dim dim"]
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The step along -g that lowers a quadratic most, and by how much."""
    curvature = g @ hessian @ g
    if not curvature > 0:
        raise ValueError(
            f"g^T H g ({curvature:.3g}) must be positive, because along a direction that does not "
            "curve upwards E falls for ever; take a step of a given size instead"
        )
    step = g @ g / curvature  # (8)
    gain = (g @ g) ** 2 / (2 * curvature)  # (9)
    return step, gain


def line_search(
    energy: Energy, theta: Float[Tensor, " dim"], g: Float[Tensor, " dim"]
) -> Float[Tensor, ""]:
    """The step along -g where E is least, found from the sign of its slope alone."""
    low, high = torch.zeros_like(theta[0]), torch.ones_like(theta[0])
    while gradient(energy, theta - high * g) @ g > 0:
        high = 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        still_down = gradient(energy, theta - middle * g) @ g > 0
        low, high = (middle, high) if still_down else (low, middle)
    return (low + high) / 2


def critical_point(hessian: Float[Tensor, "dim dim"], tolerance: float = 1e-9) -> str:
    """The kind of a point where the gradient is zero, by its second derivatives."""
    eigenvalues = torch.linalg.eigvalsh(hessian)
    flat = eigenvalues.abs() <= tolerance * eigenvalues.abs().max().clamp(min=1)
    if flat.any():
        return "inconclusive"
    if (eigenvalues > 0).all():
        return "minimum"
    return "maximum" if (eigenvalues < 0).all() else "saddle"


LANDSCAPES: dict[str, tuple[str, Energy]] = {
    "$x^2 + y^2$": ("minimum", lambda p: p[..., 0] ** 2 + p[..., 1] ** 2),
    "$-x^2 - y^2$": ("maximum", lambda p: -(p[..., 0] ** 2) - p[..., 1] ** 2),
    "$x^2 - y^2$": ("saddle", lambda p: p[..., 0] ** 2 - p[..., 1] ** 2),
    "$x^2 + y^3$": ("inconclusive", lambda p: p[..., 0] ** 2 + p[..., 1] ** 3),
}
"""Functions whose gradient is zero at the origin, and what their Hessian there says."""


@dataclass(frozen=True, kw_only=True)
class Quadratic(Simulation):
    """Descend a quadratic whose axes are turned at random, and measure each law above."""

    meanings: ClassVar[Mapping[str, str]] = {
        "iterate_error": "how far the steps are from the closed form, as a part of it",
        "boundary_error": "how far the largest step that converges is from 2 / lambda_max",
        "factor_error": "how far the measured factor on the error is from its formula",
        "contraction_error": "how far the best step is from the factor (c - 1) / (c + 1)",
        "step_error": "how far the step of most gain is from the one that a search finds",
        "gain_error": "how far what it gains is from its formula",
        "wrong_labels": "critical points whose kind was found wrongly",
    }

    dimensions: int = 10
    """Length of theta."""
    condition: float = 10.0
    """Largest over smallest eigenvalue of H; they lie evenly on a logarithmic scale from 1."""
    rates: tuple[float, ...] = (0.15, 1.7, 2.1)
    """Step sizes that are drawn, in units of 1 / lambda_max."""
    steps: int = 40
    """Steps of each path that is drawn."""
    long: int = 300
    """Steps after which the factor on the error and the boundary are measured."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(2, "dimensions")  # a path needs a plane
        self.at_least(1, "steps")
        self.at_least(20, "long")
        self.require(1 < self.condition < 1e6, "condition", "above 1 and below 1e6")
        self.require(all(0 < r < 4 for r in self.rates), "rates", "numbers between 0 and 4")
        self.require(len(self.rates) >= 1, "rates", "at least one number")

    def eigenvalues(self) -> Float[Tensor, " dim"]:
        exponents = torch.linspace(0, 1, self.dimensions, dtype=torch.float64)
        return self.condition**exponents

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        size, spectrum = (self.dimensions, self.dimensions), self.eigenvalues()
        axes, _ = torch.linalg.qr(torch.randn(size, generator=generator, dtype=torch.float64))
        hessian = axes @ spectrum.diag() @ axes.T
        energy = quadratic(hessian)
        start = axes @ spectrum.rsqrt()  # as much energy along each axis
        rates = torch.tensor(self.rates, dtype=torch.float64) / spectrum[-1]
        best = 2 / (spectrum[0] + spectrum[-1])  # (7)
        sweep = torch.linspace(0.02, 2.2, 45, dtype=torch.float64) / spectrum[-1]
        sweep = torch.cat([sweep, best[None]]).sort().values
        late = descend(energy, start, sweep, self.long)[-11:].norm(dim=-1)
        times = torch.linspace(0, 5, 200, dtype=torch.float64) / spectrum[0]
        closed = [closed_form(hessian, start, rate, self.steps) for rate in rates.tolist()]
        return {
            "axes": axes,
            "rates": rates,
            "paths": descend(energy, start, rates, self.steps),
            "closed_form": torch.stack(closed, dim=1),
            "flow": flow(hessian, start, times),
            "sweep": sweep,
            "factors": (late[-1] / late[0]) ** 0.1,
            "best": best,
            "boundary": torch.tensor(boundary(energy, start, self.long), dtype=torch.float64),
            **steepest(hessian, axes[:, 0] / spectrum[0] + axes[:, -1] / spectrum[-1]),
            "labels": torch.tensor([true == found for true, found in labels().values()]),
        }

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        spectrum = self.eigenvalues()
        limit = 2 / spectrum[-1]  # (6)
        slowest = (self.condition - 1) / (self.condition + 1)
        paths, closed, sweep = result["paths"], result["closed_form"], result["sweep"]
        at_best = result["factors"][sweep == result["best"]]
        fallen = (result["energies"][1:] / result["energies"][:-1]).sqrt()
        return {
            "iterate_error": ((paths - closed).norm(dim=-1) / closed.norm(dim=-1)).max().item(),
            "boundary_error": (result["boundary"] / limit - 1).abs().item(),
            "factor_error": _worst(result["factors"], factor(sweep, spectrum)),
            "contraction_error": _worst(
                torch.cat([at_best, fallen]), torch.tensor(slowest, dtype=torch.float64)
            ),
            "step_error": _worst(result["optimal_steps"], result["searched_steps"]),
            "gain_error": _worst(result["gains"], -result["energies"].diff()),
            "wrong_labels": float((~result["labels"]).sum()),
        }

    def named_paths(self, result: Mapping[str, Tensor]) -> dict[str, Float[Tensor, "times dim"]]:
        """The path of each step size, by a name that says what it does."""
        plane = result["axes"][:, [0, -1]]
        return {
            rf"$k = {rate:g} / \lambda_{{\mathrm{{max}}}}$: {regime(path @ plane)}": path
            for rate, path in zip(self.rates, result["paths"].unbind(1), strict=True)
        }

    def picture_paths(self, result: Mapping[str, Tensor]) -> Figure:
        """Gradient descent on one quadratic bowl, a panel for each step size.

        A small step creeps to the star, a larger one swings across the valley, and one beyond 2
        over the largest curvature diverges.
        """
        plane = result["axes"][:, [0, -1]]
        paths = {name: path @ plane for name, path in self.named_paths(result).items()}
        return descent_paths(
            quadratic(self.eigenvalues()[[0, -1]].diag()),
            paths,
            guides={next(iter(paths)): result["flow"] @ plane},
            window=(-0.5, 1.4, -0.8, 0.8),
            xlabel="along the flattest direction of E",
            ylabel="along the steepest",
        )

    def picture_step_sizes(self, result: Mapping[str, Tensor]) -> Figure:
        """The factor on the error at each step against the step size, measured and predicted.

        It is least where the steepest and the flattest direction are equally slow.
        """
        sweep, top = result["sweep"], self.eigenvalues()[-1]
        predicted, best = factor(sweep, self.eigenvalues()), float(result["best"] * top)
        return step_sizes(sweep * top, result["factors"], predicted, best=best)

    def picture_error(self, result: Mapping[str, Tensor]) -> Figure:
        """The distance from the minimum (logarithmic) by step, a line for each step size.

        It ends on the predicted slopes (dashed): downwards where the step converges, upwards where
        it diverges.
        """
        paths = self.named_paths(result)
        factors = factor(result["rates"], self.eigenvalues()).tolist()
        return error_decay(
            {name: path.norm(dim=-1) for name, path in paths.items()},
            factors=dict(zip(paths, factors, strict=True)),
            ylabel="distance from the minimum",
        )

    def picture_critical_points(self, result: Mapping[str, Tensor]) -> Figure:
        """Four functions whose gradient is zero at the origin, and what their Hessian says.

        Red lies above the origin and blue below; where an eigenvalue is zero, the Hessian decides
        nothing.
        """
        kinds = {formula: found for formula, (_, found) in labels().items()}
        return landscapes({f"{n}: {kind}": LANDSCAPES[n][1] for n, kind in kinds.items()})

    def tiny(self) -> Self:
        return replace(super().tiny(), dimensions=3, long=30)


def steepest(
    hessian: Float[Tensor, "dim dim"], theta: Float[Tensor, " dim"], steps: int = 10
) -> dict[str, Float[Tensor, " steps"]]:
    """Descent with the best step at every point, beside a search that does not know the formula."""
    energy = quadratic(hessian)
    energies, rows = [energy(theta)], []
    for _ in range(steps):
        g = gradient(energy, theta)
        step, gain = optimal_step(g, hessian)
        rows.append(torch.stack([step, line_search(energy, theta, g), gain]))
        theta = theta - step * g
        energies.append(energy(theta))
    optimal, searched, gains = torch.stack(rows, dim=1)
    return {
        "energies": torch.stack(energies),
        "optimal_steps": optimal,
        "searched_steps": searched,
        "gains": gains,
    }


def labels() -> dict[str, tuple[str, str]]:
    """For each of LANDSCAPES, what is true at the origin and what its Hessian there says."""
    origin = torch.zeros(2, dtype=torch.float64)
    return {
        formula: (true, critical_point(torch.autograd.functional.hessian(height, origin)))
        for formula, (true, height) in LANDSCAPES.items()
    }


def regime(path: Float[Tensor, "times 2"]) -> str:
    """Whether a path creeps, swings or diverges, along the flattest and steepest direction."""
    if path[-1].norm() > path[0].norm():
        return "diverges"
    swings = bool((path[1:, 1] * path[:-1, 1] < 0).any())
    return "swings and converges" if swings else "creeps"


def _worst(values: Tensor, truth: Tensor) -> float:
    """The largest relative error."""
    return (values / truth - 1).abs().max().item()


RECIPES = {
    "gradient-descent": Quadratic(
        goal="boundary_error <= 0.05 and contraction_error <= 0.01 and iterate_error <= 1e-10",
        covers=("O21", "O24", "M11"),
    ),
}
