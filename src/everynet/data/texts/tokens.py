"""Tokens: how text becomes whole numbers and back, by characters, words, byte pairs or word pieces.

What was learned of a text (its vocabulary) is plain JSON in `spec["tokens"]`, so that the inputs of
a prediction are cut exactly as the training text was, and other texts with `tokens=RUN`. A token
that is not in the training text is `<unknown>`. Words are what stands between spaces; the end of a
line is a token of its own. Of byte pairs (`bpe.py`) nothing is unknown and every space comes back.

Special tokens (`<unknown>`, `[MASK]`) are chosen by the recipe, and their places give their
meaning: the unknown token alone, or padding, unknown, start, end and whatever a recipe adds. No
text becomes one of them: where somebody writes "[MASK]", it is characters, pieces or, of words, an
unknown word. With `lower` a text is lower-cased before it is cut, whoever wrote it.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

import numpy as np
import torch
from torch import Tensor

from everynet.data.dataset import Spec
from everynet.data.texts import bpe
from everynet.data.texts.wordpiece import WordPieces, join_pieces
from everynet.system.errors import UserError
from everynet.system.wording import shown, unknown

PAD, UNKNOWN, START, END = "<pad>", "<unknown>", "<start>", "<end>"
SENTENCE = (PAD, UNKNOWN, START, END)
"""The first tokens of a vocabulary of sentences: filler, what is new, beginning and end."""
STREAM = (UNKNOWN,)
"""The first token of a vocabulary of one long text."""
KINDS = ("characters", "words", "bpe")
"""The ways to cut text that are learned from it; word pieces come from published files alone."""
NAMES = {
    "characters": "characters", "words": "words", "bpe": "byte-pair tokens",
    "wordpiece": "word pieces",
}  # fmt: skip
"""The tokens of each kind, for prose."""

_WORDS = re.compile(r"\n|[^\s]+")
_CHUNK = 1 << 22
"""So many characters of a text are turned into numbers at once."""
_CODES = 0x110000  # of Unicode
_NEW = "\N{REPLACEMENT CHARACTER}".encode()


def check_kind(kind: str) -> None:
    """Refuse a way to cut text that cannot be learned."""
    if kind == "wordpiece":
        raise UserError(
            "tokens (wordpiece) must be the path of a published vocab.txt, because word pieces are "
            "read and not learned; name one, or do tokens=bpe"
        )
    if kind not in KINDS:
        raise UserError(unknown("tokens", kind, KINDS))


def check_special(special: Sequence[str]) -> None:
    """Refuse special tokens whose places do not say what they are for."""
    if len(special) in (0, 2, 3) or len({*special}) < len(special):
        raise UserError(
            f"special ({shown(', '.join(special), 60)}) must be the unknown token alone, or those "
            "for padding, unknown, start and end and then any others, each once"
        )


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
    special: tuple[str, ...] = ()
    """The tokens that no text can hold; where none is given, SENTENCE or STREAM."""
    lower: bool = False
    """Whether a text is lower-cased before it is cut."""
    index: dict[str, int] = field(init=False, repr=False, compare=False)
    """The number of each token, those that no text holds among them (`<pad>`)."""
    _said: dict[str, int] = field(init=False, repr=False, compare=False)
    """The number of each token that a text can hold."""
    _pairs: bpe.BytePairs = field(init=False, repr=False, compare=False)
    _pieces: WordPieces = field(init=False, repr=False, compare=False)
    _spelt: dict[int, bytes] = field(init=False, repr=False, compare=False)
    """Of byte pairs the bytes of each token."""

    def __post_init__(self) -> None:
        if self.kind not in NAMES:
            raise UserError(unknown("tokens", self.kind, NAMES))
        check_special(special := self.special or default_special(self.vocabulary))
        object.__setattr__(self, "special", special)
        numbered = [*enumerate(self.vocabulary)]
        index = {token: number for number, token in numbered}
        if missing := [token for token in special if token not in index]:
            raise UserError(
                f"special ({shown(missing[0], 60)}) must be in the vocabulary, which is damaged"
            )
        held = {*special}
        index |= {token: number for number, token in reversed(numbered) if token in held}
        object.__setattr__(self, "index", index)
        said = {token: n for token, n in index.items() if token not in held}
        object.__setattr__(self, "_said", said)
        object.__setattr__(self, "_pieces", WordPieces(said, self.unknown, lower=self.lower))
        first = self._first
        pairs = [(a - first, b - first) for a, b in self.merges]
        spelt = bpe.spelt(pairs) if self.kind == "bpe" else []
        text, after = tuple(map(bpe.as_text, spelt)), self.vocabulary[first + len(spelt) :]
        if spelt and (self.vocabulary[first:] != text + after or not {*after} <= held):
            raise UserError("merges must spell the vocabulary that comes with them; it is damaged")
        object.__setattr__(self, "_pairs", bpe.BytePairs(pairs))
        names = {**dict.fromkeys(self.special_numbers, b""), self.unknown: _NEW}
        object.__setattr__(self, "_spelt", dict(enumerate(spelt, first)) | names)

    @staticmethod
    def learned(
        texts: Iterable[str],
        kind: str,
        special: Sequence[str] = STREAM,
        most: int = 0,
        *,
        lower: bool = False,
    ) -> Tokens:
        """The tokens of some texts, the commonest first; `most` in all, where that is set."""
        check_kind(kind)
        check_special(special)
        if most and most <= len(special):
            raise UserError(
                f"vocabulary ({most}) must be 0, which keeps every token, or more than the "
                f"{len(special)} that stand for no word"
            )
        texts = (text.lower() for text in texts) if lower else texts
        if kind == "bpe":
            return replace(_byte_pairs(texts, special, most), lower=lower)
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(each(text, kind))
        common = sorted(counts, key=lambda token: (-counts[token], token))
        kept = [token for token in common if token not in special]
        words = kept[: most - len(special)] if most else kept
        return Tokens(kind, (*special, *words), special=(*special,), lower=lower)

    @staticmethod
    def of(spec: Spec, name: str = "tokens") -> Tokens:
        """The tokens that a description of data holds."""
        held = spec[name]
        merges = tuple((first, second) for first, second in held.get("merges", []))
        special, lower = tuple(held.get("special", ())), held.get("lower", False)
        if not isinstance(lower, bool):
            raise UserError(f"lower ({shown(lower, 60)}) of a vocabulary must be true or false")
        return Tokens(held["kind"], tuple(held["vocabulary"]), merges, special, lower)

    @property
    def spec(self) -> Spec:
        """Itself as plain JSON; what is as it is by default is left out."""
        own = self.special != default_special(self.vocabulary)
        held: Spec = {
            "kind": self.kind,
            "vocabulary": list(self.vocabulary),
            "merges": [list(pair) for pair in self.merges],
            "special": list(self.special) if own else [],
            "lower": self.lower,
        }
        return {name: value for name, value in held.items() if value or name == "vocabulary"}

    @property
    def unknown(self) -> int:
        """The number of the token that stands for whatever is not in the vocabulary."""
        return self.index[self.special[1 if len(self.special) > 1 else 0]]

    @property
    def start(self) -> int:
        """The number of the token before a text."""
        return self.index[self.special[2]]

    @property
    def end(self) -> int:
        """The number of the token after a text."""
        return self.index[self.special[3]]

    @property
    def special_numbers(self) -> list[int]:
        """The numbers of the special tokens."""
        return [self.index[token] for token in self.special]

    @property
    def _first(self) -> int:
        """The first byte of byte pairs: how many special tokens come before it."""
        return sum(1 for _ in takewhile({*self.special}.__contains__, self.vocabulary))

    def __len__(self) -> int:
        return len(self.vocabulary)

    def cut(self, text: str) -> list[str]:
        """A text as its tokens, known or not."""
        if self.kind == "bpe":
            return [self.vocabulary[number] for number in self.encode(text)]
        if self.kind == "wordpiece":
            return self._pieces.cut(text)
        return cut(self._lowered(text), self.kind)

    def encode(self, text: str) -> list[int]:
        """The numbers of a text's tokens, none of which is special but the unknown one."""
        if self.kind == "bpe":
            numbers: list[int] = (self._pairs.encode(self._lowered(text)) + self._first).tolist()
            return numbers
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

    def _lowered(self, text: str) -> str:
        return text.lower() if self.lower else text

    def _numbers(self, text: str) -> Iterator[int]:
        if self.kind == "wordpiece":
            return self._pieces.numbers(text)
        absent = self.unknown
        return (self._said.get(token, absent) for token in each(self._lowered(text), self.kind))

    def stream(self, text: str) -> Tensor:
        """What `encode` gives, of a long text: a tensor of the smallest integers that will do."""
        dtype = next(d for d in (np.uint8, np.int16, np.int32) if len(self) - 1 <= np.iinfo(d).max)
        if self.kind in ("words", "wordpiece"):
            return torch.from_numpy(np.fromiter(self._numbers(text), dtype))
        text = self._lowered(text)
        if self.kind == "bpe":
            return torch.from_numpy((self._pairs.encode(text) + self._first).astype(dtype))
        numbers = np.full(_CODES, self.unknown, dtype)
        for token, number in self._said.items():
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
        names = dict.fromkeys(self.special_numbers, "")
        names[self.unknown] = "\N{REPLACEMENT CHARACTER}"
        tokens = [names.get(number, self.vocabulary[number]) for number in numbers]
        tokens = [token for token in tokens if token]
        if self.kind == "characters":
            return "".join(tokens)
        if self.kind == "wordpiece":
            return join_pieces(tokens)
        return " ".join(tokens).replace(" \n ", "\n").replace(" \n", "\n").replace("\n ", "\n")


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
    return Tokens("bpe", (*special, *words), merges, (*special,))


def default_special(vocabulary: Sequence[str]) -> tuple[str, ...]:
    """The special tokens of a vocabulary that names none of its own."""
    return SENTENCE if (*vocabulary[: len(SENTENCE)],) == SENTENCE else STREAM
