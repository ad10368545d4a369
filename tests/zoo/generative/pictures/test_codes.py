import torch

from everynet.plot.style import png
from everynet.zoo.generative.pictures.codes import (
    code_plane,
    image_rows,
    plane_of_codes,
    unit_bars,
)

IMAGES = torch.linspace(0, 1, 6 * 4 * 4).view(6, 1, 4, 4)


def test_rows_of_images_have_their_names_beside_their_middles():
    drawn = image_rows({"image": IMAGES, "code": 1 - IMAGES})
    (axes,) = drawn.axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["image", "code"]
    assert [*axes.get_yticks()] == [2.5, 7.5]
    pixels = axes.images[0].get_array()
    assert pixels.shape == (10, 30)
    assert float(pixels[1, 1]) == 0
    assert float(pixels[6, 1]) == 1
    assert png(drawn).startswith(b"\x89PNG")


def test_signed_images_are_white_at_zero_and_colours_stay_colours():
    drawn = image_rows({"change": IMAGES - 0.2}, signed=True, xlabel="unit")
    image = drawn.axes[0].images[0]
    assert image.norm.vmin == -image.norm.vmax
    coloured = image_rows({"image": IMAGES.expand(-1, 3, -1, -1)})
    assert coloured.axes[0].images[0].get_array().shape == (5, 30, 3)


def test_codes_are_dots_by_class_beside_what_is_decoded():
    codes, y = torch.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]]), torch.tensor([0, 1, 0])
    places = torch.tensor([-1.0, 0.0, 1.0])
    tiles = torch.rand(9, 1, 4, 4)
    drawn = plane_of_codes(codes, y, ["a", "b"], tiles, places, axes=("unit 1", "unit 2"))
    left, right = drawn.axes
    assert [len(dots.get_offsets()) for dots in left.collections] == [2, 1]
    assert right.get_xlabel() == "unit 1"
    names = [text.get_text() for text in right.get_yticklabels()]
    heights = dict(zip(names, right.get_yticks(), strict=True))
    assert heights["1.0"] < heights["-1.0"]  # the first row of tiles is the last place
    assert png(drawn).startswith(b"\x89PNG")
    alone = code_plane(codes, y, ["a", "b"])
    assert [len(dots.get_offsets()) for dots in alone.axes[0].collections] == [2, 1]


def test_bars_of_units_and_images_as_they_change():
    nats, steps = torch.tensor([1.5, 0.2, 0.0]), torch.linspace(-2, 2, 3)
    drawn = unit_bars(nats, torch.tensor([2, 0]), torch.rand(2, 3, 1, 4, 4), steps)
    left, right = drawn.axes
    assert [round(bar.get_height(), 3) for bar in left.patches] == [1.5, 0.2, 0.0]
    assert [text.get_text() for text in left.get_xticklabels()] == ["2", "0", ""]
    assert [text.get_text() for text in right.get_xticklabels()] == ["-2", "0", "2"]
    assert png(drawn).startswith(b"\x89PNG")
