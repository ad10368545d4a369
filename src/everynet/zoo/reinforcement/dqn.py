"""Deep Q-learning: a network learns the value of each action by playing, from a replay buffer.

    a  = argmax_a Q(s, a), but random with probability epsilon     (1)  epsilon-greedy behaviour
    y  = r + gamma (1 - end) max_a' Q'(s', a')                     (2)  TD target
    L  = mean over a minibatch of (y - Q(s, a))^2 / 2              (3)  TD loss; y is held fixed
    Q' = Q, every C steps                                          (4)  target network
    y  = r + gamma (1 - end) Q'(s', argmax_a' Q(s', a'))           (5)  TD target of double DQN
    L  = mean of e^2 / 2 if e <= delta, else delta (e - delta/2)   (6)  Huber loss of e = |y - Q|

where Q(s, a) is the expected sum of rewards from action a in state s on, each step discounted by
gamma, r is the reward, s' is the state that followed and `end` is 1 where the episode was over
then; an episode that was only cut off has not ended. The transitions (s, a, r, s', end) of a
minibatch are drawn at random from a replay buffer whose oldest are overwritten. An update is two
passes: one without gradient gives y, one gives Q(s, a). The error y - Q reaches the output of the
action that was taken, and no other. The maximum in (2) is over values with errors and so too large
on average; (5) lets one network choose and the other value. Side by side means a product.

Mnih et al. (2015), "Human-level control through deep reinforcement learning",
doi:10.1038/nature14236; van Hasselt et al. (2016), "Deep reinforcement learning with double
Q-learning", arXiv:1509.06461. Unlike the papers, many games are played at once, the networks are
small, and the optimiser is Adam; Catch learns by (3) without clipping.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Generic

import torch
from jaxtyping import Bool, Float, Int, Num
from matplotlib.figure import Figure
from torch import Tensor, nn
from typing_extensions import TypeVar

from everynet import plot
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.samplers import Made
from everynet.recipes.recipe import Goal
from everynet.recipes.state import State
from everynet.recipes.training import Training
from everynet.system.seeds import generator as seeded
from everynet.zoo.reinforcement.environments import (
    CartPole,
    Catch,
    Environment,
    MountainCar,
    MountainCarAnywhere,
    States,
)
from everynet.zoo.reinforcement.episodes import (
    EPISODES,
    film,
    play_greedily,
    summarise_episodes,
)
from everynet.zoo.reinforcement.pictures.play import film_strip, policy_maps
from everynet.zoo.reinforcement.pictures.values import Axis, value_map


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


class StateQNetwork(nn.Module):
    """Maps states of a few numbers to the value Q(s, a) of each action.

    Values are `scale` times what the last layer gives, so that small weights reach large values.
    """

    def __init__(self, state_size: int, hidden_size: int, actions: int, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale
        self.layers = nn.Sequential(
            nn.Linear(state_size, hidden_size),
            nn.ReLU(),
            nn.Linear(hidden_size, hidden_size),
            nn.ReLU(),
            nn.Linear(hidden_size, actions),
        )

    def forward(self, x: Float[Tensor, "batch state_size"]) -> Float[Tensor, "batch actions"]:
        q: Tensor = self.scale * self.layers(x)
        return q


def choose_actions(
    q: Float[Tensor, "games actions"],
    epsilon: float | Float[Tensor, ""],
    chance: Float[Tensor, "games 2"],
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


def compute_double_td_target(
    reward: Float[Tensor, " batch"],
    end: Float[Tensor, " batch"],
    next_q: Float[Tensor, "batch actions"],
    online_q: Float[Tensor, "batch actions"],
    gamma: float,
) -> Float[Tensor, " batch"]:
    """The TD target y; `online_q` chooses the actions in the next states, `next_q` values them."""
    chosen = online_q.argmax(1, keepdim=True)
    return reward + gamma * (1 - end) * next_q.gather(1, chosen)[:, 0]  # (5)


def td_loss(
    q: Float[Tensor, "batch actions"],
    action: Int[Tensor, " batch"],
    td_target: Float[Tensor, " batch"],
) -> Float[Tensor, ""]:
    """Half the mean squared error of the values of the actions that were taken."""
    taken = q.gather(1, action[:, None])[:, 0]
    return (td_target.detach() - taken).square().mean() / 2  # (3)


class HuberTDLoss:
    """The TD loss with errors above `delta` counted in proportion: one wild target moves little."""

    def __init__(self, delta: float = 1.0) -> None:
        self.delta = delta

    def __call__(
        self,
        q: Float[Tensor, "batch actions"],
        action: Int[Tensor, " batch"],
        td_target: Float[Tensor, " batch"],
    ) -> Float[Tensor, ""]:
        e = (td_target.detach() - q.gather(1, action[:, None])[:, 0]).abs()
        loss = torch.where(e <= self.delta, e.square() / 2, self.delta * (e - self.delta / 2))
        return loss.mean()  # (6)


@torch.no_grad()
def update_target_network(
    target_network: nn.Module, q_network: nn.Module, due: Bool[Tensor, ""]
) -> None:
    """Copy the weights of the network of now into the target network where that is due."""
    for old, new in zip(target_network.parameters(), q_network.parameters(), strict=True):
        old.lerp_(new, due.to(old.dtype))  # (4), without asking the device whether it is due


class ReplayBuffer(nn.Module):
    """The last `capacity` transitions (s, a, r, s', end) of an environment, as a ring."""

    state: Tensor
    action: Tensor
    reward: Tensor
    next_state: Tensor
    end: Tensor

    def __init__(self, capacity: int, state_size: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(capacity, state_size, dtype=dtype))
        self.register_buffer("action", torch.zeros(capacity, dtype=torch.int64))
        self.register_buffer("reward", torch.zeros(capacity))
        self.register_buffer("next_state", torch.zeros(capacity, state_size, dtype=dtype))
        self.register_buffer("end", torch.zeros(capacity))

    def add(self, step: Int[Tensor, ""], *transition: Tensor) -> None:
        """Write the transitions of a step over the oldest: their place follows from the step."""
        count, capacity = len(transition[0]), len(self.action)
        place = (step * count + torch.arange(count, device=step.device)) % capacity
        for ring, new in zip(self.buffers(), transition, strict=True):
            ring[place] = new.to(ring.dtype)

    def sample(self, batch_size: int, added: Int[Tensor, ""]) -> tuple[Tensor, ...]:
        """Transitions drawn at random, with replacement; `added` is how many there have been."""
        filled = added.clamp(max=len(self.action))
        rows = torch.randint(2**62, (batch_size,), device=filled.device) % filled
        return tuple([ring[rows] for ring in self.buffers()])


class Playing(nn.Module):
    """What learning carries besides Q: target network, replay buffer and states of the games."""

    games: Tensor

    def __init__(
        self, q_network: nn.Module, games: Num[Tensor, "games size"], capacity: int
    ) -> None:
        super().__init__()
        self.target_network = copy.deepcopy(q_network).requires_grad_(False)
        self.replay_buffer = ReplayBuffer(capacity, games.shape[1], games.dtype)
        self.register_buffer("games", games.contiguous())


# -------- the network ends here; training and pictures follow --------

STARTS = 100
"""Games in each of the splits `valid` and `test`, from starts of their own."""
N = TypeVar("N", bound=nn.Module, default=nn.Module)


@dataclass(frozen=True, kw_only=True)
class DeepQ(Training[N, Playing], Generic[N]):
    """Learn to play a game from its rewards alone."""

    meanings: ClassVar[Mapping[str, str]] = {
        "mean_return": "the sum of the rewards of a game, without discount, mean over the games",
        **EPISODES,
    }

    batch_size: int = 64
    environments: int = 16
    """Games that are played at once, one move of each a step."""
    memory: int = 8192
    """Transitions that the replay buffer holds; as many as environments is no replay at all."""
    gamma: float = 0.95
    """Discount of a reward that is a step later."""
    epsilon: float = 0.1
    """Share of random actions in the end; it begins at 1."""
    explore: int = 2000
    """Steps over which the share of random actions falls."""
    target_every: int = 100
    """Steps between two updates of the target network."""
    hidden_size: int = 64
    """Units of a hidden layer."""

    overfits: ClassVar[bool] = False  # it gathers its own data: there is no batch to repeat
    writes: ClassVar[str] = "film"
    captured: ClassVar[bool] = True
    per_rank: ClassVar[bool] = True  # each process would have games and a buffer of its own
    speed: ClassVar[float] = 4  # moves a second in a film

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "environments", "explore", "target_every", "hidden_size")
        what = f"at least the {self.environments} environments, each of which adds one a step"
        self.require(self.memory >= self.environments, "memory", what)
        self.within(0, 1, "gamma", "epsilon")

    @property
    def game(self) -> Environment:
        """The rules."""
        raise NotImplementedError  # each game has its own

    @property
    def practice(self) -> Environment:
        """The rules of the games that are learned from; they may begin in other states."""
        return self.game

    def dataset(self) -> Data:
        """First states: those of `test` are others than those of `valid`."""
        valid, test = (
            self.game.reset(STARTS, seeded(self.seed, number)).contiguous() for number in (1, 2)
        )
        return Data({"valid": (valid,), "test": (test,)}, sampler=Made())

    def extra(self, model: N) -> Playing:
        return Playing(model, self.practice.reset(self.environments), self.memory)

    def exploration(self, step: Int[Tensor, ""]) -> Float[Tensor, ""]:
        """The share epsilon of random actions at update `step`."""
        return 1 + (self.epsilon - 1) * (step.double() / self.explore).clamp(max=1)

    def step(self, state: State[N, Playing], batch: Batch) -> Terms:
        """One move in every game, then one update from a minibatch of the replay buffer."""
        q_network, playing, clock = state.model, state.extra, state.clock
        update_target_network(playing.target_network, q_network, clock % self.target_every == 0)
        with torch.no_grad():
            self.play(playing, q_network, clock)
            added = (clock + 1) * self.environments
            s, action, reward, next_s, end = playing.replay_buffer.sample(self.batch_size, added)
            td_target = self.td_target(playing, q_network, reward, next_s, end)
        q = self.values(q_network, s)
        loss = self.loss(q, action, td_target)
        state.descend(loss, clip=self.clip, clip_value=self.clip_value)
        return {"td_error": loss, "_value": q.amax(1).mean()}

    def play(self, playing: Playing, q_network: N, step: Int[Tensor, ""]) -> None:
        """One move in every game into the replay buffer; a game that is over begins anew."""
        state = playing.games
        chance = torch.rand(self.environments, 2, device=state.device)
        action = choose_actions(self.values(q_network, state), self.exploration(step), chance)
        moved, following = self.practice.advance(state, action)
        playing.replay_buffer.add(step, state, action, moved.reward, moved.state, moved.end)
        playing.games.copy_(following)

    def td_target(
        self, playing: Playing, q_network: N, reward: Tensor, next_s: States, end: Tensor
    ) -> Float[Tensor, " batch"]:
        """What the values of the actions taken are to become."""
        next_q = self.values(playing.target_network, next_s)
        return compute_td_target(reward, end, next_q, self.gamma)

    def loss(
        self, q: Float[Tensor, "batch actions"], action: Int[Tensor, " batch"], td_target: Tensor
    ) -> Float[Tensor, ""]:
        return td_loss(q, action, td_target)

    def values(self, model: nn.Module, state: States) -> Float[Tensor, "games actions"]:
        """Q of states, in the precision of the network."""
        q: Tensor = model(self.game.observe(state).to(next(model.parameters()).dtype))
        return q

    def metrics(self, model: N, batch: Batch) -> dict[str, Tensor]:
        """A greedy game from each start."""
        played = play_greedily(self.game, lambda state: self.values(model, state), batch[0])
        return {"mean_return": played.returns}

    def final(
        self, model: N, data: Data, generator: torch.Generator, *, episodes: int = 100
    ) -> dict[str, float]:
        """The returns of greedy games from starts drawn anew."""
        place = next(model.parameters()).device
        return summarise_episodes(
            self.game, lambda state: self.values(model, state), episodes, generator, place
        )

    def sample(
        self, model: N, spec: Spec, generator: torch.Generator, *, episodes: int = 3
    ) -> plot.Film:
        """A film of greedy games from random starts, with the values of the actions."""
        place = next(model.parameters()).device
        return film(
            self.game, lambda state: self.values(model, state), episodes, generator,
            speed=self.speed, place=place,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PlayByState(DeepQ[StateQNetwork]):
    """Play a game whose state is a few numbers."""

    steps: int = 3000
    batch_size: int = 128
    schedule: str = "cosine"
    eval_every: int = 250
    environments: int = 8
    memory: int = 50_000
    gamma: float = 0.99
    epsilon: float = 0.04
    explore: int = 1000
    target_every: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.gamma < 1, "gamma", "below 1, because these games may go on for long")

    @property
    def scale(self) -> float:
        """The value of a reward of 1 at each step, for ever."""
        return 1 / (1 - self.gamma)

    def model(self, data: Data) -> StateQNetwork:
        inputs = self.game.observe(self.game.reset(1)).shape[1]
        return StateQNetwork(inputs, self.hidden_size, len(self.game.actions), self.scale)

    def loss(
        self, q: Float[Tensor, "batch actions"], action: Int[Tensor, " batch"], td_target: Tensor
    ) -> Float[Tensor, ""]:
        return HuberTDLoss(self.scale)(q, action, td_target)

    def strip_of_game(self, model: StateQNetwork, data: Data) -> tuple[Figure, float]:
        """Eight states of a greedy game from the first start of `valid`, and its moves."""
        start = data.splits["valid"][0][:1]
        played = play_greedily(self.game, lambda state: self.values(model, state), start)
        moves = int(played.lengths[0])
        times = torch.linspace(0, moves, 8).round().long()
        drawn = film_strip(
            self.game, played.states[times, 0], played.q[times[:-1], 0], times=times.tolist(),
            end=f"{moves} steps",
        )  # fmt: skip
        return drawn, float(moves)


@dataclass(frozen=True, kw_only=True)
class PlayCartPole(PlayByState):
    """Balance a pole on a cart, by position, angle and their velocities."""

    speed: ClassVar[float] = 50

    @property
    def game(self) -> CartPole:
        return CartPole()

    def picture_values(
        self, model: StateQNetwork, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """The value of the best action (left) and that action (right), the cart at rest.

        The line is a greedy game of {moves:.0f} steps. Where the pole leans to one side and falls
        to it, {after:.0%} of the states push to that side.
        """
        played = play_greedily(
            self.game, lambda state: self.values(model, state), data.splits["valid"][0][:1]
        )
        path = played.states[: int(played.lengths[0]) + 1, 0, 2:4]
        axes = Axis("angle of the pole, rad", -0.21, 0.21), Axis("its velocity, rad/s", -2, 2)
        theta, w = (axis.points().to(path) for axis in axes)
        grid = torch.cartesian_prod(w, theta).flip(1)  # rows of velocities
        rest = torch.zeros(len(grid), 5).to(path)
        rest[:, 2:4] = grid
        q = self.values(model, rest).view(len(w), len(theta), -1)
        drawn = value_map(q, axes, path, actions=self.game.actions)
        falls = torch.where(grid[:, 0] * grid[:, 1] > 0, grid[:, 0].sign(), 0)
        after = (q.flatten(0, 1).argmax(1) == (falls > 0).long())[falls != 0].double().mean()
        return drawn, {"moves": float(played.lengths[0]), "after": float(after)}

    def picture_episode(
        self, model: StateQNetwork, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """States of a greedy game of {moves:.0f} steps, and below the values of both pushes.

        Values near {most:.0f} say that the pole is expected to stand for good.
        """
        drawn, moves = self.strip_of_game(model, data)
        return drawn, {"moves": moves, "most": self.scale}

    def picture_learning(self, model: StateQNetwork, data: Data, history: History) -> Figure:
        """The return of greedy games from 100 starts that are not those of the test, by step.

        The weights with the highest are kept; it falls back at times, because targets move.
        """
        return returns_by_step(history, {"the most there is": self.game.limit})


def returns_by_step(history: History, levels: Mapping[str, float]) -> Figure:
    """The mean return of greedy games at each evaluation."""
    return plot.panels(
        plot.Panel(
            {"greedy play": plot.logged_curves(history, "valid")["mean_return"]},
            xlabel="step",
            ylabel="mean return of 100 games",
            levels=levels,
            legend="below",
        )
    )


@dataclass(frozen=True, kw_only=True)
class DoubleCartPole(PlayCartPole):
    """Balance a pole, with the maximum of the target split between two networks."""

    def td_target(
        self, playing: Playing, q_network: StateQNetwork, reward: Tensor, next_s: States,
        end: Tensor,
    ) -> Float[Tensor, " batch"]:  # fmt: skip
        next_q = self.values(playing.target_network, next_s)
        online_q = self.values(q_network, next_s)
        return compute_double_td_target(reward, end, next_q, online_q, self.gamma)


@dataclass(frozen=True, kw_only=True)
class PlayMountainCar(PlayByState):
    """Drive a weak car out of a valley, by its position and velocity; each step costs 1.

    Practice games begin anywhere: a car at the bottom that acts at random hardly ever gets out, and
    what is not seen is not learned. Those of validation and test begin at the bottom.
    """

    steps: int = 10_000
    batch_size: int = 256
    lr: float = 3e-3

    speed: ClassVar[float] = 30

    @property
    def game(self) -> MountainCar:
        return MountainCar()

    @property
    def practice(self) -> MountainCarAnywhere:
        return MountainCarAnywhere()

    def picture_values(
        self, model: StateQNetwork, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """The value of the best action (left) and that action (right) in every state.

        The line is a greedy game of {moves:.0f} steps from the bottom, in which the car turns back
        {turns:.0f} times.
        """
        played = play_greedily(
            self.game, lambda state: self.values(model, state), data.splits["valid"][0][:1]
        )
        path = played.states[: int(played.lengths[0]) + 1, 0, :2]
        axes = Axis("position", -1.2, 0.6), Axis("velocity, a step", -0.07, 0.07)
        x, v = (axis.points().to(path) for axis in axes)
        grid = torch.cartesian_prod(v, x).flip(1)  # rows of velocities
        q = self.values(model, torch.cat([grid, torch.zeros_like(grid[:, :1])], 1))
        drawn = value_map(q.view(len(v), len(x), -1), axes, path, actions=self.game.actions)
        turns = (path[1:, 1] * path[:-1, 1] < 0).sum()
        return drawn, {"moves": float(played.lengths[0]), "turns": float(turns)}

    def picture_episode(
        self, model: StateQNetwork, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """States of a greedy game of {moves:.0f} steps, and below the values of the actions.

        A value is minus the steps that are left, each counted {gamma:g} times the one before.
        """
        drawn, moves = self.strip_of_game(model, data)
        return drawn, {"moves": moves, "gamma": self.gamma}

    def picture_learning(
        self, model: StateQNetwork, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """The return of greedy games from 100 starts that are not those of the test, by step.

        A car that does not get out has {least:.0f}; the weights with the highest return are kept.
        """
        least = -float(self.game.limit)
        return returns_by_step(history, {"never out": least}), {"least": least}


@dataclass(frozen=True, kw_only=True)
class PlayCatch(DeepQ[QNetwork]):
    """Learn to catch a falling ball from images and from the reward alone."""

    meanings: ClassVar[Mapping[str, str]] = {
        "mean_return": "the mean reward of a game: 1 where the ball is caught, -1 where not",
        **EPISODES,
        "caught": "the share of games in which the ball is caught",
        "value_error": "mean absolute error of the learned values of states",
    }

    steps: int = 6000
    schedule: str = "cosine"
    eval_every: int = 200
    height: int = 10
    """Rows of the grid; the paddle is on the lowest."""
    width: int = 5
    """Columns of the grid."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(2, "height", "width")

    @property
    def game(self) -> Catch:
        """The rules with these sizes."""
        return Catch(self.height, self.width)

    def dataset(self) -> Data:
        """No split: there are so few starts that all of them are played."""
        return Data.none()

    def model(self, data: Data) -> QNetwork:
        return QNetwork(self.height, self.width, len(self.game.actions), self.hidden_size)

    def extra(self, model: QNetwork) -> Playing:
        states = self.game.states()  # games begin anywhere, so that they do not all end together
        games = states[torch.randint(len(states), (self.environments,))]
        return Playing(model, games, self.memory)

    def metrics(self, model: QNetwork, batch: Batch) -> dict[str, Tensor]:
        """Greedy play from every first state, so that the means are exact; errors of all states."""
        starts = self.game.first_states().to(next(model.parameters()).device)
        reward = play_greedily(self.game, lambda state: self.values(model, state), starts).returns
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
        return self.values(model, states).double().cpu()

    def picture_policy(self, model: QNetwork, data: Data, history: History) -> Figure:
        """The value of each state, and an arrow for the best action where the choice matters.

        A high ball leaves time for any action; a low one calls the paddle to its column.
        """
        q = self.all_values(model).view(
            self.height - 1, self.width, self.width, len(self.game.actions)
        )
        return policy_maps(q, arrows=self.game.arrows)

    def picture_episode(
        self, model: QNetwork, data: Data, history: History
    ) -> tuple[Figure, dict[str, str]]:
        """One greedy game, and under each frame the values of the three actions.

        They part once a wrong step would lose the ball, which is {end} here.
        """
        place = next(model.parameters()).device
        start = torch.tensor([[0, self.width - 1, 0]], device=place)
        played = play_greedily(self.game, lambda state: self.values(model, state), start)
        end = self.game.outcome(float(played.returns[0]))
        return film_strip(self.game, played.states[:, 0], played.q[:, 0], end=end), {"end": end}

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
    "dqn": PlayCartPole(goal="mean_return >= 475", covers=("Q5", "Q6")),
    "double-dqn": DoubleCartPole(goal="mean_return >= 475", covers=("Q5",)),
    "dqn-mountain-car": PlayMountainCar(goal="mean_return >= -120", covers=("Q5", "Q6")),
    "catch": PlayCatch(goal="caught >= 0.99 and value_error <= 0.05", covers=("Q7",)),
}
