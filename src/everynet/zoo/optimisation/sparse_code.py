"""Sparse representations: a penalty on the code of an autoencoder leaves few units active at once.

    h    = f(W x + b)                                           (1)  code; f is relu, or sigmoid
    x^   = sum_j h_j d_j + c,  |d_j| = s                        (2)  reconstruction from features
    J    = mean of |x^ - x|^2                                   (3)  its error
    L    = J + alpha mean of sum_j |h_j|                        (4)  sparse code
    KL   = rho log(rho / r) + (1 - rho) log((1 - rho)/(1 - r))  (5)  of two rates, rho and r
    L    = J + alpha sum_j KL(rho, mean of h_j)                 (6)  sparse code by a target rate
    L    = J + alpha sum_ij |W_ij|                              (7)  sparse weights, to compare

The means are over samples. The input of (1) is x with noise added, so that a unit gains nothing by
copying one pixel. Features have a given length s, or small h and long features would evade (4)
and (6). A sparse code is another thing than sparse weights: with (4) each image uses few units,
which may look at every pixel; with (7) each unit looks at few pixels, and may be active for every
image.

Olshausen, Field (1996), "Emergence of simple-cell receptive field properties by learning a sparse
code for natural images", Nature 381, doi:10.1038/381607a0; Lee, Ekanadham, Ng (2007), "Sparse deep
belief net model for visual area V2", NIPS 20, for a target rate; Vincent et al. (2008),
"Extracting and Composing Robust Features with Denoising Autoencoders",
doi:10.1145/1390156.1390294; Goodfellow et al. (2016), "Deep Learning", section 7.10.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from everynet.data import load
from everynet.device import seeded_by
from everynet.plot.images import filters
from everynet.plot.matrix import heatmap
from everynet.plot.panels import Panel, panels
from everynet.recipes import Pictures, Simulation
from everynet.types import Data
from everynet.types import generator as seeded
from everynet.zoo.optimisation.experiment import fit

Penalty = Callable[[Float[Tensor, "batch hidden"]], Float[Tensor, ""]]


class Autoencoder(nn.Module):
    """Maps x to its code; `decode` maps a code back to x."""

    def __init__(
        self, input_size: int, hidden_size: int, activation: nn.Module, length: float = 1.0
    ) -> None:
        super().__init__()
        self.length = length
        self.encoder = nn.Linear(input_size, hidden_size)
        self.activation = activation
        self.decoder = nn.Linear(hidden_size, input_size)

    def forward(self, x: Float[Tensor, "batch input"]) -> Float[Tensor, "batch hidden"]:
        h: Tensor = self.activation(self.encoder(x))  # (1)
        return h

    def features(self) -> Float[Tensor, "input hidden"]:
        """What each unit adds to the reconstruction."""
        return self.length * normalize(self.decoder.weight, dim=0)

    def decode(self, h: Float[Tensor, "batch hidden"]) -> Float[Tensor, "batch input"]:
        return linear(h, self.features(), self.decoder.bias)  # (2)


def error(
    reconstruction: Float[Tensor, "batch input"], x: Float[Tensor, "batch input"]
) -> Float[Tensor, ""]:
    """Squared distance between what was decoded and x, averaged over samples."""
    return (reconstruction - x).square().sum(dim=1).mean()  # (3)


def absolute(h: Float[Tensor, "batch hidden"]) -> Float[Tensor, ""]:
    """What a code costs that should have few units far from zero."""
    return h.abs().sum(dim=1).mean()  # (4)


def divergence(rho: float, rate: Float[Tensor, "*units"]) -> Float[Tensor, "*units"]:
    """From a unit that is on with probability `rho` to one that is on with probability `rate`."""
    return rho * (rho / rate).log() + (1 - rho) * ((1 - rho) / (1 - rate)).log()  # (5)


def off_target(h: Float[Tensor, "batch hidden"], rho: float) -> Float[Tensor, ""]:
    """What a code costs whose units should be on for a share rho of the samples."""
    return divergence(rho, h.mean(dim=0)).sum()  # (6)


def near_zero(weight: Float[Tensor, "rows columns"]) -> Float[Tensor, ""]:
    """The share of weights below a tenth of their root mean square."""
    return (weight.abs() < 0.1 * weight.square().mean().sqrt()).float().mean()


@dataclass(frozen=True, kw_only=True)
class SparseCode(Simulation):
    """Autoencoders of images with a penalty on the code, from none to strong."""

    captions: ClassVar[Mapping[str, str]] = {
        "law": (
            "Left, a stronger penalty on the code quietens the units (blue) while the weights "
            "hardly move; middle, its cost in error; right, a penalty on the weights does the "
            "reverse."
        ),
        "codes-sparse": (
            "The code of some test images (rows) under the strongest penalty, bright where a unit "
            "is active: fewer units speak for each image, and not the same ones."
        ),
        "codes-dense": (
            "The code of the same images without a penalty: many more units are active for every "
            "image, so that more of each row is bright."
        ),
    }

    data: str = "digits"
    """Images to encode."""
    hidden_size: int = 64
    """Units of the code."""
    alphas: tuple[float, ...] = (0.0, 0.03, 0.07, 0.15, 0.25)
    """Strengths of the penalty on the code, the first 0."""
    weight_alpha: float = 0.01
    """Strength of the penalty on the weights, for the network to compare with."""
    length: float = 1.0
    """Length of each feature."""
    noise: float = 0.5
    """Standard deviation of what is added to the inputs, in those of a pixel."""
    rows: int = 10_000
    """At most so many training images."""
    steps: int = 600
    """Updates of each network."""
    batch_size: int = 128
    """Images an update sees."""
    lr: float = 3e-3
    """Learning rate, with Adam."""
    repeats: int = 3
    """Networks for each strength."""

    def __post_init__(self) -> None:
        super().__post_init__()
        rising = len(self.alphas) >= 2 and self.alphas[0] == 0
        rising = rising and list(self.alphas) == sorted(set(self.alphas))
        self.require(rising, "alphas", "two or more rising numbers, the first 0")
        self.require(0 < self.length < math.inf, "length", "a positive number")
        self.require(self.weight_alpha >= 0, "weight_alpha", "a number from 0 up")
        self.require(0 <= self.noise < math.inf, "noise", "a number from 0 up")
        for name in ("hidden_size", "rows", "steps", "batch_size", "repeats"):
            self.require(getattr(self, name) >= 1, name, "at least 1")
        self.require(self.lr > 0, "lr", "a positive number")

    active: ClassVar[str] = "units active"  # what `activity` measures

    # ------------------------------------------------------------------- what another penalty says

    def activation(self) -> nn.Module:
        """The f of (1)."""
        return nn.ReLU()

    def cost(self, h: Float[Tensor, "batch hidden"]) -> Float[Tensor, ""]:
        """What alpha multiplies."""
        return absolute(h)

    def activity(self, h: Float[Tensor, "batch hidden"]) -> Float[Tensor, ""]:
        """The share of units that are active, over all samples."""
        return (h > 0).float().mean()

    def target(self) -> dict[str, float]:
        """Where the activity should go, in per cent, if the penalty says so."""
        return {}

    # --------------------------------------------------------------------------------- the networks

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        data = load(self.data, kind="image", batch_size=1)
        measured, models = [], []
        for repeat in range(self.repeats):
            strengths = [(alpha, 0.0) for alpha in self.alphas] + [(0.0, self.weight_alpha)]
            for alpha, on_weights in strengths:
                model = self.train(data, repeat, alpha, on_weights)
                measured.append(self.measure(model, data))
                models.append(model)
        dense, sparse = models[0], models[len(self.alphas) - 1]
        error_, active, encoder, decoder = (
            torch.stack(measured).reshape(self.repeats, -1, 4).unbind(-1)
        )
        noisy, _ = self.noisy(data)
        return {
            "error": error_[:, :-1],
            "active": active[:, :-1],
            "near_zero": torch.stack([encoder, decoder], -1)[:, :-1],
            "weights_error": error_[:, -1],
            "weights_active": active[:, -1],
            "weights_near_zero": encoder[:, -1],
            "dense_code": dense(noisy[:40]).detach(),
            "sparse_code": sparse(noisy[:40]).detach(),
            "dense_features": self.tiles(dense, data),
            "sparse_features": self.tiles(sparse, data),
        }

    def train(self, data: Data, repeat: int, alpha: float, on_weights: float) -> Autoencoder:
        """One network; the start and the batches depend on the repeat alone."""
        x = data.whole[0][: self.rows].flatten(1)
        with seeded_by(self.seed, repeat):
            model = Autoencoder(x.shape[1], self.hidden_size, self.activation(), self.length)

        def loss(h: Tensor, clean: Tensor) -> Tensor:
            total = error(model.decode(h), clean)
            return total + alpha * self.cost(h) if alpha else total

        def sparse_weights() -> Tensor:
            return on_weights * model.encoder.weight.abs().sum()  # (7)

        fit(
            model,
            x,
            x,
            steps=self.steps,
            generator=seeded(self.seed, repeat),
            batch_size=min(self.batch_size, len(x)),
            lr=self.lr,
            optimizer="adam",
            loss=loss,
            penalty=sparse_weights if on_weights else None,
            augment=self.add_noise,
        )
        return model

    def add_noise(self, x: Tensor, generator: torch.Generator) -> Tensor:
        return x + self.noise * torch.randn(x.shape, generator=generator)

    def noisy(self, data: Data) -> tuple[Tensor, Tensor]:
        """The test images, with noise and as they are."""
        x = data.splits["test"][0][: self.rows].flatten(1)
        return self.add_noise(x, seeded(self.seed)), x

    @torch.no_grad()
    def measure(self, model: Autoencoder, data: Data) -> Float[Tensor, " figures"]:
        """Error and activity on test images; weights near zero in encoder and features."""
        noisy, x = self.noisy(data)
        h = model(noisy)
        near = [near_zero(model.encoder.weight), near_zero(model.features())]
        return torch.stack([error(model.decode(h), x) / x.shape[1], self.activity(h), *near])

    def tiles(
        self, model: Autoencoder, data: Data
    ) -> Float[Tensor, "hidden channels height width"]:
        """The features as images."""
        return model.features().detach().T.reshape(self.hidden_size, *data.spec["shape"])

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        active, wrong, near = (result[n].mean(0) for n in ("active", "error", "near_zero"))
        return {
            "active": active[0].item(),
            "active_sparse": active[-1].item(),
            "active_ratio": (active[-1] / active[0]).item(),
            "largest_rise": active.diff().max().item(),
            "extra_error": (wrong[-1] / wrong[0] - 1).item(),
            "weights_change": (near - near[0]).abs().max().item(),
            "sparse_weights_change": (result["weights_near_zero"].mean() - near[0, 0]).item(),
            "sparse_weights_active": result["weights_active"].mean().item(),
        }

    def pictures(self, result: Mapping[str, Tensor]) -> Pictures:
        alphas = torch.tensor(self.alphas)
        active, wrong = 100 * result["active"], result["error"]
        near, other, still = (
            100 * result["near_zero"],
            result["weights_near_zero"],
            result["weights_active"],
        )
        shares = {self.active: active, "encoder weights near 0": near[..., 0],
                  "feature weights near 0": near[..., 1]}  # fmt: skip
        label, strong = r"strength $\alpha$ of the penalty on the code", self.alphas[-1]
        codes = {"dense": "without penalty", "sparse": rf"with $\alpha = {strong:g}$"}
        return {
            "law": panels(
                Panel(
                    {name: (alphas, share.mean(0)) for name, share in shares.items()},
                    label,
                    "share (%)",
                    "the code becomes sparse, the weights do not",
                    bands={name: (s.amin(0), s.amax(0)) for name, s in shares.items()},
                    levels=self.target(),
                ),
                Panel(
                    {"test images": (alphas, wrong.mean(0))},
                    label,
                    "squared error (pixel variances)",
                    "reconstruction",
                    bands={"test images": (wrong.amin(0), wrong.amax(0))},
                    levels={"20 % above no penalty": 1.2 * wrong[:, 0].mean().item()},
                ),
                Panel(
                    {
                        "penalty on the code": (near[..., 0].mean(0), active.mean(0)),
                        "penalty on the weights": (
                            torch.stack([near[:, 0, 0].mean(), 100 * other.mean()]),
                            torch.stack([active[:, 0].mean(), 100 * still.mean()]),
                        ),
                    },
                    "encoder weights near 0 (%)",
                    f"{self.active} (%)",
                    "two kinds of sparsity",
                ),
            ),
            **{
                f"features-{kind}": filters(
                    result[f"{kind}_features"], most=64, title=f"features {name}"
                )
                for kind, name in codes.items()
            },
            **{
                f"codes-{kind}": heatmap(
                    result[f"{kind}_code"], xlabel="unit", ylabel="test image",
                    title=f"codes {name}", unit="activity",
                )
                for kind, name in codes.items()
            },
        }  # fmt: skip

    def tiny(self) -> Self:
        return replace(self, rows=64, steps=3, batch_size=32, hidden_size=9, repeats=1)


@dataclass(frozen=True, kw_only=True)
class TargetRate(SparseCode):
    """The same with units between 0 and 1 that should be on for a share `rho` of the images."""

    length: float = 4.0
    """Length of each feature; what a unit can add is bounded, so it is longer."""
    rho: float = 0.1
    """Target of the mean activity of each unit."""
    alphas: tuple[float, ...] = (0.0, 0.03, 0.1, 0.3, 0.6)
    """Strengths of the penalty on the code, the first 0."""

    active: ClassVar[str] = "mean activity of the units"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(0 < self.rho < 1, "rho", "between 0 and 1")

    def activation(self) -> nn.Module:
        return nn.Sigmoid()

    def cost(self, h: Float[Tensor, "batch hidden"]) -> Float[Tensor, ""]:
        return off_target(h, self.rho)

    def activity(self, h: Float[Tensor, "batch hidden"]) -> Float[Tensor, ""]:
        return h.mean()

    def target(self) -> dict[str, float]:
        return {"target rate": 100 * self.rho}


# Seeds 0, 1, 2 (three networks each)   sparse-code                  sparse-code-rate
# activity without penalty              0.632 0.630 0.612            0.396 0.412 0.405
# active_ratio at the strongest         0.498 0.487 0.519            0.414 0.399 0.410
# extra_error there                     0.158 0.161 0.148            0.130 0.121 0.130
# largest_rise                          -0.063 -0.064 -0.055         -0.034 -0.033 -0.033
# weights_change                        0.036 0.033 0.029            0.011 0.011 0.015
RECIPES = {
    "sparse-code": SparseCode(
        goal="largest_rise < 0 and extra_error < 0.2 and active_ratio <= 0.6",
        covers=("O15",),
    ),
    "sparse-code-rate": TargetRate(
        goal="largest_rise < 0 and extra_error < 0.2",
        covers=("O15",),
    ),
}
