"""Pairs of texts that belong together, line by line: a sentence and its translation, say.

    lines.en,lines.de    two files of as many lines, with a comma between their names
    lines.tsv            one file with a tab between the two texts of a line
    talk.jsonl           conversations, {"turns": [[speaker, text], ...]} a line

A batch is (x, x_lengths, y, y_lengths): the tokens of the sources and of the targets, each target
between <start> and <end>, filled up with 0. The vocabularies are those of training, one for each
side or, with `shared_vocabulary`, one learned from both; the inputs of a prediction are cut as the
sources were.

Every turn of a conversation that answers another speaker is a target. Its source is the turn before
it or, with `turns=N`, up to N turns with their speakers (`texts/turns.py`), of which `words=N`
keeps the last words. A conversation is in one part, and no context of a part is word for word in
another: what a test holds is left out of training.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from everynet.data.dataset import Data, Spec
from everynet.data.in_memory import Given, Part, texts_of
from everynet.data.kinds import Kind, files_in
from everynet.data.kinds.labelled import holds_sentences, sort_of
from everynet.data.report import Report
from everynet.data.samplers import Batch, Buckets, flattened
from everynet.data.samples import describe_like
from everynet.data.split import PARTS, all_parts
from everynet.data.texts import lines as texts
from everynet.data.texts.given import note_unknown, take_vocabulary
from everynet.data.texts.records import looks_labelled
from everynet.data.texts.tokens import NAMES, SENTENCE, Tokens
from everynet.data.texts.turns import (
    TALK,
    Reply,
    Turn,
    cut_context,
    encode_turns,
    find_answerer,
    find_replies,
    parse_line,
    read_conversations,
)
from everynet.system.errors import UserError
from everynet.system.wording import shown

BY_OPENING = (
    "by hash of the first turn, a fifth of conversations is test, a tenth of the rest valid"
)


@dataclass(frozen=True)
class Pairs(texts.TwoTexts):
    """Sources and targets before they are cut into tokens."""

    what: ClassVar[str] = "pair"
    talk: Mapping[str, list[Reply]] = field(default_factory=dict)
    """Of conversations the replies of each part, in the order of its pairs."""

    def replies(self, part: str) -> list[Reply]:
        """The replies of a part; other pairs are conversations of two turns."""
        if self.talk:
            return self.talk["test" if self.test_only else part]
        pairs = zip(*self.parts[part], strict=True)
        return [Reply((("0", source), ("1", target)), 1) for source, target in pairs]

    def without_repeats(self, turns: int) -> Pairs:
        """The same, where no context of so many turns is word for word in two parts.

        It stays in test, or else in valid, and is left out of the others.
        """
        if self.test_only:
            return self
        seen, parts, talk = set[tuple[str, ...]](), dict(self.parts), dict[str, list[Reply]]()
        for part in reversed(PARTS):
            replies = self.replies(part)
            said = [tuple([text.lower() for _, text in r.context(turns)]) for r in replies]
            kept = [row for row, context in enumerate(said) if context not in seen]
            if not kept:
                raise UserError(
                    f"{self.name}: the {part} part holds no context that no other part holds word "
                    "for word; add conversations"
                )
            seen.update(said)
            left, right = self.parts[part]
            parts[part] = [left[row] for row in kept], [right[row] for row in kept]
            talk[part] = [replies[row] for row in kept]
        dropped = sum(len(self.parts[part][0]) - len(parts[part][0]) for part in PARTS)
        left_out = f"; {dropped:,} contexts that another part has word for word are left out"
        return replace(
            self, parts=parts, talk=talk, split=self.split + left_out * bool(dropped), places={}
        )

    @classmethod
    def divide_talk(
        cls,
        conversations: Sequence[Sequence[Turn]],
        name: str,
        *,
        keys: Sequence[str] = (),
        split: str = BY_OPENING,
        like: Spec | None = None,
        speaker: str = "",
    ) -> Pairs:
        """Conversations in three parts by a hash of their keys, or else of their first turns.

        The replies are those of `speaker`, or of everybody.
        """
        keys = keys or [turns[0][1] for turns in conversations]
        found = [
            [reply for reply in find_replies(turns) if speaker in ("", reply.speaker)]
            for turns in conversations
        ]
        replies = [reply for each in found for reply in each]
        keys = [key for key, each in zip(keys, found, strict=True) for _ in each]
        made = cls.divide([reply.pair for reply in replies], name, keys, split, like=like)
        if like is not None:
            return replace(made, talk=all_parts(replies))
        chosen = texts.placed(keys, name)
        counted = enumerate(found, 1)
        lines = [f"line {n}, turn {reply.at + 1}" for n, each in counted for reply in each]
        return replace(
            made,
            talk={part: [replies[n] for n in rows] for part, rows in chosen.items()},
            digest=texts.digest(text for talk in conversations for turn in talk for text in turn),
            places={part: [lines[n] for n in rows] for part, rows in chosen.items()},
        )


class TextPairs(Kind[Pairs]):
    """Two texts that belong together."""

    name: ClassVar[str] = "pairs"
    about: ClassVar[str] = (
        "pairs of texts: two files of as many lines, written a.en,a.de, a .tsv with two columns, "
        "or conversations as a .jsonl"
    )
    suffix: ClassVar[str] = ".txt"
    own_parts: ClassVar[bool] = True
    in_memory: ClassVar[str] = "(sources, targets), two lists of as many texts"
    of_texts: ClassVar[bool] = True

    def matches(self, path: Path) -> bool:
        if len(texts.two(path)) == 2:
            return True
        suffix = path.suffix.lower()
        talk = suffix == ".jsonl" and not looks_labelled(path)
        return talk or (suffix == ".tsv" and sort_of(path) in ("pairs", ""))

    def is_sure(self, path: Path) -> bool:
        return path.suffix.lower() == ".tsv" and holds_sentences(path)

    def guess_task(self, path: Path) -> str:
        return "dialogue" if path.suffix.lower() == ".jsonl" else "translation"

    def find(self, path: Path, *, like: Spec | None = None, turns: int = 0) -> Pairs:
        suffix = path.suffix.lower()
        if len(both := texts.two(path)) == 2:
            found = list(zip(*texts.aligned(*both), strict=True))
        elif suffix == ".jsonl":
            return Pairs.divide_talk(read_conversations(path), shown(path), like=like)
        elif suffix == ".tsv":
            found = texts.columns(path)
        else:
            raise UserError(f"data ({shown(path)}) must be {self.about}")
        if turns and like is None:
            keys, split = [source for source, _ in found], BY_OPENING
            return Pairs.divide(found, shown(path), keys, split)
        return Pairs.divide(found, shown(path), like=like)

    def from_memory(self, given: Given, *, like: Spec | None = None) -> Pairs | None:
        if not isinstance(given.x, list) or not isinstance(given.y, list):
            return None
        both = texts_of(given.x), texts_of(given.y)
        samples = list(zip(*both, strict=True))
        return Pairs.divide(samples, given.short, like=like, own=given.own)

    def convert(self, x: Part, spec: Spec) -> list[Tensor]:
        """Tokens of texts; of conversations each text is a context, with tabs between its turns."""
        tokens = Tokens.of(spec)
        if "turns" in spec:
            return [_encode_context(parse_line(text), tokens) for text in texts_of(x)]
        return [torch.tensor(tokens.encode(text)) for text in texts_of(x)]

    def data(
        self,
        samples: Pairs,
        *,
        batch_size: int,
        seed: int = 0,
        tokens: str = "words",
        vocabulary: int = 0,
        lower: bool = False,
        shared_vocabulary: bool = False,
        special: tuple[str, ...] = SENTENCE,
        turns: int = 0,
        words: int = 100,
        replies: int = 10,
        like: Spec | None = None,
    ) -> Data:
        """With `turns`, contexts of so many turns and words; `replies` is how many are kept.

        Those are the commonest replies of training: the description has them, as they were said.
        """
        if turns:
            special, samples = TALK, samples.without_repeats(turns)
        texts.check_vocabulary(vocabulary, special)
        given = other = None
        if like is not None:
            source, target = Tokens.of(like), Tokens.of(like, "target_tokens")
            spec = describe_like(like, samples)
        else:
            take = partial(take_vocabulary, tokens, special, vocabulary, lower=lower)
            learn = partial(Tokens.learned, special=special, most=vocabulary, lower=lower)
            left, right = samples.parts["train"]
            given = take()
            other = given if shared_vocabulary else take(name="target_tokens")
            source = given or learn([*left, *right] if shared_vocabulary else left, tokens)
            target = source if shared_vocabulary else other or learn(right, tokens)
            spec = {
                "name": samples.name,
                "kind": self.name,
                "task": "translation",
                "shape": [],
                "classes": [],
                "split": samples.split,
                "tokens": source.spec,
                "target_tokens": target.spec,
            }
            if turns:
                said = Counter(t.lower() if lower else t for t in right).most_common(replies)
                spec |= {"task": "dialogue", "turns": turns, "words": words}
                spec |= {"replies": [text for text, _ in said]}
        sampler = Buckets(("ragged", "ragged"))
        if turns:
            splits = _encoded_talk(samples, source, target, turns, words)
        else:
            splits = {part: _encoded(samples.parts[part], source, target) for part in PARTS}
        notes = note_unknown(given, splits["train"][0], samples.name) + note_unknown(
            other, splits["train"][2], samples.name, "target tokens"
        )
        return Data(splits, spec, batch_size, seed, samples.digest, sampler, notes=notes)

    def reads_lines(self, spec: Spec) -> bool:
        return True

    def read(self, paths: Sequence[str | Path], spec: Spec) -> tuple[list[str], list[Tensor]]:
        """Each line of a file is one source; of a .tsv the first column of each line.

        A line of a .jsonl is a context with its speakers; the turns of another have tabs between.
        """
        names: list[str] = []
        found: list[Tensor] = []
        for path in files_in(paths):
            if "turns" in spec:
                its, lines = _read_contexts(path, Tokens.of(spec))
            else:
                its, lines = texts.encode_lines(path, Tokens.of(spec), column=0)
            names, found = names + its, found + lines
        return names, found

    def write(self, made: list[str], spec: Spec, path: Path) -> list[Path]:
        """Texts, one a line."""
        return texts.write_lines(made, path)

    def count(self, samples: Pairs, report: Report) -> None:
        report.task, report.split = "translation", samples.split
        report.counts = {part: len(samples.parts[part][0]) for part in PARTS}
        if samples.talk:
            report.task = "dialogue"
            talks = {id(reply.turns) for part in PARTS for reply in samples.talk[part]}
            report.facts["conversations"] = f"{len(talks):,}, each in one part"
        for side, name in enumerate(("source", "target")):
            found = texts.facts({part: samples.parts[part][side] for part in PARTS})
            report.facts |= {f"{name} {fact}": value for fact, value in found.items()}
        pairs = {part: list(zip(*samples.parts[part], strict=True)) for part in PARTS}
        texts.count_equal(report, pairs, samples.places)

    def line(self, spec: Spec) -> str:
        counts = [len(spec[name]["vocabulary"]) for name in ("tokens", "target_tokens")]
        kind = NAMES[spec["tokens"]["kind"]]
        return f"{spec['name']}: pairs of texts, {counts[0]:,} and {counts[1]:,} {kind}"


def _encoded(part: tuple[list[str], list[str]], source: Tokens, target: Tokens) -> Batch:
    x = flattened([source.encode(text) for text in part[0]])
    y = flattened([[target.start, *target.encode(text), target.end] for text in part[1]])
    return (*x, *y)


def _encode_context(turns: Sequence[Turn], tokens: Tokens) -> Tensor:
    return torch.tensor(encode_turns(turns, find_answerer(turns), tokens))


def _read_contexts(path: Path, tokens: Tokens) -> tuple[list[str], list[Tensor]]:
    """The context of each line of a file; of a .tsv that of its first column."""
    suffix, found = path.suffix.lower(), list[Sequence[Turn]]()
    if suffix == ".jsonl":
        found += read_conversations(path, least=1)
    elif suffix == ".tsv":
        found += [(("0", context),) for context, _ in texts.columns(path)]
    else:
        found += map(parse_line, texts.filled(path, texts.cut(texts.read(path))))
    names = [f"{path}:{number}" for number in range(1, len(found) + 1)]
    return names, [_encode_context(turns, tokens) for turns in found]


def _encoded_talk(
    samples: Pairs, source: Tokens, target: Tokens, turns: int, words: int
) -> dict[str, Batch]:
    """Contexts and replies of each part as numbers."""
    encode, splits = cache(source.encode), dict[str, Batch]()
    for part in PARTS:
        replies = samples.replies(part)
        contexts = (
            encode_turns(reply.context(turns), reply.speaker, source, encode) for reply in replies
        )
        x = flattened([cut_context(context, source, turns, words)[0] for context in contexts])
        said = (target.encode(reply.pair[1]) for reply in replies)
        y = flattened([[target.start, *tokens, target.end] for tokens in said])
        splits[part] = (*x, *y)
    return splits


KIND = TextPairs()
