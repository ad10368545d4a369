"""Mixtures of Gaussians in two of their columns: EM step by step, as ellipses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from torch import Tensor

from everynet.plot.style import INK, array, colour, figure

MOST = 2000  # rows that are drawn
PANELS = 6  # of the steps of EM
FRAMES = 40  # of a film


@runtime_checkable
class Mixture(Protocol):
    """The parameters of a mixture of Gaussians."""

    @property
    def weights(self) -> Tensor: ...
    @property
    def means(self) -> Tensor: ...
    @property
    def covariances(self) -> Tensor: ...
    def log_joint(self, x: Tensor) -> Tensor: ...


Plane = tuple[int, int]
"""Two columns: across and up."""


def steps_of_em(
    x: Float[Tensor, "rows features"], steps: Sequence[Mixture], plane: Plane, names: Sequence[str]
) -> Figure:
    """The mixture after some iterations, more of them near the start; the last one is last."""
    last = len(steps) - 1
    shown = sorted({round(last ** (i / (PANELS - 1))) for i in range(PANELS)} | {0, last})
    shown = [*shown[: PANELS - 1], last] if len(shown) > PANELS else shown
    columns = min(3, len(shown))
    rows = math.ceil(len(shown) / columns)
    made = figure(2.17 * columns, 2.1 * rows + 0.2, rows, columns, count=len(shown))
    for axes, step in zip(made.axes, shown, strict=True):
        _draw(axes, x, steps[step], plane)
        axes.set_title(f"iteration {step}" if step else "start: k-means", color=INK)
    _label(made, plane, names)
    return made


def ellipse_frames(
    x: Float[Tensor, "rows features"], steps: Sequence[Mixture], plane: Plane, names: Sequence[str]
) -> Iterator[Figure]:
    """The frames of a film of EM."""
    some = torch.linspace(0, len(steps) - 1, min(len(steps), FRAMES)).round().long().tolist()
    for step in some:
        made = figure(3.1, 3.1)
        _draw(made.axes[0], x, steps[step], plane)
        made.axes[0].set_title(f"iteration {step}" if step else "start: k-means", color=INK)
        made.axes[0].locator_params(nbins=5)
        _label(made, plane, names)
        yield made


def _draw(axes: Axes, x: Float[Tensor, "rows features"], mixture: Mixture, plane: Plane) -> None:
    across, up = plane
    rows = x[:MOST].double()
    likeliest = mixture.log_joint(rows).argmax(1)
    for k in range(len(mixture.weights)):
        mine = array(rows[likeliest == k])
        height = mine[:, up] if up != across else 0 * mine[:, across]
        axes.plot(mine[:, across], height, "o", ms=3.5, color=colour(k), alpha=0.55, mew=0)
        spread = mixture.covariances[k][[across, up]][:, [across, up]]
        values, vectors = torch.linalg.eigh(spread)
        wide, high = (4 * values.clamp(min=0).sqrt()).tolist()  # two standard deviations each way
        angle = math.degrees(math.atan2(float(vectors[1, 0]), float(vectors[0, 0])))
        centre = (float(mixture.means[k, across]), float(mixture.means[k, up]) * (up != across))
        axes.add_patch(
            Ellipse(centre, wide, high, angle=angle, fill=False, edgecolor=colour(k), linewidth=1.6)
        )
        axes.plot(*centre, "+", color=INK, ms=7, mew=1.3)
    for setter, column in ((axes.set_xlim, across), (axes.set_ylim, up)):
        low, high = float(rows[:, column].min()), float(rows[:, column].max())
        margin = 0.12 * (high - low) or 1.0
        setter(low - margin, high + margin)


def _label(made: Figure, plane: Plane, names: Sequence[str]) -> None:
    across, up = (f"{names[column]}, standardised" for column in plane)
    made.supxlabel(across, fontsize="medium")
    if plane[0] != plane[1]:
        made.supylabel(up, fontsize="medium")
