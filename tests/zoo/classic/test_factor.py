import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.decomposition import FactorAnalysis as Reference
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import scale

from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.classic.factor import (
    RECIPES,
    CommonFactors,
    FactorAnalysis,
    Factors,
    em,
    em_ppca,
    ppca_covariance,
    ppca_log_likelihood,
    varimax,
)
from everynet.zoo.classic.rows import covariance

WINE = scale(load_wine().data)
S = covariance(torch.from_numpy(WINE))[1]


def rows(seed=0, n=50, d=4):
    draw = torch.Generator().manual_seed(seed)
    mixed = torch.randn(d, d, generator=draw, dtype=torch.float64)
    return torch.randn(n, d, generator=draw, dtype=torch.float64) @ mixed + 3


def some_factors():
    w = torch.tensor([[1.0, 0.2], [-0.5, 2.0], [0.3, 0.3]]).double()
    return Factors(w, torch.tensor([0.5, 1.0, 0.1]).double())


@pytest.mark.covers("M23")
@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_likelihood_is_scikit_learns_on_wine(k):
    theirs = Reference(k, tol=1e-9, max_iter=20_000, svd_method="lapack").fit(WINE)
    ours = FactorAnalysis(k, tol=1e-11).fit(WINE)
    assert ours.score(WINE) == pytest.approx(theirs.score(WINE), abs=1e-6)
    np.testing.assert_allclose(ours.score_samples(WINE), theirs.score_samples(WINE), atol=1e-3)
    np.testing.assert_allclose(ours.noise_variance_, theirs.noise_variance_, atol=1e-4)
    c = ours.components_.T @ ours.components_ + np.diag(ours.noise_variance_)
    np.testing.assert_allclose(c, theirs.get_covariance(), atol=1e-4)
    assert ours.log_likelihoods_[-1] == pytest.approx(ours.score(WINE))


def test_a_step_of_em_is_its_expectations():
    """(3) to (6): moments of h given x by the rule for jointly normal numbers, row by row."""
    model, x = some_factors(), rows(n=9, d=3)
    x = x - x.mean(0)
    w, psi = model
    c = w @ w.T + psi.diag()
    h = [w.T @ torch.linalg.inv(c) @ row for row in x]
    rest = torch.eye(2).double() - w.T @ torch.linalg.inv(c) @ w
    hh = sum(rest + torch.outer(one, one) for one in h)
    new_w = sum(torch.outer(row, one) for row, one in zip(x, h, strict=True)) @ hh.inverse()
    left = [row**2 - (new_w @ one) * row for row, one in zip(x, h, strict=True)]
    step = model.update(covariance(x)[1])
    torch.testing.assert_close(model.beta() @ x[0], h[0])
    torch.testing.assert_close(step.w, new_w)
    torch.testing.assert_close(step.psi, sum(left) / 9)


def test_the_likelihood_is_that_of_a_normal_distribution():
    """(2) and (7)."""
    model, x = some_factors(), rows(n=30, d=3)
    mean, s = covariance(x)
    normal = torch.distributions.MultivariateNormal(mean, model.w @ model.w.T + model.psi.diag())
    assert model.log_likelihood(s) == pytest.approx(float(normal.log_prob(x).mean()))


@given(seed=st.integers(0, 10_000), k=st.integers(1, 4))
@settings(max_examples=8, deadline=None)
def test_em_never_lowers_the_likelihood(seed, k):
    s = covariance(rows(seed))[1]
    curve = [f.log_likelihood(s) for f in itertools.islice(em(s, k), 40)]
    assert all(b >= a - 1e-10 for a, b in itertools.pairwise(curve))


@pytest.mark.covers("M23")
@pytest.mark.parametrize("k", [1, 3, 8])
def test_no_iterate_of_em_exceeds_the_closed_form_of_probabilistic_pca(k):
    """(8): EM with one variance for all columns climbs to it, and it is scikit-learn's score."""
    best = ppca_log_likelihood(S, k)
    curve = list(itertools.islice(em_ppca(S, k), 400))
    assert max(curve) <= best + 1e-9
    assert curve[-1] == pytest.approx(best, abs=1e-4)
    c = ppca_covariance(S, k)
    normal = torch.distributions.MultivariateNormal(torch.zeros(13).double(), c)
    assert float(normal.log_prob(torch.from_numpy(WINE)).mean()) == pytest.approx(best)
    unbiased = S * len(WINE) / (len(WINE) - 1)  # scikit-learn divides by n - 1
    theirs = PCA(k).fit(WINE).get_covariance()
    np.testing.assert_allclose(ppca_covariance(unbiased, k), theirs, atol=1e-10)


def test_factors_of_their_own_model_are_found_again():
    """C of 20,000 rows drawn from the model, and by learning from them, is C within 5 %."""
    model = FactorAnalysis(2).fit(rows(n=200))
    model.components_ = torch.tensor([[1.0, 1.0, -1.0, 0.0], [0.0, 0.5, 0.5, 1.0]]).double()
    model.noise_variance_ = torch.tensor([0.3, 0.2, 0.5, 0.4]).double()
    x = model.sample(20_000, torch.Generator().manual_seed(0))
    c = model.factors().covariance()
    assert (x.T.cov() - c).abs().max() < 0.06
    assert (x.mean(0) - model.mean_).abs().max() < 0.06
    back = model.inverse_transform(model.transform(x))
    assert (back - x).square().mean() < x.var(0).mean() / 3


def test_varimax_turns_and_nothing_else():
    w = some_factors().w
    turned = varimax(w)
    torch.testing.assert_close(turned @ turned.T, w @ w.T)
    spread = [float((m**2).var(0, correction=0).sum()) for m in (turned, w)]
    assert spread[0] > spread[1]


def test_in_a_pipeline_the_number_of_factors_is_searched():
    x = rows(n=120).numpy()
    pipeline = make_pipeline(FactorAnalysis(), LinearRegression())
    search = GridSearchCV(pipeline, {"factoranalysis__n_components": [1, 3]}, cv=3)
    assert search.fit(x[:, :3], x[:, 3]).best_params_ == {"factoranalysis__n_components": 3}
    alone = GridSearchCV(FactorAnalysis(), {"n_components": [1, 2]}, cv=3).fit(x)
    assert alone.best_params_ == {"n_components": 2}


@pytest.mark.parametrize(
    ("given", "x", "line"),
    [
        ({"n_components": 5}, rows(), r"n_components \(5\) must be from 1 to 4, .* 4 columns"),
        ({"n_components": 4}, rows(n=3), r"n_components \(4\) must be from 1 to 3"),
        ({"max_iter": 0}, rows(), r"max_iter \(0\) must be at least 1"),
        ({}, rows(n=1), r"X \(n_samples = 1\) must have 2 rows or more"),
        ({}, rows().index_fill(1, torch.tensor(2), 1.0), r"column 2 \(1 in every row\) must vary"),
        ({}, rows() * math.nan, "Input X contains NaN"),
    ],
)
def test_what_cannot_be_learned_is_refused(given, x, line):
    with pytest.raises(ValueError, match=line):
        FactorAnalysis(**given).fit(x)


def test_iterations_that_were_too_few_are_said():
    with pytest.warns(match="still rose by .* after 2 iterations"):
        FactorAnalysis(2, max_iter=2).fit(WINE)


def test_the_recipe_reaches_its_goal(tmp_path):
    recipe = RECIPES["factor-analysis"]
    assert run(recipe, tmp_path).reached
    data = recipe.dataset()
    model = recipe.fit(recipe.model(data), data)
    (answer,) = recipe.predict(model, data.splits["test"][0][:1], data.spec)
    assert len(answer["factors"]) == 3
    assert recipe.sample(model, data.spec, torch.Generator(), n=5).shape == (5, 13)
    with pytest.raises(UserError, match=r"n \(0\) must be from 1"):
        recipe.sample(model, data.spec, torch.Generator(), n=0)


def test_a_table_of_ones_own(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("a,b,c,d\n" + "\n".join(",".join(map(str, r)) for r in rows(n=90).tolist()))
    result = run(CommonFactors(data=str(path), components=1), tmp_path / "runs")
    assert result.metrics["log_likelihood"] > result.metrics["independent"]
