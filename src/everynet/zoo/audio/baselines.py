"""What a model of sound has to beat: a histogram of levels, and linear prediction.

    p(n) = (N_n + 1) / (N + levels)                                      (1)  histogram
    m_t = sum_{k=1}^{K} a_k x_{t-k},  a = argmin sum_t (x_t - m_t)^2     (2)  autoregression AR(K)
    p(n | x_{t-1} ..) = Phi((e_{n+1} - m_t) / s) - Phi((e_n - m_t) / s)  (3)  its Gaussian, by level

N_n is how often level n was heard in training, x sound from -1 to 1 (0 before a clip begins), s^2
the mean of the squares that (2) makes least, Phi the normal distribution function and e_n the edges
of levels (`nn/mu_law.py`). So all three say how likely a level is, in nats a sample.

Atal, Hanauer (1971), "Speech analysis and synthesis by linear prediction of the speech wave",
doi:10.1121/1.1912679, for (2).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from everynet.nn import mu_law

ORDER = 16
_PIECE = 2**18  # samples at once
Clips = tuple[Float[Tensor, " _"], Int64[Tensor, " _"]]
"""Sounds one after the other, and where each begins (and the last ends)."""


def histogram_nats(train: Clips, test: Clips) -> float:
    """Nats a sample of the test sounds under the histogram of the training sounds."""
    counts = torch.bincount(mu_law.encode(train[0]), minlength=mu_law.LEVELS).double()
    p = (counts + 1) / (counts.sum() + mu_law.LEVELS)  # (1)
    return -p.log()[mu_law.encode(test[0])].mean().item()


def autoregression_nats(train: Clips, test: Clips, order: int = ORDER) -> float:
    """Nats a sample of the test sounds under the linear prediction learned of the others."""
    a, s = fit_autoregression(train, order)
    edges = mu_law.level_edges(dtype=torch.double).to(a.device)
    total = 0.0
    for past, x in _pasts(test, order):
        m = past @ a
        level = mu_law.encode(x)
        total -= float(log_between((edges[level] - m) / s, (edges[level + 1] - m) / s).sum())
    return total / len(test[0])


def fit_autoregression(clips: Clips, order: int = ORDER) -> tuple[Float[Tensor, " order"], float]:
    """The coefficients a and the standard deviation s of what they leave."""
    square = torch.zeros(order, order, dtype=torch.double, device=clips[0].device)
    product, power = square[0].clone(), 0.0
    for past, x in _pasts(clips, order):
        square += past.T @ past
        product += past.T @ x
        power += float(x @ x)
    ridge = 1e-9 * square.diagonal().mean() * torch.eye(order).to(square)
    a = torch.linalg.solve(square + ridge, product)  # (2)
    rest = power - 2 * float(a @ product) + float(a @ square @ a)
    return a, math.sqrt(max(rest / len(clips[0]), 1e-12))


def log_between(
    low: Float[Tensor, " samples"], high: Float[Tensor, " samples"]
) -> Float[Tensor, " samples"]:
    """log(Phi(high) - Phi(low)), exact however far in a tail both are."""
    flip = low > 0  # Phi(high) - Phi(low) = Phi(-low) - Phi(-high), which are not both near 1
    low, high = torch.where(flip, -high, low), torch.where(flip, -low, high)
    upper, lower = torch.special.log_ndtr(high), torch.special.log_ndtr(low)
    between: Tensor = upper + (-(lower - upper).exp()).log1p()  # (3)
    return between


def _pasts(
    clips: Clips, order: int
) -> Iterator[tuple[Float[Tensor, "some order"], Float[Tensor, " some"]]]:
    """The samples before each sample of its own clip, the newest first, and the sample."""
    stream, starts = clips[0].double(), clips[1]
    within = torch.arange(len(stream), device=stream.device)
    within = within - torch.repeat_interleave(starts[:-1], starts.diff())
    lags = torch.arange(1, order + 1, device=stream.device)
    for first in range(0, len(stream), _PIECE):
        here = torch.arange(first, min(first + _PIECE, len(stream)), device=stream.device)
        past = stream[(here[:, None] - lags).clamp(min=0)]
        yield torch.where(within[here, None] >= lags, past, 0.0), stream[here]
