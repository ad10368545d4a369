"""What an attack does to images: each beside its change and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.panels import Panel, panels
from everynet.plot.style import INK, OURS, SIGNED, WRONG, bare, figure, symmetric

ROWS = ("image", "change", "attacked")


def attacked(
    images: Float[Tensor, "samples channels height width"],
    changed: Float[Tensor, "samples channels height width"],
    *,
    before: Sequence[str],
    after: Sequence[str],
    title: str = "",
) -> Figure:
    """A column for each image: itself, the change (red lighter, blue darker), and the sum.

    Pixels are from 0 to 1; what a network said of each stands above it, red where the attack made
    it another class; a probability follows behind two spaces. The change of several channels is
    shown as its mean.
    """
    images, changed = images.detach().cpu().double(), changed.detach().cpu().double()
    change = (changed - images).mean(1)
    low, high = symmetric(change)
    made = figure(1.25 * len(images) + 0.8, 4.2, 3, len(images))
    for index, axes in enumerate(made.axes):
        row, column = divmod(index, len(images))
        bare(axes)
        if column == 0:
            axes.set_ylabel(ROWS[row], color=INK, fontsize="medium")
        if row == 1:
            shown = axes.imshow(change[column].numpy(), cmap=SIGNED, vmin=low, vmax=high)
            continue
        pixels = (images, changed)[row // 2][column]
        pixels = pixels if len(pixels) in (1, 3) else pixels.mean(0, keepdim=True)
        axes.imshow(torch.movedim(pixels, 0, -1).numpy(), cmap="gray", vmin=0, vmax=1)
        said = (before, after)[row // 2][column]
        same = said.partition("  ")[0] == before[column].partition("  ")[0]
        axes.set_title(said, color=OURS if same else WRONG, fontsize="small")
    bar = made.colorbar(shown, ax=made.axes[len(images) : 2 * len(images)], aspect=10, pad=0.02)
    bar.set_label("change of a pixel", fontsize="small")
    bar.ax.tick_params(labelsize="small")
    bar.outline.set_visible(False)
    made.suptitle(title, color=INK, fontsize="medium")
    return made


def robustness(
    sizes: Float[Tensor, " sizes"], curves: Mapping[str, Float[Tensor, " sizes"]], eps: float
) -> Figure:
    """Accuracy by the size of the change, a curve for each attack, and the size that counts."""
    panel = Panel(
        {name: (sizes, accuracy) for name, accuracy in curves.items()},
        xlabel="largest change of a pixel (1: black to white)",
        ylabel="accuracy",
        marks={"eps": eps},
        ylim=(-0.03, 1.03),
    )
    return panels(panel)
