"""The activations of the curriculum, written out in numpy beside torch's and those of our engine.

Nothing is wrapped: networks use torch's. Here each equation stands once, and all three agree.
"""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.special import softmax as scipy_softmax
from torch import nn
from torch.nn import functional as F

from everynet import autodiff as ad

Z = np.linspace(-8, 8, 320)  # no zero among them, where some have no slope
FAR = np.array([-1e4, -1e3, -50.0, 50.0, 1e3, 1e4])
ROWS = st.lists(st.floats(-30, 30), min_size=2, max_size=6)


class Case(NamedTuple):
    value: object
    """By its definition, in numpy."""
    slope: object
    """By hand, in numpy."""
    torch: object
    autodiff: object


def logistic(z):
    return 1 / (1 + np.exp(-z))


def rectifier(z, alpha):
    return np.maximum(0, z) + alpha * np.minimum(0, z)


def rectifier_slope(z, alpha):
    return np.where(z > 0, 1.0, alpha)


SIGMOIDAL = {
    "sigmoid": Case(logistic, lambda z: logistic(z) * (1 - logistic(z)), torch.sigmoid, ad.sigmoid),
    "tanh": Case(
        lambda z: (np.exp(z) - np.exp(-z)) / (np.exp(z) + np.exp(-z)),
        lambda z: 1 - np.tanh(z) ** 2,
        torch.tanh,
        ad.tanh,
    ),
    "arctan": Case(
        lambda z: np.log(1 + 1j * z).imag, lambda z: 1 / (1 + z**2), torch.atan, ad.arctan
    ),
}
RECTIFIED = {
    "relu": Case(lambda z: np.maximum(0, z), lambda z: 1.0 * (z > 0), torch.relu, ad.relu),
    "softplus": Case(
        lambda z: np.log(1 + np.exp(z)),
        logistic,
        lambda z: F.softplus(z, threshold=40),
        ad.softplus,
    ),
}
FAMILY = {
    f"alpha {alpha:g}": Case(
        lambda z, a=alpha: rectifier(z, a),
        lambda z, a=alpha: rectifier_slope(z, a),
        lambda z, a=alpha: F.leaky_relu(z, a),
        lambda z, a=alpha: ad.leaky_relu(z, a),
    )
    for alpha in (0.0, 0.01, 0.1, 1.0, 2.0, -1.0)
}


def torch_slope(function, z):
    point = torch.from_numpy(z).requires_grad_()
    (slope,) = torch.autograd.grad(function(point).sum(), point)
    return slope.numpy()


def engine_slope(function, z):
    point = ad.Var(z)
    ad.sum(function(point)).backward()
    return np.asarray(point.grad)


def agree(case, z):
    """Values and slopes by definition, in torch and in the engine."""
    near = {"rtol": 1e-8, "atol": 1e-14}
    np.testing.assert_allclose(case.torch(torch.from_numpy(z)).numpy(), case.value(z), **near)
    np.testing.assert_allclose(np.asarray(case.autodiff(z).val), case.value(z), **near)
    np.testing.assert_allclose(torch_slope(case.torch, z), case.slope(z), **near)
    np.testing.assert_allclose(engine_slope(case.autodiff, z), case.slope(z), **near)


def stays_finite(case):
    assert np.isfinite(case.torch(torch.from_numpy(FAR)).numpy()).all()
    assert np.isfinite(torch_slope(case.torch, FAR)).all()
    assert np.isfinite(case.autodiff(FAR).val).all()
    assert np.isfinite(engine_slope(case.autodiff, FAR)).all()


# ------------------------------------------------------------------------------------- sigmoidal


@pytest.mark.covers("O1")
@pytest.mark.parametrize("case", SIGMOIDAL.values(), ids=SIGMOIDAL)
def test_sigmoidal_values_and_slopes(case):
    agree(case, Z)
    stays_finite(case)


@pytest.mark.covers("O1")
def test_sigmoidal_identities():
    """tanh is a sigmoid of twice z; the sigmoid is steepest at 0, by 1/4; all saturate."""
    s = torch.sigmoid(2 * torch.from_numpy(Z)).numpy()
    np.testing.assert_allclose(np.tanh(Z), 2 * s - 1, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(expit(-Z), 1 - expit(Z), rtol=1e-12, atol=1e-15)
    at_zero = {
        name: torch_slope(case.torch, np.zeros(1)).item() for name, case in SIGMOIDAL.items()
    }
    assert at_zero == {"sigmoid": 0.25, "tanh": 1.0, "arctan": 1.0}
    for name, case in SIGMOIDAL.items():
        assert (torch_slope(case.torch, Z) < at_zero[name]).all()
        low, high = case.torch(torch.tensor([-1e4, 1e4], dtype=torch.float64)).tolist()
        expected = {"sigmoid": (0, 1), "tanh": (-1, 1), "arctan": (-np.pi / 2, np.pi / 2)}[name]
        assert (low, high) == pytest.approx(expected, abs=1e-3)


@pytest.mark.covers("O1")
@pytest.mark.parametrize("at_zero", [0.0, 0.5, 1.0])
def test_heaviside_takes_its_value_at_zero_as_a_parameter(at_zero):
    z = np.array([-1e4, -2.0, -1e-300, 0.0, 1e-300, 3.0, 1e4])
    expected = np.array([0, 0, 0, at_zero, 1, 1, 1])
    chosen = torch.tensor(at_zero, dtype=torch.float64)
    assert np.array_equal(torch.heaviside(torch.from_numpy(z), chosen).numpy(), expected)
    assert np.array_equal(np.heaviside(z, at_zero), expected)
    engine = ad.where(z > 0, 1.0, ad.where(z < 0, 0.0, at_zero))
    assert np.array_equal(np.asarray(engine.val), expected)


@pytest.mark.covers("O1")
def test_a_steep_sigmoid_is_a_heaviside():
    """And its slope is nothing where that of the sigmoid is left: no gradient to learn from."""
    far = Z[np.abs(Z) > 0.02]
    np.testing.assert_allclose(expit(1e4 * far), np.heaviside(far, 0.5), atol=1e-12)
    assert np.abs(1e4 * torch_slope(torch.sigmoid, 1e4 * far)).max() < 1e-12


# ------------------------------------------------------------------------------------- rectified


@pytest.mark.covers("O2")
@pytest.mark.parametrize("case", RECTIFIED.values(), ids=RECTIFIED)
def test_rectified_values_and_slopes(case):
    agree(case, Z)
    stays_finite(case)


@pytest.mark.covers("O2")
def test_the_stable_form_of_softplus():
    """max(z, 0) + log1p(e^-|z|): equal to the definition, and right where that overflows."""
    stable = np.maximum(Z, 0) + np.log1p(np.exp(-np.abs(Z)))
    np.testing.assert_allclose(stable, np.log(1 + np.exp(Z)), rtol=1e-12)
    np.testing.assert_allclose(ad.softplus(Z).val, stable, rtol=1e-14)
    with np.errstate(over="ignore"):
        assert np.isinf(np.log(1 + np.exp(1e4)))
    assert ad.softplus(np.array([1e4, -1e4])).val.tolist() == [1e4, 0.0]
    assert F.softplus(torch.tensor([1e4, -1e4])).tolist() == [1e4, 0.0]


@pytest.mark.covers("O2")
@given(z=st.floats(-20, 20), scale=st.floats(1, 1e6))
@settings(max_examples=25, deadline=None)
def test_softplus_becomes_relu_as_its_scale_grows(z, scale):
    """It lies above, by at most log 2 / scale, which is reached at 0."""
    above = ad.softplus(np.array(z), beta=scale).val - max(z, 0)
    assert -1e-12 <= above <= np.log(2) / scale + 1e-12
    theirs = F.softplus(torch.tensor(z, dtype=torch.float64), beta=scale, threshold=40)
    assert above + max(z, 0) == pytest.approx(theirs.item(), rel=1e-10, abs=1e-12)
    at_zero = ad.softplus(np.array(0.0), beta=scale).val
    assert at_zero == pytest.approx(np.log(2) / scale)


@pytest.mark.covers("O2")
def test_relu_is_unbounded_above_and_has_no_curvature():
    assert torch.relu(torch.tensor(1e30)).item() == pytest.approx(1e30)
    point = torch.from_numpy(Z).requires_grad_()
    (slope,) = torch.autograd.grad(F.relu(point).square().sum() / 2, point, create_graph=True)
    assert torch.equal(slope, F.relu(point))  # relu relu' = relu
    (curvature,) = torch.autograd.grad(slope.sum(), point)
    assert np.array_equal(curvature.numpy(), 1.0 * (Z > 0))  # relu'^2 + relu relu'': no more
    for z in (-2.0, 3.0):
        assert ad.hessian(lambda x: ad.sum(ad.relu(x)))(np.array([z])).tolist() == [[0.0]]


# -------------------------------------------------------------------- one family with two slopes


@pytest.mark.covers("O3")
@pytest.mark.parametrize("case", FAMILY.values(), ids=FAMILY)
def test_two_slopes(case):
    agree(case, Z)
    stays_finite(case)


@pytest.mark.covers("O3")
def test_members_of_the_family():
    """alpha = 0 is relu, -1 the absolute value, 1 nothing at all; a small one is leaky."""
    z = torch.from_numpy(Z)
    for alpha, member in ((0.0, torch.relu), (-1.0, torch.abs), (1.0, torch.clone)):
        assert np.array_equal(rectifier(Z, alpha), member(z).numpy())
    assert np.array_equal(rectifier(Z, -1.0), np.asarray(ad.absolute(Z).val))
    assert np.array_equal(rectifier(Z, 0.01), F.leaky_relu(z).numpy())  # torch's own slope


@pytest.mark.covers("O3")
def test_the_larger_of_two_lines_is_the_family_only_up_to_a_slope_of_one():
    for alpha in (-1.0, 0.01, 1.0):
        np.testing.assert_allclose(np.maximum(alpha * Z, Z), rectifier(Z, alpha))
    assert not np.allclose(np.maximum(2 * Z, Z), rectifier(Z, 2.0))


@pytest.mark.covers("O3")
@given(alpha=st.floats(-2, 2), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_the_slope_of_prelu_has_a_gradient(alpha, seed):
    """d / d alpha of sum g f(z) is sum g min(0, z)."""
    draw = np.random.default_rng(seed)
    z, g = draw.normal(size=12), draw.normal(size=12)
    by_hand = np.sum(g * np.minimum(0, z))
    weight = torch.tensor([alpha], dtype=torch.float64, requires_grad=True)
    torch.sum(torch.from_numpy(g) * F.prelu(torch.from_numpy(z), weight)).backward()
    assert weight.grad.item() == pytest.approx(by_hand, rel=1e-10, abs=1e-12)
    slope = ad.Var(alpha)
    ad.sum(g * (ad.maximum(z, 0.0) + slope * ad.minimum(z, 0.0))).backward()
    assert float(slope.grad) == pytest.approx(by_hand, rel=1e-10, abs=1e-12)
    double = torch.from_numpy(z).requires_grad_()
    assert torch.autograd.gradcheck(F.prelu, (double, weight), atol=1e-6)


@pytest.mark.covers("O3")
def test_the_slope_of_prelu_is_learned():
    """From values of slope 0.3, beginning at torch's 0.25 and far from it."""
    z = torch.from_numpy(Z)
    for first in (0.25, -1.5):
        layer = nn.PReLU(init=first).double()
        descent = torch.optim.SGD(layer.parameters(), lr=0.02)
        for _ in range(200):
            descent.zero_grad()
            F.mse_loss(layer(z), torch.from_numpy(rectifier(Z, 0.3))).backward()
            descent.step()
        assert layer.weight.item() == pytest.approx(0.3, abs=1e-8)


# --------------------------------------------------------------------------------------- softmax


def definition(x):
    """Plain, without a shift: only for moderate x."""
    return np.exp(x) / np.sum(np.exp(x))


@pytest.mark.covers("O4")
@given(x=ROWS, shift=st.floats(-1e3, 1e3))
@settings(max_examples=25, deadline=None)
def test_softmax_is_a_distribution_that_no_shift_changes(x, shift):
    x = np.array(x)
    ours, theirs = ad.softmax(x, 0).val, F.softmax(torch.from_numpy(x), 0).numpy()
    for p in (ours, theirs):
        np.testing.assert_allclose(p, definition(x), rtol=1e-10)
        np.testing.assert_allclose(p, scipy_softmax(x), rtol=1e-10)
        assert abs(np.sum(p) - 1) < 1e-12
        assert (p >= 0).all()
    np.testing.assert_allclose(ad.softmax(x + shift, 0).val, ours, rtol=1e-9)


@pytest.mark.covers("O4")
@given(x=ROWS)
@settings(max_examples=25, deadline=None)
def test_the_jacobian_of_softmax(x):
    """diag(p) - p p^T, by torch, by the engine and by central differences."""
    x = np.array(x)
    p = definition(x)
    by_hand = np.diag(p) - np.outer(p, p)
    point = torch.from_numpy(x)
    theirs = torch.autograd.functional.jacobian(lambda z: z.softmax(0), point)
    np.testing.assert_allclose(theirs.numpy(), by_hand, rtol=1e-8, atol=1e-12)
    ours = ad.jacobian(lambda z: ad.softmax(z, 0))(x)
    np.testing.assert_allclose(np.asarray(ours), by_hand, rtol=1e-8, atol=1e-12)
    h = 1e-5
    for j, step in enumerate(h * np.eye(len(x))):
        slope = (definition(x + step) - definition(x - step)) / (2 * h)
        np.testing.assert_allclose(slope, by_hand[:, j], atol=1e-6)
    np.testing.assert_allclose(by_hand.sum(axis=0), 0, atol=1e-12)


@pytest.mark.covers("O4")
def test_cold_softmax_is_the_one_hot_argmax_and_hot_is_uniform():
    x = torch.tensor([1.0, 3.0, 2.5, -4.0], dtype=torch.float64)
    one_hot = F.one_hot(x.argmax(), 4).double()
    distance = [(F.softmax(x / t, 0) - one_hot).abs().max().item() for t in (1, 0.3, 0.1, 0.01)]
    assert distance == sorted(distance, reverse=True)
    assert distance[-1] < 1e-12
    assert distance[-1] == pytest.approx(np.exp(-0.5 / 0.01), rel=1e-6)  # by the runner-up
    assert F.softmax(x / 1e8, 0).tolist() == pytest.approx([0.25] * 4)
    tied = F.softmax(torch.tensor([2.0, 2.0, 0.0], dtype=torch.float64) / 0.01, 0)
    assert tied.tolist() == pytest.approx([0.5, 0.5, 0.0])


@pytest.mark.covers("O4")
def test_softmax_takes_any_numbers():
    x = np.array([-1e4, 0.0, 1e4])
    assert ad.softmax(x, 0).val.tolist() == [0, 0, 1]
    assert F.softmax(torch.from_numpy(x), 0).tolist() == [0, 0, 1]
    two = np.array([0.7, -0.2])
    assert ad.softmax(two, 0).val[0] == pytest.approx(expit(0.9))  # of two classes: a sigmoid
