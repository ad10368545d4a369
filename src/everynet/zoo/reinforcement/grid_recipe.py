"""What recipes of grid worlds share: the map, starts, greedy games and their film."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import TypeVar

from everynet import plot
from everynet.data.dataset import Batch, Data, Spec
from everynet.data.samplers import Made
from everynet.recipes.recipe import Fitting
from everynet.system.seeds import generator as seeded
from everynet.zoo.reinforcement.environments import MAPS, GridWorld, States, find_map
from everynet.zoo.reinforcement.episodes import (
    EPISODES,
    film,
    play_greedily,
    summarise_episodes,
)


@runtime_checkable
class LearnsGrid(Protocol):
    """An estimator that learns `q_`, the value of each action in each cell."""

    def fit(self, world: GridWorld) -> object: ...


E = TypeVar("E", bound=LearnsGrid)
STARTS = 1000
"""Games in each of the splits `valid` and `test`, with luck of their own."""


@dataclass(frozen=True, kw_only=True)
class GridRecipe(Fitting[E]):
    """Play a grid world by a table of values."""

    meanings: ClassVar[Mapping[str, str]] = {
        "mean_return": "the sum of the rewards of a greedy game, mean over 1,000 of them",
        **EPISODES,
    }

    map: str = "grid-world"
    """A known map, or a text file: S start, G and g goals, . floor, # wall, H hole, C cliff."""
    slip: float = 0.0
    """Probability of going sideways on a map of one's own; known maps have theirs."""
    gamma: float = 0.95
    """Discount of a reward that is a step later."""

    sources: ClassVar[tuple[str, ...]] = ("map",)
    writes: ClassVar[str] = "film"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.within(0, 1, "slip")
        self.require(
            self.slip == 0 or self.map not in MAPS, "slip", f"left out: {self.map} has its own"
        )
        self.require(0 <= self.gamma < 1, "gamma", "at least 0 and below 1, so that values end")

    @cached_property
    def world(self) -> GridWorld:
        """The map of the setting."""
        found = find_map(self.map)
        return replace(found, slip=self.slip) if self.slip else found

    def world_of(self, spec: Spec) -> GridWorld:
        """The map as the run folder has it: the file of one's own may be gone."""
        return GridWorld(**{**spec["world"], "rows": tuple(spec["world"]["rows"])})

    def dataset(self) -> Data:
        world = self.world
        described = {**vars(replace(world)), "rows": list(world.rows)}
        splits = {
            name: (world.reset(STARTS, seeded(self.seed, number)),)
            for number, name in enumerate(("valid", "test"))
        }
        return Data(splits, {"world": described, "kind": "film"}, sampler=Made(), seed=self.seed)

    def fit(self, model: E, data: Data) -> E:
        model.fit(self.world_of(data.spec))
        return model

    def values(self, model: E) -> Callable[[States], Float[Tensor, "games actions"]]:
        """Looks the values of a cell up."""
        q: Float[Tensor, "cells 4"] = vars(model)["q_"]
        return lambda state: q[state[:, 0]]

    def metrics(self, model: E, batch: Batch) -> dict[str, Tensor]:
        """A greedy game from each row."""
        luck = seeded(self.seed, 3, len(batch[0]))
        return {
            "mean_return": play_greedily(self.world, self.values(model), batch[0], luck).returns
        }

    def final(
        self, model: E, data: Data, generator: torch.Generator, *, episodes: int = 100
    ) -> dict[str, float]:
        """The returns of greedy games from starts drawn anew."""
        world = self.world_of(data.spec)
        return summarise_episodes(world, self.values(model), episodes, generator)

    def sample(
        self, model: E, spec: Spec, generator: torch.Generator, *, episodes: int = 3
    ) -> plot.Film:
        """A film of greedy games, with the values of the actions."""
        return film(self.world_of(spec), self.values(model), episodes, generator)
