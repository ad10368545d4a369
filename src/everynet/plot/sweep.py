"""A metric against the settings that were swept: points for seeds, lines for their means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from torch import Tensor

from everynet.plot.style import INK, WIDTH, array, colour, figure, grid
from everynet.system.wording import written

LINES = 6  # combinations of the other settings that have a line of their own
DECADE = 10.0  # a ratio of the largest to the smallest setting above which its axis is logarithmic
DECADES = 100.0  # the same of the metric, of which a decade reads well without


def metric_by_setting(
    settings: Sequence[Mapping[str, Any]], values: Float[Tensor, " cells"], label: str
) -> Figure:
    """A panel for each setting; `values` has the metric of each cell, NaN where it diverged."""
    keys = [*settings[0]]
    columns = min(len(keys), 2)
    rows = -(-len(keys) // columns)
    made = figure(WIDTH, 2.9 * rows, rows, columns, count=len(keys))
    for axes, key in zip(made.axes, keys, strict=True):
        _panel(axes, key, settings, values)
        axes.set_ylabel(label)
        if _wide(values[values.isfinite()], DECADES):
            axes.set_yscale("log")
    return made


def _panel(
    axes: Axes, key: str, settings: Sequence[Mapping[str, Any]], values: Float[Tensor, " cells"]
) -> None:
    places, ticks = _places([one[key] for one in settings])
    others = [_words(one, key) for one in settings]
    names = [*dict.fromkeys(others)]
    if len(names) > LINES:
        others, names = ["mean over the others"] * len(settings), ["mean over the others"]
    for number, name in enumerate(names):
        own = torch.tensor([other == name for other in others]) & values.isfinite()
        paint = colour(number)
        axes.plot(array(places[own]), array(values[own]), "o", ms=3, color=paint, alpha=0.45)
        where = places[own].unique()
        means = [float(values[own & (places == place)].mean()) for place in where]
        axes.plot(array(where), means, "-", color=paint, lw=1.6, label=name)
    lost = places[~values.isfinite()].unique()
    if len(lost):
        above = axes.get_xaxis_transform()  # along the upper edge, wherever that is
        axes.plot(
            array(lost), [0.98] * len(lost), "x", color=INK, transform=above, label="diverged"
        )
    _scale(axes, places, ticks)
    axes.set_xlabel(key)
    if len(names) > 1 or len(lost) or names[0]:
        axes.legend(
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            ncols=2,
            frameon=False,
            fontsize=7.5,
            handlelength=1.2,
        )  # fmt: skip -- above the panel, where it hides no point
    grid(axes)


def _places(given: Sequence[Any]) -> tuple[Float[Tensor, " cells"], list[str]]:
    """Where each value stands on the axis, and the names of places where values are no numbers."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in given):
        return torch.tensor([float(value) for value in given], dtype=torch.float64), []
    names = [*dict.fromkeys(map(written, given))]
    places = [float(names.index(written(value))) for value in given]
    return torch.tensor(places, dtype=torch.float64), names


def _words(settings: Mapping[str, Any], key: str) -> str:
    return ", ".join(f"{name}={written(v)}" for name, v in settings.items() if name != key)


def _wide(values: Float[Tensor, " _"], ratio: float) -> bool:
    positive = len(values) > 0 and float(values.min()) > 0
    return positive and float(values.max() / values.min()) > ratio


def _scale(axes: Axes, places: Float[Tensor, " cells"], names: Sequence[str]) -> None:
    """Names under places that have some; decades for numbers over more than one."""
    if names:
        axes.set_xticks(range(len(names)), names)
        if max(map(len, names)) * len(names) > 36:  # letters that a panel has room for
            axes.tick_params("x", rotation=30)
        axes.set_xlim(-0.5, len(names) - 0.5)
    elif _wide(places, DECADE):
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
    elif len(places.unique()) <= 6:
        axes.set_xticks(array(places.unique()))
