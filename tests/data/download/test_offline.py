"""Sets that need no file: scikit-learn's, the generated points, and what `load` makes of them."""

import json

import pytest
import torch
from sklearn import datasets
from sklearn.neighbors import KNeighborsClassifier

from everynet.data import built_in, names
from everynet.data.images.augment import shift
from everynet.data.sets import everything, points
from everynet.data.split import PARTS
from everynet.system.errors import UserError
from tests.data.either import load

QUICK = [
    name if name != "strokes" else "strokes:1000"
    for name in built_in()
    if everything()[name].kind in ("table", "image")
]
TABLES = {"iris": 150, "wine": 178, "breast-cancer": 569, "diabetes": 442}


@pytest.mark.parametrize("name", QUICK)
def test_every_offline_set_keeps_the_contract(name):
    """Types, shapes, a spec that is plain JSON, standardised by the training part alone."""
    data = load(name, batch_size=1)
    assert set(data.splits) == set(PARTS)
    assert json.loads(json.dumps(data.spec)) == data.spec
    assert len(data.digest) == 64
    assert data.spec["name"] == name.partition(":")[0]
    assert data.spec["split"]
    for part in PARTS:
        x, y = data.splits[part]
        assert len(x) == len(y) > 0
        assert list(x.shape[1:]) == data.spec["shape"]
        assert x.dtype == (torch.float32 if data.spec["kind"] == "image" else torch.float64)
        assert y.dtype == (torch.float64 if data.spec["task"] == "regression" else torch.int64)
    x = data.splits["train"][0].double()
    dims = (0, 2, 3) if x.dim() == 4 else (0,)
    assert x.mean(dims).abs().max() < 1e-5
    assert (x.var(dims, correction=0) - 1).abs().max() < 1e-5


@pytest.mark.parametrize("name", QUICK)
def test_loading_twice_gives_the_same_and_the_seed_only_the_order(name):
    first, second = load(name, batch_size=1), load(name, batch_size=1, seed=5)
    assert first.digest == second.digest
    for part in PARTS:
        for a, b in zip(first.splits[part], second.splits[part], strict=True):
            assert torch.equal(a, b)


def test_digits_are_those_of_scikit_learn_whole_and_apart():
    """Undoing the standardisation gives every image back exactly once, with its label."""
    data, source = load("digits", batch_size=32), datasets.load_digits()
    mean, std = data.spec["mean"][0], data.spec["std"][0]
    x = torch.cat([data.splits[part][0] for part in PARTS]).double()
    y = torch.cat([data.splits[part][1] for part in PARTS])
    pixels = ((x * std + mean) * 16).round().to(torch.uint8).reshape(-1, 64)
    found = sorted((*row, label) for row, label in zip(pixels.tolist(), y.tolist(), strict=True))
    rows = zip(source.data.astype(int).tolist(), source.target.tolist(), strict=True)
    assert found == sorted((*row, label) for row, label in rows)
    assert torch.isclose(x * std + mean, torch.tensor(0.0).double(), atol=1e-6).any()


def test_the_test_part_of_digits_is_a_stratified_fifth():
    data, source = load("digits", batch_size=32), datasets.load_digits()
    assert [data.rows(part) for part in PARTS] == [1294, 144, 359]
    counts = torch.bincount(data.splits["test"][1])
    whole = torch.bincount(torch.from_numpy(source.target))
    assert counts.tolist() == [round(0.2 * n) for n in whole.tolist()]
    assert "stratified random fifth" in data.spec["split"]


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_that_of_scikit_learn(name):
    data, source = load(name, batch_size=4), everything()[name].make("")
    assert sum(data.rows(part) for part in PARTS) == TABLES[name]
    mean, std = (torch.tensor(data.spec[key], dtype=torch.float64) for key in ("mean", "std"))
    for part in PARTS:
        torch.testing.assert_close(data.splits[part][0] * std + mean, source.parts[part][0])
    assert len(data.spec["features"]) == data.spec["shape"][0]


def test_classes_have_names_and_diabetes_a_real_target():
    assert load("iris", batch_size=4).spec["classes"] == ["setosa", "versicolor", "virginica"]
    assert load("breast-cancer", batch_size=4).spec["classes"] == ["malignant", "benign"]
    diabetes = load("diabetes", batch_size=4)
    y = diabetes.splits["train"][1]
    assert diabetes.spec["classes"] == []
    assert diabetes.spec["target_mean"] == pytest.approx(y.mean().item())
    assert diabetes.spec["target_std"] == pytest.approx(y.std(correction=0).item())
    age = diabetes.spec["features"].index("age")
    assert diabetes.spec["mean"][age] == pytest.approx(48.5, abs=1.5), "years, not scaled"


@pytest.mark.parametrize("name", ["china", "flower"])
def test_a_photo_is_one_picture(name):
    data = load(name, batch_size=1)
    assert data.spec["shape"] == [3, 427, 640]
    assert load(name, batch_size=1, size=64).spec["shape"] == [3, 64, 64]
    assert "same in all three" in data.spec["split"]


def test_digits_are_enlarged_fourfold():
    small, large = (load("digits", batch_size=8, size=size) for size in (0, 32))
    x = large.splits["test"][0]
    assert x.shape[1:] == (1, 32, 32)
    torch.testing.assert_close(x[:, :, ::4, ::4], small.splits["test"][0])
    torch.testing.assert_close(x[:, :, 3::4, 3::4], small.splits["test"][0])
    assert large.spec["size"] == 32


# ------------------------------------------------------------------------------------------- points


@pytest.mark.parametrize("name", points.SHAPES)
def test_points_are_balanced_and_follow_from_count_and_seed(name):
    x, y = points.draw(name, 600, seed=3)
    assert torch.equal(points.draw(name, 600, seed=3)[0], x)
    assert not torch.equal(points.draw(name, 600, seed=4)[0], x)
    counts = torch.bincount(y)
    assert len(counts) == points.SHAPES[name][0]
    assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("name", points.SHAPES)
def test_near_neighbours_tell_the_classes_apart(name):
    data = load(name, batch_size=10)
    near = KNeighborsClassifier(5).fit(*data.whole)
    assert near.score(*data.splits["test"]) > 0.97


def test_two_spirals_are_each_other_turned_by_half_a_circle():
    """Closed form: on arm y, angle = 3.5 pi t + pi y where radius = 0.1 + 0.9 t."""
    x, y = points.draw("spirals", 4000)
    radius = x.norm(dim=1)
    t = (radius - 0.1) / 0.9
    angle = torch.atan2(x[:, 1], x[:, 0])
    wrong = (angle - 3.5 * torch.pi * t - torch.pi * y + torch.pi) % (2 * torch.pi) - torch.pi
    outer = t > 0.3
    assert wrong[outer].abs().max() < 1.0
    assert abs(wrong[outer].mean()) < 0.02


def test_xor_is_not_told_by_one_coordinate():
    x, y = points.draw("xor", 4000)
    assert torch.equal((x[:, 0] > 0.5) ^ (x[:, 1] > 0.5), y.bool())
    for column in range(2):
        assert abs(torch.corrcoef(torch.stack([x[:, column], y.double()]))[0, 1]) < 4 / 4000**0.5


def test_the_inner_disc_lies_within_the_ring():
    x, y = points.draw("rings", 4000)
    radius = x.norm(dim=1)
    assert radius[y == 0].max() < radius[y == 1].mean()
    # evenly over the disc: the mean of r is two thirds of its radius, a little more with noise
    assert radius[y == 0].mean() == pytest.approx(0.333, abs=0.02)


def test_moons_lie_on_half_circles():
    x, y = points.draw("moons", 4000)
    centre = torch.stack([y, 0.5 * y], 1)
    assert (x - centre).norm(dim=1).mean() == pytest.approx(1.0, abs=0.02)


def test_blobs_are_where_they_should_be():
    x, y = points.draw("blobs", 3000)
    centres = torch.stack([x[y == label].mean(0) for label in range(3)])
    wanted = torch.tensor([[0, 1], [-(0.75**0.5), -0.5], [0.75**0.5, -0.5]], dtype=torch.float64)
    assert (centres - wanted).abs().max() < 4 * 0.3 / 1000**0.5


def test_a_number_of_points_can_be_asked_for():
    data = load("spirals:300", batch_size=10)
    assert [data.rows(part) for part in PARTS] == [270, 30, 150]
    assert data.spec["name"] == "spirals"


# --------------------------------------------------------------------------------------- what fails


def test_names_lists_all_and_real_sets_last():
    assert names()[: len(built_in())] == built_in()
    assert {"mnist", "fashion-mnist", "cifar10", "cifar10-small"} <= set(names())


def test_an_unknown_name_is_answered_with_the_nearest_three():
    with pytest.raises(UserError, match=r"data \(digts\) .*did you mean digits, \S+ or \S+\?$"):
        load("digts", batch_size=4)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        (
            "iris",
            {"size": 8},
            r"size \(8\) must be left out, because data \(iris\) is table data, which has no",
        ),
        (
            "iris",
            {"augment": shift(1)},
            r"augment \(.*\) must be left out, because data \(iris\) is table data",
        ),
        ("digits", {"size": -1}, r"size \(-1\) must be from 0.* to 2048"),
        ("digits", {"size": 5000}, r"size \(5000\) must be from 0.* to 2048"),
        ("iris:20", {}, r"data \(iris:20\) must be iris: it has a fixed number"),
        ("moons:1e3", {}, r"data \(moons:1e3\) must be like moons:2000"),
        ("moons:5", {}, "moons:5 must be from moons:20 to moons:10000000"),
        ("digits", {"batch_size": 1295}, r"batch_size \(1295\) must be between 1 and the 1294"),
    ],
)
def test_what_cannot_be_is_refused(name, arguments, message):
    with pytest.raises(UserError, match=message):
        load(name, **{"batch_size": 4, **arguments})
