"""Run folders as a stranger may send them: real ones, changed by one to three of many tricks.

    python -m tests.hostile.generator OUT FIRST COUNT

makes that many folders and tries every verb on each, in this one process; it prints one JSON line
for each try. A tree of files that the tricks point at must stay as it was.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import warnings
from pathlib import Path

import torch
from matplotlib.figure import Figure
from safetensors.torch import load, save

import everynet
from everynet import runs
from everynet.cli import main
from everynet.runs import training_job
from everynet.system.errors import explain
from tests.hostile.recipes import RECIPES
from tests.runs.sealed import reseal, reseal_bundle

FILE = str(Path(__file__).with_name("recipes.py"))
NAMES = [f"{part} {size} (cm)" for part in ("sepal", "petal") for size in ("length", "width")]
ROWS = ",".join(NAMES) + "\n5.1,3.5,1.4,0.2\n6.3,3.3,6.0,2.5\n"
HANG = 60  # seconds of the clock, on a busy machine
ODD = (
    *(None, True, -1, 0, 1, 3, 10**18, -1e308, 0.5, "", "x", "²", "../../canary", "/dev/zero"),
    *([], [[]], {}, {"tensor": "a"}, ["x"] * 3, {"float": "nan"}, "\x1b[31m", "a" * 5000),
)
KEPT = ("steps", "file", "class")  # a longer run is no trick; the others say whose code it is


def seed_runs(out):
    """One small run of each kind."""
    found = {}
    for name, recipe in RECIPES.items():
        named = type(recipe)(name=name)
        found[name] = runs.run(named, out, device="cpu").folder
    return found


def make_canary(path):
    """A home with things in it that look like those of a run."""
    for name in ("checkpoints/0", "checkpoints/3", "photos/2024", "cells/lr-0.1/measured/4"):
        (path / name).mkdir(parents=True)
        (path / name / "holiday.txt").write_text(name)
    shutil.copytree(path / "checkpoints" / "0", path / "checkpoints" / "best-2")
    for name in (".bashrc", "metrics.jsonl", "recipe.json.txt", "notes"):
        (path / name).write_text(f"alias {name}\n" * 50)
    return path


def state_of(path):
    """Every name below a folder, with its kind, contents and times."""
    found = {}
    for folder, folders, names in os.walk(path):
        for name in (*folders, *names):
            one = Path(folder) / name
            status = one.lstat()
            plain = stat.S_ISREG(status.st_mode)
            content = one.read_bytes() if plain else b""
            found[str(one)] = (stat.S_IFMT(status.st_mode), status.st_mtime_ns, content)
    return found


# ---------------------------------------------------------------------------------------- tricks


def some_file(folder, draw, *ends):
    """One of the files of a run, of those names or ends."""
    found = sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())
    return draw.choice([p for p in found if not ends or p.name.endswith(ends)] or found)


def some_folder(folder, draw):
    return draw.choice(sorted(p for p in folder.rglob("*") if p.is_dir() and not p.is_symlink()))


def again(path):
    """Seal what a changed file belongs to, as far as that can be done."""
    with contextlib.suppress(OSError):
        bundle = path.name in ("model.safetensors", "state.safetensors", "state.json")
        (reseal_bundle if bundle else reseal)(path.parent)


def linked_file(folder, draw, canary):
    path = some_file(folder, draw)
    target = draw.choice([canary / ".bashrc", canary / "metrics.jsonl", "/dev/zero", "nowhere"])
    path.unlink()
    path.symlink_to(target)
    return f"{path.name} -> {target}"


def linked_folder(folder, draw, canary):
    path = some_folder(folder, draw)
    target = draw.choice([canary, canary / "checkpoints", canary / "photos", canary / "cells"])
    shutil.rmtree(path)
    path.symlink_to(target)
    return f"{path.name} -> {target.name}"


def hard_link(folder, draw, canary):
    path = folder / draw.choice(["metrics.jsonl", "timing.jsonl", "lock", "card.md"])
    path.unlink(missing_ok=True)
    os.link(canary / ".bashrc", path)
    return f"{path.name} is a hard link"


def no_file(folder, draw, _canary):
    path = some_file(folder, draw)
    path.unlink()
    kind = draw.choice(["fifo", "socket", "device", "folder"])
    here = os.getcwd()
    try:
        os.chdir(path.parent)  # the name of a socket must be short
        if kind == "fifo":
            os.mkfifo(path.name)
        elif kind == "socket":
            with socket.socket(socket.AF_UNIX) as one:
                one.bind(path.name)
        elif kind == "folder":
            os.mkdir(path.name)
        else:
            with contextlib.suppress(PermissionError):
                os.mknod(path.name, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero
    finally:
        os.chdir(here)
    return f"{path.name} is a {kind}"


def sparse(folder, draw, _canary):
    path = some_file(folder, draw)
    os.truncate(path, draw.choice([0, 1, 100 << 20, 10 << 30]))
    return f"{path.name} has {path.stat().st_size} bytes"


def odd_names(folder, draw, canary):
    names = ("²", "007", "9" * 30, "best-x", "best-²", "-1", "a\nb", ".everynet-", "\x1b[31m")
    parent = draw.choice([folder, *(p for p in folder.rglob("checkpoints") if p.is_dir())])
    name = draw.choice(names)
    (parent / name).mkdir(exist_ok=True)
    swept = parent / f".everynet-{'0' * 16}-left"
    swept.symlink_to(canary / "photos")
    return f"{name!r} in {parent.name}"


def deep_folders(folder, draw, _canary):
    name = draw.choice([f".everynet-{'1' * 16}-4", "5", "pictures"])
    handle = os.open(folder / "checkpoints", os.O_RDONLY)
    try:
        for _ in range(1500):
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=handle)
            inner = os.open(name, os.O_RDONLY, dir_fd=handle)
            os.close(handle)
            handle, name = inner, "d"
    finally:
        os.close(handle)
    return "1,500 folders in each other"


def odd_tensors(folder, draw, _canary):
    path = some_file(folder, draw, ".safetensors")
    tensors = load(path.read_bytes())
    made = {
        "short": lambda t: torch.zeros(3),
        "flat": lambda t: t.reshape(-1),
        "double": lambda t: t.double(),
        "whole": lambda t: t.long(),
        "none": lambda t: t.reshape(-1)[:0],
        "nan": lambda t: t * float("nan"),
        "long": lambda t: torch.zeros(2 * t.numel() + 1),
    }
    kind = draw.choice([*made, "names", "more", "F4"])
    chosen = [n for n in sorted(tensors) if draw.random() < 0.5] or sorted(tensors)
    if kind in made:
        tensors |= {n: made[kind](tensors[n]).contiguous() for n in chosen}
    elif kind == "names":
        tensors = {f"{n}x" if n in chosen else n: t for n, t in tensors.items()}
    elif kind == "more":
        tensors["optimizer/main/model/0.weight/more"] = torch.zeros(2)
    content = save(tensors)
    path.write_bytes(content.replace(b'"F32"', b'"F4" ') if kind == "F4" else content)
    again(path)
    return f"{path.name}: {kind}"


def odd_json(folder, draw, _canary):
    path = some_file(folder, draw, ".json")
    try:
        value = json.loads(path.read_bytes())
    except ValueError:
        value = {}
    for _ in range(draw.randrange(1, 4)):
        value = changed(value, draw)
    if draw.random() < 0.1:
        for _ in range(draw.choice([70, 3000])):
            value = [value]
    with contextlib.suppress(RecursionError):
        path.write_bytes(json.dumps(value, sort_keys=True, indent=1).encode())
    again(path)
    return f"{path.name} has another value"


def changed(value, draw, depth=0):
    """The same JSON with something else at one place."""
    keys = []
    if isinstance(value, dict):
        keys = [k for k in value if k not in KEPT]
    elif isinstance(value, list):
        keys = [*range(len(value))]
    if not keys or (depth and draw.random() < 0.2):
        return draw.choice(ODD)
    key, copy = draw.choice(keys), value.copy()
    if isinstance(value, dict) and draw.random() < 0.1:
        copy[draw.choice(["x", "__class__", "../a", "²"])] = copy.pop(key)
    elif draw.random() < 0.1:
        del copy[key]
    else:
        copy[key] = changed(value[key], draw, depth + 1)
    return copy


def odd_log(folder, draw, _canary):
    path = some_file(folder, draw, ".jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    odd = (
        b'{"step": "x"}\n',
        b"[]\n",
        b"\xff\n",
        b"[" * 5000 + b"\n",
        b'{"step": 1, "valid": 3}\n',
    )
    lines.insert(draw.randrange(len(lines) + 1), draw.choice(odd))
    path.write_bytes(b"".join(lines[: draw.randrange(1, len(lines) + 1)]))
    return f"{path.name} has another line"


def old_name(folder, draw, _canary):
    """A file of the user's that a careless sweep would take."""
    (folder / "checkpoints" / draw.choice([".notes.markdown", ".git.worktree"])).write_text("mine")
    return "a file of the user's"


TRICKS = (
    *(linked_file, linked_folder, hard_link, no_file, sparse, odd_names, deep_folders),
    *(odd_tensors, odd_tensors, odd_json, odd_json, odd_json, odd_log, old_name),
)


def receive(good, to, seed, canary):
    """A folder with one to three tricks, and what they are."""
    draw = random.Random(seed)
    name = draw.choice(["flowers", "flowers", "nearest", "walk", "rates"])
    shutil.copytree(good[name], to)
    told = [name]
    for _ in range(draw.choice([1, 1, 2, 3])):
        with contextlib.suppress(Exception):  # a trick upon a trick may fail
            told.append(draw.choice(TRICKS)(to, draw, canary))
    return told


# ----------------------------------------------------------------------------------------- verbs


def load_it(folder):
    """`everynet.load` by the rules of the command line."""
    try:
        everynet.load(folder, FILE)
    except Exception as error:  # every one has a code
        code, line = explain(error)
        print(f"everynet: {line}", file=sys.stderr)
        return code
    return 0


def verbs(folder, rows):
    mine = ("--file", FILE)
    yield "runs", lambda: main(["runs", "--out", str(folder.parent)])
    yield "show", lambda: main(["runs", str(folder)])
    yield "load", lambda: load_it(folder)
    yield "predict", lambda: main(["predict", str(folder), str(rows), *mine, "--device", "cpu"])
    yield "draw", lambda: main(["draw", str(folder), *mine])
    yield "resume", lambda: main(["resume", str(folder), *mine, "--quiet"])


def late(_number, _frame):
    raise SystemExit("hangs")


def attempt(action):
    """The exit code of a verb, its CPU seconds, the megabytes it took, what it complained of."""
    before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    complaint = io.StringIO()
    signal.alarm(HANG)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(complaint):
            code = action()
    except SystemExit:
        code = 124
    finally:
        signal.alarm(0)
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return code, time.process_time() - begun, more / 1024, complaint.getvalue()


def try_all(out, first, count):
    """Print how each verb ended on each of so many folders."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    training_job.learning_curve = lambda *_: Figure(figsize=(1, 1))  # slow, and drawn by us
    signal.signal(signal.SIGALRM, late)
    out.mkdir(parents=True, exist_ok=True)
    good = seed_runs(out / "good")
    canary = make_canary(out / "around" / "canary")
    rows = out / "around" / "rows.csv"
    rows.write_text(ROWS)
    (out / "around" / "here").mkdir()
    os.chdir(out / "around" / "here")
    for seed in range(first, first + count):
        folder = out / "received" / "evil"
        folder.parent.mkdir(exist_ok=True)
        told = receive(good, folder, seed, canary)
        before = state_of(out / "around")
        for verb, action in verbs(folder, rows):
            code, seconds, megabytes, said = attempt(action)
            same = state_of(out / "around") == before
            line = {"seed": seed, "told": told, "verb": verb, "code": code, "same": same}
            line |= {"seconds": seconds, "megabytes": megabytes, "said": said[-400:]}
            print(json.dumps(line), flush=True)
        subprocess.run(["rm", "-rf", str(folder)], check=True)  # it may be too deep for Python


if __name__ == "__main__":
    try_all(Path(sys.argv[1]).resolve(), int(sys.argv[2]), int(sys.argv[3]))
