"""Real against corrupted: what a fault is, the network's equations, and what it is asked."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import log_softmax, softplus

from everynet import runs
from everynet.data.kinds.text import BLANK
from everynet.data.texts.tokens import Tokens
from everynet.metrics.ranking import auc
from everynet.recipes.catalog import find
from everynet.system.errors import UserError
from everynet.zoo.language.corrupted import (
    SORTS,
    SentenceDiscriminator,
    add_fault,
    corrupt,
    cut_sentences,
)


def discriminator(words=9, size=5, dropout=0.0):
    torch.manual_seed(0)
    net = SentenceDiscriminator(torch.rand(words).double() + 1, size, dropout).double()
    torch.nn.init.normal_(net.embedding.weight)
    return net.eval()


def some(rows=200, seed=0):
    """Sentences of which each word is another number, filled up with 0."""
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(4, 9, (rows,), generator=random)
    s = torch.arange(1, 9).expand(rows, -1) + 10 * torch.arange(rows)[:, None]
    return torch.where(torch.arange(8) < lengths[:, None], s, 0), lengths


# ----------------------------------------------------------------------------------------- faults


@pytest.mark.covers("R26")
@pytest.mark.parametrize("way", range(3))
def test_a_fault_is_one_of_its_sort(way):
    s, lengths = some()
    wrong, shorter = add_fault(s, lengths, torch.full_like(lengths, way), torch.Generator())
    for row, (before, n, after, m) in enumerate(
        zip(s.tolist(), lengths.tolist(), wrong.tolist(), shorter.tolist(), strict=True)
    ):
        line, made = before[:n], after[:m]
        assert after[m:] == [0] * (8 - m)
        if SORTS[way] == "swapped":
            assert sorted(made) == sorted(line)
            assert sum(a != b for a, b in zip(line, made, strict=True)) == 2
        elif SORTS[way] == "removed":
            assert m == n - 1
            assert any(made == line[:k] + line[k + 1 :] for k in range(n))
        else:
            changed = [k for k in range(n) if made[k] != line[k]]
            assert len(changed) <= 1
            assert all(made[k] in s and made[k] > 0 for k in changed), row
    differ = int((wrong != s).any(1).sum())
    assert differ >= len(s) - 5, "of 200 sentences a word is its own replacement once in 200"


def test_every_place_and_sort_comes_as_often():
    s, lengths = some(6000)
    wrong, shorter, way = corrupt(s, lengths, 1, torch.Generator().manual_seed(1))
    assert (torch.bincount(way) / 6000 - 1 / 3).abs().max() < 0.03
    eight = (way == 1) & (lengths == 8)
    place = (wrong[eight, :7] == s[eight, :7]).long().cumprod(1).sum(1)
    share = torch.bincount(place, minlength=8) / eight.sum()
    assert (share - 1 / 8).abs().max() < 5 * (1 / 8 * 7 / 8 / eight.sum()).sqrt()
    assert (shorter == lengths - (way == 1).long()).all()
    again = corrupt(s, lengths, 1, torch.Generator().manual_seed(1))
    assert torch.equal(again[0], wrong)
    assert (corrupt(s, lengths, 3)[1] >= lengths - 3).all()


def test_a_text_is_cut_at_full_stops_or_at_its_lines():
    text = "One two three four\nfive six. Seven eight nine ten eleven twelve!\n\nToo short.\n"
    assert cut_sentences(text) == [
        "One two three four five six.", "Seven eight nine ten eleven twelve!",
    ]  # fmt: skip
    assert cut_sentences("a b c d e f\na b\nu v w x y z\n") == ["a b c d e f", "u v w x y z"]


# -------------------------------------------------------------------------------------- equations


@pytest.mark.covers("R26")
def test_the_network_is_its_equations():
    net, s, lengths = discriminator(), torch.randint(1, 9, (3, 6)), torch.tensor([6, 4, 5])
    logits, nats = net(s, lengths)
    for row in range(3):
        line = s[row, : lengths[row]]
        h, given = torch.zeros(5).double(), []
        for t, word in enumerate(line):
            given.append(log_softmax(net.embedding.weight @ h + net.bias, 0)[word])
            h = net.lstm(net.embedding(line[None, : t + 1]))[0][0, -1]
        given = torch.stack(given)
        beyond = given + net.rarity[line]
        w, b = net.output.weight[0], net.output.bias[0]
        expected = w @ torch.stack([given.mean(), beyond.mean(), beyond.min()]) + b
        torch.testing.assert_close(logits[row], expected)
        torch.testing.assert_close(nats[row], -given.mean())


def test_at_first_a_word_is_as_likely_as_it_is_common():
    recipe = find("corrupted").tiny()
    data = recipe.dataset()
    model = recipe.model(data)
    count = torch.bincount(data.splits["train"][0].long(), minlength=300) + 1.0
    torch.testing.assert_close(model.bias, (count / count.sum()).log())
    _, beyond = model.word_scores(torch.randint(1, 300, (2, 3)))
    assert beyond[:, 0].abs().max() < 1e-4  # nothing comes before the first word


def test_the_loss_is_that_of_both_and_of_the_next_word():
    recipe = replace(find("corrupted").tiny(), dropout=0.0)
    data = recipe.dataset()
    model, batch = recipe.model(data), data.train(0)
    torch.manual_seed(3)
    terms = recipe.objective(model, batch)
    torch.manual_seed(3)
    wrong, shorter, _ = corrupt(*batch, recipe.faults)
    (real, nats), (fake, _) = model(*batch), model(wrong, shorter)
    torch.testing.assert_close(
        terms["binary_cross_entropy"],
        (softplus(-real) + softplus(fake)).mean(),
        rtol=1e-5,
        atol=1e-6,
    )
    torch.testing.assert_close(terms["next_word"], nats.mean())


def test_a_gap_is_filled_right_where_the_sentence_is_more_real_than_all_others():
    """By a network that knows the sentences, one that loathes them, and one that cannot tell."""
    recipe, net = find("corrupted").tiny(), discriminator()
    s, lengths = torch.arange(1, 241).view(40, 6), torch.full((40,), 6)
    found = {}
    for sign in (1.0, -1.0, 0.0):

        def known(rows, lengths, sign=sign):
            return sign * (rows == s).all(1).double(), torch.zeros(len(rows)).double()

        net.forward = known
        found[sign] = recipe.metrics(net, (s, lengths))["cloze_accuracy"].mean()
    assert found[1.0] > 0.75, "one of nine words from 240 is the right one again in 4 of 100"
    assert found[-1.0] == found[0.0] == 0, "a tie is no right answer"
    levels = iter([1.0, 0, 0, 0, 0, 2.0, 0, 0, 0, 0, 0])  # the sentence, nine words, a fault
    net.forward = lambda rows, lengths: (torch.full((len(rows),), next(levels)), torch.zeros(40))
    found = recipe.metrics(net, (s, lengths))
    assert found["cloze_accuracy"].mean() == 0, "one wrong word is held more real"


def test_figures_are_of_every_sort():
    recipe = find("corrupted").tiny()
    outputs = {
        "real": torch.tensor([2.0, 1.0, 0.0]), "corrupted": torch.tensor([0.5, 1.5, -1.0]),
        "sort": torch.tensor([0.0, 1.0, 2.0]), "nats": torch.ones(3),
        "cloze_accuracy": torch.tensor([1.0, 0.0, 0.0]), "cloze_baseline": torch.zeros(3),
    }  # fmt: skip
    found = recipe.summarise(outputs)
    both = torch.tensor([2.0, 1.0, 0.0, 0.5, 1.5, -1.0])
    assert found["auc"] == pytest.approx(auc(both, torch.arange(6) < 3))
    assert found["auc_swapped"] == pytest.approx(2 / 3)
    assert found["auc_removed"] == pytest.approx(1 / 3)
    assert found["auc_replaced"] == 1.0
    assert found["cloze_accuracy"] == pytest.approx(1 / 3)


# ------------------------------------------------------------------------------------------- asked


@torch.no_grad()
def test_a_line_is_judged_and_its_gap_filled():
    tokens = Tokens.learned(["the man pulled a cart up hill"], "words")
    spec = {"tokens": tokens.spec, "classes": ["corrupted", "real"]}
    net, recipe = discriminator(len(tokens)), find("corrupted").tiny()
    line = torch.tensor(tokens.encode("the man pulled mules"))
    asked = torch.tensor([1, 2, BLANK, 3])
    told, filled = recipe.predict(net, [line, asked], spec, candidates=3)
    p = net(line[None], torch.tensor([4]))[0].sigmoid().item()
    both = {"corrupted": pytest.approx(1 - p), "real": pytest.approx(p)}
    assert told.pop("probabilities") == both
    best = {
        "class": "real" if p > 0.5 else "corrupted",
        "probability": pytest.approx(max(p, 1 - p)),
    }
    assert told == {**best, "tokens": 4, "unknown": 1}
    scores = {}
    for word in range(1, len(tokens)):
        row = torch.tensor([[1, 2, word, 3]])
        scores[tokens.vocabulary[word]] = net(row, torch.tensor([4]))[0].sigmoid().item()
    best = sorted(scores, key=lambda word: -scores[word])[:3]
    assert [word for word, _ in filled["candidates"]] == best
    assert [p for _, p in filled["candidates"]] == pytest.approx([scores[word] for word in best])
    words = [tokens.vocabulary[n] for n in (1, 2)]
    assert filled["filled"] == " ".join([*words, best[0], tokens.vocabulary[3]])
    with pytest.raises(UserError, match=r"a line must hold one ___ to be filled, but holds 2"):
        recipe.predict(net, [torch.tensor([BLANK, BLANK])], spec)
    with pytest.raises(UserError, match=r"candidates \(0\) must be at least 1"):
        recipe.predict(net, [line], spec, candidates=0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"faults": 0}, r"faults \(0\) must be from 1 to 5, because a sentence may have 6 words"),
        ({"hidden_size": 0}, r"hidden_size \(0\) must be at least 1"),
        ({"dropout": 1.0}, r"dropout \(1.0\) must be at least 0 and below 1"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("corrupted"), **fields)


def test_texts_it_refuses(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("a b\n" * 300)
    recipe = replace(find("corrupted").tiny(), data=str(path))
    with pytest.raises(UserError, match=r"data \(.*\) must hold at least 2 sentences of 6 to 40 w"):
        recipe.dataset()
    path.write_text("a a a a a a a\n" * 300)
    with pytest.raises(UserError, match=r"data \(.*\) must hold at least 2 different words, beca"):
        recipe.dataset()


@pytest.mark.slow
@pytest.mark.covers("R26")
def test_learns_topics(tmp_path):
    """Its goal; and of ten words the right one fills a gap more often than the commonest."""
    result = runs.run(find("corrupted"), tmp_path)
    assert result.reached, result.metrics
    assert result.metrics["cloze_accuracy"] > 2 * max(0.1, result.metrics["cloze_baseline"])
