import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.signal import fftconvolve
from scipy.stats import gamma

from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.spiking.synapse import (
    RECIPES,
    FilteredTrain,
    filter_by_convolution,
    filter_by_loop,
    filter_by_recursion,
    filter_by_sum,
    impulses,
    integrate_filter,
    poisson_train,
    psc,
    sift,
)


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def spikes(seed, count=20, duration=0.2):
    random = torch.Generator().manual_seed(seed)
    return (torch.rand(count, generator=random, dtype=torch.float64) * duration).sort().values


# ----------------------------------------------------------------------------------------- trains


@pytest.mark.covers("N6")
def test_impulses_by_hand():
    train = impulses(tensor(0.0, 0.0015, 0.003, 0.003), 0.005, 1e-3)
    assert train.tolist() == [1000, 1000, 0, 2000, 0]
    assert sift(torch.ones(5).double(), train, 1e-3).item() == pytest.approx(4)


@pytest.mark.covers("N6")
@given(seed=st.integers(0, 1000), count=st.integers(0, 50), dt=st.sampled_from([1e-3, 1e-4]))
@settings(max_examples=25, deadline=None)
def test_impulses_integrate_to_the_count_and_sift_a_function_at_the_spikes(seed, count, dt):
    times = (spikes(seed, count) / dt).floor() * dt
    train = impulses(times, 0.2, dt)
    assert train.sum().item() * dt == pytest.approx(count)
    grid = torch.arange(len(train)).double() * dt
    f = torch.sin(40 * grid) + grid
    expected = (torch.sin(40 * times) + times).sum().item()
    assert sift(f, train, dt).item() == pytest.approx(expected, abs=1e-9)


def test_poisson_trains_have_the_mean_and_variance_of_their_rate():
    random = torch.Generator().manual_seed(0)
    counts = torch.tensor([len(poisson_train(30, 2.0, random)) for _ in range(2000)]).double()
    assert counts.mean().item() == pytest.approx(60, abs=4 * math.sqrt(60 / 2000))
    assert counts.var().item() == pytest.approx(60, abs=4 * 60 * math.sqrt(2 / 2000))
    train = poisson_train(1000, 2.0, random)
    assert (train.diff() >= 0).all()
    assert train.diff().mean().item() == pytest.approx(1e-3, rel=0.1)
    assert train.diff().std().item() == pytest.approx(1e-3, rel=0.1)  # exponential intervals


# ---------------------------------------------------------------------------------------- filters


@pytest.mark.covers("N7")
@given(order=st.integers(0, 6), tau=st.floats(1e-3, 0.1))
@settings(max_examples=25, deadline=None)
def test_the_filter_is_the_gamma_density(order, tau):
    t = torch.linspace(-2 * tau, 12 * tau, 57, dtype=torch.float64)
    expected = gamma(order + 1, scale=tau).pdf(t.numpy())
    np.testing.assert_allclose(psc(t, tau, order).numpy(), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.covers("N7")
@pytest.mark.parametrize("order", range(5))
def test_the_filter_integrates_to_one(order):
    area = quad(lambda t: psc(tensor(t), 0.01, order).item(), 0, 0.6, epsabs=1e-12, limit=200)[0]
    assert area == pytest.approx(1, abs=1e-8)
    assert integrate_filter(0.01, order) == pytest.approx(1, abs=1e-8)


@pytest.mark.covers("N7")
def test_the_filter_by_hand():
    assert psc(tensor(-1e-9, 0, 0.01), 0.01).tolist() == pytest.approx([0, 100, 100 / math.e])
    first = psc(tensor(0, 0.01, 0.02), 0.01, 1).tolist()
    assert first == pytest.approx([0, 100 / math.e, 200 / math.e**2])


# -------------------------------------------------------------------------------- filtered trains


@pytest.mark.covers("N6")
@pytest.mark.parametrize("order", range(5))
def test_the_sum_of_filters_is_scipys_convolution(order):
    dt, times = 1e-3, (spikes(order) / 1e-3).floor() * 1e-3
    grid = torch.arange(200).double() * dt
    ours = filter_by_sum(times, grid, 0.01, order)
    kernel = gamma(order + 1, scale=0.01).pdf(grid.numpy())
    train = impulses(times, 0.2, dt).numpy()
    theirs = fftconvolve(train, kernel)[:200] * dt
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=0, atol=1e-10 / 0.01)
    again = filter_by_convolution(times, 0.01, order, duration=0.2, dt=dt)
    np.testing.assert_allclose(again.numpy(), theirs, rtol=0, atol=1e-10 / 0.01)


@pytest.mark.covers("N6", "N7")
@given(seed=st.integers(0, 1000), order=st.integers(0, 5), tau=st.floats(2e-3, 0.05))
@settings(max_examples=25, deadline=None)
def test_the_recursion_is_the_sum_for_spikes_at_any_time(seed, order, tau):
    times, dt = spikes(seed), 1e-3
    grid = torch.arange(200).double() * dt
    recursion = filter_by_recursion(times, tau, order, duration=0.2, dt=dt)
    torch.testing.assert_close(
        recursion, filter_by_sum(times, grid, tau, order), rtol=1e-9, atol=1e-9
    )
    few = filter_by_loop(times, tau, order, steps=40, dt=dt)
    torch.testing.assert_close(few, recursion[:40], rtol=1e-9, atol=1e-9)


def test_two_steps_of_the_recursion_by_hand():
    """A spike at 0 and one half-way through the second step."""
    tau, dt = 0.01, 0.01
    got = filter_by_recursion(tensor(0.0, 0.015), tau, 0, duration=0.03, dt=dt).tolist()
    e = math.exp(-1)
    assert got == pytest.approx([100, 100 * e, 100 * (e**2 + math.exp(-0.5))])


def test_no_spikes_no_current():
    none = torch.zeros(0, dtype=torch.float64)
    assert filter_by_recursion(none, 0.01, 2, duration=0.01, dt=1e-3).tolist() == [0] * 10
    assert filter_by_convolution(none, 0.01, 2, duration=0.01, dt=1e-3).abs().max() < 1e-12


# ------------------------------------------------------------------------- the recipe and refusals


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_recipe_reaches_its_goal(seed, tmp_path):
    result = run(replace(RECIPES["synapse"], seed=seed), tmp_path)
    assert result.reached
    assert result.metrics["mean_error"] < 0.05  # only what the ends of the run cut off


GOOD = {"duration": 0.1, "dt": 1e-3}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: psc(tensor(0), -0.01), r"tau_s \(-0.01 s\) must be a positive time"),
        (lambda: psc(tensor(0), 0.01, -1), r"order \(-1 dimensionless\) must be a whole number"),
        (
            lambda: filter_by_recursion(tensor(0), 0.0, **GOOD),
            r"tau_s \(0.0 s\) must be a positive time",
        ),
        (
            lambda: filter_by_recursion(tensor(0.2), 0.1, **GOOD),
            r"times \(some outside s\) must be between",
        ),
        (lambda: impulses(tensor(-1.0), 0.1, 1e-3), r"times \(some outside s\) must be between"),
        (
            lambda: filter_by_recursion(tensor(0.02, 0.01), 0.1, **GOOD),
            r"times \(not sorted s\) must be in order: sort them",
        ),
        (lambda: poisson_train(-1.0, 1.0), r"rate \(-1.0 Hz\) must be a number from 0 up"),
        (lambda: poisson_train(1.0, 0.0), r"duration \(0.0 s\) must be a positive time"),
    ],
)
def test_bad_quantities_are_refused_by_name_and_unit(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rate": 0.0}, r"rate \(0.0\) must be a positive number"),
        ({"duration": 1e-3}, r"duration \(0.001\) must be at least ten steps"),
        ({"orders": (-1,)}, r"orders \(\(-1,\)\) must be one or more whole numbers"),
        ({"orders": ()}, r"orders \(\(\)\) must be one or more whole numbers"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        FilteredTrain(**fields)
