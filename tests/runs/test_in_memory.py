"""Runs on what a caller holds: begun, gone on with, drawn and asked."""

import json

import numpy as np
import pytest
import torch

import everynet
from everynet.cli import main
from everynet.runs import checkpoint
from everynet.runs.job import Job
from everynet.system.errors import UserError
from tests.data.frame import Frame, Series

RANDOM = np.random.default_rng(4)
X = RANDOM.normal(size=(80, 3))
Y = (X[:, 0] + X[:, 1] > 0).astype(int)


@pytest.fixture(scope="module", autouse=True)
def unseen():
    """Runs without pictures, which take longer than the rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "draw", lambda self, model: ())
        yield


def small(**fields):
    given = {"steps": 6, **fields, "batch_size": 16, "hidden": (4,), "schedule": "constant"}
    return everynet.recipe("mlp", **given)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return everynet.run(small(), tmp_path_factory.mktemp("runs"), data=(X, Y), device="cpu").folder


def weights(folder):
    return checkpoint.weights_in(folder, checkpoint.kept_weights(folder))


def test_recipe_json_says_which_data_it_was(run):
    stored = json.loads((run / "recipe.json").read_text())
    assert stored["settings"]["data"].startswith("memory:")
    assert len(stored["settings"]["data"]) == len("memory:") + 64
    assert "data" in stored["changed"]
    assert json.loads((run / "spec.json").read_text())["spec"]["features"] == ["x0", "x1", "x2"]


def test_the_same_arrays_give_the_same_run(run, tmp_path):
    again = everynet.run(
        small(), tmp_path, data=(torch.from_numpy(X), Y.tolist()), device="cpu"
    ).folder
    assert (again / "recipe.json").read_bytes() == (run / "recipe.json").read_bytes()
    assert all(torch.equal(t, weights(run)[n]) for n, t in weights(again).items())


def test_a_run_goes_on_with_the_same_arrays_to_the_same_bits(tmp_path):
    half = everynet.run(small(steps=3), tmp_path, data=(X, Y), device="cpu").folder
    everynet.resume(half, data=(X.astype(object).astype(float), Series(Y)), steps=6)
    whole = everynet.run(small(), tmp_path, data=(X, Y), device="cpu").folder
    assert all(torch.equal(t, weights(whole)[n]) for n, t in weights(half).items())


def test_others_are_refused_and_so_is_none(run, capsys):
    with pytest.raises(UserError, match=r"must be what the run was made with, but its SHA-256 is"):
        everynet.resume(run, data=(X[::-1], Y), steps=9)
    with pytest.raises(UserError, match=r"was given in memory, which no run keeps; give it again"):
        everynet.resume(run, steps=9)
    with pytest.raises(UserError, match=r"has changed since the run began: its SHA-256 is \w{12}"):
        everynet.resume(run, data="xor", steps=9)
    for verb in ("resume", "draw"):
        assert main([verb, str(run)]) == 2
        out, error = capsys.readouterr()
        assert (out, error.count("\n")) == ("", 1)
        assert "everynet.resume(folder, data=(X, y)), or everynet.draw likewise" in error


def test_it_is_drawn_with_the_same_arrays(run):
    assert everynet.draw(run, data=(X, Y)) == ()
    with pytest.raises(UserError, match=r"must be what the run was made with"):
        everynet.draw(run, data=(X + 1, Y))


def test_asking_needs_no_data(run):
    trained = everynet.trained(run)
    found = trained.predict(X)
    assert [row["input"] for row in found] == list(range(80))
    assert {row["class"] for row in found} <= {"0", "1"}
    assert trained.predict(torch.from_numpy(X)) == found
    assert trained.predict(Frame({"x2": X[:, 2], "x0": X[:, 0], "x1": X[:, 1]})) == found


def test_a_name_or_a_path_may_be_given_too(tmp_path):
    done = everynet.run(small(), tmp_path, data="xor", device="cpu")
    assert everynet.trained(done.folder).recipe.data == "xor"


def test_images_and_an_estimator(tmp_path):
    images = RANDOM.integers(0, 256, (30, 8, 8), dtype=np.uint8)
    found = everynet.run(small(), tmp_path, data=(images, [*"ab"] * 15), device="cpu").folder
    (answer,) = everynet.trained(found).predict(images[:1])
    assert answer["class"] in "ab"
    fitted = everynet.run(everynet.recipe("least-squares"), tmp_path, data=(X, X[:, 0])).folder
    assert everynet.trained(fitted).predict(X[:1])[0]["value"] == pytest.approx(X[0, 0], abs=1e-6)


def test_an_experiment_and_a_sweep_share_what_is_held(tmp_path):
    swept = everynet.recipes.sweep.sweep_of(small(), {"lr": "0.1,0.01"})
    done = everynet.run(swept, tmp_path, data=(X, Y), device="cpu")
    assert everynet.resume(done.folder, data=(X, Y)).metrics == done.metrics
    with pytest.raises(UserError, match=r"jobs \(2\) must be 1 with data in memory, which other"):
        everynet.run(swept, tmp_path, data=(X, Y), jobs=2)


def test_a_recipe_without_data_says_so(tmp_path):
    with pytest.raises(UserError, match="gan-ring has no setting data"):
        everynet.run(everynet.recipe("gan-ring"), tmp_path, data=(X, Y))
    assert not list(tmp_path.iterdir())
