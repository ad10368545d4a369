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
    _begun: float = field(default_factory=time.monotonic)
    _last: float = field(default_factory=time.monotonic)
    _live: bool = False

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
        line = f"step {step:,}/{self.steps:,}  {terms}  {rate:,.0f}/s  {duration(left)} left"
        if self.stream.isatty():
            width = shutil.get_terminal_size().columns - 1
            self._write("\r" + printable(line)[:width].ljust(width))
            self._live = True
        else:
            self._write(printable(line) + "\n")

    def say(self, line: str) -> None:
        """Print one line of its own, if anything is shown."""
        if self.shown:
            self.close()
            self._write(printable(line) + "\n")

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
