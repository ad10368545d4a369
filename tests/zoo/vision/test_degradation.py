"""Degradation: errors and gaps by hand, gradients of very deep nets, and what it refuses."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from everynet.recipes.catalog import find
from everynet.recipes.experiment import Cell, Table
from everynet.recipes.settings import settings
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.training.loop import begin
from everynet.zoo.vision.degradation import gradient_norms, without_norms
from everynet.zoo.vision.resnet import CifarResNet, PlainNet

X = torch.randn(8, 3, 12, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
Y = torch.arange(8) % 3


def made(kind, depth, seed=0):
    torch.manual_seed(seed)
    return kind(3, 3, depth=depth, width=4).double()


@pytest.mark.covers("C20")
def test_gradients_by_layer_are_those_of_a_difference():
    """Along its own direction a gradient is how fast the loss changes."""
    net = made(CifarResNet, 8).eval()
    sizes = gradient_norms(net, X, Y)
    convolutions = [part for part in net.modules() if isinstance(part, nn.Conv2d)]
    assert len(sizes) == len(convolutions) == 7
    weight = convolutions[2].weight
    direction = torch.autograd.grad(cross_entropy(net(X), Y), weight)[0]
    direction = direction / direction.norm()
    with torch.no_grad():
        loss = []
        for step in (1e-5, -2e-5):
            weight += step * direction
            loss.append(cross_entropy(net(X), Y))
    assert sizes[2] == pytest.approx((loss[0] - loss[1]).item() / 2e-5, rel=1e-4)


@pytest.mark.covers("C20")
def test_a_hundred_layers_without_norms_lose_the_gradient_unless_there_are_shortcuts():
    """Each layer halves the mean square, in both directions: 2^(-97 / 2) is 3e-15."""
    plain, residual = (
        gradient_norms(without_norms(made(k, 98)), X, Y) for k in (PlainNet, CifarResNet)
    )
    assert plain.max() < 3e-14
    assert residual.min() > 1e-3
    assert residual[0] / plain[0] > 1e9


def test_with_norms_the_gradient_of_a_plain_net_grows_downwards_and_the_other_stays_even():
    plain, residual = (gradient_norms(made(kind, 98), X, Y) for kind in (PlainNet, CifarResNet))
    assert plain[0] / plain[-1] > 1e3
    assert residual[0] / residual[-1] < 100


def test_without_norms_the_weights_are_glorots():
    """Their variance is 2 / ((inputs + outputs) k^2); of n numbers it is known to sqrt(2 / n)."""
    torch.manual_seed(0)
    net = without_norms(CifarResNet(3, 3, depth=8, width=16))
    assert not [part for part in net.modules() if isinstance(part, nn.BatchNorm2d)]
    for part in (net.conv1, net.layer2[0].conv1, net.layer3[0].conv2):
        outputs, inputs, height, width = part.weight.shape
        ratio = part.weight.var().item() * (inputs + outputs) * height * width / 2
        assert ratio == pytest.approx(1, abs=4 * (2 / part.weight.numel()) ** 0.5)


# ------------------------------------------------------------------------------------ the recipe


def test_the_cells_differ_in_depth_and_shortcuts_alone():
    cells = find("degradation-cifar").cells()
    assert [*cells] == ["plain-20", "plain-56", "residual-20", "residual-56"]
    plain, residual = cells["plain-20"], cells["residual-20"]
    assert replace(cells["plain-56"], depth=20) == plain
    assert replace(cells["residual-56"], depth=20) == residual
    assert settings(plain) == settings(residual)
    assert (plain.data, plain.batch_size, plain.width, plain.holdout) == ("cifar10", 128, 16, True)
    assert (plain.optimizer, plain.schedule, plain.mirror) == ("nesterov", "cosine", True)


def test_the_error_is_the_share_of_training_images_that_are_missed():
    recipe = find("degradation").tiny()
    cell = recipe.cells()["residual-8"]
    data = cell.dataset()
    state = begin(cell, data)
    state.model.eval()
    x, y = data.splits["train"]
    with torch.no_grad():
        wrong = (state.model(x).argmax(1) != y).double().mean().item()
    state.model.train()
    state.step = 2 * data.steps_per_epoch
    found = recipe.measure("residual-8", cell, state, data)
    assert found["error"] == pytest.approx(wrong)
    assert found["epoch"] == 2
    assert state.model.training


def cell(*errors):
    looks = torch.tensor(errors, dtype=torch.float64)
    steps = torch.arange(len(looks))
    measured = {"error": looks, "epoch": steps.double(), "loss": looks}
    valid = {"accuracy": 1 - looks}
    return Cell(find("resnet-cifar"), 9, steps, measured, valid, {}, None, {}, nn.Module)


def test_gaps_and_ratios_by_hand():
    recipe = find("degradation")
    cells = {
        **{"plain-20": cell(0.9, 0.5, 0.1), "plain-56": cell(0.9, 0.8, 0.35)},
        **{"residual-20": cell(0.9, 0.3, 0.05), "residual-56": cell(0.9, 0.2, 0.02)},
    }
    sizes = {"plain_bare": 1e-9, "residual_bare": 2.0, "plain_norms": 50.0, "residual_norms": 5.0}
    result = {name: torch.full((97,), size).double() for name, size in sizes.items()}
    found = recipe.metrics(Table(cells, result))
    assert found["plain_gap"] == pytest.approx(0.25)
    assert found["residual_gap"] == pytest.approx(-0.03)
    assert found["gradient_ratio"] == pytest.approx(2e9)
    assert found["gradient_ratio_norms"] == pytest.approx(0.1)
    assert found["error_plain_56"] == pytest.approx(0.35)
    assert all(goal.reached(found) for goal in recipe.goals())
    drawn, gaps = recipe.picture_degradation(Table(cells, result))
    assert gaps == pytest.approx({"plain": 25.0, "residual": -3.0})
    left, right = drawn.axes
    lines = {line.get_label(): line for line in left.lines}
    assert lines["56 layers"].get_ydata().tolist() == pytest.approx([80, 35])
    assert left.get_ylim() == right.get_ylim()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"deep": 52}, r"deep \(52\) must be 6 n \+ 2, such as 8, 20 or 56"),
        ({"shallow": 2}, r"shallow \(2\) must be 6 n \+ 2"),
        ({"deepest": 100}, r"deepest \(100\) must be 6 n \+ 2"),
        ({"deep": 14}, r"deep \(14\) must be more than shallow \(20\)"),
        ({"every": 0}, r"every \(0\) must be from 1 to steps \(400\)"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("degradation"), **fields)


# -------------------------------------------------------------------------------------- learning


@pytest.mark.slow
@pytest.mark.covers("C20")
def test_plain_nets_degrade_and_residual_ones_do_not(tmp_path):
    assert run(find("degradation"), tmp_path).reached
