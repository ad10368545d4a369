"""M9, M10, M11: directional derivatives, layouts of matrix calculus, best steps."""

import numpy as np
import pytest

import everynet.autodiff as ad
from everynet.autodiff.calculus import directional_derivative, numerator_layout, optimal_step

RANDOM = np.random.default_rng(2)
D = np.diag([1.0, 4.0, 9.0])
SURFACES = {
    "sphere": lambda x: ad.sum(x * x),
    "quadric": lambda x: x @ D @ x + x[0] * x[1],
}


@pytest.mark.covers("M9")
@pytest.mark.parametrize("name", SURFACES)
def test_the_gradient_is_the_steepest_way_up(name):
    """M9: over unit u the slope is u . grad, at most |grad|, at u = grad / |grad|."""
    f, x = SURFACES[name], np.array([0.5, -1.0, 0.3])
    g = ad.grad(f)(x)
    length = np.linalg.norm(g)
    u = RANDOM.standard_normal((10_000, 3))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    slopes = u @ g
    for i in range(0, 10_000, 2_000):
        assert directional_derivative(f, x, 3 * u[i]) == pytest.approx(slopes[i], rel=1e-12)
    assert length * (1 - 1e-3) < slopes.max() <= length
    assert u[slopes.argmax()] @ g / length > 1 - 1e-3
    assert directional_derivative(f, x, g) == pytest.approx(length, rel=1e-12)
    assert directional_derivative(f, x, -g) == pytest.approx(-length, rel=1e-12)


@pytest.mark.covers("M9")
@pytest.mark.parametrize("name", SURFACES)
def test_the_gradient_is_normal_to_the_level_surface(name):
    """M9: a curve that stays on the surface is at right angles to the gradient."""
    f, level = SURFACES[name], 2.0
    way, turn = RANDOM.standard_normal((2, 3))

    def on_surface(s):  # both are quadratic forms: rescale to the level
        p = way + s * turn
        return p * (level / f(p)) ** 0.5

    tangent = ad.jacobian(on_surface)(0.3)
    at = on_surface(ad.stop_gradient(0.3)).val
    assert float(f(at)) == pytest.approx(level)
    assert abs(tangent @ ad.grad(f)(at)) < 1e-12 * np.linalg.norm(ad.grad(f)(at))


@pytest.mark.covers("M10")
def test_the_five_layouts():
    """M10: each derivative has the stated shape and is the Jacobian."""
    a, x = RANDOM.standard_normal((3, 4)), RANDOM.standard_normal(4)
    m = RANDOM.standard_normal((3, 4))
    curve = lambda t: a @ ad.sin(t * x)  # noqa: E731 -- a formula
    np.testing.assert_allclose(numerator_layout(curve, 0.5)[:, 0], ad.jacobian(curve)(0.5))
    assert numerator_layout(curve, 0.5).shape == (3, 1)
    height = lambda x: ad.sum(ad.exp(x))  # noqa: E731 -- a formula
    np.testing.assert_allclose(numerator_layout(height, x), np.exp(x)[None])
    np.testing.assert_allclose(numerator_layout(lambda x: a @ x, x), a)
    matrix = lambda t: t * t * m  # noqa: E731 -- a formula
    np.testing.assert_allclose(numerator_layout(matrix, 2.0), 4 * m)
    bilinear = lambda m: ad.sum((m @ x) * a[:, 0])  # noqa: E731 -- a formula
    np.testing.assert_allclose(numerator_layout(bilinear, m), np.outer(x, a[:, 0]))
    assert numerator_layout(bilinear, m).shape == (4, 3)
    with pytest.raises(
        ValueError, match=r"numerator_layout of shape \(2, 2\) by shape \(2, 2\): must"
    ):
        numerator_layout(lambda x: x * x, np.ones((2, 2)))


@pytest.mark.covers("M10")
def test_rules_of_matrix_calculus():
    """M10: y = A x(z), alpha = y(z)^T x(z), and the quotient rule, on random functions of z."""
    a, p, q = RANDOM.standard_normal((3, 4, 5))[:, :4, :4]
    z = RANDOM.standard_normal(4)
    x, y = (lambda z: ad.sin(p @ z)), (lambda z: ad.tanh(q @ z) + z)
    dx, dy = numerator_layout(x, z), numerator_layout(y, z)
    np.testing.assert_allclose(numerator_layout(lambda z: a @ x(z), z), a @ dx)
    product = numerator_layout(lambda z: y(z) @ x(z), z)
    xz, yz = x(z).val, y(z).val
    np.testing.assert_allclose(product, (xz @ dy + yz @ dx)[None])
    f, g = (lambda t: ad.sin(t) + 2), (lambda t: t * t + 1)
    t = 0.7
    quotient = ad.grad(f)(t) / g(t) - f(t) * ad.grad(g)(t) / g(t) ** 2
    np.testing.assert_allclose(ad.grad(lambda t: f(t) / g(t))(t), quotient.val)


def quadratic(seed=0):
    root = np.random.default_rng(seed).standard_normal((4, 4))
    h, b = root @ root.T + 0.1 * np.eye(4), np.arange(4.0)
    return (lambda x: 0.5 * (x @ h @ x) - x @ b), h, b


def test_optimal_step_is_the_line_search_of_a_quadratic():
    """M11: eps* minimises along the gradient, and takes off (g^T g)^2 / (2 g^T H g)."""
    f, h, b = quadratic()
    x = np.array([1.0, -2.0, 0.5, 3.0])
    g = ad.grad(f)(x)
    np.testing.assert_allclose(g, h @ x - b)
    step = optimal_step(f, x)
    search = np.linspace(0, 2 * step, 100_001)
    heights = [0.5 * e * e * g @ h @ g - e * g @ g for e in search]
    assert search[np.argmin(heights)] == pytest.approx(step, rel=1e-4)
    gained = float(f(x)) - float(f(x - step * g))
    assert gained == pytest.approx((g @ g) ** 2 / (2 * g @ h @ g), rel=1e-12)
    with pytest.raises(ValueError, match=r"curvature along the gradient \(-.*must be positive"):
        optimal_step(lambda x: -f(x), x)


@pytest.mark.parametrize("condition", [5.0, 50.0])
def test_condition_number_sets_the_speed_of_descent(condition):
    """M11: with the best fixed step the error shrinks by (k - 1) / (k + 1) each time."""
    f = lambda x: 0.5 * (condition * x[0] * x[0] + x[1] * x[1])  # noqa: E731 -- a formula
    x, rate = np.array([1.0, 1.0]), 2 / (condition + 1)
    norms = []
    for _ in range(50):
        x = x - rate * ad.grad(f)(x)
        norms.append(np.linalg.norm(x))
    expected = (condition - 1) / (condition + 1)
    assert (norms[-1] / norms[9]) ** (1 / 40) == pytest.approx(expected, rel=0.01)
