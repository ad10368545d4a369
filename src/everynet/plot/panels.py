"""Measured curves beside what the equation says: the picture of a law of training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import cycle
from typing import Literal

from jaxtyping import Float, Real
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy import linspace
from torch import Tensor

from everynet.plot.style import FAINT, INK, SIGNED, array, colour, figure, grid, symmetric

Curve = tuple[Real[Tensor, " _"], Real[Tensor, " _"]]  # each has a length of its own
"""Where, and how much there."""
Corner = Literal["best", "none", "upper left", "upper right", "lower left", "lower right"]
MARKED = 24  # a curve of at most so many points shows each of them


@dataclass(frozen=True)
class Panel:
    """One pair of axes: curves by name, in the colours of the cycle."""

    curves: Mapping[str, Curve]
    xlabel: str
    ylabel: str
    title: str = ""
    guides: Mapping[str, Curve] = field(default_factory=dict)
    """Predictions: thin dashes in ink, each of its own; one named as a curve takes its colour."""
    bands: Mapping[str, Curve] = field(default_factory=dict)
    """Lowest and highest value at each point of a curve, shaded: the spread over seeds."""
    log: str = ""
    """"x", "y" or "xy": the axes with a logarithmic scale."""
    levels: Mapping[str, float] = field(default_factory=dict)
    """Horizontal lines by name: a floor, a bound, chance."""
    marks: Mapping[str, float] = field(default_factory=dict)
    """Vertical lines by name: a boundary, a change."""
    ylim: tuple[float, float] | None = None
    scatter: bool = False
    """Points without lines between them."""
    heights: (
        tuple[Float[Tensor, " across"], Float[Tensor, " up"], Float[Tensor, "up across"]] | None
    ) = None
    """A landscape behind the curves, which are then ways or points on it: x, y and the height at
    each pair, red above zero and blue below. A unit is as long across as it is up."""
    legend: Corner = "best"
    """Where the names stand; "none" leaves them out."""


def panels(*given: Panel, columns: int = 0, width: float = 4.6, height: float = 3.5) -> Figure:
    """The panels side by side, `columns` to a row (all in one row up to three)."""
    columns = columns or min(len(given), 3)
    rows = -(-len(given) // columns)
    made = figure(width * columns, height * rows, rows, columns)
    for axes, panel in zip(made.axes, given, strict=False):
        _draw(axes, panel)
    for axes in made.axes[len(given) :]:
        axes.remove()
    return made


def _draw(axes: Axes, panel: Panel) -> None:
    if "x" in panel.log:
        axes.set_xscale("log")
    if "y" in panel.log:
        axes.set_yscale("log")
    if panel.heights is not None:
        x, y, z = panel.heights
        levels = linspace(*symmetric(z), 18)
        axes.contourf(array(x), array(y), array(z), levels=levels, cmap=SIGNED, alpha=0.45)
        axes.contour(array(x), array(y), array(z), levels=levels, colors=INK, linewidths=0.25)
        axes.set_aspect("equal")
    for name, level in panel.levels.items():
        axes.axhline(level, color=INK, linewidth=0.8, linestyle=":", label=name)
    for name, (low, high) in panel.bands.items():
        number = list(panel.curves).index(name)
        where = array(panel.curves[name][0])
        axes.fill_between(where, array(low), array(high), color=colour(number), alpha=0.2, lw=0)
    for number, (name, (x, y)) in enumerate(panel.curves.items()):
        kind = "o" if panel.scatter else "o-" if len(x) <= MARKED else "-"
        size, edge = (6, INK) if panel.scatter and panel.heights else (4, colour(number))
        axes.plot(
            array(x), array(y), kind, ms=size, mec=edge, color=colour(number), lw=1.6, label=name
        )
    names, dashes = list(panel.curves), cycle(("--", "-.", ":"))
    for name, (x, y) in panel.guides.items():
        own = name in panel.curves
        ink = colour(names.index(name)) if own else INK
        label, dash = (None, "--") if own else (name, next(dashes))
        axes.plot(array(x), array(y), dash, color=ink, linewidth=1.1, label=label)
    for name, place in panel.marks.items():
        axes.axvline(place, color=FAINT, linewidth=1.2, zorder=0)
        axes.annotate(
            name,
            (place, 0.98),
            xycoords=("data", "axes fraction"),
            rotation=90,
            ha="right",
            va="top",
            fontsize="x-small",
            color=INK,
        )
    if panel.ylim:
        axes.set_ylim(*panel.ylim)
    if "x" not in panel.log and all(bool((x == x.round()).all()) for x, _ in panel.curves.values()):
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))  # no layer 2.5
    axes.set_xlabel(panel.xlabel)
    axes.set_ylabel(panel.ylabel)
    axes.set_title(panel.title, color=INK, fontsize="medium")
    if axes.get_legend_handles_labels()[1] and panel.legend != "none":
        clear = panel.heights is None  # names on a landscape need paper under them
        axes.legend(frameon=not clear, framealpha=0.85, fontsize="small", loc=panel.legend)
    if panel.heights is None:
        grid(axes)
