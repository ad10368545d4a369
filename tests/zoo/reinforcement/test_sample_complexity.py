"""Sample complexity and bandits: closed forms, exact values, and the laws."""

import math
from dataclasses import replace

import pytest
import torch

from everynet.system.errors import UserError
from everynet.zoo.reinforcement.sample_complexity import (
    RECIPES,
    Bandits,
    Processes,
    SampleComplexity,
    choose_by_epsilon,
    choose_by_ucb,
    epsilon_bound,
    estimate_probabilities,
    fit_power,
    regret,
    samples_needed,
    ucb_bound,
)


def drawn(seed):
    return torch.Generator().manual_seed(seed)


def test_values_of_equally_hard_processes():
    """1 / (1 - gamma p) for each action that stays with probability p."""
    mdps = Processes.equally_hard(2, 5, 3, stay=0.8)
    q = mdps.best_values(mdps.probability, 0.9)
    assert q.shape == (2, 6, 3)
    torch.testing.assert_close(q[:, :5], torch.full((2, 5, 3), 1 / (1 - 0.72)).double())
    assert q[:, 5].eq(0).all()


def test_values_of_random_processes_solve_bellmans_equation():
    """And are those of the best of all policies, by linear systems."""
    mdps, gamma = Processes.at_random(1, 3, 2, drawn(0)), 0.7
    assert torch.allclose(mdps.probability.sum(-1), torch.ones(1, 3, 2).double())
    q = mdps.best_values(mdps.probability, gamma)[0]
    p = torch.zeros(3, 2, 3, dtype=torch.float64)
    for s in range(3):
        for a in range(2):
            p[s, a].index_add_(0, mdps.following[0, s, a], mdps.probability[0, s, a])
    values = []
    for policy in torch.cartesian_prod(*[torch.arange(2)] * 3):
        pi, r = p[torch.arange(3), policy], mdps.reward[0, torch.arange(3), policy]
        values.append(torch.linalg.solve(torch.eye(3).double() - gamma * pi, r))
    torch.testing.assert_close(q.amax(1), torch.stack(values).amax(0), rtol=1e-7, atol=1e-7)


def test_estimates_have_the_moments_of_a_multinomial():
    p, n, runs = torch.tensor([0.2, 0.5, 0.3]).double(), 50, 20_000
    found = estimate_probabilities(p.expand(runs, 3), n, drawn(0))
    assert torch.allclose(found.sum(1), torch.ones(runs).double())
    error = (p * (1 - p) / n / runs) ** 0.5
    assert ((found.mean(0) - p).abs() < 4 * error).all()
    expected = (torch.diag(p) - torch.outer(p, p)) / n
    torch.testing.assert_close(found.T.cov(), expected, rtol=0.08, atol=2e-4)


def test_a_power_law_is_found():
    x = torch.tensor([1.0, 2.0, 8.0]).double()
    assert fit_power(x, 3 * x**-0.5) == pytest.approx((-0.5, 3))


def test_samples_needed_by_hand():
    found = samples_needed(torch.tensor(20.0).double(), 0.1, 0.5, 0.1).item()
    assert found == pytest.approx(20 * math.log(200) / (0.01 * 0.125))


def test_ucb_by_hand():
    """Every arm once, then mean + (2 ln t / n)^1/2."""
    mean = torch.tensor([[0.5, 0.9, 0.0], [0.5, 0.6, 0.7]]).double()
    tries = torch.tensor([[3.0, 1.0, 0.0], [1.0, 10.0, 100.0]]).double()
    assert choose_by_ucb(mean, tries, 5).tolist() == [2, 0]
    bound = [m + math.sqrt(2 * math.log(9) / n) for m, n in ((0.5, 4), (0.2, 2), (0.0, 1))]
    row = torch.tensor([[0.5, 0.2, 0.0]]).double(), torch.tensor([[4.0, 2.0, 1.0]]).double()
    assert choose_by_ucb(*row, 9).item() == bound.index(max(bound)) == 2
    tries = torch.tensor([[4.0, 1.0]]).double()  # half of (2 ln 2)^1/2 = 0.589 makes up for a mean
    for lead, arm in ((0.55, 1), (0.62, 0)):
        assert choose_by_ucb(torch.tensor([[lead, 0.0]]).double(), tries, 2).item() == arm


def test_epsilon_greedy_takes_the_best_arm_with_its_frequency():
    n, eps = 30_000, 0.2
    mean = torch.tensor([0.1, 0.7, 0.3, 0.2]).double().expand(n, 4)
    arms = choose_by_epsilon(mean, eps, torch.rand(n, 2, generator=drawn(0), dtype=torch.float64))
    shares = arms.bincount(minlength=4) / n
    expected = torch.tensor([0.05, 0.85, 0.05, 0.05])
    torch.testing.assert_close(shares, expected, rtol=0, atol=4 * (0.25 / n) ** 0.5)


def test_regret_and_bounds_by_hand():
    mu = torch.tensor([0.8, 0.5, 0.6]).double()
    found = regret(mu, torch.tensor([[0, 1], [2, 1], [0, 0]]))
    torch.testing.assert_close(found, torch.tensor([[0, 0.3], [0.2, 0.6], [0.2, 0.6]]).double())
    t = torch.tensor([100.0]).double()
    expected = 8 * math.log(100) * (1 / 0.3 + 1 / 0.2) + (1 + math.pi**2 / 3) * 0.5
    assert ucb_bound(mu, t).item() == pytest.approx(expected)
    assert epsilon_bound(mu, 0.3, t).item() == pytest.approx(0.3 * 100 * 0.5 / 3)


@pytest.mark.covers("Q8")
def test_laws(monkeypatch):
    """Error as n^-1/2, and all samples in proportion to the pairs, logarithm apart."""
    recipe = RECIPES["sample-complexity"]
    small = replace(recipe, samples=(512, 2048, 8192), states=(5, 10, 40), actions=(2, 4, 4))
    metrics = small.metrics(small.simulate(drawn(0)))
    assert metrics["slope_error"] <= 0.05
    assert metrics["size_slope_error"] <= 0.15


@pytest.mark.covers("Q8")
def test_ucb_learns_and_epsilon_greedy_pays_for_ever():
    recipe = replace(RECIPES["bandits"], pulls=3000, repeats=40)
    result = recipe.simulate(drawn(0))
    metrics = recipe.metrics(result)
    assert metrics["ucb_growth"] < 0.6
    assert metrics["epsilon_growth"] > 0.8
    assert metrics["share_of_bound"] <= 1
    t = torch.tensor([3000.0]).double()
    assert metrics["epsilon_regret"] >= 0.9 * epsilon_bound(recipe.mu(), recipe.eps, t).item()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SampleComplexity(samples=(5,)), r"samples \(\(5,\)\) must be two numbers"),
        (lambda: SampleComplexity(samples=(0, 5)), r"samples .* must be positive"),
        (lambda: SampleComplexity(states=(5, 6)), r"states .* must be two numbers or more, as"),
        (lambda: SampleComplexity(gamma=1.0), r"gamma \(1.0\) must be at least 0 and below 1"),
        (lambda: Bandits(chances=(0.5, 0.5)), r"chances .* must be two numbers or more that dif"),
        (lambda: Bandits(chances=(0.5, 1.5)), r"chances .* must be numbers from 0 to 1"),
        (lambda: Bandits(pulls=3), r"pulls \(3\) must be at least 8"),
    ],
)
def test_bad_settings(make, message):
    with pytest.raises(UserError, match=message):
        make()
