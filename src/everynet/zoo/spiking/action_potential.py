"""Action potential of a Hodgkin-Huxley neuron: its phases, its refractory time, its firing rate.

    dV/dt > 20 mV/ms                        (1)  threshold: sodium opens (m)
    dV/dt <= 0                              (2)  peak: sodium is blocked (h), potassium opens (n)
    V < V_0                                 (3)  undershoot: potassium is still open
    V >= V_0                                (4)  recovered
    f = (k - 1) / (t_k - t_1)               (5)  firing rate, from k spikes
    J_on = (J_silent + J_next) / 2          (6)  onset: above it the neuron keeps firing
    p = ln(e(4 dt) / e(dt)) / ln 4          (7)  order of a method with the error e(dt)
    h = a - b n                             (8)  nearly so: leaves a plane of V and n
    C dV/dt = J - I_Na - I_K - I_L          (9)  in the plane, with m = m_inf(V)

The neuron is that of `hodgkin_huxley.py`:

    C dV/dt = J - g_Na m^3 h (V - E_Na) - g_K n^4 (V - E_K) - g_L (V - E_L)
    dx/dt = alpha_x(V) (1 - x) - beta_x(V) x,  x in {m, h, n}

where V_0 is V at the beginning, t_1 to t_k are the times of spikes, J is the current from outside
and a and b fit h to n. Sodium opens and drives V up; then it is blocked while potassium opens and
drives V below V_0, where it began. Until both are undone the neuron is refractory: soon after a
first pulse of current no second one makes it fire, and then only a strong one. From 6.26 to 9.78
uA/cm2 rest and firing are both stable: a current that steps up makes the neuron fire, one that
creeps up does not.

Hodgkin and Huxley (1952), "A quantitative description of membrane current and its application to
conduction and excitation in nerve", Journal of Physiology 117, doi:10.1113/jphysiol.1952.sp004764;
the plane: Rinzel (1985), "Excitation dynamics: insights from simplified membrane models",
Federation Proceedings 44.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.data.dataset import Spec
from everynet.plot.film import Film
from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.system.errors import UserError
from everynet.zoo.spiking.hodgkin_huxley import HodgkinHuxley, Recording, whole_steps
from everynet.zoo.spiking.pictures.neuron import action_potential, phase_plane, spike_frames
from everynet.zoo.spiking.solvers import METHODS

AXON = HodgkinHuxley()
GATES = ("m, lets sodium in", "h, blocks it if closed", "n, lets potassium out")
MOST_FRAMES, RATE, HOLD = 120, 10.0, 10  # of a film: frames, frames a second, frames of its end
PULSE = (0.001, 0.002)  # s: from when to when the pulse of a single spike is given
STRONGEST = 60.0  # uA/cm2 for 1 ms: a stronger pulse could lift V above 0 by itself


class Phases(NamedTuple):
    """When each part of an action potential begins (s)."""

    threshold: float
    peak: float
    undershoot: float
    recovered: float


def phases(grid: Float[Tensor, " samples"], v: Float[Tensor, " samples"]) -> Phases:
    """The parts of the first action potential of a trace that begins at rest."""
    risen = (v >= 0).nonzero()
    if not len(risen):
        raise ValueError(f"v (at most {v.max():.3g} mV) must rise above 0 mV: there is no spike")
    inside = int(risen[0])
    slope = v.diff() / (1e3 * grid.diff())
    threshold = int((slope[:inside] < 20).nonzero()[-1]) + 1  # (1)
    peak = inside + int((slope[inside:] <= 0).nonzero()[0])  # (2)
    below = peak + int((v[peak:] < v[0]).nonzero()[0])  # (3)
    back = (v[below:] >= v[0]).nonzero()  # (4)
    recovered = below + int(back[0]) if len(back) else len(v) - 1
    return Phases(*grid[[threshold, peak, below, recovered]].tolist())


def firing_rates(recording: Recording, since: float = 0.0) -> Float[Tensor, " neurons"]:
    """The rate of each neuron from its spikes after `since` (s), in Hz; 0 with fewer than two."""
    size = recording.state.shape[1]
    late = recording.times >= since
    times, neurons = recording.times[late], recording.neurons[late]
    count = torch.bincount(neurons, minlength=size)
    first = times.new_full((size,), math.inf).scatter_reduce(0, neurons, times, "amin")
    last = times.new_full((size,), -math.inf).scatter_reduce(0, neurons, times, "amax")
    return torch.where(count > 1, (count - 1) / (last - first), 0.0)  # (5)


def onset(currents: Float[Tensor, " neurons"], rates: Float[Tensor, " neurons"]) -> float:
    """The current between the last that does not keep a neuron firing and the next."""
    silent = int((rates == 0).nonzero()[-1]) if (rates == 0).any() else -1
    if not 0 <= silent < len(currents) - 1:
        raise ValueError("currents must begin below the onset of firing and end above it (uA/cm2)")
    return (currents[silent] + currents[silent + 1]).item() / 2  # (6)


def pulses(
    duration: float,
    dt: float,
    onsets: Float[Tensor, "pulses neurons"],
    amplitudes: Float[Tensor, "pulses neurons"],
    width: float,
) -> Float[Tensor, "steps neurons"]:
    """The current of each step where pulses of `width` begin at `onsets` (s)."""
    now = dt * (torch.arange(whole_steps(duration, dt), dtype=torch.float64) + 0.5)[:, None, None]
    on = (now > onsets) & (now < onsets + width)  # steps pulses neurons
    return (on * amplitudes).sum(1)


def inwards(
    train: Float[Tensor, "4 samples"],
    v: Float[Tensor, " columns"],
    n: Float[Tensor, " rows"],
    current: float,
) -> Float[Tensor, "rows columns"]:
    """What charges the membrane at each V and n (uA/cm2), h on the line that fits the train."""
    h_mean, n_mean = train[2].mean(), train[3].mean()
    b = -((train[2] - h_mean) @ (train[3] - n_mean)) / (train[3] - n_mean).square().sum()
    a = h_mean + b * n_mean
    gate, voltage = torch.meshgrid(n, v, indexing="ij")
    h = (a - b * gate).clamp(0, 1)  # (8)
    state = torch.stack([voltage, AXON.settled(voltage)[0], h, gate])
    return current - AXON.currents(state).sum(0)  # (9)


@dataclass(frozen=True, kw_only=True)
class ActionPotential(Simulation):
    """One action potential, the train that a constant current makes, and their laws."""

    writes: ClassVar[str] = "film"
    meanings: ClassVar[Mapping[str, str]] = {
        "rest": "potential at rest, in mV",
        "peak": "highest potential of a spike, in mV",
        "rate": "spikes a second under a constant current",
        "onset": "current above which the neuron keeps firing, in uA/cm2",
        "refractory_ms": "time after a spike in which no second one can be made, in ms",
        "euler_order": "order of the error of exponential Euler: 1",
        "rk4_order": "order of the error of the Runge-Kutta method: 4",
        "staggered_order": "order of the error of the staggered method: 2",
    }

    current: float = 10.0
    """Constant current of the train (uA/cm2)."""
    duration: float = 0.1
    """Length of the train (s)."""
    dt: float = 1e-5
    """Step (s)."""
    method: str = "staggered"
    """staggered, rk4 or exponential-euler."""
    strongest: float = 40.0
    """Largest current of the f-I curve (uA/cm2)."""
    points: int = 60
    """Currents of the f-I curve, and of the search for the onset of firing."""
    patience: float = 1.0
    """How long a current is held (s): it keeps a neuron firing if the second half has spikes."""
    halvings: int = 10
    """Times the interval around the weakest second pulse is halved."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(0 < self.dt <= 5e-5, "dt", "above 0 and at most 5e-5 s, where rk4 is stable")
        self.one_of("method", METHODS)
        self.at_least(1, "halvings")
        self.at_least(2, "points")
        self.require(math.isfinite(self.current), "current", "finite (uA/cm2)")
        self.require(self.strongest >= 10, "strongest", "at least 10 uA/cm2, where neurons fire")
        for name in ("duration", "patience"):
            value = getattr(self, name)
            self.require(value >= 0.02, name, "at least 0.02 s: a train has several spikes")
            whole = math.isclose(round(value / self.dt) * self.dt, value, rel_tol=1e-9)
            self.require(whole, name, f"a whole number of steps dt ({self.dt} s)")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        train = AXON.simulate(self.current, self.duration, self.dt, method=self.method)
        once = torch.zeros(1, dtype=torch.float64)
        single = self.pulsed(once, once, 0.025)
        sweep = torch.linspace(0, self.strongest, self.points, dtype=torch.float64)
        rates = self.held(sweep)
        crept = AXON.rest(sweep)
        crept[0] += 0.1  # mV: where the rest is stable, it comes back
        width = self.strongest / (self.points - 1)
        around = width * torch.linspace(-0.5, 0.5, self.points, dtype=torch.float64)
        fine = onset(sweep, rates) + around
        steps, errors = self.convergence()
        gaps, thresholds = self.refractoriness()
        return {
            "rest": AXON.rest(),
            "grid": train.grid,
            "train": train.traces[:, :, 0],
            "spikes": train.times,
            "rate": firing_rates(train),
            "single_grid": single.grid,
            "single": single.traces[:, :, 0],
            "sweep": sweep,
            "fine": fine,
            "rates": rates,
            "rates_crept": self.held(sweep, crept),
            "rates_fine": self.held(fine),
            "steps": steps,
            "errors": errors,
            "gaps": gaps,
            "thresholds": thresholds,
        }

    def held(
        self, currents: Float[Tensor, " neurons"], state: Float[Tensor, "4 neurons"] | None = None
    ) -> Float[Tensor, " neurons"]:
        """The rate (Hz) at which each current keeps a neuron firing."""
        seen = AXON.simulate(
            currents, self.patience, self.dt, method=self.method, record=(), state=state
        )
        return firing_rates(seen, self.patience / 2)

    def pulsed(
        self, gaps: Float[Tensor, " neurons"], second: Float[Tensor, " neurons"], until: float
    ) -> Recording:
        """Neurons with a pulse of 20 uA/cm2 and 1 ms after 1 ms, and a second `gaps` (s) later."""
        first, width = PULSE[0], PULSE[1] - PULSE[0]
        until = round(until / self.dt) * self.dt
        onsets = torch.stack([torch.full_like(gaps, first), first + gaps])
        amplitudes = torch.stack([torch.full_like(gaps, 20.0), second])
        given = pulses(until, self.dt, onsets, amplitudes, width)
        return AXON.simulate(given, until, self.dt, method=self.method, record=(0,))

    def refractoriness(self) -> tuple[Float[Tensor, " gaps"], Float[Tensor, " gaps"]]:
        """The weakest second pulse that fires, by the time since the first (s); inf where none."""
        gaps = torch.linspace(0.002, 0.03, 29, dtype=torch.float64)

        def fires(second: Float[Tensor, " gaps"]) -> Tensor:
            seen = self.pulsed(gaps, second, 0.04)
            return torch.bincount(seen.neurons, minlength=len(gaps)) > 1

        low, high = torch.zeros_like(gaps), torch.full_like(gaps, STRONGEST)
        never = ~fires(high)
        for _ in range(self.halvings):
            middle = (low + high) / 2
            fired = fires(middle)
            low, high = torch.where(fired, low, middle), torch.where(fired, middle, high)
        return gaps, torch.where(never, math.inf, high)

    def convergence(self) -> tuple[Float[Tensor, " steps"], Float[Tensor, "methods steps"]]:
        """The rms error of V over the first 40 ms of the train, by method and step (s)."""
        steps = torch.tensor([1e-6, 2.5e-6, 5e-6, 1e-5, 2e-5, 4e-5], dtype=torch.float64)

        def voltage(dt: float, method: str) -> Float[Tensor, " samples"]:
            seen = AXON.simulate(self.current, 0.04, dt, method=method)
            return seen.traces[0, :: round(4e-5 / dt), 0]

        truth = voltage(5e-7, "rk4")
        errors = [
            [(voltage(dt, method) - truth).square().mean().sqrt() for dt in steps.tolist()]
            for method in METHODS
        ]
        return steps, torch.tensor(errors, dtype=torch.float64)

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        euler, rk4, staggered = (
            torch.log(result["errors"][:, 3] / result["errors"][:, 1]) / math.log(4)  # (7)
        ).tolist()
        return {
            "rest": result["rest"][0].item(),
            "peak": result["train"][0].max().item(),
            "rate": result["rate"].item(),
            "onset": onset(result["fine"], result["rates_fine"]),
            "refractory_ms": 1e3 * result["gaps"][result["thresholds"].isinf()].max().item(),
            "euler_order": euler,
            "rk4_order": rk4,
            "staggered_order": staggered,
        }

    def picture_action_potential(self, result: Mapping[str, Tensor]) -> Figure:
        """Voltage, gates and currents of one spike. The gate m lets sodium in and V soars.

        Then h blocks sodium and n lets potassium out, which brings V back.
        """
        grid, single = result["single_grid"], result["single"]
        return action_potential(
            grid,
            single[0],
            gates=dict(zip(("m", "h", "n"), single[1:], strict=True)),
            currents=dict(zip(("Na", "K", "leak"), AXON.currents(single), strict=True)),
            phases=phases(grid, single[0])._asdict(),
        )

    def picture_gates(self, result: Mapping[str, Tensor]) -> Figure:
        """The open share of each gate in the end (left) and its time constant (right), by voltage.

        The gate m settles at once, while h and n take a few milliseconds.
        """
        v = torch.linspace(-100, 50, 301, dtype=torch.float64)
        rest = AXON.rest()[0].item()
        return panels(
            *(
                Panel(
                    {name: (v, value) for name, value in zip(GATES, values, strict=True)},
                    "voltage V (mV)",
                    label,
                    title,
                    marks={f"rest, {rest:.0f} mV": rest},
                )
                for values, label, title in (
                    (AXON.settled(v), "open share in the end", "steady states"),
                    (AXON.time_constants(v), "time constant (ms)", "how long it takes"),
                )
            )
        )

    def picture_phase_plane(self, result: Mapping[str, Tensor]) -> Figure:
        """The train (blue) in the plane of voltage and potassium gate, and where each stands still.

        It moves right in the shaded part and left outside it; firing is a closed loop.
        """
        train = result["train"]
        across = torch.linspace(-85, 55, 281, dtype=train.dtype)
        up = torch.linspace(0.25, 0.85, 241, dtype=train.dtype)
        slope = inwards(train, across, up, self.current)
        return phase_plane((train[0], train[3]), across, up, slope, AXON.settled(across)[2])

    def picture_laws(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """Firing rate by current, the weakest second pulse that fires, and errors of the solvers.

        Firing begins at {onset:.2f} uA/cm2 with a jump; soon after a spike no pulse fires.
        """
        begins = onset(result["fine"], result["rates_fine"])
        fired = result["thresholds"].isfinite()
        gaps, thresholds = 1e3 * result["gaps"][fired], result["thresholds"][fired]
        steps, share = 1e6 * result["steps"], result["steps"] / result["steps"][-1]
        names = ("exponential Euler", "Runge-Kutta", "staggered")
        errors = dict(zip(names, result["errors"], strict=True))
        orders = dict(zip(names, (1, 4, 2), strict=True))
        figure = panels(
            Panel(
                {
                    "stepped up from 0": (result["sweep"], result["rates"]),
                    "crept up, then nudged": (result["sweep"], result["rates_crept"]),
                },
                "current (µA/cm²)",
                "firing rate (Hz)",
                "f-I curve",
                marks={f"onset at {begins:.2f}": begins},
            ),
            Panel(
                {"second pulse": (gaps, thresholds)},
                "time after the first pulse (ms)",
                "weakest pulse that fires (µA/cm²)",
                f"first of those tried to fire again: {gaps[0]:.0f} ms",
            ),
            Panel(
                {name: (steps, error) for name, error in errors.items()},
                "step (µs)",
                "rms error of V (mV)",
                "error by step",
                dashes="order 1, 4, 2",
                guides={n: (steps, e[-1] * share ** orders[n]) for n, e in errors.items()},
                log="xy",
            ),
        )
        return figure, {"onset": begins}

    def sample(
        self,
        result: Mapping[str, Tensor],
        spec: Spec,
        generator: torch.Generator,
        *,
        frames: int = 72,
    ) -> Film:
        """Voltage, gates and currents of one spike, and the channels of the membrane as they open.

        Frames stand at equal distances along the trace: most of them where it is steep.
        """
        if not 2 <= frames <= MOST_FRAMES:
            raise UserError(f"frames ({frames}) must be from 2 to {MOST_FRAMES}")
        single, names = result["single"], ("Na", "K", "leak")
        drawn = spike_frames(
            result["single_grid"],
            single[0],
            gates=dict(zip("mhn", single[1:], strict=True)),
            currents=dict(zip(names, AXON.currents(single), strict=True)),
            conductances=dict(zip(names, AXON.conductances(single), strict=True)),
            pulse=PULSE,
            shown=equally_far(single[0], frames),
        )
        return Film(drawn, RATE, hold=HOLD)

    def tiny(self) -> Self:
        return replace(self, duration=0.04, points=7, patience=0.1, halvings=1)


def equally_far(v: Float[Tensor, " samples"], count: int) -> list[int]:
    """So many samples of a trace with its ends, as far apart in time and voltage together."""
    steps = v.diff().abs()
    far = (steps / steps.sum() + 1 / len(steps)).cumsum(0) / 2
    within = torch.linspace(0, 1, count, dtype=v.dtype)[1:-1]
    return [0, *(torch.searchsorted(far, within) + 1).tolist(), len(v) - 1]


RECIPES = {
    "hodgkin-huxley": ActionPotential(
        goal="peak >= 38 and peak <= 42 and rate >= 66.6 and rate <= 70.6 "
        "and onset >= 6.25 and onset <= 6.3",
        covers=("N2",),
    ),
}
