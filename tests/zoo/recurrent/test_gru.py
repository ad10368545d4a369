"""The gated units against torch and closed forms, and what the recipe shows."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from everynet import runs
from everynet.recipes.catalog import find
from everynet.system.errors import UserError
from everynet.training.loop import evaluate
from everynet.zoo.recurrent.adding import Adder, each_by_its_size, longest
from everynet.zoo.recurrent.gru import GRU, ResetAfterGRU, SimplifiedGRU


def drawn(batch=3, time=9, input_size=4, hidden_size=5):
    torch.manual_seed(1)
    x = torch.randn(batch, time, input_size, dtype=torch.float64, requires_grad=True)
    h = torch.randn(1, batch, hidden_size, dtype=torch.float64, requires_grad=True)
    return x, h


def as_torch(cell):
    """Torch's cell with the weights of ours: z = 1 - u has those of u times -1."""
    theirs = nn.GRU(cell.input.in_features, cell.reset.in_features, batch_first=True).double()
    r, u, n = cell.input.weight.chunk(3)
    b_r, b_u, b_n = cell.input.bias.chunk(3)
    h_r, h_u = cell.state.weight.chunk(2)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(torch.cat([r, -u, n]))
        theirs.weight_hh_l0.copy_(torch.cat([h_r, -h_u, cell.reset.weight]))
        theirs.bias_ih_l0.copy_(torch.cat([b_r, -b_u, b_n]))
        theirs.bias_hh_l0.zero_()
    return theirs


@pytest.mark.covers("R8")
def test_where_the_candidates_matrix_is_diagonal_both_conventions_are_torchs():
    """r * (U h) = U (r * h) there: values and gradients, under the mapping of the docstring."""
    torch.manual_seed(0)
    ours, (x, h) = GRU(4, 5).double(), drawn()
    with torch.no_grad():
        ours.reset.weight.copy_(torch.diag(torch.randn(5)))
    theirs = as_torch(ours)
    found, expected = ours(x, h), theirs(x, h)
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-10)
    gradients = [
        torch.autograd.grad(y.square().sum() + last.sum(), (x, h)) for y, last in (found, expected)
    ]
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-10)


@pytest.mark.covers("R8")
def test_elsewhere_it_matters_whether_the_reset_comes_before_or_after():
    torch.manual_seed(0)
    ours, (x, h) = GRU(4, 5).double(), drawn()
    assert (ours(x, h)[0] - as_torch(ours)(x, h)[0]).abs().max() > 1e-3


@pytest.mark.covers("R8")
def test_reset_after_is_torchs_cell():
    torch.manual_seed(0)
    ours, (x, h) = ResetAfterGRU(4, 5).double(), drawn()
    theirs = nn.GRU(4, 5, batch_first=True).double()
    theirs.load_state_dict(ours.state_dict())
    for mine, other in zip(ours(x, h), theirs(x, h), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.covers("R7")
@pytest.mark.parametrize("kind", [SimplifiedGRU, GRU])
def test_a_shut_gate_copies_exactly_and_an_open_one_forgets_at_once(kind):
    torch.manual_seed(0)
    cell, (x, h) = kind(4, 5).double(), drawn()
    gate = slice(0, 5) if kind is SimplifiedGRU else slice(5, 10)
    with torch.no_grad():
        cell.input.bias[gate] = -1000.0
    y, last = cell(x, h)
    assert torch.equal(y, h[0][:, None].expand_as(y))
    assert torch.equal(last, h)
    with torch.no_grad():
        cell.input.bias[gate] = 1000.0
        for linear in (cell.state, getattr(cell, "reset", cell.state)):
            linear.weight.zero_()  # nothing is left of the state but through the gate
    assert torch.equal(cell(x, h)[0], cell(x, -h)[0])


@pytest.mark.covers("R7", "R8")
@pytest.mark.parametrize("kind", [SimplifiedGRU, GRU, ResetAfterGRU])
def test_the_loop_of_the_equations_is_the_fused_kernel(kind):
    torch.manual_seed(0)
    cell, (x, h) = kind(4, 5).double(), drawn()
    looped = cell.by_loop(x, h)
    states = looped["state"] if kind is GRU else looped
    torch.testing.assert_close(states, cell(x, h)[0], rtol=1e-12, atol=1e-12)


def test_the_gates_that_are_drawn_are_those_of_the_equations():
    torch.manual_seed(0)
    cell, (x, _) = GRU(4, 5).double(), drawn()
    seen = cell.by_loop(x)
    h, u, r = seen["state"], seen["update gate"], seen["reset gate"]
    before = torch.cat([torch.zeros_like(h[:, :1]), h[:, :-1]], 1)
    n = (cell.input(x)[..., 10:] + cell.reset(r * before)).tanh()
    torch.testing.assert_close(u * n + (1 - u) * before, h, rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------------------------------- recipe


def test_it_answers_after_the_last_pair():
    torch.manual_seed(0)
    net = Adder(GRU(2, 5), 5)
    x = torch.rand(3, 7, 2)
    torch.testing.assert_close(net(x), net.at_every_step(x)[:, -1])
    torch.testing.assert_close(net.at_every_step(x)[:, 3], net(x[:, :4]))


def test_whoever_always_says_one_is_off_by_a_sixth():
    recipe = find("gru")
    data = recipe.dataset()
    model = recipe.model(data)
    nn.init.zeros_(model.output.weight)
    nn.init.ones_(model.output.bias)
    mse = evaluate(recipe, model, data.valid)["mse"]
    assert abs(mse - 1 / 6) < 4 * (7 / 180 / 2000) ** 0.5  # the variance of (s - 1)^2 is 7/180


def test_units_that_keep_longest_come_first_and_rows_reach_one():
    kept = torch.rand(2, 3, 30)
    order = longest(kept)
    means = kept.mean((0, 1))[order]
    assert len(order) == 16
    assert (means.diff() <= 0).all()
    rows = each_by_its_size(torch.tensor([[0.5, -2.0], [0.0, 0.0]]))
    assert torch.equal(rows, torch.tensor([[0.25, -1.0], [0.0, 0.0]]))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"length": 1}, r"length \(1\) must be at least 2, because two numbers are marked"),
        ({"hidden_size": 0}, r"hidden_size \(0\) must be at least 1"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("gru"), **fields)


@pytest.mark.slow
@pytest.mark.covers("R7", "R8")
def test_learns_to_add_over_a_hundred_times(tmp_path):
    result = runs.run(find("gru"), tmp_path)
    assert result.reached, result.metrics
