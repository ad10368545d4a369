import math
from dataclasses import replace

import pytest
import torch

from everynet.system.errors import UserError
from everynet.zoo.spiking.balanced import DT
from everynet.zoo.spiking.brunel import BIN, RECIPES, REGIMES, power_law, scaling, shows
from everynet.zoo.spiking.spike_statistics import population, synchrony


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


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


@pytest.mark.parametrize(
    ("regime", "inside", "beside"),
    [
        ("sr", (300, 0.149, 0.101, 600), [{"cv": 0.151}, {"chi": 0.099}]),
        ("ar", (300, 0.149, 0.069, 300), [{"cv": 0.151}, {"chi": 0.071}]),
        ("ai", (15, 0.701, 0.069, 80), [{"cv": 0.699}, {"chi": 0.071}]),
        (
            "si_fast",
            (60, 0.701, 0.101, 101),
            [{"cv": 0.699}, {"chi": 0.099}, {"frequency": 99}, {"rate": 102}],
        ),
        (
            "si_slow",
            (24, 0.701, 0.101, 59),
            [{"cv": 0.699}, {"chi": 0.099}, {"frequency": 61}, {"frequency": 23}],
        ),
    ],
)
def test_each_limit_of_a_regime_is_where_it_is_said_to_be(regime, inside, beside):
    """CV 0.15 and 0.7, chi 0.07 and 0.1, a wave above 100 Hz or below 60 and above the rate."""
    figures = dict(zip(("rate", "cv", "chi", "frequency"), inside, strict=True))
    assert shows(regime, **figures)
    for change in beside:
        assert not shows(regime, **figures | change), change


def test_the_power_law_is_read_off_the_logarithms():
    events = torch.tensor([10.0, 20.0, 70.0], dtype=torch.float64)
    assert power_law(events, 3 * events**1.5) == pytest.approx(1.5)


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
            counts = population(got.times - 0.1, round(0.5 / BIN), BIN, DT)
            found[name, size] = synchrony(counts, got.neurons, model.neurons)
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
