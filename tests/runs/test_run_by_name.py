"""Runs and sweeps that are begun by the name of a recipe, with settings as keywords."""

import inspect

import numpy as np
import pytest
import torch

import everynet
from everynet.runs.job import Job
from everynet.system.errors import UserError
from tests.data.frame import Frame

RANDOM = np.random.default_rng(4)
X = RANDOM.normal(size=(80, 3))
Y = (X[:, 0] + X[:, 1] > 0).astype(int)
SMALL = {"steps": 3, "batch_size": 16, "hidden": 4, "schedule": "constant", "device": "cpu"}


@pytest.fixture(scope="module", autouse=True)
def unseen():
    """Runs without pictures, which take longer than the rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "draw", lambda self, model: ())
        yield


def stored(result):
    return (result.folder / "recipe.json").read_bytes()


def test_a_name_with_settings_is_the_recipe_with_them(tmp_path):
    fields = {name: value for name, value in SMALL.items() if name != "device"}
    made = everynet.run(everynet.recipe("mlp", **fields), tmp_path, data=(X, Y), device="cpu")
    named = everynet.run("mlp", tmp_path, data=(X, Y), **SMALL)
    other = everynet.run(everynet.recipe("mlp"), tmp_path, data=(X, Y), **SMALL)
    assert stored(named) == stored(made) == stored(other)
    assert everynet.trained(named.folder).recipe.hidden == (4,)


def test_the_target_of_a_frame_is_a_setting(tmp_path):
    frame = Frame({"a": X[:, 0], "b": X[:, 1], "price": X[:, 2]})
    done = everynet.run("mlp", tmp_path, data=frame, target="price", lr=0.02, **SMALL)
    recipe = everynet.trained(done.folder).recipe
    assert (recipe.target, recipe.lr) == ("price", 0.02)
    assert "r2" in done.metrics


def test_epochs_are_steps_of_the_data_that_is_given(tmp_path):
    done = everynet.run(
        "mlp", tmp_path, data=(X, Y), epochs=3, batch_size=16, hidden=4, device="cpu"
    )
    train = np.ceil(80 * 0.8 * 0.9)
    assert everynet.trained(done.folder).recipe.steps == 3 * (train // 16)
    with pytest.raises(UserError, match=r"^epochs and steps must not both be given"):
        everynet.run("mlp", tmp_path, data=(X, Y), epochs=3, steps=3)
    with pytest.raises(UserError, match=r"^epochs \(-1\) must be a positive number"):
        everynet.run("mlp", tmp_path, data=(X, Y), epochs=-1)


def test_a_sweep_takes_the_same(tmp_path):
    fields = {**SMALL, "out": tmp_path}
    done = everynet.sweep("mlp", data=(X, Y), lr=[0.1, 0.01], **fields)
    assert len(list((done.folder / "cells").iterdir())) == 2
    assert everynet.resume(done.folder, data=(X, Y)).metrics == done.metrics
    epochs = {name: value for name, value in fields.items() if name != "steps"}
    done = everynet.sweep("mlp", data=["xor", "spirals"], steps=2, **epochs)
    assert len(list((done.folder / "cells").iterdir())) == 2
    with pytest.raises(UserError, match=r"^epochs \(1,2\) must be steps where data is swept"):
        everynet.sweep("mlp", data=["xor", "spirals"], epochs=[1, 2], **epochs)


@pytest.mark.parametrize(
    ("recipe", "fields", "line"),
    [
        ("mpl", {}, r"^there is no recipe mpl; did you mean mlp"),
        ("mlp", {"lrr": 1}, r"^mlp has no setting lrr; did you mean lr"),
        ("mlp", {"learning_rate": 1}, r"^mlp has no setting learning_rate; write lr=1"),
        ("mlp", {"out": X}, r"^out \(of type ndarray\) must be the folder that runs go into; data"),
        (None, {}, r"^recipe \(of type NoneType\) must be a recipe or the name of one"),
        (torch.nn.Linear, {}, r"^recipe \(Linear\) must be a recipe or the name of one"),
    ],
)
def test_mistakes_are_one_line(recipe, fields, line):
    with pytest.raises(UserError, match=line) as caught:
        inspect.unwrap(everynet.run)(recipe, **fields)  # without the checks of types in tests
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("fields", [{"data": (X, Y)}, {"epochs": 3}])
def test_what_is_read_where_a_run_begins_is_not_for_recipe(fields):
    (name,) = fields
    with pytest.raises(UserError, match=rf"^{name} must be given where a run begins, .*run\('mlp'"):
        everynet.recipe("mlp", **fields)
