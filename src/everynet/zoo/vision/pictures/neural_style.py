"""Pictures beside each other as they are, and Gram matrices layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import INK, MAGNITUDE, WRONG, array, bare, escape_dollars, figure

WIDTH = 6.5  # inches of a whole picture
LINE, GAP = 0.24, 0.06  # inches that a line of text takes, and the space between rows
MOST = 32  # feature maps of a Gram matrix that are drawn

Image = Float[Tensor, "channels height width"]


def picture_table(
    rows: Sequence[tuple[str, Sequence[tuple[str, Image]]]],
    *,
    title: str = "",
    wrong: Sequence[bool] = (),
) -> Figure:
    """Rows of pictures from 0 to 1: a name at the left of each row, and one above each picture.

    In the last row those that are `wrong` have a red name.
    """
    across = max(len(row) for _, row in rows)
    _, height, width = rows[0][1][0][1].shape
    named, titled = any(name for name, _ in rows), [any(t for t, _ in row) for _, row in rows]
    tile = (WIDTH - LINE * named) / across
    tall = len(rows) * (tile * height / width + GAP) + LINE * (sum(titled) + bool(title))
    made = figure(WIDTH, tall, len(rows), across)
    spaces = iter(made.axes)
    for name, row in rows:
        for place in range(across):
            axes = next(spaces)
            bare(axes)
            if place >= len(row):
                continue
            name_above, image = row[place]
            pixels = array(image.clamp(0, 1).permute(1, 2, 0))
            axes.imshow(pixels[..., 0] if len(image) == 1 else pixels, cmap="gray", vmin=0, vmax=1)
            ink = WRONG if row is rows[-1][1] and any(wrong[place : place + 1]) else INK
            axes.set_title(escape_dollars(name_above), fontsize=8, color=ink)
            if place == 0:
                axes.set_ylabel(escape_dollars(name), fontsize=8, color=INK)
    if title:
        made.suptitle(title, fontsize="medium", color=INK)
    return made


def gram_matrices(
    rows: Mapping[str, Sequence[Float[Tensor, "_maps _maps"]]], layers: Sequence[str]
) -> Figure:
    """Gram matrices of several pictures, a row each, layer by layer from left to right.

    The colours of a column are those of its last row, so that matrices that are alike look alike;
    of a layer with many maps the first are drawn. Values are shown by their square roots.
    """
    across = len(layers)
    made = figure(WIDTH, (WIDTH - 0.9) / across * len(rows) + 0.8, len(rows), across)
    last = [*rows.values()][-1]
    tops = [float(g[:MOST, :MOST].abs().max().sqrt()) or 1.0 for g in last]
    for number, (name, matrices) in enumerate(rows.items()):
        for place, g in enumerate(matrices):
            axes = made.axes[number * across + place]
            part = g[:MOST, :MOST].abs().sqrt() / tops[place]
            image = axes.imshow(array(part), cmap=MAGNITUDE, vmin=0, vmax=1)
            bare(axes)
            if number == 0:
                maps = f"{len(part)} of {len(g)} maps" if len(g) > MOST else f"{len(g)} maps"
                axes.set_title(f"{layers[place]}\n{maps}", fontsize=8, color=INK)
            if place == 0:
                axes.set_ylabel(name, fontsize=8, color=INK)
    bar = made.colorbar(image, ax=made.axes, aspect=30, pad=0.02, shrink=0.9)
    bar.set_label("square root of G, 1: largest of the style", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    bar.outline.set_visible(False)
    return made
