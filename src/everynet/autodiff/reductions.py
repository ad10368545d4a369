"""Operations that bring some axes down to one value, with numpy's names and arguments."""

from __future__ import annotations

import numpy as np

from everynet.autodiff.arraylike import Axis, Value, implements, value
from everynet.autodiff.elementwise import absolute, divide, multiply, subtract
from everynet.autodiff.graph import Op, Var


def _kept(x: Value, axis: Axis) -> tuple[int, ...]:
    """The shape of x with the reduced axes of length 1."""
    shape = [1] * x.ndim if axis is None else list(x.shape)
    for i in axis if isinstance(axis, tuple) else () if axis is None else (axis,):
        shape[i] = 1
    return tuple(shape)


def _spread(g: Value, x: Value, axis: Axis) -> Value:
    """The gradient, repeated over the axes that were reduced."""
    return np.broadcast_to(g.reshape(_kept(x, axis)), x.shape)


def _shared(g: Value, y: Value, x: Value, axis: Axis) -> Value:
    """The gradient, in equal parts to all elements of x that are equal to the result y."""
    kept = _kept(x, axis)
    chosen = x == y.reshape(kept)
    count = chosen.sum(axis=axis, keepdims=True, dtype=g.dtype)
    return g.reshape(kept) / count * chosen


class Sum(Op):
    """y = x_1 + ... + x_n."""

    symbol = "Σ"
    forward = staticmethod(lambda x, axis, keepdims: np.sum(x, axis=axis, keepdims=keepdims))
    vjps = (lambda g, y, x, axis, keepdims: _spread(g, x, axis),)


class Mean(Op):
    """y = (x_1 + ... + x_n) / n."""

    forward = staticmethod(lambda x, axis, keepdims: np.mean(x, axis=axis, keepdims=keepdims))
    vjps = (lambda g, y, x, axis, keepdims: _spread(g * (g.size / x.size), x, axis),)


class Max(Op):
    """y = the largest of x_1, ..., x_n."""

    forward = staticmethod(lambda x, axis, keepdims: np.max(x, axis=axis, keepdims=keepdims))
    vjps = (lambda g, y, x, axis, keepdims: _shared(g, y, x, axis),)


class Min(Op):
    """y = the smallest of x_1, ..., x_n."""

    forward = staticmethod(lambda x, axis, keepdims: np.min(x, axis=axis, keepdims=keepdims))
    vjps = (lambda g, y, x, axis, keepdims: _shared(g, y, x, axis),)


class Norm(Op):
    """y = (x_1^2 + ... + x_n^2)^(1/2), whose slopes are x / y; 0 where all of x is 0."""

    symbol = "‖·‖"
    vjps = (lambda g, y, x, axis, keepdims: _along(g, y, x, _kept(x, axis)),)

    @staticmethod
    def forward(x: Value, axis: Axis, keepdims: bool) -> Value:
        return np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims))


def _along(g: Value, y: Value, x: Value, kept: tuple[int, ...]) -> Value:
    """The gradient times the direction of x, which 0 has none of."""
    length = y.reshape(kept)
    return g.reshape(kept) * x / np.where(length == 0, 1.0, length)


class Logsumexp(Op):
    """y = log(e^x_1 + ... + e^x_n), whose slopes are the softmax, e^(x - y)."""

    vjps = (
        lambda g, y, x, axis, keepdims: (
            g.reshape(_kept(x, axis)) * np.exp(x - y.reshape(_kept(x, axis)))
        ),
    )

    @staticmethod
    def forward(x: Value, axis: Axis, keepdims: bool) -> Value:
        top = np.max(x, axis=axis, keepdims=True)
        total = np.sum(np.exp(x - top), axis=axis, keepdims=True)
        y = np.log(total) + top
        return y if keepdims else np.squeeze(y, axis)


# --------------------------------------------------------------------------------------- functions


@implements(np.sum)
def sum(a: Value, axis: Axis = None, *, keepdims: bool = False) -> Var:
    """The sum over `axis`, or over all elements."""
    return Sum.apply(a, axis, keepdims)


@implements(np.mean)
def mean(a: Value, axis: Axis = None, *, keepdims: bool = False) -> Var:
    """The mean over `axis`, or over all elements."""
    return Mean.apply(a, axis, keepdims)


@implements(np.var)
def var(a: Value, axis: Axis = None, *, ddof: int = 0, keepdims: bool = False) -> Var:
    """The mean square distance from the mean; with `ddof=1` divided by n - 1, not n."""
    off = subtract(a, mean(a, axis, keepdims=True))
    total = sum(multiply(off, off), axis, keepdims=keepdims)
    return divide(total, off.size // total.size - ddof)


@implements(np.max, np.amax)
def max(a: Value, axis: Axis = None, *, keepdims: bool = False) -> Var:
    """The largest over `axis`; elements that tie share its gradient equally."""
    return Max.apply(a, axis, keepdims)


@implements(np.min, np.amin)
def min(a: Value, axis: Axis = None, *, keepdims: bool = False) -> Var:
    """The smallest over `axis`; elements that tie share its gradient equally."""
    return Min.apply(a, axis, keepdims)


def logsumexp(input: Value, dim: Axis, keepdim: bool = False) -> Var:
    """The log of the sum of exp over `dim`; large inputs do not overflow."""
    return Logsumexp.apply(input, dim, keepdim)


@implements(np.linalg.norm)
def norm(
    x: Value, ord: float | str | None = None, axis: Axis = None, *, keepdims: bool = False
) -> Var:
    """The length of x over `axis`: the root of the sum of squares, with slope 0 at 0.

    Of a vector `ord` may also be 1, the sum of sizes, or infinity, the largest of them.
    """
    if ord in (None, "fro"):
        return Norm.apply(x, axis, keepdims)
    if isinstance(axis, tuple) or (axis is None and np.ndim(value(x)) != 1):
        raise ValueError(
            f"norm: ord ({ord}) of an array of shape {np.shape(value(x))} must be None, because "
            "norms of matrices other than the root of the sum of squares are not written yet; give "
            "axis=-1 for the norm of each row"
        )
    if ord == 2:
        return Norm.apply(x, axis, keepdims)
    if ord == 1:
        return sum(absolute(x), axis, keepdims=keepdims)
    if ord == np.inf:
        return max(absolute(x), axis, keepdims=keepdims)
    raise ValueError(f"norm: ord ({ord}) must be 1, 2 or infinity; others are not written yet")
