"""Matrices as pictures: a heat map of any values, and the confusion matrix of a classifier."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int, Real
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from torch import Tensor

from everynet.plot.style import INK, LEAST, MAGNITUDE, SIGNED, WIDTH, array, figure, symmetric

_WRITTEN = 11  # classes up to which every cell has room for its numbers
_READABLE = 20  # and up to which each is named


def heatmap(
    values: Real[Tensor, "rows columns"],
    *,
    xlabel: str,
    ylabel: str,
    title: str = "",
    unit: str = "",
    signed: bool | None = None,
    down: Sequence[str] = (),
    across: Sequence[str] = (),
) -> Figure:
    """The values by colour; `signed` puts zero at white, and is true where any value is below 0.

    Rows are named `down` and columns `across`, and numbered where there are no names.
    """
    values = values.detach().double().cpu()
    if signed is None:
        signed = bool((values < 0).any())
    rows, columns = values.shape
    width = min(WIDTH, max(3.6, 1.8 + 3.4 * columns / max(rows, 1)))
    drawn = figure(width, min(7.0, max(2.6, 3.4 * rows / max(columns, 1) + 0.8)))
    axes = drawn.axes[0]
    low, high = symmetric(values) if signed else (float(values.min()), float(values.max()))
    image = axes.imshow(
        array(values), cmap=SIGNED if signed else MAGNITUDE, vmin=low, vmax=high, aspect="auto",
        interpolation="nearest",
    )  # fmt: skip
    axes.set(xlabel=xlabel, ylabel=ylabel, title=title)
    for axis, names in ((axes.xaxis, across), (axes.yaxis, down)):
        if names:
            _name_ticks(axes, axis, names)
        else:
            axis.set_major_locator(MaxNLocator(8, integer=True))
    drawn.colorbar(image, label=unit, shrink=0.9)
    return drawn


def confusion_matrix(
    counts: Int[Tensor, "classes classes"],
    classes: Sequence[str] = (),
    *,
    split: str = "validation",
) -> Figure:
    """True classes of a split down, predicted ones across: counts, and their share of a true class.

    What is right is blue. What is wrong is red on a scale of its own, up to the worst cell,
    so that few mistakes can be seen beside many right answers.
    """
    counts = counts.detach().cpu()
    shares = counts.double() / counts.sum(1, keepdim=True).clamp(min=1)
    right = torch.eye(len(counts), dtype=torch.bool)
    worst = float(shares[~right].max()) if len(counts) > 1 else 0.0
    side = min(2.0 + 0.4 * len(counts), 5.1)
    drawn = figure(side + 1.4, side)
    axes = drawn.axes[0]
    for where, cmap, most, label in (
        (~right, "Reds", worst or 1.0, "wrong"),
        (right, "Blues", 1.0, "right"),
    ):
        cells = np.ma.masked_array(array(shares), (~where | (counts == 0)).numpy())
        image = axes.imshow(cells, cmap=cmap, vmin=0, vmax=most)
        if cells.count() == 0:
            continue  # nothing is wrong, and no colour needs a scale
        bar = drawn.colorbar(image, label=label, shrink=0.8, format=PercentFormatter(1), pad=0.02)
        bar.ax.tick_params(labelsize="small")
    axes.set(xlabel="predicted class", ylabel="true class")
    for axis in (axes.xaxis, axes.yaxis):
        _name_ticks(axes, axis, classes or [str(i) for i in range(len(counts))])
    for spine in axes.spines.values():
        spine.set_visible(False)
    if len(counts) <= _WRITTEN:
        _write_cells(axes, counts, shares, worst)
    hits, samples = int(counts.trace()), int(counts.sum())
    share = hits / max(samples, 1)
    axes.set_title(
        f"{split}: {hits:,} of {samples:,} right ({share:.1%})", color=INK, fontsize="medium"
    )
    return drawn


def _name_ticks(axes: Axes, axis: Axis, names: Sequence[str]) -> None:
    """Name each row or column; long names across are turned, every k-th stands where crowded."""
    ticks = list(range(0, len(names), -(-len(names) // _READABLE)))
    axis.set_ticks(ticks, [str(names[tick]) for tick in ticks])
    axis.set_tick_params(length=0)
    if axis is axes.xaxis and max(len(str(names[tick])) for tick in ticks) > 3:
        for label in axis.get_ticklabels():
            label.set(rotation=40, ha="right", rotation_mode="anchor")


def _write_cells(
    axes: Axes,
    counts: Int[Tensor, "classes classes"],
    shares: Float[Tensor, "classes classes"],
    worst: float,
) -> None:
    """The count in every cell that is not empty, and its share beneath."""
    for row, column in counts.nonzero().tolist():
        share = float(shares[row, column])
        dark = share > 0.6 * (1.0 if row == column else worst)
        digits = 0 if share >= 0.0995 else 1
        text = f"{int(counts[row, column]):,}\n{share:.{digits}%}"
        ink = "white" if dark else INK
        axes.text(column, row, text, color=ink, ha="center", va="center", fontsize=LEAST)
