"""Margins of support vector machines: in the plane, and by what each sample weighs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from everynet.data.dataset import Spec
from everynet.plot.style import BASELINE, CONTRAST, INK, OURS, WIDTH, array, figure, grid
from everynet.plot.surface import SIDES, scatter, square

POINTS = 160
MOST, RINGS = 4000, 200


def margins_in_the_plane(
    machines: Mapping[str, Any],
    x: Float[Tensor, "rows 2"],
    y: Int[Tensor, " rows"],
    spec: Spec,
) -> Figure:
    """The decision f of each machine: its sign by colour, 0 as a line and -1 and 1 as dashes."""
    made = figure(WIDTH, 3.6, 1, len(machines))
    low, high = float(x.min()) - 0.3, float(x.max()) + 0.3
    side = array(torch.linspace(low, high, POINTS))
    for axes, (name, machine) in zip(made.axes, machines.items(), strict=True):
        f = torch.as_tensor(machine.decision_function(square(POINTS, low, high)))
        z = array(f).reshape(POINTS, POINTS)
        axes.imshow(
            z, cmap=SIDES, vmin=-2, vmax=2, extent=(low, high, low, high), origin="lower", alpha=0.5
        )
        if z.min() < 0 < z.max():
            axes.contour(side, side, z, levels=[0.0], colors=INK, linewidths=1.4)
        for level in (-1.0, 1.0):
            if z.min() < level < z.max():
                axes.contour(side, side, z, levels=[level], colors=INK, linestyles="--")
        scatter(axes, x, y, spec["classes"])
        kept = array(torch.as_tensor(machine.support_vectors_))
        rings = kept if len(kept) <= RINGS else kept[:0]  # more would hide the samples
        axes.scatter(rings[:, 0], rings[:, 1], s=42, facecolors="none", edgecolors=INK, lw=0.7)
        right = (torch.as_tensor(machine.predict(x)) == y).double().mean()
        axes.set(title=f"{name}: {right:.0%} right, {len(kept)} support vectors")
        axes.set(xlabel=spec["features"][0], ylabel=spec["features"][1])
        axes.set(xlim=(low, high), ylim=(low, high))
    handles, names = made.axes[0].get_legend_handles_labels()
    made.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)
    return made


def margins_by_weight(weight: Float[Tensor, " all"], margin: Float[Tensor, " all"]) -> Figure:
    """The weights alpha / C against y f(x): 1 below 1, 0 above it and anything at it."""
    made = figure(5.4, 3.2)
    axes = made.axes[0]
    axes.axvline(1, color=INK, linewidth=0.8, linestyle=":", zorder=0)
    chosen = torch.linspace(0, len(weight) - 1, min(len(weight), MOST)).long()
    weight, margin = weight[chosen], margin[chosen]
    kinds = {
        r"$\alpha = 0$: no support vector": (weight == 0, BASELINE),
        r"$0 < \alpha < C$: on the margin": ((weight > 0) & (weight < 1), OURS),
        r"$\alpha = C$: inside or misplaced": (weight == 1, CONTRAST),
    }
    for name, (of_kind, ink) in kinds.items():
        at = (array(margin[of_kind]), array(weight[of_kind]))
        axes.plot(*at, "o", ms=4, color=ink, mec="white", mew=0.3, label=name)
    axes.set(xlabel=r"margin $y\,f(x)$", ylabel=r"weight $\alpha / C$", ylim=(-0.06, 1.06))
    axes.legend(loc="center right", frameon=False, fontsize="small")
    grid(axes)
    return made
