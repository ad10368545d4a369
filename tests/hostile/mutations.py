"""Learned values of estimators and results of simulations, changed as a stranger may change them.

    python -m tests.hostile.mutations OUT FIRST COUNT [NAME ...]

makes a small run of every fitting and simulation of the zoo (or of those named), changes one value
of one of them in each of so many tries, seals the checkpoint again, and loads, predicts, samples
and draws, each try in a forked child, so that a signal is seen. It prints one JSON line for each.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from everynet import runs
from everynet.recipes.catalog import entries, find
from everynet.runs import checkpoint, job
from everynet.runs.folder import open_run
from everynet.runs.predict import Predictor
from everynet.system.errors import explain

HANG = 60  # seconds of the clock, on a busy machine
ROOM = 4 << 30  # bytes that a try may take more than were taken before it
ODD = (
    *(None, True, False, 0, -1, 1, 2**31, 10**18, 10**30, 0.5, -1e300, math.nan, math.inf),
    *("", "x", [], ["x"], [0], {}, np.float32(3), np.zeros(2, np.int8), torch.zeros(2, 2)),
)
LINES = ["the ___ of it", "a very good film", "not good at all and the"]


def damage(tensor, draw):
    """A tensor that `fit` does not give: other numbers of another type, shape or kind."""
    flat, rows = tensor.reshape(-1), tensor if tensor.ndim else tensor[None]
    size = len(rows)
    ways = {
        "truncated": lambda: rows[: max(0, size - draw.choice([1, 2, size]))],
        "lengthened": lambda: torch.cat([rows, rows[: draw.choice([1, size])]]),
        "empty": lambda: rows[:0],
        "one": lambda: flat[:1],
        "deeper": lambda: tensor[None],
        "type": lambda: tensor.to(
            draw.choice([d for d in (torch.float16, torch.float32, torch.float64, torch.uint8,
                         torch.int16, torch.int32, torch.int64, torch.bool, torch.bfloat16)
                         if d != tensor.dtype])),
        "nan": lambda: put(tensor.double(), draw, math.nan).to(floating(tensor)),
        "inf": lambda: put(tensor.double(), draw, math.inf).to(floating(tensor)),
        "array of text": lambda: np.array(["x"] * len(flat)),
        "plain": lambda: draw.choice(ODD),
        "list": flat[:5].tolist,
    }  # fmt: skip
    way = draw.choice([*ways])
    return way, ways[way]()


def change(tensor, draw):
    """Another tensor of the same type: some are other models, others none at all."""
    flat = tensor.reshape(-1)
    most = torch.finfo(tensor.dtype).max if tensor.is_floating_point() else None
    least, most = (-most, most) if most else limits(tensor)
    ways = {
        "huge": lambda: put(tensor, draw, most),
        "huge, all": lambda: torch.full_like(tensor, most),
        "lowest": lambda: put(tensor, draw, least),
        "minus infinity": lambda: put(
            tensor, draw, -math.inf if tensor.is_floating_point() else -1
        ),
        "negative": lambda: put(tensor, draw, -1 if tensor.dtype != torch.bool else True),
        "beyond": lambda: put(tensor, draw, len(flat) + 1 if tensor.dtype != torch.bool else True),
        "shuffled": lambda: flat[
            torch.randperm(len(flat), generator=torch.Generator().manual_seed(draw.getrandbits(40)))
        ].reshape(tensor.shape),
        "transposed": lambda: tensor.mT.contiguous() if tensor.ndim > 1 else flat.flip(0),
        "zero": lambda: torch.zeros_like(tensor),
        "lowest, all": lambda: torch.full_like(tensor, least),
        "beyond, all": lambda: torch.full_like(tensor, min(most, 10**7)),
        "array": tensor.numpy,
    }
    way = draw.choice([*ways])
    return way, ways[way]()


def limits(tensor):
    if tensor.dtype == torch.bool:
        return False, True
    return torch.iinfo(tensor.dtype).min, torch.iinfo(tensor.dtype).max


def floating(tensor):
    return tensor.dtype if tensor.is_floating_point() else torch.float64


def put(tensor, draw, value):
    copy = tensor.clone()
    if copy.numel():
        copy.view(-1)[draw.randrange(copy.numel())] = value
    return copy


def mutate(values, draw):
    """The values with one change, its name, and whether `fit` could have learned them."""
    copy, name = dict(values), draw.choice([*values])
    what = draw.choice(["damaged", "damaged", "changed", "missing", "additional"])
    if what == "missing":
        del copy[name]
        return copy, f"{name} is missing", False
    if what == "additional":
        extra = draw.choice(["more_", "feature_names_in_", "n_features_in_", "fit_", "order_"])
        copy[extra] = draw.choice(ODD)
        return copy, f"{extra} as well", False
    return mutate_one(copy, name, what, draw)


def mutate_one(copy, name, what, draw):
    """The same for a value that stays there."""
    value = copy[name]
    if isinstance(value, list) and value and all(isinstance(one, Tensor) for one in value):
        at = draw.randrange(len(value))
        if draw.random() < 0.2:
            copy[name] = draw.choice([value[:at], [*value, value[0]], value[::-1], [], 3])
            return copy, f"{name} is of other tensors", False
        copy[name] = [*value]
        way, copy[name][at] = (damage if what == "damaged" else change)(value[at], draw)
        return copy, f"{name}[{at}] {way}", what == "changed"
    if isinstance(value, Tensor):
        way, copy[name] = (damage if what == "damaged" else change)(value, draw)
        return copy, f"{name} {way}", what == "changed"
    if isinstance(value, list):
        others = [value[:-1], [*value, "x"], value[::-1], [], [*value[:-1], 3], ["a"], 7, "text"]
        copy[name] = draw.choice(others)
        return copy, f"{name} is another list", False
    copy[name] = odd = draw.choice(ODD)
    return copy, f"{name} is {odd!r:.30}", type(odd) is type(value)


# ------------------------------------------------------------------------------------------- tries


def make_runs(out, names):
    """A small run of each; its pictures are drawn later, of what was loaded."""
    job.Job.draw, draw = lambda *_: (), job.Job.draw
    found = {}
    for entry in entries()[0]:
        if entry.name in names or (not names and entry.kind in ("fitting", "simulation")):
            recipe = find(entry.name).tiny()
            found[entry.name] = recipe, runs.run(recipe, out, device="cpu").folder
    job.Job.draw = draw
    return found


def given(spec):
    """Inputs to predict from, by the kind of data."""
    if spec["kind"] == "lines":
        return [f"like: {spec['words'][7]}", f"{spec['words'][0]} - {spec['words'][3]}"]
    if spec["kind"] in ("text", "labelled"):
        return LINES
    rows = torch.rand(3, *spec["shape"], generator=torch.Generator().manual_seed(0)).double()
    return (rows if spec["kind"] == "table" else (16 * rows).to(torch.uint8)[:, 0]).numpy()


def answer(recipe, folder, draws):
    """All that a run folder answers, as text."""
    if recipe.kind == "simulation":
        said = repr(sorted(runs.load(recipe, folder)))
    else:
        predictor = Predictor.of(open_run(folder))
        found = predictor.predict(given(predictor.spec), {})
        if hasattr(predictor.model, "sample"):
            found += predictor.sample({"n": 2, "prompt": "The", "length": 8})
        said = json.dumps(found, allow_nan=False)
    if draws:
        runs.draw(recipe, folder)
    return said


def attempt(recipe, folder, draws, usual):
    """How a child that asks the folder ends: its code, or minus the signal; and what it said."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        code, line = 0, ""
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            try:
                taken = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
                resource.setrlimit(resource.RLIMIT_AS, (taken + ROOM, taken + ROOM))
                said = answer(recipe, folder, draws)
                line = "equal" if said == usual else f"other: {said}"
            except Exception as error:
                code, line = explain(error)
                if code == 1:
                    line += "".join(traceback.format_exception(error))[-1500:]
        os.write(write, line[:60_000].encode())
        os._exit(code)
    os.close(write)
    until = time.monotonic() + HANG
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.003)
    with open(read, "rb") as pipe:
        return os.waitstatus_to_exitcode(ended[1]), pipe.read().decode()


def try_all(out, first, count, names):
    """Print how each of so many tries ended; pictures of every fourth are drawn."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    job.render = lambda figure, form: b""  # nobody looks at them
    out.mkdir(parents=True, exist_ok=True)
    found = make_runs(out / "good", names)
    usual = {name: answer(recipe, folder, False) for name, (recipe, folder) in found.items()}
    for seed in range(first, first + count):
        draw = random.Random(seed)
        name = [*found][seed % len(found)]
        recipe, good = found[name]
        folder = shutil.copytree(good, out / "received")
        values, what, like = mutate(checkpoint.load_newest_values(folder), draw)
        path = checkpoint.newest(folder)
        shutil.rmtree(path)
        try:
            checkpoint.save_values(path, values)
        except Exception as error:  # some cannot be stored
            code, said = 2, f"not stored: {error!r:.200}"
        else:
            simulated = recipe.kind == "simulation"
            code, said = attempt(recipe, folder, simulated or seed % 4 == 0, usual[name])
        line = {"seed": seed, "name": name, "kind": recipe.kind, "what": what, "like": like}
        print(json.dumps({**line, "code": code, "said": said[:2000]}), flush=True)
        shutil.rmtree(folder)


if __name__ == "__main__":
    try_all(Path(sys.argv[1]).resolve(), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
