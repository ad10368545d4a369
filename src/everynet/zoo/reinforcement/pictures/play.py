"""What an agent does in every state, what it expects, and how a game goes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
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
    limits = value_limits(q)
    for time in range(count):
        above, below = drawn.axes[time], drawn.axes[count + time]
        _draw_state(above, frames[time])
        above.set_title(f"{time}" if time else "step 0", fontsize="small")
        if time == len(q):
            above.set_title(end, fontsize="small")
            below.set_axis_off()
            continue
        _draw_values(below, q[time])
        below.set_ylim(*limits)
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


def film_frame(
    frame: Float[Tensor, "height width"],
    q: Float[Tensor, " actions"] | None,
    *,
    title: str,
    arrows: Sequence[str],
    limits: tuple[float, float],
) -> Figure:
    """One frame of a game, and beside it the values of the actions while there is one to take."""
    drawn = figure(1.58, 1.8, 1, 2)
    left, right = drawn.axes
    _draw_state(left, frame)
    left.set_title(title, fontsize="small")
    if q is not None:
        _draw_values(right, q)
    right.set(xlim=(-0.6, len(arrows) - 0.4), ylim=limits)  # nothing moves from frame to frame
    right.set_title("value", fontsize="small")
    right.set_xticks(range(len(arrows)), arrows)
    right.yaxis.set_major_locator(MaxNLocator(4))
    return drawn


def value_limits(q: Float[Tensor, "*moves actions"]) -> tuple[float, float]:
    """The limits of an axis on which all values, and zero, have room."""
    low, high = min(0.0, float(q.min())), max(0.0, float(q.max()))
    margin = 0.08 * (high - low) or 1.0
    return low - margin, high + margin


def _draw_state(axes: Axes, frame: Float[Tensor, "height width"]) -> None:
    """Draw the grid of a game."""
    axes.imshow(array(frame), cmap=MAGNITUDE, vmin=0, vmax=1)
    bare(axes)


def _draw_values(axes: Axes, q: Float[Tensor, " actions"]) -> None:
    """Draw a bar for each action, the one that is taken in full colour."""
    bars, best = axes.bar(np.arange(len(q)), array(q)), int(q.argmax())
    for index, bar in enumerate(bars):
        bar.set(color=colour(index), alpha=1.0 if index == best else 0.35)
    axes.axhline(0, color=INK, linewidth=0.8)
