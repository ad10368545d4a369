import io

import numpy as np
import torch

from everynet.plot.style import OURS, WRONG
from everynet.zoo.adversarial.pictures.attack import attacked


def test_a_column_for_each_image_with_what_was_said():
    images = torch.rand(2, 1, 4, 5)
    changed = images + torch.tensor([0.1, -0.2])[:, None, None, None]
    figure = attacked(images, changed, before=["7  99%", "1  80%"], after=["2  60%", "1  70%"],
                      title="two")  # fmt: skip
    figure.savefig(io.BytesIO(), format="png")
    pictures = figure.axes[:6]
    assert [axes.get_title() for axes in pictures] == [
        "7  99%",
        "1  80%",
        "",
        "",
        "2  60%",
        "1  70%",
    ]
    titles = [axes.title.get_color() for axes in pictures]
    assert titles[:2] + titles[4:] == [OURS, OURS, WRONG, OURS]  # the second keeps its class
    for column, change in enumerate((0.1, -0.2)):
        shown = pictures[2 + column].images[0]
        assert torch.allclose(torch.tensor(shown.get_array()), torch.tensor(change).double())
        assert (shown.norm.vmin, shown.norm.vmax) == (-shown.norm.vmax, shown.norm.vmax)
        assert (pictures[column].images[0].norm.vmin, pictures[column].images[0].norm.vmax) == (
            0,
            1,
        )


def test_images_in_colour_and_of_any_number_of_channels():
    for channels in (2, 3):
        images = torch.rand(1, channels, 4, 4)
        made = attacked(images, 1 - images, before=["a"], after=["b"])
        made.savefig(io.BytesIO(), format="png")
        shown = [np.asarray(axes.images[0].get_array()) for axes in made.axes[:3]]
        for row, given in ((0, images[0]), (2, 1 - images[0])):
            seen = given.permute(1, 2, 0) if channels == 3 else given.mean(0)
            np.testing.assert_allclose(np.squeeze(shown[row]), seen, atol=1e-6)
        np.testing.assert_allclose(shown[1], (1 - 2 * images[0]).mean(0), atol=1e-6)
