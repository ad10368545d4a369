"""Stretches of clips with their labels, sequences of numbers, streams of rows, rounded lengths."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from everynet.data.draws import WHOLE, Share
from everynet.data.samplers import Anywhere, Buckets, Clips, Lanes, Windows, flattened
from everynet.nn.losses import IGNORED


def clips(lengths, dtype=torch.float32):
    """Clips in which every number says of which clip it is, and where in it it stands."""
    parts = [100 * (n + 1) + torch.arange(size, dtype=dtype) for n, size in enumerate(lengths)]
    return (*flattened(parts), torch.arange(len(lengths)))


LENGTHS = st.lists(st.integers(1, 40), min_size=3, max_size=8)


@given(lengths=LENGTHS, window=st.integers(1, 20), step=st.integers(0, 20), seed=st.integers(0, 3))
def test_a_stretch_is_of_one_clip_and_keeps_its_label(lengths, window, step, seed):
    x, sizes, labels = Clips(window).batch(clips(lengths), 3, seed, step, WHOLE)
    assert x.shape == (3, window)
    for row, size, label in zip(x, sizes.tolist(), labels.tolist(), strict=True):
        assert size == min(window, lengths[label])
        inside, beyond = row[:size], row[size:]
        assert ((inside // 100).long() == label + 1).all()
        assert (inside.diff() == 1).all()
        assert not beyond.any()


def test_every_clip_once_an_epoch_and_every_place_in_time():
    split, sampler = clips([30, 5, 12, 9]), Clips(6)
    first = set()
    for epoch in range(200):
        batches = [sampler.batch(split, 2, 7, 2 * epoch + n, WHOLE) for n in range(2)]
        labels = torch.cat([labels for *_, labels in batches])
        assert sorted(labels.tolist()) == [0, 1, 2, 3]
        first |= {(x[0].item()) for x in torch.cat([x for x, *_ in batches])}
    assert {number for number in first if number < 200} == {100 + n for n in range(25)}
    assert {number for number in first if 300 <= number < 400} == {300 + n for n in range(7)}
    assert {number for number in first if 200 <= number < 300} == {200}


@given(step=st.integers(0, 9), ranks=st.integers(1, 4))
def test_the_shares_of_all_processes_are_the_batch(step, ranks):
    split, sampler = clips([9, 4, 7, 20, 15]), Clips(5)
    whole = sampler.batch(split, 4, 1, step, WHOLE)
    parts = [sampler.batch(split, 4, 1, step, Share(rank, ranks)) for rank in range(ranks)]
    for column, tensor in enumerate(whole):
        assert torch.equal(torch.cat([part[column] for part in parts]), tensor)


def test_evaluation_takes_the_middle_of_every_clip_in_order():
    batches = [*Clips(3).evaluation(clips([7, 2, 3]), 4, at_once=2)]
    assert [len(labels) for *_, labels in batches] == [2, 1]
    assert torch.cat([x for x, *_ in batches]).tolist() == [
        [102, 103, 104], [200, 201, 0], [300, 301, 302],
    ]  # fmt: skip
    assert torch.cat([labels for *_, labels in batches]).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("window", "batch_size", "message"),
    [(0, 2, "window (0) must be at least 1"), (4, 9, "batch_size (9) must be between 1 and the 3")],
)
def test_what_is_refused(window, batch_size, message):
    assert Clips(window).refusal(clips([4, 5, 6]), batch_size).startswith(message)
    assert Clips(4).refusal(clips([4, 5, 6]), 3) == ""


def test_rows_of_numbers_have_stretches_and_lengths_as_numbers_have():
    rows = [torch.randn(size, 3, dtype=torch.float64) for size in (5, 2, 4)]
    split = (*flattened(rows), torch.tensor([4, 5, 6]))
    x, sizes, labels = next(Clips(4).evaluation(split, 3, at_once=9))
    assert (x.shape, x.dtype) == ((3, 4, 3), torch.float64)
    assert sizes.tolist() == [4, 2, 4]
    assert torch.equal(x[1, :2], rows[1])
    assert not x[1, 2:].any()
    assert labels.tolist() == [4, 5, 6]
    y, lengths, _ = next(Buckets(("ragged", "plain")).evaluation(split, 3, at_once=9))
    assert lengths.tolist() == [5, 2, 4]
    for row, size, numbers in zip(y, lengths.tolist(), rows, strict=True):
        assert torch.equal(row[:size], numbers)
        assert not row[size:].any()


def test_tokens_are_int64_and_numbers_stay_what_they_are():
    for given_, wanted in (
        ([[1, 2], [3]], torch.int64),
        ([torch.tensor([1, 2], dtype=torch.uint8), torch.tensor([3], dtype=torch.uint8)],
         torch.int64),
        ([torch.tensor([1.5, 2.5]), torch.tensor([3.5])], torch.float32),
    ):  # fmt: skip
        split = flattened(given_)
        x, lengths = Buckets(("ragged",)).batch(split, 2, 0, 0, WHOLE)
        assert x.dtype == wanted
        assert sorted(lengths.tolist()) == [1, 2]
    assert flattened([[1, 2], [], [3]])[0].dtype == torch.int32
    assert flattened([[1, 2], [], [3]])[1].tolist() == [0, 2, 2, 3]
    assert torch.equal(flattened([torch.tensor([1.5]), torch.tensor([])])[0], torch.tensor([1.5]))


@given(lengths=st.lists(st.integers(1, 50), min_size=4, max_size=20), pad_to=st.integers(1, 9))
def test_rounded_lengths_change_nothing_but_padding(lengths, pad_to):
    split = flattened([torch.arange(1, size + 1) for size in lengths])
    plain, rounded = Buckets(("ragged",)), Buckets(("ragged",), pad_to)
    for step in range(6):
        x, sizes = plain.batch(split, 3, 5, step, WHOLE)
        y, same = rounded.batch(split, 3, 5, step, WHOLE)
        assert torch.equal(sizes, same)
        assert y.shape[1] % pad_to == 0
        assert 0 <= y.shape[1] - x.shape[1] < pad_to
        assert torch.equal(y[:, : x.shape[1]], x)
        assert not y[:, x.shape[1] :].any()


@pytest.mark.parametrize("sampler", [Lanes(3), Windows(3), Anywhere(3)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_a_stream_of_rows_is_cut_along_time(sampler, dtype):
    stream = torch.arange(26, dtype=dtype)[:, None] + torch.tensor([0, 100], dtype=dtype)
    x, y = sampler.batch((stream,), 2, 0, 1, WHOLE)[:2]
    wanted = torch.int64 if dtype == torch.uint8 else dtype
    assert x.dtype == y.dtype == wanted
    assert x.shape == y.shape == (2, 3, 2)
    assert torch.equal(y, x + 1)
    assert torch.equal(x[..., 1], x[..., 0] + 100)
    batches = [*sampler.evaluation((stream,), 2, at_once=6)]
    targets = torch.cat([batch[1].flatten(0, 1) for batch in batches])
    kept = targets[(targets != IGNORED).all(1)]
    assert kept[:, 0].tolist() == [*range(1, 26)]
    assert kept[:, 1].tolist() == [*range(101, 126)]
