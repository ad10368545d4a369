import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import stats

from everynet.system.errors import UserError
from everynet.zoo.theory.capacity import (
    END,
    RECIPES,
    PolynomialCapacity,
    bayes_error,
    best_threshold,
    expected_error,
    fit_polynomial,
    legendre,
    noisy_sin,
    polynomial,
    threshold_error,
    training_error,
)
from tests.zoo.theory.simulated import simulate_metrics


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_samples_are_sin_and_noise():
    x, y = noisy_sin(20_000, 0.3, torch.Generator().manual_seed(0))
    noise = y - x.sin()
    assert abs(noise.mean()) < 5 * 0.3 / math.sqrt(len(x))
    assert noise.std().item() == pytest.approx(0.3, rel=5 / math.sqrt(2 * len(x)))
    assert 0 <= x.min() < x.max() <= END


def test_polynomials_are_numpys_and_fitted_as_numpy_fits():
    x, y = noisy_sin(30, 0.3, torch.Generator().manual_seed(0))
    expected = np.polynomial.legendre.legvander(2 * x.numpy() / END - 1, 9)
    np.testing.assert_allclose(legendre(x, 9), expected, rtol=1e-12, atol=1e-14)
    assert legendre(x, 0).shape == (30, 1)
    fitted = np.polynomial.Polynomial.fit(x.numpy(), y.numpy(), 9)
    np.testing.assert_allclose(polynomial(fit_polynomial(x, y, 9), x), fitted(x.numpy()), rtol=1e-8)


@pytest.mark.covers("M12")
def test_the_error_on_samples_never_seen_is_counted_on_many_of_them():
    generator = torch.Generator().manual_seed(1)
    w = fit_polynomial(*noisy_sin(30, 0.3, generator), 6)
    counted = training_error(w, *noisy_sin(400_000, 0.3, generator)).item()
    assert expected_error(w, 0.3).item() == pytest.approx(counted, rel=0.01)
    exact = numbers(0, 0)
    assert expected_error(exact, 0.0).item() == pytest.approx(0.5 - math.sin(16) / 32, rel=1e-5)


@pytest.mark.covers("M12")
def test_training_errors_fall_with_the_degree_on_every_set():
    generator = torch.Generator().manual_seed(2)
    for _ in range(10):
        x, y = noisy_sin(30, 0.3, generator)
        errors = [training_error(fit_polynomial(x, y, d), x, y).item() for d in range(30)]
        assert all(later <= before + 1e-12 for before, later in pairwise(errors))
        assert errors[-1] < 1e-8  # as many weights as samples


@pytest.mark.covers("M12")
@pytest.mark.parametrize("distance", [0.5, 2.0, 4.0])
def test_no_threshold_is_below_the_bayes_error(distance):
    t = torch.linspace(-3, 3, 301, dtype=torch.float64)
    errors = threshold_error(t, distance)
    np.testing.assert_allclose(
        errors,
        stats.norm.sf(t.numpy(), -distance / 2) / 2 + stats.norm.cdf(t.numpy(), distance / 2) / 2,
        rtol=1e-9,
    )
    assert errors.min().item() == pytest.approx(stats.norm.cdf(-distance / 2), rel=1e-9)
    assert abs(t[errors.argmin()]) < 1e-9
    assert bayes_error(distance) == pytest.approx(stats.norm.cdf(-distance / 2), rel=1e-12)


def test_the_best_threshold_by_hand():
    x, labels = numbers(3, 1, 2, 5, 4), torch.tensor([1, 0, 0, 1, 0])
    t, share = best_threshold(x, labels)  # 0 0 1 0 1: one mistake, between 2 and 3 or 4 and 5
    assert share == pytest.approx(0.2)
    assert t in (2.5, 4.5)
    assert best_threshold(numbers(1, 2), torch.tensor([1, 0]))[1] == 0.5
    assert best_threshold(numbers(1, 2), torch.tensor([0, 1])) == (1.5, 0.0)


@pytest.mark.covers("M12")
def test_the_recipe_reaches_its_goal():
    metrics, reached = simulate_metrics(RECIPES["capacity"], sets=40)
    assert reached
    assert metrics["best_degree"] in (5, 6)
    assert 0 < metrics["least_excess"] < 0.03
    assert metrics["bayes_error"] == pytest.approx(0.158655, abs=1e-6)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"degrees": 2}, r"degrees \(2\) must be a number from 3 to 40"),
        ({"rows": 15}, r"rows \(15\) must be above degrees \(15\)"),
        ({"sigma": 0.0}, r"sigma \(0.0\) must be a positive number"),
        ({"distance": -1.0}, r"distance \(-1.0\) must be a positive number"),
        ({"sets": 0}, r"sets \(0\) must be at least 1"),
        ({"samples": 1}, r"samples \(1\) must be at least 1000"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        PolynomialCapacity(**fields)
