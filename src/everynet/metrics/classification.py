"""Metrics of a classifier, from its logits or its confusion matrix.

    precision_k = right_k / said_k                         of those it called k, the share that are
    recall_k    = right_k / there_k                        of those that are k, the share it found
    F1_k        = 2 right_k / (said_k + there_k)           their harmonic mean

Balanced accuracy is the mean recall, macro F1 the mean F1: every class counts alike, however rare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor


def predict_class(logits: Float[Tensor, "batch outputs"]) -> Int[Tensor, " batch"]:
    """The class of each sample: the largest logit, or the sign of a single one."""
    return (logits[:, 0] > 0).long() if logits.shape[1] == 1 else logits.argmax(1)


def name_classes(
    probabilities: Float[Tensor, "batch classes"],
    classes: Sequence[str],
    threshold: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """What every classifier answers of a sample: its class, and the probability of each by name.

    `threshold` is how a run decides between two classes (`spec["threshold"]`): the answer is the
    class that it names from its value on, and tells so.
    """
    rows, told = probabilities.double().tolist(), {}
    chosen = [max(range(len(p)), key=p.__getitem__) for p in rows]
    if threshold is not None:
        positive, value = classes.index(threshold["class"]), float(threshold["value"])
        chosen = decide(probabilities[:, positive], positive, value).tolist()
        told = {"threshold": value, "positive": threshold["class"]}
    return [
        {
            "class": classes[k],
            "probability": p[k],
            "probabilities": dict(zip(classes, p, strict=True)),
            **told,
        }
        for k, p in zip(chosen, rows, strict=True)
    ]


def decide(
    probability: Float[Tensor, " batch"], positive: int, threshold: float
) -> Int[Tensor, " batch"]:
    """Of two classes the positive one where its probability is at least the threshold."""
    return torch.where(probability.double() >= threshold, positive, 1 - positive)


def balanced_weights(targets: Int[Tensor, " samples"], classes: int) -> tuple[float, ...]:
    """Weights n / (K n_k) that let K classes count alike, where n_k of n samples are in class k."""
    counts = torch.bincount(targets, minlength=classes)
    weights: list[float] = (counts.sum() / (classes * counts.double())).tolist()
    return tuple(weights)


def accuracy(
    logits: Float[Tensor, "batch outputs"], targets: Int[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """1 for each sample that is classified correctly, 0 for the others."""
    return (predict_class(logits) == targets).to(logits.dtype)


def confusion(
    predicted: Int[Tensor, " batch"], targets: Int[Tensor, " batch"], classes: int
) -> Int[Tensor, "classes classes"]:
    """The confusion matrix: samples of each true class (rows) by predicted class (columns)."""
    for name, labels in (("predicted", predicted), ("targets", targets)):
        if len(labels) and (labels.min() < 0 or labels.max() >= classes):
            raise ValueError(
                f"{name} ({int(labels.min())} to {int(labels.max())}) must be at least 0 and below "
                f"{classes}, because there are {classes} classes; give the number of classes"
            )
    counts = torch.bincount(targets * classes + predicted, minlength=classes**2)
    return counts.reshape(classes, classes)


def precision_recall_f1(
    counts: Int[Tensor, "classes classes"],
) -> dict[str, Float64[Tensor, " classes"]]:
    """Precision, recall and F1 of each class, from the confusion matrix; 0 for 0 / 0."""
    right, there, said = counts.diag().double(), counts.sum(1).double(), counts.sum(0).double()
    return {
        "precision": right / said.clamp(min=1),
        "recall": right / there.clamp(min=1),
        "f1": 2 * right / (said + there).clamp(min=1),
    }


def balanced_accuracy(counts: Int[Tensor, "classes classes"]) -> float:
    """The mean recall of the classes that occur."""
    return precision_recall_f1(counts)["recall"][counts.sum(1) > 0].mean().item()


def macro_f1(counts: Int[Tensor, "classes classes"]) -> float:
    """The mean F1 of the classes that occur or were predicted."""
    return precision_recall_f1(counts)["f1"][counts.sum(0) + counts.sum(1) > 0].mean().item()


def majority_accuracy(counts: Int[Tensor, "classes classes"]) -> float:
    """The accuracy of always predicting the commonest class."""
    return counts.sum(1).max().item() / max(1, int(counts.sum()))
