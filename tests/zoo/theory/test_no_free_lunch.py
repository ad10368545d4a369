from itertools import combinations, product

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

from everynet.system.errors import UserError
from everynet.zoo.theory.no_free_lunch import (
    LEARNERS,
    RECIPES,
    NoFreeLunch,
    all_labelings,
    anti_majority,
    changes,
    majority,
    mean_error,
    nearest_neighbours,
    off_training_mistakes,
)
from tests.zoo.theory.simulated import simulate_metrics


def test_all_labelings_are_there_once():
    found = {tuple(row) for row in all_labelings(8).tolist()}
    assert found == set(product((0, 1), repeat=8))


def test_neighbours_are_those_of_scikit_learn():
    """Places without equal distances, where both break ties in ways of their own."""
    generator = np.random.default_rng(0)
    places, unknown = np.array([0, 10, 14, 33, 41]), np.array([3, 11, 20, 25, 50])
    for k in (1, 3):
        for _ in range(5):
            labels = generator.integers(0, 2, 5)
            expected = (
                KNeighborsClassifier(k).fit(places[:, None], labels).predict(unknown[:, None])
            )
            found = nearest_neighbours(
                torch.tensor(places), torch.tensor(labels)[None], torch.tensor(unknown), k
            )
            assert found[0].tolist() == expected.tolist()


def test_majorities_by_hand():
    labels = torch.tensor([[1, 1, 0], [0, 0, 1]])
    places, unknown = torch.tensor([0, 1, 2]), torch.tensor([3, 4])
    assert majority(places, labels, unknown).tolist() == [[1, 1], [0, 0]]
    assert anti_majority(places, labels, unknown).tolist() == [[0, 0], [1, 1]]


def test_only_points_that_were_not_shown_are_counted():
    targets = torch.tensor([[0, 1, 1, 0]])
    known = torch.tensor([1, 2])
    assert off_training_mistakes(majority, targets, known).tolist() == [2]
    assert off_training_mistakes(anti_majority, targets, known).tolist() == [0]
    assert off_training_mistakes(majority, targets, torch.tensor([0, 1, 2])).tolist() == [1]


@pytest.mark.covers("M13")
@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("known", [1, 3, 4, 7])
def test_every_learner_errs_on_exactly_half_over_all_256_targets(name, known):
    targets = all_labelings(8)
    for some in list(combinations(range(8), known))[::5]:
        mistakes = off_training_mistakes(LEARNERS[name], targets, torch.tensor(some))
        assert 2 * int(mistakes.sum()) == 256 * (8 - known)
        assert mean_error(mistakes, 8 - known).item() == 0.5


@pytest.mark.covers("M13")
def test_a_learner_of_ones_own_gets_no_lunch_either_and_one_that_peeks_does():
    targets, known = all_labelings(8), torch.tensor([0, 3, 5])

    def parity(places, labels, unknown):
        return ((labels.sum(1, keepdim=True) + unknown) % 2).long()

    assert mean_error(off_training_mistakes(parity, targets, known), 5).item() == 0.5
    unknown = torch.tensor([1, 2, 4, 6, 7])
    peeks = off_training_mistakes(lambda *_: targets[:, unknown], targets, known)
    assert mean_error(peeks, 5).item() == 0


@pytest.mark.covers("M13")
def test_on_targets_that_change_once_the_neighbour_wins():
    targets = all_labelings(8)
    smooth = targets[changes(targets) <= 1]
    assert len(smooth) == 16
    known = torch.tensor([0, 2, 5, 7])
    near = mean_error(off_training_mistakes(nearest_neighbours, smooth, known), 4)
    most = mean_error(off_training_mistakes(majority, smooth, known), 4)
    assert near < 0.15 < most


def test_changes_by_hand():
    assert changes(torch.tensor([[0, 0, 0], [0, 1, 0], [0, 1, 1]])).tolist() == [0, 2, 1]


@pytest.mark.covers("M13")
def test_the_recipe_reaches_its_goal():
    metrics, reached = simulate_metrics(RECIPES["no-free-lunch"])
    assert reached
    assert metrics["targets"] == 256
    assert metrics["training_sets"] == 70
    assert metrics["spread_smooth"] > 0.5
    assert metrics["least_error_smooth"] == metrics["neighbour_smooth"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"points": 2}, r"points \(2\) must be a number from 3 to 12"),
        ({"known": 8}, r"known \(8\) must be from 1 to 7"),
        ({"known": 0}, r"known \(0\) must be from 1 to 7"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        NoFreeLunch(**fields)
