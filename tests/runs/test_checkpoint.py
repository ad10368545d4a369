"""A checkpoint gives back what was saved, or says what is damaged; never other values."""

import json
import math
import random
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load
from torch import nn

from everynet import runs
from everynet.recipes.state import State
from everynet.runs import checkpoint
from everynet.runs.checkpoint import DamagedCheckpoint
from everynet.system import files
from everynet.system.errors import NoCheckpoint, UserError
from everynet.training.device import choose
from everynet.training.loop import begin, train
from tests.runs.recipes import RECIPES

READ = files.read


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


def same(a, b):
    """Equal in value and in type, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return [*a] == [*b] and all(
            type(k) is type(j) and same(a[k], b[j]) for k, j in zip(a, b, strict=True)
        )
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    return repr(a) == repr(b)  # so that nan is nan, and -0.0 is not 0.0


def test_nested_values_come_back_equal(tmp_path):
    values = {
        "layers_": [torch.ones(2, 3), {"bias": torch.arange(2), "deep": [(torch.zeros(()), None)]}],
        "tables_": {"a/0": torch.ones(1), "a": [torch.zeros(2)], 3: np.arange(4, dtype=np.uint16)},
        "a/0": torch.ones(3),
        "a": [torch.zeros(1)],
        "counts_": {1: 2, 2.5: True, None: "none", "": [], False: (), 7: {}},
        "classes_": np.array(["setosa", "vir\u00f6"]),
        "shape_": (1, 2, (3.5, "x")),
        "edges_": [math.inf, -math.inf, math.nan, -0.0, 10**30],
        "scalar_": np.int64(3),
        "half_": torch.ones(2, dtype=torch.bfloat16),
        "swapped_": np.arange(6.0).reshape(2, 3).T,
        "empty_": [],
        "tagged_": {"tensor": "x", "tuple": [1]},
    }
    checkpoint.save_values(tmp_path / "1", values)
    loaded = checkpoint.load_values(tmp_path / "1")
    for name, value in values.items():
        assert same(loaded[name], value), (name, loaded[name])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (object(), "odd_ is a object, which cannot be saved: keep tensors, arrays"),
        ([1, {"a": {2, 3}}], r"odd_\[1\]\['a'\] is a set, which cannot be saved"),
        ({(1, 2): 3}, r"odd_ has the key \(1, 2\), which cannot be saved"),
        (np.array([object()]), "odd_ is a ndarray of object, which cannot be saved"),
        (torch.ones(2, dtype=torch.complex64), "odd_ is a Tensor of torch.complex64, which"),
        (torch.eye(2).to_sparse(), "odd_ is a Tensor of torch.float32, which cannot be saved"),
        (b"raw", "odd_ is a bytes, which"),
    ],
)
def test_a_value_that_cannot_be_saved_is_refused_before_anything_is_written(value, words, tmp_path):
    with pytest.raises(UserError, match=words):
        checkpoint.save_values(tmp_path / "1", {"fine_": torch.ones(1), "odd_": value})
    assert not [*tmp_path.iterdir()]


def test_restoring_clears_what_an_optimiser_remembered(finished, tmp_path):
    """A checkpoint from before the first update goes into a state that has made one."""
    recipe, _ = finished
    data = recipe.dataset()
    state = begin(recipe, data)
    checkpoint.save(tmp_path / "0", state, recipe.deployed(state), checkpoint.Best())
    next(train(recipe, state, data))
    assert state.optimizers["main"].state
    checkpoint.restore(tmp_path / "0", state, recipe.deployed(state))
    assert not state.optimizers["main"].state
    again = begin(recipe, data)
    for one in (state, again):
        next(train(recipe, one, data))
    pairs = zip(state.model.parameters(), again.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_averaged_weights_are_stored_once_and_restored_in_both_places(finished):
    recipe, folder = finished
    path = checkpoint.newest(folder)
    model = load((path / "model.safetensors").read_bytes())
    others = load((path / "state.safetensors").read_bytes())
    assert {*model} == {"0.weight", "0.bias", "2.weight", "2.bias"}
    rest = {name for name in others if not name.startswith("optimizer/")}
    assert rest == {f"model/{name}" for name in model}  # and no extra/copy.*
    state = begin(replace(recipe, seed=7), recipe.dataset())
    checkpoint.restore(path, state, recipe.deployed(state))
    assert torch.equal(state.extra.copy[0].weight, model["0.weight"])
    assert torch.equal(state.model[0].weight, others["model/0.weight"])
    assert not torch.equal(state.model[0].weight, state.extra.copy[0].weight)


def test_a_deployed_network_that_could_not_be_loaded_is_refused_at_tinit_he_weights(tmp_path):
    class Part(type(RECIPES["small"])):
        def deployed(self, state):
            return state.model[0]

    with pytest.raises(UserError, match=r"deployed\(\) must give .* 0.bias is in one only"):
        runs.run(Part(), tmp_path, device="cpu")

    class Wide(type(RECIPES["small"])):
        def deployed(self, state):
            return nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 2))

    with pytest.raises(UserError, match=r"0.weight is \[6, 4\] there and \[7, 4\] here"):
        runs.run(Wide(), tmp_path, device="cpu")
    assert not [*tmp_path.iterdir()]


def test_loading_reads_each_file_it_needs_once_and_no_more(finished, monkeypatch):
    recipe, folder = finished
    seen = []
    real = files.read
    monkeypatch.setattr(
        files, "read", lambda path, *most: (seen.append(path), real(path, *most))[1]
    )
    runs.load(recipe, folder)
    read = [str(p.relative_to(folder / "checkpoints")) for p in seen if "checkpoints" in p.parts]
    best = checkpoint.progress_of(folder / "checkpoints" / "12").best_step
    assert read == ["12/manifest.json", "12/state.json",
                    f"best-{best}/manifest.json", f"best-{best}/model.safetensors"]  # fmt: skip


def test_resuming_reads_the_newest_checkpoint_once(finished, tmp_path, monkeypatch):
    recipe, folder = finished
    copy = shutil.copytree(folder, tmp_path / "copy")
    seen = []
    real = files.read
    monkeypatch.setattr(
        files, "read", lambda path, *most: (seen.append(path), real(path, *most))[1]
    )
    runs.resume(recipe, copy)
    whole = [p for p in seen if p.parent.name == "12" and p.suffix == ".safetensors"]
    assert sorted(p.name for p in whole) == ["model.safetensors", "state.safetensors"]


def test_who_only_looks_moves_nothing(finished, tmp_path):
    """The newest is damaged: the one before serves, with a warning, and no name changes."""
    recipe, folder = finished
    copy = shutil.copytree(folder, tmp_path / "copy")
    (checkpoint.path_of(copy, 12) / "state.json").write_bytes(b"")
    names = {p for p in copy.rglob("*")}
    with pytest.warns(UserWarning, match=r"12.* is damaged|cannot read"):
        runs.load(recipe, copy)
    assert {p for p in copy.rglob("*")} == names


def test_the_manifest_names_every_file(finished):
    path = checkpoint.newest(finished[1])
    manifest = json.loads((path / "manifest.json").read_text())
    assert set(manifest["files"]) | {"manifest.json"} == {p.name for p in path.iterdir()}
