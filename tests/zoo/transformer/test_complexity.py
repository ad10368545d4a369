"""Counts against the table by hand, and the graph against what real layers depend on."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from everynet.nn.attention import MultiHeadAttention, WindowedAttention
from everynet.recipes.recipe import Goal
from everynet.system.errors import UserError
from everynet.zoo.transformer.complexity import (
    LAYERS,
    RECIPES,
    connect,
    count_products,
    fit_exponents,
    make_layers,
    search_path,
)

RECIPE = RECIPES["attention-complexity"]


@pytest.mark.covers("T9", "T10")
def test_products_are_counted_as_by_hand():
    n, d, k, r = 8, 3, 2, 4
    counted = [count_products(layer) for layer in make_layers(n, d, k, r)]
    assert counted == [(n * n * d, 1), (n * d * d, n), (k * n * d * d, 1), (n * 3 * r * d, 1)]


@pytest.mark.covers("T9")
@pytest.mark.parametrize(
    ("n", "k", "r", "expected"),
    [
        (9, 3, 4, [1, 9, 2, 2]),
        (10, 3, 4, [1, 10, 3, 3]),
        (9, 2, 1, [1, 9, 4, 8]),
        (2, 2, 5, [1, 2, 1, 1]),
    ],
)
def test_paths_are_searched_as_by_hand(n, k, r, expected):
    assert [search_path(layer, n, k, r) for layer in LAYERS] == expected


def depends(layer, x):
    """Which inputs in time (columns) each output (rows) depends on."""
    jacobian = torch.autograd.functional.jacobian(layer, x)[0, :, :, 0]  # time hidden time hidden
    return jacobian.abs().sum((1, 3)) > 1e-9


@pytest.mark.parametrize("step", [0, 1])
def test_edges_are_what_real_layers_depend_on(step):
    torch.manual_seed(0)
    n, k, r, x = 10, 3, 2, torch.randn(1, 10, 4).double()
    conv = nn.Conv1d(4, 4, k, dilation=k**step).double()
    before = nn.ConstantPad1d(((k - 1) * k**step, 0), 0.0)
    layers = {
        "self-attention": MultiHeadAttention(4, 2).double(),
        "convolution": lambda x: conv(before(x.mT)).mT,
        "windowed attention": WindowedAttention(4, 2, r).double(),
    }
    for name, layer in layers.items():
        assert torch.equal(depends(layer, x), connect(name, n, k, r, step)), name


def test_steps_of_a_recurrence_together_reach_all_of_the_past():
    torch.manual_seed(0)
    rnn, x = nn.RNN(4, 4, batch_first=True).double(), torch.randn(1, 6, 4).double()
    reached = reach = torch.eye(6).bool()
    for step in range(1, 6):
        reach = (connect("recurrence", 6, 2, 1, step).double() @ reach.double()) > 0
        reached = reached | reach
    assert torch.equal(connect("recurrence", 6, 2, 1, 0), torch.eye(6).bool())
    assert torch.equal(depends(lambda x: rnn(x)[0], x), reached)


def test_exponents_are_slopes():
    factors = torch.tensor([1, 2, 4])
    counts = torch.stack([7 * factors**2, 5 * factors])[:, None]
    torch.testing.assert_close(
        fit_exponents(counts, factors), torch.tensor([[2.0], [1.0]]).double()
    )


@pytest.mark.covers("T6")
def test_the_goal_is_reached_and_only_positions_tell_the_order():
    recipe = RECIPE.tiny()
    found = recipe.metrics(recipe.simulate(torch.Generator().manual_seed(0)))
    assert all(goal.reached(found) for goal in Goal.parse(RECIPE.goal))
    assert found["rotation_error"] < 1e-12
    assert found["order_effect"] > 1e6 * found["equivariance_error"]


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (
            {"length": 80},
            r"length \(80\) must be at least 64 and a multiple of 32 \(rad.*, so that",
        ),
        ({"length": 32}, r"length \(32\) must be at least 64"),
        ({"kernel_size": 1}, "kernel_size"),
        ({"radius": 0}, "radius"),
        ({"doublings": 0}, "doublings"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(changes, match):
    with pytest.raises(UserError, match=match):
        replace(RECIPE, **changes)
