"""word2vec: its losses by hand and by gradient, what it draws, what it learns, what it answers."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch.nn.functional import normalize

from everynet.data.sets import judgements
from everynet.data.sets.judgements import Judgements
from everynet.kernels.word2vec import update_batch
from everynet.recipes.catalog import find
from everynet.system.errors import UserError
from everynet.training.loop import evaluate
from everynet.zoo.language.corpus import Corpus
from everynet.zoo.language.word2vec import (
    CBOW,
    Word2Vec,
    full_softmax,
    negative_sampling,
    window_mean,
)
from everynet.zoo.language.word_embedding import find_phrases, join_phrases
from everynet.zoo.language.word_vectors import (
    WordVectors,
    principal_plane,
    select_known_questions,
    summarise_questions,
)

HERE = Path(__file__).parent
KINDS = pytest.mark.parametrize("kind", [Word2Vec, CBOW])


def drawn(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# ------------------------------------------------------------------------------------ equations


@pytest.mark.covers("R28")
def test_full_softmax_is_the_share_of_a_word_among_all():
    v, u = drawn(2, 5, 3)
    w, c = torch.tensor([0, 4]), torch.tensor([2, 2])
    scores = torch.exp(torch.einsum("bd,kd->bk", v[w], u))
    wanted = -(scores[[0, 1], c] / scores.sum(1)).log()
    torch.testing.assert_close(full_softmax(v, u, w, c), wanted)


@pytest.mark.covers("R28")
def test_negative_sampling_by_hand_and_by_differences():
    h, u = drawn(2, 3), drawn(6, 3, seed=1)
    c, noise = torch.tensor([1, 0]), torch.tensor([[2, 3, 3], [5, 4, 1]])
    for b in range(2):
        wanted = math.log1p(math.exp(-(h[b] @ u[c[b]])))
        wanted += sum(math.log1p(math.exp(h[b] @ u[k])) for k in noise[b])
        assert negative_sampling(h, u, c, noise)[b].item() == pytest.approx(wanted)
    given = (h.requires_grad_(), u.requires_grad_())
    assert torch.autograd.gradcheck(lambda h, u: negative_sampling(h, u, c, noise), given)


def test_the_mean_of_a_window():
    v = drawn(5, 3)
    around = torch.tensor([[0, 1, 2], [3, 3, 4]])
    there = torch.tensor([[True, True, True], [True, False, True]])
    wanted = torch.stack([v[:3].mean(0), (v[3] + v[4]) / 2])
    torch.testing.assert_close(window_mean(v, around, there), wanted)


def test_at_their_optima_both_losses_put_words_in_the_same_order():
    """With noise of all words alike, and closed: scores log p(c|w) + C, and log p(c|w) V / K."""
    p, k = drawn(6, 6).softmax(1), 2
    best = []
    noise = torch.arange(6).expand(36, 6)  # all of them, each K/V times
    w, c = torch.arange(6).repeat_interleave(6), torch.arange(6).repeat(6)
    for full in (True, False):
        u = torch.zeros(6, 6, dtype=torch.float64, requires_grad=True)  # scores of w (down), v = 1
        v = torch.eye(6, dtype=torch.float64)
        descent = torch.optim.LBFGS([u], max_iter=200, line_search_fn="strong_wolfe")

        def closure(u=u, v=v, full=full, descent=descent):
            descent.zero_grad()
            if full:
                each = full_softmax(v, u, w, c)
            else:
                truth = negative_sampling(v[w], u, c, noise[:, :0])
                each = truth + (negative_sampling(v[w], u, c, noise) - truth) * k / 6
            loss = (p.flatten() * each).sum()
            loss.backward()
            return loss

        for _ in range(5):
            descent.step(closure)
        best.append(u.detach().T)
    torch.testing.assert_close(best[0].softmax(1), p, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(best[1], (p * 6 / k).log(), rtol=1e-3, atol=1e-3)
    assert torch.equal(best[0].argsort(1), best[1].argsort(1))


def test_what_is_kept_and_what_is_noise():
    """f = 1/2 at t = 0.005 is a hundred times too frequent: 0.1 + 0.01."""
    counts = torch.tensor([100, 50, 49, 1])
    rule = Word2Vec(subsample=0.005)._sampling_rule(counts)
    wanted = [min(1, math.sqrt(1 / r) + 1 / r) for r in (100, 50, 49, 1)]
    np.testing.assert_allclose(rule.keep / 2.0**32, wanted, rtol=1e-6)
    assert rule.keep[0] / 2.0**32 == pytest.approx(0.11)
    accept = rule.noise.accept / 2.0**32
    held = accept.copy()
    np.add.at(held, rule.noise.alias, 1 - accept)
    weights = counts.double().numpy() ** 0.75
    np.testing.assert_allclose(held / 4, weights / weights.sum(), rtol=1e-6)


def test_the_learning_rate_falls_linearly():
    model = Word2Vec()
    assert [model._rate(r) for r in (0, 0.5, 1)] == pytest.approx([0.025, 0.01255, 0.0001])
    assert CBOW()._rate(0) == 0.075


def test_phrases():
    """n_ab = 8 of N = 50 words, n_a = 8, n_b = 10, delta 5: 50 * 3 / 80."""
    given = [["new", "york", "is", "x"]] * 8 + [["york", "x", *"abcdefg"]] * 2
    assert sum(map(len, given)) == 50
    assert ("new", "york") in find_phrases(given, 5, 1.87)
    assert ("new", "york") not in find_phrases(given, 5, 1.88)
    joined = join_phrases([["in", "new", "york", "new"], [], ["york"]], {("new", "york")})
    assert list(joined) == [["in", "new_york", "new"], [], ["york"]]
    chain = join_phrases([["a", "b", "c", "d"]], {("a", "b"), ("b", "c"), ("c", "d")})
    assert list(chain) == [["a_b", "c_d"]]


# ------------------------------------------------------------------------------------- learning


def chatter(n=3000, seed=0):
    """Sentences about one of two things, of eight words each."""
    random = np.random.default_rng(seed)
    names = [[f"{kind}{i}" for i in range(8)] for kind in ("sea", "sky")]
    return [random.choice(names[n % 2], 6).tolist() for n in range(n)]


def small(kind, **settings):
    return kind(dimensions=10, window=3, min_count=1, subsample=1, **{"epochs": 3, **settings})


def spread(model):
    """The mean cosine within the two groups, and between them."""
    unit = normalize(model.vectors_, dim=1)
    same = torch.tensor([[a[:3] == b[:3] for a in model.words_] for b in model.words_])
    cosines = unit @ unit.T
    return cosines[same].mean().item(), cosines[~same].mean().item()


@KINDS
def test_words_that_keep_the_same_company_become_alike(kind):
    model = small(kind).fit(chatter())
    within, between = spread(model)
    assert within > 0.9
    assert between < 0.5
    assert {word[:3] for word, _ in model.most_similar("sea0", 7)} == {"sea"}
    assert model.loss_curve_[-1] < 0.8 * 6 * math.log(2)


@KINDS
def test_batches_learn_the_same(kind, monkeypatch):
    monkeypatch.setattr(kind, "_fit_blocks", kind._fit_batches)
    model = small(kind, epochs=8).fit(chatter(1600))
    within, between = spread(model)
    assert within > 0.9
    assert between < 0.5
    assert model.loss_curve_[-1] < model.loss_curve_[0]


def test_a_word_that_is_everywhere_makes_batches_small(monkeypatch):
    """Batches of 1024 would let its row overshoot: the loss would pass that of knowing nothing."""
    sizes = []

    def counted(v, u, given, rate, *, bag):
        sizes.append(len(given.targets))
        return update_batch(v, u, given, rate, bag=bag)

    monkeypatch.setattr("everynet.zoo.language.word2vec.update_batch", counted)
    monkeypatch.setattr(Word2Vec, "_fit_blocks", Word2Vec._fit_batches)
    given = [["the", word, "the", "the"] for sentence in chatter(300) for word in sentence]
    model = small(Word2Vec, epochs=2).fit(given)
    assert max(sizes) == 10  # the word is 3/4 of the text: 8 times in 10 or 11
    assert model.loss_curve_[-1] < 0.8 * 6 * math.log(2)


def test_batches_are_a_function_of_the_seed(monkeypatch):
    monkeypatch.setattr(Word2Vec, "_fit_blocks", Word2Vec._fit_batches)
    first, again, other = (small(Word2Vec, epochs=1, seed=s).fit(chatter(60)) for s in (0, 0, 1))
    assert torch.equal(first.vectors_, again.vectors_)
    assert not torch.equal(first.vectors_, other.vectors_)


def test_one_thread_repeats_and_two_learn_as_well(monkeypatch):
    monkeypatch.setattr("everynet.zoo.language.word2vec.BLOCK", 1000)
    first, again, other = (small(Word2Vec, seed=s).fit(chatter()) for s in (0, 0, 1))
    assert torch.equal(first.vectors_, again.vectors_)
    assert torch.equal(first.loss_curve_, again.loss_curve_)
    assert not torch.equal(first.vectors_, other.vectors_)
    assert len(first.loss_curve_) > 3 * 10
    within, between = spread(small(Word2Vec, threads=2).fit(chatter()))
    assert within > 0.9
    assert between < 0.5


def test_the_commonest_words_come_first_and_rare_ones_are_left_out():
    model = Word2Vec(min_count=2, dimensions=4).fit([["b", "a", "a"], ["a", "b", "c"]])
    assert model.words_ == ["a", "b"]
    assert model.counts_.tolist() == [3, 2]
    assert model.vectors_.shape == model.contexts_.shape == (2, 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["word2vec", "cbow"])
def test_the_recipe_reaches_its_goal(name):
    recipe = find(name)
    data = recipe.dataset()
    model = recipe.fit(recipe.model(data), data)
    figures = evaluate(recipe, model, data.test)
    assert all(goal.reached(figures) for goal in recipe.goals()), figures


@pytest.mark.slow
@pytest.mark.real_data
def test_text8_reaches_its_goal():
    recipe = find("word2vec-text8")
    data = recipe.dataset()
    model = recipe.fit(recipe.model(data), data)
    figures = evaluate(recipe, model, data.test)
    assert all(goal.reached(figures) for goal in recipe.goals()), figures
    assert figures == pytest.approx(model.evaluate(judgements.read("word-eval")))


# -------------------------------------------------------------------------------------- answers


@pytest.fixture(scope="module")
def theirs():
    return json.loads((HERE / "gensim_words.json").read_text())


@pytest.fixture(scope="module", params=["txt", "bin"])
def known(request):
    return WordVectors.load(HERE / f"gensim_words.{request.param}")


def test_answers_are_those_of_gensim(known, theirs):
    assert known.similarity("dog", "cats") == pytest.approx(theirs["similarity"], abs=1e-6)
    for ours, wanted in (
        (known.most_similar("king", 5), theirs["most_similar"]),
        (known.analogy("man", "king", "woman", 5), theirs["analogy"]),
    ):
        assert [word for word, _ in ours] == [word for word, _ in wanted]
        assert [x for _, x in ours] == pytest.approx([x for _, x in wanted], abs=1e-6)


def test_figures_are_those_of_gensim(known, theirs):
    pairs = [tuple(pair) for pair in theirs["pairs"]]
    asked = {
        s: [tuple(w.casefold() for w in q) for q in qs] for s, qs in theirs["analogies"].items()
    }
    found = known.evaluate(Judgements({"wordsim": pairs, "simlex": []}, asked))
    assert found["wordsim"] == pytest.approx(theirs["spearman"], abs=1e-6)
    assert found["analogies"] == pytest.approx(theirs["accuracy"], abs=1e-6)
    assert found["simlex"] == 0  # of nothing


def test_questions_with_an_unknown_word_are_left_out():
    by = Judgements(
        {"wordsim": [("a", "b", 3.0), ("a", "z", 1.0)], "simlex": [("b", "a", 2.0)]},
        {"s": [("a", "b", "c", "d"), ("a", "b", "c", "z")]},
    )
    rows, kind, score, left = select_known_questions(by, ["d", "c", "b", "A"])
    assert rows.tolist() == [[3, 2, 3, 2], [2, 3, 2, 3], [3, 2, 1, 0]]
    assert (kind.tolist(), score.tolist(), left) == ([0, 1, 2], [3, 2, 1], 2)


def test_agreement_is_of_ranks():
    kind, score = torch.tensor([0, 0, 0, 2, 2]), torch.tensor([1.0, 2, 3, 1, 1])
    found = summarise_questions(kind, score, torch.tensor([0.1, 0.11, 9, 1, 0]))
    assert found == {"wordsim": pytest.approx(1.0), "simlex": 0.0, "analogies": 0.5}


def test_lines_are_answered(known):
    wanted = [[word, round(x, 4)] for word, x in known.nearest(["king", "woman"], ["man"], 3)]
    assert known.answer_line("king - man + woman", 3) == {"nearest": wanted}
    assert known.answer_line("King - man + woman", 3) == {"nearest": wanted}
    assert known.answer_line("like: dog", 2) == known.answer_line("dog", 2)
    assert known.answer_line("like: dog", 2)["nearest"][0][0] == known.most_similar("dog")[0][0]
    refused = known.answer_line("king - mann + woman", 3)["refused"]
    assert refused.startswith("word (mann) must be one of the 20 that were learned")
    assert "man" in refused
    for line in ("king -", "king man", "like:", "king * man", "- man"):
        assert "must read like 'like: queen'" in known.answer_line(line, 3)["refused"], line


def test_groups_have_no_word_in_common_and_relations_are_of_known_words():
    words = [f"w{i}" for i in range(400)]
    model = Word2Vec()
    model.words_, model.vectors_ = words, drawn(400, 12).float()
    model.vectors_[200:] *= 0.1
    groups = model.similar_groups(4, 3)
    members = [word for group in groups.values() for word in group]
    assert 0 < len(groups) <= 4
    assert len(set(members)) == len(members) == 4 * len(groups)
    assert all(head == group[0] for head, group in groups.items())
    asked = [("w1", "w2", "w3", "w4"), ("w3", "w4", "w1", "w2"), ("w5", "w9", "w1", "w2")]
    found = model.analogy_pairs(
        Judgements({}, {"few": asked[:1], "some": [*asked, ("x", "y", "z", "z")]})
    )
    assert list(found) == ["some"]
    assert found["some"][0] == [("w1", "w2"), ("w3", "w4"), ("w5", "w9")]


def test_the_plane_keeps_what_varies_most():
    points = drawn(9, 2) @ torch.tensor([[3.0, 0, 0, 0], [0, 2, 0, 0]], dtype=torch.float64)
    flat = principal_plane(points + 5)
    torch.testing.assert_close(torch.cdist(flat, flat), torch.cdist(points, points))


def test_files_round_trip(tmp_path):
    model = small(Word2Vec, epochs=1).fit(chatter(50))
    for name in ("text", "binary"):
        getattr(model, f"save_{name}")(tmp_path / name)
        again = Word2Vec.load(tmp_path / name)
        assert again.words_ == model.words_
        assert torch.equal(again.vectors_, model.vectors_)
        assert again.most_similar("sea1") == model.most_similar("sea1")


# --------------------------------------------------------------------------------------- recipes


def test_which_word_stood_in_a_gap():
    """Centres have the words around them, those of their own sentence and no others."""
    recipe = find("word2vec").tiny()
    recipe = replace(recipe, window=2)
    around, own, other = recipe._windows([["a", "b", "a"], ["c"], ["b", "c"]], ["a", "b", "c"])
    assert own.tolist() == [0, 1, 0, 1, 2]
    found = [sorted(row[row >= 0].tolist()) for row in around]
    assert found == [[0, 1], [0, 0], [0, 1], [2], [1]]
    assert sorted(other.tolist()) == sorted(own.tolist())


def test_words_are_compared_by_the_sum_of_scores():
    recipe = find("word2vec").tiny()
    model = Word2Vec()
    model.vectors_, model.contexts_ = (
        torch.eye(3),
        torch.tensor([[1.0, 0, 0], [0, 2, 0], [0, 0, 3]]),
    )
    batch = (
        torch.tensor([[0, -1], [1, 2], [1, -1]]),
        torch.tensor([0, 1, 1]),
        torch.tensor([1, 2, 1]),
    )
    assert recipe.metrics(model, batch)["pairwise_accuracy"].tolist() == [1, 0, 0.5]


def test_phrases_are_words_of_the_recipe():
    recipe = replace(find("word2vec").tiny(), phrase_score=20.0)
    words = recipe.dataset().spec["words"]
    assert any("_" in word and not word.startswith("_") for word in words)
    assert words != find("word2vec").tiny().dataset().spec["words"]


# --------------------------------------------------------------------------------------- refusals


def test_refusals():
    for sentences in ([], [[]]):
        with pytest.raises(UserError, match="sentences must hold words, but there is none"):
            Word2Vec().fit(sentences)
    with pytest.raises(
        UserError, match=r"sentence \(a cat\) must be a list of words, because every"
    ):
        Word2Vec().fit(["a cat"])
    with pytest.raises(UserError, match=r"at least 2 different words that occur min_count \(1\)"):
        Word2Vec(min_count=1).fit([["a", "a", "a"]])
    with pytest.raises(UserError, match=r"min_count \(5\) times, .* but 0 of 2 does; give more"):
        Word2Vec().fit([["a", "b"]])
    for name in ("dimensions", "window", "negatives", "min_count", "epochs", "threads"):
        with pytest.raises(UserError, match=rf"{name} \(0\) must be at least 1"):
            Word2Vec(**{name: 0}).fit([["a", "b"]])
        with pytest.raises(UserError, match=rf"{name} \(0\) must be at least 1"):
            replace(find("word2vec"), **{name: 0})
    with pytest.raises(UserError, match=r"subsample \(0\) must be above 0, because the share"):
        Word2Vec(subsample=0).fit([["a", "b"]])
    with pytest.raises(UserError, match=r"subsample \(0\) must be a positive number"):
        replace(find("word2vec"), subsample=0)
    with pytest.raises(UserError, match=r"phrase_score \(-1\) must be at least 0"):
        replace(find("word2vec"), phrase_score=-1)
    with pytest.raises(NotFittedError, match="Word2Vec has learned no words yet; call fit"):
        Word2Vec().similarity("a", "b")
    model = Word2Vec(min_count=1, dimensions=2).fit([["cat", "dog"]])
    for asked in (lambda: model.similarity("cat", "bird"), lambda: model.most_similar("bird")):
        with pytest.raises(UserError, match=r"word \(bird\) must be one of the 2 that were learn"):
            asked()


def test_a_corpus_counts_its_words():
    corpus = Corpus.from_sentences([["b", "a", "b"], ["c", "b"]], 1)
    assert corpus.words == ["b", "a", "c"]
    assert corpus.text.tolist() == [0, 1, 0, -1, 2, 0, -1]
    assert corpus.counts.tolist() == [3, 1, 1]
