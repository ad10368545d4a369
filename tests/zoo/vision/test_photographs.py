"""The networks of the papers on a folder of the user's own photographs."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

import everynet
from everynet.runs.verbs import run
from tests.data.either import inputs


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    random, folder = np.random.default_rng(0), tmp_path_factory.mktemp("photos")
    for name, colour in (("lawn", (60, 160, 60)), ("brick", (170, 70, 50))):
        (folder / name).mkdir()
        for number in range(20):
            pixels = random.normal(colour, 25, (30, 24, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        pytest.param("alexnet", {"size": 67, "width": 6, "groups": 2}, marks=pytest.mark.slow),
        ("vgg", {"size": 32, "width": 4, "depth": 13, "dropout": 0.0}),
        pytest.param("googlenet", {"size": 65, "width": 8}, marks=pytest.mark.slow),
        ("xception", {"size": 32, "width": 4, "middle": 1}),
    ],
)
def test_a_folder_of_photographs(name, fields, photos, tmp_path, monkeypatch):
    """Trained on, tested, drawn, and asked about by file."""
    monkeypatch.setattr(Figure, "savefig", lambda self, to, **_: to.write(b"drawn"))
    recipe = everynet.recipe(name, data=str(photos), steps=30, batch_size=8, **fields)
    result = run(recipe, tmp_path)
    assert result.metrics["accuracy"] == 1
    asked = [photos / "brick" / "3.png", photos / "lawn" / "5.png"]
    spec = recipe.dataset().spec
    with torch.no_grad():
        rows = recipe.predict(everynet.load(result.folder), inputs(asked, spec), spec)
    assert [row["class"] for row in rows] == ["brick", "lawn"]
