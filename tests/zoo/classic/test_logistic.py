import math
from itertools import islice, pairwise

import numpy as np
import pytest
import sklearn.linear_model
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.classic.logistic import (
    RECIPES,
    LogisticObjective,
    LogisticRegression,
    TwoClasses,
    approximate_newton,
    descend,
    lbfgs,
    lbfgs_then_newton,
    newton,
)


def problem(seed=0, rows=40, features=3, l2=0.7):
    """Overlapping classes, and a point of the objective at random."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, features, generator=generator, dtype=torch.float64)
    noise = torch.randn(rows, generator=generator, dtype=torch.float64)
    y = (x[:, 0] + 2 * noise > 0).double()
    y[:2] = torch.tensor([0.0, 1.0])
    theta = torch.randn(features + 1, generator=generator, dtype=torch.float64)
    return LogisticObjective.of(x, y, l2), theta


def breast_cancer():
    x, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(x), y


# ---------------------------------------------------------------------------------- the equations


def test_the_objective_is_the_likelihood_with_its_exponents():
    """(3) from the product of y_hat^y (1 - y_hat)^(1-y), without its logarithm's shortcuts."""
    objective, theta = problem(l2=0.0)
    y_hat = 1 / (1 + (-(objective.x @ theta)).exp())
    likelihood = (y_hat**objective.y * (1 - y_hat) ** (1 - objective.y)).prod()
    assert objective.value(theta) == pytest.approx(-likelihood.log().item() / len(objective.y))
    penalised, _ = problem(l2=3.0)
    extra = 3.0 / (2 * len(objective.y)) * (theta[:-1] ** 2).sum()  # not of the intercept
    assert penalised.value(theta) == pytest.approx((objective.value(theta) + extra).item())


@given(seed=st.integers(0, 10_000), l2=st.floats(0, 10))
@settings(max_examples=25, deadline=None)
def test_gradient_and_hessian_are_those_of_automatic_differentiation(seed, l2):
    objective, theta = problem(seed, l2=l2)
    hessian = torch.autograd.functional.hessian(objective.value, theta)
    torch.testing.assert_close(objective.hessian(theta), hessian)
    value = objective.value(theta.requires_grad_())
    (gradient,) = torch.autograd.grad(value, theta)
    torch.testing.assert_close(objective.gradient(theta.detach()), gradient)


def test_the_unpenalised_gradient_is_features_times_error():
    objective, theta = problem(l2=0.0)
    error = (objective.x @ theta).sigmoid() - objective.y
    expected = [(objective.x[:, j] * error).mean().item() for j in range(len(theta))]
    assert objective.gradient(theta).tolist() == pytest.approx(expected)


@given(seed=st.integers(0, 10_000), l2=st.floats(0.01, 10))
@settings(max_examples=25, deadline=None)
def test_both_ways_fall_at_every_step(seed, l2):
    objective, _ = problem(seed, l2=l2)
    for solver, steps in ((newton, 8), (lbfgs, 20), (descend, 30)):
        values = [objective.value(theta).item() for theta, _ in islice(solver(objective), steps)]
        assert all(after <= before + 1e-15 for before, after in pairwise(values))
        assert values[-1] < values[0]


def test_a_descent_step_is_the_gradient_over_the_largest_curvature():
    """(6): no point curves more than L, and one of the points at theta = 0 curves by exactly L."""
    objective, _ = problem()
    (start, g), (after, _) = islice(descend(objective), 2)
    largest = torch.linalg.eigvalsh(objective.x.T @ objective.x)[-1] / (4 * len(objective.x))
    torch.testing.assert_close(after, start - g / (largest + 0.7 / len(objective.x)))
    curvature = torch.linalg.eigvalsh(objective.hessian(start))[-1]
    assert largest <= curvature <= largest + 0.7 / len(objective.x)


def test_a_newton_step_solves_the_linear_system():
    objective, _ = problem()
    (start, g), (after, _) = islice(newton(objective), 2)
    torch.testing.assert_close(objective.hessian(start) @ (start - after), g)


def test_newtons_line_search_tames_steps_that_overshoot():
    """With next to no penalty some whole steps raise J; those that are taken never do."""
    x, y = (torch.tensor(part) for part in breast_cancer())
    objective = LogisticObjective.of(x, y.double(), 1e-6)
    values, overshot = [], 0
    for theta, g in islice(newton(objective), 25):
        whole = torch.linalg.solve(objective.hessian(theta), g)
        values.append(objective.value(theta))
        overshot += bool(objective.value(theta - whole) > values[-1])
    assert overshot
    assert all(after <= before for before, after in pairwise(values))


def test_the_approximate_newton_step_is_that_of_the_bfgs_matrix():
    """(8): two loops give what the matrix of Broyden, Fletcher, Goldfarb and Shanno gives."""
    draw = torch.Generator().manual_seed(0)
    curved = torch.randn(6, 6, dtype=torch.float64, generator=draw)
    curved = curved @ curved.T + torch.eye(6)
    moved = [torch.randn(6, dtype=torch.float64, generator=draw) for _ in range(4)]
    steps = [(step, curved @ step) for step in moved]
    step, change = steps[-1]
    b, one = (step @ change) / (change @ change) * torch.eye(6).double(), torch.eye(6).double()
    for step, change in steps:
        left = one - step[:, None] * change / (step @ change)
        b = left @ b @ left.T + step[:, None] * step / (step @ change)
    g = torch.randn(6, dtype=torch.float64, generator=draw)
    torch.testing.assert_close(approximate_newton(g, steps), b @ g)
    torch.testing.assert_close(approximate_newton(g, []), g)


def test_the_first_step_of_lbfgs_is_the_best_for_the_curvature_along_the_gradient():
    objective, _ = problem()
    (start, g), (after, _) = islice(lbfgs(objective), 2)
    torch.testing.assert_close(start - after, g * (g @ g) / (g @ objective.hessian(start) @ g))


def test_newtons_method_goes_on_where_lbfgs_is_too_slow():
    """The columns of breast-cancer, left as they are, differ by factors of 10,000."""
    x, y = load_breast_cancer(return_X_y=True)
    objective = LogisticObjective.of(torch.tensor(x), torch.tensor(y).double(), 1.0)
    handed = 10 + (x.shape[1] + 1) // 2
    alone = [g.abs().max() for _, g in islice(lbfgs(objective), 100)]
    both = [g.abs().max() for _, g in islice(lbfgs_then_newton(objective), 100)]
    assert both[:handed] == alone[:handed]
    assert both[-1] < 1e-9 < alone[-1]
    theirs = sklearn.linear_model.LogisticRegression(solver="newton-cholesky", tol=1e-10).fit(x, y)
    model = LogisticRegression(tol=1e-9).fit(x, y)
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=1e-5)


# ---------------------------------------------------------------------------------- closed forms


@pytest.mark.parametrize("solver", ["auto", "newton", "gradient-descent"])
def test_a_two_by_two_table_gives_the_log_odds_ratio(solver):
    """With one binary feature and no penalty: b is the log-odds at 0, theta the log odds ratio."""
    counts = {(0, 0): 8, (0, 1): 4, (1, 0): 3, (1, 1): 9}
    x = torch.tensor([[float(f)] for (f, _), n in counts.items() for _ in range(n)])
    y = torch.tensor([c for (_, c), n in counts.items() for _ in range(n)])
    model = LogisticRegression(l2=0.0, solver=solver, tol=1e-12).fit(x, y)
    assert model.intercept_.item() == pytest.approx(math.log(4 / 8))
    assert model.coef_.item() == pytest.approx(math.log((9 / 3) / (4 / 8)))


def test_a_heavy_penalty_leaves_the_share_of_the_class():
    objective, _ = problem()
    x, y = objective.x[:, :-1], objective.y.long()
    model = LogisticRegression(l2=1e9).fit(x, y)
    assert model.coef_.abs().max() < 1e-6
    share = y.double().mean()
    assert model.intercept_.item() == pytest.approx(torch.logit(share).item(), abs=1e-5)


# ---------------------------------------------------------------------------- equal to references


@pytest.mark.covers("M19")
@pytest.mark.parametrize("l2", [0.1, 1.0, 10.0])
def test_newton_and_descent_equal_scikit_learn_on_breast_cancer(l2):
    x, y = breast_cancer()
    theirs = sklearn.linear_model.LogisticRegression(C=1 / l2, tol=1e-10, max_iter=10_000).fit(x, y)
    best = LogisticRegression(l2=l2).fit(x, y)
    np.testing.assert_allclose(best.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(best.intercept_, theirs.intercept_, atol=1e-4)
    np.testing.assert_allclose(best.predict_proba(x), theirs.predict_proba(x), atol=1e-4)
    assert best.gradient_curve_[-1] <= 1e-8
    if l2 >= 1:
        slow = LogisticRegression(l2=l2, solver="gradient-descent").fit(x, y)
        np.testing.assert_allclose(slow.coef_, theirs.coef_, atol=1e-4)
        np.testing.assert_allclose(slow.intercept_, theirs.intercept_, atol=1e-4)
        assert slow.n_iter_ > 100 * best.n_iter_


def test_without_a_penalty_on_overlapping_classes_equal_to_scikit_learn():
    objective, _ = problem(rows=60)
    x, y = objective.x[:, :-1].numpy(), objective.y.numpy()
    theirs = sklearn.linear_model.LogisticRegression(C=math.inf, tol=1e-10, max_iter=1000)
    ours = LogisticRegression(l2=0.0).fit(x, y)
    np.testing.assert_allclose(ours.coef_, theirs.fit(x, y).coef_, atol=1e-4)
    doubled = LogisticRegression(l2=0.0).fit(np.hstack([x, x]), y)  # H has no inverse
    np.testing.assert_allclose(doubled.coef_[:, :3], ours.coef_ / 2, atol=1e-6)


# -------------------------------------------------------------------------------------- the verdict


@pytest.mark.covers("M19")
def test_without_a_penalty_breast_cancer_has_no_finite_optimum():
    x, y = breast_cancer()
    with pytest.raises(UserError, match=r"l2 \(0\) must be positive .* no finite optimum exists"):
        LogisticRegression(l2=0.0).fit(x, y)
    norms = [np.linalg.norm(LogisticRegression(l2=l2).fit(x, y).coef_) for l2 in (1e-2, 1e-4, 1e-6)]
    assert norms[0] * 1.5 < norms[1] < norms[2] / 1.5  # it grows as the penalty goes


def test_probabilities_far_out_are_ordinary_numbers():
    x = torch.tensor([[-1e6], [1e6], [-2e6], [2e6]], dtype=torch.float64)
    model = LogisticRegression().fit(x, torch.tensor([0, 1, 0, 1]))
    probability = model.predict_proba(x)
    assert probability.isfinite().all()
    torch.testing.assert_close(probability.sum(dim=1), torch.ones(4).double())


# ------------------------------------------------------------------------------ errors and recipe


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"l2": -1.0}, r"l2 \(-1.0\) must be at least 0, because"),
        ({"l2": math.nan}, r"l2 \(nan\) must be at least 0, because"),
        ({"solver": "newtom"}, r"unknown solver 'newtom'; did you mean newton"),
    ],
)
def test_arguments_are_refused_by_name(arguments, message):
    with pytest.raises(UserError, match=message):
        LogisticRegression(**arguments).fit([[0.0], [1.0]], [0, 1])


def test_three_classes_are_refused():
    with pytest.raises(UserError, match=r"y \(3 classes\) must hold 2 classes.*softmax-regression"):
        LogisticRegression().fit([[0.0], [1.0], [2.0]], [0, 1, 2])


def test_too_few_steps_are_said():
    x, y = breast_cancer()
    with pytest.warns(ConvergenceWarning, match="after 5 steps"):
        LogisticRegression(solver="gradient-descent", max_iter=5).fit(x, y)


@pytest.mark.covers("M19")
@pytest.mark.parametrize("name", ["logistic", "logistic-descent"])
def test_the_recipe_reaches_its_goal(name, tmp_path):
    """The split is fixed and nothing is random, so one seed says it for all."""
    result = run(RECIPES[name], tmp_path)
    assert result.reached
    assert result.metrics["accuracy"] >= 0.95


def test_the_figures_of_the_recipe_and_its_predictions():
    recipe = RECIPES["logistic"]
    data = recipe.dataset()
    model = recipe.fit(recipe.model(data), data)
    x, y = data.splits["test"]
    metrics = recipe.metrics(model, (x, y))
    p = model.predict_proba(x)
    assert metrics["accuracy"].double().mean().item() == model.score(x, y)
    truth = p[torch.arange(len(y)), y]
    torch.testing.assert_close(metrics["cross_entropy"], -truth.log())
    answers = recipe.predict(model, x, data.spec)
    names = [data.spec["classes"][c] for c in model.predict(x).tolist()]
    assert [a["class"] for a in answers] == names
    assert [a["probability"] for a in answers] == pytest.approx(p.amax(dim=1).tolist())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"l2": -1.0}, r"l2 \(-1.0\) must be a number from 0 up"),
        ({"solver": "sgd"}, r"unknown solver 'sgd'; did you mean "),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        TwoClasses(**fields)


def test_data_with_more_classes_or_none_are_refused():
    for data in ("iris", "diabetes"):
        with pytest.raises(UserError, match=rf"data \({data}\) must have two classes"):
            TwoClasses(data=data).dataset()
