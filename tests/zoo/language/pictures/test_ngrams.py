"""Pictures of n-grams show the numbers they are given."""

import math

import pytest
import torch

from everynet.zoo.language.pictures.ngrams import (
    nearest_words,
    perplexity_by_order,
    perplexity_by_seen_length,
    rank_frequencies,
    sentence_probabilities,
)


def test_a_curve_of_each_smoothing_with_its_values(tmp_path):
    values = {"a": torch.tensor([900.0, 200.0]), "b": torch.tensor([math.nan, 150.0])}
    drawn = perplexity_by_order(values)
    (axes,) = drawn.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a: 900 200", "b: - 150"]
    assert [line.get_ydata()[1] for line in axes.lines] == [200.0, 150.0]
    drawn.savefig(tmp_path / "a.png")


def test_counts_by_rank_and_the_share_that_is_new():
    counts = [torch.tensor([8, 4, 2, 1]), torch.tensor([3, 1])]
    left, right = rank_frequencies(counts, torch.tensor([0.0, 0.5])).axes
    first = left.lines[0]
    assert list(zip(first.get_xdata(), first.get_ydata(), strict=True))[-1] == (4, 1)
    assert right.lines[0].get_ydata().tolist() == [0.0, 0.5]


def test_bars_are_probabilities_and_colours_what_was_seen(tmp_path):
    p, alone = torch.tensor([0.5, 0.0, 0.1]), torch.tensor([0.1, 0.2, 0.0])
    drawn = sentence_probabilities(["a", "$b", "</s>"], p, alone, torch.tensor([2, 1, 2]))
    (axes,) = drawn.axes
    tops = [bar.get_y() + bar.get_height() for bar in axes.patches]
    assert tops == pytest.approx([0.5, 0.0, 0.1])
    assert axes.patches[0].get_facecolor() == axes.patches[2].get_facecolor()
    assert axes.patches[0].get_facecolor() != axes.patches[1].get_facecolor()
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["1 word", "2 words", "no history"]
    drawn.savefig(tmp_path / "a.png")


def test_models_are_compared_where_more_or_less_was_seen(tmp_path):
    seen = torch.tensor([1, 1, 3, 3, 3, 3])
    nats = torch.tensor([2.0, 4.0, 1.0, 1.0, 1.0, 1.0])
    drawn = perplexity_by_seen_length({"counts": nats, "network": nats + 1}, seen)
    axes, shares = drawn.axes
    assert axes.lines[0].get_ydata() == pytest.approx([math.exp(3), math.e])
    assert [bar.get_height() for bar in shares.patches] == pytest.approx([1 / 3, 2 / 3])
    said = axes.get_legend().get_texts()[1].get_text()
    assert said == f"network: {math.exp(nats.mean() + 1):.1f} on all"
    drawn.savefig(tmp_path / "a.png")


def test_a_row_for_each_word_and_its_neighbours(tmp_path):
    words = [["cat", "dog", "$cow$"], ["ran", "sat", "saw"]]
    drawn = nearest_words(words, torch.tensor([[1.0, 0.8, 0.1], [1.0, 0.5, 0.4]]))
    axes = drawn.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cat", "ran"]
    assert [text.get_text() for text in axes.texts] == ["dog", "$cow$", "sat", "saw"]
    drawn.savefig(tmp_path / "a.png")
