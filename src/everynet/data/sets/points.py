"""Generated points in the plane: five small problems, each a function of a count and a seed.

moons    two half circles that reach into each other
spirals  two arms, one turn and three quarters each
rings    a disc inside a ring
xor      four clouds on the corners of a square, opposite corners alike
blobs    three round clouds, on the corners of a triangle
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import pi

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from everynet.data.images.standardize import digest
from everynet.data.samples import Samples
from everynet.data.sets import parse_count
from everynet.data.split import GENERATED, generate_parts
from everynet.system.seeds import generator

Points = tuple[Float64[Tensor, "rows 2"], Int64[Tensor, " rows"]]
COUNT = 1000
"""Training and validation points of a dataset; half as many more are its test."""


def _polar(radius: Tensor, angle: Tensor) -> Float64[Tensor, "rows 2"]:
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1)


def _moons(y: Tensor, random: torch.Generator) -> Float64[Tensor, "rows 2"]:
    t = pi * torch.rand(len(y), generator=random, dtype=torch.float64)
    upper = torch.stack([t.cos(), t.sin()], 1)
    lower = torch.stack([1 - t.cos(), 0.5 - t.sin()], 1)
    x = torch.where(y[:, None] == 0, upper, lower)
    return x + 0.1 * torch.randn(x.shape, generator=random, dtype=torch.float64)


def _spirals(y: Tensor, random: torch.Generator) -> Float64[Tensor, "rows 2"]:
    # The root spreads the points evenly along the arms, which are longer further out.
    t = torch.rand(len(y), generator=random, dtype=torch.float64).sqrt()
    x = _polar(0.1 + 0.9 * t, 3.5 * pi * t + pi * y)
    return x + 0.02 * torch.randn(x.shape, generator=random, dtype=torch.float64)


def _rings(y: Tensor, random: torch.Generator) -> Float64[Tensor, "rows 2"]:
    u, angle = torch.rand(2, len(y), generator=random, dtype=torch.float64)
    radius = torch.where(y == 0, 0.5 * u.sqrt(), 0.8 + 0.2 * u)
    x = _polar(radius, 2 * pi * angle)
    return x + 0.05 * torch.randn(x.shape, generator=random, dtype=torch.float64)


def _xor(y: Tensor, random: torch.Generator) -> Float64[Tensor, "rows 2"]:
    a = torch.randint(2, (len(y),), generator=random)
    corner = torch.stack([a, a ^ y], 1).double()
    return corner + 0.12 * torch.randn(corner.shape, generator=random, dtype=torch.float64)


def _blobs(y: Tensor, random: torch.Generator) -> Float64[Tensor, "rows 2"]:
    centre = _polar(torch.ones(3, dtype=torch.float64), pi / 2 + 2 * pi / 3 * torch.arange(3))
    x = torch.randn(len(y), 2, generator=random, dtype=torch.float64)
    return centre[y] + 0.3 * x


SHAPES: dict[str, tuple[int, Callable[[Tensor, torch.Generator], Tensor]]] = {
    "moons": (2, _moons),
    "spirals": (2, _spirals),
    "rings": (2, _rings),
    "xor": (2, _xor),
    "blobs": (3, _blobs),
}
"""How many classes a set has and how the points of given classes are drawn."""


def draw(name: str, count: int, seed: int = 0) -> Points:
    """`count` points of a set, the classes as equal in number as can be, in random order."""
    classes, shape = SHAPES[name]
    random = generator(seed, *name.encode())
    y = (torch.arange(count) % classes)[torch.randperm(count, generator=random)]
    return shape(y, random), y


def read(name: str, count: str = "") -> Samples:
    """The dataset of that name, with `count` points where a count is given."""
    size = parse_count(name, count, COUNT, 20, 10_000_000)
    parts = generate_parts(size, partial(draw, name), test=2)
    return Samples(
        name=name,
        parts=parts,
        digest=digest(*(tensor for pair in parts.values() for tensor in pair)),
        split=GENERATED,
        classes=tuple(str(label) for label in range(SHAPES[name][0])),
        features=("x", "y"),
    )


moons, spirals, rings, xor, blobs = (partial(read, name) for name in SHAPES)
