"""Ctrl-C, SIGTERM and SIGHUP: while a command begins, and while a run goes on.

Most of the first second of a command is spent in imports of others.

An exception that a signal raises in the middle of an import may be taken for "this part is not
there" and forgotten, or end in an error of whatever was half there. So while one is under way the
process is left at once, as by a kill, which nothing of ours minds; at all other times Ctrl-C raises
KeyboardInterrupt, as always.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from everynet.system.errors import Stopped


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


# ------------------------------------------------------------------------------ while a run goes on


class Stop:
    """A request to end the run: the signal that made it, 0 for none."""

    signal = 0
    at_once = ""  # what to say of a run that has no steps to end after
    raised = 0  # the signal that did end it so

    @contextmanager
    def ending(self, line: str) -> Iterator[None]:
        """Within it a signal ends the run at once, with this line."""
        before, self.at_once = self.at_once, line
        try:
            yield
        except Exception as error:
            if self.raised and not isinstance(error, Stopped):  # taken for an error of something
                raise Stopped(line, self.raised) from error
            raise
        finally:
            self.at_once = before
        if self.raised:  # taken for an error, and passed over
            raise Stopped(line, self.raised)


@contextmanager
def catching_signals() -> Iterator[Stop]:
    """Turn the first Ctrl-C, SIGTERM or SIGHUP into a request; the second ends the process at once.

    One that this process was started to ignore, in the background or by nohup, stays ignored.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def request(number: int, frame: FrameType | None) -> None:
        stop.signal = number
        for each in before:
            signal.signal(each, signal.SIG_DFL)
        if stop.at_once:
            if importing(frame):
                leave(stop.at_once, number)
            stop.raised = number
            raise Stopped(stop.at_once, number)
        _say_that_it_stops()

    all_three = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    ours = [each for each in all_three if signal.getsignal(each) not in (signal.SIG_IGN, None)]
    before = {each: signal.signal(each, request) for each in ours}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _say_that_it_stops() -> None:
    """Tell whoever sits at a terminal that the run ends soon: a step may take long."""
    with suppress(OSError):  # written past the stream, which the signal may have come amidst
        if os.isatty(2):
            os.write(2, b"\neverynet: stops after this step; Ctrl-C once more ends it at once\n")
