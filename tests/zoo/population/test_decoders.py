import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.zoo.population import decoders as subject
from everynet.zoo.population.decoders import (
    LeastSquaresDecoders,
    NystromRidgeDecoders,
    RidgeDecoders,
    _gram,
    ridge_solver,
)
from everynet.zoo.population.ensemble import Ensemble, relative_error
from everynet.zoo.population.tuning import RectifiedLinear


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.covers("P2")
@pytest.mark.parametrize("dimensions", [1, 2])
def test_optimal_decoders_are_those_of_lstsq(dimensions):
    code = Ensemble(50, dimensions, generator=seeded())
    h, x = code.encode(code.eval_points), code.eval_points
    theirs, *_ = np.linalg.lstsq(h.numpy(), x.numpy(), rcond=None)
    ours = code.decoders(noise=0)
    torch.testing.assert_close(ours, torch.from_numpy(theirs), rtol=1e-8, atol=1e-8)
    residual = h.T @ (h @ ours - x)
    assert residual.abs().max() < 1e-6 * h.square().sum()  # at right angles to every neuron


@pytest.mark.covers("P2")
def test_decoded_values_are_those_of_lstsq_where_decoders_are_not_unique():
    """Most of 400 rates are nearly sums of others; columns that are twice there, wholly."""
    code = Ensemble(400, 1, eval_points=1500, generator=seeded())
    h = code.encode(code.eval_points)
    h = torch.cat([h, h[:, :3]], dim=1)
    theirs, *_ = np.linalg.lstsq(h.numpy(), code.eval_points.numpy(), rcond=None)
    values = h @ LeastSquaresDecoders(h).solve(code.eval_points)
    torch.testing.assert_close(values, h @ torch.from_numpy(theirs), rtol=0, atol=1e-8)


@pytest.mark.covers("P3")
@given(seed=st.integers(0, 99), neurons=st.integers(1, 30), noise=st.floats(0.01, 1))
@settings(max_examples=25, deadline=None)
def test_regularised_decoders_solve_the_ridge_normal_equations(seed, neurons, noise):
    code = Ensemble(neurons, 2, eval_points=60, generator=seeded(seed))
    h, x = code.encode(code.eval_points), code.eval_points
    if h.max() == 0:
        return
    sigma = noise * h.max()
    ours = code.decoders(noise=noise)
    left = h.T @ h @ ours + 60 * sigma**2 * ours
    torch.testing.assert_close(left, h.T @ x, rtol=1e-8, atol=1e-6)
    stacked = torch.cat([h, math.sqrt(60) * sigma * torch.eye(neurons).double()])
    zeros = torch.cat([x, torch.zeros(neurons, 2).double()])
    theirs, *_ = np.linalg.lstsq(stacked.numpy(), zeros.numpy(), rcond=None)
    torch.testing.assert_close(ours, torch.from_numpy(theirs), rtol=1e-8, atol=1e-10)


@pytest.mark.covers("P3")
def test_ridge_is_the_number_of_points_times_the_variance():
    """Least squares over many noisy copies of H has these decoders; sigma^2 alone does not."""
    random = seeded(3)
    code = Ensemble(10, 1, eval_points=40, tuning=RectifiedLinear(), generator=random)
    h, x, copies = code.encode(code.eval_points), code.eval_points, 25_000
    sigma = 0.05 * h.max().item()
    noisy = h + sigma * torch.randn(copies, 40, 10, generator=random, dtype=torch.float64)
    rows, targets = noisy.reshape(-1, 10), x.repeat(copies, 1)
    average = torch.linalg.solve(rows.T @ rows, rows.T @ targets)
    ours = RidgeDecoders(h, sigma).solve(x)
    assert relative_error(ours, average) < 3e-3
    wrong = torch.linalg.solve(h.T @ h + sigma**2 * torch.eye(10).double(), h.T @ x)
    assert relative_error(wrong, average) > 0.3


def test_product_with_itself_is_symmetric():
    h = torch.rand(30, 7, generator=seeded(), dtype=torch.float64)
    torch.testing.assert_close(_gram(h), (h.T @ h).tril())


@pytest.mark.covers("P3")
@pytest.mark.parametrize(
    ("dimensions", "noise", "steps"), [(1, 0.1, 6), (2, 0.1, 7), (8, 0.1, 12), (8, 0.02, 35)]
)
def test_conjugate_gradients_find_the_decoders_of_cholesky(dimensions, noise, steps, monkeypatch):
    """In so few steps: descent without conjugate directions takes twice as many in the last."""
    monkeypatch.setattr(subject, "MAX_STEPS", steps)
    code = Ensemble(500, dimensions, eval_points=900, generator=seeded())
    h, x = code.encode(code.eval_points), code.eval_points
    sigma = noise * h.max().item()
    exact = RidgeDecoders(h, sigma).solve(x)
    monkeypatch.setattr(subject, "RidgeDecoders", None)  # no way back to Cholesky
    torch.testing.assert_close(
        NystromRidgeDecoders(h, sigma).solve(x), exact, rtol=1e-6, atol=1e-12
    )


def test_preconditioner_nearly_inverts_what_has_low_rank():
    """Where H has a rank below RANK, P^-1 times the ridged matrix is the ridge times I."""
    rank, sigma = 40, 0.05
    h = torch.randn(400, rank, generator=seeded(), dtype=torch.float64)
    h = h @ torch.randn(rank, 300, generator=seeded(1), dtype=torch.float64)
    solver = NystromRidgeDecoders(h, sigma)
    d = torch.randn(5, 300, generator=seeded(2), dtype=torch.float64)
    ridged = d @ h.T @ h + 400 * sigma**2 * d
    torch.testing.assert_close(solver._multiply_ridged(d), ridged, rtol=1e-10, atol=1e-8)
    assert relative_error(solver._precondition(ridged), 400 * sigma**2 * d) < 0.1


def test_few_steps_do_because_of_the_preconditioner(monkeypatch):
    code = Ensemble(600, 2, eval_points=1200, generator=seeded())
    h = code.encode(code.eval_points)
    solver, steps, whole = (
        NystromRidgeDecoders(h, 0.1 * h.max().item()),
        [],
        NystromRidgeDecoders._multiply_ridged,
    )
    monkeypatch.setattr(
        NystromRidgeDecoders, "_multiply_ridged", lambda s, d: steps.append(1) or whole(s, d)
    )
    solver.solve(code.eval_points)
    assert len(steps) <= 8
    monkeypatch.setattr(NystromRidgeDecoders, "_precondition", lambda _, d: d)
    steps.clear()
    solver.solve(code.eval_points)
    assert len(steps) == subject.MAX_STEPS


def test_a_ridge_too_low_for_conjugate_gradients_is_left_to_cholesky(monkeypatch):
    code = Ensemble(300, 2, eval_points=600, generator=seeded())
    h, x = code.encode(code.eval_points), code.eval_points
    sigma = 1e-3 * h.max().item()
    monkeypatch.setattr(subject, "MAX_STEPS", 2)
    found = NystromRidgeDecoders(h, sigma).solve(x)
    torch.testing.assert_close(found, RidgeDecoders(h, sigma).solve(x), rtol=0, atol=0)


def test_an_output_that_is_zero_has_no_decoders():
    code = Ensemble(300, 1, eval_points=600, generator=seeded())
    targets = torch.cat([code.eval_points, torch.zeros_like(code.eval_points)], dim=1)
    h = code.encode(code.eval_points)
    found = NystromRidgeDecoders(h, 0.1 * h.max().item()).solve(targets)
    assert found.isfinite().all()
    assert (found[:, 1] == 0).all()


def test_the_size_chooses_the_way(monkeypatch):
    monkeypatch.setattr(subject, "LARGE", 40)
    h = torch.rand(60, 50, generator=seeded(), dtype=torch.float64)
    assert isinstance(ridge_solver(h, 1.0), NystromRidgeDecoders)
    assert isinstance(ridge_solver(h[:30], 1.0), RidgeDecoders)
    with pytest.raises(ValueError, match=r"noise \(sigma 0 Hz\) must be larger, or 0"):
        ridge_solver(torch.ones_like(h), 0.0)


def test_rates_too_alike_are_refused():
    with pytest.raises(ValueError, match=r"noise \(sigma 1e-12 Hz\) must be larger, or 0"):
        RidgeDecoders(torch.ones(4, 3, dtype=torch.float64), 1e-12)
