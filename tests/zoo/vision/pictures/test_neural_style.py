import pytest
import torch

from everynet.plot.style import WRONG, png
from everynet.zoo.vision.pictures.neural_style import gram_matrices, picture_table


def test_rows_of_pictures_bear_their_names_and_their_pixels():
    images = torch.rand(5, 3, 4, 6)
    rows = [
        ("first", [("a", images[0]), ("b", images[1]), ("c", images[2])]),
        ("second", [("", images[3]), ("", images[4] + 1)]),
    ]
    made = picture_table(rows, title="all")
    made.set_dpi(30)
    assert len(png(made)) > 1000
    axes = made.axes
    assert [one.get_title() for one in axes] == ["a", "b", "c", "", "", ""]
    assert [one.get_ylabel() for one in axes] == ["first", "", "", "second", "", ""]
    shown = torch.tensor(axes[1].images[0].get_array())
    torch.testing.assert_close(shown, images[1].permute(1, 2, 0).double())
    assert axes[4].images[0].get_array().max() == 1, "lighter than white is white"
    assert not axes[5].images
    inks = [one.title.get_color() for one in picture_table(rows, wrong=[False, True]).axes]
    assert [place for place, ink in enumerate(inks) if ink == WRONG] == [4]
    assert made.get_size_inches()[0] == pytest.approx(6.5)


def test_grey_pictures_are_grey():
    axes = picture_table([("", [("", torch.rand(1, 4, 4))])]).axes[0]
    assert axes.images[0].get_array().shape == (4, 4)
    assert axes.images[0].get_clim() == (0, 1)


def test_gram_matrices_of_a_layer_have_the_scale_of_the_last_row():
    first = [torch.full((2, 2), 9.0), torch.eye(40)]
    last = [torch.tensor([[4.0, 1.0], [1.0, 0.0]]), 25 * torch.eye(40)]
    made = gram_matrices({"content": first, "style": last}, ["one", "two"])
    made.set_dpi(30)
    assert len(png(made)) > 1000
    assert [one.get_title() for one in made.axes[:2]] == ["one\n2 maps", "two\n32 of 40 maps"]
    assert [made.axes[place].get_ylabel() for place in (0, 2)] == ["content", "style"]
    values = [torch.tensor(one.images[0].get_array()) for one in made.axes[:4]]
    assert values[0].tolist() == [[1.5, 1.5], [1.5, 1.5]]
    assert values[2].tolist() == [[1.0, 0.5], [0.5, 0.0]]
    assert values[1].diagonal().tolist() == pytest.approx([0.2] * 32)
    assert all(one.images[0].get_clim() == (0, 1) for one in made.axes[:4])
