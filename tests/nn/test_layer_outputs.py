"""What layers make of a picture: as the layers say, no more of the network than that is run."""

import pytest
import torch
from torch import nn

from everynet.nn.layer_outputs import LayerOutputs, group_by_size


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2),
        nn.Conv2d(3, 4, 3, padding=1), nn.Tanh(), nn.ReLU(),
        nn.Flatten(), nn.Linear(4 * 5 * 5, 2),
    ).double()  # fmt: skip


def test_it_gives_what_the_layers_make_in_the_order_asked_for():
    net, x = network(), torch.rand(1, 2, 12, 8, dtype=torch.float64)
    seen = LayerOutputs(net, ("5", "1", "5"), [0.2, 0.4], [0.5, 2.0]).double()
    standard = (x - torch.tensor([0.2, 0.4])[:, None, None]) / torch.tensor([0.5, 2.0])[
        :, None, None
    ]
    first = net[1](net[0](standard))
    second = net[5](net[4](net[3](net[2](first))))
    found = seen(x)  # the head takes 10 x 10 pixels: it is never asked
    assert [tuple(f.shape) for f in found] == [(4, 24), (3, 96), (4, 24)]
    torch.testing.assert_close(found[0], second[0].flatten(1), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found[1], first[0].flatten(1), rtol=1e-6, atol=1e-6)
    assert not net[1]._forward_hooks


def test_gradients_reach_the_picture():
    x = torch.rand(1, 2, 12, 8, dtype=torch.float64, requires_grad=True)
    (found,) = LayerOutputs(
        network().requires_grad_(False), ("5",), [0.0, 0.0], [1.0, 1.0]
    ).double()(x)
    found.square().sum().backward()
    assert x.grad.abs().max() > 0


def test_a_layer_that_is_called_twice_answers_with_the_first():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.relu = nn.ReLU()

        def forward(self, x):
            return self.relu(self.relu(x) - 1)

    x = torch.rand(1, 1, 4, 4)
    (found,) = LayerOutputs(Twice(), ("relu",), [0.0], [1.0])(x)
    assert torch.equal(found, x[0].flatten(1))


def test_layers_of_one_size_stand_together_and_a_head_of_another_size_does_not_matter():
    assert group_by_size(network(), torch.zeros(1, 2, 12, 8, dtype=torch.float64)) == [
        ["1"],
        ["4", "5"],
    ]
    assert group_by_size(network(), torch.zeros(1, 2, 2, 8, dtype=torch.float64)) == [["1"]]
    assert group_by_size(nn.Sequential(nn.Flatten(), nn.ReLU()), torch.zeros(1, 2, 4, 4)) == []


def test_a_mistake_that_is_none_of_ours_is_not_hidden():
    with pytest.raises(AttributeError):
        LayerOutputs(network(), ("nine",), [0.0, 0.0], [1.0, 1.0])(torch.zeros(1, 2, 4, 4))
