"""Pictures of words: the very values they are given, every word in its place, no formulas."""

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex

from everynet.plot.style import SIGNED, colour
from everynet.zoo.recurrent.pictures.feelings import MOST, along, coloured
from everynet.zoo.recurrent.pictures.grams import (
    LETTERS,
    best_grams,
    phrase,
    weighed_words,
    words_by_count,
)
from everynet.zoo.recurrent.pictures.passes import share_table, two_passes


def ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def drawn_without_warning(figure, tmp_path):
    figure.savefig(tmp_path / "a.png")


def test_an_answer_after_each_word(tmp_path):
    made = along([(["a", "$x$", "b"], torch.tensor([0.1, 0.5, 0.9])), (["c"], torch.ones(1))],
                 ylabel="p")  # fmt: skip
    first, second = made.axes
    assert ticks(first.xaxis) == ["a", "$x$", "b"]
    assert first.lines[1].get_ydata() == pytest.approx([0.1, 0.5, 0.9])
    assert ticks(second.xaxis) == ["c"]
    drawn_without_warning(made, tmp_path)
    long = along([([f"w{n}" for n in range(50)], torch.zeros(50))], ylabel="p").axes[0]
    assert len(ticks(long.xaxis)) == len(long.lines[1].get_ydata()) == MOST


def test_words_on_their_colours_and_lines_that_go_on(tmp_path):
    words, values = [f"word{n}" for n in range(30)], torch.linspace(-2, 2, 30)
    made = coloured([(["$a", "b"], torch.tensor([1.0, -1.0]), "x: 90%"), (words, values, "y")],
                    unit="effect")  # fmt: skip
    axes, bar = made.axes
    shown = {text.get_text(): text for text in axes.texts}
    assert [*shown] == ["$a", "b", "x: 90%", *words, "y"]
    for word, value in [("$a", 1.0), ("b", -1.0), *zip(words, values.tolist(), strict=True)]:
        box = shown[word].get_bbox_patch()
        assert box.get_facecolor() == pytest.approx(SIGNED(0.5 + 0.25 * value))
    assert len({shown[word].get_position()[1] for word in words}) > 1
    assert bar.get_xlim() == pytest.approx((-2, 2))
    drawn_without_warning(made, tmp_path)


def test_phrases_of_filters(tmp_path):
    rows = [("good +0.5", [("not $bad", 2.0), ("so fine", 1.0)]), ("bad +0.1", [("x" * 40, 0.0)])]
    axes = best_grams(rows).axes[0]
    assert ticks(axes.yaxis) == ["good +0.5", "bad +0.1"]
    assert [text.get_text() for text in axes.texts][:2] == ["not $bad", "so fine"]
    assert len(axes.texts[2].get_text()) == LETTERS
    assert [(text.get_position()[0] // 1, text.get_position()[1]) for text in axes.texts] == [
        (0, 0), (1, 0), (0, 1),
    ]  # fmt: skip
    assert phrase("a b") == "a b"
    drawn_without_warning(best_grams(rows), tmp_path)


def test_weights_of_words(tmp_path):
    sides = [("for a", ["x", "y"], torch.tensor([2.0, 1.0])), ("for b", ["z"], torch.ones(1))]
    made = weighed_words([*sides, *sides], xlabel="weight")
    assert len(made.axes) == 4
    assert [bar.get_width() for bar in made.axes[0].patches] == [2.0, 1.0]
    assert ticks(made.axes[0].yaxis) == ["x", "y"]
    inks = [to_hex(axes.patches[0].get_facecolor()) for axes in made.axes]
    assert inks == [colour(n) for n in range(4)]  # of the classes, not of the sign
    drawn_without_warning(made, tmp_path)


def test_words_by_count_names_no_two_on_each_other(tmp_path):
    counts, weights = torch.tensor([1.0, 100, 100, 5]), torch.tensor([0.0, 2.0, 2.01, -2.0])
    named = [(1, "first"), (2, "hidden"), (3, "low")]
    made = words_by_count(counts, weights, named, ylabel="weight")
    axes = made.axes[0]
    assert [text.get_text() for text in axes.texts] == ["first", "low"]
    points = np.asarray(axes.collections[0].get_offsets())
    assert np.allclose(points, torch.stack([counts, weights], 1))
    drawn_without_warning(made, tmp_path)


def test_two_passes_show_both_sentences_and_frame_the_word(tmp_path):
    states = [{"on": torch.randn(n, 4), "back": torch.randn(n, 4)} for n in (3, 5)]
    likely = [{"one": torch.rand(n), "two": torch.rand(n)} for n in (3, 5)]
    made = two_passes([list("abc"), list("defgh")], states, likely, framed=1)
    images = [axes.images[0] for axes in made.axes if axes.images]
    assert [image.get_array().shape for image in images] == [(4, 3), (4, 5)] * 2
    spread = (states[0]["on"][1] - states[1]["on"][1]).abs()
    order = spread.argsort(descending=True)
    assert np.allclose(images[0].get_array(), states[0]["on"][:, order].T)
    low, high = images[0].get_clim()
    assert low == -high, "white is zero"
    bars = [patch.get_height() for patch in made.axes[4].patches if patch.get_width() < 0.5]
    assert bars == pytest.approx([*likely[0]["one"].tolist(), *likely[0]["two"].tolist()])
    assert ticks(made.axes[5].xaxis) == list("defgh")
    drawn_without_warning(made, tmp_path)


def test_a_table_of_shares(tmp_path):
    made = share_table(torch.tensor([[0.5, 1.0]]), ["row"], ["a", "b"], unit="right")
    axes = made.axes[0]
    assert [text.get_text() for text in axes.texts] == ["50.0%", "100.0%"]
    assert axes.images[0].get_clim() == (0, 1)
    drawn_without_warning(made, tmp_path)
