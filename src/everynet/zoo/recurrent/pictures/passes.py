"""A sentence read from both ends: states and answers word by word, and shares in a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from everynet.plot.style import INK, MAGNITUDE, SIGNED, array, colour, dress, grid, symmetric
from everynet.plot.text import drawable

WIDTH = 6.5  # inches
SMALL = 7  # points


def two_passes(
    sentences: Sequence[Sequence[str]],
    states: Sequence[Mapping[str, Float[Tensor, "_ units"]]],
    p: Sequence[Mapping[str, Float[Tensor, " _"]]],
    *,
    framed: int,
) -> Figure:
    """The units of each pass (down) at every word (across), over the probabilities of the networks.

    Word `framed` is framed; units are in the order of how far the sentences differ there, so that
    what differs is on top.
    """
    rows = [*states[0]]
    drawn = Figure(figsize=(WIDTH, 1.9 + 1.35 * len(rows)), layout="constrained")
    given = drawn.subplots(
        len(rows) + 1,
        len(sentences),
        width_ratios=[len(words) for words in sentences],
        height_ratios=[2.0] * len(rows) + [1.6],
    )
    low, high = symmetric(torch.cat([each[name] for each in states for name in rows]))
    for row, name in enumerate(rows):
        units = torch.stack([each[name][framed] for each in states])
        order = (units.amax(0) - units.amin(0)).argsort(descending=True, stable=True)
        for column, (words, each) in enumerate(zip(sentences, states, strict=True)):
            axes = dress(given[row, column])
            image = axes.imshow(
                array(each[name][:, order].T), cmap=SIGNED, vmin=low, vmax=high, aspect="auto",
                interpolation="nearest",
            )  # fmt: skip
            axes.add_patch(
                Rectangle(
                    (framed - 0.5, -0.5), 1, len(order), fill=False, ec=INK, lw=1.8, clip_on=False
                )
            )
            axes.set_xticks(range(len(words)), [""] * len(words))
            axes.set_yticks([])
            axes.set_title(name, fontsize=SMALL + 1, color=INK)
            if column == 0:
                axes.set_ylabel("unit", fontsize=SMALL)
    bar = drawn.colorbar(image, ax=[*given[:-1].flatten()], label="state", pad=0.01, aspect=30)
    bar.ax.tick_params(labelsize=SMALL)
    for column, (words, values) in enumerate(zip(sentences, p, strict=True)):
        axes = dress(given[-1, column])
        _bars(axes, values)
        axes.axvspan(framed - 0.5, framed + 0.5, facecolor="none", edgecolor=INK, linewidth=1.2)
        axes.set_xticks(range(len(words)), [drawable(word) for word in words], parse_math=False)
        axes.tick_params(axis="x", labelrotation=90, length=0, labelsize=SMALL + 1)
        axes.tick_params(axis="y", labelsize=SMALL)
        axes.set(xlim=(-0.5, len(words) - 0.5), ylim=(0, 1.02))
        axes.set_xlabel("word", fontsize=SMALL + 1)
        if column == 0:
            axes.set_ylabel("probability\nof a name", fontsize=SMALL + 1)
    handles, labels = given[-1, 0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return drawn


def _bars(axes: Axes, given: Mapping[str, Float[Tensor, " _"]]) -> None:
    """The values of each network beside each other at every word."""
    width = 0.84 / len(given)
    for number, (name, values) in enumerate(given.items()):
        places = torch.arange(len(values)) + (number - (len(given) - 1) / 2) * width
        axes.bar(array(places), array(values), width, color=colour(number), label=name)
    grid(axes)


def share_table(
    shares: Float[Tensor, "rows columns"],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    unit: str,
) -> Figure:
    """Shares from 0 to 1 as a table of colours with the numbers written in."""
    drawn = Figure(figsize=(WIDTH, 1.2 + 0.5 * len(rows)), layout="constrained")
    axes = dress(drawn.add_subplot())
    values = array(shares)
    image = axes.imshow(values, cmap=MAGNITUDE, vmin=0, vmax=1, aspect="auto")
    for row in range(len(rows)):
        for column in range(len(columns)):
            ink = INK if values[row, column] > 0.6 else "white"
            axes.text(
                column, row, f"{values[row, column]:.1%}", ha="center", va="center", color=ink,
                fontsize=SMALL + 2,
            )  # fmt: skip
    axes.set_xticks(range(len(columns)), columns, fontsize=SMALL + 1)
    axes.set_yticks(range(len(rows)), rows, fontsize=SMALL + 1)
    axes.tick_params(length=0)
    bar = drawn.colorbar(image, pad=0.01)
    bar.set_label(unit, fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
    return drawn
