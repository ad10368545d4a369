from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.system.errors import UserError
from everynet.zoo.theory.min_norm import (
    RECIPES,
    MinNorm,
    Underdetermined,
    closed_form,
    descend,
    learn,
    limit,
    null_projection,
    pseudo_inverse,
    squared_length,
)


def problem(seed, equations=3, unknowns=6):
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(equations, unknowns, generator=generator, dtype=torch.float64)
    y = torch.randn(equations, generator=generator, dtype=torch.float64)
    return a, y, torch.randn(unknowns, generator=generator, dtype=torch.float64)


# --------------------------------------------------------------------------------------- equations


def test_one_equation_by_hand():
    """3 w_1 + 4 w_2 = 25: the nearest point to zero is (3, 4); from (4, -3) it is (7, 1)."""
    a, y = torch.tensor([[3.0, 4.0]]).double(), torch.tensor([25.0]).double()
    zero, across = torch.zeros(2).double(), torch.tensor([4.0, -3.0]).double()
    assert pseudo_inverse(a)[:, 0].tolist() == pytest.approx([3 / 25, 4 / 25])
    assert limit(a, y, zero).tolist() == pytest.approx([3, 4])
    assert limit(a, y, across).tolist() == pytest.approx([7, 1])
    once = descend(a, y, zero, 1 / 25, 2)  # the step that ends there at once
    assert once[1].tolist() == once[2].tolist() == pytest.approx([3, 4])
    assert descend(a, y, zero, 0.01, 1)[1].tolist() == pytest.approx([0.75, 1])


@pytest.mark.covers("Y5")
@given(seed=st.integers(0, 1000), equations=st.integers(1, 5), more=st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_the_pseudo_inverse_is_torchs_and_its_solution_the_shortest(seed, equations, more):
    a, y, w = problem(seed, equations, equations + more)
    inverse, p = pseudo_inverse(a), null_projection(a)
    torch.testing.assert_close(inverse, torch.linalg.pinv(a), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(p @ p, p, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(a @ p, torch.zeros_like(a), rtol=0, atol=1e-8)
    solution = limit(a, y, w)
    torch.testing.assert_close(a @ solution, y, rtol=1e-6, atol=1e-7)
    expected = squared_length(a, y, solution)
    assert solution.square().sum().item() == pytest.approx(expected.item(), rel=1e-6)
    assert (inverse @ y).norm() <= solution.norm() + 1e-9
    expected = torch.linalg.lstsq(a, y[:, None], driver="gelsd").solution[:, 0]
    torch.testing.assert_close(limit(a, y, torch.zeros_like(w)), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.covers("Y5")
@given(seed=st.integers(0, 1000), share=st.floats(0.05, 1.9))
@settings(max_examples=25, deadline=None)
def test_every_step_is_the_closed_form_and_leaves_the_null_part_alone(seed, share):
    a, y, w = problem(seed)
    lr = share * len(a) / float(torch.linalg.matrix_norm(a, 2)) ** 2
    path = descend(a, y, w, lr, 12)
    torch.testing.assert_close(path, closed_form(a, y, w, lr, 12), rtol=1e-8, atol=1e-9)
    drift = (path - w) @ null_projection(a)
    assert drift.abs().max() < 1e-9
    error = lambda v: (a @ v - y).square().sum() / (2 * len(a))  # noqa: E731
    slope = torch.func.grad(error)(w)
    torch.testing.assert_close(path[1], w - lr * slope)


def test_the_trainer_takes_the_steps_that_are_written():
    recipe = Underdetermined(
        equations=4, unknowns=7, batch_size=4, steps=9, lr=0.1, spread=1.0, problem=5
    )
    path = learn(recipe)
    a, y = recipe.dataset().splits["train"]
    assert path[0].norm() > 0.5
    torch.testing.assert_close(path, descend(a, y, path[0], 0.1, 9))
    assert learn(replace(recipe, spread=0.0))[0].norm() == 0


@pytest.mark.parametrize(("optimizer", "kept"), [("momentum", True), ("rmsprop", False)])
def test_momentum_stays_in_the_span_of_the_rows_and_rules_that_scale_do_not(optimizer, kept):
    recipe = Underdetermined(
        equations=4, unknowns=7, batch_size=2, steps=20, lr=0.01, optimizer=optimizer
    )
    a, _ = recipe.dataset().splits["train"]
    assert bool((learn(recipe)[-1] @ null_projection(a)).norm() < 1e-12) is kept


# ------------------------------------------------------------------------------------ the recipe


@pytest.mark.covers("Y5")
def test_descent_from_zero_reaches_the_pseudo_inverse_and_adam_another_solution():
    recipe = MinNorm(equations=4, unknowns=30, steps=200)
    result = recipe.simulate(torch.Generator())
    metrics = recipe.metrics(result)
    assert all(goal.reached(metrics) for goal in RECIPES["min-norm"].goals())
    assert metrics["length_error"] < 1e-4  # as far as Adam has come
    assert metrics["adam_residual"] < 1e-3
    shortest = torch.linalg.pinv(result["a"]) @ result["y"]
    assert (result["paths"][0, -1] - shortest).norm() < 1e-6
    elsewhere = result["paths"][1]
    assert (elsewhere[-1] - shortest).norm() > 0.5
    assert (elsewhere[0]).norm() > 0.5


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"unknowns": 20}, r"unknowns \(20\) must be above 20, the equations, and at most 2000"),
        ({"equations": 0}, r"equations \(0\) must be at least 1"),
        ({"rate": 1.0}, r"rate \(1.0\) must be above 0 and below 1, from which batches diverge"),
        ({"steps": 0}, r"steps \(0\) must be at least 1"),
    ],
)
def test_bad_settings(fields, message):
    with pytest.raises(UserError, match=message):
        MinNorm(**fields)
