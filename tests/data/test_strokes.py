"""Synthetic digits: repeatable, balanced, varied, quick, and shaped like digits."""

import time

import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

from everynet.data import load, strokes
from everynet.types import UserError


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
