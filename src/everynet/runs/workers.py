"""Processes that train cells: started once, given a cell at a time through a pipe.

Each reads lines of JSON from its standard input and answers each with one line. That its input ends
means that it is to save and go: so it does when this process asks for it, and when it is killed.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from everynet.runs.experiment_job import CellFailed
from everynet.system.errors import Stopped, UserError
from everynet.system.signals import Stop

TICK = 0.2  # seconds between two looks at whether a signal came
INSIDE = "EVERYNET_WORKER"
"""Set in a worker, which must not start workers of its own."""


@dataclass
class Worker:
    """One process and the cell it trains."""

    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    cell: str = ""

    def tell(self, cell: str, wanted: int) -> None:
        """Ask for a cell."""
        self.cell = cell
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has died: its answer will say so
            self.process.stdin.write(json.dumps([cell, wanted]).encode() + b"\n")
            self.process.stdin.flush()

    def answer(self) -> None:
        """Take its answer: that the cell is done; anything else is raised."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.endswith(b"\n"):
            raise CellFailed(self.cell, self.last_words(), 1)
        answer = json.loads(line)
        for warning in answer["warnings"]:
            warnings.warn(f"cell {self.cell}: {warning}", stacklevel=2)
        if answer["failed"]:
            raise CellFailed(self.cell, answer["failed"], answer["code"])

    def last_words(self) -> str:
        """Why it died, as far as can be told."""
        code = self.process.wait()
        self.errors.seek(0)
        last = self.errors.read().decode(errors="replace").strip().splitlines()[-1:]
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"its process {how}" + "".join(f" ({line})" for line in last)


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
                key.data.answer()
                yield key.data.cell
                if waiting:
                    key.data.tell(*waiting.popleft())
                else:
                    selector.unregister(key.fileobj)


@contextmanager
def _selector() -> Iterator[selectors.BaseSelector]:
    with selectors.DefaultSelector() as selector:
        yield selector


@contextmanager
def _started(count: int, run: Path, file: str) -> Iterator[list[Worker]]:
    """Workers, which are asked to save and go at the end, and waited for."""
    path = os.pathsep.join(part or os.getcwd() for part in sys.path)  # they import what we do
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", INSIDE: "1"}
    command = [sys.executable, "-P", "-m", "everynet.runs.worker", str(run), file]
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
        for worker in workers:
            worker.process.wait()
            assert worker.process.stdout is not None
            worker.process.stdout.close()
            worker.errors.close()
