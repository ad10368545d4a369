"""TRADES: accuracy on images as they are, traded against answers that no small change moves.

    R_rob = mean of 1{some x' in B(x, eps): f(x') s <= 0}                        (1)  robust risk
    min over w of  E[ g(f(x) s) + beta max over x' in B of g(f(x) f(x')) ]       (2)  two classes
    min over w of  E[ J(f(x), y) + beta max over x' in B of KL(p(x) || p(x')) ]  (3)  several
    x_{t+1} = clip(x + P(x_t + k sign(grad KL) - x)),  x_0 = x + 0.001 noise     (4)  inner maximum
    min over x' in B of f(x) f(x')  =  f(x)^2 - eps |f(x)| ||w||_1               (5)  f linear
    max over x' in B of KL  =  the larger KL of f(x) + eps ||w||_1 and f(x) - eps ||w||_1   (6)

f(x) is a logit of two classes with s = 1 or -1, or a row of them with p = softmax(f); g(a) =
log(1 + e^-a), J the cross-entropy, B the ball of changes of at most eps a pixel. An image is wrong
under attack if it is wrong, or if a change moves the answer: the first term bounds the one, the
second the other, and beta says what the second is worth. The label does not enter it: it asks for
answers that stay, not for right ones. At x_0 = x the gradient of KL is 0, hence the noise.

Zhang, Yu, Jiao, Xing, El Ghaoui and Jordan (2019), "Theoretically Principled Trade-off between
Robustness and Accuracy", arXiv:1901.08573, sections 3 and 4; the network of `SmallCNN` is that of
Carlini and Wagner (2017), arXiv:1608.04644, table I, without their dropout behind the pools.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Int64
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, logsigmoid, softplus

from everynet.data.dataset import Data, Terms
from everynet.nn.input_checks import require_images
from everynet.plot import Panel, panels
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.state import M
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.seeds import mix
from everynet.training.loop import evaluating
from everynet.zoo.adversarial.adversarial_training import (
    AdversarialImages,
    RobustImages,
    under_attack,
)
from everynet.zoo.adversarial.attacks import Bound, ascend
from everynet.zoo.vision.cnn import CNN, CNNPhotographs


class SmallCNN(nn.Module):
    """Maps images to logits: two blocks of two convolutions each, then three full layers.

    layer    conv1     conv2     pool      conv3     conv4   pool    full   full   output
    maps     32        32        32        64        64      64      200    200    classes
    size     26 x 26   24 x 24   12 x 12   10 x 10   8 x 8   4 x 4
    """

    def __init__(
        self, in_channels: int, classes: int, *, size: int = 28, dropout: float = 0.5
    ) -> None:
        super().__init__()
        side = ((size - 4) // 2 - 4) // 2
        last = nn.Linear(200, classes)
        self.features = nn.Sequential(
            *(nn.Conv2d(in_channels, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU()),
            nn.MaxPool2d(2),
            *(nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU()),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            *(nn.Linear(64 * side * side, 200), nn.ReLU(), nn.Dropout(dropout)),
            *(nn.Linear(200, 200), nn.ReLU(), last),
        )
        for layer in self.features:
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight)
        nn.init.normal_(last.weight, std=1e-3)  # all classes alike, or nearly
        nn.init.zeros_(last.bias)

    def forward(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch classes"]:
        require_images(self, x)
        y: Tensor = self.classifier(self.features(x).flatten(1))
        return y


def robust_risk(
    f: Float[Tensor, " batch"], s: Int64[Tensor, " batch"], reach: float | Float[Tensor, ""]
) -> Float[Tensor, ""]:
    """The robust risk of a linear model, whose logits a change moves by at most `reach`."""
    return (f * s <= reach).to(f.dtype).mean()  # (1)


def two_class_loss(
    f: Float[Tensor, " batch"],
    changed: Float[Tensor, " batch"],
    s: Int64[Tensor, " batch"],
    beta: float,
) -> Float[Tensor, ""]:
    """The objective for logits of two classes, before and after the change."""
    return (-logsigmoid(f * s) - beta * logsigmoid(f * changed)).mean()  # (2)


def divergence(
    z: Float[Tensor, "batch classes"], changed: Float[Tensor, "batch classes"]
) -> Float[Tensor, ""]:
    """KL(p || p') of the probabilities before and after the change, summed over samples."""
    return kl_div(changed.log_softmax(1), z.log_softmax(1), reduction="sum", log_target=True)


def trades_terms(
    z: Float[Tensor, "batch classes"],
    changed: Float[Tensor, "batch classes"],
    y: Int64[Tensor, " batch"],
    beta: float,
) -> Terms:
    """The two terms of the objective for logits before and after the change."""
    moved = beta * divergence(z, changed) / len(z)
    return {"cross_entropy": cross_entropy(z, y), "divergence": moved}  # (3)


def inner_maximum(
    model: nn.Module,
    x: Float[Tensor, "batch ..."],
    *,
    eps: Bound,
    step_size: Bound,
    steps: int,
    low: float = 0.0,
    high: float = 1.0,
) -> Float[Tensor, "batch ..."]:
    """The images where the answers have moved most from those for `x`, as the network is now."""
    with evaluating(model):
        with torch.enable_grad():  # autocast keeps what it made of the weights, without which
            z = model(x).detach()  # later passes would have no gradient
        start = x + 0.001 * torch.randn_like(x)
        return ascend(
            lambda v: divergence(z, model(v)),
            x, start, eps=eps, step_size=step_size, steps=steps, low=low, high=high,
        )  # (4)  # fmt: skip


def linear_product(
    f: Float[Tensor, " batch"], w: Float[Tensor, " input"], eps: float
) -> Float[Tensor, " batch"]:
    """The least product of the logits of a linear model before and after a change."""
    return f.square() - eps * f.abs() * w.abs().sum()  # (5)


def linear_divergence(
    f: Float[Tensor, " batch"], w: Float[Tensor, " input"], eps: float
) -> Float[Tensor, "ends batch"]:
    """KL at both ends of the ball for a linear model of two classes; one is the maximum.

    KL of two classes is log(1 + e^f') - log(1 + e^f) - p (f' - f), convex in f' and 0 at f.
    """
    ends = torch.stack([f + eps * w.abs().sum(), f - eps * w.abs().sum()])
    return softplus(ends) - softplus(f) - f.sigmoid() * (ends - f)  # (6)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class TradesImages(RobustImages[M]):
    """Classify images by a network whose answers no small change is to move."""

    beta: float = 6.0
    """What it is worth that answers stay under attack; 0 trains without any defence."""
    step_size: float = 0.0
    """Size of a step of the inner attack; 0 takes 2.5 eps / inner."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0, "beta", "step_size")

    def terms(self, model: M, x: Tensor, y: Tensor, eps: Bound) -> Terms:
        if self.beta == 0:
            return {"cross_entropy": self.loss(model(x), y)}
        share = self.step_size / self.eps if self.eps and self.step_size else 2.5 / self.inner
        changed = inner_maximum(model, x, eps=eps, step_size=share * eps, steps=self.inner)
        z, moved = model(torch.cat([x, changed])).chunk(2)
        terms = trades_terms(z, moved, y, self.beta)
        return {**terms, "cross_entropy": self.loss(z, y)}  # with the weights of classes


@dataclass(frozen=True, kw_only=True)
class TradesCNN(TradesImages[CNN], CNNPhotographs):
    """Classify images by a small convolutional network that learns by TRADES."""

    def tiny(self) -> Self:
        return replace(super().tiny(), inner=2, widths=(4, 8))


@dataclass(frozen=True, kw_only=True)
class TradesSmallCNN(TradesImages[SmallCNN]):
    """Classify images by the network of the paper, which learns by TRADES."""

    def model(self, data: Data) -> SmallCNN:
        channels, height, width = data.spec["shape"]
        if height != width or height < 16:
            raise UserError(
                f"size ({height} x {width}) must be square and at least 16, because two blocks "
                "take 4 pixels each and halve the rest; do size=28"
            )
        return SmallCNN(channels, len(data.spec["classes"]), size=height)

    def tiny(self) -> Self:
        return replace(super().tiny(), size=16, inner=2, batch_size=4, holdout=True)


@dataclass(frozen=True, kw_only=True)
class TradeOff(Experiment):
    """The same network at several beta, and one that learns from adversarial examples."""

    meanings: ClassVar[Mapping[str, str]] = {
        "clean_fall": "test accuracy of the smallest beta less that of the largest",
        "robust_rise": "accuracy under PGD of the largest beta less that of the smallest",
        "clean_least": "test accuracy at the largest beta",
        "robust_most": "the largest accuracy under PGD of any beta",
        "adversarial_clean": "test accuracy of plain adversarial training",
        "adversarial_robust": "its accuracy under PGD",
        "lead": "accuracy under PGD of TRADES less that, at a beta as accurate on clean images",
    }

    betas: tuple[float, ...] = (0.0, 0.5, 2.0, 8.0, 32.0)
    """What it is worth that answers stay, from small to large."""
    data: str = "digits"
    """Images that the networks tell apart."""
    eps: float = 0.15
    """Largest change of a pixel, where 1 is from black to white."""
    inner: int = 5
    """Steps of the attack in each update."""
    widths: tuple[int, ...] = (16, 32, 64)
    """Feature maps of the blocks."""
    steps: int = 600
    """Updates of each network."""
    batch_size: int = 64
    """Images of an update."""
    repeats: int = 3
    """Networks at each beta: other weights, other noise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        rises = len(self.betas) > 1 and list(self.betas) == sorted({*self.betas})
        self.require(rises and self.betas[0] >= 0, "betas", "two or more numbers from 0 that rise")
        self.within(0, 1, "eps")
        self.at_least(1, "inner", "steps", "batch_size", "repeats")

    def cells(self) -> dict[str, Training[Any, Any]]:
        how: dict[str, Any] = {
            "data": self.data, "eps": self.eps, "inner": self.inner, "widths": self.widths,
            "steps": self.steps, "batch_size": self.batch_size, "lr": 1e-2, "optimizer": "adamw",
            "weight_decay": 0.05, "schedule": "one-cycle", "eval_every": self.steps,
        }  # fmt: skip
        found: dict[str, Training[Any, Any]] = {}
        for repeat, beta in product(range(self.repeats), self.betas):
            seed = mix(self.seed, repeat)
            found[f"beta-{beta:g}-{repeat}"] = TradesCNN(beta=beta, seed=seed, **how)
            found[f"adversarial-{repeat}"] = AdversarialImages(share=1.0, seed=seed, **how)
        return found

    def outcomes(self, table: Table) -> dict[str, Float[Tensor, "two repeats"]]:
        """Accuracy on the test images, clean and under PGD, of the networks of each kind."""
        found: dict[str, list[Tensor]] = {}
        for name, cell in table.cells.items():
            if cell.diverged is not None:
                continue
            draw, kind = torch.Generator().manual_seed(self.seed), name.rpartition("-")[0]
            data = cell.recipe.dataset()
            got = under_attack(cell.network(), data, self.eps, draw, steps=20)
            pair = torch.tensor([got["clean"], got["pgd_accuracy"]], dtype=torch.float64)
            found.setdefault(kind, []).append(pair)
        return {kind: torch.stack(pairs, 1) for kind, pairs in found.items()}

    def metrics(self, table: Table) -> dict[str, float]:
        means = {kind: pairs.mean(1).tolist() for kind, pairs in self.outcomes(table).items()}
        plain = means.pop("adversarial")
        rising = [means[f"beta-{beta:g}"] for beta in self.betas if f"beta-{beta:g}" in means]
        (clean, robust), (last_clean, last_robust) = rising[0], rising[-1]
        as_clean = [pair[1] for pair in rising if pair[0] >= plain[0] - 0.005]
        return {
            "clean_fall": clean - last_clean,
            "robust_rise": last_robust - robust,
            "clean_least": last_clean,
            "robust_most": max(pair[1] for pair in rising),
            "adversarial_clean": plain[0],
            "adversarial_robust": plain[1],
            "lead": max(as_clean, default=robust) - plain[1],
        }

    def picture_trade(self, table: Table) -> tuple[Figure, dict[str, float]]:
        """Accuracy on test images by beta (left), and one accuracy against the other (right).

        From beta = {least:g} to {most:g} robust accuracy rises by {rise:.0%} and clean accuracy
        falls by {fall:.1%}; bands are the spread over seeds.
        """
        found = self.outcomes(table)
        betas = [beta for beta in self.betas if beta > 0 and f"beta-{beta:g}" in found]
        pairs = torch.stack([found[f"beta-{beta:g}"] for beta in betas])  # betas two repeats
        at, names = torch.tensor(betas, dtype=torch.float64), ("unchanged images", "under PGD")
        every = torch.stack([found[kind] for kind in found if kind != "adversarial"]).mean(2)
        plain = found["adversarial"].mean(1, keepdim=True)
        levels = {}
        if "beta-0" in found:
            clean, robust = found["beta-0"].mean(1).tolist()
            levels = {"unchanged, beta = 0": clean, "under PGD, beta = 0": robust}
        by_beta = Panel(
            {name: (at, pairs[:, i].mean(1)) for i, name in enumerate(names)},
            xlabel="beta",
            ylabel="accuracy, test images",
            title=f"TRADES, changes up to {self.eps:g}",
            bands={
                name: (pairs[:, i].amin(1), pairs[:, i].amax(1)) for i, name in enumerate(names)
            },
            levels=levels,
            log="x",
            legend="below",
        )
        trade = Panel(
            {"TRADES": (every[:, 0], every[:, 1]), "adversarial training": (plain[0], plain[1])},
            xlabel="accuracy on unchanged images",
            ylabel="accuracy under PGD",
            title="mean over seeds, a point for each beta",
            legend="below",
        )
        got = self.metrics(table)
        values = {"rise": got["robust_rise"], "fall": got["clean_fall"]}
        return panels(by_beta, trade), {**values, "least": self.betas[0], "most": self.betas[-1]}

    def tiny(self) -> Self:
        return replace(super().tiny(), betas=(0.0, 6.0), widths=(4, 8), inner=2)


RECIPES = {
    "trades": TradesCNN(
        data="digits", eps=0.15, widths=(16, 32, 64), steps=1200, batch_size=64, lr=1e-2,
        optimizer="adamw", weight_decay=0.05, schedule="one-cycle", inner=5, ramp=0.1,
        goal="accuracy >= 0.95 and pgd_accuracy >= 0.75", covers=("X6",),
    ),
    "trades-mnist": TradesSmallCNN(
        data="mnist", holdout=False, eps=0.3, beta=6.0, inner=40, step_size=0.01, ramp=0.1,
        steps=3510, batch_size=256, lr=0.02, optimizer="momentum", schedule="cosine", warmup=105,
        goal="accuracy >= 0.985 and pgd_accuracy >= 0.945", covers=("X6",),
    ),
    "trade-off": TradeOff(goal="robust_rise >= 0.3 and clean_fall >= 0.005", covers=("X6",)),
}  # fmt: skip
