"""Words of a line: how likely each was, and which would fit a gap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import fill
from typing import NamedTuple

from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import CYCLE, INK, array, dress, grid
from everynet.plot.text import SMALL, WIDTH, drawable

LEAST = 1e-6
"""A word less likely than this has no bar."""


class WordBar(NamedTuple):
    """One word."""

    word: str
    probability: float
    note: str = ""
    marked: bool = False
    """In another colour: the word that stood there."""
    beside: float | None = None
    """Its probability under another model, drawn as a dot."""


def word_probabilities(lines: Sequence[Sequence[WordBar]], names: tuple[str, str]) -> Figure:
    """Lines side by side, read from the top: the probability of each word, and what it was not.

    WordBar are of the first of the named models, dots of the second.
    """
    rows = max(map(len, lines))
    drawn = Figure(figsize=(WIDTH, 1.1 + 0.19 * rows), layout="constrained")
    for axes, line in zip(drawn.subplots(1, len(lines), squeeze=False)[0], lines, strict=True):
        dress(axes)
        bars = _bars(axes, line, LEAST)
        beside = [max(LEAST, one.beside) if one.beside is not None else math.nan for one in line]
        (dots,) = axes.plot(beside, range(len(line)), "o", color=INK, markersize=3.5, clip_on=False)
        axes.set_xscale("log")
        axes.set_xlim(LEAST, 1)
        axes.set_xlabel("probability of the word", fontsize=SMALL + 1)
        right = axes.secondary_yaxis("right")
        right.set_yticks(range(len(line)), [_spaced(one.note) for one in line], parse_math=False)
        right.tick_params(labelsize=SMALL, length=0)
        right.spines["right"].set_visible(False)
        axes.set_title("left the word that came, right the likeliest there", fontsize=SMALL)
    drawn.legend(handles=[bars, dots], labels=names, loc="outside upper center", ncols=2,
                 frameon=False, fontsize=SMALL + 1)  # fmt: skip
    return drawn


def gap_candidates(
    gaps: Sequence[tuple[str, Sequence[WordBar]]],
    xlabel: str = "share of the probability of all that was tried",
) -> Figure:
    """Each line above the words that make it likeliest."""
    heights = [len(bars) + 2.2 for _, bars in gaps]
    drawn = Figure(figsize=(WIDTH, 0.4 + 0.2 * sum(heights)), layout="constrained")
    all_axes = drawn.subplots(len(gaps), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (line, bars) in zip(all_axes, gaps, strict=True):
        dress(axes)
        _bars(axes, bars, 0.0)
        axes.set_xlim(0, max(1e-3, max(one.probability for one in bars) * 1.15))
        axes.set_title(fill(_spaced(line), 95), loc="left", fontsize=SMALL + 1, parse_math=False)
        for row, one in enumerate(bars):
            axes.text(one.probability, row, f" {one.probability:.2g}", va="center", fontsize=SMALL)
    all_axes[-1].set_xlabel(xlabel, fontsize=SMALL + 1)
    return drawn


def word_values(
    lines: Sequence[tuple[Sequence[str], Float[Tensor, " _"], str]],
    unit: str,
    *,
    changed: bool = True,
) -> Figure:
    """A value for each word, two lines beside each other; the right is `changed`: orange."""
    rows = -(-len(lines) // 2)
    drawn = Figure(figsize=(WIDTH, 1.75 * rows), layout="constrained")
    all_axes = drawn.subplots(rows, 2, sharey=True, squeeze=False).flatten()
    for spare in all_axes[len(lines) :]:
        spare.remove()
    for number, (axes, (words, values, name)) in enumerate(
        zip(all_axes[: len(lines)], lines, strict=True)
    ):
        dress(axes)
        axes.bar(range(len(words)), array(values), color=CYCLE[changed and number % 2], width=0.75)
        axes.set_xticks(range(len(words)), [_spaced(word) for word in words], rotation=40,
                        ha="right", rotation_mode="anchor", parse_math=False)  # fmt: skip
        axes.tick_params(labelsize=SMALL)
        axes.set_title(name, fontsize=SMALL + 1, loc="left")
        axes.axhline(0, color=INK, linewidth=0.8)
        if number % 2 == 0:
            axes.set_ylabel(unit, fontsize=SMALL + 1)
        grid(axes)
    return drawn


def _spaced(line: str) -> str:
    """A line as the font can draw it, its spaces as they are."""
    return " ".join(drawable(word) for word in line.split(" "))


def _bars(axes: Axes, words: Sequence[WordBar], least: float) -> BarContainer:
    places = range(len(words))
    drawn = axes.barh(
        places,
        [max(one.probability, least) - least for one in words],
        left=least,
        color=[CYCLE[1] if one.marked else CYCLE[0] for one in words],
        height=0.72,
    )
    axes.set_yticks(places, [_spaced(one.word) for one in words], parse_math=False)
    axes.tick_params(labelsize=SMALL, length=0, axis="y")
    axes.tick_params(labelsize=SMALL, axis="x")
    axes.invert_yaxis()
    grid(axes)
    return drawn
