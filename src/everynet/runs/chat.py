"""A conversation with a trained run: what was said is kept, and each line is answered.

    /again    another answer to the same line
    /forget   what was said so far is forgotten

An empty line, or the end of the input, ends it. The same seed and the same lines give the same
answers, whatever was stopped in between: the n-th turn has random numbers of its own.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from everynet.data.texts.stream import waiting_lines
from everynet.runs.predict import Predictor
from everynet.system.errors import UserError
from everynet.system.seeds import generator
from everynet.system.values import typed, verb_arguments

AGAIN, FORGET = "/again", "/forget"
USER, NETWORK = "user", "network"
KEPT = 64
"""Turns that are remembered: no network reads more."""
MOST = 2**16
"""Characters of a line that are read, the last ones."""


@dataclass
class Chat:
    """The turns so far, and whoever answers."""

    predictor: Predictor
    settings: Mapping[str, Any]
    turns: list[tuple[str, str]] = field(default_factory=list)
    seed: int = 0
    _number: int = 0
    """Of the turn."""
    _times: int = 0
    """How often it was answered again."""

    def __post_init__(self) -> None:
        recipe, left = self.predictor.recipe, dict(self.settings)
        start = getattr(recipe, "chat", None)
        if start is None:
            raise UserError(
                f"{self.predictor.folder} (a run of {recipe.name}) must be one that talks, because "
                "lines are answered; name a run of dual-encoder, conversation or gpt"
            )
        self.seed = typed("seed", left.pop("seed", recipe.seed), int)
        if not 0 <= self.seed < 2**63:
            raise UserError(f"seed ({self.seed}) must be at least 0 and below 2^63")
        given = verb_arguments(start, left)
        with self.predictor.computing():
            self._answer = start(self.predictor.model, self.predictor.spec, **given)

    def answer(self, line: str) -> dict[str, Any]:
        """The answer to a line, or to `/again` and `/forget`; a turn that fails is forgotten."""
        text = line.strip()
        if text == FORGET:
            self.turns.clear()
            return {"note": "what was said is forgotten"}
        if text == AGAIN:
            if len(self.turns) < 2:
                return {"note": "nothing was said yet that could be answered again"}
            return self._go_on(self.turns[:-1], self._number, self._times + 1)
        return self._go_on([*self.turns, (USER, text)], self._number + 1, 0)

    def _go_on(self, turns: list[tuple[str, str]], number: int, times: int) -> dict[str, Any]:
        """Answer the last of these turns; only an answer that is whole changes anything."""
        random = generator(self.seed, number, times)
        with self.predictor.computing():
            found: dict[str, Any] = self._answer(turns[-KEPT:], random, times)
        self.turns = [*turns, (NETWORK, found["answer"])][-KEPT:]
        self._number, self._times = number, times
        return {"turn": number, "text": turns[-1][1], **found}


def read_turns(stream: io.BufferedIOBase) -> Iterator[str]:
    """The lines of a stream as they come, without control characters, until an empty one."""
    for lines in waiting_lines(stream, 1):
        for number, content in lines:
            text = content[-4 * MOST :].decode("utf-8-sig" if number == 1 else "utf-8", "replace")
            if not text.strip():
                return
            clean = "".join(c if c.isprintable() else " " for c in text[-MOST:])
            yield " ".join(clean.split())
