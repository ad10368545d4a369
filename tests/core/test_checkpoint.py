"""A checkpoint gives back what was saved, or says what is damaged; never other values."""

import json
import random
import shutil
from dataclasses import replace

import pytest
import torch
from torch import nn

from everynet import checkpoint, runs
from everynet.checkpoint import DamagedCheckpoint
from everynet.device import choose
from everynet.recipes import State
from everynet.trainer import begin
from everynet.types import NoCheckpoint, UserError
from tests.core.recipes import RECIPES


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    recipe = replace(RECIPES["ema"], name="ema")
    return recipe, runs.run(recipe, tmp_path_factory.mktemp("runs"), device="cpu").folder


def mutate(path, draw):
    """One random change to one file of a checkpoint: every kind a disk or a person makes."""
    names = sorted(p.name for p in path.iterdir())
    victim = path / draw.choice(names)
    content = bytearray(victim.read_bytes())
    kind = draw.choice(["flip", "cut", "grow", "zero", "swap", "drop", "other", "empty"])
    where = draw.randrange(len(content))
    if kind == "flip":
        content[where] ^= 1 << draw.randrange(8)
    elif kind == "cut":
        del content[where:]
    elif kind == "grow":
        content[where:where] = bytes(draw.randrange(256) for _ in range(draw.randrange(1, 9)))
    elif kind == "zero":
        stop = min(len(content), where + draw.randrange(1, 64))
        content[where:stop] = bytes(stop - where)
    elif kind == "swap":
        other = draw.randrange(len(content))
        content[where], content[other] = content[other], content[where]
    elif kind == "other":
        content = bytearray((path / draw.choice(names)).read_bytes())
    elif kind == "empty":
        content = bytearray()
    if kind == "drop":
        victim.unlink()
        return victim.name
    changed = bytes(content) != victim.read_bytes()
    victim.write_bytes(content)
    return victim.name if changed else ""


def test_two_thousand_mutants_and_none_loads(finished, tmp_path):
    recipe, folder = finished
    good = checkpoint.newest(folder)
    state = begin(recipe, recipe.dataset(), choose("cpu"))
    draw, broken = random.Random(0), 0
    while broken < 2000:
        path = tmp_path / good.name
        shutil.copytree(good, path)
        if victim := mutate(path, draw):
            broken += 1
            with pytest.raises(UserError, match=r"damaged|cannot read"):
                checkpoint.restore(path, state, recipe.deployed(state))
            words = r"damaged|cannot read"
            if victim.startswith("state"):  # which is not read for the weights alone
                words = "does not fit the network"
            with pytest.raises(UserError, match=words):
                checkpoint.restore_model(path, nn.Linear(1, 1))
        shutil.rmtree(path)


def test_a_damaged_checkpoint_is_put_aside_and_the_one_before_is_taken(finished, tmp_path):
    recipe, folder = finished
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (checkpoint.path_of(copy, 12) / "state.safetensors").write_bytes(b"")
    assert checkpoint.newest(copy).name == "10"
    assert not any("damaged" in p.name for p in (copy / "checkpoints").iterdir())
    runs.resume(recipe, copy)
    assert any("12.damaged" in p.name for p in (copy / "checkpoints").iterdir())
    assert checkpoint.read_bundle(checkpoint.path_of(copy, 12)) == checkpoint.read_bundle(
        checkpoint.path_of(folder, 12)
    )


def test_no_checkpoint_left(finished, tmp_path):
    recipe, folder = finished
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    for step in checkpoint.steps(copy):
        (checkpoint.path_of(copy, step) / "manifest.json").write_text("{}")
    with pytest.raises(NoCheckpoint, match="no valid checkpoint left") as raised:
        runs.resume(recipe, copy)
    assert raised.value.code == 5


def test_a_renamed_checkpoint_is_refused(finished, tmp_path):
    recipe, folder = finished
    shutil.copytree(checkpoint.path_of(folder, 12), tmp_path / "13")
    state = begin(recipe, recipe.dataset(), choose("cpu"))
    with pytest.raises(DamagedCheckpoint, match="holds step 12"):
        checkpoint.restore(tmp_path / "13", state, recipe.deployed(state))


def test_another_network_is_refused(finished):
    _, folder = finished
    with pytest.raises(UserError, match=r"does not fit the network: .* is in one only"):
        checkpoint.restore_model(checkpoint.newest(folder), nn.Linear(4, 2))
    wide = nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 2))
    with pytest.raises(UserError, match=r"0.weight is \[6, 4\] there and \[7, 4\] here"):
        checkpoint.restore_model(checkpoint.newest(folder), wide)


def test_what_cannot_be_saved_is_named(tmp_path):
    class Odd(nn.Linear):
        def get_extra_state(self):
            return {"a": 1}

    model = Odd(1, 1)
    with pytest.raises(TypeError, match="_extra_state must be a tensor"):
        checkpoint.save(tmp_path / "1", State(model, nn.Module(), {}), model, checkpoint.Best())
    stray = torch.optim.SGD([nn.Parameter(torch.ones(1))])
    model = nn.Linear(1, 1)
    state = State(model, nn.Module(), {"main": stray})
    with pytest.raises(TypeError, match="optimiser main must be given parameters of the model"):
        checkpoint.save(tmp_path / "1", state, model, checkpoint.Best())


def test_values_of_estimators_and_results_round_trip(tmp_path):
    values = {
        "coef_": torch.arange(3.0, dtype=torch.float64),
        "classes_": torch.arange(3).numpy(),
        "count_": 3,
        "name_": "iris",
        "rate_": 0.1,
        "done_": True,
    }
    checkpoint.save_values(tmp_path / "1", values)
    loaded = checkpoint.load_values(tmp_path / "1")
    assert loaded.keys() == values.keys()
    assert torch.equal(loaded["coef_"], values["coef_"])
    assert (loaded["classes_"] == values["classes_"]).all()
    assert type(loaded["classes_"]) is type(values["classes_"])
    assert {k: loaded[k] for k in ("count_", "name_", "rate_", "done_")} == {
        "count_": 3, "name_": "iris", "rate_": 0.1, "done_": True,
    }  # fmt: skip


def test_the_manifest_names_every_file(finished):
    path = checkpoint.newest(finished[1])
    manifest = json.loads((path / "manifest.json").read_text())
    assert set(manifest["files"]) | {"manifest.json"} == {p.name for p in path.iterdir()}
