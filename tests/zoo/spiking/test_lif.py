import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.kernels.lif import BLOCK, Grid, Membranes, advance, advance_torch
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.spiking.lif import (
    LIF,
    RECIPES,
    DimensionalLIF,
    EulerLIF,
    FiringRate,
    InterpolatedLIF,
    closed_form,
    euler_step,
    interval_rates,
    layer_with_constant,
    simulate_by_loop,
    spike_time,
)


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


# --------------------------------------------------------------------------------------- membrane


@pytest.mark.covers("N3")
@given(v_in=st.floats(-3, 0.99), tau_m=st.floats(0.005, 0.05), dt=st.floats(1e-5, 2e-3))
@settings(max_examples=25, deadline=None)
def test_the_trace_is_the_closed_form_at_any_step(v_in, tau_m, dt):
    run = LIF(tau_m).simulate(v_in, 100 * dt, dt, record=[0])
    times = torch.arange(100).double() * dt
    exact = closed_form(tensor(v_in), times, tau_m)
    torch.testing.assert_close(run.voltages, exact, rtol=0, atol=1e-12)
    assert run.voltages[1].item() == pytest.approx(v_in * (1 - math.exp(-dt / tau_m)), abs=1e-12)
    assert len(run.times) == 0


@pytest.mark.covers("N3")
def test_euler_converges_at_first_order():
    errors = []
    for dt in (1e-3, 5e-4, 2.5e-4, 1.25e-4):
        end = EulerLIF().simulate(0.9, 0.02, dt).state.voltage
        errors.append(abs(end.item() - 0.9 * (1 - math.exp(-1))))
    orders = [math.log2(a / b) for a, b in pairwise(errors)]
    assert orders == pytest.approx([1, 1, 1], abs=0.03)
    assert EulerLIF().simulate(0.9, 1e-3, 1e-3).state.voltage.item() == pytest.approx(0.9 / 20)


@pytest.mark.covers("N3")
def test_with_and_without_dimension_spikes_are_the_same():
    membrane = DimensionalLIF(
        capacitance=1.2, leak=0.08, v_rest=-67, v_threshold=-52, tau_ref=0.003
    )
    current = torch.linspace(0.5, 6, 23, dtype=torch.float64)
    v_in = membrane.drive(current)
    assert v_in[0].item() == pytest.approx(0.5 / 0.08 / 15)
    assert membrane.neuron == LIF(1.2 / 0.08 / 1000, 0.003)
    dimensional = membrane.simulate(current, 0.3, 1e-4, record=range(23))
    without = membrane.neuron.simulate(v_in, 0.3, 1e-4, record=range(23))
    assert len(without.times) > 300
    assert torch.equal(dimensional.times, without.times)
    assert torch.equal(dimensional.neurons, without.neurons)
    scaled = membrane.scaled(dimensional.voltages)
    torch.testing.assert_close(scaled, without.voltages, rtol=0, atol=1e-12)
    assert membrane.scaled(tensor(-67, -52, -59.5)).tolist() == pytest.approx([0, 1, 0.5])


# ------------------------------------------------------------------------------------ spike times


@pytest.mark.covers("N3", "N9")
@given(
    v_in=st.floats(0.5, 20),
    dt=st.sampled_from([1e-3, 5e-4, 1e-4]),
    rest=st.integers(0, 5),
)
@settings(max_examples=25, deadline=None)
def test_spikes_on_the_grid_are_those_of_the_plain_loop(v_in, dt, rest):
    run = LIF(0.02, rest * dt).simulate(v_in, 400 * dt, dt, record=[0])
    times, trace = simulate_by_loop(v_in, 400, dt, LIF(0.02, rest * dt))
    assert run.times.tolist() == pytest.approx(times, abs=1e-9)
    assert run.voltages[:, 0].tolist() == pytest.approx(trace, abs=1e-9)
    run = EulerLIF(0.02, rest * dt).simulate(v_in, 400 * dt, dt, record=[0])
    times, trace = simulate_by_loop(v_in, 400, dt, LIF(0.02, rest * dt), euler_step)
    assert run.times.tolist() == pytest.approx(times, abs=1e-9)
    assert run.voltages[:, 0].tolist() == pytest.approx(trace, abs=1e-9)


@pytest.mark.parametrize("go", [advance, advance_torch])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_membrane_exactly_at_the_threshold_fires_and_is_reset(go, dtype):
    """Half of the way to 2 is 1 in every step; half of the way to 1.5 is 3/4, then 9/8."""
    begun = Membranes(torch.zeros(2, dtype=dtype), torch.zeros(2, dtype=torch.int32), 0)
    drive = torch.tensor([[2.0, 1.5]], dtype=dtype)
    run = go(drive, begun, 3, Grid(0.5, 0, 1.0, 0.0), dt=1.0, record=[0, 1])
    assert run.times.tolist() == [0, 1, 1, 2]
    assert run.neurons.tolist() == [0, 0, 1, 0]
    assert run.voltages.tolist() == [[0, 0], [0, 0.75], [0, 0]]
    assert run.state.voltage.tolist() == [0, 0.75]


def test_v_is_zero_at_the_next_tau_ref_over_dt_times():
    run = LIF(0.02, 0.004).simulate(3.0, 0.1, 1e-3, record=[0])
    first = round(run.times[0].item() / 1e-3)
    trace = run.voltages[:, 0]
    assert first == math.ceil(0.02 * math.log(1.5) / 1e-3) - 1
    assert trace[first] > 0
    assert trace[first + 1 : first + 5].tolist() == [0, 0, 0, 0]
    assert trace[first + 5] > 0


def nengo(v_in, steps, dt, tau_m, tau_ref):
    """The rule of nengo.LIF.step, as arrays, with the time of each spike."""
    v, refractory = np.zeros_like(v_in[0]), np.zeros_like(v_in[0])
    times, neurons = [], []
    for k in range(steps):
        current = v_in[k]
        refractory -= dt
        delta = (dt - refractory).clip(0, dt)
        v -= (current - v) * np.expm1(-delta / tau_m)
        mask = v > 1
        over = torch.from_numpy(v[mask]), torch.from_numpy(current[mask])
        inside = spike_time(*over, dt, tau_m).numpy()
        times += (k * dt + inside).tolist()
        neurons += np.flatnonzero(mask).tolist()
        v[v < 0] = 0
        v[mask] = 0
        refractory[mask] = tau_ref + inside
    order = np.argsort(times, kind="stable")
    return np.array(times)[order].tolist(), np.array(neurons)[order].tolist(), v


@pytest.mark.covers("N4")
@given(seed=st.integers(0, 100), tau_ref=st.sampled_from([0.0, 1e-3, 2e-3, 3.3e-3]))
@settings(max_examples=15, deadline=None)
def test_spikes_inside_steps_follow_nengos_rule(seed, tau_ref):
    drive = np.random.default_rng(seed).uniform(-2, 6, (300, 7))
    run = InterpolatedLIF(0.02, tau_ref).simulate(torch.from_numpy(drive), 0.3, 1e-3)
    times, neurons, v = nengo(drive, 300, 1e-3, 0.02, tau_ref)
    assert run.times.tolist() == pytest.approx(times, abs=1e-12)
    assert run.neurons.tolist() == neurons
    assert run.state.voltage.tolist() == pytest.approx(v.tolist(), abs=1e-12)


def test_without_a_floor_the_membrane_may_be_below_rest():
    assert InterpolatedLIF().simulate(-2.0, 0.02, 1e-3).state.voltage.item() == 0
    free = InterpolatedLIF(floor=-math.inf).simulate(-2.0, 0.02, 1e-3).state.voltage.item()
    assert free == pytest.approx(-2 * (1 - math.exp(-1)))


# ------------------------------------------------------------------------------------------ rates


@pytest.mark.covers("N4")
def test_the_rate_by_hand():
    neuron = LIF(0.02, 0.002)
    assert neuron.rate(1.5).item() == pytest.approx(41.71, abs=0.005)
    assert neuron.rate(tensor(-1, 0, 1)).tolist() == [0, 0, 0]
    assert neuron.rate(1e9).item() == pytest.approx(500, rel=1e-6)
    assert LIF(0.02, 0.0).rate(2.0).item() == pytest.approx(1 / (0.02 * math.log(2)))
    v_in = tensor(0.5, 1.5).requires_grad_()
    neuron.rate(v_in).sum().backward()
    assert v_in.grad[0] == 0
    assert torch.autograd.gradcheck(neuron.rate, tensor(1.5, 4.0).requires_grad_())


@pytest.mark.covers("N4")
@pytest.mark.parametrize(("neuron", "dt"), [(LIF(), 1e-5), (InterpolatedLIF(), 1e-3)])
def test_simulated_rates_are_within_a_hundredth_of_the_formula(neuron, dt):
    v_in = torch.logspace(math.log10(1.05), 1, 25, dtype=torch.float64)
    rates = interval_rates(neuron.simulate(v_in, 1.0, dt), 25)
    torch.testing.assert_close(rates, neuron.rate(v_in), rtol=0.01, atol=0)


# ------------------------------------------------------------------------- tuning curves and layers


@pytest.mark.covers("N5")
@given(
    fastest=st.floats(5, 450),
    intercept=st.floats(-0.95, 0.9),
    tau_m=st.floats(0.01, 0.04),
)
@settings(max_examples=25, deadline=None)
def test_tuning_hits_the_maximum_at_one_and_begins_at_the_intercept(fastest, intercept, tau_m):
    neuron = LIF(tau_m, 0.002)
    gain, bias = neuron.gain_bias(tensor(fastest), tensor(intercept))
    x = tensor(1.0, intercept - 1e-6, intercept + 1e-6)[:, None]
    rates = neuron.tuning(x, tensor(1.0)[:, None], gain, bias)[:, 0]
    assert rates[0].item() == pytest.approx(fastest, rel=1e-6)
    assert rates[1] == 0
    assert rates[2] > 0
    turned = neuron.tuning(-x, tensor(-1.0)[:, None], gain, bias)[:, 0]
    assert torch.equal(turned, rates)
    x_max = 1.0 / (1 - np.exp((0.002 - (1.0 / fastest)) / tau_m))  # nengo.LIFRate.gain_bias
    theirs = (1 - x_max) / (intercept - 1.0)
    assert gain.item() == pytest.approx(theirs, rel=1e-12)
    assert bias.item() == pytest.approx(1 - theirs * intercept, rel=1e-12)


@pytest.mark.covers("N8")
@given(seed=st.integers(0, 1000), batch=st.integers(1, 9))
@settings(max_examples=25, deadline=None)
def test_a_bias_is_the_weight_of_a_unit_that_is_always_one(seed, batch):
    random = torch.Generator().manual_seed(seed)
    x = torch.rand(batch, 4, generator=random, dtype=torch.float64) / 4
    weight = torch.rand(4, 3, generator=random, dtype=torch.float64)
    bias = torch.rand(3, generator=random, dtype=torch.float64)

    class Identity(LIF):
        def rate(self, v_in):
            return v_in

    constant = layer_with_constant(x, weight, bias, Identity())
    torch.testing.assert_close(constant, x @ weight + bias, rtol=1e-15, atol=1e-15)
    rates = LIF().rate(x @ weight + bias + 1)
    torch.testing.assert_close(layer_with_constant(x, weight, bias + 1, LIF()), rates)
    by_hand = LIF().rate(sum(x[0, j] * weight[j, 1] for j in range(4)) + bias[1] + 1)
    assert rates[0, 1].item() == pytest.approx(by_hand.item())


# --------------------------------------------------------------------------------------- the kernel


@pytest.mark.parametrize("neuron", [LIF(0.02, 0.003), InterpolatedLIF(0.02, 0.003)])
@pytest.mark.parametrize("varying", [False, True])
def test_two_halves_are_one_whole(neuron, varying):
    random = torch.Generator().manual_seed(0)
    drive = 3 * torch.rand(400 if varying else 1, 9, generator=random, dtype=torch.float64)
    drive = drive if varying else drive[0]
    parts = (drive[:151], drive[151:]) if varying else (drive, drive)
    whole = neuron.simulate(drive, 0.4, 1e-3, record=[3, 0])
    first = neuron.simulate(parts[0], 0.151, 1e-3, record=[3, 0])
    second = neuron.simulate(parts[1], 0.249, 1e-3, record=[3, 0], state=first.state)
    assert torch.equal(torch.cat([first.times, second.times]), whole.times)
    assert torch.equal(torch.cat([first.neurons, second.neurons]), whole.neurons)
    assert torch.equal(torch.cat([first.voltages, second.voltages]), whole.voltages)
    assert all(map(torch.equal, second.state[:2], whole.state[:2]))


@pytest.mark.parametrize("neuron", [LIF(0.02, 0.003), EulerLIF(), InterpolatedLIF(0.02, 0.003)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_two_forms_agree(neuron, dtype):
    random = torch.Generator().manual_seed(1)
    drive = 4 * torch.rand(200, 12, generator=random, dtype=torch.float64).to(dtype) - 0.5
    start = neuron.rest(12, dtype)
    loop, whole = (
        form(drive, start, 200, neuron.rule(1e-3), dt=1e-3, record=[5, 5, 1])
        for form in (advance, advance_torch)
    )
    assert len(loop.times) > 50
    tolerance = {"rtol": 0, "atol": 1e-5 if isinstance(neuron, InterpolatedLIF) else 0}
    assert torch.equal(loop.neurons, whole.neurons)
    torch.testing.assert_close(loop.times, whole.times, **tolerance)
    torch.testing.assert_close(loop.voltages, whole.voltages, **tolerance)
    torch.testing.assert_close(loop.state.voltage, whole.state.voltage, **tolerance)
    torch.testing.assert_close(loop.state.refractory, whole.state.refractory, **tolerance)


@pytest.mark.parametrize("neuron", [LIF(), InterpolatedLIF()])
def test_many_blocks_chunks_and_threads_change_nothing(neuron, monkeypatch):
    neurons = 2 * BLOCK + 77
    v_in = torch.linspace(0.9, 9, neurons, dtype=torch.float64)
    recorded = [neurons - 1, 0, BLOCK]
    whole = neuron.simulate(v_in, 0.05, 1e-3, record=recorded)
    monkeypatch.setattr("everynet.kernels.lif.BUFFER", neurons * 3)
    monkeypatch.setattr("everynet.kernels.lif.ALONE", 1)
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    again = neuron.simulate(v_in, 0.05, 1e-3, record=recorded)
    assert torch.equal(whole.times, again.times)
    assert torch.equal(whole.neurons, again.neurons)
    assert torch.equal(whole.voltages, again.voltages)
    assert (whole.times.diff() >= 0).all()
    ties = whole.times.diff() == 0
    assert (whole.neurons.diff()[ties] > 0).all()
    few = neuron.simulate(v_in[recorded], 0.05, 1e-3, record=range(3))
    assert torch.equal(few.voltages, whole.voltages)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_the_gpu_fires_the_same_spikes():
    v_in = torch.linspace(0.9, 9, 1000, dtype=torch.float64)
    here, there = (LIF().simulate(v_in, 0.1, 1e-3, device=d) for d in ("cpu", "cuda"))
    assert torch.equal(here.times, there.times)
    assert torch.equal(here.neurons, there.neurons)


# ------------------------------------------------------------------------- the recipe and refusals


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_recipe_reaches_its_goal(seed, tmp_path):
    result = run(replace(RECIPES["lif"], seed=seed), tmp_path)
    assert result.reached
    assert result.metrics["euler_order"] == pytest.approx(1, abs=0.05)
    assert result.metrics["rough_error"] > 0.1  # what spikes inside steps are for


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LIF(tau_m=-0.02), r"tau_m \(-0.02 s\) must be a positive time"),
        (lambda: LIF(tau_ref=-1.0), r"tau_ref \(-1.0 s\) must be a time from 0 up"),
        (lambda: LIF().simulate(1.5, 0.1, 0.005), r"dt \(0.005 s\) must be at most tau_ref \(0.0"),
        (lambda: LIF().simulate(1.5, 0.1, 0.0), r"dt \(0.0 s\) must be a positive time"),
        (lambda: LIF().simulate(1.5, -1.0, 1e-3), r"duration \(-1.0 s\) must be a positive time"),
        (lambda: LIF().simulate(1.5, 0.0015, 1e-3), r"duration \(0.0015 s\) must be a whole num"),
        (lambda: LIF().simulate(torch.zeros(0), 0.1, 1e-3), r"v_in \(empty dimensionless\) must"),
        (lambda: LIF().simulate(math.nan, 0.1, 1e-3), r"v_in \(not finite dimensionless\) must"),
        (lambda: LIF().simulate(torch.ones(7, 2), 0.1, 1e-3), r"v_in \(7 rows dimensionless\) mu"),
        (lambda: LIF().simulate(1.5, 0.1, 1e-3, record=[1]), r"record \(\(1,\) neurons\) must be"),
        (
            lambda: LIF().simulate(1.5, 0.1, 1e-3, state=LIF().rest(3, torch.float64)),
            r"state \(3 neurons\) must be that of 1 neurons",
        ),
        (
            lambda: LIF().gain_bias(tensor(600.0), tensor(0.0)),
            r"max_rates \(600 to 600 Hz\) must be above 0 and below 1/tau_ref 500",
        ),
        (
            lambda: LIF().gain_bias(tensor(100.0), tensor(1.0)),
            r"intercepts \(1 to 1 dimensionless\) must be below 1",
        ),
        (lambda: DimensionalLIF(capacitance=0.0), r"capacitance \(0.0 uF/cm2\) must be positive"),
        (lambda: DimensionalLIF(leak=-1.0), r"leak \(-1.0 mS/cm2\) must be positive"),
        (lambda: DimensionalLIF(v_threshold=-70.0), r"v_threshold \(-70.0 mV\) must be above rest"),
        (lambda: DimensionalLIF(tau_ref=-1.0), r"tau_ref \(-1.0 s\) must be a time from 0 up"),
        (
            lambda: DimensionalLIF().simulate(torch.zeros(0), 0.1, 1e-3),
            r"current \(empty uA/cm2\) must be at least one number",
        ),
    ],
)
def test_bad_quantities_are_refused_by_name_and_unit(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tau_m": 0.0}, r"tau_m \(0.0\) must be a positive number"),
        ({"tau_ref": -1.0}, r"tau_ref \(-1.0\) must be a number from 0 up"),
        ({"coarse": 0.01}, r"coarse \(0.01\) must be at most tau_ref, in seconds"),
        ({"duration": 0.1}, r"duration \(0.1\) must be at least 0.2 s"),
        ({"inputs": 1}, r"inputs \(1\) must be at least 2"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        FiringRate(**fields)
