import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.training.loop import begin
from everynet.zoo.optimisation.layer_norm import (
    BATCHES,
    NORMS,
    RECIPES,
    LayerNormExperiment,
    LayerNormImages,
    answers,
    backward,
    network,
    normalize,
)

SHAPES = st.sampled_from([(4, 3), (1, 7), (2, 5, 6), (2, 3, 2, 4)])


def random(shape, seed):
    generator = torch.Generator().manual_seed(seed)
    x = 3 * torch.randn(shape, generator=generator, dtype=torch.float64) + 2
    gamma, beta = torch.randn(2, shape[-1], generator=generator, dtype=torch.float64)
    return x, gamma, beta, torch.randn(shape, generator=generator, dtype=torch.float64)


def same(ours, expected):
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)


# --------------------------------------------------------------------------------------- equations


def test_two_features_by_hand():
    """1 and 3 have mean 2 and variance 1, and become -1 and 1, then their own scale and shift."""
    x, gamma, beta = torch.tensor([[1.0, 3.0], [2.0, 5.0], [7.0, 0.0]], dtype=torch.float64)
    done = normalize(x[None], gamma, beta, eps=0.0)
    assert done.y.flatten().tolist() == [-2 + 7, 5 + 0]
    assert done.variance.item() == 1


@pytest.mark.covers("O19")
@given(shape=SHAPES, seed=st.integers(0, 1000), eps=st.sampled_from([1e-5, 0.1]))
@settings(max_examples=25, deadline=None)
def test_forward_and_backward_equal_torch(shape, seed, eps):
    x, gamma, beta, dy = random(shape, seed)
    layer = nn.LayerNorm(shape[-1], eps=eps, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(gamma)
        layer.bias.copy_(beta)
    done = normalize(x, gamma, beta, eps)
    expected = layer(x.requires_grad_())
    same(done.y, expected)
    (expected * dy).sum().backward()
    for ours, theirs in zip(
        backward(dy, done, gamma, eps), (x.grad, layer.weight.grad, layer.bias.grad), strict=True
    ):
        same(ours, theirs)


@pytest.mark.covers("O19")
@given(seed=st.integers(0, 1000), rows=st.integers(1, 6))
@settings(max_examples=25, deadline=None)
def test_a_sample_is_normalised_alone_as_in_company(seed, rows):
    x, gamma, beta, _ = random((7, 5), seed)
    whole = normalize(x, gamma, beta).y
    same(normalize(x[:rows], gamma, beta).y, whole[:rows])
    order = torch.randperm(7, generator=torch.Generator().manual_seed(seed))
    same(normalize(x[order], gamma, beta).y, whole[order])


@given(shape=SHAPES, seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_scaling_and_shifting_a_sample_changes_nothing(shape, seed):
    x, gamma, beta, _ = random(shape, seed)
    same(normalize(5 * x - 4, gamma, beta, eps=0.0).y, normalize(x, gamma, beta, eps=0.0).y)


# --------------------------------------------------------------------------------------- networks


@pytest.mark.covers("O19")
def test_layer_norm_answers_the_same_in_any_batch_and_batch_norm_does_not():
    x = random((40, 6), 0)[0]
    changes = {}
    for name in NORMS:
        model = network(6, 3, depth=3, width=8, norm=name).double()
        given = answers(model, x[0], x[1:].unflatten(0, (3, 13)))
        assert given.shape == (3, 3)
        changes[name] = (given - given[0]).abs().max().item()
    assert changes["none"] <= 1e-12
    assert changes["layer norm"] <= 1e-12
    assert changes["batch norm"] > 0.01


def test_the_networks_begin_with_the_same_weights():
    given, data = [], LayerNormImages().dataset()
    for norm in NORMS:
        model = begin(LayerNormImages(norm=norm, depth=2, width=8, seed=3), data).model
        assert [type(m) for m in model if not isinstance(m, nn.Flatten | nn.Linear | nn.ReLU)] == [
            NORMS[norm]
        ] * 2
        given.append([m.weight for m in model if isinstance(m, nn.Linear)])
        assert len(given[-1]) == 3
        assert not any(m.bias.any() for m in model if isinstance(m, nn.Linear))
    for first, *others in zip(*given, strict=True):
        assert all(torch.equal(first, other) for other in others)
        assert first.square().mean().item() == pytest.approx(2 / first.shape[1], rel=0.4)  # He's


# ------------------------------------------------------------------------------------- the recipe


@pytest.mark.slow
@pytest.mark.covers("O19")
def test_the_recipe_reaches_its_goal(tmp_path):
    result = run(RECIPES["layer-norm"], tmp_path)
    assert result.reached
    assert result.metrics["company_batch"] > 0.1


def test_metrics_of_a_made_up_result():
    accuracy = torch.tensor([[[0.9, 0.2], [0.9, 0.8], [0.9, 0.7]]]).expand(2, 3, 2)
    given = torch.ones(2, 3, BATCHES, 10, dtype=torch.float64)
    given[1, 2, 4, 3] = -1
    metrics = LayerNormExperiment().metrics({"accuracy": accuracy, "answers": given})
    assert metrics == pytest.approx(
        {"company_layer": 0, "company_batch": 2, "accuracy_plain": 0.2, "accuracy_layer": 0.8,
         "accuracy_batch": 0.7, "gain": 0.6}
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"depth": 0}, r"depth \(0\) must be at least 1"),
        ({"width": 1}, r"width \(1\) must be at least 2"),
        ({"rates": ()}, r"rates \(\(\)\) must be one or more positive"),
        ({"nets": 0}, r"nets \(0\) must be at least 1"),
        ({"steps": 0}, r"steps \(0\) must be at least 1"),
        ({"batch_size": 1}, r"batch_size \(1\) must be at least 2"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        LayerNormExperiment(**fields)
