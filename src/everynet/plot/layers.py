"""A network from top to bottom: a line for each layer with its shape and parameters.

It is drawn from the table of layers, for any network, also where the input is no image. What
repeats is drawn once with the number of times beside it; a longer network than a page can show
loses its layers without parameters, then its middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol, runtime_checkable

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from everynet.plot.style import FAINT, INK, LEAST, OURS, WIDTH, bare, figure

MOST = 20  # lines of a page
LINE = 0.25  # inches
TIMES = "\N{MULTIPLICATION SIGN}"


@runtime_checkable
class Row(Protocol):
    """A layer: its path in the network, its class, the shape of its output (() if unknown)."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def parameters(self) -> int: ...


@dataclass(frozen=True)
class Group:
    """Consecutive layers that repeat `count` times."""

    rows: Sequence[Row]
    count: int = 1


@dataclass(frozen=True)
class Rest:
    """The layers that a page has no room for."""

    name: str
    parameters: int
    kind: str = ""
    shape: tuple[int, ...] = ()


def layer_lines(rows: Sequence[Row], *, title: str) -> Figure:
    """A box for each layer below that before it, blue where it learns."""
    groups = shortened(rows)
    lines = _lines(groups)
    made = figure(WIDTH, LINE * (lines + 0.9) + 0.3)
    axes = made.axes[0]
    bare(axes)
    axes.set(xlim=(0, WIDTH), ylim=(lines - 0.4, -1.3))
    for place, name, side in ((0.45, "layer", "left"), (2.95, "name", "left"),
                              (5.0, "output", "right"), (6.0, "parameters", "right")):  # fmt: skip
        axes.text(place, -0.9, name, ha=side, va="center", weight="bold", color=INK)
    total = sum(row.parameters for row in rows)
    most = max((row.parameters for row in rows), default=0)
    starts = accumulate((len(group.rows) for group in groups), initial=0)
    for start, group in zip(starts, groups, strict=False):
        for number, row in enumerate(group.rows):
            _line(axes, start + number, row, most)
        if group.count > 1:
            _bracket(axes, start, len(group.rows), group.count)
    axes.set_title(f"{title}: {total:,} parameters", color=INK)
    return made


def shortened(rows: Sequence[Row], most: int = MOST) -> list[Group]:
    """The rows with repeats folded, in at most so many lines."""
    groups = folded(rows)
    if _lines(groups) <= most:
        return groups
    groups = folded([*rows[:1], *(row for row in rows[1:] if row.parameters)])
    if _lines(groups) <= most:
        return groups
    left = (most - 1) // 2
    first, last = _taken(groups, left), _taken(groups[::-1], most - 1 - left)[::-1]
    middle = groups[len(first) : len(groups) - len(last)]
    layers = sum(len(group.rows) * group.count for group in middle)
    inside = sum(row.parameters for group in middle for row in group.rows)
    return [*first, Group([Rest(f"{layers} more layers", inside)]), *last]


def folded(rows: Sequence[Row]) -> list[Group]:
    """Groups of rows: a stretch that comes again and again at once is one, with its count."""
    keys = [(row.kind, row.shape, row.parameters) for row in rows]
    groups, at = [], 0
    while at < len(rows):
        found = (1, 1)  # rows of the stretch, and times
        for length in range(1, (len(rows) - at) // 2 + 1):
            times = 1
            while keys[at + times * length : at + (times + 1) * length] == keys[at : at + length]:
                times += 1
            if times > 1 and length * (times - 1) > found[0] * (found[1] - 1):
                found = (length, times)
        groups.append(Group(rows[at : at + found[0]], found[1]))
        at += found[0] * found[1]
    return groups


def _lines(groups: Sequence[Group]) -> int:
    return sum(len(group.rows) for group in groups)


def _taken(groups: Sequence[Group], most: int) -> list[Group]:
    """As many groups from the beginning as have so many lines."""
    ends = accumulate(len(group.rows) for group in groups)
    return [group for group, end in zip(groups, ends, strict=True) if end <= most]


def _line(axes: Axes, at: int, row: Row, most: int) -> None:
    learns = row.parameters > 0
    ink = OURS if learns else FAINT
    box = FancyBboxPatch(
        (0.45, at - 0.36), 2.3, 0.72, boxstyle="round,pad=0,rounding_size=0.08",
        facecolor=ink, alpha=0.25 if learns else 0.5, edgecolor="none", mutation_aspect=LINE,
    )  # fmt: skip
    if row.kind:
        axes.add_patch(box)
    said = (
        (0.55, _cut(row.kind, 34), "left"),
        (2.95, _cut(row.name, 24), "left"),
        (5.0, f" {TIMES} ".join(f"{size:,}" for size in row.shape), "right"),
        (6.0, f"{row.parameters:,}" if learns else "", "right"),
    )
    for place, text, side in said:
        axes.text(place, at, text, ha=side, va="center", fontsize=LEAST, color=INK)
    if learns:
        axes.barh(at, 0.4 * row.parameters / most, 0.5, left=6.06, color=OURS)
    if at:
        axes.plot([1.6, 1.6], [at - 0.64, at - 0.36], color=INK, linewidth=0.8)


def _bracket(axes: Axes, start: int, lines: int, count: int) -> None:
    top, bottom = start - 0.36, start + lines - 1 + 0.36
    axes.plot([0.4, 0.34, 0.34, 0.4], [top, top, bottom, bottom], color=INK, linewidth=0.8)
    middle = (top + bottom) / 2
    axes.text(0.3, middle, f"{count} {TIMES}", ha="right", va="center", fontsize=LEAST, color=INK)


def _cut(text: str, most: int) -> str:
    """At most so many letters: the end says more of a path than its beginning."""
    return text if len(text) <= most else "\N{HORIZONTAL ELLIPSIS}" + text[1 - most :]
