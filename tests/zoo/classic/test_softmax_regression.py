import math
from dataclasses import replace
from itertools import islice, pairwise

import numpy as np
import pytest
import sklearn.linear_model
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.preprocessing import StandardScaler
from torch.nn.functional import one_hot

from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.classic.logistic import LogisticRegression
from everynet.zoo.classic.softmax_regression import (
    RECIPES,
    ManyClasses,
    SoftmaxObjective,
    SoftmaxRegression,
    newton,
    solve,
)


def problem(seed=0, rows=50, features=3, classes=4, l2=0.7):
    """Classes that overlap, and a point of the objective at random."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, features, generator=generator, dtype=torch.float64)
    y = torch.randint(classes, (rows,), generator=generator)
    y[:classes] = torch.arange(classes)
    theta = torch.randn(features + 1, classes, generator=generator, dtype=torch.float64)
    return SoftmaxObjective.of(x, y, l2), theta


# ---------------------------------------------------------------------------------- the equations


def test_the_objective_is_the_mean_negative_log_probability_of_the_true_class():
    objective, theta = problem(l2=3.0)
    e = (objective.x @ theta).exp()
    p = e / e.sum(dim=1, keepdim=True)
    loss = -sum(math.log(p[i, k]) for i, k in enumerate(objective.y.tolist())) / len(p)
    extra = 3.0 / (2 * len(p)) * (theta[:-1] ** 2).sum().item()  # not of the intercepts
    assert objective.value(theta).item() == pytest.approx(loss + extra)


@given(seed=st.integers(0, 10_000), classes=st.integers(2, 5), l2=st.floats(0, 10))
@settings(max_examples=25, deadline=None)
def test_gradient_and_curvature_are_those_of_automatic_differentiation(seed, classes, l2):
    objective, theta = problem(seed, classes=classes, l2=l2)
    v = torch.randn(theta.shape, generator=torch.Generator().manual_seed(seed)).double()
    p = (objective.x @ theta).softmax(dim=1)
    _, product = torch.autograd.functional.vhp(objective.value, theta, v)
    torch.testing.assert_close(objective.curvature(v, p), product)
    (gradient,) = torch.autograd.grad(objective.value(theta.requires_grad_()), theta)
    torch.testing.assert_close(objective.gradient(theta.detach(), p), gradient)


def test_the_unpenalised_gradient_is_features_times_error():
    objective, theta = problem(l2=0.0)
    p = (objective.x @ theta).softmax(dim=1)
    error = p - one_hot(objective.y)
    for j in range(objective.x.shape[1]):
        for k in range(error.shape[1]):
            expected = (objective.x[:, j] * error[:, k]).mean()
            torch.testing.assert_close(objective.gradient(theta, p)[j, k], expected)


def test_conjugate_gradients_solve_to_the_accuracy_they_promise():
    objective, theta = problem(l2=2.0)
    p = (objective.x @ theta).softmax(dim=1)
    for size in (1.0, 1e-4, 1e-8):
        g = size * objective.gradient(theta, p)
        rest = (objective.curvature(solve(objective, p, g), p) - g).norm()
        assert rest <= g.norm() * min(0.5, g.norm().sqrt().item()) * (1 + 1e-6)


def test_newton_ends_quadratically():
    objective, _ = problem(l2=1.0)
    sizes = [g.abs().max().item() for _, g in islice(newton(objective), 8)]
    assert sizes[-1] < 1e-12
    assert all(after < before for before, after in pairwise(sizes[:6]))


def test_newtons_line_search_tames_steps_that_overshoot():
    """With next to no penalty some whole steps raise J; those that are taken never do."""
    x, y = load_breast_cancer(return_X_y=True)
    x = torch.tensor(StandardScaler().fit_transform(x))
    objective = SoftmaxObjective.of(x, torch.tensor(y), 1e-8)
    values, overshot = [], 0
    for theta, g in islice(newton(objective), 34):
        whole = solve(objective, (objective.x @ theta).softmax(dim=1), g)
        values.append(objective.value(theta))
        overshot += bool(objective.value(theta - whole) > values[-1])
    assert overshot
    assert all(after <= before for before, after in pairwise(values))


# ---------------------------------------------------------------------------------- closed forms


def test_without_features_the_probabilities_are_the_shares_of_the_classes():
    y = torch.tensor([0] * 5 + [1] * 3 + [2] * 2)
    model = SoftmaxRegression().fit(torch.zeros(10, 2), y)
    p = model.predict_proba(torch.zeros(1, 2))[0]
    assert p.tolist() == pytest.approx([0.5, 0.3, 0.2], abs=1e-6)


@pytest.mark.parametrize("l2", [0.2, 1.0, 30.0])
def test_two_classes_are_logistic_regression_with_half_the_penalty(l2):
    """Theta = (-theta/2, theta/2) has half the squared length of theta."""
    objective, _ = problem(classes=2)
    x, y = objective.x[:, :-1], objective.y
    softmax = SoftmaxRegression(l2=l2).fit(x, y)
    logistic = LogisticRegression(l2=l2 / 2).fit(x, y)
    torch.testing.assert_close(
        softmax.predict_proba(x), logistic.predict_proba(x), atol=1e-6, rtol=0
    )
    torch.testing.assert_close(softmax.coef_[1:], logistic.coef_ / 2, atol=1e-5, rtol=0)
    torch.testing.assert_close(
        softmax.decision_function(x), logistic.decision_function(x), atol=1e-5, rtol=0
    )


def test_no_class_is_favoured():
    """The weights of the classes sum to zero: what is common to all scores changes nothing."""
    objective, _ = problem()
    model = SoftmaxRegression().fit(objective.x[:, :-1], objective.y)
    assert model.coef_.sum(dim=0).abs().max() < 1e-9
    assert model.intercept_.sum().abs() < 1e-9


# ---------------------------------------------------------------------------- equal to references


@pytest.mark.covers("M20")
@pytest.mark.parametrize("l2", [0.1, 1.0])
def test_equal_to_scikit_learn_on_digits(l2):
    x, y = load_digits(return_X_y=True)
    x = (x - x.mean()) / x.std()
    theirs = sklearn.linear_model.LogisticRegression(C=1 / l2, tol=1e-8, max_iter=5000).fit(x, y)
    ours = SoftmaxRegression(l2=l2).fit(x, y)
    np.testing.assert_allclose(ours.predict_proba(x), theirs.predict_proba(x), atol=1e-4)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-3)
    assert (ours.predict(x) == theirs.predict(x)).all()


def test_without_a_penalty_on_overlapping_classes_equal_to_scikit_learn():
    objective, _ = problem(rows=120)
    x, y = objective.x[:, :-1].numpy(), objective.y.numpy()
    theirs = sklearn.linear_model.LogisticRegression(C=math.inf, tol=1e-10, max_iter=5000)
    ours = SoftmaxRegression(l2=0.0).fit(x, y)
    np.testing.assert_allclose(ours.predict_proba(x), theirs.fit(x, y).predict_proba(x), atol=1e-5)


# ------------------------------------------------------------------------------ errors and recipe


def test_without_a_penalty_separable_classes_have_no_finite_optimum():
    x, y = load_iris(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    with pytest.raises(UserError, match=r"l2 \(0\) must be positive .* no finite optimum exists"):
        SoftmaxRegression(l2=0.0).fit(x, y)
    setosa = [np.linalg.norm(SoftmaxRegression(l2).fit(x, y).coef_[0]) for l2 in (1e-2, 1e-4, 1e-6)]
    assert setosa[0] * 1.2 < setosa[1] < setosa[2] / 1.2  # it grows as the penalty goes


def test_a_negative_penalty_is_refused():
    with pytest.raises(UserError, match=r"l2 \(-2.0\) must be at least 0, because"):
        SoftmaxRegression(l2=-2.0).fit([[0.0], [1.0]], [0, 1])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"l2": -1.0}, r"l2 \(-1.0\) must be a number from 0 up"),
        ({"tol": 0.0}, r"tol \(0.0\) must be between 0 and 1"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        ManyClasses(**fields)


def test_numbers_for_classes_are_refused():
    with pytest.raises(UserError, match=r"data \(diabetes\) must have classes"):
        ManyClasses(data="diabetes").dataset()


@pytest.mark.covers("M20")
def test_the_recipe_reaches_its_goal(tmp_path):
    """The split is fixed and nothing is random, so one seed says it for all."""
    result = run(RECIPES["softmax-regression"], tmp_path)
    assert result.reached
    assert result.metrics["accuracy"] >= 0.95


def test_the_figures_of_the_recipe_and_its_predictions():
    recipe = replace(RECIPES["softmax-regression"], data="wine")
    data = recipe.dataset()
    model = recipe.fit(recipe.model(data), data)
    x, y = data.splits["test"]
    metrics, p = recipe.metrics(model, (x, y)), model.predict_proba(x)
    assert metrics["accuracy"].double().mean().item() == model.score(x, y)
    torch.testing.assert_close(metrics["cross_entropy"], -p[torch.arange(len(y)), y].log())
    answers = recipe.predict(model, x, data.spec)
    assert [a["class"] for a in answers] == [data.spec["classes"][c] for c in model.predict(x)]
    assert [a["probability"] for a in answers] == pytest.approx(p.amax(dim=1).tolist())


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.covers("M20")
def test_mnist_reaches_its_goal(tmp_path):
    """Nothing is random, so one seed says it for all; `tol` is where validation was best."""
    result = run(RECIPES["softmax-regression-mnist"], tmp_path)
    assert result.reached
    assert result.metrics["accuracy"] >= 0.92
