"""Tabular Q-learning, one step after another, in a compiled loop.

What the loop has come to (cell, time in the game, steps, return so far) is passed in and out, so
that random numbers can be drawn in portions. `learn_by_loop` of the zoo is the same as Python reads
it; a test holds the two equal bit by bit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from everynet.kernels.compiled import compiled

PORTION = 2**15
"""Steps whose random numbers are drawn at once."""
BINS = 100
"""Parts of the steps over which the returns of games are averaged."""


class Rules(NamedTuple):
    """A grid world as tables."""

    after: NDArray[np.int64]
    reward: NDArray[np.float64]
    end: NDArray[np.bool_]
    starts: NDArray[np.int64]
    slip: float
    limit: int


class Settings(NamedTuple):
    """What Q-learning is set to."""

    gamma: float
    power: float
    first_epsilon: float
    epsilon: float
    explore: int
    steps: int


class Table(NamedTuple):
    """What is learned: the values, how often each was updated, and returns of games."""

    q: NDArray[np.float64]
    visits: NDArray[np.int64]
    returns: NDArray[np.float64]
    """The sum of the returns of the games that ended in each part of the steps."""
    games: NDArray[np.int64]
    """How many they were."""

    @staticmethod
    def empty(cells: int) -> Table:
        """Nothing is known: every value is 0."""
        pairs = (cells, 4)
        return Table(
            np.zeros(pairs), np.zeros(pairs, np.int64), np.zeros(BINS), np.zeros(BINS, int)
        )


def learn(rules: Rules, settings: Settings, generator: torch.Generator) -> Table:
    """Play and learn for all steps."""
    table, place = Table.empty(len(rules.after)), begin(rules, generator)
    for first in range(0, settings.steps, PORTION):
        count = min(PORTION, settings.steps - first)
        chance = draw(count, generator).numpy()
        _loop(rules, settings, table, place, chance)
    return table


def draw(count: int, generator: torch.Generator) -> Tensor:
    """Four numbers from 0 to 1 for each step: explore, random action, slip, next start."""
    return torch.rand(count, 4, generator=generator, dtype=torch.float64)


def begin(rules: Rules, generator: torch.Generator) -> NDArray[np.float64]:
    """Cell, time in the game, steps so far, return so far."""
    first = rules.starts[int(draw(1, generator)[0, 3] * len(rules.starts))]
    return np.array([first, 0, 0, 0], dtype=np.float64)


@compiled()
def _loop(
    rules: Rules,
    settings: Settings,
    table: Table,
    place: NDArray[np.float64],
    chance: NDArray[np.float64],
) -> None:
    q, visits = table.q, table.visits
    cell, time, step, total = int(place[0]), int(place[1]), int(place[2]), place[3]
    for row in range(len(chance)):
        share = min(1.0, step / settings.explore)
        epsilon = settings.first_epsilon + (settings.epsilon - settings.first_epsilon) * share
        action = 0
        if chance[row, 0] < epsilon:
            action = int(chance[row, 1] * 4)
        else:
            for other in range(1, 4):
                if q[cell, other] > q[cell, action]:
                    action = other
        slip = chance[row, 2]
        side = int(slip >= rules.slip / 2) + int(slip >= 1 - rules.slip / 2) - 1
        direction = (action + side + 4) % 4
        following, reward = rules.after[cell, direction], rules.reward[cell, direction]
        end = rules.end[cell, direction]
        target = reward
        if not end:
            best = q[following, 0]
            for other in range(1, 4):
                best = max(best, q[following, other])
            target += settings.gamma * best
        visits[cell, action] += 1
        alpha = float(visits[cell, action]) ** -settings.power
        q[cell, action] = (1 - alpha) * q[cell, action] + alpha * target
        total += reward
        time += 1
        if end or time >= rules.limit:
            part = min(BINS - 1, step * BINS // settings.steps)
            table.returns[part] += total
            table.games[part] += 1
            following = rules.starts[int(chance[row, 3] * len(rules.starts))]
            time, total = 0, 0.0
        cell = following
        step += 1
    place[0], place[1], place[2], place[3] = cell, time, step, total
