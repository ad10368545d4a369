"""Replies ranked by the words that they share with a context: what a network is to beat.

    w_t = count of t in the text * (log((1 + N) / (1 + N_t)) + 1)        TF-IDF of word t
    score = w(context) . w(reply) / (|w(context)| |w(reply)|)            cosine

N texts were fitted to, N_t of them hold the word t. As scikit-learn's TfidfVectorizer has it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from everynet.data.kinds.pairs import Pairs


def score_by_words(
    samples: Pairs,
    part: str,
    turns: int,
    replies: Sequence[str],
    candidates: Int[Tensor, "rows candidates"],
) -> Float[Tensor, "rows candidates"]:
    """The cosine of each context of a part with its candidates, which are numbers of `replies`."""
    from sklearn.feature_extraction.text import TfidfVectorizer  # noqa: PLC0415 -- takes a second

    def contexts(part: str) -> list[str]:
        found = samples.replies(part)
        return [" ".join(text for _, text in reply.context(turns)) for reply in found]

    known = TfidfVectorizer().fit([*contexts("train"), *samples.parts["train"][1]])
    rows, count = candidates.shape
    left = known.transform(contexts(part))[torch.arange(rows).repeat_interleave(count).numpy()]
    right = known.transform(replies)[candidates.flatten().cpu().numpy()]
    products = left.multiply(right).sum(1)
    return torch.as_tensor(products).view(rows, count).double()


def recall(scores: Float[Tensor, "rows candidates"], most: int) -> float:
    """The share of rows whose first candidate is among the `most` of the largest score.

    Candidates of equal score stand in a random order, of which this is the expectation: replies
    that share no word with a context all score 0.
    """
    larger = (scores[:, 1:] > scores[:, :1]).sum(1)
    equal = (scores[:, 1:] == scores[:, :1]).sum(1)
    return ((most - larger).double() / (equal + 1)).clamp(0, 1).mean().item()


def rank_first(scores: Float[Tensor, "rows candidates"]) -> Int[Tensor, " rows"]:
    """The place of the first candidate of each row, from 1; what is equal counts as larger."""
    return 1 + (scores[:, 1:] >= scores[:, :1]).sum(1)


def standardize(scores: Float[Tensor, "rows candidates"]) -> Float[Tensor, "rows candidates"]:
    """Scores of mean 0 and deviation 1 in each row, so that those of two methods can be summed."""
    centred = scores - scores.mean(1, keepdim=True)
    return centred / scores.std(1, keepdim=True).clamp(min=1e-12)
