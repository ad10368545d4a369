"""The transformer: its counts, torch's own stack, padding, cached decoding, positions."""

import pytest
import torch
from torch import nn

from everynet.recipes.catalog import find
from everynet.recipes.settings import override
from everynet.system.errors import UserError
from everynet.zoo.transformer.transformer import PreNormTransformer, Transformer

START = 2
SIZES = {"hidden_size": 8, "heads": 2, "feedforward_size": 12, "layers": 2, "context": 12}


def make(kind=Transformer, vocabulary=11):
    torch.manual_seed(0)
    return kind(vocabulary, **SIZES).double().eval()


def count(net):
    return sum(weight.numel() for weight in net.parameters())


@pytest.mark.covers("T8")
def test_the_papers_base_network_has_63_082_496_weights():
    with torch.device("meta"):
        assert count(Transformer(37_000)) == 63_082_496
        assert count(PreNormTransformer(37_000)) == 63_082_496 + 2 * 2 * 512


def as_torch(net, norm_first):
    """torch's encoder and decoder with the same weights."""
    size = SIZES["hidden_size"], SIZES["heads"], SIZES["feedforward_size"], 0.0
    options = {"batch_first": True, "norm_first": norm_first, "dtype": torch.float64}
    stacks = []
    for theirs, ours, names in (
        (nn.TransformerEncoderLayer, net.encoder, {"self_attn": "attention"}),
        (
            nn.TransformerDecoderLayer,
            net.decoder,
            {"self_attn": "self_attention", "multihead_attn": "cross_attention"},
        ),
    ):
        layers = []
        for mine in ours:
            layer = theirs(*size, **options).eval()
            pairs = [(layer.linear1, mine.feedforward.inner)]
            pairs += [(layer.linear2, mine.feedforward.output)]
            around = [m for m in mine.children() if hasattr(m, "norm")]
            norms = [getattr(layer, f"norm{n + 1}") for n in range(len(around))]
            pairs += [(norm, one.norm) for norm, one in zip(norms, around, strict=True)]
            for their_name, our_name in names.items():
                attention, own = getattr(layer, their_name), getattr(mine, our_name)
                attention.in_proj_weight, attention.in_proj_bias = (
                    own.project.weight,
                    own.project.bias,
                )
                pairs.append((attention.out_proj, own.output))
            for one, other in pairs:
                one.weight, one.bias = other.weight, other.bias
            layers.append(layer)
        stacks.append(layers)
    return stacks


@pytest.mark.parametrize("kind", [Transformer, PreNormTransformer])
@pytest.mark.covers("T7", "T8")
def test_values_and_gradients_are_those_of_torchs_layers(kind):
    net = make(kind)
    x, lengths = torch.randint(4, 11, (3, 6)), torch.tensor([6, 3, 5])
    before = torch.randint(4, 11, (3, 4))
    padding = torch.arange(6) >= lengths[:, None]
    encoder, decoder = as_torch(net, kind is PreNormTransformer)
    h, s = net.embed(x), net.embed(before)
    for layer in encoder:
        h = layer(h, src_key_padding_mask=padding)
    h = net.encoder_norm(h)
    past = nn.Transformer.generate_square_subsequent_mask(4, dtype=torch.float64)
    for layer in decoder:
        s = layer(s, h, tgt_mask=past, memory_key_padding_mask=padding)
    expected = net.decoder_norm(s) @ net.embedding.weight.T
    found = net(x, lengths, before)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    weights = [*net.parameters()]
    ours = torch.autograd.grad(found.square().sum(), weights)
    theirs = torch.autograd.grad(expected.square().sum(), weights)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.covers("T3")
def test_padding_and_the_other_sentences_of_a_batch_change_nothing():
    net, lengths = make(), torch.tensor([3, 6, 1])
    x, before = torch.randint(4, 11, (3, 6)), torch.randint(4, 11, (3, 4))
    together = net(x, lengths, before)
    for row, length in enumerate(lengths):
        one = slice(row, row + 1)
        alone = net(x[one, :length], lengths[one], before[one])
        torch.testing.assert_close(together[one], alone)


@pytest.mark.parametrize("kind", [Transformer, PreNormTransformer])
@pytest.mark.covers("R32")
def test_writing_with_a_cache_has_the_logits_of_teacher_forcing(kind):
    net, lengths = make(kind), torch.tensor([3, 5])
    x, before = torch.randint(4, 11, (2, 5)), torch.randint(4, 11, (2, 6))
    state, found = net.begin(x, lengths), []
    for token in before.unbind(1):
        logits, state = net.step(token, state)
        found.append(logits)
    torch.testing.assert_close(torch.stack(found, 1), net(x, lengths, before))


@pytest.mark.covers("R32")
def test_a_batch_is_written_as_its_sentences_alone():
    net, lengths = make(), torch.tensor([3, 5, 1])
    x = torch.randint(4, 11, (3, 5))
    for beam in (1, 3):
        tokens, scores = net.write(x, lengths, 6, beam)
        for row, length in enumerate(lengths):
            one = slice(row, row + 1)
            alone, score = net.write(x[one, :length], lengths[one], 6, beam)
            assert tokens[row, : alone.shape[1]].tolist() == alone[0].tolist()
            torch.testing.assert_close(scores[one], score)


@pytest.mark.covers("T4")
def test_alignment_rows_are_attention_to_the_words_of_the_source():
    net, lengths = make(), torch.tensor([3, 5])
    x, before = torch.randint(4, 11, (2, 5)), torch.randint(4, 11, (2, 4))
    alpha = net.align(x, lengths, before)
    assert alpha.shape == (2, 4, 5)
    torch.testing.assert_close(alpha.sum(2), torch.ones(2, 4, dtype=torch.float64))
    assert not alpha[0, :, 3:].any()


def test_a_sentence_beyond_the_context_is_one_line_and_none_is_written():
    recipe = find("transformer").tiny()
    with pytest.raises(
        UserError, match=r"context \(9\) must be 14 or more, the longest of the data"
    ):
        override(recipe, {"context": 9}).dataset()
    recipe = override(recipe, {"context": 14})
    data = recipe.dataset()
    net = recipe.model(data).eval()
    with pytest.raises(
        UserError, match=r"a sentence \(15 tokens\) must have at most 14, .* context=15"
    ):
        recipe.predict(net, [torch.full((15,), 5)], data.spec)
    with torch.no_grad():
        tokens, _ = net.write(torch.full((1, 12), 5), torch.tensor([12]), 1000)
    assert tokens.shape[1] <= 14


def test_two_vocabularies_are_one_line():
    with pytest.raises(UserError, match=r"shared_vocabulary \(False\) must be true: both share an"):
        override(find("transformer"), {"shared_vocabulary": False})
