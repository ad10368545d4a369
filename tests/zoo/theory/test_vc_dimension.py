import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.system.errors import UserError
from everynet.zoo.theory.vc_dimension import (
    RECIPES,
    VCDimension,
    by_boxes,
    by_halfspaces,
    cover,
    growth,
    labelings,
    sauer,
    separating_plane,
    vc_dimension,
)


def drawn(seed, *size):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*size, generator=generator, dtype=torch.float64)


def cut_by_hyperplanes_through_points(x):
    """Labelings by half-spaces without a linear program, for points in general position.

    A hyperplane through D of the points splits the others; a small turn puts each of the D on
    either side.
    """
    n, axes = x.shape
    found = set()
    for on in itertools.combinations(range(n), axes):
        plane = torch.linalg.svd(torch.cat([x, torch.ones(n, 1)], dim=1)[list(on)]).Vh[-1]
        side = (torch.cat([x, torch.ones(n, 1)], dim=1) @ plane > 0).tolist()
        for turned in itertools.product([True, False], repeat=axes):
            for index, value in zip(on, turned, strict=True):
                side[index] = value
            found |= {tuple(side), tuple(not each for each in side)}
    return found


# --------------------------------------------------------------------------------------- equations


def test_all_labelings_are_there_once():
    every = labelings(5)
    assert every.shape == (32, 5) == every.unique(dim=0).shape
    assert torch.equal(every[:16], ~every.flip(0)[:16])


@pytest.mark.covers("Y3")
@pytest.mark.parametrize(("points", "axes"), [(4, 1), (4, 2), (6, 2), (5, 3)])
def test_the_linear_program_finds_what_planes_through_the_points_find(points, axes):
    for seed in range(2):
        x = drawn(seed, points, axes)
        ours = {tuple(row) for row in labelings(points)[by_halfspaces(x)].tolist()}
        assert ours == cut_by_hyperplanes_through_points(x)
        assert len(ours) == cover(points, axes)


@given(seed=st.integers(0, 1000), axes=st.integers(1, 4), points=st.integers(1, 6))
@settings(max_examples=25, deadline=None)
def test_a_plane_that_is_found_separates(seed, axes, points):
    x = drawn(seed, points, axes)
    positive = torch.rand(points, generator=torch.Generator().manual_seed(seed)) < 0.5
    plane = separating_plane(x, positive)
    if plane is not None:
        sides = x @ plane[:-1] + plane[-1]
        assert (sides[positive] >= 1 - 1e-6).all()  # (3)
        assert (sides[~positive] <= -1 + 1e-6).all()


@pytest.mark.covers("Y3")
@given(seed=st.integers(0, 10_000), axes=st.integers(1, 5))
@settings(max_examples=15, deadline=None)
def test_no_half_space_cuts_what_radon_says_it_cannot(seed, axes):
    """The signs of an affine dependency of D + 2 points: the two hulls have a point in common."""
    x = drawn(seed, axes + 2, axes)
    rows = torch.cat([x, torch.ones(axes + 2, 1)], dim=1)
    dependency = torch.linalg.svd(rows.T).Vh[-1]
    torch.testing.assert_close(dependency @ rows, torch.zeros(axes + 1).double(), rtol=0, atol=1e-9)
    assert separating_plane(x, dependency > 0) is None
    part = x[1:]  # but any labels of D + 1 of them
    assert separating_plane(part, dependency[1:] > 0) is not None


def test_points_on_the_boundary_are_not_separated():
    """Three on a line, the middle one alone; and the same point with both labels."""
    line = torch.tensor([[0.0], [1.0], [2.0]]).double()
    assert by_halfspaces(line).tolist() == [True, True, False, True, True, False, True, True]
    assert separating_plane(line[[0, 0]], torch.tensor([True, False])) is None
    assert separating_plane(line, torch.tensor([True, True, False])) is not None


@given(seed=st.integers(0, 1000), axes=st.integers(1, 3), points=st.integers(1, 6))
@settings(max_examples=25, deadline=None)
def test_boxes_are_those_with_sides_between_the_points(seed, axes, points):
    """Every box, up to what it holds, has its sides at points: all of these are tried."""
    x = drawn(seed, points, axes)
    found = {(False,) * points}
    spans = [[(a, b) for a in x[:, axis] for b in x[:, axis] if a <= b] for axis in range(axes)]
    for box in itertools.islice(itertools.product(*spans), 4000):
        low, high = (torch.stack(side) for side in zip(*box, strict=True))
        found.add(tuple(((x >= low) & (x <= high)).all(dim=1).tolist()))
    ours = {tuple(row) for row in labelings(points)[by_boxes(x)].tolist()}
    assert found <= ours
    if math.prod(map(len, spans)) <= 4000:
        assert found == ours


@pytest.mark.covers("Y3")
@given(seed=st.integers(0, 1000), axes=st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_boxes_shatter_2d_points_and_no_set_of_one_more(seed, axes):
    diamond = torch.cat([torch.eye(axes), -torch.eye(axes)]).double()
    assert by_boxes(diamond).all()
    assert not by_boxes(torch.cat([diamond, 0.5 * drawn(seed, 1, axes)])).all()
    assert not by_boxes(drawn(seed, 2 * axes + 1, axes)).all()


def test_growth_and_dimension_by_hand():
    """Intervals on a line: n (n + 1) / 2 + 1 labelings, so that two points are shattered."""
    sets = drawn(0, 3, 6, 1)
    counts = {n: growth(by_boxes, sets[:, :n]) for n in range(1, 7)}
    assert counts == {n: (n * (n + 1) // 2 + 1,) * 2 for n in range(1, 7)}
    most = {n: each for n, (each, _) in counts.items()}
    assert vc_dimension(most) == 2
    assert vc_dimension({1: 1}) == 0
    assert [sauer(n, 2) for n in most] == [*most.values()]  # the bound is reached
    assert growth(by_boxes, torch.tensor([[[0.0], [0.0]], [[0.0], [1.0]]])) == (4, 2)


@given(points=st.integers(1, 12), dimension=st.integers(0, 12))
@settings(max_examples=40, deadline=None)
def test_sauer_and_cover_count_subsets(points, dimension):
    subsets = int((labelings(points).sum(dim=1) <= dimension).sum())
    assert sauer(points, dimension) == subsets
    if dimension:  # Pascal's rule: a new point splits what a plane through it can split
        assert cover(points + 1, dimension) == cover(points, dimension) + cover(
            points, dimension - 1
        )
        assert cover(points, dimension) <= sauer(points, dimension + 1)
        assert (cover(points, dimension) == 2**points) == (points <= dimension + 1)


# ------------------------------------------------------------------------------------ the recipe


@pytest.mark.covers("Y3")
def test_brute_force_gives_the_dimensions():
    recipe = VCDimension(more=1, sets=2, box_sets=50)
    metrics = recipe.metrics(recipe.simulate(torch.Generator().manual_seed(0)))
    goal = RECIPES["vc-dimension"].goals()
    assert all(each.reached(metrics) for each in goal)
    assert [metrics[f"half_spaces_{axes}"] for axes in (1, 2, 3)] == [2, 3, 4]
    assert [metrics[f"boxes_{axes}"] for axes in (1, 2, 3)] == [2, 4, 6]


def test_metrics_tell_a_wrong_growth():
    recipe = VCDimension(axes=(2,), more=1)
    result = {
        "half-spaces 2": torch.tensor([[2, 2], [4, 4], [8, 8], [14, 14]]),
        "boxes 2": torch.tensor([[2, 2], [4, 4], [8, 7], [16, 11], [28, 16]]),
    }
    assert recipe.metrics(result)["wrong"] == 0
    result["half-spaces 2"][3] = torch.tensor([16, 13])
    metrics = recipe.metrics(result)
    assert (metrics["wrong"], metrics["above_sauer"], metrics["off_cover"]) == (1, 1, 2)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"axes": ()}, r"axes \(\(\)\) must be one number or more, rising"),
        ({"axes": (2, 1)}, r"axes \(\(2, 1\)\) must be one number or more, rising"),
        ({"axes": (1, 9)}, r"axes \(\(1, 9\)\) must be from 1 to 5"),
        ({"more": 0}, r"more \(0\) must be a number from 1 to 4"),
        ({"sets": 0}, r"sets \(0\) must be a number from 1 to 10000"),
    ],
)
def test_bad_settings(fields, message):
    with pytest.raises(UserError, match=message):
        VCDimension(**fields)
