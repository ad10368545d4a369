"""Positions: what attention, which sees a set, is given so that it knows the order.

    PE(p, 2i)     = sin(p / 10000^(2i/d))            (1)  sinusoidal
    PE(p, 2i + 1) = cos(p / 10000^(2i/d))            (2)  of the same angle
    PE(p + k)     = R_k PE(p)                        (3)  R_k rotates pair i by k / 10000^(2i/d)
    x_p' = x_p + PE(p)   or   x_p + P_p              (4)  P learned, a row for each position

p counts positions from 0, i = 0 .. d/2 - 1 pairs of the d numbers of a position. By (3) a linear
map finds what is k steps away, and PE(p) . PE(p + k) = sum_i cos(k / 10000^(2i/d)) depends on k
alone. Both hold because sine and cosine of a pair share their angle.

Vaswani et al. (2017), "Attention is all you need", arXiv:1706.03762, section 3.5.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from everynet.nn.input_checks import require_sequences

BASE = 10000.0


def sinusoidal(positions: int, hidden_size: int) -> Float[Tensor, "{positions} {hidden_size}"]:
    """The code of each position, in float64."""
    if hidden_size < 2 or hidden_size % 2:
        raise ValueError(
            f"hidden_size ({hidden_size}) must be even, because positions are pairs of a sine and "
            f"a cosine; try {max(hidden_size, 1) + 1}"
        )
    pair = torch.arange(0, hidden_size, 2, dtype=torch.float64)
    angle = torch.arange(positions)[:, None] / BASE ** (pair / hidden_size)
    return torch.stack((angle.sin(), angle.cos()), 2).flatten(1)  # (1) (2)


def rotate_positions(
    codes: Float[Tensor, "positions hidden"], steps: int
) -> Float[Tensor, "positions hidden"]:
    """The codes of the positions `steps` later, by the rotation of each pair."""
    sine, cosine = codes.unflatten(1, (-1, 2)).unbind(2)
    turn = sinusoidal(abs(steps) + 1, codes.shape[1])[-1].to(codes)
    s, c = turn[0::2] * (1 if steps >= 0 else -1), turn[1::2]
    return torch.stack((sine * c + cosine * s, cosine * c - sine * s), 2).flatten(1)  # (3)


class SinusoidalPositions(nn.Module):
    """Adds the sine and cosine code of each position to sequences of up to `context` time steps."""

    table: Tensor

    def __init__(self, hidden_size: int, context: int) -> None:
        super().__init__()
        codes = sinusoidal(context, hidden_size).to(torch.get_default_dtype())
        self.register_buffer("table", codes, persistent=False)

    def forward(
        self, x: Float[Tensor, "batch time hidden"], *, start: int = 0
    ) -> Float[Tensor, "batch time hidden"]:
        """The first time step is of position `start`."""
        return _add(type(self).__name__, self.table, x, start)


class LearnedPositions(nn.Module):
    """Adds a learned vector for each position to sequences of up to `context` time steps."""

    def __init__(self, hidden_size: int, context: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(context, hidden_size))
        nn.init.normal_(self.table, std=0.02)

    def forward(
        self, x: Float[Tensor, "batch time hidden"], *, start: int = 0
    ) -> Float[Tensor, "batch time hidden"]:
        """The first time step is of position `start`."""
        return _add(type(self).__name__, self.table, x, start)


def _add(name: str, table: Tensor, x: Tensor, start: int) -> Tensor:
    (context, features), end = table.shape, start + x.shape[1]
    require_sequences(name, x, table, features, block="positions", size="hidden_size")
    if end > context:
        raise ValueError(
            f"context ({context}) must be at least {end}, because each time step needs a position; "
            f"make {name} with context={end}, or give shorter sequences"
        )
    return x + table[start:end]  # (4)
