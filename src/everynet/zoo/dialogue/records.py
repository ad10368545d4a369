"""Records of a dialogue for a network that chooses replies, as flat fields of fixed length.

    context, context_len            what was tokens so far: tokens padded with 0, and how many
    utterance, utterance_len        a reply
    label                           1 where the reply is the true one, 0 where it was drawn
    distractor_0 .. distractor_8    nine drawn replies, each with its _len

A training record has a label and no distractor: half of the replies are true. An evaluation record
has nine distractors and no label: its utterance is the true reply, to be ranked first among ten.
Records are stored as JSON, one a line, and are read back unchanged.

Lowe et al. (2015), "The Ubuntu dialogue corpus", arXiv:1506.08909, sections 3.3 and 5.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from everynet.system.errors import UserError

DISTRACTORS = 9
PADDING = 0
Fields: TypeAlias = dict[str, int | list[int]]
TokenIds: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Record:
    """A context and a reply, by the numbers of their tokens."""

    context: TokenIds
    utterance: TokenIds
    label: int | None = None
    distractors: tuple[TokenIds, ...] = ()

    def __post_init__(self) -> None:
        if (self.label is None) == (len(self.distractors) == 0):
            raise UserError(
                "a record must have a label, for training, or distractors, for evaluation, and "
                "never both"
            )
        if self.label not in (None, 0, 1):
            raise UserError(f"label ({self.label}) must be 0 or 1")
        if self.label is None and len(self.distractors) != DISTRACTORS:
            raise UserError(
                f"distractors ({len(self.distractors)}) must be {DISTRACTORS}, because the true "
                "reply is found among ten"
            )


def make_training_records(
    pairs: Sequence[tuple[TokenIds, TokenIds]], generator: torch.Generator
) -> Iterator[Record]:
    """For each context its true reply and one that was drawn from the other pairs."""
    _require_pairs(pairs, 2)
    for number, (context, reply) in enumerate(pairs):
        yield Record(context, reply, 1)
        (other,) = draw_others(number, len(pairs), 1, generator)
        yield Record(context, pairs[other][1], 0)


def make_evaluation_records(
    pairs: Sequence[tuple[TokenIds, TokenIds]], generator: torch.Generator
) -> Iterator[Record]:
    """For each context its true reply, and nine of other pairs, no pair twice."""
    _require_pairs(pairs, DISTRACTORS + 1)
    for number, (context, reply) in enumerate(pairs):
        drawn = draw_others(number, len(pairs), DISTRACTORS, generator)
        yield Record(context, reply, distractors=tuple(pairs[n][1] for n in drawn))


def flatten_record(record: Record, length: int) -> Fields:
    """The fields of a record, its tokens padded to `length`."""
    fields: Fields = {}
    for name, tokens in _replies(record):
        if len(tokens) > length:
            raise UserError(
                f"{name} ({len(tokens)} tokens) must be at most length ({length}) tokens; cut it "
                "or set a greater length"
            )
        fields[name] = [*tokens, *[PADDING] * (length - len(tokens))]
        fields[f"{name}_len"] = len(tokens)
    return fields if record.label is None else fields | {"label": record.label}


def parse_record(fields: Mapping[str, object]) -> Record:
    """The record of such fields."""
    count = sum(name.startswith("distractor_") for name in fields) // 2
    names = ["context", "utterance", *(f"distractor_{n}" for n in range(count))]
    wanted = {*names, *(f"{name}_len" for name in names)}
    if fields.keys() - {"label"} != wanted:
        strange = sorted(wanted ^ (fields.keys() - {"label"}))
        raise UserError(f"a record must have the fields of one, but {strange[0]} is amiss")
    context, utterance, *others = (_unpad(fields, name) for name in names)
    label = fields.get("label")
    if label is not None and not isinstance(label, int):
        raise UserError(f"label ({label}) must be 0 or 1")
    return Record(context, utterance, label, tuple(others))


def to_json_lines(records: Iterable[Record], length: int) -> str:
    """Records as JSON, one a line."""
    return "".join(json.dumps(flatten_record(record, length)) + "\n" for record in records)


def from_json_lines(text: str) -> list[Record]:
    """The records of such lines."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            fields = json.loads(line)
            if not isinstance(fields, dict):
                raise UserError("a record must be fields with their values")
            found.append(parse_record(fields))
        except (json.JSONDecodeError, UserError) as error:
            raise UserError(f"line {number}: {error}") from None
    return found


def _replies(record: Record) -> list[tuple[str, TokenIds]]:
    others = ((f"distractor_{n}", tokens) for n, tokens in enumerate(record.distractors))
    return [("context", record.context), ("utterance", record.utterance), *others]


def _unpad(fields: Mapping[str, object], name: str) -> TokenIds:
    tokens, count = fields[name], fields[f"{name}_len"]
    if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
        raise UserError(f"{name} must be a list of whole numbers")
    if type(count) is not int or not 0 <= count <= len(tokens) or any(tokens[count:]):
        raise UserError(f"{name}_len ({count}) must be where the padding of {name} begins")
    return tuple(tokens[:count])


def draw_others(number: int, count: int, most: int, generator: torch.Generator) -> list[int]:
    """So many numbers below `count` but not this one, none twice."""
    drawn = dict[int, None]()
    while len(drawn) < min(most, count - 1):
        some = torch.randint(count - 1, (2 * most,), generator=generator)
        drawn.update(dict.fromkeys(some.tolist()))
    return [n + (n >= number) for n in [*drawn][:most]]


def _require_pairs(pairs: Sequence[object], least: int) -> None:
    if len(pairs) < least:
        raise UserError(
            f"pairs ({len(pairs)}) must be at least {least}, because replies are drawn from others"
        )
