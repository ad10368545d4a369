import math

import numpy as np
import pytest
import torch
from scipy import stats

from everynet.system.errors import UserError
from everynet.zoo.theory.change_of_variables import (
    RECIPES,
    ChangeOfVariables,
    affine_gaussian,
    density,
    funnel,
    funnel_change,
    jacobians,
    log_density,
    lognormal,
    with_length,
    without_factor,
)
from tests.zoo.theory.simulated import simulate_metrics


def matrix(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def normal(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


@pytest.mark.covers("M6")
def test_the_exponential_of_a_normal_number_is_lognormal():
    x = torch.linspace(0.01, 8, 50, dtype=torch.float64)[:, None]
    expected = stats.lognorm(s=1).pdf(x[:, 0].numpy())
    np.testing.assert_allclose(density(torch.log, x), expected, rtol=1e-12)
    np.testing.assert_allclose(log_density(torch.log, x), np.log(expected), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(lognormal(x), expected, rtol=1e-12)


@pytest.mark.covers("M6")
@pytest.mark.parametrize("seed", range(4))
def test_an_affine_map_of_normal_numbers_is_a_turned_gaussian(seed):
    """Some of these turn the plane over: their determinant is negative, and densities are not."""
    a, b = normal(2, 2, seed=seed), normal(2, seed=seed + 10)
    back = torch.linalg.inv(a)
    x = normal(20, 2, seed=5) @ a.T + b
    expected = stats.multivariate_normal(b.numpy(), (a @ a.T).numpy()).pdf(x.numpy())
    np.testing.assert_allclose(density(lambda p: back @ (p - b), x), expected, rtol=1e-9)
    found = log_density(lambda p: back @ (p - b), x)
    np.testing.assert_allclose(found, np.log(expected), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(affine_gaussian(a, b, x), expected, rtol=1e-9)


def test_maps_of_both_signs_were_among_them():
    assert {bool(torch.linalg.det(normal(2, 2, seed=seed)) > 0) for seed in range(4)} == {
        True,
        False,
    }


@pytest.mark.covers("M6")
def test_the_funnel_is_a_normal_number_whose_width_is_another():
    x, change = normal(20, 2, seed=1), funnel_change()
    first, second = x.numpy().T
    expected = stats.norm.pdf(first) * stats.norm.pdf(second, scale=np.exp(first / 2))
    np.testing.assert_allclose(funnel(x), expected, rtol=1e-12)
    np.testing.assert_allclose(density(change.g, x), expected, rtol=1e-12)
    there_and_back = torch.stack([change.g(change.forward(y)) for y in x])
    torch.testing.assert_close(there_and_back, x)


def test_jacobians_are_those_of_finite_differences():
    x, g, step = normal(3, 2, seed=1), funnel_change().g, 1e-6
    for k in range(2):
        moved = torch.zeros(2, dtype=torch.float64)
        moved[k] = step
        slope = torch.stack([(g(p + moved) - g(p - moved)) / (2 * step) for p in x])
        torch.testing.assert_close(jacobians(g, x)[:, :, k], slope, rtol=1e-7, atol=1e-9)


@pytest.mark.covers("M6")
def test_without_the_determinant_it_does_not_sum_to_one():
    """What the notes had wrong, in one dimension (no factor) and in two (a length, no volume)."""
    z = torch.linspace(-9, 9, 4001, dtype=torch.float64)
    x = z.exp()[:, None]
    assert torch.trapezoid(density(torch.log, x), x[:, 0]).item() == pytest.approx(1, abs=1e-5)
    naive = torch.trapezoid(without_factor(torch.log, x), x[:, 0]).item()
    assert naive == pytest.approx(math.exp(0.5), abs=1e-4)
    a = matrix([1.0, 0.0], [0.0, 1.0])
    half = matrix([0.3, -0.2])
    lengths = with_length(lambda p: a @ p, half) / density(lambda p: a @ p, half)
    assert lengths.item() == pytest.approx(math.sqrt(2))  # of the identity, which changes nothing


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_recipe_reaches_its_goal(seed):
    metrics, reached = simulate_metrics(RECIPES["change-of-variables"], seed)
    assert reached
    assert metrics["naive_integral"] == pytest.approx(math.exp(0.5), abs=1e-4)
    assert metrics["naive_error"] < 1e-4
    assert abs(metrics["length_integral"] - 1) > 0.5


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"matrix": (1.0, 2.0, 2.0, 4.0)}, r"must be a matrix with an inverse"),
        ({"matrix": (1.0,)}, r"matrix \(\(1.0,\)\) must be four finite numbers"),
        ({"offset": (1.0,)}, r"offset \(\(1.0,\)\) must be two finite numbers"),
        ({"samples": 10}, r"samples \(10\) must be at least 1000"),
        ({"points": 10}, r"points \(10\) must be at least 100"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        ChangeOfVariables(**fields)
