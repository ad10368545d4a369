"""Hodgkin-Huxley neuron: gates that open and close with the voltage make the action potential.

    C dV/dt = J - I_Na - I_K - I_L                                             (1)  membrane
    I_Na    = g_Na m^3 h (V - E_Na)                                            (2)  sodium
    I_K     = g_K n^4 (V - E_K)                                                (3)  potassium
    I_L     = g_L (V - E_L)                                                    (4)  leak
    dx/dt   = alpha_x(V) (1 - x) - beta_x(V) x,  x in {m, h, n}                (5)  gates
    x_inf   = alpha_x / (alpha_x + beta_x)                                     (6)  where x goes
    tau_x   = 1 / (alpha_x + beta_x)                                           (7)  how fast
    alpha_m = ramp((V + 40) / 10),     beta_m = 4 e^{-(V + 65) / 18}           (8)  Na opens
    alpha_h = 0.07 e^{-(V + 65) / 20}, beta_h = 1 / (1 + e^{-(V + 35) / 10})   (9)  Na is blocked
    alpha_n = 0.1 ramp((V + 55) / 10), beta_n = 0.125 e^{-(V + 65) / 80}       (10)  K opens

where ramp(x) = x / (1 - e^{-x}), J is the current from outside, g are conductances, E reversal
potentials and x one of the gates m, h and n. The numerical methods are in `solvers.py`;
`action_potential.py` has what the neuron does.

Voltage in mV, current in uA/cm2, conductance in mS/cm2, capacitance in uF/cm2. Time is in seconds
where a caller sees it; rates are per ms, as in the paper. Unlike the paper, V is the inside less
the outside, and rest is -65 mV.

Hodgkin and Huxley (1952), "A quantitative description of membrane current and its application to
conduction and excitation in nerve", Journal of Physiology 117, doi:10.1113/jphysiol.1952.sp004764.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from everynet.system.wording import unknown
from everynet.zoo.spiking.lif import require
from everynet.zoo.spiking.solvers import METHODS, State

COARSEST = 1e-3  # s: a step that no gate survives


@dataclass(frozen=True)
class HodgkinHuxley:
    """A patch of the squid's giant axon at 6.3 C, or many that share its constants.

    Capacitance is in uF/cm2, conductances g are in mS/cm2, reversal potentials e in mV.
    """

    capacitance: float = 1.0  # uF/cm2
    g_na: float = 120.0  # mS/cm2
    g_k: float = 36.0
    g_leak: float = 0.3
    e_na: float = 50.0  # mV
    e_k: float = -77.0
    e_leak: float = -54.387

    def __post_init__(self) -> None:
        require(0 < self.capacitance < math.inf, "capacitance", self.capacitance, "uF/cm2", "> 0")
        for name in ("g_na", "g_k", "g_leak"):
            value = getattr(self, name)
            require(0 <= value < math.inf, name, value, "mS/cm2", "a number from 0 up")
        for name in ("e_na", "e_k", "e_leak"):
            value = getattr(self, name)
            require(math.isfinite(value), name, value, "mV", "finite")

    def derivative(self, state: State, current: Float[Tensor, "*neurons"]) -> State:
        """How fast V, m, h and n change (per ms)."""
        alpha, beta = self.rates(state[0])
        dv = (current - self.currents(state).sum(0)) / self.capacitance  # (1)
        gates = alpha * (1 - state[1:]) - beta * state[1:]  # (5)
        return torch.cat([dv[None], gates])

    def currents(self, state: State) -> Float[Tensor, " 3 *neurons"]:
        """The currents of sodium, potassium and leak, outwards positive (uA/cm2)."""
        v, g = state[0], self.conductances(state)
        sodium = g[0] * (v - self.e_na)  # (2)
        potassium = g[1] * (v - self.e_k)  # (3)
        leak = g[2] * (v - self.e_leak)  # (4)
        return torch.stack([sodium, potassium, leak])

    def conductances(self, state: State) -> Float[Tensor, " 3 *neurons"]:
        """What is open of sodium, potassium and leak (mS/cm2)."""
        _, m, h, n = state
        return torch.stack([self.g_na * m**3 * h, self.g_k * n**4, torch.full_like(n, self.g_leak)])

    def settled(self, v: Float[Tensor, "*any"]) -> Float[Tensor, " 3 *any"]:
        """The gates m, h and n after long at each voltage."""
        alpha, beta = self.rates(v)
        return alpha / (alpha + beta)  # (6)

    def time_constants(self, v: Float[Tensor, "*any"]) -> Float[Tensor, " 3 *any"]:
        """How long m, h and n take to settle at each voltage (ms)."""
        alpha, beta = self.rates(v)
        return 1 / (alpha + beta)  # (7)

    def rates(self, v: Float[Tensor, "*any"]) -> tuple[Float[Tensor, " 3 *any"], ...]:
        """How fast m, h and n open and close at each voltage (1/ms)."""
        alpha_m, beta_m = ramp((v + 40) / 10), 4 * torch.exp(-(v + 65) / 18)  # (8)
        alpha_h, beta_h = 0.07 * torch.exp(-(v + 65) / 20), torch.sigmoid((v + 35) / 10)  # (9)
        alpha_n, beta_n = 0.1 * ramp((v + 55) / 10), 0.125 * torch.exp(-(v + 65) / 80)  # (10)
        return torch.stack([alpha_m, alpha_h, alpha_n]), torch.stack([beta_m, beta_h, beta_n])

    def rest(
        self, current: float | Float[Tensor, "*neurons"] = 0.0
    ) -> Float[Tensor, " 4 *neurons"]:
        """The state in which nothing changes, whether it is stable or not."""
        if self.g_leak == 0:
            raise ValueError("g_leak (0 mS/cm2) must be > 0: without it there may be no rest")
        given = torch.as_tensor(current, dtype=torch.float64)
        ends = self.reach(torch.full_like(given, self.e_leak), given)
        low, high = (torch.full_like(given, end) for end in ends)
        for _ in range(56):
            middle = (low + high) / 2
            state = torch.cat([middle[None], self.settled(middle)])
            inwards = given - self.currents(state).sum(0) > 0
            low, high = torch.where(inwards, middle, low), torch.where(inwards, high, middle)
        return state

    def reach(
        self, v: Float[Tensor, "*neurons"], current: Float[Tensor, "*any"]
    ) -> tuple[float, float]:
        """Voltages that these currents cannot drive V past (mV)."""
        if self.g_leak == 0:
            return -math.inf, math.inf
        ends = (self.e_na, self.e_k, self.e_leak, v.min().item(), v.max().item())
        low, high = min(current.min().item(), 0.0), max(current.max().item(), 0.0)
        return min(ends) + low / self.g_leak, max(ends) + high / self.g_leak

    def simulate(
        self,
        current: float | Float[Tensor, "*steps neurons"],
        duration: float,
        dt: float = 1e-5,
        *,
        method: str = "staggered",
        record: Sequence[int] | None = None,
        state: Float[Tensor, "4 neurons"] | None = None,
    ) -> Recording:
        """Let neurons run for `duration` in steps of `dt` (s), from rest or from a `state`.

        `current` (uA/cm2) is one number, one for each neuron, or a row of them for each step, which
        holds throughout the step. Where it is a tensor, its device runs the neurons. All of them
        are recorded unless `record` names some, or none.
        """
        steps = whole_steps(duration, dt)
        drive = _rows(current, steps)
        size = drive.shape[1]
        if state is None:
            state = self.rest().to(drive)[:, None].expand(-1, size)
        _check_state(state, size)
        if method not in METHODS:
            raise ValueError(unknown("method", method, METHODS))
        chosen = list(range(size) if record is None else record)
        if not all(0 <= i < size for i in chosen) or len(set(chosen)) < len(chosen):
            raise ValueError(f"record ({chosen}) must name different neurons from 0 to {size - 1}")
        end = state.to(drive).clone(memory_format=torch.contiguous_format)
        solver = METHODS[method](self, 1e3 * dt, self.reach(end[0], drive))
        march = solver.compiled if drive.device.type == "cpu" else solver.by_tensors
        times, neurons, traces = march(end, drive, steps, chosen)  # `end` is the start until here
        if not end.isfinite().all():
            raise ValueError(
                f"dt ({dt} s) must be smaller: the voltage became infinite with {method}; "
                "try 1e-5, or the staggered method"
            )
        order = times.argsort(stable=True)
        grid = dt * torch.arange(traces.shape[1], dtype=drive.dtype, device=drive.device)
        return Recording(1e-3 * times[order], neurons[order], grid, traces, end)


class Recording(NamedTuple):
    """What `simulate` recorded."""

    times: Float[Tensor, " spikes"]
    """When V rose through 0 mV (s), in order."""
    neurons: Int[Tensor, " spikes"]
    """Which neuron's V it was."""
    grid: Float[Tensor, " samples"]
    """The moments (s) of the traces: 0, dt, ..., duration."""
    traces: Float[Tensor, "4 samples recorded"]
    """V, m, h and n of the recorded neurons."""
    state: Float[Tensor, "4 neurons"]
    """V, m, h and n of all at the end: pass it back in to go on."""


def ramp(x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """The function x / (1 - e^-x), which is 1 at 0."""
    return torch.where(x == 0, 1.0, -x / torch.expm1(-x))


def whole_steps(duration: float, dt: float) -> int:
    """How many steps of `dt` there are in `duration` (both s)."""
    require(0 < duration < math.inf, "duration", duration, "s", "a positive number")
    require(
        0 < dt <= COARSEST, "dt", dt, "s", f"above 0 and at most {COARSEST}, for gates move in 1e-4"
    )
    steps = round(duration / dt)
    exact = steps >= 1 and math.isclose(steps * dt, duration, rel_tol=1e-9)
    require(exact, "duration", duration, "s", f"a whole number of steps dt ({dt} s)")
    return steps


def _rows(current: float | Tensor, steps: int) -> Float[Tensor, "rows neurons"]:
    """The current as one row that holds throughout or a row for each step."""
    given = torch.as_tensor(current, dtype=torch.float64).detach().contiguous()
    if given.numel() == 0:
        raise ValueError("current (empty) must hold at least one number (uA/cm2)")
    if not given.isfinite().all():
        raise ValueError("current (NaN or infinite somewhere) must be finite (uA/cm2)")
    rows = given.reshape(1, -1) if given.dim() < 2 else given
    if given.dim() > 2 or len(rows) not in (1, steps):
        raise ValueError(
            f"current ({' x '.join(map(str, given.shape))}) must be one number, one for each "
            f"neuron, or {steps} rows of them, one for each step (uA/cm2)"
        )
    return rows


def _check_state(state: Tensor, neurons: int) -> None:
    if state.shape != (4, neurons):
        raise ValueError(
            f"state ({' x '.join(map(str, state.shape))}) must be 4 x {neurons}: V (mV), m, h and "
            "n of each neuron"
        )
    gates = state[1:]
    if not (state.isfinite().all() and (gates >= 0).all() and (gates <= 1).all()):
        raise ValueError("state must be finite, with gates m, h and n from 0 to 1 and V in mV")
