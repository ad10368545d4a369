"""Backpropagation written out layer by layer, beside the engine that finds it by itself.

    z^{l+1} = h^l W^l + b^{l+1}                        (1)  what a layer adds up, a row a sample
    h^{l+1} = s(z^{l+1})                               (2)  what it passes on
    delta^L = dC/dh^L * s'(z^L)                        (3)  error of the last layer
    delta^l = s'(z^l) * (delta^{l+1} W^l^T)            (4)  error of the layer before
    dC/dW^l = h^l^T delta^{l+1}                        (5)  gradient by the weights
    dC/db^{l+1} = sum over rows of delta^{l+1}         (6)  gradient by the biases
    dC/do = softmax(o) - onehot(t)                     (7)  cross-entropy of logits o and class t

* is the product of elements. (5) and (6) sum over the samples: divide by their number for a mean.
Rumelhart, Hinton, Williams (1986), "Learning representations by back-propagating errors",
doi:10.1038/323533a0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

Matrix = Float[np.ndarray, "_ _"]
Vector = Float[np.ndarray, "_"]


@dataclass(frozen=True)
class Activation:
    """A function and its derivative, given what came in and what went out."""

    of: Callable[[Matrix], Matrix]
    slope: Callable[[Matrix, Matrix], Matrix]


SIGMOID = Activation(lambda z: 1 / (1 + np.exp(-z)), lambda z, h: h * (1 - h))
TANH = Activation(np.tanh, lambda z, h: 1 - h * h)
RELU = Activation(lambda z: np.maximum(z, 0.0), lambda z, h: (z > 0).astype(z.dtype))
LINEAR = Activation(lambda z: z, lambda z, h: np.ones_like(z))


def backprop(
    x: Float[np.ndarray, "batch input"],
    weights: Sequence[Matrix],
    biases: Sequence[Vector],
    activation: Activation,
    cost_slope: Callable[[Matrix], Matrix],
) -> tuple[list[Matrix], list[Vector]]:
    """The gradients by weights and biases; `cost_slope` gives dC/dh of the last layer."""
    sums, passed = [], [x]
    for w, b in zip(weights, biases, strict=True):
        sums.append(passed[-1] @ w + b)  # (1)
        passed.append(activation.of(sums[-1]))  # (2)
    delta = cost_slope(passed[-1]) * activation.slope(sums[-1], passed[-1])  # (3)
    by_weights, by_biases = [], []
    for layer in reversed(range(len(weights))):
        by_weights.append(passed[layer].T @ delta)  # (5)
        by_biases.append(delta.sum(axis=0))  # (6)
        if layer:
            slope = activation.slope(sums[layer - 1], passed[layer])
            delta = slope * (delta @ weights[layer].T)  # (4)
    return by_weights[::-1], by_biases[::-1]


def softmax_cross_entropy_slope(
    logits: Float[np.ndarray, "batch classes"], classes: Int[np.ndarray, " batch"]
) -> Float[np.ndarray, "batch classes"]:
    """The gradient of the summed cross-entropy by the logits."""
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    onehot = np.eye(logits.shape[1], dtype=logits.dtype)[classes]
    slope: Matrix = e / e.sum(axis=1, keepdims=True) - onehot  # (7)
    return slope
