import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score
from sklearn.preprocessing import PolynomialFeatures
from torch import nn

from everynet.recipes.experiment import Table
from everynet.runs.verbs import load, run
from everynet.system.errors import UserError
from everynet.system.seeds import seeded_by
from everynet.training.loop import begin, train
from everynet.zoo.feedforward.universal_approximation import (
    RECIPES,
    TARGETS,
    Functions,
    Shallow,
    Widths,
    quadratic_floor,
    sample_targets,
    unexplained_variance,
)
from tests.zoo.cells import cell


def drawn(seed, *size):
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.rand(*size, generator=generator, dtype=torch.float64) - 1


def shallow(nets, width, g, seed=0):
    with seeded_by(seed):
        return Shallow(nets, width, g).double()


# --------------------------------------------------------------------------------------- equations


def test_one_unit_by_hand():
    model = shallow(1, 1, torch.square)
    weights = {"w": [[[2.0], [1.0]]], "b": [[[-1.0]]], "c": [[[3.0]]], "c_0": [[0.5]]}
    model.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
    assert model(torch.tensor([[[1.0, 2.0]]]).double()).item() == 0.5 + 3 * (2 + 2 - 1) ** 2


@given(nets=st.integers(1, 4), width=st.integers(1, 9), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_each_network_is_that_of_torch_with_its_weights(nets, width, seed):
    model, x = shallow(nets, width, torch.tanh, seed), drawn(seed, nets, 7, 2)
    for net in range(nets):
        one = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 1)).double()
        with torch.no_grad():
            one[0].weight.copy_(model.w[net].T)
            one[0].bias.copy_(model.b[net, 0])
            one[2].weight.copy_(model.c[net].T)
            one[2].bias.copy_(model.c_0[net])
        torch.testing.assert_close(model(x)[net], one(x[net])[:, 0], rtol=1e-10, atol=1e-12)


def test_what_is_missed_is_one_less_the_coefficient_of_determination():
    f, y = drawn(0, 3, 50), drawn(1, 3, 50)
    expected = [1 - r2_score(a.numpy(), b.numpy()) for a, b in zip(f, y, strict=True)]
    assert unexplained_variance(y, f).tolist() == pytest.approx(expected, rel=1e-12)
    assert unexplained_variance(f.mean(1, keepdim=True).expand(3, 50), f).tolist() == pytest.approx(
        [1, 1, 1]
    )
    assert unexplained_variance(f, f).tolist() == [0, 0, 0]


def test_the_floor_of_a_sine_in_closed_form():
    """The best quadratic is the line -3 x / (2 pi), which explains 3 / (2 pi^2) of sin(2 pi x)."""
    x = torch.zeros(1, 20_001, 2, dtype=torch.float64)
    x[..., 0] = torch.linspace(-1, 1, 20_001, dtype=torch.float64)
    f = (2 * math.pi * x[..., 0]).sin()
    assert quadratic_floor(x, f).item() == pytest.approx(1 - 3 / (2 * math.pi**2), abs=1e-3)


@given(seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_the_floor_is_that_of_a_regression_on_the_terms(seed):
    x, f = drawn(seed, 2, 30, 2), drawn(seed + 1, 2, 30)
    expected = []
    for inputs, values in zip(x.numpy(), f.numpy(), strict=True):
        terms = PolynomialFeatures(2).fit_transform(inputs)
        expected.append(1 - LinearRegression().fit(terms, values).score(terms, values))
    assert quadratic_floor(x, f).tolist() == pytest.approx(expected, rel=1e-8)


@pytest.mark.covers("F9")
@given(width=st.integers(1, 64), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_squares_make_a_quadratic_at_every_width_and_never_beat_the_best(width, seed):
    model, x = shallow(2, width, torch.square, seed), drawn(seed, 2, 60, 2)
    y = model(x).detach()
    assert quadratic_floor(x, y).max().item() < 1e-18
    assert quadratic_floor(x, shallow(2, width, torch.tanh, seed)(x).detach()).min().item() > 1e-4
    f = TARGETS[r"$\sin \pi x_1 \cos \pi x_2$"][1](x)
    near = f + 1e-3 * y / y.std()  # a target that the quadratic is part of
    for target in (f, near):
        assert (unexplained_variance(y, target) >= quadratic_floor(x, target)).all()


# ------------------------------------------------------------------------------------ the recipe


def test_functions_of_one_input_are_given_one():
    x, f = sample_targets(drawn(0, 30, 2).float(), nets=2)
    assert x.shape == (6, 30, 2)
    assert (x[:4, :, 1] == 0).all()
    assert (x[4:, :, 1] != 0).all()
    assert torch.equal(x[0], x[3])
    first = x[0, :, 0].double()
    torch.testing.assert_close(f[0].double(), (2 * math.pi * first).sin(), rtol=0, atol=1e-5)
    inner = (first.abs() < 0.5).double()
    expected = inner * (1 - 2 * first.abs()) + (1 - inner) * (2 * first.abs() - 1)
    torch.testing.assert_close(f[2].double(), expected, rtol=0, atol=1e-6)


def test_every_update_sees_all_points_and_the_last_third_goes_a_tenth_as_far():
    recipe = Functions(nets=1, points=12, steps=6, lr=0.05, optimizer="sgd", seed=4)
    data = recipe.dataset()
    state = begin(recipe, data)
    x, f = data.splits["train"]
    assert x.shape == (3, 12, 2)
    sizes = []
    before = state.model.c.detach().clone()
    expected = ((state.model(x) - f) ** 2).mean(1)
    slope = torch.autograd.grad(expected.sum(), state.model.c)[0]
    for record in train(recipe, state, data):
        if record.step == 1:
            torch.testing.assert_close(record.terms["error"], expected.sum().detach())
            torch.testing.assert_close(state.model.c.detach(), before - 0.05 * slope)
        sizes.append(state.optimizers["main"].param_groups[0]["lr"])
    assert sizes == pytest.approx([0.05] * 4 + [0.005] * 2)
    assert not any(a in x[0].tolist() for a in data.splits["valid"][0][0].tolist())


def test_metrics_by_hand():
    """Of the typical (geometric mean) error, the least fall of three; z^2 by its own floor."""
    recipe = Widths(widths=(4, 64), beyond=256, nets=2)
    curved = torch.tensor([[[0.2, 0.8], [0.01, 0.04], [9.0, 9.0]]] * 3).double()
    curved[2, 0] = 0.1
    square = torch.full((3, 3, 2), 0.5).double()
    square[1, 2, 1] = 0.25
    floor = torch.full((3,), 0.25).double()
    cells = {
        f"{g}-{width}": cell(measured={"missed": [[9.0] * 6, errors[:, i].flatten().tolist()]})
        for g, errors in (("tanh", curved), ("square", square))
        for i, width in enumerate((4, 64, 256))
    }
    assert list(cells) == list(recipe.cells())
    table = Table(cells, {"floor": floor})
    torch.testing.assert_close(recipe.errors(table, "tanh"), curved)
    made = recipe.metrics(table)
    assert made["fall"] == pytest.approx(5)
    assert made["below_floor"] == pytest.approx(12.5)
    assert made["square_by_floor"] == pytest.approx(1)
    assert made["best_square_by_floor"] == pytest.approx(2)
    cells["tanh-64"] = cell(measured={"missed": [[9.0] * 6]}, diverged=5)
    assert math.isnan(recipe.metrics(table)["fall"])


@pytest.mark.covers("F9")
def test_a_wider_network_learns_better_and_squares_do_not(tmp_path):
    recipe = Widths(widths=(2, 16), beyond=17, nets=2, points=96, steps=300)
    result = run(recipe, tmp_path)
    metrics = result.metrics
    table = load(recipe, result.folder)
    tanh, square = table.cells["tanh-16"], table.cells["square-16"]
    x, f = square.recipe.dataset().splits["valid"]
    found = unexplained_variance(square.network()(x), f).detach()
    torch.testing.assert_close(square.measured["missed"][-1], found)
    torch.testing.assert_close(table.result["floor"], quadratic_floor(x, f)[::2])
    assert tanh.measured["fits"].shape == (2, 3, 201)
    assert metrics["fall"] > 2
    assert metrics["below_floor"] > 5
    assert metrics["square_by_floor"] >= 0.9999


@pytest.mark.slow
@pytest.mark.covers("F9")
def test_the_default_recipe_reaches_its_goal(tmp_path):
    recipe = RECIPES["universal-approximation"]
    metrics = run(recipe, tmp_path, device="cpu").metrics
    assert all(goal.reached(metrics) for goal in recipe.goals())
    assert metrics["best_square_by_floor"] < 1.1  # z^2 does learn all that it can


@pytest.mark.parametrize("activation", ["relu", "sine"])
def test_other_activations_are_taken(activation):
    recipe = replace(RECIPES["universal-approximation"].tiny(), activation=activation)
    one = recipe.cells()[f"{activation}-2"]
    two = torch.tensor(2.0)
    expected = {"relu": two, "sine": two.sin()}[activation]
    assert one.model(one.dataset()).g(two) == expected


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"widths": (4,)}, r"widths \(\(4,\)\) must be two numbers or more, rising"),
        ({"widths": (8, 4)}, r"widths .* must be two numbers or more, rising"),
        ({"widths": (0, 4)}, r"widths .* must be positive"),
        ({"beyond": 64}, r"beyond \(64\) must be above 64"),
        ({"nets": 0}, r"nets \(0\) must be at least 1"),
        ({"points": 9}, r"points \(9\) must be at least 10, more than"),
        ({"steps": 2}, r"steps \(2\) must be at least 3"),
        ({"lr": 0.0}, r"lr \(0.0\) must be a positive number"),
        ({"activation": "tan"}, r"unknown activation 'tan'.*tanh"),
    ],
)
def test_bad_settings(fields, message):
    with pytest.raises(UserError, match=message):
        Widths(**fields)
