"""A text as sentences of words, and as the indices of the words that occur often enough."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from everynet.system.errors import UserError
from everynet.system.wording import shown

LONGEST = 10_000
"""Words of the longest sentence; a longer one is cut, so that threads can share any text."""

_ENDS = re.compile(r"[.!?]\s|\n\s*\n")
_WORDS = re.compile(r"[^\W\d]\w*(?:['\N{RIGHT SINGLE QUOTATION MARK}]\w+)*")

Sentences = Iterable[Sequence[str]]


def split_sentences(text: str) -> Iterator[list[str]]:
    """The words of each sentence in lower case; full stops and empty lines end one."""
    for part in _ENDS.split(text):
        if found := _WORDS.findall(part.casefold()):
            yield found


@dataclass(frozen=True)
class Corpus:
    """Text as indices of words: word n is `words[n]`, the commonest first."""

    words: list[str]
    text: Int[Tensor, " length"]
    """32-bit integers; -1 ends a sentence."""

    @staticmethod
    def from_sentences(given: Sentences, min_count: int) -> Corpus:
        """Index the words that occur `min_count` times; the others are left out of the text."""
        texts = []
        for sentence in given:
            if isinstance(sentence, str):
                raise UserError(
                    f"sentence ({shown(sentence, 40)}) must be a list of words, because every "
                    "letter of a text would be taken for one; give sentence.split()"
                )
            texts.append(list(sentence))
        counts = Counter(word for sentence in texts for word in sentence)
        if not counts:
            raise UserError("sentences must hold words, but there is none; give more text")
        common = sorted(
            (w for w in counts if counts[w] >= min_count), key=lambda w: (-counts[w], w)
        )
        if len(common) < 2:
            raise UserError(
                "sentences must hold at least 2 different words that occur min_count "
                f"({min_count}) times, because each is compared to others, but {len(common)} of "
                f"{len(counts):,} does; give more text or lower min_count"
            )
        return Corpus(common, encode_sentences(texts, common))

    @property
    def counts(self) -> Int[Tensor, " vocab"]:
        """How often each word occurs."""
        return torch.bincount(self.text[self.text >= 0].long(), minlength=len(self.words))


def encode_sentences(given: Sentences, words: Sequence[str]) -> Int[Tensor, " length"]:
    """Sentences as the indices of their known words, each ended by -1."""
    index = {word: number for number, word in enumerate(words)}
    stream: list[int] = []
    for sentence in given:
        known = (index[word] for word in sentence if word in index)
        while piece := list(islice(known, LONGEST)):
            stream += piece
            stream.append(-1)
    return torch.from_numpy(np.array(stream, np.int32))
