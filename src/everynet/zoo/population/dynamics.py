"""Populations whose feedback makes them a dynamical system of our choice, in rates and in spikes.

    a = G(E y + bias)                                          (1)  rates, or spikes of membranes
    tau_s dy/dt = -y + a D + tau_s u                           (2)  feedback through synapses
    a D = y + tau_s f(y)            so that dy/dt = f(y) + u   (3)  what is decoded
    tau_r dz/dt = -z + a D_x                                   (4)  what is read

E y are the currents of the synapses, and W = D E^T. Steps of (2) and (4) are exact for what is
decoded in a step. Spikes are those of `InterpolatedLIF`: a spike counts 1/dt in its step.

Eliasmith and Anderson (2003), "Neural Engineering", MIT Press, chapter 8; Eliasmith (2005), "A
unified approach to building and controlling spiking attractor networks", Neural Computation 17,
doi:10.1162/0899766053630332.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.integrate import solve_ivp
from torch import Tensor

from everynet.kernels.population import Circuit, Kind, PopulationState, Rule, advance
from everynet.recipes.recipe import Simulation
from everynet.zoo.population.ensemble import Ensemble, Function
from everynet.zoo.population.tuning import TUNINGS, LIFRate
from everynet.zoo.spiking.lif import Drive, require, rows_of, whole_steps

Floats = NDArray[np.float64]


class Trajectory(NamedTuple):
    """What a run gives; `state` goes into the next run to continue it bit by bit."""

    times: Float[Tensor, " steps"]
    """The end of each step (s), counted through continued runs."""
    values: Float[Tensor, "steps dimensions"]
    """y, which feeds back."""
    decoded: Float[Tensor, "steps dimensions"]
    """What is read."""
    spike_times: Float[Tensor, " spikes"]
    """The end of the step in which each spike was (s), in order; none for rates."""
    spike_neurons: Int[Tensor, " spikes"]
    state: PopulationState


class RatePopulation:
    """Neurons that represent y by their rates, with feedback that makes dy/dt = flow(y) + input.

    tau_s and tau_read (s) are those of the synapses that feed back and of those that are read.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        flow: Function,
        *,
        tau_s: float = 0.1,
        tau_read: float = 0.02,
        noise: float = 0.1,
    ) -> None:
        require(0 < tau_s < math.inf, "tau_s", tau_s, "s", "a positive time")
        require(0 <= tau_read < math.inf, "tau_read", tau_read, "s", "a time from 0 up")
        self.ensemble, self.tau_s, self.tau_read = ensemble, tau_s, tau_read
        feedback = ensemble.decoders(lambda y: y + tau_s * flow(y), noise=noise)  # (3)
        neurons, dimensions = ensemble.encoders.shape
        require(
            feedback.shape[1] == dimensions, "flow", feedback.shape[1], "numbers",
            f"{dimensions}, one for each dimension of the ensemble",
        )  # fmt: skip
        self.circuit = Circuit(
            ensemble.gain[:, None] * ensemble.encoders / ensemble.radius,
            ensemble.bias,
            torch.cat([feedback, ensemble.decoders(noise=noise)], dim=1),
        )
        self.neurons, self.dimensions = neurons, dimensions

    def kind(self) -> Kind:
        """What a neuron makes of its current."""
        names: dict[type, Kind] = {
            TUNINGS["rectified-linear"]: "rectified-linear",
            TUNINGS["sigmoid"]: "sigmoid",
            TUNINGS["lif"]: "lif",
        }
        return names[type(self.ensemble.tuning)]

    def steps(self, duration: float, dt: float) -> int:
        """How many steps make the duration."""
        return whole_steps(duration, dt, 0.0)

    def rest(
        self, start: Float[Tensor, " dimensions"], generator: torch.Generator | None
    ) -> PopulationState:
        """The state in which a run that represents `start` begins."""
        none = torch.zeros(self.neurons, dtype=self.circuit.bias.dtype)
        return PopulationState(torch.cat([start, start]).double(), none, none + 1)

    def simulate(
        self,
        input: Drive,
        duration: float,
        dt: float,
        *,
        start: Float[Tensor, " dimensions"] | None = None,
        state: PopulationState | None = None,
        generator: torch.Generator | None = None,
    ) -> Trajectory:
        """Run from y = start (0 without it), or on from the state another run ended in."""
        steps = self.steps(duration, dt)
        rows = rows_of(input, steps, "input", "y/s")
        fits = rows.shape[1] in (1, self.dimensions)
        require(fits, "input", f"{rows.shape[1]} numbers", "y/s", f"{self.dimensions} numbers")
        drive = self.tau_s * rows.expand(-1, self.dimensions)  # (2) the synapses do the rest
        start = torch.zeros(self.dimensions) if start is None else start
        fits = len(start) == self.dimensions
        require(fits, "start", len(start), "numbers", f"{self.dimensions}, one for each dimension")
        state = self.rest(start, generator) if state is None else state
        tuning = self.ensemble.tuning
        rule = Rule(
            self.kind(), dt, self.tau_s, self.tau_read,
            getattr(tuning, "tau_m", 1.0), getattr(tuning, "tau_ref", 1.0),
        )  # fmt: skip
        course = advance(self.circuit, state, drive, steps, rule)  # (1)
        times = (torch.arange(1, steps + 1) + state.step).double() * dt
        values, decoded = course.values.cpu().split(self.dimensions, dim=1)  # (4)
        when = (course.steps.cpu() + 1).double() * dt
        return Trajectory(times, values, decoded, when, course.neurons.cpu(), course.state)

    def to(self, where: torch.device | torch.dtype | str) -> Self:
        """Itself, moved to a device or made of other numbers."""
        self.circuit = Circuit(*(x.to(where) for x in self.circuit))
        return self


class SpikingPopulation(RatePopulation):
    """The same by the spikes of leaky integrate-and-fire neurons."""

    def kind(self) -> Kind:
        return "spikes"

    def steps(self, duration: float, dt: float) -> int:
        tuning = self.ensemble.tuning
        if not isinstance(tuning, LIFRate):
            raise ValueError(f"tuning ({type(tuning).__name__}) must be LIFRate: no other spikes")
        return whole_steps(duration, dt, tuning.tau_ref)

    def rest(
        self, start: Float[Tensor, " dimensions"], generator: torch.Generator | None
    ) -> PopulationState:
        """Membranes are anywhere below the threshold: at 0 all of them would wait together."""
        begun = super().rest(start, generator)
        drawn = torch.rand(self.neurons, generator=generator, dtype=torch.float64)
        return begun._replace(voltage=drawn.to(begun.voltage))


def solved(
    flow: Function, start: Float[Tensor, " dimensions"], times: Float[Tensor, " times"]
) -> Float[Tensor, "times dimensions"]:
    """The true system without input, from `start` at time 0."""

    def slope(_: float, y: Floats) -> Floats:
        return flow(torch.from_numpy(y)[None])[0].numpy()

    grid = times.numpy()
    found = solve_ivp(
        slope, (0.0, grid[-1]), start.double().numpy(), "DOP853", grid, rtol=1e-8, atol=1e-8
    )
    return torch.from_numpy(np.ascontiguousarray(found.y.T))


# ----------------------------------------------------------------------------- what is measured


def turns(plane: Float[Tensor, "steps 2"], dt: float) -> float:
    """Times round the origin in a second."""
    angle = torch.atan2(plane[:, 1], plane[:, 0])
    step = torch.remainder(angle.diff() + math.pi, 2 * math.pi) - math.pi
    return step.sum().item() / (2 * math.pi * dt * len(step))


def crossings(x: Float[Tensor, " steps"], threshold: float) -> Int[Tensor, " changes"]:
    """Steps at which x, having been beyond one threshold, is first beyond the other."""
    beyond = (x.abs() > threshold).nonzero()[:, 0]
    side = x[beyond].sign()
    changed: Tensor = beyond[1:][side.diff() != 0]
    return changed


def cycle(x: Float[Tensor, " steps"], dt: float, threshold: float) -> tuple[float, float]:
    """The mean period (s) and height of an oscillation; not a number where there is no period."""
    ups = crossings(x, threshold)
    ups = ups[x[ups] > 0]
    if len(ups) < 2:
        return math.nan, math.nan
    tops = [x[a:b].max() for a, b in pairwise(ups)]
    return (ups[-1] - ups[0]).item() * dt / (len(ups) - 1), torch.stack(tops).mean().item()


@dataclass(frozen=True, kw_only=True)
class PopulationDynamics(Simulation):
    """What the recipes share: one population, run once by rates and once by spikes."""

    neurons: int = 1000
    """Neurons of the population."""
    tau_s: float = 0.1
    """Time constant of the synapses that feed back (s)."""
    tau_read: float = 0.02
    """Time constant of the synapses through which the population is read (s)."""
    noise: float = 0.05
    """Noise that the decoders allow for, as a share of the highest rate."""
    duration: float = 5.0
    """Length of a run (s)."""
    dt: float = 0.001
    """Length of a step (s)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.neurons >= 10, "neurons", "at least 10")
        self.require(0 < self.tau_s < math.inf, "tau_s", "a positive time in seconds")
        self.require(0 <= self.tau_read < math.inf, "tau_read", "a time from 0 up, in seconds")
        self.require(0 < self.noise < math.inf, "noise", "a positive share of the highest rate")
        self.require(0 < self.dt <= 0.002, "dt", "above 0 and at most tau_ref, 0.002 s")
        whole = abs(self.duration / self.dt - round(self.duration / self.dt)) < 1e-6
        enough = whole and self.duration >= 100 * self.dt
        self.require(enough, "duration", "a hundred steps of dt at least, and whole ones")

    def populations(
        self, ensemble: Ensemble, flow: Function
    ) -> dict[str, RatePopulation | SpikingPopulation]:
        """The same neurons and decoders, by rates and by spikes."""
        given = {"tau_s": self.tau_s, "tau_read": self.tau_read, "noise": self.noise}
        return {
            "rate": RatePopulation(ensemble, flow, **given),
            "spiking": SpikingPopulation(ensemble, flow, **given),
        }

    def times(self) -> Float[Tensor, " steps"]:
        """The end of each step."""
        return torch.arange(1, round(self.duration / self.dt) + 1).double() * self.dt
