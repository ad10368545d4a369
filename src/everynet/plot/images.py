"""Pictures made of pictures: samples, filters, activation maps, and what was taken for what.

Many small images go into one pair of axes as a mosaic, which draws in a tenth of the time that
one pair of axes for each would take. Images with one channel are grey, with three in colour;
values with a sign are blue below zero, white at zero and red above it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor
from torch.nn.functional import pad

from everynet.plot.style import (
    FAINT,
    INK,
    LEAST,
    MAGNITUDE,
    OURS,
    SIGNED,
    WIDTH,
    WRONG,
    bare,
    dress,
    figure,
    symmetric,
    wrapped,
)

LINE = 0.17  # inches that one line of a caption takes
GAP = 3  # pixels between enlarged tiles, whose sides are at least 24
KEPT = 0.995  # the share of weights whose size the colours of filters tell apart


def image_grid(
    images: Float[Tensor, "samples channels height width"],
    *,
    captions: Sequence[str] = (),
    columns: int = 8,
    title: str = "",
) -> Figure:
    """Images side by side on one common scale, each with its caption above it."""
    return _captioned(_brightness(images), captions, columns, title)


def misclassified(
    images: Float[Tensor, "samples channels height width"] | Callable[[Tensor], Tensor],
    predicted: Int[Tensor, " samples"],
    true: Int[Tensor, " samples"],
    probability: Float[Tensor, " samples"],
    *,
    classes: Sequence[str],
    split: str = "",
    most: int = 18,
    columns: int = 6,
) -> Figure:
    """The samples whose class was missed, the surest first, with both classes and probability.

    All samples are given, `probability` being that of the predicted class; of many images, what
    gives those of some rows. Where fewer were missed than a row holds, the least sure of those that
    were right follow.
    """
    missed = predicted != true
    wrong, right = missed.nonzero().flatten(), (~missed).nonzero().flatten()
    wrong = wrong[probability[wrong].argsort(descending=True, stable=True)]
    right = right[probability[right].argsort(stable=True)]
    title = f"{len(wrong):,} of {len(true):,} {split} samples missed".replace("  ", " ")
    if len(wrong) > most:
        title += f"; the {most} surest"
    elif len(wrong) < columns:
        title += "; then the least sure that were right"
    shown = torch.cat([wrong[:most], right[: max(0, columns - len(wrong))]])
    captions = [
        f"{classes[int(predicted[i])]}  {_percent(float(probability[i]))}\n"
        + (f"true: {classes[int(true[i])]}" if missed[i] else "right")
        for i in shown
    ]
    colours = [WRONG if missed[i] else OURS for i in shown]
    chosen = images[shown] if isinstance(images, Tensor) else images(shown)
    return _captioned(_brightness(chosen), captions, columns, title, colours)


def filters(
    weight: Float[Tensor, "out in height width"], *, most: int = 32, title: str = "filters"
) -> Figure:
    """The kernels of a convolution, one scale for all; at most the first `most` of either axis.

    Those on one channel are signed, those on three are colours with grey at zero; otherwise
    each filter is a column with one signed kernel for each channel it looks at. The few largest
    weights are drawn as strong as the scale goes, because they would make all others pale.
    """
    weight = weight.detach().cpu()
    outputs, inputs, height, width = weight.shape
    title = f"{title}: {outputs} of {height} x {width}"
    title += f", the first {most}" if outputs > most else ""
    sizes = weight.abs().flatten()
    low, high = symmetric(sizes.kthvalue(math.ceil(KEPT * (len(sizes) - 1)) or 1).values)
    beyond = bool((weight.abs() > high).any())
    weight = _enlarged(weight[:most, :most])
    if inputs == 3:
        made = _captioned((weight / (2 * high) + 0.5).clamp(0, 1), (), 8, title)
        more = " or more" if beyond else ""
        said = f"grey is 0, the strongest colour {high:.2g}{more}"
        made.axes[0].set_xlabel(said, fontsize="small")
        return made
    columns = min(8, outputs) if inputs == 1 else len(weight)
    kernels = weight if inputs == 1 else weight.transpose(0, 1).reshape(-1, 1, *weight.shape[2:])
    rows = math.ceil(len(kernels) / columns)
    tile = min(0.7, (WIDTH - 0.9) / columns)  # inches
    made = figure(columns * tile + 0.9, max(rows * tile + 0.4, 1.3))
    axes = made.axes[0]
    tiles = mosaic(kernels, columns, gap=(GAP, GAP))[..., 0]
    image = axes.imshow(tiles.numpy(), cmap=SIGNED, vmin=low, vmax=high, interpolation="nearest")
    _frame(axes, kernels, columns)
    bare(axes)
    if inputs > 1:
        axes.set_xlabel("filter", fontsize="small")
        axes.set_ylabel("input channel", fontsize="small")
    axes.set_title(title, color=INK, fontsize="medium")
    bar = made.colorbar(image, ax=axes, aspect=12, pad=0.02, extend="both" if beyond else "neither")
    bar.set_label("weight", fontsize="small")
    bar.ax.tick_params(labelsize="small")
    bar.outline.set_visible(False)
    return made


def activation_maps(
    image: Float[Tensor, "channels height width"],
    layers: Mapping[str, Float[Tensor, "*axes"]],  # channels height width, or units
    *,
    classes: Sequence[str] = (),
    columns: int = 16,
    most: int = 32,
    title: str = "input",
) -> Figure:
    """The activations of each layer for one image: rows of maps, a strip for a vector.

    At most `most` maps of a layer are drawn, as large as the page allows. The scale of a layer is
    its own: its limits stand beside its name. A vector of as many units as there are `classes`
    is what the network answers: bars beside the image, with their names.
    """
    answers = {
        name: values
        for name, values in layers.items()
        if values.dim() == 1 and len(values) == len(classes)
    }
    rest = {name: values for name, values in layers.items() if name not in answers}
    heights = [1.35, *(_room(values, columns, most)[1] + 0.24 for values in rest.values())]
    made = Figure(figsize=(WIDTH, sum(heights) + 0.1), layout="constrained")
    spec = made.add_gridspec(len(heights), 1, height_ratios=heights)
    top = spec[0].subgridspec(1, 1 + len(answers), width_ratios=[1.4, *[5.0] * len(answers)])
    first = made.add_subplot(top[0], anchor="W")
    pixels = _brightness(image[None])[0].permute(1, 2, 0)
    first.imshow(_drawable(pixels).numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    first.set_title(wrapped(title, 1.6), color=INK, loc="left")
    bare(first)
    for row, (name, values) in enumerate(rest.items()):
        _layer(made.add_subplot(spec[1 + row], anchor="W"), name, values, columns, most)
    for column, (name, values) in enumerate(answers.items()):
        _answer(dress(made.add_subplot(top[1 + column])), name, values, classes)
    return made


def _answer(
    axes: Axes, name: str, values: Float[Tensor, " classes"], classes: Sequence[str]
) -> None:
    """A bar for each class, named where there is room."""
    shown = values.detach().cpu()
    best = int(shown.argmax())
    inks = [OURS if index == best else FAINT for index in range(len(shown))]
    axes.bar(range(len(shown)), shown.numpy(), color=inks, width=0.8)
    if len(classes) <= 20:
        axes.set_xticks(range(len(classes)), classes, fontsize="small")
        if sum(map(len, classes)) > 45:
            for label in axes.get_xticklabels():
                label.set(rotation=35, ha="right", rotation_mode="anchor")
    axes.tick_params(axis="x", length=0)
    axes.set_title(f"{name}: highest for {classes[best]}", loc="left", color=INK)


def mosaic(
    images: Float[Tensor, "tiles channels height width"],
    columns: int,
    *,
    gap: tuple[int, int] = (1, 1),
) -> Float[Tensor, "rows columns channels"]:
    """The images beside and below each other, `gap` pixels of nothing (NaN) above and left of each.

    The first row and column of pixels of the whole are gaps too.
    """
    empty = -len(images) % columns
    down, right = gap
    tiles = pad(images.detach().cpu(), (right, 0, down, 0), value=torch.nan)
    tiles = torch.cat([tiles, tiles.new_full((empty, *tiles.shape[1:]), torch.nan)])
    _, channels, height, width = tiles.shape
    grid = tiles.reshape(-1, columns, channels, height, width)
    return grid.permute(0, 3, 1, 4, 2).reshape(-1, columns * width, channels)


def _brightness(images: Tensor) -> Tensor:
    """The same images between 0 and 1, on one scale for all."""
    if images.shape[1] not in (1, 3):
        raise ValueError(
            f"images ({images.shape[1]} channels) must have 1 channel (grey) or 3 (colour), "
            "because no other number has a colour; draw one channel at a time"
        )
    images = images.detach().cpu().double()
    low, high = images.amin(), images.amax()
    return (images - low) / (high - low).clamp(min=1e-12)


def _drawable(pixels: Tensor) -> Tensor:
    """The pixels for imshow: one channel without its axis, three with transparent gaps."""
    if pixels.shape[-1] == 1:
        return pixels[..., 0]
    opaque = pixels.isfinite().all(-1, keepdim=True)
    return torch.cat([pixels.nan_to_num(0.0), opaque.to(pixels.dtype)], -1)


def _captioned(
    images: Tensor,
    captions: Sequence[str],
    columns: int,
    title: str,
    colours: Sequence[str] = (),
) -> Figure:
    """Images between 0 and 1 in a mosaic whose gaps leave room for captions.

    A caption may have two lines; the upper one is drawn in the colour of its image.
    """
    count, _, height, width = images.shape
    columns = max(1, min(columns, count))
    rows = math.ceil(count / columns)
    lines = max((caption.count("\n") + 1 for caption in captions), default=0)
    right = max(1, round(width * (0.16 if lines else 0.06)))
    most = (WIDTH - 0.1) / columns * width / (width + right)  # inches that a page has for one
    tile = min(1.15 if lines else 0.8, most)
    down = max(1, math.ceil(height * (lines * LINE + 0.06) / tile))
    tall = tile * (height + down) / height
    made = figure(
        columns * tile * (width + right) / width + 0.1, rows * tall + (0.4 if title else 0.15)
    )
    letters = int(tile * (width + right) / width * 72 / (0.52 * LEAST))
    axes = made.axes[0]
    pixels = _drawable(mosaic(images, columns, gap=(down, right)))
    axes.imshow(pixels.numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set_xlim(right - 0.5, pixels.shape[1] - 0.5)
    for index, caption in enumerate(captions):
        row, column = divmod(index, columns)
        x = column * (width + right) + right + width / 2 - 0.5
        y = row * (height + down) + down - 0.5 - 0.02 * height
        head, _, rest = caption.partition("\n")
        head, rest = _short(head, letters), _short(rest, letters)
        axes.text(x, y, rest or head, ha="center", va="bottom", fontsize=LEAST, color=INK)
        if rest:
            above, ink = y - height * LINE / tile, colours[index] if colours else INK
            axes.text(x, above, head, ha="center", va="bottom", fontsize=LEAST, color=ink)
    axes.set_title(title, color=INK, fontsize="medium")
    bare(axes)
    return made


def _short(line: str, most: int) -> str:
    """At most so many letters; what stands behind two spaces, a number, is kept."""
    name, gap, number = line.partition("  ")
    room = most - len(gap) - len(number)
    return (
        line
        if len(name) <= room
        else name[: max(1, room - 1)] + "\N{HORIZONTAL ELLIPSIS}" + gap + number
    )


def _percent(probability: float) -> str:
    """A probability as text that says no certainty where there is none."""
    return ">99%" if 0.995 <= probability < 1 else f"{probability:.0%}"


def _enlarged(images: Tensor, least: int = 24) -> Tensor:
    """Small images with each pixel repeated, so that the gap between tiles is narrow."""
    times = math.ceil(least / images.shape[-1])
    return images.repeat_interleave(times, -1).repeat_interleave(times, -2)


def _frame(axes: Axes, tiles: Tensor, columns: int) -> None:
    """A faint line around each tile of a mosaic, so that white pixels have an edge."""
    height, width = tiles.shape[-2:]
    for index in range(len(tiles)):
        row, column = divmod(index, columns)
        corner = (column * (width + GAP) + GAP - 0.5, row * (height + GAP) + GAP - 0.5)
        axes.add_patch(Rectangle(corner, width, height, fill=False, edgecolor=FAINT, linewidth=0.6))


def _tiles(values: Tensor, most: int) -> int:
    return min(len(values), most) if values.dim() == 3 else 1


def _room(values: Tensor, columns: int, most: int) -> tuple[int, float]:
    """How many tiles of a layer stand side by side, and how high all of it is, in inches."""
    if values.dim() != 3:
        return 1, 0.2
    count = _tiles(values, most)
    across = min(columns, count)
    tile = min(0.8, (WIDTH - 0.1) / across) * values.shape[1] / values.shape[2]
    return across, math.ceil(count / across) * tile


def _layer(axes: Axes, name: str, given: Tensor, columns: int, most: int) -> None:
    values = given.detach().cpu()
    low, high = float(values.min()), float(values.max())
    cmap, limits = (SIGNED, symmetric(values)) if low < 0 else (MAGNITUDE, (0.0, max(high, 1e-12)))
    if values.dim() == 3:
        count, height, width = values.shape
        tiles = mosaic(_enlarged(values[:most, None]), _room(values, columns, most)[0],
                       gap=(GAP, GAP))[..., 0]  # fmt: skip
        axes.imshow(
            tiles.numpy(), cmap=cmap, vmin=limits[0], vmax=limits[1], interpolation="nearest"
        )
        axes.set_xlim(GAP - 0.5, tiles.shape[1] - 0.5)
        what = f"{count} maps of {height} x {width}"
        what += f", the first {most}" if count > most else ""
    else:
        axes.imshow(values[None].numpy(), cmap=cmap, vmin=limits[0], vmax=limits[1], aspect="auto")
        what = f"{len(values)} units"
    text = f"{name}: {what}, {low:.2g} to {high:.2g}"
    axes.set_title(text, loc="left", color=INK, fontsize="small", pad=2)
    bare(axes)
