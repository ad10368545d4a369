"""Experiments and sweeps that are killed at a file operation and gone on with, each in a fork.

    python -m tests.runs.broken OUT SEED     prints one JSON line a trial

A trial kills the run just before its n-th write, rename or flush, and perhaps its resumption; then
it lets the run end, and says whether the table is that of the unbroken one and whether a cell that
had ended was trained again.
"""

import json
import random
import sys
from pathlib import Path

import torch

from everynet import runs
from everynet.cli import main
from everynet.recipes.stored import of_run
from tests.runs import laws
from tests.runs.forks import ended, fork, killed
from tests.test_contract import table_values

FILE = Path(laws.__file__)
COMMANDS = {
    "law": ["run", f"{FILE}:law", "every=5"],
    "sweep": ["sweep", f"{FILE}:steep", "lr=0.01,0.1,0.5,1e30", "--halving", "--seeds", "2"],
}


def start(name, out, more=()):
    return main([*COMMANDS[name], "--out", str(out), "--device", "cpu", "--quiet", *more])


def go_on(folder, more=()):
    return main(["resume", str(folder), "--file", str(FILE), "--quiet", *more])


def values(folder):
    return table_values(runs.load(of_run(folder, FILE), folder))


def alike(left, right):
    return left.keys() == right.keys() and all(
        torch.equal(torch.as_tensor(left[name]), torch.as_tensor(right[name])) for name in left
    )


def done(folder):
    """When each cell ended, as far as it was trained."""
    ends = folder.glob("cells/*/ended.json")
    return {(p.parent.name, p.read_bytes()): p.stat().st_mtime_ns for p in ends}


def trial(name, out, draw):
    codes, found, kept = [], [], {}
    while not found or (draw.random() < 0.4 and len(codes) < 4):
        action = (lambda: go_on(found[0])) if found else (lambda: start(name, out))  # noqa: B023
        how, n = draw.choice(["write", "rename", "fsync"]), draw.randrange(5, 120)
        codes.append(killed(action, how, n, None))
        found = list(out.glob("*-*"))
        kept |= done(found[0]) if found else {}
    codes.append(ended(fork(lambda: go_on(found[0]))))
    last = done(found[0])
    again = [cell for cell, when in kept.items() if last.get(cell, when) != when]
    return found[0], codes, again


def kill(out, seed):
    torch.set_num_threads(1)
    draw = random.Random(seed)
    for name in COMMANDS:
        assert ended(fork(lambda: start(name, out / name))) == 0  # noqa: B023 -- forked at once
        (whole,) = (out / name).iterdir()
        unbroken = values(whole)
        for number in range(10):
            folder, codes, again = trial(name, out / f"{name}{number}", draw)
            same = alike(values(folder), unbroken)
            print(json.dumps({"what": name, "codes": codes, "same": same, "again": again}))


if __name__ == "__main__":
    kill(Path(sys.argv[1]), int(sys.argv[2]))
