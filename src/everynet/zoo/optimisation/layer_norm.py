"""Layer normalisation: each sample is brought to mean 0 and variance 1 over its own features.

    mu  = mean of x over the features of one sample                    (1)
    s2  = mean of (x - mu)^2                                           (2)
    n   = (x - mu) / sqrt(s2 + eps)                                    (3)  normalised
    y   = gamma * n + beta                                             (4)  learned, per feature
    dE/dgamma = sum over samples of n dE/dy                            (5)
    dE/dbeta  = sum over samples of dE/dy                              (6)
    dE/dx     = (d - mean(d) - n mean(d n)) / sqrt(s2 + eps)           (7)  d = gamma * dE/dy

x is a sample, E the loss, and * the product entry by entry. The means of (7) are over features, as
in (1) and (2). No other sample enters: an answer is the same alone and in any batch, in training
and afterwards, and there are no running statistics. Batch normalisation takes the same means over
the batch instead, so there a sample's answer depends on its company. In a transformer a "sample" is
one token.

Ba, Kiros, Hinton (2016), "Layer Normalization", arXiv:1607.06450. torch.nn.LayerNorm is these
equations; the networks here use that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar, NamedTuple, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn

from everynet.data.dataset import Data
from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.system.seeds import mix
from everynet.training.loop import begin, evaluate, train
from everynet.zoo.optimisation.few_images import FewImages

Samples = Float[Tensor, "*samples features"]
PerFeature = Float[Tensor, " features"]


class Normalised(NamedTuple):
    """The output of the forward pass and what the backward pass needs."""

    y: Samples
    n: Samples
    variance: Float[Tensor, "*samples 1"]


def normalize(x: Samples, gamma: PerFeature, beta: PerFeature, eps: float = 1e-5) -> Normalised:
    """Each sample by its own mean and variance."""
    mu = x.mean(dim=-1, keepdim=True)  # (1)
    s2 = (x - mu).square().mean(dim=-1, keepdim=True)  # (2)
    n = (x - mu) / (s2 + eps).sqrt()  # (3)
    y = gamma * n + beta  # (4)
    return Normalised(y, n, s2)


def backward(
    dy: Samples, done: Normalised, gamma: PerFeature, eps: float = 1e-5
) -> tuple[Samples, PerFeature, PerFeature]:
    """The gradients by x, gamma and beta, from that by y."""
    dgamma = (dy * done.n).flatten(end_dim=-2).sum(dim=0)  # (5)
    dbeta = dy.flatten(end_dim=-2).sum(dim=0)  # (6)
    d = gamma * dy
    along_n = (d * done.n).mean(dim=-1, keepdim=True)
    rest = d - d.mean(dim=-1, keepdim=True) - done.n * along_n
    dx = rest / (done.variance + eps).sqrt()  # (7)
    return dx, dgamma, dbeta


NORMS: dict[str, type[nn.Module]] = {
    "none": nn.Identity,
    "layer norm": nn.LayerNorm,
    "batch norm": nn.BatchNorm1d,
}


def network(in_features: int, classes: int, *, depth: int, width: int, norm: str) -> nn.Sequential:
    """`depth` hidden layers of ReLU, each with the norm in front of it, from He's weights."""
    layers: list[nn.Module] = [nn.Flatten()]
    for number in range(depth):
        layers += [
            nn.Linear(width if number else in_features, width),
            NORMS[norm](width),
            nn.ReLU(),
        ]
    layers.append(nn.Linear(width, classes))
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


@torch.no_grad()
def answers(
    model: nn.Module,
    sample: Float[Tensor, " features"],
    others: Float[Tensor, "batches rows features"],
) -> Float[Tensor, "batches classes"]:
    """Logits of one sample in each of several batches, of a network in training mode."""
    model.train()
    return torch.stack([model(torch.cat([sample[None], rows]))[0] for rows in others])


# -------- the network ends here; training and pictures follow --------


BATCHES = 12  # in which one digit is looked at


@dataclass(frozen=True, kw_only=True)
class LayerNormImages(FewImages[nn.Sequential]):
    """Classify digits by a deep network with some norm."""

    norm: str = "none"
    depth: int = 6
    width: int = 64
    optimizer: str = "sgd"

    def model(self, data: Data) -> nn.Sequential:
        pixels, classes = math.prod(data.spec["shape"]), len(data.spec["classes"])
        return network(pixels, classes, depth=self.depth, width=self.width, norm=self.norm)


@dataclass(frozen=True, kw_only=True)
class LayerNormExperiment(Simulation):
    """Train a deep network on digits without a norm, with layer norm and with batch norm."""

    meanings: ClassVar[Mapping[str, str]] = {
        "company_layer": (
            "how far a logit depends on the other samples of the batch, with layer norm: not at all"
        ),
        "company_batch": "the same with batch norm",
        "accuracy_plain": "accuracy without a norm",
        "accuracy_layer": "accuracy with layer norm",
        "accuracy_batch": "accuracy with batch norm",
        "gain": "what layer norm adds to the accuracy",
    }

    depth: int = 6
    """Hidden layers."""
    width: int = 64
    """Units of each."""
    rates: tuple[float, ...] = (0.03, 0.1, 0.3, 0.5)
    """Learning rates, from one that suits the plain network to ones far too high for it."""
    nets: int = 3
    """Networks over which the metrics are averaged."""
    steps: int = 120
    """Steps of each network."""
    batch_size: int = 64
    """Digits in a step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "depth", "nets", "steps")
        self.at_least(2, "width", "batch_size")  # one value has no variance
        self.require(min(self.rates, default=0) > 0, "rates", "one or more positive numbers")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        first = LayerNormImages(
            depth=self.depth, width=self.width, steps=self.steps, batch_size=self.batch_size
        )
        curves, right, alike = [], [], []
        for net in range(self.nets):
            one = replace(first, seed=mix(self.seed, net))
            data = one.dataset()
            for norm, rate in product(NORMS, self.rates):
                recipe = replace(one, norm=norm, lr=rate)
                state = begin(recipe, data)
                losses = [r.terms["cross_entropy"] for r in train(recipe, state, data)]
                curves.append(torch.stack(losses).nan_to_num(nan=torch.inf))
                right.append(evaluate(recipe, state.model, data.valid)["accuracy"])
            x = data.whole[0].flatten(1).double()
            among = x[torch.randint(1, len(x), (BATCHES, self.batch_size - 1), generator=generator)]
            for norm in NORMS:
                model = begin(replace(one, norm=norm), data).model
                alike.append(answers(model.double(), x[0], among))
        kinds = (self.nets, len(NORMS), len(self.rates))
        return {
            "losses": torch.stack(curves).unflatten(0, kinds),
            "accuracy": torch.tensor(right, dtype=torch.float64).unflatten(0, kinds),
            "answers": torch.stack(alike).unflatten(0, kinds[:2]),  # nets norms batches classes
        }

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        right = result["accuracy"].mean(dim=0)
        logits = result["answers"]
        change = (logits - logits[:, :, :1]).abs().amax(dim=(0, 2, 3)) / logits.abs().max()
        return {
            "company_layer": float(change[1]),
            "company_batch": float(change[2]),
            "accuracy_plain": float(right[0, -1]),
            "accuracy_layer": float(right[1, -1]),
            "accuracy_batch": float(right[2, -1]),
            "gain": float(right[1, -1] - right[0, -1]),
        }

    def picture_convergence(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """Training loss by step (left) and accuracy against the learning rate (right).

        At the largest rate the accuracy is {layer:.0%} with layer norm (blue), {batch:.0%} with
        batch norm (orange) and {none:.0%} without a norm (green).
        """
        steps = torch.arange(1.0, self.steps + 1)
        rates = torch.tensor(self.rates, dtype=torch.float64)
        losses, right = result["losses"].median(dim=0).values[:, -1], result["accuracy"]
        order = [1, 2, 0]  # so that each norm has the colour that it has in the other picture
        names = [[*NORMS][n] for n in order]
        by_norm = dict(zip(names, right[:, order].unbind(1), strict=True))
        loss = Panel(
            {name: (steps, row) for name, row in zip(names, losses[order], strict=True)},
            xlabel="step",
            ylabel=f"cross-entropy, median of {self.nets} networks",
            title=f"{self.depth} hidden layers, rate {self.rates[-1]:g}",
            log="y",
        )
        accuracy = Panel(
            {name: (rates, values.mean(dim=0)) for name, values in by_norm.items()},
            bands={name: values.aminmax(dim=0) for name, values in by_norm.items()},
            xlabel="learning rate",
            ylabel="accuracy on digits not trained on",
            title=f"after {self.steps} steps: mean, least and largest",
            ylim=(0, 1.02),
            legend="lower left",
        )
        ends = [float(values[:, -1].mean()) for values in by_norm.values()]
        return panels(loss, accuracy), dict(zip(("layer", "batch", "none"), ends, strict=True))

    def picture_company(self, result: Mapping[str, Tensor]) -> Figure:
        """One logit of the same digit in different batches.

        With layer norm (blue) it never changes, with batch norm (orange) it depends on the other
        digits of the batch.
        """
        batches = torch.arange(1.0, BATCHES + 1)
        logits = dict(zip(NORMS, result["answers"][0, :, :, 0], strict=True))
        panel = Panel(
            {name: (batches, logits[name]) for name in ("layer norm", "batch norm")},
            xlabel="batch that the digit is in",
            ylabel="first logit of one digit",
            title="the same digit in other batches",
            scatter=True,
        )
        return panels(panel, width=5.2)

    def tiny(self) -> Self:
        return replace(super().tiny(), depth=2, rates=(0.1, 0.5), nets=1)


RECIPES = {
    "layer-norm": LayerNormExperiment(
        goal="company_layer <= 1e-12 and accuracy_layer >= 0.7 and gain >= 0.05",
        covers=("O19",),
    ),
}
