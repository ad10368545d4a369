"""The adding problem, as the recipes of several cells share it: a cell and a linear output.

    y = w h_T + b                                   output after T pairs of a number and a mark
    L = mean (y - sum of the marked numbers)^2      mean squared error; 1/6 for a constant 1

Two numbers are marked, one in each half. Nothing of the sum can be predicted without carrying the
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

from everynet.data.dataset import Batch, Data, History, Terms
from everynet.metrics.meanings import meanings
from everynet.plot import Panel, panels
from everynet.recipes.training import Training
from everynet.zoo.recurrent.pictures.gates import gates_over_marks
from everynet.zoo.recurrent.sequences import make_adding

SHOWN = 16
"""Units that are drawn."""


class Adder(nn.Module):
    """Maps pairs of a number and a mark to a prediction of the sum of the marked numbers."""

    def __init__(self, cell: nn.Module, hidden_size: int) -> None:
        super().__init__()
        self.cell = cell
        self.output = nn.Linear(hidden_size, 1)

    def at_every_step(self, x: Float[Tensor, "batch time 2"]) -> Float[Tensor, "batch time"]:
        """The output after each pair, as if the sequence ended there."""
        y: Tensor = self.output(self.cell(x)[0])[..., 0]
        return y

    def forward(self, x: Float[Tensor, "batch time 2"]) -> Float[Tensor, " batch"]:
        y: Tensor = self.output(self.cell(x)[0][:, -1])[:, 0]
        return y


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class Adding(Training[Adder]):
    """Predict the sum of the two numbers that were marked."""

    meanings: ClassVar[Mapping[str, str]] = meanings("mse")

    length: int = 100
    """Pairs of a number and a mark in a sequence."""
    hidden_size: int = 64
    """Units of the cell."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.length >= 2, "length", "at least 2, because two numbers are marked")
        self.at_least(1, "hidden_size")

    def dataset(self) -> Data:
        return make_adding(self.length, self.batch_size, self.seed)

    def cell(self) -> nn.Module:
        """The cell, from pairs to states of `hidden_size`."""
        raise NotImplementedError  # every recipe has its own

    def model(self, data: Data) -> Adder:
        return Adder(self.cell(), self.hidden_size)

    def objective(self, model: Adder, batch: Batch) -> Terms:
        return {"mse": self.metrics(model, batch)["mse"].mean()}

    def metrics(self, model: Adder, batch: Batch) -> dict[str, Tensor]:
        x, y = batch
        return {"mse": (model(x) - y).square()}

    def picture_along(self, model: Adder, data: Data, history: History) -> Figure:
        """The output after each time step, as if the sequence ended there; dashed the best guess.

        It steps where a marked number comes, and at the end it is the prediction.
        """
        x, y = next(data.valid)
        error = (model(x) - y).square().mean().sqrt().item()
        x = x[:4]
        marked = x[..., 1].cumsum(1)
        # A number still to be marked is expected to be a half.
        best = ((x[..., 0] * x[..., 1]).cumsum(1) + (2 - marked) / 2).cpu()
        t = torch.arange(1, x.shape[1] + 1)
        rows = enumerate(zip(model.at_every_step(x).cpu(), best, strict=True), 1)
        curves = {f"sequence {n}": ((t, y), (t, guess)) for n, (y, guess) in rows}
        return panels(
            Panel(
                {name: curve for name, (curve, _) in curves.items()}, "time step $t$",
                "$w h_t + b$",
                f"output at each step; root mean squared error at the end {error:.3f}",
                guides={name: guess for name, (_, guess) in curves.items()}, dashes="best guess",
            ),
            width=6.5,
        )  # fmt: skip

    def tiny(self) -> Self:
        return replace(super().tiny(), length=12)


def draw_gates(
    x: Float[Tensor, "batch time 2"],
    gates: Mapping[str, Tensor],
    kept: Float[Tensor, "batch time hidden"],
    state: str,
) -> Figure:
    """Gates and the named state along the first sequence, of the units that keep most of it."""
    units = longest(kept)
    rows = {name: part[0][:, units].T for name, part in gates.items()}
    states = {f"{state}, each unit by its size": each_by_its_size(rows.pop(state))}
    return gates_over_marks(x[0, :, 0], x[0, :, 1], rows, states)


def longest(kept: Float[Tensor, "batch time hidden"]) -> Int64[Tensor, " units"]:
    """The units that keep most of their state, the most lasting first."""
    return kept.mean((0, 1)).topk(min(SHOWN, kept.shape[2])).indices


def each_by_its_size(rows: Float[Tensor, "units time"]) -> Float[Tensor, "units time"]:
    """Rows divided by their largest absolute value."""
    return rows / rows.abs().amax(1, keepdim=True).clamp(min=1e-12)
