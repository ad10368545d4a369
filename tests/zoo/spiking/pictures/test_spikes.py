import numpy as np
import pytest
import torch

from everynet.zoo.spiking.pictures.spikes import (
    MANY,
    ROUNDING,
    firing_curve,
    membrane_traces,
    raster,
)


def test_a_raster_shows_each_spike_and_the_rate_of_each_group(tmp_path):
    times = torch.tensor([0.001, 0.012, 0.013, 0.019])
    neurons = torch.tensor([0, 1, 2, 2])
    made = raster(times, neurons, {"some": 2, "others": 1}, 0.02, bin_width=0.01)
    upper, lower = made.axes
    marks = [line for line in upper.lines if line.get_marker() == "|"]
    assert [line.get_xdata().tolist() for line in marks] == [
        pytest.approx([1, 12]),
        pytest.approx([13, 19]),
    ]
    assert [line.get_ydata().tolist() for line in marks] == [[0, 1], [2, 2]]
    heights = [patch.get_data().values.tolist() for patch in lower.patches]
    assert heights == [pytest.approx([50, 50]), pytest.approx([0, 200])]
    assert lower.get_xlabel() == "time (ms)"
    assert lower.get_ylabel() == "rate (Hz)"
    made.savefig(tmp_path / "raster.png")


def test_a_raster_of_many_neurons_has_dots_and_one_of_none_is_drawn(tmp_path):
    nothing = torch.zeros(0)
    made = raster(nothing, nothing.int(), {"all": MANY + 1}, 0.1)
    assert made.axes[0].lines[0].get_marker() == "."
    assert made.axes[0].get_ylim() == (-0.5, MANY + 0.5)
    made.savefig(tmp_path / "raster.png")


def test_traces_have_a_panel_each_a_threshold_and_a_line_for_each_spike(tmp_path):
    times = torch.linspace(0, 10, 5)
    made = membrane_traces(
        times,
        {"one": times / 10, "two": -times / 10},
        {"one": torch.tensor([2.0, 4.0]), "two": torch.zeros(0)},
    )
    assert [axes.get_title(loc="left") for axes in made.axes] == ["one", "two"]
    assert made.axes[0].lines[0].get_ydata() == [1, 1]
    assert made.axes[0].lines[1].get_ydata().tolist() == pytest.approx((times / 10).tolist())
    assert [len(axes.collections[0].get_segments()) for axes in made.axes] == [2, 0]
    assert made.axes[1].get_ylim()[0] < -1
    assert made.axes[1].get_xlabel() == "time (ms)"
    made.savefig(tmp_path / "traces.png")


def test_a_firing_curve_shows_the_distance_from_the_formula_where_it_fires(tmp_path):
    x = torch.logspace(-1, 1, 30, dtype=torch.float64)
    at = torch.tensor([0.5, 2.0, 4.0], dtype=torch.float64)
    made = firing_curve(
        lambda v: (v - 1).clamp(min=0),
        x,
        {"measured": (at, torch.tensor([0, 1.1, 2.7], dtype=torch.float64))},
        limit=9.0,
    )
    left, right = made.axes
    assert np.asarray(left.lines[1].get_ydata()).tolist() == pytest.approx([0, 1.1, 2.7])
    assert right.lines[0].get_xdata().tolist() == [2, 4]
    assert right.lines[0].get_ydata().tolist() == pytest.approx([10, 10])
    assert left.texts[0].get_text() == r"$1/\tau_{ref}$"
    made.savefig(tmp_path / "curve.png")
    bare = firing_curve(lambda v: v, x, {"measured": (at, at)})
    assert set(bare.axes[1].lines[0].get_ydata()) == {ROUNDING}, "no 0 on a logarithmic axis"
    assert not bare.axes[0].texts
