"""The one door to the files of a run: every read, write, listing and test goes through here.

A run folder may have come from anyone. What lies in it is reached by handles of its folders, one
after the other and never through a link, so that nothing outside of it is read or changed; the
folder itself may be a link, because the user named it. Only plain files of a bounded size are
read. Paths that lie in no run folder (the cache, what --out names) are taken as they are. All of
this is POSIX: handles of folders, `flock`, `O_NOFOLLOW`.

A file is written beside its place, flushed to the disk and renamed: a reader sees the old
bytes or the new ones, never half of them. What the system refuses becomes `CannotWrite`. Contents
are given as bytes, so that faults can be injected here.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from everynet.system.errors import CannotRead, CannotWrite, Missing, UserError

REMEDY = "free some space or choose another folder with --out"
MOST = 64 << 20  # bytes of a file of JSON or of a log
DEEP = 6  # folders from a file up to the run it may belong to: cells/NAME/checkpoints/STEP/FILE
FOLDERS = ("checkpoints", "measured", "pictures")
"""The folders that we make in a run and in a cell."""
OURS = re.compile(r"\.everynet-[0-9a-f]{16}-.+", re.DOTALL)
"""What is on its way to its place: names that nobody else gives."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
FILE = os.O_CLOEXEC | os.O_NONBLOCK
NO_LINK = os.O_NOFOLLOW
KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


# ------------------------------------------------------------------------------------- the door


class _Place(NamedTuple):
    """A name in a folder that is held open, or a whole path where `folder` is None."""

    folder: int | None
    name: str
    run: bool
    """Whether it lies in a run folder, where nothing may be a link."""
    path: Path
    """What to call it in a refusal."""

    def beside(self) -> str:
        """A name that nobody has, for what is on its way here."""
        head, tail = os.path.split(self.name)
        return os.path.join(head, _temporary(tail))

    def status(self) -> os.stat_result:
        """What is there; a link is not followed in a run folder."""
        return os.stat(self.name, dir_fd=self.folder, follow_symlinks=not self.run)


def _temporary(name: str) -> str:
    return f".everynet-{secrets.token_hex(8)}-{name}"


def _root(path: Path) -> Path | None:
    """The run folder that a path lies in, if any: the topmost one that has a recipe.json.

    The lowest would be wrong: `checkpoints` may be a link to a run of the user's.
    """
    folder, root = os.path.dirname(os.path.abspath(path)), ""
    for _ in range(DEEP):  # in plain text, because a thousand runs are listed
        if os.path.lexists(os.path.join(folder, "recipe.json")):
            root = folder
        folder = os.path.dirname(folder)
    return Path(root) if root else None


@contextmanager
def _at(path: Path) -> Iterator[_Place]:
    """Where a path leads, with the folder it is in held open."""
    root = _root(path)
    if root is None:
        yield _Place(None, str(path), False, path)
        return
    whole = Path(os.path.abspath(path))
    *between, name = whole.relative_to(root).parts
    handle = os.open(root, FOLDER)
    try:
        for depth, part in enumerate(between, 1):
            inner = _entered(handle, part, root.joinpath(*between[:depth]))
            os.close(handle)
            handle = inner
        yield _Place(handle, name, True, path)
    finally:
        os.close(handle)


def _entered(handle: int, part: str, path: Path) -> int:
    """A handle of a folder in a folder, which must not be a link."""
    try:
        return os.open(part, FOLDER | NO_LINK, dir_fd=handle)
    except OSError:
        if stat.S_ISLNK(os.lstat(part, dir_fd=handle).st_mode):
            raise _linked(path) from None
        raise


def _linked(path: Path) -> UserError:
    return UserError(
        f"{path} must not be a link, because what is done to a run stays in its folder; if you "
        "trust what it leads to, put that in its place"
    )


def _check_plain(place: _Place, status: os.stat_result, *, writes: bool) -> None:
    """Refuse what is no plain file, and to change one that has another name elsewhere."""
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFLNK:
        raise _linked(place.path)
    if kind != stat.S_IFREG:
        what = KINDS.get(kind, "something else")
        raise UserError(f"{place.path} must be a plain file, but is {what}; remove it")
    if writes and status.st_nlink > 1:
        raise UserError(
            f"{place.path} must have no other name, because a change of it would change a file "
            "elsewhere; copy the folder"
        )


def _opened(place: _Place, flags: int) -> int:
    """A descriptor of a file; what else is there is not even opened."""
    writes = bool(flags & (os.O_WRONLY | os.O_RDWR))
    checked = place.run or not writes
    if checked and not flags & os.O_EXCL:
        with suppress(FileNotFoundError):  # the call below says so, or makes it
            _check_plain(place, place.status(), writes=writes and place.run)
    flags |= FILE | (NO_LINK if place.run else 0)
    descriptor = os.open(place.name, flags, 0o644, dir_fd=place.folder)
    try:
        if checked:
            _check_plain(place, os.fstat(descriptor), writes=writes and place.run)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def _reported(what: str, path: Path, remedy: str = REMEDY) -> Iterator[None]:
    try:
        yield
    except CannotWrite:
        raise
    except RecursionError as error:
        raise UserError(
            f"cannot {what} {path}: folders must not lie so deep in each other; remove it"
        ) from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise CannotWrite(f"cannot {what} {path}: {reason}; {remedy}") from error


# ---------------------------------------------------------------------------------------- reading


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except CannotWrite:
        raise
    except OSError as error:
        gone = isinstance(error, FileNotFoundError | NotADirectoryError)
        reason = error.strerror or type(error).__name__
        raise (Missing if gone else CannotRead)(f"cannot read {path}: {reason}") from error


def read(path: Path, most: int = MOST, last: int | None = None) -> bytes:
    """All bytes of a plain file that has at most so many; of a longer one the `last`, if given."""
    with _reading(path), _at(path) as place:
        descriptor = _opened(place, os.O_RDONLY)
        with open(descriptor, "rb") as file:
            size = os.fstat(descriptor).st_size
            if size > most:
                raise UserError(
                    f"{path} ({size:,} bytes) must have at most {most:,} bytes, because what "
                    "everynet writes there has no more; remove it"
                )
            if last is not None and last < size:
                file.seek(size - last)
            return file.read(size)


def names(folder: Path) -> list[str]:
    """The names in a folder, in order; none if there is no such folder."""
    try:
        with _reading(folder), _at(folder / "any") as place:
            here = os.path.dirname(place.name) if place.folder is None else place.folder
            return sorted(os.listdir(here))
    except Missing:
        return []


def exists(path: Path) -> bool:
    """Whether a name is taken, by whatever it be."""
    try:
        with _reading(path), _at(path) as place:
            os.lstat(place.name, dir_fd=place.folder)
            return True
    except Missing:
        return False


# ---------------------------------------------------------------------------------------- writing


def _put(place: _Place, content: bytes, flags: int) -> None:
    """Write all of `content` and wait until the disk has it."""
    descriptor = _opened(place, os.O_WRONLY | os.O_CREAT | flags)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _settle(place: _Place) -> None:
    """Make a rename in the folder of a place survive a power cut."""
    if place.folder is not None:
        os.fsync(place.folder)
        return
    descriptor = os.open(os.path.dirname(place.name) or ".", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _move(place: _Place, name: str, to: str) -> None:
    """Rename within the folder of a place."""
    os.rename(name, to, src_dir_fd=place.folder, dst_dir_fd=place.folder)


def write(path: Path, content: bytes) -> None:
    """Put `content` at `path`, whole or not at all."""
    with _reported("write", path), _at(path) as place:
        beside = place.beside()
        try:
            _put(place._replace(name=beside), content, os.O_EXCL)
            _move(place, beside, place.name)
        except BaseException:
            with suppress(OSError):
                os.unlink(beside, dir_fd=place.folder)
            raise
        _settle(place)


@dataclass(frozen=True)
class Room:
    """A large file on its way: where it is for now, and how a piece is put at a place in it."""

    path: Path
    put: Callable[[int, bytes | memoryview], None]


@contextmanager
def writing(path: Path, size: int, remedy: str = REMEDY) -> Iterator[Room]:
    """A file of `size` bytes, filled in any order, that is at `path` afterwards, or not at all.

    The room is taken before anything is written: a disk that is too small shows at once. It is
    for the cache, not for what lies in a run folder.
    """
    beside = path.with_name(_temporary(path.name))
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
            _settle(_Place(None, str(path), False, path))
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
    with _reported("write", path), _at(path) as place:
        beside = place.beside()
        try:
            os.mkdir(beside, dir_fd=place.folder)
            _fill(place, beside, contents)
            _move(place, beside, place.name)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True, dir_fd=place.folder)
            raise
        _settle(place)


def _fill(place: _Place, folder: str, contents: Mapping[str, bytes]) -> None:
    """Put files into a new folder beside a place."""
    handle = os.open(folder, FOLDER | NO_LINK, dir_fd=place.folder)
    try:
        for name, content in contents.items():
            _put(place._replace(folder=handle, name=name), content, os.O_EXCL)
        os.fsync(handle)
    finally:
        os.close(handle)


def append(path: Path, content: bytes) -> None:
    """Add to the end of a file."""
    with _reported("write", path), _at(path) as place:
        _put(place, content, os.O_APPEND)


def cut(path: Path, length: int) -> None:
    """Keep the first `length` bytes of a file."""
    with _reported("shorten", path), _at(path) as place:
        descriptor = _opened(place, os.O_WRONLY)
        try:
            os.ftruncate(descriptor, length)
        finally:
            os.close(descriptor)


def make_folder(path: Path, remedy: str = REMEDY) -> None:
    """Make a folder and those above it."""
    with _reported("make", path, remedy):
        for part in (*reversed(path.parents), path):
            with _at(part) as place:
                if not _is_folder(place):
                    try:
                        os.mkdir(place.name, dir_fd=place.folder)
                    except FileExistsError:
                        if not _is_folder(place):
                            raise


def _is_folder(place: _Place) -> bool:
    try:
        mode = place.status().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    if stat.S_ISLNK(mode):
        raise _linked(place.path)
    return stat.S_ISDIR(mode)


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


def rename(path: Path, name: str) -> None:
    """Give a file or folder another name where it is."""
    with _reported("rename", path), _at(path) as place:
        _move(place, place.name, os.path.join(os.path.dirname(place.name), name))


def remove_folder(path: Path) -> None:
    """Delete a folder: first hide it, so that a stop half-way leaves no half a checkpoint."""
    with _reported("delete", path), _at(path) as place:
        if not _is_folder(place):
            raise UserError(f"{path} must be a folder, because everynet made one there; remove it")
        hidden = place.beside()
        _move(place, place.name, hidden)
        shutil.rmtree(hidden, dir_fd=place.folder)


def sweep(folder: Path) -> None:
    """Delete what an interrupted write left behind in a run, or in a cell of one."""
    for part in (folder, *(folder / name for name in FOLDERS)):
        for name in filter(OURS.fullmatch, names(part)):
            with _reported("clean", part), _at(part / name) as place:
                if stat.S_ISDIR(os.lstat(place.name, dir_fd=place.folder).st_mode):
                    shutil.rmtree(place.name, dir_fd=place.folder)
                else:
                    os.unlink(place.name, dir_fd=place.folder)


# ------------------------------------------------------------------------------------------ locks


@contextmanager
def locked(folder: Path, patience: float = 0.0) -> Iterator[None]:
    """Hold a run folder; the system lets go of it when the process ends, however it ends.

    The folder itself is locked and a file in it: the first cannot be removed from under us, the
    second works on disks that lock no folders. `patience` is how many seconds to wait for another
    that holds it.
    """
    from filelock import FileLock, Timeout  # noqa: PLC0415 -- slow to import, and seldom needed

    with ExitStack() as stack:
        with _reported("lock", folder):
            place = stack.enter_context(_at(folder / "lock"))
            with suppress(FileNotFoundError):
                _check_plain(place, place.status(), writes=True)
            handle = place.folder
            if handle is None:
                handle = os.open(folder, FOLDER)
                stack.callback(os.close, handle)
            lock, until = FileLock(folder / "lock"), time.monotonic() + patience
            while not _lock_folder(handle) and time.monotonic() < until:
                time.sleep(0.05)
            try:
                if not _lock_folder(handle):
                    raise Timeout(str(folder))
                lock.acquire(timeout=max(0.0, until - time.monotonic()))
            except Timeout:
                raise UserError(
                    f"{folder} is in use by another process; wait until it ends"
                ) from None
            stack.callback(lock.release)
        yield


def _lock_folder(handle: int) -> bool:
    """Whether nobody else holds a folder; also where the disk cannot lock one."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


@contextmanager
def alone(path: Path, waits: Callable[[], None]) -> Iterator[None]:
    """Hold a lock, once whoever holds it lets go; where the system has none to give, hold none.

    `waits` is called before the wait, if there is one.
    """
    from filelock import FileLock, Timeout  # noqa: PLC0415 -- slow to import, and seldom needed

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
