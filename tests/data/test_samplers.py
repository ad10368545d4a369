"""Lanes and Windows: batches of a stream, pure in (seed, step), and every token scored once."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from everynet.data.dataset import Data
from everynet.data.draws import WHOLE, Share, permutation, places
from everynet.data.samplers import Anywhere, Lanes, Windows
from everynet.nn.losses import IGNORED
from everynet.system.errors import UserError

SAMPLERS = [Lanes, Windows, Anywhere]


def stream(tokens, dtype=torch.int32):
    """A stream in which every token says where it stands."""
    return (torch.arange(tokens, dtype=dtype),)


def equal(left, right):
    assert len(left) == len(right)
    for one, other in zip(left, right, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


@st.composite
def cases(draw):
    length, batch_size = draw(st.integers(1, 7)), draw(st.integers(1, 6))
    tokens = draw(st.integers(length * batch_size + 1, length * batch_size * 5))
    return length, batch_size, tokens


# ------------------------------------------------------------------------------------- training


@pytest.mark.parametrize("sampler", SAMPLERS)
@given(case=cases(), step=st.integers(0, 40), seed=st.integers(0, 3))
def test_targets_are_one_token_later(sampler, case, step, seed):
    length, batch_size, tokens = case
    x, y, *_ = sampler(length).batch(stream(tokens), batch_size, seed, step, WHOLE)
    assert x.shape == y.shape == (batch_size, length)
    assert x.dtype == y.dtype == torch.int64
    assert torch.equal(y, x + 1)
    assert torch.equal(x, x[:, :1] + torch.arange(length))
    assert int(x.min()) >= 0
    assert int(y.max()) < tokens


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("ranks", [2, 3])
@given(case=cases(), step=st.integers(0, 40))
def test_the_shares_of_all_processes_are_the_batch(sampler, ranks, case, step):
    length, batch_size, tokens = case
    split = stream(tokens)
    shares = [
        sampler(length).batch(split, batch_size, 5, step, Share(r, ranks)) for r in range(ranks)
    ]
    joined = tuple(torch.cat(parts) for parts in zip(*shares, strict=True))
    equal(joined, sampler(length).batch(split, batch_size, 5, step, WHOLE))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_batch_is_a_function_of_seed_and_step_alone(sampler):
    split = stream(1000)
    once = [sampler(7).batch(split, 4, 1, step, WHOLE) for step in range(80)]
    torch.manual_seed(99)
    for step in (79, 3, 40, 0):
        equal(sampler(7).batch(split, 4, 1, step, WHOLE), once[step])
    other = [sampler(7).batch(split, 4, 2, step, WHOLE) for step in range(80)]
    assert any(not torch.equal(a[0], b[0]) for a, b in zip(once, other, strict=True))


@given(case=cases(), seed=st.integers(0, 3))
def test_a_lane_goes_on_where_it_was_and_begins_anew_with_an_epoch(case, seed):
    length, batch_size, tokens = case
    sampler, split = Lanes(length), stream(tokens)
    steps = sampler.steps_per_epoch(split, batch_size)
    assert steps == (tokens - 1) // (length * batch_size)
    for epoch in range(3):
        batches = [
            sampler.batch(split, batch_size, seed, epoch * steps + k, WHOLE) for k in range(steps)
        ]
        lanes = torch.cat([x for x, _, _ in batches], 1)
        whole = lanes.flatten()  # lanes follow one another in the stream
        assert torch.equal(whole, whole[0] + torch.arange(len(whole)))
        keeps = torch.stack([keep for _, _, keep in batches])
        assert keeps.dtype == torch.float32
        assert torch.equal(keeps[0], torch.zeros(batch_size))
        assert torch.equal(keeps[1:], torch.ones(steps - 1, batch_size))


def test_no_token_is_left_out_for_ever():
    """The tail that no lane has room for is another one in each epoch."""
    sampler, split, seen = Lanes(10), stream(10 * 4 + 30), set()
    for epoch in range(60):
        seen |= set(sampler.batch(split, 4, 0, epoch, WHOLE)[1].flatten().tolist())
    assert seen == set(range(1, 70))


def test_windows_begin_anywhere():
    """Every start is drawn alike, the first and the last too: chi-squared of 20 starts."""
    sampler, split = Windows(5), stream(25)
    starts = torch.cat([sampler.batch(split, 50, 0, step, WHOLE)[0][:, 0] for step in range(80)])
    counts = torch.bincount(starts, minlength=20).double()
    assert len(counts) == 20
    assert float(((counts - 200) ** 2 / 200).sum()) < 43.8  # p = 0.001 for 19 degrees


@given(case=cases(), step=st.integers(0, 40), seed=st.integers(0, 3))
def test_anywhere_is_windows_from_a_state_of_zero_and_is_judged_as_lanes(case, step, seed):
    length, batch_size, tokens = case
    split, sampler = stream(tokens), Anywhere(length)
    *drawn, keep = sampler.batch(split, batch_size, seed, step, WHOLE)
    equal(drawn, Windows(length).batch(split, batch_size, seed, step, WHOLE))
    assert keep.tolist() == [0.0] * batch_size
    for one, other in zip(
        sampler.evaluation(split, batch_size, 9), Lanes(length).evaluation(split, batch_size, 9),
        strict=True,
    ):  # fmt: skip
        equal(one, other)


def test_steps_of_an_epoch_of_windows():
    assert Windows(10).steps_per_epoch(stream(101), 5) == 2
    assert Windows(10).steps_per_epoch(stream(20), 5) == 1
    assert Windows(10).steps_per_epoch((), 5) == 0
    assert Lanes(10).steps_per_epoch((), 5) == 0


# ------------------------------------------------------------------------------------ evaluation


@pytest.mark.parametrize("sampler", SAMPLERS)
@given(
    tokens=st.integers(0, 90),
    length=st.integers(1, 9),
    batch_size=st.integers(1, 9),
    at_once=st.integers(1, 50),
)
def test_evaluation_scores_each_token_once_in_order(sampler, tokens, length, batch_size, at_once):
    split = stream(tokens, torch.uint8)
    batches = list(sampler(length).evaluation(split, batch_size, at_once))
    scored = [y[y != IGNORED] for _, y, *_ in batches]
    asked = [x[y != IGNORED] for x, y, *_ in batches]
    empty = [torch.empty(0, dtype=torch.int64)]
    assert torch.cat(scored or empty).tolist() == list(range(1, tokens))
    assert torch.cat(asked or empty).tolist() == list(range(max(0, tokens - 1)))
    assert list(sampler(length).evaluation((), batch_size, at_once)) == []


@given(tokens=st.integers(2, 90), batch_size=st.integers(1, 9))
def test_lanes_are_evaluated_as_one_batch_that_begins_anew(tokens, batch_size):
    (batch,) = Lanes(3).evaluation(stream(tokens), batch_size, 10)
    x, y, keep = batch
    assert len(x) <= batch_size
    assert (y != IGNORED).any(1).all()  # no lane is filler alone
    assert torch.equal(keep, torch.zeros(len(x)))


@given(tokens=st.integers(2, 90), at_once=st.integers(1, 50))
def test_windows_are_evaluated_by_so_many_tokens(tokens, at_once):
    for x, _ in Windows(4).evaluation(stream(tokens), 2, at_once):
        assert x.numel() <= max(4, at_once)
        assert x.shape[1] == 4


# -------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("sampler", SAMPLERS)
@given(tokens=st.integers(0, 60), length=st.integers(1, 8), batch_size=st.integers(1, 8))
def test_what_is_refused_is_too_short_and_the_rest_can_be_drawn(
    sampler, tokens, length, batch_size
):
    split = stream(tokens)
    needed = length * batch_size if sampler is Lanes else length
    assert bool(sampler(length).refusal(split, batch_size)) == (tokens - 1 < needed)
    if tokens - 1 >= needed:
        x, *_ = sampler(length).batch(split, batch_size, 0, 3, WHOLE)
        assert x.shape == (batch_size, length)


@pytest.mark.parametrize(
    ("sampler", "tokens", "batch_size", "message"),
    [
        (Lanes(0), 50, 2, r"window \(0\) must be at least 1$"),
        (Windows(-1), 50, 2, r"window \(-1\) must be at least 1$"),
        (Lanes(5), 50, 0, r"batch_size \(0\) must be at least 1$"),
        (Windows(5), 50, -2, r"batch_size \(-2\) must be at least 1$"),
        (Lanes(50), 50, 1, r"window \(50\) must be at most 49, because .* has 50 tokens; give"),
        (Windows(50), 50, 8, r"window \(50\) must be at most 49, because .* has 50 tokens; give"),
        (Lanes(5), 50, 10, r"batch_size \(10\) must be at most 9, because .* 50 tokens and each"),
    ],
)
def test_what_is_refused(sampler, tokens, batch_size, message):
    with pytest.raises(UserError, match=message):
        Data({"train": stream(tokens)}, batch_size=batch_size, sampler=sampler)


@pytest.mark.parametrize(
    ("sampler", "batch_size"), [(Lanes(5), 9), (Lanes(49), 1), (Windows(49), 70)]
)
def test_the_largest_batch_that_is_named_can_be_had(sampler, batch_size):
    x, y, *_ = Data({"train": stream(50)}, batch_size=batch_size, sampler=sampler).train(0)
    assert x.shape == (batch_size, sampler.length)
    assert torch.equal(y, x + 1)


def test_two_seeds_and_two_epochs_have_other_orders():
    """In the order of rows, and in the windows of a stream."""
    orders = [permutation(50, seed, epoch) for seed in (0, 1) for epoch in (0, 1)]
    starts = [places(50, (20,), seed, epoch, "cpu") for seed in (0, 1) for epoch in (0, 1)]
    for drawn in (orders, starts):
        assert len({tuple(each.tolist()) for each in drawn}) == 4
    assert all(sorted(each.tolist()) == [*range(50)] for each in orders)
    rows = torch.arange(50)[:, None]
    first, other = (Data({"train": (rows,)}, batch_size=50, seed=s).train(0)[0] for s in (0, 1))
    assert not torch.equal(first, other)
    assert torch.equal(first.sort(0).values, other.sort(0).values)
