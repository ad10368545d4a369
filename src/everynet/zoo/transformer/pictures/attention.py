"""Masks as grids, codes of positions with their inner products, and what heads rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Float
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from torch import Tensor

from everynet.nn.positions import BASE
from everynet.plot.style import CONTRAST, OURS, SIGNED, array, figure, grid


def draw_masks(masks: Mapping[str, Bool[Tensor, "queries keys"]]) -> Figure:
    """Each mask as a grid, blue where a query (down) may read a key (across)."""
    made = figure(6.5, 2.1, 1, len(masks))
    for axes, (name, mask) in zip(made.axes, masks.items(), strict=True):
        axes.pcolormesh(
            array(mask), cmap=ListedColormap(["white", OURS]), edgecolors="#c8c8c8", linewidth=0.4
        )
        axes.set(title=name, xlabel="key", aspect="equal", xticks=[], yticks=[])
        axes.invert_yaxis()
    made.axes[0].set_ylabel("query")
    return made


def rests_on(
    layers: Sequence[Float[Tensor, "_ queries keys"]], places: Bool[Tensor, "queries keys"]
) -> float:
    """The share of its attention that a query has for these places, in the head with the most.

    It is a mean over the queries that have such a place.
    """
    some = places.any(1)
    return max(float((head * places).sum(1)[some].mean()) for heads in layers for head in heads)


def draw_positions(codes: Float[Tensor, "positions hidden"]) -> Figure:
    """The codes by colour, and their inner products by distance, beside those of a wrong form."""
    made = figure(6.5, 2.9, 1, 2)
    left, right = made.axes
    image = left.imshow(array(codes), cmap=SIGNED, vmin=-1, vmax=1, aspect="auto")
    left.set(xlabel="number of the code", ylabel="position $p$", title="codes PE($p$)")
    made.colorbar(image, ax=left, shrink=0.9, ticks=[-1, 0, 1]).ax.tick_params(labelsize="small")
    positions, size = codes.shape
    number = torch.arange(size)
    angle = torch.arange(positions).double()[:, None] / BASE ** (number / size)
    wrong = torch.where(number % 2 == 0, angle.sin(), angle.cos())
    steps = torch.arange(positions // 2)
    for form, ink, name in (
        (wrong, CONTRAST, "an angle for each, from three positions"),
        (codes, OURS, "one angle for a pair, from any position"),
    ):
        for p in (0, positions // 4, positions // 2 - 1):
            right.plot(
                array(steps), array(form[p : p + len(steps)] @ form[p]), color=ink, lw=1.4,
                label=name if p == 0 else None,
            )  # fmt: skip
    right.set(xlabel="distance $k$", ylabel="PE($p$) . PE($p + k$)", title="inner products")
    right.set_ylim(top=0.6 * size)  # room for the legend
    right.legend(frameon=False, fontsize="small", loc="upper right")
    grid(right)
    return made
