import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.system.errors import UserError
from everynet.zoo.theory.eigen import (
    MATRICES,
    RECIPES,
    Eigenvalues,
    characteristic,
    determinant,
    diagonalize,
    eigenspaces,
    is_defective,
    is_positive_definite,
    jacobi,
    jordan,
    qr_algorithm,
    real_directions,
    rebuild,
    rebuild_symmetric,
    rotate,
    symmetric,
)
from tests.zoo.theory.simulated import simulate_metrics

SEEDS = st.integers(0, 10_000)


def matrix(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def normal(n, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, n, generator=generator, dtype=torch.float64)


def test_one_rotation_makes_its_entry_zero_by_the_smaller_angle():
    a = symmetric(3, torch.Generator().manual_seed(1))
    turned, q = a.clone(), torch.eye(3, dtype=torch.float64)
    rotate(turned, q, 0, 2)
    torch.testing.assert_close(q.T @ a @ q, turned, rtol=0, atol=1e-14)
    assert abs((q.T @ a @ q)[0, 2]) < 1e-15
    assert q[0, 0] >= math.cos(math.pi / 4) - 1e-15  # the smaller one of both that do it
    torch.testing.assert_close(q.T @ q, torch.eye(3).double())


@pytest.mark.covers("M3")
@given(SEEDS, st.integers(1, 7))
@settings(max_examples=15, deadline=None)
def test_both_solvers_find_the_eigenvalues_of_numpy(seed, n):
    a = normal(n, seed)
    both = a + a.T
    expected, _ = np.linalg.eigh(both.numpy())
    found = jacobi(both)
    np.testing.assert_allclose(found.values, expected, rtol=1e-8, atol=1e-10)
    by_qr = qr_algorithm(both)[0].real.sort().values
    np.testing.assert_allclose(by_qr, expected, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(
        rebuild_symmetric(found.values, found.vectors), both, rtol=0, atol=1e-11
    )
    torch.testing.assert_close(found.vectors.T @ found.vectors, torch.eye(n).double())
    order = np.lexsort((np.linalg.eigvals(a.numpy()).imag, np.linalg.eigvals(a.numpy()).real))
    general = qr_algorithm(a)[0]
    for value in np.linalg.eigvals(a.numpy())[order]:
        assert (general - complex(value)).abs().min() < 1e-8


@pytest.mark.covers("M3")
@given(SEEDS)
@settings(max_examples=10, deadline=None)
def test_a_matrix_is_its_eigenvectors_scaled(seed):
    a = normal(4, seed)
    values, vectors = diagonalize(a)
    torch.testing.assert_close(a + 0j, (vectors * values) @ torch.linalg.inv(vectors))
    torch.testing.assert_close(rebuild(values, vectors), a)
    torch.testing.assert_close((a + 0j) @ vectors, vectors * values)
    torch.testing.assert_close(vectors.norm(dim=0), torch.ones(4).double())


@pytest.mark.covers("M3")
def test_eigenvalues_are_the_roots_of_the_characteristic_polynomial():
    """x^3 - 6 x^2 + 11 x - 6 has the roots 1, 2, 3 and its companion matrix this polynomial."""
    companion = matrix([0, 0, 6], [1, 0, -11], [0, 1, 6])
    at = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    torch.testing.assert_close(characteristic(companion, at), matrix(-6, 0, 0, 0, 6))
    torch.testing.assert_close(
        qr_algorithm(companion)[0].real.sort().values, matrix(1, 2, 3), rtol=1e-10, atol=0
    )


def test_a_permutation_whose_rows_turn_round_is_solved_too():
    turning = matrix([0, 0, 1], [1, 0, 0], [0, 1, 0])
    values, _ = qr_algorithm(turning)
    torch.testing.assert_close(values**3, torch.ones(3) + 0j, check_dtype=False)
    assert (values - 1).abs().min() < 1e-12


@pytest.mark.covers("M3")
def test_a_defective_matrix_is_reported():
    assert is_defective(matrix([1, 1], [0, 1]))
    assert eigenspaces(matrix([1, 1], [0, 1])) == [(1 + 0j, 2, 1)]
    assert eigenspaces(matrix([1, 0], [0, 1])) == [(1 + 0j, 2, 2)]
    assert not is_defective(matrix([1, 1], [0, 1.1]))
    for seed in range(5):
        assert is_defective(jordan(5, 1, torch.Generator().manual_seed(seed)))
        assert not is_defective(jordan(5, 0, torch.Generator().manual_seed(seed)))
    with pytest.raises(ValueError, match="as many independent eigenvectors as rows"):
        diagonalize(matrix([1, 1], [0, 1]))


@pytest.mark.covers("M3")
def test_positive_definite_iff_cholesky_succeeds_on_200_matrices():
    generator, found = torch.Generator().manual_seed(3), []
    for _ in range(200):
        a = symmetric(5, generator) / math.sqrt(5) + 1.7 * torch.eye(5)
        found.append(is_positive_definite(a))
        assert found[-1] == (torch.linalg.cholesky_ex(a).info == 0)
        probes = torch.randn(50, 5, generator=generator, dtype=torch.float64)
        lowest = torch.linalg.eigh(a).eigenvectors[:, 0]
        probes = torch.cat([probes, lowest[None]])
        assert found[-1] == bool(((probes @ a) * probes).sum(1).min() > 0)
    assert 40 < sum(found) < 160


@pytest.mark.covers("M3")
def test_a_zero_eigenvalue_is_not_positive_definite():
    assert not is_positive_definite(matrix([1, 0], [0, 0]))
    assert is_positive_definite(matrix([2, 1], [1, 2]))
    assert not is_positive_definite(matrix([1, 2], [2, 1]))


@pytest.mark.covers("M3")
@given(SEEDS)
@settings(max_examples=10, deadline=None)
def test_the_determinant_is_the_product_and_the_factor_on_an_area(seed):
    a = normal(2, seed)
    corners = matrix([0, 0], [2, 0.3], [1.5, 1.7])

    def area(p):
        one, two = p[1] - p[0], p[2] - p[0]
        return (one[0] * two[1] - one[1] * two[0]) / 2

    assert determinant(a) == pytest.approx(float(area(corners @ a.T) / area(corners)), rel=1e-8)
    assert determinant(a) == pytest.approx(np.linalg.det(a.numpy()), rel=1e-8)


@pytest.mark.covers("M3")
def test_a_reflection_keeps_volumes_though_its_determinant_is_minus_one():
    mirror = matrix([0, 1], [1, 0])
    assert determinant(mirror) == pytest.approx(-1)
    torch.testing.assert_close(mirror.T @ mirror, torch.eye(2).double())


@pytest.mark.covers("M3")
def test_eigenvectors_of_length_one_are_orthogonal_only_for_a_normal_matrix():
    """What the notes had wrong: V^-1 is V^T for the symmetric, not for the other matrix."""
    for name, inverse_is_transpose in (("symmetric", True), ("not symmetric", False)):
        _, vectors = diagonalize(matrix(*MATRICES[name]))
        identity = torch.eye(2) + 0j
        gap = (vectors.mH @ vectors - identity).abs().max()
        assert (gap < 1e-12) == inverse_is_transpose


def test_directions_that_are_drawn():
    found = {name: len(real_directions(matrix(*rows))) for name, rows in MATRICES.items()}
    assert found == {"symmetric": 2, "not symmetric": 2, "defective": 1, "rotation": 0}


def test_what_cannot_be_solved_is_refused():
    with pytest.raises(ValueError, match="A must be symmetric, because only then"):
        jacobi(matrix([1, 1], [0, 1]))
    with pytest.raises(ValueError, match="no eigenvalue was found in 2 steps; give a larger most"):
        qr_algorithm(normal(6, 0), most=2)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_recipe_reaches_its_goal(seed):
    assert simulate_metrics(RECIPES["eigen"], seed, matrices=40)[1]


def test_sizes_to_become_zero_fall_at_last_as_squares():
    """A sweep of Jacobi's method squares what is left, so that few are needed."""
    left = jacobi(symmetric(8, torch.Generator().manual_seed(0))).left
    assert len(left) <= 9
    assert left[-2] < left[-3] ** 1.5 < 1e-3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"size": 2}, r"size \(2\) must be a number from 3 to 40"),
        ({"matrices": 5}, r"matrices \(5\) must be at least 10"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        Eigenvalues(**fields)
