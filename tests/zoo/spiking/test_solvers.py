import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from everynet.zoo.spiking.hodgkin_huxley import HodgkinHuxley
from everynet.zoo.spiking.solvers import METHODS
from tests.zoo.spiking.axon import paper, values

MODEL = HodgkinHuxley()


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


# ------------------------------------------------------------------------------------- closed forms


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


# ------------------------------------------------------------------------------------ the reference


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


# ---------------------------------------------------------------------------------------- the loops


@pytest.mark.parametrize("method", METHODS)
def test_compiled_loop_equals_the_torch_form(method):
    """Other constants, a changing current, more neurons than a block, and the order of spikes."""
    model = HodgkinHuxley(1.3, 110.0, 40.0, 0.4, 52.0, -80.0, -55.0)
    generator = torch.Generator().manual_seed(0)
    size, steps = 300 if method == "staggered" else 7, 250
    current = 80 * torch.rand(steps, size, generator=generator, dtype=torch.float64)
    seen = model.simulate(current, 0.0025, method=method)
    form = METHODS[method](model, 1e-2, model.reach(model.rest()[:1], current))
    state = model.rest()[:, None].repeat(1, size)
    times, neurons, traces = form.by_tensors(state, current, steps, list(range(size)))
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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: MODEL.simulate(1.0, 0.1, method="rk5"),
            r"unknown method 'rk5'.*rk4",
        ),
        (
            lambda: MODEL.simulate(1e5, 0.1),
            r"current must be weaker: .* mV, further than the staggered .* take method='rk4'",
        ),
        (
            lambda: MODEL.simulate(100.0, 0.1, 1e-3, method="rk4"),
            r"dt \(0.001 s\) must be smaller: the voltage became infinite with rk4",
        ),
    ],
)
def test_bad_input_gets_one_line(call, message):
    with pytest.raises(ValueError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)
