"""Every file operation of a run, in one place and given bytes, so that faults can be injected.

A file is written beside its place, flushed to the disk and renamed: a reader sees the old
bytes or the new ones, never half of them. What the system refuses becomes `CannotWrite`.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from everynet.types import CannotWrite, UserError

REMEDY = "free some space or choose another folder with --out"


@contextmanager
def _reported(what: str, path: Path, remedy: str = REMEDY) -> Iterator[None]:
    try:
        yield
    except CannotWrite:
        raise
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise CannotWrite(f"cannot {what} {path}: {reason}; {remedy}") from error


def _put(path: Path, content: bytes, flags: int) -> None:
    """Write all of `content` and wait until the disk has it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o644)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _settle(folder: Path) -> None:
    """Make a rename inside `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write(path: Path, content: bytes) -> None:
    """Put `content` at `path`, whole or not at all."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with _reported("write", path):
        try:
            _put(beside, content, os.O_EXCL)
            os.rename(beside, path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        _settle(path.parent)


@dataclass(frozen=True)
class Room:
    """A large file on its way: where it is for now, and how a piece is put at a place in it."""

    path: Path
    put: Callable[[int, bytes | memoryview], None]


@contextmanager
def writing(path: Path, size: int, remedy: str = REMEDY) -> Iterator[Room]:
    """A file of `size` bytes, filled in any order, that is at `path` afterwards, or not at all.

    The room is taken before anything is written: a disk that is too small shows at once.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    reported = partial(_reported, f"write {size:,} bytes to", path, remedy)
    with reported():
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)

    def put(at: int, content: bytes | memoryview) -> None:
        rest = memoryview(content)
        with reported():
            while rest:
                written = os.pwrite(descriptor, rest, at)
                rest, at = rest[written:], at + written

    try:
        with reported():
            _reserve(descriptor, size)
        yield Room(beside, put)
        with reported():
            os.fsync(descriptor)
            os.rename(beside, path)
            _settle(path.parent)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def _reserve(descriptor: int, size: int) -> None:
    """Take room on the disk, where the system can."""
    try:
        os.posix_fallocate(descriptor, 0, size)
    except (AttributeError, OSError) as error:
        unknown = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
        if isinstance(error, OSError) and error.errno not in unknown:
            raise


def write_folder(path: Path, contents: Mapping[str, bytes]) -> None:
    """Put a folder of files at `path`, whole or not at all."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with _reported("write", path):
        try:
            os.mkdir(beside)
            for name, content in contents.items():
                _put(beside / name, content, os.O_EXCL)
            _settle(beside)
            os.rename(beside, path)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
        _settle(path.parent)


def append(path: Path, content: bytes) -> None:
    """Add to the end of a file."""
    with _reported("write", path):
        _put(path, content, os.O_APPEND)


def cut(path: Path, length: int) -> None:
    """Keep the first `length` bytes of a file."""
    with _reported("shorten", path):
        os.truncate(path, length)


def make_folder(path: Path, remedy: str = REMEDY) -> None:
    """Make a folder and those above it."""
    with _reported("make", path, remedy):
        for part in (*reversed(path.parents), path):
            if not part.is_dir():
                try:
                    os.mkdir(part)
                except FileExistsError:
                    if not part.is_dir():
                        raise


def write_new_folder(parent: Path, stem: str, contents: Mapping[str, bytes]) -> Path:
    """Put a folder that nobody else has below `parent`: the stem and six hexadecimal digits."""
    make_folder(parent)
    while True:
        path = parent / f"{stem}-{secrets.token_hex(3)}"
        try:
            write_folder(path, contents)
        except CannotWrite as error:
            taken = (errno.EEXIST, errno.ENOTEMPTY)  # another process was first
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in taken:
                continue
            raise
        return path


def rename(path: Path, to: Path) -> None:
    """Give a file or folder another name."""
    with _reported("rename", path):
        os.rename(path, to)


def remove_folder(path: Path) -> None:
    """Delete a folder: first hide it, so that a stop half-way leaves no half a checkpoint."""
    with _reported("delete", path):
        hidden = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        os.rename(path, hidden)
        shutil.rmtree(hidden)


def sweep(folder: Path) -> None:
    """Delete what an interrupted write left behind (names that begin with a dot)."""
    with _reported("clean", folder):
        for left in folder.glob(".*.????????"):
            if left.is_dir():
                shutil.rmtree(left)
            else:
                left.unlink()


def read(path: Path) -> bytes:
    """All bytes of a file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


@contextmanager
def locked(folder: Path, patience: float = 0.0) -> Iterator[None]:
    """Hold a run folder; the system lets go of it when the process ends, however it ends.

    `patience` is how many seconds to wait for another that holds it.
    """
    lock = FileLock(folder / "lock", timeout=patience)
    with _reported("lock", folder):
        try:
            lock.acquire()
        except Timeout:
            raise UserError(f"{folder} is in use by another process; wait until it ends") from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def alone(path: Path, waits: Callable[[], None]) -> Iterator[None]:
    """Hold a lock, once whoever holds it lets go; where the system has none to give, hold none.

    `waits` is called before the wait, if there is one.
    """
    lock = FileLock(path)
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            waits()
            lock.acquire()
    except (OSError, NotImplementedError):
        yield
        return
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # who waits for it will look for itself
        lock.release()
