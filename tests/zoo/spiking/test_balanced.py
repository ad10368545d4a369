import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erfc

from everynet.zoo.spiking.balanced import DT, TAU, Balanced, siegert

PAPER = Balanced(10_000, 1_000, 0.1, g=5.0, drive=2.0)
SMALL = Balanced(40, 8, 0.5, g=4.0, drive=1.0)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.covers("N9")
@pytest.mark.parametrize("source", [3, 45])
def test_a_spike_moves_the_voltage_by_j_after_the_delay(source):
    """By J = 0.5 mV of the 10 mV from reset to threshold, or by -g J, for each of its synapses."""
    network = SMALL.network(generator())
    starts, columns = network.wiring.starts, network.wiring.columns
    mine = columns[starts[source] : starts[source + 1]].long()
    synapses = torch.bincount(mine, minlength=SMALL.neurons).double()
    assert 0 < len(mine) < SMALL.neurons
    pulse = torch.zeros(60, SMALL.neurons)
    pulse[5, source] = 1e4
    got = network.simulate(60 * DT, DT, pulse, record=range(SMALL.neurons))
    assert got.neurons.tolist() == [source]
    arrived = 6 + 15  # the end of the step that begins D after that of the spike
    assert (got.voltages[: arrived + 1] == 0).all()
    jump = 0.05 * synapses * (1 if source < 40 else -4)
    t = torch.arange(1, 60 - arrived).double() * DT
    expected = jump * torch.exp(-t / TAU)[:, None]
    others = torch.arange(SMALL.neurons) != source
    values = got.voltages[arrived + 1 :].double()
    torch.testing.assert_close(values[:, others], expected[:, others], rtol=1e-4, atol=1e-6)


def test_without_drive_the_voltage_falls_from_reset_to_rest():
    """From 10 mV to 0 mV, which is from 0 to -1 without dimension."""
    alone = replace(SMALL, drive=1e-12)
    state = alone.simulate(alone.network(generator()), 0.03, generator()).state
    expected = torch.full((50,), -(1 - math.exp(-0.03 / TAU)))
    torch.testing.assert_close(state.voltage, expected, rtol=1e-5, atol=0)


def test_half_the_threshold_drive_leads_half_way_to_the_threshold():
    """To the reset, mu = 10 mV, with half of sigma^2 around it.

    Jumps fall at the ends of steps, just before which v is lower by half a step's share.
    """
    model = Balanced(1_000, 40, 1e-3, g=4.0, drive=0.5)
    mean, deviation = model.moments(0.0)
    assert (mean, deviation) == pytest.approx((10, 0.1))
    got = model.simulate(model.network(generator()), 0.2, generator())
    assert len(got.times) == 0
    v = got.state.voltage.double()
    assert v.mean().item() == pytest.approx(-DT / (2 * TAU), abs=8e-4)
    assert (10 * v).var().item() == pytest.approx(0.1**2 / 2, rel=0.15)


def test_moments_are_those_of_the_papers_numbers():
    assert PAPER.neurons == 12_500
    assert PAPER.outside == pytest.approx(20)
    mean, deviation = PAPER.moments(40.0)
    assert mean == pytest.approx(2 * (20 - 10))
    assert deviation**2 == pytest.approx(0.2 * (20 + 290))


@given(mean=st.floats(5, 40), deviation=st.floats(1.5, 10))
@settings(max_examples=25, deadline=None)
def test_the_rate_is_the_integral_written_out(mean, deviation):
    u = np.linspace((10 - mean) / deviation, (20 - mean) / deviation, 20_001)
    area = np.trapezoid(np.exp(u**2) * erfc(-u), u)  # 1 + erf(u) loses its digits
    expected = 1 / (0.002 + 0.02 * math.sqrt(math.pi) * area)
    assert siegert(mean, deviation) == pytest.approx(expected, rel=1e-5)


@given(mean=st.floats(22, 100))
@settings(max_examples=25, deadline=None)
def test_without_noise_the_rate_is_that_of_a_constant_input(mean):
    expected = 1 / (0.002 + 0.02 * math.log((mean - 10) / (mean - 20)))
    assert siegert(mean, 0.01) == pytest.approx(expected, rel=1e-4)


def test_a_neuron_far_from_threshold_does_not_fire():
    assert siegert(0.0, 0.5) == 0
    with pytest.raises(ValueError, match=r"deviation \(0.0 mV\) must be positive"):
        siegert(10.0, 0.0)


@pytest.mark.parametrize("g", [3.0, 4.5, 5.0, 8.0])
def test_the_mean_field_rate_gives_rise_to_itself(g):
    model = replace(PAPER, g=g)
    rate = model.mean_field()
    assert siegert(*model.moments(rate)) == pytest.approx(rate, abs=1e-5)
    assert 1 < rate < 500


def test_neurons_without_each_other_fire_at_the_mean_field_rate():
    """Without weights what is left is the outside noise."""
    model = Balanced(800, 400, 0.1, g=0.0, drive=1.1)
    network = model.network(generator())
    network.wiring.values.zero_()
    got = model.simulate(network, 1.0, generator())
    expected = siegert(*model.moments(0.0))
    assert len(got.times) / (1_000 * 1.0) == pytest.approx(expected, rel=0.06)


def test_every_neuron_has_the_same_number_of_inputs():
    wiring = SMALL.network(generator()).wiring
    columns = wiring.columns.long()
    assert wiring.columns.dtype.itemsize <= 4  # bytes: most of the memory of a large network
    assert wiring.values.dtype == torch.float32
    assert torch.bincount(columns).tolist() == [10] * 50
    rows = torch.repeat_interleave(torch.arange(50), wiring.starts.diff())
    inhibitory = rows >= 40
    assert torch.bincount(columns[inhibitory]).tolist() == [2] * 50
    weight = 0.5 * 0.02 / 10
    torch.testing.assert_close(wiring.values, torch.where(inhibitory, -4 * weight, weight).float())


def test_broad_delays_lie_between_none_and_twice_the_delay():
    delays = replace(SMALL, broad=True).network(generator()).delay
    assert len(delays) == 500
    assert 0 <= delays.min() < 2e-4
    assert 2.8e-3 < delays.max() <= 3e-3
    assert delays.mean().item() == pytest.approx(1.5e-3, rel=0.1)
