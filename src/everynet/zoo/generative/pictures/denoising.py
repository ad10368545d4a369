"""Points and images on their way into noise and out of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float, UInt8
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from torch import Tensor

from everynet.plot.images import mosaic
from everynet.plot.style import CONTRAST, FAINT, INK, OURS, TRUTH, WIDTH, array, figure

Points = Float[Tensor, "rows 2"]
Field = tuple[int, Points, Points]
"""A step t, and the arrows of the network and of the exact answer."""
Rings = tuple[Float[Tensor, "means 2"], float]
"""The means of round Gaussians, and the radius of a circle around each."""
LEAST_SIDE = 32
"""Pixels of a side of an image in a film, at least."""


def clouds(rows: Mapping[str, Sequence[Points]], times: Sequence[int], *, span: float) -> Figure:
    """Points by rows with names, a column for each step of noising."""
    made = figure(WIDTH, 1.05 * len(rows) + 0.3, len(rows), len(times))
    for place, axes in enumerate(made.axes):
        row, column = divmod(place, len(times))
        name = [*rows][row]
        _plane(axes, span)
        x, y = array(rows[name][column]).T
        axes.scatter(x, y, s=1.5, color=INK if row == 0 else OURS, linewidths=0)
        axes.set(xticks=[], yticks=[])
        for spine in axes.spines.values():
            spine.set_visible(True)
            spine.set_color(FAINT)
        if row == 0:
            axes.set_title(f"t = {times[column]}", fontsize="small", color=INK)
        if column == 0:
            axes.set_ylabel(name, fontsize="small")
    return made


def noise_fields(
    places: Points,
    fields: Sequence[Field],
    densities: Sequence[Float[Tensor, " points_squared"]],
    ways: Float[Tensor, "steps points 2"],
    *,
    span: float,
) -> Figure:
    """Arrows at places for each step t, on the density at that step; and the ways of points."""
    made = figure(WIDTH, 5.6, 2, 2)
    for axes, (t, arrows, exact), density in zip(made.axes, fields, densities, strict=False):
        side = math.isqrt(len(density))
        axes.imshow(
            array(density).reshape(side, side), cmap="Greys", extent=(-span, span, -span, span),
            origin="lower", alpha=0.55,
        )  # fmt: skip
        for way, ink, wide in ((exact, INK, 0.011), (arrows, OURS, 0.006)):
            axes.quiver(
                *array(places).T, *array(way).T, color=ink, angles="xy", scale_units="xy",
                scale=6.0, width=wide, headwidth=3.0, alpha=0.35 if way is exact else 1.0,
                label="exact" if way is exact else "network",
            )  # fmt: skip
        _plane(axes, span)
        axes.set_title(f"against the noise at t = {t}", fontsize="medium", color=INK)
    axes = made.axes[3]
    for way in array(ways).transpose(1, 0, 2):
        axes.plot(*way.T, color=OURS, linewidth=0.7, alpha=0.8)
    for ends, ink, name in ((ways[0], INK, "noise"), (ways[-1], CONTRAST, "points")):
        x, y = array(ends).T
        axes.scatter(x, y, s=8, color=ink, linewidths=0, label=name, zorder=3)
    _plane(axes, span)
    axes.set_title("ways from noise to points", fontsize="medium", color=INK)
    for each in made.axes:
        each.set(xlabel="x", ylabel="y")
    handles, names = axes.get_legend_handles_labels()
    more = made.axes[0].get_legend_handles_labels()
    made.legend(
        [*more[0], *handles], [*more[1], *names], loc="outside lower center", ncols=4,
        frameon=False, fontsize="small",
    )  # fmt: skip
    return made


def ring_frames(
    states: Iterable[tuple[int, Points]], *, span: float, truth: Rings
) -> Iterator[Figure]:
    """A frame for each state of a cloud of points, beside circles around the data."""
    for t, points in states:
        made = figure(3.1, 3.2)
        axes = made.axes[0]
        draw_rings(axes, truth)
        x, y = array(points).T
        axes.scatter(x, y, s=3, color=OURS, linewidths=0)
        _plane(axes, span)
        axes.set(xlabel="x", ylabel="y")
        axes.set_title(f"steps of noise left: {t}", color=INK)
        yield made


def draw_rings(axes: Axes, truth: Rings) -> None:
    """Circles of one radius around the means of Gaussians, dashed as all that is true."""
    centres, radius = truth
    for centre in array(centres):
        axes.add_patch(Circle(tuple(centre), radius, fill=False, ec=TRUTH, ls="--", lw=0.8))


def image_frames(
    states: Iterable[Float[Tensor, "images channels height width"]], columns: int
) -> Iterator[UInt8[np.ndarray, "height width ..."]]:
    """A frame for each state of some images, with pixels from -1 to 1, enlarged where small."""
    for images in states:
        times = max(1, LEAST_SIDE // max(images.shape[2:]))
        large = images.float().repeat_interleave(times, 2).repeat_interleave(times, 3)
        sheet = mosaic((large.clamp(-1, 1) + 1) / 2, columns, gap=(2, 2)).nan_to_num(1.0)
        pixels = (255 * sheet).round().to(torch.uint8).numpy()
        yield pixels[..., 0] if pixels.shape[-1] == 1 else pixels


def _plane(axes: Axes, span: float) -> None:
    axes.set(xlim=(-span, span), ylim=(-span, span))
    axes.set_aspect("equal")
    axes.locator_params(nbins=5)
