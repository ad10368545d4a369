"""A network that is given: seen by nobody who trains or saves, but moved and asked like any."""

import torch
from torch import nn

from everynet.nn.frozen import Frozen
from everynet.recipes.state import State
from everynet.runs import checkpoint


class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.own = nn.Linear(3, 2)
        self.given = Frozen(nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)))

    def forward(self, x):
        return self.given(self.own(x))


def test_nobody_sees_its_weights():
    holder = Holder()
    assert set(holder.state_dict()) == {"own.weight", "own.bias"}
    assert [name for name, _ in holder.named_parameters()] == ["own.weight", "own.bias"]
    assert list(holder.buffers()) == []
    below = {name: list(module.parameters()) for name, module in holder.named_modules()}
    assert set(below) == {"", "own", "given"}
    assert below["given"] == []


def test_it_moves_with_what_holds_it():
    holder = Holder().to(torch.float64)
    assert all(t.dtype == torch.float64 for t in holder.given.network.parameters())
    assert holder(torch.zeros(2, 3, dtype=torch.float64)).dtype == torch.float64
    holder.to("meta")
    assert all(t.is_meta for t in holder.given.network.buffers())


def test_it_stays_in_eval_mode():
    holder = Holder().train()
    assert holder.own.training
    assert not any(module.training for module in holder.given.network.modules())
    before = {n: t.clone() for n, t in holder.given.network.state_dict().items()}
    x = torch.randn(5, 3)
    assert torch.equal(holder(x), holder(x))  # no dropout
    for name, tensor in holder.given.network.state_dict().items():
        assert torch.equal(tensor, before[name])  # no running mean moves
    holder.eval().train()
    assert not holder.given.network.training


def test_gradients_go_through_it_and_stay_off_its_weights():
    holder = Holder()
    x = torch.randn(5, 3, requires_grad=True)
    holder(x).square().sum().backward()
    assert x.grad.abs().sum() > 0
    assert holder.own.weight.grad.abs().sum() > 0
    assert all(not p.requires_grad and p.grad is None for p in holder.given.network.parameters())


def test_it_answers_as_the_network_does():
    network = nn.Linear(2, 4)
    x = torch.randn(3, 2)
    assert torch.equal(Frozen(network)(x), network(x))


def test_a_checkpoint_of_what_holds_it_does_not_store_it(tmp_path):
    holder = Holder()
    optimizer = torch.optim.SGD(holder.parameters(), lr=0.1)
    state = State(holder, nn.Module(), {"main": optimizer})
    checkpoint.save(tmp_path / "1", state, holder, checkpoint.Best())
    contents = checkpoint.read_bundle(tmp_path / "1")
    saved = checkpoint.weights_in(tmp_path, contents[checkpoint.MODEL])
    assert set(saved) == {"own.weight", "own.bias"}
    assert sum(map(len, contents.values())) < 4000
    other = Holder()
    nn.init.ones_(other.own.weight)
    nn.init.ones_(other.given.network[0].weight)
    checkpoint.restore_model(tmp_path / "1", other)
    assert torch.equal(other.own.weight, holder.own.weight)
    assert bool((other.given.network[0].weight == 1).all())
