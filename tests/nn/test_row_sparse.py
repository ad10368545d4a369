import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from everynet.nn.row_sparse import RowAdagrad, coalesce_rows, rows


def tables(dtype=torch.float64):
    torch.manual_seed(0)
    return nn.Parameter(torch.randn(9, 3, dtype=dtype)), nn.Parameter(torch.randn(9, dtype=dtype))


def loss(table, vector, index, read):
    """Any function of some rows, other ones at every call."""
    picked = read(table, index).sin().sum(1) * read(vector, index)
    return (picked * torch.arange(1, len(index) + 1)).sum()


indices = st.lists(st.integers(0, 8), min_size=1, max_size=12)


@settings(max_examples=25)
@given(indices)
def test_the_gradient_is_that_of_indexing_and_names_its_rows_only(index):
    table, vector = tables()
    index = torch.tensor(index)
    found = torch.autograd.grad(loss(table, vector, index, rows), (table, vector))
    wanted = torch.autograd.grad(loss(table, vector, index, lambda t, i: t[i]), (table, vector))
    for got, dense in zip(found, wanted, strict=True):
        assert got.is_sparse
        assert got._values().shape[0] == len(index)
        torch.testing.assert_close(got.to_dense(), dense)
        places, total = coalesce_rows(got)
        assert len(places) == len(index)
        torch.testing.assert_close(torch.zeros_like(dense).index_add(0, places, total), dense)
        used = total.flatten(1).abs().sum(1) > 0 if total.dim() > 1 else total != 0
        assert len(places[used].unique()) == int(used.sum()), "each row once"


def test_a_table_that_is_computed_gets_its_gradient():
    flat, index = torch.randn(27, dtype=torch.float64, requires_grad=True), torch.tensor([0, 3, 3])
    (found,) = torch.autograd.grad(rows(flat.view(9, 3), index).sin().sum(), flat)
    (wanted,) = torch.autograd.grad(flat.view(9, 3)[index].sin().sum(), flat)
    torch.testing.assert_close(found, wanted)


def test_second_derivatives_are_those_of_indexing():
    """Also of a plain sum, whose constant gradient once lost them without a word."""
    index = torch.tensor([0, 3, 3, 8])

    def of_penalty(read):
        leaves = tables()
        first = torch.autograd.grad(loss(*leaves, index, read), leaves, create_graph=True)
        assert not any(g.is_sparse for g in first)  # any operation can follow
        again = torch.autograd.grad(sum(g.square().sum() for g in first), leaves)
        return [g.to_dense() for g in again]

    torch.testing.assert_close(of_penalty(rows), of_penalty(lambda t, i: t[i]))
    first = torch.func.grad(lambda *given: loss(*given, index, rows))(
        *(t.detach() for t in tables())
    )
    expected = torch.autograd.grad(
        loss(*(leaves := tables()), index, lambda t, i: t[i]), leaves[:1]
    )
    torch.testing.assert_close((first,), expected)


@settings(max_examples=15)
@given(st.lists(indices, min_size=1, max_size=4), st.booleans())
def test_steps_are_those_of_adagrad_whose_gradients_are_dense(steps, dense):
    """torch's own Adagrad, given all rows of the gradient, moves only these."""
    ours, theirs = tables(), tables()
    mine = RowAdagrad(ours, lr=0.3)
    reference = torch.optim.Adagrad(theirs, lr=0.3)
    for index in map(torch.tensor, steps):
        mine.zero_grad()
        loss(*ours, index, (lambda t, i: t[i]) if dense else rows).backward()
        mine.step()
        reference.zero_grad()
        loss(*theirs, index, lambda t, i: t[i]).backward()
        reference.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_the_first_step_in_closed_form():
    """g / |g|: every number that has a gradient moves by lr, whatever its size."""
    (table, _), index = tables(), torch.tensor([4, 4, 7])
    before = table.detach().clone()
    (1000 * rows(table, index)[:, 0].sum()).backward()
    RowAdagrad([table], lr=0.25).step()
    wanted = torch.zeros(9, 3).double()
    wanted[[4, 7], 0] = -0.25
    torch.testing.assert_close(table.detach() - before, wanted)


def test_a_closure_gives_the_loss_and_no_gradient_is_no_step():
    (table, vector), index = tables(), torch.tensor([1])
    optimizer = RowAdagrad([table, vector])

    def closure():
        value = rows(table, index).sum()
        value.backward()
        return value.item()

    before, wanted = vector.detach().clone(), table[1].sum().item()
    assert optimizer.step(closure) == pytest.approx(wanted)
    assert torch.equal(vector, before)


def test_torch_s_own_descent_takes_the_gradient_too():
    (table, _), index = tables(), torch.tensor([4, 4, 7])
    before = table.detach().clone()
    rows(table, index).sum().backward()
    torch.optim.SGD([table], lr=0.5).step()
    wanted = torch.zeros(9, 3).double()
    wanted[4], wanted[7] = -1.0, -0.5
    torch.testing.assert_close(table.detach() - before, wanted)


@pytest.mark.parametrize(
    ("settings_", "said"),
    [({"lr": -1.0}, r"lr \(-1.0\) must be a number from 0 up"),
     ({"eps": 0.0}, r"eps \(0.0\) must be above 0, because steps are divided by it")],
)  # fmt: skip
def test_bad_settings_are_refused(settings_, said):
    with pytest.raises(ValueError, match=said):
        RowAdagrad(tables(), **settings_)
