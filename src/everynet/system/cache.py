"""The one folder of everynet in the user's cache: index of the zoo, compiled code, sets fetched."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def home() -> Path:
    """Where it is, whether it exists or not; never below the working directory.

    For a user without a home it is a place where nothing can be written: nothing is kept.
    """
    named = os.environ.get("XDG_CACHE_HOME", "")
    base = named if os.path.isabs(named) else os.path.expanduser("~/.cache")
    return Path(base if os.path.isabs(base) else os.devnull) / "everynet"


def pixels() -> Path:
    """Where the decoded images of large folders are; it may be deleted whenever no run reads it."""
    return home() / "pixels"


def compiled() -> Path:
    """The folder of machine code: in it, or where NUMBA_CACHE_DIR says."""
    named = os.environ.get("NUMBA_CACHE_DIR", "")
    return Path(named) if os.path.isabs(named) else home() / "compiled"


@contextmanager
def private(path: Path) -> Iterator[int]:
    """A descriptor of a folder, made if need be; OSError if others than the user can change it.

    Files are opened through the descriptor, so that what was checked is what is used.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        about = os.fstat(folder)
        if about.st_uid != os.geteuid() or about.st_mode & 0o077:
            raise PermissionError(f"{path} must belong to you and be closed to others: chmod 700")
        yield folder
    finally:
        os.close(folder)
