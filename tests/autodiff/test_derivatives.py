"""Gradients, Jacobians, Hessians and products of functions, beside torch and differences."""

import numpy as np
import pytest
import torch
from torch.autograd.functional import hessian as torch_hessian
from torch.autograd.functional import hvp as torch_hvp
from torch.autograd.functional import jacobian as torch_jacobian
from torch.autograd.functional import jvp as torch_jvp

import everynet.autodiff as ad

RANDOM = np.random.default_rng(3)
X, V = RANDOM.standard_normal((2, 4))
M = RANDOM.standard_normal((3, 4))


def vector(m, x):
    """From four numbers to three."""
    return m.tanh(m.matmul(M_OF[m], x)) * m.sin(x[:3]) + x[3] ** 2


def scalar(m, x):
    return (vector(m, x) * m.exp(0.3 * x[1:])).sum()


M_OF = {ad: M, torch: torch.as_tensor(M)}


def ours(f):
    return lambda x: f(ad, x)


def theirs(f):
    return lambda x: f(torch, x)


def close(a, b):
    np.testing.assert_allclose(a, b.detach().numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.covers("A4")
def test_against_torch():
    """A4: every product of derivatives is torch's."""
    t, v = torch.as_tensor(X), torch.as_tensor(V)
    close(ad.jacobian(ours(vector))(X), torch_jacobian(theirs(vector), t))
    close(ad.hessian(ours(scalar))(X), torch_hessian(theirs(scalar), t))
    close(ad.hvp(ours(scalar), X, V), torch_hvp(theirs(scalar), t, v)[1])
    close(ad.jvp(ours(vector), X, V), torch_jvp(theirs(vector), t, v)[1])
    close(ad.grad(ours(scalar))(X), torch_jacobian(theirs(scalar), t))


@pytest.mark.covers("A4")
def test_against_differences():
    """A4: gradient, Jacobian, Hessian and both products are those of differences to 1e-6."""
    f = ours(scalar)
    np.testing.assert_allclose(ad.grad(f)(X), ad.finite_difference(f, X), rtol=1e-6)
    columns = [ad.finite_difference(lambda x, i=i: ad.grad(f)(x)[i], X) for i in range(4)]
    np.testing.assert_allclose(ad.hessian(f)(X), columns, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(ad.hvp(f, X, V), np.array(columns) @ V, rtol=1e-6)
    rows = [ad.finite_difference(lambda x, i=i: vector(ad, x)[i], X) for i in range(3)]
    np.testing.assert_allclose(ad.jacobian(ours(vector))(X), rows, rtol=1e-6, atol=1e-8)
    h = 1e-6
    slope = (vector(ad, X + h * V).val - vector(ad, X - h * V).val) / (2 * h)
    np.testing.assert_allclose(ad.jvp(ours(vector), X, V), slope, rtol=1e-6)


@pytest.mark.covers("A4")
def test_tensors_flatten():
    """A4: the Jacobian of Y by X has the axes of Y, then of X; W x gives rows x^T for each W_i."""
    w, x = RANDOM.standard_normal((2, 3)), RANDOM.standard_normal(3)
    j = ad.jacobian(lambda w: w @ x)(w)
    assert j.shape == (2, 2, 3)
    for i in range(2):
        np.testing.assert_allclose(j[i, i], x)
        np.testing.assert_allclose(j[i, 1 - i], 0)
    np.testing.assert_allclose(ad.grad(lambda w: ad.sum(w @ x))(w), np.stack([x, x]))
    u = RANDOM.standard_normal(2)
    np.testing.assert_allclose(
        ad.grad(lambda w: ad.sum(u * ad.sin(w @ x)))(w),
        np.tensordot(u, ad.jacobian(lambda w: ad.sin(w @ x))(w), 1),
    )


def test_derivatives_of_any_order():
    f = lambda x: ad.sin(x) * x**3  # noqa: E731 -- a formula
    x, derivatives = 0.7, [f]
    for _ in range(4):
        derivatives.append(ad.grad(derivatives[-1]))
    s, c = np.sin(x), np.cos(x)
    fourth = s * x**3 - 12 * c * x**2 - 36 * s * x + 24 * c
    np.testing.assert_allclose(derivatives[4](x), fourth, rtol=1e-12)


def test_what_a_function_closes_over_is_another_variable():
    assert ad.grad(lambda x: ad.grad(lambda y: x * y)(x))(3.0) == 1
    assert ad.grad(lambda x: x * ad.grad(lambda y: x * y * y)(2.0))(3.0) == 24
    assert ad.grad(lambda x: ad.grad(lambda y: y * y)(2.0) * x)(3.0) == 4
    assert ad.grad(lambda x: ad.hvp(lambda y: x * y * y, 1.0, 5.0))(3.0) == 10
    assert ad.grad(lambda x: ad.jvp(lambda y: x * y * y, 2.0, 1.0))(3.0) == 4
    inner = ad.jacobian(lambda x: ad.jacobian(lambda y: y * x)(x).sum())
    np.testing.assert_array_equal(inner(np.ones(2)), [1, 1])


def test_arrays_in_arrays_out_and_vars_in_vars_out():
    assert isinstance(ad.grad(ad.sin)(1.0), np.generic | np.ndarray)
    x = ad.Var(1.0)
    slope = ad.grad(ad.sin)(x)
    assert isinstance(slope, ad.Var)
    slope.backward()
    np.testing.assert_allclose(x.grad, -np.sin(1.0))
    kept = ad.grad(lambda x: x * x)(ad.Var(2.0))
    assert kept.val == 4


def test_several_arguments():
    f = lambda a, b, c: a * b + c  # noqa: E731 -- a formula
    assert ad.grad(f, 1)(2.0, 3.0, 4.0) == 2
    assert ad.grad(f, (0, 2))(2.0, 3.0, 4.0) == (3, 1)
    assert ad.value_and_grad(f, (0, -1))(2.0, 3.0, 4.0) == (10, (3, 1))
    np.testing.assert_allclose(ad.jacobian(f, 1)(np.ones(2), np.ones(2), 0.0), np.eye(2))
    np.testing.assert_allclose(ad.hessian(lambda a, b: a * b**2, 1)(3.0, 1.0), 6)


def test_no_dependence_is_zero():
    np.testing.assert_array_equal(ad.grad(lambda x: ad.Var(2.0))(X), np.zeros(4))
    np.testing.assert_array_equal(ad.grad(lambda x: 2.0)(X), np.zeros(4))
    np.testing.assert_array_equal(ad.hessian(ad.sum)(X), np.zeros((4, 4)))
    np.testing.assert_array_equal(ad.jvp(lambda x: ad.Var([1.0, 2.0]), X, V), [0, 0])
    np.testing.assert_array_equal(ad.jacobian(lambda x: x[:0])(X), np.zeros((0, 4)))


def test_gradients_can_be_written_to():
    g = ad.grad(ad.sum)(X)
    g += 1
    a, b = ad.grad(lambda a, b: ad.sum(a + b), (0, 1))(X, V)
    a *= 2
    np.testing.assert_array_equal(b, np.ones(4))


def test_derivatives_leave_other_gradients_alone():
    w = ad.Var(2.0)
    assert ad.grad(lambda x: w * x)(3.0) == 2
    assert w.grad is None
    with ad.no_grad():
        assert ad.grad(lambda x: x * x)(3.0) == 6


@pytest.mark.covers("A5")
def test_finite_differences_cost_a_forward_pass_for_each_parameter():
    """A5: P + 1 evaluations one-sided, 2 P central; a backward pass is one."""
    counts = []

    def f(x):
        counts.append(1)
        return ad.sum(ad.sin(x))

    for p in (5, 50):
        x = np.linspace(0, 1, p)
        for central, calls in ((False, p + 1), (True, 2 * p)):
            counts.clear()
            near = ad.finite_difference(f, x, 1e-6, central)
            assert len(counts) == calls
            np.testing.assert_allclose(near, np.cos(x), atol=1e-6)
        counts.clear()
        ad.grad(f)(x)
        assert len(counts) == 1


def test_gradcheck_finds_a_wrong_rule():
    class Wrong(ad.Op):
        forward = np.sin
        vjps = (lambda g, y, x: g * np.sin(x),)

    class WrongAgain(ad.Op):
        forward = np.sin
        vjps = (lambda g, y, x: g * ad.cos(ad.stop_gradient(x)),)

    with pytest.raises(
        ArithmeticError, match=r"gradcheck: .* argument 0 \(shape \(4,\)\) at \(0,\)"
    ):
        ad.gradcheck(Wrong.apply, X)
    assert ad.gradcheck(WrongAgain.apply, X)
    with pytest.raises(ArithmeticError, match="gradcheck"):
        ad.gradcheck(WrongAgain.apply, X, order=2)
    assert ad.gradcheck(lambda a, b: ad.sin(a) * b, X, V, order=3, rtol=1e-5)


def test_float32_derivatives():
    x = X.astype(np.float32)
    for result in (ad.grad(ad.sum)(x), ad.hessian(lambda x: ad.sum(x**3))(x), ad.jvp(ad.sin, x, x)):
        assert result.dtype == np.float32
