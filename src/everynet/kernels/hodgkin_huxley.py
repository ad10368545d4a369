"""Hodgkin-Huxley neurons on the CPU: one compiled loop for each way to step through time.

The zoo's file has the equations and their torch form, for other devices. Here `state` holds the
rows V, m, h, n, a column a neuron, and is changed in place; time is in ms. A spike is a rise of V
through 0 mV, its time found on the line across the step.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from everynet.kernels.compiled import compiled

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Constants: TypeAlias = tuple[float, float, float, float, float, float, float]
"""Capacitance, conductances of Na, K and leak, their reversal potentials."""
Spikes: TypeAlias = tuple[Floats, Ints]
"""Times (ms) and neurons of the spikes, in no order."""

Variables: TypeAlias = tuple[float, float, float, float]
"""V, m, h and n of one neuron."""


class Job(NamedTuple):
    """The input currents of the neurons and what is recorded of them."""

    current: Floats
    """One row that holds throughout, or a row for each step."""
    constants: Constants
    dt: float
    steps: int
    slots: Ints
    """The column of the traces that each neuron writes to, or -1."""
    traces: Floats
    """V, m, h, n by moment by recorded neuron; the first moment is written before."""


class Table(NamedTuple):
    """The effect of a whole step on the gates, by voltage.

    Row r is for r / per_mv above `low`: a gate becomes a + b times itself, columns a, b of m, of h
    and of n. Between two rows both are taken along the line. V must stay inside.
    """

    rows: Floats
    low: float
    per_mv: float


BLOCK = 256  # neurons whose state stays in the nearest cache while they go through all steps


@compiled()
def exponential_euler(state: Floats, job: Job) -> Spikes:
    """Integrate by exponential Euler: each variable relaxes as if the others stood still."""
    current, constants, dt, steps, slots, traces = job
    c, g_na, g_k, g_leak, e_na, e_k, e_leak = constants
    times, neurons, count = np.empty(64), np.empty(64, np.int64), 0
    for i in range(state.shape[1]):
        v, m, h, n = state[:, i]
        for k in range(steps):
            na, potassium = g_na * m**3 * h, g_k * n**4
            total = na + potassium + g_leak
            pull = na * e_na + potassium * e_k + g_leak * e_leak
            pull += current[k if len(current) > 1 else 0, i]
            before = v
            a_m, b_m, a_h, b_h, a_n, b_n = _rates(v)
            if total > 0:
                v = pull / total + (v - pull / total) * math.exp(-dt * total / c)
            else:
                v += dt * pull / c
            m = a_m / (a_m + b_m) + (m - a_m / (a_m + b_m)) * math.exp(-dt * (a_m + b_m))
            h = a_h / (a_h + b_h) + (h - a_h / (a_h + b_h)) * math.exp(-dt * (a_h + b_h))
            n = a_n / (a_n + b_n) + (n - a_n / (a_n + b_n)) * math.exp(-dt * (a_n + b_n))
            if before < 0 <= v:
                time = dt * (k - before / (v - before))
                times, neurons, count = _append(times, neurons, count, time, i)
            if slots[i] >= 0:
                _write_trace(traces, k + 1, slots[i], (v, m, h, n))
        _write_state(state, i, (v, m, h, n))
    return times[:count], neurons[:count]


@compiled()
def rk4(state: Floats, job: Job) -> Spikes:
    """Integrate by the classical Runge-Kutta method of fourth order."""
    current, constants, dt, steps, slots, traces = job
    times, neurons, count = np.empty(64), np.empty(64, np.int64), 0
    for i in range(state.shape[1]):
        v, m, h, n = state[:, i]
        for k in range(steps):
            j = current[k if len(current) > 1 else 0, i]
            v1, m1, h1, n1 = _slope((v, m, h, n), j, constants)
            s = dt / 2
            v2, m2, h2, n2 = _slope((v + s * v1, m + s * m1, h + s * h1, n + s * n1), j, constants)
            v3, m3, h3, n3 = _slope((v + s * v2, m + s * m2, h + s * h2, n + s * n2), j, constants)
            s = dt
            v4, m4, h4, n4 = _slope((v + s * v3, m + s * m3, h + s * h3, n + s * n3), j, constants)
            before, s = v, dt / 6
            v += s * (v1 + 2 * v2 + 2 * v3 + v4)
            m += s * (m1 + 2 * m2 + 2 * m3 + m4)
            h += s * (h1 + 2 * h2 + 2 * h3 + h4)
            n += s * (n1 + 2 * n2 + 2 * n3 + n4)
            if before < 0 <= v:
                time = dt * (k - before / (v - before))
                times, neurons, count = _append(times, neurons, count, time, i)
            if slots[i] >= 0:
                _write_trace(traces, k + 1, slots[i], (v, m, h, n))
        _write_state(state, i, (v, m, h, n))
    return times[:count], neurons[:count]


@compiled()
def staggered(state: Floats, job: Job, table: Table) -> Spikes:
    """Integrate with gates half a step ahead of the voltage, their rates from a table."""
    current, constants, dt, steps, slots, traces = job
    rows, low, per_mv = table
    c, g_na, g_k, g_leak, e_na, e_k, e_leak = constants
    times, neurons, count = np.empty(64), np.empty(64, np.int64), 0
    size, per_c = state.shape[1], dt / c
    recorded = np.flatnonzero(slots >= 0)
    old = np.empty(BLOCK)
    for i in range(size):
        _write_state(
            state, i, _half_step(table, (state[0, i], state[1, i], state[2, i], state[3, i]))
        )
    for first in range(0, size, BLOCK):
        width = min(BLOCK, size - first)
        v, m, h, n = state[:, first : first + width]
        mine = recorded[(recorded >= first) & (recorded < first + width)]
        for k in range(steps):
            drive = current[k if len(current) > 1 else 0, first : first + width]
            if k > 0:
                for i in range(width):  # gates: a whole step at V, from the table
                    x = (v[i] - low) * per_mv
                    r = int(x)
                    f, at, to = x - r, rows[r], rows[r + 1]
                    a, b = at[0] + f * (to[0] - at[0]), at[1] + f * (to[1] - at[1])
                    m[i] = a + b * m[i]
                    a, b = at[2] + f * (to[2] - at[2]), at[3] + f * (to[3] - at[3])
                    h[i] = a + b * h[i]
                    a, b = at[4] + f * (to[4] - at[4]), at[5] + f * (to[5] - at[5])
                    n[i] = a + b * n[i]
            risen = 0
            for i in range(width):  # voltage: a whole step with these gates
                na, squared = g_na * m[i] * m[i] * m[i] * h[i], n[i] * n[i]
                potassium = g_k * squared * squared
                total = na + potassium + g_leak
                pull = drive[i] + na * e_na + potassium * e_k + g_leak * e_leak
                z, before = total * per_c, v[i]
                after = before + per_c * (pull - total * before) / (1 + z * (0.5 + z / 12))
                risen += (before < 0) & (after >= 0)
                old[i], v[i] = before, after
            if risen:
                for i in range(width):
                    if old[i] < 0 <= v[i]:
                        time = dt * (k - old[i] / (v[i] - old[i]))
                        times, neurons, count = _append(times, neurons, count, time, first + i)
            for j in mine:
                i = j - first
                _write_trace(traces, k + 1, slots[j], _half_step(table, (v[i], m[i], h[i], n[i])))
    for i in range(size):
        _write_state(
            state, i, _half_step(table, (state[0, i], state[1, i], state[2, i], state[3, i]))
        )
    return times[:count], neurons[:count]


@compiled()
def _rates(v: float) -> tuple[float, float, float, float, float, float]:
    """The opening and closing rates of m, h and n (1/ms)."""
    return (
        _ramp((v + 40) / 10),
        4 * math.exp(-(v + 65) / 18),
        0.07 * math.exp(-(v + 65) / 20),
        1 / (1 + math.exp(-(v + 35) / 10)),
        0.1 * _ramp((v + 55) / 10),
        0.125 * math.exp(-(v + 65) / 80),
    )


@compiled()
def _ramp(x: float) -> float:
    """The function x / (1 - e^-x), which is 1 at 0."""
    return 1.0 if x == 0 else -x / math.expm1(-x)


@compiled()
def _slope(y: Variables, j: float, constants: Constants) -> Variables:
    """The time derivatives of V, m, h and n (1/ms)."""
    v, m, h, n = y
    c, g_na, g_k, g_leak, e_na, e_k, e_leak = constants
    a_m, b_m, a_h, b_h, a_n, b_n = _rates(v)
    out = g_na * m**3 * h * (v - e_na) + g_k * n**4 * (v - e_k) + g_leak * (v - e_leak)
    return (
        (j - out) / c,
        a_m * (1 - m) - b_m * m,
        a_h * (1 - h) - b_h * h,
        a_n * (1 - n) - b_n * n,
    )


@compiled()
def _half_step(table: Table, y: Variables) -> Variables:
    """The variables with the gates advanced by half a step: twice this is the whole step."""
    rows, low, per_mv = table
    v, m, h, n = y
    x = (v - low) * per_mv
    r = int(x)
    row = rows[r] + (x - r) * (rows[r + 1] - rows[r])
    b_m, b_h, b_n = math.sqrt(row[1]), math.sqrt(row[3]), math.sqrt(row[5])
    m, h, n = (
        row[0] / (1 + b_m) + b_m * m,
        row[2] / (1 + b_h) + b_h * h,
        row[4] / (1 + b_n) + b_n * n,
    )
    return v, m, h, n


@compiled()
def _write_trace(traces: Floats, k: int, slot: int, y: Variables) -> None:
    for variable in range(4):
        traces[variable, k, slot] = y[variable]


@compiled()
def _write_state(state: Floats, i: int, y: Variables) -> None:
    for variable in range(4):
        state[variable, i] = y[variable]


@compiled()
def _append(
    times: Floats, neurons: Ints, count: int, time: float, neuron: int
) -> tuple[Floats, Ints, int]:
    """The arrays, twice as long if they were full, with one more spike, and its number."""
    if count == len(times):
        times = np.append(times, np.empty(count))
        neurons = np.append(neurons, np.empty(count, np.int64))
    times[count], neurons[count] = time, neuron
    return times, neurons, count + 1
