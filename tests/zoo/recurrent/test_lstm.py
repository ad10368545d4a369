"""The LSTM against torch, its memory against closed forms, its text, and what is drawn of both."""

import json
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from everynet import runs
from everynet.recipes.catalog import find
from everynet.runs.card import sampled_texts
from everynet.runs.job import Job
from everynet.training.loop import begin, evaluate
from everynet.zoo.recurrent.lstm import LSTM, ResidualReader, share_left
from everynet.zoo.recurrent.lstm_variants import (
    BareLSTM,
    CoupledLSTM,
    HandLSTM,
    MemoryGateLSTM,
    NoForgetLSTM,
    SigmoidLSTM,
)
from everynet.zoo.recurrent.next_token import SAMPLED


def drawn(batch=3, time=9, input_size=4, hidden_size=5):
    torch.manual_seed(1)
    x = torch.randn(batch, time, input_size, dtype=torch.float64, requires_grad=True)
    state = torch.randn(1, batch, 2 * hidden_size, dtype=torch.float64, requires_grad=True)
    return x, state


def as_torch(cell):
    """Torch's cell with the weights of ours, whose gates stand as o, i, f, g."""
    theirs = nn.LSTM(cell.input.in_features, cell.state.in_features, batch_first=True).double()

    def turned(blocks):
        o, i, f, g = blocks.chunk(4)
        return torch.cat([i, f, g, o])

    with torch.no_grad():
        theirs.weight_ih_l0.copy_(turned(cell.input.weight))
        theirs.weight_hh_l0.copy_(turned(cell.state.weight))
        theirs.bias_ih_l0.copy_(turned(cell.input.bias))
        theirs.bias_hh_l0.zero_()
    return theirs, turned


@pytest.mark.covers("R10")
def test_the_loop_of_our_own_is_torchs_in_value_and_gradient():
    torch.manual_seed(0)
    ours, (x, state) = HandLSTM(4, 5).double(), drawn()
    theirs, turned = as_torch(ours)
    y, last = ours(x, state)
    expected, (h, c) = theirs(x, tuple(part.contiguous() for part in state.chunk(2, 2)))
    torch.testing.assert_close(y, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(last, torch.cat([h, c], 2), rtol=1e-10, atol=1e-10)
    mine = torch.autograd.grad(y.square().sum() + last.sum(), (x, state, *ours.parameters()))
    other = torch.autograd.grad(
        expected.square().sum() + h.sum() + c.sum(),
        (x, state, theirs.weight_ih_l0, theirs.bias_ih_l0, theirs.weight_hh_l0),
    )
    for number, (left, right) in enumerate(zip(mine, other, strict=True)):
        same = left if number < 2 else turned(left)
        torch.testing.assert_close(same, right, rtol=1e-10, atol=1e-10)


@pytest.mark.covers("R10")
def test_the_cell_that_trains_is_torchs_with_its_state_beside_each_other():
    torch.manual_seed(0)
    ours, (x, state) = LSTM(4, 5).double(), drawn()
    y, last = ours(x, state)
    expected, (h, c) = ours.cell(x, tuple(part.contiguous() for part in state.chunk(2, 2)))
    assert torch.equal(y, expected)
    assert torch.equal(last, torch.cat([h, c], 2))


@pytest.mark.covers("R10")
@pytest.mark.parametrize("begins", [True, False])
def test_the_loop_of_the_equations_is_the_fused_kernel(begins):
    torch.manual_seed(0)
    cell, (x, state) = LSTM(4, 5).double(), drawn()
    state = state if begins else None
    seen = cell.by_loop(x, state)
    y, last = cell(x, state)
    torch.testing.assert_close(seen["hidden state"], y, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(seen["memory"][:, -1], last[0, :, 5:], rtol=1e-12, atol=1e-12)


@pytest.mark.covers("R10")
def test_the_gates_that_are_drawn_are_torchs_blocks_by_name():
    torch.manual_seed(0)
    cell, (x, _) = LSTM(4, 5).double(), drawn()
    seen = cell.by_loop(x)
    first = x[:, 0] @ cell.cell.weight_ih_l0.T + cell.cell.bias_ih_l0 + cell.cell.bias_hh_l0
    i, f, _, o = first.chunk(4, 1)
    for name, gate in (("input gate", i), ("forget gate", f), ("output gate", o)):
        torch.testing.assert_close(seen[name][:, 0], gate.sigmoid())


@pytest.mark.covers("R11")
@pytest.mark.parametrize(
    "kind", [HandLSTM, BareLSTM, MemoryGateLSTM, NoForgetLSTM, CoupledLSTM, SigmoidLSTM]
)
def test_the_loop_of_each_variant_is_its_fused_step(kind):
    torch.manual_seed(0)
    cell, (x, state) = kind(4, 5).double(), drawn()
    for looped, fused in zip(cell.by_loop(x, state), cell(x, state), strict=True):
        torch.testing.assert_close(looped, fused, rtol=1e-12, atol=1e-12)


@pytest.mark.covers("R11")
def test_the_cell_of_1997_forgets_nothing_and_the_coupled_one_averages():
    """A constant is written at every time: a sum in one, a mean in the other."""
    adds, mixes = NoForgetLSTM(1, 1).double(), CoupledLSTM(1, 1).double()
    for cell in (adds, mixes):
        for parameter in cell.parameters():
            nn.init.zeros_(parameter)
        cell.input.bias.data[-1] = 0.5  # of what is written
    x = torch.zeros(1, 6, 1).double()
    g = math.tanh(0.5)
    for t in range(1, 7):
        assert adds(x[:, :t])[1][0, 0, 1].item() == pytest.approx(t * 0.5 * g)
        assert mixes(x[:, :t])[1][0, 0, 1].item() == pytest.approx((1 - 0.5**t) * g)


@pytest.mark.covers("R11")
def test_without_its_tanh_what_is_given_has_no_bound():
    bounded, bare = HandLSTM(1, 1).double(), BareLSTM(1, 1).double()
    state = torch.tensor([[[0.0, 1e6]]]).double()
    x = torch.zeros(1, 1, 1).double()
    assert bounded(x, state)[0].abs().item() <= 1
    assert bare(x, state)[0].abs().item() > 1e5


# ---------------------------------------------------------------------------------------- recipes


@pytest.mark.covers("R11")
@pytest.mark.parametrize("bias", [-1.0, 0.0, 1.0, 4.0])
def test_at_first_a_memory_fades_as_the_bias_of_the_forget_gate_says(bias):
    """With small weights: what is left after k times is sigmoid(bias)^k, and so is the gradient."""
    torch.manual_seed(0)
    cell = LSTM(2, 50, bias).double()
    for weight in cell.cell.all_weights[0][:2]:
        weight.data.mul_(0.01)
    x = torch.rand(4, 20, 2).double()
    k = torch.arange(1, 21)
    torch.testing.assert_close(
        share_left(cell.by_loop(x)["forget gate"]), torch.tensor(bias).double().sigmoid() ** k,
        rtol=0.05, atol=0,
    )  # fmt: skip
    state = torch.zeros(1, 4, 100).double().requires_grad_()
    memory = cell(x, state)[1][..., 50:].sum()
    (gradient,) = torch.autograd.grad(memory, state)
    share = 1 / (1 + math.exp(-bias))
    assert gradient[..., 50:].mean().item() == pytest.approx(share**20, rel=0.05)


def test_the_bias_of_the_forget_gates_is_a_setting():
    for name in ("lstm", "char-lstm"):
        recipe = replace(find(name).tiny(), forget_bias=3.0)
        model = recipe.model(recipe.dataset())
        cells = [module for module in model.modules() if isinstance(module, nn.LSTM)]
        size = recipe.hidden_size
        for cell in cells:
            total = cell.bias_ih_l0 + cell.bias_hh_l0
            assert (total[size : 2 * size] == 3.0).all()


@pytest.fixture(scope="module")
def reader():
    recipe = replace(find("lstm-shakespeare").tiny(), layers=2)
    data = recipe.dataset()
    state = begin(recipe, data)
    return recipe, state, data


def test_the_state_that_is_carried_holds_h_and_c_of_every_layer(reader):
    recipe, state, data = reader
    assert state.extra.h.shape == (2, 8, 2 * recipe.hidden_size)
    model = state.model.eval()
    s, _, _ = data.train(0)
    with torch.no_grad():
        whole, last = model(s)
        first, h = model(s[:, :5])
        second, h = model(s[:, 5:], h)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    torch.testing.assert_close(h, last)
    recipe.step(state, data.train(0))
    assert (state.extra.h != 0).all()


def test_dropout_is_our_own_and_between_layers(reader):
    model = reader[1].model
    assert not any(m.dropout for m in model.modules() if isinstance(m, nn.LSTM))
    assert model.dropout.p == 0.5


def test_its_figure_is_of_every_token(reader):
    recipe, state, data = reader
    found = evaluate(recipe, state.model, data.valid)
    assert found["perplexity"] == pytest.approx(math.exp(found["cross_entropy"]))


@pytest.mark.covers("R15")
def test_the_card_holds_what_it_said_at_each_evaluation(tmp_path, monkeypatch):
    monkeypatch.setattr(Job, "draw", lambda self, model: ())
    result = runs.run(replace(find("lstm-shakespeare").tiny(), eval_every=2), tmp_path)
    rows = [json.loads(row) for row in (result.folder / "metrics.jsonl").read_text().splitlines()]
    said = {row["step"]: row["said"] for row in rows if "said" in row}
    assert said.keys() == {2, 4}
    assert all(len(text) in (SAMPLED, SAMPLED + 1) for text in said.values())
    page = (result.folder / "card.md").read_text()
    table = page.partition("## Text that it made, by step")[2].partition("##")[0]
    assert [line.split(" | ")[0] for line in table.splitlines() if line[2:3].isdigit()] == [
        "| 2", "| 4"]  # fmt: skip
    assert not sampled_texts([row for row in rows if "said" not in row])


def test_what_it_says_begins_with_any_token_where_there_is_no_line(reader):
    recipe, state, data = reader
    kept = [t for t in data.spec["tokens"]["vocabulary"] if t != "\n"]
    spec = {**data.spec, "tokens": {"kind": "characters", "vocabulary": [*kept, "\u4e2d"]}}
    with torch.no_grad():
        text = recipe.says(state.model.eval(), spec, torch.Generator())
    assert text[0] == kept[1]
    assert len(text) == SAMPLED + 1


@pytest.mark.slow
@pytest.mark.covers("R10", "R11")
def test_learns_to_add_over_a_hundred_times_and_not_without_its_forget_bias(tmp_path):
    result = runs.run(find("lstm"), tmp_path)
    assert result.reached, result.metrics
    other = runs.run(replace(find("lstm"), forget_bias=-1.0, steps=600), tmp_path / "other")
    assert other.metrics["mse"] > 0.1


@pytest.mark.slow
@pytest.mark.covers("R10")
def test_learns_topics(tmp_path):
    result = runs.run(find("char-lstm"), tmp_path)
    assert result.reached, result.metrics


@pytest.mark.covers("R10")
def test_layers_above_the_first_add_to_what_they_read():
    torch.manual_seed(0)
    net = ResidualReader(7, 5, [LSTM(5, 5) for _ in range(3)]).double()
    s, h = torch.randint(7, (2, 6)), torch.randn(3, 2, 10, dtype=torch.float64)
    x = net.embedding(s)
    first, _ = net.layers[0](x, h[:1])
    second, _ = net.layers[1](first, h[1:2])
    third, last = net.layers[2](first + second, h[2:])
    logits, after = net(s, h)
    torch.testing.assert_close(logits, net.output(first + second + third))
    torch.testing.assert_close(after[2:], last)


def test_dropout_is_on_vectors_and_on_what_is_added_never_on_what_is_kept():
    torch.manual_seed(0)
    net = ResidualReader(7, 40, [LSTM(40, 40), LSTM(40, 40)], dropout=0.5)
    with torch.no_grad():
        for bias in (net.layers[1].cell.bias_ih_l0, net.layers[1].cell.bias_hh_l0):
            bias.zero_()
        net.layers[1].cell.weight_ih_l0.zero_()
        net.layers[1].cell.weight_hh_l0.zero_()  # the second layer adds nothing
    states, _ = net.train().states(torch.randint(7, (4, 50)))
    assert (states == 0).float().mean().item() == pytest.approx(0.5, abs=0.03)  # not 0.75
