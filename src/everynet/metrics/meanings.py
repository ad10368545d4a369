"""Explanations of the metrics that many recipes share, a line each.

A recipe explains all of its metrics in `meanings`: these by `meanings(...)`, its own in words of
its own. A star in a name stands for what depends on a setting. `everynet show`, the card and
`everynet evaluate` print them.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

MEANINGS = {
    "accuracy": "the share of samples that are classified correctly",
    "balanced_accuracy": "the mean over classes of the recall, so that each class counts alike",
    "macro_f1": "the mean over classes of F1, the harmonic mean of precision and recall",
    "majority": "the accuracy of always predicting the commonest class: the baseline to beat",
    "auc": "the area under the ROC curve (two classes)",
    "average_precision": "the area under precision by recall of the rarer of two classes; of a "
    "random ranking its share",
    "threshold": "the probability from which on the answer is the rarer class",
    "precision": "of the samples that were called the rarer class, the share that are",
    "recall": "of the samples of the rarer class, the share that was found",
    "f1": "the harmonic mean of precision and recall of the rarer class",
    "cross_entropy": "the mean negative log-likelihood of the targets, in nats",
    "loss": "the training objective, the mean over samples",
    "r2": "the coefficient of determination: 0 for always predicting the mean",
    "rmse": "the root of the mean squared error, in the units of the target",
    "mae": "the mean absolute error, in the units of the target",
    "mse": "the mean squared error",
    "perplexity": "e to the power of the cross-entropy a token",
    "bits": "the cross-entropy of a token in bits",
    "iou": "intersection over union of the prediction and the truth",
    "bleu": "the BLEU of all translations together, from 0 to 100, as sacrebleu computes it",
}
CLASSES = ("accuracy", "balanced_accuracy", "macro_f1", "majority", "auc", "average_precision")
NUMBERS = ("r2", "rmse", "mae")
LANGUAGE = ("cross_entropy", "perplexity", "bits")
BETTER = {
    **dict.fromkeys(("accuracy", "balanced_accuracy", "macro_f1", "auc", "r2", "iou"), ">="),
    "average_precision": ">=",
    **dict.fromkeys(("loss", "rmse", "mae", "mse", *LANGUAGE), "<="),
    "bleu": ">=",
}
"""Of which shared metrics the larger is the better, and of which the smaller."""


def meanings(*names: str) -> dict[str, str]:
    """The explanations of some of these metrics, for the `meanings` of a recipe."""
    return {name: MEANINGS[name] for name in names}


def explain_metric(known: Mapping[str, str], name: str) -> str:
    """The explanation of a metric by the recipe, or else the shared one."""
    if name in known:
        return known[name]
    starred = (text for like, text in known.items() if "*" in like and fnmatchcase(name, like))
    return next(starred, MEANINGS.get(name, ""))
