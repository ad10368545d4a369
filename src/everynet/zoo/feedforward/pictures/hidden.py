"""Samples where a network sees them last: what no line parted in the plane, a line parts there."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import INK, WIDTH, figure, grid
from everynet.plot.surface import scatter


def hidden_space(
    inputs: Float[Tensor, "batch 2"],
    hidden: Float[Tensor, "batch units"],
    weight: Float[Tensor, " units"],
    bias: float,
    targets: Int[Tensor, " batch"],
    *,
    labels: Sequence[str] = ("$x_1$", "$x_2$"),
    classes: Sequence[str] = (),
) -> Figure:
    """Samples of two classes as they are, and as values of the last hidden layer.

    That layer is seen from the side: across is the distance from the plane w.h = -b, on whose two
    sides the classes are told apart, and up the direction along that plane in which the samples are
    spread most.
    """
    across, up = _seen_from_the_side(hidden, weight, bias)
    drawn = figure(WIDTH, 3.2, 1, 2)
    left, right = drawn.axes
    scatter(left, inputs, targets, classes)
    left.set(xlabel=labels[0], ylabel=labels[1])
    left.set_title("inputs", color=INK)
    left.set_aspect("equal")
    scatter(right, torch.stack([across, up], 1), targets, classes)
    right.axvline(0, color=INK, linewidth=1.4)
    right.set(xlabel="distance from the plane of the answer", ylabel="largest spread along it")
    right.set_title(f"{hidden.shape[1]} hidden units", color=INK)
    for axes in drawn.axes:
        grid(axes)
    handles, names = left.get_legend_handles_labels()
    drawn.legend(
        handles, names, loc="outside lower center", ncols=len(names), frameon=False,
        fontsize="small",
    )  # fmt: skip
    return drawn


def _seen_from_the_side(
    hidden: Float[Tensor, "batch units"], weight: Float[Tensor, " units"], bias: float
) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
    """The distance of each point from a plane, and where it is along that plane."""
    h, w = hidden.detach().double().cpu(), weight.detach().double().cpu()
    length = w.norm().clamp(min=1e-12)
    across = (h @ w + bias) / length
    along = h - h.mean(0) - torch.outer(across - across.mean(), w / length)
    direction = torch.linalg.svd(along, full_matrices=False).Vh[0]
    return across, along @ direction
