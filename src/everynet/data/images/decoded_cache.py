"""Images as whole numbers in one tensor; those of a large folder decoded once into the cache.

    pixels/KEY.u8           all images, one after another
    pixels/KEY.json         their shape and SHA-256, and what was found out about them

KEY is the SHA-256 of all that decides the pixels: the contents of the files and their order, the
shape, how they are read, and with what. Pixels are taken from the cache if they are as they were
when they were written: their size, times and inode, or else every byte of them. In doubt they are
decoded again.
"""

from __future__ import annotations

import errno
import hashlib
import math
import tempfile
import warnings
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import PIL
import torch
from jaxtyping import UInt8
from torch import Tensor

from everynet.data.images.decode import MOST_BYTES
from everynet.data.images.file_cache import (
    REMEDY,
    UNREAD,
    Facts,
    FileCache,
    FileState,
    seal,
    side_by_side,
    unseal,
)
from everynet.data.images.skipped import Tally, reason
from everynet.data.paths import read_bytes
from everynet.system import cache, files
from everynet.system.errors import CannotWrite, UserError
from everynet.system.status import say
from everynet.system.wording import shown

VERSION = 1
"""To be raised when what is made of the same files changes."""
LARGE = 2**30
"""Images that take at least so many bytes are kept in a file."""
TEMPORARY = "free some space, or name a folder with more of it by TMPDIR"
CLOSED = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENOENT),
    errno.ELOOP,
)
"""Why a cache cannot be written to that no room would help."""

Finish: TypeAlias = Callable[[Tensor, Sequence[int]], tuple[Facts, Tensor | None]]
"""What is to be found out of the pixels of these rows, those of files that could be read, and what
each of the 256 levels becomes if it does not stay."""
Read: TypeAlias = Callable[[Path, bytes], tuple[Tensor, Sequence[str]]]
"""Makes pixels of a file, with notes on what was done to them."""
Put: TypeAlias = Callable[[int, Tensor], None]
"""Puts the pixels of an image where they are kept."""


@dataclass(frozen=True)
class Decoded:
    """All images of some files."""

    x: UInt8[Tensor, "images ..."]
    rows: list[int]
    """The places, among all files, of those that could be read."""
    hashes: list[bytes]
    """The SHA-256 of each of these."""
    facts: Facts
    mapped: bool
    """Whether they are in a file."""


def large(images: int, *shapes: Sequence[int]) -> bool:
    """Whether images of these shapes, so many of each, are kept in a file."""
    return images * sum(map(math.prod, shapes)) >= LARGE


def decode_all(
    paths: Sequence[Path],
    shape: tuple[int, ...],
    read: Read,
    seen: FileCache,
    tally: Tally,
    *,
    how: str,
    keep: bool,
    finish: Finish,
) -> Decoded:
    """What `read` makes of every file; `how` names all that decides it besides file and shape.

    With `keep` it is made once and kept in the cache, else in memory. Files that cannot be read are
    left out and put into the tally; those of the cache are known by their contents.
    """
    hashes = seen.digests(paths) if keep else []
    work = _Work(paths, hashes, shape, read, finish, f"decoding {shown(seen.root)}", tally.strict)
    if keep:
        x, facts = _kept(_key(hashes, shape, how), work)
        seen.keep()
    else:
        x = torch.empty(work.whole, dtype=torch.uint8)
        hashes, outcome = _decode(work, x.__setitem__)
        x, facts = _finished(work, outcome, x, x.__setitem__)
    bad = dict(facts.get("bad", ()))
    for row, why in bad.items():
        tally.skip(paths[row], why)
    for row, notes in facts.get("notes", ()):
        tally.note(paths[row], notes)
    rows = _others(len(paths), bad)
    return Decoded(x, rows, [hashes[row] for row in rows], facts, mapped=keep)


def _others(count: int, bad: Container[int]) -> list[int]:
    return [row for row in range(count) if row not in bad]


@dataclass(frozen=True)
class _Work:
    """What there is to decode if the cache does not have it."""

    paths: Sequence[Path]
    hashes: Sequence[bytes]
    """Where they are known."""
    shape: tuple[int, ...]
    read: Read
    finish: Finish
    what: str
    strict: bool
    """Whether a file that cannot be read ends it all."""

    @property
    def whole(self) -> tuple[int, ...]:
        return (len(self.paths), *self.shape)


def _key(hashes: Sequence[bytes], shape: Sequence[int], how: str) -> str:
    by = f"{VERSION} pillow {PIL.__version__} torch {torch.__version__} {how} {tuple(shape)}"
    return hashlib.sha256(by.encode() + b"".join(hashes)).hexdigest()


def _decode(work: _Work, put: Put) -> tuple[list[bytes], Facts]:
    """Decode every file and put it where it goes; the SHA-256 of each, and what went otherwise."""

    def one(row: int) -> tuple[bytes, str, Sequence[str]]:
        path, sha = work.paths[row], UNREAD
        try:
            content = read_bytes(path, MOST_BYTES)
            sha = hashlib.sha256(content).digest()
            pixels, notes = work.read(path, content)
        except UserError as error:
            if work.strict:
                raise
            why, notes = reason(path, error), ()
        else:
            why = ""
            put(row, pixels)
        if work.hashes and sha != work.hashes[row]:
            raise UserError(f"{shown(path)} has changed while it was read; try again")
        return sha, why, notes

    done = side_by_side(one, range(len(work.paths)), work.what if work.hashes else "")
    facts = {
        "bad": [[row, why] for row, (_, why, _) in enumerate(done) if why],
        "notes": [[row, notes] for row, (_, _, notes) in enumerate(done) if notes],
    }
    return [sha for sha, _, _ in done], {name: its for name, its in facts.items() if its}


def _finished(work: _Work, outcome: Facts, x: Tensor, put: Put) -> tuple[Tensor, Facts]:
    """All pixels without a gap where a file could not be read, and what was found out of them."""
    bad = dict(outcome.get("bad", ()))
    rows = _others(len(work.paths), bad)
    if not rows:
        why = f"{shown(work.paths[0])} {bad[0]}"
        raise UserError(f"none of {len(bad):,} images can be read; the first: {why}")
    for to, row in enumerate(rows):
        if to != row:
            put(to, x[row])
    x = x[: len(rows)]
    facts, table = work.finish(x, rows)
    if table is not None:
        for row, image in enumerate(x):
            put(row, table[image.long()])
    return x, facts | outcome


def _kept(key: str, work: _Work) -> tuple[Tensor, Facts]:
    """The pixels of the cache; where they are not there yet one process makes them for all."""
    folder = cache.pixels()
    if found := _found(folder, key, work.whole):
        return found
    try:
        files.make_folder(folder, REMEDY)
        waits = partial(say, f"another process is {work.what}; waiting for it")
        with files.alone(folder / f"{key}.lock", waits):
            return _found(folder, key, work.whole) or _written(folder, key, work, REMEDY)
    except CannotWrite as error:
        cause = error.__cause__
        if not isinstance(cause, OSError) or cause.errno not in CLOSED:
            raise
        say(f"cannot keep decoded images in {folder}: {cause.strerror}; every run decodes them")
    try:
        aside = Path(tempfile.mkdtemp(prefix="everynet-"))
    except OSError as error:
        raise CannotWrite(
            f"cannot make a temporary folder: {error.strerror}; {TEMPORARY}"
        ) from None
    try:
        return _written(aside, key, work, TEMPORARY)
    finally:
        files.remove_folder(aside)  # the pixels stay for as long as they are mapped


def _found(folder: Path, key: str, whole: tuple[int, ...]) -> tuple[Tensor, Facts] | None:
    """Pixels that were kept, if they are beyond doubt."""
    path, beside = folder / f"{key}.u8", folder / f"{key}.json"
    said = unseal(beside)
    if said is None or not _is_ours(said) or (said["key"], said["shape"]) != (key, [*whole]):
        return None
    try:
        mark = FileState.of(path)
        if (*said["mark"],) != mark:  # something touched it: look at every byte
            if mark.size != said["mark"][0]:  # a pipe or a device has none, and might never end
                return None
            if _sha256(path) != said["sha256"]:
                return None
            files.write(beside, seal({**said, "mark": mark}))
        return _mapped(path, whole, said["facts"]), said["facts"]
    except CannotWrite:
        return _mapped(path, whole, said["facts"]), said["facts"]
    except OSError:
        return None


def _is_ours(said: Facts) -> bool:
    """Whether what is said of pixels has the form that we write."""
    match said:
        case {"key": str(), "shape": list(), "mark": [_, *_], "sha256": str(), "facts": dict()}:
            return True
    return False


def _written(folder: Path, key: str, work: _Work, remedy: str) -> tuple[Tensor, Facts]:
    """Decode everything into a file; nothing stays of one that could not be finished."""
    path, beside = folder / f"{key}.u8", folder / f"{key}.json"
    for left in folder.glob(f".everynet-*-{path.name}"):  # of one that was killed: we hold its lock
        left.unlink(missing_ok=True)
    try:
        x, said = _filled(path, work, remedy)
        files.write(beside, seal({**said, "key": key, "mark": FileState.of(path)}))
    except CannotWrite:
        for half in (path, beside):
            if half.is_file():
                half.unlink()
        raise
    return x, said["facts"]


def _filled(path: Path, work: _Work, remedy: str) -> tuple[Tensor, Facts]:
    """All pixels, in a file, and what is to be said of them."""
    each = math.prod(work.shape)
    with files.writing(path, len(work.paths) * each, remedy) as room:

        def put(row: int, pixels: Tensor) -> None:
            room.put(row * each, pixels.contiguous().numpy().data.cast("B"))

        _, outcome = _decode(work, put)
        x, facts = _finished(work, outcome, _mapped(room.path, work.whole), put)
        return x, {"shape": work.whole, "sha256": _sha256(room.path), "facts": facts}


def _mapped(
    path: Path, whole: tuple[int, ...], facts: Facts | None = None
) -> UInt8[Tensor, "images ..."]:
    """Pixels that the system reads when they are looked at, and drops when it needs the room."""
    whole = (whole[0] - len((facts or {}).get("bad", ())), *whole[1:])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch minds that nobody may write to them
        return torch.from_numpy(np.memmap(path, np.uint8, "r", shape=whole))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
