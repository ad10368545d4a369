"""What a person sees while a run goes on: a live line on a terminal, a plain line in a log."""

from __future__ import annotations

import io
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import TextIO

from everynet.errors import Stopped
from everynet.words import printable

LIVE, PLAIN = 0.2, 10.0  # seconds between two lines on a terminal and in a log


def duration(seconds: float) -> str:
    """Seconds as a person writes them: 42 s, 3 min 20 s, 2 h 05 min."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60):02} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02} min"


@dataclass
class Progress:
    """Prints where a run stands, not oftener than anyone can read; silent unless shown."""

    steps: int
    shown: bool = False
    stream: TextIO = field(default_factory=lambda: sys.stderr or io.StringIO())
    first_step: int = 0
    unit: str = "step"
    before: str = ""
    """What the line begins with, such as the cell of an experiment."""
    said: set[str] = field(default_factory=set)
    """What is said once however often it comes up, over all cells."""
    _begun: float = field(default_factory=time.monotonic)
    _last: float = field(default_factory=time.monotonic)
    _live: bool = False
    _counted: str = ""

    def due(self) -> bool:
        """Whether enough time has passed for another line."""
        if not self.shown:
            return False
        return time.monotonic() - self._last >= (LIVE if self.stream.isatty() else PLAIN)

    def show(self, step: int, values: Mapping[str, float]) -> None:
        """Print step, terms, rate and time left."""
        self._last = time.monotonic()
        rate = (step - self.first_step) / max(self._last - self._begun, 1e-9)
        left = (self.steps - step) / rate if rate > 0 else 0.0
        terms = "  ".join(f"{name} {value:.4g}" for name, value in values.items())
        speed = f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s"
        counted = f"{self.before}{self.unit} {step:,}/{self.steps:,}"
        line = "  ".join(filter(None, (counted, terms, speed, f"{duration(left)} left")))
        if self.stream.isatty():
            self._move(line)
        else:
            self._write(printable(line) + "\n")

    def _move(self, line: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        self._live = True
        self._write("\r" + printable(line)[:width].ljust(width))

    def count(self, what: str, done: int, total: int) -> None:
        """Say how far something is that comes before the first step."""
        if not self.shown:
            return
        now, first = time.monotonic(), what != self._counted
        if first:
            self.close()
            self._counted, self._begun = what, now
        if not self.stream.isatty():
            self._write(f"{printable(what)}: {total:,} files\n" if first else "")
        elif first or done == total or now - self._last >= LIVE:
            self._last, left = now, (now - self._begun) / done * (total - done)
            self._move(f"{done:,}/{total:,} files, {duration(left)} left: {what}")
        if done == total:
            self.close()
            self._begun = now

    def say(self, line: str) -> None:
        """Print one line of its own, if anything is shown."""
        if self.shown:
            self.close()
            self._write(printable(line) + "\n")

    def say_once(self, line: str) -> None:
        """The same, unless it was said before."""
        if line not in self.said:
            self.said.add(line)
            self.say(line)

    def close(self) -> None:
        """End a live line, so that what follows begins at the left."""
        if self._live:
            self._live = False
            self._write("\n")

    def _write(self, text: str) -> None:
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):  # closed or full: the run is worth more than what it says
            self.shown = False


@dataclass
class Stop:
    """Which signal has asked the run to end; 0 for none."""

    signal: int = 0
    at_once: str = ""
    """What to say of a run that is ended at once, because it has no steps to end after."""


@contextmanager
def signals() -> Iterator[Stop]:
    """Turn the first Ctrl-C or SIGTERM into a request; the second ends the process at once."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, _frame: FrameType | None) -> None:
        stop.signal = number
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_DFL)
        if stop.at_once:
            raise Stopped(stop.at_once, number)

    before = {each: signal.signal(each, ask) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
