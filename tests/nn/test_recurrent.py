"""Every cell of our own against the plain loop of its formula, and padded sequences."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from everynet.nn.recurrent import last_states, reverse_sequences
from everynet.zoo.recurrent.gru import GRU, ResetAfterGRU, SimplifiedGRU
from everynet.zoo.recurrent.lstm import LSTM
from everynet.zoo.recurrent.lstm_variants import (
    BareLSTM,
    CoupledLSTM,
    HandLSTM,
    MemoryGateLSTM,
    NoForgetLSTM,
    PeepholeLSTM,
    SigmoidLSTM,
)

sigmoid, tanh = torch.sigmoid, torch.tanh


def parts(linear, count):
    """A product with each block of a linear map, one by one."""
    weights = linear.weight.chunk(count)
    biases = [0.0] * count if linear.bias is None else linear.bias.chunk(count)
    return [lambda v, w=w, b=b: v @ w.T + b for w, b in zip(weights, biases, strict=True)]


def simplified(cell, x, h):
    (xu, xn), (hu, hn) = parts(cell.input, 2), parts(cell.state, 2)
    u, n = sigmoid(xu(x) + hu(h)), tanh(xn(x) + hn(h))
    return (u * n + (1 - u) * h,)


def gru(cell, x, h):
    (xr, xu, xn), (hr, hu), (hn,) = parts(cell.input, 3), parts(cell.state, 2), parts(cell.reset, 1)
    r, u = sigmoid(xr(x) + hr(h)), sigmoid(xu(x) + hu(h))
    return (u * tanh(xn(x) + hn(r * h)) + (1 - u) * h,)


def four(cell, x, h, squash=tanh):
    (xo, xi, xf, xg), (ho, hi, hf, hg) = parts(cell.input, 4), parts(cell.state, 4)
    gates = [sigmoid(a(x) + b(h)) for a, b in ((xo, ho), (xi, hi), (xf, hf))]
    return *gates, squash(xg(x) + hg(h))


def lstm(cell, x, h, c):
    o, i, f, g = four(cell, x, h)
    c = f * c + i * g
    return o * tanh(c), c


def bare(cell, x, h, c):
    o, i, f, g = four(cell, x, h)
    c = f * c + i * g
    return o * c, c


def sigmoid_candidate(cell, x, h, c):
    o, i, f, g = four(cell, x, h, sigmoid)
    c = f * c + i * g
    return o * tanh(c), c


def memory_gate(cell, x, h, c):
    (xi, xf, xg), (ho, hi, hf, hg) = parts(cell.input, 3), parts(cell.state, 4)
    (co,) = parts(cell.memory, 1)
    c = sigmoid(xf(x) + hf(h)) * c + sigmoid(xi(x) + hi(h)) * tanh(xg(x) + hg(h))
    return sigmoid(ho(h) + co(c)) * tanh(c), c


def peephole(cell, x, h, c):
    """Gers and Schmidhuber: i and f see the memory before the step, o the one after it."""
    (xo, xi, xf, xg), (ho, hi, hf, hg) = parts(cell.input, 4), parts(cell.state, 4)
    p_o, p_i, p_f = cell.peephole
    i, f = sigmoid(xi(x) + hi(h) + c * p_i), sigmoid(xf(x) + hf(h) + c * p_f)
    c = f * c + i * tanh(xg(x) + hg(h))
    return sigmoid(xo(x) + ho(h) + c * p_o) * tanh(c), c


def no_forget(cell, x, h, c):
    (xo, xi, xg), (ho, hi, hg) = parts(cell.input, 3), parts(cell.state, 3)
    c = c + sigmoid(xi(x) + hi(h)) * tanh(xg(x) + hg(h))
    return sigmoid(xo(x) + ho(h)) * tanh(c), c


def coupled(cell, x, h, c):
    (xo, xf, xg), (ho, hf, hg) = parts(cell.input, 3), parts(cell.state, 3)
    f = sigmoid(xf(x) + hf(h))
    c = f * c + (1 - f) * tanh(xg(x) + hg(h))
    return sigmoid(xo(x) + ho(h)) * tanh(c), c


FORMULAS = {
    SimplifiedGRU: simplified,
    GRU: gru,
    HandLSTM: lstm,
    BareLSTM: bare,
    PeepholeLSTM: peephole,
    MemoryGateLSTM: memory_gate,
    NoForgetLSTM: no_forget,
    CoupledLSTM: coupled,
    SigmoidLSTM: sigmoid_candidate,
}
NUMBERS = {SimplifiedGRU: 1, GRU: 1, ResetAfterGRU: 1}
EVERY = [*FORMULAS, ResetAfterGRU, LSTM]


def made(kind, input_size=3, hidden_size=4, scale=2.0):
    torch.manual_seed(0)
    cell = kind(input_size, hidden_size).double()
    for parameter in cell.parameters():
        parameter.data.normal_().mul_(scale / 2)
    return cell


def drawn(kind, batch=3, time=6, input_size=3, hidden_size=4):
    torch.manual_seed(1)
    x = torch.randn(batch, time, input_size, dtype=torch.float64, requires_grad=True)
    state = torch.randn(
        1, batch, NUMBERS.get(kind, 2) * hidden_size, dtype=torch.float64, requires_grad=True
    )
    return x, state


def by_loop(kind, cell, x, state):
    now, given = state[0].chunk(NUMBERS.get(kind, 2), 1), []
    for t in range(x.shape[1]):
        now = FORMULAS[kind](cell, x[:, t], *now)
        given.append(now[0])
    return torch.stack(given, 1), torch.cat(now, 1)[None]


def gradients(outputs, inputs):
    """Of a sum in which every number has a weight of its own."""
    torch.manual_seed(2)
    loss = sum((out * torch.randn(out.shape, dtype=out.dtype)).sum() for out in outputs)
    return torch.autograd.grad(loss, inputs)


@pytest.mark.covers("R7", "R8", "R11")
@pytest.mark.parametrize("kind", FORMULAS)
def test_values_and_gradients_are_those_of_the_loop_of_its_formula(kind):
    cell, (x, state) = made(kind), drawn(kind)
    inputs = [x, state, *cell.parameters()]
    expected, found = by_loop(kind, cell, x, state), cell(x, state)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)
    pairs = zip(gradients(found, inputs), gradients(expected, inputs), strict=True)
    for mine, theirs in pairs:
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", FORMULAS)
@pytest.mark.parametrize("part", [0, 1])
def test_the_gradient_of_one_output_alone(kind, part):
    """Of what it gives without the last state, and of the last state without what it gives."""
    cell, (x, state) = made(kind), drawn(kind)
    inputs = [x, state, *cell.parameters()]
    expected = gradients([by_loop(kind, cell, x, state)[part]], inputs)
    for mine, theirs in zip(gradients([cell(x, state)[part]], inputs), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", FORMULAS)
def test_gradcheck(kind):
    cell = made(kind, 2, 2)
    x, state = drawn(kind, 1, 3, 2, 2)
    names, weights = zip(*cell.named_parameters(), strict=True)

    def call(x, state, *weights):
        return torch.func.functional_call(cell, dict(zip(names, weights, strict=True)), (x, state))

    assert torch.autograd.gradcheck(call, (x, state, *weights), fast_mode=True)


@pytest.mark.parametrize("kind", FORMULAS)
def test_second_derivatives_are_those_of_the_loop_of_its_formula(kind):
    """Also of a plain sum, whose constant gradient once lost them without a word."""
    cell, (x, state) = made(kind), drawn(kind)
    inputs = [x, state, *cell.parameters()]

    def of_penalty(outputs):
        first = torch.autograd.grad(sum(outputs[0].unbind()).sum(), inputs, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), inputs)

    expected = of_penalty(by_loop(kind, cell, x, state))
    for mine, theirs in zip(of_penalty(cell(x, state)), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", FORMULAS)
def test_one_sample_at_a_time_has_the_gradients_of_the_batch(kind):
    """By vmap over grad of torch.func, with one state a sample."""
    cell, (x, state) = made(kind), drawn(kind)

    def loss(params, x, state):
        y, _ = torch.func.functional_call(cell, params, (x[None], state[:, None]))
        return y.square().sum()

    params = {name: p.detach() for name, p in cell.named_parameters()}
    each = torch.vmap(torch.func.grad(loss), (None, 0, 1))(params, x.detach(), state.detach())
    expected = torch.autograd.grad(cell(x, state)[0].square().sum(), list(cell.parameters()))
    for mine, theirs in zip(each.values(), expected, strict=True):
        torch.testing.assert_close(mine.sum(0), theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", EVERY)
def test_it_begins_at_zero_and_goes_on_where_it_stopped(kind):
    cell, (x, state) = made(kind), drawn(kind)
    y, last = cell(x)
    torch.testing.assert_close(cell(x, torch.zeros_like(state)), (y, last))
    first, between = cell(x[:, :2])
    second, after = cell(x[:, 2:], between)
    torch.testing.assert_close(torch.cat([first, second], 1), y)
    torch.testing.assert_close(after, last)
    torch.testing.assert_close(last[0, :, :4], y[:, -1])


@pytest.mark.parametrize("kind", EVERY)
def test_half_precision_is_near_and_gradients_have_the_dtype_of_the_weights(kind):
    cell, (x, state) = made(kind).float(), drawn(kind)
    expected, _ = cell(x.float(), state.float())
    with torch.autocast("cpu", torch.bfloat16):
        y, last = cell(x.bfloat16(), state.float())
    torch.testing.assert_close(y.float(), expected, rtol=0.1, atol=0.1)
    (y.float().sum() + last.float().sum()).backward()
    assert all(p.grad.dtype == torch.float32 for p in cell.parameters())


@pytest.mark.parametrize("kind", EVERY)
def test_weights_begin_within_one_over_the_root_of_their_inputs(kind):
    torch.manual_seed(0)
    for name, parameter in kind(4, 64).named_parameters():
        if parameter.dim() > 1:
            bound = parameter.shape[1] ** -0.5
            assert 0.9 * bound < parameter.abs().max() <= bound, name


@pytest.mark.parametrize(
    "kind", [k for k in EVERY if "LSTM" in k.__name__ and k is not NoForgetLSTM]
)
def test_the_bias_of_the_forget_gate_is_what_was_asked_for(kind):
    """With no weight the memory fades by sigmoid(bias) at each time."""
    cell = kind(3, 4, forget_bias=2.5).double()
    for parameter in cell.parameters():
        if parameter.dim() > 1:
            nn.init.zeros_(parameter)
    state = torch.cat([torch.zeros(1, 1, 4), torch.ones(1, 1, 4) * 1e6], 2).double()
    _, last = cell(torch.zeros(1, 7, 3).double(), state)
    torch.testing.assert_close(
        last[..., 4:] / 1e6, sigmoid(torch.full((1, 1, 4), 2.5).double()) ** 7, rtol=0, atol=1e-5
    )


def test_a_peephole_is_one_weight_a_unit_and_none_is_the_plain_lstm():
    """As many weights as the LSTM has and three a unit; at zero it is that LSTM."""
    peeps, plain = made(PeepholeLSTM), made(HandLSTM)
    assert sum(p.numel() for p in peeps.parameters()) == 3 * 4 + sum(
        p.numel() for p in plain.parameters()
    )
    x, state = drawn(PeepholeLSTM)
    peeps.load_state_dict({**plain.state_dict(), "peephole": torch.zeros(3, 4)})
    torch.testing.assert_close(peeps(x, state), plain(x, state))
    with pytest.raises(ValueError, match=r"state \[1, 1, 8\] must be of shape \[1, 3, 8\], beca"):
        peeps(x, state[:, :1])


def test_cells_refuse():
    cell = SimplifiedGRU(3, 4)
    with pytest.raises(ValueError, match=r"with at least 1 time, not .*, because a cell gives"):
        cell(torch.zeros(2, 0, 3))
    with pytest.raises(ValueError, match=r"state \[1, 2, 5\] must be of shape \[1, 2, 4\], becau"):
        cell(torch.zeros(2, 5, 3), torch.zeros(1, 2, 5))


# ----------------------------------------------------------------------------- padded sequences

LENGTHS = st.lists(st.integers(1, 6), min_size=3, max_size=3).map(torch.tensor)


@pytest.mark.parametrize("kind", EVERY)
def test_the_last_state_is_that_of_a_sequence_alone(kind):
    cell, (x, state) = made(kind), drawn(kind)
    for begin, lengths in ((None, torch.tensor([2, 6, 3])), (state, torch.tensor([4, 4, 1]))):
        for row, length in enumerate(lengths.tolist()):
            own = None if begin is None else begin[:, row : row + 1]
            alone, _ = cell(x[row : row + 1, :length], own)
            torch.testing.assert_close(last_states(cell(x, begin)[0], lengths)[row], alone[0, -1])


@settings(max_examples=20)
@given(lengths=LENGTHS)
def test_a_row_is_turned_within_its_length(lengths):
    x = torch.arange(36).view(3, 6, 2)
    turned = reverse_sequences(x, lengths)
    for row, length in enumerate(lengths.tolist()):
        assert torch.equal(turned[row, :length], x[row, :length].flip(0))
        assert torch.equal(turned[row, length:], x[row, length:])
    assert torch.equal(reverse_sequences(turned, lengths), x)
    assert torch.equal(reverse_sequences(x[..., 0], lengths), turned[..., 0])


@pytest.mark.parametrize("lengths", [[1, 0], [1, 7]])
def test_lengths_it_refuses(lengths):
    x, lengths = torch.zeros(2, 6, 3), torch.tensor(lengths)
    wanted = r"lengths \(\d to \d\) must be from 1 to 6, because a row has a last time"
    for function in (last_states, reverse_sequences):
        with pytest.raises(ValueError, match=wanted):
            function(x, lengths)
