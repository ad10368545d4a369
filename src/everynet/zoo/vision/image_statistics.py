"""Locality and stationarity: what is true of photos, and is built into a convolution.

    rho(d)  = correlation of x(i) and x(i + d)                (1)  locality: it falls with d
    x(i)    ~ sum_u w_a(u) x(i + u),  u the 8 neighbours      (2)  learned on the places of block a
    R_ab    = 1 - |x - (2) by w_a|^2_b / |x|^2_b              (3)  and used on those of block b

|.|_b is over the places of block b, of all images, and x is less its mean. Pixels near each other
are alike, so that a unit that looks at neighbours sees what belongs together. And what neighbours
say of a pixel is the same in one part of an image as in another (3), so that one set of weights
serves everywhere: stationarity, which says nothing of things that move.

Simoncelli, Olshausen (2001), "Natural image statistics and neural representation",
doi:10.1146/annurev.neuro.24.1.1193; Ruderman, Bialek (1994), "Statistics of natural images:
Scaling in the woods", doi:10.1103/PhysRevLett.73.814.
"""

from __future__ import annotations

from itertools import pairwise, product

import torch
from jaxtyping import Float
from torch import Tensor


def correlation(images: Float[Tensor, "images height width"], distance: int) -> float:
    """Of all pairs of pixels so far apart across or down."""
    pairs = [
        torch.stack([images[..., distance:].flatten(), images[..., :-distance].flatten()]),
        torch.stack([images[:, distance:].flatten(), images[:, :-distance].flatten()]),
    ]
    return float(torch.corrcoef(torch.cat(pairs, 1))[0, 1])  # (1)


def transfer(
    images: Float[Tensor, "images height width"], rows: int, columns: int
) -> tuple[Float[Tensor, "blocks blocks"], Float[Tensor, " blocks"]]:
    """How well what is learned in a block is true of another, and how much there is to explain."""
    x = images.double() - images.double().mean()
    height, width = (n - 2 for n in x.shape[1:])
    around = [(i, j) for i, j in product(range(3), repeat=2) if (i, j) != (1, 1)]
    neighbours = torch.stack([x[:, i : i + height, j : j + width] for i, j in around], 3)
    inner = x[:, 1:-1, 1:-1]
    parts = [
        (neighbours[:, a:b, c:d].flatten(0, 2), inner[:, a:b, c:d].flatten())
        for (a, b), (c, d) in product(_cuts(height, rows), _cuts(width, columns))
    ]
    errors = torch.empty(len(parts), len(parts), dtype=x.dtype)
    for a, (inputs, targets) in enumerate(parts):
        w = torch.linalg.lstsq(inputs, targets[:, None], driver="gelsd").solution  # (2)
        for b, (others, true) in enumerate(parts):
            errors[a, b] = (others @ w - true[:, None]).square().sum()
    power = torch.stack([true.square().sum() for _, true in parts])
    return 1 - errors / power, power  # (3)


def _cuts(size: int, parts: int) -> list[tuple[int, int]]:
    ends = [round(k * size / parts) for k in range(parts + 1)]
    return list(pairwise(ends))


def at_home(
    explained: Float[Tensor, "photos blocks blocks"], power: Float[Tensor, "photos blocks"]
) -> Float[Tensor, " photos"]:
    """What is explained of whole photos where each block has its own rule."""
    own = explained.diagonal(dim1=1, dim2=2)
    return (own * power).sum(1) / power.sum(1)


def elsewhere(
    explained: Float[Tensor, "photos blocks blocks"], power: Float[Tensor, "photos blocks"]
) -> Float[Tensor, " photos"]:
    """What is explained of whole photos by the rules of other blocks, on average."""
    blocks = explained.shape[1]
    others = explained.sum(1) - explained.diagonal(dim1=1, dim2=2)
    return (others / (blocks - 1) * power).sum(1) / power.sum(1)
