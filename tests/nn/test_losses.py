"""The losses of the curriculum, written out in numpy beside torch's and those of our engine."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import expit, logsumexp
from scipy.special import softmax as scipy_softmax
from torch.nn import functional as F

from everynet import autodiff as ad

SEEDS = st.integers(0, 999)
NUMBERS = st.lists(st.floats(-100, 100), min_size=1, max_size=9)


def tensors(*arrays):
    return [torch.from_numpy(np.asarray(a)) for a in arrays]


def torch_slope(function, x):
    point = torch.from_numpy(x).requires_grad_()
    (slope,) = torch.autograd.grad(function(point), point)
    return slope.numpy()


def engine_slope(function, x):
    point = ad.Var(x)
    function(point).backward()
    return np.asarray(point.grad)


def numeric_slope(function, x, h=1e-6):
    steps = [np.reshape(h * row, x.shape) for row in np.eye(x.size)]
    slope = [(function(x + step) - function(x - step)) / (2 * h) for step in steps]
    return np.reshape(slope, x.shape)


# ------------------------------------------------------------------------------ numbers: L2 and L1


def squared(y, t):
    return np.mean((y - t) ** 2)


def absolute(y, t):
    return np.mean(np.abs(y - t))


@pytest.mark.covers("O5")
@given(seed=SEEDS, rows=st.integers(1, 9))
@settings(max_examples=25, deadline=None)
def test_mse_and_mae(seed, rows):
    """Values and slopes: 2 (y - t) / n and sign(y - t) / n."""
    y, t = np.random.default_rng(seed).normal(size=(2, rows, 3))
    yt, tt = tensors(y, t)
    assert F.mse_loss(yt, tt).item() == pytest.approx(squared(y, t), rel=1e-12)
    assert F.l1_loss(yt, tt).item() == pytest.approx(absolute(y, t), rel=1e-12)
    half = 0.5 * np.sum((y - t) ** 2, axis=1)  # per sample, as half the squared distance
    assert squared(y, t) == pytest.approx(2 * np.mean(half) / 3)
    for theirs, ours, slope in (
        (F.mse_loss, lambda v: ad.mean(ad.square(v - t)), 2 * (y - t) / y.size),
        (F.l1_loss, lambda v: ad.mean(ad.absolute(v - t)), np.sign(y - t) / y.size),
    ):
        assert float(ours(y).val) == pytest.approx(theirs(yt, tt).item(), rel=1e-12)
        np.testing.assert_allclose(torch_slope(lambda v, f=theirs: f(v, tt), y), slope, rtol=1e-10)
        np.testing.assert_allclose(engine_slope(ours, y), slope, rtol=1e-10)


@pytest.mark.covers("O5")
@given(t=NUMBERS)
@settings(max_examples=25, deadline=None)
def test_the_best_constant_is_the_mean_for_mse_and_a_median_for_mae(t):
    t = np.array(t)
    for loss, best in ((squared, np.mean(t)), (absolute, np.median(t))):
        found = minimize_scalar(lambda c, f=loss: f(c, t), bounds=(-101, 101), method="bounded")
        assert loss(best, t) <= found.fun + 1e-12
        for other in (best - 1.0, best + 0.5, *t):
            assert loss(best, t) <= loss(other, t) + 1e-12
    assert squared(np.mean(t), t) == pytest.approx(np.var(t), abs=1e-9)


@pytest.mark.covers("O5")
def test_descent_finds_the_mean_and_the_median_by_hand():
    """Of 0, 1, 2, 3, 94: the outlier moves the mean to 20 and leaves the median at 2."""
    t = torch.tensor([0.0, 1.0, 2.0, 3.0, 94.0], dtype=torch.float64)
    ends = []
    for loss in (F.mse_loss, F.l1_loss):
        c = torch.full((5,), 50.0, dtype=torch.float64)
        for step in range(1000):
            slope = torch_slope(lambda v, f=loss: f(v, t), c.numpy()).sum()
            c = c - slope * (0.1 if loss is F.mse_loss else 50.0 / (1 + step))
        ends.append(c[0].item())
    assert ends == pytest.approx([20.0, 2.0], abs=0.1)


# ------------------------------------------------------------------------------ two classes: BCE


def bce(z, t):
    """-[t log y + (1 - t) log(1 - y)] of y = sigmoid(z): the definition, for moderate z."""
    y = 1 / (1 + np.exp(-z))
    return -(t * np.log(y) + (1 - t) * np.log(1 - y))


def bce_from_logits(z, t):
    return np.maximum(z, 0) - z * t + np.log1p(np.exp(-np.abs(z)))


@pytest.mark.covers("O6")
@given(seed=SEEDS)
@settings(max_examples=25, deadline=None)
def test_bce(seed):
    """The definition, the stable form, torch, the engine; slope sigmoid(z) - t, also of soft t."""
    draw = np.random.default_rng(seed)
    z = draw.normal(scale=4, size=12)
    t = np.concatenate([draw.integers(0, 2, 6).astype(float), draw.uniform(size=6)])
    zt, tt = tensors(z, t)
    np.testing.assert_allclose(bce_from_logits(z, t), bce(z, t), rtol=1e-8, atol=1e-12)
    theirs = F.binary_cross_entropy_with_logits(zt, tt, reduction="none").numpy()
    np.testing.assert_allclose(theirs, bce_from_logits(z, t), rtol=1e-10, atol=1e-14)
    from_y = F.binary_cross_entropy(torch.sigmoid(zt), tt, reduction="none").numpy()
    np.testing.assert_allclose(from_y, bce(z, t), rtol=1e-8, atol=1e-12)
    ours = ad.binary_cross_entropy_with_logits(z, t, reduction="none").val
    np.testing.assert_allclose(ours, bce_from_logits(z, t), rtol=1e-10, atol=1e-14)
    slope = (expit(z) - t) / z.size
    by_torch = torch_slope(lambda v: F.binary_cross_entropy_with_logits(v, tt), z)
    np.testing.assert_allclose(by_torch, slope, rtol=1e-8, atol=1e-14)
    by_engine = engine_slope(lambda v: ad.binary_cross_entropy_with_logits(v, t), z)
    np.testing.assert_allclose(by_engine, slope, rtol=1e-8, atol=1e-14)
    np.testing.assert_allclose(
        numeric_slope(lambda v: np.mean(bce_from_logits(v, t)), z), slope, atol=1e-6
    )


@pytest.mark.covers("O6")
def test_bce_is_minus_the_log_likelihood_of_bernoulli():
    """y^t (1 - y)^(1 - t), so that each of the four signs counts: by hand at y = 0.8."""
    z = np.log(0.8 / 0.2)
    assert bce_from_logits(z, 1.0) == pytest.approx(-np.log(0.8))
    assert bce_from_logits(z, 0.0) == pytest.approx(-np.log(0.2))
    t = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0])
    y = torch.tensor([0.9, 0.2, 0.4, 0.6, 0.7])
    likelihood = torch.distributions.Bernoulli(y).log_prob(t)
    torch.testing.assert_close(F.binary_cross_entropy(y, t, reduction="none"), -likelihood)


@pytest.mark.covers("O6")
def test_bce_is_finite_however_sure_and_wrong():
    z, t = np.array([-1000.0, 1000.0, -1000.0, 1000.0]), np.array([0.0, 1.0, 1.0, 0.0])
    expected = [0, 0, 1000, 1000]
    zt, tt = tensors(z, t)
    assert F.binary_cross_entropy_with_logits(zt, tt, reduction="none").tolist() == expected
    assert ad.binary_cross_entropy_with_logits(z, t, reduction="none").val.tolist() == expected
    assert bce_from_logits(z, t).tolist() == expected
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        assert not np.isfinite(bce(z, t)).all()  # what the definition makes of them


# ----------------------------------------------------------------------- classes: cross-entropy


def cross_entropy(logits, labels):
    """-sum_k t_k log y_k of y = softmax(logits) and one-hot t, averaged over samples."""
    t = np.eye(logits.shape[1])[labels]
    return np.mean(-np.sum(t * np.log(scipy_softmax(logits, axis=1)), axis=1))


@pytest.mark.covers("O7")
@given(seed=SEEDS, classes=st.integers(2, 6), rows=st.integers(1, 7))
@settings(max_examples=25, deadline=None)
def test_cross_entropy(seed, classes, rows):
    """Mean over samples, sum over classes; slope (softmax - t) / n."""
    draw = np.random.default_rng(seed)
    logits, labels = draw.normal(scale=3, size=(rows, classes)), draw.integers(0, classes, rows)
    z, label = tensors(logits, labels)
    value = cross_entropy(logits, labels)
    assert F.cross_entropy(z, label).item() == pytest.approx(value, rel=1e-10)
    soft = F.one_hot(label, classes).double()
    assert F.cross_entropy(z, soft).item() == pytest.approx(value, rel=1e-10)
    assert float(ad.cross_entropy(logits, labels).val) == pytest.approx(value, rel=1e-10)
    total = float(ad.cross_entropy(logits, labels, reduction="sum").val)
    assert total == pytest.approx(value * rows, rel=1e-10)
    slope = (scipy_softmax(logits, axis=1) - soft.numpy()) / rows
    near = {"rtol": 1e-8, "atol": 1e-13}
    by_torch = torch_slope(lambda v: F.cross_entropy(v, label), logits)
    np.testing.assert_allclose(by_torch, slope, **near)
    by_engine = engine_slope(lambda v: ad.cross_entropy(v, labels), logits)
    np.testing.assert_allclose(by_engine, slope, **near)
    np.testing.assert_allclose(
        numeric_slope(lambda v: cross_entropy(v, labels), logits), slope, atol=1e-6
    )


@pytest.mark.covers("O7")
def test_cross_entropy_of_a_sure_answer_and_of_none():
    """A perfect one costs 0, an even one log C, a sure and wrong one its whole lead."""
    labels = np.array([1, 0])
    perfect = np.array([[0.0, 1000.0, 0.0], [1000.0, 0.0, 0.0]])
    for logits, expected in (
        (perfect, 0.0),
        (np.zeros((2, 3)), np.log(3)),
        (np.roll(perfect, 1, axis=1), 1000.0),
    ):
        z, label = tensors(logits, labels)
        assert F.cross_entropy(z, label).item() == pytest.approx(expected, abs=1e-12)
        assert float(ad.cross_entropy(logits, labels).val) == pytest.approx(expected, abs=1e-12)
        stable = np.mean(logsumexp(logits, axis=1) - logits[[0, 1], labels])
        assert stable == pytest.approx(expected, abs=1e-12)


@pytest.mark.covers("O6", "O7")
@given(z=st.floats(-20, 20), t=st.integers(0, 1))
@settings(max_examples=25, deadline=None)
def test_two_classes_are_the_binary_case(z, t):
    """The logits (0, z) say what the one logit z says."""
    both = cross_entropy(np.array([[0.0, z]]), np.array([t]))
    assert both == pytest.approx(bce_from_logits(z, t), rel=1e-8, abs=1e-12)


# ------------------------------------------------------------------------------- classes: hinge


def hinge(scores, labels):
    """sum over k != y of max(0, s_k - s_y + 1), averaged over samples."""
    own = scores[np.arange(len(labels)), labels][:, None]
    each = np.maximum(0, scores - own + 1)
    each[np.arange(len(labels)), labels] = 0
    return np.mean(np.sum(each, axis=1))


def engine_hinge(scores, labels):
    rows = np.arange(len(labels))
    own = ad.expand_dims(ad.index(scores, (rows, labels)), 1)
    others = 1.0 - np.eye(np.shape(getattr(scores, "val", scores))[1])[labels]
    return ad.sum(ad.maximum(scores - own + 1.0, 0.0) * others) / len(labels)


@pytest.mark.covers("O9")
@given(seed=SEEDS, classes=st.integers(2, 6), rows=st.integers(1, 7))
@settings(max_examples=25, deadline=None)
def test_hinge_is_c_times_the_margin_loss_of_torch(seed, classes, rows):
    draw = np.random.default_rng(seed)
    scores, labels = draw.normal(size=(rows, classes)), draw.integers(0, classes, rows)
    z, label = tensors(scores, labels)
    assert hinge(scores, labels) == pytest.approx(classes * F.multi_margin_loss(z, label).item())
    assert float(engine_hinge(ad.Var(scores), labels).val) == pytest.approx(hinge(scores, labels))


@pytest.mark.covers("O9")
@given(seed=SEEDS, classes=st.integers(2, 5))
@settings(max_examples=25, deadline=None)
def test_the_subgradient_of_hinge(seed, classes):
    """1 for each class inside the margin, minus their number for the right one; off the kinks."""
    draw = np.random.default_rng(seed)
    scores, labels = draw.normal(size=(4, classes)), draw.integers(0, classes, 4)
    rows = np.arange(4)
    lead = scores - scores[rows, labels][:, None] + 1
    if np.abs(lead[lead != 1]).min() < 1e-4:
        return  # on a kink there is more than one
    inside = 1.0 * (lead > 0)
    inside[rows, labels] = 0
    inside[rows, labels] = -inside.sum(axis=1)
    slope = inside / 4
    np.testing.assert_allclose(numeric_slope(lambda v: hinge(v, labels), scores), slope, atol=1e-6)
    label = torch.from_numpy(labels)
    by_torch = torch_slope(lambda v: classes * F.multi_margin_loss(v, label), scores)
    np.testing.assert_allclose(by_torch, slope, rtol=1e-8, atol=1e-12)
    by_engine = engine_slope(lambda v: engine_hinge(v, labels), scores)
    np.testing.assert_allclose(by_engine, slope, rtol=1e-8, atol=1e-12)


@pytest.mark.covers("O9")
def test_hinge_ends_where_cross_entropy_never_does():
    """By hand: margins 1.5, 1, 0.25; once all are at least 1, there is no loss and no slope."""
    labels = np.array([0])
    assert hinge(np.array([[2.0, 0.5, 1.0, 1.75]]), labels) == pytest.approx(0 + 0 + 0.75)
    for lead in (1.0, 1.5, 30.0):
        scores = np.array([[lead, 0.0, 0.0]])
        z, label = tensors(scores, labels)
        assert hinge(scores, labels) == 0 == F.multi_margin_loss(z, label).item()
        assert F.cross_entropy(z, label).item() > 0
        assert np.abs(torch_slope(lambda v, t=label: F.cross_entropy(v, t), scores)).max() > 0
        if lead > 1:
            slope = torch_slope(lambda v, t=label: F.multi_margin_loss(v, t), scores)
            assert not slope.any()
