"""Softmax over a very large vocabulary, learned from a few candidates a step.

    F(x, y) = w_y . x + b_y                            (1)  score of word y
    q_y     = log((y + 2) / (y + 1)) / log(V + 1)      (2)  log-uniform: Zipf, by rank y = 0 .. V-1
    pi_y    = min(1, c q_y),  sum_y pi_y = K           (3)  expected count of y among candidates
    S       : y in S with probability pi_y, each on its own                 (4)  candidates
    L       = -log (e^{F_y} / pi_y) / sum_{k in S + y} (e^{F_k} / pi_k)     (5)  sampled softmax
    L       = -log s(F_y - log pi_y) - sum_{k in S} log s(log pi_k - F_k)   (6)  noise-contrastive
    V'_i    = distinct targets of stretch i of a corpus, tau at most        (7)  partition
    L       = -log e^{F_y} / sum_{k in V'_i} e^{F_k}                        (8)  importance sampling

s is the logistic function. The gradient of a full softmax, grad F_y - E_P[grad F], needs the scores
of all V words for the mean under the model, P. By importance sampling the mean is taken over a few
words, with weights e^{F_k - log Q_k}: that is the gradient of (5), and of (8), where Q is the same
for all words of V'_i and cancels. Since draws of (4) are independent of each other, which of S + y
is the target follows P(y) / pi_y exactly, and so the F that (5) learns is log P(y | x) + K(x) with
any number of candidates, where without the division it is log P - log pi + K. With (6) it is log P
itself, K = 0: a model that comes out normalised unasked. With K = V every pi is 1
and (5) is the full softmax.

Draws without replacement are mostly made by rejecting what was drawn before, and then expected
counts are only known approximately. Here word y has a stretch of -log(1 - pi_y) on a line, points
fall on the line at random (a Poisson process), and a word is in S where its stretch was hit: pi_y
is exact, and a draw takes O(K log V). How many words S has varies: K is the mean.

Bengio, Senecal (2008), "Adaptive importance sampling to accelerate training of a neural
probabilistic language model", doi:10.1109/TNN.2007.912312; Jean et al. (2015), "On Using Very Large
Target Vocabulary for Neural Machine Translation", arXiv:1412.2007, section 3 (7, 8); Gutmann,
Hyvarinen (2010), "Noise-contrastive estimation", AISTATS, p. 297 and Mnih, Teh (2012), "A fast and
simple algorithm for training neural probabilistic language models", arXiv:1206.6426 (6);
TensorFlow's note "Candidate Sampling Algorithms Reference" (2, 5).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor, nn
from torch.nn.functional import softplus

from everynet.nn.chunked_cross_entropy import chunked_cross_entropy
from everynet.nn.row_sparse import rows

SCALE = 2.0**40
"""Places on the line are whole numbers, so that no cast to single precision moves them."""
SURE = 1 - 1e-6
"""A word that is left out so rarely is always in."""
SIGMAS = 6
"""So many standard deviations more points than expected are at hand."""


# ---------------------------------------------------------------------------------- proposals


def uniform(vocabulary: int) -> Float[Tensor, " vocab"]:
    """The uniform distribution."""
    return torch.full((vocabulary,), 1 / vocabulary, dtype=torch.float64)


def log_uniform(vocabulary: int) -> Float[Tensor, " vocab"]:
    """The log-uniform distribution (Zipf's law), for words sorted by falling frequency."""
    y = torch.arange(vocabulary, dtype=torch.float64)
    return ((y + 2) / (y + 1)).log() / math.log(vocabulary + 1)  # (2)


def unigram(counts: Int[Tensor, " vocab"], power: float = 1.0) -> Float[Tensor, " vocab"]:
    """The distribution of counts to a power; a word that was never seen counts as one."""
    seen = counts.double().clamp(min=1) ** power
    return seen / seen.sum()


def expected_counts(q: Float[Tensor, " vocab"], samples: int) -> Float[Tensor, " vocab"]:
    """The expected count of each word among `samples` candidates: c q, but 1 at most."""
    if not 1 <= samples <= len(q):
        raise ValueError(
            f"samples ({samples}) must be from 1 to the {len(q)} words of the vocabulary, because "
            "each is a candidate once at most"
        )
    if not bool((q > 0).all()):
        raise ValueError(
            f"q (smallest {float(q.min()):g}) must be above 0 for every word, because a word that "
            "is never a candidate is never compared with the target"
        )
    largest = q.double().sort(descending=True).values
    rest = largest.flip(0).cumsum(0).flip(0)  # of the words that come no sooner
    left = samples - torch.arange(len(q), dtype=torch.float64)
    c = left / rest  # where the first so many are always in
    sure = int((c * largest >= 1).long().cumprod(0).sum())
    if sure == len(q):
        return torch.ones_like(largest)
    return (c[sure] * q.double()).clamp(max=1)  # (3)


class Drawn(NamedTuple):
    """Candidates, different words all of them, and the log of how often a word is expected."""

    words: Int64[Tensor, " candidates"]
    log_expected: Float[Tensor, " candidates"]
    """Of each candidate; infinite for one that only fills a place."""
    vocabulary: Float[Tensor, " vocab"]
    """Of every word."""


class Candidates(nn.Module):
    """Draws sets of words, each in by itself with its own probability."""

    log_expected: Tensor
    sure: Tensor
    edges: Tensor

    def __init__(self, expected: Float[Tensor, " vocab"]) -> None:
        super().__init__()
        expected = expected.double()
        inside = bool(((expected > 0) & (expected <= 1)).all())
        if not inside:
            raise ValueError(
                "expected must lie above 0 and at most at 1, because each word is a candidate once "
                "at most; make it with expected_counts"
            )
        certain = expected >= SURE
        expected = expected.masked_fill(certain, 1.0)
        lengths = torch.where(certain, 0.0, -torch.log1p(-expected.clamp(max=SURE)))
        total = float(lengths.sum())
        self.points = math.ceil(total + SIGMAS * math.sqrt(total)) + SIGMAS if total else 0
        for name, value in (
            ("log_expected", expected.log().float()),
            ("sure", certain.nonzero()[:, 0]),
            ("edges", (lengths.cumsum(0) * SCALE).round().long()),
        ):
            self.register_buffer(name, value, persistent=False)

    def forward(self, generator: torch.Generator | None = None) -> Drawn:
        """One set of candidates.

        On a GPU there are always equally many, fillers among them, so that nothing waits for it.
        """
        gaps = torch.empty(self.points, device=self.edges.device).exponential_(generator=generator)
        places = (gaps * SCALE).long().cumsum(0)
        hit = torch.searchsorted(self.edges, places, right=True)  # (4)
        fresh = torch.ones_like(hit, dtype=torch.bool)
        fresh[1:] = hit[1:] != hit[:-1]
        fresh &= hit < len(self.edges)
        if fresh.is_cuda:
            hit = hit.clamp(max=len(self.edges) - 1)
            log_expected = self.log_expected[hit].masked_fill(~fresh, math.inf)
        else:
            hit = hit[fresh]
            log_expected = self.log_expected[hit]
        words = torch.cat([self.sure, hit])
        log_expected = torch.cat([self.log_expected[self.sure], log_expected])
        return Drawn(words, log_expected, self.log_expected)


# ------------------------------------------------------------------------------------- losses


def scores(
    x: Float[Tensor, "tokens hidden"],
    weight: Float[Tensor, "vocab hidden"],
    bias: Float[Tensor, " vocab"],
    target: Int64[Tensor, " tokens"],
    words: Int64[Tensor, " candidates"],
) -> tuple[Float[Tensor, " tokens"], Float[Tensor, "tokens candidates"]]:
    """Scores of the target of each token, and of all candidates for it, by row-sparse lookup."""
    both = torch.cat([words, target])
    w, b = rows(weight, both), rows(bias, both)
    n = len(words)
    of_target = torch.einsum("nd,nd->n", x, w[n:]) + b[n:]  # (1)
    return of_target, torch.addmm(b[:n], x, w[:n].T)  # (1)


def sampled_softmax(
    x: Float[Tensor, "tokens hidden"],
    weight: Float[Tensor, "vocab hidden"],
    bias: Float[Tensor, " vocab"],
    target: Int64[Tensor, " tokens"],
    drawn: Drawn,
) -> Float[Tensor, ""]:
    """Mean of (5) over tokens."""
    right, others = scores(x, weight, bias, target, drawn.words)
    right = right - drawn.vocabulary[target]
    others = others - drawn.log_expected
    others = others.masked_fill(drawn.words == target[:, None], -math.inf)  # S + y holds y once
    return (torch.logaddexp(others.logsumexp(1), right) - right).mean()  # (5)


def noise_contrastive(
    x: Float[Tensor, "tokens hidden"],
    weight: Float[Tensor, "vocab hidden"],
    bias: Float[Tensor, " vocab"],
    target: Int64[Tensor, " tokens"],
    drawn: Drawn,
) -> Float[Tensor, ""]:
    """Mean of (6) over tokens: tell each target from noise, which may be the same word."""
    right, noise = scores(x, weight, bias, target, drawn.words)
    of_target = softplus(drawn.vocabulary[target] - right)
    return (of_target + softplus(noise - drawn.log_expected).sum(1)).mean()  # (6)


def importance_softmax(
    x: Float[Tensor, "tokens hidden"],
    weight: Float[Tensor, "vocab hidden"],
    bias: Float[Tensor, " vocab"],
    target: Int64[Tensor, " tokens"],
    words: Int64[Tensor, " some"],
) -> Float[Tensor, ""]:
    """Mean of (8) over tokens, whose targets are all among `words`, which are in order."""
    place = torch.searchsorted(words, target)
    return chunked_cross_entropy(x, rows(weight, words), place, rows(bias, words))  # (8)


class Part(NamedTuple):
    """A stretch of a corpus, and its words in order."""

    start: int
    stop: int
    words: Int64[Tensor, " some"]


def partitions(targets: Int64[Tensor, " tokens"], tau: int, unit: int = 1) -> Sequence[Part]:
    """Cut a corpus into stretches of at most `tau` different words, each as long as it can be.

    A stretch is a whole number of units (sentences, say, or batches) of equal length, so a unit
    must not hold more words; what fills no unit at the end is left out.
    """
    if not 1 <= unit <= len(targets):
        raise ValueError(
            f"unit ({unit}) must be from 1 to the {len(targets)} tokens of the corpus, because a "
            "stretch has at least one"
        )
    parts: list[Part] = []
    words, start = targets[:0], 0
    for stop in range(unit, len(targets) + 1, unit):
        more = torch.cat([words, targets[stop - unit : stop]]).unique()
        if len(more) > tau and stop - unit > start:
            parts.append(Part(start, stop - unit, words))
            start, more = stop - unit, targets[stop - unit : stop].unique()
        if len(more) > tau:
            raise ValueError(
                f"tau ({tau}) must be at least {len(more)}, because so many different words are in "
                f"tokens {start} to {stop} of the corpus"
            )
        words = more  # (7)
    return [*parts, Part(start, start + (len(targets) - start) // unit * unit, words)]
