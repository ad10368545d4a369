"""Shapes over noise and the membranes: what they are, and that nothing but the seed decides."""

import os

import pytest
import torch

from everynet.data import load
from everynet.data.download import store
from everynet.data.sets import everything, shapes
from everynet.system.errors import UserError


def test_the_set_is_described_and_each_part_has_its_seed():
    data = load("shapes:100", kind="mask", batch_size=4)
    assert data.spec["classes"] == ["background", "disc", "square", "triangle"]
    assert data.spec["shape"] == [1, 64, 64]
    assert [data.rows(part) for part in ("train", "valid", "test")] == [90, 10, 20]
    firsts = [data.splits[part][1][0] for part in ("train", "valid", "test")]
    assert not torch.equal(firsts[0], firsts[1])
    assert not torch.equal(firsts[1], firsts[2])
    assert data.digest == load("shapes:100", kind="mask", batch_size=4).digest


def test_an_image_follows_from_its_number_alone():
    few, many = shapes.draw(7, 5), shapes.draw(120, 5)
    for a, b in zip(few, many, strict=True):
        assert torch.equal(a, b[:7])
    assert not torch.equal(shapes.draw(7, 6)[0], few[0])


def test_every_image_has_a_shape_and_all_kinds_occur_alike():
    x, y = shapes.draw(400)
    assert x.dtype == y.dtype == torch.uint8
    assert (y > 0).any(2).any(1).all()
    held = torch.stack([(y == kind).any(2).any(1).double().mean() for kind in (1, 2, 3)])
    assert held.min() > 0.35, "each kind is in more than a third of the images"
    assert held.max() < 0.7


def test_shapes_stand_out_from_the_ground():
    """Their brightness is at least 0.2 from the middle of the ground, which has 0.4."""
    x, y = shapes.draw(200)
    for kind in (1, 2, 3):
        away = (x[:, 0].double() / 255 - 0.4).abs()
        assert away[y == kind].mean() > 2 * away[y == 0].mean()


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [(1, torch.pi), (2, 4 * 0.81), (3, 3 * 3**0.5 * 0.65**2)],
)
def test_areas_are_those_of_the_shapes(kind, wanted, monkeypatch):
    """Closed form in units of the size: pi, (2 * 0.9)^2, and 3 sqrt(3) r^2 with r = 0.65."""
    random = shapes._Random(3, 0)
    sizes = []
    monkeypatch.setattr(shapes, "_places", lambda random, margin: _grid())
    real = shapes._Random.__call__

    def noted(self, low, high):
        drawn = real(self, low, high)
        sizes.append(drawn)
        return drawn

    monkeypatch.setattr(shapes._Random, "__call__", noted)
    covered = shapes._shape(random, torch.full((shapes.CHUNK,), float(kind)))
    areas = covered.sum((1, 2)) / sizes[-1] ** 2
    assert areas.mean() == pytest.approx(wanted, rel=0.02)


def _grid():
    at = torch.arange(64) - 31.5
    return at.expand(shapes.CHUNK, 64, 64), at[:, None].expand(shapes.CHUNK, 64, 64)


def test_boxes_bound_the_one_shape(monkeypatch):
    """Without clutter and noise the box is that of all pixels off the ground."""
    data = load("shapes-boxes:100", kind="boxes", batch_size=4)
    assert data.spec["classes"] == ["disc", "square", "triangle"]
    assert data.splits["train"][1].shape == (90, 1, 5)
    monkeypatch.setattr(shapes, "BARS", 0)
    monkeypatch.setattr(shapes, "_ground", lambda random: torch.zeros(shapes.CHUNK, 64, 64))
    monkeypatch.setattr(shapes, "_brightness", lambda random: torch.ones(shapes.CHUNK, 1, 1))
    monkeypatch.setattr(shapes, "_finished", lambda random, image: image[:, None])
    x, y = shapes.draw(50, boxes=True)
    for image, (_, left, top, right, bottom) in zip(x[:, 0], y[:, 0] * 64, strict=True):
        rows, columns = image.any(1).nonzero(), image.any(0).nonzero()
        assert [columns.min(), rows.min()] == [left, top]
        assert [columns.max() + 1, rows.max() + 1] == [right, bottom]


@pytest.mark.parametrize("name", ["shapes", "shapes-boxes"])
def test_too_few_are_refused(name):
    kind = "mask" if name == "shapes" else "boxes"
    with pytest.raises(UserError, match=f"{name}:5 must be from {name}:20 to {name}:1000000"):
        load(f"{name}:5", kind=kind, batch_size=2)
    with pytest.raises(UserError, match=rf"data \({name}:many\) must be like {name}:2000"):
        load(f"{name}:many", kind=kind, batch_size=2)


def test_membranes_that_are_not_here_end_in_one_line(monkeypatch, tmp_path):
    monkeypatch.delenv("EVERYNET_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UserError, match=r"membrane is not here and .*no source.*; put membrane\.z"):
        load("membrane", kind="mask", batch_size=2)


@pytest.mark.real_data
def test_membranes():
    known = everything()["membrane"]
    assert store.where(known) == "EVERYNET_DATA", os.environ["EVERYNET_DATA"]
    data = load("membrane", kind="mask", batch_size=2)
    assert [data.rows(part) for part in ("train", "valid", "test")] == [20, 5, 5]
    assert data.spec["shape"] == [1, 512, 512]
    assert data.spec["classes"] == ["membrane", "cell"]
    x, y = data.splits["train"]
    assert y.double().mean().item() == pytest.approx(0.78, abs=0.02), "four fifths is cell"
    assert x[:, 0][y == 0].mean() < x[:, 0][y == 1].mean() - 0.5, "membranes are dark"
