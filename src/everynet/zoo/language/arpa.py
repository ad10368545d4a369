r"""ARPA files: the text form of n-gram models that KenLM, SRILM and most recognisers read.

    \data\
    ngram 1=4
    ...
    \1-grams:
    -0.91    dog    -0.30        log10 probability, words, log10 back-off weight (0 if left out)
    ...
    \end\

-99 stands for a probability of 0, as of the start symbol `<s>`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from everynet.data.texts.lines import read as read_text
from everynet.kernels.ngrams import Grams, Ints, Reals, prefix_starts
from everynet.system import files
from everynet.system.errors import UserError
from everynet.system.wording import shown

START, END, UNKNOWN = "<s>", "</s>", "<unk>"
NEVER = -99.0
"""The logarithm of 0."""
MOST = 20
"""Words of the longest n-gram that is read."""
_COUNT = re.compile(r"ngram (\d{1,2}) ?= ?(\d{1,12})")


def write_arpa(path: Path, words: Sequence[str], grams: Sequence[Grams]) -> None:
    """Write a model whose word n is `words[n]`."""
    bad = next((word for word in words if len(word.split()) != 1), None)
    if bad is not None:
        raise UserError(
            f"a word ({bad!r}) must be without spaces: they part the words of ARPA files"
        )
    lines = ["\\data\\", *(f"ngram {n}={len(g.words)}" for n, g in enumerate(grams, 1))]
    texts = [""]
    for n, gram in enumerate(grams, 1):
        lines += ["", f"\\{n}-grams:"]
        prefix = np.repeat(np.arange(len(gram.starts) - 1), np.diff(gram.starts)).tolist()
        last = gram.words.tolist()
        texts = [f"{texts[p]} {words[w]}" for p, w in zip(prefix, last, strict=True)]
        first = [_format_log10(value) for value in gram.logp.tolist()]
        if n < len(grams):
            ends = [_format_log10(value) for value in gram.backoff.tolist()]
            every = zip(first, texts, ends, strict=True)
            lines += [f"{p}\t{gram_[1:]}\t{weight}" for p, gram_, weight in every]
        else:
            lines += [f"{p}\t{gram_[1:]}" for p, gram_ in zip(first, texts, strict=True)]
    files.write(path, ("\n".join([*lines, "", "\\end\\"]) + "\n").encode())


def _format_log10(value: float) -> str:
    return f"{max(value / math.log(10), NEVER):.12g}"


@dataclass
class _Lines:
    """The lines of a file that are not empty, with their numbers."""

    path: Path
    lines: list[str]
    at: int = 0

    def __iter__(self) -> Iterator[str]:
        while self.at < len(self.lines):
            line = self.lines[self.at].strip()
            self.at += 1
            if line:
                yield line

    def refuse(self, why: str) -> NoReturn:
        raise UserError(f"{shown(self.path)}: line {self.at} {why}; make the ARPA file anew")


def read_arpa(path: Path) -> tuple[list[str], list[Grams]]:
    """The words of a model, the start symbol last, and its n-grams."""
    lines = _Lines(path, read_text(path).split("\n"))
    counts = _read_header(lines)
    number: dict[str, int] = {}
    grams: list[Grams] = []
    keys: list[Ints] = []
    for n, count in enumerate(counts, 1):
        rows, logp, weights = _read_section(lines, n, count, number, longest=n == len(counts))
        if n == 1:
            start = len(number) - 1
            prefix, last = np.zeros(count, np.int64), rows[:, 0]
        else:
            last = rows[:, -1]
            prefix = rows[:, 0]
            for below, column in zip(keys[1:], rows.T[1:-1], strict=True):
                prefix = _lookup(below, prefix * (start + 1) + column)
            if (prefix < 0).any():
                words = [*number]
                gram = " ".join(words[w] for w in rows[(prefix < 0).argmax()])
                lines.refuse(f"ends the {n}-grams, and {gram!r} begins as no {n - 1}-gram does")
        key = prefix * (start + 1) + last
        by_key = np.argsort(key)
        keys.append(key[by_key])
        if (keys[-1][1:] == keys[-1][:-1]).any():
            lines.refuse(f"ends the {n}-grams, one of which is there twice")
        starts = prefix_starts(prefix, len(grams[-1].words) if grams else 1)
        weights = weights[:0] if n == len(counts) else weights[by_key]
        grams.append(Grams(last[by_key].astype(np.int32), starts, logp[by_key], weights))
    if next(iter(lines), "") != "\\end\\":
        lines.refuse("must be \\end\\, because all n-grams were read")
    return [*number], grams


def _lookup(keys: Ints, wanted: Ints) -> Ints:
    """Indices of keys in a sorted array; -1 where they are missing."""
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, at, -1)


def _read_header(lines: _Lines) -> list[int]:
    for line in lines:
        if line == "\\data\\":
            break
    else:
        lines.refuse("ends the file, and \\data\\ was not found")
    counts: list[int] = []
    for line in lines:
        if line == "\\1-grams:":
            break
        match = _COUNT.fullmatch(line)
        if match is None or int(match[1]) != len(counts) + 1 or int(match[2]) < 1:
            lines.refuse(f"({shown(line, 40)}) must be 'ngram {len(counts) + 1}=' and a number")
        counts.append(int(match[2]))
    else:
        lines.refuse("ends the file, and \\1-grams: was not found")
    if not 1 <= len(counts) <= MOST:
        lines.refuse(f"must come after 1 to {MOST} lines like 'ngram 1=1000'")
    return counts


def _read_section(
    lines: _Lines, n: int, count: int, number: dict[str, int], *, longest: bool
) -> tuple[Ints, Reals, Reals]:
    """Rows of word numbers, log-probabilities and weights; the words of a file are its 1-grams."""
    if n > 1 and next(iter(lines), "") != f"\\{n}-grams:":
        lines.refuse(f"must be \\{n}-grams:, because all {n - 1}-grams were read")
    if count > len(lines.lines):
        lines.refuse(f"begins {count} {n}-grams, more than the file has lines")
    words: list[str] = []
    logp: list[float] = []
    weights: list[float] = []
    for _ in range(count):
        line = next(iter(lines), "\\end\\")
        if line.startswith("\\"):
            lines.refuse(f"must be one of {count} {n}-grams, but only {len(logp)} are there")
        cells = line.split()
        if not n + 1 <= len(cells) <= n + 2 - longest:
            form = f"a number and {n} words" if longest else f"a number, {n} words and a number"
            lines.refuse(f"must hold {form}")
        try:
            value, weight = float(cells[0]), float(cells[n + 1]) if len(cells) > n + 1 else 0.0
        except ValueError:
            lines.refuse(f"({shown(line, 60)}) must begin and end in numbers")
        if not (value <= 0 and math.isfinite(weight)):
            lines.refuse(f"has the log-probability {cells[0]}, which must be at most 0")
        words += cells[1 : n + 1]
        logp.append(value)
        weights.append(weight)
    if n == 1:
        _index_words(lines, words, number)
    try:
        rows = np.array([number[word] for word in words]).reshape(count, n)
    except KeyError as error:
        lines.refuse(f"ends the {n}-grams, where {error.args[0]!r} is no word of the 1-grams")
    return rows, _from_log10(logp), _from_log10(weights)


def _index_words(lines: _Lines, words: list[str], number: dict[str, int]) -> None:
    """Number the words of the 1-grams, the start symbol last."""
    if len({*words}) < len(words):
        lines.refuse("ends the 1-grams, one of which is there twice")
    if START not in words:
        lines.refuse(f"ends the 1-grams, and {START} is not among them")
    number.update({word: n for n, word in enumerate(w for w in words if w != START)})
    number[START] = len(number)


def _from_log10(tens: list[float]) -> Reals:
    values = np.array(tens)
    return np.where(values <= NEVER, -np.inf, values * math.log(10))
