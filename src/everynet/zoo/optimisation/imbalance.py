"""Classes that are rare in training are hardly ever named, unless each class counts alike.

    w_k = n / (K n_k)                                    (1)  balanced weight of class k
    J   = (1/n) sum_i w_{y_i} L_i                        (2)  weighted loss
    J   = (1/K) sum_k mean of L_i over the i in class k  (3)  what (2) is: each class counts 1/K
    r_k = named k and of class k / of class k            (4)  recall

L_i is the cross-entropy of sample i, y_i its class, n_k of n samples are of class k, K the number
of classes. A network that minimises the mean of L_i learns how common a class is, too, and where it
is in doubt it names the common one: rare classes lose recall. Their images could be repeated as
often as others are many: that has the same mean loss, (3). The price is paid by common classes, of
which some are now taken for rare ones.

King and Zeng (2001), "Logistic Regression in Rare Events Data", Political Analysis 9, p. 137,
section 4.2; Byrd and Lipton (2019), "What is the Effect of Importance Weighting in Deep Learning?",
arXiv:1812.03372: a network that fits every training sample is hardly changed by weights, so that
ours is small and decays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import cross_entropy

from everynet.data.dataset import Batch, Data, Terms
from everynet.metrics import balanced_weights, classified
from everynet.plot import Panel, panels
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.state import State
from everynet.recipes.training import Training
from everynet.system.seeds import generator, mix
from everynet.zoo.feedforward.mlp import MLP
from everynet.zoo.optimisation.few_images import CHOICE, OneHiddenLayer

WEIGHTS = ("", "balanced")


def class_weights(y: Int[Tensor, " samples"], classes: int) -> Float[Tensor, " classes"]:
    """The weights with which all classes count alike."""
    return torch.tensor(balanced_weights(y, classes))  # (1)


def weighted_loss(
    losses: Float[Tensor, " samples"], weights: Float[Tensor, " samples"]
) -> Float[Tensor, ""]:
    """The mean loss of samples, each of which counts as its class does."""
    return (weights * losses).mean()  # (2)


def loss_by_class(
    losses: Float[Tensor, " samples"], y: Int[Tensor, " samples"]
) -> Float[Tensor, ""]:
    """The mean over classes of the mean loss of each: the plain form of (2)."""
    return torch.stack([losses[y == k].mean() for k in y.unique()]).mean()  # (3)


def recall(
    predicted: Int[Tensor, " samples"], y: Int[Tensor, " samples"], classes: int
) -> Float[Tensor, " classes"]:
    """The share of each class that is named rightly."""
    right = y[predicted == y].bincount(minlength=classes)
    return right / y.bincount(minlength=classes)  # (4)


def thin_out(y: Int[Tensor, " samples"], rare: int, images: int, seed: int) -> Int[Tensor, " rows"]:
    """Rows of which the last `rare` classes have `images` at most, chosen by the seed, in order."""
    order = torch.randperm(len(y), generator=generator(seed, CHOICE))
    first = int(y.max()) + 1 - rare
    kept = [order[y[order] < first]]
    kept += [order[y[order] == k][:images] for k in range(first, first + rare)]
    return torch.cat(kept).sort().values


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class SkewedImages(OneHiddenLayer):
    """Classify images of which the last classes are rare in training, and not in the test set."""

    rare: int = 3
    """Classes that are rare, the last ones."""
    rare_images: int = 10
    """Training images of each of them."""
    class_weight: str = ""
    """balanced lets all classes count alike; empty: as often as they occur."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "rare", "rare_images")
        self.one_of("class_weight", WEIGHTS)

    def dataset(self) -> Data:
        """Images, classes and how much each image counts, which is 1 in validation and test."""
        data = super().dataset()
        classes = len(data.spec["classes"])
        self.require(self.rare < classes, "rare", f"below the {classes} classes there are")
        x, y = data.splits["train"]
        chosen = thin_out(y, self.rare, self.rare_images, self.seed)
        weights = class_weights(y[chosen], classes) if self.class_weight else torch.ones(classes)
        splits = {part: (x, y, torch.ones(len(y))) for part, (x, y) in data.splits.items()}
        splits["train"] = (x[chosen], y[chosen], weights.float()[y[chosen]])
        return replace(data, splits=splits)

    def objective(self, model: MLP, batch: Batch) -> Terms:
        x, y, w = batch
        return {"cross_entropy": weighted_loss(cross_entropy(model(x), y, reduction="none"), w)}

    def metrics(self, model: MLP, batch: Batch) -> dict[str, Tensor]:
        x, y, _ = batch
        return {
            **classified(logits := model(x), y),
            "cross_entropy": cross_entropy(logits, y, reduction="none"),
        }


NAMES = {"plain": "", "weighted": "balanced"}


@dataclass(frozen=True, kw_only=True)
class Imbalance(Experiment):
    """The same network on classes of which some are rare, with and without weights of classes."""

    meanings: ClassVar[Mapping[str, str]] = {
        "rare_recall": "mean recall of rare classes on the test images, without weights",
        "rare_recall_weighted": "the same with weights",
        "common_recall": "mean recall of common classes, without weights",
        "common_recall_weighted": "the same with weights",
        "recall_spread": "recall of common less that of rare classes, without weights",
        "recall_spread_weighted": "the same with weights: how unequal classes still are",
    }

    data: str = "digits"
    """Images, or rows of a table, with a class each."""
    rare: int = 3
    """Classes that are rare, the last ones."""
    rare_images: int = 10
    """Training images of each of them."""
    hidden_size: int = 32
    """Hidden units."""
    steps: int = 300
    """Updates of every network."""
    batch_size: int = 64
    """Images an update sees."""
    lr: float = 3e-3
    """Learning rate."""
    weight_decay: float = 1.0
    """L2 decay of weights."""
    repeats: int = 3
    """Seeds: other images, other weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "rare", "rare_images", "hidden_size", "steps", "batch_size", "repeats")
        self.above(0, "lr")
        self.at_least(0, "weight_decay")

    def cells(self) -> dict[str, Training[Any, Any]]:
        return {
            f"{name}-{repeat}": SkewedImages(
                data=self.data, rare=self.rare, rare_images=self.rare_images,
                class_weight=NAMES[name], hidden_size=self.hidden_size, steps=self.steps,
                batch_size=self.batch_size, lr=self.lr, optimizer="adamw",
                weight_decay=self.weight_decay, eval_every=self.steps,
                seed=mix(self.seed, repeat),
            )
            for repeat, name in product(range(self.repeats), NAMES)
        }  # fmt: skip

    def measure(
        self, cell: str, recipe: Training[Any, Any], state: State[Any, Any], data: Data
    ) -> dict[str, float | Tensor]:
        """Recall of each class on the test images, of which all classes have as many."""
        model, classes = state.model.eval(), len(data.spec["classes"])
        parts = [*data.test]
        y = torch.cat([y for _, y, _ in parts])
        predicted = torch.cat([model(x).argmax(1) for x, *_ in parts])
        model.train()
        return {"recall": recall(predicted, y, classes)}

    def recalls(self, table: Table, name: str) -> Float[Tensor, "repeats classes"]:
        """Recall by seed and class at the end."""
        cells = (table.cells[f"{name}-{repeat}"] for repeat in range(self.repeats))
        return torch.stack([cell.measured["recall"][-1].double().cpu() for cell in cells])

    def metrics(self, table: Table) -> dict[str, float]:
        found = {}
        for name, ending in (("plain", ""), ("weighted", "_weighted")):
            by_class = self.recalls(table, name).mean(0)
            common, rare = by_class[: -self.rare].mean(), by_class[-self.rare :].mean()
            found[f"rare_recall{ending}"] = rare.item()
            found[f"common_recall{ending}"] = common.item()
            found[f"recall_spread{ending}"] = (common - rare).item()
        return {name: found[name] for name in self.meanings}

    def picture_recall(self, table: Table) -> tuple[Figure, dict[str, float]]:
        """Recall of each class with weights of classes (blue) and without (orange), a dot a seed.

        Of the rare classes, right of the grey line, {plain:.0%} are found without weights and
        {weighted:.0%} with them.
        """
        found = {"with weights": "weighted", "without": "plain"}
        curves = {}
        for aside, (label, name) in zip((-0.12, 0.12), found.items(), strict=True):
            values = self.recalls(table, name)
            classes = torch.arange(values.shape[1]).expand_as(values) + aside
            curves[label] = (classes.flatten(), values.flatten())
        first = values.shape[1] - self.rare
        metrics = self.metrics(table)
        panel = Panel(
            curves,
            "class (number)",
            "recall on the test images",
            f"the last {self.rare} classes have {self.rare_images} training images each",
            marks={"rare from here on": first - 0.5},
            ylim=(-0.03, 1.03),
            scatter=True,
            legend="below",
        )
        return panels(panel), {
            "plain": metrics["rare_recall"],
            "weighted": metrics["rare_recall_weighted"],
        }


RECIPES = {
    "imbalance": Imbalance(
        goal="recall_spread >= 0.25 and recall_spread_weighted <= 0.2", covers=("D1",)
    ),
}
