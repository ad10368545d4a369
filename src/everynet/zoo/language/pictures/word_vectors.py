"""Words as points: a map of neighbours, relations as arrows, and how alike words are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray
from torch import Tensor

from everynet.plot.style import CYCLE, FAINT, INK, MAGNITUDE, SIGNED, array, colour, figure, grid
from everynet.plot.text import SMALL, WIDTH, drawable

LETTER = 0.6 * SMALL / 72  # inches, a little more than a letter takes
LINE = 1.25 * SMALL / 72
ROUND = ((0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1))
"""Where a name can stand, seen from its point."""


def word_map(points: Float[Tensor, "words 2"], groups: Mapping[str, Sequence[str]]) -> Figure:
    """Points in the order of the words of all groups; a group has a colour, its head a star.

    Across and up is the same scale, so that what is near in the picture is near on the plane.
    """
    made = figure(WIDTH, 5.2)
    axes = made.axes[0]
    places = array(points)
    names = [word for words in groups.values() for word in words]
    heads = {start for start, _ in _spans(groups)}
    low, high = places.min(0), places.max(0)
    middle, half = (low + high) / 2, 0.56 * (high - low).max() + 1e-6
    axes.set(
        xlim=middle[0] + half * np.array([-1.2, 1.2]), ylim=middle[1] + half * np.array([-1, 1])
    )
    for number, (start, stop) in enumerate(_spans(groups)):
        own = places[start:stop]
        for x, y in own[1:]:
            axes.plot([own[0, 0], x], [own[0, 1], y], color=colour(number), lw=0.8, alpha=0.5)
        axes.plot(*own[1:].T, "o", ms=4, color=colour(number))
        axes.plot(*own[:1].T, "*", ms=11, color=colour(number), mec=INK, mew=0.5)
    inks = [colour(n) for n, (start, stop) in enumerate(_spans(groups)) for _ in range(start, stop)]
    _name(axes, places, names, inks, inches=(5.7, 4.6), bold=heads)
    axes.set(xlabel="first principal axis", ylabel="second principal axis")
    grid(axes)
    return made


def _spans(groups: Mapping[str, Sequence[str]]) -> list[tuple[int, int]]:
    ends = np.cumsum([0, *(len(words) for words in groups.values())]).tolist()
    return list(pairwise(ends))


def word_arrows(
    relations: Mapping[str, tuple[Sequence[tuple[str, str]], Float[Tensor, "pairs 2 2"]]],
) -> Figure:
    """For each relation an arrow from the first word of a pair to the second, on a plane.

    Where the relation is one difference of vectors, the arrows are parallel: any two pairs make a
    parallelogram. The black arrow is the mean of all.
    """
    made = figure(WIDTH, 3.5 if len(relations) > 1 else 4.4, 1, len(relations))
    inches = (WIDTH / len(relations) - 0.6, made.get_figheight() - 0.8)
    for axes, (title, (pairs, points)) in zip(made.axes, relations.items(), strict=True):
        ends = array(points)
        flat = ends.reshape(-1, 2)
        low, high = flat.min(0), flat.max(0)
        room = 0.16 * (high - low) + 1e-6
        axes.set(xlim=(low[0] - room[0], high[0] + room[0]))
        axes.set(ylim=(low[1] - room[1], high[1] + room[1]))
        for number, (start, stop) in enumerate(ends):
            _arrow(axes, start, stop, colour(number), 1.4)
        middle, mean = ends.mean((0, 1)), (ends[:, 1] - ends[:, 0]).mean(0)
        _arrow(axes, middle - mean / 2, middle + mean / 2, INK, 2.6)
        inks = [colour(number) for number in range(len(pairs)) for _ in range(2)]
        along = np.linspace(0, 1, 9)[:, None, None]
        way = (ends[:, 0] + along * (ends[:, 1] - ends[:, 0])).reshape(-1, 2)
        names = [word for pair in pairs for word in pair]
        _name(axes, flat, names, inks, inches=inches, avoid=way)
        axes.set_title(title, color=INK, fontsize="medium")
        axes.set(xlabel="first principal axis", ylabel="second principal axis")
        grid(axes)
    return made


def _arrow(
    axes: Axes, start: NDArray[np.float64], stop: NDArray[np.float64], ink: str, width: float
) -> None:
    style = {"arrowstyle": "-|>", "color": ink, "lw": width, "shrinkA": 0, "shrinkB": 0}
    axes.annotate(
        "", tuple(stop), tuple(start), arrowprops={**style, "mutation_scale": 6 + 3 * width}
    )


def _name(
    axes: Axes,
    points: NDArray[np.float64],
    names: Sequence[str],
    inks: Sequence[str],
    *,
    inches: tuple[float, float],
    bold: set[int] | frozenset[int] = frozenset(),
    avoid: NDArray[np.float64] | None = None,
) -> None:
    """Write each name beside its point, where it covers least of the others."""
    low = np.array([axes.get_xlim()[0], axes.get_ylim()[0]])
    high = np.array([axes.get_xlim()[1], axes.get_ylim()[1]])
    places = (points - low) / (high - low) * inches
    others = points if avoid is None else avoid
    taken = [(at - 0.04, at + 0.04) for at in (others - low) / (high - low) * inches]
    for number in sorted(range(len(names)), key=lambda n: (n not in bold, n)):
        name = drawable(names[number])
        half = np.array([LETTER * len(name), LINE]) / 2
        best: tuple[float, NDArray[np.float64]] | None = None
        for distance in (0.05, 0.16, 0.3):
            for way in ROUND:
                centre = places[number] + np.array(way) * (half + distance)
                hidden = sum(_overlap(centre - half, centre + half, *box) for box in taken)
                outside = np.maximum(0, half - centre).sum()
                outside += np.maximum(0, centre + half - inches).sum()
                cost = hidden + 5 * outside + 0.01 * distance
                if best is None or cost < best[0]:
                    best = cost, centre
        assert best is not None
        taken.append((best[1] - half, best[1] + half))
        x, y = best[1] / inches * (high - low) + low
        if np.linalg.norm((best[1] - places[number]) / (half + 0.12)) > 1.5:  # too far to be seen
            axes.plot([points[number, 0], x], [points[number, 1], y], color=FAINT, lw=0.7, zorder=0)
        weight = "bold" if number in bold else "normal"
        axes.text(
            x,
            y,
            name,
            color=inks[number],
            parse_math=False,
            ha="center",
            va="center",
            fontsize=SMALL,
            fontweight=weight,
            path_effects=[withStroke(linewidth=2, foreground="white")],
        )


def _overlap(
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    other_low: NDArray[np.float64],
    other_high: NDArray[np.float64],
) -> float:
    """The area, in square inches, that two boxes share."""
    shared = np.minimum(high, other_high) - np.maximum(low, other_low)
    return float(np.maximum(shared, 0).prod())


def word_similarity(
    cosines: Float[Tensor, "words words"], groups: Mapping[str, Sequence[str]]
) -> Figure:
    """The cosine between any two words, group by group; a frame in the colour of each group."""
    names = [drawable(word) for words in groups.values() for word in words]
    made = figure(WIDTH, 5.6)
    axes = made.axes[0]
    signed = bool((cosines < -0.2).any())
    low = -1.0 if signed else min(0.0, float(cosines.min()))
    cmap = SIGNED if signed else MAGNITUDE
    image = axes.imshow(
        array(cosines), cmap=cmap, vmin=low, vmax=1.0, aspect="auto", interpolation="nearest"
    )
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set_yticks(range(len(names)), names)
    for axis in (axes.xaxis, axes.yaxis):
        for label in axis.get_ticklabels():
            label.set_fontsize(SMALL)
            label.set_parse_math(False)
    for number, (start, stop) in enumerate(_spans(groups)):
        box = np.array([start, start, stop, stop, start]) - 0.5
        axes.plot(box, np.roll(box[:-1], -1)[[0, 1, 2, 3, 0]], color=CYCLE[number % 10], lw=2)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_color(FAINT)
    made.colorbar(image, label="cosine between two words", shrink=0.8)
    return made
