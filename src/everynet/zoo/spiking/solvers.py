"""Three numerical methods for the equations of Hodgkin and Huxley.

    x <- x_inf + (x - x_inf) e^{-dt / tau_x}                         (1)  gate while V holds
    V <- V_inf + (V - V_inf) e^{-z},  z = dt g / C,  V_inf = p / g   (2)  V while the gates hold
    V <- V + dt (dV/dt) / (1 + z / 2 + z^2 / 12)                     (3)  nearly (2), and faster
    y <- y + dt (k_1 + 2 k_2 + 2 k_3 + k_4) / 6                      (4)  V, m, h and n at once

where x is a gate, y is V, m, h and n, k_1 to k_4 are their slopes and dt is the step. While the
gates hold, C dV/dt = p - g V: g sums the open conductances, p the current and each
conductance times its reversal potential. All times here are in ms.

    exponential Euler    a step of (1) and one of (2) from the same moment       first order
    staggered            half a step of (1), a step of (3), half a step of (1)   second order
    Runge-Kutta          a step of (4), slopes k at its start, middle and end    fourth order

Between two voltages the staggered form's two halves are one whole step, which the compiled loop
reads from a table: it needs no exponential.

Hines (1984), "Efficient computation of branched nerve equations", International Journal of
Bio-Medical Computing 15, doi:10.1016/0020-7101(84)90008-4; Rush and Larsen (1978), "A practical
algorithm for solving dynamic membrane equations", IEEE Transactions on Biomedical Engineering 25,
doi:10.1109/TBME.1978.326270.
"""

from __future__ import annotations

import math
from dataclasses import astuple
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from everynet.kernels import hodgkin_huxley as kernels

if TYPE_CHECKING:
    from everynet.zoo.spiking.hodgkin_huxley import HodgkinHuxley
else:
    HodgkinHuxley = object  # the only kind; the file that defines it imports this one

State = Float[Tensor, "variables *neurons"]
"""V, m, h and n along the first axis."""
Seen = tuple[Float[Tensor, " spikes"], Int[Tensor, " spikes"], Float[Tensor, "4 samples recorded"]]
"""When V rose through 0 mV (ms), whose it was, and the traces."""
PER_MV = 50.0  # rows of the table of gates in a mV
ROWS = 1_000_000  # the longest table


class Method:
    """A way to go from one moment to the next, `dt` (ms) later; V stays within `reach` (mV)."""

    def __init__(self, model: HodgkinHuxley, dt: float, reach: tuple[float, float]) -> None:
        self.model, self.dt = model, dt

    def step(self, state: State, current: Float[Tensor, "*neurons"]) -> State:
        """One step in tensors, on any device."""
        raise NotImplementedError  # every method says it

    def loop(self, state: kernels.Floats, job: kernels.Job) -> kernels.Spikes:
        """All steps in the compiled loop; `state` is changed in place."""
        raise NotImplementedError  # every method says it

    def by_tensors(
        self,
        state: Float[Tensor, "4 neurons"],
        current: Float[Tensor, "rows neurons"],
        steps: int,
        record: list[int],
    ) -> Seen:
        """All steps in tensors; `state` is changed in place."""
        times, neurons, samples = [], [], [state[:, record]]
        for k in range(steps):
            after = self.step(state, current[k if len(current) > 1 else 0])
            fired = ((state[0] < 0) & (after[0] >= 0)).nonzero()[:, 0]
            low, high = state[0, fired], after[0, fired]
            times.append(self.dt * (k - low / (high - low)))
            neurons.append(fired)
            state.copy_(after)
            samples.append(state[:, record])
        return torch.cat(times), torch.cat(neurons), torch.stack(samples, dim=1)

    def compiled(
        self,
        state: Float[Tensor, "4 neurons"],
        current: Float[Tensor, "rows neurons"],
        steps: int,
        record: list[int],
    ) -> Seen:
        """The same by the compiled loop, on the CPU."""
        slots = torch.full((state.shape[1],), -1)
        slots[record] = torch.arange(len(record))
        traces = state.new_empty(4, steps + 1, len(record))
        traces[:, 0] = state[:, record]
        # floats, because the loop would be compiled anew for an int
        c, g_na, g_k, g_leak, e_na, e_k, e_leak = map(float, astuple(self.model))
        constants = c, g_na, g_k, g_leak, e_na, e_k, e_leak
        job = kernels.Job(current.numpy(), constants, self.dt, steps, slots.numpy(), traces.numpy())
        times, neurons = self.loop(state.numpy(), job)
        return torch.from_numpy(times), torch.from_numpy(neurons), traces


class ExponentialEuler(Method):
    """Each variable relaxes for a step as if the others stood still; first order."""

    def step(self, state: State, current: Float[Tensor, "*neurons"]) -> State:
        v, x = state[0], state[1:]
        x_inf, tau = self.model.settled(v), self.model.time_constants(v)
        x = x_inf + (x - x_inf) * torch.exp(-self.dt / tau)  # (1)
        g, p = held(self.model, state, current)
        v_inf, z = p / g, self.dt * g / self.model.capacitance
        v = v_inf + (v - v_inf) * torch.exp(-z)  # (2)
        return torch.cat([v[None], x])

    def loop(self, state: kernels.Floats, job: kernels.Job) -> kernels.Spikes:
        return kernels.exponential_euler(state, job)


class RK4(Method):
    """The classical Runge-Kutta method; fourth order."""

    def step(self, state: State, current: Float[Tensor, "*neurons"]) -> State:
        slope, dt = self.model.derivative, self.dt
        k1 = slope(state, current)
        k2 = slope(state + dt / 2 * k1, current)
        k3 = slope(state + dt / 2 * k2, current)
        k4 = slope(state + dt * k3, current)
        return state + dt * (k1 + 2 * k2 + 2 * k3 + k4) / 6  # (4)

    def loop(self, state: kernels.Floats, job: kernels.Job) -> kernels.Spikes:
        return kernels.rk4(state, job)


class Staggered(Method):
    """Gates half a step ahead of V, what a step does to them read from a table; second order.

    In a step a gate x becomes a + b x; a row of the table has a, b of m, of h and of n.
    """

    def __init__(self, model: HodgkinHuxley, dt: float, reach: tuple[float, float]) -> None:
        super().__init__(model, dt, reach)
        low, high = reach
        if not (high - low) * PER_MV < ROWS:
            raise ValueError(
                f"current must be weaker: it may drive V from {low:.3g} to {high:.3g} mV, "
                "further than the staggered method's table; take method='rk4'"
            )
        self.low = float(math.floor(low))  # rows at the same voltages for any current
        rows = math.ceil((high - self.low) * PER_MV) + 2
        v = self.low + torch.arange(rows, dtype=torch.float64) / PER_MV
        b = torch.exp(-dt / model.time_constants(v))
        a = model.settled(v) * (1 - b)
        self.table = torch.stack([a, b], dim=1).flatten(0, 1).T.contiguous()  # rows 6

    def step(self, state: State, current: Float[Tensor, "*neurons"]) -> State:
        ahead = self.half(state)
        g, p = held(self.model, ahead, current)
        v, z = ahead[0], self.dt * g / self.model.capacitance
        slope = (p - g * v) / self.model.capacitance
        v = v + self.dt * slope / (1 + z / 2 + z**2 / 12)  # (3)
        return self.half(torch.cat([v[None], ahead[1:]]))

    def half(self, state: Float[Tensor, "4 neurons"]) -> Float[Tensor, "4 neurons"]:
        """The same with the gates half a step on: twice this is what the table says."""
        place = (state[0] - self.low) * PER_MV
        row = place.long()
        self.table = table = self.table.to(state)  # moves at the first step, if ever
        line = torch.lerp(table[row], table[row + 1], (place - row)[:, None])  # neurons 6
        a, b = line.T.unflatten(0, (3, 2)).unbind(1)
        gates = a / (1 + b.sqrt()) + b.sqrt() * state[1:]  # (1)
        return torch.cat([state[:1], gates])

    def loop(self, state: kernels.Floats, job: kernels.Job) -> kernels.Spikes:
        return kernels.staggered(state, job, kernels.Table(self.table.numpy(), self.low, PER_MV))


def held(
    model: HodgkinHuxley, state: State, current: Float[Tensor, "*neurons"]
) -> tuple[Float[Tensor, "*neurons"], Float[Tensor, "*neurons"]]:
    """The g and p of C dV/dt = p - g V, which is so while the gates hold."""
    g = model.conductances(state)
    return g.sum(0), current + (g[0] * model.e_na + g[1] * model.e_k + g[2] * model.e_leak)


METHODS: dict[str, type[Method]] = {
    "exponential-euler": ExponentialEuler,
    "rk4": RK4,
    "staggered": Staggered,
}
