"""Images with masks: what is read, how it is split and sized, what is refused, what is written."""

import numpy as np
import pytest
import torch
from PIL import Image

from everynet.data import check, kinds, load
from everynet.data.images.standardize import resize
from everynet.data.kinds import mask
from everynet.system.errors import UserError

LEVELS = (0, 128, 255)


def pixels(seed, *shape):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def labels(seed, *shape):
    """Numbers of classes; all three in every mask."""
    made = np.random.default_rng([9, seed]).integers(0, 3, shape, dtype=np.uint8)
    made[0, :3] = 0, 1, 2
    return made


def save(folder, name, image, levels):
    for below, array in (("images", image), ("masks", levels)):
        (folder / below).mkdir(parents=True, exist_ok=True)
        Image.fromarray(array).save(folder / below / name)


def fill(folder, count=20, shape=(12, 10), levels=LEVELS):
    """Images and masks named 0.png ..., each different; gives both by name."""
    made = {}
    for number in range(count):
        made[f"{number}.png"] = image, classes = pixels(number, *shape), labels(number, *shape)
        save(folder, f"{number}.png", image, np.array(levels, dtype=np.uint8)[classes])
    return made


def read(folder, **options):
    return load(folder, kind="mask", batch_size=2, **options)


def test_every_image_arrives_once_with_its_mask_and_the_levels_are_classes(tmp_path):
    made = fill(tmp_path)
    found = kinds.named("mask").find(tmp_path)
    assert found.levels == LEVELS
    assert found.classes == ("0", "128", "255")
    got = [
        (x[0].numpy().tobytes(), y.numpy().tobytes())
        for part in found.parts.values()
        for x, y in zip(*part, strict=True)
    ]
    assert sorted(got) == sorted((x.tobytes(), y.tobytes()) for x, y in made.values())


def test_the_data_is_described_and_masks_are_int64(tmp_path):
    fill(tmp_path)
    data = read(tmp_path)
    assert data.parts == ("image", "mask")
    x, y = data.splits["train"]
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
    assert data.spec["task"] == "segmentation"
    assert data.spec["kind"] == "mask"
    assert data.spec["levels"] == list(LEVELS)
    assert data.spec["shape"] == [1, 12, 10]
    assert abs(float(x.mean())) < 1e-5
    assert float(x.std(correction=0)) == pytest.approx(1, abs=1e-5)
    assert mask.KIND.line(data.spec).endswith("images of 1x12x10, 3 classes of pixels")


def test_large_sets_stay_bytes_and_are_prepared_batch_by_batch(tmp_path, monkeypatch):
    fill(tmp_path)
    small = read(tmp_path)
    monkeypatch.setattr("everynet.data.kinds.image_kind.LARGE", 100)
    large = read(tmp_path)
    assert [tensor.dtype for tensor in large.splits["train"]] == [torch.uint8] * 2
    for a, b in zip(small.train(3), large.train(3), strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)


def test_palettes_and_two_valued_masks(tmp_path):
    for number in range(10):
        classes = labels(number, 8, 8)
        save(tmp_path, f"{number}.png", pixels(number, 8, 8), classes)
        indexed = Image.fromarray(classes)
        indexed.putpalette([200, 0, 0, 0, 200, 0, 0, 0, 200])
        assert indexed.mode == "P"
        indexed.save(tmp_path / "masks" / f"{number}.png")
    assert read(tmp_path).spec["levels"] == [0, 1, 2]
    for number in range(10):
        Image.fromarray(labels(number, 8, 8) > 0).save(tmp_path / "masks" / f"{number}.png")
    assert read(tmp_path).spec["levels"] == [0, 255]


def test_names_of_classes_and_parts_of_the_user(tmp_path):
    for part, count in (("train", 5), ("val", 2), ("test", 3)):
        fill(tmp_path / part, count)
    (tmp_path / "classes.txt").write_text("ground\nroad\nsky\n\n")
    data = read(tmp_path)
    assert data.spec["classes"] == ["ground", "road", "sky"]
    assert [data.rows(part) for part in ("train", "valid", "test")] == [5, 2, 3]
    assert data.spec["split"] == "train, valid and test are folders of their own"


@pytest.mark.parametrize("side", [5, 11, 24, 36, 40])
def test_size_moves_image_and_mask_alike(tmp_path, side):
    """A half-plane that is both image and mask stays both, to the pixel at its edge."""
    half = np.zeros((12, 12), np.uint8)
    half[:, 5:] = 255
    for number in range(8):
        save(tmp_path, f"{number}.png", half, half)
    data = read(tmp_path, size=side)
    x, y = data.splits["train"]
    assert x.shape[1:] == (1, side, side)
    assert y.shape[1:] == (side, side)
    assert set(y.unique().tolist()) == {0, 1}
    high = (x[:, 0] > (x.amin() + x.amax()) / 2).long()
    assert int((high != y).sum(2).max()) <= 1
    assert int((y[0, 0] == 0).sum()) == pytest.approx(side * 5 / 12, abs=0.51)


def test_masks_are_resized_to_the_nearest_never_to_a_mean():
    y = torch.tensor([[[0, 2], [2, 0]]], dtype=torch.uint8)
    assert mask.nearest(y, 4).tolist() == [[[0, 0, 2, 2], [0, 0, 2, 2], [2, 2, 0, 0], [2, 2, 0, 0]]]
    assert set(mask.nearest(y, 7).unique().tolist()) == {0, 2}


@pytest.mark.parametrize("size", [0, 15, 16])
def test_what_is_asked_is_treated_exactly_as_in_training(tmp_path, size):
    """Also where a few pixels are missing: no border, which a mask would not have."""
    made = fill(tmp_path, shape=(12, 12))
    data = read(tmp_path, size=size)
    spec = data.spec
    names, inputs = mask.KIND.read([tmp_path], spec)
    assert [name.rsplit("/", 2)[1:] for name in names[:1]] == [["images", "0.png"]]
    assert len(names) == len(made)
    wanted = torch.cat([data.splits[part][0] for part in ("train", "valid", "test")])
    assert sorted(map(str, inputs.tolist())) == sorted(map(str, wanted.tolist()))
    raw = torch.from_numpy(made["0.png"][0])[None, None]
    raw = resize(raw, size, 0) if size else raw
    by_hand = (raw.double() / 255 - spec["mean"][0]) / spec["std"][0]
    torch.testing.assert_close(inputs[0].double(), by_hand[0], atol=1e-5, rtol=0)


def test_a_mask_has_the_size_of_its_input_and_the_levels_of_the_users_masks():
    spec = {"classes": ["tissue", "cell"], "levels": [0, 255]}
    image = torch.full((3, 4, 6), 100, dtype=torch.uint8)
    origin = kinds.Origin("a.png", size=(4, 6), pixels=lambda: image)
    answer = mask.KIND.answer({"mask": torch.tensor([[0, 1], [0, 0]])}, spec, origin)
    assert answer["mask"].tolist() == [[0, 0, 0, 255, 255, 255]] * 2 + [[0] * 6] * 2
    assert answer["mask"].dtype == torch.uint8
    assert answer["classes"] == {"tissue": 0.75, "cell": 0.25}
    drawn = mask.KIND.overlay(answer, spec, origin)
    assert torch.equal((drawn != 100).any(0), answer["mask"] == 255)
    assert drawn[:, 0, 3].tolist() == [(100 + 0xD5) // 2, (100 + 0x5E) // 2, 50]
    square = mask.KIND.answer({"mask": torch.tensor([[0, 1], [0, 0]])}, spec, kinds.Origin(0))
    assert square["mask"].tolist() == [[0, 255], [0, 0]]


def test_masks_are_written_in_grey_and_read_back(tmp_path):
    made = torch.arange(12, dtype=torch.uint8).reshape(1, 3, 4) * 20
    (path,) = mask.KIND.write(made, {}, tmp_path / "a")
    assert path == tmp_path / "a.png"
    with Image.open(path) as image:
        assert image.mode == "L"
        assert np.array_equal(np.asarray(image), made[0].numpy())
    paths = mask.KIND.write(made.expand(3, -1, -1), {}, tmp_path / "b.png")
    assert [path.name for path in paths] == ["b-000.png", "b-001.png", "b-002.png"]
    with pytest.raises(UserError, match=r"--out \(.*a\.jpg\) must end in \.png"):
        mask.KIND.write(made, {}, tmp_path / "a.jpg")


def test_what_looks_like_masks(tmp_path):
    fill(tmp_path / "here", 3)
    fill(tmp_path / "below" / "train", 3)
    assert mask.KIND.matches(tmp_path / "here")
    assert mask.KIND.matches(tmp_path / "below")
    assert not mask.KIND.matches(tmp_path)
    assert not mask.KIND.matches(tmp_path / ("x" * 5000))
    assert kinds.matching(tmp_path / "here") is mask.KIND


def test_the_digest_sees_names_images_and_masks(tmp_path):
    fill(tmp_path)
    seen = {read(tmp_path).digest}
    save(tmp_path, "3.png", pixels(99, 12, 10), np.array(LEVELS, np.uint8)[labels(3, 12, 10)])
    seen.add(read(tmp_path).digest)
    levels = np.array(LEVELS, np.uint8)[labels(98, 12, 10)]
    Image.fromarray(levels).save(tmp_path / "masks" / "3.png")
    seen.add(read(tmp_path).digest)
    for below in ("images", "masks"):
        (tmp_path / below / "3.png").rename(tmp_path / below / "33.png")
    seen.add(read(tmp_path).digest)
    assert len(seen) == 4


# ---------------------------------------------------------------------------------- what is wrong


def grey(place, *shape):
    return lambda folder: Image.fromarray(pixels(5, *shape)).save(folder / place)


def three(folder):
    for path in (folder / "masks").iterdir():
        Image.fromarray(np.full((12, 10), 7, np.uint8)).save(path)


def many(folder):
    """Eleven levels in each mask, one of another range in each."""
    for number, path in enumerate(sorted((folder / "masks").iterdir())):
        array = np.arange(120, dtype=np.uint8).reshape(12, 10) % 11 + 11 * number
        Image.fromarray(array.astype(np.uint8)).save(path)


def strange(folder):
    for part in ("train", "test"):
        fill(folder / part, 4)
    array = np.array(LEVELS, np.uint8)[labels(2, 12, 10)]
    array[4, 4] = 77
    Image.fromarray(array).save(folder / "test" / "masks" / "2.png")


def rgb(folder):
    Image.fromarray(pixels(1, 12, 10, 3)).save(folder / "masks" / "3.png")


def jpg(folder):
    (folder / "masks" / "3.png").unlink()
    Image.fromarray(pixels(1, 12, 10)).save(folder / "masks" / "3.jpg")


def cut(name):
    def do(folder):
        path = folder / name
        path.write_bytes(path.read_bytes()[:60])

    return do


BAD = {
    "a mask of another size": (
        grey("masks/3.png", 9, 10),
        r"masks/3\.png \(10x9\) must be as large as .*images/3\.png \(10x12\), because .*; save it",
    ),
    "an image without a mask": (
        grey("images/77.png", 12, 10),
        r"images/77\.png must have a file of the same name in masks",
    ),
    "a mask without an image": (
        grey("masks/77.png", 12, 10),
        r"masks/77\.png must have a file of the same name in images",
    ),
    "images of mixed sizes": (
        lambda folder: save(folder, "4.png", pixels(4, 9, 9), labels(4, 9, 9)),
        r"images/4\.png \(9x9\) must be as large as .* \(10x12\); or do size=10, which",
    ),
    "an image cut short": (cut("images/2.png"), r"images/2\.png (cannot be read|is not an image)"),
    "a mask cut short": (cut("masks/2.png"), r"masks/2\.png (cannot be read|is not an image)"),
    "a mask in colour": (
        rgb,
        r"masks/3\.png \(colour mode RGB\) must be a PNG in 8-bit grey or with a palette",
    ),
    "a mask that loses levels": (jpg, r"masks/3\.jpg \(JPEG\) must be a PNG"),
    "one class": (three, r"one class \(level 7\) in all masks is not enough to learn from; give"),
    "a photograph": (
        grey("masks/3.png", 12, 10),
        r"masks/3\.png \(\d+ levels\) must have at most 64 classes; the mask looks like a photog",
    ),
    "too many levels in all": (many, r"\(\d+ levels in its masks\) must have at most 64 classes"),
    "a level that is not learned": (
        strange,
        r"test/masks/2\.png has the level 77, which no training mask has: 0, 128, 255",
    ),
    "names for other classes": (
        lambda folder: (folder / "classes.txt").write_text("a\nb\n"),
        r"classes\.txt \(2 names\) must have one name, each different, for each of the 3 levels",
    ),
    "the same name twice": (
        grey("images/3.bmp", 12, 10),
        r"images/3\.png must be the only one of its name, up to the ending",
    ),
    "a folder among the images": (
        lambda folder: (folder / "images" / "more.png").mkdir(),
        r"images/more\.png must be a file, but is a folder",
    ),
    "something else among the images": (
        lambda folder: [(folder / b / "notes.txt").write_text("x") for b in ("images", "masks")],
        r"images/notes\.txt must be an image, its name ending in",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_one_line_with_the_name_of_the_file(tmp_path, case):
    fill(tmp_path) if case != "a level that is not learned" else None
    spoil, message = BAD[case]
    spoil(tmp_path)
    with pytest.raises(UserError, match=message) as caught:
        read(tmp_path, strict=True)
    assert "\n" not in str(caught.value)
    report = check(tmp_path, kind="mask", strict=True)
    assert not report.good
    assert str(caught.value) in str(report)


def test_a_folder_without_masks_and_one_with_nothing(tmp_path):
    (tmp_path / "images").mkdir()
    with pytest.raises(UserError, match="must have a folder masks in it"):
        mask.KIND.find(tmp_path)
    with pytest.raises(UserError, match=r"a folder with images and masks.*looks like image data"):
        read(tmp_path)
    (tmp_path / "masks").mkdir()
    with pytest.raises(UserError, match="it holds no image; add some"):
        read(tmp_path)
    (tmp_path / "a.csv").write_text("a,b\n")
    with pytest.raises(UserError, match=r"data \(.*a\.csv\) must be images with a class for each"):
        mask.KIND.find(tmp_path / "a.csv")


def test_a_look_over_goes_on_past_what_is_wrong(tmp_path):
    made = fill(tmp_path, 30)
    report = check(tmp_path)
    assert report.good
    assert report.kind == "images with masks"
    assert report.sizes == {"10x12 grey": 30}
    assert {name: sum(counts.values()) for name, counts in report.classes.items()} == {
        "0": 30,
        "128": 30,
        "255": 30,
    }
    cut("masks/2.png")(tmp_path)
    report = check(tmp_path)
    assert len(report.unreadable) == 1
    assert sum(report.sizes.values()) == 29
    grey("masks/3.png", 9, 10)(tmp_path)
    assert "masks/3.png (10x9) must be as large as" in check(tmp_path).refused
    Image.fromarray(made["0.png"][0]).save(tmp_path / "images" / "1.png")
    for number in range(30):
        Image.fromarray(made["0.png"][0]).save(tmp_path / "images" / f"{number}.png")
    assert check(tmp_path).duplicates
