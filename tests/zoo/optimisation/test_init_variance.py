import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from torch import nn

from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.optimisation.init_variance import (
    GOOD,
    RECIPES,
    SCHEMES,
    InitVariance,
    closed_form,
    gaussian_mean,
    he_std,
    moments,
    variance_map,
    xavier_bound,
    xavier_std,
)

SHAPES = [(1000, 1000), (400, 2500), (2500, 400)]  # outputs, inputs


def drawn(initialise, shape, **arguments):
    generator = torch.Generator().manual_seed(0)
    return initialise(torch.empty(shape, dtype=torch.float64), generator=generator, **arguments)


# -------------------------------------------------------------------------------- scales of weights


@pytest.mark.covers("O11")
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_torch_draws_xavier_weights_of_our_variance(outputs, inputs):
    normal = drawn(nn.init.xavier_normal_, (outputs, inputs))
    assert normal.var().item() == pytest.approx(xavier_std(inputs, outputs) ** 2, rel=0.01)
    uniform = drawn(nn.init.xavier_uniform_, (outputs, inputs))
    bound = xavier_bound(inputs, outputs)
    assert uniform.abs().max().item() == pytest.approx(bound, rel=1e-3)
    assert uniform.var().item() == pytest.approx(bound**2 / 3, rel=0.01)
    assert uniform.var().item() == pytest.approx(2 / (inputs + outputs), rel=0.01)


@pytest.mark.covers("O12")
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_torch_draws_he_weights_of_our_variance(outputs, inputs):
    weights = drawn(nn.init.kaiming_normal_, (outputs, inputs), nonlinearity="relu")
    assert weights.var().item() == pytest.approx(he_std(inputs) ** 2, rel=0.01)
    assert he_std(8) == 0.5


@pytest.mark.covers("O11")
def test_xavier_on_square_layers_is_the_fan_in_form():
    assert 64 * xavier_std(64, 64) ** 2 == pytest.approx(1)
    assert xavier_std(3, 5) == 0.5
    assert xavier_bound(1, 5) == 1


@pytest.mark.parametrize("name", SCHEMES)
def test_each_network_is_drawn_with_the_variance_it_says(name):
    scheme = SCHEMES[name]
    assert drawn(scheme.draw, (1000, 1000)).var().item() == pytest.approx(
        scheme.variance(1000), rel=0.01
    )


# ------------------------------------------------------------------------------------ variance map


@pytest.mark.parametrize("variance", [0.01, 1.0, 4.0, 200.0])
def test_gaussian_means_by_hand_and_by_scipy(variance):
    assert gaussian_mean(lambda z: z**2, variance) == pytest.approx(variance, rel=1e-12)
    assert gaussian_mean(lambda z: z**4, variance) == pytest.approx(3 * variance**2, rel=1e-12)
    assert gaussian_mean(torch.cos, variance) == pytest.approx(math.exp(-variance / 2), abs=1e-12)
    deviation = math.sqrt(variance)
    density = 1 / math.sqrt(2 * math.pi)
    exact, _ = quad(
        lambda u: density * math.exp(-(u**2) / 2) * math.tanh(deviation * u) ** 2, 0, 12
    )
    assert variance_map(torch.tanh, variance, 1.0) == pytest.approx(2 * exact, rel=1e-8)


@pytest.mark.covers("O11", "O12")
@given(gain=st.floats(0.1, 5), moment=st.floats(0.01, 10))
@settings(max_examples=25, deadline=None)
def test_the_map_repeated_is_the_closed_form(gain, moment):
    for phi, kept in ((lambda z: z, 1.0), (torch.relu, 0.5)):
        values = [moment]
        for _ in range(8):
            values.append(variance_map(phi, gain, values[-1]))
        expected = [moment * (kept * gain) ** layer for layer in range(9)]
        assert values == pytest.approx(expected, rel=1e-9)
        assert closed_form(moment, kept, gain, 8).tolist() == pytest.approx(expected)


def test_a_network_whose_weights_are_known():
    """W = -I/2: a linear layer quarters the moment, a ReLU also loses what was positive."""
    x = torch.tensor([[3.0, -4.0, 0.0]], dtype=torch.float64)
    draw = lambda w: -torch.eye(len(w), dtype=w.dtype) / 2  # noqa: E731
    linear = moments(x, lambda z: z, draw, 2)
    assert linear.tolist() == pytest.approx([25 / 3, 25 / 12, 25 / 48])
    assert moments(x, torch.relu, draw, 2).tolist() == pytest.approx([25 / 3, 16 / 12, 0])


def test_rows_of_the_weights_are_outputs():
    x = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    draw = lambda w: torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=w.dtype)  # noqa: E731
    assert moments(x, lambda z: z, draw, 1).tolist() == [0.5, 0]


@pytest.mark.covers("O11")
def test_fifty_layers_of_width_256_keep_the_variance():
    """Each of a few networks alone, not only their mean."""
    generator = torch.Generator().manual_seed(0)
    for name in GOOD[:2]:
        scheme = SCHEMES[name]
        for _ in range(2):
            x = scheme.input_std * torch.randn(64, 256, generator=generator)
            kept = moments(x, scheme.phi, lambda w: scheme.draw(w, generator=generator), 50)  # noqa: B023
            assert 0.5 < (kept / kept[0]).min() < (kept / kept[0]).max() < 2


# ------------------------------------------------------------------------------------- the recipe


@pytest.mark.slow
@pytest.mark.covers("O11", "O12")
def test_the_recipe_reaches_its_goal(tmp_path):
    result = run(RECIPES["init-variance"], tmp_path)
    assert result.reached
    assert result.metrics["halving"] == pytest.approx(-1, abs=0.05)


def test_metrics_of_a_made_up_result():
    recipe = replace(RECIPES["init-variance"], depth=3)
    flat = torch.ones(len(SCHEMES), 1, 4, dtype=torch.float64)
    names = list(SCHEMES)
    doubling = 2.0 ** torch.arange(4, dtype=torch.float64)
    flat[names.index("ReLU, $1/n$")] = 1 / doubling
    flat[names.index("ReLU, $4/n$")] = doubling
    flat[names.index("linear, $2/n$")] = doubling
    flat[names.index("linear, $1/(2n)$")] = 1 / doubling
    flat[names.index("tanh, Xavier uniform"), 0, 2] = 0.25
    flat[names.index("ReLU, He: $2/n$"), 0, 3] = 3
    assert recipe.metrics({"moments": flat}) == pytest.approx(
        {"xavier_drift": 4, "he_drift": 3, "halving": -1, "slope_error": 0}
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"depth": 1}, r"depth \(1\) must be a number from 2 to 100"),
        ({"width": 1}, r"width \(1\) must be at least 2"),
        ({"nets": 0}, r"nets \(0\) must be at least 1"),
        ({"rows": 0}, r"rows \(0\) must be at least 1"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        InitVariance(**fields)
