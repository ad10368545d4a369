"""Killed at any moment, or asked to stop, a run of any kind ends with the same bytes."""

import json
import subprocess
import sys
from collections import Counter

import pytest

KINDS = 9


def killed(out, seed, kills, kinds=KINDS):
    """Break so many runs, and hold every one of them to the bytes of the unbroken one.

    A kill at a random time can come too late for a short run; so many kinds must have had one.
    """
    command = [sys.executable, "-m", "tests.runs.forks", str(out), str(seed), str(kills)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    trials, count = [json.loads(line) for line in done.stdout.splitlines()], Counter()
    for one in trials:
        *broken, last = one["codes"]
        assert one["folders"] == 1, one
        assert not one["differ"], one
        assert last == 0, one
        if one["how"] == "SIGKILL":
            assert {*broken} <= {-9, 0}, one
            count[one["recipe"]] += broken.count(-9)
        else:
            assert broken == [{"SIGTERM": 143, "SIGINT": 130}[one["how"]]], one
    assert sum(count.values()) >= kills
    assert len(count) == KINDS
    assert sum(map(bool, count.values())) >= kinds, count
    assert {one["how"] for one in trials} == {"SIGKILL", "SIGTERM", "SIGINT"}
    assert done.stderr.count("everynet resume") == 2


def test_twenty_kills(tmp_path):
    killed(tmp_path, 1, 20, kinds=KINDS - 3)


@pytest.mark.slow
def test_two_hundred_kills(tmp_path):
    """A minute of a core; found a cell whose older checkpoint stayed for good."""
    killed(tmp_path, 2, 200)
