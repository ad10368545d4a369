"""A population of neurons with feedback, step by step: its few values go round, not its weights.

A step encodes the values in currents, turns these into rates or spikes, decodes them and filters
what was decoded into the values of the next step. The compiled loop, for the CPU, does all of it
lane by lane while the currents are in the nearest cache; the torch form, for other devices, does
it one whole tensor after the other.

A membrane needs no logarithm and no exponential: instead of the time t until it integrates again
the loop keeps e^{t/tau_m}, of which a spike and a step make products.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from everynet.kernels.compiled import compiled
from everynet.kernels.lif import Reals

LANE = 128  # neurons whose currents are held at once
ROOM = 1 << 21  # spikes that the buffer has room for
Kind = Literal["rectified-linear", "sigmoid", "lif", "spikes"]
Arrays: TypeAlias = tuple[Reals, Reals, Reals]  # encoders, bias, decoders
KINDS: tuple[Kind, ...] = ("rectified-linear", "sigmoid", "lif", "spikes")


class Circuit(NamedTuple):
    """Encoders and decoders: how neurons represent values."""

    encoders: Float[Tensor, "neurons dimensions"]
    """With gain, over the radius."""
    bias: Float[Tensor, " neurons"]
    decoders: Float[Tensor, "neurons outputs"]
    """The first columns feed back, one for each dimension; the others are only read."""


class Rule(NamedTuple):
    """The constants of a step, times in seconds."""

    kind: Kind
    dt: float
    tau_s: float
    """Of the synapses that feed back."""
    tau_read: float
    """Of those that are only read; 0 for no filter."""
    tau_m: float
    tau_ref: float


class PopulationState(NamedTuple):
    """The state of a population, from which a run can be continued bit by bit."""

    values: Float[Tensor, " outputs"]
    """Decoded values: those that feed back, then those that are only read."""
    voltage: Float[Tensor, " neurons"]
    rest: Float[Tensor, " neurons"]
    """e^{t/tau_m}, where t is the time until the membrane integrates again; at least 1."""
    step: int = 0
    """Steps done."""


class Course(NamedTuple):
    """The values and spikes of a run; pass `state` to the next run to continue it bit by bit."""

    values: Float[Tensor, "steps outputs"]
    """After each step."""
    steps: Int[Tensor, " spikes"]
    """The step of each spike, counted through continued runs."""
    neurons: Int[Tensor, " spikes"]
    """The index of the neuron that fired each spike."""
    state: PopulationState


def advance(
    circuit: Circuit,
    state: PopulationState,
    drive: Float[Tensor, "rows dimensions"],
    steps: int,
    rule: Rule,
) -> Course:
    """Simulate steps under one row of input, or a row for each, on the device of the encoders."""
    if circuit.encoders.device.type != "cpu":
        return advance_torch(circuit, state, drive, steps, rule)
    neurons, dimensions = circuit.encoders.shape
    encoders = np.ascontiguousarray(circuit.encoders.numpy().T)
    decoders = np.ascontiguousarray(circuit.decoders.numpy())
    bias, by_output = circuit.bias.numpy(), np.ascontiguousarray(decoders.T)
    leak, refractory = _spike_factors(rule)
    given = np.ascontiguousarray(drive.double().numpy())
    values = state.values.double().numpy().copy()
    v, rest = state.voltage.numpy().copy(), state.rest.numpy().copy()
    found = np.empty((steps, len(values)))
    spiking = rule.kind == "spikes"
    size = max(1, min(steps, ROOM // neurons)) if spiking else steps
    fired = np.empty((2, size * neurons if spiking else 0), np.int32)
    when, who = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
    keep = _decay_factors(rule, dimensions, len(values))
    for first in range(0, steps, size):
        last = min(first + size, steps)
        rows = given[first:last] if len(given) > 1 else given
        if spiking:
            count = _advance_spikes(
                (encoders, bias, decoders), rows, keep, values, (v, rest),
                (leak, refractory, rule.dt), found[first:last], fired,
            )  # fmt: skip
            when.append(fired[0, :count] + np.int64(state.step + first))
            who.append(fired[1, :count].copy())
        else:
            _advance_rates(
                (encoders, bias, by_output), rows, keep, values,
                (KINDS.index(rule.kind), rule.tau_m, rule.tau_ref), found[first:last],
            )  # fmt: skip
    end = PopulationState(
        torch.from_numpy(values), torch.from_numpy(v), torch.from_numpy(rest), state.step + steps
    )
    steps_of, ids = (torch.from_numpy(np.concatenate(part)) for part in (when, who))
    return Course(torch.from_numpy(found), steps_of, ids, end)


def _decay_factors(rule: Rule, dimensions: int, outputs: int) -> NDArray[np.float64]:
    """The factor by which the synapse of each value decays in a step."""
    read = math.exp(-rule.dt / rule.tau_read) if rule.tau_read > 0 else 0.0
    keep = np.full(outputs, read)
    keep[:dimensions] = math.exp(-rule.dt / rule.tau_s)
    return keep


def _spike_factors(rule: Rule) -> tuple[float, float]:
    """The factors of `rest` in a step and at a spike."""
    return math.exp(-rule.dt / rule.tau_m), math.exp(rule.tau_ref / rule.tau_m)


@compiled(fastmath={"reassoc", "contract", "nsz"})
def _advance_rates(  # noqa: PLR0917 -- compiled code takes no names
    circuit: Arrays,
    drive: NDArray[np.float64],
    keep: NDArray[np.float64],
    values: NDArray[np.float64],
    constants: tuple[int, float, float],
    found: NDArray[np.float64],
) -> None:
    """Advance neurons that each have the rate of their current."""
    encoders, bias, decoders = circuit
    kind, tau_m, tau_ref = constants
    outputs, neurons = decoders.shape
    dimensions = len(encoders)
    lane, rate = np.empty(LANE), np.empty(LANE)
    bits = rate.view(np.int64)
    decoded = np.empty(outputs)
    for k in range(len(found)):
        decoded[:] = 0.0
        for low in range(0, neurons, LANE):
            size = min(LANE, neurons - low)
            _encode(encoders, bias, values, low, size, lane)
            if kind == 0:
                for i in range(size):
                    rate[i] = max(lane[i], 0.0)
            elif kind == 1:
                for i in range(size):
                    rate[i] = 1.0 / (tau_ref * (1.0 + np.exp(-lane[i])))
            else:
                for i in range(size):
                    rate[i] = 1.0 + 1.0 / (max(lane[i], 1.0 + 1e-15) - 1.0)
                for i in range(size):  # the logarithm by its power and its series: no branch
                    number = bits[i]
                    power = np.float64((number >> 52) - 1023)
                    bits[i] = (number & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000
                    mantissa = rate[i]
                    large = mantissa > 1.4142135623730951
                    mantissa = mantissa * 0.5 if large else mantissa
                    power = power + 1.0 if large else power
                    f = (mantissa - 1.0) / (mantissa + 1.0)
                    z = f * f
                    series = 1 / 17 + z * (1 / 19 + z * (1 / 21))
                    series = 1 / 11 + z * (1 / 13 + z * (1 / 15 + z * series))
                    series = 1 / 5 + z * (1 / 7 + z * (1 / 9 + z * series))
                    log = power * 0.6931471805599453 + 2.0 * f * (1.0 + z * (1 / 3 + z * series))
                    log = 1.0 / (tau_ref + tau_m * log)
                    rate[i] = log if lane[i] > 1.0 else 0.0
            for m in range(outputs):
                row = decoders[m, low : low + size]
                total = 0.0
                for i in range(size):
                    total += rate[i] * row[i]
                decoded[m] += total
        _filter(decoded, drive, k, dimensions, keep, values, found)


@compiled()
def _advance_spikes(  # noqa: PLR0917
    circuit: Arrays,
    drive: NDArray[np.float64],
    keep: NDArray[np.float64],
    values: NDArray[np.float64],
    membranes: tuple[Reals, Reals],
    constants: tuple[float, float, float],
    found: NDArray[np.float64],
    fired: NDArray[np.int32],
) -> int:
    """Advance membranes, decoding the spikes alone; returns the number of spikes."""
    encoders, bias, decoders = circuit
    v, rest = membranes
    leak, refractory, dt = constants
    neurons, outputs = decoders.shape
    dimensions = len(encoders)
    lane = np.empty(LANE)
    decoded = np.empty(outputs)
    count = 0
    for k in range(len(found)):
        decoded[:] = 0.0
        for low in range(0, neurons, LANE):
            size = min(LANE, neurons - low)
            _encode(encoders, bias, values, low, size, lane)
            some_v, some_rest = v[low : low + size], rest[low : low + size]
            hits = 0
            for i in range(size):  # no branch: many neurons at a time
                after = leak * some_rest[i]
                x = lane[i] + (some_v[i] - lane[i]) * min(after, 1.0)
                some_v[i] = max(x, 0.0)
                some_rest[i] = max(after, 1.0)
                hits += x > 1.0
            if hits:
                for i in range(size):
                    if some_v[i] > 1.0:
                        left = (lane[i] - some_v[i]) / (lane[i] - 1.0)
                        some_rest[i] = max(refractory * left, 1.0)
                        some_v[i] = 0.0
                        fired[0, count] = k
                        fired[1, count] = low + i
                        count += 1
                        for m in range(outputs):
                            decoded[m] += decoders[low + i, m]
        for m in range(outputs):
            decoded[m] /= dt
        _filter(decoded, drive, k, dimensions, keep, values, found)
    return count


@compiled(inline="always")
def _encode(  # noqa: PLR0917 -- compiled code takes its arrays one by one
    encoders: Reals,
    bias: Reals,
    values: NDArray[np.float64],
    low: int,
    size: int,
    lane: NDArray[np.float64],
) -> None:
    """Write the input currents of a lane of neurons."""
    for i in range(size):
        lane[i] = bias[low + i]
    for d in range(len(encoders)):
        row, value = encoders[d, low : low + size], values[d]
        for i in range(size):
            lane[i] += row[i] * value


@compiled(inline="always")
def _filter(  # noqa: PLR0917 -- compiled code takes its arrays one by one
    decoded: NDArray[np.float64],
    drive: NDArray[np.float64],
    k: int,
    dimensions: int,
    keep: NDArray[np.float64],
    values: NDArray[np.float64],
    found: NDArray[np.float64],
) -> None:
    """Low-pass filter the decoded values plus the input, by the synapses."""
    row = drive[k if len(drive) > 1 else 0]
    for m in range(len(values)):
        target = decoded[m] + (row[m] if m < dimensions else 0.0)
        values[m] = keep[m] * values[m] + (1.0 - keep[m]) * target
        found[k, m] = values[m]


def advance_torch(
    circuit: Circuit,
    state: PopulationState,
    drive: Float[Tensor, "rows dimensions"],
    steps: int,
    rule: Rule,
) -> Course:
    """The same by whole-tensor operations, for devices other than the CPU."""
    encoders, bias, decoders = circuit
    neurons, dimensions = encoders.shape
    values = state.values.to(encoders)
    v, rest = (x.to(encoders, copy=True) for x in (state.voltage, state.rest))
    keep = torch.from_numpy(_decay_factors(rule, dimensions, len(values))).to(encoders)
    given = torch.zeros(len(drive), len(values), dtype=encoders.dtype, device=encoders.device)
    given[:, :dimensions] = drive
    found = values.new_empty(steps, len(values))
    spiking = rule.kind == "spikes"
    fired = torch.zeros(steps if spiking else 0, neurons, dtype=torch.bool, device=encoders.device)
    leak, refractory = _spike_factors(rule)
    for k in range(steps):
        current = encoders @ values[:dimensions] + bias
        if spiking:
            after = leak * rest
            v = current + (v - current) * after.clamp(max=1)
            torch.gt(v, 1, out=fired[k])
            left = refractory * (current - v) / (current - 1)
            rest = torch.where(fired[k], left, after).clamp(min=1)
            v = v.clamp(min=0).masked_fill(fired[k], 0)
            decoded = fired[k].to(decoders) @ decoders / rule.dt
        else:
            decoded = _rate_torch(current, rule) @ decoders
        row = given[k if len(given) > 1 else 0]
        values = keep * values + (1 - keep) * (decoded + row)
        found[k] = values
    when, who = fired.nonzero(as_tuple=True)
    end = PopulationState(values, v, rest, state.step + steps)
    return Course(found, when + state.step, who.int(), end)


def _rate_torch(current: Tensor, rule: Rule) -> Tensor:
    """The firing rate of each neuron for its input current."""
    if rule.kind == "rectified-linear":
        return current.clamp(min=0)
    if rule.kind == "sigmoid":
        return torch.sigmoid(current) / rule.tau_ref
    return 1 / (rule.tau_ref - rule.tau_m * torch.log1p(-1 / current.clamp(min=1)))
