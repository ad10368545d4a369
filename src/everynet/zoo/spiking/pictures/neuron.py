"""One neuron: its action potential with gates and currents, and its phase plane."""

from __future__ import annotations

from collections.abc import Mapping

from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import FAINT, INK, array, colour, figure, grid

SHADES = ("#ffffff", "#fdebd9", "#dceaf4", "#e2f1ea", "#ffffff")
"""Behind the phases of an action potential, from before the first to after the last."""


def action_potential(
    times: Float[Tensor, " samples"],
    voltage: Float[Tensor, " samples"],
    *,
    gates: Mapping[str, Float[Tensor, " samples"]],
    currents: Mapping[str, Float[Tensor, " samples"]],
    phases: Mapping[str, float],
) -> Figure:
    """Voltage (mV), gates and ionic currents (uA/cm2) against time, the phases shaded.

    `times` and `phases`, each the moment at which a phase begins and the last the end of all, are
    in seconds.
    """
    made = figure(6.5, 6.2, 3, 1)
    top, middle, bottom = made.axes
    now = 1e3 * array(times)
    top.plot(now, array(voltage), color=INK, linewidth=1.8)
    top.set_ylabel("voltage V (mV)")
    for number, (name, values) in enumerate(gates.items()):
        middle.plot(now, array(values), color=colour(number), linewidth=1.6, label=name)
    middle.set_ylabel("open share of gates")
    middle.set_ylim(0, 1)
    for number, (name, values) in enumerate(currents.items()):
        bottom.plot(now, array(values), color=colour(number + 3), linewidth=1.6, label=name)
    bottom.axhline(0, color=INK, linewidth=0.8)
    bottom.set_ylabel("current, outwards > 0\n(µA/cm²)")
    bottom.set_xlabel("time (ms)")
    edges = [now[0], *(1e3 * moment for moment in phases.values()), now[-1]]
    for axes in made.axes:
        for start, end, shade in zip(edges, edges[1:], SHADES, strict=False):
            axes.axvspan(start, end, color=shade, linewidth=0, zorder=0)
        axes.set_xlim(now[0], now[-1])
        grid(axes)
    for name, moment in phases.items():
        top.axvline(1e3 * moment, color=FAINT, linewidth=1)
        place = (1e3 * moment, 1.02)
        top.annotate(
            name,
            place,
            xycoords=("data", "axes fraction"),
            rotation=55,
            ha="left",
            va="bottom",
            fontsize="small",
            color=INK,
        )
    for axes in (middle, bottom):
        axes.legend(frameon=False, fontsize="small", loc="upper right")
    return made


def phase_plane(
    path: tuple[Float[Tensor, " samples"], Float[Tensor, " samples"]],
    across: Float[Tensor, " columns"],
    up: Float[Tensor, " rows"],
    slope: Float[Tensor, "rows columns"],
    settled: Float[Tensor, " columns"],
    *,
    xlabel: str = "voltage V (mV)",
    ylabel: str = "potassium gate n",
) -> Figure:
    """A path in the plane of a fast and a slow variable, and where each of the two stands still.

    `slope` is how fast the fast variable grows at each point of the grid, `settled` the value that
    the slow one goes to above each point of the axis across.
    """
    made = figure(6.2, 4.6)
    axes = made.axes[0]
    x, y = array(path[0]), array(path[1])
    side = array(across), array(up)
    axes.contourf(*side, array(slope), levels=[0, float("inf")], colors=[SHADES[1]])
    axes.contour(*side, array(slope), levels=[0], colors=[colour(1)], linewidths=1.6)
    axes.plot([], [], color=colour(1), linewidth=1.6, label="V stands still (shaded: V rises)")
    axes.plot(side[0], array(settled), color=colour(2), linewidth=1.6, label="n stands still")
    axes.plot(x, y, color=colour(0), linewidth=1.6, label="the neuron")
    for place in (x >= 0).nonzero()[0][:1]:  # the way it goes round, on the first rise
        style = {"arrowstyle": "-|>", "color": colour(0), "mutation_scale": 16}
        axes.annotate("", (x[place], y[place]), (x[place - 5], y[place - 5]), arrowprops=style)
    axes.plot(x[:1], y[:1], "o", color=INK, ms=6, label="start: rest")
    axes.set_xlim(side[0][0], side[0][-1])
    axes.set_ylim(side[1][0], side[1][-1])
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.legend(frameon=False, fontsize="small", loc="lower right")
    grid(axes)
    return made
