"""What a run reads: the name and SHA-256 of every set and file, noted where it is read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from everynet.system.errors import UserError


@dataclass(frozen=True)
class Source:
    """One thing that was read."""

    name: str
    sha256: str


_RECORDS: ContextVar[tuple[dict[Source, None], ...]] = ContextVar("records", default=())


@contextmanager
def recording() -> Iterator[dict[Source, None]]:
    """A record that grows, in order, with all that is read inside; a run in a run fills both."""
    record: dict[Source, None] = {}
    token = _RECORDS.set((*_RECORDS.get(), record))
    try:
        yield record
    finally:
        _RECORDS.reset(token)


def note(name: str, sha256: str) -> None:
    """Say that something was read; nobody listens outside of a run."""
    for record in _RECORDS.get():
        record[Source(name, sha256)] = None


def digest_of(path: Path, setting: str) -> str:
    """The SHA-256 of a file, or of the names and sums of the files of a folder."""
    try:
        if path.is_dir():
            parts = sorted(p for p in path.rglob("*") if p.is_file())
            sums = (f"{p.relative_to(path).as_posix()} {digest_of(p, setting)}\n" for p in parts)
            return hashlib.sha256("".join(sums).encode()).hexdigest()
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(
            f"{setting} ({path}) must be a file that can be read: {error.strerror}"
        ) from error
