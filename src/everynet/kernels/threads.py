"""A compiled loop on as many threads as torch has: `numba.prange` shares its turns out."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType

import torch
from numba import njit, set_num_threads

_compiled: dict[tuple[str, str], Callable[..., None]] = {}


def threaded(loop: Callable[..., None]) -> Callable[..., None]:
    """The loop, compiled at its first call: without threads where torch has one.

    The two forms have names of their own, because numba stores what it compiled by the name alone
    and would take the one for the other.
    """
    assert isinstance(loop, FunctionType)  # has code that can be named anew
    together = torch.get_num_threads() > 1
    name = f"{loop.__name__}_{'together' if together else 'alone'}"
    key = (loop.__module__, name)
    if key not in _compiled:
        named = FunctionType(loop.__code__, loop.__globals__, name)
        named.__qualname__, named.__module__ = name, loop.__module__
        _compiled[key] = njit(cache=True, parallel=together)(named)
    if together:
        set_num_threads(torch.get_num_threads())
    return _compiled[key]
