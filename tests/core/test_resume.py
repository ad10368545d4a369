"""Stopping and going on changes nothing: weights, moments, extra state and log are bit-equal."""

import shutil
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from everynet import checkpoint, runs
from everynet.checkpoint import read_bundle
from everynet.cli.runs import read
from everynet.device import choose
from everynet.progress import Stop
from everynet.trainer import begin
from everynet.types import Stopped
from tests.core import recipes

RECIPES = {n: r for n, r in recipes.RECIPES.items() if n not in ("killed", "endless", "raises")}


def contents(folder):
    """Every byte of a run that must not depend on how often it stopped."""
    last = checkpoint.steps(folder)[-1]
    best = checkpoint.progress_of(checkpoint.path_of(folder, last)).best_step
    saved = {path.name: read_bundle(path) for path in (folder / "checkpoints").iterdir()}
    assert {str(last), *([f"best-{best}"] if best >= 0 else [])} <= {*saved}
    return saved, (folder / "metrics.jsonl").read_bytes()


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    return {
        name: runs.run(replace(recipe, name=name), tmp_path_factory.mktemp(name), device="cpu")
        for name, recipe in RECIPES.items()
    }


class StopAt(Stop):
    """A signal that arrives after so many looks at it."""

    def __init__(self, looks):
        self.left = looks

    @property
    def signal(self):
        self.left -= 1
        return 15 if self.left < 0 else 0


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("stop", [1, 3, 5])
def test_stop_and_resume_is_bit_equal(name, stop, unbroken, tmp_path, monkeypatch):
    recipe = replace(RECIPES[name], name=name)

    @contextmanager
    def soon():
        yield StopAt(stop - 1)

    with monkeypatch.context() as patch:
        patch.setattr(runs, "signals", soon)
        with pytest.raises(Stopped, match="everynet resume") as stopped:
            runs.run(recipe, tmp_path, device="cpu")
    assert stopped.value.code == 143
    (folder,) = tmp_path.iterdir()
    assert checkpoint.steps(folder)[-1] == stop
    result = runs.resume(recipe, folder)
    assert result.metrics == unbroken[name].metrics
    assert contents(folder) == contents(unbroken[name].folder)


@pytest.mark.parametrize("name", RECIPES)
def test_restoring_into_another_seed_brings_everything_back(name, unbroken):
    """What `extra` keeps outside buffers and submodules would stay as the other seed made it."""
    recipe, folder = RECIPES[name], unbroken[name].folder
    path = checkpoint.newest(folder)
    data = recipe.dataset()
    state = begin(replace(recipe, seed=99), data, choose("cpu"))
    progress = checkpoint.restore(path, state, recipe.deployed(state))
    copy = folder.parent / "copy"
    copy.mkdir(exist_ok=True)
    checkpoint.save(copy / path.name, state, recipe.deployed(state), progress)
    assert read_bundle(copy / path.name) == read_bundle(path)
    shutil.rmtree(copy)


def test_moments_of_channels_last_weights_keep_their_strides(unbroken):
    """Fused AdamW computes wrong values when moments and weights differ in their strides."""
    recipe = RECIPES["batch-norm"]
    state = begin(recipe, recipe.dataset(), choose("cpu"))
    checkpoint.restore(
        checkpoint.newest(unbroken["batch-norm"].folder), state, recipe.deployed(state)
    )
    weight = state.model[0].weight
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert state.optimizers["main"].state[weight]["exp_avg"].stride() == weight.stride()


def test_a_longer_run_goes_on_from_the_end(unbroken, tmp_path):
    folder = tmp_path / "longer"
    shutil.copytree(unbroken["small"].folder, folder)
    runs.resume(replace(RECIPES["small"], name="small", steps=20, changed=("steps",)), folder)
    assert read(folder).step == 20
    whole = runs.run(replace(RECIPES["small"], name="small", steps=20), tmp_path, device="cpu")
    last = checkpoint.path_of(folder, 20), checkpoint.path_of(whole.folder, 20)
    assert read_bundle(last[0])["model.safetensors"] == read_bundle(last[1])["model.safetensors"]


def test_the_callers_random_state_and_threads_come_back(tmp_path):
    torch.manual_seed(3)
    threads, expected = torch.get_num_threads(), torch.random.get_rng_state()
    runs.run(RECIPES["dropout"], tmp_path, device="cpu")
    assert torch.equal(torch.random.get_rng_state(), expected)
    assert torch.get_num_threads() == threads


def test_plateau_divides_the_rate_after_evaluations_without_progress():
    recipe = replace(RECIPES["plateau"], goal="cross_entropy <= 0.5")
    rows = [
        {"step": s, "valid": {"cross_entropy": v}}
        for s, v in enumerate([3.0, 2.0, 2.0, 1.0, 1.0, 1.0])
    ]
    rates = [recipe.rate(step, rows) for step in range(6)]
    assert rates == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.001])


def test_the_test_split_has_no_say(tmp_path):
    """Poisoned test data changes the test figures and nothing that was learned or chosen."""
    clean = runs.run(RECIPES["small"], tmp_path, device="cpu")

    class Poisoned(type(RECIPES["small"])):
        def dataset(self):
            data = super().dataset()
            x, y = data.splits["test"]
            return replace(data, splits={**data.splits, "test": (x * 1e3, 1 - y)})

    poisoned = runs.run(Poisoned(), tmp_path, device="cpu")
    assert poisoned.metrics != clean.metrics
    assert contents(poisoned.folder)[0] == contents(clean.folder)[0]
