"""The curves of several runs over each other: one panel for each validation metric."""

from __future__ import annotations

import math
from collections.abc import Mapping

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from everynet.plot.curves import Curve, logged, moving_mean, scale
from everynet.plot.style import LoggedRows, colour, figure, grid, plain

MOST = 4  # panels
_STYLES = ("-", "--", ":")  # behind ten runs colours come again
_MANY = 100  # points from which a line is the moving mean of them


def overlaid(histories: Mapping[str, LoggedRows]) -> Figure | None:
    """One line a run in each panel, by label; None where nothing was logged on the way.

    Panels are the figures on the validation split; without any, the terms of the training.
    """
    for split in ("valid", "train"):
        curves = {label: logged(history, split) for label, history in histories.items()}
        names = [*dict.fromkeys(name for run in curves.values() for name in run)]
        names = [name for name in names if _tells(curves, name)][:MOST] or names[:1]
        if any(len(curve[0]) > 1 for run in curves.values() for curve in run.values()):
            return _drawn(curves, names, {"valid": "validation", "train": "training"}[split])
    return None


def _tells(curves: Mapping[str, Mapping[str, Curve]], name: str) -> bool:
    """Whether a figure changes on the way or from run to run."""
    return (
        len({value for run in curves.values() if name in run for value in run[name][1].tolist()})
        > 1
    )


def _drawn(curves: Mapping[str, Mapping[str, Curve]], names: list[str], split: str) -> Figure:
    columns = min(len(names), 2)
    rows = math.ceil(len(names) / columns)
    below = 0.3 + 0.17 * len(curves)
    drawn = figure(6.5, 2.6 * rows + below, rows, columns)
    for axes, name in zip(drawn.axes, names, strict=False):
        shown = []
        for index, (label, run) in enumerate(curves.items()):
            if name not in run:
                continue
            steps, values = run[name]
            if len(values) >= _MANY:
                values = moving_mean(values, len(values) // 50)
            style = _STYLES[index // 10 % len(_STYLES)]
            marker = "o" if len(values) == 1 else None
            axes.plot(
                steps, values, style, color=colour(index), linewidth=1.2, ms=3, marker=marker,
                label=plain(label),
            )  # fmt: skip
            shown.append(values)
        scale(axes, shown)
        axes.set_xlabel("step")
        axes.set_ylabel(f"{split} {name.lstrip('_').replace('_', ' ')}")
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
        grid(axes)
    for axes in drawn.axes[len(names) :]:
        axes.remove()
    _legend(drawn)
    return drawn


def _legend(drawn: Figure) -> None:
    """One legend below all panels: each run once, whichever panels it is in."""
    lines: dict[str, Artist] = {}
    for axes in drawn.axes:
        for line in axes.get_lines():
            lines.setdefault(str(line.get_label()), line)
    drawn.legend(
        [*lines.values()], [*lines], loc="outside lower left", frameon=False, fontsize=8, ncols=1
    )
