"""Operations on each element, with numpy's names and broadcasting.

A rule is (g, y, *args) -> the gradient by one argument: g, the gradient by the output y, times
the derivative of y by that argument. Where an argument was broadcast, the backward pass sums.
"""

from __future__ import annotations

import operator

import numpy as np

from everynet.autodiff.arraylike import Value, implements, value
from everynet.autodiff.graph import Op, Var


class Add(Op):
    """y = a + b."""

    symbol = "+"
    forward = operator.add
    vjps = (lambda g, y, a, b: g, lambda g, y, a, b: g)


class Subtract(Op):
    """y = a - b."""

    symbol = "\N{MINUS SIGN}"
    forward = operator.sub
    vjps = (lambda g, y, a, b: g, lambda g, y, a, b: -g)


class Multiply(Op):
    """y = a b."""

    symbol = "\N{MULTIPLICATION SIGN}"
    forward = operator.mul
    vjps = (lambda g, y, a, b: g * b, lambda g, y, a, b: g * a)


class Divide(Op):
    """y = a / b."""

    symbol = "÷"
    forward = operator.truediv
    vjps = (lambda g, y, a, b: g / b, lambda g, y, a, b: -g * y / b)


class Negative(Op):
    """y = -x."""

    symbol = "\N{MINUS SIGN}"
    forward = operator.neg
    vjps = (lambda g, y, x: -g,)


class Power(Op):
    """y = a^b; 0^b has slope 0 by b."""

    symbol = "^"
    forward = operator.pow
    vjps = (
        lambda g, y, a, b: g * b * a ** _less_one(b),
        lambda g, y, a, b: g * y * np.log(np.where(a == 0, 1.0, a)),
    )


def _less_one(b: Value) -> Value:
    """Less one, but 1 where b is 0: the derivative of a^0 is 0 a^1, also at a = 0."""
    if isinstance(b, int | float):
        return b - 1 if b else 1
    return np.where(b == 0, 1.0, b - 1)


class Exp(Op):
    """y = e^x."""

    forward = np.exp
    vjps = (lambda g, y, x: g * y,)


class Log(Op):
    """y = log x."""

    forward = np.log
    vjps = (lambda g, y, x: g / x,)


class Sqrt(Op):
    """y = x^(1/2)."""

    symbol = "√"
    forward = np.sqrt
    vjps = (lambda g, y, x: 0.5 * g / y,)


class Sin(Op):
    """y = sin x."""

    forward = np.sin
    vjps = (lambda g, y, x: g * np.cos(x),)


class Cos(Op):
    """y = cos x."""

    forward = np.cos
    vjps = (lambda g, y, x: -g * np.sin(x),)


class Tan(Op):
    """y = tan x."""

    forward = np.tan
    vjps = (lambda g, y, x: g * (1 + y * y),)


class Sinh(Op):
    """y = (e^x - e^-x) / 2."""

    forward = np.sinh
    vjps = (lambda g, y, x: g * np.cosh(x),)


class Cosh(Op):
    """y = (e^x + e^-x) / 2."""

    forward = np.cosh
    vjps = (lambda g, y, x: g * np.sinh(x),)


class Tanh(Op):
    """y = tanh x."""

    forward = np.tanh
    vjps = (lambda g, y, x: g * (1 - y * y),)


class Arctan(Op):
    """y = arctan x."""

    forward = np.arctan
    vjps = (lambda g, y, x: g / (1 + x * x),)


class Absolute(Op):
    """y = |x|, with slope 0 at 0."""

    symbol = "|·|"
    forward = np.absolute
    vjps = (lambda g, y, x: g * np.sign(x),)


class Maximum(Op):
    """y = max(a, b)."""

    symbol = "max"
    forward = np.maximum
    vjps = (lambda g, y, a, b: _winner(g, a, b), lambda g, y, a, b: _winner(g, b, a))


class Minimum(Op):
    """y = min(a, b)."""

    symbol = "min"
    forward = np.minimum
    vjps = (lambda g, y, a, b: _winner(g, b, a), lambda g, y, a, b: _winner(g, a, b))


def _winner(g: Value, a: Value, b: Value) -> Value:
    """All of g where a is the larger, half of it where the two are equal."""
    return np.where(a > b, g, np.where(a == b, g * 0.5, 0.0))


class Where(Op):
    """y = a where the condition holds, else b."""

    vjps = (
        lambda g, y, a, b, condition: np.where(condition, g, 0.0),
        lambda g, y, a, b, condition: np.where(condition, 0.0, g),
    )

    @staticmethod
    def forward(a: Value, b: Value, condition: Value) -> Value:
        return np.where(condition, a, b)


class Astype(Op):
    """y = x in another floating type."""

    vjps = (lambda g, y, x, dtype: g.astype(x.dtype),)

    @staticmethod
    def forward(x: Value, dtype: Value) -> Value:
        return np.asarray(x).astype(dtype, copy=False)


# --------------------------------------------------------------------------------------- functions


@implements(np.add)
def add(a: Value, b: Value) -> Var:
    """The sum a + b."""
    return Add.apply(a, b)


@implements(np.subtract)
def subtract(a: Value, b: Value) -> Var:
    """The difference a - b."""
    return Subtract.apply(a, b)


@implements(np.multiply)
def multiply(a: Value, b: Value) -> Var:
    """The product a b."""
    return Multiply.apply(a, b)


@implements(np.divide)
def divide(a: Value, b: Value) -> Var:
    """The quotient a / b."""
    return Divide.apply(a, b)


@implements(np.negative)
def negative(x: Value) -> Var:
    """The opposite -x."""
    return Negative.apply(x)


@implements(np.power)
def power(a: Value, b: Value) -> Var:
    """The power a^b."""
    return Power.apply(a, b)


@implements(np.square)
def square(x: Value) -> Var:
    """The square x x."""
    return Multiply.apply(x, x)


@implements(np.exp)
def exp(x: Value) -> Var:
    """The exponential e^x."""
    return Exp.apply(x)


@implements(np.log)
def log(x: Value) -> Var:
    """The natural logarithm."""
    return Log.apply(x)


@implements(np.sqrt)
def sqrt(x: Value) -> Var:
    """The square root."""
    return Sqrt.apply(x)


@implements(np.sin)
def sin(x: Value) -> Var:
    """The sine."""
    return Sin.apply(x)


@implements(np.cos)
def cos(x: Value) -> Var:
    """The cosine."""
    return Cos.apply(x)


@implements(np.tan)
def tan(x: Value) -> Var:
    """The tangent."""
    return Tan.apply(x)


@implements(np.sinh)
def sinh(x: Value) -> Var:
    """The hyperbolic sine."""
    return Sinh.apply(x)


@implements(np.cosh)
def cosh(x: Value) -> Var:
    """The hyperbolic cosine."""
    return Cosh.apply(x)


@implements(np.tanh)
def tanh(x: Value) -> Var:
    """The hyperbolic tangent."""
    return Tanh.apply(x)


@implements(np.arctan)
def arctan(x: Value) -> Var:
    """The inverse of the tangent."""
    return Arctan.apply(x)


@implements(np.absolute)
def absolute(x: Value) -> Var:
    """The size |x|, with slope 0 at 0."""
    return Absolute.apply(x)


@implements(np.maximum)
def maximum(a: Value, b: Value) -> Var:
    """The larger of a and b; where they are equal each gets half the gradient."""
    return Maximum.apply(a, b)


@implements(np.minimum)
def minimum(a: Value, b: Value) -> Var:
    """The smaller of a and b; where they are equal each gets half the gradient."""
    return Minimum.apply(a, b)


@implements(np.clip)
def clip(a: Value, a_min: Value = None, a_max: Value = None) -> Var:
    """`a` held between two bounds, either of which may be None."""
    low = a if a_min is None else maximum(a, a_min)
    high = low if a_max is None else minimum(low, a_max)
    return high if isinstance(high, Var) else Var(high, requires_grad=False)


@implements(np.where)
def where(condition: Value, x: Value, y: Value) -> Var:
    """Elements of x where the condition holds, else of y."""
    return Where.apply(x, y, np.asarray(value(condition)))


@implements(np.ndarray.astype)
def astype(x: Value, dtype: Value) -> Var:
    """The same in another floating type; the gradient comes back in its own."""
    return Astype.apply(x, np.dtype(dtype))
