"""Two processes under torchrun learn what one does, and a lost one is named.

To start them takes longer than all they do: one pair does everything, see ranks.py.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from everynet.cli import main
from everynet.runs.job import Job
from everynet.system.errors import UserError
from everynet.training.processes import World
from tests.training import ranks

WAIT = 300.0  # seconds of the clock, on a busy machine


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def both(out):
    """Two processes at work; whatever happens, none of them outlives the tests."""
    with (out / "errors").open("w") as errors:
        started = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
             "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", ranks.__file__, str(out)],
            stdout=errors, stderr=errors, start_new_session=True,
        )  # fmt: skip
    try:
        yield started
    finally:
        for child in (started.pid, *processes(out).values()):  # each leads a session of its own
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
        started.wait()


@pytest.fixture(scope="module")
def found(both, out):
    """What each rank found of one thing, in order; waits until it is there."""

    def of(name):
        paths = [out / f"{name}-{rank}" for rank in (0, 1)]
        wait_for(lambda: all(path.exists() for path in paths), both, out)
        return [json.loads(path.read_text()) for path in paths]

    return of


def wait_for(there, both, out):
    deadline = time.monotonic() + WAIT
    while not there():
        assert both.poll() is None, (out / "errors").read_text()[-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def losses(folder, count):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    terms = [sum(row["train"].values()) for row in rows if "train" in row]
    assert len(terms) >= count
    return torch.tensor(terms[:count], dtype=torch.float64)


@pytest.mark.parametrize("precision", ranks.LEARNED)
def test_two_processes_learn_what_one_does(precision, found, out, tmp_path, monkeypatch):
    """Also those that have made a run together before."""
    monkeypatch.setattr(Job, "draw", lambda _job, _model: ())
    assert main(ranks.words(precision, tmp_path)) == 0
    first, second = found(precision)
    (one,), (two,) = tmp_path.iterdir(), (out / precision).iterdir()
    assert first == {"code": 0, "out": f"{two}\n", "error": ""}
    assert second == {"code": 0, "out": "", "error": ""}  # one process writes and speaks
    steps, close = ranks.LEARNED[precision]
    torch.testing.assert_close(losses(two, steps), losses(one, steps), rtol=0, atol=close)


def test_gradients_and_terms_of_two_processes(found):
    line = "the terms of steps 4 to 4 must have the same names in every process; "
    for one in found("together"):
        assert one["refused"].startswith(line)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="names of threads are Linux's")
def test_no_thread_of_the_group_is_left(found):
    """One that drops a tensor while Python ends would abort the process, one run in ten."""
    for one in found("together"):
        assert any("gloo" in name for name in one["during"])
        assert not any("gloo" in name for name in one["then"])


def test_a_process_that_raises_prints_its_line(found):
    first, second = found("raises")
    assert (first["code"], second["code"]) == (1, 2)
    assert "rank 0 stops: rank 1 stopped: the data of rank 1 is bad\n" in first["error"]
    assert second["error"] == "everynet: the data of rank 1 is bad\n"


def test_a_killed_process_is_named_and_the_others_end(both, out):
    wait_for(lambda: [*out.glob("endless-*/checkpoints/1*")], both, out)
    os.kill(processes(out)[1], signal.SIGKILL)
    begun = time.monotonic()
    assert both.wait(60) != 0
    assert time.monotonic() - begun < 30
    assert "rank 0 stops: rank 1 was killed" in (out / "errors").read_text()


def processes(out):
    """The processes by rank, found as the system lists them."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (path / "cmdline").read_bytes().decode(errors="replace")
            environment = dict(
                part.split(b"=", 1)
                for part in (path / "environ").read_bytes().split(b"\0")
                if b"=" in part
            )
            if str(out) in command and b"RANK" in environment:
                found[int(environment[b"RANK"])] = int(path.name)
    return found


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
