"""Pictures along a text: values above its characters, and the tokens predicted at each of them."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.patches import Rectangle
from torch import Tensor

from everynet.plot.style import (
    CONTRAST,
    INK,
    MAGNITUDE,
    OURS,
    SIGNED,
    array,
    dress,
    grid,
    symmetric,
)

WIDTH = 6.5  # inches
SMALL = 7  # points
_SIGNS = {" ": "\N{OPEN BOX}", "\n": "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}", "\t": "\u21e5"}


def drawable(token: str) -> str:
    """A token as it can be drawn: spaces have a sign, what the font lacks is a square."""
    font = get_font(findfont(FontProperties()))
    signs = [_SIGNS.get(c, c) for c in token]
    return "".join(c if font.get_char_index(ord(c)) else "\N{WHITE SQUARE}" for c in signs)


def values_over_text(
    values: Float[Tensor, "rows tokens"],
    text: Sequence[str],
    *,
    rows: Sequence[str],
    unit: str = "",
) -> Figure:
    """A row of signed colours for each name, with the text beneath."""
    drawn = Figure(figsize=(WIDTH, 1.1 + 0.24 * len(values)), layout="constrained")
    axes = dress(drawn.add_subplot())
    low, high = symmetric(values)
    image = axes.imshow(array(values), cmap=SIGNED, vmin=low, vmax=high, aspect="auto")
    axes.set_yticks(range(len(rows)), rows, fontsize=SMALL)
    for edge in range(1, len(rows)):
        axes.axhline(edge - 0.5, color="white", linewidth=2)
    label_tokens(axes, text)
    bar = drawn.colorbar(image, label=unit, pad=0.01, aspect=20)
    bar.ax.tick_params(labelsize=SMALL)
    return drawn


def predicted_tokens(
    text: Sequence[str],
    given: Float[Tensor, " tokens"],
    candidates: Sequence[Sequence[str]],
    probabilities: Float[Tensor, "tokens ranks"],
) -> Figure:
    """The probability that each token had before it came, over the likeliest ones at its place.

    A frame marks the candidate that came.
    """
    shares = array(probabilities)
    drawn = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    top, below = (dress(axes) for axes in drawn.subplots(2, 1, height_ratios=(1, 1), sharex=True))
    top.bar(range(len(text)), array(given), color=OURS, width=0.8)
    top.set(ylim=(0, 1), ylabel="probability of\nwhat came")
    grid(top)
    image = below.imshow(shares.T, cmap=MAGNITUDE, vmin=0, vmax=1, aspect="auto")
    for column, (came, ranked) in enumerate(zip(text, candidates, strict=True)):
        for row, token in enumerate(ranked):
            ink = INK if shares[column, row] > 0.6 else "white"
            below.text(
                column, row, drawable(token), parse_math=False, ha="center", va="center",
                fontsize=SMALL, color=ink,
            )  # fmt: skip
            if token == came:
                frame = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, clip_on=False)
                frame.set(edgecolor=CONTRAST, linewidth=1.6)
                below.add_patch(frame)
    ranks = range(shares.shape[1])
    below.set_yticks(ranks, [str(rank + 1) for rank in ranks])
    below.set_ylabel("likeliest, by rank")
    below.tick_params(labelsize=SMALL)
    top.tick_params(labelsize=SMALL, labelbottom=False)
    label_tokens(below, text)
    bar = drawn.colorbar(image, ax=[top, below], label="probability", pad=0.01, aspect=30)
    bar.ax.tick_params(labelsize=SMALL)
    return drawn


def label_tokens(axes: Axes, tokens: Sequence[str]) -> None:
    """The text on the axis across; words are turned."""
    axes.set_xticks(range(len(tokens)), [drawable(token) for token in tokens], parse_math=False)
    axes.tick_params(axis="x", length=0, labelsize=SMALL, pad=2)
    if max(map(len, tokens), default=0) > 1:
        axes.tick_params(axis="x", labelrotation=90)
    axes.set_xlabel("held-out text")
