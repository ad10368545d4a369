"""Our populations beside Nengo's, which benchmarks/spiking_references.py ran and wrote down."""

import json
from pathlib import Path

import pytest
import torch

from everynet.zoo.population.dynamics import (
    RatePopulation,
    SpikingPopulation,
    period_and_amplitude,
    solve_ode,
    threshold_crossings,
)
from everynet.zoo.population.ensemble import Ensemble, relative_error
from everynet.zoo.population.integrator import integration
from everynet.zoo.population.lorenz import lorenz
from everynet.zoo.population.oscillator import oscillation
from everynet.zoo.population.tuning import TUNINGS, gain_and_bias
from everynet.zoo.population.van_der_pol import van_der_pol

THEIRS = json.loads((Path(__file__).parent.parent / "references.json").read_text())
SYSTEMS = THEIRS["trajectories"]
SYNAPSES = {name: SYSTEMS["settings"][name] for name in ("tau_s", "tau_read")}
DT = SYSTEMS["settings"]["dt"]
FLOWS = {
    "integrator": integration,
    "oscillator": oscillation(SYSTEMS["oscillator"]["frequency"]),
    "van-der-pol": van_der_pol(SYSTEMS["van-der-pol"]["mu"], SYSTEMS["van-der-pol"]["speed"]),
    "lorenz": lorenz,
}
POPULATIONS = {"rate": RatePopulation, "spiking": SpikingPopulation}


def values(numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def ensemble(given, tuning, radius):
    """Neurons and points as Nengo had them; gain and bias are ours."""
    encoders = values(given["encoders"])
    made = Ensemble(
        *encoders.shape, tuning=tuning, radius=radius, eval_points=1, max_rates=(300, 300)
    )
    peaks, intercepts = values(given["max_rates"]), values(given["intercepts"])
    made.gain, made.bias = gain_and_bias(tuning, peaks, intercepts)
    made.encoders, made.eval_points = encoders, radius * values(given["points"])
    return made


def population(of, name, made):
    return of(made, FLOWS[name], **SYNAPSES, noise=SYSTEMS[name]["noise"])


def pushed(name, duration):
    pushes = SYSTEMS[name]["pushes"]
    rows = torch.zeros(round(duration / DT), len(pushes[0][2]), dtype=torch.float64)
    for first, last, push in pushes:
        rows[first:last] = values(push)
    return rows


@pytest.mark.covers("N5", "P1")
@pytest.mark.parametrize("name", TUNINGS)
def test_gain_bias_and_rates_are_nengos(name):
    """To the nine digits that are in the file."""
    given, theirs = THEIRS["tuning"], THEIRS["tuning"][name]
    ours = ensemble(given, TUNINGS[name](), given["radius"])
    rates = ours.encode(ours.eval_points)
    assert (rates > 0).double().mean() > 0.4
    found = {"gain": ours.gain, "bias": ours.bias, "rates": rates}
    for part, mine in found.items():
        torch.testing.assert_close(mine, values(theirs[part]), rtol=1e-8, atol=1e-10)


@pytest.mark.covers("P7", "P8")
@pytest.mark.parametrize("kind", POPULATIONS)
@pytest.mark.parametrize("name", FLOWS)
def test_trajectories_are_nengos(name, kind):
    """Over a second by the same neurons; one spike more or less would show."""
    theirs, duration = SYSTEMS[name], SYSTEMS["settings"]["duration"]
    rows = pushed(name, duration)
    given = THEIRS["ensembles"][str(rows.shape[1])]
    ours = population(POPULATIONS[kind], name, ensemble(given, TUNINGS["lif"](), theirs["radius"]))
    begun = ours.initial_state(torch.zeros(rows.shape[1]), None)
    if kind == "spiking":
        begun = begun._replace(voltage=values(given["voltage"]))
    every = SYSTEMS["settings"]["every"]
    read = ours.simulate(rows, duration, DT, state=begun).decoded[every - 1 :: every]
    assert relative_error(read, values(theirs[kind])) < 1e-6


def assert_same(ours, theirs):
    """Means over runs differ by less than five standard errors, column by column."""
    ours, theirs = values(ours), values(theirs)
    spare = len(ours) + len(theirs) - 2
    scatter = (((len(ours) - 1) * ours.var(0) + (len(theirs) - 1) * theirs.var(0)) / spare).sqrt()
    error = scatter * (1 / len(ours) + 1 / len(theirs)) ** 0.5
    apart = (ours.mean(0) - theirs.mean(0)) / error
    assert (apart.abs() < 5).all(), apart


def measured(name, seeds, measure, around=None):
    """What is measured of populations of our own, by rates and by spikes, a row for each seed."""
    settings, radius = THEIRS[name]["settings"], SYSTEMS[name]["radius"]
    rows, count = pushed(name, settings["duration"]), settings["neurons"]
    found = {kind: [] for kind in POPULATIONS}
    for seed in range(seeds):
        generator = torch.Generator().manual_seed(seed)
        made = Ensemble(
            count, rows.shape[1], radius=radius, eval_points=2 * count, generator=generator
        )
        made.eval_points = around(2 * count, generator) if around else made.eval_points
        for kind, of in POPULATIONS.items():
            run = population(of, name, made).simulate(
                rows, settings["duration"], DT, generator=generator
            )
            found[kind].append(measure(run.decoded[round(settings["skipped"] / DT) :]))
    return found


@pytest.mark.covers("P7", "P8")
def test_van_der_pols_cycle_is_nengos():
    """Period and height; five standard errors are 1.5 % of them."""
    ours = measured("van-der-pol", 12, lambda y: period_and_amplitude(y[:, 0], DT, 1.0))
    for kind, rows in ours.items():
        assert_same(rows, THEIRS["van-der-pol"][kind])


@pytest.mark.covers("P7", "P8")
def test_lorenz_butterfly_is_nengos():
    """Five standard errors of the first deviation are 1 % by rates and 5 % by spikes."""
    spread = THEIRS["lorenz"]["settings"]["spread"]
    start = 5 * torch.randn(60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    times = torch.arange(500, 1500).double() * 0.01
    path = solve_ode(lambda y: lorenz(y.reshape(-1, 3)).reshape(1, -1), start, times).reshape(-1, 3)

    def around(count, generator):
        chosen = torch.randint(len(path), (count,), generator=generator)
        noise = torch.randn(count, 3, generator=generator, dtype=torch.float64)
        return path[chosen] + spread * noise

    def measure(y):  # as in the script
        seconds, mean = len(y) * DT, y.mean(0)
        wide = torch.cat([y[:, :2], y[:, 2:] - mean[2]], dim=1).square().mean(0).sqrt()
        lobes, halves = (
            len(threshold_crossings(y[:, 0], 3.0)),
            len(threshold_crossings(y[:, 2] + 1, 3.0)),
        )
        return [*mean.tolist(), *wide.tolist(), lobes / seconds, halves / 2 / seconds]

    ours = measured("lorenz", 12, measure, around)
    for kind, rows in ours.items():
        assert_same(rows, THEIRS["lorenz"][kind])
