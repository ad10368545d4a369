"""How many patterns a Hopfield network holds, measured and in theory."""

import math

import pytest
import torch

from everynet.system.errors import UserError
from everynet.zoo.memory.hopfield_capacity import Capacity, stable_share, theory


def test_theory_ends_at_the_published_capacity_and_overlap():
    """Amit, Gutfreund and Sompolinsky: 0.138 patterns a neuron, with an overlap of 0.967 there."""
    loads, overlaps = theory()
    assert loads.max() == pytest.approx(0.1379, abs=1e-4)
    assert overlaps[loads.argmax()] == pytest.approx(0.967, abs=2e-3)
    assert loads.diff().min() > 0
    assert overlaps.diff().max() < 0


def test_each_point_of_the_theory_solves_the_equation_of_the_mean_field():
    """m = erf(m / sqrt(2 a r)), r = (1 - C)^-2, C = sqrt(2 / (pi a r)) exp(-m^2 / (2 a r))."""
    for a, m in zip(*theory(20), strict=True):
        r = 1.0
        for _ in range(2000):
            c = math.sqrt(2 / (math.pi * a * r)) * math.exp(-(m**2) / (2 * a * r))
            r = 1 / (1 - c) ** 2
        assert math.erf(m / math.sqrt(2 * a * r)) == pytest.approx(float(m), abs=2e-3)


@pytest.mark.covers("H2")
def test_bits_that_one_update_leaves_alone_are_as_many_as_theory_says():
    """N = 400, M = 55: the load 0.1375. Errors of 40 nets x 55 x 400 bits, nearly independent."""
    assert stable_share(torch.tensor([0.1375])).item() == pytest.approx(0.99650, abs=1e-5)
    draw = torch.Generator().manual_seed(0)
    patterns = torch.randint(0, 2, (40, 55, 400), generator=draw).double() * 2 - 1
    field = (patterns @ patterns.mT) @ patterns - 55 * patterns
    found = (field * patterns > 0).double().mean()
    assert found >= 0.995
    # N - 1 and M - 1 stand for N and M in the closed form: 54 patterns of noise, 399 terms
    assert found == pytest.approx(stable_share(torch.tensor([54 / 399])).item(), abs=5e-4)


@pytest.mark.covers("H2", "H3")
def test_recall_breaks_down_through_the_capacity():
    recipe = Capacity(neurons=(400,), loads=(0.05, 0.1, 0.1375, 0.2, 0.3), repeats=2, probes=20)
    found = recipe.metrics(recipe.simulate(torch.Generator().manual_seed(0)))
    assert found["stored_bits"] > 0.9998  # 4 bits in a million are wrong in theory
    assert found["recovered_bits"] >= 0.99
    assert found["stable_bits"] >= 0.995
    assert found["forgotten_bits"] < 0.9
    assert 0.13 < found["capacity"] < 0.2


def test_metrics_between_and_outside_of_loads():
    recipe = Capacity(neurons=(50,), loads=(0.1, 0.2), repeats=1)
    kept = torch.tensor([0.97, 0.93])
    measured = torch.zeros(1, 2, 1, 5, dtype=torch.float64)
    measured[0, :, 0, 1] = kept
    found = recipe.metrics({"measured": measured})
    assert found["capacity"] == pytest.approx(0.15)
    assert found["stored_bits"] == pytest.approx(0.97)
    assert found["forgotten_bits"] == pytest.approx(0.93)
    measured[0, :, 0, 1] = torch.tensor([1.0, 1.0])
    assert recipe.metrics({"measured": measured})["capacity"] == 0.2
    measured[0, :, 0, 1] = torch.tensor([0.9, 0.8])
    assert recipe.metrics({"measured": measured})["capacity"] == 0.1
    one = Capacity(neurons=(50,), loads=(0.1,), repeats=1)
    assert one.metrics({"measured": measured[:, :1]})["stored_bits"] == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"neurons": ()}, r"neurons \(\(\)\) must be ascending, at least one"),
        ({"neurons": (5, 20)}, "neurons .* must be at least 10"),
        ({"loads": (0.2, 0.1)}, "loads .* must be ascending"),
        ({"loads": (0.1, 3.0)}, "loads .* must be at most 2 patterns a neuron"),
        ({"loads": (float("nan"),)}, "loads .* must be"),
        ({"flips": 0.7}, r"flips \(0.7\) must be a number from 0 to 0.5"),
        ({"repeats": 0}, r"repeats \(0\) must be at least 1"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises(UserError, match=message):
        Capacity(**settings)
