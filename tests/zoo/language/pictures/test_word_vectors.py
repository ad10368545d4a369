"""Words as points: every word is named once, beside its point, and arrows run from pair to pair."""

import torch
from matplotlib.text import Annotation

from everynet.zoo.language.pictures.word_vectors import word_arrows, word_map, word_similarity

GROUPS = {"king": ["king", "queen", "$x$"], "cat": ["cat", "dog"]}
NAMES = [word for group in GROUPS.values() for word in group]


def words(axes):
    return [text.get_text() for text in axes.texts if not isinstance(text, Annotation)]


def test_every_word_is_named_once_and_inside(tmp_path):
    points = torch.tensor([[0.0, 0], [0.01, 0.01], [0.02, 0], [5, 5], [5, 5.01]])
    drawn = word_map(points, GROUPS)
    axes = drawn.axes[0]
    assert sorted(words(axes)) == sorted(NAMES)
    bold = {text.get_text() for text in axes.texts if text.get_fontweight() == "bold"}
    assert bold == {"king", "cat"}
    for text in axes.texts:
        x, y = text.get_position()
        assert axes.get_xlim()[0] < x < axes.get_xlim()[1]
        assert axes.get_ylim()[0] < y < axes.get_ylim()[1]
    boxes = [(text.get_position(), text.get_text()) for text in axes.texts]
    assert len({place for place, _ in boxes}) == len(boxes)  # crowded, and yet apart
    drawn.savefig(tmp_path / "a.png")


def test_arrows_run_from_the_first_word_to_the_second(tmp_path):
    points = torch.tensor([[[0.0, 0], [1, 1]], [[2, 0], [3, 1]], [[0, 3], [1, 4]]])
    pairs = [("a", "b"), ("c", "d"), ("e", "f")]
    drawn = word_arrows({"one": (pairs, points), "two": (pairs, points)})
    assert [axes.get_title() for axes in drawn.axes] == ["one", "two"]
    for axes in drawn.axes:
        arrows = [text for text in axes.texts if isinstance(text, Annotation)]
        ends = [(tuple(a.xyann), tuple(a.xy)) for a in arrows]
        assert ends[:3] == [(tuple(start), tuple(stop)) for start, stop in points.double().tolist()]
        (start, stop) = ends[3]  # the mean
        assert torch.allclose(torch.tensor(stop) - torch.tensor(start), torch.ones(2).double())
        assert sorted(words(axes)) == list("abcdef")
    drawn.savefig(tmp_path / "a.png")


def test_cosines_of_groups_are_framed(tmp_path):
    unit = torch.nn.functional.normalize(torch.randn(5, 3), dim=1)
    drawn = word_similarity(unit @ unit.T, GROUPS)
    axes = drawn.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == NAMES
    assert len(axes.lines) == 2
    first, second = ((line.get_xdata().min(), line.get_xdata().max()) for line in axes.lines)
    assert (first, second) == ((-0.5, 2.5), (2.5, 4.5))
    assert axes.images[0].get_clim()[1] == 1
    drawn.savefig(tmp_path / "a.png")
    even = word_similarity(torch.ones(5, 5), GROUPS)
    assert even.axes[0].images[0].get_clim() == (0, 1)
