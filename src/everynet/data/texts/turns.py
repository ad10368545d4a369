"""Conversations: turns and who speaks them, as tokens; those of one's own, read and checked.

    <other> is it open ? <turn> <self> yes , until six . <turn> <other> and on sunday ? <turn>

A context is the turns before a reply, the oldest first. Each turn is a token for who speaks, its
words and <turn>: <self> is whoever replies, <other> whoever of the others spoke last, and <third>
everybody else. A context is cut to its last turns, and then to its last words, the oldest first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from everynet.data.texts.lines import check_length, cut, read
from everynet.data.texts.tokens import SENTENCE, Tokens
from everynet.system.errors import UserError
from everynet.system.wording import shown

TURN, SELF, OTHER, THIRD = "<turn>", "<self>", "<other>", "<third>"
TALK = (*SENTENCE, TURN, SELF, OTHER, THIRD)
"""The first tokens of a vocabulary of conversations."""
FORM = '{"turns": [[speaker, text], ...]}'
Turn: TypeAlias = tuple[str, str]
"""Who speaks, and what was said."""


@dataclass(frozen=True)
class Reply:
    """A turn of a conversation that answers what was said before it."""

    turns: Sequence[Turn]
    """The whole conversation, which its replies share."""
    at: int
    """The number of the turn."""

    @property
    def speaker(self) -> str:
        """Who replies."""
        return self.turns[self.at][0]

    @property
    def pair(self) -> tuple[str, str]:
        """What was said just before, and the reply."""
        return self.turns[self.at - 1][1], self.turns[self.at][1]

    def context(self, most: int) -> Sequence[Turn]:
        """Up to `most` turns before the reply."""
        return self.turns[max(0, self.at - most) : self.at]


def find_replies(turns: Sequence[Turn]) -> list[Reply]:
    """The turns of a conversation that answer another speaker."""
    return [Reply(turns, at) for at in range(1, len(turns)) if turns[at][0] != turns[at - 1][0]]


def find_answerer(turns: Sequence[Turn]) -> str:
    """Who speaks next: of those who did not speak last, whoever spoke latest; "" where nobody."""
    last = turns[-1][0]
    return next((speaker for speaker, _ in reversed(turns) if speaker != last), "")


# ------------------------------------------------------------------------------------------ tokens


def encode_turns(
    turns: Sequence[Turn],
    speaker: str,
    tokens: Tokens,
    encode: Callable[[str], list[int]] | None = None,
) -> list[int]:
    """The tokens of what was said to `speaker`, who is to reply.

    `encode` is that of the tokens, which may remember what it was given.
    """
    encode = encode or tokens.encode
    others = [who for who, _ in turns if who != speaker]
    role = {speaker: tokens.index[SELF], **({others[-1]: tokens.index[OTHER]} if others else {})}
    third, end = tokens.index[THIRD], tokens.index[TURN]
    return [n for who, text in turns for n in (role.get(who, third), *encode(text), end)]


def cut_context(
    context: Sequence[int], tokens: Tokens, turns: int, words: int
) -> tuple[list[int], int]:
    """The last turns of a context and of these the last words; and how many words were cut off.

    A turn that keeps a word keeps its speaker; one that was cut to nothing is left out.
    """
    end, kept, left = tokens.index[TURN], list[list[int]](), words
    for number, turn in enumerate(_split_turns(context, end)):
        if number == turns or (number and not left):
            break
        said = turn[1:-1]
        said = said[max(0, len(said) - left) :]
        left -= len(said)
        kept.append([turn[0], *said, end])
    found = [n for turn in reversed(kept) for n in turn]
    markers = {tokens.index[one] for one in (TURN, SELF, OTHER, THIRD)}
    count = sum(n not in markers for n in context)
    return found, count - (words - left)


def _split_turns(context: Sequence[int], end: int) -> Iterator[list[int]]:
    """The turns of a context, the last one first; each ends in `end`."""
    last = len(context)
    while last > 0:
        first = last - 1
        while first > 0 and context[first - 1] != end:
            first -= 1
        yield list(context[first:last])
        last = first


# ---------------------------------------------------------------------------------- the user's own


def read_conversations(path: Path, least: int = 2) -> list[tuple[Turn, ...]]:
    """The conversations of a file of JSON lines, each of at least so many turns.

    With a `least` of 2 they are learned from, and somebody has to answer somebody else.
    """
    found = []
    for number, line in enumerate(cut(read(path)), 1):
        check_length(path, number, line)
        where = f"{shown(path)}: line {number}"
        turns = parse_turns(line, where)
        if len(turns) < least:
            raise UserError(
                f"{where} ({len(turns)} turn) must hold at least {least} turns, because a reply "
                "answers a turn before it; add what was said, or leave the line out"
            )
        if least > 1 and not find_replies(turns):
            raise UserError(
                f"{where} must hold a turn that answers another speaker, because replies are "
                f"learned; all of it is said by {shown(turns[0][0], 40)}"
            )
        found.append(turns)
    return found


def parse_turns(line: str, where: str) -> tuple[Turn, ...]:
    """The turns of a line of JSON."""
    try:
        stored = json.loads(line)
    except (ValueError, RecursionError) as error:
        why = error.msg if isinstance(error, json.JSONDecodeError) else "it is too deep"
        raise UserError(f"{where} must be JSON like {FORM}, but is not: {why}") from None
    turns = stored.get("turns") if isinstance(stored, dict) else None
    if not isinstance(turns, list) or not turns:
        raise UserError(f"{where} must be an object like {FORM}; it has no list of turns")
    return tuple([_parse_turn(turn, f"{where}, turn {n}") for n, turn in enumerate(turns, 1)])


def _parse_turn(turn: object, where: str) -> Turn:
    if not isinstance(turn, list) or len(turn) != 2 or not isinstance(turn[1], str):
        raise UserError(f"{where} ({shown(turn, 60)}) must be [speaker, text], two texts")
    speaker = str(turn[0]).strip() if isinstance(turn[0], str) or type(turn[0]) is int else ""
    if not speaker:
        raise UserError(
            f"{where}: the speaker ({shown(turn[0], 40)}) must have a name or a number, because "
            "who speaks is learned too"
        )
    text = " ".join(turn[1].split())
    if not text:
        raise UserError(f"{where} must have a text that is not empty; leave the turn out")
    return speaker, text


def parse_line(line: str) -> tuple[Turn, ...]:
    """The turns of a line of text, with a tab between two: two speakers take turns."""
    texts = line.split("\t")
    return tuple([(str((len(texts) - n) % 2), text) for n, text in enumerate(texts)])
