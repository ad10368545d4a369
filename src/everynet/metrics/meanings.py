"""What the figures that many recipes print mean, each in one line.

A recipe names all of its figures in `figures`: these by `meanings`, its own in words of its own. A
star in a name stands for what depends on a setting. `everynet show`, the card and `everynet
evaluate` say them.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

MEANINGS = {
    "accuracy": "the share of samples whose class was named",
    "balanced_accuracy": (
        "the mean over classes of the share that was found: each class counts alike"
    ),
    "macro_f1": (
        "the mean over classes of F1, which wants what is named right and what is there found"
    ),
    "majority": "how often always naming the commonest class would be right: what to beat",
    "auc": "the chance that a sample of the second class has the higher score of two (two classes)",
    "cross_entropy": "nats of surprise at what is true, the mean: 0 where all is said for certain",
    "loss": "what training lowers, the mean over samples",
    "r2": "the share of the variance of the target that is explained: 0 for always saying the mean",
    "rmse": "the root of the mean squared error, in the units of the target",
    "mae": "the mean size of the error, in the units of the target",
    "mse": "the mean squared error",
    "perplexity": "how many tokens the next one seems to be chosen from: e to the cross-entropy",
    "bits": "the cross-entropy of a token in bits",
    "iou": "the area that found and true share, as a part of the area that either covers",
}
CLASSES = ("accuracy", "balanced_accuracy", "macro_f1", "majority", "auc")
NUMBERS = ("r2", "rmse", "mae")
LANGUAGE = ("cross_entropy", "perplexity", "bits")


def meanings(*names: str) -> dict[str, str]:
    """The sentences of some of these figures, for the `figures` of a recipe."""
    return {name: MEANINGS[name] for name in names}


def meaning(figures: Mapping[str, str], name: str) -> str:
    """What a figure of a recipe means; of one that it does not name, what it means elsewhere."""
    if name in figures:
        return figures[name]
    starred = (said for like, said in figures.items() if "*" in like and fnmatchcase(name, like))
    return next(starred, MEANINGS.get(name, ""))
