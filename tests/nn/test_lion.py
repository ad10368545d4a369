import subprocess
import sys
from copy import deepcopy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from everynet.kernels import lion as kernel
from everynet.nn import lion
from everynet.nn.lion import Lion

WAYS = {"plain": False, "lists": True, "compiled": None}
DTYPES = [torch.float32, torch.float64]
SHAPES = [(), (1,), (3, 5), (7, 2, 3, 3), (0, 4), (257,)]


def published(theta, gradients, lr, decay, b1=0.9, *, b2=0.99):
    """Algorithm 2 of the paper, line by line."""
    m, path = np.zeros_like(theta), []
    for g in gradients:
        update = b1 * m + (1 - b1) * g  # update model parameters
        theta = theta - lr * (np.sign(update) + decay * theta)
        m = b2 * m + (1 - b2) * g  # update EMA of g
        path.append(theta)
    return np.stack(path), m


def parameters(dtype=torch.float64, seed=0, shapes=SHAPES):
    torch.manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, dtype=dtype)) for shape in shapes]


def stepped(params, steps=6, seed=1, **fields):
    """Parameters after some steps down gradients drawn at random, and the optimiser."""
    optimizer = Lion(params, **{"lr": 0.01, "weight_decay": 0.1, **fields})
    torch.manual_seed(seed)
    for _ in range(steps):
        for p in params:
            p.grad = torch.randn(p.shape, dtype=p.dtype)
        optimizer.step()
    return [p.detach() for p in params], optimizer


# --------------------------------------------------------------------------------------- the steps


@pytest.mark.covers("O30")
@pytest.mark.parametrize("foreach", WAYS.values(), ids=WAYS)
def test_two_steps_by_hand(foreach):
    """m = (0.04, 0, -0.04) after one step; in the second, c = 0.6 m + 0.4 g changes one sign."""
    p = nn.Parameter(torch.tensor([1.0, 2.0, -3.0], dtype=torch.float64))
    optimizer = Lion([p], lr=0.5, betas=(0.6, 0.98), weight_decay=0.2, foreach=foreach)
    p.grad = torch.tensor([2.0, 0.0, -2.0], dtype=torch.float64)
    optimizer.step()  # theta - 0.5 (sign + 0.2 theta)
    assert p.tolist() == pytest.approx([0.4, 1.8, -2.2])
    assert optimizer.state[p]["exp_avg"].tolist() == pytest.approx([0.04, 0.0, -0.04])
    p.grad = torch.tensor([-0.03, 0.0, 0.07], dtype=torch.float64)
    optimizer.step()
    assert p.tolist() == pytest.approx([-0.14, 1.62, -2.48])
    assert optimizer.state[p]["exp_avg"].tolist() == pytest.approx([0.0386, 0.0, -0.0378])


@pytest.mark.covers("O30")
@pytest.mark.parametrize("foreach", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_a_thousand_steps_equal_the_published_pseudocode(foreach, decay):
    rng = np.random.default_rng(0)
    theta, gradients = rng.normal(size=40), rng.normal(size=(1000, 40))
    path, m = published(theta, gradients, 0.01, decay)
    p = nn.Parameter(torch.from_numpy(theta.copy()))
    optimizer = Lion([p], lr=0.01, weight_decay=decay, foreach=foreach)
    for g, expected in zip(gradients, path, strict=True):
        p.grad = torch.from_numpy(g)
        optimizer.step()
        np.testing.assert_allclose(p.detach().numpy(), expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(optimizer.state[p]["exp_avg"].numpy(), m, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_three_ways_give_the_same_steps(dtype, decay):
    tolerance = {"rtol": 0, "atol": 1e-6 if dtype is torch.float32 else 1e-14}
    ways = {
        name: stepped(parameters(dtype), foreach=foreach, weight_decay=decay)
        for name, foreach in WAYS.items()
    }
    for values, optimizer in ways.values():
        for value, expected in zip(values, ways["plain"][0], strict=True):
            torch.testing.assert_close(value, expected, **tolerance)
        moments = [one["exp_avg"] for one in optimizer.state.values()]
        expected = [one["exp_avg"] for one in ways["plain"][1].state.values()]
        torch.testing.assert_close(moments, expected, **tolerance)


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    threads=st.integers(2, 5),
    seed=st.integers(0, 100),
)
@settings(max_examples=25, deadline=None)
def test_the_number_of_threads_changes_no_bit(sizes, threads, seed):
    """However the cuts between threads fall: in a tensor, between two, on empty ones."""
    shapes = [(size,) for size in sizes]
    alone, _ = stepped(parameters(torch.float32, seed, shapes), 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "ALONE", 1)
        patch.setattr(torch, "get_num_threads", lambda: threads)
        together, _ = stepped(parameters(torch.float32, seed, shapes), 2)
    assert all(map(torch.equal, together, alone))


@pytest.mark.parametrize("foreach", WAYS.values(), ids=WAYS)
def test_what_has_no_gradient_stays_and_zero_has_no_sign(foreach):
    still, flat = parameters(shapes=[(3,), (4,)])
    before = still.detach().clone(), flat.detach().clone()
    optimizer = Lion([still, flat], lr=0.1, foreach=foreach)
    flat.grad = torch.zeros(4, dtype=torch.float64)
    optimizer.step()
    assert torch.equal(still, before[0])
    assert torch.equal(flat, before[1])
    assert still not in optimizer.state


# ------------------------------------------------------------------------------ layouts and dtypes


def layouts():
    """A parameter, its gradient and its moment in memory, and whether the compiled loop fits."""
    plain = torch.randn(4, 3, 5, 5, dtype=torch.float64)
    last = plain.to(memory_format=torch.channels_last)
    return {
        "plain": (plain, plain.clone(), True),
        "channels last": (last, last.clone(), True),
        "a gradient in another order": (last, plain.clone(), False),
        "transposed": (plain.transpose(2, 3)[..., ::2], plain.transpose(2, 3)[..., ::2], False),
        "expanded gradient": (plain, torch.ones((), dtype=torch.float64).expand(4, 3, 5, 5), False),
        "lazy minus": (plain, torch._neg_view(plain), False),
        "half": (plain.bfloat16(), plain.bfloat16().clone(), False),
        "complex": (torch.view_as_complex(plain[..., :2].contiguous()),) * 2 + (True,),
    }


def copied(tensor):
    """A tensor of its own with the same strides, gaps in memory and all."""
    size = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    own = torch.zeros(size, dtype=tensor.dtype).as_strided(tensor.shape, tensor.stride())
    return own.copy_(tensor)


@pytest.mark.parametrize("name", layouts())
def test_every_layout_takes_the_right_way_to_the_same_step(name, monkeypatch):
    torch.manual_seed(0)
    p, g, fits = layouts()[name]
    taken = []
    for way in ("_step_each", "_step_compiled"):
        real = getattr(lion, way)
        monkeypatch.setattr(
            lion, way, lambda *given, real=real, way=way: (taken.append(way), real(*given))
        )
    results = []
    for foreach in (None, False, True):
        one = nn.Parameter(copied(p))
        one.grad = g
        optimizer = Lion([one], lr=0.01, weight_decay=0.1, foreach=foreach)
        optimizer.step()
        optimizer.step()
        results.append(one.detach())
    assert taken[:2] == (["_step_compiled"] * 2 if fits else ["_step_each"] * 2)
    precision = {"rtol": 0, "atol": 1e-2 if name == "half" else 1e-13}
    torch.testing.assert_close(results[0], results[1], **precision)
    torch.testing.assert_close(results[2], results[1], **precision)


def test_mixed_dtypes_go_in_one_group():
    params = [nn.Parameter(torch.ones(3, dtype=d)) for d in (*DTYPES, torch.bfloat16)]
    for foreach in WAYS.values():
        optimizer = Lion(params, lr=0.5, foreach=foreach)
        for p in params:
            p.data.fill_(1)
            p.grad = torch.ones_like(p)
        optimizer.step()
        assert all(p.tolist() == [0.5] * 3 for p in params)


# ----------------------------------------------------------------------- as one of torch's own


def test_groups_keep_their_own_rate_and_decay():
    first, second = parameters(shapes=[(4,), (4,)])
    groups = [{"params": [first], "lr": 0.5}, {"params": [second], "weight_decay": 0.5}]
    optimizer = Lion(groups, lr=0.1)
    before = first.detach().clone(), second.detach().clone()
    for p in (first, second):
        p.grad = torch.ones(4, dtype=torch.float64)
    optimizer.step()
    torch.testing.assert_close(first.detach(), before[0] - 0.5)
    torch.testing.assert_close(second.detach(), before[1] - 0.1 * (1 + 0.5 * before[1]))
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]
        group["lr"] = 0.0  # what a schedule does
    kept = first.detach().clone()
    optimizer.step()
    assert torch.equal(first, kept)


@pytest.mark.parametrize("foreach", WAYS.values(), ids=WAYS)
def test_stopping_and_going_on_changes_no_bit(foreach):
    values, before = stepped(parameters(), 3, foreach=foreach)
    half = [nn.Parameter(value.clone()) for value in values]
    going_on = Lion(half, foreach=foreach)
    going_on.load_state_dict(deepcopy(before.state_dict()))
    for optimizer, params in ((before, before.param_groups[0]["params"]), (going_on, half)):
        torch.manual_seed(9)
        for p in params:
            p.grad = torch.randn(p.shape, dtype=p.dtype)
        optimizer.step()
    assert all(map(torch.equal, half, before.param_groups[0]["params"]))
    assert all(list(state) == ["exp_avg"] for state in going_on.state.values())


@pytest.mark.parametrize("foreach", WAYS.values(), ids=WAYS)
def test_autograd_sees_that_a_weight_has_changed(foreach):
    """A loop on bare memory hides from it unless the version is counted up."""
    w = nn.Parameter(torch.ones(3))
    w.grad = torch.ones(3)
    loss = (w * w).sum()
    Lion([w], foreach=foreach).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_closure_is_called_with_gradients_on_and_its_loss_comes_back():
    w = nn.Parameter(torch.tensor([3.0]))
    optimizer = Lion([w], lr=0.5)

    def closure():
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss.item()

    assert optimizer.step(closure) == 9.0
    assert w.item() == 2.5


def test_it_learns_as_the_rate_decays():
    """At a constant rate it circles the minimum at a distance in proportion to the rate."""
    torch.manual_seed(0)
    x, net = torch.randn(200, 3), nn.Linear(3, 1)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5]]) + 0.3
    optimizer = Lion(net.parameters(), lr=0.01)
    for step in range(600):
        optimizer.param_groups[0]["lr"] = 0.02 * (1 - step / 600)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
    assert loss.item() < 1e-3


def test_numba_is_imported_by_the_first_step_only():
    check = "import sys, everynet.nn.lion; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


# ------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lr": -1.0}, r"lr \(-1.0\) must be a number from 0 up"),
        ({"lr": float("nan")}, r"lr \(nan\) must be a number from 0 up"),
        ({"betas": (0.9, 1.0)}, r"betas \(\(0.9, 1.0\)\) must be from 0 up and below 1; try"),
        ({"weight_decay": -0.1}, r"weight_decay \(-0.1\) must be a number from 0 up"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(ValueError, match=message):
        Lion(parameters(), **fields)


def test_a_sparse_gradient_is_refused():
    table = nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1, 3])).sum().backward()
    with pytest.raises(TypeError, match=r"layout \(torch.sparse_coo\) must be torch.strided, beca"):
        Lion(table.parameters()).step()
