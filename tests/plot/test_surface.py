import pytest
import torch

from everynet.plot import decision_regions, decision_surface, unit_maps
from everynet.plot.surface import HEADS, SIDES, boundary, square


@pytest.mark.covers("F4")
@pytest.mark.parametrize("points", [120, 200])
def test_the_grid_covers_the_square(points):
    places = square(points)
    assert places.shape == (points**2, 2)
    assert places.amin(0).tolist() == [-1, -1]
    assert places.amax(0).tolist() == [1, 1]
    assert places[0].tolist() == [-1, -1]
    assert places[points - 1].tolist() == [1, -1]  # the first row is the lowest, x1 runs first
    assert len(places.unique(dim=0)) == points**2


def test_the_boundary_of_a_plane_is_its_line():
    places = square(50)
    (line,) = boundary(places @ torch.tensor([2.0, -1.0]).double() - 0.5)
    torch.testing.assert_close(2 * line[:, 0] - line[:, 1], torch.full((len(line),), 0.5).double())


def test_the_boundary_of_a_disc_is_its_circle():
    places = square(200, -2.0, 2.0)
    (line,) = boundary(places.square().sum(1) - 1, -2.0, 2.0)
    torch.testing.assert_close(line.norm(dim=1), torch.ones(len(line)).double(), atol=1e-3, rtol=0)


def test_heads():
    z = torch.tensor([-30.0, 0.0, 30.0])
    assert HEADS["step"](z).tolist() == [0, 0, 1]
    assert HEADS["sigmoid"](z).tolist() == pytest.approx([0, 0.5, 1])


@pytest.mark.covers("F4")
@pytest.mark.parametrize("points", [120, 200])
def test_both_heads_are_drawn_from_above_and_in_relief(points, tmp_path):
    places = square(points)
    x = torch.rand(30, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1
    t = (x.prod(1) > 0).long()
    drawn = decision_surface(places.prod(1), x, t, classes=("no", "yes"))
    named = [axes.get_title() for axes in drawn.axes if axes.get_title()]
    assert named == ["step head", "sigmoid head"]
    assert sum(axes.name == "3d" for axes in drawn.axes) == 2
    low, high = (plate.get_facecolor()[0][:3].tolist() for plate in drawn.axes[1].collections)
    assert (low, high) == (list(SIDES(0.0)[:3]), list(SIDES(1.0)[:3])), "one plate for each answer"
    drawn.savefig(tmp_path / "surface.png")
    assert (tmp_path / "surface.png").stat().st_size > 20_000


def test_a_random_network_is_drawn_without_samples():
    """From above both heads have their boundary, x1 = 0, and no dots."""
    drawn = decision_surface(square(20)[:, 0])
    drawn.canvas.draw()
    for flat in (axes for axes in drawn.axes if axes.get_title()):
        assert [type(part).__name__ for part in flat.collections].count("PathCollection") == 0
        (line,) = flat.lines
        assert abs(line.get_xdata()).max() < 1e-12
        assert sorted(line.get_ydata()[[0, -1]]) == [-1, 1]
    assert not drawn.legends


def test_regions_of_three_classes(tmp_path):
    places = square(30)
    chosen = (places[:, 0] > 0).long() + (places[:, 1] > 0).long()
    drawn = decision_regions(chosen, places[:9], chosen[:9], classes=("a", "b", "c"))
    image = drawn.axes[0].images[0].get_array()
    assert image.shape == (30, 30)
    assert (image[0, 0], image[-1, -1], image[0, -1]) == (0, 2, 1)
    drawn.savefig(tmp_path / "regions.png")


def test_units_have_a_panel_each():
    places = square(20)
    drawn = unit_maps(
        [torch.tanh(places), torch.tanh(places @ torch.randn(2, 12).double())], most=8
    )
    assert [len(axes.images) for axes in drawn.axes[:16]] == [1, 1, *[0] * 6, *[1] * 8]
    assert drawn.axes[0].images[0].get_clim() == drawn.axes[8].images[0].get_clim()
    positive = unit_maps([torch.relu(places)])
    positive.canvas.draw()
    assert positive.axes[0].images[0].get_clim()[0] == 0


def test_scores_that_fill_no_square():
    with pytest.raises(ValueError, match=r"values \(10 of them\) must be a square number"):
        boundary(torch.zeros(10))
