"""What a network learned from a few candidates a step: its scores beside what is true."""

from __future__ import annotations

from collections.abc import Mapping

from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, stack

from everynet.plot.style import INK, MAGNITUDE, array, figure, grid


def score_planes(
    truth: Float[Tensor, " points"],
    learned: Mapping[str, Float[Tensor, " points"]],
    commonness: Float[Tensor, " points"],
    *,
    ylabels: Mapping[str, str],
) -> Figure:
    """Learned scores against true log-probabilities, one plane for each way of learning.

    The line is where they are equal; colours say how common a word is among the candidates.
    """
    made = figure(6.5, 2.9, 1, len(learned))
    low, high = float(truth.min()), float(truth.max())
    both = stack([truth, *learned.values()])
    room = 0.05 * float(both.max() - both.min())
    for number, (axes, (name, scores)) in enumerate(zip(made.axes, learned.items(), strict=True)):
        axes.plot([low, high], [low, high], color=INK, linewidth=0.9, label="equal")
        points = axes.scatter(
            array(truth), array(scores), c=array(commonness), cmap=MAGNITUDE, s=3, linewidths=0
        )
        axes.set_xlabel(r"true $\log P$, centred (nats)", fontsize=8)
        axes.set_ylabel(ylabels[name], fontsize=8)
        axes.set_title(name, color=INK, fontsize=8)
        axes.tick_params(labelsize=7)
        axes.set_ylim(float(both.min()) - room, float(both.max()) + room)
        grid(axes)
        if number == 0:
            axes.legend(frameon=False, fontsize=7, loc="upper left")
    bar = made.colorbar(points, ax=made.axes, pad=0.02, aspect=30)
    bar.set_label(r"expected count, $\log\,\pi_y$", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    return made
