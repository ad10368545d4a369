"""The neural language model against its equations, the rows it learns from, and what it says."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import everynet
from everynet.data.kinds import named
from everynet.data.texts.tokens import Tokens
from everynet.recipes.catalog import find
from everynet.system.errors import UserError
from everynet.training.loop import begin, evaluate
from everynet.zoo.language.neural_lm import NeuralLM, contexts
from everynet.zoo.language.ngram_model import NGram


def network(context=3, dropout=0.0):
    torch.manual_seed(0)
    return NeuralLM(7, 5, context=context, embedding_size=4, dropout=dropout).double()


def test_it_is_its_equations_in_numpy():
    net = network()
    s = torch.tensor([[1, 2, 6], [0, 0, 3]])
    c, h, d, u, b = (p.detach().numpy() for p in net.parameters())
    for row, found in zip(s.tolist(), net(s).detach().numpy(), strict=True):
        x = np.concatenate([c[word] for word in row])
        np.testing.assert_allclose(found, u @ np.tanh(h @ x + d) + b, rtol=1e-12)


def test_dropout_acts_on_vectors_and_hidden_units_in_training_alone():
    """With U = 0 or C = 0 nothing is left to drop, so that each of the two places is seen."""
    for silent in ("hidden", "output"):
        net = network(dropout=0.5)
        with torch.no_grad():
            getattr(net, silent).weight.zero_()
        s = torch.tensor([[1, 2, 6]])
        assert torch.equal(net.eval()(s), net(s))
        drawn = [net.train()(s) for _ in range(8)]
        varies = any(not torch.equal(drawn[0], one) for one in drawn)
        assert varies == (silent == "hidden")  # tanh(d) is dropped still, nothing is left of U h


def test_contexts_are_the_words_before():
    found = contexts(torch.tensor([5, 6, 7, 8]), 3, 0)
    assert found.tolist() == [[0, 0, 0], [0, 0, 5], [0, 5, 6], [5, 6, 7]]


@pytest.fixture(scope="module")
def made():
    recipe = find("neural-lm").tiny()
    data = recipe.dataset()
    state = begin(recipe, data)
    return recipe, state.model.eval(), data


def test_every_word_of_a_split_is_scored_once(made):
    """The same words as an n-gram model scores, so that perplexities can be compared."""
    recipe, model, data = made
    whole = find("ngram").tiny()
    (stream,) = replace(whole, vocabulary=recipe.vocabulary).dataset().splits["test"]
    assert torch.equal(data.splits["test"][1], stream)
    with torch.no_grad():
        nats = torch.cat([recipe.metrics(model, batch)["cross_entropy"] for batch in data.test])
    assert len(nats) == len(stream)
    found = evaluate(recipe, model, data.test)
    assert found["perplexity"] == pytest.approx(math.exp(nats.double().mean()), rel=1e-6)


def test_the_loss_is_the_mean_of_what_each_word_costs(made):
    recipe, model, data = made
    with torch.no_grad():
        s, word = data.train(0)
        loss = recipe.objective(model, (s, word))["cross_entropy"]
        each = -model(s).log_softmax(1)[torch.arange(len(word)), word]
    torch.testing.assert_close(loss, each.mean())
    torch.testing.assert_close(recipe.metrics(model, (s, word))["cross_entropy"], each)


@pytest.mark.covers("R25")
def test_a_network_of_zeros_is_uniform(made):
    recipe, _, data = made
    model = recipe.model(data)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    found = evaluate(recipe, model.eval(), data.test)
    assert found["perplexity"] == pytest.approx(200, rel=1e-5)


def asked(data, tmp_path, text):
    (tmp_path / "asked.txt").write_text(text)
    return named("text").read([tmp_path / "asked.txt"], data.spec)[1]


def test_lines_are_scored_and_gaps_filled(made, tmp_path):
    recipe, model, data = made
    tokens = Tokens.of(data.spec)
    end = tokens.index["\n"]
    inputs = asked(data, tmp_path, "the value of\nthe ___ of a\n")
    with torch.no_grad():
        first, second = recipe.predict(model, inputs, data.spec)
        row = [end, end, *inputs[0].tolist(), end]
        wanted = [
            model(torch.tensor([row[t - 2 : t]])).log_softmax(1)[0, row[t]].item()
            for t in range(2, len(row))
        ]
        assert [word for word, _ in first["words"]] == ["the", "value", "of", "</s>"]
        assert [p for _, p in first["words"]] == pytest.approx(wanted, rel=1e-5)
        assert first["perplexity"] == pytest.approx(math.exp(-np.mean(wanted)), rel=1e-5)
        best = second["candidates"][0]
        lines = [f"the {w} of a" for w in tokens.vocabulary if w not in ("<unknown>", "\n")]
        scores = recipe.predict(model, asked(data, tmp_path, "\n".join(lines)), data.spec)
    nats = torch.tensor([s["cross_entropy"] * 5 for s in scores]).double()
    assert second["filled"] == f"the {best[0]} of a" == lines[nats.argmin()]
    assert best[1] == pytest.approx((-nats).softmax(0).max().item(), rel=1e-4)


def test_text_is_written_word_by_word(made):
    recipe, model, data = made
    with torch.no_grad():
        texts = recipe.sample(model, data.spec, torch.Generator().manual_seed(0), prompt="the",
                              n=2, length=5)  # fmt: skip
    assert len(texts) == 2
    assert all(text.startswith("the") and "\N{REPLACEMENT CHARACTER}" not in text for text in texts)


def test_a_word_follows_from_as_many_words_as_the_context_holds(made):
    """The loop written out, with torch.multinomial; the end of a line stands before the text."""
    recipe, model, data = made
    tokens, context = Tokens.of(data.spec), recipe.order - 1
    texts = torch.tensor([[tokens.index["\n"]] * context + tokens.encode("the")] * 3)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for _ in range(8):
            logits = model(texts[:, -context:]).double() / 0.9
            logits[:, tokens.index["<unknown>"]] = -math.inf
            word = torch.multinomial(logits.softmax(1), 1, generator=generator)
            texts = torch.cat([texts, word], 1)
        found = recipe.sample(
            model, data.spec, generator.manual_seed(2), prompt="the", temperature=0.9, length=8
        )
        only = recipe.sample(
            model, data.spec, generator, prompt="the", temperature=9.0, top_k=1, n=5, length=3
        )
    assert found == [tokens.decode(row) for row in texts[:, context:].tolist()]
    assert len({*only}) == 1


def test_what_cannot_be_is_one_line(made, tmp_path):
    recipe, model, data = made
    for setting, why in (
        ({"order": 1}, r"order \(1\) must be at least 2"),
        ({"hidden_size": 0}, r"hidden_size \(0\) must be at least 1"),
        ({"embedding_size": 0}, r"embedding_size \(0\) must be at least 1"),
        ({"dropout": 1.0}, r"dropout \(1.0\) must be at least 0 and below 1"),
    ):
        with pytest.raises(UserError, match=why):
            replace(recipe, **setting)
    (tmp_path / "one.txt").write_text("word word word\n" * 100)
    with pytest.raises(UserError, match=r"one.txt\) must hold at least 2 different words"):
        replace(recipe, data=str(tmp_path / "one.txt")).dataset()
    with pytest.raises(UserError, match="one ___ to be filled, but holds 2"):
        recipe.predict(model, asked(data, tmp_path, "the ___ of ___\n"), data.spec)
    with pytest.raises(UserError, match=r"candidates \(0\) must be from 1"):
        recipe.predict(model, [], data.spec, candidates=0)
    for setting, why in (
        ({"prompt": "xyzzy"}, r"prompt \(xyzzy\) must hold words of the training text"),
        ({"prompt": ""}, r"prompt \(\) must hold at least one token"),
        ({"temperature": 0.0}, r"temperature \(0.0\) must be above 0"),
        ({"prompt": "the", "n": 0}, r"n \(0\) must be at least 1"),
        ({"prompt": "the", "length": 0}, r"length \(0\) must be at least 1"),
    ):
        with pytest.raises(UserError, match=why):
            recipe.sample(model, data.spec, torch.Generator(), **{"prompt": "the", **setting})


@pytest.mark.slow
@pytest.mark.covers("R24")
def test_it_beats_the_trigrams_of_the_same_text(tmp_path):
    result = everynet.run(find("neural-lm"), tmp_path, device="cpu")
    assert result.reached
    data = replace(find("ngram"), order=3).dataset()
    words = data.spec["tokens"]["vocabulary"]
    trigrams = NGram(3).fit(data.splits["train"][0], vocabulary=words)
    assert result.metrics["perplexity"] < trigrams.perplexity(data.splits["test"][0])


@pytest.mark.slow
def test_n_grams_reach_their_goal(tmp_path):
    assert everynet.run(find("ngram"), tmp_path, device="cpu").reached
