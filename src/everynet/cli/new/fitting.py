"""An estimator that learns all at once: the nearest mean of a class.

Run it:            everynet run ./mine.py
Change a setting:  everynet run ./mine.py power=1
Predict:           everynet predict latest flowers.csv --file mine.py
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from everynet import Batch, Data, Fitting, Spec
from everynet.data import load


class NearestMean:
    """Names the class whose mean is nearest. What ends in `_` was learned, and is saved."""

    means_: Tensor

    def __init__(self, power: float = 2.0) -> None:
        self.power = power

    def fit(self, x: Tensor, y: Tensor) -> NearestMean:
        """Learn from rows and their class numbers."""
        self.means_ = torch.stack([x[y == k].mean(0) for k in range(int(y.max()) + 1)])
        return self

    def distances(self, x: Tensor) -> Tensor:
        """From each row to each mean."""
        return torch.cdist(x, self.means_, p=self.power)


# Fields are settings: each has a type, a default and a line that `everynet show` prints.
@dataclass(frozen=True, kw_only=True)
class Mine(Fitting[NearestMean]):
    """Name the class of each row of a table."""

    data: str = "iris"
    """A known dataset (everynet data list) or a csv file."""
    target: str = ""
    """The column of a csv file that is to be learned."""
    power: float = 2.0
    """Of the distance: 2 is the straight line, 1 goes round corners."""

    def dataset(self) -> Data:
        """What is learned from, in three splits."""
        return load(self.data, kind="table", batch_size=1, seed=self.seed, target=self.target)

    def model(self, data: Data) -> NearestMean:
        """The estimator; its `fit` is given all rows of the training split."""
        return NearestMean(self.power)

    def metrics(self, model: NearestMean, batch: Batch) -> dict[str, Tensor]:
        """Metrics, one value for each row of the batch; the goal below names one of them."""
        x, y = batch
        return {"accuracy": (model.distances(x).argmin(1) == y).double()}

    def predict(self, model: NearestMean, inputs: Tensor, spec: Spec) -> Sequence[dict[str, Any]]:
        """What `everynet predict` prints for each input (optional)."""
        nearest = model.distances(inputs.double()).argmin(1)
        return [{"class": spec["classes"][k]} for k in nearest.tolist()]


# What `everynet run ./mine.py` finds; the goal says what is to be reached on the test split.
RECIPES = {
    "mine": Mine(goal="accuracy >= 0.8"),
}
