"""An expression graph with its numbers: values in the nodes, slopes on the edges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from everynet.autodiff.graph import Var
from everynet.autodiff.layout import Placed, place
from everynet.plot.style import CONTRAST, INK, OURS

LETTER, LINE, FONT = 4.3, 10.0, 7.5  # points; a unit of the axes is a point
GAP, MARGIN = (25.0, 14.0), 4.0


@dataclass(frozen=True)
class Shown:
    """A graph and what its passes found; `back` says that arrows of the orange point backwards."""

    edges: dict[Var, list[tuple[Var, float]]]
    derivatives: Mapping[Var, float]
    title: str = ""
    back: bool = True
    values: Set[Var] | None = None
    """The nodes whose values are printed, and the slopes into them; None: all."""
    now: Var | None = None
    """An operation that is marked, with the edges into it."""

    def lines(self, node: Var) -> tuple[str, str, str]:
        """What stands in a node: its name or operation, its value, the derivative."""
        name = node.name
        if node.creator is not None:
            constants = [f" {float(a):g}" for a in node.creator if not isinstance(a, Var)]
            name = (node.creator.symbol or node.creator.name) + "".join(constants)
        derivative = self.derivatives.get(node)
        found = "" if derivative is None else ("← " if self.back else "→ ") + number(derivative)
        return name, number(float(node)) if self.has(node) else "", found

    def has(self, node: Var) -> bool:
        """Whether its value is printed."""
        return self.values is None or node in self.values


def number(value: float) -> str:
    """A number of a node, short."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return ("0" if text == "-0" else text).replace("-", "\N{MINUS SIGN}")


def expression_graphs(*given: Shown) -> Figure:
    """The graphs side by side, from the leaves on the left to the last operation on the right."""
    graphs = [(shown, *_placed(shown)) for shown in given]
    above = 2.4 * LINE if any(shown.title for shown in given) else 0.0
    widths = [
        max(right - left, 5.2 * len(shown.title)) + 2 * MARGIN
        for shown, _, _, (left, right, _, _) in graphs
    ]
    height = max(top - low for _, _, _, (_, _, low, top) in graphs) + 2 * MARGIN + above
    made, start = Figure(figsize=(sum(widths) / 72, height / 72)), 0.0
    for (shown, nodes, placed, (left, right, low, top)), width in zip(graphs, widths, strict=True):
        axes = made.add_axes((start / sum(widths), 0, width / sum(widths), 1))
        start += width
        x, y = (left + right) / 2, (low + top + above) / 2
        axes.set(xlim=(x - width / 2, x + width / 2), ylim=(y - height / 2, y + height / 2))
        axes.set_axis_off()
        _draw(axes, shown, nodes, placed)
        axes.text(x, top + LINE, shown.title, ha="center", fontsize=FONT + 1)
    return made


def walk_frames(whole: Shown, steps: Iterable[tuple[Shown, str]]) -> Iterator[Figure]:
    """A frame for each step of passes through one graph, with a line of words below it."""
    nodes, placed, (left, right, low, top) = _placed(whole)
    width, height = right - left + 2 * MARGIN, top - low + 2 * MARGIN + 4 * LINE
    for shown, words in steps:
        made = Figure(figsize=(width / 72, height / 72))
        axes = made.add_axes((0, 0, 1, 1))
        axes.set(xlim=(left - MARGIN, right + MARGIN), ylim=(top + MARGIN - height, top + MARGIN))
        axes.set_axis_off()
        _draw(axes, shown, nodes, placed, whole)
        axes.text((left + right) / 2, low - 2.4 * LINE, words, ha="center", fontsize=FONT + 1)
        yield made


def _placed(shown: Shown) -> tuple[dict[Var, int], Placed, tuple[float, float, float, float]]:
    """The nodes by number, where they stand, and the borders of all."""
    nodes: dict[Var, int] = {}
    for node in reversed(shown.edges):
        for part in (node, *(argument for argument, _ in shown.edges[node])):
            nodes.setdefault(part, len(nodes))
    sizes = [(_width(shown, node), 3.6 * LINE) for node in nodes]
    placed = place(sizes, [(nodes[a], nodes[y]) for y, a, _ in _arrows(shown)], GAP)
    x = [(at - w / 2, at + w / 2) for (at, _), (w, _) in zip(placed.boxes, sizes, strict=True)]
    y = [(at - h / 2, at + h / 2) for (_, at), (_, h) in zip(placed.boxes, sizes, strict=True)]
    return nodes, placed, (min(x)[0], max(b for _, b in x), min(y)[0], max(b for _, b in y))


def _arrows(shown: Shown) -> list[tuple[Var, Var, float]]:
    """Each operation, its argument and the slope, the last operation first."""
    return [(y, *edge) for y in reversed(shown.edges) for edge in shown.edges[y]]


def _width(shown: Shown, node: Var) -> float:
    return LETTER * max(map(len, shown.lines(node))) + 8


def _draw(
    axes: Axes, shown: Shown, nodes: Mapping[Var, int], placed: Placed, whole: Shown | None = None
) -> None:
    """Draw a graph; the boxes have room for the lines of `whole`."""
    whole, mark = whole or shown, OURS if shown.derivatives == {} else CONTRAST
    for (y, argument, slope), between in zip(_arrows(shown), placed.routes, strict=True):
        (x0, y0), (x1, y1) = (placed.boxes[nodes[node]] for node in (argument, y))
        into = sorted((a for a, _ in shown.edges[y]), key=lambda a: -placed.boxes[nodes[a]][1])
        place_of = {a: i for i, a in enumerate(into)}
        drop = (place_of[argument] - (len(into) - 1) / 2) * 1.4 * LINE  # the highest on top
        start, end = x0 + _width(whole, argument) / 2, x1 - _width(whole, y) / 2
        marked: dict[str, Any] = {"color": INK, "lw": 0.8}
        if y is shown.now:
            marked = {"color": mark, "lw": 2.0}
        points = [(start, y0), *between, (end, y1 - drop)]
        for (xa, ya), (xb, yb) in pairwise(points[:-1]):
            axes.plot([xa, xb], [ya, yb], zorder=1, **marked)
        axes.annotate(
            "", points[-1], points[-2], zorder=1,
            arrowprops={"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, **marked},
        )  # fmt: skip
        if not shown.has(y):
            continue
        (xa, ya), (xb, yb) = points[0], points[1]
        axes.text(
            (xa + xb) / 2, (ya + yb) / 2, number(slope), fontsize=FONT, ha="center",
            va="center", bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6}, zorder=2,
        )  # fmt: skip
    for node, index in nodes.items():
        across, up = placed.boxes[index]
        wide, high = _width(whole, node), 3.6 * LINE
        corners = 0.3 * high if node.creator is None else 2.0
        style = f"round,pad=0,rounding_size={corners}"
        axes.add_patch(
            FancyBboxPatch(
                (across - wide / 2, up - high / 2), wide, high, style, facecolor="white",
                edgecolor=mark if node is shown.now else INK,
                linewidth=2.0 if node is shown.now else 0.8, zorder=2,
            )
        )  # fmt: skip
        colours = zip((1, 0, -1), shown.lines(node), (INK, OURS, CONTRAST), strict=True)
        for line, text, ink in colours:
            bold = "bold" if line == 1 else "normal"
            axes.text(
                across, up + line * LINE, text, color=ink, fontsize=FONT, fontweight=bold,
                ha="center", va="center", zorder=3,
            )  # fmt: skip
