"""Images by diffusion: the equations of `diffusion.py` with the network of `diffusion_unet.py`.

Pixels are from -1, black, to 1, white. An image is a whole number of levels, so that the last term
of the bound is the probability of its level under N(m_1, s_1^2) and not a density: the bound is
then in nats of an image, and by log 2 and the number of its pixels in bits a dimension. A class
that is known adds log of the number of classes: -log p(x) <= -log p(x|y) - log p(y).

An image is completed by denoising all of it, and putting the part that is known in its place at
every step, with as much noise as the rest has; each step is gone back and done again some times, so
that both parts come to agree: Lugmayr et al. (2022), "RePaint", arXiv:2201.09865. The levels: Ho,
Jain and Abbeel (2020), arXiv:2006.11239, section 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from matplotlib.figure import Figure
from torch import Tensor

from everynet import plot
from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.images.augment import flip
from everynet.data.images.keep import keep_mask
from everynet.data.images.standardize import restandardize
from everynet.nn.ema import EMA
from everynet.recipes.recipe import Goal
from everynet.recipes.trained import Trained
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.seeds import generator as make_generator
from everynet.system.wording import unknown
from everynet.training.graph import captured
from everynet.zoo.generative.binary_images import unit_images
from everynet.zoo.generative.diffusion import (
    DDIM,
    DDPM,
    RATE,
    SCHEDULES,
    Diffusion,
    NoiseSchedule,
    Predict,
    Sampler,
    bound,
    bound_terms,
    denoise,
    last_of,
    make_sampler,
    sampling_steps,
    simple_loss,
)
from everynet.zoo.generative.diffusion_unet import NoiseUNet, guided_noise
from everynet.zoo.generative.pictures.codes import image_rows
from everynet.zoo.generative.pictures.denoising import image_frames
from everynet.zoo.generative.sample_quality import QUALITY, measure_samples

MOST = 100_000
"""Images that are drawn at once."""
AT_ONCE = 64
"""Images that are denoised together."""
AGAIN = 5
"""Times that each step of completing an image is done."""
GUIDANCE = (0.0, 1.0, 2.0, 3.0, 5.0)
"""What the picture of guidance compares."""
MOST_FILMED = 400
"""Images of a film."""
FRAMES = 100
"""Frames of a film, at most."""
NEAREST = 20_000
"""Training images among which the nearest are looked for."""


def level_log_likelihood(
    x: Float[Tensor, "*axes"], mean: Float[Tensor, "*axes"], std: Float[Tensor, ""], levels: int
) -> Float[Tensor, "*axes"]:
    """Logarithms of the probabilities of levels; the first and the last have all beyond them."""
    half = 1 / (levels - 1)  # of the distance of two levels
    above = torch.special.ndtr((x - mean + half) / std)
    below = torch.special.ndtr((x - mean - half) / std)
    above = torch.where(x > 1 - half, 1.0, above)
    below = torch.where(x < half - 1, 0.0, below)
    return (above - below).clamp(min=1e-12).log()


def complete(
    predict: Predict,
    schedule: NoiseSchedule,
    x: Float[Tensor, "batch channels height width"],
    known: Bool[Tensor, "height width"],
    steps: int,
    *,
    generator: torch.Generator,
) -> Float[Tensor, "batch channels height width"]:
    """Images with what is not known drawn, given the pixels that are."""

    def draw() -> Tensor:
        return torch.randn(x.shape, generator=generator, dtype=x.dtype).to(x)

    sampler, y = DDPM(), draw()
    for t, s in sampling_steps(steps, schedule.steps):
        for round_ in range(AGAIN):
            eps = predict(y, torch.full((len(y),), t, device=y.device)).to(y.dtype)
            eps = schedule.noise_of(y, schedule.data_of(y, eps, t).clamp(-1, 1), t)
            below = sampler.step(schedule, y, eps, t, s, z=draw())
            its = schedule.noise_further(x, draw(), 0, s) if s else x
            below = torch.where(known, its, below)
            y = schedule.noise_further(below, draw(), s, t) if round_ < AGAIN - 1 else below
    return y


@dataclass(frozen=True, kw_only=True)
class ImageDiffusion(Training[Diffusion, EMA[Diffusion]]):
    """Draw images by taking noise out of noise."""

    meanings: ClassVar[Mapping[str, str]] = {
        "noise_mse": "the mean squared error of the guessed noise, by which the network learns",
        "bits_per_dimension": "the bound on -log p of a test image, in bits a pixel and channel",
        "nats": "the same bound in nats an image; with classes it is that of image and class",
        "start": "its first term, in nats: how far the noisiest images are from noise",
        **QUALITY,
    }

    steps: int = 3000
    batch_size: int = 64
    lr: float = 2e-3
    schedule: str = "cosine"
    warmup: int = 200
    clip: float = 1.0
    data: str = "digits"
    """A known set of images, a folder of images, or one with a subfolder of them for each class."""
    size: int = 0
    """Side of the images in pixels, to which others are brought; 0 leaves them as they are."""
    strict: bool = False
    """Refuse a file that is no image or cannot be read, instead of skipping and counting it."""
    mirror: bool = False
    """Half of the training images are seen in a mirror."""
    widths: tuple[int, ...] = (32, 64)
    """Feature maps of each level; the images are halved from one to the next."""
    blocks: int = 1
    """Residual blocks of each level, on the way down."""
    attention: int = 1
    """So many of the smallest levels have attention."""
    dropout: float = 0.0
    """Share of the maps' entries that are dropped within a block."""
    conditional: bool = True
    """Whether the network is given the class, so that images of one can be drawn."""
    label_dropout: float = 0.1
    """Share of the labels that are left out in training, which guidance needs."""
    noise_steps: int = 500
    """Steps T from data to noise."""
    noising: str = "cosine"
    """The variances of the steps of noising: linear or cosine."""
    share: float = 0.5
    """r of the variance in the bound, from that of the step back, 0, to that of noising, 1."""
    decay: float = 0.999
    """Of the averaged weights: those that draw."""
    sampling_steps: int = 50
    """Steps from noise to images of pictures and of the end, by DDIM."""
    samples: int = 1000
    """Images that are drawn at the end, to be recognised by a classifier."""
    bound_images: int = 100
    """Test images whose bound is computed at the end."""
    of: Trained = Trained()  # noqa: RUF009 -- frozen, and the same for all
    """The run of an image classifier that looks at the samples; empty trains a small one."""
    classifier_steps: int = 600
    """Updates of the classifier that is trained where `of` is empty."""

    last_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.one_of("noising", SCHEDULES)
        self.at_least(0, "size", "attention")
        self.at_least(1, "blocks", "sampling_steps", "bound_images", "classifier_steps")
        self.at_least(2, "noise_steps", "samples")
        self.within(0, 1, "label_dropout", "share")
        self.require(0 <= self.dropout < 1, "dropout", "at least 0 and below 1")
        self.require(0 < self.decay < 1, "decay", "above 0 and below 1")
        words = f"at most noise_steps ({self.noise_steps}), which it undoes"
        self.require(self.sampling_steps <= self.noise_steps, "sampling_steps", words)

    def dataset(self) -> Data:
        data = load(
            self.data, kind=("image", "unlabelled"), batch_size=self.batch_size, seed=self.seed,
            size=self.size, strict=self.strict,
        )  # fmt: skip
        halves = [0.5] * data.spec["shape"][0]
        data = restandardize(unit_images(data), halves, halves)
        return replace(data, augment=flip() if self.mirror else None)

    def model(self, data: Data) -> Diffusion:
        channels, height, width = data.spec["shape"]
        known = len(data.spec["classes"])
        classes = known if self.conditional and known > 1 else 0
        try:
            network = NoiseUNet(
                channels, self.widths, noise_steps=self.noise_steps, classes=classes,
                blocks=self.blocks, attention=self.attention, dropout=self.dropout,
            )  # fmt: skip
            network.check(height, width)
        except ValueError as error:
            raise UserError(str(error)) from None
        return Diffusion(network, NoiseSchedule(SCHEDULES[self.noising](self.noise_steps)))

    def extra(self, model: Diffusion) -> EMA[Diffusion]:
        return EMA(model, self.decay)

    def objective(self, model: Diffusion, batch: Batch) -> Terms:
        x, y = batch
        noisy, t, eps = model.draw_noisy(x)
        dropped = torch.rand(len(x), device=x.device) < self.label_dropout
        labels = torch.where(dropped, classes_of(model), y) if classes_of(model) else None
        return {"noise_mse": simple_loss(eps, model(noisy, t, labels)).mean()}

    def monitor(self) -> Goal | None:
        """The error of the noise: what the goal names is known at the end alone."""
        return Goal("noise_mse", "<=", 1.0) if super().monitor() else None

    def metrics(self, model: Diffusion, batch: Batch) -> dict[str, Tensor]:
        x, y = batch
        noisy, t, eps = model.draw_noisy(x)
        labels = y if classes_of(model) else None
        return {"noise_mse": simple_loss(eps, model(noisy, t, labels))}

    def final(
        self,
        model: Diffusion,
        data: Data,
        generator: torch.Generator,
        *,
        samples: int = 0,
        bound_images: int = 0,
        steps: int = 0,
        guidance: float = 1.0,
    ) -> dict[str, float]:
        """The bound of `bound_images`, and the quality of `samples` drawn in `steps`; 0: as set."""
        if samples and not 2 <= samples <= MOST:
            raise UserError(f"samples ({samples}) must be from 2 to {MOST:,}; 0 is as trained")
        rows = torch.randperm(data.rows("test"), generator=generator)
        x, y = data.some("test", rows[: bound_images or self.bound_images])
        terms = self.bound_by_term(model, x, y if classes_of(model) else None, data.spec, generator)
        nats = bound(terms).mean().item() + math.log(max(1, classes_of(model)))
        labels = self.labels_for(model, data.spec, "", samples or self.samples)
        made = self.draw_images(
            model, data.spec, labels, generator, steps=steps or self.sampling_steps,
            guidance=guidance, n=samples or self.samples,
        )  # fmt: skip
        found = {
            "bits_per_dimension": nats / math.log(2) / x[0].numel(),
            "nats": nats,
            "start": terms[:, -1].mean().item(),
        }
        if len(data.spec["classes"]) < 2 and not self.of:
            return found  # nothing by which a classifier could learn what these images are
        shown = unit_images(data.to(torch.device("cpu"), torch.float32))
        quality = measure_samples(
            (made.float() + 1) / 2, replace(shown, augment=None), self.of,
            steps=self.classifier_steps, seed=self.seed, binary=False,
        )  # fmt: skip
        return found | quality

    def bound_by_term(
        self,
        model: Diffusion,
        x: Float[Tensor, "batch channels height width"],
        y: Int64[Tensor, " batch"] | None,
        spec: Spec,
        generator: torch.Generator,
    ) -> Float[Tensor, "batch terms"]:
        """The terms of the bound on -log p(x|y) of each image, or on -log p(x)."""
        peak = spec["peak"]
        levels = int(peak) + 1 if peak > 1 else 256
        likelihood = partial(level_log_likelihood, levels=levels)
        return bound_terms(
            model, x, generator, likelihood, share=self.share, limit=1.0, y=y,
            at_once=max(1, min(512, 2**21 // x[0].numel())),
        )  # fmt: skip

    def labels_for(
        self, model: Diffusion, spec: Spec, label: str, n: int
    ) -> Int64[Tensor, " n"] | None:
        """A label for each of n images: of one class, or else of all in turn."""
        classes, names = classes_of(model), [str(name) for name in spec["classes"]]
        if not classes:
            if label:
                raise UserError(
                    f"label ({label}) must be left out, because the network was trained without "
                    "classes; train one with conditional=true"
                )
            return None
        if not label:
            return torch.arange(n) % classes
        if label not in names:
            raise UserError(unknown("label", label, names))
        return torch.full((n,), names.index(label))

    def predictor(
        self, model: Diffusion, y: Int64[Tensor, " batch"] | None, guidance: float | Tensor
    ) -> Predict:
        """The guess of the noise in images of these classes."""
        classes = classes_of(model)
        if y is None:
            if guidance != 1:
                raise UserError(
                    f"guidance ({guidance}) must be 1, because the network was trained without "
                    "classes; train one with conditional=true"
                )
            return model

        def predict(x: Tensor, t: Tensor) -> Tensor:
            if isinstance(guidance, Tensor) or guidance not in (0, 1):
                return guided_noise(model, x, t, y[: len(x)], w=guidance, none=classes)
            e: Tensor = model(x, t, y[: len(x)] if guidance else None)
            return e

        return predict

    def draw_images(
        self,
        model: Diffusion,
        spec: Spec,
        labels: Int64[Tensor, " n"] | None,
        generator: torch.Generator,
        *,
        n: int,
        steps: int,
        guidance: float = 1.0,
        sampler: Sampler = DDIM(),  # noqa: B008 -- frozen
    ) -> Float[Tensor, "n channels height width"]:
        """Images from noise, some at a time; on cuda as one graph where no noise is drawn."""
        weight, schedule = next(model.parameters()), model.schedule
        noise = torch.randn(n, *spec["shape"], generator=generator).to(weight)
        together = min(AT_ONCE, n)
        y = labels[:together].clone().to(weight.device) if labels is not None else None
        predict = self.predictor(model, y, guidance)

        def draw(x: Tensor) -> Tensor:
            way = denoise(predict, schedule, x, steps, sampler, generator=generator, limit=1.0)
            return last_of(way)

        sampling_steps(steps, schedule.steps)  # refused before anything is captured
        run = draw if sampler.draws else captured(draw, noise[:together])
        made = []
        for start in range(0, n, together):
            x = noise[start : start + together]
            if labels is not None and y is not None:
                y[: len(x)].copy_(labels[start : start + len(x)])  # in place: a graph reads it
            made.append(run(x).cpu())
        return torch.cat(made)

    def sample(
        self,
        model: Diffusion,
        spec: Spec,
        generator: torch.Generator,
        *,
        n: int = 64,
        steps: int = 50,
        method: str = "ddim",
        eta: float = 0.0,
        label: str = "",
        guidance: float = 1.0,
        film: bool = False,
    ) -> Float[Tensor, "n channels height width"] | plot.Film:
        """Images in `steps` steps by ddim or ddpm, of all classes in turn or of one.

        Guidance above 1 makes them more typical of their class, 0 leaves the class out. `eta` of
        ddim, or r of ddpm, is how much noise is drawn on the way, from 0 to 1.
        """
        if not 1 <= n <= MOST:
            raise UserError(f"n ({n}) must be from 1 to {MOST:,}, because they are drawn at once")
        if not -100 <= guidance <= 100:
            raise UserError(
                f"guidance ({guidance}) must be from -100 to 100; 1 is none, 3 is usual"
            )
        sampler = make_sampler(method, eta)
        sampling_steps(steps, model.schedule.steps)
        labels = self.labels_for(model, spec, label, n)
        if not film:
            return self.draw_images(
                model, spec, labels, generator, n=n, steps=steps, guidance=guidance,
                sampler=sampler,
            )  # fmt: skip
        if n > MOST_FILMED:
            raise UserError(f"n ({n}) must be at most {MOST_FILMED} in a film; leave film out")
        weight = next(model.parameters())
        y = None if labels is None else labels.to(weight.device)
        predict = self.predictor(model, y, guidance)
        x = torch.randn(n, *spec["shape"], generator=generator).to(weight)

        def states() -> Iterator[Tensor]:
            yield x.cpu()
            way = denoise(
                predict, model.schedule, x, steps, sampler, generator=generator, limit=1.0
            )
            for number, (s, some, _) in enumerate(way, 1):
                if s == 0 or number % -(-steps // FRAMES) == 0:
                    yield some.cpu()

        return plot.Film(image_frames(states(), math.ceil(n**0.5)), RATE)

    def predict(
        self,
        model: Diffusion,
        inputs: Tensor,
        spec: Spec,
        *,
        keep: str = "",
        label: str = "",
        steps: int = 100,
    ) -> Sequence[dict[str, Any]]:
        """The bound of each image in nats and in bits a dimension; or its completion.

        `keep` is what is known of it: top, bottom, left, right, or a share of its pixels, drawn at
        random. `steps` are those of completing. With a label the bound is of image and class.
        """
        weight, (_, height, width) = next(model.parameters()), spec["shape"]
        answers: list[dict[str, Any]] = []
        for image in inputs:
            draw = make_generator(self.seed, 5)  # the same for each, whatever stands beside it
            y = self.labels_for(model, spec, label, 1) if label else None
            y = y if y is None else y.to(weight.device)
            if keep:
                known = keep_mask(keep, height, width, draw).to(weight.device)
                predict = self.predictor(model, y, 1.0)
                made = complete(
                    predict, model.schedule, image[None], known,
                    min(steps, model.schedule.steps), generator=draw,
                )  # fmt: skip
                answers.append({"completed": made[0].cpu()})
                continue
            terms = self.bound_by_term(model, image[None], y, spec, draw)
            nats = bound(terms).item() + (math.log(classes_of(model)) if label else 0.0)
            bits = nats / math.log(2) / image.numel()
            answers.append({"nats": nats, "bits_per_dimension": bits})
        return answers

    # --------------------------------------------------------------------------------- pictures

    def picture_samples(self, model: Diffusion, data: Data, history: History) -> Figure:
        """Images that were drawn from noise, of all classes in turn where there are classes.

        How near they are to training images is drawn beside these.
        """
        made = self.draw_some(model, data.spec, 64, 6)
        return plot.image_grid((made + 1) / 2, columns=16, title="drawn from noise")

    def picture_noising(self, model: Diffusion, data: Data, history: History) -> Figure:
        """A validation image after t steps of noising, another on its way back, and its guess.

        In much noise the guess is a blurred mean of many images, which then becomes one of them.
        """
        schedule, weight = model.schedule, next(model.parameters())
        draw = make_generator(self.seed, 7)
        (x, *_) = data.some("valid", torch.arange(1))
        eps = torch.randn(x.shape, generator=draw).to(x)
        labels = self.labels_for(model, data.spec, "", 1)
        predict = self.predictor(model, None if labels is None else labels.to(weight.device), 1.0)
        noise = torch.randn(x.shape, generator=draw).to(weight)
        way = denoise(predict, schedule, noise, self.sampling_steps, DDIM(), limit=1.0)
        states, before = [], noise
        for (t, _), (_, after, taken) in zip(
            sampling_steps(self.sampling_steps, schedule.steps), way, strict=True
        ):
            states.append((t, before, taken))
            before = after
        states.append((0, before, before))
        first = 1 if len(states) > 2 else 0  # the first guess, of nothing but noise, is noise
        shown = np.linspace(first, len(states) - 1, min(9, len(states) - first)).round().astype(int)
        chosen = [states[i] for i in shown][::-1]
        ahead = [schedule(x, torch.full((1,), t, device=x.device), eps).cpu() for t, *_ in chosen]
        rows = {
            "noising": torch.cat(ahead),
            "denoising": torch.cat([image.cpu() for _, image, _ in chosen]),
            "guess": torch.cat([image.cpu() for *_, image in chosen]),
        }
        steps = ", ".join(str(t) for t, *_ in chosen)
        return image_rows(
            {name: (images + 1) / 2 for name, images in rows.items()}, xlabel=f"t = {steps}"
        )

    def picture_guidance(self, model: Diffusion, data: Data, history: History) -> Figure | None:
        """Images of the classes, a column each, by guidance w, all rows from the same noise.

        w = 0 leaves the class out, w = 1 asks for it, and more makes images typical and alike.
        """
        classes = min(classes_of(model), 10)
        if not classes:
            return None
        weight, schedule = next(model.parameters()), model.schedule
        labels = torch.arange(classes).repeat(len(GUIDANCE)).to(weight.device)
        w = torch.tensor(GUIDANCE).repeat_interleave(classes).to(weight)
        noise = torch.randn(
            classes, *data.spec["shape"], generator=make_generator(self.seed, 8)
        ).to(weight)
        predict = self.predictor(model, labels, w)
        start = noise.repeat(len(GUIDANCE), 1, 1, 1)
        way = denoise(predict, schedule, start, self.sampling_steps, DDIM(), limit=1.0)
        made = (last_of(way).cpu() + 1) / 2
        rows = {f"w = {g:g}": some for g, some in zip(GUIDANCE, made.split(classes), strict=True)}
        names = ", ".join(str(name) for name in data.spec["classes"][:classes])
        return image_rows(rows, xlabel=f"classes {names}")

    def picture_nearest(
        self, model: Diffusion, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Samples, and the training image nearest to each, by the root mean square of pixels.

        The median distance is {samples:.3f}, and {test:.3f} for images that were held out: samples
        nearer than those would be copies.
        """
        rows = torch.randperm(data.rows("train"), generator=make_generator(self.seed, 9))
        train = data.some("train", rows[:NEAREST])[0].cpu()
        held = data.some("valid", torch.arange(min(200, data.rows("valid"))))[0].cpu()
        made = self.draw_some(model, data.spec, 100, 6)
        scale = 2 * math.sqrt(made[0].numel())  # of -1 to 1
        away, nearest = torch.cdist(made.flatten(1), train.flatten(1).to(made)).min(1)
        held_away = torch.cdist(held.flatten(1), train.flatten(1)).amin(1)
        columns = slice(0, 12)
        pairs = {"sample": made[columns], "nearest": train[nearest[columns]]}
        figure = image_rows({name: (images + 1) / 2 for name, images in pairs.items()})
        medians = {"samples": away.median().item(), "test": held_away.median().item()}
        return figure, {name: value / scale for name, value in medians.items()}

    def picture_bound(
        self, model: Diffusion, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """The terms of the bound, added up over the steps, and the error of the guessed noise.

        {share:.0%} of the nats go into the first tenth of the steps, the fine detail of images.
        """
        x, y = data.some("valid", torch.arange(min(8, data.rows("valid"))))
        draw = make_generator(self.seed, 10)
        labels = y if classes_of(model) else None
        terms = self.bound_by_term(model, x, labels, data.spec, draw).mean(0).double().cpu()
        t = torch.arange(1, model.schedule.steps + 1).double()
        weight = model.schedule.weights(self.share)[2:] * x[0].numel()
        misfit = model.schedule.misfits(self.share)[2:] * x[0].numel()
        error = (terms[1:-1] - misfit) / weight
        so_far = terms[:-1].cumsum(0)
        figure = plot.panels(
            plot.Panel(
                {"so far": (t, so_far)}, xlabel="step t", ylabel="nats an image",
                log="x", title="the bound, added up from t = 1", legend="none",
            ),
            plot.Panel(
                {"error": (t[1:], error)}, xlabel="step t", ylabel="mean squared error",
                log="x", title="error of the guessed noise", legend="none",
            ),
        )  # fmt: skip
        tenth = so_far[max(0, len(so_far) // 10 - 1)] / so_far[-1]
        return figure, {"share": tenth.item()}

    def draw_some(
        self, model: Diffusion, spec: Spec, n: int, seed: int
    ) -> Float[Tensor, "n channels height width"]:
        """Images for a picture."""
        labels = self.labels_for(model, spec, "", n)
        draw = make_generator(self.seed, seed)
        return self.draw_images(model, spec, labels, draw, n=n, steps=self.sampling_steps)

    def tiny(self) -> Self:
        return replace(
            super().tiny(), noise_steps=6, sampling_steps=2, samples=10, bound_images=2,
            classifier_steps=2, widths=(4, 8), blocks=1, warmup=0,
        )  # fmt: skip


def classes_of(model: Diffusion) -> int:
    """How many classes the network knows; 0 where it was trained without."""
    network = model.network
    return network.classes if isinstance(network, NoiseUNet) else 0


RECIPES = {
    "diffusion": ImageDiffusion(
        goal="bits_per_dimension <= 3 and recognised >= 0.8 and classes >= 10",
        covers=("G6", "G7", "G8", "G9", "G10", "G11"),
    ),
    "diffusion-mnist": ImageDiffusion(
        data="mnist", widths=(64, 128, 128), blocks=2, noise_steps=1000, noising="linear",
        steps=8_000, batch_size=256, lr=5e-4, warmup=400, samples=10_000, eval_every=1000,
        bound_images=500, classifier_steps=3000,
        goal="recognised >= 0.9 and classes >= 10",
        covers=("G8", "G10", "G11"),
    ),
    "diffusion-cifar": ImageDiffusion(
        data="cifar10", widths=(64, 128, 128, 128), blocks=2, attention=2, noise_steps=1000,
        noising="linear", steps=12_000, batch_size=256, lr=5e-4, warmup=400, mirror=True,
        samples=2000, eval_every=1000, bound_images=500, classifier_steps=3000,
        goal="bits_per_dimension <= 4.0",
        covers=("G8", "G10", "G11"),
    ),
}  # fmt: skip
