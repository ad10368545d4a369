"""Images laid in clutter: inside, in their box, and repeatable."""

import torch

from everynet.data.loading import samples
from everynet.zoo.vision.clutter import in_clutter, place_in_clutter


def blocks(count, side=8):
    """White squares of 4 x 6 pixels in the middle of black images."""
    x = torch.zeros(count, 1, side, side, dtype=torch.uint8)
    x[:, :, 2:6, 1:7] = 255
    return x, torch.arange(count) % 3


def test_the_box_holds_the_image_and_no_more():
    x, y = blocks(40)
    canvas, boxes = place_in_clutter(x, y, 32, 0, 1)
    assert torch.equal(boxes[:, 0, 0], y.float())
    for image, (left, top, right, bottom) in zip(canvas[:, 0], 32 * boxes[:, 0, 1:], strict=True):
        inside = image[int(top) : int(bottom), int(left) : int(right)]
        assert int(inside.max()) == 255
        outside = image.clone()
        outside[int(top) : int(bottom), int(left) : int(right)] = 0
        assert int(outside.max()) <= 0.25 * 255 + 1  # what is faint
        rows, columns = inside.amax(1), inside.amax(0)
        assert min(int(edge) for edge in (rows[0], rows[-1], columns[0], columns[-1])) > 60


def test_sizes_and_places_vary_within_the_canvas():
    """A share of 0.35 to 0.6 of the canvas: here 6 of 8 columns and 4 of 8 rows are white."""
    _, boxes = place_in_clutter(*blocks(400), 64, 0, 1)
    left, top, right, bottom = boxes[:, 0, 1:].T
    wide, high = right - left, bottom - top
    assert 0.35 * 0.75 - 0.04 < float(wide.min()) < 0.3
    assert 0.42 < float(wide.max()) < 0.6 * 0.75 + 0.08
    assert 1.3 < float((wide / high).mean()) < 1.5  # 6 to 4, but for soft edges
    for low, end in ((left, right), (top, bottom)):
        middle = (low + end) / 2
        assert float(low.min()) >= 0
        assert float(end.max()) <= 1
        assert float(middle.std()) > 0.08
        assert abs(float(middle.mean()) - 0.5) < 4 * float(middle.std()) / 20


def test_fragments_add_light_and_move_no_box():
    x, y = blocks(30)
    alone, boxes = place_in_clutter(x, y, 32, 0, 1)
    among, same = place_in_clutter(x, y, 32, 5, 1)
    assert torch.equal(boxes, same)
    assert bool((among >= alone).all())
    assert int((among > alone).sum((1, 2, 3)).min()) > 0
    white = float((among[:, 0] > 128).float().mean() - (alone[:, 0] > 128).float().mean())
    assert white < 5 * 0.16**2  # a fragment is at most its window


def test_an_image_follows_from_its_seed_and_number():
    x, y = blocks(300)
    one, two = place_in_clutter(x, y, 16, 1, 1), place_in_clutter(x, y, 16, 1, 1)
    assert all(map(torch.equal, one, two))
    assert not torch.equal(one[0], place_in_clutter(x, y, 16, 1, 2)[0])


def test_a_set_of_classes_becomes_one_of_boxes():
    plain = samples("digits", kind="image")
    made = in_clutter(plain, 24, 1)
    assert made.task == "detection"
    assert made.classes == plain.classes
    for part, (x, y) in made.parts.items():
        assert x.shape == (len(plain.parts[part][0]), 1, 24, 24)
        assert x.dtype == torch.uint8
        assert torch.equal(y[:, 0, 0].long(), plain.parts[part][1])
    assert int(made.parts["train"][0].max()) > 200  # of a peak of 16, it has become one of 255
    assert made.digest != in_clutter(plain, 24, 0).digest
