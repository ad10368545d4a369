"""A network of leaky integrate-and-fire neurons, step by step and event by event.

A step updates every membrane and synapse; then only the rows of weights of neurons that spiked are
read. One delay for all synapses makes spikes wait in the list of spikes itself; a delay for each
makes currents wait in a ring of rows. The compiled loop, for the CPU, and the torch form, for other
devices, add in the same order and draw the same random numbers: those of a counter, so that a run
can be stopped and continued at any step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from numba import uint64
from numpy.typing import NDArray
from torch import Tensor

from everynet.kernels.compiled import compiled
from everynet.kernels.lif import Reals, Recording, list_spikes
from everynet.kernels.prefetch import prefetch

ROOM = 1 << 20  # spikes that fit the buffer before it is emptied
TINY = 1e-30  # currents and voltages below it are made 0: denormal numbers are slow
EVERY = 64  # steps between two times that this is done
State: TypeAlias = tuple[Reals, Reals, NDArray[np.int32]]  # v, charge, end of the refractory period
GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


@dataclass(frozen=True)
class NetworkState:
    """The state of a network, from which a run can be continued bit by bit."""

    voltage: Float[Tensor, " neurons"]
    charge: Float[Tensor, " neurons"]
    """Current of each synapse times its time constant, tau_s s: a spike adds its weight."""
    refractory: Int[Tensor, " neurons"]
    """Steps left of the refractory period."""
    waiting: Int[Tensor, "2 spikes"]
    """Steps and neurons of spikes that have not arrived; used with one delay for all."""
    arriving: Float[Tensor, "slots neurons"]
    """Charges that arrive at the end of the next step, the one after, ...; with many delays."""
    step: int = 0
    """Steps done."""
    key: int | None = None
    """The key of the random numbers."""


class Wiring(NamedTuple):
    """Weights from row to column, dense or as compressed rows; delays of synapses, if many."""

    dense: Float[Tensor, "neurons neurons"]
    starts: Int[Tensor, " rows"]
    columns: Int[Tensor, " synapses"]
    """16-bit numbers where they do: reading them is what a spike costs."""
    values: Float[Tensor, " synapses"]
    delays: Int[Tensor, " synapses"]
    """In steps; empty where all synapses have the lag of the rule."""


class Step(NamedTuple):
    """v += (I - v) factor + charge gain; charge *= decay; v = 0 for `hold` steps after a spike."""

    factor: float
    gain: float
    decay: float
    hold: int
    lag: int


class Noise(NamedTuple):
    """Poisson spikes into each neuron: their mean number a step, and the weight of each."""

    mean: Float[Tensor, " neurons"]
    weight: float


def advance(
    wiring: Wiring,
    state: NetworkState,
    current: Float[Tensor, "rows neurons"],
    noise: Noise,
    rule: Step,
    *,
    steps: int,
    dt: float,
    record: Sequence[int] = (),
) -> Recording[NetworkState]:
    """Simulate `steps` steps of the network on the device of the state."""
    if state.voltage.device.type != "cpu":
        return advance_torch(wiring, state, current, noise, rule, steps=steps, dt=dt, record=record)
    v, q = state.voltage.numpy().copy(), state.charge.numpy().copy()
    until, ring = state.refractory.numpy().copy(), state.arriving.numpy().copy()
    rows, number = np.ascontiguousarray(current.numpy()), v.dtype.type
    mean = noise.mean.numpy()
    none, chosen = np.exp(-mean), np.asarray(record, dtype=np.int64)
    trace = np.empty((steps, len(chosen)), dtype=v.dtype)
    dense, starts, columns, values, delays = (part.numpy() for part in wiring)
    constants = (number(rule.factor), number(rule.gain), number(rule.decay), rule.hold, rule.lag)
    waiting = (state.waiting - torch.tensor([[state.step], [0]])).numpy().astype(np.int32)
    out: list[list[NDArray[np.int32]]] = [[], []]
    done, at = 0, 0
    while done < steps:
        buffer = np.empty((2, waiting.shape[1] + max(2 * len(v) + 8, ROOM)), dtype=np.int32)
        known = waiting.shape[1]
        buffer[:, :known] = waiting
        done, at, head, count = _run(
            (v, q, until), rows, (dense, starts, columns, values, delays), ring, at, constants,
            (mean, none, number(noise.weight), np.uint64(state.key or 0)),
            (state.step, done, steps), (chosen, trace), buffer, known,
        )  # fmt: skip
        out[0].append(buffer[0, known:count].copy())
        out[1].append(buffer[1, known:count].copy())
        waiting = buffer[:, head:count].copy()
    left = torch.from_numpy(waiting.astype(np.int64))
    end = replace(
        state,
        voltage=torch.from_numpy(v),
        charge=torch.from_numpy(q),
        refractory=torch.from_numpy(np.maximum(until - steps, 0)),
        waiting=left + torch.tensor([[state.step], [0]]),
        arriving=torch.from_numpy(np.roll(ring, -at, axis=0)),
        step=state.step + steps,
    )
    when = (np.concatenate(out[0]).astype(np.int64) + state.step) * dt
    who = torch.from_numpy(np.concatenate(out[1]))
    return Recording(torch.from_numpy(when), who, torch.from_numpy(trace), end)


@compiled()
def _run(  # noqa: PLR0912, PLR0917 -- one pass, and compiled code takes its arrays one by one
    state: State,
    current: Reals,
    wiring: tuple[Reals, NDArray[np.int64], NDArray[np.int64], Reals, NDArray[np.int32]],
    ring: Reals,
    at: int,
    constants: tuple[float, float, float, int, int],
    noise: tuple[NDArray[np.float64], NDArray[np.float64], float, np.uint64],
    span: tuple[int, int, int],
    recorded: tuple[NDArray[np.int64], Reals],
    spikes: NDArray[np.int32],
    count: int,
) -> tuple[int, int, int, int]:
    """Advance to the end, or until the buffer is full.

    Returns the step reached, the place in the ring, the first spike that waits and their number.
    """
    v, q, until = state
    dense, starts, columns, values, delays = wiring
    factor, gain, decay, hold, lag = constants
    mean, none, weight, key = noise
    begun, first, steps = span
    record, trace = recorded
    n = len(v)
    head = 0
    fired, spots = np.zeros(8 * ((n + 7) // 8), np.uint8), np.empty((n + 7) // 8 + 1, np.int32)
    line = max(1, 64 // values.itemsize)  # values that lie in one line of the cache
    for k in range(first, steps):
        if count + n + 8 > spikes.shape[1]:
            return k, at, head, count
        for m in range(len(record)):
            trace[k, m] = v[record[m]]
        row = current[k if len(current) > 1 else 0]
        _advance_membranes(state, row, np.int32(k), (factor, gain, decay), fired)
        before = count
        count = list_spikes(fired, spots, spikes[1], count)
        for m in range(before, count):
            spikes[0, m] = k
            v[spikes[1, m]] = 0
            until[spikes[1, m]] = k + hold
        if len(ring):
            while head < count:
                j = spikes[1, head]
                for e in range(starts[j], starts[j + 1]):
                    slot = at + delays[e]
                    slot = slot if slot < len(ring) else slot - len(ring)
                    ring[slot, uint64(columns[e])] += values[e]
                head += 1
            due = ring[at]
            for i in range(n):
                q[i] += due[i]
                due[i] = 0
            at = at + 1 if at + 1 < len(ring) else 0
        else:
            while head < count and spikes[0, head] + lag <= k:
                j = spikes[1, head]
                if len(dense):
                    weights = dense[j]
                    for i in range(n):
                        q[i] += weights[i]
                else:
                    ahead = starts[spikes[1, min(head + 1, count - 1)]] - starts[j]
                    for a in range(starts[j], starts[j + 1], line):
                        prefetch(columns, a + ahead)  # the row of the next spike
                        prefetch(values, a + ahead)
                        for e in range(a, min(a + line, starts[j + 1])):
                            q[uint64(columns[e])] += values[e]  # checked before: never below 0
                head += 1
        if len(mean):
            base = key + uint64(begun + k) * uint64(n) * uint64(GOLDEN)
            _add_poisson(q, mean, none, weight, base)
        if (begun + k) % EVERY == 0:
            for i in range(n):
                v[i] = v[i] if abs(v[i]) > TINY else 0
                q[i] = q[i] if abs(q[i]) > TINY else 0
    return steps, at, head, count


@compiled()
def _advance_membranes(
    state: State,
    row: Reals,
    now: np.int32,
    constants: tuple[float, float, float],
    fired: NDArray[np.uint8],
) -> None:
    """Advance every neuron by one step, and flag those that fire."""
    v, q, until = state
    factor, gain, decay = constants
    zero, one = v.dtype.type(0), v.dtype.type(1)
    for i in range(len(v)):  # narrow numbers and no branch: sixteen neurons at a time
        x, y = v[i], q[i]
        x += (row[i] - x) * factor + y * gain
        x = x if until[i] <= now else zero
        v[i] = x
        q[i] = y * decay
        fired[i] = x >= one


@compiled()
def _add_poisson(
    q: Reals, mean: NDArray[np.float64], none: NDArray[np.float64], weight: float, base: np.uint64
) -> None:
    """Add Poisson spikes to the charges, by inversion of uniform numbers from splitmix64."""
    for i in range(len(q)):
        z = base + uint64(i + 1) * uint64(GOLDEN)
        z = (z ^ (z >> uint64(30))) * uint64(FIRST)
        z = (z ^ (z >> uint64(27))) * uint64(SECOND)
        z = z ^ (z >> uint64(31))
        u = float(z >> uint64(11)) * (1.0 / (1 << 53))
        below = none[i]
        if u >= below:
            number, chance = 0, below
            while u >= below and chance > 0:
                number += 1
                chance *= mean[i] / number
                below += chance
            q[i] += weight * number


def advance_torch(
    wiring: Wiring,
    state: NetworkState,
    current: Float[Tensor, "rows neurons"],
    noise: Noise,
    rule: Step,
    *,
    steps: int,
    dt: float,
    record: Sequence[int] = (),
) -> Recording[NetworkState]:
    """The same by whole-tensor operations, for devices other than the CPU."""
    columns = wiring.columns.int()
    v, q, hold = state.voltage.clone(), state.charge.clone(), state.refractory.clone()
    ring, device = state.arriving.clone(), v.device
    chosen = torch.tensor(list(record), dtype=torch.long, device=device)
    trace, counter = v.new_empty(steps, len(chosen)), torch.arange(1, len(v) + 1, device=device)
    none, flat, at = torch.exp(-noise.mean), ring.view(-1), 0
    queue = [
        (int(k), state.waiting[1, state.waiting[0] == k].to(device))
        for k in state.waiting[0].unique()
    ]
    who: list[Tensor] = []
    for k in range(state.step, state.step + steps):
        trace[k - state.step] = v[chosen]
        row = current[k - state.step if len(current) > 1 else 0]
        v += (row - v) * rule.factor + q * rule.gain
        v.masked_fill_(hold > 0, 0)
        q *= rule.decay
        fired = v >= 1
        v.masked_fill_(fired, 0)
        hold.sub_(1).clamp_(min=0).masked_fill_(fired, max(rule.hold - 1, 0))
        ids = fired.nonzero()[:, 0]
        who.append(ids)
        if len(ring):
            synapses = _list_synapses(wiring.starts, ids)
            slots = (at + wiring.delays[synapses]) % len(ring) * len(v)
            flat.index_add_(0, slots + columns[synapses], wiring.values[synapses])
            q += ring[at]
            ring[at] = 0
            at = (at + 1) % len(ring)
        elif len(ids):
            queue.append((k, ids))
        while queue and queue[0][0] + rule.lag <= k:
            _, ids = queue.pop(0)
            if len(wiring.dense):
                q += wiring.dense[ids].sum(dim=0)
            else:
                synapses = _list_synapses(wiring.starts, ids)
                q.index_add_(0, columns[synapses], wiring.values[synapses])
        if len(noise.mean):
            base = _to_int64((state.key or 0) + k * len(v) * GOLDEN)
            number = _draw_poisson(
                _draw_uniform(counter * _to_int64(GOLDEN) + base), noise.mean, none
            )
            q += noise.weight * number.to(q.dtype)
        if k % EVERY == 0:
            v.masked_fill_(v.abs() <= TINY, 0)
            q.masked_fill_(q.abs() <= TINY, 0)
    lengths = torch.tensor([len(ids) for ids in who])
    when = torch.repeat_interleave(torch.arange(state.step, state.step + steps), lengths)
    left = [torch.stack([torch.full_like(ids, k), ids]).cpu().long() for k, ids in queue]
    end = replace(
        state,
        voltage=v,
        charge=q,
        refractory=hold,
        waiting=torch.cat([torch.zeros(2, 0, dtype=torch.long), *left], dim=1),
        arriving=ring.roll(-at, 0),
        step=state.step + steps,
    )
    return Recording(when.double() * dt, torch.cat(who).cpu().int(), trace, end)


def _list_synapses(
    starts: Int[Tensor, " rows"], ids: Int[Tensor, " some"]
) -> Int[Tensor, " synapses"]:
    """The indices of all synapses of some neurons, row after row."""
    begin, length = starts[ids], starts[ids + 1] - starts[ids]
    before = length.cumsum(0) - length
    shift = torch.repeat_interleave(begin - before, length)
    return shift + torch.arange(len(shift), device=starts.device)


def _to_int64(value: int) -> int:
    """An unsigned 64-bit number as the signed one with the same bits, which torch has."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _draw_uniform(z: Int[Tensor, " neurons"]) -> Float[Tensor, " neurons"]:
    """splitmix64 of each, in [0, 1); shifts of torch keep the sign, so that a mask drops it."""
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * _to_int64(FIRST)
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * _to_int64(SECOND)
    z = z ^ ((z >> 31) & ((1 << 33) - 1))
    return ((z >> 11) & ((1 << 53) - 1)).double() * (1.0 / (1 << 53))


def _draw_poisson(
    u: Float[Tensor, " neurons"], mean: Float[Tensor, " neurons"], none: Float[Tensor, " neurons"]
) -> Int[Tensor, " neurons"]:
    """Poisson numbers by inversion: how many terms of the distribution lie below u."""
    below, chance = none.clone(), none.clone()
    counts = torch.zeros_like(u, dtype=torch.int32)
    number = 0
    while bool((more := (u >= below) & (chance > 0)).any()):
        number += 1
        counts += more
        chance *= mean / number
        below += chance
    return counts
