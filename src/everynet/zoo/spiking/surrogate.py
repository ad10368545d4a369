"""A spiking network trained by gradient descent, with a surrogate for the derivative of a spike.

    u_t = beta v_{t-1} + (1 - beta) I_t      (1)  membrane: leaks towards the current
    s_t = 1 if u_t >= 1, else 0              (2)  spike
    v_t = u_t (1 - s_t)                      (3)  reset
    beta = exp(-dt / tau_m)                  (4)  decay of the membrane in a step
    I_t = W x + b                            (5)  constant current, or
    I_t = W x_t + b, P(x_t = 1) = x          (6)  Poisson coding: brightness is the rate, or
    I_t = W x + b + U s_{t-1}                (7)  recurrent
    r_t = beta r_{t-1} + (1 - beta) (W s_t + b)    (8)  readout: a membrane that never fires
    logits = mean_t r_t                      (9)  output

where x is an image, W, U and b are weights and biases of a layer, and W x is a product of a matrix
and a vector. (8) and (9) are linear: T steps from t = 0 are one product with a weighted sum of
spikes:

    logits = W sum_t c_t s_t + b sum_t c_t,   c_t = (1 - beta^(T - t)) / T    (10)

In the backward pass, with d = u - 1 and the reset held fixed, ds/du is one of

    1 / (1 + k |d|)^2                        (11)  fast sigmoid
    1 / (1 + (k d)^2)                        (12)  slope of an arctan
    max(0, 1 - k |d|)                        (13)  triangle

Neftci, Mostafa, Zenke (2019), "Surrogate gradient learning in spiking neural networks",
arXiv:1901.09948; Zenke, Vogels (2021), "The remarkable robustness of surrogate gradient learning",
doi:10.1162/neco_a_01367, who hold the reset fixed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from everynet.data.dataset import Batch, Data, History, Spec
from everynet.kernels.events import event_linear
from everynet.kernels.operator import gradients
from everynet.kernels.surrogate import SLOPES, Unit, spike, spikes, weighed
from everynet.metrics import classified
from everynet.metrics.meanings import CLASSES, meanings
from everynet.nn.input_checks import require_samples
from everynet.plot import Panel, filters, panels
from everynet.system.tracing import is_traced, is_transformed
from everynet.zoo.spiking.classifier import SpikingClassification
from everynet.zoo.spiking.pictures.evidence import evidence

GAIN = 2.0
"""Standard deviation of the initial currents, in thresholds, for inputs of unit variance."""
DENSITY = 0.1
"""The share of steps at which a unit fires initially, roughly."""


class SpikingNetwork(nn.Module):
    """Maps images, as constant currents for `steps` time steps, to logits from spikes."""

    def __init__(
        self,
        sizes: Sequence[int],
        steps: int = 25,
        unit: Unit = Unit(),  # noqa: B008 -- a tuple
    ) -> None:
        super().__init__()
        sizes = [sizes] if isinstance(sizes, int) else list(sizes)
        if len(sizes) < 3:
            raise ValueError(
                f"sizes ({sizes}) must have inputs, hidden units and outputs, because the "
                "output does not fire; give at least three numbers"
            )
        self.steps, self.unit = steps, unit
        layers = [nn.Linear(inputs, units) for inputs, units in pairwise(sizes)]
        for number, layer in enumerate(layers[:-1]):  # currents pass the threshold from the start
            squares = layer.in_features * (1.0 if number == 0 else DENSITY)
            nn.init.normal_(layer.weight, std=GAIN / math.sqrt(squares))
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch classes"]:
        first, _ = self.weights(0)
        require_samples(type(self).__name__, x, first, first.shape[1])
        shares, (weight, bias) = self.shares(x), self.weights(-1)
        return self.weighted_spikes(x, shares) @ weight.T + bias * shares.sum()  # (10)

    def shares(self, x: Tensor) -> Float[Tensor, " time"]:
        """The weight c_t of a spike of each step in the logits, in the dtype of x."""
        left = torch.arange(self.steps, 0, -1, device=x.device, dtype=x.dtype)
        return (1 - self.unit.beta**left) / self.steps

    def weighted_spikes(
        self, x: Float[Tensor, "batch ..."], shares: Float[Tensor, " time"]
    ) -> Float[Tensor, "batch units"]:
        """The sum of the spikes of the last hidden layer, weighted by their shares."""
        return weighed(self.layer_inputs(x)[-1], *self.weights(-2), shares, self.unit)

    def hidden(self, x: Float[Tensor, "batch ..."]) -> list[Float[Tensor, "time batch _"]]:
        """The spikes of each hidden layer."""
        _, *below = given = self.layer_inputs(x)
        return [*below, self.fire(self.currents(len(below), given[-1]))]

    def layer_inputs(self, x: Float[Tensor, "batch ..."]) -> list[Float[Tensor, "_ batch _"]]:
        """The input of each hidden layer: the image, or the spikes of the layer below it."""
        given = [self.inputs(x)]
        for layer in range(len(self.layers) - 2):
            given.append(self.fire(self.currents(layer, given[-1])))
        return given

    def inputs(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "rows batch inputs"]:
        """The inputs at each step; one row stands for all where they are constant."""
        return x.flatten(1)[None]  # (5)

    def currents(
        self, layer: int, given: Float[Tensor, "rows batch inputs"]
    ) -> Float[Tensor, "rows batch units"]:
        """The current W x + b into a layer; of spikes, only those columns where one is."""
        return event_linear(given, *self.weights(layer))

    def weights(self, layer: int) -> tuple[Float[Tensor, "units inputs"], Float[Tensor, " units"]]:
        """The weights and biases of a layer."""
        found = self.layers[layer]
        assert isinstance(found, nn.Linear)
        return found.weight, found.bias

    def fire(self, current: Float[Tensor, "rows batch units"]) -> Float[Tensor, "time batch units"]:
        """Spikes by (1) to (3), and (11) to (13) backwards: the loop of `_Recurrent`, without U."""
        shape = (self.steps, *current.shape[1:])
        return spikes(current.flatten(1), self.steps, self.unit).reshape(shape)

    def readout(
        self, fired: Float[Tensor, "time batch units"]
    ) -> Float[Tensor, "time batch classes"]:
        """The membranes of the outputs at each step."""
        beta = self.unit.beta
        current = (1 - beta) * self.layers[-1](fired)
        r, traces = torch.zeros_like(current[0]), []
        for now in current:
            r = beta * r + now  # (8)
            traces.append(r)
        return torch.stack(traces)


class PoissonNetwork(SpikingNetwork):
    """The same, with the brightness of each pixel as the chance of a spike in each step."""

    mean: Tensor
    std: Tensor

    def __init__(self, sizes: Sequence[int], steps: int, unit: Unit, *, spec: Spec) -> None:
        super().__init__(sizes, steps, unit)
        pixels = sizes[0] // len(spec["mean"])
        for name in ("mean", "std"):  # of the channels, to undo their standardisation
            values = torch.tensor(spec[name]).repeat_interleave(pixels)
            self.register_buffer(name, values, persistent=False)

    def inputs(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "time batch inputs"]:
        chance = (x.flatten(1) * self.std + self.mean).clamp(0, 1)
        return torch.bernoulli(chance.expand(self.steps, -1, -1))  # (6)


class RecurrentNetwork(SpikingNetwork):
    """The same, with recurrent weights U between the units of each hidden layer."""

    def __init__(
        self,
        sizes: Sequence[int],
        steps: int = 25,
        unit: Unit = Unit(),  # noqa: B008
    ) -> None:
        super().__init__(sizes, steps, unit)
        hidden = (nn.Parameter(torch.randn(n, n) / math.sqrt(n)) for n in sizes[1:-1])
        self.recurrent = nn.ParameterList(hidden)

    def weighted_spikes(
        self, x: Float[Tensor, "batch ..."], shares: Float[Tensor, " time"]
    ) -> Float[Tensor, "batch units"]:
        return (shares[:, None, None] * self.hidden(x)[-1]).sum(dim=0)

    def hidden(self, x: Float[Tensor, "batch ..."]) -> list[Float[Tensor, "time batch units"]]:
        fired: list[Tensor] = []
        for layer, weight in enumerate(self.recurrent):
            current = self.currents(layer, fired[-1] if layer else self.inputs(x))
            current = current.expand(self.steps, -1, -1)
            back = weight.to(current.dtype)  # currents may come in half precision
            recorded = is_traced() or is_transformed()
            fire: Any = by_loop if recorded else _Recurrent.apply
            fired.append(fire(current, back, self.unit))
        return fired


def by_loop(
    current: Float[Tensor, "time batch units"], weight: Float[Tensor, "units units"], unit: Unit
) -> Float[Tensor, "time batch units"]:
    """The loop over time with the product of (7) inside, differentiated by torch."""
    beta, fired = unit.beta, []
    v = s = torch.zeros_like(current[0])
    for given in current:
        u = beta * v + (1 - beta) * (given + s @ weight.T)  # (1) (7)
        s = spike(u, unit)  # (2)
        v = u * (1 - s.detach())  # (3)
        fired.append(s)
    return torch.stack(fired)


class _Recurrent(torch.autograd.Function):
    """The same loop with its gradient written out."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 -- torch adds attributes to it
        current: Float[Tensor, "time batch units"],
        weight: Float[Tensor, "units units"],
        unit: Unit,
    ) -> Float[Tensor, "time batch units"]:
        beta = unit.beta
        membrane, fired = torch.empty_like(current), torch.empty_like(current)
        v = s = torch.zeros_like(current[0])
        for t, given in enumerate(current):
            u = beta * v + (1 - beta) * (given + s @ weight.T)  # (1) (7)
            s = (u >= 1).to(u.dtype)  # (2)
            v = u * (1 - s)  # (3)
            membrane[t], fired[t] = u, s
        ctx.save_for_backward(current, membrane, fired, weight)
        ctx.unit = unit
        return fired

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        current, membrane, fired, weight = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *gradients(partial(by_loop, unit=ctx.unit), (current, weight), upstream), None
        beta, slope = ctx.unit.beta, ctx.unit.slope(membrane)  # (11) (12) (13)
        back = torch.empty_like(membrane)
        later = to_spike = torch.zeros_like(membrane[0])
        for t in range(len(membrane) - 1, -1, -1):
            later = slope[t] * (upstream[t] + to_spike) + beta * (1 - fired[t]) * later
            back[t] = (1 - beta) * later
            to_spike = back[t] @ weight
        to_weight = back[1:].flatten(0, 1).T @ fired[:-1].flatten(0, 1)
        return back, to_weight, None


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class Surrogate(SpikingClassification[SpikingNetwork]):
    """Classify images by spikes."""

    meanings: ClassVar[Mapping[str, str]] = meanings(*CLASSES, "cross_entropy") | {
        "rate_hz": "mean firing rate of the hidden units, in Hz",
    }

    surrogate: str = "fast-sigmoid"
    """fast-sigmoid, arctan or triangle: the slope of a spike going back."""
    sharpness: float = 5.0
    """How fast that slope falls away from the threshold."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.one_of("surrogate", SLOPES)
        self.above(0, "sharpness")

    def model(self, data: Data) -> SpikingNetwork:
        return SpikingNetwork(self.sizes(data.spec), self.time_steps, self.unit())

    def unit(self) -> Unit:
        """How a unit behaves."""
        return Unit(math.exp(-self.dt / self.tau_m), self.surrogate, self.sharpness)  # (4)

    def metrics(self, model: SpikingNetwork, batch: Batch) -> dict[str, Tensor]:
        x, y = batch
        fired = model.hidden(x)
        logits = model.readout(fired[-1]).mean(dim=0)  # (9)
        rates = [spikes.mean(dim=(0, 2)) / self.dt for spikes in fired]
        return {
            **classified(logits, y),
            "cross_entropy": cross_entropy(logits, y, reduction="none"),
            "rate_hz": torch.stack(rates).mean(dim=0),
        }

    def picture_evidence(self, model: SpikingNetwork, data: Data, history: History) -> Figure:
        """One image, the spikes of hidden units for it, and below the membranes of the outputs.

        The highest of these on average is the answer; the true class is blue.
        """
        x, y = next(iter(data.valid))
        fired = model.hidden(x[:1])[-1]
        return evidence(
            fired[:, 0].cpu(),
            model.readout(fired)[:, 0].cpu(),
            image=x[0].cpu().reshape(data.spec["shape"]),
            dt=self.dt,
            classes=data.spec["classes"],
            truth=int(y[0]),
        )

    def picture_surrogates(self, model: SpikingNetwork, data: Data, history: History) -> Figure:
        """The slope used for a spike in the backward pass, by the distance from the threshold.

        It is highest at the threshold and falls off to both sides.
        """
        x = torch.linspace(-1, 1, 401, dtype=torch.float64)
        used = {name: name + " (used)" * (name == self.surrogate) for name in SLOPES}
        curves = {used[name]: (x, slope(x, self.sharpness)) for name, slope in SLOPES.items()}
        panel = Panel(curves, "membrane minus threshold", "slope used for the spike")
        return panels(panel, width=5.6)

    def picture_first_layer(self, model: SpikingNetwork, data: Data, history: History) -> Figure:
        """The weights into units of the first layer, laid out as the image.

        Where the image is bright, red raises the current of the unit and blue lowers it.
        """
        weight = next(model.parameters())[:32].reshape(-1, *data.spec["shape"])
        return filters(weight, title="weights of the first layer")

    def tiny(self) -> Self:
        hidden = tuple(min(units, 16) for units in self.hidden)
        return replace(super().tiny(), hidden=hidden, duration=10 * self.dt)


@dataclass(frozen=True, kw_only=True)
class PoissonCoding(Surrogate):
    """Classify images by spikes from the pixels on."""

    def model(self, data: Data) -> SpikingNetwork:
        sizes = self.sizes(data.spec)
        return PoissonNetwork(sizes, self.time_steps, self.unit(), spec=data.spec)


@dataclass(frozen=True, kw_only=True)
class RecurrentSpiking(Surrogate):
    """Classify images by recurrent spikes."""

    def model(self, data: Data) -> SpikingNetwork:
        return RecurrentNetwork(self.sizes(data.spec), self.time_steps, self.unit())


RECIPES = {
    "snn": Surrogate(
        steps=1500, batch_size=64, lr=2e-3, schedule="one-cycle",
        goal="accuracy >= 0.95", covers=("N9",),
    ),
    "snn-poisson": PoissonCoding(
        steps=1500, batch_size=64, lr=2e-3, schedule="one-cycle",
        goal="accuracy >= 0.94", covers=("N9",),
    ),
    "snn-recurrent": RecurrentSpiking(
        steps=1500, batch_size=64, lr=2e-3, schedule="one-cycle",
        goal="accuracy >= 0.95", covers=("N9",),
    ),
    "snn-mnist": Surrogate(
        data="mnist", hidden=(1000,), steps=4220, batch_size=128, lr=4e-3, schedule="one-cycle",
        goal="accuracy >= 0.98", covers=("N9",),
    ),
    "snn-fashion": Surrogate(
        data="fashion-mnist", hidden=(1000,), steps=4220, batch_size=128, lr=4e-3,
        schedule="one-cycle", goal="accuracy >= 0.88", covers=("N9",),
    ),
}  # fmt: skip
