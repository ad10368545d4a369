import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.system.errors import UserError
from everynet.zoo.theory.bias_variance import (
    RECIPES,
    BiasVariance,
    bias_and_variance,
    decompose_error,
    estimator_bias,
    expected_spread,
    mean_squared_error,
)
from tests.zoo.theory.simulated import simulate_metrics


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_by_hand():
    """Estimates 1 and 5 of 2: bias 1, variance 4, mean squared error 5."""
    estimates = numbers(1, 5)
    assert estimator_bias(estimates, 2.0).item() == 1
    assert mean_squared_error(estimates, 2.0).item() == 5
    assert bias_and_variance(estimates, 2.0).item() == 5


@pytest.mark.covers("M14")
@given(st.lists(st.floats(-10, 10), min_size=1, max_size=20), st.floats(-10, 10))
@settings(max_examples=50, deadline=None)
def test_the_decomposition_is_exact_on_samples(values, theta):
    estimates = numbers(*values)
    gap = mean_squared_error(estimates, theta) - bias_and_variance(estimates, theta)
    assert abs(gap.item()) <= 1e-10


@pytest.mark.covers("M14")
@pytest.mark.parametrize("m", [2, 3, 5])
def test_the_bias_of_a_variance_over_all_samples_of_a_die(m):
    """All 6^m samples, each as likely: no sampling error, and the die is not normal."""
    die = numbers(1, 2, 3, 4, 5, 6)
    samples = torch.cartesian_prod(*[die] * m)
    squares = (samples - samples.mean(dim=1, keepdim=True)).square().sum(dim=1)
    sigma = (35 / 12) ** 0.5
    for divisor in (m - 1, m, m + 1):
        mean = (squares / divisor).mean().item()
        assert mean == pytest.approx(expected_spread(sigma, m, divisor), rel=1e-12)
    assert expected_spread(sigma, m, m) == pytest.approx((m - 1) / m * sigma**2)
    assert expected_spread(sigma, m, m - 1) == pytest.approx(sigma**2)


@pytest.mark.covers("M14")
def test_noise_bias_and_variance_sum_to_the_error_on_fresh_targets():
    """Two predictions for each of two places; targets are the truth and noise of +-0.5."""
    predictions, truth = torch.stack([numbers(1, 4), numbers(3, 4)]), numbers(0, 3)
    found = decompose_error(predictions, truth)
    assert found.bias_squared.tolist() == [4, 1]
    assert found.variance.tolist() == [1, 0]
    targets = torch.stack([truth + 0.5, truth - 0.5])
    counted = (predictions[:, None] - targets).square().mean()
    torch.testing.assert_close(found.test_error(0.5), counted)


@pytest.mark.covers("M14")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_recipe_reaches_its_goal(seed):
    metrics, reached = simulate_metrics(RECIPES["bias-variance"], seed, sets=150, trials=20_000)
    assert reached
    assert metrics["shrinkage"] == pytest.approx(2 / 3, abs=0.02)
    assert metrics["best_degree"] in (4, 5, 6)


def test_one_more_than_m_has_the_least_error_of_normal_samples():
    recipe = BiasVariance(trials=50_000)
    estimates = recipe.estimate(5, torch.Generator().manual_seed(0))
    unbiased, likelihood, more = [mean_squared_error(e, 1.0).item() for e in estimates]
    assert more < likelihood < unbiased


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"samples": ()}, r"samples \(\(\)\) must be one number or more, each at least 2"),
        ({"samples": (1, 5)}, "must be one number or more, each at least 2"),
        ({"degrees": 1}, r"degrees \(1\) must be a number from 2 to 30"),
        ({"rows": 10}, r"rows \(10\) must be above degrees \(10\)"),
        ({"trials": 1}, r"trials \(1\) must be at least 2"),
        ({"sets": 1}, r"sets \(1\) must be at least 2"),
        ({"pool": 10}, r"pool \(10\) must be at least 100"),
        ({"sigma": 0.0}, r"sigma \(0.0\) must be a positive number"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        BiasVariance(**fields)
