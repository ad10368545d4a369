"""Tokens: how text becomes whole numbers and back, by characters or by words.

What was learned of a text (its vocabulary) is plain JSON in `spec["tokens"]`, so that whatever is
asked later is cut exactly as the training text was. A token that training did not hold is
`<unknown>`. Words are what stands between spaces; the end of a line is a token of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from everynet.types import Spec, UserError, nearest

PAD, UNKNOWN, START, END = "<pad>", "<unknown>", "<start>", "<end>"
SENTENCE = (PAD, UNKNOWN, START, END)
"""The first tokens of a vocabulary of sentences: filler, what is new, beginning and end."""
STREAM = (UNKNOWN,)
"""The first token of a vocabulary of one long text."""
KINDS = ("characters", "words")

_WORDS = re.compile(r"\n|[^\s]+")
_CHUNK = 1 << 22
"""So many characters of a text are turned into numbers at once."""
_CODES = 0x110000  # of Unicode


def check_kind(kind: str) -> None:
    """Refuse a way to cut text that we do not have."""
    if kind not in KINDS:
        raise UserError(f"tokens ({kind}) must be one we have{nearest(kind, KINDS)}")


def each(text: str, kind: str) -> Iterator[str]:
    """The tokens of a text, one after another."""
    return iter(text) if kind == "characters" else (m.group() for m in _WORDS.finditer(text))


def cut(text: str, kind: str) -> list[str]:
    """A text as its tokens."""
    return list(each(text, kind))


def places(text: str, kind: str) -> Sequence[int]:
    """Where in a text its tokens begin."""
    if kind == "characters":
        return range(len(text))
    return [match.start() for match in _WORDS.finditer(text)]


@dataclass(frozen=True)
class Tokens:
    """A vocabulary: token n is `vocabulary[n]`."""

    kind: str
    vocabulary: tuple[str, ...]
    index: dict[str, int] = field(init=False, repr=False, compare=False)
    """The number of each token, those that no text holds among them (`<pad>`)."""
    _said: dict[str, int] = field(init=False, repr=False, compare=False)
    """The number of each token that a text can hold."""

    def __post_init__(self) -> None:
        check_kind(self.kind)
        index = {token: number for number, token in enumerate(self.vocabulary)}
        object.__setattr__(self, "index", index)
        said = {token: n for token, n in index.items() if token not in self.fillers}
        object.__setattr__(self, "_said", said)

    @staticmethod
    def learned(
        texts: Iterable[str], kind: str, special: Sequence[str] = STREAM, most: int = 0
    ) -> Tokens:
        """The tokens of some texts, the commonest first; `most` in all, where that is set."""
        check_kind(kind)
        if most and most <= len(special):
            raise UserError(
                f"vocabulary ({most}) must be 0, which keeps every token, or more than the "
                f"{len(special)} that stand for no word"
            )
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(each(text, kind))
        common = sorted(counts, key=lambda token: (-counts[token], token))
        kept = [token for token in common if token not in special]
        return Tokens(kind, (*special, *(kept[: most - len(special)] if most else kept)))

    @staticmethod
    def of(spec: Spec, name: str = "tokens") -> Tokens:
        """The tokens that a description of data holds."""
        return Tokens(spec[name]["kind"], tuple(spec[name]["vocabulary"]))

    @property
    def spec(self) -> Spec:
        """Itself as plain JSON."""
        return {"kind": self.kind, "vocabulary": list(self.vocabulary)}

    @property
    def fillers(self) -> frozenset[str]:
        """The tokens of a vocabulary of sentences that no text can hold."""
        sentence = self.vocabulary[: len(SENTENCE)] == SENTENCE
        return frozenset((PAD, START, END)) if sentence else frozenset()

    def __len__(self) -> int:
        return len(self.vocabulary)

    def cut(self, text: str) -> list[str]:
        """A text as its tokens, known or not."""
        return cut(text, self.kind)

    def encode(self, text: str) -> list[int]:
        """The numbers of a text's tokens; a text that spells out a filler holds an unknown word."""
        return list(self._numbers(text))

    def _numbers(self, text: str) -> Iterator[int]:
        unknown = self.index[UNKNOWN]
        return (self._said.get(token, unknown) for token in each(text, self.kind))

    def stream(self, text: str) -> Tensor:
        """What `encode` gives, of a long text: a tensor of the smallest integers that will do."""
        dtype = next(d for d in (np.uint8, np.int16, np.int32) if len(self) - 1 <= np.iinfo(d).max)
        if self.kind == "words":
            return torch.from_numpy(np.fromiter(self._numbers(text), dtype))
        numbers = np.full(_CODES, self.index[UNKNOWN], dtype)
        for token, number in self.index.items():
            if len(token) == 1:
                numbers[ord(token)] = number
        found = np.empty(len(text), dtype)
        for start in range(0, len(text), _CHUNK):
            chunk = text[start : start + _CHUNK].encode("utf-32-le", "surrogatepass")
            found[start : start + _CHUNK] = numbers[np.frombuffer(chunk, "<u4")]
        return torch.from_numpy(found)

    def decode(self, numbers: Iterable[int]) -> str:
        """The text of tokens; what is new becomes a replacement character, fillers are left out."""
        fillers = self.fillers
        tokens = [self.vocabulary[number] for number in numbers]
        tokens = ["\N{REPLACEMENT CHARACTER}" if t == UNKNOWN else t for t in tokens]
        tokens = [token for token in tokens if token not in fillers]
        if self.kind == "characters":
            return "".join(tokens)
        return " ".join(tokens).replace(" \n ", "\n").replace(" \n", "\n").replace("\n ", "\n")
