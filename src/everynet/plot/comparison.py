"""The curves of several runs over each other: one panel for each validation metric."""

from __future__ import annotations

import math
from collections.abc import Mapping

from matplotlib.artist import Artist
from matplotlib.figure import Figure

from everynet.plot.curves import Curve, label_steps, logged_curves, moving_mean
from everynet.plot.style import LoggedRows, colour, escape_dollars, figure

MOST = 4  # panels
_STYLES = ("-", "--", ":")  # behind ten runs colours come again
_MANY = 100  # points from which a line is the moving mean of them


def compare_runs(histories: Mapping[str, LoggedRows]) -> Figure | None:
    """The learning curves of several runs, a panel a metric; None where no steps were logged.

    Panels are the metrics on the validation split; without any, the terms of the training.
    """
    for split in ("valid", "train"):
        curves = {label: logged_curves(history, split) for label, history in histories.items()}
        names = [*dict.fromkeys(name for run in curves.values() for name in run)]
        names = [name for name in names if _varies(curves, name)][:MOST] or names[:1]
        if any(len(curve[0]) > 1 for run in curves.values() for curve in run.values()):
            return _draw_panels(curves, names, {"valid": "validation", "train": "training"}[split])
    return None


def _varies(curves: Mapping[str, Mapping[str, Curve]], name: str) -> bool:
    """Whether a metric changes on the way or from run to run."""
    return (
        len({value for run in curves.values() if name in run for value in run[name][1].tolist()})
        > 1
    )


def _draw_panels(curves: Mapping[str, Mapping[str, Curve]], names: list[str], split: str) -> Figure:
    columns = min(len(names), 2)
    rows = math.ceil(len(names) / columns)
    below = 0.3 + 0.17 * len(curves)
    drawn = figure(6.5, 2.6 * rows + below, rows, columns, count=len(names))
    for axes, name in zip(drawn.axes, names, strict=True):
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
                label=escape_dollars(label),
            )  # fmt: skip
            shown.append(values)
        label_steps(axes, f"{split} {name.lstrip('_').replace('_', ' ')}", shown)
    lines: dict[str, Artist] = {}  # each run once, whichever panels it is in
    for line in (line for axes in drawn.axes for line in axes.get_lines()):
        lines.setdefault(str(line.get_label()), line)
    drawn.legend(
        [*lines.values()], [*lines], loc="outside lower left", frameon=False, fontsize=8, ncols=1
    )
    return drawn
