"""Values of a continuous state, over two of its variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torch import Tensor

from everynet.plot.style import CYCLE, INK, MAGNITUDE, array, colour, figure


class Axis(NamedTuple):
    """A variable of the state and the range that is drawn."""

    name: str
    low: float
    high: float

    def points(self, count: int = 101) -> Float[Tensor, " count"]:
        """Values at equal distances."""
        return torch.linspace(self.low, self.high, count)


def value_map(
    q: Float[Tensor, "up across actions"],
    axes: tuple[Axis, Axis],
    path: Float[Tensor, "states 2"],
    *,
    actions: Sequence[str],
) -> Figure:
    """The value of the best action (left), that action (right), and the states of a game."""
    across, up = axes
    extent = (across.low, across.high, up.low, up.high)
    drawn = figure(6.4, 3.1, 1, 2)
    best, action = q.max(2)
    colours = ListedColormap(CYCLE[: len(actions)])
    image = drawn.axes[0].imshow(
        array(best), extent=extent, origin="lower", aspect="auto", cmap=MAGNITUDE
    )
    drawn.axes[1].imshow(
        array(action), extent=extent, origin="lower", aspect="auto", cmap=colours, vmin=-0.5,
        vmax=len(actions) - 0.5, interpolation="nearest", alpha=0.45,
    )  # fmt: skip
    drawn.colorbar(image, ax=drawn.axes[0], pad=0.02, label="value of the best action")
    for panel, ink in zip(drawn.axes, ("white", INK), strict=False):
        panel.plot(*array(path).T, color=ink, linewidth=0.9)
        panel.plot(*array(path[0]), "o", color=ink, ms=4)
        panel.set(xlim=(across.low, across.high), ylim=(up.low, up.high))
        panel.set(xlabel=across.name, ylabel=up.name)
    drawn.axes[0].set_title("value")
    drawn.axes[1].set_title("best action")
    names = [Patch(color=colour(i), alpha=0.45, label=name) for i, name in enumerate(actions)]
    drawn.legend(
        handles=names, loc="outside lower right", ncols=len(actions), frameon=False,
        fontsize="small",
    )  # fmt: skip
    return drawn
