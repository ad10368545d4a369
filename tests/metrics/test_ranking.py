"""Areas under curves and thresholds: scikit-learn's, ties and all."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, f1_score, recall_score, roc_auc_score

from everynet.metrics.ranking import (
    auc,
    average_precision,
    f1_threshold,
    placements,
    recall_threshold,
)

rows = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=30)


@given(rows.filter(lambda rows: len({of for _, of in rows}) == 2))
def test_it_is_that_of_scikit_learn(rows):
    scores, positive = (list(column) for column in zip(*rows, strict=True))
    found = auc(torch.tensor(scores).double(), torch.tensor(positive))
    assert found == pytest.approx(roc_auc_score(positive, scores), abs=1e-12)


def test_one_kind_alone_cannot_be_compared():
    with pytest.raises(ValueError, match=r"positive \(2 of 2\) must hold both kinds to compare"):
        auc(torch.zeros(2), torch.ones(2).bool())


# ------------------------------------------------------------------------------ average precision


def scored(rows, levels, seed, share=0.3):
    """Scores with ties (of so many levels) and marks of those that are positive."""
    random = np.random.default_rng(seed)
    positive = random.random(rows) < share
    positive[0], positive[1] = True, False
    return np.round(random.normal(size=rows) + positive, levels), positive


@pytest.mark.parametrize("levels", [0, 1, 6])
@pytest.mark.parametrize("seed", range(5))
def test_average_precision_is_that_of_scikit_learn(levels, seed):
    scores, positive = scored(60, levels, seed)
    ours = average_precision(torch.from_numpy(scores), torch.from_numpy(positive))
    assert abs(ours - average_precision_score(positive, scores)) < 1e-10


def test_average_precision_by_hand():
    """Rows down the ranking: yes no yes; precisions 1 and 2/3 where one more is found."""
    positive = torch.tensor([True, True, False])
    found = average_precision(torch.tensor([0.1, 0.9, 0.5]), positive)
    assert found == pytest.approx((1 + 2 / 3) / 2)
    alike = average_precision(torch.zeros(3), positive)
    assert alike == pytest.approx(2 / 3)  # the share of positive rows


@pytest.mark.parametrize("of", [average_precision, f1_threshold])
def test_nothing_to_be_found(of):
    with pytest.raises(
        ValueError, match=r"positive \(0 of 2\) must hold a row that is to be found"
    ):
        of(torch.zeros(2), torch.zeros(2).bool())


# -------------------------------------------------------------------------------------- thresholds


def f1_at(scores, positive, threshold):
    return f1_score(positive, scores >= threshold)


@pytest.mark.parametrize("levels", [0, 1, 6])
def test_no_threshold_has_a_larger_f1(levels):
    scores, positive = scored(50, levels, 3)
    found = f1_threshold(torch.from_numpy(scores), torch.from_numpy(positive))
    best = max(f1_at(scores, positive, other) for other in scores)
    assert f1_at(scores, positive, found) == pytest.approx(best)
    as_good = [s for s in scores if f1_at(scores, positive, s) == pytest.approx(best)]
    assert found == max(as_good)


@pytest.mark.parametrize("recall", [0.1, 0.5, 0.9, 1.0])
def test_no_larger_threshold_has_the_recall(recall):
    scores, positive = scored(50, 1, 4)
    found = recall_threshold(torch.from_numpy(scores), torch.from_numpy(positive), recall)
    assert recall_score(positive, scores >= found) >= recall
    larger = min(scores[scores > found], default=np.inf)
    assert recall_score(positive, scores >= larger) < recall


def test_a_recall_that_is_met_to_the_last_bit():
    """Seven of 25 are 0.28, though 0.28 x 25 is a little more than 7 as floats."""
    assert recall_threshold(torch.arange(25.0), torch.ones(25).bool(), 0.28) == 18


# -------------------------------------------------------------------------------------- placements


def test_placements_have_the_area_as_their_mean():
    scores, positive = map(torch.from_numpy, scored(80, 0, 5))
    placed = placements(scores, positive)
    for kind in (positive, ~positive):
        assert float(placed[kind].mean()) == pytest.approx(auc(scores, positive))
    by_hand = [(scores[i] > scores[~positive]).double().mean()
               + (scores[i] == scores[~positive]).double().mean() / 2
               for i in positive.nonzero()[:, 0]]  # fmt: skip
    torch.testing.assert_close(placed[positive], torch.stack(by_hand))
