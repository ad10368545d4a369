"""Poisson's equation on the unit square: smooth random sources and the fields that they make.

    -(d^2/dx^2 + d^2/dy^2) u = f  inside,    u = 0  on the border

is solved at the N x N inner points of a grid with spacing h = 1 / (N + 1), where f and u are images
without their border, by differences between neighbours,

    (4 u(i,j) - u(i-1,j) - u(i+1,j) - u(i,j-1) - u(i,j+1)) / h^2 = f(i,j).

Sines make this a division: with S(i,k) = sqrt(2h) sin(pi i k h), which is its own inverse,

    u = S ((S f S) / l) S,    l(k,m) = (4 / h^2) (sin^2(pi k h / 2) + sin^2(pi m h / 2)).

A source has a mean square of 1 and is made of waves that fade with their number,

    f = sum_km a_km exp(-(k^2 + m^2) / (2 FADES^2)) cos(pi k x) cos(pi m y),    a_km ~ N(0, 1),

so that, unlike u, it need not vanish on the border. The training part has each source with its
opposite, so that all means are 0. Sample i of a seed follows from (seed, i) alone.
"""

from __future__ import annotations

from math import pi, sqrt

import torch
from jaxtyping import Float64
from torch import Tensor

from everynet.data.images.standardize import digest
from everynet.data.kinds.map import Maps
from everynet.data.sets import parse_count
from everynet.data.split import GENERATED, generate_parts
from everynet.system.seeds import generator

SIDE, CHUNK, WAVES = 32, 50, 16
FADES = 5.0
"""The number of the wave that has fallen to 0.6 of the first."""
COUNT = 2000
"""Training and validation sources of the set; a fifth as many more are its test."""

Fields = Float64[Tensor, "samples side side"]


def sines(side: int) -> Float64[Tensor, "side side"]:
    """The sine transform of `side` inner points: symmetric, and its own inverse."""
    at = torch.arange(1, side + 1, dtype=torch.float64)
    h = 1 / (side + 1)
    return (pi * h * at[:, None] * at).sin() * sqrt(2 * h)


def eigenvalues(side: int) -> Float64[Tensor, "side side"]:
    """By what the differences multiply each product of two sines."""
    h = 1 / (side + 1)
    half = pi * h / 2 * torch.arange(1, side + 1, dtype=torch.float64)
    square = half.sin().square()
    return 4 / h**2 * (square[:, None] + square)


def solve(f: Fields) -> Fields:
    """The fields that sources make, with zeros all around."""
    side = f.shape[-1]
    s = sines(side)
    return s @ (s @ f @ s / eigenvalues(side)) @ s


def response(row: int, column: int, side: int = SIDE) -> Float64[Tensor, "side side"]:
    """How much a source anywhere adds to the field at one point: Green's function there."""
    point = torch.zeros(1, side, side, dtype=torch.float64)
    point[0, row, column] = 1.0
    return solve(point)[0]  # the equation is symmetric, so that columns are rows


def _waves(seed: int, chunk: int) -> Float64[Tensor, "samples waves waves"]:
    return torch.randn(CHUNK, WAVES, WAVES, generator=generator(seed, chunk), dtype=torch.float64)


def sources(waves: Float64[Tensor, "samples waves waves"], side: int = SIDE) -> Fields:
    """What waves of these heights add up to, with a mean square of 1."""
    number = torch.arange(WAVES, dtype=torch.float64)
    at = torch.arange(1, side + 1, dtype=torch.float64) / (side + 1)
    shapes = (pi * at[:, None] * number).cos() * (-(number**2) / (2 * FADES**2)).exp()
    f = shapes @ waves @ shapes.T
    return f / f.square().mean((1, 2), keepdim=True).sqrt()


def draw(count: int, seed: int = 0) -> tuple[Fields, Fields]:
    """The first `count` sources of the endless series of a seed, with their fields."""
    f = sources(_heights(count, seed))
    return f, solve(f)


def _heights(count: int, seed: int) -> Float64[Tensor, "samples waves waves"]:
    return torch.cat([_waves(seed, chunk) for chunk in range(-(-count // CHUNK))])[:count]


def read(count: str = "") -> Maps:
    """The dataset, with `count` training and validation samples where a count is given."""
    drawn = generate_parts(parse_count("poisson", count, COUNT, 20, 1_000_000), _heights)
    half = drawn["train"][: len(drawn["train"]) // 2 * 2 : 2]
    drawn["train"] = torch.cat([half, -half])
    parts = {}
    for part, heights in drawn.items():
        f = sources(heights)
        parts[part] = (f[:, None], solve(f)[:, None])
    return Maps(
        name="poisson",
        parts=parts,
        digest=digest(*drawn.values()),  # of products of matrices the last bits differ by machine
        split=GENERATED,
        peak=1.0,
    )
