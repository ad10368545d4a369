"""Adversarial attacks: small changes of an image that change what a network answers.

    R = mean of 1{argmax_k f_k(x) != y}                            (1)  risk: 1 - accuracy
    P(d) = clip(d, -eps, eps)   or   d min(1, eps / ||d||_2)       (2)  nearest point of the ball
    x' = x + k g,  g = grad_x J(x, y)                              (3)  away from the class y
    x' = x - k g,  g = grad_x J(x, l)                              (4)  towards the class l
    x' = clip(x + eps sign(g), low, high)                          (5)  fast gradient sign method
    u(g) = sign(g)   or   g / ||g||_2                              (6)  steepest way in the norm
    x_{t+1} = clip(x + P(x_t + k u(g_t) - x), low, high)           (7)  projected gradient descent
    h_k = f_k(x_t) - f_y(x_t),  w_k = grad_x h_k                   (8)  boundary to the class k
    x_{t+1} = x_t + |h_k| / ||w_k||_* u(w_k),  the k of least |h_k| / ||w_k||_*   (9)  DeepFool
    d = (w_k (x_t - x) - h_k) / ||w_k||_* u(w_k)                   (10)  nearest point of that plane
    b <- s where x + s d falls, else a <- s;  s = (a + b) / 2      (11)  bisection of a length

f_k are the logits, J the cross-entropy, d = x' - x a change. Where two forms stand, the first is of
the norm linf, the largest change of a pixel, and the second of l2, the length of the change;
||.||_* is the dual norm, the sum of sizes for linf and the length for l2. Pixels are from 0, black,
to 1, white: `OnPixels` lets a network see them that learned from standardised ones. A sample is
left alone as soon as it has fallen.

Szegedy et al. (2014), "Intriguing properties of neural networks", arXiv:1312.6199 for (3, 4);
Goodfellow et al. (2015), arXiv:1412.6572 for (5); Madry et al. (2018), "Towards Deep Learning
Models Resistant to Adversarial Attacks", arXiv:1706.06083 for (7); Moosavi-Dezfooli, Fawzi and
Frossard (2016), "DeepFool", arXiv:1511.04599 for (8, 9). Unlike that paper, w_k is 0 at pixels that
are black or white and cannot go on that way, and what was found is brought back by (10) and (11).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import torch
from jaxtyping import Bool, Float, Float64, Int, Int64, Shaped
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from everynet.data import kinds
from everynet.data.dataset import Data, Spec
from everynet.data.loading import Like
from everynet.plot import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.recipes.trained import Trained
from everynet.system.errors import UserError
from everynet.system.wording import unknown
from everynet.training.loop import evaluating, trained
from everynet.zoo.adversarial.pictures.attack import attacked
from everynet.zoo.vision import lenet
from everynet.zoo.vision.classifier import check_image_run, image_run

Bound = float | Tensor
"""One number for all pixels, or one for each channel (channels 1 1)."""
NORMS = ("linf", "l2")
COARSE = 6  # halvings of a length that is not the last


class OnPixels(nn.Module):
    """Maps images of pixels from 0 to 1 to the logits of a network that saw standardised ones."""

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.network = network
        for name, values in (("mean", mean), ("std", std)):
            value = torch.tensor(values, dtype=torch.float64)[:, None, None]
            self.register_buffer(name, value, persistent=False)

    def forward(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch classes"]:
        z: Tensor = self.network((x - self.mean.to(x.dtype)) / self.std.to(x.dtype))
        return z


# --------------------------------------------------------------------------- what is attacked


def logits(model: nn.Module, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch classes"]:
    """The logits of the classes: 0 and z of a network with one output z for two of them."""
    z: Tensor = model(x)
    return z if z.shape[1] > 1 else torch.cat([torch.zeros_like(z), z], 1)


def answers(model: nn.Module, x: Float[Tensor, "batch ..."]) -> Int64[Tensor, " batch"]:
    """The class of the largest logit."""
    with evaluating(model):
        return logits(model, x).argmax(1)


def risk(
    model: nn.Module, x: Float[Tensor, "batch ..."], y: Int[Tensor, " batch"]
) -> Float[Tensor, ""]:
    """The share of samples whose answer is not their class."""
    return (answers(model, x) != y).to(x.dtype).mean()  # (1)


def size(d: Float[Tensor, "batch ..."], norm: str) -> Float[Tensor, " batch"]:
    """The norm of each change."""
    order = math.inf if norm == "linf" else 2
    norms: Tensor = torch.linalg.vector_norm(d.flatten(1), order, dim=1)
    return norms


def project(d: Float[Tensor, "batch ..."], eps: Bound, norm: str) -> Float[Tensor, "batch ..."]:
    """The point of the ball of radius `eps` around 0 that is nearest to `d`."""
    if norm == "linf":
        bound: Any = eps  # a number or a tensor, and clamp takes two of a kind
        return d.clamp(-bound, bound)  # (2)
    return d * (eps / _each(size(d, norm), d).clamp(min=1e-30)).clamp(max=1)  # (2)


def _each(values: Shaped[Tensor, " batch"], like: Tensor) -> Shaped[Tensor, "batch ..."]:
    """A number for each sample, shaped to be multiplied by samples."""
    return values.reshape(-1, *[1] * (like.dim() - 1))


# ------------------------------------------------------------------------------ gradient steps


def input_gradient(
    model: nn.Module, x: Float[Tensor, "batch ..."], y: Int[Tensor, " batch"]
) -> Float[Tensor, "batch ..."]:
    """The gradient g of the loss by each sample; the network is left as it was."""
    return logits_and_gradient(model, x, y)[1]


def logits_and_gradient(
    model: nn.Module, x: Float[Tensor, "batch ..."], y: Int[Tensor, " batch"]
) -> tuple[Float[Tensor, "batch classes"], Float[Tensor, "batch ..."]]:
    """What the network says of each sample, and the gradient of the loss by it."""
    with evaluating(model), torch.enable_grad():
        x = x.detach().requires_grad_()
        z = logits(model, x)
        (g,) = torch.autograd.grad(cross_entropy(z, y, reduction="sum"), x)
    return z.detach(), g


def gradient_step(
    model: nn.Module,
    x: Float[Tensor, "batch ..."],
    y: Int[Tensor, " batch"],
    k: float,
    *,
    targeted: bool = False,
) -> Float[Tensor, "batch ..."]:
    """The samples, `k` gradients up the loss of their class, or down that of the class wanted."""
    g = input_gradient(model, x, y)
    if targeted:
        return x - k * g  # (4)
    return x + k * g  # (3)


def sign_step(
    x: Float[Tensor, "batch ..."],
    g: Float[Tensor, "batch ..."],
    eps: Bound,
    low: Bound = 0.0,
    high: Bound = 1.0,
) -> Float[Tensor, "batch ..."]:
    """Every value moved by `eps` in the direction of the sign of `g`, and kept in its range."""
    low, high = (torch.as_tensor(v, dtype=x.dtype, device=x.device) for v in (low, high))
    return (x + eps * g.sign()).clamp(low, high)  # (5)


def fgsm(  # noqa: PLR0917 -- the letters of (5)
    model: nn.Module,
    x: Float[Tensor, "batch ..."],
    y: Int[Tensor, " batch"],
    eps: Bound,
    low: Bound = 0.0,
    high: Bound = 1.0,
) -> Float[Tensor, "batch ..."]:
    """Adversarial examples: the samples, each value changed by at most `eps`."""
    return sign_step(x, input_gradient(model, x, y), eps, low, high)


def steepest(g: Float[Tensor, "batch ..."], norm: str) -> Float[Tensor, "batch ..."]:
    """The change of size 1 along which a loss of gradient `g` rises most."""
    if norm == "linf":
        return g.sign()  # (6)
    return g / _each(size(g, norm), g).clamp(min=1e-30)  # (6)


def pgd_step(  # noqa: PLR0917 -- the letters of (7)
    x: Float[Tensor, "batch ..."],
    at: Float[Tensor, "batch ..."],
    g: Float[Tensor, "batch ..."],
    k: Bound,
    eps: Bound,
    norm: str = "linf",
    low: float = 0.0,
    high: float = 1.0,
) -> Float[Tensor, "batch ..."]:
    """From `at` a step of size `k` up the gradient, back into the ball around `x` and the range."""
    d = project(at + k * steepest(g, norm) - x, eps, norm)
    return (x + d).clamp(low, high)  # (7)


def ascend(
    loss: Callable[[Tensor], Float[Tensor, ""]],
    x: Float[Tensor, "batch ..."],
    start: Float[Tensor, "batch ..."],
    *,
    eps: Bound,
    step_size: Bound,
    steps: int,
    norm: str = "linf",
    low: float = 0.0,
    high: float = 1.0,
) -> Float[Tensor, "batch ..."]:
    """Where so many steps of PGD from `start` raise a loss to: nothing waits for the device."""
    at = (x + project(start - x, eps, norm)).clamp(low, high)
    for _ in range(steps):
        at = at.detach().requires_grad_()
        with torch.enable_grad():
            (g,) = torch.autograd.grad(loss(at), at)
        at = pgd_step(x, at.detach(), g, step_size, eps, norm, low, high)
    return at.detach()


def random_start(
    x: Float[Tensor, "batch ..."],
    eps: Bound,
    norm: str = "linf",
    generator: torch.Generator | None = None,
) -> Float[Tensor, "batch ..."]:
    """Points of the balls around samples: any pixels, or any direction and length."""
    if norm == "linf":
        return x + eps * (2 * _draw(torch.rand, x.shape, x, generator) - 1)
    length = _each(_draw(torch.rand, x.shape[:1], x, generator), x)
    return x + eps * length * steepest(_draw(torch.randn, x.shape, x, generator), norm)


def _draw(
    draw: Callable[..., Tensor], shape: torch.Size, like: Tensor, generator: torch.Generator | None
) -> Tensor:
    """Random numbers, from a generator wherever that is, or from torch's own on the device."""
    device = like.device if generator is None else generator.device
    return draw(shape, generator=generator, dtype=like.dtype, device=device).to(like.device)


def pgd(
    model: nn.Module,
    x: Float[Tensor, "batch ..."],
    y: Int[Tensor, " batch"],
    eps: float,
    *,
    norm: str = "linf",
    steps: int = 40,
    step_size: float = 0.0,
    restarts: int = 1,
    from_sample: bool = False,
    targeted: bool = False,
    low: float = 0.0,
    high: float = 1.0,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "batch ..."]:
    """The first point on the way of PGD, from random starts, at which each sample falls.

    A step is 2.5 eps / steps long where no `step_size` is given; `from_sample` begins the first way
    at the sample itself. With `targeted`, y are the classes wanted, and a sample falls when it is
    taken for its one. A sample that never falls is returned as the last step left it.
    """
    k, found, sign = step_size or 2.5 * eps / steps, x.clone(), -1 if targeted else 1
    rows = torch.arange(len(x), device=x.device)[(answers(model, x) == y) != targeted]
    for restart in range(restarts):
        at = x[rows]
        if restart or not from_sample:
            at = random_start(at, eps, norm, generator).clamp(low, high)
        for _ in range(steps):
            found[rows] = at
            if not len(rows):
                return found
            z, g = logits_and_gradient(model, at, y[rows])
            standing = (z.argmax(1) == y[rows]) != targeted
            rows, at, g = rows[standing], at[standing], sign * g[standing]
            at = pgd_step(x[rows], at, g, k, eps, norm, low, high)
        found[rows] = at
        if len(rows):
            rows = rows[(answers(model, at) == y[rows]) != targeted]
    return found


# ------------------------------------------------------------------------- the smallest change


def deepfool(
    model: nn.Module,
    x: Float[Tensor, "batch ..."],
    y: Int[Tensor, " batch"],
    *,
    norm: str = "l2",
    steps: int = 50,
    candidates: int = 10,
    overshoot: float = 0.02,
    refinements: int = 1,
    halvings: int = 10,
    low: float = 0.0,
    high: float = 1.0,
) -> Float[Tensor, "batch ..."]:
    """Samples moved onto the other side of the nearest boundary to one of the likeliest classes.

    A sample that has fallen is brought back as far as it can be: shortened by bisection, and moved
    along the boundary towards the point that is nearest to where it was. One that never falls is
    left where it got.
    """
    found, rows = x.clone(), torch.arange(len(x), device=x.device)
    for _ in range(steps):
        rows = rows[answers(model, found[rows]) == y[rows]]
        if not len(rows):
            break
        at = found[rows]
        f, w = boundaries(model, at, y[rows], candidates)
        d = onto_nearest(f, w * _movable(at, w, low, high), norm)
        found[rows] = (at + (1 + overshoot) * d).clamp(low, high)
    for _ in range(refinements):
        found = shorten(model, x, found, y, COARSE)
        d, (f, w) = found - x, boundaries(model, found, y, 2)
        movable = _movable(found, w, low, high)[0]
        nearest = torch.where(movable, onto_plane(f[0], w[0] * movable, d, norm), d)
        tried = (x + (1 + overshoot) * (d + nearest) / 2).clamp(low, high)  # half of the way
        tried = shorten(model, x, tried, y, COARSE)
        better = (answers(model, tried) != y) & (size(tried - x, norm) < size(d, norm))
        found = torch.where(_each(better, x), tried, found)
    return shorten(model, x, found, y, halvings)


def boundaries(
    model: nn.Module, x: Float[Tensor, "batch ..."], y: Int[Tensor, " batch"], candidates: int
) -> tuple[Float[Tensor, "others batch"], Float[Tensor, "others batch ..."]]:
    """By how much the logits of other likely classes exceed that of y, and the gradients of that.

    `candidates` counts y too.
    """
    with evaluating(model), torch.enable_grad():
        x = x.detach().requires_grad_()
        z = logits(model, x)
        others = z.detach().scatter(1, y[:, None], -torch.inf)
        k = others.topk(max(1, min(candidates, z.shape[1]) - 1), 1).indices
        f = (z.gather(1, k) - z.gather(1, y[:, None])).T
        w = [torch.autograd.grad(each.sum(), x, retain_graph=True)[0] for each in f]
    return f.detach(), torch.stack(w)  # (8)


def onto_nearest(
    f: Float[Tensor, "others batch"], w: Float[Tensor, "others batch ..."], norm: str
) -> Float[Tensor, "batch ..."]:
    """The change onto the nearest of several boundaries, if these were planes."""
    far = f.abs() / _dual(w.flatten(2), norm)
    nearest, rows = far.argmin(0), torch.arange(f.shape[1], device=f.device)
    w = w[nearest, rows]
    return _each(far[nearest, rows], w) * steepest(w, norm)  # (9)


def onto_plane(
    f: Float[Tensor, " batch"],
    w: Float[Tensor, "batch ..."],
    d: Float[Tensor, "batch ..."],
    norm: str,
) -> Float[Tensor, "batch ..."]:
    """The smallest change onto the boundary as it is at the change d, if that were a plane."""
    rise = (w * d).flatten(1).sum(1) - f
    return _each(rise / _dual(w.flatten(1), norm), w) * steepest(w, norm)  # (10)


def _dual(w: Float[Tensor, "*batch values"], norm: str) -> Float[Tensor, "*batch"]:
    """The dual norm, of gradients."""
    order = 1 if norm == "linf" else 2
    norms: Tensor = torch.linalg.vector_norm(w, order, dim=-1)
    return norms.clamp(min=1e-30)


def _movable(
    x: Float[Tensor, "batch ..."], w: Float[Tensor, "others batch ..."], low: float, high: float
) -> Bool[Tensor, "others batch ..."]:
    """The pixels that can be changed along w: neither black and to be darker nor the reverse."""
    return ((w > 0) & (x < high)) | ((w < 0) & (x > low))


def shorten(
    model: nn.Module,
    x: Float[Tensor, "batch ..."],
    changed: Float[Tensor, "batch ..."],
    y: Int[Tensor, " batch"],
    halvings: int = 20,
) -> Float[Tensor, "batch ..."]:
    """The same changes, of those that fell as little as they need to fall."""
    d = changed - x
    none = x.new_zeros(len(x))
    s = bisect(lambda s: answers(model, x + _each(s, x) * d) != y, none, none + 1, halvings)
    return x + _each(s, x) * d


def smallest_step(
    model: nn.Module,
    x: Float[Tensor, "batch ..."],
    y: Int[Tensor, " batch"],
    *,
    norm: str = "linf",
    largest: float = 1.0,
    grid: int = 20,
    halvings: int = 20,
    low: float = 0.0,
    high: float = 1.0,
) -> Float[Tensor, " batch"]:
    """The size of the least step along the gradient that changes the answer; inf where none does.

    The first of `grid` sizes that does is looked for, and then bisected.
    """
    u = steepest(input_gradient(model, x, y), norm)

    def falls(eps: Float[Tensor, " batch"]) -> Bool[Tensor, " batch"]:
        return answers(model, (x + _each(eps, x) * u).clamp(low, high)) != y

    sizes = torch.linspace(0, largest, grid + 1, dtype=x.dtype, device=x.device)
    fell = torch.stack([falls(eps.expand(len(x))) for eps in sizes])  # sizes batch
    first = fell.int().argmax(0)
    found = bisect(falls, sizes[(first - 1).clamp(min=0)], sizes[first], halvings)
    return torch.where(fell.any(0), found, torch.inf)


def bisect(
    falls: Callable[[Tensor], Bool[Tensor, " batch"]],
    low: Float[Tensor, " batch"],
    high: Float[Tensor, " batch"],
    halvings: int,
) -> Float[Tensor, " batch"]:
    """For each sample a number at which it falls, next to one at which it does not."""
    for _ in range(halvings):
        middle = (low + high) / 2
        fell = falls(middle)
        low, high = torch.where(fell, low, middle), torch.where(fell, middle, high)  # (11)
    return high


# -------- the network ends here; training and pictures follow --------

AT_ONCE = 250  # images that are attacked together
EXAMPLES = 5  # images that are shown
AXIS = {
    "linf": "largest change of a pixel (1: black to white)",
    "l2": "length of the change (1: one pixel, black to white)",
}


class Victim(NamedTuple):
    """A network that sees pixels from 0 to 1, with the images that are attacked."""

    model: nn.Module
    x: Float64[Tensor, "rows channels height width"]
    y: Int64[Tensor, " rows"]
    spec: Spec


@dataclass(frozen=True, kw_only=True)
class Attacks(Simulation):
    """Attack the images of a trained network in every way, each within balls of the same norm."""

    meanings: ClassVar[Mapping[str, str]] = {
        "accuracy": "accuracy on the images before the attack",
        "*_accuracy": "accuracy after the attack of that name, of size eps",
        "*_size": "mean size of the changes by which that attack made right answers wrong",
        "success": "share of the images attacked that became wrong, or were taken for the target",
        "least_step": "mean size of the smallest step along the gradient that changes the answer",
        "share_of_step": "mean size of the changes of DeepFool divided by that of such steps",
    }
    ways: ClassVar[tuple[str, ...]] = ("random", "step", "pgd", "deepfool")
    """The attacks that are compared; the last one's examples are shown."""

    of: Trained = Trained()  # noqa: RUF009 -- frozen, and the same for all
    """The run of an image classifier; empty trains a LeNet on digits first."""
    training: int = 1600
    """Updates of the LeNet that is trained where `of` is empty."""
    data: str = ""
    """Images with their classes, a known set or files; empty takes the test images of the run."""
    images: Path = Path()
    """Images without classes, a file or folder: what the network says of them is to change."""
    samples: int = 500
    """Images that are attacked, from the first on; all where there are fewer."""
    norm: str = "linf"
    """What eps limits: linf, the largest change of a pixel; l2, the length of the change."""
    eps: float = 0.2
    """Size of the change, where a pixel goes from 0, black, to 1, white; of l2 try 2."""
    steps: int = 40
    """Steps of PGD."""
    restarts: int = 1
    """Random starts of PGD."""
    save: bool = False
    """Keep the changed images in the run, as PNG files in the folder images."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.one_of("norm", NORMS)
        self.above(0, "eps")
        most = self.norm == "l2" or self.eps <= 1
        self.require(most, "eps", "at most 1, because 1 makes a black pixel white")
        self.at_least(1, "samples", "training", "steps", "restarts")
        own = bool(self.data) or self.images != Path()
        word = "data" if self.data else "images"
        self.require(bool(self.of) or not own, word, "left out without of=RUN, which is to see it")
        self.require(not self.data or self.images == Path(), "images", "left out with data=")

    def ready(self) -> None:
        if self.of:
            check_image_run(self.of, "its pixels are changed")
            if self.images != Path():
                self.read_images()
        self.check(self.of.spec if self.of else digits().dataset().spec)

    def check(self, spec: Spec) -> None:
        """Refuse settings that do not fit the images or their classes."""
        most = math.sqrt(math.prod(spec["shape"]))
        shape = " x ".join(map(str, spec["shape"]))
        words = f"at most {most:g}, the length from black to white of an image of {shape}"
        self.require(self.eps <= most, "eps", words)

    def read_images(self) -> Tensor:
        """The images without classes, as the network of the run sees them."""
        _, x = kinds.of(self.of.spec).read([self.images], self.of.spec)
        assert isinstance(x, Tensor)  # images are
        return x[: self.samples]

    def victim(self) -> Victim:
        """The network that is attacked and the images, both in float64."""
        if not self.of:
            network, data = train_lenet(self.training, self.seed)
        elif not self.data and self.images == Path():
            network, data = image_run(self.of)
        else:
            network, data = self.of.load().double(), Data.described(self.of.spec)
        if self.data:
            like = Like(self.data, self.of.spec, "")
            data = replace(self.of.recipe, data=like).dataset()  # type: ignore[call-arg, attr-defined]  # a training of images
        spec = data.spec
        known = self.images == Path()
        x, y = first_images(data, self.samples) if known else (self.read_images().double(), None)
        model = OnPixels(network, spec["mean"], spec["std"]).eval().requires_grad_(False)
        x = (x * model.std + model.mean).clamp(0, 1)
        return Victim(model, x, in_parts(answers, model, x) if y is None else y, spec)

    def attack(
        self, way: str, eps: float, victim: Victim, generator: torch.Generator
    ) -> Float64[Tensor, "rows ..."]:
        """The images after one of the attacks, of that size; DeepFool takes what it needs."""
        model, x, y, _ = victim
        if way == "pgd":
            return in_parts(
                pgd, model, x, y, eps=eps, norm=self.norm, steps=self.steps,
                restarts=self.restarts, generator=generator,
            )  # fmt: skip
        if way == "deepfool":
            return in_parts(deepfool, model, x, y, norm=self.norm, refinements=3, halvings=20)
        noise = torch.randn(x.shape, generator=generator, dtype=x.dtype)
        g = noise if way == "random" else in_parts(input_gradient, model, x, y)
        return (x + eps * steepest(g, self.norm)).clamp(0, 1)

    def accuracies(
        self, way: str, epsilons: Tensor, victim: Victim, generator: torch.Generator
    ) -> tuple[Float64[Tensor, " sizes"], Float64[Tensor, "rows ..."]]:
        """The accuracy after attacks of each size, and the images after the one of size `eps`."""
        model, x, y, spec = victim
        if way == "deepfool":
            changed = self.attack(way, self.eps, victim, generator)
            fell = in_parts(answers, model, changed) != y
            far = torch.where(fell, size(changed - x, self.norm), torch.inf)
            return (far > epsilons[:, None]).double().mean(1), changed
        changed, shares, at_eps, rows = x, [], x, torch.arange(len(x))
        for eps in epsilons.tolist():
            says = in_parts(answers, model, changed)
            if way == "pgd":  # in a larger ball it need not go on with what fell in a smaller one
                rows = (~self.fell(says, y, spec)).nonzero().flatten()
            if eps > 0 and len(rows):
                some = Victim(model, x[rows], y[rows], spec)
                changed = changed.index_copy(0, rows, self.attack(way, eps, some, generator))
                says = in_parts(answers, model, changed)
            shares.append((says == y).double().mean())
            at_eps = changed if eps <= self.eps else at_eps
        return torch.stack(shares), at_eps

    def fell(self, says: Tensor, y: Tensor, spec: Spec) -> Bool[Tensor, " rows"]:
        """Whether an attack that is answered so has succeeded."""
        return says != y

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        victim = self.victim()
        model, x, y, spec = victim
        epsilons = torch.linspace(0, 2, 9, dtype=torch.float64) * self.eps
        before = in_parts(probabilities, model, x)
        result = {"epsilons": epsilons, "right": before.argmax(1) == y}
        for way in self.ways:
            result[f"{way}_accuracy"], changed = self.accuracies(way, epsilons, victim, generator)
            after = in_parts(probabilities, model, changed)
            fell = result["right"] & (after.argmax(1) != y)
            result[f"{way}_sizes"] = torch.where(fell, size(changed - x, self.norm), torch.inf)
        if "deepfool" in self.ways:
            most = 1.0 if self.norm == "linf" else math.sqrt(x[0].numel()) / 4
            steps = in_parts(smallest_step, model, x, y, norm=self.norm, largest=most)
            result["least_steps"] = torch.where(result["right"], steps, torch.inf)
        shown = choose_fooled(before.argmax(1), after.argmax(1), y)
        kept = {"kept": changed, "answers": torch.stack([before.argmax(1), after.argmax(1)])}
        return {
            **result, **(kept if self.save else {}),
            "attacked": ~self.fell(before.argmax(1), y, spec),
            "fell": self.fell(after.argmax(1), y, spec),
            "images": x[shown], "changed": changed[shown],
            "before": before[shown], "after": after[shown],
            "classes": torch.tensor(list("\n".join(spec["classes"]).encode())),
        }  # fmt: skip

    def images_to_keep(self, result: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if not self.save:
            return {}
        classes, rows = class_names(result), zip(*result["answers"].tolist(), strict=True)
        plain = [re.sub(r"[^\w-]", "_", name) for name in classes]  # a name may hold a slash
        names = [f"{i:04}-{plain[a]}-as-{plain[b]}" for i, (a, b) in enumerate(rows)]
        return dict(zip(names, result["kept"], strict=True))

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        found = {"accuracy": result["right"].double().mean().item()}
        at = len(result["epsilons"]) // 2
        for way in self.ways:
            found[f"{way}_accuracy"] = result[f"{way}_accuracy"][at].item()
            found[f"{way}_size"] = _finite_mean(result[f"{way}_sizes"])
        found["success"] = _finite_mean(result["fell"][result["attacked"]].double())
        if "deepfool" in self.ways:
            both = result["deepfool_sizes"].isfinite() & result["least_steps"].isfinite()
            found["least_step"] = _finite_mean(result["least_steps"][both])
            mean = _finite_mean(result["deepfool_sizes"][both])
            found["share_of_step"] = mean / found["least_step"] if found["least_step"] else 0.0
        return found

    def picture_examples(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, object]]:
        """Images with their predicted class, the change by {way}, and the image and class after it.

        Red pixels became lighter and blue ones darker, here by a change of {size:.2g} in the mean.
        """
        classes, way = class_names(result), NAMES[self.ways[-1]]
        sizes = size(result["changed"] - result["images"], self.norm)
        figure = attacked(
            result["images"],
            result["changed"],
            before=predictions(result["before"], classes),
            after=predictions(result["after"], classes),
            title=f"{way}, {self.norm}",
        )
        return figure, {"way": way, "size": sizes.mean().item()}

    def picture_accuracy(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, object]]:
        """Accuracy after attacks by the size of the change, on the same images.

        At eps = {eps:g}, the vertical line, {way} leaves {left:.0%}.
        """
        curves = {
            NAMES[way]: (result["epsilons"], result[f"{way}_accuracy"])
            for way in dict.fromkeys((self.ways[-1], "step", *reversed(self.ways)))  # ours first
        }
        figure = panels(
            Panel(
                curves,
                xlabel=AXIS[self.norm],
                ylabel="accuracy",
                marks={"eps": self.eps},
                ylim=(-0.03, 1.03),
            )
        )
        left = self.metrics(result)[f"{self.ways[-1]}_accuracy"]
        return figure, {"eps": self.eps, "way": NAMES[self.ways[-1]], "left": left}

    def tiny(self) -> Self:
        return replace(super().tiny(), training=10, samples=20)


NAMES = {
    "pgd": "PGD",
    "step": "one gradient step",
    "random": "a random change",
    "deepfool": "DeepFool",
}


@dataclass(frozen=True, kw_only=True)
class PGDAttack(Attacks):
    """Attack the images of a trained network by projected gradient descent."""

    ways: ClassVar[tuple[str, ...]] = ("random", "step", "pgd")

    target: str = ""
    """The class that images are to be taken for; empty: any but their own."""

    def check(self, spec: Spec) -> None:
        super().check(spec)
        if self.target and self.target not in spec["classes"]:
            raise UserError(unknown("target", self.target, spec["classes"]))

    def attack(
        self, way: str, eps: float, victim: Victim, generator: torch.Generator
    ) -> Float64[Tensor, "rows ..."]:
        if not self.target or way == "random":
            return super().attack(way, eps, victim, generator)
        model, x, _, spec = victim
        wanted = torch.full((len(x),), spec["classes"].index(self.target))
        if way == "pgd":
            return in_parts(
                pgd, model, x, wanted, eps=eps, norm=self.norm, steps=self.steps,
                restarts=self.restarts, targeted=True, generator=generator,
            )  # fmt: skip
        g = in_parts(input_gradient, model, x, wanted)
        return (x - eps * steepest(g, self.norm)).clamp(0, 1)

    def fell(self, says: Tensor, y: Tensor, spec: Spec) -> Bool[Tensor, " rows"]:
        if not self.target:
            return super().fell(says, y, spec)
        taken: Tensor = says == spec["classes"].index(self.target)
        return taken


@dataclass(frozen=True, kw_only=True)
class DeepFoolAttack(Attacks):
    """Look for the smallest change of each image that changes what a trained network says of it."""

    ways: ClassVar[tuple[str, ...]] = ("random", "step", "deepfool")

    def picture_sizes(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """For each image the smallest step along its gradient, and the change of DeepFool.

        Below the dashed line DeepFool needs less: {share:.2f} of such a step in the mean.
        """
        steps, sizes = result["least_steps"], result["deepfool_sizes"]
        both = steps.isfinite() & sizes.isfinite()
        most = steps[both].max() if bool(both.any()) else torch.ones((), dtype=steps.dtype)
        line = torch.stack([torch.zeros_like(most), most])
        figure = panels(
            Panel(
                {"images": (steps[both], sizes[both])},
                xlabel=f"smallest gradient step, {self.norm}",
                ylabel=f"change of DeepFool, {self.norm}",
                guides={"equal": (line, line)},
                scatter=True,
            )
        )
        return figure, {"share": self.metrics(result)["share_of_step"]}


def digits() -> lenet.LeNetImages:
    """The recipe whose network is attacked where no run is given."""
    recipe: lenet.LeNetImages = lenet.RECIPES["lenet"]
    return recipe


def train_lenet(steps: int, seed: int) -> tuple[nn.Module, Data]:
    """A LeNet that learned digits, in float64, and its data."""
    recipe = replace(digits(), steps=steps, seed=seed)
    data = recipe.dataset()
    return trained(recipe, data).double(), data


def first_images(
    data: Data, count: int
) -> tuple[Float64[Tensor, "rows ..."], Int64[Tensor, " rows"]]:
    """The first test images and their classes, in float64."""
    parts, left = [], count
    for x, y in data.test:
        parts.append((x[:left].double(), y[:left]))
        left -= len(parts[-1][1])
        if left <= 0:
            break
    x, y = (torch.cat(part) for part in zip(*parts, strict=True))
    return x, y


def in_parts(
    function: Callable[..., Tensor], model: nn.Module, *given: Tensor, **settings: object
) -> Tensor:
    """What a function of a network and of samples gives, some samples at a time."""
    parts = zip(*(tensor.split(AT_ONCE) for tensor in given), strict=True)
    return torch.cat([function(model, *part, **settings) for part in parts])


def probabilities(model: nn.Module, x: Float[Tensor, "rows ..."]) -> Float[Tensor, "rows classes"]:
    """The probability of each class."""
    with evaluating(model):
        return logits(model, x).softmax(1)


def choose_fooled(
    before: Int[Tensor, " rows"], after: Int[Tensor, " rows"], y: Int[Tensor, " rows"]
) -> Int[Tensor, " shown"]:
    """Images classified correctly and then wrongly, of as many classes as can be."""
    fooled = ((before == y) & (after != y)).nonzero().flatten().tolist()
    firsts = {int(y[row]): row for row in reversed(fooled)}
    order = dict.fromkeys([*(firsts[k] for k in sorted(firsts)), *fooled, *range(len(y))])
    return torch.tensor(list(order)[:EXAMPLES])


def class_names(result: Mapping[str, Tensor]) -> list[str]:
    """The classes, which a result holds as bytes."""
    return bytes(result["classes"].tolist()).decode().split("\n")


def predictions(p: Float[Tensor, "shown classes"], classes: list[str]) -> list[str]:
    """The predicted class of each image, and its probability."""
    sure = [">99%" if 0.995 <= share < 1 else f"{share:.0%}" for share in p.amax(1).tolist()]
    return [f"{classes[k]}  {text}" for k, text in zip(p.argmax(1).tolist(), sure, strict=True)]


def _finite_mean(values: Tensor) -> float:
    """The mean of what is finite; 0 where nothing is."""
    values = values[values.isfinite()]
    return values.mean().item() if len(values) else 0.0


RECIPES = {
    "pgd": PGDAttack(goal="accuracy >= 0.98 and pgd_accuracy <= 0.2", covers=("X1", "X2")),
    "deepfool": DeepFoolAttack(
        norm="l2", eps=2.0, goal="accuracy >= 0.98 and share_of_step <= 0.85", covers=("X4",)
    ),
    "attacks": Attacks(goal="accuracy >= 0.98 and pgd_accuracy <= 0.2", covers=("X1", "X2", "X4")),
}
