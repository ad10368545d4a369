"""The encoder-decoder: its equations against torch's cells, padding, lengths, greedy decoding."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import everynet
from everynet.recipes.catalog import find
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.training.loop import begin, evaluate
from everynet.zoo.translation.seq2seq import LSTMSeq2Seq, Seq2Seq, Seq2SeqTranslation

PAD, START, END = 0, 2, 3


def net(source=11, target=9, embedding=5, hidden=7):
    torch.manual_seed(0)
    return Seq2Seq(source, target, embedding=embedding, hidden_size=hidden).double()


def sentence(length, tokens=11, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(4, tokens, (1, length), generator=draw)


def lengths(*numbers):
    return torch.tensor(numbers)


def by_cells(made, x, before):
    """Equations (1) to (4) for one sentence, cell by cell."""
    cells = []
    for layer in (made.encoder, made.decoder):
        cell = nn.GRUCell(layer.input_size, layer.hidden_size).double()
        names = {"weight_ih": "weight_ih_l0", "weight_hh": "weight_hh_l0",
                 "bias_ih": "bias_ih_l0", "bias_hh": "bias_hh_l0"}  # fmt: skip
        cell.load_state_dict({ours: getattr(layer, theirs) for ours, theirs in names.items()})
        cells.append(cell)
    h = torch.zeros(1, made.encoder.hidden_size, dtype=torch.float64)
    for token in x[0]:
        h = cells[0](made.source.weight[token][None], h)
    c, logits = h, []
    for token in before[0]:
        h = cells[1](made.target.weight[token][None], h)
        logits.append(h @ made.output.weight.T + made.output.bias)
    return c, torch.stack(logits, 1)


@pytest.mark.parametrize(("read", "said"), [(1, 1), (4, 7), (7, 4)])
@pytest.mark.covers("R29")
def test_the_network_is_its_equations_whatever_the_two_lengths(read, said):
    made, x = net(), sentence(read)
    before = torch.cat([torch.tensor([[START]]), sentence(said - 1, 9, seed=1)], 1)
    c, logits = by_cells(made, x, before)
    torch.testing.assert_close(made.begin(x, lengths(read)), c)
    torch.testing.assert_close(made(x, lengths(read), before), logits)


@pytest.mark.covers("R29")
def test_padding_and_company_change_nothing():
    """Each sentence alone, and all in one rectangle whose filler is any token at all."""
    made = net()
    sentences = [sentence(n, seed=n) for n in (3, 8, 1, 5)]
    before = torch.cat([torch.full((4, 1), START), torch.randint(4, 9, (4, 4))], 1)
    for filler in (PAD, 7):
        x = torch.full((4, 8), filler)
        for row, one in enumerate(sentences):
            x[row, : one.shape[1]] = one
        together = made(x, lengths(3, 8, 1, 5), before)
        said, total = made.write(x, lengths(3, 8, 1, 5), 12)
        for row, one in enumerate(sentences):
            alone = made(one, lengths(one.shape[1]), before[row : row + 1])
            torch.testing.assert_close(together[row : row + 1], alone)
            single, its = made.write(one, lengths(one.shape[1]), 12)
            assert said[row, : single.shape[1]].tolist() == single[0].tolist()
            assert not said[row, single.shape[1] :].any()
            torch.testing.assert_close(total[row], its[0])


def batch():
    x, y = torch.full((3, 6), PAD), torch.full((3, 7), PAD)
    for row, (read, said) in enumerate(((6, 2), (2, 5), (4, 3))):
        x[row, :read] = sentence(read, seed=row)
        y[row, : said + 2] = torch.tensor([START, *sentence(said, 9, seed=row)[0], END])
    return x, lengths(6, 2, 4), y, lengths(4, 7, 5)


def test_the_loss_is_the_mean_over_the_tokens_and_their_chain_of_probabilities():
    made, recipe = net(), Seq2SeqTranslation()
    x, x_lengths, y, y_lengths = batch()
    nats = []
    for row in range(3):
        target = y[row : row + 1, : y_lengths[row]]
        _, logits = by_cells(made, x[row : row + 1, : x_lengths[row]], target[:, :-1])
        p = logits.softmax(2)[0, torch.arange(target.shape[1] - 1), target[0, 1:]]
        nats.append(-p.log().sum())
    tokens = int((y_lengths - 1).sum())
    loss = recipe.objective(made, batch())["cross_entropy"]
    torch.testing.assert_close(loss, sum(nats) / tokens)
    values = recipe.metrics(made, batch())
    torch.testing.assert_close(values["nats"], torch.stack(nats))
    assert values["tokens"].tolist() == [3, 6, 4]
    assert recipe.summarise(values)["cross_entropy"] == pytest.approx(loss.item())


def test_a_network_that_knows_nothing_pays_log_of_the_vocabulary():
    made = net()
    for weight in made.output.parameters():
        nn.init.zeros_(weight)
    loss = Seq2SeqTranslation().objective(made, batch())["cross_entropy"]
    assert loss.item() == pytest.approx(math.log(9))


def test_what_is_true_later_does_not_change_what_was_said_before():
    """Teacher forcing gives the decoder the tokens before each one and no others."""
    made, x = net(), sentence(4)
    before = sentence(6, 9, seed=3)
    whole = made(x, lengths(4), before)
    changed = before.clone()
    changed[0, 4:] = (changed[0, 4:] + 1) % 9
    torch.testing.assert_close(made(x, lengths(4), changed)[:, :4], whole[:, :4])
    assert not torch.allclose(made(x, lengths(4), changed)[:, 4:], whole[:, 4:])


def test_the_sentence_reaches_the_decoder_through_the_vector_alone():
    made, before = net(), sentence(5, 9, seed=2)
    one, other = sentence(4, seed=1), sentence(6, seed=2)
    assert not torch.allclose(made(one, lengths(4), before), made(other, lengths(6), before))
    c = made.begin(one, lengths(4))
    made.begin = lambda x, lengths: c
    torch.testing.assert_close(made(one, lengths(4), before), made(other, lengths(6), before))


def make_lstm(layers=2):
    torch.manual_seed(0)
    return LSTMSeq2Seq(11, 9, embedding=4, hidden_size=5, layers=layers).double().eval()


def lstm_by_cells(made, x, before):
    """Equations (5), (6) and (4) for one sentence, cell by cell."""
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
    for token in x.flip(0):
        h = made.source.weight[token][None]
        for n, cell in enumerate(cells[0]):
            states[n] = cell(h, states[n])
            h = states[n][0]
    states, logits = [(h, zero) for h, _ in states], []
    for token in before:
        h = made.target.weight[token][None]
        for n, cell in enumerate(cells[1]):
            states[n] = cell(h, states[n])
            h = states[n][0]
        logits.append(h[0] @ made.output.weight.T + made.output.bias)
    return torch.stack(logits)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.covers("R29")
def test_the_lstm_form_is_its_equations_padded_or_not_and_token_by_token(layers):
    made, both = make_lstm(layers), lengths(3, 6)
    x, before = torch.randint(4, 11, (2, 6)), torch.randint(4, 9, (2, 4))
    found, state, steps = made(x, both, before), made.begin(x, both), []
    for row in range(2):
        torch.testing.assert_close(
            found[row], lstm_by_cells(made, x[row, : both[row]], before[row])
        )
    for token in before.unbind(1):
        logits, state = made.step(token, state)
        steps.append(logits)
    torch.testing.assert_close(torch.stack(steps, 1), found)


# --------------------------------------------------------------------------------------- decoding


def greedy_by_hand(made, x, longest):
    said, total = [], 0.0
    for _ in range(longest):
        before = torch.tensor([[START, *said]])
        p = made(x, lengths(x.shape[1]), before)[0, -1].softmax(0)
        said.append(int(p.argmax()))
        total += p.max().log().item()
        if said[-1] == END:
            break
    return said, total


@pytest.mark.parametrize("seed", range(4))
def test_greedy_is_one_likeliest_token_after_another(seed):
    made, x = net(), sentence(5, seed=seed)
    made.output.bias.data[END] += 0.1 * seed  # so that some end early
    said, total = made.write(x, lengths(5), 9)
    tokens, expected = greedy_by_hand(made, x, 9)
    assert said[0].tolist() == tokens
    assert total.item() == pytest.approx(expected)


def test_a_sentence_that_ended_says_nothing_more():
    made = net()
    made.output.bias.data[END] = 50.0
    said, total = made.write(sentence(4).expand(2, -1), lengths(4, 4), 9)
    assert said.tolist() == [[END], [END]]
    assert total.abs().max() < 1e-12
    made.output.bias.data[END] = -50.0
    said, _ = made.write(sentence(4).expand(2, -1), lengths(4, 4), 9)
    assert said.shape == (2, 9)


def test_a_sentence_that_ended_waits_in_silence_for_the_others():
    """One row ends at once and would go on with 5; the other says 4 and 5 and then ends."""
    made = net(target=6, hidden=2)

    def decode(before, state):
        return state[:, None] + torch.tensor([0.0, 1.0], dtype=torch.float64)  # counts steps

    def output(c):
        script = {0: [END, 5, END], 1: [4, 5, END]}
        logits = torch.zeros(len(c), 6, dtype=torch.float64)
        for row, (who, step) in enumerate(c.long().tolist()):
            logits[row, script[who][step - 1]] = 2.0
        return logits

    made.decode = decode
    made.begin = lambda x, lengths: torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    object.__setattr__(made, "output", output)
    del made._modules["output"]
    tokens, total = made.write(sentence(2).expand(2, -1), lengths(2, 2), 9)
    assert tokens.tolist() == [[END, PAD, PAD], [4, 5, END]]
    one = 2 - math.log(math.exp(2) + 5)
    assert total.tolist() == pytest.approx([one, 3 * one])


def test_exact_means_every_token_and_the_end():
    made, recipe = net(), Seq2SeqTranslation()
    x, two = sentence(4).expand(2, -1), lengths(4, 4)
    made.output.bias.data[END] = 50.0  # says <end> and nothing else
    y = torch.tensor([[START, END, PAD], [START, 5, END]])
    assert recipe.metrics(made, (x, two, y, lengths(2, 3)))["exact"].tolist() == [1, 0]
    made.output.bias.data[5] = 99.0  # says 5 without an end
    y = torch.tensor([[START, 5, 5, END], [START, 5, 5, 5]])
    assert recipe.metrics(made, (x, two, y, lengths(4, 4)))["exact"].tolist() == [0, 1]


def test_prediction_gives_text_and_its_log_probability():
    recipe = find("seq2seq").tiny()
    data = recipe.dataset()
    made = recipe.model(data).eval()
    inputs = [torch.tensor([4, 5, 6]), torch.tensor([7, 4, 4, 4, 5])]
    with torch.no_grad():
        rows = recipe.predict(made, inputs, data.spec, longest=6)
        alone = [recipe.predict(made, [one], data.spec, longest=6)[0] for one in inputs]
        tokens, total = greedy_by_hand(made, inputs[1][None], 6)
    assert [row["output"] for row in rows] == [row["output"] for row in alone]
    assert rows[1]["log_probability"] == pytest.approx(total, rel=1e-5)
    vocabulary = data.spec["target_tokens"]["vocabulary"]
    assert rows[1]["output"] == "".join(vocabulary[t] for t in tokens if t > END)
    assert len(recipe.predict(made, inputs, data.spec)) == 2
    with pytest.raises(UserError, match=r"longest \(-1\) must be 0, which follows the source"):
        recipe.predict(made, inputs, data.spec, longest=-1)


# ----------------------------------------------------------------------------------------- recipe


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"embedding": 0}, r"embedding \(0\) must be at least 1"),
        ({"hidden_size": 0}, r"hidden_size \(0\) must be at least 1"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("seq2seq"), **fields)


def test_data_it_refuses():
    with pytest.raises(UserError, match=r"data \(iris\) must be pairs of texts"):
        everynet.recipe("seq2seq", data="iris").dataset()
    with pytest.raises(UserError, match=r"unknown tokens 'letters'"):
        everynet.recipe("seq2seq", data="reversal:100", tokens="letters").dataset()


def test_the_network_follows_the_data():
    recipe = find("seq2seq").tiny()
    made = recipe.model(recipe.dataset())
    assert made.source.num_embeddings == made.target.num_embeddings == 4 + 8
    assert made.decoder.hidden_size == 8


def test_figures_do_not_depend_on_how_many_are_evaluated_at_once():
    recipe = find("seq2seq").tiny()
    data = recipe.dataset()
    state = begin(recipe, data)
    found = [evaluate(recipe, state.model, replace(data, eval_batch_size=n).valid) for n in (3, 99)]
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_last_weights_are_kept_when_the_rate_ends_at_zero():
    recipe = find("seq2seq")
    assert recipe.monitor() is None
    assert replace(recipe, schedule="constant").monitor().metric == "exact"


def test_pictures_of_the_smallest_network_and_of_one_sentence():
    recipe = replace(find("seq2seq").tiny(), hidden_size=1)
    data = recipe.dataset()
    made = recipe.model(data)
    for size in (1, 1000):
        assert len(recipe.draw(made, replace(data, eval_batch_size=size), ())) == 3


@pytest.mark.slow
@pytest.mark.covers("R29")
def test_learns_to_reverse(tmp_path):
    found = [run(replace(find("seq2seq"), seed=s), tmp_path).metrics for s in range(3)]
    assert sum(metrics["exact"] for metrics in found) / 3 >= 0.99
