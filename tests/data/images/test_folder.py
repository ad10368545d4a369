"""Folders of images: every kind of file, the parts, stability, and that pixels arrive unchanged."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from everynet.data.images import decode as picture
from everynet.data.images import decoded_cache as decoded
from everynet.data.images import folder
from everynet.data.images.skipped import Tally
from everynet.data.kinds.image import KIND as IMAGES
from everynet.system.errors import UserError
from tests.data.either import load


def pixels(seed, *shape):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def fill(place, classes=("cat", "dog"), count=20, shape=(6, 6)):
    """Images named 0.png ..., each different; gives the pixels by class and name."""
    made = {}
    for label in classes:
        (place / label).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            made[label, f"{number}.png"] = array = pixels([ord(label[0]), number], *shape)
            Image.fromarray(array).save(place / label / f"{number}.png")
    return made


def test_every_image_arrives_once_with_its_label_and_unchanged(tmp_path):
    made = fill(tmp_path)
    raw = IMAGES.find(tmp_path)
    assert raw.classes == ("cat", "dog")
    found = [
        (raw.classes[int(label)], x[0].numpy().tobytes())
        for part in raw.parts.values()
        for x, label in zip(*part, strict=True)
    ]
    assert sorted(found) == sorted((label, x.tobytes()) for (label, _), x in made.items())


def test_places_follow_from_the_names_and_stay_when_files_are_added(tmp_path):
    fill(tmp_path)
    before, sentence = folder.listing(tmp_path, Tally(tmp_path))
    where = {file: part for part, files in before.items() for file in files}
    fill(tmp_path, count=60)
    fill(tmp_path, classes=("emu",))
    after, _ = folder.listing(tmp_path, Tally(tmp_path))
    later = {file: part for part, files in after.items() for file in files}
    assert len(later) == 140
    assert all(later[file] == part for file, part in where.items())
    assert sentence == (
        "by hash of class and file name, a fifth is test and a tenth of the rest is valid"
    )


@pytest.mark.parametrize("name", ["val", "valid", "validation"])
def test_the_users_own_parts_are_honoured(tmp_path, name):
    for part, count in (("train", 9), (name, 4), ("test", 5)):
        fill(tmp_path / part, count=count)
    data = load(tmp_path, batch_size=4)
    assert [data.rows(part) for part in ("train", "valid", "test")] == [18, 8, 10]
    assert data.spec["split"] == "train, valid and test are folders of their own"


def test_a_part_that_is_not_there_is_taken_from_train(tmp_path):
    fill(tmp_path / "train", count=40)
    fill(tmp_path / "test", count=5)
    data = load(tmp_path, batch_size=4)
    assert data.rows("test") == 10
    assert data.rows("train") + data.rows("valid") == 80
    assert 1 <= data.rows("valid") <= 20
    assert data.spec["split"].startswith("folders of their own; by hash")
    fill(tmp_path / "val", count=5)
    for file in (tmp_path / "test").rglob("*.png"):
        file.unlink()
    for empty in ("test/cat", "test/dog", "test"):
        (tmp_path / empty).rmdir()
    data = load(tmp_path, batch_size=4)
    assert data.rows("valid") == 10
    assert 8 <= data.rows("test") <= 30


def test_classes_may_be_called_valid_and_test(tmp_path):
    fill(tmp_path, classes=("invalid", "valid"))
    assert load(tmp_path, batch_size=4).spec["classes"] == ["invalid", "valid"]


def test_hidden_files_and_litter_are_passed_over(tmp_path):
    fill(tmp_path)
    first = IMAGES.find(tmp_path).digest
    (tmp_path / ".DS_Store").write_bytes(b"x")
    (tmp_path / "cat" / ".hidden.png").write_bytes(b"x")
    (tmp_path / "cat" / "Thumbs.db").write_bytes(b"x")
    (tmp_path / "__MACOSX").mkdir()
    assert IMAGES.find(tmp_path).digest == first


def test_the_digest_sees_a_pixel_a_name_and_a_class(tmp_path):
    fill(tmp_path)
    seen = {IMAGES.find(tmp_path).digest, IMAGES.find(tmp_path, size=12).digest}
    assert len(seen) == 1, "the size is no part of the contents"
    Image.fromarray(pixels(12345, 6, 6)).save(tmp_path / "cat" / "0.png")
    seen.add(IMAGES.find(tmp_path).digest)
    (tmp_path / "cat" / "1.png").rename(tmp_path / "cat" / "one.png")
    seen.add(IMAGES.find(tmp_path).digest)
    (tmp_path / "cat" / "2.png").rename(tmp_path / "dog" / "2b.png")
    seen.add(IMAGES.find(tmp_path).digest)
    assert len(seen) == 4


def test_grey_and_colour_together_are_colour(tmp_path):
    made = fill(tmp_path)
    Image.fromarray(pixels(5, 6, 6, 3)).save(tmp_path / "cat" / "colour.png")
    raw = IMAGES.find(tmp_path)
    x = torch.cat([part[0] for part in raw.parts.values()])
    assert x.shape == (41, 3, 6, 6)
    grey = made["dog", "7.png"]
    assert any((image.numpy() == grey).all() for image in x)


def test_images_of_many_sizes_need_a_size(tmp_path):
    fill(tmp_path)
    Image.fromarray(pixels(5, 7, 9)).save(tmp_path / "cat" / "other.png")
    with pytest.raises(
        UserError, match=r"other.png \(9x7\) must be as large as .*; or do size=6, which"
    ):
        load(tmp_path, batch_size=4)
    assert load(tmp_path, batch_size=4, size=10).spec["shape"] == [1, 10, 10]


def test_a_large_folder_is_kept_in_a_file(tmp_path, monkeypatch):
    fill(tmp_path)
    small = IMAGES.find(tmp_path)
    monkeypatch.setattr(decoded, "LARGE", 100)
    large = IMAGES.find(tmp_path)
    for part, (x, y) in small.parts.items():
        assert torch.equal(x, large.parts[part][0])
        assert torch.equal(y, large.parts[part][1])
    assert large.digest == small.digest


# ----------------------------------------------------------------------------------- kinds of files


def read_as(tmp_path, image, name, **options):
    image.save(tmp_path / name, **options)
    with picture.quiet():
        height, width, channels = picture.probe(tmp_path / name)
    found = picture.read(tmp_path / name)
    assert found.shape == (height, width, channels), "the header must tell the shape"
    return found


GREY, COLOUR = pixels(1, 5, 7), pixels(2, 5, 7, 3)


@pytest.mark.parametrize("name", ["a.png", "a.bmp", "a.gif", "a.tif", "a.pgm", "A.PNG"])
def test_grey_files_without_loss(tmp_path, name):
    found = read_as(tmp_path, Image.fromarray(GREY), name)
    if name == "a.gif":  # pillow writes grey as a palette of 256 greys
        assert found.shape[2] in (1, 3)
        found = found[:, :, :1]
    assert (found[:, :, 0] == GREY).all()


@pytest.mark.parametrize("name", ["a.png", "a.bmp", "a.tiff", "a.ppm", "a.webp"])
def test_colour_files_without_loss(tmp_path, name):
    options = {"lossless": True} if name == "a.webp" else {}
    assert (read_as(tmp_path, Image.fromarray(COLOUR), name, **options) == COLOUR).all()


def test_jpg_is_what_pillow_decodes(tmp_path):
    found = read_as(tmp_path, Image.fromarray(COLOUR), "a.jpg", quality=95)
    assert (found == np.asarray(Image.open(tmp_path / "a.jpg"))).all()


def test_a_palette_is_looked_up(tmp_path):
    image = Image.fromarray(COLOUR).quantize(16)
    assert (read_as(tmp_path, image, "a.png") == np.asarray(image.convert("RGB"))).all()


def test_two_levels_become_black_and_white(tmp_path):
    image = Image.fromarray(GREY > 127)
    assert image.mode == "1"
    assert (read_as(tmp_path, image, "a.png")[:, :, 0] == np.where(GREY > 127, 255, 0)).all()


def test_sixteen_bits_are_rounded_to_eight(tmp_path):
    deep = np.random.default_rng(3).integers(0, 65536, (5, 7)).astype(np.uint16)
    deep[0, :3] = 0, 65535, 257
    found = read_as(tmp_path, Image.fromarray(deep), "a.png")[:, :, 0]
    assert (found == np.round(deep / 257)).all()
    assert found[0, :3].tolist() == [0, 255, 1]


def test_an_opaque_alpha_channel_is_dropped(tmp_path):
    opaque = np.dstack([COLOUR, np.full((5, 7), 255, np.uint8)])
    assert (read_as(tmp_path, Image.fromarray(opaque), "a.png") == COLOUR).all()
    grey = Image.fromarray(GREY)
    grey.putalpha(255)
    assert grey.mode == "LA"
    assert (read_as(tmp_path, grey, "b.png")[:, :, 0] == GREY).all()


@pytest.mark.parametrize("turn", range(1, 9))
def test_the_orientation_tag_is_obeyed(tmp_path, turn):
    """Reference: what pillow's own exif_transpose shows."""
    from PIL import ImageOps

    exif = Image.Exif()
    exif[0x0112] = turn
    image = Image.fromarray(COLOUR)
    found = read_as(tmp_path, image, "a.png", exif=exif)
    with Image.open(tmp_path / "a.png") as stored:
        assert (found == np.asarray(ImageOps.exif_transpose(stored))).all()


def test_the_first_picture_of_a_phones_jpg_is_taken(tmp_path):
    first, second = (Image.fromarray(pixels(seed, 8, 8, 3)) for seed in (1, 2))
    first.save(tmp_path / "a.jpg", "MPO", save_all=True, append_images=[second])
    content = io.BytesIO()
    first.save(content, "JPEG")
    wanted = np.asarray(Image.open(content))
    assert (picture.read(tmp_path / "a.jpg") == wanted).all()


def test_no_flipped_bit_of_a_png_goes_unseen(tmp_path):
    """Every bit up to the last chunk, which is empty: 928 damaged files, none of them read."""
    Image.fromarray(pixels(4, 6, 6)).save(tmp_path / "a.png")
    good = (tmp_path / "a.png").read_bytes()
    accepted = []
    for position in range(8 * (len(good) - 12)):
        flipped = bytearray(good)
        flipped[position // 8] ^= 1 << position % 8
        try:
            with picture.quiet():
                picture.decode(tmp_path / "a.png", bytes(flipped))
            accepted.append(position)
        except UserError:
            pass
    assert accepted == []


def test_luma_is_pillows_and_keeps_grey():
    assert (picture.luma(COLOUR)[:, :, 0] == np.asarray(Image.fromarray(COLOUR).convert("L"))).all()
    assert (picture.luma(np.dstack([GREY] * 3))[:, :, 0] == GREY).all()
