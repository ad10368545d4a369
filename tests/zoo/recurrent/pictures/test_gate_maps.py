import torch

from everynet.zoo.recurrent.pictures.gate_maps import (
    gate_maps,
    gate_rows,
    memory_curves,
    swapped_map,
)


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_gates_that_open_at_marked_tokens_stand_above(tmp_path):
    z = torch.tensor([[0.9, 0.1, 0.5], [0.8, 0.7, 0.5]])  # time units
    drawn = gate_maps([z, z.flip(1)], ["·", "$"], torch.tensor([False, True]), "two")
    above, below, *_ = drawn.axes
    assert above.get_title() == "two"
    shown = torch.tensor(above.images[0].get_array())
    torch.testing.assert_close(shown, z[:, [1, 2, 0]].T.double())
    assert labels(below.xaxis) == ["·", "$"]
    assert [label.get_fontweight() for label in below.get_xticklabels()] == ["normal", "bold"]
    drawn.savefig(tmp_path / "a.png")


def test_one_gate_of_each_block_along_a_text(tmp_path):
    z = torch.tensor([[0.1, 0.9], [0.3, 0.4]])
    drawn = gate_rows(z, ["a", "\n"])
    axes = drawn.axes[0]
    assert labels(axes.yaxis) == ["block 1", "block 2"]
    assert axes.images[0].get_clim() == (0, 1)
    assert torch.equal(torch.tensor(axes.images[0].get_array()), z.double())
    drawn.savefig(tmp_path / "a.png")


def test_what_each_answer_loses(tmp_path):
    lost = torch.tensor([[1.0, 0.0, 0.1], [0.2, 0.9, 0.0]])
    drawn = swapped_map(lost)
    axes = drawn.axes[0]
    assert (labels(axes.yaxis), labels(axes.xaxis)) == (["1", "2"], ["1", "2", "3"])
    assert torch.equal(torch.tensor(axes.images[0].get_array()), lost.double())
    drawn.savefig(tmp_path / "a.png")


def test_units_stand_from_the_shortest_memory_to_the_longest(tmp_path):
    drawn = memory_curves([torch.tensor([3.0, 1.0, 20.0]), torch.tensor([2.0, 5.0])])
    first, second = drawn.axes[0].lines
    assert first.get_ydata().tolist() == [1.0, 3.0, 20.0]
    assert first.get_xdata().tolist() == [0, 50, 100]
    assert second.get_label() == "block 2"
    drawn.savefig(tmp_path / "a.png")
