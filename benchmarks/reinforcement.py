"""Reinforcement learning beside the peers.

    python benchmarks/reinforcement.py                 the tables of benchmarks/RESULTS.md
    python benchmarks/reinforcement.py --part games    one part
    python benchmarks/reinforcement.py --repeats 1     a quick look, written nowhere

Games: the time of a million steps of CartPole with random pushes, games that are over beginning
anew; ours plays 4,096 at once, Gymnasium's own vector form 64 or 4,096.

Tables: a million steps of Q-learning on slippery FrozenLake at gamma 0.95, as Gymnasium's
documentation plays it, a step at a time, and in our compiled loop; the note is the largest error of
a value. The peer does a tenth of the steps, and its time is scaled up.

CartPole: seconds until the greedy policy has a mean return of 475 or more over 20 games that are
not learned from, the median of five seeds, each run in the first turn; looks at it are part of the
time. stable-baselines3 learns with the settings that its zoo publishes for CartPole-v1.
"""

import importlib.metadata
import statistics
import sys
import time
from collections.abc import Callable

from side_by_side import Contestant, Job, Page, Turn, arguments

STEPS = 1_000_000
SEEDS = 5
ENOUGH, GAMES = 475, 20
REACH_GAMES, REACH_TABLE, REACH_DQN = 20.0, 20.0, 3.0
PUBLISHED = {
    "learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000, "learning_starts": 1000,
    "gamma": 0.99, "target_update_interval": 10, "train_freq": 256, "gradient_steps": 128,
    "exploration_fraction": 0.16, "exploration_final_eps": 0.04,
    "policy_kwargs": {"net_arch": [256, 256]},
}  # fmt: skip
"""hyperparams/dqn.yml of rl-baselines3-zoo, CartPole-v1: 50,000 steps."""


def ours() -> str:
    """The distribution of everynet; none where src is on the path, and that is enough."""
    try:
        return importlib.metadata.version("everynet") and "everynet"
    except importlib.metadata.PackageNotFoundError:
        return ""


# ------------------------------------------------------------------------------------------ games


def games_with_everynet(job: Job) -> Callable[[], Turn]:
    import torch

    from everynet.zoo.reinforcement.environments import CartPole

    games, game = 4096, CartPole()
    state = game.reset(games)

    def play() -> Turn:
        nonlocal state
        action = torch.randint(2, (games,))
        start, ended = time.perf_counter(), torch.zeros((), dtype=torch.int64)
        for _ in range(STEPS // games):
            moved, state = game.advance(state, action)
            ended += moved.over.sum()
        seconds = (time.perf_counter() - start) * STEPS / (STEPS // games * games)
        return Turn(seconds, f"{STEPS / seconds / 1e6:.1f} million steps/s, {ended} games ended")

    play()
    return play


def games_with_gymnasium(job: Job, games: int) -> Callable[[], Turn]:
    import gymnasium
    import numpy as np

    envs = gymnasium.make_vec("CartPole-v1", games, vectorization_mode="vector_entry_point")
    envs.reset(seed=0)
    draw = np.random.default_rng(0)

    def play() -> Turn:
        action, ended = draw.integers(0, 2, games), 0
        start = time.perf_counter()
        for _ in range(STEPS // games):
            _, _, end, cut, _ = envs.step(action)
            ended += int((end | cut).sum())
        seconds = (time.perf_counter() - start) * STEPS / (STEPS // games * games)
        return Turn(seconds, f"{STEPS / seconds / 1e6:.2f} million steps/s, {ended} games ended")

    return play


def players() -> list[Contestant]:
    """Ours first."""
    gymnasium = ("gymnasium", "gymnasium")
    return [
        Contestant(
            "everynet CartPole, 4,096 games", games_with_everynet,
            "everynet.zoo.reinforcement.environments", ours(),
        ),
        Contestant(
            "gymnasium vector, 64 games", lambda job: games_with_gymnasium(job, 64), *gymnasium,
            reach=REACH_GAMES,
        ),
        Contestant(
            "gymnasium vector, 4,096 games", lambda job: games_with_gymnasium(job, 4096),
            *gymnasium,
        ),
    ]  # fmt: skip


# ----------------------------------------------------------------------------------------- tables


def error_of(q: object) -> str:
    from everynet.zoo.reinforcement.bellman import PolicyIteration
    from everynet.zoo.reinforcement.environments import MAPS

    world = MAPS["frozen-lake"]
    exact = PolicyIteration(0.95).fit(world).q_
    return f"largest error {float((exact - q)[world.open].abs().max()):.3f}"


def table_with_everynet(job: Job) -> Callable[[], Turn]:
    from everynet.zoo.reinforcement.environments import MAPS
    from everynet.zoo.reinforcement.q_learning import QLearning

    world = MAPS["frozen-lake"]
    QLearning(steps=10).fit(world)  # compiles, or loads what was compiled
    return lambda: Turn(note=error_of(QLearning(steps=STEPS).fit(world).q_))


def table_with_gymnasium(job: Job) -> Callable[[], Turn]:
    import gymnasium
    import numpy as np

    def learn() -> Turn:
        env = gymnasium.make("FrozenLake-v1", is_slippery=True)
        draw, steps = np.random.default_rng(0), STEPS // 10
        q, visits = np.zeros((16, 4)), np.zeros((16, 4))
        start = time.perf_counter()
        state, _ = env.reset(seed=0)
        for step in range(steps):
            epsilon = 1 - 0.9 * min(1.0, step / 10_000)
            explore = draw.random() < epsilon
            action = int(draw.integers(4)) if explore else int(np.argmax(q[state]))
            following, reward, end, cut, _ = env.step(action)
            target = reward + (0.0 if end else 0.95 * q[following].max())
            visits[state, action] += 1
            alpha = visits[state, action] ** -0.7
            q[state, action] += alpha * (target - q[state, action])
            state = env.reset()[0] if end or cut else following
        seconds = time.perf_counter() - start
        return Turn(seconds * STEPS / steps, f"{steps:,} steps; {error_of(q)}")

    return learn


def tables() -> list[Contestant]:
    """Ours first."""
    return [
        Contestant(
            "everynet QLearning", table_with_everynet, "everynet.zoo.reinforcement.q_learning",
            ours(),
        ),
        Contestant(
            "Python loop over gymnasium", table_with_gymnasium, "gymnasium", "gymnasium",
            reach=REACH_TABLE,
        ),
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------- CartPole


def median_of_seeds(learn: Callable[[int], tuple[float, int]]) -> Callable[[], Turn]:
    """A turn whose time is the median over the seeds; they are run once."""
    found: list[tuple[float, int]] = []

    def turn() -> Turn:
        if not found:
            found.extend(learn(seed) for seed in range(SEEDS))
        each = ", ".join(f"{seconds:.1f}" for seconds, _ in found)
        steps = statistics.median(steps for _, steps in found)
        median = statistics.median(seconds for seconds, _ in found)
        return Turn(median, f"{each} s; {steps:,.0f} moves")

    return turn


def dqn_with_everynet(job: Job) -> Callable[[], Turn]:
    from dataclasses import replace

    from everynet.training.device import choose
    from everynet.training.loop import begin, train
    from everynet.zoo.reinforcement.dqn import RECIPES
    from everynet.zoo.reinforcement.episodes import play_greedily

    def learn(seed: int) -> tuple[float, int]:
        recipe = replace(RECIPES["dqn"], seed=seed)
        setup = choose("cpu", "fp32")
        start = time.perf_counter()
        data = recipe.dataset()
        state = begin(recipe, data, setup)
        games = data.splits["valid"][0][:GAMES]
        for record in train(recipe, state, data, setup=setup):
            if record.step % recipe.eval_every == 0:
                played = play_greedily(recipe.game, lambda s: recipe.values(state.model, s), games)
                if played.returns.mean() >= ENOUGH:
                    return time.perf_counter() - start, record.step * recipe.environments
        return float("inf"), recipe.steps * recipe.environments

    return median_of_seeds(learn)


def dqn_with_stable_baselines(job: Job) -> Callable[[], Turn]:
    import gymnasium
    from stable_baselines3 import DQN
    from stable_baselines3.common.callbacks import EvalCallback, StopTrainingOnRewardThreshold
    from stable_baselines3.common.monitor import Monitor

    def learn(seed: int) -> tuple[float, int]:
        stop = StopTrainingOnRewardThreshold(ENOUGH)
        test = Monitor(gymnasium.make("CartPole-v1"))
        look = EvalCallback(
            test, stop, n_eval_episodes=GAMES, eval_freq=2000, verbose=0, warn=False
        )
        start = time.perf_counter()
        env = gymnasium.make("CartPole-v1")
        model = DQN("MlpPolicy", env, seed=seed, device="cpu", **PUBLISHED)
        model.learn(50_000, callback=look)
        seconds = time.perf_counter() - start
        reached = look.best_mean_reward >= ENOUGH
        return (seconds if reached else float("inf")), model.num_timesteps

    return median_of_seeds(learn)


def balancers() -> list[Contestant]:
    """Ours first."""
    return [
        Contestant("everynet dqn", dqn_with_everynet, "everynet.zoo.reinforcement.dqn", ours()),
        Contestant(
            "stable-baselines3 DQN", dqn_with_stable_baselines, "stable_baselines3",
            "stable_baselines3", reach=REACH_DQN,
        ),
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------ parts


def play_games(page: Page) -> None:
    for threads in (1, 2):
        title = f"A million steps of CartPole, {threads} thread{'s' * (threads > 1)}"
        page.round(title, players(), {"threads": threads})
    page.close("Games at once", f"Best of {page.given.repeats} alternating turns.", part="games")


def learn_tables(page: Page) -> None:
    page.round("A million steps of Q-learning, 1 thread", tables(), {"threads": 1})
    about = f"Slippery FrozenLake; best of {page.given.repeats} alternating turns."
    page.close("Tabular Q-learning", about, part="tables")


def balance_poles(page: Page) -> None:
    title = f"To a mean return of {ENOUGH}, 1 thread"
    page.round(title, balancers(), {"threads": 1})
    page.close("Deep Q-learning", f"CartPole-v1; median of {SEEDS} seeds.", part="dqn")


CONTESTANTS = {"games": players, "tables": tables, "dqn": balancers}
PARTS = {"games": play_games, "tables": learn_tables, "dqn": balance_poles}


def main() -> None:
    everyone = [one for named in CONTESTANTS.values() for one in named()]
    given = arguments(__doc__.splitlines()[0], everyone, repeats=5)
    page = Page("reinforcement", __file__, given)
    for name, part in PARTS.items():
        if given.part in ("", name):
            part(page)


if __name__ == "__main__":
    sys.exit(main())
