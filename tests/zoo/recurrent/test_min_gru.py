"""minGRU: closed forms, scan and loop, blocks and their state, what selective copy teaches."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet import runs
from everynet.kernels.recurrence import by_doubling
from everynet.nn.losses import IGNORED
from everynet.recipes.catalog import find
from everynet.system.errors import UserError
from everynet.training.loop import begin
from everynet.zoo.recurrent.min_gru import (
    REACH,
    BlockReader,
    ConvolvedMinGRU,
    MinGRU,
    MinGRUBlock,
    by_loop,
    gates,
)
from everynet.zoo.recurrent.sequences import REMEMBERED, make_selective_copy

CELLS = {
    "minGRU": lambda: MinGRU(4, 4),
    "convolved": lambda: ConvolvedMinGRU(4),
    "block": lambda: MinGRUBlock(4, MinGRU(4, 4)),
    "convolved block": lambda: MinGRUBlock(4, ConvolvedMinGRU(4), 3),
}


def made(name, seed=0):
    torch.manual_seed(seed)
    return CELLS[name]().double()


def drawn(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def reader(layers=2, vocabulary=7, size=4, dropout=0.0):
    torch.manual_seed(0)
    blocks = [MinGRUBlock(size, ConvolvedMinGRU(size), 2, dropout) for _ in range(layers)]
    return BlockReader(vocabulary, size, blocks, dropout).double()


# ------------------------------------------------------------------------------------- equations


@pytest.mark.covers("R9")
def test_constant_input_relaxes_exponentially():
    """Closed form of (3) for a constant x: h_t = c + (1 - z)^t (h_0 - c), at every t."""
    torch.manual_seed(0)
    net, h0, x = MinGRU(3, 5).double(), drawn(1, 2, 5), drawn(2, 1, 3)
    z = 1 / (1 + (-(x @ net.gate.weight.T + net.gate.bias)).exp())
    c = x @ net.candidate.weight.T + net.candidate.bias
    t = torch.arange(1, 9)[:, None]
    states, last = net(x.expand(-1, 8, -1), h0)
    expected = c + (1 - z) ** t * (h0.transpose(0, 1) - c)
    torch.testing.assert_close(states, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(last[0], expected[:, -1], rtol=1e-12, atol=1e-12)


def test_without_a_state_it_begins_at_zero():
    net, x = made("minGRU"), drawn(2, 5, 4)
    torch.testing.assert_close(net(x), net(x, torch.zeros(1, 2, 4).double()))


def penalty_gradients(states):
    """Gradients of |dL/dx|^2, L the sum of all states, by the weights of a minGRU."""
    torch.manual_seed(0)
    net, x = MinGRU(3, 4).double(), drawn(2, 6, 3).requires_grad_()
    (slope,) = torch.autograd.grad(states(net, x).sum(), x, create_graph=True)
    return torch.autograd.grad(slope.square().sum(), list(net.parameters()))


def test_a_penalty_of_the_gradient_is_differentiated_as_the_loop_is():
    """Without the second derivative of the scan |dP/d b_z| was 11.93 and |dP/d b_c| 9.52."""

    def loop(net, x):
        c = net.candidate(x)
        return by_loop(net.gate(x).sigmoid(), c, torch.zeros_like(c[:, 0]))

    scan, plain = penalty_gradients(lambda net, x: net(x)[0]), penalty_gradients(loop)
    torch.testing.assert_close(scan, plain, rtol=1e-12, atol=1e-12)
    gate, candidate = scan[1].norm().item(), scan[3].norm().item()
    assert (gate, candidate) == pytest.approx((4.964, 4.866), abs=1e-3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_it_is_one_graph_and_equal(backend, unchecked):
    torch._dynamo.reset()
    net, x = made("minGRU"), drawn(2, 5, 4)

    def values_and_gradients(form):
        states, last = form(x)
        return states, last, *torch.autograd.grad(states.square().sum(), list(net.parameters()))

    compiled = torch.compile(net, fullgraph=True, backend=backend)
    torch.testing.assert_close(values_and_gradients(compiled), values_and_gradients(net))


def test_a_shut_gate_keeps_the_state_and_an_open_one_replaces_it():
    net, x, h = made("minGRU"), drawn(2, 6, 4), drawn(1, 2, 4)
    torch.nn.init.constant_(net.gate.bias, -1000.0)
    assert torch.equal(net(x, h)[0], h.transpose(0, 1).expand(-1, 6, -1))
    torch.nn.init.constant_(net.gate.bias, 1000.0)
    assert torch.equal(net(x, h)[0], net.candidate(x))


@pytest.mark.covers("R9")
def test_scan_is_the_loop_at_4096_in_twelve_steps():
    net, x, h = made("minGRU"), drawn(2, 4096, 4), drawn(1, 2, 4)
    with torch.no_grad():
        z, c = net.gate(x).sigmoid(), net.candidate(x)
        looped = by_loop(z, c, h[0])
        scanned, depth = by_doubling(1 - z, z * c, h[0])
        torch.testing.assert_close(net(x, h)[0], looped, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(scanned, looped, rtol=1e-10, atol=1e-10)
    assert depth == math.ceil(math.log2(4096)) == 12


def test_the_convolution_is_the_sum_of_its_equation():
    net, x = made("convolved"), drawn(2, 9, 4)
    u = x.clone()
    for t in range(9):
        for k in range(min(REACH, t + 1)):
            u[:, t] += net.weight[k] * x[:, t - k]
    torch.testing.assert_close(net(x)[0], net.recurrence(u)[0], rtol=1e-12, atol=1e-12)


def test_the_convolution_is_torchs():
    net, x = made("convolved"), drawn(2, 9, 4)
    kernel = net.weight.flip(0).T[:, None]  # torch's kernel runs the other way
    padded = torch.nn.functional.pad(x.transpose(1, 2), (REACH - 1, 0))
    u = x + torch.nn.functional.conv1d(padded, kernel, groups=4).transpose(1, 2)
    torch.testing.assert_close(net(x)[0], net.recurrence(u)[0], rtol=1e-12, atol=1e-12)


def test_a_block_adds_to_what_went_in():
    net, x = made("block"), drawn(2, 5, 4)
    normal = torch.nn.functional.layer_norm
    y = x + net.recurrence(normal(x, (4,)))[0]
    norm, wide, _, narrow = net.mlp
    inside = torch.nn.functional.gelu(normal(y, norm.normalized_shape) @ wide.weight.T + wide.bias)
    expected = y + inside @ narrow.weight.T + narrow.bias
    torch.testing.assert_close(net(x)[0], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CELLS)
def test_gradients(name):
    net, state = made(name), drawn(1, 2, 4 * (REACH if "convolved" in name else 1))
    x = drawn(2, 5, 4).requires_grad_()
    assert torch.autograd.gradcheck(net, (x, state.requires_grad_()))


# ------------------------------------------------------------------------------------ properties


@pytest.mark.parametrize("name", CELLS)
@settings(max_examples=12)
@given(cut=st.integers(1, 9))
def test_two_windows_are_one(name, cut):
    """Also where a window is shorter than the reach of the convolution."""
    net, x = made(name), drawn(2, 10, 4)
    whole, last = net(x)
    first, state = net(x[:, :cut])
    second, state = net(x[:, cut:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    torch.testing.assert_close(state, last)


@settings(max_examples=15)
@given(cuts=st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_a_reader_goes_on_in_pieces_of_any_length(cuts):
    net, s = reader(), torch.randint(7, (2, sum(cuts)))
    whole, last = net(s)
    parts, h = [], None
    for piece in s.split(cuts, 1):
        logits, h = net(piece, h)
        parts.append(logits)
    torch.testing.assert_close(torch.cat(parts, 1), whole)
    torch.testing.assert_close(h, last)


@settings(max_examples=10)
@given(place=st.integers(0, 8))
def test_no_logit_sees_the_future(place):
    net, s = reader(), torch.randint(7, (2, 9))
    other = s.clone()
    other[:, place] = (s[:, place] + 1) % 7
    before, after = net(s)[0], net(other)[0]
    assert torch.equal(before[:, :place], after[:, :place])
    assert not torch.equal(before[:, place], after[:, place])


def test_dropout_acts_in_training_alone():
    net, s = reader(dropout=0.5), torch.randint(7, (2, 9))
    assert not torch.equal(net(s)[0], net(s)[0])
    net.eval()
    assert torch.equal(net(s)[0], net(s)[0])
    assert torch.equal(net(s)[0], reader().eval()(s)[0])


def test_half_precision_keeps_the_recurrence_exact():
    """A gate of 1/1000 lets a state live 1000 steps: in eight bits, 1 - z would be 1."""
    net = MinGRU(1, 1)
    with torch.no_grad():
        net.gate.weight.zero_()
        net.gate.bias.fill_(math.log(1e-3 / (1 - 1e-3)))
        net.candidate.weight.zero_()
        net.candidate.bias.zero_()
        with torch.autocast("cpu", torch.bfloat16):
            states, last = net(torch.zeros(1, 1000, 1), torch.ones(1, 1, 1))
    assert states.dtype == last.dtype == torch.float32
    assert last.item() == pytest.approx(0.999**1000, rel=0.02)


def test_gates_are_those_of_each_block():
    net, s = reader(3), torch.randint(7, (2, 9))
    found = gates(net, s)
    assert [z.shape for z in found] == [(2, 9, 4)] * 3
    block = net.layers[0]
    x = block.before(net.embedding(s))
    seen = torch.nn.functional.pad(x, (0, 0, REACH - 1, 0))
    u = x + sum(w * seen[:, 3 - k : 12 - k] for k, w in enumerate(block.recurrence.weight))
    torch.testing.assert_close(found[0], block.recurrence.recurrence.gate(u).sigmoid())
    assert not any(layer._forward_hooks for layer in net.modules())


# --------------------------------------------------------------------------------- selective copy


def test_only_answers_are_judged():
    recipe = find("min-gru").tiny()
    data = recipe.dataset()
    net = recipe.model(data)
    torch.nn.init.zeros_(net.output.weight)
    torch.nn.init.zeros_(net.output.bias)
    net.output.bias.data[3] = 50.0  # it says 3, whatever is asked
    batch = data.splits["valid"]
    found = recipe.metrics(net, batch)
    share = (batch[1][batch[1] != IGNORED] == 3).float().mean().item()
    assert found["accuracy"].shape == (len(batch[0]) * REMEMBERED,)
    assert found["accuracy"].mean().item() == pytest.approx(share, rel=1e-5)
    assert found["cross_entropy"].mean().item() == pytest.approx(50 * (1 - share), rel=1e-4)
    assert recipe.objective(net, batch)["cross_entropy"].item() == pytest.approx(
        found["cross_entropy"].mean().item(), rel=1e-5
    )


class Copier(torch.nn.Module):
    """Answers rightly, by looking the symbols up."""

    def forward(self, s):
        shown = (s > 0) & (s < 9)
        said = s[shown].view(len(s), REMEMBERED)
        answers = torch.cat([torch.zeros_like(s[:, :-REMEMBERED]), said], 1)
        return torch.nn.functional.one_hot(answers, 10).double() * 100, None


def test_an_exchanged_symbol_costs_its_own_answer_alone():
    recipe = find("min-gru")
    s, targets = make_selective_copy(20, 4, 0, held_out=6).splits["valid"]
    lost = recipe.swap_symbols(Copier(), s, targets)
    torch.testing.assert_close(lost, torch.eye(REMEMBERED).double())


def test_the_carried_state_holds_the_vectors_of_the_convolution():
    recipe = find("min-gru-shakespeare").tiny()
    data = recipe.dataset()
    state = begin(recipe, data)
    assert state.extra.h.shape == (2, 8, REACH * 8)
    state.model.eval()
    s, targets, keep = data.train(0)
    recipe.step(state, (s, targets, keep))
    with torch.no_grad():
        state.model.load_state_dict(begin(recipe, data).model.state_dict())
        x = state.model.layers[0].before(state.model.embedding(s))
    torch.testing.assert_close(state.extra.h[0, :, 8:].view(8, 3, 8), x[:, -3:])


# ---------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("min-gru", {"length": 9}, r"length \(9\) must be at least 10"),
        ("min-gru", {"symbols": 0}, r"symbols \(0\) must be at least 1"),
        ("min-gru", {"hidden_size": 0}, r"hidden_size \(0\) must be at least 1"),
        ("min-gru", {"layers": 0}, r"layers \(0\) must be at least 1"),
        ("min-gru", {"widening": 0}, r"widening \(0\) must be at least 1"),
        ("min-gru-shakespeare", {"widening": 0}, r"widening \(0\) must be at least 1"),
    ],
)
def test_settings_it_refuses(name, fields, message):
    with pytest.raises(UserError, match=message):
        replace(find(name), **fields)


# -------------------------------------------------------------------------------------- learning


@pytest.mark.slow
@pytest.mark.covers("R9")
def test_learns_selective_copy(tmp_path):
    result = runs.run(find("min-gru"), tmp_path)
    assert result.reached, result.metrics
