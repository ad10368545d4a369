"""One gated cell between the one before and the one after it, with its gates and all shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import dist

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch, Rectangle

from everynet.plot.style import CYCLE, FAINT, INK, bare

WIDTH = 6.5  # inches
SMALL = 7  # points
GATE, NEW, LINE = CYCLE[0], CYCLE[1], CYCLE[2]

Place = tuple[float, float]


@dataclass(frozen=True)
class _Box:
    """A layer: a gate, or the candidate."""

    at: Place
    name: str
    squash: str
    ink: str = GATE


@dataclass(frozen=True)
class _Cell:
    """What is drawn, in units of which a picture is 13 across."""

    boxes: tuple[_Box, ...]
    joints: tuple[tuple[Place, str], ...]
    """Where two ways meet, and the sign of what is done there."""
    ways: tuple[tuple[Place, ...], ...]
    """Thin arrows, corner by corner."""
    carried: tuple[tuple[Place, ...], ...]
    """The state on its way through time, thick."""
    words: tuple[tuple[Place, str, str], ...]
    """Where, what, and on which side of that place it stands."""


_TIMES, _PLUS = r"$\times$", "+"
_LSTM = _Cell(
    boxes=(
        _Box((3.9, 1.9), "f", r"$\sigma$"),
        _Box((5.1, 1.9), "i", r"$\sigma$"),
        _Box((6.3, 1.9), "g", "tanh", NEW),
        _Box((7.5, 1.9), "o", r"$\sigma$"),
    ),
    joints=(
        ((3.9, 4.3), _TIMES),
        ((5.7, 4.3), _PLUS),
        ((5.7, 3.1), _TIMES),
        ((8.7, 2.9), _TIMES),
    ),
    ways=(
        ((3.9, 2.25), (3.9, 4.1)),
        ((5.1, 2.25), (5.1, 3.1), (5.5, 3.1)),
        ((6.3, 2.25), (6.3, 3.1), (5.9, 3.1)),
        ((5.7, 3.3), (5.7, 4.1)),
        ((7.5, 2.25), (7.5, 2.9), (8.5, 2.9)),
        ((8.7, 4.3), (8.7, 3.1)),
        *(((x, 0.9), (x, 1.55)) for x in (3.9, 5.1, 6.3)),
        ((4.5, -0.35), (4.5, 0.9)),
        ((8.7, 2.7), (8.7, 0.9)),
        ((9.6, 0.9), (9.6, 4.95)),
    ),
    carried=(
        ((1.6, 4.3), (3.7, 4.3)),
        ((4.1, 4.3), (5.5, 4.3)),
        ((5.9, 4.3), (11.4, 4.3)),
        ((1.6, 0.9), (7.5, 0.9), (7.5, 1.55)),
        ((8.7, 0.9), (11.4, 0.9)),
    ),
    words=(
        ((1.9, 4.45), "$c_{t-1}$", "above"),
        ((10.6, 4.45), "$c_t$", "above"),
        ((1.9, 1.0), "$h_{t-1}$", "above"),
        ((10.6, 1.0), "$h_t$", "above"),
        ((8.85, 3.75), "tanh", "right"),
    ),
)
_GRU = _Cell(
    boxes=(
        _Box((4.2, 1.9), "r", r"$\sigma$"),
        _Box((5.6, 1.9), "u", r"$\sigma$"),
        _Box((7.6, 1.9), "n", "tanh", NEW),
    ),
    joints=(
        ((4.2, 3.05), _TIMES),
        ((5.6, 4.3), _TIMES),
        ((7.6, 3.5), _TIMES),
        ((7.6, 4.3), _PLUS),
    ),
    ways=(
        ((4.2, 2.25), (4.2, 2.85)),
        ((4.2, 4.3), (4.2, 3.25)),
        ((4.4, 3.05), (6.7, 3.05), (6.7, 1.2), (7.4, 1.2), (7.4, 1.55)),
        ((5.6, 2.25), (5.6, 4.1)),
        ((5.6, 3.5), (7.4, 3.5)),
        ((7.6, 2.25), (7.6, 3.3)),
        ((7.6, 3.7), (7.6, 4.1)),
        ((3.2, 4.3), (3.2, 0.9), (4.2, 0.9), (4.2, 1.55)),
        ((4.2, 0.9), (5.6, 0.9), (5.6, 1.55)),
        ((4.9, -0.35), (4.9, 0.9)),
        ((4.9, 0.3), (7.9, 0.3), (7.9, 1.55)),
        ((9.8, 4.3), (9.8, 4.95)),
    ),
    carried=(
        ((1.6, 4.3), (5.4, 4.3)),
        ((5.8, 4.3), (7.4, 4.3)),
        ((7.8, 4.3), (11.4, 4.3)),
    ),
    words=(
        ((1.9, 4.45), "$h_{t-1}$", "above"),
        ((10.7, 4.45), "$h_t$", "above"),
        ((4.95, 3.1), r"$r * h_{t-1}$", "above"),
        ((5.7, 3.85), "$1 - u$", "right"),
        ((6.6, 3.52), "$u$", "above"),
        ((7.75, 3.88), "$u * n$", "right"),
        ((6.6, 4.38), "$(1 - u) * h_{t-1}$", "above"),
    ),
)


def lstm_cell(input_size: int, hidden_size: int) -> Figure:
    """The memory runs along the top; each gate is a product with x_t and h_{t-1}."""
    return _drawn(_LSTM, input_size, hidden_size, "c", 4)


def gru_cell(input_size: int, hidden_size: int) -> Figure:
    """The state along the top is h_t = u * n + (1 - u) * h_{t-1}: two products and their sum."""
    return _drawn(_GRU, input_size, hidden_size, "", 3)


def _drawn(cell: _Cell, input_size: int, hidden_size: int, memory: str, blocks: int) -> Figure:
    made = Figure(figsize=(WIDTH, 3.5), layout="constrained")
    axes = made.add_subplot()
    bare(axes)
    axes.set(xlim=(0, 13), ylim=(-1.3, 5.7), aspect="equal")
    for left, name in ((0.1, "t - 1"), (11.4, "t + 1")):
        axes.add_patch(Rectangle((left, 0.2), 1.5, 4.6, facecolor=FAINT, alpha=0.45, lw=0))
        axes.text(left + 0.75, 2.5, f"cell\n${name}$", ha="center", va="center", fontsize=SMALL)
    axes.add_patch(
        FancyBboxPatch(
            (2.6, 0.1),
            7.8,
            4.75,
            boxstyle="round,pad=0.05",
            facecolor="none",
            edgecolor=INK,
            lw=0.8,
        )
    )
    for way in cell.carried:
        _arrow(axes, way, LINE, 2.2)
    for way in cell.ways:
        _arrow(axes, way, INK, 0.9)
    for x, y in _branches(cell):
        axes.add_patch(Circle((x, y), 0.08, facecolor=INK, lw=0, zorder=3))
    for box in cell.boxes:
        x, y = box.at
        axes.add_patch(Rectangle((x - 0.5, y - 0.35), 1, 0.7, facecolor=box.ink, zorder=3))
        axes.text(
            x, y, f"${box.name}$  {box.squash}", ha="center", va="center", fontsize=SMALL,
            color="white", zorder=4,
        )  # fmt: skip
    for (x, y), sign in cell.joints:
        axes.add_patch(Circle((x, y), 0.2, facecolor="white", edgecolor=INK, lw=0.9, zorder=3))
        axes.text(x, y, sign, ha="center", va="center", fontsize=SMALL + 1, zorder=4)
    for (x, y), text, side in cell.words:
        va = "bottom" if side == "above" else "center"
        axes.text(x, y, text, ha="left" if side == "right" else "center", va=va, fontsize=SMALL + 1)
    x, top = cell.ways[-1][-1]
    axes.text(x, top, f"$y_t = h_t$: batch \N{MULTIPLICATION SIGN} {hidden_size}", ha="center",
              va="bottom", fontsize=SMALL)  # fmt: skip
    entrance = next(way[0][0] for way in cell.ways if way[0][1] < 0)
    axes.text(entrance, -0.4, f"$x_t$: batch \N{MULTIPLICATION SIGN} {input_size}", ha="center",
              va="top", fontsize=SMALL)  # fmt: skip
    times = "\N{MULTIPLICATION SIGN}"
    state = f"state: {2 * hidden_size} numbers, $h$ and $c$" if memory else f"state: {hidden_size}"
    wide = blocks * hidden_size
    weights = wide * (input_size + hidden_size + 1)
    axes.text(
        6.5, -1.25,
        f"all {blocks} boxes: weights {wide} {times} {input_size} of $x_t$, {wide} {times} "
        f"{hidden_size} of $h_{{t-1}}$, {wide} biases = {weights:,} numbers; {state}",
        ha="center", va="bottom", fontsize=SMALL,
    )  # fmt: skip
    return made


def _branches(cell: _Cell) -> list[Place]:
    """Where a way begins on another one; lines that cross without a dot do not meet."""
    sources = [box.at for box in cell.boxes] + [at for at, _ in cell.joints]
    starts = {way[0] for way in cell.ways if way[0][1] > 0}
    return [at for at in starts if all(dist(at, source) > 0.5 for source in sources)]


def _arrow(axes: Axes, corners: Sequence[Place], ink: str, width: float) -> None:
    """A line through all corners, with a head at the last."""
    x, y = zip(*corners[:-1], corners[-1], strict=True)
    axes.plot(x[:-1] if len(x) > 2 else x[:1], y[:-1] if len(y) > 2 else y[:1], color=ink, lw=width,
              solid_capstyle="butt", zorder=2)  # fmt: skip
    axes.annotate(
        "", corners[-1], corners[-2], zorder=2,
        arrowprops={"arrowstyle": "-|>", "color": ink, "lw": width, "shrinkA": 0, "shrinkB": 0,
                    "mutation_scale": 6 + 2 * width},
    )  # fmt: skip
