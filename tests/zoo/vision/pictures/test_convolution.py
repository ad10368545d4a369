"""Pictures of convolution: what is in which axes."""

import numpy as np
import pytest
import torch
from matplotlib.text import Text

from everynet.zoo.vision.pictures.convolution import (
    backward_maps,
    kernel_flips,
    pooled_photos,
    pooling_windows,
    sliding_kernel,
    toeplitz_form,
)
from everynet.zoo.vision.pictures.filtering import filtered_images, found_shares, template_matches
from everynet.zoo.vision.pictures.shifts import shift_grid


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def drawn():
    """One picture of each kind."""
    image = torch.rand(6, 8, dtype=torch.float64)
    kernel = tensor([1, -2], [3, 4])
    maps = {"a": image, "b": image - 0.5, "c": image}
    found = torch.tensor([[0, 0], [2, 3], [2, 3]])
    return {
        "slid": sliding_kernel(tensor(1, 2, 3), tensor(2, 1), tensor(2, 5, 8, 3), columns=4),
        "flipped": kernel_flips((image, kernel, torch.stack([image, -image]))),
        "toeplitz": toeplitz_form(kernel, torch.rand(9, 16, dtype=torch.float64), (4, 4)),
        "backward": backward_maps(kernel.abs(), {"once": (image, image)}),
        "pooled": pooling_windows(torch.ones(4, 4), torch.ones(2, 2, 2), torch.ones(2, 4, 4)),
        "shrunk": pooled_photos(image, {"mean": [image[::2, ::2]]}),
        "filtered": filtered_images({"photo": image}, {"edges": image - 0.5}, {"strength": image}),
        "matched": template_matches(image, kernel, torch.tensor([2, 3]), maps, found),
        "shares": found_shares(["day", "night"], ["a", "b"], torch.tensor([[1, 2], [0, 2]]), 2),
        "shifted": shift_grid(image, image, 3, kernel, {"layer": (image, image, image)}),
    }


@pytest.fixture(scope="module")
def figures():
    return drawn()


def test_all_are_as_wide_as_a_page_with_text_that_can_be_read(figures):
    for name, figure in figures.items():
        assert figure.get_figwidth() == 6.5, name
        sizes = [t.get_fontsize() for t in figure.findobj(Text) if t.get_text()]
        assert min(sizes) >= 7, name
        assert all(axes.has_data() for axes in figure.axes), name


def test_each_step_says_its_sum(figures):
    titles = [axes.get_title() for axes in figures["slid"].axes]
    assert titles[:3] == ["signal f", "kernel g", "turned: g(-n)"]
    assert titles[3:7] == ["m = 0", "m = 1", "m = 2", "m = 3"]
    assert titles[11:] == ["1·2\n= 2", "1·1 + 2·2\n= 5", "2·1 + 3·2\n= 8", "3·1\n= 3"]


def test_weights_and_zeros_are_counted(figures):
    kernel, matrix = figures["toeplitz"].axes[:2]
    assert kernel.get_title() == "kernel\n4 weights"
    assert [text.get_text() for text in kernel.texts] == ["1", "-2", "3", "4"]
    assert matrix.get_title().startswith("dense matrix for images of 4 x 4: 144 weights, 0%")


def test_a_place_is_marked_where_it_was_found(figures):
    _, first, second, third = figures["matched"].axes[:4]
    assert first.get_title() == "a: 3 pixels away"
    assert second.get_title() == third.get_title().replace("c", "b") == "b: found"
    assert first.lines[0].get_xydata().tolist() == [[1, 1]]  # the middle of a template of 2 x 2
    assert second.lines[0].get_xydata().tolist() == [[4, 3]]


def test_what_is_left_is_white_where_it_is_rounding():
    y = torch.rand(4, 4, dtype=torch.float64)
    figure = shift_grid(y, y, 1, y, {"layer": (y, y, y + 1e-12)})
    assert not np.any(figure.axes[-1].images[0].get_array())


def test_counts_stand_on_their_bars(figures):
    (axes,) = figures["shares"].axes
    assert [text.get_text() for text in axes.texts] == ["1", "2", "0", "2"]
    assert axes.get_ylabel() == "found, of 2"
