"""What a recipe makes of data that judges it, beside what it makes of the data it learns from."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import everynet
from everynet.data.loading import Like
from everynet.recipes.catalog import find
from everynet.recipes.recipe import Fitting
from everynet.runs import job
from everynet.runs.evaluate import _known_of
from everynet.runs.folder import as_json
from everynet.system.errors import UserError
from everynet.training.device import choose
from everynet.training.loop import begin, evaluate
from everynet.zoo.vision import style
from tests.data.frame import Frame, Series


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """Nobody looks at the pictures of these runs."""
    monkeypatch.setattr(job.Job, "draw", lambda *_: ())


@pytest.mark.parametrize(
    "name", ["perceptron", "logistic", "mlp-xor", "seq2seq", "char-rnn", "ngram", "bag-of-words"]
)
def test_a_known_set_gives_the_figures_of_its_own_test_split(name):
    recipe = find(name).tiny()
    setup = choose("cpu", "fp64")
    data = recipe.dataset().to(setup.device, setup.dtype)
    if isinstance(recipe, Fitting):
        model = recipe.fit(recipe.model(data), data)
    else:
        model = recipe.deployed(begin(recipe, data, setup)).eval()
    spec = json.loads(as_json(data.spec))
    judged = replace(recipe, data=Like(recipe.data, spec, "of other data")).dataset()
    judged = judged.to(setup.device, setup.dtype)
    assert judged.test_only
    assert _known_of(judged.spec) == _known_of(spec)
    wanted = evaluate(recipe, model, data.test, setup)
    assert evaluate(recipe, model, judged.test, setup) == pytest.approx(wanted, rel=1e-9)


def test_numbers_are_judged_in_the_units_of_then(tmp_path):
    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(60, 2, generator=draw)
    learned, other = tmp_path / "learned.csv", tmp_path / "other.csv"
    for path, some in ((learned, rows), (other, rows[:7])):
        lines = [f"{a:.4f},{b:.4f},{1000 + 50 * a - 20 * b:.4f}" for a, b in some.tolist()]
        path.write_text("\n".join(["a,b,price", *lines]) + "\n")
    for name in ("least-squares", "mlp"):
        recipe = everynet.recipe(name, data=str(learned), target="price")
        if name == "mlp":
            recipe = replace(recipe, steps=3, batch_size=8, hidden=(4,))
        done = everynet.run(recipe, tmp_path / "runs", device="cpu")
        figures = everynet.evaluate(done.folder, other)
        model, price = everynet.load(done.folder), 1000 + rows[:7] @ torch.tensor([50.0, -20.0])
        spec = json.loads((done.folder / "spec.json").read_text())["spec"]
        x = (rows[:7].double() - torch.tensor(spec["mean"]).double()) / torch.tensor(spec["std"])
        x = x.double() if name == "least-squares" else x.float()
        said = [answer["value"] for answer in recipe.predict(model, x, spec)]
        error = (torch.tensor(said) - price).abs().mean().item()
        assert figures["mae"] == pytest.approx(error, rel=1e-3, abs=1e-2)
        assert figures.keys() >= {"r2", "rmse", "mae"}


def test_what_learns_from_its_data_otherwise_is_not_judged_by_files(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the cat saw the dog and the dog saw the cat in the old house\n" * 200)
    done = everynet.run(find("word2vec").tiny(), tmp_path / "runs", device="cpu")
    with pytest.raises(
        UserError, match="word2vec takes more from its data than files to test it on"
    ):
        everynet.evaluate(done.folder, path)


def test_a_network_without_files_takes_none(tmp_path):
    done = everynet.run(find("gan-ring").tiny(), tmp_path, device="cpu")
    with pytest.raises(UserError, match="must be left out, because gan-ring learns from no files"):
        everynet.evaluate(done.folder, "points.csv")
    with pytest.raises(UserError, match=r"steps must stay as it was in the run: .* takes none"):
        everynet.evaluate(done.folder, steps=3)
    assert everynet.evaluate(done.folder) == pytest.approx(done.metrics, rel=1e-5)


def rows(count, seed):
    x = np.random.default_rng(seed).normal(size=(count, 2)).round(3)
    return x, np.where(x.sum(1) > 0.8, "yes", "no")


def write(path, x, y, target="y"):
    lines = [f"{a},{b},{word}" for (a, b), word in zip(x.tolist(), y.tolist(), strict=True)]
    path.write_text("\n".join([f"a,b,{target}", *lines]) + "\n")
    return path


@pytest.fixture(scope="module")
def balanced(tmp_path_factory):
    """A perceptron of a table, trained with weights of classes."""
    place = tmp_path_factory.mktemp("balanced")
    path = write(place / "learned.csv", *rows(120, 0))
    recipe = everynet.recipe("mlp", data=str(path), target="y", class_weight="balanced", steps=20)
    recipe = replace(recipe, hidden=(4,), passes=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job.Job, "draw", lambda *_: ())
        return everynet.run(recipe, place / "runs", device="cpu")


def test_a_run_with_weights_of_classes_is_evaluated_on_files_frames_and_arrays(balanced, tmp_path):
    x, y = rows(40, 1)
    path = write(tmp_path / "new.csv", x, y)
    run = everynet.trained(balanced.folder)
    right = [one["class"] == word for one, word in zip(run.predict(x), y.tolist(), strict=True)]
    wanted = everynet.evaluate(balanced.folder, path)
    assert wanted["accuracy"] == pytest.approx(np.mean(right))
    assert 0 < wanted["accuracy"] < 1
    columns = {"b": x[:, 1], "a": x[:, 0]}
    found = [
        run.evaluate(path),
        run.evaluate(Frame({**columns, "label": y.astype(object)}), target="label"),
        run.evaluate(Frame({"y": y.astype(object), **columns})),
        run.evaluate((x, y)),
        run.evaluate((Frame(columns), Series(y.astype(object)))),
        everynet.evaluate(balanced.folder, (x.tolist(), y.tolist())),
    ]
    assert all(metrics == wanted for metrics in found)
    assert run.evaluate() == pytest.approx(balanced.metrics, rel=1e-5)


@pytest.mark.parametrize(("change", "words"), [
    (lambda x, y: (x[:, :1], y), r"inputs \(float64 of shape \(40, 1\)\) must be rows of 2 c"),
    (lambda x, y: (x, np.where(y == "no", "maybe", y)), "class maybe is none that the network lea"),
    (lambda x, y: Frame({"a": x[:, 0], "b": x[:, 1]}), "has no column y; did you mean "),
    (lambda x, y: (x, y[:-1]), "must hold one value for each row of X"),
    (lambda x, y: (np.zeros((4, 8, 8)), y[:4]), "must be "),
    (lambda x, y: 3, r"data \(of type int\) must be arrays of numpy or torch"),
])  # fmt: skip
def test_what_cannot_be_compared_with_targets_is_refused(balanced, change, words):
    with pytest.raises(UserError, match=words):
        everynet.trained(balanced.folder).evaluate(change(*rows(40, 1)))


@pytest.mark.parametrize("name", ["lenet", "char-rnn", "seq2seq", "sentiment"])
def test_data_in_memory_gives_the_metrics_of_its_files(name, tmp_path):
    draw = np.random.default_rng(0)
    if name == "lenet":
        data = draw.integers(0, 17, (9, 8, 8)).astype(np.uint8), np.arange(9) % 3
        path = tmp_path / "new.npz"
        np.savez(path, x=data[0], y=data[1])
    elif name == "char-rnn":
        data, path = ["the cat saw the dog"] * 90, tmp_path / "new.txt"
        path.write_text("\n".join(data))
    else:
        second = ["cba", "ed", "gf"] if name == "seq2seq" else ["good", "bad", "bad"]
        data = ["abc", "de", "fg"] * 9, second * 9
        files = [tmp_path / "texts.txt", tmp_path / "other.txt"]
        path = ",".join(map(str, files))
        for file, lines in zip(files, data, strict=True):
            file.write_text("\n".join(lines) + "\n")
    run = everynet.run(find(name).tiny(), tmp_path / "runs", device="cpu")
    wanted = everynet.evaluate(run.folder, path)
    assert everynet.trained(run.folder).evaluate(data) == wanted != run.metrics


def test_a_picture_whose_features_are_trained_is_evaluated_where_no_gradient_is_kept(tmp_path):
    """In another process the features must be trained anew, while the metrics are computed."""
    done = everynet.run(find("style").tiny(), tmp_path, device="cpu")
    style._trained_here.cache_clear()
    assert everynet.evaluate(done.folder) == pytest.approx(done.metrics, rel=1e-5)
