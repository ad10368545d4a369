"""Pairs of texts that belong together, line by line: a sentence and its translation, say.

    lines.en,lines.de    two files of as many lines, with a comma between their names
    lines.tsv            one file with a tab between the two texts of a line

A batch is (x, x_lengths, y, y_lengths): the tokens of the sources and of the targets, each target
between <start> and <end>, filled up with 0. The vocabularies are those of training, one for each
side or, with `shared_vocabulary`, one learned from both; the inputs of a prediction are cut as the
sources were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from everynet.data.dataset import Data, Spec
from everynet.data.in_memory import Given, Part, texts_of
from everynet.data.kinds import Kind, files_in
from everynet.data.kinds.labelled import sort_of
from everynet.data.report import Report
from everynet.data.samplers import Batch, Buckets, flattened
from everynet.data.samples import describe_like
from everynet.data.split import PARTS
from everynet.data.texts import lines as texts
from everynet.data.texts.given import note_unknown, take_vocabulary
from everynet.data.texts.tokens import NAMES, SENTENCE, Tokens
from everynet.system.errors import UserError
from everynet.system.wording import shown


@dataclass(frozen=True)
class Pairs(texts.TwoTexts):
    """Sources and targets before they are cut into tokens."""

    what: ClassVar[str] = "pair"


class TextPairs(Kind[Pairs]):
    """Two texts that belong together."""

    name: ClassVar[str] = "pairs"
    about: ClassVar[str] = (
        "pairs of texts: two files of as many lines, written a.en,a.de, or a .tsv with two columns"
    )
    suffix: ClassVar[str] = ".txt"
    in_memory: ClassVar[str] = "(sources, targets), two lists of as many texts"
    of_texts: ClassVar[bool] = True

    def matches(self, path: Path) -> bool:
        if len(texts.two(path)) == 2:
            return True
        return path.suffix.lower() == ".tsv" and sort_of(path) != "labelled"

    def find(self, path: Path, *, like: Spec | None = None) -> Pairs:
        if len(both := texts.two(path)) == 2:
            found = list(zip(*texts.aligned(*both), strict=True))
        elif path.suffix.lower() == ".tsv":
            found = texts.columns(path)
        else:
            raise UserError(f"data ({shown(path)}) must be {self.about}")
        return Pairs.divide(found, shown(path), like=like)

    def from_memory(self, given: Given, *, like: Spec | None = None) -> Pairs | None:
        if not isinstance(given.x, list) or not isinstance(given.y, list):
            return None
        both = texts_of(given.x), texts_of(given.y)
        return Pairs.divide(list(zip(*both, strict=True)), given.short, like=like)

    def convert(self, x: Part, spec: Spec) -> list[Tensor]:
        tokens = Tokens.of(spec)
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
        like: Spec | None = None,
    ) -> Data:
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
        splits = {part: _encoded(samples.parts[part], source, target) for part in PARTS}
        sampler = Buckets(("ragged", "ragged"))
        notes = note_unknown(given, splits["train"][0], samples.name) + note_unknown(
            other, splits["train"][2], samples.name, "target tokens"
        )
        return Data(splits, spec, batch_size, seed, samples.digest, sampler, notes=notes)

    def reads_lines(self, spec: Spec) -> bool:
        return True

    def read(self, paths: Sequence[str | Path], spec: Spec) -> tuple[list[str], list[Tensor]]:
        """Each line of a file is one source; of a .tsv the first column of each line."""
        names: list[str] = []
        found: list[Tensor] = []
        for path in files_in(paths):
            its, lines = texts.encode_lines(path, Tokens.of(spec), column=0)
            names, found = names + its, found + lines
        return names, found

    def write(self, made: list[str], spec: Spec, path: Path) -> list[Path]:
        """Texts, one a line."""
        return texts.write_lines(made, path)

    def count(self, samples: Pairs, report: Report) -> None:
        report.task, report.split = "translation", samples.split
        report.counts = {part: len(samples.parts[part][0]) for part in PARTS}
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


KIND = TextPairs()
