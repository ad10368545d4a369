"""Entropy, cross-entropy and the Kullback-Leibler divergence, in nats.

    H(p)      = -sum_i p_i log p_i                               (1)  entropy
    H(p, q)   = -sum_i p_i log q_i                               (2)  cross-entropy
    KL(p | q) = E_p[log p - log q] >= 0                          (3)  divergence
    H(p, q)   = H(p) + KL(p | q)                                 (4)
    KL(p | q) = (tr(S_q^-1 S_p) + d^T S_q^-1 d - n
                 + log det S_q - log det S_p) / 2                (5)  N(m_p, S_p) and N(m_q, S_q)

p and q are probabilities of the same outcomes, or densities; d = m_q - m_p is the distance of the
means and n their length. 0 log 0 is 0; where q_i = 0 < p_i the divergence is infinite. It is 0 only
for q = p, and it is no distance: KL(p | q) is not KL(q | p). By (4) whoever minimises a
cross-entropy over q minimises the divergence, and any negative log-likelihood is one: (2) with the
shares of the data for p.

Kullback, Leibler (1951), "On information and sufficiency", doi:10.1214/aoms/1177729694; Shannon
(1948), "A mathematical theory of communication", doi:10.1002/j.1538-7305.1948.tb01338.x.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Float64
from torch import Tensor

Probabilities = Float[Tensor, "*rows outcomes"]


def entropy(p: Probabilities) -> Float[Tensor, "*rows"]:
    """The mean surprise at outcomes of p."""
    surprise: Tensor = -torch.special.xlogy(p, p)
    return surprise.sum(dim=-1)  # (1)


def cross_entropy(p: Probabilities, q: Probabilities) -> Float[Tensor, "*rows"]:
    """The mean surprise at outcomes of p of who expects q."""
    surprise: Tensor = -torch.special.xlogy(p, q)
    return surprise.sum(dim=-1)  # (2)


def kl_divergence(p: Probabilities, q: Probabilities) -> Float[Tensor, "*rows"]:
    """The surprise that q adds to the entropy of p."""
    surprise = torch.where(p > 0, p * (p.log() - q.log()), torch.zeros_like(p))
    return surprise.sum(dim=-1)  # (3)


def kl_from_cross_entropy(p: Probabilities, q: Probabilities) -> Float[Tensor, "*rows"]:
    """The same as a difference, where both are finite."""
    return cross_entropy(p, q) - entropy(p)  # (4)


def kl_gaussians(
    mean_p: Float64[Tensor, " n"],
    covariance_p: Float64[Tensor, "n n"],
    mean_q: Float64[Tensor, " n"],
    covariance_q: Float64[Tensor, "n n"],
) -> Float64[Tensor, ""]:
    """The divergence of two normal densities in closed form."""
    d: Tensor = mean_q - mean_p
    inverse: Tensor = torch.linalg.inv(covariance_q)
    stretched = (inverse * covariance_p.T).sum() + d @ inverse @ d - len(d)
    volumes: Tensor = torch.logdet(covariance_q) - torch.logdet(covariance_p)
    return (stretched + volumes) / 2  # (5)


def kl_monte_carlo(
    log_p: Callable[[Tensor], Tensor],
    log_q: Callable[[Tensor], Tensor],
    samples: Float64[Tensor, "samples n"],
) -> tuple[float, float]:
    """The mean of log p - log q over samples of p, and its standard error."""
    gaps = log_p(samples) - log_q(samples)
    return gaps.mean().item(), gaps.std().item() / len(gaps) ** 0.5
