"""Ctrl-C while a command begins: most of its first second is spent in imports of others.

An exception that a signal raises in the middle of an import may be taken for "this part is not
there" and forgotten, or end in an error of whatever was half there. So while one is under way the
process is left at once, as by a kill, which nothing of ours minds; at all other times Ctrl-C raises
KeyboardInterrupt, as always.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn


def importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported where a signal came."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib._bootstrap"):
            return True
        frame = frame.f_back
    return False


def leave(line: str, number: int) -> NoReturn:
    """End the process here and now, with one line and the exit code of a signal."""
    with suppress(OSError):  # nobody listens
        os.write(2, f"everynet: {line}\n".encode())
    os._exit(128 + number)


def _interrupted(number: int, frame: FrameType | None) -> None:
    if importing(frame):
        leave("stopped", number)
    raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[None]:
    """Within it Ctrl-C ends what goes on, be it an import; a caller's own handler is left alone."""
    try:
        ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        before = signal.signal(signal.SIGINT, _interrupted) if ours else None
    except ValueError:  # not the main thread, which alone hears of signals
        before = None
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
