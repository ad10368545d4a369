"""Linear algebra: products of matrices, systems of equations, Cholesky factors.

    Y = A B        dA = G B^T          dB = A^T G                                (1)  product
    Y = A^-1 B     dB = A^-T G         dA = -dB Y^T                              (2)  system
    A = L L^T      dA = sym(L^-T half(L^T G) L^-1)                               (3)  Cholesky

G is the gradient by the result; half is the lower triangle with its diagonal halved, sym the mean
of a matrix and its transpose. Leading axes are a batch.
Giles (2008), "Collected matrix derivative results for forward and reverse mode algorithmic
differentiation", doi:10.1007/978-3-540-68942-3_4. Murray (2016), "Differentiation of the Cholesky
decomposition", arXiv:1602.07527.
"""

from __future__ import annotations

import numpy as np

from everynet.autodiff.arraylike import Value, implements, value
from everynet.autodiff.graph import Op, Var


def _t(x: Value) -> Value:
    return x.swapaxes(-1, -2)


def _rows(x: Value) -> Value:
    """All leading axes as one: to a matrix that a batch shares, the batch is more rows."""
    return x if x.ndim == 2 else x.reshape(-1, x.shape[-1])


class Matmul(Op):
    """Y = A B."""

    symbol = "@"
    forward = np.matmul
    vjps = (
        lambda g, y, a, b: g @ _t(b),  # (1)
        lambda g, y, a, b: _rows(a).T @ _rows(g) if b.ndim == 2 else _t(a) @ g,  # (1)
    )


class Solve(Op):
    """Y = A^-1 B."""

    forward = staticmethod(np.linalg.solve)
    vjps = (
        lambda g, y, a, b: -np.linalg.solve(_t(a), g) @ _t(y),  # (2)
        lambda g, y, a, b: np.linalg.solve(_t(a), g),  # (2)
    )


class Cholesky(Op):
    """A = Y Y^T, with Y lower triangular."""

    forward = staticmethod(np.linalg.cholesky)
    vjps = (lambda g, y, a: _cholesky_rule(g, y),)


def _cholesky_rule(g: Value, y: Value) -> Value:
    n = y.shape[-1]
    half = np.tril(np.ones((n, n), y.dtype)) - 0.5 * np.eye(n, dtype=y.dtype)
    inner = np.linalg.solve(_t(y), (_t(y) @ g) * half)
    d = _t(np.linalg.solve(_t(y), _t(inner)))
    return 0.5 * (d + _t(d))  # (3)


@implements(np.matmul)
def matmul(a: Value, b: Value) -> Var:
    """The product of matrices; a vector on the left is a row, on the right a column."""
    row, column = np.ndim(value(a)) == 1, np.ndim(value(b)) == 1
    if not (row or column):
        return Matmul.apply(a, b)
    y = Matmul.apply(a[None, :] if row else a, b[:, None] if column else b)
    return y.reshape(y.shape[:-2] + y.shape[-2:-1] * (not row) + y.shape[-1:] * (not column))


@implements(np.linalg.solve)
def solve(a: Value, b: Value) -> Var:
    """The x with a x = b; b is a vector, or a matrix with a column for each system."""
    if np.ndim(value(b)) != 1:
        return Solve.apply(a, b)
    y = Solve.apply(a, b[:, None])
    return y.reshape(y.shape[:-1])


@implements(np.linalg.cholesky)
def cholesky(a: Value) -> Var:
    """The lower triangular L with L L^T = a, for a symmetric and positive definite."""
    return Cholesky.apply(a)
