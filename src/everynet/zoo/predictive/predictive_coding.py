"""Predictive coding: each layer predicts the one below it and is corrected by the error it makes.

    mu^i       = sigma(x^{i+1}) M^i + beta^i                            (1)  prediction of layer i
    eps^i      = (x^i - mu^i) / nu^i                                    (2)  error
    F          = 1/2 sum_i nu^i |eps^i|^2                               (3)  energy
    tau dx^i/dt = sigma'(x^i) * (eps^{i-1} W^{i-1}) - eps^i             (4)  relaxation, -dF/dx^i
    dM^i       = sigma(x^{i+1})^T eps^i                                 (5)  learning, -dF/dM^i
    dbeta^i    = eps^i                                                  (6)  learning, -dF/dbeta^i
    dW^i       = (eps^i)^T sigma(x^{i+1})                               (7)  learning, of feedback

where x^1 .. x^L are the activities of the layers as rows, layer 1 at the bottom, M^i are weights,
beta^i biases, sigma = tanh, * is the product of entries, tau a time constant and W^i = (M^i)^T
unless feedback has weights of its own. Units of error settle much faster than activities, at (2),
where tau deps/dt = x - mu - nu eps is 0; nu^i is the variance of layer i, 1 but for the bottom.
Then F is, up to a constant, the negative logarithm of the density of a chain of Gaussians. Layer L
predicts and is not predicted, layer 1 predicts nothing: each lacks a term of (4). Activities relax
first; then weights learn at the activities reached, each from the two layers it joins alone.

What is clamped says what is computed. With both ends clamped the network learns; with the class
alone it generates an image; with the image alone it infers the class. With the class on top
(`ClassOnTop`) it generates in one sweep downwards, and infers by relaxation; with the image on top
(`ImageOnTop`) it is the other way round. Where errors are too small to move the activities (large
nu^1), (5) and (6) are what backpropagation of the error at the bottom gives.

Rao and Ballard (1999), "Predictive coding in the visual cortex", Nature Neuroscience 2,
doi:10.1038/4580. Whittington and Bogacz (2017), "An Approximation of the Error Backpropagation
Algorithm in a Predictive Coding Network with Local Hebbian Synaptic Plasticity", Neural Computation
29, doi:10.1162/NECO_a_00949. Weights of feedback of their own: Kolen and Pollack (1994),
"Backpropagation without weight transport", doi:10.1109/ICNN.1994.374486.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy, one_hot

from everynet import plot
from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.images.augment import shift
from everynet.metrics import classified, name_classes
from everynet.metrics.meanings import CLASSES, meanings
from everynet.nn.input_checks import require_samples
from everynet.recipes.recipe import later
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.wording import unknown
from everynet.zoo.vision.classifier import to_pixels

Layers = list[Float[Tensor, "batch _"]]
"""The activities x^1 .. x^L, or errors eps^1 .. eps^{L-1}, of a batch."""


class PredictiveCoding(nn.Module):
    """Maps activities of the top layer to the prediction of the bottom one, and relaxes between.

    `sizes` are the units of layers 1 .. L and `nu` is the variance of layer 1.
    """

    def __init__(self, sizes: Sequence[int], nu: float = 1.0) -> None:
        super().__init__()
        if len(sizes) < 2 or min(sizes) < 1:
            raise ValueError(
                f"sizes ({','.join(map(str, sizes))}) must be two or more positive numbers: the "
                "units of each layer from the bottom to the top; try 64,32,10"
            )
        if not 0 < nu < math.inf:
            raise ValueError(f"nu ({nu}) must be above 0, because it is a variance; try 1")
        self.nu = (nu, *[1.0] * (len(sizes) - 2))
        self.weights = nn.ParameterList(
            torch.randn(above, below) / math.sqrt(above) for below, above in pairwise(sizes)
        )
        self.biases = nn.ParameterList(torch.zeros(below) for below in sizes[:-1])

    def forward(self, x: Float[Tensor, "batch input"]) -> Float[Tensor, "batch units"]:
        require_samples(type(self).__name__, x, self.weights[-1], len(self.weights[-1]))
        return self.sweep(x)[0]

    def predict(self, i: int, above: Float[Tensor, "batch above"]) -> Float[Tensor, "batch below"]:
        """What the layer above layer i, counted from 0, predicts of it."""
        mu: Tensor = above.tanh() @ self.weights[i] + self.biases[i]  # (1)
        return mu

    def sweep(self, top: Float[Tensor, "batch units"]) -> Layers:
        """The activities that follow from those on top: no layer has an error."""
        x = [top]
        for i in reversed(range(len(self.weights))):
            x.insert(0, self.predict(i, x[0]))
        return x

    def errors(self, x: Layers) -> Layers:
        """The error of each layer but the top one, which nothing predicts."""
        return [(x[i] - self.predict(i, x[i + 1])) / nu for i, nu in enumerate(self.nu)]  # (2)

    def energy(self, x: Layers) -> Float[Tensor, " batch"]:
        """The energy F of each sample."""
        parts = zip(self.nu, self.errors(x), strict=True)
        return torch.stack([nu / 2 * eps.square().sum(1) for nu, eps in parts]).sum(0)  # (3)

    def feedback(self, i: int) -> Float[Tensor, "below above"]:
        """The weights W^i by which errors of layer i, counted from 0, act on the one above."""
        weight: Tensor = self.weights[i]
        return weight.T

    def flow(self, x: Layers) -> Layers:
        """The change tau dx/dt of each layer that nothing clamps, as it is written."""
        eps, change = self.errors(x), []
        for i, layer in enumerate(x):
            change.append(-eps[i] if i < len(eps) else torch.zeros_like(layer))
            if i > 0:
                slope = 1 - layer.tanh() ** 2
                change[i] = change[i] + slope * (eps[i - 1] @ self.feedback(i - 1))  # (4)
        return change

    @torch.no_grad()
    def relax(
        self,
        x: Layers,
        steps: int,
        dt: float,
        *,
        free_bottom: bool = False,
        free_top: bool = False,
    ) -> Layers:
        """The activities after Euler steps of `flow`, `dt` in units of tau; ends are clamped.

        All is computed in place and without autograd, the prediction by a clamped top only once,
        and tanh from the logistic function, which takes a quarter of its time on a CPU.
        """
        weight, last = self.weights[0], len(x) - 1
        x = [layer.to(weight.dtype, copy=True) for layer in x]
        free = range(0 if free_bottom else 1, last + 1 if free_top else last)
        sigma = [layer.tanh() for layer in x]
        eps = [torch.empty_like(layer) for layer in x[:-1]]
        mu = [torch.empty_like(layer) for layer in x[:-1]]
        torch.addmm(self.biases[-1], sigma[-1], self.weights[-1], out=mu[-1])
        push = [torch.empty_like(layer) for layer in x]
        for _ in range(steps):
            for i in range(last):
                if i + 1 in free:
                    torch.mul(x[i + 1], 2, out=sigma[i + 1])
                    sigma[i + 1].sigmoid_().mul_(2).sub_(1)  # tanh(x) = 2 logistic(2 x) - 1
                    torch.addmm(self.biases[i], sigma[i + 1], self.weights[i], out=mu[i])  # (1)
                torch.sub(x[i], mu[i], out=eps[i])
                if self.nu[i] != 1:
                    eps[i].div_(self.nu[i])  # (2)
            for i in free:
                if i > 0:
                    torch.mm(eps[i - 1], self.feedback(i - 1), out=push[i])
                    # tanh_backward is push * (1 - sigma^2) in one pass
                    x[i].add_(torch.ops.aten.tanh_backward(push[i], sigma[i]), alpha=dt)  # (4)
                if i < last:
                    x[i].sub_(eps[i], alpha=dt)  # (4)
        return x

    def updates(self, x: Layers) -> dict[str, list[Tensor]]:
        """The local rule: the change of weights, biases and feedback, summed over the batch."""
        sigma, eps = [layer.tanh() for layer in x[1:]], self.errors(x)
        pairs = list(zip(sigma, eps, strict=True))
        return {
            "weights": [s.T @ e for s, e in pairs],  # (5)
            "biases": [e.sum(0) for e in eps],  # (6)
            "feedback": [e.T @ s for s, e in pairs],  # (7)
        }

    def loss(self, x: Layers) -> Float[Tensor, " batch"]:
        """The function of the weights whose descent, at fixed activities, is the local rule."""
        return self.energy([layer.detach() for layer in x])


class SeparateFeedback(PredictiveCoding):
    """Feedback has weights W of its own, which no one copies from M: both learn the same change.

    With decay of weights, M - W^T shrinks by the same share at each update, whatever it was.
    """

    def __init__(self, sizes: Sequence[int], nu: float = 1.0) -> None:
        super().__init__(sizes, nu)
        self.feedbacks = nn.ParameterList(
            torch.randn(below, above) / math.sqrt(above) for below, above in pairwise(sizes)
        )

    def feedback(self, i: int) -> Float[Tensor, "below above"]:
        weight: Tensor = self.feedbacks[i]
        return weight

    def loss(self, x: Layers) -> Float[Tensor, " batch"]:
        """Beside F a term of value 0, whose gradient by W is minus (7)."""
        x = [layer.detach() for layer in x]
        hebbian = torch.zeros_like(x[0][:, 0])
        for i, eps in enumerate(self.errors(x)):
            hebbian = hebbian + ((eps.detach() @ self.feedback(i)) * x[i + 1].tanh()).sum(1)
        return super().loss(x) - (hebbian - hebbian.detach())

    def alignment(self) -> Float[Tensor, " layers"]:
        """The cosine of the angle between M^i and the transpose of W^i."""
        pairs = zip(self.weights, self.feedbacks, strict=True)
        return torch.stack([cosine_similarity(m.flatten(), w.T.flatten(), 0) for m, w in pairs])


def backpropagated(
    net: PredictiveCoding, top: Float[Tensor, "batch input"], bottom: Float[Tensor, "batch units"]
) -> list[Float[Tensor, "above below"]]:
    """What backpropagation changes of M: minus the gradient of |x^1 - mu^1|^2 / (2 nu^1)."""
    with torch.enable_grad():
        error = (bottom - net(top)).square().sum() / (2 * net.nu[0])
        gradients = torch.autograd.grad(error, [*net.weights])
    return [-gradient for gradient in gradients]


def cosines(
    net: PredictiveCoding,
    top: Float[Tensor, "batch input"],
    bottom: Float[Tensor, "batch units"],
    steps: int,
    dt: float,
) -> Float[Tensor, " layers"]:
    """The cosine of the local change of each M^i, after relaxing, and that of backpropagation."""
    x = net.relax([bottom, *net.sweep(top)[1:]], steps, dt)
    local = net.updates(x)["weights"]
    pairs = zip(local, backpropagated(net, top, bottom), strict=True)
    return torch.stack([cosine_similarity(a.flatten(), b.flatten(), 0) for a, b in pairs])


# -------- the network ends here; training and pictures follow --------

MOST = 10_000
"""Images that are generated at once."""


@dataclass(frozen=True, kw_only=True)
class ClassOnTop(Training[PredictiveCoding]):
    """Learn images with the class on top: it predicts the image, and relaxation infers it."""

    last_weights: ClassVar[bool] = True
    meanings: ClassVar[Mapping[str, str]] = {
        **meanings(*CLASSES, "cross_entropy"),
        "correlation": "the least over classes of the correlation of generated and mean test image",
        "unit_accuracy": "the share of images whose most active unit of class is that of its class",
    }

    data: str = "digits"
    """A known set, or a folder with one subfolder of images for each class."""
    holdout: bool = True
    """Keep a tenth of training to choose weights; false trains on all but a published test."""
    size: int = 0
    """Side of the images in pixels, to which others are brought; 0 leaves them as they are."""
    strict: bool = later(False)
    """Refuse a file that is no image or cannot be read, instead of skipping and counting it."""
    pixels: int = 0
    """Training images are moved by up to so many pixels along each axis."""
    optimizer: str = "adamw"
    schedule: str = "cosine"
    hidden: tuple[int, ...] = (128, 64)
    """Units of each layer between image and class, the one beside the image first."""
    nu: float = 1.0
    """Variance of the bottom layer about its prediction, in standard deviations squared."""
    relaxation_steps: int = 20
    """Steps of relaxation before each update."""
    inference_steps: int = 100
    """Steps of relaxation with one end free, to infer a class or to generate an image."""
    dt: float = 0.1
    """A step of relaxation, in units of tau."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0, "size", "pixels")
        self.above(0, "nu", "dt")
        self.at_least(1, "relaxation_steps", "inference_steps")
        hidden = bool(self.hidden) and min(self.hidden) >= 1
        self.require(hidden, "hidden", "one or more positive numbers: both ends are clamped")

    def tiny(self) -> Self:
        return replace(super().tiny(), hidden=(16, 8), relaxation_steps=5, inference_steps=10)

    def dataset(self) -> Data:
        data = load(
            self.data, kind="image", batch_size=self.batch_size, seed=self.seed,
            holdout=self.holdout, size=self.size, strict=self.strict,
        )  # fmt: skip
        if data.spec["task"] != "classification":
            raise UserError(
                f"data ({self.data}) must be images with a class each, because a class is learned; "
                "try digits"
            )
        return replace(data, augment=shift(self.pixels) if self.pixels else None)

    def model(self, data: Data) -> PredictiveCoding:
        return PredictiveCoding(self.sizes(data.spec), self.nu)

    def sizes(self, spec: Spec) -> tuple[int, ...]:
        """The units of each layer, from the bottom to the top."""
        return math.prod(spec["shape"]), *self.hidden, len(spec["classes"])

    def clamp(self, model: PredictiveCoding, image: Tensor, code: Tensor) -> Layers:
        """Activities with both ends clamped, and no error but at the bottom."""
        return [image, *model.sweep(code)[1:]]

    def infer(self, model: PredictiveCoding, image: Float[Tensor, "batch pixels"]) -> Layers:
        """Activities after relaxing with the image clamped, from a class unit for all alike."""
        classes = len(model.weights[-1])
        x = self.clamp(model, image, image.new_full((len(image), classes), 1 / classes))
        return model.relax(x, self.inference_steps, self.dt, free_top=True)

    def score(
        self, model: PredictiveCoding, x: Layers
    ) -> tuple[Float[Tensor, "batch classes"], Float[Tensor, "batch classes"]]:
        """Logits of the classes, and the activity of the unit of each class.

        A logit is -F of the class, clamped, with the other layers as inferred, so that their
        softmax is the probability of the class given the layer that it predicts.
        """
        classes, below = len(model.weights[-1]), len(model.weights) - 1
        codes = torch.eye(classes, dtype=x[-1].dtype, device=x[-1].device)
        predicted = model.predict(below, codes).to(x[below].dtype)
        return -torch.cdist(x[below], predicted).square() / (2 * model.nu[below]), x[-1]

    def generate(
        self, model: PredictiveCoding, code: Float[Tensor, "batch classes"], noise: Layers
    ) -> Float[Tensor, "batch pixels"]:
        """Images of classes: a sweep from the top, with noise on each layer between."""
        x = code
        for i in reversed(range(1, len(model.weights))):
            x = model.predict(i, x) + noise[i]
        return model.predict(0, x)

    def objective(self, model: PredictiveCoding, batch: Batch) -> Terms:
        image, y = batch
        code = one_hot(y, self.classes(model)).to(image.dtype)
        with torch.no_grad():
            x = self.clamp(model, image.flatten(1), code)
            x = model.relax(x, self.relaxation_steps, self.dt)
        return {"energy": model.loss(x).mean()}

    def classes(self, model: PredictiveCoding) -> int:
        """How many classes the network knows."""
        return len(model.weights[-1])

    def metrics(self, model: PredictiveCoding, batch: Batch) -> dict[str, Tensor]:
        image, y = batch
        logits, units = self.score(model, self.infer(model, image.flatten(1)))
        return {
            "cross_entropy": cross_entropy(logits, y, reduction="none"),
            "unit_accuracy": (units.argmax(1) == y).to(logits.dtype),
            **classified(logits, y),
        }

    def final(
        self, model: PredictiveCoding, data: Data, generator: torch.Generator
    ) -> dict[str, float]:
        means, made = self.class_means(data, "test"), self.generate_classes(model, data.spec)
        return {"correlation": correlate(made, means).min().item()}

    def class_means(self, data: Data, part: str) -> Float[Tensor, "classes channels height width"]:
        """The mean image of each class, in pixels."""
        image, y = data.some(part, torch.arange(len(data.splits[part][1])))
        image, y = to_pixels(image, data.spec), y.cpu()
        return torch.stack([image[y == c].mean(0) for c in range(len(data.spec["classes"]))])

    def generate_classes(
        self, model: PredictiveCoding, spec: Spec
    ) -> Float[Tensor, "classes channels height width"]:
        """An image of each class, without noise, in pixels."""
        code = torch.eye(len(spec["classes"])).to(model.weights[0])
        made = self.generate(model, code, self.draw_noise(model, len(code), 0.0, None))
        return to_pixels(made.unflatten(1, spec["shape"]), spec).clamp(0, 1)

    def draw_noise(
        self, model: PredictiveCoding, n: int, std: float, generator: torch.Generator | None
    ) -> Layers:
        """Normal noise for every layer."""
        units = [len(bias) for bias in model.biases] + [len(model.weights[-1])]
        return [
            (std * torch.randn(n, each, generator=generator)).to(model.weights[0]) for each in units
        ]

    def picture_relaxing(
        self, model: PredictiveCoding, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """The energy of each layer while validation images relax, with both ends clamped.

        The sum F falls from {first:.3g} to {last:.3g}: errors begin at the bottom and
        spread upwards, to layers that share them.
        """
        image, y = (each[:256] for each in next(iter(data.valid)))
        code = one_hot(y, self.classes(model)).to(image.dtype)
        x = self.clamp(model, image.flatten(1), code)
        steps, parts = 2 * self.relaxation_steps, []
        for _ in range(steps + 1):
            errors = zip(model.nu, model.errors(x), strict=True)
            parts.append(torch.stack([nu / 2 * e.square().sum(1).mean() for nu, e in errors]))
            x = model.relax(x, 1, self.dt)
        energies, time = torch.stack(parts, 1).double().cpu(), self.dt * torch.arange(steps + 1)
        total = energies.sum(0)
        seen = energies > 1e-4 * total  # errors have not come to all layers yet
        layers = {
            f"layer {i + 1}": (time[seen[i]], each[seen[i]]) for i, each in enumerate(energies)
        }
        panel = plot.Panel(
            layers,
            xlabel="time (tau)",
            ylabel="energy of a sample, mean",
            title="relaxing with both ends clamped",
            guides={"F, their sum": (time, total)},
            log="y",
            legend="below",
        )
        return plot.panels(panel), {"first": total[0].item(), "last": total[-1].item()}

    def picture_generated(
        self, model: PredictiveCoding, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """The mean validation image of each class (above) and the image generated of it (below).

        Over their pixels the two correlate by {low:.2f} to {high:.2f}.
        """
        means, made = self.class_means(data, "valid"), self.generate_classes(model, data.spec)
        r = correlate(made, means)
        classes = data.spec["classes"]
        captions = [f"mean {name}" for name in classes] + [f"{name}, made" for name in classes]
        images = torch.cat([means, made])
        figure = plot.image_grid(images, captions=captions, columns=len(classes))
        return figure, {"low": r.min().item(), "high": r.max().item()}

    def picture_backpropagation(
        self, model: PredictiveCoding, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """The cosine of the local change of each M and that of backpropagation, by size of error.

        The variance nu of the bottom layer makes its error large or small. Where it is small, no
        activity moves, and the least cosine is {small:.4f}; at nu = {nu:g} it is {here:.2f}.
        """
        image, y = (each[:64] for each in next(iter(data.valid)))
        x = self.clamp(model, image.flatten(1), one_hot(y, self.classes(model)).to(image.dtype))
        net = copy.deepcopy(model).double()
        top, bottom = x[-1].double(), x[0].double()
        size = (bottom - net(top)).norm(dim=1).mean().cpu()
        nus = self.nu * 10 ** torch.linspace(4, 0, 9, dtype=torch.float64)
        found = []
        for nu in nus.tolist():
            net.nu = (nu, *net.nu[1:])
            found.append(cosines(net, top, bottom, 5 * self.inference_steps, self.dt).cpu())
        by_layer = torch.stack(found, 1)
        curves = {f"M of layer {i + 1}": (size / nus, c) for i, c in enumerate(by_layer)}
        panel = plot.Panel(
            curves,
            xlabel="error of the bottom layer, mean |x - mu| / nu before relaxing",
            ylabel="cosine with backpropagation",
            log="x",
            levels={"the same direction": 1.0},
            marks={f"nu = {self.nu:g}": (size / self.nu).item()},
            legend="below",
        )
        least = by_layer.amin(0)
        values = {"small": least[0].item(), "here": least[-1].item(), "nu": self.nu}
        return plot.panels(panel), values

    def predict(
        self, model: PredictiveCoding, inputs: Tensor, spec: Spec
    ) -> Sequence[dict[str, Any]]:
        """The class inferred from each image, and the probability of every class."""
        parts = [self.score(model, self.infer(model, x.flatten(1)))[0] for x in inputs.split(1000)]
        return name_classes(torch.cat(parts).softmax(1).cpu(), spec["classes"])

    def sample(
        self,
        model: PredictiveCoding,
        spec: Spec,
        generator: torch.Generator,
        *,
        n: int = 10,
        label: str = "",
        noise: float = 0.1,
    ) -> Float[Tensor, "n channels height width"]:
        """Images of the class `label`, or of all in turn; layers vary by so many deviations."""
        if not 1 <= n <= MOST:
            raise UserError(f"n ({n}) must be between 1 and {MOST:,}: so many images are made")
        if label and label not in spec["classes"]:
            raise UserError(unknown("label", label, spec["classes"]))
        if not 0 <= noise < math.inf:
            raise UserError(f"noise ({noise}) must be at least 0: it is a standard deviation")
        count = len(spec["classes"])
        y = torch.full((n,), spec["classes"].index(label)) if label else torch.arange(n) % count
        code = one_hot(y, count).to(model.weights[0])
        made = self.generate(model, code, self.draw_noise(model, n, noise, generator))
        images: Tensor = made.unflatten(1, spec["shape"])
        return images


@dataclass(frozen=True, kw_only=True)
class ImageOnTop(ClassOnTop):
    """Learn classes with the image on top: a sweep predicts the class, as in a perceptron."""

    def sizes(self, spec: Spec) -> tuple[int, ...]:
        return len(spec["classes"]), *reversed(self.hidden), math.prod(spec["shape"])

    def classes(self, model: PredictiveCoding) -> int:
        return len(model.biases[0])

    def clamp(self, model: PredictiveCoding, image: Tensor, code: Tensor) -> Layers:
        return [code, *model.sweep(image)[1:]]

    def infer(self, model: PredictiveCoding, image: Float[Tensor, "batch pixels"]) -> Layers:
        """Activities with the image clamped: the sweep is where relaxation would end."""
        return model.sweep(image)

    def score(
        self, model: PredictiveCoding, x: Layers
    ) -> tuple[Float[Tensor, "batch classes"], Float[Tensor, "batch classes"]]:
        """-F with each class clamped in turn, less what all share, and the units of class."""
        return x[0] / model.nu[0], x[0]

    def generate(
        self, model: PredictiveCoding, code: Float[Tensor, "batch classes"], noise: Layers
    ) -> Float[Tensor, "batch pixels"]:
        """Images of classes: relaxed with the class clamped, from noise about the mean image."""
        x = self.clamp(model, noise[-1], code)
        return model.relax(x, self.inference_steps, self.dt, free_top=True)[-1]


def correlate(
    made: Float[Tensor, "classes channels height width"],
    means: Float[Tensor, "classes channels height width"],
) -> Float[Tensor, " classes"]:
    """The correlation over pixels of each image and the mean image of its class."""
    a, b = (each.double().flatten(1) for each in (made, means))
    return cosine_similarity(a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True))


RECIPES = {
    "predictive-coding": ClassOnTop(
        steps=600,
        lr=5e-3,
        weight_decay=1.0,
        goal="accuracy >= 0.92 and unit_accuracy >= 0.9 and correlation >= 0.95",
        covers=("B1", "B2", "B3", "B4"),
    ),
    "predictive-coding-mnist": ImageOnTop(
        data="mnist",
        hidden=(256, 256),
        pixels=1,
        batch_size=128,
        steps=12_000,
        lr=1e-3,
        goal="accuracy >= 0.97",
        covers=("B3", "B4"),
    ),
}
