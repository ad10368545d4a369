"""How far apart two sets of points are, as samples of two densities.

    d(X, Y) = 2 mean |x - y| - mean |x - x'| - mean |y - y'|

over pairs of different points: the energy distance, 0 on average where both sets come from the same
density and above it elsewhere. Szekely, Rizzo (2013), "Energy statistics: A class of statistics
based on distances", doi:10.1016/j.jspi.2013.03.018.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def energy_distance(
    x: Float[Tensor, "rows columns"], y: Float[Tensor, "others columns"]
) -> Float[Tensor, ""]:
    """The energy distance between two sets, unbiased: it may be a little below 0."""
    return 2 * torch.cdist(x, y).mean() - _spread(x) - _spread(y)


def _spread(x: Float[Tensor, "rows columns"]) -> Float[Tensor, ""]:
    if len(x) < 2:
        raise ValueError(f"points ({len(x)}) must be at least 2, because pairs are compared")
    return torch.pdist(x).mean()
