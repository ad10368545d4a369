"""Tokens: how text becomes whole numbers and back, by characters, by words or by byte pairs.

What was learned of a text (its vocabulary) is plain JSON in `spec["tokens"]`, so that the inputs of
a prediction are cut exactly as the training text was, and other texts with `tokens=RUN`. A token
that is not in the training text is `<unknown>`. Words are what stands between spaces; the end of a
line is a token of its own. Of byte pairs (`bpe.py`) nothing is unknown and every space comes back.
"""

from __future__ import annotations

import os
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from everynet.data.dataset import Spec
from everynet.data.texts import bpe
from everynet.system.errors import UserError
from everynet.system.manifest import read_json
from everynet.system.wording import unknown

PAD, UNKNOWN, START, END = "<pad>", "<unknown>", "<start>", "<end>"
SENTENCE = (PAD, UNKNOWN, START, END)
"""The first tokens of a vocabulary of sentences: filler, what is new, beginning and end."""
STREAM = (UNKNOWN,)
"""The first token of a vocabulary of one long text."""
KINDS = ("characters", "words", "bpe")
NAMES = {"characters": "characters", "words": "words", "bpe": "byte-pair tokens"}
"""The tokens of each kind, for prose."""

_WORDS = re.compile(r"\n|[^\s]+")
_CHUNK = 1 << 22
"""So many characters of a text are turned into numbers at once."""
_CODES = 0x110000  # of Unicode
_NEW = "\N{REPLACEMENT CHARACTER}".encode()


def check_kind(kind: str) -> None:
    """Refuse a way to cut text that we do not have."""
    if kind not in KINDS:
        raise UserError(unknown("tokens", kind, KINDS))


def each(text: str, kind: str) -> Iterator[str]:
    """The tokens of a text, or the pieces that byte pairs stay inside of, one after another."""
    if kind == "bpe":
        return (piece for pieces in bpe.each_piece(text) for piece in pieces)
    return iter(text) if kind == "characters" else (m.group() for m in _WORDS.finditer(text))


def cut(text: str, kind: str) -> list[str]:
    """A text as its tokens, or as its pieces."""
    return list(each(text, kind))


def places(text: str, kind: str) -> Sequence[int]:
    """Where in a text its tokens, or pieces, begin."""
    if kind == "characters":
        return range(len(text))
    pattern = bpe.PIECES if kind == "bpe" else _WORDS
    return array("q", (match.start() for match in pattern.finditer(text)))


@dataclass(frozen=True)
class Tokens:
    """A vocabulary: token n is `vocabulary[n]`."""

    kind: str
    vocabulary: tuple[str, ...]
    """Of byte pairs the bytes as text, those that are no UTF-8 as `surrogateescape` has them."""
    merges: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    """Of byte pairs the two tokens that were joined, from the first token that is no byte on."""
    index: dict[str, int] = field(init=False, repr=False, compare=False)
    """The number of each token, those that no text holds among them (`<pad>`)."""
    _said: dict[str, int] = field(init=False, repr=False, compare=False)
    """The number of each token that a text can hold."""
    _pairs: bpe.BytePairs = field(init=False, repr=False, compare=False)
    _spelt: list[bytes] = field(init=False, repr=False, compare=False)
    """Of byte pairs the bytes of each token."""

    def __post_init__(self) -> None:
        check_kind(self.kind)
        first = self._first
        pairs = [(a - first, b - first) for a, b in self.merges]
        spelt = bpe.spelt(pairs) if self.kind == "bpe" else []
        if self.kind == "bpe" and (*map(bpe.as_text, spelt),) != self.vocabulary[first:]:
            raise UserError("merges must spell the vocabulary that comes with them; it is damaged")
        names = [_NEW if token == UNKNOWN else b"" for token in self.vocabulary[:first]]
        object.__setattr__(self, "_pairs", bpe.BytePairs(pairs))
        object.__setattr__(self, "_spelt", [*names, *spelt])
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
        if kind == "bpe":
            return _byte_pairs(texts, special, most)
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(each(text, kind))
        common = sorted(counts, key=lambda token: (-counts[token], token))
        kept = [token for token in common if token not in special]
        return Tokens(kind, (*special, *(kept[: most - len(special)] if most else kept)))

    @staticmethod
    def of(spec: Spec, name: str = "tokens") -> Tokens:
        """The tokens that a description of data holds."""
        merges = ((first, second) for first, second in spec[name].get("merges", []))
        return Tokens(spec[name]["kind"], tuple(spec[name]["vocabulary"]), tuple(merges))

    @property
    def spec(self) -> Spec:
        """Itself as plain JSON."""
        said: Spec = {"kind": self.kind, "vocabulary": list(self.vocabulary)}
        return said | {"merges": [list(pair) for pair in self.merges]} if self.merges else said

    @property
    def fillers(self) -> frozenset[str]:
        """The tokens of a vocabulary of sentences that no text can hold."""
        sentence = self.vocabulary[: len(SENTENCE)] == SENTENCE
        return frozenset((PAD, START, END)) if sentence else frozenset()

    @property
    def _first(self) -> int:
        """The first byte of byte pairs: how many tokens of no text come before it."""
        return len(self.vocabulary) - 256 - len(self.merges) if self.kind == "bpe" else 0

    def __len__(self) -> int:
        return len(self.vocabulary)

    def cut(self, text: str) -> list[str]:
        """A text as its tokens, known or not."""
        if self.kind == "bpe":
            return [self.vocabulary[number] for number in self.encode(text)]
        return cut(text, self.kind)

    def encode(self, text: str) -> list[int]:
        """The numbers of a text's tokens; a text that spells out a filler holds an unknown word."""
        if self.kind == "bpe":
            return [self._first + number for number in self._pairs.encode(text).tolist()]
        return list(self._numbers(text))

    def encode_bytes(self, content: bytes) -> list[int]:
        """What `encode` gives, of any bytes, be they text or not; only byte pairs can say them."""
        self._only_bytes()
        return self.encode(bpe.as_text(content))

    def decode_bytes(self, numbers: Iterable[int]) -> bytes:
        """The very bytes that `encode_bytes` was given; fillers are left out."""
        self._only_bytes()
        return b"".join(self._spelt[number] for number in numbers)

    def _only_bytes(self) -> None:
        if self.kind != "bpe":
            raise ValueError(f"kind ({self.kind}) must be bpe, because only byte pairs spell bytes")

    def _numbers(self, text: str) -> Iterator[int]:
        absent = self.index[UNKNOWN]
        return (self._said.get(token, absent) for token in each(text, self.kind))

    def stream(self, text: str) -> Tensor:
        """What `encode` gives, of a long text: a tensor of the smallest integers that will do."""
        dtype = next(d for d in (np.uint8, np.int16, np.int32) if len(self) - 1 <= np.iinfo(d).max)
        if self.kind == "bpe":
            return torch.from_numpy((self._pairs.encode(text) + self._first).astype(dtype))
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
        if self.kind == "bpe":
            return self.decode_bytes(numbers).decode("utf-8", "replace")
        fillers = self.fillers
        tokens = [self.vocabulary[number] for number in numbers]
        tokens = ["\N{REPLACEMENT CHARACTER}" if t == UNKNOWN else t for t in tokens]
        tokens = [token for token in tokens if token not in fillers]
        if self.kind == "characters":
            return "".join(tokens)
        return " ".join(tokens).replace(" \n ", "\n").replace(" \n", "\n").replace("\n ", "\n")


def of_run(
    tokens: str, special: Sequence[str] = STREAM, most: int = 0, name: str = "tokens"
) -> Tokens | None:
    """The vocabulary of the run in the folder `tokens`; None of a kind, whose tokens are learned.

    Its fillers become `special`: a text has others than sentences. `name` says where it is in the
    description of the run's data.
    """
    if tokens in KINDS or not (os.sep in tokens or os.path.isdir(tokens)):
        check_kind(tokens)
        return None
    if most:
        raise UserError(
            f"vocabulary ({most}) must be 0, because the one of a run (tokens={tokens}) is taken "
            "as it is; do vocabulary=0"
        )
    spec = read_json(Path(tokens) / "spec.json").get("spec")
    if not isinstance(spec, dict) or name not in spec:
        sort = "pairs of texts" if name != "tokens" else "a text"
        raise UserError(
            f"tokens ({tokens}) must be a run that learned from {sort}, because its vocabulary is "
            f"taken; or one of {', '.join(KINDS)}"
        )
    try:
        if not all(isinstance(word, str) for word in spec[name]["vocabulary"]):
            raise ValueError(tokens)
        found = Tokens.of(spec, name)
        first = sum(1 for _ in takewhile(SENTENCE.__contains__, found.vocabulary))
        more = len(special) - first
        words = (*special, *(t for t in found.vocabulary[first:] if t not in special))
        merges = tuple((a + more, b + more) for a, b in found.merges)
        if UNKNOWN not in found.index or len({*words}) < len(words) - len(merges):
            raise ValueError(tokens)
        same = found.vocabulary[:first] == tuple(special)
        return found if same else Tokens(found.kind, words, merges)
    except (TypeError, KeyError, ValueError, AttributeError):
        raise UserError(
            f"tokens ({tokens}) must be a run whose vocabulary can be read, but spec.json holds "
            "one that is damaged; name another"
        ) from None


def note_unknown(tokens: Tokens | None, train: Tensor, name: str) -> tuple[str, ...]:
    """How much of a training text the vocabulary of a run does not know; all of it is refused."""
    if tokens is None:
        return ()
    fillers = torch.tensor([tokens.index[filler] for filler in tokens.fillers]).long()
    said = train[~torch.isin(train.long(), fillers)]
    new = (said == tokens.index[UNKNOWN]).double().mean().item()
    if new == 1:
        raise UserError(
            f"tokens must be a run on texts like {name}, because its vocabulary knows no token of "
            "them; name another, or learn one with vocabulary=N"
        )
    return (f"the vocabulary is that of another run, which does not know {new:.1%} of the tokens",)


def _byte_pairs(texts: Iterable[str], special: Sequence[str], most: int) -> Tokens:
    """The bytes, and the pairs that are there at least twice, the commonest first."""
    first = len(special)
    if most and most < first + 256:
        raise UserError(
            f"vocabulary ({most}) must be 0 or at least {first + 256} where tokens=bpe, because "
            f"every byte is in it, and so are {', '.join(special)}"
        )
    pairs = bpe.learn(texts, most - first - 256 if most else -1)
    words = [bpe.as_text(token) for token in bpe.spelt(pairs)]
    merges = tuple((first + a, first + b) for a, b in pairs)
    return Tokens("bpe", (*special, *words), merges)
