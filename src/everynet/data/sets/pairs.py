"""Pairs of texts: captions in two languages, and talk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

from everynet.data.kinds.pairs import Pairs
from everynet.data.split import PARTS
from everynet.data.texts.lines import cut


def captions(held: Sequence[bytes]) -> Pairs:
    """English, then the other language, of train, valid and test."""
    found = [cut(content.decode()) for content in held]
    return _shipped([(found[at], found[at + 1]) for at in (0, 2, 4)])


def irc(held: Sequence[bytes]) -> Pairs:
    """What was said before, the messages one after another, and the answer."""
    parts = []
    for content in held:
        rows = [json.loads(line) for line in content.splitlines()]
        left = [" ".join(" ".join(text.split()) for _, text in row["context"]) for row in rows]
        right = [" ".join(row["response"][1].split()) for row in rows]
        kept = [n for n in range(len(rows)) if left[n] and right[n]]
        parts.append(([left[n] for n in kept], [right[n] for n in kept]))
    return _shipped(parts)


def chat(held: Sequence[bytes]) -> Pairs:
    """Each turn with the one that follows it; a conversation stays in one part."""
    keys, pairs = [], []
    for line in held[0].splitlines():
        talk = json.loads(line)
        turns = [(speaker, " ".join(text.split())) for speaker, text in talk["turns"]]
        for (speaker, before), (other, after) in pairwise(turns):
            if speaker != other and before and after:
                keys.append(talk["id"])
                pairs.append((before, after))
    split = "by hash of the conversation, a fifth is test and a tenth of the rest is valid"
    return Pairs.divide(pairs, "", keys, split)


def _shipped(parts: Sequence[tuple[list[str], list[str]]]) -> Pairs:
    return Pairs(
        name="",
        parts=dict(zip(PARTS, parts, strict=True)),
        digest="",
        split="train, valid and test are those that ship with it",
        published=True,
    )
