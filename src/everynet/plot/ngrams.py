"""Pictures of n-grams: perplexity by length, how rare they are, and a sentence word by word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torch import Tensor

from everynet.plot.panels import Panel, panels
from everynet.plot.style import INK, array, colour, figure, grid
from everynet.plot.text import drawable

SMALL = 7  # points
POINTS = 400
"""Of a curve over ranks, which are millions."""


def by_order(perplexities: Mapping[str, Float[Tensor, " orders"]]) -> Figure:
    """A curve of each smoothing over the words of an n-gram, with its values at the end."""
    orders = next(iter(perplexities.values()))
    n = torch.arange(1, len(orders) + 1).double()
    curves = {
        f"{name}: {' '.join(f'{v:.0f}' if v == v else '-' for v in values.tolist())}": (n, values)
        for name, values in perplexities.items()
    }
    return panels(
        Panel(
            curves,
            "n, the words of an n-gram",
            "perplexity of held-out text",
            log="y",
        ),
        width=6.5,
        height=3.6,
    )


def frequencies(
    counts: Sequence[Int[Tensor, " _"]], unseen: Float[Tensor, " orders"]
) -> Figure:
    """Counts of the n-grams by rank, for each n; and how many of held-out text are new."""
    curves = {}
    for n, count in enumerate(counts, 1):
        ranks = torch.logspace(0, torch.log10(torch.tensor(float(len(count)))), POINTS).long()
        ranks = ranks.clamp(1, len(count)).unique()
        curves[f"n = {n}"] = (ranks.double(), count[ranks - 1].clamp(min=1).double())
    top = float(counts[0][0])
    last = min(top, float(len(counts[0])))
    line = torch.tensor([1.0, last]).double()
    n = torch.arange(1, len(unseen) + 1).double()
    return panels(
        Panel(curves, "rank", "times in training", log="xy", guides={"1 / rank": (line, top / line)}),
        Panel(
            {"": (n, unseen)},
            "n, the words of an n-gram",
            "share of held-out n-grams\nthat training never held",
            ylim=(0, 1),
            legend="none",
        ),
        width=3.25,
        height=3.0,
    )  # fmt: skip


def word_by_word(
    words: Sequence[str],
    probability: Float[Tensor, " words"],
    alone: Float[Tensor, " words"],
    seen: Int[Tensor, " words"],
) -> Figure:
    """The probability of each word of a sentence, coloured by the longest n-gram that was seen."""
    made = figure(6.5, 3.2)
    axes = made.axes[0]
    places = range(len(words))
    p, single = array(probability), array(alone)
    lengths = sorted({*seen.tolist()})
    low = min(float(p[p > 0].min(initial=1.0)), float(single[single > 0].min(initial=1.0))) / 3
    axes.bar(places, p - low, bottom=low, width=0.7, color=[colour(n - 1) for n in seen.tolist()])
    (dots,) = axes.plot(places, single, "o", ms=4, color=INK, label="the word without a history")
    axes.set_yscale("log")
    axes.set_ylim(low, 2.0)
    for place, value in zip(places, p.tolist(), strict=True):
        said = f"{value:.2g}" if value else "0"
        axes.text(place, max(value, low) * 1.1, said, ha="center", va="bottom", fontsize=SMALL)
    axes.set_xticks(places, [drawable(word) for word in words], rotation=40, ha="right",
                    rotation_mode="anchor", parse_math=False)  # fmt: skip
    axes.tick_params(labelsize=SMALL + 1)
    axes.set_ylabel("probability after the words before it")
    axes.set_xlabel("a held-out sentence")
    grid(axes)
    keys = [Patch(color=colour(n - 1), label=f"{n} words seen together") for n in lengths if n > 1]
    keys += [Patch(color=colour(0), label="seen alone")] if 1 in lengths else []
    made.legend(handles=[*keys, dots], loc="outside upper center", ncols=4, frameon=False,
                fontsize=SMALL + 1)  # fmt: skip
    return made
