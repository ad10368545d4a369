"""Layers of the transformer against torch's, padding, and decoding step by step."""

import pytest
import torch
from torch import nn

from everynet.nn.attention import padding_mask, record_weights
from everynet.nn.decoding import beam_search, generate, take_likeliest, take_rows
from everynet.nn.positions import SinusoidalPositions
from everynet.nn.transformer import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    PreNormDecoderLayer,
    PreNormEncoderLayer,
)

CLOSE = {"rtol": 0, "atol": 1e-10}
EXACT = {"rtol": 0, "atol": 1e-12}


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def draw(*shape):
    return torch.randn(*shape, dtype=torch.double)


def pairs(mine, theirs):
    """Parameters of ours and of torch's that are the same."""
    if isinstance(mine, EncoderLayer):
        attentions = [(mine.attention, theirs.self_attn)]
        norms = [mine.around_attention, mine.around_feedforward]
    else:
        attentions = [
            (mine.self_attention, theirs.self_attn),
            (mine.cross_attention, theirs.multihead_attn),
        ]
        norms = [mine.around_self, mine.around_cross, mine.around_feedforward]
    for ours, other in attentions:
        yield ours.project.weight, other.in_proj_weight
        yield ours.project.bias, other.in_proj_bias
        yield ours.output.weight, other.out_proj.weight
        yield ours.output.bias, other.out_proj.bias
    for number, around in enumerate(norms, 1):
        other = getattr(theirs, f"norm{number}")
        yield around.norm.weight, other.weight
        yield around.norm.bias, other.bias
    for ours, other in (
        (mine.feedforward.inner, theirs.linear1),
        (mine.feedforward.output, theirs.linear2),
    ):
        yield ours.weight, other.weight
        yield ours.bias, other.bias


def twin(mine, cls, *, first, **settings):
    """Torch's layer with our weights, all of them drawn, biases and norms too."""
    theirs = cls(8, 2, 6, dropout=0.0, batch_first=True, norm_first=first, **settings).double()
    both = list(pairs(mine, theirs))
    assert {id(p) for p, _ in both} == {id(p) for p in mine.parameters()}
    with torch.no_grad():
        for ours, other in both:
            ours.normal_(std=0.5)
            other.copy_(ours)
    return theirs, both


def gradients(y, parameters):
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    return torch.autograd.grad((y * weights).sum(), parameters)


def assert_equal_to(mine, theirs, both, x):
    torch.testing.assert_close(mine, theirs, **CLOSE)
    ours, others = ([x, *side] for side in zip(*both, strict=True))
    torch.testing.assert_close(gradients(mine, ours), gradients(theirs, others), **CLOSE)


@pytest.mark.covers("T7")
@pytest.mark.parametrize(("cls", "first"), [(EncoderLayer, False), (PreNormEncoderLayer, True)])
def test_an_encoder_layer_is_torchs_in_value_and_gradient(cls, first):
    net = cls(8, 2, 6).double()
    theirs, both = twin(net, nn.TransformerEncoderLayer, first=first)
    x, lengths = draw(3, 5, 8).requires_grad_(), torch.tensor([5, 2, 4])
    mask = padding_mask(lengths, 5)
    expected = theirs(x, src_key_padding_mask=~mask[:, 0])
    assert_equal_to(net(x, mask=mask), expected, both, x)
    blocked = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.double)
    assert_equal_to(net(x, causal=True), theirs(x, blocked), both, x)


class SmoothLayer(PreNormEncoderLayer):
    """A layer whose class says another activation and another eps."""

    activation = staticmethod(nn.functional.gelu)
    eps = 1e-2


def test_a_class_says_its_activation_and_its_eps():
    net = SmoothLayer(8, 2, 6).double()
    theirs, both = twin(
        net, nn.TransformerEncoderLayer, first=True, activation="gelu", layer_norm_eps=1e-2
    )
    x = draw(3, 5, 8).requires_grad_()
    assert_equal_to(net(x), theirs(x), both, x)


@pytest.mark.parametrize("cls", [EncoderLayer, PreNormEncoderLayer])
def test_an_encoder_layer_goes_on_from_its_cache(cls):
    net, x = cls(8, 2, 6).double(), draw(3, 7, 8)
    past, parts = net.attention.empty_cache(3, 7), []
    for part in x.split([3, 1, 2, 1], dim=1):
        y, past = net.step(part, past)
        parts.append(y)
    torch.testing.assert_close(torch.cat(parts, dim=1), net(x, causal=True), **EXACT)


@pytest.mark.covers("T7")
@pytest.mark.parametrize(("cls", "first"), [(DecoderLayer, False), (PreNormDecoderLayer, True)])
def test_a_decoder_layer_is_torchs_in_value_and_gradient(cls, first):
    net = cls(8, 2, 6).double()
    theirs, both = twin(net, nn.TransformerDecoderLayer, first=first)
    x, memory, lengths = draw(3, 5, 8).requires_grad_(), draw(3, 4, 8), torch.tensor([4, 1, 3])
    mask = padding_mask(lengths, 4)
    blocked = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.double)
    expected = theirs(x, memory, blocked, memory_key_padding_mask=~mask[:, 0])
    assert_equal_to(net(x, memory, mask=mask), expected, both, x)


@pytest.mark.parametrize("dropout", ["dropout", "inner_dropout"])
@pytest.mark.parametrize("cls", [EncoderLayer, DecoderLayer, PreNormEncoderLayer])
def test_what_is_dropped_in_training_is_there_afterwards(cls, dropout):
    net = cls(8, 2, 6, **{dropout: 0.5}).double()
    bare = cls(8, 2, 6).double()
    bare.load_state_dict(net.state_dict())
    given = (draw(2, 5, 8), draw(2, 4, 8)) if cls is DecoderLayer else (draw(2, 5, 8),)
    assert not torch.allclose(net(*given), bare(*given))
    torch.testing.assert_close(net.eval()(*given), bare(*given), **EXACT)


def test_inner_numbers_are_dropped_in_training_alone():
    net, x = FeedForward(8, 6, dropout=0.5).double(), draw(2, 5, 8)
    whole = net.eval()(x)
    assert not torch.allclose(net.train()(x), whole)
    assert torch.equal(net.eval()(x), whole)


class Translator(nn.Module):
    """Two decoder layers above a memory, as a translator has them."""

    def __init__(self, cls):
        super().__init__()
        self.embed = nn.Embedding(7, 8)
        self.positions = SinusoidalPositions(8, 12)
        self.layers = nn.ModuleList([cls(8, 2, 6), cls(8, 2, 6)])
        self.output = nn.Linear(8, 7)

    def forward(self, tokens, memory, mask):
        x = self.positions(self.embed(tokens))
        for layer in self.layers:
            x = layer(x, memory, mask=mask)
        return self.output(x)

    def begin(self, memory, mask):
        states = tuple(layer.begin(memory, 12, mask=mask) for layer in self.layers)
        return self.step(torch.zeros(len(memory), dtype=torch.long), states)

    def step(self, tokens, states):
        x = self.positions(self.embed(tokens[:, None]), start=states[0][0].length)
        after = []
        for layer, state in zip(self.layers, states, strict=True):
            x, further = layer.step(x, state)
            after.append(further)
        return self.output(x)[:, 0], tuple(after)


@torch.no_grad()
@pytest.mark.parametrize("cls", [DecoderLayer, PreNormDecoderLayer])
def test_cached_decoding_is_the_whole_sequence_row_by_row(cls):
    net = Translator(cls).double()
    memory, mask = draw(3, 5, 8), padding_mask(torch.tensor([5, 1, 3]), 5)
    tokens, rows = torch.randint(7, (3, 8)), torch.tensor([1, 2, 0])
    tokens[:, 0] = 0
    found, state = [], None
    for t in range(8):
        if t == 0:
            logits, state = net.begin(memory, mask)
        else:
            logits, state = net.step(tokens[:, t], state)
        found.append(logits)
        if t == 3:  # as a beam does
            state = take_rows(state, rows)
            tokens, memory, mask = tokens[rows], memory[rows], mask[rows]
            found = [part[rows] for part in found]
    expected = net(tokens, memory, mask)
    torch.testing.assert_close(torch.stack(found, 1), expected, **EXACT)


@torch.no_grad()
def test_a_cached_beam_finds_what_whole_sequences_find():
    net = Translator(DecoderLayer).double()
    memory, mask = draw(2, 5, 8), padding_mask(torch.tensor([5, 2]), 5)

    def begin_whole():
        state = torch.zeros(2, 1, dtype=torch.long), memory, mask
        return net(*state)[:, -1], state

    def step_whole(tokens, state):
        state = torch.cat([state[0], tokens[:, None]], 1), *state[1:]
        return net(*state)[:, -1], state

    cached = beam_search(net.step, *net.begin(memory, mask), 8, width=3, end=1)
    whole = beam_search(step_whole, *begin_whole(), 8, width=3, end=1)
    assert torch.equal(cached[0], whole[0])
    torch.testing.assert_close(cached[1], whole[1], **EXACT)
    greedy = generate(net.step, *net.begin(memory, mask), 8, take_likeliest, end=1)
    plain = generate(step_whole, *begin_whole(), 8, take_likeliest, end=1)
    assert torch.equal(greedy[0], plain[0])
    torch.testing.assert_close(greedy[1], plain[1], **EXACT)


def test_weights_of_every_layer_are_recorded():
    net = Translator(PreNormDecoderLayer)
    mask = padding_mask(torch.tensor([5, 2]), 5)
    with record_weights(net) as found:
        net(torch.zeros(2, 3, dtype=torch.long), torch.randn(2, 5, 8), mask)
    assert list(found) == [
        f"layers.{n}.{kind}_attention" for n in (0, 1) for kind in ("self", "cross")
    ]
    assert not found["layers.0.self_attention"][0].triu(1).any()
    assert not found["layers.1.cross_attention"][0][1, :, :, 2:].any()
