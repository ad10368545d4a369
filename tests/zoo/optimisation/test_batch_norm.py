import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from everynet.recipes.experiment import Table
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.training.loop import begin
from everynet.zoo.optimisation.batch_norm import (
    RECIPES,
    BatchNormExperiment,
    BatchNormImages,
    backward,
    infer,
    last_inputs,
    network,
    normalize,
    track,
)
from tests.zoo.cells import cell

SHAPES = st.sampled_from([(4, 3), (9, 1), (5, 2, 3, 4), (2, 3, 1, 2)])


def random(shape, seed):
    generator = torch.Generator().manual_seed(seed)
    units = shape[1]
    a = 3 * torch.randn(shape, generator=generator, dtype=torch.float64) + 2
    gamma, beta = torch.randn(2, units, generator=generator, dtype=torch.float64)
    return a, gamma, beta, torch.randn(shape, generator=generator, dtype=torch.float64)


def theirs(a, gamma, beta, eps=1e-5, momentum=0.1):
    kind = nn.BatchNorm1d if a.dim() == 2 else nn.BatchNorm2d
    layer = kind(a.shape[1], eps=eps, momentum=momentum, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(gamma)
        layer.bias.copy_(beta)
    return layer


def same(ours, expected):
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)


# --------------------------------------------------------------------------------------- equations


def test_two_samples_by_hand():
    """1 and 3 have mean 2 and variance 1, and become -1 and 1."""
    one = torch.ones(1, dtype=torch.float64)
    done = normalize(torch.tensor([[1.0], [3.0]], dtype=torch.float64), 5 * one, 7 * one, eps=0.0)
    assert done.mean.item() == 2
    assert done.variance.item() == 1
    assert done.y.flatten().tolist() == [2, 12]
    mean, variance = track((0 * one, one), done, momentum=0.25)
    assert mean.item() == 0.5
    assert variance.item() == 0.75 + 0.25 * 2  # unbiased: 1 * 2 / (2 - 1)


@pytest.mark.covers("O18")
@given(shape=SHAPES, seed=st.integers(0, 1000), eps=st.sampled_from([1e-5, 0.1]))
@settings(max_examples=25, deadline=None)
def test_forward_and_backward_equal_torch(shape, seed, eps):
    a, gamma, beta, dy = random(shape, seed)
    layer = theirs(a, gamma, beta, eps)
    done = normalize(a, gamma, beta, eps)
    expected = layer(a.requires_grad_())
    same(done.y, expected)
    (expected * dy).sum().backward()
    for ours, gradient in zip(
        backward(dy, done, gamma, eps), (a.grad, layer.weight.grad, layer.bias.grad), strict=True
    ):
        same(ours, gradient)


@pytest.mark.covers("O18")
@given(shape=SHAPES, seed=st.integers(0, 1000), momentum=st.sampled_from([0.1, 0.7]))
@settings(max_examples=25, deadline=None)
def test_running_statistics_and_evaluation_equal_torch(shape, seed, momentum):
    _, gamma, beta, _ = random(shape, seed)
    layer = theirs(torch.zeros(shape), gamma, beta, momentum=momentum)
    running = layer.running_mean.clone(), layer.running_var.clone()
    for batch in range(3):
        a = random(shape, seed + batch)[0]
        running = track(running, normalize(a, gamma, beta), momentum)
        layer(a)
        same(running[0], layer.running_mean)
        same(running[1], layer.running_var)
    same(infer(a, running, gamma, beta), layer.eval()(a))


@pytest.mark.covers("O18")
@given(shape=SHAPES, seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_units_have_mean_0_and_variance_1_whatever_the_weights_before_them(shape, seed):
    a, gamma, _, dy = random(shape, seed)
    one, zero = torch.ones_like(gamma), torch.zeros_like(gamma)
    done = normalize(a, one, zero, eps=0.0)
    over = [axis for axis in range(len(shape)) if axis != 1]
    same(done.y.mean(dim=over), zero)
    same(done.y.var(dim=over, correction=0), one)
    same(normalize(7 * a + 3, one, zero, eps=0.0).y, done.y)
    da, _, _ = backward(dy, done, one, eps=0.0)
    same(da.sum(dim=over), zero)  # no part along 1
    same((da * done.n).sum(dim=over), zero)  # nor along n


# ------------------------------------------------------------------------------------- the recipe


def test_the_networks_differ_by_their_norms_alone():
    weights, data = {}, BatchNormImages().dataset()
    for norm in (False, True):
        model = begin(BatchNormImages(widths=(4, 6), norm=norm, seed=3), data).model
        weights[norm] = [m.weight for m in model if isinstance(m, nn.Conv2d | nn.Linear)]
        assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
        assert sum(isinstance(layer, nn.BatchNorm2d) for layer in model) == 2 * norm
        biases = [m.bias for m in model if isinstance(m, nn.Conv2d)]
        assert biases == [None, None] if norm else not any(b.any() for b in biases)
    for plain, normed in zip(*weights.values(), strict=True):
        assert torch.equal(plain, normed)
        assert plain.square().mean().item() == pytest.approx(2 / plain[0].numel(), rel=0.5)  # He's


@pytest.mark.parametrize("norm", [False, True])
def test_what_reaches_a_unit_is_looked_at_in_training_mode_and_nothing_moves(norm):
    model = network(1, 3, (2, 2), norm=norm)
    x = 5 + 3 * torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    seen = last_inputs(model, x)
    after = model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    expected = model[:-4](x)[:, 0]  # without the last rectifier, mean, flattening and readout
    torch.testing.assert_close(seen, expected)
    if norm:
        assert seen.mean().item() == pytest.approx(0, abs=1e-5)
        assert seen.var(correction=0).item() == pytest.approx(1, abs=1e-3)


@pytest.mark.covers("O18")
def test_digits_are_learned_in_fewer_steps(tmp_path):
    recipe = BatchNormExperiment(
        data="digits", widths=(8, 8, 16, 16, 16), rates=(0.1,), steps=80, batch_size=32, every=4
    )
    metrics = run(recipe, tmp_path).metrics
    assert metrics["speedup"] >= 1.5
    assert metrics["best_norm"] > 0.8


def test_steps_are_counted_to_the_first_look_at_any_rate():
    """The second rate without the norm has diverged after the first look."""
    recipe = BatchNormExperiment(every=10, steps=25, rates=(0.1, 0.5))
    curves = {
        "plain-0.1": [0.1, 0.2, 0.3, 0.5],
        "plain-0.5": [0.1],
        "norm-0.1": [0.1, 0.44, 0.3, 0.5],
        "norm-0.5": [0.1, 0.1, 0.46, 0.6],
    }
    looks = (0, 10, 20, 25)
    table = Table(
        {
            name: cell(steps=looks[: len(seen)], valid={"accuracy": seen})
            for name, seen in curves.items()
        },
        {},
    )
    assert list(curves) == list(recipe.cells())
    assert recipe.metrics(table) == pytest.approx(
        {"speedup": 1.25, "steps_plain": 25, "steps_norm": 20, "best_plain": 0.5, "best_norm": 0.6}
    )
    assert recipe.reached(table.cells.values(), 0.9) == 35


def test_both_networks_drift_at_one_rate_that_suits_the_plain_one():
    recipe = BatchNormExperiment(every=1, steps=1, rates=(0.1, 0.5))
    best = {"plain-0.1": 0.2, "plain-0.5": 0.3, "norm-0.1": 0.5, "norm-0.5": 0.4}
    seen = {"quantiles": [[-1, 0, 1]] * 2}
    table = Table(
        {
            name: cell(steps=(0, 1), valid={"accuracy": [0.1, high]}, measured=seen)
            for name, high in best.items()
        },
        {},
    )
    drift = recipe.picture_drift(table)[0]
    assert [axes.get_title() for axes in drift.axes] == [
        "without, rate 0.5", "with batch normalisation, rate 0.5"
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.covers("O18")
def test_the_recipe_reaches_its_goal(tmp_path):
    assert run(RECIPES["batch-norm"], tmp_path, device="cpu").reached


def test_tables_are_refused():
    with pytest.raises(UserError, match=r"data \(iris\) must be images with a class each"):
        BatchNormExperiment(data="iris").cells()["norm-0.1"].dataset()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"widths": ()}, r"widths \(\(\)\) must be one or more numbers"),
        ({"rates": (0.1, 0.0)}, r"rates \(\(0.1, 0.0\)\) must be one or more positive"),
        ({"steps": 0}, r"steps \(0\) must be at least 1"),
        ({"batch_size": 1}, r"batch_size \(1\) must be at least 2"),
        ({"every": 0}, r"every \(0\) must be at least 1"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        BatchNormExperiment(**fields)
