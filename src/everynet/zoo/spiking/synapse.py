"""Spike trains and the currents they cause behind a synapse: sums of one filter, moved in time.

    a(t) = sum_p delta(t - t_p)                              (1)  spike train; 1/dt on a grid
    int f(t) a(t) dt = sum_p f(t_p)                          (2)  sifting; with f = 1 the count
    h(t) = t^n e^{-t/tau_s} / (n! tau_s^{n+1}), t >= 0       (3)  filter of order n; int h dt = 1
    s(t) = int a(u) h(t - u) du = sum_p h(t - t_p)           (4)  filtered train, as a sum
    s_k = dt sum_j a_j h((k - j) dt)                         (5)  as a convolution on a grid
    tau_s dx_0/dt = a - x_0,  tau_s dx_m/dt = x_{m-1} - x_m  (6)  as a recursion: s = x_n

where delta is the unit impulse, t_p the time of spike p, int an integral over all times and x_m the
states of the recursion. Times are in seconds, a and s in 1/s: since h integrates to 1, the mean of
s is the firing rate. With n = 0 the current jumps by 1/tau_s at a spike and decays; with n >= 1 it
rises smoothly.

Rall (1967), "Distinguishing theoretical synaptic potentials computed for different soma-dendritic
distributions of synaptic input", Journal of Neurophysiology 30, for n = 1; Dayan and Abbott (2001),
"Theoretical Neuroscience", sections 1.2 and 5.8.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.kernels.spiking import cascade
from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.zoo.spiking.lif import require, whole_steps

Train = Float[Tensor, " spikes"]
"""Times of spikes, in seconds, in order."""


def impulses(times: Train, duration: float, dt: float) -> Float[Tensor, " steps"]:
    """The train on a grid: each spike is 1/dt in the step that holds it."""
    steps = whole_steps(duration, dt, 0.0)
    check_train(times, duration)
    cells = (times / dt + 1e-9).long().clamp(max=steps - 1)  # a spike on the grid stays there
    return torch.bincount(cells, minlength=steps).to(times.dtype) / dt  # (1)


def sift(
    values: Float[Tensor, " steps"], train: Float[Tensor, " steps"], dt: float
) -> Float[Tensor, ""]:
    """The integral of a function times a train on a grid: the function at the spikes."""
    return (values * train).sum() * dt  # (2)


def psc(t: Float[Tensor, "*any"], tau_s: float, order: int = 0) -> Float[Tensor, "*any"]:
    """The current after one spike at 0, in 1/s."""
    check_filter(tau_s, order)
    u = t.clamp(min=0) / tau_s
    rising = u**order / (math.factorial(order) * tau_s)
    return torch.where(t < 0, 0, rising * torch.exp(-u))  # (3)


def filter_by_sum(
    times: Train, grid: Float[Tensor, " times"], tau_s: float, order: int = 0
) -> Float[Tensor, " times"]:
    """The filtered train at any times, as a sum of filters."""
    return psc(grid[:, None] - times, tau_s, order).sum(dim=1)  # (4)


def filter_by_convolution(
    times: Train, tau_s: float, order: int = 0, *, duration: float, dt: float
) -> Float[Tensor, " steps"]:
    """The filtered train at 0, dt, ..., by a convolution: exact for spikes on the grid."""
    train = impulses(times, duration, dt)
    kernel = psc(torch.arange(len(train)).to(train) * dt, tau_s, order)
    size = 2 * len(train)
    spectrum = torch.fft.rfft(train, size) * torch.fft.rfft(kernel, size)
    whole: Tensor = torch.fft.irfft(spectrum, size)
    return whole[: len(train)] * dt  # (5)


def filter_by_recursion(
    times: Train, tau_s: float, order: int = 0, *, duration: float, dt: float
) -> Float[Tensor, " steps"]:
    """The filtered train at 0, dt, ..., as `filter_by_loop`: exact for spikes at any times."""
    steps = whole_steps(duration, dt, 0.0)
    check_filter(tau_s, order)
    check_train(times, duration)
    values = cascade(times.double().cpu().numpy(), tau_s, order, dt=dt, steps=steps)
    return torch.from_numpy(values).to(times)


def filter_by_loop(
    times: Train, tau_s: float, order: int, *, steps: int, dt: float
) -> Float[Tensor, " steps"]:
    """The recursion as it is written, for reading and for tests; between spikes (6) is solved."""
    u, x, values = dt / tau_s, times.new_zeros(order + 1), []
    share = [u**i / math.factorial(i) * math.exp(-u) for i in range(order + 1)]
    for k in range(steps):
        x = torch.stack([  # what is left of each state, and what those before it have passed on
            sum((share[i] * x[m - i] for i in range(m + 1)), start=x.new_zeros(()))  # (6)
            for m in range(order + 1)
        ])  # fmt: skip
        since = k * dt - times[(times > (k - 1) * dt) & (times <= k * dt)]  # spikes of this step
        x = x + torch.stack([psc(since, tau_s, m).sum() for m in range(order + 1)])
        values.append(x[-1])
    return torch.stack(values)


def poisson_train(rate: float, duration: float, generator: torch.Generator | None = None) -> Train:
    """Spikes that come independently of each other, `rate` a second."""
    require(0 <= rate < math.inf, "rate", rate, "Hz", "a number from 0 up")
    require(0 < duration < math.inf, "duration", duration, "s", "a positive time")
    mean = torch.tensor(rate * duration, dtype=torch.float64)
    count = int(torch.poisson(mean, generator=generator))
    times = torch.rand(count, generator=generator, dtype=torch.float64)
    return times.sort().values * duration


def check_filter(tau_s: float, order: int) -> None:
    """Refuse what is no filter."""
    require(0 < tau_s < math.inf, "tau_s", tau_s, "s", "a positive time")
    require(0 <= order <= 100, "order", order, "dimensionless", "a whole number from 0 to 100")


def check_train(times: Train, duration: float) -> None:
    """Refuse times that are out of order or out of the run."""
    inside = bool(((times >= 0) & (times < duration * (1 + 1e-9))).all())
    require(inside, "times", "some outside", "s", f"between 0 and the duration ({duration} s)")
    require(bool((times.diff() >= 0).all()), "times", "not sorted", "s", "in order: sort them")


def integrate_filter(tau_s: float, order: int) -> float:
    """The integral of the filter over 60 time constants, by Gauss and Legendre's rule."""
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(12))
    cells = torch.arange(60 + order, dtype=torch.float64)[:, None]
    t = (cells + (nodes + 1) / 2) * tau_s
    return float((psc(t, tau_s, order) * weights).sum() * tau_s / 2)


@dataclass(frozen=True, kw_only=True)
class FilteredTrain(Simulation):
    """Filter one Poisson train by the sum, the convolution and the recursion; they must agree."""

    meanings: ClassVar[Mapping[str, str]] = {
        "integral_error": "how far a synapse is from integrating to one",
        "count_error": "how far the integral of a train is from its number of spikes",
        "convolution_error": "how far the convolution is from a sum over spikes",
        "recursion_error": "how far the recursion step by step is from that sum",
        "mean_error": "relative error of the mean current as the rate of the spikes",
    }

    rate: float = 50.0
    """Mean firing rate, Hz."""
    duration: float = 4.0
    """Length of the train, s."""
    dt: float = 1e-3
    """Grid, s."""
    tau_s: float = 0.01
    """Time constant of the filter, s."""
    orders: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Orders n of the filters."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.above(0, "rate", "duration", "dt", "tau_s")
        self.require(self.duration >= 10 * self.dt, "duration", "at least ten steps of dt, in s")
        good = len(self.orders) > 0 and all(0 <= n <= 100 for n in self.orders)
        self.require(good, "orders", "one or more whole numbers from 0 to 100")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        duration = round(self.duration / self.dt) * self.dt
        free = poisson_train(self.rate, duration, generator)
        aligned = (free / self.dt).floor() * self.dt
        grid = torch.arange(round(duration / self.dt), dtype=torch.float64) * self.dt
        same = {"duration": duration, "dt": self.dt}
        return {
            "free": free,
            "aligned": aligned,
            "count": sift(torch.ones_like(grid), impulses(aligned, duration, self.dt), self.dt),
            "integrals": torch.tensor(
                [integrate_filter(self.tau_s, n) for n in self.orders], dtype=torch.float64
            ),
            **{
                f"{how}_{n}": way
                for n in self.orders
                for how, way in (
                    ("sum", filter_by_sum(aligned, grid, self.tau_s, n)),
                    ("convolution", filter_by_convolution(aligned, self.tau_s, n, **same)),
                    ("free_sum", filter_by_sum(free, grid, self.tau_s, n)),
                    ("recursion", filter_by_recursion(free, self.tau_s, n, **same)),
                )
            },
        }

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        def gap(one: str, other: str) -> float:
            return max(
                float((result[f"{one}_{n}"] - result[f"{other}_{n}"]).abs().max()) * self.tau_s
                for n in self.orders
            )

        spikes = len(result["free"])
        means = [float(result[f"recursion_{n}"].mean()) for n in self.orders]
        return {
            "integral_error": float((result["integrals"] - 1).abs().max()),
            "count_error": abs(float(result["count"]) - spikes),
            "convolution_error": gap("convolution", "sum"),
            "recursion_error": gap("recursion", "free_sum"),
            "mean_error": max(abs(mean * self.duration / spikes - 1) for mean in means),
        }

    def picture_filters(self, result: Mapping[str, Tensor]) -> Figure:
        """The current after one spike at time 0, through synapses of several orders.

        All curves enclose the area 1, and a higher order rises later and smoother.
        """
        t = torch.linspace(-1, 8, 500, dtype=torch.float64) * self.tau_s
        return panels(
            Panel(
                {f"n = {n}": (t * 1000, psc(t, self.tau_s, n)) for n in self.orders},
                "time after the spike (ms)",
                "h(t) (1/s)",
                rf"filters, $\tau_s$ = {self.tau_s * 1000:g} ms, each of area 1",
            ),
            width=6.4,
            height=4.0,
        )

    def picture_filtered_train(self, result: Mapping[str, Tensor]) -> Figure:
        """A train of spikes (grey) after filters of the lowest and the highest order.

        The recursion (blue) and the sum of filters (dashed) lie on each other.
        """
        steps = min(len(result[f"recursion_{self.orders[0]}"]), round(0.4 / self.dt))
        times = torch.arange(steps, dtype=torch.float64) * self.dt * 1000
        spikes = result["free"][result["free"] < steps * self.dt] * 1000
        return panels(
            *(
                Panel(
                    {"recursion": (times, result[f"recursion_{n}"][:steps])},
                    "time (ms)",
                    "s(t) (1/s)",
                    f"n = {n}; grey: spikes",
                    guides={"sum of filters": (times, result[f"free_sum_{n}"][:steps])},
                    levels={"firing rate": self.rate},
                    marks={" " * (p + 1): float(t) for p, t in enumerate(spikes)},
                )
                for n in sorted({self.orders[0], self.orders[-1]})
            ),
            columns=1,
            width=9.0,
            height=2.9,
        )

    def tiny(self) -> Self:
        return replace(self, duration=0.5, orders=(0, 2))


RECIPES = {
    "synapse": FilteredTrain(
        goal="integral_error <= 1e-8 and count_error <= 1e-6 and convolution_error <= 1e-10 "
        "and recursion_error <= 1e-10",
        covers=("N6", "N7"),
    ),
}
