"""Layers learned one after the other: which gradients flow, and how deep it goes."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy

from everynet import runs
from everynet.recipes.catalog import find
from everynet.system.errors import UserError
from everynet.training.loop import begin, train
from everynet.zoo.vision.layerwise import AtOnce, Greedy, LayerwiseNet, greedy_loss


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_stack_is_its_equations():
    net, x = LayerwiseNet(6, 3, hidden_size=4, depth=3).double(), randn(2, 1, 2, 3)
    h = x.reshape(2, 6)
    for depth, (layer, head) in enumerate(zip(net.layers, net.heads, strict=True), 1):
        h = 1 / (1 + (-(h @ layer.weight.T + layer.bias)).exp())
        torch.testing.assert_close(net.hidden(x, depth), h)
        torch.testing.assert_close(net.logits(x, depth), h @ head.weight.T + head.bias)
    torch.testing.assert_close(net(x), net.logits(x, 3))


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_stage_is_the_loss_of_its_logits_and_reaches_its_own_layer_only(stage):
    net, x, y = (
        LayerwiseNet(6, 3, hidden_size=4, depth=3).double(),
        randn(5, 6),
        torch.tensor([0, 1, 2, 0, 1]),
    )
    loss = greedy_loss(net, x, y, stage)
    torch.testing.assert_close(loss, cross_entropy(net.logits(x, stage), y))
    loss.backward()
    reached = {name for name, p in net.named_parameters() if p.grad is not None}
    own = {f"{part}.{stage - 1}.{kind}" for part in ("layers", "heads") for kind in
           ("weight", "bias")}  # fmt: skip
    assert reached == own


def test_stages_follow_each_other_evenly_and_freeze_what_is_below():
    recipe = Greedy(depth=3, steps=9, hidden_size=4, batch_size=8, lr=0.1)
    assert [recipe.stage(step) for step in range(10)] == [1, 1, 1, 2, 2, 2, 3, 3, 3, 3]
    data = recipe.dataset()
    state = begin(recipe, data)
    weights = [[layer.weight.detach().clone() for layer in state.model.layers]]
    for record in train(recipe, state, data):
        assert record.terms["cross_entropy"].isfinite()
        weights.append([layer.weight.detach().clone() for layer in state.model.layers])
    for step in range(9):
        moved = [not torch.equal(a, b) for a, b in zip(*weights[step : step + 2], strict=True)]
        assert moved == [layer == step // 3 for layer in range(3)]


def test_all_at_once_moves_every_layer_and_the_last_logits():
    recipe = AtOnce(depth=3, steps=1, hidden_size=4, batch_size=8)
    data = recipe.dataset()
    state = begin(recipe, data)
    before = {n: p.detach().clone() for n, p in state.model.named_parameters()}
    assert len([*train(recipe, state, data)]) == 1
    moved = {n for n, p in state.model.named_parameters() if not torch.equal(p, before[n])}
    assert moved == {n for n in before if n.startswith(("layers", "heads.2"))}


def test_a_gradient_shrinks_by_at_least_four_times_the_weights_a_layer():
    """What the docstring says of slopes: |dJ/dh_{l-1}| <= |W_l| |dJ/dh_l| / 4."""
    net, x = LayerwiseNet(6, 3, hidden_size=6, depth=4).double(), randn(3, 6)
    h = [net.hidden(x, 0).requires_grad_()]
    for layer in net.layers:
        h.append(layer(h[-1]).sigmoid())
    grads = torch.autograd.grad(net.heads[-1](h[-1]).logsumexp(1).sum(), h)
    for layer, below, above in zip(net.layers, grads[:-1], grads[1:], strict=True):
        norm = torch.linalg.matrix_norm(layer.weight.detach(), 2)
        assert bool((below.norm(dim=1) <= norm * above.norm(dim=1) / 4 + 1e-12).all())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"depths": (2, 1)}, r"depths \(\(2, 1\)\) must be one or more numbers that rise"),
        ({"depths": ()}, r"depths \(\(\)\) must be one or more numbers that rise"),
        ({"steps": 0}, r"steps \(0\) must be at least 1"),
        ({"hidden_size": 0}, r"hidden_size \(0\) must be at least 1"),
        ({"repeats": 0}, r"repeats \(0\) must be at least 1"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("layerwise"), **fields)


@pytest.mark.slow
@pytest.mark.covers("C28")
def test_the_goal_is_reached(tmp_path):
    assert runs.run(find("layerwise"), tmp_path).reached
