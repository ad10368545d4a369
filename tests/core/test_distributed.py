"""Two processes under torchrun learn what one does, and a lost one is named."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch

from everynet.distributed import World
from everynet.types import UserError

RECIPES = Path(__file__).with_name("recipes.py")


@contextmanager
def torchrun(*words, program=("-m", "everynet")):
    """Two processes of everynet; whatever happens, none of them outlives the test."""
    started = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
         "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", *program, *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield started
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.communicate()


def losses(folder, count):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    terms = [sum(row["train"].values()) for row in rows if "train" in row]
    assert len(terms) >= count
    return torch.tensor(terms[:count], dtype=torch.float64)


@pytest.mark.parametrize(("precision", "steps", "close"), [("fp32", 50, 1e-6), ("fp64", 300, 1e-9)])
def test_two_processes_learn_what_one_does(precision, steps, close, tmp_path):
    """`mlp-mnist` itself on generated digits, so that it needs no download."""
    from everynet.cli import main

    words = ["run", "mlp-mnist", "data=strokes:1000", f"steps={steps}", "--precision", precision,
             "--device", "cpu", "--quiet", "--out"]  # fmt: skip
    assert main([*words, str(tmp_path / "one")]) == 0
    with torchrun(*words, str(tmp_path / "two")) as both:
        said, errors = both.communicate(timeout=240)
    assert both.returncode == 0, errors
    (one,), (two,) = (tmp_path / "one").iterdir(), (tmp_path / "two").iterdir()
    assert said.split() == [str(two)]  # one process writes and speaks
    torch.testing.assert_close(losses(two, steps), losses(one, steps), rtol=0, atol=close)


def test_a_killed_process_is_named_and_the_others_end(tmp_path):
    words = ("run", f"{RECIPES}:endless", "--out", str(tmp_path), "--device", "cpu")
    with torchrun(*words) as both:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("endless-*/checkpoints/1*")):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        os.kill(process_of(1, tmp_path), signal.SIGKILL)
        begun = time.monotonic()
        _, errors = both.communicate(timeout=60)
        assert time.monotonic() - begun < 30
    assert both.returncode != 0
    assert "rank 0 stops: rank 1 was killed" in errors


def process_of(rank, out):
    """The process of a rank, found as the system lists it."""
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (path / "cmdline").read_bytes().decode(errors="replace")
            environment = (path / "environ").read_bytes().split(b"\0")
            if str(out) in command and f"RANK={rank}".encode() in environment:
                return int(path.name)
    raise AssertionError(f"no process of rank {rank}")


def test_a_process_that_raises_prints_its_line(tmp_path):
    words = ("run", f"{RECIPES}:raises", "--out", str(tmp_path), "--device", "cpu")
    with torchrun(*words) as both:
        _, errors = both.communicate(timeout=120)
    assert both.returncode != 0
    assert "the data of rank 1 is bad" in errors


def test_a_batch_that_cannot_be_shared_out_is_refused():
    with pytest.raises(UserError, match=r"batch_size \(7\) must be divisible by the 2 .* try 8"):
        World(0, 2).check(7, False, "mlp")
    with pytest.raises(UserError, match="replay cannot be trained by several processes"):
        World(0, 2).check(8, True, "replay")
    World(0, 1).check(7, True, "replay")


def test_rows_are_shared_out_in_order():
    batch = (torch.arange(8), torch.arange(8) * 2)
    shares = [World(rank, 4).share.of(8) for rank in range(4)]
    parts = [tuple(tensor[share] for tensor in batch) for share in shares]
    assert torch.equal(torch.cat([x for x, _ in parts]), batch[0])
    assert torch.equal(torch.cat([y for _, y in parts]), batch[1])


GRADIENTS = """
import torch
from torch import nn
from everynet.distributed import joined
from everynet.log import Log
from everynet.recipes import State, make_optimizer
from everynet.types import Record, UserError

def state(world=None):
    torch.manual_seed(0)
    net = nn.ModuleDict({n: nn.Linear(3, 1) for n in ("all", "first", "none")}).double()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    return State(net, nn.Module(), {"main": optimizer}, reduce=world and world.average_gradients)

with joined(torch.device("cpu")) as world:
    rank, draw = world.rank, torch.Generator().manual_seed(1)
    tokens = torch.randn(7, 3, dtype=torch.float64, generator=draw)
    mine = tokens[:5] if rank == 0 else tokens[5:]
    for weight in (float(len(mine)), torch.tensor(len(mine))):
        apart, whole = state(world), state()
        apart.descend(apart.model["all"](mine).square().mean(), weight=weight)
        whole.descend(whole.model["all"](tokens).square().mean())
        for a, b in zip(apart.model.parameters(), whole.model.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-14, atol=1e-15)

    given, sent = state(world), []
    import torch.distributed as dist
    real = dist.all_reduce
    dist.all_reduce = lambda *a, **k: (sent.append(1), real(*a, **k))[1]
    loss = given.model["all"](mine).mean() + (given.model["first"](mine).mean() if rank == 0 else 0)
    given.descend(loss)
    assert len(sent) == 1, "one message"
    dist.all_reduce = real
    gradient = given.model["first"].weight.grad
    torch.testing.assert_close(gradient[0], tokens[:5].mean(0) / 2)
    assert given.model["none"].weight.grad is None

    x = nn.Parameter(torch.tensor([4.0], dtype=torch.float64))  # it must not see its own loss
    lbfgs = {"main": torch.optim.LBFGS([x], max_iter=20, line_search_fn="strong_wolfe")}
    both = State(nn.Module(), nn.Module(), lbfgs, reduce=world.average_gradients)
    both.descend(lambda: (x - rank).square().sum())
    assert abs(x.item() - 0.5) < 1e-6, x

    log = Log()
    for step in (1, 2, 3):
        terms = {"loss": torch.tensor(float(rank + step))}
        if step == 2:
            terms["_odd"] = torch.tensor(rank * 4.0)
        log.pending.append(Record(step, terms))
    log.flush(world)
    assert log.rows == [
        {"step": 1, "train": {"loss": 1.5}},
        {"step": 2, "train": {"loss": 2.5, "_odd": 2.0}},
        {"step": 3, "train": {"loss": 3.5}},
    ], log.rows
    log.pending.append(Record(4, {"loss": torch.tensor(1.0)} if rank else {}))
    try:
        log.flush(world)
        print("agreed\\n", end="", flush=True)
    except UserError as error:
        print(f"{error}\\n", end="", flush=True)
"""


def test_gradients_and_terms_of_two_processes(tmp_path):
    """Unequal weights equal one process on the whole; absent gradients; terms that come and go."""
    script = tmp_path / "gradients.py"
    script.write_text(GRADIENTS)
    with torchrun(program=(str(script),)) as both:
        said, errors = both.communicate(timeout=120)
    assert both.returncode == 0, errors
    line = "the terms of steps 4 to 4 must have the same names in every process; "
    assert said.count(line) == 2, said


THREADS = """
import os, torch
from everynet.distributed import joined

def threads():
    tasks = os.listdir("/proc/self/task")
    return {open(f"/proc/self/task/{task}/comm").read().strip() for task in tasks}

with joined(torch.device("cpu")) as world:
    layer = torch.nn.Linear(2, 2)
    layer(torch.ones(1, 2)).sum().backward()
    world.average([weight.grad for weight in layer.parameters()])
    torch.optim.Adam(layer.parameters()).step()  # the first step of any optimiser imports much
    during = threads()
print(f"{during} then {threads()}\\n", end="", flush=True)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="names of threads are Linux's")
def test_no_thread_of_the_group_is_left(tmp_path):
    """One that drops a tensor while Python ends would abort the process, one run in ten."""
    script = tmp_path / "threads.py"
    script.write_text(THREADS)
    with torchrun(program=(str(script),)) as both:
        said, errors = both.communicate(timeout=120)
    assert both.returncode == 0, errors
    lines = said.splitlines()
    assert len(lines) == 2, said
    for line in lines:
        during, then = line.split(" then ")
        assert "gloo" in during
        assert "gloo" not in then
