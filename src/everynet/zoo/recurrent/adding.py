"""What the recipes of the adding problem share: a cell that reads, and its last state that answers.

    y = w h_T + b                                   said after T pairs of a number and a mark
    L = mean (y - sum of the marked numbers)^2      1/6 for whoever always says 1

Two numbers are marked, one in each half. Nothing of the answer can be said without carrying the
first from its half to the end, past numbers that do not count.

Hochreiter, Schmidhuber (1997), "Long short-term memory", doi:10.1162/neco.1997.9.8.1735, section
5.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float, Int64
from matplotlib.figure import Figure
from torch import Tensor, nn

from everynet.data.dataset import Batch, Data, Terms
from everynet.metrics.meanings import meanings
from everynet.plot import Panel, panels
from everynet.recipes.training import Training
from everynet.zoo.recurrent.sequences import adding

SHOWN = 16
"""Units that are drawn."""


class Adder(nn.Module):
    """Maps pairs of a number and a mark to what is said after each of them."""

    def __init__(self, cell: nn.Module, hidden_size: int) -> None:
        super().__init__()
        self.cell = cell
        self.output = nn.Linear(hidden_size, 1)

    def along(self, x: Float[Tensor, "batch time 2"]) -> Float[Tensor, "batch time"]:
        """What would be said at each time."""
        said: Tensor = self.output(self.cell(x)[0])[..., 0]
        return said

    def forward(self, x: Float[Tensor, "batch time 2"]) -> Float[Tensor, " batch"]:
        said: Tensor = self.output(self.cell(x)[0][:, -1])[:, 0]
        return said


@dataclass(frozen=True, kw_only=True)
class Adding(Training[Adder]):
    """Say the sum of the two numbers that were marked."""

    meanings: ClassVar[Mapping[str, str]] = meanings("mse")

    length: int = 100
    """Pairs of a number and a mark in a sequence."""
    hidden_size: int = 64
    """Units of the cell."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.length >= 2, "length", "at least 2, because two numbers are marked")
        self.require(self.hidden_size >= 1, "hidden_size", "at least 1")

    def dataset(self) -> Data:
        return adding(self.length, self.batch_size, self.seed)

    def cell(self) -> nn.Module:
        """From pairs to states of `hidden_size`."""
        raise NotImplementedError  # every recipe says it

    def model(self, data: Data) -> Adder:
        return Adder(self.cell(), self.hidden_size)

    def objective(self, model: Adder, batch: Batch) -> Terms:
        return {"mse": self.metrics(model, batch)["mse"].mean()}

    def metrics(self, model: Adder, batch: Batch) -> dict[str, Tensor]:
        x, y = batch
        return {"mse": (model(x) - y).square()}

    def tiny(self) -> Self:
        small = replace(self, length=12, hidden_size=8, batch_size=8)
        return replace(small, steps=min(self.steps, 4))


def along(model: Adder, x: Float[Tensor, "batch time 2"], error: float) -> Figure:
    """What would be said at each time, beside the best guess: a half for each mark yet to come."""
    said, seen = model.along(x).cpu(), x.cumsum(1)
    best = ((x[..., 0] * x[..., 1]).cumsum(1) + (2 - seen[..., 1]) / 2).cpu()
    t = torch.arange(1, x.shape[1] + 1)
    names = [f"sequence {row + 1}" for row in range(len(x))]
    return panels(
        Panel(
            {name: (t, row) for name, row in zip(names, said, strict=True)},
            "time $t$",
            "$w h_t + b$",
            f"what would be said; at the end off by {error:.3f}",
            guides={name: (t, row) for name, row in zip(names, best, strict=True)},
            dashes="best guess",
        ),
        width=6.5,
    )


def longest(kept: Float[Tensor, "batch time hidden"]) -> Int64[Tensor, " units"]:
    """The units that keep most of what they hold, the most lasting first."""
    return kept.mean((0, 1)).topk(min(SHOWN, kept.shape[2])).indices


def each_by_its_size(rows: Float[Tensor, "units time"]) -> Float[Tensor, "units time"]:
    """Rows of which each goes to 1 or -1."""
    return rows / rows.abs().amax(1, keepdim=True).clamp(min=1e-12)
