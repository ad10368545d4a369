"""Experience replay: what deep Q-learning loses where it learns from its newest moves alone.

    P(i) = 1 / M for each of the last M transitions i       (1)  uniform minibatches
    E[age] = (M - 1) / 2                                    (2)  steps since a transition was made

M is the size of the replay buffer, to which the one game that is played adds a transition a step.
With M = 1 a network learns from the move just made alone: neighbours in time are alike, each is
used once, and what was learned of other states is overwritten. The network and its update are those
of `dqn.py`, the game is Catch; both kinds begin with the same weights and see equally many
minibatches. Many games at once are a remedy too: with 16 of them Catch is learned without replay.

Lin (1992), "Self-improving reactive agents based on reinforcement learning, planning and teaching",
doi:10.1007/BF00992699; Mnih et al. (2015), doi:10.1038/nature14236, extended data table 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet import plot
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.training import Training
from everynet.zoo.reinforcement.dqn import PlayCatch


def sampling_probabilities(
    ages: Float[Tensor, " transitions"], memory: int
) -> Float[Tensor, " transitions"]:
    """The probability that a draw is this transition, by how many came after it."""
    return (ages < memory).double() / memory  # (1)


def mean_age(memory: int) -> float:
    """How many steps ago what is learned from was played, on average."""
    return (memory - 1) / 2  # (2)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class ExperienceReplay(Experiment):
    """Learn to catch a ball with and without a replay buffer, from several seeds."""

    meanings: ClassVar[Mapping[str, str]] = {
        "with_replay": "the lowest over the seeds of the mean return, with a replay buffer",
        "without_replay": "the highest over the seeds of that without",
        "margin": "by how much the first is above the second, of the last five evaluations",
    }

    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of the networks and games."""
    steps: int = 6000
    """Updates of each network, and moves of its game."""
    memory: int = 8192
    """Transitions of the replay buffer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps")
        self.require(len({*self.seeds}) == len(self.seeds) > 0, "seeds", "different numbers")

    def kinds(self) -> dict[str, int]:
        """The sizes of the memories by name."""
        return {"with": self.memory, "without": 1}

    def cells(self) -> dict[str, Training[Any, Any]]:
        return {
            f"{kind}-{seed}": PlayCatch(
                seed=seed, steps=self.steps, memory=memory, environments=1, batch_size=32,
                name="catch", eval_every=max(1, self.steps // 20),
            )
            for kind, memory in self.kinds().items()
            for seed in self.seeds
        }  # fmt: skip

    def returns(self, table: Table, kind: str) -> Float[Tensor, "seeds looks"]:
        """The mean return of greedy games at each evaluation."""
        return torch.stack(
            [table.cells[f"{kind}-{seed}"].valid["mean_return"] for seed in self.seeds]
        )

    def metrics(self, table: Table) -> dict[str, float]:
        ours, other = (self.returns(table, kind)[:, -5:].mean(1) for kind in self.kinds())
        return {
            "with_replay": ours.min().item(),
            "without_replay": other.max().item(),
            "margin": (ours.min() - other.max()).item(),
        }

    def picture_returns(self, table: Table) -> tuple[Figure, dict[str, float]]:
        """The return of greedy games by step, mean and range over the seeds.

        Minibatches with replay are {age:,.0f} steps old on average once the buffer is full. In the
        end games return {ours:.2f} with replay and {other:.2f} without.
        """
        curves, bands = {}, {}
        for kind in self.kinds():
            found = self.returns(table, kind)
            steps = table.cells[f"{kind}-{self.seeds[0]}"].steps.double()
            curves[f"{kind} replay"] = steps, found.mean(0)
            bands[f"{kind} replay"] = found.amin(0), found.amax(0)
        drawn = plot.panels(
            plot.Panel(curves, "step", "mean return of a game", bands=bands, legend="below")
        )
        ours, other = (float(values[-1]) for _, values in curves.values())
        return drawn, {"age": mean_age(self.memory), "ours": ours, "other": other}

    def tiny(self) -> Self:
        return replace(self, steps=4, seeds=self.seeds[:1], memory=64)


RECIPES = {
    "experience-replay": ExperienceReplay(goal="margin >= 0.5", covers=("Q6",)),
}
