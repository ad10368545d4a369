"""How long a run will take yet, by what it has done so far: updates, and what comes between them.

The first updates take longer than the others, because memory is taken, kernels are compiled or a
graph is captured; evaluations and checkpoints take time of their own. So the former are left out of
the mean, and the latter are counted apart, those still to come among them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

MARKS = (1, 5)  # updates after which the clock begins anew
DRAWING = 2.0  # seconds that pictures take, roughly


@dataclass
class Apart:
    """How often something came between updates, and how long it took."""

    times: int = 0
    first: float = 0.0
    later: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one more."""
        self.first, self.later = (
            (self.first, self.later + seconds) if self.times else (seconds, self.later)
        )
        self.times += 1

    def mean(self, guess: float) -> float:
        """What the next one takes: the first may have been slow, and before it one can guess."""
        if self.times > 1:
            return self.later / (self.times - 1)
        return self.first if self.times else guess


@dataclass
class Pace:
    """How fast updates follow on each other since the run, or this session of it, began."""

    every: Mapping[str, int] = field(default_factory=dict)
    """Updates between two of each thing that comes between them."""
    guess: Mapping[str, float] = field(default_factory=dict)
    """How many updates each is worth, before one was seen."""
    after: Mapping[str, float] = field(default_factory=dict)
    """How many of each, in length, come after the last update."""
    drawing: float = 0.0
    """Seconds of pictures after the last update."""
    first: int = 0
    """Updates of earlier sessions."""
    _seen: dict[str, Apart] = field(default_factory=dict)
    _paused: float = 0.0
    _marks: list[tuple[int, float]] = field(default_factory=lambda: [(0, time.monotonic())])
    """Updates of this session and the clock then, less what was apart."""

    def begin(self, step: int) -> None:
        """The clock of updates begins now, after so many."""
        self.first, self._marks = step, [(0, time.monotonic() - self._paused)]

    def tick(self, step: int) -> None:
        """One more update is done."""
        if step - self.first in MARKS:
            self._marks.append((step - self.first, time.monotonic() - self._paused))

    @contextmanager
    def apart(self, name: str) -> Iterator[None]:
        """What happens within is no update."""
        begun = time.monotonic()
        try:
            yield
        finally:
            took = time.monotonic() - begun
            self._paused += took
            self._seen.setdefault(name, Apart()).add(took)

    def each(self, step: int) -> float | None:
        """Seconds an update takes; None while nobody can tell."""
        done = step - self.first
        begun = [mark for mark in self._marks if done >= max(2 * mark[0], 1)]
        if not begun or (len(begun) == 1 and len(self._marks) > 1):
            return None
        marked, then = begun[-1]
        return (time.monotonic() - self._paused - then) / (done - marked)

    def left(self, step: int, steps: int) -> float | None:
        """Seconds to the end of `steps` updates and of what comes after the last one."""
        each = self.each(step)
        if each is None:
            return None
        seconds = (steps - step) * each + self.drawing
        for name, every in self.every.items():
            to_come = -(-steps // every) - step // every if step < steps else 0
            seen = self._seen.get(name, Apart())
            takes = seen.mean(self.guess.get(name, 0.0) * each)
            seconds += (to_come + self.after.get(name, 0.0)) * takes
        return seconds
