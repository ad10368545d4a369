from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from everynet.system.errors import UserError
from everynet.zoo.vision.filters import (
    RECIPES,
    PhotoFilters,
    best,
    blur,
    centred_cosine,
    cosine,
    cut,
    edges,
    response,
)


def random(*shape, seed=0):
    made = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, generator=made, dtype=torch.float64)


@pytest.mark.covers("C11")
@given(sides=st.tuples(*[st.integers(1, 9)] * 2))
@settings(max_examples=20)
def test_blur_is_scipys_uniform_filter(sides):
    image = random(*sides)
    expected = torch.from_numpy(ndimage.uniform_filter(image.numpy(), 3, mode="nearest"))
    torch.testing.assert_close(blur(image), expected)


@pytest.mark.covers("C11")
@given(sides=st.tuples(*[st.integers(2, 9)] * 2))
@settings(max_examples=20)
def test_edges_are_scipys_correlation_and_none_on_what_is_even(sides):
    image = random(*sides)
    across, down = edges(image)
    for axis, found in ((1, across), (0, down)):
        expected = torch.from_numpy(ndimage.correlate1d(image.numpy(), [-1, 1], axis))
        torch.testing.assert_close(found, expected.narrow(axis, 1, sides[axis] - 1))
    for part in edges(torch.full(sides, 0.7).double()):
        assert not part.any()


def test_an_edge_is_red_where_the_next_pixel_is_brighter():
    across, down = edges(torch.tensor([[1.0, 4.0], [3.0, 3.0]]).double())
    assert across.tolist() == [[3], [0]]
    assert down.tolist() == [[2, -1]]


@pytest.mark.covers("C11")
def test_every_cosine_is_that_of_the_two_vectors():
    image, templates = random(7, 6), random(2, 3, 2, seed=1)
    maps = {f: f(image, templates) for f in (response, cosine, centred_cosine)}
    for k in range(2):
        for m in range(5):
            for n in range(5):
                u, v = image[m : m + 3, n : n + 2].flatten(), templates[k].flatten()
                assert maps[response][k, m, n].item() == pytest.approx(float(u @ v))
                angle = torch.nn.functional.cosine_similarity(u, v, dim=0)
                assert maps[cosine][k, m, n].item() == pytest.approx(float(angle))
                coefficient = torch.corrcoef(torch.stack([u, v]))[0, 1]
                assert maps[centred_cosine][k, m, n].item() == pytest.approx(float(coefficient))


@pytest.mark.covers("C11")
@given(a=st.floats(0.05, 20), b=st.floats(-1, 1), row=st.integers(0, 13), column=st.integers(0, 15))
@settings(max_examples=25)
def test_a_part_is_found_under_any_light_and_haze(a, b, row, column):
    image, place = random(20, 22), torch.tensor([row, column])
    part = cut(image, place, 7)[None]
    for method, light in ((cosine, a * image), (centred_cosine, a * image + b)):
        found = method(light, part)
        assert best(found).tolist() == [[row, column]]
        assert found.max().item() == pytest.approx(1)
        assert found.abs().max() < 1 + 1e-9


def test_the_plain_response_prefers_a_bright_spot():
    image = 0.2 * random(20, 20)
    image[12:16, 12:16] = 1
    part = cut(image, torch.tensor([3, 4]), 4)[None]
    assert best(response(image, part)).tolist() == [[12, 12]]
    assert best(cosine(image, part)).tolist() == [[3, 4]]
    black = torch.zeros(9, 9).double()
    assert not cosine(black, part).any()
    assert not centred_cosine(black + 0.7, part).any()


@pytest.mark.covers("C11")
def test_some_parts_of_the_photo_are_found_and_noise_is_a_third():
    recipe = replace(RECIPES["filters"], templates=3, side=16)
    metrics = recipe.metrics(recipe.simulate(torch.Generator().manual_seed(0)))
    assert all(goal.reached(metrics) for goal in recipe.goals())


@pytest.mark.slow
@pytest.mark.parametrize("photo", ["china", "flower"])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_recipe_reaches_its_goal(photo, seed):
    recipe = replace(RECIPES["filters"], photo=photo)
    metrics = recipe.metrics(recipe.simulate(torch.Generator().manual_seed(seed)))
    assert all(goal.reached(metrics) for goal in recipe.goals())


def test_what_has_no_direction_is_refused():
    with pytest.raises(ValueError, match=r"templates must each have pixels that differ"):
        centred_cosine(random(5, 5), torch.ones(1, 2, 2).double())
    with pytest.raises(UserError, match=r"side \(1\) must be at least 2, because"):
        PhotoFilters(side=1)
    with pytest.raises(UserError, match=r"templates \(0\) must be at least 1"):
        PhotoFilters(templates=0)
