"""Environments: equal to Gymnasium's step by step, closed forms of their physics, and maps."""

import math
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from everynet.kernels.cart_pole import REACH, step_carts
from everynet.system.errors import UserError
from everynet.zoo.reinforcement.environments import (
    MAPS,
    CartPole,
    GridWorld,
    MountainCar,
    MountainCarAnywhere,
    find_map,
)


def drawn(seed):
    return torch.Generator().manual_seed(seed)


# -------------------------------------------------------------------------------------- Gymnasium


def oracle(name, **settings):
    return gymnasium.make(name, disable_env_checker=True, **settings)


@pytest.mark.parametrize("by_tensors", [False, True])
def test_carts_move_as_those_of_gymnasium(by_tensors, monkeypatch):
    """Whole games of random pushes, in float64: states, rewards, ends and cut-offs."""
    game, theirs, draw = CartPole(), oracle("CartPole-v1"), np.random.default_rng(0)
    if by_tensors:
        monkeypatch.setattr("everynet.kernels.cart_pole.step_carts", game.by_tensors)
    for seed in range(8):
        theirs.reset(seed=seed)
        state = torch.tensor([[*theirs.unwrapped.state, 0]], dtype=torch.float64)
        over = False
        while not over:
            action = int(draw.integers(2))
            _, reward, end, cut, _ = theirs.step(action)
            moved = game.step(state, torch.tensor([action]))
            state = moved.state
            np.testing.assert_allclose(state[0, :4], theirs.unwrapped.state, rtol=1e-12, atol=1e-12)
            assert (moved.reward.item(), moved.end.item()) == (reward, end)
            over = end or cut
            assert moved.over.item() == over


def test_a_cart_that_stands_is_cut_off_as_gymnasium_does_it():
    """By a rule that balances: over at 500, but not at its end.

    Each step begins at theirs, because a rounding error grows e^4-fold a second.
    """
    game, theirs = CartPole(), oracle("CartPole-v1")
    theirs.reset(seed=3)
    state = torch.tensor([[*theirs.unwrapped.state, 0]], dtype=torch.float64)
    for step in range(500):
        x, v, theta, w, _ = state[0].tolist()
        action = int(theta + 0.3 * w + 0.05 * x + 0.1 * v > 0)
        _, _, end, cut, _ = theirs.step(action)
        moved = game.step(state, torch.tensor([action]))
        assert (moved.end.item(), moved.over.item()) == (end, end or cut) == (False, step == 499)
        np.testing.assert_allclose(moved.state[0, :4], theirs.unwrapped.state, rtol=1e-12)
        state = torch.tensor([[*theirs.unwrapped.state, step + 1]], dtype=torch.float64)


@pytest.mark.parametrize("policy", ["random", "swing"])
def test_cars_drive_as_those_of_gymnasium(policy):
    """To the wall on the left, to the top on the right, and to the cut-off."""
    game, theirs, draw = MountainCar(), oracle("MountainCar-v0"), np.random.default_rng(0)
    ends = []
    for seed in range(5):
        theirs.reset(seed=seed)
        state = torch.tensor([[*theirs.unwrapped.state, 0]], dtype=torch.float64)
        over = False
        while not over:
            swing = 0 if state[0, 1] < 0 else 2
            action = int(draw.integers(3)) if policy == "random" else swing
            _, reward, end, cut, _ = theirs.step(action)
            moved = game.step(state, torch.tensor([action]))
            state = moved.state
            np.testing.assert_allclose(state[0, :2], theirs.unwrapped.state, rtol=1e-9, atol=1e-12)
            assert (moved.reward.item(), moved.end.item()) == (reward, end)
            over = end or cut
            assert moved.over.item() == over
        ends.append(end)
    assert all(ends) == (policy == "swing")


def test_a_wall_stops_the_car():
    moved = MountainCar().step(torch.tensor([[-1.19, -0.06, 0]]), torch.tensor([0]))
    assert moved.state.tolist() == [[pytest.approx(-1.2), 0, 1]]
    assert moved.state[0, 1] == 0


LIKE = {
    "frozen-lake": ("FrozenLake-v1", {}, [0, 1, 2, 3]),
    "frozen-lake-firm": ("FrozenLake-v1", {"is_slippery": False}, [0, 1, 2, 3]),
    "cliff": ("CliffWalking-v1", {}, [3, 2, 1, 0]),
}
"""Gymnasium's name, its settings, and our number for each of its actions."""


@pytest.mark.parametrize("name", LIKE)
def test_grids_have_the_transitions_of_gymnasium(name):
    """P and r, and each single outcome, of every state and action."""
    theirs_name, settings, ours = LIKE[name]
    world, theirs = MAPS[name], oracle(theirs_name, **settings).unwrapped
    for cell in world.open.nonzero()[:, 0].tolist():
        for their_action, action in enumerate(ours):
            p, reward = torch.zeros(len(world.cells)).double(), 0.0
            for chance, following, prize, end in theirs.P[cell][their_action]:
                p[following] += 0.0 if end else chance
                reward += chance * prize
            if name == "cliff" and cell in range(37, 47):
                continue  # theirs has moves inside of the cliff, where nobody ever is
            torch.testing.assert_close(world.transitions[cell, action], p)
            assert world.rewards[cell, action].item() == pytest.approx(reward)


@pytest.mark.parametrize("name", LIKE)
def test_grids_are_played_as_in_gymnasium(name):
    """Step by step, luck included: both are given the same numbers from 0 to 1."""
    theirs_name, settings, ours = LIKE[name]
    world, theirs, draw = MAPS[name], oracle(theirs_name, **settings), np.random.default_rng(0)
    if name == "cliff":  # has no cut-off there
        theirs = gymnasium.wrappers.TimeLimit(theirs, world.limit)
    for seed in range(30):
        cell, _ = theirs.reset(seed=seed)
        luck = np.random.default_rng()
        luck.bit_generator.state = theirs.unwrapped.np_random.bit_generator.state
        state, over = torch.tensor([[cell, 0]]), False
        assert cell in world.starts
        while not over:
            action = int(draw.integers(4))
            following, reward, end, cut, _ = theirs.step(action)
            chance = torch.tensor([luck.random()], dtype=torch.float64)
            moved = world.move(state, torch.tensor([ours[action]]), chance)
            state, over = moved.state, end or cut
            assert state[0, 0].item() == following
            assert (moved.reward.item(), moved.end.item()) == (reward, end)
            assert moved.over.item() == over


# ---------------------------------------------------------------------------------- closed forms


def test_the_compiled_cart_is_that_of_whole_tensors():
    """Far beyond what a game allows, and in both precisions."""
    for dtype, close in ((torch.float64, 1e-13), (torch.float32, 1e-5)):
        state = (torch.rand(5, 1000, generator=drawn(0), dtype=dtype) * 2 - 1).T
        state[:, 2] *= REACH
        action = torch.randint(2, (1000,), generator=drawn(1))
        expected = CartPole().by_tensors(state, action)
        torch.testing.assert_close(step_carts(state, action), expected, rtol=close, atol=close)
        torch.testing.assert_close(step_carts(state.contiguous(), action), expected, rtol=close,
                                   atol=close)  # fmt: skip


def test_energy_of_a_car_that_rolls_is_kept():
    """v^2 / 2 + 0.0025 sin(3x) / 3 is constant but for the step size."""
    game, state = MountainCar(), torch.tensor([[-0.9, 0.0, 0.0]], dtype=torch.float64)
    energy = []
    for _ in range(150):
        state = game.step(state, torch.tensor([1])).state
        x, v, _ = state[0].tolist()
        energy.append(v * v / 2 + 0.0025 * math.sin(3 * x) / 3)
    assert max(energy) - min(energy) < 0.05 * 0.0025


def test_a_pole_that_stands_is_in_balance():
    """Upright and at rest only the push moves it: alpha = -F / M / (l (4/3 - m/M))."""
    state = torch.zeros(1, 5, dtype=torch.float64)
    after = CartPole().step(state, torch.tensor([1])).state[0]
    turn = -10 / 1.1 / (0.5 * (4 / 3 - 0.1 / 1.1))
    shift = 10 / 1.1 - 0.05 * turn / 1.1
    expected = [0, 0.02 * shift, 0, 0.02 * turn, 1]
    assert after.tolist() == pytest.approx(expected)


@given(slip=st.floats(0, 1))
def test_probabilities_sum_to_one_and_nobody_goes_backwards(slip):
    world = GridWorld(("S..", ".#.", "..G"), slip=slip)
    assert torch.allclose(world.turns.sum(1), torch.ones(4).double())
    assert world.turns[0].tolist() == pytest.approx([1 - slip, slip / 2, 0, slip / 2])
    open_cells = world.transitions[world.open].sum(2)
    ends = open_cells < 1 - 1e-9
    assert ends.nonzero()[:, 0].unique().tolist() == [4, 6]


def test_slipping_has_the_frequencies_of_the_table():
    """Where 30,000 games go from one cell, within four standard errors."""
    world, n = MAPS["frozen-lake"], 30_000
    state, action = torch.tensor([[14, 0]]).expand(n, 2), torch.full((n,), 2)
    moved = world.step(state, action, drawn(0))
    found = moved.state[:, 0].bincount(minlength=16) / n
    expected = world.transitions[14, 2].float()
    expected[15] = 1 / 3  # the goal, where the game ends
    torch.testing.assert_close(found, expected, rtol=0, atol=4 * (0.25 / n) ** 0.5)
    assert torch.equal(moved.reward, (moved.state[:, 0] == 15).double())


def test_practice_in_the_valley_begins_anywhere_and_has_its_rules():
    """Places and speeds are uniform: means within four standard errors of those of the ranges."""
    game = MountainCarAnywhere()
    x, v, time = game.reset(4000, drawn(0)).unbind(1)
    for values, low, high in ((x, -1.2, 0.5), (v, -0.07, 0.07)):
        assert values.min() >= low
        assert values.max() <= high
        spread = (high - low) / 12**0.5
        assert abs(values.mean() - (low + high) / 2) <= 4 * spread / 4000**0.5
        assert abs(values.std() / spread - 1) <= 0.05
    assert not time.any()
    state, action = game.reset(9, drawn(1)), torch.arange(9) % 3
    assert torch.equal(game.step(state, action).state, MountainCar().step(state, action).state)


@pytest.mark.parametrize("game", [CartPole(), MountainCar(), MAPS["frozen-lake"]])
def test_games_that_are_over_begin_anew_and_others_go_on(game):
    state = game.reset(64, drawn(0))
    for step in range(60):
        action = torch.randint(len(game.actions), (64,), generator=drawn(step))
        moved, following = game.advance(state, action, drawn(step))
        assert torch.equal(following[~moved.over], moved.state[~moved.over])
        assert (following[moved.over][:, -1] == 0).all()
        assert len(game.observe(following)) == 64
        state = following
    assert (state[:, -1] < 60).any() or isinstance(game, MountainCar)


def test_thousands_at_once_are_those_one_by_one():
    game = CartPole()
    state, action = game.reset(300, drawn(0)), torch.randint(2, (300,), generator=drawn(1))
    whole = game.step(state, action).state
    for row in (0, 7, 299):
        one = game.step(state[row : row + 1], action[row : row + 1]).state
        torch.testing.assert_close(one[0], whole[row])


# ------------------------------------------------------------------------------------------ maps


def test_a_map_of_ones_own(tmp_path):
    path = tmp_path / "my.txt"
    path.write_text("S.g\n\n##G\n", encoding="utf-8")
    world = find_map(str(path))
    assert world == GridWorld(("S.g", "##G"))
    assert world.rewards[1].tolist() == [0, 0, pytest.approx(0.1), 0]
    assert replace(world, goal_reward=5).rewards[1, 2] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("...\n..G", r"must have a start; write S in at least one cell"),
        ("S..\n...", r"must have a goal; write G in at least one cell"),
        ("", r"must have a start"),
        ("S.G\n.x.", r"has x in row 2, column 2, which is no cell; a map has S start, \. floor"),
        ("S.G\n..", r"has 2 cells in row 2 and 3 in row 1; a map is a rectangle"),
        ("SG" + "." * 1023, r"must have at most 1,024 cells"),
        ("." * 20_000, r"must have at most 1,024 cells"),
    ],
)
def test_bad_maps(tmp_path, text, message):
    path = tmp_path / "my.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        find_map(str(path))


def test_a_map_that_is_not_there():
    with pytest.raises(
        UserError, match=r"map \(lake\) must be a text file .* or one of grid-world"
    ):
        find_map("lake")
