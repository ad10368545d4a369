import torch

from everynet.zoo.recurrent.pictures.remembering import error_rows, learned_when


def test_a_mark_for_each_length_and_a_line_for_remembering_nothing(tmp_path):
    errors = {"adding": torch.tensor([[0.1, 0.2], [0.0, 0.01]]), "copy": torch.rand(2, 2)}
    drawn = error_rows(errors, ["rnn", "lstm"], [100, 200], {"adding": 1 / 6, "copy": 0.875})
    left, right = drawn.axes
    assert [label.get_text() for label in left.get_yticklabels()] == ["rnn", "lstm"]
    first, second, nothing = left.lines
    assert first.get_xdata().tolist() == torch.tensor([0.1, 1e-4]).double().tolist()
    assert second.get_label() == "T = 200"
    assert nothing.get_xdata()[0] == 1 / 6
    assert left.get_xlim()[0] < 1e-4  # what is 0 is still seen
    assert (left.get_xscale(), right.get_xscale()) == ("log", "linear")
    assert right.get_xlabel() == "share of wrong answers"
    drawn.savefig(tmp_path / "a.png")


def test_when_each_learned(tmp_path):
    steps = torch.tensor([0, 10])
    curves = [(steps, torch.tensor([1.0, 1.0])), (steps, torch.tensor([1.0, 0.0]))]
    drawn = learned_when({"adding": curves, "copy": curves}, ["rnn", "lstm"], 10)
    shown = drawn.axes[0].images[0].get_array()
    assert (shown[0] == 1).all()
    assert (shown[1, 0], shown[1, -1]) == (1, 0)
    assert drawn.axes[0].images[0].get_clim() == (0, 1)
    assert drawn.axes[0].images[0].get_extent() == [0, 10, 1.5, -0.5]
    drawn.savefig(tmp_path / "a.png")
