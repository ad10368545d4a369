"""The metrics of every classifier and of every regression.

`classified` and `regressed` give the values of each sample, `summarise_outputs` the metrics of all
samples, and `class_report` precision and recall of every class for the card.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from everynet.metrics.classification import (
    accuracy,
    balanced_accuracy,
    confusion,
    macro_f1,
    majority_accuracy,
    precision_recall_f1,
    predict_class,
)
from everynet.metrics.ranking import auc
from everynet.metrics.regression import mae, r2, rmse

_KEPT = ("_target", "_chosen", "_score", "_predicted")
"""Values of each sample that are no metrics themselves."""


def classified(
    logits: Float[Tensor, "batch outputs"], targets: Int[Tensor, " batch"]
) -> dict[str, Tensor]:
    """The accuracy, target and prediction of each sample, from which the other metrics follow."""
    said = {
        "accuracy": accuracy(logits, targets),
        "_target": targets,
        "_chosen": predict_class(logits),
    }
    if logits.shape[1] > 2:
        return said
    other = logits[:, 0] if logits.shape[1] == 2 else 0
    return said | {"_score": logits[:, -1] - other}


def regressed(
    predicted: Float[Tensor, " batch"], targets: Float[Tensor, " batch"]
) -> dict[str, Tensor]:
    """Prediction and target of each sample, from which the metrics of a regression follow."""
    return {"_target": targets, "_predicted": predicted}


def summarise_outputs(outputs: Mapping[str, Tensor]) -> dict[str, float]:
    """The mean of each value, and the metrics of all classes or numbers together."""
    means = {n: v.double().mean().item() for n, v in outputs.items() if n not in _KEPT}
    if "_predicted" in outputs:
        p, t = outputs["_predicted"], outputs["_target"]
        return means | {"r2": r2(p, t), "rmse": rmse(p, t), "mae": mae(p, t)}
    if "_chosen" not in outputs:
        return means
    counts, t = _counts(outputs), outputs["_target"]
    more = {
        "balanced_accuracy": balanced_accuracy(counts),
        "macro_f1": macro_f1(counts),
        "majority": majority_accuracy(counts),
    }
    both = "_score" in outputs and len(t.unique()) == 2
    return means | more | ({"auc": auc(outputs["_score"], t == 1)} if both else {})


def _counts(outputs: Mapping[str, Tensor], classes: int = 0) -> Int[Tensor, "classes classes"]:
    said, t = outputs["_chosen"], outputs["_target"]
    return confusion(said, t, max(classes, 1 + int(torch.maximum(said, t).max())))


def class_report(outputs: Mapping[str, Tensor], classes: Sequence[str]) -> list[tuple[str, ...]]:
    """Rows of text for every class: precision, recall, F1 and how many there are; or none."""
    if "_chosen" not in outputs or len(classes) < 2:
        return []
    counts = _counts(outputs, len(classes))
    columns = [
        [f"{x:.4g}" for x in column.tolist()] for column in precision_recall_f1(counts).values()
    ]
    there = [f"{count:,}" for count in counts.sum(1).tolist()]
    rows = zip(classes, *columns, there, strict=False)
    return [("class", "precision", "recall", "f1", "samples"), *rows]
