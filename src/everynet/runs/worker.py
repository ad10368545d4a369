"""A process that trains cells of an experiment: `python -m everynet.runs.worker RUN FILE`.

It reads a cell a line on its standard input, `["NAME", UPDATES]`, and answers with a line on
its standard output, where an empty line now and then says that it is alive. When the input ends, be
it within a line, it saves what it is at and goes.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from everynet.recipes.experiment import Experiment, named_cells
from everynet.recipes.stored import of_run
from everynet.recipes.training import Training
from everynet.runs.cell_job import train_cell
from everynet.runs.folder import read_setup
from everynet.runs.progress import Progress
from everynet.system.errors import Stopped, explain
from everynet.system.signals import Stop
from everynet.training import device
from everynet.training.device import Setup

BEAT = 5.0  # seconds between two signs of life


def main(run: Path, file: str) -> int:
    """Train cells until there are no more."""
    stop, orders, turn = Stop(), queue.SimpleQueue[Any](), threading.Lock()

    def listen() -> None:
        with suppress(ValueError):  # the half of a line, as a kill of the parent leaves it
            for line in sys.stdin.buffer:
                orders.put(json.loads(line))
        stop.signal = signal.SIGTERM
        orders.put(None)

    def answer_with(content: bytes) -> None:
        with turn, suppress(BrokenPipeError):  # the parent has gone, and so shall we
            answers.write(content + b"\n")
            answers.flush()

    def beat() -> None:
        while not stop.signal:
            time.sleep(BEAT)
            answer_with(b"")

    def request(number: int, _frame: object) -> None:
        stop.signal = number
        orders.put(None)

    signal.signal(signal.SIGTERM, request)
    answers = os.fdopen(os.dup(1), "wb")  # never closed: the other thread may be writing
    os.dup2(2, 1)  # what a recipe prints is no answer
    for thread in (listen, beat):
        threading.Thread(target=thread, daemon=True).start()
    while (order := orders.get()) is not None:
        name, wanted = order
        answer: dict[str, Any] = {"failed": "", "code": 0, "warnings": []}
        with warnings.catch_warnings(record=True) as seen:
            try:
                one_cell(run, file, name, wanted, stop)
            except Stopped as stopped:
                return stopped.code
            except Exception as error:  # each is answered, with the name of the cell
                answer["code"], answer["failed"] = explain(error)
        answer["warnings"] = [str(warning.message) for warning in seen]
        answer_with(json.dumps(answer).encode())
    return 0


def one_cell(run: Path, file: str, name: str, wanted: int, stop: Stop) -> None:
    """Train one cell, computed as the run says."""
    recipe, cells, setup = opened(run, file)
    with device.computing(setup):
        train_cell(
            recipe, name, cells[name],
            run=run, wanted=wanted, setup=setup, stop=stop, progress=Progress(1),
        )  # fmt: skip


@cache
def opened(run: Path, file: str) -> tuple[Experiment, dict[str, Training], Setup]:
    """The experiment of a run, its cells and how they are computed."""
    recipe = of_run(run, file or None)
    assert isinstance(recipe, Experiment)  # only its run starts workers
    return recipe, named_cells(recipe), read_setup(run)


if __name__ == "__main__":
    code = main(Path(sys.argv[1]), sys.argv[2])
    sys.stderr.flush()
    os._exit(code)  # all is written; Python would take a second or more to take itself down
