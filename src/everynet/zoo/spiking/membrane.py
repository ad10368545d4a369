"""The membrane at rest: ions leak down their gradients, a pump carries them back up.

    E = (R T / z F) ln([out] / [in])                              (1)  Nernst: one ion at rest
    phi = P g(z u) ([in] - [out] e^{-z u}),  u = V F / (R T)      (2)  flux out through channels
    g(x) = x / (1 - e^{-x})                                       (3)  1 where x = 0
    V = (R T / F) ln( (sum_+ P [out] + sum_- P [in])
                    / (sum_+ P [in] + sum_- P [out]) )            (4)  Goldman, Hodgkin, Katz: rest
    pump: 3 Na+ out, 2 K+ in a cycle                              (5)  one charge out
    J = J_max ([Na]_in / ([Na]_in + 10))^3                        (6)  cycles, by sodium inside
    V = (R T / F) ln( (3 P_K [K]_out + 2 P_Na [Na]_out)
                    / (3 P_K [K]_in  + 2 P_Na [Na]_in) )          (7)  Mullins, Noda: steady
    d[in]/dt = -(area / volume) (phi + pumped out)                (8)  what fluxes do

where z is the charge of an ion, sum_+ and sum_- run over ions of charge 1 and -1, and R and F are
the gas constant and Faraday's; side by side means a product. Channels are passive: at rest Na+
flows in and K+ flows out. The pump works against both. Without it (4) holds for a while, but the
gradients run down and with them the potential. Concentrations are in mM, potentials in mV,
permeabilities P in cm/s, times in seconds, temperature T in kelvin.

Goldman (1943), "Potential, impedance, and rectification in membranes", Journal of General
Physiology 27; Hodgkin and Katz (1949), "The effect of sodium ions on the electrical activity of the
giant axon of the squid", Journal of Physiology 108; Mullins and Noda (1963), "The influence of
sodium-free solutions on the membrane potential of frog muscle fibers", J. Gen. Physiol. 47.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import torch
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.zoo.spiking.lif import require

GAS, FARADAY = 8.314462618, 96485.33212  # J/(mol K), C/mol
HALF = 10.0  # mM of sodium inside at which a site of the pump is taken half of the time
SODIUM_OUT, POTASSIUM_IN = 3, 2  # ions a cycle of the pump


class Ion(NamedTuple):
    """One kind of ion: its charge, how well it passes, and where it is."""

    charge: int
    permeability: float  # cm/s
    inside: float  # mM
    outside: float  # mM


def thermal(temperature: float) -> float:
    """R T / F in mV: about 26.7 at 37 degrees Celsius."""
    require(0 < temperature < math.inf, "temperature", temperature, "K", "above 0")
    return 1000 * GAS * temperature / FARADAY


def nernst(ion: Ion, temperature: float = 310.15) -> float:
    """The potential at which as much of the ion flows in as out, in mV."""
    check(ion)
    return thermal(temperature) / ion.charge * math.log(ion.outside / ion.inside)  # (1)


def flux(ion: Ion, voltage: float, temperature: float = 310.15) -> float:
    """What flows out through open channels, in umol/(cm2 s); negative flows in."""
    check(ion)
    x = ion.charge * voltage / thermal(temperature)
    steepness = x / -math.expm1(-x) if x else 1.0  # (3)
    return ion.permeability * steepness * (ion.inside - ion.outside * math.exp(-x))  # (2)


def goldman(*ions: Ion, temperature: float = 310.15) -> float:
    """The potential at which the currents of all ions of charge +1 and -1 cancel, in mV."""
    above = below = 0.0
    for ion in ions:
        check(ion)
        require(abs(ion.charge) == 1, "charge", ion.charge, "e", "1 or -1: (4) holds for no other")
        outer, inner = ion.permeability * ion.outside, ion.permeability * ion.inside
        above, below = (
            (above + outer, below + inner) if ion.charge > 0 else (above + inner, below + outer)
        )
    require(above > 0, "permeability", "all 0", "cm/s", "positive for at least one ion")
    return thermal(temperature) * math.log(above / below)  # (4)


def mullins(sodium: Ion, potassium: Ion, temperature: float = 310.15) -> float:
    """The potential at which the pump makes up for both leaks, in mV."""
    na, k = POTASSIUM_IN * sodium.permeability, SODIUM_OUT * potassium.permeability
    outer = k * potassium.outside + na * sodium.outside
    return thermal(temperature) * math.log(
        outer / (k * potassium.inside + na * sodium.inside)
    )  # (7)


def cycles(fastest: float, sodium_inside: float) -> float:
    """How often the pump turns, in the unit of `fastest`."""
    return fastest * (sodium_inside / (sodium_inside + HALF)) ** SODIUM_OUT  # (6)


def balance(sodium: Ion, potassium: Ion, pumped: float, temperature: float = 310.15) -> float:
    """The potential at which leaks and pump carry no net charge, by secants, in mV."""

    def net(v: float) -> float:
        leak = flux(sodium, v, temperature) + flux(potassium, v, temperature)
        return leak + pumped * (SODIUM_OUT - POTASSIUM_IN)  # (5)

    v = goldman(sodium, potassium, temperature=temperature)  # the pump moves it by a few mV
    old = v + 1.0
    before, now = net(old), net(v)
    while now != before and abs(v - old) > 1e-12:
        old, v = v, v - now * (v - old) / (now - before)
        before, now = now, net(v)
    return v


def check(ion: Ion) -> None:
    """Refuse concentrations and permeabilities that no solution has."""
    require(ion.charge != 0, "charge", ion.charge, "e", "a whole number other than 0")
    good = 0 < ion.inside < math.inf and 0 < ion.outside < math.inf
    shown = f"{ion.inside} inside, {ion.outside} outside"
    require(good, "concentration", shown, "mM", "positive on both sides")
    require(0 <= ion.permeability < math.inf, "permeability", ion.permeability, "cm/s", "from 0 up")


@dataclass(frozen=True, kw_only=True)
class RestingPotential(Simulation):
    """A cell whose pump works, is stopped, and works again."""

    meanings: ClassVar[Mapping[str, str]] = {
        "e_potassium": "potential at which potassium rests, in mV",
        "e_sodium": "potential at which sodium rests, in mV",
        "e_chloride": "potential at which chloride rests, in mV",
        "rest": "potential at which all currents cancel, in mV",
        "net_current": "current that is left at rest, as a share of potassium's: none",
        "steady_drift": "relative drift of the concentrations while the pump works",
        "mullins_error": "how far the steady potential is from Mullins and Noda's, in mV",
        "pump_ratio": "sodium carried out for each potassium carried in: 3 / 2",
        "wrong_leaks": "times at which an ion leaked up its gradient: never",
        "potential_lost": "by how much the potential rises while the pump is stopped, in mV",
        "sodium_left": "sodium inside at the end over that where the pump began to work again",
    }

    sodium_in: float = 12.0
    """Na+ inside, mM."""
    sodium_out: float = 145.0
    """Na+ outside, mM."""
    potassium_in: float = 140.0
    """K+ inside, mM."""
    potassium_out: float = 5.0
    """K+ outside, mM."""
    chloride_in: float = 10.0
    """Cl- inside, mM; only in the resting potential of all three ions."""
    chloride_out: float = 110.0
    """Cl- outside, mM."""
    permeability: float = 5e-7
    """Of the membrane for K+, cm/s."""
    sodium_share: float = 0.04
    """Permeability for Na+ over that for K+."""
    chloride_share: float = 0.45
    """Permeability for Cl- over that for K+."""
    radius: float = 10.0
    """Of the cell, a sphere, um."""
    temperature: float = 310.15
    """K."""
    phases: tuple[float, ...] = (3600.0, 14400.0, 14400.0)
    """How long the pump works, stands still and works again, s."""
    dt: float = 60.0
    """Step, s."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.above(0, "sodium_in", "sodium_out", "potassium_in", "potassium_out", "chloride_in")
        self.above(0, "chloride_out", "permeability", "sodium_share", "radius", "temperature", "dt")
        self.at_least(0, "chloride_share")
        good = len(self.phases) == 3 and all(part >= 2 * self.dt for part in self.phases)
        self.require(good, "phases", "three times of at least two steps of dt, in seconds")

    def ions(self) -> tuple[Ion, Ion, Ion]:
        """Sodium, potassium and chloride at the beginning."""
        p = self.permeability
        return (
            Ion(1, p * self.sodium_share, self.sodium_in, self.sodium_out),
            Ion(1, p, self.potassium_in, self.potassium_out),
            Ion(-1, p * self.chloride_share, self.chloride_in, self.chloride_out),
        )

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        sodium, potassium, _ = self.ions()
        at_rest = mullins(sodium, potassium, self.temperature)
        needed = -flux(sodium, at_rest, self.temperature) / SODIUM_OUT
        fastest = needed / cycles(1.0, self.sodium_in)  # so that the beginning is a steady state
        steps = [round(part / self.dt) for part in self.phases]
        rows = []
        for k in range(sum(steps)):
            works = not steps[0] <= k < steps[0] + steps[1]
            slope, seen = self._slope(sodium, potassium, fastest * works)
            rows.append([k * self.dt, sodium.inside, potassium.inside, *seen])
            middle = _moved(sodium, potassium, slope, self.dt / 2)
            slope, _ = self._slope(*middle, fastest * works)  # the slope half-way: second order
            sodium, potassium = _moved(sodium, potassium, slope, self.dt)
        return {"rows": torch.tensor(rows, dtype=torch.float64)}

    def _slope(
        self, sodium: Ion, potassium: Ion, fastest: float
    ) -> tuple[tuple[float, float], tuple[float, ...]]:
        """Change of Na+ and K+ inside, mM/s; the potential, the leaks out and the pump's cycles."""
        pumped = cycles(fastest, sodium.inside)
        v = balance(sodium, potassium, pumped, self.temperature)
        leaks = flux(sodium, v, self.temperature), flux(potassium, v, self.temperature)
        ratio = 3 / (self.radius * 1e-4)  # area over volume of a sphere, 1/cm
        change = (
            -ratio * (leaks[0] + SODIUM_OUT * pumped),  # (8)
            -ratio * (leaks[1] - POTASSIUM_IN * pumped),
        )
        return change, (v, *leaks, pumped)

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        sodium, potassium, chloride = self.ions()
        t = self.temperature
        rest = goldman(sodium, potassium, chloride, temperature=t)
        net = sum(ion.charge * flux(ion, rest, t) for ion in self.ions())
        first, stopped = (round(p / self.dt) for p in self.phases[:2])
        rows = result["rows"]
        steady, off = rows[:first], rows[first + stopped - 1]
        pumped = steady[-1, 6]
        return {
            "e_potassium": nernst(potassium, t),
            "e_sodium": nernst(sodium, t),
            "e_chloride": nernst(chloride, t),
            "rest": rest,
            "net_current": abs(net) / abs(flux(potassium, rest, t)),
            "steady_drift": float((steady[:, 1:3] / steady[0, 1:3] - 1).abs().max()),
            "mullins_error": abs(float(steady[0, 3]) - mullins(sodium, potassium, t)),
            "pump_ratio": float(-steady[-1, 4] / pumped / (steady[-1, 5] / pumped)),
            "wrong_leaks": float(((rows[:first, 4] >= 0) | (rows[:first, 5] <= 0)).sum()),
            "potential_lost": float(off[3] - steady[0, 3]),
            "sodium_left": float(rows[-1, 1] / off[1]),
        }

    def picture_pump(self, result: Mapping[str, Tensor]) -> Figure:
        """Concentrations, potential and fluxes by time, with lines where the pump stops and works.

        Without the pump the gradients and the potential run down; with it they come back.
        """
        rows = result["rows"]
        hours, off = rows[:, 0] / 3600, self.phases[0] / 3600
        marks = {"pump stops": off, "pump works": off + self.phases[1] / 3600}
        sodium, potassium, pumped = (rows[:, 4:] * 1e6).T  # pmol
        fluxes = {
            "Na+ leak": sodium,
            "K+ leak": potassium,
            "Na+ pumped": SODIUM_OUT * pumped,
            "K+ pumped": -POTASSIUM_IN * pumped,
        }
        shown: tuple[tuple[dict[str, Tensor], str], ...] = (
            ({"Na+ inside": rows[:, 1], "K+ inside": rows[:, 2]}, "concentration (mM)"),
            ({"membrane": rows[:, 3]}, "potential (mV)"),
            (fluxes, r"flux out (pmol cm$^{-2}$ s$^{-1}$)"),
        )
        drawn = []
        for values, label in shown:
            curves = {name: (hours, value) for name, value in values.items()}
            low, high = torch.stack([*values.values()]).aminmax()
            room = float(high - low)  # above the curves, for what is written there
            ylim = (float(low) - 0.05 * room, float(high) + 0.35 * room)
            drawn.append(Panel(curves, "time (h)", label, marks=marks, ylim=ylim))
        return panels(*drawn)

    def picture_resting_potential(self, result: Mapping[str, Tensor]) -> Figure:
        """The resting potential (blue) and that of potassium (dashed) by potassium outside.

        Rest follows potassium where there is much of it, and stays above where sodium counts.
        """
        (sodium, potassium, chloride), t = self.ions(), self.temperature
        outside = torch.logspace(0, math.log10(200), 60, dtype=torch.float64)
        changed = [potassium._replace(outside=c) for c in outside.tolist()]
        rest = [goldman(sodium, k, chloride, temperature=t) for k in changed]
        alone = [nernst(k, t) for k in changed]
        return panels(
            Panel(
                {"rest (Goldman)": (outside, outside.new_tensor(rest))},
                "K+ outside (mM)",
                "potential (mV)",
                "rest follows potassium, and leaves it where sodium counts",
                guides={r"$E_K$ (Nernst)": (outside, outside.new_tensor(alone))},
                levels={rf"$E_{{Na}}$ = {nernst(sodium, t):.0f} mV": nernst(sodium, t)},
                marks={"in the body": self.potassium_out},
                log="x",
            ),
            width=6.0,
        )

    def tiny(self) -> Self:
        return replace(self, phases=(300.0, 1800.0, 300.0))


def _moved(sodium: Ion, potassium: Ion, slope: tuple[float, float], dt: float) -> tuple[Ion, Ion]:
    return (
        sodium._replace(inside=sodium.inside + dt * slope[0]),
        potassium._replace(inside=potassium.inside + dt * slope[1]),
    )


RECIPES = {
    "membrane": RestingPotential(
        goal="e_potassium >= -90 and e_potassium <= -88 and e_sodium >= 66 and e_sodium <= 68 "
        "and rest >= -72 and rest <= -62 and net_current <= 1e-9 and wrong_leaks == 0 "
        "and steady_drift <= 1e-6 and mullins_error <= 1e-6",
        covers=("N1",),
    ),
}
