"""Stray and unreadable files are skipped and counted; `strict` refuses the first by name."""

import os

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from everynet.data import check, kinds
from everynet.data.images import decode as picture
from everynet.data.images import decoded_cache as decoded
from everynet.data.images import file_cache as seen
from everynet.data.kinds.image import KIND as IMAGES
from everynet.data.loading import load, samples
from everynet.runs.card import card
from everynet.system.errors import UserError
from tests.data.kinds.test_boxes import fill as fill_boxes
from tests.data.kinds.test_mask import fill as fill_masks

from .test_decoded_cache import FOLDERS, same
from .test_folder import COLOUR, GREY, fill, pixels


def spoil(place):
    """Seven files that are no images or cannot be read, and some that count for nothing."""
    cat = place / "cat"
    (cat / "a.png").write_bytes((cat / "0.png").read_bytes()[:-20])
    (cat / "b.jpg").write_bytes(b"")
    (cat / "c.png").mkdir()
    (cat / "d.png").symlink_to(place / "nowhere.png")
    (cat / "round").symlink_to(place)
    (place / "dog" / "notes.txt").write_text("hello")
    Image.fromarray(pixels(1, 6, 6)).save(place / "loose.png")
    (place / ".DS_Store").write_bytes(b"x")
    (cat / "Thumbs.db").write_bytes(b"x")
    (place / "dog" / "empty").mkdir()


SENTENCE = (
    "7 of 47 files were skipped: 3 cannot be read (cat/a.png: Truncated File Read, ...), 3 are not "
    "images (cat/c.png, ...), 1 lies in no class (loose.png)"
)


@pytest.mark.covers("D1")
@pytest.mark.parametrize("large", [False, True])
def test_bad_files_are_skipped_and_counted_and_change_nothing_else(tmp_path, monkeypatch, large):
    monkeypatch.setattr(decoded, "LARGE", 100 if large else 2**30)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = tmp_path / "photos"
    fill(place)
    before, spec = IMAGES.find(place), load(place, kind="image", batch_size=4).spec
    spoil(place)
    for _ in range(2):  # the second time out of the cache
        after, data = IMAGES.find(place), load(place, kind="image", batch_size=4)
        assert after.mapped is large
        same(after, before)
        assert after.remarks == (SENTENCE,)
        assert data.spec == spec | {"remarks": [SENTENCE]}
    with pytest.raises(UserError, match=r"photos/loose\.png must lie in a subfolder of .*photos"):
        IMAGES.find(place, strict=True)
    (place / "loose.png").unlink()
    with pytest.raises(UserError, match=r"cat/b\.jpg is empty"):
        IMAGES.find(place, strict=True)


@pytest.mark.parametrize("large", [False, True])
def test_a_file_that_becomes_readable_changes_the_digest(tmp_path, monkeypatch, large):
    monkeypatch.setattr(decoded, "LARGE", 100 if large else 2**30)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = tmp_path / "photos"
    fill(place)
    path = place / "dog" / "7.png"
    whole, content = IMAGES.find(place), path.read_bytes()
    path.write_bytes(content[:-20])
    less = IMAGES.find(place)
    assert less.remarks[0].startswith("1 of 40 files was skipped: 1 cannot be read (dog/7.png: ")
    assert sum(len(x) for x, _ in less.parts.values()) == 39
    assert less.digest != whole.digest
    path.write_bytes(content)
    same(IMAGES.find(place), whole)
    assert IMAGES.find(place).remarks == ()


def test_files_that_cannot_be_read_at_all_are_told_apart_in_the_cache(tmp_path, monkeypatch):
    """They have no SHA-256: which of them it is must decide the key all the same."""
    monkeypatch.setattr(decoded, "LARGE", 100)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = tmp_path / "photos"
    for part, count in (("train", 6), ("valid", 2), ("test", 2)):
        fill(place / part, count=count)
    last, first = place / "train" / "cat" / "5.png", place / "train" / "dog" / "0.png"
    first.write_bytes(last.read_bytes())
    real, closed = seen.read_bytes, []

    def read_bytes(path, most):
        if path in closed:
            raise UserError(f"{path} cannot be read: Input/output error")
        return real(path, most)

    monkeypatch.setattr(seen, "read_bytes", read_bytes)
    monkeypatch.setattr(decoded, "read_bytes", read_bytes)
    for path, cats in ((last, 5), (first, 6)):
        closed[:] = [path]
        found = IMAGES.find(place)
        name = path.relative_to(place)
        assert found.remarks == (
            f"1 of 20 files was skipped: 1 cannot be read ({name}: Input/output error)",
        )
        assert found.parts["train"][1].tolist() == [0] * cats + [1] * (11 - cats)
    with pytest.raises(UserError, match=r"dog/0\.png cannot be read: Input/output error"):
        IMAGES.find(place, strict=True)


def test_a_class_or_a_part_without_a_good_file_is_refused(tmp_path):
    fill(tmp_path / "a")
    for path in (tmp_path / "a" / "dog").iterdir():
        path.write_bytes(b"nothing")
    words = r"class dog has no training image that can be read; add some \(20 of 40 files were sk"
    with pytest.raises(UserError, match=words):
        IMAGES.find(tmp_path / "a")
    assert "class dog has no training image" in check(tmp_path / "a").refused
    for part in ("train", "valid", "test"):
        fill(tmp_path / "b" / part, count=3)
    for path in (tmp_path / "b" / "test").rglob("*.png"):
        path.write_bytes(path.read_bytes()[:-20])  # found only when its pixels are decoded
    with pytest.raises(UserError, match="the test part holds no image that can be read; add some"):
        IMAGES.find(tmp_path / "b")
    for path in (tmp_path / "b").rglob("*.png"):
        path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"none of 18 images can be read; the first: .*cat/0\.png"):
        IMAGES.find(tmp_path / "b")


def test_a_look_over_names_every_file_and_the_card_says_how_many(tmp_path):
    fill(tmp_path)
    spoil(tmp_path)
    report = check(tmp_path)
    assert [line.partition("cat/")[2][:5] for line in report.unreadable] == [
        "b.jpg", "d.png", "a.png",
    ]  # fmt: skip
    assert f"note       {SENTENCE}" in str(report)
    assert sum(report.counts.values()) == 40
    assert report.refused == ""
    assert not report.good
    assert "loose.png must lie in a subfolder" in check(tmp_path, strict="true").refused


# --------------------------------------------------------------------------- nested, parts, links


def test_folders_in_a_class_belong_to_it(tmp_path):
    made = fill(tmp_path)
    plain = IMAGES.find(tmp_path)
    deep = tmp_path / "cat" / "2024" / "may"
    deep.mkdir(parents=True)
    (tmp_path / "cat" / "3.png").rename(deep / "3.png")
    Image.fromarray(pixels(77, 6, 6)).save(deep / "4.png")  # a name that is there twice
    found = IMAGES.find(tmp_path)
    assert found.classes == ("cat", "dog")
    cats = [x[0].numpy() for x, y in found.parts.values() for x in x[y == 0]]
    assert len(cats) == 21
    assert any((cat == made["cat", "3.png"]).all() for cat in cats)
    assert found.digest != plain.digest
    assert found.remarks == ()


def test_a_link_to_an_image_is_followed(tmp_path):
    fill(tmp_path / "photos")
    other = tmp_path / "other.png"
    Image.fromarray(pixels(5, 6, 6)).save(other)
    (tmp_path / "photos" / "cat" / "link.png").symlink_to(other)
    assert sum(len(x) for x, _ in IMAGES.find(tmp_path / "photos").parts.values()) == 41


def test_parts_in_other_letters_are_no_classes(tmp_path):
    for part, count in (("Train", 5), ("VAL", 2), ("Testing", 3)):
        fill(tmp_path / part, count=count)
    data = load(tmp_path, kind="image", batch_size=4)
    assert [data.rows(part) for part in ("train", "valid", "test")] == [10, 4, 6]
    assert data.spec["classes"] == ["cat", "dog"]
    fill(tmp_path / "vehicles", classes=("Train", "Bus"))
    assert IMAGES.find(tmp_path / "vehicles").classes == ("Bus", "Train")


def test_one_level_too_many_says_which_folder_to_give(tmp_path):
    fill(tmp_path / "photos")
    with pytest.raises(UserError, match=r"one class \(photos\) .*; give .*/photos, or add a subf"):
        IMAGES.find(tmp_path)


# -------------------------------------------------------------------------------------- other kinds


@pytest.mark.parametrize("kind", ["mask", "map"])
@pytest.mark.parametrize("large", [False, True])
def test_what_belongs_to_a_bad_file_is_left_out(kind, large, tmp_path, monkeypatch):
    """One of each is cut short, one has no header, and one is no image at all."""
    monkeypatch.setattr(decoded, "LARGE", 100 if large else 2**30)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = FOLDERS[kind](tmp_path)
    first, second = ("images", "masks") if kind == "mask" else ("inputs", "targets")
    for name in ("2", "5", "8", "11"):
        for side in (first, second):
            os.rename(place / side / f"{name}.png", tmp_path / f"{side}-{name}.png")
    wanted = samples(place, kind=kind)
    for name in ("2", "5", "8", "11"):
        for side in (first, second):
            os.rename(tmp_path / f"{side}-{name}.png", place / side / f"{name}.png")
    for side, name, keep in ((first, 2, -20), (second, 5, -20), (first, 8, 9), (second, 11, 9)):
        path = place / side / f"{name}.png"
        path.write_bytes(path.read_bytes()[:keep])
    (place / first / "notes.txt").write_text("hello")
    for _ in range(2):
        found = samples(place, kind=kind)
        same(found, wanted)
        (line,) = found.remarks
        assert line.startswith(f"5 of 41 files were skipped: 4 cannot be read ({first}/2.png: Tru")
        assert line.endswith(f", 1 is not an image ({first}/notes.txt)")
    with pytest.raises(UserError, match=r"8\.png is not an image|notes\.txt must be an image"):
        samples(place, kind=kind, strict=True)


def test_pairs_may_lie_in_folders(tmp_path):
    made = fill_masks(tmp_path)
    plain = samples(tmp_path, kind="mask")
    for side in ("images", "masks"):
        (tmp_path / side / "more").mkdir()
        os.rename(tmp_path / side / "3.png", tmp_path / side / "more" / "3.png")
    found = samples(tmp_path, kind="mask")
    assert sum(len(x) for x, _ in found.parts.values()) == len(made)
    assert found.digest != plain.digest
    os.rename(tmp_path / "masks" / "more" / "3.png", tmp_path / "masks" / "3.png")
    with pytest.raises(UserError, match=r"images/more/3\.png must have a file of the same name in"):
        samples(tmp_path, kind="mask")


def test_masks_of_which_none_for_training_can_be_read(tmp_path):
    for part in ("train", "valid", "test"):
        fill_masks(tmp_path / part, 3)
    for path in (tmp_path / "train" / "masks").iterdir():
        path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match="no training mask can be read; add some"):
        samples(tmp_path, kind="mask")


def test_boxes_of_a_bad_image_are_left_out(tmp_path):
    fill_boxes(tmp_path)
    for name, keep in (("5.png", -20), ("7.png", 9)):
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:keep])
    (tmp_path / "more").mkdir()
    found = samples(tmp_path, kind="boxes")
    x, y = (torch.cat([found.parts[part][n] for part in found.parts]) for n in (0, 1))
    assert (len(x), len(y)) == (18, 18)
    whole = {pixels(n, 10, 20).tobytes(): n % 3 for n in range(20)}
    for image, boxes in zip(x, y, strict=True):
        assert int((boxes[:, 0] >= 0).sum()) == whole[image.numpy().tobytes()]
    (line,) = found.remarks
    assert line.startswith("3 of 21 files were skipped: 2 cannot be read (5.png: Truncated F")
    assert check(tmp_path).remarks == [line]


# ----------------------------------------------------------------------------- colours and pages


def read_as(tmp_path, image, name, **options):
    image.save(tmp_path / name, **options)
    found, notes = picture.noted(tmp_path / name, (tmp_path / name).read_bytes())
    assert found.shape == picture.probe(tmp_path / name), "the header must tell the shape"
    return found, notes


def test_cmyk_becomes_rgb_by_the_plain_rule(tmp_path):
    inks = pixels(3, 5, 7, 4)
    found, notes = read_as(tmp_path, Image.fromarray(inks, "CMYK"), "a.tif")
    clear = 255 - inks.astype(float)
    assert np.abs(found - clear[:, :, :3] * clear[:, :, 3:] / 255).max() <= 1
    assert notes == ()
    found, _ = read_as(tmp_path, Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "a.jpg", quality=100)
    assert np.abs(found.astype(int) - [255, 0, 0]).max() <= 3


def test_transparent_pixels_are_put_on_white(tmp_path):
    alpha = pixels(4, 5, 7)
    alpha[0, :2] = 0, 255
    image = Image.fromarray(np.dstack([COLOUR, alpha]))
    found, notes = read_as(tmp_path, image, "a.png")
    part = alpha[:, :, None] / 255
    assert np.abs(found - (COLOUR * part + 255 * (1 - part))).max() <= 1
    assert found[0, 0].tolist() == [255] * 3
    assert found[0, 1].tolist() == COLOUR[0, 1].tolist()
    assert notes == (picture.CLEAR,)
    both = Image.merge("LA", [Image.fromarray(GREY), Image.fromarray(alpha)])
    grey, notes = read_as(tmp_path, both, "b.png")
    wanted = GREY * part[:, :, 0] + 255 * (1 - part[:, :, 0])
    assert np.abs(grey[:, :, 0] - wanted).max() <= 1
    assert notes == (picture.CLEAR,)
    palette = Image.fromarray(COLOUR).quantize(8)
    found, notes = read_as(tmp_path, palette, "c.png", transparency=3)
    numbers, looked_up = np.asarray(palette), np.asarray(palette.convert("RGB")).copy()
    looked_up[numbers == 3] = 255
    assert (found == looked_up).all()
    assert notes == (picture.CLEAR,)


@pytest.mark.parametrize("name", ["a.gif", "a.png", "a.tif", "a.webp"])
def test_of_several_images_the_first_is_taken(tmp_path, name):
    frames = [Image.fromarray(pixels(n, 6, 6)) for n in range(3)]
    options = {"lossless": True} if name == "a.webp" else {}
    found, notes = read_as(
        tmp_path, frames[0], name, save_all=True, append_images=frames[1:], **options
    )
    assert (found[:, :, 0] == pixels(0, 6, 6)).all()
    assert notes == (picture.FRAMES,)


def test_sixteen_bits_of_a_pgm(tmp_path):
    deep = np.random.default_rng(3).integers(0, 65536, (5, 7)).astype(np.uint16)
    (tmp_path / "a.pgm").write_bytes(b"P5\n7 5\n65535\n" + deep.astype(">u2").tobytes())
    assert picture.probe(tmp_path / "a.pgm") == (5, 7, 1)
    assert (picture.read(tmp_path / "a.pgm")[:, :, 0] == np.round(deep / 257)).all()


def test_pages_and_transparent_pixels_are_counted_also_out_of_the_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(decoded, "LARGE", 100)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = tmp_path / "photos"
    fill(place)
    frames = [Image.fromarray(pixels(n, 6, 6)) for n in range(2)]
    for name in ("a.gif", "b.gif"):
        frames[0].save(place / "cat" / name, save_all=True, append_images=frames[1:])
    Image.fromarray(pixels(9, 6, 6, 4)).save(place / "dog" / "clear.png")
    for _ in range(2):
        assert sorted(IMAGES.find(place).remarks) == [
            "1 file has transparent pixels (dog/clear.png): they are put on white",
            "2 files hold several images (cat/a.gif, ...): the first is taken",
        ]


def test_a_photo_taken_on_its_side_is_asked_as_it_was_learned(tmp_path):
    """Reference: what pillow's own exif_transpose shows."""
    exif = Image.Exif()
    exif[0x0112] = 6
    fill(tmp_path / "photos", shape=(7, 5))
    path = tmp_path / "photos" / "cat" / "0.jpg"
    Image.fromarray(pixels(8, 5, 7)).save(path, exif=exif, quality=100)
    data = load(tmp_path / "photos", kind="image", batch_size=4)
    _, asked = kinds.named("image").read([path], data.spec)
    with Image.open(path) as stored:
        upright = torch.from_numpy(np.array(ImageOps.exif_transpose(stored)))
    wanted = (upright.double() / 255 - data.spec["mean"][0]) / data.spec["std"][0]
    torch.testing.assert_close(asked[0, 0].double(), wanted, atol=1e-5, rtol=0)


def test_the_card_tells_what_was_skipped(tmp_path):
    from everynet.recipes.catalog import find

    where = {"everynet": "1", "python": "3", "versions": {}, "device_name": "cpu"}
    where |= {"precision": "fp32", "threads": 1, "processes": 1, "begun": "now"}
    text = card(
        find("lenet"), folder="runs/lenet", spec={"remarks": [SENTENCE]}, digest="", where=where,
        metrics={}, reached=None, seconds=1.0, captions={},
    )  # fmt: skip
    assert f"| note | {SENTENCE} |" in text
