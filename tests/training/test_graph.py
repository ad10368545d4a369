"""What a captured update rests on, as far as it can be seen without a GPU; see tests/cuda."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from everynet.data.transfer import constant
from everynet.recipes.state import State
from everynet.recipes.training import make_optimizer
from everynet.training.device import choose
from everynet.training.graph import Rates, Update, hold_rates, watching_step
from everynet.training.loop import begin, train
from tests.runs.recipes import Augmented, Coming, Small


def test_rates_are_written_in_place_where_a_graph_may_read_them():
    first, second = (nn.Parameter(torch.ones(2)) for _ in range(2))
    optimizers = [make_optimizer([first], "adam", 0.5), make_optimizer([second], "sgd", 0.25)]
    hold_rates(optimizers, choose("cpu"))
    held = optimizers[0].param_groups[0]["lr"] = torch.tensor(0.5)
    rates = Rates(optimizers)
    rates.follow(0.5)
    assert optimizers[0].param_groups[0]["lr"] is held
    assert held == 0.25
    assert optimizers[1].param_groups[0]["lr"] == 0.125
    rates.follow(0.1)
    assert held == pytest.approx(0.05)


@pytest.mark.parametrize(("recipe", "reads"), [(Coming(steps=7), True), (Small(steps=7), False)])
def test_that_an_update_reads_the_step_is_noticed(recipe, reads):
    data = recipe.dataset()
    state = begin(recipe, data)
    batch = data.train(0)
    with watching_step(state) as seen:
        recipe.step(state, batch)
        assert state.clock == 0  # which may be read
    assert bool(seen) == reads
    assert type(state) is State
    assert state.step == 0


def test_a_state_has_a_clock():
    recipe = Coming(steps=7)
    data = recipe.dataset()
    state = begin(recipe, data)
    records = train(recipe, state, data)
    next(records)
    assert state.clock == 1
    clock = state.clock
    for record in records:
        assert clock == record.step - 1  # as it was in that update
    assert state.clock is clock


def test_on_the_cpu_nothing_is_captured():
    recipe = Small(steps=1)
    data = recipe.dataset()
    state = begin(recipe, data)
    assert Update(recipe, state, data, choose("cpu")).eager == "only cuda captures"


def test_augmentation_is_that_of_the_step():
    """The batch of `train` is the one that anyone may ask of the data for that step."""
    recipe, seen = Augmented(steps=3), []
    data = recipe.dataset()
    state = begin(recipe, data)
    state.model.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0].clone()))
    for _ in train(recipe, state, data):
        pass
    assert all(torch.equal(x, data.train(step)[0]) for step, x in enumerate(seen))
    assert not torch.equal(seen[0], seen[1])


def test_autocast_is_for_the_forward_pass_and_forgets_weights_that_changed():
    net = nn.Linear(3, 1, bias=False)
    nn.init.ones_(net.weight)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    state, during = State(net, nn.Module(), {"main": optimizer}), []
    optimizer.register_step_pre_hook(lambda *_: during.append(torch.is_autocast_enabled("cpu")))
    net.weight.register_hook(lambda _g: during.append(torch.is_autocast_enabled("cpu")))
    x = torch.ones(1, 3)
    with torch.autocast("cpu", torch.bfloat16):
        before = net(x)
        state.descend(before.sum())
        after = net(x)  # as the second player of a GAN does
    assert (before.item(), after.item()) == (3.0, 0.0)
    assert during == [False, False]
    assert before.dtype == torch.bfloat16


def test_a_loss_that_is_a_function_is_computed_under_autocast():
    net = nn.Linear(3, 1)
    state = State(net, nn.Module(), {"main": torch.optim.LBFGS(net.parameters(), max_iter=2)})
    kinds = []

    def loss() -> torch.Tensor:
        y = net(torch.ones(1, 3))
        kinds.append(y.dtype)
        return y.float().square().sum()

    with torch.autocast("cpu", torch.bfloat16):
        state.descend(loss)
    assert {*kinds} == {torch.bfloat16}


def test_constants_are_made_once():
    asked = (((1.0, 2.0), (3.0, 4.0)), torch.float32, torch.device("cpu"))
    assert constant(*asked) is constant(*asked)
    assert constant(*asked).tolist() == [[1.0, 2.0], [3.0, 4.0]]
