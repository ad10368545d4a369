"""Pictures of membranes: a network beside a threshold, and what training sees of one image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Int
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torch import Tensor

from everynet.plot.style import CYCLE, INK, array, bare, dress

SMALL = 8  # points
MISSED, MADE_UP = CYCLE[0], "#e8112d"
Images = Float[Tensor, "samples height width"]
Masks = Int[Tensor, "samples height width"]


def membranes(
    images: Images, true: Masks, said: Mapping[str, Masks], classes: Sequence[str]
) -> Figure:
    """Each row an image from 0 to 1, its truth, and what each way says, its mistakes in colour.

    Class 0 is dark; blue are its pixels that were missed, red those that were made up.
    """
    rows, columns = len(images), 2 + len(said)
    made = Figure(figsize=(6.5, 6.5 / columns * rows + 0.95), layout="constrained")
    axes = made.subplots(rows, columns, squeeze=False)
    for row, line in enumerate(axes):
        line[0].imshow(array(images[row]), cmap="gray", vmin=0, vmax=1)
        line[1].imshow(array(true[row]), cmap="gray", vmin=0, vmax=1)
        for place, masks in zip(line[2:], said.values(), strict=True):
            place.imshow(array(mistaken(true[row], masks[row])), interpolation="nearest")
            wrong = (masks[row] != true[row]).double().mean().item()
            place.set_xlabel(f"{wrong:.1%} wrong", fontsize=SMALL, color=INK)
        for place, name in zip(line, ["image", "truth", *said], strict=True):
            bare(dress(place))
            if row == 0:
                place.set_title(name, fontsize=9, color=INK)
    names = {
        MISSED: f"{classes[0]} that was missed",
        MADE_UP: f"{classes[0]} that is none",
        "#000000": f"{classes[0]}, right",
    }
    made.legend(
        handles=[Patch(facecolor=shade, label=name) for shade, name in names.items()],
        loc="outside lower center", ncols=3, fontsize=SMALL, frameon=False,
    )  # fmt: skip
    return made


def mistaken(
    true: Int[Tensor, "height width"], said: Int[Tensor, "height width"]
) -> Float[Tensor, "height width 3"]:
    """What was said, black and white, with what was missed and made up of black in colour."""
    pixels = said.double()[..., None].repeat(1, 1, 3)
    for wrong, shade in (((true == 0) & (said != 0), MISSED), ((true != 0) & (said == 0), MADE_UP)):
        pixels[wrong] = torch.tensor(to_rgb(shade), dtype=pixels.dtype)
    return pixels


def bent_windows(images: Images, masks: Masks) -> Figure:
    """Windows side by side, their masks below; the first is as it is, the others are bent."""
    count = len(images)
    made = Figure(figsize=(6.5, 6.5 / count * 2 + 0.3), layout="constrained")
    axes = made.subplots(2, count, squeeze=False)
    for place in range(count):
        axes[0][place].imshow(array(images[place]), cmap="gray", vmin=0, vmax=1)
        axes[1][place].imshow(array(masks[place]), cmap="gray", vmin=0, vmax=int(masks.max()))
        title = "bent" if place else "as it is"
        axes[0][place].set_title(title, fontsize=9, color=INK)
        for one in axes[:, place]:
            bare(dress(one))
    for one, name in zip(axes[:, 0], ("image with lines", "its mask"), strict=True):
        one.set_ylabel(name, fontsize=SMALL, color=INK)
    return made
