"""Synthetic digits: repeatable, balanced, varied, quick, and shaped like digits."""

import time

import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

from everynet.data.sets import strokes
from everynet.system.errors import UserError
from tests.data.either import load


def test_a_longer_series_begins_like_a_shorter_one():
    few, many = strokes.draw(130, seed=4), strokes.draw(700, seed=4)
    assert torch.equal(few[0], many[0][:130])
    assert torch.equal(few[1], many[1][:130])
    assert not torch.equal(strokes.draw(130, seed=5)[0], few[0])


def test_classes_are_balanced_and_no_two_images_alike():
    x, y = strokes.draw(2500)
    assert torch.bincount(y).tolist() == [250] * 10
    assert len(x.flatten(1).unique(dim=0)) == 2500


def test_the_spline_passes_through_its_controls():
    """Closed form: at whole parameters the curve is the control, and a line stays a line."""
    matrix = strokes._spline(4, 31)
    controls = torch.tensor([[0.0, 0.0], [1.0, 2.0], [3.0, 1.0], [4.0, 4.0]])
    path = matrix @ controls
    torch.testing.assert_close(path[::10], controls)
    torch.testing.assert_close(matrix.sum(1), torch.ones(31))
    line = torch.stack([torch.arange(4.0), 2 * torch.arange(4.0)], 1)
    inner = (matrix @ line)[10:21]  # away from the ends, where a control is repeated
    torch.testing.assert_close(inner[:, 1], 2 * inner[:, 0])
    torch.testing.assert_close(inner[:, 0], torch.linspace(1, 2, 11))


def test_the_pen_leaves_a_gaussian_across_a_straight_stroke():
    """Closed form: the integral of the pen along a line, sqrt(2 pi) s exp(-d^2 / (2 s^2))."""
    column = torch.linspace(-20, 48, 500)
    p = torch.stack([column, torch.full((500,), 13.0)], 1)[None]
    starts = torch.zeros(1, 500, dtype=torch.bool)
    spread = 1.1
    ink = strokes._ink(p, starts, torch.tensor([spread]))[0, :, 14]
    away = torch.arange(28.0) - 13
    wanted = (2 * torch.pi) ** 0.5 * spread * torch.exp(-(away**2) / (2 * spread**2))
    torch.testing.assert_close(ink, wanted, atol=1e-4, rtol=1e-4)


def test_the_pen_is_lifted_between_strokes():
    """Two short strokes far apart: each leaves ink, and there is none between them."""
    path = torch.cat([torch.linspace(3, 6, 20), torch.linspace(21, 24, 20)])
    p = torch.stack([path, torch.full((40,), 14.0)], 1)[None]
    starts = torch.zeros(1, 40, dtype=torch.bool)
    starts[0, [0, 20]] = True
    ink = strokes._ink(p, starts, torch.tensor([1.0]))[0, 14]
    assert ink[13:15].max() < 1e-3
    torch.testing.assert_close(ink, ink.flip(0), atol=1e-4, rtol=0)
    torch.testing.assert_close(
        ink.sum() / (2 * torch.pi) ** 0.5, torch.tensor(6.0), rtol=1e-3, atol=0
    )


def test_a_warp_is_its_wave():
    """Closed form for one wave along x that moves points along y."""
    p = torch.rand(2, 7, 2)
    frequency = torch.tensor([[[2.0, 0.0]]]).expand(2, -1, -1)
    amplitude = torch.tensor([[[0.0, 0.3]]]).expand(2, -1, -1)
    out = strokes._warp(p, frequency, torch.full((2, 1), 0.5), amplitude)
    assert torch.equal(out[..., 0], p[..., 0])
    torch.testing.assert_close(out[..., 1], p[..., 1] + 0.3 * torch.sin(2 * p[..., 0] + 0.5))


def test_laying_down_stretches_slants_turns_and_centres():
    square = torch.tensor([[[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]]])
    size, centre, none = torch.tensor([[10.0, 20.0]]), torch.tensor([[13.0, 14.0]]), torch.zeros(1)
    plain = strokes._lay(square, size, none, none, centre)[0]
    assert plain.tolist() == [[8, 4], [18, 4], [18, 24], [8, 24]]
    slanted = strokes._lay(square, size, none + 0.5, none, centre)[0] - centre[0]
    assert slanted.tolist() == [[0, -10], [10, -10], [0, 10], [-10, 10]]  # the top leans right
    quarter = strokes._lay(square, size, none, none + torch.pi / 2, centre)[0] - centre[0]
    wanted = torch.tensor([[10.0, -5], [10, 5], [-10, 5], [-10, -5]])
    torch.testing.assert_close(quarter, wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("part", ["_warp", "_lay", "_ink"])
def test_each_of_these_takes_part_in_drawing(part, monkeypatch):
    """Without the random part of its arguments the images are others."""
    before, step = strokes.draw(250)[0], getattr(strokes, part)

    def tame(p, *arguments):
        return step(p, *map(torch.ones_like, arguments))

    monkeypatch.setattr(strokes, part, tame)
    assert (strokes.draw(250)[0] != before).flatten(1).any(1).all()


def test_ones_lean_both_ways():
    """The slope of the ink of a one: slant and turn together, evenly to both sides."""
    x, y = strokes.draw(5000)
    ink = x[y == 1, 0].double()
    mass, at = ink.sum((1, 2)), torch.arange(28.0)
    row, column = (ink.sum(2) * at).sum(1) / mass, (ink.sum(1) * at).sum(1) / mass
    both = (ink * (at[:, None] - row[:, None, None]) * (at - column[:, None, None])).sum((1, 2))
    tall = (ink * (at[:, None] - row[:, None, None]) ** 2).sum((1, 2))
    slope = -both / tall
    assert slope.std() == pytest.approx((0.22**2 + 0.12**2) ** 0.5, rel=0.3)
    assert slope.std() > 0.17
    assert abs(slope.mean()) < 0.05


def test_ink_is_dark_on_empty_paper():
    """Corners are blank, some pixel is nearly full, and about an eighth of the page is ink."""
    x, _ = strokes.draw(1000)
    assert x[:, 0, [0, 0, -1, -1], [0, -1, 0, -1]].max() < 10
    assert x.flatten(1).max(1).values.min() > 200
    share = (x > 127).float().mean((1, 2, 3))
    assert 0.03 < share.min() < share.max() < 0.4
    assert 0.08 < share.mean() < 0.2


def test_a_one_is_tall_and_a_zero_has_a_hole():
    x, y = strokes.draw(2000)
    ink = x[:, 0] > 127
    width = ink.any(1).sum(1).float()
    height = ink.any(2).sum(1).float()
    assert (height / width)[y == 1].mean() > 1.8 * (height / width)[y == 0].mean()
    middle = x[:, 0, 12:16, 12:16].float().mean((1, 2))
    assert middle[y == 0].mean() < 0.3 * middle[y == 8].mean()


def test_digits_are_recognised_by_near_neighbours_but_not_trivially():
    data = load("strokes:4000", batch_size=10)
    x, y = data.whole
    near = KNeighborsClassifier(3).fit(x.flatten(1), y)
    test_x, test_y = data.splits["test"]
    assert 0.93 < near.score(test_x.flatten(1), test_y) < 1


def test_each_way_to_write_a_digit_is_drawn():
    assert set(strokes._WAYS) == set(range(10))
    controls, matrices, starts, first = strokes._templates()
    assert first[-1] == len(controls) == sum(len(ways) for ways in strokes._WAYS.values())
    assert torch.equal(
        starts.sum(1), torch.tensor([len(w) for ws in strokes._WAYS.values() for w in ws])
    )
    torch.testing.assert_close(matrices.sum(2), torch.ones(matrices.shape[:2]))


def test_the_spec_says_that_they_are_synthetic():
    data = load("strokes:200", batch_size=10)
    assert "synthetic" in data.spec["split"]
    assert "NOT written by people" in strokes.__doc__
    assert data.spec["shape"] == [1, 28, 28]
    assert [data.rows(part) for part in ("train", "valid", "test")] == [180, 20, 40]


@pytest.mark.parametrize("count", ["99", "10000001"])
def test_the_number_has_limits(count):
    with pytest.raises(UserError, match=f"strokes:{count} must be from strokes:100"):
        load(f"strokes:{count}", batch_size=10)


def test_two_thousand_images_take_less_than_a_second_of_cpu():
    strokes.draw(250)
    start = time.process_time()
    strokes.draw(2000)
    assert time.process_time() - start < 1
