import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.population import integrator, oscillator
from everynet.zoo.population import lorenz as butterfly
from everynet.zoo.population import van_der_pol as cycles
from everynet.zoo.population.dynamics import (
    RatePopulation,
    SpikingPopulation,
    period_and_amplitude,
    rotation_frequency,
    simulate_rates_by_loop,
    solve_ode,
    threshold_crossings,
)
from everynet.zoo.population.ensemble import Ensemble, relative_error
from everynet.zoo.population.integrator import (
    Integrator,
    current_and_activity,
    integration,
    limit_errors,
)
from everynet.zoo.population.lorenz import Lorenz, lorenz
from everynet.zoo.population.oscillator import Oscillator, controlled_oscillation, oscillation
from everynet.zoo.population.tuning import LIFRate, RectifiedLinear, Sigmoid
from everynet.zoo.population.van_der_pol import VanDerPol, van_der_pol

RECIPES = integrator.RECIPES | oscillator.RECIPES | cycles.RECIPES | butterfly.RECIPES
POPULATIONS = [RatePopulation, SpikingPopulation]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def values(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def linear(dimensions, neurons=20):
    """Rectified units that never rest: whatever is linear is decoded without error."""
    return Ensemble(
        neurons, dimensions, tuning=RectifiedLinear(), intercepts=(-1, -1), radius=3.0,
        generator=seeded(),
    )  # fmt: skip


# ---------------------------------------------------------------------------- current and activity


@pytest.mark.covers("P6")
def test_constant_input_relaxes_as_two_exponentials():
    """sigma(s) = s and C = 1 from s = v = 0 on, after a C of 0 at the very first instant."""
    found = current_and_activity(
        lambda t: float(t > 0), lambda s: s, tau_s=0.1, tau_m=0.02, duration=0.5, steps=20_000
    )
    t = torch.linspace(0, 0.5, 20_001).double()
    slow, fast = torch.exp(-t / 0.1), torch.exp(-t / 0.02)
    torch.testing.assert_close(found[:, 0], 1 - slow, rtol=0, atol=5e-5)
    torch.testing.assert_close(
        found[:, 1], 1 - (0.1 * slow - 0.02 * fast) / 0.08, rtol=0, atol=5e-5
    )


@pytest.mark.covers("P6")
@pytest.mark.parametrize(("tau_s", "tau_m"), [(0.1, 0.02), (0.02, 0.1), (0.05, 0.05)])
def test_current_and_activity_are_those_of_solve_ivp(tau_s, tau_m):
    drive, sigma = (lambda t: math.sin(9 * t) + 0.3), math.tanh
    ours = current_and_activity(drive, sigma, tau_s=tau_s, tau_m=tau_m, duration=1.0, steps=2000)
    theirs = solve_ivp(
        lambda t, y: [(drive(t) - y[0]) / tau_s, (sigma(y[0]) - y[1]) / tau_m], (0, 1),
        [0.3, math.tanh(0.3)], t_eval=np.linspace(0, 1, 2001), rtol=1e-11, atol=1e-12,
    )  # fmt: skip
    np.testing.assert_allclose(ours, theirs.y.T, rtol=0, atol=1e-8)


@pytest.mark.covers("P6")
def test_errors_of_the_limits_are_in_proportion_to_the_ratio():
    """Half the ratio, half the error; to first order s lags C by tau_s C', at most 4 tau_s."""
    wide, narrow = limit_errors(0.04), limit_errors(0.02)
    for one, other in zip(wide, narrow, strict=True):
        assert one / other == pytest.approx(2, rel=0.02)
    assert narrow[1] == pytest.approx(4 * 0.002, rel=0.01)
    assert narrow[0] < 0.5 * 4 * 0.002  # sigma' is at most 1/2, and s varies less than C


# ------------------------------------------------------------------------- populations, closed form


@pytest.mark.covers("P7")
def test_a_linear_population_adds_up_what_comes_in():
    """y_k = y_0 + k (1 - e^{-dt/tau_s}) tau_s u, exactly: nearly k dt u."""
    population = RatePopulation(linear(1), integration, tau_s=0.1, noise=0.0)
    found = population.simulate(0.5, 0.2, 0.001, start=values(-0.3))
    each = -math.expm1(-0.01) * 0.1 * 0.5
    expected = -0.3 + each * torch.arange(1, 201).double()
    torch.testing.assert_close(found.values[:, 0], expected, rtol=1e-7, atol=1e-7)
    assert each == pytest.approx(0.0005, rel=0.006)
    torch.testing.assert_close(found.times, torch.arange(1, 201).double() * 0.001)
    assert len(found.spike_times) == 0


@pytest.mark.covers("P7")
def test_a_linear_population_follows_a_linear_system():
    """Each step multiplies by 1 + (1 - e^{-dt/tau_s}) tau_s A; what is read lags by tau_read."""
    frequency, tau = 2.0, 0.05
    population = RatePopulation(
        linear(2), oscillation(frequency), tau_s=tau, tau_read=0.01, noise=0.0
    )
    found = population.simulate(0.0, 0.1, 0.001, start=values(1.0, 0.5))
    share, omega = -math.expm1(-0.001 / tau) * tau, 2 * math.pi * frequency
    step = values([1, -share * omega], [share * omega, 1])
    y = z = values(1.0, 0.5)
    for k in range(100):
        y, z = step @ y, z + -math.expm1(-0.1) * (y - z)
        torch.testing.assert_close(found.values[k], y, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(found.decoded[k], z, rtol=1e-6, atol=1e-6)


@pytest.mark.covers("P7")
@pytest.mark.parametrize("tuning", [RectifiedLinear(), Sigmoid(), LIFRate()])
@pytest.mark.parametrize("tau_read", [0.0, 0.02])
def test_the_kernel_is_the_loop(tuning, tau_read):
    ensemble = Ensemble(60, 2, tuning=tuning, max_rates=(250, 390), generator=seeded())
    population = RatePopulation(ensemble, oscillation(2.0), tau_read=tau_read)
    u, start = torch.rand(80, 2, generator=seeded(1), dtype=torch.float64), values(0.4, -0.2)
    found = population.simulate(u, 0.08, 0.001, start=start)
    y, z = simulate_rates_by_loop(population, u, 0.001, start)
    torch.testing.assert_close(found.values, y, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(found.decoded, z, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("of", POPULATIONS)
def test_without_feedback_a_value_settles_where_it_is_put(of):
    """f(y) = -y / tau_s decodes 0: what is left of (6) is the filter of what comes in."""
    tau = 0.05
    ensemble = Ensemble(300, 2, generator=seeded())
    population = of(ensemble, lambda y: -y / tau, tau_s=tau, noise=0.05)
    x = values(0.6, -0.4)
    found = population.simulate(x / tau, 1.0, 0.001, generator=seeded(1))
    law = x * -torch.expm1(-found.times[:, None] / tau)
    torch.testing.assert_close(found.values, law, rtol=0, atol=1e-9)
    late = found.decoded[500:].mean(0)
    torch.testing.assert_close(late, x, rtol=0, atol=0.01)


@pytest.mark.covers("P8")
def test_neurons_spike_at_the_rates_of_their_tuning():
    ensemble = Ensemble(200, 1, generator=seeded())
    population = SpikingPopulation(ensemble, lambda y: -y / 0.1)
    found = population.simulate(3.0, 3.0, 0.001, start=values(0.3), generator=seeded(1))
    counts = torch.bincount(found.spike_neurons.long(), minlength=200)
    rates = ensemble.encode(values([0.3]))[0]
    assert ((counts / 3.0 - rates).abs() <= 1.0).all()  # a spike or two at the ends
    assert (found.spike_times.diff() >= 0).all()


def test_a_spike_is_dated_at_the_end_of_its_step():
    """Read without a filter, one neuron decodes to 0 in all steps but those in which it fires."""
    population = SpikingPopulation(
        Ensemble(1, 1, eval_points=20, generator=seeded()), integration, tau_read=0.0
    )
    found = population.simulate(0.0, 0.1, 0.001, start=population.ensemble.encoders[0])
    fires = found.times[found.decoded[:, 0] != 0]
    assert 3 < len(fires) < 50
    assert torch.equal(found.spike_times, fires)
    later = population.simulate(0.0, 0.1, 0.001, state=found.state)
    assert torch.equal(later.spike_times, later.times[later.decoded[:, 0] != 0])


@pytest.mark.parametrize("of", POPULATIONS)
@given(cut=st.integers(1, 99))
@settings(max_examples=10, deadline=None)
def test_stopping_and_going_on_changes_nothing(of, cut):
    population = of(Ensemble(40, 2, eval_points=200, generator=seeded()), oscillation(3.0))
    drive = torch.rand(100, 2, generator=seeded(cut)).double()
    begun = {"start": values(0.5, 0.1), "generator": seeded(2)}
    whole = population.simulate(drive, 0.1, 0.001, **begun)
    first = population.simulate(drive[:cut], cut * 0.001, 0.001, **begun | {"generator": seeded(2)})
    second = population.simulate(drive[cut:], (100 - cut) * 0.001, 0.001, state=first.state)
    for name in ("times", "values", "decoded", "spike_times", "spike_neurons"):
        both = torch.cat([getattr(first, name), getattr(second, name)])
        assert torch.equal(both, getattr(whole, name)), name


@pytest.mark.parametrize("of", POPULATIONS)
def test_float32_is_near(of):
    made = [of(Ensemble(200, 2, generator=seeded()), oscillation(1.0)) for _ in range(2)]
    found = [
        population.simulate(0.0, 0.3, 0.001, start=values(0.8, 0.0), generator=seeded(1)).values
        for population in (made[0], made[1].to(torch.float32))
    ]
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0.01)


def test_other_tunings_go_round_too():
    """Smooth neurons that never rest are nearly linear, and so is their oscillator."""
    ensemble = Ensemble(200, 2, tuning=Sigmoid(), max_rates=(300, 390), generator=seeded())
    population = RatePopulation(ensemble, oscillation(1.0), noise=0.01)
    found = population.simulate(0.0, 2.0, 0.001, start=values(0.7, 0.0)).values
    assert rotation_frequency(found, 0.001) == pytest.approx(1.0, rel=0.02)


# -------------------------------------------------------------------------------------- the systems


def test_flows_by_hand():
    y = values([3.0, -2.0])
    assert integration(y).tolist() == [[0, 0]]
    torch.testing.assert_close(oscillation(0.5)(y), math.pi * values([2.0, 3.0]))
    y = values([3.0, -2.0, 0.5])
    expected = values([math.pi * 2, math.pi * 3, -5])
    torch.testing.assert_close(controlled_oscillation(1.0, 0.1)(y), expected)
    expected = values([10 * -5, 3 * -0.5 + 2, -6 - 8 / 3 * 28.5])
    torch.testing.assert_close(lorenz(y), expected)
    found = van_der_pol(1.5, 2.0)(values([3.0, -2.0]))
    torch.testing.assert_close(found, 2 * values([-2, 1.5 * -8 * -2 - 3]))


def test_fixed_points_of_the_butterfly():
    """(+-sqrt(72), +-sqrt(72), 27) and the origin, of which the third coordinate is less 28."""
    root = math.sqrt(72)
    points = values([root, root, -1], [-root, -root, -1], [0, 0, -28])
    torch.testing.assert_close(lorenz(points), torch.zeros(3, 3).double(), rtol=0, atol=1e-12)


def test_solved_goes_round():
    times = torch.linspace(0.1, 1.0, 10).double()
    found = solve_ode(oscillation(1.0), values(1.0, 0.0), times)
    angle = 2 * math.pi * times
    torch.testing.assert_close(found, torch.stack([angle.cos(), angle.sin()], 1), rtol=0, atol=1e-6)


def test_what_is_measured_by_hand():
    t = torch.arange(4000).double() * 0.001
    wave = torch.stack([torch.cos(-3 * math.pi * t), torch.sin(-3 * math.pi * t)], dim=1)
    assert rotation_frequency(wave, 0.001) == pytest.approx(-1.5)
    x = 2 * torch.sin(4 * math.pi * t)
    period, height = period_and_amplitude(x, 0.001, 1.0)
    assert period == pytest.approx(0.5)
    assert height == pytest.approx(2.0, rel=1e-4)
    assert all(math.isnan(number) for number in period_and_amplitude(x[:300], 0.001, 1.0))
    steps = values(0, 4, 1, -1, 4, -4, -2, 2, -4, 4)
    assert threshold_crossings(steps, 3.0).tolist() == [5, 9]


@pytest.mark.covers("P7")
@pytest.mark.parametrize("of", POPULATIONS)
def test_an_integrator_holds_and_an_oscillator_keeps_time(of):
    line = of(Ensemble(500, 1, generator=seeded(3)), integration, noise=0.05)
    held = line.simulate(0.0, 2.0, 0.001, start=values(0.5), generator=seeded()).values[:, 0]
    assert (held[-100:].mean() - held[100:200].mean()).abs() / 1.8 < 0.05 * 0.5
    plane = of(Ensemble(500, 2, generator=seeded(3)), oscillation(2.0), noise=0.05)
    found = plane.simulate(0.0, 2.0, 0.001, start=values(0.8, 0.0), generator=seeded()).values
    assert rotation_frequency(found, 0.001) == pytest.approx(2.0, rel=0.02)


@pytest.mark.covers("P8")
def test_a_sine_carried_by_spikes_errs_less_the_more_neurons():
    recipe = replace(RECIPES["oscillator"], sizes=(50, 200, 800))
    errors = [recipe.transmit_sines(seeded(seed))["sine_errors"] for seed in range(3)]
    mean = torch.stack(errors).mean(0)
    assert (mean.diff() < 0).all()
    assert max(e[1].item() for e in errors) < 0.1


# ------------------------------------------------------------------------------------- the recipes


@pytest.mark.slow
@pytest.mark.covers("P6", "P7", "P8")
@pytest.mark.parametrize(
    ("name", "pictures"),
    [
        ("integrator", {"integrator", "raster"}),
        ("oscillator", {"oscillator", "plane", "controlled", "raster", "sine"}),
        ("van-der-pol", {"cycle", "trajectory"}),
    ],
)
def test_recipes_reach_their_goals(name, pictures, tmp_path):
    recipe = RECIPES[name]
    result = run(recipe, tmp_path, device="cpu")
    assert all(goal.reached(result.metrics) for goal in recipe.goals())
    assert {path.stem for path in result.pictures} == pictures


@pytest.mark.slow
@pytest.mark.covers("P7", "P8")
def test_lorenz_reaches_its_goal(tmp_path):
    recipe = RECIPES["lorenz"]
    result = run(recipe, tmp_path, device="cpu")
    assert all(goal.reached(result.metrics) for goal in recipe.goals())
    assert {path.stem for path in result.pictures} == {"butterfly", "trajectory", "shares"}


def test_the_true_sum_at_the_end_of_each_step():
    """Up by 0.8 over a tenth of the time, down by 1.2 over another, and level elsewhere."""
    recipe = replace(RECIPES["integrator"].tiny(), duration=0.6)
    found = recipe.simulate(seeded())
    share = found["times"] / 0.6
    up, down = ((share - at).clamp(0, 0.1) / 0.1 for at in (0.05, 0.5))
    truth = found["truth"].double()
    torch.testing.assert_close(truth, 0.8 * up - 1.2 * down, rtol=0, atol=1e-5)


def test_statistics_of_a_path_by_hand():
    """Three means, three standard deviations, and three changes of lobe in 0.08 units of time."""
    path = torch.zeros(8, 3).double()
    path[:, 0] = values(4, -4, 4, -4, 0, 0, 0, 0)
    path[:, 1] = values(1, 2, 3, 4, 5, 6, 7, 8)
    path[:, 2] = 2 * path[:, 1] - 28
    found = RECIPES["lorenz"].statistics(path)
    expected = [0, 4.5, -19, math.sqrt(64 / 7), math.sqrt(6), math.sqrt(24), 3 / 0.08]
    assert found.tolist() == pytest.approx(expected)


def test_drift_by_hand():
    """Held at 0.5 and then moved by 0.03 a second from -0.5: 6 % of it a second."""
    recipe = replace(RECIPES["integrator"], duration=6.0)
    held = torch.full((6000,), 0.5).double()
    held[3000:] = -0.5 + 0.03 * torch.arange(3000) * 0.001
    first = -0.5 + 0.03 * (3900 - 3000 + 50) * 0.001
    assert recipe.drift(held) == pytest.approx(0.03 / abs(first), rel=0.01)


def test_relative_error_of_nothing_is_one():
    assert relative_error(torch.zeros(3).double(), values(1, 2, 3)) == 1


# ------------------------------------------------------------------------------------------- errors

LINE = Ensemble(10, 1, eval_points=50, generator=seeded())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda p: RatePopulation(LINE, integration, tau_s=-0.1),
            r"tau_s \(-0.1 s\) must be a pos",
        ),
        (
            lambda p: RatePopulation(LINE, integration, tau_read=-1.0),
            r"tau_read \(-1.0 s\) must be a time from 0 up",
        ),
        (
            lambda p: RatePopulation(LINE, lambda y: torch.cat([y, y], 1)[:, :1].repeat(1, 2)),
            r"flow \(2 numbers\) must be 1, one for each dimension of the ensemble",
        ),
        (lambda p: p.simulate(0.0, 1.0, -0.1), r"dt \(-0.1 s\) must be a positive time"),
        (lambda p: p.simulate(0.0, 0.0015, 0.001), r"duration \(0.0015 s\) must be a whole number"),
        (lambda p: p.simulate(torch.zeros(0), 1.0, 0.001), r"input \(empty y/s\) must be at least"),
        (
            lambda p: p.simulate(torch.zeros(3), 1.0, 0.001),
            r"input \(3 numbers y/s\) must be 1 numbers",
        ),
        (
            lambda p: p.simulate(0.0, 1.0, 0.001, start=torch.zeros(2)),
            r"start \(2 numbers\) must be 1, one for each dimension",
        ),
        (
            lambda p: SpikingPopulation(LINE, integration).simulate(0.0, 1.0, 0.01),
            r"dt \(0.01 s\) must be at most tau_ref \(0.002 s\)",
        ),
        (
            lambda p: SpikingPopulation(linear(1), integration).simulate(0.0, 1.0, 0.001),
            r"tuning \(RectifiedLinear\) must be LIFRate: no other spikes",
        ),
        (
            lambda p: current_and_activity(
                math.sin, math.tanh, tau_s=0.0, tau_m=1.0, duration=1.0, steps=5
            ),
            r"tau_s \(0.0 s\) must be a positive time",
        ),
        (
            lambda p: current_and_activity(
                math.sin, math.tanh, tau_s=1.0, tau_m=-1.0, duration=1.0, steps=5
            ),
            r"tau_m \(-1.0 s\) must be a positive time",
        ),
    ],
)
def test_bad_input_gets_one_line_with_name_and_unit(call, message):
    with pytest.raises(ValueError, match=message) as raised:
        call(RatePopulation(LINE, integration))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("recipe", "change", "message"),
    [
        (Integrator, {"neurons": 5}, r"neurons \(5\) must be at least 10"),
        (Integrator, {"tau_s": 0.0}, r"tau_s \(0.0\) must be a positive number"),
        (Integrator, {"tau_read": -1.0}, r"tau_read \(-1.0\) must be a number from 0 up"),
        (Integrator, {"noise": 0.0}, r"noise \(0.0\) must be a positive number"),
        (Integrator, {"dt": 0.01}, r"dt \(0.01\) must be above 0 and at most tau_ref"),
        (Integrator, {"duration": 0.05}, r"duration \(0.05\) must be a hundred steps of dt"),
        (Integrator, {"ratios": (0.1,)}, r"ratios \(\(0.1,\)\) must be two different numbers"),
        (Oscillator, {"frequency": 0.0}, r"frequency \(0.0\) must be a positive number"),
        (Oscillator, {"controls": (0.0,)}, r"controls \(\(0.0,\)\) must be one number at least"),
        (Oscillator, {"sizes": (10, 10)}, r"sizes \(\(10, 10\)\) must be two different numbers"),
        (VanDerPol, {"mu": 0.0}, r"mu \(0.0\) must be a positive number"),
        (VanDerPol, {"speed": 0.0}, r"speed \(0.0\) must be a positive number"),
        (VanDerPol, {"radius": 1.0}, r"radius \(1.0\) must be above 2, the amplitude of the cycle"),
        (Lorenz, {"speed": 0.0}, r"speed \(0.0\) must be a positive number"),
        (Lorenz, {"spread": 0.0}, r"spread \(0.0\) must be a positive number"),
        (Lorenz, {"runs": 1}, r"runs \(1\) must be at least 2"),
    ],
)
def test_recipes_refuse(recipe, change, message):
    with pytest.raises(UserError, match=message):
        recipe(**change)
