import math

import numpy as np
import pytest
import torch
from scipy import stats

from everynet.system.errors import UserError
from everynet.zoo.theory.consistency import (
    RECIPES,
    Consistency,
    cauchy_mean_outside,
    cauchy_median_outside,
    chebyshev_bound,
    hajek_renyi_bound,
    medians,
    running_means,
    share_never_settled,
    share_outside,
)
from tests.zoo.theory.simulated import simulate_metrics


def test_means_and_medians_so_far_by_hand():
    x = torch.tensor([[3.0, 1.0, 8.0, 0.0, 3.0]], dtype=torch.float64)
    assert running_means(x).tolist() == [[3, 2, 4, 3, 3]]
    assert medians(x, torch.tensor([1, 3, 5])).tolist() == [[3, 3, 3]]


def test_a_path_that_leaves_again_has_not_settled():
    outside = torch.tensor([[True, False, True, False], [True, False, False, False]])
    sizes = torch.tensor([1, 2, 3, 4])
    assert share_outside(outside, sizes).tolist() == [1, 0, 0.5, 0]
    assert share_never_settled(outside, sizes).tolist() == [1, 0.5, 0.5, 0]


@pytest.mark.covers("M15")
def test_chebyshev_is_reached_by_a_coin_that_is_just_outside():
    """One sample of +-r has P(|x| >= r) = 1 = sigma^2 / r^2: no smaller bound would hold."""
    assert chebyshev_bound(torch.tensor([1]), 0.3, variance=0.3**2).item() == pytest.approx(1)
    found = chebyshev_bound(torch.tensor([10, 20]), 0.5, variance=2.0)
    assert found.tolist() == pytest.approx([0.8, 0.4])


@pytest.mark.covers("M15")
def test_no_time_after_is_chebyshev_and_all_are_at_most_twice_it():
    sizes = torch.tensor([1, 10, 50])
    assert hajek_renyi_bound(sizes, 50, 0.2)[-1] == pytest.approx(chebyshev_bound(sizes, 0.2)[-1])
    expected = 25 * (1 / 10 + sum(1 / k**2 for k in range(11, 51)))
    assert hajek_renyi_bound(sizes, 50, 0.2)[1].item() == pytest.approx(expected)
    endless = hajek_renyi_bound(sizes, 10**6, 0.2)
    assert (endless < 2 * chebyshev_bound(sizes, 0.2)).all()


@pytest.mark.covers("M15")
def test_exact_shares_of_normal_means_are_under_the_bound():
    m = torch.tensor([1, 10, 100, 1000])
    for radius in (0.05, 0.2, 1.0):
        exact = 2 * stats.norm.sf(radius * np.sqrt(m.numpy()))
        assert (torch.from_numpy(exact) <= chebyshev_bound(m, radius)).all()
        assert (np.diff(exact) < 0).all()


@pytest.mark.covers("M15")
def test_the_mean_of_cauchy_samples_has_the_density_of_one():
    assert cauchy_mean_outside(0.2) == pytest.approx(2 * stats.cauchy.sf(0.2))
    generator = torch.Generator().manual_seed(0)
    x = torch.empty(4000, 201, dtype=torch.float64).cauchy_(generator=generator)
    for m in (1, 20, 200):
        share = (x[:, :m].mean(dim=1).abs() > 1).double().mean().item()
        assert share == pytest.approx(0.5, abs=4.5 * math.sqrt(0.25 / 4000))
        assert cauchy_mean_outside(1.0) == 0.5
    sizes = torch.tensor([51, 201])
    found = (medians(x, sizes).abs() > 0.2).double().mean(dim=0)
    torch.testing.assert_close(found, cauchy_median_outside(sizes, 0.2), rtol=0, atol=0.03)


@pytest.mark.covers("M15")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_recipe_reaches_its_goal(seed):
    metrics, reached = simulate_metrics(RECIPES["consistency"], seed)
    assert reached
    assert metrics["median_error"] < 0.03


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"paths": 5}, r"paths \(5\) must be at least 10"),
        ({"doublings": 20}, r"doublings \(20\) must be a number from 6 to 14"),
        ({"radius": 0.0}, r"radius \(0.0\) must be a positive number"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        Consistency(**fields)
