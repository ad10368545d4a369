"""A8: networks that learn on this engine alone."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import everynet.autodiff as ad
from everynet.autodiff.networks import MLP, RNN, descend


@pytest.mark.covers("A8")
def test_one_step_is_the_gradient_times_the_rate():
    v = ad.Var(np.array([1.0, 2.0]))
    losses = descend(lambda step: ad.sum(v * v), [v], lr=0.1, steps=1)
    assert losses == [5.0]
    np.testing.assert_allclose(v.val, [0.8, 1.6])


def test_momentum_is_that_of_torch():
    v, t = ad.Var(np.array([1.0, 2.0])), torch.tensor([1.0, 2.0], dtype=torch.float64)
    t.requires_grad_()
    optimizer = torch.optim.SGD([t], lr=0.05, momentum=0.9)
    for _ in range(20):
        optimizer.zero_grad()
        (t**4).sum().backward()
        optimizer.step()
    descend(lambda step: ad.sum(v**4), [v], lr=0.05, momentum=0.9, steps=20)
    np.testing.assert_allclose(v.val, t.detach().numpy(), rtol=1e-12)


@pytest.mark.covers("A8")
def test_rosenbrock():
    x = ad.Var(np.array([-1.2, 1.0]))

    def valley(step):
        return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2

    descend(valley, [x], lr=5e-4, momentum=0.98, steps=2_000)
    assert float(valley(0)) < 1e-6
    np.testing.assert_allclose(x.val, [1, 1], atol=1e-2)


def test_xor():
    x = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = np.array([[0.0], [1.0], [1.0], [0.0]])
    net = MLP((2, 4, 1), seed=1)
    loss = lambda step: ad.binary_cross_entropy_with_logits(net(x), y)  # noqa: E731 -- a formula
    losses = descend(loss, net.parameters, lr=0.5, momentum=0.9, steps=400)
    assert losses[-1] < 0.01
    np.testing.assert_array_equal(net(x).val > 0, y > 0)


@pytest.mark.covers("A8")
def test_sine():
    x = np.linspace(-np.pi, np.pi, 64)[:, None]
    net = MLP((1, 32, 1))
    loss = lambda step: ad.mean((net(x) - np.sin(x)) ** 2)  # noqa: E731 -- a formula
    descend(loss, net.parameters, lr=0.05, momentum=0.95, steps=2_000)
    between = x[:-1] + 0.05
    assert np.mean((net(between).val - np.sin(between)) ** 2) < 1e-3


def digits(steps):
    """Train on four fifths of the digits; the share of the last fifth that is right."""
    images, classes = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    train, test, train_y, test_y = train_test_split(
        images, classes, test_size=0.2, stratify=classes, random_state=0
    )
    net, random = MLP((64, 64, 10), ad.relu, dtype=np.float32), np.random.default_rng(0)

    def loss(step):
        rows = random.choice(len(train), 64, replace=False)
        return ad.cross_entropy(net(train[rows]), train_y[rows])

    descend(loss, net.parameters, lr=0.1, momentum=0.9, steps=steps)
    with ad.no_grad():
        return float(np.mean(net(test).val.argmax(1) == test_y))


def test_digits():
    assert digits(steps=1_000) >= 0.96


def recall(length, steps):
    """Name the first of `length` symbols; the accuracy on unseen sequences."""
    random, net = np.random.default_rng(0), RNN(4, 24, 4)

    def batch():
        symbols = random.integers(0, 4, (64, length))
        return np.eye(4)[symbols], symbols[:, 0]

    def loss(step):
        x, y = batch()
        return ad.cross_entropy(net(x), y)

    descend(loss, net.parameters, lr=0.05, momentum=0.9, steps=steps)
    x, y = batch()
    return float(np.mean(net(x).val.argmax(1) == y))


@pytest.mark.covers("A3")
def test_unrolled_rnn_learns():
    """A3: a recurrence unrolled over six steps is a graph without a cycle."""
    assert recall(6, 300) >= 0.95


@pytest.mark.covers("A3")
def test_unrolled_rnn_has_the_gradient_of_torch():
    net, x = RNN(3, 5, 2), np.random.default_rng(0).standard_normal((4, 7, 3))
    reference = torch.nn.RNN(3, 5, batch_first=True).double()
    state = {"weight_ih_l0": net.inwards.val.T, "weight_hh_l0": net.across.val.T}
    state |= {"bias_ih_l0": net.bias.val, "bias_hh_l0": np.zeros(5)}
    reference.load_state_dict({name: torch.as_tensor(a) for name, a in state.items()})
    ad.sum(net(x) ** 2).backward()
    _, h = reference(torch.as_tensor(x))
    ((h[0] @ torch.as_tensor(net.outwards.val)) ** 2).sum().backward()
    np.testing.assert_allclose(net.across.grad.T, reference.weight_hh_l0.grad.numpy(), rtol=1e-10)
    np.testing.assert_allclose(net.inwards.grad.T, reference.weight_ih_l0.grad.numpy(), rtol=1e-10)
    np.testing.assert_allclose(net.bias.grad, reference.bias_ih_l0.grad.numpy(), rtol=1e-10)


@pytest.mark.parametrize("sizes", [(3, 2), (4, 8, 3)])
def test_mlp_is_that_of_torch(sizes):
    net, x = MLP(sizes), np.random.default_rng(1).standard_normal((5, sizes[0]))
    h = torch.as_tensor(x)
    for i, (w, b) in enumerate(zip(net.weights, net.biases, strict=True)):
        h = h @ torch.as_tensor(w.val) + torch.as_tensor(b.val)
        h = h.tanh() if i < len(net.weights) - 1 else h
    np.testing.assert_allclose(net(x).val, h.numpy(), rtol=1e-12)
