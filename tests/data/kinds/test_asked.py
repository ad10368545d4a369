"""What `predict` is given is treated exactly as the training data was."""

import numpy as np
import pytest
import torch
from PIL import Image

from everynet.system.errors import UserError
from tests.data.either import find, inputs, labelled, load

RANDOM = np.random.default_rng(1)


@pytest.fixture
def photos(tmp_path):
    """Two classes of colour images of many sizes."""
    for label in ("cat", "dog"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(15):
            shape = (*RANDOM.integers(6, 20, 2), 3)
            image = Image.fromarray(RANDOM.integers(0, 256, shape, dtype=np.uint8))
            image.save(tmp_path / "photos" / label / f"{number}.png")
    return tmp_path / "photos"


def test_every_training_file_comes_back_bit_for_bit(photos):
    data = load(photos, batch_size=4, size=9)
    found = labelled([photos], data.spec)
    assert found[0] == sorted(str(path) for path in photos.rglob("*.png"))
    trained = torch.cat([data.splits[part][0] for part in data.splits])
    assert sorted(x.tolist() for x in found[1]) == sorted(x.tolist() for x in trained)


@pytest.mark.parametrize("size", [0, 16, 10, 20])
def test_digits_as_npy_and_as_png(tmp_path, size):
    """Levels 0 to 16 as they are, and as grey values, give what training saw."""
    data, raw = load("digits", batch_size=4, size=size), find("digits")
    pixels = raw.parts["test"][0][:5]
    np.save(tmp_path / "a.npy", pixels.numpy())
    wanted = data.splits["test"][0][:5]
    assert torch.equal(inputs([tmp_path / "a.npy"], data.spec), wanted)
    np.save(tmp_path / "a.npy", pixels.double().numpy())  # as scikit-learn has them
    assert torch.equal(inputs([tmp_path / "a.npy"], data.spec), wanted)
    if size in (0, 16):  # elsewhere levels are rounded to sixteenths in one and not in the other
        for number, image in enumerate(pixels):
            grey = (image[0].double() * 255 / 16).round().to(torch.uint8)
            Image.fromarray(grey.numpy()).save(tmp_path / f"{number}.png")
        found = inputs([tmp_path / f"{number}.png" for number in range(5)], data.spec)
        assert (found - wanted).abs().max() < 0.5 / 255 / data.spec["std"][0] + 1e-5


@pytest.mark.covers("D1")
def test_colour_is_made_grey_and_grey_colour(tmp_path, photos):
    grey = RANDOM.integers(0, 256, (8, 8), dtype=np.uint8)
    Image.fromarray(grey).save(tmp_path / "grey.png")
    Image.fromarray(np.dstack([grey] * 3)).save(tmp_path / "colour.png")
    for name in ("digits", photos):
        spec = load(name, batch_size=4, size=8).spec
        one, two = (inputs([tmp_path / f"{kind}.png"], spec) for kind in ("grey", "colour"))
        assert torch.equal(one, two)
        assert list(one.shape[1:]) == spec["shape"]


def test_real_images_in_an_npz(tmp_path):
    x = RANDOM.random((30, 4, 4))
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(30) % 2)
    data = load(tmp_path / "a.npz", batch_size=4)
    np.savez(tmp_path / "b.npz", x=x)
    found = inputs([tmp_path / "b.npz"], data.spec)
    trained = torch.cat([data.splits[part][0] for part in data.splits])
    assert sorted(x.tolist() for x in found) == sorted(x.tolist() for x in trained)


def test_a_csv_by_the_names_of_its_columns(tmp_path):
    rows = RANDOM.normal(size=(40, 2))
    lines = [f"{a!r},{b!r},{'xy'[i % 2]}" for i, (a, b) in enumerate(rows.tolist())]
    (tmp_path / "a.csv").write_text("a,b,label\n" + "\n".join(lines))
    data = load(tmp_path / "a.csv", batch_size=4, target="label")
    raw = find(tmp_path / "a.csv", target="label")
    turned = [f"note,{b!r},{a!r}" for a, b in rows.tolist()]
    (tmp_path / "b.csv").write_text("note,b,a\n" + "\n".join(turned))
    np.save(tmp_path / "c.npy", rows)
    names, first = labelled([tmp_path / "b.csv"], data.spec)
    assert names[3] == f"{tmp_path / 'b.csv'}:3"
    assert torch.equal(first[raw.rows["test"]], data.splits["test"][0])
    assert torch.equal(inputs([tmp_path / "c.npy"], data.spec), first)
    assert len(inputs([tmp_path / "b.csv", tmp_path / "c.npy"], data.spec)) == 80


def test_what_cannot_be_read_is_refused_by_name(tmp_path):
    image, table = load("digits", batch_size=4).spec, load("iris", batch_size=4).spec
    Image.fromarray(np.zeros((9, 9), np.uint8)).save(tmp_path / "large.png")
    np.save(tmp_path / "unit.npy", np.full((2, 8, 8), 0.5))
    np.save(tmp_path / "high.npy", np.full((2, 8, 8), 17))
    np.save(tmp_path / "table.npy", np.zeros((2, 3)))
    np.savez(tmp_path / "other.npz", z=np.zeros((2, 8, 8)))
    (tmp_path / "text.txt").write_text("hello")
    (tmp_path / "few.csv").write_text("sepal length (cm)\n1\n")
    (tmp_path / "empty").mkdir()
    np.save(tmp_path / "none.npy", np.zeros((0, 8, 8)))
    (tmp_path / "bomb.pgm").write_bytes(b"P5\n10000 10000\n255\n" + bytes(100))
    for name, spec, message in (
        ("large.png", image, r"large.png \(1, 9, 9\) must have the shape \(1, 8, 8\)"),
        ("unit.npy", image, r"unit.npy \(0.5 to 0.5\) must hold values from 0 to 16"),
        ("high.npy", image, r"high.npy \(17 to 17\) must hold values from 0 to 16"),
        ("table.npy", image, r"table.npy must hold images of shape \(1, 8, 8\)"),
        ("table.npy", table, r"table.npy \(2, 3\) must have 4 columns: sepal length"),
        ("other.npz", image, "other.npz holds z, but must hold x"),
        ("none.npy", image, r"none.npy must hold images of shape \(1, 8, 8\)"),
        ("bomb.pgm", image, r"bomb.pgm \(10000x10000\) must have at most 40,000,000 pixels"),
        ("text.txt", image, "text.txt must be an image"),
        ("text.txt", table, "text.txt must end in .csv, .parquet, .feather, .npy or .npz"),
        ("few.csv", table, "few.csv has no column sepal width"),
        ("none.png", image, "none.png must be a file, but is not there"),
        ("empty", image, "empty holds no file"),
    ):
        with pytest.raises(UserError, match=message):
            inputs([tmp_path / name], spec)
    with pytest.raises(UserError, match="inputs must name at least one file"):
        inputs([], image)


def test_columns_that_do_not_make_the_features_are_refused(tmp_path):
    """As in a folder that somebody changed: one number must not stand for all of them."""
    lines = [f"{i},{i % 7},{'xy'[i % 2]}" for i in range(40)]
    (tmp_path / "a.csv").write_text("a,b,label\n" + "\n".join(lines))
    spec = load(tmp_path / "a.csv", batch_size=4, target="label").spec
    short = {**spec, "columns": spec["columns"][:1]}
    with pytest.raises(UserError, match=r"a.csv \(40, 1\) must have 2 columns: a, b"):
        inputs([tmp_path / "a.csv"], short)
