import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, minimize

from everynet.kernels.smo import solve


def problem(seed, n, bound=1.0):
    """A kernel matrix of points in the plane, classes that overlap, and bounds of each row."""
    random = np.random.default_rng(seed)
    y = np.where(random.random(n) < 0.5, -1.0, 1.0)
    y[:2] = -1, 1
    x = random.normal(size=(n, 2)) + 0.5 * y[:, None]
    k = np.exp(-((x[:, None] - x) ** 2).sum(-1))
    return k, y, np.minimum(y * bound, 0), np.maximum(y * bound, 0)


def learn(k, y, low, high, *, tol=1e-6, max_steps=100_000, slots=1000):
    given = []

    def fetch(wanted):
        given.append(wanted)
        return k[wanted]

    return solve(fetch, k.diagonal().copy(), y, low, high, tol=tol, max_steps=max_steps,
                 slots=slots), given  # fmt: skip


def value(beta, k, y):
    return y @ beta - beta @ k @ beta / 2


def test_two_points_by_hand():
    """f = beta (k(x, x1) - k(x, x0)): of points 2 apart on a line, beta = 1/2 and f(x) = x."""
    x = np.array([-1.0, 1.0])
    k, y = np.outer(x, x), np.array([-1.0, 1.0])
    found, _ = learn(k, y, np.array([-9.0, 0]), np.array([0, 9.0]))
    np.testing.assert_allclose(found.beta, [-0.5, 0.5])
    assert found.bias == pytest.approx(0)
    assert found.converged
    bounded, _ = learn(k, y, np.array([-0.2, 0]), np.array([0, 0.2]))
    np.testing.assert_allclose(bounded.beta, [-0.2, 0.2])


@given(seed=st.integers(0, 10_000), n=st.integers(2, 12), bound=st.floats(0.05, 20))
@settings(max_examples=30, deadline=None)
def test_the_dual_is_as_great_as_a_general_solver_makes_it(seed, n, bound):
    k, y, low, high = problem(seed, n, bound)
    found, _ = learn(k, y, low, high)
    assert found.converged
    assert abs(found.beta.sum()) < 1e-9
    assert (found.beta >= low).all()
    assert (found.beta <= high).all()
    other = minimize(
        lambda b: -value(b, k, y), np.zeros(n), jac=lambda b: k @ b - y, method="SLSQP",
        bounds=[*zip(low, high, strict=True)], constraints=LinearConstraint(np.ones(n), 0, 0),
    )  # fmt: skip
    assert value(found.beta, k, y) >= -other.fun - 1e-5 * max(1, abs(other.fun))


@given(seed=st.integers(0, 10_000), n=st.integers(3, 60), slots=st.integers(0, 70))
@settings(max_examples=30, deadline=None)
def test_short_memory_changes_the_time_and_not_the_answer(seed, n, slots):
    """Columns are dropped and fetched again; at no time is one asked for that is there."""
    k, y, low, high = problem(seed, n)
    whole, _ = learn(k, y, low, high)
    short, given = learn(k, y, low, high, slots=slots)
    assert short.converged
    f, g = (k @ each.beta + each.bias for each in (whole, short))
    np.testing.assert_allclose(f, g, atol=1e-4)
    assert all(len(set(wanted.tolist())) == len(wanted) <= max(1, slots // 2) for wanted in given)
    assert whole.columns <= n


def test_few_columns_are_computed_beside_those_of_support_vectors():
    random = np.random.default_rng(0)
    y = np.where(np.arange(1000) % 2, 1.0, -1.0)
    x = random.normal(size=(1000, 10)) + 0.9 * y[:, None]
    k = np.exp(-0.05 * ((x[:, None] - x) ** 2).sum(-1))
    found, _ = learn(k, y, np.minimum(y, 0), np.maximum(y, 0), tol=1e-3)
    support = int((found.beta != 0).sum())
    assert support <= found.columns < 0.3 * len(y)


def test_float32_columns_and_pauses_give_the_same(monkeypatch):
    k, y, low, high = problem(1, 80)
    whole, _ = learn(k, y, low, high)
    monkeypatch.setattr("everynet.kernels.smo.STEPS", 3)
    paused, _ = learn(k, y, low, high)
    np.testing.assert_array_equal(paused.beta, whole.beta)
    assert paused.steps == whole.steps
    narrow, _ = learn(k.astype(np.float32), y, low, high)
    np.testing.assert_allclose(narrow.beta, whole.beta, atol=1e-3)
    broken_off, _ = learn(k, y, low, high, max_steps=5)
    assert (broken_off.steps, broken_off.converged) == (5, False)


def test_equal_rows_of_both_classes_end():
    """There is no curvature between them: the step is bounded by C alone."""
    k, y = np.ones((4, 4)), np.array([-1.0, 1.0, -1.0, 1.0])
    found, _ = learn(k, y, np.minimum(y, 0), np.maximum(y, 0))
    assert found.converged
    np.testing.assert_allclose(found.beta, y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"low": np.zeros(3)}, r"diagonal, y \(4 rows\), low and high must have one length"),
        ({"low": np.ones(4)}, "low must be at most 0, high at least 0, both finite"),
        ({"high": np.full(4, np.inf)}, "both finite"),
        ({"tol": 0.0}, "and tol positive"),
        ({"fetch": lambda wanted: np.ones((1, 9))}, r"fetch must give \[2, 4\] numbers, not"),
        ({"fetch": lambda wanted: np.full((2, 4), np.nan)}, "the kernel is too large for some"),
    ],
)
def test_what_the_loop_could_not_bear_is_refused(change, message):
    y = np.array([-1.0, 1.0, -1.0, 1.0])
    given = {
        "fetch": lambda wanted: np.eye(4)[wanted], "diagonal": np.ones(4), "y": y,
        "low": np.minimum(y, 0), "high": np.maximum(y, 0), "tol": 1e-3, "max_steps": 9, "slots": 4,
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        solve(**{**given, **change})
