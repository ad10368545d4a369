import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from everynet.system.errors import UserError
from everynet.zoo.optimisation.input_scale import (
    RECIPES,
    InputScale,
    condition,
    curvatures,
    descend,
    gradient,
    local_response,
    loss,
    standardize,
    with_bias,
)


def table(rows=12, features=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, features, generator=generator, dtype=torch.float64)
    x = x * 10.0 ** torch.arange(features) + 5
    return x, torch.randint(2, (rows,), generator=generator).double()


# ----------------------------------------------------------------------------------------- scaling


@pytest.mark.covers("O20")
def test_standardising_equals_scikit_learn():
    x, _ = table()
    ours = standardize(x)
    torch.testing.assert_close(ours, torch.from_numpy(StandardScaler().fit_transform(x.numpy())))
    torch.testing.assert_close(ours.mean(dim=0), torch.zeros(4).double(), rtol=0, atol=1e-12)
    torch.testing.assert_close(ours.std(dim=0, correction=0), torch.ones(4).double())


def test_a_feature_that_never_changes_becomes_zero():
    x = torch.tensor([[1.0, 7.0], [3.0, 7.0]], dtype=torch.float64)
    assert standardize(x).tolist() == [[-1, 0], [1, 0]]
    assert with_bias(x).tolist() == [[1, 7, 1], [3, 7, 1]]


@given(seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_loss_and_gradient_equal_torch(seed):
    x, t = table(seed=seed)
    rows = with_bias(standardize(x))
    w = torch.linspace(-2, 2, 5, dtype=torch.float64, requires_grad=True)
    expected = binary_cross_entropy_with_logits(rows @ w, t)
    expected.backward()
    torch.testing.assert_close(loss(rows, t, w.detach()), expected.detach(), rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient(rows, t, w.detach()), w.grad, rtol=1e-10, atol=1e-14)


@given(seed=st.integers(0, 1000), scale=st.floats(0, 3))
@settings(max_examples=25, deadline=None)
def test_the_curvature_is_at_most_c_and_equal_at_zero(seed, scale):
    x, t = table(seed=seed)
    rows = with_bias(standardize(x))
    w = scale * torch.linspace(-1, 1, 5, dtype=torch.float64)
    hessian = torch.autograd.functional.hessian(lambda w: loss(rows, t, w), w)
    largest = curvatures(rows)[-1]
    assert torch.linalg.eigvalsh(hessian)[-1] <= largest * (1 + 1e-12)
    if scale == 0:
        torch.testing.assert_close(torch.linalg.eigvalsh(hessian), curvatures(rows))


def test_condition_by_hand():
    """X^T X of these rows is diag(2, 8): a condition of 4, and C = diag(2, 8) / 16."""
    rows = torch.tensor([[1.0, 0], [1, 0], [0, 2], [0, 2]], dtype=torch.float64)
    assert curvatures(rows).tolist() == pytest.approx([2 / 16, 8 / 16])
    assert condition(rows) == pytest.approx(4)


def test_the_first_step_by_hand():
    """From w = 0 the gradient is -1/2, the curvature at most 1/4: w = 2 after one step."""
    rows, t = torch.ones(3, 1, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    losses = descend(rows, t, tolerance=0.0, steps=1)
    expected = [math.log(2), math.log(1 + math.exp(-2))]
    assert losses.tolist() == pytest.approx(expected, rel=1e-12)


@given(seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_every_step_falls_and_descent_ends_at_the_tolerance(seed):
    x, t = table(seed=seed)
    rows = with_bias(standardize(x))
    losses = descend(rows, t, tolerance=0.6, steps=50)
    assert (losses.diff() <= 1e-14).all()
    assert (losses[:-1] > 0.6).all()
    assert len(losses) <= 51


@pytest.mark.covers("O20")
def test_the_recipe_reaches_its_goal():
    recipe = RECIPES["input-scale"]
    metrics = recipe.metrics(recipe.simulate(torch.Generator()))
    assert all(goal.reached(metrics) for goal in recipe.goals())
    assert metrics["condition_raw"] > 1e6 * metrics["condition_scaled"]


@pytest.mark.covers("O20")
def test_another_table():
    x, y = load_breast_cancer(return_X_y=True)
    x, t = torch.from_numpy(x), torch.from_numpy(y).double()
    scaled = len(descend(with_bias(standardize(x)), t, 0.4, 1000)) - 1
    raw = descend(with_bias(x), t, 0.4, 10 * scaled)
    assert raw[-1] > 0.4
    assert scaled < 20


# ---------------------------------------------------------------------------- local response


def test_three_channels_by_hand():
    a = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64)
    ours = local_response(a, size=3, alpha=1.0, beta=0.5, k=4.0)
    expected = [1 / math.sqrt(4 + 5), 2 / math.sqrt(4 + 14), 3 / math.sqrt(4 + 13)]
    assert ours[0].tolist() == pytest.approx(expected)


@pytest.mark.covers("O20")
@given(
    size=st.integers(1, 6),
    shape=st.sampled_from([(2, 1, 3), (2, 7, 2), (3, 5, 2, 4)]),
    alpha=st.floats(0, 2),
    beta=st.floats(0.1, 2),
    k=st.floats(0.5, 3),
)
@settings(max_examples=25, deadline=None)
def test_local_response_equals_torch(size, shape, alpha, beta, k):
    """Whose alpha is `size` times ours."""
    a = torch.randn(shape, generator=torch.Generator().manual_seed(size), dtype=torch.float64)
    expected = nn.LocalResponseNorm(size, alpha=size * alpha, beta=beta, k=k)(a)
    torch.testing.assert_close(
        local_response(a, size, alpha, beta, k), expected, rtol=1e-10, atol=1e-12
    )


# ------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize("data", ["digits", "diabetes"])
def test_only_tables_with_classes_are_taken(data):
    with pytest.raises(UserError, match=rf"data \({data}\) must be a table"):
        InputScale(data=data).simulate(torch.Generator())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tolerance": 0.0}, r"tolerance \(0.0\) must be a positive number"),
        ({"steps": 0}, r"steps \(0\) must be at least 1"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        InputScale(**fields)
