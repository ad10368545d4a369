"""A GAN for images: the players of `gan.py` with convolutions, the same losses and penalty.

    z(t) = cos(t) z_1 + sin(t) z_2              (1)  noise on the way from one draw to another

where z_1 and z_2 are standard normal, and so z(t) is at every angle t: G has seen its like in
training, while the middle of a straight line would be too near to 0. The generator doubles small
maps twice by transposed convolutions, and the discriminator halves images twice.

Radford, Metz, Chintala (2016), "Unsupervised representation learning with deep convolutional
generative adversarial networks", arXiv:1511.06434. Unlike theirs, the discriminator has no batch
normalisation, because with it a score depends on the other images of a batch, and both have two
convolutions; the weights of the generator that is kept are averaged over its training.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.optim import Optimizer

from everynet import plot
from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.nn.ema import EMA
from everynet.recipes.recipe import Goal
from everynet.recipes.state import State
from everynet.recipes.trained import Trained
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.seeds import generator
from everynet.zoo.generative.binary_images import unit_images
from everynet.zoo.generative.gan import GAN, losses_of_players, play, player_optimizers
from everynet.zoo.generative.pictures.codes import image_rows
from everynet.zoo.generative.pictures.pixels import (
    compare_nearest,
    image_frames,
    image_mosaics,
    nearest_images,
)
from everynet.zoo.generative.sample_quality import QUALITY, check_sides, measure_samples

SHOTS = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)
"""Steps at which the gallery turns to its next place: each ends with the images of such a step."""
SHOWN = 12
"""Images of a step that it holds."""


class ConvGAN(GAN):
    """The same for images: both players are convolutional.

    `gallery` holds images of G by the step they are from, of some batches of the training.
    """

    gallery: Tensor
    bounds: Tensor

    def __init__(self, latent_size: int, width: int, shape: Sequence[int]) -> None:
        nn.Module.__init__(self)  # the players of GAN are not needed
        self.generator = ConvGenerator(latent_size, width, shape)
        self.discriminator = ConvDiscriminator(width, shape)
        self.register_buffer("gallery", torch.zeros((len(SHOTS) + 1) * SHOWN, *shape))
        self.register_buffer("bounds", torch.tensor(SHOTS), persistent=False)

    @torch.no_grad()
    def keep(self, images: Float[Tensor, "batch channels height width"], step: Tensor) -> None:
        """Put images into the gallery, at the place of this step: without waiting for a device."""
        shown = images.detach()[:SHOWN].to(self.gallery)
        place = torch.bucketize(step + 1, self.bounds) * SHOWN
        rows = place + torch.arange(len(shown), device=place.device)
        self.gallery.index_copy_(0, rows, shown)


class ConvGenerator(nn.Module):
    """Maps noise to images with pixels from 0 to 1, which are doubled twice on the way.

    layer   linear       transposed convolution    transposed convolution
    maps    2 width      width                     channels
    side    H / 4        H / 2                     H
    """

    def __init__(self, latent_size: int, width: int, shape: Sequence[int]) -> None:
        super().__init__()
        channels, height, breadth = divided_by_4(shape)
        inner = (2 * width, height // 4, breadth // 4)
        self.start = nn.Sequential(
            *(nn.Linear(latent_size, math.prod(inner)), nn.Unflatten(1, inner)),
            *(nn.BatchNorm2d(2 * width), nn.ReLU()),
        )
        self.middle = nn.Sequential(
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU()
        )
        self.end = nn.ConvTranspose2d(width, channels, 4, 2, 1)

    def forward(
        self, z: Float[Tensor, "batch latent"]
    ) -> Float[Tensor, "batch channels height width"]:
        logits: Tensor = self.end(self.middle(self.start(z)))
        return logits.sigmoid()


class ConvDiscriminator(nn.Module):
    """Maps images to scores; their sides are halved twice on the way."""

    def __init__(self, width: int, shape: Sequence[int]) -> None:
        super().__init__()
        channels, height, breadth = divided_by_4(shape)
        self.features = nn.Sequential(
            *(nn.Conv2d(channels, width, 4, 2, 1), nn.LeakyReLU(0.2)),
            *(nn.Conv2d(width, 2 * width, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten()),
        )
        self.score = nn.Linear(2 * width * (height // 4) * (breadth // 4), 1)

    def forward(self, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch 1"]:
        scores: Tensor = self.score(self.features(2 * x - 1))
        return scores


def divided_by_4(shape: Sequence[int]) -> tuple[int, int, int]:
    """Channels, height and width of images that can be halved twice."""
    channels, height, width = shape
    if height % 4 or width % 4:
        raise ValueError(
            f"images ({height} x {width}) must have sides that 4 divides, because they are halved "
            "twice; give size=28 or another such"
        )
    return channels, height, width


def between(
    z: Float[Tensor, "*batch latent"], other: Float[Tensor, "*batch latent"], angle: float
) -> Float[Tensor, "*batch latent"]:
    """Noise on the circle through two draws: at any angle as standard normal as they are."""
    return math.cos(angle) * z + math.sin(angle) * other  # (1)


# -------- the network ends here; training and pictures follow --------

MOST = 1_000_000
"""Images that are generated by one command."""
FRAMES, RATE = 72, 12.0  # of a film, and how many of them are shown in a second


@dataclass(frozen=True, kw_only=True)
class GeneratedImages(Training[ConvGAN]):
    """Generate images like those of a set, by convolutional players."""

    meanings: ClassVar[Mapping[str, str]] = {
        "discriminator_accuracy": "the share of images, real and generated, that D tells right",
        **QUALITY,
    }

    data: str = "digits"
    """A known set of images, or a folder with one subfolder of images for each class."""
    size: int = 0
    """Side of the images in pixels, to which others are brought; 0 leaves them as they are."""
    strict: bool = False
    """Refuse a file that is no image or cannot be read, instead of skipping and counting it."""
    steps: int = 3000
    lr: float = 2e-3
    schedule: str = "linear"
    gamma: float = 0.1
    """Weight of the gradient penalty at real images; 0 leaves it out."""
    momentum: float = 0.5
    """Adam's beta_1."""
    latent_size: int = 64
    """Numbers of noise from which an image is generated."""
    width: int = 32
    """Feature maps beside the image; beside them each player has twice as many."""
    ema: float = 0.999
    """Decay of averaged weights, which are the ones that are kept; 0 averages none."""
    samples: int = 1000
    """Images that are generated at the end, to be recognised by a classifier."""
    of: Trained = Trained()  # noqa: RUF009 -- frozen, and the same for all
    """The run of an image classifier that looks at the samples; empty trains a small one."""
    classifier_steps: int = 600
    """Updates of the classifier that is trained where `of` is empty."""

    captured: ClassVar[bool] = True
    overfits: ClassVar[bool] = False  # against one batch the players circle: neither wins
    last_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0, "size", "gamma")
        self.at_least(1, "width", "latent_size", "classifier_steps")
        self.require(0 <= self.momentum < 1, "momentum", "at least 0 and below 1")
        adam = self.optimizer in ("adam", "adamw")
        self.require(adam, "optimizer", "adam or adamw, because momentum is a number of theirs")
        self.require(self.batch_size >= 2, "batch_size", "at least 2, for batch normalisation")
        self.at_least(2, "samples")
        self.require(0 <= self.ema < 1, "ema", "at least 0 and below 1; 0.999 is usual")

    def dataset(self) -> Data:
        """Images with pixels from 0 to 1; their classes are for the quality of samples alone."""
        data = load(
            self.data, kind="image", batch_size=self.batch_size, seed=self.seed, size=self.size,
            strict=self.strict,
        )  # fmt: skip
        return check_sides(unit_images(data))

    def model(self, data: Data) -> ConvGAN:
        try:
            return ConvGAN(self.latent_size, self.width, data.spec["shape"])
        except ValueError as error:
            raise UserError(str(error)) from None

    def extra(self, model: ConvGAN) -> nn.Module:
        return EMA(model, self.ema) if self.ema else nn.Module()

    def optimizers(self, model: ConvGAN) -> dict[str, Optimizer]:
        return player_optimizers(model, self.optimizer, self.lr, self.weight_decay, self.momentum)

    def step(self, state: State[ConvGAN], batch: Batch) -> Terms:
        clips = {"clip": self.clip, "clip_value": self.clip_value}
        terms, fake = play(state, batch, self.latent_size, self.gamma, **clips)
        state.model.keep(fake, state.clock)
        return terms

    def metrics(self, model: ConvGAN, batch: Batch) -> dict[str, Tensor]:
        x = batch[0]
        z = torch.randn(len(x), self.latent_size).to(x)
        right = (model.score(x) > 0).float() + (model(z) < 0).float()
        return {"discriminator_accuracy": right / 2}

    def monitor(self) -> Goal | None:
        """The last weights: no metric of the validation split says how good samples are."""
        return None

    def final(
        self, model: ConvGAN, data: Data, generator: torch.Generator, *, samples: int = 0
    ) -> dict[str, float]:
        """The quality of `samples` (0: as set)."""
        if samples and not 2 <= samples <= MOST:
            raise UserError(f"samples ({samples}) must be from 2 to {MOST:,}; 0 is as trained")
        z = torch.randn(samples or self.samples, self.latent_size, generator=generator)
        return measure_samples(
            self.images(model, z), data, self.of, steps=self.classifier_steps, seed=self.seed,
            binary=False,
        )  # fmt: skip

    def images(
        self, model: ConvGAN, z: Float[Tensor, "n latent"]
    ) -> Float[Tensor, "n channels height width"]:
        """G(z), some at a time."""
        weight = next(model.parameters())
        return torch.cat([model.generator(some.to(weight)).float().cpu() for some in z.split(1000)])

    def sample(
        self,
        model: ConvGAN,
        spec: Spec,
        generator: torch.Generator,
        *,
        n: int = 64,
        walk: bool = False,
        film: bool = False,
    ) -> Float[Tensor, "n channels height width"] | plot.Film:
        """Images from noise; walk=true goes from one to another in n steps.

        A film goes once round the circle through two draws of noise, each of n images.
        """
        if not 1 <= n <= MOST:
            raise UserError(f"n ({n}) must be from 1 to {MOST:,}, because they are kept in memory")
        if film:
            if n > 400:
                raise UserError(f"n ({n}) must be at most 400 of a film, to be seen side by side")
            start, end = torch.randn(2, n, self.latent_size, generator=generator)

            def frames() -> Iterator[Tensor]:
                for frame in range(FRAMES):
                    yield self.images(model, between(start, end, 2 * math.pi * frame / FRAMES))

            return plot.Film(image_frames(frames(), math.ceil(n**0.5)), RATE)
        if not walk:
            return self.images(model, torch.randn(n, self.latent_size, generator=generator))
        start, end = torch.randn(2, self.latent_size, generator=generator)
        angles = torch.linspace(0, math.pi / 2, n).tolist()
        return self.images(model, torch.stack([between(start, end, angle) for angle in angles]))

    def noise(self, rows: int, purpose: int) -> Float[Tensor, "rows latent"]:
        """Noise for a picture."""
        return torch.randn(rows, self.latent_size, generator=generator(self.seed, purpose))

    def picture_samples(self, model: ConvGAN, data: Data, history: History) -> Figure:
        """Generated images beside validation images.

        None is chosen: they are of the first 64 draws of noise.
        """
        real = data.some("valid", torch.arange(min(64, data.rows("valid"))))[0].cpu()
        made = self.images(model, self.noise(64, 1))
        return image_mosaics({"generated": made, "validation images": real})

    def picture_steps(
        self, model: ConvGAN, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Images of the generator in training, a row for each of some steps, from other noise.

        A pixel differs by {first:.2f} on average between two images of the first row and by
        {last:.2f} between two of the last: one shape made again and again would give 0.
        """
        steps = int(history[-1]["step"]) if history else self.steps
        last = [min(shot, steps) for shot in SHOTS] + [steps]
        rows = [row for row in range(len(last)) if row == 0 or last[row] > last[row - 1]]
        shown = model.gallery.float().cpu().split(SHOWN)
        apart = [float((shown[n] - shown[n].roll(1, 0)).abs().mean()) for n in (rows[0], rows[-1])]
        drawn = image_rows({f"step {last[row]:,}": shown[row] for row in rows})
        return drawn, dict(zip(("first", "last"), apart, strict=True))

    def picture_interpolation(
        self, model: ConvGAN, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Images along quarters of circles from one draw of noise to another, a row for each.

        The median squared distance to the nearest training image is {ends:.1f} at the ends and
        {middle:.1f} half way: a network that knew images by heart would be far from all between.
        """
        starts, ends = self.noise(6, 2), self.noise(6, 3)
        angles = torch.linspace(0, math.pi / 2, 12).tolist()
        z = torch.stack([between(starts, ends, angle) for angle in angles], 1)
        made = self.images(model, z.flatten(0, 1)).unflatten(0, (6, 12))
        away = nearest_images(
            made.flatten(0, 1).flatten(1), lambda rows: data.some("train", rows)[0].cpu(),
            data.rows("train"),
        )[0].view(6, 12)  # fmt: skip
        places = {"ends": [0, 11], "middle": [5, 6]}
        drawn = image_rows(
            {f"noise {row + 1} to {row + 7}": images for row, images in enumerate(made)}
        )
        return drawn, {name: away[:, at].median().item() for name, at in places.items()}

    def picture_nearest(
        self, model: ConvGAN, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Generated images above the nearest training image of each, and squared distances to it.

        The median is {samples:.1f} of samples and {held_out:.1f} of validation images: samples
        that were copies would be nearer than new images are.
        """
        made = self.images(model, self.noise(200, 1))
        return compare_nearest(made, data)

    def picture_game(self, model: ConvGAN, data: Data, history: History) -> Figure:
        """Both losses by step, beside their values where D knows nothing, and what D tells apart.

        Where samples were perfect the share would be one half.
        """
        share = plot.logged_curves(history, "valid")["discriminator_accuracy"]
        right = plot.Panel(
            {"images it tells right": share}, xlabel="step", ylabel="share", ylim=(0.0, 1.05),
            title="discriminator, validation", levels={"knows nothing": 0.5}, legend="below",
        )  # fmt: skip
        return plot.panels(losses_of_players(history), right, height=3.0)

    def tiny(self) -> Self:
        small = super().tiny()
        return replace(small, samples=20, classifier_steps=3, latent_size=min(4, self.latent_size))


RECIPES = {
    "gan-mnist": GeneratedImages(
        data="mnist", steps=40_000, batch_size=128, width=64, samples=10_000,
        classifier_steps=3000, eval_every=3000,
        goal="recognised >= 0.9 and classes >= 10",
        covers=("G12",),
    ),
}  # fmt: skip
