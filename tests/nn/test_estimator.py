"""scikit-learn's own checks on every estimator of the zoo, and what the contract adds to them."""

import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    TransformerMixin,
    clone,
    is_classifier,
)  # fmt: skip
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

import everynet.zoo
from everynet.nn.estimator import (
    Caller,
    classification,
    converge,
    inputs,
    labels,
    regression,
    unsupervised,
)  # fmt: skip
from everynet.zoo.classic.logistic import LogisticRegression


def found():
    """Every estimator class that a file of the zoo defines: a new one is checked by itself."""
    root = Path(everynet.zoo.__file__).parent
    for path in sorted(root.glob("*/*.py")):
        if "BaseEstimator" in path.read_text():
            module = import_module(f"everynet.zoo.{path.parent.name}.{path.stem}")
            for _, cls in inspect.getmembers(module, inspect.isclass):
                if issubclass(cls, BaseEstimator) and cls.__module__ == module.__name__:
                    yield cls


def takes_tables(cls):
    """Others, such as those of texts, have tests of their own: scikit-learn has none for them."""
    return get_tags(cls()).input_tags.two_d_array


ESTIMATORS = list(filter(takes_tables, found()))
STORES_ANYTHING = "check_do_not_raise_errors_in_init_or_set_params"
EXCEPTIONS = {
    STORES_ANYTHING: "the tests check the types of arguments, also of __init__; a process without "
    "that is given this check below",
}
"""Checks that do not pass here, with the reason; for the package there is no exception."""


class Mean(RegressorMixin, BaseEstimator):
    """The smallest estimator on the contract."""

    def fit(self, X, y):
        _, targets, form = regression(self, X, y)
        self.mean_ = form.give(targets.mean())
        return self

    def predict(self, X):
        x, form = inputs(self, X)
        return form.give(form.take(self.mean_).expand(len(x)))


class First(ClassifierMixin, BaseEstimator):
    """Always says the first class."""

    def fit(self, X, y):
        _, self.index_, _ = classification(self, X, y)
        return self

    def predict(self, X):
        x, form = inputs(self, X)
        return labels(self, torch.zeros(len(x), dtype=torch.int64), form)


class Centre(TransformerMixin, BaseEstimator):
    """Learns the mean of the rows, without targets."""

    def fit(self, X, y=None):
        x, form = unsupervised(self, X)
        self.mean_ = form.give(x.mean(dim=0))
        return self

    def transform(self, X):
        x, form = inputs(self, X)
        return form.give(x - form.take(self.mean_))


def test_without_targets_rows_are_checked_and_come_back_as_they_came():
    x, _ = table()
    learned = Centre().fit(x)
    assert learned.n_features_in_ == 3
    torch.testing.assert_close(learned.transform(x), x - x.mean(0), rtol=0, atol=0)
    arrays = Centre().fit(x.numpy())
    assert type(arrays.mean_) is type(arrays.transform(x.tolist())) is np.ndarray
    with pytest.raises(ValueError, match="Input X contains NaN"):
        Centre().fit([[1.0], [float("nan")]])
    with pytest.raises(ValueError, match="X has 2 features, but Centre is expecting 3"):
        learned.transform(x[:, :2])
    with pytest.raises(NotFittedError, match="fit"):
        Centre().transform(x)


def test_estimators_are_found():
    names = {cls.__name__ for cls in ESTIMATORS}
    assert {"LeastSquares", "LogisticRegression", "SoftmaxRegression"} <= names


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [
        *(cls() for cls in ESTIMATORS),
        Centre(),
        LogisticRegression(solver="gradient-descent", max_iter=1000),
    ],
    expected_failed_checks=lambda estimator: EXCEPTIONS if estimator.get_params() else {},
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_the_exceptions_pass_without_the_checker_of_types():
    lines = [f"from sklearn.utils.estimator_checks import {STORES_ANYTHING} as check"]
    for cls in ESTIMATORS:
        lines += [f"from {cls.__module__} import {cls.__name__}"]
        lines += [f"check({cls.__name__!r}, {cls.__name__}())"]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)


# ------------------------------------------------------------------------- tensors in, tensors out


def table(seed=0, rows=30):
    x = torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x, (x[:, 0] > 0).long()


METHODS = ("predict", "predict_proba", "decision_function")


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_tensors_give_tensors_and_arrays_give_arrays_with_the_same_values(cls):
    x, y = table()
    y = y if is_classifier(cls()) else x @ torch.tensor([1.0, 2.0, 3.0]).double()
    with_tensors = cls().fit(x, y)
    with_arrays = cls().fit(x.numpy(), y.numpy())
    with_lists = cls().fit(x.tolist(), y.tolist())
    for name in filter(lambda name: hasattr(cls, name), METHODS):
        answer = getattr(with_tensors, name)(x)
        assert isinstance(answer, torch.Tensor)
        assert not answer.requires_grad
        for estimator, rows in ((with_arrays, x.numpy()), (with_lists, x.tolist()),
                                (with_tensors, x.numpy())):  # fmt: skip
            other = getattr(estimator, name)(rows)
            assert isinstance(other, np.ndarray)
            np.testing.assert_array_equal(other, answer.numpy())
        assert torch.equal(getattr(with_arrays, name)(x), answer)


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_what_is_learned_can_be_saved(cls):
    """Attributes that end in `_` are tensors (arrays where arrays came in), numbers or strings."""
    x, y = table()
    for rows, targets, kind in ((x, y, torch.Tensor), (x.numpy(), y.numpy(), np.ndarray)):
        learned = {k: v for k, v in vars(cls().fit(rows, targets)).items() if k.endswith("_")}
        assert learned
        assert all(isinstance(v, kind | int | float | str) for v in learned.values())


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_before_fit_an_error_names_fit(cls):
    for name in filter(lambda name: hasattr(cls, name), METHODS):
        with pytest.raises(NotFittedError, match="Call 'fit'"):
            getattr(cls(), name)(table()[0])


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_making_one_only_stores(cls):
    estimator = cls()
    names = set(inspect.signature(cls.__init__).parameters) - {"self", "args", "kwargs"}
    assert set(vars(estimator)) == (names if cls.__init__ is not object.__init__ else set())
    assert clone(estimator).get_params() == estimator.get_params()


@given(
    kind=st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
    grad=st.booleans(),
    value=st.integers(-50, 50),
)
@settings(max_examples=25, deadline=None)
def test_any_float_tensor_is_taken(kind, grad, value):
    y = torch.full((4,), float(value), dtype=kind, requires_grad=grad)
    x = torch.randn(4, 2).to(kind).requires_grad_(grad)
    answer = Mean().fit(x, y).predict(x)
    assert answer.dtype == torch.float64
    assert torch.equal(answer, torch.full((4,), float(value), dtype=torch.float64))


def test_an_array_that_runs_backwards_or_cannot_be_written_is_taken():
    x, y = (part.numpy() for part in table())
    y = y.astype(float)
    x.flags.writeable = y.flags.writeable = False
    assert Mean().fit(x[::-1], y[::-1]).predict(x[::-1])[0] == pytest.approx(y.mean())


@pytest.mark.parametrize(
    ("y", "form", "first"),
    [
        (np.array(["b", "a", "b"]), "tensor", "a"),
        (np.array(["b", "a", "b"]), "array", "a"),
        (np.array([7, 3, 7]), "tensor", 3),
        (np.array([True, False, True]), "tensor", False),
        (torch.tensor([7, 3, 7]), "tensor", 3),
        (torch.tensor([7, 3, 7]), "array", 3),
    ],
)
def test_labels_of_any_kind(y, form, first):
    """Labels come back as they were; those that are no numbers stay an array beside tensors."""
    x = torch.randn(3, 2, dtype=torch.float64)
    x = x if form == "tensor" else x.numpy()
    estimator = First().fit(x, y)
    answer = estimator.predict(x)
    tensors = form == "tensor" and not isinstance(first, str)
    assert isinstance(answer, torch.Tensor if tensors else np.ndarray)
    assert isinstance(estimator.classes_, torch.Tensor if tensors else np.ndarray)
    assert answer.tolist() == [first] * 3
    assert estimator.index_.tolist() == [1, 0, 1]


def test_results_return_to_the_callers_device():
    form = Caller.of(torch.empty(1, device="meta"))
    assert form.device == torch.device("meta")
    assert form.give(torch.ones(3)).device.type == "meta"
    assert Caller(None).take(np.ones(3)).device.type == "cpu"
    assert Caller(torch.device("mps")).take(np.ones(3)).device.type == "cpu"  # it has no float64


# ----------------------------------------------------------------------------------- convergence


def shrinking(start=1.0):
    value = torch.tensor([start, -start / 2])
    while True:
        yield value, value
        value = value / 10


def test_converge_stops_at_the_first_gradient_within_tol():
    weights, curve = converge(shrinking(), tol=1e-2, max_iter=100)
    torch.testing.assert_close(curve, torch.tensor([1.0, 0.1, 0.01]), rtol=1e-5, atol=0)
    torch.testing.assert_close(weights, torch.tensor([0.01, -0.005]))


def test_converge_warns_when_it_may_not_go_on():
    with pytest.warns(ConvergenceWarning, match=r"is 0\.01 after 2 steps, above tol \(1e-09\)"):
        _, curve = converge(shrinking(), tol=1e-9, max_iter=2)
    assert len(curve) == 3
    with pytest.warns(ConvergenceWarning, match="standardise the features or raise max_iter"):
        converge(iter([(torch.ones(1), torch.ones(1))]), tol=1e-9, max_iter=9)


# ----------------------------------------------------------------------------------------- errors


def test_one_class_is_refused():
    with pytest.raises(ValueError, match=r"y holds 1 class \(4\) and must hold at least 2"):
        First().fit(torch.randn(3, 2), torch.tensor([4, 4, 4]))


def test_nan_other_widths_and_numbers_for_classes_are_refused():
    x, y = table()
    with pytest.raises(ValueError, match="contains NaN"):
        First().fit(x * torch.nan, y)
    with pytest.raises(ValueError, match="2 features, but First is expecting 3"):
        First().fit(x, y).predict(x[:, :2])
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        First().fit(x, x[:, 0])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        First().fit(x, y[1:])
