"""A hyperplane between two classes, and why the perceptron that finds it makes few mistakes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import (
    CYCLE,
    FAINT,
    INK,
    OURS,
    TRUTH,
    array,
    figure,
    grid,
    log_ticks,
)
from everynet.plot.surface import scatter


def separating_line(
    inputs: Float[Tensor, "batch 2"],
    targets: Int[Tensor, " batch"],
    weight: Float[Tensor, " 2"],
    bias: float,
    *,
    labels: Sequence[str] = ("$x_1$", "$x_2$"),
    classes: Sequence[str] = (),
) -> Figure:
    """Samples of two classes, the line w.x = -b, and w itself, at right angles to it."""
    drawn = figure(5.6, 4.6)
    axes = drawn.axes[0]
    scatter(axes, inputs, targets, classes)
    low, high = array(inputs.amin(0)), array(inputs.amax(0))
    pad = 0.08 * (high - low)
    low, high = low - pad, high + pad
    w = array(weight)
    if not w.any():
        raise ValueError("weight (all zeros) must point somewhere, because a line needs a normal")
    normal = w / np.linalg.norm(w)
    foot = (low + high) / 2
    foot = foot - (foot @ w + bias) / (w @ w) * w  # the point of the line nearest to the middle
    along = np.array([-normal[1], normal[0]]) * 2 * np.linalg.norm(high - low)
    ends = np.stack([foot - along, foot + along])
    axes.plot(ends[:, 0], ends[:, 1], color=INK, linewidth=1.6, label=r"$w \cdot x = -b$")
    reach = float((high - low).min())
    for side, name in ((-1, 0), (1, 1)):
        far = side * 4 * np.linalg.norm(high - low) * normal
        corners = np.concatenate([ends, (ends + far)[::-1]])
        axes.fill(corners[:, 0], corners[:, 1], color=CYCLE[name], alpha=0.08, linewidth=0)
    tip = foot + 0.22 * reach * normal
    axes.annotate(
        "", xy=tuple(tip), xytext=tuple(foot), arrowprops={"arrowstyle": "-|>", "color": INK}
    )
    axes.annotate("$w$", xy=tuple(tip), xytext=(4, 4), textcoords="offset points", color=INK)
    axes.set(xlabel=labels[0], ylabel=labels[1], xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    axes.set_aspect("equal")
    drawn.legend(loc="outside upper center", ncols=3, frameon=False, fontsize="small")
    return drawn


def mistake_bound(norms: Float[Tensor, " mistakes"], radius: float, margin: float) -> Figure:
    """The proof of the mistake bound as a picture: two lines that cross at (R / gamma)^2.

    `norms` are the lengths of (w, b) after each mistake at a learning rate of 1. Each mistake
    adds at least gamma to the length along the best direction, and at most R^2 to its square.
    """
    drawn = figure(5.6, 4.0)
    axes = drawn.axes[0]
    most = (radius / margin) ** 2
    k = np.geomspace(0.8, 1.5 * most, 800)
    least, greatest = margin * k, radius * np.sqrt(k)
    axes.fill_between(k, least, greatest, where=k <= most, color=FAINT, alpha=0.35, linewidth=0)
    axes.plot(k, greatest, "--", color=TRUTH, label=r"at most $\sqrt{k}\,R$")
    axes.plot(k, least, "-.", color=TRUTH, label=r"at least $k\,\gamma$")
    made = np.arange(1, len(norms) + 1)
    label = f"measured: {len(norms)} mistakes"
    axes.plot(made, array(norms), "o-", color=OURS, ms=4, linewidth=1.2, label=label)
    axes.axvline(most, color=INK, linewidth=0.9, linestyle=":")
    axes.annotate(
        rf"$(R/\gamma)^2$ = {most:.1f}",
        xy=(most, margin),
        xytext=(-6, 2),
        textcoords="offset points",
        ha="right",
        color=INK,
    )
    axes.set(xlabel="mistake k", ylabel=r"length of $(w, b)$", xscale="log", yscale="log")
    axes.set(xlim=(0.8, 1.5 * most), ylim=(0.8 * margin, 1.5 * radius * math.sqrt(most)))
    log_ticks(axes)
    axes.legend(frameon=False, loc="upper left")
    grid(axes)
    return drawn
