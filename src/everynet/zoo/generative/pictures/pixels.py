"""Pictures of images that are drawn: beside real ones, pixel by pixel, and next to training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from everynet.data.dataset import Data
from everynet.plot.images import mosaic
from everynet.plot.style import (
    CYCLE,
    FAINT,
    INK,
    MAGNITUDE,
    OURS,
    WIDTH,
    array,
    bare,
    dress,
    figure,
)

Image = Float[Tensor, "_ _"]
Mask = Bool[Tensor, "_ _"]
FLATTEST = 1e-5
"""Slopes below this share of the steepest one have its colour."""


def image_mosaics(
    parts: Mapping[str, Float[Tensor, "images channels height width"]], *, columns: int = 8
) -> Figure:
    """Several sets of images side by side, each a mosaic under its name, pixels from 0 to 1."""
    count = max(-(-len(images) // columns) for images in parts.values())
    made = figure(WIDTH, WIDTH / len(parts) * count / columns + 0.35, 1, len(parts))
    for axes, (name, images) in zip(made.axes, parts.items(), strict=True):
        _tiles(axes, images, columns)
        axes.set_title(name, color=INK, fontsize="medium")
    return made


def masks_and_fields(
    masks: Mapping[str, Mask], fields: Mapping[str, Image], centre: tuple[int, int]
) -> Figure:
    """Masks of kernels by name, and below them what the pixel in the centre depends on.

    A field has for each pixel the size of a slope, 0 where there is none: it stays white.
    """
    columns = max(len(masks), len(fields))
    made = figure(WIDTH, 3.2, 2, columns)
    top, below = made.axes[:columns], made.axes[columns:]
    for axes, (name, mask) in zip(top, masks.items(), strict=False):
        axes.imshow(array(mask), cmap="Blues", vmin=0, vmax=1.6, interpolation="nearest")
        for x in range(mask.shape[1]):
            for y in range(mask.shape[0]):
                axes.text(x, y, str(int(mask[y, x])), ha="center", va="center", fontsize=7)
        _square(axes, mask.shape[0] // 2, mask.shape[1] // 2)
        axes.set_title(name, color=INK, fontsize="small")
        bare(axes)
    most = max(field.max().item() for field in fields.values()) or 1.0
    for axes, (name, field) in zip(below, fields.items(), strict=False):
        shown = axes.imshow(
            array(torch.where(field > 0, (field / most).clamp(min=FLATTEST), torch.nan)),
            cmap=MAGNITUDE, norm=LogNorm(FLATTEST, 1.0), interpolation="nearest",
        )  # fmt: skip
        _square(axes, *centre)
        axes.set_title(name, color=INK, fontsize="small")
        axes.set(xticks=[], yticks=[])
        for spine in axes.spines.values():
            spine.set(visible=True, color=FAINT)
    for axes in (*top[len(masks) :], *below[len(fields) :]):
        axes.set_visible(False)
    bar = made.colorbar(shown, ax=below, aspect=14, pad=0.02)
    bar.set_label("size of the slope\n(white: none)", fontsize="small")
    return made


def nats_by_pixel(
    x: Float[Tensor, "images 1 height width"],
    m: Float[Tensor, "images 1 height width"],
    nats: Float[Tensor, "images 1 height width"],
) -> Figure:
    """Images, the probability of white at each of their pixels, and what each pixel costs."""
    count = len(x)
    tile = (WIDTH - 1.4) / count * x.shape[2] / x.shape[3]
    made = figure(WIDTH, 3 * (tile + 0.06) + 0.5, 3, 1)
    rows: Sequence[tuple[str, Tensor, str | Colormap, float]] = (
("image", x, "gray", 1.0), ("probability\nof white", m, "gray", 1.0),
            ("nats", nats, MAGNITUDE, nats.max().item()))  # fmt: skip
    for axes, (name, images, cmap, most) in zip(made.axes, rows, strict=True):
        tiles = mosaic(images, count)[..., 0]
        shown = axes.imshow(array(tiles), cmap=cmap, vmin=0, vmax=most, interpolation="nearest")
        axes.set_xticks([])
        axes.set_yticks([tiles.shape[0] / 2], [name], fontsize="small")
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        bar = made.colorbar(shown, ax=axes, aspect=7, pad=0.01)
        bar.ax.tick_params(labelsize="small")
        bar.outline.set_visible(False)
    made.axes[2].set_xticks(
        [(at + 0.5) * (x.shape[3] + 1) for at in range(count)],
        [f"{total:.1f}" for total in nats.flatten(1).sum(1).tolist()], fontsize="small",
    )  # fmt: skip
    made.axes[2].set_xlabel("nats of the whole image", fontsize="small")
    return made


def nearest_images(
    x: Float[Tensor, "rows pixels"], rows: Callable[[Tensor], Tensor], count: int
) -> tuple[Float[Tensor, " rows"], Int[Tensor, " rows"]]:
    """The squared distance to the nearest of `count` images, and which one that is.

    `rows` gives those of some numbers; the squared distance of binary images is the number of
    pixels that differ.
    """
    best = torch.full((len(x),), math.inf, dtype=x.dtype, device=x.device)
    which = torch.zeros(len(x), dtype=torch.int64, device=x.device)
    for some in torch.arange(count).split(10_000):
        y = rows(some).flatten(1).to(x)
        square = x.square().sum(1)[:, None] + y.square().sum(1) - 2 * x @ y.T
        away, found = square.min(1)
        which = torch.where(away < best, found + int(some[0]), which)
        best = torch.minimum(away, best)
    return best.clamp(min=0), which


def compare_nearest(
    made: Float[Tensor, "rows channels height width"], data: Data
) -> tuple[Figure, dict[str, float]]:
    """Samples beside training images as far as validation images are; medians of the distances."""
    real = data.some("valid", torch.arange(min(len(made), data.rows("valid"))))[0].cpu()
    away, which = nearest_images(
        torch.cat([made, real.to(made)]).flatten(1),
        lambda rows: data.some("train", rows)[0].cpu(),
        data.rows("train"),
    )
    parts = {"samples": away[: len(made)], "validation images": away[len(made) :]}
    figure = nearest_pairs(made[:12], data.some("train", which[:12])[0].cpu(), parts)
    samples, held_out = (values.median().item() for values in parts.values())
    return figure, {"samples": samples, "held_out": held_out}


def image_frames(
    states: Iterator[Float[Tensor, "rows channels height width"]], columns: int
) -> Iterator[UInt8[np.ndarray, ...]]:
    """A frame for each set of images from 0 to 1: all of them side by side, grey or in colour."""
    for state in states:
        times = max(1, 32 // state.shape[-1])
        large = state.repeat_interleave(times, -1).repeat_interleave(times, -2)
        tiles = mosaic(large.clamp(0, 1), columns, gap=(2, 2)).nan_to_num(0.35)
        frame = (tiles * 255).round().to(torch.uint8).numpy()
        yield frame[..., 0] if frame.shape[2] == 1 else frame


def nearest_pairs(
    images: Float[Tensor, "rows channels height width"],
    nearest: Float[Tensor, "rows channels height width"],
    distances: Mapping[str, Float[Tensor, " _"]],
) -> Figure:
    """Images above the nearest training image of each, and distances to it by kind of image."""
    made = Figure(figsize=(WIDTH, 2.6), layout="constrained")
    grid = made.add_gridspec(1, 2, width_ratios=[1.5, 1])
    left, right = (dress(made.add_subplot(grid[column])) for column in range(2))
    columns, height = min(6, len(images)), images.shape[2]
    pairs = zip(images.split(columns), nearest.split(columns), strict=True)
    whole = [rows for two in pairs for rows in two if len(rows) == columns]
    _tiles(left, torch.cat(whole), columns)
    names = ["sample", "nearest"] * (len(whole) // 2)
    left.set_yticks([(n + 0.5) * (height + 1) for n in range(len(whole))], names, fontsize="small")
    left.tick_params(length=0)
    high = max(float(values.max()) for values in distances.values())
    for at, (name, values) in enumerate(distances.items()):
        right.hist(
            array(values), bins=24, range=(0, high + 1e-9), density=True, histtype="step",
            color=CYCLE[at], linewidth=1.4, label=f"{name}, median {values.median().item():.1f}",
        )  # fmt: skip
    right.set(xlabel="squared distance to the nearest", ylabel="density", yticks=[])
    right.legend(frameon=False, fontsize="small", loc="upper center", bbox_to_anchor=(0.4, 1.3))
    return made


def _tiles(axes: Axes, images: Float[Tensor, "tiles channels height width"], columns: int) -> None:
    """Images from 0 to 1 in a mosaic on a faint ground, so that white ones have an edge."""
    tiles = mosaic(images.float().clamp(0, 1), columns)
    opaque = tiles.isfinite().all(-1, keepdim=True)
    colours = tiles.expand(*tiles.shape[:2], 3) if tiles.shape[2] == 1 else tiles
    axes.imshow(
        array(torch.cat([colours.nan_to_num(0.0), opaque.to(tiles.dtype)], -1)),
        interpolation="nearest",
    )
    bare(axes)
    axes.set_facecolor(FAINT)


def _square(axes: Axes, row: int, column: int) -> None:
    """A frame around the pixel in question."""
    axes.add_patch(
        Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=OURS, linewidth=1.6)
    )
