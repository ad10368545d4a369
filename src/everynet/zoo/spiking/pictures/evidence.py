"""An image, the spikes that it causes and the readout of a spiking classifier."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import FAINT, INK, WIDTH, array, bare, colour, dress, grid

MOST = 60  # units of a raster that can be told apart


def evidence(
    spikes: Float[Tensor, "time units"],
    readout: Float[Tensor, "time classes"],
    *,
    image: Float[Tensor, "channels height width"],
    dt: float,
    classes: Sequence[str],
    truth: int,
) -> Figure:
    """One sample, the spikes of a layer for it, and the membranes of the outputs that sum them up.

    Units are drawn by how often they fire, the least active at the bottom; the title says how many
    fire in every step, because a line of dots says nothing.
    """
    made = Figure(figsize=(WIDTH, 4.6), layout="constrained")
    spec = made.add_gridspec(2, 2, width_ratios=[1, 3.6])
    raster = dress(made.add_subplot(spec[0, 1]))
    outputs = dress(made.add_subplot(spec[1, 1], sharex=raster))
    picture = dress(made.add_subplot(spec[0, 0]))
    picture.imshow(array(image.mean(0)), cmap="gray", interpolation="nearest")
    picture.set_title(f"input: {classes[truth]}", color=INK)
    bare(picture)
    counts = spikes.sum(dim=0)
    order = counts.argsort(stable=True)[int((counts == 0).sum()) :]
    shown = order[torch.linspace(0, len(order) - 1, min(MOST, len(order))).round().long()]
    step, unit = spikes[:, shown].nonzero(as_tuple=True)
    raster.plot(1e3 * dt * (array(step) + 1), array(unit), "o", color=INK, ms=1.6)
    raster.set_ylabel(f"{len(shown)} of the {len(order)}\nunits that fire")
    always = int((counts[shown] == len(spikes)).sum())
    raster.set_title(f"{always} of the {len(shown)} shown fire in every step", color=INK)
    raster.set_xlim(0, 1e3 * dt * (len(spikes) + 1))
    time = 1e3 * dt * array(torch.arange(1, len(spikes) + 1))
    best = int(readout.mean(dim=0).argmax())
    for k, trace in enumerate(readout.unbind(1)):
        named = {truth: (colour(0), f"{classes[k]}: the truth")}
        if best == truth:
            named[best] = (colour(0), f"{classes[k]}: truth and answer")
        else:
            named[best] = (colour(1), f"{classes[k]}: the answer")
        ink, label = named.get(k, (FAINT, None))
        outputs.plot(time, array(trace), color=ink, label=label, zorder=3 if label else 2)
    outputs.plot([], [], color=FAINT, label="other classes")
    outputs.set_xlabel("time (ms)")
    outputs.set_ylabel("membrane of\nthe outputs")
    made.legend(
        *outputs.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False,
        fontsize="small",
    )  # fmt: skip
    grid(outputs)
    return made
