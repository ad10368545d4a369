"""Bad input ends in one line that names the operation and the shapes."""

import numpy as np
import pytest

import everynet.autodiff as ad
from everynet.autodiff import Var

X = Var(np.ones((2, 3)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: X + Var(np.ones(4)), r"add of shapes \(2, 3\) and \(4,\): "),
        (lambda: X * np.ones((3, 2)), r"multiply of shapes \(2, 3\) and \(3, 2\): "),
        (lambda: X @ Var(np.ones((2, 3))), r"matmul of shapes \(2, 3\) and \(2, 3\): "),
        (lambda: X @ np.ones(4), r"matmul of shapes \(2, 3\) and \(4, 1\): "),
        (lambda: X.reshape(4, 2), r"reshape of shape \(2, 3\): cannot"),
        (lambda: X.sum(2), r"sum of shape \(2, 3\): axis 2"),
        (
            lambda: ad.concatenate([X, np.ones((3, 2))]),
            r"concatenate of shapes \(2, 3\) and \(3, 2\)",
        ),
        (
            lambda: ad.where([True, False], X, 0.0),
            r"where of shapes \(2, 3\) and \(\) and \(2,\): ",
        ),
        (lambda: ad.solve(np.eye(2), np.ones((3, 1))), r"solve of shapes \(2, 2\) and \(3, 1\): "),
        (
            lambda: ad.solve(np.zeros((2, 2)), np.ones((2, 1))),
            r"solve of shapes .*: Singular matrix",
        ),
        (lambda: ad.cholesky(-np.eye(2)), r"cholesky of shape \(2, 2\): .*not positive"),
        (
            lambda: ad.cross_entropy(X, [0, 1, 2]),
            r"cross_entropy of shapes \(2, 3\) and \(3,\) \(int64\): must be logits",
        ),
        (
            lambda: ad.cross_entropy(X, [0.5, 1.0]),
            r"cross_entropy of .*\(float64\): must be logits",
        ),
        (
            lambda: ad.cross_entropy(X, [0, 3]),
            r"cross_entropy .* target \(0 to 3\) must be from 0 to 2",
        ),
        (lambda: ad.cross_entropy(X, [0, 1], "median"), r"reduction \(median\) must be 'none'"),
        (
            lambda: ad.binary_cross_entropy_with_logits(X, np.ones(3)),
            r"binary_cross_entropy_with_logits of shapes \(2, 3\) and \(3,\): must be the same",
        ),
        (
            lambda: ad.conv2d(np.ones((1, 2, 5, 5)), np.ones((4, 3, 3, 3))),
            r"conv2d of shapes \(1, 2, 5, 5\) and \(4, 3, 3, 3\): .* the same channels",
        ),
        (
            lambda: ad.conv2d(np.ones((1, 2, 2, 5)), np.ones((4, 2, 3, 3))),
            r"conv2d of shape \(1, 2, 2, 5\): .* room for the kernel \(3, 3\)",
        ),
        (
            lambda: ad.conv2d(np.ones((1, 2, 5, 5)), np.ones((4, 2, 3, 3)), np.ones(3)),
            r"conv2d of shapes .*: bias of shape \(3,\) must be \(4,\)",
        ),
        (lambda: ad.max_pool2d(X, 2), r"max_pool2d of shape \(2, 3\): must be \(batch, channels"),
        (
            lambda: ad.avg_pool2d(np.ones((1, 1, 4, 4)), 2, 0),
            r"avg_pool2d of shape .*stride \(0, 0\) must be at least 1",
        ),
        (lambda: ad.pad(X, 1, mode="wrap"), r"pad: mode \(wrap\) must be 'constant'"),
        (X.backward, r"backward of a leaf: .*\(2, 3\) must be given a seed"),
        ((X * X).backward, r"backward of multiply: .*\(2, 3\) must be given a seed"),
        (
            lambda: (X * X).backward(np.ones(3)),
            r"backward of multiply: seed of shape \(3,\) must have the shape \(2, 3\)",
        ),
        (lambda: ad.exp(1.0).backward(), r"backward of a leaf: .*must depend on a Var"),
        (lambda: ad.grad(ad.exp)(np.ones(3)), r"grad of a function with value of shape \(3,\)"),
        (
            lambda: ad.grad(ad.multiply, argnums=5)(1.0, 2.0),
            r"grad: argnums \(5\) must be from 0 to 1, because the function was given 2 arguments",
        ),
        (
            lambda: ad.grad(ad.exp, -2)(1.0),
            r"grad: argnums \(-2\) must be 0, because .* 1 argument,",
        ),
        (
            lambda: ad.grad(ad.add, (0, -2))(1.0, 2.0),
            r"argnums \(\(0, -2\)\) must name each .* once",
        ),
        (lambda: ad.hessian(ad.exp, 1)(1.0), r"jacobian: argnum \(1\) must be 0"),
        (lambda: ad.einsum("ij,jk", X), r"einsum: subscripts \(ij,jk\) .*: 2 for 1 given"),
        (lambda: ad.einsum("i", X), r"einsum: .*: 'i' has 1 for an array of 2 axes"),
        (lambda: ad.einsum("ijk", X), r"einsum: .*: 'ijk' has 3 for an array of 2 axes"),
        (lambda: ad.einsum("i1", X), r"einsum: .* must hold letters, .*, not '1'"),
        (lambda: ad.einsum("...j->j", X), r"einsum: .* must have \.\.\. in the result too"),
        (lambda: ad.einsum("ij,jk", X, X), r"einsum of shapes \(2, 3\) and \(2, 3\): "),
        (lambda: ad.norm(X, 2), r"norm: ord \(2\) of an array of shape \(2, 3\) must be None"),
        (lambda: ad.norm(X, 3, -1), r"norm: ord \(3\) must be 1, 2 or infinity"),
    ],
)
def test_wrong_shapes_and_values(call, message):
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Var(3), r"Var of shape \(\) \(dtype int64\) must be float32 or float64"),
        (lambda: Var([True]), r"Var of shape \(1,\) \(dtype bool\) must be float32"),
        (lambda: Var(1j), r"dtype complex128"),
        (lambda: ad.grad(ad.exp)(3), r"grad by an argument of shape \(\) \(dtype int64\)"),
        (lambda: ad.hessian(ad.sum)(np.arange(3)), r"jacobian by an argument of shape \(3,\)"),
        (lambda: np.asarray(X), r"Var of shape \(2, 3\) must not be turned into an array"),
        (lambda: np.cumsum(X), r"cumsum must be given arrays, because no derivative is known"),
        (lambda: np.add(X, 1, out=np.ones((2, 3))), r"add with out must be given arrays"),
        (lambda: np.add.reduce(X), r"add.reduce with a Var must be given arrays"),
        (lambda: X + "a", r"add of shape \(2, 3\)"),
        (ad.grad(ad.exp), r"grad of a function must be given its arguments"),
    ],
)
def test_wrong_types(call, message):
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ad.grad(X), r"grad must be given a function, not Var: .* take backward"),
        (lambda: ad.grad(ad.exp, (0.5,))(1.0), r"grad: argnums \(\(0.5,\)\) must be a number"),
        (lambda: ad.grad(ad.exp, "x")(1.0), r"grad: argnums \(x\) must be a number"),
        (lambda: ad.einsum(X, [0, 1]), r"einsum: subscripts must be text such as .*, not Var"),
    ],
)
def test_types_that_no_signature_checks(unchecked, call, message):
    with pytest.raises(TypeError, match=message):
        call()


def test_wrong_index():
    with pytest.raises(IndexError, match=r"index of shape \(2, 3\): index 5 is out of bounds"):
        X[5]


def test_integers_may_be_constants():
    assert Var([1, 2], requires_grad=False).dtype == np.int64
    assert (X * np.arange(3)).dtype == np.float64


def test_nan_names_the_operation_when_asked():
    x = Var([1.0, -1.0, 0.0])
    with ad.check_finite():
        with pytest.raises(
            FloatingPointError,
            match=r"log of shape \(3,\): its value of shape \(3,\) must be finite, but 2 of 3",
        ):
            ad.log(x * x * x)
        y = ad.sum(ad.sqrt(x * x))  # finite, but its slope at 0 is not
        with pytest.raises(FloatingPointError, match=r"sqrt of shape \(3,\): the gradient of arg"):
            y.backward()
        assert ad.exp(x).shape == (3,)
    with np.errstate(all="ignore"):
        assert np.isnan(ad.log(x).val[1])  # not asked: numpy's own meaning
