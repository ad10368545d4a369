"""mu-law: closed forms, torchaudio's levels, the bound of its error, quiet sound beside 8 bits."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from everynet.nn import mu_law

ALL = torch.arange(256)


def sound(points=20_001):
    return torch.linspace(-1, 1, points, dtype=torch.double)


def test_closed_form():
    x = torch.tensor([-1.0, 0.0, 1 / 255, 15 / 255, 1.0], dtype=torch.double)
    known = torch.tensor([-1.0, 0.0, 1 / 8, 1 / 2, 1.0], dtype=torch.double)
    torch.testing.assert_close(mu_law.compress(x), known)
    torch.testing.assert_close(mu_law.expand(known), x)


def test_expand_is_the_inverse():
    torch.testing.assert_close(mu_law.expand(mu_law.compress(sound())), sound())
    torch.testing.assert_close(mu_law.compress(mu_law.expand(sound(), 31), 31), sound())


def test_it_is_odd_and_no_sigmoid():
    x = sound()
    torch.testing.assert_close(mu_law.compress(-x), -mu_law.compress(x))
    slope = mu_law.compress(x).diff() / x.diff()
    assert slope.max() > 45
    assert slope.min() < 0.2  # mu / ln(1 + mu) = 46 at 0; a sigmoid has 1/4


def test_levels_are_those_that_are_used():
    """By hand from (3); torchaudio has the same ones."""
    x = torch.tensor([-1.0, -0.5, -0.01, -1e-4, 0.0, 1e-4, 0.01, 0.5, 1.0])
    assert mu_law.encode(x).tolist() == [0, 16, 98, 127, 128, 128, 157, 239, 255]
    assert mu_law.encode(torch.tensor([-3.0, 1.5])).tolist() == [0, 255]  # clipped


def test_every_level_comes_back():
    for levels in (2, 16, 256):
        n = torch.arange(levels)
        assert (mu_law.encode(mu_law.decode(n, levels), levels) == n).all()


@pytest.mark.covers("R40")
@given(st.floats(-1, 1), st.sampled_from([4, 16, 256]))
def test_round_trip_within_its_bound(value, levels):
    x = torch.tensor([value], dtype=torch.double)
    heard = mu_law.decode(mu_law.encode(x, levels), levels, torch.double)
    assert (heard - x).abs() <= mu_law.round_trip_bound(x, levels) * (1 + 1e-9)


def test_the_bound_is_met():
    """Just inside the edge of a level, on the louder side of it, nothing better can be said."""
    edge = mu_law.level_edges(256, torch.double)[200:201]
    below = edge * (1 - 1e-9)  # falls to the level below, whose value is further in
    error = (mu_law.decode(mu_law.encode(below), 256, torch.double) - below).abs()
    above = edge * (1 + 1e-9)
    other = (mu_law.decode(mu_law.encode(above), 256, torch.double) - above).abs()
    torch.testing.assert_close(other, mu_law.round_trip_bound(edge), rtol=1e-6, atol=0)
    assert error < other


def test_edges_part_the_levels():
    edges = mu_law.level_edges(256, torch.double)
    assert edges[0] == -math.inf
    assert edges[-1] == math.inf
    assert len(edges) == 257
    inside = edges[1:-1]
    assert (mu_law.encode(inside - 1e-12) == ALL[:-1]).all()
    assert (mu_law.encode(inside + 1e-12) == ALL[1:]).all()


@pytest.mark.covers("R40")
def test_quiet_sound_is_heard_better_than_by_uniform_levels():
    t = torch.arange(8000, dtype=torch.double) / 8000
    wave = (2 * math.pi * 220 * t).sin()
    for loud, gain in ((0.003, 15), (0.01, 15), (0.1, 7)):
        x = loud * wave
        ours = mu_law.signal_to_noise(x, mu_law.decode(mu_law.encode(x), 256, torch.double))
        uniform = mu_law.signal_to_noise(x, mu_law.quantize_uniformly(x))
        assert ours > uniform + gain
    x = wave  # at full volume equal distances are the better ones
    ours = mu_law.signal_to_noise(x, mu_law.decode(mu_law.encode(x), 256, torch.double))
    assert 30 < ours < mu_law.signal_to_noise(x, mu_law.quantize_uniformly(x))


def test_signal_to_noise():
    x = torch.ones(2, 100)
    heard = torch.stack([x[0] * 0.9, x[0] * 0.99])
    torch.testing.assert_close(mu_law.signal_to_noise(x, heard), torch.tensor([20.0, 40.0]))


def test_one_level_is_refused():
    with pytest.raises(ValueError, match=r"levels \(1\) must be at least 2"):
        mu_law.encode(sound(), 1)
