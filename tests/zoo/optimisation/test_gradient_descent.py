import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from everynet.data import load
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.optimisation.gradient_descent import (
    RECIPES,
    Quadratic,
    boundary,
    closed_form,
    critical_point,
    descend,
    factor,
    flow,
    gradient,
    line_search,
    optimal_step,
    quadratic,
    regime,
    steepest,
)

SPECTRA = st.lists(st.floats(0.1, 10), min_size=2, max_size=5)


def turned(spectrum, seed=0):
    """A Hessian with these eigenvalues along random axes, and a start at random."""
    generator = torch.Generator().manual_seed(seed)
    size = len(spectrum)
    square = torch.randn(size, size, generator=generator, dtype=torch.float64)
    axes, _ = torch.linalg.qr(square)
    start = axes @ (1 + torch.rand(size, generator=generator, dtype=torch.float64))
    return axes @ torch.tensor(spectrum, dtype=torch.float64).diag() @ axes.T, start, axes


def rates(*values):
    return torch.tensor(values, dtype=torch.float64)


# --------------------------------------------------------------------------------------- equations


def test_three_steps_by_hand():
    """E = theta^2 (H = 2): k = 1/4 halves theta, k = 1/2 ends in one step, k = 1 only swings."""
    path = descend(quadratic(torch.tensor([[2.0]]).double()), rates(8.0), rates(0.25, 0.5, 1.0), 3)
    assert path[:, 0, 0].tolist() == [8, 4, 2, 1]
    assert path[:, 1, 0].tolist() == [8, 0, 0, 0]
    assert path[:, 2, 0].tolist() == [8, -8, 8, -8]


@given(spectrum=SPECTRA, seed=st.integers(0, 1000), k=st.floats(0.001, 0.4))
@settings(max_examples=25, deadline=None)
def test_the_gradient_is_h_theta_and_the_energy_its_integral(spectrum, seed, k):
    hessian, start, _ = turned(spectrum, seed)
    energy = quadratic(hessian)
    torch.testing.assert_close(gradient(energy, start), hessian @ start)
    assert energy(start).item() == pytest.approx(float(start @ hessian @ start) / 2)


@pytest.mark.covers("O21")
@given(spectrum=SPECTRA, seed=st.integers(0, 1000), k=st.floats(0.001, 0.4))
@settings(max_examples=25, deadline=None)
def test_iterates_equal_the_closed_form(spectrum, seed, k):
    """At every step, not only at the end, where convergence would hide a wrong factor."""
    hessian, start, axes = turned(spectrum, seed)
    path = descend(quadratic(hessian), start, rates(k), 12)[:, 0]
    torch.testing.assert_close(path, closed_form(hessian, start, k, 12), rtol=1e-9, atol=1e-12)
    along = 1 - k * torch.tensor(spectrum, dtype=torch.float64)
    expected = torch.stack([along**t * (axes.T @ start) for t in range(13)])
    torch.testing.assert_close(path @ axes, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.covers("O21", "O24")
@given(spectrum=SPECTRA, seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_descent_diverges_exactly_above_two_over_the_largest_eigenvalue(spectrum, seed):
    hessian, start, _ = turned(spectrum, seed)
    energy, limit = quadratic(hessian), 2 / max(spectrum)
    path = descend(energy, start, rates(0.97 * limit, 1.03 * limit), 400)
    assert energy(path[-1, 0]) < energy(start)
    assert energy(path[-1, 1]) > energy(start)


@pytest.mark.covers("O24")
@pytest.mark.parametrize("spectrum", [[1.0, 10.0], [0.5, 0.6, 300.0], [2.0, 2.0], [1.0, 1e5]])
def test_bisection_finds_the_boundary(spectrum):
    hessian, start, _ = turned(spectrum)
    assert boundary(quadratic(hessian), start, 300) == pytest.approx(2 / max(spectrum), rel=0.05)


@given(spectrum=SPECTRA, k=st.floats(0.01, 0.5))
@settings(max_examples=25, deadline=None)
def test_the_factor_is_the_spectral_radius(spectrum, k):
    hessian, _, _ = turned(spectrum)
    once = torch.eye(len(spectrum), dtype=torch.float64) - k * hessian
    radius = torch.linalg.eigvalsh(once).abs().max().item()
    values = torch.tensor(spectrum, dtype=torch.float64)
    assert factor(rates(k), values).item() == pytest.approx(radius)


@pytest.mark.covers("O21")
def test_the_flow_solves_its_equation_and_descent_is_its_euler_step():
    hessian, start, _ = turned([1.0, 3.0, 8.0])
    times = torch.linspace(0, 2, 9, dtype=torch.float64)
    solved = solve_ivp(
        lambda _, theta: -(hessian.numpy() @ theta), (0, 2), start.numpy(),
        t_eval=times.numpy(), rtol=1e-10, atol=1e-12,
    )  # fmt: skip
    exact = flow(hessian, start, times)
    torch.testing.assert_close(exact, torch.tensor(solved.y.T), rtol=1e-7, atol=1e-9)
    errors = []
    for steps in (400, 800, 1600):
        end = descend(quadratic(hessian), start, rates(2 / steps), steps)[-1, 0]
        errors.append((end - exact[-1]).norm().item())
    for coarse, fine in pairwise(errors):
        assert math.log2(coarse / fine) == pytest.approx(1, abs=0.05)  # first order


@pytest.mark.covers("M11")
@given(spectrum=SPECTRA, seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_the_optimal_step_is_the_exact_line_search_and_gains_what_it_says(spectrum, seed):
    hessian, start, _ = turned(spectrum, seed)
    energy, g = quadratic(hessian), hessian @ start
    step, gain = optimal_step(g, hessian)
    assert step.item() == pytest.approx(line_search(energy, start, g).item(), rel=1e-9)
    fallen = energy(start) - energy(start - step * g)
    assert fallen.item() == pytest.approx(gain.item(), rel=1e-9)
    for other in (0.99, 1.01):
        assert energy(start - other * step * g) > energy(start - step * g)


@pytest.mark.covers("M11")
@pytest.mark.parametrize("condition", [2.0, 10.0, 100.0])
def test_from_the_worst_start_the_error_contracts_by_the_condition(condition):
    """(c-1)/(c+1), both for the best fixed step and for the best step at every point."""
    hessian, _, axes = turned([1.0, condition])
    expected = (condition - 1) / (condition + 1)
    energies = steepest(hessian, axes[:, 0] + axes[:, 1] / condition)["energies"]
    ratios = (energies[1:] / energies[:-1]).sqrt()
    assert ratios.tolist() == pytest.approx([expected] * len(ratios), rel=0.01)
    path = descend(quadratic(hessian), axes.sum(1), rates(2 / (1 + condition)), 20)[:, 0]
    shrunk = path[1:].norm(dim=1) / path[:-1].norm(dim=1)
    assert shrunk.tolist() == pytest.approx([expected] * 20, rel=0.01)


# --------------------------------------------------------------------------------- critical points


@pytest.mark.covers("M11")
@pytest.mark.parametrize(
    ("spectrum", "label"),
    [
        ([1.0, 2.0], "minimum"),
        ([-1.0, -2.0], "maximum"),
        ([1.0, -2.0], "saddle"),
        ([1.0, 0.0], "inconclusive"),
        ([-1.0, 0.0, 1.0], "inconclusive"),
        ([0.0, 0.0], "inconclusive"),
        ([1e3, 1e-3], "minimum"),
    ],
)
def test_labels_of_critical_points(spectrum, label):
    assert critical_point(torch.tensor(spectrum, dtype=torch.float64).diag()) == label
    assert critical_point(turned(spectrum)[0]) == label


def test_a_direction_that_does_not_curve_upwards_has_no_best_step():
    saddle = torch.tensor([1.0, -2.0], dtype=torch.float64).diag()
    with pytest.raises(ValueError, match=r"g\^T H g \(-1\) must be positive, because"):
        optimal_step(torch.ones(2, dtype=torch.float64), saddle)


def test_regimes_by_what_a_path_does():
    hessian = torch.tensor([1.0, 10.0], dtype=torch.float64).diag()
    path = descend(quadratic(hessian), rates(1.0, 1.0), rates(0.01, 0.18, 0.21), 40)
    names = [regime(one) for one in path.unbind(1)]
    assert names == ["creeps", "swings and converges", "diverges"]


# ------------------------------------------------------------------------------------- the recipe


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_the_recipe_reaches_its_goal(seed, tmp_path):
    result = run(replace(RECIPES["gradient-descent"], seed=seed), tmp_path)
    assert result.reached
    assert result.metrics["factor_error"] < 0.01
    assert result.metrics["step_error"] < 1e-12
    assert result.metrics["gain_error"] < 1e-12
    assert result.metrics["wrong_labels"] == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dimensions": 1}, r"dimensions \(1\) must be at least 2"),
        ({"condition": 1.0}, r"condition \(1.0\) must be above 1"),
        ({"rates": (0.0,)}, r"rates \(\(0.0,\)\) must be numbers between 0 and 4"),
        ({"rates": ()}, r"rates \(\(\)\) must be at least one number"),
        ({"steps": 0}, r"steps \(0\) must be at least 1"),
        ({"long": 3}, r"long \(3\) must be at least 20"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        Quadratic(**fields)


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.covers("O24")
def test_the_boundary_on_mnist():
    """Least squares on real pixels is a quadratic too: H = X^T X / n, here of 784 dimensions."""
    x, y = load("mnist", kind=("table", "image"), batch_size=1).whole
    x = x[:5000].flatten(1).double()
    target = (y[:5000] == 0).double()
    hessian = x.T @ x / len(x)
    best = torch.linalg.pinv(hessian, hermitian=True) @ (x.T @ target / len(x))
    limit = 2 / torch.linalg.eigvalsh(hessian)[-1].item()
    assert boundary(quadratic(hessian), -best, 300) == pytest.approx(limit, rel=0.05)
