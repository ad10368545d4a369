"""Pictures of n-grams: perplexity by length, how rare they are, and a sentence word by word."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter
from torch import Tensor

from everynet.plot.panels import Panel, panels
from everynet.plot.style import FAINT, INK, MAGNITUDE, array, colour, figure, grid
from everynet.plot.text import drawable

SMALL = 7  # points
POINTS = 400
"""Of a curve over ranks, which are millions."""


def perplexity_by_order(perplexities: Mapping[str, Float[Tensor, " orders"]]) -> Figure:
    """A curve of each smoothing over the words of an n-gram, with its values."""
    orders = next(iter(perplexities.values()))
    n = torch.arange(1, len(orders) + 1).double()
    curves = {}
    for name, values in perplexities.items():
        numbers = [f"{v:.0f}" if math.isfinite(v) else "-" for v in values.tolist()]
        curves[f"{name}: {' '.join(numbers)}"] = (n, values)
    panel = Panel(curves, "n, the words of an n-gram", "perplexity of held-out text", log="y")
    made = panels(panel, width=6.5, height=3.4)
    made.axes[0].yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    made.axes[0].yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    made.axes[0].yaxis.set_minor_locator(NullLocator())
    return made


def rank_frequencies(
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
    orders = torch.arange(1, len(unseen) + 1).double()
    zipf = {"1 / rank": (line, top / line)}
    return panels(
        Panel(curves, "rank", "times in training", log="xy", guides=zipf),
        Panel(
            {"": (orders, unseen)},
            "n, the words of an n-gram",
            "share of held-out n-grams\nthat training never held",
            ylim=(0, 1),
            legend="none",
        ),
        width=3.25,
        height=3.0,
    )  # fmt: skip


def sentence_probabilities(
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
    low = min(float(p[p > 0].min(initial=1.0)), float(single[single > 0].min(initial=1.0))) / 3
    axes.bar(places, p - low, bottom=low, width=0.7, color=[colour(n - 1) for n in seen.tolist()])
    (dots,) = axes.plot(places, single, "o", ms=4, color=INK, mec="white", label="no history")
    axes.set_yscale("log")
    axes.set_ylim(low, 3.0)
    for place, value, other in zip(places, p.tolist(), single.tolist(), strict=True):
        near = 0.6 < other / max(value, low) < 6  # the dot would stand in the number
        above = max(value, low, other * near)
        axes.text(
            place,
            above * (1.4 if near else 1.1),
            f"{value:.1g}",
            ha="center",
            va="bottom",
            fontsize=SMALL,
        )
    axes.set_xticks(places, [drawable(word) for word in words], rotation=40, ha="right",
                    rotation_mode="anchor", parse_math=False)  # fmt: skip
    axes.tick_params(labelsize=SMALL + 1)
    axes.set_ylabel("probability of the word")
    axes.set_xlabel("a held-out sentence")
    grid(axes)
    lengths = sorted({*seen.tolist()})
    keys = [Patch(color=colour(n - 1), label=f"{n} word{'s' * (n > 1)}") for n in lengths]
    axes.legend(
        handles=[*keys, dots], title="longest n-gram seen", title_fontsize=SMALL + 1,
        loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=SMALL + 1,
    )  # fmt: skip
    return made


def perplexity_by_seen_length(
    nats: Mapping[str, Float[Tensor, " words"]], seen: Int[Tensor, " words"]
) -> Figure:
    """Perplexity of models on words by the longest n-gram seen up to them; bars count the words."""
    made = figure(6.5, 3.4)
    axes = made.axes[0]
    lengths = [n for n in range(1, int(seen.max()) + 1) if bool((seen == n).any())]
    shares = [(seen == n).double().mean().item() for n in lengths]
    counts = axes.twinx()
    counts.bar(lengths, shares, color=FAINT, width=0.6, alpha=0.6)
    for n, share in zip(lengths, shares, strict=True):
        counts.text(n, 0.01, f"{share:.0%}", ha="center", va="bottom", fontsize=SMALL, color=INK)
    counts.set_ylim(0, 1.6 * max(shares))
    counts.set_ylabel("share of the held-out words")
    for number, (name, values) in enumerate(nats.items()):
        found = [math.exp(values[seen == n].double().mean().item()) for n in lengths]
        whole = math.exp(values.double().mean().item())
        axes.plot(lengths, found, "o-", color=colour(number), label=f"{name}: {whole:.1f} on all")
    axes.set_yscale("log")
    axes.set_ylim(bottom=axes.get_ylim()[0] / 2)  # room for the shares
    axes.set_zorder(counts.get_zorder() + 1)
    axes.patch.set_visible(False)
    axes.set_xticks(lengths)
    axes.set_xlabel("longest n-gram that training held and the word ends, in words")
    axes.set_ylabel("perplexity")
    axes.legend(frameon=False, fontsize=SMALL + 1)
    for one in (axes, counts):
        one.tick_params(labelsize=SMALL + 1)
    counts.spines["top"].set_visible(False)
    return made


def nearest_words(words: Sequence[Sequence[str]], cosines: Float[Tensor, "words ranks"]) -> Figure:
    """A row for each word with its nearest words, coloured by their cosine."""
    made = figure(6.5, 0.27 * len(words) + 0.8)
    axes = made.axes[0]
    values = array(cosines)
    image = axes.imshow(values[:, 1:], cmap=MAGNITUDE, vmin=0, vmax=1, aspect="auto")
    for row, names in enumerate(words):
        for column, name in enumerate(names[1:]):
            ink = INK if values[row, column + 1] > 0.6 else "white"
            axes.text(column, row, drawable(name)[:11], ha="center", va="center", color=ink,
                      fontsize=SMALL, parse_math=False)  # fmt: skip
    axes.set_yticks(range(len(words)), [drawable(names[0]) for names in words], parse_math=False)
    axes.set_xticks(range(values.shape[1] - 1), [str(n) for n in range(1, values.shape[1])])
    axes.set_xlabel("nearest words, by rank")
    axes.tick_params(labelsize=SMALL + 1)
    bar = made.colorbar(image, ax=axes, label="cosine", pad=0.01)
    bar.ax.tick_params(labelsize=SMALL)
    return made
