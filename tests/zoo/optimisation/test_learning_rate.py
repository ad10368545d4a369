import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from everynet.data.dataset import Data
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.system.seeds import seeded_by
from everynet.training.loop import evaluate, trained
from everynet.zoo.feedforward.mlp import MLP
from everynet.zoo.optimisation.few_images import OneHiddenLayer
from everynet.zoo.optimisation.learning_rate import (
    RECIPES,
    LearningRate,
    batch_variance,
    epoch_gradient,
    flat_gradient,
    largest_curvature,
    parabola,
)

RECIPE = RECIPES["learning-rate"]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def small(rows=24, seed=0):
    """A network of 3 inputs, 4 hidden units and 3 classes, and data for it."""
    with seeded_by(seed):
        model = MLP((3, 4, 3), "tanh").double()
    x = torch.randn(rows, 3, generator=generator(seed), dtype=torch.float64)
    return model, x, torch.randint(3, (rows,), generator=generator(seed))


# --------------------------------------------------------------------------------------- curvature


@pytest.mark.covers("O24")
def test_power_iteration_finds_the_top_of_the_whole_hessian():
    model, x, y = small()
    shapes = {name: p.shape for name, p in model.named_parameters()}

    def loss(flat):
        parts = flat.split([shape.numel() for shape in shapes.values()])
        weights = {n: part.view(s) for (n, s), part in zip(shapes.items(), parts, strict=True)}
        return cross_entropy(functional_call(model, weights, x), y)

    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    spectrum = torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, flat))
    found = largest_curvature(
        lambda: cross_entropy(model(x), y), list(model.parameters()), generator(), 200
    )
    assert found == pytest.approx(spectrum[-1].item(), rel=1e-8)


@pytest.mark.parametrize(
    ("values", "top"),
    [([1.0, 3.0, 7.0], 7.0), ([1.0, 3.0, -7.0], 3.0), ([-1.0, -2.0, -5.0], -1.0)],
)
def test_the_largest_curvature_is_found_also_where_a_negative_one_is_larger_in_size(values, top):
    spectrum = torch.tensor(values, dtype=torch.float64)
    theta = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    found = largest_curvature(lambda: (spectrum * theta**2).sum() / 2, [theta], generator())
    assert found == pytest.approx(top, rel=1e-6)


@pytest.mark.covers("O24")
def test_least_squares_diverges_above_two_over_its_curvature():
    x = torch.randn(50, 6, generator=generator(1), dtype=torch.float64) + 0.5
    target = torch.randn(50, generator=generator(2), dtype=torch.float64)
    result = parabola(x, target, torch.tensor([0.1, 1.0]).double(), 300, generator())
    design = torch.cat([x, torch.ones(50, 1).double()], dim=1)
    top = torch.linalg.matrix_norm(design, 2) ** 2 / 50
    assert result["parabola_curvature"].item() == pytest.approx(top.item(), rel=1e-10)
    assert result["parabola_power"].item() == pytest.approx(top.item(), rel=1e-6)
    assert result["boundary"].item() == pytest.approx(2 / top.item(), rel=0.05)
    losses, rates = result["parabola_losses"], result["parabola_rates"]
    assert (rates * top).tolist() == pytest.approx([0.1, 1, 1.98, 2.02])
    assert losses[0].tolist() == pytest.approx([target.square().mean().item() / 2] * 4)
    assert (losses[-1] < losses[0]).tolist() == [True, True, True, False]
    least = torch.linalg.lstsq(design, target, driver="gelsd").solution
    rest = (design @ least - target).square().mean() / 2
    assert losses[-1, 1].item() == pytest.approx(rest.item(), rel=0.01)


# ----------------------------------------------------------------------------------------- batches


@pytest.mark.covers("O22")
@pytest.mark.parametrize("size", [1, 4, 12, 24])
def test_the_mean_of_an_epochs_gradients_is_the_gradient(size):
    model, x, y = small()
    full = flat_gradient(model, x, y)
    mean = epoch_gradient(model, x, y, size, generator())
    assert ((mean - full).norm() / full.norm()).item() < 1e-12


@pytest.mark.covers("O22")
def test_the_gradient_of_a_batch_is_the_mean_over_its_samples():
    model, x, y = small(5)
    each = torch.stack([flat_gradient(model, x[i : i + 1], y[i : i + 1]) for i in range(5)])
    torch.testing.assert_close(flat_gradient(model, x, y), each.mean(dim=0))
    cross_entropy(model(x), y).backward()
    torch.testing.assert_close(
        flat_gradient(model, x, y), torch.cat([p.grad.flatten() for p in model.parameters()])
    )


@pytest.mark.covers("O22")
def test_the_variance_of_a_batchs_loss_falls_as_one_over_its_size():
    losses = torch.rand(300, generator=generator(), dtype=torch.float64)
    sizes = (1, 4, 16, 64)
    seen = batch_variance(losses, sizes, 20_000, generator(1))
    expected = losses.var(correction=0) / torch.tensor(sizes)
    assert ((seen / expected - 1).abs() < 5 * math.sqrt(2 / 20_000)).all()


def test_the_noise_that_is_expected_is_that_of_one_sample_over_the_size():
    recipe = LearningRate(batch_sizes=(1, 2, 8))
    expected = recipe.noise({"variance": torch.tensor(4.0, dtype=torch.float64)})
    assert expected.tolist() == [4, 2, 0.5]


# -------------------------------------------------------------------------------------- the recipe


def test_every_rate_starts_from_the_same_weights_and_every_seed_from_others():
    result, again, other = (
        replace(RECIPE.tiny(), seed=seed).simulate(generator(seed)) for seed in (1, 1, 2)
    )
    assert (result["losses"][:, 0] == result["losses"][0, 0]).all()
    assert (result["losses"][:, 1].diff() != 0).all()
    assert result["losses"].shape == (6, 5)  # rates; four steps and the end
    assert torch.equal(result["losses"], again["losses"])
    assert result["losses"][0, 0] != other["losses"][0, 0]


def test_the_test_images_are_asked_once_by_the_network_with_the_lowest_training_loss(monkeypatch):
    asked = []
    whole = Data.test.fget
    monkeypatch.setattr(Data, "test", property(lambda self: asked.append(1) or whole(self)))
    recipe = replace(RECIPE.tiny(), steps=30)
    result = recipe.simulate(generator())
    assert asked == [1]
    best = result["losses"][:, -1].argmin()
    one = OneHiddenLayer(
        rows=64, hidden_size=8, activation="tanh", steps=30, batch_size=64, optimizer="sgd",
        lr=result["rates"][best].item(),
    )  # fmt: skip
    data = one.dataset()
    found = evaluate(one, trained(one, data), data.test)
    assert result["test_accuracy"].item() == pytest.approx(found["accuracy"])


def test_metrics_by_hand():
    """Four rates: one creeps, two descend, the last climbs; the limit is 2 / 4 = 0.5."""
    recipe = LearningRate(batch_sizes=(1, 2))
    one = torch.tensor(1.0, dtype=torch.float64)
    result = {
        "rates": torch.tensor([0.01, 0.25, 0.5, 1.0]).double(),
        "curvature": 4 * one,
        "losses": torch.tensor(
            [[2.0, 1.9, 1.8], [2, 1, 0.5], [2, 1.5, 0.4], [2, 9, math.inf]]
        ).double(),
        "test_accuracy": 0.9 * one,
        "boundary": 0.51 * one,
        "parabola_curvature": 4 * one,
        "parabola_power": 4.4 * one,
        "epoch_errors": torch.tensor([1e-15, 1e-13]).double(),
        "variance": one,
        "batch_variance": torch.tensor([1.1, 0.5]).double(),
    }
    assert recipe.metrics(result) == pytest.approx(
        {
            "boundary_error": 0.02,
            "curvature_error": 0.1,
            "best_rate": 0.5,
            "best_ratio": 1.0,
            "best_accuracy": 0.9,
            "climb_ratio": 2.0,
            "slow_share": 0.9,
            "fast_share": 1e5,
            "epoch_error": 1e-13,
            "variance_error": 0.1,
        }
    )


@pytest.mark.slow
@pytest.mark.covers("O24", "O22")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_recipe_reaches_its_goal(seed, tmp_path):
    result = run(replace(RECIPE, seed=seed), tmp_path)
    assert result.reached
    assert result.metrics["curvature_error"] < 1e-6
    assert 1 < result.metrics["climb_ratio"] < 4
    assert 0.5 < result.metrics["best_ratio"] < 3  # 2.6 of seed 0


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.covers("O24", "O22")
def test_the_regimes_on_mnist():
    recipe = replace(RECIPE, data="mnist", samples=640, steps=100, per_decade=2)
    metrics = recipe.metrics(recipe.simulate(generator()))
    assert metrics["boundary_error"] < 0.05
    assert metrics["best_accuracy"] > 0.8
    assert metrics["slow_share"] > 0.8
    assert metrics["fast_share"] > 1
    assert metrics["epoch_error"] < 1e-12


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"samples": -1}, r"samples \(-1\) must be at least 0"),
        ({"hidden_size": 0}, r"hidden_size \(0\) must be at least 1"),
        ({"steps": 0}, r"steps \(0\) must be at least 1"),
        ({"per_decade": 0}, r"per_decade \(0\) must be at least 1"),
        ({"batch_sizes": (4,)}, r"batch_sizes \(\(4,\)\) must be two or more whole numbers"),
        ({"draws": 1}, r"draws \(1\) must be at least 2"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        LearningRate(**fields)
