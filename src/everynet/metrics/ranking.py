"""Rankings by a score: the areas under two curves, and the thresholds that cut a ranking in two.

    AP = sum_k (R_k - R_{k-1}) P_k                                    (1)  average precision
    F1 = 2 TP / (said + there)                                        (2)

where k counts the different scores downwards, R_k is the recall and P_k the precision of saying yes
to all rows with at least the k-th score: TP of the `said` rows are among the `there` positive ones.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor


def auc(scores: Float[Tensor, " rows"], positive: Bool[Tensor, " rows"]) -> float:
    """The chance that a positive row has a higher score than another one; half for equal scores.

    That is the area under the curve of true against false positives: by ranks (Mann, Whitney),
    equal scores sharing theirs.
    """
    of, other = int(positive.sum()), int((~positive).sum())
    if not of or not other:
        raise ValueError(f"positive ({of} of {of + other}) must hold both kinds to compare them")
    own, others = (scores[kind].double().sort()[0] for kind in (positive, ~positive))
    below = (torch.searchsorted(others, own, right=right).sum() for right in (False, True))
    return sum(int(count) for count in below) / 2 / (of * other)


def placements(
    scores: Float[Tensor, " rows"], positive: Bool[Tensor, " rows"]
) -> Float64[Tensor, " rows"]:
    """For each row the share of rows of the other kind on the right side; half of equal scores.

    The mean over the positive rows is the area under the ROC curve, that over the others as well.
    DeLong, DeLong and Clarke-Pearson (1988), doi:10.2307/2531595.
    """
    placed = torch.empty(len(scores), dtype=torch.float64)
    for kind in (positive, ~positive):
        others, own = scores[~kind].double().sort()[0], scores[kind].double().contiguous()
        low, high = (torch.searchsorted(others, own, right=right) for right in (False, True))
        share = (low + high).double() / (2 * len(others))
        placed[kind] = share if kind is positive else 1 - share
    return placed


def average_precision(scores: Float[Tensor, " rows"], positive: Bool[Tensor, " rows"]) -> float:
    """The mean precision of the thresholds at which a ranking finds one positive row more."""
    _, found, said = _by_score(scores, positive)
    gained = found.diff(prepend=found.new_zeros(1))
    total: float = (gained * found / said).sum().item()  # (1)
    return total / found[-1].item()


def f1_threshold(scores: Float[Tensor, " rows"], positive: Bool[Tensor, " rows"]) -> float:
    """The least score to say yes to for the largest F1; of equally good ones the largest."""
    values, found, said = _by_score(scores, positive)
    best: float = values[(2 * found / (said + found[-1])).argmax()].item()  # (2)
    return best


def recall_threshold(
    scores: Float[Tensor, " rows"], positive: Bool[Tensor, " rows"], recall: float
) -> float:
    """The largest score such that rows with at least that score have at least that recall."""
    values, found, _ = _by_score(scores, positive)
    largest: float = values[(found >= recall * found[-1] - 1e-9).nonzero()[0, 0]].item()
    return largest


def _by_score(
    scores: Float[Tensor, " rows"], positive: Bool[Tensor, " rows"]
) -> tuple[Float64[Tensor, " values"], Float64[Tensor, " values"], Float64[Tensor, " values"]]:
    """The different scores downwards; how many positive rows and how many rows have as much."""
    if not positive.any():
        raise ValueError(f"positive (0 of {len(positive)}) must hold a row that is to be found")
    own = scores[positive].double().sort()[0]
    values, count = scores.double().sort()[0].unique_consecutive(return_counts=True)
    values = values.flip(0)
    found = len(own) - torch.searchsorted(own, values)
    return values, found.double(), count.flip(0).cumsum(0).double()
