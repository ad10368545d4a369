import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.system.errors import UserError
from everynet.zoo.theory.linear_map import (
    RECIPES,
    LinearMap,
    combine_columns,
    decompose,
    penrose_errors,
    pseudoinverse,
    random_system,
    singular_values,
    solve,
)
from tests.zoo.theory.simulated import simulate_metrics

SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(0, 10_000))


def matrix(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def normal(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def kind_by_ranks(a, b):
    """The textbook's test: no answer where b raises the rank, else by the columns."""
    rank = np.linalg.matrix_rank(a.numpy())
    scaled = b / b.norm().clamp(min=1e-300)  # else a long b would hide the matrix
    with_b = torch.cat([a / a.norm().clamp(min=1e-300), scaled[:, None]], dim=1).numpy()
    if np.linalg.matrix_rank(with_b, tol=1e-9) > rank:
        return "none"
    return "unique" if rank == a.shape[1] else "infinite"


@given(SHAPES)
@settings(max_examples=25, deadline=None)
def test_a_product_is_a_sum_over_the_columns(shape):
    """Over n columns, not over m rows: both a tall and a wide matrix."""
    m, n, seed = shape
    a, x = normal(m, n, seed=seed), normal(n, seed=seed + 1)
    torch.testing.assert_close(combine_columns(a, x), a @ x)


@pytest.mark.covers("M2")
@pytest.mark.parametrize(
    ("a", "b", "kind"),
    [
        (matrix([2, 1], [1, 3]), matrix(3, 5), "unique"),
        (matrix([1, 1], [1, 1]), matrix(1, 2), "none"),
        (matrix([1, 1], [2, 2]), matrix(1, 2), "infinite"),
        (matrix([1, 0], [0, 1], [1, 1]), matrix(1, 2, 4), "none"),
        (matrix([1, 0], [0, 1], [1, 1]), matrix(1, 2, 3), "unique"),
        (matrix([1, 2, 3]), matrix(6), "infinite"),
        (matrix([0, 0], [0, 0]), matrix(0, 0), "infinite"),
        (matrix([0, 0], [0, 0]), matrix(0, 1), "none"),
    ],
)
def test_systems_made_by_hand(a, b, kind):
    found = solve(a, b)
    assert found.kind == kind == kind_by_ranks(a, b)
    if kind != "none":
        torch.testing.assert_close(a @ found.x, b)


@pytest.mark.covers("M2")
def test_two_hundred_random_systems_agree_with_the_ranks_of_numpy():
    generator = torch.Generator().manual_seed(4)
    kinds = set()
    for _ in range(200):
        a, b, kind = random_system(6, generator)
        assert solve(a, b).kind == kind == kind_by_ranks(a, b)
        assert decompose(a).rank() == np.linalg.matrix_rank(a.numpy())
        kinds.add(kind)
    assert kinds == {"none", "unique", "infinite"}


@pytest.mark.covers("M2")
def test_every_b_is_reached_iff_the_rank_is_the_number_of_rows():
    wide, tall = normal(2, 4), normal(4, 2)
    assert {solve(wide, normal(2, seed=s)).kind for s in range(20)} == {"infinite"}
    assert {solve(tall, normal(4, seed=s)).kind for s in range(20)} == {"none"}


@pytest.mark.covers("M2")
def test_a_square_matrix_is_singular_iff_an_eigenvalue_is_zero():
    axes = decompose(normal(4, 4)).u
    for spectrum, kind in ((matrix(3, -2, 1, 0.5), "unique"), (matrix(3, -2, 1, 0), "none")):
        a = axes @ spectrum.diag() @ axes.T
        assert solve(a, normal(4, seed=1)).kind == kind
        assert decompose(a).rank() == int((torch.linalg.eigvalsh(a).abs() > 1e-12).sum())


@pytest.mark.covers("M4")
@given(SHAPES)
@settings(max_examples=25, deadline=None)
def test_the_decomposition_is_two_rotations_and_a_stretch(shape):
    m, n, seed = shape
    a = normal(m, n, seed=seed)
    svd = decompose(a)
    both = torch.eye(min(m, n), dtype=torch.float64)
    torch.testing.assert_close(svd.matrix(), a, rtol=0, atol=1e-12)
    torch.testing.assert_close(svd.u.T @ svd.u, both)
    torch.testing.assert_close(svd.v.T @ svd.v, both)
    torch.testing.assert_close(svd.sigma, singular_values(a), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(a @ svd.v, svd.u * svd.sigma)


@pytest.mark.covers("M4")
@given(SHAPES, st.integers(1, 6))
@settings(max_examples=25, deadline=None)
def test_the_pseudoinverse_meets_the_four_conditions_and_is_numpys(shape, rank):
    m, n, seed = shape
    a = normal(m, rank, seed=seed) @ normal(rank, n, seed=seed + 1)
    inverse = pseudoinverse(a)
    scale = inverse.norm() * (1 + inverse.norm()) * (1 + a.norm())
    assert penrose_errors(a, inverse).max() <= 1e-12 * scale
    expected = torch.from_numpy(np.linalg.pinv(a.numpy(), rcond=1e-13))
    torch.testing.assert_close(inverse, expected, rtol=1e-7, atol=1e-10 * float(inverse.norm()))


@pytest.mark.covers("M4")
def test_each_condition_refuses_some_matrix_that_is_no_pseudoinverse():
    a = matrix([1, 0], [0, 0])
    wrong = [
        matrix([0, 0], [0, 0]),  # A X A is not A
        matrix([1, 0], [0, 1]),  # X A X is not X
        matrix([1, 1], [0, 0]),  # A X is not symmetric
        matrix([1, 0], [1, 0]),  # X A is not symmetric
    ]
    found = torch.stack([penrose_errors(a, x) > 0 for x in wrong])
    assert torch.equal(found, torch.eye(4, dtype=torch.bool))
    assert penrose_errors(a, a).max() == 0


@pytest.mark.covers("M4")
def test_the_answer_is_least_squares_of_a_tall_and_the_shortest_of_a_wide_matrix():
    tall, b = normal(6, 3), normal(6, seed=1)
    expected = np.linalg.lstsq(tall.numpy(), b.numpy(), rcond=None)[0]
    torch.testing.assert_close(solve(tall, b).x, torch.from_numpy(expected))
    torch.testing.assert_close(solve(tall, b).x, pseudoinverse(tall) @ b)
    wide, b = normal(3, 6), normal(3, seed=1)
    x = solve(wide, b).x
    torch.testing.assert_close(wide @ x, b)
    _, _, axes = torch.linalg.svd(wide)
    for step in axes[3:]:  # the null space
        assert (wide @ (x + step) - b).norm() < 1e-12
        assert (x + step).norm() > x.norm()
        assert abs(x @ step) < 1e-12


def test_nan_is_refused():
    with pytest.raises(ValueError, match="A and b must be finite, because NaN and infinity"):
        solve(matrix([1, float("nan")]), matrix(1))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_recipe_reaches_its_goal(seed):
    metrics, reached = simulate_metrics(RECIPES["linear-map"], seed)
    assert reached
    assert metrics["normal_error"] < 1e-10
    assert metrics["null_part"] < 1e-10
    assert metrics["stretch_1"] * metrics["stretch_2"] == pytest.approx(1.3)  # |det|


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"matrix": (1.0, 2.0)}, r"matrix \(\(1.0, 2.0\)\) must be four finite numbers"),
        ({"matrix": (1.0, 2.0, 3.0, float("inf"))}, "must be four finite numbers"),
        ({"systems": 0}, r"systems \(0\) must be at least 1"),
        ({"longest": 0}, r"longest \(0\) must be at least 1"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        LinearMap(**fields)
