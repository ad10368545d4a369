import math

import numpy as np
import pytest
import torch
from sklearn.decomposition import FastICA as Reference
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.classic.ica import (
    RECIPES,
    FastICA,
    Unmixing,
    amari_distance,
    decorrelate,
    mixing_matrix,
    negentropy,
    three_signals,
    turned,
    whiten,
)


def mixed(seed=0, length=4000):
    """Mixtures, the sources and the mixing."""
    draw = torch.Generator().manual_seed(seed)
    s, a = three_signals(length, 0.02, draw), mixing_matrix(3, draw)
    return s @ a.T, s, a


@pytest.mark.covers("M23")
@pytest.mark.parametrize("seed", range(5))
def test_three_mixed_signals_are_recovered(seed):
    x, _, a = mixed(seed)
    assert amari_distance(FastICA(3, random_state=seed).fit(x).components_ @ a) < 0.05


def test_the_unmixing_is_scikit_learns():
    """From other starts, so up to order and sign."""
    x = mixed()[0].numpy()
    ours = FastICA(3, tol=1e-10).fit(x)
    theirs = Reference(3, whiten="unit-variance", tol=1e-10, max_iter=1000, random_state=0).fit(x)
    product = theirs.components_ @ np.linalg.inv(ours.components_)
    assert amari_distance(torch.from_numpy(product)) < 1e-4
    np.testing.assert_allclose(abs(product).max(1), 1, atol=1e-4)
    np.testing.assert_allclose(ours.transform(x).std(0), 1, atol=1e-10)
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(x)), x, atol=1e-9)


def test_a_step_is_newtons_on_the_mean_of_log_cosh():
    """(3): the gradient of E log cosh(w z), less the mean curvature times w."""
    z = torch.randn(3, 500, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    w = decorrelate(torch.eye(3).double() + 0.3)
    for k in range(3):
        row = w[k].clone().requires_grad_()
        (gradient,) = torch.autograd.grad((row @ z).cosh().log().mean(), row)
        curvature = (1 / (w[k] @ z).cosh() ** 2).mean()
        torch.testing.assert_close(turned(w, z)[k], gradient - curvature * w[k])
    torch.testing.assert_close(turned(w, z.repeat(1, 100)), turned(w, z))  # by chunks


def test_whitened_rows_have_no_correlation_and_rotations_none_either():
    """(2) and (4); the nearest orthogonal matrix is the polar factor of the SVD."""
    x = mixed()[0]
    mean, k = whiten(x, 2)
    torch.testing.assert_close(((x - mean) @ k.T).T.cov(correction=0), torch.eye(2).double())
    w = torch.randn(4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    u, _, v = torch.linalg.svd(w)
    torch.testing.assert_close(decorrelate(w), u @ v)


def test_amari_distance_by_hand():
    """(6): 0 for a permutation with signs and sizes, 1 where all entries are alike."""
    p = torch.tensor([[0.0, -3.0, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, 7.0]])
    assert amari_distance(p) == 0
    assert amari_distance(torch.ones(3, 3)) == pytest.approx(1)
    assert amari_distance(torch.tensor([[1.0, 0.5], [0.0, 2.0]])) == pytest.approx(
        (1.5 + 1 + 1 + 1.25 - 4) / 4
    )


def test_the_negentropy_of_a_gaussian_is_0():
    s = torch.randn(200_000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert negentropy(s) < 1e-5
    assert negentropy(s.sign()) == pytest.approx(
        (math.log(math.cosh(1)) - 0.3745672) ** 2, rel=0.01
    )


def test_in_a_pipeline_the_number_of_sources_is_searched():
    x, s, _ = mixed(length=600)
    pipeline = make_pipeline(FastICA(), LinearRegression())
    search = GridSearchCV(pipeline, {"fastica__n_components": [1, 3]}, cv=3)
    search.fit(x.numpy(), s[:, 0].numpy())
    assert search.best_params_ == {"fastica__n_components": 3}


@pytest.mark.parametrize(
    ("given", "x", "line"),
    [
        ({"n_components": 4}, mixed()[0], r"n_components \(4\) must be from 1 to 3, .* 3 columns"),
        ({"n_components": 3}, mixed()[0][:2], r"n_components \(3\) must be from 1 to 2"),
        ({"max_iter": 0}, mixed()[0], r"max_iter \(0\) must be at least 1"),
        ({}, mixed()[0][:1], r"X \(n_samples = 1\) must have 2 rows or more"),
        ({}, mixed()[0].index_fill(1, torch.tensor(0), 2.0), r"column 0 \(2 in every row\)"),
        ({}, mixed()[0] * math.nan, "Input X contains NaN"),
        (
            {"n_components": 3},
            mixed()[0] @ torch.tensor([[1.0, 0, 1], [0, 1, 1], [0, 0, 0]]).double(),
            r"n_components \(3\) must be at most 2, because the columns of X vary along so many",
        ),
    ],
)
def test_what_cannot_be_learned_is_refused(given, x, line):
    with pytest.raises(ValueError, match=line):
        FastICA(**given).fit(x)


def test_gaussian_sources_do_not_come_to_rest():
    x = torch.randn(3000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with pytest.warns(match=r"a direction still turned by .* after 5 steps"):
        FastICA(3, tol=1e-12, max_iter=5).fit(x)


def test_the_recipe_reaches_its_goal(tmp_path):
    recipe = RECIPES["ica"]
    assert run(recipe, tmp_path).reached
    data = recipe.dataset()
    model = recipe.fit(recipe.model(data), data)
    assert len(recipe.predict(model, data.splits["test"][0][:2], data.spec)[1]["sources"]) == 3
    with pytest.raises(UserError, match=r"components \(4\) must be at most 3, because three"):
        Unmixing(components=4)


def test_signals_of_ones_own(tmp_path):
    path = tmp_path / "own.csv"
    lines = [",".join(map(str, row)) for row in mixed(length=500)[0].tolist()]
    path.write_text("a,b,c\n" + "\n".join(lines))
    result = run(Unmixing(data=str(path)), tmp_path / "runs")
    assert result.metrics["gain"] > 0
    assert "amari" not in result.metrics
