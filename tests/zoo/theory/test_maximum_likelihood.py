import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from everynet.system.errors import UserError
from everynet.zoo.theory.divergence import kl_divergence
from everynet.zoo.theory.maximum_likelihood import (
    FAMILIES,
    RECIPES,
    MaximumLikelihood,
    bernoulli,
    exponential,
    fit_bernoulli,
    fit_exponential,
    fit_gaussian,
    gaussian,
    likelihood_from_divergence,
    maximise,
    mean_log_likelihood,
    regression_log_likelihood,
)
from tests.zoo.theory.simulated import simulate_metrics


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def samples(name, seed=0, count=60):
    return FAMILIES[name].sample(count, torch.Generator().manual_seed(seed))


@pytest.mark.covers("M17")
def test_log_densities_are_scipys():
    x = samples("gaussian")
    expected = stats.norm.logpdf(x.numpy(), 0.4, math.exp(0.3))
    np.testing.assert_allclose(gaussian(x, numbers(0.4, 0.6)), expected, rtol=1e-12)
    coins = samples("bernoulli")
    expected = stats.bernoulli.logpmf(coins.numpy(), 0.2)
    np.testing.assert_allclose(bernoulli(coins, numbers(0.2).logit()), expected, rtol=1e-12)
    times = samples("exponential")
    expected = stats.expon.logpdf(times.numpy(), scale=1 / 3)
    np.testing.assert_allclose(exponential(times, numbers(3.0).log()), expected, rtol=1e-12)


@pytest.mark.covers("M17")
@given(st.integers(0, 1000))
@settings(max_examples=8, deadline=None)
def test_tops_found_by_newton_are_the_closed_forms(seed):
    for name in FAMILIES:
        x, start = samples(name, seed), numbers(*FAMILIES[name].start)
        density = FAMILIES[name].log_density
        path = maximise(lambda t: mean_log_likelihood(density, x, t), start)  # noqa: B023
        values = [mean_log_likelihood(density, x, t).item() for t in path]
        assert all(later >= before - 1e-12 for before, later in pairwise(values))
        top = path[-1]
        if name == "gaussian":
            assert [top[0].item(), top[1].exp().item()] == pytest.approx(fit_gaussian(x), rel=1e-8)
        elif name == "bernoulli":
            assert top.sigmoid().item() == pytest.approx(fit_bernoulli(x), rel=1e-8)
        else:
            assert top.exp().item() == pytest.approx(fit_exponential(x), rel=1e-8)


@pytest.mark.covers("M17")
def test_closed_forms_are_scipys_fits():
    x, times = samples("gaussian"), samples("exponential")
    mean, deviation = stats.norm.fit(x.numpy())
    assert fit_gaussian(x) == pytest.approx((mean, deviation**2))
    _, scale = stats.expon.fit(times.numpy(), floc=0)
    assert fit_exponential(times) == pytest.approx(1 / scale)
    assert fit_bernoulli(numbers(1, 0, 0, 1, 0)) == pytest.approx(0.4)


@pytest.mark.covers("M17")
@given(st.integers(1, 9), st.floats(0.05, 0.95))
@settings(max_examples=30, deadline=None)
def test_most_likelihood_is_least_divergence(ones, probability):
    x = numbers(*[1.0] * ones, *[0.0] * (10 - ones))
    shares, p = numbers(1 - ones / 10, ones / 10), numbers(1 - probability, probability)
    found = mean_log_likelihood(bernoulli, x, numbers(probability).logit())
    torch.testing.assert_close(likelihood_from_divergence(shares, p), found)
    best = mean_log_likelihood(bernoulli, x, numbers(ones / 10).logit())
    assert best - found == pytest.approx(kl_divergence(shares, p).item(), abs=1e-12)


@pytest.mark.covers("M17")
@pytest.mark.parametrize("sigma", [0.1, 1.0, 7.0])
def test_weights_of_most_likelihood_are_those_of_least_squares(sigma):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    y = torch.randn(50, generator=generator, dtype=torch.float64)
    path = maximise(lambda w: regression_log_likelihood(w, x, y, sigma), numbers(5, -5, 5))
    expected = np.linalg.lstsq(x.numpy(), y.numpy(), rcond=None)[0]
    np.testing.assert_allclose(path[-1], expected, rtol=0, atol=1e-8)
    w = numbers(0.3, 1, -2)
    by_scipy = stats.norm.logpdf(y.numpy(), (x @ w).numpy(), sigma).sum()
    assert regression_log_likelihood(w, x, y, sigma).item() == pytest.approx(by_scipy, rel=1e-12)


def test_newton_climbs_where_the_curvature_is_that_of_a_valley():
    """-cos has a minimum at 0: from near it a plain Newton step would go down into it."""
    path = maximise(lambda t: -t.cos().sum(), numbers(0.1))
    assert abs(path[-1].item()) == pytest.approx(math.pi)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_recipe_reaches_its_goal(seed):
    assert simulate_metrics(RECIPES["maximum-likelihood"], seed)[1]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"samples": 5}, r"samples \(5\) must be at least 20"),
        ({"features": 0}, r"features \(0\) must be a number from 1 to 15"),
        ({"sigma": -1.0}, r"sigma \(-1.0\) must be a positive number"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        MaximumLikelihood(**fields)
