"""Recurrent networks unrolled in time: inputs, states and outputs, with shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, Rectangle

from everynet.plot.style import CYCLE, INK, bare

WIDE = 6.5  # inches of a page
SMALL = 7  # points
SHOWN = 3  # tokens of a sequence that are drawn: the first two and the last
INPUT, STATE, DECODER, OUTPUT = CYCLE[2], CYCLE[0], CYCLE[3], CYCLE[1]
HEIGHTS = {"input": 0.0, "state": 1.0, "output": 2.0}


class Layout(NamedTuple):
    """How many inputs and outputs there are, and the sizes of input, state and output."""

    inputs: int
    outputs: int
    sizes: tuple[int, int, int]
    title: str


class Column(NamedTuple):
    """One step in time: the state and, where there are any, its input and output."""

    x: str
    state: str
    y: str
    decodes: bool
    skipped: bool
    """Whether steps before it are left out."""


def unrolled(layouts: Mapping[str, Layout]) -> Figure:
    """A diagram for each of the five layouts, which are known by their names."""
    made = Figure(figsize=(WIDE, 2.0 * -(-len(layouts) // 2)), layout="constrained")
    rows = -(-len(layouts) // 2)
    for number, (name, layout) in enumerate(layouts.items(), 1):
        axes = made.add_subplot(rows, 2, number)
        fed = name in ("one-to-many", "encoder-decoder")
        _draw(axes, list(_columns(name, layout)), fed)
        sizes = layout.sizes
        axes.set_title(layout.title, color=INK, fontsize="small")
        axes.set_xlabel(
            f"inputs (batch, {layout.inputs}, {sizes[0]}), states (batch, {sizes[1]}), "
            f"outputs (batch, {layout.outputs}, {sizes[2]})",
            fontsize=SMALL,
            color=INK,
        )
    if len(layouts) % 2:
        _legend(made.add_subplot(rows, 2, 2 * rows))
    return made


def _tokens(count: int) -> list[int]:
    return list(range(1, count + 1)) if count <= SHOWN else [1, 2, count]


def _columns(name: str, layout: Layout) -> Iterator[Column]:
    """The steps that are drawn."""
    if name == "encoder-decoder":
        for letter, count in (("x", layout.inputs), ("y", layout.outputs)):
            for number, t in enumerate(_tokens(count)):
                decodes = letter == "y"
                sign = f"${letter}_{{{t}}}$"
                state = f"${'s' if decodes else 'h'}_{{{t}}}$"
                skipped = number == SHOWN - 1 and count > SHOWN
                yield Column(
                    "" if decodes else sign, state, sign if decodes else "", decodes, skipped
                )
        return
    count = max(layout.inputs, layout.outputs)
    for number, t in enumerate(_tokens(count)):
        x = f"$x_{{{t}}}$" if t <= layout.inputs else ""
        shown = t <= layout.outputs if layout.outputs > 1 else t == count
        y = (f"$y_{{{t}}}$" if layout.outputs > 1 else "$y$") if shown else ""
        skipped = number == SHOWN - 1 and count > SHOWN
        yield Column(x, f"$h_{{{t}}}$", y, False, skipped)


def _draw(axes: Axes, columns: list[Column], fed: bool) -> None:
    place = 0.0
    last: tuple[float, Column] | None = None
    for column in columns:
        place += 0.0 if last is None else 1.6 if column.skipped else 1.0
        _box(axes, place, "state", column.state, DECODER if column.decodes else STATE)
        if column.x:
            _box(axes, place, "input", column.x, INPUT)
            _arrow(axes, (place, 0.28), (place, 0.72))
        if column.y:
            _box(axes, place, "output", column.y, OUTPUT)
            _arrow(axes, (place, 1.28), (place, 1.72))
        if last is not None:
            before, gone = last
            _arrow(axes, (before + 0.3, 1.0), (place - 0.3, 1.0), skipped=column.skipped)
            if fed and gone.y:
                _arrow(
                    axes, (before + 0.28, 1.85), (place - 0.22, 1.25), skipped=column.skipped,
                    dashed=True,
                )  # fmt: skip
        last = place, column
    middle = place / 2
    axes.set_xlim(middle - 3.2, middle + 3.2)
    axes.set_ylim(-0.35, 2.35)
    axes.set_aspect("equal")
    bare(axes)


def _box(axes: Axes, place: float, row: str, text: str, paint: str) -> None:
    height = HEIGHTS[row]
    patch = (
        Circle((place, height), 0.28, facecolor=paint, alpha=0.25, edgecolor=paint)
        if row == "state"
        else Rectangle(
            (place - 0.28, height - 0.25), 0.56, 0.5, facecolor=paint, alpha=0.25, edgecolor=paint
        )
    )
    axes.add_patch(patch)
    axes.text(place, height, text, ha="center", va="center", fontsize=SMALL + 1, color=INK)


def _arrow(
    axes: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    *,
    skipped: bool = False,
    dashed: bool = False,
) -> None:
    axes.add_patch(
        FancyArrowPatch(
            start, end, arrowstyle="-|>", mutation_scale=7, shrinkA=0, shrinkB=0, linewidth=0.9,
            color=INK, linestyle="--" if dashed else "-",
        )
    )  # fmt: skip
    if skipped and not dashed:
        middle = (start[0] + end[0]) / 2
        axes.text(
            middle, start[1], "...", ha="center", va="center", fontsize=SMALL + 1, color=INK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )  # fmt: skip


def _legend(axes: Axes) -> None:
    """What boxes and arrows are."""
    rows = (
        ("output", OUTPUT, "$y$, an output"),
        ("state", STATE, "$h$, a state: always the same weights"),
        ("state", DECODER, "$s$, a state of the decoder"),
        ("input", INPUT, "$x$, an input"),
    )
    for number, (row, paint, text) in enumerate(rows):
        height = 2.1 - 0.55 * number
        patch = (
            Circle((0.0, height), 0.17, facecolor=paint, alpha=0.25, edgecolor=paint)
            if row == "state"
            else Rectangle(
                (-0.17, height - 0.16), 0.34, 0.32, facecolor=paint, alpha=0.25, edgecolor=paint
            )
        )
        axes.add_patch(patch)
        axes.text(0.45, height, text, va="center", fontsize=SMALL + 1, color=INK)
    _arrow(axes, (-0.3, -0.1), (0.3, -0.1), dashed=True)
    axes.text(0.45, -0.1, "an output is fed back", va="center", fontsize=SMALL + 1, color=INK)
    axes.set_xlim(-1.2, 5.2)
    axes.set_ylim(-0.35, 2.35)
    axes.set_aspect("equal")
    bare(axes)
