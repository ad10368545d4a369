"""Networks as estimators of scikit-learn: its own checks, and what `fit` does of a run."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import everynet

SMALL = {"hidden": (16,), "steps": 150, "batch_size": 8, "lr": 0.02, "passes": 0}
STORES_ANYTHING = {}


@parametrize_with_checks(
    [
        everynet.estimator("mlp", **SMALL, precision="fp64"),
        everynet.estimator("mlp", task="regression", **SMALL, precision="fp64"),
    ],
    expected_failed_checks=lambda _: STORES_ANYTHING,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
