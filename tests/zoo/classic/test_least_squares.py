import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score

from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.classic.least_squares import (
    RECIPES,
    LeastSquares,
    Regression,
    solve_normal_equations,
)


def test_a_line_through_points_on_a_line():
    x = torch.tensor([[0.0], [1.0], [5.0]], dtype=torch.float64)
    model = LeastSquares().fit(x, 2 * x[:, 0] + 1)
    assert model.coef_.tolist() == pytest.approx([2])
    assert model.intercept_ == pytest.approx(1)
    assert model.predict(torch.tensor([[10.0]])).tolist() == pytest.approx([21])


def test_three_points_by_hand():
    """(0,0), (1,0), (2,3): slope 3/2 and intercept -1/2, by the normal equations on paper."""
    model = LeastSquares().fit([[0], [1], [2]], [0, 0, 3])
    assert model.coef_[0] == pytest.approx(1.5)
    assert model.intercept_ == pytest.approx(-0.5)


@pytest.mark.covers("M18")
@pytest.mark.parametrize("scaled", [True, False])
def test_equal_to_lstsq_and_scikit_learn_on_diabetes(scaled):
    x, y = load_diabetes(return_X_y=True, scaled=scaled)
    ours, theirs = LeastSquares().fit(x, y), LinearRegression().fit(x, y)
    solved = np.linalg.lstsq(np.column_stack([x, np.ones(len(x))]), y, rcond=None)[0]
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-8)
    np.testing.assert_allclose(ours.coef_, solved[:-1], rtol=1e-8)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-8)
    np.testing.assert_allclose(ours.intercept_, solved[-1], rtol=1e-8)
    assert ours.score(x, y) == pytest.approx(theirs.score(x, y), abs=1e-8)


@given(seed=st.integers(0, 10_000), features=st.integers(1, 6), rows=st.integers(8, 40))
@settings(max_examples=25, deadline=None)
def test_the_gradient_of_the_error_is_zero(seed, features, rows):
    """At the optimum of (2) the residuals sum to zero and are orthogonal to every feature."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, features, generator=generator, dtype=torch.float64)
    y = torch.randn(rows, generator=generator, dtype=torch.float64)
    model = LeastSquares().fit(x, y)
    theta = model.coef_.requires_grad_()
    b = torch.tensor(model.intercept_, dtype=torch.float64, requires_grad=True)
    loss = (x @ theta + b - y).square().mean()
    for gradient in torch.autograd.grad(loss, [theta, b]):
        assert gradient.abs().max() < 1e-12
    worse = (model.predict(x + 0.1) - y).square().mean()
    assert loss <= worse


def test_of_many_best_weights_the_shortest_is_taken():
    """With a feature twice, or fewer rows than features, as scikit-learn and lstsq do."""
    x = torch.randn(5, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.arange(5.0, dtype=torch.float64)
    ours, theirs = LeastSquares().fit(x, y), LinearRegression().fit(x.numpy(), y.numpy())
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-8)
    torch.testing.assert_close(ours.predict(x), y)
    twice = LeastSquares().fit(torch.cat([x[:, :1], x[:, :1]], 1), y)
    assert twice.coef_[0].item() == pytest.approx(twice.coef_[1].item())


@pytest.mark.parametrize("near", [1.0, 1e-2, 1e-5, 1e-7])
def test_columns_that_are_nearly_the_same_are_told_apart_as_well_as_lstsq_does(near):
    """The normal equations serve where that costs no digits, and not where they would."""
    draw = np.random.default_rng(2)
    x = draw.normal(size=(60, 3))
    x[:, 2] = x[:, 1] + near * x[:, 2]
    y = x @ [1.0, 2.0, 3.0] + draw.normal(size=60)
    centred, rest = torch.tensor(x - x.mean(0)), torch.tensor(y - y.mean())
    fast = solve_normal_equations(centred, rest)
    assert (fast is None) == (near < 1e-4)
    solved = np.linalg.lstsq(centred.numpy(), rest.numpy(), rcond=None)[0]
    np.testing.assert_allclose(LeastSquares().fit(x, y).coef_, solved, rtol=1e-13 / near + 1e-12)
    assert solve_normal_equations(centred[:5], rest[:5]) is None, "too few rows"


@pytest.mark.parametrize("near", [0.1, 0.01, 0.001])
def test_solving_for_what_is_left_brings_the_digits_back(near):
    """Without noise the weights are known; one pass alone is off by about 1e-15 / near^2."""
    x = np.random.default_rng(2).normal(size=(60, 3))
    x[:, 2] = x[:, 1] + near * x[:, 2]
    y = x @ [1.0, 2.0, 3.0]
    found = solve_normal_equations(torch.tensor(x - x.mean(0)), torch.tensor(y - y.mean()))
    expected = torch.tensor([1.0, 2.0, 3.0]).double()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-15 / near)


def test_the_recipe_reaches_its_goal_and_its_figures_are_scikit_learns(tmp_path):
    """The split is fixed and nothing is random, so one seed says it for all."""
    recipe = RECIPES["least-squares"]
    result = run(recipe, tmp_path)
    data = recipe.dataset()
    (x, y), (test_x, test_y) = data.splits["train"], data.splits["test"]
    theirs = LinearRegression().fit(x.numpy(), y.numpy()).predict(test_x.numpy())
    assert result.reached
    assert result.metrics["r2"] == pytest.approx(r2_score(test_y, theirs), abs=1e-8)
    assert result.metrics["rmse"] == pytest.approx(((theirs - test_y.numpy()) ** 2).mean() ** 0.5)


def test_predict_gives_a_value_for_each_input():
    recipe = RECIPES["least-squares"]
    data = recipe.dataset()
    model = recipe.fit(recipe.model(data), data)
    rows = data.splits["test"][0][:3]
    answers = recipe.predict(model, rows, data.spec)
    assert [a["value"] for a in answers] == pytest.approx(model.predict(rows).tolist())


def test_classes_are_refused():
    with pytest.raises(UserError, match=r"data \(iris\) must have a number as its target"):
        Regression(data="iris").dataset()
