"""The picture of a graph: what stands where, that nothing overlaps, and that SVG is text."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

import everynet.autodiff as ad
from everynet.autodiff import Var
from everynet.autodiff.graph import SHOWN
from everynet.autodiff.layout import place
from everynet.autodiff.picture import BACKWARD, FORWARD, Drawing
from everynet.autodiff.steps import Story
from everynet.plot.style import CYCLE


def example():
    a, b = Var(2.0, name="a"), Var(0.5, name="b")
    return ad.sin(a * b) + ad.exp(a) / b - 3 * ad.log(a)


def test_values_and_gradients_stand_on_the_edges():
    x = Var(3.0, name="x")
    figure = ad.draw(x * x + x)
    texts = {text.get_text(): text.get_color() for text in figure.axes[0].texts}
    assert texts["v1 = 9"] == texts["y = 12"] == FORWARD
    assert texts["← 3"] == texts["← 1"] == BACKWARD
    assert texts["Σ = 7"] == BACKWARD  # where branches meet they add
    assert {"x", "y", "+", "\N{MULTIPLICATION SIGN}"} <= set(texts)
    boxes = [p for p in figure.axes[0].patches if isinstance(p, FancyBboxPatch)]
    arrows = [p for p in figure.axes[0].patches if isinstance(p, FancyArrowPatch)]
    assert len(boxes) == 4  # x, two Ops, y
    assert len(arrows) == 2 * 5  # each edge in two parts, before and after its label


def test_colours_are_those_of_the_house():
    assert CYCLE[:2] == (FORWARD, BACKWARD)


def test_graph_without_a_scalar_has_values_only():
    texts = [t.get_text() for t in ad.draw(Var([1.0, 2.0]) * 3.0).axes[0].texts]
    assert "y = [3 6]" in texts
    assert not any("←" in text for text in texts)
    seeded = [t.get_text() for t in ad.draw(Var([1.0, 2.0]) * 3.0, np.ones(2)).axes[0].texts]
    assert "← [3 3]" in seeded
    assert len(ad.draw(Var(1.0)).axes[0].texts) > 0


def test_svg_is_text_that_parses():
    text = ad.to_svg(example())
    root = ET.fromstring(text)
    assert root.tag.endswith("svg")
    assert "v4 = 14.78" in text  # letters stay letters
    assert text == ad.to_svg(example())


def test_a_graph_and_a_computed_var_show_themselves():
    y = example()
    for shown in (y._repr_svg_(), ad.draw(y)._repr_svg_()):
        assert ET.fromstring(shown).tag.endswith("svg")
        assert shown == ad.to_svg(y)
    assert Var(2.0)._repr_svg_() is None  # a leaf is its number
    for _ in range(SHOWN):
        y = -y
    assert y._repr_svg_() is None  # too large to be shown unasked


def test_texts_of_matrices_do_not_overprint():
    w, x = Var([[1.5, -2.25], [0.125, 3.0]], name="W"), Var([[0.5], [-1.0]], name="x")
    y = ad.sum(ad.tanh(w @ w @ x + np.array([[1.0], [2.0]])) * w)
    figure = ad.draw(y)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    texts = [text for text in figure.axes[0].texts if text.get_text()]
    assert any("[[1.5 -2.25] [0.125 3]]" in text.get_text() for text in texts)
    boxes = [text.get_window_extent() for text in texts]
    for i, box in enumerate(boxes):
        for j in range(i):
            assert not box.overlaps(boxes[j]), (texts[i].get_text(), texts[j].get_text())


def test_too_many_operations():
    y = Var(1.0)
    for _ in range(251):
        y = -y
    with pytest.raises(
        ValueError, match=r"the graph \(251 Ops\) must have at most 250 to be drawn"
    ):
        ad.draw(y)


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), min_size=1, max_size=25
    )
)
def test_boxes_never_overlap_and_edges_go_right(plan):
    values = [Var(0.5, name="a"), Var(0.7, name="b")]
    for i, j, unary in plan:
        u, v = values[-1 - i % len(values)], values[-1 - j % len(values)]
        values.append(ad.tanh(u) if unary else u * v)
    drawing = Drawing(Story(values[-1]))
    placed = place([box.room for box in drawing.boxes], drawing.edges, gap=(16.0, 8.0))
    corners = [(x, y, *box.room) for (x, y), box in zip(placed.boxes, drawing.boxes, strict=True)]
    for i, (x, y, w, h) in enumerate(corners):
        for x2, y2, w2, h2 in corners[:i]:
            assert abs(x - x2) >= (w + w2) / 2 or abs(y - y2) >= (h + h2) / 2
    for (tail, head), route in zip(drawing.edges, placed.routes, strict=True):
        way = [placed.boxes[tail][0], *(x for x, _ in route), placed.boxes[head][0]]
        assert way == sorted(way)


def test_layout_has_no_needless_crossing():
    """Two chains side by side: each stays on its own level."""
    sizes = [(10.0, 10.0)] * 7
    edges = [(4, 6), (5, 6), (2, 4), (3, 5), (0, 2), (1, 3)]
    placed = place(sizes, edges, gap=(5.0, 5.0))
    for chain in ((0, 2, 4), (1, 3, 5)):
        assert len({round(placed.boxes[v][1], 6) for v in chain}) == 1
    assert placed.boxes[4][1] > placed.boxes[5][1]  # the first argument stands on top
    assert placed.boxes[6][1] == pytest.approx((placed.boxes[4][1] + placed.boxes[5][1]) / 2)


def test_boxes_stand_level_with_what_they_feed():
    """0 feeds 1, which stands above 3: 0 is as high as 1, not in the middle of its own layer."""
    placed = place([(10.0, 10.0)] * 4, [(1, 2), (3, 2), (0, 1)], gap=(5.0, 5.0))
    assert placed.boxes[0][1] == pytest.approx(placed.boxes[1][1])
    assert placed.boxes[1][1] > placed.boxes[3][1]


def test_long_edges_pass_through_every_layer():
    placed = place([(10.0, 10.0)] * 3, [(1, 2), (0, 1), (0, 2)], gap=(5.0, 5.0))
    assert [len(route) for route in placed.routes] == [0, 0, 1]
    assert placed.routes[2][0][1] != placed.boxes[1][1]
