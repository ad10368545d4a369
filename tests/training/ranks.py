"""What each of two processes does, one thing after the other: `python -m tests.training.ranks OUT`.

They are started with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT alone. Each writes what it found
as JSON to OUT/NAME-RANK; the last thing goes on until one is killed.
"""

import contextlib
import io
import json
import os
import sys
import traceback
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from everynet import runs
from everynet.cli import main
from everynet.data.dataset import Record
from everynet.nn.ema import EMA
from everynet.recipes.state import State
from everynet.runs.job import Job
from everynet.runs.log import Log
from everynet.system.errors import UserError
from everynet.training.processes import SharedState, joined
from tests.runs import recipes

RECIPES = Path(recipes.__file__)
CPU = torch.device("cpu")
REFUSED = "everynet: {} cannot be trained by several processes: run it without them\n"
LEARNED = {"fp32": (50, 1e-6, "256,128"), "fp64": (300, 1e-9, "32,16")}
"""Updates by precision, how close two processes come to one, and layers: few for many updates."""


def without_pictures():
    """Drawing is for other tests."""
    Job.draw = lambda _job, _model: ()


def words(precision, out):
    """`mlp-mnist` on generated digits, so that it needs no download."""
    steps, _, hidden = LEARNED[precision]
    return ["run", "mlp-mnist", "data=strokes:1000", f"hidden={hidden}", f"steps={steps}",
            "eval_every=50", "--precision", precision, "--device", "cpu", "--quiet",
            "--out", str(out)]  # fmt: skip


def begun(out, name="momentum"):
    """A run of few steps, which a resumption goes on with."""
    return ["run", f"{RECIPES}:{name}", "steps=20", "--precision", "fp64", "--device", "cpu",
            "--quiet", "--out", str(out)]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Averaged(recipes.Small):
    """Averaged weights, which are equal in all processes."""

    name: str = "averaged"

    def extra(self, model):
        return EMA(model, 0.9)


def averaged(out):
    """The folder of a run of two processes."""
    return str(runs.run(Averaged(), out, device="cpu", precision="fp64").folder)


def longer(out):
    """Go on with the one run in a folder."""
    (folder,) = out.iterdir()
    return ["resume", str(folder), "steps=40", "--file", str(RECIPES), "--quiet"]


def grouped(out):
    """Two runs in a group that is not everynet's: both in it, and it goes on afterwards."""
    dist.init_process_group("gloo")
    shown, votes, folders, finals = io.StringIO(), torch.ones(()), [], []

    def final(*_):
        finals.append(1)
        return {"final": 1.0}

    with contextlib.redirect_stderr(shown):
        for name in ("small", "momentum"):
            recipe = replace(recipes.RECIPES[name], name=name)
            recipe = type(type(recipe).__name__, (type(recipe),), {"final": final})(**vars(recipe))
            folders.append(str(runs.run(recipe, out / "group", device="cpu", show=True).folder))
    dist.all_reduce(votes)
    dist.destroy_process_group()
    return {
        "folders": folders, "votes": votes.item(), "shown": shown.getvalue(), "finals": len(finals)
    }  # fmt: skip


def said(command):
    """The exit code of a command, and what it printed."""
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        code = main(command)
    return {"code": code, "out": out.getvalue(), "error": error.getvalue()}


def state(world=None):
    torch.manual_seed(0)
    net = nn.ModuleDict({n: nn.Linear(3, 1) for n in ("all", "first", "none")}).double()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    optimizers = {"main": optimizer}
    if world is None:
        return State(net, nn.Module(), optimizers)
    return SharedState(net, nn.Module(), optimizers, world=world)


def gradients(world, mine, tokens):
    """Unequal weights equal one process on the whole; absent gradients; one message."""
    for weight in (float(len(mine)), torch.tensor(len(mine))):
        apart, whole = state(world), state()
        apart.descend(apart.model["all"](mine).square().mean(), weight=weight)
        whole.descend(whole.model["all"](tokens).square().mean())
        for a, b in zip(apart.model.parameters(), whole.model.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-14, atol=1e-15)
    given, sent, real = state(world), [], dist.all_reduce
    dist.all_reduce = lambda *a, **k: (sent.append(1), real(*a, **k))[1]
    first = given.model["first"](mine).mean() if world.rank == 0 else 0
    given.descend(given.model["all"](mine).mean() + first)
    dist.all_reduce = real
    assert len(sent) == 1, "one message"
    gradient = given.model["first"].weight.grad
    torch.testing.assert_close(gradient[0], tokens[:5].mean(0) / 2)
    assert given.model["none"].weight.grad is None


def line_search(world):
    """It must not see its own loss alone."""
    x = nn.Parameter(torch.tensor([4.0], dtype=torch.float64))
    lbfgs = {"main": torch.optim.LBFGS([x], max_iter=20, line_search_fn="strong_wolfe")}
    both = SharedState(nn.Module(), nn.Module(), lbfgs, world=world)
    both.descend(lambda: (x - world.rank).square().sum())
    assert abs(x.item() - 0.5) < 1e-6, x


def terms(world):
    """Those that come and go are averaged; what is said of those that one process alone has."""
    log = Log()
    for step in (1, 2, 3):
        found = {"loss": torch.tensor(float(world.rank + step))}
        if step == 2:
            found["_odd"] = torch.tensor(world.rank * 4.0)
        log.pending.append(Record(step, found))
    log.flush(world)
    assert log.rows == [
        {"step": 1, "train": {"loss": 1.5}},
        {"step": 2, "train": {"loss": 2.5, "_odd": 2.0}},
        {"step": 3, "train": {"loss": 3.5}},
    ], log.rows
    log.pending.append(Record(4, {"loss": torch.tensor(1.0)} if world.rank else {}))
    try:
        log.flush(world)
    except UserError as error:
        return str(error)
    return "agreed"


def threads():
    """The names of the threads of this process; Linux's."""
    tasks = Path("/proc/self/task")
    return [(t / "comm").read_text().strip() for t in tasks.iterdir()] if tasks.exists() else []


def together():
    """What is refused of terms; the threads that there are meanwhile and afterwards."""
    with joined(CPU) as world:
        tokens = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        gradients(world, tokens[:5] if world.rank == 0 else tokens[5:], tokens)
        line_search(world)
        refused, during = terms(world), threads()
    return {"refused": refused, "during": during, "then": threads()}


def all_of_it(out):
    things = {
        "fp32": lambda: said(words("fp32", out / "fp32")),
        "together": together,
        "fp64": lambda: said(words("fp64", out / "fp64")),
        "grouped": lambda: grouped(out),
        "averaged": lambda: averaged(out / "averaged"),
        "twos": lambda: said(begun(out / "twos")),
        "ones": lambda: said(longer(out / "ones")),
        "per-rank": lambda: said(longer(out / "per-rank")),
        "sweep": lambda: said(["sweep", f"{RECIPES}:small", "lr=0.1,0.2", "--out", str(out)]),
        "raises": lambda: said(["run", f"{RECIPES}:raises", "--out", str(out), "--device", "cpu"]),
    }
    for name, thing in things.items():
        found = out / f"{name}-{os.environ['RANK']}"
        found.with_suffix(".part").write_text(json.dumps(thing()))
        found.with_suffix(".part").rename(found)
    return main(["run", f"{RECIPES}:endless", "--out", str(out), "--device", "cpu"])


if __name__ == "__main__":
    without_pictures()
    try:
        code = all_of_it(Path(sys.argv[1]))
    except BaseException:
        traceback.print_exc()
        os._exit(1)  # the other may wait for ever
    sys.exit(code)
