"""Updates of whole recipes on a GPU, as one graph and eagerly, and games of CartPole.

    EVERYNET_DATA=... python benchmarks/updates_gpu.py     a section of RESULTS.md
    python benchmarks/updates_gpu.py vae-mnist             that recipe alone, and the games
    python benchmarks/updates_gpu.py --rehearse            tiny networks anywhere, written nowhere

An update is all that the trainer does between two records. The operations of forward and backward
are counted by torch, and their rate is set beside that of one large matrix product in the same
precision: what no network can exceed. CartPole is played with random pushes, games that are over
beginning anew, a step of all games as one graph.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

import everynet
from everynet.training.device import choose, computing
from everynet.training.graph import Update
from everynet.training.loop import begin, train
from everynet.zoo.reinforcement.environments import CartPole
from side_by_side import write

RACES = (  # recipe, precision, updates of a turn
    ("trades-mnist", "bf16", 20),
    ("adversarial-mnist", "bf16", 50),
    ("wavenet-digits", "bf16", 50),
    ("vit-cifar", "bf16", 50),
    ("vae-mnist", "tf32", 500),
    ("rbm-mnist", "tf32", 500),
    ("predictive-coding-mnist", "tf32", 100),
    ("gan-mnist", "tf32", 200),
    ("diffusion-mnist", "bf16", 30),
    ("pixelcnn-mnist", "bf16", 30),
    ("conversation-chitchat", "tf32", 50),
    ("dual-encoder-ubuntu", "tf32", 30),
    ("neural-turing", "fp32", 50),
)
BUILT_IN = ("trades", "adversarial", "wavenet", "vit", "vae")
GAMES = (4096, 65_536, 1_048_576)
TURNS, SIDE = 3, 8192


def clocked(work: Callable[[], object], device: str) -> float:
    """Seconds that it takes."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - start


def best(works: dict[str, Callable[[], object]], device: str, turns: int) -> dict[str, float]:
    """The best seconds of each, taking turns."""
    found = dict.fromkeys(works, float("inf"))
    for _ in range(turns):
        for name, work in works.items():
            found[name] = min(found[name], clocked(work, device))
    return found


def product_rate(device: str, precision: str, side: int) -> float:
    """Operations a second of one large product."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    a, b = torch.randn(2, side, side, device=device, dtype=dtype).unbind()
    work = {"product": lambda: [a @ b for _ in range(10)]}
    clocked(work["product"], device)
    return 10 * 2 * side**3 / best(work, device, 3)["product"]


def operations(recipe: Any, data: Any, setup: Any) -> int:
    """Multiplications and additions of products of one update; 0 where torch cannot count them."""
    eager = replace(setup, capture=False)
    try:
        with FlopCounterMode(display=False) as counter:
            next(train(recipe, begin(recipe, data, eager), data, setup=eager))
    except RuntimeError:  # an objective that differentiates by its inputs
        return 0
    return counter.get_total_flops()


def race(name: str, precision: str, count: int, device: str, turns: int) -> str:
    recipe = everynet.recipe(name)
    recipe = recipe.tiny() if device == "cpu" else recipe
    recipe = replace(recipe, steps=10**8, schedule="constant")
    setup = choose(device, precision)
    with computing(setup):
        data = recipe.dataset().to(setup.device, setup.dtype)
        flops, works = operations(recipe, data, setup), {}
        for capturing in (True, False):
            its = replace(setup, capture=capturing)
            state = begin(recipe, data, its)
            update = Update(recipe, state, data, its)
            records = train(recipe, state, data, setup=its, update=update)
            n = count if capturing else max(1, count // 5)
            for _ in islice(records, 8):
                pass
            reason = update.eager if capturing and not update.graphs else ""
            works["captured" if capturing else "eager"] = (n, records, reason)
        calls = {
            how: lambda n=n, records=records: [next(records) for _ in range(n)] and None
            for how, (n, records, _) in works.items()
        }
        seconds = {how: s / works[how][0] for how, s in best(calls, device, turns).items()}
        rate = flops / seconds["captured"]
        limit = product_rate(device, precision, SIDE if device == "cuda" else 256)
        shown = f"{rate / 1e12:.1f} | {rate / limit:.1%}" if flops else "not counted |"
    why = works["captured"][2]
    return (
        f"| `{name}` | {precision} | {recipe.batch_size} | {seconds['captured'] * 1e3:.2f} | "
        f"{seconds['eager'] * 1e3:.2f} | {recipe.batch_size / seconds['captured']:,.0f} | "
        f"{shown} | {why} |"
    )


def games(count: int, device: str, steps: int) -> float:
    """Steps a second of all games together."""
    game = CartPole()
    state = game.reset(count, device=device)
    action = torch.randint(2, (count,), device=device)
    _, state = game.advance(state, action)

    def step() -> None:
        action.random_(0, 2)
        state.copy_(game.advance(state, action)[1])

    call = step
    if device == "cuda":
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        call = graph.replay
    work = {"games": lambda: [call() for _ in range(steps)]}
    return count * steps / best(work, device, TURNS)["games"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipes", nargs="*", help="some of them; all where none is named")
    parser.add_argument("--rehearse", action="store_true")
    given = parser.parse_args()
    rehearse = given.rehearse
    if not rehearse and not torch.cuda.is_available():
        print("updates_gpu.py is left out: there is no GPU here")
        return 0
    device, turns = ("cpu", 1) if rehearse else ("cuda", TURNS)
    races = [(name, "fp32", 2) for name in BUILT_IN] if rehearse else RACES
    races = [race for race in races if not given.recipes or race[0] in given.recipes]
    lines = [
        "## Updates of recipes on a GPU\n",
        f"Best of {turns} alternating turns. Operations are those of products and convolutions, "
        "forward and backward, counted by torch; their share is of what one product of "
        f"{SIDE} x {SIDE} x {SIDE} does in the same precision.\n",
        "| recipe | precision | batch | ms an update, captured | eager | examples/s, captured | "
        "TFLOP/s | share of a product | |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, precision, count in races:
        try:
            lines.append(race(name, precision, count, device, turns))
        except Exception as error:  # the others are measured all the same, and this one is said
            lines.append(f"| `{name}` | {precision} | failed: {type(error).__name__}: {error} |")
        print(lines[-1], flush=True)
    lines += ["\n| games of CartPole | million steps/s |", "|---|---|"]
    for count in (64,) if rehearse else GAMES:
        lines.append(f"| {count:,} | {games(count, device, 3 if rehearse else 200) / 1e6:,.1f} |")
        print(lines[-1], flush=True)
    if not rehearse:
        lines.append(f"\n{torch.cuda.get_device_name()}, torch {torch.__version__}.")
        write("updates-gpu", ["\n".join(lines)])
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
