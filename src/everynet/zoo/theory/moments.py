"""Moments: where samples lie on average, how far they spread, and how they move together.

    E[f(x)]   = sum_i p_i f(x_i)                                   (1)  expectation
    Var(x)    = E[(x - E x)^2]                                     (2)  variance
    Cov(x, y) = E[(x - E x) (y - E y)]                             (3)  covariance
    Corr(x, y) = Cov(x, y) / (sd(x) sd(y)),  sd = sqrt(Var)        (4)  correlation, in [-1, 1]
    S         = (1 / m) sum_i (x_i - x_bar) (x_i - x_bar)^T        (5)  of m samples, biased
    S m / (m - 1)                                                  (6)  unbiased

x_i are the values of x, with probabilities p_i; in (5) they are samples, one a row, and x_bar is
their mean. (5) is the estimate of maximum likelihood; its expectation is (m - 1) / m of the
covariance, because x_bar lies nearer to the samples than the true mean does. Independent numbers
have covariance 0, but not the other way round: y = x^2 with x symmetric about 0 follows from x, and
their covariance is 0.

Pearson (1896), "Mathematical contributions to the theory of evolution III",
doi:10.1098/rsta.1896.0007; Goodfellow et al. (2016), "Deep Learning", section 3.8.
"""

from __future__ import annotations

from jaxtyping import Float, Float64
from torch import Tensor


def expectation(
    values: Float[Tensor, " outcomes"], p: Float[Tensor, " outcomes"]
) -> Float[Tensor, ""]:
    """The mean of a function by its value at each outcome, and the probability of each."""
    return (p * values).sum()  # (1)


def variance(x: Float[Tensor, " outcomes"], p: Float[Tensor, " outcomes"]) -> Float[Tensor, ""]:
    """The mean squared distance from the mean."""
    return expectation((x - expectation(x, p)).square(), p)  # (2)


def covariance(
    x: Float[Tensor, " outcomes"], y: Float[Tensor, " outcomes"], p: Float[Tensor, " outcomes"]
) -> Float[Tensor, ""]:
    """How far two numbers are above their means together."""
    return expectation((x - expectation(x, p)) * (y - expectation(y, p)), p)  # (3)


def covariance_matrix(x: Float64[Tensor, "rows columns"]) -> Float64[Tensor, "columns columns"]:
    """The covariances of all pairs of columns, by maximum likelihood."""
    _require_rows(len(x), 1)
    apart = x - x.mean(dim=0)
    return apart.T @ apart / len(x)  # (5)


def unbiased_covariance_matrix(
    x: Float64[Tensor, "rows columns"],
) -> Float64[Tensor, "columns columns"]:
    """The same without bias: its expectation is the covariance of the population."""
    _require_rows(len(x), 2)
    return covariance_matrix(x) * len(x) / (len(x) - 1)  # (6)


def correlation_matrix(x: Float64[Tensor, "rows columns"]) -> Float64[Tensor, "columns columns"]:
    """The correlations of all pairs of columns; the divisor of (5) cancels."""
    s = covariance_matrix(x)
    sd = s.diag().sqrt()
    constant = (sd == 0).nonzero().flatten().tolist()
    if constant:
        raise ValueError(
            f"column {constant[0]} must not be constant, because its standard deviation is 0 and "
            "correlations divide by it; drop it"
        )
    return s / (sd[:, None] * sd)  # (4)


def _require_rows(rows: int, least: int) -> None:
    if rows < least:
        raise ValueError(
            f"x ({rows} rows) must have at least {least}, because a spread is a mean over samples"
        )
