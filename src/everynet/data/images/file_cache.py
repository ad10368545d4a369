"""The image files of a folder: the SHA-256 and shape of each, remembered while it stays the same.

    pixels/files-ROOT.json  SHA-256 and shape of each image file of a folder

A file is read again when its size, times or inode are not those remembered.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from everynet.data.images import decode as picture
from everynet.data.images.decode import MOST_BYTES
from everynet.data.paths import read_bytes
from everynet.system import cache, files
from everynet.system.errors import CannotWrite, UserError
from everynet.system.status import count
from everynet.system.wording import shown

SETTLED = 2_000_000_000
"""Nanoseconds after which another change of a file bears another time, on any file system."""
UNREAD = bytes(32)
"""In the place of the SHA-256 of a file that cannot be read."""
MOST_SEALED = 2**30  # bytes of what is remembered of the files of a folder
REMEDY = "free some space, or name a folder with more of it by XDG_CACHE_HOME"

Facts: TypeAlias = dict[str, Any]
"""What was found out about all pixels, as plain JSON."""


class FileState(NamedTuple):
    """What tells that a file is the one it was, without reading it."""

    size: int
    modified: int  # ns
    changed: int  # ns; nothing can set it back
    inode: int

    @staticmethod
    def of(path: Path) -> FileState:
        """As the system has it now."""
        now = os.stat(path)
        return FileState(now.st_size, now.st_mtime_ns, now.st_ctime_ns, now.st_ino)


@dataclass
class _File:
    mark: FileState
    shape: tuple[int, int, int]
    sha256: str = ""


class FileCache:
    """Shape and SHA-256 of the image files of a folder, remembered while they stay the same."""

    def __init__(self, root: Path) -> None:
        self.root = root
        name = hashlib.sha256(os.fsencode(os.path.abspath(root))).hexdigest()
        self.path = cache.pixels() / f"files-{name}.json"
        self._begun = time.time_ns()
        self._new = False
        known = (unseal(self.path) or {}).get("files")
        self._known: dict[str, Any] = known if isinstance(known, dict) else {}
        self._files: dict[str, _File] = {}

    def _name(self, path: Path) -> str:
        return str(path).removeprefix(str(self.root)).lstrip(os.sep)

    def probe(self, path: Path) -> tuple[int, int, int]:
        """Height, width and channels of an image file, which is opened only if it is new."""
        name = self._name(path)
        if name in self._files:
            return self._files[name].shape
        try:
            mark = FileState.of(path)
        except OSError:
            return picture.probe(path)  # says what is wrong with it
        file = _remembered(self._known.get(name), mark)
        if file is None:
            file = _File(mark, picture.probe(path))
            self._new = True
        self._files[name] = file
        return file.shape

    def digests(self, paths: Sequence[Path]) -> list[bytes]:
        """The SHA-256 of every file, or UNREAD; those that are new are read."""
        for path in paths:
            self.probe(path)
        found = [self._files[self._name(path)] for path in paths]
        new = [n for n, file in enumerate(found) if not file.sha256]

        def read(n: int) -> None:
            with suppress(UserError):  # decoding says what is wrong with it
                found[n].sha256 = hashlib.sha256(read_bytes(paths[n], MOST_BYTES)).hexdigest()

        if new:
            side_by_side(read, new, f"reading {shown(self.root)}")
        return [bytes.fromhex(file.sha256) or UNREAD for file in found]

    def keep(self) -> None:
        """Remember what was seen, if the cache can be written."""
        if not self._new:
            return
        old = self._begun - SETTLED
        held = {
            name: [*file.mark, *file.shape, file.sha256]
            for name, file in self._files.items()
            if file.sha256 and max(file.mark.modified, file.mark.changed) < old
        }
        with suppress(CannotWrite):  # then they are read again
            files.make_folder(self.path.parent, REMEDY)
            files.write(self.path, seal({"files": held}))


def _remembered(known: object, mark: FileState) -> _File | None:
    """What is remembered of a file, if it is as it was and the memory has the form of ours."""
    match known:
        case [int(), int(), int(), int(), int(h), int(w), int(c), str(sha256)]:
            if (*known[:4],) == mark and re.fullmatch("[0-9a-f]{64}", sha256) and min(h, w, c) > 0:
                return _File(mark, (h, w, c), sha256)
    return None


def side_by_side(work: Callable[[int], Any], rows: Sequence[int], what: str) -> list[Any]:
    """The work of every row, on all cores, with its progress."""
    done: list[Any] = []
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        try:
            for result in pool.map(work, rows):
                done.append(result)
                if what:
                    count(what, len(done), len(rows))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return done


def seal(value: Facts) -> bytes:
    """JSON after a line with its SHA-256, which tells whether it is whole."""
    body = json.dumps(value).encode()
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def unseal(path: Path) -> Facts | None:
    """The JSON object of such a file, if it is there and whole."""
    try:
        checksum, _, body = read_bytes(path, MOST_SEALED).partition(b"\n")
    except UserError:  # no plain file, say: a pipe would be waited for
        return None
    if hashlib.sha256(body).hexdigest().encode() != checksum:
        return None
    found = json.loads(body)
    return found if isinstance(found, dict) else None
