"""A5, A6, A7: the equations of backpropagation written out are what the engine finds."""

import time
from itertools import pairwise

import numpy as np
import pytest
import torch

import everynet.autodiff as ad
from everynet.autodiff.by_hand import (
    LINEAR,
    RELU,
    SIGMOID,
    TANH,
    backprop,
    softmax_cross_entropy_slope,
)

SIZES = (5, 7, 6, 3)
FUNCTIONS = [(SIGMOID, ad.sigmoid), (TANH, ad.tanh), (RELU, ad.relu), (LINEAR, lambda z: z)]


def network(batch, seed=0):
    random = np.random.default_rng(seed)
    shapes = list(pairwise(SIZES))
    weights = [random.standard_normal(shape) / 2 for shape in shapes]
    biases = [random.standard_normal(n) / 2 for n in SIZES[1:]]
    return random.standard_normal((batch, 5)), random.standard_normal((batch, 3)), weights, biases


def engine(x, weights, biases, function):
    ws, bs, h = [ad.Var(w) for w in weights], [ad.Var(b) for b in biases], x
    for w, b in zip(ws, bs, strict=True):
        h = function(h @ w + b)
    return ws, bs, h


@pytest.mark.covers("A6")
@pytest.mark.parametrize("batch", [1, 64])
@pytest.mark.parametrize(
    ("activation", "function"), FUNCTIONS, ids=["sigmoid", "tanh", "relu", "linear"]
)
def test_layer_by_layer_is_the_engine(batch, activation, function):
    x, y, weights, biases = network(batch)
    ws, bs, out = engine(x, weights, biases, function)
    ad.sum(0.5 * (out - y) ** 2).backward()
    by_weights, by_biases = backprop(x, weights, biases, activation, lambda h: h - y)
    for ours, var in zip(by_weights + by_biases, ws + bs, strict=True):
        np.testing.assert_allclose(ours, var.grad, rtol=1e-12, atol=1e-13)


def test_any_cost_only_changes_the_first_slope():
    x, y, weights, biases = network(8)
    ws, _, out = engine(x, weights, biases, ad.tanh)
    ad.sum((out - y) ** 4).backward()
    by_weights, _ = backprop(x, weights, biases, TANH, lambda h: 4 * (h - y) ** 3)
    np.testing.assert_allclose(by_weights[0], ws[0].grad, rtol=1e-12, atol=1e-12)


@pytest.mark.covers("A6")
def test_gradient_of_a_batch_is_the_sum_over_samples():
    x, y, weights, biases = network(6)
    whole = backprop(x, weights, biases, SIGMOID, lambda h: h - y)
    parts = [
        backprop(x[i : i + 1], weights, biases, SIGMOID, lambda h, i=i: h - y[i : i + 1])
        for i in range(6)
    ]
    for kind in (0, 1):
        for layer in range(3):
            total = sum(part[kind][layer] for part in parts)
            np.testing.assert_allclose(whole[kind][layer], total, rtol=1e-12, atol=1e-14)


@pytest.mark.covers("A7")
def test_fused_gradient_is_that_of_the_parts():
    """A7: softmax - onehot, from three sides, finite for any logits."""
    random = np.random.default_rng(0)
    o, t = random.standard_normal((6, 4)) * 3, np.array([0, 3, 1, 2, 2, 0])
    by_hand = softmax_cross_entropy_slope(o, t)
    fused, unfused = ad.Var(o), ad.Var(o)
    ad.cross_entropy(fused, t, "sum").backward()
    (
        -ad.sum(ad.log(ad.exp(unfused) / ad.sum(ad.exp(unfused), 1, keepdims=True))[range(6), t])
    ).backward()
    np.testing.assert_allclose(by_hand, fused.grad, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(by_hand, unfused.grad, rtol=1e-12, atol=1e-12)
    reference = torch.tensor(o, requires_grad=True)
    torch.nn.functional.cross_entropy(reference, torch.as_tensor(t), reduction="sum").backward()
    np.testing.assert_allclose(by_hand, reference.grad.numpy(), rtol=1e-12, atol=1e-14)
    far = ad.Var(np.array([[1000.0, -1000.0, 0.0], [-1000.0, 1000.0, 1000.0]]))
    loss = ad.cross_entropy(far, [1, 2], "sum")
    loss.backward()
    assert float(loss) == pytest.approx(2000 + np.log(2))
    np.testing.assert_allclose(far.grad, [[1, -1, 0], [0, 0.5, -0.5]], atol=1e-12)
    np.testing.assert_allclose(softmax_cross_entropy_slope(far.val, np.array([1, 2])), far.grad)


@pytest.mark.covers("A5")
def test_finite_differences_are_backprop_on_a_network():
    """A5: equal to backprop to 1e-6 on an MLP."""
    x, y, weights, biases = network(4)

    def cost(w):
        return ad.sum(0.5 * (engine(x, [w, *weights[1:]], biases, ad.tanh)[2] - y) ** 2)

    by_weights, _ = backprop(x, weights, biases, TANH, lambda h: h - y)
    np.testing.assert_allclose(ad.finite_difference(cost, weights[0]), by_weights[0], atol=1e-6)
    near = ad.finite_difference(cost, weights[0], 1e-7, central=False)
    np.testing.assert_allclose(near, by_weights[0], atol=1e-5)


@pytest.mark.covers("A5")
def test_time_of_differences_grows_with_the_parameters_and_that_of_backprop_does_not():
    """Eight times the parameters: about eight times the seconds, and as many as before.

    The least of several tries, in seconds of this process: others may use the processor too.
    """

    def f(w):
        return ad.sum(ad.tanh(w) * w)

    def seconds(work, tries):
        spent = []
        for _ in range(tries):
            start = time.process_time()
            work()
            spent.append(time.process_time() - start)
        return min(spent)

    few, many = np.zeros((1, 200)), np.zeros((1, 1600))
    by_differences = [seconds(lambda w=w: ad.finite_difference(f, w), 3) for w in (few, many)]
    by_backprop = [seconds(lambda w=w: [ad.grad(f)(w) for _ in range(50)], 5) for w in (few, many)]
    assert 4 < by_differences[1] / by_differences[0] < 24
    assert by_backprop[1] / by_backprop[0] < 3
