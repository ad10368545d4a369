"""Feature learning: a network is a linear model on features that it finds for itself.

    phi(x) = tanh(W x + b)                                  (1)  features, theta = (W, b)
    y(x)   = w^T phi(x) + w_0                               (2)  linear readout
    E      = mean over samples and classes of (y - t)^2     (3)  t is 1 for the class, else 0
    w*     = argmin_w E  at fixed theta                     (4)  least squares

Descent moves theta and w together; (4) is the best that any readout can do with the features it
has found, so refitting never raises E on the samples it is fitted to. Features left as they were
drawn, with the same readout (4), are the yardstick: what learned ones do better is what learning
them is worth. Random features catch up as they grow in number, learned ones need far fewer.

Goodfellow et al. (2016), "Deep Learning", section 6.0; random features: Rahimi and Recht (2007),
"Random features for large-scale kernel machines", NeurIPS 20.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import mse_loss, normalize, one_hot

from everynet import plot
from everynet.data import built_in
from everynet.metrics import accuracy
from everynet.recipes import Pictures, Simulation
from everynet.trainer import begin, train
from everynet.types import Batch, Data, History, Terms
from everynet.zoo.feedforward.mlp import MLP
from everynet.zoo.optimisation.few_images import OneHiddenLayer


@torch.no_grad()
def features(model: MLP, x: Float[Tensor, " rows *shape"]) -> Float[Tensor, "rows units"]:
    """What the last hidden layer makes of each sample."""
    return torch.cat([model.hidden(some)[-1] for some in x.split(2000)])  # (1)


def refit(
    phi: Float[Tensor, "rows units"], t: Float[Tensor, "rows classes"]
) -> Float[Tensor, "weights classes"]:
    """The readout with the least squared error, its last row the constant."""
    made = torch.linalg.lstsq(_with_one(phi), t.double(), driver="gelsd")
    w: Tensor = made.solution  # (4)
    return w


def read(
    phi: Float[Tensor, "rows units"], w: Float[Tensor, "weights classes"]
) -> Float[Tensor, "rows classes"]:
    """The readout of some features."""
    return _with_one(phi) @ w  # (2)


def _with_one(phi: Tensor) -> Tensor:
    return torch.cat([phi, torch.ones_like(phi[:, :1])], dim=1).double()


class Judged(NamedTuple):
    """How a readout does: the squared error it was fitted to, and its accuracy on other samples."""

    error: float
    accuracy: float


@dataclass(frozen=True, kw_only=True)
class Features(OneHiddenLayer):
    """Learn features and their readout together."""

    activation: str = "tanh"

    def objective(self, model: MLP, batch: Batch) -> Terms:
        x, label = batch
        y = model(x)
        return {"error": mse_loss(y, one_hot(label, y.shape[1]).to(y.dtype))}

    def rate(self, step: int, history: History) -> float:
        """The last third is at a tenth of the rate."""
        return 1.0 if step < self.steps - self.steps // 3 else 0.1


@dataclass(frozen=True, kw_only=True)
class LearnedAgainstRandom(Simulation):
    """Train networks of each width; compare their features with those they began with."""

    captions: ClassVar[Mapping[str, str]] = {
        "widths": (
            "Accuracy (left) and training error (right) against the number of hidden units: "
            "learned features (orange, green) do better than as many random ones (blue)."
        ),
        "learned-features": (
            "Weights into hidden units after training, red above 0 and blue below: neighbouring "
            "pixels have come to work together as strokes and edges."
        ),
        "random-features": (
            "The weights as they were drawn at the start, red above 0 and blue below: noise, in "
            "which no stroke of an image can be seen."
        ),
    }

    data: str = "mnist"
    """A set with classes: a known name, or a folder with one subfolder for each class."""
    widths: tuple[int, ...] = (8, 32, 128, 512)
    """Features, rising; those of the one in the middle are drawn."""
    steps: int = 1200
    """Updates of each network, by Adam."""
    batch_size: int = 128
    """Samples an update sees."""
    lr: float = 2e-3
    """Learning rate; the last third of the steps is at a tenth of it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        rising = list(self.widths) == sorted(set(self.widths))
        self.require(bool(self.widths) and rising, "widths", "one number or more, rising")
        self.require(self.widths[0] >= 1, "widths", "positive")
        self.require(self.steps >= 3, "steps", "at least 3")
        self.require(self.batch_size >= 1, "batch_size", "at least 1")
        self.require(0 < self.lr < math.inf, "lr", "a positive number")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        first = Features(
            data=self.data, steps=self.steps, batch_size=self.batch_size, lr=self.lr, seed=self.seed
        )
        data = first.dataset().to(torch.device("cpu"), torch.float32)
        figures, shown = [], []
        for width in self.widths:
            recipe = replace(first, hidden_size=width)
            state = begin(recipe, data)
            before = begin(recipe, data).model
            for _ in train(recipe, state, data):
                pass
            kinds = ((before, True), (state.model, False), (state.model, True))
            figures.append([judged(model, data, refitted=again) for model, again in kinds])
            shown.append([next(m.parameters()).detach() for m in (before, state.model)])
        test = [judged(m, data, refitted=True, split="test") for m in (before, state.model)]
        shape = (-1, *data.spec["shape"])
        random, learned = (weight.reshape(shape) for weight in shown[(len(shown) - 1) // 2])
        return {
            "figures": torch.tensor(figures, dtype=torch.float64),  # widths kinds 2
            "test": torch.tensor([accuracy for _, accuracy in test], dtype=torch.float64),
            "random": random,
            "learned": learned,
        }

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        error, right = result["figures"].unbind(2)
        return {
            "accuracy": result["test"][1].item(),
            "random_accuracy": result["test"][0].item(),
            "least_lead": (right[:, 2] - right[:, 0]).min().item(),
            "refit_rise": (error[:, 2] / error[:, 1] - 1).max().item(),
        }

    def pictures(self, result: Mapping[str, Tensor]) -> Pictures:
        size = torch.tensor(self.widths, dtype=torch.float64)
        error, right = result["figures"].unbind(2)
        names = ("random, least squares", "learned, by descent", "learned, refitted")
        curves = [
            plot.Panel(
                {name: (size, of[:, kind]) for kind, name in enumerate(names)},
                log=log,
                xlabel="features (hidden units)",
                ylabel=label,
                title=title,
            )
            for of, log, label, title in (
                (right, "x", "accuracy, validation", "learned features need fewer units"),
                (error, "xy", "mean squared error, training", "refitting never raises the error"),
            )
        ]
        drawn = {"widths": plot.panels(*curves)}
        for kind in ("learned", "random"):
            rows = normalize(result[kind].flatten(1)).reshape(result[kind].shape)
            drawn[f"{kind}-features"] = (
                plot.filters(rows, title=f"{kind} features, each of length 1")
                if rows.dim() == 4
                else plot.heatmap(rows, xlabel="input", ylabel=f"{kind} feature", unit="weight")
            )
        return drawn

    def tiny(self) -> Self:
        return replace(
            self,
            data=self.data if self.data in built_in() else "digits",
            widths=tuple(sorted({min(n, 16) for n in self.widths})),
            steps=min(self.steps, 6),
            batch_size=min(self.batch_size, 8),
        )


@torch.no_grad()
def judged(model: MLP, data: Data, *, refitted: bool, split: str = "valid") -> Judged:
    """The features of a network with the readout it has, or with the best one for them."""
    x, label = data.whole
    t = one_hot(label, len(data.spec["classes"])).double()
    *_, weight, bias = model.parameters()
    phi = features(model, x)
    w = refit(phi, t) if refitted else torch.cat([weight, bias[:, None]], dim=1).T.double()
    error = (read(phi, w) - t).square().mean()  # (3)
    right = [accuracy(read(features(model, x), w), y) for x, y in data.batches(split)]
    return Judged(error.item(), torch.cat(right).mean().item())


# For seeds 0, 1, 2, on the 10,000 test images of MNIST:
#   accuracy           0.9735   0.9723   0.9728    512 learned features, refitted
#   random_accuracy    0.9012   0.9041   0.9058    512 random ones
#   least_lead         0.0723   0.0682   0.0670    over the widths: that at 512
#   refit_rise        -0.0171  -0.0074  -0.0065    change of the training error, the least fall
RECIPES = {
    "feature-learning": LearnedAgainstRandom(
        goal="accuracy >= 0.965 and least_lead >= 0.05 and refit_rise <= 0", covers=("F7",)
    ),
}
