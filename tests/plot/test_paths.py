import io

import numpy as np
import pytest
import torch

from everynet.plot.paths import descent_paths, error_decay, landscapes, step_sizes
from everynet.plot.style import colour


def bowl(points):
    return points[..., 0] ** 2 + 4 * points[..., 1] ** 2


def drawn(figure):
    """The figure as it is on paper: whatever cannot be drawn raises here."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    assert file.getvalue().startswith(b"\x89PNG")
    return figure


def path(*points):
    return torch.tensor(points, dtype=torch.float64)


def test_each_path_has_a_panel_with_its_steps_on_the_contours():
    paths = {"one": path((1, 1), (0.5, 0.2)), "two": path((1, 0), (0, 0), (0, 0))}
    figure = drawn(descent_paths(bowl, paths, window=(-1, 2, -1, 1)))
    assert [axes.get_title() for axes in figure.axes] == ["one", "two"]
    for number, (axes, way) in enumerate(zip(figure.axes, paths.values(), strict=True)):
        line = axes.lines[0]
        np.testing.assert_array_equal(line.get_xydata(), way.numpy())
        assert line.get_color() == colour(number)
        assert axes.get_xlim() == (-1, 2)
        assert axes.get_xlabel()
        assert axes.get_aspect() == 1  # gradients cross contours at right angles on paper too
        assert axes.collections  # contours


def test_a_path_that_leaves_the_window_is_cut_after_the_first_point_outside():
    way = path((1, 0), (-1.5, 0), (3, 0), (0, 0))
    figure = drawn(descent_paths(bowl, {"out": way}, window=(-2, 2, -1, 1)))
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_xydata(), way[:3].numpy())


def test_a_guide_is_drawn_over_the_path_of_its_name():
    ways = {"a": path((1, 1), (0, 0)), "b": path((1, 1), (0, 0))}
    flow = path((1, 1), (0.5, 0.1), (0, 0))
    figure = drawn(descent_paths(bowl, ways, guides={"b": flow}))
    labels = [{line.get_label() for line in axes.lines} for axes in figure.axes]
    assert "flow" not in labels[0]
    assert "flow" in labels[1]


def test_landscapes_are_level_at_the_origin():
    """Red above it and blue below, whatever the height there."""
    raised = {"saddle": lambda p: 7 + p[..., 0] ** 2 - p[..., 1] ** 2, "bowl": bowl}
    figure = drawn(landscapes(raised))
    assert [axes.get_title() for axes in figure.axes[:2]] == ["saddle", "bowl"]
    for axes in figure.axes[:2]:
        low, high = axes.collections[0].get_clim()
        assert low == pytest.approx(-high, rel=0.3)


def test_decay_is_drawn_on_a_log_scale_with_predicted_slopes_through_the_end():
    curve = 3.0 * 0.5 ** torch.arange(6, dtype=torch.float64)
    figure = drawn(error_decay({"halves": curve, "other": curve[:3]}, factors={"halves": 0.5}))
    axes = figure.axes[0]
    assert axes.get_yscale() == "log"
    measured, other, predicted = axes.lines
    np.testing.assert_allclose(measured.get_ydata(), curve)
    np.testing.assert_allclose(predicted.get_ydata(), curve)  # the prediction is right here
    assert len(other.get_xdata()) == 3
    assert [t.get_text() for t in figure.legends[0].get_texts()] == [
        "halves", "other", "predicted slope",
    ]  # fmt: skip


def test_log_steps_begin_at_one():
    figure = drawn(error_decay({"x": torch.tensor([1.0, 0.1, 0.01])}, log_steps=True))
    axes = figure.axes[0]
    assert axes.get_xscale() == "log"
    assert axes.lines[0].get_xdata().tolist() == [1, 2, 3]


def test_step_sizes_shade_the_three_regimes():
    k = torch.linspace(0.1, 2.2, 8, dtype=torch.float64)
    figure = drawn(step_sizes(k, (1 - k).abs(), (1 - k).abs(), best=1.0))
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts[:3] == ["creeps", "swings and converges", "diverges"]
    few = torch.linspace(0.1, 1.5, 8, dtype=torch.float64)
    figure = drawn(step_sizes(few, (1 - few).abs(), (1 - few).abs(), best=1.0))
    assert "diverges" not in [text.get_text() for text in figure.axes[0].texts]
