"""Populations that integrate and oscillate by spikes, beside Nengo."""

import math
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np

from side_by_side import Contestant, Job, Page, Turn

FEEDBACK = 0.1  # s
TURN = 2 * math.pi  # rad/s


def pushes(times: np.ndarray) -> np.ndarray:
    """What an integrator is given: up, then down."""
    up, down = (times > 0.5) & (times < 1.0), (times > 2.0) & (times < 2.5)
    return up.astype(float) - down.astype(float)


def how_well(job: Job, times: np.ndarray, values: np.ndarray) -> str:
    if job["system"] == "integrator":
        truth = np.cumsum(pushes(times)) * (times[1] - times[0])
        return f"rms error {np.sqrt(np.mean((values[:, 0] - truth) ** 2)):.4f}"
    late = times > 0.5
    phase = np.unwrap(np.arctan2(values[late, 1], values[late, 0]))
    turned = np.polyfit(times[late], phase, 1)[0] / TURN
    return f"{turned:.4f} turns a second"


def our_population(job: Job) -> Callable[[], Turn]:
    import torch

    from everynet.zoo.population.dynamics import SpikingPopulation
    from everynet.zoo.population.ensemble import Ensemble
    from everynet.zoo.population.integrator import integration
    from everynet.zoo.population.oscillator import oscillation

    flat = job["system"] == "integrator"
    drawn, radius = torch.Generator().manual_seed(0), 1.0 if flat else 1.5
    ensemble = Ensemble(job["neurons"], 1 if flat else 2, radius=radius, generator=drawn)
    flow = integration if flat else oscillation(1.0)
    population = SpikingPopulation(ensemble, flow, tau_s=FEEDBACK, tau_read=0.01)
    times = np.arange(1, 5001) * 1e-3
    if flat:
        given = torch.from_numpy(pushes(times))[:, None]
    else:
        kick = np.where(times < 0.1, 10.0, 0.0)
        given = torch.from_numpy(np.stack([kick, 0 * kick], axis=1))
    population.simulate(given[:10], 0.01, 1e-3)

    def work() -> Turn:
        begun = time.perf_counter()
        seen = population.simulate(given, 5.0, 1e-3)
        seconds = time.perf_counter() - begun
        return Turn(seconds, how_well(job, times, seen.values.numpy()))

    return work


def nengo_population(job: Job) -> Callable[[], Turn]:
    import nengo

    flat = job["system"] == "integrator"
    with nengo.Network(seed=0) as model:
        group = nengo.Ensemble(job["neurons"], 1 if flat else 2, radius=1.0 if flat else 1.5)
        if flat:
            given = nengo.Node(lambda t: pushes(np.array([t]))[0])
            nengo.Connection(given, group, transform=FEEDBACK, synapse=FEEDBACK)
            nengo.Connection(group, group, synapse=FEEDBACK)
        else:
            given = nengo.Node(lambda t: [1.0, 0.0] if t < 0.1 else [0.0, 0.0])
            nengo.Connection(given, group)
            turn = [[1.0, -FEEDBACK * TURN], [FEEDBACK * TURN, 1.0]]
            nengo.Connection(group, group, transform=turn, synapse=FEEDBACK)
        read = nengo.Probe(group, synapse=0.01)
    simulator = nengo.Simulator(model, progress_bar=False)

    def work() -> Turn:
        simulator.reset(seed=0)
        begun = time.perf_counter()
        simulator.run(5.0, progress_bar=False)
        seconds = time.perf_counter() - begun
        return Turn(seconds, how_well(job, simulator.trange(), simulator.data[read]))

    return work


def contestants(job: Job) -> list[Contestant]:
    reach = 5.0 if job.get("neurons", 0) <= 1_000 else 4.0
    return [
        Contestant("everynet", our_population, "everynet.zoo.population.dynamics", "everynet"),
        Contestant("Nengo", nengo_population, "nengo", "nengo", reach=reach),
    ]


def race(page: Page, _folder: Path) -> None:
    for system, count in product(("integrator", "oscillator"), (1_000, 5_000)):
        job = {"part": "populations", "system": system, "neurons": count, "threads": 1}
        page.round(f"{system.capitalize()} of {count:,} neurons", contestants(job), job)
    page.close(
        "Spiking: populations",
        "5 s of spiking neurons in steps of 1 ms, float64; set-up finds the decoders; best of "
        f"{page.given.repeats} alternating turns.",
        "populations",
    )
