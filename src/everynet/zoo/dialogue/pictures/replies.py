"""Replies as points, and how often each is given."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import FAINT, INK, OURS, TRUTH, array, figure, grid
from everynet.plot.text import drawable

NAMED = 6
"""Replies that are written beside their points."""
LONGEST = 34
"""Characters of a reply that is written in a picture."""


def shorten(text: str, most: int = LONGEST) -> str:
    """A text as a picture has room for it."""
    text = " ".join(map(drawable, text.split()))
    return text if len(text) <= most else f"{text[: most - 3]}..."


def draw_reply_plane(
    scores: Float[Tensor, " replies"],
    vectors: Float[Tensor, "replies units"],
    texts: Sequence[str],
    true: int,
    context: str,
) -> Figure:
    """Replies by their score and, up, by the direction in which the likeliest differ most.

    The likeliest are written out, and a ring marks the true one.
    """
    near = scores.topk(min(200, len(scores))).indices
    centred = (vectors - vectors[near].mean(0)).double()
    direction = torch.linalg.svd(centred[near], full_matrices=False)[2][0]
    across, up = array(scores), array(centred @ direction)
    made = figure(6.5, 3.7)
    axes = made.axes[0]
    best = scores.topk(min(NAMED, len(scores))).indices.tolist()
    axes.scatter(across, up, s=8, color=FAINT, linewidths=0)
    axes.scatter(across[best], up[best], s=14, color=OURS, linewidths=0)
    axes.scatter(across[true], up[true], s=70, facecolors="none", edgecolors=TRUTH, linewidths=1.3)
    right = max(across) + 0.05 * (max(across) - min(across))
    low, high = axes.get_ylim()
    order = sorted(best, key=lambda n: up[n])
    for place, n in enumerate(order):
        height = low + (high - low) * (place + 0.5) / len(order)
        axes.annotate(
            shorten(texts[n]), (across[n], up[n]), (right, height), fontsize="small", color=INK,
            va="center", parse_math=False,
            arrowprops={"arrowstyle": "-", "color": FAINT, "linewidth": 0.8, "relpos": (0, 0.5)},
        )  # fmt: skip
    axes.set_xlim(min(across) - 0.5, right + 0.55 * (right - min(across)))
    axes.set(xlabel="logit $c^T M r$ of the reply", ylabel="first component of the likeliest")
    axes.set_title(
        f"context: {shorten(context, 90)}", fontsize="small", color=INK, parse_math=False
    )
    grid(axes)
    return made
