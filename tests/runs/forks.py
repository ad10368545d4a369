"""Many real processes at the price of one import: each trial is a fork of this script.

    python -m tests.runs.forks OUT SEED KILLS

Runs of every kind are killed so often in all, and two are asked to stop. It prints one JSON line a
trial: a run that was broken, and whose resumptions were, must end with the bytes of the unbroken
one.
"""

import contextlib
import io
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import torch
from matplotlib.figure import Figure

from everynet import runs
from everynet.cli import main
from everynet.recipes.catalog import find
from everynet.runs import training_job
from everynet.system import files
from tests.hostile.recipes import RECIPES as SMALL
from tests.runs.laws import Law
from tests.runs.recipes import RECIPES as CORE

FILE = Path(__file__).with_name("recipes.py")
OPERATIONS = ("open", "write", "fsync", "rename", "mkdir", "unlink", "ftruncate")
CLOCK = {"timing.jsonl", "environment.json", "manifest.json", "card.md", "lock"}
"""What holds the hour or the seconds, of the run folder itself."""
MOST = 4  # kills of one run


def recipes():
    """One of each kind of state: see what each carries from one update to the next."""
    often = {"steps": 12, "eval_every": 4, "save_every": 2}
    made = {
        "momentum": replace(CORE["momentum"], **often),  # the moments of one optimiser
        "gan": replace(CORE["gan"], **often),  # two players, an optimiser each
        "ema": replace(CORE["killed"], **often),  # an average, dropout, a schedule
        "painting": CORE["painting"],  # lists of L-BFGS
        "catch": replace(find("catch").tiny(), save_every=1),  # a replay memory and games
        "char-rnn": replace(find("char-rnn").tiny(), save_every=1),  # the state of lanes
        "law": Law(rates=(0.1, 1e30), steps=6, every=2),  # cells, of which two explode
        "nearest": SMALL["nearest"],  # a fitting
        "walk": SMALL["walk"],  # a simulation
    }
    return {name: replace(recipe, name=name) for name, recipe in made.items()}


# --------------------------------------------------------------------------------------- processes


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


# ------------------------------------------------------------------------------------------- kills


class Counting:
    """The `os` of files.py: something happens just before its n-th operation of a kind."""

    def __init__(self, kind="", n=0, action=None):
        self.done, self.kind, self.n, self.action = Counter(), kind, n, action

    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in OPERATIONS:
            return real

        def counted(*arguments, **options):
            self.done[name] += 1
            if (name, self.done[name]) == (self.kind, self.n):
                self.action(real, *arguments)
            return real(*arguments, **options)

        return counted


def die(real, *arguments):
    """End here and now; of what was to be written, half has been."""
    if real is os.write:
        descriptor, content = arguments
        os.write(descriptor, content[: len(content) // 2])
    os.kill(os.getpid(), signal.SIGKILL)


def begin(recipe, out):
    runs.run(recipe, out, device="cpu")
    return 0


def go_on(recipe, folder):
    runs.resume(recipe, folder)
    return 0


def whole(recipe, out):
    """The folder of an unbroken run, and how many operations of each kind on files it took.

    It is made in this process, so that what a first run imports is there for all forks.
    """
    files.os = counting = Counting()
    begin(recipe, out)
    files.os = os
    (folder,) = out.iterdir()
    return folder, counting.done


def killed(action, kind, n, seconds):
    """The exit code of a process that is killed at an operation on a file, or so long after it."""
    told, tell = os.pipe()

    def dying():
        os.close(told)
        at = die if seconds is None else lambda *_: os.write(tell, b"x")
        files.os = Counting(kind, n, at)
        return action()

    child = fork(dying)
    os.close(tell)
    if seconds is not None and os.read(told, 1):  # nothing if it has ended before
        time.sleep(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    os.close(told)
    return ended(child)


def trial(recipe, out, operations, draw):
    """Kill a run and its resumptions a few times, then let it end; how each process ended."""
    codes, found = [], []
    for _ in range(draw.randrange(1, MOST + 1)):
        folder = found[0] if found else None
        seconds = draw.uniform(0, 0.02) if draw.random() < 0.4 else None  # in an update, say
        kind = draw.choice(sorted(operations))
        n = draw.randrange(1, operations[kind] + 1)
        action = (lambda: go_on(recipe, folder)) if folder else (lambda: begin(recipe, out))  # noqa: B023
        codes.append(killed(action, kind, n, seconds))
        found = [*out.glob(f"{recipe.name}-*")]  # none if it was killed before
        if codes[-1] == 0:
            break
    if not found:
        codes.append(ended(fork(lambda: begin(recipe, out))))
        found = [*out.glob(f"{recipe.name}-*")]
    else:
        codes.append(ended(fork(lambda: go_on(recipe, found[0]))))
    return found, codes


def contents(folder):
    """The bytes that must not depend on how the run was broken."""
    found = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    return {
        str(name): path.read_bytes()
        for name, path in found.items()
        if name.name not in CLOCK or (name.name == "manifest.json" and "checkpoints" in name.parts)
    }


def tell(how, name, codes, found, reference):
    """Print how a trial ended, and which files are not those of the unbroken run."""
    wanted, differ = contents(reference), []
    for folder in found:
        given = contents(folder)
        differ += [n for n in sorted({*wanted, *given}) if wanted.get(n) != given.get(n)]
    line = {"how": how, "recipe": name, "codes": codes, "folders": len(found), "differ": differ}
    print(json.dumps(line), flush=True)


def kill(out, seed, kills):
    draw, done = random.Random(seed), 0
    known = {name: (r, *whole(r, out / "whole" / name)) for name, r in recipes().items()}
    for number, name in enumerate(cycle(known)):
        if done >= kills:
            break
        recipe, reference, operations = known[name]
        found, codes = trial(recipe, out / str(number), operations, draw)
        done += codes.count(-signal.SIGKILL)
        tell("SIGKILL", name, codes, found, reference)
    stop(out, draw)


# ------------------------------------------------------------------------------------------- stops


def stop(out, draw):
    """By the command line, whose exit codes and words are promised."""
    words = ["run", f"{FILE}:killed", "--device", "cpu", "--quiet", "--out"]
    with contextlib.redirect_stdout(io.StringIO()):
        assert main([*words, str(out / "stopped")]) == 0
    (reference,) = (out / "stopped").iterdir()
    for number in (signal.SIGTERM, signal.SIGINT):
        where, at = out / number.name, draw.randrange(10, 100)

        def signalled(where=where, at=at, number=number):
            files.os = Counting("write", at, lambda *_: os.kill(os.getpid(), number))
            return main([*words, str(where)])

        codes = [ended(fork(signalled))]
        (folder,) = where.iterdir()
        again = ["resume", str(folder), "--file", str(FILE), "--quiet"]
        codes.append(ended(fork(lambda again=again: main(again))))
        tell(number.name, "killed", codes, [folder], reference)


def small_pictures():
    """Drawing is for other tests: here a picture is a file to be written."""
    training_job.learning_curve = lambda *_: Figure(figsize=(1, 1))
    for name in ("catch", "char-rnn"):
        type(find(name)).pictures = lambda *_: {"empty": Figure(figsize=(1, 1))}


if __name__ == "__main__":
    torch.set_num_threads(1)
    small_pictures()
    kill(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
