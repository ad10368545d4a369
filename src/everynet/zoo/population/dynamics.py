"""Populations whose feedback makes them a dynamical system of our choice, in rates and in spikes.

    a = G(E y + bias)                                          (1)  rates, or spikes of membranes
    tau_s dy/dt = -y + a D + tau_s u                           (2)  feedback through synapses
    a D = y + tau_s f(y)            so that dy/dt = f(y) + u   (3)  decoded function
    tau_r dz/dt = -z + a D_x                                   (4)  readout through a synapse

Products are those of matrices; u is the input and f the flow. E y are the currents of the synapses,
and the recurrent weights are W = D E^T. Steps of (2) and (4) are exact where the decoded value is
constant over a step. Spikes are those of `InterpolatedLIF`: a spike counts 1/dt in its step.

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
    """A simulated run; `state` goes into the next run to continue it bit by bit."""

    times: Float[Tensor, " steps"]
    """The end of each step (s), counted through continued runs."""
    values: Float[Tensor, "steps dimensions"]
    """y, which feeds back."""
    decoded: Float[Tensor, "steps dimensions"]
    """z, the readout."""
    spike_times: Float[Tensor, " spikes"]
    """The end of the step in which each spike was (s), in order; none for rates."""
    spike_neurons: Int[Tensor, " spikes"]
    state: PopulationState


class RatePopulation:
    """Neurons that represent y by their rates, with feedback that makes dy/dt = flow(y) + input.

    tau_s and tau_read (s) are the time constants of the recurrent and of the readout synapses.
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
        feedback = feedback_decoders(ensemble, flow, tau_s, noise)
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
        """The nonlinearity of the neurons, by the name that the kernel knows."""
        names: dict[type, Kind] = {
            TUNINGS["rectified-linear"]: "rectified-linear",
            TUNINGS["sigmoid"]: "sigmoid",
            TUNINGS["lif"]: "lif",
        }
        return names[type(self.ensemble.tuning)]

    def steps(self, duration: float, dt: float) -> int:
        """The number of steps in the duration."""
        return whole_steps(duration, dt, 0.0)

    def initial_state(
        self, start: Float[Tensor, " dimensions"], generator: torch.Generator | None
    ) -> PopulationState:
        """The state of a population that represents `start`."""
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
        drive = self.tau_s * rows.expand(-1, self.dimensions)
        start = torch.zeros(self.dimensions) if start is None else start
        fits = len(start) == self.dimensions
        require(fits, "start", len(start), "numbers", f"{self.dimensions}, one for each dimension")
        state = self.initial_state(start, generator) if state is None else state
        tuning = self.ensemble.tuning
        rule = Rule(
            self.kind(), dt, self.tau_s, self.tau_read,
            getattr(tuning, "tau_m", 1.0), getattr(tuning, "tau_ref", 1.0),
        )  # fmt: skip
        course = advance(self.circuit, state, drive, steps, rule)  # as in `simulate_rates_by_loop`
        times = (torch.arange(1, steps + 1) + state.step).double() * dt
        values, decoded = course.values.cpu().split(self.dimensions, dim=1)
        when = (course.steps.cpu() + 1).double() * dt
        return Trajectory(times, values, decoded, when, course.neurons.cpu(), course.state)

    def to(self, where: torch.device | torch.dtype | str) -> Self:
        """Itself, moved to a device or converted to a dtype."""
        self.circuit = Circuit(*(x.to(where) for x in self.circuit))
        return self


class SpikingPopulation(RatePopulation):
    """The same system in the spikes of leaky integrate-and-fire neurons."""

    def kind(self) -> Kind:
        return "spikes"

    def steps(self, duration: float, dt: float) -> int:
        tuning = self.ensemble.tuning
        if not isinstance(tuning, LIFRate):
            raise ValueError(f"tuning ({type(tuning).__name__}) must be LIFRate: no other spikes")
        return whole_steps(duration, dt, tuning.tau_ref)

    def initial_state(
        self, start: Float[Tensor, " dimensions"], generator: torch.Generator | None
    ) -> PopulationState:
        """Voltages are uniform below the threshold: at 0 all neurons would fire together."""
        begun = super().initial_state(start, generator)
        drawn = torch.rand(self.neurons, generator=generator, dtype=torch.float64)
        return begun._replace(voltage=drawn.to(begun.voltage))


def feedback_decoders(
    ensemble: Ensemble, flow: Function, tau_s: float, noise: float
) -> Float[Tensor, "neurons dimensions"]:
    """Decoders of the function that makes the synapses follow the flow."""
    return ensemble.decoders(lambda y: y + tau_s * flow(y), noise=noise)  # (3)


def simulate_rates_by_loop(
    population: RatePopulation,
    u: Float[Tensor, "steps dimensions"],
    dt: float,
    start: Float[Tensor, " dimensions"],
) -> tuple[Float[Tensor, "steps dimensions"], Float[Tensor, "steps dimensions"]]:
    """Values y and readout z of a rate population step by step, for reading and for tests."""
    encoders, bias, decoders = population.circuit
    keep_s = math.exp(-dt / population.tau_s)
    keep_read = math.exp(-dt / population.tau_read) if population.tau_read > 0 else 0.0
    y = z = start
    values, decoded = [], []
    for u_t in u:
        a = population.ensemble.tuning.rate(encoders @ y + bias)  # (1)
        a_d, a_dx = (a @ decoders).split(population.dimensions)
        y = keep_s * y + (1 - keep_s) * (a_d + population.tau_s * u_t)  # (2)
        z = keep_read * z + (1 - keep_read) * a_dx  # (4)
        values.append(y)
        decoded.append(z)
    return torch.stack(values), torch.stack(decoded)


# ------------------------------------------------------- the true system and measures of its course


def solve_ode(
    flow: Function, start: Float[Tensor, " dimensions"], times: Float[Tensor, " times"]
) -> Float[Tensor, "times dimensions"]:
    """The true system dy/dt = flow(y), from `start` at time 0."""

    def slope(_: float, y: Floats) -> Floats:
        return flow(torch.from_numpy(y)[None])[0].numpy()

    grid = times.numpy()
    found = solve_ivp(
        slope, (0.0, grid[-1]), start.double().numpy(), "DOP853", grid, rtol=1e-8, atol=1e-8
    )
    return torch.from_numpy(np.ascontiguousarray(found.y.T))


def rotation_frequency(plane: Float[Tensor, "steps 2"], dt: float) -> float:
    """Signed rotations about the origin in a second."""
    angle = torch.atan2(plane[:, 1], plane[:, 0])
    step = torch.remainder(angle.diff() + math.pi, 2 * math.pi) - math.pi
    return step.sum().item() / (2 * math.pi * dt * len(step))


def threshold_crossings(x: Float[Tensor, " steps"], threshold: float) -> Int[Tensor, " changes"]:
    """Steps at which x passes the threshold after last having passed minus it, or the reverse."""
    beyond = (x.abs() > threshold).nonzero()[:, 0]
    sign = x[beyond].sign()
    changes: Tensor = beyond[1:][sign.diff() != 0]
    return changes


def period_and_amplitude(
    x: Float[Tensor, " steps"], dt: float, threshold: float
) -> tuple[float, float]:
    """The mean period (s) and amplitude of an oscillation; NaN where there is no period."""
    ups = threshold_crossings(x, threshold)
    ups = ups[x[ups] > 0]
    if len(ups) < 2:
        return math.nan, math.nan
    peaks = [x[a:b].max() for a, b in pairwise(ups)]
    return (ups[-1] - ups[0]).item() * dt / (len(ups) - 1), torch.stack(peaks).mean().item()


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class PopulationDynamics(Simulation):
    """Shared by the recipes: one population, simulated in rates and in spikes."""

    neurons: int = 1000
    """Neurons of the population."""
    tau_s: float = 0.1
    """Time constant of the recurrent synapses (s)."""
    tau_read: float = 0.02
    """Time constant of the readout synapses (s)."""
    noise: float = 0.05
    """Noise that the decoders allow for, as a share of the highest rate."""
    duration: float = 5.0
    """Length of a run (s)."""
    dt: float = 0.001
    """Length of a step (s)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(10, "neurons")
        self.above(0, "tau_s", "noise")
        self.at_least(0, "tau_read")
        self.require(0 < self.dt <= 0.002, "dt", "above 0 and at most tau_ref, 0.002 s")
        whole = abs(self.duration / self.dt - round(self.duration / self.dt)) < 1e-6
        enough = whole and self.duration >= 100 * self.dt
        self.require(enough, "duration", "a hundred steps of dt at least, and whole ones")

    def populations(
        self, ensemble: Ensemble, flow: Function
    ) -> dict[str, RatePopulation | SpikingPopulation]:
        """The same neurons and decoders, in rates and in spikes."""
        given = {"tau_s": self.tau_s, "tau_read": self.tau_read, "noise": self.noise}
        return {
            "rate": RatePopulation(ensemble, flow, **given),
            "spiking": SpikingPopulation(ensemble, flow, **given),
        }

    def times(self) -> Float[Tensor, " steps"]:
        """The end of each step."""
        return torch.arange(1, round(self.duration / self.dt) + 1).double() * self.dt
