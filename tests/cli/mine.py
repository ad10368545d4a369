"""Recipes outside the zoo, one of each kind, small enough to run in every test.

z = W x + b  (1)  a line for each class
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.metrics import name_classes
from everynet.recipes.recipe import Fitting, Simulation
from everynet.recipes.training import Training
from everynet.system.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Flowers(Training[nn.Linear]):
    """Name the species of a flower."""

    data: str = "iris"
    """A known set or a csv file."""
    target: str = ""
    """The column of a csv file that is to be learned."""
    steps: int = 12
    batch_size: int = 16
    lr: float = 0.1

    def dataset(self) -> Data:
        return load(
            self.data,
            kind=("table", "image"),
            batch_size=self.batch_size,
            seed=self.seed,
            target=self.target,
        )

    def model(self, data: Data) -> nn.Linear:
        return nn.Linear(data.spec["shape"][0], len(data.spec["classes"]))

    def objective(self, model: nn.Linear, batch: Batch) -> Terms:
        x, y = batch
        return {"cross_entropy": cross_entropy(model(x), y)}  # (1)

    def picture_empty(self, model: nn.Linear, data: Data, history: History) -> Figure:
        return Figure(figsize=(1, 1))

    def predict(self, model: nn.Linear, inputs: Tensor, spec: Spec) -> Sequence[dict[str, Any]]:
        return name_classes(model(inputs).softmax(1), spec["classes"])


@dataclass(frozen=True, kw_only=True)
class Wide(Flowers):
    """A network that asks nothing of the data, of any width."""

    width: int = 4
    """Inputs and outputs."""

    def dataset(self) -> Data:
        raise AssertionError("the data must not be read")

    def model(self, data: Data) -> nn.Linear:
        return nn.Linear(self.width, self.width)


@dataclass(frozen=True, kw_only=True)
class Parts(Flowers):
    """A network that cannot be called as a whole."""

    def model(self, data: Data) -> nn.ModuleDict:
        assert "shape" in data.spec
        assert data.spec.get("nothing", 3) == 3
        return nn.ModuleDict({"first": nn.Linear(4, 2), "second": nn.Linear(2, 3)})


@dataclass(frozen=True, kw_only=True)
class Stray(Flowers):
    """A network that asks the data for what it does not say."""

    def model(self, data: Data) -> nn.Linear:
        return nn.Linear(data.spec["vocabulary"], 1)


@dataclass(frozen=True, kw_only=True)
class TiedParts(Flowers):
    """Two layers of one matrix in a network that cannot be called as a whole."""

    def model(self, data: Data) -> nn.ModuleDict:
        parts = nn.ModuleDict({"first": nn.Linear(4, 4), "second": nn.Linear(4, 4)})
        parts["second"].weight = parts["first"].weight
        return parts


class Mean:
    """Learns the mean of the targets."""

    def fit(self, x: Tensor, y: Tensor) -> Mean:
        self.mean_ = y.double().mean()
        return self


@dataclass(frozen=True, kw_only=True)
class Average(Fitting[Mean]):
    """The mean of a column."""

    def dataset(self) -> Data:
        return load("diabetes", kind=("table", "image"), batch_size=1)

    def model(self, data: Data) -> Mean:
        return Mean()

    def metrics(self, model: Mean, batch: Batch) -> dict[str, Tensor]:
        return {"error": (batch[1] - model.mean_).abs()}


@dataclass(frozen=True, kw_only=True)
class Doubling(Simulation):
    """Doubles a number."""

    value: float = 1.0
    """What is doubled."""
    fails: str = ""
    """How to fail: user, value, fault or pipe."""

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        errors = {
            "user": UserError("the user's\nmistake"),
            "value": ValueError("a wrong value"),
            "fault": IndexError("our mistake"),
            "interrupt": KeyboardInterrupt(),
        }
        if self.fails:
            raise errors[self.fails]
        return {"y": torch.tensor(2 * self.value)}

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        return {"y": result["y"].item()}


RECIPES = {
    "flowers": Flowers(goal="cross_entropy <= 10", covers=("M20",)),
    "ambitious": Flowers(goal="cross_entropy <= 0"),
    "wide": Wide(),
    "parts": Parts(),
    "stray": Stray(),
    "tied-parts": TiedParts(),
    "average": Average(goal="error <= 1000"),
    "double": Doubling(goal="y >= 2"),
}
