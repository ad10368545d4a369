import math
from dataclasses import replace

import pytest

from everynet.nn.schedules import (
    SCHEDULES,
    cosine,
    harmonic,
    linear,
    one_cycle,
    step,
    warm_up,
)
from everynet.recipes.catalog import find


@pytest.mark.covers("O23")
def test_linear_goes_straight_to_its_floor():
    assert [linear(k / 4, 0.01) for k in range(5)] == pytest.approx(
        [1, 0.7525, 0.505, 0.2575, 0.01], abs=1e-15
    )


def test_cosine_halves_half_way_and_is_flat_at_its_ends():
    assert cosine(0.0, 0.2) == 1
    assert cosine(0.5, 0.2) == pytest.approx(0.6)
    assert cosine(1.0, 0.2) == pytest.approx(0.2)
    assert 1 - cosine(1e-4) < 1e-7


def test_step_is_a_tenth_after_each_mark_and_stops_at_the_floor():
    assert [step(t) for t in (0.0, 0.499, 0.5, 0.749, 0.75, 1.0)] == pytest.approx(
        [1, 1, 0.1, 0.1, 0.01, 0.01]
    )
    assert step(0.9, 0.05) == 0.05


def test_one_cycle_rises_to_one_and_falls_to_nearly_nothing_along_half_cosines():
    low, end = 1 / 25, 1 / 250_000
    ends = [one_cycle(t) for t in (0.0, 0.3, 1.0)]
    halves = [one_cycle(t) for t in (0.15, 0.65)]
    assert ends == pytest.approx([low, 1, end])
    assert halves == pytest.approx([(low + 1) / 2, (1 + end) / 2])
    assert one_cycle(1.0, 0.1) == pytest.approx(0.1)


def test_warm_up_rises_evenly_and_then_leaves_the_rate_alone():
    assert [warm_up(k, 4) for k in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]
    assert warm_up(0, 0) == 1


def test_harmonic_sums_without_end_while_its_squares_do_not():
    rates = [harmonic(k, 10.0) for k in range(100_000)]
    assert sum(rates) > 10 * math.log(9_000)
    assert sum(rate**2 for rate in rates) < 10 * (1 + 1 / 10) + 1


@pytest.mark.parametrize("name", SCHEDULES)
def test_no_schedule_passes_its_floor_or_the_full_rate(name):
    factors = [SCHEDULES[name](k / 100, 1e-3) for k in range(101)]
    assert min(factors) >= 1e-3 * (1 - 1e-12)
    assert max(factors) <= 1


@pytest.mark.parametrize("warmup", [0, 1, 40])
def test_the_rate_of_the_transformer(warmup):
    """d^-1/2 min(k^-1/2, k w^-3/2), the paper's equation (3), but for its largest value."""
    recipe = replace(find("mlp"), schedule="inverse-sqrt", warmup=warmup, steps=500)
    w = max(1, warmup)
    wanted = [math.sqrt(w) * min(k**-0.5, k * w**-1.5) for k in range(1, 501)]
    assert [recipe.rate(k, []) for k in range(500)] == pytest.approx(wanted)
    floored = [replace(recipe, floor=0.3).rate(k, []) for k in range(500)]
    assert floored == pytest.approx(
        [min(1, k / w) * max(0.3, math.sqrt(w / max(k, w))) for k in range(1, 501)]
    )
