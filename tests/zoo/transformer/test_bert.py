"""BERT: its counts, plain torch beside it, masks, segments, published names, gaps, bad input."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import everynet
from everynet import runs
from everynet.cli import main
from everynet.data.kinds.text import KIND
from everynet.data.texts.given import BERT as SPECIAL
from everynet.data.texts.tokens import Tokens
from everynet.nn.transformer import EncoderLayer
from everynet.recipes.catalog import find
from everynet.recipes.settings import override
from everynet.runs.job import Job
from everynet.system.errors import UserError
from everynet.zoo.transformer.bert import (
    BERT,
    BERTClassification,
    BERTClassifier,
    BERTLayer,
    MaskedTokens,
    PretrainingBERT,
    choose_places,
    fill_gap,
    mask_tokens,
    pair_segments,
)

SIZES = {"hidden_size": 8, "heads": 2, "feedforward_size": 12, "layers": 2, "context": 12}
LENGTHS = torch.tensor([9, 4, 7])


def make(kind=PretrainingBERT, *more):
    """A small network whose biases and norms are no zeros and ones."""
    torch.manual_seed(0)
    net = kind(23, *more, **SIZES).double().eval()
    with torch.no_grad():
        for weight in net.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.2)
    return net


def texts():
    x = torch.randint(5, 23, (3, 9), generator=torch.Generator().manual_seed(1))
    return x, (torch.arange(9) > 4).long().expand(3, -1).contiguous()


# -------------------------------------------------------------------------------------- equations


@pytest.mark.covers("T12")
def test_the_papers_base_network_has_109_482_240_weights_and_its_heads_624_188():
    with torch.device("meta"):
        counts = [
            sum(w.numel() for w in net(30_522).parameters()) for net in (BERT, PretrainingBERT)
        ]
    assert counts == [109_482_240, 110_106_428]


def by_torch(net, x, segments, lengths):
    """The outputs by torch's own layers, and everything else written out."""
    e = net.embedding.weight
    h = e[x] + net.positions.table[: x.shape[1]] + net.segments.weight[segments]
    h = normed(h, net.norm)
    for own in net.layers:
        layer = nn.TransformerEncoderLayer(
            8, 2, 12, 0.0, "gelu", layer_norm_eps=1e-12, batch_first=True, dtype=torch.float64
        )  # in training mode: the fast path of torch has other gradients
        attention = layer.self_attn
        attention.in_proj_weight, attention.in_proj_bias = (
            own.attention.project.weight,
            own.attention.project.bias,
        )
        for theirs, ours in (
            (attention.out_proj, own.attention.output),
            (layer.linear1, own.feedforward.inner),
            (layer.linear2, own.feedforward.output),
            (layer.norm1, own.around_attention.norm),
            (layer.norm2, own.around_feedforward.norm),
        ):
            theirs.weight, theirs.bias = ours.weight, ours.bias
        h = layer(h, src_key_padding_mask=torch.arange(x.shape[1]) >= lengths[:, None])
    c = (h[:, 0] @ net.pooler.weight.T + net.pooler.bias).tanh()
    v = h @ net.guess_inner.weight.T + net.guess_inner.bias
    v = normed(v * (1 + torch.erf(v / 2**0.5)) / 2, net.guess_norm)
    return v @ e.T + net.guess_bias, c @ net.follows.weight.T + net.follows.bias


def normed(x, norm):
    centred = x - x.mean(-1, keepdim=True)
    scale = (centred.square().mean(-1, keepdim=True) + 1e-12).sqrt()
    return centred / scale * norm.weight + norm.bias


@pytest.mark.covers("T12")
def test_values_and_gradients_are_those_of_torchs_layers():
    net, (x, segments) = make(), texts()
    inside = torch.arange(9) < LENGTHS[:, None]
    y = torch.tensor([0, 1, 1])
    made = []
    for guesses, follows in (net(x, LENGTHS, segments), by_torch(net, x, segments, LENGTHS)):
        loss = cross_entropy(guesses[inside], x[inside]) + cross_entropy(follows, y)
        gradients = torch.autograd.grad(loss, [*net.parameters()])
        made.append((guesses[inside], follows, *gradients))
    for ours, theirs in zip(*made, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_a_layer_has_the_exact_gelu_and_the_papers_eps_and_no_other_has():
    x = torch.linspace(-3, 3, 13).double()
    assert torch.equal(BERTLayer.activation(x), nn.functional.gelu(x, approximate="none"))
    layer = BERTLayer(8, 2, 12)
    assert layer.around_attention.norm.eps == layer.around_feedforward.norm.eps == 1e-12
    assert EncoderLayer(8, 2, 12).around_attention.norm.eps == 1e-5
    assert PretrainingBERT(5, **SIZES).guess_norm.eps == 1e-12


@pytest.mark.covers("T12")
def test_padding_and_the_other_texts_of_a_batch_change_nothing():
    net, (x, segments) = make(), texts()
    guesses, follows = net(x, LENGTHS, segments)
    classifier = make(BERTClassifier, 3)
    classes, vectors = classifier(x, LENGTHS), classifier.vectors(x, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        one, each = slice(row, row + 1), LENGTHS[row : row + 1]
        alone = net(x[one, :length], None, segments[one, :length])
        torch.testing.assert_close(guesses[one, :length], alone[0], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(follows[one], alone[1], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(classes[one], classifier(x[one, :length], each))
        torch.testing.assert_close(vectors[one], classifier.vectors(x[one, :length], each))


@pytest.mark.covers("T12")
def test_a_classifier_reads_cls_text_sep_and_a_pair_has_two_segments():
    net, (x, _) = make(BERTClassifier, 3), texts()
    row = torch.cat([torch.tensor([2]), x[1, :4], torch.tensor([3])])[None]
    h, c = net.encode(row)
    torch.testing.assert_close(net(x, LENGTHS)[1:2], net.classifier(c))
    torch.testing.assert_close(net.vectors(x, LENGTHS)[1:2], h[:, 1:5].mean(1))
    pair, segments = net.join(x[:1, :2], x[:1, 2:5])
    assert pair.tolist() == [[2, *x[0, :2].tolist(), 3, *x[0, 2:5].tolist(), 3]]
    assert segments.tolist() == [[0, 0, 0, 0, 1, 1, 1, 1]]
    given = [net.encode(pair, segments=s)[1] for s in (segments, None)]
    assert not torch.allclose(*given)


# ------------------------------------------------------------------------------ masks and segments


@pytest.mark.covers("T12")
def test_shares_of_masks_within_half_a_percent():
    """15 % of the tokens: of these 80 % become the mask, 10 % another token, 10 % stay."""
    torch.manual_seed(0)
    x = torch.randint(5, 10_000, (2000, 100))
    x[:, 0], allowed = 2, torch.ones(2000, 100, dtype=torch.bool)
    allowed[:, 0] = False
    count = round(0.15 * 2000 * 99)
    places = choose_places(torch.rand(x.shape), allowed, count)
    assert len(places.unique()) == count
    assert allowed.flatten()[places].all()
    masked, true = mask_tokens(x, places, 4, 10_000), x.flatten()[places]
    given = masked.flatten()[places]
    shares = [(given == 4), (given != true) & (given != 4), (given == true)]
    for share, expected in zip(shares, (0.8, 0.1, 0.1), strict=True):
        assert share.double().mean().item() == pytest.approx(expected, abs=0.005)
    others = torch.ones(x.numel(), dtype=torch.bool).index_fill(0, places, False).view_as(x)
    assert torch.equal(masked[others], x[others])
    by_column = torch.zeros(x.numel()).index_fill(0, places, 1.0).view_as(x).mean(0)[1:]
    assert (by_column - 0.15).abs().max() < 5 * (0.15 * 0.85 / 2000) ** 0.5


@pytest.mark.covers("T12")
def test_a_segment_follows_or_is_that_of_another_window():
    windows = torch.arange(24).view(4, 6)
    follows = torch.tensor([True, False, False, True])
    a, b, other = pair_segments(windows, follows)
    assert torch.equal(a, windows[:, :3])
    assert torch.equal(b, windows[[0, 3, 0, 3], 3:])
    assert other.tolist() == [0, 1, 1, 0]
    same = pair_segments(windows[:1], torch.tensor([False]))
    assert same[2].tolist() == [0], "alone in its batch it has no other"


@pytest.mark.covers("T12")
def test_half_of_the_pairs_follow_and_unknown_tokens_are_never_masked(monkeypatch):
    recipe, _, model = built()
    seen = []
    encode = PretrainingBERT.encode
    monkeypatch.setattr(
        PretrainingBERT, "encode", lambda net, x, **given: seen.append(x) or encode(net, x, **given)
    )
    torch.manual_seed(0)
    windows = torch.randint(5, 300, (2000, 12))
    windows[:, 3] = model.unknown
    terms = recipe.objective(model, (windows,))
    assert terms.keys() == {"masked", "next"}
    (x,) = seen
    assert (x[:, 4] == model.unknown).all()
    assert (x[:, 0] == model.start).all()
    assert (x[:, [7, 14]] == model.end).all()
    share = (x == model.mask).double().sum() / (2000 * 12)
    assert share == pytest.approx(0.8 * 0.15, abs=0.005)


def test_the_objective_is_the_two_cross_entropies(monkeypatch):
    """With nothing random: all pairs follow, and all chosen tokens are masked."""
    recipe, _, model = built()
    windows = torch.arange(5, 101).view(8, 12)
    scores = torch.linspace(0, 0.4, 8 * 15).view(8, 15)
    drawn = {8: torch.zeros(8), 120: scores, 14: torch.zeros(14)}
    monkeypatch.setattr(
        torch,
        "rand",
        lambda *s, **_: drawn[torch.Size(s[0] if isinstance(s[0], torch.Size) else s).numel()],
    )
    found = recipe.objective(model, (windows,))
    x, segments = model.join(*windows.chunk(2, 1))
    words = [n for n in range(120) if n % 15 not in (0, 7, 14)][-14:]
    masked = x.flatten().index_fill(0, torch.tensor(words), 4).view_as(x)
    guesses, follows = model(masked, None, segments)
    torch.testing.assert_close(
        found["masked"], cross_entropy(guesses.flatten(0, 1)[words], x.flatten()[words])
    )
    torch.testing.assert_close(found["next"], cross_entropy(follows, torch.zeros(8).long()))


# ----------------------------------------------------------------------------------- the recipes


@cache
def built(name="bert"):
    recipe = find(name).tiny()
    data = recipe.dataset()
    torch.manual_seed(0)
    return recipe, data, recipe.model(data).eval()


@pytest.mark.covers("T12")
def test_metrics_are_the_same_each_time_and_the_unigram_is_the_commonest_token():
    recipe, data, model = built()
    batch = next(data.valid)
    first, second = (recipe.metrics(model, batch) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    outputs = {
        "masked_accuracy": torch.tensor([1.0, 0, 1, 1]), "token": torch.tensor([7, 7, 9, 5]),
        "next_accuracy": torch.tensor([1.0, 0]), "cross_entropy": torch.ones(4),
    }  # fmt: skip
    found = recipe.summarise(outputs)
    assert (found["unigram"], found["masked_accuracy"]) == (0.5, 0.75)
    assert (found["over_unigram"], found["next_accuracy"]) == (1.5, 0.5)


def test_windows_are_evaluated_whole_and_side_by_side():
    recipe, data, _ = built()
    stream = data.splits["valid"][0].long()
    found = torch.cat([batch[0] for batch in data.valid])
    assert torch.equal(found.flatten(), stream[: len(stream) // 12 * 12])
    assert data.train(0)[0].shape == (recipe.batch_size, 12)


@pytest.mark.covers("T12")
def test_a_gap_is_filled_with_probabilities_and_a_vector_is_given(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Job, "draw", lambda self, model: ())
    run = runs.run(replace(find("bert").tiny(), steps=2), tmp_path / "runs", device="cpu").folder
    trained = everynet.trained(run)
    (answer,) = trained.predict(["the ___ of the list"], candidates=3)
    assert len(answer["candidates"]) == 3
    p = [share for _, share in answer["candidates"]]
    assert p == sorted(p, reverse=True)
    assert 0 < sum(p) < 1
    best = answer["candidates"][0][0]
    assert answer["filled"].split()[:3] == ["the", best, "of"]
    line = trained.predict(["the ___ of the list"], embeddings=True)[0]["embedding"]
    assert len(line) == 8
    (said,) = trained.predict(["a list of names"], follows="is sorted here")
    assert 0 < said["follows"] < 1
    lines = tmp_path / "lines.txt"
    lines.write_text("the first line\nand one more, longer line\n")
    for name in ("a.npy", "a.csv"):
        out = ["predict", str(run), str(lines), "embeddings=true", "--out", str(tmp_path / name)]
        assert main(out) == 0
    vectors = np.load(tmp_path / "a.npy", allow_pickle=False)
    assert vectors.shape == (2, 8)
    head, first, _ = (tmp_path / "a.csv").read_text().splitlines()
    assert head.split(",")[3:11] == [f"embedding.{n}" for n in range(8)]
    np.testing.assert_allclose([*map(float, first.split(",")[3:11])], vectors[0], rtol=1e-5)
    capsys.readouterr()
    assert (
        main(["predict", str(run), str(lines), "follows=a b", "--out", str(tmp_path / "b.npy")])
        == 2
    )
    assert "must be of answers with vectors" in capsys.readouterr().err


def test_the_gap_is_guessed_from_the_head_at_its_place():
    _, data, model = built()
    tokens = Tokens.of(data.spec)
    line = torch.tensor(tokens.encode("a list of the names"))
    line[1] = -1
    x = torch.cat([torch.tensor([2]), torch.where(line < 0, 4, line), torch.tensor([3])])[None]
    logits = model(x)[0][0, 2].double()
    logits[:5] = -torch.inf
    torch.testing.assert_close(fill_gap(model, line, tokens), logits.softmax(0))


PUBLISHED = MaskedTokens.published, BERTClassification.published


def stored(net, pattern=PUBLISHED[0]):
    """The weights of a network under their published names."""
    found = {}
    for name, weight in net.state_dict().items():
        bare = name.split(".")
        layer = bare[1] if bare[0] == "layers" else "0"
        theirs = pattern.names[name.replace(f"layers.{layer}.", "layers.{n}.")]
        several = (theirs,) if isinstance(theirs, str) else theirs
        for one, part in zip(several, weight.chunk(len(several)), strict=True):
            found["bert." * (one[:3] not in ("cls", "cla")) + one.format(n=layer)] = part
    return found


@pytest.mark.covers("T12")
def test_published_names_old_ones_and_those_of_other_heads():
    net = make()
    tensors = stored(net)
    tensors["bert.embeddings.position_ids"] = torch.arange(12)[None]
    tensors["cls.predictions.decoder.weight"] = net.embedding.weight.detach()
    for ends in ({}, {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}):
        given = dict(tensors)
        for new, old in ends.items():
            given = {name.replace(new, old): tensor for name, tensor in given.items()}
        found = PUBLISHED[0].rename(given, 2)
        assert found.keys() == net.state_dict().keys()
        assert all(torch.equal(found[name], value) for name, value in net.state_dict().items())
    body = {n.removeprefix("bert."): t for n, t in tensors.items() if n.startswith("bert.")}
    bare = {name for name in net.state_dict() if not name.startswith(("guess", "follows"))}
    assert PUBLISHED[0].rename(body, 2).keys() == bare
    assert PUBLISHED[1].rename(tensors, 2).keys() == bare
    tensors |= stored(make(BERTClassifier, 3), PUBLISHED[1])
    assert PUBLISHED[1].rename(tensors, 2)["classifier.weight"].shape == (3, 8)
    assert "classifier.weight" not in PUBLISHED[0].rename(tensors, 2)
    config = {"model_type": "bert", "hidden_act": "gelu", "num_hidden_layers": 2, "hidden_size": 8}
    assert PUBLISHED[0].settings(config, "config.json") == {"layers": 2, "hidden_size": 8}
    with pytest.raises(UserError, match=r"hidden_act relu\) must have hidden_act gelu"):
        PUBLISHED[0].settings(config | {"hidden_act": "relu"}, "config.json")


# -------------------------------------------------------------------------------- from run to run


@pytest.fixture
def pretrained(tmp_path, monkeypatch):
    monkeypatch.setattr(Job, "draw", lambda self, model: ())
    recipe = override(find("bert").tiny(), {"context": 64, "steps": 2})
    return runs.run(recipe, tmp_path / "runs", device="cpu").folder


@pytest.mark.covers("T12")
def test_a_classifier_begins_from_a_run_with_its_vocabulary(tmp_path, pretrained):
    recipe = override(find("bert-sst").tiny(), {"start": str(pretrained), "heads": 2, "lr": 1e-30})
    run = runs.run(replace(recipe, steps=2), tmp_path / "runs", device="cpu").folder
    old, new = everynet.trained(pretrained), everynet.trained(run)
    assert Tokens.of(new.spec) == Tokens.of(old.spec)
    body = {n for n in old.model.state_dict() if not n.startswith(("guess", "follows"))}
    for name in body:
        torch.testing.assert_close(new.model.state_dict()[name], old.model.state_dict()[name])
    (answer,) = new.predict(["a good film"])
    assert answer["class"] in answer["probabilities"]
    assert len(new.predict(["a good film"], embeddings=True)[0]["embedding"]) == 8
    scratch = override(find("bert-sst").tiny(), {"tokens": str(pretrained)})
    assert Tokens.of(scratch.dataset().spec) == Tokens.of(old.spec)
    named = override(find("bert-sst").tiny(), {"start": str(pretrained), "tokens": "words"})
    assert Tokens.of(named.dataset().spec).kind == "words"


def test_a_run_of_another_network_and_a_vocabulary_that_does_not_fit(tmp_path, pretrained):
    other = runs.run(replace(find("sentiment").tiny(), steps=2), tmp_path / "runs", device="cpu")
    begun = override(find("bert-sst").tiny(), {"start": str(other.folder)})
    with pytest.raises(UserError, match=r"start \(.*\) must hold weights that fit this network"):
        runs.run(begun, tmp_path / "runs", device="cpu")
    odd = tmp_path / "odd.tsv"
    odd.write_text(
        "".join(f"{'ab'[n % 2]}\t{'шщ'[n % 2]} {'я' * (n % 3 + 1)}\n" for n in range(60))
    )
    taught = override(find("sentiment").tiny(), {"data": str(odd)})
    words = runs.run(replace(taught, steps=2, batch_size=4), tmp_path / "runs", device="cpu")
    with pytest.raises(UserError, match=r"tokens must be a vocabulary of texts like"):
        override(find("bert").tiny(), {"tokens": str(words.folder), "vocabulary": 0}).dataset()
    with pytest.raises(UserError, match=r"vocabulary \(300\) must be 0, because a given one"):
        override(find("bert").tiny(), {"tokens": str(words.folder)}).dataset()


@pytest.mark.parametrize(
    ("given", "settings", "said"),
    [
        ("no gap here", {}, r"a line must hold one ___ to be filled, but holds 0"),
        ("two ___ of ___", {}, r"a line must hold one ___ to be filled, but holds 2"),
        ("a list", {"follows": "x"}, r"follows \(1 token\) must have at least 2, because one word"),
        ("x", {"follows": "a list"}, r"a line \(1 token\) must have at least 2"),
        ("a ___" + " list" * 30, {}, r"a text \(\d+ tokens, .*must have at most 32, the context"),
        ("a list" * 30, {"embeddings": True}, r"a text \(\d+ tokens, .*must have at most 32"),
        ("a ___", {"candidates": 0}, r"candidates \(0\) must be from 1 to the 295 tokens"),
    ],
)
def test_a_line_that_cannot_be_answered_is_one_line(given, settings, said):
    recipe, data, model = built()
    with pytest.raises(UserError, match=said):
        recipe.predict(model, KIND.convert([given], data.spec), data.spec, **settings)


def test_a_text_beyond_the_context_of_a_classifier_is_one_line():
    recipe, data, model = built("bert-sst")
    with pytest.raises(UserError, match=r"a text \(102 tokens, .*\) must have at most 64"):
        recipe.predict(model, [torch.full((100,), 5)], data.spec)
    with pytest.raises(UserError, match=r"context \(4\) must be \d+ or more, the longest"):
        override(recipe, {"context": 4}).dataset()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("context", 20, r"context \(20\) must be 51 or more: \[CLS\] a \[SEP\] b \[SEP\]"),
        ("segment", 1, r"segment \(1\) must be at least 2"),
        ("batch_size", 1, r"batch_size \(1\) must be at least 2"),
        ("dropout", 1.0, r"dropout \(1.0\) must be at least 0 and below 1"),
        ("layers", 0, r"layers \(0\) must be at least 1"),
    ],
)
def test_settings_that_cannot_be(name, value, said):
    with pytest.raises(UserError, match=said):
        MaskedTokens(**{name: value})


def test_a_text_too_short_for_two_segments_is_one_line(tmp_path):
    (tmp_path / "short.txt").write_text("some few words of a text " * 50)
    recipe = MaskedTokens(data=str(tmp_path / "short.txt"), vocabulary=270, segment=60, context=200)
    with pytest.raises(
        UserError, match=r"segment \(60\) must be at most \d+, so that a part holds"
    ):
        recipe.dataset()


# --------------------------------------------------------------------------------------- learning


@pytest.mark.slow
@pytest.mark.covers("T12")
def test_it_reaches_its_goal(tmp_path):
    result = runs.run(find("bert"), tmp_path, device="cpu")
    assert all(goal.reached(result.metrics) for goal in find("bert").goals())


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.covers("T12")
def test_real_texts_have_the_form_that_is_learned_from():
    recipe = find("bert-text8")
    data = recipe.dataset()
    (windows,) = data.train(0)
    assert windows.shape == (256, 74)
    words = [Tokens.of(data.spec).decode(row).split() for row in windows.tolist()]
    assert 30 < sum(map(len, words)) / len(words) / 2 < 36
    assert max(len(SPECIAL), int(windows.max())) < 16_000
    assert override(find("bert-sst"), {}).dataset().spec["classes"] == ["negative", "positive"]
