"""Dynamics that populations carry: orbits in state space, spikes above what is read from them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import INK, WIDTH, array, colour, dress, figure, grid, wrapped


def orbits(
    ways: Mapping[str, Float[Tensor, "_times 2"]],
    *,
    names: tuple[str, str],
    guide: Float[Tensor, "times 2"] | None = None,
) -> Figure:
    """A panel for each way through a plane, all on one scale.

    `guide` is drawn in ink over each way: where the true system goes round.
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
        thin = 1.1 if guide is not None else 0.5  # a way that never closes fills its panel
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
            [line], ["where the true system goes round"], loc="outside lower center",
            frameon=False, fontsize="small",
        )  # fmt: skip
    return made


def decoded_raster(
    times: Float[Tensor, " spikes"],
    neurons: Int[Tensor, " spikes"],
    upwards: Float[Tensor, " neurons"],
    read: Mapping[str, tuple[Float[Tensor, " _steps"], Float[Tensor, " _steps"]]],
    truth: tuple[Float[Tensor, " _steps"], Float[Tensor, " _steps"]],
    *,
    ylabel: str = "value",
    title: str = "",
) -> Figure:
    """A stroke for each spike (s), its colour the sign of the neuron's encoder, over what is read.

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
    for number, (name, (x, y)) in enumerate(read.items()):
        lower.plot(array(x), array(y), color=colour(number + 2), linewidth=1.4, label=name)
    lower.plot(array(truth[0]), array(truth[1]), "--", color=INK, linewidth=1.1, label="truth")
    lower.set_xlabel("time (s)")
    lower.set_ylabel(ylabel)
    lower.set_xlim(float(truth[0][0]), float(truth[0][-1]))
    lower.legend(frameon=False, fontsize="small", loc="best")
    grid(lower)
    return made
