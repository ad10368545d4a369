"""What a trained network is asked about, file by file: what it holds, or what is wrong with it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everynet.data import Kind
    from everynet.data.dataset import Spec

STARTS = {".npy": b"\x93NUMPY", ".npz": b"PK", ".png": b"\x89PNG", ".jpg": b"\xff\xd8"}
"""How files begin: standard input has no name that would tell what it is."""


@dataclass(frozen=True)
class Piece:
    """What some files hold, with a name for each input, or why one file cannot be read."""

    names: Sequence[str]
    inputs: Any = None  # rows of a tensor, or a list
    error: str = ""


def pieces(words: Sequence[str], spec: Spec, kind: Kind[Any]) -> Iterator[Piece]:
    """What each file holds, in order; folders are gone through, `-` stands for standard input."""
    from everynet.system.errors import UserError

    if words.count("-") > 1:
        raise UserError("- must stand for standard input once: it can be read only once")
    waiting: list[Path] = []
    for word in words:
        found = [] if word == "-" else _files(word, kind)
        for file in found:
            if isinstance(file, Path):
                waiting.append(file)
            if isinstance(file, Piece) or len(waiting) == kind.together:
                yield from _read(waiting, spec, kind)
                waiting = []
            if isinstance(file, Piece):
                yield file
        if word == "-":
            yield from _read(waiting, spec, kind)
            waiting = []
            yield from _standard_input(spec, kind)
    yield from _read(waiting, spec, kind)


def _files(word: str, kind: Kind[Any]) -> Iterator[Path | Piece]:
    """The files that a word stands for."""
    from everynet.data.paths import regular
    from everynet.system.errors import UserError

    try:
        for path in kind.files([word]):
            try:
                if os.path.isdir(path) and path != Path(word):  # it might lead round in a circle
                    regular(path)
                yield path
            except UserError as error:
                yield Piece([str(path)], error=str(error))
    except UserError as error:
        yield Piece([word], error=str(error))


def _read(files: Sequence[Path], spec: Spec, kind: Kind[Any]) -> Iterator[Piece]:
    """What files hold; where one of several is bad they are read in halves."""
    from everynet.system.errors import UserError

    if not files:
        return
    try:
        piece = Piece(*kind.read(files, spec))
    except UserError as error:
        if len(files) == 1:
            yield Piece([str(files[0])], error=str(error))
            return
        half = len(files) // 2
        yield from _read(files[:half], spec, kind)
        yield from _read(files[half:], spec, kind)
    else:
        yield piece


def _standard_input(spec: Spec, kind: Kind[Any]) -> Iterator[Piece]:
    """What comes on standard input, as a file of its own."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        content = sys.stdin.buffer.read()
        found = (end for end, start in STARTS.items() if content.startswith(start))
        path = Path(folder) / f"input{next(found, kind.suffix)}"
        path.write_bytes(content)
        for piece in _read([path], spec, kind):
            names = [name.replace(str(path), "-") for name in piece.names]
            error = piece.error.replace(str(path), "standard input")
            yield Piece(names, piece.inputs, error)


def gathered(found: Iterable[Piece], least: int) -> Iterator[list[Piece]]:
    """Pieces, as many as hold `least` inputs together."""
    waiting: list[Piece] = []
    for piece in found:
        waiting.append(piece)
        if sum(len(each.names) for each in waiting if not each.error) >= least:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def joined(found: Sequence[Piece]) -> Any:  # noqa: ANN401 -- rows of a tensor, or a list
    """The inputs of all pieces that have any, one after another."""
    import torch

    inputs = [piece.inputs for piece in found if not piece.error]
    if len(inputs) == 1 or not inputs:
        return inputs[0] if inputs else []
    if isinstance(inputs[0], torch.Tensor):
        return torch.cat(inputs)
    return [one for each in inputs for one in each]
