"""Leaky integrate-and-fire neurons without synapses, advanced step by step.

On the CPU a compiled loop takes a block of neurons that fits the nearest cache through many steps
before it turns to the next; blocks are shared out over torch's threads. The torch form, for other
devices, updates all neurons at once. Both compute the same updates in the same order.

Step k leads from k dt to (k + 1) dt. A spike on the grid is dated at the start of its step and a
recorded voltage is the one at the start of each step, as in Brian2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
BUFFER = 1 << 24  # spikes that are buffered before they are sorted
FLAGS = 1 << 26  # of the torch form: neurons times steps, before their spikes are listed
ALONE = 1 << 22  # updates below which a second thread does not pay

S = TypeVar("S")
Reals: TypeAlias = NDArray[Any]  # float32 or float64: each loop is compiled for what it is given
Spikes: TypeAlias = tuple[
    NDArray[np.int32], NDArray[np.float64], int, NDArray[np.int64], NDArray[np.int64]
]
"""Neurons and times inside the step; the first free place; where blocks start and steps end."""


class Membranes(NamedTuple):
    """The state of the neurons, from which a run can be continued bit by bit."""

    voltage: Float[Tensor, " neurons"]
    refractory: Int[Tensor, " neurons"] | Float[Tensor, " neurons"]
    """Steps, or seconds where spikes lie inside steps, left of the refractory period."""
    step: int
    """Steps done."""


@dataclass(frozen=True)
class Recording(Generic[S]):
    """The spikes of a run; pass `state` to the next run to continue it bit by bit."""

    times: Float[Tensor, " spikes"]
    """Spike times in seconds, ascending; they go on through continued runs."""
    neurons: Int[Tensor, " spikes"]
    """The index of the neuron that fired each spike."""
    voltages: Float[Tensor, "steps recorded"]
    """v of the recorded neurons at the start of each step: at 0, dt, 2 dt, ..."""
    state: S


class Grid(NamedTuple):
    """Spikes on the grid: v += factor (v_in - v); at the threshold, reset for `hold` steps."""

    factor: float
    hold: int
    threshold: float
    reset: float


class Inside(NamedTuple):
    """Spikes inside steps: tau_m and tau_ref in seconds, and the lowest voltage."""

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
    """Simulate `steps` steps on the device of `drive`, which has one row or a row for each step."""
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
    parts = _split_blocks(len(v), torch.get_num_threads() if len(v) * steps >= ALONE else 1)
    most = size // per_neuron + 1
    room = len(v) * most + 8 * len(parts)
    ids, inside = np.empty(room, np.int32), np.empty(room if _inside(rule) else 0)
    starts = np.empty(math.ceil(len(v) / BLOCK), np.int64)
    ends = np.empty((len(starts), size), np.int64)
    advance_blocks, constants = _choose_loop(rule, dt, v.dtype.type)
    times: list[Reals] = []
    neurons: list[NDArray[np.int32]] = []

    def work(part: int, first: int, length: int) -> int:
        low, high = parts[part]
        left, right = np.searchsorted(chosen, (low, high))
        blocks = slice(low // BLOCK, math.ceil(high / BLOCK))
        rows = current[first : first + length] if len(current) > 1 else current
        recorded = (chosen[left:right] - low, left, trace[first : first + length])
        spikes = (ids, inside, low * most + 8 * part, starts[blocks], ends[blocks, :length])
        return advance_blocks(
            v[low:high], refractory[low:high], rows, low, constants, recorded, spikes
        )

    with ThreadPoolExecutor(len(parts)) as pool:
        for first in range(0, steps, size):
            length = min(size, steps - first)
            if len(parts) == 1:
                count = work(0, first, length)
            else:
                jobs = range(len(parts))
                count = sum(pool.map(lambda p, f=first, n=length: work(p, f, n), jobs))
            when, who = np.empty(count), np.empty(count, np.int32)
            _merge_blocks(ids, inside, starts, ends[:, :length], state.step + first, dt, when, who)
            if _inside(rule):  # spikes of one step are in the order of the neurons
                by_time = np.argsort(when, kind="stable")
                when, who = when[by_time], who[by_time]
            times.append(when)
            neurons.append(who)
    voltages = np.empty_like(trace)
    voltages[:, order] = trace
    end = Membranes(torch.from_numpy(v), torch.from_numpy(refractory), state.step + steps)
    return Recording(
        torch.from_numpy(np.concatenate(times) if len(times) > 1 else times[0]),
        torch.from_numpy(np.concatenate(neurons) if len(neurons) > 1 else neurons[0]),
        torch.from_numpy(voltages),
        end,
    )


def _choose_loop(
    rule: Grid | Inside, dt: float, number: Callable[[float], float]
) -> tuple[Callable[..., int], tuple[float | np.int32, ...]]:
    """The compiled loop of the rule, and its constants in the precision of the voltages."""
    if isinstance(rule, Grid):
        factor, threshold, reset = map(number, (rule.factor, rule.threshold, rule.reset))
        return _advance_on_grid, (factor, np.int32(rule.hold), threshold, reset)
    return _advance_inside, (dt, rule.tau_m, rule.tau_ref, number(rule.floor))


def _inside(rule: Grid | Inside) -> bool:
    return isinstance(rule, Inside)


def _split_blocks(neurons: int, workers: int) -> list[tuple[int, int]]:
    """The first and last neuron of each worker's blocks; fewer than `workers` if few blocks."""
    blocks = max(1, math.ceil(neurons / BLOCK))
    workers = max(1, min(workers, blocks))
    edges = [min(neurons, blocks * w // workers * BLOCK) for w in range(workers + 1)]
    return list(pairwise(edges))


@compiled()
def list_spikes(
    fired: NDArray[np.uint8], spots: NDArray[np.int32], ids: NDArray[np.int32], count: int
) -> int:
    """Append the indices of the neurons that fired to `ids`; returns the new length.

    Flags are read eight at a time and nothing branches on them, because spikes are as rare as
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
            ids[count] = i
            count += fired[i]
    return count


@compiled()
def _advance_on_grid(  # noqa: PLR0917 -- compiled code takes no names
    v: Reals,
    until: NDArray[np.int32],
    drive: Reals,
    low: int,
    constants: tuple[float, np.int32, float, float],
    recorded: tuple[NDArray[np.int64], int, Reals],
    spikes: Spikes,
) -> int:
    """Advance every neuron through all steps, block by block; returns the number of spikes.

    The arrays of state begin at neuron `low` of the drive, the recorded at a column of the trace,
    the spikes at a place of their list; `starts` and `ends` are those of each block and step.
    """
    factor, hold, threshold, reset = constants
    record, column, trace = recorded
    ids, _, count, starts, ends = spikes
    at, first = count, 0
    fired, spots = np.zeros(BLOCK, np.uint8), np.empty(BLOCK // 8 + 1, np.int32)
    for block in range(len(starts)):
        begin, end = block * BLOCK, min((block + 1) * BLOCK, len(v))
        some_v, some_until = v[begin:end], until[begin:end]
        beyond = int(np.searchsorted(record, end))
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
            count = list_spikes(fired, spots, ids, count)
            for m in range(before, count):
                some_v[ids[m]] = reset
                some_until[ids[m]] = now + hold
                ids[m] += low + begin
            ends[block, k] = count
        first = beyond
    for i in range(len(until)):
        until[i] = max(until[i] - ends.shape[1], 0)
    return count - at


@compiled()
def _advance_inside(  # noqa: PLR0917
    v: Reals,
    wait: NDArray[np.float64],
    drive: Reals,
    low: int,
    constants: tuple[float, float, float, float],
    recorded: tuple[NDArray[np.int64], int, Reals],
    spikes: Spikes,
) -> int:
    """The same with the time of each spike inside its step; a part of a step after a rest."""
    dt, tau_m, tau_ref, floor = constants
    record, column, trace = recorded
    ids, inside, count, starts, ends = spikes
    at, first = count, 0
    whole = -np.expm1(-dt / tau_m)
    for block in range(len(starts)):
        begin, end = block * BLOCK, min((block + 1) * BLOCK, len(v))
        beyond = int(np.searchsorted(record, end))
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
                    ids[count] = low + i
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
def _merge_blocks(  # noqa: PLR0917 -- compiled code takes its arrays one by one
    ids: NDArray[np.int32],
    inside: NDArray[np.float64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    first: int,
    dt: float,
    when: NDArray[np.float64],
    who: NDArray[np.int32],
) -> None:
    """Write the spikes of all blocks in the order of their steps; `starts` is used up."""
    count = 0
    for k in range(ends.shape[1]):
        time = (first + k) * dt
        for block in range(len(starts)):
            for m in range(starts[block], ends[block, k]):
                when[count] = time + inside[m] if len(inside) else time
                who[count] = ids[m]
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
