"""Two processes learn what one does, and a lost one is named.

To start them takes longer than all they do: one pair does everything, see ranks.py.
"""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from everynet import runs
from everynet.cli import main
from everynet.runs.job import Job
from everynet.system.errors import UserError
from everynet.training.processes import World
from tests.runs.recipes import RECIPES
from tests.training import ranks

WAIT = 300.0  # seconds of the clock, on a busy machine


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def both(out):
    """Two processes at work; whatever happens, none of them outlives the tests."""
    with without_pictures():
        assert main(ranks.begun(out / "ones")) == 0
        assert main(ranks.begun(out / "per-rank", "replay")) == 0
    with socket.create_server(("127.0.0.1", 0)) as free:
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    command = [sys.executable, "-m", "tests.training.ranks", str(out)]
    with (out / "errors").open("w") as errors:
        started = [
            subprocess.Popen(
                command, stdout=errors, stderr=errors, start_new_session=True,
                env={**os.environ, **where, "WORLD_SIZE": "2", "RANK": str(rank)},
            )
            for rank in (0, 1)
        ]  # fmt: skip
    try:
        yield started
    finally:
        for child in started:
            child.kill()
            child.wait()


@contextmanager
def without_pictures():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "draw", lambda _job, _model: ())
        yield


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
        assert all(child.poll() is None for child in both), (out / "errors").read_text()[-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def losses(folder, count):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    terms = [sum(row["train"].values()) for row in rows if "train" in row]
    assert len(terms) >= count
    return torch.tensor(terms[:count], dtype=torch.float64)


@pytest.mark.parametrize("precision", ranks.LEARNED)
def test_two_processes_learn_what_one_does(precision, found, out, tmp_path):
    """Also those that have made a run together before."""
    with without_pictures():
        assert main(ranks.words(precision, tmp_path)) == 0
    first, second = found(precision)
    (one,), (two,) = tmp_path.iterdir(), (out / precision).iterdir()
    assert first == {"code": 0, "out": f"{two}\n", "error": ""}
    assert second == {"code": 0, "out": "", "error": ""}  # one process writes and speaks
    steps, close, _ = ranks.LEARNED[precision]
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


def test_two_processes_of_a_group_that_the_caller_made(found, out, tmp_path):
    first, second = found("grouped")
    assert first["votes"] == second["votes"] == 2  # the group is left as it was
    assert first["folders"] == second["folders"]
    assert {*map(str, (out / "group").iterdir())} == {*first["folders"]}  # one of each, not two
    with without_pictures():
        alone = runs.run(replace(RECIPES["small"], name="small"), tmp_path, device="cpu").folder
    together = Path(first["folders"][0])
    torch.testing.assert_close(losses(together, 12), losses(alone, 12), rtol=0, atol=1e-6)
    assert f"1 thread, fp32, 2 processes -> {together}\n" in first["shown"]
    assert second["shown"] == ""
    assert (first["finals"], second["finals"]) == (2, 0), "as the test split, by one of them"


def test_a_run_goes_on_with_another_number_of_processes(found, out, tmp_path):
    """Equal but for the order of sums, and the card says so."""
    found("ones")
    with without_pictures():
        assert main(ranks.begun(tmp_path)) == 0
        assert main(ranks.longer(tmp_path)) == 0
        assert main(ranks.longer(out / "twos")) == 0
    (alone,), (ones,), (twos,) = (f.iterdir() for f in (tmp_path, out / "ones", out / "twos"))
    for folder, now, then in ((ones, 2, 1), (twos, 1, 2)):
        torch.testing.assert_close(losses(folder, 40), losses(alone, 40), rtol=0, atol=1e-9)
        assert not torch.equal(losses(folder, 40), losses(alone, 40))
        card = (folder / "card.md").read_text()
        assert f"| note | from step 20 on: {now} process(es) instead of {then} |" in card
        assert f"1 thread(s), {now} process(es) |" in card
    assert "from step" not in (alone / "card.md").read_text()


def test_averaged_weights_of_two_processes_are_those_of_one(found, tmp_path):
    with without_pictures():
        folders = [*found("averaged"), ranks.averaged(tmp_path)]
    assert folders[0] == folders[1]
    two, one = (runs.load(ranks.Averaged(), Path(folder)) for folder in folders[1:])
    for weight, alone in zip(two.parameters(), one.parameters(), strict=True):
        torch.testing.assert_close(weight, alone, rtol=0, atol=1e-9)


def test_what_several_processes_cannot_do_is_refused_in_each_of_them(found, out):
    """A run whose state is of one process, and a sweep, which writes no folder."""
    for one in found("per-rank"):
        assert one == {"code": 2, "out": "", "error": ranks.REFUSED.format("replay")}
    for one in found("sweep"):
        assert one == {"code": 2, "out": "", "error": ranks.REFUSED.format("sweep-small")}
    assert not [*out.glob("sweep-small*")]
    (folder,) = (out / "per-rank").iterdir()
    assert not [*(folder / "checkpoints").glob("*damaged*")]


def test_a_killed_process_is_named_and_the_others_end(both, out):
    wait_for(lambda: [*out.glob("endless-*/checkpoints/1*")], both, out)
    both[1].kill()
    begun = time.monotonic()
    assert both[0].wait(60) == 1
    assert time.monotonic() - begun < 30
    assert "rank 0 stops: rank 1 was killed" in (out / "errors").read_text()


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


@pytest.mark.slow
def test_whoever_is_killed_the_other_ends_within_ten_seconds(tmp_path):
    """Twenty times, on a machine that is kept busy; three minutes."""
    command = [sys.executable, "-m", "tests.training.lost", str(tmp_path), "20", "4"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    trials = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(trials) == 20
    assert all(trial["named"] and trial["code"] == 1 for trial in trials), trials
    assert max(trial["seconds"] for trial in trials) < 10, trials
