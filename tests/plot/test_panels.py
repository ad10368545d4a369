import io
from dataclasses import replace

import numpy as np
import torch

from everynet.plot.panels import MARKED, Panel, panels
from everynet.plot.style import INK, WIDTH, colour
from tests.plot.legible import collisions


def drawn(figure):
    """The figure as it is on paper: whatever cannot be drawn raises here."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    assert file.getvalue().startswith(b"\x89PNG")
    return figure


def curve(points, power=1.0):
    x = torch.linspace(1, 2, points, dtype=torch.float64)
    return x, x**power


def names(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_curves_are_drawn_by_name_in_the_colours_of_the_cycle():
    given = {"few": curve(5), "many": curve(MARKED + 1)}
    (axes,) = drawn(panels(Panel(given, "across", "up", "both"))).axes
    for number, (line, (x, y)) in enumerate(zip(axes.lines, given.values(), strict=True)):
        np.testing.assert_array_equal(line.get_xydata(), torch.stack([x, y], 1).numpy())
        assert line.get_color() == colour(number)
    assert [line.get_marker() for line in axes.lines] == ["o", "None"]
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("across", "up", "both")
    assert names(axes) == ["few", "many"]


def test_a_prediction_of_a_curve_has_its_colour_and_another_stands_in_ink():
    panel = Panel(
        {"a": curve(5), "b": curve(5)}, "x", "y", guides={"b": curve(9), "law": curve(9, 2.0)}
    )
    (axes,) = drawn(panels(panel)).axes
    own, law, key = axes.lines[2:]
    assert own.get_color() == colour(1)
    assert law.get_color() == INK
    assert own.get_linestyle() == law.get_linestyle() == "--"
    assert names(axes) == ["a", "b", "law", "predicted"]
    assert (key.get_linestyle(), len(key.get_xdata())) == ("--", 0)
    (silent,) = panels(replace(panel, dashes="")).axes
    assert names(silent) == ["a", "b", "law"]


def test_predictions_can_be_told_apart_and_whole_places_have_whole_ticks():
    layers = torch.tensor([1.0, 2.0, 3.0])
    panel = Panel(
        {"a": (layers, layers)}, "layer", "y", guides={"one": curve(3), "two": curve(3, 2.0)}
    )
    (axes,) = drawn(panels(panel)).axes
    assert [line.get_linestyle() for line in axes.lines[1:]] == ["--", "-."]
    assert all(tick == round(tick) for tick in axes.get_xticks())


def test_levels_marks_bands_and_scales():
    x, y = curve(5)
    panel = Panel(
        {"a": (x, y)}, "x", "y", bands={"a": (y / 2, 2 * y)}, log="xy",
        levels={"floor": 1.5}, marks={"edge": 1.2}, ylim=(0.1, 10.0),
    )  # fmt: skip
    (axes,) = drawn(panels(panel)).axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    level, _, mark = axes.lines
    assert set(level.get_ydata()) == {1.5}
    assert set(mark.get_xdata()) == {1.2}
    assert names(axes) == ["floor", "a", "edge"]
    assert not axes.texts
    assert len(axes.collections) == 1
    assert axes.get_ylim() == (0.1, 10)


def test_a_landscape_lies_behind_ways_and_points():
    side = torch.linspace(-1, 1, 20, dtype=torch.float64)
    z = side[None] ** 2 - side[:, None] ** 2
    panel = Panel({"way": curve(5)}, "x", "y", heights=(side, side, z), scatter=True)
    (axes,) = drawn(panels(panel)).axes
    assert axes.get_aspect() == 1
    assert axes.lines[0].get_linestyle() == "None"
    low, high = axes.collections[0].get_clim()
    np.testing.assert_allclose(low, -high)  # white is level


def test_rows_are_filled_and_empty_places_removed():
    one = Panel({"a": curve(3)}, "x", "y", legend="none")
    figure = drawn(panels(*[one] * 5, columns=3))
    assert len(figure.axes) == 5
    assert figure.axes[0].get_legend() is None
    assert figure.axes[0].get_gridspec().get_geometry() == (2, 3)
    assert drawn(panels(one, one, columns=1)).axes[0].get_gridspec().get_geometry() == (2, 1)


def test_no_row_of_panels_is_wider_than_a_page():
    one = Panel({"a": curve(3)}, "x", "y")
    for count, shape in {1: (1, 1), 2: (1, 2), 3: (1, 3), 4: (2, 2)}.items():
        figure = panels(*[one] * count, width=9.0)
        assert figure.get_size_inches()[0] == WIDTH
        assert figure.axes[0].get_gridspec().get_geometry() == shape
    assert panels(one, width=4.0).get_size_inches()[0] == 4


def test_names_that_are_the_same_everywhere_are_written_once():
    one, other = (Panel({name: curve(3)}, "x", "y") for name in "ab")
    (shared,) = drawn(panels(one, one)).legends
    assert [text.get_text() for text in shared.get_texts()] == ["a"]
    apart = drawn(panels(one, other))
    assert not apart.legends
    assert [names(axes) for axes in apart.axes] == [["a"], ["b"]]
    inside = drawn(panels(*[replace(one, legend="upper left")] * 2))
    assert [names(axes) for axes in inside.axes] == [["a"], ["a"]]


def test_many_marks_are_named_above_the_axes_and_those_without_letters_nowhere():
    x, y = curve(5)
    many = Panel({"a": (x, y)}, "x", "y", marks={f"{n}": 1 + n / 10 for n in range(5)})
    (axes,) = drawn(panels(many)).axes
    assert [text.get_text() for text in axes.texts] == list("01234")
    assert all(text.xy[1] > 1 for text in axes.texts)
    marks = {f"layer {n}": 1 + n / 10 for n in range(9)}  # one of them in the middle
    assert not collisions(panels(Panel({"a": (x, y)}, "x", "y", "the title", marks=marks)))
    plain = Panel({"a": (x, y)}, "x", "y", "the title")
    blank = replace(plain, marks={" " * n: 1 + n / 10 for n in range(1, 9)})
    tops = {drawn(panels(one)).axes[0].get_position().y1 for one in (plain, blank)}
    assert len(tops) == 1  # no room above is left for them
    (axes,) = drawn(panels(Panel({"a": (x, y)}, "x", "y", marks={" ": 1.5}))).axes
    assert (names(axes), len(axes.texts)) == (["a"], 0)


def test_a_curve_that_follows_its_prediction_does_not_hide_it():
    both = Panel({"a": curve(5)}, "x", "y", guides={"a": curve(5), "theory": curve(5)})
    (axes,) = panels(both).axes
    line, own, theory, _ = axes.lines
    assert min(own.get_zorder(), theory.get_zorder()) > line.get_zorder()
    assert own.get_path_effects()  # of one colour with its curve: a white edge shows it
    (axes,) = panels(replace(both, scatter=True)).axes
    points, own, _, _ = axes.lines
    assert own.get_zorder() < points.get_zorder()
    assert not own.get_path_effects()
