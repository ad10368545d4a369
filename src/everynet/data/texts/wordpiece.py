"""WordPiece: each word is cut into the longest pieces of a published vocabulary, from the left.

A text is cleaned and parted: control characters are dropped; a word ends at a space, and a
punctuation mark or a Chinese character is a word of its own. For an uncased vocabulary letters are
lower-cased and lose their accents. Then

    word = p_1 + p_2 + .. + p_k        p_n: the longest piece that the rest of the word begins with

where a piece that continues a word is written with ## before it: playing = play ##ing. A word whose
rest begins with no piece is unknown as a whole, and so is one of more than 100 characters.

Wu et al. (2016), "Google's neural machine translation system", arXiv:1609.08144, section 4.1; the
longest match and the cleaning after Devlin et al. (2019), "BERT: pre-training of deep bidirectional
transformers for language understanding", arXiv:1810.04805, and the code published with it.
Characters are lower-cased one by one, so that a Greek sigma at the end of a word is like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from unicodedata import category, normalize

CONTINUED = "##"
LONGEST = 100
"""Characters of the longest word that is cut into pieces."""
_WORD = re.compile("[^ ]+")
_IDEOGRAPHS = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2CEAF), (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)  # fmt: skip


class WordPieces:
    """Cuts text by a vocabulary; a word is cut once and remembered."""

    def __init__(self, index: Mapping[str, int], unknown: int, *, lower: bool) -> None:
        self._index, self._unknown, self._lower = index, unknown, lower
        self._parted: dict[int, str] = {}
        self._cut: dict[str, tuple[str, ...]] = {}

    def words(self, text: str) -> Iterator[str]:
        """The words of a text, cleaned."""
        for code in {*map(ord, {*text})} - self._parted.keys():
            self._parted[code] = part(chr(code), lower=self._lower)
        return (match.group() for match in _WORD.finditer(text.translate(self._parted)))

    def pieces(self, word: str) -> tuple[str, ...]:
        """The pieces of a word; none where it is unknown."""
        if word not in self._cut:
            self._cut[word] = self._longest_first(word) if len(word) <= LONGEST else ()
        return self._cut[word]

    def _longest_first(self, word: str) -> tuple[str, ...]:
        found: list[str] = []
        start = 0
        while start < len(word):
            before = CONTINUED if start else ""
            tried = (before + word[start:end] for end in range(len(word), start, -1))
            piece = next((piece for piece in tried if piece in self._index), None)
            if piece is None:
                return ()
            found.append(piece)
            start += len(piece) - len(before)
        return (*found,)

    def cut(self, text: str) -> list[str]:
        """The pieces of a text; a word that is unknown stays whole."""
        return [piece for word in self.words(text) for piece in self.pieces(word) or (word,)]

    def numbers(self, text: str) -> Iterator[int]:
        """The numbers of the pieces of a text."""
        for word in self.words(text):
            pieces = self.pieces(word)
            yield from map(self._index.__getitem__, pieces) if pieces else (self._unknown,)


def part(character: str, *, lower: bool) -> str:
    """What a character becomes: nothing, a space, itself, or itself with spaces around it."""
    sort = category(character)
    if character in "\t\n\r" or sort in ("Zs", "Zl", "Zp"):
        return " "
    if character == "\N{REPLACEMENT CHARACTER}" or sort in ("Cc", "Cf", "Co", "Cs"):
        return ""
    letters = character
    if lower:
        bare = (letter for letter in normalize("NFD", character) if category(letter) != "Mn")
        letters = "".join(letter.lower() for letter in bare)
    letters = "".join(f" {letter} " if _is_punctuation(letter) else letter for letter in letters)
    ideograph = any(first <= ord(character) <= last for first, last in _IDEOGRAPHS)
    return f" {letters} " if ideograph else letters


def _is_punctuation(letter: str) -> bool:
    """Whether it is punctuation of Unicode, or a sign of ASCII such as $ or +."""
    sign = letter.isascii() and letter.isprintable() and not letter.isalnum() and letter != " "
    return sign or category(letter).startswith("P")


def join_pieces(pieces: Iterable[str]) -> str:
    """The text of pieces: words with a space between them."""
    return " ".join(pieces).replace(f" {CONTINUED}", "")
