"""The neural conversation model: equations against cells, decoding, n-grams beside it, answers."""

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import nn

import everynet
from everynet.recipes.catalog import find
from everynet.runs.job import Job
from everynet.system.errors import UserError
from everynet.zoo.dialogue.conversation import (
    Conversation,
    ConversationModel,
    fit_replies,
    score_replies,
)

START, END, FILLERS, WORDS = 2, 3, 8, 13


def net(layers=2):
    torch.manual_seed(0)
    made = ConversationModel(WORDS, embedding=4, hidden_size=5, layers=layers).double().eval()
    made.start, made.end, made.unknown, made.fillers = START, END, 1, FILLERS
    return made


def by_cells(made, x, before):
    """Equations (1) to (4) for one context, cell by cell."""
    cells = []
    for layers in (made.encoder, made.decoder):
        cells.append([])
        for layer in layers:
            cell = nn.LSTMCell(layer.input_size, layer.hidden_size).double()
            names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            cell.load_state_dict({name: getattr(layer, f"{name}_l0") for name in names})
            cells[-1].append(cell)
    zero = torch.zeros(1, 5, dtype=torch.float64)
    states = [(zero, zero) for _ in cells[0]]
    for token in x:
        h = made.embedding.weight[token][None]
        for n, cell in enumerate(cells[0]):
            states[n] = cell(h, states[n])
            h = states[n][0]
    states, logits = [(h, zero) for h, _ in states], []
    for token in before:
        h = made.embedding.weight[token][None]
        for n, cell in enumerate(cells[1]):
            states[n] = cell(h, states[n])
            h = states[n][0]
        logits.append(h[0] @ made.output.weight.T + made.output.bias)
    return torch.stack(logits)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.covers("R38")
def test_it_is_its_equations_padded_or_not_and_token_by_token(layers):
    made, lengths = net(layers), torch.tensor([3, 6])
    x, before = torch.randint(4, WORDS, (2, 6)), torch.randint(8, WORDS, (2, 4))
    found, state, steps = made(x, lengths, before), made.begin(x, lengths), []
    for row in range(2):
        torch.testing.assert_close(found[row], by_cells(made, x[row, : lengths[row]], before[row]))
    for token in before.unbind(1):
        logits, state = made.step(token, state)
        steps.append(logits)
    torch.testing.assert_close(torch.stack(steps, 1), found)
    changed = x.clone()
    changed[0, 3:] = 0  # padding changes nothing
    torch.testing.assert_close(made(changed, lengths, before), found)
    alone = made(x[:1, :3], lengths[:1], before[:1])
    torch.testing.assert_close(alone, found[:1])


def test_nothing_but_words_and_the_end_is_written():
    made, x, lengths = net(), torch.randint(8, WORDS, (6, 4)), torch.full((6,), 4)
    made.output.bias.data[:FILLERS] = 50.0
    made.output.bias.data[END] = 0.0
    for beam in (1, 3):
        tokens, _ = made.write(x, lengths, 9, beam)
        assert all(n == 0 or n >= FILLERS for row in tokens.tolist() for n in row)
    made.output.bias.data[END] = 99.0
    tokens, score = made.write(x, lengths, 9)
    assert not tokens.any()
    assert score.abs().max() < 1e-9


def test_greedy_takes_the_likeliest_and_a_beam_finds_no_less():
    made, x, lengths = net(), torch.randint(8, WORDS, (5, 4)), torch.full((5,), 4)
    made.output.bias.data[END] = 1.0
    greedy, total = made.write(x, lengths, 6)
    for row in range(5):
        said, sum_ = [], 0.0
        for _ in range(6):
            logits = made(x[row : row + 1], lengths[:1], torch.tensor([[START, *said]]))[0, -1]
            logits[[0, 1, 2, 4, 5, 6, 7]] = -torch.inf
            token = int(logits.argmax())
            sum_ += logits.log_softmax(0)[token].item()
            if token == END:
                break
            said.append(token)
        assert [n for n in greedy[row].tolist() if n] == said
        assert total[row].item() == pytest.approx(sum_)
    _, beam = made.write(x, lengths, 6, beam=40)
    counts = (greedy != 0).sum(1) + 1
    ended = counts <= 6  # a beam prefers what ends
    assert ended.any()
    assert (beam >= total / counts - 1e-9)[ended].all()


@pytest.fixture(scope="module")
def tiny():
    recipe = find("conversation").tiny()
    data = recipe.dataset()
    return recipe, data, recipe.model(data).eval()


@pytest.mark.covers("R38")
def test_perplexity_is_over_all_words_and_ends(tiny, monkeypatch):
    """Also where a reply is longer than what is held at once."""
    monkeypatch.setattr("everynet.zoo.dialogue.conversation.AT_ONCE", 2)
    recipe, data, model = tiny
    batch = next(iter(data.valid))
    values = recipe.metrics(model, batch)
    x, lengths, y, y_lengths = batch
    with torch.no_grad():
        for row in range(3):
            target = y[row, 1 : y_lengths[row]]
            p = model(x[row : row + 1, : lengths[row]], lengths[row : row + 1],
                      y[row : row + 1, : y_lengths[row] - 1])[0].log_softmax(1)  # fmt: skip
            expected = -p[torch.arange(len(target)), target].sum()
            assert values["nats"][row].item() == pytest.approx(expected.item(), rel=1e-4)
    assert (values["tokens"] == y_lengths - 1).all()
    found = recipe.summarise({"nats": torch.tensor([2.0, 7.0]), "tokens": torch.tensor([1.0, 2.0])})
    assert found["perplexity"] == pytest.approx(math.exp(3))


def test_long_replies_are_learned_in_part_and_evaluated_whole():
    recipe = replace(find("conversation").tiny(), reply_words=3)
    data, whole = recipe.dataset(), find("conversation").tiny().dataset()
    for step in range(5):
        _, _, y, lengths = data.train(step)
        assert y.shape[1] == lengths.max() == 5
    longest = [max(int(lengths.max()) for *_, lengths in each.test) for each in (data, whole)]
    assert longest[0] == longest[1] > 5


def test_trigrams_are_of_the_same_words(tiny):
    """Their probabilities sum to one over the words, and each reply is scored with its end."""
    _, data, _ = tiny
    trigrams = fit_replies(data)
    assert trigrams.predict_next(["<s>"]).sum() == pytest.approx(1)
    logp, reply = score_replies(trigrams, data, "test")
    counts = torch.bincount(reply)
    lengths = data.splits["test"][3].diff() - 1
    assert counts.tolist() == lengths.tolist()
    assert (logp < 0).all()


def test_the_final_metrics_count_replies(tiny):
    recipe, data, model = tiny
    found = recipe.final(model, data, torch.Generator().manual_seed(0), beam=2, contexts=20)
    x, lengths, _, _ = data.sampler.at(data.splits["test"], torch.arange(20))
    said = [tuple(n for n in row if n) for row in model.write(x, lengths, 40)[0].tolist()]
    assert found["different_greedy"] == len({*said}) / 20
    assert found["commonest_greedy"] == Counter(said).most_common(1)[0][1] / 20
    assert found["different_drawn"] > found["different_greedy"]
    assert found["ngram_perplexity"] > 1
    with pytest.raises(UserError, match=r"beam \(0\) and contexts \(5\) must be at least 1"):
        recipe.final(model, data, torch.Generator(), beam=0, contexts=5)


def test_the_end_is_the_state_after_the_last_turn(tiny):
    """Turns and speakers are tokens of the one vocabulary, and the context ends in a turn."""
    recipe, data, model = tiny
    x, lengths, *_ = next(iter(data.valid))
    words = data.spec["tokens"]["vocabulary"]
    assert words == data.spec["target_tokens"]["vocabulary"]
    assert {words[int(row[n - 1])] for row, n in zip(x, lengths, strict=True)} == {"<turn>"}
    assert model.embedding.num_embeddings == len(words)
    assert recipe.optimizer == "sgd"
    assert recipe.clip > 0


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "draw", lambda self, model: ())
        result = everynet.run(find("conversation").tiny(), tmp_path_factory.mktemp("runs"))
    return everynet.trained(result.folder)


def test_predictions_write_and_draw(made):
    rows = made.predict(["hello , i am eva", "how much is a cup ?"], longest=5)
    assert all(len(row["output"].split()) <= 5 and row["log_probability"] < 0 for row in rows)
    assert made.predict(["how much is a cup ?"], longest=5)[0]["output"] == rows[1]["output"]
    drawn = [made.predict(["hello"] * 9, temperature=1.0, seed=seed) for seed in (0, 0, 1)]
    said = [[row["output"] for row in rows] for rows in drawn]
    assert said[0] == said[1] != said[2]
    (row,) = made.predict(["word " * 150])
    assert row["cut"] == 50
    assert made.predict(["hello"], beam=3)[0]["log_probability"] < 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"longest": 0}, r"longest \(0\) must be at least 1"),
        ({"beam": 0}, r"beam \(0\) must be 1, which takes the likeliest"),
        ({"temperature": -1.0}, r"temperature \(-1.0\) must be above 0"),
        ({"temperature": 1.0, "beam": 2}, r"beam \(2\) must be 1 where temperature"),
    ],
)
def test_settings_it_refuses(made, settings, message):
    with pytest.raises(UserError, match=message):
        made.predict(["hello"], **settings)


def test_fields_it_refuses():
    for name in ("turns", "words", "embedding", "hidden_size", "layers"):
        with pytest.raises(UserError, match=rf"{name} \(0\) must be at least 1"):
            replace(find("conversation"), **{name: 0})
    with pytest.raises(UserError, match=r"shared_vocabulary \(False\) must be true"):
        Conversation(shared_vocabulary=False)
    with pytest.raises(UserError, match="dropout"):
        Conversation(dropout=1.0)


@pytest.mark.slow
@pytest.mark.covers("R38")
def test_learns_what_was_spoken_of(tmp_path):
    found = everynet.run(find("conversation"), tmp_path).metrics
    assert found["right_earlier"] >= 0.99
    assert found["perplexity"] < found["ngram_perplexity"]
