import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.population import ensemble as subject
from everynet.zoo.population.ensemble import (
    RECIPES,
    Ensemble,
    PopulationCode,
    fit_exponent,
    product,
    quarter_turn,
    relative_error,
    sample_ball,
    square,
)
from everynet.zoo.population.tuning import LIFRate, RectifiedLinear, Sigmoid

TUNINGS = [RectifiedLinear(), Sigmoid(), LIFRate(), LIFRate(tau_m=0.05, tau_ref=0.0)]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def values(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


@pytest.mark.covers("P1")
@pytest.mark.parametrize("tuning", TUNINGS)
def test_encoding_is_the_tuning_of_the_projection(tuning):
    code = Ensemble(30, 3, tuning=tuning, radius=2.0, max_rates=(250, 390), generator=seeded())
    torch.testing.assert_close(code.encoders.norm(dim=1), torch.ones(30).double())
    x = sample_ball(20, 3, 2.0, seeded(1))
    rates = code.encode(x)
    assert rates.shape == (20, 30)
    for i in range(0, 20, 7):
        for j in range(0, 30, 11):
            along = sum(x[i, k] * code.encoders[j, k] for k in range(3)) / 2
            one = tuning.rate(code.gain[j] * along + code.bias[j])
            torch.testing.assert_close(rates[i, j], one, rtol=1e-9, atol=1e-9)
    peaks = code.encode(2 * code.encoders).diagonal()
    assert ((peaks >= 250) & (peaks <= 390)).all()


def test_draws_fill_ball_and_sphere_evenly():
    points = sample_ball(20_000, 2, 3.0, seeded())
    share = (points.norm(dim=1) < 3 / math.sqrt(2)).double().mean().item()
    assert share == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(20_000))
    assert points.norm(dim=1).max() <= 3
    assert points.mean(0).abs().max() < 4 * 1.5 / math.sqrt(20_000)
    code = Ensemble(20_000, 1, generator=seeded(), eval_points=1)
    assert set(code.encoders.flatten().tolist()) == {-1.0, 1.0}
    assert code.encoders.mean().abs().item() < 4 / math.sqrt(20_000)


# ---------------------------------------------------------------------------------------- decoders


@pytest.mark.covers("P3")
def test_under_noise_regularised_decoders_err_less():
    code, random = Ensemble(100, 1, generator=seeded()), seeded(1)
    x = sample_ball(2000, 1, generator=random)
    h = code.encode(x)
    noisy = h + 0.1 * h.max() * torch.randn(h.shape, generator=random, dtype=torch.float64)
    steady, plain = (relative_error(noisy @ code.decoders(noise=s), x) for s in (0.1, 0))
    assert steady < plain / 2
    assert steady < 0.06


@pytest.mark.covers("P2")
def test_error_without_noise_falls_with_the_number_of_neurons():
    recipe = replace(RECIPES["ensemble"], sizes=(10, 40, 120), repeats=4)
    assert fit_exponent(recipe._sizes, recipe.errors(seeded())["error"]) <= -0.8


def test_one_factorisation_serves_all_functions(monkeypatch):
    made = []
    whole = subject.ridge_solver

    def counted(*arguments):
        made.append(arguments)
        return whole(*arguments)

    monkeypatch.setattr(subject, "ridge_solver", counted)
    code = Ensemble(40, 2, generator=seeded())
    for function in (None, square, product, quarter_turn):
        code.decoders(function)
    assert len(made) == 1
    code.decoders(noise=0.2)
    assert len(made) == 2


@pytest.mark.covers("P4")
@pytest.mark.parametrize(
    ("dimensions", "function"), [(1, square), (2, product), (2, quarter_turn), (2, square)]
)
def test_functions_are_decoded_within_5_percent(dimensions, function):
    code = Ensemble(1000, dimensions, generator=seeded())
    x = sample_ball(1000, dimensions, generator=seeded(1))
    assert relative_error(code.decode(x, code.decoders(function)), function(x)) < 0.05


def test_functions_by_hand():
    x = values(3, -2)[None]
    assert square(x).tolist() == [[9, 4]]
    assert product(x).tolist() == [[-6]]
    assert quarter_turn(x).tolist() == [[2, 3]]


@given(seed=st.integers(0, 99), a=st.floats(-3, 3))
@settings(max_examples=25, deadline=None)
def test_decoders_are_linear_in_the_function(seed, a):
    code = Ensemble(20, 2, generator=seeded(seed), eval_points=100)
    both = code.decoders(lambda x: a * square(x) + quarter_turn(x))
    apart = a * code.decoders(square) + code.decoders(quarter_turn)
    torch.testing.assert_close(both, apart, rtol=1e-7, atol=1e-10)


# ------------------------------------------------------------------------------------- connections


def test_a_connection_is_its_factors_and_its_weights():
    first = Ensemble(60, 2, generator=seeded())
    second = Ensemble(50, 1, radius=2.0, generator=seeded(1))
    link, x = first.connect(second, product), sample_ball(9, 2, generator=seeded(2))
    rates = first.encode(x)
    full = rates @ link.weights() + second.bias
    torch.testing.assert_close(link.currents(rates), full)
    assert link.weights().shape == (60, 50)
    decoded = first.decode(x, first.decoders(product))
    torch.testing.assert_close(second.tuning.rate(full), second.encode(decoded))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_gpu_equals_cpu():
    here, there = (Ensemble(60, 2, generator=seeded()) for _ in range(2))
    there = there.to("cuda")
    for noise in (0.1, 0):
        ours = there.eval_points @ torch.eye(2).to(there.eval_points)
        decoded = there.encode(ours) @ there.decoders(product, noise=noise)
        expected = here.decode(here.eval_points, here.decoders(product, noise=noise))
        torch.testing.assert_close(decoded.cpu(), expected, rtol=1e-6, atol=1e-6)


# ------------------------------------------------------------------------------ recipe and errors


def test_recipe_reaches_its_goal(tmp_path):
    recipe = RECIPES["ensemble"]
    result = run(recipe, tmp_path, device="cpu")
    assert all(goal.reached(result.metrics) for goal in recipe.goals())
    assert result.metrics["noisy_slope"] == pytest.approx(-0.5, abs=0.15)
    assert result.metrics["advantage"] > 1
    drawn = {path.stem for path in result.pictures}
    assert drawn == {"tuning-curves", "tuning-planes", "decoded"}


def test_slope_by_hand():
    assert fit_exponent(values(10, 100, 1000), values(1, 1e-2, 1e-4)).item() == pytest.approx(-2)
    assert relative_error(values(1, 2), values(3, 4)) == pytest.approx(math.sqrt(8 / 25))


X = torch.zeros(3, 2, dtype=torch.float64)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Ensemble(0, 1), r"neurons \(0\) must be at least 1"),
        (lambda: Ensemble(1, 0), r"dimensions \(0\) must be at least 1"),
        (lambda: Ensemble(1, 1, eval_points=0), r"eval_points \(0\) must be at least 1"),
        (lambda: Ensemble(1, 1, radius=-1.0), r"radius \(-1.0\) must be .*, in units of x"),
        (
            lambda: Ensemble(9, 1, max_rates=(600, 700)),
            r"max_rates \(6.* to .* Hz\) must be above 0 and below 500 Hz, which LIFRate",
        ),
        (
            lambda: Ensemble(9, 1, tuning=Sigmoid(), max_rates=(50, 60)),
            r"max_rates \(.* to .* Hz\) must be above the rate at the intercept, 200 Hz",
        ),
        (
            lambda: Ensemble(9, 1, intercepts=(1.0, 2.0)),
            r"intercepts \(1.* to .* radii\) must be at least -1 and below 1",
        ),
        (lambda: Ensemble(9, 1).encode(X), r"x \(2 columns\) must have 1, one for each dimension"),
        (lambda: Ensemble(9, 2).encode(X / 0), r"x \(NaN or infinite somewhere\) must be finite"),
        (lambda: Ensemble(9, 1).decoders(noise=-1), r"noise \(-1 of the highest rate\) must be"),
        (
            lambda: Ensemble(9, 1).decoders(lambda x: x.sum(dim=1)),
            r"function \(gave 750\) must give a row for each of the 750 points",
        ),
        (
            lambda: Ensemble(9, 1).decoders(lambda x: x / 0),
            r"function \(gave NaN or infinity\) must be finite",
        ),
        (
            lambda: Ensemble(9, 2).connect(Ensemble(9, 1)),
            r"function \(gives 2 numbers\) must give 1, the dimensions of the other ensemble",
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
        ({"neurons": 5}, r"neurons \(5\) must be at least 10"),
        ({"tuning": "step"}, r"unknown tuning 'step'; did you mean .*rectified-linear"),
        ({"noise": 0.0}, r"noise \(0.0\) must be a positive number"),
        ({"sizes": (10, 10)}, r"sizes \(\(10, 10\)\) must be two different numbers at least"),
        ({"repeats": 0}, r"repeats \(0\) must be at least 1"),
    ],
)
def test_recipe_refuses(change, message):
    with pytest.raises(UserError, match=message):
        PopulationCode(**change)
