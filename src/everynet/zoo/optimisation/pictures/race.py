"""A race down several landscapes: the paths of all rules on maps, and the table of results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import fill
from typing import NamedTuple

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from everynet.plot.style import FAINT, INK, LEAST, WIDTH, array, bare, colour, figure, wrapped

POINTS = 200  # along a side of the grid that contours are computed from
LEVELS = 14
MARKED = 12  # the first steps of a path, whose ends are marked: how long a step is


class Course(NamedTuple):
    """A landscape with the start of the race and its minima."""

    title: str
    height: Callable[[Float[Tensor, "*points 2"]], Float[Tensor, "*points"]]
    start: tuple[float, float]
    minima: Sequence[tuple[float, float]]
    window: tuple[float, float, float, float]
    """The part of the plane that is shown: left, right, bottom, top."""


Paths = Mapping[str, Float[Tensor, "_ 2"]]
"""The path of each rule down a landscape, in the colours of the cycle."""


def courses(given: Sequence[tuple[Course, Paths]], teams: Mapping[str, Sequence[str]]) -> Figure:
    """A row for each course and a column for each team, whose paths alone are drawn there.

    A star is a minimum; dots are the ends of the first steps.
    """
    made = figure(WIDTH, 2.05 * len(given) + 0.7, len(given), len(teams))
    places = iter(made.axes)
    for row, (course, paths) in enumerate(given):
        for number, (team, names) in enumerate(teams.items()):
            axes = next(places)
            _draw(axes, course, {name: paths[name] for name in names}, list(paths))
            if number == 0:
                axes.set_ylabel(wrapped(course.title, 1.7) + "\n" + r"$\theta_2$")
            if row == 0:
                axes.set_title(team, color=INK)
            if row == len(given) - 1:
                axes.set_xlabel(r"$\theta_1$")
                axes.legend(
                    fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.24), ncols=2,
                    frameon=False,
                )  # fmt: skip
    return made


def race_frames(course: Course, paths: Paths, steps: Sequence[int]) -> Iterator[Figure]:
    """All rules on one landscape: the way of each up to a step, and where it is then."""
    for step in steps:
        made = figure(3.1, 3.6)
        axes = made.axes[0]
        _draw(axes, course, {name: path[: step + 1] for name, path in paths.items()}, list(paths))
        for number, path in enumerate(paths.values()):
            axes.plot(*array(path[step]), "o", color=colour(number), mec="white", ms=7, zorder=6)
        axes.set_title(f"{course.title}: step {step:,}", color=INK)
        axes.set(xlabel=r"$\theta_1$", ylabel=r"$\theta_2$")
        made.legend(loc="outside lower center", ncols=3, fontsize="small", frameon=False)
        yield made


def _draw(axes: Axes, course: Course, paths: Paths, everyone: Sequence[str]) -> None:
    left, right, bottom, top = course.window
    x = torch.linspace(left, right, POINTS, dtype=torch.float64)
    y = torch.linspace(bottom, top, POINTS, dtype=torch.float64)
    z = course.height(torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1))
    shares = torch.linspace(0.01, 0.97, LEVELS, dtype=torch.float64)
    levels = z.flatten().quantile(shares).unique()  # as much of the map between any two lines
    axes.contour(array(x), array(y), array(z), levels=array(levels), colors=FAINT, linewidths=0.9)
    for order, (name, path) in enumerate(paths.items()):
        line, ink = array(path), colour(everyone.index(name))
        width = max(2.2 - 0.5 * order, 0.7)  # so that one path does not hide another below it
        axes.plot(line[:, 0], line[:, 1], "-", color=ink, linewidth=width, label=name)
        few = line[1 : MARKED + 1]
        axes.plot(few[:, 0], few[:, 1], "o", color=ink, ms=2.6)
    axes.plot(*course.start, "o", color="white", mec=INK, ms=6, zorder=5)
    axes.annotate(
        "start", course.start, xytext=(-5, -6), textcoords="offset points", ha="right", va="top",
        fontsize="small",
    )  # fmt: skip
    for place in course.minima:
        axes.plot(*place, "*", color=INK, ms=10, mec="white", zorder=5)
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5))


def standings(
    columns: Sequence[str],
    rows: Mapping[str, Sequence[str]],
    *,
    best: Sequence[int],
    note: str = "",
) -> Figure:
    """A table: a row for each of the names, in its colour; `best` is the row to print bold.

    A cell may have two lines, the second of which is printed small.
    """
    made = figure(WIDTH, 0.42 * len(rows) + 1.4)
    axes = made.axes[0]
    bare(axes)
    axes.set_xlim(-1.1, len(columns))
    axes.set_ylim(len(rows) + 0.9, -1.0)
    for number, title in enumerate(columns):
        head = fill(title, 15)
        axes.text(number + 0.4, -0.2, head, ha="center", va="bottom", weight="bold", color=INK)
    axes.axhline(-0.08, color=INK, linewidth=1)
    for line, (name, cells) in enumerate(rows.items()):
        axes.plot(-1.02, line + 0.45, "s", color=colour(line), ms=9)
        axes.text(-0.92, line + 0.45, name, va="center", color=INK)
        for number, cell in enumerate(cells):
            value, _, small = cell.partition("\n")
            weight = "bold" if best[number] == line else "normal"
            where = (number + 0.4, line + (0.3 if small else 0.45))
            axes.text(*where, value, ha="center", va="center", weight=weight, color=INK)
            axes.text(where[0], line + 0.68, small, ha="center", va="center", fontsize=LEAST)
        axes.axhline(line + 0.95, color=FAINT, linewidth=0.6)
    axes.text(-1.05, len(rows) + 0.15, fill(note, 105), va="top", color=INK)
    return made
