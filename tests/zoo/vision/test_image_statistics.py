import math

import numpy as np
import pytest
import torch

from everynet.data import load
from everynet.data.images.standardize import Standardize
from everynet.zoo.vision.image_statistics import at_home, correlation, elsewhere, transfer
from everynet.zoo.vision.pixel_order import reorder


def random(*shape, seed=0):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=made, dtype=torch.float64)


@pytest.mark.covers("C10")
def test_correlation_of_waves_and_of_noise():
    """Of waves of 8 pixels in every phase it is the mean of cos(2 pi d / 8), across, and 1, down.

    So the mean over both is (1 + cos(2 pi d / 8)) / 2.
    """
    phase = torch.arange(8).double()[:, None, None]
    places = torch.arange(64).double()
    waves = (2 * torch.pi * (places + phase) / 8).cos().expand(8, 64, 64)
    for distance in (1, 2, 4, 8):
        across = math.cos(2 * math.pi * distance / 8)
        assert correlation(waves, distance) == pytest.approx((1 + across) / 2, abs=1e-10)
    assert abs(correlation(random(1, 200, 200), 3)) < 4 / (2 * 200 * 197) ** 0.5


@pytest.mark.covers("C10")
def test_a_plane_is_known_from_its_neighbours_everywhere_and_noise_nowhere():
    """Of a linear ramp a pixel is the mean of its neighbours: what is learned anywhere is true."""
    down, across = torch.meshgrid(*[torch.arange(20).double()] * 2, indexing="ij")
    explained, power = transfer((down + 2 * across)[None], 2, 2)
    torch.testing.assert_close(explained, torch.ones(4, 4).double(), rtol=0, atol=1e-9)
    inner = (down + 2 * across - (down + 2 * across).mean())[1:-1, 1:-1]
    torch.testing.assert_close(power.sum(), inner.square().sum())
    explained, _ = transfer(random(1, 60, 60), 2, 2)
    assert explained.abs().max() < 0.1


def test_every_share_is_that_of_least_squares_place_by_place():
    """Three blocks side by side, all 8 neighbours of each pixel, with numpy's solver."""
    images = random(2, 9, 11) + 3
    x = (images - images.mean()).numpy()
    parts = []
    for block in range(3):
        places = [
            (k, i, 1 + 3 * block + j) for k in range(2) for i in range(1, 8) for j in range(3)
        ]
        seen = [np.delete(x[k, i - 1 : i + 2, j - 1 : j + 2].flatten(), 4) for k, i, j in places]
        parts.append((np.array(seen), np.array([x[place] for place in places])))
    explained, power = transfer(images, 1, 3)
    for a, (inputs, targets) in enumerate(parts):
        weights = np.linalg.lstsq(inputs, targets, rcond=None)[0]
        for b, (others, true) in enumerate(parts):
            expected = 1 - ((others @ weights - true) ** 2).sum() / (true**2).sum()
            assert explained[a, b].item() == pytest.approx(expected)
        assert power[a].item() == pytest.approx((targets**2).sum())


def test_a_rule_that_is_true_of_one_half_alone():
    """Left a column is one level, right it changes sign from row to row: two rules."""
    levels = random(1, 1, 12, seed=1)
    signs = torch.tensor([1.0, -1.0]).double().repeat(200)[None, :, None]
    image = torch.cat([levels.expand(1, 400, 12), levels * signs], 2)
    explained, _ = transfer(image - image.mean(), 1, 2)
    assert explained.diag().min() > 0.9
    assert explained[0, 1] < 0.5


def test_shares_by_hand():
    explained = torch.tensor([[[0.9, 0.5], [0.3, 0.8]]]).double()
    power = torch.tensor([[1.0, 3.0]]).double()
    assert at_home(explained, power).item() == pytest.approx((0.9 + 3 * 0.8) / 4)
    assert elsewhere(explained, power).item() == pytest.approx((0.3 + 3 * 0.5) / 4)


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.covers("C10")
def test_cifar_is_local_and_stationary():
    data = load("cifar10-small", kind="image", batch_size=1)
    x, _ = data.some("train", torch.arange(2000))
    images = Standardize.of(data.spec).to_data_units(x).mean(1)
    near = torch.tensor([correlation(images, d) for d in range(1, 17)])
    assert near[0] > 0.9
    assert (near.diff() < 0).all()
    explained, power = transfer(images, 3, 3)
    here, there = (by(explained[None], power[None]).item() for by in (at_home, elsewhere))
    assert there > 0.9
    assert there / here > 0.99
    order = torch.randperm(32 * 32, generator=torch.Generator().manual_seed(0))
    mixed = reorder(images, order)
    assert correlation(mixed, 1) < near[7]
    assert elsewhere(*(t[None] for t in transfer(mixed, 3, 3))).item() < there - 0.3
