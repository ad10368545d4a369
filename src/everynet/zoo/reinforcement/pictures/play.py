"""What an agent does in every state, what it expects, and how a game goes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Num
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from everynet.plot.style import (
    CONTRAST,
    FAINT,
    INK,
    LEAST,
    MAGNITUDE,
    OURS,
    SIGNED,
    array,
    bare,
    colour,
    dress,
    figure,
    symmetric,
)
from everynet.zoo.reinforcement.environments import (
    CartPole,
    Catch,
    Environment,
    GridWorld,
    MountainCar,
)


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
    environment: Environment,
    states: Num[Tensor, "frames size"],
    q: Float[Tensor, "moves actions"],
    *,
    end: str,
    times: Sequence[int] = (),
) -> Figure:
    """States of a game side by side, with the values of the actions under all but the last."""
    count = len(states)
    high = 3.4 if isinstance(environment, Catch) else 2.5  # inches
    drawn = figure(0.62 * count + 0.8, high, 2, count)
    limits, times = value_limits(q), times or range(count)
    for index, time in enumerate(times):
        above, below = drawn.axes[index], drawn.axes[count + index]
        draw_state(above, environment, states[index])
        above.set_title(f"{time}" if index else f"step {time}", fontsize="small")
        if index == len(q):
            above.set_title(end, fontsize="small")
            below.set_axis_off()
            continue
        _draw_values(below, q[index])
        below.set_ylim(*limits)
        below.set_xticks([])
        if index:
            below.set_yticks([])
            below.spines["left"].set_visible(False)
    first = drawn.axes[count]
    first.yaxis.set_major_locator(MaxNLocator(4))
    first.set_ylabel("value")
    actions = environment.actions
    names = [Patch(color=colour(index), label=name) for index, name in enumerate(actions)]
    drawn.legend(
        handles=names, loc="outside lower center", ncols=len(actions), frameon=False,
        fontsize="small", title="full colour: the action that is taken", title_fontsize="small",
    )  # fmt: skip
    return drawn


def film_frame(
    environment: Environment,
    state: Num[Tensor, " size"],
    q: Float[Tensor, " actions"] | None,
    *,
    title: str,
    limits: tuple[float, float],
    label: str = "value",
) -> Figure:
    """One state of a game, and beside it the values of the actions while there is one to take."""
    arrows = environment.arrows
    small = isinstance(environment, Catch)
    drawn = figure(1.58 if small else 4.2, 1.8)
    drawn.clear()
    left, right = map(dress, drawn.subplots(1, 2, width_ratios=[1 if small else 1.9, 1]))
    draw_state(left, environment, state)
    left.set_title(title, fontsize="small")
    if q is None:  # the axes stay: nothing moves from frame to frame
        right.text(0.5, 0.5, "the end", transform=right.transAxes, ha="center", fontsize="small")
    else:
        _draw_values(right, q)
    right.set(xlim=(-0.6, len(arrows) - 0.4), ylim=limits)
    right.set_title(label, fontsize="small")
    right.set_xticks(range(len(arrows)), arrows)
    right.yaxis.set_major_locator(MaxNLocator(4))
    return drawn


def value_limits(q: Float[Tensor, "*moves actions"]) -> tuple[float, float]:
    """The limits of an axis on which all values, and zero, have room."""
    low, high = min(0.0, float(q.min())), max(0.0, float(q.max()))
    margin = 0.08 * (high - low) or 1.0
    return low - margin, high + margin


def draw_state(axes: Axes, environment: Environment, state: Num[Tensor, " size"]) -> None:
    """Draw the state of a game, of whatever kind."""
    match environment:
        case Catch():
            axes.imshow(
                array(environment.observe(state[None])[0, 0]), cmap=MAGNITUDE, vmin=0, vmax=1
            )
        case CartPole():
            _draw_cart(axes, *state[:3:2].tolist())
        case MountainCar():
            _draw_car(axes, float(state[0]))
        case GridWorld():
            draw_cells(axes, environment)
            row, column = divmod(int(state[0]), len(environment.rows[0]))
            axes.plot(column, row, "o", mfc="none", mec=OURS, ms=11, mew=2.2)  # letters are seen
    bare(axes)


def _draw_cart(axes: Axes, x: float, theta: float) -> None:
    """Draw the cart on its track and the pole, as long as it is."""
    axes.plot([-2.4, 2.4], [0, 0], color=FAINT, linewidth=1.5)
    axes.add_patch(Rectangle((x - 0.35, 0), 0.7, 0.35, color=INK))
    top = x + 1.6 * math.sin(theta), 0.35 + 1.6 * math.cos(theta)
    axes.plot([x, top[0]], [0.35, top[1]], color=CONTRAST, linewidth=3)
    axes.set(xlim=(-2.6, 2.6), ylim=(-0.3, 2.3), aspect="equal")


def _draw_car(axes: Axes, x: float) -> None:
    """Draw the car in its valley, and a flag at the top."""
    places = np.linspace(MountainCar.LEFT, MountainCar.RIGHT, 80)
    axes.plot(places, np.sin(3 * places), color=FAINT, linewidth=1.5)
    flag = math.sin(3 * MountainCar.TOP)
    axes.plot([MountainCar.TOP] * 2, [flag, flag + 0.5], color=CONTRAST, linewidth=2)
    axes.plot(x, math.sin(3 * x) + 0.12, "o", color=INK, ms=7)
    axes.set(xlim=(-1.25, 0.65), ylim=(-1.2, 1.7))


TINTS = {"G": "#7fc97f", "g": "#c9e8c9", "H": "#444444", "C": "#444444", "#": "#b0b0b0"}
"""Colours of cells by their character."""


def draw_cells(axes: Axes, world: GridWorld) -> None:
    """Draw the cells of a map with the letters of those that matter, row 0 on top."""
    tints = [[to_rgb(TINTS.get(cell, "#f6f6f6")) for cell in row] for row in world.rows]
    axes.imshow(tints, aspect="equal")
    for row, line in enumerate(world.rows):
        for column, cell in enumerate(line):
            if cell in "SGgHC":
                ink = "white" if cell in "HC" else INK
                axes.text(column, row, cell, ha="center", va="center", fontsize=LEAST, color=ink)


def _draw_values(axes: Axes, q: Float[Tensor, " actions"]) -> None:
    """Draw a bar for each action, the one that is taken in full colour."""
    bars, best = axes.bar(np.arange(len(q)), array(q)), int(q.argmax())
    for index, bar in enumerate(bars):
        bar.set(color=colour(index), alpha=1.0 if index == best else 0.35)
    axes.axhline(0, color=INK, linewidth=0.8)
