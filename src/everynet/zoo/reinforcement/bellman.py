"""Bellman's equations: the value of every state of a known game, by iteration and exactly.

    G_t = r_t + gamma G_{t+1} = sum_k gamma^k r_{t+k}              (1)  return: rewards to come
    V   = (I - gamma P_pi)^-1 r_pi                                 (2)  value of a policy pi
    Q(s, a) = r(s, a) + gamma sum_s' P(s' | s, a) V(s')            (3)  value of an action
    V  <-  T V = max_a Q(s, a)                                     (4)  value iteration
    pi <-  argmax_a Q(s, a), V that of pi                          (5)  policy iteration
    sup |T U - T V| <= gamma sup |U - V|                           (6)  T is a contraction
    sup |V_k - V*| <= gamma^k sup |V_0 - V*|                       (7)  and so the error falls
    V_t(s) = max_a [r(s, a) + sum_s' P(s' | s, a) V_{t+1}(s')]     (8)  by the clock, V_T = 0

(S, A, P, r, gamma) is a Markov decision process: P(s' | s, a) is the probability that action a
leads from state s to s', r(s, a) the expected reward, gamma the discount of a reward that is a step
later. P_pi and r_pi are those of the actions that policy pi takes, so that V = r_pi + gamma P_pi V
is a linear system. The best values V* are the only ones with T V* = V*. Policy iteration ends when
no action changes, after a few linear systems; value iteration comes nearer by gamma each sweep. A
return holds the rewards to come and none that came before.

Bellman (1957), "Dynamic programming", chapter 3; Howard (1960), "Dynamic programming and Markov
processes"; Sutton and Barto (2018), "Reinforcement learning: an introduction", chapters 3 and 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self, TypeVar

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from everynet import plot
from everynet.data.dataset import Batch, Data, History
from everynet.nn.estimator import Learned, check_learned
from everynet.zoo.reinforcement.environments import GridWorld
from everynet.zoo.reinforcement.grid_recipe import GridRecipe
from everynet.zoo.reinforcement.pictures.grids import value_grids

Q = Float[Tensor, "states actions"]


class ValueIteration:
    """Sweeps over all states until no value changes by more than `tolerance`."""

    values_: Float[Tensor, "sweeps states"]
    """V before the first sweep, which is 0, and after each."""
    q_: Q

    def __init__(self, gamma: float = 0.95, tolerance: float = 1e-10) -> None:
        self.gamma = gamma
        self.tolerance = tolerance

    def fit(self, world: GridWorld) -> Self:
        v = torch.zeros(len(world.cells), dtype=torch.float64)
        values, change = [v], float("inf")
        while change > self.tolerance:
            v = action_values(world, values[-1], self.gamma).amax(1)  # (4)
            change = float((v - values[-1]).abs().max())
            values.append(v)
        self.values_ = torch.stack(values)
        self.q_ = action_values(world, v, self.gamma)
        return self

    def check_learned(self) -> None:
        """Refuse values that `fit` does not give, such as a run folder may hold."""
        check_learned(
            vars(self),
            {"values_": Learned("float64", "sweeps states"), "q_": Learned("float64", "states 4")},
        )


class PolicyIteration(ValueIteration):
    """Values the policy exactly, then takes the best action everywhere, until none changes."""

    policy_: Int[Tensor, " states"]

    def fit(self, world: GridWorld) -> Self:
        states = torch.arange(len(world.cells))
        self.policy_ = torch.zeros_like(states)
        values = [evaluate_policy(world, self.policy_, self.gamma)]
        while True:
            self.q_ = action_values(world, values[-1], self.gamma)
            taken = self.q_[states, self.policy_]
            better = self.q_.amax(1) > taken + self.tolerance  # a tie keeps its action
            if not better.any():
                break
            self.policy_ = torch.where(better, self.q_.argmax(1), self.policy_)  # (5)
            values.append(evaluate_policy(world, self.policy_, self.gamma))
        self.values_ = torch.stack(values)
        return self

    def check_learned(self) -> None:
        check_learned(
            vars(self),
            {
                "values_": Learned("float64", "rounds states"),
                "q_": Learned("float64", "states 4"),
                "policy_": Learned("int64", "states", low=0, high=3),
            },
        )


def discounted_returns(
    rewards: Float[Tensor, "time ..."], gamma: float
) -> Float[Tensor, "time ..."]:
    """The return from each time on."""
    returns, later = [], torch.zeros_like(rewards[0])
    for reward in rewards.flip(0):
        later = reward + gamma * later  # (1)
        returns.append(later)
    return torch.stack(returns).flip(0)


def action_values(world: GridWorld, v: Float[Tensor, " states"], gamma: float) -> Q:
    """Q of each action, if V are the values of the states it leads to."""
    return world.rewards + gamma * world.transitions @ v  # (3)


def evaluate_policy(
    world: GridWorld, policy: Int[Tensor, " states"], gamma: float
) -> Float[Tensor, " states"]:
    """The value of each state if these actions are taken."""
    states = torch.arange(len(policy))
    p, r = world.transitions[states, policy], world.rewards[states, policy]
    v: Tensor = torch.linalg.solve(torch.eye(len(p), dtype=p.dtype) - gamma * p, r)  # (2)
    return v


def measure_contraction(
    values: Float[Tensor, "sweeps states"], best: Float[Tensor, " states"]
) -> Float[Tensor, " factors"]:
    """By what each sweep multiplied the distance to the best values, while that can be measured."""
    distance = (values - best).abs().amax(1)
    distance = distance[distance > 1e-6 * distance[0].clamp(min=1e-300)]  # above rounding
    return distance[1:] / distance[:-1]  # (6)


def error_bound(first: float, gamma: float, sweeps: Float[Tensor, " sweeps"]) -> Tensor:
    """The most that the error can be after so many sweeps; `first` is that before any."""
    return first * gamma**sweeps  # (7)


def value_by_clock(world: GridWorld, steps: int) -> Float[Tensor, " states"]:
    """The undiscounted value of the best play that may look at the clock, for so many steps."""
    v = torch.zeros(len(world.cells), dtype=torch.float64)
    for _ in range(steps):
        v = action_values(world, v, 1.0).amax(1)  # (8)
    return v


def value_in_time(
    world: GridWorld, policy: Int[Tensor, " states"], steps: int
) -> Float[Tensor, " states"]:
    """The undiscounted value of a policy that is cut off after so many steps."""
    v, states = torch.zeros(len(policy), dtype=torch.float64), torch.arange(len(policy))
    for _ in range(steps):
        v = action_values(world, v, 1.0)[states, policy]
    return v


# -------- the network ends here; training and pictures follow --------

E = TypeVar("E", bound=ValueIteration)


@dataclass(frozen=True, kw_only=True)
class Planning(GridRecipe[E]):
    """Find the best policy of a map that is known."""

    meanings: ClassVar[Mapping[str, str]] = {
        **GridRecipe.meanings,
        "solve_error": "how far the values are from those of the linear system of their policy",
        "other_error": "how far the values are from those of the other algorithm",
    }

    def both(self, model: E, world: GridWorld) -> dict[str, Tensor]:
        """The values beside those of the linear system, and of the other way to find them."""
        other = {ValueIteration: PolicyIteration, PolicyIteration: ValueIteration}[type(model)]
        v = model.values_[-1]
        solved = evaluate_policy(world, model.q_.argmax(1), self.gamma)
        return {
            "solve_error": (v - solved).abs().max(),
            "other_error": (v - other(self.gamma).fit(world).values_[-1]).abs().max(),
        }

    def picture_values(
        self, model: E, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """The value of each cell as a colour and the best action as an arrow, after some rounds.

        Values spread from the goal backwards; from the start the best play is worth {start:.3f}.
        """
        world, last = self.world_of(data.spec), len(model.values_) - 1
        shown = sorted({min(n, last) for n in (1, 3, last)})
        maps = {f"{self.rounds} {n}": model.values_[n] for n in shown}
        policies = [action_values(world, v, self.gamma).argmax(1) for v in maps.values()]
        value = model.values_[-1][world.starts].mean().item()
        return value_grids(world, maps, policies), {"start": value}

    rounds: ClassVar[str] = "after sweep"


@dataclass(frozen=True, kw_only=True)
class PlanByValues(Planning[ValueIteration]):
    """Find the best policy of a map by sweeps over the values of its cells."""

    meanings: ClassVar[Mapping[str, str]] = {
        **Planning.meanings,
        "contraction": "the largest factor by which a sweep multiplied the error, at most gamma",
        "contraction_excess": "by how much that factor is above gamma, which is rounding at most",
        "sweeps": "sweeps over all cells until no value changed",
    }

    def model(self, data: Data) -> ValueIteration:
        return ValueIteration(self.gamma)

    def metrics(self, model: ValueIteration, batch: Batch) -> dict[str, Tensor]:
        world = self.world
        best = PolicyIteration(self.gamma).fit(world).values_[-1]
        factor = measure_contraction(model.values_, best).max()
        return {
            **super().metrics(model, batch),
            **self.both(model, world),
            "contraction": factor,
            "contraction_excess": (factor - self.gamma).clamp(min=0),
            "sweeps": torch.tensor(len(model.values_) - 1.0),
        }

    def picture_contraction(
        self, model: ValueIteration, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """The distance to the best values after each sweep (left), and its factor (right).

        It stays below gamma to the power of the sweeps: no sweep multiplies it by more than
        {factor:.3f}, and gamma is {gamma:.3f}.
        """
        best = PolicyIteration(self.gamma).fit(self.world_of(data.spec)).values_[-1]
        factors = measure_contraction(model.values_, best)
        error = (model.values_ - best).abs().amax(1)[: len(factors) + 1]
        sweeps = torch.arange(len(error), dtype=torch.float64)
        bound = error_bound(float(error[0]), self.gamma, sweeps)
        drawn = plot.panels(
            plot.Panel(
                {"value iteration": (sweeps, error)},
                xlabel="sweep",
                ylabel="largest error of a value",
                guides={r"bound $\gamma^k\ |V_0 - V^*|$": (sweeps, bound)},
                log="y",
                legend="lower left",
            ),
            plot.Panel(
                {"value iteration": (sweeps[1:], factors)},
                xlabel="sweep",
                ylabel="factor on the error",
                levels={r"$\gamma$": self.gamma},
                ylim=(0, 1.05),
                legend="lower left",
            ),
        )
        return drawn, {"factor": float(factors.max()), "gamma": self.gamma}


@dataclass(frozen=True, kw_only=True)
class PlanByPolicies(Planning[PolicyIteration]):
    """Find the best policy of a map by valuing one policy exactly after another."""

    meanings: ClassVar[Mapping[str, str]] = {
        **Planning.meanings,
        "rounds": "policies that were valued, each by a linear system",
        "falls": "cells whose value fell in some round, which cannot be",
    }
    rounds: ClassVar[str] = "policy"

    def model(self, data: Data) -> PolicyIteration:
        return PolicyIteration(self.gamma)

    def metrics(self, model: PolicyIteration, batch: Batch) -> dict[str, Tensor]:
        falls = (model.values_.diff(dim=0) < -1e-9).any(0).sum()
        return {
            **super().metrics(model, batch),
            **self.both(model, self.world),
            "rounds": torch.tensor(float(len(model.values_))),
            "falls": falls.double(),
        }

    def picture_rounds(
        self, model: PolicyIteration, data: Data, history: History
    ) -> tuple[Figure, dict[str, int]]:
        """The value of the start and of the mean cell under each policy, one round after another.

        No value ever falls; after {rounds} policies none can be bettered.
        """
        world = self.world_of(data.spec)
        rounds = torch.arange(len(model.values_), dtype=torch.float64)
        values = model.values_[:, world.open]
        drawn = plot.panels(
            plot.Panel(
                {
                    "start": (rounds, model.values_[:, world.starts].mean(1)),
                    "mean of all cells": (rounds, values.mean(1)),
                },
                bands={"mean of all cells": (values.amin(1), values.amax(1))},
                xlabel="round of policy iteration",
                ylabel="value",
                legend="lower right",
            )
        )
        return drawn, {"rounds": len(rounds)}


RECIPES = {
    "value-iteration": PlanByValues(
        goal="contraction_excess <= 1e-6 and solve_error <= 1e-8 and other_error <= 1e-8",
        covers=("Q1", "Q2"),
    ),
    "policy-iteration": PlanByPolicies(
        goal="solve_error <= 1e-8 and other_error <= 1e-8 and falls <= 0", covers=("Q2",)
    ),
}
