import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex

from everynet.plot import activation_maps, filters, image_grid, misclassified
from everynet.plot.images import mosaic
from everynet.plot.style import MAGNITUDE, OURS, SIGNED, WIDTH, WRONG


def texts(drawn):
    return [text.get_text() for text in drawn.axes[0].texts]


def test_a_mosaic_holds_every_image_at_its_place():
    images = torch.rand(5, 3, 4, 6)
    made = mosaic(images, 3, gap=(2, 1))
    assert made.shape == (2 * (4 + 2), 3 * (6 + 1), 3)
    for index, image in enumerate(images):
        row, column = divmod(index, 3)
        top, left = row * 6 + 2, column * 7 + 1
        assert torch.equal(made[top : top + 4, left : left + 6].permute(2, 0, 1), image)
    assert made.isfinite().sum() == images.numel()  # all else is a gap


def test_grey_and_coloured_images_share_one_scale(tmp_path):
    grey = torch.tensor([0.0, 5.0])[:, None, None, None].expand(2, 1, 4, 4)
    drawn = image_grid(grey, captions=["a", "b"], title="two")
    shown = drawn.axes[0].images[0].get_array().compressed()
    assert sorted(set(shown.tolist())) == [0.0, 1.0]
    assert texts(drawn) == ["a", "b"]
    assert drawn.axes[0].get_title() == "two"
    colour = image_grid(torch.rand(3, 3, 4, 4), columns=2)
    pixels = colour.axes[0].images[0].get_array()
    assert pixels.shape[2] == 4
    assert (pixels[..., 3] == 1).sum() == 3 * 16  # the gaps are transparent
    for figure in (drawn, colour):
        figure.savefig(tmp_path / "grid.png")


def test_images_need_one_or_three_channels():
    with pytest.raises(ValueError, match=r"images \(2 channels\) must have 1 channel .* or 3"):
        image_grid(torch.rand(1, 2, 4, 4))


def test_missed_samples_come_surest_first():
    predicted, true = torch.tensor([0, 1, 2, 1, 0]), torch.tensor([0, 2, 1, 1, 2])
    sure = torch.tensor([0.9, 0.6, 0.8, 0.4, 0.7])
    names = ["cat", "dog", "bird"]
    images = torch.arange(5.0)[:, None, None, None].expand(5, 1, 8, 8)
    drawn = misclassified(images, predicted, true, sure, classes=names, split="test", columns=3)
    assert texts(drawn) == [
        *("true: dog", "bird  80%", "true: bird", "cat  70%", "true: bird", "dog  60%"),
    ]
    assert drawn.axes[0].get_title() == "3 of 5 test samples missed"
    shown = drawn.axes[0].images[0].get_array()
    bright = [float(shown[:, part].compressed()[0]) for part in (slice(0, 9), slice(9, 18))]
    assert bright == pytest.approx([1 / 3, 1.0])  # samples 2 and 4; those shown are 1, 2 and 4
    few = misclassified(images, predicted, true, sure, classes=names, most=2, columns=3)
    assert few.axes[0].get_title() == "3 of 5 samples missed; the 2 surest"
    assert len(few.axes[0].texts) == 4


def test_the_least_sure_follow_where_few_were_missed():
    predicted, true = torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 0, 0])
    sure = torch.tensor([0.9, 0.6, 0.997, 0.8])
    drawn = misclassified(torch.rand(4, 1, 4, 4), predicted, true, sure, classes="ab", columns=3)
    assert texts(drawn) == ["true: a", "b  >99%", "right", "b  60%", "right", "a  80%"]
    inks = [to_hex(text.get_color()) for text in drawn.axes[0].texts[1::2]]
    assert inks == [WRONG, OURS, OURS]
    title = drawn.axes[0].get_title()
    assert title == "1 of 4 samples missed; then the least sure that were right"


def test_signed_filters_have_zero_in_the_middle(tmp_path):
    weight = torch.linspace(-1, 3, 6 * 25).reshape(6, 1, 5, 5)
    drawn = filters(weight, title="first layer")
    image = drawn.axes[0].images[0]
    assert image.get_cmap() is SIGNED
    assert image.get_clim() == pytest.approx((-2.973, 2.973), abs=0.01)  # 995 of 1000 are weaker
    weight[0, 0, 0, 0] = 50.0
    assert filters(weight).axes[0].images[0].get_clim()[1] < 4, "one weight makes no other pale"
    assert drawn.axes[0].get_title() == "first layer: 6 of 5 x 5"
    drawn.savefig(tmp_path / "filters.png")


def test_filters_on_colours_are_grey_at_zero():
    weight = torch.zeros(2, 3, 3, 3)
    weight[0, 0] = 2.0
    pixels = filters(weight).axes[0].images[0].get_array()
    colours = {tuple(c) for c in pixels.reshape(-1, 4).tolist() if c[3] == 1}
    assert colours == {(1.0, 0.5, 0.5, 1.0), (0.5, 0.5, 0.5, 1.0)}


def test_filters_on_many_channels_are_columns():
    weight = torch.zeros(4, 2, 24, 24)
    weight[3, 1] = 1.0
    drawn = filters(weight)
    pixels = drawn.axes[0].images[0].get_array()
    lit = (pixels == 1).nonzero()
    assert lit[0].min() >= 24  # second row: channel 1
    assert lit[1].min() >= 3 * 24  # fourth column: filter 3
    assert drawn.axes[0].get_xlabel() == "filter"
    many = filters(torch.rand(40, 5, 3, 3), most=32)
    assert many.axes[0].get_title() == "filters: 40 of 3 x 3, the first 32"


def test_activation_maps_of_each_layer(tmp_path):
    layers = {
        "c1": torch.randn(6, 10, 10),
        "r2": torch.rand(40, 5, 5),
        "f3": torch.tensor([0.2, 0.5, 0.3]),
    }
    drawn = activation_maps(torch.rand(3, 16, 16), layers, classes="abc", title="a frog")
    first, c1, r2, f3 = drawn.axes
    assert drawn.get_size_inches()[0] == WIDTH
    assert first.get_title("left") == "a frog"
    low, high = layers["c1"].min(), layers["c1"].max()
    assert c1.get_title("left") == f"c1: 6 maps of 10 x 10, {low:.2g} to {high:.2g}"
    assert r2.get_title("left").startswith("r2: 40 maps of 5 x 5, the first 32, ")
    assert f3.get_title("left") == "f3: highest for b"
    assert [bar.get_height() for bar in f3.patches] == pytest.approx([0.2, 0.5, 0.3])
    assert [label.get_text() for label in f3.get_xticklabels()] == ["a", "b", "c"]
    assert c1.images[0].get_cmap() is SIGNED
    assert r2.images[0].get_cmap() is MAGNITUDE
    assert r2.images[0].get_clim()[0] == 0
    drawn.savefig(tmp_path / "maps.png")


def test_pictures_of_float64_and_of_parameters_that_want_gradients():
    """They are the pictures of the same numbers in float32."""
    weight, image, map = torch.randn(2, 1, 3, 3), torch.rand(1, 4, 4), torch.randn(2, 4, 4)

    def drawn(weight, image, map):
        return [*filters(weight).axes, *activation_maps(image, {"a": map}).axes]

    wanted = [part.double().requires_grad_() for part in (weight, image, map)]
    for ours, plain in zip(drawn(*wanted), drawn(weight, image, map), strict=True):
        assert ours.get_title("left") == plain.get_title("left")
        for mine, other in zip(ours.images, plain.images, strict=True):
            np.testing.assert_allclose(mine.get_array(), other.get_array(), rtol=1e-6)
            assert mine.get_clim() == pytest.approx(other.get_clim())
    assert all(part.grad is None for part in wanted)
