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
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from everynet.data import load
from everynet.data.dataset import Batch, Data, Terms
from everynet.plot.images import filters
from everynet.plot.matrix import heatmap
from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Pictures, Simulation
from everynet.recipes.training import Training
from everynet.system.seeds import mix
from everynet.training.loop import evaluate, trained
from everynet.zoo.optimisation.few_images import some


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
class Encoding(Training[Autoencoder]):
    """Make images from codes of themselves, with penalties on the code and on the weights."""

    data: str = "digits"
    rows: int = 10_000
    hidden_size: int = 64
    length: float = 1.0
    noise: float = 0.5
    alpha: float = 0.0
    weight_alpha: float = 0.0
    rho: float = 0.0
    """Target of a unit's mean activity, for units between 0 and 1; 0 is rectified units, (4)."""

    def dataset(self) -> Data:
        data = some(load(self.data, kind="image", batch_size=1, seed=self.seed), self.rows)
        return replace(data, batch_size=min(self.batch_size, data.rows("train")))

    def model(self, data: Data) -> Autoencoder:
        activation = nn.Sigmoid() if self.rho else nn.ReLU()
        inputs = math.prod(data.spec["shape"])
        return Autoencoder(inputs, self.hidden_size, activation, self.length)

    def objective(self, model: Autoencoder, batch: Batch) -> Terms:
        x = batch[0].flatten(1)
        h = model(self.noisy(x))
        terms = {"error": error(model.decode(h), x)}
        if self.alpha:
            cost = off_target(h, self.rho) if self.rho else absolute(h)
            terms["code"] = self.alpha * cost
        if self.weight_alpha:
            terms["weights"] = self.weight_alpha * model.encoder.weight.abs().sum()  # (7)
        return terms

    def metrics(self, model: Autoencoder, batch: Batch) -> dict[str, Tensor]:
        """Error of a pixel, and share of units that are active (or how active they are)."""
        x = batch[0].flatten(1)
        h = model(self.noisy(x))
        active = h if self.rho else (h > 0).to(h.dtype)
        return {"error": (model.decode(h) - x).square().mean(1), "active": active.mean(1)}

    def noisy(self, x: Float[Tensor, "batch input"]) -> Float[Tensor, "batch input"]:
        return x + self.noise * torch.randn_like(x)


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
            "The code of some other images (rows) under the strongest penalty, bright where a unit "
            "is active: fewer units speak for each image, and not the same ones."
        ),
        "codes-dense": (
            "The code of the same images without a penalty: many more units are active for every "
            "image, so that more of each row is bright."
        ),
    }
    meanings: ClassVar[Mapping[str, str]] = {
        "active": "the share of units that are active, without a penalty",
        "active_sparse": "the same with the strongest penalty",
        "active_ratio": "the second by the first",
        "largest_rise": "the most that a stronger penalty raised the share: none where negative",
        "extra_error": (
            "what the strongest penalty adds to the error of the picture, as a part of it"
        ),
        "weights_change": "how far the share of small weights changes with the penalty on the code",
        "sparse_weights_change": "how far it changes with a penalty on the weights",
        "sparse_weights_active": "the share of active units with a penalty on the weights",
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

    active: ClassVar[str] = "units active"  # what is measured of a code

    def first(self) -> Encoding:
        """The autoencoder that the penalties are tried on."""
        names = ("data", "rows", "hidden_size", "length", "noise", "steps", "batch_size", "lr")
        return Encoding(**{name: getattr(self, name) for name in names})

    def target(self) -> dict[str, float]:
        """Where the activity should go, in per cent, if the penalty says so."""
        return {}

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        penalties = [(alpha, 0.0) for alpha in self.alphas] + [(0.0, self.weight_alpha)]
        measured, models = [], []
        for repeat in range(self.repeats):
            one = replace(self.first(), seed=mix(self.seed, repeat))
            data = one.dataset()
            for alpha, on_weights in penalties:
                recipe = replace(one, alpha=alpha, weight_alpha=on_weights)
                model = trained(recipe, data)
                found = evaluate(recipe, model, data.valid)
                with torch.no_grad():
                    near = [near_zero(w).item() for w in (model.encoder.weight, model.features())]
                measured.append([found["error"], found["active"], *near])
                models.append(model)
        figures = torch.tensor(measured).unflatten(0, (self.repeats, -1))
        wrong, active, encoder, decoder = figures.unbind(-1)
        x = next(iter(data.valid))[0][:40].flatten(1)
        noisy = x + self.noise * torch.randn(x.shape, generator=generator)
        kept = {"dense": models[0], "sparse": models[len(self.alphas) - 1]}
        tiles = (self.hidden_size, *data.spec["shape"])
        return {
            "error": wrong[:, :-1],
            "active": active[:, :-1],
            "near_zero": torch.stack([encoder, decoder], -1)[:, :-1],
            "weights_active": active[:, -1],
            "weights_near_zero": encoder[:, -1],
            **{f"{kind}_code": net(noisy).detach() for kind, net in kept.items()},
            **{
                f"{kind}_features": net.features().detach().T.reshape(tiles)
                for kind, net in kept.items()
            },
        }

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
        near = 100 * result["near_zero"]
        other, still = (100 * result[f"weights_{name}"].mean() for name in ("near_zero", "active"))
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
                    {"validation images": (alphas, wrong.mean(0))},
                    label,
                    "squared error (pixel variances)",
                    "reconstruction",
                    bands={"validation images": (wrong.amin(0), wrong.amax(0))},
                    levels={"20 % above no penalty": 1.2 * wrong[:, 0].mean().item()},
                ),
                Panel(
                    {
                        "penalty on the code": (near[..., 0].mean(0), active.mean(0)),
                        "penalty on the weights": (
                            torch.stack([near[:, 0, 0].mean(), other]),
                            torch.stack([active[:, 0].mean(), still]),
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
                    result[f"{kind}_code"], xlabel="unit", ylabel="validation image",
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

    def first(self) -> Encoding:
        return replace(super().first(), rho=self.rho)

    def target(self) -> dict[str, float]:
        return {"target rate": 100 * self.rho}


# Seeds 0, 1, 2 (three networks each)   sparse-code                  sparse-code-rate
# activity without penalty              0.642 0.620 0.630            0.410 0.395 0.404
# active_ratio at the strongest         0.491 0.494 0.487            0.411 0.415 0.409
# extra_error there                     0.161 0.177 0.178            0.164 0.130 0.145
# largest_rise                          -0.066 -0.065 -0.062         -0.034 -0.033 -0.033
# weights_change                        0.037 0.030 0.043            0.009 0.015 0.019
# on the 144 validation images, about 8 s each on one CPU thread.
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
