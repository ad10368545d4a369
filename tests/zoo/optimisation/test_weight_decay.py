from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Lasso, Ridge
from torch import nn

from everynet.data import load
from everynet.recipes.training import make_optimizer
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.optimisation.weight_decay import (
    FEATURES,
    RECIPES,
    WeightDecay,
    descend,
    factor,
    proximal,
    quadratic,
    shrunk,
    soft_threshold,
    thresholded,
)

SPECTRA = st.lists(st.floats(0.1, 10), min_size=2, max_size=5)


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


def turned(spectrum, seed=0):
    """A Hessian with these eigenvalues along random axes, its minimum, and the axes."""
    generator = torch.Generator().manual_seed(seed)
    square = torch.randn(len(spectrum), len(spectrum), generator=generator, dtype=torch.float64)
    axes, _ = torch.linalg.qr(square)
    best = torch.randn(len(spectrum), generator=generator, dtype=torch.float64)
    return axes @ f64(*spectrum).diag() @ axes.T, best, axes


# --------------------------------------------------------------------------------------- equations


def test_three_steps_by_hand():
    """H = 2, w* = 4, alpha = 2: k = 1/8 goes half of the way to 2 a step, k = 1/4 all of it."""
    gradient = quadratic(f64([2.0]), f64(4.0))
    places = [
        descend(gradient, f64(2.0, 2.0), f64(1 / 8, 1 / 4), f64(0.0), steps)[:, 0].tolist()
        for steps in range(4)
    ]
    assert places == [[0, 0], [1, 2], [1.5, 2], [1.75, 2]]
    assert shrunk(f64([2.0]), f64(4.0), f64(2.0)).tolist() == [[2.0]]
    assert factor(f64(1.0, 3.0), f64(1.0)).tolist() == [[0.5, 0.75]]


def test_soft_threshold_by_hand():
    assert soft_threshold(f64(-3, -1, 0, 0.5, 2), f64(1.0)).tolist() == [-2, 0, 0, 0, 1]


def test_proximal_steps_by_hand():
    """H = 1, w* = 4, alpha = 1, k = 1/2: w becomes S(w / 2 + 2, 1/2), which ends at 3."""
    gradient = quadratic(f64([1.0]), f64(4.0))
    ends = [proximal(gradient, f64(1.0), 0.5, f64(0.0), n).item() for n in range(4)]
    assert ends == [0, 1.5, 2.25, 2.625]
    assert thresholded(f64(1.0), f64(4.0), f64(1.0)).item() == 3


@pytest.mark.covers("O14")
@given(spectrum=SPECTRA, seed=st.integers(0, 1000), alpha=st.floats(0.1, 10))
@settings(max_examples=25, deadline=None)
def test_descent_with_decay_ends_at_the_closed_form(spectrum, seed, alpha):
    hessian, best, axes = turned(spectrum, seed)
    k = 1 / (max(spectrum) + alpha)
    end = descend(quadratic(hessian, best), f64(alpha), f64(k), torch.zeros_like(best), 1500)
    exact = shrunk(hessian, best, f64(alpha))
    torch.testing.assert_close(end, exact, rtol=1e-8, atol=1e-10)
    solved = torch.linalg.solve(
        hessian + alpha * torch.eye(len(best), dtype=torch.float64), hessian @ best
    )
    torch.testing.assert_close(exact[0], solved, rtol=1e-9, atol=1e-12)
    left = f64(*[value / (value + alpha) for value in spectrum])
    torch.testing.assert_close(exact[0] @ axes, left * (best @ axes), rtol=1e-9, atol=1e-12)


@pytest.mark.covers("O14")
@given(
    spectrum=st.lists(st.floats(0.5, 5), min_size=2, max_size=5),
    seed=st.integers(0, 1000),
    alpha=st.floats(0.01, 5),
)
@settings(max_examples=25, deadline=None)
def test_proximal_descent_ends_at_the_soft_threshold(spectrum, seed, alpha):
    _, best, _ = turned(spectrum, seed)
    diagonal = quadratic(f64(*spectrum).diag(), best)
    end = proximal(diagonal, f64(alpha), 1 / max(spectrum), torch.zeros_like(best), 400)[0]
    for w, w_best, curvature in zip(end.tolist(), best.tolist(), spectrum, strict=True):
        size = max(abs(w_best) - alpha / curvature, 0)
        assert w == pytest.approx(size if w_best > 0 else -size, abs=1e-9)
    exact = thresholded(f64(*spectrum), best, f64(alpha))[0]
    torch.testing.assert_close(end, exact, rtol=1e-8, atol=1e-9)


@given(seed=st.integers(0, 1000), alpha=st.floats(0.01, 2))
@settings(max_examples=25, deadline=None)
def test_the_lasso_meets_its_condition_of_optimality(seed, alpha):
    """-grad E is alpha sign(w) where w is not zero, and at most alpha where it is."""
    hessian, best, _ = turned([0.5, 1.0, 2.0, 3.0], seed)
    gradient = quadratic(hessian, best)
    w = proximal(gradient, f64(alpha), 1 / 3, torch.zeros_like(best), 800)
    slope, w = -gradient(w)[0], w[0]
    torch.testing.assert_close(slope[w != 0], alpha * w[w != 0].sign(), rtol=1e-8, atol=1e-9)
    assert (slope.abs() <= alpha + 1e-9).all()


# -------------------------------------------------------------------------------------- references


@pytest.mark.covers("O14")
def test_the_paths_are_those_of_scikit_learn():
    result = replace(WeightDecay(), points=6).paths()
    data = load("diabetes", kind=("table", "image"), batch_size=1)
    x, y = data.whole
    y = (y - data.spec["target_mean"]) / data.spec["target_std"]
    for alpha, w in zip(result["ridge_alpha"].tolist(), result["ridge"], strict=True):
        ridge = Ridge(alpha=len(x) * alpha, fit_intercept=False, solver="cholesky")
        torch.testing.assert_close(w, torch.tensor(ridge.fit(x, y).coef_), rtol=1e-8, atol=1e-10)
    for alpha, w in zip(result["lasso_alpha"].tolist(), result["lasso"], strict=True):
        lasso = Lasso(alpha=alpha, fit_intercept=False, tol=1e-14, max_iter=1_000_000)
        torch.testing.assert_close(w, torch.tensor(lasso.fit(x, y).coef_), rtol=1e-8, atol=1e-8)
    assert len(FEATURES) == x.shape[1]


@pytest.mark.covers("O14")
def test_torch_decays_weights_as_written_and_biases_not_at_all():
    layer = nn.Linear(3, 2).double()
    x = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    descent = make_optimizer(layer.parameters(), "sgd", 0.1, 0.5)
    weight, bias = layer.weight.detach().clone(), layer.bias.detach().clone()
    layer(x).square().mean().backward()
    descent.step()
    written = (1 - 0.1 * 0.5) * weight - 0.1 * layer.weight.grad
    torch.testing.assert_close(layer.weight.detach(), written, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(layer.bias.detach(), bias - 0.1 * layer.bias.grad)


# ------------------------------------------------------------------------------------- the recipe


@pytest.mark.covers("O14")
def test_the_recipe_measures_the_closed_form():
    result = WeightDecay(steps=20_000).quadratic(torch.Generator().manual_seed(3))
    assert result["l2_error"].max() < 1e-8
    assert result["l1_error"].max() < 1e-8
    zero = result["l1_left"] == 0
    assert torch.equal(zero, result["spectrum"] <= f64(0.1, 1.0, 10.0)[:, None] + 1e-12)
    assert (result["l2_left"] > 0).all()


@pytest.mark.covers("O14")
def test_decay_raises_the_training_loss_and_test_images_are_seen_at_both_ends_alone():
    recipe = WeightDecay(data="digits", rows=100, epochs=6, decays=(0.0, 0.01, 0.1), repeats=2)
    result = recipe.networks()
    assert {name: tuple(value.shape) for name, value in result.items()} == {
        f"{split}_{what}": (2, 2 if split == "test" else 3)
        for split in ("train", "valid", "test")
        for what in ("loss", "accuracy")
    }
    assert (result["train_loss"].diff(dim=1) > 0).all()
    assert (result["train_loss"][0] != result["train_loss"][1]).all()  # other images and weights


def test_metrics_by_hand():
    result = {
        "l2_error": f64(1e-9, 1e-12),
        "l1_error": f64(1e-13),
        "ridge": f64([3.0, 4.0]),
        "ridge_exact": f64([3.0, 5.0]),
        "train_loss": f64([0.1, 0.2, 0.3], [0.3, 0.2, 0.5]),
        "test_loss": f64([0.8, 0.7], [1.0, 0.9]),
        "test_accuracy": f64([0.8, 0.9], [0.9, 0.7]),
    }
    assert WeightDecay().metrics(result) == pytest.approx(
        {"l2_error": 1e-9, "l1_error": 1e-13, "ridge_error": 34**-0.5, "gap": 0.7,
         "gap_decayed": 0.4, "gap_ratio": 4 / 7, "test_loss": 0.9, "test_loss_decayed": 0.8,
         "accuracy": 0.85, "accuracy_decayed": 0.8}
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.covers("O14")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_decay_lowers_the_gap_on_a_thousand_images_of_mnist(seed, tmp_path):
    result = run(replace(RECIPES["weight-decay"], seed=seed), tmp_path, device="cpu")
    assert result.reached
    assert result.metrics["test_loss_decayed"] < result.metrics["test_loss"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"alphas": ()}, r"alphas \(\(\)\) must be one or more positive numbers"),
        ({"alphas": (0.0,)}, r"alphas \(\(0.0,\)\) must be one or more positive numbers"),
        ({"decays": (0.1, 0.2)}, r"decays \(\(0.1, 0.2\)\) must be two or more rising numbers"),
        ({"decays": (0.0,)}, r"decays \(\(0.0,\)\) must be two or more rising numbers"),
        ({"decays": (0.0, 0.2, 0.1)}, r"decays \(.*\) must be two or more rising numbers"),
        ({"dimensions": 1}, r"dimensions \(1\) must be at least 2"),
        ({"points": 1}, r"points \(1\) must be at least 2"),
        ({"repeats": 0}, r"repeats \(0\) must be at least 1"),
        ({"rows": 10}, r"rows \(10\) must be at least batch_size"),
        ({"lr": 0.0}, r"lr \(0.0\) must be a positive number"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        WeightDecay(**fields)
