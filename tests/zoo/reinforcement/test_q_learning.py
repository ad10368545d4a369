"""Tabular Q-learning: the compiled loop against Python's, exact values, and exploration."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from everynet.kernels.q_learning import Settings, learn
from everynet.system.errors import UserError
from everynet.zoo.reinforcement.bellman import PolicyIteration
from everynet.zoo.reinforcement.environments import MAPS, GridWorld
from everynet.zoo.reinforcement.q_learning import (
    RECIPES,
    LearnGrid,
    QLearning,
    anneal,
    best_action_probability,
    learn_by_loop,
    mean_returns,
    tables_of,
)


def drawn(seed):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", ["frozen-lake", "deceptive-chain", "cliff"])
def test_the_compiled_loop_is_that_of_python_bit_by_bit(name):
    rules, settings = tables_of(MAPS[name]), Settings(0.95, 0.7, 1.0, 0.1, 500, 1500)
    for ours, expected in zip(
        learn(rules, settings, drawn(1)), learn_by_loop(rules, settings, drawn(1)), strict=True
    ):
        np.testing.assert_array_equal(ours, expected)


def test_a_single_update_by_hand():
    """(1 - alpha) Q + alpha (r + gamma max Q') with alpha = 1, then 2^-p."""
    world = GridWorld(("SG",))
    settings = Settings(0.5, 1.0, 0.0, 0.0, 1, 3)
    table = learn_by_loop(tables_of(world), settings, drawn(0))
    assert table.q[0].tolist() == [0, 0, 0, 0]  # left, against the wall: r = 0
    assert table.visits[0].tolist() == [3, 0, 0, 0]
    prize = replace(world, step_reward=-1.0)  # left costs 1, down the same, right gives 0
    table = learn_by_loop(tables_of(prize), replace_settings(settings, steps=3), drawn(0))
    assert table.q[0].tolist() == [-1, -1, 0, 0]
    again = learn_by_loop(
        tables_of(prize), replace_settings(settings, steps=4, power=1.0), drawn(0)
    )
    assert again.visits[0].sum() + again.visits[1].sum() == 4


def replace_settings(settings, **fields):
    return settings._replace(**fields)


def test_what_an_ending_move_gives_is_the_reward_alone():
    world = GridWorld(("gSG",))
    model = QLearning(steps=2000, gamma=0.9, epsilon=1.0, explore=1).fit(world)
    q = model.q_[1].tolist()
    assert q == pytest.approx([0.1, 0.9, 1.0, 0.9], abs=0.05)


@pytest.mark.covers("Q4")
@pytest.mark.parametrize("epsilon", [0.1, 0.5])
def test_the_best_action_is_taken_with_its_frequency(epsilon):
    """1 - eps + eps / |A|, over 200,000 moves of a learner that has found it at once."""
    n = 200_000
    world = GridWorld(("gSG",), limit=1)
    model = QLearning(steps=n, first_epsilon=epsilon, epsilon=epsilon, explore=1).fit(world)
    share = model.visits_[1, 2].item() / n
    expected = best_action_probability(epsilon, 4)
    assert expected == pytest.approx(1 - epsilon + epsilon / 4)
    error = (expected * (1 - expected) / n) ** 0.5
    assert share == pytest.approx(expected, abs=4 * error + 200 / n)  # and the first moves
    others = model.visits_[1, [0, 1, 3]] / n
    torch.testing.assert_close(others, torch.full((3,), epsilon / 4), rtol=0, atol=0.004)


def test_randomness_falls_in_a_line_and_stays():
    assert [anneal(1.0, 0.2, t, 10) for t in (0, 5, 10, 99)] == pytest.approx([1, 0.6, 0.2, 0.2])


@pytest.mark.covers("Q4")
@pytest.mark.parametrize("seed", range(5))
def test_only_who_explores_passes_by_the_small_reward(seed):
    world = MAPS["deceptive-chain"]
    recipe = replace(RECIPES["q-learning"], steps=200_000, explore=100_000)
    ours, greedy = (recipe.learner(seed, greedy=g).fit(world) for g in (False, True))
    assert ours.q_[world.open].argmax(1).eq(2).all()
    assert greedy.q_[1].argmax() == 0
    assert greedy.returns_[-1] == pytest.approx(0.1)


@pytest.mark.covers("Q3")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_learned_values_of_the_slippery_lake_are_the_exact_ones(seed):
    world, recipe = MAPS["frozen-lake"], RECIPES["q-learning-frozen-lake"]
    model = recipe.learner(seed).fit(world)
    exact = PolicyIteration(0.95).fit(world)
    assert (model.q_ - exact.q_)[world.open].abs().max() < 0.05
    assert model.q_[~world.open].eq(0).all()
    data = recipe.dataset()
    metrics = recipe.metrics(model, data.splits["test"])
    assert metrics["success"].item() == pytest.approx(
        metrics["mean_return"].mean().item(), abs=0.06
    )
    assert metrics["success"] <= metrics["success_by_clock"]


def test_learning_falls_off_the_cliff_and_play_does_not():
    recipe = RECIPES["q-learning-cliff"]
    model = recipe.learner(0).fit(MAPS["cliff"])
    assert model.returns_[-1] < -20
    assert recipe.metrics(model, recipe.dataset().splits["test"])["mean_return"].eq(-13).all()


def test_portions_of_random_numbers_change_nothing(monkeypatch):
    rules, settings = tables_of(MAPS["frozen-lake"]), Settings(0.9, 0.7, 1.0, 0.1, 50, 300)
    whole = learn(rules, settings, drawn(0))
    monkeypatch.setattr("everynet.kernels.q_learning.PORTION", 77)
    parts = learn(rules, settings, drawn(0))
    np.testing.assert_array_equal(whole.visits, parts.visits)


def test_returns_where_no_game_ended_are_those_before():
    table = learn(tables_of(MAPS["frozen-lake"]), Settings(0.9, 0.7, 1.0, 1.0, 1, 40), drawn(0))
    found = mean_returns(table)
    assert len(found) == 100
    assert found.isfinite().all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"steps": 0}, r"steps \(0\) must be at least 1"),
        ({"explore": 0}, r"explore \(0\) must be at least 1"),
        ({"epsilon": 1.5}, r"epsilon \(1.5\) must be a number from 0 to 1"),
        ({"first_epsilon": -0.5}, r"first_epsilon \(-0.5\) must be a number from 0 to 1"),
        ({"power": 2.0}, r"power \(2.0\) must be a number from 0 to 1"),
    ],
)
def test_bad_settings(fields, message):
    with pytest.raises(UserError, match=message):
        LearnGrid(**fields)
