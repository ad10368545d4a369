import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from everynet.run import run
from everynet.types import UserError
from everynet.zoo.spiking.hodgkin_huxley import (
    METHODS,
    RECIPES,
    STRONGEST,
    ActionPotential,
    HodgkinHuxley,
    by_tensors,
    firing_rates,
    onset,
    phases,
    pulses,
    whole_steps,
)

MODEL = HodgkinHuxley()


def values(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def paper(_time, state, current):
    """The equations as the paper and every textbook print them, in plain Python (per ms)."""
    v, m, h, n = state
    a_m, b_m = 0.1 * (v + 40) / (1 - math.exp(-(v + 40) / 10)), 4 * math.exp(-(v + 65) / 18)
    a_h, b_h = 0.07 * math.exp(-(v + 65) / 20), 1 / (1 + math.exp(-(v + 35) / 10))
    a_n, b_n = 0.01 * (v + 55) / (1 - math.exp(-(v + 55) / 10)), 0.125 * math.exp(-(v + 65) / 80)
    ions = 120 * m**3 * h * (v - 50) + 36 * n**4 * (v + 77) + 0.3 * (v + 54.387)
    return [
        current - ions,
        a_m * (1 - m) - b_m * m,
        a_h * (1 - h) - b_h * h,
        a_n * (1 - n) - b_n * n,
    ]


@pytest.fixture(scope="module")
def truth():
    """V over 100 ms at 10 uA/cm2, every 0.01 ms, and when it rises through 0 (s)."""
    rise = lambda _t, y, _j: y[0]  # noqa: E731 -- solve_ivp wants an attribute on it
    rise.direction = 1
    solved = solve_ivp(
        paper,
        (0, 100),
        MODEL.rest().tolist(),
        method="LSODA",
        args=(10.0,),
        rtol=1e-10,
        atol=1e-10,
        t_eval=np.linspace(0, 100, 10_001),
        events=rise,
    )
    return torch.from_numpy(solved.y), torch.from_numpy(solved.t_events[0]) / 1e3


# ------------------------------------------------------------------------------------ closed forms


@given(v=st.floats(-120, 120), m=st.floats(0, 1), h=st.floats(0, 1), n=st.floats(0, 1))
@settings(max_examples=25, deadline=None)
def test_derivative_is_the_papers(v, m, h, n):
    state = values(v, m, h, n)
    close = dict(rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        MODEL.derivative(state, values(3.0)[0]),
        values(*paper(0, (v + 1e-12, m, h, n), 3.0)),
        **close,
    )


def test_rates_where_the_quotient_is_nought_over_nought():
    alpha, beta = MODEL.rates(values(-40.0, -55.0))
    assert alpha[0, 0] == 1
    assert alpha[2, 1] == 0.1
    torch.testing.assert_close(1 / MODEL.time_constants(values(-40.0, -55.0)), alpha + beta)
    torch.testing.assert_close(
        MODEL.settled(values(-40.0))[0], values(1 / (1 + 4 * math.exp(-25 / 18)))
    )


@pytest.mark.parametrize("method", METHODS)
def test_membrane_without_gates_relaxes_exponentially(method):
    """g_Na = g_K = 0: V = V_inf + (V_0 - V_inf) e^(-t g / C) with V_inf = E + J / g."""
    leaky = HodgkinHuxley(capacitance=2.0, g_na=0, g_k=0, g_leak=0.5, e_leak=-60)
    start = torch.cat([values(-90.0), MODEL.rest()[1:]])[:, None]
    seen = leaky.simulate(4.0, 0.02, 1e-5, method=method, state=start)
    exact = -52 + (-90 + 52) * torch.exp(-1e3 * seen.grid * 0.5 / 2)
    torch.testing.assert_close(seen.traces[0, :, 0], exact, rtol=0, atol=1e-9)
    assert len(seen.grid) == 2001


@pytest.mark.parametrize("method", METHODS)
def test_gates_relax_exponentially_where_v_is_clamped(method):
    """A huge leak holds V at -20 mV: each gate goes to x_inf with its time constant."""
    clamp = HodgkinHuxley(g_na=0, g_k=0, g_leak=1e3, e_leak=-20)
    start = values(-20.0, 0.1, 0.9, 0.2)[:, None]
    dt = 1e-5 if method != "rk4" else 1e-6  # which a stiff leak makes unstable
    seen = clamp.simulate(0.0, 0.002, dt, method=method, state=start)
    v = values(-20.0)
    goal, tau = clamp.settled(v), clamp.time_constants(v)
    exact = goal + (start[1:] - goal) * torch.exp(-1e3 * seen.grid / tau)
    torch.testing.assert_close(seen.traces[1:, :, 0], exact, rtol=0, atol=1e-6)


@pytest.mark.covers("N2")
def test_rest_peak_and_rate():
    assert MODEL.rest()[0].item() == pytest.approx(-65.0, abs=0.05)
    torch.testing.assert_close(
        MODEL.derivative(MODEL.rest(), values(0.0)[0]), torch.zeros(4).double(), rtol=0, atol=1e-9
    )
    seen = MODEL.simulate(10.0, 0.5, method="rk4")
    v, first = seen.traces[0, :, 0], int(1e5 * seen.times[0])
    assert v[: first + 200].max().item() == pytest.approx(40, abs=2)
    assert v[first + 400 :].max() < v[: first + 200].max() - 5  # later ones are lower
    assert firing_rates(seen).item() == pytest.approx(68.6, abs=2)


@pytest.mark.covers("N2")
@pytest.mark.parametrize("method", ["rk4", "staggered"])
def test_sustained_firing_from_rest_begins_between_6_25_and_6_3(method):
    seen = MODEL.simulate(values(6.25, 6.3), 1.0, method=method, record=())
    assert firing_rates(seen)[0] > 0  # it spikes for a while
    late = firing_rates(seen, since=0.5)
    assert late[0] == 0
    assert late[1] > 40


def test_the_rest_is_stable_up_to_a_current_that_its_jacobian_tells():
    """The pair of eigenvalues of the Jacobian crosses the imaginary axis at 9.78 uA/cm2."""
    for current, stable in ((9.7, True), (9.85, False)):
        j = values(current)[0]
        jacobian = torch.autograd.functional.jacobian(
            lambda y, j=j: MODEL.derivative(y, j), MODEL.rest(current)
        )
        assert (torch.linalg.eigvals(jacobian).real.max() < 0) == stable


@pytest.mark.covers("N2")
def test_second_pulse_2_ms_later_gives_no_spike_and_20_ms_later_does():
    onsets = values(0.001, 0.001).expand(2, 2).clone()
    onsets[1] += values(0.002, 0.02)
    current = pulses(0.04, 1e-5, onsets, torch.full((2, 2), 20.0).double(), 0.001)
    assert current.sum(0).tolist() == [4000, 4000]  # 2 pulses of 100 steps of 20
    assert current[150, 0] == 20
    assert current[350, 0] == 20
    assert current[250, 0] == 0
    seen = MODEL.simulate(current, 0.04)
    assert torch.bincount(seen.neurons).tolist() == [1, 2]


@pytest.mark.covers("N2")
def test_phases_in_their_order_with_the_channels_that_make_them():
    current = pulses(0.03, 1e-5, values(0.001)[:, None], values(20.0)[:, None], 0.001)
    seen = MODEL.simulate(current, 0.03, method="rk4")
    v, m, h, n = seen.traces[:, :, 0]
    found = phases(seen.grid, v)
    at = [round(moment / 1e-5) for moment in found]
    assert at == sorted(at)
    threshold, peak, below, back = at
    assert v[peak] == v.max()
    assert -60 < v[threshold] < -40
    assert m[peak] - m[threshold] > 0.5  # sodium opens
    assert h[below] < 0.2  # sodium is blocked
    assert n[below] - n[threshold] > 0.3  # potassium is open
    sodium, potassium, _ = MODEL.currents(seen.traces[:, threshold:peak, 0])
    assert (sodium + potassium).sum() < 0  # inwards in all
    assert v[below - 1] >= v[0] > v[below]
    assert v[below:back].max() < v[0] <= v[back]


# --------------------------------------------------------------------------------- the three ways


@pytest.mark.covers("N2")
def test_rk4_follows_the_reference(truth):
    states, times = truth
    seen = MODEL.simulate(10.0, 0.1, method="rk4")
    assert (seen.traces[0, :, 0] - states[0]).abs().max() < 0.1
    torch.testing.assert_close(seen.traces[:, :, 0], states, rtol=0, atol=1e-3)
    assert (seen.times - times).abs().max() < 1e-7  # the line across a step: 0.1 us


@pytest.mark.covers("N2")
def test_staggered_follows_the_reference(truth):
    states, times = truth
    seen = MODEL.simulate(10.0, 0.1)
    error = seen.traces[:, :, 0] - states
    assert error[0].square().mean().sqrt() < 0.15
    assert error[1:].square().mean().sqrt() < 2e-3  # gates of the same moments
    assert (seen.times[-1] - times[-1]).abs() < 1e-5


@pytest.mark.covers("N2")
def test_exponential_euler_is_near_and_of_first_order(truth):
    _, times = truth
    late = []
    for dt in (1e-5, 5e-6, 2.5e-6):
        seen = MODEL.simulate(10.0, 0.1, dt, method="exponential-euler", record=())
        late.append((seen.times - times).abs().max().item())
    assert late[0] < 5e-4
    assert late[0] / late[1] == pytest.approx(2, abs=0.1)
    assert late[1] / late[2] == pytest.approx(2, abs=0.1)


def test_order_of_each_method():
    _, errors = RECIPES["hodgkin-huxley"].convergence()
    halved = torch.log2(errors[:, 4] / errors[:, 3])
    assert halved[0].item() == pytest.approx(1, abs=0.15)
    assert halved[1].item() == pytest.approx(4, abs=0.3)
    assert halved[2].item() == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize("method", METHODS)
def test_compiled_loop_equals_the_torch_form(method):
    """Other constants, a changing current, more neurons than a block, and the order of spikes."""
    model = HodgkinHuxley(1.3, 110.0, 40.0, 0.4, 52.0, -80.0, -55.0)
    generator = torch.Generator().manual_seed(0)
    size, steps = 300 if method == "staggered" else 7, 250
    current = 80 * torch.rand(steps, size, generator=generator, dtype=torch.float64)
    seen = model.simulate(current, 0.0025, method=method)
    form = METHODS[method](model, 1e-2, model._reach(model.rest()[:1], current))
    state = model.rest()[:, None].repeat(1, size)
    times, neurons, traces = by_tensors(form, state, current, steps, range(size))
    torch.testing.assert_close(seen.traces, traces, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(seen.state, state, rtol=1e-10, atol=1e-10)
    order = times.argsort(stable=True)
    assert len(times) > 0
    torch.testing.assert_close(seen.times, times[order] / 1e3)
    assert torch.equal(seen.neurons, neurons[order])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("method", METHODS)
def test_gpu_equals_cpu(method):
    current = torch.linspace(0, 80, 50, dtype=torch.float64)
    here, there = (
        MODEL.simulate(current.to(device), 0.003, method=method) for device in ("cpu", "cuda")
    )
    torch.testing.assert_close(there.traces.cpu(), here.traces, rtol=1e-8, atol=1e-8)
    assert torch.equal(there.neurons.cpu(), here.neurons)


@given(cut=st.integers(1, 399), method=st.sampled_from(sorted(METHODS)))
@settings(max_examples=25, deadline=None)
def test_stopping_and_going_on_changes_nothing(cut, method):
    current = 15 + 10 * torch.sin(torch.arange(400.0).double() / 20)[:, None] * values(1, -1)
    whole = MODEL.simulate(current, 0.004, method=method)
    first = MODEL.simulate(current[:cut], cut * 1e-5, method=method)
    rest = (400 - cut) * 1e-5
    second = MODEL.simulate(current[cut:], rest, method=method, state=first.state)
    joined = torch.cat([first.traces, second.traces[:, 1:]], dim=1)
    torch.testing.assert_close(joined, whole.traces, rtol=1e-9, atol=1e-9)
    later = torch.cat([first.times, second.times + cut * 1e-5])
    torch.testing.assert_close(later, whole.times)


@given(currents=st.lists(st.floats(-50, 200), min_size=1, max_size=5))
@settings(max_examples=25, deadline=None)
def test_gates_stay_shares_and_neurons_do_not_touch(currents):
    together = MODEL.simulate(values(*currents), 0.01, 5e-5)
    assert ((together.traces[1:] >= 0) & (together.traces[1:] <= 1)).all()
    alone = MODEL.simulate(values(currents[-1]), 0.01, 5e-5, record=(0,))
    torch.testing.assert_close(together.traces[..., -1:], alone.traces, rtol=1e-9, atol=1e-9)


def test_many_neurons_record_few_and_keep_all_spikes():
    currents = torch.linspace(8, 12, 1000, dtype=torch.float64)
    seen = MODEL.simulate(currents, 0.1, record=(999, 3))
    assert seen.traces.shape == (4, 10_001, 2)
    alone = MODEL.simulate(currents[[999, 3]], 0.1)
    torch.testing.assert_close(seen.traces, alone.traces, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(seen.times[seen.neurons == 3], alone.times[alone.neurons == 1])
    assert (seen.times.diff() >= 0).all()
    assert torch.equal(
        MODEL.simulate(10.0, 0.01, record=()).state, MODEL.simulate(10.0, 0.01).state
    )


def test_firing_rates_and_onset_by_hand():
    seen = MODEL.simulate(values(10.0, 0.0, 10.0), 0.05)
    times, neurons = values(0.1, 0.1, 0.2, 0.4), torch.tensor([0, 2, 0, 0])
    told = firing_rates(seen._replace(times=times, neurons=neurons))
    torch.testing.assert_close(told, values(2 / 0.3, 0, 0))
    told = firing_rates(seen._replace(times=times, neurons=neurons), since=0.15)
    torch.testing.assert_close(told, values(5, 0, 0))
    assert onset(values(1, 2, 3, 4), values(0, 5, 0, 9)) == 3.5


# --------------------------------------------------------------------------------------- the recipe


@pytest.mark.covers("N2")
def test_recipe_reaches_its_goal(tmp_path):
    recipe = RECIPES["hodgkin-huxley"]
    result = run(recipe, tmp_path, device="cpu")
    assert all(goal.reached(result.metrics) for goal in recipe.goals())
    assert result.metrics["rest"] == pytest.approx(-65, abs=0.05)
    assert {path.stem for path in result.pictures} == {"action-potential", "phase-plane", "laws"}


def test_recipe_takes_a_current_that_does_not_fire_and_other_methods():
    quiet = replace(RECIPES["hodgkin-huxley"].tiny(), current=1.0, method="rk4", dt=5e-5)
    result = quiet.simulate(torch.Generator())
    assert quiet.metrics(result)["rate"] == 0
    assert set(quiet.pictures(result)) == {"action-potential", "phase-plane", "laws"}


def test_weakest_second_pulse_falls_with_time():
    gaps, thresholds = replace(RECIPES["hodgkin-huxley"], halvings=4).refractoriness()
    assert gaps[0] == 0.002
    assert thresholds[:4].isinf().all()
    open_to = thresholds[thresholds.isfinite()]
    assert (open_to[:8].diff() <= 0).all()
    assert open_to.max() <= STRONGEST


# -------------------------------------------------------------------------------------- the errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: HodgkinHuxley(capacitance=-1), r"capacitance \(-1 uF/cm2\) must be > 0"),
        (lambda: HodgkinHuxley(g_k=-36), r"g_k \(-36 mS/cm2\) must be a number from 0 up"),
        (lambda: HodgkinHuxley(e_na=math.nan), r"e_na \(nan mV\) must be finite"),
        (lambda: HodgkinHuxley(g_leak=0).rest(), r"g_leak \(0 mS/cm2\) must be > 0"),
        (lambda: MODEL.simulate(1.0, -1), r"duration \(-1 s\) must be a positive number"),
        (
            lambda: MODEL.simulate(1.0, 0.1, 0.01),
            r"dt \(0.01 s\) must be above 0 and at most 0.001",
        ),
        (lambda: whole_steps(1e-3, 3e-4), r"duration \(0.001 s\) must be a whole number of steps"),
        (lambda: MODEL.simulate(torch.zeros(0), 0.1), r"current \(empty\) must hold .* \(uA/cm2\)"),
        (lambda: MODEL.simulate(math.nan, 0.1), r"current \(NaN .*\) must be finite \(uA/cm2\)"),
        (
            lambda: MODEL.simulate(torch.zeros(7, 2), 0.1),
            r"current \(7 x 2\) must be one number, .* or 10000 rows of them",
        ),
        (
            lambda: MODEL.simulate(1.0, 0.1, method="rk5"),
            r"method \(rk5\) must be one we have.*rk4",
        ),
        (
            lambda: MODEL.simulate(1.0, 0.1, record=(1,)),
            r"record \(\[1\]\) must name .* from 0 to 0",
        ),
        (
            lambda: MODEL.simulate(1.0, 0.1, state=torch.zeros(4, 2)),
            r"state \(4 x 2\) must be 4 x 1: V \(mV\), m, h and n",
        ),
        (
            lambda: MODEL.simulate(1.0, 0.1, state=torch.full((4, 1), -65.0)),
            r"state must be finite, with gates m, h and n from 0 to 1 and V in mV",
        ),
        (
            lambda: MODEL.simulate(1e5, 0.1),
            r"current must be weaker: .* mV, further than the staggered .* take method='rk4'",
        ),
        (
            lambda: MODEL.simulate(100.0, 0.1, 1e-3, method="rk4"),
            r"dt \(0.001 s\) must be smaller: the voltage became infinite with rk4",
        ),
        (
            lambda: phases(values(0, 1e-5, 2e-5), values(-65, -64, -65)),
            r"v \(at most -64 mV\) must rise above 0 mV",
        ),
        (
            lambda: onset(values(1, 2), values(5, 5)),
            r"currents must begin below the onset .* \(uA/cm2\)",
        ),
    ],
)
def test_bad_input_gets_one_line_with_name_and_unit(call, message):
    with pytest.raises(ValueError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dt": 1e-4}, r"dt \(0.0001\) must be above 0 and at most 5e-5 s"),
        ({"method": "euler"}, r"method \(euler\) must be one of exponential-euler, rk4, staggered"),
        ({"points": 1}, r"points \(1\) must be at least 2"),
        ({"halvings": 0}, r"halvings \(0\) must be at least 1"),
        ({"current": math.inf}, r"current \(inf\) must be finite \(uA/cm2\)"),
        ({"strongest": 5.0}, r"strongest \(5.0\) must be at least 10 uA/cm2"),
        ({"duration": 0.01}, r"duration \(0.01\) must be at least 0.02 s"),
        (
            {"patience": 0.1, "dt": 3e-5},
            r"\w+ \(0.1\) must be a whole number of steps dt \(3e-05 s\)",
        ),
    ],
)
def test_recipe_refuses(change, message):
    with pytest.raises(UserError, match=message):
        ActionPotential(**change)
