import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy
from torch import nn

from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.training.loop import trained
from everynet.zoo.optimisation.sparse_code import (
    RECIPES,
    ImageCoding,
    SparseAutoencoder,
    SparseCode,
    TargetRate,
    code_penalty,
    divergence,
    error,
    half_of,
    near_zero,
    rate_penalty,
)


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


def by_hand():
    """W = identity, b = (0, -1), features twice (3, 4) / 5 and (0, 1), c = (1/2, 0)."""
    model = SparseAutoencoder(2, 2, nn.ReLU(), length=2.0).double()
    model.encoder.weight.data, model.encoder.bias.data = torch.eye(2).double(), f64(0, -1)
    model.decoder.weight.data, model.decoder.bias.data = f64([3, 0], [4, 7]), f64(0.5, 0)
    return model


def test_how_many_units_hold_half_of_the_activity():
    code = torch.tensor([[0.0, 4.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    assert half_of(code[:1]) == 1  # one holds all
    assert half_of(code[1:2]) == 2
    assert half_of(code) == (1 + 2 + 4) / 3  # of nothing, half takes all


# --------------------------------------------------------------------------------------- equations


def test_code_and_reconstruction_by_hand():
    model, x = by_hand(), f64([5, 3], [-1, 0.5])
    h = model(x)
    assert h.tolist() == [[5, 2], [0, 0]]
    torch.testing.assert_close(model.decode(h), f64([6.5, 12], [0.5, 0]))
    assert error(f64([6.5, 12], [0.5, 0]), x).item() == (2.25 + 81 + 2.25 + 0.25) / 2
    assert code_penalty(h).item() == 3.5


def test_divergence_by_hand():
    assert divergence(0.5, f64(0.25)).item() == pytest.approx(0.5 * math.log(4 / 3))
    h = f64([0.1, 0.9], [0.3, 0.7])  # means 0.2 and 0.8
    expected = divergence(0.5, f64(0.2)) + divergence(0.5, f64(0.8))
    assert rate_penalty(h, 0.5).item() == pytest.approx(expected.item())
    assert rate_penalty(h, 0.2).item() == pytest.approx(divergence(0.2, f64(0.8)).item())


@given(rho=st.floats(0.01, 0.99), rate=st.floats(0.01, 0.99))
@settings(max_examples=25, deadline=None)
def test_the_divergence_is_that_of_scipy_and_least_at_the_target(rho, rate):
    ours = divergence(rho, f64(rate)).item()
    assert ours == pytest.approx(entropy([rho, 1 - rho], [rate, 1 - rate]), rel=1e-9, abs=1e-12)
    assert ours >= -1e-12
    assert divergence(rho, f64(rho)).item() == pytest.approx(0, abs=1e-12)


@given(scale=st.floats(0.1, 10))
@settings(max_examples=25, deadline=None)
def test_long_features_do_not_evade_the_penalty(scale):
    model, x = by_hand(), f64([5, 3])
    before = model.decode(model(x))
    model.decoder.weight.data *= scale
    torch.testing.assert_close(model.decode(model(x)), before)
    assert model.features().norm(dim=0).tolist() == pytest.approx([2, 2])


def test_near_zero_is_a_share():
    assert near_zero(f64([0, 0.01], [1, -1])).item() == 0.5
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(300, 300, generator=generator)
    assert near_zero(normal).item() == pytest.approx(math.erf(0.1 / 2**0.5), abs=0.005)


def test_the_penalty_on_weights_shrinks_their_sum():
    recipe = ImageCoding(rows=64, batch_size=64, steps=60, hidden_size=8, noise=0.0, lr=3e-3)
    data = recipe.dataset()
    plain, pressed = (
        trained(replace(recipe, weight_alpha=alpha), data).encoder.weight for alpha in (0.0, 1.0)
    )
    assert pressed.abs().sum() < 0.5 * plain.abs().sum()


def test_terms_and_metrics_by_hand():
    """Without noise; codes (5, 2) and (0, 0), as above."""
    model, x = by_hand(), f64([5, 3], [-1, 0.5])
    recipe = ImageCoding(alpha=0.1, weight_alpha=0.01, noise=0.0)
    terms = {name: term.item() for name, term in recipe.objective(model, (x,)).items()}
    wrong = (2.25 + 81 + 2.25 + 0.25) / 2
    assert terms == pytest.approx({"error": wrong, "code": 0.35, "weights": 0.02})
    metrics = {name: f.tolist() for name, f in recipe.metrics(model, (x,)).items()}
    assert metrics == {"error": [83.25 / 2, 1.25], "active": [1, 0]}
    assert list(replace(recipe, alpha=0.0, weight_alpha=0.0).objective(model, (x,))) == ["error"]
    model.encoder.weight.data[0, 1] = -3
    assert recipe.objective(model, (x,))["weights"].item() == pytest.approx(0.01 * 5)
    model, rate = by_hand(), replace(recipe, rho=0.2)
    model.activation = nn.Sigmoid()
    h = f64([5, 2], [-1, -0.5]).sigmoid()
    torch.testing.assert_close(rate.metrics(model, (x,))["active"], h.mean(1))
    torch.testing.assert_close(rate.objective(model, (x,))["code"], 0.1 * rate_penalty(h, 0.2))
    assert isinstance(rate.model(rate.dataset()).activation, nn.Sigmoid)


def test_the_network_sees_noise_and_is_judged_by_the_image():
    model, x = by_hand(), f64([5, 3]).expand(4000, -1)
    noisy = ImageCoding(noise=0.5).noisy(x)
    assert (noisy - x).std().item() == pytest.approx(0.5, rel=0.1)
    assert ImageCoding(noise=0.0).noisy(x).equal(x)
    model.decoder.bias.data = f64(-1, -9)  # x is made from its code without error
    clean, seen = (
        ImageCoding(noise=noise).objective(model, (x,))["error"].item() for noise in (0.0, 0.5)
    )
    assert clean == pytest.approx(0, abs=1e-20)
    assert seen == pytest.approx(0.25 * (4 + 4), rel=0.1)  # features of length 2


# ------------------------------------------------------------------------------------- the recipes


@pytest.mark.slow
@pytest.mark.covers("O15")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_activity_falls_with_alpha_at_little_cost_and_weights_stay(seed, tmp_path):
    result = run(replace(RECIPES["sparse-code"], seed=seed), tmp_path, device="cpu")
    assert result.reached
    assert result.metrics["weights_change"] < 0.1
    assert result.metrics["sparse_weights_change"] > 0.3
    assert result.metrics["sparse_weights_active"] > 0.9 * result.metrics["active"]


@pytest.mark.slow
@pytest.mark.covers("O15")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_activity_falls_towards_the_target_rate(seed, tmp_path):
    result = run(replace(RECIPES["sparse-code-rate"], seed=seed), tmp_path, device="cpu")
    assert result.reached
    assert result.metrics["active_sparse"] > RECIPES["sparse-code-rate"].rho


@pytest.mark.covers("O15")
def test_a_strong_penalty_empties_the_code():
    recipe = replace(
        SparseCode(), alphas=(0.0, 1.0), rows=200, steps=100, hidden_size=16, repeats=1
    )
    result = recipe.metrics(recipe.simulate(torch.Generator()))
    assert result["active_ratio"] < 0.7
    assert result["largest_rise"] < 0


def test_a_strong_target_is_reached():
    recipe = replace(TargetRate(), alphas=(0.0, 100.0), rho=0.2, rows=200, steps=100, repeats=1)
    recipe = replace(recipe, hidden_size=16)
    assert recipe.metrics(recipe.simulate(torch.Generator()))["active_sparse"] == pytest.approx(
        0.2, abs=0.03
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"alphas": (0.0,)}, r"alphas \(\(0.0,\)\) must be two or more rising numbers"),
        ({"alphas": (0.1, 0.2)}, r"alphas \(\(0.1, 0.2\)\) must be two or more rising numbers"),
        ({"weight_alpha": -1.0}, r"weight_alpha \(-1.0\) must be a number from 0 up"),
        ({"length": 0.0}, r"length \(0.0\) must be a positive number"),
        ({"noise": -1.0}, r"noise \(-1.0\) must be a number from 0 up"),
        ({"steps": 0}, r"steps \(0\) must be at least 1"),
        ({"lr": 0.0}, r"lr \(0.0\) must be a positive number"),
        ({"rho": 1.0}, r"rho \(1.0\) must be between 0 and 1"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        TargetRate(**fields)


def test_data_without_pixels_is_refused():
    with pytest.raises(UserError, match=r"data \(iris\) must be images with a class each"):
        SparseCode(data="iris").simulate(torch.Generator())
