"""A balanced network: excitation, inhibition and a drive decide whether spikes are regular.

    tau dV_i/dt = -V_i + tau sum_j J_ij sum_k delta(t - t_j^k - D_ij)     (1)  membrane, mV
    v = (V - V_r) / (theta - V_r)                                         (2)  without dimension
    nu_thr = theta / (C_E J tau)                                          (3)  mean input theta
    mu = C_E J tau (nu_ext + nu (1 - gamma g))                            (4)  mean input
    sigma^2 = C_E J^2 tau (nu_ext + nu (1 + gamma g^2))                   (5)  its variance
    1 / nu = tau_rp + tau sqrt(pi) int_a^b e^{u^2} (1 + erf u) du         (6)  rate, mean field
             a = (V_r - mu) / sigma,  b = (theta - mu) / sigma
    CV = mean_i std_k(T_ik) / mean_k(T_ik),  T_ik = t_i^{k+1} - t_i^k     (7)  irregularity
    chi^2 = var_t(mean_i n_i(t)) / mean_i var_t(n_i(t))                   (8)  synchrony
    S(f) = power of the population rate at f / (2 nu / N)                 (9)  1 for Poisson

Each neuron has C_E excitatory inputs that move V by J and gamma C_E inhibitory ones that move it by
-g J, drawn at random with repeats, and C_E outside ones, Poisson of rate nu_ext. At theta = 20 mV
it fires, and V = V_r = 10 mV for tau_rp = 2 ms; tau = 20 ms, D = 1.5 ms, gamma = 1/4. n_i(t) counts
spikes in bins of 0.5 ms: chi is 1 if all fire at once, 1 / sqrt(N) if each fires on its own.

    synchronous regular (SR)       g < 4, one delay for all; two halves that fire in turn
    asynchronous regular (AR)      g < 4, delays spread from 0 to 2 D
    asynchronous irregular (AI)    g > 4, a middle drive
    synchronous irregular (SI)     g > 4, a strong drive: fast waves; a weak one: slow waves

With (2) the network is a `LIFNetwork` (threshold 1, reset 0) under the constant input
-V_r / (theta - V_r), with weights J tau / (theta - V_r) in seconds. Its synapses are exponential:
a time constant of a thousandth of a step puts the whole jump into one step, as (1) has it.

Unlike the paper there are 4,000 excitatory neurons with C_E = 400, not 10,000 with 1,000. C_E J is
kept at 100 mV (J = 0.25 mV, not 0.1), and with it nu_thr and mu; sigma is 1.6 times as large. That
damps waves, so that AI (g = 7, nu_ext = 1.5 nu_thr) and fast SI (6 and 6) lie deeper in their
regions than the paper's examples (5 and 2, 6 and 4); SR and slow SI are its own.

Brunel (2000), "Dynamics of sparsely connected networks of excitatory and inhibitory spiking
neurons", Journal of Computational Neuroscience 8, doi:10.1023/A:1008925309027.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.signal import welch
from scipy.sparse import csc_array
from scipy.special import erfcx
from torch import Tensor

from everynet.kernels.lif import Recording
from everynet.kernels.lif_network import NetworkState
from everynet.plot.panels import Panel, panels
from everynet.plot.regimes import Regime, regimes
from everynet.recipe import Pictures, Simulation
from everynet.zoo.spiking.lif import require
from everynet.zoo.spiking.network import MOST, LIFNetwork

TAU, TAU_RP, DELAY = 0.02, 0.002, 0.0015  # s
THETA, RESET = 20.0, 10.0  # mV
GAMMA = 0.25  # inhibitory neurons for each excitatory one
DT, BIN, SPAN = 1e-4, 5e-4, 0.25  # s: a step, a bin, a stretch whose waves are measured
REGIMES = {
    "sr": "synchronous regular",
    "ar": "asynchronous regular",
    "ai": "asynchronous irregular",
    "si_fast": "synchronous irregular, fast",
    "si_slow": "synchronous irregular, slow",
}
REGULAR, IRREGULAR = 0.15, 0.7  # CV below the first, above the second
ASYNCHRONOUS, SYNCHRONOUS = 0.07, 0.1  # chi
FAST, SLOW = 100.0, 60.0  # Hz


@dataclass(frozen=True)
class Balanced:
    """One network of the paper, under one drive."""

    excitatory: int
    inputs: int  # C_E
    jump: float  # J, mV
    g: float
    drive: float  # nu_ext / nu_thr
    broad: bool = False  # delays from 0 to 2 D instead of D

    @property
    def neurons(self) -> int:
        """Of both kinds."""
        return self.excitatory + round(GAMMA * self.excitatory)

    @property
    def outside(self) -> float:
        """Rate of one outside input, nu_ext, in Hz."""
        threshold = THETA / (self.inputs * self.jump * TAU)  # (3)
        return self.drive * threshold

    def network(self, generator: torch.Generator | None = None) -> LIFNetwork:
        """The neurons with inputs drawn at random, in float32 with int32 places."""
        size, inhibited = self.neurons, round(GAMMA * self.inputs)
        kinds = (0, self.excitatory, self.inputs), (self.excitatory, size, inhibited)
        drawn = [
            torch.randint(low, high, (size, count), generator=generator, dtype=torch.int32)
            for low, high, count in kinds
        ]
        sources = torch.cat(drawn, dim=1)
        weight = self.jump * TAU / (THETA - RESET)  # (1) (2)
        values = torch.where(sources < self.excitatory, weight, -self.g * weight).float()
        starts = np.arange(size + 1, dtype=np.int32) * np.int32(sources.shape[1])
        by_target = (values.view(-1).numpy(), sources.view(-1).numpy(), starts)
        weights = csc_array(by_target, shape=(size, size)).tocsr()
        delay: float | Tensor = DELAY
        if self.broad:
            delay = 2 * DELAY * torch.rand(weights.nnz, generator=generator, dtype=torch.float64)
        return LIFNetwork(weights, DT / 1000, TAU, TAU_RP, delay)

    def simulate(
        self,
        network: LIFNetwork,
        duration: float,  # s
        generator: torch.Generator | None = None,
        state: NetworkState | None = None,
    ) -> Recording[NetworkState]:
        """Run under the drive, from V = V_r or on from a state."""
        constant, weight = -RESET / (THETA - RESET), self.jump * TAU / (THETA - RESET)  # (2)
        return network.simulate(
            duration, DT, constant, self.inputs * self.outside, generator=generator, state=state,
            poisson_weight=weight,
        )  # fmt: skip

    def moments(self, rate: float) -> tuple[float, float]:
        """Mean and standard deviation (mV) of the input where every neuron fires at `rate` Hz."""
        scale, g = self.inputs * self.jump * TAU, self.g
        mean = scale * (self.outside + rate * (1 - GAMMA * g))  # (4)
        variance = scale * self.jump * (self.outside + rate * (1 + GAMMA * g**2))  # (5)
        return mean, math.sqrt(variance)

    def mean_field(self) -> float:
        """The rate (Hz) that gives rise to itself."""
        found = brentq(lambda rate: siegert(*self.moments(rate)) - rate, 0, 1 / TAU_RP, xtol=1e-9)
        return float(found)


def siegert(mean: float, deviation: float) -> float:
    """Rate (Hz) of a neuron under white noise of this mean and standard deviation (mV)."""
    require(deviation > 0, "deviation", deviation, "mV", "positive; `LIF.rate` is the rate at 0")
    low, high = (RESET - mean) / deviation, (THETA - mean) / deviation
    if high > 26:  # e^{u^2} is no number any more, and the rate is nothing
        return 0.0
    area, _ = quad(lambda u: erfcx(-u), low, high, limit=200)
    return 1 / (TAU_RP + TAU * math.sqrt(math.pi) * float(area))  # (6)


# ------------------------------------------------------------------------------------- statistics


def variation(times: Float[Tensor, " spikes"], neurons: Int[Tensor, " spikes"], size: int) -> float:
    """Spread of intervals over their mean, over neurons with at least three; 0 where none has."""
    order = neurons.argsort(stable=True)  # spikes come in the order of time, and stay in it
    when, who = times[order], neurons[order].long()
    same = who[1:] == who[:-1]
    gaps, owner = when.diff()[same], who[1:][same]
    count = torch.bincount(owner, minlength=size).double()
    mean = torch.bincount(owner, gaps, minlength=size) / count
    squares = torch.bincount(owner, (gaps - mean[owner]).square(), minlength=size)
    known = count >= 3
    each = (squares / (count - 1)).sqrt() / mean  # (7)
    return each[known].mean().item() if known.any() else 0.0


def synchrony(
    times: Float[Tensor, " spikes"], neurons: Int[Tensor, " spikes"], size: int, bins: int
) -> float:
    """How alike neurons fire, from the bins that follow time 0; 0 where none fires."""
    counts = population(times, bins)
    share = torch.bincount(neurons.long(), minlength=size) / bins
    alone = (share * (1 - share)).mean()  # a bin is shorter than the rest: it has 0 or 1 spikes
    together = (counts / size).var(correction=0)
    return (together / alone).sqrt().item() if alone > 0 else 0.0  # (8)


def population(
    times: Float[Tensor, " spikes"], bins: int, width: float = BIN
) -> Float[Tensor, " bins"]:
    """Spikes of all neurons in each bin."""
    steps = (times / DT).round().long()  # times lie on the grid: no bin is missed by rounding
    return torch.bincount(steps // round(width / DT), minlength=bins).double()


def spectrum(
    counts: Float[Tensor, " steps"], size: int
) -> tuple[Float[Tensor, " waves"], Float[Tensor, " waves"]]:
    """Frequencies up to 1 kHz and the power there over that of as many Poisson neurons.

    From counts in single steps: wider bins would fold the overtones of sharp waves onto low ones.
    """
    rate = counts / (size * DT)
    length = min(len(counts), round(SPAN / DT))
    f, power = welch(rate.numpy(), fs=1 / DT, nperseg=length, detrend="constant")
    some = (f > 0) & (f <= 1000)
    level = 2 * rate.mean().clamp(min=1e-12) / size
    return torch.from_numpy(f[some]), torch.from_numpy(power[some]) / level  # (9)


def shows(regime: str, rate: float, cv: float, chi: float, frequency: float) -> bool:
    """Whether the figures are those that define a regime."""
    even = cv < REGULAR if regime in {"sr", "ar"} else cv > IRREGULAR
    together = chi < ASYNCHRONOUS if regime in {"ar", "ai"} else chi > SYNCHRONOUS
    wave = {"si_fast": frequency > max(FAST, rate), "si_slow": rate < frequency < SLOW}
    return even and together and wave.get(regime, True)


def scaling(
    sizes: Sequence[int], inputs: int, jump: float, duration: float = 0.1
) -> tuple[Float[Tensor, " sizes"], Float[Tensor, " sizes"]]:
    """Spikes that arrived at synapses, and the processor time (s) that the whole run took.

    The regular state fires most: its spikes, not its membranes, take the time.
    """
    events, seconds = [], []
    for size in sizes:
        model = Balanced(size, inputs, jump, g=3.0, drive=2.0)
        network = model.network(torch.Generator().manual_seed(0))
        model.simulate(network, DT, torch.Generator().manual_seed(0))  # compiled before it counts
        spent = math.inf
        for _ in range(2):
            begun = time.process_time()
            got = model.simulate(network, duration, torch.Generator().manual_seed(0))
            spent = min(spent, time.process_time() - begun)
        synapses = network.wiring.starts.diff()
        events.append(float(synapses[got.neurons.long()].sum()))
        seconds.append(spent)
    return torch.tensor(events, dtype=torch.float64), torch.tensor(seconds, dtype=torch.float64)


# ----------------------------------------------------------------------------------------- recipe


@dataclass(frozen=True, kw_only=True)
class BalancedNetwork(Simulation):
    """The states of one network as inhibition, drive and delays change."""

    excitatory: int = 4000
    """Excitatory neurons; inhibitory ones are a quarter as many."""
    inputs: int = 400
    """Excitatory inputs of a neuron, C_E; inhibitory ones are a quarter as many."""
    jump: float = 0.25
    """How far an excitatory spike moves V, in mV."""
    g: tuple[float, ...] = (3.0, 3.0, 7.0, 6.0, 4.5)
    """Inhibition over excitation: SR, AR, AI, fast SI, slow SI."""
    drive: tuple[float, ...] = (2.0, 2.0, 1.5, 6.0, 0.9)
    """Outside rate over the rate that leads to the threshold, nu_ext / nu_thr."""
    broad: tuple[bool, ...] = (False, True, False, False, False)
    """Whether delays are spread from 0 to 2 D."""
    durations: tuple[float, ...] = (0.4, 0.4, 2.0, 1.0, 3.0)
    """Time measured, s."""
    settle: float = 0.1
    """Time before it, s."""
    shown: int = 50
    """Neurons in a raster."""
    sizes: tuple[int, ...] = (1000, 2000, 4000, 8000)
    """Excitatory neurons of the runs whose processor time is measured."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("excitatory", "inputs"):
            value = getattr(self, name)
            self.require(value >= 4 and value % 4 == 0, name, "a multiple of 4, at least 4")
        self.require(0 < self.jump < THETA, "jump", f"above 0 and below {THETA} mV")
        for name in ("g", "drive", "broad", "durations"):
            value = getattr(self, name)
            self.require(len(value) == len(REGIMES), name, f"{len(REGIMES)}: one for each state")
        self.require(all(0 <= x < math.inf for x in self.g), "g", "numbers from 0 up")
        most = MOST * self.jump * TAU / (THETA * DT)
        self.require(all(0 < x < most for x in self.drive), "drive", f"above 0, below {most:g}")
        for name, times in (("durations", self.durations), ("settle", (self.settle,))):
            whole = all(x > 0 and abs(x / BIN - round(x / BIN)) < 1e-6 for x in times)
            self.require(whole, name, f"whole bins of {BIN} s")
        self.require(min(self.durations) > 0.04, "durations", "above 0.04 s: a spectrum needs it")
        self.require(1 <= self.shown <= self.excitatory, "shown", "from 1 to excitatory")
        good = len(self.sizes) >= 2 and all(x >= 4 and x % 4 == 0 for x in self.sizes)
        self.require(good, "sizes", "at least two multiples of 4")

    def states(self) -> dict[str, Balanced]:
        """A network for each regime."""
        given = zip(REGIMES, self.g, self.drive, self.broad, strict=True)
        size = (self.excitatory, self.inputs, self.jump)
        return {name: Balanced(*size, g, drive, broad) for name, g, drive, broad in given}

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        rows: list[list[float]] = []
        result: dict[str, Tensor] = {}
        for (name, model), duration in zip(self.states().items(), self.durations, strict=True):
            network, size = model.network(generator), model.neurons
            start = model.simulate(network, self.settle, generator)
            got = model.simulate(network, duration, state=start.state)
            times = got.times - round(self.settle / DT) * DT
            bins = round(duration / BIN)
            counts = population(times, bins)
            f, power = spectrum(population(times, round(duration / DT), DT), size)
            rate = len(times) / (size * duration)
            cv, chi = variation(times, got.neurons, size), synchrony(times, got.neurons, size, bins)
            rows.append([rate, cv, chi, float(f[power.argmax()]), model.mean_field()])
            step = self.excitatory // self.shown  # neurons from all over the excitatory ones
            seen = (got.neurons < self.shown * step) & (got.neurons % step == 0)
            result |= {
                f"{name}_times": times[seen],
                f"{name}_neurons": got.neurons[seen] // step,
                f"{name}_population": counts,
                f"{name}_frequencies": f,
                f"{name}_spectrum": power,
            }
        return {"figures": torch.tensor(rows, dtype=torch.float64), **result}

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        found = {}
        for name, row in zip(REGIMES, result["figures"].tolist(), strict=True):
            rate, cv, chi, frequency, theory = row
            found[name] = float(shows(name, rate, cv, chi, frequency))
            found |= {f"{name}_rate": rate, f"{name}_cv": cv, f"{name}_chi": chi}
            found |= {f"{name}_frequency": frequency, f"{name}_mean_field": theory}
        found["mean_field_error"] = abs(found["ai_rate"] / found["ai_mean_field"] - 1)
        found["time_slope"] = _slope(*self.scaling())
        return found

    def scaling(self) -> tuple[Float[Tensor, " sizes"], Float[Tensor, " sizes"]]:
        """Events and seconds; what a clock says does not follow from the seed: no result."""
        return scaling(self.sizes, self.inputs, self.jump)

    def pictures(self, result: Mapping[str, Tensor]) -> Pictures:
        rate, cv, chi, _, theory = result["figures"].T
        events, seconds = self.scaling()
        labels = [_label(name) for name in REGIMES]
        line = torch.stack([theory.min() * 0.8, theory.max() * 1.25])
        border = torch.full((2,), IRREGULAR)
        alone = (self.excitatory * (1 + GAMMA)) ** -0.5
        return {
            "regimes": regimes(
                _seen(result, self.excitatory * (1 + GAMMA)), shown=self.shown, bin=BIN
            ),
            "map": panels(
                Panel(
                    {n: (chi[k : k + 1], cv[k : k + 1]) for k, n in enumerate(labels)},
                    r"synchrony $\chi$",
                    "CV of the intervals",
                    "each state by its irregularity and synchrony",
                    guides={"irregular above": (torch.tensor([0.01, 1.0]), border)},
                    marks={"each on its own": alone, "synchronous from here": SYNCHRONOUS},
                    log="x",
                    ylim=(-0.05, 1.9),
                    scatter=True,
                    legend="upper right",
                ),
                Panel(
                    {n: (theory[k : k + 1], rate[k : k + 1]) for k, n in enumerate(labels)},
                    "rate of the mean field (Hz)",
                    "rate measured (Hz)",
                    "dashed: as the mean field has it",
                    guides={"mean field": (line, line)},
                    log="xy",
                    scatter=True,
                    legend="none",
                ),
                width=5.2,
                height=4.2,
            ),
            "scaling": panels(
                Panel(
                    {"measured": (events, seconds)},
                    "spikes that arrived at synapses",
                    "processor time (s)",
                    f"{self.sizes[0]:,} to {self.sizes[-1]:,} excitatory neurons, 0.1 s",
                    guides={"slope 1": (events, seconds[-1] * events / events[-1])},
                    log="xy",
                ),
                width=5.2,
            ),
        }

    def tiny(self) -> Self:
        return replace(
            self, excitatory=160, inputs=16, jump=6.25, durations=(0.05,) * 5, settle=0.02,
            sizes=(40, 80),
        )  # fmt: skip


def _slope(events: Float[Tensor, " sizes"], seconds: Float[Tensor, " sizes"]) -> float:
    """The power of the events that the seconds follow."""
    x, y = events.clamp(min=1).log(), seconds.clamp(min=1e-9).log()
    x = x - x.mean()
    return (x @ y / x.square().sum().clamp(min=1e-12)).item()


def _label(name: str) -> str:
    return name.replace("si_", "SI ") if name.startswith("si") else name.upper()


def _seen(result: Mapping[str, Tensor], size: float) -> dict[str, Regime]:
    """What there is to draw of each state, of `size` neurons."""
    found = {}
    for number, (name, title) in enumerate(REGIMES.items()):
        rate, cv, chi, _, _ = result["figures"][number].tolist()
        counts = result[f"{name}_population"]
        found[_label(name)] = Regime(
            title=title,
            caption=rf"mean {rate:.0f} Hz, CV {cv:.2f}, $\chi$ {chi:.3f}",
            times=result[f"{name}_times"],
            neurons=result[f"{name}_neurons"],
            rate=counts / (size * BIN),
            until=min(0.2, len(counts) * BIN, 16 / max(rate, 1e-9)),  # few enough to tell apart
            frequencies=result[f"{name}_frequencies"],
            spectrum=result[f"{name}_spectrum"],
        )
    return found


# Seeds 0, 1, 2: SR CV 0.004, 0.007, 0.005, chi 0.64 each; AR CV 0.08 each, chi 0.015, 0.016, 0.017;
# AI CV 0.93, 0.92, 0.93, chi 0.051, 0.056, 0.055; fast SI CV 1.23, 1.21, 1.20, chi 0.15, 0.16,
# 0.15, 196, 192, 196 Hz; slow SI CV 0.72, 0.73, 0.72, chi 0.114, 0.118, 0.118, 32, 32, 28 Hz;
# mean_field_error 0.049, 0.075, 0.071.
RECIPES = {
    "brunel": BalancedNetwork(
        goal="sr == 1 and ar == 1 and ai == 1 and si_fast == 1 and si_slow == 1 "
        "and mean_field_error <= 0.1",
        covers=("N9",),
    ),
}
