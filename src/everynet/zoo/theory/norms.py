"""Norms: how long a vector or a matrix is.

    |x|_p   = (sum_i |x_i|^p)^(1/p),  p >= 1         (1)  p = 1: sum of sizes; p = 2: length
    |x|_inf = max_i |x_i|                            (2)  its limit for p -> infinity
    |A|_F   = sqrt(sum_ij a_ij^2)                    (3)  Frobenius: the length of all entries
    f(x) = 0 only for x = 0                          (4)  definite
    f(x + y) <= f(x) + f(y)                          (5)  triangle inequality
    f(a x) = |a| f(x)                                (6)  homogeneous

A norm is a function f with (4) to (6). For p < 1 the formula (1) is none: with p = 1/2 the way from
(1, 0) to (0, 1) is 4 long, and over the origin 2.

Minkowski (1896), "Geometrie der Zahlen"; Goodfellow et al. (2016), "Deep Learning", section 2.5.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Length = Callable[[Tensor], Tensor]
"""From vectors, along the last axis, to numbers."""


def power_sum(x: Float[Tensor, "*rows n"], p: float) -> Float[Tensor, "*rows"]:
    """The formula of (1) for any p > 0, which is a norm from 1 up."""
    largest = x.abs().amax(dim=-1, keepdim=True)
    scaled = x.abs() / torch.where(largest > 0, largest, 1.0)  # so that no power overflows
    total = (scaled**p).sum(dim=-1) ** (1 / p)  # (1)
    return largest[..., 0] * total


def norm(x: Float[Tensor, "*rows n"], p: float = 2.0) -> Float[Tensor, "*rows"]:
    """The p-norm of each vector; `math.inf` is its largest entry."""
    if not p >= 1:
        raise ValueError(
            f"p ({p}) must be at least 1, because below it the triangle inequality fails; for the "
            "number of entries that are not zero count them"
        )
    if math.isinf(p):
        return x.abs().amax(dim=-1)  # (2)
    return power_sum(x, p)


def frobenius_norm(a: Float[Tensor, "*rest rows columns"]) -> Float[Tensor, "*rest"]:
    """The length of each matrix as a vector of all its entries."""
    return norm(a.flatten(-2))  # (3)


def check_axioms(
    f: Length,
    x: Float[Tensor, "rows n"],
    y: Float[Tensor, "rows n"],
    a: Float[Tensor, " rows"],
    tolerance: float = 1e-9,
) -> dict[str, Bool[Tensor, " rows"]]:
    """Whether each axiom of a norm holds for each pair of vectors and each factor."""
    of_x, of_y, room = f(x), f(y), tolerance * (f(x) + f(y))
    zero = (x == 0).all(dim=-1)
    return {
        "definite": (of_x >= 0) & ((of_x == 0) == zero),  # (4)
        "triangle": f(x + y) <= of_x + of_y + room,  # (5)
        "homogeneous": (f(a[:, None] * x) - a.abs() * of_x).abs() <= a.abs() * room,  # (6)
    }


def is_norm(
    f: Length,
    dimension: int,
    *,
    vectors: int = 10_000,
    generator: torch.Generator | None = None,
) -> bool:
    """Whether a function passes the axioms on so many random vectors and the unit vectors."""
    shape = (vectors, dimension)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    y = torch.randn(shape, generator=generator, dtype=torch.float64)
    a = torch.randn(vectors, generator=generator, dtype=torch.float64)
    units = torch.eye(dimension, dtype=torch.float64)
    x = torch.cat([x, units, torch.zeros_like(units)])
    y = torch.cat([y, units.roll(1, dims=0), units])
    a = torch.cat([a, -2 * torch.ones(2 * dimension, dtype=torch.float64)])
    return all(bool(holds.all()) for holds in check_axioms(f, x, y, a).values())
