"""Diagrams of networks: what becomes a box, what is folded, and that all of it can be read."""

import io
from typing import NamedTuple

import pytest
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from everynet.zoo.vision.pictures.diagram import (
    PLACES,
    SORTS,
    THIN,
    _boxes,
    _folded,
    network,
)


class Row(NamedTuple):
    kind: str
    shape: tuple[int, ...]
    parameters: int = 0
    receptive_field: tuple[int, ...] | None = None
    kernel: tuple[int, ...] | None = None


def conv(maps, side, sees=None, parameters=100, kernel=3):
    field = None if sees is None else (sees, sees)
    return Row("Conv2d", (maps, side, side), parameters, field, (kernel, kernel))


SMALL = [
    conv(6, 28, 5, 156, 5),
    Row("BatchNorm2d", (6, 28, 28), 12, (5, 5)),
    Row("ReLU", (6, 28, 28), 0, (5, 5)),
    Row("MaxPool2d", (6, 14, 14), 0, (6, 6), (2, 2)),
    Row("Flatten", (1176,), 0, (6, 6)),
    Row("Linear", (10,), 11_770, (28, 28)),
    Row("Softmax", (10,), 0, (28, 28)),
]


def drawn(figure):
    """The figure as it is on paper: whatever cannot be drawn raises here."""
    figure.savefig(io.BytesIO(), format="png")
    assert figure.get_size_inches()[0] == 6.5
    for text in figure.findobj(Text):
        assert not text.get_text() or text.get_fontsize() >= 7, text
    return figure


def words(axes):
    return [text.get_text() for text in axes.texts]


def test_norms_activations_and_flattening_belong_to_the_layer_before():
    boxes = list(_boxes(SMALL))
    assert [box.sort for box in boxes] == ["convolution", "pool", "dense"]
    assert [box.parameters for box in boxes] == [168, 0, 11_770]
    assert [box.shape for box in boxes] == [(6, 28, 28), (6, 14, 14), (10,)]
    assert [box.sees for box in boxes] == [5, 6, 28]


def test_a_layer_of_ones_own_is_a_box_where_it_changes_how_many_values_there_are():
    rows = [Row("Linear", (84,), 10), Row("Squash", (84,)), Row("CodeDistance", (10,))]
    assert [(box.sort, box.shape) for box in _boxes(rows)] == [("dense", (84,)), ("other", (10,))]


@pytest.mark.parametrize(
    ("kind", "sort"),
    [
        ("ConvTranspose2d", "upsampling"),
        ("Upsample", "upsampling"),
        ("AdaptiveAvgPool2d", "pool"),
        ("TableConv", "convolution"),
        ("Linear", "dense"),
    ],
)
def test_what_a_box_is(kind, sort):
    (box,) = _boxes([Row(kind, (4,) if kind == "Linear" else (4, 8, 8), 1)])
    assert box.sort == sort


def test_a_short_network_is_not_folded():
    rows = [conv(8, 16) for _ in range(4)]
    assert [box.count for box in _folded(list(_boxes(rows)))] == [1] * 4


def test_a_long_one_is_folded_by_shape_and_a_longer_one_by_size():
    """Nothing is lost: layers and parameters are as many as before."""
    by_shape = [conv(8, 32)] * 9 + [conv(16, 16)] * 9 + [Row("Linear", (10,), 7)]
    found = _folded(list(_boxes(by_shape)))
    assert [(box.count, box.shape) for box in found] == [
        (9, (8, 32, 32)), (9, (16, 16, 16)), (1, (10,)),
    ]  # fmt: skip
    mixed = [conv(maps, side) for side in (32, 16, 8) for maps in (8, 24, 12, 8, 24, 30, 7)]
    found = _folded(list(_boxes(mixed)))
    assert [(box.count, box.shape) for box in found] == [
        (7, (30, 32, 32)), (7, (30, 16, 16)), (7, (30, 8, 8)),
    ]  # fmt: skip
    assert sum(box.parameters for box in found) == 2100


def u(sides):
    down = [
        row
        for s in sides
        for row in (conv(8, s), conv(8, s - 2), Row("MaxPool2d", (8, s // 2 - 1, s // 2 - 1)))
    ]
    up = [
        row
        for s in reversed(sides)
        for row in (Row("ConvTranspose2d", (8, s, s), 3), conv(8, s), conv(8, s))
    ]
    return [*down, *up]


def test_maps_that_shrink_a_little_are_one_stage_between_pools():
    found = _folded(list(_boxes(u([256, 128, 64, 32]))))
    assert [box.count for box in found if box.sort == "convolution"] == [2] * 8
    assert [box.sort for box in found].count("pool") == 4
    assert [box.sort for box in found].count("upsampling") == 4


def test_a_very_deep_u_still_has_room():
    found = _folded(list(_boxes(u([2**n for n in range(9, 2, -1)]))))
    assert sum(THIN if box.sort in ("pool", "upsampling") else 1 for box in found) <= PLACES
    assert sum(box.parameters for box in found) == 2 * 14 * 100 + 7 * 3
    assert sum(box.count for box in found if box.sort == "convolution") == 28, "pools are no layers"


def test_the_words_at_the_boxes():
    upper, lower = drawn(network(SMALL, (1, 32, 32), title="small")).axes
    assert upper.get_title() == "small: 11,938 parameters"
    said = words(upper)
    assert "input" in said
    assert "conv\n5\N{MULTIPLICATION SIGN}5" in said
    assert "6\n28\N{MULTIPLICATION SIGN}28\n168" in said
    assert "10\n\n11.8 k" in said
    assert words(lower) == ["1", "5", "28"], "what units see, pools without words"
    assert lower.get_ylabel() == "a unit sees,\npixels (log)"


def test_heights_and_bars_tell_sizes():
    """The square root of the side; bars end at what is seen."""
    upper, lower = network(SMALL, (1, 32, 32)).axes
    heights = [p.get_height() for p in upper.patches if isinstance(p, Rectangle)]
    assert heights[:3] == pytest.approx([1, (28 / 32) ** 0.5, (14 / 32) ** 0.5])
    ends = [bar.get_y() + bar.get_height() for bar in lower.patches]
    assert ends == pytest.approx([1, 5, 6, 28])
    inks = [p.get_facecolor() for p in lower.patches]
    assert len(set(inks)) == 4


def test_a_network_of_vectors_has_no_fields():
    rows = [Row("Linear", (300,), 235_500), Row("Tanh", (300,)), Row("Linear", (10,), 3_010)]
    (axes,) = drawn(network(rows, (784,))).axes
    assert axes.get_title() == "238,510 parameters"
    assert "300\n\n236 k" in words(axes)


def test_all_sorts_have_colours_of_their_own():
    assert len(set(SORTS.values())) == len(SORTS)
