"""What a linear model has learned: its predictions, errors, weights and probabilities."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import FAINT, INK, SIGNED, array, bare, colour, figure, grid, symmetric

MOST_BARS = 30
REACH = 7.0  # log-odds that are shown: beyond them a probability is within 0.001 of 0 or 1


def fitted(
    parts: Mapping[str, tuple[Float[Tensor, " samples"], Float[Tensor, " samples"]]],
    *,
    unit: str = "",
) -> Figure:
    """Measured against predicted values, for each part of the data; on the diagonal all is right.

    A part is (predicted, measured); the last one is drawn on top.
    """
    made = figure(4.4, 4.2)
    axes = made.axes[0]
    values = torch.cat([both for part in parts.values() for both in part])
    low, high = float(values.min()), float(values.max())
    axes.plot([low, high], [low, high], color=INK, linewidth=1, label="predicted = measured")
    for number, (name, (predicted, measured)) in enumerate(parts.items()):
        last = number == len(parts) - 1
        shade, size = (colour(0), 5.5) if last else (FAINT, 4)
        unexplained = (predicted - measured).square().mean() / measured.var(correction=0)
        label = rf"{name}, {len(measured):,} samples: $R^2 = {1 - float(unexplained):.2f}$"
        axes.plot(array(predicted), array(measured), "o", color=shade, ms=size, label=label)
    axes.set_xlabel("predicted" + _of(unit))
    axes.set_ylabel("measured" + _of(unit))
    axes.set_aspect("equal")
    axes.legend(frameon=False, fontsize="small")
    grid(axes)
    return made


def residuals(
    predicted: Float[Tensor, " samples"], measured: Float[Tensor, " samples"], *, unit: str = ""
) -> Figure:
    """The error of each prediction against its size, and how the errors are spread."""
    made = figure(6.5, 2.9, 1, 2)
    left, right = made.axes
    error = array(measured - predicted)
    left.axhline(0, color=INK, linewidth=1)
    left.plot(array(predicted), error, "o", markersize=4, alpha=0.7)
    left.set_xlabel("predicted" + _of(unit))
    left.set_ylabel("measured - predicted" + _of(unit))
    grid(left)
    spread = float(error.std())
    right.hist(error, bins=min(20, max(5, len(error) // 4)), color=colour(0), alpha=0.7)
    right.axvline(0, color=INK, linewidth=1)
    right.set_title(f"standard deviation {spread:.3g}", color=INK, fontsize="medium")
    right.set_xlabel("measured - predicted" + _of(unit))
    right.set_ylabel("samples")
    grid(right)
    return made


def coefficients(
    weights: Float[Tensor, " features"],
    names: Sequence[str] = (),
    *,
    xlabel: str = "weight for one standard deviation of the feature",
) -> Figure:
    """The weights by size, the largest on top; of standardised features they can be compared."""
    order = weights.abs().argsort(descending=True, stable=True)[:MOST_BARS]
    called = [names[i] if names else f"feature {i}" for i in order.tolist()]
    values = array(weights[order])
    made = figure(5.8, 0.9 + 0.19 * len(order))
    axes = made.axes[0]
    shades = [colour(int(value > 0)) for value in values]  # of the class that it speaks for
    axes.barh(range(len(order)), values, color=shades, height=0.7)
    axes.axvline(0, color=INK, linewidth=1)
    axes.set_yticks(range(len(order)), called, fontsize="small")
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(xlabel)
    if len(order) < len(weights):
        axes.set_title(f"the {len(order)} largest of {len(weights)}", fontsize="medium", color=INK)
    axes.grid(visible=True, axis="x", color=FAINT, linewidth=0.5, alpha=0.6)
    return made


def class_images(
    weights: Float[Tensor, "classes channels height width"], classes: Sequence[str]
) -> Figure:
    """Where a linear classifier looks: for each class the sum of its weights on a pixel's channels.

    The colours end at the size that 99 of 100 weights keep below.
    """
    columns = min(5, len(classes))
    rows = math.ceil(len(classes) / columns)
    made = figure(1.15 * columns + 0.8, 1.35 * rows + 0.1, rows, columns)
    pixels = weights.detach().double().sum(dim=1)
    limit = float(pixels.abs().flatten().quantile(0.99)) or 1.0
    for axes, image, name in zip(made.axes, pixels, classes, strict=False):
        shown = axes.imshow(array(image), cmap=SIGNED, vmin=-limit, vmax=limit)
        axes.set_title(name, color=INK, fontsize="medium")
    for axes in made.axes:
        bare(axes)
    bar = made.colorbar(shown, ax=made.axes, shrink=0.7, extend="both")
    bar.set_label("weight: red speaks for\nthe class, blue against", fontsize="small")
    bar.ax.tick_params(labelsize="small")
    return made


def class_table(
    weights: Float[Tensor, "classes features"], classes: Sequence[str], features: Sequence[str]
) -> Figure:
    """The weight of each feature (down) for each class (across)."""
    made = figure(2.6 + 0.6 * len(classes), max(2.6, 1.2 + 0.24 * len(features)))
    axes = made.axes[0]
    low, high = symmetric(weights)
    shown = axes.imshow(array(weights.T), cmap=SIGNED, vmin=low, vmax=high, aspect="auto")
    axes.set_xticks(range(len(classes)), classes, rotation=30, ha="right")
    axes.set_yticks(range(len(features)), features)
    axes.tick_params(length=0)
    made.colorbar(shown, label="weight", shrink=0.9)
    return made


def probability_curve(
    log_odds: Float[Tensor, " samples"], y: Int[Tensor, " samples"], classes: Sequence[str]
) -> Figure:
    """The logistic curve with each sample on it: a cross is one on the wrong side of 0."""
    made = figure(6.4, 3.5)
    axes = made.axes[0]
    s = torch.linspace(-REACH, REACH, 400, dtype=torch.float64)
    axes.plot(array(s), array(s.sigmoid()), color=INK, linewidth=1.2, zorder=1)
    axes.axvline(0, color=INK, linewidth=0.8, linestyle=":", zorder=0)
    axes.text(0.15, 0.5, "boundary", fontsize="small", va="center")
    for number, name in enumerate(classes):
        mine = log_odds[y == number]
        right = (mine > 0) == (number == 1)
        label = f"{name}: {int(right.sum())} of {len(mine)} right"
        for kept, marker, size in ((right, "o", 5), (~right, "X", 9)):
            shown = mine[kept & (mine.abs() <= REACH)].double()
            place = (array(shown), array(shown.sigmoid()))
            what = label if marker == "o" else ""
            axes.plot(*place, marker, color=colour(number), ms=size, mec="white", label=what)
    for side, align, height in ((-1, "left", 0.07), (1, "right", 0.93)):
        beyond = int((side * log_odds > REACH).sum())
        if beyond:
            axes.text(
                side * REACH,
                height,
                f"{beyond} further out",
                ha=align,
                va="center",
                fontsize="small",
            )
    axes.set_xlim(-REACH, REACH)
    axes.set_xlabel(r"log-odds $s = x \cdot \theta$")
    axes.set_ylabel(f"probability of {classes[1]}")
    axes.legend(frameon=False, fontsize="small", loc="upper left")
    grid(axes)
    return made


def _of(unit: str) -> str:
    return f" ({unit})" if unit else ""
