"""Pictures of boxes: beside the truth, and how a network comes to them."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from torch import Tensor

from everynet.plot.style import INK, MAGNITUDE, array, bare, colour, dress

SMALL = 8  # points
TRUE, FOUND = colour(0), colour(1)


def predicted_boxes(
    images: Float[Tensor, "samples channels height width"],
    true: Float[Tensor, "samples 4"],
    found: Float[Tensor, "samples 4"],
    *,
    captions: Sequence[str],
    title: str = "",
    columns: int = 5,
) -> Figure:
    """Images with both boxes; edges are left, top, right, bottom as parts of the image."""
    rows = -(-len(images) // columns)
    figure = Figure(figsize=(6.5, 1.55 * rows + 0.65), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).flatten()
    for place, axes in enumerate(grid):
        if place >= len(images):
            axes.remove()
            continue
        _image(axes, images[place])
        for edges, ink in ((true[place], TRUE), (found[place], FOUND)):
            _box(axes, edges, images.shape[-2:], ink, 1.6)
        axes.set_title(captions[place], fontsize=SMALL, color=INK, pad=3)
    lines = [Line2D([], [], color=ink, label=n) for n, ink in (("true", TRUE), ("found", FOUND))]
    figure.legend(handles=lines, loc="outside lower center", ncols=2, fontsize=SMALL, frameon=False)
    figure.suptitle(title, fontsize="medium", color=INK)
    return figure


def attention_boxes(
    images: Float[Tensor, "samples channels height width"],
    attention: Float[Tensor, "samples rows columns"],
    proposed: Float[Tensor, "samples 4 rows columns"],
    found: Float[Tensor, "samples 4"],
    *,
    most: int = 8,
) -> Figure:
    """A column for each image: where it is looked at, and the boxes of the places that count."""
    count, size = len(images), images.shape[-2:]
    figure = Figure(figsize=(6.5, 6.1 / count * 2 + 0.2), layout="constrained")
    axes = figure.subplots(2, count, squeeze=False)
    for place in range(count):
        above, below = axes[:, place]
        drawn = above.imshow(
            array(attention[place]), cmap=MAGNITUDE, vmin=0, vmax=float(attention.max()),
            extent=(0, size[1], size[0], 0), interpolation="nearest",
        )  # fmt: skip
        bare(dress(above))
        _image(below, images[place])
        weights = attention[place].flatten()
        chosen = weights.argsort(descending=True)[:most]
        for spot in chosen.tolist():
            share = float(weights[spot] / weights.max())
            edges = proposed[place].flatten(1)[:, spot]
            _box(below, edges, size, colour(5), 1.0, alpha=max(0.6, share))
        _box(below, found[place], size, FOUND, 1.8)
    axes[0][0].set_ylabel("where it looks", fontsize=SMALL, color=INK)
    axes[1][0].set_ylabel(f"boxes of the {most} first places", fontsize=SMALL, color=INK)
    bar = figure.colorbar(drawn, ax=axes[0], aspect=12, pad=0.01)
    bar.set_label("share of the attention", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
    bar.outline.set_visible(False)
    return figure


def _image(axes: Axes, image: Float[Tensor, "channels height width"]) -> None:
    pixels = image.clamp(0, 1) if len(image) in (1, 3) else image.clamp(0, 1).mean(0)[None]
    axes.imshow(
        array(pixels.movedim(0, -1)), cmap="gray", vmin=0, vmax=1, interpolation="nearest",
        extent=(0, image.shape[2], image.shape[1], 0),
    )  # fmt: skip
    bare(dress(axes))


def _box(  # noqa: PLR0917 -- what a rectangle is
    axes: Axes,
    edges: Tensor,
    size: Sequence[int],
    ink: str,
    width: float,
    alpha: float = 1.0,
) -> None:
    left, top, right, bottom = edges.tolist()
    high, wide = size
    axes.add_patch(
        Rectangle(
            (left * wide, top * high), (right - left) * wide, (bottom - top) * high,
            fill=False, edgecolor=ink, linewidth=width, alpha=alpha,
        )
    )  # fmt: skip
