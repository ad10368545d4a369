"""Whole games from given states: what is played, what it returns, and a film of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Num
from matplotlib.figure import Figure
from torch import Tensor

from everynet import plot
from everynet.system.errors import UserError
from everynet.zoo.reinforcement.environments import Environment, States
from everynet.zoo.reinforcement.pictures.play import film_frame, value_limits

Values = Callable[[States], Float[Tensor, "games actions"]]
"""Gives Q of each action in each state."""

EPISODES: Mapping[str, str] = {
    "episode_mean": "the mean return of further greedy games, from starts drawn at random",
    "episode_spread": "the standard deviation of the returns of those games",
    "episode_worst": "the lowest return of those games",
}
"""What the metrics of `summarise_episodes` mean."""
MOST_EPISODES = 100_000
MOST_FILMED = 60
MOST_FRAMES = 300
"""Frames of a film of games: each takes a twentieth of a second to draw."""
ALIKE = 5.0  # times as large as their differences: such values are shown less their mean


class Episodes(NamedTuple):
    """Games from their start to their end; a game that is over stays in its last state."""

    states: Num[Tensor, "frames games size"]
    q: Float[Tensor, "moves games actions"]
    """The values in all states but the last."""
    returns: Float[Tensor, " games"]
    """The sums of rewards, without discount."""
    lengths: Int[Tensor, " games"]
    """Moves until a game was over."""


@torch.no_grad()
def play_greedily(
    environment: Environment,
    values: Values,
    start: States,
    generator: torch.Generator | None = None,
) -> Episodes:
    """Play each game to its end by the action of the highest value."""
    states, q = [start], list[Tensor]()
    going = torch.ones(len(start), dtype=torch.bool, device=start.device)
    returns, lengths = torch.zeros(len(start), device=start.device), going.long() * 0
    while going.any():
        q.append(values(states[-1]))
        moved = environment.step(states[-1], q[-1].argmax(1), generator)
        returns = returns + torch.where(going, moved.reward, 0.0)
        lengths = lengths + going
        states.append(torch.where(going[:, None], moved.state, states[-1]))
        going = going & ~moved.over
    return Episodes(torch.stack(states), torch.stack(q), returns, lengths)


def summarise_episodes(
    environment: Environment,
    values: Values,
    episodes: int,
    generator: torch.Generator,
    place: torch.device | str = "cpu",
) -> dict[str, float]:
    """Mean, standard deviation and lowest of the returns of so many greedy games."""
    if not 1 <= episodes <= MOST_EPISODES:
        raise UserError(
            f"episodes ({episodes}) must be between 1 and {MOST_EPISODES:,}, because so many games "
            "are played; try 100"
        )
    start = environment.reset(episodes, generator).to(place)
    returns = play_greedily(environment, values, start).returns.double()
    return {
        "episode_mean": returns.mean().item(),
        "episode_spread": returns.std(correction=0).item(),
        "episode_worst": returns.min().item(),
    }


def film(
    environment: Environment,
    values: Values,
    episodes: int,
    generator: torch.Generator,
    *,
    speed: float = 4,
    place: torch.device | str = "cpu",
) -> plot.Film:
    """Greedy games one after the other, with the values of the actions; `speed` is moves a second.

    Of long games only every so many states are drawn, as many as keep the film short.
    """
    if not 1 <= episodes <= MOST_FILMED:
        raise UserError(
            f"episodes ({episodes}) must be between 1 and {MOST_FILMED}, because frames of each "
            "are drawn; try 3"
        )
    start = environment.reset(episodes, generator).to(place)
    played = play_greedily(environment, values, start)
    every = -(-int(played.lengths.sum()) // MOST_FRAMES)
    return plot.Film(draw_games(environment, played, every), max(1.0, speed / every))


def draw_games(environment: Environment, played: Episodes, every: int = 1) -> Iterator[Figure]:
    """Every so many states of one game after the other, and the last of each."""
    q, label = played.q, "value"
    if float(q.abs().min()) > ALIKE * float((q.amax(-1) - q.amin(-1)).max()):
        q, label = q - q.mean(-1, keepdim=True), "value less mean"  # else all bars look alike
    limits = value_limits(q)
    for game, length in enumerate(played.lengths.tolist()):
        for step in [*range(0, length, every), length]:
            last = step == length
            end = environment.outcome(float(played.returns[game]))
            yield film_frame(
                environment,
                played.states[step, game],
                None if last else q[step, game],
                title=f"game {game + 1}\n" + (end if last else f"step {step}"),
                limits=limits,
                label=label,
            )
