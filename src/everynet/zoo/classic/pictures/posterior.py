"""What a posterior says: lines drawn from it, and the intervals of its predictions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import FAINT, INK, OURS, WRONG, array, colour, figure, grid

Step = tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor]]
"""Rows and targets so far, lines that were drawn (places x lines), and the ends of the interval."""


def lines(at: Float[Tensor, " places"], steps: Sequence[Step], xlabel: str) -> Figure:
    """A panel for each number of rows: the rows, the lines and the interval of a new target."""
    columns = 2 if len(steps) > 1 else 1
    rows = -(-len(steps) // columns)
    made = figure(3.25 * columns, 2.2 * rows + 0.2, rows, columns, count=len(steps))
    targets = torch.cat([y for _, y, _, _ in steps])
    low, high = float(targets.min()), float(targets.max())
    margin = 0.35 * (high - low)
    for axes, (x, y, drawn, (below, above)) in zip(made.axes, steps, strict=True):
        axes.fill_between(array(at), array(below), array(above), color=FAINT, alpha=0.5, lw=0)
        axes.plot(array(at), array(drawn), color=OURS, linewidth=0.7, alpha=0.6)
        axes.plot(array(x), array(y), "o", color=INK, ms=3, alpha=0.6, mew=0)
        axes.set_title(f"{len(x):,} rows", color=INK)
        axes.set_ylim(low - margin, high + margin)
        grid(axes)
    made.supxlabel(xlabel, fontsize="medium")
    made.supylabel("target", fontsize="medium")
    return made


def intervals(
    mean: Float[Tensor, " samples"],
    reach: Float[Tensor, " samples"],
    y: Float[Tensor, " samples"],
    levels: Float[Tensor, " levels"],
    shares: Float[Tensor, " levels"],
) -> Figure:
    """Targets on their intervals, by the prediction, and how many are inside at each level."""
    made = figure(6.5, 2.9, 1, 2)
    left, right = made.axes
    order = mean.argsort()[:: max(1, len(mean) // 60)]
    mean, reach, y = mean[order], reach[order], y[order]
    place = torch.arange(len(mean))
    left.vlines(array(place), array(mean - reach), array(mean + reach), color=FAINT, linewidth=2.5)
    left.plot(array(place), array(mean), "_", color=INK, ms=5, label="prediction")
    inside = (y - mean).abs() <= reach
    for kept, shade, name in ((inside, OURS, "target inside"), (~inside, WRONG, "target outside")):
        left.plot(array(place[kept]), array(y[kept]), "o", color=shade, ms=3.5, label=name)
    left.set_xlabel("sample, by prediction")
    left.set_ylabel("target")
    room = 0.3 * float((mean + reach).max() - (mean - reach).min())
    left.set_ylim(top=float((mean + reach).max()) + room)
    left.legend(frameon=False, fontsize="small", loc="upper left")
    right.plot([0, 1], [0, 1], "--", color=INK, linewidth=1, label="equal")
    right.plot(array(levels), array(shares), "o-", color=colour(0), ms=3.5, label="targets inside")
    right.set_xlabel("level of the interval")
    right.set_ylabel("share of targets inside")
    right.set_aspect("equal")
    right.legend(frameon=False, fontsize="small")
    grid(right)
    return made
