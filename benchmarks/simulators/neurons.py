"""Integrate-and-fire neurons for a second, on their own and joined, beside seven simulators.

Brian2 solves our equations, the packages on torch their own nearest ones, which the spikes in the
last column show: with them the cost is compared, not the result.
"""

import math
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np

from side_by_side import Contestant, Job, Page, Turn

TAU_M, TAU_S = 0.02, 0.005  # s
DURATION = 1.0  # s of the neurons' time
LONGEST = 20.0  # s of ours that a peer may take
FEW = 50  # steps that it does otherwise


def steps_of(job: Job) -> int:
    return round(DURATION / job["dt"])


def drive_of(job: Job) -> np.ndarray:
    return np.random.default_rng(0).uniform(0.8, 1.5, job["neurons"]).astype(np.float32)


def weights_of(job: Job):
    """A tenth of all pairs joined, as compressed rows; None for neurons on their own."""
    import scipy.sparse

    if not job["joined"]:
        return None
    with np.load(Path(job["folder"]) / f"weights-{job['neurons']}.npz") as parts:
        return scipy.sparse.csr_matrix((parts["data"], parts["indices"], parts["indptr"]))


def save_weights(folder: Path, neurons: int) -> None:
    """Weights in s; a spike moves a membrane by about 0.1 / sqrt(inputs), up or down."""
    rng, each = np.random.default_rng(1), neurons // 10
    columns = [np.sort(rng.choice(neurons, each, replace=False)) for _ in range(neurons)]
    scale = TAU_M * 0.1 / math.sqrt(each)
    np.savez(
        folder / f"weights-{neurons}.npz",
        indptr=np.arange(0, neurons * each + 1, each, dtype=np.int32),
        indices=np.concatenate(columns).astype(np.int32),
        data=(scale * rng.standard_normal(neurons * each)).astype(np.float32),
    )


def paced(job: Job, run: Callable[[int], float]) -> Callable[[], Turn]:
    """Let `run` do all steps and give its spikes, or few of them where all would take too long.

    What a step costs is the difference of two short runs, so that what a run costs once is not
    scaled up.
    """
    steps = steps_of(job)

    def timed(count: int) -> tuple[float, float]:
        start = time.perf_counter()
        spikes = run(count)
        return time.perf_counter() - start, spikes

    def work() -> Turn:
        once = timed(1)[0]
        whole = once + (timed(FEW + 1)[0] - once) * steps / FEW
        if whole > LONGEST:
            return Turn(whole, f"scaled from {FEW} steps")
        seconds, spikes = timed(steps)
        return Turn(seconds, f"{spikes:,.0f} spikes")

    return work


def our_neurons(job: Job) -> Callable[[], Turn]:
    import torch

    from everynet.zoo.spiking.lif import LIF
    from everynet.zoo.spiking.network import LIFNetwork

    drive, weights = torch.from_numpy(drive_of(job)), weights_of(job)
    if weights is None:
        neuron = LIF(TAU_M, 0.0)
        run = lambda duration: neuron.simulate(drive, duration, job["dt"])  # noqa: E731
    else:
        network = LIFNetwork(weights, TAU_S, TAU_M, 0.0)
        run = lambda duration: network.simulate(duration, job["dt"], drive)  # noqa: E731
    run(10 * job["dt"])  # compiles, or reads what was compiled before

    def work() -> Turn:
        start = time.perf_counter()
        spikes = len(run(DURATION).times)
        return Turn(time.perf_counter() - start, f"{spikes:,} spikes")

    return work


def brian2_model(job: Job, target: str):
    """The same equations in Brian2's words; the network, its counter, and the package."""
    import brian2

    brian2.BrianLogger.log_level_error()
    if target == "cpp_standalone":
        folder = Path(job["folder"]) / f"cpp-{job['neurons']}-{job['joined']}-{job['dt']}"
        brian2.set_device("cpp_standalone", directory=str(folder), build_on_run=False)
        brian2.prefs.devices.cpp_standalone.openmp_threads = (
            job["threads"] if job["threads"] > 1 else 0
        )
    else:
        brian2.prefs.codegen.target = target
    brian2.prefs.core.default_float_dtype = np.float32
    brian2.defaultclock.dt = job["dt"] * brian2.second
    weights = weights_of(job)
    names = {"tau_m": TAU_M * brian2.second, "tau_s": TAU_S * brian2.second}
    synapse = "" if weights is None else "ds/dt = -s / tau_s : 1\n"
    group = brian2.NeuronGroup(
        job["neurons"],
        f"{synapse}dv/dt = (drive {'+ s ' if synapse else ''}- v) / tau_m : 1\ndrive : 1",
        threshold="v >= 1",
        reset="v = 0",
        method="exact",
        namespace=names,
    )
    group.drive = drive_of(job)
    parts = [group]
    if weights is not None:
        joined = brian2.Synapses(group, group, "w : 1", on_pre="s_post += w")
        joined.connect(
            i=np.repeat(np.arange(job["neurons"]), job["neurons"] // 10), j=weights.indices
        )
        joined.w = weights.data / TAU_S
        parts.append(joined)
    counter = brian2.SpikeMonitor(group, record=False)
    return brian2.Network(*parts, counter), counter, brian2


def brian2_cpp(job: Job) -> Callable[[], Turn]:
    """Code is written and compiled once; a turn runs the program, whose own time counts."""
    network, counter, brian2 = brian2_model(job, "cpp_standalone")
    network.run(DURATION * brian2.second)
    device = brian2.get_device()
    device.build(directory=device.project_dir or None, run=False, with_output=False)

    def work() -> Turn:
        device.run(directory=device.project_dir, with_output=False, run_args=[])
        return Turn(device._last_run_time, f"{int(counter.num_spikes):,} spikes")

    return work


def brian2_cython(job: Job) -> Callable[[], Turn]:
    network, counter, brian2 = brian2_model(job, "cython")
    network.run(0 * brian2.second)
    network.store()

    def run(steps: int) -> float:
        network.restore()
        network.run(steps * job["dt"] * brian2.second)
        return counter.num_spikes

    return paced(job, run)


def nengo_neurons(job: Job) -> Callable[[], Turn]:
    import nengo

    nengo.rc["precision"]["bits"] = "32"
    count, weights = job["neurons"], weights_of(job)
    with nengo.Network(seed=0) as model:
        group = nengo.Ensemble(
            *(count, 1),
            gain=np.ones(count),
            bias=drive_of(job),
            encoders=np.ones((count, 1)),
            neuron_type=nengo.LIF(tau_rc=TAU_M, tau_ref=0.0),
        )
        if weights is not None:
            transform = nengo.Sparse((count, count), init=weights.T.tocoo())
            nengo.Connection(group.neurons, group.neurons, transform=transform, synapse=TAU_S)
        total = nengo.Node(size_in=1)
        nengo.Connection(group.neurons, total, transform=np.ones((1, count)), synapse=None)
        probe = nengo.Probe(total)
    simulator = nengo.Simulator(model, dt=job["dt"], progress_bar=False)

    def run(steps: int) -> float:
        simulator.reset(seed=0)
        simulator.run_steps(steps, progress_bar=False)
        return float(simulator.data[probe].sum()) * job["dt"]

    return paced(job, run)


def dense(job: Job):
    """The weights as the packages on torch want them: from column to row, zeros included."""
    import torch

    return torch.from_numpy(weights_of(job).T.toarray() / TAU_M)  # a spike moves v at once


def snntorch_neurons(job: Job) -> Callable[[], Turn]:
    import snntorch
    import torch

    beta = math.exp(-job["dt"] / TAU_M)
    drive = torch.from_numpy(drive_of(job))[None] * (1 - beta)
    if job["joined"]:
        layer = snntorch.RLeaky(beta, linear_features=job["neurons"], reset_mechanism="zero")
        with torch.no_grad():
            layer.recurrent.weight.copy_(dense(job))
            layer.recurrent.bias.zero_()
    else:
        layer = snntorch.Leaky(beta, reset_mechanism="zero")

    @torch.no_grad()
    def run(steps: int) -> float:
        spikes, total = torch.zeros_like(drive), torch.zeros(())
        state = layer.init_rleaky() if job["joined"] else (layer.init_leaky(),)
        for _ in range(steps):
            state = layer(drive, *state)
            spikes = state[0]
            total += spikes.sum()
            state = state if job["joined"] else state[1:]
        return float(total)

    return paced(job, run)


def norse_neurons(job: Job) -> Callable[[], Turn]:
    import norse.torch as norse
    import torch

    per_step = job["dt"] / TAU_S  # what enters a synapse stays for TAU_S
    drive = torch.from_numpy(drive_of(job))[None] * per_step
    constants = norse.LIFParameters(
        tau_syn_inv=torch.as_tensor(1 / TAU_S), tau_mem_inv=torch.as_tensor(1 / TAU_M)
    )
    if job["joined"]:
        layer = norse.LIFRecurrentCell(1, job["neurons"], p=constants, dt=job["dt"])
        with torch.no_grad():
            layer.recurrent_weights.copy_(dense(job) * TAU_M / TAU_S)
            layer.input_weights.copy_(drive.T)
        drive = torch.ones(1, 1)
    else:
        layer = norse.LIFCell(p=constants, dt=job["dt"])

    @torch.no_grad()
    def run(steps: int) -> float:
        state, total = None, torch.zeros(())
        for _ in range(steps):
            spikes, state = layer(drive, state)
            total += spikes.sum()
        return float(total)

    return paced(job, run)


def spikingjelly_neurons(job: Job) -> Callable[[], Turn]:
    import torch
    from spikingjelly.activation_based import neuron

    drive, tau = torch.from_numpy(drive_of(job))[None], TAU_M / job["dt"]
    layer = neuron.LIFNode(tau=tau, step_mode="s" if job["joined"] else "m")
    if job["joined"]:
        recurrent = torch.nn.Linear(job["neurons"], job["neurons"], bias=False)
        with torch.no_grad():
            recurrent.weight.copy_(dense(job) * tau)

    @torch.no_grad()
    def run(steps: int) -> float:
        layer.reset()
        if not job["joined"]:
            return float(layer(drive.expand(steps, 1, -1)).sum())
        spikes, total = torch.zeros_like(drive), torch.zeros(())
        for _ in range(steps):
            spikes = layer(drive + recurrent(spikes))
            total += spikes.sum()
        return float(total)

    return paced(job, run)


def sinabs_neurons(job: Job) -> Callable[[], Turn]:
    import sinabs.layers
    import torch

    drive, tau = torch.from_numpy(drive_of(job)), TAU_M / job["dt"]
    if job["joined"]:
        recurrent = torch.nn.Linear(job["neurons"], job["neurons"], bias=False)
        with torch.no_grad():
            recurrent.weight.copy_(dense(job) * tau)
        layer = sinabs.layers.LIFRecurrent(tau_mem=tau, rec_connect=recurrent)
    else:
        layer = sinabs.layers.LIF(tau_mem=tau)

    @torch.no_grad()
    def run(steps: int) -> float:
        layer.reset_states()
        return float(layer(drive.expand(1, steps, -1)).sum())

    return paced(job, run)


def contestants(job: Job) -> list[Contestant]:
    large = job.get("neurons", 0) >= 10_000
    cython = 10.0 if job.get("neurons", 0) <= 1_000 else None
    return [
        Contestant("everynet", our_neurons, "everynet.zoo.spiking.network", "everynet"),
        Contestant(
            *("Brian2 C++", brian2_cpp, "brian2", "brian2"),
            reach=1.5 if large else 1.0,
            reach_total=10.0,
        ),
        Contestant("Brian2 cython", brian2_cython, "brian2", "brian2", reach=cython),
        Contestant("Nengo", nengo_neurons, "nengo", "nengo", reach=10.0),
        Contestant("snnTorch", snntorch_neurons, "snntorch", "snntorch", reach=10.0),
        Contestant("Norse", norse_neurons, "norse.torch", "norse", reach=10.0),
        Contestant("SpikingJelly", spikingjelly_neurons, "torch", "spikingjelly", reach=10.0),
        Contestant("sinabs", sinabs_neurons, "sinabs.layers", "sinabs", reach=10.0),
    ]


def race(page: Page, folder: Path) -> None:
    sizes = [count for count in (1_000, 10_000) if count <= page.given.neurons]
    for count in sizes:
        save_weights(folder, count)
    for count, joined, dt, threads in product(sizes, (False, True), (1e-3, 1e-4), (1, 2)):
        job = {"part": "neurons", "neurons": count, "joined": joined, "dt": dt}
        job |= {"folder": str(folder), "threads": threads}
        how = "a tenth of all pairs joined" if joined else "on their own"
        title = f"{count:,} neurons {how}, dt {1000 * dt:g} ms, threads: {threads}"
        page.round(title, contestants(job), job)
    page.close(
        "Spiking: integrate-and-fire neurons",
        f"{DURATION:g} s of neurons (membranes 20 ms, synapses 5 ms, drives evenly from 0.8 to 1.5 "
        f"of the threshold, float32); best of {page.given.repeats} alternating turns. Set-up is "
        "building, compiling and taking in the weights; imports are shown apart. Ours loads "
        "machine code that an earlier process left on disk, which takes seconds to compile once; "
        "Brian2 compiles each changed model. The time of Brian2 C++ is what its program says of "
        "its own run.",
        "neurons",
    )
