from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from everynet.system.errors import UserError
from everynet.zoo.vision.equivariance import (
    RECIPES,
    PhotoShifts,
    conv_relu,
    equivariance_error,
    global_mean,
    invariance_error,
    max_pool,
    shift,
    spread,
)

RECIPE = RECIPES["equivariance"]


def random(*shape, seed=0):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=made, dtype=torch.float64)


def test_a_shift_moves_down_and_to_the_right_and_round():
    x = torch.arange(9.0).view(3, 3)
    assert shift(x, 1).tolist() == [[8, 6, 7], [2, 0, 1], [5, 3, 4]]
    assert torch.equal(shift(shift(x, 2), -2), x)


@pytest.mark.parametrize(("stride", "closed"), [(1, True), (2, True), (1, False)])
def test_the_layer_is_torchs(stride, closed):
    x, mode = random(2, 3, 8, 8), "circular" if closed else "zeros"
    conv = nn.Conv2d(3, 4, 5, stride, padding=2, bias=False, padding_mode=mode).double()
    found = conv_relu(x, conv.weight, stride=stride, circular=closed)
    torch.testing.assert_close(found, conv(x).relu())


@pytest.mark.covers("C8")
@given(s=st.integers(-20, 20), side=st.integers(5, 12), taps=st.sampled_from([1, 3, 5]))
@settings(max_examples=30)
def test_a_closed_convolution_commutes_with_every_shift(s, side, taps):
    x, weight = random(1, 2, side, side), random(3, 2, taps, taps, seed=1)

    def f(x):
        return conv_relu(x, weight)

    torch.testing.assert_close(f(shift(x, s)), shift(f(x), s), rtol=0, atol=1e-12)
    assert equivariance_error(f, x, s) < 1e-12
    assert invariance_error(lambda x: global_mean(f(x)), x, s) < 1e-12
    if s % side and taps > 1:
        assert invariance_error(f, x, s) > 0.01  # equivariant is not invariant


@pytest.mark.covers("C8")
@given(s=st.integers(0, 12), stride=st.sampled_from([2, 3, 4]))
@settings(max_examples=20)
def test_a_stride_commutes_with_its_own_multiples_alone(s, stride):
    x, weight = random(1, 1, 12, 12), random(2, 1, 3, 3, seed=1)
    error = equivariance_error(lambda x: conv_relu(x, weight, stride=stride), x, s, stride)
    assert (error < 1e-12) == (s % stride == 0)


@pytest.mark.covers("C8")
def test_borders_of_zeros_break_it_there_alone():
    x, weight = random(1, 1, 12, 12), random(2, 1, 5, 5, seed=1)

    def f(x):
        return conv_relu(x, weight, circular=False)

    assert equivariance_error(f, x, 1) > 0.1
    assert equivariance_error(f, x, 1, edge=2) > 0.01  # the old border has moved in by one
    assert equivariance_error(f, x, 1, edge=3) < 1e-12


def test_the_measures_by_hand():
    """y = 0 .. 3 has a spread of the root of 5; to add 1 to one value changes it by 1."""
    x = torch.arange(4.0).view(1, 1, 2, 2).double()
    assert spread(x).item() == pytest.approx(5**0.5)

    def f(z):
        return z + torch.tensor([[0.0, 0.0], [0.0, float(z[0, 0, 0, 0] == 3)]])

    # shifted by 1 the first value is 3: (3, 2, 1, 0 + 1) for (3, 2, 1, 0)
    assert equivariance_error(f, x, 1) == pytest.approx(1 / 5**0.5)
    assert invariance_error(f, x, 1) == pytest.approx(((3**2 + 1 + 1 + 2**2) / 5) ** 0.5)


@pytest.mark.covers("C8")
def test_pooling_halves_a_map_and_changes_less():
    y = random(1, 3, 8, 8).abs()
    assert torch.equal(max_pool(y, 2)[0, 0, 0, 0], y[0, 0, :2, :2].max())
    recipe = replace(RECIPE, side=32, filters=4, shifts=8)
    metrics = recipe.metrics(recipe.simulate(torch.Generator().manual_seed(1)))
    assert all(goal.reached(metrics) for goal in recipe.goals())
    assert 1 > metrics["pool_ratio"] > metrics["pool_ratio_4"]


@pytest.mark.slow
@pytest.mark.parametrize("photo", ["china", "flower"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_recipe_reaches_its_goal(photo, seed):
    recipe = replace(RECIPE, photo=photo)
    metrics = recipe.metrics(recipe.simulate(torch.Generator().manual_seed(seed)))
    assert all(goal.reached(metrics) for goal in recipe.goals())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"filters": 0}, r"filters \(0\) must be at least 1"),
        ({"taps": 4}, r"taps \(4\) must be an odd number from 3 up"),
        ({"side": 20}, r"side \(20\) must be a multiple of 8 from 16 up"),
        ({"shifts": 60}, r"shifts \(60\) must be more than taps and less than side - taps"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        PhotoShifts(**fields)
