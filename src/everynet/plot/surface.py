"""Decision surfaces: what a network with two inputs answers at every point of a square.

The last unit gives a score z. A step head answers 1 where z > 0 and else 0; a sigmoid head answers
1 / (1 + exp(-z)). Both change sides on the curve z = 0, the boundary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from contourpy import contour_generator
from jaxtyping import Float, Int, Shaped
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, ListedColormap
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from mpl_toolkits.mplot3d.axes3d import Axes3D
from numpy.typing import NDArray
from torch import Tensor

from everynet.plot.style import (
    CYCLE,
    INK,
    MAGNITUDE,
    SIGNED,
    WIDTH,
    array,
    bare,
    colour,
    dress,
    figure,
    symmetric,
)

HEADS: dict[str, Callable[[Tensor], Tensor]] = {
    "step": lambda z: (z > 0).to(z.dtype),
    "sigmoid": torch.sigmoid,
}
"""The output for the score z of the last unit."""

SIDES = LinearSegmentedColormap.from_list("sides", [CYCLE[0], "#f4f4f4", CYCLE[1]])
"""From the colour of the first class to that of the second, pale where the network is unsure."""
_COLOURS: dict[str, Any] = {"cmap": SIDES, "vmin": 0, "vmax": 1}  # Any: matplotlib's arguments


def square(
    points: int = 120, low: float = -1.0, high: float = 1.0
) -> Float[Tensor, "points_squared 2"]:
    """All (x1, x2) of a grid on [low, high]^2, row after row from the bottom."""
    side = torch.linspace(low, high, points, dtype=torch.float64)
    return torch.cartesian_prod(side, side).flip(1)


def boundary(
    scores: Float[Tensor, " points_squared"], low: float = -1.0, high: float = 1.0
) -> list[Float[Tensor, "vertices 2"]]:
    """The curves z = 0 through scores given on `square`, each as its vertices (x1, x2)."""
    z, side = _on_square(scores, low, high)
    lines = contour_generator(x=side, y=side, z=z).lines(0.0)
    return [torch.from_numpy(line) for line in lines]


def decision_surface(
    scores: Float[Tensor, " points_squared"],
    inputs: Float[Tensor, "batch 2"] | None = None,
    targets: Int[Tensor, " batch"] | None = None,
    *,
    low: float = -1.0,
    high: float = 1.0,
    labels: Sequence[str] = ("$x_1$", "$x_2$"),
    classes: Sequence[str] = (),
) -> Figure:
    """Step and sigmoid heads side by side, from above with the samples and as a surface in 3-D."""
    # The labels of 3-D axes are not seen by the layout: it needs wider margins.
    drawn = Figure(figsize=(WIDTH, 5.6), layout=ConstrainedLayoutEngine(w_pad=0.12))
    for column, (head, respond) in enumerate(HEADS.items()):
        answers = respond(scores.detach().double().cpu())
        flat = dress(drawn.add_subplot(2, 2, column + 1))
        bands = _from_above(flat, answers, low, high)
        for line in boundary(scores, low, high):
            flat.plot(line[:, 0], line[:, 1], color=INK, linewidth=1.4)
        if inputs is not None and targets is not None:
            scatter(flat, inputs, targets, classes)
        flat.set(title=f"{head} head", xlabel=labels[0], ylabel=labels[1])
        solid = dress(drawn.add_subplot(2, 2, column + 3, projection="3d"))
        _in_relief(solid, answers, low, high)
        solid.locator_params(nbins=4)
        solid.set(xlabel=labels[0], ylabel=labels[1], zlabel="answer", box_aspect=(4, 4, 2.8))
        solid.set(zlim=(0, 1), zticks=[0, 0.5, 1])
    drawn.colorbar(bands, ax=drawn.axes[::2], label="answer", ticks=[0, 0.5, 1], shrink=0.9)
    if classes and inputs is not None:
        handles, names = drawn.axes[0].get_legend_handles_labels()
        drawn.legend(handles, names, loc="outside upper right", ncols=len(names), frameon=False)
    return drawn


def decision_regions(
    chosen: Int[Tensor, " points_squared"],
    inputs: Float[Tensor, "batch 2"],
    targets: Int[Tensor, " batch"],
    *,
    low: float = -1.0,
    high: float = 1.0,
    labels: Sequence[str] = ("$x_1$", "$x_2$"),
    classes: Sequence[str] = (),
) -> Figure:
    """The class chosen at every point of the square, for any number of classes."""
    points = _side(chosen)
    count = int(max(chosen.max(), targets.max())) + 1
    drawn = figure(5.2, 4.4)
    axes = drawn.axes[0]
    axes.imshow(
        array(chosen).reshape(points, points),
        cmap=ListedColormap([colour(i) for i in range(count)]),
        vmin=-0.5,
        vmax=count - 0.5,
        extent=(low, high, low, high),
        origin="lower",
        alpha=0.35,
        interpolation="nearest",
    )
    scatter(axes, inputs, targets, classes or [str(i) for i in range(count)])
    axes.set(xlabel=labels[0], ylabel=labels[1], xlim=(low, high), ylim=(low, high))
    drawn.legend(loc="outside upper center", ncols=count, frameon=False)
    return drawn


def unit_maps(
    layers: Sequence[Float[Tensor, "points_squared _"]],
    *,
    low: float = -1.0,
    high: float = 1.0,
    most: int = 8,
) -> Figure:
    """The value of each hidden unit over the square, a row for each layer, one scale for all."""
    columns = min(most, max(layer.shape[1] for layer in layers))
    drawn = figure(WIDTH, 0.85 * len(layers) + 0.3, len(layers), columns)
    peak = max(symmetric(layer)[1] for layer in layers)
    signed = any(bool((layer < 0).any()) for layer in layers)
    for row, layer in enumerate(layers):
        panels = drawn.axes[row * columns : (row + 1) * columns]
        panels[0].set_ylabel(f"layer {row + 1}\n{layer.shape[1]} units", fontsize="small")
        for unit, axes in enumerate(panels):
            bare(axes)
            if unit < layer.shape[1]:
                image = axes.imshow(
                    _on_square(layer[:, unit], low, high)[0],
                    cmap=SIGNED if signed else MAGNITUDE,
                    vmin=-peak if signed else 0.0,
                    vmax=peak,
                    extent=(low, high, low, high),
                    origin="lower",
                )
    drawn.colorbar(image, ax=drawn.axes, label="value", shrink=0.9, pad=0.01)
    return drawn


def scatter(
    axes: Axes,
    inputs: Float[Tensor, "batch 2"],
    targets: Int[Tensor, " batch"],
    classes: Sequence[str] = (),
) -> None:
    """The samples as points in the colours of their classes."""
    for index in targets.unique().tolist():
        of_class = array(inputs[targets == index])
        axes.scatter(
            of_class[:, 0], of_class[:, 1], s=18 if len(inputs) < 400 else 7, color=colour(index),
            edgecolor="white", linewidth=0.5, label=_class_name(classes, index), zorder=3,
        )  # fmt: skip


def _class_name(classes: Sequence[str], index: int) -> str:
    name = classes[index] if index < len(classes) else str(index)
    return f"class {name}" if name.isdigit() else name


def _from_above(
    axes: Axes, answers: Float[Tensor, " points_squared"], low: float, high: float
) -> ContourSet:
    """Answers as filled bands of a tenth each, samples' colours at both ends."""
    z, side = _on_square(answers, low, high)
    levels = torch.linspace(0, 1, 11)
    bands = axes.contourf(side, side, z, levels=levels, alpha=0.6, **_COLOURS)
    axes.set(box_aspect=1, xlim=(low, high), ylim=(low, high))
    axes.locator_params(nbins=5)
    return bands


def _in_relief(
    axes: Axes, answers: Float[Tensor, " points_squared"], low: float, high: float
) -> None:
    """Answers by height: one sheet, or the points themselves where they jump between 0 and 1."""
    assert isinstance(axes, Axes3D)
    z, side = _on_square(answers, low, high)
    x1, x2 = np.meshgrid(side, side)
    if set(np.unique(z)) <= {0.0, 1.0}:
        for level in (0.0, 1.0):  # two plates
            edges, ink = [level - 0.5, level + 0.5], [SIDES(level)]
            axes.contourf(x1, x2, z, levels=edges, colors=ink, zdir="z", offset=level, alpha=0.9)
    else:
        axes.plot_surface(x1, x2, z, rcount=60, ccount=60, antialiased=False, **_COLOURS)
    axes.elev, axes.azim = 35, -60


def _on_square(
    values: Float[Tensor, " points_squared"], low: float, high: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Values given on `square` as a matrix (rows are x2), and the ticks of its sides."""
    points = _side(values)
    matrix = array(values).reshape(points, points)
    return matrix, np.linspace(low, high, points)


def _side(values: Shaped[Tensor, " points_squared"]) -> int:
    points = math.isqrt(len(values))
    if points**2 != len(values):
        raise ValueError(
            f"values ({len(values)} of them) must be a square number, because they fill a square; "
            "give one for each point of square()"
        )
    return points
