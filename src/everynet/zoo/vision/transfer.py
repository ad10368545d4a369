"""Transfer learning: features learned where labels are many serve a task where they are few.

    F, W0 = argmin mean over the source task of H(W0 F(x), y)      (1)  pretraining: many labels
    W     = argmin mean over few labels of H(W F(x), y)            (2)  frozen: F as it was
    F', W = argmin mean over few labels of H(W F'(x), y), from F   (3)  fine-tuned: F learns on
    F', W = argmin mean over few labels of H(W F'(x), y)           (4)  from scratch: random F'

F is a network up to the mean over its last maps, W a linear layer, H the cross-entropy. The two
tasks have different classes: not predictions are carried over but features. In (2) and (3) the
norms keep the means and deviations of the source task, of which a few images are a poor estimate,
and in (3) the features learn far more slowly than W, which begins at random.

Yosinski, Clune, Bengio, Lipson (2014), "How transferable are features in deep neural networks?",
arXiv:1411.1792; Donahue et al. (2013), "DeCAF", arXiv:1310.1531, for (2). Unlike these, the
networks are small; by default the images are digits that may stand at any angle, which a few labels
cannot teach, and `transfer-cifar` has photographs, whose classes are new.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.optim import Optimizer

from everynet.data.dataset import Data
from everynet.plot import Panel, panels
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.trained import Trained
from everynet.recipes.training import OPTIMIZERS, Training
from everynet.system.errors import UserError
from everynet.system.seeds import generator, mix
from everynet.training.loop import trained
from everynet.zoo.vision.classifier import ImageClassification
from everynet.zoo.vision.cnn import CNN
from everynet.zoo.vision.group_cnn import rotate_once


class FineTunedCNN(CNN):
    """A CNN whose norms keep the means and deviations they were given."""

    def train(self, mode: bool = True) -> Self:
        """The norms stay in eval mode: those of a few images would be noise."""
        super().train(mode)
        for part in self.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.eval()
        return self


class FrozenCNN(FineTunedCNN):
    """A CNN whose blocks stay as they are: only the logits are learned."""

    def __init__(self, in_channels: int, classes: int, *, widths: tuple[int, ...]) -> None:
        super().__init__(in_channels, classes, widths=widths)
        self.blocks.requires_grad_(False)


# -------- the network ends here; training and pictures follow --------

HALVES = ("all", "first", "second")
TURNS, CHOICE = 5, 4  # of images and of labels, among what is drawn from a seed
DRAWN = 400  # validation images whose features are drawn


def choose_rows(y: Tensor, labels: int, classes: int, random: torch.Generator) -> Tensor:
    """Rows of so many samples of each class, in a random order."""
    rows = []
    for number in range(classes):
        there = (y.cpu() == number).nonzero().flatten()
        if len(there) < labels:
            raise UserError(
                f"labels ({labels}) must be at most {len(there)}, because a class has no more "
                "training images; do fewer labels"
            )
        rows.append(there[torch.randperm(len(there), generator=random)[:labels]])
    return torch.cat(rows)


@dataclass(frozen=True, kw_only=True)
class SourceTask(ImageClassification[CNN]):
    """Classify images of one half of the classes of a set, or of all, from many labels or few."""

    half: str = "all"
    """all classes, or the first or second half of them."""
    labels: int = 0
    """Training images of each class, chosen by the seed; 0 takes all."""
    spin: float = 0.0
    """Every image is turned once by up to so many degrees."""
    widths: tuple[int, ...] = (16, 32, 32)
    """Feature maps of the blocks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.half in HALVES, "half", "all, first or second")
        self.at_least(0, "labels")

    def dataset(self) -> Data:
        data = super().dataset()
        names = data.spec["classes"]
        low = len(names) // 2 if self.half == "second" else 0
        high = len(names) // 2 if self.half == "first" else len(names)
        splits = {}
        for number, (part, (every, all_y)) in enumerate(data.splits.items()):
            rows = ((all_y >= low) & (all_y < high)).nonzero().flatten()
            x, y = every[rows], all_y[rows] - low
            if part == "train" and self.labels:
                order = choose_rows(y, self.labels, high - low, generator(self.seed, CHOICE))
                x, y = x[order], y[order]
            if self.spin:
                share = 2 * torch.rand(len(x), generator=generator(TURNS, number)) - 1
                x = rotate_once(x, self.spin * share)
            splits[part] = (x, y)
        return replace(data, splits=splits, spec={**data.spec, "classes": names[low:high]})

    def model(self, data: Data) -> CNN:
        return CNN(data.spec["shape"][0], len(data.spec["classes"]), widths=self.widths)


@lru_cache(maxsize=8)
def pretrained_blocks(source: SourceTask) -> dict[str, Tensor]:
    """The weights of the blocks after the source task; learned once in a process."""
    blocks = trained(source, source.dataset()).blocks.state_dict()  # (1)
    return {name: tensor.clone() for name, tensor in blocks.items()}


@dataclass(frozen=True, kw_only=True)
class TargetTask(SourceTask):
    """Classify images from a few labels, with the features of a source task or without."""

    sources: ClassVar[tuple[str, ...]] = ("data", "source")

    freeze: bool = False
    """Keep the features as they are and learn the logits alone."""
    lesson: int = 0
    """Updates of pretraining on the source task; 0 has none."""
    source: str = ""
    """Set of the source task; empty is the first half of the classes of `data`."""
    share: float = 0.02
    """Learning rate of pretrained features, as a share of that of the logits."""

    def optimizers(self, model: CNN) -> dict[str, Optimizer]:
        """Over which weights the loss is minimised; pretrained features move little."""
        if isinstance(model, FrozenCNN):
            return super().optimizers(model)  # (2): its blocks take no gradient
        if isinstance(model, FineTunedCNN):
            groups = [
                {"params": [*model.blocks.parameters()], "lr": self.share * self.lr},
                {"params": [*model.output.parameters()]},
            ]
            return {"main": OPTIMIZERS[self.optimizer](groups, self.lr)}  # (3)
        return super().optimizers(model)  # (4)

    def source_task(self) -> SourceTask:
        """What the features are pretrained on."""
        return SourceTask(
            data=self.source or self.data, half="all" if self.source else "first", size=self.size,
            spin=self.spin, degrees=self.spin, widths=self.widths, steps=self.lesson,
            batch_size=64, lr=5e-3, schedule="one-cycle", seed=self.seed,
        )  # fmt: skip

    def model(self, data: Data) -> CNN:
        pretrained = self.lesson > 0 or bool(self.start)
        kind = FrozenCNN if self.freeze else FineTunedCNN if pretrained else CNN
        network = kind(data.spec["shape"][0], len(data.spec["classes"]), widths=self.widths)
        if self.lesson and data.splits:  # a description alone is of weights that will be read
            network.blocks.load_state_dict(pretrained_blocks(self.source_task()))
        return network


KINDS = {"scratch": "from scratch", "freeze": "frozen features", "tune": "fine-tuned"}


@dataclass(frozen=True, kw_only=True)
class Transfer(Experiment):
    """A few labels of new classes: from scratch, on frozen features, and fine-tuned."""

    tests: ClassVar[bool] = True
    sources: ClassVar[tuple[str, ...]] = ("data", "source")
    meanings: ClassVar[Mapping[str, str]] = {
        "scratch_*": "test accuracy from so many labels a class, learned from scratch",
        "freeze_*": "the same on pretrained features that stay frozen",
        "tune_*": "the same on pretrained features that are fine-tuned",
        "gain_frozen_*": "accuracy that frozen features add to learning from scratch, in points",
        "gain_*": "accuracy that fine-tuned features add to learning from scratch, in points",
    }

    of: Trained = Trained()  # noqa: RUF009 -- frozen, and the same for all
    """The run of a pretrained cnn; empty pretrains one first, anew for each repeat."""
    data: str = "strokes:6000"
    """Images of the new task: a known set, or a folder with one subfolder for each class."""
    source: str = ""
    """Set of the source task; empty pretrains on the first half of the classes of `data`."""
    size: int = 16
    """Side of the images in pixels, to which others are brought; 0 leaves them as they are."""
    spin: float = 180.0
    """Every image is turned once by up to so many degrees."""
    labels: tuple[int, ...] = (3, 10, 30)
    """Numbers of labelled images of each class, rising."""
    widths: tuple[int, ...] = (16, 32, 32)
    """Feature maps of the blocks."""
    lesson: int = 700
    """Updates of pretraining."""
    steps: int = 200
    """Updates of each network on the few labels."""
    lr: float = 3e-3
    """Learning rate from scratch, with Adam and one cycle; logits on features have thrice it."""
    share: float = 0.02
    """Learning rate of features that are fine-tuned, as a share of that of their logits."""
    repeats: int = 3
    """Networks of each kind: other labels, other weights, other pretraining."""

    def __post_init__(self) -> None:
        super().__post_init__()
        rise = [*self.labels] == sorted(set(self.labels)) and min(self.labels, default=0) >= 1
        self.require(rise, "labels", "one or more numbers that rise from 1 or more")
        self.at_least(1, "lesson", "steps", "repeats")
        self.require(0 < self.share <= 1, "share", "above 0 and at most 1")

    def cells(self) -> dict[str, Training[Any, Any]]:
        return {
            f"{kind}-{labels}-{repeat}": TargetTask(
                data=self.data, source=self.source, half="all" if self.source else "second",
                size=self.size, spin=self.spin, labels=labels, widths=self.widths,
                freeze=kind == "freeze", lesson=0 if kind == "scratch" or self.of else self.lesson,
                start=Trained() if kind == "scratch" else self.of, steps=self.steps,
                batch_size=min(25, 2 * labels), share=self.share,
                lr=self.lr * (1 if kind == "scratch" else 3),
                schedule="one-cycle", eval_every=max(1, self.steps // 5),
                seed=mix(self.seed, repeat),
            )
            for repeat, labels, kind in product(range(self.repeats), self.labels, KINDS)
        }  # fmt: skip

    def accuracy(self, table: Table, kind: str) -> Float[Tensor, "labels repeats"]:
        """On test images."""
        return torch.tensor(
            [
                [
                    table.cells[f"{kind}-{labels}-{repeat}"].test.get("accuracy", math.nan)
                    for repeat in range(self.repeats)
                ]
                for labels in self.labels
            ]
        )

    def metrics(self, table: Table) -> dict[str, float]:
        found = {kind: self.accuracy(table, kind).mean(1) for kind in KINDS}
        figures: dict[str, float] = {}
        for row, labels in enumerate(self.labels):
            figures |= {f"{kind}_{labels}": found[kind][row].item() for kind in KINDS}
            for kind in ("freeze", "tune"):
                gain = found[kind][row] - found["scratch"][row]
                name = "gain" if kind == "tune" else "gain_frozen"
                figures[f"{name}_{labels}"] = 100 * gain.item()
        return figures

    def shown_labels(self) -> int:
        """The number of labels a class that the pictures show in detail: about ten."""
        return min(self.labels, key=lambda labels: abs(labels - 10))

    def picture_labels(self, table: Table) -> tuple[Figure, dict[str, float]]:
        """Test accuracy by labels a class (left); validation accuracy by update (right).

        With {labels:.0f} labels a class fine-tuned features reach {tune:.0%}, frozen ones
        {freeze:.0%}, and learning from scratch {scratch:.0%}.
        """
        amount = self.shown_labels()
        ends, curves, reached = {}, {}, {}
        for kind, name in KINDS.items():
            cells = [table.cells[f"{kind}-{amount}-{repeat}"] for repeat in range(self.repeats)]
            ends[name] = 100 * self.accuracy(table, kind)
            curves[name] = 100 * torch.stack([cell.valid["accuracy"] for cell in cells])
            reached[kind] = float(ends[name][self.labels.index(amount)].mean()) / 100
        drawn = panels(
            Panel(
                {name: (torch.tensor(self.labels), rows.mean(1)) for name, rows in ends.items()},
                "labels a class",
                "test accuracy (%)",
                f"new classes of {self.data}",
                bands={name: (rows.amin(1), rows.amax(1)) for name, rows in ends.items()},
                legend="lower right",
            ),
            Panel(
                {name: (cells[0].steps, rows.mean(0)) for name, rows in curves.items()},
                "updates",
                "validation accuracy (%)",
                f"{amount} labels a class",
                bands={name: (rows.amin(0), rows.amax(0)) for name, rows in curves.items()},
                legend="lower right",
            ),
            width=3.25,
            height=2.9,
        )
        return drawn, {**reached, "labels": float(amount)}

    def picture_features(self, table: Table) -> Figure:
        """Validation images of the new classes by the two main directions of their features.

        Left the features were learned from the few labels, right in the source task, which has
        none of these classes.
        """
        amount = self.shown_labels()
        kinds = {"scratch": "learned from few labels", "freeze": "learned in the source task"}
        both = (self.plane(table, f"{kind}-{amount}-0", title) for kind, title in kinds.items())
        return panels(*both, width=3.25, height=3.1)

    @torch.no_grad()
    def plane(self, table: Table, name: str, title: str) -> Panel:
        """Features of validation images on their two main directions."""
        cell = table.cells[name]
        data, network = cell.recipe.dataset(), cell.network()
        assert isinstance(network, CNN)
        x, y = (part[:DRAWN] for part in next(iter(data.valid)))
        v = network.mean(network.blocks(x)).flatten(1).double()
        v = v - v.mean(0)
        _, _, ways = torch.linalg.svd(v, full_matrices=False)
        across, up = (v @ ways[:2].T).T
        return Panel(
            {
                f"class {names}": (across[y == k], up[y == k])
                for k, names in enumerate(data.spec["classes"][:10])
                if bool((y == k).any())
            },
            "first main direction",
            "second main direction",
            title,
            scatter=True,
            legend="none" if name.startswith("scratch") else "best",
        )

    def tiny(self) -> Self:
        return replace(
            super().tiny(), data="digits", source="", size=0, labels=(2, 10), widths=(2, 2),
            lesson=2,
        )  # fmt: skip


RECIPES = {
    "transfer": Transfer(goal="gain_10 >= 10", covers=("C28",)),
    "transfer-mnist": Transfer(data="mnist", goal="gain_10 >= 10", covers=("C28",)),
    "transfer-cifar": Transfer(
        data="cifar10-small", size=32, spin=0.0, widths=(32, 64, 64), lesson=1500,
        goal="gain_10 >= 5", covers=("C28",),
    ),
}  # fmt: skip
