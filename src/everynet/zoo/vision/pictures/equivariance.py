"""What becomes of feature maps where the image is turned."""

from __future__ import annotations

from collections.abc import Mapping

from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import INK, MAGNITUDE, array, bare, colour, dress

SMALL = 8  # points


def turned_maps(
    images: Float[Tensor, "2 channels height width"],
    layers: Mapping[str, Float[Tensor, "2 4 _ _"]],
    *,
    moves: tuple[bool, ...],
) -> Figure:
    """Two rows for each layer: four maps of an image, and those of the image turned by 90 degrees.

    Where the maps of a layer move, one that went to the next place keeps the colour of its frame.
    """
    made = Figure(figsize=(6.5, 2.9 * len(layers)), layout="constrained")
    axes = made.subplots(2 * len(layers), 5, squeeze=False)
    for number, ((name, maps), moving) in enumerate(zip(layers.items(), moves, strict=True)):
        high = max(float(maps.max()), 1e-12)
        for turn in range(2):
            first, *rest = axes[2 * number + turn]
            pixels = images[turn] if len(images[turn]) in (1, 3) else images[turn].mean(0)[None]
            first.imshow(array(pixels.movedim(0, -1)), cmap="gray", interpolation="nearest")
            first.set_ylabel(("image", "turned by 90")[turn], fontsize=SMALL, color=INK)
            bare(dress(first))
            for place, one in enumerate(rest):
                drawn = array(maps[turn, place])
                one.imshow(drawn, cmap=MAGNITUDE, vmin=0, vmax=high, interpolation="nearest")
                bare(dress(one))
                if moving:
                    _framed(one, colour((place - turn) % 4))
                label = f"{90 * place} degrees" if moving else f"filter {place + 1}"
                one.set_xlabel(label, fontsize=SMALL, color=INK)
        axes[2 * number][2].set_title(name, fontsize=SMALL + 1, color=INK, loc="left")
    return made


def _framed(axes: Axes, ink: str) -> None:
    for spine in axes.spines.values():
        spine.set_visible(True)
        spine.set_color(ink)
        spine.set_linewidth(2.2)
