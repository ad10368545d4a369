"""What Brian2 and Nengo give, for the tests that hold our spiking neurons and populations to it.

    python benchmarks/spiking_references.py       writes tests/zoo/references.json

Nothing of ours is used here. What goes in is rounded first and lies in the file beside what comes
out, so that a test gives ours the very same numbers:

- Brian2 runs a recurrent network from stored weights and drives, exactly and in float64. The
  spikes of each neuron are counted, and the step of its last one is kept.
- Nengo finds gain and bias from stored peak rates and intercepts, and rates at stored points.
- Nengo runs an integrator, an oscillator, Van der Pol's oscillator and Lorenz's butterfly for a
  second, by rates and by spikes, from stored encoders, peak rates, intercepts, evaluation points
  and, for spikes, membranes. Ours finds gain, bias and decoders by itself. Nengo has no start but
  0, so that both are pushed from there by the same input through the synapses that feed back; both
  are read through synapses of the same time constant. A probe of Nengo tells what such a synapse
  held before a step, ours what it holds after it: the first row is dropped.
- Nengo runs the last two again for longer, with neurons of its own that are drawn as ours are. No
  two runs are the same, so that only what is measured of each is kept: a row for each seed, whose
  scatter is the tolerance of the test.

All of it takes about a minute. Another time it writes the same numbers but for Lorenz by rates,
where chaos may make another run of a last bit.
"""

import importlib.metadata
import importlib.util
import json
import math
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from side_by_side import ROOT, python_of

FILE = ROOT / "tests" / "zoo" / "references.json"
PACKAGES = ("brian2", "nengo", "numpy")
DT = 1e-3  # s, of all that Nengo runs


def rounded(values) -> list:
    """Nine digits of each number, as nested lists."""
    whole = np.asarray(values, dtype=float)
    digits = [float(f"{number:.9g}") for number in whole.ravel()]
    return np.array(digits).reshape(whole.shape).tolist()


# --------------------------------------------------------------------------------------- a network

NETWORK = {"neurons": 100, "share": 0.15, "tau_m": 0.02, "tau_s": 0.005}
NETWORK |= {"dt": 1e-4, "duration": 1.0}  # s
CASES = {
    "rest and delay": {"tau_ref": 0.002, "delay": 0.0015},  # s
    "neither": {"tau_ref": 0.0, "delay": 0.0},
}


def wiring() -> dict:
    """Weights in s, as compressed rows, and drives, both as they stand in the file."""
    rng, neurons = np.random.default_rng(0), NETWORK["neurons"]
    joined = rng.random((neurons, neurons)) < NETWORK["share"]
    np.fill_diagonal(joined, False)
    return {
        "starts": [0, *np.cumsum(joined.sum(1)).tolist()],
        "columns": np.nonzero(joined)[1].tolist(),
        "weights": rounded(3e-3 * rng.standard_normal(joined.sum())),
        "drives": rounded(rng.uniform(0.8, 1.5, neurons)),
    }


def brian2_spikes(wired: Mapping, tau_ref: float, delay: float) -> dict:
    """How often each neuron spiked, and in which step last; -1 for never."""
    import brian2

    brian2.start_scope()
    brian2.BrianLogger.log_level_error()
    brian2.prefs.codegen.target = "numpy"
    brian2.defaultclock.dt = NETWORK["dt"] * brian2.second
    group = brian2.NeuronGroup(
        NETWORK["neurons"],
        """ds/dt = -s / tau_s : 1
        dv/dt = (drive + s - v) / tau_m : 1 (unless refractory)
        drive : 1""",
        threshold="v >= 1",
        reset="v = 0",
        refractory=tau_ref * brian2.second,
        method="exact",
        namespace={name: NETWORK[name] * brian2.second for name in ("tau_m", "tau_s")},
    )
    group.drive = wired["drives"]
    joined = brian2.Synapses(group, group, "w : 1", on_pre="s_post += w")
    rows = np.repeat(np.arange(NETWORK["neurons"]), np.diff(wired["starts"]))
    joined.connect(i=rows, j=wired["columns"])
    joined.w = np.array(wired["weights"]) / NETWORK["tau_s"]
    joined.delay = delay * brian2.second
    spikes = brian2.SpikeMonitor(group)
    brian2.Network(group, joined, spikes).run(NETWORK["duration"] * brian2.second)
    last = np.full(NETWORK["neurons"], -1)
    np.maximum.at(last, spikes.i[:], np.rint(spikes.t / brian2.second / NETWORK["dt"]).astype(int))
    return {"counts": np.array(spikes.count).tolist(), "last": last.tolist()}


def network() -> dict:
    wired = wiring()
    found = {name: {**case, **brian2_spikes(wired, **case)} for name, case in CASES.items()}
    for name, case in found.items():
        print(f"Brian2, {name}: {sum(case['counts'])} spikes")
    return {"settings": NETWORK, **wired, "cases": found}


# ------------------------------------------------------------------------------------------ tuning


def drawn(neurons: int, dimensions: int, points: int) -> dict:
    """An ensemble as it stands in the file; its points lie in the unit ball."""
    rng = np.random.default_rng(dimensions)

    def directions(count: int) -> np.ndarray:
        some = rng.standard_normal((count, dimensions))
        return some / np.linalg.norm(some, axis=1, keepdims=True)

    return {
        "encoders": rounded(directions(neurons)),
        "max_rates": rounded(rng.uniform(210, 390, neurons)),
        "intercepts": rounded(rng.uniform(-1, 0.9, neurons)),
        "points": rounded(rng.random((points, 1)) ** (1 / dimensions) * directions(points)),
        "voltage": rounded(rng.random(neurons)),
    }


def nengo_ensemble(given: Mapping, neuron_type, radius: float):
    import nengo

    encoders = np.array(given["encoders"])
    return nengo.Ensemble(
        *encoders.shape,
        radius=radius,
        encoders=encoders,
        normalize_encoders=False,
        max_rates=np.array(given["max_rates"]),
        intercepts=np.array(given["intercepts"]),
        eval_points=np.array(given["points"]),
        neuron_type=neuron_type,
    )


def tuning() -> dict:
    """Gain, bias and rates of three kinds of neurons at points inside a radius."""
    import nengo

    given, radius = drawn(20, 2, 12), 1.5
    kinds = {
        "lif": nengo.LIFRate(),
        "rectified-linear": nengo.RectifiedLinear(),
        "sigmoid": nengo.Sigmoid(),
    }
    with nengo.Network() as model:
        made = {name: nengo_ensemble(given, kind, radius) for name, kind in kinds.items()}
    found = {"radius": radius, **given}
    with nengo.Simulator(model, progress_bar=False) as simulator:
        for name, ensemble in made.items():
            where = radius * np.array(given["points"])
            _, rates = nengo.utils.ensemble.tuning_curves(ensemble, simulator, where)
            built = simulator.data[ensemble]
            parts = {"gain": built.gain, "bias": built.bias, "rates": rates}
            found[name] = {key: rounded(part) for key, part in parts.items()}
    return found


# ----------------------------------------------------------------------------------------- systems

SYNAPSES = {"tau_s": 0.1, "tau_read": 0.02, "dt": DT}  # s
SYSTEMS = {  # a push is from which step, to which, and what comes in each second
    "integrator": {
        "radius": 1.0,
        "noise": 0.1,
        "pushes": [[100, 300, [4.0]], [600, 700, [-12.0]]],
    },
    "oscillator": {
        "radius": 1.0,
        "noise": 0.1,
        "pushes": [[0, 50, [16.0, 0.0]]],
        "frequency": 2.0,  # Hz
    },
    "van-der-pol": {
        "radius": 3.5,
        "noise": 0.05,
        "pushes": [[0, 100, [10.0, 0.0]]],
        "mu": 1.0,
        "speed": 6.0,
    },
    "lorenz": {"radius": 40.0, "noise": 0.01, "pushes": [[0, 100, [50.0, 0.0, 0.0]]]},
}
EVERY = 10  # steps from one row of a trajectory to the next


def integration(y: np.ndarray) -> np.ndarray:
    return 0 * y


def rotation(y: np.ndarray) -> np.ndarray:
    return 2 * math.pi * SYSTEMS["oscillator"]["frequency"] * np.array([-y[1], y[0]])


def van_der_pol(y: np.ndarray) -> np.ndarray:
    (x, w), system = y, SYSTEMS["van-der-pol"]
    return system["speed"] * np.array([w, system["mu"] * (1 - x**2) * w - x])


def lorenz(y: np.ndarray) -> np.ndarray:
    x, w, z = y
    return np.array([10 * (w - x), -x * z - w, x * w - 8 / 3 * (z + 28)])


FLOWS = {
    "integrator": integration,
    "oscillator": rotation,
    "van-der-pol": van_der_pol,
    "lorenz": lorenz,
}


def dimensions_of(name: str) -> int:
    return len(SYSTEMS[name]["pushes"][0][2])


def nengo_run(name: str, make: Callable, duration: float, seed: int = 0) -> np.ndarray:
    """What is read after each step of a population with dy/dt = flow(y) + input."""
    import nengo

    steps, tau, flow = round(duration / DT), SYNAPSES["tau_s"], FLOWS[name]
    rows = np.zeros((steps + 1, dimensions_of(name)))
    for first, last, push in SYSTEMS[name]["pushes"]:
        rows[first:last] = push
    solver = nengo.solvers.LstsqL2(reg=SYSTEMS[name]["noise"])
    with nengo.Network(seed=seed) as model:
        group = make()
        given = nengo.Node(lambda t: rows[round(t / DT) - 1])
        nengo.Connection(given, group, transform=tau, synapse=tau)
        nengo.Connection(
            *(group, group),
            function=lambda y: y + tau * flow(y),
            synapse=tau,
            solver=solver,
        )
        read = nengo.Probe(group, synapse=SYNAPSES["tau_read"], solver=solver)
    with nengo.Simulator(model, dt=DT, progress_bar=False) as simulator:
        simulator.run_steps(steps + 1, progress_bar=False)
        return simulator.data[read][1:].copy()  # a probe tells what a synapse held before a step


def trajectories(ensembles: Mapping) -> dict:
    """What is read over a second, by rates and by spikes of the same neurons."""
    import nengo

    found = {"settings": SYNAPSES | {"duration": 1.0, "every": EVERY}}
    for name, system in SYSTEMS.items():
        given, found[name] = ensembles[str(dimensions_of(name))], dict(system)
        begun = {"voltage": np.array(given["voltage"])}
        kinds = {"rate": nengo.LIFRate(), "spiking": nengo.LIF(initial_state=begun)}
        for kind, neuron_type in kinds.items():
            read = nengo_run(
                name,
                partial(nengo_ensemble, given, neuron_type, system["radius"]),
                found["settings"]["duration"],
            )
            found[name][kind] = rounded(read[EVERY - 1 :: EVERY])
            print(f"Nengo, {name} by {kind}: rms {np.sqrt(np.mean(read**2)):.4f}")
    return found


# -------------------------------------------------------------------------------------- attractors

RUNS = {
    "van-der-pol": {"neurons": 1000, "duration": 10.0, "skipped": 3.0, "seeds": 12},
    "lorenz": {"neurons": 1000, "duration": 50.0, "skipped": 5.0, "seeds": 6, "spread": 2.0},
}


def changes(x: np.ndarray, threshold: float) -> np.ndarray:
    """Steps at which x, having been beyond one threshold, is first beyond the other."""
    beyond = np.flatnonzero(np.abs(x) > threshold)
    return beyond[1:][np.diff(np.sign(x[beyond])) != 0]


def cycle(values: np.ndarray) -> list[float]:
    """Mean period (s) and height of the first coordinate."""
    x = values[:, 0]
    ups = changes(x, 1.0)
    ups = ups[x[ups] > 0]
    tops = [x[a:b].max() for a, b in pairwise(ups)]
    return [(ups[-1] - ups[0]) * DT / (len(ups) - 1), float(np.mean(tops))]


def butterfly(values: np.ndarray) -> list[float]:
    """Means, deviations, changes of lobe and turns in a second.

    The first two coordinates deviate from 0, about which the butterfly is symmetric: a run that is
    long on one lobe has another mean, but the same deviation.
    """
    seconds, mean = len(values) * DT, values.mean(0)
    wide = np.sqrt(np.mean((values - [0, 0, mean[2]]) ** 2, axis=0))
    lobes, halves = len(changes(values[:, 0], 3.0)), len(changes(values[:, 2] + 1, 3.0))
    return [*mean, *wide, lobes / seconds, halves / 2 / seconds]


def around(count: int, seed: int) -> np.ndarray:
    """Points about the attractor of the true system, which Runge-Kutta steps of 5 ms follow."""
    rng, dt, path = np.random.default_rng(seed), 0.005, []
    y = 5 * rng.standard_normal((3, 20))
    for k in range(2000):
        a = lorenz(y)
        b = lorenz(y + dt / 2 * a)
        c = lorenz(y + dt / 2 * b)
        y = y + dt / 6 * (a + 2 * b + 2 * c + lorenz(y + dt * c))
        if k >= 1000:
            path.append(y.T)
    whole = np.concatenate(path)
    chosen = whole[rng.integers(len(whole), size=count)]
    return chosen + RUNS["lorenz"]["spread"] * rng.standard_normal((count, 3))


def attractor(name: str, measure: Callable[[np.ndarray], list[float]]) -> dict:
    """A row of what is measured for each seed, by rates and by spikes."""
    import nengo

    settings, radius = RUNS[name], SYSTEMS[name]["radius"]
    count, found = settings["neurons"], {"settings": settings}
    for kind, neuron_type in (("rate", nengo.LIFRate()), ("spiking", nengo.LIF())):
        rows = []
        for seed in range(settings["seeds"]):
            points = nengo.dists.UniformHypersphere()
            if name == "lorenz":
                points = around(2 * count, seed) / radius
            make = partial(
                nengo.Ensemble,
                *(count, dimensions_of(name)),
                radius=radius,
                encoders=nengo.dists.UniformHypersphere(surface=True),
                eval_points=points,
                n_eval_points=2 * count,
                neuron_type=neuron_type,
            )
            read = nengo_run(name, make, settings["duration"], seed)
            rows.append(measure(read[round(settings["skipped"] / DT) :]))
        found[kind] = rounded(rows)
        mean, scatter = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1)
        told = ", ".join(f"{m:.4g} +- {s:.2g}" for m, s in zip(mean, scatter, strict=True))
        print(f"Nengo, {name} by {kind}: {told}", flush=True)
    return found


def written(parts: Mapping[str, Mapping]) -> str:
    """JSON with a line for each entry of each part."""

    def line(value) -> str:
        return json.dumps(value, separators=(",", ":"))

    def block(part: Mapping) -> str:
        return ",\n".join(f"  {line(key)}: {line(value)}" for key, value in part.items())

    whole = ",\n".join(f" {line(name)}: {{\n{block(part)}\n }}" for name, part in parts.items())
    return f"{{\n{whole}\n}}\n"


def main() -> int:
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        python = python_of("spiking")
        if python == Path(sys.executable):
            print(f"{FILE.relative_to(ROOT)} is left as it is: {', '.join(missing)} is missing")
            return 0
        return subprocess.run([python, __file__], check=False).returncode
    import nengo

    nengo.rc["decoder_cache"]["enabled"] = "False"
    ensembles = {str(d): drawn(200, d, points) for d, points in ((1, 300), (2, 500), (3, 500))}
    parts = {
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "network": network(),
        "tuning": tuning(),
        "ensembles": ensembles,
        "trajectories": trajectories(ensembles),
        "van-der-pol": attractor("van-der-pol", cycle),
        "lorenz": attractor("lorenz", butterfly),
    }
    FILE.write_text(written(parts))
    versions = ", ".join(f"{name} {version}" for name, version in parts["versions"].items())
    print(f"{FILE.relative_to(ROOT)}: {FILE.stat().st_size / 1000:.0f} kB, {versions}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
