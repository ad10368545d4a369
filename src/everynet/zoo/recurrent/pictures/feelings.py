"""Sentences and what a network makes of them: an answer after each word, words by their effect."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import INK, SIGNED, array, colour, dress, grid, symmetric
from everynet.plot.text import drawable

WIDTH = 6.5  # inches
SMALL = 7  # points
LETTERS = 86.0  # of a line
MOST = 30  # words of a sentence that are drawn


def along(sentences: Sequence[tuple[Sequence[str], Float[Tensor, " _"]]], *, ylabel: str) -> Figure:
    """One panel a sentence: a probability after each of its words, which stand on the axis."""
    drawn = Figure(figsize=(WIDTH, 2.3 * len(sentences)), layout="constrained")
    given = drawn.subplots(len(sentences), 1, squeeze=False).flatten()
    for axes, (words, values) in zip(given, sentences, strict=True):
        dress(axes)
        shown = [drawable(word) for word in words[:MOST]]
        axes.axhline(0.5, color=INK, linewidth=0.8, linestyle=":")
        axes.plot(array(values[:MOST]), "o-", color=colour(0), ms=4, lw=1.6)
        axes.set_xticks(range(len(shown)), shown, parse_math=False)
        if len(shown) > 11 or max(map(len, shown)) > 9:
            axes.tick_params(axis="x", labelrotation=50)
            for label in axes.get_xticklabels():
                label.set(ha="right", rotation_mode="anchor")
        axes.tick_params(axis="x", labelsize=SMALL + 1)
        axes.tick_params(axis="y", labelsize=SMALL)
        axes.set(ylim=(-0.03, 1.03), xlim=(-0.4, len(shown) - 0.6))
        axes.set_ylabel(f"{ylabel}\nafter each word", fontsize=SMALL, parse_math=False)
        grid(axes)
    return drawn


def coloured(
    sentences: Sequence[tuple[Sequence[str], Float[Tensor, " _"], str]], *, unit: str
) -> Figure:
    """Sentences line by line, each word on its colour, and what is said of the sentence behind it.

    Long sentences go on in the next line.
    """
    drawn = Figure(figsize=(WIDTH, 1.0), layout="constrained")
    axes = drawn.add_subplot()
    low, high = symmetric(torch.cat([values for _, values, _ in sentences]))
    letters = [sum(len(word) + 1.3 for word in words) for words, _, _ in sentences]
    across, line, width = 0.0, 0.0, min(LETTERS, max(letters))
    for words, values, name in sentences:
        pieces = [(drawable(word), float(v)) for word, v in zip(words, values, strict=True)]
        for word, value in pieces:
            room = len(word) + 1.3
            if across + room > width:
                across, line = 0.0, line + 1
            share = 0.5 + 0.5 * value / high
            axes.text(
                across, line, word, family="monospace", fontsize=SMALL, va="center",
                parse_math=False, color="white" if abs(share - 0.5) > 0.33 else INK,
                bbox={"facecolor": SIGNED(share), "edgecolor": "none", "pad": 1.2},
            )  # fmt: skip
            across += room
        axes.text(width + 1, line, name, fontsize=SMALL, va="center", color=INK, parse_math=False)
        across, line = 0.0, line + 1.45
    axes.set(xlim=(0, LETTERS + 22), ylim=(line - 0.6, -0.8))
    axes.axis("off")
    drawn.set_size_inches(WIDTH, 0.19 * line + 0.9)
    shade = drawn.colorbar(
        _scale(low, high), ax=axes, orientation="horizontal", aspect=45, pad=0.01, shrink=0.7
    )
    shade.set_label(unit, fontsize=SMALL, parse_math=False)
    shade.ax.tick_params(labelsize=SMALL)
    return drawn


def _scale(low: float, high: float) -> ScalarMappable:
    """The colours without an image."""
    return ScalarMappable(Normalize(low, high), SIGNED)
