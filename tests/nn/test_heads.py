import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from everynet.nn.heads import HEADS, head

PRICES = st.lists(st.floats(-400, 400), min_size=1, max_size=8)


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def slope(loss, z):
    point = z.clone().requires_grad_()
    (made,) = torch.autograd.grad(loss(point), point)
    return made


@pytest.mark.covers("O8")
def test_each_task_has_its_pair():
    """The prediction, the loss by its definition of that prediction, and the kind of targets."""
    z = tensor([[0.3, -2.0, 1.2], [0.0, 4.0, -0.5]])
    binary, classes, numbers, positive = map(
        head, ("binary", "classification", "regression", "positive")
    )
    t = tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    y = 1 / (1 + (-z).exp())
    torch.testing.assert_close(binary.activation(z), y)
    expected = -(t * y.log() + (1 - t) * (1 - y).log()).mean()
    torch.testing.assert_close(binary.loss(z, t), expected)

    label = torch.tensor([2, 1])
    y = z.exp() / z.exp().sum(1, keepdim=True)
    torch.testing.assert_close(classes.activation(z), y)
    torch.testing.assert_close(classes.loss(z, label), -(y[0, 2].log() + y[1, 1].log()) / 2)

    assert torch.equal(numbers.activation(z), z)
    torch.testing.assert_close(numbers.loss(z, t), (z - t).square().mean())

    y = (1 + z.exp()).log()
    torch.testing.assert_close(positive.activation(z), y)
    torch.testing.assert_close(positive.loss(z, t), (y - t).square().mean())
    kinds = {name: made.target for name, made in HEADS.items()}
    assert kinds.pop("classification") == torch.int64
    assert set(kinds.values()) == {torch.float32}


@pytest.mark.covers("O8")
@given(z=st.lists(st.floats(-30, 30), min_size=2, max_size=6))
@settings(max_examples=25, deadline=None)
def test_the_slope_is_the_error(z):
    """What makes a pair of them: the loss by z is y - t, which saturation does not hide."""
    z = tensor(z)
    t = (torch.arange(len(z)) == 1).double()
    for task, target, times in (("binary", t, len(z)), ("regression", t, len(z) / 2)):
        made = head(task)
        by_z = slope(lambda v, m=made, u=target: m.loss(v, u), z)
        torch.testing.assert_close(by_z * times, made.activation(z) - t, rtol=1e-8, atol=1e-12)
    made = head("classification")
    by_z = slope(lambda v: made.loss(v[None], torch.tensor([1])), z)
    torch.testing.assert_close(by_z, made.activation(z) - t, rtol=1e-8, atol=1e-12)


@pytest.mark.covers("O8")
def test_the_wrong_loss_hides_a_sure_mistake():
    """The squared error of a sigmoid at z = -30 for the target 1: no slope is left."""
    z, t = tensor([-30.0]), tensor([1.0])
    assert slope(lambda v: F.mse_loss(v.sigmoid(), t), z).abs().item() < 1e-12
    assert slope(lambda v: head("binary").loss(v, t), z).item() == pytest.approx(-1.0)


@pytest.mark.covers("O8")
@given(t=PRICES, seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_tanh_cannot_get_below_the_distance_of_the_targets_from_its_range(t, seed):
    """mean of max(0, |t| - 1)^2: a floor for every z, and one that is reached in the limit."""
    t = tensor(t)
    floor = (t.abs() - 1).clamp(min=0).square().mean()
    z = 10 * torch.randn(len(t), generator=torch.Generator().manual_seed(seed)).double()
    assert F.mse_loss(z.tanh(), t) >= floor - 1e-9
    best = torch.where(t.abs() < 1, t.clamp(-0.999999, 0.999999).atanh(), 20 * t.sign())
    torch.testing.assert_close(F.mse_loss(best.tanh(), t), floor, rtol=1e-9, atol=1e-9)


@pytest.mark.covers("O8")
def test_prices_with_the_right_head_and_with_a_wrong_one():
    """One price for each of 8 houses, a free output for each: tanh ends at its floor."""
    prices = tensor([120.0, 95.0, 310.0, 240.0, 180.0, 77.0, 410.0, 150.0])
    floor = (prices - 1).square().mean().item()

    def learned(activation):
        z = nn.Parameter(torch.zeros(8, dtype=torch.float64))
        descent = torch.optim.Adam([z], lr=5.0)
        for _ in range(400):
            descent.zero_grad()
            F.mse_loss(activation(z), prices).backward()
            descent.step()
        return F.mse_loss(activation(z), prices).item()

    assert learned(torch.tanh) == pytest.approx(floor, rel=1e-6)
    for task in ("regression", "positive"):
        assert learned(head(task).activation) < 1e-3 * floor


@pytest.mark.covers("O8")
def test_a_positive_head_never_says_a_negative_price():
    """And one without it may: relu and softplus cannot reach a negative target either."""
    z = torch.linspace(-30, 30, 61, dtype=torch.float64)
    assert (head("positive").activation(z) > 0).all()
    assert (head("regression").activation(z) < 0).any()
    t = tensor([-3.0, -1.0, 2.0])
    reached = head("positive").loss(tensor([-50.0, -50.0, 1.854586542131141]), t).item()
    assert reached == pytest.approx((9 + 1 + 0) / 3)


def test_a_task_we_do_not_have_names_the_nearest():
    with pytest.raises(ValueError, match=r"unknown task 'clasification'; .*classification"):
        head("clasification")
