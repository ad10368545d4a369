"""Twenty SIGKILLs at random times and between write and rename, then SIGTERM and Ctrl-C."""

import json
import subprocess
import sys


def test_killed_runs_end_bit_identical(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.core.forks", "kill", str(tmp_path), "1"],
        check=True,
        capture_output=True,
        text=True,
    )
    trials = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(trials) == 26
    assert all(trial["same"] for trial in trials), trials
    assert all(trial["codes"][-1] == 0 for trial in trials), trials
    killed = [t for t in trials if t["how"] not in ("term", "int")]
    assert sum(-9 in t["codes"] for t in killed) >= 18  # the others had ended before
    stops = {code for t in trials if t["how"] in ("term", "int") for code in t["codes"][:-1]}
    assert stops <= {143, 130, 0, -15, -2}
    assert stops & {143, 130}
    assert "everynet resume" in done.stderr
