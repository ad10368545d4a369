"""`everynet predict`: one line of JSON for each input."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from everynet.catalog import find
from everynet.job import Job
from everynet.runs import run
from everynet.settings import override

MINE = Path(__file__).parent / "mine.py"
COLUMNS = "sepal_length,sepal_width,petal_length,petal_width"
ROWS = ("5.1,3.5,1.4,0.2", "7.0,3.2,4.7,1.4", "6.3,3.3,6.0,2.5")


@pytest.fixture(scope="module", autouse=True)
def unseen():
    """Runs without pictures, which take longer than the rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "draw", lambda self, model: ())
        yield


@pytest.fixture(scope="module")
def flowers(tmp_path_factory):
    """A run on a table, and the names of its columns."""
    recipe = override(find(f"{MINE}:flowers"), {"steps": 200})
    folder = run(recipe, tmp_path_factory.mktemp("runs")).folder
    features = json.loads((folder / "spec.json").read_text())["spec"]["features"]
    return folder, ",".join(features)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A run on images of 8 x 8."""
    recipe = override(find("mlp"), {"steps": 300})
    return run(recipe, tmp_path_factory.mktemp("runs")).folder


@pytest.fixture
def pictures(tmp_path):
    from sklearn.datasets import load_digits

    folder = tmp_path / "pictures"
    folder.mkdir()
    set_ = load_digits()
    for k in range(3):
        pixels = (set_.images[k] * 255 / 16).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{set_.target[k]}.png")
    return folder


def answers(out):
    return [json.loads(line) for line in out.splitlines()]


def typed(monkeypatch, content):
    """Standard input with this content."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def table(flowers, path, rows=ROWS):
    path.write_text("\n".join([flowers[1], *rows]) + "\n")
    return str(path)


def test_rows_of_a_table(call, flowers, tmp_path):
    path = table(flowers, tmp_path / "a.csv")
    code, out, error = call("predict", str(flowers[0]), path, "--file", str(MINE))
    assert (code, error) == (0, "")
    found = answers(out)
    assert [row["input"] for row in found] == [f"{path}:{k}" for k in range(3)]
    assert [row["class"] for row in found] == ["setosa", "versicolor", "virginica"]


def test_more_rows_than_are_asked_at_once(call, flowers, tmp_path):
    path = table(flowers, tmp_path / "a.csv", ROWS * 200)
    _, out, _ = call("predict", str(flowers[0]), path, "--file", str(MINE))
    assert [row["class"] for row in answers(out)] == ["setosa", "versicolor", "virginica"] * 200


def test_a_table_on_standard_input(call, flowers, monkeypatch):
    typed(monkeypatch, "\n".join([flowers[1], *ROWS]).encode())
    _, out, _ = call("predict", str(flowers[0]), "-", "--file", str(MINE))
    assert [row["input"] for row in answers(out)] == ["-:0", "-:1", "-:2"]
    assert [row["class"] for row in answers(out)] == ["setosa", "versicolor", "virginica"]


def test_images_and_folders(call, digits, pictures):
    one = str(pictures / "2.png")
    code, out, error = call("predict", str(digits), one, str(pictures))
    assert (code, error) == (0, "")
    found = answers(out)
    assert [Path(row["input"]).stem for row in found] == ["2", "0", "1", "2"]
    assert [row["class"] for row in found] == ["2", "0", "1", "2"]


@pytest.mark.parametrize("form", ["PNG", "JPEG", "npy", "npz"])
def test_an_image_on_standard_input(call, digits, pictures, monkeypatch, form):
    image, buffer = Image.open(pictures / "0.png"), io.BytesIO()
    pixels = np.asarray(image)[None, None] / 255 * 16
    if form == "npy":
        np.save(buffer, pixels.astype(np.float32))
    elif form == "npz":
        np.savez(buffer, x=pixels.astype(np.float32))
    else:
        image.save(buffer, form, quality=100)
    typed(monkeypatch, buffer.getvalue())
    code, out, error = call("predict", str(digits), "-")
    assert code == 0, error
    (row,) = answers(out)
    assert row["class"] == "0"
    assert row["input"].startswith("-")


def test_a_real_process(digits, pictures):
    with (pictures / "1.png").open("rb") as file:
        ran = subprocess.run(
            [sys.executable, "-m", "everynet", "predict", str(digits), "-"],
            stdin=file,
            capture_output=True,
            check=True,
            env=os.environ,
        )
    assert answers(ran.stdout.decode())[0]["class"] == "1"


def test_inputs_that_cannot_be_read(refused, digits, pictures, tmp_path, monkeypatch):
    folder = str(digits)
    assert "none.png must be a file" in refused("predict", folder, "none.png")
    line = refused("predict", folder, "-", str(pictures), "-")
    assert line == "- must stand for standard input once: it can be read only once"
    (tmp_path / "text.png").write_text("no image")
    assert "text.png is not an image" in refused("predict", folder, str(tmp_path / "text.png"))
    typed(monkeypatch, b"no image")
    line = refused("predict", folder, "-")
    assert line.startswith("standard input is not an image")
    assert "/" not in line
    typed(monkeypatch, b"")
    assert refused("predict", folder, "-") == "standard input is empty"


def test_runs_that_do_not_predict(refused, call):
    _, out, _ = call("run", f"{MINE}:double", "--quiet")
    line = refused("predict", out.strip(), "a.csv", "--file", str(MINE))
    assert line == "double is a simulation: it neither predicts nor samples"
    _, out, _ = call("run", f"{MINE}:average", "--quiet")
    Path("a.csv").write_text("a\n1\n")
    line = refused("predict", out.strip(), "a.csv", "--file", str(MINE))
    assert line == "a.csv has no column age; the nearest are a"
    Path("a.csv").write_text("age,sex,bmi,bp,s1,s2,s3,s4,s5,s6\n" + "1," * 9 + "1\n")
    line = refused("predict", out.strip(), "a.csv", "--file", str(MINE))
    assert line == "average does not predict from files"
    assert refused("predict", "none", "a.csv").startswith("there is no run folder none")
