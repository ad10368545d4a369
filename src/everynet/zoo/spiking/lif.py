"""The leaky integrate-and-fire neuron: a leaky membrane that spikes at a threshold, then rests.

    v = (V - V_L) / (V_th - V_L)                                   (1)  without dimension
    v_in = R J / (V_th - V_L),  R = 1 / g_L                        (2)  its input
    tau_m = C / g_L,  tau_m dV/dt = R J - (V - V_L)                (3)  membrane, in mV
    v(t) = v_in (1 - e^{-t/tau_m})                                 (4)  tau_m dv/dt = v_in - v
    v(t+dt) = v + (v_in - v) (1 - e^{-dt/tau_m})                   (5)  exact step
    v(t+dt) = v + (v_in - v) dt / tau_m                            (6)  Euler step
    v >= 1: spike, then v = 0 at the next round(tau_ref/dt) times  (7)  spikes on the grid
    t* = t + dt + tau_m ln(1 - (v(t+dt) - 1) / (v_in - 1))         (8)  spike inside a step
    f = 1 / (tau_ref - tau_m ln(1 - 1/v_in)),  0 for v_in <= 1     (9)  firing rate
    rate(x) = f(gain (e . x) + bias)                               (10)  tuning curve
    v_max = 1 / (1 - e^{(tau_ref - 1/f_max) / tau_m})              (11)  (9) backwards
    gain = (1 - v_max) / (c - 1),  bias = 1 - gain c               (12)  f_max at e.x = 1, 0 at c
    [x, 1] [W; b] = x W + b                                        (13)  bias as a constant-1 unit

where V is the potential of a membrane of capacitance C and leak g_L under a current J, V_L its rest
and V_th its threshold; e . x and x W are products of vectors and matrices, f the firing rate and c
the intercept. Time is in seconds. (7) dates a spike at the start of its step, as Brian2 does: v is
0 from the end of that step, and the next step that integrates begins tau_ref after the date. (8) is
Nengo's rule: the rest begins at t*, and ends inside a step.

Lapicque (1907), "Recherches quantitatives sur l'excitation electrique des nerfs traitee comme une
polarisation", Journal de Physiologie 9; Eliasmith and Anderson (2003), "Neural Engineering",
chapters 2 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.kernels.lif import Grid, Inside, Membranes, Recording, advance
from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.zoo.spiking.pictures.spikes import firing_curve, membrane_traces

Drive = float | Float[Tensor, ""] | Float[Tensor, " neurons"] | Float[Tensor, "steps neurons"]
"""One input for one neuron, one for each, or one for each at each step."""
Step = Callable[[float, float, float, float], float]
"""v after a step, from v, v_in, dt and tau_m."""


@dataclass(frozen=True)
class LIF:
    """A neuron without dimension: rest 0, threshold 1; spikes lie on the grid of steps.

    `tau_m` of the membrane and `tau_ref` of the rest after a spike are in seconds.
    """

    tau_m: float = 0.02  # s
    tau_ref: float = 0.002  # s

    def __post_init__(self) -> None:
        require(0 < self.tau_m < math.inf, "tau_m", self.tau_m, "s", "a positive time")
        require(0 <= self.tau_ref < math.inf, "tau_ref", self.tau_ref, "s", "a time from 0 up")

    def rate(self, v_in: Float[Tensor, "*any"] | float) -> Float[Tensor, "*any"]:
        """Spikes a second under constant input."""
        v = torch.as_tensor(v_in, dtype=None if isinstance(v_in, Tensor) else torch.float64)
        above = torch.where(v > 1, v, 2)  # so that no gradient is NaN where nothing fires
        return torch.where(
            v > 1, 1 / (self.tau_ref - self.tau_m * torch.log1p(-1 / above)), 0  # (9)
        )  # fmt: skip

    def gain_bias(
        self, max_rates: Float[Tensor, " neurons"], intercepts: Float[Tensor, " neurons"]
    ) -> tuple[Float[Tensor, " neurons"], Float[Tensor, " neurons"]]:
        """Gain and bias with which the rate is max_rates at e.x = 1 and begins at the intercept."""
        fastest = 1 / self.tau_ref if self.tau_ref else math.inf
        fits = bool((max_rates > 0).all() and (max_rates < fastest).all())
        require(fits, "max_rates", span(max_rates), "Hz", f"above 0 and below 1/tau_ref {fastest}")
        below = bool((intercepts < 1).all())
        require(below, "intercepts", span(intercepts), "dimensionless", "below 1")
        v_max = 1 / (1 - torch.exp((self.tau_ref - 1 / max_rates) / self.tau_m))  # (11)
        gain = (1 - v_max) / (intercepts - 1)  # (12)
        return gain, 1 - gain * intercepts

    def tuning(
        self,
        x: Float[Tensor, "points dim"],
        encoders: Float[Tensor, "neurons dim"],
        gain: Float[Tensor, " neurons"],
        bias: Float[Tensor, " neurons"],
    ) -> Float[Tensor, "points neurons"]:
        """The rate of each neuron at each point."""
        return self.rate(gain * (x @ encoders.T) + bias)  # (10)

    def rule(self, dt: float) -> Grid | Inside:
        """The update of one step, as `exact_step` and `simulate_by_loop` have it."""
        return Grid(-math.expm1(-dt / self.tau_m), round(self.tau_ref / dt), 1.0, 0.0)

    def rest(self, neurons: int, dtype: torch.dtype) -> Membranes:
        """The initial state."""
        return Membranes(torch.zeros(neurons, dtype=dtype), torch.zeros(neurons).int(), 0)

    def simulate(
        self,
        v_in: Drive,
        duration: float,
        dt: float,
        *,
        record: Sequence[int] = (),
        state: Membranes | None = None,
        device: torch.device | str | None = None,
    ) -> Recording[Membranes]:
        """Run from rest, or on from the state another run ended in, for `duration` s by `dt` s.

        `v_in` has no dimension and fires a neuron above 1: a number, one for each neuron, or a row
        of them for each step.
        """
        steps = whole_steps(duration, dt, self.tau_ref)
        rows = rows_of(v_in, steps, "v_in", "dimensionless", device)
        neurons = rows.shape[1]
        known = all(0 <= i < neurons for i in record)
        require(known, "record", tuple(record), "neurons", f"numbers from 0 to {neurons - 1}")
        state = self.rest(neurons, rows.dtype) if state is None else state
        fits = len(state.voltage) == neurons
        require(fits, "state", len(state.voltage), "neurons", f"that of {neurons} neurons")
        return advance(rows, state, steps, self.rule(dt), dt=dt, record=record)


@dataclass(frozen=True)
class EulerLIF(LIF):
    """The same by Euler's step, whose error is of the order of dt."""

    def rule(self, dt: float) -> Grid | Inside:
        return Grid(dt / self.tau_m, round(self.tau_ref / dt), 1.0, 0.0)  # as `euler_step`


@dataclass(frozen=True)
class InterpolatedLIF(LIF):
    """The same with spike times inside a step, so that a step of a millisecond is fine enough."""

    floor: float = 0.0  # as in Nengo v does not fall below it; -inf for none

    def rule(self, dt: float) -> Grid | Inside:
        return Inside(self.tau_m, self.tau_ref, self.floor)  # as `spike_time`

    def rest(self, neurons: int, dtype: torch.dtype) -> Membranes:
        zeros = torch.zeros(neurons, dtype=torch.float64)
        return Membranes(zeros.to(dtype), zeros, 0)


@dataclass(frozen=True)
class DimensionalLIF:
    """A membrane in mV under a current in uA/cm2; `neuron` is the same without dimension.

    Capacitance is in uF/cm2, leak in mS/cm2, potentials are in mV, `tau_ref` is in seconds.
    """

    capacitance: float = 1.0  # uF/cm2
    leak: float = 0.05  # mS/cm2
    v_rest: float = -65.0  # mV
    v_threshold: float = -50.0  # mV
    tau_ref: float = 0.002  # s

    def __post_init__(self) -> None:
        require(self.capacitance > 0, "capacitance", self.capacitance, "uF/cm2", "positive")
        require(self.leak > 0, "leak", self.leak, "mS/cm2", "positive")
        above = self.v_rest < self.v_threshold
        require(above, "v_threshold", self.v_threshold, "mV", f"above rest ({self.v_rest} mV)")
        require(0 <= self.tau_ref < math.inf, "tau_ref", self.tau_ref, "s", "a time from 0 up")

    @property
    def neuron(self) -> LIF:
        """The neuron without dimension."""
        return LIF(self.capacitance / self.leak / 1000, self.tau_ref)  # (3) uF/mS is ms

    def scaled(self, voltage: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """A voltage in mV without dimension."""
        return (voltage - self.v_rest) / (self.v_threshold - self.v_rest)  # (1)

    def drive(self, current: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """A current in uA/cm2 without dimension."""
        return current / self.leak / (self.v_threshold - self.v_rest)  # (2)

    def simulate(
        self, current: Drive, duration: float, dt: float, *, record: Sequence[int] = ()
    ) -> Recording[Membranes]:
        """Run from rest for `duration` s by `dt` s, under uA/cm2; membranes are in mV."""
        steps = whole_steps(duration, dt, self.tau_ref)
        target = self.v_rest + rows_of(current, steps, "current", "uA/cm2") / self.leak
        rule = self.neuron.rule(dt)
        assert isinstance(rule, Grid)
        rule = rule._replace(threshold=self.v_threshold, reset=self.v_rest)
        start = self.neuron.rest(target.shape[1], target.dtype)
        start = start._replace(voltage=start.voltage + self.v_rest)
        return advance(target, start, steps, rule, dt=dt, record=record)


def exact_step(v: float, v_in: float, dt: float, tau_m: float) -> float:
    """The membrane after dt s without a spike."""
    return v + (v_in - v) * (1 - math.exp(-dt / tau_m))  # (5)


def euler_step(v: float, v_in: float, dt: float, tau_m: float) -> float:
    """The same by Euler's method."""
    return v + (v_in - v) * dt / tau_m  # (6)


def simulate_by_loop(
    v_in: float, steps: int, dt: float, neuron: LIF, step: Step = exact_step
) -> tuple[list[float], list[float]]:
    """One neuron as it is written, for reading and for tests: spike times and v at each step."""
    v, last, times, trace = 0.0, -math.inf, [], []
    for k in range(steps):
        trace.append(v)
        if k - last < round(neuron.tau_ref / dt):
            continue
        v = step(v, v_in, dt, neuron.tau_m)
        if v >= 1:
            v, last = 0.0, k  # (7)
            times.append(k * dt)
    return times, trace


def spike_time(
    v: Float[Tensor, "*any"], v_in: Float[Tensor, "*any"], dt: float, tau_m: float
) -> Float[Tensor, "*any"]:
    """When in its last dt s a membrane that has reached v >= 1 was at 1, from the step's start."""
    return dt + tau_m * torch.log1p(-(v - 1) / (v_in - 1))  # (8)


def closed_form(
    v_in: Float[Tensor, " neurons"], times: Float[Tensor, " times"], tau_m: float
) -> Float[Tensor, "times neurons"]:
    """The membrane that has begun at rest and has not spiked."""
    return v_in * -torch.expm1(-times[:, None] / tau_m)  # (4)


def layer_with_constant(
    x: Float[Tensor, "batch input"],
    weight: Float[Tensor, "input output"],
    bias: Float[Tensor, " output"],
    neuron: LIF,
) -> Float[Tensor, "batch output"]:
    """Rates of a layer whose biases are the weights from one more unit that is always 1."""
    with_one = torch.cat([x, torch.ones_like(x[:, :1])], dim=1)  # a place beside x, no product
    return neuron.rate(with_one @ torch.cat([weight, bias[None]]))  # (13)


def require(holds: bool, name: str, value: object, unit: str, what: str) -> None:
    """Refuse a quantity with a line that names it, its value and its unit."""
    if not holds:
        raise ValueError(f"{name} ({value} {unit}) must be {what}")


def span(values: Tensor) -> str:
    """The least and the greatest, as a line of refusal shows them."""
    return f"{values.min():.4g} to {values.max():.4g}"


def whole_steps(duration: float, dt: float, tau_ref: float) -> int:
    """How many steps of dt make the duration; both in seconds."""
    require(0 < dt < math.inf, "dt", dt, "s", "a positive time")
    require(0 < duration < math.inf, "duration", duration, "s", "a positive time")
    require(
        tau_ref == 0 or dt <= tau_ref * (1 + 1e-9), "dt", dt, "s",
        f"at most tau_ref ({tau_ref} s), because the rest after a spike takes whole steps",
    )  # fmt: skip
    steps = round(duration / dt)
    whole = steps >= 1 and abs(duration / dt - steps) <= 1e-6 * steps
    require(whole, "duration", duration, "s", f"a whole number of steps of dt ({dt} s)")
    return steps


def rows_of(
    drive: Drive, steps: int, name: str, unit: str, device: torch.device | str | None = None
) -> Float[Tensor, "rows neurons"]:
    """The input as one row, or one for each step, on the device."""
    rows = torch.as_tensor(drive, dtype=None if isinstance(drive, Tensor) else torch.float64)
    require(rows.numel() > 0, name, "empty", unit, "at least one number for each neuron")
    finite = all(math.isfinite(end) for end in torch.stack(rows.aminmax()).tolist())  # of NaN, NaN
    require(finite, name, "not finite", unit, "finite numbers only")
    rows = rows.reshape(1, -1) if rows.dim() < 2 else rows
    fits = len(rows) in (1, steps)
    require(fits, name, f"{len(rows)} rows", unit, f"one row, or one for each of {steps} steps")
    return rows.to(device) if device is not None else rows


# -------- the network ends here; training and pictures follow --------


def interval_rates(recording: Recording[Membranes], neurons: int) -> Float[Tensor, " neurons"]:
    """Rates from the first spike to the last; 0 for a neuron with fewer than two."""
    found = torch.zeros(neurons, dtype=torch.float64)
    for neuron in range(neurons):
        times = recording.times[recording.neurons == neuron]
        if len(times) > 1:
            found[neuron] = (len(times) - 1) / (times[-1] - times[0])
    return found


def euler_errors(tau_m: float, tau_ref: float, dt: float) -> Float[Tensor, " 2"]:
    """How far Euler's trace is from (4) after about tau_m, with steps of dt and of dt / 2."""
    steps, neuron = max(2, round(tau_m / dt)), EulerLIF(tau_m, tau_ref)
    v_in = torch.tensor([0.9], dtype=torch.float64)
    ends = [neuron.simulate(v_in, steps * dt, dt / part).state.voltage for part in (1, 2)]
    return (torch.cat(ends) - closed_form(v_in, v_in.new_tensor([steps * dt]), tau_m)[0]).abs()


@dataclass(frozen=True, kw_only=True)
class FiringRate(Simulation):
    """Measure how fast neurons fire under constant input, beside the formula."""

    meanings: ClassVar[Mapping[str, str]] = {
        "rate_error": "relative error of the rate with spikes on the grid",
        "inside_error": "relative error of the rate with spikes inside a step",
        "rough_error": "relative error of the rate on the grid with a coarse step",
        "euler_order": "order of the error of Euler's method: 1",
        "trace_error": "how far the membrane is from its closed form before the first spike",
        "layer_error": "relative difference of a bias and a constant-1 unit: none",
        "tuning_error": "relative error of tuning curves at their maximum rates",
        "wrong_intercepts": "neurons that fire below or are silent above their intercept",
    }

    tau_m: float = 0.02
    """Membrane time constant, s."""
    tau_ref: float = 0.002
    """Rest after a spike, s."""
    dt: float = 1e-5
    """Step of the neurons whose spikes lie on the grid, s."""
    coarse: float = 1e-3
    """Step of the neurons whose spikes lie inside steps, s."""
    duration: float = 2.0
    """Length of each run, s."""
    inputs: int = 60
    """Inputs v_in between 1.05 and 10, evenly on a logarithmic scale."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.above(0, "tau_m", "dt", "coarse", "duration")
        self.at_least(0, "tau_ref")
        for name in ("dt", "coarse"):
            fits = self.tau_ref == 0 or getattr(self, name) <= self.tau_ref
            self.require(fits, name, "at most tau_ref, in seconds")
        self.require(self.duration >= 0.2, "duration", "at least 0.2 s: two spikes at v_in 1.05")
        self.at_least(2, "inputs")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        fine, inside = LIF(self.tau_m, self.tau_ref), InterpolatedLIF(self.tau_m, self.tau_ref)
        v_in = torch.logspace(math.log10(1.05), 1, self.inputs, dtype=torch.float64)
        steps, coarse = round(self.duration / self.dt), round(self.duration / self.coarse)
        grid = fine.simulate(v_in, steps * self.dt, self.dt)
        within = inside.simulate(v_in, coarse * self.coarse, self.coarse)
        rough = fine.simulate(v_in, coarse * self.coarse, self.coarse)
        shown = torch.tensor([0.9, 1.2, 1.5, 3.0], dtype=torch.float64)
        trace = fine.simulate(shown, round(0.1 / self.dt) * self.dt, self.dt, record=range(4))
        max_rates = 100 + 100 * torch.rand(16, generator=generator, dtype=torch.float64)
        max_rates = max_rates.clamp(max=0.8 / self.tau_ref) if self.tau_ref else max_rates
        intercepts = 1.8 * torch.rand(16, generator=generator, dtype=torch.float64) - 0.9
        x, weight = torch.rand(2, 5, 5, generator=generator, dtype=torch.float64)
        bias = weight[0] + 1
        both = [fine.rate(x @ weight + bias), layer_with_constant(x, weight, bias, fine)]
        return {
            "v_in": v_in,
            "grid": interval_rates(grid, self.inputs),
            "inside": interval_rates(within, self.inputs),
            "rough": interval_rates(rough, self.inputs),
            "euler": euler_errors(self.tau_m, self.tau_ref, self.coarse),
            "trace": trace.voltages,
            "trace_times": trace.times,
            "trace_neurons": trace.neurons,
            "shown": shown,
            "layers": torch.stack(both),
            "max_rates": max_rates,
            "intercepts": intercepts,
            "encoders": torch.randint(2, (16, 1), generator=generator).double() * 2 - 1,
        }

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        neuron, v_in = LIF(self.tau_m, self.tau_ref), result["v_in"]
        formula = neuron.rate(v_in)
        times = torch.arange(len(result["trace"])).double() * self.dt
        first = [
            int((result["trace_times"][result["trace_neurons"] == n] / self.dt).round().min())
            if (result["trace_neurons"] == n).any()
            else len(times) - 1
            for n in range(4)
        ]
        exact = closed_form(result["shown"], times, self.tau_m)
        gaps = [(result["trace"][: k + 1, n] - exact[: k + 1, n]) for n, k in enumerate(first)]
        gain, bias = neuron.gain_bias(result["max_rates"], result["intercepts"])
        one = neuron.rate(gain + bias) / result["max_rates"] - 1
        edge = neuron.rate(gain * (result["intercepts"] + 1e-6) + bias)
        silent = neuron.rate(gain * (result["intercepts"] - 1e-6) + bias)
        return {
            "rate_error": (result["grid"] / formula - 1).abs().max().item(),
            "inside_error": (result["inside"] / formula - 1).abs().max().item(),
            "rough_error": (result["rough"] / formula - 1).abs().max().item(),
            "euler_order": (result["euler"][0] / result["euler"][1]).log2().item(),
            "trace_error": max(gap.abs().max().item() for gap in gaps),
            "layer_error": (result["layers"][1] / result["layers"][0] - 1).abs().max().item(),
            "tuning_error": one.abs().max().item(),
            "wrong_intercepts": float(((edge <= 0) | (silent > 0)).sum()),
        }

    def picture_membrane(self, result: Mapping[str, Tensor]) -> Figure:
        """The membrane under four inputs, with its threshold (dashed) and its spikes (black).

        Below the threshold it levels off; above it charges, fires, is reset to 0 and rests.
        """
        ms = torch.arange(len(result["trace"])).double() * self.dt * 1000
        names = [rf"$v_{{in}}$ = {value:g}" for value in result["shown"].tolist()]
        times, neurons = result["trace_times"] * 1000, result["trace_neurons"]
        return membrane_traces(
            ms,
            dict(zip(names, result["trace"].T, strict=True)),
            {name: times[neurons == n] for n, name in enumerate(names)},
            ylabel="v",
        )

    def picture_firing_rate(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """Firing rates by input beside the formula (left), and their distance from it (right).

        It is {rate_error:.1%} at most on the fine grid and {rough_error:.1%} on the coarse one.
        """
        neuron, v_in = LIF(self.tau_m, self.tau_ref), result["v_in"]
        fine, coarse = self.dt * 1000, self.coarse * 1000
        figure = firing_curve(
            neuron.rate,
            torch.logspace(-0.5, 3, 600, dtype=torch.float64),
            {
                f"on the grid, dt {fine:g} ms": (v_in, result["grid"]),
                f"inside steps, dt {coarse:g} ms": (v_in, result["inside"]),
                f"on the grid, dt {coarse:g} ms": (v_in, result["rough"]),
            },
            limit=1 / self.tau_ref if self.tau_ref else None,
            xlabel=r"input $v_{in}$ (threshold at 1)",
        )
        return figure, self.metrics(result)

    def picture_tuning_curves(self, result: Mapping[str, Tensor]) -> Figure:
        """The firing rate of neurons against the value that they encode.

        Each begins at its intercept and ends at its maximum rate, to the left for encoder -1.
        """
        neuron, x = LIF(self.tau_m, self.tau_ref), torch.linspace(-1, 1, 201, dtype=torch.float64)
        gain, bias = neuron.gain_bias(result["max_rates"], result["intercepts"])
        rates = neuron.tuning(x[:, None], result["encoders"], gain, bias)
        return panels(
            Panel(
                {f"_{n}": (x, curve) for n, curve in enumerate(rates.T)},
                "encoded value x",
                "firing rate (Hz)",
                "gain and bias from maximum rate and intercept",
            ),
            width=6.0,
        )

    def tiny(self) -> Self:
        return replace(self, duration=0.5, inputs=8, dt=1e-4)


RECIPES = {
    "lif": FiringRate(
        goal="rate_error <= 0.01 and inside_error <= 0.01 and trace_error <= 1e-12 "
        "and tuning_error <= 1e-6 and wrong_intercepts == 0 and layer_error <= 1e-14",
        covers=("N3", "N4", "N5", "N8"),
    ),
}
