import math
from dataclasses import replace

import pytest
import torch

from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.spiking.conversion import RECIPES, SCALE, RateNetwork
from everynet.zoo.spiking.lif import LIF


def network(gamma=0.02, tau_ref=0.002):
    torch.manual_seed(0)
    return RateNetwork(4, 50, 3, LIF(0.02, tau_ref), gamma).double()


def test_the_smooth_rate_by_hand():
    """rho(0) = gamma ln 2 at the threshold."""
    ramp = 0.02 * math.log(2)
    by_hand = 1 / (0.002 + 0.02 * math.log(1 + 1 / ramp))
    assert network().rate(torch.tensor(1.0).double()).item() == pytest.approx(by_hand)


def test_the_smooth_rate_becomes_that_of_the_neuron():
    current = torch.tensor([0.5, 0.9, 1.2, 1.5, 4.0], dtype=torch.float64)
    sharp = network(gamma=1e-4).rate(current)
    assert torch.allclose(sharp[2:], LIF(0.02, 0.002).rate(current)[2:], rtol=1e-6)
    assert (sharp[:2] < 0.1).all()


def test_the_smooth_rate_has_a_slope_everywhere():
    current = torch.linspace(-50, 50, 1001, dtype=torch.float64, requires_grad=True)
    rates = network().rate(current)
    rates.sum().backward()
    assert rates.isfinite().all()
    assert current.grad.isfinite().all()
    assert (current.grad >= 0).all()


def test_spikes_come_nearer_to_rates_the_longer_they_are_counted():
    model = network(gamma=1e-4)
    x = torch.randn(20, 4, dtype=torch.float64)
    gaps = [(model.spiking(x, t, 1e-4) - model(x)).abs().mean().item() for t in (0.02, 0.2, 2.0)]
    assert gaps[0] > 3 * gaps[1] > 6 * gaps[2], gaps


def test_a_count_is_off_by_less_than_one_spike():
    model = network(gamma=1e-4)
    with torch.no_grad():
        model.input.weight.zero_()
        model.input.bias.copy_(torch.linspace(1.1, 5, 50))
        model.output.weight.copy_(torch.eye(3, 50))
        model.output.bias.zero_()
    x, duration = torch.zeros(1, 4, dtype=torch.float64), 1.0
    off = (model.spiking(x, duration, 1e-5) - model(x)).abs().max() * SCALE * duration
    assert off.item() <= 1.01


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden": (20, 20)}, r"hidden \(\(20, 20\)\) must be one number of units"),
        ({"gamma": 0.0}, r"gamma \(0.0\) must be a positive number"),
        ({"tau_ref": 0.0001}, r"tau_ref \(0.0001\) must be 0 or at least dt, in seconds"),
    ],
)
def test_settings_that_cannot_be(fields, message):
    with pytest.raises(UserError, match=message):
        replace(RECIPES["snn-converted"], **fields)


@pytest.mark.slow
@pytest.mark.covers("N9")
def test_reads_digits_by_spikes(tmp_path):
    result = run(replace(RECIPES["snn-converted"], name="snn-converted"), tmp_path)
    assert result.reached
    assert result.metrics["rate_accuracy"] - result.metrics["accuracy"] < 0.02
