"""Two pictures in one shape: sizes, colours, orientation, and one line for each refusal."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from everynet.system.errors import UserError
from everynet.zoo.vision import photo_pair as pair

NONE = Path()


def saved(path, height, width, *, mode="RGB", value=None, **options):
    shape = (height, width, 3)
    draw = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, shape, generator=draw, dtype=torch.uint8)
    if value is not None:
        pixels[:] = torch.tensor(value, dtype=torch.uint8)
    Image.fromarray(pixels.numpy()).convert(mode).save(path, **options)
    return path


def test_the_photographs_that_are_built_in():
    content, style = pair.read(NONE, NONE, 96, 3)
    assert content.shape == style.shape == (1, 3, 64, 96)
    assert 0 <= content.min() < 0.1
    assert 0.9 < content.max() <= 1
    grey, _ = pair.read(NONE, NONE, 48, 1)
    assert grey.shape == (1, 1, 32, 48)


def test_the_content_keeps_its_proportions_and_the_style_is_cut_to_them(tmp_path):
    content = saved(tmp_path / "tall.png", 100, 50)
    style = saved(tmp_path / "wide.png", 80, 200)
    first, second = pair.read(content, style, 80, 3)
    assert first.shape == second.shape == (1, 3, 80, 40)
    whole = torch.from_numpy(pair.picture.read(style).copy()).permute(2, 0, 1).float() / 255
    torch.testing.assert_close(second[0], whole[:, :, 80:120])  # its middle, no pixel changed


def test_making_a_picture_smaller_averages_over_it():
    stripes = torch.zeros(3, 64, 64, dtype=torch.uint8)
    stripes[:, :, ::2] = 255
    made = pair.covering(stripes, 3, 32, 32)
    assert made[..., 4:-4].mean().item() == pytest.approx(0.5, abs=0.01)
    assert made[..., 4:-4].std() < 0.05


def test_grey_pictures_become_coloured_ones_and_coloured_grey(tmp_path):
    grey = saved(tmp_path / "grey.png", 40, 40, mode="L")
    red = saved(tmp_path / "red.png", 40, 40, value=(255, 0, 0))
    first, second = pair.read(grey, red, 40, 3)
    assert torch.equal(first[0, 0], first[0, 2])
    assert second[0, :, 0, 0].tolist() == [1, 0, 0]
    _, second = pair.read(grey, red, 40, 1)
    assert second[0, 0, 0, 0].item() == pytest.approx(0.299, abs=0.005)


def test_a_photograph_taken_on_its_side_is_turned(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = saved(tmp_path / "side.jpg", 40, 80, exif=exif)
    first, _ = pair.read(turned, NONE, 80, 3)
    assert first.shape == (1, 3, 80, 40)


def test_refusals(tmp_path):
    small, large = saved(tmp_path / "small.png", 40, 50), saved(tmp_path / "large.png", 90, 100)
    long = saved(tmp_path / "long.png", 20, 400)
    with pytest.raises(UserError, match=r"content \(.*small.png, 50x40\) must have at least 96 "):
        pair.read(small, NONE, 96, 3)
    with pytest.raises(UserError, match=r"are not enlarged; do size=50"):
        pair.read(small, NONE, 96, 3)
    with pytest.raises(UserError, match=r"content \(.*long.png, 400x20\) must keep 32 pixels"):
        pair.read(long, NONE, 400, 3)
    with pytest.raises(UserError, match=r"style \(.*small.png, 50x40\) must have at least 96x86"):
        pair.read(large, small, 96, 3)
    (tmp_path / "no.jpg").write_bytes(b"not a picture")
    with pytest.raises(UserError, match=r"style must be a picture that can be read: .*no.jpg is"):
        pair.read(large, tmp_path / "no.jpg", 96, 3)
    with pytest.raises(UserError, match=r"content must be a picture that can be read: .*gone.jpg"):
        pair.read(tmp_path / "gone.jpg", NONE, 96, 3)
