"""A network as boxes from left to right, and how much of the image a unit of each layer sees.

It is drawn from the table of layers (`everynet.nn.layers.layer_table`). A box is as high as its
maps are (square root) and as wide as it has many (logarithm); a vector is a thin bar. Norms and
activations belong to the layer before them. A long network is folded until it can be read:
layers of the same kind and shape become one box, then all those of one map size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import pairwise
from typing import Protocol, runtime_checkable

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from everynet.plot.style import CYCLE, FAINT, INK, bare, dress

WIDE = 6.5  # inches of a page
SMALL = 7  # points
PLACES = 12.7  # labelled boxes that can stand side by side; one without words takes THIN of that
THIN = 0.3


@runtime_checkable
class Row(Protocol):
    """What a diagram wants to know of a layer."""

    @property
    def kind(self) -> str:
        """Its class."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the output for one sample."""
        ...

    @property
    def parameters(self) -> int:
        """Its own."""
        ...

    @property
    def receptive_field(self) -> tuple[int, ...] | None:
        """Pixels that one output sees, by axis."""
        ...

    @property
    def kernel(self) -> tuple[int, ...] | None:
        """Pixels of the window that slides over its input."""
        ...


SORTS = {
    "input": FAINT,
    "convolution": CYCLE[0],
    "pool": CYCLE[2],
    "upsampling": CYCLE[3],
    "dense": CYCLE[1],
    "other": CYCLE[9],
}
"""What a box is, and its colour."""
SHORT = {"convolution": "conv", "upsampling": "up"}


@dataclass(frozen=True)
class Box:
    """One layer, or several that were folded."""

    sort: str
    shape: tuple[int, ...]
    parameters: int = 0
    sees: int = 0
    """Along the longer axis; 0 where it is not known."""
    kernels: tuple[tuple[int, ...], ...] = ()
    count: int = 1

    @property
    def sides(self) -> tuple[int, ...]:
        """Of its maps; none where it is a vector."""
        return self.shape[1:]

    def joined(self, other: Box) -> Box:
        """Both as one box, with the larger number of maps, of the size they have in the end."""
        named = [box for box in (self, other) if not _is_thin(box)] or [self, other]
        return Box(
            named[0].sort,
            (max(self.shape[0], other.shape[0]), *other.sides),
            self.parameters + other.parameters,
            max(self.sees, other.sees),
            tuple(dict.fromkeys(kernel for box in named for kernel in box.kernels)),
            sum(box.count for box in named),
        )


def network(rows: Sequence[Row], shape: Sequence[int], *, title: str = "") -> Figure:
    """Boxes with their shapes and parameters, and below each how many pixels a unit sees.

    `shape` is that of one input.
    """
    boxes = _folded([Box("input", tuple(shape), sees=1), *_boxes(rows)])
    known = max(shape[1:], default=0) > 1 and any(box.sees > 1 for box in boxes)
    made = Figure(figsize=(WIDE, 4.1 if known else 2.9), layout="constrained")
    spec = made.add_gridspec(2 if known else 1, height_ratios=[2.6, 1.2] if known else [1])
    upper = made.add_subplot(spec[0])
    places = _places(boxes)
    _draw_boxes(upper, boxes, places)
    total = sum(box.parameters for box in boxes)
    upper.set_title(
        (f"{title}: " if title else "") + f"{total:,} parameters", color=INK, fontsize="medium"
    )
    if known:
        lower = made.add_subplot(spec[1], sharex=upper)
        _draw_fields(lower, boxes, places, max(shape[1:]))
    return made


# ----------------------------------------------------------------------------------------- boxes


def _sort(row: Row) -> str:
    if "Transpose" in row.kind or "Upsample" in row.kind:
        return "upsampling"
    if "Pool" in row.kind:
        return "pool"
    if "Conv" in row.kind:
        return "convolution"
    return "dense" if len(row.shape) == 1 and row.parameters else "other"


def _boxes(rows: Sequence[Row]) -> Iterator[Box]:
    """One box a layer; norms, activations and what only renames places join the one before."""
    last: Box | None = None
    for row in rows:
        if last is not None and _follows(row, last):
            last = replace(last, parameters=last.parameters + row.parameters)
            continue
        if last is not None:
            yield last
        kernels = () if row.kernel is None else (row.kernel,)
        last = Box(_sort(row), row.shape, row.parameters, max(row.receptive_field or (0,)), kernels)
    if last is not None:
        yield last


def _follows(row: Row, last: Box) -> bool:
    if _sort(row) == "pool" or "Norm" in row.kind:
        return row.shape == last.shape and (last.sort == "pool" or "Norm" in row.kind)
    return _sort(row) == "other" and math.prod(row.shape) == math.prod(last.shape)


def _folded(boxes: Sequence[Box]) -> list[Box]:
    """As few boxes as a page has room for: by kind and shape, then by the size of the maps."""
    folds: tuple[Callable[[Box, Box], bool], ...] = (
        lambda first, box: False,
        lambda first, box: (first.sort, first.shape) == (box.sort, box.shape),
        lambda first, box: not _is_thin(first) and not _is_thin(box) and _near(first, box, 4 / 3),
        *(partial(_near, ratio=ratio) for ratio in (4 / 3, 2.2, 5, 20)),
    )
    found: list[Box] = []
    for fold in folds:
        groups: list[list[Box]] = []
        for box in boxes:
            if groups and fold(groups[-1][0], box):
                groups[-1].append(box)
            else:
                groups.append([box])
        found = [reduce(Box.joined, group) for group in groups]
        if sum(map(_room, found)) <= PLACES:
            break
    return found


def _near(first: Box, box: Box, ratio: float) -> bool:
    """Whether both are maps of nearly one size, or both vectors."""
    if _is_input(first) or len(first.shape) != len(box.shape):
        return False
    pairs = zip(first.sides, box.sides, strict=True)
    return all(max(a, b) <= ratio * min(a, b) for a, b in pairs)


def _is_input(box: Box) -> bool:
    return box.sort == "input"


def _is_thin(box: Box) -> bool:
    return box.sort in ("pool", "upsampling")


def _room(box: Box) -> float:
    return THIN if _is_thin(box) else 1.15 if _is_input(box) else 1.0


def _places(boxes: Sequence[Box]) -> list[float]:
    """Where the middle of each box is, in inches from the left."""
    unit = min(WIDE / sum(map(_room, boxes)), 0.95)
    start = (WIDE - unit * sum(map(_room, boxes))) / 2
    places = []
    for box in boxes:
        places.append(start + unit * _room(box) / 2)
        start += unit * _room(box)
    return places


# --------------------------------------------------------------------------------------- drawing


def _draw_boxes(axes: Axes, boxes: Sequence[Box], places: Sequence[float]) -> None:
    bare(axes)
    widest = max(box.shape[0] for box in boxes)
    highest = max((max(box.sides) for box in boxes if box.sides), default=1)
    unit = min((b - a for a, b in pairwise(places)), default=0.5)
    for box, middle in zip(boxes, places, strict=True):
        share = math.log2(box.shape[0] + 1) / math.log2(widest + 1)
        if box.sides:
            height, width = math.sqrt(max(box.sides) / highest), 0.08 + 0.3 * share
        else:
            height, width = 0.2 + 0.8 * share, 0.09
        slabs = min(box.count, 4)
        width = min(width, 0.75 * max(unit, 0.2)) if not _is_thin(box) else 0.09
        each = max((width - 0.025 * (slabs - 1)) / slabs, 0.03)
        for slab in range(slabs):
            corner = (middle - width / 2 + slab * (each + 0.025), (1 - height) / 2)
            ink = SORTS[box.sort]
            axes.add_patch(Rectangle(corner, each, height, facecolor=ink, edgecolor="none"))
        if not _is_thin(box):
            axes.text(middle, 1.06, _above(box), ha="center", va="bottom", fontsize=SMALL)
            axes.text(
                middle, -0.06, _below(box), ha="center", va="top", fontsize=SMALL, linespacing=1.25
            )
    names = "maps\npixels\nparameters"
    left = places[0] - 0.35
    axes.text(left, -0.06, names, ha="right", va="top", fontsize=SMALL, linespacing=1.25)
    axes.set_xlim(0, WIDE)
    axes.set_ylim(-0.62, 1.4)
    here = [sort for sort in SORTS if any(box.sort == sort for box in boxes)]
    handles = [Patch(facecolor=SORTS[sort], label=sort) for sort in here]
    axes.legend(
        handles=handles, loc="lower center", ncols=len(here), frameon=False, fontsize=SMALL,
        handlelength=1.0, columnspacing=1.2, bbox_to_anchor=(0.5, -0.04),
    )  # fmt: skip


def _above(box: Box) -> str:
    """How many layers of what kind, and their windows."""
    if _is_input(box):
        return "input"
    name = SHORT.get(box.sort, box.sort)
    head = f"{box.count} {name}" if box.count > 1 else name
    windows = [_times(kernel) for kernel in box.kernels]
    return head + "\n" + (" ".join(windows) if len(windows) <= 2 else "mixed")


def _below(box: Box) -> str:
    """Maps, their size, and parameters."""
    lines = [f"{box.shape[0]:,}"] if box.shape else []
    lines.append(_times(box.sides) if box.sides else "")
    lines.append(_short(box.parameters) if box.parameters else "")
    return "\n".join(lines)


def _times(sides: Sequence[int]) -> str:
    return "\N{MULTIPLICATION SIGN}".join(map(str, sides))


def _short(count: int) -> str:
    """A number in at most five characters."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            value = count / size
            return f"{value:.3g} {letter}" if value < 999.5 else f"{value:.0f} {letter}"
    return str(count)


def _draw_fields(axes: Axes, boxes: Sequence[Box], places: Sequence[float], side: int) -> None:
    dress(axes)
    for box, middle in zip(boxes, places, strict=True):
        if box.sees:
            width = 0.12 if _is_thin(box) else 0.3
            axes.bar(middle, box.sees - 0.8, width, bottom=0.8, color=SORTS[box.sort])
            if not _is_thin(box):
                axes.annotate(
                    str(box.sees), (middle, box.sees), (0, 2), textcoords="offset points",
                    ha="center", va="bottom", fontsize=SMALL,
                )  # fmt: skip
    axes.axhline(side, color=INK, linewidth=0.8, linestyle=":")
    axes.set_yscale("log")
    axes.set_ylim(0.8, 3 * max(side, *(box.sees for box in boxes)))
    axes.set_yticks([1, side], ["1", str(side)], fontsize=SMALL)
    axes.minorticks_off()
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.set_ylabel("a unit sees,\npixels (log)", fontsize=SMALL)
