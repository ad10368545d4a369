"""How often a classifier is right, and what it takes for what."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def chosen(logits: Float[Tensor, "batch outputs"]) -> Int[Tensor, " batch"]:
    """The class of each sample: the largest logit, or the sign of a single one."""
    return (logits[:, 0] > 0).long() if logits.shape[1] == 1 else logits.argmax(1)


def accuracy(
    logits: Float[Tensor, "batch outputs"], targets: Int[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """1 for each sample whose class was chosen, 0 for the others."""
    return (chosen(logits) == targets).to(logits.dtype)


def confusion(
    predicted: Int[Tensor, " batch"], targets: Int[Tensor, " batch"], classes: int
) -> Int[Tensor, "classes classes"]:
    """How many samples of each true class (rows) were given each class (columns)."""
    for name, labels in (("predicted", predicted), ("targets", targets)):
        if len(labels) and (labels.min() < 0 or labels.max() >= classes):
            raise ValueError(
                f"{name} ({int(labels.min())} to {int(labels.max())}) must be at least 0 and below "
                f"{classes}, because there are {classes} classes; give the number of classes"
            )
    counts = torch.bincount(targets * classes + predicted, minlength=classes**2)
    return counts.reshape(classes, classes)
