"""What the recipes that classify images by spikes share: data, loss, prediction."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import cross_entropy

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.metrics.classification import confusion, name_classes
from everynet.metrics.meanings import CLASSES, meanings
from everynet.plot import confusion_matrix
from everynet.recipes.recipe import later
from everynet.recipes.state import M
from everynet.recipes.training import Training


@dataclass(frozen=True, kw_only=True)
class SpikingClassification(Training[M]):
    """Classify images by a network that gives logits."""

    meanings: ClassVar[Mapping[str, str]] = meanings(*CLASSES, "cross_entropy")
    last_weights: ClassVar[bool] = True

    data: str = "digits"
    """A known set of images, or a folder with one subfolder for each class."""
    holdout: bool = True
    """Keep a tenth of training to choose weights; false trains on all but a published test."""
    strict: bool = later(False)
    """Refuse a file that is no image or cannot be read, instead of skipping and counting it."""
    hidden: tuple[int, ...] = (200,)
    """Units of each spiking layer."""
    duration: float = 0.025
    """Seconds for which an image is presented."""
    dt: float = 0.001
    """Seconds of a step."""
    tau_m: float = 0.01
    """Time constant of the membranes, in seconds."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.above(0, "dt", "tau_m")
        self.require(self.dt <= self.duration < 10, "duration", "from dt to 10 s")
        self.require(len(self.hidden) > 0, "hidden", "at least one number of units")

    def dataset(self) -> Data:
        return load(
            self.data, kind="image", batch_size=self.batch_size, seed=self.seed,
            holdout=self.holdout, strict=self.strict,
        )  # fmt: skip

    def sizes(self, spec: Spec) -> tuple[int, ...]:
        """Inputs, hidden units and classes."""
        return (math.prod(spec["shape"]), *self.hidden, len(spec["classes"]))

    @property
    def time_steps(self) -> int:
        """Time steps for which an image is presented."""
        return round(self.duration / self.dt)

    def objective(self, model: M, batch: Batch) -> Terms:
        x, y = batch
        return {"cross_entropy": cross_entropy(model(x), y)}

    def logits(self, model: M, x: Tensor) -> Tensor:
        """The logits of the spiking network."""
        found: Tensor = model(x)
        return found

    def picture_confusion(self, model: M, data: Data, history: History) -> Figure:
        """Validation images by their true class (rows) and the class predicted by spikes (columns).

        Right answers stand on the diagonal in blue, mistakes beside it in red.
        """
        classes = data.spec["classes"]
        parts = [(y.cpu(), self.logits(model, x).argmax(1).cpu()) for x, y in data.valid]
        y, predicted = (torch.cat(part) for part in zip(*parts, strict=True))
        return confusion_matrix(confusion(predicted, y, len(classes)), classes)

    def predict(self, model: M, inputs: Tensor, spec: Spec) -> Sequence[dict[str, Any]]:
        """The most likely class of each image, and the probability of every class."""
        parts = [self.logits(model, x).softmax(1) for x in inputs.split(1000)]
        return name_classes(torch.cat(parts), spec["classes"])
