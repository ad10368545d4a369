"""Both ways and stacked: torch's layers in value and gradient, and what each side sees."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from everynet import runs
from everynet.data.texts.tokens import Tokens
from everynet.recipes.catalog import find
from everynet.recipes.state import State
from everynet.system.errors import UserError
from everynet.zoo.recurrent import context
from everynet.zoo.recurrent.bidirectional import (
    CELLS,
    PAIR,
    Tagging,
    draw_passes,
    inside,
    make_stack,
)

LENGTHS = torch.tensor([4, 7, 1, 6])


def ours(cell, layers, ways="both", size=3, hidden=5):
    torch.manual_seed(0)
    return make_stack(cell, ways, size, hidden, layers=layers).double()


def theirs(cell, net, layers, size=3, hidden=5):
    """Torch's own with the same weights."""
    made = CELLS[cell](size, hidden, layers, batch_first=True, bidirectional=True).double()
    with torch.no_grad():
        for number, layer in enumerate(net.layers):
            for way, end in ((layer.onward, ""), (layer.backward, "_reverse")):
                for name, value in way.layer.named_parameters():
                    target = name.replace("_l0", f"_l{number}") + end
                    getattr(made, target).copy_(value)
    return made


def packed(made, x, lengths):
    """Torch's states over unequal lengths: 0 where there is no word."""
    given_ = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(made(given_)[0], batch_first=True, total_length=x.shape[1])[0]


# ------------------------------------------------------------------------------------- equations


@pytest.mark.covers("R12")
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("layers", [1, 2])
def test_values_and_gradients_are_torchs_over_unequal_lengths(cell, layers):
    net = ours(cell, layers)
    reference = theirs(cell, net, layers)
    x = torch.randn(4, 7, 3, dtype=torch.float64, requires_grad=True)
    mine, expected = net(x, LENGTHS), packed(reference, x, LENGTHS)
    torch.testing.assert_close(mine, expected, rtol=1e-10, atol=1e-10)
    weights = torch.randn_like(mine)
    (x_mine,) = torch.autograd.grad((mine * weights).sum(), x, retain_graph=True)
    (x_theirs,) = torch.autograd.grad((expected * weights).sum(), x, retain_graph=True)
    torch.testing.assert_close(x_mine, x_theirs, rtol=1e-10, atol=1e-10)
    (mine * weights).sum().backward()
    (expected * weights).sum().backward()
    for number, layer in enumerate(net.layers):
        for way, end in ((layer.onward, ""), (layer.backward, "_reverse")):
            for name, value in way.layer.named_parameters():
                target = getattr(reference, name.replace("_l0", f"_l{number}") + end)
                torch.testing.assert_close(value.grad, target.grad, rtol=1e-10, atol=1e-10)


def test_a_plain_layer_is_the_loop_of_its_equations():
    net = ours("rnn", 1)
    layer = net.layers[0]
    x = torch.randn(1, 6, 3, dtype=torch.float64)

    def step(way, value, state):
        u, w, b, c = (getattr(way.layer, f"{n}_l0") for n in
                      ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))  # fmt: skip
        return torch.tanh(u @ value + w @ state + b + c)

    a, b = torch.zeros(7, 5).double(), torch.zeros(8, 5).double()
    for t in range(1, 7):
        a[t] = step(layer.onward, x[0, t - 1], a[t - 1])
    for t in range(6, 0, -1):
        b[t] = step(layer.backward, x[0, t - 1], b[t + 1])
    h = torch.cat([a[1:7], b[1:7]], 1)
    torch.testing.assert_close(net(x, torch.tensor([6]))[0], h)


@pytest.mark.covers("R12")
@pytest.mark.parametrize("cell", CELLS)
def test_a_sentence_is_the_same_alone_and_in_company_whatever_fills_it_up(cell):
    net = ours(cell, 2)
    x = torch.randn(4, 7, 3, dtype=torch.float64)
    together = net(x, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = net(x[row : row + 1, :length], LENGTHS[row : row + 1])
        torch.testing.assert_close(together[row : row + 1, :length], alone)
        assert not together[row, length:].any()


@pytest.mark.covers("R12")
@settings(max_examples=12)
@given(place=st.integers(0, 6), ways=st.sampled_from(["onward", "backward", "both"]))
def test_a_changed_word_changes_what_sees_it(place, ways):
    net = ours("gru", 1, ways)
    x = torch.randn(1, 7, 3, dtype=torch.float64)
    other = x.clone()
    other[:, place] += 1
    lengths = torch.tensor([7])
    changed = (net(x, lengths) != net(other, lengths)).any(2)[0].tolist()
    sees = {
        "onward": [t >= place for t in range(7)],
        "backward": [t <= place for t in range(7)],
        "both": [True] * 7,
    }
    assert changed == sees[ways]


def test_the_two_passes_do_not_see_each_other():
    net = ours("gru", 1)
    x, lengths = torch.randn(1, 7, 3, dtype=torch.float64), torch.tensor([7])
    before = net(x, lengths)
    with torch.no_grad():
        for weight in net.layers[0].backward.parameters():
            weight.zero_()
    after = net(x, lengths)
    assert torch.equal(before[:, :, :5], after[:, :, :5])
    assert not torch.equal(before[:, :, 5:], after[:, :, 5:])


def test_words_are_where_lengths_say():
    assert inside(LENGTHS, 7).sum(1).tolist() == LENGTHS.tolist()
    assert inside(LENGTHS, 7)[0].tolist() == [True] * 4 + [False] * 3


# ---------------------------------------------------------------------------------------- recipe


def test_the_words_of_the_pair_are_learned():
    learned = Tokens.of(Tagging().dataset().spec).index
    assert all(word in learned for sentence in PAIR for word in sentence.split())


def tagger():
    recipe = Tagging(pairs=40, batch_size=8)
    data = recipe.dataset()
    torch.manual_seed(0)
    return recipe, recipe.model(data).double(), data


def test_the_loss_is_the_mean_over_the_words():
    recipe, model, data = tagger()
    x, lengths, y, *_ = batch = next(iter(data.valid))
    assert len(lengths.unique()) > 1
    nats = []
    for row, length in enumerate(lengths.tolist()):
        h = model.states(x[row : row + 1, :length], lengths[row : row + 1])[0]
        logits = h @ model.output.weight.T + model.output.bias
        p = logits.softmax(1)[torch.arange(length), y[row, :length]]
        nats += (-p.log()).tolist()
    loss = recipe.objective(model, batch)["cross_entropy"].item()
    assert loss == pytest.approx(sum(nats) / len(nats), rel=1e-12)


@pytest.mark.covers("R12")
@pytest.mark.parametrize(("ways", "blind"), [("onward", "told_after"), ("backward", "told_before")])
def test_one_side_is_right_once_in_each_pair_whatever_its_weights(ways, blind):
    """The ceiling is exact: half of the words that are told by the other side."""
    recipe = Tagging(pairs=60, batch_size=8, ways=ways)
    data = recipe.dataset()
    for seed in range(3):
        torch.manual_seed(seed)
        model = recipe.model(data).double()
        (batch,) = data.test
        assert recipe.metrics(model, batch)[blind].mean() == 0.5


def test_figures_count_words_and_no_filler():
    recipe, model, data = tagger()
    batch = next(iter(data.valid))
    found = recipe.metrics(model, batch)
    assert len(found["accuracy"]) == batch[1].sum()
    doubtful = [len(found[f"told_{side}"]) for side in ("after", "before")]
    assert doubtful == [(batch[4] == number).sum() for number in (1, 2)]


def test_accuracy_is_the_share_of_right_tags():
    recipe, model, data = tagger()
    x, lengths, y, _, cue, _ = batch = next(iter(data.valid))
    with torch.no_grad():
        model.output.weight.zero_()
        model.output.bias.copy_(torch.tensor([0.0, 1.0]))  # every word is called a name
    found = recipe.metrics(model, batch)
    words = inside(lengths, x.shape[1])
    assert 0 < y[words].double().mean() < 0.4, "so the share of wrong tags is another number"
    assert torch.equal(found["accuracy"], y[words].double())
    for side, number in (("after", context.AFTER), ("before", context.BEFORE)):
        assert torch.equal(found[f"told_{side}"], y[cue == number].double())


def test_an_update_counts_by_its_words():
    """Of several processes the one with more words has more say."""
    recipe, model, data = tagger()
    seen = []

    class Watched(State):
        def descend(self, loss, **given):
            seen.append((loss, given["weight"]))

    batch = data.train(0)
    terms = recipe.step(Watched(model, torch.nn.Module(), {}), batch)
    ((loss, weight),) = seen
    assert loss is terms["cross_entropy"]
    assert int(weight) == int(batch[1].sum()) != len(batch[1])


def test_predictions_are_tags_of_each_word():
    recipe, model, data = tagger()
    tokens = Tokens.of(data.spec)
    lines = [torch.tensor(tokens.encode(text)) for text in (*PAIR, "zzz")]
    said = recipe.predict(model, lines, data.spec)
    assert [len(one["tags"]) for one in said] == [7, 7, 1]
    assert [one["unknown"] for one in said][2] == 1
    for one, line in zip(said, lines, strict=True):
        p = model(line[None], torch.tensor([len(line)]))[0].softmax(1)
        found = [[tag["probabilities"][name] for name in ("word", "name")] for tag in one["tags"]]
        torch.testing.assert_close(torch.tensor(found), p.float())
        assert [tag["class"] for tag in one["tags"]] == [["word", "name"][n] for n in p.argmax(1)]


def test_the_pair_is_drawn_with_equal_states_up_to_the_word_in_doubt():
    _, model, data = tagger()
    drawn = draw_passes({"both": model}, Tokens.of(data.spec))
    images = [axes.images[0].get_array() for axes in drawn.axes if axes.images][:4]
    (on, on_other), (back, back_other) = images[:2], images[2:]
    assert (on[:, :3] == on_other[:, :3]).all()
    assert not (back[:, 2] == back_other[:, 2]).all()
    ticks = [[t.get_text() for t in axes.get_xticklabels()] for axes in drawn.axes]
    assert PAIR[0].split() in ticks
    assert PAIR[1].split() in ticks
    one_way = Tagging(pairs=40, ways="onward").model(data)
    assert "states" in [
        axes.get_title() for axes in draw_passes({"o": one_way}, Tokens.of(data.spec)).axes
    ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"cell": "lstn"}, r"unknown cell 'lstn'; did you mean lstm"),
        ({"layers": 0}, r"layers \(0\) must be at least 1"),
        ({"hidden_size": 0}, r"hidden_size \(0\) must be at least 1"),
        ({"embedding": 0}, r"embedding \(0\) must be at least 1"),
        ({"steps": 0}, r"steps \(0\) must be at least 1"),
        ({"pairs": 19}, r"pairs \(19\) must be from 20 to 5000"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("bidirectional"), **fields).cells()["both"].dataset()


def test_ways_it_refuses():
    with pytest.raises(UserError, match=r"unknown ways 'sideways'"):
        Tagging(ways="sideways")


# ------------------------------------------------------------------------------- generated pairs


def test_pairs_differ_on_one_side_alone():
    draw = torch.Generator().manual_seed(0)
    for _ in range(200):
        numbers = torch.randint(10**6, (context.DRAWN,), generator=draw).tolist()
        named, plain = context.make_pair(numbers)
        doubt = [[(w, cue) for w, _, cue in s if cue] for s in (named, plain)]
        assert doubt[0] == doubt[1]
        assert 1 <= len(doubt[0]) <= 2
        assert all(name for _, name, cue in named if cue)
        assert not any(name for _, name, _ in plain)
        words = [[w for w, _, _ in s] for s in (named, plain)]
        places = [max(n for n, (_, _, cue) in enumerate(s) if cue) for s in (named, plain)]
        if doubt[0][0][1] == context.AFTER:
            assert words[0][: places[0] + 1] == words[1][: places[1] + 1]
            assert words[0][places[0] + 1] != words[1][places[1] + 1]
        else:
            assert words[0][places[0] :] == words[1][places[1] :]


def test_no_sentence_is_in_two_parts_and_both_of_a_pair_are_in_one():
    data = context.make_names(8, pairs=60)
    tokens, seen = Tokens.of(data.spec), {}
    for part in ("train", "valid", "test"):
        for batch in data.batches(part):
            x, lengths, y, _, cue, _ = batch
            assert len(x) % 2 == 0
            for row in range(0, len(x), 2):
                assert (y[row] * (cue[row] > 0)).sum() > 0, "the first of a pair has the names"
                assert (y[row + 1] * (cue[row + 1] > 0)).sum() == 0
            for row, length in zip(x, lengths, strict=True):
                text = tokens.decode(row[:length].tolist())
                assert seen.setdefault(text, part) == part
    assert len(seen) == 120
    assert data.digest == context.make_names(4, seed=3, pairs=60).digest


# -------------------------------------------------------------------------------------- learning


@pytest.mark.slow
@pytest.mark.covers("R12")
def test_learns_names(tmp_path):
    result = runs.run(find("bidirectional"), tmp_path)
    assert result.reached, result.metrics
