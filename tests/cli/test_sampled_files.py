"""`sample` of a recipe that is given files: they are read exactly as `predict` reads its inputs."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import everynet
from everynet.runs import predict
from everynet.runs.job import Job
from everynet.system.errors import UserError

RECIPE = '''
"""Images between two others: a straight line from one to the other."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from everynet.data import Inputs, load
from everynet.data.dataset import Batch, Data, Spec, Terms
from everynet.recipes.training import Training
from everynet.system.errors import UserError


class Nothing(nn.Linear):
    """A network with weights, as a training needs."""


@dataclass(frozen=True, kw_only=True)
class Between(Training[Nothing]):
    """The straight line between images."""

    steps: int = 1
    batch_size: int = 8

    def dataset(self) -> Data:
        return load("digits", kind="image", batch_size=self.batch_size, seed=self.seed)

    def model(self, data: Data) -> Nothing:
        return Nothing(64, 10)

    def objective(self, model: Nothing, batch: Batch) -> Terms:
        return {"loss": nn.functional.cross_entropy(model(batch[0].flatten(1)), batch[1])}

    def predict(self, model: Nothing, inputs: Tensor, spec: Spec) -> list[dict[str, float]]:
        return [{"mean": x.mean().item()} for x in inputs]

    def sample(
        self, model: Nothing, spec: Spec, generator: torch.Generator, *, n: int = 3,
        between: Inputs = (),
    ) -> Tensor:
        """`n` images from the first to the second."""
        if len(between) != 2:
            raise UserError(f"between ({len(between)} images) must be two")
        assert isinstance(between, Tensor)
        assert between.dtype == next(model.parameters()).dtype
        share = torch.linspace(0, 1, n, dtype=between.dtype)[:, None, None, None]
        return between[0] + share * (between[1] - between[0])


RECIPES = {"between": Between()}
'''


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a run, its recipe and two images."""
    place = tmp_path_factory.mktemp("place")
    (place / "mine.py").write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "draw", lambda self, model: ())
        recipe = everynet.recipes.catalog.find(f"{place}/mine.py:between")
        (place / "run").symlink_to(everynet.run(recipe, place / "runs", device="cpu").folder)
    for name, level in (("a", 0), ("b", 200)):
        Image.fromarray(np.full((8, 8), level, np.uint8)).save(place / f"{name}.png")
    return place


@pytest.fixture(autouse=True)
def there(place, monkeypatch):
    monkeypatch.chdir(place)


FILE = ("--file", "mine.py")


def test_files_are_treated_as_in_training_and_samples_are_in_the_units_of_the_data(call):
    """The ends come out as the pixels that were given, the middle halfway."""
    for precision in ("fp32", "fp64"):
        words = ("between=a.png,b.png", "--out", f"{precision}.png", "--precision", precision)
        code, out, error = call("sample", "run", *words, *FILE)
        assert (code, error) == (0, "")
        _, *each = out.split()
        assert [np.unique(np.asarray(Image.open(name))).tolist() for name in each] == [
            [0], [100], [200],
        ]  # fmt: skip


def test_from_python_the_same_values_as_predict_takes():
    trained = everynet.trained("run", file="mine.py")
    named = trained.sample(between=["a.png", "b.png"])
    assert named[:, 0, 0, 0].tolist() == pytest.approx([0, 100 / 255, 200 / 255], abs=1e-6)
    arrays = np.stack([np.full((8, 8), level / 255 * 16) for level in (0, 200)])
    assert torch.allclose(trained.sample(between=arrays), named, atol=1e-6)
    assert torch.allclose(trained.sample(between=torch.from_numpy(arrays)), named, atol=1e-6)
    for wrong, said in (
        (
            np.full((2, 9, 9), 8.0),
            r"between: inputs \(1, 9, 9\) must have the shape \(1, 8, 8\) of th",
        ),
        (3, r"between: inputs \(of type int\) must be arrays"),
        (
            np.full((257, 8, 8), 8.0),
            r"between \(257 inputs\) must be at most 256, because they are read",
        ),
        ((), r"between \(0 images\) must be two"),
    ):
        with pytest.raises(UserError, match=said):
            trained.sample(between=wrong)


def test_mistakes_are_those_of_predict(refused, place, monkeypatch):
    (place / "bad.png").write_text("no image")
    for names, said in {
        "none.png": "between: none.png must be a file, but is not there",
        "a.png,bad.png": "between: bad.png is not an image",
        "a.png,,b.png": "between (a.png,,b.png) must be files, with a comma between two",
        "": "between () must be files, with a comma between two",
        "a.png": "between (1 images) must be two",
    }.items():
        assert refused("sample", "run", f"between={names}", *FILE).startswith(said)
    monkeypatch.setattr(predict, "AT_ONCE", 1)
    monkeypatch.setattr(predict.Predictor, "_read", None)  # too many are not even read
    line = refused("sample", "run", "between=a.png,b.png", *FILE)
    assert line == "between (2 inputs) must be at most 1, because they are read at once; give fewer"


def test_a_comma_in_the_name_of_a_file(refused, place):
    Path("a,b.png").write_bytes(Path("a.png").read_bytes())
    line = refused("sample", "run", "between=a,b.png", *FILE)
    assert line == "between (1 images) must be two"  # one file was read


def test_show_says_what_it_is(call):
    _, out, _ = call("show", "mine.py")
    assert "  n        3\n  between     files, read as predict reads its inputs\n" in out
