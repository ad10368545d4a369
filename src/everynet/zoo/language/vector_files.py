"""Files of word vectors, in the text and the binary format of word2vec.

Both begin with a line of the number of words and the number of dimensions. In the text format a
word and its numbers are a line; in the binary format a word and a space are followed by the numbers
as 32-bit floats, little-endian, and a line feed that some programs omit.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from everynet.data.paths import read_bytes
from everynet.system import files
from everynet.system.errors import UserError
from everynet.system.wording import shown

MOST_BYTES = 8 << 30
LONGEST = 2000
"""Bytes of the longest word of a binary file: more are numbers that were taken for one."""


class Vectors(NamedTuple):
    """Words and a vector for each."""

    words: list[str]
    vectors: Float[Tensor, "words dimensions"]


def save_text(path: str | Path, words: Sequence[str], vectors: Float[Tensor, "words dims"]) -> None:
    """Write the text format; every number is read back exactly."""
    rows = _check_words(words, vectors)
    lines = [f"{len(words)} {rows.shape[1]}"]
    lines += [f"{w} {' '.join(map(str, row))}" for w, row in zip(words, rows, strict=True)]
    files.write(Path(path), ("\n".join(lines) + "\n").encode())


def save_binary(
    path: str | Path, words: Sequence[str], vectors: Float[Tensor, "words dims"]
) -> None:
    """Write the binary format."""
    rows = _check_words(words, vectors)
    parts = [f"{len(words)} {rows.shape[1]}\n".encode()]
    parts += [w.encode() + b" " + row.tobytes() + b"\n" for w, row in zip(words, rows, strict=True)]
    files.write(Path(path), b"".join(parts))


def _check_words(words: Sequence[str], vectors: Tensor) -> NDArray[np.float32]:
    """The numbers as they are written; words that could not be read back are refused."""
    for word in words:
        if not word or any(letter in word for letter in " \n"):
            raise UserError(
                f"word ({shown(repr(word))}) must hold a letter and neither space nor line feed, "
                "because these end a word in the file; join its parts with _"
            )
    return np.ascontiguousarray(vectors.detach().cpu().numpy(), "<f4")


def read_vectors(path: str | Path) -> Vectors:
    """Words and vectors of a file in either format, which its second line shows."""
    path = Path(path)
    content = read_bytes(path, MOST_BYTES)
    head, _, rest = content.partition(b"\n")
    fields = head.split()
    if len(fields) != 2 or not all(field.isdigit() and len(field) < 12 for field in fields):
        raise UserError(
            f"{shown(path)} must begin with the number of words and the number of dimensions, but "
            f"its first line is {shown(repr(head[:40].decode(errors='replace')))}"
        )
    count, size = map(int, fields)
    if count < 1 or size < 1:
        raise UserError(f"{shown(path)} must hold words with numbers, but says {count} of {size}")
    words, vectors = (_parse_text if _is_text(rest) else _parse_binary)(path, rest, count, size)
    if len(set(words)) < len(words):
        twice = next(word for n, word in enumerate(words) if word in set(words[:n]))
        raise UserError(f"{shown(path)} holds the word {shown(twice)} twice; remove one")
    if not np.isfinite(vectors).all():
        bad = words[int(np.flatnonzero(~np.isfinite(vectors).all(1))[0])]
        raise UserError(f"{shown(path)}: numbers must be finite, but {shown(bad)} has NaN or inf")
    return Vectors(words, torch.from_numpy(vectors))


def _is_text(rest: bytes) -> bool:
    """Whether the first line after the head is a word and numbers."""
    try:
        line = rest[: rest.find(b"\n") if b"\n" in rest else None].decode()
        return [float(field) for field in line.split(" ")[1:] if field] != []
    except ValueError:
        return False


def _parse_text(
    path: Path, rest: bytes, count: int, size: int
) -> tuple[list[str], NDArray[np.float32]]:
    lines = rest.removesuffix(b"\n").split(b"\n")
    if len(lines) != count:
        raise UserError(
            f"{shown(path)} must hold {count:,} words, as its first line says, but holds "
            f"{len(lines):,}; it may have been cut short"
        )
    words, vectors = [], np.empty((count, size), np.float32)
    for number, line in enumerate(lines):
        word, *numbers = line.rstrip(b"\r ").split(b" ")
        if len(numbers) != size:
            raise UserError(
                f"{shown(path)}: line {number + 2} has {len(numbers)} numbers, but must have "
                f"{size}, as the first line says"
            )
        try:
            words.append(word.decode())
            vectors[number] = np.array(numbers, np.float64)
        except ValueError:
            raise UserError(
                f"{shown(path)}: line {number + 2} must be a word in UTF-8 and {size} numbers"
            ) from None
    return words, vectors


def _parse_binary(
    path: Path, rest: bytes, count: int, size: int
) -> tuple[list[str], NDArray[np.float32]]:
    if len(rest) < count * (4 * size + 2):
        _raise_truncated(path, len(rest), count, size)
    words, vectors, at = [], np.empty((count, size), np.float32), 0
    for number in range(count):
        end = rest.find(b" ", at, at + LONGEST)
        if end < 0 or len(rest) < end + 1 + 4 * size:
            _raise_truncated(path, len(rest), count, size)
        try:
            words.append(rest[at:end].lstrip(b"\n").decode())
        except UnicodeDecodeError:
            raise UserError(
                f"{shown(path)}: word {number + 1:,} is no text in UTF-8: the vectors may be wider "
                f"or narrower than the {size} numbers that the first line says"
            ) from None
        vectors[number] = np.frombuffer(rest, "<f4", size, end + 1)
        at = end + 1 + 4 * size
    if rest[at:].strip(b"\n"):
        raise UserError(
            f"{shown(path)} must end after {count:,} words of {size} numbers, as its first line "
            f"says, but {len(rest) - at:,} bytes follow: the vectors may be wider"
        )
    return words, vectors


def _raise_truncated(path: Path, held: int, count: int, size: int) -> NoReturn:
    raise UserError(
        f"{shown(path)} must hold {count:,} words of {size} numbers, as its first line says, but "
        f"its {held:,} bytes are too few: it was cut short, or its vectors are narrower"
    )
