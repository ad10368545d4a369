"""A generative adversarial network: a generator makes points, a discriminator tells them from data.

    V(D, G) = E_x log D(x) + E_z log(1 - D(G(z)))        (1)  D maximises it, G minimises it
    L_D     = -V(D, G)                                   (2)  descended by D alone
    L_G     = -E_z log D(G(z))                           (3)  descended by G alone
    R       = gamma / 2 E_x |ds(x) / dx|^2               (4)  gradient penalty, added to (2)
    D*(x)   = p(x) / (p(x) + q(x))                       (5)  the best D for a fixed G

where x is data of density p, z is standard normal noise, G(z) has density q, D(x) = sigmoid(s(x))
is the probability that x is real, s is its score and E_x is the mean over x. With the best D the
value is V(D*, G) = -2 log 2 + 2 JSD(p, q), where JSD is the Jensen-Shannon divergence: it is least
where q = p, and there D is 1/2 everywhere, L_D is 2 log 2 and L_G is log 2. Where D rejects all
that G makes, log(1 - D) is flat, so that G descends (3) in its place: it has the same fixed point,
and its gradient by s is D - 1 instead of -D.

Goodfellow et al. (2014), "Generative Adversarial Nets", arXiv:1406.2661, sections 3 and 4. Unlike
the paper, D has the penalty (4), without which the players circle and modes are lost: Mescheder,
Geiger, Nowozin (2018), "Which Training Methods for GANs do actually Converge?", arXiv:1801.04406.
Eight Gaussians on a ring are the test of Metz et al. (2017), "Unrolled Generative Adversarial
Networks", arXiv:1611.02163, for a generator that leaves out part of the data. Convolutional
players: Radford, Metz, Chintala (2016), "Unsupervised Representation Learning with Deep
Convolutional Generative Adversarial Networks", arXiv:1511.06434; unlike theirs, D has no batch
normalisation, because with it a score depends on the other images of a batch.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, Self, TypeVar

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.optim import Optimizer

from everynet import plot
from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.samplers import Made
from everynet.metrics import energy_distance
from everynet.nn.ema import EMA
from everynet.recipes.recipe import Goal
from everynet.recipes.state import State
from everynet.recipes.trained import Trained
from everynet.recipes.training import Training, make_optimizer
from everynet.system.errors import UserError
from everynet.system.seeds import generator
from everynet.zoo.generative.binary_images import unit_images
from everynet.zoo.generative.pictures.codes import image_rows
from everynet.zoo.generative.pictures.generation import noise_to_points, samples_on_surfaces
from everynet.zoo.generative.pictures.pixels import compare_nearest, image_frames, image_mosaics
from everynet.zoo.generative.sample_quality import QUALITY, check_sides, measure_samples

SHOTS = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)
"""Steps at which the gallery turns to its next place: each ends with the images of such a step."""
SHOWN = 12
"""Images of a step that it holds."""


class GAN(nn.Module):
    """A generator that maps noise to points and a discriminator that maps points to scores."""

    generator: nn.Module
    discriminator: nn.Module

    def __init__(self, latent_size: int, hidden_size: int, features: int = 2) -> None:
        super().__init__()
        self.generator = mlp(latent_size, hidden_size, hidden_size, features)
        self.discriminator = mlp(features, hidden_size, hidden_size, 1)

    def forward(self, z: Float[Tensor, "batch latent"]) -> Float[Tensor, " batch"]:
        """The scores s(G(z)) of generated points."""
        return self.score(self.generator(z))

    def score(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, " batch"]:
        """The logit s(x) of D(x): above 0 where a point looks real."""
        s: Tensor = self.discriminator(x)
        return s[:, 0]


def mlp(*sizes: int) -> nn.Sequential:
    """Linear layers of these sizes with a ReLU between any two."""
    layers = [part for n, m in pairwise(sizes) for part in (nn.Linear(n, m), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


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
    return math.cos(angle) * z + math.sin(angle) * other


def discriminator_loss(
    real: Float[Tensor, " some"], fake: Float[Tensor, " others"]
) -> Float[Tensor, ""]:
    """L_D from the scores of real and of generated points; log sigmoid(s) is -softplus(-s)."""
    value = -softplus(-real).mean() - softplus(fake).mean()  # (1)
    return -value  # (2)


def generator_loss(fake: Float[Tensor, " some"]) -> Float[Tensor, ""]:
    """L_G from the scores of generated points: it does not saturate where D is sure."""
    return softplus(-fake).mean()  # (3)


def gradient_penalty(
    real: Float[Tensor, " some"], x: Float[Tensor, "some ..."], gamma: float
) -> Float[Tensor, ""]:
    """R from the real points `x` and their scores: what D pays for a slope at the data."""
    (slope,) = torch.autograd.grad(real.sum(), x, create_graph=True)
    return gamma / 2 * slope.flatten(1).square().sum(1).mean()  # (4)


def best_discriminator(
    p: Float[Tensor, "*points"], q: Float[Tensor, "*points"]
) -> Float[Tensor, "*points"]:
    """The probability that a point is real, from the densities of real and generated ones."""
    return p / (p + q)  # (5)


# -------- the network ends here; training and pictures follow --------

P = TypeVar("P", bound=GAN)
MODES = 8
"""Gaussians on the ring."""
MOST = 1_000_000
"""Points that are generated at once."""
FRAMES, RATE = 72, 12.0  # of a film, and how many of them are shown in a second


def mode_centres(radius: float) -> Float[Tensor, "modes 2"]:
    """The means of the Gaussians, the first on the right, then against the clock."""
    angle = torch.arange(MODES, dtype=torch.float64) * (2 * math.pi / MODES)
    return radius * torch.stack([angle.cos(), angle.sin()], 1)


def sample_ring(
    rows: int, radius: float, std: float, draw: torch.Generator
) -> Float[Tensor, "rows 2"]:
    """Points of the eight Gaussians, each as likely as another."""
    mode = torch.randint(MODES, (rows,), generator=draw)
    noise = torch.randn(rows, 2, generator=draw, dtype=torch.float64)
    return (mode_centres(radius)[mode] + std * noise).float()


def mixture_density(
    x: Float[Tensor, "points 2"], means: Float[Tensor, "modes 2"], std: float
) -> Float[Tensor, " points"]:
    """The density of a mixture of equally likely round Gaussians."""
    square = torch.cdist(x, means).square() / (2 * std**2)
    return torch.exp(-square).mean(1) / (2 * math.pi * std**2)


@dataclass(frozen=True, kw_only=True)
class AdversarialTraining(Training[P]):
    """Both players learn, one update of each in turn."""

    gamma: float = 0.1
    """Weight of the gradient penalty at real points; 0 leaves it out."""
    momentum: float = 0.5
    """Adam's beta_1: 0.9 would chase where the other player was."""
    latent_size: int = 2
    """Numbers of noise from which a point is generated."""

    captured: ClassVar[bool] = True
    overfits: ClassVar[bool] = False  # against one batch the players circle: neither wins
    last_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0, "gamma")
        self.require(0 <= self.momentum < 1, "momentum", "at least 0 and below 1")
        self.at_least(1, "latent_size")
        adam = self.optimizer in ("adam", "adamw")
        self.require(adam, "optimizer", "adam or adamw, because momentum is a number of theirs")

    def optimizers(self, model: P) -> dict[str, Optimizer]:
        made = {
            name: make_optimizer(player.parameters(), self.optimizer, self.lr, self.weight_decay)
            for name, player in model.named_children()
        }
        for optimizer in made.values():
            for group in optimizer.param_groups:
                group["betas"] = (self.momentum, 0.9)
        return made

    def step(self, state: State[P], batch: Batch) -> Terms:
        """D descends (2) + (4), then G descends (3) against the D of now, from the same noise."""
        x = batch[0].clone().requires_grad_()
        model, clips = state.model, {"clip": self.clip, "clip_value": self.clip_value}
        z = torch.randn(len(x), self.latent_size, dtype=x.dtype, device=x.device)
        fake = model.generator(z)

        real_score = model.score(x)
        d_loss = discriminator_loss(real_score, model.score(fake.detach()))
        penalty = gradient_penalty(real_score, x, self.gamma)
        state.descend(d_loss + penalty, "discriminator", **clips)

        g_loss = generator_loss(model.score(fake))
        state.descend(g_loss, "generator", **clips)
        self.after(state, fake)
        return {"discriminator": d_loss, "penalty": penalty, "generator": g_loss}

    def after(self, state: State[P], fake: Tensor) -> None:
        """What else an update does with the points of G."""


def losses_of_players(history: History) -> plot.Panel:
    """Both losses by step, beside their values where D knows nothing."""
    train = plot.logged_curves(history, "train")
    losses, guides = {}, {}
    for name, level in (("discriminator", 2 * math.log(2)), ("generator", math.log(2))):
        steps, values = train[name]
        losses[name] = (steps, plot.moving_mean(values, max(1, len(values) // 60)))
        guides[name] = (steps, torch.full_like(steps, level))
    return plot.Panel(
        losses,
        xlabel="step",
        ylabel="loss, moving mean",
        title="losses of the two players",
        guides=guides,
        dashes="where q = p: 2 log 2 and log 2",
        legend="below",
    )


@dataclass(frozen=True, kw_only=True)
class GaussianRing(AdversarialTraining[GAN]):
    """Generate points like those of eight Gaussians on a ring, all eight of them."""

    meanings: ClassVar[Mapping[str, str]] = {
        "energy_distance": "energy distance of generated and real points, 0 where both are alike",
        "modes": "modes of eight with at least a quarter of their fair share of generated points",
        "quality": "the share of generated points within three standard deviations of a mean",
    }

    steps: int = 6000
    batch_size: int = 128
    lr: float = 2e-3
    schedule: str = "cosine"
    hidden_size: int = 64
    """Units in each of the two hidden layers of either player."""
    radius: float = 2.0
    """Of the ring."""
    std: float = 0.1
    """Of each Gaussian, along each axis."""
    held_out: int = 2000
    """Points in each of the validation and the test set; as many are generated."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.above(0, "radius", "std")
        self.at_least(1, "hidden_size")
        self.require(self.held_out >= 2, "held_out", "at least 2, because pairs are compared")

    def dataset(self) -> Data:
        """Training points drawn anew at each step, which no discriminator can learn by heart."""

        def make(step: int) -> Batch:
            draw = generator(self.seed, 1, step)
            return (sample_ring(self.batch_size, self.radius, self.std, draw),)

        held = {
            part: (sample_ring(self.held_out, self.radius, self.std, generator(2014, number)),)
            for number, part in enumerate(("valid", "test"))
        }
        spec = {
            "name": "eight Gaussians on a ring", "kind": "table", "task": "density",
            "shape": [2], "features": ["x", "y"], "mean": [0.0, 0.0], "std": [1.0, 1.0],
            "classes": [],
            "split": "training points are drawn at each step; validation and test sets are fixed",
        }  # fmt: skip
        digest = hashlib.sha256(f"ring {self.radius} {self.std}".encode())
        for (points,) in held.values():
            digest.update(points.numpy().tobytes())
        return Data(held, spec, self.batch_size, self.seed, digest.hexdigest(), Made(make=make))

    def model(self, data: Data) -> GAN:
        return GAN(self.latent_size, self.hidden_size)

    def metrics(self, model: GAN, batch: Batch) -> dict[str, Tensor]:
        (x,) = batch
        z = torch.randn(len(x), self.latent_size).to(x)
        return {"real": x, "fake": model.generator(z)}

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        real, fake = (outputs[name].double().cpu().view(-1, 2) for name in ("real", "fake"))
        return {
            "energy_distance": energy_distance(real, fake).item(),
            "modes": float(self.count_modes(fake)),
            "quality": self.count_by_mode(fake).sum().item() / len(fake),
        }

    def count_by_mode(self, fake: Float[Tensor, "rows 2"]) -> Tensor:
        """How many points lie within three standard deviations of each mean."""
        away, nearest = torch.cdist(fake.double(), mode_centres(self.radius)).min(1)
        return nearest[away <= 3 * self.std].bincount(minlength=MODES)

    def count_modes(self, fake: Float[Tensor, "rows 2"]) -> int:
        """How many modes have at least a quarter of their fair share of the points."""
        return int((self.count_by_mode(fake) >= len(fake) / MODES / 4).sum())

    def picture_samples(
        self, model: GAN, data: Data, history: History
    ) -> tuple[Figure, dict[str, int]]:
        """Generated points beside real ones, then on D and on the best D for this generator.

        {modes} of eight Gaussians are covered; D is 1/2 where it cannot tell the two apart.
        """
        weight, span = next(model.parameters()), 1.5 * self.radius
        (real,) = next(iter(data.valid))
        fake = model.generator(torch.randn(2000, self.latent_size).to(weight)).double().cpu()
        places = plot.square(120, -span, span)
        answer = model.score(places.to(weight)).sigmoid()
        # Both densities are smoothed alike, which leaves (5) as it is where p = q.
        bandwidth = self.std / 2
        p = mixture_density(places, mode_centres(self.radius), math.hypot(self.std, bandwidth))
        q = mixture_density(places, fake, bandwidth)
        somewhere = p + q > 1e-3 * p.max()  # elsewhere there is nothing to tell apart
        best = torch.where(somewhere, best_discriminator(p, q), torch.nan)
        surfaces = {"D(x)": answer, "D*(x), the best": best}
        figure = samples_on_surfaces(real, fake, surfaces, span=span)
        return figure, {"modes": self.count_modes(fake)}

    def picture_noise(self, model: GAN, data: Data, history: History) -> Figure:
        """Noise in the colour of the Gaussian that its point is nearest to, and circles of noise.

        A sector of noise is drawn together to a Gaussian; points between come from its edges.
        """
        weight, turn = next(model.parameters()), torch.linspace(0, 2 * math.pi, 721)
        z = torch.randn(2000, self.latent_size).to(weight)
        fake = model.generator(z).double().cpu()
        circles = {}
        for length in (0.5, 1.2, 2.0):
            circle = torch.zeros(len(turn), self.latent_size)
            circle[:, 0] = length * turn.cos()
            circle[:, -1] = length * turn.sin()
            image = model.generator(circle.to(weight)).cpu()
            circles[f"|z| = {length}"] = (circle[:, [0, -1]], image)
        nearest = torch.cdist(fake, mode_centres(self.radius)).argmin(1)
        span = 1.5 * self.radius
        return noise_to_points(z[:, [0, -1]].cpu(), fake, nearest, circles, span=span)

    def picture_game(self, model: GAN, data: Data, history: History) -> Figure:
        """Both losses by step, beside their values where D knows nothing, and how good samples are.

        Losses that settle at 2 log 2 and log 2 mean that neither player wins.
        """
        valid = plot.logged_curves(history, "valid")
        steps, modes = valid["modes"]
        return plot.panels(
            losses_of_players(history),
            plot.Panel(
                {"modes covered / 8": (steps, modes / MODES), "near a mode": valid["quality"]},
                xlabel="step",
                ylabel="share",
                title="generated points, validation",
                ylim=(0.0, 1.05),
                legend="below",
            ),
            height=3.0,
        )

    def sample(
        self, model: GAN, spec: Spec, generator: torch.Generator, *, n: int = 500
    ) -> Float[Tensor, "n 2"]:
        """Points generated from noise."""
        if not 1 <= n <= MOST:
            raise UserError(f"n ({n}) must be between 1 and {MOST:,}: so many points are made")
        weight = next(model.parameters())
        z = torch.randn(n, self.latent_size, generator=generator).to(weight)
        return torch.cat([model.generator(some) for some in z.split(10_000)])


@dataclass(frozen=True, kw_only=True)
class GeneratedImages(AdversarialTraining[ConvGAN]):
    """Generate images like those of a set, by convolutional players."""

    meanings: ClassVar[Mapping[str, str]] = {
        "told_apart": "the share of real and generated images that D takes for what they are",
        **QUALITY,
    }

    data: str = "digits"
    """A known set of images, or a folder with one subfolder of images for each class."""
    size: int = 0
    """Side of the images in pixels, to which others are brought; 0 leaves them as they are."""
    strict: bool = False
    """Refuse a file that is no image or cannot be read, instead of skipping and counting it."""
    steps: int = 3000
    lr: float = 5e-4
    schedule: str = "linear"
    gamma: float = 1.0
    """Weight of the gradient penalty at real images; 0 leaves it out."""
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

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0, "size")
        self.at_least(1, "width", "classifier_steps")
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

    def after(self, state: State[ConvGAN], fake: Tensor) -> None:
        """Put images of the batch into the gallery."""
        state.model.keep(fake, state.clock)

    def metrics(self, model: ConvGAN, batch: Batch) -> dict[str, Tensor]:
        x = batch[0]
        z = torch.randn(len(x), self.latent_size).to(x)
        told = (model.score(x) > 0).double() + (model(z) < 0).double()
        return {"told_apart": told / 2}

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

    def picture_steps(self, model: ConvGAN, data: Data, history: History) -> Figure:
        """Images of the generator in training, a row for each of some steps, from other noise.

        First one shape that fools the discriminator is made again and again; then there are many.
        """
        steps = int(history[-1]["step"]) if history else self.steps
        last = [min(shot, steps) for shot in SHOTS] + [steps]
        rows = [row for row in range(len(last)) if row == 0 or last[row] > last[row - 1]]
        shown = model.gallery.float().cpu().split(SHOWN)
        return image_rows({f"step {last[row]:,}": shown[row] for row in rows})

    def picture_interpolation(self, model: ConvGAN, data: Data, history: History) -> Figure:
        """Images along quarters of circles from one draw of noise to another, a row for each.

        Every image on the way is as good as those at the ends: G has not learned images by heart.
        """
        starts, ends = self.noise(6, 2), self.noise(6, 3)
        angles = torch.linspace(0, math.pi / 2, 12).tolist()
        z = torch.stack([between(starts, ends, angle) for angle in angles], 1)
        made = self.images(model, z.flatten(0, 1)).unflatten(0, (6, 12))
        return image_rows(
            {f"noise {row + 1} to {row + 7}": images for row, images in enumerate(made)}
        )

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
        told = plot.logged_curves(history, "valid")["told_apart"]
        right = plot.Panel(
            {"share told apart": told}, xlabel="step", ylabel="share", ylim=(0.0, 1.05),
            title="discriminator, validation", levels={"knows nothing": 0.5}, legend="below",
        )  # fmt: skip
        return plot.panels(losses_of_players(history), right, height=3.0)

    def tiny(self) -> Self:
        small = super().tiny()
        return replace(small, samples=20, classifier_steps=3, latent_size=min(4, self.latent_size))


RECIPES = {
    "gan-ring": GaussianRing(
        goal="energy_distance <= 0.015 and modes >= 8 and quality >= 0.93", covers=("G12",)
    ),
    "gan-mnist": GeneratedImages(
        data="mnist", steps=30_000, batch_size=128, width=64, samples=10_000,
        classifier_steps=3000, eval_every=3000,
        goal="recognised >= 0.9 and classes >= 10",
        covers=("G12",),
    ),
}  # fmt: skip
