"""Environments: thousands of games that are played at once, the whole state of all one tensor.

A cart on a track is pushed so that the pole on it does not fall:

    p = (F + m l w^2 sin theta) / M                                        (1)  push
    dw/dt = (g sin theta - p cos theta) / (l (4/3 - m cos^2 theta / M))    (2)  the pole turns
    dv/dt = p - m l dw/dt cos theta / M                                    (3)  the cart moves
    x, v, theta, w  <-  each + tau times its slope (v, dv/dt, w, dw/dt)    (4)  Euler's step

A car in a valley is too weak to drive straight up, and has to swing:

    v <- clip(v + 0.001 (a - 1) - 0.0025 cos 3x, -0.07, 0.07)              (5)  velocity
    x <- clip(x + v, -1.2, 0.6)                                            (6)  position

In a grid world each action leads to a neighbouring cell:

    P(go b | a) = 1 - slip for b = a, slip / 2 for each b at right angles  (7)  slippery ground
    P(s' | s, a) = sum_b P(go b | a) [b leads from s to s']                (8)  transitions
    r(s, a) = sum_b P(go b | a) r(s, b)                                    (9)  expected reward

F is -10 N or 10 N, m and l are mass and half the length of the pole, M is the mass of both, theta
is the angle from upright, w its velocity, x the position and v its velocity; tau is 0.02 s; a is
0, 1 or 2. Where a game ends nothing follows: P leaves out such transitions, so that its rows may
sum to less than 1. A game that ended differs from one that was cut off at `limit` steps: the states
of that would have had a value. In Catch a ball falls by a row a step, and a paddle on the lowest
row goes left, stays or goes right; the reward is 1 if the ball lands on it, -1 if beside it.

Barto, Sutton and Anderson (1983), "Neuronlike adaptive elements that can solve difficult learning
control problems", doi:10.1109/TSMC.1983.6313077; Moore (1990), "Efficient memory-based learning for
robot control", section 4.3. The rules are those of Gymnasium, arXiv:2407.17032.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Num
from torch import Tensor
from torch.nn.functional import one_hot

from everynet.kernels import cart_pole
from everynet.system import sources
from everynet.system.errors import UserError
from everynet.system.wording import shown

States = Num[Tensor, "games size"]


class Moved(NamedTuple):
    """What a step leads to in each game."""

    state: States
    reward: Float[Tensor, " games"]
    end: Bool[Tensor, " games"]
    """Whether the rules end the game: nothing follows."""
    over: Bool[Tensor, " games"]
    """Whether it is over, be it at its end or because it was cut off."""


@dataclass(frozen=True)
class Environment:
    """Rules: `reset` gives first states, `step` what follows. Neither keeps anything."""

    actions: ClassVar[tuple[str, ...]]
    arrows: ClassVar[tuple[str, ...]]
    """The actions as single signs, for pictures."""

    def reset(
        self, games: int, generator: torch.Generator | None = None, device: torch.device | str = ""
    ) -> States:
        """First states, drawn at random, on the device of the generator or the one given."""
        raise NotImplementedError  # each game has its own

    def step(
        self,
        state: States,
        action: Int[Tensor, " games"],
        generator: torch.Generator | None = None,
    ) -> Moved:
        """One move in every game."""
        raise NotImplementedError  # each game has its own

    def observe(self, state: States) -> Float[Tensor, "games ..."]:
        """What a network is given of the states."""
        raise NotImplementedError  # each game has its own

    def outcome(self, value: float) -> str:
        """How a game with this return went, in a word or two."""
        return f"return {value:.3g}"

    def advance(
        self,
        state: States,
        action: Int[Tensor, " games"],
        generator: torch.Generator | None = None,
    ) -> tuple[Moved, States]:
        """A move in every game, and the states to go on from: one that is over begins anew."""
        fresh = self.reset(len(state), generator, state.device)
        moved = self.step(state, action, generator)
        return moved, torch.where(moved.over[:, None], fresh, moved.state)


def _uniform(
    low: float, high: float, shape: tuple[int, ...], generator: torch.Generator | None,
    device: torch.device | str,
) -> Tensor:  # fmt: skip
    where = device or (generator.device if generator else "cpu")
    return torch.empty(shape, device=where).uniform_(low, high, generator=generator)


# --------------------------------------------------------------------------------------- control


@dataclass(frozen=True)
class CartPole(Environment):
    """The cart with a pole; a state is (x, v, theta, w, steps so far), and each step gives 1."""

    limit: int = 500
    """Steps after which a game is cut off."""

    actions: ClassVar[tuple[str, ...]] = ("left", "right")
    arrows: ClassVar[tuple[str, ...]] = ("\u2190", "\u2192")
    FARTHEST: ClassVar[float] = 2.4  # m from the middle of the track
    STEEPEST: ClassVar[float] = math.radians(12)

    def reset(
        self, games: int, generator: torch.Generator | None = None, device: torch.device | str = ""
    ) -> Float[Tensor, "games 5"]:
        """Nearly at rest in the middle."""
        state = _uniform(-0.05, 0.05, (5, games), generator, device)
        state[4] = 0
        return state.T

    def step(
        self,
        state: Float[Tensor, "games 5"],
        action: Int[Tensor, " games"],
        generator: torch.Generator | None = None,
    ) -> Moved:
        compiled = state.device.type == "cpu"
        after = cart_pole.step_carts(state, action) if compiled else self.by_tensors(state, action)
        end = (after[:, 0].abs() > self.FARTHEST) | (after[:, 2].abs() > self.STEEPEST)
        return Moved(after, torch.ones_like(after[:, 0]), end, end | (after[:, 4] >= self.limit))

    def by_tensors(
        self, state: Float[Tensor, "games 5"], action: Int[Tensor, " games"]
    ) -> Float[Tensor, "games 5"]:
        """The state after a step, by whole tensors; the compiled loop computes the same."""
        g, mass, m, length = cart_pole.GRAVITY, cart_pole.MASS, cart_pole.POLE, 0.5
        x, v, theta, w, time = state.unbind(1)
        sine, cosine = theta.sin(), theta.cos()
        force = (2 * action - 1) * cart_pole.FORCE
        p = (force + m * length * w.square() * sine) / mass  # (1)
        turn = (g * sine - p * cosine) / (length * (4 / 3 - m * cosine.square() / mass))  # (2)
        shift = p - m * length * turn * cosine / mass  # (3)
        slope = torch.stack([v, shift, w, turn])
        after = torch.stack([x, v, theta, w]) + cart_pole.TAU * slope  # (4)
        return torch.cat([after, time[None] + 1]).T  # games 5, each column in one piece

    def observe(self, state: Float[Tensor, "games 5"]) -> Float[Tensor, "games 4"]:
        """Position, angle and their velocities, each from about -1 to 1."""
        x, v, theta, w, _ = state.unbind(1)
        return torch.stack([x / self.FARTHEST, v / 2, theta / self.STEEPEST, w / 2], 1)


@dataclass(frozen=True)
class MountainCar(Environment):
    """The car in a valley; a state is (x, v, steps so far), and each step costs 1."""

    limit: int = 200
    """Steps after which a game is cut off."""

    actions: ClassVar[tuple[str, ...]] = ("back", "roll", "forward")
    arrows: ClassVar[tuple[str, ...]] = ("\u2190", "\u2022", "\u2192")
    LEFT, RIGHT, TOP, FASTEST = -1.2, 0.6, 0.5, 0.07

    def reset(
        self, games: int, generator: torch.Generator | None = None, device: torch.device | str = ""
    ) -> Float[Tensor, "games 3"]:
        """At rest near the lowest place."""
        state = _uniform(-0.6, -0.4, (3, games), generator, device)
        state[1:] = 0
        return state.T

    def step(
        self,
        state: Float[Tensor, "games 3"],
        action: Int[Tensor, " games"],
        generator: torch.Generator | None = None,
    ) -> Moved:
        x, v, time = state.unbind(1)
        v = v + 0.001 * (action.to(v.dtype) - 1) - 0.0025 * (3 * x).cos()
        v = v.clamp(-self.FASTEST, self.FASTEST)  # (5)
        x = (x + v).clamp(self.LEFT, self.RIGHT)  # (6)
        v = torch.where((x == self.LEFT) & (v < 0), 0.0, v)  # a wall stops the car
        end = (x >= self.TOP) & (v >= 0)
        after = torch.stack([x, v, time + 1]).T
        return Moved(after, -torch.ones_like(x), end, end | (time + 1 >= self.limit))

    def observe(self, state: Float[Tensor, "games 3"]) -> Float[Tensor, "games 2"]:
        """Position and velocity, each from about -1 to 1."""
        x, v, _ = state.unbind(1)
        return torch.stack([(x + 0.3) / 0.9, v / self.FASTEST], 1)


@dataclass(frozen=True)
class MountainCarAnywhere(MountainCar):
    """The same valley for practice: a game begins at any place below the top and at any speed."""

    def reset(
        self, games: int, generator: torch.Generator | None = None, device: torch.device | str = ""
    ) -> Float[Tensor, "games 3"]:
        chance = _uniform(0, 1, (3, games), generator, device)
        place = self.LEFT + (self.TOP - self.LEFT) * chance[0]
        speed = self.FASTEST * (2 * chance[1] - 1)
        return torch.stack([place, speed, torch.zeros_like(place)]).T


# ----------------------------------------------------------------------------------------- Catch


@dataclass(frozen=True)
class Catch(Environment):
    """The falling ball; a state is (row of the ball, its column, column of the paddle)."""

    height: int = 10
    width: int = 5

    actions: ClassVar[tuple[str, ...]] = ("left", "stay", "right")
    arrows: ClassVar[tuple[str, ...]] = ("\u2190", "\u2022", "\u2192")

    def begin(self, ball: Int[Tensor, " games"], paddle: Int[Tensor, " games"]) -> Tensor:
        """The first state: the ball on the top row."""
        return torch.stack([torch.zeros_like(ball), ball, paddle], 1)

    def reset(
        self, games: int, generator: torch.Generator | None = None, device: torch.device | str = ""
    ) -> Int[Tensor, "games 3"]:
        where = device or (generator.device if generator else "cpu")
        columns = torch.randint(self.width, (2, games), generator=generator, device=where)
        return self.begin(*columns)

    def step(
        self,
        state: Int[Tensor, "games 3"],
        action: Int[Tensor, " games"],
        generator: torch.Generator | None = None,
    ) -> Moved:
        row, ball, paddle = state.unbind(1)
        paddle = (paddle + action - 1).clamp(0, self.width - 1)
        end = row + 1 == self.height - 1
        reward = torch.where(end, torch.where(ball == paddle, 1.0, -1.0), 0.0)
        return Moved(torch.stack([row + 1, ball, paddle], 1), reward, end, end)

    def outcome(self, value: float) -> str:
        return "caught" if value > 0 else "missed"

    def observe(self, state: Int[Tensor, "games 3"]) -> Float[Tensor, "games 1 height width"]:
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
        q = torch.zeros(self.height - 1, self.width, self.width, 3, dtype=torch.float64)
        states = self.states()
        for row in reversed(range(self.height - 1)):
            here = states[states[:, 0] == row]
            for action in range(3):
                after, reward, _, _ = self.step(here, torch.full((len(here),), action))
                later = torch.zeros(len(here), dtype=torch.float64)
                if row + 1 < self.height - 1:
                    next_q = q[after[:, 0], after[:, 1], after[:, 2]]
                    later = gamma * (next_q.mean(1) if random else next_q.amax(1))
                q[row, here[:, 1], here[:, 2], action] = reward.double() + later
        return q


# ------------------------------------------------------------------------------------ grid worlds

START, FLOOR, GOAL, SMALL_GOAL, HOLE, CLIFF, WALL = "S.GgHC#"
CELLS = {
    START: "start", FLOOR: "floor", "F": "floor", GOAL: "goal", SMALL_GOAL: "small goal",
    HOLE: "hole", CLIFF: "cliff", WALL: "wall",
}  # fmt: skip
"""The characters of a map. Goals and holes end the game; from a cliff it goes back to the start."""
MOST_CELLS = 1024  # of a map: P has their square


@dataclass(frozen=True)
class GridWorld(Environment):
    """A map of cells; a state is (cell, steps so far), the cells counted row by row."""

    rows: tuple[str, ...]
    slip: float = 0.0
    """Probability that a step goes sideways, half of it to each side."""
    step_reward: float = 0.0
    goal_reward: float = 1.0
    limit: int = 100
    """Steps after which a game is cut off."""

    actions: ClassVar[tuple[str, ...]] = ("left", "down", "right", "up")
    arrows: ClassVar[tuple[str, ...]] = ("\u2190", "\u2193", "\u2192", "\u2191")
    MOVES: ClassVar[tuple[tuple[int, int], ...]] = ((0, -1), (1, 0), (0, 1), (-1, 0))

    @cached_property
    def cells(self) -> str:
        return "".join(self.rows)

    @cached_property
    def starts(self) -> Int[Tensor, " starts"]:
        """The cells where a game may begin, each as likely as another."""
        return torch.tensor([i for i, cell in enumerate(self.cells) if cell == START])

    @cached_property
    def open(self) -> Bool[Tensor, " cells"]:
        """Where there is something to do."""
        return torch.tensor([cell in (START, FLOOR, "F") for cell in self.cells])

    @cached_property
    def tables(
        self,
    ) -> tuple[
        Int[Tensor, "cells 4"], Float[Tensor, "cells 4"], Bool[Tensor, "cells 4"]
    ]:  # where a step in each direction leads, what it gives, and whether it ends the game
        width, height = len(self.rows[0]), len(self.rows)
        after = torch.arange(len(self.cells))[:, None].repeat(1, 4)
        reward = torch.zeros(after.shape, dtype=torch.float64)
        end = torch.ones(after.shape, dtype=torch.bool)
        for cell in self.open.nonzero()[:, 0].tolist():
            for direction, (down, right) in enumerate(self.MOVES):
                row = min(max(cell // width + down, 0), height - 1)
                column = min(max(cell % width + right, 0), width - 1)
                entered = self.rows[row][column]
                there = {WALL: cell, CLIFF: int(self.starts[0])}.get(entered, row * width + column)
                prize = {GOAL: 1.0, SMALL_GOAL: 0.1}.get(entered, 0.0) * self.goal_reward
                after[cell, direction] = there
                reward[cell, direction] = -100.0 if entered == CLIFF else self.step_reward + prize
                end[cell, direction] = entered in (GOAL, SMALL_GOAL, HOLE)
        return after, reward, end

    @cached_property
    def turns(self) -> Float[Tensor, "4 4"]:
        """The probability of going in each direction (columns) after each action (rows)."""
        straight = (1 - self.slip) * torch.eye(4, dtype=torch.float64)
        sideways = self.slip / 2 * (1 - torch.eye(4, dtype=torch.float64))
        sideways[range(4), [2, 3, 0, 1]] = 0  # never backwards
        return straight + sideways  # (7)

    @cached_property
    def transitions(self) -> Float[Tensor, "cells 4 cells"]:
        """P of each next cell from which the game goes on."""
        after, _, end = self.tables
        leads = one_hot(after, len(self.cells)).double() * ~end[..., None]  # cells direction cells
        return torch.einsum("ab,sbt->sat", self.turns, leads)  # (8)

    @cached_property
    def rewards(self) -> Float[Tensor, "cells 4"]:
        """The expected reward of each action in each cell."""
        return self.tables[1] @ self.turns.T  # (9)

    def reset(
        self, games: int, generator: torch.Generator | None = None, device: torch.device | str = ""
    ) -> Int[Tensor, "games 2"]:
        where = device or (generator.device if generator else "cpu")
        chosen = torch.randint(len(self.starts), (games,), generator=generator, device=where)
        cell = self.starts.to(where)[chosen]
        return torch.stack([cell, torch.zeros_like(cell)], 1)

    def step(
        self,
        state: Int[Tensor, "games 2"],
        action: Int[Tensor, " games"],
        generator: torch.Generator | None = None,
    ) -> Moved:
        chance = torch.rand(len(state), generator=generator, device=state.device)
        return self.move(state, action, chance)

    def move(
        self,
        state: Int[Tensor, "games 2"],
        action: Int[Tensor, " games"],
        chance: Float[Tensor, " games"],
    ) -> Moved:
        """The step, given a number from 0 to 1 for each game that says where it slips."""
        after, reward, end = (table.to(state.device) for table in self.tables)
        side = (chance >= self.slip / 2).long() + (chance >= 1 - self.slip / 2).long() - 1
        direction = (action + side) % 4
        cell, time = state[:, 0], state[:, 1] + 1
        ends = end[cell, direction]
        following = torch.stack([after[cell, direction], time], 1)
        return Moved(following, reward[cell, direction], ends, ends | (time >= self.limit))

    def observe(self, state: Int[Tensor, "games 2"]) -> Float[Tensor, "games cells"]:
        return one_hot(state[:, 0], len(self.cells)).to(torch.get_default_dtype())


FROZEN_LAKE = ("SFFF", "FHFH", "FFFH", "HFFG")
MAPS: dict[str, GridWorld] = {
    "grid-world": GridWorld(
        ("......G", ".##.#H.", ".#....#", ".#.##.#", "S......"), slip=0.2, step_reward=-0.04
    ),
    "frozen-lake": GridWorld(FROZEN_LAKE, slip=2 / 3),
    "frozen-lake-firm": GridWorld(FROZEN_LAKE),
    "cliff": GridWorld(("." * 12,) * 3 + ("SCCCCCCCCCCG",), step_reward=-1, goal_reward=0),
    "deceptive-chain": GridWorld(("gS......G",)),
}
"""Maps by name."""


def find_map(name: str, setting: str = "map") -> GridWorld:
    """A map by its name, or one's own from a text file, a line for each row of cells."""
    if name in MAPS:
        return MAPS[name]
    path, known = Path(name), ", ".join(MAPS)
    if not path.is_file():
        raise UserError(
            f"{setting} ({shown(name)}) must be a text file with a line for each row of cells, or "
            f"one of {known}"
        )
    if path.stat().st_size > 8 * MOST_CELLS:
        raise UserError(f"{setting} ({shown(name)}) must have at most {MOST_CELLS:,} cells")
    content = path.read_bytes()
    sources.note(name, sources.digest_of(path, setting))
    lines = content.decode("utf-8", "replace").splitlines()
    return GridWorld(_checked([line.strip() for line in lines if line.strip()], name, setting))


def _checked(rows: list[str], name: str, setting: str) -> tuple[str, ...]:
    """The rows of a map in which a game can begin and be won."""
    where = f"{setting} ({shown(name)})"
    for number, row in enumerate(rows, 1):
        for column, cell in enumerate(row, 1):
            if cell not in CELLS:
                words = ", ".join(f"{sign} {what}" for sign, what in CELLS.items())
                raise UserError(
                    f"{where} has {shown(cell)} in row {number}, column {column}, which is no "
                    f"cell; a map has {words}"
                )
        if len(row) != len(rows[0]):
            raise UserError(
                f"{where} has {len(row)} cells in row {number} and {len(rows[0])} in row 1; a map "
                "is a rectangle: fill up with #, a wall"
            )
    for cell in (START, GOAL):
        if not any(cell in row for row in rows):
            raise UserError(f"{where} must have a {CELLS[cell]}; write {cell} in at least one cell")
    if len(rows) * len(rows[0]) > MOST_CELLS:
        raise UserError(f"{where} must have at most {MOST_CELLS:,} cells")
    return tuple(rows)
