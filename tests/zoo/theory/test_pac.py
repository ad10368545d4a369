import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from everynet.system.errors import UserError
from everynet.zoo.theory.pac import (
    PAC,
    RECIPES,
    TRUTH,
    agnostic_bound,
    agnostic_samples,
    area,
    consistent_bound,
    consistent_samples,
    grid_rectangles,
    inside,
    rectangle_bound,
    rectangle_samples,
    tightest_rectangle,
)


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


# --------------------------------------------------------------------------------------- equations


def test_the_smallest_rectangle_by_hand():
    x = numbers((0.1, 0.9), (0.4, 0.2), (0.3, 0.5), (0.9, 0.1)).view(4, 2)
    rectangle = tightest_rectangle(x, torch.tensor([True, True, True, False]))
    assert rectangle.tolist() == [[0.1, 0.2], [0.4, 0.9]]
    assert area(rectangle).item() == pytest.approx(0.3 * 0.7)
    assert inside(x, rectangle).tolist() == [True, True, True, False]
    empty = tightest_rectangle(x, torch.zeros(4, dtype=torch.bool))
    assert area(empty) == 0
    assert not inside(x, empty).any()


def test_the_error_of_the_smallest_rectangle_in_closed_form():
    """K of m points are inside; a side then spans (K - 1) / (K + 1) of the true one on average."""
    m, trials, true = 30, 20_000, area(TRUTH).item()
    x = torch.rand(trials, m, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    learned = tightest_rectangle(x, inside(x, TRUTH))
    spans = [((k - 1) / (k + 1)) ** 2 * binom.pmf(k, m, true) for k in range(1, m + 1)]
    found = area(learned)
    assert found.mean().item() == pytest.approx(true * sum(spans), abs=5 * 0.07 / trials**0.5)
    assert (learned[:, 0] >= TRUTH[0]).all()
    assert (learned[:, 1] <= TRUTH[1]).all()


@pytest.mark.covers("Y3")
@given(m=st.integers(1, 300), eps=st.floats(0.01, 0.9))
@settings(max_examples=25, deadline=None)
def test_bounds_are_reached_by_the_worst_hypotheses(m, eps):
    """A hypothesis of error eps has no training error with probability (1 - eps)^m exactly."""
    size = numbers(m)
    none = binom.pmf(0, m, eps)
    assert consistent_bound(size, eps, 1).item() == pytest.approx(none, rel=1e-6)
    assert rectangle_bound(size, eps).item() == pytest.approx(4 * binom.pmf(0, m, eps / 4))
    for error in (0.1, 0.5):
        off = binom.cdf(math.ceil(m * (error - eps)) - 1, m, error)
        off += binom.sf(math.floor(m * (error + eps)), m, error)
        assert off <= agnostic_bound(size, eps, 1).item() * (1 + 1e-9)
    expected = 6 * math.exp(-2 * m * eps**2)
    assert agnostic_bound(size, eps, 3).item() == pytest.approx(expected)


@pytest.mark.covers("Y3")
@given(eps=st.floats(0.01, 0.9), delta=st.floats(1e-6, 0.9), hypotheses=st.integers(1, 10**6))
@settings(max_examples=40, deadline=None)
def test_sample_sizes_are_the_least_at_which_the_exponential_is_delta(eps, delta, hypotheses):
    for m, bound in (
        (rectangle_samples(eps, delta), lambda m: 4 * math.exp(-eps * m / 4)),
        (consistent_samples(eps, delta, hypotheses), lambda m: hypotheses * math.exp(-eps * m)),
        (
            agnostic_samples(eps, delta, hypotheses),
            lambda m: 2 * hypotheses * math.exp(-2 * m * eps**2),
        ),
    ):
        assert bound(m) <= delta * (1 + 1e-9)
        assert bound(m - 1) > delta * (1 - 1e-9)


def test_sample_sizes_by_hand():
    assert rectangle_samples(0.1, 0.05) == 176
    assert consistent_samples(0.1, 0.05, 1297) == 102
    assert agnostic_samples(0.1, 0.05, 1297) == 543


# ------------------------------------------------------------------------------------ the recipe


@pytest.mark.parametrize("side", [1, 2, 3, 5])
def test_every_rectangle_of_a_grid_is_there_once(side):
    every = grid_rectangles(side)
    assert len(every) == (side * (side + 1) // 2) ** 2 + 1 == len(every.unique(dim=0))
    for cells in every.view(-1, side, side):
        filled = cells.nonzero()
        if len(filled):
            low, high = filled.amin(dim=0), filled.amax(dim=0)
            assert cells[low[0] : high[0] + 1, low[1] : high[1] + 1].all()
            assert (high - low + 1).prod() == len(filled)


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_training_errors_come_to_the_true_ones(noise):
    recipe, generator = PAC(grid=4), torch.Generator().manual_seed(0)
    true, training = recipe.errors(200_000, 1, noise, generator)
    assert (training[:, 0] - true).abs().max() < 5 * 0.5 / 200_000**0.5
    assert true.min().item() == noise  # of the truth itself
    assert (true == noise).sum() == 1
    assert (training * 200_000 - (training * 200_000).round()).abs().max() < 1e-6


@pytest.mark.covers("Y3")
def test_learners_fail_at_most_delta_of_2000_trials():
    recipe = RECIPES["pac"]
    assert recipe.trials == 2_000
    result = recipe.simulate(torch.Generator().manual_seed(0))
    metrics = recipe.metrics(result)
    assert all(goal.reached(metrics) for goal in recipe.goals())
    for law in recipe.laws():  # with an eighth of the samples most fail: the law is not idle
        assert result[law][1] > 0.5
        assert (result[law].diff() <= 0).all()


def test_a_share_above_its_bound_is_counted_in_standard_errors():
    recipe = PAC(trials=400)
    idle = {law: torch.zeros(5, dtype=torch.float64) for law in recipe.laws()}
    sizes = recipe.sizes("rectangle")
    bound = rectangle_bound(numbers(*sizes), recipe.eps)
    above = bound + 3 * (bound * (1 - bound) / 400).clamp(min=0).sqrt()
    shares = torch.where(bound < 1, above, 0.0)
    assert recipe.metrics({**idle, "rectangle": shares})["excess"] == pytest.approx(3)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"eps": 1.0}, r"eps \(1.0\) must be between 0 and 1"),
        ({"eps": 0.001}, r"eps \(0.001\) must be at least 0.01: samples grow as its inverse squ"),
        ({"delta": 0.0}, r"delta \(0.0\) must be between 0 and 1"),
        ({"trials": 0}, r"trials \(0\) must be a number from 1 to 100000"),
        ({"grid": 40}, r"grid \(40\) must be a number from 2 to 12"),
        ({"noise": 0.6}, r"noise \(0.6\) must be a number from 0 to 0.5"),
    ],
)
def test_bad_settings(fields, message):
    with pytest.raises(UserError, match=message):
        PAC(**fields)
