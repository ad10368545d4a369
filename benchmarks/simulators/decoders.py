"""The decoders of a large population, beside Nengo: only the solution is timed."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from side_by_side import Contestant, Job, Page, Turn

CODERS, POINTS = 5_000, 10_000


def nengo_ensemble(folder: str):
    """A population of Nengo's, its points and their activities, for both sides."""
    import nengo

    with nengo.Network(seed=0) as model:
        group = nengo.Ensemble(CODERS, 2)
        out = nengo.Node(size_in=2)
        nengo.Connection(group, out, solver=nengo.solvers.NoSolver(np.zeros((CODERS, 2))))
    built = nengo.Simulator(model, progress_bar=False).data[group]
    rng = np.random.default_rng(2)
    turn, radius = 2 * np.pi * rng.random(2 * POINTS), np.sqrt(rng.random(2 * POINTS))
    points = np.stack([radius * np.cos(turn), radius * np.sin(turn)], axis=1)
    rates = nengo.LIFRate().rates(points @ built.encoders.T, built.gain, built.bias)
    np.savez(Path(folder) / "activities.npz", points=points, rates=rates)


def activities(job: Job):
    """Activities and points, half to learn from and half to judge by."""
    with np.load(Path(job["folder"]) / "activities.npz") as parts:
        rates, points = parts["rates"], parts["points"]
    return rates[:POINTS], points[:POINTS], rates[POINTS:], points[POINTS:]


def judged(seconds: float, decoders: np.ndarray, rates: np.ndarray, points: np.ndarray) -> Turn:
    error = np.sqrt(np.mean((rates @ decoders - points) ** 2))
    return Turn(seconds, f"test error {error:.6f}")


def our_decoders(job: Job) -> Callable[[], Turn]:
    import torch

    from everynet.zoo.population.decoders import ridge_solver

    rates, points, unseen, truth = activities(job)
    h, x = torch.from_numpy(rates), torch.from_numpy(points)
    sigma = 0.1 * rates.max()

    def work() -> Turn:
        begun = time.perf_counter()
        decoders = ridge_solver(h, sigma).solve(x)
        return judged(time.perf_counter() - begun, decoders.numpy(), unseen, truth)

    return work


def nengo_decoders(job: Job) -> Callable[[], Turn]:
    import nengo

    rates, points, unseen, truth = activities(job)
    solver = nengo.solvers.LstsqL2(reg=0.1)

    def work() -> Turn:
        begun = time.perf_counter()
        decoders, _ = solver(rates, points)
        return judged(time.perf_counter() - begun, decoders, unseen, truth)

    return work


def contestants(_job: Job) -> list[Contestant]:
    return [
        Contestant("everynet", our_decoders, "everynet.zoo.population.ensemble", "everynet"),
        Contestant("Nengo", nengo_decoders, "nengo", "nengo", reach=3.0),
    ]


def race(page: Page, folder: Path) -> None:
    command = f"from simulators.decoders import nengo_ensemble; nengo_ensemble({str(folder)!r})"
    here = Path(__file__).parent.parent
    made = subprocess.run([page.python, "-c", command], cwd=here, check=False, capture_output=True)
    if made.returncode:
        print("the decoders are left out: Nengo is missing")
        return
    for threads in (1, 2):
        job = {"part": "decoders", "threads": threads, "folder": str(folder)}
        title = f"5,000 neurons, 10,000 points, threads: {threads}"
        page.round(title, contestants(job), job)
    page.close(
        "Spiking: decoders",
        "The same activities on both sides, float64; only the solution is timed; best of "
        f"{page.given.repeats} alternating turns.",
        "decoders",
    )
