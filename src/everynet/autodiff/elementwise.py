"""Operations on each element, with numpy's names and broadcasting.

A rule is (g, y, *args) -> the gradient by one argument: g, the gradient by the output y, times
the derivative of y by that argument. Where an argument was broadcast, the backward pass sums.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np

from everynet.autodiff.arraylike import Function, Value, implements, value
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
    """y = log x, the natural logarithm."""

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
    """y = max(a, b); where a = b each gets half the gradient."""

    symbol = "max"
    forward = np.maximum
    vjps = (lambda g, y, a, b: _winner(g, a, b), lambda g, y, a, b: _winner(g, b, a))


class Minimum(Op):
    """y = min(a, b); where a = b each gets half the gradient."""

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


def _unary(op: type[Op]) -> Callable[[Value], Var]:
    """The function x -> op(x), which numpy's function of that name calls for a Var."""

    def apply(x: Value) -> Var:
        return op.apply(x)

    return implements(getattr(np, op.name))(_rename(apply, op))


def _binary(op: type[Op]) -> Callable[[Value, Value], Var]:
    """The function (a, b) -> op(a, b), which numpy's function of that name calls for a Var."""

    def apply(a: Value, b: Value) -> Var:
        return op.apply(a, b)

    return implements(getattr(np, op.name))(_rename(apply, op))


def _rename(function: Function, op: type[Op]) -> Function:
    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = op.__doc__
    return function


add, subtract, multiply, divide = map(_binary, (Add, Subtract, Multiply, Divide))
power, maximum, minimum = map(_binary, (Power, Maximum, Minimum))
negative, absolute, sqrt, exp, log = map(_unary, (Negative, Absolute, Sqrt, Exp, Log))
sin, cos, tan, arctan = map(_unary, (Sin, Cos, Tan, Arctan))
sinh, cosh, tanh = map(_unary, (Sinh, Cosh, Tanh))


@implements(np.square)
def square(x: Value) -> Var:
    """The square x x."""
    return Multiply.apply(x, x)


@implements(np.clip)
def clip(a: Value, a_min: Value = None, a_max: Value = None) -> Var:
    """The elements of `a` limited to [a_min, a_max]; None is no limit."""
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
