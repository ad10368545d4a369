import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.population.ensemble import (
    Connection,
    Ensemble,
    product,
    quarter_turn,
    relative_error,
    sample_ball,
    square,
)
from everynet.zoo.population.transformation import (
    RECIPES,
    EnsembleChain,
    Transformation,
    count_multiplications,
    currents_by_factors,
    currents_by_weights,
    weight_rank,
)
from everynet.zoo.population.tuning import RectifiedLinear


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def values(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def test_currents_by_hand():
    """Two neurons to three: W = D E^T is [[1, 2, 3], [2, 4, 6]] and of rank 1."""
    bias = torch.tensor([10.0, 20.0, 30.0], dtype=torch.float64)
    link = Connection(values([1.0], [2.0]), values([1.0], [2.0], [3.0]), bias)
    rates = values([5.0, 7.0], [1.0, 0.0])
    expected = values([29, 58, 87], [11, 22, 33])
    assert torch.equal(currents_by_weights(link, rates), expected)
    assert torch.equal(currents_by_factors(link, rates), expected)
    assert weight_rank(link) == 1


@pytest.mark.covers("P5")
@given(
    seed=st.integers(0, 99),
    dimensions=st.integers(1, 4),
    neurons=st.integers(5, 40),
    others=st.integers(5, 40),
)
@settings(max_examples=25, deadline=None)
def test_factors_do_what_weights_do(seed, dimensions, neurons, others):
    random = seeded(seed)
    first = Ensemble(neurons, dimensions, eval_points=100, generator=random)
    second = Ensemble(others, dimensions, radius=2.0, eval_points=1, generator=random)
    link, rates = first.connect(second), first.encode(sample_ball(7, dimensions, generator=random))
    torch.testing.assert_close(
        currents_by_factors(link, rates), currents_by_weights(link, rates), rtol=1e-10, atol=1e-10
    )
    assert weight_rank(link) <= dimensions


@pytest.mark.covers("P5")
@pytest.mark.parametrize("dimensions", [1, 2, 3, 5])
def test_rank_is_the_number_of_dimensions_and_not_1(dimensions):
    first, second = (Ensemble(n, dimensions, generator=seeded(n)) for n in (50, 70))
    link = first.connect(second)
    assert weight_rank(link) == dimensions
    values = torch.linalg.svdvals(link.weights())
    assert values[dimensions] < 1e-12 * values[0]


@pytest.mark.covers("P5")
@pytest.mark.parametrize(("neurons", "others", "d"), [(30, 50, 1), (40, 20, 3)])
def test_multiplications_are_counted(neurons, others, d):
    link = Connection(torch.ones(neurons, d), torch.ones(others, d), torch.ones(others))
    rates, weights = torch.ones(1, neurons), link.weights()
    assert count_multiplications(lambda: rates @ weights) == neurons * others
    assert count_multiplications(lambda: currents_by_factors(link, rates)) == d * (neurons + others)
    assert (
        count_multiplications(lambda: currents_by_weights(link, rates))
        == (d + 1) * neurons * others
    )


def test_a_chain_encodes_what_the_last_population_decodes():
    populations = [
        Ensemble(n, d, radius=r, generator=seeded(n))
        for n, d, r in ((40, 2, 1.0), (50, 2, 1.5), (30, 1, 1.0))
    ]
    chain, x = (
        EnsembleChain(populations, [square, product]),
        sample_ball(20, 2, generator=seeded(1)),
    )
    first, second, third = chain.rates(x)
    torch.testing.assert_close(first, populations[0].encode(x))
    squared = first @ populations[0].decoders(square)
    torch.testing.assert_close(second, populations[1].encode(squared))
    multiplied = second @ populations[1].decoders(product)
    torch.testing.assert_close(third, populations[2].encode(multiplied))
    torch.testing.assert_close(chain.values(x)[2], third @ populations[2].decoders())


def test_neurons_on_their_linear_part_hand_a_value_on_exactly():
    """Rectified units that never rest are linear: three populations change nothing."""
    populations = [
        Ensemble(20, 2, tuning=RectifiedLinear(), intercepts=(-1, -1), generator=seeded(k))
        for k in range(3)
    ]
    chain, x = (
        EnsembleChain(populations, [quarter_turn, None], noise=0.0),
        sample_ball(30, 2, generator=seeded(9)),
    )
    assert relative_error(chain.values(x)[2], quarter_turn(x)) < 1e-6


@pytest.mark.covers("P5")
def test_three_populations_err_less_than_5_percent():
    populations = [Ensemble(300, d, generator=seeded(d)) for d in (1, 1, 1)]
    chain, x = EnsembleChain(populations, [None, square]), sample_ball(500, 1, generator=seeded(7))
    assert relative_error(chain.values(x)[2], x**2) < 0.05


def test_recipe_reaches_its_goal(tmp_path):
    recipe = RECIPES["transformation"]
    result = run(recipe, tmp_path, device="cpu")
    assert all(goal.reached(result.metrics) for goal in recipe.goals())
    assert result.metrics["count_slope_weights"] == pytest.approx(2)
    assert result.metrics["count_slope_factors"] == pytest.approx(1)
    assert result.metrics["time_slope_weights"] > result.metrics["time_slope_factors"] + 0.3
    assert {path.stem for path in result.pictures} == {"chain", "cost"}


def test_seconds_are_positive():
    assert math.isfinite(RECIPES["transformation"].tiny().seconds().log().sum())


def test_a_function_between_each_two_populations():
    with pytest.raises(ValueError, match=r"functions \(2\) must be 1, one between each two of 2"):
        EnsembleChain([Ensemble(9, 1), Ensemble(9, 1)], [None, None])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"neurons": 5}, r"neurons \(5\) must be at least 10"),
        ({"noise": 0.0}, r"noise \(0.0\) must be a positive number"),
        ({"dimensions": 0}, r"dimensions \(0\) must be at least 1"),
        ({"sizes": (10, 10)}, r"sizes \(\(10, 10\)\) must be two different numbers at least"),
        ({"stretch": 0}, r"stretch \(0\) must be at least 1"),
    ],
)
def test_recipe_refuses(change, message):
    with pytest.raises(UserError, match=message):
        Transformation(**change)
