"""How far gates are open along a sequence, and what each answer hangs on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from torch import Tensor

from everynet.plot.style import INK, MAGNITUDE, array, colour, dress, figure, grid
from everynet.plot.text import drawable

WIDTH = 6.5  # inches
SMALL = 7  # points


def gate_maps(
    gates: Sequence[Float[Tensor, "time _units"]],
    tokens: Sequence[str],
    marked: Bool[Tensor, " time"],
    heading: str = "",
) -> Figure:
    """Every gate (down) at every token (across), a map for each block.

    Gates that are wider open at marked tokens than at others stand above; the names of marked
    tokens are bold.
    """
    made = Figure(figsize=(WIDTH, 0.9 + 1.5 * len(gates)), layout="constrained")
    rows = made.subplots(len(gates), 1, sharex=True, squeeze=False)[:, 0]
    for number, (axes, z) in enumerate(zip(rows, gates, strict=True), 1):
        preferring = z[marked].mean(0) - z[~marked].mean(0)
        ordered = z[:, preferring.argsort(descending=True)].T
        image = _map(axes, ordered)
        axes.set_ylabel(f"block {number}\ngates, by unit", fontsize=SMALL + 1)
        axes.set_yticks([])
        axes.tick_params(axis="x", length=0)
    _across(rows[-1], tokens)
    for label, bold in zip(rows[-1].get_xticklabels(), marked.tolist(), strict=True):
        label.set_fontweight("bold" if bold else "normal")
    rows[0].set_title(heading, color=INK, fontsize=SMALL + 1)
    _bar(made, image, list(rows), "gate $z_t$: 0 keeps the state, 1 replaces it")
    return made


def gate_rows(gates: Float[Tensor, "layers time"], tokens: Sequence[str]) -> Figure:
    """One gate of each layer along a text."""
    made = Figure(figsize=(WIDTH, 1.2 + 0.24 * len(gates)), layout="constrained")
    axes = made.subplots()
    image = _map(axes, gates)
    axes.set_yticks(range(len(gates)), [f"block {n}" for n in range(1, len(gates) + 1)])
    axes.tick_params(labelsize=SMALL)
    for edge in range(1, len(gates)):
        axes.axhline(edge - 0.5, color="white", linewidth=2)
    _across(axes, tokens)
    axes.set_xlabel("held-out text")
    _bar(made, image, [axes], "gate $z_t$")
    return made


def memory_curves(times: Sequence[Float[Tensor, " _units"]]) -> Figure:
    """How long the units of each block remember, from the shortest to the longest."""
    made = figure(WIDTH, 3.0)
    axes = made.axes[0]
    for number, block in enumerate(times):
        share = np.linspace(0, 100, len(block))
        axes.plot(share, np.sort(array(block)), color=colour(number), label=f"block {number + 1}")
    axes.set_yscale("log")
    for places in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        places(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.tick_params(labelsize=SMALL, which="both")
    axes.set_xlabel("units that remember no longer, %", fontsize=SMALL + 1)
    axes.set_ylabel("characters until a state is 1/e", fontsize=SMALL + 1)
    axes.legend(frameon=False, fontsize=SMALL)
    grid(axes)
    return made


def swapped_map(lost: Float[Tensor, "answers symbols"]) -> Figure:
    """How much each answer (down) loses where each symbol (across) is another one."""
    made = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    axes = made.subplots()
    image = _map(axes, lost)
    for ticks, size in ((axes.set_yticks, len(lost)), (axes.set_xticks, lost.shape[1])):
        ticks(range(size), [str(n) for n in range(1, size + 1)])
    axes.set_xlabel("symbol that was exchanged, in the order they came", fontsize=SMALL + 1)
    axes.set_ylabel("answer", fontsize=SMALL + 1)
    axes.tick_params(labelsize=SMALL)
    _bar(made, image, [axes], "loss of the right answer's probability")
    return made


def _map(axes: Axes, values: Tensor) -> object:
    dress(axes)
    return axes.imshow(
        array(values), cmap=MAGNITUDE, vmin=0, vmax=1, aspect="auto", interpolation="nearest"
    )


def _across(axes: Axes, tokens: Sequence[str]) -> None:
    axes.set_xticks(range(len(tokens)), [drawable(token) for token in tokens], parse_math=False)
    axes.tick_params(axis="x", length=0, labelsize=SMALL, pad=2)
    axes.set_xlabel("token", fontsize=SMALL + 1)


def _bar(made: Figure, image: object, axes: list[Axes], label: str) -> None:
    bar = made.colorbar(image, ax=axes, pad=0.01, aspect=30)  # type: ignore[arg-type]  # an image
    bar.set_label(label, fontsize=SMALL + 1)
    bar.ax.tick_params(labelsize=SMALL)
