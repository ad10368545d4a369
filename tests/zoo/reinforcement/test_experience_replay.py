"""Experience replay: what is drawn from the buffer, how old it is, and the experiment's figures."""

import pytest
import torch

from everynet import runs
from everynet.recipes.catalog import find
from everynet.recipes.experiment import Table
from everynet.recipes.settings import override
from everynet.system.errors import UserError
from everynet.zoo.reinforcement.dqn import ReplayBuffer
from everynet.zoo.reinforcement.experience_replay import mean_age, sampling_probabilities
from tests.zoo.cells import cell

CAPACITY, STEPS, DRAWS = 8, 21, 40_000


def drawn_ages():
    """How many steps ago the transitions of a large minibatch were added, one a step."""
    buffer = ReplayBuffer(CAPACITY, 1)
    for step in range(STEPS):
        zero = torch.zeros(1)
        state = torch.full((1, 1), float(step))
        buffer.add(torch.tensor(step), state, zero.long(), zero, state, zero)
    torch.manual_seed(0)
    state, *_ = buffer.sample(DRAWS, torch.tensor(STEPS))
    return STEPS - 1 - state[:, 0].double()


@pytest.mark.covers("Q6")
def test_minibatches_are_uniform_over_the_last_transitions():
    ages = torch.arange(CAPACITY + 3).double()
    found = torch.stack([(drawn_ages() == age).double().mean() for age in ages])
    expected = sampling_probabilities(ages, CAPACITY)
    assert expected.sum().item() == pytest.approx(1)
    error = 4 * (expected * (1 - expected) / DRAWS).sqrt()
    assert ((found - expected).abs() <= error).all()


def test_the_mean_age_is_half_the_buffer():
    spread = (CAPACITY**2 - 1) ** 0.5 / 12**0.5
    assert abs(drawn_ages().mean().item() - mean_age(CAPACITY)) < 4 * spread / DRAWS**0.5
    assert mean_age(1) == 0


def test_the_margin_is_of_the_worst_with_and_the_best_without():
    recipe = override(find("experience-replay"), {"seeds": (0, 1)})
    ends = {"with-0": 0.9, "with-1": 0.8, "without-0": -0.5, "without-1": 0.1}
    cells = {n: cell(valid={"mean_return": [7.0] + 5 * [end]}) for n, end in ends.items()}
    found = recipe.metrics(Table(cells, {}))
    assert found == pytest.approx({"with_replay": 0.8, "without_replay": 0.1, "margin": 0.7})


def test_settings_are_refused_in_one_line():
    with pytest.raises(UserError, match=r"seeds \(.*\) must be different numbers"):
        override(find("experience-replay"), {"seeds": (1, 1)})
    with pytest.raises(UserError, match=r"steps \(0\) must be at least 1"):
        override(find("experience-replay"), {"steps": 0})


@pytest.mark.slow
@pytest.mark.covers("Q6")
def test_without_replay_returns_are_lower(tmp_path):
    assert runs.run(find("experience-replay"), tmp_path, device="cpu").reached
