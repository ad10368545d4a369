import io

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex

from everynet.plot.style import colour
from everynet.zoo.classic.pictures.linear import (
    class_images,
    class_table,
    coefficients,
    fitted,
    probability_curve,
    residuals,
)


def drawn(figure):
    """The figure as it is on paper: whatever cannot be drawn raises here."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    assert file.getvalue().startswith(b"\x89PNG")
    return figure


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_fitted_says_how_much_is_explained():
    right = (numbers(1, 2, 3), numbers(1, 2, 3))
    mean = (numbers(2, 2, 2), numbers(1, 2, 3))
    axes = drawn(fitted({"training": right, "validation": mean}, unit="mm")).axes[0]
    assert [line.get_label() for line in axes.lines[1:]] == [
        "training, 3 samples: $R^2 = 1.00$", "validation, 3 samples: $R^2 = 0.00$",
    ]  # fmt: skip
    assert axes.get_xlabel() == "predicted (mm)"
    assert axes.get_ylabel() == "measured (mm)"


def test_residuals_are_measured_less_predicted():
    left, right = drawn(residuals(numbers(1, 2, 3), numbers(2, 2, 5))).axes
    np.testing.assert_array_equal(left.lines[1].get_ydata(), [1, 0, 2])
    assert sum(bar.get_height() for bar in right.patches) == 3


def test_coefficients_stand_by_size_with_their_names():
    axes = drawn(coefficients(numbers(0.1, -3, 2), ["a", "b", "c"])).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["b", "c", "a"]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([-3, 2, 0.1])
    inks = [to_hex(bar.get_facecolor()) for bar in axes.patches]
    assert inks == [colour(0), colour(1), colour(1)]  # of the class that each speaks for
    low, high = axes.get_ylim()
    assert low > high  # the largest on top
    many = drawn(coefficients(torch.arange(50.0))).axes[0]
    assert many.get_title() == "the 30 largest of 50"
    assert many.get_yticklabels()[0].get_text() == "feature 49"


def test_the_probability_curve_marks_what_is_on_the_wrong_side():
    log_odds = numbers(-2, 1, 3, -50, 0.5)
    figure = drawn(probability_curve(log_odds, torch.tensor([0, 0, 1, 0, 1]), ["no", "yes"]))
    axes = figure.axes[0]
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["no: 2 of 3 right", "yes: 2 of 2 right"]
    wrong = [line for line in axes.lines if line.get_marker() == "X" and len(line.get_xdata())]
    assert [line.get_xdata().tolist() for line in wrong] == [[1.0]]
    assert wrong[0].get_ydata()[0] == pytest.approx(1 / (1 + np.exp(-1.0)))
    assert "1 further out" in [text.get_text() for text in axes.texts]
    assert axes.get_ylabel() == "probability of yes"


@pytest.mark.parametrize("channels", [1, 3])
def test_class_images_sum_the_channels(channels):
    weights = torch.randn(3, channels, 4, 5, dtype=torch.float64)
    figure = drawn(class_images(weights, ["a", "b", "c"]))
    assert [axes.get_title() for axes in figure.axes[:3]] == ["a", "b", "c"]
    for axes, image in zip(figure.axes[:3], weights.sum(1), strict=True):
        np.testing.assert_allclose(axes.images[0].get_array(), image)
        low, high = axes.images[0].get_clim()
        assert low == -high


def test_class_images_leave_empty_panels_bare_and_zero_weights_white():
    figure = drawn(class_images(torch.zeros(7, 1, 2, 2), list("abcdefg")))
    assert not figure.axes[8].images
    assert figure.axes[0].images[0].get_clim() == (-1, 1)


def test_class_table_has_features_down_and_classes_across():
    weights = torch.tensor([[1.0, -4.0, 2.0], [0.0, 3.0, 0.5]])
    axes = drawn(class_table(weights, ["x", "y"], ["a", "b", "c"])).axes[0]
    np.testing.assert_allclose(axes.images[0].get_array(), weights.T)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b", "c"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["x", "y"]
    assert axes.images[0].get_clim() == (-4, 4)
