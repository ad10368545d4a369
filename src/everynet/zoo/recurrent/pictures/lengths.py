"""How long drawn sequences are, beside how long they should be."""

from __future__ import annotations

from collections.abc import Mapping

from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import INK, array, colour, figure, grid

WIDE = 6.5  # inches of a page
Shares = Float[Tensor, " lengths"]


def length_bars(given: Mapping[str, tuple[Shares, Shares]]) -> Figure:
    """For each name the exact probability and the share of every length from 0 on.

    The last of them stands for all that is longer.
    """
    made = figure(WIDE, 2.6, 1, len(given))
    for number, (axes, (name, (exact, often))) in enumerate(
        zip(made.axes, given.items(), strict=True)
    ):
        places = range(len(exact))
        axes.bar(places, array(often), color=colour(number), alpha=0.5, width=0.8, label="drawn")
        axes.plot(places, array(exact), "o", color=INK, ms=4, label="exact")
        labels = [*map(str, places[:-1]), f">{len(exact) - 2}"]
        axes.set_xticks([*places], labels)
        axes.tick_params(labelsize=7)
        axes.set_title(name, color=INK, fontsize="medium")
        axes.set_xlabel("symbols")
        axes.set_ylim(0, 1.4 * max(float(exact.max()), float(often.max())))
        grid(axes)
    made.axes[0].set_ylabel("probability")
    made.axes[0].legend(frameon=False, fontsize="small", loc="upper left", ncols=2, handlelength=1)
    return made
