"""A game whose starts are rows of `valid` and `test`, evaluated by more episodes at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from everynet.data.dataset import Batch, Data, Terms
from everynet.data.samplers import Made
from everynet.recipes.recipe import Goal
from everynet.recipes.training import Training

PLACES, MOVES, SLIP = 16, 20, 0.3


@dataclass(frozen=True, kw_only=True)
class Walk(Training[nn.Linear]):
    """Walk home to place 0 on a slippery line; the sooner, the larger the return."""

    meanings: ClassVar[Mapping[str, str]] = {
        "mean_return": "the mean share of moves that are left when it is home",
        "episode_return": "the same for episodes from starts of the test split",
    }

    steps: int = 6
    lr: float = 0.1
    eval_every: int = 2

    def dataset(self) -> Data:
        places = torch.arange(1, PLACES)
        splits = {"valid": (places[::2],), "test": (places[1::2],)}
        return Data(splits, {"name": "walk"}, seed=self.seed, sampler=Made())

    def model(self, data: Data) -> nn.Linear:
        return nn.Linear(PLACES, 2)

    def objective(self, model: nn.Linear, batch: Batch) -> Terms:
        return {"far": model(torch.eye(PLACES).to(model.weight)).softmax(1)[:, 1].mean()}

    def metrics(self, model: nn.Linear, batch: Batch) -> dict[str, Tensor]:
        (starts,) = batch
        return {"mean_return": play(model, starts, torch.rand(len(starts), MOVES))}

    def monitor(self) -> Goal | None:
        return Goal("mean_return", ">=", 1.0)

    def final(
        self, model: nn.Linear, data: Data, generator: torch.Generator, *, episodes: int = 40
    ) -> dict[str, float]:
        (starts,) = data.splits["test"]
        drawn = starts[torch.randint(len(starts), (episodes,), generator=generator)]
        chance = torch.rand(episodes, MOVES, generator=generator)
        return {"episode_return": play(model, drawn, chance).mean().item()}


def play(model: nn.Linear, starts: Tensor, chance: Tensor) -> Tensor:
    """The return of an episode from each start."""
    place, home = starts, torch.zeros(len(starts))
    for move in range(MOVES):
        far = model(one_hot(place, PLACES).to(model.weight)).argmax(1) == 1
        slips = chance[:, move] < SLIP
        place = (place + 2 * (far ^ slips) - 1).clamp(0, PLACES - 1)
        home += (place == 0).float() / MOVES
    return home


RECIPES = {"walk": Walk(goal="episode_return >= 0.01")}
