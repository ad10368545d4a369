import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import dblquad
from scipy.optimize import minimize

from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.optimisation.critical_points import (
    KINDS,
    RECIPES,
    CriticalPoints,
    Waves,
    all_positive,
    find_critical,
    index,
    positive_definite,
    random_hessians,
    sign_moments,
    taylor,
)
from everynet.zoo.optimisation.gradient_descent import critical_point

RECIPE = RECIPES["critical-points"]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def row(*values):
    return torch.tensor(values, dtype=torch.float64)


# ------------------------------------------------------------------------------ random curvatures


@pytest.mark.covers("O31")
def test_the_share_of_positive_matrices_has_its_known_values():
    assert all_positive(1) == pytest.approx(1 / 2, rel=1e-12)
    assert all_positive(2) == pytest.approx((2 - math.sqrt(2)) / 4, rel=1e-12)
    assert all_positive(3) == pytest.approx(1 / 4 - 1 / (math.pi * math.sqrt(2)), rel=1e-12)


@pytest.mark.covers("O31")
def test_the_share_falls_faster_than_independent_signs_and_towards_its_asymptote():
    """log P_N / N^2 goes to -(log 3) / 4."""
    shares = [all_positive(size) for size in range(1, 9)]
    ratios = [b / a for a, b in pairwise(shares)]
    assert max(ratios) < 0.3
    assert ratios == sorted(ratios, reverse=True)
    second = np.diff(np.log(shares), 2)[-1]  # of c N^2: 2 c
    assert second / 2 == pytest.approx(-math.log(3) / 4, rel=0.02)


@pytest.mark.parametrize(("half", "low"), [(True, 0.0), (False, -8.0)])
def test_the_moments_are_their_integrals(half, low):
    """(8) for j = 0, k = 1 by adaptive quadrature above and below the line where the sign turns."""

    def weight(y, x):
        return y * math.exp(-(x * x + y * y) / 2)

    above, _ = dblquad(weight, low, 8, lambda x: x, lambda _: 8)
    below, _ = dblquad(weight, low, 8, lambda _: low, lambda x: x)
    moments = sign_moments(2, half)
    assert moments[0, 1].item() == pytest.approx(above - below, rel=1e-7)
    torch.testing.assert_close(moments, -moments.T, rtol=1e-12, atol=1e-12)


def test_the_ensemble_has_the_moments_of_its_definition():
    """Variance 1 on the diagonal and 1/2 off it; tolerance 5 deviations of a sample variance."""
    hessians = random_hessians(40_000, 3, generator())
    assert torch.equal(hessians, hessians.mT)
    spread = hessians.var(dim=0)
    expected = (torch.ones(3, 3) + torch.eye(3)).double() / 2
    assert ((spread / expected - 1).abs() < 5 * math.sqrt(2 / 40_000)).all()


@given(size=st.integers(2, 5), seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_cholesky_and_eigenvalues_agree_on_what_is_positive(size, seed):
    hessians = random_hessians(200, size, generator(seed)) + torch.eye(size).double()
    least = torch.linalg.eigvalsh(hessians)[:, 0]
    assert torch.equal(positive_definite(hessians), least > 0)
    assert torch.equal(index(hessians) == 0, least > 0)


@pytest.mark.covers("O31")
def test_the_measured_share_is_the_exact_one():
    for size in (2, 3):
        seen = positive_definite(random_hessians(100_000, size, generator(size))).double().mean()
        truth = all_positive(size)
        assert abs(seen.item() - truth) < 4 * math.sqrt(truth * (1 - truth) / 100_000)


# --------------------------------------------------------------------------------- smooth functions


def test_slope_and_hessian_are_the_derivatives_of_the_height():
    f, x = Waves.draw(3, generator(1)), row(1.3, 4.0)
    torch.testing.assert_close(f.gradient(x), torch.autograd.functional.jacobian(f.height, x))
    torch.testing.assert_close(f.hessian(x), torch.autograd.functional.hessian(f.height, x))
    assert len(f.wave) == 14  # half of the 28 whole vectors of length 1 to 3
    assert len({tuple(w) for w in f.wave.abs().tolist()}) < 14


@pytest.mark.covers("M11")
def test_all_four_critical_points_of_the_egg_box():
    """cos x + cos y, moved off the grid: a maximum at 0, a minimum half a turn away both ways."""
    f = Waves(torch.eye(2).double(), row(1.0, 1.0), row(0.3, 0.7))
    points = find_critical(f, points=10)
    kinds = [KINDS[i] for i in index(f.hessian(points))]
    points = points + row(0.3, 0.7)
    places = {
        (round(x / math.pi) % 2, round(y / math.pi) % 2): kind
        for (x, y), kind in zip(points.tolist(), kinds, strict=True)
    }
    assert len(points) == 4
    assert places == {(0, 0): "maximum", (1, 1): "minimum", (0, 1): "saddle", (1, 0): "saddle"}
    off = torch.minimum(points % math.pi, math.pi - points % math.pi)
    assert off.max() < 1e-9


@pytest.mark.covers("M11", "O31")
@pytest.mark.parametrize("seed", range(4))
def test_a_search_finds_every_critical_point_and_labels_it(seed):
    f = Waves.draw(3, generator(seed))
    points = find_critical(f)
    hessians = f.hessian(points)
    kinds = index(hessians)
    assert [KINDS[i] for i in kinds] == [critical_point(h) for h in hessians]
    minima, saddles, maxima = torch.bincount(kinds, minlength=3).tolist()
    assert minima - saddles + maxima == 0  # Morse: one missed or counted twice breaks it
    assert f.gradient(points).norm(dim=1).max() < 1e-9
    # Another search, which knows no Hessian, ends in one of the minima.
    for start in torch.rand(3, 2, generator=generator(seed + 9), dtype=torch.float64) * 6:
        found = minimize(
            lambda x: f.height(torch.tensor(x)).item(), start.numpy(),
            jac=lambda x: f.gradient(torch.tensor(x)).numpy(), method="BFGS", tol=1e-10,
        )  # fmt: skip
        apart = (points[kinds == 0] - torch.tensor(found.x)) % (2 * math.pi)
        assert torch.minimum(apart, 2 * math.pi - apart).norm(dim=1).min() < 1e-5


@pytest.mark.covers("M11")
def test_the_parabola_misses_by_the_third_power_of_the_distance():
    f, x, d = Waves.draw(2, generator(3)), row(0.4, 2.0), row(0.6, -0.8)
    far, near = ((f.height(x + h * d) - taylor(f, x, h * d)).abs() for h in (0.02, 0.01))
    assert math.log2(far / near) == pytest.approx(3, abs=0.1)


# -------------------------------------------------------------------------------------- the recipe


def test_measured_shares_are_drawn_beside_the_exact_and_the_independent_ones():
    recipe = RECIPE.tiny()
    result = recipe.simulate(generator())
    seen, exact, independent = recipe.picture_curvature_signs(result)[0].axes[0].lines
    np.testing.assert_allclose(seen.get_ydata(), result["positive"])
    np.testing.assert_allclose(exact.get_ydata(), [all_positive(size) for size in (2, 3, 4, 5)])
    np.testing.assert_allclose(independent.get_ydata(), [1 / 4, 1 / 8, 1 / 16, 1 / 32])


def test_a_smaller_run_reaches_the_goal():
    recipe = replace(RECIPE, matrices=50_000, fields=2)
    metrics = recipe.metrics(recipe.simulate(generator()))
    assert metrics["sigmas"] < 4
    assert metrics["largest_ratio"] < 0.25
    assert metrics["morse_sum"] == 0
    assert metrics["saddle_share"] == 0.5
    assert metrics["step_error"] < 1e-12
    assert metrics["taylor_order"] == pytest.approx(3, abs=0.1)
    assert metrics["wrong_labels"] == 0


@pytest.mark.slow
@pytest.mark.covers("O31")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_recipe_reaches_its_goal(seed, tmp_path):
    assert run(replace(RECIPE, seed=seed), tmp_path).reached


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"matrices": 0}, r"matrices \(0\) must be at least 1"),
        ({"sizes": (2, 4)}, r"sizes \(\(2, 4\)\) must be two or more whole numbers in a row"),
        ({"sizes": (8, 9)}, r"sizes \(\(8, 9\)\) must be two or more .* between 1 and 8"),
        ({"fields": 0}, r"fields \(0\) must be at least 1"),
        ({"waves": 7}, r"waves \(7\) must be a number from 1 to 6"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        CriticalPoints(**fields)
