"""How the learning rate changes over a run: the factor on it at each fraction of the way.

    linear     e(t) = (1 - t) + t f                                 (1)  straight down to the floor
    cosine     e(t) = f + (1 - f) (1 + cos pi t) / 2                (2)  flat at both ends
    step       e(t) = max(f, 10^-m),  m of the marks 1/2, 3/4 passed  (3)  stairs
    one-cycle  e(t) rises from 1/25 to 1 over 0.3 of the run along half a cosine,
               then falls to max(f, 1/250,000) along another        (4)
    warm-up    e_k <- e_k min(1, (k + 1) / w)                       (5)  on top of any of them
    inverse-sqrt  e_k = max(f, sqrt(w / max(k + 1, w)))             (6)  after the warm-up, w >= 1

t = k / steps runs from 0 to 1, f is the floor. None of these satisfies the conditions of Robbins
and Monro, sum e_k = inf and sum e_k^2 < inf, which are about runs without an end: a floor makes the
second sum infinite, and an end makes the first one finite. `harmonic`, e_k = 1 / (1 + k / k_0),
satisfies both; the recipe `schedules` shows what that buys.

Robbins, Monro (1951), "A stochastic approximation method", doi:10.1214/aoms/1177729586; Smith,
Topin (2018), "Super-convergence", arXiv:1708.07120; Loshchilov, Hutter (2017), "SGDR",
arXiv:1608.03983; Vaswani et al. (2017), "Attention is all you need", arXiv:1706.03762, section 5.3,
for (6) with (5), where e_k = 1 at the end of the warm-up instead of 1 / sqrt(w d).
"""

from __future__ import annotations

import math
from collections.abc import Callable

Schedule = Callable[[float, float], float]
"""From the fraction of the run and the floor to the factor on the learning rate."""

MARKS = (1 / 2, 3 / 4)
"""Where `step` divides the rate by ten."""


def constant(t: float, floor: float = 0.0) -> float:
    """No change; `plateau` begins so too, and then looks at the evaluations."""
    return 1.0


def linear(t: float, floor: float = 0.0) -> float:
    """Straight down to the floor."""
    return (1 - t) + t * floor  # (1)


def cosine(t: float, floor: float = 0.0) -> float:
    """Down half a cosine."""
    return floor + (1 - floor) * (1 + math.cos(math.pi * t)) / 2  # (2)


def step(t: float, floor: float = 0.0) -> float:
    """A tenth after each mark."""
    return max(floor, 10.0 ** -sum(t >= mark for mark in MARKS))  # (3)


def one_cycle(t: float, floor: float = 0.0) -> float:
    """Up over three tenths of the run, then down to nearly nothing."""
    low, end, peak = 1 / 25, max(floor, 1 / 250_000), 0.3
    if t < peak:
        return low + (1 - low) * (1 - math.cos(math.pi * t / peak)) / 2  # (4)
    return end + (1 - end) * (1 + math.cos(math.pi * (t - peak) / (1 - peak))) / 2  # (4)


def warm_up(k: int, over: int) -> float:
    """The factor on the first updates, of which there are `over`."""
    return min(1.0, (k + 1) / over) if over > 0 else 1.0  # (5)


def inverse_sqrt(k: int, over: int, floor: float = 0.0) -> float:
    """Flat over the warm-up of `over` updates, then down as one over the root of k."""
    return max(floor, math.sqrt(max(1, over) / max(k + 1, over, 1)))  # (6)


def harmonic(k: int, scale: float) -> float:
    """Falls as 1 / k after about `scale` updates: for runs without an end."""
    return 1 / (1 + k / scale)


SCHEDULES: dict[str, Schedule] = {
    "constant": constant,
    "linear": linear,
    "cosine": cosine,
    "step": step,
    "one-cycle": one_cycle,
    "plateau": constant,
    "inverse-sqrt": constant,
}
"""By the names that recipes use; the last two look at the evaluations or at the warm-up as well."""
