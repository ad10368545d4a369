import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from everynet.system.errors import UserError
from everynet.zoo.vision.pooling import (
    RECIPES,
    PoolingByHand,
    average_pool,
    average_pool_gradient,
    global_pool,
    max_pool,
    max_pool_gradient,
)


def random(*shape, seed=0):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=made, dtype=torch.float64)


class MaxPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, side, stride):
        y, places = max_pool(x, side, stride)
        ctx.save_for_backward(x, places)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, places = ctx.saved_tensors
        return max_pool_gradient(x, dy, places), None, None


class AveragePool(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, side, stride):
        ctx.save_for_backward(x)
        ctx.way = (side, stride)
        return average_pool(x, side, stride)

    @staticmethod
    def backward(ctx, dy):
        return average_pool_gradient(*ctx.saved_tensors, dy, *ctx.way), None, None


@pytest.mark.covers("C6")
@given(sides=st.tuples(*[st.integers(3, 9)] * 2), side=st.integers(1, 3), stride=st.integers(1, 4))
@settings(max_examples=40)
def test_values_places_and_gradients_are_torchs_with_equal_ones_too(sides, side, stride):
    x = random(2, 3, *sides).round().requires_grad_()  # few whole numbers, so many are equal
    largest, places = max_pool(x.detach(), side, stride)
    expected, there = functional.max_pool2d(x, side, stride, return_indices=True)
    assert torch.equal(largest, expected)
    assert torch.equal(places, there)
    dy = random(*expected.shape, seed=1)
    (theirs,) = torch.autograd.grad(expected, x, dy)
    torch.testing.assert_close(max_pool_gradient(x.detach(), dy, places), theirs)
    expected = functional.avg_pool2d(x, side, stride)
    torch.testing.assert_close(average_pool(x.detach(), side, stride), expected.detach())
    (theirs,) = torch.autograd.grad(expected, x, dy)
    torch.testing.assert_close(average_pool_gradient(x.detach(), dy, side, stride), theirs)


@pytest.mark.covers("C6")
@pytest.mark.parametrize(("side", "stride"), [(2, 2), (3, 2), (2, 3)])
def test_gradients_by_differences(side, stride):
    x = torch.randperm(30, generator=torch.Generator().manual_seed(0)).double()  # none equal
    x = x.view(1, 1, 5, 6).requires_grad_()
    assert torch.autograd.gradcheck(MaxPool.apply, (x, side, stride))
    assert torch.autograd.gradcheck(AveragePool.apply, (x, side, stride))


@pytest.mark.covers("C6")
def test_the_first_of_equal_ones_gets_all_of_the_gradient():
    x = torch.ones(1, 1, 2, 2).double()
    y, places = max_pool(x, 2, 2)
    given = max_pool_gradient(x, torch.full_like(y, 5.0), places)
    assert given.flatten().tolist() == [5, 0, 0, 0]
    shared = average_pool_gradient(x, torch.full_like(y, 5.0), 2, 2)
    assert shared.flatten().tolist() == [1.25] * 4


@pytest.mark.covers("C6")
@given(sides=st.tuples(*[st.integers(1, 12)] * 2), side=st.integers(1, 4), stride=st.integers(1, 4))
@settings(max_examples=40)
def test_the_size_and_that_channels_stay(sides, side, stride):
    if side > min(sides):
        return
    expected = [(n - side) // stride + 1 for n in sides]
    assert list(average_pool(random(1, 5, *sides), side, stride).shape) == [1, 5, *expected]


def test_global_pooling_is_one_window_as_large_as_the_map():
    x = random(2, 3, 5, 5)
    mean, largest = global_pool(x)
    torch.testing.assert_close(mean, average_pool(x, 5, 1)[:, :, 0, 0])
    assert torch.equal(largest, max_pool(x, 5, 1)[0][:, :, 0, 0])


def test_the_recipe_reaches_its_goal():
    recipe = RECIPES["pooling"]
    metrics = recipe.metrics(recipe.simulate(torch.Generator().manual_seed(0)))
    assert all(goal.reached(metrics) for goal in recipe.goals())


def test_what_does_not_fit_is_refused():
    with pytest.raises(
        ValueError, match=r"window \(5\) must be from 1 to that of the image \(6 x 4"
    ):
        max_pool(random(1, 1, 6, 4), 5, 1)
    with pytest.raises(ValueError, match=r"stride \(0\) must be at least 1"):
        average_pool(random(1, 1, 6, 4), 2, 0)
    with pytest.raises(UserError, match=r"sides \(\(2, 200\)\) must be from 1 to 128"):
        PoolingByHand(sides=(2, 200))
    with pytest.raises(UserError, match=r"sides \(\(\)\) must be one to five numbers"):
        PoolingByHand(sides=())
