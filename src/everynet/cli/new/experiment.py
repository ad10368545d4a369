"""A law that is shown by training several networks: more hidden units fit more of a curve.

Run it:             everynet run ./mine.py
Two at once:        everynet run ./mine.py --jobs 2
Change a setting:   everynet run ./mine.py sizes=1,4,16 updates=600
One of its cells:   everynet runs runs/RUN/cells/hidden=8
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import nn

from everynet import Batch, Data, Experiment, Table, Terms, Training


@dataclass(frozen=True, kw_only=True)
class Wave(Training[nn.Sequential]):
    """Fit one wave by a small network, from points that are drawn anew for each update."""

    hidden: int = 8
    """Hidden units."""
    lr: float = 0.02

    def model(self, data: Data) -> nn.Sequential:
        return nn.Sequential(nn.Linear(1, self.hidden), nn.Tanh(), nn.Linear(self.hidden, 1))

    def objective(self, model: nn.Sequential, batch: Batch) -> Terms:
        """Without a dataset the batch is empty, and the points are drawn here."""
        x = 2 * torch.rand(64, 1, device=next(model.parameters()).device) - 1
        return {"mse": (model(x) - torch.sin(4 * x)).square().mean()}


# Fields are settings: each has a type, a default and a line that `everynet show` prints.
@dataclass(frozen=True, kw_only=True)
class Mine(Experiment):
    """How well networks of several sizes fit a wave."""

    sizes: tuple[int, ...] = (1, 2, 8)
    """Hidden units of each network."""
    updates: int = 300
    """Updates of each."""

    def cells(self) -> dict[str, Training[Any, Any]]:
        """Named trainings; each has a folder of its own inside that of the run."""
        return {
            f"hidden={size}": Wave(hidden=size, steps=self.updates, seed=self.seed)
            for size in self.sizes
        }

    def errors(self, table: Table) -> Sequence[float]:
        """The last error of each cell."""
        return [table.cells[f"hidden={size}"].last["mse"] for size in self.sizes]

    def metrics(self, table: Table) -> dict[str, float]:
        """Metrics of all cells together; the goal below names one of them."""
        errors = self.errors(table)
        return {"best": min(errors), "gain": errors[0] / errors[-1]}

    def picture_errors(self, table: Table) -> Figure:
        """The last error of each network, on a logarithmic scale, over its hidden units."""
        # A picture is a method `picture_NAME`, and its docstring is the caption (optional).
        figure = Figure(figsize=(6.5, 3), layout="constrained")
        axes = figure.add_subplot()
        axes.plot(self.sizes, self.errors(table), "o-")
        axes.set_yscale("log")
        axes.set_xlabel("hidden units")
        axes.set_ylabel("mean squared error")
        return figure


# What `everynet run ./mine.py` finds.
RECIPES = {
    "mine": Mine(goal="gain >= 2"),
}
