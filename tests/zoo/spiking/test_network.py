import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import expm

from everynet.kernels.lif_network import advance_torch
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.spiking.lif import LIF, interval_rates
from everynet.zoo.spiking.network import (
    RECIPES,
    LIFNetwork,
    RandomLIFNetwork,
    random_weights,
    simulate_by_loop,
)

DT = 1e-3


def generator(seed):
    return torch.Generator().manual_seed(seed)


def csr(dense):
    """torch says on every CSR tensor that it is new."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dense.to_sparse_csr()


def example(seed=0, neurons=20, strength=0.02):
    weights = torch.randn(neurons, neurons, generator=generator(seed), dtype=torch.float64)
    weights *= strength * (torch.rand(neurons, neurons, generator=generator(seed + 1)) < 0.3)
    current = 0.8 + torch.rand(neurons, generator=generator(seed + 2), dtype=torch.float64)
    return weights, current


def looped(weights, lags, current, tau_ref):
    constants = {"tau_s": 0.005, "tau_m": 0.02, "tau_ref": tau_ref}
    return simulate_by_loop(weights, lags, current, steps=300, dt=DT, **constants)


def spikes_of(recording):
    steps = (recording.times / DT).round().long().tolist()
    return list(zip(steps, recording.neurons.tolist(), strict=True))


# -------------------------------------------------------------------------------------- equations


@pytest.mark.covers("N9")
@pytest.mark.parametrize("tau_s", [0.004, 0.02, 0.05])
@pytest.mark.parametrize("delay", [0.0, 0.003])
def test_one_spike_through_one_synapse_is_the_closed_form(tau_s, delay):
    """From 0 to 1 and not back; the two time constants may be equal."""
    weights = torch.tensor([[0, 0.006], [0, 0]], dtype=torch.float64)
    pulse = torch.zeros(60, 2, dtype=torch.float64)
    pulse[5, 0] = 100
    got = LIFNetwork(weights, tau_s, 0.02, 0.002, delay).simulate(0.06, DT, pulse, record=[1])
    assert spikes_of(got) == [(5, 0)]
    arrived = 6 + round(delay / DT)
    t = torch.arange(60 - arrived).double() * DT
    if tau_s == 0.02:
        expected = 0.006 * t / tau_s**2 * torch.exp(-t / tau_s)
    else:
        rise = torch.exp(-t / tau_s) - torch.exp(-t / 0.02)
        expected = 0.006 / (tau_s - 0.02) * rise
    assert (got.voltages[:arrived] == 0).all()
    torch.testing.assert_close(got.voltages[arrived:, 0], expected, rtol=0, atol=1e-12)
    assert expected.max() > 0.05


@pytest.mark.covers("N9")
@pytest.mark.parametrize("tau_s", [0.004, 0.02])
def test_without_spikes_it_is_the_matrix_exponential(tau_s):
    """tau_m v' = I + s - v and tau_s s' = -s by scipy, of which our steps know nothing."""
    current = 0.2 + 0.5 * torch.rand(5, generator=generator(0), dtype=torch.float64)
    network = LIFNetwork(torch.zeros(5, 5, dtype=torch.float64), tau_s, 0.02, 0.002)
    v, s = 0.4 * torch.rand(2, 5, generator=generator(1), dtype=torch.float64)
    state = replace(network.rest(DT), voltage=v, charge=tau_s * s)
    got = network.simulate(0.05, DT, current, record=range(5), state=state)
    assert len(got.times) == 0
    for i in range(5):
        slope = np.array([[-1 / 0.02, 1 / 0.02, current[i] / 0.02], [0, -1 / tau_s, 0], [0, 0, 0]])
        for k in (0, 1, 7, 49):
            expected = (expm(k * DT * slope) @ [v[i], s[i], 1])[0]
            assert got.voltages[k, i].item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.covers("N9")
@given(seed=st.integers(0, 100), lag=st.integers(0, 4), rest=st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_spikes_and_membranes_are_those_of_the_plain_loop(seed, lag, rest):
    weights, current = example(seed)
    network = LIFNetwork(weights, 0.005, 0.02, rest * DT, lag * DT)
    got = network.simulate(0.3, DT, current, record=range(20))
    spikes, trace = looped(weights, torch.full((20, 20), lag), current, rest * DT)
    assert len(spikes) > 50
    assert spikes_of(got) == spikes
    torch.testing.assert_close(got.voltages, trace, rtol=0, atol=1e-10)


@pytest.mark.covers("N9")
@pytest.mark.parametrize("sparse", [False, True])
def test_each_synapse_may_have_its_own_delay(sparse):
    weights, current = example(3)
    delays = torch.randint(0, 6, (20, 20), generator=generator(9))
    where = weights != 0
    if sparse:
        network = LIFNetwork(csr(weights), 0.005, 0.02, 0.002, (delays * DT)[where])
    else:
        network = LIFNetwork(weights, 0.005, 0.02, 0.002, (delays * DT).double())
    got = network.simulate(0.3, DT, current, record=range(20))
    spikes, trace = looped(weights, delays, current, 0.002)
    assert spikes_of(got) == spikes
    torch.testing.assert_close(got.voltages, trace, rtol=0, atol=1e-10)


@pytest.mark.covers("N9")
def test_a_driven_unit_fires_at_the_rate_of_the_formula():
    v_in = torch.linspace(1.05, 10, 12, dtype=torch.float64)
    network = LIFNetwork(torch.zeros(12, 12).double(), 0.005, 0.02, 0.002)
    rates = interval_rates(network.simulate(1.0, 1e-5, v_in), 12)
    torch.testing.assert_close(rates, LIF().rate(v_in), rtol=0.01, atol=0)
    alone = LIF().simulate(v_in, 1.0, 1e-5)
    assert torch.equal(alone.times, network.simulate(1.0, 1e-5, v_in).times)


def test_a_current_may_change_in_time():
    pulse = torch.zeros(50, 3, dtype=torch.float64)
    pulse[10, 0], pulse[20, 2] = 100, 100
    got = LIFNetwork(torch.zeros(3, 3).double(), 0.005, 0.02, 0.002).simulate(0.05, DT, pulse)
    assert spikes_of(got) == [(10, 0), (20, 2)]


# ------------------------------------------------------------------------------------------ forms


def kinds():
    weights, current = example(5)
    delays = torch.randint(0, 5, (20, 20), generator=generator(4)).double() * DT
    constants = (0.005, 0.02, 0.002)
    return {
        "dense": LIFNetwork(weights, *constants, 0.002),
        "rows": LIFNetwork(csr(weights), *constants, 0.002),
        "delays": LIFNetwork(weights, *constants, delays),
    }, current


@pytest.mark.parametrize("kind", ["dense", "rows", "delays"])
@pytest.mark.parametrize("poisson", [None, 80.0])
def test_two_halves_are_one_whole(kind, poisson, monkeypatch):
    networks, current = kinds()
    network, given_ = networks[kind], {"poisson_rate": poisson, "record": [3, 0]}
    whole = network.simulate(0.3, DT, current, **given_, generator=generator(0))
    monkeypatch.setattr("everynet.kernels.lif_network.ROOM", 3)  # many chunks change nothing
    first = network.simulate(0.113, DT, current, **given_, generator=generator(0))
    second = network.simulate(0.187, DT, current, **given_, state=first.state)
    assert len(whole.times) > 50
    for name in ("times", "neurons", "voltages"):
        halves = torch.cat([getattr(first, name), getattr(second, name)])
        assert torch.equal(halves, getattr(whole, name)), name
    for name, value in vars(whole.state).items():
        other = getattr(second.state, name)
        assert torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other


@pytest.mark.parametrize("kind", ["dense", "rows", "delays"])
@pytest.mark.parametrize("poisson", [None, 80.0])
def test_the_two_forms_agree(kind, poisson, monkeypatch):
    networks, current = kinds()
    given_ = {"poisson_rate": poisson, "record": [3, 0]}
    first = networks[kind].simulate(0.1, DT, current, **given_, generator=generator(0))
    loop = networks[kind].simulate(0.2, DT, current, **given_, state=first.state)
    monkeypatch.setattr("everynet.zoo.spiking.network.advance", advance_torch)
    same = networks[kind].simulate(0.1, DT, current, **given_, generator=generator(0))
    whole = networks[kind].simulate(0.2, DT, current, **given_, state=same.state)
    assert len(loop.times) > 50
    assert torch.equal(loop.times, whole.times)
    assert torch.equal(loop.neurons, whole.neurons)
    atol = 1e-12 if kind == "dense" else 0  # rows of a matrix are summed in another order
    torch.testing.assert_close(loop.voltages, whole.voltages, rtol=0, atol=atol)
    for name, value in vars(loop.state).items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(value, getattr(whole.state, name), rtol=0, atol=atol)
        else:
            assert value == getattr(whole.state, name)


def test_every_way_to_give_the_weights_is_one_network():
    weights, current = example(7)
    rows = csr(weights)
    narrow = scipy.sparse.csr_array(weights.numpy())
    wide = scipy.sparse.csr_array(weights.numpy())
    narrow.indices, narrow.indptr = narrow.indices.astype("i4"), narrow.indptr.astype("i4")
    wide.indices, wide.indptr = wide.indices.astype("i8"), wide.indptr.astype("i8")
    runs = [
        LIFNetwork(given_, 0.005, 0.02, 0.002, 0.001).simulate(0.3, DT, current, record=[4])
        for given_ in (weights, rows, narrow, wide)
    ]
    assert len(runs[0].times) > 50
    assert all(torch.equal(runs[0].times, other.times) for other in runs)
    assert all(torch.equal(runs[0].voltages, other.voltages) for other in runs)


def test_single_precision_gives_nearly_the_same_rates():
    weights, current = example(7, neurons=60, strength=0.005)
    runs = [
        LIFNetwork(weights.to(kind), 0.005, 0.02, 0.002).simulate(1.0, DT, current, record=[0])
        for kind in (torch.float32, torch.float64)
    ]
    assert runs[0].voltages.dtype == torch.float32
    assert len(runs[0].times) == pytest.approx(len(runs[1].times), rel=0.01)


def test_only_rows_of_neurons_that_spiked_are_read():
    weights, current = example(2)
    current[10:] = 0.2
    weights[:, 10:] = 0
    network = LIFNetwork(csr(weights), 0.005, 0.02, 0.002)
    network.wiring.values[network.wiring.starts[10] :] = math.nan
    got = network.simulate(0.2, DT, current)
    assert got.neurons.max() < 10
    assert got.state.voltage.isfinite().all()


def test_currents_that_have_died_away_become_zero():
    """Denormal numbers would slow a silent network down."""
    weights = torch.tensor([[0, 0.001], [0, 0]])
    pulse = torch.zeros(4000, 2)
    pulse[0, 0] = 100
    state = LIFNetwork(weights, 0.005, 0.02, 0.002).simulate(4.0, DT, pulse).state
    assert state.charge.tolist() == [0, 0]
    assert state.voltage.tolist() == [0, 0]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("kind", ["dense", "rows", "delays"])
def test_the_gpu_fires_the_same_spikes(kind):
    networks, current = kinds()
    here, there = (
        networks[kind].simulate(0.1, DT, current, 80.0, generator=generator(0), device=device)
        for device in ("cpu", "cuda")
    )
    assert torch.equal(here.times, there.times)
    assert torch.equal(here.neurons, there.neurons)


# ------------------------------------------------------------------------------------------ noise


@pytest.mark.parametrize("mean", [0.02, 0.7, 30.0])
def test_poisson_input_has_poissons_distribution(mean):
    """After one step the charge of an unconnected neuron is the weight times the number."""
    neurons = 20_000
    empty = scipy.sparse.csr_array((neurons, neurons), dtype=np.float64)
    network = LIFNetwork(empty, 0.005, 0.02, 0.002)
    state = network.simulate(DT, DT, None, mean / DT, (), generator(1), poisson_weight=0.5).state
    numbers = (state.charge / 0.5).round()
    assert numbers.mean().item() == pytest.approx(mean, abs=4 * math.sqrt(mean / neurons))
    spread = mean * math.sqrt((2 + 1 / mean) / neurons)
    assert numbers.var().item() == pytest.approx(mean, abs=4 * spread)
    counts = torch.bincount(numbers.long()).numpy()
    expected = scipy.stats.poisson(mean).pmf(np.arange(len(counts))) * neurons
    often = expected > 10
    chi = ((counts - expected) ** 2 / expected)[often].sum()
    assert chi < scipy.stats.chi2(often.sum()).ppf(0.9999)


def test_poisson_input_differs_between_neurons_steps_and_keys():
    network = LIFNetwork(torch.zeros(50, 50).double(), 1e9, 1e9, 0.0)
    totals = []
    for seed in (0, 0, 1):
        state = network.simulate(0.2, DT, None, 200.0, (), generator(seed)).state
        totals.append(state.charge)
    assert torch.equal(totals[0], totals[1])
    assert not torch.equal(totals[0], totals[2])
    numbers = (totals[0] / 0.01).round()
    assert numbers.mean().item() == pytest.approx(40, abs=4 * math.sqrt(40 / 50))
    assert 20 < numbers.var().item() < 80


def test_rate_times_weight_is_the_mean_input():
    """150 Hz through 0.005 s is a mean input of 0.75, and v follows it."""
    network = LIFNetwork(torch.zeros(200, 200).double(), 0.005, 0.02, 0.002)
    start = network.simulate(0.2, DT, None, 150.0, (), generator(0), poisson_weight=0.001)
    got = network.simulate(0.5, DT, 0.6, 150.0, range(200), state=start.state, poisson_weight=0.001)
    assert len(got.times) == 0
    assert got.voltages[200:].mean().item() == pytest.approx(0.75, abs=0.01)


def test_each_neuron_may_have_its_own_rate():
    network = LIFNetwork(torch.zeros(3, 3).double(), 1e9, 1e9, 0.0)
    rates = torch.tensor([0.0, 100.0, 1000.0], dtype=torch.float64)
    numbers = network.simulate(1.0, DT, None, rates, (), generator(2)).state.charge / 0.01
    assert numbers[0] == 0
    assert numbers[1].item() == pytest.approx(100, abs=40)
    assert numbers[2].item() == pytest.approx(1000, abs=130)


# ------------------------------------------------------------------------- the recipe and refusals


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_recipe_reaches_its_goal(seed, tmp_path):
    result = run(replace(RECIPES["lif-network"], seed=seed), tmp_path)
    assert result.reached


def test_random_weights_by_hand():
    weights = random_weights(3, 2, share=1.0, weight=0.1, balance=4, generator=generator(0))
    assert weights[0].tolist() == pytest.approx([0, 0.1, 0.1, 0.1, 0.1])
    assert weights[4].tolist() == pytest.approx([-0.4, -0.4, -0.4, -0.4, 0])


TWO = torch.zeros(2, 2, dtype=torch.float64)


def made(weights=TWO, tau_s=0.005, tau_m=0.02, tau_ref=0.002, delay=0.0):
    return LIFNetwork(weights, tau_s, tau_m, tau_ref, delay)


def broken(**parts):
    """Compressed rows that scipy did not check."""
    rows = scipy.sparse.csr_array(np.eye(2))
    for name, value in parts.items():
        setattr(rows, name, np.array(value, dtype=np.int32))
    return rows


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: made(tau_s=-0.005), r"tau_s \(-0.005 s\) must be a positive time"),
        (lambda: made(tau_m=0.0), r"tau_m \(0.0 s\) must be a positive time"),
        (lambda: made(tau_ref=-1.0), r"tau_ref \(-1.0 s\) must be a time from 0 up"),
        (lambda: made(delay=-1.0), r"delay \(-1.0 s\) must be a time from 0 up"),
        (lambda: made(delay=torch.zeros(3)), r"delay \(\(3,\) s\) must be of the shape 2 x 2"),
        (
            lambda: made(torch.ones(2, 2), delay=torch.full((2, 2), -1.0)),
            r"delay \(negative or not finite s\) must be a time from 0 up",
        ),
        (
            lambda: made(csr(torch.eye(2)), delay=torch.zeros(3)),
            r"delay \(3 values s\) must be one for each of 2 weights",
        ),
        (lambda: made(torch.zeros(2, 3)), r"weights \(2 x 3 s\) must be square: weights\[j, i\]"),
        (lambda: made(torch.tensor([[math.nan]])), r"weights \(not finite s\) must be finite"),
        (lambda: made(torch.eye(2).half()), r"weights \(torch.float16 type\) must be float32 or"),
        (lambda: made(torch.eye(2).to_sparse()), r"weights \(torch.sparse_coo layout\) must be"),
        (
            lambda: made(scipy.sparse.csc_array(np.eye(2))),
            r"weights \(csc format\) must be csr: use tocsr\(\)",
        ),
        (
            lambda: made(broken(indptr=[0, 5, 2])),
            r"weights \(row pointers places\) must be rising from 0",
        ),
        (
            lambda: made(broken(indices=[0, 7])),
            r"weights \(column indices neurons\) must be from 0 to 1",
        ),
        (lambda: made().simulate(0.1, 0.005), r"dt \(0.005 s\) must be at most tau_ref"),
        (
            lambda: made().simulate(0.1, DT, torch.zeros(0)),
            r"current \(empty dimensionless\) must be at least one number",
        ),
        (
            lambda: made().simulate(0.1, DT, torch.zeros(3)),
            r"current \(3 values\) must be one, or one for 2 neurons",
        ),
        (
            lambda: made().simulate(0.1, DT, poisson_rate=-1.0),
            r"poisson_rate \(negative or not finite Hz\) must be numbers from 0 up",
        ),
        (
            lambda: made().simulate(0.1, DT, poisson_rate=torch.ones(3)),
            r"poisson_rate \(3 values\) must be one, or one for 2",
        ),
        (
            lambda: made().simulate(0.1, DT, poisson_rate=1e6),
            r"poisson_rate \(1000000.0 Hz\) must be at most 500.0 a step; take a smaller dt",
        ),
        (
            lambda: made().simulate(0.1, DT, poisson_rate=1.0, poisson_weight=math.inf),
            r"poisson_weight \(inf s\) must be a finite number",
        ),
        (lambda: made().simulate(0.1, DT, record=[2]), r"record \(\(2,\) neurons\) must be"),
        (
            lambda: made().simulate(0.1, DT, state=made(torch.zeros(3, 3)).rest(DT)),
            r"state \(3 neurons\) must be that of 2 neurons",
        ),
        (
            lambda: made(torch.ones(2, 2), delay=torch.full((2, 2), 0.01)).simulate(
                0.1, DT, state=made().rest(DT)
            ),
            r"state \(0 steps of delay\) must be of 11: that of a run with the same dt",
        ),
    ],
)
def test_bad_quantities_are_refused_by_name_and_unit(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"excitatory": 4}, r"excitatory \(4\) must be at least 5"),
        ({"inhibitory": 0}, r"inhibitory \(0\) must be at least 1"),
        ({"share": 0.0}, r"share \(0.0\) must be above 0 and at most 1"),
        ({"tau_s": 0.0}, r"tau_s \(0.0\) must be a positive number"),
        ({"delay": -1.0}, r"delay \(-1.0\) must be a number from 0 up"),
        ({"poisson_rate": 1e9}, r"poisson_rate \(1000000000.0\) must be below 500"),
        ({"dt": 0.01}, r"dt \(0.01\) must be at most tau_ref, in seconds"),
        ({"duration": 1e-4}, r"duration \(0.0001\) must be at least twenty steps"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        RandomLIFNetwork(**fields)
