"""Pictures of masks: beside the truth and a baseline, how a U-Net comes to them, and its doubt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch, Patch
from torch import Tensor

from everynet.plot.images import mosaic
from everynet.plot.style import CYCLE, FAINT, INK, MAGNITUDE, WRONG, array, bare, colour, dress

SMALL = 8  # points
FALSE_NEGATIVE, FALSE_POSITIVE = CYCLE[0], WRONG
Images = Float[Tensor, "samples height width"]
Masks = Int[Tensor, "samples height width"]


def mask_grid(
    images: Float[Tensor, "samples channels height width"],
    true: Int[Tensor, "samples height width"],
    predicted: Int[Tensor, "samples height width"],
    classes: Sequence[str],
) -> Figure:
    """Each column an image, its true and its predicted mask, and where the two differ."""
    count = len(images)
    wrong = predicted != true
    overlay = _pixels(images) * 0.75 + 0.25  # pale, so that what is wrong stands out
    overlay[wrong] = torch.tensor(to_rgb(WRONG), dtype=overlay.dtype)
    rows = {
        "image": _pixels(images),
        "truth": _coloured(true),
        "prediction": _coloured(predicted),
        "wrong": overlay,
    }
    figure = Figure(figsize=(6.5, 6.5 / count * 4 + 0.75), layout="constrained")
    axes = figure.subplots(len(rows), count, squeeze=False)
    for line, (name, drawn) in zip(axes, rows.items(), strict=True):
        for place, (one, pixels) in enumerate(zip(line, drawn, strict=True)):
            one.imshow(array(pixels), interpolation="nearest")
            bare(dress(one))
            if name == "wrong":
                share = f"{wrong[place].double().mean().item():.1%} wrong"
                one.set_xlabel(share, fontsize=SMALL, color=INK)
        line[0].set_ylabel(name, fontsize=SMALL, color=INK)
    shades = [Patch(facecolor=_shade(k), label=name) for k, name in enumerate(classes)][:12]
    shades.append(Patch(facecolor=WRONG, label="wrong pixel"))
    figure.legend(
        handles=shades, loc="outside lower center", ncols=6, fontsize=SMALL, frameon=False
    )
    figure.suptitle(f"{count} validation images", fontsize="medium", color=INK)
    return figure


def feature_u(
    image: Float[Tensor, "channels height width"],
    down: Sequence[Float[Tensor, "_ _ _"]],
    bottom: Float[Tensor, "_ _ _"],
    up: Sequence[Float[Tensor, "_ _ _"]],
    *,
    predicted: Int[Tensor, "rows columns"],
    classes: Sequence[str],
) -> Figure:
    """The maps of each level, down on the left and up on the right, with skips between them."""
    levels = len(down)
    figure = Figure(figsize=(6.5, 1.15 * (levels + 2) + 0.3))
    grid = figure.add_gridspec(
        levels + 2, 3, width_ratios=[1, 0.18, 1], hspace=0.5, wspace=0.02,
        left=0.02, right=0.98, top=0.94, bottom=0.03,
    )  # fmt: skip
    first, last = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[0, 2])
    first.imshow(array(_pixels(image[None])[0]), interpolation="nearest")
    last.imshow(array(_coloured(predicted)), interpolation="nearest")
    for axes, name in ((first, "image"), (last, f"prediction: {len(classes)} classes")):
        _named(axes, f"{name}, {image.shape[1]} x {image.shape[2]}")
    for level in range(levels):
        left, right = (figure.add_subplot(grid[level + 1, side]) for side in (0, 2))
        _strip(left, down[level], "down")
        _strip(right, up[levels - 1 - level], "up")
        arrow = ConnectionPatch(
            (1.01, 0.5), (-0.01, 0.5), "axes fraction", "axes fraction", axesA=left, axesB=right,
            arrowstyle="-|>", color=colour(0), linewidth=1.4,
        )  # fmt: skip
        figure.add_artist(arrow)
        middle = figure.add_subplot(grid[level + 1, 1])
        middle.text(0.5, 0.62, "skip", ha="center", fontsize=SMALL, color=colour(0))
        middle.axis("off")
    below = figure.add_subplot(grid[levels + 1, :])
    _strip(below, bottom, "bottom")
    return figure


def uncertain_pixels(
    images: Float[Tensor, "samples channels height width"],
    probabilities: Float[Tensor, "samples classes height width"],
    true: Int[Tensor, "samples height width"],
) -> Figure:
    """How unsure the class of each pixel is, below its image with the true outlines."""
    count = len(images)
    bits = torch.special.entr(probabilities.double()).sum(1) / torch.log(torch.tensor(2.0)).double()
    figure = Figure(figsize=(6.5, 5.8 / count * 2 + 0.25), layout="constrained")
    axes = figure.subplots(2, count, squeeze=False)
    most = max(1.0, float(bits.max()))
    for place in range(count):
        above, below = axes[:, place]
        above.imshow(array(_pixels(images[place : place + 1])[0]), interpolation="nearest")
        for kind in true[place].unique()[1:].tolist():
            inside = array(true[place] == kind)
            above.contour(inside, levels=[0.5], colors=[colour(kind)], linewidths=0.9)
        drawn = below.imshow(array(bits[place]), cmap=MAGNITUDE, vmin=0, vmax=most)
        bare(dress(above))
        bare(dress(below))
    axes[0][0].set_ylabel("true outlines", fontsize=SMALL, color=INK)
    axes[1][0].set_ylabel("uncertainty", fontsize=SMALL, color=INK)
    bar = figure.colorbar(drawn, ax=axes, aspect=24, pad=0.01)
    bar.set_label("entropy of the class / bits", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
    bar.outline.set_visible(False)
    return figure


def _pixels(images: Tensor) -> Float[Tensor, "samples height width 3"]:
    """Images of values from 0 to 1 as colours; of any number of channels but 3 the mean is grey."""
    images = images.detach().cpu().double().clamp(0, 1)
    images = images if images.shape[1] == 3 else images.mean(1, keepdim=True).expand(-1, 3, -1, -1)
    return images.permute(0, 2, 3, 1).clone()


def _shade(kind: int) -> str:
    """The colour of a class; the background is pale."""
    return colour(kind) if kind else FAINT


def _coloured(mask: Int[Tensor, "*batch height width"]) -> Float[Tensor, "*batch height width 3"]:
    shades = torch.tensor([to_rgb(_shade(kind)) for kind in range(int(mask.max()) + 1)])
    return shades[mask.cpu()]


def _named(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=SMALL, color=INK, pad=3)
    bare(dress(axes))


def _strip(axes: Axes, maps: Float[Tensor, "maps rows columns"], way: str, most: int = 4) -> None:
    """The maps that vary most, side by side, each on its own scale."""
    maps = maps.detach().cpu().double()
    strongest = maps.flatten(1).std(1).argsort(descending=True)[:most].sort().values
    shown = maps[strongest]
    shown = shown / shown.flatten(1).amax(1).clamp(min=1e-12)[:, None, None]
    times = max(1, 64 // shown.shape[-1])
    shown = shown.repeat_interleave(times, -1).repeat_interleave(times, -2)
    tiles = mosaic(shown[:, None], len(shown), gap=(3, 3))[..., 0]
    axes.imshow(array(tiles), cmap=MAGNITUDE, vmin=0, vmax=1, interpolation="nearest")
    count, height, width = maps.shape
    few = f", {most} shown" if count > most else ""
    _named(axes, f"{way}: {count} maps of {height} x {width}{few}")


def membranes(
    images: Images, true: Masks, predicted: Mapping[str, Masks], classes: Sequence[str]
) -> Figure:
    """Each row an image from 0 to 1, its truth, and each prediction with its mistakes in colour.

    Class 0 is dark; its false negatives are blue, its false positives red.
    """
    rows, columns = len(images), 2 + len(predicted)
    figure = Figure(figsize=(6.5, 6.5 / columns * rows + 0.95), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for row, line in enumerate(axes):
        line[0].imshow(array(images[row]), cmap="gray", vmin=0, vmax=1)
        line[1].imshow(array(true[row]), cmap="gray", vmin=0, vmax=1)
        for place, masks in zip(line[2:], predicted.values(), strict=True):
            place.imshow(array(mark_mistakes(true[row], masks[row])), interpolation="nearest")
            wrong = (masks[row] != true[row]).double().mean().item()
            place.set_xlabel(f"{wrong:.1%} wrong", fontsize=SMALL, color=INK)
        for place, name in zip(line, ["image", "truth", *predicted], strict=True):
            bare(dress(place))
            if row == 0:
                place.set_title(name, fontsize=9, color=INK)
    names = {
        FALSE_NEGATIVE: f"{classes[0]} that was missed",
        FALSE_POSITIVE: f"{classes[0]} that is none",
        "#000000": f"{classes[0]}, right",
    }
    figure.legend(
        handles=[Patch(facecolor=shade, label=name) for shade, name in names.items()],
        loc="outside lower center", ncols=3, fontsize=SMALL, frameon=False,
    )  # fmt: skip
    return figure


def mark_mistakes(
    true: Int[Tensor, "height width"], predicted: Int[Tensor, "height width"]
) -> Float[Tensor, "height width 3"]:
    """The predicted mask, black and white, with missed and false pixels of class 0 in colour."""
    pixels = predicted.double()[..., None].repeat(1, 1, 3)
    false = {
        FALSE_NEGATIVE: (true == 0) & (predicted != 0),
        FALSE_POSITIVE: (true != 0) & (predicted == 0),
    }
    for shade, wrong in false.items():
        pixels[wrong] = torch.tensor(to_rgb(shade), dtype=pixels.dtype)
    return pixels


def bent_windows(images: Images, masks: Masks) -> Figure:
    """Windows side by side, their masks below; the first is as it is, the others are bent."""
    count = len(images)
    figure = Figure(figsize=(6.5, 6.5 / count * 2 + 0.3), layout="constrained")
    axes = figure.subplots(2, count, squeeze=False)
    for place in range(count):
        axes[0][place].imshow(array(images[place]), cmap="gray", vmin=0, vmax=1)
        axes[1][place].imshow(array(masks[place]), cmap="gray", vmin=0, vmax=int(masks.max()))
        title = "bent" if place else "as it is"
        axes[0][place].set_title(title, fontsize=9, color=INK)
        for one in axes[:, place]:
            bare(dress(one))
    for one, name in zip(axes[:, 0], ("image with lines", "its mask"), strict=True):
        one.set_ylabel(name, fontsize=SMALL, color=INK)
    return figure
