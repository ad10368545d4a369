"""Loops compiled by numba, whose machine code is kept on disk for the processes to come.

Numba's own store is used with two differences. Processes take turns: two that compile one loop for
different types would otherwise write both under one name and be handed each other's code. And
stored code is loaded without the tables of the compiler, which take a third of a second to set up
and serve nothing but compiling.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, Literal, TypeVar

import torch
from filelock import FileLock
from numba import njit, set_num_threads
from numba.core.caching import FunctionCache
from numba.core.runtime.nrt import rtsys

Loop = TypeVar("Loop", bound=Callable[..., Any])


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
        made._cache = _Store(loop)  # type: ignore[no-untyped-call]  # numba's, as those below
        typed: Loop = made  # a dispatcher of numba's, called as the loop is
        return typed

    return decorate


class _Store(FunctionCache):
    def load_overload(self, sig: Any, target_context: Any) -> Any:  # noqa: ANN401 -- numba's own
        rtsys.initialize(target_context)  # arrays that loops make
        with self._turn():
            return self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]

    def save_overload(self, sig: Any, data: Any) -> None:  # noqa: ANN401
        with self._turn():
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]

    def _turn(self) -> FileLock:
        folder = Path(self.cache_path)
        folder.mkdir(parents=True, exist_ok=True)
        return FileLock(folder / "compiled.lock")


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
