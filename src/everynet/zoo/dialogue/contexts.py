"""What networks that talk share: contexts as they were learned, and replies from files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from everynet.data.dataset import Spec
from everynet.data.texts.lines import cut, read
from everynet.data.texts.tokens import Tokens
from everynet.data.texts.turns import TURN, Turn, cut_context, encode_turns, find_answerer
from everynet.system.errors import UserError
from everynet.system.wording import shown

COMMON = 10
"""So many of the commonest replies of training are marked where a network gives them."""
Answer: TypeAlias = Callable[[Sequence[Turn], torch.Generator, int], dict[str, Any]]
"""Answers the last of some turns: with numbers of its own, and for the n-th time."""


def pad_contexts(
    inputs: Sequence[Tensor], spec: Spec, device: torch.device
) -> tuple[Int[Tensor, "batch context"], Int[Tensor, " batch"], list[int]]:
    """Contexts as they were learned, their lengths, and how many words were cut off each."""
    tokens, found, counts = Tokens.of(spec), list[Tensor](), list[int]()
    for one in inputs:
        kept, count = cut_context(one.tolist(), tokens, spec["turns"], spec["words"])
        found.append(torch.tensor(kept, device=device))
        counts.append(count)
    lengths = torch.tensor([len(one) for one in found], device=device)
    return pad_sequence(found, batch_first=True), lengths, counts


def encode_talk(turns: Sequence[Turn], spec: Spec) -> Tensor:
    """The context of whoever is to answer the last of these turns."""
    return torch.tensor(encode_turns(turns, find_answerer(turns), Tokens.of(spec)))


def describe_answer(text: str, spec: Spec, count: int) -> dict[str, Any]:
    """What an answer says beside its text: that it is a common one, that the context was cut."""
    common = text.lower() in {reply.lower() for reply in spec["replies"][:COMMON]}
    return {"common": common} | ({"cut": count} if count else {})


def read_replies(name: str, setting: str) -> list[str]:
    """The replies of a file, one a line, each once."""
    lines = [" ".join(line.split()) for line in cut(read(Path(name)))]
    if not (found := [*dict.fromkeys(filter(None, lines))]):
        raise UserError(f"{setting} ({shown(name)}) must hold a reply a line, but is empty")
    return found


def find_ambiguous(
    x: Int[Tensor, "rows context"],
    lengths: Int[Tensor, " rows"],
    y: Int[Tensor, "rows reply"],
    tokens: Tokens,
) -> Bool[Tensor, " rows"]:
    """Whether the last turn alone has several replies here: what was said before decides."""
    end, lasts = tokens.index[TURN], list[tuple[int, ...]]()
    replies = defaultdict[tuple[int, ...], set[tuple[int, ...]]](set)
    for context, length, reply in zip(x.tolist(), lengths.tolist(), y.tolist(), strict=True):
        words = context[: length - 1]
        first = max((n for n, token in enumerate(words) if token == end), default=-1)
        lasts.append(tuple(words[first + 1 :]))
        replies[lasts[-1]].add(tuple(token for token in reply if token))
    return torch.tensor([len(replies[last]) > 1 for last in lasts])
