"""Bringing images to a size and standardising them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from everynet.data.images.standardize import Standardize, black, digest, moments, resize
from everynet.system.errors import UserError


def noise(*shape, seed=0):
    return torch.randint(256, shape, generator=torch.Generator().manual_seed(seed)).to(torch.uint8)


def test_a_whole_multiple_repeats_each_pixel():
    x = torch.tensor([[[[1, 2], [3, 4]]]], dtype=torch.uint8)
    assert resize(x, 4).tolist() == [[[[1, 1, 2, 2], [1, 1, 2, 2], [3, 3, 4, 4], [3, 3, 4, 4]]]]


def test_a_few_missing_pixels_are_black_on_both_sides():
    x = noise(2, 1, 28, 28)
    y = resize(x, 32)
    assert torch.equal(y[:, :, 2:30, 2:30], x)
    assert int(y.sum()) == int(x.sum())
    odd = resize(noise(1, 1, 28, 29), 32)
    assert odd.shape == (1, 1, 32, 32)


def test_its_own_size_changes_nothing():
    x = noise(2, 3, 9, 9)
    assert torch.equal(resize(x, 9), x)


@pytest.mark.parametrize(("side", "size"), [(40, 17), (9, 20), (33, 32)])
def test_other_sizes_are_those_of_pillow(side, size):
    """Pillow's bilinear filter, which also averages where it shrinks, within one level."""
    x = noise(1, 1, side, side)
    wanted = Image.fromarray(x[0, 0].numpy()).resize((size, size), Image.Resampling.BILINEAR)
    wanted = torch.tensor(list(wanted.tobytes())).reshape(size, size)
    assert (resize(x, size)[0, 0].int() - wanted).abs().max() <= 1


def test_a_flat_image_stays_flat_and_proportions_may_change():
    x = torch.full((1, 3, 50, 70), 77, dtype=torch.uint8)
    assert torch.equal(resize(x, 32), torch.full((1, 3, 32, 32), 77, dtype=torch.uint8))


def test_real_numbers_stay_real_numbers():
    x = torch.rand(2, 1, 10, 10, dtype=torch.float64)
    assert resize(x, 7).dtype == torch.float64


def test_size_must_be_positive():
    with pytest.raises(UserError, match=r"size \(0\) must be at least 1"):
        resize(noise(1, 1, 2, 2), 0)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), channels=st.sampled_from([1, 3]))
def test_moments_are_those_of_float64(seed, channels):
    x = noise(5, channels, 6, 7, seed=seed)
    mean, std = moments(x, 255.0)
    values = x.double() / 255
    torch.testing.assert_close(torch.tensor(mean).double(), values.mean((0, 2, 3)))
    wanted = values.transpose(0, 1).reshape(channels, -1).std(1, correction=0)
    torch.testing.assert_close(torch.tensor(std).double(), wanted)


def test_moments_of_real_numbers_and_of_a_constant():
    x = torch.rand(4, 2, 5, 5, dtype=torch.float64)
    mean, std = moments(x, 2.0)
    assert mean == pytest.approx((x.mean((0, 2, 3)) / 2).tolist())
    assert std == pytest.approx(
        (x.transpose(0, 1).reshape(2, -1).std(1, correction=0) / 2).tolist()
    )
    assert moments(torch.full((2, 1, 3, 3), 9, dtype=torch.uint8), 255.0)[1] == [1.0]


def test_standardised_images_have_mean_0_and_variance_1():
    x = noise(50, 3, 8, 8)
    standardize = Standardize(*moments(x, 255.0), 255.0)
    y = standardize.images(x).double()
    assert y.mean((0, 2, 3)).abs().max() < 1e-6
    assert (y.transpose(0, 1).reshape(3, -1).std(1, correction=0) - 1).abs().max() < 1e-6


def test_standardising_is_the_formula_and_keeps_the_rest_of_the_batch():
    x, y = noise(4, 3, 5, 5), torch.arange(4)
    out, same = Standardize((0.1, 0.2, 0.3), (0.4, 0.5, 0.6), 200.0)((x, y))
    mean, std = (torch.tensor(v)[:, None, None] for v in ([0.1, 0.2, 0.3], [0.4, 0.5, 0.6]))
    torch.testing.assert_close(out, (x / 200 - mean) / std)
    assert same is y
    assert out.dtype == torch.float32


def test_black_is_what_zero_becomes():
    spec = {"mean": [0.3, 0.5], "std": [0.2, 0.1], "peak": 255.0}
    zero = Standardize.of(spec).images(torch.zeros(1, 2, 1, 1, dtype=torch.uint8))
    torch.testing.assert_close(zero.flatten(), torch.tensor(black(spec)))


def test_a_digest_sees_contents_shape_and_type():
    x = torch.arange(6)
    assert len({digest(x), digest(x.reshape(2, 3)), digest(x.int()), digest(x + 1)}) == 4
    assert digest(x) == digest(x.clone())
