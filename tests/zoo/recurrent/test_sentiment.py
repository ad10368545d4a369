"""Classes of texts: the pools in closed form, unequal lengths, word dropout, what words say."""

import math
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import nn

from everynet import runs
from everynet.data.texts.tokens import Tokens
from everynet.recipes.catalog import find
from everynet.system.errors import UserError
from everynet.training.loop import begin, train
from everynet.zoo.recurrent.classified import Words, effects, log_odds, log_probabilities
from everynet.zoo.recurrent.sentiment import POOLS, Sentiment

LENGTHS = torch.tensor([4, 7, 1])


@cache
def phrases():
    return Sentiment().dataset()


def network(pool="last"):
    recipe, data = Sentiment(pool=pool, embedding=4, hidden_size=3), phrases()
    torch.manual_seed(0)
    return recipe, recipe.model(data).double().eval(), data


# ------------------------------------------------------------------------------------- equations


@pytest.mark.covers("R14")
@pytest.mark.parametrize("pool", POOLS)
def test_the_network_is_its_equations(pool):
    _, model, _ = network(pool)
    x = torch.randint(4, 40, (3, 7))
    v = []
    for row, length in enumerate(LENGTHS.tolist()):
        words = model.words.vectors.weight[x[row, :length]][None]
        a = model.reader.onward.layer(words)[0][0]
        b = model.reader.backward.layer(words.flip(1))[0][0].flip(0)
        h = torch.cat([a, b], 1)
        pooled = {
            "last": torch.cat([a[-1], b[0]]),
            "mean": h.sum(0) / length,
            "max": h.max(0).values,
        }
        v.append(pooled[pool])
    expected = torch.stack(v) @ model.output.weight.T + model.output.bias
    torch.testing.assert_close(model(x, LENGTHS), expected)


def test_the_two_readers_have_weights_of_their_own():
    _, model, _ = network()
    ways = (model.reader.onward, model.reader.backward)
    for one, other in zip(*(way.layer.parameters() for way in ways), strict=True):
        assert one is not other
        assert not torch.equal(one, other)


@pytest.mark.covers("R14")
@pytest.mark.parametrize("pool", POOLS)
def test_filler_and_company_change_nothing(pool):
    _, model, _ = network(pool)
    x = torch.randint(4, 40, (3, 7))
    together = model(x, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = model(x[row : row + 1, :length], LENGTHS[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-12, atol=1e-12)
    longer = torch.cat([x, torch.randint(4, 40, (3, 5))], 1)
    torch.testing.assert_close(model(longer, LENGTHS), together, rtol=1e-12, atol=1e-12)


def test_pools_of_states_that_are_known():
    states = torch.arange(24.0).view(1, 6, 4).repeat(2, 1, 1)
    lengths = torch.tensor([3, 6])
    last, mean, most = (POOLS[name]()(states, lengths) for name in ("last", "mean", "max"))
    assert last.tolist() == [[8, 9, 2, 3], [20, 21, 2, 3]]
    assert mean.tolist() == [[4, 5, 6, 7], [10, 11, 12, 13]]
    assert most.tolist() == [[8, 9, 10, 11], [20, 21, 22, 23]]
    below = -states - 1
    assert POOLS["max"]()(below, lengths).tolist() == [[-1, -2, -3, -4]] * 2, "filler is no 0"


def test_word_dropout_makes_words_unknown_in_training_alone():
    words = Words(20, 3, word_dropout=0.5, dropout=0.0)
    x = torch.randint(4, 20, (50, 40))
    x[:, 30:] = 0
    unknown, pad = words.vectors.weight[1], words.vectors.weight[0]
    torch.manual_seed(0)
    found = words(x)
    replaced = (found == unknown).all(2)
    kept = (found == words.vectors.weight[x]).all(2)
    assert (replaced | kept).all()
    share = replaced[:, :30].double().mean().item()
    assert abs(share - 0.5) < 4 * math.sqrt(0.25 / 1500)
    assert not pad.any()
    assert not found[:, 30:].any(), "what fills a text up is never dropped"
    assert torch.equal(words.eval()(x), words.vectors.weight[x])


def test_order_is_kept():
    """Unlike in a bag: "dog chases cat" and "cat chases dog" are two texts."""
    for pool in POOLS:
        _, model, _ = network(pool)
        one, other = torch.tensor([[5, 6, 7]]), torch.tensor([[7, 6, 5]])
        lengths = torch.tensor([3])
        assert not torch.allclose(model(one, lengths), model(other, lengths))


# ---------------------------------------------------------------------------------- what is asked


class Sum(nn.Module):
    """Scores that are sums over words: what a word says is known."""

    weights = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)).double()

    def forward(self, x, lengths):
        real = torch.arange(x.shape[1]) < lengths[:, None]
        return (self.weights[x] * real[:, :, None]).sum(1)


def test_log_odds_are_those_of_the_softmax():
    z = torch.randn(4, 3).double()
    p = z.softmax(1)
    for label in range(3):
        expected = (p[:, label] / (1 - p[:, label])).log()
        torch.testing.assert_close(log_odds(z.log_softmax(1), label), expected)


def test_what_a_word_says_is_the_change_without_it():
    text, label = torch.tensor([4, 9, 17, 5]), 1
    said, effect = effects(Sum(), text, label)
    z = Sum.weights[text].sum(0)
    torch.testing.assert_close(said, z.log_softmax(0))

    def odds(scores):
        p = scores.softmax(0)[label]
        return (p / (1 - p)).log()

    for t, word in enumerate(text):
        without = z - Sum.weights[word] + Sum.weights[1]
        torch.testing.assert_close(effect[t], odds(z) - odds(without))
    likeliest, its = effects(Sum(), text)
    assert torch.equal(its, effects(Sum(), text, int(likeliest.argmax()))[1])


def test_many_texts_of_any_length_are_asked_about(monkeypatch):
    monkeypatch.setattr("everynet.zoo.recurrent.classified.AT_ONCE", 3)
    texts = [torch.randint(4, 20, (n,)) for n in (3, 1, 6, 2, 4)]
    found = log_probabilities(Sum(), texts)
    for text, its in zip(texts, found, strict=True):
        torch.testing.assert_close(its, Sum.weights[text].sum(0).log_softmax(0))


def test_predictions_name_class_probability_and_words():
    recipe, model, data = network()
    tokens = Tokens.of(data.spec)
    lines = [torch.tensor(tokens.encode(t)) for t in ("the film was not good", "zzz", "the film")]
    said = recipe.predict(model, lines, data.spec, words=2)
    for one, line in zip(said, lines, strict=True):
        p = model(line[None], torch.tensor([len(line)]))[0].softmax(0)
        assert one["class"] == data.spec["classes"][p.argmax()]
        assert one["probability"] == pytest.approx(p.max().item())
        _, effect = effects(model, line)
        best = {
            tokens.vocabulary[line[t]]: effect[t].item() for t in effect.argsort()[-2:].tolist()
        }
        assert one["words"] == {w: pytest.approx(e, abs=1e-4) for w, e in best.items() if e > 0}
    assert [one["unknown"] for one in said] == [0, 1, 0]
    assert recipe.predict(model, lines, data.spec, words=0)[0]["words"] == {}
    with pytest.raises(UserError, match=r"words \(-1\) must be at least 0"):
        recipe.predict(model, lines, data.spec, words=-1)


def test_pictures_of_a_text_with_a_not_show_it_without_too():
    recipe, data = find("sentiment").tiny(), phrases()
    model = recipe.model(data).eval()
    with torch.no_grad():
        drawn, said = recipe.picture_along(model, data, [])
    first, second = ([t.get_text() for t in axes.get_xticklabels()] for axes in drawn.axes)
    assert "not" in first
    assert second == [word for word in first if word != "not"]
    values, without = (axes.lines[1].get_ydata() for axes in drawn.axes)
    assert said["ends"] == f"{values[-1]:.1%} with it and {without[-1]:.1%} without"
    tokens = Tokens.of(data.spec)
    text = torch.tensor(tokens.encode(" ".join(first)))
    with torch.no_grad():
        for t, value in enumerate(values):
            p = model(text[None, : t + 1], torch.tensor([t + 1])).softmax(1)[0, -1]
            assert value == pytest.approx(p.item(), abs=1e-6)


# ---------------------------------------------------------------------------------------- recipe


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"pool": "middle"}, r"unknown pool 'middle'"),
        ({"hidden_size": 0}, r"hidden_size \(0\) must be at least 1"),
        ({"embedding": 0}, r"embedding \(0\) must be at least 1"),
        ({"dropout": 1.0}, r"dropout \(1.0\) must be at least 0 and below 1"),
        ({"word_dropout": -0.1}, r"word_dropout \(-0.1\) must be at least 0 and below 1"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("sentiment"), **fields)


def test_data_it_refuses():
    with pytest.raises(UserError, match=r"must be texts with a class each: .* looks like pairs"):
        replace(find("sentiment"), data="reversal").dataset()


def test_classes_may_be_more_than_two(tmp_path):
    lines = [f"{'abc'[n % 3]}\tword{n % 3} number {n}" for n in range(60)]
    (tmp_path / "mine.tsv").write_text("\n".join(lines))
    recipe = replace(find("sentiment").tiny(), data=str(tmp_path / "mine.tsv"))
    data = recipe.dataset()
    state = begin(recipe, data)
    for record in train(recipe, state, data):
        assert record.terms["cross_entropy"].isfinite()
    assert state.model.output.out_features == 3
    with torch.no_grad():
        drawn = recipe.draw(state.model.eval(), data, [])
    assert drawn.keys() == recipe.picture_names().keys()
    assert len(drawn["along"].figure.axes) == 1, "where no text holds a not, one is shown"


# -------------------------------------------------------------------------------------- learning


@pytest.mark.slow
@pytest.mark.covers("R14")
def test_learns_phrases(tmp_path):
    result = runs.run(find("sentiment"), tmp_path)
    assert result.reached, result.metrics


@pytest.mark.slow
@pytest.mark.covers("R14")
@pytest.mark.real_data
def test_learns_sst(tmp_path):
    result = runs.run(find("sentiment-sst"), tmp_path)
    assert result.reached, result.metrics
