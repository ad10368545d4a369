"""A population that integrates its input and holds the sum; how activity and current settle.

    tau_s ds/dt = -s + C                                       (1)  current of a synapse
    tau_m dv/dt = -v + sigma(s)                                (2)  activity of a neuron
    v = sigma(s)                    for tau_m << tau_s         (3)  activity follows at once
    s = C                           for tau_s << tau_m         (4)  current follows at once
    dy/dt = f(y) + u,  f(y) = 0                                (5)  integrator

C is the input current, u the input of the integrator and y the value that it holds. (3) makes one
equation of (1) and (2), which is the feedback of `dynamics` where the currents come from the
population itself.

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
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.panels import Panel, panels
from everynet.zoo.population.dynamics import PopulationDynamics
from everynet.zoo.population.ensemble import Ensemble, fit_exponent, relative_error
from everynet.zoo.population.pictures.population import decoded_raster
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
    """The course of s and v from their equilibrium under the first input, by Runge-Kutta."""
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
    """Largest errors of (3) and of (4) where one time constant is `ratio` times the other, tau."""

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
    """The flow of an integrator is 0, so that y is the integral of the input."""
    return torch.zeros_like(y)  # (5)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class Integrator(PopulationDynamics):
    """Integrate an input and hold the sum; measure how fast activity and current settle."""

    meanings: ClassVar[Mapping[str, str]] = {
        "rate_drift": "relative drift of a held value in a second, in rates",
        "spiking_drift": "relative drift of a held value in a second, in spikes",
        "rate_error": "relative rms error of the sum, in rates",
        "spiking_error": "relative rms error of the sum, in spikes",
        "activity_slope": "the power of tau_m / tau_s that the error of v = sigma(s) follows",
        "current_slope": "the power of tau_s / tau_m that the error of s = C follows",
    }

    duration: float = 6.0
    """Length of a run (s): two pulses of input, each with time to hold after it."""
    ratios: tuple[float, ...] = (0.2, 0.1, 0.05, 0.02, 0.01)
    """The fast time constant over the slow one, for the limits of current and activity."""

    def __post_init__(self) -> None:
        super().__post_init__()
        fair = len(set(self.ratios)) >= 2 and min(self.ratios) > 0 and max(self.ratios) <= 1
        self.require(fair, "ratios", "two different numbers at least, above 0 and up to 1")

    def make_input(self) -> Float[Tensor, "steps 1"]:
        """Two pulses of a tenth of the time: +0.8 after a twentieth, -1.2 after half of it."""
        share = (self.times() - self.dt / 2) / self.duration
        up, down = ((share > at) & (share < at + 0.1) for at in (0.05, 0.5))
        return ((8.0 * up - 12.0 * down) / self.duration)[:, None]

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        ensemble = Ensemble(self.neurons, 1, generator=generator)
        u = self.make_input()
        result = {
            "times": self.times(),
            "input": u[:, 0],
            "truth": (u * self.dt).cumsum(0)[:, 0],
            "encoders": ensemble.encoders[:60, 0],
            "limits": torch.tensor([limit_errors(r) for r in self.ratios], dtype=torch.float64),
        }
        for name, population in self.populations(ensemble, integration).items():
            run = population.simulate(u, self.duration, self.dt, generator=generator)
            few = (run.spike_neurons < 60) & (run.spike_times < 0.2 * self.duration)
            result[f"{name}_values"] = run.values[:, 0]
            result[f"{name}_decoded"] = run.decoded[:, 0]
            if name == "spiking":
                result["spike_times"] = run.spike_times[few]
                result["spike_neurons"] = run.spike_neurons[few]
        return result

    def drift(self, values: Float[Tensor, " steps"]) -> float:
        """The relative drift in a second while a value is held, the larger of the two holds."""
        steps, width = len(values), max(1, len(values) // 60)
        drifts = []
        for low, high in ((0.2, 0.48), (0.65, 0.98)):
            a, b = round(low * steps), round(high * steps)
            first, last = values[a : a + width].mean(), values[b - width : b].mean()
            drifts.append(((last - first) / first).abs().item() / ((b - a - width) * self.dt))
        return max(drifts)

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        ratios = torch.tensor(self.ratios, dtype=torch.float64)
        activity, current = fit_exponent(ratios, result["limits"]).tolist()
        return {
            "rate_drift": self.drift(result["rate_values"]),
            "spiking_drift": self.drift(result["spiking_values"]),
            "rate_error": relative_error(result["rate_values"], result["truth"]),
            "spiking_error": relative_error(result["spiking_values"], result["truth"]),
            "activity_slope": activity,
            "current_slope": current,
        }

    def picture_raster(self, result: Mapping[str, Tensor]) -> Figure:
        """Spikes of some neurons, and below them the sum that they represent, beside the truth.

        As the sum rises, neurons with encoder +1 join in and those with encoder -1 fall silent.
        """
        early = result["times"] < 0.2 * self.duration
        t = result["times"][early]
        return decoded_raster(
            result["spike_times"], result["spike_neurons"], result["encoders"],
            {"decoded from spikes": (t, result["spiking_decoded"][early])},
            (t, result["truth"][early]), ylabel="sum y",
            title=f"{len(result['encoders'])} of {self.neurons} neurons",
        )  # fmt: skip

    def picture_integrator(self, result: Mapping[str, Tensor]) -> Figure:
        """Input (left), the sum in rates and in spikes (middle) and errors of the limits (right).

        Each pulse moves the sum, which then holds; errors fall with the ratio of time constants.
        """
        t, ratios = result["times"], torch.tensor(self.ratios, dtype=torch.float64)
        names = (r"$v = \sigma(s)$, $\tau_m / \tau_s$", r"$s = C$, $\tau_s / \tau_m$")
        errors = dict(zip(names, result["limits"].T, strict=True))
        sums = {"rates": (t, result["rate_values"]), "spikes": (t, result["spiking_values"])}
        title = f"{self.neurons} neurons"
        return panels(
            Panel({"input": (t, result["input"])}, "time (s)", "input u (1/s)", legend="none"),
            Panel(sums, "time (s)", "sum y", title, guides={"truth": (t, result["truth"])}),
            Panel(
                {name: (ratios, error) for name, error in errors.items()},
                "fast time constant / slow one",
                "largest error",
                "errors of the limits",
                dashes="slope 1",
                guides={n: (ratios, e[-1] * ratios / ratios[-1]) for n, e in errors.items()},
                log="xy",
            ),
        )

    def tiny(self) -> Self:
        return replace(self, neurons=80, duration=0.4, ratios=(0.5, 0.25))


RECIPES = {
    "integrator": Integrator(
        goal="rate_drift <= 0.05 and spiking_drift <= 0.05 and activity_slope >= 0.9",
        covers=("P6", "P7", "P8"),
    ),
}
