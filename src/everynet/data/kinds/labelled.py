"""Texts with one class each: a .tsv with `class<TAB>text` on each line, two files, or a folder.

    reviews.tsv                    good<TAB>a fine film
    reviews.csv, .tsv or .jsonl    texts and classes in named columns (see `records.py`)
    reviews.txt,classes.txt        a text on each line, and its class on the same line of the other
    reviews/good/1.txt             one subfolder for each class; each file is one text

Lines are split by a hash of their number and files as those of images are (see `folder.py`). A
batch is (x, lengths, y): tokens filled up with 0, how many there are, and the class.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from everynet.data.dataset import Data, Spec
from everynet.data.images import folder
from everynet.data.images.skipped import Tally
from everynet.data.in_memory import Given, Part, texts_of
from everynet.data.kinds import Kind, files_in
from everynet.data.paths import kind as kind_of_path
from everynet.data.report import Report
from everynet.data.samplers import Buckets, flattened
from everynet.data.samples import class_numbers, describe_like
from everynet.data.split import PARTS, all_parts, test_part
from everynet.data.texts import lines as texts
from everynet.data.texts import records
from everynet.data.texts.given import note_unknown, take_vocabulary
from everynet.data.texts.tokens import NAMES, SENTENCE, Tokens
from everynet.system.errors import UserError
from everynet.system.wording import shown


@dataclass(frozen=True)
class Labelled(texts.TwoTexts):
    """Texts before they are cut into tokens, and the name of the class of each."""

    order: ClassVar[int] = -1
    each: str = "line"
    """Whether a text is a line or a file."""
    columns: records.Columns | None = None
    """The columns that texts and classes were in, where they have names."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What is said of the files: columns that nobody named."""
    classes: tuple[str, ...] = ()
    """The classes in order; where none is given, that of the alphabet."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.test_only:
            return
        everything = sorted({label for part in PARTS for label in self.parts[part][1]})
        if len(everything) < 2:
            raise UserError(
                f"{self.name}: one class ({shown(everything[0], 60)}) is not enough to learn from; "
                "give at least 2"
            )
        for part in ("valid", "test"):
            new = set(self.parts[part][1]) - set(self.parts["train"][1])
            if new:
                raise UserError(
                    f"{self.name}: class {shown(min(new), 60)} of {part} has no training sample; "
                    "add some"
                )
        object.__setattr__(self, "classes", self.classes or tuple(everything))


class LabelledTexts(Kind[Labelled]):
    """Texts, each with one class."""

    name: ClassVar[str] = "labelled"
    about: ClassVar[str] = (
        "texts with a class each: a .tsv with a class, a tab and a text on each line, a .csv, .tsv "
        "or .jsonl with named columns (text= and target= say which), two files of as many lines, "
        "written texts.txt,classes.txt, or a folder with a subfolder of .txt files for each class"
    )
    suffix: ClassVar[str] = ".txt"
    own_parts: ClassVar[bool] = True
    in_memory: ClassVar[str] = "(texts, classes), two lists of as many"
    of_texts: ClassVar[bool] = True

    def matches(self, path: Path) -> bool:
        if path.suffix.lower() in records.SUFFIXES and records.looks_labelled(path):
            return True
        if path.suffix.lower() == ".tsv":
            return sort_of(path) in ("labelled", "")
        if len(both := texts.two(path)) == 2:
            labels = [cells[0] for cells in texts.beginning(both[1]) if len(cells) == 1]
            return records.few(labels) or (not labels and os.path.isfile(both[1]))
        return _holds_texts(path)

    def matches_like(self, path: Path, spec: Spec) -> bool:
        named = any(name in row for row in records.look(path)[:1] for name in spec.get("named", ()))
        return named or self.matches(path)

    def guess_task(self, path: Path) -> str:
        return "classification"

    def find(
        self, path: Path, *, text: str = "", target: str = "", like: Spec | None = None
    ) -> Labelled:
        learned = records.Columns(*(like or {}).get("named", ("", "")))
        text, target = text or learned.text, target or learned.target
        suffix, folded = path.suffix.lower(), kind_of_path(path) == "folder"
        if suffix in records.SUFFIXES and not folded and records.has_header(path, text, target):
            return _in_columns(path, text, target, like)
        for option, value in (("text", text), ("target", target)):
            if value and not like:
                raise UserError(
                    f"{option} ({shown(value, 60)}) must be left out, because {shown(path)} has no "
                    "columns with names"
                )
        if folded:
            return _folder(path, like)
        if len(both := texts.two(path)) == 2:
            found = list(zip(*texts.aligned(*both), strict=True))
        elif path.suffix.lower() == ".tsv":
            found = [(text, label) for label, text in texts.columns(path)]
        else:
            raise UserError(f"data ({shown(path)}) must be {self.about}")
        rows = [(text, label.strip()) for text, label in found]
        return Labelled.divide(rows, shown(path), like=like)

    def from_memory(self, given: Given, *, like: Spec | None = None) -> Labelled | None:
        y = given.y.tolist() if isinstance(given.y, np.ndarray) else given.y
        if not isinstance(given.x, list) or not isinstance(y, list):
            return None
        labels = [str(label).strip() for label in y]
        samples = list(zip(texts_of(given.x), labels, strict=True))
        return Labelled.divide(samples, given.short, like=like, own=given.own)

    def convert(self, x: Part, spec: Spec) -> list[Tensor]:
        tokens = Tokens.of(spec)
        return [torch.tensor(tokens.encode(text)) for text in texts_of(x)]

    def data(
        self,
        samples: Labelled,
        *,
        batch_size: int,
        seed: int = 0,
        tokens: str = "words",
        vocabulary: int = 0,
        lower: bool = False,
        special: tuple[str, ...] = SENTENCE,
        like: Spec | None = None,
    ) -> Data:
        texts.check_vocabulary(vocabulary, special)
        given = None if like else take_vocabulary(tokens, special, vocabulary, lower=lower)
        if like is not None:
            learned, spec = Tokens.of(like), describe_like(like, samples)
            named = {label: shown(label) for label in samples.parts["test"][1]}
            known = class_numbers(like, samples.name, named.values())
            number = {label: known[name] for label, name in named.items()}
        else:
            train = samples.parts["train"][0]
            learned = given or Tokens.learned(train, tokens, special, vocabulary, lower=lower)
            number = {label: row for row, label in enumerate(samples.classes)}
            spec = {
                "name": samples.name,
                "kind": self.name,
                "task": "classification",
                "shape": [],
                "classes": [shown(label) for label in samples.classes],
                "split": samples.split,
                "tokens": learned.spec,
                "each": samples.each,
            }
            spec |= {"named": [*samples.columns]} if samples.columns else {}
        splits = {}
        for part, (found, labels) in samples.parts.items():
            y = torch.tensor([number[label] for label in labels])
            splits[part] = (*flattened([learned.encode(text) for text in found]), y)
        sampler = Buckets(("ragged", "plain"))
        notes = note_unknown(given, splits["train"][0], samples.name)
        notes = (*notes, *(() if like else samples.facts.values()))
        return Data(splits, spec, batch_size, seed, samples.digest, sampler, notes=notes)

    def reads_lines(self, spec: Spec) -> bool:
        return bool(spec["each"] == "line")

    def read(self, paths: Sequence[str | Path], spec: Spec) -> tuple[list[str], list[Tensor]]:
        """Each line, or each file where files were learned; of a .tsv the second column.

        Where columns have names, the one that texts were learned from.
        """
        names: list[str] = []
        found: list[Tensor] = []
        tokens = Tokens.of(spec)
        for path in files_in(paths):
            if spec["each"] == "file":
                names.append(str(path))
                found.append(torch.tensor(tokens.encode(_whole(path))))
                continue
            column = _column_of(path, spec)
            if column:
                its, rows = records.read_texts(path, column)
                names += its
                found += [torch.tensor(tokens.encode(text)) for text in rows]
                continue
            its, lines = texts.encode_lines(path, tokens, column=1)
            names, found = names + its, found + lines
        return names, found

    def write(self, made: list[str], spec: Spec, path: Path) -> list[Path]:
        """Texts, one a line."""
        return texts.write_lines(made, path)

    def count(self, samples: Labelled, report: Report) -> None:
        report.task, report.split = "classification", samples.split
        report.counts = {part: len(samples.parts[part][0]) for part in PARTS}
        counts = {part: Counter(samples.parts[part][1]) for part in PARTS}
        report.classes = {
            shown(label): {part: counts[part][label] for part in PARTS} for label in samples.classes
        }
        found = {part: samples.parts[part][0] for part in PARTS}
        report.facts |= {**samples.facts, **texts.facts(found)}
        texts.count_equal(report, found, samples.places)

    def line(self, spec: Spec) -> str:
        count, classes = len(spec["tokens"]["vocabulary"]), len(spec["classes"])
        kind = NAMES[spec["tokens"]["kind"]]
        return f"{spec['name']}: texts, {classes} classes, {count:,} {kind}"


def _in_columns(path: Path, text: str, target: str, like: Spec | None) -> Labelled:
    """The samples of a file whose columns have names."""
    rows = records.read_rows(path)
    found = records.find_columns(path, rows, text, target)
    samples = [
        *zip(
            records.column(path, rows, found.text),
            (label.strip() for label in records.column(path, rows, found.target)),
            strict=True,
        )
    ]
    made = Labelled.divide(
        samples, shown(path), places=[f"line {number}" for number, _ in rows], like=like
    )
    named = f"texts are in the column {shown(found.text, 60)}, classes in {shown(found.target, 60)}"
    return replace(made, columns=found, facts={} if text and target else {"columns": named})


def _column_of(path: Path, spec: Spec) -> str:
    """The column of a file whose texts are predicted; empty where its columns have no names."""
    learned = records.Columns(*spec.get("named", ("", "")))
    match path.suffix.lower():
        case ".jsonl":
            return learned.text or "text"
        case ".csv":
            return learned.text
        case ".tsv" if learned.text and records.has_header(path, learned.text):
            return learned.text
    return ""


def sort_of(path: Path) -> str:
    """What the lines of a .tsv look like: "labelled", "pairs", "table", or "" for too few lines.

    Classes are few: at most 50 values before the tab, and fewer than half as many as lines. A table
    has more columns than two.
    """
    lines = texts.beginning(path)
    labels = [cells[0].strip() for cells in lines if len(cells) == 2]
    if len(labels) < len(PARTS):
        return "table" if sum(len(cells) > 2 for cells in lines) >= len(PARTS) else ""
    return "labelled" if records.few(labels) else "pairs"


def holds_sentences(path: Path) -> bool:
    """Whether most lines have two cells with a space in each, and classes are in neither."""
    lines = [cells for cells in texts.beginning(path) if len(cells) == 2]
    spaced = sum(all(" " in cell.strip() for cell in cells) for cells in lines)
    return 2 * spaced > len(lines) and sort_of(path) == "pairs"


def _holds_texts(path: Path) -> bool:
    """Whether a folder has class folders that begin with a .txt file, also below `train`."""
    try:
        if kind_of_path(path) != "folder":
            return False
        inside = [each for each in folder.entries(path) if each.is_dir()]
        train = [each for each in inside if each.name == "train"]
        classes = folder.entries(train[0]) if train else inside
        first = [next(iter(folder.entries(each)), None) for each in classes if each.is_dir()]
    except (UserError, OSError):
        return False
    named = [each.suffix.lower() for each in first if each]
    return bool(named) and all(suffix == ".txt" for suffix in named)


def _whole(path: Path) -> str:
    """The text of a file, which must hold some."""
    found = texts.read(path).replace("\r\n", "\n").strip()
    if not found:
        raise UserError(f"{shown(path)} holds no text; write some or remove it")
    return found


def _folder(path: Path, like: Spec | None) -> Labelled:
    listed, split = folder.listing(path, Tally(path, strict=True))
    own, roots = folder.roots(path)
    if like:
        files, split = test_part(listed, own, shown(path))
        listed = all_parts(files)
    for _, file in (file for part in PARTS for file in listed[part]):
        if file.suffix.lower() != ".txt":
            raise UserError(f"{shown(file)} must end in .txt, because texts are read")
    parts = {
        part: texts.transpose([(_whole(file), label) for label, file in found])
        for part, found in listed.items()
    }
    keys = (
        f"{part}/{folder.named(file, roots.values())}" for part in PARTS for _, file in listed[part]
    )
    everything = (text for part in PARTS for text in parts[part][0])
    return Labelled(
        name=shown(path),
        parts=parts,
        digest="" if like else texts.digest([*keys, *everything]),
        split=split,
        places={part: [shown(file) for _, file in listed[part]] for part in PARTS},
        each="file",
        test_only=like is not None,
    )


KIND = LabelledTexts()
