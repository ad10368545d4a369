from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from torch.nn.functional import mse_loss

from everynet.system.errors import UserError
from everynet.system.seeds import seeded_by
from everynet.zoo.theory.conserved import (
    ACTIVATIONS,
    RECIPES,
    Balance,
    BiasFreeNetwork,
    Conserved,
    balance,
    balance_rate,
    drift_by_steps,
    learn,
    length,
    measured_drift,
)


def network(activation, seed, widths=(3, 4, 5, 2)):
    with seeded_by(seed):
        return BiasFreeNetwork(widths, activation).double()


def data(seed, rows=7, inputs=3, outputs=2):
    generator = torch.Generator().manual_seed(seed)
    both = torch.randn(rows, inputs + outputs, generator=generator, dtype=torch.float64)
    return both.split([inputs, outputs], dim=1)


def velocities(model, x, y):
    model.zero_grad()
    mse_loss(model(x), y).backward()
    return [-layer.weight.grad for layer in model.layers]


# --------------------------------------------------------------------------------------- equations


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_network_is_products_and_activations_in_turn(activation):
    model, (x, _) = network(activation, 0), data(0)
    f, (first, second, third) = ACTIVATIONS[activation], model.weights()
    torch.testing.assert_close(model(x).T, third @ f(second @ f(first @ x.T)))


def test_balance_by_hand():
    first = torch.tensor([[1.0, 2.0], [0.0, 3.0]])
    second = torch.tensor([[2.0, -1.0]])
    (g,) = balance([first, second])
    assert g.tolist() == [[4 - 5, -2 - 6], [-2 - 6, 1 - 9]]
    assert length([g, g]) == pytest.approx((2 * (1 + 64 + 64 + 64)) ** 0.5)


@given(seed=st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_the_rate_is_the_derivative_of_the_balance(seed):
    """By central differences along any velocities."""
    weights, moving = network("tanh", seed).weights(), network("tanh", seed + 1).weights()
    h = 1e-5
    there, here = (
        balance([w + sign * h * v for w, v in zip(weights, moving, strict=True)])
        for sign in (1, -1)
    )
    expected = [(a - b) / (2 * h) for a, b in zip(there, here, strict=True)]
    torch.testing.assert_close(balance_rate(weights, moving), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.covers("Y7")
@given(seed=st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_gradient_flow_conserves_what_the_symmetry_says(seed):
    x, y = data(seed)
    rates = {}
    for activation in ACTIVATIONS:
        model = network(activation, seed)
        rates[activation] = balance_rate(model.weights(), velocities(model, x, y))
    scale = length(rates["tanh"])
    assert length(rates["linear"]) < 1e-12
    assert length([g.diagonal() for g in rates["relu"]]) < 1e-12
    assert length([g.diagonal() for g in rates["tanh"]]) > 1e-6 * scale > 0


@given(seed=st.integers(0, 1000), scale=st.floats(0.1, 10))
@settings(max_examples=20, deadline=None)
def test_the_symmetries_leave_the_network_alone(seed, scale):
    """Linear: any invertible M between layers; ReLU: a positive diagonal one; tanh: neither."""
    x, _ = data(seed)
    generator = torch.Generator().manual_seed(seed)
    mixed = torch.eye(4) + 0.2 * torch.randn(4, 4, generator=generator, dtype=torch.float64)
    scaled = torch.tensor([scale, 1.0, 2.0, 0.5], dtype=torch.float64).diag()
    for activation, m, same in (
        ("linear", mixed, True), ("relu", scaled, True), ("relu", mixed, False),
        ("tanh", scaled, False),
    ):  # fmt: skip
        model = network(activation, seed)
        before = model(x)
        with torch.no_grad():
            model.layers[0].weight.copy_(m @ model.layers[0].weight)
            model.layers[1].weight.copy_(model.layers[1].weight @ torch.linalg.inv(m))
        assert torch.allclose(model(x), before, rtol=1e-9, atol=1e-12) is same


@pytest.mark.covers("Y7")
def test_a_solver_of_the_flow_conserves_the_balance_as_well_as_it_solves():
    x, y = data(3)
    model = network("linear", 3)
    shapes = [w.shape for w in model.weights()]

    def parts(flat):
        sizes = [shape.numel() for shape in shapes]
        pieces = torch.from_numpy(np.array(flat)).split(sizes)
        return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]

    def velocity(_, flat):
        with torch.no_grad():
            for layer, weight in zip(model.layers, parts(flat), strict=True):
                layer.weight.copy_(weight)
        return torch.cat([v.flatten() for v in velocities(model, x, y)]).numpy()

    start = torch.cat([w.flatten() for w in model.weights()]).numpy()
    found = solve_ivp(velocity, (0, 3), start, rtol=1e-9, atol=1e-11).y[:, -1]
    before, after = balance(parts(start)), balance(parts(found))
    assert np.abs(found - start).max() > 0.1
    assert max((b - a).abs().max() for a, b in zip(before, after, strict=True)) < 1e-7


@pytest.mark.covers("Y7")
@pytest.mark.parametrize("lr", [0.1, 0.003])
def test_what_descent_adds_is_the_sum_over_steps(lr):
    """Exactly, whatever the step, and however wrong it would be for tanh."""
    for activation, diagonal, exact in (
        ("linear", False, True), ("relu", True, True), ("relu", False, False),
        ("tanh", True, False),
    ):  # fmt: skip
        path = learn(Balance(activation=activation, steps=12, lr=lr, widths=(3, 5, 4, 2)))
        moved = [b - a for a, b in zip(balance(path[0]), balance(path[-1]), strict=True)]
        off = [m - d for m, d in zip(moved, drift_by_steps(path), strict=True)]
        left = max((g.diagonal() if diagonal else g).abs().max() for g in off)
        assert bool(left < 1e-12) is exact


def test_the_trainer_takes_the_steps_of_gradient_descent():
    recipe = Balance(activation="tanh", steps=3, lr=0.1)
    path = learn(recipe)
    x, y = recipe.dataset().splits["train"]
    model = recipe.model(recipe.dataset()).double()
    for now, then in pairwise(path):
        with torch.no_grad():
            for layer, weight in zip(model.layers, now, strict=True):
                layer.weight.copy_(weight)
        steps = [0.1 * v for v in velocities(model, x, y)]
        for a, b, step in zip(now, then, steps, strict=True):
            torch.testing.assert_close(b, a + step)


# ------------------------------------------------------------------------------------ the recipe


@pytest.mark.covers("Y7")
def test_drift_falls_linearly_with_the_step():
    """The goal, on fewer steps: halved steps halve the drift, but not what is not conserved."""
    recipe = Conserved(steps=(30, 60, 120))
    result = recipe.simulate(torch.Generator())
    metrics = recipe.metrics(result)
    assert all(goal.reached(metrics) for goal in RECIPES["conserved"].goals())
    linear, relu, tanh = result["drifts"]
    for drift, factor in (
        (linear[:, 0, 0], 0.5), (relu[:, 0, 1], 0.5), (relu[:, 0, 0], 1), (tanh[:, 0, 1], 1),
    ):  # fmt: skip
        assert (drift[1:] / drift[:-1]).tolist() == pytest.approx([factor] * 2, rel=0.06)


def test_slopes_and_drifts_by_hand():
    recipe = Conserved(steps=(10, 30), time=1.0)
    assert recipe.slope(torch.tensor([9.0, 1.0]).double()) == pytest.approx(2)
    one, two = torch.eye(2), torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    moved, off, rate = measured_drift([[one, one], [one, two]], lr=0.5)
    assert moved == pytest.approx([3**0.5, 1])  # G from 0 to [[0, 1], [1, 1]]
    assert off == pytest.approx([2**0.5, 0])  # D^T D is [[0, 0], [0, 1]]
    assert rate == pytest.approx([8**0.5, 0])  # S of the step, over its size


def test_steps_that_diverge():
    with pytest.raises(UserError, match=r"time \(400\) must be smaller, or steps \(40\) more, bec"):
        Conserved(time=400.0, steps=(40, 50)).simulate(torch.Generator())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"steps": (10,)}, r"steps \(\(10,\)\) must be two numbers or more, rising"),
        ({"steps": (0, 10)}, r"steps \(\(0, 10\)\) must be from 1 to 100000"),
        ({"widths": (3, 2)}, r"widths \(\(3, 2\)\) must be three numbers or more: G is between la"),
        ({"widths": (3, 0, 2)}, r"widths \(\(3, 0, 2\)\) must be from 1 to 500"),
        ({"time": 0.0}, r"time \(0.0\) must be a positive number"),
        ({"samples": 0}, r"samples \(0\) must be at least 1"),
    ],
)
def test_bad_settings(fields, message):
    with pytest.raises(UserError, match=message):
        Conserved(**fields)
