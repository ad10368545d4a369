import math

import numpy as np
import pytest
import torch

from everynet.plot.style import colour
from everynet.plot.sweep import LINES, metric_by_setting
from tests.plot.test_panels import drawn, names


def grid(**values):
    """Settings of a grid, the last key fastest, each combination with two seeds."""
    rows = [{}]
    for key, given in values.items():
        rows = [{**row, key: value} for row in rows for value in given]
    return [row for row in rows for _ in range(2)]


def figure(settings, values=None):
    given = values if values is not None else torch.arange(len(settings), dtype=torch.float64)
    return drawn(metric_by_setting(settings, given, "loss (validation)"))


def test_points_are_seeds_and_the_line_joins_their_means():
    made = figure(grid(lr=[0.1, 0.2, 0.4]))
    (axes,) = made.axes
    points, line = axes.lines
    np.testing.assert_allclose(points.get_xydata(), [(0.1, 0), (0.1, 1), (0.2, 2), (0.2, 3),
                                                     (0.4, 4), (0.4, 5)])  # fmt: skip
    np.testing.assert_allclose(line.get_xydata(), [(0.1, 0.5), (0.2, 2.5), (0.4, 4.5)])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("lr", "loss (validation)")
    assert axes.get_xscale() == "linear"
    assert axes.get_legend() is None
    assert made.get_figwidth() == 6.5


@pytest.mark.parametrize(("values", "scale"), [
    ([0.001, 0.1], "log"), ([1, 11], "log"), ([1, 10], "linear"), ([0, 100], "linear"),
    ([-1.0, 100.0], "linear"),
])  # fmt: skip
def test_an_axis_over_more_than_a_decade_is_logarithmic(values, scale):
    assert figure(grid(lr=values)).axes[0].get_xscale() == scale


def test_figures_over_decades_too():
    values = torch.tensor([1e-3, 1.0, 1.0, 1.0], dtype=torch.float64)
    assert figure(grid(lr=[1, 2]), values).axes[0].get_yscale() == "log"
    assert figure(grid(lr=[1, 2])).axes[0].get_yscale() == "linear"


@pytest.mark.parametrize(("values", "labels"), [
    (["sgd", "adam"], ["sgd", "adam"]),
    ([True, False], ["true", "false"]),
    ([(16, 32), (8,)], ["16,32", "8"]),
])  # fmt: skip
def test_what_is_no_number_has_places_with_names(values, labels):
    (axes,) = figure(grid(way=values)).axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == labels
    assert axes.lines[1].get_xdata().tolist() == [0, 1]


def test_a_line_for_each_value_of_the_other_setting():
    made = figure(grid(lr=[1, 2], way=["a", "b"]))
    first, second = made.axes
    assert names(first) == ["way=a", "way=b"]
    assert names(second) == ["lr=1", "lr=2"]
    np.testing.assert_allclose(first.lines[1].get_xydata(), [(1, 0.5), (2, 4.5)])
    assert [line.get_color() for line in first.lines] == [colour(0)] * 2 + [colour(1)] * 2


def test_many_others_are_one_line_of_means():
    (first, _) = figure(grid(lr=[1, 2], way=[*"abcdefg"])).axes
    assert LINES == 6
    assert names(first) == ["mean over the others"]
    np.testing.assert_allclose(first.lines[1].get_xydata(), [(1, 6.5), (2, 20.5)])


def test_what_diverged_is_crossed_at_the_edge_and_counts_in_no_mean():
    values = torch.tensor([1.0, 3.0, math.nan, 5.0, math.nan, math.nan], dtype=torch.float64)
    (axes,) = figure(grid(lr=[1, 2, 3]), values).axes
    np.testing.assert_allclose(axes.lines[1].get_xydata(), [(1, 2), (2, 5)])
    assert axes.lines[2].get_xdata().tolist() == [2, 3]
    assert axes.lines[2].get_marker() == "x"
    assert names(axes)[-1] == "diverged"


def test_nothing_but_diverged_cells_can_be_drawn():
    (axes,) = figure(grid(lr=[1, 2]), torch.full((4,), math.nan, dtype=torch.float64)).axes
    (crosses,) = [line for line in axes.lines if line.get_marker() == "x"]
    assert crosses.get_xdata().tolist() == [1, 2]
    assert np.isfinite(crosses.get_ydata()).all()
    assert not any(len(line.get_xdata()) for line in axes.lines if line is not crosses)
    assert names(axes) == ["diverged"]


def test_letters_are_large_enough_on_paper():
    made = figure(grid(lr=[0.1, 10.0, 100.0], way=["a long name", "another long name", "c"]))
    for axes in made.axes:
        texts = [axes.xaxis.label, axes.yaxis.label, *axes.get_legend().get_texts()]
        ticks = [*axes.get_xticklabels(), *axes.get_yticklabels()]
        assert all(text.get_fontsize() >= 7 for text in (*texts, *ticks))
