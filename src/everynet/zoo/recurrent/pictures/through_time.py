"""A gradient through time in parts: which loss asks how much of which state."""

from __future__ import annotations

import torch
from jaxtyping import Float
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from everynet.plot.style import FAINT, INK, MAGNITUDE, array, colour, figure, grid, log_ticks

DECADES = 5  # below the largest part, that colours are told apart in


def parts_by_lag(
    parts: Float[Tensor, "losses states"],
    by_lag: Float[Tensor, " lags"],
    missing: Float[Tensor, " fewer"],
) -> Figure:
    """The size of every part by loss and state; beside it the sum of each lag.

    `missing` is the share of the whole that is left out where only lags up to each are summed.
    """
    made = figure(6.5, 3.0, 1, 2)
    left, right = made.axes
    sizes = parts.detach().double().cpu()
    top = max(float(sizes.max()), 1e-300)
    norm = LogNorm(top / 10**DECADES, top)
    shown = torch.where(sizes.T > 0, sizes.T.clamp(min=norm.vmin), torch.nan)
    time = len(sizes)
    left.set_facecolor(FAINT)  # nothing asks anything of what comes later
    image = left.imshow(
        array(shown), cmap=MAGNITUDE, norm=norm, interpolation="nearest", aspect="auto",
        extent=(0.5, time + 0.5, time + 0.5, 0.5),
    )  # fmt: skip
    left.set_xlabel("$t$, where the loss is")
    left.set_ylabel("$k$, where $W$ is used")
    for axis in (left.xaxis, left.yaxis):
        axis.set_major_locator(MaxNLocator(6, integer=True))
    bar = made.colorbar(image, ax=left, label=r"$\|P(t, k)\|$")
    bar.ax.tick_params(labelsize="small")
    right.plot(range(len(by_lag)), array(by_lag / by_lag.max()), color=colour(0), lw=1.6,
               label="one lag, of the largest")  # fmt: skip
    right.plot(range(len(missing)), array(missing), color=colour(1), lw=1.6,
               label="missing up to this lag")  # fmt: skip
    right.set_yscale("log")
    right.set_xlabel("lag $t - k$, tokens")
    right.set_ylabel("share")
    right.legend(frameon=False, fontsize="small", labelcolor=INK, loc="upper right")
    log_ticks(right)
    grid(right)
    return made
