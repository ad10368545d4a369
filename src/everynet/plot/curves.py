"""Learning curves: every term of the training and every metric of the validation, by step."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from torch import Tensor

from everynet.plot.style import BASELINE, CYCLE, INK, WIDTH, LoggedRows, figure, grid, log_ticks

Curve = tuple[Float[Tensor, " _"], Float[Tensor, " _"]]
"""Steps and the values logged there."""

_WIDE = 30.0  # a ratio of largest to smallest value from which a log axis shows more
_MANY = 100  # points from which a line is drawn through their moving mean
_BESIDE = ("balanced_accuracy", "macro_f1", "majority", "auc")
"""Metrics that go with the accuracy or never change: the log has them, and the card the last."""


def learning_curve(history: LoggedRows, kept: int | None = None) -> Figure:
    """One panel for each name that was logged: its training curve, its validation, or both.

    A line marks the step whose weights were kept, if it is given.
    """
    train, valid = logged_curves(history, "train"), logged_curves(history, "valid")
    if "loss" in valid and "loss" not in train and len(_terms(train)) == 1:
        del valid["loss"]  # the sum of one term: that term has its panel
    names = list(dict.fromkeys([*train, *valid]))
    if "accuracy" in names:
        names = [name for name in names if name not in _BESIDE]
    if not names:
        return _say_nothing_logged()
    columns = {1: 1, 2: 2, 4: 2}.get(len(names), 3)
    rows = math.ceil(len(names) / columns)
    drawn = figure(4.8 if columns == 1 else WIDTH, {1: 3.2, 2: 2.5, 3: 2.0}[columns] * rows + 0.2,
                   rows, columns, count=len(names))  # fmt: skip
    for axes, name in zip(drawn.axes, names, strict=True):
        _panel(axes, name, train.get(name), valid.get(name))
        if kept is not None:
            axes.axvline(
                kept, color=BASELINE, linewidth=1.2, zorder=1, label=f"weights kept: step {kept:,}"
            )
    lines = {
        name: line
        for axes in drawn.axes
        for line, name in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    drawn.legend(
        lines.values(), lines.keys(), loc="outside lower center", ncols=3, frameon=False,
        fontsize="small",
    )  # fmt: skip
    return drawn


def logged_curves(history: LoggedRows, split: str) -> dict[str, Curve]:
    """The finite values of a split of the history, by name, in the order the names appeared."""
    points: dict[str, tuple[list[float], list[float]]] = {}
    for row in history:
        for name, value in row.get(split, {}).items():
            if math.isfinite(value):
                steps, values = points.setdefault(name, ([], []))
                steps.append(float(row["step"]))
                values.append(float(value))
    double = torch.float64
    return {
        name: (torch.tensor(steps, dtype=double), torch.tensor(values, dtype=double))
        for name, (steps, values) in points.items()
    }


def _terms(train: dict[str, Curve]) -> list[str]:
    return [name for name in train if not name.startswith("_")]


def moving_mean(values: Float[Tensor, " points"], window: int) -> Float[Tensor, " points"]:
    """The mean of up to `window` points around each, fewer at the ends: no point is invented."""
    sums = torch.cat([values.new_zeros(1), values.cumsum(0)])
    middle = torch.arange(len(values))
    first = (middle - window // 2).clamp(min=0)
    last = (middle + window // 2 + 1).clamp(max=len(values))
    return (sums[last] - sums[first]) / (last - first)


def _panel(axes: Axes, name: str, train: Curve | None, valid: Curve | None) -> None:
    shown = []  # what the eye follows, which decides on a log axis
    if train is not None:
        steps, values = train
        if len(values) >= _MANY:
            axes.plot(steps, values, color=CYCLE[0], linewidth=0.6, alpha=0.25)
            values = moving_mean(values, len(values) // 50)
        alone = "o" if len(values) == 1 else None
        axes.plot(steps, values, marker=alone, color=CYCLE[0], linewidth=1.6, label="training")
        shown.append(values)
    if valid is not None:
        steps, values = valid
        every = max(1, len(values) // 12)
        axes.plot(steps, values, "o-", color=CYCLE[1], ms=3.5, markevery=every, label="validation")
        axes.plot(steps[-1:], values[-1:], "o", color=CYCLE[1], ms=3.5)
        shown.append(values)
    label_steps(axes, name.lstrip("_").replace("_", " "), shown)
    last = valid or train
    if last is not None:
        axes.set_title(f"at the end {_short(float(last[1][-1]))}", color=INK, fontsize="medium")


def label_steps(axes: Axes, ylabel: str, shown: list[Float[Tensor, " _"]]) -> None:
    """Label axes of curves by step; the y axis is logarithmic if values span a factor of 30."""
    axes.set(xlabel="step", ylabel=ylabel)
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
    grid(axes)
    values = torch.cat(shown)
    low, high = float(values.min()), float(values.max())
    bottom, top = axes.get_ylim()
    if high <= 1 < top:  # a share: leave no room for more than all
        axes.set_ylim(bottom, 1 + 0.03 * (1 - bottom))
    if not (low > 0 and high / low > _WIDE):
        return
    axes.set_yscale("log")
    log_ticks(axes)


def _short(value: float) -> str:
    return f"{value:.4f}" if 1e-3 <= abs(value) < 10 else f"{value:.4g}"


def _say_nothing_logged() -> Figure:
    """A figure that says that no steps were logged."""
    drawn = figure(4.4, 1.2)
    drawn.axes[0].set_axis_off()
    drawn.text(0.5, 0.5, "learned in one go: no steps were logged", ha="center", va="center")
    return drawn
