"""Sparse representations: a penalty on the code of an autoencoder leaves few units active at once.

    h    = f(W x + b)                                           (1)  code; f is relu, or sigmoid
    x^   = sum_j h_j d_j + c,  |d_j| = s                        (2)  reconstruction from features
    J    = mean of |x^ - x|^2                                   (3)  its error
    L    = J + alpha mean of sum_j |h_j|                        (4)  sparse code
    KL   = rho log(rho / r) + (1 - rho) log((1 - rho)/(1 - r))  (5)  of two rates, rho and r
    L    = J + alpha sum_j KL(rho, mean of h_j)                 (6)  sparse code by a target rate
    L    = J + alpha sum_ij |W_ij|                              (7)  sparse weights, to compare

x is an image, W and b are weights and biases of the encoder, d_j is the feature of unit j and c the
bias of the decoder; alpha is the strength of a penalty, and the means are over samples. The input
of (1) is x with noise added, so that a unit gains nothing by copying one pixel. Features have a
given length s, or small h and long features would evade (4) and (6). A sparse code is another thing
than sparse weights: with (4) each image uses few units, which may look at every pixel; with (7)
each unit looks at few pixels, and may be active for every image.

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
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from everynet.data import load
from everynet.data.dataset import Batch, Data, Terms
from everynet.plot.images import filters
from everynet.plot.matrix import heatmap
from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.recipes.training import Training
from everynet.system.seeds import mix
from everynet.training.loop import evaluate, trained
from everynet.zoo.optimisation.few_images import take_rows


class SparseAutoencoder(nn.Module):
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
        """The feature of each unit, which it adds to the reconstruction."""
        return self.length * normalize(self.decoder.weight, dim=0)

    def decode(self, h: Float[Tensor, "batch hidden"]) -> Float[Tensor, "batch input"]:
        return linear(h, self.features(), self.decoder.bias)  # (2)


def error(
    reconstruction: Float[Tensor, "batch input"], x: Float[Tensor, "batch input"]
) -> Float[Tensor, ""]:
    """The squared distance between reconstruction and x, averaged over samples."""
    return (reconstruction - x).square().sum(dim=1).mean()  # (3)


def code_penalty(h: Float[Tensor, "batch hidden"]) -> Float[Tensor, ""]:
    """The absolute penalty, for codes with few units far from zero."""
    return h.abs().sum(dim=1).mean()  # (4)


def divergence(rho: float, rate: Float[Tensor, "*units"]) -> Float[Tensor, "*units"]:
    """From a unit that is on with probability `rho` to one that is on with probability `rate`."""
    return rho * (rho / rate).log() + (1 - rho) * ((1 - rho) / (1 - rate)).log()  # (5)


def rate_penalty(h: Float[Tensor, "batch hidden"], rho: float) -> Float[Tensor, ""]:
    """The penalty on codes whose units are not on for a share rho of the samples."""
    return divergence(rho, h.mean(dim=0)).sum()  # (6)


def near_zero(weight: Float[Tensor, "rows columns"]) -> Float[Tensor, ""]:
    """The share of weights below a tenth of their root mean square."""
    return (weight.abs() < 0.1 * weight.square().mean().sqrt()).float().mean()


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class ImageCoding(Training[SparseAutoencoder]):
    """Reconstruct images from their codes, with penalties on the code and on the weights."""

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
        data = take_rows(load(self.data, kind="image", batch_size=1, seed=self.seed), self.rows)
        return replace(data, batch_size=min(self.batch_size, data.rows("train")))

    def model(self, data: Data) -> SparseAutoencoder:
        activation = nn.Sigmoid() if self.rho else nn.ReLU()
        inputs = math.prod(data.spec["shape"])
        return SparseAutoencoder(inputs, self.hidden_size, activation, self.length)

    def objective(self, model: SparseAutoencoder, batch: Batch) -> Terms:
        x = batch[0].flatten(1)
        h = model(self.noisy(x))
        terms = {"error": error(model.decode(h), x)}
        if self.alpha:
            penalty = rate_penalty(h, self.rho) if self.rho else code_penalty(h)
            terms["code"] = self.alpha * penalty
        if self.weight_alpha:
            terms["weights"] = self.weight_alpha * model.encoder.weight.abs().sum()  # (7)
        return terms

    def metrics(self, model: SparseAutoencoder, batch: Batch) -> dict[str, Tensor]:
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

    meanings: ClassVar[Mapping[str, str]] = {
        "active": "the share of units that are active, without a penalty",
        "active_sparse": "the same with the strongest penalty",
        "active_ratio": "the second by the first",
        "largest_rise": "the most that a stronger penalty raised the share: none where negative",
        "extra_error": (
            "what the strongest penalty adds to the error of the reconstruction, as a part of it"
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
    """Standard deviation of the noise on the inputs, in those of a pixel."""
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
        self.above(0, "length", "lr")
        self.at_least(0, "weight_alpha", "noise")
        self.at_least(1, "hidden_size", "rows", "steps", "batch_size", "repeats")

    active: ClassVar[str] = "units active"  # what is measured of a code

    def first(self) -> ImageCoding:
        """The autoencoder that the penalties are tried on."""
        names = ("data", "rows", "hidden_size", "length", "noise", "steps", "batch_size", "lr")
        return ImageCoding(**{name: getattr(self, name) for name in names})

    def target(self) -> dict[str, float]:
        """The target of the activity, in per cent, where the penalty has one."""
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
        metrics = torch.tensor(measured).unflatten(0, (self.repeats, -1))
        wrong, active, encoder, decoder = metrics.unbind(-1)
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

    def picture_law(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """Activity and weights near 0 by penalty (left), error (middle), two sparsities (right).

        The strongest penalty on the code lowers the activity (blue) from {first:.0f} to {last:.0f}
        per cent.
        """
        alphas = torch.tensor(self.alphas)
        active, wrong = 100 * result["active"], result["error"]
        near = 100 * result["near_zero"]
        other, still = (100 * result[f"weights_{name}"].mean() for name in ("near_zero", "active"))
        shares = {self.active: active, "encoder weights near 0": near[..., 0],
                  "feature weights near 0": near[..., 1]}  # fmt: skip
        label = r"strength $\alpha$ of the penalty on the code"
        sparsity = Panel(
            {name: (alphas, share.mean(0)) for name, share in shares.items()},
            label,
            "share (%)",
            "penalty on the code: its units and the weights",
            bands={name: (s.amin(0), s.amax(0)) for name, s in shares.items()},
            levels=self.target(),
        )
        error = Panel(
            {"validation images": (alphas, wrong.mean(0))},
            label,
            "squared error (pixel variances)",
            "reconstruction",
            bands={"validation images": (wrong.amin(0), wrong.amax(0))},
            levels={"20 % above no penalty": 1.2 * wrong[:, 0].mean().item()},
        )
        kinds = Panel(
            {
                "penalty on the code": (near[..., 0].mean(0), active.mean(0)),
                "penalty on the weights": (
                    torch.stack([near[:, 0, 0].mean(), other]),
                    torch.stack([active[:, 0].mean(), still]),
                ),
            },
            "weights near 0 (%)",
            f"{self.active} (%)",
            "two kinds of sparsity",
        )
        ends = active.mean(0)[[0, -1]].tolist()
        return panels(sparsity, error, kinds), dict(zip(("first", "last"), ends, strict=True))

    def picture_codes_sparse(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """The code of some validation images (rows) under the strongest penalty.

        On average {half:.1f} of {units} units hold half of the activity of a row.
        """
        return self._codes(result["sparse_code"], self._strongest())

    def picture_codes_dense(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """The code of the same validation images without a penalty.

        On average {half:.1f} of {units} units hold half of the activity of a row.
        """
        return self._codes(result["dense_code"], "without penalty")

    def picture_features_sparse(self, result: Mapping[str, Tensor]) -> Figure:
        """The feature that each unit adds to the reconstruction, under the strongest penalty."""
        title = f"features {self._strongest()}"
        return filters(result["sparse_features"], most=64, title=title)

    def picture_features_dense(self, result: Mapping[str, Tensor]) -> Figure:
        """The feature that each unit adds to the reconstruction, without a penalty."""
        return filters(result["dense_features"], most=64, title="features without penalty")

    def _strongest(self) -> str:
        return rf"with $\alpha = {self.alphas[-1]:g}$"

    def _codes(
        self, code: Float[Tensor, "images hidden"], name: str
    ) -> tuple[Figure, dict[str, float]]:
        drawn = heatmap(
            code, xlabel="unit", ylabel="validation image", title=f"codes {name}", unit="activity"
        )
        return drawn, {"half": half_of(code), "units": code.shape[1]}

    def tiny(self) -> Self:
        return replace(super().tiny(), rows=64)


def half_of(code: Float[Tensor, "images hidden"]) -> float:
    """How many units hold half of the activity of an image, on average."""
    order = code.double().sort(1, descending=True).values
    held = order.cumsum(1) / order.sum(1, keepdim=True).clamp(min=1e-30)
    return float(((held < 0.5).sum(1) + 1).clamp(max=code.shape[1]).double().mean())


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

    def first(self) -> ImageCoding:
        return replace(super().first(), rho=self.rho)

    def target(self) -> dict[str, float]:
        return {"target rate": 100 * self.rho}


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
