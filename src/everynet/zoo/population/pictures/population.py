"""Populations of neurons: tuning curves, orbits in state space, spikes and decoded values."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import INK, MAGNITUDE, WIDTH, array, colour, dress, figure, grid, wrapped


def tuning_curves(
    x: Float[Tensor, " points"],
    rates: Float[Tensor, "points neurons"],
    *,
    upwards: Float[Tensor, " neurons"],
    title: str = "",
) -> Figure:
    """The rate of each neuron against x, coloured by the sign of its encoder."""
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


def orbits(
    ways: Mapping[str, Float[Tensor, "_times 2"]],
    *,
    names: tuple[str, str],
    guide: Float[Tensor, "times 2"] | None = None,
) -> Figure:
    """A panel for each trajectory in a plane, all on one scale.

    `guide`, the orbit of the true system, is drawn in ink over each.
    """
    columns = len(ways) if len(ways) <= 3 else 2
    rows = -(-len(ways) // columns)
    across = WIDTH / columns
    made = figure(WIDTH, 0.95 * across * rows + 0.3, rows, columns)
    low = [min(float(way[:, k].min()) for way in ways.values()) for k in range(2)]
    high = [max(float(way[:, k].max()) for way in ways.values()) for k in range(2)]
    room = [0.06 * (b - a) for a, b in zip(low, high, strict=True)]
    span = [(a - r, b + r) for a, b, r in zip(low, high, room, strict=True)]
    for axes in made.axes[len(ways) :]:
        axes.remove()
    for number, (axes, (name, way)) in enumerate(zip(made.axes, ways.items(), strict=True)):
        thin = 1.1 if guide is not None else 0.5  # an orbit that never closes fills its panel
        axes.plot(*array(way).T, color=colour(number), linewidth=thin)
        if guide is not None:
            (line,) = axes.plot(*array(guide).T, "--", color=INK, linewidth=1.1)
        axes.set_title(wrapped(name, 0.9 * across), color=INK)
        axes.set_xlabel(names[0])
        axes.set_ylabel(names[1])
        axes.set(xlim=span[0], ylim=span[1])
        axes.set_aspect("equal")
        axes.locator_params(nbins=5)
        grid(axes)
    if guide is not None:
        made.legend(
            [line], ["orbit of the true system"], loc="outside lower center",
            frameon=False, fontsize="small",
        )  # fmt: skip
    return made


def decoded_raster(
    times: Float[Tensor, " spikes"],
    neurons: Int[Tensor, " spikes"],
    upwards: Float[Tensor, " neurons"],
    decoded: Mapping[str, tuple[Float[Tensor, " _steps"], Float[Tensor, " _steps"]]],
    truth: tuple[Float[Tensor, " _steps"], Float[Tensor, " _steps"]],
    *,
    ylabel: str = "value",
    title: str = "",
) -> Figure:
    """Spike raster (s), coloured by the sign of the encoders, above the decoded values.

    Neurons with negative encoders are below, those of each sign in the order of their spikes.
    """
    made = figure(6.5, 4.3)
    made.clear()
    upper, lower = made.subplots(2, 1, sharex=True, height_ratios=[1.6, 1.2])
    dress(upper)
    dress(lower)
    busy = torch.bincount(neurons.long(), minlength=len(upwards))
    place = (upwards.sign() * (1 + busy)).argsort().argsort()
    when, who = array(times), array(place[neurons.long()])
    size = min(7.0, 190 / max(1, len(upwards)))
    for number, name in enumerate(("encoder +1", "encoder -1")):
        mine = array(upwards[neurons.long()] > 0) == (number == 0)
        upper.plot(when[mine], who[mine], "|", ms=size, mew=0.8, color=colour(number))
        upper.plot([], [], color=colour(number), linewidth=1.6, label=name)
    upper.set_ylim(-1, len(upwards))
    upper.set_ylabel("neuron")
    upper.set_title(title, color=INK, fontsize="medium", loc="left")
    above = {"loc": "lower right", "bbox_to_anchor": (1.0, 0.98)}
    upper.legend(frameon=False, fontsize="small", ncols=2, **above)
    for number, (name, (x, y)) in enumerate(decoded.items()):
        lower.plot(array(x), array(y), color=colour(number + 2), linewidth=1.4, label=name)
    lower.plot(array(truth[0]), array(truth[1]), "--", color=INK, linewidth=1.1, label="truth")
    lower.set_xlabel("time (s)")
    lower.set_ylabel(ylabel)
    lower.set_xlim(float(truth[0][0]), float(truth[0][-1]))
    lower.legend(frameon=False, fontsize="small", loc="best")
    grid(lower)
    return made
