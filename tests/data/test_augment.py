"""Augmentations: what they do to pixels, that labels stay, that only the generator decides."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.data.augment import (
    Affine,
    Mirror,
    Window,
    affine,
    compose,
    crop,
    flip,
    noise,
    rotate,
    shift,
)
from everynet.types import Draw, generator

few = settings(max_examples=25, deadline=None)
EVERY = {
    "shift": shift(2),
    "crop": crop(8, padding=2),
    "flip": flip(),
    "rotate": rotate(15),
    "affine": affine(10, 1, 0.1, 0.1),
    "noise": noise(0.1),
    "compose": compose(shift(1), flip(), noise(0.1)),
}


def draw(x, seed, **more):
    return Draw(generator(seed), len(x), **more)


def windows(x, top, left, size, fill=None):
    return Window(top, left, size).image(x, fill)


def mirrored(x, which):
    return Mirror(which).image(x)


def transformed(x, matrix, fill=None):
    return Affine(matrix).image(x, fill)


def batch(count=6, channels=2, height=8, width=8):
    x = torch.randn(count, channels, height, width, generator=generator(1))
    return x, torch.arange(count)


@pytest.mark.parametrize("name", EVERY)
def test_the_generator_alone_decides_and_labels_stay(name):
    x, y = batch()
    before = x.clone()
    torch.manual_seed(1)
    first, labels = EVERY[name]((x, y), draw(x, 7))
    torch.manual_seed(2)
    second, _ = EVERY[name]((x, y), draw(x, 7))
    other, _ = EVERY[name]((x, y), draw(x, 8))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert labels is y
    assert first.shape == x.shape
    assert first.dtype == x.dtype
    assert torch.equal(x, before), "the stored images must not change"


@pytest.mark.parametrize("name", EVERY)
def test_float64_and_batches_without_labels(name):
    (out,) = EVERY[name]((batch()[0].double(),), draw(batch()[0], 0))
    assert out.dtype == torch.float64


@few
@given(down=st.integers(-3, 3), right=st.integers(-3, 3))
def test_a_window_is_a_shift_by_roll(down, right):
    """Reference: torch.roll, with the rows and columns that came round blanked."""
    x, _ = batch()
    by = [torch.full((len(x),), -v) for v in (down, right)]
    wanted = torch.roll(x, (down, right), (2, 3))
    rows, columns = torch.arange(8) - down, torch.arange(8) - right
    outside = ((rows < 0) | (rows > 7))[:, None] | ((columns < 0) | (columns > 7))
    wanted = torch.where(outside, torch.tensor(-5.0), wanted)
    assert torch.equal(windows(x, *by, (8, 8), fill=-5.0), wanted)


@few
@given(down=st.integers(-2, 2), right=st.integers(-2, 2))
def test_a_shift_is_undone_by_its_opposite_inside(down, right):
    x, _ = batch()
    there = windows(x, torch.full((6,), down), torch.full((6,), right), (8, 8))
    back = windows(there, torch.full((6,), -down), torch.full((6,), -right), (8, 8))
    assert torch.equal(back[..., 2:-2, 2:-2], x[..., 2:-2, 2:-2])


def test_each_image_has_its_own_shift_and_all_shifts_occur():
    x = torch.zeros(4000, 1, 7, 7)
    x[:, :, 3, 3] = 1
    out, _ = shift(2, fill=0.0)((x, torch.zeros(4000)), draw(x, 3))
    counts = out.sum(0)[0, 1:6, 1:6]
    assert counts.sum() == 4000
    assert (counts - 160).abs().max() < 4 * (4000 * 0.04 * 0.96) ** 0.5


def test_fill_is_the_blank_of_each_channel_or_what_is_given():
    x = torch.stack([torch.full((5, 5), 1.0), torch.full((5, 5), -2.0)])[None]
    top = left = torch.tensor([1])
    assert torch.equal(windows(x, top, left, (5, 5)), x), "blank paper stays blank paper"
    filled = windows(x, top, left, (5, 5), fill=[8.0, 9.0])
    assert filled[0, :, 4, 4].tolist() == [8.0, 9.0]
    assert windows(x, top, left, (5, 5), fill=7)[0, :, 0, 4].tolist() == [7.0, 7.0]


def test_a_crop_is_somewhere_in_the_image():
    x, y = batch(count=50, channels=1)
    out, _ = crop(5)((x, y), draw(x, 0))
    for image, part in zip(x, out, strict=True):
        places = image[0].unfold(0, 5, 1).unfold(1, 5, 1)  # 4 4 5 5
        assert (places == part[0]).all(-1).all(-1).any()


def test_two_flips_are_none_and_one_is_flip():
    x, y = batch()
    every = torch.ones(6, dtype=torch.bool)
    assert torch.equal(mirrored(mirrored(x, every), every), x)
    assert torch.equal(flip(1.0)((x, y), draw(x, 0))[0], x.flip(-1))
    assert torch.equal(flip(0.0)((x, y), draw(x, 0))[0], x)


def test_the_chance_of_a_flip():
    x = torch.tensor([[[[0.0, 1.0]]]]).expand(4000, -1, -1, -1)
    out, _ = flip(0.3)((x, torch.zeros(4000)), draw(x, 0))
    assert abs(out[:, 0, 0, 0].mean() - 0.3) < 4 * (0.3 * 0.7 / 4000) ** 0.5


def turn(angle, count=6):
    cos, sin = math.cos(angle), math.sin(angle)
    return torch.tensor([[cos, sin, 0.0], [-sin, cos, 0.0]]).expand(count, -1, -1)


@pytest.mark.parametrize("quarter", [0, 1, 2, 3])
def test_a_quarter_turn_is_rot90(quarter):
    """Closed form: no pixel lies between pixels, on squares of even and of odd side."""
    for side in (8, 9):
        x, _ = batch(height=side, width=side)
        out = transformed(x, turn(quarter * math.pi / 2))
        torch.testing.assert_close(out, torch.rot90(x, -quarter, (2, 3)), atol=1e-5, rtol=0)


def test_a_move_by_whole_pixels_is_a_shift():
    x, _ = batch(height=7, width=10)
    matrix = torch.tensor([[1.0, 0, -2], [0, 1, 1]]).expand(6, -1, -1)  # 2 right, 1 up
    wanted = windows(x, torch.full((6,), 1), torch.full((6,), -2), (7, 10), fill=0.5)
    torch.testing.assert_close(transformed(x, matrix, fill=0.5), wanted, atol=1e-5, rtol=0)


def smooth(side=32):
    """A smooth bump off the centre, for maps that fall between pixels."""
    at = torch.arange(side) - (side - 1) / 2
    bump = torch.exp(-((at[:, None] - 3) ** 2 + (at + 4) ** 2) / 30)
    return bump.expand(3, 1, -1, -1)


@pytest.mark.parametrize("degrees", [5, 17, 30])
def test_a_turn_is_undone_by_its_opposite(degrees):
    x, angle = smooth(), math.radians(degrees)
    back = transformed(transformed(x, turn(angle, 3), 0.0), turn(-angle, 3), 0.0)
    assert (back - x).abs().max() < 0.03


def test_a_turn_is_not_wider_than_asked_and_even_both_ways():
    """The bump's centre of mass tells the angle; uniform in +-20 degrees: std 20 / sqrt 3."""
    x = smooth().expand(3, 1, -1, -1)[:1].expand(2000, -1, -1, -1)
    out, _ = rotate(20.0, fill=0.0)((x, torch.zeros(2000)), draw(x, 5))
    at = torch.arange(32) - 15.5
    mass = out.sum((1, 2, 3))
    row = (out.sum((1, 3)) * at).sum(1) / mass
    column = (out.sum((1, 2)) * at).sum(1) / mass
    angle = torch.rad2deg(torch.atan2(row, column) - math.atan2(3, -4))
    angle = (angle + 180) % 360 - 180
    assert angle.abs().max() < 20.5
    assert abs(angle.mean()) < 4 * 11.55 / 2000**0.5
    assert abs(angle.std() - 20 / 3**0.5) < 0.5


def centres(out):
    """Column and row of the centre of mass, from the middle of the image."""
    at, mass = torch.arange(32) - 15.5, out.sum((1, 2, 3))
    return (out.sum((1, 2)) * at).sum(1) / mass, (out.sum((1, 3)) * at).sum(1) / mass


def test_nothing_asked_for_changes_nothing():
    still, _ = affine()((smooth(), torch.zeros(3)), draw(torch.zeros(3), 0))
    torch.testing.assert_close(still, smooth(), atol=1e-5, rtol=0)


def test_a_stretch_is_as_wide_as_asked():
    """Mass grows with the product of both stretches: from 0.7^2 to 1.3^2."""
    x = smooth()[:1].expand(1000, -1, -1, -1)
    wide, _ = affine(scale=0.3, fill=0.0)((x, torch.zeros(1000)), draw(x, 2))
    ratio = wide.sum((1, 2, 3)) / x.sum((1, 2, 3))
    assert 0.48 < ratio.min() < 0.56
    assert 1.5 < ratio.max() < 1.7
    assert ratio.mean() == pytest.approx(1, abs=0.03)


def test_turn_and_slant_keep_every_area():
    x = smooth()[:1].expand(200, -1, -1, -1)
    out, _ = affine(degrees=40, shear=0.4, fill=0.0)((x, torch.zeros(200)), draw(x, 2))
    ratio = out.sum((1, 2, 3)) / x.sum((1, 2, 3))
    assert ratio.min() > 0.97
    assert ratio.max() < 1.03


def test_a_slant_moves_rows_by_their_height():
    """The bump is 3 below the centre: at shear k it moves by 3 k, uniform in +-0.4."""
    x = smooth()[:1].expand(1000, -1, -1, -1)
    out, _ = affine(shear=0.4, fill=0.0)((x, torch.zeros(1000)), draw(x, 2))
    (column, row), (was, height) = centres(out), centres(x)
    moved = column - was
    assert (row - height).abs().max() < 0.05
    assert moved.abs().max() == pytest.approx(1.2, abs=0.15)
    assert moved.std() == pytest.approx(1.2 / 3**0.5, rel=0.1)


def test_a_move_is_as_wide_as_asked():
    x = smooth()[:1].expand(1000, -1, -1, -1)
    out, _ = affine(pixels=3, fill=0.0)((x, torch.zeros(1000)), draw(x, 2))
    for now, was in zip(centres(out), centres(x), strict=True):
        assert (now - was).abs().max() == pytest.approx(3, abs=0.2)
        assert (now - was).std() == pytest.approx(3 / 3**0.5, rel=0.1)


@pytest.mark.parametrize("padding", [0, 2])
def test_a_crop_begins_anywhere_in_the_padded_image(padding):
    """Where a bright pixel lands: each of (1 + room)^2 places, equally often."""
    x = torch.zeros(5000, 1, 6, 6)
    x[:, :, 3, 3] = 1
    size = 4 + 2 * padding  # so that the pixel is always inside and the room is 2
    out, _ = crop(size, padding, fill=0.0)((x, torch.zeros(5000)), draw(x, 1))
    counts = out.sum(0)[0]
    assert counts.sum() == 5000
    assert int((counts > 0).sum()) == 9
    assert (counts[counts > 0] - 5000 / 9).abs().max() < 4 * (5000 / 9) ** 0.5


def test_noise_has_the_spread_asked_for():
    x = torch.zeros(10, 1, 50, 50)
    out, _ = noise(0.3)((x, torch.zeros(10)), draw(x, 0))
    assert abs(out.mean()) < 4 * 0.3 / 25_000**0.5
    assert abs(out.std() - 0.3) < 4 * 0.3 / (2 * 25_000) ** 0.5


def test_compose_is_one_after_another_with_one_generator():
    x, y = batch()
    random = draw(x, 4)
    wanted = flip()(shift(2)((x, y), random), random)[0]
    assert torch.equal(compose(shift(2), flip())((x, y), draw(x, 4))[0], wanted)
    assert compose()((x, y), draw(x, 0))[0] is x


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: shift(-1), r"pixels \(-1\) must be at least 0"),
        (lambda: crop(0), r"size \(0\) must be at least 1"),
        (lambda: crop(8, -1), r"padding \(-1\) at least 0"),
        (lambda: flip(1.5), r"chance \(1.5\) must be from 0 to 1"),
        (lambda: affine(scale=1.0), r"scale \(1.0\).* below 1"),
        (lambda: rotate(-3), r"degrees \(-3\).* at least 0"),
        (lambda: noise(-0.1), r"std \(-0.1\) must be at least 0"),
        (lambda: crop(9)(batch(), draw(batch()[0], 0)), r"size \(9\) must be at most 8"),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
