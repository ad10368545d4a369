"""A population with a cycle of its own: Van der Pol's oscillator.

    f(y) = c (y_2, mu (1 - y_1^2) y_2 - y_1)                   (1)  gains inside, loses outside

dy/dt = f(y) is made by feedback as in `dynamics`.

van der Pol (1926), "On relaxation-oscillations", Philosophical Magazine 2; Eliasmith
and Anderson (2003), "Neural Engineering", MIT Press, chapter 8; Eliasmith (2005), "A
unified approach to building and controlling spiking attractor networks", Neural Computation 17,
doi:10.1162/0899766053630332.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Pictures
from everynet.zoo.population.dynamics import (
    PopulationDynamics,
    cycle,
    solved,
)
from everynet.zoo.population.ensemble import Ensemble, Function
from everynet.zoo.population.pictures.attractor import orbits

WHENCE = ("inside", "outside")


def van_der_pol(mu: float, speed: float) -> Function:
    """An oscillator that gains inside its cycle and loses outside; `speed` is c."""

    def flow(y: Float[Tensor, "points 2"]) -> Float[Tensor, "points 2"]:
        x, w = y.T
        return speed * torch.stack([w, mu * (1 - x**2) * w - x], dim=1)  # (1)

    return flow


@dataclass(frozen=True, kw_only=True)
class VanDerPol(PopulationDynamics):
    """A limit cycle that a population reaches from inside and from outside."""

    captions: ClassVar[Mapping[str, str]] = {
        "cycle": (
            "A population of rates and one of spikes, each started inside and outside the limit "
            "cycle (dashed): all of them wind onto it and then go round on it."
        ),
        "trajectory": (
            "The first coordinate over time from a start inside: it grows until the cycle is "
            "reached, and the populations keep its shape and drift slowly in time (truth dashed)."
        ),
    }
    meanings: ClassVar[Mapping[str, str]] = {
        "period": "time of one round of the true system, in seconds",
        "height": "how far the true system swings",
        "*_period_error": (
            "how far the period is from the true one, as a part of it, by rates or spikes"
        ),
        "*_height_error": "the same of the swing",
    }

    duration: float = 10.0
    """Length of a run (s)."""
    mu: float = 1.0
    """Strength of gain and loss."""
    speed: float = 6.0
    """Units of the system's time that pass in a second."""
    radius: float = 3.5
    """How far from the origin the population represents points."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(0 < self.mu < math.inf, "mu", "a positive number")
        self.require(0 < self.speed < math.inf, "speed", "a positive number")
        self.require(2 < self.radius < math.inf, "radius", "above 2, the height of the cycle")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        flow, times = van_der_pol(self.mu, self.speed), self.times()
        plane = Ensemble(self.neurons, 2, radius=self.radius, generator=generator)
        inside, outside = torch.tensor([[0.3, 0.0], [-2.0, 2.2]], dtype=torch.float64)
        found = {"times": times, "truth": solved(flow, inside, times)}
        for name, population in self.populations(plane, flow).items():
            for whence, start in (("inside", inside), ("outside", outside)):
                run = population.simulate(
                    0.0, self.duration, self.dt, start=start, generator=generator
                )
                found[f"{name}_{whence}"] = run.values
        return found

    def settled(self, values: Float[Tensor, "steps 2"]) -> tuple[float, float]:
        """Period (s) and height of the last two thirds."""
        return cycle(values[len(values) // 3 :, 0], self.dt, 1.0)

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        period, height = self.settled(result["truth"])
        figures = {"period": period, "height": height}
        for name in ("rate", "spiking"):
            found = torch.tensor([self.settled(result[f"{name}_{w}"]) for w in WHENCE])
            worst = (found / torch.tensor([period, height]) - 1).abs().amax(0)
            figures[f"{name}_period_error"], figures[f"{name}_height_error"] = worst.tolist()
        return figures

    def pictures(self, result: Mapping[str, Tensor]) -> Pictures:
        t, truth = result["times"], result["truth"]
        ways = {
            f"{name}, from {whence}": result[f"{name}_{whence}"]
            for name in ("rate", "spiking")
            for whence in WHENCE
        }
        early, period = t < 0.6 * self.duration, self.settled(truth)[0]
        last = math.ceil(period / self.dt) if math.isfinite(period) else len(truth)
        lines = {name: (t[early], way[early, 0]) for name, way in list(ways.items())[::2]}
        return {
            "cycle": orbits(ways, names=("$y_1$", "$y_2$"), guide=truth[-last:]),
            "trajectory": panels(
                Panel(
                    lines,
                    "time (s)",
                    "$y_1$",
                    f"Van der Pol, {self.neurons} neurons",
                    guides={"truth": (t[early], truth[early, 0])},
                    ylim=(-2.6, 3.6),
                    legend="upper left",
                ),
                width=7.0,
            ),
        }

    def tiny(self) -> Self:
        return replace(self, neurons=120, duration=1.2, dt=0.002, speed=20.0)


# Seeds 0, 1, 2: period error by rates 0.019, 0.001, 0.007, by spikes 0.000, 0.018, 0.010; height
# 0.008, 0.008, 0.007 and 0.001, 0.017, 0.003.
RECIPES = {
    "van-der-pol": VanDerPol(
        goal="rate_period_error <= 0.03 and spiking_period_error <= 0.03"
        " and rate_height_error <= 0.03 and spiking_height_error <= 0.03",
        covers=("P7", "P8"),
    ),
}
