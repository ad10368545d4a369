"""A law of learning rates with three rates and two seeds: small, and one rate explodes."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, replace

import torch
from matplotlib.figure import Figure
from torch import Tensor

from everynet.data.dataset import Batch, Data, Terms
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.state import State
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from tests.runs.recipes import Dropout


@dataclass(frozen=True, kw_only=True)
class Steep(Dropout):
    """A training of the law: plain descent, which a rate can make explode."""

    optimizer: str = "sgd"
    save_every: int = 0

    def step(self, state: State, batch: Batch) -> Terms:
        if path := os.environ.get("EVERYNET_TEST_STEPS"):  # a test counts them
            with open(path, "a") as file:
                file.write(f"{self.lr:g}-{self.seed} {state.step}\n")
        if os.environ.get("EVERYNET_TEST_FAIL") == f"{self.lr:g}-{self.seed} {state.step}":
            raise UserError("the data of this cell is bad")
        return super().step(state, batch)


@dataclass(frozen=True, kw_only=True)
class Law(Experiment):
    """Loss by learning rate: two rates that learn, and one that explodes."""

    rates: tuple[float, ...] = (0.01, 0.1, 1e30)
    """Learning rates."""
    steps: int = 12
    """Updates of each."""
    every: int = 0
    """Updates between two checkpoints."""
    goal: str = "better >= 0"
    covers: tuple[str, ...] = ("O1",)

    def cells(self) -> dict[str, Training]:
        return {
            f"lr-{rate:g}-{seed}": Steep(
                lr=rate, seed=self.seed + seed, steps=self.steps, save_every=self.every
            )
            for rate in self.rates
            for seed in range(2)
        }

    def measure(self, cell: str, recipe: Training, state: State, data: Data) -> dict:
        first = next(state.model.parameters())
        return {
            "norm": float(first.norm()),
            "luck": random.random(),
            "weights": first,
            "noise": torch.rand(()),
            "training": float(state.model.training),
        }

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        return {"drawn": torch.rand(3, generator=generator)}

    def metrics(self, table: Table) -> dict[str, float]:
        learned = [cell for cell in table.cells.values() if cell.diverged is None]
        return {
            "better": sum(float(c.valid["cross_entropy"][0]) - c.last["cross_entropy"]
                          for c in learned),
            "diverged": float(len(table.cells) - len(learned)),
        }  # fmt: skip

    def picture_empty(self, table: Table) -> Figure:
        for cell in table.cells.values():
            if cell.diverged is None:
                assert not cell.network().training
        return Figure(figsize=(1, 1))

    def tiny(self) -> Law:
        return replace(self, steps=4)


RECIPES = {"law": Law(), "steep": Steep()}
