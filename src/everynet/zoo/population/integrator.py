"""A population that adds up what comes in and holds the sum; how activity and current settle.

    tau_s ds/dt = -s + C                                       (1)  current of a synapse
    tau_m dv/dt = -v + sigma(s)                                (2)  activity of a neuron
    v = sigma(s)                    for tau_m << tau_s         (3)  activity follows at once
    s = C                           for tau_s << tau_m         (4)  current follows at once
    dy/dt = f(y) + u,  f(y) = 0                                (5)  integrator

(3) makes one equation of (1) and (2), which is the feedback of `dynamics` where the currents come
from the population itself.

Eliasmith and Anderson (2003), "Neural Engineering", MIT Press, chapter 8; Eliasmith (2005), "A
unified approach to building and controlling spiking attractor networks", Neural Computation 17,
doi:10.1162/0899766053630332.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Pictures
from everynet.zoo.population.dynamics import (
    PopulationDynamics,
)
from everynet.zoo.population.ensemble import Ensemble, relative_error
from everynet.zoo.population.pictures.attractor import decoded_raster
from everynet.zoo.spiking.lif import require


def current_and_activity(
    drive: Callable[[float], float],
    sigma: Callable[[float], float],
    *,
    tau_s: float,
    tau_m: float,
    duration: float,
    steps: int,
) -> Float[Tensor, "times 2"]:
    """S and v from where they would rest under the first input, by Runge-Kutta steps."""
    require(0 < tau_s < math.inf, "tau_s", tau_s, "s", "a positive time")
    require(0 < tau_m < math.inf, "tau_m", tau_m, "s", "a positive time")
    dt, s = duration / steps, drive(0.0)
    v = sigma(s)
    found = [(s, v)]

    def slope(t: float, s: float, v: float) -> tuple[float, float]:
        return (drive(t) - s) / tau_s, (sigma(s) - v) / tau_m  # (1) (2)

    for k in range(steps):
        t = k * dt
        a = slope(t, s, v)
        b = slope(t + dt / 2, s + dt / 2 * a[0], v + dt / 2 * a[1])
        c = slope(t + dt / 2, s + dt / 2 * b[0], v + dt / 2 * b[1])
        d = slope(t + dt, s + dt * c[0], v + dt * c[1])
        s += dt / 6 * (a[0] + 2 * b[0] + 2 * c[0] + d[0])
        v += dt / 6 * (a[1] + 2 * b[1] + 2 * c[1] + d[1])
        found.append((s, v))
    return torch.tensor(found, dtype=torch.float64)


def limit_errors(ratio: float, tau: float = 0.1) -> tuple[float, float]:
    """The largest errors of the two limits where one constant is `ratio` times the other, tau."""

    def drive(t: float) -> float:
        return math.sin(4 * t)

    def sigma(s: float) -> float:
        return 1 / (1 + math.exp(-2 * s))

    steps = math.ceil(2.0 / (tau * min(ratio, 1) / 10))
    run = partial(current_and_activity, drive, sigma, duration=2.0, steps=steps)
    slow_current = run(tau_s=tau, tau_m=tau * ratio)
    at_once = torch.sigmoid(2 * slow_current[:, 0])  # (3)
    slow_activity = run(tau_s=tau * ratio, tau_m=tau)
    times = torch.linspace(0, 2.0, steps + 1, dtype=torch.float64)
    current = torch.sin(4 * times)  # (4)
    return (
        (slow_current[:, 1] - at_once).abs().max().item(),
        (slow_activity[:, 0] - current).abs().max().item(),
    )


def integration(y: Float[Tensor, "points d"]) -> Float[Tensor, "points d"]:
    """Nothing moves: what comes in adds up."""
    return torch.zeros_like(y)  # (5)


@dataclass(frozen=True, kw_only=True)
class Integrator(PopulationDynamics):
    """Add up an input, hold the sum, and see how fast activity and current settle."""

    captions: ClassVar[Mapping[str, str]] = {
        "raster": (
            "Each row is a neuron and each mark a spike: as the sum (below, green, beside the "
            "dashed truth) rises, neurons for it (blue) join in and those against (orange) fall "
            "silent."
        ),
        "integrator": (
            "The input (left) is added up, and its sum is held after the input is over (middle), "
            "by rates and by spikes; right, how the two limits are approached."
        ),
    }
    meanings: ClassVar[Mapping[str, str]] = {
        "rate_drift": "the part of a held value that is lost or gained in a second, by rates",
        "spiking_drift": "the same by spikes",
        "rate_error": "error of the sum, by rates, as a part of its size",
        "spiking_error": "the same by spikes",
        "activity_slope": (
            "the power of tau_m / tau_s with which activity that follows at once goes wrong"
        ),
        "current_slope": "the same of current that follows at once",
    }

    duration: float = 6.0
    """Length of a run (s): two pushes, each with time to hold after it."""
    ratios: tuple[float, ...] = (0.2, 0.1, 0.05, 0.02, 0.01)
    """The fast time constant over the slow one, for the limits of current and activity."""

    def __post_init__(self) -> None:
        super().__post_init__()
        fair = len(set(self.ratios)) >= 2 and min(self.ratios) > 0 and max(self.ratios) <= 1
        self.require(fair, "ratios", "two different numbers at least, above 0 and up to 1")

    def input(self) -> Float[Tensor, "steps 1"]:
        """Up by 0.8 from a twentieth of the time on, down by 1.2 from the middle on."""
        share = (self.times() - self.dt / 2) / self.duration
        up, down = ((share > at) & (share < at + 0.1) for at in (0.05, 0.5))
        return ((8.0 * up - 12.0 * down) / self.duration)[:, None]

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        ensemble = Ensemble(self.neurons, 1, generator=generator)
        u = self.input()
        found = {
            "times": self.times(),
            "input": u[:, 0],
            "truth": (u * self.dt).cumsum(0)[:, 0],
            "encoders": ensemble.encoders[:60, 0],
            "limits": torch.tensor([limit_errors(r) for r in self.ratios], dtype=torch.float64),
        }
        for name, population in self.populations(ensemble, integration).items():
            run = population.simulate(u, self.duration, self.dt, generator=generator)
            few = (run.spike_neurons < 60) & (run.spike_times < 0.2 * self.duration)
            found[f"{name}_values"] = run.values[:, 0]
            found[f"{name}_decoded"] = run.decoded[:, 0]
            if name == "spiking":
                found["spike_times"] = run.spike_times[few]
                found["spike_neurons"] = run.spike_neurons[few]
        return found

    def drift(self, values: Float[Tensor, " steps"]) -> float:
        """The larger share of the held value by which it moves in a second, of the two holds."""
        steps, width = len(values), max(1, len(values) // 60)
        found = []
        for low, high in ((0.2, 0.48), (0.65, 0.98)):
            a, b = round(low * steps), round(high * steps)
            first, last = values[a : a + width].mean(), values[b - width : b].mean()
            found.append(((last - first) / first).abs().item() / ((b - a - width) * self.dt))
        return max(found)

    def slopes(self, limits: Float[Tensor, "ratios 2"]) -> tuple[float, ...]:
        """The power of the ratio that the error of each limit follows."""
        ratio = torch.tensor(self.ratios, dtype=torch.float64).log()
        ratio = ratio - ratio.mean()
        return tuple((ratio @ limits.log() / ratio.square().sum()).tolist())

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        activity, current = self.slopes(result["limits"])
        return {
            "rate_drift": self.drift(result["rate_values"]),
            "spiking_drift": self.drift(result["spiking_values"]),
            "rate_error": relative_error(result["rate_values"], result["truth"]),
            "spiking_error": relative_error(result["spiking_values"], result["truth"]),
            "activity_slope": activity,
            "current_slope": current,
        }

    def pictures(self, result: Mapping[str, Tensor]) -> Pictures:
        t, ratios = result["times"], torch.tensor(self.ratios, dtype=torch.float64)
        names = (r"$v = \sigma(s)$, $\tau_m / \tau_s$", r"$s = C$, $\tau_s / \tau_m$")
        errors = dict(zip(names, result["limits"].T, strict=True))
        early = t < 0.2 * self.duration
        return {
            "integrator": panels(
                Panel(
                    {"input": (t, result["input"])},
                    "time (s)",
                    "input u (1/s)",
                    "what comes in",
                    legend="none",
                ),
                Panel(
                    {
                        "rates": (t, result["rate_values"]),
                        "spikes": (t, result["spiking_values"]),
                    },
                    "time (s)",
                    "sum y",
                    f"what {self.neurons} neurons hold",
                    guides={"truth": (t, result["truth"])},
                ),
                Panel(
                    {name: (ratios, error) for name, error in errors.items()},
                    "fast time constant / slow one",
                    "largest error",
                    "errors of the limits",
                    dashes="slope 1",
                    guides={n: (ratios, e[-1] * ratios / ratios[-1]) for n, e in errors.items()},
                    log="xy",
                ),
            ),
            "raster": decoded_raster(
                result["spike_times"],
                result["spike_neurons"],
                result["encoders"],
                {"read from spikes": (t[early], result["spiking_decoded"][early])},
                (t[early], result["truth"][early]),
                ylabel="sum y",
                title=f"{len(result['encoders'])} of {self.neurons} neurons",
            ),
        }

    def tiny(self) -> Self:
        return replace(self, neurons=80, duration=0.4, ratios=(0.5, 0.25))


# Seeds 0, 1, 2: drift a second by rates 0.020, 0.009, 0.008, by spikes 0.010, 0.005, 0.008.
RECIPES = {
    "integrator": Integrator(
        goal="rate_drift <= 0.05 and spiking_drift <= 0.05 and activity_slope >= 0.9",
        covers=("P6", "P7", "P8"),
    ),
}
