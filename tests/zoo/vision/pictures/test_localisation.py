"""Pictures of turned maps, boxes, driven units and fields: what is in which axes."""

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from everynet.plot.style import colour
from everynet.zoo.vision.pictures.equivariance import turned_maps
from everynet.zoo.vision.pictures.features import cell_fields, driving_images, named_points
from everynet.zoo.vision.pictures.localisation import predicted_boxes


def test_a_map_that_moved_keeps_the_colour_of_its_frame():
    maps = torch.rand(2, 4, 3, 3)
    figure = turned_maps(torch.rand(2, 1, 6, 6), {"p4": maps}, moves=(True,))
    _, *above = figure.axes[:5]
    _, *below = figure.axes[5:10]
    inks = [[to_hex(axes.spines["left"].get_edgecolor()) for axes in row] for row in (above, below)]
    assert inks[0] == [colour(k) for k in range(4)]
    assert inks[1] == [colour(k) for k in (3, 0, 1, 2)]
    assert np.allclose(below[1].images[0].get_array(), maps[1, 1].double().numpy())


def test_boxes_are_drawn_in_pixels_of_the_image():
    true, found = torch.tensor([[0.25, 0.5, 0.75, 1.0]]), torch.tensor([[0.0, 0.0, 0.5, 0.25]])
    figure = predicted_boxes(torch.rand(1, 1, 8, 16), true, found, captions=["a"])
    boxes = [p for p in figure.axes[0].patches if isinstance(p, Rectangle)]
    assert [box.get_bbox().extents.tolist() for box in boxes] == [[4, 4, 12, 8], [0, 0, 8, 2]]
    assert [to_hex(box.get_edgecolor()) for box in boxes] == [colour(0), colour(1)]


def test_what_was_made_stands_above_what_was_found():
    images, patches = torch.rand(2, 1, 4, 4), torch.rand(2, 3, 1, 2, 2)
    figure = driving_images(images, patches, ["a", "b"])
    assert len(figure.axes) == 8
    assert np.allclose(figure.axes[1].images[0].get_array(), images[1, 0].double())
    assert np.allclose(figure.axes[3].images[0].get_array(), patches[1, 0, 0].double())


def test_fields_are_scaled_to_their_largest_weight_and_points_bear_their_values():
    figure = cell_fields({"a": torch.tensor([[0.0, -4.0], [2.0, 1.0]])})
    assert np.allclose(figure.axes[0].images[0].get_array(), [[0, -1], [0.5, 0.25]])
    points = named_points({"x": 90.0, "y": 95.5}, xlabel="accuracy (%)").axes[0]
    assert not points.patches  # a bar would begin at the edge of the axes and not at 0
    assert [line.get_xdata()[0] for line in points.lines] == pytest.approx([90.0, 95.5])
    assert {text.get_text().strip() for text in points.texts} == {"x", "y", "90.0", "95.5"}
