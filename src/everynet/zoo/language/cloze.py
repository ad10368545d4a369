"""Cloze: the words missing from a line, found by any language model that scores whole lines.

    P(w | line) = P(s_1 .. s_k w s_{k+1} .. s_n) / sum_v P(s_1 .. s_k v s_{k+1} .. s_n)
    k, w = argmax P(s_1 .. s_k w s_{k+1} .. s_n)        over all n + 1 places k, and all words w

The first where the place k is given by `___`, the second where it is not. A model is given as
`score`, a function from lines of one length to the log-probability of each. s_1 .. s_n are the
words of the line, and v and w words of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from everynet.data.kinds.text import BLANK, GAP
from everynet.system.errors import UserError

Score: TypeAlias = Callable[[Int64[Tensor, "lines words"]], Float[Tensor, " lines"]]
TOP = 5
"""A removed word counts as found among so many insertions."""


def find_gap(line: Int64[Tensor, " words"]) -> int:
    """The position of the one gap of a line."""
    gaps = int((line == BLANK).sum())
    if gaps != 1:
        raise UserError(
            f"a line must hold one {GAP} to be filled, but holds {gaps}, because the words in "
            "several depend on each other; fill them one by one"
        )
    return int((line == BLANK).int().argmax())


def insert_words(
    line: Int64[Tensor, " words"], places: Int64[Tensor, " tried"], words: Int64[Tensor, " tried"]
) -> Int64[Tensor, "tried longer"]:
    """Copies of the line with one word inserted, each at its own place."""
    if not len(line):
        return words[:, None]
    at = torch.arange(len(line) + 1, device=line.device)
    before = line[(at - (at > places[:, None]).long()).clamp(max=len(line) - 1)]
    return torch.where(at == places[:, None], words[:, None], before)


def all_pairs(
    count: int, words: Int64[Tensor, " words"]
) -> tuple[Int64[Tensor, " tried"], Int64[Tensor, " tried"]]:
    """All pairs of one of `count` places and one of the words."""
    places = torch.arange(count, device=words.device)
    return places.repeat_interleave(len(words)), words.repeat(count)


def rank_insertions(
    score: Score,
    line: Int64[Tensor, " words"],
    places: Int64[Tensor, " tried"],
    words: Int64[Tensor, " tried"],
    top: int = TOP,
) -> list[tuple[int, int, float]]:
    """The most probable insertions (place, word), with their share of all that are tried."""
    shares = score(insert_words(line, places, words)).double().softmax(0)
    best = shares.topk(min(top, len(shares)))
    chosen = best.indices
    return list(
        zip(places[chosen].tolist(), words[chosen].tolist(), best.values.tolist(), strict=True)
    )


def recall_removed_words(
    propose: Callable[[Int64[Tensor, " _"]], Sequence[tuple[int, int, float]]],
    lines: Sequence[Int64[Tensor, " _"]],
    generator: torch.Generator,
) -> float:
    """The share of removed words that are proposed again, at their places.

    A random word is removed from each line of two words or more; where it stood beside an equal
    word, either place is right.
    """
    right = []
    for line in lines:
        if len(line) < 2:
            continue
        place = int(torch.randint(len(line), (), generator=generator))
        rest = torch.cat([line[:place], line[place + 1 :]])
        tried = [(k, w) for k, w, _ in propose(rest)]
        made = insert_words(rest, *(line.new_tensor(column) for column in zip(*tried, strict=True)))
        right.append(bool((made == line).all(1).any()))
    return sum(right) / max(len(right), 1)
