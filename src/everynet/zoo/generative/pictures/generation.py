"""Generated points beside real ones, and the noise that they come from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import CYCLE, INK, MAGNITUDE, OURS, array, colour, figure
from everynet.zoo.generative.pictures.denoising import Rings, draw_rings


def samples_on_surfaces(
    real: Float[Tensor, "rows 2"],
    fake: Float[Tensor, "others 2"],
    surfaces: Mapping[str, Float[Tensor, " points_squared"]],
    *,
    span: float,
) -> Figure:
    """Real points beside generated ones, then those on surfaces of a probability by name.

    A surface has a value for each point of `square` from -span to span, not a number where there is
    none; its line is at 1/2.
    """
    drawn = figure(2.2 * (1 + len(surfaces)), 2.6, 1, 1 + len(surfaces))
    first, *others = drawn.axes
    _dots(first, real, INK, 3, label="real")
    _dots(first, fake, CYCLE[1], 3, label="generated")
    first.set_title("points", fontsize="medium")
    first.legend(loc="center", fontsize="small", frameon=False, markerscale=3, handletextpad=0.1)
    for axes, (name, values) in zip(others, surfaces.items(), strict=True):
        _surface(axes, values, span)
        _dots(axes, fake, CYCLE[1], 1.5)
        axes.set_title(name, fontsize="medium")
        axes.set_yticklabels([])
    for axes in drawn.axes:
        _plane(axes, span)
        axes.set_xlabel("x")
    first.set_ylabel("y")
    if others:
        bar = drawn.colorbar(
            others[-1].images[0], ax=others, shrink=0.78, pad=0.02, ticks=[0, 0.5, 1]
        )
        bar.set_label("taken for real with this probability\n(white line: 1/2)", fontsize="small")
    return drawn


def game_frames(
    states: Iterable[tuple[str, Float[Tensor, "rows 2"], Float[Tensor, " points_squared"]]],
    *,
    span: float,
    truth: Rings,
) -> Iterator[Figure]:
    """A frame for each state of a game, by its name: generated points, and D on a `square`."""
    for name, fake, answer in states:
        made = figure(5.4, 2.6, 1, 2)  # small, as is the film
        left, right = made.axes
        draw_rings(left, truth)
        _dots(left, fake, OURS, 3)
        left.set_title(f"{name}: generated points", color=INK)
        _surface(right, answer, span, shades=20)
        right.set_title("taken for real by D", color=INK)
        bar = made.colorbar(right.images[0], ax=right, shrink=0.85, pad=0.02, ticks=[0, 0.5, 1])
        bar.set_label("D(x), white line at 1/2", fontsize="small")
        for axes in (left, right):
            _plane(axes, span)
            axes.set(xlabel="x", ylabel="y")
        yield made


def noise_to_points(
    noise: Float[Tensor, "rows 2"],
    fake: Float[Tensor, "rows 2"],
    group: Int[Tensor, " rows"],
    circles: Mapping[str, tuple[Float[Tensor, "turn 2"], Float[Tensor, "turn 2"]]],
    *,
    span: float,
) -> Figure:
    """Noise in the colours of the groups its points end in, and circles of noise as they end."""
    drawn = figure(6.5, 3.3, 1, 2)
    before, after = drawn.axes
    paint = [colour(index) for index in group.tolist()]
    for axes, points in ((before, noise), (after, fake)):
        _dots(axes, points, paint, 5)
    for number, (name, ways) in enumerate(circles.items()):
        dash = ("-", "--", ":")[number % 3]
        for axes, way in zip(drawn.axes, ways, strict=True):
            axes.plot(*array(way).T, dash, color=INK, linewidth=1.1, label=name)
    _plane(before, 3.2)
    _plane(after, span)
    before.set(xlabel="$z_1$", ylabel="$z_2$")
    after.set(xlabel="x", ylabel="y")
    before.set_title("noise z, by the group it ends in", fontsize="medium")
    after.set_title("G(z), and where circles of z go", fontsize="medium")
    before.legend(fontsize="small", loc="upper right", framealpha=0.9)
    return drawn


def _surface(
    axes: Axes, values: Float[Tensor, " points_squared"], span: float, shades: int = 256
) -> None:
    """A probability at each point of a `square`, with a line at 1/2; in a film by few shades."""
    points = math.isqrt(len(values))
    side, z = np.linspace(-span, span, points), array(values).reshape(points, points)
    axes.imshow(
        z, cmap=MAGNITUDE.resampled(shades), vmin=0, vmax=1, origin="lower",
        interpolation="nearest", extent=(-span, span, -span, span),
    )  # fmt: skip
    if np.nanmin(z) < 0.5 < np.nanmax(z):
        axes.contour(
            side, side, np.ma.masked_invalid(z), levels=[0.5], colors="white", linewidths=1.1
        )


def _dots(
    axes: Axes, points: Float[Tensor, "rows 2"], ink: str | list[str], size: float, label: str = ""
) -> None:
    x, y = array(points).T
    axes.scatter(x, y, s=size, c=ink, alpha=0.6, linewidths=0, label=label)


def _plane(axes: Axes, span: float) -> None:
    axes.set(xlim=(-span, span), ylim=(-span, span))
    axes.set_aspect("equal")
    axes.locator_params(nbins=5)
