"""Products and attention of few rows are torch's, and take its place only where they may."""

import pytest
import torch
from torch.func import vmap
from torch.nn.functional import linear, scaled_dot_product_attention

from everynet.nn import few_rows
from everynet.nn.attention import MultiHeadAttention
from everynet.nn.transformer import (
    DecoderLayer,
    EncoderLayer,
    PreNormDecoderLayer,
    PreNormEncoderLayer,
)

SIZE, HEADS = few_rows.LEAST, 4


@pytest.fixture(autouse=True)
def drawn():
    torch.manual_seed(3)


@pytest.mark.parametrize("rows", range(1, few_rows.MOST + 1))
def test_a_product_of_few_rows(rows):
    x, weight = torch.randn(rows, 37).double(), torch.randn(11, 37).double()
    torch.testing.assert_close(few_rows.multiply(x, weight), linear(x, weight))
    across, bias = torch.randn(37, 11).double().T, torch.randn(11).double()  # not in one piece
    torch.testing.assert_close(few_rows.multiply(x, across, bias), linear(x, across, bias))


def test_attention_to_the_past():
    """The new key and value are put into the cache, and nothing after them is read."""
    stored = torch.full((2, 3, 2, 9, 5), torch.nan).double()
    stored[:, :, :, :6] = torch.randn(2, 3, 2, 6, 5)
    x = torch.randn(3, 10).double()
    first = torch.randn(30, 10).double(), torch.randn(30).double()
    last = torch.randn(10, 10).double(), torch.randn(10).double()
    y = few_rows.attend_past(x, first, last, stored, 6)
    q, k, v = linear(x, *first).view(3, 3, 2, 5).unbind(1)  # of rows and heads
    torch.testing.assert_close(stored[0, :, :, 6], k)
    torch.testing.assert_close(stored[1, :, :, 6], v)
    keys, values = stored[:, :, :, :7].unbind()
    o = scaled_dot_product_attention(q[:, :, None], keys, values)
    torch.testing.assert_close(y, linear(o.flatten(1), *last))


def test_attention_to_a_memory_that_beams_share():
    x = torch.randn(6, 10).double()
    first, last = (
        (torch.randn(10, 10).double(), torch.randn(10).double()) for _ in ("query", "output")
    )
    keys, values = torch.randn(2, 2, 2, 4, 5).double()
    allowed = torch.tensor([[True, True, False, True], [False] * 4])
    y = few_rows.attend_memory(x, first, last, (keys, values, allowed))
    q, mask = linear(x, *first).view(6, 2, 5), allowed[0].expand(2, 3, 4)
    o = scaled_dot_product_attention(q[:3].transpose(0, 1), keys[0], values[0], mask)
    torch.testing.assert_close(y[:3], linear(o.transpose(0, 1).flatten(1), *last))
    torch.testing.assert_close(y[3:], last[1].expand(3, -1))  # nothing may be read


@pytest.mark.parametrize("kind", [EncoderLayer, PreNormEncoderLayer])
def test_an_encoder_layer_goes_on_as_it_would_with_torch(kind, monkeypatch):
    layer, x = kind(SIZE, HEADS, 64).double().eval(), torch.randn(2, 4, SIZE).double()
    found = {}
    for most in (0, few_rows.MOST):
        monkeypatch.setattr(few_rows, "MOST", most)
        cache, outputs = layer.attention.empty_cache(2, 4), []
        with torch.no_grad():
            for t in range(4):
                y, cache = layer.step(x[:, t : t + 1], cache)
                outputs.append(y)
        found[most] = torch.cat(outputs, 1)
    torch.testing.assert_close(found[0], found[few_rows.MOST], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found[0], layer(x, causal=True).detach())


@pytest.mark.parametrize("kind", [DecoderLayer, PreNormDecoderLayer])
@pytest.mark.parametrize("beam", [1, 3])
def test_a_decoder_layer_goes_on_as_it_would_with_torch(kind, beam, monkeypatch):
    layer, memory = kind(SIZE, HEADS, 64).double().eval(), torch.randn(2, 5, SIZE).double()
    x = torch.randn(2 * beam, 3, SIZE).double()
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])[:, None]
    found = {}
    for most in (0, few_rows.MOST):
        monkeypatch.setattr(few_rows, "MOST", most)
        past, read = layer.begin(memory, 3, mask=mask)
        state, outputs = (past[torch.arange(2).repeat_interleave(beam)], read), []
        with torch.no_grad():
            for t in range(3):
                y, state = layer.step(x[:, t : t + 1], state)
                outputs.append(y)
        found[most] = torch.cat(outputs, 1)
    torch.testing.assert_close(found[0], found[few_rows.MOST], rtol=1e-12, atol=1e-12)


def test_a_full_cache_is_refused_here_too():
    attention = MultiHeadAttention(SIZE, HEADS).double()
    cache, x = attention.empty_cache(1, 1), torch.randn(1, 1, SIZE).double()
    with torch.no_grad():
        _, cache = attention.step(x, cache)
        with pytest.raises(ValueError, match=r"context \(1\) must be at least 2"):
            attention.step(x, cache)


def test_the_loops_stand_in_only_where_they_may():
    x = torch.randn(few_rows.MOST, SIZE)
    assert not few_rows.fits(x), "gradients are on"
    with torch.no_grad():
        assert few_rows.fits(x)
        assert few_rows.fits(x.double())
        assert not few_rows.fits(x.bfloat16())
        assert not few_rows.fits(torch.randn(few_rows.MOST + 1, SIZE))
        assert not few_rows.fits(torch.randn(1, SIZE - 1))
        assert not few_rows.fits(x[:0])
        assert not few_rows.fits(x.to("meta"))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert not few_rows.fits(x)
        seen = []
        vmap(lambda row: seen.append(few_rows.fits(row)) or row)(x)
        assert seen == [False]
