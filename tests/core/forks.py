"""Many real processes at the price of one import: each trial is a fork of this script.

    python -m tests.core.forks folders OUT     fifty processes make a run folder together
    python -m tests.core.forks kill OUT SEED   runs are killed at random and resumed to the end

The second prints one JSON line a trial; a run that was broken must end as the unbroken one did.
"""

import contextlib
import io
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

import everynet.runs  # noqa: F401 -- before the first fork, so that each is spared it
from everynet import checkpoint, files
from everynet.cli import main

RECIPES = Path(__file__).with_name("recipes.py")
STEPS = 200  # of the recipe that is killed


def fork(action):
    """Start `action` in a process of its own; its exit code is what it returns."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 99
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                code = action()
        finally:
            os._exit(code)
    return child


def ended(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def folders(out):
    read, write = os.pipe()

    def make(said):
        os.read(read, 1)
        path = files.write_new_folder(out, "same", {"recipe.json": b"{}"})
        os.write(said, f"{path}\n".encode())
        return 0

    back, said = os.pipe()
    children = [fork(lambda: make(said)) for _ in range(50)]
    os.write(write, b"x" * 50)
    codes = [ended(child) for child in children]
    os.close(said)
    assert codes == [0] * 50
    with os.fdopen(back) as lines:
        print(lines.read(), end="")


def contents(folder):
    """The bytes that must not depend on how the run was broken."""
    bundles = {p.name: checkpoint.read_bundle(p) for p in (folder / "checkpoints").iterdir()}
    return bundles, (folder / "metrics.jsonl").read_bytes()


def start(out):
    return main(["run", f"{RECIPES}:killed", "--out", str(out), "--device", "cpu", "--quiet"])


def go_on(folder):
    return main(["resume", str(folder), "--file", str(RECIPES), "--quiet"])


def die_at(operation, n, action):
    """Kill this process just before its n-th `operation` on the files of a run."""

    class Deadly:
        left = n

        def __getattr__(self, name):
            if name == operation:
                self.left -= 1
                if self.left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return getattr(os, name)

    files.os = Deadly()
    return action()


def running(child):
    """Whether a process has not ended yet; it stays to be waited for."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def wait_until(out, step, child):
    """Wait until the run has saved `step` or more, or has ended: no clock decides how far it is."""
    while running(child):
        folder = next(out.glob("killed-*"), None)
        if folder is not None and (checkpoint.steps(folder) or [-1])[-1] >= step:
            return
        time.sleep(0.001)


def trial(out, how, draw):
    """Break a run, break its resumption perhaps, then let it end; say how each process ended."""
    codes, found, step = [], [], -1
    while not found or (draw.random() < 0.3 and len(codes) < 3):
        action = (lambda: go_on(found[0])) if found else (lambda: start(out))  # noqa: B023
        if how in ("write", "rename", "fsync"):
            n = draw.randrange(2, 40)
            child = fork(lambda: die_at(how, n, action))  # noqa: B023 -- forked at once
        else:
            child = fork(action)
            step = draw.randrange(min(step + 1, STEPS - 21), STEPS - 20)
            wait_until(out, step, child)
            time.sleep(draw.uniform(0, 0.02))  # anywhere in an update, a save or an evaluation
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, {"term": signal.SIGTERM, "int": signal.SIGINT}.get(how, 9))
        codes.append(ended(child))
        found = list(out.glob("killed-*"))
    codes.append(ended(fork(lambda: go_on(found[0]))))
    return found[0], codes


def kill(out, seed):
    torch.set_num_threads(1)
    assert ended(fork(lambda: start(out / "whole"))) == 0
    (whole,) = (out / "whole").iterdir()
    draw = random.Random(seed)
    plan = (
        ["kill"] * 12 + ["write"] * 3 + ["rename"] * 3 + ["fsync"] * 2 + ["term"] * 3 + ["int"] * 3
    )
    for number, how in enumerate(plan):
        folder, codes = trial(out / str(number), how, draw)
        same = contents(folder) == contents(whole)
        print(json.dumps({"how": how, "codes": codes, "same": same}))


if __name__ == "__main__":
    if sys.argv[1] == "folders":
        folders(Path(sys.argv[2]))
    else:
        kill(Path(sys.argv[2]), int(sys.argv[3]))
