"""Pixels drawn from grey values: how often, when, and from what."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import everynet
from everynet.data.images.standardize import Standardize
from everynet.system.errors import UserError
from everynet.system.seeds import seeded_by
from everynet.zoo.generative.binary_images import (
    BinaryImages,
    binarize,
    check_pixels,
    draw,
    draw_held_out,
    unit_images,
)


@pytest.fixture
def digits():
    return BinaryImages[nn.Module](batch_size=32).dataset()


def test_a_pixel_is_white_as_often_as_its_grey_value_says():
    g = torch.tensor([0.0, 0.1, 0.5, 0.9, 1.0], dtype=torch.float64)
    with seeded_by(1):
        x = draw(g.expand(40_000, 5))
    assert set(x.unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close(x.mean(0), g, atol=0.0125, rtol=0)  # five standard errors
    assert x[:, 0].sum() == 0
    assert x[:, 4].all()


def test_binary_pixels_stay_as_they_are_and_others_are_drawn_anew():
    x = torch.tensor([0.0, 1.0, 1.0, 0.0]).repeat(50)
    assert torch.equal(draw(x), x)
    grey = torch.full((200,), 0.5)
    assert not torch.equal(draw(grey), draw(grey))
    assert binarize(torch.tensor([0.0, 0.4, 0.6, 1.0])).tolist() == [0, 0, 1, 1]


def test_training_images_are_grey_and_those_held_out_are_drawn_once(digits):
    x = digits.splits["train"][0]
    assert x.min() == 0
    assert x.max() == 1
    levels = 16 * x
    torch.testing.assert_close(levels, levels.round(), atol=1e-4, rtol=0)
    assert len(levels.round().unique()) == 17
    for part in ("valid", "test"):
        assert set(digits.splits[part][0].unique().tolist()) == {0.0, 1.0}
    other = BinaryImages[nn.Module](batch_size=32, seed=7).dataset()
    assert torch.equal(digits.splits["test"][0], other.splits["test"][0])  # whatever the seed is
    assert digits.spec["mean"] == [0.0]
    assert digits.spec["std"] == [1.0]


def test_a_mean_over_many_pixels_of_the_test_set_is_that_of_its_grey_values(digits):
    grey = unit_images(everynet.data.load("digits", kind="image", batch_size=32))
    x, g = digits.splits["test"][0], grey.splits["test"][0]
    deviation = (g * (1 - g)).sum().sqrt() / g.numel()
    assert (x.mean() - g.mean()).abs() < 4 * deviation


def test_images_that_stay_whole_numbers_are_drawn_alike(digits):
    """A large set is made into numbers batch by batch; its held-out pixels are 0 and the peak."""
    whole = unit_images(everynet.data.load("digits", kind="image", batch_size=32))
    stored = {part: ((x * 16).round().byte(), y) for part, (x, y) in whole.splits.items()}
    large = replace(whole, splits=stored, prepare=Standardize.of(whole.spec))
    made = draw_held_out(unit_images(large))
    assert made.splits["test"][0].dtype == torch.uint8
    x, _ = next(made.test)
    torch.testing.assert_close(x, digits.splits["test"][0][: len(x)])


def test_colour_and_pixels_outside_are_refused(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    np.savez(tmp_path / "c.npz", x=rng.integers(0, 255, (60, 4, 4, 3), dtype=np.uint8), y=y)
    with pytest.raises(
        UserError, match=r"must be grey images, because .* 3 channels; save them in"
    ):
        BinaryImages[nn.Module](data=str(tmp_path / "c.npz"), batch_size=8).dataset()
    np.savez(tmp_path / "f.npz", x=rng.normal(size=(60, 4, 4)).astype(np.float32), y=y)
    with pytest.raises(UserError, match=r"f.npz \(-.* to .*\) must hold pixels from 0 to 1"):
        BinaryImages[nn.Module](data=str(tmp_path / "f.npz"), batch_size=8).dataset()
    with pytest.raises(UserError, match=r"inputs \(0 to 2\) must hold pixels from 0 to 1"):
        check_pixels(torch.tensor([0.0, 2.0]), "inputs")
    with pytest.raises(UserError, match=r"size \(-1\) must be at least 0"):
        BinaryImages[nn.Module](size=-1)
