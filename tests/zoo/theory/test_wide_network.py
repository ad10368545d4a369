import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.optimisation.init_variance import gaussian_mean
from everynet.zoo.theory.wide_network import (
    CLOSE,
    RECIPES,
    SETTLED,
    UNITS,
    WideNetwork,
    boundary,
    chunks,
    critical_weight,
    crossing,
    distances,
    draw,
    excess_kurtosis,
    factor,
    first_kernel,
    kernels,
    layer,
    log_slope,
    next_kernel,
    settled,
)

ERF, RELU = UNITS["erf"], UNITS["ReLU"]


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


def by_quadrature(phi, q, r, k):
    """E[phi(u) phi(v)] with v = k/q u + sqrt(r - k^2/q) w, by the trapezoid rule in both."""
    u = torch.linspace(-9, 9, 701, dtype=torch.float64)
    density = (-u.square() / 2).exp() / math.sqrt(2 * math.pi) * (u[1] - u[0])
    first = math.sqrt(q) * u
    second = k / q * first[:, None] + math.sqrt(max(r - k * k / q, 0)) * u
    return float(density @ (phi(first)[:, None] * phi(second)) @ density)


# --------------------------------------------------------------------------------------- the kernel


def test_a_layer_by_hand():
    """Two inputs, s_w^2 = 8 and s_b^2 = 9: scales sqrt(8 / 2) = 2 and 3."""
    h, w, b = f64([1.0, -1.0]), f64([3.0, 1.0], [0.0, 5.0]), f64(1.0, -2.0)
    assert layer(h, w, b, 8.0, 9.0).tolist() == [[2 * 2 + 3, 2 * -5 - 6]]
    many = layer(h.expand(2, 1, 2), w.expand(2, 2, 2), b.expand(2, 2), 8.0, 9.0)
    assert many.shape == (2, 1, 2)


def test_the_first_kernel_by_hand():
    kernel = first_kernel(f64([1.0, 2.0], [3.0, -1.0]), 4.0, 0.5)
    assert kernel.tolist() == [[10.5, 2.5], [2.5, 20.5]]


@pytest.mark.covers("Y6")
@pytest.mark.parametrize("name", UNITS)
@given(q=st.floats(0.1, 4), r=st.floats(0.1, 4), c=st.floats(-1, 1))
@settings(max_examples=8, deadline=None)
def test_products_are_the_integrals_of_two_normal_variables(name, q, r, c):
    k = c * math.sqrt(q * r)
    exact = by_quadrature(UNITS[name].phi, q, r, k)
    product = UNITS[name].product(*f64(q, r, k)).item()
    assert product == pytest.approx(exact, abs=3e-4 * math.sqrt(q * r))


@pytest.mark.covers("Y6")
@pytest.mark.parametrize("name", UNITS)
def test_the_recursion_is_the_mean_over_wide_networks_within_two_per_cent(name):
    """Inputs of three sizes; 3,000 networks of 100 units have a standard error of 0.75 %."""
    generator, x = torch.Generator().manual_seed(0), f64([1.0, 0.5], [-0.3, 1.2], [-2.0, -1.0])
    units, weight, bias, total = UNITS[name], 1.5, 0.3, torch.zeros(3, 3, 3).double()
    for nets in chunks(3000, 100 * 100):
        h = x.float().expand(nets, -1, -1)
        for number in range(3):
            z = layer(h, *draw((nets, 100), h.shape[2], generator, torch.float32), weight, bias)
            total[number] += (z @ z.mT / 100).sum(dim=0) / 3000
            h = units.phi(z)
    exact = kernels(units, x, 3, weight, bias)
    size = exact.diagonal(dim1=1, dim2=2).sqrt()
    error = (total - exact) / (size[:, :, None] * size[:, None])
    assert error.abs().max() < 0.02
    torch.testing.assert_close(exact[0], first_kernel(x, weight, bias))


@pytest.mark.covers("Y6")
@given(weight=st.floats(0.5, 4), q=st.floats(0.1, 9))
@settings(max_examples=8, deadline=None)
def test_relu_multiplies_the_variance_by_half_the_weight(weight, q):
    """So that He's s_w^2 = 2 alone keeps it."""
    kernel = next_kernel(RELU, f64([q, 0.0], [0.0, q]), weight, 0.0)
    assert kernel[0, 0].item() == pytest.approx(weight / 2 * q, rel=1e-7)
    assert kernel[0, 1].item() == pytest.approx(weight * q / (2 * math.pi), rel=1e-7)


# --------------------------------------------------------------------------------- order and chaos


@given(weight=st.floats(0.3, 4), bias=st.floats(0.05, 1))
@settings(max_examples=8, deadline=None)
def test_the_variance_settles_and_the_factor_is_a_mean_of_squared_slopes(weight, bias):
    q = settled(f64(weight), f64(bias))
    up = weight * gaussian_mean(lambda z: z.erf().square(), q.item()) + bias
    assert q.item() == pytest.approx(up, rel=1e-6)
    slope = lambda z: 4 / math.pi * (-2 * z.square()).exp()  # noqa: E731 -- erf'(z)^2
    chi = weight * gaussian_mean(slope, q.item())
    assert factor(f64(weight), q).item() == pytest.approx(chi, rel=1e-6)


@pytest.mark.covers("Y6")
@given(bias=st.floats(0.01, 1))
@settings(max_examples=8, deadline=None)
def test_on_the_boundary_the_factor_is_one(bias):
    weight = critical_weight(bias)
    chi = factor(f64(weight), settled(f64(weight), f64(bias)))
    assert chi.item() == pytest.approx(1, abs=1e-3)
    q = f64(0.0, 0.7)
    edge, height = boundary(q)
    assert edge[0].item() == pytest.approx(math.pi / 4)  # slope of erf at 0 is 2 / sqrt(pi)
    assert height[0] == 0
    torch.testing.assert_close(settled(edge[1:], height[1:]), q[1:])


@pytest.mark.covers("Y6")
@pytest.mark.parametrize(
    ("weight", "alike"), [(0.8, True), (1.3, True), (1.8, False), (3.0, False)]
)
def test_order_brings_inputs_together_and_chaos_parts_them(weight, alike):
    """By the recursion; s_b^2 = 0.1 puts the boundary at 1.55."""
    x = f64([math.sqrt(2), 0.0], [0.0, math.sqrt(2)])
    kernel = kernels(ERF, x, 400, weight, 0.1)[-1]
    correlation = (kernel[0, 1] / kernel[0, 0]).item()
    assert (correlation > 1 - 1e-4) == alike
    assert (weight < critical_weight(0.1)) == alike


@pytest.mark.parametrize("weight", [0.8, 2.5])
def test_small_distances_follow_the_factor(weight):
    """The recursion, which knows neither (7) nor (9), from one input and one close to it."""
    x = f64([1.0, 1.0], [1.0 + CLOSE, 1.0 - CLOSE]) * math.sqrt(settled(f64(weight), f64(0.1)))
    kernel = kernels(ERF, x, 14, weight, 0.1)
    apart = kernel[:, 0, 0] + kernel[:, 1, 1] - 2 * kernel[:, 0, 1]
    chi = factor(f64(weight), settled(f64(weight), f64(0.1))).item()
    expected = distances(chi, apart[SETTLED], torch.arange(14.0).double()[: 14 - SETTLED])
    torch.testing.assert_close(apart[SETTLED:], expected, rtol=0.02, atol=0)


def test_the_boundary_is_read_off_between_two_weights():
    """The logarithm of the factor is taken as straight in that of the weight."""
    weights = f64(0.5, 1.0, 2.0)
    chi = torch.stack([0.25 * weights**2 / 0.5, weights**3, weights / 4, weights * 4])
    found = crossing(chi, weights).tolist()
    assert found[0] == pytest.approx(math.sqrt(2))
    assert found[1] == pytest.approx(1.0)
    assert found[2:] == pytest.approx([2.0, 0.5])  # never above 1, and always: the nearest end
    assert log_slope(f64(1.0, 8.0, 64.0), f64(0.0, 1.0, 2.0)).item() == pytest.approx(math.log(8))


# ------------------------------------------------------------------------------ what width leaves


@pytest.mark.covers("Y6")
@pytest.mark.parametrize("depth", [1, 2])
def test_the_excess_kurtosis_of_narrow_networks_is_exact(depth):
    """The mean of 30,000 networks of 8 units; a standard error is 3 % (1 layer), 6 % (2)."""
    generator, h = torch.Generator().manual_seed(1), torch.ones(30_000, 1, 8, dtype=torch.float64)
    for number in range(depth + 1):
        z = layer(h, *draw((30_000, 8), 8, generator, torch.float64), 3.0, 0.0)
        assert number or abs((z**4).mean() / (z**2).mean() ** 2 - 3) < 0.05  # linear in W: normal
        h = z.relu()
    excess = (z**4).mean() / (z**2).mean() ** 2 - 3
    exact = excess_kurtosis(f64(8.0), depth).item()
    assert exact == pytest.approx({1: 1.875, 2: 4.921875}[depth])
    assert excess.item() == pytest.approx(exact, rel=0.15)


@pytest.mark.covers("Y6")
def test_behind_one_layer_it_is_fifteen_over_the_width_and_behind_many_fifteen_layers_over_it():
    n = torch.logspace(1, 3, 5, dtype=torch.float64)
    torch.testing.assert_close(excess_kurtosis(n, 1), 15 / n)
    wide = f64(1e6)
    assert excess_kurtosis(wide, 7).item() == pytest.approx(15 * 7 / 1e6, rel=1e-4)


# -------------------------------------------------------------------------------------- the recipe


def test_chunks_are_all_networks():
    assert chunks(10, 2**24) == [1] * 10
    assert chunks(5000, 2**10) == [4096, 904]


@pytest.mark.covers("Y6")
def test_a_small_run_finds_the_kernel_the_boundary_and_the_slope(tmp_path):
    recipe = replace(RECIPES["wide-network"], nets=300, width=96, depth=3, narrow=(8, 16, 32))
    found = run(replace(recipe, biases=(0.1, 0.3)), tmp_path).metrics
    assert found["kernel_error"] < 0.06  # a standard error of ReLU's is 2 %
    assert found["factor_error"] < 0.1
    assert found["boundary_error"] < 0.15
    assert found["kurtosis_slope"] == pytest.approx(-1, abs=0.2)


@pytest.mark.slow
@pytest.mark.covers("Y6")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_recipe_reaches_its_goal(seed, tmp_path):
    assert run(replace(RECIPES["wide-network"], seed=seed), tmp_path).reached


def test_metrics_by_hand():
    recipe = WideNetwork(weights=(1.0, 2.0), biases=(0.1,), narrow=(8, 16))
    edge = critical_weight(0.1)
    result = {
        "predicted": torch.ones(2, 4, 13).double() * 2,
        "measured": torch.ones(2, 4, 13).double() * 2,
        "factor": f64([1 / edge, 2 / edge]),  # 1 where the weight is on the boundary
        "predicted_factor": f64([1 / edge, 2.2 / edge]),
        "kurtosis": f64([2.0, 9.0, 9.0], [1.0, 9.0, 9.0]),
    }
    result["measured"][1, 2, 5] = 1.9
    assert recipe.metrics(result) == pytest.approx(
        {"kernel_error": 0.05, "boundary_error": 0, "factor_error": math.log(1.1),
         "kurtosis_slope": -1, "slope_error": 0}, abs=1e-6,
    )  # fmt: skip
    result["kurtosis"] = f64([4.0, 9.0, 9.0], [1.0, 9.0, 9.0])
    assert recipe.metrics(result)["slope_error"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"nets": 0}, r"nets \(0\) must be at least 1"),
        ({"width": 2}, r"width \(2\) must be at least 3"),
        ({"depth": 1}, r"depth \(1\) must be at least 2"),
        ({"biases": (0.0, 0.1)}, r"biases \(.*\) must be one or more positive numbers"),
        ({"biases": ()}, r"biases \(\(\)\) must be one or more positive numbers"),
        ({"weights": (2.0, 1.0)}, r"weights \(.*\) must be two or more rising positive numbers"),
        ({"weights": (3.0, 4.0)}, r"weights \(.*\) must be on both sides .* biases, 1.21 to 2.35"),
        ({"narrow": (8,)}, r"narrow \(.*\) must be two or more rising positive numbers"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        WideNetwork(**fields)
