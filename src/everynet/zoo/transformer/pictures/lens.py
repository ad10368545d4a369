"""What each layer of a language model would say next, at every token of a text."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from everynet.plot.style import CONTRAST, INK, MAGNITUDE, array, dress
from everynet.plot.text import SMALL, WIDTH, drawable, label_tokens


def draw_lens(
    text: Sequence[str],
    said: Sequence[Sequence[str]],
    probabilities: Float[Tensor, "layers tokens"],
    right: Bool[Tensor, "layers tokens"],
) -> Figure:
    """The likeliest next token after each layer, coloured by its probability; right is framed."""
    shares, longest = array(probabilities), max(len(token) for row in said for token in row)
    turned = longest > 2
    drawn = Figure(
        figsize=(WIDTH, 1.2 + (0.5 if turned else 0.24) * len(said)), layout="constrained"
    )
    axes = dress(drawn.add_subplot())
    image = axes.imshow(shares, cmap=MAGNITUDE, vmin=0, vmax=1, aspect="auto")
    for row, names in enumerate(said):
        for column, token in enumerate(names):
            axes.text(
                column, row, drawable(token[:8]), parse_math=False, ha="center", va="center",
                fontsize=SMALL, color=INK if shares[row, column] > 0.6 else "white",
                rotation=90 if turned else 0,
            )  # fmt: skip
            if right[row, column]:
                frame = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, clip_on=False)
                frame.set(edgecolor=CONTRAST, linewidth=1.4)
                axes.add_patch(frame)
    rows = ["embedding", *(f"layer {n}" for n in range(1, len(said)))]
    axes.set_yticks(range(len(rows)), rows, fontsize=SMALL)
    label_tokens(axes, text)
    bar = drawn.colorbar(image, label="probability", pad=0.01, aspect=20)
    bar.ax.tick_params(labelsize=SMALL)
    return drawn
