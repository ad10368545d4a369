"""Codes of images: what they stand for, where they lie, and what each of their numbers does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.images import mosaic
from everynet.plot.style import BASELINE, INK, OURS, SIGNED, WIDTH, bare, colour, figure, symmetric

NAMED = 1.1
"""Inches beside a row of images for its name."""
DOTS = 2000


def image_rows(
    rows: Mapping[str, Float[Tensor, "images channels height width"]],
    *,
    signed: bool = False,
    xlabel: str = "",
) -> Figure:
    """Rows of images by name, one below another; signed ones on one scale that is white at 0."""
    first = next(iter(rows.values()))
    count, _, height, width = first.shape
    tile = (WIDTH - NAMED) / max(count, 8)
    made = figure(
        count * tile + NAMED, len(rows) * tile * height / width + (0.4 if xlabel else 0.15)
    )
    axes = made.axes[0]
    _tiles(axes, torch.cat([*rows.values()]), count, signed=signed)
    centres = [1 + height / 2 + row * (height + 1) - 0.5 for row in range(len(rows))]
    axes.set_yticks(centres, [*rows], fontsize="small")
    if signed:
        most = symmetric(torch.cat([*rows.values()]))[1]
        xlabel = f"{xlabel}; the strongest colour is {most:.2g}"
    axes.set_xlabel(xlabel, fontsize="small")
    return made


def code_plane(
    codes: Float[Tensor, "rows 2"], y: Int[Tensor, " rows"], classes: Sequence[str]
) -> Figure:
    """Codes as dots in the colours of their classes, and beside them the names of these."""
    made = figure(4.6, 3.6)
    _dots(made.axes[0], codes, y, classes)
    made.axes[0].set(xlabel="first direction", ylabel="second direction")
    made.axes[0].legend(
        loc="center left", bbox_to_anchor=(1, 0.5), fontsize="small", frameon=False, markerscale=2
    )
    return made


def plane_of_codes(
    codes: Float[Tensor, "rows 2"],
    y: Int[Tensor, " rows"],
    classes: Sequence[str],
    images: Float[Tensor, "tiles channels height width"],
    places: Float[Tensor, " side"],
    *,
    axes: tuple[str, str],
) -> Figure:
    """Codes as dots in the colours of their classes, and images decoded at side x side places.

    The images are given by rows, the first row at the last of the places.
    """
    made = figure(WIDTH, 3.4, 1, 2)
    left, right = made.axes
    _dots(left, codes, y, classes)
    left.set(xlabel=axes[0], ylabel=axes[1], title="mean codes of validation images")
    left.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=5, fontsize="small", frameon=False,
        markerscale=2, handletextpad=0.1, columnspacing=0.8,
    )  # fmt: skip
    side = len(places)
    height, width = images.shape[2:]
    _tiles(right, images, side)
    shown = [0, side // 4, side // 2, 3 * side // 4, side - 1]
    text = [f"{float(places[place]):.1f}" for place in shown]
    right.set_xticks([(width + 1) * (place + 0.5) for place in shown], text, fontsize="small")
    right.set_yticks(
        [(height + 1) * (side - place - 0.5) for place in shown], text, fontsize="small"
    )
    right.set(xlabel=axes[0], ylabel=axes[1], title="what is decoded, in equal parts of the prior")
    return made


def unit_bars(
    nats: Float[Tensor, " units"],
    order: Int[Tensor, " shown"],
    images: Float[Tensor, "shown steps channels height width"],
    steps: Float[Tensor, " steps"],
) -> Figure:
    """Nats that each unit holds, the most first, and images as the first of them change."""
    shown, count, _, height, width = images.shape
    made = figure(WIDTH, max(2.4, 0.36 * shown + 0.5), 1, 2)
    left, right = made.axes
    left.bar(range(len(nats)), nats.numpy(), color=[OURS if n > 0.01 else BASELINE for n in nats])
    left.set(xlabel="units of the code, the most used first", ylabel="KL, nats an image")
    left.set_xticks([] if len(nats) > 12 else range(len(nats)))
    if len(nats) <= 12:
        left.set_xticklabels([str(int(unit)) for unit in order] + [""] * (len(nats) - shown))
    _tiles(right, images.flatten(0, 1), count)
    right.set_yticks(
        [(height + 1) * (row + 0.5) for row in range(shown)],
        [f"unit {int(unit)}" for unit in order],
        fontsize="small",
    )
    ends = [0, count // 2, count - 1]
    text = [f"{float(steps[place]):.0f}" for place in ends]
    right.set_xticks([(width + 1) * (place + 0.5) for place in ends], text, fontsize="small")
    right.set(xlabel="value of the unit", title="one unit changes, the others stay")
    return made


def _dots(axes: Axes, codes: Tensor, y: Tensor, classes: Sequence[str]) -> None:
    """A dot for each of at most `DOTS` codes; the colours of classes repeat after ten."""
    codes, y = codes[:DOTS], y[:DOTS]
    for number, name in enumerate(classes[:20]):
        its = codes[y == number].numpy()
        axes.scatter(its[:, 0], its[:, 1], s=5, color=colour(number), linewidths=0, label=name)


def _tiles(axes: Axes, images: Tensor, columns: int, *, signed: bool = False) -> None:
    """Images beside and below each other, without ticks."""
    pixels = mosaic(images.detach().cpu().double(), columns)
    bare(axes)
    axes.tick_params(length=0, labelcolor=INK)
    if signed:
        low, high = symmetric(images)
        axes.imshow(pixels[..., 0].numpy(), cmap=SIGNED, vmin=low, vmax=high, aspect="equal")
        return
    shown = pixels[..., 0] if pixels.shape[-1] == 1 else pixels.nan_to_num(1.0)
    axes.imshow(shown.clamp(0, 1).numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
