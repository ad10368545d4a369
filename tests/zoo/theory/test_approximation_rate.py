import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.system.errors import UserError
from everynet.zoo.theory.approximation_rate import (
    RECIPES,
    BarronRate,
    StepNetwork,
    barron_constant,
    draw_network,
    draw_points,
    draw_units,
    error_bound,
    fit_output,
    rate,
    target,
)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


# --------------------------------------------------------------------------------------- equations


def test_two_steps_by_hand():
    """c_0 + c_k where w_k . x > t_k, and not at the threshold itself."""
    network = StepNetwork(
        w=numbers([1, 0], [0, 2]), t=numbers(0.5, -1), c=numbers(3, 10), c_0=numbers(0.25)[0]
    )
    x = numbers([0.6, 0.0], [0.5, -0.5], [0.4, 0.1], [1.0, -1.0])
    assert network(x).tolist() == [13.25, 0.25, 10.25, 3.25]


@pytest.mark.parametrize("axes", [1, 2, 6])
def test_the_bell_is_an_average_of_cosines_of_mean_frequency_c(axes):
    n, s = 400_000, 1.5
    v = s * torch.randn(n, axes, generator=seeded(), dtype=torch.float64)
    x = draw_points(axes, 5, seeded(1))
    average = (x @ v.T).cos().mean(dim=1)
    torch.testing.assert_close(target(x, s), average, rtol=0, atol=5 * n**-0.5)
    lengths = v.norm(dim=1)
    error = 5 * float(lengths.std()) * n**-0.5
    assert barron_constant(axes, s) == pytest.approx(float(lengths.mean()), abs=error)


def test_constants_by_hand():
    assert barron_constant(1, 3.0) == pytest.approx(3 * math.sqrt(2 / math.pi))
    assert barron_constant(2, 1.0) == pytest.approx(math.sqrt(math.pi / 2))
    assert barron_constant(900, 1.0) == pytest.approx(30, rel=1e-3)


@pytest.mark.parametrize("axes", [1, 3])
def test_units_are_drawn_by_the_length_of_their_frequency(axes):
    """Under a density that |v| multiplies, E |w| = E |v|^2 / E |v|; t is even, directions too."""
    n, s = 200_000, 2.0
    w, t = draw_units(axes, n, s, seeded())
    lengths = w.norm(dim=0)
    expected = axes * s**2 / barron_constant(axes, s)
    assert lengths.mean().item() == pytest.approx(expected, abs=5 * s * n**-0.5)
    share = t / lengths
    assert share.min() >= 0
    assert share.max() <= 1
    assert share.mean().item() == pytest.approx(0.5, abs=5 * 12**-0.5 * n**-0.5)
    assert (w / lengths).mean(dim=1).abs().max() < 5 * n**-0.5
    assert abs(float(torch.corrcoef(torch.stack([share, lengths]))[0, 1])) < 5 * n**-0.5


@pytest.mark.covers("Y1")
@given(axes=st.integers(1, 6), s=st.floats(0.3, 2.5), seed=st.integers(0, 99))
@settings(max_examples=10, deadline=None)
def test_drawn_units_average_to_the_bell(axes, s, seed):
    """So (4) holds: with 30,000 units what is left is five standard errors at most, by (6)."""
    n = 30_000
    x = draw_points(axes, 8, seeded(seed + 1))
    off = (draw_network(axes, n, s, seeded(seed))(x) - target(x, s)).abs().max().item()
    assert off <= 5 * error_bound(numbers(n), barron_constant(axes, s)).item() / 2
    centre = torch.zeros(1, axes, dtype=torch.float64)
    assert draw_network(axes, 10, s, seeded(seed))(centre).item() == 1  # no step is below 0


@pytest.mark.covers("Y1")
@pytest.mark.parametrize("axes", [1, 4])
def test_the_error_of_drawn_networks_is_the_deviation_of_a_unit_over_the_root_of_n(axes):
    """Of 1,500 networks of 6 units each, beside a single unit, both as shares of a wide network."""
    x, n = draw_points(axes, 50, seeded(1)), 9_000
    y, network = target(x, 1.0), draw_network(axes, n, 1.0, seeded())
    single = network.c_0 + network.hidden(x) * (network.c * n)
    of_six = single.view(50, -1, 6).mean(dim=2)
    one, six = ((each - y[:, None]).square().mean().item() for each in (single, of_six))
    assert six == pytest.approx(one / 6, rel=0.15)
    assert one <= error_bound(numbers(1), barron_constant(axes, 1.0)).item() ** 2
    assert error_bound(numbers(16), 3.0).item() == 1.5


def test_fitted_output_weights_are_those_of_least_squares():
    x = draw_points(2, 300, seeded(1))
    y, network = target(x, 1.0), draw_network(2, 20, 1.0, seeded())
    fitted = fit_output(network, x, y)
    h = np.column_stack([network.hidden(x).numpy(), np.ones(300)])
    expected = np.linalg.lstsq(h, y.numpy(), rcond=None)[0]
    np.testing.assert_allclose(fitted(x).numpy(), h @ expected, atol=1e-6)
    assert fitted.w is network.w
    assert (fitted(x) - y).norm() < (network(x) - y).norm()


@given(power=st.floats(-2, 1), scale=st.floats(0.1, 10))
@settings(max_examples=25, deadline=None)
def test_the_rate_is_the_power_of_a_law_and_the_slope_of_a_line(power, scale):
    widths = numbers(3, 10, 20, 50)
    assert rate(widths, scale * widths**power) == pytest.approx(power, abs=1e-9)
    errors = scale * widths**power * numbers(1.1, 0.9, 1.3, 0.7)
    expected = np.polyfit(widths.log().numpy(), errors.log().numpy(), 1)[0]
    assert rate(widths, errors) == pytest.approx(expected)


# ------------------------------------------------------------------------------------ the recipe


def test_points_fill_the_ball_by_their_radius():
    x = draw_points(7, 20_000, seeded())
    radius = x.norm(dim=1)
    assert radius.max() <= 1
    assert radius.mean().item() == pytest.approx(0.5, abs=5 * 12**-0.5 * 20_000**-0.5)
    assert x.mean(dim=0).abs().max() < 5 * 20_000**-0.5


@pytest.mark.covers("Y1")
def test_errors_fall_as_fast_as_the_theorem_says():
    """The goal with smaller networks, in dimensions where these are already wide."""
    recipe = BarronRate(axes=(1, 2), widths=(16, 32, 64, 128), points=1_000)
    result = recipe.simulate(seeded())
    metrics = recipe.metrics(result)
    assert metrics["fitted_slope"] <= -0.5
    assert metrics["fitted_slope"] == max(metrics["fitted_slope_1"], metrics["fitted_slope_2"])
    assert metrics["drawn_slope_error"] <= 0.07
    assert 0.1 < metrics["share_of_bound"] <= 1
    assert (result["errors"][..., 0] < result["errors"][..., 1]).all()  # fitting helps


@pytest.mark.slow
@pytest.mark.covers("Y1")
def test_the_recipe_reaches_its_goal():
    recipe = RECIPES["approximation-rate"]
    metrics = recipe.metrics(recipe.simulate(seeded(3)))
    assert all(goal.reached(metrics) for goal in recipe.goals())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"widths": (8,)}, r"widths \(\(8,\)\) must be two numbers or more, rising"),
        ({"widths": (8, 4)}, r"widths \(\(8, 4\)\) must be two numbers or more, rising"),
        ({"widths": (0, 4)}, r"widths \(\(0, 4\)\) must be positive"),
        ({"widths": (4, 5_000)}, r"widths \(\(4, 5000\)\) must be at most 4000: a fit takes its"),
        ({"points": 1_000}, r"points \(1000\) must be at least 1024, two for each output weight"),
        ({"axes": (0,)}, r"axes \(\(0,\)\) must be from 1 to 1000"),
        ({"s": 0.0}, r"s \(0.0\) must be a positive number"),
        ({"fits": 0}, r"fits \(0\) must be at least 1"),
    ],
)
def test_bad_settings(fields, message):
    with pytest.raises(UserError, match=message):
        BarronRate(**fields)
