import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy, linear, logsigmoid

from everynet.nn.sampled_softmax import (
    Candidates,
    Drawn,
    expected_counts,
    importance_softmax,
    log_uniform,
    noise_contrastive,
    partitions,
    sampled_softmax,
    uniform,
    unigram,
)

V, D, N = 12, 4, 7


def layer(seed=0, vocab=V):
    random = torch.Generator().manual_seed(seed)
    x, w, b = (
        torch.randn(shape, generator=random, dtype=torch.float64).requires_grad_()
        for shape in ((N, D), (vocab, D), (vocab,))
    )
    return x, w, b, torch.randint(vocab, (N,), generator=random)


def gradients(loss, *given):
    return [g.to_dense() if g.is_sparse else g for g in torch.autograd.grad(loss, given)]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


# ---------------------------------------------------------------------------------- proposals


def test_proposals_are_distributions():
    for q in (
        uniform(50),
        log_uniform(50),
        unigram(torch.arange(50)),
        unigram(torch.arange(50), 0.75),
    ):
        torch.testing.assert_close(q.sum(), torch.tensor(1.0).double())
        assert bool((q > 0).all())


def test_log_uniform_is_that_of_tensorflow():
    """P(class) = (log(class + 2) - log(class + 1)) / log(range_max + 1)."""
    q = log_uniform(1000)
    for y in (0, 1, 17, 999):
        assert q[y].item() == pytest.approx((math.log(y + 2) - math.log(y + 1)) / math.log(1001))


def test_unigram_by_hand():
    torch.testing.assert_close(
        unigram(torch.tensor([16, 0, 1]), 0.5), torch.tensor([4.0, 1.0, 1.0]).double() / 6
    )


@settings(max_examples=40)
@given(st.integers(1, 40), st.data())
def test_expected_counts_add_up_and_keep_the_proportions(vocab, data):
    samples = data.draw(st.integers(1, vocab))
    q = unigram(
        torch.tensor(data.draw(st.lists(st.integers(0, 99), min_size=vocab, max_size=vocab)))
    )
    pi = expected_counts(q, samples)
    assert pi.sum().item() == pytest.approx(samples)
    assert pi.max() <= 1
    free = pi < 1
    ratio = pi[free] / q[free]
    torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio))
    if bool(free.any()) and not bool(free.all()):
        assert bool((q[~free] * ratio[0] >= 1 - 1e-9).all()), "only those that c q would exceed"


def test_expected_counts_by_hand():
    """c = 3 would give 1.5 for the first: it is always in, and the rest share what is left."""
    pi = expected_counts(torch.tensor([0.5, 0.3, 0.2]).double(), 2)
    torch.testing.assert_close(pi, torch.tensor([1.0, 0.6, 0.4]).double())


def test_words_are_in_by_themselves_as_often_as_expected():
    """Counts, and pairs of words, over many draws; standard errors from the closed form."""
    pi = expected_counts(log_uniform(20), 8)
    drawer, random, draws = Candidates(pi), seeded(), 3_000
    seen = torch.zeros(draws, 20).double()
    for one in seen:
        words = drawer(random).words
        assert len(words.unique()) == len(words)
        one[words] = 1
    error = (pi * (1 - pi) / draws).sqrt()
    assert bool(((seen.mean(0) - pi).abs() <= 4.5 * error).all())
    pairs, wanted = seen.T @ seen / draws, torch.outer(pi, pi)
    away = ~torch.eye(20, dtype=torch.bool)
    error = (wanted * (1 - wanted) / draws).sqrt()
    assert bool(((pairs - wanted).abs() <= 4.5 * error)[away].all())


def test_log_expected_belongs_to_the_words_drawn():
    pi = expected_counts(log_uniform(50), 10)
    drawn = Candidates(pi)(seeded())
    torch.testing.assert_close(drawn.log_expected, pi[drawn.words].log().float())


def test_a_cast_to_single_precision_moves_no_word():
    """Edges in float32 would be off by a tenth of a rare word's stretch."""
    pi = expected_counts(log_uniform(100_000), 512)
    drawer, other = Candidates(pi), Candidates(pi).float()
    assert torch.equal(drawer(seeded()).words, other(seeded()).words)
    counts = torch.tensor([len(drawer(seeded(n)).words) for n in range(200)]).double()
    spread = (pi * (1 - pi)).sum().sqrt() / 200**0.5
    assert abs(counts.mean() - 512) < 4 * spread


def test_all_words_are_candidates_where_as_many_are_asked_for():
    drawn = Candidates(expected_counts(log_uniform(V), V))()
    assert sorted(drawn.words.tolist()) == [*range(V)]
    assert bool((drawn.log_expected == 0).all())


# ------------------------------------------------------------------------------------- losses


@pytest.mark.covers("R34", "R35")
@pytest.mark.parametrize("proposal", [uniform, log_uniform])
def test_with_all_words_it_is_the_full_softmax(proposal):
    """R35, and R34 for V' = V: value and gradients."""
    x, w, b, y = layer()
    full = cross_entropy(linear(x, w, b), y)
    drawer = Candidates(expected_counts(proposal(V), V)).double()
    sampled = sampled_softmax(x, w, b, y, drawer())
    importance = importance_softmax(x, w, b, y, torch.arange(V))
    wanted = gradients(full, x, w, b)
    for loss in (sampled, importance):
        torch.testing.assert_close(loss, full, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(gradients(loss, x, w, b), wanted, rtol=1e-10, atol=1e-10)


def test_sampled_softmax_by_hand():
    """Target 2 is not among the candidates of the first token and is for the second: once."""
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).double()
    w = torch.tensor([[1.0, 2.0], [3.0, -1.0], [0.5, 1.0], [9.0, 9.0]]).double()
    b, y = torch.tensor([0.1, 0.2, 0.3, 0.4]).double(), torch.tensor([2, 1])
    pi = torch.tensor([0.5, 0.25, 0.8, 0.1]).double()
    drawn = Drawn(torch.tensor([0, 1]), pi[:2].log(), pi.log())
    found = sampled_softmax(x, w, b, y, drawn)
    a = [math.exp(0.8) / 0.8, math.exp(1.1) / 0.5, math.exp(3.2) / 0.25]  # 2, 0, 1
    c = [math.exp(-0.8) / 0.25, math.exp(2.1) / 0.5]  # 1, 0
    assert found.item() == pytest.approx(-(math.log(a[0] / sum(a)) + math.log(c[0] / sum(c))) / 2)


def test_noise_contrastive_by_hand():
    """The noise may be the target itself."""
    x, w, b, y = layer()
    words, pi = torch.tensor([0, int(y[0]), 5]), torch.rand(V, generator=seeded()).double()
    found = noise_contrastive(x, w, b, y, Drawn(words, pi[words].log(), pi.log()))
    f = linear(x, w, b)
    of_target = f[torch.arange(N), y] - pi[y].log()
    told = logsigmoid(of_target) + logsigmoid(pi[words].log() - f[:, words]).sum(1)
    torch.testing.assert_close(found, -told.mean())


def test_importance_is_the_softmax_of_the_words_of_the_partition():
    x, w, b, _ = layer()
    words = torch.tensor([1, 4, 5, 9])
    place = torch.tensor([0, 1, 2, 3, 3, 0, 1])
    found = importance_softmax(x, w, b, words[place], words)
    wanted = cross_entropy(linear(x, w[words], b[words]), place)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(gradients(found, x, w, b), gradients(wanted, x, w, b))


@pytest.mark.parametrize("loss", [sampled_softmax, noise_contrastive])
def test_gradients_of_the_losses_are_those_of_autograd(loss):
    x, w, b, y = layer()
    drawn = Drawn(
        torch.tensor([3, int(y[1]), 8]),
        torch.tensor([0.3, 0.5, 0.9]).double().log(),
        torch.full((V,), -0.7).double(),
    )

    for number, value in enumerate((x, w, b)):
        numeric = torch.zeros_like(value)
        for place in range(value.numel()):
            with torch.no_grad():
                flat = value.view(-1)
                flat[place] += 1e-6
                up = loss(x, w, b, y, drawn)
                flat[place] -= 2e-6
                down = loss(x, w, b, y, drawn)
                flat[place] += 1e-6
                numeric.view(-1)[place] = (up - down) / 2e-6
        found = gradients(loss(x, w, b, y, drawn), x, w, b)[number]
        torch.testing.assert_close(found, numeric, rtol=1e-6, atol=1e-8)


def test_only_rows_that_were_read_have_a_gradient():
    x, w, b, y = layer(vocab=1000)
    drawer = Candidates(expected_counts(log_uniform(1000), 20)).double()
    drawn = drawer(seeded())
    found = torch.autograd.grad(sampled_softmax(x, w, b, y, drawn), (w, b))
    for gradient in found:
        assert gradient.is_sparse
        read = set(gradient._indices()[0].tolist())
        assert read == {*drawn.words.tolist(), *y.tolist()}


@pytest.mark.parametrize("loss", [sampled_softmax, noise_contrastive])
def test_what_only_fills_a_place_changes_nothing(loss):
    """On a GPU there are always equally many candidates, some of them fillers."""
    x, w, b, y = layer()
    of_all = torch.rand(V, generator=seeded()).double().log()
    words = torch.tensor([3, int(y[1]), 8])
    fillers = torch.tensor([8, 8, 11])
    few = Drawn(words, of_all[words], of_all)
    more = Drawn(
        torch.cat([words, fillers]),
        torch.cat([of_all[words], torch.full((3,), math.inf).double()]),
        of_all,
    )
    wanted, found = loss(x, w, b, y, few), loss(x, w, b, y, more)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(gradients(found, x, w, b), gradients(wanted, x, w, b))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_on_a_gpu_draws_have_one_size_and_nothing_is_waited_for():
    pi = expected_counts(log_uniform(200), 40)
    drawer = Candidates(pi).cuda()
    x, w, b, y = (t.detach().cuda().requires_grad_(t.is_floating_point()) for t in layer(vocab=200))
    drawer()
    torch.cuda.set_sync_debug_mode("error")
    try:
        drawn = [drawer() for _ in range(2000)]
        loss = sampled_softmax(x, w, b, y, drawn[0])
        torch.autograd.grad(loss, (x, w, b))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len({one.words.shape for one in drawn}) == 1
    seen = torch.zeros(2000, 200).double()
    for row, one in zip(seen, drawn, strict=True):
        inside = one.words[one.log_expected.isfinite()].cpu()
        assert len(inside.unique()) == len(inside)
        row[inside] = 1
    assert bool(((seen.mean(0) - pi).abs() <= 5 * (pi * (1 - pi) / 2000).sqrt()).all())


def error_of(loss_of, x, w, b, y):
    """Root mean square of the gradient's error over draws, as a share of the gradient."""
    wanted = torch.cat([g.flatten() for g in gradients(cross_entropy(linear(x, w, b), y), x, w, b)])
    errors = []
    for n in range(20):
        found = torch.cat([g.flatten() for g in gradients(loss_of(seeded(n)), x, w, b)])
        errors.append(((found - wanted).norm() / wanted.norm()) ** 2)
    return torch.stack(errors).mean().sqrt().item()


@pytest.mark.covers("R34")
def test_the_error_of_the_gradient_falls_as_candidates_grow():
    """R34: for importance sampling over V' drawn at random, and for the sampled softmax."""
    vocab = 200
    x, w, b, y = layer(vocab=vocab)
    errors = {"sampled": [], "importance": []}
    for samples in (10, 40, 160, vocab):
        drawer = Candidates(expected_counts(uniform(vocab), samples)).double()

        def sampled(random, drawer=drawer):
            return sampled_softmax(x, w, b, y, drawer(random))

        def importance(random, drawer=drawer):
            words = torch.cat([drawer(random).words, y]).unique()
            return importance_softmax(x, w, b, y, words)

        errors["sampled"].append(error_of(sampled, x, w, b, y))
        errors["importance"].append(error_of(importance, x, w, b, y))
    for found in errors.values():
        assert found[0] > 1.3 * found[1]
        assert found[1] > 1.3 * found[2]
        assert found[3] < 1e-10


# ------------------------------------------------- what is learned, in expectation over candidates


def all_sets(pi):
    """Every set of candidates and its probability."""
    for number in range(2 ** len(pi)):
        inside = torch.tensor([bool(number >> k & 1) for k in range(len(pi))])
        yield inside.nonzero()[:, 0], torch.where(inside, pi, 1 - pi).prod()


def expected_gradient(loss, f, p, pi, log_pi):
    """The gradient by the scores F of the loss's mean over all targets and all candidates."""
    vocab = len(p)
    f = f.clone().requires_grad_()
    x, w, y = torch.zeros(vocab, 1).double(), torch.zeros(vocab, 1).double(), torch.arange(vocab)
    total = torch.zeros(vocab).double()
    for words, probability in all_sets(pi):
        drawn = Drawn(words, log_pi[words], log_pi)
        for target in y:
            one = loss(x[:1], w, f, target[None], drawn)
            total += probability * p[target] * gradients(one, f)[0]
    return total


def known():
    p = torch.tensor([0.4, 0.05, 0.3, 0.05, 0.2], dtype=torch.float64)
    pi = expected_counts(log_uniform(5), 2)
    return p, pi, pi.log()


@pytest.mark.covers("R35")
def test_sampled_softmax_is_at_rest_at_log_p_whatever_the_constant():
    """R35: the exact mean over all sets of candidates, with no limit of many of them."""
    p, pi, log_pi = known()
    for constant in (0.0, 3.0):
        slope = expected_gradient(sampled_softmax, p.log() + constant, p, pi, log_pi)
        assert slope.abs().max() < 1e-12


@pytest.mark.covers("R35")
def test_without_the_correction_it_rests_at_log_p_less_log_q():
    p, pi, log_pi = known()
    none = torch.zeros_like(log_pi)
    biased = expected_gradient(sampled_softmax, p.log() - log_pi, p, pi, none)
    assert biased.abs().max() < 1e-12
    assert expected_gradient(sampled_softmax, p.log(), p, pi, none).abs().max() > 0.01


def test_noise_contrastive_rests_at_log_p_with_no_constant():
    p, pi, log_pi = known()
    assert expected_gradient(noise_contrastive, p.log(), p, pi, log_pi).abs().max() < 1e-12
    moved = expected_gradient(noise_contrastive, p.log() + 1, p, pi, log_pi)
    assert moved.abs().max() > 0.01


# ------------------------------------------------------------------------------- partitions


@pytest.mark.covers("R34")
@settings(max_examples=40)
@given(st.lists(st.integers(0, 15), min_size=3, max_size=60), st.integers(3, 10), st.integers(1, 3))
def test_partitions_cover_their_targets_with_at_most_tau_words(targets, tau, unit):
    targets = torch.tensor(targets)
    parts = partitions(targets, tau, unit)
    assert parts[0].start == 0
    assert parts[-1].stop == len(targets) // unit * unit
    for part, after in zip(parts, [*parts[1:], None], strict=True):
        assert torch.equal(part.words, targets[part.start : part.stop].unique())
        assert len(part.words) <= tau
        assert (part.stop - part.start) % unit == 0
        assert part.stop > part.start
        if after is not None:
            assert part.stop == after.start
            assert len(targets[part.start : part.stop + unit].unique()) > tau, "as long as can be"


def test_partitions_by_hand():
    found = partitions(torch.tensor([3, 1, 3, 2, 2, 1, 0, 0]), 2)
    assert [(p.start, p.stop, p.words.tolist()) for p in found] == [
        (0, 3, [1, 3]),
        (3, 6, [1, 2]),
        (6, 8, [0]),
    ]


# ----------------------------------------------------------------------------------- refusals


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"samples \(0\) must be from 1 to the 5 words"):
        expected_counts(uniform(5), 0)
    with pytest.raises(ValueError, match=r"samples \(6\) must be from 1 to the 5 words"):
        expected_counts(uniform(5), 6)
    with pytest.raises(ValueError, match=r"q \(smallest 0\) must be above 0 for every word"):
        expected_counts(torch.tensor([1.0, 0.0]).double(), 1)
    with pytest.raises(ValueError, match="expected must lie above 0 and at most at 1"):
        Candidates(torch.tensor([0.5, 1.5]).double())
    with pytest.raises(ValueError, match=r"tau \(1\) must be at least 2, because so many"):
        partitions(torch.tensor([0, 0, 0, 1]), 1, unit=2)
    with pytest.raises(ValueError, match=r"unit \(3\) must be from 1 to the 2 tokens"):
        partitions(torch.tensor([0, 0]), 1, unit=3)
