"""What a class token reads of the patches of an image, and how alike learned positions are."""

from __future__ import annotations

from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.images import mosaic
from everynet.plot.style import INK, MAGNITUDE, SIGNED, array, bare, dress

MOST = 12  # layers and heads that are drawn
GAP, LEAST = 2, 32  # pixels between tiles, and of an enlarged tile


def draw_class_attention(
    image: Float[Tensor, "channels height width"],
    weights: Float[Tensor, "layers heads rows columns"],
) -> Figure:
    """The image, and beside it a map of patches for each layer (down) and head (across)."""
    weights = weights[:MOST, :MOST]
    layers, heads, rows, columns = weights.shape
    tall = layers * 4.4 / heads * rows / columns + 0.8
    made = Figure(figsize=(6.5, min(8.0, max(2.2, tall))), layout="constrained")
    left, right = made.subplots(1, 2, width_ratios=[1.3, 4.4])
    low, high = image.min(), image.max()
    pixels = array(((image - low) / (high - low).clamp(min=1e-12)).permute(1, 2, 0))
    left.imshow(pixels[..., 0] if len(image) == 1 else pixels, cmap="gray", vmin=0, vmax=1)
    left.set_title("image", color=INK, fontsize="medium")
    left.set_xlabel(f"{rows} x {columns} patches", fontsize="small")
    bare(left)
    _draw_tiles(right, weights, MAGNITUDE, (0.0, float(weights.max())), "attention to a patch")
    right.set(xlabel="head", ylabel="layer")
    right.set_title("what the class token reads", color=INK, fontsize="medium")
    return made


def draw_similarity(similarity: Float[Tensor, "rows columns rows columns"]) -> Figure:
    """A tile for each patch, where it lies in the image: its cosine with every patch."""
    rows, columns = similarity.shape[:2]
    made = Figure(figsize=(5.0, min(7.0, max(2.2, 4.0 * rows / columns + 0.5))))
    made.set_layout_engine("constrained")
    axes = made.add_subplot()
    _draw_tiles(axes, similarity, SIGNED, (-1.0, 1.0), "cosine with the position of a patch")
    axes.set(xlabel="column of the patch", ylabel="row of the patch")
    return made


def _draw_tiles(
    axes: Axes,
    values: Float[Tensor, "down across rows columns"],
    cmap: Colormap,
    limits: tuple[float, float],
    label: str,
) -> None:
    """Maps below and beside each other on one scale, counted on both axes."""
    down, across, rows, columns = values.shape
    scale = -(-LEAST // max(rows, columns))
    tiles = values.reshape(-1, 1, rows, columns)
    tiles = tiles.repeat_interleave(scale, 2).repeat_interleave(scale, 3)
    pixels = mosaic(tiles, across, gap=(GAP, GAP))[..., 0].numpy()
    low, high = limits
    drawn = axes.imshow(pixels, cmap=cmap, vmin=low, vmax=high, interpolation="nearest")
    dress(axes)
    x, y = (
        [GAP + n * (side * scale + GAP) + side * scale / 2 for n in range(count)]
        for count, side in ((across, columns), (down, rows))
    )
    axes.set_xticks(x, [str(n + 1) for n in range(across)])
    axes.set_yticks(y, [str(n + 1) for n in range(down)])
    axes.tick_params(length=0, labelsize="small")
    for spine in axes.spines.values():
        spine.set_visible(False)
    assert axes.figure is not None  # it was made with one
    bar = axes.figure.colorbar(drawn, ax=axes, aspect=25, pad=0.02)
    bar.set_label(label, fontsize="small")
    bar.ax.tick_params(labelsize="small")
    bar.outline.set_visible(False)
