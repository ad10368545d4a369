"""The small task that laws of training are shown on: classify images, learned from some of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from everynet.data import load
from everynet.data.dataset import Batch, Data, Terms
from everynet.metrics import accuracy
from everynet.recipes.state import M
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.seeds import generator
from everynet.training.device import Setup
from everynet.training.loop import evaluate
from everynet.zoo.feedforward.mlp import MLP

CHOICE = 4  # the stream of random numbers that chooses rows, among those of a seed


def take_rows(data: Data, rows: int) -> Data:
    """The same data with `rows` of its training rows, chosen by its seed."""
    if rows >= data.rows("train"):
        return data
    order = torch.randperm(data.rows("train"), generator=generator(data.seed, CHOICE))[:rows]
    chosen = tuple(part[order] for part in data.splits["train"])
    return replace(data, splits={**data.splits, "train": chosen})


def evaluate_in_training(
    recipe: Training[M], model: M, batches: Iterable[Batch]
) -> dict[str, float]:
    """Metrics of a network between two updates, on its device and in its precision."""
    weight = next(model.parameters())
    setup = Setup(weight.device, "fp64" if weight.dtype == torch.float64 else "fp32")
    return evaluate(recipe, model, batches, setup)


@dataclass(frozen=True, kw_only=True)
class FewImages(Training[M]):
    """Classify images by a network that a subclass chooses.

    What differs between two networks of an experiment is a setting: with the same seed they begin
    with the same weights and are trained on the same images in the same order.
    """

    data: str = "digits"
    """Images, or rows of a table, with a class each."""
    rows: int = 0
    """Training images, chosen by the seed; 0 takes all."""

    kinds: ClassVar[tuple[str, ...]] = ("table", "image")
    """Kinds of data that the network takes."""

    def dataset(self) -> Data:
        data = load(self.data, kind=self.kinds, batch_size=self.batch_size, seed=self.seed)
        if data.spec["task"] != "classification":
            raise UserError(
                f"data ({self.data}) must have classes, because accuracy is measured; try digits"
            )
        known = data.rows("train")
        self.require(self.rows <= known, "rows", f"at most the {known} training images there are")
        return take_rows(data, self.rows or known)

    def objective(self, model: M, batch: Batch) -> Terms:
        x, y = batch
        return {"cross_entropy": cross_entropy(model(x), y)}

    def metrics(self, model: M, batch: Batch) -> dict[str, Tensor]:
        x, y = batch
        logits = model(x)
        return {
            "accuracy": accuracy(logits, y),
            "cross_entropy": cross_entropy(logits, y, reduction="none"),
        }


@dataclass(frozen=True, kw_only=True)
class OneHiddenLayer(FewImages[MLP]):
    """Classify images by a perceptron with one hidden layer."""

    hidden_size: int = 32
    """Hidden units."""
    activation: str = "relu"
    """Activation function of the hidden units."""

    def model(self, data: Data) -> MLP:
        inputs, classes = math.prod(data.spec["shape"]), len(data.spec["classes"])
        return MLP((inputs, self.hidden_size, classes), self.activation)
