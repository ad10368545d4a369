"""The metrics of every classifier and of every regression.

`classified` and `regressed` give the values of each sample, `decided` those at the threshold of a
run, `summarise_outputs` the metrics of all samples, and `class_report` precision and recall of
every class for the card.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from everynet.metrics.classification import (
    accuracy,
    balanced_accuracy,
    confusion,
    decide,
    macro_f1,
    majority_accuracy,
    precision_recall_f1,
    predict_class,
)
from everynet.metrics.ranking import auc, average_precision
from everynet.metrics.regression import mae, r2, rmse

_KEPT = ("_target", "_chosen", "_score", "_predicted", "_positive", "_threshold")
"""Values of each sample, or of all of them, that are no metrics themselves."""


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
    counts, t = _counts(outputs, 2 if "_positive" in outputs else 0), outputs["_target"]
    more = {
        "balanced_accuracy": balanced_accuracy(counts),
        "macro_f1": macro_f1(counts),
        "majority": majority_accuracy(counts),
    }
    if "_score" in outputs and len(t.unique()) == 2:
        rare, score = rarer_class(t), outputs["_score"]
        more["auc"] = auc(score, t == 1)
        more["average_precision"] = average_precision(score if rare else -score, t == rare)
    if "_positive" in outputs:
        of_each, positive = precision_recall_f1(counts), int(outputs["_positive"][0])
        more |= {"threshold": float(outputs["_threshold"][0])}
        more |= {name: float(values[positive]) for name, values in of_each.items()}
    return means | more


def rarer_class(targets: Int[Tensor, " samples"]) -> int:
    """Which of two classes has fewer samples; the second where both have as many."""
    return int(2 * int(targets.sum()) <= len(targets))


def probability_of(outputs: Mapping[str, Tensor], positive: int) -> Float64[Tensor, " samples"]:
    """The probability of one of two classes, whose score is the difference of their logits."""
    score = outputs["_score"].double()
    return (score if positive else -score).sigmoid()


def decided(outputs: Mapping[str, Tensor], spec: Mapping[str, Any]) -> dict[str, Tensor]:
    """Outputs with the answers at the threshold of a run, if its spec holds one."""
    threshold = spec.get("threshold")
    if threshold is None or "_score" not in outputs:
        return dict(outputs)
    positive, value = spec["classes"].index(threshold["class"]), float(threshold["value"])
    chosen = decide(probability_of(outputs, positive), positive, value)
    right = (chosen == outputs["_target"]).to(outputs["accuracy"].dtype)
    of_all = {
        "_positive": torch.tensor([positive]),
        "_threshold": torch.tensor([value], dtype=torch.float64),
    }
    return {**outputs, "accuracy": right, "_chosen": chosen, **of_all}


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
