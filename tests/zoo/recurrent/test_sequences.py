"""The generated sequences: what is asked follows from what is shown; baselines are right."""

import math

import pytest
import torch

from everynet.nn.losses import IGNORED
from everynet.system.errors import UserError
from everynet.zoo.recurrent import sequences

TASKS = {
    "adding": sequences.make_adding,
    "copy": sequences.make_copy,
    "selective copy": sequences.make_selective_copy,
}


@pytest.mark.parametrize("name", TASKS)
def test_batches_are_a_function_of_seed_and_step(name):
    data, again, other = (TASKS[name](20, 8, seed, held_out=30) for seed in (0, 0, 1))
    for a, b in zip(data.train(5), again.train(5), strict=True):
        assert a.equal(b)
    assert not data.train(5)[0].equal(data.train(6)[0])
    assert not data.train(5)[0].equal(other.train(5)[0])
    assert len(data.train(0)[0]) == 8
    assert data.rows("valid") == data.rows("test") == 30
    assert data.digest == other.digest  # what judges does not change with the seed
    assert not next(data.valid)[0].equal(next(data.test)[0])


def test_the_sum_of_the_marked_numbers_one_in_each_half():
    x, y = sequences.make_adding(21, 500, 0).train(0)
    marked = x[..., 1].nonzero()[:, 1].view(500, 2)
    assert set(x[..., 1].unique().tolist()) == {0.0, 1.0}
    assert marked[:, 0].max() == 9
    assert marked[:, 1].min() == 10
    assert marked[:, 1].max() == 20
    torch.testing.assert_close(x[..., 0].gather(1, marked).sum(1), y)


def test_one_for_every_answer_has_an_error_of_a_sixth():
    (_, y), n = next(sequences.make_adding(10, 8, 0, held_out=20_000).test)[:2], 1000
    assert len(y) == n
    y = torch.cat([y for _, y in sequences.make_adding(10, 8, 0, held_out=20_000).test])
    # The squared deviation of a sum of two uniform numbers has mean 1/6 and variance 7/180.
    assert (y - 1).square().mean().item() == pytest.approx(1 / 6, abs=4 * math.sqrt(7 / 180 / 2e4))


def test_copy_shows_ten_symbols_waits_and_asks():
    x, y = sequences.make_copy(7, 50, 0).train(3)
    assert x.shape == y.shape == (50, 27)
    assert x[:, :10].min() == 1
    assert x[:, :10].max() == 8
    assert (x[:, 10:17] == 0).all()
    assert (x[:, 17:] == 9).all()
    assert (y[:, :17] == IGNORED).all()
    assert y[:, 17:].equal(x[:, :10])


def test_selective_copy_keeps_the_order_of_the_scattered_symbols():
    x, y = sequences.make_selective_copy(30, 50, 0, symbols=4).train(3)
    assert x.shape == y.shape == (50, 40)
    for shown, asked in zip(x, y, strict=True):
        assert shown[:30][shown[:30] > 0].equal(asked[30:])
    assert (x[:, 30:] == 5).all()
    assert (y[:, :30] == IGNORED).all()
    assert len({tuple(row.tolist()) for row in x[:, :30] > 0}) > 40  # at places of their own


@pytest.mark.parametrize(("name", "least"), [("adding", 2), ("copy", 1), ("selective copy", 10)])
def test_too_short(name, least):
    with pytest.raises(UserError, match=rf"length \({least - 1}\) must be at least {least}"):
        TASKS[name](least - 1, 8, 0)
