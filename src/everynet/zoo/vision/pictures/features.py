"""What drives a unit: the image made for it above those found for it."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import INK, array, bare, colour, dress

SMALL = 8  # points


def driven(
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
