"""CTC: equal to torch's in value and in the gradient by the logits, and to a sum of alignments."""

import math
from itertools import groupby, product

import pytest
import torch
from torch.nn.functional import ctc_loss as of_torch

from everynet.kernels.ctc import ctc_by_loop, ctc_loss, frames_needed
from everynet.system.seeds import generator


def case(seed, batch=8):
    """Random sequences, repeated symbols, empty targets and impossible lengths among them."""
    random = generator(seed)

    def number(low, high):
        return int(torch.randint(low, high + 1, (), generator=random))

    time, symbols, longest = number(1, 12), number(2, 5), number(1, 6)
    logits = 3 * torch.randn(batch, time, symbols, generator=random, dtype=torch.float64)
    lengths = torch.randint(1, time + 1, (batch,), generator=random)
    targets = torch.randint(1, symbols, (batch, longest), generator=random)
    target_lengths = torch.randint(0, longest + 1, (batch,), generator=random)
    return logits, lengths, targets, target_lengths


def reference(logits, lengths, targets, target_lengths):
    """Torch's own, by the logits, with the gradient 0 where no alignment fits."""
    log_p = logits.log_softmax(2).transpose(0, 1)
    loss = of_torch(log_p, targets, lengths, target_lengths, reduction="none")
    finite = of_torch(log_p, targets, lengths, target_lengths, reduction="none", zero_infinity=True)
    return loss, finite


def gradient(loss, logits):
    return torch.autograd.grad(loss[torch.isfinite(loss)].sum(), logits, allow_unused=True)[0]


def test_a_thousand_random_sequences_equal_those_of_torch():
    sorts = {"empty": 0, "impossible": 0, "repeated": 0}
    for seed in range(125):
        logits, *rest = case(seed)
        logits.requires_grad_()
        expected, finite = reference(logits, *rest)
        by_torch = torch.autograd.grad(finite.sum(), logits)[0]
        for function in (ctc_loss, lambda *given: ctc_by_loop(*given, 0)):
            if function is not ctc_loss and seed % 10:
                continue
            loss = function(logits, *rest)
            torch.testing.assert_close(loss, expected)
            found = gradient(loss, logits)
            if found is not None:
                torch.testing.assert_close(found, by_torch, atol=1e-9, rtol=1e-7)
        needed = frames_needed(rest[1], rest[2])
        assert torch.equal(torch.isinf(expected), needed > rest[0])
        sorts["empty"] += int((rest[2] == 0).sum())
        sorts["impossible"] += int(torch.isinf(expected).sum())
        sorts["repeated"] += int((needed > rest[2]).sum())
    assert min(sorts.values()) > 90


@pytest.mark.parametrize("target", [(), (1,), (1, 2), (1, 1), (2, 1, 2), (1, 1, 1)])
def test_it_is_a_sum_over_all_alignments(target):
    time, symbols = 5, 3
    logits = torch.randn(1, time, symbols, dtype=torch.float64, generator=generator(3))
    y = logits.softmax(2)[0]
    total = 0.0
    for path in product(range(symbols), repeat=time):
        if tuple(k for k, _ in groupby(path) if k) == target:
            total += math.prod(float(y[t, k]) for t, k in enumerate(path))
    targets = torch.tensor([[*target, *[0] * (3 - len(target))]])
    loss = ctc_loss(logits, torch.tensor([time]), targets, torch.tensor([len(target)]))
    assert float(loss) == pytest.approx(-math.log(total), rel=1e-12)


def test_another_blank_is_the_same_with_symbols_renamed():
    logits, lengths, targets, counts = case(5)
    moved = torch.cat([logits[..., 1:], logits[..., :1]], 2)
    torch.testing.assert_close(
        ctc_loss(moved, lengths, targets - 1, counts, blank=logits.shape[2] - 1),
        ctc_loss(logits, lengths, targets, counts),
    )


def test_gradients():
    logits, lengths, targets, counts = case(7, batch=2)
    lengths, counts = torch.full_like(lengths, logits.shape[1]), counts.clamp(max=1)

    def loss(logits):
        return ctc_loss(logits, lengths, targets, counts)

    logits.requires_grad_()
    assert torch.autograd.gradcheck(loss, (logits,))
    assert torch.autograd.gradgradcheck(loss, (logits,))
    torch.testing.assert_close(
        torch.func.grad(lambda u: loss(u).sum())(logits), gradient(loss(logits), logits)
    )


def test_padding_is_not_looked_at_and_extreme_logits_stay_finite():
    logits, lengths, targets, counts = case(11)
    other = logits.clone()
    for row, length in enumerate(lengths.tolist()):
        other[row, length:] = 77.0
    more = torch.cat([targets, torch.ones_like(targets)], 1)
    torch.testing.assert_close(
        ctc_loss(other, lengths, more, counts), ctc_loss(logits, lengths, targets, counts)
    )
    hard = (1000 * logits).requires_grad_()
    loss = ctc_loss(hard, lengths, targets, counts)
    assert not loss.isnan().any()
    found = gradient(loss, hard)
    assert found is not None
    assert found.isfinite().all()
    single = ctc_loss(logits.float(), lengths, targets, counts)
    torch.testing.assert_close(single.double(), ctc_loss(logits, lengths, targets, counts))


@pytest.mark.parametrize("scale", [30.0, 1e3, 1e5])
@pytest.mark.parametrize("threads", [1, 2])
def test_probabilities_far_below_what_a_number_holds_are_those_of_logarithms(scale, threads):
    """Where a frame costs up to `scale` nats, and the likely path may change its rank later."""
    random = generator(int(scale))
    logits = scale * torch.randn(6, 60, 4, generator=random, dtype=torch.float64)
    logits[0, 3] = torch.tensor([0.0, -math.inf, 0.0, 0.0])
    logits[1, :30] *= -1
    targets = torch.randint(1, 4, (6, 9), generator=random)
    lengths, counts = torch.tensor([60, 60, 60, 60, 41, 20]), torch.tensor([9, 9, 5, 1, 9, 0])
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        logits.requires_grad_()
        loss = ctc_loss(logits, lengths, targets, counts)
        found = gradient(loss, logits)
    finally:
        torch.set_num_threads(before)
    kept = logits.detach().clamp(min=-1e30).requires_grad_()
    expected = ctc_by_loop(kept, lengths, targets, counts, 0)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found, gradient(expected, kept), rtol=1e-9, atol=1e-9)


def test_an_impossible_sequence_has_no_gradient():
    logits = torch.randn(1, 2, 3, requires_grad=True)
    loss = ctc_loss(logits, torch.tensor([2]), torch.tensor([[1, 1]]), torch.tensor([2]))
    assert loss.tolist() == [math.inf]
    loss.sum().backward()
    assert not logits.grad.any()


def test_messages():
    logits, lengths, targets, counts = case(0)
    with pytest.raises(ValueError, match=r"blank \(9\) must be from 0 to"):
        ctc_loss(logits, lengths, targets, counts, blank=9)
    for wrong in ((lengths + 99, targets, counts), (lengths, targets, counts + 99)):
        with pytest.raises(ValueError, match=r"lengths must be at most \d+ and target_lengths at"):
            ctc_loss(logits, *wrong)
    for wrong in (targets + 99, targets * 0):
        with pytest.raises(ValueError, match=r"targets must be from 0 to \d and not the blank"):
            ctc_loss(logits, lengths, wrong, counts)
    with pytest.raises(ValueError, match="must have a row for each of the 8 sequences"):
        ctc_loss(logits, lengths[:1], targets, counts)
