"""The log for a program: records as they come, columns at the end, and a watcher that fails."""

import json
import math
import random
import time
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
import torch

import everynet
from everynet import runs
from everynet.runs import training_job
from everynet.runs.log import flatten, to_columns
from everynet.system.errors import UserError
from tests.hostile.recipes import Walk
from tests.runs.recipes import RECIPES

RECIPE = replace(RECIPES["small"], name="small")


@pytest.fixture
def at_once(monkeypatch):
    """Each record is told of after its own update."""
    monkeypatch.setattr(training_job, "LIVE", 0.0)


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A run, and the records it gave."""
    records = []
    out = tmp_path_factory.mktemp("runs")
    return runs.run(RECIPE, out, device="cpu", watch=records.append), records


def test_a_row_is_made_flat():
    row = {"step": 8, "valid": {"accuracy": 0.5, "_loss": 1.0}, "said": "hello"}
    assert flatten(row) == {"step": 8, "valid_accuracy": 0.5, "valid__loss": 1.0}


def test_columns_have_one_length_and_a_line_for_each_step():
    rows = [
        {"step": 1, "train": {"a": 1.0}},
        {"step": 2, "train": {"a": 2.0}},
        {"step": 2, "valid": {"b": 3.0}},
        {"step": 4, "train": {"a": 4.0, "c": 0.5}},
    ]
    found = to_columns(rows)
    assert list(found) == ["step", "train_a", "valid_b", "train_c"]
    assert found["step"] == [1, 2, 4]
    assert found["train_a"] == [1.0, 2.0, 4.0]
    np.testing.assert_equal(found["valid_b"], [math.nan, 3.0, math.nan])
    np.testing.assert_equal(found["train_c"], [math.nan, math.nan, 0.5])
    assert to_columns([]) == {}


def test_history_is_the_log_as_columns(watched):
    result, _ = watched
    history = result.history
    assert history["step"] == list(range(1, 13))
    assert {len(column) for column in history.values()} == {12}
    assert np.array(list(history.values()), float).shape == (len(history), 12)  # a frame of floats
    assert history["test_cross_entropy"][-1] == result.metrics["cross_entropy"]
    assert [s for s, v in zip(history["step"], history["valid_cross_entropy"], strict=True)
            if not math.isnan(v)] == [4, 8, 12]  # fmt: skip
    assert "history" not in repr(result)


def test_each_record_is_given_once_and_in_order(watched):
    result, records = watched
    lines = (result.folder / "metrics.jsonl").read_text().splitlines()
    assert records == [flatten(json.loads(line)) for line in lines]
    assert records[0].keys() == {"step", "train_cross_entropy"}
    assert records[-1]["test_cross_entropy"] == result.metrics["cross_entropy"]


def test_watching_changes_no_number(watched, at_once, tmp_path):
    """Nor does a watcher that draws random numbers of every sort."""

    drawn = defaultdict(set)

    def draw(record):
        torch.rand(3)
        drawn[record["step"]].add((random.random(), np.random.rand()))  # noqa: NPY002

    alone = runs.run(RECIPE, tmp_path, device="cpu", watch=draw)
    assert len(drawn[4]) == len(drawn[8]) == 1  # told twice, and the second finds it as it was
    for name in ("metrics.jsonl", "checkpoints/12/model.safetensors"):
        assert (alone.folder / name).read_bytes() == (watched[0].folder / name).read_bytes()


def test_a_slow_training_is_told_of_as_it_goes(tmp_path, monkeypatch):
    """Not after a hundred steps: the clock stands for updates of a second each."""
    clock, seen = iter(range(10**6)), []
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    recipe = replace(RECIPE, steps=3, eval_every=50)
    runs.run(recipe, tmp_path, device="cpu", watch=lambda r: seen.append((r["step"], next(clock))))
    train = [at for step, at in seen if step < 3]
    assert len(train) == 2
    assert train[1] - train[0] > 2  # an update lies between them, not one flush for both


def test_what_a_watcher_raises_ends_the_run_after_saving(watched, at_once, tmp_path):
    def stop(record):
        if record["step"] == 5:
            raise ZeroDivisionError("enough")

    with pytest.raises(ZeroDivisionError, match="enough") as told:
        runs.run(RECIPE, tmp_path, device="cpu", watch=stop)
    assert told.traceback[-1].name == "stop"  # the caller's own line
    (folder,) = tmp_path.iterdir()
    saved = max(int(p.name) for p in (folder / "checkpoints").iterdir() if p.name.isdigit())
    assert saved == 5
    records = []
    done = runs.resume(RECIPE, folder, watch=records.append)
    assert done.metrics == watched[0].metrics
    assert records[0]["step"] == saved + 1  # what was told before is not told again
    np.testing.assert_equal(done.history, watched[0].history)


def test_a_simulation_tells_its_figures(tmp_path):
    records = []
    result = everynet.run(Walk(), tmp_path, watch=records.append)
    (record,) = records
    assert {f"test_{name}" for name in result.metrics} == record.keys() - {"step"}


def test_watch_must_be_a_function(tmp_path, unchecked):
    with pytest.raises(UserError, match=r"watch \(3\) must be a function of one record"):
        everynet.run(RECIPE, tmp_path, watch=3)
    assert not list(tmp_path.iterdir())
