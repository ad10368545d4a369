import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax as scipy_softmax

from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.feedforward.activations import (
    FAR,
    RECIPES,
    Activations,
    arctan,
    measure_slope,
    rectifier,
    sigmoid,
    softmax,
    softplus,
    step,
    table,
    tanh,
)


def points(*values):
    return torch.tensor(values, dtype=torch.float64)


# --------------------------------------------------------------------------------------- equations


def test_values_by_hand():
    z = points(-math.log(3), 0.0, math.log(3))
    assert sigmoid(z).tolist() == pytest.approx([1 / 4, 1 / 2, 3 / 4])
    assert tanh(z).tolist() == pytest.approx([-0.8, 0, 0.8])
    assert arctan(points(-1.0, 0.0, math.sqrt(3))).tolist() == pytest.approx(
        [-math.pi / 4, 0, math.pi / 3]
    )
    assert step(points(-2.0, 0.0, 2.0), at_zero=0.3).tolist() == [0, 0.3, 1]
    assert softplus(z).tolist() == pytest.approx([math.log(4 / 3), math.log(2), math.log(4)])
    assert rectifier(points(-2.0, 0.0, 3.0), a=0.1).tolist() == pytest.approx([-0.2, 0, 3])
    assert softmax(points(0.0, 2 * math.log(3)), 2.0).tolist() == pytest.approx([1 / 4, 3 / 4])


@pytest.mark.covers("O1", "O2", "O3")
@pytest.mark.parametrize("name", table(0.1, 0.5))
@given(z=st.lists(st.floats(-40, 40), min_size=1, max_size=9))
@settings(max_examples=25, deadline=None)
def test_each_is_that_of_torch_and_its_slope_is_its_derivative(name, z):
    """The slope by hand against that of torch and against that of our own value."""
    place = points(*(u if abs(u) > 1e-3 else 1.0 for u in z))
    made = table(0.1, 0.5)[name]
    torch.testing.assert_close(made.value(place), made.torch(place), rtol=1e-10, atol=1e-14)
    for function in (made.torch, made.value):
        near = {"rtol": 1e-8, "atol": 1e-14}
        torch.testing.assert_close(measure_slope(function, place), made.slope(place), **near)


@pytest.mark.covers("O1", "O2", "O3")
@pytest.mark.parametrize("name", table(0.1, 0.5))
def test_far_from_zero_nothing_overflows(name):
    made = table(0.1, 0.5)[name]
    for of in (made.value(points(*FAR)), made.slope(points(*FAR))):
        assert of.isfinite().all()


@pytest.mark.covers("O4")
@given(
    x=st.lists(st.floats(-20, 20), min_size=2, max_size=6),
    t=st.floats(0.1, 10),
    shift=st.floats(-1e3, 1e3),
)
@settings(max_examples=25, deadline=None)
def test_softmax_at_any_temperature(x, t, shift):
    p = softmax(points(*x), t)
    torch.testing.assert_close(p, torch.from_numpy(scipy_softmax(points(*x).numpy() / t)))
    torch.testing.assert_close(softmax(points(*x) + shift, t), p, rtol=1e-7, atol=1e-12)
    slopes = torch.autograd.functional.jacobian(lambda v: softmax(v, t), points(*x))
    by_hand = (p.diag() - torch.outer(p, p)) / t
    torch.testing.assert_close(slopes, by_hand, rtol=1e-8, atol=1e-12)


# ------------------------------------------------------------------------------------ the recipe


@pytest.mark.covers("O1", "O2", "O3", "O4")
def test_the_default_recipe_reaches_its_goal(tmp_path):
    recipe = RECIPES["activations"]
    metrics = run(recipe, tmp_path, device="cpu").metrics
    assert all(goal.reached(metrics) for goal in recipe.goals())
    assert metrics["sigmoid_slope"] == 0.25
    assert metrics["tanh_slope"] == 1.0
    assert metrics["softmax_error"] < 1e-12


@pytest.mark.covers("O1")
@pytest.mark.parametrize("at_zero", [0.0, 1.0])
def test_the_value_of_the_step_at_zero_is_a_setting(at_zero):
    result = Activations(at_zero=at_zero, points=5).simulate(torch.Generator())
    row = list(table(0.1, at_zero)).index("step")
    assert result["values"][row, :5].tolist() == [0, 0, at_zero, 1, 1]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"leak": math.inf}, r"leak \(inf\) must be a number"),
        ({"at_zero": 2.0}, r"at_zero \(2.0\) must be a number from 0 to 1"),
        ({"logits": (1.0,)}, r"logits .* must be two numbers or more, none of them twice"),
        ({"logits": (1.0, 1.0)}, r"logits .* must be two numbers or more, none of them twice"),
        ({"logits": (1.0, math.inf)}, r"logits .* must be finite"),
        ({"points": 4}, r"points \(4\) must be an odd number from 3 up"),
    ],
)
def test_bad_settings(fields, message):
    with pytest.raises(UserError, match=message):
        Activations(**fields)


def test_a_step_is_not_said_to_have_a_steepest_slope_of_0():
    recipe = RECIPES["activations"].tiny()
    drawn = recipe.picture_activations(recipe.simulate(torch.Generator()))
    told = [axes.get_title().replace("\n", " ") for axes in drawn.axes]
    titles = {title.partition(":")[0]: title for title in told}
    assert titles["step"] == "step: flat but for its jump"
    assert titles["sigmoid"] == "sigmoid: steepest 0.25"


def test_losses_are_drawn_above_their_slopes():
    number, score, number_slope, score_slope = Activations().picture_losses({}).axes
    for above, below in ((number, number_slope), (score, score_slope)):
        for loss, slope in zip(above.lines, below.lines, strict=True):
            x, y, dy = loss.get_xdata(), loss.get_ydata(), slope.get_ydata()
            middle = abs((y[2:] - y[:-2]) / (x[2:] - x[:-2]) - dy[1:-1])
            assert sorted(middle)[-4] < 0.01, "but for kinks and jumps"
    names = [text.get_text() for axes in (number_slope, score_slope) for text in
             axes.get_legend().get_texts()]  # fmt: skip
    assert names == ["squared", "absolute", "Huber", "cross-entropy", "hinge", "wrong or right"]
