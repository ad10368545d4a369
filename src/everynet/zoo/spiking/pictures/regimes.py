"""The states of one network side by side: who spikes when, the rate of all, its waves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import INK, WIDTH, array, colour, dress, grid, wrapped


class Regime(NamedTuple):
    """What is seen of one state."""

    title: str
    caption: str
    times: Float[Tensor, " spikes"]
    """When the neurons shown spike (s)."""
    neurons: Int[Tensor, " spikes"]
    rate: Float[Tensor, " bins"]
    """Of all neurons (Hz)."""
    until: float
    """How much is shown (s)."""
    frequencies: Float[Tensor, " waves"]
    spectrum: Float[Tensor, " waves"]
    """Power of the rate's waves over that of independent Poisson neurons."""


def regimes(given: Mapping[str, Regime], *, shown: int, bin: float) -> Figure:
    """A raster above the rate for each state, and the spectra of all; a bin is in s."""
    rows = math.ceil((len(given) + 1) / 2)
    made = Figure(figsize=(WIDTH, 2.6 * rows), layout="constrained")
    parts = iter(np.asarray(made.subfigures(rows, 2), dtype=object).ravel())
    for number, (name, state) in enumerate(given.items()):
        upper, lower = next(parts).subplots(2, 1, sharex=True, height_ratios=[2.2, 1])
        dress(upper)
        dress(lower)
        ink, rate = colour(number), array(state.rate)[: math.ceil(state.until / bin)]
        when, who = array(state.times) * 1000, array(state.neurons)
        upper.plot(when, who, "|", ms=1.8, mew=0.7, color=ink, rasterized=True)
        upper.set_ylim(-1, shown)
        upper.set_ylabel("neuron")
        upper.set_title(wrapped(f"{name}: {state.title}", 2.9), color=INK)
        lower.stairs(rate, np.arange(len(rate) + 1) * bin * 1000, color=ink, fill=True)
        lower.set_xlim(0, state.until * 1000)
        lower.set_ylim(bottom=0)
        lower.set_ylabel("rate (Hz)")
        lower.set_xlabel(f"time (ms)\n{wrapped(state.caption, 2.9)}", fontsize="small")
        grid(lower)
    axes = dress(next(parts).subplots())
    for number, (name, state) in enumerate(given.items()):
        power = array(state.spectrum).clip(1e-6)
        axes.loglog(array(state.frequencies), power, color=colour(number), lw=1.3, label=name)
    axes.axhline(1, color=INK, linewidth=0.8, linestyle=":", label="Poisson")
    axes.set_xlabel("frequency (Hz)")
    axes.set_ylabel("power over that of Poisson neurons")
    axes.set_title("waves of the population rate", color=INK, fontsize="medium")
    axes.legend(
        frameon=False, fontsize="small", ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.2)
    )
    grid(axes)
    return made
