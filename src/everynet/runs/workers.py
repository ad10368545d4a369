"""Processes that train cells: started once, given a cell at a time through a pipe.

Each reads lines of JSON from its standard input and answers each with one line; an empty line every
few seconds says that it is alive. That its input ends means that it is to save and go: so it does
when this process asks for it, and when it is killed. Nothing that a worker does or writes, and
nothing that it does not do, holds this process up for good.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from everynet.runs.experiment_job import CellFailed
from everynet.system.errors import Stopped, UserError
from everynet.system.signals import Stop
from everynet.system.wording import shown

TICK = 0.2  # seconds between two looks at whether a signal came
SILENCE = 300.0  # seconds without a line after which a worker is given up
GOING = 60.0  # seconds in which a worker that is to save and go must have gone
LONGEST = 1 << 20  # bytes of an answer, and of what a worker said last that are read
COMMAND = (sys.executable, "-P", "-m", "everynet.runs.worker")
INSIDE = "EVERYNET_WORKER"
"""Set in a worker, which must not start workers of its own."""


@dataclass
class Worker:
    """One process and the cell it trains."""

    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    cell: str = ""
    unread: bytes = b""
    """The beginning of a line whose end has not come yet."""
    heard: float = field(default_factory=time.monotonic)
    """When it wrote something last."""

    def tell(self, cell: str, wanted: int) -> None:
        """Ask for a cell."""
        self.cell = cell
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has died: its answer will say so
            self.process.stdin.write(json.dumps([cell, wanted]).encode() + b"\n")
            self.process.stdin.flush()

    def answered(self) -> bool:
        """Read what is there; whether the cell is done. Anything else is raised."""
        assert self.process.stdout is not None
        content = os.read(self.process.stdout.fileno(), 65_536)  # some is there, or it has ended
        if not content:
            raise CellFailed(self.cell, self.last_words(), 1)
        self.heard = time.monotonic()
        *lines, self.unread = (self.unread + content).split(b"\n")
        lines = [line for line in lines if line]  # the empty ones say that it is alive
        if len(self.unread) > LONGEST or len(lines) > 1:
            raise CellFailed(self.cell, "its process wrote what is no answer", 1)
        return any(map(self.take, lines))

    def take(self, line: bytes) -> bool:
        """What an answer says: that the cell is done, or why not, which is raised."""
        try:
            match json.loads(line):
                case {"failed": str(failed), "code": int(code), "warnings": list(seen)}:
                    pass
                case _:
                    raise ValueError
        except ValueError:
            start = shown(line[:80].decode(errors="replace"))
            raise CellFailed(
                self.cell, f"its process wrote what is no answer: {start}", 1
            ) from None
        for warning in seen:
            warnings.warn(f"cell {self.cell}: {warning}", stacklevel=2)
        if failed:
            raise CellFailed(self.cell, failed, code)
        return True

    def check_alive(self) -> None:
        """Give up a worker that has not written for a long time: it hangs, or was halted."""
        if time.monotonic() - self.heard > SILENCE:
            self.process.kill()
            why = f"its process said nothing for {SILENCE:.0f} s and was killed"
            raise CellFailed(self.cell, why, 1)

    def last_words(self) -> str:
        """Why it died, as far as can be told."""
        code = self.ended(GOING)  # it may have closed its output and live on
        self.errors.seek(max(0, self.errors.seek(0, os.SEEK_END) - LONGEST))
        last = self.errors.read().decode(errors="replace").strip().splitlines()[-1:]
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"its process {how}" + "".join(f" ({shown(line)})" for line in last)

    def ended(self, seconds: float) -> int:
        """Its exit code; one that has not ended after so many seconds is killed."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def by_workers(
    todo: Mapping[str, int], *, run: Path, file: str, jobs: int, stop: Stop
) -> Iterator[str]:
    """Train cells by several processes; gives the name of each that is done."""
    if INSIDE in os.environ:
        raise UserError(
            f"jobs ({jobs}) must be 1 in a process that trains cells; put what starts a run under "
            'if __name__ == "__main__"'
        )
    waiting = deque(todo.items())
    with _started(min(jobs, len(todo)), run, file) as workers, _selector() as selector:
        for worker in workers:
            assert worker.process.stdout is not None
            selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
            worker.tell(*waiting.popleft())
        while selector.get_map():
            if stop.signal:
                raise Stopped("", stop.signal)
            for key, _ in selector.select(TICK):
                worker = key.data
                if not worker.answered():
                    continue
                yield worker.cell
                if waiting:
                    worker.tell(*waiting.popleft())
                else:
                    selector.unregister(key.fileobj)
            for key in selector.get_map().values():
                key.data.check_alive()


@contextmanager
def _selector() -> Iterator[selectors.BaseSelector]:
    with selectors.DefaultSelector() as selector:
        yield selector


@contextmanager
def _started(count: int, run: Path, file: str) -> Iterator[list[Worker]]:
    """Workers, which are asked to save and go at the end, and waited for."""
    path = os.pathsep.join(part or os.getcwd() for part in sys.path)  # they import what we do
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", INSIDE: "1"}
    command = [*COMMAND, str(run), file]
    workers: list[Worker] = []
    try:
        for _ in range(count):
            errors = tempfile.TemporaryFile()  # noqa: SIM115 -- closed below, with the process
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                start_new_session=True,  # Ctrl-C is for us, who tell them
            )
            workers.append(Worker(process, errors))
        yield workers
    finally:
        for worker in workers:
            assert worker.process.stdin is not None
            with suppress(BrokenPipeError):
                worker.process.stdin.close()
        deadline = time.monotonic() + GOING
        for worker in workers:
            worker.ended(max(0.0, deadline - time.monotonic()))
            assert worker.process.stdout is not None
            worker.process.stdout.close()
            worker.errors.close()
