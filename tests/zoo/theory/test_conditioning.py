import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg, special

from everynet.system.errors import UserError
from everynet.zoo.theory.conditioning import (
    RECIPES,
    Conditioning,
    condition_number,
    eigenvalue_spread,
    error_bound,
    hilbert,
    log_sum_exp,
    naive_log_sum_exp,
    slope,
    softmax,
    solve_errors,
    strip_area,
    strip_share,
)
from tests.zoo.theory.simulated import simulate_metrics

INFINITY = float("inf")


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def normal(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


@pytest.mark.covers("M8")
def test_log_sum_exp_of_what_overflows_and_of_what_vanishes():
    assert log_sum_exp(numbers(1000, 1000)).item() == pytest.approx(1000.693147, abs=1e-6)
    assert log_sum_exp(numbers(-1000, -1000)).item() == pytest.approx(-999.306853, abs=1e-6)
    assert naive_log_sum_exp(numbers(1000, 1000)) == INFINITY
    assert naive_log_sum_exp(numbers(-1000, -1000)) == -INFINITY
    assert log_sum_exp(numbers(-INFINITY, -INFINITY)) == -INFINITY
    assert log_sum_exp(numbers(-INFINITY, 3)).item() == 3


@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=6))
@settings(max_examples=50, deadline=None)
def test_it_is_scipys(values):
    x = numbers(*values)
    np.testing.assert_allclose(log_sum_exp(x), special.logsumexp(values), rtol=1e-12)
    np.testing.assert_allclose(softmax(x), special.softmax(values), rtol=1e-9, atol=1e-300)


@pytest.mark.covers("M8")
def test_softmax_is_finite_at_ten_thousand():
    found = softmax(numbers(1e4, -1e4, 1e4 - math.log(3)))
    torch.testing.assert_close(found, numbers(0.75, 0, 0.25))
    torch.testing.assert_close(softmax(numbers(-1e4, -1e4)), numbers(0.5, 0.5))


@pytest.mark.covers("M8")
@pytest.mark.parametrize("shape", [(3, 3), (5, 2), (2, 5)])
def test_the_condition_number_is_numpys(shape):
    a = normal(*shape)
    assert condition_number(a).item() == pytest.approx(np.linalg.cond(a.numpy()), rel=1e-10)


@pytest.mark.covers("M8")
def test_eigenvalues_give_the_condition_of_normal_matrices_only():
    """What the notes had wrong: for the shear their ratio is 1, and the condition is not."""
    a = normal(4, 4)
    for matrix in (a + a.T, a - a.T, torch.linalg.qr(a)[0]):  # normal: A A^T = A^T A
        assert eigenvalue_spread(matrix).item() == pytest.approx(condition_number(matrix).item())
    shear = numbers(1, 5, 0, 1).view(2, 2)
    assert eigenvalue_spread(shear).item() == pytest.approx(1)
    assert condition_number(shear).item() == pytest.approx((27 + math.sqrt(725)) / 2)


@pytest.mark.covers("M8")
def test_no_change_of_the_right_side_changes_the_solution_more_and_one_does_as_much():
    a = normal(4, 4)
    u, _, v = torch.linalg.svd(a)
    b, worst = a @ v[0], u[:, -1]  # the longest image, moved along the shortest
    for db in (*(1e-3 * normal(20, 4, seed=2)), 1e-3 * worst):
        moved = torch.linalg.solve(a, b + db) - v[0]
        assert moved.norm() <= error_bound(a, b, db) * (1 + 1e-9)
    assert moved.norm().item() == pytest.approx(error_bound(a, b, db).item(), rel=1e-9)


def test_hilberts_matrix_is_scipys():
    np.testing.assert_allclose(hilbert(6), linalg.hilbert(6), rtol=1e-15)


@pytest.mark.covers("M8")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_errors_of_solutions_grow_with_the_condition(seed):
    generator = torch.Generator().manual_seed(seed)
    matrices = [hilbert(n) for n in range(2, 11)]
    conditions = torch.stack([condition_number(a) for a in matrices])
    errors = torch.stack([solve_errors(a, 20, generator) for a in matrices])
    assert slope(conditions, errors.mean(1)) == pytest.approx(1, abs=0.1)
    limits = torch.finfo(torch.float64).eps * conditions[:, None]
    assert (errors < 10 * limits).all()
    assert (errors.amax(1) > limits[:, 0] / 1000).all()


def test_the_slope_of_a_power_is_its_exponent():
    x = numbers(1, 3, 10)
    assert slope(x, 5 * x**2) == pytest.approx(2)


@pytest.mark.covers("M8")
def test_a_line_is_a_null_set():
    """The strip of width w has area 2 sqrt(2) w - 2 w^2, and the line alone none."""
    points = torch.rand(100_000, 2, generator=torch.Generator().manual_seed(0)).double()
    for width in (0.1, 0.01):
        exact = strip_area(width) - 2 * width**2
        allowed = 5 * math.sqrt(exact / len(points))
        assert strip_share(points, width) == pytest.approx(exact, abs=allowed)
    doubles = torch.rand(100_000, 2, generator=torch.Generator().manual_seed(0), dtype=points.dtype)
    assert strip_share(doubles, 0) == 0


@pytest.mark.covers("M8")
def test_a_relu_is_differentiable_almost_everywhere():
    """At every point that was drawn the slope is that of both sides; at 0 they differ."""
    x = normal(100_000).requires_grad_()
    x.relu().sum().backward()
    step = 1e-9
    right = ((x + step).relu() - x.relu()) / step
    left = (x.relu() - (x - step).relu()) / step
    assert (right - x.grad).abs().max() < 1e-6
    assert (left - x.grad).abs().max() < 1e-6
    kink = numbers(0)
    assert ((kink + step).relu() / step).item() == pytest.approx(1)
    assert ((kink - step).relu() / step).item() == 0


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_recipe_reaches_its_goal(seed):
    metrics, reached = simulate_metrics(RECIPES["conditioning"], seed)
    assert reached
    assert metrics["overflow"] == 680
    assert metrics["largest_condition"] == pytest.approx(1.6025e13, rel=1e-3)
    assert metrics["strip_slope"] == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"largest": 13}, r"largest \(13\) must be a number from 4 to 12"),
        ({"solutions": 0}, r"solutions \(0\) must be at least 1"),
        ({"points": 10}, r"points \(10\) must be at least 1000"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        Conditioning(**fields)
