"""Who hears of work that takes long and begins below the run: nobody, unless someone listens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, runtime_checkable


@runtime_checkable
class Listener(Protocol):
    """What shows a person how far things are; `progress.Progress` is one."""

    def say(self, line: str) -> None:
        """Print one line of its own."""
        ...

    def count(self, what: str, done: int, total: int) -> None:
        """Say how much of something is done."""
        ...


_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def telling(listener: Listener) -> Iterator[None]:
    """Within it, what there is to say goes to this listener."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def say(line: str) -> None:
    """Tell whoever listens one line."""
    if (listener := _LISTENER.get()) is not None:
        listener.say(line)


def count(what: str, done: int, total: int) -> None:
    """Tell whoever listens how much is done."""
    if (listener := _LISTENER.get()) is not None:
        listener.count(what, done, total)
