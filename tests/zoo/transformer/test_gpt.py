"""GPT: GPT-2's equations anew, its count, causality, the cache and the window that slides."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from everynet import runs
from everynet.data.texts.tokens import Tokens
from everynet.nn.decoding import generate, take_likeliest, take_rows
from everynet.recipes.catalog import find
from everynet.recipes.settings import override
from everynet.system.errors import UserError
from everynet.zoo.transformer.gpt import GPT, GPT2
from tests.published_files import gpt2_logits, gpt2_tensors

SIZES = {"hidden_size": 8, "heads": 2, "layers": 2, "context": 12, "dropout": 0.0}
WORDS = 11


def make(**sizes):
    torch.manual_seed(0)
    return GPT(WORDS, **SIZES | sizes).double().eval()


def reference():
    """Tensors in GPT-2's layout, and our network with them."""
    theirs = gpt2_tensors(WORDS, dtype=torch.double)
    net = make()
    net.load_state_dict(GPT2.rename(theirs, SIZES["layers"]))
    return theirs, net


def text(time=12, batch=3):
    return torch.randint(0, WORDS, (batch, time), generator=torch.Generator().manual_seed(1))


@pytest.mark.covers("T11")
def test_at_the_size_of_gpt_2_it_has_124_439_808_weights():
    with torch.device("meta"):
        assert sum(weight.numel() for weight in GPT(50_257).parameters()) == 124_439_808


@pytest.mark.covers("T11")
def test_values_and_gradients_are_those_of_gpt_2s_equations():
    theirs, net = reference()
    for tensor in theirs.values():
        tensor.requires_grad_()
    s = text()
    expected, found = gpt2_logits(theirs, s), net(s)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    weight = torch.randn_like(found)
    (expected * weight).sum().backward()
    (found * weight).sum().backward()
    gradients = GPT2.rename({name: t.grad for name, t in theirs.items()}, SIZES["layers"])
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-8, atol=1e-8)


def test_no_square_matrix_of_a_file_stays_as_it_lies():
    theirs = gpt2_tensors(WORDS)
    ours = GPT2.rename(theirs, SIZES["layers"])
    name = "layers.1.attention.output.weight"
    assert torch.equal(ours[name], theirs["h.1.attn.c_proj.weight"].T)
    assert len(ours) == len(theirs)


@pytest.mark.covers("T11")
def test_no_token_sees_a_later_one():
    _, net = reference()
    x = net.embed(text(6)).detach().requires_grad_()
    h = x
    for layer in net.layers:
        h = layer(h, causal=True)
    for p in range(6):
        (gradient,) = torch.autograd.grad(net.speak(h)[:, p].square().sum(), x, retain_graph=True)
        reached = gradient.abs().sum((0, 2)) > 0
        assert reached.tolist() == [q <= p for q in range(6)]


def test_weights_begin_small_and_those_that_end_a_sublayer_smaller():
    torch.manual_seed(0)
    net = GPT(400, hidden_size=64, heads=4, layers=8, context=100)
    layer = net.layers[3]
    for weight, std in (
        (net.embedding.weight, 0.02), (net.positions.table, 0.02),
        (layer.attention.project.weight, 0.02), (layer.feedforward.inner.weight, 0.02),
        (layer.attention.output.weight, 0.02 / 4), (layer.feedforward.output.weight, 0.02 / 4),
    ):  # fmt: skip
        assert weight.std().item() == pytest.approx(std, rel=5 / math.sqrt(2 * weight.numel()))
    assert not layer.attention.project.bias.any()


# ----------------------------------------------------------------------------------- writing


def test_with_a_cache_the_logits_are_those_without():
    _, net = reference()
    s = text()
    logits, state = net.begin(s[:, :5])
    found = [logits]
    for token in s[:, 5:].unbind(1):
        logits, state = net.step(token, state)
        found.append(logits)
    torch.testing.assert_close(torch.stack(found, 1), net(s)[:, 4:], rtol=0, atol=1e-10)


def test_rows_of_a_state_go_on_by_themselves():
    _, net = reference()
    s = text()
    _, state = net.begin(s[:, :5])
    rows = torch.tensor([2, 0])
    logits, _ = net.step(s[rows, 5], take_rows(state, rows))
    torch.testing.assert_close(logits, net(s[rows, :6])[:, -1])


@pytest.mark.parametrize("context", [1, 5, 6])
def test_a_full_window_slides_by_half(context):
    """Its later half and the new token are read as a text of their own; then it grows again."""
    net = make(context=context)
    s, window = text(17, 2), context // 2 + 1
    logits, state = net.begin(s[:, :1])
    length = 1
    for t in range(1, 17):
        logits, state = net.step(s[:, t], state)
        length = length + 1 if length < context else window
        torch.testing.assert_close(logits, net(s[:, t + 1 - length : t + 1])[:, -1])


def test_a_prompt_beyond_the_context_begins_with_its_last_tokens():
    net = make()
    s = text(30)
    torch.testing.assert_close(net.begin(s)[0], net(s[:, -12:])[:, -1])


def test_greedy_text_is_that_of_reading_all_anew():
    net = make(context=40)
    s = text(3, 2)
    drawn, total = generate(net.step, *net.begin(s), 20, take_likeliest)
    log_p = torch.zeros(2).double()
    for t in range(20):
        best, token = net(s)[:, -1].log_softmax(1).max(1)
        log_p, s = log_p + best, torch.cat([s, token[:, None]], 1)
        assert drawn[:, t].tolist() == token.tolist()
    torch.testing.assert_close(total, log_p)


# ------------------------------------------------------------------------------ the recipe


@pytest.fixture(scope="module")
def small():
    """The recipe, its data and an untrained network."""
    recipe = find("gpt").tiny()
    data = recipe.dataset()
    torch.manual_seed(0)
    return recipe, data, recipe.model(data).eval()


def test_the_objective_is_the_mean_of_the_metric(small):
    recipe, data, model = small
    s, targets = batch = next(data.valid)
    expected = cross_entropy(model(s).flatten(0, 1), targets.flatten())
    assert recipe.objective(model, batch)["cross_entropy"].item() == pytest.approx(expected.item())
    each = recipe.metrics(model, batch)["cross_entropy"]
    assert each.mean().item() == pytest.approx(expected.item(), rel=1e-5)


def test_every_token_of_a_split_counts_once(small):
    recipe, data, model = small
    count = sum(len(recipe.metrics(model, batch)["cross_entropy"]) for batch in data.test)
    assert count == len(data.splits["test"][0]) - 1


def test_averages_of_adam_are_short(small):
    recipe, _, model = small
    groups = recipe.optimizers(model)["main"].param_groups
    assert {group["betas"] for group in groups} == {(0.9, 0.99)}
    assert override(recipe, {"optimizer": "sgd"}).optimizers(model)  # which has none


def encoded(data, line):
    return torch.tensor(Tokens.of(data.spec).encode(line))


def test_predict_gives_the_log_probability_of_each_token(small):
    recipe, data, model = small
    line = encoded(data, "a return")
    (plain,) = recipe.predict(model, [line], data.spec)
    (answer,) = recipe.predict(model, [line], data.spec, log_probs=True)
    assert "log_probs" not in plain
    assert [token for token, _ in answer["log_probs"]] == [*"a return"]
    before = encoded(data, "\n")
    log_p = model(torch.cat([before, line])[None, :-1])[0].log_softmax(1)
    expected = log_p.gather(1, line[:, None])[:, 0].tolist()
    assert [value for _, value in answer["log_probs"]] == pytest.approx(expected, rel=1e-4)
    assert plain["cross_entropy"] == pytest.approx(-sum(expected) / len(expected), rel=1e-4)
    assert plain["perplexity"] == pytest.approx(math.exp(plain["cross_entropy"]))


def test_a_line_beyond_the_context_is_cut_and_said_or_refused(small):
    recipe, data, model = small
    line = encoded(data, "the value of a statement")
    (answer,) = recipe.predict(model, [line], data.spec, log_probs=True)
    assert (answer["cut"], answer["tokens"], len(answer["log_probs"])) == (8, 16, 16)
    with pytest.raises(UserError, match=r"a line \(24 tokens\) must have at most 16 where strict"):
        recipe.predict(model, [line], data.spec, strict=True)
    assert "cut" not in recipe.predict(model, [line[:16]], data.spec, strict=True)[0]


def test_predict_draws_a_line_of_ones_own(small):
    recipe, data, model = small
    (answer,) = recipe.predict(model, [encoded(data, "a class of $5")], data.spec, draw=True)
    for name in ("attention", "layers"):
        answer[name].canvas.draw()
    assert len(answer["attention"].axes) == 2 * 2 + 1  # heads of layers, and the colours
    rows = [label.get_text() for label in answer["layers"].axes[0].get_yticklabels()]
    assert rows == ["embedding", "layer 1", "layer 2"]


def test_samples_go_on_beyond_the_context(small):
    recipe, data, model = small
    draw = torch.Generator().manual_seed(0)
    one, two = recipe.sample(model, data.spec, draw, prompt="The value", n=2, length=40)
    assert len(one) == len(two) == 49
    assert one.startswith("The value")
    with pytest.raises(
        UserError, match=r"prompt \(日本\) must hold characters of the training text"
    ):
        recipe.sample(model, data.spec, draw, prompt="日本")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"context": 0}, r"context \(0\) must be at least 1"),
        ({"dropout": 1.0}, r"dropout \(1.0\) must be at least 0 and below 1"),
        ({"heads": 0}, r"heads \(0\) must be at least 1"),
        ({"steps": 0}, r"steps \(0\) must be at least 1, or 0 with start="),
    ],
)
def test_settings_are_refused_in_one_line(fields, message):
    with pytest.raises(UserError, match=message):
        override(find("gpt"), fields)


@pytest.mark.slow
@pytest.mark.covers("T11")
def test_it_learns_the_help_topics(tmp_path):
    assert runs.run(find("gpt"), tmp_path, device="cpu").reached


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.covers("T11")
def test_it_learns_shakespeare_on_two_cores(tmp_path):
    assert runs.run(find("gpt-shakespeare-small"), tmp_path, device="cpu").reached
