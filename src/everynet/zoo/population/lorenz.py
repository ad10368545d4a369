"""A population with a chaotic attractor: Lorenz's butterfly.

    f(y) = (10 (y_2 - y_1), -y_1 y_3 - y_2, y_1 y_2 - 8/3 (y_3 + 28))    (1)  chaos

Feedback makes dy/dt = f(y), as in `dynamics`. The third coordinate is measured from 28, so that the
attractor lies around the origin. Neighbouring trajectories diverge exponentially: a population is
therefore compared with the true system by its statistics.

Lorenz (1963), "Deterministic nonperiodic flow", doi:10.1175/1520-0469(1963)020<0130:DNF>2.0.CO;2;
Eliasmith and Anderson (2003), "Neural Engineering", MIT Press, chapter 8; Eliasmith (2005), "A
unified approach to building and controlling spiking attractor networks", Neural Computation 17,
doi:10.1162/0899766053630332.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.panels import Panel, panels
from everynet.zoo.population.dynamics import PopulationDynamics, solve_ode, threshold_crossings
from everynet.zoo.population.ensemble import Ensemble
from everynet.zoo.population.pictures.population import orbits


def lorenz(y: Float[Tensor, "points 3"]) -> Float[Tensor, "points 3"]:
    """The flow of Lorenz's system."""
    x, w, z = y.T
    return torch.stack([10 * (w - x), -x * z - w, x * w - 8 / 3 * (z + 28)], dim=1)  # (1)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class Lorenz(PopulationDynamics):
    """A chaotic attractor in rates and in spikes.

    Spikes run some 0.001 s ahead of rates, which damps fast rotations: the system is slowed and
    its synapses with it until that is little beside the growth that drives it from lobe to lobe.
    """

    meanings: ClassVar[Mapping[str, str]] = {
        "switches": "changes of lobe of the true system in a unit of its time",
        "switches_spread": "standard deviation of these changes over runs",
        "*_mean_error": "largest error of a mean coordinate, in standard deviations",
        "*_deviation_error": "largest relative error of the standard deviation of a coordinate",
        "*_switches": "changes of lobe of the population in a unit of the system's time",
        "*_switch_error": "relative error of the changes of lobe",
    }

    neurons: int = 3000
    """Neurons of the population."""
    tau_s: float = 0.4
    """Time constant of the recurrent synapses (s)."""
    noise: float = 0.005
    """Noise that the decoders allow for, as a share of the highest rate."""
    duration: float = 320.0
    """Length of a run (s)."""
    speed: float = 0.25
    """Units of the system's time that pass in a second."""
    spread: float = 2.0
    """Standard deviation of the evaluation points of the decoders about the attractor."""
    runs: int = 20
    """Runs of the true system over whose statistics the mean is taken."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.above(0, "speed", "spread")
        self.at_least(2, "runs")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        truth = self.solve_truth(generator)
        path = truth.reshape(-1, 3)
        space = Ensemble(self.neurons, 3, radius=40.0, generator=generator)
        rows = torch.randint(len(path), (2 * self.neurons,), generator=generator)
        offsets = torch.randn(2 * self.neurons, 3, generator=generator, dtype=torch.float64)
        space.eval_points = path[rows] + self.spread * offsets
        result, every = {"truth": truth}, max(1, round(0.01 / self.speed / self.dt))

        def flow(y: Float[Tensor, "points 3"]) -> Float[Tensor, "points 3"]:
            return self.speed * lorenz(y)

        for name, population in self.populations(space, flow).items():
            run = population.simulate(
                0.0, self.duration, self.dt, start=truth[0, 0], generator=generator
            )
            result[name] = run.values[every - 1 :: every].clone()
        return result

    def solve_truth(self, generator: torch.Generator) -> Float[Tensor, "runs times 3"]:
        """Runs of the true system of the same duration, after a transient of 5 units of time."""
        start = 5 * torch.randn(3 * self.runs, generator=generator, dtype=torch.float64)
        units = self.duration * self.speed + 5
        times = torch.arange(500, round(units / 0.01) + 1).double() * 0.01

        def flow(y: Float[Tensor, "1 numbers"]) -> Float[Tensor, "1 numbers"]:
            return lorenz(y.reshape(-1, 3)).reshape(1, -1)

        found = solve_ode(flow, start, times).reshape(len(times), self.runs, 3)
        return found.transpose(0, 1).contiguous()

    def statistics(self, values: Float[Tensor, "steps 3"]) -> Float[Tensor, " 7"]:
        """Means, standard deviations and changes of lobe in a unit of time."""
        changes = len(threshold_crossings(values[:, 0], 3.0)) / (0.01 * len(values))
        return torch.cat([values.mean(0), values.std(0), torch.tensor([changes]).to(values)])

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        runs = torch.stack([self.statistics(run) for run in result["truth"]])
        true = runs.mean(0)
        metrics = {"switches": true[6].item(), "switches_spread": runs[:, 6].std().item()}
        for name in ("rate", "spiking"):
            found = self.statistics(result[name])
            metrics[f"{name}_mean_error"] = ((found - true)[:3] / true[3:6]).abs().max().item()
            metrics[f"{name}_deviation_error"] = (found / true - 1)[3:6].abs().max().item()
            metrics[f"{name}_switches"] = found[6].item()
            metrics[f"{name}_switch_error"] = abs(found[6] / true[6] - 1).item()
        return metrics

    def picture_butterfly(self, result: Mapping[str, Tensor]) -> Figure:
        """First and third coordinate of the true system, of a rate and of a spiking population.

        The paths differ, as chaos must, but the attractor has the same shape.
        """
        shown = {name: path[:4000, [0, 2]] for name, path in self._paths(result).items()}
        return orbits(shown, names=("$y_1 = x$", "$y_3 = z - 28$"))

    def picture_trajectory(self, result: Mapping[str, Tensor]) -> Figure:
        """The first coordinate of the true system and of both populations over time.

        All three begin alike and soon part, but go on swinging in the same way from lobe to lobe.
        """
        t = torch.arange(1, min(3000, len(result["rate"])) + 1).double() * 0.01
        label = "time (units of the system)"
        drawn = [
            Panel(
                {name: (t, path[: len(t), 0])}, label, "$y_1$", name, ylim=(-22, 22), legend="none"
            )
            for name, path in self._paths(result).items()
        ]
        return panels(*drawn, columns=1, width=8.0, height=1.9)

    def picture_shares(self, result: Mapping[str, Tensor]) -> Figure:
        """Histogram of the first coordinate: the share of the time spent at each value.

        The populations (orange, green) have nearly the outline of the true system (blue).
        """
        edges = torch.linspace(-20, 20, 41, dtype=torch.float64)
        middle = (edges[1:] + edges[:-1]) / 2
        pooled = {**self._paths(result), "true system": result["truth"].reshape(-1, 3)}
        curves = {
            name: (middle, torch.histogram(path[:, 0].clone(), edges).hist / len(path))
            for name, path in pooled.items()
        }
        return panels(Panel(curves, "$y_1$", "share of the time"), width=5.6)

    def _paths(self, result: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            "true system": result["truth"][0],
            "rates": result["rate"],
            "spikes": result["spiking"],
        }

    def tiny(self) -> Self:
        return replace(self, neurons=100, duration=4.0, dt=0.002, runs=2)


RECIPES = {
    "lorenz": Lorenz(
        goal="rate_mean_error <= 0.3 and spiking_mean_error <= 0.3"
        " and rate_deviation_error <= 0.05 and spiking_deviation_error <= 0.05"
        " and rate_switch_error <= 0.4 and spiking_switch_error <= 0.4",
        covers=("P7", "P8"),
    ),
}
