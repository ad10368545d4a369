"""One long text as a stream of tokens, from a file in UTF-8.

Where a text ships no parts, test is its last tenth, and of the rest every tenth block of 4,096
tokens is for validation (one stretch would be another author or another play); of a text too short
for ten such blocks, blocks of a hundredth of the rest. The blocks of a part are joined, so that a
network sees a seam every few thousand tokens. The vocabulary is that of the training part.
"""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from everynet.data.dataset import Data, Spec
from everynet.data.in_memory import Given, Part, texts_of
from everynet.data.kinds import Kind, files_in
from everynet.data.paths import kind as kind_of_path
from everynet.data.paths import read_bytes
from everynet.data.report import Report
from everynet.data.samplers import Lanes, Windows
from everynet.data.samples import describe_like
from everynet.data.split import ALL_OF_IT, PARTS, all_parts
from everynet.data.texts import bpe
from everynet.data.texts.given import note_unknown, take_vocabulary
from everynet.data.texts.lines import check_length
from everynet.data.texts.tokens import KINDS, NAMES, SENTENCE, STREAM, Tokens, places
from everynet.system import files
from everynet.system.errors import UserError
from everynet.system.wording import shown

MOST_BYTES = 2 * 10**9
BLOCK = 4096
"""Tokens of a block that is for training or for validation as a whole."""
FEWEST = 200
"""Tokens of the shortest text that is divided."""
AT_ONCE = 16_384
"""Tokens that are evaluated at once, where windows are no lanes."""
SHOWN = 4096
"""The vocabulary of byte pairs of which `data check` tells."""
GAP, BLANK = "___", -1
"""A token to be predicted, and its number in what `read` gives."""
_GAPS = re.compile(rf"(?<!\S){GAP}(?!\w)")
OTHERS = (".csv", ".tsv", ".npy", ".npz")
"""Files that begin like text, or might, and are a table."""


@dataclass(frozen=True)
class LongText:
    """A text before it is cut into tokens: whole, or in the parts that it ships with."""

    name: str
    parts: Mapping[str, str]
    """"train", "valid" and "test"; or "whole", where our own rule divides it."""
    digest: str
    split: str = ""
    """One sentence that says how the parts were made; empty where our rule makes them."""
    published: bool = False
    test_only: bool = False
    """Whether a network is only evaluated on it: nothing is learned."""


class Text(Kind[LongText]):
    """One long text."""

    name: ClassVar[str] = "text"
    about: ClassVar[str] = "a text: one file in UTF-8"
    suffix: ClassVar[str] = ".txt"
    own_parts: ClassVar[bool] = True
    in_memory: ClassVar[str] = "a list of texts, which are joined by line ends"
    of_texts: ClassVar[bool] = True
    skips_empty_lines: ClassVar[bool] = True

    def matches(self, path: Path) -> bool:
        try:
            if kind_of_path(path) != "file" or path.suffix.lower() in OTHERS:
                return False
            if path.suffix.lower() == ".txt":
                return True
            with path.open("rb") as stream:
                start = stream.read(4096)
            codecs.getincrementaldecoder("utf-8")().decode(start)  # the last character may be cut
        except (UserError, OSError, UnicodeDecodeError):
            return False
        return bool(start) and b"\0" not in start

    def find(self, path: Path, *, like: Spec | None = None) -> LongText:
        content = read_bytes(path, MOST_BYTES)
        text = decoded(content, path)
        if like:
            return LongText(str(path), all_parts(text), "", ALL_OF_IT, test_only=True)
        return LongText(str(path), {"whole": text}, hashlib.sha256(content).hexdigest())

    def from_memory(self, given: Given, *, like: Spec | None = None) -> LongText | None:
        if not isinstance(given.x, list) or given.y is not None:
            return None
        text = "\n".join(given.x)
        if like:
            return LongText(given.short, all_parts(text), "", ALL_OF_IT, test_only=True)
        if own := given.own:
            rows = own.numbers.items()
            parts = {part: "\n".join([given.x[n] for n in its]) for part, its in rows}
            return LongText(given.short, parts, given.digest, own.sentence)
        return LongText(given.short, {"whole": text}, given.digest)

    def convert(self, x: Part, spec: Spec) -> list[Tensor]:
        tokens = Tokens.of(spec)
        return [_encoded(tokens, text) for text in texts_of(x)]

    def data(
        self,
        samples: LongText,
        *,
        batch_size: int,
        seed: int = 0,
        tokens: str = "characters",
        vocabulary: int = 0,
        lower: bool = False,
        special: tuple[str, ...] = STREAM,
        sampler: Lanes | Windows = Lanes(64),  # noqa: B008 -- frozen
        like: Spec | None = None,
    ) -> Data:
        """Streams of the smallest integers; `vocabulary` tokens at most, or all where it is 0."""
        given = None if like else take_vocabulary(tokens, special, vocabulary, lower=lower)
        known = Tokens.of(like) if like else given
        parts, split = divided(samples, known.kind if known else tokens)
        if like is not None:
            learned, spec = Tokens.of(like), describe_like(like, samples)
            stream = learned.stream(parts["test"])
            if len(stream) <= sampler.length:
                raise UserError(
                    f"{shown(samples.name)} ({len(stream):,} tokens) must have more than "
                    f"{sampler.length}, a window of what was learned; give more text"
                )
            splits = all_parts((stream,))
        else:
            train = [parts["train"]]
            learned = given or Tokens.learned(train, tokens, special, vocabulary, lower=lower)
            splits = {part: (learned.stream(parts[part]),) for part in PARTS}
            spec = {
                "name": samples.name,
                "kind": self.name,
                "task": "language",
                "shape": [len(learned)],
                "classes": [],
                "tokens": learned.spec,
                "split": split,
            }
        return Data(
            splits,
            spec,
            batch_size,
            seed,
            samples.digest,
            sampler=sampler,
            eval_batch_size=AT_ONCE,
            notes=note_unknown(given, splits["train"][0], shown(samples.name)),
        )

    def reads_lines(self, spec: Spec) -> bool:
        return True

    def read(self, paths: Sequence[str | Path], spec: Spec) -> tuple[list[str], list[Tensor]]:
        """Each line that is not empty, as the numbers of its tokens; BLANK is a word to predict."""
        tokens = Tokens.of(spec)
        names: list[str] = []
        lines: list[Tensor] = []
        for path in files_in(paths):
            text = decoded(read_bytes(path, MOST_BYTES), path)
            found = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
            if not found:
                raise UserError(f"{shown(path)} must hold a line that is not empty")
            for number, line in found:
                check_length(path, number, line)
            names += [f"{path}:{number}" for number, _ in found]
            lines += [_encoded(tokens, line) for _, line in found]
        return names, lines

    def write(self, made: Sequence[str], spec: Spec, path: Path) -> list[Path]:
        """Texts with an empty line between them."""
        if path.suffix not in ("", ".txt"):
            raise UserError(f"--out ({shown(path)}) must end in .txt, because text was made")
        path = path.with_suffix(".txt")
        files.write(path, ("\n\n".join(made) + "\n").encode())
        return [path]

    def count(self, samples: LongText, report: Report) -> None:
        report.task = "language"
        lines = sum(text.count("\n") for text in samples.parts.values())
        report.facts["lines"] = f"{lines:,}"
        for kind in KINDS:
            parts, split = divided(samples, kind)
            tokens = Tokens.learned([parts["train"]], kind, most=SHOWN if kind == "bpe" else 0)
            streams = {part: tokens.stream(parts[part]) for part in PARTS}
            if kind == "characters":
                report.split = split
                report.counts = {part: len(streams[part]) for part in PARTS}
            count = sum(map(len, streams.values()))
            if kind == "bpe":
                size = sum(len(bpe.as_bytes(text)) for text in parts.values())
                report.facts[kind] = (
                    f"{count:,} of {size / max(count, 1):.1f} bytes with vocabulary={len(tokens)}"
                )
                continue
            new = [int((streams[part] == tokens.unknown).sum()) for part in PARTS[1:]]
            report.facts[kind] = (
                f"{count:,}, of which train holds {len(tokens) - 1:,} different ones; unknown are "
                f"{new[0]:,} of valid and {new[1]:,} of test"
            )

    def line(self, spec: Spec) -> str:
        return (
            f"{spec['name']}: text, {spec['shape'][0]:,} different {NAMES[spec['tokens']['kind']]}"
        )


def _encoded(tokens: Tokens, line: str) -> Tensor:
    """The numbers of a line, with BLANK for GAP: a word, or any token where one is a mask."""
    if tokens.kind != "words" and len(tokens.special) > len(SENTENCE):
        # A byte pair holds the space before it: that before a gap belongs to what fills it.
        parts = [tokens.encode(part.removesuffix(" ")) for part in _GAPS.split(line)]
        return torch.tensor([n for part in parts for n in (BLANK, *part)][1:])
    numbers = tokens.stream(line).long()
    if tokens.kind == "words" and GAP not in tokens.index:
        numbers[[n for n, word in enumerate(tokens.cut(line)) if word == GAP]] = BLANK
    return numbers


def decoded(content: bytes, path: Path | str) -> str:
    """Bytes as text, without a byte order mark, every line ended by a line feed alone."""
    body = content.removeprefix(codecs.BOM_UTF8)
    if not body:
        raise UserError(f"{shown(path)} is empty")
    if (at := body.find(b"\0")) >= 0:
        where = _where(content, len(content) - len(body) + at)
        raise UserError(
            f"{shown(path)} must be text, but {where} is NUL, as in a binary file; save it as UTF-8"
        )
    try:
        return body.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        where = _where(content, len(content) - len(body) + error.start)
        raise UserError(
            f"{shown(path)} must be text in UTF-8, but {where} (0x{body[error.start]:02x}) is not; "
            "save it as UTF-8"
        ) from None


def _where(content: bytes, at: int) -> str:
    return f"byte {at:,} in line {content.count(10, 0, at) + 1:,}"


def divided(samples: LongText, kind: str) -> tuple[dict[str, str], str]:
    """The three parts of a text, and how they were made in one sentence."""
    if "whole" not in samples.parts:
        return dict(samples.parts), samples.split
    text = samples.parts["whole"]
    starts = places(text, kind)
    unit = "characters" if kind == "characters" else "words"
    count = len(starts)
    if count < FEWEST:
        raise UserError(
            f"{shown(samples.name)} must hold at least {FEWEST} {unit}, but holds {count}: three "
            "parts are made of it; give more text"
        )
    rest = count - count // 10
    block = BLOCK if rest >= 10 * BLOCK else rest // 100
    ends = [*(starts[at] for at in range(0, rest, block)), starts[rest]]
    blocks = [text[a:b] for a, b in pairwise(ends)]
    seam = " " if kind in ("words", "wordpiece") else ""  # a word and the next one must stay two
    parts = {
        "train": seam.join(part for number, part in enumerate(blocks) if number % 10 != 9),
        "valid": seam.join(blocks[9::10]),
        "test": text[starts[rest] :],
    }
    return parts, f"test is the last tenth, valid every tenth block of {block:,} {unit} of the rest"


KIND = Text()
