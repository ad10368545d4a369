"""One neuron: its action potential with gates and currents, and its phase plane."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from everynet.plot.style import FAINT, INK, array, bare, colour, dress, figure, grid

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


Traces = Mapping[str, Float[Tensor, " samples"]]
CHANNEL, THICK, LONGEST = 1.2, 0.5, 1.15  # of a drawn membrane: widest channel, height, arrow


def spike_frames(
    times: Float[Tensor, " samples"],
    voltage: Float[Tensor, " samples"],
    *,
    gates: Traces,
    currents: Traces,
    conductances: Traces,
    pulse: tuple[float, float],
    shown: Iterable[int],
) -> Iterator[Figure]:
    """A frame for each sample `shown`: the traces until then, and the membrane at that moment.

    Conductances (mS/cm2) have the names of the currents (uA/cm2); `pulse` are the seconds from and
    until which a current from outside is given.
    """
    made = Figure(figsize=(6.5, 3.6))
    places = ((0.1, y, 0.48, 0.24) for y in (0.695, 0.415, 0.135))
    traces = [dress(made.add_axes(place)) for place in places]
    membrane = made.add_axes((0.63, 0.04, 0.36, 0.88))
    now, volts = 1e3 * array(times), {"V": voltage}
    strongest, widest = (
        max(float(values.abs().max()) for values in group.values())
        for group in (currents, conductances)
    )
    labels = ("voltage (mV)", "gates open", "current (µA/cm²)")
    inks = {"V": INK} | {name: colour(n) for n, name in enumerate([*gates, *currents])}
    for sample in shown:
        for axes, group, label in zip(traces, (volts, gates, currents), labels, strict=True):
            axes.clear()
            axes.axvspan(1e3 * pulse[0], 1e3 * pulse[1], color=SHADES[1], linewidth=0)
            for name, values in group.items():
                trace, ink = array(values), inks[name]
                axes.plot(now, trace, color=FAINT, linewidth=0.8)
                axes.plot(now[: sample + 1], trace[: sample + 1], color=ink, label=name)
                axes.plot(now[sample], trace[sample], "o", color=ink, ms=4, clip_on=False)
            axes.set_xlim(now[0], now[-1])
            axes.set_ylabel(label, fontsize="small")
            axes.tick_params(labelbottom=axes is traces[-1])
            if group is not volts:
                axes.legend(
                    frameon=False, fontsize="small", loc="upper right", ncols=3, handlelength=1,
                    columnspacing=1, bbox_to_anchor=(1.0, 1.18),
                )  # fmt: skip
        traces[0].set_title("shaded: the pulse from outside", fontsize="small", color=INK)
        traces[-1].set_xlabel("time (ms)", fontsize="small")
        made.align_ylabels(traces)
        membrane.clear()
        for place, (name, values) in enumerate(currents.items()):
            g, flow = float(conductances[name][sample]), float(values[sample]) / strongest
            x, gap, ink = 2.0 * place + 1.0, CHANNEL * g / widest, inks[name]
            _draw_channel(membrane, x, gap, flow * LONGEST, ink)
            membrane.text(
                x, 1.3, f"{name}\n{g:.1f} mS/cm²", fontsize="small", color=ink, ha="center"
            )
        membrane.set(xlim=(0, 2 * len(currents)), ylim=(-1.9, 1.9))
        volt = f"{float(voltage[sample]):.0f} mV".replace("-", "\N{MINUS SIGN}")
        membrane.text(0.05, 0.4, "outside", fontsize="small", color=INK)
        membrane.text(0.05, -1.6, f"inside, V = {volt}", fontsize="small", color=INK)
        membrane.set_title(f"membrane at {now[sample]:.1f} ms", color=INK)
        bare(membrane)
        yield made


def _draw_channel(axes: Axes, x: float, gap: float, arrow: float, ink: str) -> None:
    """A channel through the membrane, and an arrow for the current through it, outwards up."""
    for left, right in ((x - 1, x - gap / 2), (x + gap / 2, x + 1)):
        corner = (left, -THICK / 2)
        axes.add_patch(Rectangle(corner, right - left, THICK, color=FAINT, linewidth=0))
    for side in (-1, 1):  # its two walls
        axes.plot([x + side * gap / 2] * 2, [-THICK / 2, THICK / 2], color=ink, linewidth=2.5)
    if abs(arrow) > 0.02:
        style = {"arrowstyle": "-|>", "color": ink, "lw": 2.5, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (x, arrow), (x, 0), arrowprops=style)


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
