"""Positions against their formula, the rotation that shifts them, and what they add."""

import math

import pytest
import torch

from everynet.nn.positions import (
    LearnedPositions,
    SinusoidalPositions,
    rotate_positions,
    sinusoidal,
)


@pytest.mark.covers("T5")
def test_codes_are_the_formula_and_a_pair_shares_its_angle():
    codes = sinusoidal(40, 6)
    for p, i in ((0, 0), (1, 0), (7, 1), (39, 2)):
        angle = p / 10000 ** (2 * i / 6)
        assert codes[p, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-14)
        assert codes[p, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-14)


@pytest.mark.covers("T5")
@pytest.mark.parametrize("steps", [0, 1, 13, -5])
def test_later_codes_are_a_rotation_of_earlier_ones(steps):
    codes = sinusoidal(60, 16)
    expected = codes[20 + steps : 40 + steps]
    torch.testing.assert_close(rotate_positions(codes[20:40], steps), expected, rtol=0, atol=1e-12)


def printed_wrongly(positions, d):
    """Two forms in print: the raw index in both exponents, and 2i + 1 in that of the cosine."""
    p, n = torch.arange(positions, dtype=torch.double)[:, None], torch.arange(d)
    raw = p / 10000 ** (2 * n / d)
    odd = p / 10000 ** (n / d)
    return [torch.where(n % 2 == 0, angle.sin(), angle.cos()) for angle in (raw, odd)]


@pytest.mark.covers("T5")
def test_inner_products_depend_on_the_distance_alone_unlike_those_of_wrong_forms():
    def spread(codes):
        products = codes @ codes.T
        return max(products.diagonal(k).std().item() for k in range(20))

    assert spread(sinusoidal(60, 16)) < 1e-12
    assert all(spread(codes) > 0.1 for codes in printed_wrongly(60, 16))
    first = sinusoidal(20, 16) @ sinusoidal(1, 16)[0]
    angle = torch.arange(20)[:, None] / 10000 ** (torch.arange(0, 16, 2).double() / 16)
    torch.testing.assert_close(first, angle.cos().sum(1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("cls", [SinusoidalPositions, LearnedPositions])
def test_positions_are_added_from_a_start(cls):
    net, x = cls(4, 9), torch.randn(2, 6, 4)
    whole = net(x)
    assert torch.equal(whole - x, (x + net.table[:6]) - x)
    parts = [net(x[:, :2]), net(x[:, 2:], start=2)]
    assert torch.equal(torch.cat(parts, 1), whole)


def test_sinusoids_are_no_parameters_and_learned_positions_are():
    assert not list(SinusoidalPositions(4, 9).parameters())
    assert not SinusoidalPositions(4, 9).state_dict()
    assert [p.shape for p in LearnedPositions(4, 9).parameters()] == [(9, 4)]
    with torch.device("meta"):
        assert SinusoidalPositions(4, 9).table.is_meta


@pytest.mark.parametrize("cls", [SinusoidalPositions, LearnedPositions])
def test_what_does_not_fit_is_refused(unchecked, cls):
    net = cls(4, 5)
    with pytest.raises(ValueError, match=r"context \(5\) must be at least 6, .*context=6, or give"):
        net(torch.rand(1, 6, 4))
    with pytest.raises(ValueError, match=r"context \(5\) must be at least 7"):
        net(torch.rand(1, 2, 4), start=5)
    with pytest.raises(
        ValueError, match=rf"{cls.__name__} .*make the positions with hidden_size=3"
    ):
        net(torch.rand(1, 5, 3))


@pytest.mark.parametrize(("size", "instead"), [(5, 6), (0, 2), (-1, 2)])
def test_an_odd_width_has_no_pairs(size, instead):
    match = rf"hidden_size \({size}\) must be even, because .*; try {instead}$"
    with pytest.raises(ValueError, match=match):
        sinusoidal(3, size)
