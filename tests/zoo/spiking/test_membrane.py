import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.constants import R, physical_constants
from scipy.integrate import quad, solve_ivp
from scipy.optimize import brentq

from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.spiking.membrane import (
    RECIPES,
    Ion,
    RestingPotential,
    balance,
    cycles,
    flux,
    goldman,
    mullins,
    nernst,
    thermal,
)

SODIUM, POTASSIUM = Ion(1, 0.04, 12, 145), Ion(1, 1.0, 140, 5)
CHLORIDE, CALCIUM = Ion(-1, 0.45, 10, 110), Ion(2, 0.1, 1e-4, 1.5)
IONS = st.builds(
    Ion,
    st.sampled_from([1, -1]),
    st.floats(0.01, 1),
    st.floats(1, 200),
    st.floats(1, 200),
)


@pytest.mark.covers("N1")
def test_potentials_of_textbook_concentrations():
    assert nernst(POTASSIUM) == pytest.approx(-89, abs=0.5)
    assert nernst(SODIUM) == pytest.approx(67, abs=0.5)
    assert goldman(SODIUM, POTASSIUM, CHLORIDE) == pytest.approx(-67, abs=5)
    assert nernst(CHLORIDE) == pytest.approx(-64.1, abs=0.1)
    assert nernst(CALCIUM) == pytest.approx(13.36 * math.log(15_000), abs=0.1)  # half a volt, 2 e
    faraday = physical_constants["Faraday constant"][0]
    assert thermal(293.15) == pytest.approx(1000 * R * 293.15 / faraday, rel=1e-9)
    assert nernst(Ion(1, 1, 10, 100), 293.15) == pytest.approx(58.17, abs=0.01)  # a decade at 20 C


@pytest.mark.covers("N1")
@given(ion=IONS)
@settings(max_examples=25, deadline=None)
def test_no_net_flux_at_the_nernst_potential_and_downhill_beside_it(ion):
    v = nernst(ion)
    assert flux(ion, v) == pytest.approx(0, abs=1e-9)
    assert ion.charge * flux(ion, v + 1) > 0
    assert ion.charge * flux(ion, v - 1) < 0
    assert goldman(ion) == pytest.approx(v, abs=1e-9)


def test_flux_by_hand():
    """Without a field (2) is Fick's law; at RT/F the constant-field solution, by quadrature."""
    assert flux(POTASSIUM, 0.0) == pytest.approx(140 - 5)
    assert flux(POTASSIUM, 1e-9) == pytest.approx(140 - 5, rel=1e-6)
    v = thermal(310.15)
    integral = quad(lambda y: math.exp(-y), 0, 1)[0]  # int_0^1 e^{-x y} dy
    assert flux(POTASSIUM, v) == pytest.approx((140 - 5 * math.exp(-1)) / integral)
    assert flux(CALCIUM, v / 2) == pytest.approx(0.1 * (1e-4 - 1.5 * math.exp(-1)) / integral)


@pytest.mark.covers("N1")
@given(ions=st.lists(IONS, min_size=1, max_size=5))
@settings(max_examples=25, deadline=None)
def test_goldman_is_where_the_currents_cancel(ions):
    def current(v):
        return sum(ion.charge * flux(ion, v) for ion in ions)

    assert goldman(*ions) == pytest.approx(brentq(current, -400, 400, xtol=1e-12), abs=1e-6)
    potentials = [nernst(ion) for ion in ions]
    assert min(potentials) - 1e-9 <= goldman(*ions) <= max(potentials) + 1e-9


@pytest.mark.covers("N1")
@given(sodium=st.floats(5, 50), potassium=st.floats(50, 160), share=st.floats(0.01, 0.2))
@settings(max_examples=25, deadline=None)
def test_three_out_and_two_in_balance_the_leaks_at_the_steady_potential(sodium, potassium, share):
    na, k = Ion(1, share, sodium, 145), Ion(1, 1.0, potassium, 5)
    v = mullins(na, k)
    turns = -flux(na, v) / 3
    assert turns > 0
    assert flux(k, v) == pytest.approx(2 * turns, rel=1e-9)
    assert balance(na, k, turns) == pytest.approx(v, abs=1e-9)
    assert v < goldman(na, k)  # the pump carries a charge out
    assert balance(na, k, 0.0) == pytest.approx(goldman(na, k), abs=1e-9)


def test_the_pump_turns_faster_with_more_sodium_inside():
    assert cycles(8.0, 10.0) == pytest.approx(1)  # each of three sites taken half of the time
    assert cycles(1.0, 1e9) == pytest.approx(1)
    assert cycles(1.0, 5.0) < cycles(1.0, 6.0)


@pytest.mark.covers("N1")
def test_the_run_down_follows_its_equation():
    """Both concentrations by scipy, from the moment the pump stops; no charge is lost."""
    recipe = RestingPotential(phases=(200.0, 4000.0, 40.0), dt=20.0)
    rows = recipe.simulate(torch.Generator())["rows"]
    sodium, potassium, _ = recipe.ions()

    def slope(_, inside):
        na, k = sodium._replace(inside=inside[0]), potassium._replace(inside=inside[1])
        v = goldman(na, k)
        return [-3000 * flux(na, v), -3000 * flux(k, v)]

    times = [0, 1000, 3000, 4000]
    solved = solve_ivp(slope, (0, 4000), [12, 140], t_eval=times, rtol=1e-10, atol=1e-10).y
    for n, t in enumerate(times):
        row = rows[10 + round(t / 20)]
        assert row[1].item() == pytest.approx(solved[0, n], rel=1e-4)
        assert row[2].item() == pytest.approx(solved[1, n], rel=1e-4)
    assert (rows[:, 1] + rows[:, 2]).tolist() == pytest.approx([152] * len(rows), rel=1e-9)


@pytest.mark.covers("N1")
def test_the_recipe_reaches_its_goal(tmp_path):
    result = run(RECIPES["membrane"], tmp_path)
    assert result.reached
    assert result.metrics["pump_ratio"] == pytest.approx(1.5)
    assert result.metrics["potential_lost"] > 60  # mV: without the pump the potential is gone
    assert result.metrics["sodium_left"] < 0.1  # and with it sodium leaves again


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nernst(Ion(0, 1, 1, 1)), r"charge \(0 e\) must be a whole number other than 0"),
        (lambda: nernst(Ion(1, 1, 0, 5)), r"concentration \(0 inside, 5 outside mM\) must be posi"),
        (lambda: flux(Ion(1, -1, 1, 5), 0), r"permeability \(-1 cm/s\) must be from 0 up"),
        (lambda: nernst(POTASSIUM, -1.0), r"temperature \(-1.0 K\) must be above 0"),
        (lambda: goldman(CALCIUM), r"charge \(2 e\) must be 1 or -1"),
        (lambda: goldman(Ion(1, 0, 1, 1)), r"permeability \(all 0 cm/s\) must be positive for"),
    ],
)
def test_bad_quantities_are_refused_by_name_and_unit(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sodium_in": 0.0}, r"sodium_in \(0.0\) must be a positive number"),
        ({"chloride_share": -1.0}, r"chloride_share \(-1.0\) must be a number from 0 up"),
        ({"phases": (1.0,)}, r"phases \(\(1.0,\)\) must be three times of at least two steps"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        replace(RECIPES["membrane"], **fields)
