import torch

from everynet.plot.style import drawing
from everynet.zoo.feedforward.pictures.hidden import hidden_space
from tests.plot.legible import collisions, faults


def test_across_is_the_distance_from_the_plane_and_up_the_largest_spread_along_it():
    hidden = torch.tensor([[0.0, 0.0, 5.0], [2.0, 0.0, -5.0], [4.0, 1.0, 0.0]])
    weight, bias = torch.tensor([2.0, 0.0, 0.0]), -4.0  # the plane h_1 = 2
    inputs, targets = torch.rand(3, 2), torch.tensor([0, 1, 1])
    with drawing():
        drawn = hidden_space(inputs, hidden, weight, bias, targets, classes=("no", "yes"))
        assert not faults(drawn) + collisions(drawn)
    left, right = drawn.axes
    seen = torch.cat([torch.tensor(dots.get_offsets().data) for dots in right.collections])
    assert seen[:, 0].tolist() == [-2, 0, 2]
    spread = seen[:, 1].abs().sort().values
    torch.testing.assert_close(spread[1:], torch.tensor([5.0, 5.0]).double(), atol=0.2, rtol=0)
    assert set(right.lines[0].get_xdata()) == {0}
    given = torch.cat([torch.tensor(dots.get_offsets().data) for dots in left.collections])
    torch.testing.assert_close(given, inputs.double())
    assert right.get_title() == "3 hidden units"
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["no", "yes"]
