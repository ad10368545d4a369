"""Figures of predicted numbers, equal to scikit-learn's."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from everynet.metrics import mae, r2, rmse


@given(seed=st.integers(0, 10_000), samples=st.integers(2, 40), alike=st.booleans())
@settings(max_examples=25, deadline=None)
def test_equal_to_scikit_learn(seed, samples, alike):
    random = torch.Generator().manual_seed(seed)
    t = torch.randn(samples, generator=random, dtype=torch.float64)
    t = t * 0 + 3 if alike else t
    p = t + torch.randn(samples, generator=random, dtype=torch.float64)
    assert r2(p, t) == pytest.approx(sk.r2_score(t.numpy(), p.numpy()))
    assert rmse(p, t) == pytest.approx(sk.root_mean_squared_error(t.numpy(), p.numpy()))
    assert mae(p, t) == pytest.approx(sk.mean_absolute_error(t.numpy(), p.numpy()))


def test_the_mean_explains_nothing_and_the_truth_all():
    t = torch.tensor([1.0, 2.0, 6.0])
    assert r2(torch.full((3,), 3.0), t) == pytest.approx(0)
    assert r2(t, t) == 1
    assert r2(torch.ones(3), torch.ones(3)) == 1
