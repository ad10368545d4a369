"""Experiments and sweeps by real processes that are killed or stopped, then gone on with."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from everynet import runs
from everynet.recipes.stored import of_run
from tests.runs import laws
from tests.test_contract import same, table_values

pytestmark = pytest.mark.slow

FILE = Path(laws.__file__)
LAW = [f"{FILE}:law", "rates=0.01,0.02,0.05", "steps=600", "every=50", "--jobs", "2"]
CELLS, STEPS, EVERY = 6, 600, 50


def test_killed_at_any_file_operation(tmp_path):
    """Within a cell, between cells, between the rounds of halving, and while going on."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.runs.broken", str(tmp_path), "1"],
        check=True,
        capture_output=True,
        text=True,
    )
    trials = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(trials) == 20
    assert all(trial["same"] for trial in trials), trials
    assert not any(trial["again"] for trial in trials), trials
    assert all(trial["codes"][-1] == 0 for trial in trials), trials
    assert sum(-9 in trial["codes"] for trial in trials) >= 15  # the others had ended before


def test_a_hundred_kills_of_a_run_or_of_its_workers(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.runs.killed_workers", str(tmp_path), "7", "100"],
        check=True,
        capture_output=True,
        text=True,
    )
    trials = [json.loads(line) for line in done.stdout.splitlines()]
    assert sum(trial["killed"] for trial in trials) >= 100
    assert not any(trial["differ"] for trial in trials), trials
    assert all(trial["codes"][-1] == 0 for trial in trials), trials


def everynet(*words):
    return subprocess.Popen(
        [sys.executable, "-m", "everynet", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def values(folder):
    return table_values(runs.load(of_run(folder, FILE), folder))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    said, error = everynet(
        "run", *LAW[:-2], "--out", out, "--device", "cpu", "--quiet"
    ).communicate()
    return values(Path(said.strip())), error


@pytest.fixture
def updates(tmp_path, monkeypatch):
    path = tmp_path / "updates"
    path.touch()
    monkeypatch.setenv("EVERYNET_TEST_STEPS", str(path))
    return lambda: path.read_text().splitlines()


def children(process):
    """The workers of a process."""
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(word) for word in path.read_text().split()]


def begun(tmp_path, updates, after):
    """A run of two workers that have done so many updates."""
    process = everynet("run", *LAW, "--out", tmp_path / "runs", "--device", "cpu", "--quiet")
    while process.poll() is None and len(updates()) < after:
        time.sleep(0.005)
    return process


def gone(workers):
    """Wait until processes have ended that are nobody's any more."""
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            for _ in range(2000):
                os.kill(worker, 0)
                time.sleep(0.01)
            raise AssertionError(f"worker {worker} goes on without its parent")


def finished(tmp_path, updates, whole, *, lost):
    """Go on, with one or two workers: the same table, and no more repeated than was not saved."""
    (folder,) = (tmp_path / "runs").iterdir()
    resumed = everynet("resume", folder, "--file", FILE, "--jobs", "2", "--quiet")
    assert resumed.wait() == 0, resumed.communicate()
    resumed.communicate()
    same(whole[0], values(folder))
    repeated = len(updates()) - CELLS * STEPS
    assert len({*updates()}) == CELLS * STEPS
    assert repeated <= lost, repeated
    assert not [*folder.glob("cells/**/.*")]  # nothing half-written is left


@pytest.mark.parametrize("after", [30, 1750])
def test_the_parent_is_killed(after, tmp_path, updates, whole):
    """Its workers save what they are at and go, each in its time."""
    process = begun(tmp_path, updates, after)
    workers = children(process)
    process.kill()
    process.communicate()
    assert process.returncode == -9
    gone(workers)
    finished(tmp_path, updates, whole, lost=0)


def test_going_on_at_once_waits_for_orphans(tmp_path, updates, whole):
    process = begun(tmp_path, updates, 700)
    process.kill()
    process.communicate()
    finished(tmp_path, updates, whole, lost=0)


@pytest.mark.parametrize("after", [40, 900])
def test_a_worker_is_killed(after, tmp_path, updates, whole):
    process = begun(tmp_path, updates, after)
    os.kill(children(process)[0], signal.SIGKILL)
    _, error = process.communicate()
    assert process.returncode == 1
    words = "its process was killed by signal 9; the others are saved: everynet resume goes on"
    (line,) = error.splitlines()
    assert line.startswith("everynet: cell lr-0.0")
    assert line.endswith(words)
    finished(tmp_path, updates, whole, lost=EVERY)


def test_all_are_killed_at_once(tmp_path, updates, whole):
    process = begun(tmp_path, updates, 1000)
    workers = children(process)
    for number in (*workers, process.pid):
        os.kill(number, signal.SIGKILL)
    process.communicate()
    finished(tmp_path, updates, whole, lost=2 * EVERY)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_and_saves(number, tmp_path, updates, whole):
    process = begun(tmp_path, updates, 900)
    workers = children(process)
    process.send_signal(number)
    _, error = process.communicate()
    assert process.returncode == 128 + number
    assert "cells done and the rest saved; go on with: everynet resume " in error
    gone(workers)
    finished(tmp_path, updates, whole, lost=0)
