"""A run that is asked from Python answers what the verbs do."""

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import everynet
from everynet.cli import main
from everynet.runs.job import Job
from everynet.system.errors import NonFinite, UserError

PIXELS = np.random.default_rng(3).integers(0, 17, (300, 8, 8)).astype(np.float64)
LABELS = np.arange(300) % 3
MINE = Path(__file__).parent.parent / "cli" / "mine.py"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Runs without pictures: images, points that are made, texts, images of pixels, nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "draw", lambda self, model: ())
        out = tmp_path_factory.mktemp("runs")
        mlp = everynet.recipe("mlp", steps=4, batch_size=16)
        recipes = (
            everynet.recipe("gan-ring", steps=2, hidden_size=8, held_out=20),
            everynet.recipe("bag-of-words"),
            everynet.recipe("unet", steps=1).tiny(),
            everynet.recipe("lif"),
            everynet.recipes.catalog.find(f"{MINE}:flowers"),
        )
        made = {r.name: everynet.run(r, out, device="cpu").folder for r in recipes}
        return made | {"mlp": everynet.run(mlp, out, data=(PIXELS, LABELS), device="cpu").folder}


def lines(capsys, *words):
    assert main([str(word) for word in words]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_files_and_arrays(made, tmp_path, capsys):
    np.save(tmp_path / "a.npy", PIXELS)
    trained = everynet.trained(made["mlp"])
    said = lines(capsys, "predict", made["mlp"], tmp_path / "a.npy")
    assert trained.predict(tmp_path / "a.npy") == said
    assert trained.predict([str(tmp_path / "a.npy")]) == said
    found = trained.predict(PIXELS)
    assert [row.pop("input") for row in found] == list(range(300))
    assert found == [{k: v for k, v in row.items() if k != "input"} for row in said]


def test_texts_are_strings_and_files_are_paths(made, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("a good film\na bad one\n")
    trained = everynet.trained(made["bag-of-words"])
    said = lines(capsys, "predict", made["bag-of-words"], "a.txt")
    assert trained.predict(Path("a.txt")) == said
    found = trained.predict(["a good film", "a bad one"])
    assert [row["class"] for row in found] == [row["class"] for row in said]
    assert trained.predict("a good film") == found[:1]
    with pytest.raises(
        UserError, match=r"inputs \(a.txt\) may be a text or the name of a file; wr"
    ):
        trained.predict("a.txt")
    assert len(trained.predict(["a.txt"])) == 1  # a text


def test_tensors_come_in_the_units_of_the_data(made):
    trained = everynet.trained(made["unet"])
    channels, height, width = trained.spec["shape"]
    x = np.random.default_rng(0).integers(0, 256, (2, height, width, channels), dtype=np.uint8)
    masks = [
        value for row in trained.predict(x) for value in row.values() if hasattr(value, "shape")
    ]
    assert len(masks) == 2
    assert all(mask.shape == (height, width) for mask in masks)


def test_samples_are_what_the_verb_writes(made, tmp_path, capsys):
    trained = everynet.trained(made["gan-ring"])
    points = trained.sample(n=9)
    assert points.dtype == torch.float64
    main(["sample", str(made["gan-ring"]), "n=9", "--out", str(tmp_path / "a.csv")])
    _, *rows = csv.reader((tmp_path / "a.csv").read_text().splitlines())
    assert points.tolist() == [[float(cell) for cell in row] for row in rows]
    assert torch.equal(trained.sample(n=9, seed=0), points)
    assert not torch.equal(trained.sample(n=9, seed=1), points)
    assert torch.equal(trained.sample(n="9"), points)


def test_the_network_and_its_recipe_are_read_once_and_kept_aside(made):
    trained, again = everynet.trained(made["mlp"]), everynet.trained(made["mlp"])
    assert trained.model is trained.model
    assert trained.load() is not trained.model
    assert trained.recipe is trained.recipe
    assert trained.recipe.steps == 4
    assert trained.spec["shape"] == [1, 8, 8]
    assert trained == again
    assert trained.plain == again.plain
    assert list(trained.plain) == ["path", "sha256", "recipe"]
    before = trained.predict(np.full((1, 8, 8), 8.0))
    with torch.no_grad():
        trained.model.layers[0].weight.zero_()
    assert everynet.trained(made["mlp"]).predict(np.full((1, 8, 8), 8.0)) == before
    assert torch.is_grad_enabled()


def test_a_recipe_outside_the_zoo_needs_its_file(made):
    x = np.array([[5.1, 3.5, 1.4, 0.2]])
    assert everynet.trained(made["flowers"], file=MINE).predict(x)[0]["input"] == 0
    with pytest.raises(
        UserError, match=r"which is not in the zoo; if you trust that file, name it"
    ):
        everynet.trained(made["flowers"]).predict(x)


def test_a_number_beyond_every_float_is_one_line(made):
    """As the perplexity exp(1000) of a text that the network finds impossible."""
    said = r"mlp computes a number that is not finite; the input or the weights are too large: look"
    predictor = everynet.trained(made["mlp"])._predictor
    with pytest.raises(NonFinite, match=said), predictor.computing():
        math.exp(1000)


def test_mistakes(made):
    mlp, simulation = everynet.trained(made["mlp"]), everynet.trained(made["lif"])
    with pytest.raises(
        UserError, match=r"is a run of lif, a simulation, which has no model; every"
    ):
        _ = simulation.model
    for ask in (lambda: simulation.predict([[1.0]]), simulation.sample):
        with pytest.raises(UserError, match="lif is a simulation: it neither predicts nor samples"):
            ask()
    with pytest.raises(UserError, match="predict has no setting n; it takes none"):
        mlp.predict(np.full((1, 8, 8), 8.0), n=3)
    with pytest.raises(UserError, match="mlp does not generate samples"):
        mlp.sample(n=3)
    with pytest.raises(
        UserError, match=r"inputs \(1, 9, 9\) must have the shape \(1, 8, 8\) of th"
    ):
        mlp.predict(np.full((1, 9, 9), 8.0))
    with pytest.raises(UserError, match=r"inputs: x \(shape \(8, 8\)\)|inputs must hold images of"):
        mlp.predict(np.zeros((8, 8)))
    with pytest.raises(UserError, match=r"inputs \(of type int\) must be arrays of numpy or torch"):
        mlp.predict(3)
    with pytest.raises(
        UserError, match=r"^inputs \(rows of unequal length\) must be a table or imag"
    ):
        mlp.predict((PIXELS, LABELS))
    gan = everynet.trained(made["gan-ring"])
    with pytest.raises(UserError, match=r"sample has no setting m; did you mean film or n"):
        gan.sample(m=3)
    with pytest.raises(UserError, match=r"n \(3.5\) must be a whole number"):
        gan.sample(n=3.5)
    with pytest.raises(UserError, match=r"seed \(-1\) must be at least 0 and below 2\^63"):
        gan.sample(seed=-1)
    with pytest.raises(UserError, match=r"seed \(x\) must be a whole number"):
        gan.sample(seed="x")
