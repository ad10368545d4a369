"""What an agent does in every state, what it expects, and how a game goes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from everynet.plot.style import INK, MAGNITUDE, SIGNED, array, bare, colour, figure, symmetric


def policy_maps(
    q: Float[Tensor, "rows columns paddles actions"], *, arrows: Sequence[str], least: float = 0.2
) -> Figure:
    """A panel for each column of the ball: best action as an arrow, its value as a colour.

    There is no arrow where the best action is worth less than `least` more than the worst.
    """
    columns = q.shape[1]
    drawn = figure(1.28 * columns + 0.9, 0.27 * q.shape[0] + 1.0, 1, columns)
    best, action = q.max(3)
    matters = best - q.amin(3) >= least
    low, high = symmetric(best)
    for column, axes in enumerate(drawn.axes):
        image = axes.imshow(array(best[:, column]), cmap=SIGNED, vmin=low, vmax=high, aspect="auto")
        for row, chosen in enumerate(action[:, column].tolist()):
            for paddle, index in enumerate(chosen):
                if not matters[row, column, paddle]:
                    continue
                dark = abs(float(best[row, column, paddle])) > 0.6 * high
                axes.text(
                    paddle, row, arrows[index], ha="center", va="center", fontsize=9,
                    color="white" if dark else INK,
                )  # fmt: skip
        axes.axvline(column, color=INK, linewidth=0.8, linestyle=":")
        axes.set_title(f"ball in\ncolumn {column}", fontsize="small")
        axes.set_xlabel("paddle", fontsize="small")
        axes.set_xticks(range(q.shape[2]))
        axes.set_yticks(range(q.shape[0]) if column == 0 else [])
    drawn.axes[0].set_ylabel("row of the ball, from the top", fontsize="small")
    drawn.colorbar(image, ax=drawn.axes, pad=0.01, label="expected return")
    return drawn


def film_strip(
    frames: Float[Tensor, "frames height width"],
    q: Float[Tensor, "moves actions"],
    *,
    actions: Sequence[str],
    end: str,
) -> Figure:
    """Frames of a game side by side, with the values of the actions under all but the last."""
    count = len(frames)
    drawn = figure(0.62 * count + 0.8, 3.4, 2, count)
    low, high = min(0.0, float(q.min())), max(0.0, float(q.max()))
    margin = 0.08 * (high - low) or 1.0
    for time in range(count):
        above, below = drawn.axes[time], drawn.axes[count + time]
        above.imshow(array(frames[time]), cmap=MAGNITUDE, vmin=0, vmax=1)
        bare(above)
        above.set_title(f"{time}" if time else "step 0", fontsize="small")
        if time == len(q):
            above.set_title(end, fontsize="small")
            below.set_axis_off()
            continue
        best = int(q[time].argmax())
        bars = below.bar(np.arange(len(actions)), array(q[time]))
        for index, bar in enumerate(bars):
            bar.set(color=colour(index), alpha=1.0 if index == best else 0.35)
        below.axhline(0, color=INK, linewidth=0.8)
        below.set_ylim(low - margin, high + margin)
        below.set_xticks([])
        if time:
            below.set_yticks([])
            below.spines["left"].set_visible(False)
    first = drawn.axes[count]
    first.yaxis.set_major_locator(MaxNLocator(4))
    first.set_ylabel("value")
    names = [Patch(color=colour(index), label=name) for index, name in enumerate(actions)]
    drawn.legend(
        handles=names, loc="outside lower center", ncols=len(actions), frameon=False,
        fontsize="small", title="full colour: the action that is taken", title_fontsize="small",
    )  # fmt: skip
    return drawn
