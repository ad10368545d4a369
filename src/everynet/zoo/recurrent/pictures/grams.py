"""Phrases and words by what they weigh: the best matches of filters, and the weights of a bag."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import FAINT, INK, MAGNITUDE, array, colour, dress, grid
from everynet.plot.text import drawable

WIDTH = 6.5  # inches
SMALL = 7  # points
LETTERS = 27  # of a phrase that are drawn


def phrase(words: str) -> str:
    """Words with plain spaces between them, each as it can be drawn."""
    return " ".join(map(drawable, words.split(" ")))


def best_grams(rows: Sequence[tuple[str, Sequence[tuple[str, float]]]]) -> Figure:
    """A row for each filter: its name, and the phrases that it matches best, by how well."""
    most = max(len(found) for _, found in rows)
    drawn = Figure(figsize=(WIDTH, 0.9 + 0.27 * len(rows)), layout="constrained")
    axes = dress(drawn.add_subplot())
    highest = max((value for _, found in rows for _, value in found), default=1.0) or 1.0
    for line, (_, found) in enumerate(rows):
        for column, (words, value) in enumerate(found):
            share = max(0.0, value / highest)
            axes.barh(line, 0.97, left=column, height=0.86, color=MAGNITUDE(share))
            text = phrase(words)
            text = text if len(text) <= LETTERS else text[: LETTERS - 1] + "\N{HORIZONTAL ELLIPSIS}"
            axes.text(
                column + 0.48, line, text, ha="center", va="center", fontsize=SMALL,
                color=INK if share > 0.6 else "white", parse_math=False,
            )  # fmt: skip
    axes.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=SMALL, parse_math=False)
    axes.set_xticks([n + 0.48 for n in range(most)], [str(n + 1) for n in range(most)])
    axes.tick_params(length=0, labelsize=SMALL)
    axes.set(xlim=(0, most), ylim=(len(rows) - 0.5, -0.5))
    axes.set_xlabel("phrases of the filter, by how well it matches them", fontsize=SMALL + 1)
    axes.set_ylabel("filter: class and weight", fontsize=SMALL + 1)
    shade = ScalarMappable(Normalize(0, highest), MAGNITUDE)
    bar = drawn.colorbar(shade, ax=axes, pad=0.01, aspect=30)
    bar.set_label("match, $\\max_i c_i$", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
    return drawn


def weighed_words(
    sides: Sequence[tuple[str, Sequence[str], Float[Tensor, " _"]]], *, xlabel: str
) -> Figure:
    """For each class, in its colour, the words that weigh most for it against the rest."""
    most = max(len(words) for _, words, _ in sides)
    columns = min(len(sides), 3)
    lines = -(-len(sides) // columns)
    drawn = Figure(figsize=(WIDTH, lines * (0.7 + 0.17 * most)), layout="constrained")
    given = drawn.subplots(lines, columns, squeeze=False).flatten()
    for number, (axes, (name, words, weights)) in enumerate(zip(given, sides, strict=False)):
        dress(axes)
        axes.barh(range(len(words)), array(weights), color=colour(number), height=0.7)
        axes.set_yticks(
            range(len(words)), [phrase(word) for word in words], fontsize=SMALL, parse_math=False
        )
        axes.set_ylim(len(words) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.tick_params(axis="x", labelsize=SMALL)
        axes.set_title(name, color=INK, fontsize=SMALL + 2, parse_math=False)
        axes.set_xlabel(xlabel, fontsize=SMALL)
        axes.grid(visible=True, axis="x", color=FAINT, linewidth=0.5, alpha=0.6)
    for axes in given[len(sides) :]:
        axes.remove()
    return drawn


def words_by_count(
    counts: Float[Tensor, " words"],
    weights: Float[Tensor, " words"],
    named: Sequence[tuple[int, str]],
    *,
    ylabel: str,
) -> Figure:
    """Every word by how often it was seen and what it weighs; some have their names beside them."""
    drawn = Figure(figsize=(WIDTH, 3.8), layout="constrained")
    axes = dress(drawn.add_subplot())
    across, up = array(counts), array(weights)
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.scatter(across, up, s=5, color=FAINT, linewidths=0)
    height = max(float(up.max() - up.min()), 1e-12)
    taken: list[tuple[float, float]] = []
    for number, word in named:
        place = float(np.log10(across[number])), float(up[number]) / height
        if any(abs(place[0] - x) < 0.5 and abs(place[1] - y) < 0.04 for x, y in taken):
            continue  # its name would lie on another one
        taken.append(place)
        axes.scatter(across[number], up[number], s=9, color=colour(int(up[number] > 0)))
        axes.annotate(
            phrase(word), (across[number], up[number]), xytext=(3, 1), fontsize=SMALL,
            textcoords="offset points", parse_math=False, color=INK,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlabel("training sentences with the word", fontsize=SMALL + 1)
    axes.set_ylabel(ylabel, fontsize=SMALL + 1, parse_math=False)
    axes.tick_params(labelsize=SMALL)
    grid(axes)
    return drawn
