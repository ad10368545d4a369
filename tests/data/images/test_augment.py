"""Augmentations: what they do to pixels, that labels stay, that only the generator decides."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.data.dataset import Data
from everynet.data.draws import Draw, Share
from everynet.data.images import augment
from everynet.data.images.augment import (
    Affine,
    Mirror,
    Window,
    affine,
    colour,
    compose,
    crop,
    cutout,
    flip,
    mixed_cross_entropy,
    mixup,
    noise,
    rotate,
    shift,
)
from everynet.system.seeds import generator

few = settings(max_examples=25, deadline=None)
EVERY = {
    "shift": shift(2),
    "crop": crop(8, padding=2),
    "flip": flip(),
    "rotate": rotate(15),
    "affine": affine(10, 1, 0.1, 0.1),
    "noise": noise(0.1),
    "colour": colour(0.3, 0.3, 0.3),
    "cutout": cutout(3),
    "compose": compose(shift(1), flip(), noise(0.1)),
}


def draw(x, seed, **more):
    return Draw(generator(seed), len(x), **more)


def windows(x, top, left, size, fill=None):
    return Window(top, left, size, 4).image(x, fill)


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


@pytest.mark.parametrize("border", [0, 1, 5])
def test_windows_of_images_in_any_memory(border):
    """Channels last, every second image of a larger batch, and one repeated without a copy."""
    x = torch.randn(6, 3, 9, 7, generator=generator(1))
    top, left = torch.tensor([0, 1, 2]), torch.tensor([1, 0, 1])
    for images in (
        x[:3].to(memory_format=torch.channels_last), x[::2], x[:1].expand(3, -1, -1, -1),
    ):  # fmt: skip
        found = Window(top, left, (6, 5), border).image(images, 0.0)
        for image, part, row, column in zip(images, found, top, left, strict=True):
            assert torch.equal(part, image[:, row : row + 6, column : column + 5])


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


@pytest.mark.covers("D1")
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


def test_an_image_is_turned_about_its_centre_and_then_moved():
    """Its numbers draw the turn first and the move last, so both are known: R, then + offset."""
    x = smooth()[:1].expand(40, -1, -1, -1)
    out, _ = affine(degrees=90, pixels=2, fill=0.0)((x, torch.zeros(40)), draw(x, 2))
    angle, _, _, _, right, below = 2 * draw(x, 2).uniform(6) - 1
    (column, row), (x0, y0) = centres(out), centres(x)
    cos, sin = (angle * math.pi / 2).cos(), (angle * math.pi / 2).sin()
    torch.testing.assert_close(column, cos * x0 - sin * y0 + 2 * right, atol=0.1, rtol=0)
    torch.testing.assert_close(row, sin * x0 + cos * y0 + 2 * below, atol=0.1, rtol=0)


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


# ----------------------------------------------------------------- colour and what is hidden


def factors(seed, count, spread):
    """The numbers that `colour` draws: one row each for brightness, contrast, saturation."""
    return 1 + spread * (2 * draw(torch.zeros(count), seed).uniform(3).double() - 1)


def test_colour_is_its_three_equations():
    x = torch.rand(5, 3, 6, 7, generator=generator(2), dtype=torch.float64)
    out, _ = colour(0.4, 0.4, 0.4, black=[-0.1, 0.0, 0.2])((x, torch.zeros(5)), draw(x, 9))
    black = torch.tensor([-0.1, 0.0, 0.2], dtype=torch.float64)
    for image, made, (b, c, s) in zip(x, out, factors(9, 5, 0.4).T, strict=True):
        y = b * image + (1 - b) * black[:, None, None]
        z = c * y + (1 - c) * y.mean((1, 2))[:, None, None]
        torch.testing.assert_close(made, s * z + (1 - s) * z.mean(0))


def test_each_colour_change_keeps_what_it_is_seen_from():
    """Brightness keeps black, contrast the mean of each channel, saturation that of each pixel."""
    x = torch.rand(8, 3, 6, 6, generator=generator(2), dtype=torch.float64)
    y = torch.zeros(8)
    bright, _ = colour(brightness=0.5)((x, y), draw(x, 1))
    b = factors(1, 8, 0.5)[0]
    torch.testing.assert_close(bright.amin((2, 3)), x.amin((2, 3)))
    torch.testing.assert_close(
        bright.amax((2, 3)) - bright.amin((2, 3)),
        b[:, None] * (x.amax((2, 3)) - x.amin((2, 3))),
    )
    hard, _ = colour(contrast=0.5)((x, y), draw(x, 1))
    torch.testing.assert_close(hard.mean((2, 3)), x.mean((2, 3)))
    torch.testing.assert_close(hard.std((2, 3)), factors(1, 8, 0.5)[1][:, None] * x.std((2, 3)))
    tinted, _ = colour(saturation=0.5)((x, y), draw(x, 1))
    torch.testing.assert_close(tinted.mean(1), x.mean(1))
    torch.testing.assert_close(tinted.std(1), factors(1, 8, 0.5)[2][:, None, None] * x.std(1))
    grey = x[:, :1]
    assert torch.equal(colour(saturation=1)((grey, y), draw(x, 1))[0], grey)
    assert colour()((x, y), draw(x, 1))[0] is x


@pytest.mark.parametrize("side", [1, 4, 5])
def test_what_is_cut_out_is_a_square_about_its_centre(side):
    """All of it: the pixels that are 0 are those of the square that lie inside, and no others."""
    x = torch.ones(200, 2, 8, 11)
    out, _ = cutout(side)((x, torch.zeros(200)), draw(x, 3))
    random = draw(x, 3)
    rows, columns = random.integers(0, 7, 1)[0], random.integers(0, 10, 1)[0]
    wanted = torch.ones_like(x)
    for image, row, column in zip(wanted, rows.tolist(), columns.tolist(), strict=True):
        top, left = row - side // 2, column - side // 2
        image[:, max(0, top) : top + side, max(0, left) : left + side] = 0
    assert torch.equal(out, wanted)
    area = (out[:, 0] == 0).sum((1, 2))
    assert area.max() == side**2


def test_what_is_hidden_is_the_fill():
    x = torch.randn(4, 2, 5, 5, generator=generator(0))
    out, _ = cutout(5, fill=[7.0, 8.0])((x, torch.zeros(4)), draw(x, 0))
    hidden = out != x
    assert hidden[:, 0].any()
    assert (out[:, 0][hidden[:, 0]] == 7).all()
    assert (out[:, 1][hidden[:, 1]] == 8).all()


# ---------------------------------------------------------------------------- pairs and labels


def test_rows_are_mixed_with_the_batch_reversed():
    x = torch.randn(5, 3, 4, 4, generator=generator(0), dtype=torch.float64)
    torch.manual_seed(3)
    mixed, own = mixup(x, 0.4)
    w = own[:, None, None, None]
    torch.testing.assert_close(mixed, w * x + (1 - w) * x[[4, 3, 2, 1, 0]])
    torch.testing.assert_close(mixed[2], x[2])
    torch.manual_seed(3)
    assert torch.equal(mixup(x, 0.4)[1], own), "only torch's generator decides"


@pytest.mark.parametrize("spread", [0.2, 1, 3.0])
def test_weights_are_those_of_the_beta_distribution(spread):
    """Mean 1/2, variance 1 / (4 (2 a + 1)), fourth central moment 3 / (16 (2a + 1)(2a + 3))."""
    n = 40_000
    torch.manual_seed(0)
    own = mixup(torch.zeros(n, 1), spread)[1].double()
    variance = 1 / (4 * (2 * spread + 1))
    fourth = 3 / (16 * (2 * spread + 1) * (2 * spread + 3))
    assert own.min() >= 0
    assert own.max() <= 1
    assert abs(own.mean() - 0.5) < 4 * (variance / n) ** 0.5
    squares = (own - 0.5).square()
    assert abs(squares.mean() - variance) < 4 * ((fourth - variance**2) / n) ** 0.5
    assert squares.square().mean() == pytest.approx(fourth, rel=0.05)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("places", [(), (3, 2)])
def test_the_loss_of_a_mixed_batch_is_the_weighted_sum_of_two(places, smoothing):
    """Also for masks: one label a pixel. A smoothed label t is (1 - s) t + s / classes."""
    random = generator(1)
    logits = torch.randn(6, 4, *places, generator=random, dtype=torch.float64)
    y = torch.randint(4, (6, *places), generator=random)
    own = torch.rand(6, generator=random, dtype=torch.float64)

    def loss(row, labels):
        soft = torch.nn.functional.one_hot(labels, 4).double()
        soft = (1 - smoothing) * soft + smoothing / 4
        return -(soft.movedim(-1, 0) * row.log_softmax(0)).sum(0).mean()

    pairs = [
        own[i] * loss(logits[i], y[i]) + (1 - own[i]) * loss(logits[i], y[5 - i]) for i in range(6)
    ]
    found = mixed_cross_entropy(logits, y, own, smoothing)
    torch.testing.assert_close(found, torch.stack(pairs).mean())
    whole = mixed_cross_entropy(logits, y, torch.ones(6, dtype=torch.float64), smoothing)
    usual = torch.nn.functional.cross_entropy(logits, y, label_smoothing=smoothing)
    torch.testing.assert_close(whole, usual)


# ------------------------------------------------- what is drawn on images moves with them


def moves(count, height, width, seed=3):
    """One of each, by name, each different for every row."""
    random = generator(seed)
    angle = (torch.rand(count, generator=random) - 0.5) * 1.2
    linear = torch.stack([angle.cos(), angle.sin() + 0.1, -angle.sin(), angle.cos()], 1)
    offset = torch.rand(count, 2, generator=random) * 8 - 4
    linear = linear.reshape(-1, 2, 2) * (0.8 + 0.4 * torch.rand(count, 1, 1, generator=random))
    return {
        "window": Window(
            torch.randint(-4, 5, (count,), generator=random),
            torch.randint(-4, 5, (count,), generator=random),
            (height - 2, width + 3),
            7,
        ),
        "mirror": Mirror(torch.arange(count) % 2 == 0),
        "affine": Affine(torch.cat([linear, offset[:, :, None]], 2)),
    }


MOVES = tuple(moves(1, 8, 8))


def discs(count, height, width, seed=0):
    """Masks of three classes: two discs each over background."""
    random = generator(seed)
    row, column = torch.arange(height)[:, None], torch.arange(width)
    masks = torch.zeros(count, height, width, dtype=torch.int64)
    for kind in (1, 2):
        centre = torch.rand(count, 2, 1, 1, generator=random)
        away = (row - height * (0.2 + 0.6 * centre[:, 0])).square()
        away = away + (column - width * (0.2 + 0.6 * centre[:, 1])).square()
        masks[away < 36] = kind
    return masks


@pytest.mark.parametrize("name", MOVES)
def test_a_moved_mask_is_the_argmax_of_its_moved_one_hot_image(name):
    """Away from borders between classes, where nearest and bilinear may differ by a pixel."""
    masks = discs(12, 40, 33)
    move = moves(12, 40, 33)[name]
    seen = move.mask(masks)
    one_hot = torch.nn.functional.one_hot(masks, 3).permute(0, 3, 1, 2).double()
    soft = move.image(one_hot, [1.0, 0.0, 0.0])  # what comes in from outside is background
    sure = soft.amax(1) > 0.999
    assert seen.dtype == masks.dtype
    assert seen.shape == soft.shape[:1] + soft.shape[2:]
    assert sure.float().mean() > 0.8
    assert (seen > 0).sum() > 12 * 50, "the discs must be seen"
    assert torch.equal(seen[sure], soft.argmax(1)[sure])
    assert (seen != soft.argmax(1)).float().mean() < 0.01


@pytest.mark.parametrize("name", MOVES)
def test_a_moved_map_is_the_moved_image_with_zero_outside(name):
    x = torch.randn(6, 3, 20, 24, generator=generator(2))
    move = moves(6, 20, 24)[name]
    parts = ("image", "map", "label")
    batch = (x, x.clone(), torch.arange(6))
    moved = augment._move(move, batch, Draw(generator(0), 6, parts=parts), 0.0)
    assert torch.equal(moved[0], moved[1])
    assert moved[2] is batch[2]
    filled = augment._move(move, batch, Draw(generator(0), 6, parts=parts), 9.0)
    assert torch.equal(filled[1], moved[1]), "the fill of images is not that of maps"


@pytest.mark.parametrize("name", MOVES)
def test_a_moved_box_bounds_the_moved_rectangle_to_a_pixel(name):
    height, width = 60, 48
    edges = torch.tensor([[[14.0, 20, 30, 41]], [[18, 22, 25, 27]], [[10, 30, 33, 45]]])
    edges = edges.repeat(4, 1, 1)  # left top right bottom, in pixels
    scale = torch.tensor([width, height] * 2)
    boxes = torch.cat([torch.full((12, 1, 1), 2.0), edges / scale], 2)
    filled = torch.zeros(12, 1, height, width)
    for image, (left, top, right, bottom) in zip(filled, edges[:, 0].long(), strict=True):
        image[:, top:bottom, left:right] = 1
    move = moves(12, height, width)[name]
    image, found = move.image(filled, 0.0), move.boxes(boxes, (height, width))
    assert (found[..., 0] == 2).all()
    for picture, box in zip(image[:, 0], found[:, 0, 1:], strict=True):
        rows, columns = (picture > 0.5).any(1).nonzero(), (picture > 0.5).any(0).nonzero()
        seen = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        pixels = box * torch.tensor([picture.shape[1], picture.shape[0]] * 2)
        # corners of a turned rectangle are thinner than a pixel
        assert (pixels - torch.tensor(seen)).abs().max() < 1.6


def test_a_quarter_turn_of_boxes_in_closed_form():
    boxes = torch.tensor([[[0.0, 0.1, 0.2, 0.4, 0.9], [-1, 0, 0, 0, 0]]])
    found = Affine(turn(math.pi / 2, 1)).boxes(boxes, (8, 8))
    # turned clockwise, as the image of rot90(-1) is: (x, y) goes to (1 - y, x)
    wanted = torch.tensor([[[0.0, 0.1, 0.1, 0.8, 0.4], [-1, 0, 0, 0, 0]]])
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=0)


def test_boxes_are_cut_at_the_border_and_gone_outside():
    boxes = torch.tensor([[[1.0, 0.0, 0.5, 0.5, 1.0], [0, 0.0, 0.0, 0.25, 0.25], [-1, 0, 0, 0, 0]]])
    right = Window(torch.tensor([2]), torch.tensor([2]), (8, 8), 2).boxes(boxes, (8, 8))
    wanted = [[1.0, 0.0, 0.25, 0.25, 0.75], [-1, 0, 0, 0, 0], [-1, 0, 0, 0, 0]]
    assert right[0].tolist() == wanted


def test_a_sample_whose_last_box_would_leave_stays_as_it_is():
    """A small box in a corner; the samples of which a box is left move as they always did."""
    x, mask = torch.randn(64, 2, 8, 8, generator=generator(1)), torch.arange(64)[:, None, None]
    boxes = torch.tensor([[[1.0, 0.9, 0.9, 1.0, 1.0], [-1, 0, 0, 0, 0]]]).repeat(64, 1, 1)
    boxes[::2, 1] = torch.tensor([0.0, 0.3, 0.3, 0.7, 0.7])  # these have another, in the middle
    batch = (x, mask.expand(-1, 8, 8), boxes)
    for change in (shift(3), affine(pixels=3.0), crop(8, padding=3)):
        moved = change(batch, Draw(generator(7), 64, parts=("image", "mask", "boxes")))
        free = change(batch[:2], Draw(generator(7), 64, parts=("image", "mask")))
        assert (moved[2][..., 0] >= 0).any(1).all()
        stayed = (moved[2] == boxes).all((1, 2)) & (free[0] != x).any((1, 2, 3))
        assert 5 < stayed.sum() < 32
        assert not stayed[::2].any()
        for before, after, freely in zip(batch, moved, free, strict=False):
            assert torch.equal(after[stayed], before[stayed])
            assert torch.equal(after[~stayed], freely[~stayed])


@pytest.mark.parametrize("padding", [0, 3])
def test_a_smaller_crop_never_loses_the_last_box(padding):
    """Boxes of a few pixels, drawn in white; an image that shows one is cropped as ever."""
    count, height, width, size = 400, 18, 24, 7
    random = torch.Generator().manual_seed(0)
    sides = torch.tensor([width, height])
    first = (torch.rand(count, 2, 2, generator=random) * (sides - 2)).long()
    last = torch.minimum(first + 1 + torch.randint(0, 3, first.shape, generator=random), sides)
    kinds = torch.tensor([[[0.0], [-1.0]], [[-1.0], [1.0]], [[0.0], [1.0]], [[-1.0], [-1.0]]])
    kinds = kinds.repeat(count // 4, 1, 1)
    boxes = torch.cat([kinds, first / sides, last / sides], 2)
    x = torch.zeros(count, 1, height, width)
    for number, box in itertools.product(range(count), range(2)):
        if kinds[number, box] >= 0:
            (left, top), (right, bottom) = first[number, box], last[number, box]
            x[number, :, top:bottom, left:right] = 1
    plain, _ = crop(size, padding, 0.0)((x, boxes), draw(x, 5))
    found, kept = crop(size, padding, 0.0)((x, boxes), draw(x, 5, parts=("image", "boxes")))
    had, left = (kinds[..., 0] >= 0).any(1), (kept[..., 0] >= 0).any(1)
    assert torch.equal(had, left)
    seen = plain.sum((1, 2, 3)) > 0
    assert 50 < int((had & ~seen).sum()) < 300
    assert torch.equal(found[seen], plain[seen])
    drawn = torch.zeros_like(found)
    for number, box in itertools.product(range(count), range(2)):
        if kept[number, box, 0] >= 0:
            left, top, right, bottom = (kept[number, box, 1:] * size).round().long().tolist()
            drawn[number, :, top:bottom, left:right] = 1
    assert torch.equal(drawn, found), "boxes lie where they are drawn"


def test_what_comes_into_a_mask_from_outside_is_class_0():
    full = torch.full((1, 6, 6), 2)
    away = Window(torch.tensor([3]), torch.tensor([0]), (6, 6), 3).mask(full)
    assert away[0, :, 0].tolist() == [2, 2, 2, 0, 0, 0]
    turned = Affine(turn(math.pi / 4, 1)).mask(full)
    assert turned[0, 0, 0] == 0
    assert turned[0, 3, 3] == 2


def test_no_box_stays_no_box_under_every_move():
    none = torch.zeros(5, 3, 5)
    none[..., 0] = -1
    for move in moves(5, 20, 20).values():
        assert torch.equal(move.boxes(none, (20, 20)), none)


PARTS = ("image", "mask", "map", "boxes", "label")


def everything(count=6, dtype=torch.float32):
    x = torch.randn(count, 2, 8, 8, generator=generator(1)).to(dtype)
    boxes = torch.tensor([1.0, 0.2, 0.3, 0.7, 0.8], dtype=dtype).expand(count, 2, 5).clone()
    mask = torch.randint(3, (count, 8, 8), generator=generator(4))
    return x, mask, x[:, :1].clone(), boxes, torch.arange(count)


@pytest.mark.parametrize("name", EVERY)
def test_two_ranks_together_are_one(name):
    """Each process augments its rows with the numbers that one process would use for them."""
    batch = everything()
    whole = EVERY[name](batch, Draw(generator(7), 6, parts=PARTS))
    shares = []
    for rank in range(2):
        share = Share(rank, 2)
        mine = tuple(tensor[share.of(6)] for tensor in batch)
        shares.append(EVERY[name](mine, Draw(generator(7), 6, share, PARTS)))
    for one, *joined in zip(whole, *shares, strict=True):
        assert torch.equal(one, torch.cat(joined))


@pytest.mark.parametrize("name", EVERY)
def test_no_row_looks_at_another(name):
    batch, other = everything(), everything()
    other[0][0] *= -3
    other[0][0, :, 0, 0] = -100
    other[1][0], other[2][0], other[3][0, :, 1] = 2, 50.0, 0.1
    first, second = (EVERY[name](b, Draw(generator(7), 6, parts=PARTS)) for b in (batch, other))
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a[1:], b[1:])
    assert not torch.equal(first[0][0], second[0][0])


@pytest.mark.parametrize("name", EVERY)
def test_all_parts_keep_their_types_and_labels_stay(name):
    for dtype in (torch.float32, torch.float64):
        batch = everything(dtype=dtype)
        before = [tensor.clone() for tensor in batch]
        made = EVERY[name](batch, Draw(generator(7), 6, parts=PARTS))
        assert [t.dtype for t in made] == [t.dtype for t in batch]
        assert [t.shape for t in made] == [t.shape for t in batch]
        assert made[4] is batch[4]
        for was, is_ in zip(before, batch, strict=True):
            assert torch.equal(was, is_), "what is stored must not change"


def test_float64_is_not_done_in_float32():
    """A turn and its opposite, to what float64 gives: 1e-3 of a pixel would be a float32 grid."""
    x = smooth().double()
    there = Affine(turn(math.pi / 2, 3).double()).image(x, 0.0)
    torch.testing.assert_close(there, torch.rot90(x, -1, (2, 3)), atol=1e-7, rtol=0)


@pytest.mark.parametrize("change", [noise(0.5), colour(0.5, 0.5, 0.5), cutout(4)])
def test_what_moves_nothing_is_for_images_alone(change):
    batch = everything()
    made = change(batch, Draw(generator(7), 6, parts=PARTS))
    assert not torch.equal(made[0], batch[0])
    assert all(a is b for a, b in zip(made[1:], batch[1:], strict=True))


def test_training_draws_anew_at_every_step_and_the_same_for_a_step():
    """With one batch of equal images an epoch, only the augmentation tells steps apart."""
    x = torch.arange(64.0).reshape(1, 1, 8, 8).expand(4, -1, -1, -1).clone()
    y = torch.arange(64).reshape(1, 8, 8).expand(4, -1, -1).clone()
    data = Data(
        {"train": (x, y)}, batch_size=4, seed=3, augment=shift(3, 0.0), parts=("image", "mask")
    )
    steps = [data.train(step) for step in range(6)]
    for a in range(6):
        for b in range(a):
            assert not torch.equal(steps[a][0], steps[b][0])
    for image, mask in steps:
        assert torch.equal(image[:, 0], mask.to(image.dtype)), "the mask moved as its image did"
    for tensor, again in zip(data.train(2), steps[2], strict=True):
        assert torch.equal(tensor, again)
    another = Data({"train": (x, y)}, batch_size=4, seed=4, augment=shift(3, 0.0))
    assert not torch.equal(another.train(2)[0], steps[2][0])
    assert torch.equal(another.train(2)[1], y), "what is no mask stays"


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
        (lambda: colour(1.5), r"brightness \(1.5\), .* from 0 to 1, because each factor"),
        (lambda: colour(contrast=-1), r"contrast \(-1\) and .* from 0 to 1"),
        (lambda: colour(saturation=2), r"saturation \(2\) must be from 0 to 1"),
        (lambda: cutout(0), r"side \(0\) must be at least 1"),
        (lambda: mixup(batch()[0], 0), r"spread \(0\) must be a positive number"),
        (lambda: crop(9)(batch(), draw(batch()[0], 0)), r"size \(9\) must be at most 8"),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
