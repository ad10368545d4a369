"""Pictures of filters on a photo: blur and edges, and where a template was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from torch import Tensor

from everynet.plot.style import INK, MAGNITUDE, SIGNED, array, bare, colour, dress, symmetric

WIDTH = 6.5  # inches
SMALL = 8  # points

Images = Mapping[str, Float[Tensor, "_ _"]]


def filtered_images(grey: Images, signed: Images, strength: Images) -> Figure:
    """Images by name, three to a row: grey levels, then differences, then magnitudes."""
    shown = {**grey, **signed, **strength}
    height, width = next(iter(grey.values())).shape
    rows = -(-len(shown) // 3)
    figure = Figure(
        figsize=(WIDTH, rows * (WIDTH / 3 * height / width + 0.22)), layout="constrained"
    )
    axes = figure.subplots(rows, 3, squeeze=False).flatten()
    for one, (name, image) in zip(axes, shown.items(), strict=False):
        if name in signed:
            low, high = (limit / 2 for limit in symmetric(image))
            one.imshow(array(image), cmap=SIGNED, vmin=low, vmax=high)
        elif name in strength:
            one.imshow(array(image), cmap=MAGNITUDE, vmin=0)
        else:
            one.imshow(array(image), cmap="gray", vmin=0, vmax=1)
        bare(dress(one))
        one.set_title(name, fontsize=SMALL, color=INK)
    for one in axes[len(shown) :]:
        one.remove()
    return figure


def template_matches(
    image: Float[Tensor, "height width"],
    template: Float[Tensor, "side side"],
    place: Int[Tensor, 2],
    maps: Mapping[str, Float[Tensor, "down across"]],
    found: Int[Tensor, "maps 2"],
) -> Figure:
    """An image with the place of a template, and the map of each way to look for it."""
    height, width = image.shape
    figure = Figure(figsize=(WIDTH, 2 * (WIDTH / 2.5 * height / width) + 0.5), layout="constrained")
    above, *rest = figure.subplots(2, 2).flatten()
    above.imshow(array(image), cmap="gray", vmin=0, vmax=1)
    side = len(template)
    _mark(above, place, side)
    above.set_title("photo in haze, and the template", fontsize=SMALL, color=INK)
    inset = above.inset_axes((0.75, 0.02, 0.23, 0.23 * width / height))
    inset.imshow(array(template), cmap="gray", vmin=0, vmax=1)
    inset.set(xticks=[], yticks=[])
    for spine in inset.spines.values():
        spine.set(color=colour(2), linewidth=1.5)
    for axes, (name, values), best in zip(rest, maps.items(), found, strict=True):
        signed = bool((values < 0).any())
        low, high = symmetric(values) if signed else (float(values.min()), float(values.max()))
        drawn = axes.imshow(
            array(values), cmap=SIGNED if signed else MAGNITUDE, vmin=low, vmax=high,
            extent=(side / 2, width - side / 2, height - side / 2, side / 2),
        )  # fmt: skip
        axes.set(xlim=(0, width), ylim=(height, 0))
        _mark(axes, place, side, best)
        away = max(abs(int(a) - int(b)) for a, b in zip(best, place, strict=True))
        where = "found" if away == 0 else f"{away} pixels away"
        axes.set_title(f"{name}: {where}", fontsize=SMALL, color=INK)
        bar = figure.colorbar(drawn, ax=axes, aspect=20, pad=0.02, shrink=0.85)
        bar.ax.tick_params(labelsize=7)
        bar.outline.set_visible(False)
    for axes in (above, *rest):
        bare(dress(axes))
    return figure


def _mark(
    axes: Axes, place: Int[Tensor, 2], side: int, found: Int[Tensor, 2] | None = None
) -> None:
    """A green frame where the template was cut, and an orange cross where it was found."""
    top, left = (int(k) for k in place)
    axes.add_patch(Rectangle((left, top), side, side, fill=False, edgecolor=colour(2), lw=1.6))
    if found is not None:
        row, column = (int(k) + side / 2 for k in found)
        axes.plot([column], [row], "x", color=colour(1), ms=9, mew=2.2, clip_on=False)


def found_shares(
    groups: Sequence[str],
    bars: Sequence[str],
    counts: Int[Tensor, "groups bars"],
    of: int,
) -> Figure:
    """How many of `of` were found: a group of bars for each light, a bar for each way to look."""
    figure = Figure(figsize=(WIDTH, 2.7), layout="constrained")
    axes = dress(figure.add_subplot())
    width = 0.8 / len(bars)
    for group, line in enumerate(counts.tolist()):
        for number, count in enumerate(line):
            at = group + (number - (len(bars) - 1) / 2) * width
            axes.bar(at, count, 0.92 * width, color=colour(number))
            axes.text(at, count, f"{count}", ha="center", va="bottom", fontsize=SMALL, color=INK)
    axes.set_xticks(range(len(groups)), groups)
    axes.set_ylabel(f"found, of {of}")
    axes.set_xlabel("the photo in which they were looked for")
    axes.set_ylim(0, 1.12 * of)
    names = [Patch(color=colour(number), label=name) for number, name in enumerate(bars)]
    figure.legend(handles=names, loc="outside upper center", ncols=3, frameon=False, fontsize=SMALL)
    return figure
