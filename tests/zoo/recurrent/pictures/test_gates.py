import io

import torch
from matplotlib.patches import Circle

from everynet.plot.style import MAGNITUDE, SIGNED
from everynet.zoo.recurrent.pictures.gated_cell import gru_cell, lstm_cell
from everynet.zoo.recurrent.pictures.gates import gates_over_marks, gates_over_text


def drawn(figure):
    figure.savefig(io.BytesIO(), format="png")
    return figure


def words(figure):
    return " ".join(text.get_text() for axes in figure.axes for text in axes.texts)


def test_gates_go_from_nought_to_one_and_the_text_stands_beneath():
    f, c = torch.rand(2, 3), torch.tensor([[0.5, -2.0, 0.0], [0.1, 0.2, 0.3]])
    figure = drawn(gates_over_text({"forget": f}, {"memory": c}, ["a", "$", "\n"], [4, 17]))
    top, below, *_ = figure.axes
    assert top.images[0].get_clim() == (0.0, 1.0)
    assert top.images[0].get_cmap() == MAGNITUDE
    assert below.images[0].get_clim() == (-2.0, 2.0)  # white is zero
    assert below.images[0].get_cmap() == SIGNED
    assert [label.get_text() for label in top.get_yticklabels()] == ["4", "17"]
    assert [label.get_text() for label in below.get_xticklabels()][:2] == ["a", "$"]


def test_marked_numbers_have_a_colour_of_their_own():
    numbers, marks = torch.tensor([0.1, 0.9, 0.4]), torch.tensor([0.0, 1.0, 0.0])
    figure = drawn(gates_over_marks(numbers, marks, {"update": torch.rand(4, 3)}, {}))
    first, second, third = figure.axes[0].patches
    assert first.get_facecolor() == third.get_facecolor() != second.get_facecolor()
    assert [text.xy for text in figure.axes[0].texts] == [(1, 1)]


def test_cells_say_how_many_numbers_they_hold():
    lstm, gru = drawn(lstm_cell(3, 5)), drawn(gru_cell(3, 5))
    said = sum(p.numel() for p in torch.nn.LSTM(3, 5, bias=False).parameters()) + 4 * 5
    assert f"= {said} numbers" in words(lstm)
    said = sum(p.numel() for p in torch.nn.GRU(3, 5, bias=False).parameters()) + 3 * 5
    assert f"= {said} numbers" in words(gru)
    for figure in (lstm, gru):
        assert "batch \N{MULTIPLICATION SIGN} 3" in words(figure)
        assert "batch \N{MULTIPLICATION SIGN} 5" in words(figure)


def test_a_dot_stands_where_a_line_branches_and_none_where_lines_cross():
    for cell, expected in (
        (gru_cell, {(4.2, 4.3), (5.6, 3.5), (3.2, 4.3), (4.2, 0.9), (4.9, 0.3), (9.8, 4.3)}),
        (lstm_cell, {(3.9, 0.9), (5.1, 0.9), (6.3, 0.9), (8.7, 4.3), (9.6, 0.9)}),
    ):
        patches = cell(3, 5).axes[0].patches
        assert {p.center for p in patches if isinstance(p, Circle) and p.radius < 0.1} == expected
