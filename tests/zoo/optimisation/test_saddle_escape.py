import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.optimisation.gradient_descent import critical_point, gradient
from everynet.zoo.optimisation.saddle_escape import (
    RECIPES,
    RULES,
    SaddleEscape,
    bounded,
    descent,
    escape_step,
    follow,
    gone,
    heavy,
    nesterov,
    roots,
    saddle,
    steps_of_descent,
)

RECIPE = RECIPES["saddle-escape"]


def point(x, y):
    return torch.tensor([x, y], dtype=torch.float64)


def walk(rule, start, steps, lr, momentum=0.9):
    way = follow(
        saddle, RULES[rule], point(1.0, start)[None], steps=steps, lr=lr, momentum=momentum
    )
    return way[:, 0]


# --------------------------------------------------------------------------------------- equations


def test_three_steps_by_hand():
    """k = b = 1/2: the slope at y is -2 y, so descent doubles; momentum adds half the last step."""
    assert descent(1.0, 3, 0.5).tolist() == [1, 2, 4, 8]
    assert heavy(1.0, 3, 0.5, 0.5).tolist() == pytest.approx([1, 2, 4.5, 10.25])
    assert nesterov(1.0, 2, 0.5, 0.5).tolist() == pytest.approx([1, 2.5, 6.5])
    assert roots(5.0, 6.0) == (3, 2)


@pytest.mark.covers("O31")
@given(lr=st.floats(1e-3, 0.3), momentum=st.floats(0.1, 0.99), start=st.floats(1e-9, 1e-2))
@settings(max_examples=25, deadline=None)
def test_closed_forms_are_the_paths_of_the_rules_at_every_step(lr, momentum, start):
    laws = {
        "gradient descent": descent(start, 8, lr),
        "momentum": heavy(start, 8, lr, momentum),
        "Nesterov": nesterov(start, 8, lr, momentum),
    }
    for rule, law in laws.items():
        path = walk(rule, start, 8, lr, momentum)
        torch.testing.assert_close(path[:, 1], law, rtol=1e-9, atol=0.0)


def test_across_the_ridge_descent_converges():
    path = walk("gradient descent", 1e-6, 10, 0.1)
    torch.testing.assert_close(path[:, 0], 0.8 ** torch.arange(11).double())


@pytest.mark.covers("O31")
@pytest.mark.parametrize("lr", [0.02, 0.1])
def test_momentum_and_adam_escape_in_fewer_steps_than_descent(lr):
    plain = math.ceil(math.log(1e6) / math.log(1 + 2 * lr))
    assert plain == math.ceil(steps_of_descent(1e-6, lr))
    assert escape_step(walk("gradient descent", 1e-6, plain, lr)[:, 1]) == plain
    for rule in ("momentum", "Nesterov", "RMSProp", "Adam"):
        took = escape_step(walk(rule, 1e-6, plain // 2, lr)[:, 1])
        assert took < 0.5 * plain, rule
    assert took < 1.2 / lr


def test_rules_that_divide_by_the_slope_do_not_mind_how_near_the_ridge_is():
    """A million times nearer costs descent 145 steps more and these two at most."""
    assert steps_of_descent(1e-9, 0.05) - steps_of_descent(1e-3, 0.05) > 144
    for rule in ("RMSProp", "Adam"):
        far, near = (escape_step(walk(rule, s, 60, 0.05)[:, 1]) for s in (1e-3, 1e-9))
        assert near <= far + 2


def test_the_first_step_outside_or_never():
    y = torch.tensor([[0.5, 0.1, -1.0], [-1.0, 0.2, 0.0], [3.0, 0.3, 0.0]])
    assert escape_step(y).tolist() == [1, math.inf, 0]


@pytest.mark.covers("O31")
@pytest.mark.parametrize("rule", RULES)
def test_from_the_ridge_itself_every_rule_converges_to_the_saddle(rule):
    path = walk(rule, 0.0, 80, 0.1)
    assert (path[:, 1] == 0).all()
    assert path[-1, 0].abs() < 0.1


def test_noise_spreads_as_the_sum_of_what_each_step_added():
    """v' = (1 + 2 k)^2 v + (k sigma)^2, and y is normal."""
    k, sigma, v, expected = 0.05, 0.3, 0.0, []
    for _ in range(60):
        v = (1 + 2 * k) ** 2 * v + (k * sigma) ** 2
        expected.append(2 * norm.sf(1 / math.sqrt(v)))
    steps = torch.arange(1, 61, dtype=torch.float64)
    assert gone(steps, k, sigma).tolist() == pytest.approx(expected, rel=1e-9)


def test_the_bounded_saddle_has_a_minimum_on_either_side():
    for y, label in ((0.0, "saddle"), (1.0, "minimum"), (-1.0, "minimum")):
        place = point(0.0, y)
        assert gradient(bounded, place).abs().max() < 1e-12
        assert critical_point(torch.autograd.functional.hessian(bounded, place)) == label
    assert bounded(point(0.0, 1.0)) == -0.5


# -------------------------------------------------------------------------------------- the recipe


@pytest.mark.covers("O31")
def test_noise_leaves_the_ridge_when_it_is_predicted_to():
    recipe = replace(RECIPE, lr=0.1, steps=150, runs=2_000)
    metrics = recipe.metrics(recipe.simulate(torch.Generator().manual_seed(0)))
    assert metrics["noise_error"] < 0.03
    assert metrics["descent_error"] == 0
    assert metrics["path_error"] < 1e-9
    assert metrics["left_without_noise"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_recipe_reaches_its_goal(seed, tmp_path):
    result = run(replace(RECIPE, seed=seed), tmp_path)
    assert result.reached
    assert result.metrics["steps_gradient_descent"] == 698
    assert result.metrics["steps_momentum"] < 150
    assert result.metrics["steps_adam"] < 100


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lr": 1.0}, r"lr \(1.0\) must be above 0 and below 1"),
        ({"momentum": 1.0}, r"momentum \(1.0\) must be between 0 and 1"),
        ({"start": 1.0}, r"start \(1.0\) must be from 1e-12 to below 1"),
        ({"steps": 0}, r"steps \(0\) must be at least 1"),
        ({"runs": 0}, r"runs \(0\) must be at least 1"),
        ({"sigma": 0.0}, r"sigma \(0.0\) must be a positive number"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        SaddleEscape(**fields)
