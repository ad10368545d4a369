"""Loops compiled by numba, whose machine code is kept on disk for the processes to come.

Numba keeps such code too, but where the working directory can say (`.numba_config.yaml`), in
files that block a loop for good once they are damaged, and several types of one loop under one
name. Ours is one file for each loop and types of its arguments, below `cache.compiled()`.

What is promised: a stored file holds a pickle, so it is read only if its folder belongs to this
user and is closed to all others; the working directory has no say in it. A file that is missing,
cut short, damaged or made by another version, processor or source means compiling again. A folder
that is not there, full, read-only or someone else's means compiling without a cache.

Stored code is loaded without the tables of the compiler, which take a third of a second to set up
and serve nothing but compiling.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import os
import platform
import secrets
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import FunctionType
from typing import Any, Literal, TypeVar

import llvmlite
import numba
import torch
from numba import njit, set_num_threads
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps, loads

from everynet.system import cache

Loop = TypeVar("Loop", bound=Callable[..., Any])

KEPT = 100 * 24 * 3600  # seconds after which a file goes, and is made anew where it is needed


def compiled(
    *,
    fastmath: set[str] | bool = False,
    inline: Literal["never", "always"] = "never",
    parallel: bool = False,
) -> Callable[[Loop], Loop]:
    """Compile a loop at its first call. Dividing by 0 gives inf or nan, and other threads go on."""
    jit: Any = njit(
        nogil=True, error_model="numpy", fastmath=fastmath, inline=inline, parallel=parallel
    )

    def decorate(loop: Loop) -> Loop:
        made: Any = jit(loop)
        made._cache = _Store(loop)
        typed: Loop = made  # a dispatcher of numba's, called as the loop is
        return typed

    return decorate


class _Store(NullCache):
    """The cache that numba looks into before it compiles and writes to afterwards."""

    def __init__(self, loop: Callable[..., Any]) -> None:
        self.loop = loop

    def load_overload(self, sig: Any, target_context: Any) -> Any:  # noqa: ANN401 -- numba's own
        rtsys.initialize(target_context)  # arrays that loops make
        name = self._name(sig, target_context.codegen())
        try:
            with cache.private(cache.compiled()) as folder:
                flags = os.O_RDONLY | os.O_NOFOLLOW
                with open(os.open(name, flags, dir_fd=folder), "rb") as stream:
                    content = stream.read()
            total, rest = content[:32], content[32:]
            if hashlib.sha256(rest).digest() != total:
                return None
            rebuild: Any = CompileResult._rebuild
            return rebuild(target_context, *loads(rest))
        except Exception:  # whatever is wrong with a stored file, compiling mends it
            return None

    def save_overload(self, sig: Any, data: Any) -> None:  # noqa: ANN401
        if data.lifted or data.library.has_dynamic_globals:
            return  # addresses of this process, which the next cannot use
        rest: bytes = dumps(data._reduce())  # type: ignore[no-untyped-call]  # numba's
        with contextlib.suppress(OSError), cache.private(cache.compiled()) as folder:
            _delete_old(folder)
            _write(folder, self._name(sig, data.codegen), hashlib.sha256(rest).digest() + rest)

    def _name(self, sig: Any, codegen: Any) -> str:  # noqa: ANN401
        """The file name of the loop for these types on this processor."""
        loop = self.loop
        parts = (
            *(f"{loop.__module__}.{loop.__qualname__}", str(sig), repr(codegen.magic_tuple())),
            *(_stamp(inspect.getfile(loop)), loop.__code__.co_code.hex()),
            *(numba.__version__, llvmlite.__version__, sys.version, platform.machine()),
        )
        total = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        return f"{loop.__name__}-{total[:40]}"


@lru_cache
def _stamp(file: str) -> str:
    """SHA-256 of a source file and those beside it, whose loops it may call."""
    beside = sorted(Path(file).parent.glob("*.py"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in beside)).hexdigest()


def _write(folder: int, name: str, content: bytes) -> None:
    """Write beside its place and rename: a reader sees all of a file or none of it."""
    beside = f".{name}.{secrets.token_hex(4)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        with open(os.open(beside, flags, 0o600, dir_fd=folder), "wb") as stream:
            stream.write(content)
        os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside, dir_fd=folder)
        raise


def _delete_old(folder: int) -> None:
    """Delete old files: code of former sources and versions is never loaded again."""
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):  # another process did
            if time.time() - os.stat(name, dir_fd=folder).st_mtime > KEPT:
                os.unlink(name, dir_fd=folder)


_threaded: dict[tuple[str, str], Callable[..., None]] = {}


def threaded(loop: Callable[..., None]) -> Callable[..., None]:
    """The loop on as many threads as torch has, among which `numba.prange` shares its turns out.

    The forms with and without threads have names of their own, because numba stores what it
    compiled by the name alone and would take the one for the other.
    """
    assert isinstance(loop, FunctionType)  # has code that can be named anew
    together = torch.get_num_threads() > 1
    name = f"{loop.__name__}_{'together' if together else 'alone'}"
    key = (loop.__module__, name)
    if key not in _threaded:
        named = FunctionType(loop.__code__, loop.__globals__, name)
        named.__qualname__, named.__module__ = name, loop.__module__
        _threaded[key] = compiled(parallel=together)(named)
    if together:
        set_num_threads(torch.get_num_threads())
    return _threaded[key]
