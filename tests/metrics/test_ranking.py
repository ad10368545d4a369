"""The area under the curve: scikit-learn's, ties and all."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from everynet.metrics.ranking import auc

rows = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=30)


@given(rows.filter(lambda rows: len({of for _, of in rows}) == 2))
def test_it_is_that_of_scikit_learn(rows):
    scores, positive = (list(column) for column in zip(*rows, strict=True))
    found = auc(torch.tensor(scores).double(), torch.tensor(positive))
    assert found == pytest.approx(roc_auc_score(positive, scores), abs=1e-12)


def test_one_kind_alone_cannot_be_compared():
    with pytest.raises(ValueError, match=r"positive \(2 of 2\) must hold both kinds to compare"):
        auc(torch.zeros(2), torch.ones(2).bool())
