"""Vector calculus on the engine: directional derivatives, numerator layout, the best step.

    D_u f(x) = u . grad f(x),  |u| = 1                                           (1)  directional
    df/dx in numerator layout: a row for each output, a column for each input    (2)
    eps* = g^T g / (g^T H g)  if g^T H g > 0                                     (3)  best step

g and H are the gradient and the Hessian at x. Among unit vectors the slope (1) is largest along g,
where it is |g|, and zero along a level surface.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from everynet.autodiff.arraylike import Array, Value, value
from everynet.autodiff.derivatives import grad, hvp, jacobian, jvp

Scalar = Callable[[Value], Value]


def directional_derivative(f: Scalar, x: Value, u: Value) -> float:
    """The directional derivative of f at x along u, which need not be a unit vector."""
    return float(jvp(f, x, np.asarray(u) / np.linalg.norm(u)))  # (1)


def numerator_layout(f: Callable[[Value], Value], x: Value) -> Array:
    """The derivative of f at x as a matrix, for the five cases that have one.

    vector by scalar: a column; scalar by vector: a row; vector by vector: the Jacobian;
    matrix by scalar: its shape; scalar by matrix: the shape of its transpose.
    """
    x = np.asarray(x, np.float64)
    j: Array = jacobian(f)(x)
    match j.ndim - x.ndim, x.ndim:  # (2)
        case 1, 0:
            return j[:, None]
        case 0, 1:
            return j[None, :]
        case (1, 1) | (2, 0):
            return j
        case 0, 2:
            return j.T
    shape = np.shape(value(f(x)))
    raise ValueError(
        f"numerator_layout of shape {shape} by shape {x.shape}: must be one of vector by scalar, "
        "scalar by vector, vector by vector, matrix by scalar, scalar by matrix; use jacobian"
    )


def optimal_step(f: Scalar, x: Value) -> float:
    """The step along -grad f that minimises the second-order Taylor polynomial of f at x."""
    g = grad(f)(x)
    bend = float(g @ hvp(f, x, g))
    if bend <= 0:
        raise ValueError(
            f"the curvature along the gradient ({bend:.3g}) must be positive, because else the "
            "polynomial falls for ever; take any small step"
        )
    return float(g @ g) / bend  # (3)
