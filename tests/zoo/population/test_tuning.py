import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.zoo.population.tuning import LIFRate, RectifiedLinear, Sigmoid, gain_and_bias

TUNINGS = [RectifiedLinear(), Sigmoid(), LIFRate(), LIFRate(tau_m=0.05, tau_ref=0.0)]


def values(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def test_rates_by_hand():
    currents = values(-1, 0, 0.5, 1, 1.5, 3)
    assert RectifiedLinear().rate(currents).tolist() == [0, 0, 0.5, 1, 1.5, 3]
    torch.testing.assert_close(Sigmoid(0.01).rate(values(0, math.log(3))), values(50, 75))
    lif = LIFRate().rate(currents)
    assert lif[:4].tolist() == [0, 0, 0, 0]
    assert lif[4].item() == pytest.approx(1 / (0.002 + 0.02 * math.log(3)))  # J / (J - 1) = 3
    assert lif[4].item() == pytest.approx(41.71, abs=0.01)
    assert LIFRate(0.05, 0).rate(values(2.0)).item() == pytest.approx(1 / (0.05 * math.log(2)))


@pytest.mark.covers("P1")
def test_gain_and_bias_are_nengos():
    """The formulas of nengo 4.1 (neurons.py: LIFRate, Sigmoid, RectifiedLinear), in numpy."""
    rates = np.linspace(210, 390, 7)
    intercepts = np.linspace(-0.9, 0.9, 7)
    x = 1 / (1 - np.exp((0.002 - 1 / rates) / 0.02))
    lif = (1 - x) / (intercepts - 1)
    inverse = -np.log(1 / (0.0025 * rates) - 1)
    sigmoid = inverse / (1 - intercepts)
    linear = rates / (1 - intercepts)
    for tuning, gain, bias in (
        (LIFRate(), lif, 1 - lif * intercepts),
        (Sigmoid(), sigmoid, inverse - sigmoid),
        (RectifiedLinear(), linear, -intercepts * linear),
    ):
        ours = gain_and_bias(tuning, torch.from_numpy(rates), torch.from_numpy(intercepts))
        for mine, theirs in zip(ours, (gain, bias), strict=True):
            torch.testing.assert_close(mine, torch.from_numpy(theirs), rtol=1e-12, atol=1e-12)


@pytest.mark.covers("P1")
@given(rate=st.floats(201, 399), c=st.floats(-1, 0.95), tuning=st.sampled_from(TUNINGS))
@settings(max_examples=25, deadline=None)
def test_a_neuron_starts_at_its_intercept_and_peaks_at_its_rate(rate, c, tuning):
    gain, bias = gain_and_bias(tuning, values(rate), values(c))
    assert tuning.rate(gain + bias).item() == pytest.approx(rate, rel=1e-9)
    start = tuning.rate(gain * c + bias).item()
    below = tuning.rate(gain * (c - 0.01) + bias).item()
    above = tuning.rate(gain * (c + 0.01) + bias).item()
    assert below < above
    if isinstance(tuning, Sigmoid):
        assert start == pytest.approx(200)
    else:
        current = gain.item() * c + bias.item()
        first = 1.0 if isinstance(tuning, LIFRate) else 0.0  # the current at which it begins
        assert current == pytest.approx(first, abs=1e-9 * gain.item())
        assert below == 0
        assert start < tuning.rate(values(first) + 1e-6 * gain).item()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LIFRate(tau_m=-0.02), r"tau_m \(-0.02 s\) must be a positive number"),
        (lambda: LIFRate(tau_ref=-1), r"tau_ref \(-1 s\) must be a number from 0 up"),
        (lambda: Sigmoid(tau_ref=0), r"tau_ref \(0 s\) must be a positive number"),
        (
            lambda: gain_and_bias(LIFRate(), values(600, 700), values(0, 0)),
            r"max_rates \(600 to 700 Hz\) must be above 0 and below 500 Hz, which LIFRate",
        ),
    ],
)
def test_bad_input_gets_one_line_with_name_and_unit(call, message):
    with pytest.raises(ValueError, match=message):
        call()
