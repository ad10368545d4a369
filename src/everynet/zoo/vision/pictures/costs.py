"""What the layers of a network cost, layer by layer: numbers to learn, products to compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator
from torch import Tensor, stack

from everynet.plot.style import BASELINE, CYCLE, FAINT, INK, OURS, array, figure

LINE = 0.2  # inches that a layer takes


def layer_costs(
    layers: Sequence[str],
    costs: Mapping[str, Mapping[str, Float[Tensor, " layers"]]],
    *,
    title: str = "",
) -> Figure:
    """Bars for each layer, the first layer on top; one pair of axes for each kind of cost.

    The kinds of one cost are drawn over each other, the last in front: give the largest, which is
    the baseline, first.
    Beside its name in the legend stands the sum over all layers.
    """
    made = figure(6.5, LINE * len(layers) + 1.5, 1, len(costs))
    places = range(len(layers))
    for number, (axes, (cost, kinds)) in enumerate(zip(made.axes, costs.items(), strict=True)):
        for index, (kind, values) in enumerate(kinds.items()):
            total = EngFormatter(places=1)(float(values.double().sum()))
            inks = (BASELINE, OURS) if _nested(kinds) else CYCLE
            thick = 0.8 - 0.3 * (index > 0 and _nested(kinds))
            axes.barh(places, array(values), thick, color=inks[index], label=f"{kind}: {total}")
        axes.invert_yaxis()
        axes.set_yticks(places, layers if number == 0 else [""] * len(layers), fontsize=7)
        axes.tick_params(axis="y", length=0)
        axes.tick_params(axis="x", labelsize=7)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.grid(visible=True, axis="x", color=FAINT, linewidth=0.5, alpha=0.6)
        axes.set_xlabel(cost, fontsize=8)
        axes.legend(
            *axes.get_legend_handles_labels(),
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            ncols=len(kinds),
            fontsize=7,
            frameon=False,
            columnspacing=1.0,
            handlelength=1.0,
        )
    made.suptitle(title, color=INK, fontsize="medium")
    return made


def _nested(kinds: Mapping[str, Tensor]) -> bool:
    """Whether some layer has a cost of two kinds, of which the one in front is drawn thinner."""
    return bool((stack([values > 0 for values in kinds.values()]).sum(0) > 1).any())
