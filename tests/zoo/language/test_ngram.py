"""N-grams against nltk's, KenLM's figures, the equations word by word, and what they refuse."""

import json
import math
from collections import Counter, defaultdict
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch.nn.functional import nll_loss

from everynet.data import load
from everynet.data.kinds import named
from everynet.kernels.ngrams import count_ngrams, score_tokens, words_before
from everynet.recipes.catalog import find
from everynet.system.errors import UserError
from everynet.zoo.language.ngram_model import NGram
from everynet.zoo.language.smoothing import SMOOTHINGS, SmoothingSettings

NLTK = json.loads(Path(__file__).with_name("nltk_scores.json").read_text())
SENTENCES = NLTK["text"]
PROBABILITIES = [name for name in SMOOTHINGS if name != "stupid-backoff"]


def drawn(sentences=400, words=300, seed=1):
    """Text whose words are as rare as Zipf says; some follow from the one before, w5 to w9 does."""
    random = np.random.default_rng(seed)
    share = np.arange(1, words + 1) ** -1.3
    text = []
    for _ in range(sentences):
        choice = random.choice(words, 12 + random.integers(9), p=share / share.sum()).tolist()
        row = choice[:1]
        for word, free in zip(choice[1:], random.random(len(choice)), strict=False):
            row.append(9 if row[-1] == 5 else word if free < 0.6 else (row[-1] * 3 + 1) % words)
        text.append([f"w{n}" for n in row[: random.integers(1, len(row))]])
    return text


TEXT = drawn()


@pytest.fixture(scope="module", params=SMOOTHINGS)
def model(request):
    return NGram(3, request.param, k=0.3).fit(TEXT)


# ------------------------------------------------------------------------------------- counting


def by_hand(sentences, order):
    """Counts of all n-grams by length, as tuples of words."""
    found = [Counter() for _ in range(order + 1)]
    for words in sentences:
        row = ["<s>", *words, "</s>"]
        for n in range(1, order + 1):
            found[n].update(tuple(row[i : i + n]) for i in range(len(row) - n + 1))
    return found


def spelled(levels, names):
    """The n-grams of each order as tuples of words, with their counts and shorter parts."""
    grams = [[()]]
    for level in levels:
        grams.append([(*grams[-1][p], names[w]) for p, w in
                      zip(level.prefix.tolist(), level.words.tolist(), strict=True)])  # fmt: skip
    return grams[1:]


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=6), min_size=1, max_size=6))
@settings(max_examples=30)
def test_counts_are_those_of_a_loop(sentences):
    names = ["a", "b", "c", "</s>", "<s>"]
    stream = np.array([names.index(w) for s in sentences for w in [*s, "</s>"]])
    levels = count_ngrams(stream, words_before(stream, 3), 4, 4)
    wanted = by_hand(sentences, 4)
    for n, (level, grams) in enumerate(zip(levels, spelled(levels, names), strict=True), 1):
        found = {g: c for g, c in zip(grams, level.count.tolist(), strict=True) if c}
        assert found == wanted[n]
        assert level.opens.tolist() == [g[0] == "<s>" for g in grams]
        if n > 1:
            below = spelled(levels, names)[n - 2]
            assert [below[s] for s in level.suffix.tolist()] == [g[1:] for g in grams]


# ------------------------------------------------------------------------------------ smoothing


@pytest.mark.covers("R22", "R23")
@pytest.mark.parametrize("name", NLTK["scores"])
def test_it_is_nltks(name):
    model = NGram(3, name, k=0.5, discount=0.75, backoff=0.4).fit(SENTENCES)
    places = [model.vocabulary_.index(word) for word in NLTK["words"]]
    for context, wanted in NLTK["scores"][name]:
        np.testing.assert_allclose(
            model.predict_next(context)[places], wanted, rtol=1e-11, atol=1e-15
        )


def discounts(counts, modified):
    n = Counter(counts)
    if not modified:
        return lambda c: 0.75 if c else 0
    y = n[1] / (n[1] + 2 * n[2])
    d = [0, *(i - (i + 1) * y * n[i + 1] / n[i] for i in (1, 2, 3))]
    return lambda c: d[min(c, 3)]


def kneser_ney_by_hand(sentences, order, modified):
    """P(w|h) with dictionaries and a recursion, straight from the definition."""
    raw = by_hand(sentences, order)
    words = {g[0] for g in raw[1]} - {"<s>"} | {"<unk>"}
    adjusted = [Counter() for _ in range(order + 1)]
    for n in range(1, order + 1):
        for gram, c in raw[n].items():
            if n == order or gram[0] == "<s>":
                adjusted[n][gram] = c
        if n < order:
            for gram in raw[n + 1]:
                if gram[1:][0] != "<s>":
                    adjusted[n][gram[1:]] += 1
    del adjusted[1][("<s>",)]
    d = [None, *(discounts(a.values(), modified) for a in adjusted[1:])]
    follow = defaultdict(dict)
    for level in adjusted:
        for gram, a in level.items():
            follow[gram[:-1]][gram[-1]] = a

    def p(word, history):
        n, seen = len(history) + 1, follow.get(history)
        if not history and not modified:
            return seen.get(word, 0) / sum(seen.values())
        lower = p(word, history[1:]) if history else 1 / len(words)
        if not seen:
            return lower
        total, a = sum(seen.values()), seen.get(word, 0)
        left = sum(map(d[n], seen.values()))
        return (a - d[n](a)) / total + left / total * lower

    return p


@pytest.mark.covers("R23")
@pytest.mark.parametrize("name", ["kneser-ney", "modified-kneser-ney"])
@pytest.mark.parametrize("order", [2, 3, 4])
def test_kneser_ney_is_its_definition(name, order):
    model = NGram(order, name).fit(TEXT)
    p = kneser_ney_by_hand(TEXT, order, modified=name.startswith("modified"))
    for history in (("<s>",), ("<s>", "w1"), ("w0", "w3", "w9"), ("w1", "w4"), ("w39", "w38"), ()):
        wanted = [p(word, history[max(0, len(history) - order + 1) :])
                  for word in model.vocabulary_]  # fmt: skip
        np.testing.assert_allclose(model.predict_next(history), wanted, rtol=1e-11)


def katz_by_hand(sentences, largest):
    """P(w|h) of three words, with dictionaries and a recursion."""
    raw = by_hand(sentences, 3)
    words = sorted({g[0] for g in raw[1]} - {"<s>"} | {"<unk>"})
    follow = defaultdict(dict)
    for level in raw[1:]:
        for gram, c in level.items():
            if gram != ("<s>",):
                follow[gram[:-1]][gram[-1]] = c

    counts = [Counter(level.values()) for level in raw]

    def kept(c, n):
        r = counts[n]
        if n == 1 or c > largest[n]:
            return c
        q = (largest[n] + 1) * r[largest[n] + 1] / r[1]
        return c * ((c + 1) * r[c + 1] / (c * r[c]) - q) / (1 - q)

    @cache
    def p(word, history):
        lower = (lambda w: p(w, history[1:])) if history else (lambda _: 1 / len(words))
        seen = follow.get(history)
        if not seen:
            return lower(word)
        n, total = len(history) + 1, sum(seen.values())
        if abs(sum(kept(c, n) for c in seen.values()) - total) < 1e-9:
            total += 1
        if word in seen:
            return kept(seen[word], n) / total
        left = 1 - sum(kept(c, n) for c in seen.values()) / total
        return left * lower(word) / (1 - sum(map(lower, seen)))

    return p, follow


@pytest.mark.covers("R23")
def test_katz_is_its_definition():
    model = NGram(3, "katz").fit(TEXT)
    p, follow = katz_by_hand(TEXT, {2: 5, 3: 5})
    certain = [h for h, seen in follow.items() if h and len(seen) == 1 and min(seen.values()) > 5]
    assert certain  # where 1 is added to the total
    for history in ((), ("w1",), ("<s>",), ("w0", "w3"), ("w1", "w4"), ("w39", "w38"), certain[0]):
        wanted = [p(word, history) for word in model.vocabulary_]
        np.testing.assert_allclose(model.predict_next(history), wanted, rtol=1e-10)


@pytest.mark.covers("R23")
@pytest.mark.parametrize("name", PROBABILITIES)
def test_every_context_sums_to_1(name):
    model = NGram(3, name, k=0.3).fit(TEXT)
    histories = {(a, b) for row in TEXT for a, b in zip(["<s>", *row], row, strict=False)}
    histories |= {("<s>",), (), ("w39", "w38")} if name != "mle" else {("<s>",)}
    for history in sorted(histories)[::7]:
        assert model.predict_next(history).sum() == pytest.approx(1, abs=1e-9), history
        assert (model.predict_next(history) >= 0).all()


def test_stupid_back_off_is_a_score_and_says_so():
    model = NGram(3, "stupid-backoff").fit(SENTENCES)
    assert model.predict_next("the dog").sum() > 1.01
    index = model.vocabulary_.index
    assert model.predict_next("the dog")[index("sat")] == pytest.approx(1 / 7)
    assert model.predict_next("old dog")[index("sat")] == pytest.approx(0.4 * 1 / 9)
    assert model.predict_next("home home")[index("old")] == pytest.approx(0.4**2 * 2 / 76)
    with pytest.raises(UserError, match="scores do not sum to 1"):
        model.perplexity(SENTENCES)


# -------------------------------------------------------------------------------------- scoring


def test_scoring_a_text_is_asking_for_each_next_word(model):
    asked = [["w0", "w3", "w1"], ["w39", "new", "w2", "w2"], [], ["w5"]]
    wanted = []
    for row in asked:
        for n, word in enumerate([*row, "</s>"]):
            known = word if word in model.vocabulary_ else "<unk>"
            p = model.predict_next(["<s>", *row[:n]])[model.vocabulary_.index(known)]
            wanted.append(math.log(p) if p else -math.inf)
    np.testing.assert_allclose(model.logprob(asked), wanted, rtol=1e-12)
    assert len(model.score_samples(asked)) == len(asked)
    np.testing.assert_allclose(model.score_samples(asked)[3], sum(wanted[-2:]), rtol=1e-12)


@pytest.mark.covers("R21")
def test_all_short_texts_together_have_probability_1():
    """Those that end within two words, and all beginnings of three words."""
    model = NGram(3, "kneser-ney").fit(["a b a", "b a", "a a b b", "b"])
    ended = [s for n in range(3) for s in product("ab", repeat=n)]
    total = np.exp(model.score_samples(ended)).sum()
    total += sum(math.exp(model.logprob([s])[:3].sum()) for s in product("ab", repeat=3))
    assert total == pytest.approx(1, abs=1e-12)


@pytest.mark.covers("R22")
def test_the_trigram_identity():
    """Given "the dog", a text has P3(the dog ran) P3(dog ran away) / P2(dog ran) / P2(the dog)."""
    model = NGram(3, "mle").fit(SENTENCES)
    c = by_hand([s.split() for s in SENTENCES], 3)
    start = Fraction(c[3]["<s>", "the", "dog"], len(SENTENCES))
    ran, away = c[3]["the", "dog", "ran"], c[3]["dog", "ran", "away"]
    identity = Fraction(ran, c[2]["the", "dog"]) * away / c[2]["dog", "ran"]
    found = np.exp(model.logprob(["the dog ran away"])[:4].sum())
    assert found == pytest.approx(float(start * identity), rel=1e-12)


@pytest.mark.covers("R22", "R23")
def test_one_count_of_0_makes_a_text_impossible_unless_smoothed():
    asked = ["the dog sat home"]
    assert NGram(3, "mle").fit(SENTENCES).perplexity(asked) == math.inf
    for name in ("add-k", "kneser-ney"):
        assert NGram(3, name).fit(SENTENCES).perplexity(asked) < 30


@pytest.mark.covers("R25")
def test_the_perplexity_of_no_knowledge_is_the_number_of_words():
    model = NGram(2, "add-k", k=1e12).fit(SENTENCES)
    assert model.perplexity(SENTENCES) == pytest.approx(len(model.vocabulary_), rel=1e-9)


@pytest.mark.covers("R25")
def test_perplexity_is_the_exponential_of_the_cross_entropy():
    model = NGram(2, "modified-kneser-ney").fit(TEXT)
    rows = torch.from_numpy(
        np.stack([model.predict_next(["<s>", "w1"]), model.predict_next(["w1", "w4"])])
    )
    nats = nll_loss(rows.log(), torch.tensor([model.vocabulary_.index(w) for w in ("w4", "w2")]))
    given_w1 = model.logprob([["w1", "w4", "w2"]])[1:3]
    assert math.exp(nats) == pytest.approx(math.exp(-given_w1.mean()), rel=1e-12)


def test_a_stream_of_numbers_is_the_same_text():
    """Tensors give tensors, arrays and lists arrays; the end of a line ends a sentence."""
    words = sorted({w for s in SENTENCES for w in s.split()})
    vocabulary = ["<unknown>", *words, "\n"]
    flat = torch.tensor([vocabulary.index(w) for s in SENTENCES for w in [*s.split(), "\n"]])
    model = NGram(2, "kneser-ney").fit(flat, vocabulary=vocabulary)
    other = NGram(2, "kneser-ney").fit(SENTENCES)
    answer = model.logprob(flat)
    assert isinstance(answer, torch.Tensor)
    np.testing.assert_allclose(answer.numpy(), other.logprob(SENTENCES), rtol=1e-12)
    np.testing.assert_array_equal(model.logprob(flat.numpy()), answer.numpy())
    assert model.perplexity(SENTENCES) == pytest.approx(other.perplexity(SENTENCES))


def test_a_text_without_lines_is_one_sentence():
    vocabulary = ["<unknown>", "a", "b"]
    flat = np.array([1, 2, 1, 1, 2])
    model = NGram(2, "mle").fit(flat, vocabulary=vocabulary)
    assert model.predict_next("a").tolist() == [0, 1 / 3, 2 / 3]
    assert model.predict_next("<s>").tolist() == [0, 1, 0]


def test_gaps_are_filled_by_what_the_whole_line_says():
    model = NGram(3, "kneser-ney").fit(SENTENCES)
    p = model.fill("the ___ sat")
    assert p.sum() == pytest.approx(1)
    lines = [f"the {w} sat" for w in model.vocabulary_]
    chosen = [n for n, w in enumerate(model.vocabulary_) if w not in ("<unk>", "</s>")]
    score = np.exp(model.score_samples(lines))[chosen]
    np.testing.assert_allclose(p[chosen], score / score.sum(), rtol=1e-9)
    assert model.vocabulary_[p.argmax()] == "cat"  # the cat sat, and no more


def test_samples_follow_the_probabilities():
    """The first word of 2,000 sentences, within four standard deviations."""
    model = NGram(2, "mle").fit(SENTENCES)
    made = model.sample(2000, length=1, generator=torch.Generator().manual_seed(0))
    share = sum(words == ["the"] for words in made) / 2000
    assert share == pytest.approx(8 / 12, abs=4 * math.sqrt(2 / 9 / 2000))
    made = model.sample(20, "an", 3, generator=torch.Generator().manual_seed(0))
    assert {tuple(words) for words in made} == {("an", "old", "man"), ("an", "old", "dog")}
    cold = model.sample(20, temperature=0.05, generator=torch.Generator().manual_seed(0))
    assert all(words[:2] == ["the", "dog"] for words in cold)
    likeliest = model.sample(20, top_k=1, generator=torch.Generator().manual_seed(0))
    assert {*map(tuple, likeliest)} == {*map(tuple, cold)}


def test_sentences_are_drawn_word_by_word_one_after_another():
    """The loop written out, with torch.multinomial."""
    model, generator = NGram(3, "kneser-ney").fit(SENTENCES), torch.Generator().manual_seed(1)
    wanted = []
    for _ in range(6):
        words = ["the"]
        while len(words) < 8:
            p = torch.from_numpy(model.predict_next(["<s>", *words]))
            p[model.unknown_] = 0
            word = int(torch.multinomial(p**2, 1, generator=generator))
            if word == model.end_:
                break
            words.append(model.vocabulary_[word])
        wanted.append(words)
    assert model.sample(6, "the", 8, 0.5, generator.manual_seed(1)) == wanted


def test_a_history_after_which_nothing_can_follow():
    model = NGram(3, "mle").fit([["a", "b"], ["a", "c"]])
    with pytest.raises(UserError, match="no word has a probability above 0 after 'b a', because"):
        model.sample(1, "b a", 3)


def test_no_sample_holds_an_unknown_word_and_every_known_one_may_come():
    """Where the vocabulary has no unknown word its last one is a word as any other."""
    model = NGram(1, "add-k").fit(["a b"])
    assert model.unknown_ >= 0
    words = {w for s in model.sample(60, generator=torch.Generator().manual_seed(0)) for w in s}
    assert words == {"a", "b"}
    stream = np.array([0, 1, 2, 0, 2, 2])
    closed = NGram(1, "mle").fit(stream, vocabulary=["a", "b", "c"])
    assert closed.unknown_ == -1
    made = closed.sample(30, length=3, generator=torch.Generator().manual_seed(0))
    assert {w for s in made for w in s} == {"a", "b", "c"}


def test_settings_are_kept_and_cloned():
    model = NGram(4, "katz", k=2.0)
    assert clone(model).get_params() == model.get_params()
    assert vars(NGram()).keys() == {"order", "smoothing", "k", "discount", "backoff"}


# -------------------------------------------------------------------------------------- recipes


@pytest.fixture(scope="module")
def fitted():
    recipe = find("ngram").tiny()
    data = recipe.dataset()
    return recipe, recipe.fit(recipe.model(data), data), data


def asked(data, tmp_path, text):
    (tmp_path / "asked.txt").write_text(text)
    return named("text").read([tmp_path / "asked.txt"], data.spec)[1]


def test_lines_are_scored_word_by_word_and_gaps_filled(fitted, tmp_path):
    recipe, model, data = fitted
    inputs = asked(data, tmp_path, "The value of\nThe xyzzy of\nThe ___ of\n")
    first, second, third = recipe.predict(model, inputs, data.spec)
    assert [word for word, _ in first["words"]] == ["The", "value", "of", "</s>"]
    assert first["cross_entropy"] == pytest.approx(-np.mean([p for _, p in first["words"]]))
    assert first["perplexity"] == pytest.approx(math.exp(first["cross_entropy"]))
    assert (first["tokens"], first["unknown"], second["unknown"]) == (3, 0, 1)
    assert third["filled"] == f"The {third['candidates'][0][0]} of"
    assert len(third["candidates"]) == 5
    with pytest.raises(UserError, match="one ___ to be filled, but holds 2"):
        recipe.predict(model, asked(data, tmp_path, "The ___ of ___\n"), data.spec)
    with pytest.raises(UserError, match=r"candidates \(0\) must be from 1"):
        recipe.predict(model, inputs, data.spec, candidates=0)


def test_what_maximum_likelihood_never_saw_is_told(fitted, tmp_path):
    recipe, _, data = fitted
    recipe = replace(recipe, smoothing="mle")
    model = recipe.fit(recipe.model(data), data)
    (answer,) = recipe.predict(model, asked(data, tmp_path, "of of of\n"), data.spec)
    assert answer["perplexity"] is None
    assert ["of", None] in answer["words"]
    (valid,) = data.valid
    outputs = recipe.metrics(model, valid)
    assert 0.1 < recipe.summarise(outputs)["impossible"] < 0.5
    with pytest.raises(UserError, match="no word has a probability above 0"):
        recipe.predict(model, asked(data, tmp_path, "of of ___ of of\n"), data.spec)


def test_the_figures_of_a_score_are_not_called_a_perplexity(fitted):
    recipe = replace(fitted[0], smoothing="stupid-backoff")
    assert recipe.summarise({"cross_entropy": torch.ones(3)}) == {"log_score": -1.0}


def test_text_is_written_from_a_prompt(fitted):
    recipe, model, data = fitted
    draw = torch.Generator().manual_seed(0)
    made = recipe.sample(model, data.spec, draw, prompt="The value", n=3, length=12)
    assert len(made) == 3
    assert all(line.startswith("The value") and len(line.split()) <= 12 for line in made)
    cut = recipe.sample(
        model, data.spec, draw.manual_seed(0), prompt="The value", n=3, length=12, stop=" "
    )
    assert cut == ["The value"] * 3
    for setting, why in (
        ({"prompt": "The xyzzy"}, "'xyzzy' is not one"),
        ({"temperature": 0.0}, r"temperature \(0.0\) must be above 0"),
        ({"n": 0}, r"n \(0\) must be at least 1"),
        ({"length": 0}, r"length \(0\) must be at least 1"),
    ):
        with pytest.raises(UserError, match=why):
            recipe.sample(model, data.spec, draw, **setting)


@pytest.mark.real_data
@pytest.mark.slow
@pytest.mark.covers("R21", "R23")
def test_it_has_the_perplexities_of_kenlm_on_the_penn_treebank():
    """Of its lmplz, 10,000 words, `<unk>` as any other word, ends scored; and sums to 1."""
    recipe = find("ngram-ptb")
    data = recipe.dataset()
    train, test = (data.splits[part][0].numpy().astype(np.int64) for part in ("train", "test"))
    vocabulary = data.spec["tokens"]["vocabulary"]
    end, levels = vocabulary.index("\n"), None
    levels = count_ngrams(train, words_before(train, end), 5, len(vocabulary))
    for order, wanted in ((2, 185.70), (3, 148.28), (5, 141.19)):
        weighed = SMOOTHINGS["modified-kneser-ney"](levels[:order], SmoothingSettings())
        logp, _ = score_tokens(test, words_before(test, end), weighed.grams(levels[:order]), 0.0)
        assert round(math.exp(-logp.mean()), 2) == wanted
    model = recipe.fit(recipe.model(data), data)
    random = np.random.default_rng(0)
    for start in random.integers(0, len(train) - 4, 200):
        assert model.predict_next(
            [vocabulary[n] for n in train[start : start + 4]]
        ).sum() == pytest.approx(1, abs=1e-9)


@pytest.mark.real_data
@pytest.mark.slow
@pytest.mark.covers("R21")
def test_real_text_knows_what_is_pulled_and_not_pooled():
    data = load("text8", kind="text", batch_size=1, tokens="words")
    (stream,) = data.splits["train"]
    model = NGram(3).fit(stream, vocabulary=data.spec["tokens"]["vocabulary"])
    assert {"pulled", "pooled"} <= {*model.vocabulary_}
    for line in ("the cart was {} by two horses", "he {} the sword out of the stone"):
        pulled, pooled = model.score_samples([line.format("pulled"), line.format("pooled")])
        assert pulled > pooled


# --------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ({"order": 0}, r"order \(0\) must be from 1 to 9"),
        ({"smoothing": "kneser"}, r"unknown smoothing 'kneser'; did you mean kn"),
        ({"smoothing": "add-k", "k": 0.0}, r"k \(0.0\) must be a positive number"),
        ({"discount": 1.0}, r"discount \(1.0\) must be above 0 and below 1"),
        ({"backoff": 0.0}, r"backoff \(0.0\) must be above 0 and below 1"),
    ],
)
def test_settings_that_make_no_model_are_refused(setting, why):
    with pytest.raises(UserError, match=why):
        NGram(**setting).fit(SENTENCES)
    with pytest.raises(UserError, match=why):
        replace(find("ngram"), **setting)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ([], "the text is empty"),
        (["", " "], "the text is empty"),
        (["a a", "a"], "at least 2 different words"),
        ("a b c", r"X \(a str\) must be a list of sentences"),
        (np.zeros((2, 3)), r"X \(a ndarray\) must be a list of sentences"),
        (["a <s> b"], "must not hold <s> or </s>"),
        (["a </s> b"], "must not hold <s> or </s>"),
        (["a b </s>"], "must not hold <s> or </s>"),
        (["a b", "b a"], "the text or its vocabulary must be larger for modified-kneser-ney"),
    ],
)
def test_texts_that_teach_nothing_are_refused(text, why):
    with pytest.raises(UserError, match=why):
        NGram(2).fit(text)


def test_too_little_text_for_katz():
    with pytest.raises(UserError, match=r"must be longer for katz, because.*2-grams were seen"):
        NGram(2, "katz").fit(SENTENCES)


def test_wrong_numbers_and_gaps_are_refused():
    model = NGram(2, "mle").fit(SENTENCES)
    with pytest.raises(ValueError, match=r"word's number \(99\) must be at least 0 and below 18"):
        model.logprob(np.array([1, 99]))
    with pytest.raises(UserError, match=r"X \(an array of float64, \[3\]\) must be"):
        model.logprob(np.zeros(3))
    with pytest.raises(UserError, match="one ___ to be filled, but holds 0"):
        model.fill("the dog")
    with pytest.raises(NotFittedError, match="Call 'fit'"):
        NGram().logprob(SENTENCES)
