"""mu-law companding: 256 levels that are close where sound is quiet.

    f(x) = sign(x) ln(1 + mu |x|) / ln(1 + mu)                    (1)  compression of [-1, 1]
    g(f) = sign(f) ((1 + mu)^|f| - 1) / mu                        (2)  its inverse, expansion
    n = floor(mu (f + 1) / 2 + 1/2)                               (3)  level, from 0 to mu
    f_n = 2 n / mu - 1                                            (4)  what the level stands for
    |g(f_n) - x| <= (|x| + 1 / mu) ((1 + mu)^(1 / mu) - 1)        (5)  error of the round trip

mu is the number of levels less one, 255 for 8 bits. f is odd, like a logarithm far from zero and
like a straight line near it; a sigmoid is another function. The error (5) grows with the sound, so
that the ratio of signal to noise is nearly the same for loud and quiet sound, while levels at equal
distances drown quiet sound. There is no level for 0: silence is level 128, at 0.00009.

ITU-T (1988), "Pulse code modulation of voice frequencies", recommendation G.711; van den Oord et
al. (2016), "WaveNet: a generative model for raw audio", arXiv:1609.03499, section 2.2.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int64
from torch import Tensor

LEVELS = 256
"""Levels of 8 bits."""


def compress(x: Float[Tensor, "*shape"], mu: int = LEVELS - 1) -> Float[Tensor, "*shape"]:
    """Sound from -1 to 1, companded into -1 to 1."""
    return x.sign() * (mu * x.abs()).log1p() / math.log1p(mu)  # (1)


def expand(f: Float[Tensor, "*shape"], mu: int = LEVELS - 1) -> Float[Tensor, "*shape"]:
    """The sound behind companded values."""
    return f.sign() * (f.abs() * math.log1p(mu)).expm1() / mu  # (2)


def encode(x: Float[Tensor, "*shape"], levels: int = LEVELS) -> Int64[Tensor, "*shape"]:
    """The level of each value of a sound; what is louder than 1 is clipped."""
    mu = _mu(levels)
    f = compress(x.clamp(-1, 1), mu)
    return (mu * (f + 1) / 2 + 0.5).floor().long()  # (3)


def decode(
    n: Int64[Tensor, "*shape"], levels: int = LEVELS, dtype: torch.dtype | None = None
) -> Float[Tensor, "*shape"]:
    """The sound of levels."""
    mu = _mu(levels)
    n = n.to(dtype or torch.get_default_dtype())
    return expand(2 * n / mu - 1, mu)  # (4)


def round_trip_bound(x: Float[Tensor, "*shape"], levels: int = LEVELS) -> Float[Tensor, "*shape"]:
    """How far at most `decode(encode(x))` is from x."""
    mu = _mu(levels)
    return (x.abs() + 1 / mu) * math.expm1(math.log1p(mu) / mu)  # (5)


def level_edges(levels: int = LEVELS, dtype: torch.dtype | None = None) -> Float[Tensor, " edges"]:
    """Between which values each level lies: levels + 1 edges, the outermost at infinity."""
    mu = _mu(levels)
    f = (2 * torch.arange(1, levels, dtype=dtype or torch.get_default_dtype()) - 1) / mu - 1
    inside = expand(f, mu)
    end = inside.new_full((1,), math.inf)
    return torch.cat([-end, inside, end])


def quantize_uniformly(x: Float[Tensor, "*shape"], levels: int = LEVELS) -> Float[Tensor, "*shape"]:
    """The same number of levels at equal distances: what mu-law is compared with."""
    mu = _mu(levels)
    n = (mu * (x.clamp(-1, 1) + 1) / 2 + 0.5).floor()
    return 2 * n / mu - 1


def signal_to_noise(
    x: Float[Tensor, "*shape time"], heard: Float[Tensor, "*shape time"]
) -> Float[Tensor, "*shape"]:
    """Power of a sound beside that of the error of what is heard, in decibels."""
    power, noise = x.square().sum(-1), (heard - x).square().sum(-1)
    return 10 * (power / noise).log10()


def _mu(levels: int) -> int:
    if levels < 2:
        raise ValueError(f"levels ({levels}) must be at least 2, because one says nothing; try 256")
    return levels - 1
