"""Small recipes, one of each kind, whose run folders are made hostile: each predicts if it can."""

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
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.recipe import Fitting, Simulation
from everynet.recipes.state import State
from everynet.recipes.training import Training


@dataclass(frozen=True, kw_only=True)
class Flowers(Training[nn.Sequential]):
    """Name the species of a flower."""

    steps: int = 6
    batch_size: int = 16
    lr: float = 0.05
    eval_every: int = 2
    save_every: int = 3
    schedule: str = "plateau"
    hidden: int = 5
    goal: str = "cross_entropy <= 5"

    def dataset(self) -> Data:
        return load("iris", kind="table", batch_size=self.batch_size, seed=self.seed)

    def model(self, data: Data) -> nn.Sequential:
        shape, classes = data.spec["shape"], data.spec["classes"]
        return nn.Sequential(
            nn.Linear(shape[0], self.hidden), nn.ReLU(), nn.Linear(self.hidden, len(classes))
        )

    def objective(self, model: nn.Sequential, batch: Batch) -> Terms:
        return {"cross_entropy": cross_entropy(model(batch[0]), batch[1])}

    def pictures(self, model: nn.Sequential, data: Data, history: History) -> dict[str, Figure]:
        return {"empty": Figure(figsize=(1, 1))}

    def predict(self, model: nn.Sequential, inputs: Tensor, spec: Spec) -> Sequence[dict[str, Any]]:
        z = model(inputs)
        classes = [spec["classes"][k] for k in z.argmax(1).tolist()]
        return [{"class": k, "logits": row} for k, row in zip(classes, z.tolist(), strict=True)]


class Centres:
    """The mean of each class."""

    def fit(self, x: Tensor, y: Tensor) -> Centres:
        self.classes_ = y.unique().tolist()
        self.centres_ = torch.stack([x[y == k].mean(0) for k in self.classes_])
        return self


@dataclass(frozen=True, kw_only=True)
class Nearest(Fitting[Centres]):
    """The class whose mean is nearest."""

    def dataset(self) -> Data:
        return load("iris", kind="table", batch_size=16, seed=self.seed)

    def model(self, data: Data) -> Centres:
        return Centres()

    def metrics(self, model: Centres, batch: Batch) -> dict[str, Tensor]:
        found = torch.cdist(batch[0].double(), model.centres_.double()).argmin(1)
        return {"accuracy": (found == batch[1]).double()}

    def pictures(self, model: Centres, data: Data, history: History) -> dict[str, Figure]:
        return {"empty": Figure(figsize=(1, 1 + len(model.centres_)))}

    def predict(self, model: Centres, inputs: Tensor, spec: Spec) -> Sequence[dict[str, Any]]:
        near = torch.cdist(inputs.double(), model.centres_.double())
        return [{"class": spec["classes"][model.classes_[row.argmin()]]} for row in near]


@dataclass(frozen=True, kw_only=True)
class Walk(Simulation):
    """A random walk."""

    length: int = 20

    def simulate(self, generator: torch.Generator) -> dict[str, Any]:
        steps = torch.randn(self.length, generator=generator)
        return {"walk": steps.cumsum(0), "names": ["a", "b"], "scale": 1.5}

    def metrics(self, result: Mapping[str, Any]) -> dict[str, float]:
        return {"end": float(result["walk"][-1]) * result["scale"]}

    def pictures(self, result: Mapping[str, Any]) -> dict[str, Figure]:
        figure = Figure(figsize=(1, 1))
        figure.subplots().plot(result["walk"], label=result["names"][0])
        return {"walk": figure}


@dataclass(frozen=True, kw_only=True)
class Rates(Experiment):
    """Loss by learning rate."""

    steps: int = 4

    def cells(self) -> dict[str, Training]:
        return {f"lr-{rate}": Flowers(lr=rate, steps=self.steps) for rate in (0.01, 0.1)}

    def measure(self, cell: str, recipe: Training, state: State, data: Data) -> dict[str, Any]:
        return {"norm": float(next(state.model.parameters()).norm())}

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        return {"drawn": torch.rand(3, generator=generator)}

    def metrics(self, table: Table) -> dict[str, float]:
        return {"best": min(c.last["cross_entropy"] for c in table.cells.values())}

    def pictures(self, table: Table) -> dict[str, Figure]:
        figure = Figure(figsize=(1, 1))
        for cell in table.cells.values():
            figure.add_subplot().plot(cell.steps, cell.measured["norm"])
        return {"norms": figure}


RECIPES = {"flowers": Flowers(), "nearest": Nearest(), "walk": Walk(), "rates": Rates()}
