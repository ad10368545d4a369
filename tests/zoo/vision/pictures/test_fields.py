"""Pictures of fields and scans: what is in which axes, on which scale."""

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from everynet.zoo.vision.pictures.fields import (
    angles_needed,
    influences,
    reconstructions,
    solutions,
)
from everynet.zoo.vision.pictures.segmentation import (
    FALSE_NEGATIVE,
    FALSE_POSITIVE,
    bent_windows,
    membranes,
)


def test_a_row_holds_source_field_networks_and_errors():
    f, u = torch.randn(2, 4, 4), torch.randn(2, 4, 4)
    v, w = u + 0.1, u * 1.5
    figure = solutions(f, u, {"a": v, "b": w})
    drawn = [axes.images[0] for axes in figure.axes]
    assert len(drawn) == 12
    for image, wanted in zip(drawn[:6], (f, u, v, v - u, w, w - u), strict=True):
        assert np.allclose(image.get_array(), wanted[0])
    assert drawn[2].get_clim() == drawn[1].get_clim(), "fields share a scale"
    assert drawn[3].get_clim() == drawn[5].get_clim(), "errors share a scale"
    assert drawn[5].get_clim()[1] == pytest.approx(max((0.5 * u[0]).abs().max().item(), 0.1))
    assert figure.axes[5].get_xlabel() == "50.0% of u"
    assert [axes.get_title() for axes in figure.axes[:6]] == [
        "source f", "field u", "a", "its error", "b", "its error",
    ]  # fmt: skip


def test_what_is_seen_is_outlined_and_drawn_along_its_row():
    maps = {"exact": torch.rand(8, 8), "one": torch.rand(8, 8), "two": torch.rand(8, 8)}
    figure = influences(maps, place=(5, 3), receptive_field=3)
    square = next(p for p in figure.axes[2].patches if isinstance(p, Rectangle))
    assert (square.get_xy(), square.get_width()) == ((1.5, 3.5), 3)
    assert figure.axes[2].get_xlabel() == "sees 3 x 3 points"
    lines = {line.get_label(): line.get_ydata() for line in figure.axes[3].lines}
    for name, values in maps.items():
        assert np.allclose(lines[name], values[5])
    at = figure.axes[3].lines[0].get_xdata()
    assert at[[0, -1]] == pytest.approx([1 / 9, 8 / 9])


def test_scans_and_what_was_made_of_them_with_decibels():
    true, scans = torch.rand(2, 8, 8), torch.rand(2, 5, 12)
    given, made = true + 0.2, true - 0.1
    figure = reconstructions(
        true, scans, given, made, before=torch.tensor([20.0, 21.0]), after=torch.tensor([25.26, 30])
    )
    drawn = [axes.images[0] for axes in figure.axes]
    for image, wanted in zip(
        drawn[:6], (true, scans, given, given - true, made, made - true), strict=True
    ):
        assert np.allclose(image.get_array(), wanted[0])
    assert drawn[0].get_clim() == drawn[2].get_clim() == drawn[4].get_clim()
    assert drawn[3].get_clim() == drawn[5].get_clim() == pytest.approx((-0.1, 0.1))
    assert figure.axes[4].get_xlabel() == "25.3 dB"
    assert figure.axes[8].get_xlabel() == "21.0 dB"


def test_a_network_stands_beside_numbers_of_angles():
    figure = angles_needed(torch.tensor([10, 60]), torch.tensor([20.0, 27.0]), 60, 31.5)
    curve, point, level = figure.axes[0].lines
    assert curve.get_ydata().tolist() == [20, 27]
    assert (point.get_xdata().tolist(), point.get_ydata().tolist()) == ([60], [31.5])
    assert level.get_ydata().tolist() == [31.5, 31.5]
    assert [t.get_text() for t in figure.axes[0].get_xticklabels()] == ["10", "60"]


def test_mistakes_are_coloured_by_what_was_missed_and_made_up():
    true = torch.tensor([[[0, 0], [1, 1]]])
    said = torch.tensor([[[0, 1], [0, 1]]])
    figure = membranes(torch.rand(1, 2, 2), true, {"net": said}, ["membrane", "cell"])
    pixels = figure.axes[2].images[0].get_array()
    assert np.allclose(pixels[0, 0], 0)
    assert np.allclose(pixels[0, 1], to_rgb(FALSE_NEGATIVE))
    assert np.allclose(pixels[1, 0], to_rgb(FALSE_POSITIVE))
    assert np.allclose(pixels[1, 1], 1)
    assert figure.axes[2].get_xlabel() == "50.0% wrong"
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["membrane that was missed", "membrane that is none", "membrane, right"]


def test_windows_stand_above_their_masks():
    images, masks = torch.rand(3, 4, 4), torch.randint(2, (3, 4, 4))
    figure = bent_windows(images, masks)
    drawn = [axes.images[0].get_array() for axes in figure.axes]
    assert np.allclose(drawn[1], images[1])
    assert np.allclose(drawn[3 + 1], masks[1])
    assert [axes.get_title() for axes in figure.axes[:3]] == ["as it is", "bent", "bent"]
