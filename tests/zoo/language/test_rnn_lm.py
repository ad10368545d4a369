"""The language model of words: its equations, lines scored and filled, what is missing found."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

import everynet
from everynet import runs
from everynet.data.kinds import named
from everynet.data.kinds.text import BLANK
from everynet.data.texts.tokens import Tokens
from everynet.recipes.catalog import find
from everynet.recipes.state import State
from everynet.system.errors import UserError
from everynet.training.loop import begin, evaluate
from everynet.zoo.language.cloze import (
    all_pairs,
    insert_words,
    rank_insertions,
    recall_removed_words,
)
from everynet.zoo.language.ngram_model import fit_trigrams
from everynet.zoo.language.rnn_lm import LineScorer, RecurrentNextWord, TiedReader, _word_bars
from everynet.zoo.recurrent.lstm import LSTM

WORDS = "the man pulled the cart and a horse pulled the man\nthe cart is a cart\n"


def network(dropout=0.0, layers=2, seed=0):
    torch.manual_seed(seed)
    return TiedReader(9, 6, [LSTM(6, 6) for _ in range(layers)], dropout, 0.5).double()


def spec_of(text=WORDS):
    tokens = Tokens.learned([text], "words")
    return tokens, {"tokens": tokens.spec, "shape": [len(tokens)]}


@pytest.fixture
def asked():
    """A model that knows nothing of a small vocabulary, and how to ask it."""
    tokens, spec = spec_of()
    torch.manual_seed(1)
    model = TiedReader(len(tokens), 6, [LSTM(6, 6)], 0.0, 1.0).double().eval()
    recipe = find("rnn-lm").tiny()

    def ask(line, **given):
        numbers = torch.tensor(tokens.encode(line))
        numbers[[n for n, word in enumerate(line.split()) if word == "___"]] = BLANK
        with torch.no_grad():
            return recipe.predict(model, [numbers], spec, **given)[0]

    return model, tokens, ask


def test_dots_of_the_picture_are_the_trigrams_of_the_training_text(asked):
    model, tokens, _ = asked
    stream = torch.tensor(tokens.encode(WORDS * 3))
    counts = fit_trigrams(stream, list(tokens.vocabulary))
    line = torch.tensor(tokens.encode("the man pulled a cart"))
    with torch.no_grad():
        bars = _word_bars(LineScorer(model, tokens), line, counts)
        logp = LineScorer(model, tokens).log_probabilities(line[None])[0]
    beside = [one.beside for one in bars]
    sentence = counts.logprob(["the man pulled a cart"])  # from its start to its end
    assert beside == pytest.approx(np.exp(sentence[: len(bars)]).tolist())
    assert beside[3:] == pytest.approx(
        [
            float(counts.predict_next("man pulled")[tokens.index["a"]]),
            float(counts.predict_next("pulled a")[tokens.index["cart"]]),
        ]
    )
    assert [one.probability for one in bars] == pytest.approx(logp.exp().tolist()[: len(bars)])


# ------------------------------------------------------------------------------------- equations


def test_vectors_are_the_same_for_reading_and_saying():
    net, s = network().eval(), torch.randint(9, (2, 5))
    states, _ = net.states(s)
    expected = states @ net.embedding.weight.T + net.output.bias
    torch.testing.assert_close(net(s)[0], expected)
    x = net.embedding.weight[s]
    for layer in net.layers:
        x, _ = layer(x)
    torch.testing.assert_close(states, x)
    count = sum(p.numel() for p in net.parameters())
    assert count == 9 * 6 + 9 + 2 * (4 * 6 * 12 + 8 * 6)
    assert all(p.abs().max() <= 0.5 for p in net.parameters())
    assert max(p.abs().max() for p in net.parameters()) > 0.45


def test_parts_are_left_out_of_vectors_between_layers_and_at_the_end():
    """A layer that gives back what it is given shows where parts are zero."""

    class Same(torch.nn.Module):
        def forward(self, x, h=None):
            return x, torch.zeros(1, len(x), 6)

    torch.manual_seed(0)
    net = TiedReader(9, 6, [Same(), Same()], 0.5, 0.5).train()
    s = torch.randint(9, (200, 5))
    kept = (net.states(s)[0] != 0).double().mean().item()
    assert abs(kept - 0.25) < 0.03  # half of the vectors, and half of what is left
    logits, vectors = net(s)[0], net.embedding.weight
    left = torch.linalg.lstsq(vectors, (logits - net.output.bias).flatten(0, 1).T).solution
    assert abs((left.abs() > 1e-4).double().mean().item() - 0.125) < 0.03


def test_one_update_sums_the_loss_over_the_window():
    """The gradient is that of the sum over the window's words, the mean over lanes."""
    recipe = replace(find("rnn-lm").tiny(), dropout=0.0, lr=0.125, clip=0.0, every=0)
    data = recipe.dataset()
    state = begin(recipe, data)
    s, following, keep = data.train(0)
    before = {n: p.detach().clone() for n, p in state.model.named_parameters()}
    model = recipe.model(data)
    model.load_state_dict(state.model.state_dict())
    loss = cross_entropy(model(s)[0].transpose(1, 2), following, reduction="none").sum(1).mean()
    loss.backward()
    terms = recipe.step(state, (s, following, keep))
    assert terms["cross_entropy"].item() == pytest.approx(loss.item() / recipe.window, rel=1e-5)
    for name, weight in model.named_parameters():
        moved = before[name] - 0.125 * weight.grad
        torch.testing.assert_close(dict(state.model.named_parameters())[name], moved)


def test_the_state_is_carried_without_its_gradient():
    recipe = replace(find("rnn-lm").tiny(), dropout=0.0)
    data = recipe.dataset()
    state = begin(recipe, data)
    assert isinstance(state, State)
    for step in range(2):
        s, following, keep = data.train(step)
        _, h = state.model.states(s, state.extra.h * keep[:, None])
        recipe.step(state, (s, following, keep))
        torch.testing.assert_close(state.extra.h, h)
        assert not state.extra.h.requires_grad


def test_a_lane_that_begins_anew_has_a_state_of_zero():
    recipe = replace(find("rnn-lm").tiny(), dropout=0.0)
    data = recipe.dataset()
    state = begin(recipe, data)
    s, following, keep = data.train(0)
    s, following = s[:, :2], following[:, :2]  # before a state is forgotten
    state.extra.h.copy_(torch.randn(state.extra.h.shape))
    keep = torch.arange(len(keep)).to(keep) % 2
    begun = state.extra.h.clone()
    begun[:, ::2] = 0
    _, expected = state.model.states(s, begun)
    _, carried = state.model.states(s, state.extra.h)
    assert not torch.allclose(expected, carried)
    recipe.step(state, (s, following, keep))
    torch.testing.assert_close(state.extra.h, expected)


def test_the_rate_falls_by_its_rule():
    """Of lstm-ptb-medium: 1 for six epochs, then divided by 1.2 at the beginning of each."""
    recipe = find("lstm-ptb-medium")
    for epoch in (0, 5, 6, 7, 17):
        expected = 1.2 ** -max(0, epoch + 1 - 6)
        for step in (epoch * 1327, epoch * 1327 + 1326):
            assert recipe.rate(step, []) == pytest.approx(expected)
    assert replace(recipe, every=0).rate(20_000, []) == 1.0


# ------------------------------------------------------------------------------------------ lines


@pytest.mark.covers("R21")
def test_a_line_is_the_product_of_its_words(asked):
    model, tokens, ask = asked
    answer = ask("the man pulled a mule")
    s = torch.tensor([tokens.encode("\nthe man pulled a mule\n")])
    logp = model(s[:, :-1])[0].log_softmax(2)[0].gather(1, s[0, 1:, None])[:, 0]
    assert [word for word, _ in answer["words"]] == [
        *("the", "man", "pulled", "a", "<unknown>", "</s>")
    ]
    assert [p for _, p in answer["words"]] == pytest.approx(logp.tolist())
    assert answer["cross_entropy"] == pytest.approx(-logp.mean().item())
    assert answer["perplexity"] == pytest.approx(math.exp(-logp.mean().item()))
    assert (answer["tokens"], answer["unknown"]) == (5, 1)


@pytest.mark.covers("R21")
def test_lines_of_a_length_sum_to_what_has_not_ended(asked):
    """Over all lines of two words, P of the words without the end: 1 in all."""
    model, tokens, _ = asked
    pairs = torch.cartesian_prod(*[torch.arange(len(tokens))] * 2)
    with torch.no_grad():
        logp = LineScorer(model, tokens).log_probabilities(pairs)[:, :2].sum(1)
    assert logp.exp().sum().item() == pytest.approx(1.0)


def test_a_text_without_lines_scores_from_the_second_word_on():
    tokens, spec = spec_of("a b c a b")
    model = TiedReader(len(tokens), 4, [LSTM(4, 4)]).double().eval()
    recipe = find("rnn-lm").tiny()
    with torch.no_grad():
        (answer,) = recipe.predict(model, [torch.tensor(tokens.encode("a b c"))], spec)
        assert [word for word, _ in answer["words"]] == ["b", "c"]
        filled = recipe.predict(model, [torch.tensor([BLANK, 1, 2])], spec, tries=2, candidates=2)
        assert len(filled[0]["candidates"]) == 2
        with pytest.raises(UserError, match=r"a line must hold at least 2 tokens, because none"):
            recipe.predict(model, [torch.tensor([1])], spec)


def test_a_new_word_is_a_rare_one_where_the_text_has_those():
    tokens, _ = spec_of("the <unk> pulled a <unk>\n")
    lines = LineScorer(network(), tokens)
    assert lines.replace_unknown(torch.tensor([0, 1])).tolist() == [tokens.index["<unk>"], 1]
    assert not {tokens.index["<unk>"], 0, tokens.index["\n"]} & {*lines.candidate_words().tolist()}


def test_long_lists_of_lines_are_scored_in_parts(asked, monkeypatch):
    model, tokens, _ = asked
    lines = torch.randint(len(tokens), (7, 4))
    with torch.no_grad():
        whole = LineScorer(model, tokens).score(lines)
        monkeypatch.setattr("everynet.zoo.language.rnn_lm.LOGITS", 2 * 6 * len(tokens))
        torch.testing.assert_close(LineScorer(model, tokens).score(lines), whole)


# ------------------------------------------------------------------------------------------- gaps


@given(st.lists(st.integers(1, 9), max_size=6), st.data())
def test_a_word_is_inserted_at_its_place(line, data):
    places = data.draw(st.lists(st.integers(0, len(line)), min_size=1, max_size=4))
    made = insert_words(
        torch.tensor(line).long(), torch.tensor(places), torch.full((len(places),), 70)
    )
    for row, place in zip(made.tolist(), places, strict=True):
        assert row == [*line[:place], 70, *line[place:]]


@pytest.mark.covers("R27")
def test_a_gap_is_filled_by_what_makes_the_line_likeliest(asked):
    model, tokens, ask = asked
    answer = ask("the man ___ the cart", candidates=3, tries=0)
    words = [w for w in tokens.vocabulary if w not in ("\n", "<unknown>")]
    scores = {}
    for word in words:
        s = torch.tensor([tokens.encode(f"\nthe man {word} the cart\n")])
        logp = model(s[:, :-1])[0].log_softmax(2).gather(2, s[:, 1:, None])
        scores[word] = math.exp(logp.sum().item())
    total = sum(scores.values())
    best = sorted(scores, key=lambda word: -scores[word])[:3]
    assert [word for word, _ in answer["candidates"]] == best
    assert [p for _, p in answer["candidates"]] == pytest.approx([scores[w] / total for w in best])
    assert answer["filled"] == f"the man {best[0]} the cart"
    assert ask("___", tries=0)["filled"] in words


def test_few_tries_take_the_words_that_are_likely_there(asked):
    model, tokens, ask = asked
    likely = model(torch.tensor([tokens.encode("\nthe man")]))[0][0, -1]
    likely[[0, tokens.index["\n"]]] = -math.inf
    two = {tokens.vocabulary[n] for n in likely.topk(2).indices.tolist()}
    assert {w for w, _ in ask("the man ___ the cart", tries=2)["candidates"]} == two


@pytest.mark.covers("R27")
def test_a_missing_word_is_looked_for_at_every_place(asked):
    """'The man the cart': five places, and each word of the vocabulary at each of them."""
    model, tokens, ask = asked
    answer = ask("the man the cart", missing=True, tries=0, candidates=4)
    words = [n for n in range(1, len(tokens)) if tokens.vocabulary[n] != "\n"]
    assert answer["pairs"] == 5 * len(words)
    line = tokens.encode("the man the cart")
    scores = {}
    with torch.no_grad():
        for place in range(5):
            for word in words:
                made = torch.tensor([[*line[:place], word, *line[place:]]])
                scores[place, word] = LineScorer(model, tokens).score(made).item()
    best = sorted(scores, key=lambda pair: -scores[pair])[:4]
    total = sum(map(math.exp, scores.values()))
    assert [(k, tokens.index[w]) for w, k, _ in answer["candidates"]] == best
    shares = [p for _, _, p in answer["candidates"]]
    assert shares == pytest.approx([math.exp(scores[pair]) / total for pair in best])
    assert len(answer["filled"].split()) == 5
    few = ask("the man the cart", missing=True, tries=2)
    assert few["pairs"] == 5 * len(words)
    assert len(few["candidates"]) == 5


def test_all_pairs_are_tried():
    places, words = all_pairs(3, torch.tensor([7, 8]))
    assert list(zip(places.tolist(), words.tolist(), strict=True)) == [
        *((0, 7), (0, 8), (1, 7), (1, 8), (2, 7), (2, 8))
    ]


@pytest.mark.covers("R27")
def test_a_model_that_knows_the_line_finds_the_word_again():
    lines = [torch.tensor([1, 2, 3, 4]), torch.tensor([5, 5, 6]), torch.tensor([7])]
    known = {tuple(line.tolist()) for line in lines}

    def score(rows):
        return torch.tensor([0.0 if tuple(row) in known else -9.0 for row in rows.tolist()])

    def propose(rest):
        return rank_insertions(score, rest, *all_pairs(len(rest) + 1, torch.arange(1, 9)), 1)

    assert recall_removed_words(propose, lines, torch.Generator().manual_seed(0)) == 1.0
    assert (
        recall_removed_words(lambda _: [(0, 8, 1.0)], lines, torch.Generator().manual_seed(0))
        == 0.0
    )


# ---------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("line", "given", "message"),
    [
        ("the ___ pulled ___ cart", {}, r"a line must hold one ___ to be filled, but holds 2"),
        ("the ___ cart", {"missing": True}, r"a line with ___ says where a word is missing; leave"),
        ("the cart", {"candidates": 0}, r"candidates \(0\) must be at least 1"),
        ("the cart", {"tries": -1}, r"tries \(-1\) must be at least 1, or 0, which tries every"),
    ],
)
def test_lines_it_refuses(asked, line, given, message):
    with pytest.raises(UserError, match=message):
        asked[2](line, **given)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"spread": 0.0}, r"spread \(0.0\) must be a positive number"),
        ({"flat": -1}, r"flat \(-1\) must be at least 0"),
        ({"every": -1}, r"every \(-1\) must be at least 0"),
        ({"fall": 0.5}, r"fall \(0.5\) must be a number from 1 up"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("rnn-lm"), **fields)


def test_texts_it_refuses(tmp_path):
    path = tmp_path / "one.txt"
    path.write_text("a " * 400)
    recipe = replace(find("rnn-lm").tiny(), data=str(path), batch_size=2)
    with pytest.raises(UserError, match=r"data \(.*\) must hold at least 2 different words, beca"):
        recipe.model(recipe.dataset())
    path.write_text("")
    with pytest.raises(UserError, match=r"one.txt is empty"):
        recipe.dataset()


# ------------------------------------------------------------------------------------------ recipe


def test_lines_of_a_file_are_scored_and_filled(tmp_path):
    recipe = find("rnn-lm").tiny()
    data = recipe.dataset()
    model = recipe.model(data).eval()
    (tmp_path / "lines.txt").write_text("the value of\n\nthe ___ of the\n")
    _, lines = named("text").read([tmp_path / "lines.txt"], data.spec)
    with torch.no_grad():
        scored, filled = recipe.predict(model, lines, data.spec)
    assert len(scored["words"]) == 4
    assert len(filled["candidates"]) == 5


def test_a_network_that_knows_nothing_has_the_perplexity_of_its_vocabulary():
    recipe = find("rnn-lm").tiny()
    data = recipe.dataset()
    model = recipe.model(data)
    for weight in model.parameters():
        torch.nn.init.zeros_(weight)
    assert evaluate(recipe, model, data.valid)["perplexity"] == pytest.approx(100, rel=1e-5)


def test_the_penn_treebank_recipes_are_as_published():
    medium = find("lstm-ptb-medium")
    assert isinstance(medium, RecurrentNextWord)
    assert (medium.hidden_size, medium.layers, medium.dropout, medium.spread) == (650, 2, 0.5, 0.05)
    assert (medium.batch_size, medium.window, medium.clip, medium.lr) == (20, 35, 5.0, 1.0)


def found_by(model, data, ngram, most=150):
    """How often the network and n-grams find a word that is missing from unseen lines; chance."""
    lines = LineScorer(model.eval(), Tokens.of(data.spec))
    unseen = lines.select_lines(data.splits["test"][0].long(), 4, 16)[:most]
    counts = find(ngram).fit(find(ngram).model(data), data)
    words = lines.candidate_words()

    def by_network(rest):
        return rank_insertions(lines.score, rest, *lines.propose(rest, range(len(rest) + 1), 200))

    def by_counts(rest):
        end = rest.new_tensor(lines.ends)

        def score(rows):
            whole = torch.cat([rows, end.expand(len(rows), -1)], 1)
            return counts.logprob(whole.flatten()).view(whole.shape).sum(1)

        return rank_insertions(score, rest, *all_pairs(len(rest) + 1, words))

    with torch.no_grad():
        found = [
            recall_removed_words(propose, unseen, torch.Generator().manual_seed(0))
            for propose in (by_network, by_counts)
        ]
    return *found, 5 * len(unseen) / (len(words) * sum(map(len, unseen)))


@pytest.mark.slow
@pytest.mark.covers("R21", "R27")
def test_learns_topics(tmp_path):
    """Its goal; and a missing word is found ten times as often as by chance."""
    result = runs.run(find("rnn-lm"), tmp_path)
    assert result.reached, result.metrics
    model = everynet.load(result.folder)
    network, _, chance = found_by(model, find("rnn-lm").dataset(), "ngram")
    assert network > 10 * chance


@pytest.mark.slow
@pytest.mark.covers("R21", "R27")
def test_learns_the_penn_treebank(tmp_path):
    """Its goal, better than 5-grams; and it finds more missing words than they do."""
    recipe = find("lstm-ptb")
    result = runs.run(recipe, tmp_path, device="cpu")
    assert result.reached, result.metrics
    assert result.metrics["perplexity"] < 141.19  # of 5-grams: test_ngram.py
    network, counts, _ = found_by(everynet.load(result.folder), recipe.dataset(), "ngram-ptb", 100)
    assert network > counts


@pytest.mark.slow
@pytest.mark.covers("R21")
def test_pieces_of_words_know_what_is_pulled_and_not_pooled(tmp_path):
    """`pooled` is there but twice, and yet has a probability: that of its pieces."""
    recipe = replace(find("rnn-lm"), data="text8", tokens="bpe", vocabulary=8192)
    result = runs.run(replace(recipe, dropout=0.0, steps=1500, goal=""), tmp_path, device="cpu")
    model, tokens = everynet.load(result.folder), Tokens.of(recipe.dataset().spec)
    lines = LineScorer(model.eval(), tokens)
    with torch.no_grad():
        for line in ("the man {} the cart", "he was {} out of the water", "a cart {} by a horse"):
            pulled, pooled = (
                lines.score(torch.tensor([tokens.encode(line.format(word))]))
                for word in ("pulled", "pooled")
            )
            assert pulled > pooled
