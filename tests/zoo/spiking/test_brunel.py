import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erfc

from everynet.types import UserError
from everynet.zoo.spiking.brunel import (
    BIN,
    DT,
    RECIPES,
    REGIMES,
    TAU,
    Balanced,
    population,
    scaling,
    shows,
    siegert,
    spectrum,
    synchrony,
    variation,
)
from everynet.zoo.spiking.network import irregularity

PAPER = Balanced(10_000, 1_000, 0.1, g=5.0, drive=2.0)
SMALL = Balanced(40, 8, 0.5, g=4.0, drive=1.0)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def trains(rates, duration, seed=0):
    """Poisson spikes on the grid, in the order of time, one list for all neurons."""
    steps = round(duration / DT)
    chance = torch.as_tensor(rates, dtype=torch.float64) * DT
    fired = torch.rand(steps, len(chance), generator=generator(seed), dtype=torch.float64) < chance
    when, who = fired.nonzero().T
    return when.double() * DT, who.int()


# -------------------------------------------------------------------------------------- equations


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
    assert wiring.columns.dtype == torch.int32
    assert wiring.values.dtype == torch.float32
    assert torch.bincount(wiring.columns).tolist() == [10] * 50
    rows = torch.repeat_interleave(torch.arange(50), wiring.starts.diff())
    inhibitory = rows >= 40
    assert torch.bincount(wiring.columns[inhibitory]).tolist() == [2] * 50
    weight = 0.5 * 0.02 / 10
    torch.testing.assert_close(wiring.values, torch.where(inhibitory, -4 * weight, weight).float())


def test_broad_delays_lie_between_none_and_twice_the_delay():
    delays = replace(SMALL, broad=True).network(generator()).delay
    assert len(delays) == 500
    assert 0 <= delays.min() < 2e-4
    assert 2.8e-3 < delays.max() <= 3e-3
    assert delays.mean().item() == pytest.approx(1.5e-3, rel=0.1)


# ------------------------------------------------------------------------------------- statistics


@given(seed=st.integers(0, 1_000))
@settings(max_examples=10, deadline=None)
def test_the_variation_is_that_of_each_neuron_by_itself(seed):
    times, neurons = trains([40.0] * 8 + [1.0] * 4, 0.5, seed)
    expected = irregularity(times, neurons, 12)
    assert variation(times, neurons, 12) == pytest.approx(expected, rel=1e-9)


def test_a_clock_has_no_variation_and_poisson_has_one():
    clock = torch.arange(20).double() * 0.01
    assert variation(clock, torch.zeros(20, dtype=torch.int32), 3) == pytest.approx(0, abs=1e-12)
    assert variation(*trains([50.0] * 100, 4.0), 100) == pytest.approx(1, abs=0.03)
    assert variation(clock[:0], torch.zeros(0, dtype=torch.int32), 3) == 0


def test_synchrony_runs_from_independence_to_unison():
    bins = round(2.0 / BIN)
    times, neurons = trains([20.0] * 400, 2.0)
    assert synchrony(times, neurons, 400, bins) == pytest.approx(400**-0.5, rel=0.1)
    beats = torch.arange(1, 40).double() * 0.05
    together = beats.repeat_interleave(30)
    assert synchrony(together, torch.arange(30).repeat(39), 30, bins) == pytest.approx(1)
    halves = together + (torch.arange(30).repeat(39) % 2) * 0.01  # two groups: the square is a half
    chi = synchrony(halves, torch.arange(30).repeat(39), 30, bins)
    assert chi**2 == pytest.approx(0.5, abs=0.01)
    assert synchrony(beats[:0], torch.zeros(0, dtype=torch.int32), 30, bins) == 0


@given(steps=st.lists(st.integers(0, 9_999), min_size=1, max_size=50))
@settings(max_examples=25, deadline=None)
def test_every_spike_is_in_the_bin_of_its_step(steps):
    counts = population(torch.tensor(steps).double() * DT, 2_000)
    assert counts.tolist() == np.bincount(np.array(steps) // 5, minlength=2_000).tolist()


def test_the_spectrum_of_poisson_neurons_is_one_and_a_wave_stands_out():
    times, _ = trains([30.0] * 300, 4.0)
    f, power = spectrum(population(times, 40_000, DT), 300)
    assert power.mean().item() == pytest.approx(1, abs=0.05)
    assert (f[0], f[-1]) == pytest.approx((4, 1_000))
    rate = 100 + 50 * torch.sin(2 * torch.pi * 80 * torch.arange(40_000).double() * DT)
    f, power = spectrum(rate, 300)
    assert f[power.argmax()] == 80


def test_overtones_of_sharp_beats_do_not_appear_as_slow_waves():
    beats = torch.zeros(40_000, dtype=torch.float64)
    beats[::16] = 100  # 625 Hz
    f, power = spectrum(beats, 100)
    assert f[power.argmax()].item() == pytest.approx(625, abs=4)
    assert power[f < 600].max() < 1e-3 * power.max()


def test_a_regime_is_what_its_figures_say():
    assert shows("sr", 300, 0.01, 0.6, 600)
    assert shows("ar", 300, 0.1, 0.02, 300)
    assert shows("ai", 15, 0.9, 0.05, 80)
    assert shows("si_fast", 60, 0.9, 0.15, 170)
    assert shows("si_slow", 10, 0.8, 0.12, 25)
    assert not shows("sr", 300, 0.01, 0.05, 600)
    assert not shows("ar", 300, 0.8, 0.02, 300)
    assert not shows("ai", 15, 0.4, 0.05, 80)
    assert not shows("ai", 15, 0.9, 0.2, 80)
    assert not shows("si_fast", 60, 0.9, 0.15, 30)
    assert not shows("si_fast", 200, 0.9, 0.15, 170)
    assert not shows("si_slow", 10, 0.8, 0.12, 170)


# ----------------------------------------------------------------------------------------- recipe


@pytest.mark.covers("N9")
def test_time_grows_with_the_spikes_that_arrive():
    """Loose: others may use the same processor."""
    events, seconds = scaling((200, 1_600), 400, 0.25, 0.1)
    assert (events[1] / events[0]).item() == pytest.approx(8, rel=0.3)
    assert 2 < (seconds[1] / seconds[0]).item() < 32


def test_tiny_gives_every_figure():
    recipe = RECIPES["brunel"].tiny()
    metrics = recipe.metrics(recipe.simulate(generator()))
    assert all(math.isfinite(value) for value in metrics.values())
    assert {f"{name}{what}" for name in REGIMES for what in ("", "_cv", "_chi", "_rate")} <= set(
        metrics
    )


@pytest.mark.slow
@pytest.mark.covers("N9")
def test_each_regime_has_the_statistics_that_define_it():
    recipe = RECIPES["brunel"]
    metrics = recipe.metrics(recipe.simulate(generator(recipe.seed)))
    assert [goal for goal in recipe.goals() if not goal.reached(metrics)] == []


@pytest.mark.slow
@pytest.mark.covers("N9")
def test_in_a_larger_network_asynchrony_nears_independence_and_synchrony_stays():
    """The inputs of a neuron stay as many: chi falls as 1 / sqrt(N), but not that of waves."""
    found = {}
    for size in (2_000, 8_000):
        for name in ("sr", "ai"):
            model = replace(RECIPES["brunel"], excitatory=size).states()[name]
            network = model.network(generator())
            start = model.simulate(network, 0.1, generator())
            got = model.simulate(network, 0.5, state=start.state)
            times = got.times - 0.1
            found[name, size] = synchrony(times, got.neurons, model.neurons, round(0.5 / BIN))
    assert found["sr", 8_000] / found["sr", 2_000] == pytest.approx(1, abs=0.1)
    assert found["ai", 8_000] / found["ai", 2_000] == pytest.approx(0.5, abs=0.15)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"excitatory": 10}, r"excitatory \(10\) must be a multiple of 4"),
        ({"inputs": 2}, r"inputs \(2\) must be a multiple of 4, at least 4"),
        ({"jump": 0.0}, r"jump \(0.0\) must be above 0 and below 20.0 mV"),
        ({"g": (3.0,)}, r"g \(\(3.0,\)\) must be 5: one for each state"),
        ({"g": (3.0, 3.0, -1.0, 6.0, 4.5)}, r"g .* must be numbers from 0 up"),
        ({"drive": (2.0, 0.0, 2.0, 6.0, 0.9)}, r"drive .* must be above 0, below 1250"),
        ({"durations": (0.4003,) * 5}, r"durations .* must be whole bins of 0.0005 s"),
        ({"settle": 0.0}, r"settle \(0.0\) must be whole bins of 0.0005 s"),
        ({"durations": (0.02,) * 5}, r"durations .* must be above 0.04 s"),
        ({"shown": 0}, r"shown \(0\) must be from 1 to excitatory"),
        ({"sizes": (1_000,)}, r"sizes .* must be at least two multiples of 4"),
    ],
)
def test_bad_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        replace(RECIPES["brunel"], **fields)
