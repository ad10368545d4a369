"""Images that become images: what is read, standardised, refused and written."""

import numpy as np
import pytest
import torch
from PIL import Image

from everynet.data import check, kinds, load
from everynet.data.images.standardize import resize
from everynet.data.kinds import map as maps
from everynet.system.errors import UserError


def pixels(seed, *shape):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def fill(folder, count=20, shape=(8, 6), target=None):
    made = {}
    for below in ("inputs", "targets"):
        (folder / below).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        both = pixels(number, *shape), pixels([1, number], *(target or shape))
        made[f"{number}.png"] = both
        for below, array in zip(("inputs", "targets"), both, strict=True):
            Image.fromarray(array).save(folder / below / f"{number}.png")
    return made


def read(path, **options):
    return load(path, kind="map", batch_size=2, **options)


def whole(data, place):
    return torch.cat([data.splits[part][place] for part in ("train", "valid", "test")])


def test_targets_are_from_0_to_1_and_standardised_by_one_mean_and_std(tmp_path):
    made = fill(tmp_path, target=(8, 6, 3))
    data = read(tmp_path)
    spec, y = data.spec, data.splits["train"][1]
    assert data.parts == ("image", "map")
    assert (spec["task"], spec["target_shape"], spec["classes"]) == ("regression", [3, 8, 6], [])
    assert (spec["target_low"], spec["target_high"]) == (0.0, 1.0)
    assert y.dtype == torch.float32
    assert abs(float(y.mean())) < 1e-5
    assert float(y.std(correction=0)) == pytest.approx(1, abs=1e-5)
    values = whole(data, 1).double() * spec["target_std"] + spec["target_mean"]
    wanted = np.stack([target.transpose(2, 0, 1) for _, target in made.values()]) / 255
    assert np.allclose(np.sort(values.numpy().ravel()), np.sort(wanted.ravel()), atol=1e-5)
    assert maps.KIND.line(spec).endswith("images of 1x8x6 that become 3x8x6")


def test_large_sets_stay_bytes_and_give_the_same_batches(tmp_path, monkeypatch):
    fill(tmp_path)
    small = read(tmp_path)
    monkeypatch.setattr("everynet.data.kinds.image_kind.LARGE", 100)
    large = read(tmp_path)
    assert large.splits["train"][1].dtype == torch.uint8
    for a, b in zip(small.train(1), large.train(1), strict=True):
        assert torch.equal(a, b)


def test_an_npz_keeps_its_values(tmp_path):
    x = np.random.default_rng(0).normal(size=(30, 5, 7))
    y = np.random.default_rng(1).normal(3, 40, size=(30, 1, 5, 7))
    np.savez(tmp_path / "a.npz", x=x, y=y)
    data = read(tmp_path / "a.npz")
    assert data.spec["shape"] == [1, 5, 7]
    assert data.spec["peak"] == 1.0
    values = whole(data, 1).double() * data.spec["target_std"] + data.spec["target_mean"]
    assert np.allclose(np.sort(values.numpy().ravel()), np.sort(y.ravel()), atol=1e-4)
    train = data.splits["train"][1].double() * data.spec["target_std"] + data.spec["target_mean"]
    assert data.spec["target_high"] == pytest.approx(train.max().item(), abs=1e-4)
    assert kinds.matching(tmp_path / "a.npz") is maps.KIND
    assert "5x7" in str(check(tmp_path / "a.npz"))


@pytest.mark.parametrize("size", [0, 11])
def test_what_is_asked_is_treated_exactly_as_in_training(tmp_path, size):
    made = fill(tmp_path, shape=(9, 9))
    data = read(tmp_path, size=size)
    names, inputs = maps.KIND.read([tmp_path], data.spec)
    assert len(names) == 20
    assert sorted(map(str, inputs.tolist())) == sorted(map(str, whole(data, 0).tolist()))
    raw = torch.from_numpy(made["0.png"][0])[None, None]
    raw = resize(raw, size, 0) if size else raw
    by_hand = (raw.double() / 255 - data.spec["mean"][0]) / data.spec["std"][0]
    torch.testing.assert_close(inputs[:1].double(), by_hand, atol=1e-5, rtol=0)
    assert whole(data, 1).shape[2:] == inputs.shape[2:]


def test_what_was_made_is_written_as_a_picture_and_to_the_last_digit(tmp_path):
    spec = {"target_mean": 5.0, "target_std": 2.0, "target_low": 3.0, "target_high": 7.0}
    made = maps.KIND.to_data_units(torch.tensor([[[[-1.0, 0.0, 1.0, 9.0]]]]), spec)
    png, npy = maps.KIND.write(made, spec, tmp_path / "a")
    assert np.asarray(Image.open(png)).tolist() == [[0, 128, 255, 255]]
    assert np.load(npy).tolist() == [[[[3.0, 5.0, 7.0, 23.0]]]]
    png, npy = maps.KIND.write(made.expand(-1, 3, -1, -1), spec, tmp_path / "b.png")
    with Image.open(png) as image:
        assert image.mode == "RGB"
    assert npy == tmp_path / "b.npy"


def test_a_map_has_the_size_of_its_input_and_the_units_of_the_targets():
    spec = {"target_mean": 5.0, "target_std": 2.0}
    slope = torch.arange(4.0).expand(1, 4, 4)
    origin = kinds.Origin("a.png", size=(2, 8))
    answer = maps.KIND.answer({"image": slope, "change": 0.5}, spec, origin)
    assert answer["image"].shape == (1, 2, 8)
    assert answer["image"][0, 0, 1:7].tolist() == pytest.approx([5.5 + n for n in range(6)])
    assert answer["change"] == 0.5
    same = maps.KIND.answer({"image": slope}, spec, kinds.Origin("b.png", size=(4, 4)))
    assert same["image"][0, 0].tolist() == [5, 7, 9, 11]


def test_what_looks_like_maps(tmp_path):
    fill(tmp_path / "here", 3)
    fill(tmp_path / "below" / "train", 3)
    assert maps.KIND.matches(tmp_path / "here")
    assert maps.KIND.matches(tmp_path / "below")
    assert not maps.KIND.matches(tmp_path)
    assert not maps.KIND.matches(tmp_path / "no.npz")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("targets", "3.png", (9, 9)), r"targets/3\.png \(9x9\) must be as large as .*inputs/3"),
        (("targets", "77.png", (8, 6)), r"targets/77\.png must have a file of the same name in in"),
        (("inputs", "77.png", (8, 6)), r"inputs/77\.png must have a file of the same name in targ"),
    ],
)
def test_what_is_wrong_with_a_folder_is_one_line(tmp_path, change, message):
    below, name, shape = change
    fill(tmp_path)
    Image.fromarray(pixels(0, *shape)).save(tmp_path / below / name)
    with pytest.raises(UserError, match=message) as caught:
        read(tmp_path)
    assert str(caught.value) in str(check(tmp_path))


def test_files_that_cannot_be_read_and_a_folder_of_nothing(tmp_path):
    fill(tmp_path / "a")
    (tmp_path / "a" / "targets" / "3.png").write_bytes(b"no image at all")
    with pytest.raises(UserError, match=r"targets/3\.png is not an image that can be read"):
        read(tmp_path / "a", strict=True)
    assert len(check(tmp_path / "a").unreadable) == 1
    fill(tmp_path / "b", 0)
    with pytest.raises(UserError, match="it holds no image; add some"):
        read(tmp_path / "b")
    with pytest.raises(UserError, match=r"data \(.*c\.csv\) must be images with an image each"):
        maps.KIND.find(tmp_path / "c.csv")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"x": np.zeros((4, 5, 5)), "y": np.zeros((4, 5, 5))},
            r"y of train \(shape \(4, 5, 5\)\) must have 4 dimensions",
        ),
        (
            {"x": np.zeros((4, 5, 5)), "y": np.zeros((4, 1, 5, 6))},
            r"must be as many images, as high and wide, as x \(shape \(4, 5, 5\)\)",
        ),
        (
            {"x": np.zeros((4, 5, 5)), "y": np.zeros((3, 1, 5, 5))},
            r"must be as many images, as high and wide, as x",
        ),
        (
            {
                **{"x_train": np.zeros((4, 5, 5)), "y_train": np.zeros((4, 1, 5, 5))},
                **{"x_test": np.zeros((4, 6, 6)), "y_test": np.zeros((4, 1, 6, 6))},
            },
            r"a row of x of test \(1, 6, 6\) must be as in train \(1, 5, 5\)",
        ),
        (
            {"x": np.zeros((30, 5, 5)), "y": np.full((30, 1, 5, 5), 1e308) * np.array([-1])},
            "the targets have values too large to learn from",
        ),
    ],
)
def test_what_is_wrong_with_an_npz_is_one_line(tmp_path, arrays, message):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(UserError, match=message):
        maps.KIND.data(maps.KIND.find(tmp_path / "a.npz"), batch_size=2)
