"""Spiking neurons beside the simulators people use: neurons and networks, membranes, training.

    python benchmarks/spiking.py                              the tables of benchmarks/RESULTS.md
    python benchmarks/spiking.py --part training              one of its five parts
    python benchmarks/spiking.py --repeats 1 --neurons 1000   a quick look, written nowhere

Building a model and running it are timed apart. Everyone is given the same drive and, where
neurons are joined, the same weights; a peer that would need more than 20 s does 50 steps, is scaled
and says so. Brian2 solves our equations, the packages on torch their own nearest ones, which the
spikes in the last column show: with them the cost is compared, not the result.
"""

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np

from side_by_side import Contestant, Job, Page, Turn, arguments

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


# -------------------------------------------------------------------------- integrate and fire


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


def neurons(job: Job) -> list[Contestant]:
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


# ---------------------------------------------------------------------------- training by spikes

BATCH, TIME, HIDDEN = 128, 25, 1000


def images(job: Job):
    """Random images of 784 pixels, the same at each step or new ones, and their classes."""
    import torch

    generator = torch.Generator().manual_seed(0)
    rows = 1 if job["constant"] else TIME
    x = torch.rand(rows, BATCH, 784, generator=generator)
    return x, torch.randint(0, 10, (BATCH,), generator=generator)


def descending(parameters, loss: Callable[[], object]) -> Callable[[], None]:
    """One step of Adam on a loss."""
    import torch

    optimizer = torch.optim.Adam(parameters, lr=5e-4)

    def work() -> None:
        for _ in range(4):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()

    return work


def our_training(job: Job) -> Callable[[], None]:
    import torch
    from torch.nn.functional import cross_entropy

    from everynet.memory import keep_freed_memory
    from everynet.zoo.spiking.surrogate import SpikingNetwork

    class Changing(SpikingNetwork):
        def hidden(self, x):
            return [self.fire(self.layers[0](x))]

    keep_freed_memory()
    x, y = images(job)
    network = (SpikingNetwork if job["constant"] else Changing)((784, HIDDEN, 10), TIME)
    given = x[0] if job["constant"] else x
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-4, fused=True)

    def work() -> None:
        for _ in range(4):
            optimizer.zero_grad()
            cross_entropy(network(given), y).backward()
            optimizer.step()

    return work


def products_alone(job: Job) -> Callable[[], None]:
    """The matrix products of the same network with a ramp for the neurons: the floor."""
    from torch import nn
    from torch.nn.functional import cross_entropy

    x, y = images(job)
    network = nn.Sequential(nn.Linear(784, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10))
    given = x.expand(TIME, -1, -1)
    return descending(network.parameters(), lambda: cross_entropy(network(given).mean(0), y))


def snntorch_training(job: Job) -> Callable[[], None]:
    import snntorch
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy

    x, y = images(job)
    first, second = nn.Linear(784, HIDDEN), nn.Linear(HIDDEN, 10)
    hidden, out = snntorch.Leaky(0.9), snntorch.Leaky(0.9, reset_mechanism="none")

    def loss():
        m, r, traces = hidden.init_leaky(), out.init_leaky(), []
        for t in range(TIME):
            spikes, m = hidden(first(x[t if len(x) > 1 else 0]), m)
            _, r = out(second(spikes), r)
            traces.append(r)
        return cross_entropy(torch.stack(traces).mean(0), y)

    return descending([*first.parameters(), *second.parameters()], loss)


def norse_training(job: Job) -> Callable[[], None]:
    import norse.torch as norse
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy

    x, y = images(job)
    first, second = nn.Linear(784, HIDDEN), nn.Linear(HIDDEN, 10)
    hidden, out = norse.LIFCell(), norse.LICell()

    def loss():
        m, r, traces = None, None, []
        for t in range(TIME):
            spikes, m = hidden(first(x[t if len(x) > 1 else 0]), m)
            now, r = out(second(spikes), r)
            traces.append(now)
        return cross_entropy(torch.stack(traces).mean(0), y)

    return descending([*first.parameters(), *second.parameters()], loss)


def spikingjelly_training(job: Job) -> Callable[[], None]:
    from spikingjelly.activation_based import functional, layer, neuron, surrogate
    from torch import nn
    from torch.nn.functional import cross_entropy

    x, y = images(job)
    lif = {"tau": 10.0, "surrogate_function": surrogate.ATan(), "detach_reset": True}
    network = nn.Sequential(
        *(layer.Linear(784, HIDDEN), neuron.LIFNode(**lif)),
        *(layer.Linear(HIDDEN, 10), neuron.LIFNode(**lif)),
    )
    functional.set_step_mode(network, "m")
    given = x.expand(TIME, -1, -1)

    def loss():
        functional.reset_net(network)
        return cross_entropy(network(given).mean(0), y)

    return descending(network.parameters(), loss)


def trainings(job: Job) -> list[Contestant]:
    constant = job.get("constant", False)
    others = 4.0 if constant else None
    return [
        Contestant("everynet", our_training, "everynet.zoo.spiking.surrogate", "everynet"),
        Contestant("products alone", products_alone, "torch", "torch"),
        Contestant(
            *("snnTorch", snntorch_training, "snntorch", "snntorch"),
            reach=4.0 if constant else 1.5,
        ),
        Contestant("SpikingJelly", spikingjelly_training, "torch", "spikingjelly", reach=others),
        Contestant("Norse", norse_training, "norse.torch", "norse", reach=others),
    ]


# ------------------------------------------------------------------------------------ membranes

AXONS, HH_DURATION, HH_DT = 1_000, 0.1, 1e-5  # s
WATCHED = (0, AXONS // 2, AXONS - 1)


def axon_currents() -> np.ndarray:
    return np.linspace(8.0, 20.0, AXONS)  # uA/cm2


def gates_at(v: float) -> tuple[float, float, float]:
    """m, h and n after long at v mV, where every tool begins."""
    import torch

    from everynet.zoo.spiking.hodgkin_huxley import HodgkinHuxley

    return tuple(HodgkinHuxley().settled(torch.tensor(v, dtype=torch.float64)).tolist())


def last_spikes() -> list[float]:
    """When the watched axons last rise through 0 mV (s), by a method with a bound on its error."""
    import torch
    from scipy.integrate import solve_ivp

    from everynet.zoo.spiking.hodgkin_huxley import HodgkinHuxley

    model, found = HodgkinHuxley(), []

    def crossing(_t, y, *_):
        return y[0]

    crossing.direction = 1.0
    for current in axon_currents()[list(WATCHED)]:
        given = torch.tensor(current)

        def slope(_t, y, given=given):
            return model.derivative(torch.from_numpy(y)[:, None], given[None])[:, 0].numpy()

        solved = solve_ivp(
            *(slope, (0.0, 1e3 * HH_DURATION), (-65.0, *gates_at(-65.0))),
            rtol=1e-10,
            atol=1e-10,
            events=crossing,
        )
        found.append(solved.t_events[0][-1] / 1e3)
    return found


def off_by(job: Job, times: np.ndarray, neurons: np.ndarray) -> str:
    """How far the last spikes of the watched axons are from the truth."""
    gaps = [times[neurons == n].max() - true for n, true in zip(WATCHED, job["truth"], strict=True)]
    return f"last spike off by {1e6 * max(map(abs, gaps)):.1f} us, {len(times):,} spikes"


def our_axons(job: Job) -> Callable[[], Turn]:
    import torch

    from everynet.zoo.spiking.hodgkin_huxley import HodgkinHuxley

    model, current = HodgkinHuxley(), torch.from_numpy(axon_currents())
    start = torch.tensor([-65.0, *gates_at(-65.0)], dtype=torch.float64)[:, None].expand(4, AXONS)
    model.simulate(current, 10 * HH_DT, HH_DT, record=(), state=start)

    def work() -> Turn:
        begun = time.perf_counter()
        seen = model.simulate(current, HH_DURATION, HH_DT, record=(), state=start)
        seconds = time.perf_counter() - begun
        return Turn(seconds, off_by(job, seen.times.numpy(), seen.neurons.numpy()))

    return work


def brian2_axons(job: Job) -> Callable[[], Turn]:
    import brian2
    from brian2 import ms, mV

    folder = Path(job["folder"]) / "cpp-axons"
    brian2.BrianLogger.log_level_error()
    brian2.set_device("cpp_standalone", directory=str(folder), build_on_run=False)
    brian2.defaultclock.dt = HH_DT * brian2.second
    area = brian2.cm**2
    equations = """
    dv/dt = (g_l * (e_l - v) + g_na * m**3 * h * (e_na - v) + g_k * n**4 * (e_k - v) + I) / c : volt
    dm/dt = a_m * (1 - m) - b_m * m : 1
    dh/dt = a_h * (1 - h) - b_h * h : 1
    dn/dt = a_n * (1 - n) - b_n * n : 1
    a_m = 1 / exprel(-(v + 40*mV) / (10*mV)) / ms : Hz
    b_m = 4 * exp(-(v + 65*mV) / (18*mV)) / ms : Hz
    a_h = 0.07 * exp(-(v + 65*mV) / (20*mV)) / ms : Hz
    b_h = 1 / (1 + exp(-(v + 35*mV) / (10*mV))) / ms : Hz
    a_n = 0.1 / exprel(-(v + 55*mV) / (10*mV)) / ms : Hz
    b_n = 0.125 * exp(-(v + 65*mV) / (80*mV)) / ms : Hz
    I : amp / meter**2
    """
    siemens = brian2.msiemens / area
    names = {"g_na": 120 * siemens, "g_k": 36 * siemens, "g_l": 0.3 * siemens}
    names |= {"e_na": 50 * mV, "e_k": -77 * mV, "e_l": -54.387 * mV, "c": brian2.uF / area}
    group = brian2.NeuronGroup(
        *(AXONS, equations),
        threshold="v > 0*mV",
        refractory="v > 0*mV",
        method="exponential_euler",
        namespace=names | {"mV": mV, "ms": ms},
    )
    group.v = -65 * mV
    group.m, group.h, group.n = gates_at(-65.0)
    group.I = axon_currents() * brian2.uamp / area
    seen = brian2.SpikeMonitor(group)
    network = brian2.Network(group, seen)
    network.run(HH_DURATION * brian2.second)
    device = brian2.get_device()
    device.build(directory=str(folder), run=False, with_output=False)

    def work() -> Turn:
        device.run(directory=str(folder), with_output=False, run_args=[])
        note = off_by(job, np.asarray(seen.t / brian2.second), np.asarray(seen.i))
        return Turn(device._last_run_time, note)

    return work


def neuron_axons(job: Job) -> Callable[[], Turn]:
    from neuron import h

    h.load_file("stdrun.hoc")
    h.celsius, h.dt, h.steps_per_ms, h.secondorder = 6.3, 1e3 * HH_DT, 1e-3 / HH_DT, 2
    kept, times, ids = [], h.Vector(), h.Vector()
    for number, current in enumerate(axon_currents()):
        section = h.Section(name=f"axon{number}")
        section.L = section.diam = 20.0
        section.insert("hh")
        section.el_hh = -54.387
        clamp = h.IClamp(section(0.5))
        clamp.delay, clamp.dur = 0.0, 1e9
        clamp.amp = current * section(0.5).area() * 1e-5  # uA/cm2 times um2, in nA
        watch = h.NetCon(section(0.5)._ref_v, None, sec=section)
        watch.threshold = 0.0
        watch.record(times, ids, number)
        kept.append((section, clamp, watch))

    def work() -> Turn:
        begun = time.perf_counter()
        h.finitialize(-65.0)
        h.continuerun(1e3 * HH_DURATION)
        seconds = time.perf_counter() - begun
        assert kept
        return Turn(seconds, off_by(job, np.array(times) / 1e3, np.array(ids)))

    return work


def axons(_job: Job) -> list[Contestant]:
    return [
        Contestant("everynet", our_axons, "everynet.zoo.spiking.hodgkin_huxley", "everynet"),
        Contestant("Brian2 C++", brian2_axons, "brian2", "brian2", reach=5.0),
        Contestant("NEURON", neuron_axons, "neuron", "neuron", reach=5.0),
    ]


# ------------------------------------------------------------------------------------- decoders

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

    from everynet.zoo.population.decoders import regularised

    rates, points, unseen, truth = activities(job)
    h, x = torch.from_numpy(rates), torch.from_numpy(points)
    sigma = 0.1 * rates.max()

    def work() -> Turn:
        begun = time.perf_counter()
        decoders = regularised(h, sigma).solve(x)
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


def decoders(_job: Job) -> list[Contestant]:
    return [
        Contestant("everynet", our_decoders, "everynet.zoo.population.ensemble", "everynet"),
        Contestant("Nengo", nengo_decoders, "nengo", "nengo", reach=3.0),
    ]


# --------------------------------------------------------------------------------- populations

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
    ensemble = Ensemble(job["neurons"], 1 if flat else 2, radius=1.0 if flat else 1.5)
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


def populations(job: Job) -> list[Contestant]:
    reach = 5.0 if job.get("neurons", 0) <= 1_000 else 4.0
    return [
        Contestant("everynet", our_population, "everynet.zoo.population.dynamics", "everynet"),
        Contestant("Nengo", nengo_population, "nengo", "nengo", reach=reach),
    ]


def everyone(job: Job) -> list[Contestant]:
    """The contestants of the part that a job names."""
    parts = {"neurons": neurons, "training": trainings, "axons": axons, "decoders": decoders}
    parts |= {"populations": populations}
    return parts[job["part"]](job)


def main() -> None:
    at = sys.argv.index("--job") + 1 if "--job" in sys.argv else 0
    told = json.loads(sys.argv[at]) if at else {"part": "neurons"}
    given = arguments(__doc__.splitlines()[0], everyone(told), repeats=3, neurons=10_000)
    page = Page("spiking", __file__, given)
    parts = {
        "neurons": race_neurons,
        "training": race_trainings,
        "axons": race_axons,
        "decoders": race_decoders,
        "populations": race_populations,
    }
    for name, run in parts.items():
        if given.part in ("", name):
            with tempfile.TemporaryDirectory() as folder:
                run(page, Path(folder))


def race_neurons(page: Page, folder: Path) -> None:
    sizes = [count for count in (1_000, 10_000) if count <= page.given.neurons]
    for count in sizes:
        save_weights(folder, count)
    for count, joined, dt, threads in product(sizes, (False, True), (1e-3, 1e-4), (1, 2)):
        job = {"part": "neurons", "neurons": count, "joined": joined, "dt": dt}
        job |= {"folder": str(folder), "threads": threads}
        how = "a tenth of all pairs joined" if joined else "on their own"
        title = f"{count:,} neurons {how}, dt {1000 * dt:g} ms, threads: {threads}"
        page.round(title, neurons(job), job)
    page.close(
        "Spiking: integrate-and-fire neurons",
        f"{DURATION:g} s of neurons (membranes 20 ms, synapses 5 ms, drives evenly from 0.8 to 1.5 "
        f"of the threshold, float32); best of {page.given.repeats} alternating turns. Set-up is "
        "building, compiling and taking in the weights. The time of Brian2 C++ is what its program "
        "says of its own run.",
        "neurons",
    )


def race_trainings(page: Page, _folder: Path) -> None:
    for constant, threads in product((False, True), (1, 2)):
        job = {"part": "training", "constant": constant, "threads": threads}
        what = "a constant input" if constant else "a changing input"
        page.round(f"{what.capitalize()}, threads: {threads}", trainings(job), job)
    page.close(
        "Spiking: training by surrogate gradients",
        f"Four steps of Adam on 784-1000-10, 25 time steps, batch 128; best of "
        f"{page.given.repeats} alternating turns. All have a hidden layer that spikes and outputs "
        "that do not, except SpikingJelly, whose outputs spike too.",
        "training",
    )


def race_axons(page: Page, folder: Path) -> None:
    job = {"part": "axons", "threads": 1, "folder": str(folder), "truth": last_spikes()}
    page.round("1,000 axons, 100 ms, dt 0.01 ms, float64", axons(job), job)
    page.close(
        "Spiking: Hodgkin-Huxley",
        "Currents evenly from 8 to 20 uA/cm2; the last spike of three axons is compared with "
        f"solve_ivp at 1e-10; best of {page.given.repeats} alternating turns.",
        "axons",
    )


def race_decoders(page: Page, folder: Path) -> None:
    command = f"import spiking; spiking.nengo_ensemble({str(folder)!r})"
    made = subprocess.run([page.python, "-c", command], cwd=Path(__file__).parent, check=False)
    if made.returncode:
        print("the decoders are left out: Nengo is missing")
        return
    for threads in (1, 2):
        job = {"part": "decoders", "threads": threads, "folder": str(folder)}
        title = f"5,000 neurons, 10,000 points, threads: {threads}"
        page.round(title, decoders(job), job)
    page.close(
        "Spiking: decoders",
        "The same activities on both sides, float64; only the solution is timed; best of "
        f"{page.given.repeats} alternating turns.",
        "decoders",
    )


def race_populations(page: Page, _folder: Path) -> None:
    for system, count in product(("integrator", "oscillator"), (1_000, 5_000)):
        job = {"part": "populations", "system": system, "neurons": count, "threads": 1}
        page.round(f"{system.capitalize()} of {count:,} neurons", populations(job), job)
    page.close(
        "Spiking: populations",
        "5 s of spiking neurons in steps of 1 ms, float64; set-up finds the decoders; best of "
        f"{page.given.repeats} alternating turns.",
        "populations",
    )


if __name__ == "__main__":
    sys.exit(main())
