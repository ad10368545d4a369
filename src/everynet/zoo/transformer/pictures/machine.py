"""A machine with a memory along one sequence: what it holds, and where its heads are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from everynet.plot.style import LEAST, MAGNITUDE, SIGNED, WIDTH, array, dress, symmetric

Map = Float[Tensor, "_ _"]
SNAPSHOTS = 6
"""Times at which the whole memory is drawn."""


def draw_memory(
    given: Mapping[str, Map], weights: Mapping[str, Map], memory: Float[Tensor, "time rows width"]
) -> Figure:
    """Bits and weights by colour over time, and under them the memory at a few times."""
    made = Figure(figsize=(WIDTH, 6.6), layout="constrained")
    above = made.add_subfigure(made.add_gridspec(2, 1, height_ratios=(4.6, 2.0))[0])
    below = made.add_subfigure(made.add_gridspec(2, 1, height_ratios=(4.6, 2.0))[1])
    maps = {**given, **weights}
    every = above.subplots(
        len(maps), 1, sharex=True, height_ratios=[1.0 if n in given else 1.7 for n in maps]
    )
    for axes, (name, values) in zip(map(dress, every), maps.items(), strict=True):
        image = _show(axes, values, name, "channel" if name in given else "row")
        if name in weights:
            above.colorbar(image, ax=axes, pad=0.01, aspect=12, label="weight")
    every[-1].set_xlabel("time step $t$")
    last = len(memory) - 1
    times = [round(n * last / (SNAPSHOTS - 1)) for n in range(SNAPSHOTS)]
    low, high = symmetric(memory)
    for n, (axes, t) in enumerate(
        zip(map(dress, below.subplots(1, SNAPSHOTS, sharey=True)), times, strict=True)
    ):
        image = axes.imshow(
            array(memory[t]),
            cmap=SIGNED,
            vmin=low,
            vmax=high,
            aspect="auto",
            interpolation="nearest",
        )
        axes.set_title(f"after $t$ = {t + 1}", fontsize=LEAST + 0.5)
        axes.set_xlabel("column")
        if n == 0:
            axes.set_ylabel("memory row")
    below.colorbar(image, ax=below.axes, pad=0.01, aspect=14, label="number in the memory")
    return made


def draw_addressing(stages: Mapping[str, Sequence[Map]], heads: Sequence[str]) -> Figure:
    """For each head (across) its weights after each stage (down), over time."""
    made = Figure(figsize=(WIDTH, 1.45 * len(stages) + 0.5), layout="constrained")
    grid = made.subplots(len(stages), len(heads), sharex=True, sharey=True, squeeze=False)
    for line, (name, maps) in zip(grid, stages.items(), strict=True):
        for axes, head, values in zip(map(dress, line), heads, maps, strict=True):
            image = _show(axes, values, f"{head}: {name}", "")
        line[0].set_ylabel("memory row")
    for axes in grid[-1]:
        axes.set_xlabel("time step $t$")
    made.colorbar(image, ax=grid, pad=0.01, aspect=40, label="weight")
    return made


def _show(axes: Axes, values: Map, title: str, ylabel: str) -> AxesImage:
    """A map from 0 to 1 with a title; time steps are counted from 1."""
    rows, time = values.shape
    axes.set_title(title, fontsize=LEAST + 1, loc="left", pad=2)
    axes.set_ylabel(ylabel)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    return axes.imshow(
        array(values), cmap=MAGNITUDE, vmin=0, vmax=1, aspect="auto", interpolation="nearest",
        extent=(0.5, time + 0.5, rows - 0.5, -0.5),
    )  # fmt: skip
