"""Tuning: the rate at which a neuron fires under a current, and the currents that give a rate.

    G(J) = max(J, 0)                                              (1)  rectified linear
    G(J) = sigmoid(J) / tau_ref                                   (2)  sigmoid
    G(J) = 1 / (tau_ref - tau_m ln(1 - 1 / J)) where J > 1, else 0  (3)  LIF rate
    gain = (G^-1(rate) - J_0) / (1 - c),  bias = J_0 - gain c     (4)  from max_rates, intercepts

A neuron with current J = gain x + bias fires at `rate` (Hz) where x = 1 and begins to at x = c; J_0
is 1 for the LIF neuron, else 0; the sigmoid is half way there.

Eliasmith and Anderson (2003), "Neural Engineering", MIT Press, chapter 2. Gain and bias as in
Bekolay et al. (2014), "Nengo: a Python tool for building large-scale functional brain models",
Frontiers in Neuroinformatics 7, doi:10.3389/fninf.2013.00048.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from everynet.zoo.spiking.lif import LIF, require, span


@dataclass(frozen=True)
class RectifiedLinear:
    """A rate in proportion to the current above 0."""

    threshold = 0.0
    limit = math.inf

    def rate(self, current: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        return current.clamp(min=0)  # (1)

    def inverse(self, rate: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        return rate


@dataclass(frozen=True)
class Sigmoid:
    """A sigmoid rate between 0 and 1 / tau_ref, half of it at current 0."""

    tau_ref: float = 0.0025  # s

    threshold = 0.0

    def __post_init__(self) -> None:
        require(0 < self.tau_ref < math.inf, "tau_ref", self.tau_ref, "s", "a positive number")

    @property
    def limit(self) -> float:
        return 1 / self.tau_ref

    def rate(self, current: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        return torch.sigmoid(current) / self.tau_ref  # (2)

    def inverse(self, rate: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        return torch.logit(rate * self.tau_ref)


@dataclass(frozen=True)
class LIFRate:
    """The rate of a leaky integrate-and-fire neuron whose threshold is at current 1."""

    tau_m: float = 0.02  # s
    tau_ref: float = 0.002  # s

    threshold = 1.0

    def __post_init__(self) -> None:
        require(0 < self.tau_m < math.inf, "tau_m", self.tau_m, "s", "a positive number")
        require(0 <= self.tau_ref < math.inf, "tau_ref", self.tau_ref, "s", "a number from 0 up")

    @property
    def limit(self) -> float:
        return 1 / self.tau_ref if self.tau_ref > 0 else math.inf

    def rate(self, current: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        return LIF(self.tau_m, self.tau_ref).rate(current)  # (3)

    def inverse(self, rate: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        return -1 / torch.expm1((self.tau_ref - 1 / rate) / self.tau_m)


Tuning: TypeAlias = RectifiedLinear | Sigmoid | LIFRate
"""`rate` (Hz) of a current, its `inverse`, the `threshold` current, the `limit` of rates (Hz)."""
TUNINGS: dict[str, type[Tuning]] = {
    "rectified-linear": RectifiedLinear,
    "sigmoid": Sigmoid,
    "lif": LIFRate,
}


def gain_and_bias(
    tuning: Tuning, max_rates: Float[Tensor, " neurons"], intercepts: Float[Tensor, " neurons"]
) -> tuple[Float[Tensor, " neurons"], Float[Tensor, " neurons"]]:
    """Gain and bias with which neurons fire from their intercepts on, at max_rates (Hz) at 1."""
    limit, name = tuning.limit, type(tuning).__name__
    require(
        bool(((max_rates > 0) & (max_rates < limit)).all()), "max_rates", span(max_rates), "Hz",
        f"above 0 and below {limit:g} Hz, which {name} does not reach",
    )  # fmt: skip
    inside = bool(((intercepts >= -1) & (intercepts < 1)).all())
    require(inside, "intercepts", span(intercepts), "radii", "at least -1 and below 1")
    gain = (tuning.inverse(max_rates) - tuning.threshold) / (1 - intercepts)  # (4)
    above = f"above the rate at the intercept, {limit / 2:g} Hz for {name}"
    require(bool((gain > 0).all()), "max_rates", span(max_rates), "Hz", above)
    return gain, tuning.threshold - gain * intercepts
