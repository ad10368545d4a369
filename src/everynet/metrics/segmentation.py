"""Dice coefficient and IoU of predicted masks, from counts pooled over all images.

With n_jk the pixels of class j that were taken for k,

    Dice_k = 2 n_kk / (sum_j n_jk + sum_j n_kj)
    IoU_k = n_kk / (sum_j n_jk + sum_j n_kj - n_kk)

A class that neither is there nor was predicted has 1 in both.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def pixel_confusion(
    predicted: Int[Tensor, "batch height width"],
    targets: Int[Tensor, "batch height width"],
    classes: int,
) -> Int[Tensor, "batch classes classes"]:
    """The confusion matrix of the pixels of each image; rows are true classes."""
    cell = (targets * classes + predicted).flatten(1)
    counts = cell.new_zeros(len(cell), classes**2)
    counts.scatter_add_(1, cell, torch.ones_like(cell))
    return counts.reshape(-1, classes, classes)


def dice(confusion: Int[Tensor, "classes classes"]) -> Float[Tensor, " classes"]:
    """The Dice coefficient of each class."""
    both, either = _both_and_either(confusion)
    return torch.where(either > 0, 2 * both / either.clamp(min=1), 1.0)


def iou(confusion: Int[Tensor, "classes classes"]) -> Float[Tensor, " classes"]:
    """Intersection over union of each class."""
    both, either = _both_and_either(confusion)
    return torch.where(either > 0, both / (either - both).clamp(min=1), 1.0)


def _both_and_either(confusion: Tensor) -> tuple[Tensor, Tensor]:
    counts = confusion.double()
    return counts.diagonal(), counts.sum(0) + counts.sum(1)
