"""A network trained on firing rates and then run on spikes: only the neuron is exchanged.

    rho(x) = gamma ln(1 + e^{x / gamma})                   (1)  softplus: a smooth relu
    r(I) = 1 / (tau_ref + tau_m ln(1 + 1 / rho(I - 1)))    (2)  rate of the neuron, made smooth
    h = r(W x + b) / f                                     (3)  trained on rates, or
    h = spikes in T / (T f)                                (4)  counted over a time T
    logits = W h + b                                       (5)  readout

where x is an image, h the hidden layer, W and b the weights and biases of a layer, and W x a
product of a matrix and a vector. With gamma -> 0, (2) is the rate of a leaky integrate-and-fire
neuron under a constant current I in units of the threshold; its slope there is infinite, which
descent could not follow. f scales rates to about 1. The longer T, the nearer is (4) to (3): a count
is off by less than one spike.

Hunsberger, Eliasmith (2015), "Spiking deep networks with LIF neurons", arXiv:1510.08829.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softplus

from everynet.data.dataset import Batch, Data, History
from everynet.metrics import accuracy, classified
from everynet.metrics.meanings import CLASSES, meanings
from everynet.nn.input_checks import require_samples
from everynet.plot.panels import Panel, panels
from everynet.zoo.spiking.classifier import SpikingClassification
from everynet.zoo.spiking.lif import LIF

SCALE = 100.0  # Hz, f of (3)


class RateNetwork(nn.Module):
    """Logits from the rates of one layer of neurons under constant currents."""

    def __init__(
        self, inputs: int, units: int, classes: int, neuron: LIF, gamma: float = 0.02
    ) -> None:
        super().__init__()
        self.neuron, self.gamma = neuron, gamma
        self.input, self.output = nn.Linear(inputs, units), nn.Linear(units, classes)
        nn.init.normal_(self.input.weight, std=2 / math.sqrt(inputs))

    def forward(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch classes"]:
        require_samples("RateNetwork", x, self.input.weight, self.input.in_features)
        h = self.rate(self.input(x.flatten(1))) / SCALE  # (3)
        logits: Tensor = self.output(h)  # (5)
        return logits

    def rate(self, current: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Spikes a second, with a slope everywhere."""
        z = (current - 1) / self.gamma
        ramp = softplus(z.clamp(min=-15))
        log_ramp = torch.where(z < -15, z, ramp.log()) + math.log(self.gamma)  # (1)
        silence = softplus(-log_ramp)  # ln(1 + 1 / rho), where rho may be too small for a float
        return 1 / (self.neuron.tau_ref + self.neuron.tau_m * silence)  # (2)

    def spiking(
        self, x: Float[Tensor, "batch ..."], duration: float, dt: float
    ) -> Float[Tensor, "batch classes"]:
        """Logits from the spikes of the neurons, simulated from rest."""
        current = self.input(x.flatten(1)).detach()
        found = self.neuron.simulate(current.flatten(), duration, dt)
        counts = torch.bincount(found.neurons.long(), minlength=current.numel())
        h = counts.to(current).reshape(current.shape) / (duration * SCALE)  # (4)
        logits: Tensor = self.output(h)
        return logits


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class Conversion(SpikingClassification[RateNetwork]):
    """Train on rates, then classify images by spikes; the accuracy is that of the spikes."""

    meanings: ClassVar[Mapping[str, str]] = meanings(*CLASSES, "cross_entropy") | {
        "rate_accuracy": "the accuracy of the network of rates, before it is run on spikes",
    }

    hidden: tuple[int, ...] = (200,)
    """Units of the spiking layer: one number."""
    duration: float = 0.2
    """Seconds that spikes are counted."""
    tau_m: float = 0.02
    """Time constant of the membranes, in seconds."""
    tau_ref: float = 0.002
    """Seconds of rest after a spike."""
    gamma: float = 0.02
    """Width over which the threshold is smooth in training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(len(self.hidden) == 1, "hidden", "one number of units")
        self.above(0, "gamma")
        fits = self.tau_ref == 0 or self.tau_ref >= self.dt
        self.require(fits, "tau_ref", "0 or at least dt, in seconds")

    def model(self, data: Data) -> RateNetwork:
        inputs, units, classes = self.sizes(data.spec)
        return RateNetwork(inputs, units, classes, LIF(self.tau_m, self.tau_ref), self.gamma)

    def logits(self, model: RateNetwork, x: Tensor) -> Tensor:
        return model.spiking(x, self.time_steps * self.dt, self.dt)

    def metrics(self, model: RateNetwork, batch: Batch) -> dict[str, Tensor]:
        x, y = batch
        by_rate, by_spike = model(x), self.logits(model, x)
        return {
            **classified(by_spike, y),
            "rate_accuracy": accuracy(by_rate, y),
            "cross_entropy": cross_entropy(by_spike, y, reduction="none"),
        }

    def picture_accuracy(self, model: RateNetwork, data: Data, history: History) -> Figure:
        """Accuracy of counted spikes by the time of counting, beside that of the rates (dotted).

        On the right, the smooth rate that was trained beside that of the neuron (dashed).
        """
        x, y = (torch.cat(parts) for parts in zip(*data.valid, strict=True))
        steps = [n for n in (1, 2, 3, 4, 5, 7, 10, 20, 50, 100, 200, 500) if n <= self.time_steps]
        right = [accuracy(model.spiking(x, n * self.dt, self.dt), y).double().mean() for n in steps]
        current = torch.linspace(0, 4, 401, dtype=torch.float64)
        return panels(
            Panel(
                {"spikes": (1e3 * torch.tensor(steps) * self.dt, torch.stack(right).cpu())},
                xlabel="time that spikes are counted (ms)",
                ylabel="accuracy on validation images",
                levels={"rates": float(accuracy(model(x), y).double().mean())},
                log="x",
            ),
            Panel(
                {"trained on: smooth": (current, model.rate(current))},
                guides={"the neuron": (current, model.neuron.rate(current))},
                xlabel="current (threshold at 1)",
                ylabel="rate (Hz)",
            ),
        )

    def tiny(self) -> Self:
        return replace(super().tiny(), hidden=(16,))


RECIPES = {
    "snn-converted": Conversion(
        steps=1500,
        batch_size=64,
        lr=3e-3,
        schedule="one-cycle",
        goal="accuracy >= 0.95",
        covers=("N9",),
    ),
}
