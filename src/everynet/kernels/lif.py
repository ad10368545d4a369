"""Leaky integrate-and-fire neurons without synapses, advanced step by step.

On the CPU a compiled loop takes a block of neurons that fits the nearest cache through many steps
before it turns to the next; blocks are shared out over torch's threads. The torch form, for other
devices, updates all neurons at once. Both compute the same updates in the same order.

Step k leads from k dt to (k + 1) dt. A spike on the grid is dated at the start of its step and a
recorded voltage is the one at the start of each step, as in Brian2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from everynet.kernels.compiled import compiled

BLOCK = 2048  # neurons whose state stays in the nearest cache
BUFFER = 1 << 24  # spikes that are held before they are put in order
FLAGS = 1 << 26  # of the torch form: neurons times steps, before their spikes are listed
ALONE = 1 << 22  # updates below which a second thread does not pay

S = TypeVar("S")
Reals: TypeAlias = NDArray[Any]  # float32 or float64: each loop is compiled for what it is given


class Membranes(NamedTuple):
    """Where neurons stand: all that a run needs to be continued bit by bit."""

    voltage: Float[Tensor, " neurons"]
    refractory: Int[Tensor, " neurons"] | Float[Tensor, " neurons"]
    """Steps, or seconds where spikes lie inside steps, until integration goes on."""
    step: int
    """Steps done."""


@dataclass(frozen=True)
class Recording(Generic[S]):
    """What a run gives; `state` goes into the next run to continue it bit by bit."""

    times: Float[Tensor, " spikes"]
    """When, in seconds, in order; times run on through continued runs."""
    neurons: Int[Tensor, " spikes"]
    """Who."""
    voltages: Float[Tensor, "steps recorded"]
    """v of the recorded neurons at the start of each step: at 0, dt, 2 dt, ..."""
    state: S


class Grid(NamedTuple):
    """What a step does: v += factor (v_in - v); at the threshold, reset and hold for some steps."""

    factor: float
    hold: int
    threshold: float
    reset: float


class Inside(NamedTuple):
    """Times within a step: tau_m and tau_ref in seconds, and the lowest voltage."""

    tau_m: float
    tau_ref: float
    floor: float


def advance(
    drive: Float[Tensor, "rows neurons"],
    state: Membranes,
    steps: int,
    rule: Grid | Inside,
    *,
    dt: float,
    record: Sequence[int] = (),
) -> Recording[Membranes]:
    """Steps of neurons driven by one row, or by a row for each step, on the device of the drive."""
    if drive.device.type != "cpu":
        return advance_torch(drive, state, steps, rule, dt=dt, record=record)
    v = state.voltage.cpu().to(drive.dtype).numpy().copy()
    refractory = state.refractory.cpu().numpy().copy()
    current = np.ascontiguousarray(drive.numpy())
    wanted = np.asarray(record, dtype=np.int64)
    order = np.argsort(wanted, kind="stable")
    chosen = wanted[order]
    trace = np.empty((steps, len(chosen)), dtype=v.dtype)
    per_neuron = max(rule.hold, 1) if isinstance(rule, Grid) else 1  # steps from spike to spike
    size = max(1, min(steps, BUFFER // max(len(v), 1) * per_neuron, 1 << 16))
    parts = _shares(len(v), torch.get_num_threads() if len(v) * steps >= ALONE else 1)
    most = size // per_neuron + 1
    room = len(v) * most + 8 * len(parts)
    who, inside = np.empty(room, np.int32), np.empty(room if _inside(rule) else 0)
    starts = np.empty(math.ceil(len(v) / BLOCK), np.int64)
    ends = np.empty((len(starts), size), np.int64)
    times: list[Reals] = []
    neurons: list[NDArray[np.int32]] = []

    def work(part: int, first: int, length: int) -> int:
        low, high = parts[part]
        left, right = np.searchsorted(chosen, (low, high))
        blocks = slice(low // BLOCK, math.ceil(high / BLOCK))
        rows = current[first : first + length] if len(current) > 1 else current
        return _call(
            rule, dt, v[low:high], refractory[low:high], rows, low,
            chosen[left:right] - low, left, trace[first : first + length],
            low * most + 8 * part, who, inside, starts[blocks], ends[blocks, :length],
        )  # fmt: skip

    with ThreadPoolExecutor(len(parts)) as pool:
        for first in range(0, steps, size):
            length = min(size, steps - first)
            if len(parts) == 1:
                count = work(0, first, length)
            else:
                jobs = range(len(parts))
                count = sum(pool.map(lambda p, f=first, n=length: work(p, f, n), jobs))
            when, ids = np.empty(count), np.empty(count, np.int32)
            _merge(who, inside, starts, ends[:, :length], state.step + first, dt, when, ids)
            if _inside(rule):  # spikes of one step are in the order of the neurons
                by_time = np.argsort(when, kind="stable")
                when, ids = when[by_time], ids[by_time]
            times.append(when)
            neurons.append(ids)
    voltages = np.empty_like(trace)
    voltages[:, order] = trace
    end = Membranes(torch.from_numpy(v), torch.from_numpy(refractory), state.step + steps)
    return Recording(
        torch.from_numpy(np.concatenate(times) if len(times) > 1 else times[0]),
        torch.from_numpy(np.concatenate(neurons) if len(neurons) > 1 else neurons[0]),
        torch.from_numpy(voltages),
        end,
    )


def _inside(rule: Grid | Inside) -> bool:
    return isinstance(rule, Inside)


def _shares(neurons: int, workers: int) -> list[tuple[int, int]]:
    """As many runs of whole blocks as there are workers, or fewer."""
    blocks = max(1, math.ceil(neurons / BLOCK))
    workers = max(1, min(workers, blocks))
    edges = [min(neurons, blocks * w // workers * BLOCK) for w in range(workers + 1)]
    return list(pairwise(edges))


def _call(  # noqa: PLR0917 -- compiled code takes its arrays one by one
    rule: Grid | Inside,
    dt: float,
    v: Reals,
    refractory: Reals,
    rows: Reals,
    low: int,
    record: NDArray[np.int64],
    column: int,
    trace: Reals,
    at: int,
    who: NDArray[np.int32],
    inside: NDArray[np.float64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> int:
    """The compiled loop of the rule, its constants in the precision of the voltages."""
    number = v.dtype.type
    if isinstance(rule, Grid):
        factor, threshold, reset = map(number, (rule.factor, rule.threshold, rule.reset))
        return _grid(
            v, refractory, rows, low, factor, np.int32(rule.hold), threshold, reset, record, column,
            trace, at, who, starts, ends,
        )  # fmt: skip
    return _within(
        v, refractory, rows, low, dt, rule.tau_m, rule.tau_ref, number(rule.floor), record,
        column, trace, at, who, inside, starts, ends,
    )  # fmt: skip


@compiled()
def collect(
    fired: NDArray[np.uint8],
    spots: NDArray[np.int32],
    begin: int,
    who: NDArray[np.int32],
    count: int,
) -> int:
    """Write down who fired, from number `begin` on; where the list then ends.

    Flags are looked at eight at a time and nothing branches on them, because spikes are as rare as
    a processor guesses badly. `spots` has room for one more than the eights.
    """
    eights = fired.view(np.uint64)
    some = 0
    for w in range(len(eights)):
        spots[some] = w
        some += eights[w] != 0
    for s in range(some):
        at = 8 * spots[s]
        for i in range(at, at + 8):
            who[count] = begin + i
            count += fired[i]
    return count


@compiled()
def _grid(  # noqa: PLR0917 -- compiled code takes its arrays one by one
    v: Reals,
    until: NDArray[np.int32],
    drive: Reals,
    low: int,
    factor: float,
    hold: np.int32,
    threshold: float,
    reset: float,
    record: NDArray[np.int64],
    column: int,
    trace: Reals,
    at: int,
    who: NDArray[np.int32],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> int:
    """Steps of every neuron, block by block; how many spikes were written.

    The arrays of state begin at neuron `low` of the drive, the recorded at a column of the trace,
    the spikes at a place of their list; `starts` and `ends` are those of each block and step.
    """
    count = at
    first = 0
    fired, spots = np.zeros(BLOCK, np.uint8), np.empty(BLOCK // 8 + 1, np.int32)
    for block in range(len(starts)):
        begin, end = block * BLOCK, min((block + 1) * BLOCK, len(v))
        some_v, some_until = v[begin:end], until[begin:end]
        beyond = first
        while beyond < len(record) and record[beyond] < end:
            beyond += 1
        starts[block] = count
        fired[:] = 0
        for k in range(ends.shape[1]):
            row = drive[k if len(drive) > 1 else 0][low + begin : low + end]
            for m in range(first, beyond):
                trace[k, column + m] = v[record[m]]
            now = np.int32(k)  # narrow numbers and no branch: sixteen neurons at a time
            for i in range(len(some_v)):
                x = some_v[i]
                x += (row[i] - x) * factor
                x = x if some_until[i] <= now else reset
                some_v[i] = x
                fired[i] = x >= threshold
            before = count
            count = collect(fired, spots, 0, who, count)
            for m in range(before, count):
                some_v[who[m]] = reset
                some_until[who[m]] = now + hold
                who[m] += low + begin
            ends[block, k] = count
        first = beyond
    for i in range(len(until)):
        until[i] = max(until[i] - ends.shape[1], 0)
    return count - at


@compiled()
def _within(  # noqa: PLR0917 -- compiled code takes its arrays one by one
    v: Reals,
    wait: NDArray[np.float64],
    drive: Reals,
    low: int,
    dt: float,
    tau_m: float,
    tau_ref: float,
    floor: float,
    record: NDArray[np.int64],
    column: int,
    trace: Reals,
    at: int,
    who: NDArray[np.int32],
    inside: NDArray[np.float64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> int:
    """The same with the time of each spike inside its step; a part of a step after a rest."""
    count = at
    first = 0
    whole = -np.expm1(-dt / tau_m)
    for block in range(len(starts)):
        begin, end = block * BLOCK, min((block + 1) * BLOCK, len(v))
        beyond = first
        while beyond < len(record) and record[beyond] < end:
            beyond += 1
        starts[block] = count
        for k in range(ends.shape[1]):
            row = drive[k if len(drive) > 1 else 0][low:]
            for m in range(first, beyond):
                trace[k, column + m] = v[record[m]]
            for i in range(begin, end):
                left = wait[i] - dt
                x = v[i]
                if left <= 0:
                    x += (row[i] - x) * whole
                elif left < dt:
                    x -= (row[i] - x) * np.expm1(-(dt - left) / tau_m)
                if x > 1:
                    part = dt + tau_m * np.log1p(-(x - 1) / (row[i] - 1))
                    who[count] = low + i
                    inside[count] = part
                    count += 1
                    v[i] = 0
                    wait[i] = tau_ref + part
                else:
                    v[i] = max(x, floor)
                    wait[i] = max(left, 0)
            ends[block, k] = count
        first = beyond
    return count - at


@compiled()
def _merge(  # noqa: PLR0917 -- compiled code takes its arrays one by one
    who: NDArray[np.int32],
    inside: NDArray[np.float64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    first: int,
    dt: float,
    when: NDArray[np.float64],
    ids: NDArray[np.int32],
) -> None:
    """Spikes of all blocks step by step; `starts` is used up."""
    count = 0
    for k in range(ends.shape[1]):
        time = (first + k) * dt
        for block in range(len(starts)):
            for m in range(starts[block], ends[block, k]):
                when[count] = time + inside[m] if len(inside) else time
                ids[count] = who[m]
                count += 1
            starts[block] = ends[block, k]


def advance_torch(
    drive: Float[Tensor, "rows neurons"],
    state: Membranes,
    steps: int,
    rule: Grid | Inside,
    *,
    dt: float,
    record: Sequence[int] = (),
) -> Recording[Membranes]:
    """The same by whole-tensor operations, for devices other than the CPU."""
    device = drive.device
    v = state.voltage.to(device, drive.dtype, copy=True)
    wait = state.refractory.to(device, copy=True)
    chosen = torch.tensor(list(record), dtype=torch.long, device=device)
    trace = v.new_empty(steps, len(chosen))
    size = max(1, min(steps, FLAGS // (16 if _inside(rule) else 1) // max(len(v), 1)))
    times, neurons = [torch.zeros(0, dtype=torch.float64)], [torch.zeros(0, dtype=torch.int32)]
    for first in range(0, steps, size):
        length = min(size, steps - first)
        fired = torch.zeros(length, len(v), dtype=torch.bool, device=device)
        parts = torch.zeros(length if _inside(rule) else 0, len(v), device=device).double()
        for k in range(length):
            row = drive[first + k if len(drive) > 1 else 0]
            trace[first + k] = v[chosen]
            if isinstance(rule, Grid):
                v += (row - v) * rule.factor
                v.masked_fill_(wait > 0, rule.reset)
                torch.ge(v, rule.threshold, out=fired[k])
                v.masked_fill_(fired[k], rule.reset)
                wait.sub_(1).clamp_(min=0).masked_fill_(fired[k], max(rule.hold - 1, 0))
            else:
                wait -= dt
                part = (dt - wait).clamp(0, dt)
                v -= (row - v) * torch.expm1(-part / rule.tau_m).to(v.dtype)
                torch.gt(v, 1, out=fired[k])
                inside = dt + rule.tau_m * torch.log1p(-(v - 1).double() / (row - 1).double())
                parts[k] = inside
                v.clamp_(min=rule.floor).masked_fill_(fired[k], 0)
                wait = torch.where(fired[k], rule.tau_ref + inside, wait.clamp(min=0))
        ks, ids = fired.nonzero(as_tuple=True)
        when = (state.step + first + ks.cpu()).double() * dt
        if _inside(rule):
            when, order = (when + parts[ks, ids].cpu()).sort(stable=True)
            ids = ids.cpu()[order]
        times.append(when)
        neurons.append(ids.cpu().int())
    end = Membranes(v, wait, state.step + steps)
    return Recording(torch.cat(times), torch.cat(neurons), trace, end)
