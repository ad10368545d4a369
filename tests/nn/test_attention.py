"""Attention against torch's own, closed forms, and itself computed another way."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

from everynet.nn import attention
from everynet.nn.attention import (
    AdditiveScore,
    MultiHeadAttention,
    WindowedAttention,
    attend,
    attend_fused,
    banded_mask,
    causal_mask,
    padding_mask,
    record_weights,
    score_cosine,
    score_dot,
    score_scaled_dot,
    split_windows,
)
from everynet.nn.decoding import take_beams, take_rows
from everynet.nn.positions import sinusoidal

CLOSE = {"rtol": 0, "atol": 1e-10}


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def draw(*shape):
    return torch.randn(*shape, dtype=torch.double)


def scores():
    return {
        "additive": AdditiveScore(4, 4, 3).double(),
        "dot": score_dot,
        "scaled dot": score_scaled_dot,
        "cosine": score_cosine,
    }


def with_gradients(call, *inputs):
    """The output, and the gradients of a sum of it with fixed weights by each input."""
    inputs = [x.clone().requires_grad_() for x in inputs]
    y = call(*inputs)
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    return y.detach(), *torch.autograd.grad((y * weights).sum(), inputs)


# ----------------------------------------------------------------------------------------- scores


@pytest.mark.covers("R31")
def test_each_score_of_a_pair_is_its_formula():
    q, k, additive = draw(2, 3, 4), draw(2, 5, 4), scores()["additive"]
    w, u, v = (layer.weight for layer in (additive.query, additive.key, additive.output))
    for b, i, j in ((0, 0, 0), (1, 2, 4), (0, 1, 3)):
        one, two = q[b, i], k[b, j]
        dot = sum(x * y for x, y in zip(one.tolist(), two.tolist(), strict=True))
        expected = {
            "additive": (v[0] * (w @ one + u @ two).tanh()).sum().item(),
            "dot": dot,
            "scaled dot": dot / 2,
            "cosine": dot / math.sqrt(one.square().sum() * two.square().sum()),
        }
        for name, score in scores().items():
            found = (additive if name == "additive" else score)(q, k)[b, i, j].item()
            assert found == pytest.approx(expected[name], abs=1e-12)


@pytest.mark.covers("R31")
@pytest.mark.parametrize("name", scores())
def test_one_key_is_read_exactly_with_every_score(name):
    q, k, v = draw(2, 3, 4), draw(2, 1, 4), draw(2, 1, 5)
    o, a = attend(scores()[name], q, k, v)
    assert torch.equal(a, torch.ones_like(a))
    assert torch.equal(o, v.expand(2, 3, 5))


def test_keys_of_additive_scores_are_projected_once():
    score, q, k = AdditiveScore(3, 2, 4).double(), draw(2, 5, 3), draw(2, 6, 2)
    torch.testing.assert_close(score.compare(q, score.key(k)), score(q, k), rtol=0, atol=0)


def test_the_cosine_of_zeros_is_zero_and_has_a_gradient():
    q = torch.zeros(1, 2, 3, requires_grad=True)
    found = score_cosine(q, torch.rand(1, 4, 3))
    assert not found.any()
    assert torch.autograd.grad(found.sum(), q)[0].isfinite().all()


@pytest.mark.covers("T1")
def test_weights_are_positive_and_sum_to_one():
    o, a = attend(score_scaled_dot, draw(2, 3, 4), draw(2, 5, 4), draw(2, 5, 6))
    assert o.shape == (2, 3, 6)
    assert (a > 0).all()
    torch.testing.assert_close(a.sum(-1), torch.ones(2, 3).double())


@pytest.mark.covers("T1")
@pytest.mark.parametrize("size", [4, 64, 1024])
def test_scaled_scores_of_unit_variance_have_unit_variance(size):
    q, k = draw(200, size), draw(200, size)
    assert score_scaled_dot(q, k).std().item() == pytest.approx(1, abs=0.05)
    assert score_dot(q, k).std().item() == pytest.approx(math.sqrt(size), rel=0.05)


@pytest.mark.covers("T1")
def test_orthonormal_keys_with_a_high_gain_are_a_dictionary():
    keys, _ = torch.linalg.qr(draw(8, 8))
    values, order = draw(8, 3), torch.randperm(8)
    o, _ = attend(score_dot, 1e3 * keys[order], keys, values)
    torch.testing.assert_close(o, values[order], rtol=0, atol=1e-12)


@pytest.mark.covers("T1", "T3")
@pytest.mark.parametrize("mask", [None, causal_mask(5, 6), padding_mask(torch.tensor([3, 6]), 6)])
def test_attention_is_torchs_in_value_and_gradient(mask):
    inputs = draw(2, 3, 5, 4), draw(2, 3, 6, 4), draw(2, 3, 6, 4)
    mask = None if mask is None else mask[:, None] if mask.dim() == 3 else mask
    theirs = with_gradients(lambda *x: scaled_dot_product_attention(*x, attn_mask=mask), *inputs)
    for call in (
        lambda *x: attend(score_scaled_dot, *x, mask)[0],
        lambda *x: attend_fused(*x, mask),
    ):
        torch.testing.assert_close(with_gradients(call, *inputs), theirs, **CLOSE)


# ------------------------------------------------------------------------------------------ masks


@pytest.mark.covers("T3")
def test_masks_by_hand():
    assert causal_mask(3, 3).long().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert causal_mask(2, 4, start=2).long().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    lengths = torch.tensor([2, 0, 3])
    assert padding_mask(lengths, 3).long().tolist() == [[[1, 1, 0]], [[0, 0, 0]], [[1, 1, 1]]]
    assert banded_mask(4, 1).long().tolist() == [
        [1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1],
    ]  # fmt: skip


@pytest.mark.covers("T3")
def test_one_added_to_allowed_scores_changes_nothing():
    q, k, v, mask = draw(5, 4), draw(5, 4), draw(5, 4), causal_mask(5, 5)

    def shifted(q, k):
        return score_scaled_dot(q, k) + 1.0 * mask

    torch.testing.assert_close(
        attend(shifted, q, k, v, mask), attend(score_scaled_dot, q, k, v, mask), **CLOSE
    )


def test_a_query_that_may_read_nothing_gets_zeros_and_no_nan():
    inputs = draw(2, 2, 4, 3), draw(2, 2, 4, 3), draw(2, 2, 4, 3)
    mask = padding_mask(torch.tensor([4, 0]), 4)[:, None] & causal_mask(4, 4)
    for call in (
        lambda *x: attend(score_scaled_dot, *x, mask)[0],
        lambda *x: attend_fused(*x, mask),
    ):
        with torch.autograd.set_detect_anomaly(True):  # nor on the way back
            o, *gradients = with_gradients(call, *inputs)
        assert not o[1].any()
        assert o[0].all()
        for gradient in gradients:
            assert gradient.isfinite().all()
            assert not gradient[1].any()
    _, a = attend(score_scaled_dot, *inputs, mask)
    assert not a[1].any()


@pytest.mark.covers("T3")
@settings(max_examples=10, deadline=None)
@given(t=st.integers(0, 5), causal_too=st.booleans())
def test_an_output_is_unchanged_by_edits_after_it(t, causal_too):
    net, x = MultiHeadAttention(4, 2).double(), draw(2, 6, 4)
    mask = causal_mask(6, 6) if causal_too else None
    edited = torch.cat([x[:, : t + 1], draw(2, 5 - t, 4)], 1)
    before, after = (net(given, mask=mask, causal=True) for given in (x, edited))
    torch.testing.assert_close(before[:, : t + 1], after[:, : t + 1], **CLOSE)
    assert t == 5 or not torch.allclose(before[:, t + 1 :], after[:, t + 1 :])


@pytest.mark.covers("T3")
@settings(max_examples=10, deadline=None)
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4), causal=st.booleans())
def test_a_padded_batch_is_its_rows_one_by_one(lengths, causal):
    net, wide = MultiHeadAttention(4, 2).double(), WindowedAttention(4, 2, 2).double()
    x, lengths = draw(len(lengths), 7, 4), torch.tensor(lengths)
    mask = padding_mask(lengths, 7)
    for call in (
        lambda x, **given: net(x, causal=causal, **given),
        lambda x, **given: net.forward_with_weights(x, causal=causal, **given)[0],
        wide,
    ):
        together = call(x, mask=mask)
        for row, n in enumerate(lengths.tolist()):
            alone = call(x[row : row + 1, :n])
            torch.testing.assert_close(together[row, :n], alone[0], **CLOSE)


# ------------------------------------------------------------------------------------- multi-head


def torch_twin(net, hidden_size):
    theirs = nn.MultiheadAttention(hidden_size, net.heads, batch_first=True).double()
    with torch.no_grad():
        net.project.bias.normal_()
        net.output.bias.normal_()
        theirs.in_proj_weight.copy_(net.project.weight)
        theirs.in_proj_bias.copy_(net.project.bias)
        theirs.out_proj.weight.copy_(net.output.weight)
        theirs.out_proj.bias.copy_(net.output.bias)
    return theirs


def parameter_gradients(net, y):
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    return torch.autograd.grad((y * weights).sum(), list(net.parameters()))


@pytest.mark.covers("T2", "T4")
@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("heads", [1, 2, 4])
def test_multi_head_is_torchs_in_value_weights_and_gradient(heads, cross):
    net = MultiHeadAttention(8, heads).double()
    theirs = torch_twin(net, 8)
    x, memory = draw(3, 5, 8), draw(3, 6, 8) if cross else None
    keys = 6 if cross else 5
    lengths = torch.tensor([keys, 2, 4])
    mask = padding_mask(lengths, keys)
    source = x if memory is None else memory
    blocked = ~mask[:, 0]
    expected, weights = theirs(
        x, source, source, key_padding_mask=blocked, average_attn_weights=False
    )
    y = net(x, memory, mask=mask)
    plain, a = net.forward_with_weights(x, memory, mask=mask)
    for found in (y, plain):
        torch.testing.assert_close(found, expected, **CLOSE)
        torch.testing.assert_close(
            parameter_gradients(net, found),
            parameter_gradients(theirs, theirs(x, source, source, key_padding_mask=blocked)[0]),
            **CLOSE,
        )
    torch.testing.assert_close(a, weights, **CLOSE)


@pytest.mark.covers("T4")
def test_cross_attention_learns_to_look_at_what_it_copies():
    """Queries know their position alone, and the memory tokens and theirs."""
    codes, embed = sinusoidal(8, 32).float(), torch.randn(10, 32)
    net, output = MultiHeadAttention(32, 1), nn.Linear(32, 10)
    optimizer = torch.optim.Adam([*net.parameters(), *output.parameters()], lr=2e-2)

    def memory_of(tokens):
        return embed[tokens] + codes

    for _ in range(100):
        tokens = torch.randint(10, (16, 8))
        logits = output(net(codes.expand(16, 8, 32), memory_of(tokens)))
        loss = cross_entropy(logits.flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tokens = torch.randint(10, (100, 8))
    y, a = net.forward_with_weights(codes.expand(100, 8, 32), memory_of(tokens))
    assert (output(y).argmax(-1) == tokens).double().mean() > 0.95
    assert (a[:, 0].argmax(-1) == torch.arange(8)).double().mean() > 0.95
    assert a[:, 0].diagonal(dim1=1, dim2=2).mean() > 0.5


@pytest.mark.covers("T2")
def test_causal_multi_head_is_torchs():
    net, x = MultiHeadAttention(8, 2).double(), draw(3, 5, 8)
    theirs = torch_twin(net, 8)
    expected, _ = theirs(x, x, x, attn_mask=~causal_mask(5, 5))
    for found in (
        net(x, causal=True),
        net(x, mask=causal_mask(5, 5)),
        net.forward_with_weights(x, causal=True)[0],
        net.forward_with_weights(x, mask=causal_mask(5, 5).expand(3, 5, 5), causal=True)[0],
    ):
        torch.testing.assert_close(found, expected, **CLOSE)


@pytest.mark.covers("T2")
def test_one_head_is_attention_between_two_projections():
    net, x = MultiHeadAttention(4, 1).double(), draw(2, 3, 4)
    q, k, v = (x @ w.T for w in net.project.weight.chunk(3))
    o, _ = attend(score_scaled_dot, q, k, v)
    torch.testing.assert_close(net(x), o @ net.output.weight.T, **CLOSE)
    assert sum(p.numel() for p in net.parameters()) == 4 * 4**2 + 4 * 4


def test_the_fused_kernel_serves_where_weights_are_not_wanted(monkeypatch):
    net, x, calls = MultiHeadAttention(4, 2), torch.randn(2, 3, 4), []

    def counted(*given, **options):
        calls.append(options)
        return scaled_dot_product_attention(*given, **options)

    monkeypatch.setattr(attention, "scaled_dot_product_attention", counted)
    net(x, causal=True)
    net(x, mask=causal_mask(3, 3))
    WindowedAttention(4, 2, 1)(x)
    assert len(calls) == 3
    assert calls[0]["is_causal"]
    assert "attn_mask" not in calls[0]  # so that the fastest kernel may be taken
    net.forward_with_weights(x)
    assert len(calls) == 3


def test_second_derivatives_are_there_without_the_fused_kernel():
    net, x = MultiHeadAttention(4, 2).double(), draw(1, 3, 4).requires_grad_()
    mask = banded_mask(3, 1)
    with sdpa_kernel(SDPBackend.MATH):
        assert torch.autograd.gradgradcheck(lambda x: net(x, mask=mask), x, fast_mode=True)
    plain = net.forward_with_weights
    assert torch.autograd.gradgradcheck(lambda x: plain(x, mask=mask)[0], x, fast_mode=True)


def test_dropout_is_of_weights_in_training_alone():
    net, x = MultiHeadAttention(4, 2, dropout=0.5).double(), draw(2, 3, 4)
    plain, _ = net.forward_with_weights(x)
    assert not torch.allclose(net(x), plain)
    torch.testing.assert_close(net.eval()(x), plain, **CLOSE)


def test_recorded_weights_are_those_of_each_call_and_leave_nothing_behind():
    net = nn.ModuleDict({"one": MultiHeadAttention(4, 2), "two": MultiHeadAttention(4, 1)}).double()
    x, memory = draw(2, 3, 4), draw(2, 5, 4)
    with record_weights(net) as found:
        y = net["two"](
            net["one"](x, causal=True), memory, mask=padding_mask(torch.tensor([5, 2]), 5)
        )
        net["one"](x)
    assert {name: [tuple(a.shape) for a in parts] for name, parts in found.items()} == {
        "one": [(2, 2, 3, 3)] * 2, "two": [(2, 1, 3, 5)],
    }  # fmt: skip
    assert not found["one"][0].triu(1).any()
    assert found["one"][1].all()
    assert not found["two"][0][1, :, :, 2:].any()
    assert y.shape == x.shape
    net["one"](x)
    assert len(found["one"]) == 2


# ------------------------------------------------------------------------------------------ cache


@pytest.mark.parametrize("chunks", [[1] * 6, [4, 1, 1], [2, 3, 1], [6]])
def test_steps_with_a_cache_are_the_whole_sequence(chunks):
    net, x = MultiHeadAttention(8, 2).double(), draw(3, 6, 8)
    whole, cache, parts = net(x, causal=True), net.empty_cache(3, 7), []
    with torch.no_grad():
        for part in x.split(chunks, 1):
            y, cache = net.step(part, cache)
            parts.append(y)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-12)
    assert cache.length == 6


def test_a_memory_is_projected_once_and_looked_up():
    net, x, memory = MultiHeadAttention(8, 2).double(), draw(3, 4, 8), draw(3, 5, 8)
    mask = padding_mask(torch.tensor([5, 1, 3]), 5)
    cache = net.cache_memory(memory, mask)
    torch.testing.assert_close(net.look_up(x, cache), net(x, memory, mask=mask), rtol=0, atol=1e-12)
    rows = torch.tensor([2, 0, 0])
    torch.testing.assert_close(
        net.look_up(x, take_rows(cache, rows)),
        net(x, memory[rows], mask=mask[rows]),
        rtol=0,
        atol=1e-12,
    )


def test_beams_share_the_row_of_their_source():
    net, x, memory = MultiHeadAttention(8, 2).double(), draw(6, 2, 8), draw(3, 5, 8)
    mask = padding_mask(torch.tensor([5, 1, 3]), 5)
    cache = net.cache_memory(memory, mask)
    each = torch.arange(3).repeat_interleave(2)
    expected = net(x, memory[each], mask=mask[each])
    torch.testing.assert_close(net.look_up(x, cache), expected, rtol=0, atol=1e-12)
    assert take_beams(cache, torch.tensor([1, 0, 2, 2, 5, 4])) is cache
    with pytest.raises(ValueError, match=r"x \(4 rows\) must have as many rows as the memory"):
        net.look_up(x[:4], cache)


@torch.no_grad()
def test_a_cache_is_filled_in_place_and_indexed_by_rows():
    net, x = MultiHeadAttention(8, 2).double(), draw(3, 6, 8)
    first = net.empty_cache(3, 6)
    place = first.stored.data_ptr()
    _, cache = net.step(x[:, :2], first)
    assert cache.stored.data_ptr() == place
    assert first.length == 0
    rows = torch.tensor([2, 0, 2, 1])
    (taken,) = take_rows((cache,), rows)
    y, _ = net.step(x[rows, 2:], taken)
    torch.testing.assert_close(y, net(x[rows], causal=True)[:, 2:], rtol=0, atol=1e-12)
    z, full = net.step(x[:, 2:], cache)  # which the rows taken have not touched
    torch.testing.assert_close(z, net(x, causal=True)[:, 2:], rtol=0, atol=1e-12)
    assert torch.equal(full[rows].stored, full.stored[:, rows])


# --------------------------------------------------------------------------------------- windowed


@pytest.mark.covers("T10")
@pytest.mark.parametrize(("time", "radius"), [(1, 0), (5, 0), (7, 1), (9, 3), (12, 3), (4, 9)])
def test_windows_are_a_banded_mask_in_value_and_gradient(time, radius):
    net = WindowedAttention(4, 2, radius).double()
    x, lengths = draw(3, time, 4), torch.tensor([time, max(1, time - 2), 1])
    for mask in (None, padding_mask(lengths, time)):
        band = banded_mask(time, radius)
        whole = band if mask is None else mask & band
        found = with_gradients(lambda x, mask=mask: net(x, mask=mask), x)
        expected = with_gradients(lambda x, whole=whole: net.attention(x, mask=whole), x)
        torch.testing.assert_close(found, expected, **CLOSE)


@pytest.mark.covers("T10")
def test_scores_of_windows_are_counted_linear_in_time():
    def count(time, radius):
        with FlopCounterMode(display=False) as counter, torch.device("meta"):
            x = torch.empty(1, 1, time, 8)
            query, key, _, _ = split_windows(x, x, x, radius)
            score_dot(query, key)
        return counter.get_total_flops() // 2

    assert count(64, 4) == 64 * 3 * 4 * 8
    assert count(1024, 4) == 16 * count(64, 4)
    assert count(1024, 16) == 4 * count(1024, 4)


# ---------------------------------------------------------------------------------- with a mask


class Masked(nn.Module):
    """Attention whose mask comes from lengths, as a translator has it."""

    def __init__(self):
        super().__init__()
        self.attention, self.windowed = MultiHeadAttention(4, 2), WindowedAttention(4, 2, 1)

    def forward(self, x, lengths):
        mask = padding_mask(lengths, x.shape[1])
        return self.windowed(self.attention(x, mask=mask, causal=True), mask=mask)


def test_rows_with_masks_by_vmap_are_the_batch():
    net, x, lengths = Masked().double(), draw(3, 5, 4), torch.tensor([5, 2, 3])
    with pytest.warns(UserWarning, match="batching rule"):  # torch's fused kernel has none
        found = torch.vmap(lambda x, n: net(x[None], n[None])[0])(x, lengths)
    torch.testing.assert_close(found, net(x, lengths), **CLOSE)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.filterwarnings("ignore")  # of torch's own tracing
def test_masks_are_compiled_and_exported_for_any_batch():
    net, x, lengths = Masked().double().eval(), draw(3, 5, 4), torch.tensor([5, 2, 3])
    compiled = torch.compile(net, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, lengths), net(x, lengths), **CLOSE)
    axes = ({0: torch.export.Dim.DYNAMIC}, {0: torch.export.Dim.DYNAMIC})
    program = torch.export.export(net, (x, lengths), dynamic_shapes=axes).module()
    more = draw(7, 5, 4), torch.tensor([1, 2, 3, 4, 5, 5, 1])
    torch.testing.assert_close(program(*more), net(*more), **CLOSE)


# ----------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("sizes", "match"),
    [
        ((10, 4), r"hidden_size \(10\) must be divisible by heads \(4\), .*; try 8 or 12$"),
        ((2, 4), r"hidden_size \(2\) must be divisible by heads \(4\), .*; try 4$"),
        ((4, 0), r"heads \(0\), .*; try heads=1$"),
    ],
)
def test_heads_that_do_not_divide_the_width_are_refused(sizes, match):
    with pytest.raises(ValueError, match=match):
        MultiHeadAttention(*sizes)


def test_a_radius_below_zero_is_refused():
    with pytest.raises(ValueError, match=r"radius \(-1\) must be at least 0, because"):
        WindowedAttention(4, 2, -1)


@pytest.mark.parametrize(
    ("x", "memory", "match"),
    [
        ((2, 3, 5), None, r"^MultiHeadAttention .*\(batch, time, 4\), not \(2, 3, 5\); make the "
         r"attention with hidden_size=5, or give 4 numbers a time$"),
        ((3, 4), None, r"x\[None\]$"),
        ((2, 0, 4), None, r"because an attention gives nothing without input$"),
        ((2, 3, 4), (2, 3, 6), r"^The memory of MultiHeadAttention .* not \(2, 3, 6\); make"),
    ],
)  # fmt: skip
def test_a_wrong_width_is_refused(unchecked, x, memory, match):
    net = MultiHeadAttention(4, 2)
    with pytest.raises(ValueError, match=match):
        net(torch.rand(x), None if memory is None else torch.rand(memory))


def test_a_memory_of_other_rows_is_refused(unchecked):
    with pytest.raises(ValueError, match=r"memory \(1 rows\) must have as many rows as x \(2\)"):
        MultiHeadAttention(4, 2)(torch.rand(2, 3, 4), torch.rand(1, 3, 4))


@pytest.mark.parametrize("shape", [(3, 4), (3,), (2, 4, 3), (1, 3, 3), (2, 2, 3, 3)])
def test_a_mask_of_the_wrong_shape_is_refused(shape):
    net, x, mask = MultiHeadAttention(4, 2), torch.rand(2, 3, 4), torch.ones(shape).bool()
    wanted = r"must be of shape \(3, 3\), \(2, 3, 3\) or \(2, 1, 3\), because"
    for call in (net, net.forward_with_weights):
        with pytest.raises(ValueError, match=wanted):
            call(x, mask=mask)
    with pytest.raises(ValueError, match=r"must be of shape \(1, 3\), "):
        WindowedAttention(4, 2, 1)(x, mask=mask)
    with pytest.raises(ValueError, match=r"must be of shape \(1, 3\), "):
        net.cache_memory(x, mask)


@pytest.mark.parametrize("shape", [(2, 5), (2, 3, 4), (1, 2, 3, 5), (3, 3, 5)])
def test_a_mask_that_does_not_fit_the_scores_is_refused(shape):
    """The first would otherwise make two queries of each one."""
    e, mask = draw(2, 1 if shape == (2, 5) else 3, 5), torch.ones(shape).bool()
    with pytest.raises(ValueError, match=r"mask .* must broadcast to scores \(2, ., 5\), because"):
        attend(lambda q, k: e, draw(2, e.shape[1], 4), draw(2, 5, 4), draw(2, 5, 4), mask)


def test_a_mask_of_numbers_is_refused(unchecked):
    with pytest.raises(TypeError, match=r"mask \(float32\) must be bool"):
        attend(score_dot, draw(3, 4), draw(3, 4), draw(3, 4), torch.zeros(3, 3))
    with pytest.raises(TypeError, match=r"mask \(float32\) must be bool, True where .*; use mask"):
        MultiHeadAttention(4, 2)(torch.rand(2, 3, 4), mask=torch.zeros(3, 3))


def test_lengths_beyond_the_keys_are_refused():
    for lengths in ([1, 4], [-1, 2]):
        with pytest.raises(ValueError, match=r"must be from 0 to 3, because a row has no more"):
            padding_mask(torch.tensor(lengths), 3)


def test_more_steps_than_the_context_are_refused():
    net = MultiHeadAttention(4, 2)
    cache = net.empty_cache(1, 2)
    _, cache = net.step(torch.rand(1, 2, 4), cache)
    with pytest.raises(ValueError, match=r"context \(2\) must be at least 3, because .*; begin"):
        net.step(torch.rand(1, 1, 4), cache)
