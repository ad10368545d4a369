"""What a recipe makes of data that judges it, beside what it makes of the data it learns from."""

import json
from dataclasses import replace

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
    assert everynet.evaluate(done.folder) == pytest.approx(done.metrics, rel=1e-5)
