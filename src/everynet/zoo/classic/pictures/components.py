"""Where codes of samples lie in the plane."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import array, colour, figure

DOTS, NAMED = 2000, 20


def code_plane(
    codes: Float[Tensor, "rows 2"], y: Int[Tensor, " rows"], classes: Sequence[str]
) -> Figure:
    """The first two numbers of each code as a dot in the colour of its class."""
    made = figure(4.8, 3.7)
    axes = made.axes[0]
    codes, y = codes[:DOTS], y[:DOTS]
    for number, name in enumerate(classes[:NAMED]):
        its = array(codes[y == number])
        axes.plot(its[:, 0], its[:, 1], ".", ms=5, mew=0, color=colour(number), label=name)
    axes.set(xlabel="first component", ylabel="second component")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize="small")
    return made
