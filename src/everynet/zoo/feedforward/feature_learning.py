"""Feature learning: a network is a linear model on features that it finds for itself.

    phi(x) = tanh(W x + b)                                  (1)  features, theta = (W, b)
    y(x)   = w^T phi(x) + w_0                               (2)  linear readout
    E      = mean over samples and classes of (y - t)^2     (3)  t is 1 for the class, else 0
    w*     = argmin_w E  at fixed theta                     (4)  least squares

where x is a sample, W x a product of a matrix and a vector, and w^T phi an inner product for each
class. Descent moves theta and w together; (4) is the best that any readout can do with the features
it has found, so refitting never raises E on the samples it is fitted to. Features as they were
initialised, with the same readout (4), are the baseline: what learned ones do better is the gain of
learning them. Random features catch up as they grow in number, learned ones need far fewer.

Goodfellow et al. (2016), "Deep Learning", section 6.0; random features: Rahimi and Recht (2007),
"Random features for large-scale kernel machines", NeurIPS 20.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import mse_loss, normalize, one_hot

from everynet import plot
from everynet.data.dataset import Batch, Data, History, Terms
from everynet.metrics import accuracy
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.state import State
from everynet.recipes.training import Training
from everynet.zoo.feedforward.mlp import MLP
from everynet.zoo.optimisation.few_images import OneHiddenLayer


@torch.no_grad()
def features(model: MLP, x: Float[Tensor, " rows *shape"]) -> Float[Tensor, "rows units"]:
    """The activations of the last hidden layer for each sample."""
    return torch.cat([model.hidden(some)[-1] for some in x.split(2000)])  # (1)


def fit_readout(
    phi: Float[Tensor, "rows units"], t: Float[Tensor, "rows classes"]
) -> Float[Tensor, "weights classes"]:
    """The readout with the least squared error, its last row the constant."""
    w: Tensor = torch.linalg.lstsq(_with_one(phi), t.double(), driver="gelsd").solution  # (4)
    return w


def read_out(
    phi: Float[Tensor, "rows units"], w: Float[Tensor, "weights classes"]
) -> Float[Tensor, "rows classes"]:
    """The readout of some features."""
    return _with_one(phi) @ w  # (2)


def _with_one(phi: Tensor) -> Tensor:
    return torch.cat([phi, torch.ones_like(phi[:, :1])], dim=1).double()


def squared_error(
    phi: Float[Tensor, "rows units"],
    w: Float[Tensor, "weights classes"],
    t: Float[Tensor, "rows classes"],
) -> float:
    """The mean squared error of a readout."""
    return (read_out(phi, w) - t).square().mean().item()  # (3)


def readout_accuracy(
    model: MLP, w: Float[Tensor, "weights classes"], batches: Iterable[Batch]
) -> float:
    """The accuracy of a readout of the features of a network."""
    found = [accuracy(read_out(features(model, x).cpu(), w), y.cpu()) for x, y in batches]
    return torch.cat(found).mean().item()


def learned_readout(model: MLP) -> Float[Tensor, "weights classes"]:
    """The last layer of the network, as descent has left it."""
    *_, weight, bias = model.parameters()
    return torch.cat([weight, bias[:, None]], dim=1).T.double().cpu()


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
class LearnedAgainstRandom(Experiment):
    """Train networks of each width; compare their features with those they began with."""

    meanings: ClassVar[Mapping[str, str]] = {
        "accuracy": "test accuracy of the widest network with learned features",
        "random_accuracy": "test accuracy of the same width with random features",
        "least_lead": "how far learned features lead in accuracy, the least of all widths",
        "refit_rise": "relative rise of the training error by refitting the readout: never above 0",
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
        self.at_least(3, "steps")
        self.at_least(1, "batch_size")
        self.above(0, "lr")

    def cells(self) -> dict[str, Training[Any, Any]]:
        return {
            f"width-{width}": Features(
                data=self.data, hidden_size=width, steps=self.steps, batch_size=self.batch_size,
                lr=self.lr, eval_every=self.steps, seed=self.seed,
            )
            for width in self.widths
        }  # fmt: skip

    def measure(
        self, cell: str, recipe: Training[Any, Any], state: State[Any, Any], data: Data
    ) -> dict[str, float | Tensor]:
        """Error and accuracy of the readout by descent and of the best; the first look is random.

        Test samples are seen by the widest network alone.
        """
        model, (x, label) = state.model, data.whole
        t = one_hot(label.cpu(), len(data.spec["classes"])).double()
        phi = features(model, x).cpu()
        readouts = {"descent": learned_readout(model), "refitted": fit_readout(phi, t)}
        found: dict[str, float | Tensor] = {
            name: torch.tensor(
                [squared_error(phi, w, t), readout_accuracy(model, w, data.valid)]
            ).double()
            for name, w in readouts.items()
        }
        if cell == f"width-{self.widths[-1]}":
            found["test"] = readout_accuracy(model, readouts["refitted"], data.test)
        first = next(iter(model.parameters()))
        return found | {"weights": first.reshape(-1, *data.spec["shape"])}

    def by_width(self, table: Table) -> dict[str, Float[Tensor, "widths 2"]]:
        """Error and accuracy of random and of learned features, by width; NaN once diverged."""
        rows = []
        for cell in table.cells.values():
            descent, refitted = (cell.measured[name] for name in ("descent", "refitted"))
            ends = torch.stack([refitted[0], descent[-1], refitted[-1]])
            rows.append(ends if cell.diverged is None else torch.full_like(ends, torch.nan))
        names = ("random, least squares", "learned, by descent", "learned, refitted")
        return dict(zip(names, torch.stack(rows, dim=1), strict=True))

    def metrics(self, table: Table) -> dict[str, float]:
        random, descent, learned = (of.unbind(1) for of in self.by_width(table).values())
        test = table.cells[f"width-{self.widths[-1]}"].measured["test"]
        return {
            "accuracy": test[-1].item(),
            "random_accuracy": test[0].item(),
            "least_lead": (learned[1] - random[1]).min().item(),
            "refit_rise": (learned[0] / descent[0] - 1).max().item(),
        }

    def picture_widths(self, table: Table) -> tuple[Figure, dict[str, float]]:
        """Accuracy (left) and training error (right) against the number of hidden units.

        Learned features lead as many random ones by {lead:.1%} accuracy or more.
        """
        size, found = torch.tensor(self.widths, dtype=torch.float64), self.by_width(table)
        curves = [
            plot.Panel(
                {name: (size, of[:, part]) for name, of in found.items()},
                log=log,
                xlabel="features (hidden units)",
                ylabel=label,
                title=title,
            )
            for part, log, label, title in (
                (1, "x", "accuracy, validation", "features and accuracy"),
                (0, "xy", "mean squared error, training", "refitting never raises the error"),
            )
        ]
        return plot.panels(*curves), {"lead": self.metrics(table)["least_lead"]}

    def picture_learned_features(self, table: Table) -> tuple[Figure, dict[str, float]]:
        """Weights into hidden units after training, red above 0 and blue below.

        Where neighbouring inputs work together, as in strokes of an image, their weights correlate:
        here by {near:.2f}.
        """
        return self._features(table, "learned", -1)

    def picture_random_features(self, table: Table) -> tuple[Figure, dict[str, float]]:
        """Weights into hidden units as they were initialised, red above 0 and blue below.

        They are noise: the weights of neighbouring inputs correlate by {near:.2f}.
        """
        return self._features(table, "random", 0)

    def _features(self, table: Table, kind: str, look: int) -> tuple[Figure, dict[str, float]]:
        """The weights of the middle width at one evaluation, each unit's of length 1."""
        middle = table.cells[f"width-{self.widths[(len(self.widths) - 1) // 2]}"]
        weights = middle.measured["weights"][look]
        rows = normalize(weights.flatten(1)).reshape(weights.shape)
        pairs = torch.stack([rows[..., :-1].flatten(), rows[..., 1:].flatten()])
        near = {"near": float(torch.corrcoef(pairs)[0, 1])}
        if rows.dim() == 4:
            return plot.filters(rows, title=f"{kind} features, each of length 1"), near
        return plot.heatmap(rows, xlabel="input", ylabel=f"{kind} feature", unit="weight"), near

    def tiny(self) -> Self:
        small = replace(super().tiny(), steps=min(self.steps, 6), data="digits")
        return replace(small, widths=tuple(sorted({min(n, 16) for n in self.widths})))


RECIPES = {
    "feature-learning": LearnedAgainstRandom(
        goal="accuracy >= 0.965 and least_lead >= 0.05 and refit_rise <= 0", covers=("F7",)
    ),
}
