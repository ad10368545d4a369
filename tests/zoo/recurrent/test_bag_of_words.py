"""Bags of words against scikit-learn's, their gradient, order lost and kept, predictions."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import check_grad
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB

from everynet import runs as all_runs
from everynet.data.samplers import flattened
from everynet.data.texts.tokens import SENTENCE, Tokens
from everynet.recipes.catalog import find
from everynet.system.errors import UserError
from everynet.training.loop import evaluate
from everynet.zoo.recurrent.bag_of_words import (
    MOST_TOKENS,
    LogisticBag,
    NaiveBayes,
    decode_run,
    encode_runs,
)

WORDS = ("dog", "cat", "chases", "sees", "the", "a", "old", "small")


def made(count=60, classes=3, seed=0):
    """Texts of words, their classes, and both as numbers."""
    draw = np.random.default_rng(seed)
    texts = [" ".join(draw.choice(WORDS, size=draw.integers(1, 9))) for _ in range(count)]
    y = torch.tensor([n % classes for n in range(count)])
    tokens = Tokens("words", (*SENTENCE, *WORDS))
    return texts, y, tokens, flattened([tokens.encode(text) for text in texts])


def named(model, tokens):
    return [decode_run(key, tokens) for key in model.keys_.tolist()]


def vectorized(texts, ngrams):
    counter = CountVectorizer(token_pattern=r"\S+", ngram_range=(1, ngrams), binary=True)
    return counter, counter.fit_transform(texts)


# ------------------------------------------------------------------------------------- equations


@pytest.mark.covers("R19")
@pytest.mark.parametrize("ngrams", [1, 2, 3])
def test_bags_are_those_of_scikit_learn(ngrams):
    texts, y, tokens, stream = made()
    model = NaiveBayes(ngrams).fit(*stream, y)
    counter, counts = vectorized(texts, ngrams)
    theirs = counter.get_feature_names_out().tolist()
    mine = named(model, tokens)
    assert sorted(mine) == sorted(theirs)
    order = [theirs.index(name) for name in mine]
    assert (model.bags(*stream).toarray() == counts.toarray()[:, order]).all()
    assert model.counts_.tolist() == counts.toarray().sum(0)[order].tolist()


@pytest.mark.parametrize("ngrams", [1, 2])
def test_naive_bayes_is_that_of_scikit_learn(ngrams):
    texts, y, tokens, stream = made()
    y[:7] = 1  # priors that differ
    model = NaiveBayes(ngrams, 0.7).fit(*stream, y)
    counter, counts = vectorized(texts, ngrams)
    reference = MultinomialNB(alpha=0.7).fit(counts, y.numpy())
    names = counter.get_feature_names_out().tolist()
    order = [names.index(name) for name in named(model, tokens)]
    np.testing.assert_allclose(model.weights_, reference.feature_log_prob_[:, order], rtol=1e-12)
    np.testing.assert_allclose(model.bias_, reference.class_log_prior_, rtol=1e-12)
    new = ["the dog sees bees", "cat cat cat", "bees"]
    asked = flattened([tokens.encode(text) for text in new])
    expected = reference.predict_proba(counter.transform(new))
    np.testing.assert_allclose(model.scores(*asked).softmax(1), expected, rtol=1e-10)


def test_naive_bayes_of_four_texts_by_hand():
    tokens = Tokens("words", (*SENTENCE, "fine", "dull", "film"))
    texts = ["fine film", "fine fine", "dull film", "dull"]
    stream = flattened([tokens.encode(text) for text in texts])
    model = NaiveBayes().fit(*stream, torch.tensor([1, 1, 0, 0]))
    assert named(model, tokens) == ["fine", "dull", "film"]
    # good texts hold fine 2, dull 0, film 1 times: (2 + 1) / 6, (0 + 1) / 6, (1 + 1) / 6
    assert model.weights_.exp()[1].tolist() == pytest.approx([3 / 6, 1 / 6, 2 / 6])
    assert model.weights_.exp()[0].tolist() == pytest.approx([1 / 6, 3 / 6, 2 / 6])
    assert model.bias_.exp().tolist() == pytest.approx([0.5, 0.5])
    p = model.scores(*flattened([tokens.encode("fine film")])).softmax(1)[0]
    assert p[1].item() == pytest.approx(0.75)  # 3 * 2 against 1 * 2


def test_logistic_regression_is_that_of_scikit_learn():
    texts, y, tokens, stream = made(classes=3)
    model = LogisticBag(1, 0.5).fit(*stream, y)
    counter, counts = vectorized(texts, 1)
    reference = LogisticRegression(C=2.0, tol=1e-10, max_iter=5000).fit(counts, y.numpy())
    names = counter.get_feature_names_out().tolist()
    order = [names.index(name) for name in named(model, tokens)]
    np.testing.assert_allclose(model.weights_, reference.coef_[:, order], atol=1e-5)
    centred = model.bias_ - model.bias_.mean()
    np.testing.assert_allclose(centred, reference.intercept_, atol=1e-5)


def test_the_gradient_is_that_of_the_objective():
    _, y, _, stream = made(20)
    model = LogisticBag(2, 0.3).fit(*stream, y)
    n = model.bags(*stream)
    theta = np.random.default_rng(0).normal(size=3 * (n.shape[1] + 1))
    error = check_grad(
        lambda t: model.objective(t, n, y, 3)[0], lambda t: model.objective(t, n, y, 3)[1], theta
    )
    assert error < 1e-4
    z = torch.from_numpy(n @ theta.reshape(3, -1)[:, :-1].T + theta.reshape(3, -1)[:, -1])
    nats = -z.log_softmax(1)[torch.arange(20), y].sum()
    penalty = 0.15 * (theta.reshape(3, -1)[:, :-1] ** 2).sum()
    assert model.objective(theta, n, y, 3)[0] == pytest.approx((nats + penalty).item())


# --------------------------------------------------------------------------------- lost and kept


@pytest.mark.covers("R19")
@pytest.mark.parametrize("method", [NaiveBayes, LogisticBag])
def test_dog_chases_cat_is_cat_chases_dog_in_single_words_and_not_in_pairs(method):
    _, y, tokens, stream = made()
    pair = flattened([tokens.encode(text) for text in ("dog chases cat", "cat chases dog")])
    one, other = method(1).fit(*stream, y).scores(*pair)
    assert torch.equal(one, other)
    one, other = method(2).fit(*stream, y).scores(*pair)
    assert not torch.equal(one, other)


@pytest.mark.covers("R19")
def test_single_words_cannot_turn_round_and_runs_of_three_can():
    recipe = find("bag-of-words")
    data = recipe.dataset()
    accuracy = {}
    for ngrams in (1, 3):
        chosen = replace(recipe, ngrams=ngrams)
        model = chosen.fit(chosen.model(data), data)
        accuracy[ngrams] = evaluate(chosen, model, data.test)["accuracy"]
    assert accuracy[1] < 0.6
    assert accuracy[3] >= 0.95


def test_runs_never_cross_from_one_text_to_the_next():
    tokens = Tokens("words", (*SENTENCE, *WORDS))
    stream = flattened([tokens.encode(text) for text in ("dog sees", "cat", "a small dog")])
    keys, rows = encode_runs(*stream, 3)
    found = sorted(zip(rows.tolist(), (decode_run(k, tokens) for k in keys.tolist()), strict=True))
    assert found == [
        (0, "dog"), (0, "dog sees"), (0, "sees"), (1, "cat"), (2, "a"), (2, "a small"),
        (2, "a small dog"), (2, "dog"), (2, "small"), (2, "small dog"),
    ]  # fmt: skip


def test_new_words_say_nothing():
    _, y, tokens, stream = made()
    model = NaiveBayes(2).fit(*stream, y)
    nothing, known = model.scores(*flattened([[1, 1], tokens.encode("dog")]))
    assert torch.equal(nothing, model.bias_)
    assert not torch.equal(known, model.bias_)


# ---------------------------------------------------------------------------------------- recipe


@pytest.fixture(scope="module")
def fitted():
    recipe = find("bag-of-words")
    data = recipe.dataset()
    return recipe, recipe.fit(recipe.model(data), data), data


def test_predictions_name_class_probability_and_runs(fitted):
    recipe, model, data = fitted
    tokens = Tokens.of(data.spec)
    lines = [torch.tensor(tokens.encode(t)) for t in ("the film was not very good", "zzz")]
    said, nothing = recipe.predict(model, lines, data.spec, words=2)
    assert said["class"] == "bad"
    z = model.scores(*flattened([lines[0].tolist()]))[0]
    assert said["probability"] == pytest.approx((z[0].exp() / z.exp().sum()).item())
    with pytest.raises(UserError, match=r"words \(-2\) must be at least 0"):
        recipe.predict(model, lines, data.spec, words=-2)
    assert "not very good" in said["words"]
    difference = model.weights_[0] - model.weights_[1]
    names = {
        decode_run(int(key), tokens): float(d)
        for key, d in zip(model.keys_, difference, strict=True)
    }
    for words, value in said["words"].items():
        assert value == pytest.approx(names[words], abs=1e-4)
    assert (nothing["words"], nothing["unknown"]) == ({}, 1)


def test_what_words_add_sums_to_the_score(fitted):
    recipe, model, data = fitted
    x, lengths, _ = next(iter(data.valid))
    with torch.no_grad():
        drawn = recipe.draw(model, data, [])
    assert drawn.keys() == recipe.picture_names().keys()
    shown = [text.get_text() for text in drawn["words"].figure.axes[0].texts]
    tokens = Tokens.of(data.spec)
    first = tokens.decode(x[0, : lengths[0]].tolist()).split()
    assert shown[: len(first)] == first
    bars = drawn["weights"].figure.axes[1]
    widths = [bar.get_width() for bar in bars.patches]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] == pytest.approx((model.weights_[1] - model.weights_[0]).max().item())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"ngrams": 4}, r"ngrams \(4\) must be from 1 to 3"),
        ({"strength": 0.0}, r"strength \(0.0\) must be a positive number"),
        ({"method": "bayes"}, r"unknown method 'bayes'; did you mean "),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("bag-of-words"), **fields)


def test_bags_it_refuses():
    _, y, _, (stream, ends) = made()
    with pytest.raises(UserError, match=r"ngrams \(0\) must be from 1 to 3"):
        NaiveBayes(0).fit(stream, ends, y)
    with pytest.raises(UserError, match=r"strength \(0\) must be above 0, because a word"):
        NaiveBayes(1, 0).fit(stream, ends, y)
    with pytest.raises(UserError, match=r"strength \(0\) must be above 0, because texts"):
        LogisticBag(1, 0).fit(stream, ends, y)
    with pytest.raises(UserError, match=r"the vocabulary .* must be below 2,000,000"):
        NaiveBayes(1).fit(stream.clamp(min=MOST_TOKENS), ends, y)


# -------------------------------------------------------------------------------------- learning


@pytest.mark.slow
@pytest.mark.covers("R19")
@pytest.mark.real_data
@pytest.mark.parametrize("name", ["bag-of-words-sst", "bag-of-words-logistic-sst"])
def test_learns_sst(name, tmp_path):
    result = all_runs.run(find(name), tmp_path)
    assert result.reached, result.metrics
