from itertools import product

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import conv2d

from everynet.system.errors import UserError
from everynet.zoo.vision.conv_layer import (
    RECIPES,
    ConvLayerByHand,
    Slide,
    conv_backward,
    conv_forward,
    pointwise,
    size_misses,
    spread,
    toeplitz,
)
from everynet.zoo.vision.convolution import convolve2d, correlate2d


def random(*shape, seed=0):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=made, dtype=torch.float64)


class Layer(torch.autograd.Function):
    """The two by hand as one function that torch can check."""

    @staticmethod
    def forward(ctx, x, weight, bias, way):
        ctx.save_for_backward(x, weight)
        ctx.way = way
        return conv_forward(x, weight, bias, *way)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        return (*conv_backward(x, weight, dy, *ctx.way), None)


# ------------------------------------------------------------------------------ value and gradient


@pytest.mark.covers("C3")
@given(
    sides=st.tuples(*[st.integers(3, 8)] * 2),
    taps=st.tuples(*[st.integers(1, 3)] * 2),
    slide=st.builds(Slide, st.integers(1, 3), st.integers(0, 2), st.integers(1, 2)),
    groups=st.sampled_from([1, 2, 4]),
)
@settings(max_examples=40)
def test_value_and_gradients_are_torchs(sides, taps, slide, groups):
    assume(min(map(slide.output_size, sides, taps)) >= 1)
    x, w, b = random(2, 4, *sides), random(8, 4 // groups, *taps, seed=1), random(8, seed=2)
    for tensor in (x, w, b):
        tensor.requires_grad_()
    expected = conv2d(x, w, b, *slide, groups)
    found = conv_forward(x.detach(), w.detach(), b.detach(), slide, groups)
    torch.testing.assert_close(found, expected.detach())
    dy = random(*expected.shape, seed=3)
    by_hand = conv_backward(x.detach(), w.detach(), dy, slide, groups)
    for ours, theirs in zip(by_hand, torch.autograd.grad(expected, (x, w, b), dy), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.covers("C3")
@pytest.mark.parametrize(("slide", "groups"), [(Slide(), 1), (Slide(2, 1, 2), 2)])
def test_gradients_by_differences(slide, groups):
    x, w, b = random(1, 2, 5, 4), random(2, 2 // groups, 3, 2, seed=1), random(2, seed=2)
    for tensor in (x, w, b):
        tensor.requires_grad_()
    assert torch.autograd.gradcheck(lambda *given: Layer.apply(*given, (slide, groups)), (x, w, b))


@pytest.mark.covers("C3")
def test_a_layer_is_a_sum_of_correlations_over_channels_and_a_bias():
    """And its gradient on the image a sum of convolutions: closed by the sums of the first file."""
    x, w, b = random(1, 3, 6, 5), random(2, 3, 2, 3, seed=1), random(2, seed=2)
    y = conv_forward(x, w, b)
    dy = random(*y.shape, seed=3)
    dx, _, db = conv_backward(x, w, dy)
    for o in range(2):
        expected = sum(correlate2d(x[0, c], w[o, c], "valid") for c in range(3)) + b[o]
        torch.testing.assert_close(y[0, o], expected)
        assert db[o].item() == pytest.approx(dy[0, o].sum().item())
    for c in range(3):
        torch.testing.assert_close(dx[0, c], sum(convolve2d(dy[0, o], w[o, c]) for o in range(2)))


def test_a_gradient_lies_where_the_pixel_was_seen():
    """Two neighbours: 3 columns of weights overlap in 2 at stride 1, and are apart at stride 3."""
    dy, dx = spread(Slide())
    assert dy.sum() == 2
    row = dx[dx.any(1)][0]
    assert row[row != 0].tolist() == [1, 3, 5, 3]
    row = spread(Slide(stride=3))[1]
    assert row[row.any(1)][0][row.any(0)].tolist() == [1, 2, 3, 1, 2, 3]
    holes = spread(Slide(dilation=2))[1]
    assert holes.any(1).nonzero().flatten().diff().tolist() == [2, 2]


# ------------------------------------------------------------------------------------------- size


@pytest.mark.covers("C4")
def test_the_size_is_the_shape_torch_gives_for_all_small_sizes():
    assert size_misses(32) == 0


@pytest.mark.covers("C4")
@given(
    pixels=st.integers(1, 40),
    taps=st.integers(1, 9),
    slide=st.builds(Slide, st.integers(1, 5), st.integers(0, 4), st.integers(1, 4)),
)
@settings(max_examples=60)
def test_the_size_counts_the_places_one_by_one(pixels, taps, slide):
    last = pixels + 2 * slide.padding - slide.dilation * (taps - 1)
    assert max(0, slide.output_size(pixels, taps)) == len(range(0, last, slide.stride))


@pytest.mark.covers("C4")
def test_the_size_of_the_first_layer_of_alexnet_and_the_padding_that_keeps_a_size():
    assert Slide(stride=4).output_size(227, 11) == 55
    assert all(
        Slide(padding=(f - 1) // 2).output_size(n, f) == n for n in range(1, 20) for f in (1, 3, 5)
    )
    for n, f, s in product(range(1, 12), (1, 3, 5), (1, 2, 3)):
        twice = n * s - n - s + f  # twice the padding that keeps the size with a stride
        if twice >= 0 and twice % 2 == 0:
            assert Slide(s, twice // 2).output_size(n, f) == n


# ------------------------------------------------------------------------------- matrix and 1 x 1


@pytest.mark.covers("C10")
@given(sides=st.tuples(*[st.integers(3, 7)] * 2), taps=st.tuples(*[st.integers(1, 3)] * 2))
@settings(max_examples=20)
def test_a_dense_layer_with_the_toeplitz_matrix_is_the_convolution(sides, taps):
    image, kernel = random(*sides), random(*taps, seed=1)
    matrix = toeplitz(kernel, *sides)
    dense = nn.Linear(matrix.shape[1], matrix.shape[0], bias=False).double()
    dense.weight.data = matrix
    expected = conv2d(image[None, None], kernel[None, None]).flatten()
    torch.testing.assert_close(dense(image.flatten()), expected)
    assert (matrix != 0).sum() == kernel.numel() * len(matrix)
    assert len(matrix[matrix != 0].unique()) == kernel.numel()


def test_the_matrix_of_one_dimension_by_hand():
    matrix = toeplitz(torch.tensor([[1.0, 2.0]]).double(), 1, 4)
    assert matrix.tolist() == [[1, 2, 0, 0], [0, 1, 2, 0], [0, 0, 1, 2]]


@pytest.mark.covers("C5")
def test_one_by_one_is_a_linear_map_of_the_channels_at_every_pixel():
    x, w = random(2, 5, 4, 3), random(3, 5, seed=1)
    expected = nn.functional.linear(x.permute(0, 2, 3, 1), w).permute(0, 3, 1, 2)
    torch.testing.assert_close(pointwise(x, w), expected)
    torch.testing.assert_close(pointwise(x, w), conv2d(x, w[..., None, None]))


# ------------------------------------------------------------------------------------- the recipe


def test_the_recipe_reaches_its_goal():
    recipe = RECIPES["conv-layer"].tiny()
    metrics = recipe.metrics(recipe.simulate(torch.Generator().manual_seed(0)))
    assert all(goal.reached(metrics) for goal in recipe.goals())
    assert metrics["parameter_ratio"] == 10 * 10 * 12 * 12 / 9
    assert metrics["zeros"] == 1 - 9 / 144


@pytest.mark.covers("C3")
@pytest.mark.parametrize(
    ("channels", "shape", "slide", "groups", "message"),
    [
        (3, (2, 4, 3, 3), Slide(), 1, r"weight \(4 channels deep\) must be 3 deep, because"),
        (4, (2, 4, 3, 3), Slide(), 2, r"weight \(4 channels deep\) must be 2 deep, because"),
        (3, (2, 3, 3, 3), Slide(), 2, r"groups \(2\) must divide the channels \(3\) and the filt"),
        (3, (2, 3, 3, 3), Slide(1, 0, 3), 1, r"kernel \(3 x 3, dilation 3\) must fit into the im"),
    ],
)
def test_what_does_not_fit_is_refused(channels, shape, slide, groups, message):
    x, w = random(1, channels, 6, 6), random(*shape)
    with pytest.raises(ValueError, match=message):
        conv_forward(x, w, torch.zeros(2).double(), slide, groups)
    with pytest.raises(ValueError, match=message):
        conv_backward(x, w, random(1, 2, 4, 4), slide, groups)


def test_settings_are_refused_by_name():
    with pytest.raises(UserError, match=r"largest \(0\) must be a number from 1 to 256"):
        ConvLayerByHand(largest=0)
