"""Ways down a landscape: paths on contours, and how fast the error falls along them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from torch import Tensor

from everynet.plot.style import (
    FAINT,
    INK,
    OURS,
    SIGNED,
    TRUTH,
    WIDTH,
    array,
    colour,
    figure,
    grid,
    log_ticks,
    symmetric,
    wrapped,
)

Height = Callable[[Float[Tensor, "*points 2"]], Float[Tensor, "*points"]]
"""The landscape: a number for each point of the plane."""

Window = tuple[float, float, float, float]
"""The part of the plane that is shown: left, right, bottom, top."""

POINTS = 160  # along a side of the grid that contours are computed from


def descent_paths(
    height: Height,
    paths: Mapping[str, Float[Tensor, "steps 2"]],
    *,
    guides: Mapping[str, Float[Tensor, "times 2"]] | None = None,
    window: Window = (-2.0, 2.0, -2.0, 2.0),
    minimum: tuple[float, float] = (0.0, 0.0),
    xlabel: str = r"$\theta_1$",
    ylabel: str = r"$\theta_2$",
) -> Figure:
    """A panel for each path, step by step on the contours, as far as it stays in the window.

    `guides` holds a smooth curve to draw over the path of the same name: the flow that its steps
    approximate.
    """
    left, right, bottom, top = window
    columns = min(len(paths), 3)
    rows = -(-len(paths) // columns)
    across = min(3.2, (WIDTH - 0.5) / columns - 0.2)
    tall = across * (top - bottom) / (right - left)
    made = figure(WIDTH, (tall + 0.9) * rows, rows, columns, count=len(paths))
    for number, (axes, (name, path)) in enumerate(zip(made.axes, paths.items(), strict=True)):
        _contours(axes, height, window)
        line = array(_inside(path, window))
        axes.plot(line[:, 0], line[:, 1], "o-", color=colour(number), ms=2.6, linewidth=1.1)
        axes.plot(line[:1, 0], line[:1, 1], "o", color=colour(number), ms=6, mec=INK)
        axes.annotate("start", line[0], xytext=(7, 5), textcoords="offset points", fontsize="small")
        if guides and name in guides:
            guide = array(guides[name])
            axes.plot(guide[:, 0], guide[:, 1], "--", color=INK, linewidth=1, label="flow")
            axes.legend(frameon=False, fontsize="small", loc="lower right")
        axes.plot(*minimum, "*", color=INK, ms=8)
        axes.set_title(wrapped(name, across), color=INK)
        axes.set_xlabel(wrapped(xlabel, across))
        axes.set_aspect("equal")  # so that the gradient is seen to cross contours at right angles
    for axes in made.axes[::columns]:
        axes.set_ylabel(wrapped(ylabel, tall))
    return made


def landscapes(heights: Mapping[str, Height], *, span: float = 1.0) -> Figure:
    """A panel for each landscape around the origin: red above the origin, blue below it."""
    made = figure(WIDTH, (WIDTH - 1.2) / len(heights) + 0.6, 1, len(heights))
    for axes, (name, height) in zip(made.axes, heights.items(), strict=True):
        side, z = _grid(height, (-span, span, -span, span))
        z = z - float(height(torch.zeros(2, dtype=torch.float64)))
        low, high = symmetric(z)
        levels = np.linspace(low, high, 14)
        filled = axes.contourf(*side, array(z), levels=levels, cmap=SIGNED)
        axes.contour(*side, array(z), levels=levels, colors=INK, linewidths=0.4, linestyles="solid")
        axes.plot(0, 0, "o", color=INK, ms=4)
        axes.set_title(name, color=INK, fontsize="medium")
        axes.set(aspect="equal", xlabel="x", xticks=[-span, 0, span], yticks=[-span, 0, span])
    made.axes[0].set_ylabel("y")
    bar = made.colorbar(filled, ax=made.axes, shrink=0.8, ticks=[low, 0, high], pad=0.01)
    bar.ax.set_yticklabels(["below", "level", "above"], fontsize="small")
    return made


def error_decay(
    curves: Mapping[str, Float[Tensor, " steps"]],
    *,
    factors: Mapping[str, float] | None = None,
    xlabel: str = "step",
    ylabel: str = "error",
    log_steps: bool = False,
) -> Figure:
    """Errors by step on a logarithmic scale, where a constant factor a step is a straight line.

    `factors` predicts that factor for some of the curves: a dashed line of its slope is drawn
    through the last point.
    """
    made = figure(6.2, 3.5)
    axes = made.axes[0]
    axes.set_yscale("log")
    for number, (name, values) in enumerate(curves.items()):
        steps = np.arange(len(values)) + (1 if log_steps else 0)
        kind = "o-" if len(values) <= 20 else "-"
        axes.plot(steps, array(values), kind, ms=4, color=colour(number), linewidth=2, label=name)
    label = "predicted slope"
    for name, factor in (factors or {}).items():
        back = np.arange(1.0 - len(curves[name]), 1.0)
        line = float(curves[name][-1]) * factor**back
        axes.plot(back - back[0], line, "--", color=INK, linewidth=1, label=label)
        label = ""
    if log_steps:
        axes.set_xscale("log")
    axes.set(xlabel=xlabel, ylabel=ylabel)
    made.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    log_ticks(axes)
    grid(axes)
    return made


def step_sizes(
    rates: Float[Tensor, " rates"],
    measured: Float[Tensor, " rates"],
    predicted: Float[Tensor, " rates"],
    *,
    best: float,
) -> Figure:
    """The factor that a step multiplies the error with, for step sizes in units of 1 / lambda_max.

    Below 1 the error falls. The three regimes are shaded: up to 1 a step goes at most straight to
    the floor of the steepest direction, up to 2 past it, and above 2 to a higher point beyond it.
    """
    made = figure(6.2, 3.5)
    axes = made.axes[0]
    last, bottom, top = float(rates.max()), 0.9 * float(predicted.min()), float(predicted.max())
    top += 0.15 * (top - bottom)
    regimes = (("creeps", 0.0, 1.0), ("swings and converges", 1.0, 2.0), ("diverges", 2.0, last))
    for number, (name, start, end) in enumerate(regimes):
        if start >= end:
            continue
        axes.axvspan(start, end, color=colour(number), alpha=0.1, linewidth=0)
        axes.text((start + end) / 2, top, name, ha="center", va="bottom", fontsize="small")
    axes.axhline(1, color=INK, linewidth=0.8)
    axes.plot(array(rates), array(predicted), "--", color=TRUTH, linewidth=1.2, label="predicted")
    axes.plot(array(rates), array(measured), "o", color=OURS, ms=4, label="measured")
    axes.axvline(best, color=INK, linewidth=0.8, linestyle=":")
    axes.annotate("fastest ", (best, bottom), ha="right", va="bottom", fontsize="small")
    axes.set(xlim=(0, last), ylim=(bottom, top))
    axes.set_xlabel(r"step size $k$ in units of $1 / \lambda_{\mathrm{max}}$")
    axes.set_ylabel("error after / error before a step")
    axes.legend(frameon=False, fontsize="small", loc="lower left")
    grid(axes)
    return made


def _inside(path: Float[Tensor, "steps 2"], window: Window) -> Float[Tensor, "kept 2"]:
    """The path up to the first point outside the window, which is kept to show where it went."""
    left, right, bottom, top = window
    x, y = path.unbind(-1)
    out = ((x < left) | (x > right) | (y < bottom) | (y > top)).nonzero()
    return path[: int(out[0]) + 1] if len(out) else path


def _grid(
    height: Height, window: Window
) -> tuple[tuple[NDArray[np.float64], NDArray[np.float64]], Float[Tensor, "points points"]]:
    """The sides of a grid over the window and the height at each of its points."""
    x = torch.linspace(*window[:2], POINTS, dtype=torch.float64)
    y = torch.linspace(*window[2:], POINTS, dtype=torch.float64)
    across, up = torch.meshgrid(x, y, indexing="xy")
    return (array(x), array(y)), height(torch.stack([across, up], dim=-1))


def _contours(axes: Axes, height: Height, window: Window) -> None:
    """Contour lines, closer together towards the lowest point."""
    side, z = _grid(height, window)
    depth = z - z.min()
    levels = float(depth.max()) * np.linspace(0.02, 1, 12) ** 2
    axes.contour(*side, array(depth), levels=levels, colors=FAINT, linewidths=0.9)
    axes.set(xlim=window[:2], ylim=window[2:])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4))
