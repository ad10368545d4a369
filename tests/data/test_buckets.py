"""Sequences of unequal length: padded, measured, of similar length together, and each seen once."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from everynet.data.dataset import Data
from everynet.data.draws import WHOLE, Share
from everynet.data.samplers import CHUNK, Buckets, flattened
from everynet.system.errors import UserError

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def sequences(rows, longest=20, seed=0, shortest=1):
    """Row n begins with n + 1, so that it can be told wherever it turns up."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(shortest, longest + 1, (rows,), generator=draw).tolist()
    return [[n + 1, *[n + 2] * (length - 1)][:length] for n, length in enumerate(lengths)]


def split_of(rows, **more):
    """Sources, targets that differ in length from them, and the number of each row."""
    x, y = sequences(rows, **more), sequences(rows, 9, seed=1)
    return (*flattened(x), *flattened(y), torch.arange(rows)), x, y


SAMPLER = ("ragged", "ragged", "plain")


def drawn(sampler, split, batch_size, epoch=0, share=WHOLE):
    steps = sampler.steps_per_epoch(split, batch_size)
    return [sampler.batch(split, batch_size, 0, epoch * steps + n, share) for n in range(steps)]


# ------------------------------------------------------------------------------------ flattened


@given(st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=5), max_size=8))
def test_sequences_come_back_from_the_stream(given_sequences):
    stream, places = flattened(given_sequences)
    assert (stream.dtype, places.dtype) == (torch.int32, torch.int64)
    ends = places.tolist()
    assert ends[0] == 0
    assert ends[-1] == len(stream)
    found = [stream[a:b].tolist() for a, b in pairwise(ends)]
    assert found == given_sequences


# ---------------------------------------------------------------------------------------- batch


def test_rows_are_padded_with_0_to_the_longest_and_their_lengths_said():
    split, x, y = split_of(50)
    for batch in drawn(Buckets(SAMPLER), split, 7):
        left, left_lengths, right, right_lengths, rows = batch
        for tokens, lengths, given_ in ((left, left_lengths, x), (right, right_lengths, y)):
            assert tokens.dtype == lengths.dtype == torch.int64
            assert tokens.shape == (7, int(lengths.max()))
            for row, padded, length in zip(rows.tolist(), tokens.tolist(), lengths, strict=True):
                assert padded == given_[row] + [0] * (tokens.shape[1] - len(given_[row]))
                assert int(length) == len(given_[row])


@pytest.mark.parametrize(("rows", "size"), [(50, 7), (49, 7), (CHUNK * 4 * 2 + 3, 4), (5, 5)])
def test_every_row_once_an_epoch_but_those_that_fill_no_batch(rows, size):
    split, *_ = split_of(rows)
    for epoch in range(3):
        batches = drawn(Buckets(SAMPLER), split, size, epoch=epoch)
        assert len(batches) == rows // size
        seen = torch.cat([batch[-1] for batch in batches]).tolist()
        assert len(seen) == len(set(seen)) == rows // size * size


def test_long_rows_are_left_out_no_more_often_than_short_ones():
    """Sorting before the cut would leave out the longest of every epoch."""
    split, x, _ = split_of(19)
    lengths = torch.tensor([float(len(one)) for one in x])
    missing = []
    for epoch in range(200):
        seen = torch.cat([batch[-1] for batch in drawn(Buckets(SAMPLER), split, 10, epoch=epoch)])
        left = torch.ones(19, dtype=torch.bool)
        left[seen] = False
        missing.append(lengths[left].mean())
    error = lengths.std() / (200 * 9) ** 0.5
    assert abs(torch.stack(missing).mean() - lengths.mean()) < 4 * error


def test_a_batch_is_a_pure_function_of_seed_and_step():
    split, *_ = split_of(100)
    kept = Buckets(SAMPLER)
    steps = [0, 13, 5, 40, 5, 0, 39, 13]  # back and forth over four epochs
    for step in steps:
        fresh = Buckets(SAMPLER).batch(split, 9, 3, step, WHOLE)
        again = kept.batch(split, 9, 3, step, WHOLE)
        assert all(map(torch.equal, fresh, again))
    other_seed = Buckets(SAMPLER).batch(split, 9, 4, 0, WHOLE)
    other_epoch = Buckets(SAMPLER).batch(split, 9, 3, 11, WHOLE)
    first = kept.batch(split, 9, 3, 0, WHOLE)
    assert first[-1].tolist() != other_seed[-1].tolist()
    assert first[-1].tolist() != other_epoch[-1].tolist()


def test_what_was_kept_is_never_taken_for_other_data_or_another_size():
    sampler = Buckets(SAMPLER)
    for rows in range(20, 60):  # the memory of one set, freed at once, is given to the next
        split, *_ = split_of(rows, seed=rows)
        for size in (4, 5):
            got = sampler.batch(split, size, 0, 0, WHOLE)
            wanted = Buckets(SAMPLER).batch(split, size, 0, 0, WHOLE)
            assert all(map(torch.equal, got, wanted))
        del split, got, wanted


@pytest.mark.parametrize("processes", [2, 3])
def test_shares_joined_are_the_whole(processes):
    split, *_ = split_of(70)
    whole = drawn(Buckets(SAMPLER), split, 12)
    parts = [
        drawn(Buckets(SAMPLER), split, 12, share=Share(r, processes)) for r in range(processes)
    ]
    for step, batch in enumerate(whole):
        joined = [torch.cat(each) for each in zip(*[part[step] for part in parts], strict=True)]
        assert all(map(torch.equal, joined, batch))


def padding(batches):
    tokens = sum(batch[0].numel() for batch in batches)
    return 1 - sum(int(batch[1].sum()) for batch in batches) / tokens


def test_little_is_padding():
    """Ten times less than where rows of any length meet, and less in every epoch."""
    split, x, _ = split_of(3000, longest=40)
    lengths = torch.tensor([len(one) for one in x])
    at_random = lengths[torch.randperm(3000)[:2976]].view(-1, 32)
    wasted = 1 - float(lengths.sum()) / 3000 * 2976 / float(at_random.amax(1).sum() * 32)
    assert wasted > 0.4
    for epoch in range(3):
        assert padding(drawn(Buckets(SAMPLER), split, 32, epoch=epoch)) < wasted / 10


def test_batches_of_long_and_of_short_rows_are_mixed():
    split, *_ = split_of(3000, longest=40)
    widths = [batch[0].shape[1] for batch in drawn(Buckets(SAMPLER), split, 32)]
    assert widths != sorted(widths)
    halves = sum(widths[:46]) / 46, sum(widths[46:]) / 47
    assert abs(halves[0] - halves[1]) < 10


def test_sequences_without_a_token():
    split = (*flattened([[], [], [5]]), *flattened([[], [1], []]), torch.arange(3))
    (batch,) = drawn(Buckets(SAMPLER), split, 3)
    assert batch[1].sum() == batch[3].sum() == 1
    (batch,) = Buckets(("ragged",)).evaluation(flattened([[], []]), 2, 10)
    assert batch[0].shape == (2, 0)


# ----------------------------------------------------------------------------------- evaluation


@pytest.mark.parametrize("at_once", [1, 7, 50, 1000])
def test_evaluation_goes_through_all_in_order(at_once):
    split, x, y = split_of(50)
    batches = list(Buckets(SAMPLER).evaluation(split, 8, at_once))
    assert torch.cat([batch[-1] for batch in batches]).tolist() == list(range(50))
    assert all(len(batch[0]) <= at_once for batch in batches)
    for batch in batches:
        for row, tokens, length in zip(batch[-1], batch[0], batch[1], strict=True):
            assert tokens[:length].tolist() == x[row]
            assert not tokens[length:].any()
        for row, tokens, length in zip(batch[-1], batch[2], batch[3], strict=True):
            assert tokens[:length].tolist() == y[row]


def test_there_may_be_nothing_to_go_through():
    sampler = Buckets(SAMPLER)
    assert sampler.rows(()) == 0
    assert list(sampler.evaluation((), 8, 10)) == []
    assert list(Buckets(("ragged",)).evaluation(flattened([]), 8, 10)) == []


# ----------------------------------------------------------------------------------------- Data


@pytest.mark.parametrize("size", [0, 51])
def test_a_size_that_cannot_be_is_refused(size):
    split, *_ = split_of(50)
    with pytest.raises(UserError, match=rf"batch_size \({size}\) must be between 1 and the 50 tr"):
        Data({"train": split}, batch_size=size, sampler=Buckets(SAMPLER))


@pytest.mark.parametrize("device", DEVICES)
def test_every_device_sees_the_same(device):
    split, *_ = split_of(50)
    data = Data({"train": split, "valid": split}, batch_size=8, sampler=Buckets(SAMPLER))
    moved = data.to(torch.device(device))
    for step in (0, 5, 6, 20):
        for here, there in zip(data.train(step), moved.train(step), strict=True):
            assert there.device.type == device
            assert torch.equal(here, there.cpu())
    for here, there in zip(data.valid, moved.valid, strict=True):
        assert all(torch.equal(a, b.cpu()) for a, b in zip(here, there, strict=True))


def test_data_knows_its_rows_and_epochs():
    split, *_ = split_of(50)
    data = Data({"train": split}, batch_size=8, sampler=Buckets(SAMPLER))
    assert (data.rows("train"), data.rows("test"), data.steps_per_epoch) == (50, 0, 6)
    assert replace(data, batch_size=50).train(0)[-1].sort().values.tolist() == list(range(50))
    labels_first = Buckets(("plain", "ragged"))
    assert labels_first.rows((split[-1], *split[:2])) == 50
    assert labels_first.batch((split[-1], *split[:2]), 8, 0, 0, WHOLE)[0].shape == (8,)
