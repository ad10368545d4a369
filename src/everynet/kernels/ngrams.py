"""N-grams of a stream of word numbers: counted by sorting packed integers, found again by search.

An n-gram is its first n-1 words, which are an (n-1)-gram with a number of its own, and its last
word. So (number of the beginning) x (words) + (last word) is one 64-bit integer for any n; sorting
these integers counts the n-grams and numbers them in order. What follows one beginning then stands
side by side: `starts[b]` to `starts[b + 1]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from everynet.kernels.compiled import compiled
from everynet.kernels.prefetch import prefetch

Ints: TypeAlias = NDArray[np.int64]
Shorts: TypeAlias = NDArray[np.int32]
Reals: TypeAlias = NDArray[np.float64]

NONE = -1
"""The number of an n-gram that was not seen."""
FAR, NEAR = 11, 5
"""Tokens ahead of which the prefix, and then its continuations, are prefetched."""


@dataclass(frozen=True)
class Counted:
    """The different n-grams of one order, in the order of their numbers."""

    words: Shorts
    """The last word."""
    prefix: Ints
    """The number of the first n-1 words, among the n-grams one shorter."""
    suffix: Ints
    """The number of the last n-1 words."""
    count: Ints
    opens: NDArray[np.bool_]
    """Whether it begins with the start symbol."""


def words_before(tokens: Ints, end: int) -> Ints:
    """The number of words before each token in its sentence."""
    firsts = np.flatnonzero(tokens[:-1] == end) + 1
    lengths = np.diff(firsts, prepend=0, append=len(tokens))
    since: Ints = np.arange(len(tokens)) - np.repeat(np.concatenate([[0], firsts]), lengths)
    return since


def count_ngrams(tokens: Ints, since: Ints, order: int, start: int) -> list[Counted]:
    """The n-grams of every order up to `order`; a start symbol is put before every sentence.

    `start` must be larger than the number of any word, and `since` counts the words before each
    token in its sentence, where all n-grams begin and end.
    """
    firsts = np.flatnonzero(since == 0)
    stream = np.insert(tokens, firsts, start)
    since = np.insert(since + 1, firsts, 0)
    words = start + 1
    everyone = np.arange(words)
    found = [
        Counted(
            words=everyone.astype(np.int32),
            prefix=np.zeros(words, np.int64),
            suffix=np.zeros(words, np.int64),
            count=np.bincount(stream, minlength=words),
            opens=everyone == start,
        )
    ]
    number = stream  # of the n-gram that ends here
    for n in range(2, order + 1):
        ends = np.flatnonzero(since >= n - 1)
        keys = number[ends - 1] * words + stream[ends]
        by_key = np.argsort(keys)
        keys = keys[by_key]
        new = np.ones(len(keys), np.bool_)
        new[1:] = keys[1:] != keys[:-1]
        places = np.flatnonzero(new)
        one = ends[by_key[places]]  # a place of the text where each of them ends
        prefix = keys[places] // words
        found.append(
            Counted(
                words=stream[one].astype(np.int32),
                prefix=prefix,
                suffix=number[one],
                count=np.diff(places, append=len(keys)),
                opens=found[-1].opens[prefix],
            )
        )
        number = np.full(len(stream), NONE)
        number[ends[by_key]] = np.cumsum(new) - 1
    return found


def prefix_starts(prefix: Ints, shorter: int) -> Shorts:
    """The first n-gram of each of `shorter` prefixes, and the number of n-grams."""
    ends = np.cumsum(np.bincount(prefix, minlength=shorter))
    return np.concatenate([[0], ends]).astype(np.int32)


@dataclass(frozen=True)
class Grams:
    """The n-grams of one order that a model knows, by their numbers."""

    words: Shorts
    """The last word."""
    starts: Shorts
    """The first n-gram of each prefix, an (n-1)-gram."""
    logp: Reals
    """Log-probability of the last word after the others."""
    backoff: Reals
    """Log of the backoff weight, where this n-gram is a prefix; empty for the longest."""


def score_tokens(
    tokens: Ints, since: Ints, grams: Sequence[Grams], missing: float
) -> tuple[Reals, NDArray[np.int8]]:
    """The log-probability of each token given its history, and the length of the n-gram found.

    Where an n-gram was not seen, the one without its first word is asked and costs the weight of
    the beginning, or `missing` where the beginning was not seen either.
    """
    start = len(grams[0].words) - 1
    if len(tokens) and not 0 <= tokens.min() <= tokens.max() < start:
        wrong = tokens.min() if tokens.min() < 0 else tokens.max()
        raise ValueError(
            f"a word's number ({wrong}) must be at least 0 and below {start}, the size of the "
            "vocabulary; give numbers of the vocabulary that the model was fitted with"
        )
    values, seen = grams[0].logp[tokens], np.ones(len(tokens), np.int8)
    number = tokens.astype(np.int32)
    for n, (shorter, gram) in enumerate(pairwise(grams), 2):
        found = np.empty_like(number)
        known = (gram.starts, gram.words, gram.logp, shorter.backoff, missing)
        _lengthen(n, (tokens, since, number, start), known, (found, values, seen))
        number = found
    return values, seen


@compiled()
def _lengthen(
    n: int,
    text: tuple[Ints, Ints, Shorts, int],
    known: tuple[Shorts, Shorts, Reals, Reals, float],
    result: tuple[Shorts, Reals, NDArray[np.int8]],
) -> None:
    """Extend the n-gram that ends before each token by that token; `number` is its index."""
    tokens, since, number, start = text
    starts, words, logp, backoff, missing = known
    found, values, seen = result
    for t in range(len(tokens)):
        if t + FAR < len(tokens):  # tables are larger than a cache: ask for what will be needed
            if number[t + FAR] >= 0:
                prefetch(starts, number[t + FAR])
                prefetch(backoff, number[t + FAR])
            if number[t + NEAR] >= 0:
                prefetch(words, (starts[number[t + NEAR]] + starts[number[t + NEAR] + 1]) >> 1)
        found[t] = NONE
        if since[t] < n - 2:
            continue
        before = start if since[t] == 0 else number[t - 1]
        if before < 0:
            values[t] += missing
            continue
        word, low, length = tokens[t], starts[before], starts[before + 1] - starts[before]
        while length > 1:
            half = length >> 1
            low = low + half if words[low + half] <= word else low
            length -= half
        if length == 1 and words[low] == word:
            found[t], values[t], seen[t] = low, logp[low], n
        else:
            values[t] += backoff[before]
