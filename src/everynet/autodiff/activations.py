"""Activations and losses, with the names and arguments of torch.nn.functional.

    sigmoid(x)  = 1 / (1 + e^-x)              dx = g y (1 - y)                    (1)
    softplus(x) = log(1 + e^x)                dx = g sigmoid(x)                   (2)
    softmax(x)  = e^x / sum e^x               dx = y (g - sum g y)                (3)
    cross entropy of logits and class t: log sum e^x - x_t,
                                              dx = g (softmax(x) - onehot(t))     (4)
    binary cross entropy of logits: softplus(x) - x t,
                                              dx = g (sigmoid(x) - t)             (5)

All are written so that no exponential can overflow.
"""

from __future__ import annotations

import numpy as np

from everynet.autodiff.arraylike import Value, value
from everynet.autodiff.elementwise import divide, multiply, subtract
from everynet.autodiff.graph import Op, Var
from everynet.autodiff.reductions import logsumexp, mean, sum


def _decay(x: Value) -> Value:
    return np.exp(-np.abs(x))


class Relu(Op):
    """y = max(x, 0)."""

    forward = staticmethod(lambda x: np.maximum(x, 0.0))
    vjps = (lambda g, y, x: g * (y > 0),)


class LeakyRelu(Op):
    """y = x where it is positive, else slope x."""

    forward = staticmethod(lambda x, slope: np.where(x > 0, x, x * slope))
    vjps = (lambda g, y, x, slope: np.where(x > 0, g, g * slope),)


class Sigmoid(Op):
    """y = 1 / (1 + e^-x)."""

    vjps = (lambda g, y, x: g * y * (1 - y),)  # (1)

    @staticmethod
    def forward(x: Value) -> Value:
        e = _decay(x)
        return np.where(x >= 0, 1.0, e) / (1.0 + e)  # (1)


class Softplus(Op):
    """y = log(1 + e^x)."""

    forward = staticmethod(lambda x: np.maximum(x, 0.0) + np.log1p(_decay(x)))  # (2)
    vjps = (lambda g, y, x: g * Sigmoid.of(x),)  # (2)


class Softmax(Op):
    """y = e^x / sum e^x."""

    vjps = (lambda g, y, x, dim: y * (g - (g * y).sum(axis=dim, keepdims=True)),)  # (3)

    @staticmethod
    def forward(x: Value, dim: int) -> Value:
        e = np.exp(x - np.max(x, axis=dim, keepdims=True))
        return e / np.sum(e, axis=dim, keepdims=True)  # (3)


class CrossEntropy(Op):
    """The losses of rows of logits x for their classes t, or `share` times their sum.

    Log-softmax, the pick of a class and the sum in one: the gradient needs no logarithm.
    """

    vjps = (
        lambda g, y, x, t, share: (
            (Softmax.of(x, -1) - _onehot(t, x))
            * (g[:, None] if share is None else g * share)  # (4)
        ),
    )

    @staticmethod
    def forward(x: Value, t: Value, share: float | None) -> Value:
        x = x - np.max(x, axis=-1, keepdims=True)
        each = np.log(np.sum(np.exp(x), axis=-1)) - x[np.arange(len(t)), t]  # (4)
        return each if share is None else np.sum(each) * share


def _onehot(t: Value, x: Value) -> Value:
    y = np.zeros(x.shape, x.dtype)
    y[np.arange(len(t)), t] = 1.0
    return y


class BinaryCrossEntropy(Op):
    """y = log(1 + e^x) - x t: the loss of the logit x for the target t."""

    forward = staticmethod(lambda x, t: np.maximum(x, 0.0) + np.log1p(_decay(x)) - x * t)  # (5)
    vjps = (
        lambda g, y, x, t: g * (Sigmoid.of(x) - t),  # (5)
        lambda g, y, x, t: -g * x,
    )


# --------------------------------------------------------------------------------------- functions


def relu(input: Value) -> Var:
    """The larger of x and 0, with slope 0 at 0."""
    return Relu.apply(input)


def leaky_relu(input: Value, negative_slope: float = 0.01) -> Var:
    """Positive elements as they are, others times `negative_slope`."""
    return LeakyRelu.apply(input, negative_slope)


def sigmoid(input: Value) -> Var:
    """The logistic function."""
    return Sigmoid.apply(input)


def softplus(input: Value, beta: float = 1.0) -> Var:
    """A smooth relu: log(1 + exp(beta x)) / beta."""
    if beta == 1.0:
        return Softplus.apply(input)
    return divide(Softplus.apply(multiply(input, beta)), beta)


def softmax(input: Value, dim: int) -> Var:
    """Positive numbers that add to 1 along `dim`."""
    return Softmax.apply(input, dim)


def log_softmax(input: Value, dim: int) -> Var:
    """The logarithm of softmax."""
    return subtract(input, logsumexp(input, dim, keepdim=True))


def cross_entropy(input: Value, target: Value, reduction: str = "mean") -> Var:
    """Minus the log-probability of class `target`, from logits with a row for each sample."""
    logits, classes = value(input), np.asarray(value(target))
    shape = np.shape(logits)
    if len(shape) != 2 or classes.shape != shape[:1] or classes.dtype.kind not in "iu":
        raise ValueError(
            f"cross_entropy of shapes {shape} and {classes.shape} ({classes.dtype}): must be "
            "logits (batch, classes) and whole numbers (batch,), one class for each row"
        )
    if classes.size and (classes.min() < 0 or classes.max() >= shape[1]):
        raise ValueError(
            f"cross_entropy of shapes {shape} and {classes.shape}: target "
            f"({classes.min()} to {classes.max()}) must be from 0 to {shape[1] - 1}"
        )
    _require_reduction(reduction)
    share = {"none": None, "sum": 1.0, "mean": 1 / max(len(classes), 1)}[reduction]
    return CrossEntropy.apply(input, classes, share)


def binary_cross_entropy_with_logits(input: Value, target: Value, reduction: str = "mean") -> Var:
    """Minus the log-probability of a target in [0, 1], from the logit of each element."""
    if np.shape(value(input)) != np.shape(value(target)):
        raise ValueError(
            f"binary_cross_entropy_with_logits of shapes {np.shape(value(input))} and "
            f"{np.shape(value(target))}: must be the same"
        )
    _require_reduction(reduction)
    each = BinaryCrossEntropy.apply(input, target)
    return each if reduction == "none" else mean(each) if reduction == "mean" else sum(each)


def _require_reduction(reduction: str) -> None:
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"reduction ({reduction}) must be 'none', 'mean' or 'sum'")
