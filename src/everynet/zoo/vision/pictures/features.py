"""Receptive fields, images that drive a unit, and named values as bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import INK, SIGNED, array, bare, colour, dress, figure, symmetric

SMALL = 8  # points


def cell_fields(fields: Mapping[str, Float[Tensor, "_ _"]], *, columns: int = 3) -> Figure:
    """Fields by name, each on its own scale: red where light excites, blue where it silences."""
    rows = -(-len(fields) // columns)
    made = Figure(figsize=(6.5, 2.05 * rows + 0.5), layout="constrained")
    grid = made.subplots(rows, columns, squeeze=False).flatten()
    for axes, (name, field) in zip(grid, fields.items(), strict=False):
        scaled = field / torch.clamp(field.abs().max(), min=1e-12)
        low, high = symmetric(scaled)
        drawn = axes.imshow(array(scaled), cmap=SIGNED, vmin=low, vmax=high)
        axes.set_title(name, fontsize=SMALL + 1, color=INK, pad=3)
        bare(dress(axes))
    for axes in grid[len(fields) :]:
        axes.remove()
    bar = made.colorbar(drawn, ax=[*grid[: len(fields)]], aspect=24, pad=0.01)
    bar.set_label("weight / largest", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
    bar.outline.set_visible(False)
    return made


def named_points(values: Mapping[str, float], *, xlabel: str, title: str = "") -> Figure:
    """A point for each name, from the top down, with its value.

    The axis begins below the least, where a bar would make small differences look large.
    """
    made = figure(6.5, 0.42 * len(values) + 0.9)
    axes = made.axes[0]
    low = min(values.values())
    for place, (name, value) in enumerate(values.items()):
        axes.plot(value, place, "o", ms=8, color=colour(place))
        axes.text(value, place, f"   {value:.1f}", va="center", fontsize=SMALL, color=INK)
        axes.text(-0.01, place, name, va="center", ha="right", fontsize=SMALL, color=INK,
                  transform=axes.get_yaxis_transform())  # fmt: skip
    axes.set_yticks([])
    axes.set_ylim(len(values) - 0.5, -0.5)
    axes.set_xlim(max(0.0, low - 0.3 * (100 - low) - 5), max(101.0, 1.02 * max(values.values())))
    axes.set_xlabel(xlabel, fontsize=SMALL + 1)
    axes.set_title(title, color=INK, fontsize="medium")
    return made


def driving_images(
    images: Float[Tensor, "units channels height width"],
    patches: Float[Tensor, "units best channels high wide"],
    captions: Sequence[str],
    *,
    title: str = "",
) -> Figure:
    """A column for each unit: its image with a caption, and below it patches of real images."""
    count, best = patches.shape[:2]
    made = Figure(figsize=(6.5, 6.5 / count * (1 + best) + 0.9), layout="constrained")
    axes = made.subplots(1 + best, count, squeeze=False)
    for unit in range(count):
        for row, pixels in enumerate([images[unit], *patches[unit]]):
            one = axes[row][unit]
            shown = pixels if len(pixels) in (1, 3) else pixels.mean(0, keepdim=True)
            shown = shown.clamp(0, 1).movedim(0, -1)
            one.imshow(array(shown), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            bare(dress(one))
        axes[0][unit].set_title(captions[unit], fontsize=SMALL, color=colour(0), pad=3)
    axes[0][0].set_ylabel("made", fontsize=SMALL, color=INK)
    axes[1][0].set_ylabel("found", fontsize=SMALL, color=INK)
    made.suptitle(title, fontsize="medium", color=INK)
    return made
