"""Measured curves beside what the equation says: the picture of a law of training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Literal

from jaxtyping import Float, Real
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation
from numpy import linspace
from torch import Tensor

from everynet.plot.style import (
    BASELINE,
    FAINT,
    INK,
    SIGNED,
    WIDTH,
    array,
    colour,
    figure,
    grid,
    letters,
    log_ticks,
    symmetric,
    wrapped,
)

Curve = tuple[Real[Tensor, " _"], Real[Tensor, " _"]]  # each has a length of its own
"""Where, and how much there."""
Corner = Literal["best", "none", "below", "upper left", "upper right", "lower left", "lower right"]
MARKED = 24  # a curve of at most so many points shows each of them
MANY = 4  # more names than these stand below a panel of half a page
NAMED = 3  # so many vertical lines at most are named in the legend, more above the axes


@dataclass(frozen=True)
class Panel:
    """One pair of axes: curves by name, in the colours of the cycle, the first on top."""

    curves: Mapping[str, Curve]
    xlabel: str
    ylabel: str
    title: str = ""
    guides: Mapping[str, Curve] = field(default_factory=dict)
    """Predictions: thin dashes in ink, each of its own; one named as a curve takes its colour."""
    dashes: str = "predicted"
    """The legend of dashes in the colours of curves; "" for none."""
    bands: Mapping[str, Curve] = field(default_factory=dict)
    """Lowest and highest value at each point of a curve, shaded: the spread over seeds."""
    log: str = ""
    """"x", "y" or "xy": the axes with a logarithmic scale."""
    levels: Mapping[str, float] = field(default_factory=dict)
    """Horizontal lines by name: a floor, a bound, chance."""
    marks: Mapping[str, float] = field(default_factory=dict)
    """Vertical lines by name: a boundary, a change; those without letters are not named."""
    ylim: tuple[float, float] | None = None
    scatter: bool = False
    """Points without lines between them."""
    heights: (
        tuple[Float[Tensor, " across"], Float[Tensor, " up"], Float[Tensor, "up across"]] | None
    ) = None
    """A landscape behind the curves, which are then ways or points on it: x, y and the height at
    each pair, red above zero and blue below, NaN where there is none. A unit is as long across as
    it is up."""
    legend: Corner = "best"
    """Where the names stand; "below" is under the axes, and "none" leaves them out."""


HEIGHTS = {1: 3.3, 2: 2.7, 3: 2.6}  # inches, by the columns of a page


def panels(*given: Panel, columns: int = 0, width: float = 0.0, height: float = 0.0) -> Figure:
    """The panels side by side, `columns` to a row (up to three in one row, else two).

    Their width is that of the page unless they are to be narrower. Names that are the same in all
    of them are written once, below.
    """
    columns = columns or (len(given) if len(given) <= 3 else 2)
    rows = -(-len(given) // columns)
    width = min(width or (5.0 if columns == 1 else WIDTH), WIDTH / columns)
    height = height or HEIGHTS.get(columns, 2.0)
    made = figure(width * columns, height * rows, rows, columns, count=len(given))
    for axes, panel in zip(made.axes, given, strict=True):
        _draw(axes, panel, width, height)
    below = _name(made, given, columns, width)
    made.set_size_inches(width * columns, (height + 0.14 * below) * rows)
    return made


def _name(made: Figure, given: Sequence[Panel], columns: int, width: float) -> int:
    """The legends: one for all panels if they would be the same, else one in or below each.

    Returns how many lines of names stand below a row of panels.
    """
    known = [axes.get_legend_handles_labels() for axes in made.axes]
    free = [panel.legend in ("best", "below") for panel in given]
    alike = [can and names == known[0][1] for can, (_, names) in zip(free, known, strict=True)]
    shared, below = known[0][1] and sum(alike) > 1, 0
    if shared:
        across = _side_by_side(known[0][1], made.get_size_inches()[0])
        made.legend(
            *known[0], loc="outside lower center", ncols=across, frameon=False, fontsize="small"
        )
        below = 1
    for axes, (handles, names), panel, same in zip(made.axes, known, given, alike, strict=True):
        if (shared and same) or not names or panel.legend == "none":
            continue
        crowded = columns > 2 or (columns == 2 and len(names) > MANY)
        if panel.legend == "below" or (panel.legend == "best" and crowded):
            lines = axes.get_xlabel().count("\n") + 1
            drop = ScaledTranslation(0, -0.26 - 0.15 * lines, made.dpi_scale_trans)  # inches
            across = _side_by_side(names, width)
            below = max(below, -(-len(names) // across))
            axes.legend(
                handles, names, loc="upper center", bbox_to_anchor=(0.5, 0.0),
                bbox_transform=axes.transAxes + drop, ncols=across,
                frameon=False, fontsize="small", borderaxespad=0, handlelength=1.6,
            )  # fmt: skip
            continue
        clear = panel.heights is None  # names on a landscape need paper under them
        axes.legend(
            handles, names, frameon=not clear, framealpha=0.85, fontsize="small",
            loc=panel.legend, handlelength=1.6,
        )  # fmt: skip
    return below


def _side_by_side(names: Sequence[str], width: float) -> int:
    """How many names, each behind its line, fit side by side into so many inches."""
    return max(1, min(len(names), int(width / (0.4 + 0.055 * max(map(letters, names))))))


def _draw(axes: Axes, panel: Panel, width: float, height: float) -> None:
    if "x" in panel.log:
        axes.set_xscale("log")
    if "y" in panel.log:
        axes.set_yscale("log")
    if panel.heights is not None:
        x, y, z = panel.heights
        levels = linspace(*symmetric(z[z.isfinite()]), 18)
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
            array(x), array(y), kind, ms=size, mec=edge, color=colour(number), lw=1.6, label=name,
            zorder=2.5 - 0.01 * number,
        )  # fmt: skip
    _guide(axes, panel)
    _mark(axes, panel, width)
    if panel.ylim:
        axes.set_ylim(*panel.ylim)
    if "x" not in panel.log and all(bool((x == x.round()).all()) for x, _ in panel.curves.values()):
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))  # no layer 2.5
    if "x" not in panel.log and width < 4:
        axes.locator_params(axis="x", nbins=5 if width > 3 else 4)
    axes.set_xlabel(wrapped(panel.xlabel, width - 0.5))
    axes.set_ylabel(wrapped(panel.ylabel, 0.8 * height - 0.45))
    above = max(len(name.strip()) for name in panel.marks) if len(panel.marks) > NAMED else 0
    axes.set_title(wrapped(panel.title, width - 0.45), color=INK, pad=6 + 4.2 * above)
    log_ticks(axes)
    if panel.heights is None:
        grid(axes)


def _guide(axes: Axes, panel: Panel) -> None:
    """The predictions, above the curves where these could hide them."""
    names, dashes = list(panel.curves), cycle(("--", "-.", ":"))
    for name, (x, y) in panel.guides.items():
        own = name in panel.curves
        ink = colour(names.index(name)) if own else INK
        label, dash = (None, "--") if own else (name, next(dashes))
        (drawn,) = axes.plot(array(x), array(y), dash, color=ink, linewidth=1.1, label=label)
        if not (own and panel.scatter):  # a curve on its law would hide it
            halo = [withStroke(linewidth=2.6, foreground="white")] if own else None
            drawn.set(zorder=2.6, path_effects=halo)
    if panel.dashes and panel.guides.keys() & panel.curves.keys():
        axes.plot([], [], "--", color=INK, linewidth=1.1, label=panel.dashes)


def _mark(axes: Axes, panel: Panel, width: float) -> None:
    """The vertical lines, named in the legend or, where they are many, above the axes."""
    few, strokes = len(panel.marks) <= NAMED, cycle((FAINT, BASELINE, "#6a6a6a"))
    for name, place in panel.marks.items():
        label = wrapped(name, width / 2) if few and name.strip() else None
        axes.axvline(
            place, color=next(strokes) if few else FAINT, linewidth=1.6, zorder=0, label=label
        )
        if not few and name.strip():  # above the axes, where no curve is
            axes.annotate(
                name, (place, 1.02), xycoords=("data", "axes fraction"), rotation=90,
                ha="center", va="bottom", fontsize="small", color=INK,
            )  # fmt: skip
