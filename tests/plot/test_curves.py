import math

import pytest
import torch

from everynet.plot import learning_curve
from everynet.plot.curves import moving_mean
from everynet.plot.style import BASELINE
from tests.plot.legible import faults


def rows(split, **curves):
    length = len(next(iter(curves.values())))
    return [
        {"step": step + 1, split: {name: values[step] for name, values in curves.items()}}
        for step in range(length)
    ]


def test_one_panel_for_each_name():
    history = rows("train", loss=[3.0, 2.0], _norm=[1.0, 1.5]) + rows(
        "valid", loss=[2.5], gap=[1.0]
    )
    drawn = learning_curve(history)
    assert [axes.get_ylabel() for axes in drawn.axes] == ["loss", "norm", "gap"]
    assert {axes.get_xlabel() for axes in drawn.axes} == {"step"}
    first = {line.get_label(): line for line in drawn.axes[0].lines}
    assert first["training"].get_ydata().tolist() == [3.0, 2.0]
    assert first["training"].get_xdata().tolist() == [1.0, 2.0]
    assert first["validation"].get_ydata().tolist() == [2.5]


def test_the_sum_of_a_single_term_is_not_drawn_twice():
    history = rows("train", error=[3.0]) + rows("valid", error=[2.0], loss=[2.0])
    assert [axes.get_ylabel() for axes in learning_curve(history).axes] == ["error"]
    history = rows("train", error=[3.0], decay=[1.0]) + rows("valid", loss=[2.0])
    names = [axes.get_ylabel() for axes in learning_curve(history).axes]
    assert names == ["error", "decay", "loss"]


def test_a_log_axis_only_where_it_helps():
    wide, narrow = rows("train", loss=[100.0, 1.0]), rows("train", loss=[2.0, 1.0])
    signed, zero = rows("train", loss=[100.0, -1.0]), rows("train", loss=[100.0, 0.0])
    scales = [learning_curve(h).axes[0].get_yscale() for h in (wide, narrow, signed, zero)]
    assert scales == ["log", "linear", "linear", "linear"]
    assert learning_curve(rows("train", loss=[1e6, 1.0])).axes[0].get_yscale() == "log"


def test_a_share_has_no_room_above_one():
    flat = learning_curve(rows("valid", accuracy=[1.0, 1.0])).axes[0].get_ylim()
    assert flat[0] < 1 < flat[1] < 1.01


def test_values_that_are_not_finite_are_left_out():
    drawn = learning_curve(rows("train", loss=[1.0, math.nan, math.inf, 2.0]))
    assert drawn.axes[0].lines[0].get_xdata().tolist() == [1.0, 4.0]


def test_without_steps_it_says_so(tmp_path):
    drawn = learning_curve([{"step": 1, "test": {"accuracy": 1.0}}])
    assert "no steps" in drawn.texts[0].get_text()
    drawn.savefig(tmp_path / "none.png")


def test_many_points_are_smoothed_and_still_shown(tmp_path):
    values = torch.rand(500, generator=torch.Generator().manual_seed(0)).tolist()
    drawn = learning_curve(rows("train", loss=values) + rows("valid", loss=[0.5, 0.4]))
    raw, smooth = drawn.axes[0].lines[:2]
    assert raw.get_ydata().tolist() == values
    assert smooth.get_ydata().std() < raw.get_ydata().std() / 2
    drawn.savefig(tmp_path / "many.png")
    assert (tmp_path / "many.png").read_bytes()[1:4] == b"PNG"


def test_moving_mean_by_hand():
    values = torch.tensor([1.0, 2.0, 6.0, 3.0])
    assert moving_mean(values, 2).tolist() == pytest.approx([1.5, 3.0, 11 / 3, 4.5])
    assert torch.equal(moving_mean(values, 1), values)
    torch.testing.assert_close(moving_mean(values, 100), values.mean().expand(4))


def test_figures_that_go_with_the_accuracy_have_no_panel():
    beside = {"balanced_accuracy": [0.5], "macro_f1": [0.4], "majority": [0.5], "auc": [0.7]}
    drawn = learning_curve(rows("valid", accuracy=[0.6], **beside))
    assert [axes.get_ylabel() for axes in drawn.axes] == ["accuracy"]


def test_the_step_whose_weights_are_kept_is_marked_in_every_panel():
    history = rows("train", loss=[3.0, 2.0, 1.0]) + rows("valid", accuracy=[0.6, 0.8, 0.7])
    drawn = learning_curve(history, 2)
    marks = [line for axes in drawn.axes for line in axes.lines if line.get_color() == BASELINE]
    assert [line.get_xdata() for line in marks] == [[2, 2], [2, 2]]
    (legend,) = drawn.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "training", "weights kept: step 2", "validation",
    ]  # fmt: skip
    assert not faults(drawn)
    assert not any("kept" in text.get_text() for text in learning_curve(history).legends[0].texts)
