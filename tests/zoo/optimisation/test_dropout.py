import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from everynet.recipes.experiment import Table
from everynet.runs.verbs import load, run
from everynet.system.errors import UserError
from everynet.zoo.optimisation.dropout import (
    RECIPES,
    Dropout,
    DropoutExperiment,
    moments,
    network,
    outputs,
)
from tests.zoo.cells import cell


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(7)
        yield


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


# --------------------------------------------------------------------------------------- equations


def test_all_masks_of_two_units_by_hand():
    """x = (3, 2), w = (1, 2), b = 1: p = 1/4 makes the outputs 1, 5, 19/3 and 31/3."""
    mean, variance = moments(f64(3.0, 2.0), f64([1.0, 2.0]), f64(1.0), 0.25)
    chances, values = f64(1, 3, 3, 9) / 16, f64(3, 15, 19, 31) / 3
    expected = (chances * values).sum()
    assert mean.item() == pytest.approx(expected.item())
    assert mean.item() == 8
    assert variance.item() == pytest.approx((chances * (values - 8) ** 2).sum().item())
    layer = nn.Sequential(Dropout(0.25), nn.Linear(2, 1)).double()
    layer[1].weight.data, layer[1].bias.data = f64([1.0, 2.0]), f64(1.0)
    drawn = outputs(layer, f64(3.0, 2.0), 20_000)[:, 0]
    found, counts = drawn.mul(1e6).round().div(1e6).unique(return_counts=True)
    assert found.tolist() == pytest.approx(values.tolist(), abs=1e-6)
    error = (chances * (1 - chances) / 20_000).sqrt()  # of a share
    assert ((counts / 20_000 - chances).abs() < 5 * error).all()


@pytest.mark.covers("O17")
@given(p=st.sampled_from([0.0, 0.1, 0.5, 0.9]), seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_the_same_bits_as_torch_from_the_same_seed(p, seed):
    x = torch.randn(40, 30, dtype=torch.float64)
    torch.default_generator.manual_seed(seed)
    ours = Dropout(p)(x)
    torch.default_generator.manual_seed(seed)
    theirs = nn.Dropout(p)(x)
    torch.testing.assert_close(ours, theirs, rtol=1e-14, atol=0)
    kept = ours != 0
    torch.testing.assert_close(ours[kept], x[kept] / (1 - p), rtol=1e-14, atol=0)


@pytest.mark.covers("O17")
def test_a_million_masks_of_a_linear_layer_average_to_its_evaluation():
    layer = nn.Sequential(Dropout(0.5), nn.Linear(12, 3))
    x = torch.randn(12)
    drawn = outputs(layer, x, 1_000_000).double()
    layer.eval()
    with torch.no_grad():
        whole = layer(x)
    mean, variance = moments(x, layer[1].weight.detach(), layer[1].bias.detach(), 0.5)
    assert (drawn.mean(0) - whole).abs().max() < 1e-2
    torch.testing.assert_close(mean, whole)
    torch.testing.assert_close(drawn.var(0).float(), variance, rtol=0.01, atol=0)


@given(p=st.floats(0.05, 0.8), seed=st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_variance_of_one_unit_is_p_over_one_minus_p_times_its_square(p, seed):
    """Within five standard errors; the fourth moment of a two-valued variable is known."""
    torch.default_generator.manual_seed(seed)
    x, masks = f64(-2.0, 0.5, 3.0), 40_000
    drawn = Dropout(p)(x.expand(masks, -1))
    expected = p / (1 - p) * x**2
    assert ((drawn.mean(0) - x).abs() < 5 * (expected / masks).sqrt()).all()
    fourth = x**4 * (p + p**4 / (1 - p) ** 3)
    error = ((fourth - expected**2) / masks).sqrt()
    assert ((drawn.var(0) - expected).abs() < 5 * error + 1e-3 * expected).all()
    _, variance = moments(x, torch.eye(3, dtype=torch.float64), torch.zeros_like(x), p)
    torch.testing.assert_close(variance, expected)


@pytest.mark.covers("O17")
def test_evaluation_is_the_identity_and_draws_nothing():
    drop, x = Dropout(0.5).eval(), torch.randn(100)
    before = torch.default_generator.get_state()
    assert drop(x) is x
    assert torch.equal(before, torch.default_generator.get_state())
    model = network(6, 3, hidden_size=4, p=0.5).eval()
    x = torch.randn(5, 6)
    assert torch.equal(model(x), model(x))
    model.train()
    assert not torch.equal(model(x), model(x))


def test_each_sample_has_its_own_mask_and_gradients_pass_through_it():
    x = torch.ones(200, 50, requires_grad=True)
    y = Dropout(0.5)(x)
    assert len((y != 0).unique(dim=0)) == 200
    y.sum().backward()
    assert torch.equal(x.grad, y)  # the mask over 1 - p


# ------------------------------------------------------------------------------------- the recipe


@pytest.mark.covers("O17")
def test_both_kinds_start_alike_and_thinned_networks_are_better_together(tmp_path):
    recipe = replace(RECIPES["dropout"].tiny(), epochs=8, every=4, repeats=2, members=20)
    folder = run(recipe, tmp_path).folder
    cells = load(recipe, folder).cells
    assert list(cells) == ["without-0", "dropout-0", "without-1", "dropout-1"]
    for repeat in range(2):
        plain, masked = (cells[f"{kind}-{repeat}"] for kind in ("without", "dropout"))
        assert plain.steps.tolist() == [0, 20, 40]
        assert plain.valid["cross_entropy"][0] == masked.valid["cross_entropy"][0]
        assert plain.measured["train_loss"][-1] < masked.measured["train_loss"][-1]
        for trained in (plain, masked):  # its own images, without masks
            data = trained.recipe.dataset()
            (x, y), net = data.whole, trained.network()
            found = cross_entropy(net(x), y).item()
            assert found == pytest.approx(trained.measured["train_loss"][-1].item(), rel=1e-5)
    assert cells["without-0"].valid["cross_entropy"][0] != plain.valid["cross_entropy"][0]
    many = recipe.ensemble(masked.network(), data)
    assert many["mean_loss"][-1] < many["mean_loss"][0]


def test_metrics_by_hand():
    def ended(train, test, right):
        return cell(
            measured={"train_loss": [9, train]}, test={"cross_entropy": test, "accuracy": right}
        )

    cells = {"without-0": ended(0.1, 0.7, 0.8), "without-1": ended(0.3, 0.9, 0.6),
             "dropout-0": ended(0.2, 0.4, 0.9), "dropout-1": ended(0.2, 0.6, 0.7)}  # fmt: skip
    layer = {
        "layer_mean": f64(1.0, 2.0), "predicted_mean": f64(1.1, 2.0),
        "layer_variance": f64(2.0, 3.0), "predicted_variance": f64(2.0, 4.0),
    }  # fmt: skip
    recipe = DropoutExperiment(repeats=2)
    assert recipe.metrics(Table(cells, layer)) == pytest.approx(
        {"mean_error": 0.1, "variance_error": 0.25, "gap": 0.6, "gap_dropout": 0.3,
         "gap_ratio": 0.5, "test_loss": 0.8, "test_loss_dropout": 0.5, "accuracy": 0.7,
         "accuracy_dropout": 0.8}
    )  # fmt: skip
    lost = cells | {"dropout-1": cell(measured={"train_loss": [9, 9]}, diverged=7)}
    assert math.isnan(recipe.metrics(Table(lost, layer))["gap_ratio"])


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.covers("O17")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_gap_on_a_thousand_images_of_mnist_is_a_fifth_smaller(seed, tmp_path):
    result = run(replace(RECIPES["dropout"], seed=seed), tmp_path, device="cpu")
    assert result.reached
    assert result.metrics["gap_ratio"] <= 0.8
    assert result.metrics["accuracy_dropout"] > result.metrics["accuracy"]


@pytest.mark.parametrize("p", [-0.1, 1.0])
def test_a_probability_is_refused(p):
    with pytest.raises(ValueError, match=rf"p \({p}\) must be from 0 up and below 1, because"):
        Dropout(p)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"p": 0.0}, r"p \(0.0\) must be between 0 and 1"),
        ({"p": 1.0}, r"p \(1.0\) must be between 0 and 1"),
        ({"epochs": 0}, r"epochs \(0\) must be at least 1"),
        ({"every": 0}, r"every \(0\) must be at least 1"),
        ({"rows": 10}, r"rows \(10\) must be at least batch_size"),
        ({"masks": 1}, r"masks \(1\) must be at least 100"),
        ({"members": 1}, r"members \(1\) must be at least 2"),
        ({"lr": -1.0}, r"lr \(-1.0\) must be a positive number"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        DropoutExperiment(**fields)
