"""Adversarial training: learn from images that are changed against the network as it is.

    x' = x + eps sign(grad_x J(f_w(x), y))                            (1)  one step (FGSM)
    x_{t+1} = clip(x + P(x_t + k sign(grad_x J(f_w(x_t), y)) - x))    (2)  several, from noise (PGD)
    min over w of  (1 - a) J(f_w(x), y) + a J(f_w(x'), y)             (3)  objective

J is the cross-entropy, P the projection on changes of at most eps a pixel, a the share of the
examples in the loss; pixels, from 0 to 1, are not standardised, and x' stays in that range. The
examples are made anew at every update, with the network in evaluation mode, and no gradient goes
through how they were made: the loss at the worst point has the gradient of the loss there
(Danskin). What is gained under attack costs some accuracy on unchanged images, which is measured
beside a twin that learned from these alone (a = 0).

Goodfellow, Shlens and Szegedy (2015), "Explaining and harnessing adversarial examples",
arXiv:1412.6572, section 6, for (1, 3); Madry, Makelov, Schmidt, Tsipras and Vladu (2018), "Towards
Deep Learning Models Resistant to Adversarial Attacks", arXiv:1706.06083, for (2), with a = 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Int64
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from everynet.data.dataset import Batch, Data, History, Terms
from everynet.data.images.standardize import restandardize
from everynet.metrics.meanings import CLASSES, meanings
from everynet.recipes.state import M, State
from everynet.recipes.training import minimised
from everynet.training.loop import evaluating, trained
from everynet.zoo.adversarial.attacks import Bound, answers, ascend, fgsm, pgd, random_start
from everynet.zoo.adversarial.pictures.attack import attacked, robustness
from everynet.zoo.vision.classifier import ImageClassification, valid_images
from everynet.zoo.vision.cnn import CNN, CNNPhotographs


def one_step_examples(
    model: nn.Module,
    x: Float[Tensor, "batch channels height width"],
    y: Int64[Tensor, " batch"],
    eps: Bound,
) -> Float[Tensor, "batch channels height width"]:
    """Examples by one step of the size of the ball."""
    with evaluating(model):
        return ascend(lambda v: _loss(model, v, y), x, x, eps=eps, step_size=eps, steps=1)  # (1)


def pgd_examples(
    model: nn.Module,
    x: Float[Tensor, "batch channels height width"],
    y: Int64[Tensor, " batch"],
    eps: Bound,
    steps: int,
) -> Float[Tensor, "batch channels height width"]:
    """Examples by several steps from a random point of the ball, 2.5 times its size in all."""
    start, k = random_start(x, eps), 2.5 * eps / steps
    with evaluating(model):
        return ascend(
            lambda v: _loss(model, v, y), x, start, eps=eps, step_size=k, steps=steps
        )  # (2)


def _loss(model: nn.Module, x: Tensor, y: Tensor) -> Float[Tensor, ""]:
    return cross_entropy(model(x), y, reduction="sum")


# -------- the network ends here; training and pictures follow --------

SEEN = 250  # validation images that are attacked for a picture


@dataclass(frozen=True, kw_only=True)
class RobustImages(ImageClassification[M]):
    """Classify images as well when their pixels are changed against the network."""

    captured: ClassVar[bool] = True
    meanings: ClassVar[Mapping[str, str]] = {
        **meanings(*CLASSES, "cross_entropy"),
        "fgsm_accuracy": "accuracy on the test images after one gradient step of size eps",
        "pgd_accuracy": "accuracy after 40 steps of PGD from one random start",
        "pgd_restarts_accuracy": "accuracy that is left after all random starts of PGD",
    }

    eps: float = 0.2
    """Largest change of a pixel that is defended against, where 1 is from black to white."""
    inner: int = 10
    """Steps of the attack in each update."""
    ramp: float = 0.0
    """Share of the updates over which the size of the attack grows from 0 to eps."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.within(0, 1, "eps", "ramp")
        self.at_least(1, "inner")
        self.require(self.mixup == 0, "mixup", "0, because examples are made of one image each")

    def dataset(self) -> Data:
        return pixel_images(super().dataset())

    def objective(self, model: M, batch: Batch) -> Terms:
        x, y = batch
        return self.terms(model, x, y, self.eps)

    def step(self, state: State[M], batch: Batch) -> Terms:
        x, y = batch
        eps: Bound = self.eps
        if self.ramp:
            eps = self.eps * (state.clock / (self.ramp * self.steps)).clamp(max=1).to(x.dtype)
        terms = self.terms(state.model, x, y, eps)
        state.descend(minimised(terms), clip=self.clip, clip_value=self.clip_value)
        return terms

    def terms(self, model: M, x: Tensor, y: Tensor, eps: Bound) -> Terms:
        """The objective against changes of size `eps`."""
        raise NotImplementedError  # every defence says it

    def final(
        self,
        model: M,
        data: Data,
        generator: torch.Generator,
        *,
        restarts: int = 1,
        attack_steps: int = 40,
    ) -> dict[str, float]:
        found = under_attack(
            model, data, self.eps, generator, restarts=restarts, steps=attack_steps
        )
        del found["clean"]  # which is the accuracy of the test split
        return found

    def picture_examples(
        self, model: M, data: Data, history: History
    ) -> tuple[Figure, dict[str, Any]]:
        """Validation images with their predicted class, the change by PGD, and what is then said.

        Of {count} images {clean:.0%} are right before the attack and {robust:.0%} after it.
        """
        x, y, changed = self._attacked(model, data)
        before, after = (answers(model, v).cpu() for v in (x, changed))
        names, y, rows = data.spec["classes"], y.cpu(), torch.arange(min(5, len(y)))
        figure = attacked(
            valid_images(data, rows), changed[rows].cpu(),
            before=[names[k] for k in before[rows]], after=[names[k] for k in after[rows]],
            title=f"every pixel changed by at most {self.eps:g}",
        )  # fmt: skip
        shares = {"clean": (before == y).double().mean(), "robust": (after == y).double().mean()}
        return figure, {"count": len(y), **{n: float(v) for n, v in shares.items()}}

    def picture_robustness(
        self, model: M, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Accuracy on validation images by the size of the change, after one step and after PGD.

        The network was trained for changes up to {eps:g}, the vertical line: there PGD leaves
        {within:.0%}, and at twice the size {beyond:.0%}.
        """
        x, y = data.some("valid", torch.arange(min(SEEN, data.rows("valid"))))
        sizes = torch.linspace(0, 2, 9, dtype=torch.float64) * max(self.eps, 0.05)
        draw = torch.Generator().manual_seed(self.seed)
        ways: dict[str, Callable[[float], Tensor]] = {
            "PGD": lambda eps: pgd(model, x, y, eps, steps=20, generator=draw) if eps else x,
            "one gradient step": lambda eps: fgsm(model, x, y, eps),
        }
        curves = {
            name: torch.stack(
                [(answers(model, way(e)) == y).double().mean() for e in sizes.tolist()]
            )
            for name, way in ways.items()
        }
        within, beyond = curves["PGD"][[4, 8]].tolist()  # of nine sizes up to twice eps
        values = {"eps": self.eps, "within": within, "beyond": beyond}
        return robustness(sizes, curves, self.eps), values

    def _attacked(self, model: M, data: Data) -> tuple[Tensor, Tensor, Tensor]:
        x, y = data.some("valid", torch.arange(min(SEEN, data.rows("valid"))))
        draw = torch.Generator().manual_seed(self.seed)
        return x, y, pgd(model, x, y, self.eps or 1e-9, steps=20, generator=draw)


def pixel_images(data: Data) -> Data:
    """The same images with pixels from 0, black, to 1, white, and not standardised."""
    channels = data.spec["shape"][0]
    data = restandardize(data, [0.0] * channels, [1.0] * channels)
    if data.prepare is not None:  # whole numbers, which become such pixels batch by batch
        return data
    splits = {part: (x.clamp(0, 1), *rest) for part, (x, *rest) in data.splits.items()}
    return replace(data, splits=splits)


def under_attack(
    model: nn.Module,
    data: Data,
    eps: float,
    generator: torch.Generator,
    *,
    restarts: int = 1,
    steps: int = 40,
) -> dict[str, float]:
    """Accuracy on the test images: clean, after one step, and after PGD from random starts.

    Forty steps of PGD are eps / 30 long each, which is across the ball and a third back.
    """
    how: dict[str, Any] = {
        "eps": eps,
        "steps": steps,
        "step_size": 4 / 3 * eps / steps,
        "generator": generator,
    }
    right: dict[str, list[Tensor]] = {}
    for x, y in data.test:
        found = {"clean": answers(model, x) == y}
        found["fgsm_accuracy"] = answers(model, fgsm(model, x, y, eps)) == y
        found["pgd_accuracy"] = found["clean"]
        if eps:
            found["pgd_accuracy"] = answers(model, pgd(model, x, y, **how)) == y
        if restarts > 1 and eps:
            left = found["pgd_accuracy"].clone()
            rest = pgd(model, x[left], y[left], restarts=restarts - 1, **how)
            left[left.clone()] = answers(model, rest) == y[left]
            found["pgd_restarts_accuracy"] = left
        for name, values in found.items():
            right.setdefault(name, []).append(values)
    return {name: torch.cat(parts).double().mean().item() for name, parts in right.items()}


@dataclass(frozen=True, kw_only=True)
class AdversarialImages(RobustImages[CNN], CNNPhotographs):
    """Classify images by a small convolutional network that learns from adversarial examples."""

    meanings: ClassVar[Mapping[str, str]] = {
        **RobustImages.meanings,
        "undefended_accuracy": "accuracy of the same network, trained on unchanged images alone",
        "undefended_fgsm_accuracy": "its accuracy after one gradient step of size eps",
        "undefended_pgd_accuracy": "its accuracy after 40 steps of PGD",
        "clean_drop": "accuracy on unchanged images that the defence costs",
    }

    share: float = 0.5
    """Weight of the examples in the loss; 0 trains without any defence."""
    attack: str = "pgd"
    """What makes the examples: fgsm, one step of size eps, or pgd, `inner` steps from noise."""
    twin: bool = True
    """Train the same network without defence at the end, and attack it too."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.within(0, 1, "share")
        self.one_of("attack", ("fgsm", "pgd"))

    def terms(self, model: CNN, x: Tensor, y: Tensor, eps: Bound) -> Terms:
        if self.share == 0:
            return {"cross_entropy": self.loss(model(x), y)}
        if self.attack == "fgsm":
            changed = one_step_examples(model, x, y, eps)
        else:
            changed = pgd_examples(model, x, y, eps, self.inner)
        clean, adversarial = model(torch.cat([x, changed])).chunk(2)
        return {
            "cross_entropy": (1 - self.share) * self.loss(clean, y),  # (3)
            "adversarial": self.share * self.loss(adversarial, y),  # (3)
        }

    def final(
        self,
        model: CNN,
        data: Data,
        generator: torch.Generator,
        *,
        restarts: int = 1,
        attack_steps: int = 40,
    ) -> dict[str, float]:
        how = {"restarts": restarts, "steps": attack_steps}
        found = under_attack(model, data, self.eps, generator, **how)
        clean = found.pop("clean")
        if not self.twin or self.share == 0:
            return found
        data = data.to(torch.device("cpu"), torch.float32)
        other = trained(replace(self, share=0.0), data)
        beside = under_attack(other, data, self.eps, generator, steps=attack_steps)
        undefended = beside.pop("clean")
        found |= {f"undefended_{name}": value for name, value in beside.items()}
        return {**found, "undefended_accuracy": undefended, "clean_drop": undefended - clean}

    def tiny(self) -> Self:
        return replace(super().tiny(), inner=2, widths=(4, 8))


RECIPES = {
    "adversarial": AdversarialImages(
        data="digits", eps=0.15, widths=(16, 32, 64), steps=1200, batch_size=64, lr=1e-2,
        optimizer="adamw", weight_decay=0.05, schedule="one-cycle", inner=5,
        goal="accuracy >= 0.95 and fgsm_accuracy >= 0.75 and undefended_fgsm_accuracy <= 0.5",
        covers=("X5",),
    ),
    "adversarial-mnist": AdversarialImages(
        data="mnist", eps=0.2, steps=842, batch_size=128, lr=1e-2, optimizer="adamw",
        weight_decay=0.05, schedule="one-cycle", inner=3,
        goal="accuracy >= 0.98 and fgsm_accuracy >= 0.85 and undefended_fgsm_accuracy <= 0.4",
        covers=("X5",),
    ),
}  # fmt: skip
