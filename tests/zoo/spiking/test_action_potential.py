import math
from dataclasses import replace

import pytest
import torch

from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.spiking.action_potential import (
    HOLD,
    RECIPES,
    STRONGEST,
    ActionPotential,
    equally_far,
    firing_rates,
    inwards,
    onset,
    phases,
    pulses,
)
from everynet.zoo.spiking.hodgkin_huxley import HodgkinHuxley
from everynet.zoo.spiking.pictures.neuron import CHANNEL, spike_frames
from tests.plot.legible import faults
from tests.zoo.spiking.axon import paper, values

MODEL = HodgkinHuxley()


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
@pytest.mark.parametrize("method", ["rk4", "staggered"])
def test_sustained_firing_from_rest_begins_between_6_25_and_6_3(method):
    seen = MODEL.simulate(values(6.25, 6.3), 1.0, method=method, record=())
    assert firing_rates(seen)[0] > 0  # it spikes for a while
    late = firing_rates(seen, since=0.5)
    assert late[0] == 0
    assert late[1] > 40


def test_firing_rates_and_onset_by_hand():
    seen = MODEL.simulate(values(10.0, 0.0, 10.0), 0.05)
    times, neurons = values(0.1, 0.1, 0.2, 0.4), torch.tensor([0, 2, 0, 0])
    told = firing_rates(seen._replace(times=times, neurons=neurons))
    torch.testing.assert_close(told, values(2 / 0.3, 0, 0))
    told = firing_rates(seen._replace(times=times, neurons=neurons), since=0.15)
    torch.testing.assert_close(told, values(5, 0, 0))
    assert onset(values(1, 2, 3, 4), values(0, 5, 0, 9)) == 3.5


def test_the_plane_has_h_on_the_line_and_m_settled():
    n = torch.linspace(0.3, 0.7, 9, dtype=torch.float64)
    h = 0.9 - 1.1 * n + 0.05 * values(1, -1, -1, 1, 0, 1, -1, -1, 1)  # around the line
    train = torch.stack([torch.zeros_like(n), torch.zeros_like(n), h, n])
    across, up = values(-70, -30, 20), values(0.35, 0.6)
    found = inwards(train, across, up, 7.0)
    for i, gate in enumerate(up.tolist()):
        for j, v in enumerate(across.tolist()):
            m = MODEL.settled(across)[0, j].item()
            expected, *_ = paper(0, (v, m, 0.9 - 1.1 * gate, gate), 7.0)
            assert found[i, j].item() == pytest.approx(expected, abs=1e-9)


def test_on_the_plane_h_stays_a_share():
    """Where the line 1.5 - 2 n leaves 0 to 1, h is 0 or 1."""
    n = torch.linspace(0.3, 0.7, 9, dtype=torch.float64)
    train = torch.stack([torch.zeros_like(n), torch.zeros_like(n), 1.5 - 2 * n, n])
    found = inwards(train, values(-30.0), values(0.1, 0.5, 0.9), 7.0)[:, 0]
    m = MODEL.settled(values(-30.0))[0].item()
    for charge, gate, h in zip(found.tolist(), (0.1, 0.5, 0.9), (1.0, 0.5, 0.0), strict=True):
        expected, *_ = paper(0, (-30.0, m, h, gate), 7.0)
        assert charge == pytest.approx(expected, abs=1e-9)


# --------------------------------------------------------------------------------------- the recipe


@pytest.mark.covers("N2")
def test_recipe_reaches_its_goal(tmp_path):
    recipe = RECIPES["hodgkin-huxley"]
    result = run(recipe, tmp_path, device="cpu")
    assert all(goal.reached(result.metrics) for goal in recipe.goals())
    assert result.metrics["rest"] == pytest.approx(-65, abs=0.05)
    orders = [result.metrics[f"{name}_order"] for name in ("euler", "rk4", "staggered")]
    assert orders == pytest.approx([1, 4, 2], abs=0.1)
    assert {path.stem for path in result.pictures} == {
        "action-potential", "gates", "phase-plane", "laws",
    }  # fmt: skip


def test_recipe_takes_a_current_that_does_not_fire_and_other_methods():
    quiet = replace(RECIPES["hodgkin-huxley"].tiny(), current=1.0, method="rk4", dt=5e-5)
    result = quiet.simulate(torch.Generator())
    assert quiet.metrics(result)["rate"] == 0
    assert set(quiet.draw(result)) == {"action-potential", "gates", "phase-plane", "laws"}


def test_weakest_second_pulse_falls_with_time():
    gaps, thresholds = replace(RECIPES["hodgkin-huxley"], halvings=4).refractoriness()
    assert gaps[0] == 0.002
    assert thresholds[:4].isinf().all()
    open_to = thresholds[thresholds.isfinite()]
    assert (open_to[:8].diff() <= 0).all()
    assert open_to.max() <= STRONGEST


def test_order_of_each_method():
    _, errors = RECIPES["hodgkin-huxley"].convergence()
    halved = torch.log2(errors[:, 4] / errors[:, 3])
    assert halved[0].item() == pytest.approx(1, abs=0.15)
    assert halved[1].item() == pytest.approx(4, abs=0.3)
    assert halved[2].item() == pytest.approx(2, abs=0.1)


# --------------------------------------------------------------------------------------- the errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
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
        ({"method": "euler"}, r"unknown method 'euler'.*exponential-euler"),
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


def test_gates_are_drawn_where_they_settle_and_how_long_that_takes():
    settled, slow = ActionPotential().picture_gates({}).axes
    v, m, h, n = MODEL.rest()[:, 0] if MODEL.rest().dim() > 1 else MODEL.rest()
    for line, share in zip(settled.lines, (m, h, n), strict=False):
        there = abs(line.get_xdata() - float(v)).argmin()
        assert line.get_ydata()[there] == pytest.approx(float(share), abs=0.02)
    taken = [float(line.get_ydata().max()) for line in slow.lines[:3]]
    assert taken == pytest.approx([0.5, 8.6, 5.8], abs=0.1)  # ms, of m, h and n


def test_the_film_of_a_spike_ends_at_the_last_voltage_and_shows_the_currents():
    once = torch.zeros(1, dtype=torch.float64)
    single = RECIPES["hodgkin-huxley"].pulsed(once, once, 0.01)
    result = {"single": single.traces[:, :, 0], "single_grid": single.grid}
    given = {}

    def keep(*times, **more):
        for drawn in spike_frames(*times, **more):
            given["last"] = drawn
            yield drawn

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("everynet.zoo.spiking.action_potential.spike_frames", keep)
        film = RECIPES["hodgkin-huxley"].sample(result, {}, torch.Generator(), frames=2)
    assert len(film.frames) == 2 + HOLD
    assert (film.frames[0] != film.frames[1]).any()
    drawn = given["last"]
    assert not faults(drawn)
    volts, _, currents, membrane = drawn.axes
    assert volts.lines[-1].get_ydata()[0] == result["single"][0, -1]
    flows = MODEL.currents(result["single"])
    ends = [line.get_ydata()[0] for line in currents.lines if line.get_marker() == "o"]
    assert ends == flows[:, -1].tolist()
    said = [text.get_text() for text in membrane.texts]
    assert f"inside, V = {result['single'][0, -1]:.0f} mV".replace("-", "\N{MINUS SIGN}") in said
    leak = MODEL.conductances(result["single"])[2, -1]
    assert f"leak\n{leak:.1f} mS/cm²" in said
    walls = [line.get_xdata()[0] for line in membrane.lines[:2]]  # of sodium's channel
    g = MODEL.conductances(result["single"])
    assert walls[1] - walls[0] == pytest.approx(CHANNEL * float(g[0, -1] / g.max()))


def test_frames_stand_where_the_trace_is_steep():
    v = torch.cat([torch.zeros(50), torch.arange(0.0, 50.0), torch.full((100,), 50.0)]).double()
    assert equally_far(v, 2) == [0, 199]
    shown = equally_far(v, 41)
    assert shown[0] == 0
    assert shown[-1] == 199
    assert 24 <= sum(50 <= at <= 100 for at in shown) <= 27, "a half for V, a quarter of the other"


def test_a_film_of_a_spike_has_some_frames():
    with pytest.raises(UserError, match=r"frames \(1\) must be from 2 to 120"):
        RECIPES["hodgkin-huxley"].sample({}, {}, torch.Generator(), frames=1)
