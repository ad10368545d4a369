"""How far a gradient reaches: closed forms against recursions, Jacobians against torch's."""

import math
from dataclasses import replace

import pytest
import torch
from torch.autograd.functional import jacobian

from everynet import runs
from everynet.recipes.catalog import find
from everynet.system.errors import UserError
from everynet.zoo.recurrent.memory_span import (
    linear_path,
    rate,
    scaled,
    spectral_norm,
    step_by_step,
    symmetric_path,
    tanh_path,
    unrolled,
)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def close(found, expected, tolerance=1e-12):
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.covers("R4")
@pytest.mark.parametrize("w", [-0.7, 0.0, 0.9, 1.0, 1.3])
def test_the_scalar_network_in_closed_form_is_its_recursion(w):
    one, h, x = torch.tensor(w, dtype=torch.float64), torch.tensor(2.0).double(), normal(12)
    found = unrolled(one, h, x)
    close(found, step_by_step(one, h, x))
    written = [2.0]
    for now in x.tolist():
        written.append(w * written[-1] + now)
    assert found.tolist() == pytest.approx(written, rel=1e-12)


def test_a_pulse_counts_w_to_the_distance():
    x = torch.zeros(6).double()
    x[1] = 1.0
    found = unrolled(torch.tensor(0.5).double(), torch.tensor(0.0).double(), x)
    assert found.tolist() == [0, 0, 1, 0.5, 0.25, 0.125, 0.0625]


@pytest.mark.covers("R4")
def test_products_of_jacobians_are_those_of_torch():
    """With tanh a_t after every number of tokens; without it the powers of W."""
    w, a, x = normal(2, 4, 4), normal(2, 4, seed=1), normal(5, 2, 4, seed=2)
    states, found = tanh_path(w, a, x)
    for number in range(2):

        def after(begin, time, number=number):
            for now in x[:time, number]:
                begin = w[number] @ torch.tanh(begin) + now
            return begin

        for time in range(6):
            close(states[time, number], after(a[number], time))
            close(found[time, number], jacobian(lambda b, t=time: after(b, t), a[number]))
    powers = linear_path(w, 3)
    close(powers[3], w @ w @ w)
    close(powers[0], torch.eye(4).double().expand(2, 4, 4))


def test_at_rest_tanh_changes_nothing():
    w = normal(2, 4, 4)
    _, found = tanh_path(w, torch.zeros(2, 4).double(), torch.zeros(5, 2, 4).double())
    close(found, linear_path(w, 5))


@pytest.mark.covers("R4")
def test_a_rate_is_the_factor_a_token_and_that_of_powers_is_the_spectral_radius():
    n = torch.arange(20).double()[:, None]
    assert rate(3 * 0.7**n).item() == pytest.approx(0.7)
    assert rate(
        torch.cat([torch.ones(10, 1).double(), 0.1 * 1.5 ** n[:10]])
    ).item() == pytest.approx(1.5)
    for radius in (0.8, 1.0, 1.2):
        w = scaled(normal(5, 30, 30), radius)
        close(torch.linalg.eigvals(w).abs().amax(1), torch.full((5,), radius, dtype=torch.float64))
        assert (rate(spectral_norm(linear_path(w, 100))) / radius - 1).abs().max() < 0.05


def test_the_size_of_a_matrix_is_its_largest_stretch():
    assert spectral_norm(torch.diag(torch.tensor([0.5, -3.0])).double()).item() == pytest.approx(3)


@pytest.mark.covers("R4")
def test_of_a_symmetric_network_the_first_eigenvector_survives():
    w = normal(5, 5)
    w = (w + w.T) / 2
    h = normal(5, seed=1)
    values, q = torch.linalg.eigh(w)
    top = q[:, values.abs().argmax()]
    states, share = symmetric_path(w, h, 60)
    found = h
    for time in range(61):
        torch.testing.assert_close(states[time], found, rtol=1e-10, atol=1e-10)
        expected = (top @ found) ** 2 / (found @ found)
        torch.testing.assert_close(share[time], expected, rtol=1e-9, atol=1e-9)
        found = w @ found
    assert share[0] < share[30] < share[60]


def test_a_short_recipe_reaches_its_goal():
    recipe = replace(find("memory-span"), hidden_size=30, networks=8)
    figures = recipe.metrics(recipe.simulate(torch.Generator().manual_seed(0)))
    assert all(goal.reached(figures) for goal in recipe.goals()), figures
    assert figures["tanh_vanishing_error"] < 0.05
    assert math.isfinite(figures["worst_rate_error"])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"radii": ()}, r"radii \(\(\)\) must be positive, at least one"),
        ({"radii": (0.8, 0.0)}, r"radii \(.*\) must be positive, at least one"),
        ({"hidden_size": 1}, r"hidden_size \(1\) must be at least 2"),
        ({"networks": 0}, r"networks \(0\) must be at least 1"),
        ({"distance": 3}, r"distance \(3\) must be at least 4: a rate is a slope"),
        ({"noise": -1.0}, r"noise \(-1.0\) must be a number from 0 up"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("memory-span"), **fields)


@pytest.mark.slow
@pytest.mark.covers("R4")
def test_the_whole_recipe(tmp_path):
    result = runs.run(find("memory-span"), tmp_path)
    assert result.reached, result.metrics
