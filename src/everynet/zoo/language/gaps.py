"""Words that are missing from a line, as any model of language finds them: by scoring whole lines.

    P(w | line) = P(s_1 .. s_k w s_{k+1} .. s_n) / sum_v P(s_1 .. s_k v s_{k+1} .. s_n)
    k, w = argmax P(s_1 .. s_k w s_{k+1} .. s_n)        over all n + 1 places k, and all words w

The first where the place k is known, as `___` says it; the second where it is not. A model is given
as `score`: from lines of one length to the log-probability of each.
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
"""A word that was removed counts as found among so many."""


def place_of(line: Int64[Tensor, " words"]) -> int:
    """Where the one gap of a line is."""
    gaps = int((line == BLANK).sum())
    if gaps != 1:
        raise UserError(
            f"a line must hold one {GAP} to be filled, but holds {gaps}, because the words in "
            "several depend on each other; fill them one by one"
        )
    return int((line == BLANK).int().argmax())


def inserted(
    line: Int64[Tensor, " words"], places: Int64[Tensor, " tried"], words: Int64[Tensor, " tried"]
) -> Int64[Tensor, "tried longer"]:
    """The line with one word more: each word at its own place, after so many words of the line."""
    if not len(line):
        return words[:, None]
    at = torch.arange(len(line) + 1, device=line.device)
    before = line[(at - (at > places[:, None]).long()).clamp(max=len(line) - 1)]
    return torch.where(at == places[:, None], words[:, None], before)


def every(
    count: int, words: Int64[Tensor, " words"]
) -> tuple[Int64[Tensor, " tried"], Int64[Tensor, " tried"]]:
    """All pairs of one of `count` places and one of the words."""
    places = torch.arange(count, device=words.device)
    return places.repeat_interleave(len(words)), words.repeat(count)


def likeliest(
    score: Score,
    line: Int64[Tensor, " words"],
    places: Int64[Tensor, " tried"],
    words: Int64[Tensor, " tried"],
    top: int = TOP,
) -> list[tuple[int, int, float]]:
    """The places and words that make the line likeliest, and their share of all that is tried."""
    shares = score(inserted(line, places, words)).double().softmax(0)
    best = shares.topk(min(top, len(shares)))
    chosen = best.indices
    return list(
        zip(places[chosen].tolist(), words[chosen].tolist(), best.values.tolist(), strict=True)
    )


def found_again(
    propose: Callable[[Int64[Tensor, " _"]], Sequence[tuple[int, int, float]]],
    lines: Sequence[Int64[Tensor, " _"]],
    generator: torch.Generator,
) -> float:
    """How often a word that was removed from a line is proposed at its place again.

    Each line of two words or more loses one at random; where that was one of two alike beside each
    other, either place is right.
    """
    right = []
    for line in lines:
        if len(line) < 2:
            continue
        place = int(torch.randint(len(line), (), generator=generator))
        rest = torch.cat([line[:place], line[place + 1 :]])
        tried = [(k, w) for k, w, _ in propose(rest)]
        made = inserted(rest, *(line.new_tensor(column) for column in zip(*tried, strict=True)))
        right.append(bool((made == line).all(1).any()))
    return sum(right) / max(len(right), 1)
