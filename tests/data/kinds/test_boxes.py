"""Images with boxes: what is read, what is refused with the number of the line, what is written."""

import numpy as np
import pytest
import torch
from PIL import Image

from everynet.data import check, kinds, load
from everynet.data.images import box_files
from everynet.data.images.standardize import resize
from everynet.data.kinds import boxes
from everynet.system.errors import UserError

HEADER = "image,class,left,top,right,bottom"


def pixels(seed, *shape):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def fill(folder, count=20, shape=(10, 20)):
    """Image n has n % 3 boxes."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [HEADER]
    for number in range(count):
        Image.fromarray(pixels(number, *shape)).save(folder / f"{number}.png")
        for box in range(number % 3):
            lines.append(f"{number}.png,{('cat', 'ant')[box]},{box},{box + 1},{number / 2 + 3},9")
    (folder / "boxes.csv").write_text("\n".join(lines) + "\n")


def read(folder, **options):
    return load(folder, kind="boxes", batch_size=2, **options)


def test_boxes_are_parts_of_the_image_and_minus_one_where_there_is_none(tmp_path):
    fill(tmp_path / "train", 6)
    for part in ("valid", "test"):
        fill(tmp_path / part, 3)
    data = read(tmp_path)
    x, y = data.splits["train"]
    assert data.parts == ("image", "boxes")
    assert (data.spec["task"], data.spec["classes"]) == ("detection", ["ant", "cat"])
    assert (data.spec["shape"], data.spec["boxes"]) == ([1, 10, 20], 2)
    assert x.shape == (6, 1, 10, 20)
    assert y.shape == (6, 2, 5)
    assert y[0].tolist() == [[-1, 0, 0, 0, 0]] * 2
    cat, ant = [1, 0, 0.1, 5.5 / 20, 0.9], [0, 1 / 20, 0.2, 5.5 / 20, 0.9]
    torch.testing.assert_close(y[5], torch.tensor([cat, ant]))
    assert data.splits["valid"][1].shape == (3, 2, 5)
    assert boxes.KIND.line(data.spec).endswith("images of 1x10x20 with boxes of 2 classes")


def test_parts_are_taken_by_the_file_name_and_size_moves_no_box(tmp_path):
    fill(tmp_path)
    plain, sized = read(tmp_path), read(tmp_path, size=32)
    assert sized.spec["shape"] == [1, 32, 32]
    for part in ("train", "valid", "test"):
        assert torch.equal(plain.splits[part][1], sized.splits[part][1])
    assert plain.spec["split"].startswith("by hash of the file name, a fifth is test")
    before = read(tmp_path).digest
    text = (tmp_path / "boxes.csv").read_text()
    (tmp_path / "boxes.csv").write_text(text.replace("1.png,cat,0,", "1.png,cat,1,", 1))
    assert read(tmp_path).digest != before


@pytest.mark.parametrize("size", [0, 23])
def test_what_is_asked_is_treated_exactly_as_in_training(tmp_path, size):
    fill(tmp_path, shape=(20, 20))
    data = read(tmp_path, size=size)
    names, inputs = boxes.KIND.read([tmp_path], data.spec)
    assert len(names) == 20
    wanted = torch.cat([data.splits[part][0] for part in ("train", "valid", "test")])
    assert sorted(map(str, inputs.tolist())) == sorted(map(str, wanted.tolist()))
    raw = torch.from_numpy(pixels(0, 20, 20))[None, None]
    raw = resize(raw, size, 0) if size else raw
    by_hand = (raw.double() / 255 - data.spec["mean"][0]) / data.spec["std"][0]
    torch.testing.assert_close(inputs[:1].double(), by_hand, atol=1e-5, rtol=0)


def test_a_box_is_in_the_pixels_of_its_input_and_drawn_onto_it():
    spec = {"shape": [1, 32, 32], "classes": ["ant", "cat"]}
    grey = torch.full((1, 10, 20), 7, dtype=torch.uint8)
    origin = kinds.Origin("a.png", size=(10, 20), pixels=lambda: grey)
    prediction = {"class": "cat", "box": torch.tensor([0.1, 0.2, 0.5, 0.8])}
    answer = boxes.KIND.answer(prediction, spec, origin)
    assert answer["box"] == pytest.approx({"left": 2, "top": 2, "right": 10, "bottom": 8})
    image = boxes.KIND.overlay(answer, spec, origin)
    wanted = torch.zeros(10, 20, dtype=torch.bool)
    wanted[2:8, 2:10] = True
    wanted[3:7, 3:9] = False
    assert torch.equal((image != 7).any(0), wanted)
    assert image[:, 2, 2].tolist() == [0xD5, 0x5E, 0x00]
    assert boxes.KIND.overlay({"class": "cat"}, spec, origin) is None
    assert boxes.KIND.overlay(answer, spec, kinds.Origin(0)) is None


def test_what_looks_like_boxes(tmp_path):
    fill(tmp_path / "here", 3)
    fill(tmp_path / "below" / "train", 3)
    assert boxes.KIND.matches(tmp_path / "here")
    assert boxes.KIND.matches(tmp_path / "below")
    assert not boxes.KIND.matches(tmp_path)
    assert kinds.matching(tmp_path / "here") is boxes.KIND


def test_a_look_over(tmp_path):
    fill(tmp_path)
    report = check(tmp_path)
    assert report.good
    assert report.sizes == {"20x10 grey": 20}
    assert {name: sum(parts.values()) for name, parts in report.classes.items()} == {
        "ant": 6,
        "cat": 13,
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "1.png,cat,0,0,21,5",
            r"boxes\.csv:21: the box \(0, 0, 21, 5\) must lie in the image of 20",
        ),
        (
            "1.png,cat,-1,0,9,5",
            r":21: the box \(-1, 0, 9, 5\) must lie in the image of 20x10 pixel",
        ),
        ("1.png,cat,0,0,9,11", r":21: the box \(0, 0, 9, 11\) must lie in the image"),
        ("1.png,cat,nan,0,9,5", r":21: the box \(nan, 0, 9, 5\) must lie in the image"),
        ("1.png,cat,9,0,9,5", r":21: left \(9\) must be below right \(9\)"),
        ("1.png,cat,1,6,9,5", r":21: top \(6\) must be below bottom \(5\)"),
        ("99.png,cat,1,1,9,5", r":21: image 99\.png is not in "),
        ("1.png,cat,1,one,9,5", r":21: top \(one\) must be a number of pixels"),
        ("1.png,,1,1,9,5", r":21: class is empty; name one"),
        ("1.png,cat,1,1,9", r":21: 5 cells must be 6"),
        ('1.png,"cat,1,1,9,5', r":21: unexpected end of data"),
    ],
)
def test_a_bad_row_is_one_line_with_its_number(tmp_path, line, message):
    fill(tmp_path)
    with (tmp_path / "boxes.csv").open("a") as file:
        file.write(line)
    with pytest.raises(UserError, match=message) as caught:
        read(tmp_path)
    assert "\n" not in str(caught.value)
    assert check(tmp_path).refused == str(caught.value)


def header(text):
    def do(folder):
        path = folder / "boxes.csv"
        path.write_text(path.read_text().replace(HEADER, text))

    return do


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            header(HEADER + ",colour"),
            r"boxes\.csv: column colour is unknown; the header must be im",
        ),
        (header("image,class,left,top,right"), r"boxes\.csv: the header must be image,class,left"),
        (
            lambda folder: (folder / "boxes.csv").write_text(HEADER),
            "no training image has a box; add some",
        ),
        (lambda folder: (folder / "boxes.csv").write_text(""), r"boxes\.csv is empty"),
        (lambda folder: (folder / "more").mkdir(), "more must be an image, its name ending in"),
        (
            lambda folder: Image.fromarray(pixels(0, 9, 9)).save(folder / "3.png"),
            r"3\.png \(9x9\) must be as large as .*; or do size=\d+, which",
        ),
        (
            lambda folder: (folder / "3.png").write_bytes(b"nothing of use"),
            r"3\.png is not an image that can be read, or is damaged",
        ),
    ],
)
def test_what_is_wrong_with_a_folder_is_one_line(tmp_path, spoil, message):
    fill(tmp_path)
    spoil(tmp_path)
    with pytest.raises(UserError, match=message):
        read(tmp_path, strict=True)


def test_a_class_that_is_not_learned_and_no_images(tmp_path):
    for part in ("train", "test"):
        fill(tmp_path / "a" / part, 6)
    path = tmp_path / "a" / "test" / "boxes.csv"
    path.write_text(path.read_text().replace("ant", "bee"))
    with pytest.raises(UserError, match="class bee of test has no box in a training image; add"):
        read(tmp_path / "a")
    fill(tmp_path / "b", 0)
    with pytest.raises(UserError, match="it holds no image; add some"):
        read(tmp_path / "b")
    with pytest.raises(UserError, match=r"data \(.*\) must be images with boxes: a folder of imag"):
        boxes.KIND.find(tmp_path / "b" / "boxes.csv")


def test_boxes_of_one_image_are_bounded_and_long_cells_not_printed_whole(tmp_path, monkeypatch):
    """300,000 on one image took half a minute: each image is given room for as many."""
    monkeypatch.setattr(box_files, "MOST_BOXES", 4)
    fill(tmp_path)
    with (tmp_path / "boxes.csv").open("a") as stream:
        stream.write("1.png,cat,1,2,3,4\n" * 4)
    with pytest.raises(UserError, match=r"image 1.png must have at most 4 boxes, because every"):
        read(tmp_path)
    (tmp_path / "boxes.csv").write_text(f"{HEADER}\n1.png,cat,{'0' * 9000}7,2,3,4\n")
    with pytest.raises(UserError, match=r"left \(0+\.\.\.0+7\) must be below right \(3\)"):
        read(tmp_path)
