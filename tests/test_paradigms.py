"""Supervised, unsupervised and reinforcement learning go through one trainer."""

from dataclasses import replace

import pytest
import torch

from everynet.recipes.catalog import find
from everynet.recipes.state import State
from everynet.runs.job import job_class
from everynet.runs.training_job import TrainingJob
from everynet.runs.verbs import run
from everynet.training import loop
from everynet.training.graph import Update

PARADIGMS = {
    "classification": find("mlp").tiny(),
    "regression": replace(find("mlp").tiny(), data="diabetes", goal=""),
    "unsupervised": find("vae").tiny(),
    "reinforcement": find("catch").tiny(),
}


@pytest.mark.covers("D5")
@pytest.mark.parametrize("paradigm", PARADIGMS)
def test_the_same_trainer_runs_one_of_each(paradigm, tmp_path, monkeypatch):
    recipe, states = PARADIGMS[paradigm], []

    def counted(self, feed, history):
        states.append((self.state, self.state.step))
        return was(self, feed, history)

    was = Update.__call__
    monkeypatch.setattr(Update, "__call__", counted)
    result = run(recipe, tmp_path, device="cpu")
    assert job_class(recipe) is TrainingJob
    trained = states[0][0]  # `final` may train a classifier afterwards
    assert isinstance(trained, State)
    assert [step for state, step in states if state is trained] == [*range(recipe.steps)]
    before = loop.begin(recipe, recipe.dataset()).model.state_dict()
    after = trained.model.state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert result.metrics
    task = recipe.dataset().spec.get("task")
    wanted = {"classification": "classification", "regression": "regression"}
    assert task == wanted.get(paradigm, task)
