"""The plain RNN against the loop of its equation, gradients by hand, its window, what it says."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import everynet
from everynet import checkpoint, runs
from everynet.catalog import find
from everynet.checkpoint import read_bundle
from everynet.data.kinds import named
from everynet.data.tokens import Tokens
from everynet.job import Job
from everynet.samplers import IGNORED
from everynet.trainer import begin, evaluate
from everynet.types import UserError
from everynet.zoo.recurrent.next_token import Reader
from tests.core.test_resume import stopped_after


def network(vocabulary, size, layers, dropout=0.0):
    cells = [torch.nn.RNN(size, size, batch_first=True) for _ in range(layers)]
    return Reader(vocabulary, size, cells, dropout)


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


@pytest.mark.covers("R1")
def test_the_three_forms_are_one():
    """States of sums, sums of states, and one matrix for state and token beside each other."""
    net, s = double(), tokens(1)
    w_xh, w_hh, b = weights(net.layers[0])
    states, _ = net.states(s)
    a, h = torch.zeros(5).double(), torch.zeros(5).double()
    for t, x in enumerate(net.embedding.weight[s[0]]):
        a = w_xh @ x + w_hh @ (torch.tanh(a) if t else a) + b
        h = torch.tanh(torch.cat([w_hh, w_xh], 1) @ torch.cat([h, x]) + b)
        torch.testing.assert_close(torch.tanh(a), states[0, t], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(h, states[0, t], rtol=1e-12, atol=1e-12)


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


def through_time(net, s, following, h0, window):
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
        error[following[t]] -= 1
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
    for s, following in pieces:
        logits, h = net(s[None], h)
        torch.nn.functional.cross_entropy(logits[0], following, reduction="sum").backward()
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
    net, s, following = double(), tokens(1)[0], tokens(1)[0]
    h = torch.randn(1, 1, 5, dtype=torch.float64)
    with torch.no_grad():
        expected = through_time(net, s, following, h[0, 0], window=9)
    found = by_torch(net, [(s, following)], h)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-12, atol=1e-12)


@pytest.mark.covers("R3")
def test_a_window_is_the_explicit_truncated_sum_and_one_of_all_tokens_is_the_whole():
    net, s, following = double(), tokens(1, 6)[0], tokens(1, 6)[0]
    h = torch.randn(1, 1, 5, dtype=torch.float64)
    for window in (1, 2, 3, 6):
        pieces = list(zip(s.split(window), following.split(window), strict=True))
        with torch.no_grad():
            expected = through_time(net, s, following, h[0, 0], window)
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
        s, following, keep = data.train(step)
        assert (keep == float(step > 0)).all()
        before = state.extra.h.clone()
        model = recipe.model(data)
        model.load_state_dict(state.model.state_dict())
        logits, h = model(s, before if step else None)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())
        loss.backward()
        terms = recipe.step(state, (s, following, keep))
        torch.testing.assert_close(terms["cross_entropy"], loss)
        torch.testing.assert_close(state.extra.h, h)
        assert not state.extra.h.requires_grad
        for mine, expected in zip(state.model.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, expected.grad)
    torch.testing.assert_close(  # where a lane begins, what was carried has no say
        recipe.step(state, (s, following, torch.zeros(8)))["cross_entropy"],
        torch.nn.functional.cross_entropy(model(s)[0].flatten(0, 1), following.flatten()),
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
    (s, following, _), *more = data.valid
    assert not more
    logits, _ = model(s)
    nats = torch.nn.functional.cross_entropy(logits.transpose(1, 2), following, reduction="none")
    expected = nats[following != IGNORED].double().mean().item()
    assert (following != IGNORED).sum() == data.rows("valid")
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
    assert state.extra.h.shape == (2, 8, 24)
    assert data.spec["shape"] == [500]
    assert recipe.step(state, data.train(0))["cross_entropy"].isfinite()
    text = drawn(recipe, state.model, data, prompt="The value", n=1, length=5)[0]
    assert len(text.split(" ")) >= 3
    with torch.no_grad():
        drawn_by_words = recipe.pictures(state.model.eval(), data, [])
    assert drawn_by_words.keys() == recipe.captions.keys()


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


# -------------------------------------------------------------------------------------- learning


@pytest.mark.slow
@pytest.mark.covers("R1", "R3")
def test_learns_topics(tmp_path):
    result = runs.run(find("char-rnn"), tmp_path)
    assert result.reached, result.metrics
