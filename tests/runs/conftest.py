"""Runs of these tests draw no learning curve: it took half of their time, and others look at it."""

import pytest
from matplotlib.figure import Figure

from everynet.runs import training_job
from everynet.runs.job import Job


@pytest.fixture(scope="package", autouse=True)
def quick_curves():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_job, "learning_curve", lambda *_: Figure(figsize=(1, 1)))
        yield


@pytest.fixture(scope="module")
def no_pictures():
    """Runs without pictures, which take longer than the rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "draw", lambda self, model: ())
        yield
