"""Generated texts: strings of letters to reverse or copy, and short sentences with a feeling."""

from __future__ import annotations

import torch

from everynet.data.kinds.labelled import Labelled
from everynet.data.kinds.pairs import Pairs
from everynet.data.sets import parse_count
from everynet.system.seeds import generator

LETTERS = "abcdefgh"
SHORTEST, LONGEST = 3, 12
COUNT = 40_000


def reversal(count: str = "") -> Pairs:
    """`count` different strings of letters, each with itself from back to front."""
    return Pairs.divide([(text, text[::-1]) for text in _strings("reversal", count)], "reversal")


def copying(count: str = "") -> Pairs:
    """`count` different strings of letters, each with itself."""
    return Pairs.divide([(text, text) for text in _strings("copying", count)], "copying")


def _strings(name: str, count: str) -> list[str]:
    size = parse_count(name, count, COUNT, 100, 1_000_000)
    random, found = generator(0, *name.encode()), dict[str, None]()
    while len(found) < size:  # no string is in two parts, because none is there twice
        lengths = torch.randint(SHORTEST, LONGEST + 1, (size,), generator=random).tolist()
        drawn = torch.randint(len(LETTERS), (size, LONGEST), generator=random).tolist()
        for row, length in zip(drawn, lengths, strict=True):
            found["".join([LETTERS[n] for n in row[:length]])] = None
    return list(found)[:size]


_THINGS = ("film", "story", "music", "acting", "ending", "script", "scenery", "song")
_WHEN = ("", "this time", "for once", "in the end", "as we had hoped", "to be honest")
_DEGREES = ("", "very", "really", "quite", "rather", "so")
_GOOD = ("good", "fine", "lovely", "clever", "moving", "funny", "strong", "fresh")
_BAD = ("bad", "poor", "dull", "silly", "boring", "tired", "weak", "stale")
_PHRASES = 2000


def phrases() -> Labelled:
    """2,000 sentences like "the film was not very good": a "not" turns the feeling round."""
    random, found = generator(0, *b"phrases"), dict[str, str]()

    def one(words: tuple[str, ...]) -> str:
        return words[int(torch.randint(len(words), (), generator=random))]

    while len(found) < _PHRASES:
        good, negated = (bool(torch.randint(2, (), generator=random)) for _ in range(2))
        words = ["the", one(_THINGS), "was", "not" if negated else "", one(_DEGREES)]
        words += [one(_GOOD if good else _BAD), one(_WHEN)]
        found[" ".join(filter(None, words))] = "bad" if good == negated else "good"
    return Labelled.divide(list(found.items()), "phrases")
