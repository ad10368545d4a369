"""Spikes: who fired when, what membranes did meanwhile, and how fast neurons fire."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import FAINT, INK, array, colour, dress, figure, grid, log_ticks

Curve = tuple[Float[Tensor, " _points"], Float[Tensor, " _points"]]
"""Where, and how much there."""
SPIKE = 1.9  # how high a spike is drawn, where the threshold is 1
ROUNDING = 1e-14  # per cent: what is nearer than that is drawn there
MANY = 120  # neurons above which a raster has dots for strokes


def raster(
    times: Float[Tensor, " spikes"],
    neurons: Int[Tensor, " spikes"],
    groups: Mapping[str, int],
    duration: float,
    *,
    bin_width: float = 0.005,
    title: str = "",
) -> Figure:
    """A mark for each spike, the groups one above the other, and below it the rate of each group.

    `groups` gives the number of neurons in each, in the order of their numbers; times and
    `bin_width` are in seconds.
    """
    made = figure(6.5, 4.4)
    made.clear()
    upper, lower = made.subplots(2, 1, sharex=True, height_ratios=[3, 1.2])
    dress(upper)
    dress(lower)
    when, who = array(times), array(neurons)
    edges = np.linspace(0, duration, max(2, round(duration / bin_width) + 1))
    width, first = edges[1] - edges[0], 0
    many = sum(groups.values()) > MANY
    mark, size = (".", 2.2) if many else ("|", min(9.0, 250 / max(1, sum(groups.values()))))
    for number, (name, count) in enumerate(groups.items()):
        mine = (who >= first) & (who < first + count)
        upper.plot(
            when[mine] * 1000, who[mine], mark, ms=size, mew=0 if many else 1,
            color=colour(number), rasterized=True,
        )  # fmt: skip
        rate = np.histogram(when[mine], edges)[0] / (width * max(1, count))
        lower.stairs(rate, edges * 1000, color=colour(number), linewidth=1.3, label=name)
        if first:
            upper.axhline(first - 0.5, color=FAINT, linewidth=0.8)
        first += count
    upper.set_ylim(-0.5, first - 0.5)
    upper.set_ylabel("neuron")
    upper.set_title(title, color=INK, fontsize="medium")
    lower.set_xlim(0, duration * 1000)
    lower.set_ylim(bottom=0)
    lower.set_xlabel("time (ms)")
    lower.set_ylabel("rate (Hz)")
    grid(lower)
    if len(groups) > 1:
        above = {"loc": "lower right", "bbox_to_anchor": (1.0, 0.97)}
        lower.legend(frameon=False, fontsize="small", ncols=len(groups), **above)
    return made


def membrane_traces(
    times: Float[Tensor, " times"],
    voltages: Mapping[str, Float[Tensor, " times"]],
    spikes: Mapping[str, Float[Tensor, " _spikes"]],
    *,
    threshold: float = 1.0,
    ylabel: str = "v",
    xlabel: str = "time (ms)",
) -> Figure:
    """A panel for each membrane: its trace, the threshold, and a tall line for each spike."""
    made = figure(6.5, 0.5 + 1.05 * len(voltages), len(voltages), 1)
    where = array(times)
    for number, (axes, (name, trace)) in enumerate(zip(made.axes, voltages.items(), strict=True)):
        values = array(trace)
        _threshold(axes, threshold)
        axes.plot(where, values, color=colour(0), linewidth=1.3)
        axes.vlines(array(spikes[name]), threshold, SPIKE * threshold, color=INK, linewidth=1.1)
        low = min(0.0, float(values.min()) * 1.08)
        axes.set_ylim(low - 0.05 * threshold, (SPIKE + 0.1) * threshold)
        axes.set_xlim(where[0], where[-1])
        axes.set_yticks([0, threshold])
        axes.set_ylabel(ylabel)
        axes.set_title(name, loc="left", fontsize="small", color=INK, pad=2)
        if number < len(voltages) - 1:
            axes.tick_params(labelbottom=False)
    made.axes[-1].set_xlabel(xlabel)
    return made


def firing_curve(
    formula: Callable[[Float[Tensor, " _points"]], Float[Tensor, " _points"]],
    x: Float[Tensor, " points"],
    measured: Mapping[str, Curve],
    *,
    limit: float | None = None,
    xlabel: str = "input",
) -> Figure:
    """The rate against the input beside the formula, drawn over x, and how far each is from it."""
    made = figure(6.5, 2.9, 1, 2)
    left, right = made.axes
    left.plot(array(x), array(formula(x)), color=INK, linewidth=1.2, label="formula")
    for number, (name, (at, rate)) in enumerate(measured.items()):
        where, values, truth = array(at), array(rate), array(formula(at))
        size = 2.2 + 1.3 * number  # rings around dots, so that none hides another
        left.plot(where, values, "o", ms=size, color=colour(number), mfc="none", label=name)
        fires = truth > 0
        error = 100 * np.abs(values[fires] / truth[fires] - 1)
        right.plot(
            where[fires], error.clip(ROUNDING), "o-", ms=2.6, lw=1, color=colour(number), label=name
        )
    if limit is not None:
        left.axhline(limit, color=INK, linewidth=0.8, linestyle=":")
        left.annotate(
            r"$1/\tau_{ref}$", (float(x[0]), limit), xytext=(4, -4),
            textcoords="offset points", va="top", fontsize="small", color=INK,
        )  # fmt: skip
    right.set_yscale("log")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xlabel(xlabel)
        log_ticks(axes)
        grid(axes)
    left.set_ylabel("firing rate (Hz)")
    right.set_ylabel("distance from the formula (%)")
    made.legend(
        *left.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False,
        fontsize="small",
    )  # fmt: skip
    return made


def _threshold(axes: Axes, level: float) -> None:
    axes.axhline(level, color=FAINT, linewidth=1.0, linestyle="--")
