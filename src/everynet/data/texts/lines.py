"""Texts that the user gave, one a line or one a file: read, cut into tokens, written, looked over.

A line ends at a newline (with or without a carriage return before it) and nowhere else, so that two
files stay aligned whatever characters they hold.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median
from typing import ClassVar, Self

import torch
from torch import Tensor

from everynet.data.dataset import Spec
from everynet.data.paths import kind as kind_of_path
from everynet.data.paths import read_bytes
from everynet.data.report import Report
from everynet.data.split import ALL_OF_IT, PARTS, OwnSplit, all_parts, by_hash, rows
from everynet.data.texts.tokens import Tokens
from everynet.system import files
from everynet.system.errors import UserError
from everynet.system.wording import shown

MOST_BYTES = 2**30
MOST_LINE = 2**24
"""Characters of one text among many: its tokens take a hundred times as much memory."""
LOOKED, LOOKED_AT = 1000, 2**22
"""So many lines, of so many characters together, tell what a file holds."""
BY_ROW = "by hash of the row number, a fifth is test and a tenth of the rest is valid"


@dataclass(frozen=True)
class TwoTexts:
    """Samples of two texts each, not yet cut into tokens: a pair, or a text and its class."""

    name: str
    parts: Mapping[str, tuple[list[str], list[str]]]
    """The first and the second texts of "train", "valid" and "test"."""
    digest: str
    split: str
    """One sentence that says how the parts were made."""
    published: bool = False
    """Whether the test part ships with the dataset, so that all the rest may be trained on."""
    places: Mapping[str, list[str]] = field(default_factory=dict)
    """Where the user has each sample."""
    test_only: bool = False
    """Whether a network is only evaluated on them: nothing is learned, so that few are enough."""
    what: ClassVar[str] = "text"
    order: ClassVar[int] = 1
    """1 where files have the first text first, -1 where they have the second first."""

    def __post_init__(self) -> None:
        for part in PARTS:
            if not self.parts[part][0]:
                raise UserError(f"{self.name}: the {part} part holds no {self.what}; add some")

    @classmethod
    def divide(
        cls,
        samples: Sequence[tuple[str, str]],
        name: str,
        keys: Sequence[str] = (),
        split: str = BY_ROW,
        *,
        places: Sequence[str] = (),
        like: Spec | None = None,
        own: OwnSplit | None = None,
    ) -> Self:
        """Samples in three parts: the user's own, or by a hash of their keys or row numbers."""
        places = places or [f"line {n + 1}" for n in range(len(samples))]
        if like:
            return cls(name, all_parts(transpose(samples)), "", ALL_OF_IT, test_only=True)
        if own:
            found, split = own.numbers, own.sentence
        else:
            found = placed(keys or rows(len(samples)), name)
        return cls(
            name,
            {part: transpose([samples[n] for n in chosen]) for part, chosen in found.items()},
            digest(text for sample in samples for text in sample[:: cls.order]),
            split,
            places={part: [places[n] for n in chosen] for part, chosen in found.items()},
        )


def transpose(samples: Sequence[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """The first texts of all samples, and the second ones."""
    return [first for first, _ in samples], [second for _, second in samples]


def read(path: Path, most: int = MOST_BYTES) -> str:
    """All of a file of at most so many bytes, which must be UTF-8."""
    content = read_bytes(path, most)
    if b"\0" in content:
        line = content.count(b"\n", 0, content.index(b"\0")) + 1
        raise UserError(f"{shown(path)} must be text, but line {line} holds a byte of value 0")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{shown(path)}: line {line} is not UTF-8 text; save it as UTF-8") from None


def cut(content: str) -> list[str]:
    """The lines of a text; the last may end in a newline or not."""
    return [line.removesuffix("\r") for line in content.removesuffix("\n").split("\n")]


def check_length(path: Path, number: int, line: str) -> None:
    """Refuse a text whose tokens would take more memory than a text deserves."""
    if len(line) > MOST_LINE:
        raise UserError(
            f"{shown(path)}: line {number} ({len(line):,} characters) must have at most "
            f"{MOST_LINE:,}, because a line is one text; cut it into lines"
        )


def filled(path: Path, lines: list[str]) -> list[str]:
    """The same lines, if none of them is empty or too long."""
    for number, line in enumerate(lines, 1):
        check_length(path, number, line)
        if not line.strip():
            raise UserError(f"{shown(path)}: line {number} is empty; fill it in or leave it out")
    return lines


def two(path: Path) -> list[Path]:
    """The two files that a path with a comma names; one where it is the name of a file itself."""
    both = str(path).split(",")
    alone = len(both) != 2 or not all(both) or os.path.isfile(path)  # which never raises
    return [path] if alone else [Path(part) for part in both]


def aligned(source: Path, target: Path) -> tuple[list[str], list[str]]:
    """The lines of two files, which must be as many."""
    left, right = cut(read(source)), cut(read(target))
    if len(left) != len(right):
        raise UserError(
            f"{shown(target)} ({len(right):,} lines) must have as many lines as {shown(source)} "
            f"({len(left):,}), because line n of one belongs to line n of the other"
        )
    return filled(source, left), filled(target, right)


def columns(path: Path) -> list[tuple[str, str]]:
    """The two columns of a tab-separated file, neither of which may be empty."""
    found = []
    for number, line in enumerate(filled(path, cut(read(path))), 1):
        cells = line.split("\t")
        if len(cells) != 2:
            raise UserError(
                f"{shown(path)}: line {number} has {len(cells)} columns, but must have 2 with one "
                "tab between them"
            )
        for column, cell in enumerate(cells, 1):
            if not cell.strip():
                raise UserError(f"{shown(path)}: line {number}, column {column} is empty")
        found.append((cells[0], cells[1]))
    return found


def beginning(path: Path) -> list[list[str]]:
    """The cells of the first lines of a file; nothing where it cannot be read."""
    try:
        if kind_of_path(path) != "file":
            return []
        with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as stream:
            lines = io.StringIO(stream.read(LOOKED_AT), newline="\n")
            return [line.rstrip("\r\n").split("\t") for line in islice(lines, LOOKED)]
    except (OSError, ValueError):
        return []


def placed(keys: Sequence[str], name: str) -> dict[str, list[int]]:
    """The samples of each part, by a hash of their keys; equal keys stay together."""
    distinct = list(dict.fromkeys(keys))
    if len(distinct) < len(PARTS):
        raise UserError(
            f"{name} must hold at least {len(PARTS)} texts, one for each of train, valid and test, "
            f"but holds {len(distinct)}; add some"
        )
    part_of = dict(zip(distinct, by_hash(distinct), strict=True))
    return {part: [n for n, key in enumerate(keys) if part_of[key] == part] for part in PARTS}


def digest(texts: Iterable[str]) -> str:
    """SHA-256 of texts, and of where each ends."""
    total = hashlib.sha256()
    for one in texts:
        content = one.encode("utf-8", "surrogateescape")
        total.update(f"{len(content)} ".encode() + content)
    return total.hexdigest()


def check_vocabulary(vocabulary: int, special: Sequence[str]) -> None:
    """Refuse a size that no vocabulary of sentences can have."""
    if vocabulary != 0 and vocabulary <= len(special):
        raise UserError(
            f"vocabulary ({vocabulary}) must be 0, which keeps every token, or more than "
            f"{len(special)}, because {', '.join(special)} are in it too"
        )


def encode_lines(path: Path, tokens: Tokens, column: int) -> tuple[list[str], list[Tensor]]:
    """The tokens of each line of a file, named "path:line"; of a .tsv those of one column."""
    if path.suffix.lower() == ".tsv":
        lines = [row[column] for row in columns(path)]
    else:
        lines = filled(path, cut(read(path)))
    names = [f"{path}:{number}" for number in range(1, len(lines) + 1)]
    return names, [torch.tensor(tokens.encode(line)) for line in lines]


def write_lines(made: Iterable[str], path: Path) -> list[Path]:
    """A .txt file with one text a line; a line's end inside a text becomes a space."""
    if path.suffix not in ("", ".txt"):
        raise UserError(f"--out ({shown(path)}) must end in .txt, because text was made")
    content = "".join(text.replace("\n", " ") + "\n" for text in made)
    files.write(path.with_suffix(".txt"), content.encode())
    return [path.with_suffix(".txt")]


# -------------------------------------------------------------------------------------- reports


def facts(texts: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """How long the texts of all parts are, and how many of their words training does not hold."""
    words = {part: [text.split() for text in texts[part]] for part in PARTS}
    lengths = [len(one) for part in PARTS for one in words[part]]
    known = {word for one in words["train"] for word in one}
    found = {"length": f"median {median(lengths):g} words, longest {max(lengths):,}"}
    for part in ("valid", "test"):
        new = [word not in known for one in words[part] for word in one]
        found[f"unknown in {part}"] = f"{sum(new) / len(new):.1%} of the words are not in train"
    return found


def count_equal(
    report: Report, parts: Mapping[str, Sequence[Hashable]], places: Mapping[str, Sequence[str]]
) -> None:
    """Put equal samples that lie in two parts into a report."""
    seen: dict[Hashable, tuple[str, str]] = {}
    for part in PARTS:
        for sample, place in zip(parts[part], places[part], strict=True):
            first, where = seen.setdefault(sample, (part, place))
            if first != part:
                report.duplicates.append((where, place))
