"""Data augmentation: new training images for nothing, by changes that leave the label true.

    theta = argmin mean of loss(f_theta(t(x)), y)            (1)  over samples (x, y) and changes t
    (shift x)(i, j)  = x(i - a, j - b)                       (2)  whole pixels, black from outside
    (flip x)(i, j)   = x(i, width - 1 - j)                   (3)  left and right exchanged
    (crop x)(i, j)   = x(i + a, j + b)                       (4)  a window of the bordered image
    (rotate x)(r)    = x(R r)                                (5)  about the centre, bilinear
    (noise x)(i, j)  = x(i, j) + sigma n_ij                  (6)  n_ij normal

x(i, j) is the pixel in row i and column j, with a, b, the angle of the rotation R and whether to
flip drawn anew for each image in each batch. A flip undoes itself and a shift the opposite shift,
but for what left the frame. What counts as a change that keeps the label is knowledge about the
task: a mirrored horse is a horse, a mirrored 2 is not a 2. Test images are never changed.

Simard, Steinkraus, Platt (2003), "Best Practices for Convolutional Neural Networks Applied to
Visual Document Analysis", doi:10.1109/ICDAR.2003.1227801; Krizhevsky, Sutskever, Hinton (2012),
"ImageNet Classification with Deep Convolutional Neural Networks", NIPS 25, section 4.1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any, ClassVar, Self

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from everynet.data import load
from everynet.data.dataset import Batch, Data
from everynet.data.draws import Draw
from everynet.data.images.augment import Augment, compose, crop, flip, noise, rotate, shift
from everynet.data.images.standardize import black, resize
from everynet.plot.images import image_grid
from everynet.plot.panels import Panel, panels
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.state import State
from everynet.recipes.training import Training
from everynet.system.seeds import mix
from everynet.zoo.optimisation.few_images import FewImages, evaluate_in_training


def network(in_channels: int, classes: int, widths: tuple[int, ...]) -> nn.Sequential:
    """Maps images to logits: convolutions that halve the image, then the mean over pixels."""
    blocks = [
        layer
        for maps, width in pairwise((in_channels, *widths))
        for layer in (
            nn.Conv2d(maps, width, 3, padding=1, bias=False),
            nn.MaxPool2d(2),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        )
    ]
    return nn.Sequential(
        *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes)
    )


SHOWN = 8  # images that are drawn under each change


def crop_and_resize(window: int, size: int) -> Augment:
    """A random window of `window` pixels, brought back to `size` pixels."""
    cropped = crop(window)

    def apply(batch: Batch, draw: Draw) -> Batch:
        x, *rest = cropped(batch, draw)  # (4)
        return (resize(x, size), *rest)

    return apply


def augmentations(size: int, fill: list[float]) -> dict[str, Augment]:
    """Each change by name, strong enough to be seen."""
    pixels = max(1, size // 5)
    return {
        "as it is": compose(),
        "shift": shift(pixels, fill),  # (2)
        "flip": flip(1.0),  # (3)
        "crop": crop_and_resize(size - pixels, size),
        "rotate": rotate(20.0, fill),  # (5)
        "noise": noise(0.4),  # (6)
        "crop and flip": compose(crop(size, pixels, fill), flip(1.0)),
    }


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class AugmentedImages(FewImages[nn.Sequential]):
    """Classify images by convolutions, from images that are changed each time or never."""

    augmented: bool = False
    padding: int = 2
    mirror: bool = True
    sigma: float = 0.0
    widths: tuple[int, ...] = (16, 32, 64)

    kinds: ClassVar[tuple[str, ...]] = ("image",)

    def dataset(self) -> Data:
        data = super().dataset()
        return replace(data, augment=self.augmentation(data)) if self.augmented else data  # (1)

    def augmentation(self, data: Data) -> Augment:
        """The change of a training image."""
        window = crop(data.spec["shape"][1], self.padding, black(data.spec))
        chosen = [window, *([flip()] if self.mirror else [])]
        return compose(*chosen, *([noise(self.sigma)] if self.sigma else []))

    def model(self, data: Data) -> nn.Sequential:
        return network(data.spec["shape"][0], len(data.spec["classes"]), self.widths)


KINDS = {"plain": "without", "augmented": "with augmentation"}


@dataclass(frozen=True, kw_only=True)
class Augmentation(Experiment):
    """The same network with and without augmentation, for as many epochs."""

    tests: ClassVar[bool] = True
    meanings: ClassVar[Mapping[str, str]] = {
        "accuracy": "test accuracy without augmentation, the mean of the repeats",
        "accuracy_augmented": "test accuracy with augmentation",
        "train_accuracy": "accuracy on the training images without augmentation",
        "train_accuracy_augmented": "accuracy on the training images with augmentation",
        "gain": "what augmentation adds to the test accuracy, in points",
        "least_gain": "the same of the worst repeat, in points",
    }

    data: str = "cifar10-small"
    """Images to tell apart."""
    rows: int = 2000
    """Training images, chosen by the seed; 0 takes all."""
    padding: int = 2
    """Border of the image out of which a window of its own size is cropped."""
    mirror: bool = True
    """Whether images may be exchanged left and right."""
    sigma: float = 0.0
    """Standard deviation of noise, in those of a pixel."""
    widths: tuple[int, ...] = (16, 32, 64)
    """Feature maps of the convolutions."""
    epochs: int = 40
    """Passes over the training images, with and without."""
    batch_size: int = 64
    """Images an update sees."""
    lr: float = 3e-3
    """Learning rate, with Adam."""
    every: int = 5
    """Epochs between two measurements of the accuracy."""
    repeats: int = 3
    """Networks of each kind: other images, other weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.rows == 0 or self.rows >= self.batch_size, "rows", "0 or batch_size up")
        self.require(min(self.widths, default=0) >= 1, "widths", "one or more numbers from 1 up")
        self.at_least(0, "padding", "sigma")
        self.at_least(1, "epochs", "batch_size", "every", "repeats")
        self.above(0, "lr")

    def cells(self) -> dict[str, Training[Any, Any]]:
        rows = self.rows or load(self.data, kind="image", batch_size=1).rows("train")
        a_pass = rows // self.batch_size
        return {
            f"{kind}-{repeat}": AugmentedImages(
                data=self.data, rows=self.rows, augmented=kind == "augmented", lr=self.lr,
                padding=self.padding, mirror=self.mirror, sigma=self.sigma, widths=self.widths,
                steps=self.epochs * a_pass, batch_size=self.batch_size,
                eval_every=self.every * a_pass, seed=mix(self.seed, repeat),
            )
            for repeat, kind in product(range(self.repeats), KINDS)
        }  # fmt: skip

    def measure(
        self, cell: str, recipe: Training[Any, Any], state: State[Any, Any], data: Data
    ) -> dict[str, float | Tensor]:
        """The accuracy on training images as they are."""
        return {
            "train_accuracy": evaluate_in_training(recipe, state.model, data.batches("train"))[
                "accuracy"
            ]
        }

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        """The same images under each change, with pixels from 0 to 1."""
        data = load(self.data, kind="image", batch_size=1)
        x, spec = data.whole[0][:SHOWN], data.spec
        mean, std = (torch.tensor(spec[name])[:, None, None] for name in ("mean", "std"))
        changes = augmentations(spec["shape"][1], black(spec)).values()
        changed = [change((x,), Draw(generator, len(x)))[0] for change in changes]
        return {"images": (torch.stack(changed) * std + mean).clamp(0, 1)}

    def metrics(self, table: Table) -> dict[str, float]:
        ends = [
            (float(cell.measured["train_accuracy"][-1]), cell.test.get("accuracy", math.nan))
            for cell in table.cells.values()
        ]
        train, test = torch.tensor(ends).unflatten(0, (self.repeats, 2)).unbind(-1)
        gains = 100 * (test[:, 1] - test[:, 0])
        return {
            "accuracy": test[:, 0].mean().item(),
            "accuracy_augmented": test[:, 1].mean().item(),
            "train_accuracy": train[:, 0].mean().item(),
            "train_accuracy_augmented": train[:, 1].mean().item(),
            "gain": gains.mean().item(),
            "least_gain": gains.min().item(),
        }

    def picture_changes(self, table: Table) -> Figure:
        """The same images in each row under one change, named above the first.

        Pixels differ, but a person would still give every image the same label.
        """
        images = table.result["images"]
        names = augmentations(images.shape[-1], [0.0])
        return image_grid(
            images.flatten(0, 1),
            captions=[name if i == 0 else "" for name in names for i in range(images.shape[1])],
            columns=images.shape[1],
            title="the label stays true",
        )

    def picture_accuracy(self, table: Table) -> tuple[Figure, dict[str, float]]:
        """Accuracy by epoch on the training images (left) and on others (right).

        With augmentation (orange) it ends at {train:.0f} and {valid:.0f} per cent, without it
        (blue) at {plain_train:.0f} and {plain_valid:.0f}.
        """
        train: dict[str, Tensor] = {}
        valid: dict[str, Tensor] = {}
        for kind, name in KINDS.items():
            cells = [table.cells[f"{kind}-{repeat}"] for repeat in range(self.repeats)]
            train[name] = torch.stack([100 * cell.measured["train_accuracy"] for cell in cells])
            valid[name] = torch.stack([100 * cell.valid["accuracy"] for cell in cells])
        epochs = cells[0].steps * self.epochs / cells[0].recipe.steps
        images = f"{self.rows:,} images of {self.data}" if self.rows else self.data
        drawn = (
            Panel(
                {name: (epochs, part.mean(0)) for name, part in parts.items()},
                "epoch",
                "accuracy (%)",
                title,
                bands={name: (part.amin(0), part.amax(0)) for name, part in parts.items()},
                legend="lower right",
            )
            for title, parts in ((f"trained on {images}", train), ("tried on others", valid))
        )
        ends = [part[:, -1].mean().item() for both in (train, valid) for part in both.values()]
        names = ("plain_train", "train", "plain_valid", "valid")
        return panels(*drawn), dict(zip(names, ends, strict=True))

    def tiny(self) -> Self:
        return replace(
            super().tiny(), data="digits", rows=64, padding=1, mirror=False, widths=(4, 8),
            every=1, batch_size=32,
        )  # fmt: skip


RECIPES = {
    "augmentation": Augmentation(
        goal="gain >= 2.0",
        covers=("O16",),
    ),
}
