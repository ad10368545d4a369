import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.optimisation.gradient_depth import (
    ACTIVATIONS,
    LARGEST,
    RECIPES,
    SMALLEST,
    GradientDepth,
    backward,
    forward,
    logistic_bound,
    product_variance,
    settled,
    squared_factor,
    weight_variance,
)

SIGMOID, TANH, RELU = ACTIVATIONS.values()


def network(widths, seed=0):
    generator = torch.Generator().manual_seed(seed)
    weights = [
        torch.randn(out, into, generator=generator, dtype=torch.float64)
        for into, out in pairwise(widths)
    ]
    return weights, torch.randn(3, widths[0], generator=generator, dtype=torch.float64)


# --------------------------------------------------------------------------------------- equations


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_backward_equals_autograd(name):
    activation, (weights, x) = ACTIVATIONS[name], network([4, 5, 3, 6])
    states = forward(weights, x.requires_grad_(), activation.phi)
    assert [tuple(z.shape) for z in states] == [(3, 5), (3, 3), (3, 6)]
    delta = torch.randn(3, 6, dtype=torch.float64)
    expected = torch.autograd.grad((states[-1] * delta).sum(), states)
    for ours, theirs in zip(
        backward(weights, states, delta, activation.slope), reversed(expected), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


def test_two_layers_by_hand():
    weights = [torch.tensor([[2.0]]).double(), torch.tensor([[3.0]]).double()]
    x = torch.tensor([[0.5]], dtype=torch.float64)
    z1, z2 = forward(weights, x, torch.tanh)
    assert z1.item() == 1
    assert z2.item() == pytest.approx(3 * math.tanh(1))
    _, d1 = backward(weights, [z1, z2], torch.ones_like(x), TANH.slope)
    assert d1.item() == pytest.approx(3 / math.cosh(1) ** 2)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_slopes_are_derivatives(name):
    activation = ACTIVATIONS[name]
    z = torch.linspace(-6, 6, 100, dtype=torch.float64, requires_grad=True)  # not at 0
    (expected,) = torch.autograd.grad(activation.phi(z).sum(), z)
    torch.testing.assert_close(activation.slope(z), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.covers("O13")
def test_relu_has_half_the_scale_as_its_factor():
    for gain in (0.3, 1.0, 2.0, 5.0):
        assert squared_factor(RELU, gain) == pytest.approx(gain / 2, rel=1e-12)


@pytest.mark.covers("O13")
def test_tanh_has_its_edge_at_a_scale_of_one():
    assert squared_factor(TANH, 0.5) == pytest.approx(0.5, rel=1e-4)  # m* = 0, slope 1 there
    assert squared_factor(TANH, 0.99) < 1 < squared_factor(TANH, 1.2)
    assert settled(torch.tanh, 0.5) == SMALLEST


@pytest.mark.parametrize("gain", [1.5, 3.0, 50.0])
def test_the_signal_settles_where_the_map_stays(gain):
    """Found again by drawing a million numbers."""
    u = torch.randn(10**6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for activation in (SIGMOID, TANH):
        moment = settled(activation.phi, gain)
        z = math.sqrt(gain * moment) * u
        assert activation.phi(z).square().mean().item() == pytest.approx(moment, rel=0.01)
        factor = gain * activation.slope(z).square().mean().item()
        assert squared_factor(activation, gain) == pytest.approx(factor, rel=0.01)


def test_a_signal_that_grows_for_ever_is_kept_within_range():
    assert settled(torch.relu, 4.0) == LARGEST
    assert settled(torch.relu, 2.0) == pytest.approx(1)


def test_saturated_logistic_units_have_a_closed_form():
    """For g -> infinity units are steps: m* = 1/2, and the integral of phi'^2 is 1/6."""
    gain = 1e4
    assert settled(torch.sigmoid, gain) == pytest.approx(0.5, rel=0.02)
    expected = math.sqrt(gain) / (6 * math.sqrt(math.pi))
    assert squared_factor(SIGMOID, gain) == pytest.approx(expected, rel=0.01)


@pytest.mark.covers("O13")
@given(
    widths=st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6)),
    seed=st.integers(0, 1000),
    scale=st.floats(0.1, 20),
)
@settings(max_examples=25, deadline=None)
def test_the_logistic_bound_holds_with_singular_values_of_any_shape(widths, seed, scale):
    weights, x = network(widths, seed)
    weights = [scale * weight for weight in weights]
    states = forward(weights, x, torch.sigmoid)
    delta = torch.randn_like(states[-1])
    last, below = backward(weights, states, delta, SIGMOID.slope)
    for before, after in zip(last, below, strict=True):
        assert after.norm() <= logistic_bound(weights[1], before.norm().item()) * (1 + 1e-12)


@pytest.mark.covers("O13")
def test_the_logistic_bound_is_reached_at_zero():
    """phi' is 1/4 there and no larger anywhere; the gradient lies along the widest direction."""
    assert SIGMOID.slope(torch.zeros(1)).item() == 0.25
    assert SIGMOID.slope(torch.linspace(-50, 50, 10001).double()).max() <= 0.25
    weights, _ = network([2, 3, 4])
    states = forward(weights, torch.zeros(1, 2, dtype=torch.float64), torch.sigmoid)
    widest = torch.linalg.svd(weights[1]).U[:, :1].T
    _, below = backward(weights, states, widest, SIGMOID.slope)
    assert below.norm().item() == pytest.approx(logistic_bound(weights[1], 1.0))
    larger = [weights[0], 100 * weights[1]]  # no factor of 4 is lost with weights of this size
    _, below = backward(larger, states, widest, SIGMOID.slope)
    assert below.norm() > 1


@pytest.mark.covers("O13")
def test_the_variance_of_a_product_of_weights():
    generator = torch.Generator().manual_seed(0)
    product = torch.ones(10**7)
    for _ in range(4):
        product *= 1.2 * torch.randn(10**7, generator=generator)
    assert product.double().var().item() == pytest.approx(product_variance(1.44, 4), rel=0.01)
    assert product_variance(weight_variance(5.0, 4), 4) == pytest.approx(5)
    assert weight_variance(16.0, 4) == 2


# ------------------------------------------------------------------------------------- the recipe


@pytest.mark.parametrize(("name", "gain"), [("sigmoid", 1), ("tanh", 2), ("ReLU", 2)])
@pytest.mark.covers("O13")
def test_a_few_narrow_networks_already_follow_the_slope(name, gain):
    activation, generator = ACTIVATIONS[name], torch.Generator().manual_seed(0)
    recipe = GradientDepth(depth=12, width=200, rows=32)
    norms = [recipe.norms(activation, gain, generator) for _ in range(4)]
    slope = torch.stack(norms).log().mean(dim=0)[-1].item() / 11
    assert slope == pytest.approx(math.log(squared_factor(activation, gain)) / 2, abs=0.04)


@pytest.mark.slow
@pytest.mark.covers("O13")
def test_the_recipe_reaches_its_goal(tmp_path):
    result = run(RECIPES["gradient-depth"], tmp_path)
    assert result.reached
    assert result.metrics["sigmoid_factor"] > 4
    assert result.metrics["sigmoid_explodes"] > 0.25


def test_metrics_of_a_made_up_result():
    layers = torch.arange(5.0).double()
    norms = torch.exp(-0.5 * layers).expand(3, 4, 5).clone()
    norms[0, 3] = torch.exp(0.3 * layers)
    chi = torch.full((3, 4), math.exp(-1.0), dtype=torch.float64)
    metrics = GradientDepth(depth=5).metrics({"norms": norms, "chi": chi})
    assert metrics["slope_error"] == pytest.approx(0.8)
    assert metrics["sigmoid_factor"] == pytest.approx(math.exp(0.5))
    assert metrics["sigmoid_explodes"] == pytest.approx(0.3)
    assert metrics["relu_edge"] == pytest.approx(0.5)


def test_dashed_lines_have_the_predicted_slope():
    recipe = RECIPES["gradient-depth"].tiny()
    result = recipe.simulate(torch.Generator().manual_seed(0))
    axes = recipe.picture_norms(result).axes[0]
    dashed = next(line for line in axes.lines if line.get_linestyle() == "--")
    rise = math.log(dashed.get_ydata()[-1] / dashed.get_ydata()[0]) / (recipe.depth - 1)
    assert rise == pytest.approx(math.log(squared_factor(SIGMOID, 0.25)) / 2)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"depth": 2}, r"depth \(2\) must be a number from 3 to 60"),
        ({"width": 1}, r"width \(1\) must be at least 2"),
        ({"nets": 0}, r"nets \(0\) must be at least 1"),
        ({"rows": 0}, r"rows \(0\) must be at least 1"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        GradientDepth(**fields)
