"""Populations that oscillate: at a fixed frequency, or at one that is a value of their own.

    f(y) = omega (-y_2, y_1)                                   (1)  oscillator
    f(y) = (-omega y_3 y_2, omega y_3 y_1, -y_3 / tau_s)       (2)  controlled oscillator

Feedback makes dy/dt = f(y) + u, as in `dynamics`; omega is 2 pi times the frequency, and y_3, which
the input sets, is the control: the share of that frequency.

Eliasmith and Anderson (2003), "Neural Engineering", MIT Press, chapter 8; Eliasmith (2005), "A
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
from scipy.signal import lfilter
from torch import Tensor

from everynet.plot.panels import Panel, panels
from everynet.zoo.population.dynamics import (
    PopulationDynamics,
    SpikingPopulation,
    rotation_frequency,
)
from everynet.zoo.population.ensemble import Ensemble, Function, fit_exponent, relative_error
from everynet.zoo.population.pictures.population import decoded_raster, orbits


def oscillation(frequency: float) -> Function:
    """The flow of a rotation about the origin at a frequency (Hz)."""
    omega = 2 * math.pi * frequency

    def flow(y: Float[Tensor, "points 2"]) -> Float[Tensor, "points 2"]:
        return omega * torch.stack([-y[:, 1], y[:, 0]], dim=1)  # (1)

    return flow


def controlled_oscillation(frequency: float, tau_s: float) -> Function:
    """The flow of a rotation at y_3 times a frequency (Hz); the input sets y_3."""
    omega = 2 * math.pi * frequency

    def flow(y: Float[Tensor, "points 3"]) -> Float[Tensor, "points 3"]:
        rate = omega * y[:, 2]
        return torch.stack([-rate * y[:, 1], rate * y[:, 0], -y[:, 2] / tau_s], dim=1)  # (2)

    return flow


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class Oscillator(PopulationDynamics):
    """Oscillate at a fixed and at a controlled frequency; transmit a sine by spikes."""

    meanings: ClassVar[Mapping[str, str]] = {
        "*_frequency_error": "relative error of the frequency, in rates or spikes",
        "*_radius": "mean radius of the oscillation, in rates or spikes",
        "*_controlled_error": "largest relative error of the controlled frequencies",
        "sine_error": "relative rms error of a sine decoded from about 200 spiking neurons",
        "sine_slope": "the power of the number of neurons with which that error falls",
    }

    frequency: float = 1.0
    """Frequency of the oscillation (Hz)."""
    controls: tuple[float, ...] = (1.0, 0.5, -0.75)
    """Controls of the controlled oscillator, one after the other, as shares of the frequency."""
    sizes: tuple[int, ...] = (50, 100, 200, 500, 1000)
    """Numbers of neurons by which the error of a transmitted sine is measured."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.above(0, "frequency")
        fair = bool(self.controls) and all(0 < abs(c) <= 1 for c in self.controls)
        self.require(fair, "controls", "one number at least, from -1 to 1 and none of them 0")
        fair = len(set(self.sizes)) >= 2 and min(self.sizes) >= 10
        self.require(fair, "sizes", "two different numbers at least, each from 10 up")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        start = torch.tensor([0.8, 0.0], dtype=torch.float64)
        plane = Ensemble(self.neurons, 2, generator=generator)
        result = {"times": self.times()}
        for name, population in self.populations(plane, oscillation(self.frequency)).items():
            run = population.simulate(0.0, self.duration, self.dt, start=start, generator=generator)
            result[f"{name}_values"] = run.values
        space = Ensemble(self.neurons, 3, radius=1.3, generator=generator)
        flow = controlled_oscillation(self.frequency, self.tau_s)
        controls = torch.tensor(self.controls, dtype=torch.float64)
        control = controls.repeat_interleave(round(self.duration / self.dt / 2))
        drive = torch.stack([0 * control, 0 * control, control / self.tau_s], dim=1)
        start = torch.tensor([0.8, 0.0, self.controls[0]], dtype=torch.float64)
        result["control"] = control
        for name, population in self.populations(space, flow).items():
            run = population.simulate(
                drive, len(control) * self.dt, self.dt, start=start, generator=generator
            )
            result[f"{name}_controlled"] = run.values
        return {**result, **self.transmit_sines(generator)}

    def transmit_sines(self, generator: torch.Generator) -> dict[str, Tensor]:
        """A sine through spikes without recurrence: the feedback of this flow decodes 0.

        The truth passes the same two synapses, so that their lag is no part of the error.
        """
        steps = 2 * round(1 / self.dt)
        t = torch.arange(1, steps + 1).double() * self.dt
        sine = torch.sin(2 * math.pi * t)
        smooth = _lowpass(_lowpass(sine, self.tau_s, self.dt), self.tau_read, self.dt)
        errors, result = [], {"sine_times": t, "sine": smooth}
        for size in self.sizes:
            ensemble = Ensemble(size, 1, generator=generator)
            population = SpikingPopulation(
                ensemble, lambda y: -y / self.tau_s, tau_s=self.tau_s, tau_read=self.tau_read,
                noise=self.noise,
            )  # fmt: skip
            drive = sine[:, None] / self.tau_s
            run = population.simulate(drive, steps * self.dt, self.dt, generator=generator)
            late = len(t) // 4
            errors.append(relative_error(run.decoded[late:, 0], smooth[late:]))
            if size == min(self.sizes, key=lambda n: abs(n - 200)):
                few = run.spike_neurons < 60
                result |= {
                    "sine_decoded": run.decoded[:, 0],
                    "spike_times": run.spike_times[few],
                    "spike_neurons": run.spike_neurons[few],
                    "encoders": ensemble.encoders[:60, 0],
                }
        return {**result, "sine_errors": torch.tensor(errors, dtype=torch.float64)}

    def frequencies(self, values: Float[Tensor, "steps 3"]) -> Float[Tensor, " controls"]:
        """The frequency (Hz) under each control, once it has settled."""
        parts = values.chunk(len(self.controls))
        settled = [part[len(part) // 5 :, :2] for part in parts]
        return torch.tensor(
            [rotation_frequency(part, self.dt) for part in settled], dtype=torch.float64
        )

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        metrics = {}
        targets = self.frequency * torch.tensor(self.controls, dtype=torch.float64)
        for name in ("rate", "spiking"):
            values = result[f"{name}_values"]
            late = values[len(values) // 5 :]
            frequency = rotation_frequency(late, self.dt)
            metrics[f"{name}_frequency_error"] = abs(frequency / self.frequency - 1)
            metrics[f"{name}_radius"] = late.norm(dim=1).mean().item()
            ratio = self.frequencies(result[f"{name}_controlled"]) / targets
            metrics[f"{name}_controlled_error"] = (ratio - 1).abs().max().item()
        nearest = min(range(len(self.sizes)), key=lambda k: abs(self.sizes[k] - 200))
        metrics["sine_error"] = result["sine_errors"][nearest].item()
        sizes = torch.tensor(self.sizes, dtype=torch.float64)
        return {**metrics, "sine_slope": fit_exponent(sizes, result["sine_errors"]).item()}

    def _truth(self, t: Float[Tensor, " steps"]) -> Float[Tensor, "steps 2"]:
        angle = 2 * math.pi * self.frequency * t
        return 0.8 * torch.stack([angle.cos(), angle.sin()], dim=1)

    def picture_oscillator(self, result: Mapping[str, Tensor]) -> Figure:
        """Both coordinates over time, in rates (left) and in spikes (right).

        They oscillate a quarter period apart and drift only slowly from the dashed truth.
        """
        t, drawn = result["times"], []
        truth = self._truth(t)
        for name in ("rate", "spiking"):
            y = result[f"{name}_values"]
            drawn.append(
                Panel(
                    {"$y_1$": (t, y[:, 0]), "$y_2$": (t, y[:, 1])}, "time (s)", "value", name,
                    dashes=f"{self.frequency:g} Hz",
                    guides={"$y_1$": (t, truth[:, 0]), "$y_2$": (t, truth[:, 1])},
                    ylim=(-1.4, 1.4),
                )
            )  # fmt: skip
        return panels(*drawn)

    def picture_controlled(self, result: Mapping[str, Tensor]) -> Figure:
        """Both coordinates and the control (green), which is a value of the population too.

        A smaller control slows the rotation, and below 0 the second coordinate leads the first.
        """
        control, drawn = result["control"], []
        t = torch.arange(1, len(control) + 1).double() * self.dt
        marks = {"reversed from here": float(t[control < 0][0])} if (control < 0).any() else {}
        for name in ("rate", "spiking"):
            y = result[f"{name}_controlled"]
            curves = {
                "$y_1$": (t, y[:, 0]),
                "$y_2$": (t, y[:, 1]),
                "$y_3$, the control": (t, y[:, 2]),
            }
            drawn.append(
                Panel(
                    curves, "time (s)", "value", f"{name}: a frequency that is represented",
                    guides={"$y_3$, the control": (t, control)}, dashes="input", marks=marks,
                    ylim=(-1.2, 1.2),
                )
            )  # fmt: skip
        return panels(*drawn)

    def picture_raster(self, result: Mapping[str, Tensor]) -> Figure:
        """Spikes of some neurons that represent a sine, and below them the decoded value.

        Neurons with encoder +1 (blue) and with encoder -1 (orange) fire in turn; dashes are the
        truth.
        """
        t = result["sine_times"]
        return decoded_raster(
            result["spike_times"], result["spike_neurons"], result["encoders"],
            {"decoded from spikes": (t, result["sine_decoded"])}, (t, result["sine"]),
            title="a sine of 1 Hz",
        )  # fmt: skip

    def picture_plane(self, result: Mapping[str, Tensor]) -> Figure:
        """The second coordinate against the first, in rates and in spikes.

        Dashes are the circle of the true system, near which both populations stay.
        """
        once = self._truth(result["times"])[: math.ceil(1 / self.frequency / self.dt) + 1]
        ways = {name: result[f"{name}_values"] for name in ("rate", "spiking")}
        return orbits(ways, names=("$y_1$", "$y_2$"), guide=once)

    def picture_sine(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """The error of a sine decoded from spikes against the number of neurons N.

        Dashes fall as one over the root of N; over all sizes the error falls as N to {slope:.2f}.
        """
        sizes, errors = torch.tensor(self.sizes, dtype=torch.float64), result["sine_errors"]
        panel = Panel(
            {"spikes": (sizes, errors)}, "neurons N", "relative rms error", "a sine in spikes",
            dashes=r"$1/\sqrt{N}$",
            guides={"spikes": (sizes, errors[0] * (sizes[0] / sizes).sqrt())}, log="xy",
        )  # fmt: skip
        return panels(panel), {"slope": fit_exponent(sizes, errors).item()}

    def tiny(self) -> Self:
        return replace(self, neurons=80, duration=0.4, frequency=5.0, sizes=(20, 40))


def _lowpass(x: Float[Tensor, " steps"], tau: float, dt: float) -> Float[Tensor, " steps"]:
    """Filter x by a synapse that begins at 0; x is returned as it is where tau is 0."""
    keep = math.exp(-dt / tau) if tau > 0 else 0.0
    return torch.from_numpy(lfilter([1 - keep], [1.0, -keep], x.numpy()))


RECIPES = {
    "oscillator": Oscillator(
        goal="rate_frequency_error <= 0.02 and spiking_frequency_error <= 0.02"
        " and sine_error <= 0.1 and sine_slope <= -0.3",
        covers=("P7", "P8"),
    ),
}
