"""Experiments and sweeps of two workers, of which any process is killed at any moment.

    python -m tests.runs.killed_workers OUT SEED KILLS

A trial kills the run, one of its workers or all of them, and so its resumptions, then lets it end:
its folder must have the bytes of the undisturbed one. It prints one JSON line a trial. Workers are
forks of this process, so that they cost no import; all else about them is real.
"""

import contextlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace

import torch

from everynet.runs import worker, workers
from tests.runs.broken import go_on, start
from tests.runs.forks import contents, ended, fork

JOBS = ["--jobs", "2"]


class Forked:
    """What stands for `subprocess.Popen` of a worker: a fork with the same three streams."""

    def __init__(self, command, **streams):
        (there, here), (back, said) = os.pipe(), os.pipe()
        self.pid, self.code = os.fork(), None
        if self.pid == 0:
            os.setsid()
            for number, target in ((there, 0), (said, 1), (streams["stderr"].fileno(), 2)):
                os.dup2(number, target)
            os.closerange(3, 256)  # as an exec does, or this one would hold the others' pipes open
            sys.stdin, sys.stderr = os.fdopen(0), os.fdopen(2, "w")
            for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(each, signal.SIG_DFL)
            code = 99
            try:
                code = worker.main(Path(command[-2]), command[-1])
            finally:
                os._exit(code)
        os.close(there)
        os.close(said)
        self.stdin, self.stdout = os.fdopen(here, "wb"), os.fdopen(back, "rb")

    def wait(self, timeout=None):
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)


def children(process):
    try:
        return [*map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())]
    except (FileNotFoundError, ProcessLookupError):
        return []


def killed(action, seconds, draw):
    """Start it, and kill some of its processes so much later; how it ended, and how many died."""
    run = fork(action)
    time.sleep(seconds)
    found = children(run)
    victims = draw.choice([[run], found[:1], found[1:], [*found, run]]) or [run]
    for victim in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    code = ended(run)
    return code, len(victims) if code else 0


def made(out):
    """The run folder, if there is one: a kill may leave the half of one under another name."""
    return [*out.glob("[!.]*-*")]


def trial(name, out, took, draw):
    codes, kills, found = [], 0, []
    for _ in range(draw.randrange(1, 5)):
        action = (lambda: go_on(found[0], JOBS)) if found else (lambda: start(name, out, JOBS))  # noqa: B023
        code, died = killed(action, draw.uniform(0, took), draw)
        codes, kills, found = [*codes, code], kills + died, made(out)
        if code == 0:
            break
    last = (lambda: go_on(found[0], JOBS)) if found else (lambda: start(name, out, JOBS))
    return [*codes, ended(fork(last))], kills


def kill(out, seed, kills):
    draw, done, known = random.Random(seed), 0, {}
    for name in ("law", "sweep"):
        with contextlib.redirect_stdout(io.StringIO()):
            assert start(name, out / name) == 0  # here, so that no fork has to import what it needs
        begun = time.monotonic()
        assert ended(fork(lambda: start(name, out / f"{name}-two", JOBS))) == 0  # noqa: B023
        known[name] = contents(*(out / name).iterdir()), time.monotonic() - begun
    for number, name in enumerate(cycle(known)):
        if done >= kills:
            break
        (whole, took), where = known[name], out / str(number)
        codes, died = trial(name, where, took, draw)
        done += died
        (folder,) = made(where)
        given = contents(folder)
        differ = [n for n in sorted({*whole, *given}) if whole.get(n) != given.get(n)]
        print(
            json.dumps({"what": name, "codes": codes, "killed": died, "differ": differ}), flush=True
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    known = {"PIPE": subprocess.PIPE, "TimeoutExpired": subprocess.TimeoutExpired}
    workers.subprocess = SimpleNamespace(Popen=Forked, **known)  # which it alone sees
    kill(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
