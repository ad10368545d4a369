"""Byte-level byte-pair encoding: pieces of words, learned from text, that can spell any bytes.

Every byte is a token. A text is cut into pieces (a word with the space before it, digits, signs,
space), and the commonest pair of neighbouring tokens inside of pieces becomes one token, again and
again; of equally common pairs the one of the lowest tokens. To encode, pairs are joined in the
order in which they were learned. No text is unknown, and what is joined again is what was cut:

    decode(encode(x)) == x        for every string of bytes

Sennrich et al. (2016), "Neural machine translation of rare words with subword units",
arXiv:1508.07909; the bytes, their order and the pieces after Radford et al. (2019), "Language
models are unsupervised multitask learners", section 2.2. Unlike there, ² and Ⅷ count as letters.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from everynet.system.errors import UserError
from everynet.system.wording import shown

Numbers: TypeAlias = NDArray[np.int64]

PIECES = re.compile(
    r"'(?:[stmd]|re|ve|ll)| ?[^\W\d_]+| ?\d+| ?(?:[^\w\s]|_)+|\s+(?!\S)|\s+"  # letters are \w less
)
LEAST = 2
"""A pair that is there but once is not worth a token."""
_CHUNK = 1 << 22
"""So many characters of a text are cut at once, or a few more."""
_SEAM = re.compile(r"(?<=\S) (?=\S)")  # no piece goes over it
_VISIBLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
ORDER = bytes([*_VISIBLE, *(byte for byte in range(256) if byte not in _VISIBLE)])
"""The bytes as GPT-2 counts them: those that Latin-1 can show come first."""
_WRITTEN = {b: chr(b if b in _VISIBLE else 256 + ORDER.index(b) - len(_VISIBLE)) for b in ORDER}
_SYMBOL = np.argsort(np.frombuffer(ORDER, np.uint8)).astype(np.int32)  # of a byte


def each_piece(text: str) -> Iterator[list[str]]:
    """The pieces of a text, so many at a time."""
    start = 0
    while start < len(text):
        seam = _SEAM.search(text, start + _CHUNK)
        end = seam.start() if seam else len(text)
        yield PIECES.findall(text, start, end)
        start = end


def as_bytes(text: str) -> bytes:
    """A text in UTF-8; bytes that are none, kept by `surrogateescape`, come out as they were."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise UserError(
            f"text ({shown(text, 60)}) must be Unicode, but holds half of a surrogate pair; leave "
            "it out"
        ) from None


def as_text(spelt: bytes) -> str:
    """Bytes as a text that `as_bytes` turns back into the very same bytes."""
    return spelt.decode("utf-8", "surrogateescape")


def written(spelt: bytes) -> str:
    """Bytes as GPT-2's files write them: a character each, that can be seen."""
    return "".join(map(_WRITTEN.__getitem__, spelt))


def learn(texts: Iterable[str], most: int) -> list[tuple[int, int]]:
    """The pairs to join, in order: `most` at most, or all that are there twice where it is < 0.

    A number below 256 is a byte in the order of `ORDER`, and 256 + n the n-th pair.
    """
    from everynet.kernels.byte_pairs import learn_merges  # noqa: PLC0415 -- numba

    counts: Counter[str] = Counter()
    for text in texts:
        for pieces in each_piece(text):
            counts.update(pieces)
    symbols, ends = _laid(list(counts))
    held = np.fromiter(counts.values(), np.int64, len(counts))
    most = len(symbols) if most < 0 else min(most, len(symbols))
    found = learn_merges(symbols, ends, held, most, LEAST)
    return [(int(first), int(second)) for first, second in found]


def spelt(pairs: Sequence[tuple[int, int]]) -> list[bytes]:
    """What each symbol stands for: the bytes, then the pairs."""
    known = [ORDER[symbol : symbol + 1] for symbol in range(256)]
    for number, (first, second) in enumerate(pairs):
        if not 0 <= min(first, second) <= max(first, second) < 256 + number:
            raise UserError(
                f"merges: pair {number} ({first}, {second}) must join tokens that come before it; "
                "the vocabulary is damaged"
            )
        known.append(known[first] + known[second])
    return known


class BytePairs:
    """Cuts text by the pairs that were learned; a piece is cut once and remembered."""

    def __init__(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._pairs = np.array(pairs, np.int64).reshape(-1, 2)
        self._table: tuple[Numbers, Numbers] | None = None
        self._number: dict[str, int] = {}
        self._ends = Grown(1)  # the first piece begins at 0
        self._symbols = Grown()

    def encode(self, text: str) -> Numbers:
        """The symbols of a text."""
        return np.concatenate([np.zeros(0, np.int64), *map(self._cut, each_piece(text))])

    def _cut(self, pieces: list[str]) -> Numbers:
        self._learn([piece for piece in set(pieces) if piece not in self._number])
        which = np.fromiter(map(self._number.__getitem__, pieces), np.int64, len(pieces))
        starts, ends = self._ends.values[which], self._ends.values[which + 1]
        # The places of the symbols of all pieces, one after another: each piece counts up from its
        # start.
        lengths = ends - starts
        after = np.cumsum(lengths)
        places = np.arange(after[-1]) + np.repeat(starts - after + lengths, lengths)
        found: Numbers = self._symbols.values[places]
        return found

    def _learn(self, new: list[str]) -> None:
        from everynet.kernels.byte_pairs import apply_merges, merge_table  # noqa: PLC0415 -- numba

        if not new:
            return
        if self._table is None:
            self._table = merge_table(self._pairs)
        symbols, ends = _laid(new)
        ends = apply_merges(symbols, ends, *self._table)
        self._number |= {piece: n for n, piece in enumerate(new, len(self._number))}
        self._ends.add(self._symbols.used + ends)
        self._symbols.add(symbols[: ends[-1]])


class Grown:
    """An array that grows at its end, by so much at a time that it is seldom copied."""

    def __init__(self, used: int = 0) -> None:
        self.values: Numbers = np.zeros(1024, np.int64)
        self.used = used

    def add(self, more: NDArray[np.int32] | Numbers) -> None:
        """Put numbers at the end."""
        after = self.used + len(more)
        if after > len(self.values):
            self.values = np.resize(self.values, 2 * after)
        self.values[self.used : after] = more
        self.used = after


def _laid(pieces: Sequence[str]) -> tuple[NDArray[np.int32], Numbers]:
    """The symbols of the bytes of pieces, one after another, and where each piece ends."""
    content = [as_bytes(piece) for piece in pieces]
    ends = np.cumsum([0, *map(len, content)], dtype=np.int64)[1:]
    return _SYMBOL[np.frombuffer(b"".join(content), np.uint8)], ends
