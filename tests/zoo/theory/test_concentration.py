import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, entropy

from everynet.system.errors import UserError
from everynet.zoo.theory.concentration import (
    BOUNDS,
    RECIPES,
    Concentration,
    bernstein,
    cells_hit,
    chebyshev,
    chernoff,
    coin_divergence,
    deviations_of_heads,
    hoeffding,
    markov,
    mcdiarmid,
    sample_size,
    share_above,
)


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


# --------------------------------------------------------------------------------------- equations


@pytest.mark.covers("Y2")
@given(p=st.floats(0.01, 1), a=st.floats(0.1, 10))
@settings(max_examples=25, deadline=None)
def test_markov_and_chebyshev_are_reached_by_variables_of_few_values(p, a):
    """X in {0, a} has P(X >= a) = p = E X / a; one in {-a, 0, a} has P(|X| >= a) = Var X / a^2."""
    assert markov(numbers(a), p * a).item() == pytest.approx(p)
    assert chebyshev(numbers(a), p * a**2).item() == pytest.approx(p)
    assert markov(numbers(a), 2 * a).item() == chebyshev(numbers(a), 2 * a**2).item() == 1


@pytest.mark.covers("Y2")
@given(n=st.integers(1, 400), p=st.floats(0.01, 0.99), share=st.floats(0.01, 1))
@settings(max_examples=60, deadline=None)
def test_no_bound_is_below_the_tail_of_the_binomial_distribution(n, p, share):
    """The exact tail, at a whole number of heads, where it is largest against the bounds."""
    heads = math.ceil(n * (p + share * (1 - p)) - 1e-9)
    t = numbers(max(heads / n - p, 1e-9))
    tail = binom.sf(heads - 1, n, p)
    variance = p * (1 - p)
    for bound in (
        hoeffding(t, n),
        bernstein(t, n, variance, 1 - p),
        chernoff(t.clamp(max=1 - p), n, p),
        chebyshev(t, variance / n),
        markov(p + t, p),
    ):
        assert tail <= bound.item() * (1 + 1e-9)


def test_chernoff_is_the_least_over_all_exponentials_and_exact_where_all_show_heads():
    """min over s of E e^(s(m - q)) by search; P(all heads) = p^n is the bound at t = 1 - p."""
    s = torch.linspace(-20, 40, 600_001, dtype=torch.float64)
    for p, t in ((0.5, 0.2), (0.05, 0.1), (0.3, 0.05)):
        moment = (1 - p + p * s.exp()).log() - s * (p + t)
        expected = 30 * moment.min().item()
        assert chernoff(numbers(t), 30, p).log().item() == pytest.approx(expected, rel=1e-6)
        assert chernoff(numbers(1 - p), 7, p).item() == pytest.approx(p**7, rel=1e-9)


@given(q=st.floats(0, 1), p=st.floats(0.01, 0.99))
@settings(max_examples=25, deadline=None)
def test_the_divergence_of_coins_is_that_of_scipy_and_pinsker_gives_hoeffding(q, p):
    found = coin_divergence(numbers(q), p).item()
    assert found == pytest.approx(entropy([q, 1 - q], [p, 1 - p]), rel=1e-8, abs=1e-12)
    assert found >= 2 * (q - p) ** 2 - 1e-12


def test_exponents_are_those_of_the_tail_for_many_draws():
    """log P / n tends to Chernoff's exponent; near t = 0 to Hoeffding's (p = 1/2), Bernstein's."""
    n = 10**6
    for p, t in ((0.5, 0.01), (0.02, 0.002)):
        tail = binom.logsf(math.ceil(n * (p + t)) - 1, n, p)
        assert chernoff(numbers(t), n, p).log().item() == pytest.approx(tail, rel=0.05)
        small = bernstein(numbers(t), n, p * (1 - p), 1 - p).log().item()
        assert small == pytest.approx(chernoff(numbers(t), n, p).log().item(), rel=0.02)
        if p == 0.5:
            assert hoeffding(numbers(t), n).log().item() == pytest.approx(small, rel=0.02)


def test_bernstein_by_hand_where_the_range_counts():
    """Draws at most 3 above a mean with no variance but for t: exp(-3 n t / (2 c))."""
    assert bernstein(numbers(0.5), 8, 0.0, 3.0).item() == pytest.approx(math.exp(-8 * 0.5 / 2))
    assert hoeffding(numbers(0.5), 8, -1, 3).item() == pytest.approx(math.exp(-2 * 8 / 4 / 16))


@given(n=st.integers(1, 50), t=st.floats(0, 2), scale=st.floats(0.1, 3))
@settings(max_examples=25, deadline=None)
def test_mcdiarmid_of_a_mean_is_hoeffding(n, t, scale):
    changes = torch.full((n,), scale / n, dtype=torch.float64)
    expected = hoeffding(numbers(t), n, 0.0, scale)
    torch.testing.assert_close(mcdiarmid(numbers(t), changes), expected)


def test_mcdiarmid_holds_where_draws_count_unequally():
    """All 2^12 values of a sum of coins with unequal weights, which are its changes."""
    changes = torch.linspace(0.2, 2, 12, dtype=torch.float64)
    bits = (torch.arange(2**12)[:, None] >> torch.arange(12)) & 1
    away = bits.double() @ changes - changes.sum() / 2
    t = torch.linspace(0.5, 8, 30, dtype=torch.float64)
    assert (share_above(away, t) <= mcdiarmid(t, changes)).all()
    assert mcdiarmid(numbers(5), numbers(3, 4)).item() == pytest.approx(math.exp(-2))


# ------------------------------------------------------------------------------- the calculator


def test_sample_sizes_by_hand():
    assert sample_size(0.05, 0.05) == math.ceil(200 * math.log(40)) == 738
    assert sample_size(0.05, 0.05, "chebyshev") == 2000
    assert sample_size(0.5, 0.05, low=-5, high=5) == 738
    expected = math.log(40) * (2 * 0.01 + 0.1 / 3) / 0.0025
    assert sample_size(0.05, 0.05, "bernstein", variance=0.01) == math.ceil(expected)


@pytest.mark.covers("Y2")
@given(
    p=st.floats(0.01, 0.99),
    eps=st.floats(0.02, 0.4),
    delta=st.floats(0.001, 0.5),
    bound=st.sampled_from(BOUNDS),
)
@settings(max_examples=60, deadline=None)
def test_the_coverage_of_a_calculated_size_is_at_least_one_minus_delta(p, eps, delta, bound):
    """Exactly, by the binomial distribution; and one draw fewer breaks the bound that gave it."""
    variance = p * (1 - p)
    n = sample_size(eps, delta, bound, variance=variance)
    beyond = binom.sf(math.ceil(n * (p + eps) - 1e-9) - 1, n, p)
    beyond += binom.cdf(math.floor(n * (p - eps) + 1e-9), n, p)
    assert beyond <= delta
    if n > 1:
        fewer = {
            "hoeffding": 2 * hoeffding(numbers(eps), n - 1),
            "chebyshev": variance / (n - 1) / numbers(eps) ** 2,
            "bernstein": 2 * bernstein(numbers(eps), n - 1, variance, 1.0),
        }[bound]
        assert fewer.item() > delta * (1 - 1e-9)


# ------------------------------------------------------------------------------------ the recipe


def test_cells_hit_have_the_expectation_and_the_distribution_of_throws():
    hit = cells_hit(6, 4, 40_000, torch.Generator().manual_seed(0))
    assert hit.mean().item() == pytest.approx(4 * (1 - 0.75**6), abs=5 * 0.7 / 200)
    assert (hit == 1).double().mean().item() == pytest.approx(4 / 4**6, abs=5 * 0.032 / 200)
    assert hit.max() == 4


def test_tails_are_those_of_the_binomial_distribution():
    generator = torch.Generator().manual_seed(0)
    away = deviations_of_heads(20, 0.3, 200_000, generator)
    t = numbers(-10, 0, 1, 3, 4, 20)
    expected = numbers(*(binom.sf(math.ceil(6 + x - 1e-9) - 1, 20, 0.3) for x in t.tolist()))
    assert ((share_above(away, t) - expected).abs() <= 5 * (0.25 / 200_000) ** 0.5).all()


@pytest.mark.covers("Y2")
def test_nothing_is_exceeded_in_a_million_draws():
    recipe = RECIPES["concentration"]
    assert recipe.draws == 1_000_000
    result = recipe.simulate(torch.Generator().manual_seed(0))
    metrics = recipe.metrics(result)
    assert all(goal.reached(metrics) for goal in recipe.goals())
    doubled = {**result, "tails": result["tails"] * 6}
    assert recipe.metrics(doubled)["excess"] > 4  # the sharpest bound is less than 6 times above
    assert metrics["hoeffding_draws"] == 738
    assert metrics["chebyshev_draws"] == math.ceil(0.05 * 0.95 / 0.05**3)


def test_an_excess_is_counted_in_standard_errors():
    recipe = Concentration(draws=10_000)
    assert recipe.excess(numbers(0.3, 0.52), numbers(0.5, 0.5)) == pytest.approx(4.0)
    assert recipe.excess(numbers(1.0), numbers(1.0)) == 0


@pytest.mark.parametrize("p", [0.9, 0.999, 0.001])
def test_bounds_of_uneven_coins_are_finite(p):
    recipe = Concentration(coins=(p,), n=7)
    assert all(bound.isfinite().all() for bound in recipe.bounds(p).values())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"coins": ()}, r"coins \(\(\)\) must be at least one number"),
        ({"coins": (0.5, 1.0)}, r"coins \(\(0.5, 1.0\)\) must be numbers between 0 and 1"),
        ({"eps": 0.0}, r"eps \(0.0\) must be above 0 and at most 1: a mean of 0s and 1s"),
        ({"delta": 1.0}, r"delta \(1.0\) must be between 0 and 1"),
        ({"draws": 10}, r"draws \(10\) must be a number from 100 to 100000000"),
        ({"n": 0}, r"n \(0\) must be at least 1"),
        ({"cells": 1}, r"cells \(1\) must be at least 2"),
    ],
)
def test_bad_settings(fields, message):
    with pytest.raises(UserError, match=message):
        Concentration(**fields)


def test_bad_sizes():
    with pytest.raises(ValueError, match=r"unknown bound 'hoefding'; did you mean hoeffding"):
        sample_size(0.1, 0.1, "hoefding")
    with pytest.raises(ValueError, match=r"eps \(0\) must be positive, delta \(0.1\) between 0"):
        sample_size(0, 0.1)
    with pytest.raises(ValueError, match=r"variance \(2\) must be from 0 to 0.25, the largest"):
        sample_size(0.1, 0.1, variance=2)
