"""The loop of word2vec against autograd, its random choices against what they must be on average.

Where a table has a unit vector for each word and the other is zero, a pass at a tiny rate leaves
the number of times that each word predicted each other: 1/2 the rate for each time.
"""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import logsigmoid

from everynet.kernels.word2vec import (
    Noise,
    Rule,
    Windows,
    _update_bag,
    _update_pairs,
    draw_windows,
    read_text,
    to_uint32,
    update_batch,
)

RATE = 1e-6


def tables(vocab=12, size=9, seed=0):
    draw = torch.randn(2, vocab, size, generator=torch.Generator().manual_seed(seed))
    return draw[0].clone(), draw[1].clone()


def only(word, vocab):
    """Noise that is always this word."""
    weights = np.zeros(vocab)
    weights[word] = 1
    return Noise.of(weights)


def objective(v, u, inputs, targets, bag):
    """The loss of a window whose words share the noise."""
    h = v[inputs].mean(0, keepdim=True) if bag else v[inputs]
    s = h @ u[targets].T
    return -logsigmoid(s[:, 0]).sum() - logsigmoid(-s[:, 1:]).sum()


def moved(v, u, inputs, targets, rate, bag):  # noqa: PLR0917
    """The tables after one step of gradient descent in float64, and the loss before."""
    v, u = (t.detach().double().clone().requires_grad_() for t in (v, u))
    loss = objective(v, u, inputs, targets, bag)
    dv, du = torch.autograd.grad(loss, (v, u))
    return v.detach() - rate * dv, u.detach() - rate * du, loss.item()


# ------------------------------------------------------------------------------------ gradients


@pytest.mark.parametrize("bag", [False, True])
@pytest.mark.parametrize("width", [1, 2, 3, 6, 10])
@pytest.mark.parametrize("outputs", [2, 3, 4, 6, 8])
def test_a_window_moves_down_its_gradient(width, outputs, bag):
    """Words may occur twice on either side; blocks of two and three are filled up with nothing."""
    v, u = tables()
    random = np.random.default_rng(width + 100 * outputs)
    inputs, targets = (random.integers(0, 12, n).astype(np.int32) for n in (width, outputs))
    wanted = moved(v, u, inputs.tolist(), targets.tolist(), 0.3, bag)
    scratch = [np.full(shape, 7, np.float32) for shape in ((11, 9), (10, 9), (11, 10))]
    words = (inputs, width, targets, outputs)
    loss = (_update_bag if bag else _update_pairs)(
        v.numpy(), u.numpy(), words, np.float32(0.3), True, tuple(scratch)
    )
    torch.testing.assert_close(v.double(), wanted[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(u.double(), wanted[1], rtol=1e-5, atol=1e-5)
    assert loss == pytest.approx(wanted[2], rel=1e-5)


@pytest.mark.parametrize("bag", [False, True])
def test_a_batch_moves_down_its_gradient(bag):
    """Two windows at once, with places that hold nothing and noise that is the centre word."""
    v, u = (t.double() for t in tables())
    given = Windows(
        torch.tensor([[1, 2, 3], [3, 0, 1]]),
        torch.tensor([[True, True, True], [True, False, True]]),
        torch.tensor([[4, 5, 5], [5, 5, 6]]),
        torch.tensor([[True, True, True], [True, False, True]]),
    )
    first = moved(v, u, [1, 2, 3], [4, 5, 5], 0.3, bag)
    second = moved(v, u, [3, 1], [5, 6], 0.3, bag)
    wanted = [first[n] + second[n] - old for n, old in ((0, v.clone()), (1, u.clone()))]
    loss, count = update_batch(v, u, given, 0.3, bag=bag)
    torch.testing.assert_close(v, wanted[0])
    torch.testing.assert_close(u, wanted[1])
    assert loss.item() == pytest.approx(first[2] + second[2])
    assert count.item() == (2 if bag else 5)


def test_scores_of_any_size_give_finite_steps():
    v, u = (t * 1e3 for t in tables())
    rule = Rule(3, 5, to_uint32(np.ones(12)), Noise.of(np.ones(12)), False)
    read_text(v.numpy(), u.numpy(), np.arange(12, dtype=np.int32), rule, rates=(1, 1), state=1)
    assert bool(v.isfinite().all())
    assert bool(u.isfinite().all())


# ----------------------------------------------------------------------------- a stretch of text


def passed(text, rule, v, u, *, rates=(0.1, 0.1), state=5):
    return read_text(v.numpy(), u.numpy(), np.array(text, np.int32), rule, rates=rates, state=state)


@pytest.mark.parametrize("bag", [False, True])
def test_a_sentence_is_one_window_after_the_other(bag):
    """With a reach of 1 and noise of one word nothing is left to chance."""
    v, u = tables()
    rule = Rule(1, 2, to_uint32(np.ones(12)), only(11, 12), bag)
    wanted = (v.clone(), u.clone())
    for inputs, centre in (([1], 0), ([0, 2], 1), ([1], 2)):
        wanted = moved(*wanted[:2], inputs, [centre, 11, 11], 0.1, bag)
    passed([0, 1, 2, -1], rule, v, u)
    torch.testing.assert_close(v.double(), wanted[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(u.double(), wanted[1], rtol=1e-5, atol=1e-5)


def test_windows_end_with_the_sentence_and_the_rate_falls_by_sentences():
    """Where u is 0 its row moves by rate/2 v; the second sentence begins at half of the text."""
    v, u = tables()[0], torch.zeros(12, 9)
    rule = Rule(1, 1, to_uint32(np.ones(12)), only(11, 12), False)
    before = v.clone()
    passed([0, 1, -1, 2, 3, -1], rule, v, u, rates=(0.4, 0.2))
    torch.testing.assert_close(u[0], 0.2 * before[1])
    torch.testing.assert_close(u[2], 0.15 * before[3])


def test_noise_that_is_the_centre_word_is_left_out():
    v, u = tables()
    wanted = moved(v, u, [1], [0], 0.1, False)
    wanted = moved(*wanted[:2], [0], [1, 0, 0, 0], 0.1, False)
    passed([0, 1], Rule(1, 3, to_uint32(np.ones(12)), only(0, 12), False), v, u)
    torch.testing.assert_close(u.double(), wanted[1], rtol=1e-5, atol=1e-5)


def test_the_loss_of_what_knows_nothing():
    v, u = tables()[0], torch.zeros(12, 9)
    for bag, windows_watched in ((False, 2), (True, 1)):
        rule = Rule(5, 4, to_uint32(np.ones(12)), only(11, 12), bag)
        done = passed([0, 1, 0], rule, v, u.zero_(), rates=(0, 0))
        assert 1 <= done.watched <= windows_watched  # the first centre word of sixteen
        assert done.loss / done.watched == pytest.approx(5 * math.log(2))


def test_the_state_alone_decides():
    rule = Rule(4, 3, to_uint32(np.full(12, 0.7)), Noise.of(np.arange(1.0, 13)), False)
    text, found = np.random.default_rng(0).integers(0, 12, 200).tolist(), []
    for state in (5, 5, 6):
        v, u = tables()
        found.append((passed(text, rule, v, u, state=state), v, u))
    assert found[0][0] == found[1][0] != found[2][0]
    assert torch.equal(found[0][1], found[1][1])
    assert torch.equal(found[0][2], found[1][2])
    assert not torch.equal(found[0][1], found[2][1])


def test_texts_with_nothing_to_learn_from():
    v, u = tables()
    before = v.clone(), u.clone()
    rule = Rule(2, 2, to_uint32(np.ones(12)), only(11, 12), False)
    for text in ([], [-1], [3], [3, -1, 4, -1], [-1, -1]):
        assert passed(text, rule, v, u).watched == 0
    nothing = rule._replace(keep=to_uint32(np.zeros(12)))
    assert passed([0, 1, 2, 3] * 50, nothing, v, u).watched == 0
    assert torch.equal(v, before[0])
    assert torch.equal(u, before[1])


# ---------------------------------------------------------------------------------- what is drawn


def test_the_tables_of_noise_hold_every_weight():
    for seed in range(5):
        weights = np.random.default_rng(seed).pareto(1.0, 50) + 0.01
        noise = Noise.of(weights)
        accept = noise.accept / 2.0**32
        held = accept.copy()
        np.add.at(held, noise.alias, 1 - accept)
        np.testing.assert_allclose(held / 50, weights / weights.sum(), atol=1e-8)


VOCAB = 40


def counted(rule, text):
    """How often each word (across) was read when each word (down) was the centre, or noise."""
    v, u = torch.eye(VOCAB), torch.zeros(VOCAB, VOCAB)
    read_text(v.numpy(), u.numpy(), np.array(text, np.int32), rule, rates=(RATE, RATE), state=99)
    return u.double() * 2 / RATE


def batched(rule, text):
    """The same by batches."""
    stream, generator = torch.tensor(text), torch.Generator().manual_seed(3)
    v, u = torch.eye(VOCAB), torch.zeros(VOCAB, VOCAB)
    noise = [torch.from_numpy(part.astype(np.int64)) for part in rule.noise]
    zero = torch.zeros_like(stream)
    for centres in torch.arange(len(stream)).split(500):
        given = draw_windows(stream, zero, centres, rule, tuple(noise), generator)
        update_batch(v, u, given, RATE, bag=False)
    return u.double() * 2 / RATE


@pytest.mark.parametrize("count", [counted, batched])
def test_near_words_count_more(count):
    """A word at distance d is in reach with the chance (window - d + 1) / window."""
    n, window = 8_000, 4
    text = [number % 30 for number in range(n)]
    rule = Rule(window, 1, to_uint32(np.ones(VOCAB)), only(VOCAB - 1, VOCAB), False)
    found = count(rule, text)[:30, :30]
    for distance in range(1, 7):
        share = sum(torch.diagonal(found, o).sum() for o in (distance, distance - 30)).item() / n
        wanted = max(0, window - distance + 1) / window
        assert share == pytest.approx(wanted, abs=4 * 0.5 / n**0.5 + 1e-3), distance


@pytest.mark.parametrize("count", [counted, batched])
def test_noise_comes_by_its_weights(count):
    n = 8_000
    weights = np.arange(VOCAB) * 1.0
    weights[:2] = 0
    rule = Rule(1, 2, to_uint32(np.ones(VOCAB)), Noise.of(weights), False)
    found = -count(rule, [number % 2 for number in range(n)])[2:].sum(1) / (2 * 2 * (n - 1))
    wanted = torch.from_numpy(weights[2:] / weights.sum())
    assert bool(((found - wanted).abs() < 4.5 * (wanted / (2 * n)).sqrt() + 1e-4).all())


def test_words_are_kept_by_their_chance():
    """Word 0 is kept always and each other by its chance: the pairs that are left say so."""
    n, keep = 20_000, np.full(VOCAB, 1.0)
    keep[1] = 0.3
    rule = Rule(1, 1, to_uint32(keep), only(VOCAB - 1, VOCAB), False)
    text = [word for _ in range(n) for word in (0, 1, -1)]
    share = counted(rule, text)[0, 1].item() / n
    assert share == pytest.approx(0.3, abs=4 * (0.21 / n) ** 0.5 + 1e-3)


def test_windows_of_a_batch_stay_in_the_sentence():
    text, sentence = torch.arange(20), torch.arange(20) // 5
    rule = Rule(3, 2, to_uint32(np.ones(20)), Noise.of(np.ones(20)), False)
    noise = tuple(torch.from_numpy(part.astype(np.int64)) for part in rule.noise)
    numbers = torch.Generator().manual_seed(1)
    given = draw_windows(text, sentence, torch.arange(20), rule, noise, numbers)
    centre = given.targets[:, :1]
    assert torch.equal(centre[:, 0], text)
    assert bool((given.inputs // 5 == centre // 5)[given.there].all())
    assert bool(((given.inputs - centre).abs() <= 3)[given.there].all())
    assert bool((given.inputs != centre)[given.there].all())
    assert bool(given.there.any(1).all())
    assert bool(given.counts[:, 0].all())
    assert torch.equal(given.counts[:, 1:], given.targets[:, 1:] != centre)
