"""Linear factor models: loadings, and signals beside what was mixed of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import FAINT, INK, SIGNED, array, colour, figure, symmetric

MOST = 40  # columns that are named


def loadings(
    w: Float[Tensor, "features components"], psi: Float[Tensor, " features"], names: Sequence[str]
) -> Figure:
    """The loading of each column on each factor, and how the variance of the column splits."""
    rows = min(len(w), MOST)
    made = figure(6.5, 0.9 + 0.2 * rows, 1, 2)
    left, right = made.axes
    low, high = symmetric(w)
    shown = left.imshow(array(w[:rows]), cmap=SIGNED, vmin=low, vmax=high, aspect="auto")
    left.set_xticks(range(w.shape[1]), [str(k + 1) for k in range(w.shape[1])])
    left.set_yticks(range(rows), names[:rows], fontsize="small")
    left.set_xlabel("factor")
    left.tick_params(length=0)
    made.colorbar(shown, ax=left, label="loading", shrink=0.8)
    start = torch.zeros(rows, dtype=torch.float64)
    for k in range(w.shape[1]):
        part = w[:rows, k].square()
        right.barh(range(rows), array(part), left=array(start), height=0.7, color=colour(k),
                   label=str(k + 1))  # fmt: skip
        start = start + part
    right.barh(range(rows), array(psi[:rows]), left=array(start), height=0.7, color=FAINT,
               label="noise")  # fmt: skip
    right.set_ylim(rows - 0.5, -0.5)
    right.set_yticks([])
    right.set_xlabel("variance by factor")
    right.legend(frameon=False, fontsize="small", ncols=3, loc="lower center",
                 bbox_to_anchor=(0.5, 1.0), handlelength=1.0)  # fmt: skip
    return made


def signals(
    parts: Mapping[str, Float[Tensor, "time signals"]],
    *,
    truth: Float[Tensor, "time signals"] | None,
) -> Figure:
    """Signals one under the other, a column for each name; `truth` is dashed on the last column."""
    rows = max(part.shape[1] for part in parts.values())
    made = figure(6.5, 0.75 * rows + 0.6, rows, len(parts))
    for column, (name, part) in enumerate(parts.items()):
        last = column == len(parts) - 1
        for row in range(rows):
            axes = made.axes[row * len(parts) + column]
            if row >= part.shape[1]:
                axes.set_visible(False)
                continue
            axes.plot(array(part[:, row]), color=colour(column), linewidth=1.2, label="recovered")
            if last and truth is not None:
                axes.plot(array(truth[:, row]), "--", color=INK, linewidth=0.8, label="true")
            axes.set_yticks([])
            axes.spines["left"].set_visible(False)
            axes.set_ylabel(str(row + 1), rotation=0, va="center")
            axes.tick_params(labelbottom=row == rows - 1)
        made.axes[column].set_title(name, color=INK)
        made.axes[(rows - 1) * len(parts) + column].set_xlabel("time step")
    return made
