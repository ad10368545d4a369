"""A balanced network in four regimes: inhibition, drive and delays decide how its spikes fall.

    CV < 0.15                  (1)  regular
    CV > 0.7                   (2)  irregular
    chi < 0.07                 (3)  asynchronous
    chi > 0.1                  (4)  synchronous
    f > 100 Hz and f > nu      (5)  fast waves, of which a neuron skips some
    nu < f < 60 Hz             (6)  slow waves, likewise
    seconds = c events^p       (7)  cost of a run, p near 1: events are spikes at synapses

CV is the irregularity of a neuron's spikes, chi the synchrony of all (in bins of 0.5 ms) and f the
frequency of the tallest wave of their rate nu: `spike_statistics.py`. The network, its drive nu_ext
and the rate of its mean field are those of `balanced.py`; a spike of an excitatory neuron j moves V
by J_ij = J after the delay D, that of an inhibitory one by -g J:

    tau dV_i/dt = -V_i + tau sum_j J_ij sum_k delta(t - t_j^k - D)

    synchronous regular (SR)       g < 4, one delay for all; two halves that fire in turn
    asynchronous regular (AR)      g < 4, delays spread from 0 to 2 D
    asynchronous irregular (AI)    g > 4, a middle drive
    synchronous irregular (SI)     g > 4, a strong drive: fast waves; a weak one: slow waves

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
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.panels import Curve, Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.zoo.spiking.balanced import DT, GAMMA, TAU, THETA, Balanced
from everynet.zoo.spiking.network import MOST
from everynet.zoo.spiking.pictures.regimes import Regime, regimes
from everynet.zoo.spiking.spike_statistics import population, spectrum, synchrony, variation

BIN = 5e-4  # s
REGIMES = {
    "sr": ("SR", "synchronous regular"),
    "ar": ("AR", "asynchronous regular"),
    "ai": ("AI", "asynchronous irregular"),
    "si_fast": ("SI fast", "synchronous irregular, fast"),
    "si_slow": ("SI slow", "synchronous irregular, slow"),
}
FIGURES = ("rate", "cv", "chi", "frequency", "mean_field")  # of each; frequency of the tallest wave
REGULAR, IRREGULAR = 0.15, 0.7  # CV below the first, above the second
ASYNCHRONOUS, SYNCHRONOUS = 0.07, 0.1  # chi
FAST, SLOW = 100.0, 60.0  # Hz


def shows(regime: str, rate: float, cv: float, chi: float, frequency: float) -> bool:
    """Whether the figures are those that define a regime."""
    even = cv < REGULAR if regime in {"sr", "ar"} else cv > IRREGULAR  # (1) (2)
    together = chi < ASYNCHRONOUS if regime in {"ar", "ai"} else chi > SYNCHRONOUS  # (3) (4)
    wave = {"si_fast": frequency > max(FAST, rate), "si_slow": rate < frequency < SLOW}  # (5) (6)
    return even and together and wave.get(regime, True)


def scaling(
    sizes: Sequence[int], inputs: int, jump: float, duration: float = 0.1
) -> tuple[Float[Tensor, " sizes"], Float[Tensor, " sizes"]]:
    """Spikes that arrived at synapses, and the processor time (s) that the whole run took.

    The regular state fires most: its spikes, not its membranes, take the time. What a clock says
    does not follow from the seed, so that it is no part of a result.
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


def power_law(events: Float[Tensor, " sizes"], seconds: Float[Tensor, " sizes"]) -> float:
    """The power p of the events that the seconds follow, fitted to their logarithms."""
    x, y = events.clamp(min=1).log(), seconds.clamp(min=1e-9).log()
    x = x - x.mean()
    return (x @ y / x.square().sum().clamp(min=1e-12)).item()  # (7)


@dataclass(frozen=True, kw_only=True)
class BalancedNetwork(Simulation):
    """The states of one network as inhibition, drive and delays change."""

    meanings: ClassVar[Mapping[str, str]] = {
        "sr": "1 where the network is synchronous and regular as it should be, else 0",
        "ar": "1 where it is asynchronous and regular as it should be, else 0",
        "ai": "1 where it is asynchronous and irregular as it should be, else 0",
        "si_fast": "1 where it is irregular with fast waves as it should be, else 0",
        "si_slow": "1 where it is irregular with slow waves as it should be, else 0",
        "mean_field_error": "relative error of the mean field for the rate of the irregular state",
        "time_slope": "power of the number of events with which processor time grows: near 1",
        "*_rate": "mean firing rate in that state, in Hz",
        "*_cv": "coefficient of variation of the intervals: 0 for a clock, 1 for Poisson",
        "*_chi": "synchrony of all neurons: 0 none, 1 all as one",
        "*_frequency": "frequency of the tallest wave of the rate, in Hz",
        "*_mean_field": "the rate that the mean field predicts, in Hz",
    }

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
            counts = population(times, round(duration / BIN), BIN, DT)
            f, power = spectrum(population(times, round(duration / DT), DT, DT), size, DT)
            rows.append([
                len(times) / (size * duration),
                variation(times, got.neurons, size),
                synchrony(counts, got.neurons, size),
                float(f[power.argmax()]),
                model.mean_field(),
            ])  # fmt: skip
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
            found[name] = float(shows(name, *row[:4]))
            found |= {f"{name}_{what}": x for what, x in zip(FIGURES, row, strict=True)}
        found["mean_field_error"] = abs(found["ai_rate"] / found["ai_mean_field"] - 1)
        found["time_slope"] = power_law(*scaling(self.sizes, self.inputs, self.jump))
        return found

    def picture_regimes(self, result: Mapping[str, Tensor]) -> Figure:
        """Spikes and population rate of one network in five states, and the spectra of the rates.

        They fire together or apart, and like clocks or at random; time axes differ.
        """
        seen, size = {}, self.excitatory * (1 + GAMMA)
        for (name, (label, title)), row in zip(REGIMES.items(), result["figures"], strict=True):
            rate, cv, chi, _, _ = row.tolist()
            counts = result[f"{name}_population"]
            seen[label] = Regime(
                title=title,
                caption=rf"mean {rate:.0f} Hz, CV {cv:.2f}, $\chi$ {chi:.3f}",
                times=result[f"{name}_times"],
                neurons=result[f"{name}_neurons"],
                rate=counts / (size * BIN),
                until=min(0.2, len(counts) * BIN, 16 / max(rate, 1e-9)),  # few enough to tell apart
                frequencies=result[f"{name}_frequencies"],
                spectrum=result[f"{name}_spectrum"],
            )
        return regimes(seen, shown=self.shown, bin=BIN)

    def picture_map(self, result: Mapping[str, Tensor]) -> Figure:
        """The states by synchrony (across) and irregularity (up), with the borders between them.

        On the right, measured rates beside those of the mean field (dashed).
        """
        rate, cv, chi, _, theory = result["figures"].T
        line = torch.stack([theory.min() * 0.8, theory.max() * 1.25])
        border, alone = torch.full((2,), IRREGULAR), (self.excitatory * (1 + GAMMA)) ** -0.5
        return panels(
            Panel(
                _points(chi, cv),
                r"synchrony $\chi$",
                "CV of the intervals",
                "each state by its irregularity and synchrony",
                guides={"irregular above": (torch.tensor([0.01, 1.0]), border)},
                marks={"each on its own": alone, "synchronous from here": SYNCHRONOUS},
                log="x",
                ylim=(-0.05, 1.9),
                scatter=True,
                legend="below",
            ),
            Panel(
                _points(theory, rate),
                "rate of the mean field (Hz)",
                "rate measured (Hz)",
                "each state by its rate",
                guides={"mean field": (line, line)},
                log="xy",
                scatter=True,
                legend="below",
            ),
            height=3.9,
        )

    def picture_scaling(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """Processor time by the spikes that arrive at synapses, beside a line of slope 1 (dashed).

        It grows with power {power:.2f} of their number: at 1 each spike costs the same.
        """
        events, seconds = scaling(self.sizes, self.inputs, self.jump)
        figure = panels(
            Panel(
                {"measured": (events, seconds)},
                "spikes that arrived at synapses",
                "processor time (s)",
                f"{self.sizes[0]:,} to {self.sizes[-1]:,} excitatory neurons, 0.1 s",
                guides={"slope 1": (events, seconds[-1] * events / events[-1])},
                log="xy",
            ),
            width=5.2,
        )
        return figure, {"power": power_law(events, seconds)}

    def tiny(self) -> Self:
        return replace(
            self, excitatory=160, inputs=16, jump=6.25, durations=(0.05,) * 5, settle=0.02,
            sizes=(40, 80),
        )  # fmt: skip


def _points(x: Float[Tensor, " states"], y: Float[Tensor, " states"]) -> dict[str, Curve]:
    """Each state by its label, a curve of one point."""
    labels = [label for label, _ in REGIMES.values()]
    return dict(zip(labels, zip(x.split(1), y.split(1), strict=True), strict=True))


RECIPES = {
    "brunel": BalancedNetwork(
        goal="sr == 1 and ar == 1 and ai == 1 and si_fast == 1 and si_slow == 1 "
        "and mean_field_error <= 0.1",
        covers=("N9",),
    ),
}
