"""The plain RNN against the loop of its equation, gradients by hand, its window, what it says."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import everynet
from everynet import runs
from everynet.data.kinds import named
from everynet.data.texts.tokens import Tokens
from everynet.nn.losses import IGNORED
from everynet.nn.recurrent import last_states
from everynet.recipes.catalog import find
from everynet.recipes.experiment import Table
from everynet.runs import checkpoint
from everynet.runs.checkpoint import read_bundle
from everynet.runs.job import Job
from everynet.system.errors import UserError
from everynet.training.loop import begin, evaluate
from everynet.zoo.recurrent.next_token import Reader
from everynet.zoo.recurrent.rnn import (
    ALWAYS_ONE,
    ConcatenatedForm,
    PlainAdder,
    PlainAdding,
    PreActivationForm,
    StateForm,
)
from tests.runs.test_resume import stopped_after
from tests.zoo.cells import cell as made_cell


def network(vocabulary, size, layers, dropout=0.0):
    cells = [torch.nn.RNN(size, size, batch_first=True) for _ in range(layers)]
    return Reader(vocabulary, size, cells, dropout)


def as_torch(form):
    """The same network as torch's own layer; its second bias is zero."""
    rnn = torch.nn.RNN(form.input.in_features, form.input.out_features, batch_first=True)
    rnn.to(form.input.weight).load_state_dict(
        {
            "weight_ih_l0": form.input.weight,
            "weight_hh_l0": form.recurrent.weight,
            "bias_ih_l0": form.input.bias,
            "bias_hh_l0": torch.zeros_like(form.input.bias),
        }
    )
    return rnn


def double(layers=1, vocabulary=7, hidden_size=5, seed=0):
    torch.manual_seed(seed)
    return network(vocabulary, hidden_size, layers).double().eval()


def tokens(batch=2, time=9, vocabulary=7):
    return torch.randint(vocabulary, (batch, time))


def weights(layer):
    """W_xh, W_hh and b."""
    return layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0 + layer.bias_hh_l0


# ------------------------------------------------------------------------------------- equations


def by_loop(net, s, h):
    """The equations, token by token and lane by lane."""
    logits = []
    for t in range(s.shape[1]):
        x = net.embedding.weight[s[:, t]]
        for number, layer in enumerate(net.layers):
            w_xh, w_hh, b = weights(layer)
            h[number] = torch.tanh(x @ w_xh.T + h[number] @ w_hh.T + b)
            x = h[number]
        logits.append(x @ net.output.weight.T + net.output.bias)
    return torch.stack(logits, 1), torch.stack(h)


@pytest.mark.covers("R1")
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_it_is_the_loop_of_its_equations(layers):
    net, s = double(layers), tokens()
    h = torch.randn(layers, 2, 5, dtype=torch.float64)
    expected, last = by_loop(net, s, list(h))
    logits, after = net(s, h)
    torch.testing.assert_close(logits, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(after, last, rtol=1e-12, atol=1e-12)


def forms(input_size=3, hidden_size=5):
    torch.manual_seed(3)
    form = StateForm(input_size, hidden_size).double()
    return form, PreActivationForm.of(form), ConcatenatedForm.of(form)


@pytest.mark.covers("R1")
def test_the_three_forms_are_one_and_torchs():
    """Each under the stated map of its weights and of its state, at every token."""
    form, sums, joined = forms()
    x, h = torch.randn(2, 9, 3).double(), torch.rand(2, 5).double() - 0.5
    states, last = form(x, h)
    a, after = sums(x, h.atanh())
    torch.testing.assert_close(a.tanh(), states, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(after.tanh(), last, rtol=1e-12, atol=1e-12)
    for found in (joined(x, h), as_torch(form)(x, h[None])):
        torch.testing.assert_close(found[0], states, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(found[1].view(2, 5), last, rtol=1e-12, atol=1e-12)
    for begun in (joined(x), as_torch(form)(x)):
        torch.testing.assert_close(begun[0], form(x)[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(sums(x)[0].tanh(), form(x)[0], rtol=1e-12, atol=1e-12)


@pytest.mark.covers("R1")
def test_the_gradients_of_the_three_forms_are_torchs():
    form, sums, joined = forms()
    theirs, weight = as_torch(form), torch.randn(2, 9, 5).double()
    x = torch.randn(2, 9, 3, dtype=torch.float64, requires_grad=True)
    to_x = {}
    for name, states in (
        ("form", form(x)[0]),
        ("sums", sums(x)[0].tanh()),
        ("joined", joined(x)[0]),
        ("theirs", theirs(x)[0]),
    ):
        (states * weight).sum().backward()
        to_x[name], x.grad = x.grad, None
    w, u, b = theirs.weight_hh_l0.grad, theirs.weight_ih_l0.grad, theirs.bias_ih_l0.grad
    for found, expected in (
        (form.recurrent.weight.grad, w),
        (form.input.weight.grad, u),
        (form.input.bias.grad, b),
        (sums.recurrent.weight.grad, w),
        (sums.input.weight.grad, u),
        (sums.input.bias.grad, b),
        (joined.both.weight.grad, torch.cat([w, u], 1)),
        (joined.both.bias.grad, b),
        *((gradient, to_x["theirs"]) for gradient in to_x.values()),
    ):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.covers("R1")
def test_unequal_lengths_in_a_batch_are_as_one_by_one():
    """What fills up a shorter sequence changes neither its states nor a gradient."""
    form, sums, joined = forms()
    lengths = torch.tensor([4, 9, 1])
    x = torch.randn(3, 9, 3).double()
    for net, read in ((form, lambda h: h), (sums, torch.tanh), (joined, lambda h: h)):
        ends = last_states(net(x)[0], lengths)
        alone = torch.cat([net(row[None, :n])[1] for row, n in zip(x, lengths, strict=True)])
        torch.testing.assert_close(ends, alone, rtol=1e-12, atol=1e-12)
        both = [torch.autograd.grad(read(end).square().sum(), [*net.parameters()])
                for end in (ends, alone)]  # fmt: skip
        for found, expected in zip(*both, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("lengths", [[0, 2], [1, 4]])
def test_lengths_it_refuses(lengths):
    with pytest.raises(ValueError, match=r"lengths \(.*\) must be from 1 to 3, because a row"):
        last_states(torch.zeros(2, 3, 5), torch.tensor(lengths))


@pytest.mark.covers("R1")
def test_the_layer_of_the_recipe_is_the_state_form():
    torch.manual_seed(0)
    layer = replace(find("char-rnn"), hidden_size=4).layer().double()
    form = StateForm(4, 4).double()
    w_xh, w_hh, b = weights(layer)
    form.input.load_state_dict({"weight": w_xh, "bias": b})
    form.recurrent.load_state_dict({"weight": w_hh})
    x = torch.randn(2, 9, 4).double()
    torch.testing.assert_close(layer(x)[0], form(x)[0], rtol=1e-12, atol=1e-12)


def test_without_a_state_it_begins_at_zero():
    net, s = double(2), tokens()
    torch.testing.assert_close(net(s), net(s, torch.zeros(2, 2, 5, dtype=torch.float64)))


def test_a_linear_unit_sums_its_past():
    """Small weights leave tanh linear: h_T = sum_k w^(T-k) u x_k, the closed form of (1)."""
    net, scale = double(1, 3, 1), 1e-5
    w, u = 0.8, scale
    with torch.no_grad():
        net.layers[0].weight_hh_l0.fill_(w)
        net.layers[0].weight_ih_l0.fill_(u)
        net.layers[0].bias_ih_l0.zero_()
        net.layers[0].bias_hh_l0.zero_()
        net.embedding.weight.copy_(torch.tensor([[1.0], [-2.0], [0.5]]))
    s = tokens(1, 12, 3)
    x = net.embedding.weight[s[0], 0]
    states, _ = net.states(s)
    for t in range(12):
        closed = sum(w ** (t - k) * u * x[k] for k in range(t + 1))
        assert states[0, t, 0].item() == pytest.approx(closed.item(), rel=1e-6)


@settings(max_examples=20)
@given(cut=st.integers(1, 8), layers=st.integers(1, 2))
def test_stopping_and_going_on_changes_nothing(cut, layers):
    net, s = double(layers), tokens()
    whole, last = net(s)
    first, h = net(s[:, :cut])
    second, h = net(s[:, cut:], h)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    torch.testing.assert_close(h, last)


@settings(max_examples=20)
@given(place=st.integers(0, 8))
def test_no_logit_sees_the_future(place):
    net, s = double(2), tokens()
    other = s.clone()
    other[:, place] = (s[:, place] + 1) % 7
    before, after = net(s)[0], net(other)[0]
    assert torch.equal(before[:, :place], after[:, :place])
    assert not torch.equal(before[:, place], after[:, place])


@pytest.mark.covers("R1")
def test_lanes_of_unequal_length_are_as_if_alone():
    """What stands behind a shorter text changes nothing in it."""
    net, s = double(2), tokens(3, 9)
    for row, length in enumerate((4, 9, 6)):
        alone, _ = net(s[row : row + 1, :length])
        torch.testing.assert_close(net(s)[0][row : row + 1, :length], alone)


# ------------------------------------------------------------------------------------- gradients


def through_time(net, s, targets, h0, window):
    """Gradients of the summed loss by hand; a loss reaches back to the edge of its window."""
    w_xh, w_hh, b = weights(net.layers[0])
    v, c = net.output.weight, net.output.bias
    x, states = net.embedding.weight[s], [h0]
    for t in range(len(s)):
        states.append(torch.tanh(w_xh @ x[t] + w_hh @ states[-1] + b))
    found = {n: torch.zeros_like(p) for n, p in
             (("w_xh", w_xh), ("w_hh", w_hh), ("b", b), ("v", v), ("c", c))}  # fmt: skip
    for t in range(len(s)):
        error = torch.softmax(v @ states[t + 1] + c, 0)
        error[targets[t]] -= 1
        found["v"] += torch.outer(error, states[t + 1])
        found["c"] += error
        g = v.T @ error
        for k in range(t, t // window * window - 1, -1):
            inside = g * (1 - states[k + 1] ** 2)
            found["w_xh"] += torch.outer(inside, x[k])
            found["w_hh"] += torch.outer(inside, states[k])
            found["b"] += inside
            g = w_hh.T @ inside
    return found


def by_torch(net, pieces, h):
    """Gradients of the same loss through the fused kernel, cut at the edges of the pieces."""
    net.zero_grad()
    for s, targets in pieces:
        logits, h = net(s[None], h)
        torch.nn.functional.cross_entropy(logits[0], targets, reduction="sum").backward()
        h = h.detach()
    layer = net.layers[0]
    torch.testing.assert_close(layer.bias_ih_l0.grad, layer.bias_hh_l0.grad)
    return {
        "w_xh": layer.weight_ih_l0.grad,
        "w_hh": layer.weight_hh_l0.grad,
        "b": layer.bias_ih_l0.grad,
        "v": net.output.weight.grad,
        "c": net.output.bias.grad,
    }


@pytest.mark.covers("R2")
def test_gradients_are_those_of_backpropagation_through_time_by_hand():
    net, s, targets = double(), tokens(1)[0], tokens(1)[0]
    h = torch.randn(1, 1, 5, dtype=torch.float64)
    with torch.no_grad():
        expected = through_time(net, s, targets, h[0, 0], window=9)
    found = by_torch(net, [(s, targets)], h)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-12, atol=1e-12)


@pytest.mark.covers("R3")
def test_a_window_is_the_explicit_truncated_sum_and_one_of_all_tokens_is_the_whole():
    net, s, targets = double(), tokens(1, 6)[0], tokens(1, 6)[0]
    h = torch.randn(1, 1, 5, dtype=torch.float64)
    for window in (1, 2, 3, 6):
        pieces = list(zip(s.split(window), targets.split(window), strict=True))
        with torch.no_grad():
            expected = through_time(net, s, targets, h[0, 0], window)
        found = by_torch(net, pieces, h)
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name], gradient, rtol=1e-12, atol=1e-12)


@pytest.mark.covers("R3")
def test_one_update_is_one_window_with_the_state_of_the_last():
    """What is carried is the state after the window, and its gradient is not."""
    recipe = replace(find("char-rnn").tiny(), optimizer="sgd", lr=1e-9, clip=0.0)
    data = recipe.dataset()
    state = begin(recipe, data)
    for step in range(3):
        s, targets, keep = data.train(step)
        assert (keep == float(step > 0)).all()
        before = state.extra.h.clone()
        model = recipe.model(data)
        model.load_state_dict(state.model.state_dict())
        logits, h = model(s, before if step else None)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        terms = recipe.step(state, (s, targets, keep))
        torch.testing.assert_close(terms["cross_entropy"], loss)
        torch.testing.assert_close(state.extra.h, h)
        assert not state.extra.h.requires_grad
        for mine, expected in zip(state.model.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, expected.grad)
    torch.testing.assert_close(  # where a lane begins, what was carried has no say
        recipe.step(state, (s, targets, torch.zeros(8)))["cross_entropy"],
        torch.nn.functional.cross_entropy(model(s)[0].flatten(0, 1), targets.flatten()),
    )


# ---------------------------------------------------------------------------------------- recipe


@pytest.fixture(scope="module")
def trained():
    recipe = replace(find("char-rnn").tiny(), steps=40)
    data = recipe.dataset()
    state = begin(recipe, data)
    for step in range(40):
        recipe.step(state, data.train(step))
    return recipe, state.model.eval(), data


@torch.no_grad()
def test_figures_are_of_every_token_with_the_state_carried(trained):
    recipe, model, data = trained
    figures = evaluate(recipe, model, data.valid)
    (s, targets, _), *more = data.valid
    assert not more
    logits, _ = model(s)
    nats = torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
    expected = nats[targets != IGNORED].double().mean().item()
    assert (targets != IGNORED).sum() == data.rows("valid")
    assert figures["cross_entropy"] == pytest.approx(expected, rel=1e-6)
    assert figures["perplexity"] == pytest.approx(math.exp(expected), rel=1e-5)
    assert figures["bits"] == pytest.approx(expected / math.log(2), rel=1e-5)


def test_a_network_that_knows_nothing_has_the_perplexity_of_the_alphabet():
    recipe = find("char-rnn").tiny()
    data = recipe.dataset()
    model = recipe.model(data)
    torch.nn.init.zeros_(model.output.weight)
    torch.nn.init.zeros_(model.output.bias)
    figures = evaluate(recipe, model, data.valid)
    assert figures["perplexity"] == pytest.approx(data.spec["shape"][0], rel=1e-5)


@torch.no_grad()
def test_prediction_scores_a_line_after_a_line(trained, tmp_path):
    recipe, model, data = trained
    (tmp_path / "lines.txt").write_text("The value\n\nq\u4e2d\n" + "and so on " * 60)
    names, lines = named("text").read([tmp_path / "lines.txt"], data.spec)
    answers = recipe.predict(model, lines, data.spec)
    assert [name.rpartition(":")[2] for name in names] == ["1", "3", "4"]
    vocabulary = Tokens.of(data.spec)
    for line, answer in zip(("The value", "q\u4e2d", "and so on " * 60), answers, strict=True):
        s = torch.tensor([vocabulary.encode("\n" + line)])
        expected = torch.nn.functional.cross_entropy(model(s[:, :-1])[0][0], s[0, 1:]).item()
        assert answer["cross_entropy"] == pytest.approx(expected, rel=1e-5)
        assert answer["perplexity"] == pytest.approx(math.exp(expected), rel=1e-4)
        assert answer["tokens"] == len(line)
    assert [answer["unknown"] for answer in answers] == [0, 1, 0]


@torch.no_grad()
def test_a_line_of_one_token_needs_one_before_it(trained):
    recipe, model, data = trained
    kept = [t for t in data.spec["tokens"]["vocabulary"] if t != "\n"]
    spec = {**data.spec, "tokens": {"kind": "characters", "vocabulary": kept}}
    with pytest.raises(UserError, match=r"a line must hold at least 2 tokens, because none comes"):
        recipe.predict(model, [torch.tensor([5])], spec)


def drawn(recipe, model, data, seed=0, **given):
    with torch.no_grad():
        return recipe.sample(model, data.spec, torch.Generator().manual_seed(seed), **given)


def test_samples_go_on_from_the_prompt_and_follow_from_their_generator(trained):
    texts = drawn(*trained, prompt="The\n", n=2, length=30)
    assert [len(text) for text in texts] == [34, 34]
    assert all(text.startswith("The\n") for text in texts)
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(texts)
    assert texts == drawn(*trained, prompt="The\n", n=2, length=30)
    assert texts != drawn(*trained, prompt="The\n", n=2, length=30, seed=1)
    assert texts[0] != texts[1]


def test_a_cold_sample_takes_the_likeliest_and_frequencies_are_those_of_the_network(trained):
    _, model, data = trained
    vocabulary = Tokens.of(data.spec)
    with torch.no_grad():
        logits = model(torch.tensor([vocabulary.encode("th")]))[0][0, -1]
    best = vocabulary.vocabulary[int(logits[1:].argmax()) + 1]
    assert set(drawn(*trained, prompt="th", temperature=1e-3, n=5, length=1)) == {"th" + best}
    p = logits[1:].softmax(0)[int(logits[1:].argmax())].item()
    texts = drawn(*trained, prompt="th", temperature=1.0, n=4000, length=1)
    share = sum(text == "th" + best for text in texts) / 4000
    assert abs(share - p) < 4 * math.sqrt(p * (1 - p) / 4000)


def test_a_text_is_drawn_token_by_token_with_the_state_carried(trained):
    """The loop written out, with torch.multinomial."""
    recipe, model, data = trained
    tokens, generator = Tokens.of(data.spec), torch.Generator().manual_seed(4)
    text = torch.tensor([tokens.encode("The ")] * 2)
    with torch.no_grad():
        logits, h = model(text)
        for _ in range(25):
            y = logits[:, -1].double() / 0.8
            y[:, tokens.index["<unknown>"]] = -math.inf
            token = torch.multinomial(y.softmax(1), 1, generator=generator)
            text = torch.cat([text, token], 1)
            logits, h = model(token, h)
    wanted = [tokens.decode(row) for row in text.tolist()]
    assert drawn(recipe, model, data, seed=4, n=2, length=25) == wanted


def test_few_tokens_to_choose_from(trained):
    cold = drawn(*trained, prompt="th", temperature=1e-3, n=1, length=12)
    assert drawn(*trained, prompt="th", top_k=1, temperature=5.0, n=1, length=12) == cold
    assert drawn(*trained, prompt="th", top_p=1e-9, temperature=5.0, n=1, length=12) == cold
    assert drawn(*trained, prompt="th", temperature=5.0, n=1, length=12) != cold


def test_a_text_ends_before_a_stop_that_the_prompt_does_not_count_for(trained):
    whole = drawn(*trained, prompt="the e", n=4, length=40, temperature=1.0)
    cut = drawn(*trained, prompt="the e", n=4, length=40, temperature=1.0, stop="e")
    assert any("e" in text[5:] for text in whole)
    for text, short in zip(whole, cut, strict=True):
        assert short == text[:5] + text[5:].split("e")[0]


def test_a_reader_of_layers_whose_states_are_no_tensors():
    class Remembers(nn.Module):
        """Adds the mean of all vectors so far; its state is a tuple, as a cache would be."""

        def forward(self, x, state=None):
            total, count = state or (x.new_zeros(len(x), x.shape[2]), 0)
            sums = total[:, None] + x.cumsum(1)
            counts = count + torch.arange(1, x.shape[1] + 1)
            return x + sums / counts[:, None], (sums[:, -1], int(counts[-1]))

    torch.manual_seed(0)
    reader = Reader(9, 4, [Remembers(), Remembers()]).eval()
    s = torch.randint(9, (3, 7))
    whole, _ = reader(s)
    y, states = reader.begin(s[:, :4])
    assert isinstance(states[0], tuple)
    torch.testing.assert_close(y, whole[:, 3])
    for t in (4, 5, 6):
        y, states = reader.step(s[:, t], states)
        torch.testing.assert_close(y, whole[:, t])


def test_no_sample_holds_what_is_unknown(trained):
    recipe, model, data = trained
    unsure = recipe.model(data)
    unsure.load_state_dict(model.state_dict())
    unsure.output.bias.data[0] += 20  # it all but says: something new
    texts = drawn(recipe, unsure, data, n=2, length=20)
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(texts)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"prompt": ""}, r"prompt \(\) must hold at least one token"),
        ({"prompt": "a\u4e2db"}, r"prompt \(a.b\) must hold characters of the .* '\u4e2d' is not"),
        ({"temperature": 0.0}, r"temperature \(0.0\) must be above 0"),
        ({"temperature": math.inf}, r"temperature \(inf\) must be above 0"),
        ({"n": 0}, r"n \(0\) must be at least 1"),
        ({"length": 0}, r"length \(0\) must be at least 1"),
    ],
)
def test_samples_it_refuses(trained, given, message):
    with pytest.raises(UserError, match=message):
        drawn(*trained, **given)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden_size": 0}, r"hidden_size \(0\) must be at least 1"),
        ({"layers": 0}, r"layers \(0\) must be at least 1"),
        ({"window": 0}, r"window \(0\) must be at least 1"),
        ({"dropout": 1.0}, r"dropout \(1.0\) must be at least 0 and below 1"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("char-rnn"), **fields)


def test_data_it_refuses():
    with pytest.raises(
        UserError, match=r"data \(digits\) must be a text: .* looks like image data"
    ):
        everynet.recipe("char-rnn", data="digits").dataset()


def test_words_and_layers():
    recipe = replace(find("char-rnn").tiny(), tokens="words", vocabulary=500, layers=2, dropout=0.5)
    data = recipe.dataset()
    state = begin(recipe, data)
    assert state.extra.h.shape == (2, 8, 8)
    assert data.spec["shape"] == [500]
    assert recipe.step(state, data.train(0))["cross_entropy"].isfinite()
    text = drawn(recipe, state.model, data, prompt="The value", n=1, length=5)[0]
    assert len(text.split(" ")) >= 3
    with torch.no_grad():
        drawn_by_words = recipe.draw(state.model.eval(), data, [])
    assert drawn_by_words.keys() == recipe.picture_names().keys()


def test_dropout_acts_in_training_alone():
    net, s = network(7, 5, 2, dropout=0.5), tokens()
    assert not torch.equal(net(s)[0], net(s)[0])
    net.eval()
    assert torch.equal(net(s)[0], net(s)[0])


# ------------------------------------------------------------------------------- stop and resume


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """Six updates at one go; without pictures, which take longer than the rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "draw", lambda self, model: ())
        recipe = replace(find("char-rnn").tiny(), steps=6)
        yield recipe, runs.run(recipe, tmp_path_factory.mktemp("whole"), device="cpu")


@pytest.mark.parametrize("stop", [1, 3, 5])
def test_the_carried_state_survives_a_stop(stop, unbroken, tmp_path, monkeypatch):
    recipe, whole = unbroken

    folder = stopped_after(stop, recipe, tmp_path, monkeypatch)
    result = runs.resume(recipe, folder)
    assert result.metrics == whole.metrics
    last = [checkpoint.path_of(place, 6) for place in (folder, whole.folder)]
    assert read_bundle(last[0]) == read_bundle(last[1])
    assert (folder / "metrics.jsonl").read_bytes() == (whole.folder / "metrics.jsonl").read_bytes()


# ---------------------------------------------------------------------------------------- adding


class Sums(torch.nn.Module):
    """Adds up what is marked among the last `reach` numbers."""

    def __init__(self, reach):
        super().__init__()
        self.reach = reach

    def forward(self, x):
        return (x[:, -self.reach :, 0] * x[:, -self.reach :, 1]).sum(1)


class MarksOnly(torch.nn.Module):
    """The sum of marked numbers where two are marked, else 0."""

    def forward(self, x):
        return (x[:, :, 0] * x[:, :, 1]).sum(1) * (x[:, :, 1].sum(1) == 2)


def test_metrics_of_adding_are_errors_on_test_sequences_by_length():
    recipe = replace(find("rnn-adding"), lengths=(4, 8, 9))
    cells = {
        str(length): made_cell(valid={"mse": [9.0]}, test={"mse": error})
        for length, error in ((4, 0.01), (8, 0.02), (9, 0.16))
    }
    assert recipe.metrics(Table(cells, {})) == {
        "short_mse": 0.01, "long_mse": 0.16, "mse_4": 0.01, "mse_8": 0.02, "mse_9": 0.16,
    }  # fmt: skip


def test_the_adder_reads_its_last_state_and_its_error_is_the_mean_square():
    torch.manual_seed(0)
    net = PlainAdder(2, 5).double()
    form = StateForm(2, 5).double()
    with torch.no_grad():
        form.input.weight.copy_(net.rnn.weight_ih_l0)
        form.input.bias.copy_(net.rnn.bias_ih_l0 + net.rnn.bias_hh_l0)
        form.recurrent.weight.copy_(net.rnn.weight_hh_l0)
    x, y = torch.rand(4, 6, 2).double(), torch.rand(4).double()
    v, c = net.output.weight[0], net.output.bias[0]
    said = form(x)[1] @ v + c
    torch.testing.assert_close(net(x), said, rtol=1e-12, atol=1e-12)
    loss = PlainAdding().objective(net, (x, y))["mse"]
    torch.testing.assert_close(loss, ((said - y) ** 2).sum() / 4, rtol=1e-12, atol=1e-12)


def test_who_sums_asks_1_of_every_place_and_who_forgets_has_the_error_of_saying_1():
    recipe = find("rnn-adding")
    cell = recipe.cells()["10"]
    assert [int(name) for name in recipe.cells()] == [10, 20, 50, 100]
    data = cell.dataset()
    state = begin(cell, data)
    for reach in (10, 3):
        state.model = Sums(reach)
        seen = recipe.measure("10", cell, state, data)
        expected = (seen["places"] >= 10 - reach).float()
        torch.testing.assert_close(seen["asked"], expected, rtol=0, atol=1e-5)
    state.model = MarksOnly()
    marks = recipe.measure("10", cell, state, data)["asked"]
    torch.testing.assert_close(marks, torch.ones(10), rtol=0, atol=1e-5)
    x, y = next(data.valid)
    torch.testing.assert_close(Sums(10)(x), y)
    assert (y - 1).square().mean().item() == pytest.approx(ALWAYS_ONE, rel=0.1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lengths": (10,)}, r"lengths \(\(10,\)\) must be at least 2 numbers from 2 up, in order"),
        ({"lengths": (20, 10)}, r"lengths \(\(20, 10\)\) must be at least 2 numbers"),
        ({"lengths": (1, 10)}, r"lengths \(\(1, 10\)\) must be at least 2 numbers from 2 up"),
        ({"hidden_size": 0}, r"hidden_size \(0\) must be at least 1"),
        ({"steps": 0}, r"steps \(0\) must be at least 1"),
        ({"batch_size": 0}, r"batch_size \(0\) must be at least 1"),
        ({"lr": 0.0}, r"lr \(0.0\) must be a positive number"),
    ],
)
def test_settings_of_adding_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("rnn-adding"), **fields)


# -------------------------------------------------------------------------------------- learning


@pytest.mark.slow
@pytest.mark.covers("R1", "R3")
def test_learns_topics(tmp_path):
    result = runs.run(find("char-rnn"), tmp_path)
    assert result.reached, result.metrics


@pytest.mark.slow
@pytest.mark.covers("R4")
def test_learns_short_sums_and_no_long_ones(tmp_path):
    result = runs.run(find("rnn-adding"), tmp_path)
    assert result.reached, result.metrics
