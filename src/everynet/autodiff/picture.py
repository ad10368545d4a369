"""The graph as a picture: Ops are squares, leaves are round, values and gradients on the edges."""

from __future__ import annotations

import io
from dataclasses import dataclass
from itertools import pairwise

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path

from everynet.autodiff.arraylike import Value
from everynet.autodiff.graph import Var
from everynet.autodiff.layout import Point, place
from everynet.autodiff.steps import Story, brief, is_computed

FORWARD, BACKWARD, INK, QUIET = "#0072b2", "#d55e00", "#222222", "#8a8a8a"
FONT, SIDE, MARGIN = 10.0, 28.0, 20.0  # points; one unit of the axes is one point
MOST_OPS = 250


@dataclass
class Box:
    """Something with a place: an Op, a leaf, a constant, the output, or the label of an edge."""

    kind: str
    text: str
    gradient: str = ""
    at: Point = (0.0, 0.0)

    @property
    def width(self) -> float:
        """The width of the box itself; the sum of gradients under it may be wider."""
        if self.kind == "label":
            return _length(max(self.text, f"← {self.gradient}", key=len))
        return max(SIDE, _length(self.text))

    @property
    def room(self) -> tuple[float, float]:
        return max(self.width, _length(self.gradient) if self.gradient else 0.0), self.height

    @property
    def height(self) -> float:
        under = 1.5 * FONT * bool(self.gradient and self.kind != "label")
        return (2.6 * FONT if self.kind == "label" else SIDE) + 2 * under

    @property
    def left(self) -> Point:
        return self.at[0] - self.width / 2, self.at[1]

    @property
    def right(self) -> Point:
        return self.at[0] + self.width / 2, self.at[1]


def _length(text: str) -> float:
    return 0.62 * FONT * len(text) + 10


class Drawing:
    """The boxes and edges of a graph, edges from the output back to the leaves."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.boxes: list[Box] = []
        self.edges: list[tuple[int, int]] = []
        self.known: dict[Var, int] = {}
        out = self.add(Box("leaf", story.names[story.root]))
        if is_computed(story.root):
            self.connect(story.root, out, story.gradients.get(story.root))
        for var in story.order:
            for flow in story.flows[var]:
                self.connect(flow.arg, self.known[var], flow.adds)

    def add(self, box: Box) -> int:
        self.boxes.append(box)
        return len(self.boxes) - 1

    def connect(self, arg: Value, head: int, adds: Value) -> None:
        """An edge from what gave `arg`; a Var has a label on it, a constant is its own label."""
        if not isinstance(arg, Var):
            self.edges.append((self.add(Box("constant", brief(arg))), head))
            return
        name = f"{self.story.names[arg]} = " if is_computed(arg) else ""
        label = self.add(Box("label", name + brief(arg), "" if adds is None else brief(adds)))
        if arg not in self.known:
            self.known[arg] = self.add(self.node(arg))
        self.edges += [(label, head), (self.known[arg], label)]

    def node(self, var: Var) -> Box:
        uses = sum(flow.arg is var for flows in self.story.flows.values() for flow in flows)
        total = self.story.gradients.get(var)
        added = f"Σ = {brief(total)}" if uses > 1 and total is not None else ""
        if var.creator is None:
            return Box("leaf", self.story.names[var], added)
        return Box("op", var.creator.symbol or var.creator.name, added)


class Graph(Figure):
    """The picture of a graph; a notebook shows it as SVG."""

    def _repr_svg_(self) -> str:
        text = io.StringIO()
        with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "everynet"}):
            self.savefig(text, format="svg", metadata={"Date": None})
        return text.getvalue()


def draw(y: Var, seed: Value = None) -> Graph:
    """The graph that led to y, with the gradient of y by everything in it.

    Above each edge stands the value that went forward along it, below it the gradient that came
    back. Where a Var is used more than once the gradients add: the sum stands under it.
    """
    story = Story(y, seed)
    if len(story.order) > MOST_OPS:
        raise ValueError(
            f"the graph ({len(story.order)} Ops) must have at most {MOST_OPS} to be drawn, because "
            "no one can read more; draw a part of it, or use to_dot"
        )
    drawing = Drawing(story)
    boxes = drawing.boxes
    placed = place([box.room for box in boxes], drawing.edges, gap=(16.0, 8.0))
    for box, at in zip(boxes, placed.boxes, strict=True):
        box.at = at
    left = min(box.at[0] - box.room[0] / 2 for box in boxes)
    right = max(box.at[0] + box.room[0] / 2 for box in boxes)
    low = min(box.at[1] - box.height / 2 for box in boxes)
    high = max(box.at[1] + box.height / 2 for box in boxes)
    legend = 4.0 * FONT
    width, height = max(right - left, 300.0) + 2 * MARGIN, high - low + 2 * MARGIN + legend
    figure = Graph(figsize=(width / 72, height / 72))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(left - MARGIN, left - MARGIN + width)
    axes.set_ylim(low - MARGIN - legend, high + MARGIN)
    axes.set_axis_off()
    _draw_edges(axes, drawing, placed.routes)
    for box in boxes:
        _draw_box(axes, box)
    _draw_legend(axes, left, low - MARGIN, story)
    return figure


def to_svg(y: Var, seed: Value = None) -> str:
    """The picture of `draw` as the text of an SVG file."""
    return draw(y, seed)._repr_svg_()


def _draw_edges(axes: Axes, drawing: Drawing, routes: list[list[Point]]) -> None:
    boxes, ports = drawing.boxes, _ports(drawing)
    for (tail, head), between in zip(drawing.edges, routes, strict=True):
        start, end = boxes[tail], boxes[head]
        first = start.left if start.kind == "label" else start.right
        points = [first, start.right] if start.kind == "label" else [first]
        points += [*between, end.left if end.kind == "label" else ports[tail, head]]
        ink = QUIET if start.kind == "constant" else INK
        head_style = "-" if end.kind == "label" else "-|>"
        arrow = FancyArrowPatch(
            path=_smooth(points), arrowstyle=head_style, mutation_scale=9, shrinkA=0, shrinkB=0,
            linewidth=1.0, color=ink, zorder=1,
        )  # fmt: skip
        axes.add_patch(arrow)


def _ports(drawing: Drawing) -> dict[tuple[int, int], Point]:
    """Where each edge arrives: along the left side of a box, the first argument on top."""
    arriving: dict[int, list[int]] = {}
    for tail, head in drawing.edges:
        arriving.setdefault(head, []).append(tail)
    found = {}
    for head, tails in arriving.items():
        x, y = drawing.boxes[head].left
        for i, tail in enumerate(tails):
            found[tail, head] = (x, y - (i - (len(tails) - 1) / 2) * 0.8 * SIDE / len(tails))
    return found


def _smooth(points: list[Point]) -> Path:
    """Curves that leave and arrive level."""
    vertices, codes = [points[0]], [Path.MOVETO]
    for (x0, y0), (x1, y1) in pairwise(points):
        middle = (x0 + x1) / 2
        vertices += [(middle, y0), (middle, y1), (x1, y1)]
        codes += [Path.CURVE4] * 3
    return Path(vertices, codes)


def _draw_box(axes: Axes, box: Box) -> None:
    x, y = box.at
    if box.kind == "label":
        axes.text(x, y + 2, box.text, color=FORWARD, fontsize=FONT, ha="center", va="bottom")
        if box.gradient:
            back = f"← {box.gradient}"
            axes.text(x, y - 2, back, color=BACKWARD, fontsize=FONT, ha="center", va="top")
        return
    rounding = 4 if box.kind == "op" else SIDE / 2
    style = f"round,pad=0,rounding_size={rounding}"
    look = {"op": ("#f2f2f2", INK), "leaf": ("white", INK), "constant": ("white", "white")}
    face, edge = look[box.kind]
    corner = (x - box.width / 2, y - SIDE / 2)
    axes.add_patch(
        FancyBboxPatch(corner, box.width, SIDE, style, facecolor=face, edgecolor=edge, zorder=2)
    )
    colour = QUIET if box.kind == "constant" else INK
    axes.text(x, y, box.text, color=colour, fontsize=FONT, ha="center", va="center", zorder=3)
    if box.gradient:
        under = y - SIDE / 2 - 2
        axes.text(x, under, box.gradient, color=BACKWARD, fontsize=FONT, ha="center", va="top")


def _draw_legend(axes: Axes, x: float, y: float, story: Story) -> None:
    axes.text(x, y, "→ value", color=FORWARD, fontsize=FONT, va="top")
    if story.gradients:
        of = f"← gradient of {story.names[story.root]}; where paths meet they add (Σ)"
        axes.text(x + 6 * FONT, y, of, color=BACKWARD, fontsize=FONT, va="top")
    if any(var.size > 4 for var in story.names):
        note = "2x3 |1.5| is an array and its length"
        axes.text(x, y - 1.6 * FONT, note, color=QUIET, fontsize=FONT, va="top")
