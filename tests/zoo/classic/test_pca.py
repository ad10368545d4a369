import math
from itertools import islice, pairwise

import numpy as np
import pytest
import sklearn.decomposition
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from sklearn.datasets import load_digits, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.classic.pca import (
    PCA,
    RECIPES,
    LinearCodes,
    ProbabilisticPCA,
    choose_solver,
    covariance,
    em_steps,
    mean_log_likelihood,
    randomized_components,
    reconstruct,
)

DIGITS = load_digits(return_X_y=True)[0] / 16


def cloud(seed=0, rows=60, columns=5):
    """Rows that vary more in some directions than in others, around a mean that is not 0."""
    random = torch.Generator().manual_seed(seed)
    stretch = torch.randn(columns, columns, generator=random, dtype=torch.float64)
    x = torch.randn(rows, columns, generator=random, dtype=torch.float64) @ stretch
    return x + torch.arange(columns)


# ---------------------------------------------------------------------------------- closed forms


def test_points_on_a_line_have_one_direction():
    """(0, 0), (3, 4), (6, 8): along (3, 4) / 5 their variance is 25, and across it 0."""
    model = PCA().fit([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])
    np.testing.assert_allclose(model.components_[0], [0.6, 0.8])
    np.testing.assert_allclose(model.explained_variance_, [25, 0], atol=1e-12)
    np.testing.assert_allclose(model.transform([[3.0, 4.0], [6.0, 8.0]])[:, 0], [0, 5], atol=1e-12)
    np.testing.assert_allclose(model.inverse_transform([[5.0, 0.0]]), [[6, 8]])


@pytest.mark.covers("M22")
@pytest.mark.parametrize("solver", ["full", "covariance_eigh", "randomized"])
@given(seed=st.integers(0, 10_000), k=st.integers(1, 5))
@settings(max_examples=15, deadline=None)
def test_the_error_is_the_sum_of_the_eigenvalues_left_out(solver, seed, k):
    x = cloud(seed)
    model = PCA(k, solver, random_state=0).fit(x)
    error = (reconstruct(model, x) - x).square().sum() / (len(x) - 1)
    left = torch.linalg.eigvalsh(x.T.cov())[: 5 - k].sum()
    scale = x.var(0).sum().item()
    assert abs(error - left) < 1e-8 * scale
    assert abs(model.left_out() - left) < 1e-8 * scale
    worse = torch.linalg.qr(torch.randn(5, k, generator=torch.Generator().manual_seed(seed)))[0]
    centred = x - x.mean(0)
    other = centred - centred @ worse.double() @ worse.T.double()
    assert other.square().sum() >= (len(x) - 1) * error - 1e-8


@pytest.mark.parametrize("far", [0.0, 1.0, 50.0, 1e4, 1e7])
def test_the_covariance_is_numpys_however_far_the_mean_is(far):
    """A mean of 1e7 would leave two digits of a variance of 1 if it were taken off the product."""
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(4)).double() + far
    expected = torch.from_numpy(np.cov(x.numpy().T))
    found = covariance(x, x.mean(0))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(found, found.T)


def test_components_are_orthonormal_eigenvectors_of_the_covariance():
    x = cloud(rows=9000)  # of more rows than are centred at a time
    model, s = PCA(3, "covariance_eigh").fit(x), x.T.cov()
    torch.testing.assert_close(covariance(x, x.mean(0)), s)
    torch.testing.assert_close(model.components_ @ model.components_.T, torch.eye(3).double())
    for v, value in zip(model.components_, model.explained_variance_, strict=True):
        torch.testing.assert_close(s @ v, value * v)


def test_the_likelihood_is_that_of_the_normal_distribution():
    x = cloud()
    model = ProbabilisticPCA(2).fit(x)
    w, s = model.factors(), model.noise_variance_
    c = w @ w.T + s * torch.eye(5)
    torch.testing.assert_close(model.get_covariance(), c)
    density = multivariate_normal(x.mean(0).numpy(), c.numpy())
    np.testing.assert_allclose(model.score_samples(x).numpy(), density.logpdf(x.numpy()))
    biased = x.T.cov(correction=0)
    assert mean_log_likelihood(biased, w, s) == pytest.approx(model.score(x))
    eigenvalues = torch.linalg.eigvalsh(biased)
    assert s == pytest.approx(eigenvalues[:3].mean().item())
    torch.testing.assert_close(
        torch.linalg.eigvalsh(c), torch.cat([eigenvalues.new_full((3,), s), eigenvalues[3:]])
    )
    whole = ProbabilisticPCA().fit(x)
    torch.testing.assert_close(whole.get_covariance(), biased)
    density = multivariate_normal(x.mean(0).numpy(), biased.numpy())
    np.testing.assert_allclose(whole.score_samples(x).numpy(), density.logpdf(x.numpy()))


@pytest.mark.covers("M23")
@given(seed=st.integers(0, 10_000), k=st.integers(1, 3))
@settings(max_examples=15, deadline=None)
def test_em_rises_at_every_step_to_the_closed_form_and_not_above_it(seed, k):
    x = cloud(seed)
    s = x.T.cov(correction=0)
    model = ProbabilisticPCA(k).fit(x)
    start = torch.randn(5, k, generator=torch.Generator().manual_seed(seed)).double()
    values = [mean_log_likelihood(s, *step) for step in islice(em_steps(s, start, 1.0), 400)]
    assert all(after >= before - 1e-9 for before, after in pairwise(values))
    assert max(values) <= model.score(x) + 1e-9
    if seed < 20:
        assert values[-1] > model.score(x) - 0.2


def test_em_ends_where_the_closed_form_is():
    x = cloud(3)
    s, model = x.T.cov(correction=0), ProbabilisticPCA(2).fit(x)
    start = torch.randn(5, 2, generator=torch.Generator().manual_seed(0)).double()
    *_, (w, noise) = islice(em_steps(s, start, 1.0), 3000)
    assert noise == pytest.approx(model.noise_variance_, rel=1e-6)
    torch.testing.assert_close(w @ w.T, model.factors() @ model.factors().T, rtol=1e-5, atol=1e-6)
    again, same = next(em_steps(s, model.factors(), model.noise_variance_))
    torch.testing.assert_close(again @ again.T, model.factors() @ model.factors().T)
    assert same == pytest.approx(model.noise_variance_)


def test_samples_have_the_moments_of_the_density():
    """Of n samples a mean is off by C^(1/2) / sqrt(n), a covariance by sqrt(2 / n) of its size."""
    x, n = cloud(), 40_000
    model = ProbabilisticPCA(2).fit(x)
    drawn = model.sample(n, generator=torch.Generator().manual_seed(0))
    c = model.get_covariance()
    assert ((drawn.mean(0) - x.mean(0)).abs() < 5 * (c.diag() / n).sqrt()).all()
    sizes = c.diag()[:, None] * c.diag()
    assert ((drawn.T.cov() - c).abs() < 5 * (2 * sizes / n).sqrt()).all()


# ---------------------------------------------------------------------------- equal to references


@pytest.mark.covers("M22")
@pytest.mark.parametrize("solver", ["full", "covariance_eigh", "randomized", "auto"])
def test_equal_to_scikit_learn_on_digits(solver):
    theirs = sklearn.decomposition.PCA(10, svd_solver="full").fit(DIGITS)
    ours = PCA(10, solver, random_state=0).fit(DIGITS)
    tight = {"atol": 1e-8} if solver != "randomized" else {"atol": 1e-3}
    np.testing.assert_allclose(ours.components_, theirs.components_, **tight)
    np.testing.assert_allclose(ours.transform(DIGITS), theirs.transform(DIGITS), **tight)
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_, rtol=1e-6)
    ratio = theirs.explained_variance_ratio_
    np.testing.assert_allclose(ours.explained_variance_ratio_, ratio, rtol=1e-6)
    back = theirs.inverse_transform(theirs.transform(DIGITS))
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(DIGITS)), back, atol=1e-3)


def test_the_likelihood_is_scikit_learns_but_for_the_divisor():
    """`PCA.score` has S divided by n - 1, with which the likelihood is a little smaller."""
    theirs = sklearn.decomposition.PCA(10, svd_solver="full").fit(DIGITS)
    ours, n = ProbabilisticPCA(10).fit(DIGITS), len(DIGITS)
    best = ours.score(DIGITS)
    assert theirs.score(DIGITS) < best < theirs.score(DIGITS) + 1e-4
    assert ours.noise_variance_ == pytest.approx(theirs.noise_variance_ * (n - 1) / n)
    ours.explained_variance_ *= n / (n - 1)
    ours.noise_variance_ *= n / (n - 1)
    assert ours.score(DIGITS) == pytest.approx(theirs.score(DIGITS), rel=1e-10)
    np.testing.assert_allclose(ours.score_samples(DIGITS), theirs.score_samples(DIGITS))
    np.testing.assert_allclose(ours.get_covariance(), theirs.get_covariance(), atol=1e-10)


def test_the_randomised_way_sees_only_products_with_few_columns():
    """Of a matrix of low rank it is exact, with one round or many, and a mean far from 0."""
    random = torch.Generator().manual_seed(0)
    x = (
        torch.randn(300, 4, generator=random).double()
        @ torch.randn(4, 80, generator=random).double()
    )
    x = x + 100
    values, v = randomized_components(x, x.mean(0), 4, random)
    expected = torch.linalg.eigvalsh(x.T.cov()).flip(0)[:4]
    torch.testing.assert_close(values, expected)
    torch.testing.assert_close(x.T.cov() @ v.T, v.T * values, atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize(
    ("shape", "k", "solver"),
    [
        *(((1797, 64), 10, "covariance_eigh"), ((60_000, 784), 50, "covariance_eigh")),
        *(((600, 2000), 50, "randomized"), ((600, 2000), 590, "full"), ((100, 50), 5, "full")),
    ],
)
def test_the_solver_is_that_of_scikit_learns_rule(shape, k, solver):
    assert choose_solver(torch.empty(1).expand(shape), k) == solver


def test_in_a_pipeline_with_a_grid_search_and_as_tensors():
    x, y = load_iris(return_X_y=True)
    search = GridSearchCV(
        make_pipeline(PCA(), LogisticRegression(max_iter=1000)), {"pca__n_components": [1, 2, 3]},
        cv=3,
    ).fit(x, y)  # fmt: skip
    assert search.best_score_ > 0.9
    assert [*PCA(2).fit(x).get_feature_names_out()] == ["pca0", "pca1"]
    model = ProbabilisticPCA(2).fit(torch.tensor(x))
    for made in (model.transform(torch.tensor(x)), model.sample(3), model.get_covariance()):
        assert isinstance(made, torch.Tensor)
    assert isinstance(ProbabilisticPCA(2).fit(x).sample(3), np.ndarray)


# ------------------------------------------------------------------------------ errors and recipe


@pytest.mark.parametrize(
    ("given", "x", "message"),
    [
        ({"n_components": 6}, cloud(), r"n_components \(6\) must be from 1 to 5, because X has 60"),
        ({"n_components": 4}, cloud(rows=3), r"n_components \(4\) must be from 1 to 3, because"),
        ({"n_components": 0}, cloud(), r"n_components \(0\) must be from 1 to 5"),
        ({"svd_solver": "fall"}, cloud(), "unknown svd_solver 'fall'; did you mean full"),
        ({}, [[1.0, 2.0]], r"X \(1 sample\) must have 2 rows or more"),
        ({}, [[1.0, 2.0]] * 3, "X must vary, because .* all of its columns are constant"),
        ({}, [[math.nan, 2.0]] * 3, "Input X contains NaN"),
    ],
)
def test_what_has_no_components_is_refused(given, x, message):
    with pytest.raises(ValueError, match=message):
        PCA(**given).fit(x)


def test_codes_and_likelihoods_that_cannot_be_are_refused():
    x = cloud()
    flat = torch.cat([x[:, :2], x[:, :1] * 0 + 4], 1)
    assert ProbabilisticPCA(1).fit(flat).score(flat) > -9  # one column is constant: it says nothing
    with pytest.raises(
        UserError, match=r"noise_variance_ \(.*\) must be positive, because the row"
    ):
        ProbabilisticPCA(2).fit(flat).score(flat)
    with pytest.raises(UserError, match=r"X \(\[60, 5\]\) must have 2 columns, one a component"):
        PCA(2).fit(x).inverse_transform(x)


@pytest.mark.covers("M22", "M23")
def test_the_recipe_reaches_its_goal(tmp_path):
    """The split is fixed and nothing is random, so one seed says it for all."""
    result = run(RECIPES["pca"], tmp_path)
    assert result.reached
    assert result.metrics["identity"] < 1e-8


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.covers("M22")
def test_mnist_reaches_its_goal(tmp_path):
    assert run(RECIPES["pca-mnist"], tmp_path).reached


@pytest.mark.parametrize("name", ["digits", "wine"])
def test_predictions_and_samples(name):
    recipe = LinearCodes(data=name, components=5)
    data = recipe.dataset()
    model = recipe.fit(recipe.model(data), data)
    x = data.splits["test"][0][:3].double()
    answers = recipe.predict(model, x, data.spec)
    torch.testing.assert_close(
        torch.tensor([a["code"] for a in answers]), model.transform(x.flatten(1)).float()
    )
    made = reconstruct(model, x.flatten(1))
    for answer, row, one in zip(answers, made, x.flatten(1), strict=True):
        assert answer["mse"] == pytest.approx((row - one).square().mean().item())
        if name == "wine":
            (first, value), *_ = answer["reconstruction"].items()
            assert first == data.spec["features"][0]
            expected = row[0].item() * data.spec["std"][0] + data.spec["mean"][0]
            assert value == pytest.approx(expected)
        else:
            torch.testing.assert_close(answer["reconstruction"].flatten(), row)
    drawn = recipe.sample(model, data.spec, torch.Generator().manual_seed(0), n=4)
    assert list(drawn.shape) == [4, *data.spec["shape"]]
    with pytest.raises(UserError, match=r"n \(0\) must be from 1 to 10,000 samples"):
        recipe.sample(model, data.spec, torch.Generator(), n=0)


def test_settings_are_refused_by_name():
    with pytest.raises(UserError, match=r"components \(0\) must be at least 1"):
        LinearCodes(components=0)
    with pytest.raises(UserError, match="unknown solver 'fall'; did you mean full"):
        LinearCodes(solver="fall")
    recipe = LinearCodes(components=64)
    data = recipe.dataset()
    with pytest.raises(UserError, match=r"components \(64\) must be below 64, the number of"):
        recipe.model(data)
