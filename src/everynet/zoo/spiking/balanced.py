"""A network of excitation, inhibition and a drive from outside, and the rate of its mean field.

    tau dV_i/dt = -V_i + tau sum_j J_ij sum_k delta(t - t_j^k - D_ij)     (1)  membrane, mV
    v = (V - V_r) / (theta - V_r)                                         (2)  without dimension
    nu_thr = theta / (C_E J tau)                                          (3)  mean input theta
    mu = C_E J tau (nu_ext + nu (1 - gamma g))                            (4)  mean input
    sigma^2 = C_E J^2 tau (nu_ext + nu (1 + gamma g^2))                   (5)  its variance
    1 / nu = tau_rp + tau sqrt(pi) int_a^b e^{u^2} (1 + erf u) du         (6)  rate, mean field
             a = (V_r - mu) / sigma,  b = (theta - mu) / sigma

Each neuron has C_E excitatory inputs that move V by J and gamma C_E inhibitory ones that move it by
-g J, drawn at random with repeats, and C_E outside ones, Poisson of rate nu_ext. At theta = 20 mV
it fires, and V = V_r = 10 mV for tau_rp = 2 ms; tau = 20 ms, D = 1.5 ms, gamma = 1/4.

With (2) the network is a `LIFNetwork` (threshold 1, reset 0) under the constant input
-V_r / (theta - V_r), with weights J tau / (theta - V_r) in seconds. Its synapses are exponential:
a time constant of a thousandth of a step puts the whole jump into one step, as (1) has it.

Brunel (2000), "Dynamics of sparsely connected networks of excitatory and inhibitory spiking
neurons", Journal of Computational Neuroscience 8, doi:10.1023/A:1008925309027.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.sparse import csc_array
from scipy.special import erfcx
from torch import Tensor

from everynet.kernels.lif import Recording
from everynet.kernels.lif_network import NetworkState
from everynet.zoo.spiking.lif import require
from everynet.zoo.spiking.network import LIFNetwork

TAU, TAU_RP, DELAY = 0.02, 0.002, 0.0015  # s
THETA, RESET = 20.0, 10.0  # mV
GAMMA = 0.25  # inhibitory neurons for each excitatory one
DT = 1e-4  # s


@dataclass(frozen=True)
class Balanced:
    """One network of the paper, under one drive."""

    excitatory: int
    inputs: int  # C_E
    jump: float  # J, mV
    g: float
    drive: float  # nu_ext / nu_thr
    broad: bool = False  # delays from 0 to 2 D instead of D

    @property
    def neurons(self) -> int:
        """Of both kinds."""
        return self.excitatory + round(GAMMA * self.excitatory)

    @property
    def outside(self) -> float:
        """Rate of one outside input, nu_ext, in Hz."""
        threshold = THETA / (self.inputs * self.jump * TAU)  # (3)
        return self.drive * threshold

    @property
    def weight(self) -> float:
        """Of an excitatory synapse without dimension, in s."""
        return self.jump * TAU / (THETA - RESET)  # (1) (2)

    def network(self, generator: torch.Generator | None = None) -> LIFNetwork:
        """The neurons with inputs drawn at random, in float32 with int32 places."""
        size, inhibited = self.neurons, round(GAMMA * self.inputs)
        kinds = (0, self.excitatory, self.inputs), (self.excitatory, size, inhibited)
        drawn = [
            torch.randint(low, high, (size, count), generator=generator, dtype=torch.int32)
            for low, high, count in kinds
        ]
        sources = torch.cat(drawn, dim=1)
        inhibition = -self.g * self.weight
        values = torch.where(sources < self.excitatory, self.weight, inhibition).float()
        starts = np.arange(size + 1, dtype=np.int32) * np.int32(sources.shape[1])
        by_target = (values.view(-1).numpy(), sources.view(-1).numpy(), starts)
        weights = csc_array(by_target, shape=(size, size)).tocsr()
        delay: float | Tensor = DELAY
        if self.broad:
            delay = 2 * DELAY * torch.rand(weights.nnz, generator=generator, dtype=torch.float64)
        return LIFNetwork(weights, DT / 1000, TAU, TAU_RP, delay)

    def simulate(
        self,
        network: LIFNetwork,
        duration: float,  # s
        generator: torch.Generator | None = None,
        state: NetworkState | None = None,
    ) -> Recording[NetworkState]:
        """Run under the drive, from V = V_r or on from a state."""
        constant = -RESET / (THETA - RESET)  # (2)
        return network.simulate(
            duration, DT, constant, self.inputs * self.outside, generator=generator, state=state,
            poisson_weight=self.weight,
        )  # fmt: skip

    def moments(self, rate: float) -> tuple[float, float]:
        """Mean and standard deviation (mV) of the input where every neuron fires at `rate` Hz."""
        scale, g = self.inputs * self.jump * TAU, self.g
        mean = scale * (self.outside + rate * (1 - GAMMA * g))  # (4)
        variance = scale * self.jump * (self.outside + rate * (1 + GAMMA * g**2))  # (5)
        return mean, math.sqrt(variance)

    def mean_field(self) -> float:
        """The rate (Hz) that gives rise to itself."""
        found = brentq(lambda rate: siegert(*self.moments(rate)) - rate, 0, 1 / TAU_RP, xtol=1e-9)
        return float(found)


def siegert(mean: float, deviation: float) -> float:
    """Rate (Hz) of a neuron under white noise of this mean and standard deviation (mV)."""
    require(deviation > 0, "deviation", deviation, "mV", "positive; `LIF.rate` is the rate at 0")
    low, high = (RESET - mean) / deviation, (THETA - mean) / deviation
    if high > 26:  # e^{u^2} is no number any more, and the rate is nothing
        return 0.0
    area, _ = quad(lambda u: erfcx(-u), low, high, limit=200)
    return 1 / (TAU_RP + TAU * math.sqrt(math.pi) * float(area))  # (6)
