from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from everynet.system.errors import UserError
from everynet.zoo.optimisation.symmetry_breaking import (
    CORNERS,
    RECIPES,
    XOR,
    SymmetryBreaking,
    TanhNetwork,
    Xor,
    learn,
    spread,
    unit_gradients,
)


def constant(value, units=8):
    model = TanhNetwork(units).double()
    for layer in (model.hidden, model.output):
        nn.init.constant_(layer.weight, value)
        nn.init.zeros_(layer.bias)
    return model


def test_one_unit_by_hand():
    model = constant(2.0, units=1)
    nn.init.constant_(model.output.bias, 0.25)
    x = torch.tensor([[0.5, 0.25]], dtype=torch.float64)
    expected = 2 * torch.tanh(torch.tensor(1.5)) + 0.25
    torch.testing.assert_close(model(x), expected.double()[None], rtol=1e-6, atol=0)
    assert model.unit_weights().tolist() == [[2, 2, 0, 2]]


def test_the_gradients_of_the_units_equal_autograd():
    generator = torch.Generator().manual_seed(0)
    model = TanhNetwork(5).double()
    x = torch.randn(7, 2, generator=generator, dtype=torch.float64)
    t = torch.randint(2, (7,), generator=generator).double()
    binary_cross_entropy_with_logits(model(x), t).backward()
    ours = unit_gradients(model, x, t)
    for part, theirs in (
        (slice(0, 2), model.hidden.weight.grad),
        (2, model.hidden.bias.grad),
        (3, model.output.weight.grad[0]),
    ):
        torch.testing.assert_close(ours[:, part], theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.covers("O10")
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("value", [-1.0, 0.1, 0.5, 3.0])
def test_units_that_begin_alike_stay_alike_and_leave_xor_unsolved(optimizer, value):
    model, path = learn(Xor(constant=value, steps=50, lr=0.1, optimizer=optimizer))
    assert len(path) == 51
    torch.testing.assert_close(path[0], constant(value).unit_weights())
    assert torch.equal(path[-1], model.unit_weights())
    assert (path[-1] != path[0]).any(dim=0).all()  # it did learn
    assert spread(path).max() <= 1e-12
    assert ((model(CORNERS) > 0) == (XOR > 0)).sum() <= 3


def test_units_that_begin_at_zero_never_move():
    model = constant(0.0)
    assert not unit_gradients(model, CORNERS, XOR).any()


@pytest.mark.covers("O10")
@given(seed=st.integers(0, 10**6), like=st.integers(1, 4))
@settings(max_examples=25, deadline=None)
def test_any_two_like_units_get_like_gradients_among_others(seed, like):
    generator = torch.Generator().manual_seed(seed)
    model = TanhNetwork(5).double()
    with torch.no_grad():
        for p in model.parameters():
            nn.init.normal_(p, generator=generator)
        for p in (model.hidden.weight, model.hidden.bias):
            p[like] = p[0]
        model.output.weight[:, like] = model.output.weight[:, 0]
    gradients = unit_gradients(model, CORNERS, XOR)
    torch.testing.assert_close(gradients[like], gradients[0], rtol=1e-12, atol=1e-15)
    others = [unit for unit in range(1, 5) if unit != like]
    assert (gradients[others] != gradients[0]).any(dim=1).all()


def test_spread_by_hand():
    theta = torch.tensor([[1.0, 0, 0, 2], [1.0, 3, 0, 0], [1.0, 1, 0, -2]], dtype=torch.float64)
    assert spread(theta).item() == 4
    assert spread(torch.stack([theta, theta[:1].expand(3, -1)])).tolist() == [4, 0]


@pytest.mark.covers("O10")
def test_the_recipe_reaches_its_goal():
    recipe = replace(RECIPES["symmetry-breaking"], nets=4)  # of 20
    metrics = recipe.metrics(recipe.simulate(torch.Generator().manual_seed(recipe.seed)))
    assert all(goal.reached(metrics) for goal in recipe.goals())
    assert metrics["spread_random"] > 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"units": 1}, r"units \(1\) must be at least 2"),
        ({"steps": 0}, r"steps \(0\) must be at least 1"),
        ({"lr": 0.0}, r"lr \(0.0\) must be a positive number"),
        ({"nets": 0}, r"nets \(0\) must be at least 1"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        SymmetryBreaking(**fields)
