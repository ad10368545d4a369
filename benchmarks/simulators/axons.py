"""Hodgkin-Huxley axons, beside Brian2 and NEURON; how far each is from solve_ivp is shown."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from side_by_side import Contestant, Job, Page, Turn

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


def contestants(_job: Job) -> list[Contestant]:
    return [
        Contestant("everynet", our_axons, "everynet.zoo.spiking.hodgkin_huxley", "everynet"),
        Contestant("Brian2 C++", brian2_axons, "brian2", "brian2", reach=5.0),
        Contestant("NEURON", neuron_axons, "neuron", "neuron", reach=5.0),
    ]


def race(page: Page, folder: Path) -> None:
    job = {"part": "axons", "threads": 1, "folder": str(folder), "truth": last_spikes()}
    page.round("1,000 axons, 100 ms, dt 0.01 ms, float64", contestants(job), job)
    page.close(
        "Spiking: Hodgkin-Huxley",
        "Currents evenly from 8 to 20 uA/cm2; the last spike of three axons is compared with "
        f"solve_ivp at 1e-10; best of {page.given.repeats} alternating turns.",
        "axons",
    )
