"""A cascade of leaky integrators under spikes at any times: a synaptic filter by recursion."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from everynet.kernels.compiled import compiled


def cascade(
    times: NDArray[np.float64], tau: float, order: int, *, dt: float, steps: int
) -> NDArray[np.float64]:
    """The last of order + 1 leaky integrators in a row at 0, dt, 2 dt, ...; `times` ascend, in s.

    A step multiplies by the exact solution, so that no error grows with dt; a spike inside a step
    enters with the part of the step that is left.
    """
    factorials = np.array([math.factorial(m) for m in range(order + 1)], dtype=np.float64)
    return _cascade(times, tau, factorials, dt, steps)


@compiled()
def _cascade(
    times: NDArray[np.float64], tau: float, factorials: NDArray[np.float64], dt: float, steps: int
) -> NDArray[np.float64]:
    stages = len(factorials)
    x = np.zeros(stages)
    spread = np.empty(stages)
    for m in range(stages):
        spread[m] = (dt / tau) ** m / factorials[m] * np.exp(-dt / tau)
    out = np.empty(steps)
    p = 0
    for k in range(steps):
        for stage in range(stages - 1, -1, -1):  # from the last, which nothing before it reads
            total = 0.0
            for before in range(stage + 1):
                total += spread[stage - before] * x[before]
            x[stage] = total
        while p < len(times) and times[p] <= k * dt:
            left = (k * dt - times[p]) / tau
            for stage in range(stages):
                x[stage] += left**stage / factorials[stage] * np.exp(-left) / tau
            p += 1
        out[k] = x[stages - 1]
    return out
