import itertools
import math

import numpy as np
import pytest
import sklearn.svm
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.classic import svm
from everynet.zoo.classic.svm import (
    RECIPES,
    SVC,
    Kernel,
    KernelClassifier,
    LinearSVC,
    Pairs,
    conditions,
    dual_value,
    fit_pairs,
    kkt_residuals,
    vote,
)

XOR = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]]), np.array([0, 0, 1, 1])


def breast_cancer():
    x, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(x), y


# ---------------------------------------------------------------------------------- closed forms


@pytest.mark.covers("M21")
def test_two_points_have_their_perpendicular_bisector():
    """w = 2 (z - x) / |z - x|^2, whose length is 2 / |z - x|, and f = -1 and 1 at the points."""
    x = np.array([[1.0, 2.0], [4.0, 6.0]])
    machine = LinearSVC(C=10.0).fit(x, [0, 1])
    np.testing.assert_allclose(machine.coef_[0], 2 * (x[1] - x[0]) / 25)
    np.testing.assert_allclose(machine.decision_function(x), [-1, 1])
    assert machine.decision_function([[2.5, 4.0]])[0] == pytest.approx(0)


@pytest.mark.covers("M21")
def test_the_polynomial_kernel_is_the_product_of_its_features():
    """(x.z + c)^2 in the plane: x1^2, x2^2, sqrt(2) x1 x2, sqrt(2c) x1, sqrt(2c) x2 and c."""
    random = torch.Generator().manual_seed(0)
    x, z = (torch.randn(5, 2, generator=random, dtype=torch.float64) for _ in range(2))
    gamma, c = 0.7, 1.3

    def phi(u):
        a, b = (gamma**0.5 * u).T
        root = math.sqrt(2 * c)
        return torch.stack(
            [a**2, b**2, 2**0.5 * a * b, root * a, root * b, torch.full_like(a, c)], 1
        )

    kernel = Kernel("poly", gamma, 2, c)
    torch.testing.assert_close(kernel(x, z), phi(x) @ phi(z).T)
    torch.testing.assert_close(kernel.diagonal(x), phi(x).square().sum(1))


@pytest.mark.covers("M21")
def test_a_machine_of_a_kernel_is_the_linear_one_of_its_features():
    """phi(x) = x1 x2 alone tells XOR apart, and x1^2, x2^2 do not disturb it."""
    x, y = XOR
    features = np.stack([x[:, 0] ** 2, x[:, 1] ** 2, 2**0.5 * x[:, 0] * x[:, 1]], 1)
    kernel = SVC(C=5.0, kernel="poly", degree=2, gamma=1.0, tol=1e-8).fit(x, y)
    linear = LinearSVC(C=5.0, tol=1e-8).fit(features, y)
    np.testing.assert_allclose(kernel.decision_function(x), linear.decision_function(features))


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (Kernel("linear"), lambda u, v: u @ v),
        (Kernel("poly", 0.5, 3, 2.0), lambda u, v: (0.5 * (u @ v) + 2) ** 3),
        (Kernel("rbf", 0.3), lambda u, v: math.exp(-0.3 * ((u - v) ** 2).sum())),
    ],
)
def test_kernels_entry_by_entry(kernel, expected):
    random = torch.Generator().manual_seed(1)
    x, z = (torch.randn(n, 4, generator=random, dtype=torch.float64) for n in (6, 3))
    for i, j in itertools.product(range(6), range(3)):
        assert kernel(x, z)[i, j].item() == pytest.approx(float(expected(x[i], z[j])))
    torch.testing.assert_close(kernel.diagonal(x), kernel(x, x).diag())
    single = kernel(x.float(), z.float())
    torch.testing.assert_close(single.double(), kernel(x, z), rtol=1e-4, atol=1e-5)


@pytest.mark.covers("M21")
def test_xor_fails_for_a_line_and_is_solved_by_a_kernel():
    x, y = XOR
    assert LinearSVC(C=1.0).fit(x, y).score(x, y) <= 0.75
    assert SVC(C=10.0, gamma=1.0).fit(x, y).score(x, y) == 1


def test_votes_and_margins_by_hand():
    """Class 1 beats 0 and 2; a tie of all three goes to the largest margins."""
    f = torch.tensor([[2.0, -1.0, -3.0], [1.0, -1.0, 5.0]], dtype=torch.float64)  # 01, 02, 12
    scores = vote(f, 3)
    margins = torch.tensor([-2.0 + 1.0, 2.0 + 3.0, -1.0 - 3.0], dtype=torch.float64)
    expected = torch.tensor([1.0, 2.0, 0.0]) + margins / (3 * margins.abs() + 3)
    torch.testing.assert_close(scores[0], expected.double())
    assert scores[1].argmax() == 2


# ------------------------------------------------------------------------------ equal to references


@pytest.mark.covers("M21")
@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf"])
@pytest.mark.parametrize("C", [0.1, 10.0])
def test_equal_to_scikit_learn_on_breast_cancer(kernel, C):
    x, y = breast_cancer()
    theirs = sklearn.svm.SVC(C=C, kernel=kernel, tol=1e-6, coef0=0.5).fit(x, y)
    ours = SVC(C=C, kernel=kernel, tol=1e-6, coef0=0.5).fit(x, y)
    np.testing.assert_allclose(
        ours.decision_function(x), theirs.decision_function(x), atol=1e-3, rtol=1e-4
    )
    assert (ours.predict(x) == theirs.predict(x)).all()
    shared = np.isin(ours.support_, theirs.support_).mean()
    assert shared > 0.98
    if kernel == "linear":
        straight = LinearSVC(C=C, tol=1e-6).fit(x, y)
        np.testing.assert_allclose(straight.coef_, theirs.coef_, atol=1e-3)
        np.testing.assert_allclose(
            straight.decision_function(x), ours.decision_function(x), atol=1e-6
        )


@pytest.mark.parametrize("weight", [None, "balanced", {0: 5.0, 1: 1.0, 2: 0.2}])
def test_several_classes_and_their_weights_are_scikit_learns(weight):
    x, y = load_iris(return_X_y=True)
    given = {"C": 0.5, "tol": 1e-7, "class_weight": weight}
    ours = SVC(**given).fit(x, y)
    theirs = sklearn.svm.SVC(**given).fit(x, y)
    np.testing.assert_allclose(ours.decision_function(x), theirs.decision_function(x), atol=1e-3)
    pairs = theirs.set_params(decision_function_shape="ovo").decision_function(x)
    np.testing.assert_allclose(ours.pair_decisions(x), -pairs, atol=1e-3)
    assert ours.gamma_ == pytest.approx(theirs._gamma)
    assert (ours.predict(x) == theirs.predict(x)).all()


@pytest.mark.covers("M21")
def test_float32_stays_within_the_tolerance(monkeypatch):
    """Digits are many enough for it; where C makes it too coarse it is not used."""
    x, y = load_digits(return_X_y=True)
    single = SVC(tol=1e-6).fit(x, y)
    monkeypatch.setattr(svm, "MANY", 10**12)
    double = SVC(tol=1e-6).fit(x, y)
    f, g = (m.pair_decisions(x[:200]) for m in (single, double))
    assert 0 < np.abs(f - g).max() < 1e-4
    monkeypatch.setattr(svm, "MANY", 10)
    rows = torch.tensor(x) - torch.tensor(x).mean(0)
    kernel = Kernel("rbf", single.gamma_)
    assert kernel.suits_float32(rows, 1.0)
    assert not kernel.suits_float32(rows, 1e6)
    assert not Kernel("poly").suits_float32(rows, 1.0)
    monkeypatch.setattr(svm, "CHUNK", 1)  # one row at a time
    np.testing.assert_allclose(single.pair_decisions(x[:20]), f[:20], atol=1e-4)


# ------------------------------------------------------------------------------------ properties


@pytest.mark.covers("M21")
@given(seed=st.integers(0, 10_000), C=st.floats(0.05, 50), kernel=st.sampled_from(svm.KERNELS))
@settings(max_examples=25, deadline=None)
def test_the_conditions_hold_and_the_duality_gap_is_closed(seed, C, kernel):
    """At the maximum W equals the primal |w|^2 / 2 + C sum of hinge losses."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(40, 3, generator=random, dtype=torch.float64)
    y = (x[:, 0] + torch.randn(40, generator=random).double() > 0).long()
    y[:2] = torch.tensor([0, 1])
    model = SVC(C, kernel, degree=2, gamma=0.5, coef0=1.0, tol=1e-6).fit(x, y)
    alpha, margin, bound = conditions(model, x, y)
    assert kkt_residuals(alpha, margin, bound).max() < 1e-3
    beta = torch.zeros(40, dtype=torch.float64)
    beta[model.support_] = model.dual_coef_[0]
    k, side = model._kernel()(x, x), 2.0 * y.double() - 1
    primal = beta @ k @ beta / 2 + (C * (1 - margin).clamp(min=0)).sum()
    assert dual_value(beta, side, k).item() == pytest.approx(primal.item(), rel=1e-4, abs=1e-4)
    assert (alpha <= C).all()


def test_each_broken_condition_counts_by_how_much():
    alpha, bound = torch.tensor([0.0, 0.0, 0.5, 0.5, 1.0, 1.0]), torch.ones(6)
    margin = torch.tensor([1.5, 0.75, 1.25, 0.75, 0.5, 1.25])
    assert kkt_residuals(alpha, margin, bound).tolist() == [0, 0.25, 0.25, 0.25, 0, 0.25]


def test_only_support_vectors_are_kept_and_alone_decide():
    x, y = breast_cancer()
    model = SVC(tol=1e-8).fit(x, y)
    assert model.support_vectors_.shape == (len(model.support_), 30)
    assert 50 < len(model.support_) < len(x) / 3
    assert (model.dual_coef_ != 0).all()
    np.testing.assert_array_equal(model.support_vectors_, x[model.support_])
    again = SVC(gamma=model.gamma_, tol=1e-8).fit(x[model.support_], y[model.support_])
    np.testing.assert_allclose(again.decision_function(x), model.decision_function(x), atol=1e-3)


def test_tensors_give_tensors_and_labels_come_back():
    x, y = load_iris(return_X_y=True)
    model = SVC().fit(torch.tensor(x), torch.tensor(y))
    assert isinstance(model.decision_function(torch.tensor(x)), torch.Tensor)
    names = SVC().fit(x, np.array(["a", "b", "c"])[y])
    assert set(names.predict(x)) == {"a", "b", "c"}
    assert (np.array(["a", "b", "c"])[model.predict(x)] == names.predict(x)).all()


def test_in_a_pipeline_with_a_grid_search():
    x, y = load_iris(return_X_y=True)
    grid = {"svc__C": [0.1, 1.0], "svc__kernel": ["linear", "rbf"]}
    search = GridSearchCV(make_pipeline(StandardScaler(), SVC()), grid, cv=3).fit(x, y)
    assert search.best_score_ > 0.93


# ------------------------------------------------------------------------------ errors and recipe


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"C": 0.0}, r"C \(0.0\) must be a positive number, because it is the most that one"),
        ({"C": math.inf}, r"C \(inf\) must be a positive number"),
        ({"kernel": "rfb"}, r"unknown kernel 'rfb'; did you mean rbf"),
        ({"gamma": -1.0}, r"gamma \(-1.0\) must be a positive number, or scale or auto"),
        ({"gamma": "wide"}, r"gamma \(wide\) must be a positive number, or scale or auto"),
        ({"degree": 0}, r"degree \(0\) must be at least 1"),
    ],
)
def test_settings_are_refused(given, message):
    with pytest.raises(UserError, match=message):
        SVC(**given).fit(*XOR)


def test_data_are_refused():
    with pytest.raises(ValueError, match="y holds 1 class"):
        SVC().fit(XOR[0], [1, 1, 1, 1])
    with pytest.raises(ValueError, match="Input X contains NaN"):
        SVC().fit([[math.nan], [1.0]], [0, 1])
    with pytest.raises(ValueError, match="the kernel is too large for some rows; scale"):
        SVC(kernel="poly", gamma=1.0, degree=9).fit(1e60 * XOR[0], XOR[1])
    with pytest.warns(ConvergenceWarning, match=r"is not yet met after 2 steps for classes 0 and"):
        SVC(max_iter=2).fit(*breast_cancer())


def test_columns_that_are_constant_change_nothing():
    x, y = XOR
    wide = np.column_stack([x, np.full(4, 7.0)])
    one = SVC(gamma=1.0).fit(x, y).decision_function(x)
    np.testing.assert_allclose(SVC(gamma=1.0).fit(wide, y).decision_function(wide), one)
    still = SVC().fit(np.ones((4, 2)), y)  # nothing to learn from: any answer, but no error
    assert still.gamma_ == 0.5
    assert still.decision_function(np.ones((1, 2)))[0] == pytest.approx(0)


@pytest.mark.parametrize("many", [10, 10**12])
def test_a_column_that_no_vector_varies_still_counts_as_distance(many, monkeypatch):
    """New rows may differ where all that were learned from are the same."""
    monkeypatch.setattr(svm, "MANY", many)
    x, y = load_iris(return_X_y=True)
    ours, theirs = SVC(tol=1e-6), sklearn.svm.SVC(tol=1e-6, decision_function_shape="ovo")
    x = np.column_stack([x, np.full(len(x), 3.0)])
    new = x[::7] + np.array([0, 0, 0, 0, 0.5])
    f, g = ours.fit(x, y).pair_decisions(new), theirs.fit(x, y).decision_function(new)
    np.testing.assert_allclose(f, -g, atol=1e-4)  # above 0 is the second class of a pair
    assert np.abs(f - ours.pair_decisions(x[::7])).max() > 0.01


def test_another_number_of_pairs_is_refused():
    model = SVC().fit(*load_iris(return_X_y=True))
    model.check_learned()
    model.dual_coef_, model.intercept_, model.n_iter_ = (
        each[:2] for each in (model.dual_coef_, model.intercept_, model.n_iter_)
    )
    with pytest.raises(ValueError, match=r"intercept_ \(2\) must have 3, one a pair of classes"):
        model.check_learned()


def test_each_pair_learns_from_its_own_rows():
    x, y = load_iris(return_X_y=True)
    x, y = torch.tensor(x), torch.tensor(y)
    found = fit_pairs(x, y, Kernel("linear"), [1.0] * 3, tol=1e-6, max_iter=9999, cache_size=1.0)
    assert isinstance(found, Pairs)
    assert (found.beta[1][y == 1] == 0).all()
    assert (found.beta[1][y == 0] <= 0).all()
    alone = LinearSVC(tol=1e-6).fit(x[y != 1], y[y != 1])
    torch.testing.assert_close(found.beta[1] @ x, alone.coef_[0], atol=1e-6, rtol=0)


@pytest.mark.covers("M21")
@pytest.mark.parametrize("name", ["svm", "svm-xor"])
def test_the_recipes_reach_their_goals(name, tmp_path):
    """The split is fixed and nothing is random, so one seed says it for all."""
    result = run(RECIPES[name], tmp_path)
    assert result.reached
    assert result.metrics["kkt"] < 1e-3


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.covers("M21")
def test_mnist_reaches_its_goal(tmp_path):
    assert run(RECIPES["svm-mnist"], tmp_path).reached


def test_predictions_have_a_class_and_scores():
    recipe = RECIPES["svm"]
    data = recipe.dataset()
    model = recipe.fit(recipe.model(data), data)
    x = data.splits["test"][0][:5]
    for answer, f in zip(
        recipe.predict(model, x, data.spec), model.decision_function(x), strict=True
    ):
        first, second = data.spec["classes"]
        assert answer["scores"] == {first: pytest.approx(-f), second: pytest.approx(f)}
        assert answer["class"] == (second if f > 0 else first)
        assert answer["score"] == max(answer["scores"].values())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"C": 0.0}, r"C \(0.0\) must be a positive number"),
        ({"kernel": "rfb"}, "unknown kernel 'rfb'; did you mean rbf"),
        ({"gamma": -1.0}, r"gamma \(-1.0\) must be a number from 0"),
        ({"class_weight": "even"}, r"class_weight \(even\) must be empty or balanced"),
    ],
)
def test_settings_of_the_recipe_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        KernelClassifier(**fields)


def test_numbers_for_classes_are_refused():
    with pytest.raises(UserError, match=r"data \(diabetes\) must have classes"):
        KernelClassifier(data="diabetes").dataset()
