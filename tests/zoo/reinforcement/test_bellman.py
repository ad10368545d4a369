"""Bellman's equations: iteration against linear systems, brute force and closed forms."""

import itertools
from dataclasses import replace

import pytest
import torch

import everynet
from everynet import runs
from everynet.system.errors import UserError
from everynet.zoo.reinforcement.bellman import (
    RECIPES,
    PlanByValues,
    PolicyIteration,
    ValueIteration,
    action_values,
    discounted_returns,
    error_bound,
    evaluate_policy,
    measure_contraction,
    value_by_clock,
    value_in_time,
)
from everynet.zoo.reinforcement.environments import MAPS, GridWorld
from everynet.zoo.reinforcement.episodes import play_greedily

SMALL = GridWorld(("S.", "HG"), slip=0.3, step_reward=-0.1)


@pytest.mark.covers("Q1")
def test_the_recursive_return_is_the_discounted_sum():
    rewards = torch.randn(7, 3, dtype=torch.float64)
    found = discounted_returns(rewards, 0.9)
    for t in range(7):
        k = torch.arange(7 - t).double()
        expected = (0.9 ** k[:, None] * rewards[t:]).sum(0)
        torch.testing.assert_close(found[t], expected)


def test_values_of_a_corridor():
    """n steps from the goal the value is gamma^(n-1), however one finds it."""
    world = GridWorld(("S....G",))
    expected = torch.tensor([0.9**n for n in (4, 3, 2, 1, 0)] + [0.0]).double()
    for found in (ValueIteration(0.9).fit(world), PolicyIteration(0.9).fit(world)):
        torch.testing.assert_close(found.values_[-1], expected)
        assert found.q_[:5].argmax(1).tolist() == [2] * 5
        assert found.q_[0, 0] == pytest.approx(0.9**5)  # against the wall, then right


def test_a_policy_is_worth_what_its_games_return():
    """The linear system against the mean discounted return of 20,000 games, four errors."""
    world, n, gamma = SMALL, 20_000, 0.9
    policy = torch.tensor([2, 1, 0, 0])
    draw = torch.Generator().manual_seed(0)
    state, going, total = world.reset(n, draw), torch.ones(n), torch.zeros(n)
    for t in range(100):
        moved = world.step(state, policy[state[:, 0]], draw)
        total += gamma**t * going * moved.reward
        going, state = going * ~moved.over, moved.state
    expected = evaluate_policy(world, policy, gamma)[0].item()
    assert total.mean().item() == pytest.approx(expected, abs=4 * total.std().item() / n**0.5)


@pytest.mark.covers("Q2")
@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("gamma", [0.5, 0.95])
def test_iteration_of_values_and_policies_and_linear_system_agree(name, gamma):
    world = MAPS[name]
    by_values, by_policies = ValueIteration(gamma).fit(world), PolicyIteration(gamma).fit(world)
    v = by_policies.values_[-1]
    torch.testing.assert_close(by_values.values_[-1], v, rtol=0, atol=1e-8)
    solved = evaluate_policy(world, by_values.q_.argmax(1), gamma)
    torch.testing.assert_close(solved, v, rtol=0, atol=1e-8)
    torch.testing.assert_close(action_values(world, v, gamma).amax(1), v)  # T V* = V*


def test_no_policy_is_better():
    """All 4^2 policies of a small map, valued by their linear systems."""
    best = PolicyIteration(0.9).fit(SMALL).values_[-1]
    every = [
        evaluate_policy(SMALL, torch.tensor([*actions, 0, 0]), 0.9)
        for actions in itertools.product(range(4), repeat=2)
    ]
    torch.testing.assert_close(torch.stack(every).amax(0), best)


@pytest.mark.covers("Q2")
@pytest.mark.parametrize("gamma", [0.3, 0.9, 0.99])
def test_a_sweep_brings_any_two_values_nearer_by_gamma(gamma):
    world, draw = MAPS["frozen-lake"], torch.Generator().manual_seed(0)
    for _ in range(50):
        u, v = torch.randn(2, 16, dtype=torch.float64, generator=draw) * 10
        after = [action_values(world, x, gamma).amax(1) for x in (u, v)]
        assert (after[0] - after[1]).abs().max() <= gamma * (u - v).abs().max() + 1e-12


def test_the_error_stays_below_its_bound():
    model = ValueIteration(0.9).fit(MAPS["frozen-lake"])
    best = PolicyIteration(0.9).fit(MAPS["frozen-lake"]).values_[-1]
    error = (model.values_ - best).abs().amax(1)
    bound = error_bound(float(error[0]), 0.9, torch.arange(len(error)).double())
    assert (error <= bound + 1e-12).all()
    factors = measure_contraction(model.values_, best)
    torch.testing.assert_close(factors, (error[1:] / error[:-1])[: len(factors)])
    assert factors.max() <= 0.9 + 1e-9


def test_the_lake_in_100_steps():
    """The figures that are known of it: by the clock, and by the best policy of gamma 0.99."""
    world = MAPS["frozen-lake"]
    assert value_by_clock(world, 100)[0].item() == pytest.approx(0.744, abs=5e-4)
    policy = PolicyIteration(0.99).fit(world).q_.argmax(1)
    found = value_in_time(world, policy, 100)[0].item()
    assert found == pytest.approx(0.740, abs=5e-4)
    draw, n = torch.Generator().manual_seed(0), 20_000
    q = torch.nn.functional.one_hot(policy, 4).double()
    played = play_greedily(world, lambda state: q[state[:, 0]], world.reset(n, draw), draw)
    assert played.returns.mean().item() == pytest.approx(found, abs=4 * (0.25 / n) ** 0.5)


def test_values_by_the_clock_are_those_of_all_plans():
    """Two steps of a small map by going through all that can follow."""

    def tree(cell, steps):
        if steps == 0 or not SMALL.open[cell]:
            return 0.0
        p, r = SMALL.transitions[cell], SMALL.rewards[cell]
        later = torch.tensor([tree(c, steps - 1) for c in range(4)]).double()
        return (r + p @ later).max().item()

    assert value_by_clock(SMALL, 3).tolist() == pytest.approx([tree(c, 3) for c in range(4)])


# ------------------------------------------------------------------------------- as a user does it


def test_a_map_of_ones_own_is_planned_drawn_and_filmed(tmp_path):
    """From a text file that is gone when the film is made."""
    path = tmp_path / "office.txt"
    path.write_text("S.#G\n...." + "\n", encoding="utf-8")
    recipe = replace(RECIPES["value-iteration"], map=str(path), slip=0.1)
    result = runs.run(recipe, tmp_path / "runs", device="cpu")
    assert result.metrics["solve_error"] < 1e-8
    assert result.metrics["mean_return"] == 1
    path.unlink()
    run = everynet.trained(str(result.folder))
    assert len(run.sample(episodes=1).frames) > 5
    with pytest.raises(UserError, match=r"episodes \(0\) must be between 1 and 60"):
        run.sample(episodes=0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"gamma": 1.0}, r"gamma \(1.0\) must be at least 0 and below 1, so that values end"),
        ({"slip": 2.0, "map": "x"}, r"slip \(2.0\) must be a number from 0 to 1"),
        ({"slip": 0.5}, r"slip \(0.5\) must be left out: grid-world has its own"),
    ],
)
def test_bad_settings(fields, message):
    with pytest.raises(UserError, match=message):
        PlanByValues(**fields)


@pytest.mark.parametrize("name", RECIPES)
def test_goal(name, tmp_path):
    assert runs.run(RECIPES[name], tmp_path, device="cpu").reached
