"""Bending and the symmetries of a square: exact where nothing is bent, alike for image and mask."""

import pytest
import torch

from everynet.data.draws import Draw, Share
from everynet.data.images.augment import compose
from everynet.data.images.deform import Bend, Symmetry, bend, symmetries
from everynet.system.seeds import generator


def draw(rows, seed, **more):
    return Draw(generator(seed), rows, parts=("image", "mask"), **more)


def batch(count=6, height=16, width=16):
    x = torch.randn(count, 2, height, width, generator=generator(1))
    return x, (x[:, 0] > 0).long()


# ------------------------------------------------------------------------------------- symmetries


def test_the_eight_are_all_turns_and_mirrors_of_a_square():
    x = torch.arange(9.0).reshape(1, 1, 3, 3)
    made = [Symmetry(torch.tensor([which])).image(x)[0, 0] for which in range(8)]
    wanted = [torch.rot90(x[0, 0], k) for k in range(4)]
    wanted += [torch.rot90(x[0, 0].flip(0), k) for k in range(4)]
    assert {tuple(m.flatten().tolist()) for m in made} == {
        tuple(w.flatten().tolist()) for w in wanted
    }
    assert torch.equal(made[0], x[0, 0])
    assert torch.equal(made[1], x[0, 0].flip(1))
    assert torch.equal(made[2], x[0, 0].flip(0))
    assert torch.equal(made[4], x[0, 0].mT)


def test_image_mask_and_box_move_alike_and_all_eight_occur():
    """A box around one lit pixel stays around it."""
    x = torch.zeros(8, 1, 10, 10)
    x[:, :, 2, 6] = 1
    boxes = torch.tensor([[[1.0, 0.6, 0.2, 0.7, 0.3], [-1.0, 0, 0, 0, 0]]]).expand(8, -1, -1)
    move = Symmetry(torch.arange(8))
    image, mask = move.image(x), move.mask(x[:, 0].long())
    assert torch.equal(image[:, 0].long(), mask)
    for lit, (box, none) in zip(mask, move.boxes(boxes, (10, 10)), strict=True):
        row, column = lit.nonzero()[0].tolist()
        edges = [1.0, column / 10, row / 10, (column + 1) / 10, (row + 1) / 10]
        assert box.tolist() == pytest.approx(edges)
        assert none.tolist() == [-1, 0, 0, 0, 0]
    many, t = symmetries()((torch.cat([x] * 100), torch.cat([x[:, 0].long()] * 100)), draw(800, 3))
    assert torch.equal(many[:, 0].long(), t)
    found = t.flatten(1).argmax(1)
    assert len(found.unique()) == 8
    assert (torch.bincount(found)[found.unique()] - 100).abs().max() < 5 * (800 * 7 / 64) ** 0.5


def test_only_squares():
    with pytest.raises(ValueError, match=r"images \(4x6\) must be square, because rows become"):
        symmetries()((torch.zeros(1, 1, 6, 4),), draw(1, 0))


# ---------------------------------------------------------------------------------------- bending


def test_unbent_windows_are_cut_out_as_they_are_everywhere():
    """Exact pixels, image and mask from the same place, every place with the same chance."""
    at = torch.arange(8 * 6, dtype=torch.float32).reshape(1, 1, 8, 6).expand(2000, 2, -1, -1)
    x, t = bend(4, 90, 0.3, 5.0, chance=0)((at, at[:, 0].long()), draw(2000, 1))
    assert torch.equal(x[:, 0].long(), t)
    corner = t[:, 0, 0]
    rows, columns = corner // 6, corner % 6
    wanted = corner[:, None, None] + 6 * torch.arange(4)[:, None] + torch.arange(4)
    assert torch.equal(t, wanted)
    for found, places in ((rows, 5), (columns, 3)):
        counts = torch.bincount(found, minlength=places)
        assert len(counts) == places
        spread = (2000 / places * (1 - 1 / places)) ** 0.5
        assert (counts - 2000 / places).abs().max() < 4.5 * spread


def test_a_turn_by_half_a_circle_about_the_middle_is_two_mirrors():
    x, t = batch()
    at = torch.arange(16.0) - 7.5
    places = -torch.stack(torch.meshgrid(at, at, indexing="xy"), -1).expand(6, -1, -1, -1)
    torch.testing.assert_close(Bend(places).image(x), x.flip(-1).flip(-2), atol=1e-5, rtol=0)
    assert torch.equal(Bend(places).mask(t), t.flip(-1).flip(-2))


def test_beyond_the_border_the_image_goes_on_in_a_mirror():
    x = torch.arange(4.0).reshape(1, 1, 1, 4)
    at = torch.tensor([-3.5, -2.5, -1.5, 1.5, 2.5, 3.5])
    places = torch.stack([at, torch.zeros(6)], -1).reshape(1, 1, 6, 2)
    seen = Bend(places).image(x)
    torch.testing.assert_close(seen.flatten(), torch.tensor([1.0, 0, 0, 3, 3, 2]))
    assert Bend(places).mask(x[:, 0].long()).flatten().tolist() == [1, 0, 0, 3, 3, 2]


def test_turns_and_stretches_are_of_the_size_that_is_asked_for():
    """Of an image of its own places, the slopes that are left are the matrix: a turn, to bounds."""
    at = torch.arange(64.0)
    x = torch.stack([at.expand(64, 64), at[:, None].expand(64, 64)]).expand(4000, -1, -1, -1)
    (turned,) = bend(9, degrees=60)((x,), draw(4000, 2))
    right, down = turned[:, :, 4].diff()[..., 3], turned[:, :, :, 4].diff()[..., 3]  # of both
    angle = torch.atan2(right[:, 1], right[:, 0]).rad2deg()
    assert angle.abs().max() == pytest.approx(60, abs=0.5)
    assert float(angle.mean()) == pytest.approx(0, abs=4 * 34.6 / 4000**0.5)
    assert float(angle.std()) == pytest.approx(60 / 3**0.5, rel=0.05)
    matrix = torch.stack([right, down], 2)  # from to
    torch.testing.assert_close(torch.linalg.det(matrix), torch.ones(4000), atol=1e-3, rtol=0)
    torch.testing.assert_close(
        matrix @ matrix.mT, torch.eye(2).expand(4000, 2, 2), atol=1e-3, rtol=0
    )
    (stretched,) = bend(9, scale=0.25)((x,), draw(4000, 2))
    slope = stretched[:, 0, 4].diff()[:, 3]
    assert float(slope.min()) == pytest.approx(1 / 1.25, abs=0.002)
    assert float(slope.max()) == pytest.approx(1 / 0.75, abs=0.002)


def test_bending_moves_corners_and_middle_by_normal_numbers_and_is_smooth_between():
    x = torch.arange(100.0).expand(3000, 1, 100, 100)
    centred = bend(21)((x,), draw(3000, 4))[0]
    moved = bend(21, pixels=3.0)((x,), draw(3000, 4))[0] - centred
    for row, column in ((0, 0), (10, 10), (20, 0)):
        place = moved[:, 0, row, column]
        inside = (centred[:, 0, row, column] - 49.5).abs() < 35  # no mirror in the way
        assert float(place[inside].std()) == pytest.approx(3, rel=0.06)
        assert abs(float(place[inside].mean())) < 0.3
    steps = moved[:, 0].diff(dim=2)[((centred[:, 0, 10, 10] - 49.5).abs() < 20)]
    assert float(steps.abs().mean()) < 0.4, "a twentieth of the window is a small step"


def test_classes_stay_whole_and_agree_with_the_image():
    """The mask of a bent image is that of its signs, but for pixels on a line between two."""
    x = torch.nn.functional.interpolate(
        torch.randn(4, 1, 6, 6, generator=generator(5)), (96, 96), mode="bicubic"
    )
    image, mask = bend(48, 180, 0.2, 4.0)((x, (x[:, 0] > 0).long() + 3), draw(4, 6))
    assert mask.dtype == torch.int64
    assert set(mask.unique().tolist()) == {3, 4}
    assert ((image[:, 0] > 0).long() + 3 == mask).double().mean() > 0.97


def test_the_generator_alone_decides_and_each_process_has_its_rows():
    augment = compose(bend(8, 30, 0.1, 2.0, 0.5), symmetries())
    x, t = batch()
    whole = augment((x, t), draw(6, 9))
    again = augment((x, t), draw(6, 9))
    other = augment((x, t), draw(6, 8))
    assert torch.equal(whole[0], again[0])
    assert not torch.equal(whole[0], other[0])
    second = augment((x[3:], t[3:]), draw(6, 9, share=Share(1, 2)))
    assert torch.equal(second[0], whole[0][3:])
    assert torch.equal(second[1], whole[1][3:])
    assert augment((x.double(), t), draw(6, 9))[0].dtype == torch.float64


@pytest.mark.parametrize(
    "given",
    [{"size": 0}, {"size": 4, "scale": 1}, {"size": 4, "pixels": -1}, {"size": 4, "chance": 2}],
)
def test_what_bending_refuses(given):
    with pytest.raises(
        ValueError, match=r"size \(\d\) must be at least 1, degrees \(0\.0\), scale"
    ):
        bend(**given)


def test_windows_that_do_not_fit_and_boxes_are_refused():
    with pytest.raises(ValueError, match=r"size \(9\) must be at most 6, the smaller side"):
        bend(9)((torch.zeros(1, 1, 8, 6),), draw(1, 0))
    with pytest.raises(ValueError, match="boxes must stay, because what is bent has no box"):
        Bend(torch.zeros(1, 2, 2, 2)).boxes(torch.zeros(1, 1, 5), (4, 4))
