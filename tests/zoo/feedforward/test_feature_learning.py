import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression
from torch import nn
from torch.nn.functional import mse_loss, one_hot

from everynet.metrics import accuracy
from everynet.recipes.experiment import Table
from everynet.runs.verbs import load, run
from everynet.system.errors import UserError
from everynet.training.loop import begin, train
from everynet.zoo.feedforward.feature_learning import (
    RECIPES,
    Features,
    LearnedAgainstRandom,
    features,
    fit_readout,
    learned_readout,
    read_out,
    readout_accuracy,
    squared_error,
)
from everynet.zoo.feedforward.mlp import MLP
from tests.zoo.cells import cell

DIGITS = LearnedAgainstRandom(data="digits", widths=(4, 16), steps=300, batch_size=64, lr=1e-2)


def drawn(seed, *size):
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --------------------------------------------------------------------------------------- equations


def test_features_by_hand():
    model = MLP((2, 1, 1), "tanh").double()
    weights = {"layers.0.weight": [[2.0, -1.0]], "layers.0.bias": [0.5]}
    model.load_state_dict({k: torch.tensor(v) for k, v in weights.items()}, strict=False)
    phi = features(model, torch.tensor([[0.5, 1.0], [0.0, 2.0]], dtype=torch.float64))
    expected = torch.tensor([[2 * 0.5 - 1 + 0.5], [-2 + 0.5]], dtype=torch.float64).tanh()
    torch.testing.assert_close(phi, expected)
    assert not phi.requires_grad


def test_a_readout_by_hand():
    """w = (2, 3) and the constant 10; fitting values that it makes finds it again."""
    phi, w = drawn(0, 9, 2), torch.tensor([[2.0], [3.0], [10.0]], dtype=torch.float64)
    t = 2 * phi[:, :1] + 3 * phi[:, 1:] + 10
    torch.testing.assert_close(read_out(phi, w), t)
    torch.testing.assert_close(fit_readout(phi, t), w)


@given(rows=st.integers(12, 40), units=st.integers(1, 8), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_refitting_is_least_squares(rows, units, seed):
    phi, t = drawn(seed, rows, units), drawn(seed + 1, rows, 3)
    theirs = LinearRegression().fit(phi.numpy(), t.numpy())
    w = fit_readout(phi, t)
    torch.testing.assert_close(w[:-1].T, torch.from_numpy(theirs.coef_))
    torch.testing.assert_close(w[-1], torch.from_numpy(theirs.intercept_))
    left = t - read_out(phi, w)  # what is left has nothing to do with any feature
    torch.testing.assert_close(phi.T @ left, torch.zeros(units, 3).double(), rtol=0, atol=1e-9)


@pytest.mark.covers("F7")
@given(units=st.integers(1, 30), seed=st.integers(0, 99), away=st.floats(0, 3))
@settings(max_examples=25, deadline=None)
def test_no_other_readout_has_a_lower_error(units, seed, away):
    """Also with more features than samples, and with one that is there twice."""
    phi, t = drawn(seed, 20, units), drawn(seed + 1, 20, 3)
    phi = torch.cat([phi, phi[:, :1]], dim=1)
    best = fit_readout(phi, t)
    other = best + away * drawn(seed + 2, *best.shape)
    assert mse_loss(read_out(phi, best), t) <= mse_loss(read_out(phi, other), t) + 1e-15


def test_its_own_readout_is_the_network_itself():
    recipe = Features(hidden_size=16)
    data = recipe.dataset()
    model = begin(recipe, data).model
    (x, label), (seen, true) = data.whole, data.splits["valid"]
    w, t = learned_readout(model), one_hot(label, 10)
    error = squared_error(features(model, x), w, t.double())
    assert error == pytest.approx(mse_loss(model(x), t.float()).item(), rel=1e-5)
    found = readout_accuracy(
        model, w, replace(data, eval_batch_size=100).valid
    )  # batches of 100 and 44
    assert found == pytest.approx(accuracy(model(seen), true).double().mean().item(), abs=1e-9)


def test_descent_is_down_the_squared_error_and_the_last_third_goes_a_tenth_as_far():
    recipe = Features(hidden_size=4, batch_size=8, steps=6, lr=0.1, optimizer="sgd", seed=2)
    data = recipe.dataset()
    state = begin(recipe, data)
    x, label = data.train(0)
    expected = ((state.model(x) - one_hot(label, 10)) ** 2).mean()
    assert isinstance(state.model.activation, nn.Tanh)
    sizes = []
    for record in train(recipe, state, data):
        if record.step == 1:
            torch.testing.assert_close(record.terms["error"], expected.detach())
        sizes.append(state.optimizers["main"].param_groups[0]["lr"])
    assert sizes == pytest.approx([0.1] * 4 + [0.01] * 2)


# ------------------------------------------------------------------------------------ the recipe


@pytest.mark.covers("F7")
def test_learned_features_beat_random_ones_on_digits(tmp_path):
    """And refitting lowers the training error at every width."""
    result = run(DIGITS, tmp_path)
    assert result.metrics["least_lead"] > 0.03
    assert result.metrics["refit_rise"] <= 0
    cells = load(DIGITS, result.folder).cells
    assert list(cells) == ["width-4", "width-16"]
    assert ["test" in cell.measured for cell in cells.values()] == [False, True]
    random, learned = cells["width-4"].measured["weights"]
    assert random.shape == (4, 1, 8, 8)
    assert not torch.equal(random, learned)
    net = cells["width-4"].network()
    assert torch.equal(net.layers[0].weight.reshape(4, 1, 8, 8), learned)


def test_metrics_by_hand():
    narrow = {"descent": [[9, 0.1], [0.2, 0.8]], "refitted": [[0.5, 0.4], [0.1, 0.8]]}
    wide = {"descent": [[9, 0.1], [0.1, 0.9]], "refitted": [[0.4, 0.7], [0.09, 0.95]]}
    cells = {
        "width-8": cell(measured=narrow),
        "width-32": cell(measured=wide | {"test": [0.6, 0.9]}),
    }
    made = LearnedAgainstRandom(widths=(8, 32)).metrics(Table(cells, {}))
    assert made["accuracy"] == pytest.approx(0.9)
    assert made["random_accuracy"] == pytest.approx(0.6)
    assert made["least_lead"] == pytest.approx(0.25)
    assert made["refit_rise"] == pytest.approx(-0.1)
    cells["width-8"] = cell(measured=narrow, diverged=4)
    assert math.isnan(LearnedAgainstRandom(widths=(8, 32)).metrics(Table(cells, {}))["least_lead"])


def test_a_table_is_drawn_as_one(tmp_path):
    recipe = replace(DIGITS, data="iris", widths=(3,), steps=6)
    folder = run(recipe, tmp_path).folder
    names = {path.stem for path in (folder / "pictures").iterdir()}
    assert names == {"widths", "learned-features", "random-features"}


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.covers("F7")
def test_the_default_recipe_reaches_its_goal(tmp_path):
    recipe = RECIPES["feature-learning"]
    metrics = run(recipe, tmp_path, device="cpu").metrics
    assert all(goal.reached(metrics) for goal in recipe.goals())


def test_numbers_to_learn_are_refused():
    with pytest.raises(UserError, match=r"data \(diabetes\) must have classes, because"):
        replace(DIGITS, data="diabetes").cells()["width-4"].dataset()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"widths": ()}, r"widths \(\(\)\) must be one number or more, rising"),
        ({"widths": (8, 8)}, r"widths .* must be one number or more, rising"),
        ({"widths": (0, 8)}, r"widths .* must be positive"),
        ({"steps": 2}, r"steps \(2\) must be at least 3"),
        ({"batch_size": 0}, r"batch_size \(0\) must be at least 1"),
        ({"lr": -1.0}, r"lr \(-1.0\) must be a positive number"),
    ],
)
def test_bad_settings(fields, message):
    with pytest.raises(UserError, match=message):
        LearnedAgainstRandom(**fields)
