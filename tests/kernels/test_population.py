import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.kernels import population as subject
from everynet.kernels.lif import Inside, Membranes
from everynet.kernels.lif import advance as advance_alone
from everynet.kernels.population import (
    KINDS,
    Circuit,
    PopulationState,
    Rule,
    advance,
    advance_torch,
)

DT, TAU_S, TAU_READ, TAU_M, TAU_REF = 0.001, 0.1, 0.02, 0.02, 0.002


def rule(kind, **changed):
    return Rule(kind, DT, TAU_S, TAU_READ, TAU_M, TAU_REF)._replace(**changed)


def made(neurons=150, dimensions=2, seed=0, kind="spikes"):
    """Neurons anywhere around their thresholds; decoders that keep the values near 1."""
    random = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.rand(*shape, generator=random, dtype=torch.float64)  # noqa: E731
    rates = {"rectified-linear": 1.5, "sigmoid": 400, "lif": 40, "spikes": 40}[kind]
    circuit = Circuit(
        4 * draw(neurons, dimensions) - 2,
        2.5 * draw(neurons),
        (2 * draw(neurons, 2 * dimensions) - 0.6) / (0.4 * neurons * rates),
    )
    state = PopulationState(
        draw(2 * dimensions), draw(neurons), torch.ones(neurons, dtype=torch.float64)
    )
    return circuit, state


def nengo(circuit, state, drive, steps, spikes):
    """The update of nengo 4.1 in numpy: LIF or LIFRate, then Lowpass by zero-order hold."""
    encoders, bias, decoders = (x.numpy() for x in circuit)
    dimensions = encoders.shape[1]
    values, v = state.values.numpy().copy(), state.voltage.numpy().copy()
    refractory, found, fired = np.zeros(len(v)), [], []
    keep = np.exp(-DT / np.repeat([TAU_S, TAU_READ], dimensions))
    for k in range(steps):
        current = encoders @ values[:dimensions] + bias
        if spikes:
            refractory -= DT
            delta = np.clip(DT - refractory, 0, DT)
            v -= (current - v) * np.expm1(-delta / TAU_M)
            spiked = v > 1
            a = spiked / DT
            within = DT + TAU_M * np.log1p(-(v[spiked] - 1) / (current[spiked] - 1))
            v[v < 0] = 0
            v[spiked] = 0
            refractory[spiked] = TAU_REF + within
            fired += [(k, i) for i in np.nonzero(spiked)[0]]
        else:
            a = np.zeros(len(v))
            over = current > 1
            a[over] = 1 / (TAU_REF + TAU_M * np.log1p(1 / (current[over] - 1)))
        target = a @ decoders
        target[:dimensions] += drive[k if len(drive) > 1 else 0]
        values = keep * values + (1 - keep) * target
        found.append(values)
    return np.array(found), np.array(fired).reshape(-1, 2)


@pytest.mark.covers("P7")
@pytest.mark.parametrize("seed", range(3))
def test_rates_step_as_in_nengo(seed):
    circuit, state = made(seed=seed, kind="lif")
    drive = torch.rand(200, 2, generator=torch.Generator().manual_seed(seed)).double()
    ours = advance(circuit, state, drive, 200, rule("lif"))
    theirs, _ = nengo(circuit, state, drive.numpy(), 200, spikes=False)
    assert theirs.std() > 0.01
    np.testing.assert_allclose(ours.values, theirs, rtol=1e-11, atol=1e-12)
    assert len(ours.steps) == len(ours.neurons) == 0


@pytest.mark.covers("P8")
@pytest.mark.parametrize("seed", range(3))
def test_spikes_step_as_in_nengo(seed):
    circuit, state = made(seed=seed)
    drive = torch.rand(200, 2, generator=torch.Generator().manual_seed(seed)).double()
    ours = advance(circuit, state, drive, 200, rule("spikes"))
    theirs, fired = nengo(circuit, state, drive.numpy(), 200, spikes=True)
    assert len(fired) > 500
    assert ours.steps.tolist() == fired[:, 0].tolist()
    assert ours.neurons.tolist() == fired[:, 1].tolist()
    np.testing.assert_allclose(ours.values, theirs, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("go", [advance, advance_torch])
@pytest.mark.parametrize("tau_ref", [0.0, 0.001, 0.002, 0.0033])
def test_spikes_are_those_of_the_lone_neuron(tau_ref, go):
    """Under constant currents, 0.5 to 10 thresholds: the same steps as kernels/lif.py.

    Without a rest, what is left of the step of a spike is lost: a membrane integrates whole steps.
    """
    current = torch.linspace(0.5, 10, 300, dtype=torch.float64)
    none = torch.zeros(300, dtype=torch.float64)
    alone = advance_alone(
        current[None], Membranes(none, none, 0), 400, Inside(TAU_M, tau_ref, 0.0), dt=DT
    )
    circuit = Circuit(none[:, None], current, torch.zeros(300, 1).double())
    state = PopulationState(torch.zeros(1).double(), none, none + 1)
    ours = go(circuit, state, none[:1, None], 400, rule("spikes", tau_ref=tau_ref))
    assert len(ours.neurons) > 10_000
    steps = (alone.times / DT - 1e-9).long()  # of spikes dated inside their steps
    order = (steps * 300 + alone.neurons).argsort()
    assert torch.equal(ours.neurons, alone.neurons[order])
    assert torch.equal(ours.steps, steps[order])
    counts = torch.bincount(ours.neurons.long(), minlength=300)
    fires = current > 1.2
    law = 1 / (tau_ref - TAU_M * torch.log1p(-1 / current[fires]))
    if tau_ref == 0:
        steps = torch.ceil(-TAU_M * torch.log1p(-1 / current[fires]) / DT)
        law = 1 / (steps * DT)
    assert ((counts[fires] / 0.4 - law).abs() <= 1 / 0.4 + 1e-9).all()


def test_rates_of_single_currents():
    """No filter and one decoder for each neuron: a step writes the rates themselves."""
    current = torch.cat(
        [torch.linspace(-2, 1, 40), 1 + torch.logspace(-12, 4, 90), torch.tensor([1.0])]
    ).double()
    n = len(current)
    decoders = torch.cat([torch.zeros(n, 1), torch.eye(n)], dim=1).double()
    circuit = Circuit(torch.zeros(n, 1).double(), current, decoders)
    none = torch.zeros(n).double()
    state = PopulationState(torch.zeros(n + 1).double(), none, none)
    laws = {
        "rectified-linear": current.clamp(min=0),
        "sigmoid": 1 / (TAU_REF * (1 + torch.exp(-current))),
        "lif": torch.where(
            current > 1, 1 / (TAU_REF + TAU_M * torch.log1p(1 / (current - 1))), 0.0
        ),
    }
    for kind, law in laws.items():
        found = advance(circuit, state, none[:1, None], 1, rule(kind, tau_read=0.0))
        torch.testing.assert_close(found.values[0, 1:], law, rtol=1e-13, atol=1e-13)


def test_filters_relax_as_their_time_constants_say():
    """One rectified neuron at a rate of 3 under a drive of 2, from 0: both closed forms."""
    one = torch.ones(1, 1).double()
    circuit = Circuit(0 * one, 3 * one[0], torch.cat([one, one], dim=1))
    state = PopulationState(torch.zeros(2).double(), 0 * one[0], one[0])
    found = advance(circuit, state, 2 * one, 50, rule("rectified-linear")).values
    t = torch.arange(1, 51).double() * DT
    torch.testing.assert_close(found[:, 0], 5 * -torch.expm1(-t / TAU_S))
    torch.testing.assert_close(found[:, 1], 3 * -torch.expm1(-t / TAU_READ))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 40])
def test_torch_form_is_the_same(kind, rows):
    circuit, state = made(kind=kind, neurons=300)
    drive = torch.rand(rows, 2, generator=torch.Generator().manual_seed(1)).double()
    ours, theirs = (go(circuit, state, drive, 40, rule(kind)) for go in (advance, advance_torch))
    torch.testing.assert_close(ours.values, theirs.values, rtol=1e-10, atol=1e-12)
    assert torch.equal(ours.steps, theirs.steps)
    assert torch.equal(ours.neurons, theirs.neurons)
    for mine, other in zip(ours.state[:3], theirs.state[:3], strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-10)
    assert ours.state.step == theirs.state.step == 40


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("kind", KINDS)
def test_gpu_is_the_same(kind):
    circuit, state = made(kind=kind)
    there = Circuit(*(x.cuda() for x in circuit))
    drive = torch.ones(1, 2).double()
    ours = advance(circuit, state, drive, 40, rule(kind))
    theirs = advance(there, state, drive, 40, rule(kind))
    torch.testing.assert_close(theirs.values.cpu(), ours.values, rtol=1e-8, atol=1e-10)
    assert torch.equal(theirs.neurons.cpu(), ours.neurons)


@pytest.mark.parametrize("kind", KINDS)
def test_float32_is_near(kind):
    circuit, state = made(kind=kind)
    half = Circuit(*(x.float() for x in circuit))
    less = PopulationState(state.values, state.voltage.float(), state.rest.float())
    drive = torch.ones(1, 2).double()
    whole, near = (
        advance(*given, drive, 30, rule(kind)) for given in ((circuit, state), (half, less))
    )
    torch.testing.assert_close(near.values, whole.values, rtol=1e-3, atol=2e-3)
    assert near.state.voltage.dtype == torch.float32


@given(cut=st.integers(1, 59), kind=st.sampled_from(KINDS))
@settings(max_examples=25, deadline=None)
def test_stopping_and_going_on_changes_nothing(cut, kind):
    circuit, state = made(kind=kind)
    drive = torch.rand(60, 2, generator=torch.Generator().manual_seed(cut)).double()
    whole = advance(circuit, state, drive, 60, rule(kind))
    first = advance(circuit, state, drive[:cut], cut, rule(kind))
    second = advance(circuit, first.state, drive[cut:], 60 - cut, rule(kind))
    assert torch.equal(torch.cat([first.values, second.values]), whole.values)
    assert torch.equal(torch.cat([first.steps, second.steps]), whole.steps)
    assert torch.equal(torch.cat([first.neurons, second.neurons]), whole.neurons)
    for mine, other in zip(second.state, whole.state, strict=True):
        assert torch.equal(torch.as_tensor(mine), torch.as_tensor(other))


def test_a_full_buffer_changes_nothing(monkeypatch):
    circuit, state = made()
    drive = torch.rand(50, 2, generator=torch.Generator().manual_seed(0)).double()
    whole = advance(circuit, state, drive, 50, rule("spikes"))
    monkeypatch.setattr(subject, "ROOM", 7 * 150)
    parts = advance(circuit, state, drive, 50, rule("spikes"))
    assert torch.equal(parts.values, whole.values)
    assert torch.equal(parts.steps, whole.steps)
    assert torch.equal(parts.neurons, whole.neurons)


def test_given_state_is_left_alone():
    circuit, state = made()
    before = [x.clone() for x in state[:3]]
    advance(circuit, state, torch.ones(1, 2).double(), 20, rule("spikes"))
    assert all(torch.equal(a, b) for a, b in zip(state[:3], before, strict=True))
    assert math.isclose(float(state.rest.min()), 1.0)
