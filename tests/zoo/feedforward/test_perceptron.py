import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from everynet.runs.verbs import load, run
from everynet.system.errors import UserError
from everynet.training.loop import evaluate
from everynet.zoo.feedforward.perceptron import (
    RECIPES,
    Perceptron,
    learn_by_loop,
    margin,
    radius,
)

SQUARE = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
XOR = torch.tensor([0, 1, 1, 0])
TYPED = {
    "check_do_not_raise_errors_in_init_or_set_params": "types are checked on the way in, in tests"
}


@pytest.mark.covers("F1")
@pytest.mark.parametrize(
    ("inputs", "truth"),
    [(SQUARE, [0, 0, 0, 1]), (SQUARE, [0, 1, 1, 1]), (torch.tensor([[0.0], [1.0]]), [1, 0])],
    ids=["and", "or", "not"],
)
def test_learns_the_truth_table(inputs, truth):
    unit = Perceptron().fit(inputs, torch.tensor(truth))
    assert unit.predict(inputs).tolist() == truth
    assert unit.converged_


@pytest.mark.covers("F1")
@pytest.mark.parametrize(
    ("weight", "bias", "truth"),
    [
        ([1.0, 1.0], -1.5, [0, 0, 0, 1]),
        ([1.0, 1.0], -0.5, [0, 1, 1, 1]),
        ([-1.0, 0.0], 0.5, [1, 1, 0, 0]),
    ],
    ids=["and", "or", "not the first"],
)
def test_weights_by_hand(weight, bias, truth):
    """The unit answers 1 beyond the line w . x = -b, and 0 on it."""
    unit = Perceptron().fit(SQUARE, torch.tensor([0, 0, 0, 1]))
    unit.coef_, unit.intercept_ = torch.tensor([weight]).double(), torch.tensor([bias]).double()
    assert unit.predict(SQUARE).tolist() == truth
    on_the_line = torch.tensor([[-bias / weight[0], 0.0]]).double()
    assert unit.decision_function(on_the_line).item() == 0
    assert unit.predict(on_the_line).item() == 0


@pytest.mark.covers("F2")
def test_xor_never_converges():
    """1e5 passes, and w and b still run through a cycle: the last hundred passes change nothing."""
    with pytest.warns(ConvergenceWarning, match=r"max_passes \(100000\) ended"):
        unit = Perceptron(max_passes=100_000).fit(SQUARE, XOR)
    assert not unit.converged_
    assert unit.passes_ == 100_000
    assert unit.mistakes_ > 300_000
    with pytest.warns(ConvergenceWarning):
        earlier = Perceptron(max_passes=99_900).fit(SQUARE, XOR)
    assert torch.equal(unit.coef_, earlier.coef_)
    assert torch.equal(unit.intercept_, earlier.intercept_)
    assert margin(SQUARE, XOR) == 0


@pytest.mark.covers("F3")
def test_no_line_is_right_on_more_than_three_corners_of_xor():
    """Of the 16 ways to label four corners all but XOR and its opposite can be separated."""
    separable = [t for t in product((0, 1), repeat=4) if len(set(t)) == 1 or _separates(t)]
    assert len(separable) == 14
    right = [sum(a == b for a, b in zip(t, XOR.tolist(), strict=True)) for t in separable]
    assert max(right) / 4 == 0.75


def _separates(t):
    return margin(SQUARE, torch.tensor(t)) > 0


@pytest.mark.covers("F2")
@given(seed=st.integers(0, 100_000), features=st.integers(1, 4))
@settings(max_examples=40)
def test_mistakes_never_exceed_the_bound(seed, features):
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(20, features, generator=random, dtype=torch.float64)
    t = (x @ torch.randn(features, generator=random, dtype=torch.float64) > 0.3).long()
    assume(0 < t.sum() < 20)
    gamma = margin(x, t)
    assert gamma > 0
    bound = (radius(x) / gamma) ** 2
    assume(bound < 1e6)
    unit = Perceptron(max_passes=math.ceil(bound) + 1).fit(x, t)
    assert unit.converged_
    assert unit.mistakes_ <= bound


def test_the_bound_is_reached():
    """One point of each class at +-a, R^2 = 1 + a^2 and gamma = a: as a grows the bound is 1."""
    x, t = torch.tensor([[-3.0], [3.0]]).double(), torch.tensor([0, 1])
    assert radius(x) == pytest.approx(10**0.5)
    assert margin(x, t) == pytest.approx(3.0)
    assert Perceptron().fit(x, t).mistakes_ == 1 == math.floor((radius(x) / margin(x, t)) ** 2)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=15)
def test_margin_is_the_best_over_all_directions(seed):
    """With one feature (w, b) is an angle: search them all."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(8, 1, generator=random, dtype=torch.float64)
    t = (x[:, 0] > 0.2).long()
    angles = torch.linspace(0, 2 * math.pi, 20_001, dtype=torch.float64)
    sides = (2 * t - 1)[:, None] * (x * angles.cos() + angles.sin())
    torch.testing.assert_close(
        torch.tensor(margin(x, t), dtype=torch.float64), sides.amin(0).amax(), atol=1e-3, rtol=0
    )


@given(lr=st.floats(1e-3, 1e3), seed=st.integers(0, 1000))
@settings(max_examples=20)
def test_the_learning_rate_scales_the_weights_and_changes_no_mistake(lr, seed):
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(12, 2, generator=random, dtype=torch.float64)
    t = (x.sum(1) > 0).long()
    assume(0 < t.sum() < 12)
    one, other = Perceptron().fit(x, t), Perceptron(lr=lr).fit(x, t)
    assert one.mistakes_ == other.mistakes_
    torch.testing.assert_close(other.coef_, lr * one.coef_)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@given(seed=st.integers(0, 1000), lr=st.sampled_from([0.5, 1.0]), passes=st.integers(1, 6))
@settings(max_examples=20)
def test_the_kernel_is_the_rule_as_it_is_written(seed, lr, passes):
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(9, 3, generator=random, dtype=torch.float64)
    t = torch.tensor([0, 1, *torch.randint(2, (7,), generator=random).tolist()])
    unit = Perceptron(max_passes=passes, lr=lr).fit(x, t)
    found = torch.cat([unit.coef_[0], unit.intercept_])
    torch.testing.assert_close(learn_by_loop(x, t, lr, passes), found, rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([Perceptron(max_passes=50)], expected_failed_checks=lambda _: TYPED)
def test_follows_scikit_learns_contract(estimator, check):
    check(estimator)


def test_speaks_as_it_is_spoken_to():
    labels = np.array(["no", "no", "no", "yes"])
    unit = Perceptron().fit(SQUARE.numpy(), labels)
    assert isinstance(unit.coef_, np.ndarray)
    assert unit.predict(SQUARE.numpy()).tolist() == labels.tolist()
    assert isinstance(Perceptron().fit(SQUARE, torch.tensor([0, 0, 0, 1])).coef_, torch.Tensor)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lr": 0.0}, r"lr \(0.0\) must be a positive number"),
        ({"max_passes": 0}, r"max_passes \(0\) must be at least 1"),
    ],
)
def test_bad_settings_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        Perceptron(**given).fit(SQUARE, XOR)


def test_what_cannot_be_learned_is_refused():
    with pytest.raises(ValueError, match=r"y \(3 classes\) must hold 2 classes"):
        Perceptron().fit(SQUARE, torch.tensor([0, 1, 2, 2]))
    with pytest.raises(NotFittedError, match="fit"):
        Perceptron().predict(SQUARE)
    with pytest.raises(UserError, match=r"positive \(tulip\) must be a class of iris; did you"):
        replace(RECIPES["perceptron"], positive="tulip").dataset()
    with pytest.raises(UserError, match=r"data \(diabetes\) must have a class as its target"):
        replace(RECIPES["perceptron"], data="diabetes").dataset()


@pytest.mark.covers("F2")
def test_setosa_within_the_bound(tmp_path):
    recipe = replace(RECIPES["perceptron"], name="perceptron")
    result = run(recipe, out=tmp_path)
    assert result.reached
    assert {path.name for path in result.pictures} >= {"line.png", "bound.png"}
    unit, data = load(recipe, result.folder), recipe.dataset()
    x, t = data.whole
    assert unit.converged_
    share = unit.mistakes_ / (radius(x) / margin(x, t)) ** 2
    assert result.metrics["share_of_bound"] == pytest.approx(share)
    assert evaluate(recipe, unit, data.test)["accuracy"] == 1
    answer = recipe.predict(unit, x[:1], data.spec)[0]
    assert answer["class"] == data.spec["classes"][int(t[0])]
    assert (answer["score"] > 0) == bool(t[0])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_class_that_cannot_be_separated_still_has_a_picture():
    recipe = replace(RECIPES["perceptron"], positive="versicolor", max_passes=20)
    data = recipe.dataset()
    unit = recipe.fit(recipe.model(data), data)
    assert unit.margin_ == 0
    assert set(recipe.draw(unit, data, [])) == {"line"}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_where_no_line_separates_there_is_no_bound_to_have_a_share_of():
    """(5) holds for separable classes alone: XOR has no margin, so the metric is left out."""
    recipe = replace(RECIPES["perceptron"], data="xor", positive="1", max_passes=20)
    data = recipe.dataset()
    unit = recipe.fit(recipe.model(data), data)
    found = evaluate(recipe, unit, data.test)
    assert "share_of_bound" not in found
    assert found["mistakes"] == unit.mistakes_ > 0
