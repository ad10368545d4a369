"""The area under the ROC curve."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def auc(scores: Float[Tensor, " rows"], positive: Bool[Tensor, " rows"]) -> float:
    """The chance that a positive row has a higher score than another one; half for equal scores.

    That is the area under the curve of true against false positives: by ranks (Mann, Whitney),
    equal scores sharing theirs.
    """
    of, other = int(positive.sum()), int((~positive).sum())
    if not of or not other:
        raise ValueError(f"positive ({of} of {of + other}) must hold both kinds to compare them")
    _, place, count = torch.unique(scores, return_inverse=True, return_counts=True)
    ranks = count.cumsum(0).double() - (count.double() - 1) / 2
    total: float = ranks[place][positive].sum().item()
    return (total - of * (of + 1) / 2) / (of * other)
