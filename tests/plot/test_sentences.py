"""Pictures of sentences inside a network show the very values they are given."""

import numpy as np
import torch
from sklearn.decomposition import PCA

from everynet.plot.sentences import NAMED, attention_maps, encoder_decoder_states, sentence_map


def images(figure):
    return [axes.images[0].get_array() for axes in figure.axes if axes.images]


def test_the_framed_columns_are_one_vector_in_the_order_of_its_values():
    encoder, decoder = torch.randn(4, 6), torch.randn(3, 6)
    drawn = encoder_decoder_states(encoder, decoder, list("abcd"), ["x", "y", "<end>"])
    read, said = images(drawn)[:2]
    assert (read.shape, said.shape) == ((6, 4), (6, 4))
    assert np.array_equal(read[:, -1], said[:, 0])
    assert np.array_equal(read[:, -1], np.sort(read[:, -1])[::-1])
    order = encoder[-1].argsort(descending=True)
    assert np.allclose(said[:, 1:], decoder[:, order].T)
    low, high = drawn.axes[0].images[0].get_clim()
    assert low == -high, "white is zero"
    labels = [[tick.get_text() for tick in axes.get_xticklabels()] for axes in drawn.axes[:2]]
    assert labels == [list("abcd"), ["$c$", "x", "y", "end"]]
    framed = [axes.patches[0].get_x() + 0.5 for axes in drawn.axes[:2]]
    assert framed == [3, 0]


def test_long_words_are_turned():
    drawn = encoder_decoder_states(
        torch.randn(2, 3), torch.randn(1, 3), ["the", "house"], ["<end>"]
    )
    turned = [axes.get_xticklabels()[0].get_rotation() for axes in drawn.axes[:2]]
    assert turned == [50, 0]


def test_points_are_principal_components_and_every_sentence_is_there():
    vectors, groups = torch.randn(60, 5) * torch.tensor([5.0, 3, 1, 1, 1]), torch.arange(60) % 12
    drawn = sentence_map(vectors, groups, [f"w{n}" for n in range(12)], groups, title="first")
    left, right = drawn.axes[:2]
    expected = PCA(2).fit_transform(vectors.double().numpy())
    points = np.asarray(right.collections[0].get_offsets())
    for axis in (0, 1):
        assert abs(np.corrcoef(points[:, axis], expected[:, axis])[0, 1]) > 1 - 1e-9
    assert sum(len(each.get_offsets()) for each in left.collections) == 60
    assert len(left.collections) == NAMED + 1, "and one for the others"
    assert len(left.get_legend().get_texts()) == NAMED + 1


def test_vectors_of_one_number_and_of_one_sentence():
    for rows, units in ((1, 4), (5, 1), (1, 1)):
        ones = torch.ones(rows, dtype=torch.int64)
        vectors = torch.randn(rows, units)
        left, right = sentence_map(vectors, ones * 0, ["a"], ones, title="first").axes[:2]
        for axes in (left, right):
            points = np.asarray(axes.collections[0].get_offsets())
            assert points.shape == (rows, 2)
            spread = np.abs(points[:, 0] - points[:, 0].mean())
            expected = (vectors[:, 0] - vectors[:, 0].mean()).abs() if units == 1 else 0 * spread
            np.testing.assert_allclose(spread, expected, atol=1e-6)
            np.testing.assert_allclose(points[:, 1], points[0, 1], atol=1e-6)


def test_attention_names_any_token_and_shows_each_map_once():
    tokens = ["\udc9e", " $x", " ", "über"]
    maps = [
        ("one", torch.rand(4, 3), tokens, ["a", "b", "c"]),
        ("two", torch.rand(2, 4), ["a", "b"], tokens),
    ]
    made = attention_maps(maps)
    made.canvas.draw()
    left, right, _ = made.axes
    assert [label.get_text() for label in left.get_yticklabels()] == [
        "\ufffd",
        r"\$x",
        "\u2423",
        "über",
    ]
    assert [label.get_text() for label in right.get_xticklabels()] == [
        "\ufffd",
        r"\$x",
        "\u2423",
        "über",
    ]
    for axes, (title, weights, *_) in zip((left, right), maps, strict=True):
        assert axes.get_title() == title
        assert axes.images[0].get_array().shape == tuple(weights.shape)
