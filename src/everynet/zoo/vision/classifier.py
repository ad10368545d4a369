"""What every recipe that classifies images shares: data, loss, metrics, pictures, prediction."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int64
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.images.augment import (
    Augment,
    affine,
    colour,
    compose,
    cutout,
    flip,
    mixed_cross_entropy,
    mixup,
    shift,
)
from everynet.data.transfer import constant
from everynet.metrics import balanced_weights, classified, confusion, name_classes
from everynet.metrics.meanings import CLASSES, meanings
from everynet.nn.ema import EMA
from everynet.nn.layers import activations, layer_table
from everynet.plot import activation_maps, confusion_matrix, filters, misclassified
from everynet.recipes.recipe import later
from everynet.recipes.state import M
from everynet.recipes.trained import Trained
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.zoo.vision.pictures.diagram import network


@dataclass(frozen=True, kw_only=True)
class ImageClassification(Training[M]):
    """Classify images by a network that gives logits."""

    last_weights: ClassVar[bool] = True
    meanings: ClassVar[Mapping[str, str]] = meanings(*CLASSES, "cross_entropy")

    data: str = "digits"
    """A known set, or a folder with one subfolder of images for each class."""
    holdout: bool = True
    """Keep a tenth of training to choose weights; false trains on all but a published test."""
    size: int = 0
    """Side of the images in pixels, to which others are brought; 0 leaves them as they are."""
    strict: bool = later(False)
    """Refuse a file that is no image or cannot be read, instead of skipping and counting it."""
    pixels: float = 0.0
    """Training images are moved by up to so many pixels along each axis."""
    degrees: float = 0.0
    """Training images are turned by up to so many degrees."""
    scale: float = 0.0
    """Training images are stretched by up to this fraction along each axis."""
    mirror: bool = False
    """Half of the training images are seen in a mirror."""
    colour: float = 0.0
    """Brightness, contrast and saturation of training images change by up to this fraction."""
    cutout: int = 0
    """Side in pixels of a square that is hidden in each training image; 0 hides none."""
    mixup: float = 0.0
    """Training images are mixed in pairs, by weights of Beta(mixup, mixup); 0 mixes none."""
    smoothing: float = 0.0
    """Share of each training label that is spread over all classes."""
    class_weight: str = later("")
    """balanced lets all classes count alike while learning; empty: as often as they occur."""
    class_weights: tuple[float, ...] = later(())
    """How much a training image of each class counts; empty: class_weight says it, or all alike."""

    ema: float = later(0.0)
    """Averaged weights are kept, this share of the average at each update (0.999); 0: none are."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0, "size", "cutout", "pixels", "degrees", "mixup")
        self.within(0, 1, "colour")
        for name in ("scale", "smoothing", "ema"):
            self.require(0 <= getattr(self, name) < 1, name, "at least 0 and below 1")
        self.require(self.class_weight in ("", "balanced"), "class_weight", "empty or balanced")
        weighted = bool(self.class_weight or self.class_weights)
        alone = not (weighted and self.mixup)
        self.require(alone, "mixup", "0 with weights of classes, which it mixes")
        positive = all(0 < weight < math.inf for weight in self.class_weights)
        self.require(positive, "class_weights", "numbers above 0")

    def suited(self, data: Data) -> dict[str, Any]:
        """Balanced weights of classes, where they are wanted."""
        found = super().suited(data)
        if self.class_weight and not self.class_weights:
            _, y = data.splits["train"]
            found["class_weights"] = balanced_weights(y, len(data.spec["classes"]))
        return found

    def augment(self) -> Augment | None:
        """The random changes of training images; a shift by whole pixels where that is all."""
        steps = [flip()] if self.mirror else []
        if self.degrees or self.scale or self.pixels != int(self.pixels):
            steps.append(affine(self.degrees, self.pixels, self.scale))
        elif self.pixels:
            steps.append(shift(int(self.pixels)))
        if self.colour:
            steps.append(colour(self.colour, self.colour, self.colour))
        if self.cutout:
            steps.append(cutout(self.cutout))
        return compose(*steps) if steps else None

    def dataset(self) -> Data:
        data = load(
            self.data, kind="image", batch_size=self.batch_size, seed=self.seed,
            holdout=self.holdout, size=self.size, strict=self.strict,
        )  # fmt: skip
        if data.spec["task"] != "classification":
            raise UserError(
                f"data ({self.data}) must be images with a class each, because a class is learned; "
                "try digits"
            )
        most = min(data.spec["shape"][1:])
        words = f"at most {most}, because the images are no larger"
        self.require(self.cutout <= most, "cutout", words)
        return replace(data, augment=self.augment())

    def extra(self, model: M) -> nn.Module:
        return EMA(model, self.ema) if self.ema else nn.Module()

    def objective(self, model: M, batch: Batch) -> Terms:
        x, y = batch
        if not self.mixup:
            return {"cross_entropy": self.loss(model(x), y)}
        x, own = mixup(x, self.mixup)
        return {"cross_entropy": mixed_cross_entropy(model(x), y, own, self.smoothing)}

    def loss(
        self, logits: Float[Tensor, "batch classes"], y: Int64[Tensor, " batch"]
    ) -> Float[Tensor, ""]:
        """The cross-entropy that is minimised, weighted and smoothed; metrics never are."""
        if self.class_weight and not self.class_weights:
            raise UserError(
                "class_weight (balanced) is known where a run begins, and here it is not; give "
                "class_weights=, a number for each class"
            )
        if not self.class_weights:
            return cross_entropy(logits, y, label_smoothing=self.smoothing)
        if len(self.class_weights) != logits.shape[1]:
            raise UserError(
                f"class_weights ({len(self.class_weights)} numbers) must be one for each of the "
                f"{logits.shape[1]} classes"
            )
        each = cross_entropy(logits, y, label_smoothing=self.smoothing, reduction="none")
        return (constant(self.class_weights, each.dtype, each.device)[y] * each).mean()

    def metrics(self, model: M, batch: Batch) -> dict[str, Tensor]:
        x, y = batch
        logits = model(x)
        return {
            **classified(logits, y),
            "cross_entropy": cross_entropy(logits, y, reduction="none"),
        }

    def activation_layers(self, model: M) -> Sequence[str]:
        """The layers whose activations are drawn."""
        return [name for name, _ in model.named_children()]

    def picture_activations(self, model: M, data: Data, history: History) -> Figure:
        """One validation image, and below it its feature maps in each layer, first layer on top.

        Beside the image stands the probability that the network gives to every class.
        """
        x, y = next(iter(data.valid))
        maps = activations(model, x[:1], self.activation_layers(model))
        probability = model(x[:1]).softmax(1)[0].cpu()
        classes = data.spec["classes"]
        true, predicted = classes[int(y[0])], classes[int(probability.argmax())]
        return activation_maps(
            valid_images(data, torch.tensor([0]))[0],
            {**{name: each[0] for name, each in maps.items()}, "probability": probability},
            classes=classes,
            title=true if predicted == true else f"{true}, taken for {predicted}",
        )

    def picture_misclassified(self, model: M, data: Data, history: History) -> Figure:
        """Validation images, each with its predicted class and the probability of that class.

        The mistakes come first, with their true class, and then, where few are wrong, the least
        sure of the right answers.
        """
        y, probabilities = predict_validation(model, data)
        sure, predicted = probabilities.max(1)
        images = partial(valid_images, data)
        names = data.spec["classes"]
        return misclassified(images, predicted, y, sure, classes=names, split="validation")

    def picture_filters(self, model: M, data: Data, history: History) -> Figure:
        """The filters of the first layer, each a square.

        For grey images red is a positive weight and blue a negative one; for colour images each
        filter shows the colour it responds to, with grey as 0.
        """
        first = next(module for module in model.modules() if isinstance(module, nn.Conv2d))
        return filters(first.weight, title="first layer")

    def picture_network(self, model: M, data: Data, history: History) -> Figure:
        """The layers from the image to the logits, with the number and size of their maps.

        Below stands how many pixels of the image a unit of each layer sees.
        """
        shape = data.spec["shape"]
        return network(layer_table(model, shape), shape, title=type(model).__name__)

    def picture_confusion(self, model: M, data: Data, history: History) -> Figure:
        """How often validation images of each true class get each predicted class.

        Right answers are on the diagonal; classes that are confused have large numbers off it.
        """
        y, probabilities = predict_validation(model, data)
        classes = data.spec["classes"]
        return confusion_matrix(confusion(probabilities.argmax(1), y, len(classes)), classes)

    def predict(self, model: M, inputs: Tensor, spec: Spec) -> Sequence[dict[str, Any]]:
        """The most likely class of each image, and the probability of every class."""
        parts = [model(x).softmax(1).cpu() for x in inputs.split(1000)]
        return name_classes(torch.cat(parts), spec["classes"])


def check_halvings(spec: Spec, widths: Sequence[int], part: str) -> None:
    """Refuse images too small for parts of these widths, of which all but the last pool."""
    size, least = min(spec["shape"][1:]), 2 ** (len(widths) - 1)
    if size < least:
        raise UserError(
            f"size ({size}) must be at least {least}, because every {part} but the last halves "
            f"the image; do size={least} or give fewer widths"
        )


def check_image_run(of: Trained, because: str) -> None:
    """Refuse a run that is not of a network that classifies images."""
    source, spec = of.recipe, of.spec
    classifies = (spec.get("kind"), spec.get("task")) == ("image", "classification")
    if source.kind != "training" or not classifies:
        raise UserError(
            f"of ({of}) must be the run of a network that tells images apart, because {because}, "
            f"and {source.name} is none; try a run of lenet"
        )


def image_run(of: Trained) -> tuple[nn.Module, Data]:
    """The network of a run, in float64, and its data, which must be what it was."""
    data = of.recipe.dataset()  # type: ignore[attr-defined]  # a training has data
    if data.spec != of.spec:
        raise UserError(f"of ({of}) must find its data as it was, but that has changed")
    return of.load().double(), data


def predict_validation(model: nn.Module, data: Data) -> tuple[Tensor, Tensor]:
    """The true class of every validation image, and the probabilities of all classes."""
    parts = [(y.cpu(), model(x).softmax(1).cpu()) for x, y in data.valid]
    y, probabilities = (torch.cat(part) for part in zip(*parts, strict=True))
    return y, probabilities


def valid_images(data: Data, rows: Tensor) -> Tensor:
    """Validation images in the colours they had."""
    return to_pixels(data.some("valid", rows)[0], data.spec)


def to_pixels(x: Tensor, spec: Spec) -> Tensor:
    """Images with the standardisation of their channels undone: the colours are right.

    Only one channel or three can be drawn; of any other number the mean is.
    """
    x = x.cpu()
    std, mean = (torch.tensor(spec[name], dtype=x.dtype)[:, None, None] for name in ("std", "mean"))
    images = x * std + mean
    return images if images.shape[1] in (1, 3) else images.mean(1, keepdim=True)
