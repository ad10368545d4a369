"""Networks on this engine alone: a perceptron of several layers, a recurrent network, descent.

    h^{l+1} = s(h^l W^l + b^l)                       (1)  layer
    h_t     = tanh(x_t U + h_{t-1} W + b)            (2)  recurrence, unrolled over the steps
    m       <- mu m + dE/dv                          (3)  momentum
    v       <- v - kappa m                           (4)  descent; with mu = 0 by the gradient alone

Elman (1990), "Finding structure in time", doi:10.1207/s15516709cog1402_1. Polyak (1964), "Some
methods of speeding up the convergence of iteration methods", doi:10.1016/0041-5553(64)90137-5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from everynet.autodiff.arraylike import Value
from everynet.autodiff.elementwise import tanh
from everynet.autodiff.graph import Var
from everynet.autodiff.linear import matmul


class MLP:
    """Maps rows of inputs to rows of outputs; the last layer is linear."""

    def __init__(
        self,
        sizes: Sequence[int],
        activation: Callable[[Value], Var] = tanh,
        *,
        seed: int = 0,
        dtype: type[np.floating] = np.float64,
    ) -> None:
        random = np.random.default_rng(seed)
        self.activation = activation
        self.weights = [
            _drawn(random, shape, dtype, f"W{i}") for i, shape in enumerate(pairwise(sizes))
        ]
        self.biases = [Var(np.zeros(n, dtype), name=f"b{i}") for i, n in enumerate(sizes[1:])]

    @property
    def parameters(self) -> list[Var]:
        return [*self.weights, *self.biases]

    def __call__(self, x: Value) -> Var:
        for w, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = self.activation(matmul(x, w) + b)  # (1)
        return matmul(x, self.weights[-1]) + self.biases[-1]


class RNN:
    """Maps sequences (batch, time, input) to the outputs read from the last state."""

    def __init__(self, input_size: int, hidden_size: int, output_size: int, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.inwards = _drawn(random, (input_size, hidden_size), np.float64, "U")
        self.across = Var(np.eye(hidden_size), name="W")  # remembers from the start
        self.bias = Var(np.zeros(hidden_size), name="b")
        self.outwards = _drawn(random, (hidden_size, output_size), np.float64, "V")

    @property
    def parameters(self) -> list[Var]:
        return [self.inwards, self.across, self.bias, self.outwards]

    def __call__(self, x: Float[np.ndarray, "batch time input"]) -> Var:
        h: Value = np.zeros((len(x), len(self.bias)))
        for t in range(x.shape[1]):
            h = tanh(matmul(x[:, t], self.inwards) + matmul(h, self.across) + self.bias)  # (2)
        return matmul(h, self.outwards)


def _drawn(
    random: np.random.Generator, shape: tuple[int, int], dtype: type[np.floating], name: str
) -> Var:
    """Normal weights that keep the variance of what passes through them."""
    scale = 1 / np.sqrt(shape[0])
    return Var((random.standard_normal(shape) * scale).astype(dtype), name=name)


def descend(
    loss: Callable[[int], Var],
    parameters: Sequence[Var],
    *,
    lr: float,
    steps: int,
    momentum: float = 0.0,
) -> list[float]:
    """Take `steps` steps downhill in place; loss(step) builds the graph. Returns the losses."""
    moving: list[Value] = [0.0] * len(parameters)
    losses = []
    for step in range(steps):
        e = loss(step)
        for v in parameters:
            v.zero_grad()
        e.backward()
        for i, v in enumerate(parameters):
            moving[i] = momentum * moving[i] + v.grad  # (3)
            v.val -= lr * moving[i]  # (4)
        losses.append(float(e))
    return losses
