"""Q-learning with a table: the best values of a game that is not known, from playing it.

    a = argmax_a Q(s, a), but random with probability eps                 (1)  epsilon-greedy
    eps = eps_0 + (eps_1 - eps_0) min(1, t / T)                           (2)  annealed
    Q(s, a) <- (1 - alpha) Q(s, a) + alpha (r + gamma max_a' Q(s', a'))   (3)  r alone at the end
    alpha = n(s, a)^-p,  1/2 < p <= 1                                     (4)  learning rate
    P(argmax) = 1 - eps + eps / |A|                                       (5)  how often it is best

r is the reward and s' the state that followed action a in state s; n(s, a) counts the updates of
that entry. The values of (s, a) itself stand on the right of (3), those of no state before it. With
(4) and every action tried again and again Q tends to the best values Q*, whatever is played: no
model of the game is needed. Exploration is what makes that so. Who only ever takes the best action
known keeps to the first small reward (the deceptive chain), and credit for a late reward reaches
the moves before it one step back each time they are played.

Watkins and Dayan (1992), "Q-learning", doi:10.1007/BF00992698; the rate is that of Even-Dar and
Mansour (2003), "Learning rates for Q-learning", JMLR 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from everynet import plot
from everynet.data.dataset import Batch, Data, History
from everynet.kernels.q_learning import BINS, Rules, Settings, Table, begin, draw, learn
from everynet.nn.estimator import Learned, check_learned
from everynet.system.seeds import generator as seeded
from everynet.zoo.reinforcement.bellman import (
    PolicyIteration,
    evaluate_policy,
    value_by_clock,
    value_in_time,
)
from everynet.zoo.reinforcement.environments import GridWorld
from everynet.zoo.reinforcement.grid_recipe import GridRecipe
from everynet.zoo.reinforcement.pictures.grids import value_grids


class QLearning:
    """Plays a grid world for `steps` moves and learns the value of each action in each cell."""

    q_: Float[Tensor, "cells 4"]
    visits_: Int[Tensor, "cells 4"]
    """How often each value was updated."""
    returns_: Float[Tensor, " parts"]
    """The mean return of the games that ended in each hundredth of the steps."""

    def __init__(
        self,
        *,
        steps: int = 1_000_000,
        gamma: float = 0.95,
        first_epsilon: float = 1.0,
        epsilon: float = 0.1,
        explore: int = 100_000,
        power: float = 0.7,
        random_state: int = 0,
    ) -> None:
        self.steps = steps
        self.gamma = gamma
        self.first_epsilon = first_epsilon
        self.epsilon = epsilon
        self.explore = explore
        self.power = power
        self.random_state = random_state

    def fit(self, world: GridWorld) -> Self:
        table = learn(tables_of(world), self.settings(), seeded(self.random_state))
        self.q_, self.visits_ = torch.from_numpy(table.q), torch.from_numpy(table.visits)
        self.returns_ = mean_returns(table)
        return self

    def settings(self) -> Settings:
        return Settings(
            self.gamma, self.power, self.first_epsilon, self.epsilon, self.explore, self.steps
        )

    def check_learned(self) -> None:
        """Refuse values that `fit` does not give, such as a run folder may hold."""
        check_learned(
            vars(self),
            {
                "q_": Learned("float64", "cells 4"),
                "visits_": Learned("int64", "cells 4", low=0),
                "returns_": Learned("float64", "parts"),
            },
        )


def learn_by_loop(rules: Rules, settings: Settings, generator: torch.Generator) -> Table:
    """The compiled loop as it is written, for reading and for tests."""
    table = Table.empty(len(rules.after))
    cell, time, total = int(begin(rules, generator)[0]), 0, 0.0
    for step, chance in enumerate(draw(settings.steps, generator).tolist()):
        epsilon = anneal(settings.first_epsilon, settings.epsilon, step, settings.explore)
        best = int(table.q[cell].argmax())
        action = int(chance[1] * 4) if chance[0] < epsilon else best  # (1)
        side = (chance[2] >= rules.slip / 2) + (chance[2] >= 1 - rules.slip / 2) - 1
        direction = (action + side) % 4
        following, reward = int(rules.after[cell, direction]), float(rules.reward[cell, direction])
        end = bool(rules.end[cell, direction])
        later = 0.0 if end else settings.gamma * float(table.q[following].max())
        table.visits[cell, action] += 1
        alpha = float(table.visits[cell, action]) ** -settings.power  # (4)
        table.q[cell, action] = (1 - alpha) * table.q[cell, action] + alpha * (
            reward + later
        )  # (3)
        total, time = total + reward, time + 1
        if end or time >= rules.limit:
            part = min(BINS - 1, step * BINS // settings.steps)
            table.returns[part] += total
            table.games[part] += 1
            following = int(rules.starts[int(chance[3] * len(rules.starts))])
            total, time = 0.0, 0
        cell = following
    return table


def anneal(first: float, last: float, step: int, steps: int) -> float:
    """The share of random actions at a step."""
    return first + (last - first) * min(1.0, step / steps)  # (2)


def best_action_probability(epsilon: float, actions: int) -> float:
    """How often the best action is taken: a random one is the best at times."""
    return 1 - epsilon + epsilon / actions  # (5)


def tables_of(world: GridWorld) -> Rules:
    """The rules of a grid world as arrays."""
    after, reward, end = (table.numpy() for table in world.tables)
    return Rules(after, reward, end, world.starts.numpy(), float(world.slip), world.limit)


def mean_returns(table: Table) -> Float[Tensor, " parts"]:
    """The mean return in each part of the steps; in one where no game ended, that before it."""
    found, last = [], 0.0
    for total, games in zip(table.returns.tolist(), table.games.tolist(), strict=True):
        last = total / games if games else last
        found.append(last)
    return torch.tensor(found, dtype=torch.float64)


# -------- the network ends here; training and pictures follow --------

SEEDS = 8
"""Learners beside each other in a picture."""


@dataclass(frozen=True, kw_only=True)
class LearnGrid(GridRecipe[QLearning]):
    """Learn to play a map that is not known, by a table of values."""

    meanings: ClassVar[Mapping[str, str]] = {
        **GridRecipe.meanings,
        "sup_error": "the largest error of a learned value, over all cells and actions",
        "value_error": "how much less than the best the start is worth under the learned policy",
    }

    steps: int = 2_000_000
    """Moves that are played and learned from."""
    first_epsilon: float = 1.0
    """Share of random actions at the beginning."""
    epsilon: float = 0.1
    """Share of random actions in the end."""
    explore: int = 200_000
    """Steps over which the share falls."""
    power: float = 0.7
    """How fast the learning rate falls: it is the number of updates to minus this."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps", "explore")
        self.within(0, 1, "first_epsilon", "epsilon", "power")

    def model(self, data: Data) -> QLearning:
        return self.learner(self.seed)

    def learner(self, seed: int, *, greedy: bool = False) -> QLearning:
        """One with these settings; a greedy one never explores."""
        first, last = (0.0, 0.0) if greedy else (self.first_epsilon, self.epsilon)
        return QLearning(
            steps=self.steps, gamma=self.gamma, first_epsilon=first, epsilon=last,
            explore=self.explore, power=self.power, random_state=seed,
        )  # fmt: skip

    def metrics(self, model: QLearning, batch: Batch) -> dict[str, Tensor]:
        world = self.world
        exact = PolicyIteration(self.gamma).fit(world)
        policy = model.q_.argmax(1)
        lost = exact.values_[-1] - evaluate_policy(world, policy, self.gamma)
        return {
            **super().metrics(model, batch),
            "sup_error": (model.q_ - exact.q_)[world.open].abs().max(),
            "value_error": lost[world.starts].mean(),
        }

    def picture_values(
        self, model: QLearning, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Learned (left) and exact (right) value of each cell, with the best action as an arrow.

        The largest error of a value of an action is {error:.3f}.
        """
        world = self.world_of(data.spec)
        exact = PolicyIteration(self.gamma).fit(world)
        maps = {"learned": model.q_.amax(1), "exact": exact.q_.amax(1)}
        drawn = value_grids(world, maps, [model.q_.argmax(1), exact.q_.argmax(1)])
        return drawn, {"error": float((model.q_ - exact.q_)[world.open].abs().max())}

    def picture_returns(
        self, model: QLearning, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """The return of games while learning, mean and range over 8 seeds, for two learners.

        One explores, the other always takes the best action known: in the end they get {ours:.2f}
        and {greedy:.2f}.
        """
        world = self.world_of(data.spec)
        t = (torch.arange(BINS, dtype=torch.float64) + 0.5) / BINS * self.steps
        found = {
            name: torch.stack(
                [self.learner(seed, greedy=greedy).fit(world).returns_ for seed in range(SEEDS)]
            )
            for name, greedy in (("epsilon-greedy", False), ("greedy only", True))
        }
        drawn = plot.panels(
            plot.Panel(
                {name: (t, returns.mean(0)) for name, returns in found.items()},
                bands={name: (r.amin(0), r.amax(0)) for name, r in found.items()},
                xlabel="step",
                ylabel="return of a game",
                legend="below",
            )
        )
        ours, greedy = (float(returns[:, -1].mean()) for returns in found.values())
        return drawn, {"ours": ours, "greedy": greedy}


@dataclass(frozen=True, kw_only=True)
class LearnChain(LearnGrid):
    """Pass by a small reward at hand to a large one far away, as no greedy learner does."""

    meanings: ClassVar[Mapping[str, str]] = {
        **LearnGrid.meanings,
        "greedy_return": "the return of a learner that took the best action known, always",
    }

    map: str = "deceptive-chain"

    def metrics(self, model: QLearning, batch: Batch) -> dict[str, Tensor]:
        greedy = self.learner(self.seed, greedy=True).fit(self.world)
        return {
            **super().metrics(model, batch),
            "greedy_return": super().metrics(greedy, batch)["mean_return"],
        }


@dataclass(frozen=True, kw_only=True)
class LearnLake(LearnGrid):
    """Cross slippery ice to the goal without a fall into a hole."""

    meanings: ClassVar[Mapping[str, str]] = {
        **LearnGrid.meanings,
        "success": "the exact probability that the learned policy is at the goal in 100 steps",
        "success_by_clock": "that of the best policy that may look at the clock",
        "success_discounted": "that of the policy that is best with gamma 0.99",
    }

    map: str = "frozen-lake"

    def metrics(self, model: QLearning, batch: Batch) -> dict[str, Tensor]:
        world = self.world
        discounted = PolicyIteration(0.99).fit(world).q_.argmax(1)
        success = {
            "success": value_in_time(world, model.q_.argmax(1), world.limit),
            "success_by_clock": value_by_clock(world, world.limit),
            "success_discounted": value_in_time(world, discounted, world.limit),
        }
        from_start = {name: v[world.starts].mean() for name, v in success.items()}
        return {**super().metrics(model, batch), **from_start}


RECIPES = {
    "q-learning": LearnChain(
        goal="mean_return >= 0.99 and greedy_return <= 0.11 and sup_error <= 0.05",
        covers=("Q3", "Q4"),
    ),
    "q-learning-frozen-lake": LearnLake(
        goal="sup_error <= 0.05 and success >= 0.72", covers=("Q3",)
    ),
    "q-learning-cliff": LearnGrid(
        map="cliff", goal="mean_return >= -13 and value_error <= 1e-6", covers=("Q3", "Q4")
    ),
}
