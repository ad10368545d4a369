"""Memory that runs out in an update or an evaluation: one line, and a run that goes on."""

import json
from dataclasses import dataclass, replace

import pytest
import torch

from everynet import runs
from everynet.system.errors import UserError, explain, is_out_of_memory
from tests.runs.laws import Law
from tests.runs.recipes import Small


@dataclass(frozen=True, kw_only=True)
class Large(Small):
    """Needs more than there is with more than so many rows, from one step on."""

    most: int = 1000
    most_evaluated: int = 1000
    real: bool = False

    def step(self, state, batch):
        if len(batch[0]) > self.most and state.step >= 7:
            with torch.no_grad():
                state.model[0].weight.zero_()  # half of an update, which no checkpoint may hold
            self.run_out()
        return super().step(state, batch)

    def metrics(self, model, batch):
        if len(batch[0]) > self.most_evaluated:
            self.run_out()
        return super().metrics(model, batch)

    def run_out(self):
        if self.real:
            torch.empty(2**55)
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has")


@pytest.mark.parametrize("real", [False, True])
def test_an_update_that_runs_out_of_memory_leaves_a_run_that_goes_on_with_less(real, tmp_path):
    recipe = Large(name="large", most=4, real=real)
    what = "DefaultCPUAllocator" if real else r"CUDA out of memory. Tried to allocate 2.00 GiB"
    with pytest.raises(UserError) as ended:
        runs.run(recipe, tmp_path, device="cpu")
    (folder,) = tmp_path.iterdir()
    assert ended.match(
        rf"\Amemory ran out in update 8 with batch_size 8 \(.*{what}.*\); the run is saved at step "
        rf"6: go on with a smaller batch: everynet resume {folder} .*batch_size=4\Z"
    )
    assert ended.value.code == 2
    result = runs.resume(replace(recipe, batch_size=4), folder)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "train" in row] == [*range(1, 13)]
    assert (
        "| note | from step 6 on: batch_size 4 instead of 8 |" in (folder / "card.md").read_text()
    )
    undisturbed = runs.run(replace(recipe, most=1000, steps=6), tmp_path / "whole", device="cpu")
    first = (undisturbed.folder / "metrics.jsonl").read_text().splitlines()
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert lines[:6] == first[:6]
    assert result.metrics["cross_entropy"] < 0.7


def test_an_evaluation_that_runs_out_of_memory_takes_fewer_samples_at_a_time(tmp_path, capsys):
    whole = runs.run(Large(name="large"), tmp_path / "whole", device="cpu")
    parts = runs.run(
        Large(name="large", most_evaluated=10), tmp_path / "parts", device="cpu", show=True
    )
    said = capsys.readouterr().err
    assert "memory ran out in an evaluation: 500 samples at a time from now on\n" in said
    assert said.count("samples at a time") == 7  # 500 250 125 62 31 15 7, and then never again
    assert parts.metrics == pytest.approx(whole.metrics, rel=1e-5)
    last = "checkpoints/12/model.safetensors"
    assert (parts.folder / last).read_bytes() == (whole.folder / last).read_bytes()


def test_one_sample_that_is_too_much_is_one_line(tmp_path):
    with pytest.raises(
        UserError, match=r"memory ran out in update 5 with batch_size 8 .*at step 2:"
    ):
        runs.run(Large(name="large", most_evaluated=0), tmp_path, device="cpu")


def test_what_to_do_where_no_smaller_batch_can_be(tmp_path):
    with pytest.raises(UserError, match="saved at step 6: run a smaller network"):
        runs.run(Large(name="large", most=0, batch_size=1), tmp_path, device="cpu")


def test_a_cell_that_runs_out_of_memory_is_named(tmp_path):
    cells = {"a": Large(most=4)}
    law = type("Given", (Law,), {"cells": lambda _: cells, "pictures": lambda *_: {}})
    with pytest.raises(Exception, match="cell a: there is not enough memory for this"):
        runs.run(law(name="given", goal=""), tmp_path, device="cpu")


def test_what_memory_says_of_itself():
    for line in ("CUDA out of memory.", "CUBLAS_STATUS_ALLOC_FAILED", "can't allocate memory: 1"):
        assert is_out_of_memory(RuntimeError(line))
        assert explain(RuntimeError(line))[0] == 2
    assert not is_out_of_memory(RuntimeError("shapes differ"))
    assert not is_out_of_memory(UserError("out of memory"))
