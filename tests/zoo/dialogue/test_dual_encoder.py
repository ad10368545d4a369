"""The dual encoder: its equations against loops, its records, what it predicts and refuses."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import everynet
from everynet.data.texts.tokens import Tokens
from everynet.recipes.catalog import find
from everynet.runs.job import Job
from everynet.system.errors import UserError
from everynet.zoo.dialogue.contexts import find_ambiguous, read_replies
from everynet.zoo.dialogue.dual_encoder import (
    BatchReplies,
    DrawnReplies,
    DualEncoder,
    batch_loss,
    drawn_loss,
    make_records,
    score_ten,
)
from everynet.zoo.dialogue.tfidf import rank_first, recall, score_by_words, standardize


def net(vocabulary=11, hidden=5):
    torch.manual_seed(0)
    made = DualEncoder(vocabulary, embedding=4, hidden_size=hidden).double().eval()
    nn.init.normal_(made.M)
    return made


def texts(*lengths, seed=0, vocabulary=11):
    """Texts of these lengths as rows, what follows each being any token."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randint(4, vocabulary, (len(lengths), max(lengths)), generator=random)
    return x, torch.tensor(lengths)


def by_cells(made, x):
    """Equation (1) for one text, by the four gates as they are written."""
    lstm = made.lstm
    h = c = torch.zeros(lstm.hidden_size, dtype=torch.float64)
    for token in x.tolist():
        sums = lstm.weight_ih_l0 @ made.embedding.weight[token] + lstm.bias_ih_l0
        sums = sums + lstm.weight_hh_l0 @ h + lstm.bias_hh_l0
        i, f, g, o = sums.chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
    return h


@pytest.mark.covers("R36")
def test_the_logit_is_c_m_r_one_by_one_and_for_the_batch():
    made = net()
    x, lengths = texts(3, 6, 1)
    y, y_lengths = texts(2, 5, 4, seed=1)
    c = torch.stack([by_cells(made, one[:n]) for one, n in zip(x, lengths, strict=True)])
    r = torch.stack([by_cells(made, one[:n]) for one, n in zip(y, y_lengths, strict=True)])
    torch.testing.assert_close(made.encode(x, lengths), c)
    expected = torch.stack(
        [
            sum(c[n, i] * made.M[i, j] * r[n, j] for i in range(5) for j in range(5))
            for n in range(3)
        ]
    )
    torch.testing.assert_close(made(x, lengths, y, y_lengths), expected)
    every = made.score_all(made.encode(x, lengths), made.encode(y, y_lengths))
    torch.testing.assert_close(every.diagonal(), expected)
    for n in range(3):
        for k in range(3):
            torch.testing.assert_close(every[n, k], made.score_pairs(c[n], r[k]))


@pytest.mark.covers("R36")
def test_padding_and_company_change_nothing():
    made = net()
    x, lengths = texts(3, 8, 1, 5)
    for filler in (0, 7):
        padded = x.clone()
        for row, length in enumerate(lengths.tolist()):
            padded[row, length:] = filler
        together = made.encode(padded, lengths)
        for row, length in enumerate(lengths.tolist()):
            alone = made.encode(x[row : row + 1, :length], lengths[row : row + 1])
            torch.testing.assert_close(together[row : row + 1], alone)
    some = [x[row, :length].tolist() for row, length in enumerate(lengths.tolist())]
    torch.testing.assert_close(made.encode_texts(some), made.encode(x, lengths))


@pytest.mark.covers("R36")
def test_the_loss_of_true_and_drawn_replies():
    scores = torch.tensor([[0.3, 0.5, -2.0], [-1.0, 2.0, 0.1]]).double()

    def p(logit):
        return 1 / (1 + math.exp(-logit))

    expected = [
        -(math.log(p(a)) + (math.log(1 - p(b)) + math.log(1 - p(c))) / 2) / 2
        for a, b, c in scores.tolist()
    ]
    assert drawn_loss(scores).tolist() == pytest.approx(expected)
    assert drawn_loss(torch.zeros(1, 2)).item() == pytest.approx(math.log(2))


@pytest.mark.covers("R36")
def test_the_loss_among_all_replies_of_a_batch():
    """By the softmax over the others; a reply that is word for word the true one is none."""
    scores = torch.tensor([[1.0, 2.0, 0.5], [0.0, 1.0, 3.0], [2.0, 0.0, 1.0]]).double()
    y = torch.tensor([[4, 5], [6, 0], [4, 5]])  # the first and the last are the same
    expected = [
        -math.log(math.exp(1) / (math.exp(1) + math.exp(2))),
        -math.log(math.exp(1) / (math.exp(0) + math.exp(1) + math.exp(3))),
        -math.log(math.exp(1) / (math.exp(0) + math.exp(1))),
    ]
    assert batch_loss(scores, y).tolist() == pytest.approx(expected)


def batch(vocabulary=11):
    x, lengths = texts(3, 6, 1, 4)
    y, y_lengths = texts(2, 5, 4, 3, seed=1)
    others, _ = texts(*[5] * 36, seed=2)
    return x, lengths, y, y_lengths, others.view(4, 9, 5), torch.full((4, 9), 4)


def test_objectives_are_the_losses_of_the_scores():
    made, (x, lengths, y, y_lengths, others, counts) = net(), batch()
    c, r = made.encode(x, lengths), made.encode(y, y_lengths)
    found = BatchReplies().objective(made, batch())["cross_entropy"]
    torch.testing.assert_close(found, batch_loss(made.score_all(c, r), y).mean())
    one = (x, lengths, y, y_lengths, others[:, :1], counts[:, :1])  # nothing to choose from
    d = made.encode(others[:, 0], counts[:, 0])
    both = torch.stack([made.score_pairs(c, r), made.score_pairs(c, d)], 1)
    found = DrawnReplies().objective(made, one)["cross_entropy"]
    torch.testing.assert_close(found, drawn_loss(both).mean())
    found = DrawnReplies(drawn=9).objective(made, batch())["cross_entropy"]
    torch.testing.assert_close(found, drawn_loss(score_ten(made, batch())).mean())


def test_ten_replies_are_scored_each_with_its_own_context():
    made, (x, lengths, y, y_lengths, others, counts) = net(), batch()
    found = score_ten(made, batch())
    torch.testing.assert_close(found[:, 0], made(x, lengths, y, y_lengths))
    for k in range(9):
        torch.testing.assert_close(found[:, k + 1], made(x, lengths, others[:, k], counts[:, k]))
    values = DrawnReplies().metrics(made, batch())
    rank = [1 + sum(b >= row[0] for b in row[1:]) for row in found.tolist()]
    assert rank_first(found).tolist() == rank
    for k in (1, 2, 5):
        assert values[f"recall_{k}"].tolist() == [float(n <= k) for n in rank]


def test_ranks_and_sums_of_scores():
    scores = torch.tensor([[3.0, 1.0, 2.0], [1.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    assert rank_first(scores).tolist() == [1, 2, 3]  # what is equal counts as larger
    assert [recall(scores, k) for k in (1, 2, 3)] == pytest.approx([0.5, 2 / 3, 1])
    assert [recall(torch.zeros(1, 4), k) for k in (1, 3, 4)] == pytest.approx([0.25, 0.75, 1])
    found = standardize(scores.double() * 7 + 3)
    torch.testing.assert_close(found, standardize(scores.double()))
    assert standardize(torch.zeros(1, 3)).tolist() == [[0.0, 0.0, 0.0]]


def test_words_score_as_scikit_learn_has_it():
    """TF-IDF by hand of one context with three replies."""
    from everynet.data.kinds.pairs import Pairs

    some = [(f"where is cafe {n}", f"cafe {n} is here") for n in range(40)]
    talk = Pairs.divide(some, "cafes")
    replies = ["cafe 1 is here", "no idea", "where"]
    found = score_by_words(
        talk, "test", 2, replies, torch.tensor([[0, 1, 2]] * len(talk.parts["test"][0]))
    )
    assert found.shape == (len(talk.parts["test"][0]), 3)
    assert (found[:, 1] == 0).all()
    assert (found[:, 0] > 0).all()
    fitted = [*talk.parts["train"][0], *talk.parts["train"][1]]
    words = {w: math.log((1 + len(fitted)) / (1 + sum(w in t.split() for t in fitted))) + 1
             for w in ("where", "is", "cafe")}  # fmt: skip
    left = talk.parts["test"][0][0].split()
    number = left[-1]
    own = {w: words[w] for w in ("where", "is", "cafe")}
    if len(number) > 1 and any(number in t.split() for t in fitted):
        own[number] = (
            math.log((1 + len(fitted)) / (1 + sum(number in t.split() for t in fitted))) + 1
        )
    norm = math.sqrt(sum(v * v for v in own.values()))
    assert found[0, 2].item() == pytest.approx(own["where"] / norm)


# ----------------------------------------------------------------------------------------- records


def split(*pairs):
    from everynet.data.samplers import flattened

    return (*flattened([x for x, _ in pairs]), *flattened([y for _, y in pairs]))


def test_records_hold_nine_other_replies_none_twice():
    pairs = [([9, n], [2, *range(20 + n % 12, 23 + n % 12), 3]) for n in range(30)]
    x, lengths, y, y_lengths, others, counts = make_records(split(*pairs), 99, "some")
    assert lengths.tolist() == [2] * 30
    for row in range(30):
        assert y[row, : y_lengths[row]].tolist() == pairs[row][1]
        rows = {tuple(one) for one in others[row].tolist()}
        assert len(rows) == 9
        assert tuple(y[row].tolist()) not in rows
        assert counts[row].tolist() == [5] * 9
    again = make_records(split(*pairs), 99, "some")
    assert all(
        (a == b).all() for a, b in zip((x, y, others), (again[0], again[2], again[4]), strict=True)
    )


def test_long_replies_keep_their_first_words_and_their_end():
    pairs = [([9], [2, *range(10 * n, 10 * n + 6), 3]) for n in range(1, 12)]
    _, _, y, y_lengths, *_ = make_records(split(*pairs), 4, "some")
    assert y[0].tolist() == [2, 10, 11, 12, 13, 3]
    assert y_lengths.tolist() == [6] * 11


def test_too_few_replies_are_one_line():
    pairs = [([9, n], [2, n % 9 + 10, 3]) for n in range(30)]
    with pytest.raises(UserError, match=r"a: test \(9 different replies\) must hold at least 10"):
        make_records(split(*pairs), 9, "a: test")


def test_what_needs_an_earlier_turn():
    tokens = Tokens.of(find("dual-encoder").tiny().dataset().spec)
    end = tokens.index["<turn>"]
    x = torch.tensor([[6, 20, end, 6, 21, end], [6, 22, end, 6, 21, end], [6, 23, end, 0, 0, 0]])
    y = torch.tensor([[2, 30, 3], [2, 31, 3], [2, 30, 3]])
    lengths = torch.tensor([6, 6, 3])
    assert find_ambiguous(x, lengths, y, tokens).tolist() == [True, True, False]


# ------------------------------------------------------------------------------------------ recipe


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "draw", lambda self, model: ())
        result = everynet.run(find("dual-encoder").tiny(), tmp_path_factory.mktemp("runs"))
    return everynet.trained(result.folder)


def test_probabilities_are_of_one_reply_or_of_all_that_are_offered():
    scores = torch.tensor([[0.0, math.log(3)]]).double()
    assert DrawnReplies().probability(scores).tolist() == [pytest.approx([0.5, 0.75])]
    assert BatchReplies().probability(scores).tolist() == [pytest.approx([0.25, 0.75])]
    assert BatchReplies().loss_of_ten(scores).tolist() == pytest.approx([math.log(4)])
    assert DrawnReplies().loss_of_ten(scores).tolist() == pytest.approx(drawn_loss(scores).tolist())


def test_predictions_rank_replies_of_training_or_of_a_file(made, tmp_path):
    path = tmp_path / "replies.txt"
    path.write_text("goodbye , come again !\n\nit opens at 5 .\ngoodbye , come again !\n")
    (row,) = made.predict(["hello , i am eva"], candidates=str(path), n=9)
    assert {text for text, _ in row["replies"]} == {"goodbye , come again !", "it opens at 5 ."}
    assert row["output"] == row["replies"][0][0]
    assert row["replies"][0][1] == row["probability"] >= row["replies"][1][1]
    rows = made.predict(["hello", "hello\tgood morning\tyes please"])
    assert all(len(row["replies"]) == 3 for row in rows)
    assert all("cut" not in row for row in rows)
    alone = made.predict(["hello\tgood morning\tyes please"])
    assert alone[0]["output"] == rows[1]["output"]
    assert alone[0]["probability"] == pytest.approx(rows[1]["probability"], abs=1e-6)


def test_own_conversations_are_evaluated_as_the_run_learned_them(made, tmp_path):
    """All of a file is tested on; the tokens are those of the run."""
    path = tmp_path / "talk.jsonl"
    lines = [f'{{"turns": [["a", "question {n}"], ["b", "answer {n} ."]]}}\n' for n in range(12)]
    path.write_text("".join(lines))
    found = everynet.evaluate(made.path, data=str(path))
    assert 0 <= found["recall_1"] <= found["recall_5"] <= 1
    assert "tfidf_1" not in found  # which is fitted to the texts that were learned from
    path.write_text("".join(lines[:9]))
    with pytest.raises(UserError, match=r"\(9 different replies\) must hold at least 10"):
        everynet.evaluate(made.path, data=str(path))


def test_a_context_that_is_too_long_is_cut_and_says_so(made):
    (row,) = made.predict(["word " * 150 + "\t" + "word " * 10])
    assert row["cut"] == 160 - 100
    (row,) = made.predict(["\t".join(["one two"] * 12)])
    assert row["cut"] == 2 * 4


def test_common_replies_are_marked(made, tmp_path):
    path = tmp_path / "one.txt"
    for text, common in (("Goodbye , come again !", True), ("what a day", False)):
        path.write_text(text)
        (row,) = made.predict(["hello"], candidates=str(path))
        assert row["common"] is common


def test_what_it_refuses(made, tmp_path):
    path = tmp_path / "none.txt"
    path.write_text("\n \n")
    with pytest.raises(UserError, match=r"candidates \(.*none.txt\) must hold a reply a line"):
        made.predict(["hello"], candidates=str(path))
    with pytest.raises(UserError, match=r"n \(0\) must be at least 1"):
        made.predict(["hello"], n=0)
    with pytest.raises(UserError, match=r"replies .* must hold a reply a line"):
        read_replies(str(path), "replies")
    for name in ("turns", "words", "reply_words", "embedding", "hidden_size"):
        with pytest.raises(UserError, match=rf"{name} \(0\) must be at least 1"):
            replace(find("dual-encoder"), **{name: 0})
    for drawn in (0, 10):
        with pytest.raises(UserError, match=rf"drawn \({drawn}\) must be from 1 to 9"):
            replace(find("dual-encoder-drawn"), drawn=drawn)
    with pytest.raises(UserError, match=r"dropout \(1.0\) must be at least 0 and below 1"):
        replace(find("dual-encoder"), dropout=1.0)
    with pytest.raises(UserError, match=r"data \(iris\) must be pairs of texts"):
        everynet.recipe("dual-encoder", data="iris").dataset()


def test_best_weights_are_chosen_by_the_recall():
    assert find("dual-encoder").monitor().metric == "recall_1"
    assert replace(find("dual-encoder"), goal="").monitor() is None


@pytest.mark.slow
@pytest.mark.covers("R36")
def test_learns_what_was_spoken_of(tmp_path):
    found = everynet.run(find("dual-encoder"), tmp_path).metrics
    assert found["right_earlier"] >= 0.99
