from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy import signal

from everynet.system.errors import UserError
from everynet.zoo.vision.convolution import (
    HOLD,
    RECIPES,
    RELIEF,
    ConvolutionSums,
    add_distributions,
    bell,
    convolve,
    convolve2d,
    correlate2d,
    farthest,
    few_pixels,
    subtract_distributions,
)
from everynet.zoo.vision.photo import photograph
from everynet.zoo.vision.pictures.convolution import window_frames
from tests.plot.legible import faults

RECIPE = RECIPES["convolution"]
SIDES = st.integers(1, 7)


def random(*shape, seed=0):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=made, dtype=torch.float64)


# ------------------------------------------------------------------------------------ the sums


@pytest.mark.covers("C1")
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@given(left=st.integers(1, 9), right=st.integers(1, 9))
@settings(max_examples=25)
def test_one_dimension_is_numpys_in_every_mode_and_either_order(mode, left, right):
    f, g = random(left), random(right, seed=1)
    expected = np.convolve(f.numpy(), g.numpy(), mode)
    torch.testing.assert_close(convolve(f, g, mode).numpy(), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.covers("C1")
def test_the_formula_of_the_sum_index_by_index():
    """(1) as it stands, with 0 outside: not a property of any library."""
    f, g = [2.0, -1.0, 3.0], [1.0, 4.0, 0.5, -2.0]

    def at(values, n):
        return values[n] if 0 <= n < len(values) else 0.0

    expected = [sum(at(f, n) * at(g, m - n) for n in range(3)) for m in range(6)]
    found = convolve(torch.tensor(f).double(), torch.tensor(g).double())
    assert found.tolist() == pytest.approx(expected)


@pytest.mark.covers("C2")
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@given(sides=st.tuples(SIDES, SIDES, SIDES, SIDES))
@settings(max_examples=25)
def test_the_plane_is_scipys_in_every_mode(mode, sides):
    height, width, rows, columns = sides
    if mode == "valid":
        rows, columns = min(rows, height), min(columns, width)
    image, kernel = random(height, width), random(rows, columns, seed=1)
    for ours, theirs in ((convolve2d, signal.convolve2d), (correlate2d, signal.correlate2d)):
        expected = theirs(image.numpy(), kernel.numpy(), mode)
        found = ours(image, kernel, mode).numpy()
        torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.covers("C2")
@given(sides=st.tuples(SIDES, SIDES, SIDES, SIDES))
@settings(max_examples=25)
def test_convolution_is_correlation_turned_and_alone_commutes(sides):
    a, b = random(*sides[:2]), random(*sides[2:], seed=1)
    convolved = convolve2d(a, b)
    torch.testing.assert_close(convolved, correlate2d(a, b.flip(0, 1)))
    torch.testing.assert_close(convolved, convolve2d(b, a))
    torch.testing.assert_close(correlate2d(a, b), correlate2d(b, a).flip(0, 1))
    if a.numel() * b.numel() > 1:
        assert farthest(correlate2d(a, b), correlate2d(b, a)) > 1e-3


def test_a_point_is_stamped_with_the_kernel_or_with_it_turned():
    point, kernel = torch.zeros(5, 5).double(), random(3, 3)
    point[2, 2] = 1
    assert torch.equal(convolve2d(point, kernel, "same")[1:4, 1:4], kernel)
    assert torch.equal(correlate2d(point, kernel, "same")[1:4, 1:4], kernel.flip(0, 1))


@pytest.mark.covers("C1")
@pytest.mark.parametrize(
    ("first", "second"),
    [([1] * 6, [1] * 6), ([1] * 4, [1] * 8), ([3, 2, 1], [1, 2, 7])],  # the last two are loaded
)
def test_two_dice_by_counting_all_throws(first, second):
    f, g = ([Fraction(ways, sum(die)) for ways in die] for die in (first, second))
    sums, less = {}, {}
    for a, chance in enumerate(f):
        for b, other in enumerate(g):
            sums[a + b] = sums.get(a + b, 0) + chance * other
            less[a - b] = less.get(a - b, 0) + chance * other
    dice = [torch.tensor([float(p) for p in die], dtype=torch.float64) for die in (f, g)]
    for found, expected in (
        (add_distributions(*dice), sums),
        (subtract_distributions(*dice), less),
    ):
        exact = [float(expected[c]) for c in sorted(expected)]
        assert found.tolist() == pytest.approx(exact, rel=1e-14)


@pytest.mark.covers("C1")
def test_a_lopsided_die_less_itself_is_even_and_its_reverse_is_backwards():
    """P(a - b = c) of a = 0 surely is g(-c): the reverse drop."""
    g = torch.tensor([0.1, 0.2, 0.7], dtype=torch.float64)
    sure = torch.ones(1, dtype=torch.float64)
    assert torch.equal(subtract_distributions(sure, g), g.flip(0))  # c = -2, -1, 0
    itself = subtract_distributions(g, g)
    torch.testing.assert_close(itself, itself.flip(0))
    assert itself.sum().item() == pytest.approx(1)


@pytest.mark.covers("C1")
@given(a=st.floats(2.5, 6), b=st.floats(2.5, 6))
@settings(max_examples=15)
def test_variances_of_gaussians_add(a, b):
    added = add_distributions(bell(a, 60), bell(b, 60))
    expected = bell((a**2 + b**2) ** 0.5, 120)
    torch.testing.assert_close(added, expected, rtol=0, atol=1e-14)


# ---------------------------------------------------------------------------------- the recipe


def test_the_recipe_reaches_its_goal():
    metrics = RECIPE.metrics(RECIPE.simulate(torch.Generator().manual_seed(0)))
    assert all(goal.reached(metrics) for goal in RECIPE.goals())
    assert metrics["correlation_gap"] > 0.5
    assert metrics["turn_error"] < 1e-12


def test_a_photo_of_ones_own(tmp_path):
    pixels = np.arange(200 * 210, dtype=np.uint32) % 256
    Image.fromarray(pixels.astype(np.uint8).reshape(200, 210)).save(tmp_path / "mine.png")
    image = photograph(str(tmp_path / "mine.png"))
    torch.testing.assert_close(image[0, :3], torch.tensor([0, 1, 2]).double() / 255)
    result = replace(RECIPE, photo=str(tmp_path / "mine.png")).simulate(torch.Generator())
    assert result["crop"].shape == (120, 200)
    assert photograph("flower").shape == (427, 640)


@pytest.mark.parametrize(
    ("photo", "least", "message"),
    [
        ("chian", 1, r"photo \(chian\) must be china or flower or an image file that is there"),
        ("china", 500, r"photo \(china, 640x427\) must have sides of at least 500 pixels, because"),
    ],
)
def test_a_photo_is_refused(photo, least, message):
    with pytest.raises(UserError, match=message):
        photograph(photo, least)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"kernel \(2 x 5\) must fit into the image \(4 x 4\)"):
        convolve2d(random(4, 4), random(2, 5), "valid")
    with pytest.raises(ValueError, match=r"mode \(wide\) must be full, same or valid"):
        convolve(random(4), random(2), "wide")
    with pytest.raises(UserError, match=r"spreads \(\(0.5, 2.0\)\) must be from 1 to 100"):
        ConvolutionSums(spreads=(0.5, 2.0))


# ------------------------------------------------------------------------------------------ film


def test_the_film_slides_to_the_true_output_and_shows_the_products():
    image = torch.randint(0, 10, (5, 4), generator=torch.Generator().manual_seed(0)).double()
    kernel = torch.tensor(RELIEF, dtype=torch.float64)
    result = convolve2d(image, kernel, "valid")
    seen = 0
    for number, drawn in enumerate(window_frames(image, kernel, result)):
        row, column = divmod(number, 2)
        shown, products, output = drawn.axes
        assert shown.patches[-1].get_xy() == (column - 0.5, row - 0.5)
        window = image[row : row + 3, column : column + 3]
        expected = window * kernel.flip(0, 1)
        np.testing.assert_array_equal(products.images[0].get_array(), expected)
        total = f"{float(expected.sum()):g}".replace("-", "\N{MINUS SIGN}")
        assert products.texts[-1].get_text() == f"sum = {total}"
        assert output.texts[-1].get_text() == total
        assert np.isfinite(output.images[0].get_array().filled(np.nan)).sum() == number + 1
        seen += 1
    assert seen == 6
    expected = signal.convolve2d(image, kernel, "valid")
    np.testing.assert_allclose(output.images[0].get_array(), expected)
    assert not faults(drawn)


def test_a_film_of_a_photo_in_few_pixels_holds_its_end():
    film = RECIPE.sample({}, {}, torch.Generator(), side=4)
    assert len(film.frames) == 4 + HOLD
    assert all((a != b).any() for a, b in zip(film.frames[:3], film.frames[1:4], strict=True))
    with pytest.raises(UserError, match=r"side \(3\) must be from 4 to 16 pixels"):
        RECIPE.sample({}, {}, torch.Generator(), side=3)


def test_few_pixels_are_means_of_the_square_in_the_middle():
    image = torch.zeros(4, 8).double()
    image[:, 2:6] = torch.tensor([[1.0, 1, 0, 0], [1, 1, 0, 0], [0, 1, 1, 1], [0, 1, 1, 1]])
    assert few_pixels(image, 2).tolist() == [[9, 0], [4, 9]]
