"""Gradients of several batches make one update: that of one batch as large as all of them."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from everynet import runs
from everynet.recipes.state import State
from everynet.runs.log import Log
from everynet.system.errors import UserError
from everynet.training.device import choose
from everynet.training.loop import begin, train
from tests.runs.recipes import RECIPES, Small


def weights_after(recipe, precision="fp64"):
    setup, data = choose("cpu", precision), recipe.dataset()
    data = data.to(setup.device, setup.dtype)
    state = begin(recipe, data, setup)
    records = list(train(recipe, state, data, setup=setup))
    return [p.detach().clone() for p in state.model.parameters()], records


def close(left, right):
    for one, other in zip(left, right, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "settings", [{}, {"clip": 0.05}, {"clip_value": 0.01}, {"optimizer": "sgd"}]
)
def test_four_batches_of_eight_are_one_of_thirty_two(settings):
    whole, records = weights_after(Small(batch_size=32, steps=6, **settings))
    parts, others = weights_after(Small(batch_size=8, accumulate=4, steps=6, **settings))
    close(whole, parts)
    for one, other in zip(records, others, strict=True):
        assert one.step == other.step
        torch.testing.assert_close(one.terms["cross_entropy"], other.terms["cross_entropy"])


@dataclass(frozen=True, kw_only=True)
class Weighed(Small):
    """A mean over the samples of class 1 alone, of which batches hold unequal numbers."""

    def step(self, state, batch):
        x, y = batch
        loss = (cross_entropy(state.model(x), y, reduction="none") * y).sum() / y.sum().clamp(min=1)
        state.descend(loss, weight=y.sum().double())
        return {"cross_entropy": loss}


def test_batches_count_by_their_weights():
    whole, _ = weights_after(Weighed(batch_size=32, steps=6))
    parts, _ = weights_after(Weighed(batch_size=4, accumulate=8, steps=6))
    close(whole, parts)


def test_each_player_of_a_gan_takes_its_step_after_the_last_batch():
    steps = []

    class Counting(torch.optim.SGD):
        def step(self, closure=None):
            steps.append(self)
            return super().step(closure)

    model = nn.ModuleDict({"a": nn.Linear(2, 1), "b": nn.Linear(2, 1)})
    players = {name: Counting(part.parameters(), lr=0.1) for name, part in model.items()}
    state, x = State(model, nn.Module(), players, parts=2), torch.randn(6, 2)
    before = {name: part.weight.detach().clone() for name, part in model.items()}
    for state.part in (0, 1):
        for name, part in model.items():
            state.descend(part(x[3 * state.part :][:3]).mean(), name)
    assert steps == [players["a"], players["b"]]
    for name, part in model.items():  # the gradient of a mean is the mean of the inputs
        torch.testing.assert_close(part.weight, before[name] - 0.1 * x.mean(0, keepdim=True))


@pytest.mark.parametrize("name", ["small", "dropout"])
def test_a_run_that_was_stopped_ends_with_the_same_bits(tmp_path, name):
    recipe = replace(RECIPES[name], accumulate=3)
    whole = runs.run(recipe, tmp_path / "whole")
    half = runs.run(replace(recipe, steps=8), tmp_path / "half")
    runs.resume(recipe, half.folder)
    rows = [[row for row in Log.of(one.folder).rows if "test" not in row] for one in (whole, half)]
    assert rows[0] == rows[1]
    for one, other in zip(
        runs.load(recipe, whole.folder).parameters(),
        runs.load(recipe, half.folder).parameters(),
        strict=True,
    ):
        assert torch.equal(one, other)


def test_an_epoch_has_fewer_updates():
    recipe, data = Small(accumulate=3), Small().dataset()
    assert (data.steps_per_epoch, recipe.updates_per_epoch(data)) == (8, 3)
    assert Small().updates_per_epoch(data) == 8


def test_what_cannot_be():
    with pytest.raises(UserError, match=r"accumulate \(0\) must be at least 1"):
        Small(accumulate=0)
    model = nn.Linear(1, 1)
    state = State(model, nn.Module(), {"main": torch.optim.LBFGS(model.parameters())}, parts=2)
    with pytest.raises(UserError, match=r"accumulate \(2\) must be 1, because optimizer 'main'"):
        state.descend(lambda: model(torch.ones(1, 1)).sum())
