"""Weight decay: a penalty on large weights shrinks them, most where the data say least.

    grad E(w) = H (w - w*),  H = Q Lambda Q^T               (1)  a quadratic, least at w*
    w      <- (1 - k alpha) w - k grad E(w)                 (2)  descent on E + alpha |w|^2 / 2
    w~     = Q (Lambda + alpha I)^-1 Lambda Q^T w*          (3)  where (2) ends
    s_i    = lambda_i / (lambda_i + alpha)                  (4)  factor on the part of w* along q_i
    S_t(w) = sign(w) max(|w| - t, 0)                        (5)  soft threshold
    w      <- S_{k alpha}(w - k grad E(w))                  (6)  descent on E + alpha |w|_1
    w~_i   = S_{alpha / lambda_i}(w*_i)                     (7)  where (6) ends, if H is diagonal

w are the weights, k the step size, alpha the strength of the penalty, lambda_i the eigenvalues in
Lambda. The square penalty shrinks every part of w* along an eigenvector q_i of H and makes none
zero; the absolute one makes those zero whose lambda_i |w*_i| is at most alpha. With H = X^T X / n
they are ridge regression and the lasso. In a network the weights decay and the biases do not: a
bias sees no input, so it cannot fit noise in one.

Hoerl, Kennard (1970), "Ridge Regression", Technometrics 12, doi:10.1080/00401706.1970.10488634;
Tibshirani (1996), "Regression Shrinkage and Selection via the Lasso", JRSS B 58, p. 267;
Krogh, Hertz (1991), "A Simple Weight Decay Can Improve Generalization", NIPS 4;
Goodfellow et al. (2016), "Deep Learning", section 7.1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.data import load
from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.system.seeds import mix
from everynet.training.loop import evaluate, trained
from everynet.zoo.optimisation.few_images import OneHiddenLayer

Gradient = Callable[[Float[Tensor, "alphas dim"]], Float[Tensor, "alphas dim"]]
Weights = Float[Tensor, "alphas dim"]
"""One solution for each strength of the penalty."""


def quadratic(hessian: Float[Tensor, "dim dim"], best: Float[Tensor, " dim"]) -> Gradient:
    """The gradient of the quadratic that is least at `best`."""
    return lambda w: (w - best) @ hessian  # (1)


def descend(
    gradient: Gradient,
    alpha: Float[Tensor, " alphas"],
    k: Float[Tensor, " alphas"],
    start: Float[Tensor, " dim"],
    steps: int,
) -> Weights:
    """Where descent with decay is after some steps of size k."""
    w, size = start.expand(len(alpha), -1), k[:, None]
    for _ in range(steps):
        w = (1 - size * alpha[:, None]) * w - size * gradient(w)  # (2)
    return w


def shrunk(
    hessian: Float[Tensor, "dim dim"],
    best: Float[Tensor, " dim"],
    alpha: Float[Tensor, " alphas"],
) -> Weights:
    """The minimum with the square penalty."""
    spectrum, axes = torch.linalg.eigh(hessian)
    w: Tensor = (factor(spectrum, alpha) * (best @ axes)) @ axes.T  # (3)
    return w


def factor(spectrum: Float[Tensor, " dim"], alpha: Float[Tensor, " alphas"]) -> Weights:
    """The factor on the part of w* along each eigenvector."""
    return spectrum / (spectrum + alpha[:, None])  # (4)


def soft_threshold(w: Float[Tensor, "*shape"], t: Float[Tensor, "*small"]) -> Tensor:
    """Move w by t towards zero, and to zero where |w| is below t."""
    return w.sign() * (w.abs() - t).clamp(min=0)  # (5)


def proximal(
    gradient: Gradient,
    alpha: Float[Tensor, " alphas"],
    k: float,
    start: Float[Tensor, " dim"],
    steps: int,
) -> Weights:
    """Where proximal descent with the absolute penalty is after some steps of size k."""
    w = start.expand(len(alpha), -1)
    for _ in range(steps):
        w = soft_threshold(w - k * gradient(w), k * alpha[:, None])  # (6)
    return w


def thresholded(
    spectrum: Float[Tensor, " dim"], best: Float[Tensor, " dim"], alpha: Float[Tensor, " alphas"]
) -> Weights:
    """The minimum with the absolute penalty, where the Hessian is diagonal."""
    return soft_threshold(best, alpha[:, None] / spectrum)  # (7)


FEATURES = (
    "age", "sex", "body mass", "blood pressure", "cholesterol", "LDL", "HDL", "cholesterol / HDL",
    "log triglycerides", "glucose",
)  # fmt: skip
"""Columns of the diabetes table."""


@dataclass(frozen=True, kw_only=True)
class WeightDecay(Simulation):
    """Both penalties on a quadratic and on a linear model; the square one on a network."""

    meanings: ClassVar[Mapping[str, str]] = {
        "l2_error": "how far descent with the square penalty ends from its formula",
        "l1_error": "the same with the absolute penalty",
        "ridge_error": "how far it is from ridge regression",
        "gap": "test loss less training loss, without decay",
        "gap_decayed": "the same with the strongest decay",
        "gap_ratio": "the gap with decay as a part of the gap without",
        "test_loss": "test loss without decay",
        "test_loss_decayed": "test loss with decay",
        "accuracy": "test accuracy without decay",
        "accuracy_decayed": "test accuracy with decay",
    }

    alphas: tuple[float, ...] = (0.1, 1.0, 10.0)
    """Strengths of the penalty on the quadratic, whose eigenvalues go from 0.01 to 100."""
    dimensions: int = 25
    """Length of w on the quadratic."""
    steps: int = 20_000
    """Steps of descent on the quadratic and on the linear model."""
    points: int = 30
    """Strengths along the paths of the linear model."""
    data: str = "mnist"
    """Images that the network tells apart."""
    rows: int = 1000
    """Training images, chosen by the seed."""
    decays: tuple[float, ...] = (0.0, 1e-3, 3e-3, 1e-2)
    """Strengths of the decay of the network, the first 0."""
    hidden_size: int = 64
    """Hidden units of the network."""
    epochs: int = 30
    """Passes of the network over the training images."""
    batch_size: int = 50
    """Images an update of the network sees."""
    lr: float = 0.05
    """Learning rate of the network, with momentum 0.9."""
    repeats: int = 3
    """Networks for each decay: other images, other weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive = len(self.alphas) >= 1 and min(self.alphas) > 0
        self.require(positive, "alphas", "one or more positive numbers")
        rising = len(self.decays) >= 2 and self.decays[0] == 0
        rising = rising and list(self.decays) == sorted(set(self.decays))
        self.require(rising, "decays", "two or more rising numbers, the first 0")
        self.at_least(2, "dimensions", "points")
        self.at_least(1, "steps", "hidden_size", "epochs", "batch_size", "repeats")
        self.require(self.rows >= self.batch_size, "rows", "at least batch_size")
        self.above(0, "lr")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        return {**self.quadratic(generator), **self.paths(), **self.networks()}

    def quadratic(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Both penalties where the eigenvalues are known; each part of w* is 1 or -1."""
        spectrum = torch.logspace(-2, 2, self.dimensions, dtype=torch.float64)
        size = (self.dimensions, self.dimensions)
        axes, _ = torch.linalg.qr(torch.randn(size, generator=generator, dtype=torch.float64))
        signs = torch.randn(self.dimensions, generator=generator, dtype=torch.float64).sign()
        alpha = torch.tensor(self.alphas, dtype=torch.float64)
        turned, zero = axes @ spectrum.diag() @ axes.T, torch.zeros_like(signs)
        k = 1 / (spectrum[-1] + alpha)
        l2 = descend(quadratic(turned, axes @ signs), alpha, k, zero, self.steps)
        straight = quadratic(spectrum.diag(), signs)
        l1 = proximal(straight, alpha, 1 / spectrum[-1].item(), zero, self.steps)
        exact = shrunk(turned, axes @ signs, alpha)
        return {
            "spectrum": spectrum,
            "l2_left": (l2 @ axes) / signs,
            "l1_left": l1 / signs,
            "l2_error": (l2 - exact).norm(dim=1) / exact.norm(dim=1),
            "l1_error": (l1 - thresholded(spectrum, signs, alpha)).norm(dim=1) / signs.norm(),
        }

    def paths(self) -> dict[str, Tensor]:
        """Ridge regression and the lasso on the diabetes table, from weak to strong."""
        data = load("diabetes", kind="table", batch_size=1)
        x, y = data.whole
        y = (y.double() - data.spec["target_mean"]) / data.spec["target_std"]
        hessian, best = x.T @ x / len(x), torch.linalg.lstsq(x, y, driver="gelsd").solution
        top = torch.linalg.eigvalsh(hessian)[-1]
        weak = torch.logspace(-3, 0, self.points, dtype=torch.float64)
        strong = torch.logspace(-3, 3, self.points, dtype=torch.float64)
        zero, gradient = torch.zeros_like(best), quadratic(hessian, best)
        return {
            "ridge_alpha": strong,
            "ridge": descend(gradient, strong, 1 / (top + strong), zero, self.steps),
            "ridge_exact": shrunk(hessian, best, strong),
            "lasso_alpha": weak,
            "lasso": proximal(gradient, weak, 1 / top.item(), zero, self.steps),
        }

    def networks(self) -> dict[str, Tensor]:
        """Loss and accuracy by repeat and decay; on test images without decay and with the most."""
        first = OneHiddenLayer(
            data=self.data, rows=self.rows, hidden_size=self.hidden_size, lr=self.lr,
            steps=self.epochs * (self.rows // self.batch_size), batch_size=self.batch_size,
            optimizer="momentum",
        )  # fmt: skip
        metrics: dict[str, list[float]] = defaultdict(list)
        for repeat in range(self.repeats):
            one = replace(first, seed=mix(self.seed, repeat))
            data = one.dataset()
            for strength in self.decays:
                recipe = replace(one, weight_decay=strength)
                model = trained(recipe, data)
                end = strength in (self.decays[0], self.decays[-1])
                for split in ("train", "valid", *(("test",) if end else ())):
                    found = evaluate(recipe, model, data.batches(split))
                    metrics[f"{split}_loss"].append(found["cross_entropy"])
                    metrics[f"{split}_accuracy"].append(found["accuracy"])
        return {n: torch.tensor(f).unflatten(0, (self.repeats, -1)) for n, f in metrics.items()}

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        test = result["test_loss"].mean(0)
        gap = test - result["train_loss"].mean(0)[[0, -1]]
        right = result["test_accuracy"].mean(0)
        ridge = (result["ridge"] - result["ridge_exact"]).norm() / result["ridge_exact"].norm()
        return {
            "l2_error": result["l2_error"].max().item(),
            "l1_error": result["l1_error"].max().item(),
            "ridge_error": ridge.item(),
            "gap": gap[0].item(),
            "gap_decayed": gap[1].item(),
            "gap_ratio": (gap[1] / gap[0]).item(),
            "test_loss": test[0].item(),
            "test_loss_decayed": test[1].item(),
            "accuracy": right[0].item(),
            "accuracy_decayed": right[1].item(),
        }

    def picture_paths(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """Each weight of a linear model as its penalty grows to the right.

        Ridge (left) shrinks all weights smoothly; lasso (right) sets one after another to exactly
        0, at the end {zeros} of {all}.
        """
        ridge, lasso = result["ridge_alpha"], result["lasso_alpha"]
        label, top = "standardised weight", 1.25 * float(result["ridge"].abs().max())
        drawn = (
            Panel(
                {n: (ridge, w) for n, w in zip(FEATURES, result["ridge"].T, strict=True)},
                r"strength $\alpha$ of the penalty",
                label,
                "ridge on diabetes: all shrink, none is zero",
                guides={
                    n: (ridge, w) for n, w in zip(FEATURES, result["ridge_exact"].T, strict=True)
                },
                log="x",
                ylim=(-top, top),
                legend="below",
            ),
            Panel(
                {n: (lasso, w) for n, w in zip(FEATURES, result["lasso"].T, strict=True)},
                r"strength $\alpha$ of the penalty",
                label,
                "lasso: one after another becomes zero",
                legend="none",
                log="x",
                ylim=(-top, top),
            ),
        )
        zeros = int((result["lasso"][-1] == 0).sum())
        return panels(*drawn, height=3.6), {"zeros": zeros, "all": len(FEATURES)}

    def picture_shrinkage(self, result: Mapping[str, Tensor]) -> Figure:
        """The part of a weight that a penalty leaves, against the curvature along it.

        The squared penalty (left) shrinks flat directions most, the absolute one (right) sets them
        to 0.
        """
        spectrum = result["spectrum"]
        fine = torch.logspace(-2, 2, 200, dtype=torch.float64)
        alpha = torch.tensor(self.alphas, dtype=torch.float64)
        names = [rf"$\alpha = {value:g}$" for value in self.alphas]
        left = {"l2": factor(fine, alpha), "l1": thresholded(fine, torch.ones_like(fine), alpha)}
        titles = {
            "l2": r"$\alpha |w|^2 / 2$: $\lambda / (\lambda + \alpha)$",
            "l1": r"$\alpha |w|_1$: $\max(1 - \alpha / \lambda,\ 0)$ where $|w^*| = 1$",
        }
        drawn = (
            Panel(
                {n: (spectrum, y) for n, y in zip(names, result[f"{kind}_left"], strict=True)},
                r"eigenvalue $\lambda_i$ of the Hessian",
                r"$\tilde w_i / w^*_i$ along the eigenvector",
                titles[kind],
                guides={n: (fine, y) for n, y in zip(names, left[kind], strict=True)},
                log="x",
                scatter=True,
            )
            for kind in ("l2", "l1")
        )
        return panels(*drawn)

    def picture_gap(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """Loss (left) and accuracy (right) of a network against the decay of its weights.

        From no decay to the strongest the gap (green) between validation and training loss goes
        from {first:.2g} to {last:.2g} nats.
        """
        decays = torch.tensor(self.decays)
        train, others = result["train_loss"], result["valid_loss"]
        values = {"training": train, "validation": others, "gap": others - train}
        right = {"training": result["train_accuracy"], "validation": result["valid_accuracy"]}
        where = f"decay of the weights, on {self.rows:,} images of {self.data}"
        drawn = (
            Panel(
                {name: (decays, value.mean(0)) for name, value in values.items()},
                where,
                "cross-entropy (nats)",
                "loss of a network, and its gap",
                bands={name: (v.amin(0), v.amax(0)) for name, v in values.items()},
            ),
            Panel(
                {name: (decays, 100 * value.mean(0)) for name, value in right.items()},
                where,
                "accuracy (%)",
                "accuracy of the same networks",
                bands={n: (100 * v.amin(0), 100 * v.amax(0)) for n, v in right.items()},
                ylim=(0, 105),
                legend="lower left",
            ),
        )
        gap = (others - train).mean(0)
        return panels(*drawn), {"first": gap[0].item(), "last": gap[-1].item()}

    def tiny(self) -> Self:
        return replace(
            super().tiny(), data="digits", rows=100, steps=200, points=5, decays=(0.0, 0.01)
        )


RECIPES = {
    "weight-decay": WeightDecay(
        goal="l2_error <= 1e-8 and l1_error <= 1e-8 and gap_ratio <= 0.7",
        covers=("O14",),
    ),
}
