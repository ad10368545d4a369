"""Smoothing: six ways to give probability to n-grams whose count is 0.

c(h w) counts a word after a history h, c(h) all words after h, h' is h without its first word, V
the number of words.

    P(w|h) = c(h w) / c(h)                                             (1)  maximum likelihood
    P(w|h) = (c(h w) + k) / (c(h) + k V)                               (2)  add-k
    P(w|h) = (a(h w) - D) / a(h) + g(h) P(w|h')                        (3)  Kneser-Ney
    g(h)   = sum_w D / a(h)      over the words that follow h          (4)  discounted mass
    a(h w) = c(h w) of the longest n-grams and where h begins a sentence, else the number of
             different words that stand before h w                     (5)  adjusted count
    D_i    = i - (i+1) Y n_{i+1} / n_i,    Y = n_1 / (n_1 + 2 n_2)     (6)  modified discounts
    P(w|h) = d_c c(h w) / c(h)   where seen, else  b(h) P(w|h')        (7)  Katz
    d_r    = ((r+1) n_{r+1} / (r n_r) - q) / (1 - q),                  (8)  Good-Turing, r <= R
             q = (R+1) n_{R+1} / n_1
    b(h)   = (1 - sum_seen P(w|h)) / (1 - sum_seen P(w|h'))            (9)  back-off weight
    S(w|h) = c(h w) / c(h)       where seen, else  0.4 S(w|h')        (10)  stupid back-off

n_r counts the different n-grams of one order whose (adjusted) count is r. (6) has a discount for
counts of 1, of 2 and of 3 or more, in every order, and below single words stands 1/V; plain
Kneser-Ney has one D and ends at a(w) / sum a, so that a word never seen has probability 0. S does
not sum to 1: it is a score. R is 5, or the next below for which all d_r are from 0 to 1; Katz
discounts no unigrams, and where it would leave nothing to unseen words, 1 is added to c(h).
Modified Kneser-Ney is that of KenLM's lmplz, and plain Kneser-Ney that of nltk, but for a start
symbol alone, where nltk divides by 0.

Chen, Goodman (1999), "An empirical study of smoothing techniques for language modeling",
doi:10.1006/csla.1999.0128; Katz (1987), "Estimation of probabilities from sparse data for the
language model component of a speech recognizer", doi:10.1109/TASSP.1987.1165125; Brants et al.
(2007), "Large language models in machine translation", ACL D07-1090; Heafield et al. (2013),
"Scalable modified Kneser-Ney language model estimation", ACL P13-2121.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from everynet.kernels.ngrams import Counted, Grams, Ints, Reals, prefix_starts
from everynet.system.errors import UserError

LARGEST = 5
"""Katz does not discount counts above it: the largest R of (8)."""


@dataclass(frozen=True)
class SmoothingSettings:
    """Parameters of some of the smoothings."""

    k: float = 1.0
    discount: float = 0.75
    backoff: float = 0.4


@dataclass(frozen=True)
class BackoffModel:
    """Probabilities of the n-grams of each order, and the back-off weights of histories."""

    p: list[Reals]
    backoff: list[Reals]
    """One order fewer: the longest n-grams are no histories."""
    missing: float = 1.0
    """The back-off weight of an unseen history."""

    def grams(self, levels: Sequence[Counted]) -> list[Grams]:
        """The same in logarithms, as the kernel that scores takes them."""
        lengths = [1, *(len(level.words) for level in levels)]
        none = np.zeros(0)
        with np.errstate(divide="ignore"):
            return [
                Grams(level.words, prefix_starts(level.prefix, shorter), np.log(p), np.log(weight))
                for level, shorter, p, weight in zip(
                    levels, lengths, self.p, [*self.backoff, none], strict=False
                )
            ]


def _sums(level: Counted, values: Reals | Ints, shorter: int) -> Reals:
    """The sum over the words that follow each history."""
    return np.bincount(level.prefix, values, shorter).astype(np.float64)


def _shares(values: Reals | Ints, totals: Reals, otherwise: float = 0.0) -> Reals:
    """`values` divided by `totals`, and `otherwise` where the total is 0."""
    found = np.full(len(totals), otherwise)
    np.divide(values, totals, out=found, where=totals > 0)
    return found


def _counts(levels: Sequence[Counted]) -> list[tuple[Counted, Ints, int]]:
    """Each order with its counts, the start symbol's own left out, and the number of histories."""
    first = np.where(levels[0].opens, 0, levels[0].count)
    counts = [first, *(level.count for level in levels[1:])]
    shorter = [1, *(len(level.words) for level in levels)]
    return list(zip(levels, counts, shorter, strict=False))


# ---------------------------------------------------------------------------- one order alone


def maximum_likelihood(levels: Sequence[Counted], settings: SmoothingSettings) -> BackoffModel:
    """Relative counts of the longest n-grams."""

    def share(c: Ints | float, total: Reals | float) -> Reals:
        return np.asarray(c / np.maximum(total, 1))  # (1)

    return _longest_alone(levels, share, lambda total: np.where(total > 0, 0.0, 1.0), 0.0)


def add_k(levels: Sequence[Counted], settings: SmoothingSettings) -> BackoffModel:
    """Every count is raised by k."""
    k, words = settings.k, len(levels[0].words) - 1

    def share(c: Ints | float, total: Reals | float) -> Reals:
        return np.asarray((c + k) / (total + k * words))  # (2)

    return _longest_alone(levels, share, lambda total: words * share(0.0, total), 1.0)


def _longest_alone(
    levels: Sequence[Counted],
    share: Callable[[Ints | float, Reals | float], Reals],
    weight: Callable[[Reals], Reals],
    missing: float,
) -> BackoffModel:
    """Only the longest n-grams count, and those that begin a sentence; below them all is 1/V."""
    uniform = 1 / (len(levels[0].words) - 1)
    p, weights = [], []
    for n, (level, c, shorter) in enumerate(_counts(levels), 1):
        total = _sums(level, c, shorter)
        own = (n == len(levels)) | level.opens
        p.append(np.where(own, share(c, total[level.prefix]), uniform))
        if n > 1:
            own = (n == len(levels)) | levels[n - 2].opens
            weights.append(np.where(own, weight(total), 1.0))
    p[0][-1] = 0.0  # the start symbol never follows
    return BackoffModel(p, weights, missing)


# --------------------------------------------------------------------------------- Kneser-Ney


def adjusted_counts(levels: Sequence[Counted]) -> list[Ints]:
    """The number of different words before an n-gram, or its count where (5) says so."""
    counts = [c for _, c, _ in _counts(levels)]
    for n, (level, longer) in enumerate(pairwise(levels)):
        before = np.bincount(longer.suffix, minlength=len(level.words))
        counts[n] = np.where(level.opens, counts[n], before)  # (5)
    return counts


def modified_discounts(a: Ints, order: int) -> Reals:
    """The discounts of counts of 0, 1, 2 and 3 or more."""
    n = np.bincount(np.minimum(a, 5), minlength=6).astype(float)
    if n[1:5].all():
        y = n[1] / (n[1] + 2 * n[2])
        i = np.arange(1, 4)
        d = i - (i + 1) * y * n[2:5] / n[1:4]  # (6)
        if ((d >= 0) & (d <= i)).all():
            return np.concatenate([[0.0], d])
    raise UserError(
        f"the text or its vocabulary must be larger for modified-kneser-ney, because discounts "
        f"follow from how many {order}-grams have a count of 1, 2, 3 and 4 (in turn fewer), and "
        f"these are {n[1]:.0f}, {n[2]:.0f}, {n[3]:.0f} and {n[4]:.0f}; try smoothing=kneser-ney"
    )


def _interpolated(
    levels: Sequence[Counted], a: Sequence[Ints], discounts: Sequence[Reals], bottom: float
) -> BackoffModel:
    p: list[Reals] = []
    weights, lower = [], np.array([bottom])
    for (level, _, shorter), count, discount in zip(_counts(levels), a, discounts, strict=True):
        taken = discount[np.minimum(count, 3)]
        total = _sums(level, count, shorter)
        g = _shares(_sums(level, taken, shorter), total, 1.0)  # (4)
        here = level.prefix
        lower = (count - taken) / np.maximum(total, 1)[here] + g[here] * lower[level.suffix]  # (3)
        if not p:
            lower[-1] = 0.0  # the start symbol never follows
        p.append(lower)
        weights.append(g)
    return BackoffModel(p, weights[1:])


def kneser_ney(levels: Sequence[Counted], settings: SmoothingSettings) -> BackoffModel:
    """One discount for all counts and orders but unigrams."""
    d = np.array([0.0, *[settings.discount] * 3])
    return _interpolated(
        levels, adjusted_counts(levels), [np.zeros(4), *[d] * (len(levels) - 1)], 0.0
    )


def modified_kneser_ney(levels: Sequence[Counted], settings: SmoothingSettings) -> BackoffModel:
    """Three discounts for each order, estimated from the text, down to 1/V; as KenLM's lmplz."""
    a = adjusted_counts(levels)
    discounts = [modified_discounts(one, n) for n, one in enumerate(a, 1)]
    return _interpolated(levels, a, discounts, 1 / (len(levels[0].words) - 1))


# ----------------------------------------------------------------------------------- back-off


def good_turing(c: Ints, order: int) -> Reals:
    """The factors d_r of counts from 0 to LARGEST, and 1 for those above."""
    n = np.bincount(np.minimum(c, LARGEST + 2), minlength=LARGEST + 3).astype(float)
    for k in range(LARGEST, 1, -1):
        if n[1 : k + 2].all():
            r = np.arange(1, k + 1)
            q = (k + 1) * n[k + 1] / n[1]
            d = ((r + 1) * n[2 : k + 2] / (r * n[1 : k + 1]) - q) / (1 - q)  # (8)
            if ((d > 0) & (d <= 1)).all():
                return np.concatenate([[0.0], d, np.ones(LARGEST + 1 - k)])
    found = ", ".join(f"{count:.0f}" for count in n[1:4])
    raise UserError(
        f"the text must be longer for katz, because its discounts follow from how many {order}-"
        f"grams were seen once, twice and three times (in turn fewer), and these are {found}; try "
        "a lower order, or smoothing=kneser-ney"
    )


def katz(levels: Sequence[Counted], settings: SmoothingSettings) -> BackoffModel:
    """Seen n-grams lose a share, which the others take as the shorter ones say."""
    words = len(levels[0].words) - 1
    p, weights, lower = [], [], np.array([1 / words])
    for n, (level, c, shorter) in enumerate(_counts(levels), 1):
        here, seen = level.prefix, np.minimum(c, 1)
        d = np.ones(LARGEST + 2) if n == 1 else good_turing(c, n)
        kept = d[np.minimum(c, LARGEST + 1)] * c
        total, free = (
            _sums(level, c, shorter),
            1 - _sums(level, seen * lower[level.suffix], shorter),
        )
        full = _sums(level, seen, shorter) >= words  # every word was seen here
        left = total - _sums(level, kept, shorter)
        total = total + (~full & (left < 1e-9 * total))
        total = np.where(full, total - left, total)
        share = kept / np.maximum(total, 1e-300)[here]
        b = _shares(1 - _sums(level, share, shorter), np.where(full, 0.0, free), 0.0)  # (9)
        b = np.where(total > 0, b, 1.0)
        lower = np.where(c > 0, share, b[here] * lower[level.suffix])  # (7)
        if n == 1:
            lower[-1] = 0.0  # the start symbol never follows
        p.append(lower)
        weights.append(b)
    return BackoffModel(p, weights[1:])


def stupid_backoff(levels: Sequence[Counted], settings: SmoothingSettings) -> BackoffModel:
    """Relative counts of the longest seen n-gram, times a factor for each word it is shortened."""
    p = []
    for level, c, shorter in _counts(levels):
        p.append(c / np.maximum(_sums(level, c, shorter), 1)[level.prefix])
    weights = [np.full(len(level.words), settings.backoff) for level in levels[:-1]]  # (10)
    return BackoffModel(p, weights, settings.backoff)


SMOOTHINGS: dict[str, Callable[[Sequence[Counted], SmoothingSettings], BackoffModel]] = {
    "mle": maximum_likelihood,
    "add-k": add_k,
    "kneser-ney": kneser_ney,
    "modified-kneser-ney": modified_kneser_ney,
    "katz": katz,
    "stupid-backoff": stupid_backoff,
}


def is_probability(smoothing: str) -> bool:
    """Whether the scores of a smoothing sum to 1."""
    return smoothing != "stupid-backoff"


def check_settings(smoothing: str, settings: SmoothingSettings) -> None:
    """Refuse parameters that make no probability."""
    if smoothing == "add-k" and not 0 < settings.k < math.inf:
        raise UserError(f"k ({settings.k}) must be a positive number; without it there is mle")
    if not 0 < settings.discount < 1:
        raise UserError(
            f"discount ({settings.discount}) must be above 0 and below 1, because counts of 1 keep "
            "the rest; try 0.75"
        )
    if not 0 < settings.backoff < 1:
        raise UserError(f"backoff ({settings.backoff}) must be above 0 and below 1; try 0.4")
