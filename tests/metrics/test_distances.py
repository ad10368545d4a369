import pytest
import torch

from everynet.metrics import energy_distance


def drawn(rows, seed, shift=0.0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 1, generator=draw, dtype=torch.float64) + shift


def test_by_hand():
    """Points 0, 1 and 3, 5: pairs across are 3, 5, 2, 4 apart, pairs inside 1 and 2."""
    x, y = (torch.tensor(v, dtype=torch.float64)[:, None] for v in ((0, 1), (3, 5)))
    assert energy_distance(x, y).item() == pytest.approx(2 * 3.5 - 1 - 2)


def test_zero_on_average_for_the_same_density():
    """Unbiased: with pairs of a point and itself it would be 2 x 1.128 / 50 too high."""
    found = torch.stack([energy_distance(drawn(50, k), drawn(50, 900 + k)) for k in range(200)])
    assert abs(found.mean()) < 4 * found.std() / 200**0.5
    assert abs(found.mean()) < 0.01


def test_two_far_normal_densities():
    """E|x - y| is the shift where it is large, and E|x - x'| is 2 / sqrt(pi)."""
    n = 2000
    expected = 2 * 20 - 4 / torch.pi**0.5
    found = energy_distance(drawn(n, 0), drawn(n, 1, 20.0)).item()
    assert found == pytest.approx(expected, abs=4 * 2 * (2 / n) ** 0.5)


def test_one_point_has_no_pairs():
    with pytest.raises(ValueError, match=r"points \(1\) must be at least 2, because pairs"):
        energy_distance(drawn(1, 0), drawn(3, 1))
