"""What a person sees while a run goes on, and how long it takes yet.

A line that moves on a terminal or in a notebook, or now and then one in a log.
"""

from __future__ import annotations

import io
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TextIO

from everynet.system.wording import printable

LIVE, PLAIN = 0.2, 10.0  # seconds between two lines on a terminal and in a log
FIRST = 1.0  # seconds before the first line in a log
NOTEBOOK = 120  # characters of a line in a notebook


def duration(seconds: float) -> str:
    """Seconds as a person writes them: 42 s, 3 min 20 s, 2 h 05 min."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60):02} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02} min"


FIRST_UPDATES = (1, 5)  # updates after which the clock begins anew: the first ones take longer


@dataclass
class Pace:
    """How long a run takes yet: by the updates of this session and its newest evaluation.

    The first updates are left out, because memory is taken, kernels are compiled or a graph is
    captured; what comes between updates is timed apart from them.
    """

    every: int = 0
    """Updates between two evaluations; 0 where there are none."""
    evaluation: float = 0.0
    """Seconds of the newest evaluation."""
    first: int = 0
    """Updates of earlier sessions."""
    _paused: float = 0.0
    _marks: list[tuple[int, float]] = field(default_factory=lambda: [(0, time.monotonic())])
    """Updates of this session and the clock then, less the pauses."""

    def begin(self, step: int) -> None:
        """The clock of updates begins now, after so many."""
        self.first, self._marks = step, [(0, time.monotonic() - self._paused)]

    def tick(self, step: int) -> None:
        """One more update is done."""
        if step - self.first in FIRST_UPDATES:
            self._marks.append((step - self.first, time.monotonic() - self._paused))

    @contextmanager
    def pause(self, *, evaluates: bool = False) -> Iterator[None]:
        """What happens within is no update; it may be an evaluation."""
        begun = time.monotonic()
        try:
            yield
        finally:
            took = time.monotonic() - begun
            self._paused += took
            self.evaluation = took if evaluates else self.evaluation

    def seconds_per_update(self, step: int) -> float | None:
        """Seconds an update takes; None while nobody can tell."""
        done = step - self.first
        begun = [mark for mark in self._marks if done >= max(2 * mark[0], 1)]
        if not begun or (len(begun) == 1 and len(self._marks) > 1):
            return None
        marked, then = begun[-1]
        return (time.monotonic() - self._paused - then) / (done - marked)

    def left(self, step: int, steps: int) -> float | None:
        """Seconds of the updates and evaluations up to `steps`."""
        each = self.seconds_per_update(step)
        if each is None:
            return None
        to_come = -(-steps // self.every) - step // self.every if self.every and step < steps else 0
        return (steps - step) * each + to_come * self.evaluation


@dataclass
class Progress:
    """Prints where a run stands, not oftener than anyone can read; silent unless shown."""

    steps: int
    shown: bool = False
    stream: TextIO = field(default_factory=lambda: sys.stderr or io.StringIO())
    pace: Pace = field(default_factory=Pace)
    unit: str = "step"
    before: str = ""
    """What the line begins with, such as the cell of an experiment."""
    newest: str = ""
    """The metric of the newest evaluation."""
    bound: bool = False
    """Whether the run may end before its last step."""
    once: set[str] = field(default_factory=set)
    """Lines that are printed once however often they come up, over all cells."""
    _begun: float = field(default_factory=time.monotonic)
    _last: float = field(default_factory=time.monotonic)
    _any: bool = False
    _live: bool = False
    _counted: str = ""
    _handle: Any = None  # IPython's, which is no dependency of ours

    @property
    def moves(self) -> bool:
        """Whether a line can be written over: on a terminal, and in a notebook."""
        return self.stream.isatty() or display_of_notebook() is not None

    def due(self) -> bool:
        """Whether enough time has passed for another line."""
        if not self.shown:
            return False
        wait = LIVE if self.moves else PLAIN if self._any else FIRST
        return time.monotonic() - self._last >= wait

    def begin(self, step: int) -> None:
        """Updates begin now, after so many."""
        self.pace.begin(step)
        self._last = time.monotonic()

    def show(self, step: int, values: Mapping[str, float], *, last: bool = False) -> None:
        """Print step, terms, newest metric, rate and time left, also after the last step."""
        left = self.pace.left(step, step if last else self.steps)
        most = "at most " * (self.bound and not last)
        self._show(step, values, "" if left is None else f"{most}{duration(left)} left")

    def end(self, step: int, values: Mapping[str, float], seconds: float) -> None:
        """Print the last line: the last step, and how long all of it took."""
        if self.shown:
            self._show(step, values, f"in {duration(seconds)}")
            self.close()

    def _show(self, step: int, values: Mapping[str, float], ends: str) -> None:
        self._last, self._any = time.monotonic(), True
        each = self.pace.seconds_per_update(step)
        rate = 1 / each if each else 0.0
        speed = "" if not rate else f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s"
        counted = f"{self.before}{self.unit} {step:,}/{self.steps:,}"
        terms = [f"{name} {value:.4g}" for name, value in values.items()]
        width = self._width() if self.moves else sys.maxsize
        while True:
            line = "  ".join(filter(None, (counted, *terms, self.newest, speed, ends)))
            if len(line) <= width or not terms:
                break
            terms.pop()  # what is left of the time is worth more than one more term
        if self.moves:
            self._move(line)
        else:
            self._write(printable(line) + "\n")

    def _width(self) -> int:
        return shutil.get_terminal_size().columns - 1 if self.stream.isatty() else NOTEBOOK

    def _move(self, line: str) -> None:
        width, text = self._width(), printable(line)
        display = None if self.stream.isatty() else display_of_notebook()
        if display is None:
            self._live = True
            self._write("\r" + text[:width].ljust(width))
        elif self._handle is None:
            self._handle = display({"text/plain": text[:width]}, raw=True, display_id=True)
        else:
            self._handle.update({"text/plain": text[:width]}, raw=True)

    def count(self, what: str, done: int, total: int) -> None:
        """Say how far something is that comes before the first step."""
        if not self.shown:
            return
        now, first = time.monotonic(), what != self._counted
        if first:
            self.close()
            self._counted, self._begun = what, now
        if not self.moves:
            self._write(f"{printable(what)}: {total:,} files\n" if first else "")
        elif first or done == total or now - self._last >= LIVE:
            self._last, left = now, (now - self._begun) / done * (total - done)
            self._move(f"{done:,}/{total:,} files, {duration(left)} left: {what}")
        if done == total:
            self.close()

    def say(self, line: str) -> None:
        """Print one line of its own, if anything is shown."""
        if self.shown:
            self.close()
            self._write(printable(line) + "\n")

    def say_once(self, line: str) -> None:
        """The same, unless it was said before."""
        if line not in self.once:
            self.once.add(line)
            self.say(line)

    def close(self) -> None:
        """End a live line, so that what follows begins at the left."""
        self._handle = None
        if self._live:
            self._live = False
            self._write("\n")

    def _write(self, text: str) -> None:
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):  # closed or full: the run is worth more than what it says
            self.shown = False


def display_of_notebook() -> Callable[..., Any] | None:
    """What shows something in the notebook that this process computes for; None elsewhere.

    Nothing is imported that is not there: without IPython there is no notebook.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    found: Callable[..., Any] = import_module("IPython.display").display
    return found
