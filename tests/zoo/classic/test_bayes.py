import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.datasets import load_diabetes
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import BayesianRidge, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.classic.bayes import (
    RECIPES,
    BayesianRegression,
    BetaBernoulli,
    Coin,
    RegressionWithIntervals,
    log_evidence,
)

X, Y = load_diabetes(return_X_y=True)


def flips(*columns):
    return torch.tensor(columns, dtype=torch.float64).T


def line(seed=0, n=12, d=2):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=draw, dtype=torch.float64) + 2
    y = x @ torch.arange(1.0, d + 1).double() + torch.randn(n, generator=draw).double()
    return x, y


@pytest.mark.covers("M16")
@given(a=st.floats(0.3, 5), b=st.floats(0.3, 5), heads=st.integers(0, 6), tails=st.integers(0, 6))
@settings(max_examples=20, deadline=None)
def test_the_posterior_is_bayes_rule_on_a_grid(a, b, heads, tails):
    """(1) to (3): prior times likelihood, divided by its sum over midpoints in arcsine spacing."""
    if heads + tails == 0:
        return
    model = BetaBernoulli(a, b).fit(flips([1] * heads + [0] * tails))
    u = (torch.arange(40_000, dtype=torch.float64) + 0.5) / 40_000 * math.pi / 2
    theta = u.sin() ** 2
    log_p = (a + heads - 0.5) * theta.log() + (b + tails - 0.5) * (1 - theta).log()
    p = log_p.softmax(0)
    assert model.probability()[0].item() == pytest.approx(float(p @ theta), abs=1e-4)
    counts = torch.stack(
        [math.comb(4, k) * p @ (theta**k * (1 - theta) ** (4 - k)) for k in range(5)]
    )
    torch.testing.assert_close(model.log_count(4)[0].exp(), counts, atol=1e-4, rtol=0)
    low, high = model.interval(0.8)
    assert float(p[theta < low].sum()) == pytest.approx(0.1, abs=1e-3)
    assert float(p[theta > high].sum()) == pytest.approx(0.1, abs=1e-3)


def test_a_coin_by_hand():
    """Laplace's rule: 3 heads of 3 flips and an even prior give 4/5, not certainty."""
    model = BetaBernoulli().fit(flips([1, 1, 1], [0, 1, 0]))
    assert model.probability().tolist() == pytest.approx([4 / 5, 2 / 5])
    assert model.score(flips([1], [0])) == pytest.approx(math.log(4 / 5 * 3 / 5))
    theirs = stats.betabinom(10, 4, 1).pmf(np.arange(11))
    np.testing.assert_allclose(model.log_count(10)[0].exp(), theirs, rtol=1e-10)


@pytest.mark.covers("M16")
@given(heads=st.integers(0, 20), tails=st.integers(0, 20))
@settings(max_examples=20, deadline=None)
def test_the_prediction_varies_more_than_with_one_bias(heads, tails):
    if heads + tails:
        model, k = BetaBernoulli().fit(flips([1] * heads + [0] * tails)), torch.arange(11).double()
        p, mean = model.log_count(10)[0].exp(), model.probability()[0]
        assert p @ (k - p @ k) ** 2 > 10 * mean * (1 - mean)


def test_samples_of_a_coin():
    """Within five standard errors of 10,000 flips."""
    model = BetaBernoulli().fit(flips([1, 1, 1, 0]))
    made = model.sample(10_000, torch.Generator().manual_seed(0))
    assert abs(made.mean() - 2 / 3) < 5 * 0.5 / 100


@pytest.mark.parametrize(
    ("given", "x", "error"),
    [
        ({"alpha": 0.0}, flips([1]), r"alpha \(0.0\) must be a positive number"),
        ({"beta": -1.0}, flips([1]), r"beta \(-1.0\) must be a positive number"),
        ({}, flips([0, 1, 2]), r"X \(row 2 holds 2\) must hold 0 and 1 alone"),
        ({}, flips([1, math.nan]), "Input X contains NaN"),
        ({}, flips([]), r"Found array with 0 sample\(s\)"),
    ],
)
def test_flips_that_are_none_are_refused(given, x, error):
    with pytest.raises(ValueError, match=error):
        BetaBernoulli(**given).fit(x)
    with pytest.raises(NotFittedError, match="fit"):
        BetaBernoulli().score_samples(flips([1]))


@parametrize_with_checks(
    [BetaBernoulli(binarize=0.0)],
    expected_failed_checks=lambda _: {
        "check_do_not_raise_errors_in_init_or_set_params": "the tests check types of __init__"
    },
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.covers("M16")
def test_the_posterior_of_a_line_is_that_of_a_joint_normal():
    """(6) and (7): condition (w, y, y*) on y by the textbook rule, with a very wide prior on b."""
    (x, y), alpha, beta = line(), 0.7, 2.5
    new = torch.tensor([[1.0, -1.0]]).double()
    model = BayesianRegression(alpha, beta).fit(x, y)
    wide = torch.cat([torch.ones(12, 1).double(), x], 1)
    prior = torch.tensor([1e9, 1 / alpha, 1 / alpha]).double().diag()
    k = wide @ prior @ wide.T + torch.eye(12).double() / beta
    mean = prior @ wide.T @ torch.linalg.solve(k, y)
    cov = prior - prior @ wide.T @ torch.linalg.solve(k, wide @ prior)
    torch.testing.assert_close(model.coef_, mean[1:], atol=1e-5, rtol=0)
    torch.testing.assert_close(model.covariance_, cov[1:, 1:], atol=1e-4, rtol=0)
    at = torch.cat([torch.ones(1, 1).double(), new], 1)
    predicted, std = model.predict(new, return_std=True)
    assert float(predicted) == pytest.approx(float(at @ mean), abs=1e-4)
    exact = torch.linalg.inv(wide.T @ wide * beta + torch.tensor([0, alpha, alpha]).double().diag())
    assert float(std**2) == pytest.approx(float(at @ exact @ at.T) + 1 / beta, rel=1e-8)


@pytest.mark.covers("M16")
def test_the_mode_is_ridge_regression():
    alpha, beta = 0.003, 0.0004
    ours, theirs = BayesianRegression(alpha, beta).fit(X, Y), Ridge(alpha / beta).fit(X, Y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-8)
    assert ours.intercept_ == pytest.approx(theirs.intercept_)
    low, high = ours.interval(X, 0.9)
    np.testing.assert_allclose((high + low) / 2, ours.predict(X))
    assert ((ours.predict(X, return_std=True)[1]) ** 2 > 1 / beta).all()


def test_the_evidence_is_that_of_centred_targets_and_has_no_slope_where_it_chooses():
    """(8) to (10): n - 1 contrasts of y are normal; at alpha_ and beta_ the gradient is 0."""
    x, y = line(n=40, d=3)
    model = BayesianRegression().fit(x, y)
    x, y = x - x.mean(0), y - y.mean()
    log_precisions = torch.tensor([model.alpha_, model.beta_]).double().log().requires_grad_()
    value = log_evidence(x, y, *log_precisions.exp())
    (gradient,) = torch.autograd.grad(value, log_precisions)
    assert gradient.abs().max() < 1e-6
    basis = torch.linalg.svd(torch.eye(40).double() - 1 / 40)[0][:, :39]
    c = basis.T @ (x @ x.T) @ basis / model.alpha_ + torch.eye(39).double() / model.beta_
    normal = torch.distributions.MultivariateNormal(torch.zeros(39).double(), c)
    assert float(value.detach()) == pytest.approx(float(normal.log_prob(basis.T @ y)))


def test_the_evidence_chooses_as_scikit_learn_does():
    """Which counts the intercept as certain: n and n - 1 differ by a third of a per cent."""
    theirs = BayesianRidge(alpha_1=0, alpha_2=0, lambda_1=0, lambda_2=0, tol=1e-8).fit(X, Y)
    ours = BayesianRegression().fit(X, Y)
    assert ours.beta_ == pytest.approx(theirs.alpha_, rel=0.004)
    assert ours.alpha_ == pytest.approx(theirs.lambda_, rel=0.01)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=0.02, atol=0.5)


def test_lines_are_drawn_from_the_posterior():
    """Their heights at a place have the variance of the prediction without its noise."""
    x, y = line(n=30)
    model = BayesianRegression(1.0, 2.0).fit(x, y)
    w, b = model.sample_lines(20_000, torch.Generator().manual_seed(0))
    mean, std = model.predict(x[:1], return_std=True)
    heights = w @ x[0] + b
    assert float(heights.mean()) == pytest.approx(float(mean), abs=0.02)
    assert float(heights.var()) == pytest.approx(float(std**2) - 0.5, rel=0.05)


def test_in_a_pipeline_the_prior_is_searched():
    pipeline = make_pipeline(StandardScaler(), BayesianRegression())
    grid = {"bayesianregression__alpha": [None, 1e9]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(X, Y)
    assert search.best_params_ == {"bayesianregression__alpha": None}


def test_values_from_elsewhere_are_refused():
    model = BayesianRegression().fit(X, Y)
    model.check_learned()
    model.covariance_ = -model.covariance_
    with pytest.raises(ValueError, match="covariance_ must be positive definite"):
        model.check_learned()


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_precisions_that_are_not_positive_are_refused(name):
    with pytest.raises(UserError, match=rf"{name} \(0\) must be a positive number, or None"):
        BayesianRegression(**{name: 0}).fit(X, Y)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        BayesianRegression().fit(X * math.nan, Y)


@pytest.mark.parametrize("name", ["coin", "bayesian-regression"])
def test_the_recipes_reach_their_goals(name, tmp_path):
    assert run(RECIPES[name], tmp_path).reached


def test_predictions_are_intervals():
    recipe = RECIPES["bayesian-regression"]
    data = recipe.dataset()
    model = recipe.fit(recipe.model(data), data)
    rows = data.splits["test"][0][:4]
    narrow, wide = (recipe.predict(model, rows, data.spec, level=level) for level in (0.5, 0.99))
    for a, b in zip(narrow, wide, strict=True):
        assert b["low"] < a["low"] < a["value"] < a["high"] < b["high"]
    with pytest.raises(UserError, match=r"level \(1\) must be between 0 and 1"):
        recipe.predict(model, rows, data.spec, level=1)
    with pytest.raises(UserError, match=r"data \(iris\) must have a number as its target"):
        RegressionWithIntervals(data="iris").dataset()


def test_coins_of_ones_own(tmp_path):
    path = tmp_path / "flips.csv"
    path.write_text("left,right\n" + "1,0\n1,1\n" * 30)
    recipe = Coin(data=str(path))
    data = recipe.dataset()
    model = recipe.fit(recipe.model(data), data)
    heads = data.whole[0].sum(0)
    assert heads[0] == len(data.whole[0])
    torch.testing.assert_close(model.alpha_, 1 + heads)
    assert recipe.sample(model, data.spec, torch.Generator(), n=5).shape == (5, 2)
    assert 0 < recipe.predict(model, data.whole[0][:1], data.spec)[0]["probability"] < 1
    assert len(recipe.picture_posterior(model, data, ())) == 2
    with pytest.raises(UserError, match=r"n \(0\) must be from 1"):
        recipe.sample(model, data.spec, torch.Generator(), n=0)
    path.write_text("left\n" + "1\n0\n2\n" * 30)
    with pytest.raises(UserError, match="must hold 0 and 1 alone"):
        run(recipe, tmp_path / "runs")
