"""Dropout: each unit is left out with probability p while training, so none can rely on another.

    m_i  ~ Bernoulli(1 - p)                         (1)  the mask, drawn anew for each sample
    y    = m * x / (1 - p)                          (2)  training
    y    = x                                        (3)  evaluation: all units, no noise
    E[w^T y + b]   = w^T x + b                      (4)  what (2) is rescaled for
    Var[w^T y + b] = p / (1 - p) sum_i w_i^2 x_i^2  (5)  the noise that (2) puts into a sum

x are units, y what the next layer gets, w and b its weights and bias; * is the product entry by
entry. A network of n units with dropout is 2^n networks that share their weights, one for each
mask. By (4) the evaluation is the mean of all of them where the network is linear, and stands for
it where it is not.

Srivastava, Hinton, Krizhevsky, Sutskever, Salakhutdinov (2014), "Dropout: A Simple Way to Prevent
Neural Networks from Overfitting", JMLR 15, p. 1929. Unlike the paper, which shrinks the weights
after training, units are enlarged by 1 / (1 - p) in training, as in every library of today.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from everynet.data.dataset import Data
from everynet.plot.panels import Curve, Panel, panels
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.state import State
from everynet.recipes.training import Training
from everynet.system.seeds import mix, seeded_by
from everynet.zoo.optimisation.few_images import FewImages, evaluate_in_training


class Dropout(nn.Module):
    """Maps x to x with some of its values left out while training, and to x afterwards."""

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(
                f"p ({p}) must be from 0 up and below 1, because what is kept is divided by 1 - p"
            )
        self.p = p

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        if not self.training:
            return x  # (3)
        m = torch.empty_like(x).bernoulli_(1 - self.p)  # (1)
        return m * x / (1 - self.p)  # (2)


def moments(
    x: Float[Tensor, " input"],
    weight: Float[Tensor, "output input"],
    bias: Float[Tensor, " output"],
    p: float,
) -> tuple[Float[Tensor, " output"], Float[Tensor, " output"]]:
    """Mean and variance over all masks of a linear layer behind dropout."""
    mean = linear(x, weight, bias)  # (4)
    variance = p / (1 - p) * linear(x**2, weight**2)  # (5)
    return mean, variance


def outputs(layer: nn.Module, x: Float[Tensor, " input"], masks: int) -> Float[Tensor, "masks _"]:
    """Outputs of `layer` for one sample under `masks` masks, in parts that fit in memory."""
    sizes = [len(part) for part in torch.empty(masks).split(50_000)]
    layer.train()
    with torch.no_grad():
        return torch.cat([layer(x.expand(size, -1)) for size in sizes])


def network(in_features: int, classes: int, *, hidden_size: int, p: float) -> nn.Sequential:
    """Maps images to logits, with dropout on the image and on the hidden units."""
    return nn.Sequential(
        nn.Flatten(),
        Dropout(p),
        nn.Linear(in_features, hidden_size),
        nn.ReLU(),
        Dropout(p),
        nn.Linear(hidden_size, classes),
    )


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class DropoutImages(FewImages[nn.Sequential]):
    """Classify images by a network with dropout."""

    p: float = 0.5
    hidden_size: int = 128
    optimizer: str = "momentum"

    def model(self, data: Data) -> nn.Sequential:
        pixels, classes = math.prod(data.spec["shape"]), len(data.spec["classes"])
        return network(pixels, classes, hidden_size=self.hidden_size, p=self.p)


KINDS = ("without", "dropout")


@dataclass(frozen=True, kw_only=True)
class DropoutExperiment(Experiment):
    """The same network with and without dropout, and what its masks do to its output."""

    tests: ClassVar[bool] = True
    meanings: ClassVar[Mapping[str, str]] = {
        "mean_error": "how far the mean of a layer with dropout is from its formula",
        "variance_error": "the same of its variance, as a part of it",
        "gap": "test loss less training loss, without dropout",
        "gap_dropout": "the same with dropout",
        "gap_ratio": "the gap with dropout as a part of the gap without",
        "test_loss": "test loss without dropout",
        "test_loss_dropout": "test loss with dropout",
        "accuracy": "test accuracy without dropout",
        "accuracy_dropout": "test accuracy with dropout",
    }

    p: float = 0.5
    """Probability with which an input and a hidden unit is left out."""
    data: str = "mnist"
    """Images that the network tells apart."""
    rows: int = 1000
    """Training images, chosen by the seed."""
    hidden_size: int = 128
    """Hidden units."""
    epochs: int = 100
    """Passes over the training images."""
    batch_size: int = 100
    """Images an update sees."""
    lr: float = 0.02
    """Learning rate, with momentum 0.9."""
    every: int = 10
    """Epochs between two measurements of the losses."""
    repeats: int = 3
    """Networks of each kind: other images, other weights."""
    masks: int = 1_000_000
    """Masks over which the output of a linear layer is averaged."""
    members: int = 100
    """Thinned networks whose mean prediction is compared with that of the whole network."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(0 < self.p < 1, "p", "between 0 and 1")
        self.at_least(1, "hidden_size", "epochs", "batch_size", "every", "repeats")
        self.require(self.rows >= self.batch_size, "rows", "at least batch_size")
        self.at_least(100, "masks")
        self.at_least(2, "members")
        self.above(0, "lr")

    def cells(self) -> dict[str, Training[Any, Any]]:
        a_pass = self.rows // self.batch_size
        return {
            f"{kind}-{repeat}": DropoutImages(
                p=self.p if kind == "dropout" else 0.0, data=self.data, rows=self.rows, lr=self.lr,
                hidden_size=self.hidden_size, steps=self.epochs * a_pass,
                batch_size=self.batch_size, eval_every=self.every * a_pass,
                seed=mix(self.seed, repeat),
            )
            for repeat, kind in product(range(self.repeats), KINDS)
        }  # fmt: skip

    def measure(
        self, cell: str, recipe: Training[Any, Any], state: State[Any, Any], data: Data
    ) -> dict[str, float | Tensor]:
        """The loss on training images, without masks; that on others is measured anyway."""
        metrics = evaluate_in_training(recipe, state.model, data.batches("train"))
        return {"train_loss": metrics["cross_entropy"]}

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        """A linear layer of 20 inputs and 5 outputs under very many masks."""
        x, weight = torch.randn(20, generator=generator), torch.randn(5, 20, generator=generator)
        bias, whole = torch.randn(5, generator=generator), nn.Linear(20, 5)
        whole.weight.data, whole.bias.data = weight / 20**0.5, bias
        with seeded_by(self.seed):  # masks come from torch's own
            drawn = outputs(nn.Sequential(Dropout(self.p), whole), x, self.masks).double()
        mean, variance = moments(x, whole.weight.detach(), bias, self.p)
        counts, edges = torch.histogram(drawn[:, 0], bins=60, density=True)
        return {
            "layer_mean": drawn.mean(0),
            "layer_variance": drawn.var(0),
            "predicted_mean": mean,
            "predicted_variance": variance,
            "density": torch.stack([(edges[1:] + edges[:-1]) / 2, counts]),
        }

    @torch.no_grad()
    def ensemble(self, model: nn.Module, data: Data) -> dict[str, Tensor]:
        """The networks that the masks make of one: their spread, and the loss of their mean."""
        x, y = next(iter(data.valid))
        whole = model.eval()(x)
        spread = outputs(model, x[0].flatten(), 100 * self.members)[:, y[0]].double()
        counts, edges = torch.histogram(spread, bins=40, density=True)
        guesses = torch.stack([model(x).softmax(1) for _ in range(self.members)])
        number = torch.arange(1, self.members + 1)
        means = guesses.cumsum(0)[:, torch.arange(len(y)), y] / number[:, None]
        return {
            "thinned": torch.stack([(edges[1:] + edges[:-1]) / 2, counts]),
            "whole": whole[0, y[0]],
            "members": number.double(),
            "mean_loss": -means.log().mean(1),
            "whole_loss": cross_entropy(whole, y),
        }

    def metrics(self, table: Table) -> dict[str, float]:
        result = table.result
        (train, test, right), (train_, test_, right_) = (self.ends(table, kind) for kind in KINDS)
        variance = result["layer_variance"] / result["predicted_variance"]
        return {
            "mean_error": (result["layer_mean"] - result["predicted_mean"]).abs().max().item(),
            "variance_error": (variance - 1).abs().max().item(),
            "gap": test - train,
            "gap_dropout": test_ - train_,
            "gap_ratio": (test_ - train_) / (test - train),
            "test_loss": test,
            "test_loss_dropout": test_,
            "accuracy": right,
            "accuracy_dropout": right_,
        }

    def ends(self, table: Table, kind: str) -> list[float]:
        """Training loss, test loss and accuracy, the means of all networks of a kind at the end."""
        found = []
        for repeat in range(self.repeats):
            cell = table.cells[f"{kind}-{repeat}"]
            test = [cell.test.get(name, math.nan) for name in ("cross_entropy", "accuracy")]
            found.append([float(cell.measured["train_loss"][-1]), *test])
        return [sum(values) / self.repeats for values in zip(*found, strict=True)]

    def picture_losses(self, table: Table) -> tuple[Figure, dict[str, float]]:
        """Loss by epoch on the training images, on validation images, and the gap between them.

        At the end the gap is {dropout:.2g} nats with dropout (orange) and {without:.2g} without it
        (blue).
        """
        train: dict[str, Tensor] = {}
        valid: dict[str, Tensor] = {}
        for kind, name in zip(KINDS, ("without", f"with dropout, p = {self.p:g}"), strict=True):
            cells = [table.cells[f"{kind}-{repeat}"] for repeat in range(self.repeats)]
            train[name] = torch.stack([cell.measured["train_loss"][1:] for cell in cells])
            valid[name] = torch.stack([cell.valid["cross_entropy"][1:] for cell in cells])
        gap = {name: valid[name] - train[name] for name in train}
        epochs = cells[0].steps[1:] * self.epochs / cells[0].recipe.steps  # step 0 is left out
        drawn = (
            Panel(
                {name: (epochs, loss.mean(0)) for name, loss in losses.items()},
                "epoch",
                f"{what} (nats)",
                title,
                bands={name: (loss.amin(0), loss.amax(0)) for name, loss in losses.items()},
                log=log,
            )
            for losses, what, title, log in (
                (train, "training loss", f"trained on {self.rows:,} images of {self.data}", "y"),
                (valid, "validation loss", "tried on others", ""),
                (gap, "validation loss - training loss", "the gap", ""),
            )
        )
        ends = [float(values[:, -1].mean()) for values in gap.values()]
        return panels(*drawn), dict(zip(KINDS, ends, strict=True))

    def picture_ensemble(self, table: Table) -> tuple[Figure, dict[str, float]]:
        """Outputs of a linear layer (left) and a logit (middle) over masks, and losses (right).

        The mean of {members} thinned networks has a validation loss of {mean:.2g} nats, one pass
        without masks {whole:.2g}.
        """
        cell = table.cells[f"dropout-{self.repeats - 1}"]
        many = self.ensemble(cell.network(), cell.recipe.dataset())
        mean, variance = table.result["predicted_mean"][0], table.result["predicted_variance"][0]
        at, density = table.result["density"]
        bell = (-((at - mean) ** 2) / (2 * variance)).exp() / (2 * torch.pi * variance).sqrt()
        masked = Panel(
            {"masks": (at, density)},
            "output of a linear layer",
            "density over masks",
            "their mean is the output in evaluation",
            guides={"normal law": (at, bell), "evaluation": _upright(mean, density)},
            ylim=(0.0, 1.4 * density.max().item()),
            legend="upper right",
        )
        logit, density = many["thinned"]
        thinned = Panel(
            {"masks": (logit, density)},
            "logit of the true class, one validation image",
            "density over masks",
            "a network is many networks",
            guides={"evaluation": _upright(many["whole"], density)},
        )
        mean_loss, whole_loss = many["mean_loss"], many["whole_loss"].item()
        losses = Panel(
            {"mean of thinned networks": (many["members"], mean_loss)},
            "thinned networks in the mean",
            "validation loss (nats)",
            "one pass without masks stands for their mean",
            levels={"evaluation": whole_loss},
            log="x",
        )
        values = {"members": self.members, "mean": float(mean_loss[-1]), "whole": whole_loss}
        return panels(masked, thinned, losses), values

    def tiny(self) -> Self:
        return replace(
            super().tiny(), data="digits", rows=100, batch_size=20, hidden_size=128, every=1,
            masks=1000, members=5,
        )  # fmt: skip


def _upright(place: Float[Tensor, ""], heights: Float[Tensor, " points"]) -> Curve:
    """A line from 0 to the greatest height."""
    return place.expand(2), torch.stack([torch.zeros_like(heights[0]), heights.max()])


RECIPES = {
    "dropout": DropoutExperiment(
        goal="mean_error <= 0.01 and variance_error <= 0.02 and gap_ratio <= 0.8",
        covers=("O17",),
    ),
}
