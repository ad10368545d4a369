"""Words of a line: bars, dots of another model, and what stands beside them."""

import math

import pytest
import torch

from everynet.plot.words import LEAST, WordBar, gap_candidates, word_probabilities, word_values


def test_bars_are_of_one_model_and_dots_of_the_other():
    line = [WordBar("a", 0.5, "b  0.60", False, 0.01), WordBar("$b", 0.1, "$b  0.10", True, 0.0)]
    drawn = word_probabilities([line, line[:1]], ("the network", "trigrams"))
    axes = drawn.axes[0]
    ends = [bar.get_x() + bar.get_width() for bar in axes.patches]
    assert ends == pytest.approx([0.5, 0.1])
    (dots,) = axes.lines
    assert list(dots.get_xdata()) == [0.01, LEAST]  # one that is impossible stands at the edge
    assert [text.get_text() for text in axes.get_yticklabels()] == ["a", "$b"]
    assert axes.patches[0].get_facecolor() != axes.patches[1].get_facecolor()
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["the network", "trigrams"]


def test_a_word_without_another_model_has_no_dot():
    drawn = word_probabilities([[WordBar("a", 0.5)]], ("the network", "trigrams"))
    assert math.isnan(drawn.axes[0].lines[0].get_xdata()[0])


def test_gaps_have_their_line_above_and_shares_beside():
    drawn = gap_candidates(
        [("the ___ cart", [WordBar("old", 0.75, marked=True), WordBar("$2", 0.25)])]
    )
    (axes,) = drawn.axes
    assert axes.get_title(loc="left") == "the ___ cart"
    assert [text.get_text().strip() for text in axes.texts] == ["0.75", "0.25"]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_an_odd_number_of_lines_leaves_no_empty_axes(count):
    values = torch.tensor([0.5, -0.25])
    lines = [(["good", "day"], values + n, f"line {n}") for n in range(count)]
    inks = [one.patches[0].get_facecolor() for one in word_values(lines, "", changed=False).axes]
    assert len(set(inks)) == 1  # of one kind
    axes = word_values(lines, "nats").axes
    assert [one.patches[0].get_facecolor() == inks[0] for one in axes] == [True, False, True][
        :count
    ]
    assert [one.get_title(loc="left") for one in axes] == [name for *_, name in lines]
    for n, one in enumerate(axes):
        assert [bar.get_height() for bar in one.patches] == (values + n).tolist()
