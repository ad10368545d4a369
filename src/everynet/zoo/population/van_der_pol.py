"""A population with a limit cycle: Van der Pol's oscillator.

    f(y) = c (y_2, mu (1 - y_1^2) y_2 - y_1)                   (1)  gains inside, loses outside

Feedback makes dy/dt = f(y), as in `dynamics`; c is the speed and mu the strength of the damping.

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
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.panels import Panel, panels
from everynet.zoo.population.dynamics import PopulationDynamics, period_and_amplitude, solve_ode
from everynet.zoo.population.ensemble import Ensemble, Function
from everynet.zoo.population.pictures.population import orbits

STARTS = {"inside": (0.3, 0.0), "outside": (-2.0, 2.2)}


def van_der_pol(mu: float, speed: float) -> Function:
    """The flow of an oscillator that gains energy inside its cycle and loses it outside."""

    def flow(y: Float[Tensor, "points 2"]) -> Float[Tensor, "points 2"]:
        x, w = y.T
        return speed * torch.stack([w, mu * (1 - x**2) * w - x], dim=1)  # (1)

    return flow


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class VanDerPol(PopulationDynamics):
    """A limit cycle that a population reaches from inside and from outside."""

    meanings: ClassVar[Mapping[str, str]] = {
        "period": "period of the true system, in seconds",
        "height": "amplitude of the true system",
        "*_period_error": "relative error of the period, in rates or spikes",
        "*_height_error": "relative error of the amplitude, in rates or spikes",
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
        self.above(0, "mu", "speed")
        self.require(2 < self.radius < math.inf, "radius", "above 2, the amplitude of the cycle")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        flow, times = van_der_pol(self.mu, self.speed), self.times()
        plane = Ensemble(self.neurons, 2, radius=self.radius, generator=generator)
        starts = {name: torch.tensor(y, dtype=torch.float64) for name, y in STARTS.items()}
        result = {"times": times, "truth": solve_ode(flow, starts["inside"], times)}
        for name, population in self.populations(plane, flow).items():
            for where, start in starts.items():
                run = population.simulate(
                    0.0, self.duration, self.dt, start=start, generator=generator
                )
                result[f"{name}_{where}"] = run.values
        return result

    def measure_cycle(self, values: Float[Tensor, "steps 2"]) -> tuple[float, float]:
        """Period (s) and amplitude of the last two thirds, when the transient is over."""
        return period_and_amplitude(values[len(values) // 3 :, 0], self.dt, 1.0)

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        period, height = self.measure_cycle(result["truth"])
        metrics = {"period": period, "height": height}
        for name in ("rate", "spiking"):
            measured = [self.measure_cycle(result[f"{name}_{where}"]) for where in STARTS]
            errors = (torch.tensor(measured) / torch.tensor([period, height]) - 1).abs().amax(0)
            metrics[f"{name}_period_error"], metrics[f"{name}_height_error"] = errors.tolist()
        return metrics

    def picture_cycle(self, result: Mapping[str, Tensor]) -> Figure:
        """State space of a rate and of a spiking population, from inside and from outside.

        Dashes are one round of the true limit cycle, onto which the populations wind.
        """
        truth, period = result["truth"], self.measure_cycle(result["truth"])[0]
        last = math.ceil(period / self.dt) if math.isfinite(period) else len(truth)
        ways = {
            f"{name}, from {start}": result[f"{name}_{start}"]
            for name in ("rate", "spiking")
            for start in STARTS
        }
        return orbits(ways, names=("$y_1$", "$y_2$"), guide=truth[-last:])

    def picture_trajectory(self, result: Mapping[str, Tensor]) -> Figure:
        """The first coordinate over time from a start inside the cycle, beside the dashed truth.

        It grows until the cycle is reached; then the populations drift slowly in time.
        """
        early = result["times"] < 0.6 * self.duration
        t = result["times"][early]
        names = {name: f"{name}_inside" for name in ("rate", "spiking")}
        panel = Panel(
            {f"{name}, from inside": (t, result[key][early, 0]) for name, key in names.items()},
            "time (s)", "$y_1$", f"Van der Pol, {self.neurons} neurons",
            guides={"truth": (t, result["truth"][early, 0])}, ylim=(-2.6, 3.6),
            legend="upper left",
        )  # fmt: skip
        return panels(panel, width=7.0)

    def tiny(self) -> Self:
        return replace(self, neurons=120, duration=1.2, dt=0.002, speed=20.0)


RECIPES = {
    "van-der-pol": VanDerPol(
        goal="rate_period_error <= 0.03 and spiking_period_error <= 0.03"
        " and rate_height_error <= 0.03 and spiking_height_error <= 0.03",
        covers=("P7", "P8"),
    ),
}
