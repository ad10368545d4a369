import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_iris

from everynet.metrics import separability
from everynet.metrics.separability import separating_weights
from everynet.system.errors import UserError

SQUARE = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]).double()


def left_sides(x, y, weights):
    """(1) written out: how far each sample's own class is above each other class."""
    scores = torch.cat([x, torch.ones(len(x), 1).double()], dim=1) @ weights
    own = scores.gather(1, y[:, None])
    others = torch.ones_like(scores, dtype=torch.bool).scatter(1, y[:, None], value=False)
    return (own - scores)[others]


@pytest.mark.parametrize(
    ("y", "separable"),
    [([0, 0, 0, 1], True), ([0, 1, 1, 1], True), ([0, 1, 1, 0], False), ([1, 0, 0, 1], False)],
)
def test_and_and_or_are_separable_and_xor_is_not(y, separable):
    y = torch.tensor(y)
    weights = separating_weights(SQUARE, y)
    assert (weights is not None) == separable
    if weights is not None:
        assert left_sides(SQUARE, y, weights).min() >= -1e-9


def test_quasi_complete_separation_counts():
    """Two samples lie on the boundary, none on the wrong side of it."""
    x, y = torch.tensor([[0.0], [1.0], [1.0], [2.0]]).double(), torch.tensor([0, 0, 1, 1])
    weights = separating_weights(x, y)
    assert weights is not None
    sides = left_sides(x, y, weights)
    assert sides[1] == pytest.approx(0, abs=1e-9)
    assert sides.min() >= -1e-9
    assert sides.max() > 1e-3
    assert separating_weights(torch.tensor([[0.0], [2.0], [1.0], [3.0]]).double(), y) is None


@given(
    seed=st.integers(0, 10_000),
    features=st.integers(1, 5),
    classes=st.integers(2, 4),
    scale=st.floats(-4, 4),
)
@settings(max_examples=25, deadline=None)
def test_classes_cut_out_by_hyperplanes_are_separated(seed, features, classes, scale):
    """Labels that linear scores gave can be given by linear scores; a certificate comes back."""
    generator = torch.Generator().manual_seed(seed)
    x = 10**scale * torch.randn(60, features, generator=generator, dtype=torch.float64)
    truth = torch.randn(features, classes, generator=generator, dtype=torch.float64)
    y = (x @ truth).argmax(dim=1)
    y = torch.unique(y, return_inverse=True)[1]
    if int(y.max()) == 0:
        return
    weights = separating_weights(x, y)
    assert weights is not None
    sides = left_sides(x, y, weights)
    assert sides.min() >= -1e-7 * sides.max()


@given(seed=st.integers(0, 10_000), features=st.integers(1, 4), classes=st.integers(2, 3))
@settings(max_examples=25, deadline=None)
def test_classes_that_surround_the_same_points_overlap(seed, features, classes):
    """Where each class has a point either way along each axis, no direction is right for all."""
    generator = torch.Generator().manual_seed(seed)
    cross = torch.cat([torch.eye(features), -torch.eye(features)]).double()
    noise = 0.1 * torch.randn(classes, *cross.shape, generator=generator, dtype=torch.float64)
    x = (cross + noise).reshape(-1, features)
    y = torch.arange(classes).repeat_interleave(len(cross))
    assert separating_weights(x, y) is None


def test_real_tables():
    x, y = (torch.tensor(part) for part in load_breast_cancer(return_X_y=True))
    assert separating_weights(x, y) is not None
    x, y = (torch.tensor(part) for part in load_iris(return_X_y=True))
    assert separating_weights(x, y) is not None  # setosa from the others
    assert separating_weights(x[y > 0], y[y > 0] - 1) is None  # the two others overlap


def test_a_program_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(separability, "LARGEST", 20)
    with pytest.raises(UserError, match=r"the data \(4 samples, 2 features, 2 classes\) must make"):
        separating_weights(SQUARE, torch.tensor([0, 0, 0, 1]))


def test_a_solver_that_fails_is_not_believed(monkeypatch):
    monkeypatch.setattr(
        separability, "linprog", lambda *_, **__: type("R", (), {"x": None, "message": "no"})
    )
    with pytest.raises(ArithmeticError, match="linear program of separability failed: no"):
        separating_weights(SQUARE, torch.tensor([0, 0, 0, 1]))
