import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from sklearn.datasets import load_iris
from sklearn.mixture import GaussianMixture as Reference
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from everynet.data.tables import csv_table
from everynet.plot.film import Film
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.classic.mixture import (
    RECIPES,
    Clusters,
    GaussianMixture,
    Gaussians,
    k_means,
    nearest,
)

IRIS, SPECIES = load_iris(return_X_y=True)


def rows(seed=0, n=60, d=3):
    """Rows of two groups."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=draw, dtype=torch.float64)
    return x + 4 * (torch.arange(n) % 2)[:, None]


def some_mixture():
    """A mixture that was not learned."""
    factor = torch.tensor([[[1.0, 0.0], [0.5, 2.0]], [[0.3, 0.0], [-1.0, 0.7]]]).double()
    means = torch.tensor([[0.0, 1.0], [3.0, -2.0]]).double()
    return Gaussians(torch.tensor([0.3, 0.7]).double(), means, factor @ factor.mT)


def test_the_density_is_scipys():
    """(1) and (2): the weighted densities of each component, and their sum."""
    mixture, x = some_mixture(), rows(d=2)
    theirs = [
        float(w) * multivariate_normal(m.numpy(), c.numpy()).pdf(x.numpy())
        for w, m, c in zip(mixture.weights, mixture.means, mixture.covariances, strict=True)
    ]
    np.testing.assert_allclose(mixture.log_joint(x).exp(), np.stack(theirs, 1), rtol=1e-10)
    assert mixture.update(x)[0] == pytest.approx(float(np.log(sum(theirs)).mean()), rel=1e-12)


def test_one_step_is_its_equations_row_by_row():
    """(3) to (6), as sums over rows that are written out."""
    mixture, x = some_mixture(), rows(d=2, n=11)
    _, following = mixture.update(x)
    joint = mixture.log_joint(x).exp()
    for k in range(2):
        r = [float(joint[i, k] / joint[i].sum()) for i in range(11)]
        mean = sum(r[i] * x[i] for i in range(11)) / sum(r)
        cov = sum(r[i] * torch.outer(x[i] - mean, x[i] - mean) for i in range(11)) / sum(r)
        assert following.weights[k].item() == pytest.approx(sum(r) / 11)
        torch.testing.assert_close(following.means[k], mean)
        torch.testing.assert_close(following.covariances[k], cov)


@pytest.mark.covers("M24")
def test_from_one_start_it_ends_where_scikit_learns_does_on_iris():
    """The same first parameters, those of the groups nearest to three rows of iris."""
    centres = IRIS[[0, 60, 110]]
    x = torch.from_numpy(IRIS)
    start = Gaussians.of_groups(x, nearest(x, torch.from_numpy(centres)), 3)
    theirs = Reference(
        3, reg_covar=0, tol=1e-10, max_iter=2000, weights_init=start.weights.numpy(),
        means_init=start.means.numpy(), precisions_init=torch.linalg.inv(start.covariances).numpy(),
    ).fit(IRIS)  # fmt: skip
    ours = GaussianMixture(3, tol=1e-10, max_iter=2000, means_init=centres).fit(IRIS)
    assert ours.score(IRIS) == pytest.approx(theirs.score(IRIS), abs=1e-6)
    assert ours.bic(IRIS) == pytest.approx(theirs.bic(IRIS), abs=1e-3)
    np.testing.assert_allclose(ours.weights_, theirs.weights_, atol=1e-3)
    np.testing.assert_allclose(ours.means_, theirs.means_, atol=1e-3)
    np.testing.assert_allclose(ours.covariances_, theirs.covariances_, atol=1e-3)
    np.testing.assert_allclose(ours.predict_proba(IRIS), theirs.predict_proba(IRIS), atol=1e-3)
    assert (ours.predict(IRIS) == theirs.predict(IRIS)).all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@given(seed=st.integers(0, 10_000), k=st.integers(1, 3), d=st.integers(1, 3))
@settings(max_examples=10, deadline=None)
def test_em_never_lowers_the_likelihood(seed, k, d):
    x = rows(seed, n=80, d=d)
    curve = torch.as_tensor(GaussianMixture(k, random_state=seed, max_iter=20, tol=1e-12).fit(x)
                            .log_likelihoods_)  # fmt: skip
    assert len(curve) > 1
    assert (curve.diff() >= -1e-12).all()


def test_one_component_is_the_gaussian_of_the_moments():
    x = rows()
    model = GaussianMixture().fit(x)
    torch.testing.assert_close(model.means_[0], x.mean(0))
    torch.testing.assert_close(model.covariances_[0], x.T.cov(correction=0))
    normal = torch.distributions.MultivariateNormal(x.mean(0), x.T.cov(correction=0))
    torch.testing.assert_close(model.score_samples(x), normal.log_prob(x))


def test_samples_have_the_moments_of_the_mixture():
    """Within five standard errors of 40,000 rows."""
    model = GaussianMixture(2).fit(rows(n=400))
    made, component = model.sample(40_000, torch.Generator().manual_seed(0))
    share = (component == 0).double().mean()
    assert abs(share - model.weights_[0]) < 5 * 0.5 / 200
    for k in range(2):
        mine = made[component == k]
        error = 5 * torch.linalg.eigvalsh(model.covariances_[k])[-1] / math.sqrt(len(mine))
        assert (mine.mean(0) - model.means_[k]).abs().max() < error
        assert (mine.T.cov() - model.covariances_[k]).abs().max() < 2 * error


def test_of_several_starts_the_highest_counts():
    one = [GaussianMixture(3, n_init=n).fit(IRIS).score(IRIS) for n in (1, 8)]
    assert one[1] >= one[0]
    assert (k_means(rows(), 2, torch.Generator().manual_seed(1)).bincount() == 30).all()


def test_in_a_pipeline_the_number_of_components_is_searched():
    pipeline = make_pipeline(StandardScaler(), GaussianMixture())
    search = GridSearchCV(pipeline, {"gaussianmixture__n_components": [1, 2]}, cv=3)
    assert search.fit(rows(n=200).numpy()).best_params_ == {"gaussianmixture__n_components": 2}


def test_a_component_that_collapses_is_refused_by_its_number():
    x = torch.cat([rows(n=40, d=2), torch.full((5, 2), 100.0).double()])
    centres = torch.tensor([[2.0, 2.0], [100.0, 100.0]])
    line = r"component 1 collapses: .* holds 11 % of the rows"
    with pytest.raises(UserError, match=line):
        GaussianMixture(2, means_init=centres).fit(x)
    assert GaussianMixture(2, means_init=centres, reg_covar=1e-3).fit(x).n_iter_ > 0
    with pytest.raises(UserError, match="component 0 collapses"):
        GaussianMixture().fit(torch.cat([x, x[:, :1]], 1))


@pytest.mark.parametrize(
    ("given", "x", "line"),
    [
        ({"n_components": 61}, rows(), r"n_components \(61\) must be from 1 to 60"),
        ({"n_components": 0}, rows(), r"n_components \(0\) must be from 1 to 60"),
        ({"max_iter": 0}, rows(), r"max_iter \(0\) must be at least 1"),
        ({"n_init": 0}, rows(), r"n_init \(0\) must be at least 1"),
        ({"reg_covar": -1.0}, rows(), r"reg_covar \(-1.0\) must be 0 or a positive number"),
        ({"means_init": [[0.0]]}, rows(), r"means_init \(1, 1\) must be \(1, 3\)"),
        ({}, rows()[:1], r"X \(n_samples = 1\) must have 2 rows or more"),
        ({}, rows().clone().index_fill(1, torch.tensor(1), 2.5), r"column 1 \(2.5 in every row\)"),
        ({}, rows() * math.nan, "Input X contains NaN"),
    ],
)
def test_what_cannot_be_learned_is_refused(given, x, line):
    with pytest.raises(ValueError, match=line):
        GaussianMixture(**given).fit(x)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_values_from_elsewhere_are_refused():
    with pytest.warns(match="still rose by"):
        model = GaussianMixture(2, max_iter=1, tol=0, random_state=3).fit(IRIS)
    model.check_learned()
    model.covariances_ = -model.covariances_
    with pytest.raises(ValueError, match="covariances_ must be positive definite"):
        model.check_learned()
    model.covariances_, model.weights_ = -model.covariances_, 2 * model.weights_ / 3
    with pytest.raises(ValueError, match="weights_ must be 2 shares whose sum is 1"):
        model.check_learned()


def test_the_recipe_reaches_its_goal_and_films(tmp_path):
    recipe = RECIPES["mixture"]
    result = run(recipe, tmp_path)
    assert result.reached
    data = recipe.dataset()
    model = recipe.fit(recipe.model(data), data)
    film = recipe.sample(model, data.spec, torch.Generator().manual_seed(0), n=60, film=True)
    assert isinstance(film, Film)
    assert recipe.sample(model, data.spec, torch.Generator(), n=7).shape == (7, 4)
    first = recipe.predict(model, data.splits["test"][0][:1], data.spec)[0]
    assert first["probabilities"][first["component"]] == max(first["probabilities"])
    with pytest.raises(UserError, match=r"n \(0\) must be from 1"):
        recipe.sample(model, data.spec, torch.Generator(), n=0)


def test_a_table_of_ones_own_needs_no_target(tmp_path):
    path = tmp_path / "own.csv"
    lines = [f"{a},{b},{'left' if a < 2 else 'right'}" for a, b in rows(n=90, d=2).tolist()]
    path.write_text("a,b,side\n" + "\n".join(lines) + "\n")
    whole = Clusters(data=str(path), target="side", components=2).dataset()
    assert whole.spec["features"] == ["a", "b"]
    assert whole.spec["classes"] == ["left", "right"]
    path.write_text("a,b,c\n" + "\n".join(f"{a},{b},7" for a, b in rows(n=90, d=2).tolist()))
    with pytest.raises(UserError, match=r"column c \(0 in every row\) must vary"):
        Clusters(data=str(path)).dataset()
    path.write_text("a,b\n" + "\n".join(f"{a},{b}" for a, b in rows(n=90, d=2).tolist()))
    result = run(Clusters(data=str(path), components=2), tmp_path / "runs")
    assert result.metrics["gain"] > 0
    assert "rand_index" not in result.metrics
    other = tmp_path / "other.csv"
    other.write_text("b,a,more\n1.5,0.5,x\n2.5,3.5,y\n")
    spec = Clusters(data=str(path)).dataset().spec
    assert spec["task"] == "density"
    like = csv_table.read(other, "", like=spec)
    assert like.parts["test"][0].tolist() == [[0.5, 1.5], [3.5, 2.5]]
    other.write_text("a,b\n")
    with pytest.raises(UserError, match="must have rows below its header"):
        Clusters(data=str(other)).dataset()
