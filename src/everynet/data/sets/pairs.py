"""Pairs of texts: captions in two languages, and talk."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from everynet.data.kinds.pairs import Pairs
from everynet.data.split import PARTS
from everynet.data.texts.lines import cut
from everynet.data.texts.turns import Reply, Turn, find_replies


def captions(held: Sequence[bytes]) -> Pairs:
    """English, then the other language, of train, valid and test."""
    found = [cut(content.decode()) for content in held]
    return _shipped([(found[at], found[at + 1]) for at in (0, 2, 4)])


def irc(held: Sequence[bytes]) -> Pairs:
    """What was said before, the messages one after another, and the answer."""
    parts, talk = [], {}
    for part, content in zip(PARTS, held, strict=True):
        rows = [json.loads(line) for line in content.splitlines()]
        talks = [_clean([*row["context"], row["response"]]) for row in rows]
        found = [Reply(turns, len(turns) - 1) for turns in talks]
        left = [" ".join(text for _, text in reply.turns[: reply.at] if text) for reply in found]
        kept = [n for n, reply in enumerate(found) if left[n] and reply.pair[1]]
        parts.append(([left[n] for n in kept], [found[n].pair[1] for n in kept]))
        talk[part] = [found[n] for n in kept]
    return replace(_shipped(parts), talk=talk)


def chat(held: Sequence[bytes]) -> Pairs:
    """Each turn with the one that follows it; a conversation stays in one part."""
    talks, keys = [], []
    for line in held[0].splitlines():
        talk = json.loads(line)
        turns = _clean(talk["turns"])
        if find_replies(turns):
            talks.append(turns)
            keys.append(talk["id"])
    split = "by hash of the conversation, a fifth is test and a tenth of the rest is valid"
    return Pairs.divide_talk(talks, "", keys=keys, split=split)


def _clean(turns: Iterable[Sequence[object]]) -> tuple[Turn, ...]:
    return tuple([(str(speaker), " ".join(str(text).split())) for speaker, text in turns])


def _shipped(parts: Sequence[tuple[list[str], list[str]]]) -> Pairs:
    return Pairs(
        name="",
        parts=dict(zip(PARTS, parts, strict=True)),
        digest="",
        split="train, valid and test are those that ship with it",
        published=True,
    )
