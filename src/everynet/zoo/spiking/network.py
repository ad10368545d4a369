"""A recurrent network of spiking neurons: membranes that spike, synapses that carry each spike on.

    tau_s ds_i/dt = -s_i                                       (1)  synapse, at all times
    tau_m dv_i/dt = s_i + I_i - v_i                            (2)  membrane, outside the rest
    v_i >= 1: spike, then v_i = 0 for tau_ref                  (3)  the rest
    spike of j at t: s_i += w_ji / tau_s at t + d_ji           (4)  from every neuron j to every i
    s_i += w n / tau_s, n ~ Poisson(rate dt)                   (5)  Poisson input, in each step

One step solves (1) and (2) exactly: with a = e^{-dt/tau_s} and b = e^{-dt/tau_m}

    v += (I - v) (1 - b) + s (a - b) tau_s / (tau_s - tau_m)   (6)  then s *= a

where v_i is the membrane of neuron i, s_i its synaptic input, I_i its input from outside, w_ji and
d_ji the weight and the delay from j to i. Time is in seconds, v and I without dimension (rest 0,
threshold 1). A weight is in seconds: a train of rate f through a weight w is a mean input of w f,
since the synapse integrates to 1. Spikes lie on the grid, and their dates, the rest and delays
follow Brian2: a spike of the step that begins at t is dated t and arrives at the end of the step
that begins at t + d; v goes on from t + tau_ref.

Brunel and van Rossum (2007), "Lapicque's 1907 paper: from frogs to integrate-and-fire", Biological
Cybernetics 97; Gerstner et al. (2014), "Neuronal Dynamics", section 5.1 and chapter 13.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from everynet.kernels.lif import Recording
from everynet.kernels.lif_network import NetworkState, Noise, Step, Wiring, advance
from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.zoo.spiking.lif import LIF, Drive, require, rows_of, whole_steps
from everynet.zoo.spiking.pictures.spikes import membrane_traces, raster
from everynet.zoo.spiking.spike_statistics import variation

MOST = 500.0  # Poisson spikes in one step of one neuron; e^-MOST is still a number
SHORT = 1 << 16  # neurons that 16-bit numbers can tell apart


class LIFNetwork:
    """Neurons joined by weights[j, i], from j to i; computed in the precision of the weights.

    All times are in seconds: `tau_s` of the synapses, `tau_m` of the membranes, `tau_ref` of the
    rest after a spike, and `delay` from a spike to its effect (0.005, 0.02, 0.002 are usual). A
    weight is in seconds too: a spike adds weight / tau_s to the input, whose threshold is 1.
    """

    def __init__(
        self,
        weights: Float[Tensor, "from to"] | CSR | NDArray[Any],  # s; an array of any numbers
        tau_s: float,  # s
        tau_m: float,  # s
        tau_ref: float,  # s
        delay: float | Tensor | NDArray[Any] = 0.0,  # s; of each synapse: as the weights, or values
    ) -> None:
        require(0 < tau_s < math.inf, "tau_s", tau_s, "s", "a positive time")
        self.neuron = LIF(tau_m, tau_ref)
        self.tau_s = tau_s
        self.wiring, self.delay = _wired(weights, delay)
        self.neurons = max(len(self.wiring.dense), len(self.wiring.starts) - 1)

    def rule(self, dt: float) -> Step:
        """The update of one step, as `simulate_by_loop` has it."""
        decay = math.exp(-dt / self.tau_s)
        factor = -math.expm1(-dt / self.neuron.tau_m)
        hold = round(self.neuron.tau_ref / dt)
        lag = 0 if isinstance(self.delay, Tensor) else round(self.delay / dt)
        x = dt / self.neuron.tau_m - dt / self.tau_s
        slope = math.expm1(x) / x if x else 1.0  # the limit where the two constants are equal
        share = (1 - factor) * dt / self.neuron.tau_m * slope
        return Step(factor, share / self.tau_s, decay, hold, lag)  # charge is tau_s s

    def rest(self, dt: float, device: torch.device | str | None = None) -> NetworkState:
        """The initial state."""
        values = self.wiring.values.new_zeros(self.neurons, device=device)
        slots = 0
        if isinstance(self.delay, Tensor):
            slots = round(float(self.delay.max()) / dt) + 1 if len(self.delay) else 1
        return NetworkState(
            voltage=values,
            charge=values.clone(),
            refractory=torch.zeros(self.neurons, dtype=torch.int32, device=device),
            waiting=torch.zeros(2, 0, dtype=torch.long),
            arriving=values.new_zeros(slots, self.neurons),
        )

    def simulate(  # noqa: PLR0917 -- the order of the first seven is the interface
        self,
        duration: float,
        dt: float,
        current: Drive | None = None,
        poisson_rate: float | Float[Tensor, " neurons"] | None = None,
        record: Sequence[int] = (),
        generator: torch.Generator | None = None,
        state: NetworkState | None = None,
        *,
        poisson_weight: float = 0.01,
        device: torch.device | str | None = None,
    ) -> Recording[NetworkState]:
        """Run from rest, or on from the state another run ended in, for `duration` s by `dt` s.

        `current` has no dimension and fires a neuron above 1: a number, one for each neuron, or a
        row of them for each step. The recording has `times` in s and the `neurons` that fired.
        `poisson_rate` is in Hz and `poisson_weight` in s, so that 100 Hz are a mean input of 1. The
        generator gives the key of the random numbers; a continued run keeps the key of its state.
        """
        steps = whole_steps(duration, dt, self.neuron.tau_ref)
        device = self.wiring.values.device if device is None else torch.device(device)
        dtype = self.wiring.values.dtype
        rows = rows_of(0.0 if current is None else current, steps, "current", "dimensionless")
        fits = rows.shape[1] in (1, self.neurons)
        require(fits, "current", rows.shape[1], "values", f"one, or one for {self.neurons} neurons")
        known = all(0 <= i < self.neurons for i in record)
        require(known, "record", tuple(record), "neurons", f"numbers from 0 to {self.neurons - 1}")
        state = self.rest(dt, device) if state is None else state
        fits = len(state.voltage) == self.neurons
        require(fits, "state", len(state.voltage), "neurons", f"that of {self.neurons} neurons")
        slots, needed = len(state.arriving), len(self.rest(dt).arriving)
        same = "that of a run with the same dt and delays"
        require(slots == needed, "state", slots, "steps of delay", f"of {needed}: {same}")
        noise = self._noise(poisson_rate, poisson_weight, dt)
        if len(noise.mean) and state.key is None:
            key = torch.randint(2**63 - 1, (), generator=generator)
            state = replace(state, key=int(key))
        wiring = self.wiring
        if isinstance(self.delay, Tensor):
            wiring = wiring._replace(delays=(self.delay / dt).round().int())
        return advance(
            Wiring(*(part.to(device) for part in wiring)),
            _moved(state, device, dtype),
            rows.to(device, dtype).expand(-1, self.neurons),
            noise._replace(mean=noise.mean.to(device)),
            self.rule(dt),
            steps=steps,
            dt=dt,
            record=record,
        )

    def _noise(self, rate: float | Tensor | None, weight: float, dt: float) -> Noise:
        if rate is None:
            return Noise(torch.zeros(0, dtype=torch.float64), 0.0)
        rates = torch.as_tensor(rate, dtype=torch.float64).reshape(-1)
        fits = len(rates) in (1, self.neurons)
        require(fits, "poisson_rate", len(rates), "values", f"one, or one for {self.neurons}")
        good = bool(rates.isfinite().all() and (rates >= 0).all())
        require(good, "poisson_rate", "negative or not finite", "Hz", "numbers from 0 up")
        most, fewer = float(rates.max()) * dt, "take a smaller dt"
        require(most <= MOST, "poisson_rate", most / dt, "Hz", f"at most {MOST} a step; {fewer}")
        require(math.isfinite(weight), "poisson_weight", weight, "s", "a finite number")
        return Noise(rates.expand(self.neurons) * dt, weight)  # (5)


@runtime_checkable
class CSR(Protocol):
    """Compressed rows, as scipy.sparse has them."""

    indptr: NDArray[Any]  # int32 or int64
    indices: NDArray[Any]  # int32 or int64
    data: NDArray[Any]  # float32 or float64

    @property
    def shape(self) -> tuple[int, ...]: ...


def simulate_by_loop(
    weights: Float[Tensor, "neurons neurons"], lags: Int[Tensor, "neurons neurons"],
    current: Float[Tensor, " neurons"], *, steps: int, dt: float, tau_s: float, tau_m: float,
    tau_ref: float,
) -> tuple[list[tuple[int, int]], Float[Tensor, "steps neurons"]]:  # fmt: skip
    """The network as it is written, for reading and for tests; delays `lags` are in steps.

    Gives (step, neuron) of each spike and v at the start of each step. The time constants differ.
    """
    a, b, neurons = math.exp(-dt / tau_s), math.exp(-dt / tau_m), len(weights)
    v, s = torch.zeros_like(current), torch.zeros_like(current)
    last = torch.full_like(current, -math.inf)  # the step of the last spike
    arriving = current.new_zeros(steps + int(lags.max()) + 1, neurons)
    spikes, trace = [], []
    for k in range(steps):
        trace.append(v)
        active = k - last >= round(tau_ref / dt)
        moved = v + (current - v) * (1 - b) + s * (a - b) * tau_s / (tau_s - tau_m)  # (2) (6)
        v = torch.where(active, moved, v)
        s = a * s  # (1)
        fired = (active & (v >= 1)).nonzero().flatten()
        for j in fired.tolist():
            spikes.append((k, j))
            arriving[k + lags[j], torch.arange(neurons)] += weights[j] / tau_s  # (4)
        s = s + arriving[k]
        v[fired], last[fired] = 0.0, k  # (3)
    return spikes, torch.stack(trace)


def _moved(state: NetworkState, device: torch.device, dtype: torch.dtype) -> NetworkState:
    """The state on another device; the spikes on their way stay in this one's memory."""
    return replace(
        state,
        voltage=state.voltage.to(device, dtype),
        charge=state.charge.to(device, dtype),
        refractory=state.refractory.to(device),
        arriving=state.arriving.to(device, dtype),
    )


def _as_tensor(given: Any) -> Any:  # noqa: ANN401 -- what is no dense array stays as it is
    """Dense numbers as a tensor, in double precision unless they are single."""
    if not isinstance(given, list | tuple | np.ndarray):
        return given
    array = np.asarray(given)
    require(array.dtype.kind in "fiub", "weights", array.dtype, "type", "numbers")
    return torch.from_numpy(array.astype(np.float32 if array.dtype == np.float32 else np.float64))


def _wired(
    weights: Any,  # noqa: ANN401 -- a tensor, an array, or compressed rows
    delay: Any,  # noqa: ANN401 -- a number, a tensor or an array
) -> tuple[Wiring, float | Float[Tensor, " synapses"]]:
    """The weights, checked, as the kernel wants them, and the delay or the one of each synapse."""
    weights, delay = _as_tensor(weights), _as_tensor(delay)
    known = hasattr(weights, "shape")
    kind = type(weights).__name__
    require(known, "weights", kind, "type", "a square array, or compressed rows as scipy's csr")
    size = tuple(weights.shape)
    square = len(size) == 2 and size[0] == size[1] and size[0] > 0
    shape = " x ".join(map(str, size))
    require(square, "weights", shape, "s", "square: weights[j, i] leads from neuron j to neuron i")
    starts, columns = torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.int32)
    dense = torch.zeros(0, 0)
    if isinstance(weights, Tensor) and weights.layout == torch.strided:
        dense = weights.detach().contiguous()
        values = dense
        if isinstance(delay, Tensor):  # only a list of synapses has a place for their delays
            same = delay.shape == dense.shape
            require(same, "delay", tuple(delay.shape), "s", f"of the shape {shape} of the weights")
            there = dense.nonzero()
            values, delay = dense[tuple(there.T)], delay[tuple(there.T)]
            starts = torch.bincount(there[:, 0] + 1, minlength=size[0] + 1).cumsum(0)
            columns, dense = there[:, 1].int(), dense.new_zeros(0, 0)
    elif isinstance(weights, Tensor):
        compressed = weights.layout == torch.sparse_csr
        require(compressed, "weights", weights.layout, "layout", "dense or compressed rows (CSR)")
        starts, columns = weights.crow_indices().long(), weights.col_indices()
        values = weights.values().detach()
    else:
        compressed = getattr(weights, "format", "csr") == "csr"
        require(compressed, "weights", getattr(weights, "format", ""), "format", "csr: use tocsr()")
        starts = torch.from_numpy(weights.indptr).long()
        columns, values = torch.from_numpy(weights.indices), torch.from_numpy(weights.data)
    real = values.dtype in (torch.float32, torch.float64)
    require(real, "weights", values.dtype, "type", "float32 or float64")
    extremes = torch.stack(values.aminmax()) if values.numel() else torch.zeros(2)
    finite = bool(extremes.isfinite().all())  # NaN is handed on by both
    require(finite, "weights", "not finite", "s", "finite numbers only")
    if not len(dense):
        _check_rows(starts, columns, len(values))
    if size[0] <= SHORT:
        columns = columns.to(torch.uint16)
    if isinstance(delay, Tensor):
        delay = delay.reshape(-1).double()
        fits = len(delay) == len(values)
        require(
            fits, "delay", f"{len(delay)} values", "s", f"one for each of {len(values)} weights"
        )
    good = (
        bool(((delay >= 0) & delay.isfinite()).all())
        if isinstance(delay, Tensor)
        else 0 <= delay < math.inf
    )
    shown = "negative or not finite" if isinstance(delay, Tensor) else delay
    require(good, "delay", shown, "s", "a time from 0 up")
    stored = values.new_zeros(0) if len(dense) else values
    empty = torch.zeros(0, dtype=torch.int32)
    return Wiring(dense.to(values), starts, columns, stored, empty), delay


def _check_rows(starts: Tensor, columns: Tensor, stored: int) -> None:
    """Refuse places outside the matrix: the compiled loop does not look again."""
    neurons = len(starts) - 1
    ordered = int(starts[0]) == 0 and bool((starts.diff() >= 0).all())
    fits = ordered and int(starts[-1]) == len(columns) == stored
    require(fits, "weights", "row pointers", "places", "rising from 0 to the number of weights")
    low, high = columns.aminmax() if len(columns) else (torch.tensor(0), torch.tensor(0))
    inside = int(low) >= 0 and int(high) < neurons
    require(inside, "weights", "column indices", "neurons", f"from 0 to {neurons - 1}")


def random_weights(
    excitatory: int, inhibitory: int, *, share: float, weight: float, balance: float,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "neurons neurons"]:  # fmt: skip
    """Each pair joined with the chance `share`; inhibition is `balance` times as strong."""
    neurons = excitatory + inhibitory
    joined = torch.rand(neurons, neurons, generator=generator, dtype=torch.float64) < share
    strength = torch.full((neurons,), weight, dtype=torch.float64)
    strength[excitatory:] *= -balance
    return joined.fill_diagonal_(False) * strength[:, None]


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class RandomLIFNetwork(Simulation):
    """Excitatory and inhibitory neurons joined at random, under a constant and a Poisson input."""

    meanings: ClassVar[Mapping[str, str]] = {
        "rate": "mean firing rate of the neurons, in Hz",
        "rate_excitatory": "mean firing rate of excitatory neurons, in Hz",
        "rate_inhibitory": "mean firing rate of inhibitory neurons, in Hz",
        "irregularity": "coefficient of variation of the intervals: 0 for a clock, 1 for Poisson",
        "halves_differ": "largest difference of a run in two halves from a whole one: none",
        "single_error": "relative error of the rate of a neuron alone",
    }

    excitatory: int = 400
    """Neurons whose spikes raise the input of others."""
    inhibitory: int = 100
    """Neurons whose spikes lower it."""
    share: float = 0.1
    """Share of the pairs that are joined."""
    weight: float = 4e-4
    """Of an excitatory synapse, s."""
    balance: float = 5.0
    """Strength of an inhibitory synapse over that of an excitatory one."""
    drive: float = 0.7
    """Constant input, without dimension."""
    poisson_rate: float = 500.0
    """Rate of the Poisson input of each neuron, Hz."""
    poisson_weight: float = 1e-3
    """Weight of the Poisson input, s."""
    tau_m: float = 0.02
    """Membrane time constant, s."""
    tau_s: float = 0.005
    """Synaptic time constant, s."""
    tau_ref: float = 0.002
    """Rest after a spike, s."""
    delay: float = 0.0015
    """Time from a spike to its effect, s."""
    duration: float = 2.0
    """Length of the run, s."""
    dt: float = 1e-4
    """Step, s."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(5, "excitatory")
        self.at_least(1, "inhibitory")
        self.require(0 < self.share <= 1, "share", "above 0 and at most 1")
        self.above(0, "tau_m", "tau_s", "duration", "dt")
        self.at_least(0, "tau_ref", "delay", "poisson_rate")
        self.require(self.poisson_rate * self.dt <= MOST, "poisson_rate", f"below {MOST} / dt Hz")
        short = self.tau_ref == 0 or self.dt <= self.tau_ref
        self.require(short, "dt", "at most tau_ref, in seconds")
        self.require(self.duration >= 20 * self.dt, "duration", "at least twenty steps of dt")

    def network(self, generator: torch.Generator) -> LIFNetwork:
        """The neurons and their wiring."""
        weights = random_weights(
            self.excitatory, self.inhibitory, share=self.share, weight=self.weight,
            balance=self.balance, generator=generator,
        )  # fmt: skip
        return LIFNetwork(weights, self.tau_s, self.tau_m, self.tau_ref, self.delay)

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        network = self.network(generator)
        half = round(self.duration / self.dt / 2) * self.dt
        given = (self.drive, self.poisson_rate, (0, 1, self.excitatory))
        first = network.simulate(
            half, self.dt, *given, generator, poisson_weight=self.poisson_weight
        )
        second = network.simulate(
            half, self.dt, *given, state=first.state, poisson_weight=self.poisson_weight
        )
        whole = network.simulate(
            2 * half, self.dt, *given, state=replace(network.rest(self.dt), key=first.state.key),
            poisson_weight=self.poisson_weight,
        )  # fmt: skip
        halves = torch.cat([first.voltages, second.voltages])
        single = LIFNetwork(torch.zeros(1, 1).double(), self.tau_s, self.tau_m, self.tau_ref)
        fine = min(1e-5, self.tau_ref) if self.tau_ref else 1e-5
        alone = single.simulate(round(2 / fine) * fine, fine, 1.5)
        rate = (len(alone.times) - 1) / (alone.times[-1] - alone.times[0])
        return {
            "times": whole.times,
            "neurons": whole.neurons,
            "voltages": whole.voltages,
            "halves_differ": (halves - whole.voltages).abs().max(),
            "single_rate": rate,
        }

    @property
    def shown(self) -> float:
        """Seconds that are drawn."""
        return min(self.duration, 0.5)

    def counts(self, result: Mapping[str, Tensor]) -> Float[Tensor, " neurons"]:
        """Spikes of each neuron."""
        neurons = self.excitatory + self.inhibitory
        return torch.bincount(result["neurons"].long(), minlength=neurons).double()

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        counts = self.counts(result)
        formula = LIF(self.tau_m, self.tau_ref).rate(1.5).item()
        return {
            "rate": float(counts.mean()) / self.duration,
            "rate_excitatory": float(counts[: self.excitatory].mean()) / self.duration,
            "rate_inhibitory": float(counts[self.excitatory :].mean()) / self.duration,
            "irregularity": variation(result["times"], result["neurons"], len(counts)),
            "halves_differ": float(result["halves_differ"]),
            "single_error": abs(float(result["single_rate"]) / formula - 1),
        }

    def picture_raster(self, result: Mapping[str, Tensor]) -> Figure:
        """A dot for each spike, a row for each neuron: excitatory (blue) and inhibitory (orange).

        Below, the mean firing rate of either group by time.
        """
        groups = {"excitatory": self.excitatory, "inhibitory": self.inhibitory}
        early = result["times"] < self.shown
        return raster(result["times"][early], result["neurons"][early], groups, self.shown)

    def picture_membranes(self, result: Mapping[str, Tensor]) -> Figure:
        """The membranes of three neurons, with the threshold (dashed) and their spikes (black).

        Input from the others makes them climb unevenly, so that spikes come irregularly.
        """
        ms = torch.arange(len(result["voltages"])).double() * self.dt * 1000
        window, early = ms < self.shown * 1000, result["times"] < self.shown
        times, neurons = result["times"][early] * 1000, result["neurons"][early]
        who = {"excitatory": 0, "another excitatory": 1, "inhibitory": self.excitatory}
        return membrane_traces(
            ms[window],
            {name: result["voltages"][window, m] for m, name in enumerate(who)},
            {name: times[neurons == neuron] for name, neuron in who.items()},
        )

    def picture_rates(self, result: Mapping[str, Tensor]) -> Figure:
        """The share of excitatory (blue) and inhibitory neurons (orange) that fire at each rate.

        Neurons of a kind have the same constants and differ by their random connections.
        """
        rates = self.counts(result) / self.duration
        edges = torch.linspace(0, float(rates.max()) + 1, 26, dtype=torch.float64)
        middles = (edges[1:] + edges[:-1]) / 2
        parts = {"excitatory": rates[: self.excitatory], "inhibitory": rates[self.excitatory :]}
        shares = {n: torch.histogram(part, edges).hist / len(part) for n, part in parts.items()}
        return panels(
            Panel(
                {name: (middles, share) for name, share in shares.items()},
                "firing rate (Hz)",
                "share of the neurons",
                "how fast the neurons of one network fire",
            ),
            width=6.0,
        )

    def tiny(self) -> Self:
        return replace(self, excitatory=40, inhibitory=10, duration=0.2, dt=5e-4)


RECIPES = {
    "lif-network": RandomLIFNetwork(
        goal="halves_differ == 0 and single_error <= 0.01 and rate >= 18 and rate <= 24",
        covers=("N9",),
    ),
}
