"""The capacity of a Hopfield network: it holds about 0.138 N random patterns, then forgets all.

    P(right) = 1/2 (1 + erf(1 / sqrt(2 a)))                (1)  a bit after one update of all
    m = erf(y),  erf(y) = y (sqrt(2 a) + 2 / sqrt(pi) exp(-y^2))   (2)  overlap at rest

a = M / N is the load, M random patterns stored by the Hebbian rule in N neurons. In the field of a
neuron the other M - 1 patterns add up to noise of variance a, which gives (1). Wrong bits then move
others; (2), for endless N, counts that in, and above a = 0.138 has no root but y = 0.

Amit, Gutfreund, Sompolinsky (1985), "Storing infinite numbers of patterns in a spin-glass model of
neural networks", doi:10.1103/PhysRevLett.55.1530; Hertz, Krogh, Palmer (1991), "Introduction to the
theory of neural computation", section 2.2 and 10.1, for (1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.zoo.memory.hopfield import NEGATED, Hopfield, name_states


def stable_share(load: Float[Tensor, " loads"]) -> Float[Tensor, " loads"]:
    """The share of bits that one update of all neurons leaves alone, in theory."""
    return (1 + torch.erf(1 / (2 * load).sqrt())) / 2  # (1)


def theory(points: int = 200) -> tuple[Float[Tensor, " points"], Float[Tensor, " points"]]:
    """Loads M / N up to the capacity, 0.138, and the overlap of (2) that recall ends with there."""
    y = torch.linspace(0.5, 4, 20_000, dtype=torch.float64)
    root = torch.erf(y) / y - 2 / math.sqrt(math.pi) * (-(y**2)).exp()  # (2)
    load = root.square() / 2
    upper = slice(int(load.argmax()), None, 1 + len(y) // points)  # the lower branch is unstable
    return load[upper].flip(0), torch.erf(y[upper]).flip(0)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class Capacity(Simulation):
    """How many random patterns a network of N neurons holds: about 0.138 N."""

    meanings: ClassVar[Mapping[str, str]] = {
        "stored_bits": "bits of stored patterns that recall leaves alone at 0.05 patterns a neuron",
        "recovered_bits": "bits that are right after recall from flipped ones at 0.1 a neuron",
        "stable_bits": "bits that one update of all neurons leaves alone at 0.1375 a neuron",
        "forgotten_bits": "bits of stored patterns that recall leaves alone at 0.2 a neuron",
        "capacity": "patterns a neuron above which recall leaves less than 95 % of bits alone",
        "theory": "the same for endless networks, where recall breaks down at once",
    }
    MEASURED: ClassVar[tuple[float, ...]] = (0.05, 0.1, 0.1375, 0.2)

    neurons: tuple[int, ...] = (100, 400, 1000)
    """Sizes N of the networks, ascending; metrics are those of the largest."""
    loads: tuple[float, ...] = (0.01, 0.025, 0.05, 0.1, 0.12, 0.1375, 0.15, 0.165, 0.18, 0.2, 0.25)
    """Stored patterns M for each neuron, ascending."""
    repeats: int = 4
    """Networks of each size and load."""
    probes: int = 60
    """Patterns, cues and random starts that each network is tried with, at most."""
    flips: float = 0.1
    """Share of the bits of a cue that are flipped."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "repeats", "probes")
        self.within(0, 0.5, "flips")
        for name, least in (("neurons", 10), ("loads", 0.0)):
            values: tuple[float, ...] = getattr(self, name)
            ascending = all(a < b for a, b in pairwise(values))
            self.require(bool(values) and ascending, name, "ascending, at least one")
            self.require(values[0] >= least, name, f"at least {least}")
        self.require(self.loads[-1] <= 2, "loads", "at most 2 patterns a neuron")

    def tiny(self) -> Self:
        return replace(self, neurons=(40, 60), repeats=1, probes=6)

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        measured = [
            [
                [self.measure(max(1, round(load * n)), n, generator) for _ in range(self.repeats)]
                for load in self.loads
            ]
            for n in self.neurons
        ]
        return {"measured": torch.tensor(measured, dtype=torch.float64)}

    def measure(self, count: int, neurons: int, generator: torch.Generator) -> tuple[float, ...]:
        """One network: bits stable in one update, kept, recovered; states that noise ends in."""

        def signs(*shape: int) -> Tensor:
            return torch.randint(0, 2, shape, generator=generator).double() * 2 - 1

        patterns = signs(count, neurons)
        some = patterns[: self.probes]
        seed = int(torch.randint(2**62, (), generator=generator))
        net = Hopfield(random_state=seed, max_sweeps=1000).fit(patterns)
        flipped = torch.rand(some.shape, generator=generator) < self.flips
        field = (some @ patterns.T) @ patterns - count * some
        kept, cued = net.recall(some), net.recall(torch.where(flipped, -some, some))
        ended = name_states(net.overlaps(net.recall(signs(self.probes, neurons))))
        right = (field * some > 0, kept == some, cued == some, ended >= 0, ended == NEGATED)
        return tuple(float(each.double().mean()) for each in right)

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        stable, kept, cued = result["measured"][-1].mean(1).T[:3]
        loads = torch.tensor(self.loads, dtype=torch.float64)
        low, cue, full, high = self.MEASURED
        below = (kept < 0.95).nonzero().flatten()
        return {
            "stored_bits": _between(loads, kept, low),
            "recovered_bits": _between(loads, cued, cue),
            "stable_bits": _between(loads, stable, full),
            "forgotten_bits": _between(loads, kept, high),
            "capacity": _crossing(loads, kept, int(below[0])) if len(below) else self.loads[-1],
            "theory": float(theory()[0].max()),
        }

    def picture_capacity(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, object]]:
        """Share of bits of stored patterns that recall leaves alone, by stored patterns a neuron.

        Bands go from the lowest network to the highest. The more neurons, the more sharply it falls
        at {theory:.3f}, where theory (dashed) ends.
        """
        loads = torch.tensor(self.loads, dtype=torch.float64)
        measured = result["measured"][..., 1]  # sizes loads repeats
        curves = {
            f"N = {n}": (loads, m.mean(1)) for n, m in zip(self.neurons, measured, strict=True)
        }
        bands = {
            f"N = {n}": (m.amin(1), m.amax(1)) for n, m in zip(self.neurons, measured, strict=True)
        }
        at, overlap = theory()
        panel = Panel(
            curves, "stored patterns for each neuron, M / N", "share of bits kept", bands=bands,
            guides={"theory, N endless": (at, (1 + overlap) / 2)},
            marks={f"{float(at.max()):.3f}": float(at.max())}, legend="lower left",
        )  # fmt: skip
        return panels(panel), {"theory": float(at.max())}

    def picture_recall(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """Bits that are right after recall, and where noise comes to rest, in the largest network.

        With the most patterns {cued:.0%} of the bits are right after recall from flipped ones,
        {few:.0%} with the fewest; of noise {spurious:.0%} and {rare:.0%} end in spurious states.
        """
        loads = torch.tensor(self.loads, dtype=torch.float64)
        stable, _, cued, stored, negated = result["measured"][-1].mean(1).T
        across = "stored patterns for each neuron, M / N"
        capacity = {"capacity": float(theory()[0].max())}
        bits = {f"from {self.flips:.0%} flipped": (loads, cued), "in one update": (loads, stable)}
        ends = {
            "stored": (loads, stored),
            "negated": (loads, negated),
            "spurious": (loads, 1 - stored - negated),
        }
        law = {"one update, in theory": (loads, stable_share(loads))}
        lost = ends["spurious"][1]
        values = {"cued": cued[-1], "few": cued[0], "spurious": lost[-1], "rare": lost[0]}
        drawn = panels(
            Panel(
                bits, across, "share of bits that are right", guides=law, marks=capacity,
                legend="lower left",
            ),
            Panel(ends, across, "share of starts from noise", marks=capacity),
        )  # fmt: skip
        return drawn, {name: float(value) for name, value in values.items()}


def _between(x: Float[Tensor, " points"], y: Float[Tensor, " points"], at: float) -> float:
    """The value at a place between points, on the line from one to the next."""
    right = int((x < at).sum().clamp(1, max(1, len(x) - 1)))
    if len(x) == 1:
        return float(y[0])
    share = ((at - x[right - 1]) / (x[right] - x[right - 1])).clamp(0, 1)
    return float(y[right - 1].lerp(y[right], share))


def _crossing(x: Float[Tensor, " points"], y: Float[Tensor, " points"], right: int) -> float:
    """Where the line to the point `right`, the first below 0.95, crosses that."""
    if right == 0:
        return float(x[0])
    share = (y[right - 1] - 0.95) / (y[right - 1] - y[right])
    return float(x[right - 1].lerp(x[right], share))


RECIPES = {
    "hopfield-capacity": Capacity(
        goal="stored_bits >= 0.9999 and recovered_bits >= 0.99 and stable_bits >= 0.995",
        covers=("H2", "H3"),
    ),
}
