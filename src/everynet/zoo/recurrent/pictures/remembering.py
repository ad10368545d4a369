"""What several networks remember: their errors by task and length, and when each learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Real
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from torch import Tensor

from everynet.plot.style import INK, MAGNITUDE, array, colour, dress, grid

WIDTH = 6.5  # inches
SMALL = 7  # points
LEAST = 1e-4  # below it an error is drawn at the edge
MARKERS = "osD^v"


def error_rows(
    errors: Mapping[str, Float[Tensor, "names lengths"]],
    names: Sequence[str],
    lengths: Sequence[int],
    nothing: Mapping[str, float],
) -> Figure:
    """A row for each name with a mark for each length, a panel for each task.

    The dotted line is the error of whoever remembers nothing. Squared errors span decades, shares
    do not.
    """
    made = Figure(figsize=(WIDTH, 1.15 + 0.27 * len(names)), layout="constrained")
    for axes, (task, found) in zip(
        made.subplots(1, len(errors), sharey=True, squeeze=False)[0], errors.items(), strict=True
    ):
        dress(axes)
        shown, rows = array(found.clamp(min=LEAST)), np.arange(len(names))
        axes.hlines(rows, shown.min(1), shown.max(1), color=INK, linewidth=0.6)
        for column, length in enumerate(lengths):
            axes.plot(
                shown[:, column], rows, MARKERS[column % len(MARKERS)], color=colour(column),
                markersize=5, label=f"T = {length}",
            )  # fmt: skip
        axes.axvline(nothing[task], color=INK, linewidth=1, linestyle=":")
        axes.set_xlim(-0.03, 1.03)
        axes.set_xlabel("share of wrong answers", fontsize=SMALL + 1)
        if task == "adding":
            axes.set_xscale("log")
            axes.set_xlim(LEAST * 0.8, 1.6)
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set_xlabel("mean squared error", fontsize=SMALL + 1)
        axes.set_title(task, color=INK, fontsize=SMALL + 2)
        axes.tick_params(labelsize=SMALL)
        grid(axes)
    first = made.axes[0]
    first.set_yticks(range(len(names)), names)
    first.invert_yaxis()
    made.legend(
        *first.get_legend_handles_labels(), loc="outside lower center", ncols=len(lengths),
        frameon=False, fontsize=SMALL + 1,
    )  # fmt: skip
    return made


def learned_when(
    seen: Mapping[str, Sequence[tuple[Real[Tensor, " _looks"], Float[Tensor, " _looks"]]]],
    names: Sequence[str],
    steps: int,
) -> Figure:
    """Errors along training as shares of remembering nothing: a row for each name, by colour."""
    made = Figure(figsize=(WIDTH, 1.05 + 0.24 * len(names)), layout="constrained")
    rows = made.subplots(1, len(seen), sharey=True, squeeze=False)[0]
    across = np.linspace(0, steps, 200)
    for axes, (task, curves) in zip(rows, seen.items(), strict=True):
        dress(axes)
        lines = [np.interp(across, array(at), array(share)) for at, share in curves]
        image = axes.imshow(
            np.stack(lines), cmap=MAGNITUDE.reversed(), vmin=0, vmax=1, aspect="auto",
            extent=(0, steps, len(names) - 0.5, -0.5), interpolation="nearest",
        )  # fmt: skip
        for edge in range(1, len(names)):
            axes.axhline(edge - 0.5, color="white", linewidth=1.5)
        axes.set_title(task, color=INK, fontsize=SMALL + 2)
        axes.set_xlabel("updates", fontsize=SMALL + 1)
        axes.tick_params(labelsize=SMALL)
    rows[0].set_yticks(range(len(names)), names)
    bar = made.colorbar(image, ax=list(rows), pad=0.01, aspect=30)
    bar.set_label("error (1: no memory)", fontsize=SMALL + 1)
    bar.ax.tick_params(labelsize=SMALL)
    return made
