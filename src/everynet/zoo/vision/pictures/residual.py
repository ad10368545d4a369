"""What the blocks of a residual network are given and add, block by block."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.panels import Panel, panels


def block_sizes(
    given: Float[Tensor, " blocks"],
    added: Float[Tensor, " blocks"],
    share: Float[Tensor, " blocks"],
    *,
    stages: Sequence[int],
) -> Figure:
    """The sizes on the left, the share of the two on the right; `stages` are numbers of blocks."""
    block = torch.arange(1, len(given) + 1)
    marks = {f"stage {k + 2}": sum(stages[: k + 1]) + 0.5 for k in range(len(stages) - 1)}
    return panels(
        Panel(
            {"handed on, s(x)": (block, given), "added, F(x)": (block, added)},
            xlabel="block",
            ylabel="root mean square",
            title="given to a block, and added",
            marks=marks,
            ylim=(0.0, 1.3 * float(torch.cat([given, added]).max())),
            legend="lower left",
        ),
        Panel(
            {"F(x) / s(x)": (block, share)},
            xlabel="block",
            ylabel="size of F(x) / size of s(x)",
            title="added for each unit given",
            marks=marks,
            levels={"as much as is given": 1.0},
            ylim=(0.0, 1.3 * max(1.0, float(share.max()))),
            legend="lower left",
        ),
        width=3.25,
        height=2.9,
    )
