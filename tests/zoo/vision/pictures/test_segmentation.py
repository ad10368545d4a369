"""Pictures of masks: what is in which axes, and in which colour."""

import numpy as np
import torch
from matplotlib.colors import to_rgb

from everynet.plot.style import FAINT, colour
from everynet.zoo.vision.pictures.segmentation import WRONG, feature_u, mask_grid, uncertain_pixels


def test_truth_prediction_and_what_is_wrong_are_drawn_pixel_by_pixel():
    true = torch.tensor([[[0, 1], [2, 0]]])
    predicted = torch.tensor([[[0, 1], [1, 0]]])
    figure = mask_grid(torch.rand(1, 1, 2, 2), true, predicted, ["ground", "a", "b"])
    _, truth, said, wrong = (axes.images[0].get_array() for axes in figure.axes)
    assert np.allclose(truth[1, 0], to_rgb(colour(2)))
    assert np.allclose(said[1, 0], to_rgb(colour(1)))
    assert np.allclose(truth[0, 0], to_rgb(FAINT))
    assert np.allclose(wrong[1, 0], to_rgb(WRONG))
    assert not np.allclose(wrong[0, 0], to_rgb(WRONG))
    assert figure.axes[3].get_xlabel() == "25.0% wrong"
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["ground", "a", "b", "wrong pixel"]


def test_the_levels_stand_side_by_side_with_their_sizes():
    down = [torch.rand(3, 8, 8), torch.rand(6, 4, 4)]
    figure = feature_u(
        torch.rand(3, 8, 8),
        down,
        torch.rand(12, 2, 2),
        [torch.rand(6, 4, 4), torch.rand(3, 8, 8)],
        predicted=torch.zeros(8, 8, dtype=torch.int64),
        classes=["a", "b"],
    )
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles == [
        "image, 8 x 8",
        "prediction: 2 classes, 8 x 8",
        "down: 3 maps of 8 x 8",
        "up: 3 maps of 8 x 8",
        "down: 6 maps of 4 x 4, 4 shown",
        "up: 6 maps of 4 x 4, 4 shown",
        "bottom: 12 maps of 2 x 2, 4 shown",
    ]


def test_uncertainty_is_entropy_in_bits():
    even = torch.full((1, 4, 2, 2), 0.25)
    even[0, :, 0, 0] = torch.tensor([1.0, 0.0, 0.0, 0.0])
    true = torch.tensor([[[0, 1], [1, 1]]])
    figure = uncertain_pixels(torch.rand(1, 1, 2, 2), even, true)
    drawn = figure.axes[1].images[0].get_array()
    assert np.allclose(drawn, [[0, 2], [2, 2]])
