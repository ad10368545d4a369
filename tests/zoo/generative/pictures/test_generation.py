import torch

from everynet.plot import square
from everynet.plot.style import png
from everynet.zoo.generative.pictures.generation import noise_to_points, samples_on_surfaces

POINTS = torch.tensor([[0.0, 1.0], [2.0, -1.0], [-1.0, 0.5]])


def test_points_and_surfaces_share_their_axes():
    """The line at 1/2 of a slope along x is where x is 0."""
    places = square(20, -3.0, 3.0)
    drawn = samples_on_surfaces(POINTS, POINTS, {"D": places[:, 0].sigmoid()}, span=3.0)
    first, second, bar = drawn.axes
    assert first.get_xlim() == second.get_xlim() == (-3, 3)
    assert [len(dots.get_offsets()) for dots in first.collections] == [3, 3]
    line = second.collections[0].get_paths()[0]
    assert abs(line.vertices[:, 0]).max() < 1e-6
    assert "1/2" in bar.get_ylabel()
    assert png(drawn).startswith(b"\x89PNG")


def test_a_surface_that_never_crosses_a_half_has_no_line():
    flat = torch.full((400,), 0.2)
    flat[:7] = torch.nan
    drawn = samples_on_surfaces(POINTS, POINTS, {"D": flat}, span=3.0)
    assert len(drawn.axes[1].collections) == 1  # the points
    assert png(drawn).startswith(b"\x89PNG")


def test_a_circle_is_shown_before_and_after():
    way = torch.rand(9, 2)
    drawn = noise_to_points(
        POINTS, 2 * POINTS, torch.tensor([0, 1, 1]), {"a": (way, 3 * way)}, span=4
    )
    before, after = drawn.axes
    assert torch.allclose(torch.tensor(after.lines[0].get_xydata()).float(), 3 * way)
    assert torch.allclose(torch.tensor(before.lines[0].get_xydata()).float(), way)
    colours = before.collections[0].get_facecolor()
    assert (colours[1] == colours[2]).all()
    assert (colours[0] != colours[1]).any()
    assert (colours == after.collections[0].get_facecolor()).all()
    assert png(drawn).startswith(b"\x89PNG")
