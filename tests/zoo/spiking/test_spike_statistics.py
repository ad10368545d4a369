import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.zoo.spiking.spike_statistics import population, spectrum, synchrony, variation

DT, BIN = 1e-4, 5e-4  # s


def trains(rates, duration, seed=0):
    """Poisson spikes on the grid, in the order of time, one list for all neurons."""
    generator = torch.Generator().manual_seed(seed)
    steps = round(duration / DT)
    chance = torch.as_tensor(rates, dtype=torch.float64) * DT
    fired = torch.rand(steps, len(chance), generator=generator, dtype=torch.float64) < chance
    when, who = fired.nonzero().T
    return when.double() * DT, who.int()


@given(seed=st.integers(0, 1_000))
@settings(max_examples=10, deadline=None)
def test_the_variation_is_that_of_each_neuron_by_itself(seed):
    times, neurons = trains([40.0] * 8 + [1.0] * 4, 0.5, seed)
    gaps = [times[neurons == neuron].diff() for neuron in range(12)]
    each = [(some.std() / some.mean()).item() for some in gaps if len(some) >= 3]
    assert variation(times, neurons, 12) == pytest.approx(np.mean(each), rel=1e-9)


def test_a_clock_has_no_variation_and_poisson_has_one():
    clock = torch.arange(20).double() * 0.01
    assert variation(clock, torch.zeros(20, dtype=torch.int32), 3) == pytest.approx(0, abs=1e-12)
    assert variation(*trains([50.0] * 100, 4.0), 100) == pytest.approx(1, abs=0.03)
    assert variation(clock[:0], torch.zeros(0, dtype=torch.int32), 3) == 0


def test_synchrony_runs_from_independence_to_unison():
    def chi(times, neurons, size):
        return synchrony(population(times, round(2.0 / BIN), BIN, DT), neurons, size)

    assert chi(*trains([20.0] * 400, 2.0), 400) == pytest.approx(400**-0.5, rel=0.1)
    beats, all_thirty = torch.arange(1, 40).double() * 0.05, torch.arange(30).repeat(39)
    together = beats.repeat_interleave(30)
    assert chi(together, all_thirty, 30) == pytest.approx(1)
    halves = together + (all_thirty % 2) * 0.01  # two groups: the square is a half
    assert chi(halves, all_thirty, 30) ** 2 == pytest.approx(0.5, abs=0.01)
    assert chi(beats[:0], torch.zeros(0, dtype=torch.int32), 30) == 0


@given(steps=st.lists(st.integers(0, 9_999), min_size=1, max_size=50))
@settings(max_examples=25, deadline=None)
def test_every_spike_is_in_the_bin_of_its_step(steps):
    counts = population(torch.tensor(steps).double() * DT, 2_000, BIN, DT)
    assert counts.tolist() == np.bincount(np.array(steps) // 5, minlength=2_000).tolist()


def test_the_spectrum_of_poisson_neurons_is_one_and_a_wave_stands_out():
    times, _ = trains([30.0] * 300, 4.0)
    f, power = spectrum(population(times, 40_000, DT, DT), 300, DT)
    assert power.mean().item() == pytest.approx(1, abs=0.05)
    assert (f[0], f[-1]) == pytest.approx((4, 1_000))
    rate = 100 + 50 * torch.sin(2 * torch.pi * 80 * torch.arange(40_000).double() * DT)
    f, power = spectrum(rate, 300, DT)
    assert f[power.argmax()] == 80


def test_overtones_of_sharp_beats_do_not_appear_as_slow_waves():
    beats = torch.zeros(40_000, dtype=torch.float64)
    beats[::16] = 100  # 625 Hz
    f, power = spectrum(beats, 100, DT)
    assert f[power.argmax()].item() == pytest.approx(625, abs=4)
    assert power[f < 600].max() < 1e-3 * power.max()
