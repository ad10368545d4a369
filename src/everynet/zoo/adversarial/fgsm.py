"""Fast gradient sign method: one step of every pixel, the same for all, that raises the loss most.

    x' = clip(x + eps sign(g), low, high),   g = grad_x J(x, y)     (1)  attack
    s z(x') = s z(x) - eps ||w||_1,          z(x) = w x + b         (2)  on a linear model
    max of g d over ||d||_inf <= eps  =  eps ||g||_1                (3)  reached by d = eps sign(g)

where J is the cross-entropy of the network, y the true class, s = 1 or -1 where y = 1 or 0, w x and
g d are inner products, ||.||_1 is the sum of absolute values and ||.||_inf the largest. No pixel
changes by more than eps, yet by (2) the score of a linear model moves by the sum of all its
weights, which grows with the number of pixels: an attack needs only that the network is nearly
linear. A random step of the same size moves a score by a sum whose signs cancel.

Goodfellow, Shlens and Szegedy (2015), "Explaining and harnessing adversarial examples",
arXiv:1412.6572, sections 3 to 5. Unlike the paper, (2) is shown on the classifier by the nearer
of two means, which has nothing to train.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, Self

import torch
from jaxtyping import Float, Float64, Int
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from everynet.data.dataset import Data
from everynet.plot import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.recipes.trained import Trained
from everynet.zoo.adversarial.attacks import (
    Bound,
    choose_fooled,
    class_names,
    fgsm,
    first_images,
    in_parts,
    input_gradient,
    logits,
    predictions,
    probabilities,
    sign_step,
    train_lenet,
)
from everynet.zoo.adversarial.pictures.attack import attacked
from everynet.zoo.vision.classifier import check_image_run, image_run


def linear_margin(
    w: Float[Tensor, "*axes"],
    b: float | Float[Tensor, ""],
    x: Float[Tensor, "batch ..."],
    y: Int[Tensor, " batch"],
    eps: Bound,
) -> Float[Tensor, " batch"]:
    """The margin s z(x') of a linear model after the attack, without attacking it."""
    s = 2 * y - 1
    return s * ((x * w).flatten(1).sum(1) + b) - (eps * w.abs()).sum()  # (2)


def linear_rise(g: Float[Tensor, "batch ..."], eps: Bound) -> Float[Tensor, " batch"]:
    """The most that a loss of gradient `g` can rise, to first order, by steps of at most `eps`."""
    return (eps * g.abs()).flatten(1).sum(1)  # (3)


LINES = 3  # images whose loss is drawn, of those that are shown
MOST_CLASSES = 5  # whose scores are drawn
SIZE = "largest change of a pixel (1: black to white)"
ALONG, ACROSS = (torch.linspace(start, 1, 41, dtype=torch.float64) for start in (0, -1))


@dataclass(frozen=True, kw_only=True)
class Attack(Simulation):
    """Attack the test images of a trained network by gradient signs, and by random signs."""

    meanings: ClassVar[Mapping[str, str]] = {
        "accuracy": "accuracy on the test images before the attack",
        "fgsm_accuracy": "accuracy after the largest step along the signs of the gradient",
        "random_accuracy": "accuracy after a step of that size along random signs",
        "random_rise": "mean rise of the loss by a random step, as a share of the steepest",
        "linear_gap": "relative deviation of a linear model from equation (2): rounding",
    }

    of: Trained = Trained()  # noqa: RUF009 -- frozen, and the same for all
    """The run of an image classifier; empty trains a LeNet on digits first."""
    steps: int = 1600
    """Updates of the LeNet that is trained where `of` is empty."""
    epsilons: tuple[float, ...] = (0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.25)
    """Largest changes of a pixel, from 0, where 1 is the step from black to white."""
    samples: int = 1000
    """Test images that are attacked, from the first on; all where there are fewer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        rise = all(a < b for a, b in pairwise(self.epsilons))
        fits = rise and len(self.epsilons) > 1 and self.epsilons[0] == 0 and self.epsilons[-1] <= 1
        self.require(fits, "epsilons", "two or more numbers that rise from 0 to at most 1")
        self.at_least(1, "samples", "steps")

    def ready(self) -> None:
        if self.of:
            check_image_run(self.of, "its pixels are changed")

    def victim(self) -> tuple[nn.Module, Data]:
        """The network that is attacked, in float64, and its data."""
        if not self.of:
            return train_lenet(self.steps, self.seed)
        self.ready()
        return image_run(self.of)

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        model, data = self.victim()
        model.requires_grad_(False)
        x, y = first_images(data, self.samples)
        moments = (torch.tensor(data.spec[n], dtype=torch.float64) for n in ("mean", "std"))
        mean, std = (moment[:, None, None] for moment in moments)
        low, high = (0 - mean) / std, (1 - mean) / std  # black and white
        unit = 1 / std  # the step from black to white
        g = in_parts(input_gradient, model, x, y)
        r = torch.randint(0, 2, x.shape, generator=generator).double() * 2 - 1
        ways = {"fgsm": g, "random": r}
        answers = {
            name: torch.stack(
                [
                    in_parts(probabilities, model, sign_step(x, way, e * unit, low, high))  # (1)
                    for e in self.epsilons
                ]
            )
            for name, way in ways.items()
        }  # epsilons samples classes
        right = {name: (p.argmax(2) == y).double().mean(1) for name, p in answers.items()}
        weak = (right["fgsm"] < 0.5).nonzero().flatten()
        at = int(weak[0]) if len(weak) else len(self.epsilons) - 1
        before, after = answers["fgsm"][0], answers["fgsm"][at]
        shown = choose_fooled(before.argmax(1), after.argmax(1), y)
        changed = sign_step(x[shown], g[shown], self.epsilons[at] * unit, low, high)
        longest = {n: self.epsilons[-1] * unit * way[shown].sign() for n, way in ways.items()}
        return {
            "epsilons": torch.tensor(self.epsilons, dtype=torch.float64),
            "fgsm_accuracy": right["fgsm"],
            "random_accuracy": right["random"],
            "random_rise": (unit * g * r).flatten(1).sum(1)
            / linear_rise(g, unit).clamp(min=1e-300),
            "shown_epsilon": torch.tensor(self.epsilons[at], dtype=torch.float64),
            "images": x[shown] * std + mean,
            "changed": changed * std + mean,
            "true": y[shown],
            "before": before[shown],
            "after": after[shown],
            **_along(model, x[shown], y[shown], longest),
            **_linear(data, self.epsilons, unit),
            "classes": torch.tensor(list("\n".join(data.spec["classes"]).encode())),
        }

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        return {
            "accuracy": result["fgsm_accuracy"][0].item(),
            "fgsm_accuracy": result["fgsm_accuracy"][-1].item(),
            "random_accuracy": result["random_accuracy"][-1].item(),
            "random_rise": result["random_rise"].abs().mean().item(),
            "linear_gap": result["linear_gap"].item(),
        }

    def picture_examples(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """Test images with their predicted class, the change, and the image and class after it.

        Red pixels became lighter and blue ones darker, by at most {eps:g} of black to white.
        """
        classes, eps = class_names(result), result["shown_epsilon"].item()
        figure = attacked(
            result["images"],
            result["changed"],
            before=predictions(result["before"], classes),
            after=predictions(result["after"], classes),
            title=f"every pixel changed by at most {eps:g}",
        )
        return figure, {"eps": eps}

    def picture_accuracy(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """Accuracy by the size of the step: a network (left) and a linear model (right).

        The largest step leaves {fgsm:.0%} by signs of the gradient, {random:.0%} by random ones.
        """
        classes, eps = class_names(result), result["epsilons"]
        curves = {n: (eps, result[f"{n}_accuracy"]) for n in ("fgsm", "random", "linear")}
        pair = " or ".join(classes[k] for k in result["linear_classes"].tolist())
        figure = panels(
            Panel(
                {"signs of the gradient": curves["fgsm"], "random signs": curves["random"]},
                xlabel=SIZE,
                ylabel="accuracy, test images",
                title=f"the network, {len(classes)} classes",
                ylim=(-0.03, 1.03),
            ),
            Panel(
                {"attacked": curves["linear"]},
                guides={"by equation (2)": (eps, result["linear_law"])},
                xlabel=SIZE,
                ylabel="accuracy, training images",
                title=f"a linear model, {pair}",
                ylim=(-0.03, 1.03),
            ),
        )
        found = self.metrics(result)
        return figure, {"fgsm": found["fgsm_accuracy"], "random": found["random_accuracy"]}

    def picture_directions(self, result: Mapping[str, Tensor]) -> Figure:
        """The loss of three images along the signs of the gradient and along random ones (dashed).

        On the right, the scores of the first image along the signs, from one side to the other.
        """
        classes, largest = class_names(result), result["epsilons"][-1]
        names = [f"image {i + 1}: {classes[k]}" for i, k in enumerate(result["true"][:LINES])]
        by_sign, by_chance = (
            {n: (ALONG * largest, loss) for n, loss in zip(names, result[which], strict=True)}
            for which in ("loss_fgsm", "loss_random")
        )
        scores = {
            classes[k]: (ACROSS * largest, score)
            for k, score in zip(result["scored"].tolist(), result["scores"].T, strict=True)
        }
        return panels(
            Panel(
                by_sign,
                guides=by_chance,
                xlabel=SIZE,
                ylabel="loss J",
                title="along the signs of the gradient",
                dashes="along random signs",
            ),
            Panel(
                scores,
                xlabel="step along the signs (0: the image)",
                ylabel="score",
                title=f"{names[0]}; the {len(scores)} highest scores",
            ),
        )

    def tiny(self) -> Self:
        return replace(self, steps=10, samples=60, epsilons=(0.0, 0.1, 0.25))


def _along(
    model: nn.Module,
    x: Float[Tensor, "shown ..."],
    y: Int[Tensor, " shown"],
    ways: Mapping[str, Float[Tensor, "shown ..."]],
) -> dict[str, Tensor]:
    """The loss of some images along each way, and the scores of one, without clipping."""
    found: dict[str, Tensor] = {}
    with torch.no_grad():
        for name, way in ways.items():
            lines = (logits(model, x[:LINES] + share * way[:LINES]) for share in ALONG)
            found[f"loss_{name}"] = torch.stack(
                [cross_entropy(z, y[:LINES], reduction="none") for z in lines], 1
            )
        scores = torch.cat([logits(model, x[:1] + t * ways["fgsm"][:1]) for t in ACROSS])
    highest = scores.amax(0).topk(min(MOST_CLASSES, scores.shape[1])).indices.sort().values
    return found | {"scored": highest, "scores": scores[:, highest]}


def _linear(
    data: Data, epsilons: tuple[float, ...], unit: Float64[Tensor, "channels 1 1"]
) -> dict[str, Tensor]:
    """A linear model of two classes under attack, without clipping, beside equation (2)."""
    pair = (3, 7) if len(data.spec["classes"]) > 7 else (0, 1)  # those of the paper, of ten digits
    x, y = data.whole
    zero, one = (x[y == k].double().mean(0) for k in pair)
    w = (one - zero) / (one - zero).square().sum()  # z is -1/2 at one mean and 1/2 at the other
    b = -(w * (one + zero)).sum() / 2
    line = nn.Linear(w.numel(), 1).double().requires_grad_(False)
    line.weight.copy_(w.flatten()[None])
    line.bias.copy_(b)
    model = nn.Sequential(nn.Flatten(), line)
    kept = ((y == pair[0]) | (y == pair[1])).nonzero().flatten()[:1000]
    x, y = x[kept].double(), (y[kept] == pair[1]).long()
    moved = [fgsm(model, x, y, e * unit, -torch.inf, torch.inf) for e in epsilons]
    margins = torch.stack([(2 * y - 1) * model(x)[:, 0] for x in moved])
    law = torch.stack([linear_margin(w, b, x, y, e * unit) for e in epsilons])
    return {
        "linear_classes": torch.tensor(pair),
        "linear_accuracy": (margins > 0).double().mean(1),
        "linear_law": (law > 0).double().mean(1),
        "linear_gap": (margins - law).abs().max() / law.abs().max(),
    }


RECIPES = {
    "fgsm": Attack(
        goal="accuracy >= 0.98 and fgsm_accuracy <= 0.2 and random_accuracy >= 0.94",
        covers=("X3",),
    ),
}
