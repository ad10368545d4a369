"""Accuracies of networks that differ in one setting each, a group for each setting."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import INK, WIDTH, array, colour, figure, grid


def accuracies_by_change(found: Mapping[str, Float[Tensor, " seeds"]]) -> Figure:
    """A row for each network, the base first: a dot for each seed and a line at the mean.

    Names that begin alike, up to "=", are a group in one colour; those that diverged say so.
    """
    groups = [name.partition("=")[0] for name in found]
    order = [*dict.fromkeys(groups)]
    drawn = figure(WIDTH, 0.7 + 0.22 * len(found))
    (axes,) = drawn.axes
    base = next(iter(found.values()))
    axes.axvline(float(base.nanmean()), color=INK, linewidth=1.1, linestyle=":")
    for row, (group, values) in enumerate(zip(groups, found.values(), strict=True)):
        ink = INK if row == 0 else colour(order.index(group) - 1)
        known = values[values.isfinite()]
        axes.plot(array(known), [row] * len(known), "o", ms=4.5, mec="white", mew=0.5, color=ink)
        if len(known):
            mean = float(known.mean())
            axes.plot([mean, mean], [row - 0.33, row + 0.33], color=ink, linewidth=2)
        if len(known) < len(values):
            text = f"{len(values) - len(known)} diverged"
            place = float(torch.cat([v for v in found.values()]).nanmean())
            axes.annotate(text, (place, row), fontsize="small", color=ink, va="center")
    axes.set_yticks(range(len(found)), [name.replace("_", " ") for name in found])
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.set_xlabel("accuracy on the test images")
    grid(axes)
    return drawn
