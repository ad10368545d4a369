"""Points in the plane: samples beside the data they should look like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import CYCLE, INK, WIDTH, figure


def scatter(
    points: Float[Tensor, "rows 2"],
    *,
    labels: Sequence[str] = ("x", "y"),
    title: str = "",
    beside: Mapping[str, Float[Tensor, "others 2"]] | None = None,
) -> Figure:
    """Points as dots; other sets of points, by name, in panels of their own with the same axes."""
    panels = {title: points, **(beside or {})}
    made = figure(3.25 * len(panels), min(3.3, 0.4 + WIDTH / len(panels)), 1, len(panels))
    everything = [each.detach().cpu() for each in panels.values()]
    low = min(float(each.min()) for each in everything)
    high = max(float(each.max()) for each in everything)
    margin = 0.05 * (high - low) or 1.0
    colours = (CYCLE[1], *[INK] * len(panels))
    for axes, (name, each), colour in zip(made.axes, panels.items(), colours, strict=False):
        at = each.detach().cpu().numpy()
        axes.scatter(at[:, 0], at[:, 1], s=4, color=colour, alpha=0.5, linewidths=0)
        axes.set(xlim=(low - margin, high + margin), ylim=(low - margin, high + margin))
        axes.set_aspect("equal")
        axes.set(xlabel=labels[0], ylabel=labels[1], title=name)
    return made
