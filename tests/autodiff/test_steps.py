"""The graph in words: the table of the backward pass, and text for Graphviz."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest

import everynet.autodiff as ad
from everynet.autodiff import Var
from everynet.autodiff.steps import HEADINGS, Story, brief


def example():
    x = Var(3.0, name="x")
    return x, x * x + x


def test_trace_is_the_backward_pass_line_by_line():
    x, y = example()
    steps = ad.trace(y)
    assert [s.operation for s in steps] == ["y = add(v1, x)"] * 2 + ["v1 = multiply(x, x)"] * 2
    assert [s.goes_to for s in steps] == ["v1", "x", "x", "x"]
    assert [s.slope for s in steps] == [1, 1, 3, 3]
    assert [s.adds for s in steps] == [1, 1, 3, 3]
    assert [s.so_far for s in steps] == [1, 1, 4, 7]
    for s in steps:
        assert s.adds == s.gradient * s.slope  # the chain rule, on every line
    y.backward()
    assert steps[-1].so_far == x.grad


def test_trace_as_a_table():
    assert str(ad.trace(example()[1])).splitlines() == [
        "step  operation            value  gradient  goes to  slope  adds  so far",
        "----  -------------------  -----  --------  -------  -----  ----  ------",
        "1     y = add(v1, x)       12     1         v1       1      1     1",
        "                                            x        1      1     1",
        "2     v1 = multiply(x, x)  9      1         x        3      3     4",
        "                                            x        3      3     7",
    ]


def test_trace_of_arrays_agrees_with_backward():
    random = np.random.default_rng(0)
    w, b = Var(random.standard_normal((4, 3)), name="W"), Var(np.zeros(3), name="b")
    loss = ad.cross_entropy(ad.tanh(random.standard_normal((5, 4)) @ w + b), [0, 1, 2, 0, 1])
    steps = ad.trace(loss)
    assert w.grad is None  # looking changes nothing
    loss.backward()
    last = {s.goes_to: s.so_far for s in steps}
    np.testing.assert_array_equal(last["W"], w.grad)
    np.testing.assert_array_equal(last["b"], b.grad)
    assert steps[0].slope == pytest.approx(None)
    assert "v1 = matmul(5x4" in str(steps)  # a constant is shown by shape and length
    seeded = ad.trace(w * 2.0, np.ones((4, 3)))
    np.testing.assert_array_equal(seeded[0].so_far, np.full((4, 3), 2.0))


def test_a_trace_shows_itself_as_a_table():
    """At a prompt and in a notebook, without print; a matrix stays on its line."""
    steps = ad.trace(ad.sum(Var(np.eye(2), name="<W>") @ np.ones((2, 2))))
    assert repr(steps) == str(steps)
    assert len(repr(steps).splitlines()) == 2 + len(steps)
    table = ET.fromstring(steps._repr_html_())
    rows = [[cell.text or "" for cell in row] for row in table]
    assert rows[0] == list(HEADINGS)
    assert rows[2][1:5] == [
        "v1 = matmul(<W>, [[1 1] [1 1]])",
        "[[1 1] [1 1]]",
        "[[1 1] [1 1]]",
        "<W>",
    ]


def test_names_are_given_or_counted():
    a, b = Var(1.0), Var(2.0, name="v1")
    y = ad.exp(a * b)
    names = Story(y).names
    assert names[a] == "x1"
    assert names[y.creator.args[0]] == "v2"  # v1 is taken
    assert names[y] == "y"
    named = a + b
    named.name = "total"
    assert Story(named).called(named) == "total"


@pytest.mark.covers("A1")
def test_dot_has_every_operation_and_every_edge():
    _, y = example()
    dot = ad.to_dot(y)
    assert dot.count("shape=box") == 2
    assert dot.count("->") == 5  # x three times, v1, y
    assert dot.count('leaf2 -> op1 [label="3\\n3"]') == 2
    assert 'op0 -> out [label="12\\n1"]' in dot
    quoted = Var(1.0, name='say "x"')
    assert 'label="say \\"x\\""' in ad.to_dot(quoted * 2.0)


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (2.0, "2"),
        (-0.0, "0"),
        (1 / 3, "0.3333"),
        (np.array([1.0, 2.5]), "[1 2.5]"),
        (np.array([[1.5, -2.0], [0.25, 3.0]]), "[[1.5 -2] [0.25 3]]"),
        (np.ones((2, 1, 2)), "[[[1 1]] [[1 1]]]"),
        (np.ones((3, 4)), "3x4 |3.46|"),
        (Var(1e-9), "1e-09"),
        (7, "7"),
    ],
)
def test_brief(x, text):
    assert brief(x) == text
