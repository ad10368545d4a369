import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.optimisation.schedules import (
    NAMES,
    RECIPES,
    NoisyQuadratic,
    descend,
    floor_of,
    harmonic_law,
    left_over,
    logarithmic,
    mean_square,
    slope,
)

RECIPE = RECIPES["schedules"]


def rates(*values):
    return torch.tensor(values, dtype=torch.float64)


# --------------------------------------------------------------------------------------- equations


@given(k=st.lists(st.floats(0.01, 1), min_size=6, max_size=6), curvature=st.floats(0.2, 1.5))
@settings(max_examples=25, deadline=None)
def test_the_mean_square_is_the_mean_over_every_way_the_noise_can_fall(k, curvature):
    """xi = +-1, all 64 ways of six steps, at each step: (1), (2) and (3) without statistics."""
    ways = rates(*itertools.product((-0.7, 0.7), repeat=6))
    theta, seen = torch.full((64,), 3.0, dtype=torch.float64), [9.0]
    for rate, noise in zip(k, ways.T, strict=True):
        theta = descend(theta, rate, curvature, noise)
        seen.append(theta.square().mean().item())
    assert mean_square(rates(*k), 3.0, curvature, 0.7).tolist() == pytest.approx(seen, rel=1e-10)
    expected = left_over(rates(*k), 3.0, curvature)
    assert theta.mean().item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_two_steps_by_hand():
    """lambda = 2 and k = 1/4 halve theta: 8 / 2 - 1/4 = 3.75, and 3.75 / 2 + 1/4 = 2.125."""
    first = descend(rates(8.0), 0.25, 2.0, rates(1.0))
    assert first.tolist() == [3.75]
    assert descend(first, 0.25, 2.0, rates(-1.0)).tolist() == [2.125]
    assert mean_square(rates(0.25, 0.25), 8.0, 2.0, 1.0).tolist() == [64, 16.0625, 4.078125]
    assert left_over(rates(0.25, 0.25), 8.0, 2.0) == 2


@pytest.mark.covers("O23")
@given(k=st.floats(0.05, 0.95), curvature=st.floats(0.3, 2), sigma=st.floats(0.1, 5))
@settings(max_examples=25, deadline=None)
def test_a_constant_step_stands_still_at_its_floor_and_falls_to_it(k, curvature, sigma):
    floor = floor_of(k, curvature, sigma)
    still = mean_square(rates(k), floor**0.5, curvature, sigma)
    assert still[1].item() == pytest.approx(floor, rel=1e-12)
    fallen = mean_square(rates(k).expand(4000), 30.0, curvature, sigma)[-1]
    assert fallen.item() == pytest.approx(floor, rel=1e-6)


@pytest.mark.covers("O23")
@pytest.mark.parametrize(("c", "curvature"), [(1.0, 1.0), (2.0, 1.0), (3.0, 0.4)])
def test_steps_that_fall_as_one_over_t_converge_as_one_over_t(c, curvature):
    k = c / (torch.arange(30_000, dtype=torch.float64) + 4 * c)
    value = mean_square(k, 2.0, curvature, 1.5)
    for step in (10_000, 30_000):
        expected = harmonic_law(c, step, curvature, 1.5)
        assert value[step].item() == pytest.approx(expected, rel=0.03)


@pytest.mark.covers("O23")
def test_what_each_condition_of_robbins_and_monro_does():
    """Ten times the steps: 1/t is ten times nearer, the others are where they were."""
    recipe = replace(RECIPE, steps=10_000)
    fall = {}
    for name in ("constant", "linear", "harmonic", "inverse square"):
        k = rates(*(recipe.rate(name, step, []) for step in range(recipe.steps)))
        value = mean_square(k, recipe.start, 1.0, 1.0)
        fall[name] = (value[10_000] / value[1_000]).item()
        late = mean_square(k[1_000:], 0.0, 1.0, 1.0)[-1]  # noise alone
        forgotten = left_over(k[1_000:], 1.0, 1.0)  # the start alone
        assert (late > 1e-3) == (name in ("constant", "linear"))
        assert (forgotten > 0.98) == (name == "inverse square")
    assert fall["harmonic"] == pytest.approx(0.1, rel=0.03)
    assert fall["constant"] == pytest.approx(1)
    assert fall["inverse square"] > 0.98


# --------------------------------------------------------------------------------------- schedules


@pytest.mark.covers("O23")
def test_linear_goes_straight_to_its_floor_and_stays_there():
    recipe = NoisyQuadratic(steps=40, lr=0.5, floor=0.1)
    expected = [(1 - a) * 0.5 + a * 0.05 for a in (k / 20 for k in range(21))] + [0.05] * 19
    seen = [recipe.rate("linear", step, []) for step in range(40)]
    assert seen == pytest.approx(expected, rel=1e-12)


@pytest.mark.covers("O23")
def test_the_plateau_rule_divides_by_ten_where_the_loss_stalls_and_not_where_it_falls():
    values = [9.0, 8.0, 7.0] + [7.0] * 12
    looks = [{"step": s, "valid": {"mean_square": v}} for s, v in enumerate(values)]
    seen = [RECIPE.rate("plateau", step, looks) / RECIPE.lr for step in range(len(values))]
    assert seen == pytest.approx([1] * 7 + [0.1] * 5 + [0.01] * 3)
    falling = [{"step": s, "valid": {"mean_square": 1 / (1 + s)}} for s in range(30)]
    assert RECIPE.rate("plateau", 29, falling) == RECIPE.lr


def test_the_power_of_a_fall_is_found():
    x = torch.linspace(3, 300, 500, dtype=torch.float64)
    assert slope(x, 7 * x**-1.5) == pytest.approx(-1.5, abs=1e-12)


def test_places_on_a_logarithmic_axis_begin_and_end_with_the_data():
    places = logarithmic(1001, 40)
    assert places[0] == 0
    assert places[-1] == 1000
    assert (places.diff() > 0).all()


def test_every_shape_is_drawn_from_one_end_of_the_run_to_the_other():
    (axes,) = RECIPE.picture_shapes({}).axes
    curves = {line.get_label(): line for line in axes.lines[1:]}
    assert set(curves) == {
        "linear", "cosine", "step", "one-cycle", "harmonic", "warm-up, then cosine",
    }  # fmt: skip
    assert curves["linear"].get_ydata()[-1] == pytest.approx(0.05)
    assert curves["warm-up, then cosine"].get_ydata()[0] == pytest.approx(0.05)


# -------------------------------------------------------------------------------------- the recipe


@pytest.mark.covers("O23")
def test_a_shorter_run_measures_the_laws():
    recipe = replace(RECIPE, steps=2_000, runs=2_000, look_every=20)
    result = recipe.simulate(torch.Generator().manual_seed(0))
    metrics = recipe.metrics(result)
    assert metrics["floor_error"] < 0.03
    assert metrics["linear_floor_error"] < 0.05
    assert metrics["harmonic_error"] < 0.1
    assert metrics["stop_error"] < 0.03
    assert metrics["recursion_error"] < 2 * (2 / recipe.runs) ** 0.5
    assert metrics["drops"] >= 2
    assert result["errors"].shape == (len(NAMES), 2_001)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_recipe_reaches_its_goal(seed, tmp_path):
    assert run(replace(RECIPE, seed=seed), tmp_path).reached


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"steps": 5}, r"steps \(5\) must be at least 20"),
        ({"runs": 1}, r"runs \(1\) must be at least 2"),
        ({"curvature": 0.0}, r"curvature \(0.0\) must be a positive number"),
        ({"lr": 2.5}, r"lr \(2.5\) must be above 0 and below 2 / curvature"),
        ({"floor": 0.0}, r"floor \(0.0\) must be above 0 and at most 1"),
        ({"scale": 1.0}, r"scale \(1.0\) must be above 1 / \(2 lr curvature\)"),
        ({"sigma": 0.0}, r"sigma \(0.0\) must be a positive number"),
        ({"look_every": 0}, r"look_every \(0\) must be at least 1"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        NoisyQuadratic(**fields)
