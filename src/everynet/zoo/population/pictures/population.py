"""Populations of neurons: what each of them responds to."""

from __future__ import annotations

from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import INK, MAGNITUDE, array, colour, figure, grid


def tuning_curves(
    x: Float[Tensor, " points"],
    rates: Float[Tensor, "points neurons"],
    *,
    upwards: Float[Tensor, " neurons"],
    title: str = "",
) -> Figure:
    """The rate of each neuron along a line; its colour is whether it fires more for larger x."""
    made = figure(6.2, 3.8)
    axes = made.axes[0]
    for curve, sign in zip(rates.T, upwards.tolist(), strict=True):
        ink = colour(0 if sign > 0 else 1)
        axes.plot(array(x), array(curve), color=ink, linewidth=1.2, alpha=0.8)
    for number, name in enumerate(("encoder +1", "encoder -1")):
        axes.plot([], [], color=colour(number), linewidth=1.6, label=name)
    axes.set_xlabel("represented value x")
    axes.set_ylabel("firing rate (Hz)")
    axes.set_ylim(bottom=0)
    axes.set_title(title, color=INK, fontsize="medium")
    axes.legend(frameon=False, fontsize="small", loc="upper center")
    grid(axes)
    return made


def tuning_planes(
    side: Float[Tensor, " points"],
    rates: Float[Tensor, "neurons points points"],
    encoders: Float[Tensor, "neurons 2"],
) -> Figure:
    """The rate of each neuron over a plane, x_1 across and x_2 up, with its encoder as an arrow."""
    made = figure(2.0 * len(rates) + 0.9, 2.2, 1, len(rates))
    top = float(rates.max())
    span = (float(side[0]), float(side[-1]), float(side[0]), float(side[-1]))
    for axes, plane, (e1, e2) in zip(made.axes, rates, encoders.tolist(), strict=True):
        image = axes.imshow(
            array(plane), origin="lower", extent=span, cmap=MAGNITUDE, vmin=0, vmax=top
        )
        arrow = {"arrowstyle": "-|>", "color": "white", "linewidth": 1.6}
        axes.annotate("", (0.8 * span[1] * e1, 0.8 * span[1] * e2), (0, 0), arrowprops=arrow)
        axes.set_xlabel("$x_1$")
        axes.set_xticks([span[0], 0, span[1]])
        axes.set_yticks([span[0], 0, span[1]])
    made.axes[0].set_ylabel("$x_2$")
    bar = made.colorbar(image, ax=made.axes, shrink=0.85, pad=0.02)
    bar.set_label("firing rate (Hz)")
    return made
