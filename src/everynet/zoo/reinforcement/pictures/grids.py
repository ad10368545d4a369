"""Values and actions in the cells of a map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import FAINT, INK, LEAST, SIGNED, WIDTH, array, bare, figure, symmetric
from everynet.zoo.reinforcement.environments import GridWorld


def value_grids(
    world: GridWorld,
    values: Mapping[str, Float[Tensor, " cells"]],
    policies: Sequence[Int[Tensor, " cells"]],
    *,
    columns: int = 0,
) -> Figure:
    """A map for each of the values: colours for them, arrows for actions, letters elsewhere."""
    height, width = len(world.rows), len(world.rows[0])
    columns = columns or min(len(values), max(1, 24 // width))
    rows = -(-len(values) // columns)
    side = min(0.34, (WIDTH - 0.9) / columns / width)
    drawn = figure(
        max(2.6, columns * (side * width + 0.15) + 0.9), rows * (side * height + 0.5) + 0.1, rows,
        columns, count=len(values),
    )  # fmt: skip
    low, high = symmetric(max(values.values(), key=lambda v: float(v[world.open].abs().max())))
    for axes, (title, v), policy in zip(drawn.axes, values.items(), policies, strict=False):
        inside = np.ma.masked_array(array(v), ~world.open.numpy()).reshape(height, width)
        image = axes.imshow(inside, cmap=SIGNED, vmin=low, vmax=high)
        axes.set_facecolor(FAINT)
        for cell, letter in enumerate(world.cells):
            sign = world.arrows[int(policy[cell])] if world.open[cell] else letter.strip("#")
            dark = bool(world.open[cell]) and abs(float(v[cell])) > 0.6 * high
            axes.text(
                cell % width, cell // width, sign, ha="center", va="center",
                fontsize=max(LEAST, min(10.0, 28 * side)), color="white" if dark else INK,
            )  # fmt: skip
        axes.set_title(title, fontsize="small")
        bare(axes)
    drawn.colorbar(image, ax=drawn.axes, pad=0.01, label="value", shrink=0.9)
    return drawn
