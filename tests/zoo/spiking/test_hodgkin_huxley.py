import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.zoo.spiking.action_potential import firing_rates
from everynet.zoo.spiking.hodgkin_huxley import HodgkinHuxley, whole_steps
from tests.zoo.spiking.axon import paper, values

MODEL = HodgkinHuxley()


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


def test_the_rest_is_stable_up_to_a_current_that_its_jacobian_tells():
    """The pair of eigenvalues of the Jacobian crosses the imaginary axis at 9.78 uA/cm2."""
    for current, stable in ((9.7, True), (9.85, False)):
        j = values(current)[0]
        jacobian = torch.autograd.functional.jacobian(
            lambda y, j=j: MODEL.derivative(y, j), MODEL.rest(current)
        )
        assert (torch.linalg.eigvals(jacobian).real.max() < 0) == stable


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
    ],
)
def test_bad_input_gets_one_line_with_name_and_unit(call, message):
    with pytest.raises(ValueError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)
