"""Generated sentences whose context decides: words that may be names, and who came first.

names     "he said teddy bears are on sale", "he said teddy roosevelt was a president": what comes
          after teddy decides whether it is a name; in "we met teddy at the fair" and
          "we sold a teddy at the fair" it is what came before
ordered   "now a dog and then and so on a cat now": whether the dog or the cat came first

Sentences of `names` come in pairs that are equal up to the words in doubt, or from them on, and
both of a pair lie in one split: with the other side alone one is right once in each pair.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor

from everynet.data.dataset import Batch, Data
from everynet.data.samplers import Buckets, Made, flattened
from everynet.data.split import PARTS, rows
from everynet.data.texts import lines as texts
from everynet.data.texts.tokens import SENTENCE, Tokens
from everynet.system.errors import UserError
from everynet.system.seeds import generator

PLAIN, AFTER, BEFORE = range(3)
"""What decides whether a word is a name: the word itself, its right or its left context."""
DRAWN = 9
"""Random integers that a pair is a function of."""
MOST_PAIRS = 5000
"""More are hard to find without a duplicate."""

_EITHER = ("teddy", "rose", "bill", "mark", "jack", "ruby", "grace", "frank")
_OPENINGS = tuple(
    f"{who} {verb}"
    for who, verb in product(("he", "she", "we", "they"), ("said", "wrote", "heard", "knew"))
)
_SURNAMES = ("roosevelt", "smith", "jones", "miller", "baker", "cooper")
_GOODS = ("bears", "bushes", "posters", "cards", "stamps", "boxes")
_DONE = ("was a president", "came to dinner", "sang for us", "left at noon")
_SOLD = ("are on sale", "cost too much", "were sold out", "come in boxes")
_WHO = ("i", "he", "she", "we", "they")
_MET = ("met", "married", "phoned", "thanked")
_BOUGHT = ("sold a", "painted a", "lost the", "found the")
_WHERE = ("at the fair", "in the garden", "last week", "on monday", "before dinner")

_FIRST = ("dog", "cat")
_BETWEEN = ("and", "then", "now", "so", "here", "there", "once", "again", "soon", "later")

Sentence = list[tuple[str, int, int]]
"""Each word, whether it is a name, and which context decides it."""


def _plain(text: str) -> Sentence:
    return [(word, 0, PLAIN) for word in text.split()]


def _in_doubt(words: Sequence[str], name: int, cue: int) -> Sentence:
    """Words that may be names, joined by "and"."""
    joined = [("and", 0, PLAIN)] * (2 * len(words) - 1)
    joined[::2] = [(word, name, cue) for word in words]
    return joined


def _one(words: Sequence[str], number: int) -> str:
    return words[number % len(words)]


def _text(sentence: Sentence) -> str:
    return " ".join(word for word, _, _ in sentence)


def make_pair(numbers: Sequence[int]) -> tuple[Sentence, Sentence]:
    """Two sentences that differ on one side of the words in doubt alone: first one with names.

    They are a function of `DRAWN` integers.
    """
    first, two, second, after, *rest = numbers
    doubtful = [_one(_EITHER, first)]
    if two % 2:
        doubtful.append(_one([word for word in _EITHER if word != doubtful[0]], second))
    if after % 2:
        opening, name, done, goods, sold = rest
        start = _plain(_one(_OPENINGS, opening))
        named = [(_one(_SURNAMES, name), 1, PLAIN), *_plain(_one(_DONE, done))]
        other = _plain(f"{_one(_GOODS, goods)} {_one(_SOLD, sold)}")
        return (
            [*start, *_in_doubt(doubtful, 1, AFTER), *named],
            [*start, *_in_doubt(doubtful, 0, AFTER), *other],
        )
    who, met, bought, where, _ = rest
    end = _plain(_one(_WHERE, where))
    return (
        [*_plain(f"{_one(_WHO, who)} {_one(_MET, met)}"), *_in_doubt(doubtful, 1, BEFORE), *end],
        [
            *_plain(f"{_one(_WHO, who)} {_one(_BOUGHT, bought)}"),
            *_in_doubt(doubtful, 0, BEFORE),
            *end,
        ],
    )


def make_names(batch_size: int, seed: int = 0, pairs: int = 2000) -> Data:
    """(x, lengths, y, lengths, cue, lengths): words, whether a name, what decides it."""
    if not 20 <= pairs <= MOST_PAIRS:
        raise UserError(f"pairs ({pairs}) must be from 20 to {MOST_PAIRS}")
    random, both, known = generator(0, *b"names"), list[tuple[Sentence, Sentence]](), set[str]()
    while len(both) < pairs:
        made = make_pair(torch.randint(10**9, (DRAWN,), generator=random).tolist())
        written = {_text(sentence) for sentence in made}
        if known.isdisjoint(written):  # no sentence is in two splits, because none is there twice
            known |= written
            both.append(made)
    placed = texts.placed(rows(len(both)), "names")
    parts = {part: [s for n in placed[part] for s in both[n]] for part in PARTS}
    sentences = {part: [_text(sentence) for sentence in parts[part]] for part in PARTS}
    tokens = Tokens.learned(sentences["train"], "words", SENTENCE)
    splits: dict[str, Batch] = {}
    for part, words in parts.items():
        splits[part] = (
            *flattened([tokens.encode(text) for text in sentences[part]]),
            *flattened([[name for _, name, _ in s] for s in words]),
            *flattened([[cue for _, _, cue in s] for s in words]),
        )
    spec = {
        "name": "names",
        "kind": "labelled",
        "task": "tagging",
        "shape": [],
        "classes": ["word", "name"],
        "split": "by hash of the pair's number, a fifth is test and a tenth of the rest is valid",
        "tokens": tokens.spec,
        "each": "line",
    }
    digest = texts.digest(text for part in PARTS for text in sentences[part])
    return Data(splits, spec, batch_size, seed, digest, Buckets(("ragged", "ragged", "ragged")))


def make_ordered(
    length: int, apart: int, batch_size: int, seed: int = 0, held_out: int = 1000
) -> Data:
    """(x, lengths, y): a dog and a cat among `length` words, and which of the two came first.

    They stand at least `apart` words from each other and from both ends, so that no window of
    `apart` words or fewer holds both, nor one of them and an end; the words between are drawn from
    ten at random.
    """
    if apart < 1:
        raise UserError(f"apart ({apart}) must be at least 1")
    if length < 3 * apart + 1:
        raise UserError(
            f"length ({length}) must be at least 3 * apart + 1 = {3 * apart + 1}, because there "
            "are so many words before, between and after the two"
        )
    tokens = Tokens("words", (*SENTENCE, *_FIRST, *_BETWEEN))

    def draw(count: int, random: torch.Generator) -> Batch:
        return draw_ordered(length, apart, count, random)

    held = {
        part: draw(held_out, generator(2014, length, apart, number))
        for number, part in enumerate(("valid", "test"))
    }
    digest = hashlib.sha256()
    for part in held.values():
        digest.update(part[0].numpy().tobytes())
    spec = {
        "name": f"ordered {length} {apart}",
        "kind": "labelled",
        "task": "classification",
        "shape": [],
        "classes": [f"the {who} first" for who in _FIRST],
        "split": "training sentences are made at each step; two fixed sets judge",
        "tokens": tokens.spec,
        "each": "line",
    }

    def made(step: int) -> Batch:
        return draw(batch_size, generator(seed, 1, step))

    return Data(held, spec, batch_size, seed, digest.hexdigest(), Made(make=made))


def draw_ordered(
    length: int, apart: int, count: int, random: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Sentences with a dog and a cat, their lengths, and 0 where the dog comes first."""
    start = len(SENTENCE)
    x = torch.randint(start + 2, start + 2 + len(_BETWEEN), (count, length), generator=random)
    room = length - 3 * apart  # places that are left where both are pushed to the front
    places = torch.randint(room, (count, 2), generator=random).sort(1).values
    places += torch.tensor([apart, 2 * apart])
    y = torch.randint(2, (count,), generator=random)
    x.scatter_(1, places, torch.stack([start + y, start + 1 - y], 1))
    return x, torch.full((count,), length), y
