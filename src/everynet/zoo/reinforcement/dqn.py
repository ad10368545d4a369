"""Deep Q-learning: a network learns the value of each action by playing, from a replay buffer.

    a  = argmax_a Q(s, a), but random with probability epsilon     (1)  epsilon-greedy behaviour
    y  = r + gamma (1 - end) max_a' Q'(s', a')                     (2)  TD target
    L  = mean over a minibatch of (y - Q(s, a))^2 / 2              (3)  TD loss; y is held fixed
    Q' = Q, every C steps                                          (4)  target network

where Q(s, a) is the expected sum of rewards from action a in state s on, each step discounted by
gamma, r is the reward, s' is the state that followed and `end` is 1 where the episode was over
then. The transitions (s, a, r, s', end) of a minibatch are drawn at random from a replay buffer
whose oldest are overwritten. The error y - Q reaches the output of the action that was taken, and
no other. Side by side means a product.

In Catch a ball falls by a row a step in a grid, and a paddle on the lowest row goes left, stays or
goes right. The reward is 1 if the ball lands on the paddle, -1 if beside it. The network sees the
grid as an image.

Mnih et al. (2015), "Human-level control through deep reinforcement learning",
doi:10.1038/nature14236. Unlike the paper, many games are played at once, the network is small, and
the optimiser is Adam on (3) without clipping.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import one_hot

from everynet import plot
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.recipes.recipe import Goal
from everynet.recipes.state import State
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.zoo.reinforcement.pictures.play import (
    film_frame,
    film_strip,
    policy_maps,
    value_limits,
)


class QNetwork(nn.Module):
    """Maps images of states to the value Q(s, a) of each action."""

    def __init__(self, height: int, width: int, actions: int, hidden_size: int) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten())
        self.head = nn.Sequential(
            nn.Linear(8 * height * width, hidden_size),
            nn.ReLU(),
            nn.Linear(hidden_size, actions),
        )

    def forward(self, x: Float[Tensor, "batch 1 height width"]) -> Float[Tensor, "batch actions"]:
        q: Tensor = self.head(self.features(x))
        return q


def choose_actions(
    q: Float[Tensor, "games actions"], epsilon: float, chance: Float[Tensor, "games 2"]
) -> Int[Tensor, " games"]:
    """The best action, or a random one; `chance` are numbers from 0 to 1, two for each game."""
    random_action = (chance[:, 1] * q.shape[1]).long()
    return torch.where(chance[:, 0] < epsilon, random_action, q.argmax(1))  # (1)


def compute_td_target(
    reward: Float[Tensor, " batch"],
    end: Float[Tensor, " batch"],
    next_q: Float[Tensor, "batch actions"],
    gamma: float,
) -> Float[Tensor, " batch"]:
    """The TD target y; `next_q` are the target network's values of the next states."""
    return reward + gamma * (1 - end) * next_q.amax(1)  # (2)


def td_loss(
    q: Float[Tensor, "batch actions"],
    action: Int[Tensor, " batch"],
    td_target: Float[Tensor, " batch"],
) -> Float[Tensor, ""]:
    """Half the mean squared error of the values of the actions that were taken."""
    taken = q.gather(1, action[:, None])[:, 0]
    return (td_target.detach() - taken).square().mean() / 2  # (3)


@torch.no_grad()
def update_target_network(target_network: nn.Module, q_network: nn.Module) -> None:
    """Copy the weights of the network of now into the target network."""
    for old, new in zip(target_network.parameters(), q_network.parameters(), strict=True):
        old.copy_(new)  # (4)


class ReplayBuffer(nn.Module):
    """The last `capacity` transitions (s, a, r, s', end) of an environment, as a ring."""

    state: Tensor
    action: Tensor
    reward: Tensor
    next_state: Tensor
    end: Tensor

    def __init__(self, capacity: int, state_size: int) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(capacity, state_size, dtype=torch.int64))
        self.register_buffer("action", torch.zeros(capacity, dtype=torch.int64))
        self.register_buffer("reward", torch.zeros(capacity))
        self.register_buffer("next_state", torch.zeros(capacity, state_size, dtype=torch.int64))
        self.register_buffer("end", torch.zeros(capacity))

    def add(self, step: int, *transition: Tensor) -> None:
        """Write the transitions of a step over the oldest: their place follows from the step."""
        count = len(transition[0])
        start = step * count % len(self.action)
        for ring, new in zip(self.buffers(), transition, strict=True):
            ring[start : start + count] = new.to(ring.dtype)

    def sample(self, batch_size: int, filled: int) -> tuple[Tensor, ...]:
        """Transitions drawn at random, with replacement, from the first `filled` places."""
        rows = torch.randint(filled, (batch_size,)).to(self.action.device)
        return tuple(ring[rows] for ring in self.buffers())


# -------- the network ends here; training and pictures follow --------

ACTIONS = ("left", "stay", "right")
ARROWS = ("\u2190", "\u2022", "\u2192")
MOST_FRAMES = 600
"""Frames of a film of games: each takes a tenth of a second to draw."""
RATE = 4
"""Moves a second in it."""


class Catch(NamedTuple):
    """The rules; a state is (row of the ball, its column, column of the paddle)."""

    height: int = 10
    width: int = 5

    def begin(self, ball: Int[Tensor, " games"], paddle: Int[Tensor, " games"]) -> Tensor:
        """The first state: the ball on the top row."""
        return torch.stack([torch.zeros_like(ball), ball, paddle], 1)

    def move(
        self, state: Int[Tensor, "games 3"], action: Int[Tensor, " games"]
    ) -> tuple[Int[Tensor, "games 3"], Float[Tensor, " games"], Bool[Tensor, " games"]]:
        """The states that follow, the rewards, and which games are over."""
        row, ball, paddle = state.unbind(1)
        paddle = (paddle + action - 1).clamp(0, self.width - 1)
        end = row + 1 == self.height - 1
        reward = torch.where(end, torch.where(ball == paddle, 1.0, -1.0), 0.0)
        return torch.stack([row + 1, ball, paddle], 1), reward, end

    def image(self, state: Int[Tensor, "games 3"]) -> Float[Tensor, "games 1 height width"]:
        """The grid: 1 at the ball and at the paddle."""
        row, ball, paddle = state.unbind(1)
        places = torch.stack([row * self.width + ball, (self.height - 1) * self.width + paddle], 1)
        flat = one_hot(places, self.height * self.width).amax(1)
        return flat.view(-1, 1, self.height, self.width).to(torch.get_default_dtype())

    def first_states(self) -> Int[Tensor, "starts 3"]:
        """Every first state, each as likely as another."""
        columns = torch.arange(self.width)
        return self.begin(*torch.cartesian_prod(columns, columns).unbind(1))

    def states(self) -> Int[Tensor, "states 3"]:
        """Every state in which there is something to do."""
        columns = torch.arange(self.width)
        return torch.cartesian_prod(torch.arange(self.height - 1), columns, columns)

    def exact_q(self, gamma: float, *, random: bool = False) -> Float[Tensor, "rows b p 3"]:
        """The exact Q of the best play, or of random play, from the last row upwards."""
        q = torch.zeros(self.height - 1, self.width, self.width, len(ACTIONS), dtype=torch.float64)
        states = self.states()
        for row in reversed(range(self.height - 1)):
            here = states[states[:, 0] == row]
            for action in range(len(ACTIONS)):
                after, reward, _ = self.move(here, torch.full((len(here),), action))
                later = torch.zeros(len(here), dtype=torch.float64)
                if row + 1 < self.height - 1:
                    next_q = q[after[:, 0], after[:, 1], after[:, 2]]
                    later = gamma * (next_q.mean(1) if random else next_q.amax(1))
                q[row, here[:, 1], here[:, 2], action] = reward.double() + later
        return q


class Playing(nn.Module):
    """What learning carries besides Q: target network, replay buffer and states of the games."""

    games: Tensor

    def __init__(self, q_network: QNetwork, games: Int[Tensor, "games 3"], capacity: int) -> None:
        super().__init__()
        self.target_network = copy.deepcopy(q_network).requires_grad_(False)
        self.replay_buffer = ReplayBuffer(capacity, games.shape[1])
        self.register_buffer("games", games)


@dataclass(frozen=True, kw_only=True)
class PlayCatch(Training[QNetwork, Playing]):
    """Learn to catch a falling ball from images and from the reward alone."""

    meanings: ClassVar[Mapping[str, str]] = {
        "mean_return": "the mean reward of a game: 1 where the ball is caught, -1 where not",
        "caught": "the share of games in which the ball is caught",
        "value_error": "mean absolute error of the learned values of states",
    }

    steps: int = 6000
    batch_size: int = 64
    schedule: str = "cosine"
    eval_every: int = 200
    height: int = 10
    """Rows of the grid; the paddle is on the lowest."""
    width: int = 5
    """Columns of the grid."""
    environments: int = 16
    """Games that are played at once, one move of each a step."""
    memory: int = 8192
    """Transitions that the replay buffer holds."""
    gamma: float = 0.95
    """Discount of a reward that is a step later."""
    epsilon: float = 0.1
    """Share of random actions in the end; it begins at 1."""
    explore: int = 2000
    """Steps over which the share of random actions falls."""
    target_every: int = 100
    """Steps between two updates of the target network."""
    hidden_size: int = 64
    """Units of the hidden layer."""

    overfits: ClassVar[bool] = False  # it gathers its own data: there is no batch to repeat
    writes: ClassVar[str] = "film"
    per_rank: ClassVar[bool] = True  # each process would have games and a buffer of its own

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(2, "height", "width")
        self.at_least(1, "environments", "explore", "target_every", "hidden_size")
        whole = self.memory >= self.environments and self.memory % self.environments == 0
        what = f"a multiple of the {self.environments} environments, each of which adds one a step"
        self.require(whole, "memory", what)
        self.within(0, 1, "gamma", "epsilon")

    @property
    def game(self) -> Catch:
        """The rules with these sizes."""
        return Catch(self.height, self.width)

    def model(self, data: Data) -> QNetwork:
        return QNetwork(self.height, self.width, len(ACTIONS), self.hidden_size)

    def extra(self, model: QNetwork) -> Playing:
        states = self.game.states()  # games begin anywhere, so that they do not all end together
        games = states[torch.randint(len(states), (self.environments,))]
        return Playing(model, games, self.memory)

    def exploration(self, step: int) -> float:
        """The share epsilon of random actions at update `step`."""
        return 1 + (self.epsilon - 1) * min(1.0, step / self.explore)

    def step(self, state: State[QNetwork, Playing], batch: Batch) -> Terms:
        """One move in every game, then one update from a minibatch of the replay buffer."""
        q_network, target_network = state.model, state.extra.target_network
        replay_buffer = state.extra.replay_buffer
        if state.step % self.target_every == 0:
            update_target_network(target_network, q_network)
        with torch.no_grad():
            self.play(state.extra, q_network, state.step)
            filled = min(self.memory, (state.step + 1) * self.environments)
            s, action, reward, next_s, end = replay_buffer.sample(self.batch_size, filled)
            next_q = target_network(self.image(next_s, q_network))
            td_target = compute_td_target(reward, end, next_q, self.gamma)
        q = q_network(self.image(s, q_network))
        loss = td_loss(q, action, td_target)
        state.descend(loss, clip=self.clip, clip_value=self.clip_value)
        return {"td_error": loss, "_value": q.amax(1).mean()}

    def play(self, playing: Playing, q_network: QNetwork, step: int) -> None:
        """One move in every game into the replay buffer; a game that is over begins anew."""
        state, device = playing.games, playing.games.device
        # Drawn on the CPU, so that other devices learn from the same games.
        chance = torch.rand(self.environments, 2).to(device)
        fresh = self.game.begin(*torch.randint(self.width, (2, self.environments)).to(device))
        q = q_network(self.image(state, q_network))
        action = choose_actions(q, self.exploration(step), chance)
        next_state, reward, end = self.game.move(state, action)
        playing.replay_buffer.add(step, state, action, reward, next_state, end)
        playing.games = torch.where(end[:, None], fresh, next_state)

    def image(self, states: Int[Tensor, "games 3"], q_network: QNetwork) -> Tensor:
        """Images of states, in the precision of the network."""
        return self.game.image(states).to(next(q_network.parameters()).dtype)

    def metrics(self, model: QNetwork, batch: Batch) -> dict[str, Tensor]:
        """Greedy play from every first state, so that the means are exact; errors of all states."""
        _, _, reward = self.play_greedily(model, self.game.first_states())
        best = self.game.exact_q(self.gamma).amax(3).flatten()
        return {
            "mean_return": reward,
            "caught": (reward > 0).to(reward.dtype),
            "value_error": (self.all_values(model).amax(1) - best).abs(),
        }

    def monitor(self) -> Goal | None:
        """The last weights are kept: every ball is caught long before the values are right."""
        return super().monitor() if self.schedule == "plateau" else None

    def all_values(self, model: QNetwork) -> Float[Tensor, "states actions"]:
        """Q of every state."""
        states = self.game.states().to(next(model.parameters()).device)
        q: Tensor = model(self.image(states, model)).double().cpu()
        return q

    def play_greedily(
        self, model: QNetwork, states: Int[Tensor, "games 3"]
    ) -> tuple[
        Int[Tensor, "frames games 3"],
        Float[Tensor, "moves games actions"],
        Float[Tensor, " games"],
    ]:
        """Greedy play to the end: all states, the values in all but the last, and the rewards."""
        played, values = [states.to(next(model.parameters()).device)], []
        for _ in range(self.height - 1):
            values.append(model(self.image(played[-1], model)))
            after, reward, _ = self.game.move(played[-1], values[-1].argmax(1))
            played.append(after)
        return torch.stack(played), torch.stack(values), reward

    def sample(
        self, model: QNetwork, spec: Spec, generator: torch.Generator, *, episodes: int = 3
    ) -> plot.Film:
        """A film of greedy games from random starts, with the values of the actions."""
        most = max(1, MOST_FRAMES // self.height)
        if not 1 <= episodes <= most:
            raise UserError(
                f"episodes ({episodes}) must be between 1 and {most}, because every state of them "
                "is drawn; try 3"
            )
        start = self.game.begin(*torch.randint(self.width, (2, episodes), generator=generator))
        return plot.Film(self.draw_games(*self.play_greedily(model, start)), RATE)

    def draw_games(
        self,
        states: Int[Tensor, "frames games 3"],
        q: Float[Tensor, "moves games actions"],
        reward: Float[Tensor, " games"],
    ) -> Iterator[Figure]:
        """Every state of one game after the other."""
        for game in range(len(reward)):
            frames = self.game.image(states[:, game])[:, 0]
            for step, frame in enumerate(frames):
                last = step == len(q)
                end = "caught" if reward[game] > 0 else "missed"
                title = f"game {game + 1}\n" + (end if last else f"step {step}")
                values = None if last else q[step, game]
                yield film_frame(frame, values, title=title, arrows=ARROWS, limits=value_limits(q))

    def picture_policy(self, model: QNetwork, data: Data, history: History) -> Figure:
        """The value of each state, and an arrow for the best action where the choice matters.

        A high ball leaves time for any action; a low one calls the paddle to its column.
        """
        q = self.all_values(model).view(self.height - 1, self.width, self.width, len(ACTIONS))
        return policy_maps(q, arrows=ARROWS)

    def picture_episode(
        self, model: QNetwork, data: Data, history: History
    ) -> tuple[Figure, dict[str, str]]:
        """One greedy game, and under each frame the values of the three actions.

        They part once a wrong step would lose the ball, which is {end} here.
        """
        start = self.game.begin(torch.tensor([self.width - 1]), torch.tensor([0]))
        states, q, reward = self.play_greedily(model, start)
        frames = self.game.image(states[:, 0])[:, 0]
        end = "caught" if reward[0] > 0 else "missed"
        return film_strip(frames, q[:, 0], actions=ACTIONS, end=end), {"end": end}

    def picture_learning(
        self, model: QNetwork, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """The return of greedy play by step beside that of random play, and learned values.

        These are {error:.2f} from the exact ones, the mean over all states and actions.
        """
        q, exact = self.all_values(model).flatten(), self.game.exact_q(self.gamma).flatten()
        random = self.game.exact_q(1.0, random=True)[0].mean().item()
        ends = torch.tensor([exact.min(), exact.max()])
        figure = plot.panels(
            plot.Panel(
                {"greedy play": plot.logged_curves(history, "valid")["mean_return"]},
                xlabel="step",
                ylabel="mean return over all starts",
                title="greedy play",
                levels={"random play": random},
                ylim=(-1.05, 1.05),
                legend="lower right",
            ),
            plot.Panel(
                {"a state and an action": (exact, q)},
                xlabel="exact value, by dynamic programming",
                ylabel="learned value",
                title=f"all {len(q):,} values",
                guides={"equal": (ends, ends)},
                scatter=True,
                legend="upper left",
            ),
            width=3.4,
            height=3.1,
        )
        return figure, {"error": (q - exact).abs().mean().item()}


RECIPES = {
    "catch": PlayCatch(goal="caught >= 0.99 and value_error <= 0.05", covers=("Q7",)),
}
